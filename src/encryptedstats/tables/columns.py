"""Names for the integer columns of a table, which of them are stored, and what can be made of them by adding and scaling.

Questions are written with an indicator of every bin and every class. Of these one less is stored than there are: `stored_groups`
is the one place that says which, and `in_stored` rewrites circuits to what is stored. Clear and encrypted tables share this code:
`ColumnAlgebra` derives range sums and ordinal codes by additions and multiplications by integers alone, whatever the columns are
made of. No pandas here.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, Protocol, TypeVar

from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.coding import over_stored
from encryptedstats.circuits.digits import Digits, digit_bounds, in_digits
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.errors import Cure, SchemaError
from encryptedstats.tables.binning import code_values
from encryptedstats.tables.variables import KEEP_NUMBERS, ORDERED_KINDS, TARGET, PublicSchema, PublicVariable

E = TypeVar("E")

ENCODINGS = ("onehot", "cumulative", "ordinal", "centred", "number", "present", "digit", "class", "rows")
MAX_NUMBER_BITS = 62
#: How the encodings without an index are spelt in keys.
_SUFFIXES = {"ordinal": "code", "centred": "centred", "number": "number", "present": "present"}
#: Encodings with an index: of a bin, of a digit, of a class.
INDEXED = ("onehot", "cumulative", "digit", "class")
#: Encodings of which there is one column for each fold too, and which have no variable.
OF_ROWS = ("class", "rows")
#: What is stored whatever encodings of bins are chosen.
ALWAYS_STORED = ("number", "digit", "present", *OF_ROWS)
_KEY = re.compile(
    r"(?:v(?P<variable>{n})|(?P<target>target))\.(?:bin(?P<bin>{n})|upto(?P<upto>{n})|(?P<suffix>code|centred|number|present)"
    r"|digit(?P<digit>{n})\.bits(?P<bits>{n}))"
    r"|(?:class(?P<class>{n})|(?P<rows>rows))(?:\.fold(?P<fold>{n}))?".replace("{n}", "0|[1-9][0-9]*")
)


@dataclass(frozen=True)
class Column:
    """Which integer column of a table: an encoding of a variable, or the indicator of a class.

    Parameters
    ----------
    encoding
        ``"onehot"`` (indicator of bin `index`), ``"cumulative"`` (of bins 0 to `index`), ``"ordinal"`` (codes 1..m),
        ``"centred"`` (codes symmetric about 0), ``"number"`` (fixed point, 0 where it is missing), ``"digit"`` (digit `index` of a
        number), ``"present"`` (whether a number is there), ``"class"`` (indicator of class `index`, times the weight of the row)
        or, beside a target that is a number, ``"rows"`` (the weight of the row).
    variable
        Position of the variable; -1 for the target, and for rows.
    index
        Bin, digit or class, from 0; 0 for the other encodings.
    fold
        For a class, and for rows: only those of this cross-validation fold.
    bits
        For a digit: the size of all but the last.

    Examples
    --------
    >>> str(Column("onehot", 3, 2)), str(Column("cumulative", 3, 2)), str(Column("class", -1, 1, fold=0))
    ('v3.bin2', 'v3.upto2', 'class1.fold0')
    >>> Column.parse("v7.number")
    Column(encoding='number', variable=7, index=0, fold=None, bits=None)
    """

    encoding: str
    variable: int
    index: int = 0
    fold: int | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise SchemaError(f"encoding {self.encoding!r} does not exist; the encodings are {', '.join(ENCODINGS)}")
        least = -1 if self.encoding in ("number", "digit", "present") else 0
        if (self.variable != -1) if self.encoding in OF_ROWS else (self.variable < least or self.fold is not None):
            raise SchemaError(f"{self!r}: a class has variable -1, any other column has a variable and no fold")
        if self.index < 0 or (self.fold or 0) < 0 or (self.index and self.encoding not in INDEXED):
            raise SchemaError(f"{self!r}: index and fold count from 0, and only bins, digits and classes have an index")
        if (self.bits is not None) != (self.encoding == "digit") or not 2 <= (self.bits or 2) <= MAX_NUMBER_BITS:
            raise SchemaError(f"{self!r}: a digit has 2 to {MAX_NUMBER_BITS} bits, and nothing else has")

    def __str__(self) -> str:
        if self.encoding in OF_ROWS:
            name = f"class{self.index}" if self.encoding == "class" else "rows"
            return name + ("" if self.fold is None else f".fold{self.fold}")
        prefix = {"digit": "digit", "cumulative": "upto"}.get(self.encoding, "bin")
        indexed = f"{prefix}{self.index}" + (f".bits{self.bits}" if self.encoding == "digit" else "")
        return f"{TARGET if self.variable == -1 else f'v{self.variable}'}." + _SUFFIXES.get(self.encoding, indexed)

    @classmethod
    def parse(cls, key: str) -> Column:
        """The column of a key: strict inverse of ``str``."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise SchemaError(f"{key!r} is not the key of a column, such as 'v3.bin2', 'v3.code' or 'class1.fold0'")
        part = match.groupdict()
        if part["class"] is not None or part["rows"] is not None:
            fold = None if part["fold"] is None else int(part["fold"])
            return cls("rows", -1, 0, fold) if part["class"] is None else cls("class", -1, int(part["class"]), fold)
        variable = -1 if part["target"] is not None else int(part["variable"])
        if part["bin"] is not None:
            return cls("onehot", variable, int(part["bin"]))
        if part["upto"] is not None:
            return cls("cumulative", variable, int(part["upto"]))
        if part["digit"] is not None:
            return cls("digit", variable, int(part["digit"]), bits=int(part["bits"]))
        encoding = next(name for name, suffix in _SUFFIXES.items() if suffix == part["suffix"])
        return cls(encoding, variable)


# -- which columns are stored ------------------------------------------------------------------------------------------------

CUMULATIVE, ALL_BUT_ONE, AT_MOST_ONE, EVERY = "cumulative", "all but one", "at most one", "every one"
NUMBER, CODE, WEIGHED = "number", "code", "weighed"


@dataclass(frozen=True)
class ColumnGroup:
    """Stored columns that say one thing of a row: a variable, its class, or the class within one fold.

    Attributes
    ----------
    variable
        Position of the variable; -1 for the target.
    coding
        ``"cumulative"``: of k ordered bins the k - 1 indicators of *at most bin j* (a bin for missing values comes last).
        ``"all but one"``: of k levels or classes the indicators of the first k - 1; a row with none of them is of the last.
        ``"every one"``: of a variable with a single bin its indicator. ``"at most one"``: the classes of one fold; a row with
        none of them is in another fold. ``"weighed"``: classes or rows times the weight of the row. ``"number"``: an integer,
        whole or in digits, and where it may be missing whether it is there. ``"code"``: ordinal or centred codes.
    columns
        As they are stored.
    """

    variable: int
    coding: str
    columns: tuple[Column, ...]

    @property
    def states(self) -> tuple[tuple[int, ...], ...] | None:
        """All joint values that the columns can have in a row; None where they are not indicators. Padding is 0 in all of them.

        >>> ColumnGroup(0, "cumulative", (Column("cumulative", 0, 0), Column("cumulative", 0, 1))).states
        ((1, 1), (0, 1), (0, 0))
        """
        k = len(self.columns)
        if self.coding == CUMULATIVE:
            return tuple(tuple(int(place >= value) for place in range(k)) for value in range(k + 1))
        if self.coding in (ALL_BUT_ONE, AT_MOST_ONE):
            return tuple(tuple(int(place == value) for place in range(k)) for value in range(k + 1))
        return ((1,),) if self.coding == EVERY else None


def stored_groups(
    schema: PublicSchema,
    encodings: Sequence[str] = ("onehot",),
    *,
    classes: bool = False,
    n_folds: int = 0,
    digit_bits: int | None = None,
    weighed: bool = False,
) -> list[ColumnGroup]:
    """What a table stores with these encodings, in its canonical order: for every variable its columns, and how they are coded.

    Numbers are always among them, those of more than ``digit_bits`` in digits, and where they may be missing whether they are
    there. Ordinal and centred codes exist for ordered variables without a bin for missing values only. `classes` is whether the
    target is known, `weighed` whether rows have weights: these are not public, so that no class follows from the others.
    """
    unknown = set(encodings) - {"onehot", "ordinal", "centred"}
    if isinstance(encodings, str) or unknown:
        raise SchemaError(f"encodings={encodings!r}: a sequence of 'onehot', 'ordinal' and 'centred' is needed")
    groups: list[ColumnGroup] = []
    for j, variable in enumerate(schema.variables):
        groups += _number_groups(variable, j, digit_bits)
        if "onehot" in encodings:
            groups += _bin_groups(variable, j)
        if variable.has_codes:
            groups += [ColumnGroup(j, CODE, (Column(name, j),)) for name in ("ordinal", "centred") if name in encodings]
    if classes:
        groups += _target_groups(schema, n_folds, digit_bits, weighed=weighed)
    return groups


def table_columns(schema: PublicSchema, encodings: Sequence[str] = ("onehot",), **facts: Any) -> list[Column]:
    """All columns that a table stores, in their canonical order: those of `stored_groups`, with the same arguments."""
    return [column for group in stored_groups(schema, encodings, **facts) for column in group.columns]


def _bin_groups(variable: PublicVariable, position: int) -> list[ColumnGroup]:
    n_bins = variable.n_bins
    if n_bins < 2:
        return [ColumnGroup(position, EVERY, (Column("onehot", position, 0),))] if n_bins else []
    coding, encoding = (CUMULATIVE, "cumulative") if variable.kind in ORDERED_KINDS else (ALL_BUT_ONE, "onehot")
    return [ColumnGroup(position, coding, tuple(Column(encoding, position, k) for k in range(n_bins - 1)))]


def _target_groups(
    schema: PublicSchema, n_folds: int, digit_bits: int | None, *, weighed: bool
) -> Iterator[ColumnGroup]:
    if schema.n_classes:
        whole = WEIGHED if weighed else ALL_BUT_ONE
        stored = schema.n_classes - (not weighed)
        yield ColumnGroup(-1, whole, tuple(Column("class", -1, c) for c in range(stored)))
        for fold in range(n_folds):
            columns = tuple(Column("class", -1, c, fold) for c in range(schema.n_classes))
            yield ColumnGroup(-1, WEIGHED if weighed else AT_MOST_ONE, columns)
    if schema.target_number is not None:
        yield from _number_groups(schema.target_number, -1, digit_bits)
        yield from (ColumnGroup(-1, WEIGHED, (Column("rows", -1, 0, fold),)) for fold in [None, *range(n_folds)])


def _number_groups(variable: PublicVariable, position: int, digit_bits: int | None) -> list[ColumnGroup]:
    if variable.kind != "number":
        return []
    present = [Column("present", position)] if variable.missing_bin else []
    count = 1 if digit_bits is None else len(digit_bounds(*variable.bounds, digit_bits))
    if count == 1:
        return [ColumnGroup(position, NUMBER, (Column("number", position), *present))]
    digits = (Column("digit", position, k, bits=digit_bits) for k in range(count))
    return [ColumnGroup(position, NUMBER, (*digits, *present))]


# -- from the columns of questions to those that are stored ---------------------------------------------------------------------


def asked_columns(schema: PublicSchema, stored: Iterable[Column]) -> list[Column]:
    """The columns as questions are written with them: whole numbers, all bins and all classes, however they are stored."""
    found: dict[Column, None] = {}
    for column in stored:
        if column.encoding == "digit":
            found[Column("number", column.variable)] = None
        elif column.encoding in ("onehot", "cumulative"):
            found |= dict.fromkeys(_bins_of(schema, column.variable))
        elif column.encoding == "class":
            found |= dict.fromkeys(_classes_of(schema, column.fold))
        else:
            found[column] = None
    return list(found)


def _bins_of(schema: PublicSchema, variable: int) -> list[Column]:
    return [Column("onehot", variable, k) for k in range(schema.variables[variable].n_bins)]


def _classes_of(schema: PublicSchema, fold: int | None) -> list[Column]:
    return [Column("class", -1, c, fold) for c in range(schema.n_classes)]


def over_stored_columns(
    outputs: Sequence[Expression | int], schema: PublicSchema, stored: Collection[Column]
) -> list[Expression | int]:
    """Circuits over bins and classes as circuits over the stored columns; plain numbers where they are the same in every row."""
    known = set(stored)
    used = [Column.parse(name) for name in column_names(one for one in outputs if isinstance(one, Expression))]
    coding: dict[str, tuple[dict[str, int], int]] = {}
    read: set[Column] = set()
    for asked in used:
        found = stored_terms(schema, known.__contains__, asked)
        if found is not None:
            coding[str(asked)] = {str(one): c for one, c in found[0].items()}, found[1]
            read |= found[0].keys()
    indicators = [one for one in stored if _is_indicator(schema, one, known)] if coding else []
    first = next((one for one in indicators if one in read), None)
    return over_stored(outputs, coding, None if first is None else str(first))


def in_stored(
    outputs: Sequence[Expression], schema: PublicSchema, stored: Collection[Column]
) -> tuple[list[Expression], list[int]]:
    """Totals over the stored columns, of numbers in digits the parts; and the power of 2 that each of these counts for."""
    found = over_stored_columns(outputs, schema, stored)
    return in_digits([one for one in found if isinstance(one, Expression)], digits_among(stored))


def stored_terms(
    schema: PublicSchema, holds: Callable[[Column], bool], column: Column
) -> tuple[dict[Column, int], int] | None:
    """A bin or class as a sum of stored columns with coefficients, and a number in every row.

    None where it is stored itself, or does not follow from what is.
    """
    if column.encoding not in ("onehot", "class") or holds(column):
        return None
    every = _classes_of(schema, column.fold) if column.encoding == "class" else _bins_of(schema, column.variable)
    is_last = column.index == len(every) - 1
    if column.encoding == "onehot" and holds(Column("cumulative", column.variable, 0)):
        terms = {} if is_last else {Column("cumulative", column.variable, column.index): 1}
        if column.index:
            terms[Column("cumulative", column.variable, column.index - 1)] = -1
        return terms, int(is_last)
    follows = is_last and column.fold is None and len(every) > 1 and all(map(holds, every[:-1]))
    return (dict.fromkeys(every[:-1], -1), 1) if follows else None


def _is_indicator(schema: PublicSchema, column: Column, stored: Collection[Column]) -> bool:
    """Whether a stored column is 0 or 1 in every row: a bin, or a class that is not times a weight."""
    if column.encoding == "class":
        return Column("class", -1, schema.n_classes - 1) not in stored
    return column.encoding in ("onehot", "cumulative")


def digits_among(columns: Iterable[Column]) -> Digits:
    """The numbers that are stored in digits."""
    found: dict[str, list[tuple[int, str]]] = {}
    for column in columns:
        if column.encoding == "digit":
            digits = found.setdefault(str(Column("number", column.variable)), [])
            digits.append((column.index * (column.bits or 0), str(column)))
    return found


def check_column(schema: PublicSchema, column: Column) -> None:
    """Refuse a column that no table of this schema can have, and say why."""
    if column.encoding == "class":
        if column.index >= schema.n_classes:
            raise SchemaError(f"no column {column}: the schema has {schema.n_classes} classes")
        return
    variable = schema.at(column.variable)
    if column.encoding == "rows":
        return
    if column.encoding == "present" and not (variable.kind == "number" and variable.missing_bin):
        raise SchemaError(f"no column {column}: variable {variable.id!r} is no number that may be missing")
    if column.encoding in ("ordinal", "centred"):
        variable.check_codes()
    elif column.encoding in ("number", "digit") and variable.kind != "number":
        raise SchemaError(f"no column {column}: variable {variable.id!r} is {variable.kind}, not a number")
    elif column.encoding == "digit" and column.index >= len(_digit_bounds(variable, column)):
        raise SchemaError(f"no column {column}: the numbers of variable {variable.id!r} have fewer digits")
    elif column.encoding == "onehot" and column.index >= variable.n_bins:
        raise SchemaError(f"no column {column}: variable {variable.id!r} has {variable.n_bins} bins")
    elif column.encoding == "cumulative" and variable.kind not in ORDERED_KINDS:
        raise SchemaError(
            f"no column {column}: variable {variable.id!r} is {variable.kind}, and its bins have no order"
        )
    elif column.encoding == "cumulative" and column.index >= variable.n_bins - 1:
        raise SchemaError(
            f"no column {column}: variable {variable.id!r} has {variable.n_bins - 1} cuts between its bins"
        )


def column_bound(schema: PublicSchema, column: Column, weight_bound: int = 1) -> int:
    """The largest absolute value that the column can hold, from public knowledge alone."""
    check_column(schema, column)
    if column.encoding in OF_ROWS:
        return weight_bound
    if column.encoding in ("onehot", "cumulative", "present"):
        return 1
    variable = schema.at(column.variable)
    if column.encoding == "digit":
        return _digit_bounds(variable, column)[column.index].largest
    if column.encoding == "number":
        return max(abs(bound) for bound in (variable.low, variable.high) if bound is not None)
    return max(map(abs, code_values(variable.n_bins, centred=column.encoding == "centred")))


def _digit_bounds(variable: PublicVariable, column: Column) -> list[Interval]:
    return digit_bounds(*variable.bounds, column.bits or MAX_NUMBER_BITS)


def column_ranges(schema: PublicSchema, columns: Iterable[Column], weight_bound: int = 1) -> dict[str, ColumnRange]:
    """What is publicly known of each column, for the bounds reader: its values, and of indicators in which bins they are 1."""
    return {str(column): _column_range(schema, column, weight_bound) for column in columns}


def _column_range(schema: PublicSchema, column: Column, weight_bound: int) -> ColumnRange:
    bound = column_bound(schema, column, weight_bound)
    if column.encoding in ("onehot", "cumulative"):
        first = column.index if column.encoding == "onehot" else 0
        return ColumnRange(0, 1, f"v{column.variable}", tuple(range(first, column.index + 1)))
    if column.encoding == "class":
        exclusive = weight_bound == 1 and column.fold is None
        return ColumnRange(0, bound, group="class" if exclusive else None)
    if column.encoding == "number":
        return ColumnRange(*schema.at(column.variable).bounds)
    if column.encoding == "digit":
        digit = _digit_bounds(schema.at(column.variable), column)[column.index]
        return ColumnRange(digit.low, digit.high)
    return ColumnRange(-bound if column.encoding == "centred" else 0, bound)


class SchemaLike(Protocol):
    """What tables need of a schema, be it the owner's or the public one."""

    def index(self, variable: str | int) -> int:
        """Position of a variable."""

    def public(self) -> PublicSchema:
        """What everybody may know."""


class ColumnAlgebra(ABC, Generic[E]):
    """The columns of clear and encrypted tables alike, and what follows from them by ``+`` and ``* int``.

    A subclass has a `schema` and says which columns it `holds` and what their `values` are.
    """

    schema: SchemaLike

    @abstractmethod
    def values(self, column: Column) -> E:
        """One stored column."""

    @abstractmethod
    def holds(self, column: Column) -> bool:
        """Whether the column is stored."""

    def _variable(self, variable: str | int) -> tuple[int, PublicVariable]:
        position = self.schema.index(variable)
        return position, self.schema.public().variables[position]

    def _binned(self, variable: str | int) -> tuple[int, PublicVariable]:
        position, known = self._variable(variable)
        if known.kind == "number":
            raise SchemaError(f"variable {variable!r} is a number: it has no bins, ask for numbers({variable!r})")
        return position, known

    def bins(self, variable: str | int) -> list[E]:
        """The indicators of all bins of a variable (paper, section 2.2, method 1)."""
        position, known = self._binned(variable)
        return [self._combined({Column("onehot", position, k): 1}) for k in range(known.n_bins)]

    def range_sum(self, variable: str | int, bins: Iterable[int]) -> E:
        r"""Indicator of the rows whose bin is in the set K = `bins`.

        .. math:: \sum_{k \in K} \tilde x_{ijk}

        (paper, eq. range). The set must not be empty: an encryption of nothing but zeros would not be one.
        """
        position, known = self._binned(variable)
        chosen = sorted(set(bins))
        if not chosen or chosen[0] < 0 or chosen[-1] >= known.n_bins:
            raise SchemaError(f"variable {variable!r}: bins {chosen} are no range of its bins 0..{known.n_bins - 1}")
        return self._combined({Column("onehot", position, k): 1 for k in chosen})

    def codes(self, variable: str | int, *, centred: bool = False) -> E:
        """Ordinal codes 1..m of a variable (method 2), or centred ones; derived from the bins when not stored."""
        position, known = self._variable(variable)
        known.check_codes(variable)
        column = Column("centred" if centred else "ordinal", position)
        if self.holds(column):
            return self.values(column)
        weights = code_values(known.n_bins, centred=centred)
        if not any(weights):
            raise SchemaError(f"variable {variable!r} has one bin: its centred code is 0 in every row")
        return self._combined({Column("onehot", position, k): w for k, w in enumerate(weights) if w})

    def _combined(self, weights: Mapping[Column, int]) -> E:
        """A sum of bins of one variable, each times a number: of stored columns, which bins that follow each other are few of."""
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
        return _plus(_sum(_times(self.values(stored), c) for stored, c in terms.items() if c), constant)

    def numbers(self, variable: str | int) -> E:
        """The fixed-point integers of a variable of kind number."""
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
        """The indicators of all classes, times the weights; of one fold if given."""
        if not self.schema.public().n_classes:
            raise SchemaError(
                "the schema has no classes: ", Cure("name the target", "infer it with target=, or give classes=")
            )
        return [self._combined({one: 1}) for one in _classes_of(self.schema.public(), fold)]


def _sum(terms: Iterable[E]) -> E:
    # Not sum(): that starts from 0, and an encrypted column cannot be added to an int without a copy.
    total: E = reduce(operator.add, terms)
    return total


def _plus(term: E, number: int) -> E:
    shifted: E = operator.add(term, number) if number else term
    return shifted


def _times(term: E, weight: int) -> E:
    scaled: E = term if weight == 1 else operator.mul(term, weight)
    return scaled
