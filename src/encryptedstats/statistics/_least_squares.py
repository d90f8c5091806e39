"""Least squares from exact totals: everything that a regression says follows from one elimination in integers.

Sums of squares and products are Python integers, so nothing is rounded before the end, however ill-conditioned the columns are: a
column that depends on earlier ones has a pivot of exactly 0. Nothing here knows tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError
from encryptedstats.tables.questions import refuse_impossible

Exact = NDArray[Any]  # of Python's integers or fractions


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums of x_1 ... x_p, y and of the products of any two, over rows and with weights; in integers, and their units.

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
        """Sums of products around the means (around 0 without an intercept), times ``divisor``: integers."""
        if not self.centred:
            return self.products
        found: Exact = self.weight * self.products - np.outer(self.sums, self.sums)
        return found

    @property
    def divisor(self) -> int:
        """What the scatter is to be divided by."""
        return self.weight if self.centred else 1

    @cached_property
    def means(self) -> Exact:
        """Of all columns, y the last, in their units; 0 without an intercept."""
        if not self.centred:
            return np.array([Fraction(0)] * len(self.sums), dtype=object)
        return np.array(
            [Fraction(s, self.weight * scale) for s, scale in zip(self.sums, self.scales, strict=True)], dtype=object
        )

    @cached_property
    def in_units(self) -> Exact:
        """The scatter in units of the columns, as fractions."""
        unit = self.divisor * self.weight_scale
        found = [
            [Fraction(value, unit * a * b) for value, b in zip(row, self.scales, strict=True)]
            for row, a in zip(self.scatter, self.scales, strict=True)
        ]
        return np.array(found, dtype=object)

    def of(self, columns: Sequence[int]) -> Moments:
        """The same for some of the columns x."""
        kept = [*columns, len(self.sums) - 1]
        products, scales = self.products[np.ix_(kept, kept)], self.scales[kept]
        return Moments(self.n_rows, self.weight, self.sums[kept], products, scales, self.weight_scale, self.centred)

    def check(self) -> None:
        """Refuse sums that no rows can have."""
        refuse_impossible(self.weight >= 0, "the weights add up to less than nothing")
        if not self.weight:
            raise DataError("the weights of all rows are 0: there is nothing to explain")
        refuse_impossible(all(value >= 0 for value in np.diag(self.scatter)), "a sum of squares would be negative")


@dataclass(frozen=True, eq=False)
class Solution:
    """The least squares of y on x_1 ... x_p, in the units of the columns; exact.

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
    moments: Moments

    @property
    def unscaled_covariance(self) -> Exact:
        """(X'WX)^-1 of the intercept, if there is one, and the columns."""
        if not self.moments.centred:
            return self.inverse
        means = self.moments.means[:-1]
        across = self.inverse @ means if len(means) else means
        p = len(self.slopes)
        found = np.empty((p + 1, p + 1), dtype=object)
        weight = Fraction(self.moments.weight, self.moments.weight_scale)
        found[0, 0] = 1 / weight + (means @ across if p else 0)
        found[0, 1:] = found[1:, 0] = -across
        found[1:, 1:] = self.inverse
        return found


def solve(moments: Moments, penalty: Fraction = Fraction(0)) -> Solution:
    """Least squares, with a penalty on the squares of the slopes."""
    moments.check()
    p, y_scale = len(moments.sums) - 1, int(moments.scales[-1])
    unit = moments.divisor * moments.weight_scale
    work = np.zeros((p + 1, 2 * p + 1), dtype=object)
    work[:, : p + 1] = moments.scatter * penalty.denominator
    for j in range(p):
        work[j, j] += penalty.numerator * unit * int(moments.scales[j]) ** 2
        work[j, p + 1 + j] = 1
    unit *= penalty.denominator
    found = eliminate(work, p)
    residuals = [Fraction(int(corner), below * unit * y_scale**2) for corner, below in found.corners]
    refuse_impossible(residuals[-1] >= 0, "a sum of squares would be negative")
    slopes = np.array([Fraction(0)] * p, dtype=object)
    inverse = np.full((p, p), Fraction(0), dtype=object)
    for a in found.used:
        scale = int(moments.scales[a])
        slopes[a] = Fraction(int(found.work[a, p]) * scale, found.below * y_scale)
        for b in found.used:
            value = int(found.work[a, p + 1 + b])
            inverse[a, b] = Fraction(value * unit * scale * int(moments.scales[b]), found.below)
    means = moments.means
    intercept = means[-1] - sum((slope * mean for slope, mean in zip(slopes, means[:-1], strict=True)), Fraction(0))
    return Solution(found.used, slopes, intercept, inverse, residuals, moments)


@dataclass(frozen=True, eq=False)
class Eliminated:
    """What is left of a matrix of integers: divided by ``below``, its first columns are those of the identity where ``used``.

    ``corners`` are the last row of the last of these columns before and after each step, and what divides it.
    """

    work: Exact
    below: int
    used: list[int]
    corners: list[tuple[int, int]]


def eliminate(work: Exact, p: int) -> Eliminated:
    """Fraction-free elimination (Bareiss, 1968) of the first p columns, in order.

    A column that depends on earlier ones is left out. Every entry stays a minor of the matrix, so that the divisions leave nothing
    over.
    """
    below, used, corners = 1, [], [(work[-1, p], 1)] if work.shape[1] > p else []
    for k in range(p):
        pivot = int(work[k, k])
        refuse_impossible(pivot >= 0, "a sum of squares would be negative")
        if pivot:
            row = work[k].copy()
            work = (pivot * work - np.outer(work[:, k], row)) // below
            work[k] = row
            below = pivot
            used.append(k)
        if corners:
            corners.append((work[-1, p], below))
    return Eliminated(work, below, used, corners)


def independent(scatter: Exact) -> list[int]:
    """The columns that depend on no earlier ones, from exact sums of products."""
    return eliminate(np.array(scatter, dtype=object), len(scatter)).used


def as_floats(values: Any) -> NDArray[np.float64]:
    """Fractions as floats, each rounded once."""
    array = np.asarray(values, dtype=object)
    found: NDArray[np.float64] = np.array([float(value) for value in array.flat], dtype=float).reshape(array.shape)
    return found
