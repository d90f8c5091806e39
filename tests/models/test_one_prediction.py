"""There is one prediction: what ``predict`` says is what votes say, opened or not, to the last
digit.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_samples import SLOTS, random_table, schemas, variable_of
from prediction_samples import new_rows, planned_owner, sealed_pieces, without_classes
from sklearn.base import clone

import encryptedstats as es
from effort import examples

pytestmark = pytest.mark.filterwarnings("ignore:constant predictors")
QUIET = {"workers": 1, "progress": False}
BINNED = ("ordinal", "continuous", "categorical")
many = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
small = st.integers(3, 12)
forests = st.builds(
    es.CompletelyRandomForest,
    n_trees=st.integers(1, 3),
    depth=st.integers(1, 3),
    fraction=st.just(0),
    random_state=st.integers(0, 99),
)
counting = st.builds(es.MultinomialNB, alpha=st.sampled_from([0, 1, 0.5]))
lines = st.one_of(
    st.builds(es.SemiparametricNB, paired=st.booleans(), centred=st.booleans()),
    st.builds(es.LinearMeans, centred=st.booleans()),
)
logistic = st.builds(
    es.OneStepLogisticRegression, fit_intercept=st.booleans(), centred=st.booleans()
)


def check_agrees(model: Any, rows: es.Table, new: es.Table) -> None:
    fitted = clone(model).fit(rows)
    votes = fitted.predict_votes(new)
    assert votes.predict().tolist() == fitted.predict(new).tolist()
    if hasattr(fitted, "predict_proba"):
        assert votes.predict_proba().to_numpy().tolist() == fitted.predict_proba(new).tolist()
        np.testing.assert_allclose(votes.predict_proba().sum(axis=1), 1)
    else:
        assert votes.scores.to_numpy().tolist() == fitted.scores(new).tolist()


@many
@given(st.one_of(forests, counting), schemas(BINNED, 3), small, st.integers(0, 999), st.booleans())
def test_forests_and_counts(
    model: Any, known: es.Schema, n_rows: int, seed: int, weights: bool
) -> None:
    check_agrees(model, random_table(known, n_rows, seed, weights), new_rows(known, 15, seed + 1))


@many
@given(lines, schemas((*BINNED, "number"), 2), small, st.integers(0, 999))
def test_lines(model: Any, known: es.Schema, n_rows: int, seed: int) -> None:
    check_agrees(model, random_table(known, n_rows, seed), new_rows(known, 15, seed + 1))


@settings(many, max_examples=examples(20))
@given(logistic, st.sampled_from(["ordinal", "number", "continuous"]), small, st.integers(0, 999))
def test_logistic_regression(model: Any, kind: str, n_rows: int, seed: int) -> None:
    known = es.Schema((variable_of(kind, 4, False, 0),), "y", (0, 1))
    rows, new = random_table(known, n_rows, seed), new_rows(known, 15, seed + 1)
    check_agrees(model, rows, new)
    fitted = clone(model).fit(rows)
    np.testing.assert_allclose(
        fitted.decision_function(new),
        fitted._matrix(new) @ fitted.coef_[0] + fitted.intercept_[0],
        atol=1e-9,
    )


def test_every_small_table_of_two_bins() -> None:
    """All tables of three rows: leaves that hold the same for every class, leaves that hold
    nothing, one class alone.
    """
    known = es.Schema(
        (variable_of("ordinal", 2, False, 0), variable_of("categorical", 2, False, 1)), "y", (0, 1)
    )
    new = es.Table(known, (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])), slots=SLOTS)
    cells = product(range(2), repeat=3)
    for three_rows in combinations_with_replacement(cells, 3):
        x, z, y = np.array(three_rows).T
        rows = es.Table(known, (x, z), y, slots=SLOTS)
        for depth in (1, 2):
            check_agrees(es.CompletelyRandomForest(2, depth, fraction=0, random_state=7), rows, new)


def empty_leaves() -> tuple[es.Table, es.Table]:
    """Training rows in bin 0 alone, most of them of class "b", and a new row in bin 1."""
    known = es.Schema((variable_of("ordinal", 2, False, 0),), "y", ("a", "b"))
    rows = es.Table(known, (np.zeros(5, dtype=int),), np.array([0, 1, 1, 1, 1]), slots=SLOTS)
    return rows, es.Table(known, (np.array([1]),), slots=SLOTS)


@pytest.mark.parametrize("fraction", [0, 2])
def test_rows_that_reach_empty_leaves_only(fraction: int) -> None:
    """Nobody there was like them: all classes have the same share, opened or not,
    weighed or not.
    """
    rows, new = empty_leaves()
    owner, forest = (
        planned_owner(),
        es.CompletelyRandomForest(n_trees=2, depth=1, fraction=fraction),
    )
    plain, closed = clone(forest).fit(rows), clone(forest).fit(sealed_pieces(owner, rows), **QUIET)
    sealed = owner.encrypt(new, workers=1)
    assert plain.predict_proba(new).tolist() == [[0.5, 0.5]]
    assert plain.predict(new).tolist() == ["a"]
    for votes in (
        plain.predict_votes(new),
        owner.open(closed.predict_votes(sealed, **QUIET)),
        owner.open(plain.predict_votes(sealed, **QUIET)),
    ):
        assert votes.predict_proba().to_numpy().tolist() == [[0.5, 0.5]]
        assert votes.predict().tolist() == ["a"]


def test_leaves_that_all_hold_the_same() -> None:
    """Once "all terms cancel: this is a plain number": a constant is an answer like any other."""
    known = es.Schema((variable_of("ordinal", 2, False, 0),), "y", ("a", "b"))
    rows = es.Table(known, (np.array([0, 1, 0, 1]),), np.array([0, 0, 1, 1]), slots=SLOTS)
    owner, forest = planned_owner(), es.CompletelyRandomForest(n_trees=2, depth=2).fit(rows)
    new = without_classes(rows)
    wanted = forest.predict_votes(new)
    got = owner.open(forest.predict_votes(owner.encrypt(new, workers=1), **QUIET))
    assert got.to_numpy().tolist() == wanted.to_numpy().tolist()
    assert (wanted["a"] == wanted["b"]).all()


def test_frames_with_text_and_arrays() -> None:
    frame = pd.DataFrame({"x": [1, 2, 3, 4, 5, 6], "z": list("aabbcc")})
    y = ["no", "no", "yes", "no", "yes", "yes"]
    for model in (es.CompletelyRandomForest(n_trees=3), es.MultinomialNB(), es.SemiparametricNB()):
        fitted = model.fit(frame, y)
        assert fitted.predict_votes(frame).predict().tolist() == fitted.predict(frame).tolist()
