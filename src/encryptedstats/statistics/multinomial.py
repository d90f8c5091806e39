"""Multinomial logistic regression on factors, by maximum likelihood from the full cross table.

Imports the design of factors and cells from Cox and logistic regression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import DataError, ParameterError, SchemaError
from encryptedstats.statistics._distributions import chi2_tail, normal_quantile, normal_tails
from encryptedstats.statistics.cox import main_effects
from encryptedstats.statistics.factors import (
    Counted,
    cell_shape,
    check_groups,
    choose_group,
    factor,
)
from encryptedstats.statistics.generalized import cell_matrix, check_size, independent
from encryptedstats.statistics.results import Coefficients
from encryptedstats.tables.questions.constraints import CONFIDENCE, Constraints
from encryptedstats.tables.questions.question import Totals
from encryptedstats.tables.schema.names import CLASS
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
_ITERATIONS: Final = 50
_CONVERGED: Final = 1e-12
_UNBOUNDED: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class MultinomialResult(Coefficients):
    """A fitted multinomial regression, as R's ``nnet::multinom`` shows it.

    Attributes
    ----------
    llf, llf_null : float
        The log-likelihood of the rows, and without covariates.
    deviance, aic : float
    statistic, df, pvalue : float
        The likelihood-ratio test of all covariates together.
    """

    llf: float
    llf_null: float
    deviance: float
    aic: float
    statistic: float
    df: float
    pvalue: float


@dataclass(frozen=True)
class MultinomialRegression(Counted):
    r"""Logistic regression of an outcome with several levels on factors.

    .. math:: \log \frac{P(y = k)}{P(y = 0)} = x'\beta_k

    Rows that agree in all covariates add up, so the rows of every cell are enough.

    Parameters
    ----------
    variables : list of str
        Factors: variables with bins, compared with their first level.
    target : str
        The class, or a variable with bins.
    base : level, optional
        The level that the others are compared with, the first by default.
    confidence : float

    References
    ----------
    Theil (1969). McFadden (1974).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"arm": list("aaaabbbb"), "grade": [0, 0, 1, 2, 0, 1, 2, 2]})
    >>> table = es.Schema.infer(frame, target="grade").table(frame)
    >>> table.ask(es.MultinomialRegression(["arm"])).coefficients["estimate"].round(4).tolist()
    [-0.6931, 0.6931, -0.6931, 1.3863]
    """

    title: ClassVar[str] = "Multinomial regression"
    of_variables: ClassVar[tuple[str, ...]] = ("variables", "target")
    of_levels: ClassVar[Mapping[str, str]] = {"base": "target"}
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}

    variables: tuple[str, ...]
    target: str = CLASS
    base: Any = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        value = self.variables
        object.__setattr__(self, "variables", (value,) if isinstance(value, str) else tuple(value))
        self.check_parameters()
        if not self.variables:
            raise ParameterError(
                "variables=[]: a regression needs at least one covariate", code="no-covariates"
            )

    def _list_variables(self) -> tuple[str, ...]:
        return (self.target, *self.variables)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, and tables that are too large."""
        super().check_schema(schema)
        names = self._list_variables()
        check_groups(schema, names)
        check_size("MultinomialRegression", names, cell_shape(schema, names))
        outcome = factor(schema, self.target)
        if len(outcome.labels) < 3:
            raise SchemaError(
                f"{outcome.name!r} has two levels: es.GLM is the regression of those",
                code="not-several-levels",
            )
        choose_group(outcome, self.base, "base", 0)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> MultinomialResult:
        """Maximise the likelihood of the counts."""
        cells = self._cells(totals, schema, n_rows)
        outcome, covariates = cells.factors[0], cells.factors[1:]
        base = choose_group(outcome, self.base, "base", 0)
        counts = cells.counts.astype(float).reshape(len(outcome.labels), -1)
        seen = [k for k in range(len(counts)) if counts[k].any()]
        if len(seen) < 2 or base not in seen:
            raise DataError(
                f"{outcome.name!r} has rows in {len(seen)} of its levels: two are needed, the "
                f"level {outcome.labels[base]!r} among them",
                code="constant-outcome",
            )
        order = [base, *(k for k in seen if k != base)]
        sizes = [len(one.labels) for one in covariates]
        places = np.stack([axis.ravel() for axis in np.indices(sizes)], axis=1)
        names, columns, _ = main_effects(covariates)
        filled = np.flatnonzero(counts.sum(axis=0))
        matrix = np.column_stack([np.ones(len(places)), cell_matrix(columns, places)])[filled]
        kept = independent(matrix)
        found = maximise_multinomial(matrix[:, kept], counts[order][:, filled].T)
        null = maximise_multinomial(matrix[:, :1], counts[order][:, filled].T)
        terms = ["(Intercept)", *names]
        labels = [
            f"{outcome.labels[k]}: {terms[column]}"
            for k in order[1:]
            for column in range(len(terms))
        ]
        chosen = [j * len(terms) + column for j in range(len(order) - 1) for column in kept]
        df = found.beta.size - null.beta.size
        statistic = 2 * (found.llf - null.llf)
        aliased = [terms[column] for column in range(len(terms)) if column not in kept]
        unbounded = [labels[chosen[place]] for place in found.unbounded]
        return MultinomialResult(
            title=f"Multinomial regression of {outcome.name} ~ "
            + " + ".join(one.name for one in covariates),
            n_rows=cells.n,
            notes=(
                *cells.notes,
                f"compared with {outcome.name} = {outcome.labels[base]}",
                *((f"depend on earlier columns: {', '.join(aliased)}",) if aliased else ()),
                *(
                    (f"the likelihood has no maximum in {', '.join(unbounded)}",)
                    if unbounded
                    else ()
                ),
            ),
            coefficients=_coefficients(labels, chosen, found, self.confidence),
            confidence=self.confidence,
            llf=found.llf,
            llf_null=null.llf,
            deviance=-2 * found.llf,
            aic=-2 * found.llf + 2 * found.beta.size,
            statistic=statistic,
            df=float(df),
            pvalue=chi2_tail(statistic, df) if df else float("nan"),
        )


@dataclass(frozen=True)
class MultinomialFit:
    """The maximum of a multinomial likelihood: coefficients by level and column."""

    beta: Floats
    covariance: Floats
    llf: float
    unbounded: tuple[int, ...]


def maximise_multinomial(matrix: Floats, counts: Floats) -> MultinomialFit:
    """Maximise the likelihood of counts by Newton's method with halved steps.

    Parameters
    ----------
    matrix : array of shape (cells, columns)
        Without columns that depend on others.
    counts : array of shape (cells, levels)
        The first level is the one that the others are compared with.
    """
    n_levels, n_columns = counts.shape[1] - 1, matrix.shape[1]
    beta = np.zeros((n_levels, n_columns))
    rows = counts.sum(axis=1)

    def log_shares(own: Floats) -> Floats:
        link = np.column_stack([np.zeros(len(matrix)), matrix @ own.T])
        link -= link.max(axis=1, keepdims=True)
        found: Floats = link - np.log(np.exp(link).sum(axis=1, keepdims=True))
        return found

    def newton_step(own: Floats) -> Floats:
        shares = np.exp(log_shares(own))[:, 1:]
        score = (counts[:, 1:] - rows[:, None] * shares).T @ matrix
        inverse = np.linalg.pinv(_information(matrix, rows, shares), hermitian=True)
        found: Floats = (inverse @ score.ravel()).reshape(own.shape)
        return found

    def likelihood(own: Floats) -> float:
        return float((counts * log_shares(own)).sum())

    now, step = likelihood(beta), np.zeros_like(beta)
    for _ in range(_ITERATIONS):
        step = newton_step(beta)
        size = 1.0
        while (value := likelihood(beta + size * step)) < now - 1e-9 * abs(now) and size > 1e-6:
            size /= 2
        gained, beta, now = value - now, beta + size * step, value
        if abs(gained) <= _CONVERGED * (1 + abs(now)):
            break
    unbounded = np.flatnonzero(np.abs(step) > _UNBOUNDED)
    if not len(unbounded):  # convergence is quadratic: one step more, to the last digits
        beta = beta + newton_step(beta)
    shares = np.exp(log_shares(beta))[:, 1:]
    covariance = np.linalg.pinv(_information(matrix, rows, shares), hermitian=True).astype(float)
    return MultinomialFit(beta, covariance, likelihood(beta), tuple(unbounded.tolist()))


def _information(matrix: Floats, rows: Floats, shares: Floats) -> Floats:
    """Return the information matrix, level by level."""
    n_levels, k = shares.shape[1], matrix.shape[1]
    found = np.empty((n_levels * k, n_levels * k))
    for a in range(n_levels):
        for b in range(n_levels):
            weight = rows * shares[:, a] * ((a == b) - shares[:, b])
            found[a * k : (a + 1) * k, b * k : (b + 1) * k] = (matrix * weight[:, None]).T @ matrix
    return found


def _coefficients(
    labels: Sequence[str], kept: Sequence[int], fit: MultinomialFit, confidence: float
) -> pd.DataFrame:
    estimate = fit.beta.ravel()
    error = np.sqrt(fit.covariance.diagonal().clip(min=0.0))
    reach = normal_quantile(confidence) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        z = estimate / error
    found = pd.DataFrame(
        {
            "estimate": estimate,
            "std_error": error,
            "statistic": z,
            "df": np.nan,
            "pvalue": [normal_tails(one) for one in z],
            "low": estimate - reach,
            "high": estimate + reach,
        },
        index=[labels[place] for place in kept],
    )
    return found.reindex(pd.Index(list(labels), name="term"))
