"""The examples in docstrings run and say the truth."""

from __future__ import annotations

import doctest

import pytest

from encryptedstats import plots
from encryptedstats.models import (
    base,
    discriminants,
    features,
    folds,
    forest,
    growth,
    logistic,
    naive_bayes,
)


@pytest.mark.parametrize(
    "module",
    [base, discriminants, features, folds, forest, growth, logistic, naive_bayes, plots],
    ids=lambda m: m.__name__,
)
def test_examples(module: object) -> None:
    failed, _ = doctest.testmod(module)
    assert failed == 0
