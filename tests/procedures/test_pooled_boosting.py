"""Boosted trees over three sites, beside plain trees of histograms and scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pooled_samples import at_sites, check_rounds_are_the_same, cohort
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import encryptedstats as es
from encryptedstats.procedures import RowLimits
from encryptedstats.procedures.pooled.histograms import Chooser
from error_codes import error

NAMES = ["age", "bmi", "arm", "sex"]


def schema_of(frame: pd.DataFrame, target: str = "ill", **options: Any) -> es.Schema:
    """Return a schema with bins; a target that is a number is kept."""
    kinds = {"age": "both", "bmi": "both"} if target == "cost" else {}
    options |= {"numbers": "keep"} if target == "cost" else {}
    return es.Schema.infer(frame[[*NAMES, target]], target, bins=7, kinds=kinds, **options)


class Plain:
    """Boosted trees of clear rows with float histograms, in the order of variables and cuts."""

    def __init__(self, asked: es.PooledBoosting, codes: Any, kinds: list[str], y: Any) -> None:
        self.asked, self.codes, self.kinds, self.y = asked, codes, kinds, y
        self.is_class = set(np.unique(y)) <= {0, 1}
        share = y.mean()
        self.base = np.log(share / (1 - share)) if self.is_class else share
        self.score = np.full(len(y), self.base)
        self.splits: list[Any] = []
        for _ in range(asked.n_trees):
            p = 1 / (1 + np.exp(-self.score))
            self.g = p - y if self.is_class else self.score - y
            self.h = p * (1 - p) if self.is_class else np.ones(len(y))
            tree: dict[int, Any] = {}
            self.grow(0, np.ones(len(y), dtype=bool), 0, tree)
            self.splits.append(tree)

    def grow(self, number: int, rows: Any, depth: int, tree: dict[int, Any]) -> None:
        best, highest = None, 1e-9
        if depth < self.asked.depth and rows.sum() >= 2 * self.asked.min_rows:
            for j, kind in enumerate(self.kinds):
                for left in self.sides(j, kind, rows):
                    inside = rows & np.isin(self.codes[:, j], left)
                    other = rows & ~inside
                    if min(inside.sum(), other.sum()) < self.asked.min_rows:
                        continue
                    if min(self.h[inside].sum(), self.h[other].sum()) < 1e-3:
                        continue
                    gain = self.loss(inside) + self.loss(other) - self.loss(rows)
                    if gain > highest + 1e-9:
                        best, highest = (j, left, inside, other), gain
        if best is None:
            step = -self.g[rows].sum() / (self.h[rows].sum() + self.asked.l2)
            self.score[rows] += self.asked.learning_rate * step
            tree[number] = None
            return
        j, left, inside, other = best
        tree[number] = [j, sorted(left)]
        self.grow(2 * number + 1, inside, depth + 1, tree)
        self.grow(2 * number + 2, other, depth + 1, tree)

    def sides(self, j: int, kind: str, rows: Any) -> list[list[int]]:
        n = int(self.codes[:, j].max()) + 1
        if kind != "categorical":  # ordered
            return [list(range(k)) for k in range(1, n)]
        inside = [rows & (self.codes[:, j] == k) for k in range(n)]
        filled = [k for k in range(n) if inside[k].any()]
        mean = {
            k: self.g[inside[k]].sum() / (self.h[inside[k]].sum() + self.asked.l2) for k in filled
        }
        ranked = sorted(filled, key=lambda k: (mean[k], k))
        return [ranked[:size] for size in range(1, len(ranked))]

    def loss(self, rows: Any) -> float:
        return float(self.g[rows].sum() ** 2 / (self.h[rows].sum() + self.asked.l2))


def codes_of(table: es.Table) -> Any:
    return np.column_stack([np.asarray(table.codes_of(j)).astype(int) for j in range(4)])


@pytest.mark.parametrize("target", ["ill", "cost"])
@pytest.mark.parametrize(("depth", "l2"), [(1, 0.0), (2, 1.0), (3, 0.5)])
def test_trees_are_those_of_plain_histograms(target: str, depth: int, l2: float) -> None:
    frame = cohort()
    schema = schema_of(frame, target)
    whole = schema.table(frame)
    asked = es.PooledBoosting(12, depth, learning_rate=0.3, l2=l2, min_rows=11)
    found = asked.run(at_sites(schema, frame))
    y = (frame.ill == "yes").to_numpy().astype(float) if target == "ill" else frame.cost.to_numpy()
    kinds = [schema.variables[j].kind for j in range(4)]
    plain = Plain(asked, codes_of(whole), kinds, y)
    own = [
        {int(number): node["split"] for number, node in tree.items()}
        for tree in found._state["trees"]
    ]
    assert own == plain.splits
    assert sum(split is not None for tree in own for split in tree.values()) >= 12
    np.testing.assert_allclose(found.decision_function(frame), plain.score, rtol=1e-9)
    assert found.base == pytest.approx(plain.base, rel=1e-12)


def test_classes_are_predicted_as_by_scikit_learn() -> None:
    frame = cohort()
    schema = schema_of(frame)
    table = schema.table(frame)
    found = es.PooledBoosting(15, 2, 0.2, min_rows=20, variables=["age", "bmi"]).run(table)
    theirs = HistGradientBoostingClassifier(
        max_iter=15,
        max_depth=2,
        learning_rate=0.2,
        min_samples_leaf=20,
        max_leaf_nodes=None,
        early_stopping=False,
    )
    x = codes_of(table)[:, :2]
    theirs.fit(x, frame.ill)
    # scikit-learn adds up gradients of 32 bits.
    np.testing.assert_allclose(
        found.predict_proba(frame), theirs.predict_proba(x), rtol=1e-4, atol=1e-5
    )
    assert found.predict(frame).tolist() == theirs.predict(x).tolist()


def test_numbers_are_predicted_as_by_scikit_learn() -> None:
    frame = cohort()
    schema = schema_of(frame, "cost")
    table = schema.table(frame)
    found = es.PooledBoosting(15, 3, 0.2, min_rows=15, variables=["age", "bmi"]).run(table)
    theirs = HistGradientBoostingRegressor(
        max_iter=15,
        max_depth=3,
        learning_rate=0.2,
        min_samples_leaf=15,
        max_leaf_nodes=None,
        early_stopping=False,
    )
    x = codes_of(table)[:, :2]
    theirs.fit(x, frame.cost)
    np.testing.assert_allclose(found.predict(frame), theirs.predict(x), rtol=1e-4)


def test_of_equal_splits_the_first_is_taken() -> None:
    schema = schema_of(cohort()).public()
    chooser = Chooser(schema, [0, 1], 0.0, 1, 0)
    empty = [[[0, 0, 0]] * schema.variables[j].n_bins for j in (0, 1)]
    histogram = [[[-5, 10, 10], [5, 10, 10], *bins[2:]] for bins in empty]
    found = chooser.choose(histogram, [0, 20, 20])
    assert found is not None
    assert (found[0].variable, found[0].left, found[1]) == (0, (0,), [-5, 10, 10])
    assert chooser.choose(empty, [0, 20, 20]) is None


def test_missing_values_go_to_either_side() -> None:
    frame = cohort().astype({"age": float})
    frame.loc[frame.ill == "yes", "age"] = np.nan
    schema = schema_of(frame, missing="bin")
    found = es.PooledBoosting(1, 1, min_rows=20).run(at_sites(schema, frame))
    line = found.nodes.loc[(0, 0)]
    assert line["variable"] == "age"
    values = found.decision_function(frame)
    assert values[frame.age.isna()].min() > values[~frame.age.isna()].max()


def test_no_leaf_has_fewer_rows_than_allowed() -> None:
    frame = cohort()
    found = es.PooledBoosting(10, 3, min_rows=25).run(at_sites(schema_of(frame), frame))
    assert found.nodes["rows"].min() >= 25
    assert (found.nodes.xs(0, level="node")["rows"] == 300).all()


def test_few_rows_are_refused() -> None:
    frame = cohort()
    limits = RowLimits(minimum=10, per_number=0, per_parameter=0)
    tables = at_sites(schema_of(frame), frame)
    with pytest.raises(es.DisclosureError, check=error("small-count", "min_rows=5")):
        es.PooledBoosting(2, 1, min_rows=5).run(tables, limits=limits)
    es.PooledBoosting(2, 1, min_rows=10).run(tables, limits=limits)
    frame.loc[:3, "arm"] = "d"
    with pytest.raises(es.DisclosureError, check=error("small-count", "v2")):
        es.PooledBoosting(2, 1).run(at_sites(schema_of(frame), frame), limits=limits)


@pytest.mark.parametrize("target", ["ill", "cost"])
def test_rounds_are_the_same_everywhere_and_as_few_as_announced(target: str) -> None:
    frame = cohort()
    schema = schema_of(frame, target)
    asked = es.PooledBoosting(4, 3, min_rows=10)
    check_rounds_are_the_same(asked, schema, frame)


def test_impossible_questions_are_refused() -> None:
    frame = cohort()
    with pytest.raises(es.SchemaError, check=error("not-two-levels")):
        es.PooledBoosting().run(es.Schema.infer(frame[NAMES], target="arm").table(frame[NAMES]))
    numbers = es.Schema.infer(frame[["age", "ill"]], target="ill", numbers="keep").table(frame)
    with pytest.raises(es.SchemaError, check=error("nothing-to-split")):
        es.PooledBoosting().run(numbers)
    with pytest.raises(es.DataError, check=error("constant-outcome")):
        es.PooledBoosting().run(schema_of(frame).table(frame[frame.ill == "no"]))
    schema = schema_of(frame, "cost")
    found = es.PooledBoosting(1, 1).run(schema.table(frame))
    with pytest.raises(es.SchemaError, check=error("number-without-classes")):
        found.predict_proba(frame)
