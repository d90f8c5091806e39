"""Numbers in digits: totals that are larger than any plaintext modulus, from parts that are not.

A column of large numbers is stored as columns of its digits, ``x = x0 + x1 2^b + x2 4^b ...``, each between -2^b / 2 and 2^b / 2. A
product of two is then a sum of products of digits, and a total falls apart into *parts*, one for each power of 2 that occurs:
the owner opens the parts, each within bounds that are proven as those of any total, and joins them as integers.

Here circuits over numbers are rewritten to the parts. Nothing else knows of digits: parts are totals like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    PRODUCT,
    Expression,
    column,
    combination,
    fold,
    linear,
)

#: For a column that is stored in digits: their columns, each with the power of 2 that it counts for.
Digits = Mapping[str, Sequence[tuple[int, str]]]
_Parts = dict[int, Expression]


def in_digits(outputs: Sequence[Expression], digits: Digits) -> tuple[list[Expression], list[int]]:
    """The parts of all outputs, one after the other, and the power of 2 that each counts for: every output begins with 0.

    >>> x, y = column("x"), column("y")
    >>> in_digits([(x * y).total(), y.total()], {"x": [(0, "x0"), (8, "x1")]})
    ([(x0 * y).total(), (x1 * y).total(), y.total()], [0, 8, 0])
    """
    if not digits:
        return list(outputs), [0] * len(outputs)

    def rule(node: Expression, args: list[_Parts]) -> _Parts:
        if node.op == COLUMN:
            return {shift: column(name) for shift, name in digits.get(node.data, [(0, node.data)])}
        if node.op == LINEAR:
            return _sum(node, args)
        if node.op == PRODUCT:
            return _product(*args)
        # All else is done to each part alike: the sum over rows, marking and moving them.
        parts = {
            shift: Expression(node.op, tuple(one.get(shift, one[0]) for one in args), node.data, node.is_total)
            for shift in sorted({shift for one in args for shift in one})
        }
        return parts or {0: node}

    found = fold(outputs, rule)
    pairs = [(part, shift) for output in outputs for shift, part in found[output].items()]
    return [part for part, _ in pairs], [shift for _, shift in pairs]


def _sum(node: Expression, args: Sequence[_Parts]) -> _Parts:
    """Sums of equal powers; what is added goes to the first of them."""
    coefficients, constant = node.data
    terms: dict[int, list[tuple[int, Expression]]] = {}
    for coefficient, parts in zip(coefficients, args, strict=True):
        for shift, part in parts.items():
            terms.setdefault(shift, []).append((coefficient, part))
    found: _Parts = {}
    for shift in sorted(terms):
        added_up = combination(terms[shift], 0 if shift else constant)
        if isinstance(added_up, Expression):
            found[shift] = added_up
        elif shift == 0:  # all of it cancels: a part that is a plain number is none
            raise ValueError(f"the smallest digits of {node!r} cancel: leave them out of the sum")
    return found


def _product(a: _Parts, b: _Parts) -> _Parts:
    terms: dict[int, list[tuple[int, Expression]]] = {}
    for i, x in a.items():
        for j, y in b.items():
            terms.setdefault(i + j, []).append((1, x * y))
    return {shift: linear(terms[shift]) for shift in sorted(terms)}


# -- the digits of numbers --------------------------------------------------------------------------------------------------


def digit_bounds(low: int, high: int, bits: int) -> list[Interval]:
    """Between which numbers every digit lies, for numbers from low to high: as many digits as it takes, the smallest first.

    >>> [(digit.low, digit.high) for digit in digit_bounds(-3, 1000, 8)]
    [(-128, 127), (0, 4)]
    """
    half, found = 1 << (bits - 1), list[Interval]()
    while max(-low, high) > half:
        found.append(Interval(-half, half - 1))
        low, high = (low + half) >> bits, (high + half) >> bits
    return [*found, Interval(low, high)]


def digit_of(values: NDArray[np.int64], place: int, count: int, bits: int) -> NDArray[np.int64]:
    """One of ``count`` digits of every number.

    >>> x = np.array([1000, -3])
    >>> digit_of(x, 0, 2, 8), digit_of(x, 1, 2, 8)
    (array([-24,  -3]), array([4, 0]))
    """
    half = 1 << (bits - 1)
    for _ in range(place):
        values = (values + half) >> bits
    return values if place == count - 1 else ((values + half) & ((1 << bits) - 1)) - half


def joined(parts: Sequence[int], shifts: Sequence[int]) -> list[int]:
    """The numbers that the parts make up: each begins with a shift of 0.

    >>> joined([-24, 4, 7], [0, 8, 0])
    [1000, 7]
    """
    totals: list[int] = []
    for part, shift in zip(parts, shifts, strict=True):
        if shift:
            totals[-1] += part << shift
        else:
            totals.append(part)
    return totals
