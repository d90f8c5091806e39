"""Generalized linear models of categorical covariates: the rows of every cell are all that the
likelihood sees.

The full cross table of outcome and covariates is asked for, and the owner maximises the likelihood
of its cells. That is the maximum of the likelihood of the rows, not an approximation of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError, DataError, ParameterError, SchemaError
from encryptedstats.models.base import TotalsModel
from encryptedstats.statistics._distributions import chi2_tail, normal_quantile, normal_tails
from encryptedstats.statistics.designs import Design, design
from encryptedstats.statistics.factors import (
    cell_shape,
    cell_totals,
    factor,
    groups,
    read_cells,
    totals_of,
)
from encryptedstats.statistics.formulas import (
    INTERCEPT,
    OfFormula,
    regression_formula,
)
from encryptedstats.statistics.results import Coefficients
from encryptedstats.tables.answers.results import TableResult, note_dropped_rows
from encryptedstats.tables.questions.constraints import (
    CONFIDENCE,
    Choice,
    Constraints,
)
from encryptedstats.tables.questions.question import Arrays, Columns, Shapes, Totals, number_column
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.names import position, target_id
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
FAMILIES: Final = ("binomial", "poisson")
MAX_CELLS: Final = 10_000
_ITERATIONS: Final = 30
_CONVERGED: Final = 1e-11


Levels = tuple[
    tuple[int, int], ...
]  # of a column: the axes of the cells it looks at, and the level that it wants on each


def cell_matrix(columns: Sequence[Levels], places: NDArray[Any]) -> Floats:
    """Return the columns of a design for cells: 1 where a cell has all levels of a
    column, else 0.
    """
    found = np.ones((len(places), len(columns)))
    for place, levels in enumerate(columns):
        for axis, level in levels:
            found[:, place] *= places[:, axis] == level
    return found


# -- the likelihood of cells -----------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """The maximum of a likelihood; no number stands for columns that depend on earlier ones."""

    coefficients: Floats
    covariance: Floats
    fitted: Floats
    iterations: int
    aliased: tuple[int, ...]
    unbounded: tuple[int, ...]


def independent(matrix: Floats) -> list[int]:
    """Return the columns that do not depend on earlier ones."""
    kept: list[int] = []
    basis: list[Floats] = []
    for place in range(matrix.shape[1]):
        rest = matrix[:, place].copy()
        for _ in range(2):  # once more for what rounding has left
            for direction in basis:
                rest -= direction * (direction @ rest)
        size = float(np.linalg.norm(rest))
        if size > 1e-9 * max(1.0, float(np.linalg.norm(matrix[:, place]))):
            kept.append(place)
            basis.append(rest / size)
    return kept


def maximise(matrix: Floats, events: Floats, exposed: Floats, family: str) -> Fit:
    """Fisher scoring on cells: events among ``exposed`` trials (binomial), or over so much exposure
    (Poisson).

    Coefficients whose likelihood has no maximum (a cell without events, or with nothing else) move
    on at every step: they are ``unbounded``, and all others have converged.
    """
    kept = independent(matrix)
    x = matrix[:, kept]
    share = (
        (events + 0.5) / (exposed + 1.0)
        if family == "binomial"
        else np.maximum(events, 0.1) / exposed
    )
    link = np.log(share / (1 - share)) if family == "binomial" else np.log(share)
    beta: Floats = np.zeros(len(kept))
    step: Floats = np.zeros(len(kept))
    iterations, arrived = 0, False
    while not arrived and iterations < _ITERATIONS:
        iterations += 1
        mean, weight = _mean(link, exposed, family)
        working = link + (events - mean) / weight
        root = np.sqrt(weight)
        found = np.linalg.lstsq(x * root[:, None], working * root, rcond=None)[0].astype(np.float64)
        step, beta = found - beta, found
        link = np.clip(x @ beta, -700, 700)
        arrived = bool(
            np.abs(step).max(initial=0.0) <= _CONVERGED * (1 + np.abs(beta).max(initial=0.0))
        )
    mean, weight = _mean(link, exposed, family)
    _, triangle = np.linalg.qr(x * np.sqrt(weight)[:, None])
    inverse = np.linalg.pinv(triangle)
    n = matrix.shape[1]
    coefficients, covariance = np.full(n, np.nan), np.full((n, n), np.nan)
    coefficients[kept] = beta
    covariance[np.ix_(kept, kept)] = inverse @ inverse.T
    moving = np.abs(step) > 1e-3
    return Fit(
        coefficients,
        covariance,
        mean,
        iterations,
        tuple(place for place in range(n) if place not in kept),
        tuple(np.array(kept, dtype=int)[moving].tolist()),
    )


def _mean(link: Floats, exposed: Floats, family: str) -> tuple[Floats, Floats]:
    """Expected events and their variance; kept above 0, so that cells without any still have a
    direction.
    """
    if family == "poisson":
        mean = exposed * np.exp(link)
        return mean, np.maximum(mean, 1e-290)
    share = 1 / (1 + np.exp(-link))
    return exposed * share, np.maximum(
        exposed * np.exp(-np.abs(link)) * np.maximum(share, 1 - share) ** 2, 1e-290
    )


def log_likelihood(events: Floats, exposed: Floats, mean: Floats, family: str) -> float:
    """Return the log-likelihood of the rows (binomial) or of the counts of the cells (Poisson)."""
    from scipy.special import gammaln, xlogy

    if family == "poisson":
        return float((xlogy(events, mean) - mean - gammaln(events + 1)).sum())
    others = exposed - events
    return float((xlogy(events, mean / exposed) + xlogy(others, (exposed - mean) / exposed)).sum())


def deviance(events: Floats, exposed: Floats, mean: Floats, family: str) -> float:
    """Return twice what a model with a parameter for every row (binomial) or cell (Poisson) is more
    likely.
    """
    from scipy.special import xlogy

    if family == "binomial":
        return max(0.0, -2 * log_likelihood(events, exposed, mean, family))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(events > 0, events / mean, 1.0)
    return max(0.0, float(2 * (xlogy(events, ratio) - (events - mean)).sum()))


# -- what the owner reads --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GLMResult(Coefficients):
    """A fitted generalized linear model, as R's ``summary(glm)`` shows it.

    Attributes
    ----------
    coefficients : DataFrame
        Estimate, standard error, z, p and interval of every coefficient; NaN for those that depend
        on earlier ones.
    formula, family : str
    deviance, null_deviance : float
    df_resid, df_null : int
    llf, aic : float
    iterations : int
        Of Fisher scoring.
    """

    formula: str
    family: str
    deviance: float
    null_deviance: float
    df_resid: int
    df_null: int
    llf: float
    aic: float
    iterations: int


def fitted_result(
    names: Sequence[str], matrix: Floats, events: Floats, exposed: Floats, family: str, **said: Any
) -> tuple[GLMResult, Fit]:
    """Return the maximum of the likelihood of cells, as a result. ``said`` are its other fields,
    and ``n_trials``: the rows or cells.
    """
    n_trials, confidence = said.pop("n_trials"), said.pop("confidence", 0.95)
    fit = maximise(matrix, events, exposed, family)
    rank = len(names) - len(fit.aliased)
    llf = log_likelihood(events, exposed, fit.fitted, family)
    null = exposed * (events.sum() / exposed.sum())
    notes = list(said.pop("notes", ()))
    if fit.aliased:
        listed = ", ".join(names[place] for place in fit.aliased)
        notes.append(
            f"{len(fit.aliased)} coefficients not defined because of singularities (aliased): "
            f"{listed}"
        )
    if fit.unbounded:
        listed = ", ".join(names[place] for place in fit.unbounded)
        what = (
            "fitted probabilities numerically 0 or 1 occurred"
            if family == "binomial"
            else "fitted rates numerically 0 occurred"
        )
        notes.append(
            f"{what}: the likelihood has no maximum in {listed}, whose estimates grow without bound"
        )
    result = GLMResult(
        coefficients=coefficient_table(names, fit, confidence),
        confidence=confidence,
        family=family,
        deviance=deviance(events, exposed, fit.fitted, family),
        null_deviance=deviance(events, exposed, null, family),
        df_resid=n_trials - rank,
        df_null=n_trials - 1,
        llf=llf,
        aic=2 * rank - 2 * llf,
        iterations=fit.iterations,
        notes=tuple(notes),
        **said,
    )
    return result, fit


def coefficient_table(
    names: Sequence[str], fit: Fit, confidence: float, df: float = math.nan
) -> pd.DataFrame:
    """Return estimates with standard errors, Wald's tests and intervals; of Student's distribution
    with ``df`` degrees of freedom, where there are any.
    """
    from scipy.stats import t

    error = np.sqrt(fit.covariance.diagonal())
    with np.errstate(divide="ignore", invalid="ignore"):
        z = fit.coefficients / error
    if math.isnan(df):
        reach, pvalue = normal_quantile(confidence) * error, [normal_tails(one) for one in z]
    else:
        reach, pvalue = t.ppf((1 + confidence) / 2, df) * error, 2 * t.sf(np.abs(z), df)
    found = {
        "estimate": fit.coefficients,
        "std_error": error,
        "statistic": z,
        "df": df,
        "pvalue": pvalue,
        "low": fit.coefficients - reach,
        "high": fit.coefficients + reach,
    }
    return pd.DataFrame(found, index=pd.Index(list(names)))


def check_size(model: str, names: Sequence[str], shape: Sequence[int]) -> None:
    """Refuse a cross table that is too large to be asked for, and say what else there is."""
    cells = math.prod(shape)
    if cells > MAX_CELLS:
        sizes = " x ".join(map(str, shape))
        raise ParameterError(
            f"{model}: the full table of {', '.join(names)} has {sizes} = {cells:,} cells, and at "
            f"most {MAX_CELLS:,} are asked "
            "for: leave variables out, or merge their levels; es.OneStepLogisticRegression takes "
            "many predictors and "
            "gives the one-step estimate",
            code="table-too-large",
        )


# -- the model -------------------------------------------------------------------------------------


class GLM(OfFormula, TotalsModel):
    r"""Logistic or Poisson regression on factors, by exact maximum likelihood from the full cross
    table.

    .. math:: \log \frac{p}{1 - p} = x'\beta \quad\text{or}\quad \log \frac{E[y]}{e} = x'\beta

    with the exposure e. Rows that agree in all covariates add up, so the rows of every cell are
    enough.

    Parameters
    ----------
    formula : str
        ``"y ~ a + b + a:b"``: an outcome and factors (variables with bins). By default the target
        on all other variables.
    family : "binomial" or "poisson"
        The outcome has two levels, of which the second is the event; or is a number, which counts
        events.
    exposure : str, optional
        For Poisson: a number, the time or people that the events are out of. Rows count as 1
        without it.
    reference : dict, optional
        The level of a factor that all others are compared with; its first by default.
    target : str, optional
        The outcome, in place of a formula; the target of the schema by default.
    variables : list of str, optional
        The factors, in place of a formula; all other variables by default.

    Attributes
    ----------
    intercept_ : float
    coef_ : array
        All other coefficients, in the order of ``summary()``; NaN for those that depend on earlier
        ones.
    result_ : GLMResult

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"arm": ["a", "a", "a", "b", "b", "b"], "ill": [0, 0, 1, 0, 1, 1]})
    >>> model = es.GLM("ill ~ arm").fit(es.Schema.infer(frame, target="ill").table(frame))
    >>> [round(float(x), 4) for x in (model.intercept_, *model.coef_)]
    [-0.6931, 1.3863]
    """

    title: ClassVar[str] = "Logistic or Poisson regression"
    constraints: ClassVar[Constraints] = {
        "family": Choice(values=FAMILIES, code="unknown-family"),
    }
    of_variables: ClassVar[tuple[str, ...]] = ("exposure", "target", "variables")

    def __init__(
        self,
        formula: str = "",
        family: str = "binomial",
        exposure: str | None = None,
        reference: Mapping[str, Any] | None = None,
        target: str | None = None,
        variables: Sequence[str] | None = None,
    ) -> None:
        self.formula = formula
        self.family = family
        self.exposure = exposure
        self.reference = reference
        self.target = target
        self.variables = variables

    # -- what is asked -----------------------------------------------------------------------------

    @property
    def _arguments(self) -> dict[str, Any]:
        """Return what the totals are of: the parameters of the fit, by ids, once there is one."""
        found: dict[str, Any] = getattr(self, "growth_", None) or self.parameters()
        return found

    def _design(self, schema: PublicSchema) -> Design:
        asked = self._arguments
        found = design(regression_formula(asked), schema, asked["reference"], missing="complete")
        if found.offset.parts:
            raise ParameterError(
                "a GLM of factors has no offset(): of a Poisson regression, exposure= names the "
                "number that rates are out of",
                code="offset-in-glm",
            )
        if len(found.targets) != 1 or not found.intercept:
            raise ParameterError(
                self.named_parameter("formula"),
                ": a GLM has one outcome and an intercept",
                code="outcome-or-intercept-missing",
            )
        return found

    def _outcome(self, schema: PublicSchema) -> str:
        outcome = self._design(schema).targets[0]
        return target_id(schema) if outcome == -1 else f"v{outcome}"

    def _covariates(self, schema: PublicSchema) -> tuple[str, ...]:
        return tuple(f"v{j}" for j in self._design(schema).variables)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse outcomes and covariates of other kinds, and tables that are too large."""
        for name in self._covariates(schema):
            if not schema.variables[schema.index(name)].n_bins:
                raise SchemaError(
                    f"the covariate {name!r} is kept as a number, and a GLM takes factors: cut it, "
                    "schema.with_bins(name, edges=[...]); es.OneStepLogisticRegression takes "
                    "numbers",
                    code="kept-as-number",
                )
        if self.family == "binomial":
            levels = len(factor(schema, self._outcome(schema)).labels)
            if levels != 2:
                raise SchemaError(
                    f"the outcome {self._outcome(schema)!r} has {levels} levels, and a binomial "
                    "one has two",
                    code="not-two-levels",
                )
            if self.exposure is not None:
                raise ParameterError(
                    self.named_parameter("exposure"),
                    ": only family='poisson' has one",
                    code="exposure-not-poisson",
                )
        elif not self._covariates(schema):
            raise ParameterError(
                self.named_parameter("formula"),
                ": a Poisson regression needs a factor; see es.IncidenceRate",
                code="no-predictors",
            )
        for number in self._sums(schema).values():
            number_column(schema, position(schema, number))
        check_size("GLM", self._axes(schema), cell_shape(schema, self._axes(schema)))

    def _axes(self, schema: PublicSchema) -> tuple[str, ...]:
        covariates = self._covariates(schema)
        return (self._outcome(schema), *covariates) if self.family == "binomial" else covariates

    def _sums(self, schema: PublicSchema) -> dict[str, str]:
        """Return numbers that are added up in every cell."""
        if self.family == "binomial":
            return {}
        exposure = self._arguments["exposure"]
        return {"events": self._outcome(schema)} | (
            {} if exposure is None else {"exposure": exposure}
        )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every cell; for Poisson also their events and exposure."""
        axes = self._axes(schema)
        found: dict[str, Any] = {"cells": cell_totals(schema, axes, fold)}
        for name, number in self._sums(schema).items():
            inside = groups(schema, axes, fold, present=True)
            found[name] = totals_of(inside * number_column(schema, position(schema, number)))
        return found

    def shapes(self, schema: PublicSchema) -> Shapes:
        axes = self._axes(schema)
        sums = dict.fromkeys(self._sums(schema), cell_shape(schema, axes, present=True))
        return {"cells": cell_shape(schema, axes), **sums}

    # -- what is learnt ----------------------------------------------------------------------------

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """Set the maximum of the likelihood."""
        known, binomial = self.schema_, self.family == "binomial"
        cells = read_cells(totals["cells"], known, self._axes(schema), self.n_rows_)
        rows, events = map(np.atleast_1d, self._outcomes(cells.counts, totals, known))
        places = np.argwhere(rows > 0)
        chosen = tuple(places.T)
        if not len(places) or not events[chosen].sum() or (binomial and events.sum() == rows.sum()):
            raise DataError(
                "the outcome is the same in all rows, or there are none: there is nothing to "
                "explain",
                code="constant-outcome",
            )
        made = self._design(schema)
        self.columns_ = [
            tuple((f.variable, f.level or 0) for f in column.factors) for column in made.columns
        ]
        axis = {j: place for place, j in enumerate(made.variables)}
        matrix = cell_matrix(
            [tuple((axis[j], level) for j, level in one) for one in self.columns_], places
        )
        shown = self._write_formula(made, known)
        notes = made.reference_notes(
            {j: set(places[:, place].tolist()) for j, place in axis.items()}, known
        )
        counted = events[chosen].astype(float), rows[chosen].astype(float)
        self._cells = (matrix, *counted)
        self.result_, self.fit_ = fitted_result(
            [column.name(known) if column.factors else INTERCEPT for column in made.columns],
            matrix,
            *counted,
            self.family,
            title=f"{'Logistic' if binomial else 'Poisson'} regression: {shown}",
            n_rows=cells.n,
            notes=(
                *cells.notes,
                *note_dropped_rows(self.n_dropped_),
                *self._list_assumptions(known),
                *notes,
            ),
            formula=shown,
            n_trials=cells.n if binomial else len(places),
        )
        self.intercept_ = float(self.fit_.coefficients[0])
        self.coef_ = self.fit_.coefficients[1:]

    def _outcomes(
        self, counts: NDArray[Any], totals: Totals, schema: Schema | PublicSchema
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return what is exposed in every cell, and the events among it."""
        if self.family == "binomial":
            return counts.sum(axis=0), counts[1]
        public = schema.public()
        units = {
            name: scale(schema, position(public, number))
            for name, number in self._sums(public).items()
        }
        events = totals["events"].astype(float) / units["events"]
        if events.min() < 0:
            raise DataError(
                "a Poisson outcome counts events, and a cell has fewer than none: is it a number "
                "below 0?",
                code="negative-count",
            )
        if "exposure" not in units:
            return counts, events
        exposure = totals["exposure"].astype(float) / units["exposure"]
        if (events[exposure <= 0] > 0).any():
            raise DataError(
                "a cell has events and no exposure: its rate is infinite",
                code="events-without-exposure",
            )
        return exposure, events

    def _list_assumptions(self, schema: Schema | PublicSchema) -> list[str]:
        if self.family == "binomial":
            outcome = factor(schema, self._outcome(schema.public()))
            return [f"event: {outcome.name} is {outcome.labels[1]}"]
        said = [
            "deviance, its degrees of freedom and AIC are those of the cells, whose counts were "
            "added up"
        ]
        if self._arguments["exposure"] is not None:
            said.append(
                "rates are per unit of "
                f"{variable_name(schema, position(schema, self._arguments['exposure']))}"
            )
        return said

    def _write_formula(self, made: Design, schema: Schema | PublicSchema) -> str:
        """Return the formula, by the names that are known here."""
        terms = " + ".join(term.name(schema) for term in made.terms) or "1"
        return f"{variable_name(schema, made.targets[0])} ~ {terms}"

    def anova(self, typ: int = 1) -> TableResult:
        """Return likelihood-ratio tests of the terms, from the same totals.

        Of type 1 each term is tested after those before it, as R's ``anova(model, test="LRT")``; of
        type 2 after all others that do not contain it.
        """
        self._check_open()
        if typ not in (1, 2):
            raise ArgumentError(f"typ={typ!r}: 1 and 2 are there", code="unknown-sum-type")
        made = self._design(self.schema_.public())
        terms = [set(term.columns) for term in made.terms]
        atoms = [frozenset(term.atoms) for term in made.terms]
        matrix, events, exposed = self._cells

        def fit_columns(places: set[int]) -> tuple[float, int]:
            chosen = matrix[:, sorted({0, *places})]
            fit = maximise(chosen, events, exposed, self.family)
            return deviance(events, exposed, fit.fitted, self.family), chosen.shape[1] - len(
                fit.aliased
            )

        lines = []
        before, rank = fit_columns(set())
        used: set[int] = set()
        for k, own in enumerate(terms):
            if typ == 2:
                others = [one for j, one in enumerate(terms) if not atoms[k] <= atoms[j]]
                used = set().union(*others)
                before, rank = fit_columns(used)
            left, more = fit_columns(used | own)
            lines.append(
                [float(more - rank), left, before - left, chi2_tail(before - left, more - rank)]
            )
            used, before, rank = used | own, left, more
        return TableResult(
            title=f"Analysis of deviance of {self.result_.formula}, type {typ}",
            n_rows=self.result_.n_rows,
            notes=self.result_.notes,
            table=pd.DataFrame(
                lines,
                [term.name(self.schema_) for term in made.terms],
                ["df", "deviance", "statistic", "pvalue"],
            ),
        )

    def summary(self, confidence: float = 0.95) -> GLMResult:
        """Return the fitted model as R shows it, with intervals of this level."""
        self._check_open()
        CONFIDENCE.check(confidence, "confidence")
        names = list(self.result_.coefficients.index)
        table = coefficient_table(names, self.fit_, float(confidence))
        return replace(self.result_, coefficients=table, confidence=float(confidence))

    def predict(self, X: Any) -> Floats:
        """Return the expected outcome of each row: its probability of the event, or its events per
        unit of exposure. NaN for rows where a value is missing or not allowed.
        """
        table = self._rows(X)
        used = list(dict.fromkeys(j for levels in self.columns_ for j, _ in levels))
        missing = np.zeros(len(table), dtype=bool)
        for j in used:
            known = self.schema_.public().variables[j]
            if known.missing_bin:
                missing |= table.codes_of(j) == known.n_bins - 1
        codes = np.column_stack(
            [np.asarray(table.codes_of(j)) for j in used] or [np.zeros((len(table), 0))]
        )
        columns = [tuple((used.index(j), level) for j, level in levels) for levels in self.columns_]
        found = cell_matrix(columns, codes) @ np.nan_to_num(self.fit_.coefficients)
        expected = np.exp(found) if self.family == "poisson" else 1 / (1 + np.exp(-found))
        return table.leave_blank(np.where(missing, np.nan, expected))
