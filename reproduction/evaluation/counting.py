"""Forests in the clear, a thousand trees at once: the counts that the circuit gives, found by
sending rows down the trees.

Trees are grown by the library, node by node from the root, so that the first levels of a deep tree
are the shallow tree of the same seed, and the first trees of a large forest the small one. One pass
over the rows thus gives the counts of every depth and number of trees. ``tests/evaluation`` holds
the counts against those of ``CompletelyRandomForest``, and the part "encrypted" does it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encryptedstats.models.growth import ForestShape, Tree, grow
from encryptedstats.tables import PublicSchema, Table

Integers = NDArray[np.int64]


def drawn_fraction(
    leaf_sizes: Integers, n_rows: int, fraction: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The paper's stochastic fraction, drawn: 1 and the number of leading draws that are outside
    the leaf, of ``fraction`` draws.

    Rows are drawn with replacement, so that the first draw inside a leaf with the share p of all
    rows comes after a geometric waiting time: f = min(Geometric(p), M + 1). The same generator
    gives the same waiting times for every M.

    Parameters
    ----------
    leaf_sizes : integer array
        Rows in each leaf.
    n_rows : int
        All rows.
    fraction : int
        M, how many rows are drawn; 0 for no fraction, which is 1 everywhere.
    rng : numpy.random.Generator

    Examples
    --------
    >>> drawn_fraction(np.array([0, 100]), 100, 8, np.random.default_rng(1)).tolist()  # no row, and all rows
    [9, 1]
    """
    if fraction == 0:
        return np.ones(leaf_sizes.shape, dtype=np.int64)
    p = leaf_sizes / n_rows
    waits = rng.geometric(np.where(p > 0, p, 1.0))
    return np.where(p > 0, np.minimum(waits, fraction + 1), fraction + 1)


@dataclass(frozen=True, eq=False)
class FastForest:
    """Trees as arrays, for sending many rows down at once.

    Attributes
    ----------
    depth : int
    width : int
        Bins of the widest variable: a node's row in ``step`` has so many places.
    variable : array of shape (n_trees, (2**depth - 1) * width)
        The variable of each node, repeated for each bin, so that it is found by a node's first
        place.
    step : array of the same shape
        The first place of the next node for a row in this node and bin.
    """

    depth: int
    width: int
    variable: NDArray[np.int32]
    step: NDArray[np.int32]

    @classmethod
    def grow(
        cls, schema: PublicSchema, n_trees: int, depth: int, seed: int, *, repeats: bool = True
    ) -> FastForest:
        """Grow the trees of ``CompletelyRandomForest(n_trees, depth, random_state=seed,
        repeats=repeats)``.
        """
        trees = grow(schema, ForestShape(n_trees, depth, repeats=repeats), seed)
        width = max(variable.n_bins for variable in schema.variables)
        tables = [_tables(tree, width) for tree in trees]
        return cls(depth, width, np.stack([t[0] for t in tables]), np.stack([t[1] for t in tables]))

    def leaves(self, table: Table) -> Iterator[NDArray[np.int32]]:
        """For each tree the leaf of every row."""
        n = len(table)
        data = np.stack(table.data).astype(np.int32).ravel()
        rows = np.arange(n, dtype=np.int32)
        first_leaf = 2**self.depth - 1
        where, place = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
        for offset, step in zip(self.variable * np.int32(n), self.step, strict=True):
            place.fill(0)
            for _ in range(self.depth):
                np.take(offset, place, out=where, mode="clip")
                where += rows
                place += data[where]
                np.take(step, place, out=where, mode="clip")
                place, where = where, place
            yield place // self.width - first_leaf

    def counts(self, table: Table) -> Integers:
        """Rows of both classes in every leaf, shape (n_trees, 2**depth, 2)."""
        if table.class_codes is None:
            raise ValueError("these rows have no classes: there is nothing to count")
        classes = table.class_codes.astype(np.int32)
        counted = [
            np.bincount(2 * leaf + classes, minlength=2 ** (self.depth + 1))
            for leaf in self.leaves(table)
        ]
        return np.stack(counted).reshape(len(self.step), 2**self.depth, 2).astype(np.int64)


def _tables(tree: Tree, width: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    variable = np.repeat(np.array([split.variable for split in tree], dtype=np.int32), width)
    step = np.empty((len(tree), width), dtype=np.int32)
    for node, split in enumerate(tree):
        step[node] = (2 * node + 2) * width
        step[node, list(split.left)] = (2 * node + 1) * width
    return variable, step.ravel()


def shallower(counts: Integers, levels: int = 1) -> Integers:
    """Leaf counts of the same trees that end some levels earlier: two leaves of one node are one
    leaf.
    """
    n_trees, n_leaves, n_classes = counts.shape
    joined: Integers = counts.reshape(n_trees, n_leaves >> levels, 1 << levels, n_classes).sum(
        axis=2
    )
    return joined


def share_of_votes(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of class 1 in the votes of each row; one half where there are none."""
    total = votes.sum(axis=-1)
    return np.where(total > 0, votes[..., 1] / np.where(total > 0, total, 1), 0.5)
