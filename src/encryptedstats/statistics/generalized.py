"""Generalized linear models of categorical covariates: the rows of every cell are all that the likelihood sees.

The full cross table of outcome and covariates is asked for, and the owner maximises the likelihood of its cells. That is the
maximum of the likelihood of the rows, not an approximation of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import DataError, ParameterError, SchemaError
from encryptedstats.models.base import TotalsModel, known_schema
from encryptedstats.statistics.factors import (
    Factor,
    cell_shape,
    cell_totals,
    factor,
    factor_position,
    groups,
    left_out,
    read_cells,
    totals_of,
)
from encryptedstats.statistics.results import Result, frame_text, number_text, stars
from encryptedstats.tables import EncryptedTable, Table
from encryptedstats.tables.naming import class_or_variable, variable_id
from encryptedstats.tables.questions import Arrays, Columns, Shapes, Totals, number_column, refuse_impossible
from encryptedstats.tables.schema import Schema
from encryptedstats.tables.statistics import scale, variable_name
from encryptedstats.tables.variables import PublicSchema

Floats = NDArray[np.float64]
INTERCEPT: Final = "(Intercept)"
FAMILIES: Final = ("binomial", "poisson")
MAX_CELLS: Final = 10_000
_ITERATIONS: Final = 30
_CONVERGED: Final = 1e-11
_MARKS: Final = "Signif. codes: 0 '***' 0.001 '**' 0.01 '*' 0.05 '.' 0.1 ' ' 1"


# -- which columns a formula means -------------------------------------------------------------------------------------------

Term = tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """An outcome and terms of factors: ``y ~ a + b + a:b``, where ``a*b`` is short for these three."""

    outcome: str
    terms: tuple[Term, ...]

    @classmethod
    def parse(cls, text: str) -> Formula:
        """The formula that a text means."""
        left, tilde, right = text.partition("~")
        if not tilde or not left.strip() or not right.strip():
            raise ParameterError(
                f"formula={text!r}: an outcome and its covariates are needed, such as 'y ~ a + b + a:b'"
            )
        terms: list[Term] = []
        for part in right.split("+"):
            names = [name.strip() for name in part.replace("*", ":").split(":")]
            if not all(names):
                raise ParameterError(f"formula={text!r}: a name is missing beside + or :")
            if names == ["1"]:
                continue
            sizes = range(1, len(names) + 1) if "*" in part else (len(names),)
            terms += [tuple(chosen) for size in sizes for chosen in combinations(names, size)]
        return cls(left.strip(), tuple(dict.fromkeys(terms)))

    @property
    def covariates(self) -> tuple[str, ...]:
        """The variables of the terms, each once."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term))

    def __str__(self) -> str:
        return f"{self.outcome} ~ {' + '.join(':'.join(term) for term in self.terms) or '1'}"


@dataclass(frozen=True)
class Design:
    """The columns of a model of factors: the intercept, then for each term the products of its levels.

    A factor of a term goes without its first level where the term without it is in the model, as in R.
    """

    factors: dict[str, Factor]
    terms: tuple[Term, ...]

    def _levels(self, term: Term, name: str) -> range:
        rest = tuple(other for other in term if other != name)
        known = not rest or any(set(rest) == set(other) for other in self.terms)
        return range(1 if known else 0, len(self.factors[name].labels))

    def _columns(self) -> list[tuple[Term, tuple[int, ...]]]:
        found: list[tuple[Term, tuple[int, ...]]] = [((), ())]
        for term in self.terms:
            found += [(term, levels) for levels in product(*(self._levels(term, name) for name in term))]
        return found

    @property
    def names(self) -> list[str]:
        """Of the columns: ``sex[male]``, ``sex[male]:arm[b]``."""
        return [
            ":".join(f"{self.factors[v].name}[{self.factors[v].labels[k]}]" for v, k in zip(term, levels, strict=True))
            or INTERCEPT
            for term, levels in self._columns()
        ]

    def matrix(self, codes: dict[str, NDArray[Any]], n: int) -> Floats:
        """The columns for cells or rows whose levels are known by number."""
        found = np.ones((n, len(self._columns())))
        for place, (term, levels) in enumerate(self._columns()):
            for name, level in zip(term, levels, strict=True):
                found[:, place] *= codes[name] == level
        return found


# -- the likelihood of cells ----------------------------------------------------------------------------------------------------


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
    """The columns that do not depend on earlier ones."""
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
    """Fisher scoring on cells: events among ``exposed`` trials (binomial), or over so much exposure (Poisson).

    Coefficients whose likelihood has no maximum (a cell without events, or with nothing else) move on at every step: they are
    ``unbounded``, and all others have converged.
    """
    kept = independent(matrix)
    x = matrix[:, kept]
    share = (events + 0.5) / (exposed + 1.0) if family == "binomial" else np.maximum(events, 0.1) / exposed
    link = np.log(share / (1 - share)) if family == "binomial" else np.log(share)
    beta, step, iterations, arrived = np.zeros(len(kept)), np.zeros(len(kept)), 0, False
    while not arrived and iterations < _ITERATIONS:
        iterations += 1
        mean, weight = _mean(link, exposed, family)
        working = link + (events - mean) / weight
        root = np.sqrt(weight)
        found = np.linalg.lstsq(x * root[:, None], working * root, rcond=None)[0]
        step, beta = found - beta, found
        link = np.clip(x @ beta, -700, 700)
        arrived = bool(np.abs(step).max(initial=0.0) <= _CONVERGED * (1 + np.abs(beta).max(initial=0.0)))
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
    """Expected events and their variance; kept above 0, so that cells without any still have a direction."""
    if family == "poisson":
        mean = exposed * np.exp(link)
        return mean, np.maximum(mean, 1e-290)
    share = 1 / (1 + np.exp(-link))
    return exposed * share, np.maximum(exposed * np.exp(-np.abs(link)) * np.maximum(share, 1 - share) ** 2, 1e-290)


def log_likelihood(events: Floats, exposed: Floats, mean: Floats, family: str) -> float:
    """Of the rows, each a trial of its own (binomial); of the counts of the cells (Poisson)."""
    from scipy.special import gammaln, xlogy

    if family == "poisson":
        return float((xlogy(events, mean) - mean - gammaln(events + 1)).sum())
    others = exposed - events
    return float((xlogy(events, mean / exposed) + xlogy(others, (exposed - mean) / exposed)).sum())


def deviance(events: Floats, exposed: Floats, mean: Floats, family: str) -> float:
    """Twice what a model with a parameter for every row (binomial) or cell (Poisson) is more likely."""
    from scipy.special import xlogy

    if family == "binomial":
        return max(0.0, -2 * log_likelihood(events, exposed, mean, family))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(events > 0, events / mean, 1.0)
    return max(0.0, float(2 * (xlogy(events, ratio) - (events - mean)).sum()))


# -- what the owner reads ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GLMResult(Result):
    """A fitted generalized linear model, as R's ``summary(glm)`` shows it.

    Attributes
    ----------
    coefficients : DataFrame
        Estimate, standard error, z, p and interval of every coefficient; NA for those that depend on earlier ones.
    formula, family : str
    deviance, null_deviance : float
    df_resid, df_null : int
    llf, aic : float
    iterations : int
        Of Fisher scoring.
    """

    coefficients: pd.DataFrame
    formula: str
    family: str
    deviance: float
    null_deviance: float
    df_resid: int
    df_null: int
    llf: float
    aic: float
    iterations: int

    def to_frame(self) -> pd.DataFrame:
        """The coefficients."""
        return self.coefficients

    def body(self) -> str:
        """The coefficients, and how well they fit."""
        table = self.coefficients.copy()
        table[""] = [stars(p) for p in table["Pr(>|z|)"]]
        return "\n".join(
            [
                "Coefficients:",
                frame_text(table),
                "---",
                _MARKS,
                "",
                f"    Null deviance: {number_text(self.null_deviance)} on {self.df_null} degrees of freedom",
                f"Residual deviance: {number_text(self.deviance)} on {self.df_resid} degrees of freedom",
                f"AIC: {number_text(self.aic)}",
                "",
                f"Number of Fisher Scoring iterations: {self.iterations}",
            ]
        )


def fitted_result(
    design: Design, matrix: Floats, events: Floats, exposed: Floats, family: str, **said: Any
) -> tuple[GLMResult, Fit]:
    """The maximum of the likelihood of cells, as a result. ``said`` are its other fields, and ``n_trials``: the rows or cells."""
    n_trials, confidence = said.pop("n_trials"), said.pop("confidence", 0.95)
    fit, names = maximise(matrix, events, exposed, family), design.names
    rank = len(names) - len(fit.aliased)
    llf = log_likelihood(events, exposed, fit.fitted, family)
    null = exposed * (events.sum() / exposed.sum())
    notes = list(said.pop("notes", ()))
    if fit.aliased:
        listed = ", ".join(names[place] for place in fit.aliased)
        notes.append(f"{len(fit.aliased)} coefficients not defined because of singularities (aliased): {listed}")
    if fit.unbounded:
        listed = ", ".join(names[place] for place in fit.unbounded)
        what = (
            "fitted probabilities numerically 0 or 1 occurred"
            if family == "binomial"
            else "fitted rates numerically 0 occurred"
        )
        notes.append(f"{what}: the likelihood has no maximum in {listed}, whose estimates grow without bound")
    result = GLMResult(
        coefficients=coefficient_table(names, fit, confidence),
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


def coefficient_table(names: Sequence[str], fit: Fit, confidence: float) -> pd.DataFrame:
    """Estimates with standard errors, Wald's tests and intervals."""
    from scipy.stats import norm

    error = np.sqrt(fit.covariance.diagonal())
    reach = float(norm.ppf((1 + confidence) / 2)) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        z = fit.coefficients / error
    found = {
        "Estimate": fit.coefficients,
        "Std. Error": error,
        "z value": z,
        "Pr(>|z|)": 2 * norm.sf(np.abs(z)),
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
            f"{model}: the full table of {', '.join(names)} has {sizes} = {cells:,} cells, and at most {MAX_CELLS:,} are asked "
            "for: leave variables out, or merge their levels; es.OneStepLogisticRegression takes many predictors and "
            "gives the one-step estimate"
        )


# -- the model --------------------------------------------------------------------------------------------------------------


class GLM(TotalsModel):
    r"""Logistic or Poisson regression on factors, by exact maximum likelihood from the full cross table.

    .. math:: \log \frac{p}{1 - p} = x'\beta \quad\text{or}\quad \log \frac{E[y]}{e} = x'\beta

    with the exposure e. Rows that agree in all covariates add up, so the rows of every cell are enough.

    Parameters
    ----------
    formula : str
        ``"y ~ a + b + a:b"``: an outcome and factors (variables with bins). A factor's first level is its reference.
    family : "binomial" or "poisson"
        The outcome has two levels, of which the second is the event; or is a number, which counts events.
    exposure : str, optional
        For Poisson: a number, the time or people that the events are out of. Rows count as 1 without it.

    Attributes
    ----------
    intercept_ : float
    coef_ : array
        All other coefficients, in the order of ``summary()``; NaN for those that depend on earlier ones.
    result_ : GLMResult

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"arm": ["a", "a", "a", "b", "b", "b"], "ill": [0, 0, 1, 0, 1, 1]})
    >>> model = es.GLM("ill ~ arm").fit(es.Schema.infer(frame, target="ill").table(frame))
    >>> [round(float(x), 4) for x in (model.intercept_, *model.coef_)]
    [-0.6931, 1.3863]
    """

    def __init__(self, formula: str, family: str = "binomial", exposure: str | None = None) -> None:
        self.formula = formula
        self.family = family
        self.exposure = exposure

    # -- what is asked -------------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """As they are asked with: of a fitted model by the ids of its variables, which is all that files may tell."""
        if hasattr(self, "schema_"):
            return self.in_ids(self.schema_).get_params()
        return dict(getattr(self, "growth_", self.get_params()))

    def in_ids(self, schema: Schema | PublicSchema) -> GLM:
        """With the ids of the variables, in the formula as well."""
        asked = Formula.parse(self.formula)
        ids = {name: variable_id(schema, name) for name in (asked.outcome, *asked.covariates)}
        terms = tuple(tuple(ids[name] for name in term) for term in asked.terms)
        exposure = None if self.exposure is None else variable_id(schema, self.exposure)
        return GLM(str(Formula(ids[asked.outcome], terms)), self.family, exposure)

    def _fit_table(self, table: Table | EncryptedTable, **options: Any) -> GLM:
        known = known_schema(table)
        asked = self.in_ids(known)
        asked.check_schema(known.public())
        totals = table.totals(asked, **options)
        block_ids = table.blocks.ids if isinstance(table, EncryptedTable) else ()
        return self._set_state(totals, known, table.n_rows, block_ids, asked.get_params())

    @property
    def _asked(self) -> dict[str, Any]:
        """What the totals are of: the parameters of the fit, by ids, once there is one."""
        found: dict[str, Any] = getattr(self, "growth_", None) or self.get_params()
        return found

    def _parsed(self) -> Formula:
        if self.family not in FAMILIES:
            raise ParameterError(self.named_parameter("family"), f": one of {', '.join(map(repr, FAMILIES))} is needed")
        return Formula.parse(self._asked["formula"])

    @property
    def _exposure(self) -> str | None:
        found: str | None = self._asked["exposure"]
        return found

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse outcomes and covariates of other kinds, and tables that are too large."""
        asked = self._parsed()
        for name in asked.covariates:
            position = class_or_variable(name, schema)
            if position != -1 and schema.variables[position].kind == "number":
                raise SchemaError(
                    f"the covariate {name!r} is kept as a number, and a GLM takes factors: cut it, "
                    "schema.with_bins(name, edges=[...]); es.OneStepLogisticRegression takes numbers"
                )
            factor_position(schema, name)
        outcome = class_or_variable(asked.outcome, schema)
        if outcome in [class_or_variable(name, schema) for name in asked.covariates]:
            raise SchemaError(f"{self.formula}: the outcome cannot be a covariate")
        if self.family == "binomial":
            levels = len(factor(schema, asked.outcome).labels)
            if levels != 2:
                raise SchemaError(f"the outcome {asked.outcome!r} has {levels} levels, and a binomial one has two")
            if self.exposure is not None:
                raise ParameterError(self.named_parameter("exposure"), ": only family='poisson' has one")
            check_size("GLM", (asked.outcome, *asked.covariates), cell_shape(schema, self._axes()))
            return
        if not asked.terms:
            raise ParameterError(
                self.named_parameter("formula"), ": a Poisson regression needs a factor; see es.IncidenceRate"
            )
        for name in (asked.outcome, *([] if self._exposure is None else [self._exposure])):
            number_column(schema, class_or_variable(name, schema))
        check_size("GLM", asked.covariates, cell_shape(schema, self._axes()))

    def _axes(self) -> tuple[str, ...]:
        asked = self._parsed()
        return (asked.outcome, *asked.covariates) if self.family == "binomial" else asked.covariates

    def _sums(self) -> dict[str, str]:
        """Numbers that are added up in every cell."""
        if self.family == "binomial":
            return {}
        return {"events": self._parsed().outcome} | ({} if self._exposure is None else {"exposure": self._exposure})

    def totals(self, schema: PublicSchema, columns: Columns = None, fold: int | None = None) -> Arrays:
        """The rows of every cell; for Poisson also their events and exposure."""
        found: dict[str, Any] = {"cells": cell_totals(schema, self._axes(), fold)}
        for name, number in self._sums().items():
            inside = groups(schema, self._axes(), fold, present=True)
            found[name] = totals_of(inside * number_column(schema, class_or_variable(number, schema)))
        return found

    def shapes(self, schema: PublicSchema) -> Shapes:
        """One for every cell."""
        sums = dict.fromkeys(self._sums(), cell_shape(schema, self._axes(), present=True))
        return {"cells": cell_shape(schema, self._axes()), **sums}

    # -- what is learnt ------------------------------------------------------------------------------------------------

    def learn(self, totals: Totals, schema: PublicSchema) -> None:
        """The maximum of the likelihood."""
        asked, known = self._parsed(), self.schema_
        cells = read_cells(totals["cells"], known, self._axes(), self.n_rows_)
        covariates = cells.factors[1:] if self.family == "binomial" else cells.factors
        self.design_ = Design(dict(zip(asked.covariates, covariates, strict=True)), asked.terms)
        rows, events = map(np.atleast_1d, self._outcomes(cells.counts, totals, known))
        places = np.argwhere(rows > 0)
        if not cells.n or not len(places):
            raise DataError("there are no rows to fit a model to")
        chosen = tuple(places.T)
        codes = {name: places[:, axis] for axis, name in enumerate(asked.covariates)}
        matrix = self.design_.matrix(codes, len(places))
        binomial = self.family == "binomial"
        if not events[chosen].sum() or (binomial and events[chosen].sum() == rows[chosen].sum()):
            raise DataError("the outcome is the same in all rows: there is nothing to explain")
        title = f"{'Logistic' if binomial else 'Poisson'} regression"
        self.result_, self.fit_ = fitted_result(
            self.design_,
            matrix,
            events[chosen].astype(float),
            rows[chosen].astype(float),
            self.family,
            title=title,
            n_rows=cells.n,
            notes=(*left_out(cells.n_missing, [one.name for one in cells.factors]), *self._assumed(known, asked)),
            formula=self._shown(known, asked),
            n_trials=cells.n if binomial else len(places),
        )
        self.intercept_ = float(self.fit_.coefficients[0])
        self.coef_ = self.fit_.coefficients[1:]

    def _outcomes(
        self, counts: NDArray[Any], totals: Totals, schema: Schema | PublicSchema
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """What is exposed in every cell, and the events among it."""
        if self.family == "binomial":
            return counts.sum(axis=0), counts[1]
        units = {
            name: scale(schema, class_or_variable(number, schema.public())) for name, number in self._sums().items()
        }
        events = totals["events"].astype(float) / units["events"]
        if events.min() < 0:
            raise DataError("a Poisson outcome counts events, and a cell has fewer than none: is it a number below 0?")
        if self._exposure is None:
            return counts, events
        exposure = totals["exposure"].astype(float) / units["exposure"]
        refuse_impossible(bool((events[exposure <= 0] == 0).all()), "a cell has events and no exposure")
        return exposure, events

    def _assumed(self, schema: Schema | PublicSchema, asked: Formula) -> list[str]:
        if self.family == "binomial":
            outcome = factor(schema, asked.outcome)
            return [f"event: {outcome.name} is {outcome.labels[1]}"]
        said = ["deviance, its degrees of freedom and AIC are those of the cells, whose counts were added up"]
        if self._exposure is not None:
            name = variable_name(schema, class_or_variable(self._exposure, schema.public()))
            said.append(f"rates are per unit of {name}")
        return said

    def _shown(self, schema: Schema | PublicSchema, asked: Formula) -> str:
        names = {name: self.design_.factors[name].name for name in asked.covariates}
        outcome = variable_name(schema, class_or_variable(asked.outcome, schema.public()))
        return str(Formula(outcome, tuple(tuple(names[name] for name in term) for term in asked.terms)))

    def summary(self) -> GLMResult:
        """The fitted model as R shows it."""
        self._check_open()
        return self.result_

    def predict(self, X: Any) -> Floats:
        """The expected outcome of each row: its probability of the event, or its events per unit of exposure."""
        table = self._rows(X)
        codes = {}
        for name, one in self.design_.factors.items():
            codes[name] = table.data[one.position]
            if (codes[name] >= len(one.labels)).any():
                raise SchemaError(f"the rows have missing values of {one.name!r}, and the model knows no such level")
        found = self.design_.matrix(codes, len(table)) @ np.nan_to_num(self.fit_.coefficients)
        return np.exp(found) if self.family == "poisson" else 1 / (1 + np.exp(-found))
