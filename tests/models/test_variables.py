"""Models use the predictors that ``variables`` names, in plans, fits, predictions and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import encryptedstats as es
from encryptedstats.circuits.expressions import column_names
from error_codes import error

CHOSEN = ["bmi", "sex"]
MODELS = [
    es.CompletelyRandomForest(n_trees=4, depth=2, random_state=1, variables=CHOSEN),
    es.MultinomialNB(variables=CHOSEN),
    es.SemiparametricNB(variables=CHOSEN),
    es.OneStepLogisticRegression(variables=CHOSEN),
    es.LinearMeans(variables=CHOSEN),
    es.FisherDiscriminant(variables=CHOSEN),
    es.LinearDiscriminant(variables=CHOSEN),
    es.QuadraticDiscriminant(variables=["bmi", "age"]),
]


def make_frame(n_rows: int = 60, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 80, n_rows),
            "sex": rng.choice(["f", "m"], n_rows),
            "bmi": rng.integers(18, 40, n_rows),
            "follow_up": rng.integers(0, 50, n_rows),
        }
    )
    risk = 0.1 * (frame["bmi"] - 29) + 0.03 * (frame["age"] - 50) + rng.normal(size=n_rows)
    return frame.assign(ill=np.where(risk > 0, "yes", "no"))


def scores(model: Any, rows: Any) -> Any:
    return (
        model.predict_proba(rows)
        if hasattr(model, "predict_proba")
        else model.decision_function(rows)
    )


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return make_frame()


@pytest.fixture(scope="module")
def schema(frame: pd.DataFrame) -> es.Schema:
    return es.Schema.infer(frame, target="ill", bins=3)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_model_of_some_variables_is_the_model_of_a_table_of_these(
    model: Any, frame: pd.DataFrame, schema: es.Schema
) -> None:
    used = model.variables
    fitted = clone(model).fit(schema.table(frame))
    small = es.Schema.infer(frame[[*used, "ill"]], target="ill", bins=3)
    alone = clone(model).set_params(variables=None).fit(small.table(frame))
    new = make_frame(20, seed=2).drop(columns="ill")
    if not isinstance(model, es.CompletelyRandomForest):  # trees are drawn by position
        np.testing.assert_allclose(scores(fitted, new), scores(alone, new))
    np.testing.assert_array_equal(scores(fitted, new), scores(fitted, new[used]))
    changed = new.assign(follow_up=new["follow_up"].to_numpy()[::-1])
    np.testing.assert_array_equal(scores(fitted, new), scores(fitted, changed))
    listed = "\n".join(map(str, fitted.tabulate().index))
    assert "follow_up" not in listed
    assert all(name in listed for name in used)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_encrypted_equals_clear_and_reads_only_what_it_needs(
    model: Any, frame: pd.DataFrame, schema: es.Schema, tmp_path: Path
) -> None:
    public, asked = schema.public(), clone(model).in_ids(schema)
    used = {name.partition(".")[0] for name in column_names(asked.circuit(public))}
    ids = {f"v{schema.index(name)}" for name in model.variables}
    assert ids <= used | {"class0", "class1"} == ids | {"class0", "class1"}
    owner = es.Owner(es.plan(model, schema, len(frame)))
    clear = clone(model).fit(schema.table(frame))
    closed = clone(model).fit(owner.encrypt(schema.table(frame)))
    assert closed.growth_["variables"] == [f"v{schema.index(name)}" for name in model.variables]
    opened = owner.open(closed, schema=schema)
    assert opened.totals_ == clear.totals_
    opened.save(tmp_path / "model.opened")
    loaded = es.load(tmp_path / "model.opened")
    new = make_frame(15, seed=3)[model.variables]
    np.testing.assert_array_equal(scores(loaded, new), scores(clear, new))


def test_encrypted_rows_are_predicted_with_these_variables_only(
    frame: pd.DataFrame, schema: es.Schema
) -> None:
    model = es.MultinomialNB(variables=CHOSEN)
    owner = es.Owner(es.plan(model, schema, len(frame), encrypted_prediction=True))
    clear = clone(model).fit(schema.table(frame))
    closed = clone(model).fit(owner.encrypt(schema.table(frame)))
    new = make_frame(12, seed=4).drop(columns="ill")
    votes = owner.open(closed.predict_votes(owner.encrypt(schema.table(new))), schema=schema)
    assert list(votes.columns) == list(clear.predict_votes(new).columns)
    np.testing.assert_allclose(votes.predict_proba(), clear.predict_proba(new))


def test_arrays_name_columns_by_x0_id_or_position() -> None:
    frame = make_frame()
    X, y = frame[["age", "bmi", "follow_up"]].to_numpy(dtype=float), frame["ill"]
    found = [
        es.MultinomialNB(variables=chosen).fit(X, y).predict_proba(X)
        for chosen in (["x0", "x1"], ["v0", "v1"], [0, 1])
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert es.MultinomialNB(variables=["age"]).get_params()["variables"] == ["age"]


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ("bmi", "not-a-list"),
        ([], "no-predictors"),
        (["bmi", "bmi"], "duplicate-variables"),
        (["bmi", "ill"], "target-among-predictors"),
        (["height"], "unknown-variable"),
    ],
)
def test_wrong_variables(variables: Any, code: str, frame: pd.DataFrame, schema: es.Schema) -> None:
    with pytest.raises((es.SchemaError, TypeError, ValueError), check=error(code)):
        es.MultinomialNB(variables=variables).fit(schema.table(frame))


def test_models_of_other_variables_are_not_added_up(frame: pd.DataFrame, schema: es.Schema) -> None:
    first, second = (
        es.MultinomialNB(variables=chosen).fit(schema.table(frame)) for chosen in (["bmi"], ["age"])
    )
    with pytest.raises(es.ParameterError, check=error("grown-differently")):
        first + second


def test_opened_forests_average_the_shares_of_leaves_by_default(
    frame: pd.DataFrame, schema: es.Schema
) -> None:
    rows = schema.table(frame)
    forest, averaging, voting = (
        es.CompletelyRandomForest(5, 2, fraction=fraction, random_state=1).fit(rows)
        for fraction in (None, "inverse", 0)
    )
    new = make_frame(20, seed=5).drop(columns="ill")
    np.testing.assert_array_equal(forest.predict_proba(new), averaging.predict_proba(new))
    shares = forest.leaf_counts_ / np.maximum(forest.leaf_counts_.sum(axis=2, keepdims=True), 1)
    leaves = forest.apply(new)
    mean = np.mean([shares[t][leaves[:, t]] for t in range(5)], axis=0)
    np.testing.assert_allclose(forest.predict_proba(new), mean / mean.sum(axis=1, keepdims=True))
    assert forest.predict_votes(new).equals(voting.predict_votes(new))  # as encrypted rows get
    owner = es.Owner(es.plan(forest, schema, len(frame), encrypted_prediction=True))
    votes = owner.open(forest.predict_votes(owner.encrypt(schema.table(new))), schema=schema)
    assert votes.to_numpy().tolist() == voting.predict_votes(new).to_numpy().tolist()
