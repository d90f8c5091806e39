"""Bound every node of a circuit for all tables of a schema; the plaintext modulus follows from it.

The bounds are intervals, sharpened by two facts about indicators. A row is in at most one bin of a
variable, so a combination of indicators of its bins takes the coefficient of one bin, or 0. And
``x - x*s`` is ``x*(1 - s)``, so the right child of a tree's node is an indicator like the left one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    fold,
    in_order,
    padding_value,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import ArgumentError


@dataclass(frozen=True)
class Interval:
    """All integers from ``low`` to ``high``."""

    low: int
    high: int

    @classmethod
    def of(cls, number: int) -> Interval:
        return cls(number, number)

    @property
    def largest(self) -> int:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def times(self, factor: int) -> Interval:
        """Multiply every number by a factor."""
        return Interval(
            min(factor * self.low, factor * self.high), max(factor * self.low, factor * self.high)
        )


@dataclass(frozen=True)
class ColumnRange:
    """The public facts of a column: its range, and for an indicator its exclusive group.

    ``bins`` are the bins of the group in which the indicator is 1; without them it has its own.
    """

    low: int
    high: int
    group: str | None = None
    bins: tuple[int, ...] = ()


def read_bounds(
    outputs: Iterable[Expression],
    ranges: Mapping[Any, ColumnRange],
    n_rows: int,
    n_slots: int | None = None,
) -> dict[Expression, Interval]:
    """Return an interval for every node.

    Totals count the real rows; ``n_slots`` (all slots, padding included) bounds them where rows
    were moved into padding.
    """
    outputs = list(outputs)
    padding = padding_value(outputs)
    slots = n_rows if n_slots is None else n_slots
    reader = _BoundsReader(ranges, n_rows, slots, padding, find_filled_padding(outputs, padding))
    for node in in_order(outputs):
        bound = BOUNDS[node.op](reader, node, [reader.values[arg] for arg in node.args])
        reader.values[node] = bound
    return reader.values


def bound_outputs(
    outputs: tuple[Expression | int, ...],
    ranges: tuple[tuple[Any, ColumnRange], ...],
    n_rows: int,
    n_slots: int,
) -> tuple[Interval, ...]:
    """Return an interval for each output; ``n_slots`` counts all slots, padding included.

    The latest results are kept: a plan asks for the same ones for every ring, and the compilation
    after it asks again.
    """
    return _bound_outputs(
        outputs, ranges, n_rows, n_slots if _can_fill_padding(outputs) else n_rows
    )


@lru_cache(maxsize=8)
def _bound_outputs(
    outputs: tuple[Expression | int, ...],
    ranges: tuple[tuple[Any, ColumnRange], ...],
    n_rows: int,
    n_slots: int,
) -> tuple[Interval, ...]:
    expressions = [output for output in outputs if isinstance(output, Expression)]
    found = read_bounds(expressions, dict(ranges), n_rows, n_slots)
    return tuple(found[o] if isinstance(o, Expression) else Interval.of(o) for o in outputs)


@lru_cache(maxsize=8)
def _can_fill_padding(outputs: tuple[Expression | int, ...]) -> bool:
    expressions = (output for output in outputs if isinstance(output, Expression))
    return any(node.op in (RESAMPLE, REPLICATE) for node in in_order(expressions))


# -- what padding holds
# ------------------------------------------------------------------------------------------------

#: Says whether padding slots can hold another value than :func:`padding_value` says, from the node,
#: whether its args can, and the values of these in padding.
FILLED_PADDING: Final = RuleTable[
    Callable[[Expression, Sequence[bool], Mapping[Expression, int | None]], bool]
]("filled padding")

# Totals have no padding, and marks are never on it.
FILLED_PADDING.rule(COLUMN, GIVEN, HERE, MASK, TOTAL)(lambda node, args, padding: False)
# Resampling moves rows there, and replicating fills it.
FILLED_PADDING.rule(RESAMPLE, REPLICATE)(lambda node, args, padding: True)
FILLED_PADDING.rule(LINEAR)(lambda node, args, padding: any(args))


@FILLED_PADDING.rule(PRODUCT)
def _is_product_filled(
    node: Expression, args: Sequence[bool], padding: Mapping[Expression, int | None]
) -> bool:
    factors = zip(node.args, args, strict=True)  # a factor that is 0 there clears the product
    return any(args) and not any(padding[arg] == 0 and not filled for arg, filled in factors)


def find_filled_padding(
    outputs: Iterable[Expression], padding: Mapping[Expression, int | None]
) -> dict[Expression, bool]:
    """Return for each node whether its padding can hold another value than `padding` says."""
    return fold(outputs, lambda node, args: FILLED_PADDING[node.op](node, args, padding))


# -- bounds
# ------------------------------------------------------------------------------------------------


@dataclass
class _BinTerms:
    """``constant + sum(coefficient * indicator)`` over the bins of one group.

    In each row at most one of the coefficients counts.
    """

    group: str
    coefficients: dict[str | int, int] = field(default_factory=dict)
    constant: int = 0

    def interval(self) -> Interval:
        found = self.coefficients.values()
        return Interval(min(0, *found), max(0, *found)) + Interval.of(self.constant)

    def add(self, other: _BinTerms, times: int) -> None:
        for name, coefficient in other.coefficients.items():
            self.coefficients[name] = self.coefficients.get(name, 0) + times * coefficient
        self.constant += times * other.constant


@dataclass
class _BoundsReader:
    """The inputs of the bounds, and the bounds found so far."""

    ranges: Mapping[Any, ColumnRange]
    n_rows: int
    n_slots: int
    padding: Mapping[Expression, int | None]
    is_filled: Mapping[Expression, bool]
    values: dict[Expression, Interval] = field(default_factory=dict)
    bins: dict[Expression, _BinTerms] = field(default_factory=dict)


#: Returns the interval of a node from those of its args.
BOUNDS: Final = RuleTable[Callable[[_BoundsReader, Expression, list[Interval]], Interval]]("bounds")


@BOUNDS.rule(HERE)
def _bound_here(reader: _BoundsReader, node: Expression, args: list[Interval]) -> Interval:
    return Interval(min(node.data[0], 0), max(node.data[0], 0))


@BOUNDS.rule(COLUMN, GIVEN)
def _bound_column(reader: _BoundsReader, node: Expression, args: list[Interval]) -> Interval:
    if node.op == COLUMN and node.data not in reader.ranges:
        raise ArgumentError(
            f"the table does not store the column {node.data!r}: encrypt it with the encoding of "
            "that column",
            code="column-not-stored",
        )
    known = reader.ranges[node.data]
    if node.op == COLUMN and known.group is not None and (known.low, known.high) == (0, 1):
        bins = dict.fromkeys(known.bins or (node.data,), 1)
        reader.bins[node] = _BinTerms(known.group, bins)
    return Interval(min(known.low, 0), max(known.high, 0))  # 0 is what padding holds


@BOUNDS.rule(PRODUCT)
def _bound_product(reader: _BoundsReader, node: Expression, args: list[Interval]) -> Interval:
    if node.args[0] is node.args[1]:  # a square is never negative
        return Interval(0, args[0].largest ** 2)
    return args[0] * args[1]


@BOUNDS.rule(TOTAL)
def _bound_total(reader: _BoundsReader, node: Expression, args: list[Interval]) -> Interval:
    (row,) = node.args
    if not reader.is_filled[row]:
        return args[0].times(reader.n_rows)
    # All slots count, and the public padding value is taken off.
    lacking = -(reader.padding[row] or 0) * (reader.n_slots - reader.n_rows)
    return args[0].times(reader.n_slots) + Interval.of(lacking)


@BOUNDS.rule(MASK)
def _bound_mask(reader: _BoundsReader, node: Expression, args: list[Interval]) -> Interval:
    return Interval(min(args[0].low, 0), max(args[0].high, 0))


BOUNDS.rule(REPLICATE, RESAMPLE)(lambda reader, node, args: args[0])


@BOUNDS.rule(LINEAR)
def _bound_linear(reader: _BoundsReader, node: Expression, args: list[Interval]) -> Interval:
    values, bins = reader.values, reader.bins
    groups = {bins[arg].group if arg in bins else None for arg in node.args}
    coefficients, constant = node.data
    if len(groups) == 1 and None not in groups:
        combined = bins[node] = _BinTerms(bins[node.args[0]].group, constant=constant)
        for arg, coefficient in zip(node.args, coefficients, strict=True):
            combined.add(bins[arg], coefficient)
        return combined.interval()
    result = Interval.of(constant)
    rest = dict(zip(node.args, coefficients, strict=True))
    for term in node.args:
        pair = _complement(term, rest)
        if pair is not None:
            inside, share = pair
            coefficient = rest.pop(inside)
            rest.pop(term)
            result = result + (values[inside] * (Interval.of(1) + values[share].times(-1))).times(
                coefficient
            )
    exclusive: dict[str, _BinTerms] = {}
    for term, coefficient in rest.items():
        if term in bins:
            group = bins[term].group
            exclusive.setdefault(group, _BinTerms(group)).add(bins[term], coefficient)
        else:
            result = result + values[term].times(coefficient)
    for combination in exclusive.values():
        result = result + combination.interval()
    return result


def _complement(
    term: Expression, rest: Mapping[Expression, int]
) -> tuple[Expression, Expression] | None:
    """Return (x, s) for a term -c*(x*s) if the sum also has c*x."""
    if term.op != PRODUCT or term not in rest:
        return None
    for inside, share in (term.args, term.args[::-1]):
        if rest.get(inside) == -rest[term] and inside is not term:
            return inside, share
    return None
