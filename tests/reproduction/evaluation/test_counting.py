"""Fast counts are those of the circuit, drawn fractions have the distribution of the paper's, AUC
is scikit-learn's.
"""

from __future__ import annotations

import doctest

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import encryptedstats as es
from encryptedstats.metrics import auc
from reproduction.datasets import Dataset
from reproduction.evaluation import convergence, counting, drawn_fraction, settings
from reproduction.evaluation.counting import FastForest, shallower, share_of_votes
from reproduction.evaluation.methods import forest_scores, forest_seed, forest_weights
from reproduction.evaluation.models import forests
from reproduction.evaluation.samples import Sample


def some_rows(n: int = 300) -> tuple[es.Schema, es.Table]:
    """Continuous, ordinal and categorical variables of different widths."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.integers(0, 4, n),
            "c": pd.Categorical(rng.choice(list("uvwxyz"), n)),
            "y": rng.integers(0, 2, n),
        }
    )
    schema = es.Schema.infer(frame, target="y")
    return schema, schema.table(frame)


@pytest.mark.parametrize("module", [counting, convergence, settings])
def test_examples(module: object) -> None:
    tested = doctest.testmod(module)  # type: ignore[arg-type]  # a module, from a list of them
    assert tested.attempted
    assert not tested.failed


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_counts_are_those_of_the_circuit(depth: int) -> None:
    schema, table = some_rows()
    forest = es.CompletelyRandomForest(12, depth, random_state=99, repeats=True).fit(table)
    fast = FastForest.grow(schema.public(), 12, depth, 99)
    assert np.array_equal(fast.counts(table), forest.leaf_counts_)
    assert np.array_equal(np.column_stack(list(fast.leaves(table))), forest.apply(table))


def test_small_forests_are_cut_out_of_the_large_one() -> None:
    schema, table = some_rows()
    large = FastForest.grow(schema.public(), 20, 6, 7).counts(table)
    for n_trees, depth in ((20, 6), (5, 1), (10, 3)):
        small = (
            es.CompletelyRandomForest(n_trees, depth, random_state=7, repeats=True)
            .fit(table)
            .leaf_counts_
        )
        assert np.array_equal(shallower(large, 6 - depth)[:n_trees], small)


@pytest.mark.parametrize("depth", [3, 6])
def test_scores_of_forests_are_the_library_s(depth: int) -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"a": rng.normal(size=200), "b": rng.integers(0, 9, 200)})
    target = pd.Series((frame["a"] + rng.normal(size=200) > 0).astype(int))
    kinds = {"a": "continuous", "b": "continuous"}
    data = Dataset("made_up", "made up", frame, target, kinds, "1", "", "", "", "")
    rows = np.arange(200)
    sample = Sample(data, 0, rows[:150], rows[150:])
    forest = es.CompletelyRandomForest(100, depth, random_state=forest_seed(sample, 3))
    forest.fit(sample.train)
    found = forests(sample, 3)
    shares = forest.predict_proba(sample.test)[:, 1]
    np.testing.assert_allclose(found[depth, True], shares, rtol=1e-12)
    votes = forest.set_params(fraction=0).predict_proba(sample.test)[:, 1]
    np.testing.assert_allclose(found[depth, False], votes, rtol=1e-12)
    assert not np.allclose(shares, votes)


def test_rows_without_classes_are_not_counted() -> None:
    schema, table = some_rows()
    fast = FastForest.grow(schema.public(), 1, 1, 0)
    with pytest.raises(ValueError, match="no classes"):
        fast.counts(schema.table(table.to_pandas().assign(a=0.0)[["a"]].join(raw_columns(table))))


def raw_columns(table: es.Table) -> pd.DataFrame:
    return pd.DataFrame({"b": np.zeros(len(table), dtype=int), "c": "u"})


@pytest.mark.parametrize("fraction", [2, 8, 64])
def test_drawn_fraction_has_the_paper_s_distribution(fraction: int) -> None:
    n, rng = 1000, np.random.default_rng(5)
    for size in (1, 30, 125, 500, 1000):
        drawn = drawn_fraction(np.full(40_000, size), n, fraction, rng)
        assert drawn.min() >= 1
        assert drawn.max() <= fraction + 1
        p = size / n
        mean = (1 - (1 - p) ** (fraction + 1)) / p
        error = drawn.std() / 200 + 1e-12
        assert abs(drawn.mean() - mean) < 5 * error, (size, drawn.mean(), mean)


def test_drawn_fraction_counts_leading_draws() -> None:
    """Against the paper's own procedure: draw M rows, count those before the first inside."""
    n, fraction, size = 50, 8, 6
    rng = np.random.default_rng(0)
    inside = rng.integers(0, n, (40_000, fraction)) < size
    counted = 1 + np.where(inside.any(axis=1), inside.argmax(axis=1), fraction)
    drawn = drawn_fraction(np.full(40_000, size), n, fraction, rng)
    for value in range(1, fraction + 2):
        assert abs((counted == value).mean() - (drawn == value).mean()) < 0.012


def test_no_fraction_weighs_nothing_and_the_same_draws_serve_every_m() -> None:
    sizes = np.arange(0, 100)
    assert (drawn_fraction(sizes, 100, 0, np.random.default_rng(1)) == 1).all()
    small, large = (drawn_fraction(sizes, 100, m, np.random.default_rng(1)) for m in (4, 64))
    assert np.array_equal(small, np.minimum(large, 5))


def test_scores_without_a_fraction_are_those_of_the_forest() -> None:
    _, table = some_rows()
    forest = es.CompletelyRandomForest(15, 3, fraction=0, random_state=4).fit(table)
    weighted = forest_weights(forest, 0, np.random.default_rng(0))
    assert np.allclose(
        forest_scores(weighted, forest.apply(table)), forest.predict_proba(table)[:, 1]
    )


def test_expected_scores_are_those_of_the_library() -> None:
    _, table = some_rows()
    forest = es.CompletelyRandomForest(15, 2, fraction=8, random_state=4).fit(table)
    rng = np.random.default_rng(0)
    weighted = np.mean([forest_weights(forest, 8, rng) for _ in range(3000)], axis=0)
    assert np.allclose(
        weighted, forest.leaf_counts_ * forest.leaf_weights()[:, :, None], rtol=0.15, atol=1.0
    )


def test_auc_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    classes, scores = rng.integers(0, 2, 500), rng.integers(0, 30, 500).astype(float)
    assert auc(classes, scores) == pytest.approx(roc_auc_score(classes, scores), abs=1e-12)


def test_a_row_without_votes_is_undecided() -> None:
    assert share_of_votes(np.array([[0.0, 0.0], [1.0, 3.0]])).tolist() == [0.5, 0.75]
