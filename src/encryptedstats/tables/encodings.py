"""Encodings: what the integer columns of a table mean.

A `Column` names an encoding and the variable, bin, digit or class that it encodes. All that follows
from the encoding is said once, by its class here: key in files, values, bounds, storage, and what
one row can hold. Tables, the bounds reader, validity checks and sensitivity ask the class, and a
class that lacks an answer cannot be registered.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.expressions import Expression, column, sum_of
from encryptedstats.circuits.passes.digits import digit_bounds, digit_of
from encryptedstats.errors import ArgumentTypeError, Cure, ParameterError, SchemaError
from encryptedstats.tables.schema.bins import centred_codes, code_values, ordinal_codes
from encryptedstats.tables.schema.variables import TARGET, PublicSchema, PublicVariable

if TYPE_CHECKING:
    from encryptedstats.tables.table import Table

MAX_NUMBER_BITS: Final = 62
GRID_BASE: Final = 32
MAX_GRID: Final = GRID_BASE**2
#: Stands for a missing number in clear tables: far below any that a variable may hold.
GAP: Final = np.iinfo(np.int64).min

ALL_BUT_ONE, AT_MOST_ONE, EVERY = "all but one", "at most one", "every one"
CUMULATIVE, NUMBER, CODE, WEIGHED = "cumulative", "number", "code", "weighed"

_KEY: Final = re.compile(
    r"(?:(?:v(?P<variable>{n})|(?P<target>target))\.)?(?P<word>[a-z]{2,})(?P<index>{n})?"
    r"(?:\.bits(?P<bits>{n}))?(?:\.fold(?P<fold>{n}))?".replace("{n}", "0|[1-9][0-9]*")
)


@dataclass(frozen=True)
class Column:
    """An integer column of a table: an encoding of a variable, or the indicator of a class.

    Parameters
    ----------
    encoding
        ``"onehot"`` (indicator of bin `index`), ``"cumulative"`` (of bins 0 to `index`),
        ``"ordinal"`` (codes 1..m), ``"centred"`` (codes symmetric about 0), ``"number"`` (fixed
        point, 0 where it is missing), ``"digit"`` (digit `index` of a number), ``"present"``
        (whether a number is there), ``"grid"`` (indicator of a digit to base 32), ``"class"``
        (indicator of class `index`, times the weight of the row), ``"rows"`` (the weight of the
        row, where the target is a number), or another that is registered.
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
    >>> str(Column("onehot", 3, 2)), str(Column("cumulative", 3, 2))
    ('v3.bin2', 'v3.upto2')
    >>> str(Column("class", -1, 1, fold=0))
    'class1.fold0'
    >>> Column.parse("v7.number")
    Column(encoding='number', variable=7, index=0, fold=None, bits=None)
    """

    encoding: str
    variable: int
    index: int = 0
    fold: int | None = None
    bits: int | None = None

    def __post_init__(self) -> None:
        known = find_encoding(self.encoding)
        if not known.encodes(self.variable) or (self.fold is not None and not known.counts_rows):
            why = "a class has variable -1, any other column has a variable and no fold"
            raise SchemaError(f"{self!r}: {why}", code="wrong-column-variable")
        if self.index < 0 or (self.fold or 0) < 0 or (self.index and not known.is_indexed):
            why = "index and fold count from 0, and only bins, digits and classes have an index"
            raise SchemaError(f"{self!r}: {why}", code="wrong-column-index")
        has_bits = self.bits is not None
        if has_bits != known.has_bits or not 2 <= (self.bits or 2) <= MAX_NUMBER_BITS:
            why = f"a digit has 2 to {MAX_NUMBER_BITS} bits, and nothing else has"
            raise SchemaError(f"{self!r}: {why}", code="wrong-digit-bits")

    def __str__(self) -> str:
        known = find_encoding(self.encoding)
        key = f"{known.word}{self.index}" if known.is_indexed else known.word
        if known.counts_rows:
            return key if self.fold is None else f"{key}.fold{self.fold}"
        variable = TARGET if self.variable == -1 else f"v{self.variable}"
        return f"{variable}.{key}" if self.bits is None else f"{variable}.{key}.bits{self.bits}"

    @classmethod
    def parse(cls, key: str) -> Column:
        """Return the column of a key: the strict inverse of ``str``."""
        match = _KEY.fullmatch(key)
        known = None if match is None else _by_word.get(match["word"])
        if match is None or known is None or not known.fits_key(match):
            examples = "'v3.bin2', 'v3.code' or 'class1.fold0'"
            raise SchemaError(
                f"{key!r} is not the key of a column, such as {examples}",
                code="malformed-column-key",
            )
        variable, index = int(match["variable"] or -1), int(match["index"] or 0)
        fold, bits = (None if part is None else int(part) for part in match.group("fold", "bits"))
        return cls(known.name, variable, index, fold, bits)


@dataclass(frozen=True)
class ColumnGroup:
    """Stored columns that encode one thing of a row: a variable, its class, or the class in one
    fold.

    Attributes
    ----------
    variable
        Position of the variable; -1 for the target.
    coding
        ``"cumulative"``: of k ordered bins the k - 1 indicators of *at most bin j* (a bin for
        missing values comes last). ``"all but one"``: of k levels or classes the indicators of
        the first k - 1; a row with none of them is of the last. ``"every one"``: of a variable
        with a single bin its indicator. ``"at most one"``: the classes of one fold; a row with
        none of them is in another fold. ``"weighed"``: classes or rows times the weight of the
        row. ``"number"``: an integer, whole or in digits, and where it may be missing whether it
        is there. ``"code"``: ordinal or centred codes.
    columns
        As they are stored.
    """

    variable: int
    coding: str
    columns: tuple[Column, ...]

    @property
    def encoding(self) -> Encoding:
        """The encoding of its first column, which answers for the group."""
        return encoding_of(self.columns[0])

    @property
    def states(self) -> tuple[tuple[int, ...], ...] | None:
        """All joint values of the columns in a row; None if they are not indicators.

        Padding is 0 in all of them.

        >>> columns = Column("cumulative", 0, 0), Column("cumulative", 0, 1)
        >>> ColumnGroup(0, "cumulative", columns).states
        ((1, 1), (0, 1), (0, 0))
        """
        return self.encoding.states(self)


@dataclass(frozen=True)
class Storage:
    """What decides, with the schema, how a table stores its columns.

    Attributes
    ----------
    n_folds
        Number of cross-validation folds.
    digit_bits
        Numbers of more bits are stored in digits of this size; None for whole numbers.
    weighed
        Whether rows have weights. These are private, so that no class follows from the others.
    """

    n_folds: int = 0
    digit_bits: int | None = None
    weighed: bool = False


@dataclass(frozen=True)
class RowState:
    """A possible row, as far as one variable or the target is concerned.

    Attributes
    ----------
    bin, n_bins : int
        Of a variable with bins; the last bin where a number is missing.
    number : int, Interval or None
        Of a number: its value, or the bounds it lies in; None where it is missing.
    target, fold : int, int or None
        The class of the row, and the fold it is in.
    """

    bin: int = 0
    n_bins: int = 0
    number: int | Interval | None = None
    target: int = 0
    fold: int | None = None


#: Whether a table holds a column.
Holds = Callable[[Column], bool]
#: A sum of stored columns with coefficients, and a number that is added in every row.
Terms = tuple[Mapping[Column, int], int]
#: Something that is 0 in every row of a good table: an expression, and a number added to it.
Condition = tuple[Expression, int]


class Encoding(ABC):
    """The meaning of the columns of one encoding.

    A subclass sets the attributes below, overrides the abstract methods, and is registered with
    `register_encoding`. The other methods have an answer that suits most encodings.

    Attributes
    ----------
    name
        What `Column.encoding` is.
    word
        How its keys call it, in two or more small letters: ``bin`` for ``v3.bin2``.
    stored_as
        Stored if ``encodings=`` of a table has this name; None if it is always stored.
    is_indexed, has_bits
        Whether its columns have an index, and a size in bits.
    encodes_target
        Whether it also encodes a target that is a number.
    counts_rows
        Whether it counts rows by their weights: its columns have no variable, and may be of a fold.
    encodes_number
        Whether it encodes a number that is kept, and not the bins of the variable.
    holds_numbers
        Whether its values are numbers as they are, so that 0 and 1 are values and no indicators.
    """

    name: ClassVar[str]
    word: ClassVar[str]
    stored_as: ClassVar[str | None]
    is_indexed: ClassVar[bool] = False
    has_bits: ClassVar[bool] = False
    encodes_target: ClassVar[bool] = False
    counts_rows: ClassVar[bool] = False
    encodes_number: ClassVar[bool] = False
    holds_numbers: ClassVar[bool] = False

    def encodes(self, variable: int) -> bool:
        """Return whether it has columns of the variable at a position; -1 is the target."""
        if variable == -1:
            return self.encodes_target or self.counts_rows
        return variable >= 0 and not self.counts_rows

    def fits_key(self, match: re.Match[str]) -> bool:
        """Return whether a key has the parts that this encoding needs, and no others."""
        return (
            (match["index"] is not None) == self.is_indexed
            and (match["bits"] is not None) == self.has_bits
            and (match["variable"] is None and match["target"] is None) == self.counts_rows
            and (match["fold"] is None or self.counts_rows)
        )

    @abstractmethod
    def check(self, column: Column, schema: PublicSchema) -> None:
        """Refuse a column that no table of this schema can have, and say why."""

    @abstractmethod
    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        """Return what is publicly known of the values of a column."""

    @abstractmethod
    def values(self, column: Column, table: Table) -> NDArray[Any]:
        """Return the column of a clear table; indicators as true and false."""

    @abstractmethod
    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int | Interval:
        """Return the value of the column in one row of weight 1.

        Raise `ParameterError` if totals over the column cannot be released.
        """

    @abstractmethod
    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        """Return the groups that are stored of a variable; none if another encoding stores it."""

    @abstractmethod
    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        """Return all joint values of the columns in a row; None if they are not indicators."""

    @abstractmethod
    def conditions(self, group: ColumnGroup) -> list[Condition]:
        """Return what is 0 in every row with valid values, by equations of small degree."""

    def bound(self, column: Column, schema: PublicSchema, weight_bound: int) -> int:
        """Return the largest absolute value that the column can hold."""
        known = self.range(column, schema, weight_bound)
        return max(abs(known.low), abs(known.high))

    def question_columns(self, column: Column, schema: PublicSchema) -> Sequence[Column]:
        """Return the columns that questions can use if this one is stored."""
        return (column,)

    def from_stored(self, column: Column, schema: PublicSchema, holds: Holds) -> Terms | None:
        """Write the column as a sum of columns that a table holds; None if it does not follow."""
        return None

    def part_of(self, column: Column) -> tuple[Column, int] | None:
        """Return the column that this is a part of, and the power of 2 that it counts for."""
        return None

    def is_indicator(self, column: Column, schema: PublicSchema, holds: Holds) -> bool:
        """Return whether the column is 0 or 1 in every row and tells a bin or class."""
        return False


# -- the registry ----------------------------------------------------------------------------------

E = TypeVar("E", bound=type[Encoding])
_encodings: dict[str, Encoding] = {}
_by_word: dict[str, Encoding] = {}
#: What every encoding must answer.
_ANSWERS: Final = {
    "name": "the name of the encoding",
    "word": "the word of its keys in files",
    "stored_as": "the choice of encodings= that stores it",
    "check": "which columns a schema allows",
    "range": "the range of a column",
    "values": "the values of a clear table",
    "row_value": "the value in one row",
    "groups": "how it is stored",
    "states": "the possible states of a row",
    "conditions": "what is 0 in valid rows",
}


def register_encoding(encoding: E) -> E:
    """Make an encoding known by its name and by the word of its keys; usable as a decorator.

    Raises
    ------
    TypeError
        If the class lacks an answer that others will ask it for; the message names each.
    SchemaError
        If its name or word is taken or cannot be part of a key.
    """
    abstract = getattr(encoding, "__abstractmethods__", ())
    missing = [one for one in _ANSWERS if one in abstract or not hasattr(encoding, one)]
    if missing:
        listed = ", ".join(f"{one} ({_ANSWERS[one]})" for one in missing)
        raise ArgumentTypeError(
            f"encoding {encoding.__name__} does not define {listed}", code="incomplete-encoding"
        )
    name, word = encoding.name, encoding.word
    if name in _encodings or word in _by_word or not re.fullmatch("[a-z]{2,}", word):
        rule = "both must be new, and a word has two or more small letters"
        raise SchemaError(
            f"encoding {name!r} with keys of the word {word!r}: {rule}",
            code="encoding-name-unusable",
        )
    _encodings[name] = _by_word[word] = encoding()
    return encoding


def unregister_encoding(name: str) -> None:
    """Forget an encoding."""
    del _by_word[_encodings.pop(name).word]


def registered_encodings() -> list[Encoding]:
    """Return all encodings, in the order in which tables store their columns."""
    return list(_encodings.values())


def find_encoding(name: str) -> Encoding:
    """Return the encoding of this name; refuse a name that none has."""
    found = _encodings.get(name)
    if found is None:
        known = ", ".join(_encodings)
        raise SchemaError(
            f"encoding {name!r} does not exist; the encodings are {known}", code="unknown-encoding"
        )
    return found


def encoding_of(column: Column) -> Encoding:
    """Return the encoding of a column."""
    return find_encoding(column.encoding)


def store_too(column: Column, encodings: Sequence[str]) -> str | Cure:
    """Return what to do where a column would not be stored by these encodings."""
    stored_as = encoding_of(column).stored_as
    if stored_as is None or stored_as in encodings:
        return "plan and encrypt with folds="
    wanted = (*encodings, stored_as)
    options = " ".join(f"--encoding {name}" for name in wanted)
    return Cure("store encoding", f"plan and encrypt with encodings={wanted}", {"options": options})


def _no_column(column: Column, why: str) -> SchemaError:
    return SchemaError(f"no column {column}: {why}", code="impossible-column")


# -- bins ------------------------------------------------------------------------------------------


def bins_of(schema: PublicSchema, variable: int) -> list[Column]:
    """Return the indicators of all bins of a variable."""
    return [Column("onehot", variable, k) for k in range(schema.variables[variable].n_bins)]


def classes_of(schema: PublicSchema, fold: int | None = None) -> list[Column]:
    """Return the indicators of all classes, or of those of one fold."""
    return [Column("class", -1, c, fold) for c in range(schema.n_classes)]


class _BinEncoding(Encoding):
    """Indicators of one bin or several."""

    stored_as = "onehot"
    is_indexed = True

    def question_columns(self, column: Column, schema: PublicSchema) -> Sequence[Column]:
        return bins_of(schema, column.variable)

    def is_indicator(self, column: Column, schema: PublicSchema, holds: Holds) -> bool:
        return True


@register_encoding
class OneHot(_BinEncoding):
    """The indicator of a bin (method 1 of the paper's section 2.2)."""

    name, word = "onehot", "bin"

    def check(self, column: Column, schema: PublicSchema) -> None:
        variable = schema.at(column.variable)
        if column.index >= variable.n_bins:
            raise _no_column(column, f"variable {variable.id!r} has {variable.n_bins} bins")

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        return ColumnRange(0, 1, f"v{column.variable}", (column.index,))

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        return np.asarray(table.codes_of(column.variable) == column.index)

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int:
        return int(state.bin == column.index)

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        known, columns = schema.at(variable), bins_of(schema, variable)
        if len(columns) == 1:
            return [ColumnGroup(variable, EVERY, tuple(columns))]
        if not columns or known.is_ordered:
            return []
        return [ColumnGroup(variable, ALL_BUT_ONE, tuple(columns[:-1]))]

    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        return ((1,),) if group.coding == EVERY else _exclusive_states(group)

    def conditions(self, group: ColumnGroup) -> list[Condition]:
        return _all_one(group) if group.coding == EVERY else _exclusive_conditions(group)

    def from_stored(self, column: Column, schema: PublicSchema, holds: Holds) -> Terms | None:
        every = bins_of(schema, column.variable)
        if not holds(Column("cumulative", column.variable, 0)):
            return _complement(column, every, holds)
        is_last = column.index == len(every) - 1
        terms = {} if is_last else {Column("cumulative", column.variable, column.index): 1}
        if column.index:
            terms[Column("cumulative", column.variable, column.index - 1)] = -1
        return terms, int(is_last)


@register_encoding
class Cumulative(_BinEncoding):
    """The indicator of all bins up to one: how the bins of ordered variables are stored."""

    name, word = "cumulative", "upto"

    def check(self, column: Column, schema: PublicSchema) -> None:
        variable = schema.at(column.variable)
        if not variable.is_ordered:
            what = f"variable {variable.id!r} is {variable.kind}"
            raise _no_column(column, f"{what}, and its bins have no order")
        n_cuts = variable.n_bins - 1
        if column.index >= n_cuts:
            raise _no_column(column, f"variable {variable.id!r} has {n_cuts} cuts between its bins")

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        return ColumnRange(0, 1, f"v{column.variable}", tuple(range(column.index + 1)))

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        return np.asarray(table.codes_of(column.variable) <= column.index)

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int:
        return int(state.bin <= column.index)

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        known = schema.at(variable)
        columns = tuple(Column("cumulative", variable, k) for k in range(known.n_bins - 1))
        if not columns or not known.is_ordered:
            return []
        return [ColumnGroup(variable, CUMULATIVE, columns)]

    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        k = len(group.columns)
        return tuple(tuple(int(cut >= place) for cut in range(k)) for place in range(k + 1))

    def conditions(self, group: ColumnGroup) -> list[Condition]:
        columns = _expressions(group.columns)  # at most bin j is at most bin j + 1
        return [*_zero_or_one(columns), *((x - x * y, 0) for x, y in pairwise(columns))]


class _Codes(Encoding):
    """Integer codes of ordered bins."""

    centred: ClassVar[bool]

    def check(self, column: Column, schema: PublicSchema) -> None:
        schema.at(column.variable).check_codes()

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int:
        return int(code_values(state.n_bins, centred=self.centred)[state.bin])

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        if not schema.at(variable).has_codes:
            return []
        return [ColumnGroup(variable, CODE, (Column(self.name, variable),))]

    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        return None

    def conditions(self, group: ColumnGroup) -> list[Condition]:
        return []


@register_encoding
class Ordinal(_Codes):
    """The code of a bin, from 1 (method 2 of the paper)."""

    name = stored_as = "ordinal"
    word = "code"
    centred = False

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        return ColumnRange(0, schema.at(column.variable).n_bins)

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        return ordinal_codes(table.codes_of(column.variable))


@register_encoding
class Centred(_Codes):
    """The code of a bin, symmetric about 0."""

    name = stored_as = "centred"
    word = "centred"
    centred = True

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        codes = code_values(schema.at(column.variable).n_bins, centred=True)
        return ColumnRange(codes[0], codes[-1])

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        n_bins = table.public_schema.at(column.variable).n_bins
        return centred_codes(table.codes_of(column.variable), n_bins)


# -- numbers ---------------------------------------------------------------------------------------


class _Numbers(Encoding):
    """Fixed-point integers, whole or in digits, and whether they are there."""

    stored_as: ClassVar[str | None] = None
    encodes_target = encodes_number = True

    def check(self, column: Column, schema: PublicSchema) -> None:
        variable = schema.at(column.variable)
        if variable.kind != "number":
            raise _no_column(column, f"variable {variable.id!r} is {variable.kind}, not a number")

    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        return None

    def conditions(self, group: ColumnGroup) -> list[Condition]:
        # That a number lies between its bounds is no equation of small degree.
        present = Column("present", group.variable)
        return _zero_or_one(_expressions([one for one in group.columns if one == present]))


@register_encoding
class Number(_Numbers):
    """A fixed-point integer, 0 where it is missing."""

    name = word = "number"
    holds_numbers = True

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        return ColumnRange(*schema.at(column.variable).bounds)

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        return _without_gaps(table.data_of(column.variable))

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int | Interval:
        return 0 if state.number is None else state.number

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        known = _number_at(schema, variable)
        if known is None or _digits(known, storage.digit_bits):
            return []
        columns = (Column("number", variable), *_present(known, variable))
        return [ColumnGroup(variable, NUMBER, columns)]


@register_encoding
class Present(_Numbers):
    """Whether a number that may be missing is there; stored in the group of the number."""

    name = word = "present"

    def check(self, column: Column, schema: PublicSchema) -> None:
        variable = schema.at(column.variable)
        if variable.kind != "number" or not variable.missing_bin:
            raise _no_column(column, f"variable {variable.id!r} is no number that may be missing")

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        return ColumnRange(0, 1)

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        return np.asarray(table.data_of(column.variable) != GAP)

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int:
        return int(state.number is not None)

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        return []


@register_encoding
class Digit(_Numbers):
    """A digit of a number that is too large to be stored whole."""

    name = word = "digit"
    is_indexed = has_bits = holds_numbers = True

    def check(self, column: Column, schema: PublicSchema) -> None:
        super().check(column, schema)
        variable = schema.at(column.variable)
        if column.index >= len(digit_bounds(*variable.bounds, _bits(column))):
            raise _no_column(column, f"the numbers of variable {variable.id!r} have fewer digits")

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        bounds = schema.at(column.variable).bounds
        digit = digit_bounds(*bounds, _bits(column))[column.index]
        return ColumnRange(digit.low, digit.high)

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        bounds, bits = table.public_schema.at(column.variable).bounds, _bits(column)
        numbers = _without_gaps(table.data_of(column.variable))
        return digit_of(numbers, column.index, len(digit_bounds(*bounds, bits)), bits)

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int:
        raise ParameterError(
            f"column {column} has the encoding 'digit', whose sensitivity is not known: a total "
            "over it cannot be released. ",
            Cure("known encoding", "Ask for bins, codes, numbers or classes"),
        )

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        known = _number_at(schema, variable)
        if known is None or not (count := _digits(known, storage.digit_bits)):
            return []
        digits = (Column("digit", variable, k, bits=storage.digit_bits) for k in range(count))
        return [ColumnGroup(variable, NUMBER, (*digits, *_present(known, variable)))]

    def question_columns(self, column: Column, schema: PublicSchema) -> Sequence[Column]:
        return (Column("number", column.variable),)

    def part_of(self, column: Column) -> tuple[Column, int] | None:
        return Column("number", column.variable), column.index * _bits(column)


@register_encoding
class Grid(_Numbers):
    """The indicators of the two digits to base 32 of a number above its lower bound.

    A product of two of them is the indicator of one value, so up to 1,024 values can be counted
    from 64 columns. A missing number has neither digit.
    """

    name = word = stored_as = "grid"
    is_indexed = True

    def check(self, column: Column, schema: PublicSchema) -> None:
        super().check(column, schema)
        n_columns = sum(grid_shape(schema.at(column.variable)))
        if column.index >= n_columns:
            name = schema.at(column.variable).id
            raise _no_column(column, f"the grid of variable {name!r} has {n_columns} columns")

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        n_high, _ = grid_shape(schema.at(column.variable))
        digit = "high" if column.index < n_high else "low"
        return ColumnRange(0, 1, f"v{column.variable}.{digit}", (column.index,))

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        data = table.data_of(column.variable)
        found = self._digit(column, table.public_schema, _without_gaps(data))
        return np.asarray((data != GAP) & found)

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int | Interval:
        if state.number is None:
            return 0
        if isinstance(state.number, Interval):
            return Interval(0, 1)
        return int(self._digit(column, schema, state.number))

    def _digit(self, column: Column, schema: PublicSchema, number: Any) -> Any:
        known = schema.at(column.variable)
        n_high, _ = grid_shape(known)
        high, low = divmod(number - (known.low or 0), GRID_BASE)
        return high == column.index if column.index < n_high else low == column.index - n_high

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        known = _number_at(schema, variable)
        if known is None or not has_grid(known):
            return []
        return [
            ColumnGroup(variable, AT_MOST_ONE, tuple(digits))
            for digits in grid_columns(schema, variable)
        ]

    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        return _exclusive_states(group)

    def conditions(self, group: ColumnGroup) -> list[Condition]:
        return _exclusive_conditions(group)


def has_grid(variable: PublicVariable) -> bool:
    """Return whether a number has few enough values for a grid."""
    return variable.kind == "number" and (variable.high or 0) - (variable.low or 0) < MAX_GRID


def grid_shape(variable: PublicVariable) -> tuple[int, int]:
    """Return the number of high and of low digits of a number's grid."""
    n_values = (variable.high or 0) - (variable.low or 0) + 1
    if n_values > MAX_GRID:
        raise SchemaError(
            f"variable {variable.id!r} can have {n_values:,} values, and a grid has at most "
            f"{MAX_GRID:,}: ",
            Cure("coarser number", "round it before it is encrypted, or give narrower bounds"),
            code="grid-too-fine",
        )
    return -(-n_values // GRID_BASE), min(n_values, GRID_BASE)


def grid_columns(schema: PublicSchema, variable: int) -> tuple[list[Column], list[Column]]:
    """Return the indicators of the high and of the low digits of a number."""
    n_high, n_low = grid_shape(schema.at(variable))
    columns = [Column("grid", variable, k) for k in range(n_high + n_low)]
    return columns[:n_high], columns[n_high:]


def _number_at(schema: PublicSchema, variable: int) -> PublicVariable | None:
    """Return the variable, or the target, if it is a number."""
    known = schema.target_number if variable == -1 else schema.at(variable)
    return known if known is not None and known.kind == "number" else None


def _digits(variable: PublicVariable, digit_bits: int | None) -> int:
    """Return how many digits a number is stored in; 0 if it is stored whole."""
    count = 1 if digit_bits is None else len(digit_bounds(*variable.bounds, digit_bits))
    return count if count > 1 else 0


def _present(known: PublicVariable, variable: int) -> list[Column]:
    return [Column("present", variable)] if known.missing_bin else []


def _bits(column: Column) -> int:
    return column.bits or MAX_NUMBER_BITS


def _without_gaps(data: NDArray[Any]) -> NDArray[Any]:
    return np.where(data == GAP, 0, data)


# -- classes and rows ------------------------------------------------------------------------------


class _RowEncoding(Encoding):
    """Indicators of rows, times the weight of the row; of all rows, and of those of each fold."""

    stored_as = None
    counts_rows = True

    def row_value(self, column: Column, schema: PublicSchema, state: RowState) -> int:
        return int(column.index == state.target and column.fold in (None, state.fold))


@register_encoding
class Class(_RowEncoding):
    """The indicator of a class, times the weight of the row."""

    name = word = "class"
    is_indexed = True

    def check(self, column: Column, schema: PublicSchema) -> None:
        if column.index >= schema.n_classes:
            raise _no_column(column, f"the schema has {schema.n_classes} classes")

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        is_exclusive = weight_bound == 1 and column.fold is None
        return ColumnRange(0, weight_bound, group="class" if is_exclusive else None)

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        return table.weigh(np.asarray(table.class_codes == column.index), column.fold)

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        if not schema.n_classes:
            return []
        whole, in_fold = (WEIGHED, WEIGHED) if storage.weighed else (ALL_BUT_ONE, AT_MOST_ONE)
        stored = classes_of(schema)[: schema.n_classes - (not storage.weighed)]
        folds = (tuple(classes_of(schema, fold)) for fold in range(storage.n_folds))
        return [
            ColumnGroup(-1, whole, tuple(stored)),
            *(ColumnGroup(-1, in_fold, columns) for columns in folds),
        ]

    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        return None if group.coding == WEIGHED else _exclusive_states(group)

    def conditions(self, group: ColumnGroup) -> list[Condition]:
        return _all_one(group) if group.coding == WEIGHED else _exclusive_conditions(group)

    def question_columns(self, column: Column, schema: PublicSchema) -> Sequence[Column]:
        return classes_of(schema, column.fold)

    def from_stored(self, column: Column, schema: PublicSchema, holds: Holds) -> Terms | None:
        if column.fold is not None:
            return None
        return _complement(column, classes_of(schema), holds)

    def is_indicator(self, column: Column, schema: PublicSchema, holds: Holds) -> bool:
        return not holds(Column("class", -1, schema.n_classes - 1))  # else it has weights


@register_encoding
class Rows(_RowEncoding):
    """The weight of the row, where the target is a number."""

    name = word = "rows"

    def check(self, column: Column, schema: PublicSchema) -> None:
        schema.at(-1)

    def range(self, column: Column, schema: PublicSchema, weight_bound: int) -> ColumnRange:
        return ColumnRange(0, weight_bound)

    def values(self, column: Column, table: Table) -> NDArray[Any]:
        return table.weigh(np.ones(table.n_rows, dtype=bool), column.fold)

    def groups(self, schema: PublicSchema, variable: int, storage: Storage) -> list[ColumnGroup]:
        folds = [] if schema.target_number is None else [None, *range(storage.n_folds)]
        return [ColumnGroup(-1, WEIGHED, (Column("rows", -1, 0, fold),)) for fold in folds]

    def states(self, group: ColumnGroup) -> tuple[tuple[int, ...], ...] | None:
        return None

    def conditions(self, group: ColumnGroup) -> list[Condition]:
        return _all_one(group)  # rows of a study have no weights: they are all 1


# -- what indicators have in common ----------------------------------------------------------------


def _complement(column: Column, every: Sequence[Column], holds: Holds) -> Terms | None:
    """Write the last of some exclusive indicators as 1 minus all the others, if these are held."""
    others = every[:-1]
    if not others or column.index != len(others) or not all(map(holds, others)):
        return None
    return dict.fromkeys(others, -1), 1


def _exclusive_states(group: ColumnGroup) -> tuple[tuple[int, ...], ...]:
    k = len(group.columns)
    return tuple(tuple(int(place == value) for place in range(k)) for value in range(k + 1))


def _exclusive_conditions(group: ColumnGroup) -> list[Condition]:
    columns = _expressions(group.columns)
    together = _zero_or_one([sum_of(columns)]) if len(columns) > 1 else []
    return [*_zero_or_one(columns), *together]


def _all_one(group: ColumnGroup) -> list[Condition]:
    return [(x, -1) for x in _expressions(group.columns)]


def _zero_or_one(columns: Sequence[Expression]) -> list[Condition]:
    return [(x * x - x, 0) for x in columns]


def _expressions(columns: Sequence[Column]) -> list[Expression]:
    return [column(str(one)) for one in columns]
