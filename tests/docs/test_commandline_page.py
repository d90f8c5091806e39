"""The page of the command line shows every command with its help."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from encryptedstats.cli import _app

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
