"""Blind growth of trees: from a public schema and a seed, never from data (paper, appendix A, step 2a).

Random numbers are SHA-256 of the seed and a counter, so that the same seed gives the same trees on every machine, for every
version of Python and NumPy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from encryptedstats.tables.schema.variables import PublicSchema, PublicVariable

T = TypeVar("T")


@dataclass(frozen=True)
class Split:
    """The rule of a node: rows whose variable is in one of the ``left`` bins go left."""

    variable: int
    left: tuple[int, ...]


Tree = tuple[Split, ...]  # 2**depth - 1 nodes, root first, the children of i at 2i+1 and 2i+2


class Draws:
    """An endless, reproducible stream of random numbers."""

    def __init__(self, *key: object) -> None:
        # The key is hashed once; every draw goes on from there.
        self._begun = hashlib.sha256(("encryptedstats growth " + " ".join(map(str, key)) + " ").encode())
        self._counter = 0

    def below(self, n: int) -> int:
        """A number from 0 to n-1, all equally likely."""
        size = 8 * -(-n.bit_length() // 64)  # bytes: 8 for all but categories of 64 levels and more
        limit = (1 << 8 * size) - (1 << 8 * size) % n  # beyond it the remainders would not be
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
        """k different items, in their order."""
        left = list(range(len(items)))
        chosen = [left.pop(self.below(len(left))) for _ in range(k)]
        return [items[i] for i in sorted(chosen)]


def grow(schema: PublicSchema, n_trees: int, depth: int, max_features: int | None, seed: int) -> tuple[Tree, ...]:
    """Trees of full depth; each draws its variables from a random ``max_features`` of them."""
    splittable = [j for j, variable in enumerate(schema.variables) if variable.n_bins > 1]
    if not splittable:
        raise ValueError("no variable has two bins or more: there is nothing to split")
    return tuple(_tree(schema, splittable, depth, max_features, Draws(seed, t)) for t in range(n_trees))


def _tree(schema: PublicSchema, splittable: list[int], depth: int, max_features: int | None, draws: Draws) -> Tree:
    if max_features is not None and max_features < len(splittable):
        splittable = draws.sample(splittable, max_features)
    splits = []
    for _ in range(2**depth - 1):
        variable = splittable[draws.below(len(splittable))]
        splits.append(Split(variable, _left_bins(schema.variables[variable], draws)))
    return tuple(splits)


def _left_bins(variable: PublicVariable, draws: Draws) -> tuple[int, ...]:
    """Ordered bins are cut in two; the levels of a category, and a bin for missing values, go to random sides."""
    if variable.kind == "categorical":
        return _random_side(variable.n_bins, draws)
    ordered = variable.n_bins - variable.missing_bin
    if ordered < 2:
        return (0,)
    left = tuple(range(1 + draws.below(ordered - 1)))
    return (*left, ordered) if variable.missing_bin and draws.below(2) else left


def _random_side(n_bins: int, draws: Draws) -> tuple[int, ...]:
    """All ways to deal the bins to two sides are equally likely, but that neither side is empty."""
    chosen = 1 + draws.below(2**n_bins - 2)
    return tuple(k for k in range(n_bins) if chosen >> k & 1)
