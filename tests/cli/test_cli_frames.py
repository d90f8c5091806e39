"""Results on the screen: nothing is cut off, nothing is drawn over, and numbers stand in line."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
from rich.console import Console

from encryptedstats.cli._frames import counts_view, frame_view, moments_view, number_text


def drawn(view: object, width: int = 60) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(view)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_columns_that_do_not_fit_come_below() -> None:
    frame = pd.DataFrame(
        np.arange(60).reshape(2, 30) * 1000,
        index=["a", "b"],
        columns=[f"column{i}" for i in range(30)],
    )
    lines = drawn(frame_view(frame, 60))
    assert max(map(len, lines)) <= 60
    text = "\n".join(lines)
    assert all(f"column{i}" in text for i in range(30))
    assert "59,000" in text
    assert "…" not in text


def test_many_rows_are_shown_in_part() -> None:
    frame = pd.DataFrame({"count": range(500)}, index=pd.Index(range(500), name="level"))
    for view in (frame_view(frame, 60), counts_view(frame, 60)):
        lines = drawn(view)
        assert len(lines) < 80
        assert any(line.startswith("499") for line in lines)
        assert any("440 rows are not shown" in line for line in lines)


def test_counts_have_shares_and_a_sum() -> None:
    frame = pd.DataFrame({"count": [1, 3, 0]}, index=pd.Index(["x", "y", "z"], name="letter"))
    lines = drawn(counts_view(frame, 60))
    assert lines[0].split() == ["letter", "count", "share"]
    assert lines[1].split()[:4] == ["x", "1", "25.0", "%"]
    assert lines[3].split() == ["z", "0", "0.0", "%"]
    assert lines[4].split() == ["all", "4"]
    assert "0" in drawn(counts_view(frame * 0, 60))[1]


def test_a_margin_does_not_hide_a_level_of_that_name() -> None:
    frame = pd.DataFrame(
        [[1, 2], [3, 4]],
        index=pd.Index(["all", "b"], name="r"),
        columns=pd.Index([1, "1"], name="c"),
    )
    lines = drawn(counts_view(frame, 60))
    assert lines[0].split() == ["r", "\\", "c", "1", "1", "(all)"]
    assert lines[1].split() == ["all", "1", "2", "3"]
    assert lines[3].split() == ["(all)", "4", "6", "10"]


def test_long_and_hostile_labels() -> None:
    frame = pd.DataFrame({"\x1b[31mred": [1], "[bold]": [2]}, index=["very " * 30])
    lines = drawn(frame_view(frame, 60))
    assert "\x1b" not in "\n".join(lines)
    assert "[bold]" in "\n".join(lines)
    assert max(map(len, lines)) <= 60


def test_moments_of_one_variable_have_no_covariances() -> None:
    frame = pd.DataFrame(
        {"x": [1, 5.0, 5.0, np.nan, np.nan, np.nan]},
        index=["count", "sum", "mean", "var", "std", "cov(x)"],
    )
    text = "\n".join(drawn(moments_view(frame, 60)))
    assert "n/a" in text
    assert "covariance" not in text


def test_numbers() -> None:
    assert [
        number_text(value)
        for value in (1234567, np.int64(-5), 0.1234567891, np.nan, 1e12, True, "x")
    ] == [
        "1,234,567",
        "-5",
        "0.123457",
        "n/a",
        "1e+12",
        "True",
        "x",
    ]
