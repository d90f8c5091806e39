"""The bounds reader: no value is ever beyond its bound, and for trees the bound is what it should
be.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from circuit_samples import RANGES, by_hand, circuits, random_columns, row_pools
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from encryptedstats.circuits import Layout, column, linear, sum_of
from encryptedstats.circuits.bounds import ColumnRange, Interval, read_bounds
from encryptedstats.circuits.expressions import encrypted_constant, pack_total
from encryptedstats.tables.columns import column_ranges
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.schema.variables import PublicSchema, PublicVariable

A0, A1, A2, B0, B1, Y, W, N = (
    column(name) for name in ("a0", "a1", "a2", "b0", "b1", "y0", "w", "n")
)
layouts = st.lists(st.integers(1, 8), min_size=1, max_size=3).map(
    lambda counts: Layout(sum(counts), 8, tuple(counts))
)


def bound(node, n_rows=10, n_slots=None, ranges=RANGES) -> tuple[int, int]:
    found = read_bounds([node], ranges, n_rows, n_slots)[node]
    return found.low, found.high


# ------------------------------------------------------------------------------------------ nev
# beyond the bound


@settings(max_examples=examples(100), deadline=None)
@given(pool=row_pools(max_depth=4, steps=9), layout=layouts, seed=st.integers(0, 99))
def test_rows_keep_their_bounds(pool, layout, seed):
    columns = random_columns(layout.n_rows, seed)
    bounds = read_bounds(pool, RANGES, layout.n_rows, layout.n_chunks * layout.slots)
    for node, values in zip(pool, by_hand(pool, columns, layout), strict=True):
        assert bounds[node].low <= min(values)
        assert max(values) <= bounds[node].high


@settings(max_examples=examples(100), deadline=None)
@given(
    outputs=circuits(max_depth=4, outputs=6),
    layout=layouts,
    seed=st.integers(0, 99),
    extreme=st.booleans(),
)
def test_totals_keep_their_bounds(outputs, layout, seed, extreme):
    columns = random_columns(layout.n_rows, seed)
    if extreme:  # the same row over and over, with numbers at the ends of their ranges
        columns = {name: np.full(layout.n_rows, values[0]) for name, values in columns.items()}
        columns |= {
            "w": np.full(layout.n_rows, 4),
            "n": np.full(layout.n_rows, -3 if seed % 2 else 5),
        }
    bounds = read_bounds(outputs, RANGES, layout.n_rows, layout.n_chunks * layout.slots)
    values = by_hand(outputs, columns, layout)
    for node, value in zip(outputs, values, strict=True):
        assert bounds[node].low <= value <= bounds[node].high
        assert abs(value) <= bounds[node].largest


@settings(max_examples=examples(100), deadline=None)
@given(pool=row_pools(max_depth=3, resample=False, steps=7))
def test_rows_keep_their_bounds_for_every_possible_row(pool):
    """All rows there can be: every choice of bins (or none), the ends and the middle of weights and
    numbers.
    """
    rows = [
        {
            **{f"a{k}": int(a == k) for k in range(3)},
            **{f"b{k}": int(b == k) for k in range(2)},
            **{f"y{k}": int(y == k) for k in range(2)},
            "w": w,
            "n": n,
        }
        for a, b, y, w, n in product(range(4), range(3), range(3), (0, 1, 4), (-3, 0, 5))
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in RANGES}
    bounds = read_bounds(pool, RANGES, len(rows))
    for node, values in zip(pool, by_hand(pool, columns, Layout(len(rows), 1024)), strict=True):
        assert bounds[node].low <= min(values) <= max(values) <= bounds[node].high


def test_moved_rows_and_padding():
    """Regression: a constant beside a resampled column is not counted in padding, so the bound must
    not count it either.
    """
    rows, ranges = column("x").resample(1) + 3, {"x": ColumnRange(0, 1)}
    assert by_hand([rows.total()], {"x": np.zeros(10, dtype=int)}, Layout(10, 1024)) == [30]
    assert bound(rows.total(), 10, 1024, ranges) == (30, 30 + 1024)
    assert bound((-rows).total(), 10, 1024, ranges) == (-30 - 1024, -30)


def test_only_slots_that_can_count_are_counted():
    x, y, total = column("a0"), column("b0"), column("a1").total()
    assert bound(x.total(), 10, 1024) == (0, 10)
    assert bound(x.resample(1).total(), 10, 1024) == (0, 1024)
    assert bound((x.resample(1) * y).total(), 10, 1024) == (0, 10)  # y is 0 in padding
    assert bound((x.resample(1) * y.resample(1)).total(), 10, 1024) == (0, 1024)
    assert bound((x.resample(1) * (y + 1)).total(), 10, 1024) == (0, 2048)
    assert bound((total.replicate() * y).total(), 10, 1024) == (0, 100)
    assert bound((total.replicate() * y.resample(2)).total(), 10, 1024) == (0, 10_240)


# ----------------------------------------------------------------------------------------------
# intervals


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (A0, (0, 1)),
        (N, (-3, 5)),
        (W, (0, 4)),
        (-N, (-5, 3)),
        (2 * N - 1, (-7, 9)),
        (N + W, (-3, 9)),
        (N - W, (-7, 5)),
        (N * W, (-12, 20)),
        (N * N, (0, 25)),  # a square is never negative
        (N**3, (-75, 125)),
        (N.total(), (-30, 50)),
        ((N + 1).total(), (-20, 60)),
        (N.total() * N.total(), (0, 2500)),
        (N.total() * W.total(), (-1200, 2000)),
        (N.total() - 7, (-37, 43)),
        (N.total().replicate(), (-30, 50)),
        (N.resample(3), (-3, 5)),
    ],
)
def test_plain_intervals(node, expected):
    assert bound(node) == expected


def test_columns_can_always_be_padding():
    """A number that is known to be at least 2 is 0 in a padding slot, and resampling can bring that
    into the rows.
    """
    ranges = {"x": ColumnRange(2, 5), "z": ColumnRange(-5, -2)}
    assert bound(column("x").resample(1), ranges=ranges) == (0, 5)
    assert bound(column("z").resample(1), ranges=ranges) == (-5, 0)


def test_intervals():
    assert Interval(-2, 3) + Interval(1, 1) == Interval(-1, 4)
    assert Interval(-2, 3) * Interval(-5, 4) == Interval(-15, 12)
    assert Interval(-2, 3).times(-2) == Interval(-6, 4)
    assert Interval(-7, 3).largest == 7
    assert Interval.of(4) == Interval(4, 4)


# ----------------------------------------------------------------------------------------------
# bins only one is 1


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (sum_of([A0, A1, A2]), (0, 1)),
        (A0 + A1 + A2, (0, 1)),  # sums of sums: prefix sums are such
        ((A0 + A1) + (A1 + A2), (0, 2)),
        ((A0 + A1 + A2) - (A0 + A1), (0, 1)),
        (1 - (A0 + A2), (0, 1)),
        (1 - (1 - (A0 + A1)), (0, 1)),
        (linear([(1, A0), (2, A1), (3, A2)]), (0, 3)),
        (linear([(-2, A0), (2, A2)]), (-2, 2)),
        (linear([(-2, A0), (-1, A2)], 5), (3, 5)),
        (3 * (A0 + A1) - 2 * A2, (-2, 3)),
        (2 * A0, (0, 2)),
        ((A0 + A1) + (B0 + B1), (0, 2)),  # one of each variable
        (sum_of([A0, A1, B0, B1]), (0, 2)),
        (sum_of([A0, A1, N]), (-3, 6)),
        ((A0 + A1 + A2) * (B0 + B1) * Y, (0, 1)),
    ],
)
def test_exclusive_bins(node, expected):
    assert bound(node) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (A0 + B0, (0, 2)),  # of different variables: both can be 1
        (sum_of([W, N]), (-3, 9)),
        (A0 + A1.resample(1), (0, 2)),  # of different rows
        (A0.resample(1) + A1.resample(2), (0, 2)),
        (A0 * Y + A1 * Y, (0, 2)),  # true is (0, 1), but these are no bins: careful, not wrong
        (A0.total() + A1.total(), (0, 20)),
        (A0 * A0 + A1, (0, 2)),
        (A0 + A1 * 2 + column("a0") * 3, (0, 4)),
    ],
)
def test_near_misses_of_exclusive_bins(node, expected):
    assert bound(node) == expected


def test_a_group_is_trusted_for_indicators_only():
    """Columns with weights, or of wider range, are not exclusive indicators whatever group they
    claim.
    """
    heavy = {"p": ColumnRange(0, 4, "g"), "q": ColumnRange(0, 4, "g"), "r": ColumnRange(-1, 1, "g")}
    p, q, r = map(column, "pqr")
    assert bound(p + q, ranges=heavy) == (0, 8)
    assert bound(p + r, ranges=heavy) == (-1, 5)
    assert bound(r + r, ranges=heavy) == (-2, 2)


def test_ranges_of_tables():
    """What a table tells the reader: bins and classes exclude each other; weighted classes, folds,
    codes and numbers do not.
    """
    schema = PublicSchema(
        (PublicVariable("v0", "ordinal", 3), PublicVariable("v1", "number", 0, low=-7, high=9)),
        n_classes=2,
    )
    keys = [
        "v0.bin0",
        "v0.bin1",
        "v0.bin2",
        "v0.code",
        "v0.centred",
        "v1.number",
        "class0",
        "class1",
        "class0.fold1",
    ]
    columns = [Column.parse(key) for key in keys]
    plain, weighted = column_ranges(schema, columns), column_ranges(schema, columns, weight_bound=8)
    assert plain["v0.bin1"] == weighted["v0.bin1"] == ColumnRange(0, 1, "v0", (1,))
    assert column_ranges(schema, [Column.parse("v0.upto1")])["v0.upto1"] == ColumnRange(
        0, 1, "v0", (0, 1)
    )
    assert plain["class0"] == ColumnRange(0, 1, "class")
    assert weighted["class0"] == ColumnRange(0, 8)
    assert plain["class0.fold1"].group is None
    assert plain["v0.code"] == ColumnRange(0, 3)
    assert plain["v0.centred"] == ColumnRange(-1, 1)
    assert plain["v1.number"] == ColumnRange(-7, 9)
    both, fold = column("class0") + column("class1"), column("class0") + column("class0.fold1")
    assert bound(both, ranges=plain) == (0, 1)
    assert bound(both, ranges=weighted) == (0, 16)
    assert bound(fold, ranges=plain) == (0, 2)  # the rows of a fold are rows of the class


# ----------------------------------------------------------------------------------------------
# x - x*s


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (Y - Y * A0, (0, 1)),
        (Y - A0 * Y, (0, 1)),
        (Y * A0 - Y, (-1, 0)),
        (3 * Y - 3 * (Y * A0), (0, 3)),
        (Y - Y * (A0 + A1), (0, 1)),
        (
            W - W * A0,
            (0, 4),
        ),  # weights are no indicators, but what is left of them is never negative
        (N - N * A0, (-3, 5)),
        (Y - Y * A0 + 5, (5, 6)),
        (linear([(1, Y), (-1, Y * A0), (1, column("y1"))]), (0, 2)),
        (Y - Y * Y, (0, 1)),
    ],
)
def test_complements(node, expected):
    assert bound(node) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (2 * Y - Y * A0, (-1, 2)),  # coefficients differ
        (Y - 2 * (Y * A0), (-2, 1)),
        (Y + Y * A0, (0, 2)),  # the sign differs
        (Y - column("y1") * A0, (-1, 1)),  # another x
        (Y - Y.resample(1) * A0, (-1, 1)),  # the x of another row
        (Y - Y * W, (-3, 1)),  # a share beyond 1
        (Y - Y * N, (-4, 4)),
        (W - W * W, (-12, 4)),
        (Y - Y * (A0 + B0), (-1, 1)),  # no indicator: both can be 1
        (Y.total() - (Y * A0).total(), (-10, 10)),  # totals: careful, not wrong
        (
            linear([(1, Y), (-1, Y * A0), (-1, Y * A1)]),
            (-1, 1),
        ),  # x is there for one of the two only
        (linear([(1, Y), (1, A0), (-1, Y * A0)]), (0, 2)),
    ],
)
def test_near_misses_of_complements(node, expected):
    assert bound(node) == expected


# ----------------------------------------------------------------------------------------------
# trees


def tree_leaves(inside, splits, rng):
    """Leaf indicators of a random tree, as a forest writes them: left = inside * s, right = inside
    - left.
    """
    if not splits:
        return [inside]
    name, size = (("a", 3), ("b", 2))[int(rng.integers(2))]
    chosen = rng.choice(size, int(rng.integers(1, size)), replace=False)
    left = inside * sum_of([column(f"{name}{k}") for k in chosen])
    right = inside - left
    return tree_leaves(left, splits - 1, rng) + tree_leaves(right, splits - 1, rng)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_leaves_of_trees_are_indicators_and_counts_are_counts(depth, seed):
    leaves = tree_leaves(Y, depth, np.random.default_rng(seed))
    assert len(leaves) == 2**depth
    totals = [leaf.total() for leaf in leaves]
    bounds = read_bounds([*leaves, *totals], RANGES, 547, 8192)
    assert {bounds[leaf] for leaf in leaves} == {Interval(0, 1)}
    assert {bounds[total] for total in totals} == {Interval(0, 547)}
    assert max(interval.largest for interval in bounds.values()) == 547
    columns = random_columns(100, seed)
    values = by_hand(totals, columns, Layout(100, 128))
    assert sum(values) == columns["y0"].sum()


def test_weighted_trees_are_bounded_by_the_weights():
    leaves = tree_leaves(W, 3, np.random.default_rng(1))
    bounds = read_bounds([leaf.total() for leaf in leaves], RANGES, 100)
    assert max(interval.largest for interval in bounds.values()) == 400


def test_deep_and_wide_circuits_are_read_in_no_time():
    node = A0
    for i in range(5000):
        node = node + column(f"a{i % 3}")
    assert bound(node, 10) == (0, 1668)
    wide = {f"x{i}": ColumnRange(0, 1, "x") for i in range(3000)}
    columns = [column(name) for name in wide]
    assert bound(sum_of(columns), ranges=wide) == (0, 1)


def test_given_totals_and_numbers_that_are_encrypted_here():
    """What is known of a given total is known by its packs and number; a number is what it is, or 0
    in padding.
    """
    seven, nine, less = (
        pack_total("model", 2),
        encrypted_constant(9, "answer"),
        encrypted_constant(-4, "other"),
    )
    ranges = {("model", 2): ColumnRange(3, 7), "n": ColumnRange(-3, 5)}
    found = read_bounds(
        [seven, nine, less, seven * nine - column("n"), (nine + less).total()], ranges, 10
    )
    assert [(b.low, b.high) for b in map(found.get, (seven, nine, less))] == [
        (0, 7),
        (0, 9),
        (-4, 0),
    ]
    assert found[seven * nine - column("n")] == Interval(-5, 66)
    assert found[(nine + less).total()] == Interval(-40, 90)
    with pytest.raises(KeyError):
        read_bounds([pack_total("model", 3)], ranges, 10)
