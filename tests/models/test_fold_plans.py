"""Keys of a plan carry the folds of every model, not only its fit to all rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.models.base import TotalsModel
from encryptedstats.tables.questions.folds import CLASS_COUNTS

N_ROWS = 160
CLASSIFIERS = [
    es.AODE(),
    es.TAN(),
    es.CompletelyRandomForest(n_trees=3, depth=2),
    es.FisherDiscriminant(),
    es.LinearDiscriminant(),
    es.LinearMeans(),
    es.MultinomialNB(),
    es.OneStepLogisticRegression(),
    es.QuadraticDiscriminant(),
    es.SemiparametricNB(),
]
REGRESSIONS = [
    es.LinearRegression(),
    es.Ridge(),
    es.ElasticNet(),
    es.LinearRegression("~ dose + I(dose^2)"),
    es.LinearRegression("~ dose - 1"),
]


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    dose, age = rng.integers(0, 20, N_ROWS), rng.integers(30, 60, N_ROWS)
    sick = (dose + rng.normal(0, 8, N_ROWS) > 10).astype(int)
    return pd.DataFrame(
        {"dose": dose, "age": age, "sick": sick, "weight": rng.integers(1, 4, N_ROWS)}
    )


def binned(frame: pd.DataFrame) -> es.Schema:
    return es.Schema.infer(frame[["dose", "age", "sick"]], target="sick", bins=4)


def kept(frame: pd.DataFrame) -> es.Schema:
    return binned(frame).with_kind("dose", "number", digits=0).with_kind("age", "number", digits=0)


def check_folds(model: TotalsModel, table: es.Table) -> None:
    """The folds of the encrypted table, with the keys of a plan of the model, are those in the
    clear.
    """
    owner = es.Owner(es.plan(model, table))
    asked = model.fit_folds(owner.encrypt(table))
    for found, wanted in zip(owner.open(asked, table.schema), model.fit_folds(table), strict=True):
        assert found.totals_ == wanted.totals_


def test_every_model_that_has_folds_is_tried() -> None:
    frame = rows()
    tried = {type(model) for model in (*CLASSIFIERS, *REGRESSIONS)}
    for name in es.__all__:
        found = getattr(es, name)
        if not isinstance(found, type) or not issubclass(found, TotalsModel) or found in tried:
            continue
        if not found.__abstractmethods__:  # the others count no classes, and refuse folds
            schema = binned(frame) if name == "GLM" else kept(frame)
            assert CLASS_COUNTS not in found().in_ids(schema).shapes(schema.public()), name


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
def test_keys_of_a_plan_carry_the_folds_of_classifiers(model: TotalsModel) -> None:
    frame = rows()
    check_folds(model, binned(frame).table(frame, folds=3))


@pytest.mark.parametrize(
    "model",
    [
        m
        for m in CLASSIFIERS
        if m.name not in ("AODE", "TAN", "MultinomialNB", "CompletelyRandomForest")
    ],
    ids=lambda m: type(m).__name__,
)
def test_keys_of_a_plan_carry_the_folds_of_classifiers_of_numbers(model: TotalsModel) -> None:
    frame = rows()
    check_folds(model, kept(frame).table(frame, folds=3))


@pytest.mark.parametrize("name", ["FisherDiscriminant", "LinearMeans", "OneStepLogisticRegression"])
def test_keys_of_a_plan_carry_the_folds_of_rows_with_weights(name: str) -> None:
    frame = rows()
    check_folds(getattr(es, name)(), kept(frame).table(frame, folds=2, weights=frame["weight"]))


@pytest.mark.parametrize("model", REGRESSIONS, ids=str)
def test_keys_of_a_plan_carry_the_folds_of_regressions(model: TotalsModel) -> None:
    frame = rows()[["dose", "age"]]
    schema = es.Schema.infer(frame, target="age", numbers="keep", digits=0)
    check_folds(model, schema.table(frame, folds=3))
