"""Help that teaches: every command has examples, and every option in them exists."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cli_helpers import Run, done

from encryptedstats.cli import _app, _help
from encryptedstats.cli._app import ROLES
from encryptedstats.cli._exits import FAILED, INTERRUPTED, MISTAKE
from encryptedstats.cli._help import loaded

PROGRAM = typer.main.get_command(_app.app)
OWNER = ("schema", "plan", "keygen", "encrypt", "decrypt", "predict", "evaluate")
WORKER = ("info", "counts", "crosstab", "moments", "fit", "combine")


def commands(text: str) -> list[list[str]]:
    """The command lines of some examples, as a shell would take them apart."""
    joined = text.replace("\\\n", " ")
    return [
        shlex.split(line)
        for line in joined.splitlines()
        if line.strip() and not line.startswith("#")
    ]


def test_the_roles() -> None:
    shown = done("--help").stdout
    places = [shown.index(f"│ {name} ") for name in (*OWNER, *WORKER, "doctor", "bench")]
    assert places == sorted(places)
    assert (
        shown.index("Owner: has the data")
        < places[0]
        < shown.index("Worker: computes")
        < places[len(OWNER)]
    )
    assert "The whole story" in shown
    assert "with the public keys" in shown


def test_exit_codes_are_told_and_kept(run: Run, tmp_path: Path) -> None:
    shown = done("--help").stdout
    codes = {
        int(line[1:].split()[0])
        for line in shown[shown.index("Exit codes") :].splitlines()
        if line[2:3].isdigit()
    }
    assert codes == {0, 1, 2, 3, INTERRUPTED}
    assert run("info", tmp_path / "none").exit_code == FAILED
    assert run("info", "--nonsense").exit_code == 2
    assert (FAILED, MISTAKE) == (1, 3)


def test_switches_take_no_value() -> None:
    """Typer would write <bool> beside them."""
    for name in ("", *PROGRAM.commands):
        assert "<bool>" not in done(*([name] if name else []), "--help").stdout


def test_completion_is_offered() -> None:
    shown = done("--help").stdout
    assert "--install-completion" in shown
    assert "--show-completion" in shown


@pytest.mark.parametrize("name", PROGRAM.commands)
def test_every_command_has_examples_that_are_right(name: str) -> None:
    shown = done(name, "--help").stdout
    assert "Examples" in shown
    examples = commands(_help._examples[name])
    assert ["encryptedstats", name] in [words[:2] for words in examples]
    for words in examples:
        check(words)


def test_the_story_is_right() -> None:
    story = commands(_app._STORY)
    assert [words[1] for words in story] == [
        *("schema", "plan", "keygen", "encrypt"),
        *("counts", "fit"),
        *("decrypt", "decrypt", "predict"),
    ]
    for words in story:
        check(words)


def check(words: list[str]) -> None:
    """Parse it as Typer would, without running it."""
    assert words[0] == "encryptedstats"
    loaded(words[1]).make_context(words[1], words[2:])


def test_help_has_no_leftovers_of_python() -> None:
    for name in PROGRAM.commands:
        assert not re.search(r"\bes\.|None|<function", done(name, "--help").stdout)


@pytest.mark.parametrize("module", ["_errors", "_help", "_models", "_questions"])
def test_doctests(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"encryptedstats.cli.{module}"))
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("name", [name for commands in ROLES.values() for name in commands])
def test_the_list_of_commands_says_what_their_help_says(name: str) -> None:
    """It is shown without importing them, so it has their first lines for itself."""
    (line,) = [commands[name][1] for commands in ROLES.values() if name in commands]
    assert loaded(name).help.split("\n\n")[0] == line


def test_the_list_of_commands_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']\nfrom encryptedstats.cli import main\ntry: "
        "main()\nfinally: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "bench" in done.stdout
    assert not {"numpy", "pandas", "seal", "cryptography"} & set(done.stdout.split())
