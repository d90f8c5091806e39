"""Every promise of SECURITY.md names a test that attacks it, and these tests exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from sources import parse_file

ROOT = Path(__file__).parents[2]
POLICY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
HEADING = "## Promises and the tests that attack them"


def promises() -> dict[str, list[tuple[str, str]]]:
    """Return the files and names of the tests of each promise; ``::name`` is in the file before."""
    section = POLICY.split(HEADING)[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")][1:]
    found: dict[str, list[tuple[str, str]]] = {}
    for promise, named in rows:
        path, tests = "", found.setdefault(promise.strip(), [])
        for one in re.findall(r"`([^`]+)`", named):
            file, _, name = one.partition("::")
            path = file or path
            tests.append((path, name))
    return found


def test_every_promise_is_attacked_by_a_test_that_exists() -> None:
    found = promises()
    assert len(found) > 30
    for promise, tests in found.items():
        assert tests, promise
        for path, name in tests:
            tree = parse_file(ROOT / path)
            defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert name in defined, f"{promise}: {path} has no {name}"


def test_files_that_the_policy_names_exist() -> None:
    named = re.findall(r"`?(tests/[\w/]+\.py)", POLICY)
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []
