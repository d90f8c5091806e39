"""Linear means and Fisher's discriminant (Graepel, Lauter and Naehrig, 2012), from encrypted class sums and second moments."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression, sum_of
from encryptedstats.models.base import TotalsClassifier, class_columns, refuse_impossible
from encryptedstats.models.features import (
    CodedPredictors,
    count_features,
    product_totals,
    solve,
    symmetric,
)
from encryptedstats.models.prediction import (
    Answer,
    Judgement,
    Known,
    class_names,
    count_names,
    sum_of_numbers,
    weighted_sum,
)
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.columns import Column


class LinearMeans(CodedPredictors, TotalsClassifier):
    r"""Every row goes to the class whose mean is nearest: with class means m_c, the score of class c is m_c'x - m_c'm_c / 2.

    Parameters
    ----------
    centred : bool
        Ordinal codes around 0 instead of 1..m.
    bins : int
        Bins of a continuous variable when fitting arrays and DataFrames.

    Attributes
    ----------
    class_counts_ : array of shape (n_classes,)
    means_ : array of shape (n_classes, n_predictors)

    References
    ----------
    Graepel, Lauter and Naehrig (2012), ML Confidential.

    Examples
    --------
    >>> import numpy as np
    >>> from encryptedstats import LinearMeans
    >>> X = np.array([[0], [1], [2], [3]])  # codes -3, -1, 1, 3
    >>> LinearMeans().fit(X, ["low", "low", "high", "high"]).means_
    array([[ 2.],
           [-2.]])
    """

    def __init__(self, centred: bool = True, bins: int = 5) -> None:
        self.centred = centred
        self.bins = bins

    def circuit(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None, fold: int | None = None
    ) -> list[Expression]:
        """Class counts, then the sum of every predictor in every class."""
        classes = class_columns(schema, fold)
        outputs = [y.total() for y in classes]
        for feature in self._features(schema, columns):
            outputs += [(feature.value * y).total() for y in classes]
        return outputs

    def _n_totals(self, schema: PublicSchema) -> int:
        return schema.n_classes * (1 + count_features(schema))

    def _open(self, totals: Sequence[int], schema: PublicSchema) -> None:
        n_classes, k = schema.n_classes, count_features(schema)
        self.class_counts_ = np.array(totals[:n_classes], dtype=np.int64)
        refuse_impossible(bool((self.class_counts_ >= 0).all()), "a class would have fewer than no rows")
        self.means_ = (self._sums(totals, n_classes, k).T / np.maximum(self.class_counts_, 1)).T.astype(float)

    def _sums(self, totals: Sequence[int], n_classes: int, k: int) -> NDArray[Any]:
        return np.array(totals[n_classes : n_classes * (k + 1)], dtype=object).reshape(k, n_classes).T

    # -- predicting without opening ----------------------------------------------------------------------------------------

    def _answers(self, schema: PublicSchema, columns: Sequence[Column], known: Known, output: str) -> list[Answer]:
        """For every class the products of its sums with the row and with themselves, then the class counts."""
        n_classes, found = schema.n_classes, self._features(schema, columns)
        answers = []
        for c in range(n_classes):
            sums = [known.totals[n_classes * (1 + i) + c] for i in range(len(found))]
            along, length = (
                weighted_sum(sums, [feature.value for feature in found]),
                sum_of_numbers([s * s for s in sums]),
            )
            answers += [Answer(along), Answer(length, signed=False)]
        return answers + [Answer(n, signed=False) for n in known.totals[:n_classes]]

    def _n_answers(self, schema: PublicSchema, output: str) -> int:
        return 3 * schema.n_classes

    def _judge(self, values: NDArray[Any], schema: Schema | PublicSchema, output: str) -> Judgement:
        n_classes = schema.public().n_classes
        counts = values[0, -n_classes:].astype(float)
        along, length = values[:, 0 : 2 * n_classes : 2], values[:, 1 : 2 * n_classes : 2]
        scores = (along / np.maximum(counts, 1) - length / (2 * np.maximum(counts, 1) ** 2)).astype(float)
        if counts.any():
            scores[:, counts == 0] = -np.inf
        names = [f"{what} | {label}" for label in class_names(schema) for what in ("x.sum", "sum.sum")]
        return Judgement([*names, *count_names(schema)], values, scores, are_probabilities=False)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of each class; with two classes, that of the second less that of the first."""
        scores = self._scores(self._rows(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


class FisherDiscriminant(LinearMeans):
    r"""Linear means in the metric of the scatter within classes: directions :math:`S^{-1} (m_c - m)`, thresholds half-way.

    The worker computes class sums and all sums of products of two predictors; the owner forms
    :math:`S = (\sum xx' - \sum_c n_c m_c m_c') / N` exactly, and solves. Scores are those of :class:`LinearMeans` seen from the
    mean m of all rows, which changes no decision. A billionth of every predictor's variance is added to the diagonal of S: so
    predictors may be collinear, as the levels of a category are, and one that is constant within classes decides.

    Attributes
    ----------
    class_counts_, means_ : as of :class:`LinearMeans`
    scatter_ : array of shape (n_predictors, n_predictors)
        S.
    directions_ : array of shape (n_classes, n_predictors)

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from encryptedstats import FisherDiscriminant
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> bool(FisherDiscriminant().fit(X, y).score(X, y) > 0.95)
    True
    """

    _RIDGE: ClassVar[float] = 1e-9
    _why_opened: ClassVar[str] = "the scatter matrix has to be inverted, which the owner does: "

    def _answers(self, schema: PublicSchema, columns: Sequence[Column], known: Known, output: str) -> list[Answer]:
        return TotalsClassifier._answers(self, schema, columns, known, output)

    def _n_answers(self, schema: PublicSchema, output: str) -> int:
        return TotalsClassifier._n_answers(self, schema, output)

    def _scores(self, table: Table) -> NDArray[np.float64]:
        half_way = (self.directions_ * (self.means_ - self.origin_)).sum(axis=1) / 2
        scores: NDArray[np.float64] = (self._matrix(table) - self.origin_) @ self.directions_.T - half_way
        if self.class_counts_.any():
            scores[:, self.class_counts_ == 0] = -np.inf  # a class without rows has no mean
        return scores

    def circuit(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None, fold: int | None = None
    ) -> list[Expression]:
        """What linear means needs, then all sums of products of two predictors."""
        outputs = super().circuit(schema, columns, fold)
        everyone = sum_of(class_columns(schema, fold))
        return outputs + product_totals(self._features(schema, columns), everyone)

    def _n_totals(self, schema: PublicSchema) -> int:
        k = count_features(schema)
        return super()._n_totals(schema) + k * (k + 1) // 2

    def _open(self, totals: Sequence[int], schema: PublicSchema) -> None:
        super()._open(totals, schema)
        n_classes, k = schema.n_classes, self.means_.shape[1]
        products, sums = symmetric(totals[n_classes * (k + 1) :], k), self._sums(totals, n_classes, k)
        counts = [max(1, int(count)) for count in self.class_counts_]
        n = max(1, int(self.class_counts_.sum()))
        # In integers, over a common denominator: a difference of large floats would not tell collinear from nearly so.
        common = lcm(*counts)
        within = common * products - sum(common // m * np.outer(s, s) for m, s in zip(counts, sums, strict=True))
        total = n * np.diag(products) - sums.sum(axis=0) ** 2
        refuse_impossible(bool((np.diag(within) >= 0).all()), "a variance would be negative")
        self.scatter_ = (within / (common * n)).astype(float)
        self.origin_ = (sums.sum(axis=0) / n).astype(float)
        ridge = np.diag(self._RIDGE * (total / n**2).astype(float))
        self.directions_ = solve(self.scatter_ + ridge, (self.means_ - self.origin_).T).T
