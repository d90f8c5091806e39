"""``--json``: every command has it, prints it and nothing else on stdout, and strict readers can
read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_helpers import FOREST, Hospital, Ward, done

from encryptedstats.cli import _app
from encryptedstats.cli._console import print_json
from encryptedstats.cli._help import loaded

PROGRAM = typer.main.get_command(_app.app)
Arguments = Callable[[Hospital, Ward, Path], tuple[Any, ...]]

# How each command is run; other modules test what it says.
COMMANDS: dict[str, Arguments] = {
    "schema": lambda h, w, t: (h.csv, "--target", "ill", "-o", t / "s.json"),
    "plan": lambda h, w, t: (
        "--schema",
        h.schema,
        "--rows",
        60,
        "--counts",
        "v0",
        "-o",
        t / "p.json",
    ),
    "keygen": lambda h, w, t: (t / "s", t / "p", "--max-value", 100, "--depth", 1),
    "encrypt": lambda h, w, t: (
        h.csv,
        t / "t",
        "--schema",
        h.schema,
        "--key",
        h.key,
        "--workers",
        1,
    ),
    "decrypt": lambda h, w, t: (h.ask("age", "counts", "v0"), "--key", h.key, "-o", t / "x.csv"),
    "predict": lambda h, w, t: (w.opened(w.combined("mnb")), w.csv, "-o", t / "p.csv"),
    "evaluate": lambda h, w, t: (w.opened(w.combined("means")), w.csv, "-o", t / "s.csv"),
    "calibrate": lambda h, w, t: (
        w.opened(w.fitted("mnb", 0)),
        w.home / "half1.csv",
        "-o",
        t / "m",
    ),
    "info": lambda h, w, t: (h.table,),
    "counts": lambda h, w, t: (h.table, "v0", "-o", t / "r"),
    "crosstab": lambda h, w, t: (h.table, "v1", "v3", "-o", t / "r"),
    "moments": lambda h, w, t: (h.table, "v4", "-o", t / "r"),
    "fit": lambda h, w, t: (w.table(0), "-o", t / "m", *FOREST, "--workers", 1),
    "combine": lambda h, w, t: (
        t / "m",
        w.fitted("mnb", 0),
        w.fitted("mnb", 1),
        "--keys",
        w.table(0),
    ),
    "doctor": lambda h, w, t: (),
    "bench": lambda h, w, t: ("--quick",),
}


def strict(text: str) -> Any:
    """JSON as RFC 8259 has it: Python alone would take NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_all_that_is_printed(
    name: str, hospital: Hospital, ward: Ward, tmp_path: Path
) -> None:
    assert isinstance(
        strict(done(name, *COMMANDS[name](hospital, ward, tmp_path), "--json").stdout), dict
    )


def test_every_command_has_it() -> None:
    """Commands of other modules test their own."""
    assert set(COMMANDS) <= set(PROGRAM.commands)
    without = [
        name
        for name in PROGRAM.commands
        if not hasattr(command := loaded(name), "commands")
        and not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert without == ["app", "report"]  # which print an address and write a page


def test_numbers_that_are_none_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": (float("-inf"), "nan")}})
    assert strict(capsys.readouterr().out) == {
        "a": None,
        "b": [1.5, None],
        "c": {"d": [None, "nan"]},
    }
