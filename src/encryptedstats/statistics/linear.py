"""Linear and ridge regression: sums of products of two columns are all that they need, and the
owner solves them.

X'X, X'y and y'y (with weights X'WX) are totals of products. Standard errors, tests, intervals,
analysis of variance and the cross-validation of a penalty follow from them, without another pass
over the rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import ArgumentError, Cure, ParameterError, SchemaError
from encryptedstats.models._sklearn import Regressor
from encryptedstats.models.base import TotalsModel, find_unused_name
from encryptedstats.statistics._fixed import named_columns, repeat_rows, schema_of_numbers
from encryptedstats.statistics._least_squares import (
    CrossProducts,
    Exact,
    Solution,
    as_floats,
    solve,
)
from encryptedstats.statistics.comparisons import ANOVA_COLUMNS
from encryptedstats.statistics.contingency import exact_ratio
from encryptedstats.statistics.designs import (
    MISSING,
    Design,
    DesignColumn,
    MonomialFactor,
    combine,
    design,
    orthogonal,
)
from encryptedstats.statistics.factors import confidence_level
from encryptedstats.statistics.formulas import INTERCEPT, FormulaNode, OfFormula, regression_formula
from encryptedstats.statistics.plots import plot_path
from encryptedstats.statistics.results import Coefficients
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.answers.results import TableResult, note_dropped_rows
from encryptedstats.tables.questions.constraints import (
    ALPHA,
    AnyOf,
    Choice,
    Constraints,
    VariableName,
)
from encryptedstats.tables.questions.folds import CLASS_COUNTS
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Shapes,
    Totals,
    check_complete_rows,
    number_column,
    product_of,
    refuse_impossible,
    row_column,
)
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.names import name_of, position, variable_id
from encryptedstats.tables.schema.variables import KEEP_NUMBERS
from encryptedstats.words import plural

#: The weights that a table brings, as a name for them.
ROWS: Final = "rows"
MOST_PRODUCTS: Final = 1 << 20
_ERRORS: Final = ["estimate", "std_error"]
_INTERVALS: Final = ("confidence", "prediction")
L = TypeVar("L", bound="_LeastSquares")


# -- what the owner reads --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RegressionResult(Coefficients):
    """A fitted linear regression, as R's ``summary(lm)`` shows it.

    Attributes
    ----------
    coefficients : DataFrame
        Estimate, standard error, t, p and interval of every coefficient; NaN for what depends on
        earlier columns.
    statistic, df, df_resid, pvalue : float
        The F test of all slopes together.
    scale : float
        The residual variance.
    rsquared, rsquared_adj : float
    llf, aic, bic : float
        As statsmodels counts them: the residual variance is no parameter. (R's ``AIC`` is larger by
        2.)
    """

    statistic: float
    df: int
    df_resid: int
    pvalue: float
    scale: float
    rsquared: float
    rsquared_adj: float
    llf: float
    aic: float
    bic: float


@dataclass(frozen=True, kw_only=True)
class RidgePath(TableResult):
    """Coefficients of ridge regression by penalty; and the error in rows that were left out, where
    folds were given.

    Attributes
    ----------
    table : DataFrame
        A line for each alpha: where folds were given, the mean squared error over them
        (``estimate``) with its standard error, then the coefficients.
    best_alpha : float
        With the least error; NaN without folds.
    """

    best_alpha: float

    @property
    def errors(self) -> pd.DataFrame:
        """Return the errors of every alpha."""
        return self.table[[name for name in _ERRORS if name in self.table]]

    @property
    def coefficients(self) -> pd.DataFrame:
        """Return the coefficients of every alpha."""
        return self.table.drop(columns=_ERRORS, errors="ignore")

    def plot(self, ax: Any = None) -> Any:
        """Draw every coefficient over alpha, and mark the best alpha."""
        return plot_path(
            self.coefficients.drop(columns=INTERCEPT, errors="ignore"), self.best_alpha, ax
        )


# -- the models ------------------------------------------------------------------------------------


class _LeastSquares(Regressor, OfFormula, TotalsModel):
    """What linear and ridge regression share: their totals, and how they predict."""

    formula: str
    reference: Mapping[str, Any] | None
    weights: str | None
    missing: str
    fit_intercept: bool
    target: str | None
    variables: Sequence[str] | None
    coef_: NDArray[np.float64]
    intercept_: float
    _moments: CrossProducts
    of_variables: ClassVar[tuple[str, ...]] = ("target", "variables")
    why_opened: ClassVar[str] = "the normal equations have to be solved, which the owner does: "
    constraints: ClassVar[Constraints] = {
        "weights": AnyOf(parts=(Choice(values=(ROWS,)), VariableName()), optional=True),
        "missing": Choice(values=MISSING, code="unknown-missing-rule"),
    }
    unweighted: ClassVar[Cure] = Cure("use weights", "weights='rows' uses them")

    # -- as a question -----------------------------------------------------------------------------

    def in_ids(self: L, schema: Schema | PublicSchema) -> L:
        """Return it with variables and levels by id, as a worker knows them."""
        found = super().in_ids(schema)
        if found.weights in (None, ROWS):
            return found
        return found._from_parameters(
            {**found.parameters(), "weights": variable_id(schema, found.weights)}
        )

    def _in_names(self: L, schema: Schema) -> L:
        """Return it with names, as the owner asks it."""
        found = super()._in_names(schema)
        if found.weights in (None, ROWS):
            return found
        return found._from_parameters(
            {**found.parameters(), "weights": name_of(found.weights, schema)}
        )

    def _design(self, schema: PublicSchema, fit: Mapping[str, Any] | None = None) -> Design:
        """Return what its parameters say; or those of a ``fit``, whatever was changed since."""
        known = self.parameters() if fit is None else fit
        formula = regression_formula(known)
        if not known["fit_intercept"]:
            formula = replace(
                formula, right=FormulaNode("-", "", (formula.right, FormulaNode("number", "1")))
            )
        weighing = self._weighing(schema, fit)
        besides = () if weighing is None else (weighing,)  # what weighs the rows explains nothing
        found = design(
            formula, schema, known["reference"], missing=known["missing"], besides=besides
        )
        if len(found.targets) != 1:
            raise ParameterError(
                f"formula={self.formula!r}: one variable is explained at a time",
                code="several-outcomes",
            )
        if found.polynomials and weighing is not None:
            raise ParameterError(
                "poly() takes no weights into account, and neither does R's: write "
                "poly(x, 2, raw = TRUE), which fits the same",
                code="poly-with-weights",
            )
        return found

    def _fitted_design(self) -> Design:
        return self._design(self.schema_.public(), self.growth_)

    def _weighing(self, schema: PublicSchema, fit: Mapping[str, Any] | None = None) -> int | None:
        """Return the position of the variable that weighs the rows, if one does."""
        weights = (self.parameters() if fit is None else fit)["weights"]
        return None if weights in (None, ROWS) else position(schema, weights)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse a target or weights that are no numbers."""
        made, weighing = self._design(schema), self._weighing(schema)
        if made.targets[0] == -1 and schema.n_classes:
            raise SchemaError(
                "the target has classes, and a regression explains a number: ", KEEP_NUMBERS
            )
        made.number(made.targets[0])
        _check_size(made)
        if weighing is not None:
            number_column(schema, weighing)
            low = schema.at(weighing).low or 0
            if low < 0:
                raise SchemaError(
                    f"weights={self.weights!r}: weights are at least 0, and its lower bound is "
                    f"{low}",
                    code="negative-weights",
                )
        if self.weights == ROWS:
            row_column(schema)
        if not made.model:
            raise ParameterError(
                f"formula={self.formula!r}: there is nothing to explain anything by",
                code="no-predictors",
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return sums of all columns and of the products of any two, y the last; how many rows
        there are, and the sum of their weights.
        """
        made, found = self._design(schema), dict[str, Any]()
        weighing, factors = self._weighing(schema), list[Expression]()
        if schema.has_target:
            rows = row_column(schema, fold)
            found[CLASS_COUNTS] = [
                (rows if made.complete is None else rows * made.complete).total()
            ]
            if fold is not None or self.weights == ROWS:
                factors.append(rows)
        elif made.complete is not None:
            found[CLASS_COUNTS] = [made.complete.total()]

        def total(product: Expression | int) -> Expression:
            parts = [*([product] if isinstance(product, Expression) else []), *factors]
            return product_of(parts).total()

        if weighing is not None:
            factors.append(number_column(schema, weighing))
            found["weight"] = [total(made.product())]
        x = _varying(made)
        found |= {
            f"powers of v{j}": [total(made.product(one)) for one in _powers(j, degree)]
            for j, degree in made.polynomials
        }
        found["sums"] = [total(made.product(one)) for one in x]
        found["products"] = [total(made.product(x[a], x[b])) for a, b in _pairs(made)]
        return found

    def shapes(self, schema: PublicSchema) -> Shapes:
        made, found = self._design(schema), dict[str, tuple[int, ...]]()
        if schema.has_target or made.complete is not None:
            found[CLASS_COUNTS] = (1,)
        if self._weighing(schema) is not None:
            found["weight"] = (1,)
        found |= {f"powers of v{j}": (2 * degree,) for j, degree in made.polynomials}
        return {**found, "sums": (len(_varying(made)),), "products": (len(_pairs(made)),)}

    def column_pairs(self, schema: PublicSchema) -> list[tuple[int, int]]:
        """Return which two columns each of the products is of, y the last."""
        return _pairs(self._design(schema))

    def _learn_moments(self, totals: Totals, schema: PublicSchema) -> CrossProducts:
        """Return the moments of the totals, and set the names of the columns."""
        made = self._design(schema)
        x = _varying(made)
        self.columns_ = made.names(self.schema_)[made.intercept :]
        self.target_ = variable_name(self.schema_, made.targets[0])
        n = int(totals[CLASS_COUNTS].sum()) if CLASS_COUNTS in totals else self.n_rows_
        counted = (
            self.weights == ROWS
            or n == self.n_rows_
            or (made.complete is not None and n < self.n_rows_)
        )
        refuse_impossible(counted, f"{n:,} rows are counted, of {self.n_rows_:,}")
        if made.complete is not None:
            names = [variable_name(self.schema_, j) for j in (*made.variables, *made.targets)]
            check_complete_rows(n, self.n_rows_, names)
        self.n_missing_ = 0 if made.complete is None or self.weights == ROWS else self.n_rows_ - n
        weight, unit, weighing = n, 1, self._weighing(schema)
        if weighing is not None:
            weight, unit = int(totals["weight"][0]), scale(self.schema_, weighing)
        products = np.zeros((len(x), len(x)), dtype=object)
        for (a, b), value in zip(_pairs(made), totals["products"], strict=True):
            products[a, b] = products[b, a] = int(value)
        scales = np.array([one.scale(self.schema_) for one in x], dtype=object)
        sums = np.array([int(value) for value in totals["sums"]], dtype=object)
        found = CrossProducts(n, weight, sums, products, scales, unit, made.intercept)
        found.check()
        self._monomials, self._polynomials = found, dict[int, list[list[Fraction]]]()
        if made.is_plain:
            return found
        for j, degree in made.polynomials:
            base = scale(self.schema_, j)
            powers = [int(value) for value in totals[f"powers of v{j}"]]
            self._polynomials[j] = orthogonal(
                [Fraction(value, base**k) for k, value in enumerate([n, *powers])],
                degree,
                variable_name(self.schema_, j),
            )
        return found.combine(_combinations(made, self._polynomials))

    def _left_out(self) -> tuple[str, ...]:
        """Return notes on rows that the question and the schema left out."""
        n = self.n_missing_
        own = (
            (f"{n:,} row{' was' if n == 1 else 's were'} left out because of missing values",)
            if n
            else ()
        )
        return (*own, *note_dropped_rows(self.n_dropped_))

    # -- fitting -----------------------------------------------------------------------------------

    def _table_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        if y is None:
            raise ArgumentError(
                f"{type(self).__name__} requires y to be passed, but the target y is None (a "
                "Table brings its own)",
                code="y-missing",
            )
        frame = named_columns(self._check_frame(X, reset=True))
        name = find_unused_name(getattr(y, "name", None) or "target", frame)
        whole = repeat_rows(frame.assign(**{name: self._check_y(y, len(frame))}), sample_weight)
        return schema_of_numbers(whole, target=name).table(whole)

    def _rows_of(self, X: Any, y: Any, sample_weight: Any = None) -> Table:
        frame = named_columns(self._check_frame(X, reset=False))
        whole = frame.assign(**{self.target_: self._check_y(y, len(frame))})
        return self._get_private_schema().table(repeat_rows(whole, sample_weight))

    def _check_y(self, y: Any, n_rows: int) -> NDArray[np.float64]:
        from sklearn.utils.validation import check_array, column_or_1d

        checked = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype="numeric")
        values: NDArray[np.float64] = checked.astype(float)
        if len(values) != n_rows:
            raise ArgumentError(
                f"X has {n_rows} rows and y has {len(values)}: inconsistent numbers of samples",
                code="lengths-differ",
            )
        return values

    # -- predicting --------------------------------------------------------------------------------

    def _frame_to_predict(self, X: Any) -> pd.DataFrame:
        return self._with_unused(named_columns(self._check_frame(X, reset=False)))

    def _used_positions(self) -> Collection[int]:
        return self._fitted_design().variables

    def _matrix(self, X: Any) -> NDArray[np.float64]:
        """Return the columns of clear rows in their units, without the intercept, shape (rows,
        columns).
        """
        return self._matrix_and_offset(X)[0]

    def _matrix_and_offset(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        table, made = self._rows(X), self._fitted_design()
        monomials = table.leave_blank(made.monomials(table))
        if made.is_plain:
            return monomials[:, int(made.intercept) :], np.zeros(len(table))
        model, offset = made.transform(self._polynomials)
        found = combine(monomials, model) if len(model) else np.empty((len(table), 0))
        return found[:, int(made.intercept) :], combine(monomials, offset)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of the variance that is explained; rows without a prediction are
        refused.
        """
        from sklearn.metrics import r2_score

        rows = X if isinstance(X, Table) else self._rows(X, complete=True)
        return float(r2_score(y, self.predict(rows), sample_weight=sample_weight))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return what the regression expects of each row. Columns that depend on earlier ones are
        not used. NaN for rows where a value is missing or not allowed, and a warning names them.
        """
        self._check_open()
        x, offset = self._matrix_and_offset(X)
        found: NDArray[np.float64] = x @ np.nan_to_num(self.coef_) + self.intercept_ + offset
        return found


def _powers(variable: int, degree: int) -> list[DesignColumn]:
    """Return the powers of a number whose sums its orthogonal polynomials follow from."""
    return [DesignColumn((MonomialFactor(variable, None, k),)) for k in range(1, 2 * degree + 1)]


def _combinations(made: Design, polynomials: Mapping[int, Any]) -> Exact:
    """Return the columns of the model and y less the offset, as combinations of the monomials, y
    and a constant.
    """
    model, offset = made.transform(polynomials)
    first = int(made.intercept)
    lines = np.full((len(model) - first + 1, model.shape[1] + 1 - first), Fraction(0))
    lines[:-1, :-2], lines[:-1, -1] = model[first:, first:-1], model[first:, -1]
    lines[-1, :-2], lines[-1, -2:] = -offset[first:-1], [Fraction(1), -offset[-1]]
    return lines


def _varying(made: Design) -> list[DesignColumn]:
    """Return all columns but the intercept, the target last."""
    return [*(one for one in made.columns if one.factors), made.number(made.targets[0])]


def _pairs(made: Design) -> list[tuple[int, int]]:
    """Return which columns can be together in a row: bins of one variable exclude each other."""
    levels = [{factor.variable: factor.level for factor in one.factors} for one in _varying(made)]
    pairs = combinations_with_replacement(range(len(levels)), 2)
    return [
        (a, b)
        for a, b in pairs
        if all(levels[b].get(j, level) == level for j, level in levels[a].items())
    ]


def _check_size(made: Design) -> None:
    """Refuse more products of columns than anybody waits for, before they are listed. Columns of
    one term exclude each other.
    """
    n = len(made.columns) + 1
    owns = [len(term.columns) for term in made.terms] if made.is_plain else []
    if n * (n + 1) // 2 - sum(m * (m - 1) // 2 for m in owns) > MOST_PRODUCTS:
        raise ParameterError(
            f"the formula has {n - 1:,} columns, and more than {MOST_PRODUCTS:,} products of two "
            "of them: leave terms out",
            code="too-many-products",
        )


class LinearRegression(_LeastSquares):
    r"""Least squares, with all that R's ``summary(lm)`` says, from X'X, X'y and y'y; exact until
    the last rounding.

    The sums are integers and are centred as such. They are solved in fixed point, with as many
    digits as the columns need: ill-conditioned columns lose nothing. A column that depends on
    earlier ones is *aliased*, as in R: its coefficient is NaN, and it predicts nothing.
    (scikit-learn would spread the effect over all of them.)

    Parameters
    ----------
    formula : str
        As in R: ``"y ~ a*b + I(a^2) + poly(c, 2) + offset(d)"``, with variables by name or id;
        ``- 1`` leaves out the intercept. By default the target on all other variables.
    reference : dict, optional
        The levels that others are compared with, by variable; the first of each by default.
    weights : str, optional
        A variable that weighs the squares, as R's ``weights``; or ``"rows"`` for the weights of the
        table: 2 are two rows. A row with a weight of 0 counts in the degrees of freedom, as in
        statsmodels; R leaves it out.
    missing : {"complete", "level"}
        Rows in which a variable of the formula is missing are left out. With ``"level"`` the bin
        for missing values of a variable is a level as any other; rows without a number are left
        out all the same.
    fit_intercept : bool
    target : str, optional
        What is explained, in place of a formula; the target of the schema by default.
    variables : list of str, optional
        What explains it, in place of a formula; all others by default.

    Attributes
    ----------
    coef_ : array of shape (n_columns,)
        NaN where a column is aliased.
    intercept_ : float
    columns_ : list of str
        What the coefficients are called.
    aliased_ : list of str
    covariance_ : array
        Of the estimates, that of the intercept first.
    scale_ : float
        The residual variance.
    df_model_, df_resid_ : int

    Examples
    --------
    >>> import pandas as pd
    >>> from encryptedstats import LinearRegression
    >>> X = pd.DataFrame({"dose": [1, 2, 3, 4, 5]})
    >>> model = LinearRegression().fit(X, pd.Series([2.1, 3.9, 6.2, 7.8, 10.1], name="response"))
    >>> model.coef_.round(2), round(model.intercept_, 2)
    (array([1.99]), 0.05)
    """

    title: ClassVar[str] = "Linear regression"

    def __init__(
        self,
        formula: str = "",
        reference: Mapping[str, Any] | None = None,
        weights: str | None = None,
        missing: str = "complete",
        fit_intercept: bool = True,
        target: str | None = None,
        variables: Sequence[str] | None = None,
    ) -> None:
        self.formula = formula
        self.reference = reference
        self.weights = weights
        self.missing = missing
        self.fit_intercept = fit_intercept
        self.target = target
        self.variables = variables

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set coefficients, their covariances and the residual variance."""
        self._moments = self._learn_moments(totals, schema)
        self._solution = found = solve(self._moments)
        self.aliased_ = [name for j, name in enumerate(self.columns_) if j not in found.used]
        self.coef_ = as_floats(found.slopes)
        self.coef_[[j for j in range(len(self.coef_)) if j not in found.used]] = np.nan
        self.intercept_ = float(found.intercept)
        self.df_model_ = len(found.used)
        self.df_resid_ = self._moments.n_rows - self.df_model_ - self._moments.centred
        self._residual = found.residuals[-1] / self.df_resid_ if self.df_resid_ > 0 else None
        self.scale_ = math.nan if self._residual is None else float(self._residual)
        unscaled = found.unscaled_covariance
        self._unscaled = as_floats(unscaled)
        variance = Fraction(0) if self._residual is None else self._residual
        self.covariance_ = as_floats(unscaled * variance)
        if self._residual is None:
            self.covariance_[:] = np.nan
        if self.aliased_:
            warnings.warn(
                "aliased, they depend on columns before them and have no coefficient: "
                f"{', '.join(self.aliased_)}",
                UserWarning,
                stacklevel=6,
            )

    # -- what it says ------------------------------------------------------------------------------

    def summary(self, confidence: float = 0.95) -> RegressionResult:
        """Return what R's ``summary(lm)`` says, with intervals."""
        self._check_open()
        from scipy.stats import f as f_distribution

        n, moments, solution = self._moments.n_rows, self._moments, self._solution
        total, left = solution.residuals[0], solution.residuals[-1]
        rsquared = float(1 - left / total) if total else math.nan
        df, used = self.df_resid_, self.df_model_
        free = n - moments.centred
        adjusted = float(1 - left / df / (total / free)) if total and df > 0 else math.nan
        fvalue = math.nan
        if used and df > 0:
            fvalue = exact_ratio((total - left) / used * df, left)
        llf = math.nan
        if not self._weight_name() and left:
            llf = -n / 2 * (math.log(2 * math.pi) + math.log(float(left / n)) + 1)
        k = used + moments.centred
        notes = [*self._left_out()]
        notes += [f"aliased, depends on columns before it: {name}" for name in self.aliased_]
        notes += [*self._reference_notes(), *self._perfect_note()]
        if self._weight_name():
            notes.append(
                f"weighted by {self._weight_name()}; the log-likelihood would need the logarithms "
                "of the weights"
            )
        if df < 1:
            both = f"{plural(n, 'row')} and {plural(k, 'coefficient')}"
            notes.append(f"{both}: no degrees of freedom are left for standard errors")
        return RegressionResult(
            title=f"Linear regression of {self.target_} on "
            f"{', '.join(self.columns_) or 'a constant'}",
            n_rows=n,
            notes=tuple(notes),
            coefficients=self.coefficients(confidence),
            scale=self.scale_,
            confidence=confidence,
            statistic=fvalue,
            df=used,
            df_resid=df,
            pvalue=float(f_distribution.sf(fvalue, used, df)),
            rsquared=rsquared,
            rsquared_adj=adjusted,
            llf=llf,
            aic=2 * k - 2 * llf,
            bic=math.log(n) * k - 2 * llf,
        )

    def _reference_notes(self) -> list[str]:
        made, moments = self._fitted_design(), self._monomials
        levels = dict[int, set[int]]()
        for j, reference in made.compared:
            places = [
                (k, x.factors[0].level)
                for k, x in enumerate(_varying(made))
                if x.factors[0].variable == j and len(x.factors) == 1
            ]
            levels[j] = {level for k, level in places if level is not None and moments.sums[k]}
            if sum(moments.sums[k] for k, _ in places) < moments.weight:
                levels[j].add(reference)
        return made.reference_notes(levels, self.schema_)

    def _weight_name(self) -> str:
        weighing = self._weighing(self.schema_.public(), self.growth_)
        return "" if weighing is None else variable_name(self.schema_, weighing)

    def coefficients(self, confidence: float = 0.95) -> pd.DataFrame:
        """Estimate, standard error, t, p and interval of every coefficient."""
        self._check_open()
        from scipy.stats import t

        confidence = confidence_level(confidence)
        centred = self._moments.centred
        estimates = np.concatenate([[self.intercept_] if centred else [], self.coef_])
        errors = np.sqrt(np.diag(self.covariance_))
        errors[np.isnan(estimates)] = np.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            statistics = estimates / errors
        df = max(self.df_resid_, 1)
        width = t.ppf((1 + confidence) / 2, df) * errors
        table = {
            "estimate": estimates,
            "std_error": errors,
            "statistic": statistics,
            "df": float(df),
            "pvalue": 2 * t.sf(np.abs(statistics), df),
            "low": estimates - width,
            "high": estimates + width,
        }
        return pd.DataFrame(table, [*([INTERCEPT] if centred else []), *self.columns_])

    def anova(self, typ: int = 1) -> TableResult:
        """Analysis of variance, a line for each term: of type 1 in the order of the formula, as R's
        ``anova``; or of type 2.

        Of type 2, a term is tested after all others that do not contain it.
        """
        self._check_open()
        from scipy.stats import f as f_distribution

        if typ not in (1, 2):
            raise ArgumentError(f"typ={typ!r}: 1 and 2 are there", code="unknown-sum-type")
        made = self._fitted_design()
        owns = [[j - made.intercept for j in term.columns] for term in made.terms]
        factors = [frozenset(term.atoms) for term in made.terms]
        rows = {}
        for place, term in enumerate(made.terms):
            name = term.name(self.schema_)
            if typ == 1:
                rows[name] = self._solution.explained_by(owns[place])
            else:
                others = [k for k in range(len(owns)) if not factors[place] <= factors[k]]
                rows[name] = self._explained_after(
                    [j for k in others for j in owns[k]], owns[place]
                )
        df, left = self.df_resid_, self._solution.residuals[-1]
        table = []
        for terms_df, squares in rows.values():
            mean = squares / terms_df if terms_df else None
            f = exact_ratio(mean * df, left) if mean is not None and df > 0 else math.nan
            p = float(f_distribution.sf(f, terms_df, df)) if not math.isnan(f) else math.nan
            table.append(
                [terms_df, float(squares), math.nan if mean is None else float(mean), f, p]
            )
        table.append([df, float(left), self.scale_, math.nan, math.nan])
        frame = pd.DataFrame(table, [*rows, "Residual"], ANOVA_COLUMNS).astype({"df": int})
        return TableResult(
            title=f"Analysis of variance of {self.target_}, type {typ}",
            n_rows=self._moments.n_rows,
            notes=(*self._left_out(), *self._perfect_note()),
            table=frame,
        )

    def _explained_after(self, before: Sequence[int], own: Sequence[int]) -> tuple[int, Fraction]:
        """Return the degrees of freedom and the sum of squares of columns after some others."""
        found, all_others = self._solution, len(before) + len(own) == len(self.columns_)
        if all_others and found.is_stable_without(own):
            return found.explained_last(own)
        kept = solve(self._moments.of([*before, *own]))
        return kept.explained_by(range(len(before), len(before) + len(own)))

    def _perfect_note(self) -> tuple[str, ...]:
        perfect = self.df_resid_ > 0 and not self._solution.residuals[-1]
        return ("an essentially perfect fit: tests are not reliable",) if perfect else ()

    def vif(self) -> pd.Series[Any]:
        """Return variance inflation factors: how much larger the variance of each coefficient is
        than if the columns were uncorrelated.
        """
        self._check_open()
        found = [
            float(square * self._solution.inverse[j, j]) or math.nan
            for j, square in enumerate(self._moments.squares_in_units[:-1])
        ]
        return pd.Series(found, self.columns_, name="VIF")

    def predict(self, X: Any, interval: str | None = None, confidence: float = 0.95) -> Any:
        """Return what the regression expects of each row; with an ``interval``, for its mean or for
        a new observation, as R has it.

        New rows are read by the schema: numbers are rounded to its digits, and rows with numbers
        out of its bounds have no prediction.

        Parameters
        ----------
        X : DataFrame, array or Table
        interval : {"confidence", "prediction"}, optional
            Then a DataFrame with ``estimate``, ``low`` and ``high`` is returned.
        confidence : float
        """
        if interval is None:
            return super().predict(X)
        self._check_open()
        from scipy.stats import t

        if interval not in _INTERVALS:
            raise ArgumentError(
                f"interval={interval!r}: 'confidence' and 'prediction' are there, or None",
                code="unknown-interval",
            )
        confidence = confidence_level(confidence)
        x, offset = self._matrix_and_offset(X)
        fit = x @ np.nan_to_num(self.coef_) + self.intercept_ + offset
        around = as_floats(self._moments.means[:-1])
        x = (
            x - around
        )  # from the means, where the intercept is uncorrelated with the slopes: nothing cancels
        inverse = as_floats(self._solution.inverse)
        first = self._moments.weight_scale / self._moments.weight if self._moments.centred else 0.0
        leverage = first + np.einsum("ij,jk,ik->i", x, inverse, x)
        spread = np.sqrt(self.scale_ * (leverage + (interval == "prediction")))
        width = t.ppf((1 + confidence) / 2, max(self.df_resid_, 1)) * spread
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame({"estimate": fit, "low": fit - width, "high": fit + width}, index)


class Ridge(_LeastSquares):
    r"""Least squares with a penalty of alpha on the sum of the squared coefficients, not on the
    intercept.

    Totals are those of :class:`LinearRegression`, whatever alpha is: :meth:`path` and
    :meth:`cross_validate` need no other pass over the rows.

    Parameters
    ----------
    alpha : float
        At least 0.
    formula, reference, weights, missing, fit_intercept, target, variables
        See :class:`LinearRegression`.

    Attributes
    ----------
    coef_ : array of shape (n_columns,)
    intercept_ : float
    columns_ : list of str
    df_ : float
        Effective degrees of freedom, without the intercept.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from encryptedstats import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> Ridge(alpha=0.5).fit(X, y).coef_[:3].round(1)
    array([  20.1, -131.2,  383.5])
    """

    title: ClassVar[str] = "Ridge regression"
    constraints: ClassVar[Constraints] = {"alpha": ALPHA}

    def __init__(
        self,
        alpha: float = 1.0,
        formula: str = "",
        reference: Mapping[str, Any] | None = None,
        weights: str | None = None,
        missing: str = "complete",
        fit_intercept: bool = True,
        target: str | None = None,
        variables: Sequence[str] | None = None,
    ) -> None:
        self.alpha = alpha
        self.formula = formula
        self.reference = reference
        self.weights = weights
        self.missing = missing
        self.fit_intercept = fit_intercept
        self.target = target
        self.variables = variables

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse a penalty below 0."""
        super().check_schema(schema)
        self._read_alpha(self.alpha)

    @staticmethod
    def _read_alpha(alpha: Any) -> Fraction:
        ALPHA.check(alpha, "alpha")
        return Fraction(float(alpha))

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set the coefficients."""
        self._moments = self._learn_moments(totals, schema)
        alpha = self._read_alpha(self.alpha)
        found = solve(self._moments, alpha)
        self.coef_, self.intercept_ = as_floats(found.slopes), float(found.intercept)
        self.df_ = len(found.used) - float(alpha * sum(np.diag(found.inverse), Fraction(0)))

    def summary(self) -> RidgePath:
        """Return the coefficients, with the alpha of the fit."""
        self._check_open()
        return self.path([float(self.growth_["alpha"])])

    def path(self, alphas: Sequence[float]) -> RidgePath:
        """Return the coefficients for every alpha, from the same totals."""
        self._check_open()
        return self._path(
            self._moments, alphas, pd.DataFrame(index=pd.Index(alphas, name="alpha")), math.nan
        )

    def _path(
        self, moments: CrossProducts, alphas: Sequence[float], errors: pd.DataFrame, best: float
    ) -> RidgePath:
        rows = []
        for alpha in alphas:
            found = solve(moments, self._read_alpha(alpha))
            rows.append(
                [*([float(found.intercept)] if moments.centred else []), *as_floats(found.slopes)]
            )
        names = [*([INTERCEPT] if moments.centred else []), *self.columns_]
        return RidgePath(
            title=f"Ridge regression of {self.target_} by alpha",
            n_rows=moments.n_rows,
            notes=(
                *self._left_out(),
                *(() if math.isnan(best) else (f"least error over the folds: alpha = {best:g}",)),
            ),
            table=errors.join(pd.DataFrame(rows, errors.index, names)),
            best_alpha=best,
        )

    @staticmethod
    def cross_validate(models: Sequence[Ridge], alphas: Sequence[float]) -> RidgePath:
        """Choose alpha by cross-validation, from the totals of folds alone: ``models`` are what
        ``fit_folds`` gives, opened.

        Each of them is of all rows but those of a fold; what they differ by tells the sums of each
        fold, and these its squared errors.
        """
        models = list(models)
        whole, folds = sum_of_folds(models)
        errors = []
        for alpha in alphas:
            penalty = models[0]._read_alpha(alpha)
            each = []
            for rest, fold in folds:
                if not fold.weight:
                    continue
                each.append(
                    float(
                        _squared_error(solve(rest, penalty), fold)
                        / Fraction(fold.weight, fold.weight_scale)
                    )
                )
            errors.append(
                [
                    np.mean(each),
                    np.std(each, ddof=1) / math.sqrt(len(each)) if len(each) > 1 else math.nan,
                ]
            )
        table = pd.DataFrame(errors, pd.Index(alphas, name="alpha"), _ERRORS)
        best = float(table.index[int(table["estimate"].to_numpy().argmin())])
        return models[0]._path(whole, alphas, table, best)


def sum_of_folds(
    models: Sequence[_LeastSquares],
) -> tuple[CrossProducts, list[tuple[CrossProducts, CrossProducts]]]:
    """Return the moments of all rows, and of each fold: those of the others, and its own.

    Each of the models is of all rows but those of one fold.
    """
    if len(models) < 2:
        raise ArgumentError(
            "cross-validation needs the models of two folds at least: model.fit_folds(table), "
            "opened",
            code="too-few-folds",
        )
    for model in models:
        model._check_open()
        if model._polynomials:
            raise ArgumentError(
                "poly() has other columns in every fold: write poly(x, 2, raw = TRUE) to "
                "cross-validate",
                code="poly-in-folds",
            )
    all_but = [model._moments for model in models]
    whole = _sum_of(all_but, len(all_but) - 1)
    return whole, [(rest, _difference(whole, rest)) for rest in all_but]


def _sum_of(parts: Sequence[CrossProducts], times: int) -> CrossProducts:
    """Return the moments of all rows, where the parts together hold each row ``times`` times."""
    first = parts[0]
    refuse_impossible(
        all(sum(int(m.sums[j]) for m in parts) % times == 0 for j in range(len(first.sums))),
        "folds do not add up",
    )
    return replace(
        first,
        n_rows=sum(m.n_rows for m in parts) // times,
        weight=sum(m.weight for m in parts) // times,
        sums=np.sum([m.sums for m in parts], axis=0) // times,
        products=np.sum([m.products for m in parts], axis=0) // times,
    )


def _difference(whole: CrossProducts, part: CrossProducts) -> CrossProducts:
    return replace(
        whole,
        n_rows=whole.n_rows - part.n_rows,
        weight=whole.weight - part.weight,
        sums=whole.sums - part.sums,
        products=whole.products - part.products,
    )


def _squared_error(found: Solution, rows: CrossProducts) -> Fraction:
    """Return the sum of squared errors that a solution makes in other rows, exactly: (1, x, y)
    products with (-a, -b, 1).
    """
    k = len(rows.sums)
    whole = np.full((k + 1, k + 1), Fraction(0), dtype=object)
    whole[0, 0] = Fraction(rows.weight, rows.weight_scale)
    for a in range(k):
        whole[0, a + 1] = whole[a + 1, 0] = Fraction(
            int(rows.sums[a]), rows.weight_scale * int(rows.scales[a])
        )
        for b in range(k):
            unit = rows.weight_scale * int(rows.scales[a]) * int(rows.scales[b])
            whole[a + 1, b + 1] = Fraction(int(rows.products[a, b]), unit)
    line = np.array([-found.intercept, *(-found.slopes), Fraction(1)], dtype=object)
    error: Fraction = line @ whole @ line
    return error
