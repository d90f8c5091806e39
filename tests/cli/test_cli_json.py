"""``--json``: every command has it, prints it and nothing else on stdout, and strict readers can
read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import FOREST, PATHS, Hospital, Ward, done

from encryptedstats.cli._console import print_json
from encryptedstats.cli._help import load

Arguments = Callable[[Hospital, Ward, Path], tuple[Any, ...]]

# How each command is run; other modules test what it says. What keys its document has is checked
# against its help wherever tests ask for JSON, see ``cli_helpers.check_json``.
COMMANDS: dict[str, Arguments] = {
    "data schema": lambda h, w, t: (h.csv, "--target", "ill", "-o", t / "s.json"),
    "plan": lambda h, w, t: (h.schema, "counts(v0)", "--rows", 60, "-o", t / "p.json"),
    "key make": lambda h, w, t: (t / "s", t / "p", "max_value=100", "depth=1"),
    "key public": lambda h, w, t: (h.key, t / "p"),
    "encrypt": lambda h, w, t: (h.csv, t / "t", "--schema", h.schema, "--key", h.key),
    "ask": lambda h, w, t: (w.table(0), *FOREST, "-o", t / "r"),
    "open": lambda h, w, t: (h.ask("age", "counts(v0)"), "--key", h.key, "-o", t / "x.csv"),
    "predict": lambda h, w, t: (w.opened(w.combined("mnb")), w.csv, "-o", t / "p.csv"),
    "evaluate": lambda h, w, t: (w.opened(w.combined("means")), w.csv, "-o", t / "s.csv"),
    "model calibrate": lambda h, w, t: (
        w.opened(w.fitted("mnb", 0)),
        w.home / "half1.csv",
        "-o",
        t / "m.model",
    ),
    "model combine": lambda h, w, t: (
        t / "m",
        w.fitted("mnb", 0),
        w.fitted("mnb", 1),
        "--keys",
        w.table(0),
    ),
    "data info": lambda h, w, t: (h.table,),
    "check install": lambda h, w, t: (),
}


def strict(text: str) -> Any:
    """JSON as RFC 8259 has it: Python alone would take NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("path", COMMANDS)
def test_it_is_all_that_is_printed(
    path: str, hospital: Hospital, ward: Ward, tmp_path: Path
) -> None:
    words = (*path.split(), *COMMANDS[path](hospital, ward, tmp_path), "--json")
    assert isinstance(strict(done(*words).stdout), dict)


def test_every_command_that_prints_json_says_which_keys_it_has() -> None:
    """Commands of other modules test their own."""
    without = {path for path in PATHS if "as_json" not in load(path).known.shared}
    silent = {
        "create",
        "join",
        "link",
        "keygen",
        "add",
        "share",
        "fit",
        "open",
        "exclude",
        "retire",
    }
    assert without == {
        "app",
        "worker serve",
        "worker audit",
        *(f"study {name}" for name in silent),
    }
    documented = {path for path in PATHS if load(path).known.doc.json}
    assert set(PATHS) - without - documented == {"data info"}  # which says what there is in a file


def test_numbers_that_are_none_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": (float("-inf"), "nan")}})
    assert strict(capsys.readouterr().out) == {
        "a": None,
        "b": [1.5, None],
        "c": {"d": [None, "nan"]},
    }
