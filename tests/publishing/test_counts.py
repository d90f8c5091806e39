"""Noisy counts made possible: leaves against all kinds of rows, votes against what theory promises
of them.
"""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.publishing import counts as module
from encryptedstats.publishing.counts import (
    Boxes,
    class_counts_of,
    counts_of,
    leaf_counts_of,
    likely_leaf_counts,
)

LEVELS = [list("abc"), list("ab"), list("abcd")]
KINDS = pd.DataFrame(list(itertools.product(*LEVELS)), columns=["x", "y", "z"])
SCHEMA = es.Schema.infer(KINDS.assign(sick=np.arange(len(KINDS)) % 2), target="sick")


def forest(n_trees: int, depth: int, seed: int = 0) -> tuple[es.CompletelyRandomForest, np.ndarray]:
    """A forest, and which leaf (of all trees) each kind of row is in: L, by leaves and kinds."""
    made = es.CompletelyRandomForest(n_trees=n_trees, depth=depth, random_state=seed)
    rows = SCHEMA.table(KINDS.assign(sick=0))
    made = made.fit(SCHEMA.table(KINDS.assign(sick=np.arange(len(KINDS)) % 2)))
    leaves = made.apply(rows)
    indicators = np.stack([leaves[:, t] == b for t in range(n_trees) for b in range(2**depth)])
    return made, indicators.astype(float)


def boxes_of(made: es.CompletelyRandomForest) -> Boxes:
    return Boxes.of(made.trees_, [variable.n_bins for variable in SCHEMA.variables])


@settings(max_examples=examples(6))
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_overlaps_of_leaves_are_those_of_all_kinds_of_rows(
    n_trees: int, depth: int, seed: int
) -> None:
    made, indicators = forest(n_trees, depth, seed)
    boxes = boxes_of(made)
    assert boxes.overlaps() == pytest.approx(indicators @ indicators.T / len(KINDS))
    assert (boxes.reached.ravel() == indicators.any(axis=1)).all()


def test_a_number_is_in_no_split() -> None:
    made, _ = forest(3, 2)
    plain, with_number = (
        Boxes.of(made.trees_, [*(v.n_bins for v in SCHEMA.variables), *more]) for more in ([], [0])
    )
    assert with_number.reached.tolist() == plain.reached.tolist()
    assert with_number.overlaps() == pytest.approx(plain.overlaps())


def true_counts(
    indicators: np.ndarray, shape: tuple[int, ...], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """What 60 rows of two classes give in the leaves, and the classes."""
    rng = np.random.default_rng(seed)
    rows = np.stack(
        [rng.multinomial(n, rng.dirichlet(np.full(len(KINDS), 0.3))) for n in (40, 20)], axis=1
    )
    return (indicators @ rows).reshape(shape), rows.sum(axis=0)


def votes_apart(indicators: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    apart = indicators.T @ (a - b).astype(float).reshape(len(indicators), -1)
    return float(np.linalg.norm(apart))


@pytest.mark.parametrize("scale", [2.0, 20.0, 200.0])
@pytest.mark.parametrize("seed", range(4))
def test_votes_of_possible_counts_are_nearer_to_the_truth_than_noisy_ones(
    scale: float, seed: int
) -> None:
    made, indicators = forest(12, 3)
    true, classes = true_counts(indicators, made.leaf_counts_.shape, seed)
    noisy = true + np.random.default_rng(seed).normal(0, scale, true.shape)
    found = leaf_counts_of(noisy, classes.astype(object), boxes_of(made))
    assert (found >= 0).all()
    assert (found.sum(axis=1) == classes).all()
    assert (found[~boxes_of(made).reached] == 0).all()
    whole = np.sqrt(12) * np.sqrt(
        found.shape[2] * len(KINDS)
    )  # what rounding may add: half a row in every leaf, and little
    assert votes_apart(indicators, found, true) < votes_apart(indicators, noisy, true) + whole


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_likely_counts_are_nearer_to_the_truth_in_the_mean(scale: float) -> None:
    """Of tables at random, with noise at random: what Bayes' rule promises. Seeded."""
    made, indicators = forest(12, 3)
    boxes, rng, errors = boxes_of(made), np.random.default_rng(0), []
    for _ in range(40):
        rows = rng.multinomial(60, np.full(2 * len(KINDS), 0.5 / len(KINDS))).reshape(-1, 2)
        true = (indicators @ rows).reshape(made.leaf_counts_.shape)
        noisy = true + rng.normal(0, scale, true.shape)
        likely = likely_leaf_counts(noisy, 60, boxes, scale)
        errors.append([votes_apart(indicators, one, true) ** 2 for one in (likely, noisy)])
    better, worse = np.mean(errors, axis=0)
    assert (
        better < (1.0 if scale == 1 else 0.3) * worse
    )  # the less the noise, the less there is to gain


def test_without_noise_nothing_is_more_likely_than_what_was_counted() -> None:
    made, indicators = forest(5, 3)
    true, _ = true_counts(indicators, made.leaf_counts_.shape, 0)
    boxes = boxes_of(made)
    assert (likely_leaf_counts(true.astype(float), 60, boxes, 0.0) == true).all()
    assert likely_leaf_counts(true.astype(float), 60, boxes, 1e-4) == pytest.approx(true, abs=0.01)


def test_leaves_that_are_put_right_one_by_one_lose_votes() -> None:
    """Why it is not done tree by tree: with much noise, votes come out farther from the
    noisy ones.
    """
    made, indicators = forest(40, 3)
    true, classes = true_counts(indicators, made.leaf_counts_.shape, 1)
    noisy = true + np.random.default_rng(1).normal(0, 30, true.shape)
    noisy += (classes - noisy.sum(axis=1, keepdims=True)) / 8
    apart = [
        np.stack([counts_of(tree[:, c], n) for c, n in enumerate(classes)], axis=1)
        for tree in noisy
    ]
    together = leaf_counts_of(noisy, classes.astype(object), boxes_of(made))
    lost = votes_apart(indicators, np.array(apart), noisy)
    assert 1.5 * votes_apart(indicators, together, noisy) < lost


def test_least_squares_over_all_trees_have_the_votes_of_the_noisy_counts() -> None:
    """So that nothing is lost where noisy counts are added up as they are."""
    _, indicators = forest(10, 3)
    noisy = np.random.default_rng(0).normal(0, 10, len(indicators))
    rows, *_ = np.linalg.lstsq(indicators, noisy, rcond=None)
    assert indicators.T @ (indicators @ rows) == pytest.approx(indicators.T @ noisy)


def test_no_other_noise_of_the_same_privacy_is_better_for_votes() -> None:
    """Li and Miklau's bound, (sum of singular values)^2 / kinds of rows, of the votes of all kinds
    of rows.
    """
    _, indicators = forest(15, 2)
    votes = indicators.T @ indicators
    bound = np.linalg.svd(votes, compute_uv=False).sum() ** 2 / len(KINDS)
    sensitivity = (indicators**2).sum(axis=0).max()  # squared, one row more or less
    assert sensitivity * (indicators**2).sum() == pytest.approx(bound)


def test_forests_of_many_leaves_are_put_right_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LEAVES", 24)
    made, indicators = forest(7, 3)
    true, classes = true_counts(indicators, made.leaf_counts_.shape, 2)
    likely = likely_leaf_counts(true.astype(float), 60, boxes_of(made), 1e-4)
    assert likely == pytest.approx(true, abs=0.01)
    assert [len(own.bins) for _, own in boxes_of(made).in_parts()] == [3, 3, 1]
    noisy = true + np.random.default_rng(2).normal(0, 20, true.shape)
    found = leaf_counts_of(noisy, classes.astype(object), boxes_of(made))
    assert found.shape == true.shape
    assert (found.sum(axis=1) == classes).all()
    assert (leaf_counts_of(true, classes.astype(object), boxes_of(made)) == true).all()


def test_counts_of_classes_are_the_mean_of_what_they_can_be() -> None:
    assert class_counts_of(np.array([300.0, 700.0]), 1000, 5.0).tolist() == [300, 700]
    assert class_counts_of(np.array([300.0, 700.0]), 1000, 0.0).tolist() == [300, 700]
    near, far = class_counts_of(np.array([-100.0, 1100.0]), 1000, 100.0)
    assert near + far == 1000
    # A normal number of mean -100 and deviation 100 that is not below 0 has the mean -100 + 100 *
    # phi(1) / Phi(-1) = 52.5.
    assert near == pytest.approx(52.5, abs=2)
    assert class_counts_of(np.array([-1e4, 1e4]), 100, 1e5).tolist() == pytest.approx(
        [50, 50], abs=2
    )
    assert sum(class_counts_of(np.array([-5.0, 30.0, 20.0]), None, 10.0)) > 45


@pytest.mark.parametrize("total", [100, None])
def test_noise_takes_no_class_away(total: int | None) -> None:
    few, many = class_counts_of(np.array([-5.0, 105.0]), total, 1.0)
    assert few == 1
    assert many == pytest.approx(99, abs=6)
    assert total is None or many == 99
    assert sorted(class_counts_of(np.array([-9.0, -9.0, 3.0]), 3, 1.0)) == [1, 1, 1]
    assert sum(class_counts_of(np.array([-9.0, -9.0, 3.0]), 2, 1.0)) == 2  # fewer rows than classes
    assert class_counts_of(np.array([0.0, 100.0]), 100, 0.0).tolist() == [
        0,
        100,
    ]  # no noise took it
