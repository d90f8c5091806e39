"""Linear means and Fisher's discriminant, from encrypted class sums and second moments.

Both follow Graepel, Lauter and Naehrig (2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import sum_of
from encryptedstats.models.base import TotalsClassifier
from encryptedstats.models.features import (
    CodedPredictors,
    product_totals,
    solve,
    symmetric,
)
from encryptedstats.models.prediction import (
    Votes,
    class_names,
    count_names,
    predictor_index,
    sum_of_numbers,
    votes_of,
    weighted_sum,
)
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    ModelTotals,
    RowAnswer,
    Shapes,
    Totals,
    class_columns,
    refuse_impossible,
)


class LinearMeans(CodedPredictors, TotalsClassifier):
    r"""Assign each row to the class with the nearest mean.

    With class means :math:`m_c`, the score of class c is :math:`m_c'x - m_c'm_c / 2`.

    Parameters
    ----------
    centred : bool
        Whether the codes of bins are centred around 0 instead of running from 1 to m.
    bins : int
        Number of bins of a continuous variable, for fits to arrays and DataFrames.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

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

    title: ClassVar[str] = "Nearest class mean"
    short_name: ClassVar[str] = "means"

    def __init__(
        self,
        centred: bool = True,
        bins: int = 5,
        variables: Sequence[str | int] | None = None,
    ) -> None:
        self.centred = centred
        self.bins = bins
        self.variables = variables

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        classes = class_columns(schema, fold)
        sums = [
            [(feature.value * y).total() for y in classes]
            for feature in self._features(schema, columns)
        ]
        return {"class_counts": [y.total() for y in classes], "sums": sums}

    def shapes(self, schema: PublicSchema) -> Shapes:
        return {
            "class_counts": (schema.n_classes,),
            "sums": (self._count_features(schema), schema.n_classes),
        }

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        self.class_counts_ = totals["class_counts"].astype(np.int64)
        refuse_impossible(
            bool((self.class_counts_ >= 0).all()), "a class would have a negative number of rows"
        )
        self.means_ = (totals["sums"] / np.maximum(self.class_counts_, 1)).T.astype(float)

    def tabulate(self) -> pd.DataFrame:
        return self._by_class("mean", self.means_)

    def _by_class(self, what: str, found: NDArray[np.float64]) -> pd.DataFrame:
        index = predictor_index(self._features(self.schema_.public()), self.schema_)
        return pd.DataFrame(found.T, index, [f"{what} {label}" for label in self.classes_])

    # -- encrypted predictions ---------------------------------------------------------------------

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = ""
    ) -> Arrays:
        # For each class the product of its sums with the row, and with themselves.
        found = [feature.value for feature in self._features(schema, columns)]
        products = []
        for sums in known["sums"].T:
            length = sum_of_numbers([s * s for s in sums])
            products.append(
                [RowAnswer(weighted_sum(list(sums), found)), RowAnswer(length, signed=False)]
            )
        return {
            "products": products,
            "class_counts": [RowAnswer(n, signed=False) for n in known["class_counts"]],
        }

    def answer_shapes(self, schema: PublicSchema, output: str = "") -> Shapes:
        return {"products": (schema.n_classes, 2), "class_counts": (schema.n_classes,)}

    def judge(self, answers: Totals, schema: Schema | PublicSchema, output: str = "") -> Votes:
        counts = answers["class_counts"][0].astype(float)
        along, length = answers["products"][:, :, 0], answers["products"][:, :, 1]
        scores = (along / np.maximum(counts, 1) - length / (2 * np.maximum(counts, 1) ** 2)).astype(
            float
        )
        if counts.any():
            scores[:, counts == 0] = -np.inf
        names = [
            f"{what} | {label}" for label in class_names(schema) for what in ("x.sum", "sum.sum")
        ]
        return votes_of(
            answers, [*names, *count_names(schema)], scores, schema, are_probabilities=False
        )

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class.

        With two classes, return the score of the second minus that of the first.
        """
        scores = self._by_row(X, self.scores)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


class FisherDiscriminant(LinearMeans):
    r"""Assign each row to the class with the nearest mean, in the metric of the scatter in classes.

    The directions are :math:`S^{-1} (m_c - m)`, and the thresholds lie half-way. The worker
    computes class sums and all sums of products of two predictors; the owner computes
    :math:`S = (\sum xx' - \sum_c n_c m_c m_c') / N` exactly, and solves. Scores are those of
    :class:`LinearMeans` with the mean m of all rows as the origin, which changes no decision. A
    billionth of every predictor's variance is added to the diagonal of S: predictors may then be
    collinear, as the levels of a category are, and a predictor that is constant within classes
    decides.

    Attributes
    ----------
    class_counts_, means_
        See :class:`LinearMeans`.
    scatter_ : array of shape (n_predictors, n_predictors)
        The matrix S.
    directions_ : array of shape (n_classes, n_predictors)

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from encryptedstats import FisherDiscriminant
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> bool(FisherDiscriminant().fit(X, y).score(X, y) > 0.95)
    True
    """

    title: ClassVar[str] = "Fisher's linear discriminant"
    _RIDGE: ClassVar[float] = 1e-9
    short_name: ClassVar[str] = "fisher"
    why_opened: ClassVar[str] = "the owner has to invert the scatter matrix: "

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = ""
    ) -> Arrays:
        raise self._cannot_predict()

    def answer_shapes(self, schema: PublicSchema, output: str = "") -> Shapes:
        raise self._cannot_predict()

    def tabulate(self) -> pd.DataFrame:
        return self._by_class("direction", self.directions_)

    def scores(self, table: Table) -> NDArray[np.float64]:
        half_way = (self.directions_ * (self.means_ - self.origin_)).sum(axis=1) / 2
        scores: NDArray[np.float64] = (
            self._matrix(table) - self.origin_
        ) @ self.directions_.T - half_way
        if self.class_counts_.any():
            scores[:, self.class_counts_ == 0] = -np.inf  # a class without rows has no mean
        return scores

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        everyone = sum_of(class_columns(schema, fold))
        products = product_totals(self._features(schema, columns), everyone)
        return {**super().totals(schema, columns, fold), "products": products}

    def shapes(self, schema: PublicSchema) -> Shapes:
        k = self._count_features(schema)
        return {**super().shapes(schema), "products": (k * (k + 1) // 2,)}

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        super().learn(totals, schema)
        products, sums = symmetric(totals["products"], self.means_.shape[1]), totals["sums"].T
        counts = [max(1, int(count)) for count in self.class_counts_]
        n = max(1, int(self.class_counts_.sum()))
        # Integers over a common denominator: a difference of large floats could not distinguish
        # collinear predictors from nearly collinear ones.
        common = lcm(*counts)
        within = common * products - sum(
            common // m * np.outer(s, s) for m, s in zip(counts, sums, strict=True)
        )
        total = n * np.diag(products) - sums.sum(axis=0) ** 2
        refuse_impossible(bool((np.diag(within) >= 0).all()), "a variance would be negative")
        self.scatter_ = (within / (common * n)).astype(float)
        self.origin_ = (sums.sum(axis=0) / n).astype(float)
        ridge = np.diag(self._RIDGE * (total / n**2).astype(float))
        self.directions_ = solve(self.scatter_ + ridge, (self.means_ - self.origin_).T).T
