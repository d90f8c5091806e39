"""Numbers in digits: totals that are larger than any plaintext modulus, from parts that are not.

A column of large numbers is stored as columns of its digits, ``x = x0 + x1 2^b + x2 4^b ...``, each
between -2^b / 2 and 2^b / 2. A product of two is then a sum of products of digits, and a total
falls apart into *parts*, one for each power of 2 that occurs: the owner opens the parts, each
within bounds that are proven as those of any total, and joins them as integers.

Here circuits are rewritten to the totals that are computed, and numbers put together again from
what is opened. Nothing else knows of digits: what is computed are totals like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval
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
    column,
    combination,
    fold,
    linear,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import ArgumentError

#: For a column that is stored in digits: their columns, each with the power of 2 that it counts
#: for.
Digits = Mapping[str, Sequence[tuple[int, str]]]
_Parts = dict[int, Expression]


@dataclass(frozen=True)
class Stored:
    """What a total that is computed is of those that were asked for.

    It counts for 2^``shift`` of one that begins with the last before it whose shift is 0. Where
    there is a ``base``, it is two: one that is at most ``rest``, less than half the base, and as
    many times the base as the other is.
    """

    shift: int = 0
    base: int = 0
    rest: int = 0


WHOLE: Final = Stored()  # one that was asked for, as it is


def split_into_digits(
    outputs: Sequence[Expression], digits: Digits
) -> tuple[list[Expression], list[int]]:
    """The parts of all outputs, one after the other, and the power of 2 that each counts for: every
    output begins with 0.

    >>> x, y = column("x"), column("y")
    >>> split_into_digits([(x * y).total(), y.total()], {"x": [(0, "x0"), (8, "x1")]})
    ([(x0 * y).total(), (x1 * y).total(), y.total()], [0, 8, 0])
    """
    if not digits:
        return list(outputs), [0] * len(outputs)

    found = fold(outputs, lambda node, args: DIGITS[node.op](node, args, digits))
    pairs = [(part, shift) for output in outputs for shift, part in found[output].items()]
    return [part for part, _ in pairs], [shift for _, shift in pairs]


#: The parts of a node from those of its args.
DIGITS: Final = RuleTable[Callable[[Expression, Sequence[_Parts], Digits], _Parts]]("digits")


@DIGITS.rule(COLUMN)
def _split_column(node: Expression, args: Sequence[_Parts], digits: Digits) -> _Parts:
    return {shift: column(name) for shift, name in digits.get(node.data, [(0, node.data)])}


DIGITS.rule(GIVEN, HERE)(lambda node, args, digits: {0: node})


@DIGITS.rule(TOTAL, REPLICATE, RESAMPLE, MASK)
def _split_alike(node: Expression, args: Sequence[_Parts], digits: Digits) -> _Parts:
    # Each part is summed, marked or moved alike.
    (parts,) = args
    return {
        shift: Expression(node.op, (parts[shift],), node.data, node.is_total)
        for shift in sorted(parts)
    }


@DIGITS.rule(LINEAR)
def _split_sum(node: Expression, args: Sequence[_Parts], digits: Digits) -> _Parts:
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
            raise ArgumentError(
                f"the smallest digits of {node!r} cancel: leave them out of the sum",
                code="digits-cancel",
            )
    return found


@DIGITS.rule(PRODUCT)
def _split_product(node: Expression, args: Sequence[_Parts], digits: Digits) -> _Parts:
    a, b = args
    terms: dict[int, list[tuple[int, Expression]]] = {}
    for i, x in a.items():
        for j, y in b.items():
            terms.setdefault(i + j, []).append((1, x * y))
    return {shift: linear(terms[shift]) for shift in sorted(terms)}


# -- the digits of numbers
# ------------------------------------------------------------------------------------------------


def digit_bounds(low: int, high: int, bits: int) -> list[Interval]:
    """Between which numbers every digit lies, for numbers from low to high: as many digits as it
    takes, the smallest first.

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


def join_parts(totals: Sequence[int], stored: Sequence[Stored]) -> list[int]:
    """The numbers that opened totals make up.

    >>> join_parts([-24, 4, 7], [Stored(0), Stored(8), Stored(0)])
    [1000, 7]
    >>> join_parts([5 + 1024 * 3, -5 - 1024 * 2], [Stored(0, 1024, 9)] * 2)
    [5, 3, -5, -2]

    Raises
    ------
    ValueError
        Where the smaller of two that travel as one is larger than it can be.
    """
    numbers: list[int] = []
    for total, one in zip(totals, stored, strict=True):
        if one.base:
            second = (total + one.base // 2) // one.base
            first = total - one.base * second
            if abs(first) > one.rest:
                raise ArgumentError(
                    f"a total decrypts to {first}, outside the ±{one.rest} it is proven to keep: "
                    "the result was altered, or does "
                    "not belong to this computation. It is refused",
                    code="outside-proven-range",
                )
            numbers += [first, second]
        elif one.shift:
            numbers[-1] += total << one.shift
        else:
            numbers.append(total)
    return numbers
