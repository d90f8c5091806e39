"""Totals of pairs of bins, for classifiers and statistics of pairs of variables.

Every row is in one bin of each variable, so the totals of the last bin follow from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression
from encryptedstats.tables.questions.question import Arrays, Shapes, refuse_impossible

if TYPE_CHECKING:
    from encryptedstats.tables.table import Table

Counts = NDArray[np.int64]
_BLOCK_ROWS: Final = 4096
_EXACT: Final = 2**53  # integers up to this are exact in floating point


def pair_totals(
    bins: Sequence[Sequence[Expression]], classes: Sequence[Expression]
) -> list[list[Expression]]:
    """Return the totals of all pairs of bins of two variables, by class.

    Pairs with the last bin of a variable are left out: :func:`complete_pairs` computes their
    counts.
    """
    return [
        [(inside * y).total() for y in classes]
        for one, other in combinations(bins, 2)
        for inside in (a * b for a in one[:-1] for b in other[:-1])
    ]


def count_pairs(n_bins: Sequence[int]) -> int:
    """Return the number of totals of :func:`pair_totals` for each class.

    >>> count_pairs([2, 3])
    2
    """
    return sum((one - 1) * (other - 1) for one, other in combinations(n_bins, 2))


def pair_arrays(bins: Sequence[Sequence[Expression]], classes: Sequence[Expression]) -> Arrays:
    """Return the totals of every class, of every bin, and of every pair of bins, by name."""
    return {
        "class_counts": [y.total() for y in classes],
        "bins": [[(x * y).total() for y in classes] for found in bins for x in found],
        "pairs": pair_totals(bins, classes),
    }


def pair_shapes(n_bins: Sequence[int], n_classes: int) -> Shapes:
    """Return the shapes of :func:`pair_arrays`."""
    return {
        "class_counts": (n_classes,),
        "bins": (sum(n_bins), n_classes),
        "pairs": (count_pairs(n_bins), n_classes),
    }


def count_pair_totals(
    table: Table, positions: Sequence[int], fold: int | None = None
) -> Arrays | None:
    """Count the totals of :func:`pair_arrays` in a clear table (of a fold), without a circuit.

    Products of one-hot matrices count all pairs at once. Return None if the table has no target or
    no such fold, or if sums of weights are not exact in floating point: the circuit then counts, or
    its error says what is missing.
    """
    schema = table.public_schema
    classes = table.class_codes if schema.n_classes else np.zeros(len(table), dtype=np.int64)
    weights = np.ones(len(table)) if table.weights is None else table.weights.astype(float)
    if classes is None or not table.has_target or weights.sum() > _EXACT:
        return None
    if fold is not None:
        if table.fold_codes is None or fold >= table.n_folds:
            return None
        weights = weights * (table.fold_codes == fold)
    starts = np.cumsum([0, *(schema.variables[j].n_bins for j in positions)])
    codes = np.stack([table.codes_of(j).astype(np.int64) for j in positions], axis=1)
    counts = np.zeros((max(schema.n_classes, 1), starts[-1], starts[-1]), dtype=np.int64)
    for start in range(0, len(table), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        inside = np.zeros((len(codes[rows]), starts[-1]))
        np.put_along_axis(inside, codes[rows] + starts[:-1], 1.0, axis=1)
        for c, found in enumerate(counts):
            weighted = inside.T * (weights[rows] * (classes[rows] == c))
            found += (weighted @ inside).astype(np.int64)
    counts = np.moveaxis(counts, 0, 2)
    edges = list(pairwise(starts))
    pairs = [
        counts[start : end - 1, other : other_end - 1].reshape(-1, counts.shape[2])
        for (start, end), (other, other_end) in combinations(edges, 2)
    ]
    return {
        "class_counts": np.einsum("iic->c", counts[: starts[1], : starts[1]]),
        "bins": np.einsum("iic->ic", counts),
        "pairs": np.concatenate([np.zeros((0, counts.shape[2]), dtype=np.int64), *pairs]),
    }


def complete_pairs(bins: Sequence[Counts], pairs: Counts) -> list[Counts]:
    """Return the counts of every pair of variables, of shape (bins, other bins, classes).

    Raises
    ------
    ImpossibleTotalsError
        If a count is negative, as in an altered result.
    """
    found = fill_pairs(bins, pairs, lambda whole, parts: whole - parts.sum(axis=0))
    for counts in found:
        refuse_impossible(
            bool((counts >= 0).all()), "a pair of bins would have a negative number of rows"
        )
    return found


def fill_pairs(
    bins: Sequence[NDArray[Any]],
    pairs: NDArray[Any],
    subtract: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]],
) -> list[NDArray[Any]]:
    """Return the whole table of every pair of variables from the totals of :func:`pair_totals`.

    The last row and column of a table are ``subtract(whole, parts)``: the bins of a variable minus
    the other rows or columns, which ``parts`` has along its first axis.
    """
    ends = np.cumsum([0, *((len(a) - 1) * (len(b) - 1) for a, b in combinations(bins, 2))])
    found = []
    for (one, other), (start, end) in zip(combinations(bins, 2), pairwise(ends), strict=True):
        n, m, *classes = len(one) - 1, len(other) - 1, *one.shape[1:]
        table = np.empty((n + 1, m + 1, *classes), dtype=pairs.dtype)
        table[:n, :m] = pairs[start:end].reshape(n, m, *classes)
        table[:n, m] = subtract(one[:n], table[:n, :m].swapaxes(0, 1))
        table[n] = subtract(other, table[:n])
        found.append(table)
    return found


def subtract_each(
    whole: NDArray[Any], parts: NDArray[Any], less: Callable[[Any, list[Any]], Any]
) -> NDArray[Any]:
    """Return ``less(whole, parts)`` of each element, for expressions in :func:`fill_pairs`."""
    found = np.empty(whole.shape, dtype=object)
    for place in np.ndindex(whole.shape):
        found[place] = less(whole[place], [part[place] for part in parts])
    return found
