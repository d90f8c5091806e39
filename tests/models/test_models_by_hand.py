"""Models of clear rows beside their formulas, written down with NumPy over the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import CategoricalNB

import encryptedstats as es


def make_rows(n: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(8)
    size = rng.integers(0, 4, n)
    kind = rng.choice(["a", "b", "c"], n)
    ill = (size + (kind == "b") + rng.normal(0, 1.5, n) > 2).astype(int)
    return pd.DataFrame({"size": size, "kind": kind, "dose": rng.integers(0, 5, n), "ill": ill})


@pytest.fixture(scope="module")
def rows() -> es.Table:
    frame = make_rows()
    schema = es.Schema.infer(frame, target="ill", kinds={"kind": "categorical"})
    for name, levels in (("size", range(4)), ("dose", range(5))):
        schema = schema.with_kind(name, "ordinal", levels=levels)
    return schema.table(frame)


@pytest.fixture(scope="module")
def numbers() -> es.Table:
    frame = make_rows()[["size", "dose", "ill"]]
    schema = es.Schema.infer(frame, target="ill")
    for name in ("size", "dose"):
        schema = schema.with_kind(name, "number", digits=0)
    return schema.table(frame)


def find_leaves(forest: es.CompletelyRandomForest, table: es.Table) -> np.ndarray[Any, Any]:
    """Return the leaf of each row in each tree, by a walk from the root."""
    found = np.zeros((len(table), forest.n_trees), dtype=int)
    for t, tree in enumerate(forest.trees_):
        for i in range(len(table)):
            node = 0
            while node < len(tree):
                split = tree[node]
                node = 2 * node + (1 if table.data[split.variable][i] in split.left else 2)
            found[i, t] = node - len(tree)
    return found


def test_a_forest_counts_the_classes_in_its_leaves(rows: es.Table) -> None:
    forest = es.CompletelyRandomForest(n_trees=7, depth=3, random_state=2).fit(rows)
    leaves, codes = find_leaves(forest, rows), rows.class_codes
    assert codes is not None
    for t in range(7):
        wanted = np.zeros((8, 2), dtype=int)
        np.add.at(wanted, (leaves[:, t], codes), 1)
        np.testing.assert_array_equal(forest.leaf_counts_[t], wanted)
    np.testing.assert_array_equal(forest.node_counts_[:, 0], [np.bincount(codes)] * 7)


@pytest.mark.parametrize("fraction", [0, 8, "inverse"])
def test_a_forest_adds_votes_or_averages_shares(rows: es.Table, fraction: Any) -> None:
    forest = es.CompletelyRandomForest(n_trees=7, depth=2, random_state=2, fraction=fraction)
    forest.fit(rows)
    leaves, n = find_leaves(forest, rows), len(rows)
    votes = np.zeros((n, 2))
    for t in range(7):
        counts = forest.leaf_counts_[t].astype(float)
        p = np.maximum(counts.sum(axis=1), 1) / n
        weight = {0: 1 + 0 * p, 8: (1 - (1 - p) ** 9) / p, "inverse": 1 / p}[fraction]
        votes += (counts * weight[:, None])[leaves[:, t]]
    wanted = votes / votes.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(forest.predict_proba(rows), wanted, rtol=1e-12)


def test_importances_are_decreases_of_gini_impurity(rows: es.Table) -> None:
    forest = es.CompletelyRandomForest(n_trees=9, depth=2, random_state=3).fit(rows)

    def impurity(counts: Any) -> float:
        n = counts.sum()
        return float(n - (counts**2).sum() / n) if n else 0.0

    found = np.zeros(3)
    for tree, counts in zip(forest.trees_, forest.node_counts_.astype(float), strict=True):
        for k, split in enumerate(tree):
            left, right = counts[2 * k + 1], counts[2 * k + 2]
            found[split.variable] += impurity(counts[k]) - impurity(left) - impurity(right)
    np.testing.assert_allclose(forest.feature_importances_, found / found.sum(), rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_multinomial_naive_bayes_is_that_of_scikit_learn(rows: es.Table, alpha: float) -> None:
    codes, x = rows.class_codes, np.column_stack(rows.data)
    bins = [variable.n_bins for variable in rows.public_schema.variables]
    wanted = CategoricalNB(alpha=alpha, min_categories=bins).fit(x, codes)
    found = es.MultinomialNB(alpha=alpha).fit(rows)
    np.testing.assert_allclose(found.predict_proba(rows), wanted.predict_proba(x), rtol=1e-10)


def test_one_step_regression_is_least_squares_of_plus_and_minus_two(numbers: es.Table) -> None:
    x = numbers.to_pandas()[["size", "dose"]].to_numpy(dtype=float)
    assert numbers.class_codes is not None
    z = 4 * numbers.class_codes.astype(float) - 2
    ones = np.ones((len(x), 1))
    wanted = np.linalg.lstsq(np.hstack([ones, x]), z, rcond=None)[0]
    found = es.OneStepLogisticRegression().fit(numbers)
    np.testing.assert_allclose([*found.intercept_, *found.coef_[0]], wanted, rtol=1e-9)
    through = es.OneStepLogisticRegression(fit_intercept=False).fit(numbers)
    np.testing.assert_allclose(through.coef_[0], np.linalg.lstsq(x, z, rcond=None)[0], rtol=1e-9)
    p = 1 / (1 + np.exp(-(wanted[0] + x @ wanted[1:])))
    np.testing.assert_allclose(found.predict_proba(numbers)[:, 1], p, rtol=1e-9)


def test_linear_means_and_fishers_discriminant_stand_half_way(numbers: es.Table) -> None:
    x = numbers.to_pandas()[["size", "dose"]].to_numpy(dtype=float)
    codes = numbers.class_codes
    assert codes is not None
    means = np.array([x[codes == c].mean(axis=0) for c in (0, 1)])
    found = es.LinearMeans().fit(numbers)
    np.testing.assert_allclose(found.means_, means, rtol=1e-12)
    scores = x @ means.T - (means**2).sum(axis=1) / 2
    apart = found.decision_function(numbers)
    np.testing.assert_allclose(apart, scores[:, 1] - scores[:, 0], rtol=1e-9, atol=1e-12)
    inside = x - means[codes]
    scatter = inside.T @ inside / len(x)
    fisher = es.FisherDiscriminant().fit(numbers)
    np.testing.assert_allclose(fisher.scatter_, scatter, rtol=1e-9, atol=1e-12)
    centred = means - x.mean(axis=0)
    directions = np.linalg.solve(scatter, centred.T).T
    np.testing.assert_allclose(fisher.directions_, directions, rtol=1e-6)
    half = (directions * centred).sum(axis=1) / 2
    wanted = (x - x.mean(axis=0)) @ directions.T - half
    apart = fisher.decision_function(numbers)
    np.testing.assert_allclose(apart, wanted[:, 1] - wanted[:, 0], rtol=1e-6, atol=1e-8)
