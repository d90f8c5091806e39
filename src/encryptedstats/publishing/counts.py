"""Turn noisy counts into counts that some rows could have: whole, not below 0, adding up. All of it
is post-processing.

Where many noisy counts are summed later, as the votes of a forest are, they must not be corrected
one by one: noise that is cut off at 0 in one leaf would be missing in a sum of a hundred. So the
leaves of all trees are estimated together, and the counts of a forest are the possible counts whose
*votes* are nearest to the votes of that estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from encryptedstats.models.growth import Tree

Numbers = NDArray[Any]
Floats = NDArray[np.float64]
_FAR: Final = 4.0  # deviations, beyond which hardly any noise is
_MOST_LEAVES: Final = (
    2_048  # that are put right together: their overlaps are as many numbers squared
)
_STEPS: Final = 100  # of a descent: more change votes by a thousandth of their noise
_LEAST_SHARE: Final = 1e-3  # of what a cell would hold if rows and columns were independent
_SCALINGS: Final = 200
_TINY: Final = 1e-12
_CLOSE: Final = 0.02  # of a row: less does not change whole counts


def counts_of(noisy: Numbers, total: int | None) -> Numbers:
    """Return the nearest whole counts that are not below 0 and add up to the total if it is known.

    >>> counts_of(np.array([7.2, -1.0, 3.9]), 10)
    array([7, 0, 3], dtype=object)
    """
    values = np.asarray(noisy, dtype=float)
    if total is None:
        total = max(0, round(float(values.sum())))
    if total == 0:
        return as_objects([0] * len(values))
    near = _possible(values, total)
    whole = np.floor(near)
    missing = round(total - float(whole.sum()))
    for place in np.argsort(whole - near, kind="stable")[: max(0, missing)]:
        whole[place] += 1
    return as_objects([int(x) for x in whole])


def class_counts_of(noisy: Numbers, total: int | None, deviation: float) -> Numbers:
    """Counts of classes: the mean of what each can be, from 0 to all rows, given what noise of this
    deviation made of it.

    That is the estimate of least mean squared error without other knowledge, and none is 0
    where there are as many rows as classes: a class that noise took away would predict nothing. Far
    from the ends it is the noisy count itself, and without noise always.

    >>> class_counts_of(np.array([-5.0, 105.0]), 100, 1.0)
    array([1, 99], dtype=object)
    """
    if not deviation:
        return counts_of(noisy, total)
    from scipy.stats import truncnorm

    values = np.asarray(noisy, dtype=float)
    ends = (0.0, np.inf if total is None else float(total))
    low, high = ((end - values) / deviation for end in ends)
    means = truncnorm.mean(low, high, loc=values, scale=deviation)
    known = round(float(means.sum())) if total is None else total
    if total is not None:
        means = means * (total / means.sum())
    least = int(known >= len(values))
    return counts_of(means - least, known - least * len(values)) + least


def shrunk(noisy: Floats, middle: Floats, deviation: float) -> Floats:
    """Shrink noisy counts towards equal groups in proportion to their noise (James and Stein,
    1961).

    All shrink by the same factor. Otherwise most of the noise would be cut off at 0 in each group.
    The factor is never larger than needed for few of them to be below 0.
    """
    spread = float(((noisy - middle) ** 2).sum())
    if not deviation or not spread:
        return noisy
    signal = 1 - noisy.size * deviation**2 / spread
    few = min(1.0, float(middle.min()) / (_FAR * deviation))
    return middle + max(signal, few) * (noisy - middle)


def table_of(near: Floats, rows: Numbers, columns: Numbers) -> Numbers:
    """Return a whole table, not below 0, with these margins, whose cells are near others.

    The cells are scaled to the margins (iterative proportional fitting) and rounded so that the
    margins stay, by a flow.

    >>> table_of(np.array([[3.2, -1.0], [0.4, 5.0]]), np.array([3, 5]), np.array([4, 4]))
    array([[3, 0],
           [1, 4]])
    """
    row_sums, column_sums = rows.astype(float), columns.astype(float)
    if not row_sums.sum():
        return np.zeros(near.shape, dtype=np.int64)
    nearest = np.maximum(np.round(near), 0.0)
    if (nearest.sum(axis=1) == row_sums).all() and (nearest.sum(axis=0) == column_sums).all():
        return nearest.astype(np.int64)
    expected = np.outer(row_sums, column_sums) / row_sums.sum()
    cells = np.maximum(near, _LEAST_SHARE * expected) * (expected > 0)
    for _ in range(_SCALINGS):
        cells *= (row_sums / np.maximum(cells.sum(axis=1), _TINY))[:, None]
        cells *= column_sums / np.maximum(cells.sum(axis=0), _TINY)
        if np.abs(cells.sum(axis=1) - row_sums).max() < _CLOSE / row_sums.size:
            break
    whole = np.floor(cells).astype(np.int64)
    more = [rows.astype(np.int64) - whole.sum(axis=1), columns.astype(np.int64) - whole.sum(axis=0)]
    found: Numbers = whole + _ones_with_margins(cells - whole, *more)
    return found


def _ones_with_margins(shares: Floats, rows: Numbers, columns: Numbers) -> Numbers:
    """Return a table of zeros and ones with these margins, with ones where shares are not 0."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    n, m = shares.shape
    for allowed in (shares > _TINY, np.ones_like(shares, dtype=bool)):
        source, sink = n + m, n + m + 1
        edges = np.zeros((n + m + 2, n + m + 2), dtype=np.int32)
        edges[:n, n : n + m] = allowed
        edges[source, :n], edges[n : n + m, sink] = rows, columns
        found = maximum_flow(csr_array(edges), source, sink)
        if found.flow_value == rows.sum():
            flow: Numbers = found.flow.toarray()[:n, n : n + m]
            return np.maximum(flow, 0).astype(np.int64)
    raise ArithmeticError("no table has these margins")


def as_objects(values: Sequence[int]) -> Numbers:
    """Return whole numbers of any size as an array."""
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _possible(values: Floats, total: float) -> Floats:
    """Project numbers along the last axis on those that are not below 0 and add up to a positive
    total.

    This is least squares on the simplex (Duchi et al., 2008): all decrease by the same amount, and
    negative numbers become 0.
    """
    falling = -np.sort(-values, axis=-1)
    excess = (np.cumsum(falling, axis=-1) - total) / np.arange(1, values.shape[-1] + 1)
    last = (falling > excess).cumsum(axis=-1).argmax(axis=-1)
    return np.maximum(values - np.take_along_axis(excess, last[..., None], axis=-1), 0.0)


# -- forests
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Boxes:
    """The bins of every variable in each leaf: shape (trees, leaves, variables, bins).

    A leaf that no row can reach, because two splits exclude each other, has no bin of a variable.
    """

    bins: NDArray[np.bool_]
    n_bins: NDArray[np.int64]

    @classmethod
    def of(cls, trees: Sequence[Tree], n_bins: Sequence[int]) -> Boxes:
        """Return the leaves of completely random trees.

        A number has no bins and is in no split: it counts as one bin.
        """
        sizes = np.maximum(n_bins, 1)
        most = int(sizes.max())
        whole = np.arange(most) < sizes[:, None]
        found = []
        for tree in trees:
            nodes = [whole]
            for node, split in enumerate(tree):
                left, right = nodes[node].copy(), nodes[node].copy()
                goes_left = np.isin(np.arange(most), split.left)
                left[split.variable] &= goes_left
                right[split.variable] &= ~goes_left
                nodes += [left, right]
            found.append(nodes[len(tree) :])
        return cls(np.array(found), sizes)

    @property
    def reached(self) -> NDArray[np.bool_]:
        """Leaves that rows can come to, of shape (trees, leaves)."""
        return np.asarray(np.all(np.any(self.bins, axis=3), axis=2), dtype=np.bool_)

    def overlaps(self) -> Floats:
        """Return the share of all kinds of rows that reach both of two leaves, over all trees."""
        flat = self.bins.reshape(-1, *self.bins.shape[2:]).astype(float)
        found = np.ones((len(flat), len(flat)))
        for variable, size in enumerate(self.n_bins):
            found *= flat[:, variable] @ flat[:, variable].T / size
        return found

    def in_parts(self) -> Iterator[tuple[slice, Boxes]]:
        """Yield groups of trees with a limited number of leaves."""
        at_once = max(1, _MOST_LEAVES // self.bins.shape[1])
        for start in range(0, len(self.bins), at_once):
            part = slice(start, start + at_once)
            yield part, Boxes(self.bins[part], self.n_bins)


def likely_leaf_counts(noisy: Floats, n_rows: int, boxes: Boxes, deviation: float) -> Floats:
    r"""Return the likely counts of leaves, shape (trees, leaves, classes), before this noise.

    Noise on leaves is the best for votes, the sums v = L'z over the leaves of a row, where L has a
    column of indicators of leaves for every kind of row: for the workload W = L'L of all kinds of
    rows, no noise with as much privacy has a smaller mean squared error. L reaches the bound of Li
    and Miklau (2013), since its columns are equally long. Noisy leaves y need not be made
    consistent before they vote: least squares project them on the columns of L, and L'Py = L'y.

    Bayes' rule can still improve them. A priori, all kinds of rows and classes are equally likely,
    and how often they occur varies by :math:`\tau^2`; then the counts of leaves have the covariance
    :math:`\tau^2 LL'`, and their posterior mean is linear in y,

    .. math:: m + \tau^2 LL' (\tau^2 LL' + \sigma^2)^{-1} (y - m)

    LL' has the overlaps of leaves. tau is estimated from the noisy votes, whose mean square is that
    of the true votes plus that of the noise; it is at least what n rows drawn at random have. Where
    the noise is small against the counts, the result is y itself.
    """
    reached, n_classes = boxes.reached, noisy.shape[2]
    found = np.where(reached[:, :, None], noisy, 0.0)
    if not deviation:
        return found
    for part, own in boxes.in_parts():
        inside = own.reached.ravel()
        overlaps = own.overlaps()[np.ix_(inside, inside)]
        shares = np.diag(overlaps)
        middle = n_rows / n_classes * shares[:, None]
        apart = found[part].reshape(-1, n_classes)[inside] - middle
        votes = float((apart * (overlaps @ apart)).sum()) / n_classes - deviation**2 * float(
            shares.sum()
        )
        spread = max(n_rows / n_classes, votes / float((overlaps**2).sum()))
        known = spread * overlaps + deviation**2 * np.eye(len(overlaps))
        whole = np.zeros((len(inside), n_classes))
        whole[inside] = middle + spread * overlaps @ np.linalg.solve(known, apart)
        found[part] = whole.reshape(found[part].shape)
    return found


def leaf_counts_of(noisy: Floats, class_counts: Numbers, boxes: Boxes) -> Numbers:
    """Counts of the leaves of a forest, shape (trees, leaves, classes): possible ones, whose votes
    are nearest to the given ones.

    True counts are not below 0 and add up to the classes in every tree, which is a convex set. The
    point of it whose votes L'z are nearest, in the mean over all kinds of rows, is nearer to the
    true votes than what it is the nearest to. The nearest leaf by leaf is not: it errs by as much
    as was cut off, in the same direction in every tree.
    """
    fitted = np.concatenate(
        [_of_nearest_votes(noisy[part], class_counts, own) for part, own in boxes.in_parts()]
    )
    whole = [[counts_of(tree[:, c], int(n)) for c, n in enumerate(class_counts)] for tree in fitted]
    return np.array(whole, dtype=object).transpose(0, 2, 1)


def _of_nearest_votes(noisy: Floats, class_counts: Numbers, boxes: Boxes) -> Floats:
    """Return the real-valued counts with the nearest votes, by accelerated projected gradients
    (Beck and Teboulle, 2009).
    """
    reached, totals = boxes.reached[:, :, None], np.maximum(class_counts.astype(float), _CLOSE)
    sizes = reached.sum(axis=1, keepdims=True)
    lacking = (totals - np.where(reached, noisy, 0.0).sum(axis=1, keepdims=True)) / sizes
    wanted = np.where(
        reached, noisy + lacking, 0.0
    )  # adds up in every tree: least squares, as all have the same noise
    if (wanted >= 0).all():
        return wanted
    overlaps = boxes.overlaps()

    def possible(values: Floats) -> Floats:
        out = values.min(axis=1, keepdims=True) - totals  # so far below that none of it is left
        return _possible(np.where(reached, values, out).swapaxes(1, 2), totals[:, None]).swapaxes(
            1, 2
        )

    def slope(values: Floats) -> Floats:
        found = (overlaps @ values.reshape(len(overlaps), -1)).reshape(values.shape)
        common = (
            np.where(reached, found, 0.0).sum(axis=1, keepdims=True) / sizes
        )  # the sum of a tree takes it away again
        own: Floats = np.where(reached, found - common, 0.0)
        return own

    step = 1 / _steepest(slope, (*wanted.shape[:2], 1))
    found = ahead = possible(wanted)
    speed = 1.0
    for _ in range(_STEPS):
        downhill = slope(ahead - wanted)
        after = possible(ahead - step * downhill)
        moved = after - found
        if (
            float((downhill * moved).sum()) > 0
        ):  # it went too far: begin to speed up again (O'Donoghue and Candes, 2015)
            speed = 1.0
        faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
        ahead = after + (speed - 1) / faster * moved
        found, speed = after, faster
        if float(np.abs(moved).max()) < _CLOSE:
            break
    return found


def _steepest(slope: Callable[[Floats], Floats], shape: tuple[int, ...]) -> float:
    """Return the largest eigenvalue of the matrix that gives the slopes."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    size = int(np.prod(shape))
    matrix = LinearOperator(
        (size, size), matvec=lambda x: slope(x.reshape(shape)).ravel(), dtype=float
    )
    start = np.random.default_rng(0).normal(size=size)  # no secret: the matrix is public
    largest = eigsh(
        matrix, k=1, v0=slope(start.reshape(shape)).ravel(), tol=1e-3, return_eigenvectors=False
    )
    return float(largest[0]) * 1.01
