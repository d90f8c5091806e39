"""Naive Bayes: semiparametric (paper, section 4) and multinomial (appendix C)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval
from encryptedstats.crypto.parameters import MAX_PRIME_BITS
from encryptedstats.errors import Cure, ParameterError, SchemaError, TooLargeError
from encryptedstats.models._sklearn import log_sum_exp, logistic
from encryptedstats.models.base import TotalsClassifier
from encryptedstats.models.features import CodedPredictors, is_constant
from encryptedstats.models.prediction import (
    LineEstimate,
    Votes,
    class_names,
    count_names,
    feature_labels,
    line_of,
    predictor_index,
    shallow_product,
    variable_names,
    votes_of,
    weighted_sum,
)
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.answers.predictions import predict_clear
from encryptedstats.tables.questions.constraints import ALPHA, Constraints
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    ModelTotals,
    RowAnswer,
    Shapes,
    Totals,
    bin_columns,
    class_columns,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import labels

_PRODUCTS = Cure("as products", "output='products'")
_FACTORS = Cure("as factors", "output='factors'")


class SemiparametricNB(CodedPredictors, TotalsClassifier):
    r"""Fit naive Bayes with a logistic regression for each predictor.

    Each regression is fitted by one step of reweighted least squares. With z = 4y - 2, the paired
    estimates of intercept and slope of predictor j are a/d and b/d,

    .. math::

        a = \sum x^2 \sum z - \sum x \sum xz, \quad b = N \sum xz - \sum x \sum z, \quad d = N \sum
        x^2 - (\sum x)^2

    and the log-odds of a new row are :math:`(P-1) \log\theta + \sum_j (a_j + b_j x_j) / d_j` with
    theta = n0/n1. (The paper prints the inverse of theta; its example has this theta.) Unpaired,
    the intercept is the mean of z and the slope is sum xz / sum x^2.

    Parameters
    ----------
    paired : bool
        Whether intercept and slope are estimated together. The estimates are equal if the mean of a
        predictor is exactly 0.
    centred : bool
        Whether the codes of bins are centred around 0 (-2 to 2 for quintiles) instead of running
        from 1 to m.
    bins : int
        Number of bins of a continuous variable, for fits to DataFrames and to arrays of real
        numbers. Integer arrays are used unchanged: new rows may have integers up to twice the
        largest in the fit, and up to a million in any case.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    class_counts_ : array of shape (2,)
    a_, b_, d_ : list of int
        Exact integers, one for every predictor. Unpaired, the intercept is a / N.

    References
    ----------
    Aslett, Esperança and Holmes (2015), section 4.1 and appendix D.

    Examples
    --------
    >>> import numpy as np
    >>> from encryptedstats import SemiparametricNB
    >>> X = np.array([[1, 5, 3, 1, 2, 5, 2, 4, 1, 3], [5, 5, 3, 2, 3, 4, 4, 4, 3, 2]]).T
    >>> y = np.array([0, 0, 1, 1, 1, 1, 1, 0, 0, 1])
    >>> model = SemiparametricNB().fit(X, y)
    >>> model.a_, model.b_, model.d_
    ([110, 462], [-8, -120], [221, 105])
    """

    title: ClassVar[str] = "Semiparametric naive Bayes"
    short_name: ClassVar[str] = "snb"
    binary_only: ClassVar[bool] = True

    def __init__(
        self,
        paired: bool = True,
        centred: bool = False,
        bins: int = 5,
        variables: Sequence[str | int] | None = None,
    ) -> None:
        self.paired = paired
        self.centred = centred
        self.bins = bins
        self.variables = variables

    def _infer(
        self,
        frame: pd.DataFrame,
        labels: pd.Series[Any],
        classes: Any,
        named: bool,
        weights: NDArray[np.int64] | None = None,
    ) -> Schema:
        schema = super()._infer(frame, labels, classes, named, weights)
        values = frame.to_numpy()
        if not named and values.dtype.kind in "iu":
            # The rows are clear, so wide bounds cost nothing, and new rows may exceed the old ones.
            limit = max(1 << 20, 2 * max(abs(int(values.min())), int(values.max())))
            for name in schema.names:
                schema = schema.with_kind(name, "number", digits=0, low=-limit, high=limit)
        return schema

    # -- totals ------------------------------------------------------------------------------------

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Write n_c, and sum x y_c and sum x^2 y_c of every predictor, which determine
        a, b and d.
        """
        classes, found = class_columns(schema, fold), self._features(schema, columns)
        return {
            "class_counts": [y.total() for y in classes],
            "sums": [[(feature.value * y).total() for y in classes] for feature in found],
            "squares": [[(feature.square * y).total() for y in classes] for feature in found],
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        by_class = (self._count_features(schema), schema.n_classes)
        return {"class_counts": (schema.n_classes,), "sums": by_class, "squares": by_class}

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        n0, n1 = totals["class_counts"]
        refuse_impossible(n0 >= 0 and n1 >= 0, "a class would have a negative number of rows")
        self.class_counts_ = np.array([n0, n1], dtype=np.int64)
        n, sum_z = n0 + n1, 2 * (n1 - n0)
        lines = []
        for (x0, x1), squares in zip(totals["sums"], totals["squares"], strict=True):
            sum_x, sum_xx, sum_xz = x0 + x1, squares.sum(), 2 * (x1 - x0)
            possible = min(squares) >= 0 and n * sum_xx >= sum_x**2
            refuse_impossible(possible, "a sum of squares or a variance would be negative")
            lines.append(
                line_of(n0, n1, x0, x1, sum_xx, paired=True)
                if self.paired
                else LineEstimate(sum_z, sum_xz, sum_xx)
            )
        self.a_, self.b_, self.d_ = ([getattr(line, letter) for line in lines] for letter in "abd")
        self._warn_of_constants(schema)

    def _warn_of_constants(self, schema: PublicSchema) -> None:
        names = variable_names(self.schema_)
        constant = [names[j] for j in self._positions(schema) if is_constant(schema.variables[j])]
        predictors = feature_labels(self._features(schema), self.schema_)
        constant += [name for name, d in zip(predictors, self.d_, strict=True) if d == 0]
        if constant:
            warnings.warn(
                f"constant predictors contribute nothing (d = 0): {', '.join(constant)}",
                UserWarning,
                stacklevel=6,
            )

    def tabulate(self) -> pd.DataFrame:
        slopes = [b / d if d else np.nan for b, d in zip(self.b_, self.d_, strict=True)]
        index = predictor_index(self._features(self.schema_.public()), self.schema_)
        return pd.DataFrame({"slope": slopes, "a": self.a_, "b": self.b_, "d": self.d_}, index)

    # -- encrypted predictions ---------------------------------------------------------------------

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = ""
    ) -> Arrays:
        """Write e and d of every predictor, and the class counts."""
        n0, n1 = known["class_counts"]
        lines = []
        for feature, (x0, x1), (xx0, xx1) in zip(
            self._features(schema, columns), known["sums"], known["squares"], strict=True
        ):
            line = line_of(n0, n1, x0, x1, xx0 + xx1, paired=self.paired)
            lines.append([RowAnswer(line.at(feature.value)), RowAnswer(line.d, signed=False)])
        return {
            "lines": lines,
            "class_counts": [RowAnswer(n0, signed=False), RowAnswer(n1, signed=False)],
        }

    def answer_shapes(self, schema: PublicSchema, output: str = "") -> Shapes:
        return {"lines": (self._count_features(schema), 2), "class_counts": (2,)}

    def judge(self, answers: Totals, schema: Schema | PublicSchema, output: str = "") -> Votes:
        p = logistic(_log_odds(answers))
        labels = feature_labels(self._features(schema.public()), schema)
        names = [f"{letter}[{label}]" for label in labels for letter in "ed"]
        return votes_of(
            answers, [*names, *count_names(schema)], np.column_stack([1 - p, p]), schema
        )

    # -- predicting --------------------------------------------------------------------------------

    def predict_raw(self, X: Any) -> tuple[NDArray[Any], list[int]]:
        """Return the integers of which log-odds are computed.

        Returns
        -------
        array of shape (n_rows, n_predictors)
            The numerators e.
        list of int
            The denominators d, one for each predictor. The log-odds of predictor j are e_j / d_j.
        """
        table = self._rows(X)
        lines = predict_clear(self._as_predictor(), table, "")["lines"]
        return table.leave_blank(lines[:, :, 0].astype(object)), lines[0, :, 1].tolist()

    def predict_log_odds(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of the second class for every row."""
        predictor = self._as_predictor()
        return self._by_row(X, lambda table: _log_odds(predict_clear(predictor, table, "")))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        return self._by_row(X, self.scores)


def _log_odds(answers: Totals) -> NDArray[np.float64]:
    """Return log-odds from e and d of every predictor; those with d = 0 are constant
    and ignored.
    """
    lines, (n0, n1) = answers["lines"], answers["class_counts"][0]
    e, d = lines[:, :, 0], lines[0, :, 1]
    if not n0 or not n1:
        return np.full(len(lines), np.inf if n1 else -np.inf if n0 else 0.0)
    used = np.flatnonzero(d)
    log_odds: NDArray[np.float64] = sum(
        (e[:, j] / d[j] for j in used), start=np.zeros(len(lines))
    ).astype(float)
    log_odds += (len(used) - 1) * np.log(float(n0) / float(n1))
    return log_odds


class BinCountClassifier(TotalsClassifier):
    """Base class of classifiers that count the rows of every class in the bins of predictors."""

    def _bins(self, schema: PublicSchema) -> list[int]:
        """Return the number of bins of each predictor."""
        return [schema.variables[j].n_bins for j in self._positions(schema)]

    def _by_variable(self, totals: NDArray[Any], schema: PublicSchema) -> list[NDArray[Any]]:
        return np.split(totals, np.cumsum(self._bins(schema))[:-1])

    def check_schema(self, schema: PublicSchema) -> None:
        super().check_schema(schema)
        check_have_bins(schema, self._positions(schema), self.name)

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        self.class_counts_ = totals["class_counts"].astype(np.int64)
        self.bin_counts_ = self._by_variable(totals["bins"].astype(np.int64), schema)
        check_bin_counts(self.bin_counts_, self.class_counts_)


def check_have_bins(schema: PublicSchema, positions: Sequence[int], name: str) -> None:
    """Raise SchemaError if a variable at these positions is a number, which has no bins."""
    numbers = [schema.variables[j].id for j in positions if not schema.variables[j].n_bins]
    if numbers:
        raise SchemaError(
            f"variable {numbers[0]!r} is a number, and {name} counts bins: ",
            Cure("cut into bins", "schema.with_kind(name, 'continuous')"),
            ", or leave it out, variables=",
        )


def check_bin_counts(bins: Sequence[NDArray[np.int64]], classes: NDArray[np.int64]) -> None:
    """Refuse counts of bins that are negative or do not add up to the counts of the classes."""
    for j, counts in enumerate(bins):
        good = bool((counts >= 0).all() and (counts.sum(axis=0) == classes).all())
        refuse_impossible(good, f"the bins of variable {j} do not add up to the classes")


class MultinomialNB(BinCountClassifier):
    r"""Fit naive Bayes from the counts of every bin in every class.

    .. math:: P(x_j = k \mid c) = (n_{jkc} + \alpha) / (n_c + \alpha m_j)

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
    class_counts_ : array of shape (n_classes,)
    bin_counts_ : list of arrays of shape (n_bins, n_classes)
        One for every predictor.

    References
    ----------
    Aslett, Esperança and Holmes (2015), appendix C.

    Examples
    --------
    >>> import pandas as pd
    >>> from encryptedstats import MultinomialNB
    >>> X = pd.DataFrame({"smoker": ["no", "no", "yes", "yes", "yes"], "sex": list("fmfmm")})
    >>> model = MultinomialNB().fit(X, ["well", "well", "ill", "ill", "well"])
    >>> model.bin_counts_[0]  # of smoker: no and yes, each ill and well
    array([[0, 2],
           [2, 1]])
    """

    title: ClassVar[str] = "Naive Bayes"
    short_name: ClassVar[str] = "mnb"
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

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        classes = class_columns(schema, fold)
        bins = [x for j in self._positions(schema) for x in bin_columns(schema, j)]
        return {
            "class_counts": [y.total() for y in classes],
            "bins": [[(x * y).total() for y in classes] for x in bins],
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        n_bins = sum(self._bins(schema))
        return {"class_counts": (schema.n_classes,), "bins": (n_bins, schema.n_classes)}

    def tabulate(self) -> pd.DataFrame:
        names, positions = variable_names(self.schema_), self._positions(self.schema_.public())
        bins = [f"{names[j]}: {label}" for j in positions for label in labels(self.schema_, j)]
        index = pd.Index(bins, name="bin")
        return pd.DataFrame(
            np.concatenate(self.bin_counts_), index, [str(label) for label in self.classes_]
        )

    # -- encrypted predictions ---------------------------------------------------------------------

    outputs: ClassVar[tuple[str, ...]] = ("factors", "products")

    def answers(
        self, schema: PublicSchema, columns: Columns, known: ModelTotals, output: str = "factors"
    ) -> Arrays:
        """Write for every class the number of its rows that share the bin of each variable.

        With ``output="products"``, write the product of these numbers over the variables instead.
        """
        # Every factor of a product is smoothed, so that it is 0 in padding only.
        plus = 0 if output == "factors" else self._whole_alpha()
        counts, bounds = (
            self._by_variable(found, schema) for found in (known["bins"], known.bounds("bins"))
        )
        by_class = []
        for c in range(schema.n_classes):
            factors = []
            for place, j in enumerate(self._positions(schema)):
                largest = max(bound.high for bound in bounds[place][:, c])
                value = weighted_sum(
                    [count + plus for count in counts[place][:, c]], bin_columns(schema, j)
                )
                factors.append(RowAnswer(value, Interval(0, largest + plus), signed=False))
            by_class.append(factors if output == "factors" else [self._whole(factors)])
        return {
            "by_class": by_class,
            "class_counts": [RowAnswer(n, signed=False) for n in known["class_counts"]],
        }

    def answer_shapes(self, schema: PublicSchema, output: str = "factors") -> Shapes:
        each = len(self._positions(schema)) if output == "factors" else 1
        return {"by_class": (schema.n_classes, each), "class_counts": (schema.n_classes,)}

    def _whole(self, factors: Sequence[RowAnswer]) -> RowAnswer:
        """Return the product of all smoothed counts of a class."""
        largest = math.prod((factor.bound or Interval.of(0)).high for factor in factors)
        if largest.bit_length() >= MAX_PRIME_BITS - 2:
            raise TooLargeError(
                _PRODUCTS,
                f" of {len(factors)} counts could reach 2^{largest.bit_length()}, and the largest "
                f"number that can be encrypted is 2^{MAX_PRIME_BITS - 3}: take ",
                _FACTORS,
                ", from which the owner computes the same probabilities",
                code="products-too-large",
            )
        return RowAnswer(
            shallow_product([factor.value for factor in factors]),
            Interval(0, largest),
            signed=False,
        )

    def _whole_alpha(self) -> int:
        if int(self.alpha) != self.alpha:
            raise ParameterError(
                _PRODUCTS,
                f" needs an integer alpha, not {self.alpha}: take ",
                _FACTORS,
                code="alpha-not-whole",
            )
        return int(self.alpha)

    def judge(
        self, answers: Totals, schema: Schema | PublicSchema, output: str = "factors"
    ) -> Votes:
        scores, prior = self._joint(answers, schema.public(), output)
        every = variable_names(schema)
        used = [every[j] for j in self._positions(schema.public())]
        kinds = used if output == "factors" else ["product"]
        names = [
            f"{name} | {label}" for label in class_names(schema) for name in kinds
        ] + count_names(schema)
        return votes_of(answers, names, normalise_scores(scores, prior), schema)

    def _joint(
        self, answers: Totals, schema: PublicSchema, output: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the logarithms of the joint probabilities of row and class, and class shares."""
        bins, counts = self._bins(schema), answers["class_counts"][0].astype(float)
        prior = counts / counts.sum() if counts.sum() else np.full(len(counts), 1 / len(counts))
        found = answers["by_class"]
        smoothed = (found if output == "products" else found + self.alpha).astype(float)
        spread = np.log(np.maximum(counts[:, None] + self.alpha * np.array(bins), 1e-300)).sum(
            axis=1
        )
        with np.errstate(divide="ignore"):
            return np.log(prior) + np.log(smoothed).sum(axis=2) - spread, prior

    def _log_joint(self, table: Table) -> NDArray[np.float64]:
        output = self.outputs[0]
        return self._joint(
            predict_clear(self._as_predictor(), table, output), table.public_schema, output
        )[0]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        return self._by_row(X, self.scores)


def normalise_scores(
    scores: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probabilities of classes from logarithms of joint probabilities.

    A row that is impossible in every class gets the shares of the classes, ``prior``.
    """
    impossible = ~np.isfinite(scores).any(axis=1)
    with np.errstate(divide="ignore"):
        scores[impossible] = np.log(prior)
    probabilities: NDArray[np.float64] = np.exp(scores - log_sum_exp(scores, axis=1, keepdims=True))
    return probabilities
