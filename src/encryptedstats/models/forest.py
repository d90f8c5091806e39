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
from encryptedstats.models._sklearn import check_is_fitted
from encryptedstats.models.base import TotalsClassifier, get_schema
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
from encryptedstats.tables.answers.answer import is_same_schema
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
    ModelTotals,
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
    r"""Grow a forest of random trees without looking at rows, and count the classes in each leaf.

    The count of class c in leaf b of tree t is a polynomial in the encrypted indicators,

    .. math:: \rho^t_{bc} = \sum_i y_{ic} \prod_{l=1}^{L} \Big(\sum_{k \in D} x_{i, p, k}\Big)

    with the variable p and the bins D of the split at level l of the path to b. The counts are
    computed node by node: the rows of the left child are those of the node times the sum of the
    indicators, and those of the right child are the rest. This takes :math:`2^L - 1` products for
    each class and tree.

    Parameters
    ----------
    n_trees : int
        Number of trees.
    depth : int
        Number of levels of splits, 1 to 6. A plan says which depth the parameters allow on
        encrypted rows.
    max_features : int, float or "sqrt", optional
        Number of variables that each tree may split on, drawn at random; a float is a share of
        all variables. All by default.
    fraction : int or "inverse", optional
        How the counts of a leaf are weighted by its size, the share p of all rows. By default a
        decrypted forest weights by 1/p, which averages the shares of the classes in the leaves of a
        row, and an encrypted forest, which cannot divide, adds the counts as votes. 0 adds votes in
        both cases. "inverse" averages shares and refuses encrypted predictions. M, a power of two
        from 2 to 64, weights by (1 - (1-p)^(M+1)) / p, the expectation of the stochastic fraction
        of the paper, which is drawn for encrypted predictions. The totals do not depend on it, so
        it can be changed after opening.
    averaged : int
        Number of draws, a power of two, over which the drawn fraction is averaged in encrypted
        predictions. Votes are that many times larger and vary less.
    random_state : int, optional
        Seed of the trees. Trees are public, so the seed is no secret. None draws a seed at every
        fit.
    bins : int
        Number of bins of a continuous variable, for fits to arrays and DataFrames.
    repeats : bool
        Whether splits ignore those above them, so that some leaves can hold no rows. Files of
        earlier versions have such trees.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    random_state_ : int
        The seed of the trees.
    trees_ : tuple
        The splits.
    leaf_counts_ : array of shape (n_trees, 2**depth, n_classes)
        Unweighted counts of a decrypted forest.
    node_counts_ : array of shape (n_trees, 2**(depth+1) - 1, n_classes)
        The same for every node, the root first and the leaves last.
    class_counts_ : array of shape (n_classes,)
    drawn_ : list of int, or EncryptedNumbers
        The drawn fraction of every leaf of every tree, times ``averaged``.
    feature_importances_ : array of shape (n_variables,)
        The share of each variable in the decrease of Gini impurity over all splits.

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
    caveat: ClassVar[str] = "shares of votes or leaves, which rank the rows and are not calibrated"

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

    # -- growth ------------------------------------------------------------------------------------

    def grow(self, schema: Schema | PublicSchema) -> tuple[Tree, ...]:
        """Return the trees for a schema; they depend on the seed and the parameters only.

        Raises
        ------
        ArgumentError
            If ``random_state`` is None and the forest is not fitted.
        """
        seed = getattr(self, "growth_", self.parameters())["random_state"]
        if seed is None:
            raise ArgumentError(
                "random_state=None: give a seed to grow trees before a fit, which draws its own",
                code="seed-missing",
            )
        self.check_parameters()
        public = schema.public()
        shape = ForestShape(self.n_trees, self.depth, self._n_features(public), bool(self.repeats))
        return grow(public, shape, int(seed), self._positions(public))

    @property
    def random_state_(self) -> int:
        """The seed of the trees."""
        check_is_fitted(self)
        return int(self.growth_["random_state"])

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as JSON values; a fitted forest has the seed of its fit."""
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
        # Files of earlier versions lack ``repeats``.
        return super()._from_parameters({"repeats": True, **parameters})

    def _fix_seed(self) -> CompletelyRandomForest:
        if self.random_state is not None:
            return self
        seed = self.parameters()["random_state"]
        seed = secrets.randbelow(1 << 32) if seed is None else seed
        return self._clone(random_state=seed)

    def _n_features(self, schema: PublicSchema) -> int | None:
        n, wish = len(self._positions(schema)), self.max_features
        if wish is None:
            return None
        if wish == "sqrt":
            return max(1, int(n**0.5))
        if isinstance(wish, (int, np.integer)):
            return int(min(n, wish))
        return max(1, int(wish * n))

    # -- the circuit -------------------------------------------------------------------------------

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Write the totals of the classes, and of the rows that go left, by tree, node
        and class.
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

    # -- the decrypted forest ----------------------------------------------------------------------

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        self.trees_ = self.grow(schema)
        self.class_counts_ = totals["class_counts"].astype(np.int64)
        self.node_counts_ = self._all_counts(totals["left"].astype(np.int64))
        self.leaf_counts_ = self.node_counts_[:, 2**self.depth - 1 :]
        refuse_impossible(
            bool((self.node_counts_ >= 0).all()), "a node would have a negative number of rows"
        )

    def _all_counts(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts of every node, leaves last; a right child is its parent
        minus the left.
        """
        n_trees, n_nodes, n_classes = left.shape
        counts = np.empty((n_trees, 2 * n_nodes + 1, n_classes), dtype=np.int64)
        counts[:, 0] = self.class_counts_
        for node in range(n_nodes):
            counts[:, 2 * node + 1] = left[:, node]
            counts[:, 2 * node + 2] = counts[:, node] - left[:, node]
        return counts

    def leaf_weights(self) -> NDArray[np.float64]:
        """Return the factor of the counts of each leaf, which ``fraction`` determines.

        It is 1/p, 1 or the expectation of the drawn fraction; 0 for empty leaves.
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
        """Return the leaf of each row in each tree, an array of shape (n_rows, n_trees)."""
        return self._by_row(X, self._leaves)

    def _leaves(self, table: Table) -> NDArray[np.int64]:
        return _leaves_of(self.trees_, table)

    def decision_votes(self, X: Any) -> NDArray[np.float64]:
        """Return the votes for each class: the weighted counts of a row's leaves, summed over
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
        return _shares(self._votes(table))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the share of the votes for each class."""
        return self._by_row(X, self.scores)

    def votes(self, X: Any) -> pd.DataFrame:
        """Return the votes for each class as a DataFrame."""
        return pd.DataFrame(self.decision_votes(X), columns=list(self.classes_))

    # -- encrypted predictions ---------------------------------------------------------------------

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = ""
    ) -> Arrays:
        """Write for every class the sum over trees of the count in the row's leaf.

        The count is multiplied by the drawn fraction of the leaf, if there is one. The leaf is
        selected from the leaves upwards: the count of a node is that of its right child, plus the
        difference of the left one if the row goes left. This takes 2^L - 1 products for each class
        and tree.
        """
        self._check_drawn(known)
        trees = self.grow(schema)
        # With fractions, trees have no products in common. If they share no counts either, few
        # products are in memory at a time.
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
        return votes_of(
            answers, class_names(schema), _shares(answers["votes"].astype(float)), schema
        )

    # -- the drawn fraction ------------------------------------------------------------------------

    @property
    def _draws(self) -> int:
        """The number of rows that are drawn for a leaf; 0 unless ``fraction`` is a number."""
        return 0 if self.fraction is None or isinstance(self.fraction, str) else int(self.fraction)

    def _fraction(self) -> Fraction:
        return Fraction(
            self._draws, int(self.averaged), int(self.parameters()["random_state"] or 0)
        )

    def draw_fraction(
        self, table: Table | EncryptedTable, **options: Any
    ) -> CompletelyRandomForest:
        """Draw the stochastic fraction of every leaf, which :meth:`predict_votes` uses.

        A fit draws from its own rows; for an encrypted table only if the keys were planned for it.
        Fractions cannot be added as counts can: a model that was combined from others has none
        until they are drawn from all its rows.

        Parameters
        ----------
        table : Table or EncryptedTable
            All rows of the forest; encrypted if the forest is encrypted. Nothing is decrypted.
        **options
            See ``EncryptedTable.evaluate``.

        Returns
        -------
        The forest itself.

        Raises
        ------
        ParameterError
            If ``fraction`` is no power of two from 2 to 64.
        RowsByOthersError
            If others encrypted the rows.
        """
        check_is_fitted(self)
        if not self._draws:
            named = () if self.fraction is None else (self.named_parameter("fraction"), ": ")
            raise ParameterError(
                *named,
                "this forest has no fraction to draw: set it to a power of two from 2 to 64",
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
        self.answer_ = replace(self.answer_, extra_totals={**self.extra_totals_, DRAWN: drawn})
        return self

    def _check_drawn_from(self, table: Table | EncryptedTable) -> None:
        if isinstance(table, EncryptedTable) != self.is_encrypted:
            raise ArgumentTypeError(
                "an encrypted forest draws from an encrypted table, and a decrypted forest from a "
                "clear table: give the other table",
                code="encrypted-and-open",
            )
        if not is_same_schema(self.schema_, get_schema(table)):
            raise SchemaError(
                "these rows have another schema than the forest: give the rows that it was fitted "
                "to",
                code="other-schema",
            )
        if isinstance(table, EncryptedTable):
            if table.by_others:
                raise RowsByOthersError(
                    "these rows were encrypted by others. Which rows are drawn is public, so the "
                    "decrypted fraction would reveal the leaves of single rows: draw from rows "
                    "that the owner encrypted",
                    code="rows-by-others",
                )
            self.totals_.keys.check_same(table.keys)
            # Refuse another schema before the evaluation, which takes long.
            join_digests(self.totals_.schema_digest, table.facts.schema_digest)

    def _fit_table(self, table: Table | EncryptedTable, **options: Any) -> CompletelyRandomForest:
        super()._fit_table(table, **options)
        planned = isinstance(table, Table) or (
            table.parameters.kept_primes is not None and table.keys.rotations
        )
        if self._draws and planned and not (isinstance(table, EncryptedTable) and table.by_others):
            options.pop("checkpoint", None)  # it is the checkpoint of the counts
            self.draw_fraction(table, **options)
        return self

    @property
    def drawn_(self) -> list[int] | EncryptedNumbers:
        """The drawn fractions of every leaf of every tree."""
        if DRAWN not in (self.extra_totals_ if hasattr(self, "answer_") else {}):
            raise AttributeError(
                f"this forest, fraction={self.fraction!r}, has no drawn fractions: see "
                "draw_fraction"
            )
        found: list[int] | EncryptedNumbers = self.extra_totals_[DRAWN]
        return found

    def _drawn_circuit(
        self, schema: PublicSchema
    ) -> tuple[Callable[[Layout], list[Expression]] | None, Interval]:
        if not self._draws:
            return super()._drawn_circuit(schema)
        fraction, trees = self._fraction(), self.grow(schema)
        return partial(fraction_circuit, fraction, trees, schema), Interval(1, fraction.largest)

    def _extra_shapes(self, schema: PublicSchema) -> Shapes:
        return {DRAWN: (int(self.n_trees), 2 ** int(self.depth))} if self._draws else {}

    def _check_drawn(self, known: ModelTotals) -> None:
        if self.fraction == "inverse":
            raise ParameterError(
                Cure(
                    "no inverse",
                    "fraction='inverse' divides, which only a decrypted forest can: open the "
                    "forest and call predict_proba, or set fraction to 0 or to a power of two "
                    "from 2 to 64",
                )
            )
        if self._draws and DRAWN not in known:
            raise ParameterError(
                self.named_parameter("fraction"),
                " has not been drawn for this forest: ",
                Cure("draw", "forest.draw_fraction(table), with all its rows"),
                " (on an encrypted table with keys of ",
                Cure("plan prediction", "es.plan(..., encrypted_prediction=True)"),
                "); or open the forest, which weights exactly",
                code="fraction-not-drawn",
            )

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The share of each variable in the decrease of Gini impurity over all splits."""
        self._check_open()
        n_nodes = 2**self.depth - 1
        impurity = _weighted_gini(self.node_counts_)
        decrease = impurity[:, :n_nodes] - impurity[:, 1::2] - impurity[:, 2::2]
        importances = np.zeros(len(self.schema_.public().variables))
        for t, tree in enumerate(self.trees_):
            for node, split in enumerate(tree):
                importances[split.variable] += decrease[t, node]
        return importances / importances.sum() if importances.sum() > 0 else importances

    def tabulate(self) -> pd.DataFrame:
        """Return the importance and the number of splits of every variable, sorted."""
        names = variable_names(self.schema_)
        used = np.bincount(
            [split.variable for tree in self.trees_ for split in tree], minlength=len(names)
        )
        found = {"importance": self.feature_importances_, "splits": used}
        frame = pd.DataFrame(found, pd.Index(names, name="variable"))
        frame = frame.iloc[sorted(self._positions(self.schema_.public()))]
        return frame.sort_values("importance", ascending=False, kind="stable")


def _leaves_of(trees: Sequence[Tree], table: Table) -> NDArray[np.int64]:
    """Return the leaf of each row in each tree, an array of shape (n_rows, n_trees)."""
    # Walking down the trees is nine times as fast as evaluating the circuit for a few hundred rows.
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
    """Replace equal counts by one: nodes after the same splits have the same count in any tree.

    Shallow forests have few distinct nodes. A prediction then multiplies once per distinct node and
    uses the number of trees with that node as a public weight.
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
    """Return the counts of one class in the leaves of a tree."""
    counts = [count]
    for node, part in enumerate(left):
        counts += [part, sum_of_numbers([counts[node], -part])]
    return counts[len(left) :]


def _leaf_value(tree: Tree, leaves: Sequence[Number], share: Mapping[Split, Expression]) -> Number:
    """Return the value of the leaf that a row reaches.

    ``share`` has for each split an expression that is 1 in rows that go left, else 0.
    """
    values: list[Number] = [*([0] * len(tree)), *leaves]
    for node in range(len(tree) - 1, -1, -1):
        left, right = values[2 * node + 1], values[2 * node + 2]
        values[node] = sum_of_numbers(
            [right, times(sum_of_numbers([left, -right]), share[tree[node]])]
        )
    return values[0]


def _goes_left(split: Split) -> Expression:
    """Return an expression that is 1 in rows that a split sends left, else 0."""
    return sum_of([column(str(Column("onehot", split.variable, k))) for k in split.left])


def _shares(votes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the votes for each class; equal shares for rows without votes."""
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
