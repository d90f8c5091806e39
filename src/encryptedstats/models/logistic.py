"""Logistic regression by one step of iteratively reweighted least squares (paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import sum_of
from encryptedstats.models._sklearn import logistic
from encryptedstats.models.base import TotalsClassifier
from encryptedstats.models.features import (
    CodedPredictors,
    product_totals,
    solve,
    symmetric,
)
from encryptedstats.models.prediction import (
    LineEstimate,
    Votes,
    count_names,
    feature_labels,
    line_of,
    predictor_index,
    votes_of,
)
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.answers.predictions import predict_clear
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


class OneStepLogisticRegression(CodedPredictors, TotalsClassifier):
    r"""Fit a logistic regression by one step of Newton's method from coefficients 0.

    At 0 all weights are 1/4 and the working response is z = 4y - 2, so the step is least squares,
    :math:`\beta = (X'X)^{-1} X'z`. The worker computes the integer matrices X'X and X'z, and the
    owner solves. With one predictor this is the paired estimator of the paper; with
    ``fit_intercept=False`` it is the unpaired one, whose expectation for a binary predictor is
    -2 + 4 / (1 + exp(-beta)) (eq. 1step_bias): coefficients are shrunk and at most 2 in size.

    Parameters
    ----------
    fit_intercept : bool
        Whether to fit an intercept.
    centred : bool
        Whether the codes of bins are centred around 0 instead of running from 1 to m.
    bins : int
        Number of bins of a continuous variable, for fits to arrays and DataFrames.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    coef_ : array of shape (1, n_predictors)
    intercept_ : array of shape (1,)
    gram_, moment_ : arrays of int
        X'X (with a first row and column for the intercept) and X'z.

    References
    ----------
    Aslett, Esperança and Holmes (2015), section 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> from encryptedstats import OneStepLogisticRegression
    >>> X = np.array([[0], [0], [0], [1], [1], [1]])  # codes -1 and 1
    >>> model = OneStepLogisticRegression().fit(X, [0, 0, 1, 0, 1, 1])
    >>> model.coef_.round(3), model.intercept_.round(3)
    (array([[0.667]]), array([0.]))
    """

    title: ClassVar[str] = "Logistic regression, one step"
    short_name: ClassVar[str] = "logistic"
    binary_only: ClassVar[bool] = True

    def __init__(
        self,
        fit_intercept: bool = True,
        centred: bool = True,
        bins: int = 5,
        variables: Sequence[str | int] | None = None,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.centred = centred
        self.bins = bins
        self.variables = variables

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        classes, found = class_columns(schema, fold), self._features(schema, columns)
        everyone = sum_of(classes)  # 1, or the weight, in every row that counts
        return {
            "class_counts": [y.total() for y in classes],
            "sums": [[(feature.value * y).total() for y in classes] for feature in found],
            "products": product_totals(found, everyone),
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        k = self._count_features(schema)
        return {
            "class_counts": (schema.n_classes,),
            "sums": (k, schema.n_classes),
            "products": (k * (k + 1) // 2,),
        }

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        n0, n1 = totals["class_counts"]
        refuse_impossible(n0 >= 0 and n1 >= 0, "a class would have a negative number of rows")
        self.class_counts_ = np.array([n0, n1], dtype=np.int64)
        sums = totals["sums"]
        n, sum_x, sum_xx = n0 + n1, sums.sum(axis=1), symmetric(totals["products"], len(sums))
        sum_z, sum_xz = 2 * (n1 - n0), 2 * (sums[:, 1] - sums[:, 0])
        self.gram_ = np.block(
            [[np.array([[n]], dtype=object), sum_x[None, :]], [sum_x[:, None], sum_xx]]
        )
        self.moment_ = np.array([sum_z, *sum_xz], dtype=object)
        # d and b of the paper for several predictors: eliminating the intercept is exact in
        # integers.
        d, b = n * sum_xx - np.outer(sum_x, sum_x), n * sum_xz - sum_x * sum_z
        refuse_impossible(bool((np.diag(d) >= 0).all()), "a variance would be negative")
        coefficients = solve(d, b) if self.fit_intercept else solve(sum_xx, sum_xz)
        self.coef_ = coefficients[None, :]
        self.intercept_ = np.array(
            [(sum_z - sum_x @ coefficients) / max(1, n) if self.fit_intercept else 0.0]
        )

    def tabulate(self) -> pd.DataFrame:
        index = predictor_index(self._features(self.schema_.public()), self.schema_)
        frame = pd.DataFrame({"estimate": self.coef_[0]}, index)
        first = pd.DataFrame(
            {"estimate": self.intercept_}, pd.Index(["(Intercept)"], name=index.name)
        )
        return pd.concat([first, frame]) if self.fit_intercept else frame

    # -- encrypted predictions ---------------------------------------------------------------------

    why_opened: ClassVar[str] = "with several predictors the owner has to invert a matrix: "

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = ""
    ) -> Arrays:
        """Write e and d of the only predictor, whose ratio is the log-odds, and the
        class counts.
        """
        found = self._features(schema, columns)
        if len(found) > 1:
            raise self._cannot_predict()
        (n0, n1), ((x0, x1),), (xx,) = known["class_counts"], known["sums"], known["products"]
        line = (
            line_of(n0, n1, x0, x1, xx, paired=True)
            if self.fit_intercept
            else LineEstimate(0, 2 * (x1 - x0), xx)
        )
        return {
            "line": [RowAnswer(line.at(found[0].value)), RowAnswer(line.d, signed=False)],
            "class_counts": [RowAnswer(n0, signed=False), RowAnswer(n1, signed=False)],
        }

    def answer_shapes(self, schema: PublicSchema, output: str = "") -> Shapes:
        if self._count_features(schema) != 1:
            raise self._cannot_predict()
        return {"line": (2,), "class_counts": (2,)}

    def judge(self, answers: Totals, schema: Schema | PublicSchema, output: str = "") -> Votes:
        p = logistic(self._log_odds_of(answers))
        (label,) = feature_labels(self._features(schema.public()), schema)
        names = [f"e[{label}]", f"d[{label}]", *count_names(schema)]
        return votes_of(answers, names, np.column_stack([1 - p, p]), schema)

    def _log_odds_of(self, answers: Totals) -> NDArray[np.float64]:
        e, d, (n0, n1) = answers["line"][:, 0], answers["line"][0, 1], answers["class_counts"][0]
        # With a constant predictor, d is 0 and only the intercept is left.
        constant = 2 * (n1 - n0) / max(1, n0 + n1) if self.fit_intercept else 0.0
        log_odds: NDArray[np.float64] = (e / d if d else np.full(len(e), constant)).astype(float)
        return log_odds

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of the second class."""
        return self._by_row(X, self._log_odds)

    def _log_odds(self, table: Table) -> NDArray[np.float64]:
        if self._count_features(table.public_schema) == 1:
            return self._log_odds_of(predict_clear(self._as_predictor(), table, ""))
        log_odds: NDArray[np.float64] = self._matrix(table) @ self.coef_[0] + self.intercept_[0]
        return log_odds

    def scores(self, table: Table) -> NDArray[np.float64]:
        p = logistic(self._log_odds(table))
        return np.column_stack([1 - p, p])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        return self._by_row(X, self.scores)
