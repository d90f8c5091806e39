"""Column keys, layout, and the algebra that clear and encrypted tables share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encryptedstats.errors import SchemaError
from encryptedstats.tables import Column, Layout, Schema
from encryptedstats.tables.columns import (
    ColumnAlgebra,
    column_bound,
    list_question_columns,
    stored_groups,
    table_columns,
)
from error_codes import error

COLUMNS = st.one_of(
    st.builds(
        Column, st.sampled_from(["onehot", "cumulative"]), st.integers(0, 999), st.integers(0, 999)
    ),
    st.builds(Column, st.sampled_from(["ordinal", "centred", "number"]), st.integers(0, 999)),
    st.builds(
        lambda c, f: Column("class", -1, c, f),
        st.integers(0, 99),
        st.one_of(st.none(), st.integers(0, 99)),
    ),
)


@given(COLUMNS)
def test_keys_round_trip(column):
    assert Column.parse(str(column)) == column


def test_keys_as_documented():
    columns = [
        Column("onehot", 3, 2),
        Column("ordinal", 3),
        Column("centred", 3),
        Column("number", 7),
    ]
    columns += [Column("class", -1, 1), Column("class", -1, 1, 0)]
    keys = ["v3.bin2", "v3.code", "v3.centred", "v7.number", "class1", "class1.fold0"]
    assert [str(column) for column in columns] == keys


@pytest.mark.parametrize(
    "key",
    [
        "",
        "v3",
        "v03.bin2",
        "v3.bin",
        "v3.bin02",
        "v3.code1",
        "class",
        "class1.fold",
        " class1",
        "class1\n",
        "v٣.code",
        "v-1.code",
    ],
)
def test_foreign_keys_are_refused(key):
    with pytest.raises(SchemaError, check=error("malformed-column-key")):
        Column.parse(key)


@pytest.mark.parametrize(
    "arguments",
    [
        ("onehot", -1, 0),
        ("class", 0, 1),
        ("number", 2, 1),
        ("ordinal", 1, 0, 0),
        ("class", -1, -1),
        ("bits", 0),
    ],
)
def test_impossible_columns_are_refused(arguments):
    with pytest.raises(SchemaError, match=r"Column\(|does not exist"):
        Column(*arguments)


@pytest.mark.parametrize(
    ("n_rows", "n_chunks", "padding"), [(0, 0, 0), (1, 1, 7), (8, 1, 0), (9, 2, 7), (24, 3, 0)]
)
def test_layout(n_rows, n_chunks, padding):
    layout = Layout(n_rows, slots=8)
    assert (layout.n_chunks, layout.padding) == (n_chunks, padding)
    rows = [row for chunk in range(n_chunks) for row in range(*layout.rows_of(chunk))]
    assert rows == list(range(n_rows))
    assert all(layout.rows_of(row // 8)[0] + row % 8 == row for row in rows)


def test_layout_refuses_nonsense():
    with pytest.raises(SchemaError, check=error("not-power-of-two", "slots=100")):
        Layout(5, slots=100)
    with pytest.raises(SchemaError, check=error("unknown-chunk", "chunk 1")):
        Layout(5, slots=8).rows_of(1)
    with pytest.raises(SchemaError, check=error("negative-row-count", "n_rows=-1")):
        Layout(-1)


class Linear:
    """Columns that can only be added to each other and to an integer, and multiplied by one, as
    ciphertexts can.
    """

    def __init__(self, values):
        self.held = values

    def __add__(self, other):
        assert isinstance(other, Linear | int)
        return Linear(self.held + (other if isinstance(other, int) else other.held))

    def __sub__(self, other):
        return Linear(self.held - other.held)

    def __mul__(self, factor):
        assert isinstance(factor, int)
        assert factor != 0, "an encrypted column times 0 is transparent"
        return Linear(self.held * factor)


class BinsOnly(ColumnAlgebra[Linear]):
    """A table that stores all but one of the bins only and knows the public schema only, as an
    encrypted one does.
    """

    def __init__(self, table):
        self.schema = table.schema.public()
        self.stored = {column: Linear(table.values(column)) for column in table.columns()}

    def holds(self, column):
        return column in self.stored

    def values(self, column):
        return self.stored[column]


@pytest.fixture
def schema():
    kinds = {"a": "ord", "b": "ord", "c": "cat", "d": "ord"}
    return Schema.from_onehot([*"aaaaa", *"bbbb", *"ccc", "d"], kinds)


@pytest.fixture
def table(schema):
    rng = np.random.default_rng(1)
    blocks = [np.eye(m, dtype=int)[rng.integers(0, m, 30)] for m in (5, 4, 3, 1)]
    return schema.table(np.hstack(blocks), y=rng.integers(0, 2, 30))


def test_sums_and_codes_follow_from_one_hot_columns_by_adding_and_scaling(table):
    sealed = BinsOnly(table)
    for name, opaque in zip("abcd", sealed.schema.variables, strict=True):
        for bins in ([0], range(opaque.n_bins)):
            derived = sealed.range_sum(opaque.id, bins).held
            np.testing.assert_array_equal(derived, table.range_sum(name, bins))
    for centred in (False, True):
        for name, opaque in (("a", "v0"), ("b", "v1")):
            codes = sealed.codes(opaque, centred=centred).held
            np.testing.assert_array_equal(codes, table.codes(name, centred=centred))
    np.testing.assert_array_equal(sealed.codes("v3").held, 1)
    assert len(sealed.classes()) == 2


def test_a_constant_has_no_derived_centred_code(table):
    assert table.codes("d", centred=True).tolist() == [0] * 30
    with pytest.raises(SchemaError, check=error("single-bin", "0")):
        BinsOnly(table).codes("v3", centred=True)


def test_ranges_are_checked(table):
    for bins in ([], [5], [-1, 2]):
        with pytest.raises(SchemaError, check=error("not-a-range", "0", "4")):
            table.range_sum("a", bins)
    with pytest.raises(SchemaError, check=error("unordered-kind")):
        table.codes("c")
    with pytest.raises(SchemaError, check=error("keep-numbers", "'number'")):
        table.numbers("c")


def test_bounds_come_from_public_knowledge(schema):
    public = schema.with_kind("b", "categorical").public()
    assert column_bound(public, Column("onehot", 0, 4)) == 1
    assert column_bound(public, Column("ordinal", 0)) == 5
    assert column_bound(public, Column("centred", 0)) == 2
    assert column_bound(schema.public(), Column("centred", 1)) == 3
    assert column_bound(public, Column("class", -1, 1), weight_bound=16) == 16
    for column in (
        Column("onehot", 0, 5),
        Column("class", -1, 2),
        Column("number", 0),
        Column("ordinal", 2),
    ):
        with pytest.raises(SchemaError, match=r"no column|ordered bins"):
            column_bound(public, column)


def test_columns_are_enumerated_in_order(schema):
    keys = [
        str(column)
        for column in table_columns(
            schema.public(), ("ordinal", "centred"), classes=True, n_folds=2
        )
    ]
    assert keys == [
        *("v0.code", "v0.centred", "v1.code", "v1.centred", "v3.code", "v3.centred"),
        *("class0", "class0.fold0", "class1.fold0", "class0.fold1", "class1.fold1"),
    ]
    asked = [
        str(column)
        for column in list_question_columns(
            schema.public(), table_columns(schema.public(), classes=True)
        )
    ]
    assert asked == [f"v{j}.bin{k}" for j, bins in enumerate((5, 4, 3, 1)) for k in range(bins)] + [
        "class0",
        "class1",
    ]


def test_one_column_less_than_bins_levels_and_classes_is_stored(schema):
    groups = stored_groups(schema.public(), classes=True)
    assert [
        (group.variable, group.coding, [str(column) for column in group.columns])
        for group in groups
    ] == [
        (0, "cumulative", ["v0.upto0", "v0.upto1", "v0.upto2", "v0.upto3"]),
        (1, "cumulative", ["v1.upto0", "v1.upto1", "v1.upto2"]),
        (2, "all but one", ["v2.bin0", "v2.bin1"]),
        (3, "every one", ["v3.bin0"]),
        (-1, "all but one", ["class0"]),
    ]
    weighed = stored_groups(schema.public(), classes=True, weighed=True)[-1]
    assert (weighed.coding, len(weighed.columns), weighed.states) == ("weighed", 2, None)


def test_states_are_what_the_columns_of_rows_hold(table):
    for group in stored_groups(table.public_schema, classes=True):
        held = {
            tuple(row)
            for row in np.stack([table.values(column) for column in group.columns], axis=1).tolist()
        }
        assert group.states is not None
        assert held <= set(group.states)
        assert (
            len(group.states)
            == len(set(group.states))
            == (len(group.columns) + 1 if group.coding != "every one" else 1)
        )


def test_a_cut_is_refused_where_there_is_none(schema):
    public = schema.public()
    assert column_bound(public, Column("cumulative", 0, 3)) == 1
    with pytest.raises(SchemaError, check=error("impossible-column", "'v0'", "v0.upto4")):
        column_bound(public, Column("cumulative", 0, 4))
    with pytest.raises(SchemaError, check=error("impossible-column", "'v2'", "v2.upto0")):
        column_bound(public, Column("cumulative", 2, 0))


def test_refused_encodings(schema):
    for encodings in ("onehot", ["bits"]):
        with pytest.raises(
            SchemaError, check=error("encodings-not-listed", "'onehot'", "'ordinal'", "'centred'")
        ):
            table_columns(schema.public(), encodings)
