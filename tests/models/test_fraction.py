"""The stochastic fraction: its expectation against the paper's own algorithm, leaf by leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_samples import frame, schema, table
from numpy.typing import NDArray

import encryptedstats as es


def papers_fraction(
    inside: NDArray[np.bool_], m: int, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Section 3.2: draw M rows with replacement, OR with shifted copies, count the leading zeros,
    add 1. Many times.
    """
    eta = inside[rng.integers(0, len(inside), (draws, m))].astype(np.int64)
    for step in range(int(np.log2(m))):
        shifted = np.zeros_like(eta)
        shifted[:, 2**step :] = eta[:, : -(2**step)]
        eta = eta + shifted - eta * shifted
    return m - eta.sum(axis=1) + 1


def forest(fraction: Any, n: int = 200, depth: int = 3) -> es.CompletelyRandomForest:
    return es.CompletelyRandomForest(n_trees=3, depth=depth, fraction=fraction, random_state=4).fit(
        table(n)
    )


@pytest.mark.parametrize("m", [2, 8, 64])
def test_weights_are_the_expectation_of_the_papers_algorithm(m: int) -> None:
    model, rng, draws = forest(m), np.random.default_rng(1), 20_000
    leaves = model.apply(table(200))
    for t in range(3):
        for leaf in range(8):
            inside = leaves[:, t] == leaf
            if not inside.any():
                continue
            drawn = papers_fraction(inside, m, draws, rng)
            assert set(np.unique(drawn)) <= set(range(1, m + 2))
            weight = model.leaf_weights()[t, leaf]
            assert weight == pytest.approx(
                drawn.mean(), abs=5 * drawn.std() / np.sqrt(draws) + 1e-12
            )


@pytest.mark.parametrize("m", [2, 4, 8, 16, 32, 64])
def test_weights_are_the_formula(m: int) -> None:
    model = forest(m)
    sizes = model.leaf_counts_.sum(axis=2)
    p = sizes / 200
    expected = np.where(sizes > 0, (1 - (1 - p) ** (m + 1)) / np.where(sizes > 0, p, 1), 0)
    np.testing.assert_allclose(model.leaf_weights(), expected, rtol=1e-13)
    # The expected number of draws until the first hit, cut off after M: a sum of survival
    # probabilities.
    by_hand = sum((1 - p) ** k for k in range(m + 1))
    np.testing.assert_allclose(model.leaf_weights()[sizes > 0], by_hand[sizes > 0], rtol=1e-12)


def test_at_one_over_m_the_weight_is_well_below_its_inverse() -> None:
    """The paper's "correct from 1/M on" is too kind: 65 to 70 % of 1/p."""
    for m in (8, 32, 64):
        p = 1 / m
        assert 0.62 < (1 - (1 - p) ** (m + 1)) / p / m < 0.70


def test_inverse_and_none() -> None:
    inverse, none = forest("inverse"), forest(0)
    sizes = inverse.leaf_counts_.sum(axis=2)
    np.testing.assert_allclose(
        inverse.leaf_weights()[sizes > 0], 200 / sizes[sizes > 0], rtol=1e-14
    )
    np.testing.assert_array_equal(none.leaf_weights(), 1)


def test_inverse_averages_the_shares_of_the_leaves() -> None:
    """Over the trees in which somebody was like the row, here all of them: the mean as
    scikit-learn's forests take it.
    """
    model, rows = forest("inverse", n=400, depth=2), table(30, seed=5)
    leaves = model.apply(rows)
    counts = np.stack([model.leaf_counts_[t, leaves[:, t]] for t in range(3)])
    assert (counts.sum(axis=2) > 0).all()
    np.testing.assert_allclose(
        model.predict_proba(rows),
        (counts / counts.sum(axis=2, keepdims=True)).mean(axis=0),
        rtol=1e-13,
    )


def test_an_opened_forest_may_change_how_it_weighs() -> None:
    """Counts are the same for all fractions: what was fitted to add votes averages shares once it
    is open.
    """
    rows = table(30, seed=5)
    changed = forest(0).set_params(fraction="inverse")
    np.testing.assert_array_equal(
        changed.predict_proba(rows), forest("inverse").predict_proba(rows)
    )
    assert np.abs(changed.predict_proba(rows) - forest(0).predict_proba(rows)).max() > 0.01


@pytest.mark.parametrize("fraction", [8, "inverse"])
def test_counts_are_never_scaled(fraction: Any) -> None:
    np.testing.assert_array_equal(forest(fraction).leaf_counts_, forest(0).leaf_counts_)
    assert forest(fraction).totals_ == forest(0).totals_


@pytest.mark.parametrize("fraction", [0, 8, "inverse"])
def test_votes_by_hand(fraction: Any) -> None:
    model, rows = forest(fraction), table(30, seed=5)
    leaves, weights = model.apply(rows), model.leaf_weights()
    for i in range(30):
        votes = sum(
            weights[t, leaves[i, t]] * model.leaf_counts_[t, leaves[i, t]] for t in range(3)
        )
        np.testing.assert_allclose(model.decision_votes(rows)[i], votes)
        np.testing.assert_allclose(model.predict_proba(rows)[i], votes / votes.sum())
    assert list(model.votes(rows).columns) == ["no", "yes"]
    np.testing.assert_array_equal(model.votes(rows).to_numpy(), model.decision_votes(rows))


@pytest.mark.parametrize("fraction", [2, 8, "inverse"])
def test_empty_leaves_weigh_nothing(fraction: Any) -> None:
    model = forest(fraction, n=4, depth=4)
    empty = model.leaf_counts_.sum(axis=2) == 0
    assert empty.any()
    assert (model.leaf_weights()[empty] == 0).all()
    assert np.isfinite(model.leaf_weights()).all()


@pytest.mark.parametrize("fraction", [0, 8, "inverse"])
def test_a_row_of_empty_leaves_only_gives_every_class_the_same(fraction: Any) -> None:
    known = schema()
    alike = frame(1).loc[[0] * 8].assign(ill=["no"] * 6 + ["yes"] * 2)
    model = es.CompletelyRandomForest(n_trees=3, depth=4, fraction=fraction, random_state=1).fit(
        known.table(alike)
    )
    rows = known.table(frame(300, seed=2))
    nobody = model.decision_votes(rows).sum(axis=1) == 0
    assert nobody.any()
    np.testing.assert_allclose(model.predict_proba(rows)[nobody], 0.5)
    np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1)


def test_importances_are_shares_and_find_what_matters() -> None:
    model = es.CompletelyRandomForest(n_trees=50, depth=3, random_state=0).fit(table(500))
    importances = model.feature_importances_
    assert importances.sum() == pytest.approx(1)
    assert importances[0] > 5 * importances[2]  # age matters, sex is noise
    one_class = schema().table(frame(40).assign(ill="no"))
    np.testing.assert_array_equal(
        es.CompletelyRandomForest(n_trees=2).fit(one_class).feature_importances_, 0
    )


def test_importances_by_hand() -> None:
    model = es.CompletelyRandomForest(n_trees=1, depth=1, random_state=2).fit(table(100))
    expected = np.zeros(3)
    expected[model.trees_[0][0].variable] = 1
    np.testing.assert_array_equal(model.feature_importances_, expected)
