"""The clear table: bins, integers, classes, weights and folds of rows, seen as integer columns.

It is the plain twin of the encrypted table: the same columns, the same layout, the same derived
sums. Built by `Schema.table`, which knows about names and frames; here are only small integers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.clear import read_clear, sum_lanes
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.circuits.layout import Layout
from encryptedstats.errors import SchemaError, SchemaWarning
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.columns import (
    ColumnAlgebra,
    check_column,
    column_bound,
    column_ranges,
    list_question_columns,
    table_columns,
)
from encryptedstats.tables.encodings import GAP, Column, encoding_of
from encryptedstats.tables.questions.question import (
    Question,
    check_question,
    flat,
    prepare_question,
)
from encryptedstats.tables.questions.summaries import Asked
from encryptedstats.tables.rows.frames import show
from encryptedstats.tables.schema.bins import assign_bins
from encryptedstats.tables.schema.names import class_or_variable
from encryptedstats.tables.schema.variables import ORDERED_KINDS, PublicSchema, Variable
from encryptedstats.words import plural

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema

Integers = NDArray[np.int64]
_MOST_ROWS_NAMED: Final = 5


@dataclass(frozen=True)
class Moved:
    """Rows of a column whose value has no bin of its own, and the bin that the schema sends them
    to.

    `example` is a level that the schema does not know, at the row called `row`; None for missing
    values.
    """

    column: str
    into: str
    example: str | None
    row: str
    n_rows: int

    @property
    def kind(self) -> tuple[str, str, bool]:
        """Rows with the same are counted together."""
        return self.column, self.into, self.example is None

    def __str__(self) -> str:
        rows = f"{self.n_rows} row{'s' if self.n_rows > 1 else ''}"
        if self.example is None:
            return (
                f"column {self.column!r}: {rows} without a value (such as row {self.row}) went to "
                f"{self.into!r}"
            )
        return (
            f"column {self.column!r}: {rows} with a level that the schema does not know (such as "
            f"{self.example}, row {self.row}) "
            f"went to {self.into!r}"
        )


def merge_moved(parts: Iterable[Moved]) -> tuple[Moved, ...]:
    """Add up the rows of each kind."""
    found: dict[tuple[str, str, bool], Moved] = {}
    for part in parts:
        before = found.get(part.kind)
        found[part.kind] = (
            part if before is None else replace(before, n_rows=before.n_rows + part.n_rows)
        )
    return tuple(found.values())


def warn_of_moved(moved: Sequence[Moved], stacklevel: int) -> None:
    """Warn of rows that are counted as something else."""
    if moved:
        warnings.warn("; ".join(map(str, moved)), SchemaWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True)
class Unusable:
    """Rows that cannot be predicted, because of their values in one column.

    `reason` is that of the first of them; `rows` are the labels of the first few.
    """

    column: str
    reason: str
    rows: tuple[str, ...]
    n_rows: int

    @classmethod
    def of(
        cls, column: str, reason: str, index: pd.Index[Any], mask: NDArray[np.bool_]
    ) -> Unusable:
        """Return what is said of the rows where `mask` is true."""
        places = np.flatnonzero(mask)
        rows = tuple(show(index[place]) for place in places[:_MOST_ROWS_NAMED])
        return cls(column, reason, rows, len(places))

    def __str__(self) -> str:
        more = ", ..." if self.n_rows > len(self.rows) else ""
        rows = f"row{'s' if self.n_rows > 1 else ''} {', '.join(self.rows)}{more}"
        return f"column {self.column!r}, {rows}: {self.reason}"


def merge_unusable(parts: Iterable[Unusable]) -> tuple[Unusable, ...]:
    """Return the same with the rows of each column and kind of reason joined."""
    found: dict[tuple[str, bool], Unusable] = {}
    for part in parts:
        key = (part.column, "missing" in part.reason)
        before = found.setdefault(key, part)
        if before is not part:
            rows = (*before.rows, *part.rows)[:_MOST_ROWS_NAMED]
            found[key] = replace(before, rows=rows, n_rows=before.n_rows + part.n_rows)
    return tuple(found.values())


def warn_of_unusable(
    unusable: Sequence[Unusable], n_without: int, n_rows: int, stacklevel: int
) -> None:
    """Warn of rows without a prediction, and name them and their columns."""
    if n_without:
        listed = "; ".join(map(str, unusable))
        warnings.warn(
            f"no prediction for {n_without:,} of {plural(n_rows, 'row')}: {listed}",
            SchemaWarning,
            stacklevel=stacklevel + 1,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Table(ColumnAlgebra[Integers], Asked):
    """Rows in the clear, as integer columns. Made by `Schema.table`.

    Attributes
    ----------
    schema
        The owner's schema.
    data
        One array a variable: bin numbers (small unsigned integers), or the fixed-point integers of
        a number.
    class_codes
        Class of each row, or None: for rows to predict, or where the target is a number.
    target_values
        The target of each row as a fixed-point integer, where it is a number.
    weights
        Weight of each row, or None when all are 1.
    fold_codes, n_folds
        Cross-validation fold of each row, or None and 0.
    weight_bound
        Public bound of the weights: a power of two.
    slots, chunk_rows
        Slots of a chunk, and rows in each if not all are full: see `layout`.
    copies
        How often an encrypted chunk holds each row.
    n_dropped
        How many rows were left out because a value was missing.
    moved
        Values that went to another bin than one of their own, because the schema says so.
    unpredicted, unusable
        Of rows to predict: those that the schema does not allow, and why; None and empty if there
        are none. They have placeholder values here, see `leave_blank`.
    """

    schema: Schema
    data: tuple[NDArray[Any], ...]
    class_codes: NDArray[Any] | None = None
    target_values: Integers | None = None
    weights: Integers | None = None
    fold_codes: NDArray[Any] | None = None
    n_folds: int = 0
    weight_bound: int = 1
    slots: int = 8192
    chunk_rows: tuple[int, ...] = ()
    n_dropped: int = 0
    moved: tuple[Moved, ...] = ()
    copies: int = 1
    unpredicted: NDArray[np.bool_] | None = None
    unusable: tuple[Unusable, ...] = ()

    def __post_init__(self) -> None:
        if not len(self):
            raise SchemaError("the table has no rows", code="no-rows")
        _ = self.layout  # refuses slots that are not a power of two

    def __len__(self) -> int:
        return len(self.data[0])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self)

    @property
    def layout(self) -> Layout:
        """Positions of the rows in slots and chunks."""
        lanes = self.public_schema.lanes
        return Layout(len(self), max(self.slots, lanes), self.chunk_rows, self.copies, lanes)

    @property
    def public_schema(self) -> PublicSchema:
        """The public schema."""
        return self.schema.public()

    @property
    def has_classes(self) -> bool:
        """Whether the class of every row is known."""
        return self.class_codes is not None

    @property
    def has_target(self) -> bool:
        """Whether the target of every row is known, a class or a number."""
        return self.has_classes or self.target_values is not None

    def columns(self, encodings: Sequence[str] = ("onehot",)) -> list[Column]:
        """Return the columns that can be asked for with these encodings: bins, codes, numbers,
        classes, and classes by fold.
        """
        return list_question_columns(self.public_schema, self.stored_columns(encodings))

    def stored_columns(
        self, encodings: Sequence[str] = ("onehot",), digit_bits: int | None = None
    ) -> list[Column]:
        """Return the columns that are encrypted with these encodings: of bins and classes all but
        one, see `stored_groups`.
        """
        return table_columns(
            self.public_schema,
            encodings,
            classes=self.has_target,
            n_folds=self.n_folds,
            digit_bits=digit_bits,
            weighed=self.weight_bound > 1,
        )

    def holds(self, column: Column) -> bool:
        """Return whether `values` can give the column: a clear table makes any encoding
        on demand.
        """
        try:
            self._check(column)
        except SchemaError:
            return False
        return True

    def bound(self, column: Column) -> int:
        """Return the largest absolute value the column can hold, from public knowledge alone."""
        self._check(column)
        return column_bound(self.public_schema, column, self.weight_bound)

    def values(self, column: Column) -> Integers:
        """Return one column as integers, one value per row."""
        return self._compact(column).astype(np.int64, copy=False)

    def slot_values(self, column: Column) -> Integers:
        """Return one column as it lies in slots: what all variants share is repeated in
        each lane.
        """
        values, lanes = self.values(column), self.layout.lanes
        return np.repeat(values, lanes) if values.ndim < 2 and lanes > 1 else values.reshape(-1)

    def raw_values(self) -> Iterator[bytes]:
        """Yield all that the rows hold but their folds, as bytes: codes, numbers, classes and
        weights, in integers of one size.
        """
        known = (part for part in (self.class_codes, self.target_values) if part is not None)
        parts = (*self.data, *((*known, self._weights_or_ones()) if self.has_target else ()))
        return (part.astype("<i8").tobytes() for part in parts)

    def _compact(self, column: Column) -> NDArray[Any]:
        """Return one column, with indicators as true and false."""
        self._check(column)
        return encoding_of(column).values(column, self)

    @property
    def n_unpredicted(self) -> int:
        """Number of rows that cannot be predicted."""
        return 0 if self.unpredicted is None else int(self.unpredicted.sum())

    def leave_blank(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of each row without those of rows that have no prediction.

        These become NaN among floats, and None among anything else.
        """
        if self.unpredicted is None or not self.n_unpredicted:
            return values
        is_float = values.dtype.kind == "f"
        found = values.copy() if is_float else values.astype(object)
        found[self.unpredicted] = np.nan if is_float else None
        return found

    def codes_of(self, position: int) -> NDArray[Any]:
        """Return the bin of each row, from 0, for the variable at a position that has bins."""
        variable = self.schema.variables[position]
        if variable.kind != "number":
            return self.data[position]
        if position not in self._bins_of_numbers:
            self._bins_of_numbers[position] = bins_of_number(variable, self.data[position])
        return self._bins_of_numbers[position]

    @cached_property
    def _bins_of_numbers(self) -> dict[int, NDArray[Any]]:
        return {}

    def data_of(self, position: int) -> NDArray[Any]:
        """Return the data of the variable at a position; at -1 of a target that is a number."""
        if position == -1 and self.target_values is not None:
            return self.target_values
        data = self.data[position]
        if data.dtype == np.int8 and self.schema.genome is not None:  # a tile, which is large
            return np.where(data < 0, GAP, data.astype(np.int64))
        return data

    def weigh(self, inside: NDArray[np.bool_], fold: int | None) -> NDArray[Any]:
        """Return the weights of some rows and 0 for all others, of one fold if given."""
        if fold is not None:
            inside = inside & (self.fold_codes == fold)
        return inside if self.weights is None else inside * self.weights

    def _check(self, column: Column) -> None:
        check_column(self.public_schema, column)
        if column.variable == -1 and not self.has_target:
            raise SchemaError(
                f"no column {column}: the table has no target; give the target column or y=",
                code="no-target",
            )
        if column.fold is not None and column.fold >= self.n_folds:
            raise SchemaError(
                f"no column {column}: the table has {self.n_folds} folds; declare them with folds=",
                code="fold-out-of-range",
            )

    def evaluate(self, outputs: Sequence[Expression]) -> list[Any]:
        """Evaluate a circuit: an integer for a total, an array over the rows otherwise."""
        outputs = list(outputs)
        columns = [Column.parse(name) for name in column_names(outputs)]
        ranges = column_ranges(self.public_schema, columns, self.weight_bound)
        if self.layout.lanes > 1:
            return sum_lanes(outputs, _Columns(self, columns), self.layout, ranges)
        return read_clear(outputs, _Columns(self, columns), self.layout, ranges=ranges)

    def _position(self, variable: str | int) -> int:
        return class_or_variable(variable, self.schema)

    def ask(self, question: Question, **options: Any) -> Any:
        """Answer a question. Options of encrypted tables are accepted and change nothing."""
        asked = prepare_question(check_question(question), self.schema)._fix_seed()
        return asked._present(self._answer_to(asked))

    def _answer_to(self, asked: Question) -> Answer:
        """Return the answer to a question in ids."""
        return Answer(
            asked,
            tuple(self.totals(asked)),
            self.schema,
            self.n_rows,
            n_dropped=self.n_dropped,
            weight_bound=self.weight_bound,
        )

    def totals(self, question: Question) -> list[int]:
        """Compute the totals that answer a question, one after the other."""
        counted = question.count_rows(self)
        if counted is not None:
            shapes = question.shapes(self.public_schema)
            return [int(x) for x in flat(counted, shapes, question.name, "shapes()")]
        return self.evaluate(
            question.circuit(self.public_schema, self.columns(), weight_bound=self.weight_bound)
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows with bins by their labels, numbers in real units and classes by name."""
        frame = {}
        for variable, data in zip(self.schema.variables, self.data, strict=True):
            if variable.kind == "number":
                frame[variable.name] = _in_units(data, variable)
            else:
                ordered = variable.kind in ORDERED_KINDS
                labels = pd.Categorical.from_codes(
                    data.astype(np.int64), pd.Index(variable.labels), ordered=ordered
                )
                frame[variable.name] = pd.Series(labels)
        if self.class_codes is not None:
            names = np.array(self.schema.classes, dtype=object)[self.class_codes]
            frame[str(self.schema.target)] = pd.Series(names).infer_objects()
        if self.target_values is not None and self.schema.target_number is not None:
            frame[str(self.schema.target)] = _in_units(
                self.target_values, self.schema.target_number
            )
        return pd.DataFrame(frame)

    def with_layout(self, layout: Layout | int) -> Table:
        """Bring the rows into another layout, or into full chunks of some slots."""
        if isinstance(layout, Layout):
            return replace(self, slots=layout.slots, chunk_rows=layout.counts, copies=layout.copies)
        if layout < self.public_schema.lanes:
            raise SchemaError(
                f"{self.public_schema.lanes} lanes do not fit into the {layout} slots of these "
                "keys: make the table with fewer lanes",
                code="lanes-beyond-slots",
            )
        return replace(self, slots=layout, chunk_rows=())

    def __getitem__(self, rows: slice) -> Table:
        """Cut out a range of rows, ``table[a:b]``; bounds, folds and weights stay those of the
        whole.
        """
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise SchemaError("a table is cut by a range of rows: table[a:b]", code="not-a-range")
        data = tuple(values[rows] for values in self.data)
        class_codes, weights = _cut(self.class_codes, rows), _cut(self.weights, rows)
        fold_codes = _cut(self.fold_codes, rows)
        return replace(
            self,
            chunk_rows=(),
            n_dropped=0,
            moved=(),
            data=data,
            class_codes=class_codes,
            target_values=_cut(self.target_values, rows),
            weights=weights,
            fold_codes=fold_codes,
            unpredicted=_cut(self.unpredicted, rows),
        )

    def take(self, rows: NDArray[np.intp]) -> Table:
        """Pick rows by their numbers."""
        return replace(
            self,
            data=tuple(values[rows] for values in self.data),
            class_codes=None if self.class_codes is None else self.class_codes[rows],
            target_values=None if self.target_values is None else self.target_values[rows],
            weights=None if self.weights is None else self.weights[rows],
            fold_codes=None if self.fold_codes is None else self.fold_codes[rows],
            unpredicted=None if self.unpredicted is None else self.unpredicted[rows],
            chunk_rows=(),
            n_dropped=0,
            moved=(),
        )

    @staticmethod
    def concat(tables: Sequence[Table]) -> Table:
        """Join all rows of several tables of one schema, in the layout of the first."""
        if not tables:
            raise SchemaError("concat needs at least one table", code="no-tables")
        first = tables[0]
        for table in tables[1:]:
            _check_same(first, table)
        weighted = any(table.weights is not None for table in tables)
        return replace(
            first,
            data=tuple(
                np.concatenate(parts)
                for parts in zip(*(table.data for table in tables), strict=True)
            ),
            class_codes=_join([table.class_codes for table in tables]),
            target_values=_join([table.target_values for table in tables]),
            weights=_join([table._weights_or_ones() for table in tables]) if weighted else None,
            fold_codes=_join([table.fold_codes for table in tables]),
            weight_bound=max(table.weight_bound for table in tables),
            chunk_rows=(),
            n_dropped=sum(table.n_dropped for table in tables),
            moved=merge_moved(part for table in tables for part in table.moved),
        )

    def _weights_or_ones(self) -> Integers:
        return np.ones(len(self), dtype=np.int64) if self.weights is None else self.weights

    def __repr__(self) -> str:
        parts = [f"{len(self)} rows", f"{len(self.data)} variables"]
        classes = (
            f"{self.public_schema.n_classes} classes" if self.has_classes else "a number as target"
        )
        parts.append(classes if self.has_target else "no target")
        if self.weights is not None:
            parts.append(f"weights up to {self.weight_bound}")
        if self.n_folds:
            parts.append(f"{self.n_folds} folds")
        if self.n_dropped:
            parts.append(f"{self.n_dropped} rows with missing values left out")
        if self.moved:
            parts.append(
                f"{sum(part.n_rows for part in self.moved)} values without a bin of their own"
            )
        layout = self.layout
        lanes = f", {layout.lanes} lanes" if layout.lanes > 1 else ""
        return f"Table({', '.join(parts)}; {layout.n_chunks} x {layout.slots} slots{lanes})"


class _Columns(Mapping[str, NDArray[Any]]):
    """Columns of a table by their keys, made when they are read: all at once take many times the
    table.
    """

    def __init__(self, table: Table, columns: Sequence[Column]) -> None:
        self._table = table
        self._columns = {str(column): column for column in columns}

    def __getitem__(self, key: str) -> NDArray[Any]:
        return self._table._compact(self._columns[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def bins_of_number(variable: Variable, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the bins of the fixed-point integers of a number; the last if it is missing."""
    codes = assign_bins(numbers / 10.0 ** (variable.digits or 0), variable.edges)
    codes[numbers == GAP] = variable.n_bins - 1
    return codes.astype(np.min_scalar_type(variable.n_bins - 1))


def _in_units(values: NDArray[Any], variable: Variable) -> pd.Series[Any]:
    """Return the fixed-point integers of a number in its own unit, or as dates; NaN if missing."""
    numbers = pd.Series(values / 10.0 ** (variable.digits or 0)).mask(values == GAP)
    return pd.to_datetime(numbers, unit="D") if variable.dates else numbers


def _cut(values: NDArray[Any] | None, rows: slice) -> NDArray[Any] | None:
    return None if values is None else values[rows]


def _join(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None


def _check_same(first: Table, other: Table) -> None:
    if other.schema != first.schema:
        raise SchemaError(
            "the tables have different schemas: make all of them with one schema",
            code="different-schemas",
        )
    if other.has_target != first.has_target:
        raise SchemaError(
            "some of the tables have a target and some have not", code="target-missing-somewhere"
        )
    if other.n_folds != first.n_folds:
        raise SchemaError(
            f"the tables have {first.n_folds} and {other.n_folds} folds: declare the same number",
            code="different-folds",
        )
