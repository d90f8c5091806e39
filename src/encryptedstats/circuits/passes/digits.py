"""Split large numbers into digits, so that totals may be larger than any plaintext modulus.

A column of large numbers is stored as columns of its digits, ``x = x0 + x1 2^b + x2 4^b ...``, each
between -2^b / 2 and 2^b / 2. A product of two is then a sum of products of digits, and a total is a
sum of *parts*, one for each power of 2 that occurs. The owner decrypts the parts, which have proven
bounds like any total, and joins them as integers. No other module knows of digits.
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

#: The columns of a variable's digits, each with its power of 2.
Digits = Mapping[str, Sequence[tuple[int, str]]]
_Parts = dict[int, Expression]


@dataclass(frozen=True)
class Stored:
    """How a computed total relates to the requested ones.

    It counts times 2^``shift`` for the requested total that begins with the last shift of 0. With
    a ``base`` it is a pair, first + base * second, where the first is at most ``rest``, less than
    half the base.
    """

    shift: int = 0
    base: int = 0
    rest: int = 0


WHOLE: Final = Stored()  # a requested total itself


def split_into_digits(
    outputs: Sequence[Expression], digits: Digits
) -> tuple[list[Expression], list[int]]:
    """Return the parts of all outputs in order, and their powers of 2; each output begins with 0.

    >>> x, y = column("x"), column("y")
    >>> split_into_digits([(x * y).total(), y.total()], {"x": [(0, "x0"), (8, "x1")]})
    ([(x0 * y).total(), (x1 * y).total(), y.total()], [0, 8, 0])
    """
    if not digits:
        return list(outputs), [0] * len(outputs)

    found = fold(outputs, lambda node, args: DIGITS[node.op](node, args, digits))
    pairs = [(part, shift) for output in outputs for shift, part in found[output].items()]
    return [part for part, _ in pairs], [shift for _, shift in pairs]


#: Returns the parts of a node from those of its args.
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
    """Add up parts of equal powers; the constant goes to the smallest."""
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
        elif shift == 0:  # a plain number is not a part
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
    """Return the bounds of every digit of numbers from low to high, the smallest first.

    >>> [(digit.low, digit.high) for digit in digit_bounds(-3, 1000, 8)]
    [(-128, 127), (0, 4)]
    """
    half, found = 1 << (bits - 1), list[Interval]()
    while max(-low, high) > half:
        found.append(Interval(-half, half - 1))
        low, high = (low + half) >> bits, (high + half) >> bits
    return [*found, Interval(low, high)]


def digit_of(values: NDArray[np.int64], place: int, count: int, bits: int) -> NDArray[np.int64]:
    """Return one of ``count`` digits of every number.

    >>> x = np.array([1000, -3])
    >>> digit_of(x, 0, 2, 8), digit_of(x, 1, 2, 8)
    (array([-24,  -3]), array([4, 0]))
    """
    half = 1 << (bits - 1)
    for _ in range(place):
        values = (values + half) >> bits
    return values if place == count - 1 else ((values + half) & ((1 << bits) - 1)) - half


def join_parts(totals: Sequence[int], stored: Sequence[Stored]) -> list[int]:
    """Join decrypted parts and pairs to the requested numbers.

    >>> join_parts([-24, 4, 7], [Stored(0), Stored(8), Stored(0)])
    [1000, 7]
    >>> join_parts([5 + 1024 * 3, -5 - 1024 * 2], [Stored(0, 1024, 9)] * 2)
    [5, 3, -5, -2]

    Raises
    ------
    ArgumentError
        If the first number of a pair is outside its bounds.
    """
    numbers: list[int] = []
    for total, one in zip(totals, stored, strict=True):
        if one.base:
            second = (total + one.base // 2) // one.base
            first = total - one.base * second
            if abs(first) > one.rest:
                raise ArgumentError(
                    f"a total decrypts to {first}, outside its proven bounds ±{one.rest}: the "
                    "result was altered, or belongs to another computation",
                    code="outside-proven-range",
                )
            numbers += [first, second]
        elif one.shift:
            numbers[-1] += total << one.shift
        else:
            numbers.append(total)
    return numbers
