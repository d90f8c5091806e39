"""The bounds reader: between which numbers every node lies, whatever the table. The plaintext modulus comes from here.

Intervals, with two facts that indicators allow and plain intervals would miss: of the bins of a variable at most one is 1 in a
row, so a combination of them is one of its coefficients or 0; and ``x - x*s`` is ``x*(1 - s)``, so the right child of a tree's node
is an indicator like the left one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from encryptedstats.circuits.expressions import COLUMN, LINEAR, PRODUCT, REPLICATE, RESAMPLE, TOTAL, Expression, fold


@dataclass(frozen=True)
class Interval:
    """All integers from ``low`` to ``high``."""

    low: int
    high: int

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
        return Interval(min(factor * self.low, factor * self.high), max(factor * self.low, factor * self.high))


@dataclass(frozen=True)
class ColumnRange:
    """What is publicly known of a column: its values, and which set of exclusive 0/1 indicators it belongs to."""

    low: int
    high: int
    group: str | None = None


def read_bounds(
    outputs: Iterable[Expression], ranges: Mapping[str, ColumnRange], n_rows: int, n_slots: int | None = None
) -> dict[Expression, Interval]:
    """An interval for every node.

    Totals count the real rows; ``n_slots`` (all slots, padding included) bounds them where rows were moved into padding.
    """
    outputs = list(outputs)
    slots = n_rows if n_slots is None else n_slots
    # Resampling moves rows into padding slots, replicating fills them: then more slots than rows can count.
    moves = fold(outputs, lambda node, args: node.op in (RESAMPLE, REPLICATE) or any(args))
    moved = {node for node, moves_rows in moves.items() if moves_rows}

    def rule(node: Expression, args: list[Interval]) -> Interval:
        if node.op == COLUMN:
            known = ranges[node.data]
            return Interval(min(known.low, 0), max(known.high, 0))  # 0 is what padding holds
        if node.op == PRODUCT:
            return _product(node, args)
        if node.op == LINEAR:
            return _linear(node, args, ranges, values)
        if node.op == TOTAL:
            return args[0].times(slots if node.args[0] in moved else n_rows)
        return args[0]

    values: dict[Expression, Interval] = {}

    def remember(node: Expression, args: list[Interval]) -> Interval:
        values[node] = rule(node, args)
        return values[node]

    return fold(outputs, remember)


def largest_value(bounds: Mapping[Expression, Interval]) -> int:
    """The largest absolute value that any node can take."""
    return max((interval.largest for interval in bounds.values()), default=0)


def _product(node: Expression, args: list[Interval]) -> Interval:
    if node.args[0] is node.args[1]:  # a square is never negative
        return Interval(0, args[0].largest ** 2)
    return args[0] * args[1]


def _linear(
    node: Expression, args: list[Interval], ranges: Mapping[str, ColumnRange], values: Mapping[Expression, Interval]
) -> Interval:
    coefficients, constant = node.data
    shift = Interval(constant, constant)
    groups = {ranges[arg.data].group if arg.op == COLUMN else None for arg in node.args}
    if len(groups) == 1 and None not in groups:
        return Interval(min(0, *coefficients), max(0, *coefficients)) + shift
    result = shift
    rest = dict(zip(node.args, coefficients, strict=True))
    for term in list(rest):
        other = _complement(term, rest)
        if other is not None:
            inside, share = other
            coefficient = rest.pop(inside)
            rest.pop(term)
            result = result + (values[inside] * (Interval(1, 1) + values[share].times(-1))).times(coefficient)
    for term, coefficient in rest.items():
        result = result + values[term].times(coefficient)
    return result


def _complement(term: Expression, rest: Mapping[Expression, int]) -> tuple[Expression, Expression] | None:
    """For a term -c*(x*s) beside c*x: the pair (x, s)."""
    if term.op != PRODUCT or term not in rest:
        return None
    for inside, share in (term.args, term.args[::-1]):
        if rest.get(inside) == -rest[term] and inside is not term:
            return inside, share
    return None
