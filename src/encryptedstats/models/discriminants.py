"""Linear means and Fisher's discriminant (Graepel, Lauter and Naehrig, 2012), from encrypted class sums and second moments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression, sum_of
from encryptedstats.models.base import TotalsClassifier, class_columns, refuse_impossible
from encryptedstats.models.features import Feature, feature_matrix, features
from encryptedstats.tables import PublicSchema, Table
from encryptedstats.tables.columns import Column


class LinearMeans(TotalsClassifier):
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
    """

    def __init__(self, centred: bool = True, bins: int = 5) -> None:
        self.centred = centred
        self.bins = bins

    def _features(self, schema: PublicSchema, columns: Sequence[Column] | None = None) -> list[Feature]:
        return features(schema, columns, centred=self.centred)

    def circuit(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None, fold: int | None = None
    ) -> list[Expression]:
        """Class counts, then the sum of every predictor in every class."""
        classes = class_columns(schema, fold)
        outputs = [y.total() for y in classes]
        for feature in self._features(schema, columns):
            outputs += [(feature.value * y).total() for y in classes]
        return outputs

    def _open(self, totals: Sequence[int], schema: PublicSchema) -> None:
        n_classes, k = schema.n_classes, len(self._features(schema))
        self.class_counts_ = np.array(totals[:n_classes], dtype=np.int64)
        refuse_impossible(bool((self.class_counts_ >= 0).all()), "a class would have fewer than no rows")
        sums = np.array(totals[n_classes : n_classes * (k + 1)], dtype=float).reshape(k, n_classes).T
        self.means_ = sums / np.maximum(self.class_counts_, 1)[:, None]
        self._directions = self.means_

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Score of each class; with two classes, that of the second less that of the first."""
        scores = self._scores(self._rows(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, table: Table) -> NDArray[np.float64]:
        matrix = feature_matrix(self._features(table.public_schema), table, centred=self.centred)
        scores: NDArray[np.float64] = matrix @ self._directions.T - (self._directions * self.means_).sum(axis=1) / 2
        scores[:, self.class_counts_ == 0] = -np.inf  # a class without rows has no mean
        return scores


class FisherDiscriminant(LinearMeans):
    r"""Linear means in the metric of the scatter within classes: directions :math:`S^{-1} m_c`, threshold half-way.

    The worker computes class sums and all sums of products of two predictors; the owner forms
    :math:`S = (\sum xx' - \sum_c n_c m_c m_c') / N` and inverts it (by pseudo-inverse where predictors are collinear, as
    the levels of a category are).

    Attributes
    ----------
    class_counts_, means_ : as of :class:`LinearMeans`
    scatter_ : array of shape (n_predictors, n_predictors)
    """

    def circuit(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None, fold: int | None = None
    ) -> list[Expression]:
        """What linear means needs, then all sums of products of two predictors."""
        outputs = super().circuit(schema, columns, fold)
        everyone = sum_of(class_columns(schema, fold))
        for a, b in combinations_with_replacement(self._features(schema, columns), 2):
            outputs.append((a.square * everyone if a is b else a.value * b.value * everyone).total())
        return outputs

    def _open(self, totals: Sequence[int], schema: PublicSchema) -> None:
        super()._open(totals, schema)
        k = self.means_.shape[1]
        products = np.empty((k, k))
        first = schema.n_classes * (k + 1)
        for (a, b), value in zip(combinations_with_replacement(range(k), 2), totals[first:], strict=True):
            products[a, b] = products[b, a] = value
        refuse_impossible(bool((np.diag(products) >= 0).all()), "a sum of squares would be negative")
        between = (self.means_.T * self.class_counts_) @ self.means_
        self.scatter_ = (products - between) / max(1, int(self.class_counts_.sum()))
        self._directions = self.means_ @ np.linalg.pinv(self.scatter_, hermitian=True)
