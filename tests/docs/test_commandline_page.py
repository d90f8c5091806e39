"""The page of the command line is what the program says of itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_commandline", ROOT / "docs" / "make_commandline.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_program() -> None:
    made = maker().page()
    assert (ROOT / "docs" / "commandline.md").read_text(encoding="utf-8") == made, (
        "run python docs/make_commandline.py"
    )
    assert "commandline.md" in (ROOT / "mkdocs.yml").read_text()
    for words in (
        "### schema",
        "### worker",
        "--missing error|bin|drop",
        "Nothing is replaced unasked",
        "counted from 1",
    ):
        assert words in made
