"""Grow trees from a public schema and a seed, never from data (paper, appendix A, step 2a).

Random numbers are SHA-256 of the seed and a counter, so the same seed gives the same trees on every
machine and with every version of Python and NumPy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from encryptedstats.errors import ArgumentError
from encryptedstats.tables.schema.variables import PublicSchema, PublicVariable

T = TypeVar("T")
Bins = tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """The split of a node: rows whose variable is in one of the ``left`` bins go left."""

    variable: int
    left: tuple[int, ...]


Tree = tuple[Split, ...]  # 2**depth - 1 nodes, root first; the children of i are 2i + 1 and 2i + 2


class Draws:
    """Draw reproducible random numbers from a key."""

    def __init__(self, *key: object) -> None:
        # The key is hashed once; every draw copies this state.
        self._begun = hashlib.sha256(
            ("encryptedstats growth " + " ".join(map(str, key)) + " ").encode()
        )
        self._counter = 0

    def below(self, n: int) -> int:
        """Draw a number from 0 to n-1, all equally likely."""
        size = 8 * -(-n.bit_length() // 64)  # bytes: 8 for all but categories of 64 levels and more
        limit = (1 << 8 * size) - (1 << 8 * size) % n  # remainders above it are not uniform
        while True:
            value = int.from_bytes(self._bytes(size), "big")
            if value < limit:
                return value % n

    def _bytes(self, size: int) -> bytes:
        drawn = b""
        while len(drawn) < size:
            hashed = self._begun.copy()
            hashed.update(str(self._counter).encode())
            drawn += hashed.digest()
            self._counter += 1
        return drawn[:size]

    def sample(self, items: Sequence[T], k: int) -> list[T]:
        """Draw k different items, and return them in their order."""
        left = list(range(len(items)))
        chosen = [left.pop(self.below(len(left))) for _ in range(k)]
        return [items[i] for i in sorted(chosen)]


@dataclass(frozen=True)
class ForestShape:
    """The size of a forest: trees, depth, and variables that each tree may split on.

    With ``repeats``, splits ignore those above them, so some leaves can hold no rows.
    """

    n_trees: int
    depth: int
    max_features: int | None = None
    repeats: bool = False


def grow(
    schema: PublicSchema, shape: ForestShape, seed: int, variables: Sequence[int] | None = None
) -> tuple[Tree, ...]:
    """Grow trees of full depth.

    A split divides the bins that can reach its node, so that every leaf can hold rows. If no
    variable has two such bins left, or with ``shape.repeats``, the split divides all bins.

    Parameters
    ----------
    schema : PublicSchema
    shape : ForestShape
    seed : int
    variables : list of int, optional
        Positions of the variables to split on; all by default.
    """
    positions = range(len(schema.variables)) if variables is None else variables
    splittable = [j for j in sorted(positions) if schema.variables[j].n_bins > 1]
    if not splittable:
        raise ArgumentError(
            "no variable has two bins or more, so trees cannot split: choose other variables or "
            "cut more bins",
            code="nothing-to-split",
        )
    found = (Draws(seed, t) for t in range(shape.n_trees))
    return tuple(_tree(schema, splittable, shape, draws) for draws in found)


@dataclass(frozen=True)
class _Node:
    splittable: list[int]  # variables with two bins or more that can reach the node
    bins: dict[int, Bins]  # bins that can reach the node, of variables that were split above it

    def limit_to(self, variable: int, bins: Bins) -> _Node:
        """Return the child whose rows are in these bins of a variable."""
        left = self.splittable if len(bins) > 1 else [j for j in self.splittable if j != variable]
        return _Node(left, {**self.bins, variable: bins})


def _tree(schema: PublicSchema, splittable: list[int], shape: ForestShape, draws: Draws) -> Tree:
    depth = shape.depth
    if shape.max_features is not None and shape.max_features < len(splittable):
        splittable = draws.sample(splittable, shape.max_features)
    splits, root = list[Split](), _Node(splittable, {})
    nodes = [root]
    for k in range(2**depth - 1):
        node = nodes[k] if nodes[k].splittable else root
        variable = node.splittable[draws.below(len(node.splittable))]
        known = schema.variables[variable]
        bins = node.bins.get(variable, tuple(range(known.n_bins)))
        left = _left_bins(known, bins, draws)
        splits.append(Split(variable, left))
        if shape.repeats or not nodes[k].splittable:
            nodes += [nodes[k]] * 2
        elif k < 2 ** (depth - 1) - 1:  # the children are nodes as well
            inside = set(left)
            sides = [[b for b in bins if (b in inside) == is_left] for is_left in (True, False)]
            nodes += [node.limit_to(variable, tuple(side)) for side in sides]
    return tuple(splits)


def _left_bins(variable: PublicVariable, bins: Bins, draws: Draws) -> Bins:
    """Draw the bins that go left.

    Ordered bins are cut in two; levels of a category, and the bin of missing values, go to random
    sides.
    """
    if variable.kind == "categorical":
        return _random_side(bins, draws)
    missing = variable.missing_bin and bins[-1] == variable.n_bins - 1
    ordered = bins[:-1] if missing else bins
    if len(ordered) < 2:
        return tuple(range(ordered[0] + 1))
    left = tuple(range(ordered[draws.below(len(ordered) - 1)] + 1))
    return (*left, bins[-1]) if missing and draws.below(2) else left


def _random_side(bins: Bins, draws: Draws) -> Bins:
    """Draw a random subset of the bins that is neither empty nor all of them."""
    chosen = 1 + draws.below(2 ** len(bins) - 2)
    return tuple(bin_ for k, bin_ in enumerate(bins) if chosen >> k & 1)
