"""Histograms of gradients, and the best split of a node by them.

A histogram has for each variable and bin the sums of gradients and hessians, scaled to integers,
and the rows. Integers are added and subtracted exactly, so a sibling is its parent less the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from encryptedstats.models.growth import Split
from encryptedstats.models.node_counts import ORDERED
from encryptedstats.tables.schema.variables import PublicSchema

#: Gradients, hessians and rows.
Sums = list[int]
Histogram = list[list[Sums]]  # by variable and bin
#: The least hessian of a child, as scikit-learn has it.
LEAST_HESSIAN: Final = 1e-3


@dataclass(frozen=True)
class Chooser:
    """How splits are chosen.

    Attributes
    ----------
    schema : PublicSchema
    positions : list of int
        The variables of a histogram.
    l2 : float
    min_rows : int
        The smallest number of rows of a child.
    bits : int
        Gradients and hessians are integers over ``2^bits``.
    """

    schema: PublicSchema
    positions: list[int]
    l2: float
    min_rows: int
    bits: int

    def choose(self, histogram: Histogram, whole: Sums) -> tuple[Split, Sums] | None:
        """Return the split that lowers the loss most, and the sums of its left side; of equal ones
        the first.
        """
        best: tuple[Split, Sums] | None = None
        highest = 0.0
        for j, bins in zip(self.positions, histogram, strict=True):
            for left in self._left_sides(j, bins):
                sums = add_up([bins[k] for k in left])
                other = subtract(whole, sums)
                if not (self._is_allowed(sums) and self._is_allowed(other)):
                    continue
                gain = self._score(sums) + self._score(other) - self._score(whole)
                if gain > highest:
                    best, highest = (Split(j, left), sums), gain
        return best

    def value(self, sums: Sums) -> float:
        """Return the Newton step of a leaf."""
        gradient, hessian = self._units(sums)
        weight = hessian + self.l2
        return -gradient / weight if weight > 0 else 0.0

    def can_split(self, sums: Sums) -> bool:
        """Return whether a node has rows enough for two children."""
        return sums[2] >= 2 * self.min_rows

    def _units(self, sums: Sums) -> tuple[float, float]:
        unit = 1 << self.bits
        return sums[0] / unit, sums[1] / unit

    def _is_allowed(self, sums: Sums) -> bool:
        return sums[2] >= self.min_rows and self._units(sums)[1] >= LEAST_HESSIAN

    def _score(self, sums: Sums) -> float:
        gradient, hessian = self._units(sums)
        weight = hessian + self.l2
        return gradient * gradient / weight if weight > 0 else 0.0

    def _left_sides(self, j: int, bins: Sequence[Sums]) -> Iterator[tuple[int, ...]]:
        """Yield left sides of a variable: runs of ordered bins, with missing values on the right
        and then on the left; of levels in the order of their mean step.
        """
        known = self.schema.variables[j]
        n = known.n_bins
        if known.kind in ORDERED:
            missing = (n - 1,) if known.missing_bin else ()
            for k in range(1, n):
                yield tuple(range(k))
                if missing and k < n - 1:
                    yield (*range(k), *missing)
            return
        filled = [k for k in range(n) if bins[k][2]]
        ranked = sorted(filled, key=lambda k: (-self.value(bins[k]), k))
        for size in range(1, len(ranked)):
            yield tuple(sorted(ranked[:size]))


def add_up(parts: Sequence[Sums]) -> Sums:
    """Return the sum of the rows behind several sums."""
    return [sum(part[m] for part in parts) for m in range(3)]


def subtract(whole: Sums, part: Sums) -> Sums:
    """Return the sums of the rest."""
    return [a - b for a, b in zip(whole, part, strict=True)]


def subtract_histograms(whole: Histogram, part: Histogram) -> Histogram:
    """Return the histogram of the rest."""
    return [
        [subtract(a, b) for a, b in zip(of_whole, of_part, strict=True)]
        for of_whole, of_part in zip(whole, part, strict=True)
    ]
