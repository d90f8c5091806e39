"""Completely random forests (paper, sections 3.1 and 3.2, appendix A)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import Expression, column, sum_of
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.encryption import join_digests
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    Cure,
    ParameterError,
    RowsByOthersError,
    SchemaError,
)
from encryptedstats.models.base import TotalsClassifier, known_schema
from encryptedstats.models.fraction import Fraction, clear_fraction, fraction_circuit
from encryptedstats.models.growth import ForestShape, Split, Tree, grow
from encryptedstats.models.prediction import (
    Votes,
    class_names,
    sum_of_numbers,
    times,
    variable_names,
    votes_of,
)
from encryptedstats.tables import EncryptedTable, PublicSchema, Schema, Table
from encryptedstats.tables.answers.answer import same_schema
from encryptedstats.tables.answers.predictions import predict_clear
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.constraints import (
    AnyOf,
    Choice,
    Constraints,
    Integer,
    RealNumber,
)
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Known,
    Number,
    RowAnswer,
    Shapes,
    Totals,
    class_columns,
    refuse_impossible,
)
from encryptedstats.tables.questions.row_answers import DRAWN

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_DEPTH = 6


class CompletelyRandomForest(TotalsClassifier):
    r"""A forest of trees that are grown without looking at rows, and then count the classes in
    every leaf.

    The count of class c in leaf b of tree t is a polynomial in the encrypted indicators,

    .. math:: \rho^t_{bc} = \sum_i y_{ic} \prod_{l=1}^{L} \Big(\sum_{k \in D} x_{i, p, k}\Big)

    with the variable p and the bins D of the split on the way to b at level l. It is computed node
    by node: what is inside goes left times the range sum, and right is the rest, which takes 2^L -
    1 products a class and tree.

    Parameters
    ----------
    n_trees : int
        Trees of the forest.
    depth : int
        Levels of splits, 1 to 6 (encrypted as far as parameters carry it, which a plan says).
    max_features : int, float or "sqrt", optional
        Each tree draws its variables from so many; a float is a share of them. All by default.
    fraction : int or "inverse", optional
        How a leaf's counts are weighed by the size of the leaf, p of all rows. By default an opened
        forest weighs by 1/p, which averages the shares of the classes in the row's leaves, and an
        encrypted forest, which cannot divide, adds the counts as votes. 0: votes are added in both.
        "inverse": shares are averaged, and encrypted prediction is refused. M, a power of two from
        2 to 64: by the expectation (1 - (1-p)^(M+1)) / p of the paper's stochastic fraction, which
        encrypted prediction draws. The totals are the same for all, so an opened forest may change
        it.
    averaged : int
        For predictions without opening, where the fraction is drawn: over this many draws (a power of
        two) it is averaged. Votes are as many times larger then, and vary less.
    random_state : int, optional
        Seed of the growth: trees are public, so it is no secret. None draws one at every fit.
    bins : int
        Bins of a continuous variable when fitting arrays and DataFrames.
    repeats : bool
        Whether splits ignore those above them, so that some leaves can hold no rows: for files of
        earlier versions, whose trees grew so.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    random_state_ : int
        The seed that the trees grew from.
    trees_ : tuple
        The splits.
    leaf_counts_ : array of shape (n_trees, 2**depth, n_classes)
        Counts of an opened forest, never scaled.
    node_counts_ : array of shape (n_trees, 2**(depth+1) - 1, n_classes)
        The same for every node, root first, leaves last.
    class_counts_ : array of shape (n_classes,)
    drawn_ : list of int, or EncryptedNumbers
        The stochastic fraction of every leaf of every tree, where it was drawn (times
        ``averaged``).
    feature_importances_ : array of shape (n_variables,)
        Decrease of Gini impurity at the splits of a variable, as a share of all.

    References
    ----------
    Aslett, Esperança and Holmes (2015), appendix A.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.metrics import roc_auc_score
    >>> from encryptedstats import CompletelyRandomForest
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = CompletelyRandomForest(n_trees=50, depth=3, random_state=1).fit(X, y)
    >>> forest.leaf_counts_.shape
    (50, 8, 2)
    >>> bool(roc_auc_score(y, forest.predict_proba(X)[:, 1]) > 0.97)
    True
    """

    title: ClassVar[str] = "Completely random forest"
    short_name: ClassVar[str] = "forest"
    constraints: ClassVar[Constraints] = {
        "n_trees": Integer(low=1, high=1 << 20, code="integer-out-of-range"),
        "depth": Integer(low=1, high=MAX_DEPTH, code="integer-out-of-range"),
        "max_features": AnyOf(
            parts=(
                Choice(values=("sqrt",)),
                Integer(low=1),
                RealNumber(low=0, high=1, closed="right"),
            ),
            optional=True,
            code="invalid-max-features",
        ),
        "fraction": Choice(
            values=(0, 2, 4, 8, 16, 32, 64, "inverse"),
            optional=True,
            code="fraction-out-of-range",
        ),
        "averaged": Choice(values=tuple(2**i for i in range(11)), code="averaged-out-of-range"),
    }
    caveat: ClassVar[str] = (
        "shares of votes or of leaves: good for an order of the rows, not calibrated"
    )

    def __init__(
        self,
        n_trees: int = 100,
        depth: int = 3,
        max_features: int | float | str | None = None,
        fraction: int | str | None = None,
        averaged: int = 1,
        random_state: int | None = 0,
        bins: int = 5,
        repeats: bool = False,
        variables: Sequence[str | int] | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.depth = depth
        self.max_features = max_features
        self.fraction = fraction
        self.averaged = averaged
        self.random_state = random_state
        self.bins = bins
        self.repeats = repeats
        self.variables = variables

    # -- growth
    # --------------------------------------------------------------------------------------------

    def grow(self, schema: Schema | PublicSchema) -> tuple[Tree, ...]:
        """Grow the trees for a schema: the same for the same seed, everywhere."""
        seed = getattr(self, "growth_", self.parameters())["random_state"]
        if seed is None:
            raise ArgumentError(
                "random_state=None: growth on its own needs a seed, so that a fit can repeat it",
                code="seed-missing",
            )
        self.check_parameters()
        public = schema.public()
        shape = ForestShape(self.n_trees, self.depth, self._n_features(public), bool(self.repeats))
        return grow(public, shape, int(seed), self._positions(public))

    @property
    def random_state_(self) -> int:
        """The seed that the trees grew from."""
        check_is_fitted(self, "answer_")
        return int(self.growth_["random_state"])

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as JSON knows them; of a fitted forest with the seed of its fit."""
        found = super().parameters()
        seed = found["random_state"]
        return {
            **found,
            "random_state": getattr(self, "growth_", found)["random_state"]
            if seed is None
            else seed,
        }

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the forest with these parameters; those of earlier files lack ``repeats``."""
        return super()._from_parameters({"repeats": True, **parameters})

    def _settled(self) -> CompletelyRandomForest:
        """Fix the seed: that of the fit, if there was one."""
        if self.random_state is not None:
            return self
        seed = self.parameters()["random_state"]
        seed = secrets.randbelow(1 << 32) if seed is None else seed
        settled: CompletelyRandomForest = clone(self).set_params(random_state=seed)
        return settled

    def _n_features(self, schema: PublicSchema) -> int | None:
        n, wish = len(self._positions(schema)), self.max_features
        if wish is None:
            return None
        if wish == "sqrt":
            return max(1, int(n**0.5))
        if isinstance(wish, (int, np.integer)):
            return int(min(n, wish))
        return max(1, int(wish * n))

    # -- the circuit
    # --------------------------------------------------------------------------------------------

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Write class totals and, for every tree, node and class, what goes left; what goes right
        is the rest.
        """
        classes = class_columns(schema, fold)
        left = [self._left_totals(tree, classes) for tree in self.grow(schema)]
        return {"class_counts": [y.total() for y in classes], "left": left}

    def _left_totals(self, tree: Tree, classes: list[Expression]) -> list[list[Expression]]:
        totals: list[list[Expression]] = []
        inside = [classes]
        for node, split in enumerate(tree):
            share = _goes_left(split)
            left = [x * share for x in inside[node]]
            totals.append([x.total() for x in left])
            if 2 * node + 1 < len(tree):
                inside += [left, [x - part for x, part in zip(inside[node], left, strict=True)]]
        return totals

    def shapes(self, schema: PublicSchema) -> Shapes:
        n_classes = schema.n_classes
        return {
            "class_counts": (n_classes,),
            "left": (int(self.n_trees), 2 ** int(self.depth) - 1, n_classes),
        }

    # -- the opened forest
    # -----------------------------------------------------------------------------------------

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        self.trees_ = self.grow(schema)
        self.class_counts_ = totals["class_counts"].astype(np.int64)
        self.node_counts_ = self._all_counts(totals["left"].astype(np.int64))
        self.leaf_counts_ = self.node_counts_[:, 2**self.depth - 1 :]
        refuse_impossible(
            bool((self.node_counts_ >= 0).all()), "a node would hold fewer than no rows"
        )

    def _all_counts(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute counts of every node, leaves last: a right child is its parent less the left one."""
        n_trees, n_nodes, n_classes = left.shape
        counts = np.empty((n_trees, 2 * n_nodes + 1, n_classes), dtype=np.int64)
        counts[:, 0] = self.class_counts_
        for node in range(n_nodes):
            counts[:, 2 * node + 1] = left[:, node]
            counts[:, 2 * node + 2] = counts[:, node] - left[:, node]
        return counts

    def leaf_weights(self) -> NDArray[np.float64]:
        """Return what the counts of each leaf are multiplied by: 1/p, 1 or the expected stochastic
        fraction.
        """
        self._check_open()
        sizes = self.leaf_counts_.sum(axis=2)
        if self.fraction == 0:
            return np.ones(sizes.shape)
        p = sizes / max(1, self.class_counts_.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = (1 - (1 - p) ** (self._draws + 1)) / p if self._draws else 1 / p
        return np.where(sizes > 0, weights, 0.0)

    def apply(self, X: Any) -> NDArray[np.int64]:
        """Return the leaf of each row in each tree, shape (rows, trees)."""
        return self._by_row(X, self._leaves)

    def _leaves(self, table: Table) -> NDArray[np.int64]:
        return _leaves_of(self.trees_, table)

    def decision_votes(self, X: Any) -> NDArray[np.float64]:
        """Return the votes of each class: the weighted counts of the row's leaf, added up over
        trees.
        """
        return self._by_row(X, self._votes)

    def _votes(self, table: Table) -> NDArray[np.float64]:
        if self.fraction == 0:
            return predict_clear(self._as_predictor(), table, "")["votes"].astype(float)
        weighted = self.leaf_counts_ * self.leaf_weights()[:, :, None]
        leaves = self._leaves(table)
        return sum(
            (counts[leaves[:, t]] for t, counts in enumerate(weighted)),
            start=np.zeros((len(table), 1)),
        )

    def scores(self, table: Table) -> NDArray[np.float64]:
        """Shares of the votes: of the answers themselves, or weighed by the expected fraction,
        where those have a drawn one.
        """
        return _shares(self._votes(table))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the share of the votes of each class."""
        return self._by_row(X, self.scores)

    def votes(self, X: Any) -> pd.DataFrame:
        """Return the votes of each class as a DataFrame."""
        return pd.DataFrame(self.decision_votes(X), columns=list(self.classes_))

    # -- predicting without opening
    # ----------------------------------------------------------------------------------

    def answers(
        self, schema: PublicSchema, columns: Columns, known: Known, output: str = ""
    ) -> Arrays:
        """Write for every class the sum over trees of the count in the row's leaf (times the leaf's
        drawn fraction).

        Which leaf that is, is decided from below: a node's count is that of its right child, plus
        what the left one has more if the row goes left. That takes 2^L - 1 products a class and
        tree, and a row need not be followed from the root.
        """
        self._check_drawn(known)
        trees = self.grow(schema)
        # With fractions trees have no products in common, and few of these are held at a time where
        # trees share no counts.
        left = known["left"] if DRAWN in known else _share_counts(known["left"], trees)
        share = {split: _goes_left(split) for tree in trees for split in tree}
        largest = known.highest("class_counts") * (known.highest(DRAWN) if DRAWN in known else 1)
        votes = []
        for c, count in enumerate(known["class_counts"]):
            by_tree = []
            for t, tree in enumerate(trees):
                leaves = _leaf_counts(count, left[t, :, c].tolist())
                if DRAWN in known:
                    leaves = [
                        times(leaf, fraction)
                        for leaf, fraction in zip(leaves, known[DRAWN][t], strict=True)
                    ]
                by_tree.append(_leaf_value(tree, leaves, share))
            votes.append(
                RowAnswer(sum_of_numbers(by_tree), Interval(0, len(trees) * largest), signed=False)
            )
        return {"votes": votes}

    def answer_shapes(self, schema: PublicSchema, output: str = "") -> Shapes:
        return {"votes": (schema.n_classes,)}

    def judge(self, answers: Totals, schema: Schema | PublicSchema, output: str = "") -> Votes:
        """Shares of the votes."""
        return votes_of(
            answers, class_names(schema), _shares(answers["votes"].astype(float)), schema
        )

    # -- the drawn fraction
    # --------------------------------------------------------------------------------------------

    @property
    def _draws(self) -> int:
        """Return how many rows are drawn for a leaf: none unless the fraction is a number."""
        return 0 if self.fraction is None or isinstance(self.fraction, str) else int(self.fraction)

    def _fraction(self) -> Fraction:
        """Return how the stochastic fraction of this forest is drawn: from the seed of its growth."""
        return Fraction(
            self._draws, int(self.averaged), int(self.parameters()["random_state"] or 0)
        )

    def draw_fraction(
        self, table: Table | EncryptedTable, **options: Any
    ) -> CompletelyRandomForest:
        """Draw the stochastic fraction of every leaf from a table, which stays as closed as it is:
        for :meth:`predict_votes`.

        A fit draws from its own rows, on encrypted tables where keys were planned for it. Fractions
        do not add up as counts do: a model that was combined from others has none until they are
        drawn from all its rows.
        """
        check_is_fitted(self, "answer_")
        if not self._draws:
            named = () if self.fraction is None else (self.named_parameter("fraction"), ": ")
            raise ParameterError(
                *named,
                "there is no fraction to draw; a power of two from 2 to 64 is drawn",
                code="nothing-to-draw",
            )
        self._check_drawn_from(table)
        public, fraction = table.schema.public(), self._fraction()
        trees = self.grow(public)
        if isinstance(table, EncryptedTable):
            outputs = fraction_circuit(fraction, trees, public, table.layout)
            bound = Interval(fraction.averaged, fraction.largest)
            drawn: Any = table.evaluate(outputs, bounds=[bound] * len(outputs), **options)
        else:
            drawn = clear_fraction(fraction, _leaves_of(trees, table), 2**self.depth)
        self.answer_ = replace(self.answer_, beside={**self.beside_, DRAWN: drawn})
        return self

    def _check_drawn_from(self, table: Table | EncryptedTable) -> None:
        if isinstance(table, EncryptedTable) != self.is_encrypted:
            raise ArgumentTypeError(
                "an encrypted forest draws from an encrypted table, an open one from a clear one: "
                "what weighs the counts is as "
                "closed as they are",
                code="encrypted-and-open",
            )
        if not same_schema(self.schema_, known_schema(table)):
            raise SchemaError(
                "these rows are of another schema than the forest", code="other-schema"
            )
        if isinstance(table, EncryptedTable):
            if table.by_others:
                raise RowsByOthersError(
                    "these rows were encrypted by others, and which of them are drawn is public: "
                    "an opened drawn fraction would tell in which leaves single rows are. Fractions are drawn from rows that "
                    "their owner encrypted",
                    code="rows-by-others",
                )
            self.totals_.keys.check_same(table.keys)
            join_digests(
                self.totals_.schema_digest, table.facts.schema_digest
            )  # refused before the work, not after it

    def _fit_table(self, table: Table | EncryptedTable, **options: Any) -> CompletelyRandomForest:
        super()._fit_table(table, **options)
        planned = isinstance(table, Table) or (
            table.parameters.kept_primes is not None and table.keys.rotations
        )
        if self._draws and planned and not (isinstance(table, EncryptedTable) and table.by_others):
            options.pop("checkpoint", None)  # of the counts: what is drawn is drawn anew
            self.draw_fraction(table, **options)
        return self

    @property
    def drawn_(self) -> list[int] | EncryptedNumbers:
        """The stochastic fractions, once they are drawn."""
        if DRAWN not in (self.beside_ if hasattr(self, "answer_") else {}):
            raise AttributeError(
                f"this forest, fraction={self.fraction!r}, has drawn nothing: see draw_fraction"
            )
        found: list[int] | EncryptedNumbers = self.beside_[DRAWN]
        return found

    def _drawn_circuit(
        self, schema: PublicSchema
    ) -> tuple[Callable[[Layout], list[Expression]] | None, Interval]:
        if not self._draws:
            return super()._drawn_circuit(schema)
        fraction, trees = self._fraction(), self.grow(schema)
        return partial(fraction_circuit, fraction, trees, schema), Interval(1, fraction.largest)

    def _beside_shapes(self, schema: PublicSchema) -> Shapes:
        return {DRAWN: (int(self.n_trees), 2 ** int(self.depth))} if self._draws else {}

    def _check_drawn(self, known: Known) -> None:
        if self.fraction == "inverse":
            raise ParameterError(
                Cure(
                    "no inverse",
                    "fraction='inverse' averages leaf shares and divides, which only an opened "
                    "forest can: predict_proba, or "
                    "fraction=0 or 2 to 64",
                )
            )
        if self._draws and DRAWN not in known:
            raise ParameterError(
                self.named_parameter("fraction"),
                " has not been drawn for this forest: ",
                Cure("draw", "forest.draw_fraction(table), with all its rows"),
                " (on an encrypted table with keys of ",
                Cure("plan prediction", "es.plan(..., encrypted_prediction=True)"),
                "); or open the forest, which weighs exactly",
                code="fraction-not-drawn",
            )

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Decrease of Gini impurity at the splits of each variable, as a share of all decreases."""
        self._check_open()
        n_nodes = 2**self.depth - 1
        impurity = _weighted_gini(self.node_counts_)
        decrease = impurity[:, :n_nodes] - impurity[:, 1::2] - impurity[:, 2::2]
        importances = np.zeros(len(self.schema_.public().variables))
        for t, tree in enumerate(self.trees_):
            for node, split in enumerate(tree):
                importances[split.variable] += decrease[t, node]
        return importances / importances.sum() if importances.sum() > 0 else importances

    def learned(self) -> pd.DataFrame:
        """Importance and number of splits of every variable, the most important first."""
        names = variable_names(self.schema_)
        used = np.bincount(
            [split.variable for tree in self.trees_ for split in tree], minlength=len(names)
        )
        found = {"importance": self.feature_importances_, "splits": used}
        frame = pd.DataFrame(found, pd.Index(names, name="variable"))
        frame = frame.iloc[sorted(self._positions(self.schema_.public()))]
        return frame.sort_values("importance", ascending=False, kind="stable")


def _leaves_of(trees: Sequence[Tree], table: Table) -> NDArray[np.int64]:
    """Return the leaf of each row in each tree, shape (rows, trees).

    By a walk: as a circuit in which leaves are worth their numbers it takes nine times as long for
    a few hundred rows.
    """
    leaves = np.empty((len(table), len(trees)), dtype=np.int64)
    for t, tree in enumerate(trees):
        goes_left = np.stack(
            [np.isin(table.codes_of(split.variable), split.left) for split in tree]
        )
        node = np.zeros(len(table), dtype=np.int64)
        while node[0] < len(tree):  # all leaves are equally deep
            node = 2 * node + 2 - goes_left[node, np.arange(len(table))]
        leaves[:, t] = node - len(tree)
    return leaves


def _share_counts(left: NDArray[Any], trees: Sequence[Tree]) -> NDArray[Any]:
    """Replace equal counts by one: what comes after the same splits is the same count, in any tree.

    Shallow forests have few different nodes, however many trees: the products of a prediction are
    then those of the nodes, each with the number of trees that have it as a weight (a forest is a
    kernel whose weights are public).
    """
    first: dict[Any, tuple[int, int]] = {}
    shared = left.copy()
    for t, tree in enumerate(trees):
        paths: list[Any] = [()]
        for node, split in enumerate(tree):
            shared[t, node] = left[first.setdefault((paths[node], split), (t, node))]
            paths += [(paths[node], split, True), (paths[node], split, False)]
    return shared


def _leaf_counts(count: Number, left: Sequence[Number]) -> list[Number]:
    """Return the counts of the leaves of a tree, of one class; what goes right is what does not go
    left.
    """
    counts = [count]
    for node, part in enumerate(left):
        counts += [part, sum_of_numbers([counts[node], -part])]
    return counts[len(left) :]


def _leaf_value(tree: Tree, leaves: Sequence[Number], share: Mapping[Split, Expression]) -> Number:
    """Return the value of the leaf that a row reaches; ``share`` is 1 for rows that a split sends
    left.
    """
    values: list[Number] = [*([0] * len(tree)), *leaves]
    for node in range(len(tree) - 1, -1, -1):
        left, right = values[2 * node + 1], values[2 * node + 2]
        values[node] = sum_of_numbers(
            [right, times(sum_of_numbers([left, -right]), share[tree[node]])]
        )
    return values[0]


def _goes_left(split: Split) -> Expression:
    """1 for rows that a split sends left, else 0."""
    return sum_of([column(str(Column("onehot", split.variable, k))) for k in split.left])


def _shares(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each class of the votes; equal shares for rows that fall into empty
    leaves only.
    """
    total = votes.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.where(
        total > 0, votes / np.where(total > 0, total, 1), 1 / votes.shape[1]
    )
    return shares


def _weighted_gini(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    sizes = counts.sum(axis=2)
    gini: NDArray[np.float64] = sizes - (counts.astype(float) ** 2).sum(axis=2) / np.maximum(
        sizes, 1
    )
    return gini
