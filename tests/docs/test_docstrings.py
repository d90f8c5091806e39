"""The examples of all docstrings run, and print what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import encryptedstats

SOURCE = Path(encryptedstats.__file__).parent


def has_example(path: Path) -> bool:
    return ">>> " in path.read_text(encoding="utf-8")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


#: doctest does not look into cached properties, and what needs a service is skipped.
UNSEEN = {"encryptedstats.app.showing", "encryptedstats.workers"}
MODULES = sorted(module_name(path) for path in SOURCE.rglob("*.py") if has_example(path))


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert bool(result.attempted) == (name not in UNSEEN)
    assert not result.failed


def test_an_example_that_prints_otherwise_fails() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(wrong, out=lambda _: None)
    assert runner.failures == 1
