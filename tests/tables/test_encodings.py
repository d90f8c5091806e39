"""The registry of encodings: what each answers, that answers agree, and that none can
be missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from encrypted_samples import SLOTS, mixed_frame, mixed_schema

import encryptedstats as es
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.expressions import column
from encryptedstats.publishing.sensitivity import possible_states, sensitivity
from encryptedstats.studies import validity
from encryptedstats.tables import Column, Table
from encryptedstats.tables.columns import (
    column_bound,
    column_ranges,
    list_question_columns,
    stored_groups,
)
from encryptedstats.tables.encodings import (
    ColumnGroup,
    Encoding,
    RowState,
    encoding_of,
    find_encoding,
    register_encoding,
    registered_encodings,
    unregister_encoding,
)
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FOLDS = 2


class Parity(Encoding):
    """Whether the number of the bin is odd."""

    name: ClassVar[str] = "parity"
    word: ClassVar[str] = "odd"
    stored_as: ClassVar[str | None] = "parity"

    def check(self, column, schema):
        if not schema.at(column.variable).n_bins:
            raise es.SchemaError(f"no column {column}: the variable has no bins")

    def range(self, column, schema, weight_bound):
        return ColumnRange(0, 1)

    def values(self, column, table):
        return table.data_of(column.variable) % 2 == 1

    def row_value(self, column, schema, state):
        return state.bin % 2

    def groups(self, schema, variable, storage):
        if not schema.at(variable).n_bins:
            return []
        return [ColumnGroup(variable, "parity", (Column("parity", variable),))]

    def states(self, group):
        return ((0,), (1,))

    def conditions(self, group):
        return [(x * x - x, 0) for x in (column(str(one)) for one in group.columns)]


@pytest.fixture
def parity() -> Iterator[None]:
    register_encoding(Parity)
    yield
    unregister_encoding("parity")


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = es.Parameters.from_bits("bgv", SLOTS, 1 << 20, (52,) * 6, allow_insecure=True)
        return es.Owner(replace(made, kept_primes=5))


@pytest.mark.usefixtures("parity")
def test_a_new_encoding_is_used_everywhere(owner: es.Owner, tmp_path: Path) -> None:
    clear, name = mixed_schema().table(mixed_frame(40)), "v0.odd"
    public, odd = clear.public_schema, Column("parity", 0)
    assert Column.parse(name) == odd
    assert str(odd) == name
    # in clear tables and bounds
    bins = np.argmax(clear.bins("age"), axis=0)
    np.testing.assert_array_equal(clear.values(odd), bins % 2)
    assert clear.evaluate([column(name).total()]) == [int((bins % 2).sum())]
    assert column_bound(public, odd, weight_bound=16) == 1
    assert column_ranges(public, [odd]) == {name: ColumnRange(0, 1)}
    # in stored and encrypted tables
    choices = ("onehot", "parity")
    (group,) = (
        one
        for one in stored_groups(public, choices)
        if one.variable == 0 and one.coding == "parity"
    )
    assert (group.columns, group.states) == ((odd,), ((0,), (1,)))
    assert odd in list_question_columns(public, clear.stored_columns(choices))
    sealed = owner.encrypt(clear, encodings=choices)
    sealed.save(tmp_path / "table")
    sealed = es.load(tmp_path / "table")
    assert odd in sealed.facts.columns
    assert sealed.facts.columns == tuple(clear.stored_columns(choices))
    assert owner.open(sealed.values(odd)).tolist() == (bins % 2).tolist()
    # in validity checks and sensitivity
    assert [rule.padding for rule in validity.group_rules(group)] == [True, True]
    assert validity.unchecked_columns([group]) == []
    assert validity.passes(validity.ask(sealed, b"coin", 1), owner.open, 1)
    states = possible_states(public, [name], tried=True)
    assert [state[name] for state in states["v0"]] == [0, 1, 0]
    assert sensitivity([column(name).total()], public).ranges.tolist() == [1]


@pytest.mark.parametrize(
    "answer",
    [
        "name",
        "word",
        "stored_as",
        "check",
        "range",
        "values",
        "row_value",
        "groups",
        "states",
        "conditions",
    ],
)
def test_an_encoding_that_lacks_an_answer_is_refused(answer: str) -> None:
    own = {
        key: value
        for key, value in vars(Parity).items()
        if key not in (answer, "_abc_impl", "__dict__", "__weakref__")
    }
    incomplete: Any = type("Incomplete", (Encoding,), own)
    with pytest.raises(TypeError, check=error("incomplete-encoding", answer)):
        register_encoding(incomplete)
    assert "parity" not in [one.name for one in registered_encodings()]


def test_a_class_that_is_no_encoding_lacks_every_answer() -> None:
    class Nothing:
        pass

    with pytest.raises(TypeError, check=error("incomplete-encoding")):
        register_encoding(Nothing)  # type: ignore[type-var]


@pytest.mark.usefixtures("parity")
@pytest.mark.parametrize(
    ("name", "word"), [("parity", "other"), ("other", "odd"), ("other", "Odd2"), ("other", "v")]
)
def test_names_and_words_are_unique_and_fit_into_keys(name: str, word: str) -> None:
    other: Any = type("Other", (Parity,), {"name": name, "word": word})
    with pytest.raises(es.SchemaError, check=error("encoding-name-unusable", name, word)):
        register_encoding(other)


def test_an_unknown_encoding_is_refused() -> None:
    for ask in (find_encoding, lambda name: Column(name, 0)):
        with pytest.raises(es.SchemaError, check=error("unknown-encoding", "'parity'")):
            ask("parity")
    with pytest.raises(es.SchemaError, check=error("malformed-column-key", "'v0.odd'")):
        Column.parse("v0.odd")


# -- the answers of an encoding agree --------------------------------------------------------------


def clear_table(*, number_target: bool = False) -> Table:
    frame = mixed_frame(60).rename(columns={"sick": "state"})
    frame.loc[[3, 5], "dose"] = None
    frame["large"] = np.random.default_rng(2).integers(-9000, 9000, len(frame))
    options: dict[str, Any] = {"numbers": "keep"} if number_target else {}
    kinds = {"dose": "number", "grade": "ordinal", "before": "categorical", "age": "continuous"}
    if not number_target:
        kinds["large"] = "number"
    target = "large" if number_target else "state"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = es.Schema.infer(
            frame, target=target, bins=3, kinds=kinds, missing="bin", **options
        )
    return schema.table(frame, folds=FOLDS)


def row_states(table: Table, variable: int) -> list[RowState]:
    """Return what the rows of a clear table are, of one variable."""
    known = table.public_schema
    folds = [None] * len(table) if table.fold_codes is None else table.fold_codes.tolist()
    if variable == -1 and known.target_number is None:
        assert table.class_codes is not None
        return [
            RowState(target=k, fold=f)
            for k, f in zip(table.class_codes.tolist(), folds, strict=True)
        ]
    if known.at(variable).kind == "number":
        present = (
            table.values(Column("present", variable))
            if known.at(variable).missing_bin
            else [1] * len(table)
        )
        numbers = table.values(Column("number", variable)).tolist()
        return [RowState(number=x if there else None, fold=f)
                for x, there, f in zip(numbers, present, folds, strict=True)]  # fmt: skip
    n_bins = known.at(variable).n_bins
    return [RowState(bin=k, n_bins=n_bins) for k in table.data[variable].tolist()]


@pytest.mark.parametrize("number_target", [False, True])
@pytest.mark.parametrize("digit_bits", [None, 6])
def test_bounds_states_conditions_and_rows_agree_with_the_values_of_tables(
    number_target: bool, digit_bits: int | None
) -> None:
    table = clear_table(number_target=number_target)
    public, seen = table.public_schema, set()
    facts: dict[str, Any] = {"classes": True, "n_folds": FOLDS, "digit_bits": digit_bits}
    for group in stored_groups(public, ("onehot", "ordinal", "centred"), **facts):
        held = np.stack([table.values(one) for one in group.columns], axis=1)
        if group.states is not None:
            assert {tuple(row) for row in held.tolist()} <= set(group.states)
        for one, values in zip(group.columns, held.T, strict=True):
            known, meaning = column_ranges(public, [one])[str(one)], encoding_of(one)
            seen.add(one.encoding)
            assert known.low <= values.min()
            assert values.max() <= known.high
            assert column_bound(public, one) == max(abs(known.low), abs(known.high))
            if one.encoding != "digit":  # totals over digits cannot be released
                in_rows = [
                    meaning.row_value(one, public, state)
                    for state in row_states(table, group.variable)
                ]
                assert in_rows == values.tolist()
        if group.coding != "weighed" or group.columns[0].fold is None:  # studies have no folds
            for expression, constant in group.encoding.conditions(group):
                assert not np.any(table.evaluate([expression])[0] + constant)
    assert seen >= {
        "onehot",
        "cumulative",
        "ordinal",
        "centred",
        "present",
        "rows" if number_target else "class",
    }
    assert ("digit" if digit_bits else "number") in seen


def test_every_encoding_is_registered_once() -> None:
    names = [one.name for one in registered_encodings()]
    assert names == [
        "onehot",
        "cumulative",
        "ordinal",
        "centred",
        "number",
        "present",
        "digit",
        "grid",
        "class",
        "rows",
    ]
    assert pd.Index([one.word for one in registered_encodings()]).is_unique
