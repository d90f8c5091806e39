"""What regressions over sites come to: R's ``summary(glm)``, and predictions of clear rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from encryptedstats.errors import Cure, DataError, SchemaError
from encryptedstats.procedures.pooled.algebra import unpack
from encryptedstats.procedures.pooled.base import full_covariance
from encryptedstats.procedures.pooled.covariates import Covariates, Spread
from encryptedstats.procedures.pooled.families import (
    BINOMIAL,
    ESTIMATED,
    FAMILIES,
    GAMMA,
    LARGEST_THETA,
    LINKS,
    NEGATIVE,
    POISSON,
)
from encryptedstats.statistics.factors import factor
from encryptedstats.statistics.generalized import Fit, GLMResult, coefficient_table
from encryptedstats.tables.encodings import GAP
from encryptedstats.tables.questions.constraints import CONFIDENCE
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.rows.table_from_frame import rows_to_predict
from encryptedstats.tables.schema.names import position, target_id
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

if TYPE_CHECKING:
    from encryptedstats.procedures.pooled.glm import PooledGLM

Floats = NDArray[np.float64]
NOT_CONVERGED: Final = "algorithm did not converge"


@dataclass(frozen=True)
class Predictor:
    """The linear predictor of clear rows, by the coefficients of columns in their own units.

    Attributes
    ----------
    covariates : Covariates
    coefficients : array
        0 for columns that are aliased.
    schema : Schema or PublicSchema
    exposure : str or None
    """

    covariates: Covariates
    coefficients: Floats
    schema: Schema | PublicSchema
    exposure: str | None = None

    def table(self, X: Any) -> Table:
        """Return rows to predict as a table; a warning names rows without a prediction."""
        if isinstance(X, Table):
            return X
        if not isinstance(self.schema, Schema):
            raise SchemaError(
                "this was read without the names of variables: ",
                Cure("open with names", "read the study with schema="),
                code="no-names",
            )
        used = list(self.covariates.made.variables)
        if self.exposure is not None:
            used.append(position(self.schema, self.exposure))
        return rows_to_predict(self.schema, X, [self.schema.names[j] for j in used])

    def evaluate(self, table: Table) -> Floats:
        """Return the linear predictor; NaN where a value is missing or not allowed."""
        # Rows to predict have no target, which complete rows of a fit need.
        made = replace(self.covariates.made, complete=None)
        x, offset, complete = Covariates(made).rows(table)
        found = np.full(len(table), np.nan)
        found[complete] = x @ self.coefficients + offset
        for j in made.variables:
            found[_is_missing(table, j)] = np.nan
        if self.exposure is not None:
            where = position(table.public_schema, self.exposure)
            values = np.asarray(table.data_of(where)) / scale(table.schema, where)
            found[_is_missing(table, where) | (values <= 0)] = np.nan
            found += np.log(np.where(values > 0, values, 1.0))
        blank: Floats = table.leave_blank(found)
        return blank


def _is_missing(table: Table, where: int) -> NDArray[np.bool_]:
    known = table.public_schema.variables[where]
    is_number = known.kind == "number"
    data = table.data_of(where) if is_number else table.codes_of(where)
    gap = GAP if is_number else known.n_bins - 1
    found: NDArray[np.bool_] = np.equal(data, gap) & known.missing_bin
    return found


@dataclass(frozen=True, kw_only=True)
class PooledGLMResult(GLMResult):
    """A fitted generalised linear model, as R's ``summary(glm)`` shows it.

    Attributes
    ----------
    coefficients : DataFrame
        Estimate, standard error, z (t where the dispersion is estimated), p and interval of every
        coefficient; NaN for those that are aliased.
    link : str
    dispersion : float
    theta, theta_std_error : float
        Of a negative binomial; else NaN.
    converged : bool
    """

    link: str
    dispersion: float
    theta: float = math.nan
    theta_std_error: float = math.nan
    converged: bool

    _fit: ClassVar[Fit]
    _predictor: ClassVar[Predictor]

    @classmethod
    def of(cls, fit: Fit, predictor: Predictor, **said: Any) -> PooledGLMResult:
        """Return the result of a fit, with notes as warnings."""
        found = cls(**said)
        # Not fields: they are shown, compared and written as the coefficients.
        object.__setattr__(found, "_fit", fit)
        object.__setattr__(found, "_predictor", predictor)
        return found

    @property
    def covariance(self) -> Floats:
        """The covariance of the coefficients; NaN for those that are aliased."""
        return self._fit.covariance

    def with_confidence(self, confidence: float) -> PooledGLMResult:
        """Return the same with intervals of another level."""
        CONFIDENCE.check(confidence, "confidence")
        names = list(self.coefficients.index)
        table = coefficient_table(names, self._fit, float(confidence), self._df)
        found = replace(self, coefficients=table, confidence=float(confidence))
        object.__setattr__(found, "_fit", self._fit)
        object.__setattr__(found, "_predictor", self._predictor)
        return found

    @property
    def _df(self) -> float:
        return float(self.df_resid) if self.family in ESTIMATED else math.nan

    def predict(self, X: Any, kind: str = "response") -> Floats:
        """Return the expected outcome of each row: a probability, a count with its exposure, or a
        mean; with ``kind="link"`` the linear predictor. NaN for rows where a value is missing or
        not allowed.
        """
        if kind not in ("response", "link"):
            raise DataError(f"kind={kind!r}: 'response' and 'link' are there", code="unknown-kind")
        eta = self._predictor.evaluate(self._predictor.table(X))
        if kind == "link":
            return eta
        missing = np.isnan(eta)
        mean = np.asarray(LINKS[self.link].invert(np.where(missing, 0.5, eta)), dtype=float)
        found: Floats = np.where(missing, np.nan, mean)
        return found


def read_fit(asked: PooledGLM, state: Any, schema: Schema | PublicSchema) -> PooledGLMResult:
    """Return the result of a fit in its last state."""
    theta = float(state.get("theta", math.nan))
    if asked.family == NEGATIVE and "likelihood" not in state:
        raise DataError(
            "the rounds were over before theta was estimated: allow more, max_iterations=",
            code="too-few-rounds",
        )
    covariates = asked._covariates(schema)
    names = covariates.made.names(schema)
    kept, n = list(state["kept"]), int(state["n"])
    pearson, df_resid = state.get("pearson"), n - len(kept)
    dispersion = 1.0
    if pearson is not None:
        dispersion = pearson / df_resid if df_resid > 0 else math.nan
    fit = transform_fit(state, covariates, schema, dispersion)
    likelihood = _likelihoods(asked, state, theta)
    warned = fit_warnings(state, names, fit, FAMILIES[asked.family].boundary)
    for note in warned:
        warnings.warn(note, UserWarning, stacklevel=4)
    link = asked.link or FAMILIES[asked.family].links[0]
    df = float(df_resid) if asked.family in ESTIMATED else math.nan
    shown = write_formula(covariates, schema)
    return PooledGLMResult.of(
        fit,
        Predictor(covariates, np.nan_to_num(fit.coefficients), schema, asked.exposure),
        title=f"{_TITLES[asked.family]} regression: {shown}",
        n_rows=n,
        notes=(*_assumptions(asked, covariates, schema), *warned),
        coefficients=coefficient_table(names, fit, asked.confidence, df),
        confidence=asked.confidence,
        formula=shown,
        family=asked.family,
        deviance=float(state["deviance"]),
        null_deviance=likelihood["null"] if _has_null(asked, covariates) else math.nan,
        df_resid=df_resid,
        df_null=n - 1,
        llf=likelihood["llf"],
        aic=2 * (len(kept) + _n_shapes(asked.family)) - 2 * likelihood["llf"],
        iterations=int(state["iterations"]),
        link=link,
        dispersion=dispersion,
        theta=theta,
        theta_std_error=_theta_error(state),
        converged=bool(state["converged"]),
    )


_TITLES: Final[Mapping[str, str]] = {
    BINOMIAL: "Logistic",
    POISSON: "Poisson",
    GAMMA: "Gamma",
    NEGATIVE: "Negative binomial",
}


def transform_fit(
    state: Any, covariates: Covariates, schema: Schema | PublicSchema, dispersion: float = 1.0
) -> Fit:
    """Return coefficients and their covariance in the units of the columns."""
    n, kept = covariates.n, list(state["kept"])
    back = covariates.to_own_units(Spread(state["means"], state["sds"]), schema)
    covariance = back @ full_covariance(unpack(state["information"], n), kept) @ back.T
    covariance *= dispersion
    coefficients = back @ np.array(state["beta"])
    aliased = [j for j in range(n) if j not in kept]
    coefficients[aliased] = np.nan
    covariance[aliased, :] = covariance[:, aliased] = np.nan
    iterations = int(state["iterations"])
    return Fit(coefficients, covariance, np.empty(0), iterations, tuple(aliased), ())


def _n_shapes(family: str) -> int:
    return int(family in (GAMMA, NEGATIVE))


def _theta_error(state: Any) -> float:
    curvature = state.get("curvature", 0.0)
    return 1 / math.sqrt(curvature) if curvature > 0 else math.nan


def _likelihoods(asked: PooledGLM, state: Any, theta: float) -> dict[str, float]:
    """Return the log-likelihood, and the deviance of the model with an intercept alone."""
    n, (total, *sums), deviance = state["n"], state["sums"], state["deviance"]
    mean = total / n
    if asked.family == BINOMIAL:
        null = -2 * (total * math.log(mean) + (n - total) * math.log(1 - mean))
        llf = -deviance / 2
    elif asked.family == GAMMA:
        null = 2 * (n * math.log(mean) - sums[0])
        shape = n / deviance if deviance > 0 else math.nan
        saturated = n * (shape * math.log(shape) - float(gammaln(shape)) - shape) - sums[0]
        llf = saturated - shape * deviance / 2
    elif asked.family == NEGATIVE:
        shared = (total + n * theta) * math.log(mean + theta)
        null = 2 * (state["own"] - total * math.log(mean) + shared)
        llf = state["likelihood"]
    else:
        y_log_y, log_factorials, exposure, y_log_exposure = sums
        null = 2 * (y_log_y - y_log_exposure - total * math.log(total / exposure))
        llf = y_log_y - total - log_factorials - deviance / 2
    return {"null": null, "llf": llf}


def _has_null(asked: PooledGLM, covariates: Covariates) -> bool:
    """Return whether the null model follows from sums: with an offset it needs rounds of its own,
    unless counts have the link log.
    """
    plain = asked.exposure is None and not covariates.made.offset.parts
    return plain or (asked.family == POISSON and asked.link in (None, "log"))


def fit_warnings(state: Any, names: Sequence[str], fit: Fit, boundary: str) -> list[str]:
    """Return R's warnings of a fit: aliased columns, separation and steps that did not end."""
    found = []
    if fit.aliased:
        listed = ", ".join(names[j] for j in fit.aliased)
        found.append(
            f"{len(fit.aliased)} coefficients not defined because of singularities (aliased): "
            f"{listed}"
        )
    if not state["converged"]:
        found.append(NOT_CONVERGED)
    if state.get("halved"):
        found.append("algorithm stopped at boundary value")
    if state.get("boundary") or state.get("singular"):
        found.append(boundary or "the information is numerically singular")
    if state.get("theta", 0.0) >= LARGEST_THETA:
        found.append("theta grows without bound: counts vary no more than Poisson's")
    return found


def _assumptions(
    asked: PooledGLM, covariates: Covariates, schema: Schema | PublicSchema
) -> list[str]:
    found = []
    (target,) = covariates.made.targets
    if asked.family == BINOMIAL:
        outcome = factor(schema, target_id(schema) if target == -1 else f"v{target}")
        found.append(f"event: {outcome.name} is {outcome.labels[1]}")
    if asked.exposure is not None:
        name = variable_name(schema, position(schema, asked.exposure))
        found.append(f"rates are per unit of {name}")
    if not _has_null(asked, covariates):
        found.append("the null deviance of a model with an offset needs rounds of its own")
    return found


def write_formula(covariates: Covariates, schema: Schema | PublicSchema) -> str:
    """Return a formula by the names that are known here."""
    made = covariates.made
    terms = " + ".join(term.name(schema) for term in made.terms) or "1"
    return f"{variable_name(schema, made.targets[0])} ~ {terms}"
