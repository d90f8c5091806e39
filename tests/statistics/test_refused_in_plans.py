"""Questions that no rows can answer are refused when they are planned, before keys are made and
anything is computed.
"""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd
import pytest

import encryptedstats as es

ROWS = pd.DataFrame(
    {
        "first": list("abcabc"),
        "second": list("xyzxyz"),
        "third": list("abcbca"),
        "only": list("oooooo"),
        "pair": list("uvuvuv"),
        "week": [1, 2, 3, 1, 2, 3],
        "month": ["jan", "feb", "mar", "jan", "feb", "mar"],
        "age": [10, 20, 30, 40, 50, 60],
        "y": [3, 1, 4, 1, 5, 9],
        "died": [0, 1, 0, 1, 1, 0],
    }
)


@pytest.fixture(scope="module")
def table() -> es.Table:

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.SchemaWarning)
        schema = es.Schema.infer(ROWS, target="died")
    schema = schema.with_kind("y", "number", digits=0).with_kind(
        "week", "ordinal", levels=[1, 2, 3]
    )
    schema = schema.with_kind("month", "ordinal", levels=["jan", "feb", "mar"]).with_bins(
        "age", edges=[25, 45]
    )
    return schema.table(ROWS)


ONE_GROUP = [
    es.ChiSquare("first", "only"),
    es.ChiSquare("only"),
    es.FisherExact("only", "pair"),
    es.Anova("y", ["only"]),
    es.Anova("y", ["first", "only"]),
    es.OddsRatio("only"),
    es.OddsRatio("first", "only", event="o"),
    es.ROC("age", "only", event="o"),
    es.CochranArmitage("only"),
    es.CochranArmitage("first", "only", event="o"),
    es.LogRank("week", by="only"),
    es.PiecewiseExponential("week", variables=["only"]),
]


@pytest.mark.parametrize("question", ONE_GROUP, ids=repr)
def test_comparisons_of_one_group(table: es.Table, question: es.Question) -> None:
    with pytest.raises(es.SchemaError) as caught:
        es.plan(question, table)
    assert [cure.action for cure in caught.value.cures] == ["name another variable"]


@pytest.mark.parametrize(
    ("question", "action"),
    [
        (es.Kappa("first", "second"), "give the same levels"),
        (es.IncidenceRate("age"), "keep points of time"),
        (es.PiecewiseExponential("age"), "keep points of time"),
        (es.IncidenceRate("class", event="pair"), "name another variable"),
        (es.PiecewiseExponential("class", event="pair"), "name another variable"),
    ],
    ids=repr,
)
def test_levels_that_only_the_owner_knows(
    table: es.Table, question: es.Question, action: str
) -> None:
    for schema in (table, table.schema):
        with pytest.raises(es.SchemaError) as caught:
            es.plan(question, schema, n_rows=6) if schema is not table else es.plan(
                question, schema
            )
        assert [cure.action for cure in caught.value.cures] == [action]


@pytest.mark.parametrize(
    "question",
    [
        es.KaplanMeier("month"),
        es.LifeTable("month"),
        es.LogRank("month", by="pair"),
        es.IncidenceRate("month"),
        es.CoxScore("month", variables=["pair"]),
        es.PiecewiseExponential("month"),
    ],
    ids=repr,
)
def test_times_that_are_no_numbers(table: es.Table, question: es.Question) -> None:
    with pytest.raises(es.SchemaError):
        es.plan(question, table)


@pytest.mark.parametrize(
    "question",
    [
        es.CochranArmitage("first", scores=[2, 2, 2]),
        es.LinearDiscriminant(priors=[0.5, 0.3, 0.2]),
        es.LinearDiscriminant(priors=[0.5, 0.6]),
        es.QuadraticDiscriminant(priors=[-0.5, 1.5]),
        es.QuadraticDiscriminant(priors=["half", "half"]),
        es.LinearDiscriminant(unbiased="no"),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_parameters_that_do_not_fit(table: es.Table, question: Any) -> None:
    with pytest.raises(es.ParameterError):
        es.plan(question, table)


@pytest.mark.parametrize(
    ("question", "wrong"),
    [
        (es.OddsRatio("v0", "class", event="class7"), es.ParameterError),
        (es.OddsRatio("v0", "class", reference="bin7"), es.ParameterError),
        (es.ROC("v7", "class", event="class7"), es.ParameterError),
    ],
    ids=repr,
)
def test_levels_that_the_worker_knows_not_to_exist(
    table: es.Table, question: es.Question, wrong: Any
) -> None:
    with pytest.raises(wrong):
        question.check(table.public_schema)


def test_what_can_be_answered_is_planned(table: es.Table) -> None:
    for question in (
        es.Kappa("first", "third"),
        es.IncidenceRate("week"),
        es.PiecewiseExponential("week", variables=["pair"]),
        es.OddsRatio("first", reference="b"),
        es.LinearDiscriminant(priors=[0.25, 0.75]),
        es.CochranArmitage("first", scores=[1, 2, 2]),
        es.Anova("y", ["first", "pair"]),
    ):
        assert es.plan(question, table) is not None
    assert table.ask(es.Kappa("first", "third")).details["agreement"] == 0.5


def test_a_worker_cannot_tell_and_the_owner_is_told_when_it_is_opened(table: es.Table) -> None:
    question = es.Kappa("v0", "v1")
    question.check(table.public_schema)
    totals = question._name_totals(table.totals(question), table.public_schema)
    assert (
        question.read(totals, table.public_schema, len(table)).details["agreement"] == 1.0
    )  # by numbers of bins
    with pytest.raises(es.SchemaError):
        question.read(totals, table.schema, len(table))
