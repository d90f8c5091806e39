"""Numbers in digits: totals that are larger than any plaintext modulus, from parts that are not.

A column of large numbers is stored as columns of its digits, ``x = x0 + x1 2^b + x2 4^b ...``, each
between -2^b / 2 and 2^b / 2. A product of two is then a sum of products of digits, and a total
falls apart into *parts*, one for each power of 2 that occurs: the owner opens the parts, each
within bounds that are proven as those of any total, and joins them as integers.

And the other way round: totals of a small table are digits themselves. Two of them travel as one,
``T1 + B T2``, where it is proven that T1 stays below B / 2, and the owner takes them apart.

Here circuits are rewritten to the totals that are computed, and numbers put together again from
what is opened. Nothing else knows of digits: what is computed are totals like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import ColumnRange, Interval, read_bounds
from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    PRODUCT,
    TOTAL,
    Expression,
    column,
    combination,
    fold,
    linear,
)
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.proof import read_noise
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import ArgumentError, NoiseError

#: For a column that is stored in digits: their columns, each with the power of 2 that it counts
#: for.
Digits = Mapping[str, Sequence[tuple[int, str]]]
_Parts = dict[int, Expression]
_DEEPEST: Final = 64  # steps down two circuits that are alike


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


def in_digits(outputs: Sequence[Expression], digits: Digits) -> tuple[list[Expression], list[int]]:
    """The parts of all outputs, one after the other, and the power of 2 that each counts for: every
    output begins with 0.

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
            shift: Expression(
                node.op, tuple(one.get(shift, one[0]) for one in args), node.data, node.is_total
            )
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
            raise ArgumentError(
                f"the smallest digits of {node!r} cancel: leave them out of the sum",
                code="digits-cancel",
            )
    return found


def _product(a: _Parts, b: _Parts) -> _Parts:
    terms: dict[int, list[tuple[int, Expression]]] = {}
    for i, x in a.items():
        for j, y in b.items():
            terms.setdefault(i + j, []).append((1, x * y))
    return {shift: linear(terms[shift]) for shift in sorted(terms)}


# -- two totals as one
# ------------------------------------------------------------------------------------------------


def proven_pairs(
    single: Sequence[Expression],
    paired: Sequence[Expression],
    parameters: Parameters,
    ranges: Mapping[str, ColumnRange],
    layout: Layout,
    *,
    with_secret_key: bool = True,
) -> list[Stored] | None:
    """What :func:`in_pairs` of some totals are of them, over a table; None where that is not
    proven.

    It is not where one could reach half the base, two could wrap around modulo t, or drown in
    noise.
    """
    base = parameters.pair_base or 0
    found = read_bounds(single, ranges, layout.n_rows, layout.n_chunks * layout.slots)
    largest = [found[output].largest for output in single]
    pairs = list(zip(largest[::2], largest[1::2], strict=False))
    if not all(
        2 * first < base and first + base * second <= parameters.max_value
        for first, second in pairs
    ):
        return None
    try:
        read_noise(paired, parameters, layout, with_secret_key=with_secret_key, quick=True)
    except NoiseError:
        return None
    return [*(Stored(0, base, first) for first, _ in pairs), *(WHOLE for _ in paired[len(pairs) :])]


def in_pairs(outputs: Sequence[Expression], base: int) -> list[Expression]:
    """``T1 + base T2`` for every two neighbours: what they have in common is computed once. An odd
    one is left as it is.

    >>> s, y, z = column("s"), column("y"), column("z")
    >>> in_pairs([(s * y).total(), (s * z).total()], 1024)
    [(s * (y + 1024*z)).total()]
    """
    known: dict[tuple[Expression, Expression], Expression] = {}

    def both(a: Expression, b: Expression, deep: int) -> Expression:
        if (a, b) not in known:
            found = alike(a, b, deep + 1) if deep < _DEEPEST and a.op == b.op else None
            known[a, b] = linear([(1, a), (base, b)]) if found is None else found
        return known[a, b]

    def alike(a: Expression, b: Expression, deep: int) -> Expression | None:
        """By what they are made of, where that is the same but for some factors or terms: all this
        is linear in each of them.
        """
        if a.op == TOTAL:
            return both(a.args[0], b.args[0], deep).total()
        if a.op == PRODUCT:
            shared = next((x for x in a.args if x in b.args), None)
            return (
                None
                if shared is None
                else shared * both(_other(a, shared), _other(b, shared), deep)
            )
        if a.op == LINEAR and a.data[0] == b.data[0]:
            terms = [
                (c, both(x, y, deep)) for c, x, y in zip(a.data[0], a.args, b.args, strict=True)
            ]
            return linear(terms, a.data[1] + base * b.data[1])
        return None

    pairs = [both(a, b, 0) for a, b in zip(outputs[::2], outputs[1::2], strict=False)]
    return [*pairs, *outputs[2 * len(pairs) :]]


def _other(product: Expression, factor: Expression) -> Expression:
    first, second = product.args
    return second if first is factor else first


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


def joined(totals: Sequence[int], stored: Sequence[Stored]) -> list[int]:
    """The numbers that opened totals make up.

    >>> joined([-24, 4, 7], [Stored(0), Stored(8), Stored(0)])
    [1000, 7]
    >>> joined([5 + 1024 * 3, -5 - 1024 * 2], [Stored(0, 1024, 9)] * 2)
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
