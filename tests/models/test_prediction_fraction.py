"""The drawn fraction: rows drawn uniformly and independently whatever the layout, never padding;
its law is that of the paper.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_samples import random_table, table, variable_of
from prediction_samples import planned_owner
from scipy.stats import chi2
from sklearn.base import clone

import encryptedstats as es
from encryptedstats.circuits.clear import read_clear
from encryptedstats.circuits.expressions import MASK, RESAMPLE, column_names, depth_of, in_order
from encryptedstats.circuits.layout import Layout
from encryptedstats.models.forest import _leaves_of
from encryptedstats.models.fraction import Fraction, clear_fraction, fraction_circuit
from encryptedstats.tables.encodings import Column

SLOTS = 16
#: Around a half row and a chunk.
BORDERS = (1, SLOTS // 2 - 1, SLOTS // 2, SLOTS // 2 + 1, SLOTS - 1, SLOTS, SLOTS + 1)
SEEDS = 3000
QUIET = {"workers": 1, "progress": False}


def check_shares(counts: Any, probabilities: Any) -> None:
    """Chi-square, for what is drawn from fixed seeds: refused where chance would do it once in ten
    thousand times.
    """
    counts, expected = np.asarray(counts, dtype=float), np.asarray(probabilities) * np.sum(counts)
    if len(counts) > 1:
        statistic = ((counts - expected) ** 2 / expected).sum()
        assert chi2.sf(statistic, len(counts) - 1) > 1e-4, (statistic, counts)


# -- which rows
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", BORDERS)
def test_every_row_is_drawn_as_often(n: int) -> None:
    rows = np.array(
        [Fraction(2, 2, seed).rows(n, 3) for seed in range(SEEDS)]
    )  # (seeds, leaves, slots, draws)
    assert rows.shape == (SEEDS, 3, 2, 2)
    assert rows.min() >= 0
    assert rows.max() < n
    for leaf in range(3):
        for slot in range(2):
            for draw in range(2):
                check_shares(np.bincount(rows[:, leaf, slot, draw], minlength=n), np.full(n, 1 / n))


@pytest.mark.parametrize("n", [2, 7, 9])
def test_draws_for_a_leaf_are_independent(n: int) -> None:
    rows = np.array([Fraction(4, 1, seed).rows(n, 2)[1, 0] for seed in range(SEEDS)])
    for first in range(4):
        for second in range(first):
            pairs = np.bincount(rows[:, first] * n + rows[:, second], minlength=n * n)
            check_shares(pairs, np.full(n * n, 1 / n**2))


def test_other_seeds_draw_other_rows() -> None:
    drawn = {tuple(Fraction(8, 1, seed).first_rows(1000)) for seed in range(50)}
    assert len(drawn) == 50
    assert Fraction(8, 1, 3).first_rows(1000) == Fraction(8, 4, 3).first_rows(1000)


# -- how large
# ------------------------------------------------------------------------------------------------


def fractions_of(p_inside: float, m: int, averaged: int, n: int = 200) -> Any:
    """The fraction of a leaf that a share of the rows, spread at random, is in: for many seeds."""
    inside = np.zeros(n, dtype=np.int64)
    inside[: round(p_inside * n)] = 1
    leaves = np.random.default_rng(1).permutation(inside)[:, None]
    return np.array(
        [clear_fraction(Fraction(m, averaged, seed), leaves, 2)[1] for seed in range(SEEDS)]
    )


@pytest.mark.parametrize(("p", "m"), [(0.5, 2), (0.1, 8), (0.03, 8), (0.3, 16)])
def test_its_law_is_that_of_the_paper(p: float, m: int) -> None:
    found = fractions_of(p, m, 1)
    assert found.min() >= 1
    assert found.max() <= m + 1
    law = [p * (1 - p) ** (k - 1) for k in range(1, m + 1)] + [(1 - p) ** m]
    assert math.isclose(sum(law), 1)
    common = [k for k in range(m + 1) if law[k] * SEEDS >= 5]  # cells that chi-square can speak of
    counts = np.bincount(found, minlength=m + 2)[1:]
    rest = SEEDS - counts[common].sum()
    if len(common) <= m:
        check_shares(
            [*counts[common], rest], [*np.array(law)[common], 1 - np.array(law)[common].sum()]
        )
    else:
        check_shares(counts, law)
    mean = (1 - (1 - p) ** (m + 1)) / p
    assert abs(found.mean() - mean) < 4 * found.std() / math.sqrt(SEEDS)


def test_a_leaf_without_rows_and_one_with_all() -> None:
    assert set(fractions_of(0.0, 8, 2).tolist()) == {18}
    assert set(fractions_of(1.0, 8, 2).tolist()) == {2}


def test_averaging_keeps_the_mean_and_lowers_the_variance() -> None:
    p, m = 0.2, 8
    one, four = fractions_of(p, m, 1), fractions_of(p, m, 4) / 4
    mean = (1 - (1 - p) ** (m + 1)) / p
    assert abs(four.mean() - mean) < 4 * four.std() / math.sqrt(SEEDS)
    assert four.var() < 0.5 * one.var()
    assert Fraction(m, 4, 0).largest == 36


# -- the circuit
# ------------------------------------------------------------------------------------------------


layouts = st.one_of(
    st.sampled_from(BORDERS).map(lambda n: Layout(n, SLOTS)),
    st.lists(st.integers(1, SLOTS), min_size=1, max_size=4).map(
        lambda c: Layout(sum(c), SLOTS, tuple(c))
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    layouts,
    st.integers(1, 3),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 99),
)
def test_the_circuit_gives_what_the_rows_do(
    layout: Layout, depth: int, m: int, averaged: int, seed: int
) -> None:
    shapes = [("ordinal", 4, False), ("continuous", 3, True), ("categorical", 3, False)]
    known = es.Schema(tuple(variable_of(*shape, j) for j, shape in enumerate(shapes)), "y", (0, 1))
    rows = random_table(known, layout.n_rows, seed)
    trees = es.CompletelyRandomForest(n_trees=3, depth=depth, random_state=seed).grow(known)
    fraction = Fraction(m, averaged, seed)
    circuit = fraction_circuit(fraction, trees, known.public(), layout)
    columns = {name: rows.values(Column.parse(name)) for name in column_names(circuit)}
    wanted = clear_fraction(fraction, _leaves_of(trees, rows), 2**depth)
    assert read_clear(circuit, columns, layout) == wanted
    assert all(averaged <= value <= fraction.largest for value in wanted)
    for node in in_order(circuit):
        if node.op == MASK:  # no slot of padding is ever picked
            assert node.data.slots[-1] < layout.counts[node.data.chunk]
    assert depth_of(circuit) <= math.ceil(math.log2(depth)) + int(math.log2(m))


@pytest.mark.parametrize(("slots", "together"), [(64, True), (SLOTS, False)])
def test_draws_that_go_round_the_end_of_a_small_table_are_multiplied_once(
    slots: int, together: bool
) -> None:
    """A draw is in two pieces there, each with a move of its own, of one product; a full half row
    has no slots to spare.
    """
    known = es.Schema(tuple(variable_of("ordinal", 4, False, j) for j in range(3)), "y", (0, 1))
    trees = es.CompletelyRandomForest(n_trees=1, depth=2, random_state=1).grow(known)
    fraction, n = Fraction(4, 1, 1), 7
    assert (
        sum(first > n - 4 for first in fraction.first_rows(n)) == 2
    )  # of four draws for four leaves each, two go round
    circuit = fraction_circuit(fraction, trees, known.public(), Layout(n, slots))
    moves = [node for node in in_order(circuit) if node.op == RESAMPLE]
    assert len(moves) == 6
    assert len({node.args[0] for node in moves}) == (4 if together else 6)


@pytest.mark.parametrize("sizes", [[60], [1, 59], [30, 7, 23]], ids=str)
def test_drawn_under_encryption(sizes: list[int]) -> None:
    """Counts are what they are without a fraction; what is drawn is what is drawn from the plain
    rows.
    """
    owner, rows = planned_owner(), table(60)
    forest = es.CompletelyRandomForest(n_trees=3, depth=2, fraction=4, averaged=2, random_state=5)
    ends = np.cumsum(sizes)
    first, *rest = [
        owner.encrypt(rows.take(np.arange(e - s, e)), workers=1)
        for s, e in zip(sizes, ends, strict=True)
    ]
    for piece in rest:
        first = first.append(piece)
    opened = owner.open(clone(forest).fit(first, **QUIET))
    plain = clone(forest).fit(rows)
    assert opened.drawn_ == plain.drawn_
    np.testing.assert_array_equal(opened.leaf_counts_, plain.leaf_counts_)
    unweighed = clone(forest).set_params(fraction=0).fit(rows)
    np.testing.assert_array_equal(opened.leaf_counts_, unweighed.leaf_counts_)
    assert not hasattr(unweighed, "drawn_")


def test_votes_are_counts_times_fractions() -> None:
    rows, new = table(60), table(15, seed=4)
    forest = es.CompletelyRandomForest(
        n_trees=4, depth=2, fraction=8, averaged=2, random_state=3
    ).fit(rows)
    drawn, leaves = np.array(forest.drawn_).reshape(4, 4), forest.apply(new)
    by_hand = sum(
        forest.leaf_counts_[t][leaves[:, t]] * drawn[t][leaves[:, t], None] for t in range(4)
    )
    assert forest.predict_votes(new).to_numpy().tolist() == by_hand.tolist()
