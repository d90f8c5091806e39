"""The examples in the docstrings run as written."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "blocks",
        "encodings",
        "questions.words",
        "schema.bins",
        "schema.bin_transformers",
        "schema.schema",
        "schema.variables",
    ],
)
def test_examples(module):
    result = doctest.testmod(importlib.import_module(f"encryptedstats.tables.{module}"))
    assert result.attempted
    assert not result.failed
