"""Several variables together: covariances, correlations, linear and quadratic
discriminants.

All are made of the sums of the variables and of the products of any two, for all rows or in every
class: the totals of ``table.moments``. Differences that cancel are formed in integers.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    DataError,
    ParameterError,
    SchemaError,
)
from encryptedstats.models._sklearn import log_sum_exp
from encryptedstats.models.discriminants import FisherDiscriminant
from encryptedstats.models.features import Feature, product_totals, symmetric
from encryptedstats.models.prediction import feature_labels
from encryptedstats.statistics._distributions import normal_quantile
from encryptedstats.statistics._fixed import with_numbers
from encryptedstats.statistics._least_squares import Exact, as_floats, independent
from encryptedstats.statistics.factors import left_out
from encryptedstats.statistics.plots import plot_matrix
from encryptedstats.statistics.results import TestResult
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.answers.results import Result, as_terms
from encryptedstats.tables.questions.constraints import (
    CONFIDENCE,
    Constraints,
    ListOf,
    RealNumber,
    VariableName,
)
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    class_columns,
    has_gaps,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import Moments, complete_count, scale, variable_name
from encryptedstats.tables.schema.names import position

if TYPE_CHECKING:
    from pandas import DataFrame

    Names = Sequence[str | int]


# -- covariances and correlations ------------------------------------------------------------------


@dataclass(frozen=True)
class _Products(Question):
    """A question about variables that are kept as numbers: all of them, where none are named.

    Rows where one of them is missing are left out.
    """

    variables: tuple[str | int, ...] = ()
    confidence: float = 0.95

    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)

    def __post_init__(self) -> None:
        if isinstance(self.variables, str):
            raise ArgumentTypeError(
                (
                    f"variables={self.variables!r}: a list of variables is needed, "
                    f"[{self.variables!r}]"
                ),
                code="not-a-list",
            )
        object.__setattr__(self, "variables", tuple(self.variables))
        self.check_parameters()

    def moments(self, schema: PublicSchema) -> Moments:
        """Return what it is made of."""
        return Moments(numbers_of_schema(schema, self.variables))

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no number."""
        self.moments(schema).check_schema(schema)

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the totals of the moments."""
        return self.moments(schema).totals(schema, columns, fold)

    def shapes(self, schema: PublicSchema) -> Shapes:
        return self.moments(schema).shapes(schema)

    def _read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> _Read:
        return read_moments(totals, self.moments(schema.public()).variables, schema, n_rows)


class Covariance(_Products):
    """The covariance matrix of variables that are kept as numbers, with intervals of the variances.

    Parameters
    ----------
    variables : list of str
        By name or id; all that are kept as numbers by default. Rows where one of them is missing
        are left out.
    confidence : float
        Of the intervals, which assume normal variables.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3]})
    >>> schema = es.Schema.infer(frame).with_kind("a", "number").with_kind("b", "number")
    >>> schema.table(frame).ask(es.Covariance()).covariance.round(2)
          a     b
    a  1.67  1.00
    b  1.00  1.67
    """

    title: ClassVar[str] = "Covariance"

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> CovarianceResult:
        """Return the matrix, with n - 1 below."""
        found = self._read(totals, schema, n_rows)
        return CovarianceResult(
            title=f"Covariances of {', '.join(found.names)}",
            n_rows=found.n,
            notes=found.notes,
            covariance=found.frame(found.covariance),
            means=pd.Series(found.means, found.names),
            variances=found.variance_table(self.confidence),
            scatter=found.scatter,
            scales=found.scales,
        )


class Correlation(_Products):
    """Pearson's correlations of variables that are kept as numbers, with tests (of 0) and intervals
    (Fisher's z).

    Parameters
    ----------
    variables : list of str
        By name or id; all that are kept as numbers by default. Rows where one of them is missing
        are left out.
    confidence : float
        Of the intervals.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3]})
    >>> schema = es.Schema.infer(frame).with_kind("a", "number").with_kind("b", "number")
    >>> schema.table(frame).ask(es.Correlation()).correlation
         a    b
    a  1.0  0.6
    b  0.6  1.0
    """

    title: ClassVar[str] = "Correlation"

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> CorrelationResult:
        """Return the matrix, with probabilities and intervals of each pair."""
        found = self._read(totals, schema, n_rows)
        return CorrelationResult(
            title=f"Correlations of {', '.join(found.names)}",
            n_rows=found.n,
            notes=(
                *found.notes,
                f"{self.confidence:.4g} intervals by Fisher's z; tests of no correlation by "
                "Student's t",
            ),
            correlation=found.frame(found.correlation),
            pairs=found.correlation_table(self.confidence),
        )


@dataclass(frozen=True)
class PartialCorrelation(_Products):
    """Correlations of numbers without the linear effects of others, with tests (of 0) and intervals
    (Fisher's z).

    Parameters
    ----------
    variables : list of str
        By name or id; all other numbers by default. Rows where one of them, or of ``covariates``,
        is missing are left out.
    confidence : float
        Of the intervals.
    covariates : list of str
        Numbers whose effects are taken off.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4, 6], "b": [2, 1, 4, 3, 7], "age": [1, 2, 3, 4, 5]})
    >>> table = es.Schema.infer(frame, numbers="keep").table(frame)
    >>> table.ask(es.PartialCorrelation(["a", "b"], covariates=["age"])).correlation.round(3)
           a      b
    a  1.000  0.728
    b  0.728  1.000
    """

    title: ClassVar[str] = "Partial correlation"
    of_variables: ClassVar[tuple[str, ...]] = ("variables", "covariates")
    constraints: ClassVar[Constraints] = {"covariates": ListOf(item=VariableName(), least=1)}

    covariates: tuple[str | int, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "covariates", tuple(self.covariates))
        super().__post_init__()

    def _positions(self, schema: PublicSchema) -> tuple[tuple[int, ...], tuple[int, ...]]:
        controlled = tuple(position(schema, one) for one in self.covariates)
        chosen = numbers_of_schema(schema, self.variables)
        if not self.variables:
            chosen = tuple(j for j in chosen if j not in controlled)
        return chosen, controlled

    def moments(self, schema: PublicSchema) -> Moments:
        """Return the moments of the variables and of the covariates."""
        chosen, controlled = self._positions(schema)
        return Moments((*chosen, *controlled))

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse fewer than two variables, and a variable that is also a covariate."""
        chosen, controlled = self._positions(schema)
        if len(chosen) < 2 or set(chosen) & set(controlled):
            raise SchemaError(
                "a partial correlation is of two variables or more, and covariates= names others",
                code="same-variable-twice",
            )
        super().check_schema(schema)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> CorrelationResult:
        """Return the matrix, with probabilities and intervals of each pair."""
        found = self._read(totals, schema, n_rows)
        n_chosen = len(self._positions(schema.public())[0])
        controlled = found.names[n_chosen:]
        partial = found.without_effects(n_chosen)
        return CorrelationResult(
            title=f"Correlations of {', '.join(partial.names)}, given {', '.join(controlled)}",
            n_rows=found.n,
            notes=(
                *found.notes,
                f"{self.confidence:.4g} intervals by Fisher's z; tests of no correlation by "
                "Student's t",
            ),
            correlation=partial.frame(partial.correlation),
            pairs=partial.correlation_table(self.confidence),
        )


class CronbachAlpha(_Products):
    """Cronbach's alpha: how far several numbers measure the same.

    Parameters
    ----------
    variables : list of str
        The items, kept as numbers; all by default. Rows where one is missing are left out.
    confidence : float
        Of Feldt's interval.

    References
    ----------
    Cronbach (1951). Feldt, Woodruff and Salih (1987).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [2, 1, 4, 3], "c": [1, 2, 4, 4]})
    >>> table = es.Schema.infer(frame, numbers="keep").table(frame)
    >>> round(table.ask(es.CronbachAlpha()).estimate, 4)
    0.9123
    """

    title: ClassVar[str] = "Cronbach's alpha"

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse a single item."""
        super().check_schema(schema)
        if len(self.moments(schema).variables) < 2:
            raise SchemaError("Cronbach's alpha needs two items or more", code="too-few-variables")

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return alpha, and what it is without each item."""
        from scipy.stats import f as fisher

        found = self._read(totals, schema, n_rows)
        units = [int(unit) for unit in found.scales]
        k, n = len(units), found.n
        scatter = [
            [Fraction(int(found.scatter[a, b]), units[a] * units[b]) for b in range(k)]
            for a in range(k)
        ]
        alpha = _alpha(scatter, list(range(k)))
        if alpha is None or n < 2:
            raise DataError("the items have no spread together", code="constant-data")
        tail, free = (1 - self.confidence) / 2, (n - 1, (n - 1) * (k - 1))
        missing = 1 - float(alpha)
        without = [
            _alpha(scatter, [other for other in range(k) if other != one]) for one in range(k)
        ]
        table = pd.DataFrame(
            {
                "mean": found.means,
                "sd": np.sqrt(np.diag(found.covariance)),
                "alpha without it": [
                    np.nan if value is None or k < 3 else float(value) for value in without
                ],
            },
            found.names,
        )
        return TestResult(
            title=f"Cronbach's alpha of {', '.join(found.names)}",
            n_rows=n,
            notes=(*found.notes, f"{self.confidence:.4g} interval by Feldt"),
            estimate=float(alpha),
            low=1 - missing * float(fisher.isf(tail, *free)),
            high=1 - missing * float(fisher.ppf(tail, *free)),
            confidence=self.confidence,
            term="alpha",
            table=table,
        )


def _alpha(scatter: Sequence[Sequence[Fraction]], items: Sequence[int]) -> Fraction | None:
    whole = sum((scatter[a][b] for a in items for b in items), Fraction(0))
    own = sum((scatter[a][a] for a in items), Fraction(0))
    k = len(items)
    return Fraction(k, k - 1) * (1 - own / whole) if whole and k > 1 else None


@dataclass(frozen=True, kw_only=True)
class CovarianceResult(Result):
    """A covariance matrix.

    Attributes
    ----------
    covariance : DataFrame
    means : Series
    variances : DataFrame
        The variance of every variable and its interval.
    """

    covariance: DataFrame
    means: pd.Series[Any]
    variances: DataFrame
    scatter: Any
    scales: Any

    def to_frame(self) -> DataFrame:
        """Return the matrix."""
        return self.covariance

    def tidy(self) -> DataFrame:
        """Return the variance of every variable with its interval."""
        return as_terms(self.variances.rename(columns={"variance": "estimate"}))

    def mahalanobis(self, X: Any) -> pd.Series[Any]:
        """Return squared distances of rows from the mean in this metric, as R and scikit-learn have
        them: for the owner of the rows.

        ``X`` is a DataFrame with the columns of this matrix, or a table.
        """
        frame = X.to_pandas() if isinstance(X, Table) else pd.DataFrame(X)
        names = list(self.covariance.columns)
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise SchemaError(
                f"the rows have no column {missing[0]!r}: the matrix is of {', '.join(names)}",
                code="missing-column",
            )
        used = independent(self.scatter)
        if len(used) < len(names):
            dependent = ", ".join(names[j] for j in range(len(names)) if j not in used)
            raise ArgumentError(
                f"there is no distance: {dependent} depends on the variables before it, or is "
                "constant",
                code="singular-matrix",
            )
        deviations = frame[names].to_numpy(dtype=float) - self.means.to_numpy()
        sd = np.sqrt(np.diag(self.covariance))
        scaled = deviations / sd
        solved = np.linalg.solve(self.covariance.to_numpy() / np.outer(sd, sd), scaled.T)
        return pd.Series((scaled * solved.T).sum(axis=1), frame.index, name="mahalanobis")

    def plot(self, ax: Any = None) -> Any:
        """Draw a heat map of the correlations."""
        sd = np.sqrt(np.diag(self.covariance))
        return plot_matrix(self.covariance.div(sd, axis=0).div(sd, axis=1), ax)


@dataclass(frozen=True, kw_only=True)
class CorrelationResult(Result):
    """A correlation matrix.

    Attributes
    ----------
    correlation : DataFrame
    pairs : DataFrame
        For every pair of variables r, its interval, t, degrees of freedom and p.
    """

    correlation: DataFrame
    pairs: DataFrame

    def to_frame(self) -> DataFrame:
        """Return the matrix."""
        return self.correlation

    def tidy(self) -> DataFrame:
        """Return the correlation of every pair with its test and interval."""
        return as_terms(self.pairs)

    @property
    def pvalues(self) -> DataFrame:
        """Return the probabilities as a matrix."""
        found = pd.DataFrame(np.nan, self.correlation.index, self.correlation.columns)
        for pair, p in self.pairs["pvalue"].items():
            a, b = pair if isinstance(pair, tuple) else (pair, pair)
            found.loc[a, b] = found.loc[b, a] = p
        return found

    def plot(self, ax: Any = None) -> Any:
        """Draw a heat map."""
        return plot_matrix(self.correlation, ax)


@dataclass(frozen=True, eq=False)
class _Read:
    """Sums and products of numbers, read: in integers as far as possible."""

    names: list[str]
    n: int
    left_out: tuple[str, ...]
    sums: Exact
    scatter: Exact  #: n times the sums of products around the means
    scales: Exact
    taken: int = 0  #: how many variables' effects were taken off

    def without_effects(self, n_kept: int) -> _Read:
        """Return the first variables without the linear effects of the others."""
        rows = [[Fraction(int(value)) for value in line] for line in self.scatter]
        taken = 0
        for k in range(n_kept, len(rows)):
            pivot = rows[k][k]
            if not pivot:  # it depends on others that are given
                continue
            taken += 1
            for line in [one for place, one in enumerate(rows) if place < n_kept or place > k]:
                ratio = line[k] / pivot
                line[:] = [b - ratio * a for a, b in zip(rows[k], line, strict=True)]
        left = [line[:n_kept] for line in rows[:n_kept]]
        unit = lcm(*(value.denominator for line in left for value in line))
        scatter = np.array([[int(value * unit) for value in line] for line in left], dtype=object)
        return replace(
            self,
            names=self.names[:n_kept],
            sums=self.sums[:n_kept],
            scatter=scatter,
            scales=self.scales[:n_kept],
            taken=taken,
        )

    def frame(self, values: NDArray[np.float64]) -> DataFrame:
        return pd.DataFrame(values, self.names, self.names)

    @property
    def notes(self) -> tuple[str, ...]:
        constant = [
            name for name, value in zip(self.names, np.diag(self.scatter), strict=True) if not value
        ]
        return (*self.left_out, *((f"constant: {', '.join(constant)}",) if constant else ()))

    @property
    def means(self) -> NDArray[np.float64]:
        return as_floats(
            [Fraction(int(s), self.n * int(u)) for s, u in zip(self.sums, self.scales, strict=True)]
        )

    @property
    def covariance(self) -> NDArray[np.float64]:
        if self.n < 2:
            return np.full(self.scatter.shape, np.nan)
        below = self.n * (self.n - 1)
        units = np.outer(self.scales, self.scales)
        pairs = zip(self.scatter.flat, units.flat, strict=True)
        return as_floats(
            [Fraction(int(value), below * int(unit)) for value, unit in pairs]
        ).reshape(units.shape)

    def square(self, a: int, b: int) -> Fraction | None:
        """Return the square of the correlation; None where one of them is constant."""
        below = int(self.scatter[a, a] * self.scatter[b, b])
        return Fraction(int(self.scatter[a, b]) ** 2, below) if below else None

    @property
    def correlation(self) -> NDArray[np.float64]:
        k = len(self.names)
        return np.array([[self.r(a, b) for b in range(k)] for a in range(k)])

    def r(self, a: int, b: int) -> float:
        square = self.square(a, b)
        if square is None:
            return math.nan
        return math.copysign(math.sqrt(square), self.scatter[a, b])

    def variance_table(self, confidence: float) -> DataFrame:
        from scipy.stats import chi2

        df, found = self.n - 1, np.diag(self.covariance)
        low, high = (
            chi2.ppf(q, df) if df > 0 else math.nan
            for q in ((1 + confidence) / 2, (1 - confidence) / 2)
        )
        table = {
            "variance": found,
            "std": np.sqrt(found),
            "low": df * found / low,
            "high": df * found / high,
        }
        return pd.DataFrame(table, self.names)

    def correlation_table(self, confidence: float) -> DataFrame:
        from scipy.stats import t

        rows, n, width = {}, self.n - self.taken, normal_quantile(confidence)
        df = n - 2
        for a in range(len(self.names)):
            for b in range(a + 1, len(self.names)):
                r, square = self.r(a, b), self.square(a, b)
                left = (
                    math.nan if square is None else float(1 - square)
                )  # exact, also where r is nearly 1
                statistic = pvalue = low = high = math.nan
                if df > 0 and square is not None:
                    statistic = r * math.sqrt(df / left) if left else math.copysign(math.inf, r)
                    pvalue = 2 * float(t.sf(abs(statistic), df))
                if n > 3 and square is not None:
                    # arctanh(r) is log((1 + r)^2 / (1 - r^2)) / 2
                    z = (
                        math.copysign(math.inf, r)
                        if not left
                        else math.copysign(math.log((1 + abs(r)) ** 2 / left) / 2, r)
                    )
                    low, high = (math.tanh(z + sign * width / math.sqrt(n - 3)) for sign in (-1, 1))
                rows[self.names[a], self.names[b]] = [r, low, high, statistic, df, pvalue]
        index = pd.MultiIndex.from_tuples(rows) if rows else pd.MultiIndex.from_arrays([[], []])
        columns = ["estimate", "low", "high", "statistic", "df", "pvalue"]
        return pd.DataFrame(list(rows.values()), index, columns).astype({"df": int})


def read_moments(
    totals: Totals, variables: Sequence[int], schema: Schema | PublicSchema, n_rows: int
) -> _Read:
    """Return the totals of moments, refusing those that cannot be."""
    names = [variable_name(schema, j) for j in variables]
    n = complete_count(totals, n_rows, names)
    k, sums = len(variables), totals["sums"]
    scatter = n * symmetric(totals["products"], k) - np.outer(sums, sums)
    refuse_impossible(all(value >= 0 for value in np.diag(scatter)), "a variance would be negative")
    squares = np.outer(np.diag(scatter), np.diag(scatter))
    refuse_impossible(bool((scatter * scatter <= squares).all()), "a correlation would be beyond 1")
    gone = left_out(
        n_rows - n,
        [name for j, name in zip(variables, names, strict=True) if has_gaps(schema.public(), j)],
    )
    return _Read(
        names, n, gone, sums, scatter, np.array([scale(schema, j) for j in variables], dtype=object)
    )


def numbers_of_schema(schema: PublicSchema, variables: Sequence[str | int] = ()) -> tuple[int, ...]:
    """Return the positions of these variables, or of all that are kept as numbers."""
    if variables:
        return tuple(position(schema, one) for one in variables)
    found = tuple(j for j, variable in enumerate(schema.variables) if variable.kind == "number")
    if not found:
        raise SchemaError(
            "no variable of this schema is kept as numbers: Schema.infer(..., numbers='keep') does",
            code="no-numbers",
        )
    return found


# -- discriminants ------------------------------------------------------------------------------


class _NormalClasses(FisherDiscriminant):
    """Classifiers of normal classes. Numbers of arrays and DataFrames are kept, with
    their digits.
    """

    bins: ClassVar[int] = 5  # type: ignore[misc]  # no parameter: numbers are not cut
    centred: ClassVar[bool] = True  # type: ignore[misc]  # the origin of codes changes nothing
    remarks: ClassVar[tuple[str, ...]] = ()  # all is in the units of the predictors
    constraints: ClassVar[Constraints] = {
        "priors": ListOf(
            item=RealNumber(low=0, high=1, code="invalid-priors"),
            optional=True,
            code="invalid-priors",
        )
    }

    def __init__(
        self,
        priors: Sequence[float] | None = None,
        unbiased: bool = False,
        variables: Sequence[str | int] | None = None,
    ) -> None:
        self.priors = priors
        self.unbiased = unbiased
        self.variables = variables

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse priors that are no shares of the classes."""
        super().check_schema(schema)
        self._read_priors(schema.n_classes)

    @abstractmethod
    def _logs(self, table: Table) -> NDArray[np.float64]:
        """Return the logarithm of the probability of each class, up to a constant."""

    def scores(self, table: Table) -> NDArray[np.float64]:
        """Probabilities."""
        logs = self._logs(table)
        found: NDArray[np.float64] = np.exp(logs - log_sum_exp(logs, axis=1, keepdims=True))
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probability of each class."""
        return self._by_row(X, self.scores)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return Log-odds of each class, up to a constant; with two classes, those of
        the second.
        """
        logs = self._by_row(X, self._logs)
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def _in_units(self, table: Table) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self._matrix(table) / self._predictor_scales
        return found

    def tabulate(self) -> DataFrame:
        """Return the mean of every predictor in every class."""
        return self._by_class("mean", self.means_)

    def _infer(
        self,
        frame: DataFrame,
        labels: Any,
        classes: Any,
        named: bool,
        weights: NDArray[np.int64] | None = None,
    ) -> Schema:
        schema = super()._infer(frame, labels, classes, named, weights)
        numbers = [
            name for name in frame.columns if not named or schema[str(name)].kind == "continuous"
        ]
        return with_numbers(schema, frame, numbers)

    def _warn_of_unused(self) -> None:
        """There is nothing that a table does not use."""

    def _learn_means(self, totals: Totals, schema: PublicSchema) -> _ByClass:
        found = _ByClass(
            totals["class_counts"], totals["sums"].T, self._features(schema), self.schema_
        )
        self.class_counts_, self.means_ = found.counts.astype(np.int64), found.means
        priors = self._read_priors(len(found.counts))
        self.priors_ = (
            as_floats([Fraction(int(n), found.n) for n in found.counts])
            if priors is None
            else priors
        )
        self._predictor_scales = as_floats(found.scales)
        return found

    def _read_priors(self, n_classes: int) -> NDArray[np.float64] | None:
        if self.priors is None:
            return None
        try:
            priors = np.asarray(self.priors, dtype=float)
        except (TypeError, ValueError):
            priors = np.empty(0)
        good = priors.shape == (n_classes,) and bool((priors >= 0).all())
        if not good or not math.isclose(priors.sum(), 1, abs_tol=1e-9):
            raise ParameterError(
                self.named_parameter("priors"),
                f": {n_classes} numbers of at least 0 are needed that add up to 1",
                code="invalid-priors",
            )
        return priors


class _ByClass:
    """Counts and sums of predictors in every class, as integers, and what they are called."""

    def __init__(
        self, counts: Exact, sums: Exact, features: Sequence[Feature], schema: Schema | PublicSchema
    ) -> None:
        refuse_impossible(all(n >= 0 for n in counts), "a class would have fewer than no rows")
        self.counts, self.sums = counts, sums
        self.n, self.k = int(counts.sum()), len(features)
        refuse_impossible(self.n > 0, "there are no rows")
        kept = [
            feature.level is None and schema.public().variables[feature.variable].kind == "number"
            for feature in features
        ]
        units = [
            scale(schema, feature.variable) if number else 1
            for feature, number in zip(features, kept, strict=True)
        ]
        self.scales = np.array(units, dtype=object)
        self.names = feature_labels(features, schema)

    @property
    def means(self) -> NDArray[np.float64]:
        """Of every class, in units; 0 where a class has no rows."""
        rows = zip(self.counts, self.sums, strict=True)
        found = [
            [
                Fraction(int(s), max(1, int(n)) * int(u))
                for s, u in zip(sums, self.scales, strict=True)
            ]
            for n, sums in rows
        ]
        return as_floats(found)

    @property
    def centre(self) -> NDArray[np.float64]:
        """Return the mean of all rows, in units."""
        sums = zip(self.sums.sum(axis=0), self.scales, strict=True)
        return as_floats([Fraction(int(s), self.n * int(u)) for s, u in sums])

    @property
    def means_from_centre(self) -> NDArray[np.float64]:
        """Return the means of classes less that of all rows (as it is rounded), in units; 0 where a
        class has no rows.
        """
        centre = [Fraction(value) for value in self.centre.tolist()]
        found = [
            [
                Fraction(int(s), int(n) * int(u)) - m if n else Fraction(0)
                for s, u, m in zip(sums, self.scales, centre, strict=True)
            ]
            for n, sums in zip(self.counts, self.sums, strict=True)
        ]
        return as_floats(found)

    def in_units(self, scatter: Exact, below: int) -> NDArray[np.float64]:
        """Return a matrix of sums of products over something, in units."""
        units = np.outer(self.scales, self.scales)
        pairs = zip(scatter.flat, units.flat, strict=True)
        return as_floats(
            [Fraction(int(value), below * int(unit)) for value, unit in pairs]
        ).reshape(units.shape)


class LinearDiscriminant(_NormalClasses):
    r"""Linear discriminant analysis: normal classes with one covariance matrix, from class sums and
    pooled second moments.

    The log-odds of class c are :math:`\log \pi_c + (x - m)' S^{-1} (m_c - m) - (m_c - m)' S^{-1}
    (m_c - m) / 2`, up to a constant, with the class means m_c, the mean m of all rows and S the
    scatter within classes over N, as in scikit-learn, or over N less the number of classes, as in
    R's ``MASS::lda``. Numbers are taken as they are, codes and indicators of other variables as
    :class:`FisherDiscriminant` has them. What depends on earlier predictors within classes is left
    out, with a warning.

    Parameters
    ----------
    priors : list of float, optional
        Of the classes; their shares of the rows by default.
    unbiased : bool
        Whether S is the scatter over N less the number of classes, as in R, or over N.
    variables : list of str, optional
        The predictors to use, by name or id; all by default.

    Attributes
    ----------
    priors_ : array of shape (n_classes,)
    means_ : array of shape (n_classes, n_predictors)
        In the units of the predictors.
    covariance_ : array of shape (n_predictors, n_predictors)
    centre_ : array of shape (n_predictors,)
        The mean of all rows.
    coef_ : array of shape (n_classes, n_predictors)
    intercept_ : array of shape (n_classes,)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from encryptedstats import LinearDiscriminant
    >>> X, y = load_iris(return_X_y=True)
    >>> round(LinearDiscriminant().fit(X, y).score(X, y), 2)
    0.98
    """

    title: ClassVar[str] = "Linear discriminant analysis"
    short_name: ClassVar[str] = "lda"

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set means, the pooled covariance matrix and the coefficients."""
        found = self._learn_means(totals, schema)
        present = [(int(n), s) for n, s in zip(found.counts, found.sums, strict=True) if n]
        df = found.n - len(present)
        if df < 1:
            raise ArgumentError(
                f"there are {found.n} rows in {len(present)} classes: a variance within classes "
                "needs more",
                code="too-few-rows",
            )
        # In integers, over a common denominator: a difference of large floats would not tell
        # collinear from nearly so.
        common = lcm(*(n for n, _ in present))
        within = common * symmetric(totals["products"], found.k) - sum(
            common // n * np.outer(s, s) for n, s in present
        )
        refuse_impossible(
            all(value >= 0 for value in np.diag(within)), "a variance would be negative"
        )
        self.covariance_ = found.in_units(within, common * (df if self.unbiased else found.n))
        used = independent(within)
        if not used:
            raise ArgumentError(
                "no predictor varies within classes: there is nothing to fit", code="nothing-varies"
            )
        if len(used) < found.k:
            left_out = ", ".join(found.names[j] for j in range(found.k) if j not in used)
            warnings.warn(
                f"collinear or constant within classes, and left out: {left_out}",
                UserWarning,
                stacklevel=6,
            )
        sd = np.sqrt(np.diag(self.covariance_))[used]
        matrix = self.covariance_[np.ix_(used, used)] / np.outer(sd, sd)
        self.coef_ = np.zeros((len(found.counts), found.k))
        # From the mean of all rows: means that are far from 0 for their spread would cancel, in
        # coefficients and in scores.
        self.centre_ = found.centre
        apart = found.means_from_centre
        self.coef_[:, used] = (np.linalg.solve(matrix, (apart[:, used] / sd).T) / sd[:, None]).T
        with np.errstate(divide="ignore"):
            self._offsets = np.log(self.priors_) - (self.coef_ * apart).sum(axis=1) / 2
        self.intercept_ = self._offsets - self.coef_ @ self.centre_

    def _logs(self, table: Table) -> NDArray[np.float64]:
        found: NDArray[np.float64] = (
            self._in_units(table) - self.centre_
        ) @ self.coef_.T + self._offsets
        return found


class QuadraticDiscriminant(_NormalClasses):
    r"""Quadratic discriminant analysis: normal classes, each with its covariance matrix, from
    second moments in every class.

    The log-odds of class c are :math:`\log \pi_c - \log |S_c| / 2 - (x - m_c)' S_c^{-1} (x - m_c) /
    2`, S_c with n_c below, as in scikit-learn, or n_c - 1, as in R's ``MASS::qda``. Predictors are
    those of :class:`LinearDiscriminant`.

    Parameters
    ----------
    priors : list of float, optional
        Of the classes; their shares of the rows by default.
    unbiased : bool
        Whether S_c has n_c - 1 below, as in R, or n_c.

    Attributes
    ----------
    priors_, means_ : as of :class:`LinearDiscriminant`
    covariance_ : list of arrays of shape (n_predictors, n_predictors)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from encryptedstats import QuadraticDiscriminant
    >>> X, y = load_iris(return_X_y=True)
    >>> round(QuadraticDiscriminant().fit(X, y).score(X, y), 2)
    0.98
    """

    title: ClassVar[str] = "Quadratic discriminant analysis"
    short_name: ClassVar[str] = "qda"

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return sums and all sums of products of two predictors, in every class."""
        found, classes = self._features(schema, columns), class_columns(schema, fold)
        return {
            "class_counts": [y.total() for y in classes],
            "sums": [[(feature.value * y).total() for y in classes] for feature in found],
            "products": [product_totals(found, y) for y in classes],
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        k = self._count_features(schema)
        by_class = (schema.n_classes, k * (k + 1) // 2)
        return {
            "class_counts": (schema.n_classes,),
            "sums": (k, schema.n_classes),
            "products": by_class,
        }

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set means and covariance matrices."""
        found = self._learn_means(totals, schema)
        self.covariance_, self._factors = [], []
        for label, n, sums, products in zip(
            self.classes_, found.counts, found.sums, totals["products"], strict=True
        ):
            if n < 2:
                raise ArgumentError(
                    f"class {label} has {n} row{'' if n == 1 else 's'}: each needs more than "
                    "predictors",
                    code="too-few-rows",
                )
            scatter = n * symmetric(products, found.k) - np.outer(sums, sums)
            refuse_impossible(
                all(value >= 0 for value in np.diag(scatter)), "a variance would be negative"
            )
            used = independent(scatter)
            if len(used) < found.k:
                dependent = ", ".join(found.names[j] for j in range(found.k) if j not in used)
                raise ArgumentError(
                    f"the covariance matrix of class {label} is not of full rank: {dependent} is "
                    "constant or collinear in it",
                    code="singular-matrix",
                )
            self.covariance_.append(found.in_units(scatter, n * (n - 1 if self.unbiased else n)))
            sd = np.sqrt(np.diag(self.covariance_[-1]))
            self._factors.append((sd, np.linalg.cholesky(self.covariance_[-1] / np.outer(sd, sd))))

    def _logs(self, table: Table) -> NDArray[np.float64]:
        x, logs = self._in_units(table), []
        for prior, mean, (sd, factor) in zip(self.priors_, self.means_, self._factors, strict=True):
            whitened = np.linalg.solve(factor, ((x - mean) / sd).T)
            determinant = 2 * np.log(np.diag(factor)).sum() + 2 * np.log(sd).sum()
            with np.errstate(divide="ignore"):
                logs.append(np.log(prior) - (determinant + (whitened**2).sum(axis=0)) / 2)
        return np.column_stack(logs)
