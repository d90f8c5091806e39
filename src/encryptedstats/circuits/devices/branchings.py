"""Sums over rows that are the leaves and nodes of trees, computed in the registers of a processor
or a GPU.

A forest asks for sums of products along paths: a root, times a factor, or the rest of the root
outside it, times the next factor, and so on. Paths with a common start are combined into binary
trees three factors deep, each of which is computed over all chunks for a few coefficients at a
time.
Other sums, and deeper trees, are tapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.devices.native.tape import NONE, is_load, is_sum_of_loads, rest_of
from encryptedstats.circuits.program import MULTIPLY, Step

MOST_FACTORS: Final = 3
_NODES: Final = (1 << MOST_FACTORS) - 1
INSIDE, OUTSIDE = 0, 1

#: From a root: factors, each with the side on which the path goes on; the last one is the factor of
#: the sum itself.
_Path = tuple[tuple[Step, int], ...]


@dataclass
class _Fork:
    """A factor of the path so far: its sum, if it is asked for, and what follows inside and
    outside.
    """

    total: Step | None = None
    below: tuple[dict[Step, _Fork], dict[Step, _Fork]] = field(default_factory=lambda: ({}, {}))


@dataclass(frozen=True)
class Branching:
    """A root and up to seven factors with their sums, node i above nodes 2 i (inside) and 2 i + 1
    (outside).
    """

    root: Step
    root_total: Step | None
    factors: tuple[Step | None, ...]
    totals: tuple[Step | None, ...]

    def words(
        self,
        places: Mapping[Step, int],
        components: Mapping[Step, int],
        of_factors: Mapping[Step, int] | None = None,
    ) -> list[int]:
        """Return the struct Branching of kernels.cu, and of fused.c.

        ``of_factors``: the places of factors, if they are not those of roots.
        """
        of_factors = places if of_factors is None else of_factors
        factors = [NONE if factor is None else of_factors[factor] for factor in self.factors]
        totals = [
            NONE if total is None else components[total]
            for total in (self.root_total, *self.totals)
        ]
        return [places[self.root], totals[0], *factors, *totals[1:]]


def branchings_of(totals: Sequence[Step], *, shallow: bool = False) -> list[Branching] | None:
    """Return trees with all these sums, each once; None if a sum belongs to no tree, or (unless
    ``shallow``) no tree pays.
    """
    roots: dict[Step, dict[Step, _Fork]] = {}
    themselves: dict[Step, Step] = {}
    preferred = _count_roots(totals)
    deepest = 0
    for total in dict.fromkeys(totals):
        node = total.args[0]
        if _is_cheap(node):
            themselves[node] = total
            roots.setdefault(node, {})
            continue
        found = _path_to(node, preferred)
        if found is None or len(found[1]) > MOST_FACTORS or node.size != 2 + len(found[1]):
            return None
        root, path = found
        deepest = max(deepest, len(path))
        splits = roots.setdefault(root, {})
        for factor, side in path[:-1]:
            splits = splits.setdefault(factor, _Fork()).below[side]
        splits.setdefault(path[-1][0], _Fork()).total = total
    if deepest < 2 and not shallow:  # products of two columns are as fast on a tape
        return None
    return [
        found
        for root, splits in roots.items()
        for found in _branchings(root, themselves.get(root), splits)
    ]


def branching_words(
    branchings: Iterable[Branching],
    places: Mapping[Step, int],
    components: Mapping[Step, int],
    of_factors: Mapping[Step, int] | None = None,
) -> NDArray[np.int32]:
    """Return the words of all trees, with trees of the same factors next to each other."""
    words = [one.words(places, components, of_factors) for one in branchings]
    return np.array(sorted(words, key=lambda one: (one[2 : 2 + _NODES], one[0])), dtype=np.int32)


def _branchings(root: Step, total: Step | None, splits: dict[Step, _Fork]) -> Iterator[Branching]:
    for number, nodes in enumerate(_cover(splits, 1) or [{}]):
        named = [nodes.get(node, (None, None)) for node in range(1, _NODES + 1)]
        factors, totals = zip(*named, strict=True)
        yield Branching(root, total if number == 0 else None, factors, totals)


def _cover(splits: dict[Step, _Fork], node: int) -> list[dict[int, tuple[Step, Step | None]]]:
    """Return binary trees below a node that contain all splits; trees with a common first split
    share it.
    """
    found = []
    for factor, split in splits.items():
        sides = [_cover(split.below[side], 2 * node + side) for side in (INSIDE, OUTSIDE)]
        for number, parts in enumerate(list(zip_longest(*sides, fillvalue={})) or [({}, {})]):
            total = split.total if number == 0 else None
            found.append({node: (factor, total), **parts[INSIDE], **parts[OUTSIDE]})
    return found


def _path_to(node: Step, preferred: Mapping[Step, int]) -> tuple[Step, _Path] | None:
    """Return the root of a product, and its factors in order."""
    path: list[tuple[Step, int]] = []
    side, whole = INSIDE, None  # of what the node is to be computed from
    while node.op == MULTIPLY:
        inside, factor = _inside_and_factor(node, preferred, whole)
        if not _is_cheap(factor) or (whole is not None and inside is not whole):
            return None
        path.append((factor, side))
        if _is_cheap(inside):
            return inside, tuple(reversed(path))
        side, node, whole = INSIDE, inside, None
        rest = rest_of(inside)
        if rest is not None:
            whole, node = rest
            side = OUTSIDE
    return None


def _inside_and_factor(
    node: Step, preferred: Mapping[Step, int], whole: Step | None
) -> tuple[Step, Step]:
    """Return the part of which a product is a share, and its factor.

    Of two cheap candidates, the preferred one is the root.
    """
    a, b = node.args
    if whole is not None:
        return (a, b) if a is whole else (b, a)
    if _is_cheap(a) and _is_cheap(b):
        return (a, b) if preferred[a] >= preferred[b] else (b, a)
    return (b, a) if _is_cheap(a) else (a, b)


def _count_roots(totals: Sequence[Step]) -> Counter[Step]:
    """Count how often totals start with a step, above all as the whole from which a part is
    subtracted.
    """
    found: Counter[Step] = Counter()
    for total in totals:
        node: Step | None = total.args[0]
        while node is not None and not _is_cheap(node):
            rest = rest_of(node)
            if rest is not None and _is_cheap(rest[0]):
                found[rest[0]] += len(totals)
            elif all(map(_is_cheap, node.args)):
                found.update(node.args)
            node = next((arg for arg in node.args if not _is_cheap(arg)), None)
    return found


def _is_cheap(node: Step) -> bool:
    return is_load(node) or is_sum_of_loads(node)
