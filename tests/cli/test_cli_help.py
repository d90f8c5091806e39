"""Help that teaches: every command has examples, and every option in them exists."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_helpers import PATHS, Run, done

from encryptedstats.cli import _app
from encryptedstats.cli._app import GROUPS, VERBS
from encryptedstats.cli._exits import FAILED, INTERRUPTED, MISTAKE
from encryptedstats.cli._help import load

#: More options than this are too many to remember; see the guide before it is raised.
MOST_OPTIONS = 173
LINES = {
    **{name: line for name, (_, line) in VERBS.items()},
    **{
        f"{group} {name}": line
        for group, (_, own) in GROUPS.items()
        for name, (_, line) in own.items()
    },
}


def commands(text: str) -> list[list[str]]:
    """The command lines of some examples, as a shell would take them apart."""
    joined = text.replace("\\\n", " ")
    return [
        shlex.split(line)
        for line in joined.splitlines()
        if line.strip() and not line.startswith("#")
    ]


def options_of(command: Any) -> list[Any]:
    found = command.get_params(command.context_class(command))
    return [one for one in found if one.param_type_name == "option" and "--help" not in one.opts]


def test_verbs_come_first() -> None:
    shown = done("--help").stdout
    places = [shown.index(f"│ {name} ") for name in (*VERBS, *GROUPS)]
    assert places == sorted(places)
    assert "The whole story" in shown


def test_options_are_few() -> None:
    program = typer.main.get_command(_app.app)
    count = len(options_of(program)) + sum(len(options_of(load(path))) for path in PATHS)
    assert count <= MOST_OPTIONS, f"{count} options"


def test_exit_codes_are_told_and_kept(run: Run, tmp_path: Path) -> None:
    shown = done("--help").stdout
    codes = {
        int(line[1:].split()[0])
        for line in shown[shown.index("Exit codes") :].splitlines()
        if line[2:3].isdigit()
    }
    assert codes == {0, 1, 2, 3, INTERRUPTED}
    assert run("data", "info", tmp_path / "none").exit_code == FAILED
    assert run("data", "info", "--nonsense").exit_code == 2
    assert (FAILED, MISTAKE) == (1, 3)


def test_completion_is_offered() -> None:
    shown = done("--help").stdout
    assert "--install-completion" in shown
    assert "--show-completion" in shown


@pytest.mark.parametrize("path", PATHS)
def test_every_command_has_help_and_examples_that_are_right(path: str) -> None:
    shown = done(*path.split(), "--help").stdout
    assert "Examples" in shown
    assert "<bool>" not in shown  # Typer would write it beside switches
    assert not re.search(r"\bes\.|None|<function", shown)
    examples = commands(load(path).known.doc.examples)
    words = ["encryptedstats", *path.split()]
    assert words in [one[: len(words)] for one in examples]
    for one in examples:
        check(one)


@pytest.mark.parametrize("path", PATHS)
def test_help_loses_no_sentence_of_the_docstring(path: str) -> None:
    function = load(path).known.function
    text = inspect.cleandoc(function.__doc__ or "").partition("Examples:")[0].partition("JSON:")[0]
    shown = " ".join(done(*path.split(), "--help").stdout.replace("│", " ").split())
    for sentence in " ".join(text.split()).split(". "):
        assert sentence.rstrip(".") in shown


@pytest.mark.parametrize("path", PATHS)
def test_the_list_of_commands_says_what_their_help_says(path: str) -> None:
    """It is shown without importing them, so it has their first lines for itself."""
    assert load(path).help.split("\n\n")[0] == LINES[path]


def test_the_story_is_right() -> None:
    story = commands(_app.STORY)
    assert [words[1] for words in story] == [
        *("data", "plan", "key", "encrypt"),
        "ask",
        *("open", "open", "predict"),
    ]
    for words in story:
        check(words)


def check(words: list[str]) -> None:
    """Parse it as Typer would, without running it."""
    assert words[0] == "encryptedstats"
    path, own = words[1], words[2:]
    if path in GROUPS:
        path, own = f"{path} {own[0]}", own[1:]
    own = own[: own.index(">")] if ">" in own else own
    own = [word for word in own if word not in ("--force", "--json")]
    load(path).make_context(path, own)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("enrypt",), "'encrypt'"),
        (("info",), "'data info'"),
        (("data", "imfo"), "'data info'"),
        (("ask", "t.enc", "forrest", "-o", "x"), "'forest'"),
        (("ask", "t.enc", "forest", "tres=3", "-o", "x"), "'trees'"),
        (("ask", "t.enc", "forest", "--outptu", "x"), "--output"),
    ],
)
def test_near_names_are_offered(run: Run, words: tuple[str, ...], near: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert near in " ".join(result.stderr.replace("│", " ").split())


def test_options_of_all_commands_stand_anywhere(run: Run, files: Path) -> None:
    first = done("--json", "data", "info", files / "public.keys").stdout
    assert done("data", "info", files / "public.keys", "--json").stdout == first
    refused = run("data", "info", files / "public.keys", "--force")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr


@pytest.mark.parametrize("module", ["_errors", "_help", "_program"])
def test_doctests(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"encryptedstats.cli.{module}"))
    assert result.attempted
    assert not result.failed


def test_the_list_of_commands_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']\nfrom encryptedstats.cli import main\ntry: "
        "main()\nfinally: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "check" in done.stdout
    assert not {"numpy", "pandas", "seal", "cryptography"} & set(done.stdout.split())
