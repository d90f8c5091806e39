"""Names for the integer columns of a table, their layout in slots, and what can be made of them by adding and scaling.

Clear and encrypted tables share this code: `ColumnAlgebra` derives range sums and ordinal codes from stored columns by
additions and multiplications by integers alone, whatever the columns are made of. No pandas here.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, Protocol, TypeVar

from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.digits import Digits, digit_bounds
from encryptedstats.errors import Cure, SchemaError
from encryptedstats.tables.binning import code_values
from encryptedstats.tables.variables import KEEP_NUMBERS, TARGET, PublicSchema, PublicVariable

E = TypeVar("E")

ENCODINGS = ("onehot", "ordinal", "centred", "number", "present", "digit", "class", "rows")
MAX_NUMBER_BITS = 62
#: How the encodings without an index are spelt in keys.
_SUFFIXES = {"ordinal": "code", "centred": "centred", "number": "number", "present": "present"}
#: Encodings of which there is one column for each fold too, and which have no variable.
OF_ROWS = ("class", "rows")
#: What is stored whatever encodings of bins are chosen.
ALWAYS_STORED = ("number", "digit", "present", *OF_ROWS)
_KEY = re.compile(
    r"(?:v(?P<variable>{n})|(?P<target>target))\.(?:bin(?P<bin>{n})|(?P<suffix>code|centred|number|present)"
    r"|digit(?P<digit>{n})\.bits(?P<bits>{n}))"
    r"|(?:class(?P<class>{n})|(?P<rows>rows))(?:\.fold(?P<fold>{n}))?".replace("{n}", "0|[1-9][0-9]*")
)


@dataclass(frozen=True)
class Column:
    """Which integer column of a table: an encoding of a variable, or the indicator of a class.

    Parameters
    ----------
    encoding
        ``"onehot"`` (indicator of bin `index`), ``"ordinal"`` (codes 1..m), ``"centred"`` (codes symmetric about 0),
        ``"number"`` (fixed point, 0 where it is missing), ``"digit"`` (digit `index` of a number), ``"present"`` (whether a number
        is there), ``"class"`` (indicator of class `index`, times the weight of the row) or, beside a target that is a number,
        ``"rows"`` (the weight of the row).
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
    >>> str(Column("onehot", 3, 2)), str(Column("class", -1, 1, fold=0))
    ('v3.bin2', 'class1.fold0')
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
        if self.index < 0 or (self.fold or 0) < 0 or (self.index and self.encoding not in ("onehot", "digit", "class")):
            raise SchemaError(f"{self!r}: index and fold count from 0, and only bins, digits and classes have an index")
        if (self.bits is not None) != (self.encoding == "digit") or not 2 <= (self.bits or 2) <= MAX_NUMBER_BITS:
            raise SchemaError(f"{self!r}: a digit has 2 to {MAX_NUMBER_BITS} bits, and nothing else has")

    def __str__(self) -> str:
        if self.encoding in OF_ROWS:
            name = f"class{self.index}" if self.encoding == "class" else "rows"
            return name + ("" if self.fold is None else f".fold{self.fold}")
        digit = f"digit{self.index}.bits{self.bits}" if self.encoding == "digit" else f"bin{self.index}"
        return f"{TARGET if self.variable == -1 else f'v{self.variable}'}." + _SUFFIXES.get(self.encoding, digit)

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
        if part["digit"] is not None:
            return cls("digit", variable, int(part["digit"]), bits=int(part["bits"]))
        encoding = next(name for name, suffix in _SUFFIXES.items() if suffix == part["suffix"])
        return cls(encoding, variable)


def table_columns(
    schema: PublicSchema,
    encodings: Sequence[str] = ("onehot",),
    *,
    classes: bool = False,
    n_folds: int = 0,
    digit_bits: int | None = None,
) -> list[Column]:
    """All columns that a table stores with these encodings, in their canonical order.

    Numbers are always among them, those of more than ``digit_bits`` in digits, and where they may be missing whether they are
    there. Ordinal and centred codes exist for ordered variables without a bin for missing values only. `classes` is whether the
    target is known.
    """
    unknown = set(encodings) - {"onehot", "ordinal", "centred"}
    if isinstance(encodings, str) or unknown:
        raise SchemaError(f"encodings={encodings!r}: a sequence of 'onehot', 'ordinal' and 'centred' is needed")
    columns: list[Column] = []
    for j, variable in enumerate(schema.variables):
        columns += _number_columns(variable, j, digit_bits)
        if "onehot" in encodings:
            columns += [Column("onehot", j, k) for k in range(variable.n_bins)]
        if variable.has_codes:
            columns += [Column(name, j) for name in ("ordinal", "centred") if name in encodings]
    if classes:
        folds = [None, *range(n_folds)]
        columns += [Column("class", -1, c, fold) for fold in folds for c in range(schema.n_classes)]
        if schema.target_number is not None:
            columns += [
                *_number_columns(schema.target_number, -1, digit_bits),
                *(Column("rows", -1, 0, fold) for fold in folds),
            ]
    return columns


def _number_columns(variable: PublicVariable, position: int, digit_bits: int | None) -> list[Column]:
    if variable.kind != "number":
        return []
    present = [Column("present", position)] if variable.missing_bin else []
    count = 1 if digit_bits is None else len(digit_bounds(*variable.bounds, digit_bits))
    if count == 1:
        return [Column("number", position), *present]
    return [*(Column("digit", position, k, bits=digit_bits) for k in range(count)), *present]


def without_digits(columns: Iterable[Column]) -> list[Column]:
    """The columns as questions are written with them: whole numbers, however they are stored."""
    return list(dict.fromkeys(Column("number", c.variable) if c.encoding == "digit" else c for c in columns))


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


def column_bound(schema: PublicSchema, column: Column, weight_bound: int = 1) -> int:
    """The largest absolute value that the column can hold, from public knowledge alone."""
    check_column(schema, column)
    if column.encoding in OF_ROWS:
        return weight_bound
    if column.encoding in ("onehot", "present"):
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
    """What is publicly known of each column, for the bounds reader: its values, and which indicators exclude each other."""
    return {str(column): _column_range(schema, column, weight_bound) for column in columns}


def _column_range(schema: PublicSchema, column: Column, weight_bound: int) -> ColumnRange:
    bound = column_bound(schema, column, weight_bound)
    if column.encoding == "onehot":
        return ColumnRange(0, 1, group=f"v{column.variable}")
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
        return [self.values(Column("onehot", position, k)) for k in range(known.n_bins)]

    def range_sum(self, variable: str | int, bins: Iterable[int]) -> E:
        r"""Indicator of the rows whose bin is in the set K = `bins`.

        .. math:: \sum_{k \in K} \tilde x_{ijk}

        (paper, eq. range). The set must not be empty: an encryption of nothing but zeros would not be one.
        """
        position, known = self._binned(variable)
        chosen = sorted(set(bins))
        if not chosen or chosen[0] < 0 or chosen[-1] >= known.n_bins:
            raise SchemaError(f"variable {variable!r}: bins {chosen} are no range of its bins 0..{known.n_bins - 1}")
        return _sum(self.values(Column("onehot", position, k)) for k in chosen)

    def codes(self, variable: str | int, *, centred: bool = False) -> E:
        """Ordinal codes 1..m of a variable (method 2), or centred ones; derived from the bins when not stored."""
        position, known = self._variable(variable)
        known.check_codes(variable)
        column = Column("centred" if centred else "ordinal", position)
        if self.holds(column):
            return self.values(column)
        weights = dict(enumerate(code_values(known.n_bins, centred=centred)))
        if not any(weights.values()):
            raise SchemaError(f"variable {variable!r} has one bin: its centred code is 0 in every row")
        return _sum(_times(self.values(Column("onehot", position, k)), w) for k, w in weights.items() if w)

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
        return [self.values(Column("class", -1, c, fold)) for c in range(self.schema.public().n_classes)]


def _sum(terms: Iterable[E]) -> E:
    # Not sum(): that starts from 0, and an encrypted column cannot be added to an int without a copy.
    total: E = reduce(operator.add, terms)
    return total


def _times(term: E, weight: int) -> E:
    scaled: E = term if weight == 1 else operator.mul(term, weight)
    return scaled
