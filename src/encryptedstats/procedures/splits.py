"""Splits of a node of a tree, chosen from the counts of its bins.

All scores are decreases of impurity times rows. For Gini and squared error they are quotients of
exact integers, rounded once, so that equal splits have equal scores on every machine; of these the
first counts, by variable and then by cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from encryptedstats.models.growth import Split
from encryptedstats.models.node_counts import ORDERED, Cell, Values
from encryptedstats.tables.schema.variables import PublicSchema

GINI, ENTROPY, SQUARED = "gini", "entropy", "squared error"
_TIE: Final = 1e-12  # entropies are sums of rounded logarithms


class Impurity:
    """How a node is judged, by the shares of the classes or by the variance of a number.

    Parameters
    ----------
    criterion : str
        ``"gini"``, ``"entropy"`` or ``"squared error"``.
    """

    def __init__(self, criterion: str) -> None:
        self.criterion = criterion

    def count(self, values: Values) -> int:
        """Return the number of rows that values are of."""
        return int(values[0] if self.criterion == SQUARED else values.sum())

    def is_pure(self, values: Values) -> bool:
        """Return whether no split can make a node any better."""
        if self.criterion == SQUARED:
            n, total, squares = map(int, values)
            return n * squares <= total * total
        return int((values > 0).sum()) <= 1

    def measure(self, values: Values) -> float:
        """Return the impurity of a node."""
        n = self.count(values)
        if n == 0:
            return 0.0
        if self.criterion == SQUARED:
            _, total, squares = map(int, values)
            return (n * squares - total * total) / (n * n)
        if self.criterion == ENTROPY:
            return _entropy(values) / n
        return 1.0 - sum(int(k) ** 2 for k in values) / (n * n)

    def score(self, left: Values, whole: Values) -> float:
        """Return the decrease of impurity by a split, times the rows of the node."""
        n, n_left = self.count(whole), self.count(left)
        n_right = n - n_left
        if self.criterion == ENTROPY:
            return _entropy(whole) - _entropy(left) - _entropy(whole - left)
        sums = (left[1:2], whole[1:2]) if self.criterion == SQUARED else (left, whole)
        between = sum((int(a) * n - n_left * int(b)) ** 2 for a, b in zip(*sums, strict=True))
        return between / (n * n_left * n_right)

    def is_better(self, score: float, best: float) -> bool:
        """Return whether a score is above another by more than rounding."""
        if self.criterion == ENTROPY:
            return score > best + _TIE * max(1.0, abs(best))
        return score > best


def best_split(
    candidates: Iterator[tuple[Split, Values]], whole: Values, impurity: Impurity, min_rows: int
) -> tuple[Split, Values] | None:
    """Return the best split of a node and the values of its left side; None if none is allowed.

    ``candidates`` gives splits with the values of their left sides.
    """
    best: tuple[Split, Values] | None = None
    highest = -math.inf
    n = impurity.count(whole)
    for split, left in candidates:
        n_left = impurity.count(left)
        if min(n_left, n - n_left) < min_rows:
            continue
        score = impurity.score(left, whole)
        if best is None or impurity.is_better(score, highest):
            best, highest = (split, left), score
    return best


def all_cuts(
    schema: PublicSchema, variable: int, histogram: Values, impurity: Impurity
) -> Iterator[tuple[Split, Values]]:
    """Yield every cut of a variable with the values of its left side.

    Ordered bins are cut in two; the bin of missing values goes right, then left. Levels are
    sorted by the share of the second class or by the mean, which is enough to find the best split;
    with more classes each level is split from all others.
    """
    for left in _left_sides(schema, variable, histogram, impurity):
        yield Split(variable, left), histogram[list(left)].sum(axis=0)


def _left_sides(
    schema: PublicSchema, variable: int, histogram: Values, impurity: Impurity
) -> Iterator[tuple[int, ...]]:
    known = schema.variables[variable]
    n_bins = known.n_bins
    if known.kind in ORDERED:
        missing = (n_bins - 1,) if known.missing_bin else ()
        ordered = n_bins - len(missing)
        for k in range(1, n_bins):
            yield tuple(range(k))
            if missing and k < ordered:
                yield (*range(k), *missing)
        return
    filled = [k for k in range(n_bins) if impurity.count(histogram[k])]
    if impurity.criterion != SQUARED and histogram.shape[1] > 2:
        yield from ((k,) for k in filled)
        return
    share = {k: int(histogram[k][1]) / impurity.count(histogram[k]) for k in filled}
    ranked = sorted(filled, key=lambda k: (share[k], k))
    for size in range(1, len(ranked)):
        yield tuple(sorted(ranked[:size]))


def random_cut(schema: PublicSchema, variable: int, draws: Any) -> Cell:
    """Return a random side of a split of a variable, drawn without looking at rows."""
    known = schema.variables[variable]
    if known.kind in ORDERED:
        return variable, tuple(range(1 + draws.below(known.n_bins - 1)))
    chosen = 1 + draws.below(2**known.n_bins - 2)
    return variable, tuple(k for k in range(known.n_bins) if chosen >> k & 1)


def as_cell(split: Split, n_bins: int, *, left: bool) -> Cell:
    """Return the side of a split as a set of bins."""
    if left:
        return split.variable, split.left
    return split.variable, tuple(k for k in range(n_bins) if k not in split.left)


def _entropy(values: Sequence[Any] | Values) -> float:
    """Return the entropy of counts times their sum."""
    counts = [int(k) for k in values if k > 0]
    n = sum(counts)
    return math.fsum(-k * math.log(k / n) for k in counts)
