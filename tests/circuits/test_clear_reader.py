"""The clear reader: plain NumPy says the same; padding never counts; resampling is a permutation that a seed fixes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from circuit_samples import NAMES, RANGES, random_columns, row_pools
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.circuits import Expression, Layout, column, linear
from encryptedstats.circuits.bounds import ColumnRange, largest_value, read_bounds
from encryptedstats.circuits.clear import drawn_shift, from_slots, permute_slots, read_clear, to_slots
from encryptedstats.circuits.expressions import COLUMN, LINEAR, PRODUCT, padding_value

X, Y = column("x"), column("y")
layouts = st.lists(st.integers(1, 8), min_size=1, max_size=4).map(lambda counts: Layout(sum(counts), 8, tuple(counts)))


def by_rows(node: Expression, columns: dict[str, np.ndarray]) -> np.ndarray:
    """What an expression over rows is, row by row, in Python's integers. No slots, no padding, no sharing."""
    if node.op == COLUMN:
        return columns[node.data].astype(object)
    args = [by_rows(arg, columns) for arg in node.args]
    if node.op == PRODUCT:
        return args[0] * args[1]
    assert node.op == LINEAR
    coefficients, constant = node.data
    return sum(c * arg for c, arg in zip(coefficients, args, strict=True)) + constant


def read(outputs, columns, layout, ranges=RANGES):
    bounds = read_bounds(outputs, ranges, layout.n_rows, layout.n_chunks * layout.slots)
    return read_clear(outputs, columns, layout, largest=largest_value(bounds))


# ---------------------------------------------------------------------------------------------------- plain NumPy


@settings(max_examples=150, deadline=None)
@given(pool=row_pools(max_depth=6, resample=False, steps=9), layout=layouts, seed=st.integers(0, 99))
def test_random_circuits_equal_plain_numpy(pool, layout, seed):
    columns = random_columns(layout.n_rows, seed)
    expected = [by_rows(node, columns) for node in pool]
    for rows, found in zip(expected, read(pool, columns, layout), strict=True):
        np.testing.assert_array_equal(found, rows)
    totals = [node.total() for node in pool]
    assert read(totals, columns, layout) == [rows.sum() for rows in expected]
    assert read_clear(totals, columns, layout) == [rows.sum() for rows in expected]  # no bound: Python's integers


def test_totals_of_totals_and_back_in_the_rows():
    layout = Layout(5, 4)
    columns = {"x": np.array([1, 2, 3, 4, 5]), "y": np.array([1, 0, 1, 0, 1])}
    total = X.total()
    outputs = [total, total * Y.total() - 7, total.replicate() * Y + 1, (total.replicate() * Y).total()]
    s, p, rows, back = read_clear(outputs, columns, layout)
    assert (s, p, back) == (15, 38, 45)
    assert type(s) is type(p) is type(back) is int
    np.testing.assert_array_equal(rows, [16, 1, 16, 1, 16])


def test_repeated_and_no_outputs():
    layout, columns = Layout(3, 8), {"x": np.arange(3)}
    assert read_clear([X.total(), X.total()], columns, layout) == [3, 3]
    assert read_clear([], columns, layout) == []


def test_a_column_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a column of 4 rows in a table of 3"):
        read_clear([X], {"x": np.arange(4)}, Layout(3, 8))


# -------------------------------------------------------------------------------------------------------- padding


@pytest.mark.parametrize("layout", [Layout(5, 8), Layout(8, 8), Layout(9, 8), Layout(7, 8, (1, 4, 2))])
def test_constants_in_totals_count_real_rows_only(layout):
    n = layout.n_rows
    columns = {"x": np.arange(n), "y": np.ones(n, dtype=int)}
    s = sum(range(n))
    outputs = [(X * 3 + 1).total(), ((X + 2) * (Y - 5)).total(), (1 - X).total(), (X.total() * 2 - 4)]
    assert read_clear(outputs, columns, layout) == [3 * s + n, -4 * (s + 2 * n), n - s, 2 * s - 4]


@pytest.mark.parametrize(
    "rows",
    [X.total().replicate(), X.total().replicate() + Y, (X + 1).resample(3), (X + 1) * Y.total().replicate()],
)
def test_totals_that_would_count_encrypted_padding_are_refused(rows):
    columns = {"x": np.arange(3), "y": np.arange(3)}
    with pytest.raises(
        ValueError, match=r"would count padding slots, whose content is encrypted: multiply by a column"
    ):
        read_clear([rows.total()], columns, Layout(3, 4))
    assert len(read_clear([rows], columns, Layout(3, 4))[0]) == 3
    assert isinstance(read_clear([(rows * X).total()], columns, Layout(3, 4))[0], int)


def test_slots_and_back():
    layout = Layout(7, 4, (1, 4, 2))
    rows = np.arange(1, 8)
    slots = to_slots(rows, layout)
    np.testing.assert_array_equal(slots, [[1, 0, 0, 0], [2, 3, 4, 5], [6, 7, 0, 0]])
    np.testing.assert_array_equal(from_slots(slots, layout), rows)


def test_a_table_without_rows():
    layout = Layout(0, 8)
    columns = {"x": np.array([], dtype=int)}
    rows, moved, total = read_clear([X + 1, X.resample(1), (X + 1).total()], columns, layout)
    assert (len(rows), len(moved), total) == (0, 0, 0)


# ----------------------------------------------------------------------------------------------- beyond 64 bits


def test_values_beyond_64_bits():
    layout = Layout(3, 8)
    columns = {"x": np.array([1, -1, 2])}
    ranges = {"x": ColumnRange(-1, 2)}
    power = (X * 1000) ** 16
    rows, total, square = read([power, power.total(), power.total() ** 2], columns, layout, ranges)
    assert rows.tolist() == [10**48, 10**48, 2**16 * 10**48]
    assert total == (2 + 2**16) * 10**48
    assert square == total**2


@pytest.mark.parametrize("constant", [1 << 50, 1 << 55, 1 << 61, 1 << 70, -(1 << 55)])
def test_padding_that_would_overflow_64_bits(constant):
    """One row among 8192 slots: the sum over all slots would pass 64 bits though the total fits."""
    layout, ranges = Layout(1, 8192), {"x": ColumnRange(0, 1)}
    assert read([(X + constant).total()], {"x": np.array([1])}, layout, ranges) == [constant + 1]


def test_factors_beyond_64_bits_of_columns_that_are_zero():
    ranges = {"x": ColumnRange(0, 0)}
    assert read([linear([(1 << 80, X)]).total()], {"x": np.zeros(2, dtype=int)}, Layout(2, 4), ranges) == [0]


# -------------------------------------------------------------------------------------------------------- resample


def test_a_seed_means_the_same_for_ever():
    """Part of the format: clear and encrypted tables, and every version of this library, must agree."""
    assert [drawn_shift(seed, Layout(20_000, 8192)) for seed in (0, 1, -1, 10**30)] == [
        (1, 38, True),
        (2, 643, True),
        (2, 783, True),
        (0, 1821, True),
    ]


@settings(max_examples=60, deadline=None)
@given(layout=layouts, seed=st.integers())
def test_resampling_permutes_the_slots(layout, seed):
    slots = np.arange(layout.n_chunks * layout.slots).reshape(layout.n_chunks, layout.slots)
    moved = permute_slots(slots, drawn_shift(seed, layout))
    assert moved.shape == slots.shape
    assert sorted(moved.ravel()) == sorted(slots.ravel())
    chunks, rotation, swap = drawn_shift(seed, layout)
    for c in range(layout.n_chunks):
        left, right = np.split(slots[(c + chunks) % layout.n_chunks], 2)
        left, right = np.roll(left, -rotation), np.roll(right, -rotation)
        np.testing.assert_array_equal(moved[c], np.concatenate([right, left] if swap else [left, right]))


@settings(max_examples=60, deadline=None)
@given(layout=layouts, seed=st.integers(0, 50), names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=2))
def test_one_seed_moves_every_expression_alike(layout, seed, names):
    columns = random_columns(layout.n_rows, seed)
    x, y = map(column, names)
    together, apart = (x * y + 3 * x).resample(seed), x.resample(seed) * y.resample(seed) + 3 * x.resample(seed)
    a, b = read([together, apart], columns, layout)
    np.testing.assert_array_equal(a, b)
    moved, still = read([x.resample(seed).total(), x.total()], columns, layout)
    assert moved == still  # a permutation keeps the sum: rows that went into padding slots still count


def test_draws_look_uniform_over_seeds():
    """Every row is drawn into the first slot about equally often: 4800 seeds, 48 slots, chi-square with 47 degrees."""
    layout = Layout(48, 16)
    slots = np.arange(48).reshape(3, 16)
    first = [int(permute_slots(slots, drawn_shift(seed, layout))[0, 0]) for seed in range(4800)]
    counts = np.bincount(first, minlength=48)
    assert ((counts - 100) ** 2 / 100).sum() < 90  # the 0.9998 quantile
    parts = dict.fromkeys(product(range(3), (False, True)), 0)
    for seed in range(4800):
        chunk, _, swap = drawn_shift(seed, layout)
        parts[chunk, swap] += 1
    assert all(700 < count < 900 for count in parts.values())


def test_one_chunk_and_the_smallest_ring_of_slots():
    assert all(drawn_shift(seed, Layout(3, 8))[0] == 0 for seed in range(50))
    assert {drawn_shift(seed, Layout(2, 2)) for seed in range(50)} == {(0, 0, False), (0, 0, True)}
    found = {tuple(read_clear([X.resample(seed)], {"x": np.array([1, 2])}, Layout(2, 2))[0]) for seed in range(50)}
    assert found == {(1, 2), (2, 1)}


def test_resampling_twice_and_other_chunks():
    layout = Layout(24, 8)
    columns = {"x": np.arange(24)}
    twice, slots = X.resample(1).resample(2), to_slots(columns["x"], layout)
    expected = permute_slots(permute_slots(slots, drawn_shift(1, layout)), drawn_shift(2, layout))
    np.testing.assert_array_equal(read_clear([twice], columns, layout)[0], from_slots(expected, layout))


def test_partial_chunks_draw_what_the_layout_says():
    """Rows lie elsewhere in an appended table, so other rows are drawn: the layout is part of the meaning."""
    rows = np.arange(1, 13)
    full, parts = Layout(12, 8), Layout(12, 8, (5, 7))
    for seed in range(5):
        for layout in (full, parts):
            expected = from_slots(permute_slots(to_slots(rows, layout), drawn_shift(seed, layout)), layout)
            np.testing.assert_array_equal(read_clear([X.resample(seed)], {"x": rows}, layout)[0], expected)


# ---------------------------------------------------------------------------------------------------------- tables


def test_tables_evaluate_circuits_and_agree_with_pandas():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.integers(0, 3, 50), "c": rng.choice(["no", "yes"], 50)})
    table = es.Schema.infer(frame, target="c", kinds={"x": "ordinal"}).table(frame)
    outputs = [(column(f"v0.bin{k}") * column("class1")).total() for k in range(3)]
    expected = [int(((frame["x"] == k) & (frame["c"] == "yes")).sum()) for k in range(3)]
    assert table.evaluate(outputs) == expected
    assert table.with_layout(Layout(50, 64, (20, 30))).evaluate(outputs) == expected
    np.testing.assert_array_equal(table.evaluate([1 - column("class1")])[0], frame["c"] == "no")
    with pytest.raises(es.EncryptedStatsError, match="'nonsense' is not the key of a column"):
        table.evaluate([column("nonsense").total()])


def test_padding_is_known_wherever_a_total_is_taken():
    pool = [X * Y, X + 1, X.resample(2) * Y]
    assert all(padding_value(pool)[node] is not None for node in pool)
