"""Integer columns of a table: their names, which are stored, and what follows from them by
additions.

Questions are written with an indicator of every bin and every class. Of these one less is stored
than there are: `stored_groups` is the one place that says which, and `rewrite_in_stored` rewrites
circuits to what is stored. Clear and encrypted tables share this code: `ColumnAlgebra` derives
range sums and ordinal codes by additions and multiplications by integers alone, whatever the
columns are made of. No pandas here.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Generic, Protocol, TypeVar

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.circuits.passes.digits import Digits, split_into_digits
from encryptedstats.circuits.passes.stored_columns import use_stored_columns
from encryptedstats.errors import Cure, SchemaError
from encryptedstats.tables.encodings import (
    Column,
    ColumnGroup,
    Holds,
    Storage,
    Terms,
    classes_of,
    encoding_of,
    registered_encodings,
)
from encryptedstats.tables.schema.bins import code_values
from encryptedstats.tables.schema.variables import KEEP_NUMBERS, PublicSchema, PublicVariable

E = TypeVar("E")

# -- which columns are stored ----------------------------------------------------------------------


def stored_groups(
    schema: PublicSchema,
    encodings: Sequence[str] = ("onehot",),
    *,
    classes: bool = False,
    n_folds: int = 0,
    digit_bits: int | None = None,
    weighed: bool = False,
) -> list[ColumnGroup]:
    """Return what a table stores with these encodings, in its canonical order: for every variable
    its columns, and how they are coded.

    Numbers are always among them, those of more than ``digit_bits`` in digits, and where they may
    be missing whether they are there. Ordinal and centred codes exist for ordered variables without
    a bin for missing values only. `classes` is whether the target is known, `weighed` whether rows
    have weights: these are not public, so that no class follows from the others.
    """
    every = registered_encodings()
    choices = list(dict.fromkeys(one.stored_as for one in every if one.stored_as is not None))
    if isinstance(encodings, str) or not set(encodings) <= set(choices):
        listed = f"{', '.join(map(repr, choices[:-1]))} and {choices[-1]!r}"
        raise SchemaError(
            f"encodings={encodings!r}: a sequence of {listed} is needed",
            code="encodings-not-listed",
        )
    storage = Storage(n_folds, digit_bits, weighed)
    return [
        group
        for position in [*range(len(schema.variables)), *([-1] if classes else [])]
        for one in every
        if one.stored_as in (None, *encodings) and one.encodes(position)
        for group in one.groups(schema, position, storage)
    ]


def encoding_choices(columns: Iterable[Column]) -> list[str]:
    """Return the ``encodings=`` with which a table stores these columns."""
    found = {encoding_of(column).stored_as for column in columns}
    return sorted(choice for choice in found if choice is not None)


def table_columns(
    schema: PublicSchema, encodings: Sequence[str] = ("onehot",), **facts: Any
) -> list[Column]:
    """Return all columns that a table stores, in their canonical order: those of `stored_groups`,
    with the same arguments.
    """
    return [
        column for group in stored_groups(schema, encodings, **facts) for column in group.columns
    ]


# -- from the columns of questions to those that are stored ----------------------------------------


def list_question_columns(schema: PublicSchema, stored: Iterable[Column]) -> list[Column]:
    """Return the columns that questions use: whole numbers, all bins and all classes."""
    asked = (
        one for column in stored for one in encoding_of(column).question_columns(column, schema)
    )
    return list(dict.fromkeys(asked))


def rewrite_over_stored(
    outputs: Sequence[Expression | int], schema: PublicSchema, stored: Collection[Column]
) -> list[Expression | int]:
    """Rewrite circuits over bins and classes as circuits over the stored columns.

    A circuit that is constant becomes a plain number.
    """
    holds = set(stored).__contains__
    used = [
        Column.parse(name)
        for name in column_names(one for one in outputs if isinstance(one, Expression))
    ]
    coding: dict[str, tuple[dict[str, int], int]] = {}
    read: set[Column] = set()
    for asked in used:
        found = stored_terms(schema, holds, asked)
        if found is not None:
            coding[str(asked)] = {str(one): c for one, c in found[0].items()}, found[1]
            read |= found[0].keys()
    indicators = (one for one in stored if encoding_of(one).is_indicator(one, schema, holds))
    first = next((one for one in indicators if one in read), None)
    return use_stored_columns(outputs, coding, None if first is None else str(first))


def rewrite_in_stored(
    outputs: Sequence[Expression], schema: PublicSchema, stored: Collection[Column]
) -> tuple[list[Expression], list[int]]:
    """Rewrite totals over the stored columns, with numbers in digits.

    Return these totals, and the power of 2 that each counts for.
    """
    found = rewrite_over_stored(outputs, schema, stored)
    return split_into_digits(
        [one for one in found if isinstance(one, Expression)], digits_among(stored)
    )


def stored_terms(schema: PublicSchema, holds: Holds, column: Column) -> Terms | None:
    """Return a bin or class as a sum of stored columns with coefficients, and a number in every
    row.

    None where it is stored itself, or does not follow from what is.
    """
    return None if holds(column) else encoding_of(column).from_stored(column, schema, holds)


def digits_among(columns: Iterable[Column]) -> Digits:
    """Return the numbers that are stored in digits."""
    found: dict[str, list[tuple[int, str]]] = {}
    for column in columns:
        part = encoding_of(column).part_of(column)
        if part is not None:
            found.setdefault(str(part[0]), []).append((part[1], str(column)))
    return found


def check_column(schema: PublicSchema, column: Column) -> None:
    """Refuse a column that no table of this schema can have, and say why."""
    encoding_of(column).check(column, schema)


def column_bound(schema: PublicSchema, column: Column, weight_bound: int = 1) -> int:
    """Return the largest absolute value that the column can hold, from public knowledge alone."""
    known = encoding_of(column)
    known.check(column, schema)
    return known.bound(column, schema, weight_bound)


def column_ranges(
    schema: PublicSchema, columns: Iterable[Column], weight_bound: int = 1
) -> dict[str, ColumnRange]:
    """Return what is publicly known of each column, for the bounds reader."""
    found: dict[str, ColumnRange] = {}
    for column in columns:
        known = encoding_of(column)
        known.check(column, schema)
        found[str(column)] = known.range(column, schema, weight_bound)
    return found


class SchemaLike(Protocol):
    """What tables need of a schema, the owner's or the public one."""

    def index(self, variable: str | int) -> int:
        """Return the position of a variable."""

    def public(self) -> PublicSchema:
        """Return what everybody may know."""


class ColumnAlgebra(ABC, Generic[E]):
    """Columns of clear and encrypted tables alike, and what follows from them by ``+`` and ``*
    int``.

    A subclass has a `schema` and says which columns it `holds` and what their `values` are.
    """

    schema: SchemaLike

    @abstractmethod
    def values(self, column: Column) -> E:
        """Return one stored column."""

    @abstractmethod
    def holds(self, column: Column) -> bool:
        """Return whether the column is stored."""

    def _variable(self, variable: str | int) -> tuple[int, PublicVariable]:
        position = self.schema.index(variable)
        return position, self.schema.public().variables[position]

    def _binned_variable(self, variable: str | int) -> tuple[int, PublicVariable]:
        position, known = self._variable(variable)
        if not known.n_bins:
            raise SchemaError(
                f"variable {variable!r} is a number: it has no bins, ask for numbers({variable!r})",
                code="number-without-bins",
            )
        return position, known

    def bins(self, variable: str | int) -> list[E]:
        """Return the indicators of all bins of a variable (paper, section 2.2, method 1)."""
        position, known = self._binned_variable(variable)
        return [self._combine({Column("onehot", position, k): 1}) for k in range(known.n_bins)]

    def range_sum(self, variable: str | int, bins: Iterable[int]) -> E:
        r"""Return indicator of the rows whose bin is in the set K = `bins`.

        .. math:: \sum_{k \in K} \tilde x_{ijk}

        (paper, eq. range). The set must not be empty: an encryption of nothing but zeros would not
        be one.
        """
        position, known = self._binned_variable(variable)
        chosen = sorted(set(bins))
        if not chosen or chosen[0] < 0 or chosen[-1] >= known.n_bins:
            raise SchemaError(
                f"variable {variable!r}: bins {chosen} are no range of its bins "
                f"0..{known.n_bins - 1}",
                code="not-a-range",
            )
        return self._combine({Column("onehot", position, k): 1 for k in chosen})

    def codes(self, variable: str | int, *, centred: bool = False) -> E:
        """Return ordinal codes 1..m of a variable (method 2), or centred ones; derived from the
        bins if not stored.
        """
        position, known = self._variable(variable)
        known.check_codes(variable)
        column = Column("centred" if centred else "ordinal", position)
        if self.holds(column):
            return self.values(column)
        weights = code_values(known.n_bins, centred=centred)
        if not any(weights):
            raise SchemaError(
                f"variable {variable!r} has one bin: its centred code is 0 in every row",
                code="single-bin",
            )
        return self._combine({Column("onehot", position, k): w for k, w in enumerate(weights) if w})

    def _combine(self, weights: Mapping[Column, int]) -> E:
        """Add bins of one variable times numbers, in terms of few stored columns."""
        terms: dict[Column, int] = {}
        constant = 0
        for column, weight in weights.items():
            follows = stored_terms(self.schema.public(), self.holds, column)
            found, added = ({column: 1}, 0) if follows is None else follows
            constant += weight * added
            for stored, coefficient in found.items():
                terms[stored] = terms.get(stored, 0) + weight * coefficient
        if not any(terms.values()):  # the same number in every row
            one = self.values(next(iter(terms)))
            nothing: E = operator.sub(one, one)
            return _plus(nothing, constant)
        return _plus(
            _sum(_times(self.values(stored), c) for stored, c in terms.items() if c), constant
        )

    def numbers(self, variable: str | int) -> E:
        """Return the fixed-point integers of a variable of kind number."""
        position, known = self._variable(variable)
        if known.kind != "number":
            raise SchemaError(
                f"variable {variable!r} is {known.kind}: ",
                KEEP_NUMBERS,
            )
        return self._whole_numbers(position)

    def _whole_numbers(self, position: int) -> E:
        return self.values(Column("number", position))

    def classes(self, fold: int | None = None) -> list[E]:
        """Return the indicators of all classes, times the weights; of one fold if given."""
        if not self.schema.public().n_classes:
            raise SchemaError(
                "the schema has no classes: ",
                Cure("name the target", "infer it with target=, or give classes="),
            )
        return [self._combine({one: 1}) for one in classes_of(self.schema.public(), fold)]


def _sum(terms: Iterable[E]) -> E:
    # Not sum(): that starts from 0, and an encrypted column cannot be added to an int without a
    # copy.
    total: E = reduce(operator.add, terms)
    return total


def _plus(term: E, number: int) -> E:
    shifted: E = operator.add(term, number) if number else term
    return shifted


def _times(term: E, weight: int) -> E:
    scaled: E = term if weight == 1 else operator.mul(term, weight)
    return scaled
