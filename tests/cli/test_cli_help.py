"""Help that teaches: every command has examples, and every option in them exists."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex

import pytest
import typer
from cli_helpers import done

from encryptedstats.cli import _app, _help

PROGRAM = typer.main.get_command(_app.app)
OWNER = ("schema", "plan", "keygen", "encrypt", "decrypt", "predict")
WORKER = ("info", "counts", "crosstab", "moments", "fit", "combine")


def commands(text: str) -> list[list[str]]:
    """The command lines of some examples, as a shell would take them apart."""
    joined = text.replace("\\\n", " ")
    return [shlex.split(line) for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def test_the_roles() -> None:
    shown = done("--help").stdout
    places = [shown.index(f"│ {name} ") for name in (*OWNER, *WORKER, "datasets", "demo", "doctor")]
    assert places == sorted(places)
    assert shown.index("Owner: has the data") < places[0] < shown.index("Worker: computes") < places[len(OWNER)]
    assert "The whole story" in shown
    assert "with the public keys" in shown


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
    command = PROGRAM.commands[words[1]]
    command.make_context(words[1], words[2:])


def test_help_has_no_leftovers_of_python() -> None:
    for name in PROGRAM.commands:
        assert not re.search(r"\bes\.|None|<function", done(name, "--help").stdout)


@pytest.mark.parametrize("module", ["_console", "_errors", "_help", "_models", "_questions"])
def test_doctests(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"encryptedstats.cli.{module}"))
    assert result.attempted
    assert not result.failed
