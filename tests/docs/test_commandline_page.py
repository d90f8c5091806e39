"""The page of the command line shows every command with its help."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from encryptedstats.cli import _app, _program
from encryptedstats.cli._help import load

ROOT = Path(__file__).parents[2]


def test_every_command_is_on_the_page() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.commandline()
    shown = re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert set(shown) == {
        *_app.VERBS,
        *(f"{group} {name}" for group, (_, own) in _app.GROUPS.items() for name in own),
    }
    for section in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        assert len(section.split("\n\n")[1].split()) > 3, section[:40]


PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_in(text: str) -> list[list[str]]:
    """The commands of this program in console blocks and unit files."""
    found = re.findall(
        r"^(?:\$ |ExecStart=\S*/)encryptedstats ((?:.*\\\n)*.*)$", text, re.MULTILINE
    )
    lines = [shlex.split(line.replace("\\\n", " "), comments=True) for line in found]
    return [line[: line.index(">")] if ">" in line else line for line in lines]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_documents_exist(path: Path) -> None:
    shared = set(_program._FLAGS)
    for words in commands_in(path.read_text(encoding="utf-8")):
        command, own = words[0], [word for word in words[1:] if word not in shared]
        if command in _app.GROUPS:
            command, own = f"{command} {own[0]}", own[1:]
        load(command).make_context(command, own)


def test_commands_in_documents_are_found() -> None:
    page = (
        "```console\n$ encryptedstats ask t \\\n  forest  # "
        "why\n```\nExecStart=/b/encryptedstats x > y"
    )
    assert commands_in(page) == [["ask", "t", "forest"], ["x"]]
    assert sum(len(commands_in(path.read_text(encoding="utf-8"))) for path in PAGES) > 10
