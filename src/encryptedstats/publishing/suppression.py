"""Tables with margins, with small counts hidden, and enough others that nobody can compute them again.

The table is seen as its readers see it: cells, and sums over every axis, all of which are linked by additions. What a reader can
conclude of a hidden count from all that is shown is the least and the largest that it can be: two linear programs. A small count is
protected if these are far enough apart. Nothing shows which of the hidden counts are the small ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DisclosureError

#: Cells with margins up to which tables are tried: each hidden one takes two linear programs.
MOST_CELLS: Final = 1500
_CLOSE: Final = 1e-6

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Place = tuple[int, ...]


@dataclass(frozen=True)
class Suppressed:
    """A table with margins, and what is hidden of it.

    Attributes
    ----------
    counts : array
        One longer than the table along every axis: the last of each is the sum.
    hidden : array of bool
    small : array of bool
        Those among them that are too small; the others are hidden to protect these, or are groups of one kind.
    """

    counts: Counts
    hidden: Mask
    small: Mask


def with_margins(cells: Counts) -> Counts:
    """The table with its sums over every axis."""
    found = np.asarray(cells, dtype=np.int64)
    for axis in range(found.ndim):
        found = np.concatenate([found, found.sum(axis=axis, keepdims=True)], axis=axis)
    return found


def suppress(cells: Counts, min_count: int, concentration: float | None = None) -> Suppressed:
    """Hide every count from 1 to below ``min_count``, groups of one kind, and as few others as it takes.

    ``concentration`` is the largest share of a group that may be known to be of one kind. The number of all rows is always known.
    """
    counts = with_margins(cells)
    if counts.size > MOST_CELLS:
        raise DisclosureError(
            f"a table of {counts.size:,} cells with its margins is too large to be checked, {MOST_CELLS:,} are the most: ask for "
            "fewer variables, or for fewer bins"
        )
    small = (counts > 0) & (counts < min_count)
    everything = (-1,) * counts.ndim
    if small[everything]:
        raise DisclosureError(f"there are {int(counts[everything])} rows in all, fewer than {min_count}")
    groups = [] if concentration is None else list(groups_of_one_kind(cells, concentration))
    hidden = small.copy()
    for _, group in groups:
        for where in group:
            hidden[where] = True

    def is_safe(tried: Mask) -> bool:
        return all(is_protected(counts, tried, place, min_count) for place in _places(small)) and all(
            is_mixed(counts, tried, place, group, concentration or 1.0) for place, group in groups
        )

    while not is_safe(hidden):
        hidden[_next_to_hide(counts, hidden)] = True
    for where in sorted(_places(hidden & ~small), key=lambda where: (-counts[where], where)):
        tried = hidden.copy()
        tried[where] = False  # what protects nothing is shown again, the largest first
        if is_safe(tried):
            hidden = tried
    return Suppressed(counts, hidden, small)


def groups_of_one_kind(cells: Counts, concentration: float) -> Iterator[tuple[Place, list[Place]]]:
    """Lines of a table of two axes or more in which one count is a larger share than is allowed: its place, and all of the line."""
    if cells.ndim < 2:
        return
    for line in _lines(cells.shape):
        most = max(line, key=lambda where: cells[where])
        if cells[most] > concentration * sum(int(cells[where]) for where in line):
            yield most, line


def is_protected(counts: Counts, hidden: Mask, place: Place, min_count: int) -> bool:
    """Whether a hidden count could be anything within a range of ``min_count - 1``, for all that the shown ones tell."""
    least, most = known_range(counts, hidden, {place: 1.0})
    return most - least >= min_count - 1 - _CLOSE


def is_mixed(counts: Counts, hidden: Mask, place: Place, group: list[Place], concentration: float) -> bool:
    """Whether a group could have no more of one kind than is allowed, for all that the shown counts tell."""
    spare = {where: concentration - (where == place) for where in group}
    return known_range(counts, hidden, spare)[1] >= -_CLOSE


def known_range(counts: Counts, hidden: Mask, goal: Mapping[Place, float]) -> tuple[float, float]:
    """Between which numbers a weighted sum of counts lies, for whoever sees those that are not hidden and can add."""
    free = {where: number for number, where in enumerate(_places(hidden))}
    rows, values = [], []
    for line in _lines(counts.shape):
        if any(hidden[where] for where in line):
            *parts, whole = line
            row, known = np.zeros(len(free)), 0
            for where, sign in [*((part, 1) for part in parts), (whole, -1)]:
                if hidden[where]:
                    row[free[where]] += sign
                else:
                    known += sign * int(counts[where])
            rows.append(row)
            values.append(-known)
    weights, shown = np.zeros(len(free)), 0.0
    for where, weight in goal.items():
        if hidden[where]:
            weights[free[where]] = weight
        else:
            shown += weight * int(counts[where])
    if not weights.any():
        return shown, shown
    least, most = extremes(weights, np.array(rows), np.array(values, dtype=float))
    return least + shown, most + shown


def extremes(goal: Floats, lines: Floats, values: Floats) -> tuple[float, float]:
    """The least and the largest of ``goal @ x`` over all x that are not negative and have ``lines @ x = values``.

    What cannot be solved is taken as known: then nothing is concluded to be safe.
    """
    from scipy.optimize import linprog

    ends = []
    for sign in (1, -1):
        found = linprog(sign * goal, A_eq=lines, b_eq=values, method="highs")
        if found.status == 3:  # without a limit
            ends.append(-sign * np.inf)
        elif not found.success:
            return 0.0, 0.0
        else:
            ends.append(float(sign * found.fun))
    return ends[0], ends[1]


def _next_to_hide(counts: Counts, hidden: Mask) -> Place:
    """What to hide next: what completes most lines in which something is hidden alone, and of these the smallest.

    There is something: where all but the number of all rows is hidden, a count can be anything up to that.
    """
    everything = tuple(size - 1 for size in counts.shape)
    lines = list(_lines(counts.shape))
    alone = [line for line in lines if sum(hidden[where] for where in line) == 1]
    touched = [line for line in lines if any(hidden[where] for where in line)]
    for listed in (alone, touched, lines):
        found = Counter(where for line in listed for where in line if not hidden[where] and where != everything)
        if found:
            break
    # Sums late, and nothing last of all: that a cell has no rows is often known anyway.
    return min(
        found,
        key=lambda where: (
            counts[where] == 0,
            _n_margins(where, counts.shape),
            -found[where],
            counts[where],
            where,
        ),
    )


def _n_margins(place: Place, shape: tuple[int, ...]) -> int:
    return sum(where == size - 1 for where, size in zip(place, shape, strict=True))


def _places(mask: Mask) -> list[Place]:
    return [tuple(int(x) for x in where) for where in np.argwhere(mask)]


def _lines(shape: tuple[int, ...]) -> Iterator[list[Place]]:
    """All lines of a table: the cells along an axis; in one with margins their sum is the last."""
    for axis, size in enumerate(shape):
        others = [range(length) for position, length in enumerate(shape) if position != axis]
        for rest in product(*others):
            yield [(*rest[:axis], k, *rest[axis:]) for k in range(size)]
