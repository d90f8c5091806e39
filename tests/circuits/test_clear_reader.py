"""The clear reader: by hand it is the same; padding never counts; resampling is a permutation that
a seed fixes; little memory.
"""

from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pandas as pd
import pytest
from circuit_samples import NAMES, RANGES, by_hand, circuits, random_columns, row_pools
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits import Layout, clear, column, linear
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.clear import (
    draw_shift,
    from_slots,
    permute_slots,
    read_clear,
    to_slots,
)
from encryptedstats.circuits.expressions import (
    Marks,
    column_names,
    encrypted_constant,
    pack_total,
    padding_value,
)
from encryptedstats.circuits.passes.padding import clear_padding
from encryptedstats.tables.encodings import Column
from error_codes import error

X, Y = column("x"), column("y")
layouts = st.lists(st.integers(1, 8), min_size=1, max_size=4).map(
    lambda counts: Layout(sum(counts), 8, tuple(counts))
)


def read(outputs, columns, layout, ranges=RANGES):
    return read_clear(outputs, columns, layout, ranges=ranges)


# -------------------------------------------------------------------------------------------- b
# hand, in any blocks


def same(outputs, columns, layout, ranges=RANGES):
    """Whether the reader gives what is found by hand, with and without knowing more of the columns
    than they hold.
    """
    expected = by_hand(outputs, columns, layout)
    for found in (read(outputs, columns, layout, ranges), read_clear(outputs, columns, layout)):
        assert [
            value if output.is_total else value.tolist()
            for output, value in zip(outputs, found, strict=True)
        ] == expected
        assert all(
            type(value) is int
            for output, value in zip(outputs, found, strict=True)
            if output.is_total
        )


@pytest.fixture(params=[False, True], ids=["one block", "blocks of a word"])
def small_blocks(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(clear, "_LEAST_ROWS", 64)
        monkeypatch.setattr(clear, "_BLOCK_BYTES", 0)


@settings(max_examples=examples(75), deadline=None)
@given(pool=row_pools(max_depth=6, steps=9), layout=layouts, seed=st.integers(0, 99))
def test_random_rows_are_what_they_are_by_hand(pool, layout, seed):
    same(
        [*pool, *(node.total() for node in pool if padding_value(pool)[node] is not None)],
        random_columns(layout.n_rows, seed),
        layout,
    )


@settings(max_examples=examples(75), deadline=None)
@given(outputs=circuits(max_depth=4, outputs=6), layout=layouts, seed=st.integers(0, 99))
def test_random_totals_are_what_they_are_by_hand(outputs, layout, seed):
    same(outputs, random_columns(layout.n_rows, seed), layout)


long_layouts = st.sampled_from(
    [Layout(n, 128) for n in (63, 64, 65, 127, 128, 129, 200)] + [Layout(150, 128, (30, 100, 20))]
)
in_blocks = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@in_blocks
@given(
    outputs=circuits(max_depth=4, resample=False),
    layout=long_layouts,
    seed=st.integers(0, 99),
    marked=st.sets(st.integers(0, 19), min_size=1),
)
def test_blocks_change_nothing(small_blocks, outputs, layout, seed, marked):
    """Totals add up over blocks, those that come back in the rows are known first, marks lie in the
    right block.
    """
    marks = Marks(layout.n_chunks - 1, [slot for slot in marked if slot < layout.counts[-1]] or [0])
    back = (outputs[0].replicate() if outputs else column("n").total().replicate()) * column(
        "w"
    ) + 1
    rows = [
        column("a0"),
        1 - column("b1"),
        column("n").mask(marks),
        (1 - column("a1")).mask(marks),
        back,
    ]
    totals = [rows[2].total(), rows[3].total(), (back * column("y1")).total()]
    same([*outputs, *rows, *totals], random_columns(layout.n_rows, seed), layout)


FACTORS = [
    1,
    -1,
    2,
    127,
    128,
    -129,
    255,
    256,
    1 << 15,
    -(1 << 31),
    (1 << 63) - 1,
    -(1 << 63),
    (1 << 64) + 1,
    1 << 90,
]


@settings(max_examples=examples(75), deadline=None)
@given(
    factors=st.lists(st.sampled_from(FACTORS), min_size=4, max_size=4),
    names=st.lists(st.sampled_from(NAMES), min_size=4, max_size=4, unique=True),
    constant=st.sampled_from([0, 1, -1, 255, *FACTORS]),
)
def test_every_width_of_integers(factors, names, constant):
    """Bits, bytes and all that is wider, and numbers that are wide on the way only: what cancels in
    a narrow node.
    """
    wide = linear(zip(factors, map(column, names), strict=True), constant)
    x, y = column(names[0]), column(names[1])
    share = column("a0") + column("a1")
    nodes = [
        wide,
        wide * x,
        wide * share,
        wide * y - wide * y * share,
        (wide * x).mask(Marks(0, [1])),
        (wide * x).resample(1),
    ]
    layout = Layout(9, 8, (4, 5))
    same([*nodes, *(node.total() for node in nodes)], random_columns(9, 3), layout)
    zero = {name: np.zeros(9, dtype=int) for name in NAMES}
    same(
        [*nodes, *(node.total() for node in nodes)],
        zero,
        layout,
        {name: ColumnRange(0, 0) for name in NAMES},
    )


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_ones_are_counted_without_numpy_2(count, monkeypatch):
    rows = np.random.default_rng(count).integers(0, 2, count).astype(bool)
    monkeypatch.setattr(clear, "_ones", clear._ones_by_table)
    assert read_clear([X.total(), (1 - X).total()], {"x": rows}, Layout(count, 1024)) == [
        rows.sum(),
        count - rows.sum(),
    ]


def test_columns_of_any_type():
    """Python's integers, as totals of another table come in, and truth values: small ones are bits
    whatever they came as.
    """
    rows = [1, 0, 1]
    for dtype in (object, bool, np.uint8, np.int64):
        columns = {"x": np.array(rows, dtype=dtype), "y": np.array([10**30, 0, -1], dtype=object)}
        assert read_clear(
            [(X * Y).total(), (X - X * X).total(), X.total()], columns, Layout(3, 4)
        ) == [
            10**30 - 1,
            0,
            2,
        ]


def test_columns_beyond_what_is_known_of_them_are_refused():
    with pytest.raises(ValueError, check=error("values-outside-bounds", "0", "3", "1")):
        read([X.total()], {"x": np.arange(4)}, Layout(4, 8), {"x": ColumnRange(0, 1)})


def test_totals_of_totals_and_back_in_the_rows():
    layout = Layout(5, 4)
    columns = {"x": np.array([1, 2, 3, 4, 5]), "y": np.array([1, 0, 1, 0, 1])}
    total = X.total()
    outputs = [
        total,
        total * Y.total() - 7,
        total.replicate() * Y + 1,
        (total.replicate() * Y).total(),
    ]
    s, p, rows, back = read_clear(outputs, columns, layout)
    assert (s, p, back) == (15, 38, 45)
    assert type(s) is type(p) is type(back) is int
    np.testing.assert_array_equal(rows, [16, 1, 16, 1, 16])


def test_repeated_and_no_outputs():
    layout, columns = Layout(3, 8), {"x": np.arange(3)}
    assert read_clear([X.total(), X.total()], columns, layout) == [3, 3]
    assert read_clear([], columns, layout) == []


def test_a_column_of_another_length_is_refused():
    with pytest.raises(ValueError, check=error("wrong-number-of-rows", "4", "3")):
        read_clear([X], {"x": np.arange(4)}, Layout(3, 8))


# ----------------------------------------------------------------------------------------------
# padding


@pytest.mark.parametrize(
    "layout", [Layout(5, 8), Layout(8, 8), Layout(9, 8), Layout(7, 8, (1, 4, 2))]
)
def test_constants_in_totals_count_real_rows_only(layout):
    n = layout.n_rows
    columns = {"x": np.arange(n), "y": np.ones(n, dtype=int)}
    s = sum(range(n))
    outputs = [
        (X * 3 + 1).total(),
        ((X + 2) * (Y - 5)).total(),
        (1 - X).total(),
        (X.total() * 2 - 4),
    ]
    assert read_clear(outputs, columns, layout) == [3 * s + n, -4 * (s + 2 * n), n - s, 2 * s - 4]


@pytest.mark.parametrize(
    "rows",
    [
        X.total().replicate(),
        X.total().replicate() + Y,
        (X + 1).resample(3),
        (X + 1) * Y.total().replicate(),
    ],
)
def test_totals_that_would_count_encrypted_padding_are_refused(rows):
    columns = {"x": np.arange(3), "y": np.arange(3)}
    with pytest.raises(ValueError, check=error("padding-counted")):
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


# ----------------------------------------------------------------------------------------------
# beyond 64 bits


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
    assert read(
        [linear([(1 << 80, X)]).total()], {"x": np.zeros(2, dtype=int)}, Layout(2, 4), ranges
    ) == [0]


# ----------------------------------------------------------------------------------------------
# resample


def test_a_seed_means_the_same_for_ever():
    """Part of the format: clear and encrypted tables, and every version of this library, must
    agree.
    """
    assert [draw_shift(seed, Layout(20_000, 8192)) for seed in (0, 1, -1, 10**30)] == [
        (1, 38, True),
        (2, 643, True),
        (2, 783, True),
        (0, 1821, True),
    ]


@settings(max_examples=60, deadline=None)
@given(layout=layouts, seed=st.integers())
def test_resampling_permutes_the_slots(layout, seed):
    slots = np.arange(layout.n_chunks * layout.slots).reshape(layout.n_chunks, layout.slots)
    moved = permute_slots(slots, draw_shift(seed, layout))
    assert moved.shape == slots.shape
    assert sorted(moved.ravel()) == sorted(slots.ravel())
    chunks, rotation, swap = draw_shift(seed, layout)
    for c in range(layout.n_chunks):
        left, right = np.split(slots[(c + chunks) % layout.n_chunks], 2)
        left, right = np.roll(left, -rotation), np.roll(right, -rotation)
        np.testing.assert_array_equal(
            moved[c], np.concatenate([right, left] if swap else [left, right])
        )


@settings(max_examples=60, deadline=None)
@given(
    layout=layouts,
    seed=st.integers(0, 50),
    names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=2),
)
def test_one_seed_moves_every_expression_alike(layout, seed, names):
    columns = random_columns(layout.n_rows, seed)
    x, y = map(column, names)
    together, apart = (
        (x * y + 3 * x).resample(seed),
        x.resample(seed) * y.resample(seed) + 3 * x.resample(seed),
    )
    a, b = read([together, apart], columns, layout)
    np.testing.assert_array_equal(a, b)
    moved, still = read([x.resample(seed).total(), x.total()], columns, layout)
    assert (
        moved == still
    )  # a permutation keeps the sum: rows that went into padding slots still count


def test_draws_look_uniform_over_seeds():
    """Every row is drawn into the first slot about equally often: 4800 seeds, 48 slots, chi-square
    with 47 degrees.
    """
    layout = Layout(48, 16)
    slots = np.arange(48).reshape(3, 16)
    first = [int(permute_slots(slots, draw_shift(seed, layout))[0, 0]) for seed in range(4800)]
    counts = np.bincount(first, minlength=48)
    assert ((counts - 100) ** 2 / 100).sum() < 90  # the 0.9998 quantile
    parts = dict.fromkeys(product(range(3), (False, True)), 0)
    for seed in range(4800):
        chunk, _, swap = draw_shift(seed, layout)
        parts[chunk, swap] += 1
    assert all(700 < count < 900 for count in parts.values())


def test_one_chunk_and_the_smallest_ring_of_slots():
    assert all(draw_shift(seed, Layout(3, 8))[0] == 0 for seed in range(50))
    assert {draw_shift(seed, Layout(2, 2)) for seed in range(50)} == {(0, 0, False), (0, 0, True)}
    found = {
        tuple(read_clear([X.resample(seed)], {"x": np.array([1, 2])}, Layout(2, 2))[0])
        for seed in range(50)
    }
    assert found == {(1, 2), (2, 1)}


def test_resampling_twice_and_other_chunks():
    layout = Layout(24, 8)
    columns = {"x": np.arange(24)}
    twice, slots = X.resample(1).resample(2), to_slots(columns["x"], layout)
    expected = permute_slots(permute_slots(slots, draw_shift(1, layout)), draw_shift(2, layout))
    np.testing.assert_array_equal(
        read_clear([twice], columns, layout)[0], from_slots(expected, layout)
    )


def test_partial_chunks_draw_what_the_layout_says():
    """Rows lie elsewhere in an appended table, so other rows are drawn: the layout is part of the
    meaning.
    """
    rows = np.arange(1, 13)
    full, parts = Layout(12, 8), Layout(12, 8, (5, 7))
    for seed in range(5):
        for layout in (full, parts):
            expected = from_slots(
                permute_slots(to_slots(rows, layout), draw_shift(seed, layout)), layout
            )
            np.testing.assert_array_equal(
                read_clear([X.resample(seed)], {"x": rows}, layout)[0], expected
            )


# ----------------------------------------------------------------------------------------------
# tables


def test_tables_evaluate_circuits_and_agree_with_pandas():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.integers(0, 3, 50), "c": rng.choice(["no", "yes"], 50)})
    table = es.Schema.infer(frame, target="c", kinds={"x": "ordinal"}).table(frame)
    outputs = [(column(f"v0.bin{k}") * column("class1")).total() for k in range(3)]
    expected = [int(((frame["x"] == k) & (frame["c"] == "yes")).sum()) for k in range(3)]
    assert table.evaluate(outputs) == expected
    assert table.with_layout(Layout(50, 64, (20, 30))).evaluate(outputs) == expected
    np.testing.assert_array_equal(table.evaluate([1 - column("class1")])[0], frame["c"] == "no")
    with pytest.raises(es.EncryptedStatsError, check=error("malformed-column-key", "'nonsense'")):
        table.evaluate([column("nonsense").total()])


@pytest.mark.parametrize("weighted", [False, True])
def test_forests_on_tables_are_what_they_are_by_hand(weighted):
    table = made_up(150, weighted).with_layout(256)
    forest = es.CompletelyRandomForest(n_trees=3, depth=3, random_state=1)
    uneven = table.with_layout(Layout(150, 128, (30, 120)))
    for fold in (None, 1):
        outputs = forest.circuit(table.public_schema, fold=fold)
        columns = {name: table.values(Column.parse(name)) for name in column_names(outputs)}
        assert (
            table.evaluate(outputs)
            == uneven.evaluate(outputs)
            == by_hand(outputs, columns, table.layout)
        )


def made_up(n_rows, weighted=False):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {f"x{j}": rng.integers(0, 5, n_rows) for j in range(4)} | {"y": rng.integers(0, 2, n_rows)}
    )
    schema = es.Schema.infer(frame, target="y", kinds={f"x{j}": "ordinal" for j in range(4)})
    return schema.table(frame, weights=rng.integers(1, 9, n_rows) if weighted else None, folds=2)


def test_memory_does_not_grow_with_rows_times_nodes():
    """100,000 rows and 400 nodes: 64 bits for each would be 320 MB, one bit each 5 MB."""
    table = made_up(100_000)
    outputs = es.CompletelyRandomForest(n_trees=20, depth=3, random_state=1).circuit(
        table.public_schema
    )
    tracemalloc.start()
    try:
        table.evaluate(outputs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10e6


def test_padding_is_known_wherever_a_total_is_taken():
    pool = [X * Y, X + 1, X.resample(2) * Y]
    assert all(padding_value(pool)[node] is not None for node in pool)


@pytest.mark.parametrize("layout", [Layout(5, 8), Layout(9, 4, (4, 2, 3))], ids=repr)
def test_given_totals_and_numbers_that_are_encrypted_here(layout):
    """Both are in every row; in padding there is nothing, as far as this reader goes."""
    columns = {"n": np.arange(layout.n_rows) - 3, ("model", 2): np.full(layout.n_rows, 7)}
    n, seven, nine = column("n"), pack_total("model", 2), encrypted_constant(9, "answer")
    outputs = [
        seven * n + nine,
        (seven * n).total(),
        (nine + n * n).total(),
        encrypted_constant(1 << 40, "large") - n,
        encrypted_constant(0, "no"),
    ]
    found, expected = read_clear(outputs, columns, layout), by_hand(outputs, columns, layout)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found[1] == 7 * sum(range(-3, layout.n_rows - 3))


@pytest.mark.parametrize("layout", [Layout(5, 8), Layout(9, 4, (4, 2, 3))], ids=repr)
@settings(max_examples=30, deadline=None)
@given(pool=row_pools(max_depth=2, resample=False), constant=st.integers(-3, 3))
def test_cleared_rows_are_the_same_rows(layout, pool, constant):
    """And 0 in padding: their totals count rows alone, whatever was in padding before."""
    columns = {**random_columns(layout.n_rows), ("model", 0): np.full(layout.n_rows, 5)}
    outputs = [
        *(x + constant for x in pool),
        pool[-1] * pack_total("model", 0) + pack_total("model", 0),
    ]
    done = clear_padding(outputs)
    for one, other in zip(
        read_clear(done, columns, layout), read_clear(outputs, columns, layout), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert {padding_value(done)[one] for one in done} == {0}
