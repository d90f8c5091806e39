"""Classifiers from the counts of each class in each pair of bins.

Each count is a sum of products of three columns, and one pass over the rows computes all of them.
The classifiers learn from the decrypted counts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import Expression
from encryptedstats.models._sklearn import log_sum_exp
from encryptedstats.models.naive_bayes import BinCountClassifier, normalise_scores
from encryptedstats.models.prediction import (
    Votes,
    class_names,
    count_names,
    sum_of_numbers,
    times,
    variable_names,
    votes_of,
    weighted_sum,
)
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.questions.constraints import ALPHA, Constraints, Integer
from encryptedstats.tables.questions.pair_counts import (
    complete_pairs,
    count_pair_totals,
    fill_pairs,
    pair_arrays,
    pair_shapes,
    subtract_each,
)
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    ModelTotals,
    Number,
    RowAnswer,
    Shapes,
    Totals,
    bin_columns,
    class_columns,
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def mutual_information(counts: NDArray[Any]) -> float:
    """Return the mutual information of two variables, in nats, from the counts of their bins.

    With a third axis, return the conditional mutual information given the levels of that axis.

    >>> round(mutual_information(np.array([[2, 0], [0, 2]])), 4)
    0.6931
    """
    total = counts.sum()
    if not total:
        return 0.0
    joint = counts.reshape(*counts.shape[:2], -1) / total
    expected = joint.sum(axis=0, keepdims=True) * joint.sum(axis=1, keepdims=True)
    expected = expected / np.maximum(joint.sum(axis=(0, 1)), np.finfo(float).tiny)
    used = joint > 0
    return float(max(0.0, (joint[used] * np.log(joint[used] / expected[used])).sum()))


def strongest_tree(strengths: Floats) -> list[tuple[int, int]]:
    """Return the edges (parent, child) of the spanning tree with the largest sum of strengths.

    Its root is the first node, and parents come before their children (Chow and Liu, 1968).
    """
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    if len(strengths) < 2:
        return []
    # SciPy takes a weight of 0 for no edge, so all weights are made positive.
    weights = np.triu(strengths.max() + 1.0 - strengths, 1)
    tree = minimum_spanning_tree(weights)
    order, parents = breadth_first_order(tree, 0, directed=False)
    return [(int(parents[node]), int(node)) for node in order[1:]]


# -- base class ------------------------------------------------------------------------------------


class PairClassifier(BinCountClassifier):
    """Base class of classifiers that are fitted to the counts of all pairs of bins."""

    def pair_positions(self, schema: PublicSchema) -> list[int]:
        """Return the positions of the variables that are paired."""
        return self._positions(schema)

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        bins = [bin_columns(schema, j) for j in self._positions(schema)]
        return pair_arrays(bins, class_columns(schema, fold))

    def count_rows(self, table: Table, fold: int | None = None) -> Arrays | None:
        """Count the totals of a clear table without a circuit."""
        return count_pair_totals(table, self._positions(table.public_schema), fold)

    def shapes(self, schema: PublicSchema) -> Shapes:
        return pair_shapes(self._bins(schema), schema.n_classes)

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        super().learn(totals, schema)
        self.pair_counts_ = complete_pairs(self.bin_counts_, totals["pairs"].astype(np.int64))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class."""
        return self._by_row(X, self.scores)

    def scores(self, table: Table) -> Floats:
        codes = [table.data[j] for j in self._positions(table.public_schema)]
        return self._probabilities(_Looked(self, codes))

    @abstractmethod
    def _probabilities(self, rows: _Looked | _Answered) -> Floats: ...


class _Looked:
    """The counts of a decrypted model that belong to the bins of some rows."""

    def __init__(self, model: PairClassifier, codes: Sequence[NDArray[np.int64]]) -> None:
        self._model, self._codes = model, codes
        self._places = {pair: at for at, pair in enumerate(combinations(range(len(codes)), 2))}
        self.class_counts: Floats = model.class_counts_.astype(float)
        self.n_bins = [len(counts) for counts in model.bin_counts_]
        self.n_rows = len(codes[0])

    def of(self, i: int) -> Floats:
        """Return the number of rows of each class in the bin of variable i, by row."""
        found: Floats = self._model.bin_counts_[i][self._codes[i]].astype(float)
        return found

    def of_pair(self, i: int, j: int) -> Floats:
        """Return the number of rows of each class in the bins of both variables, by row."""
        i, j = min(i, j), max(i, j)
        counts = self._model.pair_counts_[self._places[i, j]]
        found: Floats = counts[self._codes[i], self._codes[j]].astype(float)
        return found


class _Answered:
    """The same counts, from the decrypted answers of an encrypted prediction."""

    def __init__(self, answers: Totals, n_bins: Sequence[int]) -> None:
        self._bins = answers["bins"].astype(float)
        self._pairs = answers["pairs"].astype(float)
        pairs = combinations(range(len(n_bins)), 2)
        self._places = {pair: at for at, pair in enumerate(pairs)}
        self.class_counts: Floats = answers["class_counts"][0].astype(float)
        self.n_bins = list(n_bins)
        self.n_rows = len(self._bins)

    def of(self, i: int) -> Floats:
        found: Floats = self._bins[:, :, i]
        return found

    def of_pair(self, i: int, j: int) -> Floats:
        found: Floats = self._pairs[:, :, self._places[min(i, j), max(i, j)]]
        return found


# -- averaged one-dependence estimators ------------------------------------------------------------


class AODE(PairClassifier):
    r"""Fit averaged one-dependence estimators, which relax the independence of naive Bayes.

    The probabilities are averages of models in which all variables depend on the class and on one
    variable i,

    .. math:: P(c, x) \propto \sum_i P(c, x_i) \prod_{j \ne i} P(x_j \mid c, x_i)

    over the variables i whose bin of the row has at least ``min_rows`` rows. If there is none, the
    probabilities are those of naive Bayes.

    Parameters
    ----------
    alpha : float
        Laplace smoothing.
    min_rows : int
        Number of rows that a bin needs for its variable to be conditioned on.
    bins : int
        Number of bins of a continuous variable, for fits to arrays and DataFrames.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    class_counts_ : array of shape (n_classes,)
    bin_counts_ : list of arrays of shape (n_bins, n_classes)
        One for every predictor.
    pair_counts_ : list of arrays of shape (n_bins, n_other_bins, n_classes)
        One for every pair of predictors, in the order of ``itertools.combinations``.

    References
    ----------
    Webb, Boughton and Wang (2005), "Not so naive Bayes: aggregating one-dependence estimators".

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.metrics import roc_auc_score
    >>> from encryptedstats import AODE
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = AODE().fit(X[:, :6], y)
    >>> bool(roc_auc_score(y, model.predict_proba(X[:, :6])[:, 1]) > 0.97)
    True
    """

    title: ClassVar[str] = "Averaged one-dependence estimators"
    short_name: ClassVar[str] = "aode"
    constraints: ClassVar[Constraints] = {"alpha": ALPHA, "min_rows": Integer(low=1)}

    def __init__(
        self,
        alpha: float = 1.0,
        min_rows: int = 30,
        bins: int = 5,
        variables: Sequence[str | int] | None = None,
    ) -> None:
        self.alpha = alpha
        self.min_rows = min_rows
        self.bins = bins
        self.variables = variables

    def _probabilities(self, rows: _Looked | _Answered) -> Floats:
        n_bins, alpha, n_classes = rows.n_bins, float(self.alpha), len(rows.class_counts)
        total = rows.class_counts.sum()
        terms = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for i, n in enumerate(n_bins):
                counts = rows.of(i)
                joint = np.log((counts + alpha) / (total + alpha * n_classes * n))
                for j, m in enumerate(n_bins):
                    if j != i:
                        joint += np.log((rows.of_pair(i, j) + alpha) / (counts + alpha * m))
                enough = counts.sum(axis=1, keepdims=True) >= self.min_rows
                terms.append(np.where(enough & ~np.isnan(joint), joint, -np.inf))
            log_joint = log_sum_exp(terms, axis=0)
        alone = ~np.isfinite(log_joint).any(axis=1)
        if alone.any():
            log_joint[alone] = _naive(rows, alpha)[alone]
        return normalise_scores(log_joint, rows.class_counts)

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = ""
    ) -> Arrays:
        """Write, for every row and class, the counts of its bins and of the pairs of these."""
        n_bins = self._bins(schema)
        indicators = [bin_columns(schema, j) for j in self._positions(schema)]
        of_class = partial(_class_answers, n_bins, indicators, known)
        found = [of_class(c) for c in range(schema.n_classes)]
        return {
            "bins": [singles for singles, _ in found],
            "pairs": [pairs for _, pairs in found],
            "class_counts": [RowAnswer(n, signed=False) for n in known["class_counts"]],
        }

    def answer_shapes(self, schema: PublicSchema, output: str = "") -> Shapes:
        n, n_classes = len(self._positions(schema)), schema.n_classes
        return {
            "bins": (n_classes, n),
            "pairs": (n_classes, n * (n - 1) // 2),
            "class_counts": (n_classes,),
        }

    def judge(self, answers: Totals, schema: Schema | PublicSchema, output: str = "") -> Votes:
        public = schema.public()
        every = variable_names(schema)
        used = [every[j] for j in self._positions(public)]
        kinds = [*used, *(f"{one}, {other}" for one, other in combinations(used, 2))]
        labels = class_names(schema)
        singles = [f"{name} | {label}" for label in labels for name in kinds[: len(used)]]
        pairs = [f"{name} | {label}" for label in labels for name in kinds[len(used) :]]
        scores = self._probabilities(_Answered(answers, self._bins(public)))
        return votes_of(answers, [*singles, *pairs, *count_names(schema)], scores, schema)


def _class_answers(
    n_bins: Sequence[int], indicators: Sequence[Sequence[Expression]], known: ModelTotals, c: int
) -> tuple[list[RowAnswer], list[RowAnswer]]:
    """Return the counts of class c that share the bin of a row, and both bins of each pair."""
    largest = Interval(0, known.highest("class_counts"))
    bins = np.split(known["bins"][:, c], np.cumsum(n_bins)[:-1])
    tables = fill_pairs(bins, known["pairs"][:, c], partial(subtract_each, less=_less))
    singles = [
        RowAnswer(weighted_sum(list(counts), x), largest, signed=False)
        for counts, x in zip(bins, indicators, strict=True)
    ]
    pairs = []
    for table, (x, z) in zip(tables, combinations(indicators, 2), strict=True):
        terms = [
            times(n, a * b)
            for row, a in zip(table, x, strict=True)
            for n, b in zip(row, z, strict=True)
        ]
        pairs.append(RowAnswer(sum_of_numbers(terms), largest, signed=False))
    return singles, pairs


def _less(whole: Number, parts: Sequence[Number]) -> Number:
    return sum_of_numbers([whole, *(-part for part in parts)])


def _naive(rows: _Looked | _Answered, alpha: float) -> Floats:
    """Return the logarithms of the joint probabilities of naive Bayes."""
    with np.errstate(divide="ignore"):
        joint = np.tile(np.log(rows.class_counts), (rows.n_rows, 1))
        for i, n in enumerate(rows.n_bins):
            joint += np.log((rows.of(i) + alpha) / (rows.class_counts + alpha * n))
    return joint


# -- tree-augmented naive Bayes --------------------------------------------------------------------


class TAN(PairClassifier):
    r"""Fit tree-augmented naive Bayes: each variable depends on the class and on one other
    variable.

    These dependences form the tree with the largest sum of mutual information given the class,

    .. math:: P(c, x) = P(c) \, P(x_r \mid c) \prod_{j \ne r} P(x_j \mid x_{p(j)}, c)

    with the first predictor as the root r and p(j) the parent of j.

    Parameters
    ----------
    alpha : float
        Laplace smoothing.
    bins : int
        Number of bins of a continuous variable, for fits to arrays and DataFrames.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    edges_ : list of (int, int)
        The tree: parent and child, as positions among the predictors.
    class_counts_, bin_counts_, pair_counts_
        See :class:`AODE`.

    References
    ----------
    Friedman, Geiger and Goldszmidt (1997), "Bayesian network classifiers".
    """

    title: ClassVar[str] = "Tree-augmented naive Bayes"
    short_name: ClassVar[str] = "tan"
    why_opened: ClassVar[str] = "its tree is found from the decrypted counts"
    constraints: ClassVar[Constraints] = {"alpha": ALPHA}

    def __init__(
        self,
        alpha: float = 1.0,
        bins: int = 5,
        variables: Sequence[str | int] | None = None,
    ) -> None:
        self.alpha = alpha
        self.bins = bins
        self.variables = variables

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        super().learn(totals, schema)
        n = len(self.bin_counts_)
        strengths = np.zeros((n, n))
        for (i, j), counts in zip(combinations(range(n), 2), self.pair_counts_, strict=True):
            strengths[i, j] = strengths[j, i] = mutual_information(counts)
        self.edges_ = strongest_tree(strengths)

    def tabulate(self) -> pd.DataFrame:
        """Return each variable with its parent in the tree and their mutual information."""
        names, positions = variable_names(self.schema_), self._positions(self.schema_.public())
        used = [names[j] for j in positions]
        places = {pair: at for at, pair in enumerate(combinations(range(len(used)), 2))}
        rows = [
            (
                used[child],
                used[parent],
                mutual_information(
                    self.pair_counts_[places[min(parent, child), max(parent, child)]]
                ),
            )
            for parent, child in self.edges_
        ]
        frame = pd.DataFrame(rows, columns=["variable", "parent", "mutual_information"])
        return frame.set_index("variable")

    def _probabilities(self, rows: _Looked | _Answered) -> Floats:
        alpha, classes = float(self.alpha), rows.class_counts
        with np.errstate(divide="ignore", invalid="ignore"):
            joint = np.log(classes) + np.log(
                (rows.of(0) + alpha) / (classes + alpha * rows.n_bins[0])
            )
            for parent, child in self.edges_:
                joint += np.log(
                    (rows.of_pair(parent, child) + alpha)
                    / (rows.of(parent) + alpha * rows.n_bins[child])
                )
        return normalise_scores(np.where(np.isnan(joint), -np.inf, joint), classes)
