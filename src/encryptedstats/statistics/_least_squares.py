"""Least squares from exact totals: everything that a regression says follows from one elimination.

Sums of squares and products are Python integers. They are eliminated in fixed point, with as many
digits as the conditioning of the columns asks for, so that 192 binary digits of every result are
right; zeros are found in modular arithmetic. A column that depends on earlier ones has a pivot of
exactly 0. Nothing here knows tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from operator import mul
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError
from encryptedstats.tables.questions.question import refuse_impossible

Exact = NDArray[Any]  # of Python's integers or fractions
#: Binary digits of slopes and of the inverse, in units in which every sum of squares is about 1.
DIGITS: Final = 192
_FIRST_BITS: Final = 384
_CLEAR_BITS: Final = 64  # of a residual sum of squares that are right, at least
_CANCELLED: Final = 1 << 128  # a sum of rounded terms that is smaller than them by this factor is 0
_PRIME: Final = (1 << 127) - 1
_NEGATIVE: Final = "a sum of squares would be negative"


@dataclass(frozen=True, eq=False)
class CrossProducts:
    """Sums of x_1 ... x_p, y and of the products of any two, over rows and with weights; in
    integers, and their units.

    Parameters
    ----------
    n_rows : int
        Rows.
    weight : int
        The sum of their weights, in integers: that of the rows where they have none.
    sums : array of shape (p + 1,)
        y is the last.
    products : array of shape (p + 1, p + 1)
    scales : array of shape (p + 1,)
        What the integers of each column were multiplied by.
    weight_scale : int
        The same of the weights.
    centred : bool
        Whether there is an intercept.
    """

    n_rows: int
    weight: int
    sums: Exact
    products: Exact
    scales: Exact
    weight_scale: int = 1
    centred: bool = True

    @cached_property
    def scatter(self) -> Exact:
        """Return sums of products around the means (around 0 without an intercept), times
        ``divisor``: integers.
        """
        if not self.centred:
            return self.products
        found: Exact = self.weight * self.products - np.outer(self.sums, self.sums)
        return found

    @property
    def divisor(self) -> int:
        """Return what the scatter is to be divided by."""
        return self.weight if self.centred else 1

    @cached_property
    def means(self) -> Exact:
        """Return the means of all columns, y the last, in their units; 0 without an intercept."""
        if not self.centred:
            return np.array([Fraction(0)] * len(self.sums), dtype=object)
        return np.array(
            [
                Fraction(s, self.weight * scale)
                for s, scale in zip(self.sums, self.scales, strict=True)
            ],
            dtype=object,
        )

    @cached_property
    def squares_in_units(self) -> list[Fraction]:
        """Return the diagonal of the scatter in units of the columns."""
        unit = self.divisor * self.weight_scale
        pairs = zip(np.diag(self.scatter), self.scales, strict=True)
        return [Fraction(int(value), unit * int(scale) ** 2) for value, scale in pairs]

    def of(self, columns: Sequence[int]) -> CrossProducts:
        """Return the same for some of the columns x."""
        kept = [*columns, len(self.sums) - 1]
        products, scales = self.products[np.ix_(kept, kept)], self.scales[kept]
        return CrossProducts(
            self.n_rows,
            self.weight,
            self.sums[kept],
            products,
            scales,
            self.weight_scale,
            self.centred,
        )

    def combine(self, lines: Exact) -> CrossProducts:
        """Return the moments of combinations of the columns, of y and of 1; the last is the new y.

        Parameters
        ----------
        lines : array of Fraction of shape (n, p + 2)
            In units of the columns.
        """
        size = len(self.sums)
        whole = np.empty((size + 1, size + 1), dtype=object)
        whole[:-1, :-1], whole[-1, :-1], whole[:-1, -1] = self.products, self.sums, self.sums
        whole[-1, -1] = self.weight
        units = [*(int(one) for one in self.scales), 1]
        parts = [[value / unit for value, unit in zip(line, units, strict=True)] for line in lines]
        scales = [lcm(*(value.denominator for value in line)) for line in parts]
        matrix = np.array(
            [[int(value * own) for value in line] for line, own in zip(parts, scales, strict=True)],
            dtype=object,
        )
        half = matrix @ whole
        return replace(
            self,
            sums=half[:, -1],
            products=half @ matrix.T,
            scales=np.array(scales, dtype=object),
        )

    def check(self) -> None:
        """Refuse sums that no rows can have."""
        refuse_impossible(self.weight >= 0, "the weights add up to less than nothing")
        if not self.weight:
            raise DataError(
                "the weights of all rows are 0: there is nothing to explain",
                code="all-weights-zero",
            )
        refuse_impossible(
            all(value >= 0 for value in np.diag(self.scatter)), "a sum of squares would be negative"
        )


@dataclass(frozen=True, eq=False)
class Solution:
    """The least squares of y on x_1 ... x_p, in the units of the columns.

    Numbers are rounded to 192 binary digits, in units in which every sum of squares is about 1;
    zeros are exact.

    Attributes
    ----------
    used : list of int
        Columns that depend on no earlier ones.
    slopes : array of shape (p,)
        0 for columns that are not used.
    intercept : Fraction
    inverse : array of shape (p, p)
        Of the scatter of the columns that are used; 0 elsewhere.
    residuals : list of Fraction
        The sum of squares that is left without any column, and after each.
    """

    used: list[int]
    slopes: Exact
    intercept: Fraction
    inverse: Exact
    residuals: list[Fraction]
    moments: CrossProducts

    @property
    def unscaled_covariance(self) -> Exact:
        """Return (X'WX)^-1 of the intercept, if there is one, and the columns."""
        if not self.moments.centred:
            return self.inverse
        means, p = self.moments.means[:-1], len(self.slopes)
        across = [add_up(row[k] * means[k] for k in self.used) for row in self.inverse]
        found = np.empty((p + 1, p + 1), dtype=object)
        weight = Fraction(self.moments.weight, self.moments.weight_scale)
        found[0, 0] = 1 / weight + add_up(means[k] * across[k] for k in self.used)
        found[0, 1:] = found[1:, 0] = [-value for value in across]
        found[1:, 1:] = self.inverse
        return found

    def explained_by(self, columns: Sequence[int]) -> tuple[int, Fraction]:
        """Return the degrees of freedom and the sum of squares of adjacent columns, after all
        before them.
        """
        if not columns:
            return 0, Fraction(0)
        squares = self.residuals[columns[0]] - self.residuals[columns[-1] + 1]
        return len(set(columns) & set(self.used)), squares

    def explained_last(self, columns: Sequence[int]) -> tuple[int, Fraction]:
        """Return the degrees of freedom and the sum of squares of columns, after all others.

        The others must not become independent when these columns are left out: see
        :meth:`is_stable_without`.
        """
        own = [j for j in columns if j in self.used]
        return len(own), _quadratic(self.inverse[np.ix_(own, own)], self.slopes[own])

    def is_stable_without(self, columns: Sequence[int]) -> bool:
        """Return whether no other column is aliased, except for columns that do not vary."""
        aliased = set(range(len(self.slopes))) - set(self.used) - set(columns)
        return not any(self.moments.scatter[j, j] for j in aliased)


def _quadratic(matrix: Exact, vector: Exact) -> Fraction:
    """Return v' A^-1 v of a positive definite matrix."""
    rows = [[*line, value] for line, value in zip(matrix.tolist(), vector.tolist(), strict=True)]
    found = Fraction(0)
    for k, row in enumerate(rows):
        found += row[-1] ** 2 / row[k]
        for below in rows[k + 1 :]:
            ratio = below[k] / row[k]
            below[k:] = [b - ratio * a for a, b in zip(row[k:], below[k:], strict=True)]
    return found


def add_up(terms: Iterable[Fraction]) -> Fraction:
    """Return the sum of rounded numbers; 0 where only their rounding is left."""
    listed = list(terms)
    found = sum(listed, Fraction(0))
    return found if abs(found) * _CANCELLED > sum(map(abs, listed)) else Fraction(0)


def solve(moments: CrossProducts, penalty: Fraction = Fraction(0)) -> Solution:
    """Solve least squares, with a penalty on the squares of the slopes."""
    moments.check()
    p, unit = len(moments.sums) - 1, moments.divisor * moments.weight_scale
    scales = [int(scale) for scale in moments.scales]
    matrix = [[int(value) * penalty.denominator for value in row] for row in moments.scatter]
    for j in range(p):
        matrix[j][j] += penalty.numerator * unit * scales[j] ** 2
    unit *= penalty.denominator
    found = factor_matrix(matrix, p)
    y, y_scale = found.halves[-1], scales[-1]

    def round_scaled(value: int, bits: int, above: int, below: int) -> Fraction:
        return Fraction(value * above << max(0, -bits), below << max(0, bits))

    left, gains = found.corner, dict(zip(found.used, found.gains, strict=True))
    residuals = [round_scaled(left, found.bits - 2 * y, 1, unit * y_scale**2)]
    for j in reversed(range(p)):
        left += gains.get(j, 0)
        residuals.append(round_scaled(left, found.bits - 2 * y, 1, unit * y_scale**2))
    slopes = np.array([Fraction(0)] * p, dtype=object)
    inverse = np.full((p, p), Fraction(0), dtype=object)
    for place, a in enumerate(found.used):
        slopes[a] = round_scaled(
            found.slopes[place], DIGITS + found.halves[a] - y, scales[a], y_scale
        )
        for other, b in enumerate(found.used[: place + 1]):
            bits = DIGITS + found.halves[a] + found.halves[b]
            value = round_scaled(found.inverse[other][place], bits, unit * scales[a] * scales[b], 1)
            inverse[a, b] = inverse[b, a] = value
    means = moments.means
    intercept = add_up([means[-1], *(-slopes[j] * means[j] for j in found.used)])
    return Solution(found.used, slopes, intercept, inverse, residuals[::-1], moments)


# -- factors of a matrix ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Elimination:
    """Results of eliminating the columns of a symmetric matrix of integers; its last row and column
    may be y's.

    Row and column j are divided by ``2^halves[j]``, so that the diagonal lies between 1/4 and 1.

    Attributes
    ----------
    used : list of int
        Columns that depend on no earlier ones.
    halves : list of int
    bits : int
        ``corner`` and ``gains`` are integers over ``2^bits``.
    corner : int
        What is left of y's entry of the diagonal.
    gains : list of int
        What each used column takes from it.
    slopes : list of int
        Of the used columns, over ``2^DIGITS``.
    inverse : list of lists of int
        Of the used columns, over ``2^DIGITS``.
    """

    used: list[int]
    halves: list[int]
    bits: int
    corner: int
    gains: list[int]
    slopes: list[int]
    inverse: list[list[int]]


def factor_matrix(matrix: Sequence[Sequence[int]], p: int) -> Elimination:
    """Eliminate the first p columns of a positive semidefinite matrix of integers, in order.

    A column that depends on earlier ones is left out. Pivots are compared with 0 modulo a prime of
    127 bits: an integer that is not 0 passes for 0 with a probability of about 2^-127. Everything
    else is computed in fixed point, with more digits than the conditioning of the columns can cost.
    """
    zeros = _eliminate_modulo(matrix, p)
    kept = [*zeros.used, *range(p, len(matrix))]
    halves = [(int(matrix[j][j]).bit_length() + 1) // 2 for j in range(len(matrix))]
    chosen = [[int(matrix[a][b]) for b in kept] for a in kept]
    bits = _FIRST_BITS
    while True:
        found = _eliminate_rounded(chosen, [halves[a] for a in kept], len(zeros.used), bits)
        if found is not None:
            lost = _lost_bits(found.inverse, bits)
            refuse_impossible(zeros.corner or found.corner > -1 << lost, _NEGATIVE)
            clear = zeros.corner or found.corner >> (lost + _CLEAR_BITS) > 0
            if clear and bits - lost >= DIGITS:
                break
        bits *= 2
    shift = bits - DIGITS
    half = 1 << (shift - 1)
    return Elimination(
        zeros.used,
        halves,
        bits,
        0 if zeros.corner else found.corner,
        [0 if zero else gain for zero, gain in zip(zeros.gains, found.gains, strict=True)],
        [(value + half) >> shift for value in found.slopes],
        [[(value + half) >> shift for value in row] for row in found.inverse],
    )


@dataclass(frozen=True, eq=False)
class _Zeros:
    """Which columns are used, which of them take nothing from the corner, and whether nothing of it
    is left.
    """

    used: list[int]
    gains: list[bool]
    corner: bool


def _eliminate_modulo(matrix: Sequence[Sequence[int]], p: int) -> _Zeros:
    rows = [[int(value) % _PRIME for value in row[j:]] for j, row in enumerate(matrix)]
    used, gains, has_y = list[int](), list[bool](), len(matrix) > p
    for k in range(p):
        pivot, *rest = rows[k]
        if not pivot:
            refuse_impossible(not any(rest), _NEGATIVE)
            continue
        used.append(k)
        gains.append(not (has_y and rest[-1]))
        inverse = pow(pivot, -1, _PRIME)
        for place, value in enumerate(rest):
            if value:
                ratio, below = value * inverse % _PRIME, rows[k + 1 + place]
                rows[k + 1 + place] = [
                    (b - ratio * a) % _PRIME for a, b in zip(rest[place:], below, strict=True)
                ]
    return _Zeros(used, gains, not (has_y and rows[-1][0]))


@dataclass(frozen=True, eq=False)
class _Rounded:
    corner: int
    gains: list[int]
    slopes: list[int]
    inverse: list[list[int]]


def _eliminate_rounded(
    matrix: Sequence[Sequence[int]], halves: Sequence[int], p: int, bits: int
) -> _Rounded | None:
    """Eliminate independent columns in fixed point; None where a pivot cannot be told from 0 with
    these bits.

    Every step rounds by at most 2^-bits, so the factors are exactly those of a matrix that differs
    by n 2^-bits.
    """
    rows = [
        [
            _shift(value, bits - halves[i] - half)
            for value, half in zip(row[i:], halves[i:], strict=True)
        ]
        for i, row in enumerate(matrix)
    ]
    ratios, pivots, gains = [], [], []
    for k in range(p):
        pivot, *rest = rows[k]
        refuse_impossible(pivot > -1 << bits // 2, _NEGATIVE)
        if pivot < 1 << bits // 2:
            return None
        ratio = [(value << bits) // pivot for value in rest]
        for place, value in enumerate(rest):
            if value:
                below = rows[k + 1 + place]
                rows[k + 1 + place] = [
                    b - (value * a >> bits) for a, b in zip(ratio[place:], below, strict=True)
                ]
        pivots.append(pivot)
        ratios.append(ratio)
        gains.append(rest[-1] * ratio[-1] >> bits if len(matrix) > p else 0)
    slopes, inverse = [0] * p, [[0] * p for _ in range(p)]
    for k in reversed(range(p)):
        ratio = ratios[k][: p - k - 1]
        if len(matrix) > p:
            slopes[k] = ratios[k][-1] - (sum(map(mul, ratio, slopes[k + 1 :])) >> bits)
        for j in range(k + 1, p):
            inverse[k][j] = inverse[j][k] = -(sum(map(mul, ratio, inverse[j][k + 1 :])) >> bits)
        inverse[k][k] = (1 << 2 * bits) // pivots[k] - (
            sum(map(mul, ratio, inverse[k][k + 1 :])) >> bits
        )
    return _Rounded(rows[-1][0] if len(matrix) > p else 0, gains, slopes, inverse)


def _shift(value: int, bits: int) -> int:
    return value << bits if bits >= 0 else value >> -bits


def _lost_bits(inverse: Sequence[Sequence[int]], bits: int) -> int:
    """Bound the bits that rounding costs: the trace bounds the norm of the inverse, whose square
    multiplies errors.
    """
    trace = sum(row[j] for j, row in enumerate(inverse))
    norm = max(0, trace.bit_length() - bits)
    return 3 * norm + 6 * len(inverse).bit_length() + 16


def independent(scatter: Exact) -> list[int]:
    """Return the columns that depend on no earlier ones, from exact sums of products."""
    return factor_matrix(scatter.tolist(), len(scatter)).used


def as_floats(values: Any) -> NDArray[np.float64]:
    """Return fractions as floats, each rounded once."""
    array = np.asarray(values, dtype=object)
    found: NDArray[np.float64] = np.array(
        [float(value) for value in array.flat], dtype=float
    ).reshape(array.shape)
    return found
