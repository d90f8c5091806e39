"""The examples in the docstrings of circuits run as written."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "expressions",
        "rules",
        "passes.digits",
        "passes.duplicates",
        "passes.interleaving",
        "passes.masks",
        "passes.padding",
        "passes.pairs",
        "passes.stored_columns",
    ],
)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"encryptedstats.circuits.{module}"))
    assert result.attempted
    assert not result.failed
