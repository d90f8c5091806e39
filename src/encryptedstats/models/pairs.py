"""Classifiers from the rows of each class in each pair of bins, all counted in one pass.

A count of a pair is the sum of a product of three columns. What the classifiers make of the counts
happens after they are opened.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import logsumexp

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import Expression
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
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Known,
    Number,
    RowAnswer,
    Shapes,
    Totals,
    bin_columns,
    class_columns,
    refuse_impossible,
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


# -- counting pairs -------------------------------------------------------------------------------


def pair_totals(
    bins: Sequence[Sequence[Expression]], classes: Sequence[Expression]
) -> list[list[Expression]]:
    """Return the totals of all pairs of bins of two variables, by class.

    Every row is in one bin of each variable, so the last bin of a variable is what is left: its
    pairs are not asked for, and :func:`complete_pairs` subtracts.
    """
    return [
        [(inside * y).total() for y in classes]
        for one, other in combinations(bins, 2)
        for inside in (a * b for a in one[:-1] for b in other[:-1])
    ]


def count_pairs(n_bins: Sequence[int]) -> int:
    """Return how many totals :func:`pair_totals` gives for each class."""
    return sum((one - 1) * (other - 1) for one, other in combinations(n_bins, 2))


def pair_arrays(bins: Sequence[Sequence[Expression]], classes: Sequence[Expression]) -> Arrays:
    """Return the totals of every class, of every bin, and of every pair of bins, by name."""
    return {
        "class_counts": [y.total() for y in classes],
        "bins": [[(x * y).total() for y in classes] for found in bins for x in found],
        "pairs": pair_totals(bins, classes),
    }


def pair_shapes(n_bins: Sequence[int], n_classes: int) -> Shapes:
    """Return the shapes of :func:`pair_arrays`."""
    return {
        "class_counts": (n_classes,),
        "bins": (sum(n_bins), n_classes),
        "pairs": (count_pairs(n_bins), n_classes),
    }


def complete_pairs(bins: Sequence[Counts], pairs: Counts) -> list[Counts]:
    """Return the counts of every pair of variables, of shape (bins, other bins, classes).

    Raises
    ------
    ImpossibleTotalsError
        If a count is negative, as of an altered result.
    """
    ends = np.cumsum([0, *(_inner_size(a, b) for a, b in combinations(bins, 2))])
    found = []
    for (one, other), (start, end) in zip(combinations(bins, 2), pairwise(ends), strict=True):
        n_classes = one.shape[1]
        counts = np.empty((len(one), len(other), n_classes), dtype=np.int64)
        counts[:-1, :-1] = pairs[start:end].reshape(len(one) - 1, len(other) - 1, n_classes)
        counts[:-1, -1] = one[:-1] - counts[:-1, :-1].sum(axis=1)
        counts[-1] = other - counts[:-1].sum(axis=0)
        refuse_impossible(bool((counts >= 0).all()), "a pair of bins would hold fewer than no rows")
        found.append(counts)
    return found


def mutual_information(counts: NDArray[Any]) -> float:
    """Return the mutual information of two variables, in nats, from the rows of their bins.

    A third axis is conditioned on: the result is the expectation of the mutual information in its
    levels.

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
    if len(strengths) < 2:
        return []
    # A weight of 0 is no edge for SciPy: every strength gets the same positive constant.
    weights = np.triu(strengths.max() + 1.0 - strengths, 1)
    tree = minimum_spanning_tree(weights)
    order, parents = breadth_first_order(tree, 0, directed=False)
    return [(int(parents[node]), int(node)) for node in order[1:]]


def _inner_size(one: Counts, other: Counts) -> int:
    return (len(one) - 1) * (len(other) - 1)


# -- what the classifiers share -------------------------------------------------------------------


class PairClassifier(BinCountClassifier):
    """A classifier that is fitted by the counts of all pairs of bins."""

    def pair_positions(self, schema: PublicSchema) -> list[int]:
        """Return the positions of the variables that are paired."""
        return self._positions(schema)

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every class, in every bin, and in every pair of bins."""
        bins = [bin_columns(schema, j) for j in self._positions(schema)]
        return pair_arrays(bins, class_columns(schema, fold))

    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of the totals."""
        return pair_shapes(self._bins(schema), schema.n_classes)

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set the counts, refusing those that no rows can have."""
        super().learn(totals, schema)
        self.pair_counts_ = complete_pairs(self.bin_counts_, totals["pairs"].astype(np.int64))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class."""
        return self._by_row(X, self.scores)

    def scores(self, table: Table) -> Floats:
        """Return class probabilities of the rows of a table."""
        codes = [table.data[j] for j in self._positions(table.public_schema)]
        return self._probabilities(_Looked(self, codes))

    @abstractmethod
    def _probabilities(self, rows: _Looked | _Answered) -> Floats: ...


class _Looked:
    """The counts that the bins of some rows select in an opened model."""

    def __init__(self, model: PairClassifier, codes: Sequence[NDArray[np.int64]]) -> None:
        self._model, self._codes = model, codes
        self._places = {pair: at for at, pair in enumerate(combinations(range(len(codes)), 2))}
        self.class_counts: Floats = model.class_counts_.astype(float)
        self.n_bins = [len(counts) for counts in model.bin_counts_]
        self.n_rows = len(codes[0])

    def of(self, i: int) -> Floats:
        """Return the rows of each class in the bin of variable i, of shape (rows, classes)."""
        found: Floats = self._model.bin_counts_[i][self._codes[i]].astype(float)
        return found

    def of_pair(self, i: int, j: int) -> Floats:
        """Return the rows of each class in the bins of both variables."""
        i, j = min(i, j), max(i, j)
        counts = self._model.pair_counts_[self._places[i, j]]
        found: Floats = counts[self._codes[i], self._codes[j]].astype(float)
        return found


class _Answered:
    """The same counts, from the answers of an encrypted prediction."""

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


# -- averaged one-dependence estimators -----------------------------------------------------------


class AODE(PairClassifier):
    r"""Averaged one-dependence estimators: naive Bayes in which every variable in turn explains the
    others.

    .. math:: P(c, x) \propto \sum_i P(c, x_i) \prod_{j \ne i} P(x_j \mid c, x_i)

    over the variables i whose bin of the row holds at least ``min_rows`` rows; where none does, it
    is naive Bayes.

    Parameters
    ----------
    alpha : float
        Laplace smoothing.
    min_rows : int
        Rows that a bin must hold for its variable to explain the others.
    bins : int
        Bins of a continuous variable when fitting arrays and DataFrames.
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
            log_joint = logsumexp(terms, axis=0)
        alone = ~np.isfinite(log_joint).any(axis=1)
        if alone.any():
            log_joint[alone] = _naive(rows, alpha)[alone]
        return normalise_scores(log_joint, rows.class_counts)

    def answers(
        self, schema: PublicSchema, columns: Columns, known: Known, output: str = ""
    ) -> Arrays:
        """Return, for every row and class, the counts of its bins and of their pairs."""
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
        """Return the shapes of the answers."""
        n, n_classes = len(self._positions(schema)), schema.n_classes
        return {
            "bins": (n_classes, n),
            "pairs": (n_classes, n * (n - 1) // 2),
            "class_counts": (n_classes,),
        }

    def judge(self, answers: Totals, schema: Schema | PublicSchema, output: str = "") -> Votes:
        """Return the probabilities that follow from decrypted answers."""
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
    n_bins: Sequence[int], indicators: Sequence[Sequence[Expression]], known: Known, c: int
) -> tuple[list[RowAnswer], list[RowAnswer]]:
    """Return how many rows of class c share the bin, and both bins of each pair, of a row."""
    largest = Interval(0, known.highest("class_counts"))
    bins = np.split(known["bins"][:, c], np.cumsum(n_bins)[:-1])
    inner = iter(known["pairs"][:, c])
    singles = [
        RowAnswer(weighted_sum(list(counts), x), largest, signed=False)
        for counts, x in zip(bins, indicators, strict=True)
    ]
    pairs = []
    for (one, x), (other, z) in combinations(list(zip(bins, indicators, strict=True)), 2):
        counts = [[next(inner) for _ in other[:-1]] for _ in one[:-1]]
        rows = [[*row, _less(n, row)] for n, row in zip(one, counts, strict=False)]
        rows.append([_less(n, [row[k] for row in rows]) for k, n in enumerate(other)])
        terms = [
            times(n, a * b)
            for row, a in zip(rows, x, strict=True)
            for n, b in zip(row, z, strict=True)
        ]
        pairs.append(RowAnswer(sum_of_numbers(terms), largest, signed=False))
    return singles, pairs


def _less(whole: Number, parts: Sequence[Number]) -> Number:
    return sum_of_numbers([whole, *(-part for part in parts)])


def _naive(rows: _Looked | _Answered, alpha: float) -> Floats:
    """Return the logarithms of naive Bayes' joint probabilities."""
    with np.errstate(divide="ignore"):
        joint = np.tile(np.log(rows.class_counts), (rows.n_rows, 1))
        for i, n in enumerate(rows.n_bins):
            joint += np.log((rows.of(i) + alpha) / (rows.class_counts + alpha * n))
    return joint


# -- tree-augmented naive Bayes -------------------------------------------------------------------


class TAN(PairClassifier):
    r"""Tree-augmented naive Bayes: each variable is explained by the class and by one other.

    The tree of variables maximises the sum of their mutual information given the class,

    .. math:: P(c, x) = P(c) \, P(x_r \mid c) \prod_{j \ne r} P(x_j \mid x_{p(j)}, c)

    with the first predictor as the root r and p(j) the parent of j.

    Parameters
    ----------
    alpha : float
        Laplace smoothing.
    bins : int
        Bins of a continuous variable when fitting arrays and DataFrames.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    edges_ : list of (int, int)
        The tree: parent and child, by their place among the predictors.
    class_counts_, bin_counts_, pair_counts_
        As of :class:`AODE`.

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
        """Set the counts and find the tree."""
        super().learn(totals, schema)
        n = len(self.bin_counts_)
        strengths = np.zeros((n, n))
        for (i, j), counts in zip(combinations(range(n), 2), self.pair_counts_, strict=True):
            strengths[i, j] = strengths[j, i] = mutual_information(counts)
        self.edges_ = strongest_tree(strengths)

    def learned(self) -> pd.DataFrame:
        """Return the tree: each variable with its parent, and what they tell of each other."""
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
