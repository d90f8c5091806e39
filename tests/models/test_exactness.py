"""Exactness: what the owner opens is what the same model counts in the clear, and what NumPy counts
by hand.

Random schemas, seeds and depths, and numbers of rows around the borders of a chunk, on rings so
small that many can be tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_samples import (
    SLOTS,
    class_counts,
    leaf_counts,
    name,
    predictors,
    random_table,
    row_weights,
    schemas,
    variable_of,
)
from sklearn.base import clone

import encryptedstats as es
from effort import examples

BINNED = ("continuous", "ordinal", "categorical")
ROWS = st.sampled_from([1, 2, 700, SLOTS - 1, SLOTS, SLOTS + 1, 3 * SLOTS])
SEEDS = st.integers(0, 2**32)
SCHEMES = st.sampled_from(["bfv", "bgv"])
pytestmark = [pytest.mark.filterwarnings("ignore:constant predictors:UserWarning")]
many = settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def opened(model: Any, rows: es.Table, owner: es.Owner, encodings: Any = ("onehot",)) -> Any:
    """Fitted on encrypted rows, and opened."""
    sealed = owner.encrypt(rows, encodings=encodings, workers=1)
    fitted = clone(model).fit(sealed, workers=1)
    assert fitted.is_encrypted
    plain = owner.open(fitted)
    assert plain.n_rows_ == len(rows)
    return plain


def assert_equal(plain: Any, clear: Any) -> None:
    assert [int(total) for total in plain.totals_] == [int(total) for total in clear.totals_]
    assert all(type(total) is int for total in plain.totals_)


@many
@given(
    schemas((*BINNED, "number")), ROWS, SEEDS, st.integers(1, 4), st.booleans(), SCHEMES, st.data()
)
def test_forests(
    both: dict[str, es.Owner],
    known: es.Schema,
    n: int,
    seed: int,
    depth: int,
    weights: bool,
    scheme: str,
    data: Any,
) -> None:
    wish = data.draw(st.sampled_from([None, 1, 2, 0.5, "sqrt"]))
    rows = random_table(known, n, seed, weights)
    model = es.CompletelyRandomForest(n_trees=2, depth=depth, max_features=wish, random_state=seed)
    plain, clear = opened(model, rows, both[scheme]), clone(model).fit(rows)
    assert_equal(plain, clear)
    assert plain.trees_ == clear.trees_ == model.grow(known)
    expected = leaf_counts(clear.trees_, depth, rows)
    np.testing.assert_array_equal(plain.leaf_counts_, expected)
    np.testing.assert_array_equal(clear.leaf_counts_, expected)
    np.testing.assert_array_equal(plain.class_counts_, class_counts(rows))
    assert plain.leaf_counts_.shape == (2, 2**depth, known.n_classes)
    np.testing.assert_array_equal(plain.predict_proba(rows), clear.predict_proba(rows))


@many
@given(schemas(BINNED), ROWS, SEEDS, st.booleans(), SCHEMES)
def test_multinomial_naive_bayes(
    both: dict[str, es.Owner], known: es.Schema, n: int, seed: int, weights: bool, scheme: str
) -> None:
    rows = random_table(known, n, seed, weights)
    plain, clear = opened(es.MultinomialNB(), rows, both[scheme]), es.MultinomialNB().fit(rows)
    assert_equal(plain, clear)
    np.testing.assert_array_equal(plain.class_counts_, class_counts(rows))
    for j, variable in enumerate(known.variables):
        by_hand = np.zeros((variable.n_bins, known.n_classes), dtype=np.int64)
        np.add.at(by_hand, (rows.data[j], rows.class_codes), row_weights(rows))
        np.testing.assert_array_equal(plain.bin_counts_[j], by_hand)
    np.testing.assert_array_equal(plain.predict_proba(rows), clear.predict_proba(rows))


@many
@given(
    schemas((*BINNED, "number"), 2),
    ROWS,
    SEEDS,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    SCHEMES,
)
def test_semiparametric_naive_bayes(
    both: dict[str, es.Owner],
    known: es.Schema,
    n: int,
    seed: int,
    paired: bool,
    centred: bool,
    weights: bool,
    scheme: str,
) -> None:
    rows = random_table(known, n, seed, weights)
    model = es.SemiparametricNB(paired=paired, centred=centred)
    plain, clear = opened(model, rows, both[scheme]), clone(model).fit(rows)
    assert_equal(plain, clear)
    x, w = predictors(rows, centred=centred), row_weights(rows)
    z = (4 * rows.class_codes.astype(np.int64) - 2) * w
    sum_x, sum_xx, sum_xz = (w @ x).tolist(), (w @ x**2).tolist(), (z @ x).tolist()
    total, sum_z = int(w.sum()), int(z.sum())
    if paired:
        assert plain.a_ == [
            xx * sum_z - s * xz for s, xx, xz in zip(sum_x, sum_xx, sum_xz, strict=True)
        ]
        assert plain.b_ == [total * xz - s * sum_z for s, xz in zip(sum_x, sum_xz, strict=True)]
        assert plain.d_ == [total * xx - s * s for s, xx in zip(sum_x, sum_xx, strict=True)]
    else:
        assert (plain.a_, plain.b_, plain.d_) == ([sum_z] * x.shape[1], sum_xz, sum_xx)
    np.testing.assert_array_equal(plain.predict_proba(rows), clear.predict_proba(rows))


@many
@given(schemas((*BINNED, "number"), 2), ROWS, SEEDS, st.booleans(), st.booleans(), SCHEMES)
def test_one_step_logistic_regression(
    both: dict[str, es.Owner],
    known: es.Schema,
    n: int,
    seed: int,
    centred: bool,
    weights: bool,
    scheme: str,
) -> None:
    rows = random_table(known, n, seed, weights)
    model = es.OneStepLogisticRegression(centred=centred)
    plain, clear = opened(model, rows, both[scheme]), clone(model).fit(rows)
    assert_equal(plain, clear)
    x, w = predictors(rows, centred=centred), row_weights(rows)
    x = np.column_stack([np.ones(n, dtype=np.int64), x])
    np.testing.assert_array_equal(plain.gram_, (x * w[:, None]).T @ x)
    np.testing.assert_array_equal(
        plain.moment_, x.T @ (w * (4 * rows.class_codes.astype(np.int64) - 2))
    )


@many
@given(
    schemas((*BINNED, "number")), ROWS, SEEDS, st.booleans(), st.booleans(), SCHEMES, st.booleans()
)
def test_linear_means_and_fishers_discriminant(
    both: dict[str, es.Owner],
    known: es.Schema,
    n: int,
    seed: int,
    centred: bool,
    weights: bool,
    scheme: str,
    fisher: bool,
) -> None:
    rows = random_table(known, n, seed, weights)
    model = (es.FisherDiscriminant if fisher else es.LinearMeans)(centred=centred)
    plain, clear = opened(model, rows, both[scheme]), clone(model).fit(rows)
    assert_equal(plain, clear)
    x, w, counts = predictors(rows, centred=centred), row_weights(rows), class_counts(rows)
    within = np.zeros((x.shape[1],) * 2)
    for c in range(known.n_classes):
        inside = rows.class_codes == c
        if counts[c]:
            mean = w[inside] @ x[inside] / counts[c]
            np.testing.assert_allclose(plain.means_[c], mean, rtol=1e-12, atol=1e-12)
            within += ((x[inside] - mean) * w[inside, None]).T @ (x[inside] - mean)
    if fisher and counts.sum():
        np.testing.assert_allclose(plain.scatter_, within / counts.sum(), atol=1e-9)


@pytest.mark.parametrize("encoding", ["ordinal", "centred"])
@pytest.mark.parametrize(
    "model",
    [es.SemiparametricNB, es.OneStepLogisticRegression, es.LinearMeans, es.FisherDiscriminant],
    ids=str,
)
def test_codes_that_were_stored_do_as_well_as_bins(
    both: dict[str, es.Owner], model: Any, encoding: str
) -> None:
    known = es.Schema.from_onehot(["a"] * 3 + ["b"] * 4, {"a": "ord", "b": "ord"})
    rows = random_table(known, 300, 5)
    made = model(centred=encoding == "centred")
    for owner in both.values():
        assert_equal(opened(made, rows, owner, (encoding,)), clone(made).fit(rows))


REAL = (
    es.CompletelyRandomForest(n_trees=5, depth=3, random_state=1),
    es.CompletelyRandomForest(n_trees=2, depth=4, random_state=2),
    es.SemiparametricNB(),
    es.MultinomialNB(),
    es.OneStepLogisticRegression(),
    es.LinearMeans(),
    es.FisherDiscriminant(),
)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["bfv", "bgv"])
@pytest.mark.parametrize("model", REAL, ids=lambda m: f"{name(m)}{getattr(m, 'depth', '')}")
def test_with_real_rings(model: Any, scheme: Any) -> None:
    """128 bits of security, parameters from the plan, and rows around the borders of its chunks."""
    rng = np.random.default_rng(11)
    shapes = [("continuous", 5, True), ("ordinal", 4, False), ("categorical", 3, False)]
    shapes += [] if isinstance(model, es.MultinomialNB) else [("number", 4, False)]
    for_rows = es.plan(model, _shaped(shapes), 100, scheme=scheme).parameters.slots
    for n in (1, for_rows - 1, for_rows, for_rows + 1, 3 * for_rows):
        rows = random_table(_shaped(shapes), n, int(rng.integers(1 << 30)))
        plan = es.plan(model, rows.schema, n, scheme=scheme)
        assert plan.security >= 128
        owner = es.Owner(plan)
        plain, clear = opened(model, rows, owner), clone(model).fit(rows)
        assert_equal(plain, clear)
        if isinstance(model, es.CompletelyRandomForest):
            np.testing.assert_array_equal(
                plain.leaf_counts_, leaf_counts(clear.trees_, model.depth, rows)
            )


def _shaped(shapes: list[tuple[str, int, bool]]) -> es.Schema:
    return es.Schema(tuple(variable_of(*shape, j) for j, shape in enumerate(shapes)), "y", (0, 1))
