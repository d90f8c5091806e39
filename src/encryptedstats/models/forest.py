"""Completely random forests (paper, sections 3.1 and 3.2, appendix A)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression, column, sum_of
from encryptedstats.models.base import TotalsClassifier, class_columns, refuse_impossible
from encryptedstats.models.growth import Split, Tree, grow
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.columns import Column

MAX_DEPTH = 6


class CompletelyRandomForest(TotalsClassifier):
    r"""A forest of trees that are grown blindly and then count the rows of every class in every leaf.

    The count of class c in leaf b of tree t is a polynomial in the encrypted indicators,

    .. math:: \rho^t_{bc} = \sum_i y_{ic} \prod_{l=1}^{L} \Big(\sum_{k \in D} x_{i, p, k}\Big)

    with the variable p and the bins D of the split on the way to b at level l. It is computed node by node: what is inside goes
    left times the range sum, and right is the rest, which takes 2^L - 1 products a class and tree.

    Parameters
    ----------
    n_trees : int
    depth : int
        Levels of splits, 1 to 6 (encrypted as far as parameters carry it: see ``es.plan``).
    max_features : int, float or "sqrt", optional
        Each tree draws its variables from so many; a float is a share of them. All by default.
    fraction : int or "inverse"
        How a leaf's counts are weighed by the size of the leaf, p of all rows. 0: not at all. M, a power of two from 2 to 64: by
        the expectation (1 - (1-p)^(M+1)) / p of the paper's stochastic fraction, exactly. "inverse": by 1/p.
    random_state : int, optional
        Seed of the growth: trees are public, so it is no secret. None draws one at every fit.
    bins : int
        Bins of a continuous variable when fitting arrays and DataFrames.

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

    _carried: ClassVar[tuple[str, ...]] = (*TotalsClassifier._carried, "random_state_")

    def __init__(
        self,
        n_trees: int = 100,
        depth: int = 3,
        max_features: int | float | str | None = None,
        fraction: int | str = 0,
        random_state: int | None = 0,
        bins: int = 5,
    ) -> None:
        self.n_trees = n_trees
        self.depth = depth
        self.max_features = max_features
        self.fraction = fraction
        self.random_state = random_state
        self.bins = bins

    # -- growth ----------------------------------------------------------------------------------------------------

    def grow(self, schema: Schema | PublicSchema) -> tuple[Tree, ...]:
        """The trees for a schema: the same for the same seed, everywhere."""
        seed = getattr(self, "random_state_", None) if self.random_state is None else self.random_state
        if seed is None:
            raise ValueError("random_state=None: growth on its own needs a seed, so that a fit can repeat it")
        return self._grown(schema.public(), seed)

    def _grown(self, schema: PublicSchema, seed: int) -> tuple[Tree, ...]:
        self._check_parameters()
        return grow(schema, self.n_trees, self.depth, self._n_features(schema), int(seed))

    def _draw(self) -> None:
        self.random_state_ = secrets.randbelow(1 << 32) if self.random_state is None else self.random_state

    def _growth(self) -> dict[str, Any]:
        seed = self.random_state_ if self.random_state is None else self.random_state
        return {**super()._growth(), "random_state": int(seed)}

    def _n_features(self, schema: PublicSchema) -> int | None:
        n, wish = len(schema.variables), self.max_features
        if wish is None:
            return None
        if wish == "sqrt":
            return max(1, int(n**0.5))
        if isinstance(wish, float) and 0 < wish <= 1:
            return max(1, int(wish * n))
        if isinstance(wish, (int, np.integer)) and not isinstance(wish, bool) and wish >= 1:
            return int(min(n, wish))
        raise ValueError(f"max_features={wish!r}: a number of variables, a share between 0 and 1, 'sqrt' or None")

    def _check_parameters(self) -> None:
        for name, value, most in (("n_trees", self.n_trees, 1 << 20), ("depth", self.depth, MAX_DEPTH)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= most:
                raise ValueError(f"{name}={value!r}: an integer from 1 to {most} is needed")
        seed, fraction = self.random_state, self.fraction
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer))):
            raise ValueError(f"random_state={seed!r}: an integer, or None to draw one")
        if fraction == 0 or fraction == "inverse":
            return
        if not isinstance(fraction, (int, np.integer)) or fraction not in (2, 4, 8, 16, 32, 64):
            raise ValueError(f"fraction={fraction!r}: 0, a power of two from 2 to 64, or 'inverse'")

    # -- the circuit -----------------------------------------------------------------------------------------------

    def circuit(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None, fold: int | None = None
    ) -> list[Expression]:
        """Class totals, then for every tree, node and class what goes left; what goes right is the rest."""
        classes = class_columns(schema, fold)
        outputs = [y.total() for y in classes]
        for tree in self.grow(schema):
            outputs += self._tree_circuit(tree, classes)
        return outputs

    def _tree_circuit(self, tree: Tree, classes: list[Expression]) -> list[Expression]:
        outputs: list[Expression] = []
        inside = [classes]
        for node, split in enumerate(tree):
            share = sum_of([column(str(Column("onehot", split.variable, k))) for k in split.left])
            left = [x * share for x in inside[node]]
            outputs += [x.total() for x in left]
            if 2 * node + 1 < len(tree):
                inside += [left, [x - part for x, part in zip(inside[node], left, strict=True)]]
        return outputs

    def _n_totals(self, schema: PublicSchema) -> int:
        self._check_parameters()
        if self.random_state is None:
            raise ValueError("a forest without its seed")
        n_nodes: int = 2**self.depth - 1
        return schema.n_classes * (1 + self.n_trees * n_nodes)

    # -- the opened forest -----------------------------------------------------------------------------------------

    def _open(self, totals: Sequence[int], schema: PublicSchema) -> None:
        self.trees_ = self._grown(schema, self.random_state_)
        n_classes, n_nodes = schema.n_classes, 2**self.depth - 1
        self.class_counts_ = np.array(totals[:n_classes], dtype=np.int64)
        left = np.array(totals[n_classes:], dtype=np.int64).reshape(self.n_trees, n_nodes, n_classes)
        self.node_counts_ = self._all_counts(left)
        self.leaf_counts_ = self.node_counts_[:, n_nodes:]
        refuse_impossible(bool((self.node_counts_ >= 0).all()), "a node would hold fewer than no rows")

    def _all_counts(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts of every node, leaves last: a right child is its parent less the left one."""
        n_trees, n_nodes, n_classes = left.shape
        counts = np.empty((n_trees, 2 * n_nodes + 1, n_classes), dtype=np.int64)
        counts[:, 0] = self.class_counts_
        for node in range(n_nodes):
            counts[:, 2 * node + 1] = left[:, node]
            counts[:, 2 * node + 2] = counts[:, node] - left[:, node]
        return counts

    def leaf_weights(self) -> NDArray[np.float64]:
        """What the counts of every leaf are multiplied by: the expected stochastic fraction, 1/p, or 1."""
        self._check_open()
        sizes = self.leaf_counts_.sum(axis=2)
        if self.fraction == 0:
            return np.ones(sizes.shape)
        p = sizes / max(1, self.class_counts_.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = 1 / p if self.fraction == "inverse" else (1 - (1 - p) ** (int(self.fraction) + 1)) / p
        return np.where(sizes > 0, weights, 0.0)

    def apply(self, X: Any) -> NDArray[np.int64]:
        """The leaf of each row in each tree, shape (rows, trees)."""
        return self._leaves(self._rows(X))

    def _leaves(self, table: Table) -> NDArray[np.int64]:
        n_nodes = 2**self.depth - 1
        leaves = np.empty((len(table), len(self.trees_)), dtype=np.int64)
        for t, tree in enumerate(self.trees_):
            goes_left = np.stack([_goes_left(split, table) for split in tree])
            node = np.zeros(len(table), dtype=np.int64)
            for _ in range(self.depth):
                node = 2 * node + 2 - goes_left[node, np.arange(len(table))]
            leaves[:, t] = node - n_nodes
        return leaves

    def decision_votes(self, X: Any) -> NDArray[np.float64]:
        """Votes of each class: the counts of the row's leaf in every tree, weighed, added up."""
        return self._votes(self._rows(X))

    def _votes(self, table: Table) -> NDArray[np.float64]:
        weighted = self.leaf_counts_ * self.leaf_weights()[:, :, None]
        leaves = self._leaves(table)
        votes = np.zeros((len(table), weighted.shape[2]))
        for t in range(len(self.trees_)):
            votes += weighted[t, leaves[:, t]]
        return votes

    def _scores(self, table: Table) -> NDArray[np.float64]:
        votes = self._votes(table)
        total = votes.sum(axis=1, keepdims=True)
        # A row that falls into empty leaves only is nobody's neighbour: what is left is how frequent classes are.
        return np.where(total > 0, votes / np.where(total > 0, total, 1), self._prior())

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Share of the votes of each class."""
        return self._scores(self._rows(X))

    def votes(self, X: Any) -> pd.DataFrame:
        """Votes of each class as a DataFrame."""
        return pd.DataFrame(self.decision_votes(X), columns=list(self.classes_))

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


def _goes_left(split: Split, table: Table) -> NDArray[np.bool_]:
    return np.isin(table.data[split.variable], split.left)


def _weighted_gini(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    sizes = counts.sum(axis=2)
    gini: NDArray[np.float64] = sizes - (counts.astype(float) ** 2).sum(axis=2) / np.maximum(sizes, 1)
    return gini
