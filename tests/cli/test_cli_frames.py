"""What is shown on the screen: nothing is cut off or drawn over, in pipes no line is broken."""

from __future__ import annotations

import numpy as np
import pandas as pd

from encryptedstats.cli._console import view_text
from encryptedstats.tables.answers.opened import with_margins
from encryptedstats.views import TableView, View


def test_columns_that_do_not_fit_a_terminal_come_below_and_pipes_break_nothing() -> None:
    frame = pd.DataFrame(
        np.arange(60).reshape(2, 30) * 1000,
        index=["a", "b"],
        columns=[f"column{i}" for i in range(30)],
    )
    view = View("wide", tables=(TableView("numbers", frame),))
    on_terminal = view_text(view, 60).splitlines()
    assert max(map(len, on_terminal)) <= 60
    assert all(f"column{i}" in "".join(on_terminal) for i in range(30))
    (line,) = [line for line in view_text(view).splitlines() if line.startswith("b")]
    assert line.split()[1:] == [f"{1000 * k:,}" for k in range(30, 60)]


def test_values_of_several_lines_stand_below_each_other() -> None:
    text = view_text(View("t", {"a name": ("one", "two"), "none": "", "x": "three\nfour"}))
    assert text.splitlines() == ["t", "", "a name  one", "        two", "x       three\\nfour"]


def test_what_a_terminal_would_obey_is_escaped() -> None:
    view = View("\x1b[2Jtitle", {"name": "\x1b]0;x\x07"}, notes=("\x9b2J",))
    assert not {"\x1b", "\x07", "\x9b"} & set(view_text(view))


def test_counts_have_shares_and_a_sum() -> None:
    frame = pd.DataFrame({"count": [1, 3, 0]}, index=pd.Index(["x", "y", "z"], name="letter"))
    shown = with_margins(frame)
    assert shown.loc["x"].tolist() == [1, "25.0 %"]
    assert shown.loc["z"].tolist() == [0, "0.0 %"]
    assert shown.loc["all"].tolist() == [4, "100.0 %"]
    assert shown.index.name == "letter"
    assert with_margins(frame * 0).loc["x"].tolist() == [0, ""]


def test_a_margin_does_not_hide_a_level_of_that_name() -> None:
    frame = pd.DataFrame(
        [[1, 2], [3, 4]],
        index=pd.Index(["all", "b"], name="r"),
        columns=pd.Index([1, "1"], name="c"),
    )
    shown = with_margins(frame)
    assert shown.columns.tolist() == [1, "1", "(all)"]
    assert shown.iloc[0].tolist() == [1, 2, 3]
    assert shown.iloc[2].tolist() == [4, 6, 10]
    assert (shown.index.name, shown.columns.name) == ("r", "c")
