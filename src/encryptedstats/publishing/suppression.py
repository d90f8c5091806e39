"""Hide small counts of a table with margins so that no reader can narrow them down.

A reader sees the counts that are shown, knows the number of rows, and knows this algorithm. The
reader therefore knows that the table is one of all tables for which the algorithm shows the same.
Every step below is built so that among these tables a small count still takes values at least
``min_count - 1`` apart, whatever was hidden to protect it:

- *One axis* (:func:`hide_in_vector`). Hide all small counts and a larger count that is at least
  ``min_count - 1`` above the smallest. The choice depends on the hidden counts as a multiset
  only, so any permutation of them shows the same, and each of them may be any other.
- *Two axes* (:func:`_hide_inside`). Hide the margins as vectors; hidden categories of an axis
  form one unit. Arrange the units of each axis in a binary tree that depends on the margins only.
  A pair of inner nodes is a 2 x 2 table of known margins with one degree of freedom. It is shown
  or hidden as a whole, from the root downwards: hidden where one of its four counts is small.
  One step from either end of its range some count is 1, so both are tables that show the same.
- *More axes*. The table summed over the last axis is treated first; its cells are the rows of a
  table of two axes, and the last axis has the columns. Other sums are shown where they follow.

Zeros are hidden together with the counts around them wherever two axes are involved, and shown
beside hidden counts of a vector. ``tests/publishing/test_inverse_search.py`` groups all tables of
small shapes by what is shown and checks the claim.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DisclosureError

#: The largest table that is checked, in cells and margins.
MOST_CELLS: Final = 20_000
_IN_TIME: Final = {"time_limit": 10.0}

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Place = tuple[int, ...]


@dataclass(frozen=True)
class Suppressed:
    """A table with margins, and a mask of its hidden counts.

    Attributes
    ----------
    counts : array
        One longer than the table along every axis: the last entry of each line is its sum.
    hidden : array of bool
    small : array of bool
        The counts below the minimum. Never published: it is for tests.
    """

    counts: Counts
    hidden: Mask
    small: Mask


def with_margins(cells: Counts) -> Counts:
    """Return the table with its sums over every axis."""
    found = np.asarray(cells, dtype=np.int64)
    for axis in range(found.ndim):
        found = np.concatenate([found, found.sum(axis=axis, keepdims=True)], axis=axis)
    return found


def suppress(cells: Counts, min_count: int, concentration: float | None = None) -> Suppressed:
    """Hide counts from 1 to below ``min_count``, groups of one kind, and counts that reveal them.

    ``concentration`` is the largest share of a line that one count may have. The number of all
    rows is always shown.
    """
    counts = with_margins(cells)
    if counts.size > MOST_CELLS:
        raise DisclosureError(
            f"a table of {counts.size:,} cells with its margins is too large to be checked, "
            f"{MOST_CELLS:,} are the most: ask for fewer variables, or for fewer bins",
            code="table-too-large",
        )
    small = (counts > 0) & (counts < min_count)
    if small[(-1,) * counts.ndim]:
        raise DisclosureError(
            f"there are fewer rows than the {min_count} that the rules ask for: nothing is shown",
            code="rows-below-minimum",
        )
    exact = np.asarray(cells, dtype=np.int64)
    hidden = _hide(exact, min_count, concentrated_cells(exact, concentration), concentration)
    return Suppressed(counts, hidden, small)


def concentrated_cells(cells: Counts, concentration: float | None) -> Mask:
    """Return which cells are a larger share of a line than allowed, in two axes or more."""
    found = np.zeros(cells.shape, dtype=np.bool_)
    if concentration is None or cells.ndim < 2:
        return found
    for axis in range(cells.ndim):
        found |= cells > concentration * cells.sum(axis=axis, keepdims=True)
    return found


def hide_in_vector(cells: Counts, min_count: int) -> Mask:
    """Return which counts of a vector with a known sum are hidden.

    Hide the small counts and the smallest count that is ``min_count - 1`` above the smallest of
    them, one that occurs once if there is one, or else all that are equal to it. Without such a
    count hide everything, zeros included. The sums for which only few vectors are without one are
    a narrow band; there everything is hidden where any is small.
    Where there are ``min_count`` rows in all, hide everything: two counts would otherwise be known
    to be small both.
    """
    small = (cells > 0) & (cells < min_count)
    if cells.sum() == min_count > 1 and len(cells) > 1:
        return np.ones_like(small)
    if not small.any():
        return small
    last = (min_count - 1) + (len(cells) - 1) * (2 * min_count - 3)
    in_band = last - (2 * min_count - 3) < cells.sum() <= last
    far = cells[cells >= cells[small].min() + min_count - 1]
    if in_band or not len(far):
        return np.ones_like(small)
    values, times = np.unique(far, return_counts=True)
    hidden: Mask = small | (cells == (values[times == 1] if 1 in times else values)[0])
    return hidden


def find_least_hidden(hidden: Mask) -> Counts:
    """Return how large each hidden count of a table with margins is at least, for any reader.

    A vector of which some counts are shown hides no zeros; everything else may hide zeros.
    """
    least = np.zeros(hidden.shape, dtype=np.int64)
    for axis in range(hidden.ndim):
        vector = (-1,) * axis + (slice(0, -1),) + (-1,) * (hidden.ndim - 1 - axis)
        if not hidden[vector].all():
            least[vector] = hidden[vector]
    return least


def _hide(cells: Counts, min_count: int, concentrated: Mask, share: float | None) -> Mask:
    """Return the mask of hidden counts of a table with margins; the total is never hidden."""
    hidden = np.ones([size + 1 for size in cells.shape], dtype=np.bool_)
    total = (-1,) * cells.ndim
    if cells.ndim == 1:
        hidden[:-1] = hide_in_vector(cells, min_count)
        hidden[total] = False
        return hidden
    rows = cells.sum(axis=-1)
    above = _hide(rows, min_count, np.zeros(rows.shape, dtype=np.bool_), None)
    columns = hide_in_vector(cells.reshape(-1, cells.shape[-1]).sum(axis=0), min_count)
    hidden_rows = above[tuple(slice(0, -1) for _ in rows.shape)]
    inside = _hide_inside(
        cells.reshape(-1, cells.shape[-1]),
        hidden_rows.ravel(),
        columns,
        concentrated.reshape(-1, cells.shape[-1]),
        min_count,
        share,
    )
    if inside is not None:
        hidden[tuple(slice(0, -1) for _ in cells.shape)] = inside.reshape(cells.shape)
        hidden[..., -1] = above
        hidden.reshape(-1, hidden.shape[-1])[-1, :-1] = columns
        if cells.ndim > 2:
            _show_sums_that_follow(hidden, with_margins(cells), min_count)
    hidden[total] = False
    return hidden


def _hide_inside(
    cells: Counts,
    hidden_rows: Mask,
    hidden_columns: Mask,
    concentrated: Mask,
    min_count: int,
    share: float | None,
) -> Mask | None:
    """Return which cells of a table of two axes are hidden; None where its margins say too much."""
    least = min_count if share is None else max(min_count, 2)
    rows, columns = (
        _Tree.of(cells.sum(axis=1), hidden_rows),
        _Tree.of(cells.sum(axis=0), hidden_columns),
    )
    counts = rows.sums @ cells @ columns.sums.T
    single = rows.single[:, None] & columns.single
    one_kind = single & (rows.sums @ concentrated @ columns.sums.T > 0)
    bad = (counts > 0) & (counts < least) | one_kind
    known = np.zeros(counts.shape, dtype=np.bool_)
    known[-1, :] = known[:, -1] = True
    stopped = []
    for a, b in product(rows.inner, columns.inner):
        block = np.ix_(rows.children[a], columns.children[b])
        margins = [(one, b) for one in rows.children[a]] + [(a, one) for one in columns.children[b]]
        if not all(known[place] for place in margins):
            continue
        width = min(counts[place] for place in margins)
        if width == 0 or (width > least and not bad[block].any()):
            known[block] = True
        else:
            stopped.append((a, b, int(width > least)))
    if share is not None and (
        (known & one_kind).any() or _tells_one_kind(counts, known, stopped, rows, columns, share)
    ):
        return None
    shown = known & (single | (counts == 0))
    found = rows.spread(shown, columns)
    return ~found


def _tells_one_kind(
    counts: Counts,
    known: Mask,
    stopped: list[tuple[int, int, int]],
    rows: _Tree,
    columns: _Tree,
    share: float,
) -> bool:
    """Return whether a reader of the known counts would know a cell to be too much of its line."""
    for a, b, step in stopped:
        for i in rows.find_leaves(a, rows.single & known[:, b]):
            for j in columns.find_leaves(b, columns.single & known[a, :]):
                least = counts[i, b] + counts[a, j] - counts[a, b] + step
                if least > 1 and least > share * min(counts[i, -1], counts[-1, j]):
                    return True
    return False


@dataclass(frozen=True)
class _Tree:
    """A binary tree of the categories of an axis: the smallest two units are joined first.

    Nodes are numbered, leaves first and the root last. ``sums`` has a line of zeros and ones for
    each node: the categories below it. ``single`` are the leaves that are one shown category.
    """

    sums: Counts
    single: Mask
    children: dict[int, tuple[int, int]]

    @classmethod
    def of(cls, margin: Counts, hidden: Mask) -> _Tree:
        units = [np.flatnonzero(hidden)] if hidden.any() else []
        single = [False] * len(units)
        units += [np.array([place]) for place in np.flatnonzero(~hidden)]
        single += [True] * (len(units) - len(single))
        lines = [np.isin(np.arange(len(margin)), unit).astype(np.int64) for unit in units]
        waiting = [(int(line @ margin), place) for place, line in enumerate(lines)]
        heapq.heapify(waiting)
        children = {}
        while len(waiting) > 1:
            (first, one), (second, other) = heapq.heappop(waiting), heapq.heappop(waiting)
            children[len(lines)] = (one, other)
            heapq.heappush(waiting, (first + second, len(lines)))
            lines.append(lines[one] + lines[other])
        single += [False] * (len(lines) - len(single))
        return cls(np.array(lines), np.array(single, dtype=np.bool_), children)

    @property
    def inner(self) -> list[int]:
        """The inner nodes, the root first."""
        return sorted(self.children, reverse=True)

    def find_leaves(self, node: int, among: Mask) -> Iterator[int]:
        below = self.sums[node]
        for leaf in np.flatnonzero(among):
            if (self.sums[leaf] <= below).all():
                yield int(leaf)

    def spread(self, shown: Mask, columns: _Tree) -> Mask:
        """Return which cells are in a pair of nodes that is shown."""
        found: Mask = self.sums.T @ shown.astype(np.int64) @ columns.sums > 0
        return found


def _show_sums_that_follow(hidden: Mask, counts: Counts, min_count: int) -> None:
    """Show sums that a reader gets by adding or subtracting along a line."""
    lines, changed = list(_lines(hidden.shape)), True
    while changed:
        changed = False
        for line in lines:
            left = [where for where in line if hidden[where]]
            if len(left) == 1 and (counts[left[0]] == 0 or counts[left[0]] >= min_count):
                hidden[left[0]] = False
                changed = True


def find_extremes(
    goal: Floats, lines: Floats, values: Floats, groups: Floats, least: Floats
) -> tuple[float, float] | None:
    """Return the least and the largest ``goal @ x`` over whole x >= 0 with ``lines @ x = values``.

    ``groups @ x`` is at least ``least``. Return None where there is no solution, or none in time.
    """
    from scipy.optimize import LinearConstraint, milp

    limits = [LinearConstraint(lines, values, values)]
    if len(groups):
        limits.append(LinearConstraint(groups, least, np.inf))
    ends = []
    for sign in (1, -1):
        found = milp(
            sign * goal, constraints=limits, integrality=np.ones(len(goal)), options=_IN_TIME
        )
        if found.status == 3:  # unbounded
            ends.append(-sign * np.inf)
        elif not found.success:
            return None
        else:
            ends.append(float(sign * found.fun))
    return ends[0], ends[1]


def _lines(shape: tuple[int, ...]) -> Iterator[list[Place]]:
    """Yield the lines of a table along every axis; with margins, the last place is the sum."""
    for axis, size in enumerate(shape):
        others = [range(length) for position, length in enumerate(shape) if position != axis]
        for rest in product(*others):
            yield [(*rest[:axis], k, *rest[axis:]) for k in range(size)]
