"""Draw the stochastic fraction of a forest from the table (paper, section 3.2).

Encrypted predictions use it. For every leaf, M rows are drawn with replacement. The fraction is 1
plus the number of draws before the first that lies in the leaf (at most M): an estimate of the rows
of the table over the rows of the leaf. A public seed determines which rows are drawn; their values
stay encrypted.

Every leaf has one slot, and all leaves are drawn for at once. Draw m begins at a random row, and
leaf u gets the row that is u rows further, wrapping around at the end of the table. For each leaf
these are independent uniform draws, whatever the number of rows. Consecutive rows lie in
consecutive slots, so a draw for a thousand leaves takes two or three rotations, at the ends of half
rows, chunks and the table. No row is copied, and padding is never drawn. Before the rotation,
public masks select for each row the bins on the path to its leaf: this takes L sums of masked
columns and L - 1 products for all leaves together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression, Marks, column, linear, sum_of
from encryptedstats.circuits.layout import Layout
from encryptedstats.models.growth import Draws, Tree
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.schema.variables import PublicSchema


@dataclass(frozen=True)
class Fraction:
    """The parameters of drawing the fraction of a forest."""

    draws: int  # rows for each slot of a leaf
    averaged: int  # slots of each leaf
    seed: int

    @property
    def largest(self) -> int:
        """The largest value: all draws of all slots lie outside the leaf."""
        return self.averaged * (self.draws + 1)

    def first_rows(self, n_rows: int) -> list[int]:
        """Return the first row of each draw."""
        return [Draws("fraction", self.seed, m).below(n_rows) for m in range(self.draws)]

    def rows(self, n_rows: int, n_leaves: int) -> NDArray[np.int64]:
        """Return the drawn rows, an array of shape (leaves, slots of a leaf, draws)."""
        places = np.arange(n_leaves * self.averaged).reshape(n_leaves, self.averaged, 1)
        return (places + np.array(self.first_rows(n_rows), dtype=np.int64)) % n_rows


def clear_fraction(fraction: Fraction, leaves: NDArray[np.int64], n_leaves: int) -> list[int]:
    """Return the fractions of all leaves of all trees, each summed over the slots of the leaf.

    ``leaves`` has the leaf of every row in every tree.
    """
    n_rows, n_trees = leaves.shape
    drawn = fraction.rows(n_rows, n_trees * n_leaves).reshape(
        n_trees, n_leaves, fraction.averaged, fraction.draws
    )
    found: list[int] = []
    for t in range(n_trees):
        inside = leaves[drawn[t], t] == np.arange(n_leaves)[:, None, None]
        outside_so_far = np.cumprod(~inside, axis=2).sum(axis=2)
        found += [int(total) for total in (outside_so_far + 1).sum(axis=1)]
    return found


def fraction_circuit(
    fraction: Fraction, trees: Sequence[Tree], schema: PublicSchema, layout: Layout
) -> list[Expression]:
    """Write the fractions as totals for an encrypted table of this layout."""
    return _Writer(fraction, tuple(trees), schema, layout).totals()


@dataclass(frozen=True)
class _Segment:
    """Leaves whose rows of one draw lie in one half row, and the move of these rows to
    the leaves.
    """

    chunk: int
    move: tuple[int, int, bool]
    places: NDArray[np.int64]  # the slots of the leaves, counted over all leaves
    slots: NDArray[np.int64]  # the slots of the rows


class _Writer:
    """Write the circuit page by page; the slots of the leaves of a page lie in one half row."""

    def __init__(
        self, fraction: Fraction, trees: tuple[Tree, ...], schema: PublicSchema, layout: Layout
    ) -> None:
        self.fraction, self.trees, self.schema, self.layout = fraction, trees, schema, layout
        self.n_leaves = len(trees[0]) + 1
        # The leaves have the first slots of the fullest chunk, none of which is padding.
        self.home = int(np.argmax(layout.counts))
        self.page = min(layout.counts[self.home], layout.turn)
        self.n_places = len(trees) * self.n_leaves * fraction.averaged
        ends = np.cumsum(layout.counts)
        rows = np.arange(layout.n_rows)
        self.chunk_of_row = np.searchsorted(ends, rows, side="right")
        self.slot_of_row = rows - (ends - np.array(layout.counts))[self.chunk_of_row]

    def totals(self) -> list[Expression]:
        """Write for every leaf the sum of its slots."""
        pages = [self._page(start) for start in range(0, self.n_places, self.page)]
        totals = []
        for leaf in range(len(self.trees) * self.n_leaves):
            by_page: dict[int, list[int]] = defaultdict(list)
            for place in range(leaf * self.fraction.averaged, (leaf + 1) * self.fraction.averaged):
                by_page[place // self.page].append(place % self.page)
            parts = [
                pages[page].mask(Marks(self.home, slots)).total() for page, slots in by_page.items()
            ]
            totals.append(sum_of(parts))
        return totals

    def _page(self, start: int) -> Expression:
        # In the slot of each leaf: 1, plus 1 for every draw that lies outside with all before it.
        places = np.arange(start, min(start + self.page, self.n_places))
        first_rows = self.fraction.first_rows(self.layout.n_rows)
        outside = [
            1 - self._inside((places + first) % self.layout.n_rows, places) for first in first_rows
        ]
        return linear([(1, product) for product in _running_products(outside)], constant=1)

    def _inside(self, rows: NDArray[np.int64], places: NDArray[np.int64]) -> Expression:
        """Return an expression that is 1 if the row of a place is in the leaf of that place."""
        moved = []
        for together in self._together(list(self._segments(rows, places))):
            product = _product([self._step(together, level) for level in range(self._depth)])
            moved += [product.move(*segment.move) for segment in together]
        return sum_of(moved)

    def _together(self, segments: Sequence[_Segment]) -> list[list[_Segment]]:
        """Group segments that can be masked and multiplied at once.

        No move of one segment of a group brings rows of another to the slot of a leaf. Other slots
        are never read. Tables that fill less than half of a half row have such groups.
        """
        groups: list[list[_Segment]] = []
        for segment in segments:
            for group in groups:
                if not any(self._disturbs(a, segment) or self._disturbs(segment, a) for a in group):
                    group.append(segment)
                    break
            else:
                groups.append([segment])
        return groups

    def _disturbs(self, one: _Segment, other: _Segment) -> bool:
        """Return whether moving one brings rows of the other to leaves, or the chunks differ."""
        half, (_, rotation, swap) = self.layout.turn, one.move
        there = (other.slots >= half) == swap  # moved to the first half row, that of the leaves
        lands = (other.slots[there] - rotation) % half
        return one.chunk != other.chunk or bool((lands < self.page).any())

    @property
    def _depth(self) -> int:
        return self.n_leaves.bit_length() - 1

    def _segments(self, rows: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[_Segment]:
        chunks, slots = self.chunk_of_row[rows], self.slot_of_row[rows]
        half = self.layout.turn
        rotations, swaps = (slots % half - places % self.page) % half, slots >= half
        for chunk, rotation, swap in sorted(
            set(zip(chunks.tolist(), rotations.tolist(), swaps.tolist(), strict=True))
        ):
            inside = (chunks == chunk) & (rotations == rotation) & (swaps == swap)
            move = ((chunk - self.home) % self.layout.n_chunks, rotation, swap)
            yield _Segment(chunk, move, places[inside], slots[inside])

    def _step(self, segments: Sequence[_Segment], level: int) -> Expression:
        """Write an expression that is 1 in rows that turn towards their leaf at one level."""
        marked: dict[Column, list[int]] = defaultdict(list)
        for segment in segments:
            for place, slot in zip(segment.places.tolist(), segment.slots.tolist(), strict=True):
                for bin_column in self._bins(place // self.fraction.averaged, level):
                    marked[bin_column].append(slot)
        return sum_of(
            [column(str(c)).mask(Marks(segments[0].chunk, slots)) for c, slots in marked.items()]
        )

    def _bins(self, leaf: int, level: int) -> list[Column]:
        """Return the bins of the split at one level of the path to a leaf."""
        tree, leaf_of_tree = self.trees[leaf // self.n_leaves], leaf % self.n_leaves
        turns = [leaf_of_tree >> (self._depth - 1 - i) & 1 for i in range(level + 1)]  # 0 is left
        node = 0
        for turn in turns[:-1]:
            node = 2 * node + 1 + turn
        split = tree[node]
        every = range(self.schema.variables[split.variable].n_bins)
        chosen = split.left if not turns[-1] else [k for k in every if k not in split.left]
        return [Column("onehot", split.variable, k) for k in chosen]


def _product(factors: Sequence[Expression]) -> Expression:
    """Multiply factors as a balanced tree, whose depth is smallest."""
    if len(factors) == 1:
        return factors[0]
    half = len(factors) // 2
    return _product(factors[:half]) * _product(factors[half:])


def _running_products(factors: Sequence[Expression]) -> list[Expression]:
    """Return the products of the first factor, the first two, and so on, in logarithmic depth."""
    if len(factors) == 1:
        return list(factors)
    half = len(factors) // 2
    first, second = _running_products(factors[:half]), _running_products(factors[half:])
    return first + [first[-1] * product for product in second]
