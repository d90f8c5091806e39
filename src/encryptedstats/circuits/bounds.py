"""The bounds reader: between which numbers every node lies, whatever the table. The plaintext
modulus comes from here.

Intervals, with two facts that indicators allow and plain intervals would miss: a row is in one bin
of a variable at most, so a combination of indicators of its bins (of one bin or of several, in one
sum, or sums of sums as prefix sums are) has one value for each bin, or 0; and ``x - x*s`` is ``x*(1
- s)``, so the right child of a tree's node is an indicator like the left one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

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


@dataclass(frozen=True)
class Interval:
    """All integers from ``low`` to ``high``."""

    low: int
    high: int

    @classmethod
    def of(cls, number: int) -> Interval:
        """One number."""
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
        """Every number times a factor."""
        return Interval(
            min(factor * self.low, factor * self.high), max(factor * self.low, factor * self.high)
        )


@dataclass(frozen=True)
class ColumnRange:
    """What is publicly known of a column: its values, and of a 0/1 indicator in which of the
    exclusive bins of a group it is 1.

    Without ``bins`` it has one of its own.
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
    """An interval for every node.

    Totals count the real rows; ``n_slots`` (all slots, padding included) bounds them where rows
    were moved into padding.
    """
    outputs = list(outputs)
    slots = n_rows if n_slots is None else n_slots
    padding = padding_value(outputs)
    moved = _moved(outputs, padding)
    values: dict[Expression, Interval] = {}
    bins: dict[Expression, _Bins] = {}

    def rule(node: Expression, args: list[Interval]) -> Interval:
        if node.op == HERE:
            return Interval(min(node.data[0], 0), max(node.data[0], 0))
        if node.op in (COLUMN, GIVEN):
            known = ranges[node.data]
            return Interval(min(known.low, 0), max(known.high, 0))  # 0 is what padding holds
        if node.op == PRODUCT:
            return _product(node, args)
        if node.op == LINEAR:
            return _linear(node, values, bins)
        if (
            node.op == TOTAL and moved[node.args[0]]
        ):  # all slots count, less what padding would have held
            return args[0].times(slots) + Interval.of(
                -(padding[node.args[0]] or 0) * (slots - n_rows)
            )
        if node.op == MASK:
            return Interval(min(args[0].low, 0), max(args[0].high, 0))
        return args[0].times(n_rows) if node.op == TOTAL else args[0]

    for node in in_order(outputs):
        exclusive = _bins_of(node, ranges, bins)
        if exclusive is not None:
            bins[node] = exclusive
        values[node] = rule(node, [values[arg] for arg in node.args])
    return values


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


def _moved(
    outputs: Iterable[Expression], padding: Mapping[Expression, int | None]
) -> dict[Expression, bool]:
    """Whether padding slots can hold something else than :func:`padding_value` says: resampling
    moves rows there, replicating fills them, and a factor that is 0 there makes up for both.
    """

    def rule(node: Expression, args: list[bool]) -> bool:
        if node.op == PRODUCT and any(
            padding[arg] == 0 and not moved for arg, moved in zip(node.args, args, strict=True)
        ):
            return False
        if node.op == MASK:  # marks are never on padding
            return False
        return node.op in (RESAMPLE, REPLICATE) or (not node.is_total and any(args))

    return fold(outputs, rule)


def _product(node: Expression, args: list[Interval]) -> Interval:
    if node.args[0] is node.args[1]:  # a square is never negative
        return Interval(0, args[0].largest ** 2)
    return args[0] * args[1]


@dataclass
class _Bins:
    """``constant + sum(coefficient * indicator of a bin)`` over bins of one group: one coefficient,
    or none, counts in a row.
    """

    group: str
    coefficients: dict[str | int, int] = field(default_factory=dict)
    constant: int = 0

    def interval(self) -> Interval:
        found = self.coefficients.values()
        return Interval(min(0, *found), max(0, *found)) + Interval.of(self.constant)

    def add(self, other: _Bins, times: int) -> None:
        for name, coefficient in other.coefficients.items():
            self.coefficients[name] = self.coefficients.get(name, 0) + times * coefficient
        self.constant += times * other.constant


def _bins_of(
    node: Expression, ranges: Mapping[Any, ColumnRange], bins: Mapping[Expression, _Bins]
) -> _Bins | None:
    """The node as a combination of bins of one variable, if it is one."""
    if node.op == COLUMN:
        known = ranges[node.data]
        indicator = known.group is not None and (known.low, known.high) == (0, 1)
        return (
            _Bins(str(known.group), dict.fromkeys(known.bins or (node.data,), 1))
            if indicator
            else None
        )
    groups = {bins[arg].group if arg in bins else None for arg in node.args}
    if node.op != LINEAR or len(groups) > 1 or None in groups:
        return None
    coefficients, constant = node.data
    combined = _Bins(bins[node.args[0]].group, constant=constant)
    for arg, coefficient in zip(node.args, coefficients, strict=True):
        combined.add(bins[arg], coefficient)
    return combined


def _linear(
    node: Expression, values: Mapping[Expression, Interval], bins: Mapping[Expression, _Bins]
) -> Interval:
    if node in bins:
        return bins[node].interval()
    coefficients, constant = node.data
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
    exclusive: dict[str, _Bins] = {}
    for term, coefficient in rest.items():
        if term in bins:
            group = bins[term].group
            exclusive.setdefault(group, _Bins(group)).add(bins[term], coefficient)
        else:
            result = result + values[term].times(coefficient)
    for combination in exclusive.values():
        result = result + combination.interval()
    return result


def _complement(
    term: Expression, rest: Mapping[Expression, int]
) -> tuple[Expression, Expression] | None:
    """For a term -c*(x*s) beside c*x: the pair (x, s)."""
    if term.op != PRODUCT or term not in rest:
        return None
    for inside, share in (term.args, term.args[::-1]):
        if rest.get(inside) == -rest[term] and inside is not term:
            return inside, share
    return None
