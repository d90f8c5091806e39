"""Trees and forests that learn their splits, level by level, from encrypted rows.

At each level the worker counts the rows at every open node of every tree, in one question; the
owner opens the counts, chooses the splits and asks the next level. Candidates and folds come from a
public seed. Decoys come from a secret one.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from encryptedstats.errors import ParameterError, SchemaError
from encryptedstats.models.growth import Draws
from encryptedstats.models.node_counts import (
    Cell,
    NodeCounts,
    answer_from_pairs,
    cells_of,
    count_measures,
    expand_cells,
)
from encryptedstats.models.pairs import AODE
from encryptedstats.procedures.growing import Grown, Growth, OpenNode
from encryptedstats.procedures.learned_trees import LearnedTrees
from encryptedstats.procedures.procedure import Procedure
from encryptedstats.procedures.splits import ENTROPY, GINI, SQUARED, Impurity, random_cut
from encryptedstats.tables.questions.constraints import (
    AnyOf,
    Choice,
    Constraint,
    Flag,
    Integer,
    RealNumber,
)
from encryptedstats.tables.questions.question import Question
from encryptedstats.tables.schema.names import choose_positions, ids_of
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_DEPTH: Final = 6
MAX_HIDDEN: Final = 2
_MAX_FEATURES: Final = AnyOf(
    parts=(Choice(values=("sqrt",)), Integer(low=1), RealNumber(low=0, high=1, closed="right")),
    optional=True,
    code="invalid-max-features",
)


class TreeProcedure(Procedure):
    """Base class of trees and forests that learn their splits."""

    depth: int
    criterion: str
    min_rows: int
    variables: Sequence[str | int] | None
    decoys: int
    decoy_seed: int | None
    hide_splits: bool
    n_trees: int = 1
    max_features: int | float | str | None = None
    folds: int = 0
    random_state: int = 0

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_trees": Integer(low=1, high=1 << 12),
        "depth": Integer(low=1, high=MAX_DEPTH),
        "criterion": Choice(values=(GINI, ENTROPY)),
        "min_rows": Integer(low=1),
        "max_features": _MAX_FEATURES,
        "folds": Integer(low=0, high=64),
        "decoys": Integer(low=0, high=1 << 8),
        "hide_splits": Flag(),
    }
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)

    def __post_init__(self) -> None:
        own = self.parameters()
        for name, constraint in self.constraints.items():
            if name in own:
                constraint.check(own[name], name)
        if self.n_trees * (1 + self.decoys) > 1 << 12:
            raise ParameterError(
                f"n_trees={self.n_trees}, decoys={self.decoys}: at most {1 << 12:,} trees with "
                "their decoys",
                code="too-many-trees",
            )
        if self.hide_splits and (self.depth > MAX_HIDDEN or self.decoys or self.folds):
            raise ParameterError(
                f"hide_splits=True: splits are hidden in the counts of all pairs of bins, which do "
                f"for depth={MAX_HIDDEN} at most, and without decoys and folds. Deeper trees take "
                "decoys=",
                code="cannot-hide-splits",
            )

    @property
    def at_most(self) -> int:
        return 1 if self.hide_splits else self.depth

    @property
    def learned(self) -> str:
        if self.hide_splits:
            return "nothing of the splits: all pairs of bins are counted, whatever they hold"
        among = (
            f", of each tree among {self.decoys} others that are not used" if self.decoys else ""
        )
        return f"the variable (by id) and the bins of every split, and how many there are{among}"

    def fix_seeds(self) -> Self:
        """Return the procedure with a secret seed of its decoys."""
        if not self.decoys or self.decoy_seed is not None:
            return self
        # subclasses are dataclasses
        found: Any = replace(self, decoy_seed=secrets.randbits(128))  # type: ignore[type-var]
        return found  # type: ignore[no-any-return]  # of the same class

    # -- rounds ------------------------------------------------------------------------------------

    def start(self, schema: Schema | PublicSchema) -> Grown:
        return self._growth(schema).start(self._n_asked)

    def question(self, state: Grown, schema: Schema | PublicSchema) -> Question | None:
        asked = self._growth(schema).question(state)
        if asked is None or not self.hide_splits:
            return asked
        ids = [schema.public().variables[j].id for j in self._splittable(schema)]
        return AODE(variables=ids)

    def step(self, state: Grown, opened: Any, schema: Schema | PublicSchema) -> Grown:
        growth = self._growth(schema)
        if not self.hide_splits:
            return growth.step(state, opened)
        positions = self._splittable(schema)
        bins = [np.array([])] * len(schema.public().variables)
        for j, counts in zip(positions, opened.bin_counts_, strict=True):
            bins[j] = counts
        pairs = dict(zip(combinations(positions, 2), opened.pair_counts_, strict=True))
        while (asked := growth.question(state)) is not None:
            state = growth.step(state, answer_from_pairs(asked, growth.schema, bins, pairs))
        return state

    def read(self, state: Grown, schema: Schema | PublicSchema) -> LearnedTrees:
        impurity = self._growth(schema).impurity
        kept = tuple(state.trees[t] for t in self._real)
        return LearnedTrees.of(kept, schema, impurity, type(self).__name__)

    def to_plan(self, schema: Schema | PublicSchema) -> list[Question]:
        """Return a question of each level with as many nodes as there can be, and paths of the
        splits that make the most noise.
        """
        growth = self._growth(schema)
        if self.hide_splits:
            return [one for one in [self.question(self.start(schema), schema)] if one is not None]
        blind = replace(
            growth,
            pick=lambda tree, number, node: _pick_one(node, Draws("plan", tree, number)),
            min_rows=1,
        )
        found: list[Question] = []
        grown = growth.start(self._n_asked)
        while (asked := growth.question(grown)) is not None:
            found.append(asked)
            grown = blind.step(grown, _make_counts(asked, growth.schema))
        return [*found, *_noisiest(growth, self.depth, self.folds)]

    # -- how trees grow ----------------------------------------------------------------------------

    def _growth(self, schema: Schema | PublicSchema) -> Growth:
        public = schema.public()
        self._check_target(public)
        splittable = self._splittable(schema)
        criterion = self.criterion if public.n_classes else SQUARED
        return Growth(
            public,
            self.depth,
            self.min_rows,
            Impurity(criterion),
            lambda tree, number: self._draw(public, splittable, tree, number),
            self._times_of_folds,
            self._pick,
        )

    def _check_target(self, public: PublicSchema) -> None:
        if not public.n_classes and public.target_number is None:
            raise SchemaError("the schema has no target that trees could learn", code="no-target")
        if not public.n_classes and self.hide_splits:
            raise SchemaError(
                "hide_splits=True is for classes, and the target is a number", code="no-classes"
            )

    def _splittable(self, schema: Schema | PublicSchema) -> list[int]:
        """Return the predictors that have two bins or more, in the order of the schema."""
        ids = None if self.variables is None else ids_of(list(self.variables), schema)
        public = schema.public()
        found = [j for j in sorted(choose_positions(public, ids)) if public.variables[j].n_bins > 1]
        if not found:
            raise SchemaError(
                "no variable has two bins or more, so trees cannot split: choose other variables "
                "or cut more bins",
                code="nothing-to-split",
            )
        return found

    @abstractmethod
    def _draw(
        self, schema: PublicSchema, splittable: list[int], tree: int, number: int
    ) -> tuple[int, ...] | tuple[Cell, ...]:
        """Return the candidates of a node: variables, or single splits."""

    def _features(self, splittable: list[int], draws: Draws) -> list[int]:
        wish, n = self.max_features, len(splittable)
        if wish is None:
            return splittable
        if wish == "sqrt":
            wish = max(1, int(n**0.5))
        k = max(1, int(wish * n)) if isinstance(wish, float) else min(n, int(wish))
        return draws.sample(splittable, k)

    def _times_of_folds(self, tree: int) -> Sequence[int]:
        """Return how often the rows of each fold count in a tree: folds drawn with replacement."""
        if not self.folds:
            return ()
        draws = Draws("folds", *self._seeds, self._order[tree])
        drawn = [draws.below(self.folds) for _ in range(self.folds)]
        return [drawn.count(k) for k in range(self.folds)]

    # -- decoys ------------------------------------------------------------------------------------

    @property
    def _seeds(self) -> tuple[object, ...]:
        """What candidates and folds are drawn from. With decoys it is secret: else the worker could
        draw the candidates of the trees that are used, and know them by these.
        """
        return (self.random_state, self.decoy_seed) if self.decoys else (self.random_state,)

    @property
    def _n_asked(self) -> int:
        return self.n_trees * (1 + self.decoys)

    @cached_property
    def _order(self) -> list[int]:
        """The number of each tree that is asked; those from ``n_trees`` on are decoys."""
        order = list(range(self._n_asked))
        if self.decoys:
            draws = Draws("decoys", self.decoy_seed)
            order = [order.pop(draws.below(len(order))) for _ in range(len(order))]
        return order

    @property
    def _real(self) -> list[int]:
        """The places of the trees that are used, in their order."""
        return [self._order.index(t) for t in range(self.n_trees)]

    def _pick(self, tree: int, number: int, node: OpenNode) -> OpenNode:
        """Return the candidates among which the best split is taken: of a decoy a random one."""
        if self._order[tree] < self.n_trees:
            return node
        return _pick_one(node, Draws("decoys", self.decoy_seed, self._order[tree], number))


def _pick_one(node: OpenNode, draws: Draws) -> OpenNode:
    """Return a node with one of its candidates."""
    if node.cuts:
        return replace(node, cuts=(node.cuts[draws.below(len(node.cuts))],))
    return replace(node, candidates=(node.candidates[draws.below(len(node.candidates))],))


def _make_counts(asked: NodeCounts, schema: PublicSchema) -> list[list[Any]]:
    """Return counts that no rows have, with which every node can be split to the full depth."""
    n, width = 1 << 40, count_measures(schema)
    found = []
    for path, cells, _ in asked.nodes:
        size = n >> (6 * len(path))
        every = expand_cells(schema, cells)
        rows = [size * len(bins) // (2 * schema.variables[j].n_bins) for j, bins in every]
        sizes = [size, *rows] if asked.whole else rows
        found.append([_values(one, width, schema) for one in sizes])
    return found


def _values(n: int, width: int, schema: PublicSchema) -> Any:
    if schema.n_classes:
        return np.array([n // width] * width, dtype=object)
    return np.array([n, 0, n], dtype=object)


def _noisiest(growth: Growth, depth: int, folds: int) -> list[Question]:
    """Return counts at the end of the paths that make the most noise: of the variable that takes
    the most columns for a side of a split.
    """
    schema = growth.schema
    wide = max(range(len(schema.variables)), key=lambda j: _n_columns(schema, j))
    side = [wide, list(range(schema.variables[wide].n_bins - 1))]
    cells = [[variable, list(bins)] for variable, bins in cells_of(schema, wide)]
    times = [[folds, *[0] * (folds - 1)], [1] * folds] if folds else [[]]
    paths = [[side] * n for n in range(1, depth)]
    return [NodeCounts([[path, [*cells, side], one] for one in times]) for path in paths]


def _n_columns(schema: PublicSchema, variable: int) -> int:
    """Return how many stored columns a side of a split is a sum of, at most."""
    return max((len(bins) for _, bins in _level_sides(schema, variable)), default=0)


def _level_sides(schema: PublicSchema, variable: int) -> list[Cell]:
    known = schema.variables[variable]
    if known.n_bins < 2:
        return []
    is_level = known.kind == "categorical"
    return [(variable, tuple(range(known.n_bins - 1)) if is_level else (0,))]


# -- the three of them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class DecisionTree(TreeProcedure):
    """Grow a tree whose splits are chosen from encrypted counts, one level a round.

    The result equals a tree that is grown from histograms of the plain rows, split by split; on
    binned data without equal splits that is scikit-learn's tree. A target that is a number gives a
    regression tree.

    Parameters
    ----------
    depth : int
        The number of levels of splits, 1 to 6, which is the number of rounds.
    criterion : str
        ``"gini"`` or ``"entropy"``; for numbers always the squared error.
    min_rows : int
        The smallest number of rows of a leaf.
    variables : list of str, optional
        The predictors, by name or id; all by default.
    decoys : int
        Further trees for each one that is used, with random splits, in a secret order: a worker
        does not know which splits were chosen. The work grows as often.
    decoy_seed : int, optional
        A secret seed of the decoys and their order; drawn where it is needed.
    hide_splits : bool
        Count all pairs of bins in one question, from which trees of depth 1 or 2 follow at home: a
        worker learns nothing of the splits.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"a": [0, 0, 1, 1] * 5, "b": [0, 1, 1, 1] * 5, "y": [0, 0, 0, 1] * 5})
    >>> table = es.Schema.infer(frame, target="y").table(frame)
    >>> es.DecisionTree(depth=2).run(table).score(frame, frame["y"])
    0.75
    """

    title = "Decision tree that learns its splits"
    depth: int = 3
    criterion: str = GINI
    min_rows: int = 1
    variables: Sequence[str | int] | None = None
    decoys: int = 0
    decoy_seed: int | None = None
    hide_splits: bool = False

    def _draw(
        self, schema: PublicSchema, splittable: list[int], tree: int, number: int
    ) -> tuple[int, ...]:
        return tuple(splittable)


@dataclass(frozen=True)
class RandomForest(TreeProcedure):
    """Grow trees whose nodes choose among random variables, all in the same rounds.

    Parameters
    ----------
    n_trees : int
    depth, criterion, min_rows, variables, decoys, decoy_seed, hide_splits
        See :class:`DecisionTree`.
    max_features : int, float or "sqrt", optional
        The number or share of variables that a node chooses among; None for all.
    folds : int
        The number of folds that the table declares: each tree draws as many of them with
        replacement, and their rows count as often. 0, the default, counts all rows in every tree.
    random_state : int
        The seed of candidates and folds, which are public. With decoys they depend on the secret
        seed as well.
    """

    title = "Random forest that learns its splits"
    n_trees: int = 100
    depth: int = 3
    criterion: str = GINI
    min_rows: int = 1
    max_features: int | float | str | None = "sqrt"
    folds: int = 0
    random_state: int = 0
    variables: Sequence[str | int] | None = None
    decoys: int = 0
    decoy_seed: int | None = None
    hide_splits: bool = False

    def _draw(
        self, schema: PublicSchema, splittable: list[int], tree: int, number: int
    ) -> tuple[int, ...]:
        draws = Draws("features", *self._seeds, self._order[tree], number)
        return tuple(self._features(splittable, draws))


@dataclass(frozen=True)
class ExtraTrees(TreeProcedure):
    """Grow trees whose nodes choose among random cuts of random variables.

    One cut is drawn for each candidate before anything is counted, so that a node takes one count
    for each of them, where :class:`RandomForest` takes one for every cut.

    Parameters
    ----------
    n_trees, depth, criterion, min_rows, max_features, folds, random_state
        See :class:`RandomForest`; the seed draws the cuts as well.
    variables, decoys, decoy_seed, hide_splits
        See :class:`DecisionTree`.
    """

    title = "Extra trees: the best of random cuts"
    n_trees: int = 100
    depth: int = 3
    criterion: str = GINI
    min_rows: int = 1
    max_features: int | float | str | None = "sqrt"
    folds: int = 0
    random_state: int = 0
    variables: Sequence[str | int] | None = None
    decoys: int = 0
    decoy_seed: int | None = None
    hide_splits: bool = False

    def _draw(
        self, schema: PublicSchema, splittable: list[int], tree: int, number: int
    ) -> tuple[Cell, ...]:
        draws = Draws("cuts", *self._seeds, self._order[tree], number)
        return tuple(random_cut(schema, j, draws) for j in self._features(splittable, draws))
