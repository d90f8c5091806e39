"""Trees that grow level by level: what is asked of the open nodes, and how their splits follow.

A tree is a mapping from the number of a node to the node: the root is 0, the children of i are
2i + 1 and 2i + 2. Of two siblings only the left one is counted where the right one follows from
their parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from encryptedstats.models.growth import Split
from encryptedstats.models.node_counts import Cell, NodeCounts, Values, by_bin, cells_of
from encryptedstats.procedures.splits import Impurity, all_cuts, as_cell, best_split
from encryptedstats.tables.schema.variables import PublicSchema

Histograms = Mapping[int, Values]  # by variable
ROOT: Final = 0


@dataclass(frozen=True)
class TreeNode:
    """A node of a tree.

    Attributes
    ----------
    values : array of int
        Rows of each class; or rows, sum and squares of a number.
    path : tuple of (variable, bins)
        The sides of the splits above it.
    split : Split or None
        None of a leaf.
    """

    values: Values
    path: tuple[Cell, ...] = ()
    split: Split | None = None


Tree = Mapping[int, TreeNode]


@dataclass(frozen=True)
class OpenNode:
    """A node whose split is still to be chosen, and what is asked of it.

    Attributes
    ----------
    path : tuple of (variable, bins)
    candidates : tuple of int
        The variables that it may split on.
    cuts : tuple of (variable, bins)
        The only splits that it may take, where these are drawn; else empty.
    asked : tuple of int
        The variables whose bins are counted; the others follow from its parent and its sibling.
    above : dict
        The histograms of its parent.
    """

    path: tuple[Cell, ...] = ()
    candidates: tuple[int, ...] = ()
    cuts: tuple[Cell, ...] = ()
    asked: tuple[int, ...] = ()
    above: Histograms = field(default_factory=dict)


@dataclass(frozen=True)
class Grown:
    """Trees as far as they have grown, with the open nodes of each."""

    trees: tuple[Tree, ...]
    open: tuple[Mapping[int, OpenNode], ...]
    level: int = 0


@dataclass(frozen=True)
class Growth:
    """How trees grow.

    Attributes
    ----------
    schema : PublicSchema
    depth : int
    min_rows : int
        The smallest number of rows of a child.
    impurity : Impurity
    draw : function
        The candidates of a node, by tree and number: variables, or single splits.
    folds : function
        How often the rows of each fold count in a tree; empty for all rows once.
    pick : function
        The split of a node from its tree, its number and its candidates; by default the best.
    """

    schema: PublicSchema
    depth: int
    min_rows: int
    impurity: Impurity
    draw: Callable[[int, int], tuple[int, ...] | tuple[Cell, ...]]
    folds: Callable[[int], Sequence[int]]
    pick: Callable[[int, int, OpenNode], OpenNode] = lambda tree, node, open_node: open_node

    def start(self, n_trees: int) -> Grown:
        """Return the roots, all of them open."""
        opened = [self._with_candidates(t, ROOT, OpenNode()) for t in range(n_trees)]
        return Grown(({},) * n_trees, tuple({ROOT: _asking_all(one)} for one in opened))

    def question(self, grown: Grown) -> NodeCounts | None:
        """Return the counts that the open nodes need; None if there are no open nodes."""
        nodes = [
            [_as_lists(node.path), _as_lists(node.cuts) or list(node.asked), list(self.folds(t))]
            for t, _, node in _open_nodes(grown)
        ]
        return NodeCounts(nodes, whole=grown.level == 0) if nodes else None

    def step(self, grown: Grown, opened: Sequence[Sequence[Values]]) -> Grown:
        """Split the open nodes by their counts, and open their children."""
        counted: list[dict[int, list[Values]]] = [{} for _ in grown.trees]
        for (t, number, _), values in zip(_open_nodes(grown), opened, strict=True):
            counted[t][number] = list(values)
        grew = [self._grow(t, grown, counted[t]) for t in range(len(grown.trees))]
        return Grown(tuple(t for t, _ in grew), tuple(o for _, o in grew), grown.level + 1)

    # -- one tree ----------------------------------------------------------------------------------

    def _grow(
        self, t: int, grown: Grown, counted: Mapping[int, list[Values]]
    ) -> tuple[Tree, Mapping[int, OpenNode]]:
        tree, opened = dict(grown.trees[t]), grown.open[t]
        if grown.level == 0:
            tree[ROOT] = TreeNode(counted[ROOT].pop(0))
        histograms = self._histograms(tree, opened, counted)
        children: dict[int, OpenNode] = {}
        for number, node in opened.items():
            allowed = self.pick(t, number, node)
            cuts = dict(zip(node.cuts, counted[number], strict=True)) if node.cuts else {}
            found = best_split(
                self._splits(allowed, histograms.get(number, {}), cuts),
                tree[number].values,
                self.impurity,
                self.min_rows,
            )
            if found is not None:
                self._split(tree, number, *found)
                children |= self._open_children(t, tree, number, histograms.get(number, {}))
        return tree, children

    def _splits(
        self, node: OpenNode, histograms: Histograms, cuts: Mapping[Cell, Values]
    ) -> Iterator[tuple[Split, Values]]:
        if node.cuts:
            yield from ((Split(*cut), cuts[cut]) for cut in node.cuts)
            return
        for variable in node.candidates:
            yield from all_cuts(self.schema, variable, histograms[variable], self.impurity)

    def _split(self, tree: dict[int, TreeNode], number: int, split: Split, left: Values) -> None:
        node, n_bins = tree[number], self.schema.variables[split.variable].n_bins
        tree[number] = TreeNode(node.values, node.path, split)
        sides = ((left, True), (node.values - left, False))
        for child, (values, is_left) in enumerate(sides, start=2 * number + 1):
            path = (*node.path, as_cell(split, n_bins, left=is_left))
            tree[child] = TreeNode(values, path)

    def _histograms(
        self, tree: Tree, opened: Mapping[int, OpenNode], counted: Mapping[int, list[Values]]
    ) -> dict[int, dict[int, Values]]:
        """Return the values of every bin of the candidates of every open node."""
        found: dict[int, dict[int, Values]] = {}
        for number, node in opened.items():
            if node.cuts:
                continue
            parts, own = iter(counted.get(number, ())), dict[int, Values]()
            for variable in node.asked:
                cells = [next(parts) for _ in cells_of(self.schema, variable)]
                own[variable] = by_bin(self.schema, variable, cells, tree[number].values)
            for variable in set(node.candidates) - set(own):  # the left sibling has been counted
                own[variable] = node.above[variable] - found[number - 1][variable]
            found[number] = own
        return found

    def _open_children(
        self, t: int, tree: Tree, number: int, above: Histograms
    ) -> dict[int, OpenNode]:
        left, right = 2 * number + 1, 2 * number + 2
        depth = len(tree[left].path)
        opened = {
            child: self._with_candidates(t, child, OpenNode(tree[child].path, above=above))
            for child in (left, right)
            if depth < self.depth and self._can_split(tree[child].values)
        }
        shared = set[int]()
        if len(opened) == 2 and above:
            both = set(opened[left].candidates) & set(opened[right].candidates)
            shared = both & set(above)
        asks_all = {child: _asking_all(one) for child, one in opened.items()}
        if shared:
            asks_all[right] = _asking(asks_all[right], shared)
        return asks_all

    def _can_split(self, values: Values) -> bool:
        n = self.impurity.count(values)
        return n >= max(2, 2 * self.min_rows) and not self.impurity.is_pure(values)

    def _with_candidates(self, t: int, number: int, node: OpenNode) -> OpenNode:
        drawn = self.draw(t, number)
        if drawn and isinstance(drawn[0], tuple):
            return OpenNode(node.path, (), tuple(dict.fromkeys(drawn)), (), node.above)
        return OpenNode(node.path, drawn, (), (), node.above)  # type: ignore[arg-type]  # variables


def _asking_all(node: OpenNode) -> OpenNode:
    return _asking(node, set())


def _asking(node: OpenNode, known: set[int]) -> OpenNode:
    """Return the node with all candidates asked but those that are known."""
    asked = tuple(j for j in node.candidates if j not in known)
    return OpenNode(node.path, node.candidates, node.cuts, asked, node.above)


def _open_nodes(grown: Grown) -> Iterator[tuple[int, int, OpenNode]]:
    """Yield tree, number and node of each open node of which something is asked."""
    for t, opened in enumerate(grown.open):
        for number, node in opened.items():
            if node.cuts or node.asked:
                yield t, number, node


def _as_lists(cells: Sequence[Cell]) -> list[list[object]]:
    return [[variable, list(bins)] for variable, bins in cells]
