"""Row weights: a question counts each row as often as its weight says, or refuses the table; it
never mixes the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from asked_samples import small_owner

import encryptedstats as es
from error_codes import error

WEIGHTS = np.random.default_rng(5).integers(0, 4, 60)


def rows() -> tuple[es.Schema, pd.DataFrame]:
    """Two numbers, a genotype, a time, two groups, two classes."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "a": rng.integers(0, 20, 60),
            "b": rng.integers(0, 9, 60),
            "snp": rng.integers(0, 3, 60),
            "week": rng.integers(1, 6, 60),
            "arm": rng.choice(["old", "new"], 60),
            "site": rng.choice(["x", "y"], 60),
            "died": rng.choice([0, 1], 60),
        }
    )
    schema = es.Schema.infer(frame, target="died")
    for name in ("a", "b", "snp"):
        schema = schema.with_kind(name, "number", digits=0)
    return schema, frame


REFUSED = [
    es.GenomeScan(),
    es.TTest("a", mu=3),
    es.TTest("a", by="arm"),
    es.TTest("a", paired="b"),
    es.Anova("a", by="arm"),
    es.ChiSquare("arm", "site"),
    es.Describe(["a"]),
    es.Correlation(["a", "b"]),
    es.Covariance(["a", "b"]),
    es.PCA(),
    es.KaplanMeier("week", event="arm"),
    es.LogRank("week", event="arm", by="site"),
    es.GLM("b ~ arm", family="poisson"),
]
COUNTED = [
    es.TTest("a", by="died"),
    es.Anova("a", by="died"),
    es.ChiSquare("arm", "died"),
    es.KaplanMeier("week"),
    es.LogRank("week", by="arm"),
    es.Describe(["a"], by="died"),
]


def named(question: Any) -> str:
    return str(question.describe()) if isinstance(question, es.Question) else str(question)


@pytest.mark.parametrize("question", REFUSED, ids=named)
def test_weights_that_would_not_count_are_refused(question: Any) -> None:
    schema, frame = rows()
    with pytest.raises(es.SchemaError, check=error("weighted-rows", question.name)):
        schema.table(frame, weights=WEIGHTS).ask(question)
    schema.table(frame, weights=np.ones(60, int)).ask(question)  # weights of 1 are none


@pytest.mark.parametrize("question", COUNTED, ids=named)
def test_weights_count_rows_as_often_as_they_say(question: Any) -> None:
    schema, frame = rows()
    found = schema.table(frame, weights=WEIGHTS).ask(question)
    repeated = schema.table(frame.loc[frame.index.repeat(WEIGHTS)]).ask(question)
    pd.testing.assert_frame_equal(found.to_frame(), repeated.to_frame())


def test_encrypted_tables_and_plans_refuse_them_as_well() -> None:
    schema, frame = rows()
    table = schema.table(frame, weights=WEIGHTS)
    sealed = small_owner().encrypt(table)
    for refused in (lambda: sealed.ask(es.GenomeScan()), lambda: es.plan(es.GenomeScan(), table)):
        with pytest.raises(es.SchemaError, check=error("weighted-rows")):
            refused()
    with pytest.raises(es.SchemaError, check=error("weighted-rows")):
        table.moments(["a"])
