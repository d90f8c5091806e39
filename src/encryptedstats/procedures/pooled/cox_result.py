"""What Cox regressions over sites come to: R's ``summary(coxph)`` and ``cox.zph``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.procedures.pooled.algebra import unpack
from encryptedstats.procedures.pooled.base import full_covariance
from encryptedstats.procedures.pooled.covariates import Covariates, Spread
from encryptedstats.procedures.pooled.glm_result import Predictor, write_formula
from encryptedstats.statistics._distributions import chi2_tail
from encryptedstats.statistics.cox import CoxRegressionResult, proportionality_table
from encryptedstats.statistics.factors import factor
from encryptedstats.statistics.generalized import Fit, coefficient_table
from encryptedstats.statistics.survival import times_of
from encryptedstats.tables.questions.summaries import variable_name
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.words import plural

if TYPE_CHECKING:
    from encryptedstats.procedures.pooled.cox import PooledCox
    from encryptedstats.procedures.pooled.cox_rounds import CoxRounds

Floats = NDArray[np.float64]
NOT_CONVERGED: Final = "Ran out of iterations and did not converge"
_INFINITE: Final = 1.5e-8  # R's toler.inf, the root of the least relative difference of two numbers


@dataclass(frozen=True, kw_only=True)
class PooledCoxResult(CoxRegressionResult):
    """A fitted Cox regression over sites.

    The concordance is NaN: it compares rows of different sites.

    Attributes
    ----------
    iterations : int
    converged : bool
    """

    iterations: int
    converged: bool

    _predictor: ClassVar[Predictor]

    def predict(self, X: Any, kind: str = "risk") -> Floats:
        """Return the hazard of each row relative to that of zeros and reference levels, or with
        ``kind="link"`` its logarithm. NaN for rows where a value is missing or not allowed.
        """
        link = self._predictor.evaluate(self._predictor.table(X))
        return link if kind == "link" else np.exp(link)


def read_cox(asked: PooledCox, state: Any, schema: Schema | PublicSchema) -> PooledCoxResult:
    """Return the result of a fit in its last state."""
    covariates = asked._covariates(schema)
    names = covariates.made.names(schema)[1:]
    k, kept = len(names), list(state["kept"])
    spread = Spread(state["means"], state["sds"])
    units = covariates.to_own_units(spread, schema)
    back = units[1:, 1:]
    information, with_beta, of_theta = (
        np.array(unpack(state[name], k))
        for name in ("information", "information_g", "information_gg")
    )
    covariance = back @ full_covariance(information.tolist(), kept) @ back.T
    beta = back @ np.array(state["beta"])
    aliased = tuple(j for j in range(k) if j not in kept)
    shown = beta.copy()
    shown[list(aliased)] = np.nan
    covariance[list(aliased), :] = covariance[:, list(aliased)] = np.nan
    fit = Fit(shown, covariance, np.empty(0), state["iterations"], aliased, ())
    table = coefficient_table(names, fit, asked.confidence).drop(columns="df")
    with np.errstate(over="ignore"):
        ratios = table[["estimate", "low", "high"]].map(np.exp)
    at = np.ix_(kept, kept)
    warned = _warnings(state, names, fit, information, asked.epsilon)
    for note in warned:
        warnings.warn(note, UserWarning, stacklevel=4)
    tested = {
        term.name(schema): [kept.index(j - 1) for j in term.columns if j - 1 in kept]
        for term in covariates.made.terms
    }
    found = PooledCoxResult(
        title=f"Cox regression: {write_formula(covariates, schema)}",
        n_rows=int(state["n"]),
        notes=(*describe_events(asked, state, schema), *warned),
        coefficients=table.rename_axis("term"),
        tables={
            "hazard ratios": ratios,
            "tests of all covariates": _tests(state, information[at], kept),
            "tests of proportional hazards": proportionality_table(
                np.array(state["score_g"])[kept],
                (information[at], with_beta[at], of_theta[at]),
                {term: places for term, places in tested.items() if places},
            ),
            "baseline": read_baseline(asked, state, schema),
        },
        n_events=sum(state["events"]),
        llf=float(state["likelihood"]),
        llf_null=float(state["null"]),
        concordance=math.nan,
        ties=asked.ties,
        iterations=int(state["iterations"]),
        converged=bool(state["converged"]),
    )
    object.__setattr__(found, "_predictor", Predictor(covariates, np.array([0.0, *beta]), schema))
    return found


def _tests(state: Any, information: Floats, kept: Sequence[int]) -> pd.DataFrame:
    beta = np.array(state["beta"])[list(kept)]
    statistics = {
        "Likelihood ratio": 2 * (state["likelihood"] - state["null"]),
        "Wald": float(beta @ information @ beta),
        "Score (logrank)": state["score_test"],
    }
    frame = pd.DataFrame({"statistic": pd.Series(statistics), "df": len(kept)})
    frame["pvalue"] = [chi2_tail(one, len(kept)) for one in frame["statistic"]]
    return frame


def read_baseline(asked: CoxRounds, state: Any, schema: Schema | PublicSchema) -> pd.DataFrame:
    """Return the cumulative hazard and the survival at zeros of all columns, by time."""
    covariates = asked._covariates(schema)
    units = covariates.to_own_units(Spread(state["means"], state["sds"]), schema)
    # Standardised columns are not 0 there, which is an intercept.
    intercept = float(units[0, 1:] @ np.array(state["beta"]))
    cumulative = np.cumsum(state["at_risk"]) * math.exp(intercept)
    frame = {"hazard": cumulative, "survival": np.exp(-cumulative)}
    return pd.DataFrame(frame, index=_times(covariates, schema)[state["starts"]])


def _times(covariates: Covariates, schema: Schema | PublicSchema) -> pd.Index[Any]:
    (time,) = covariates.made.targets
    return times_of(schema, "class" if time == -1 else f"v{time}").index


def _warnings(
    state: Any, names: Sequence[str], fit: Fit, information: Floats, epsilon: float
) -> list[str]:
    """Return R's warnings, and its rule for coefficients that are infinite."""
    found = []
    if fit.aliased:
        listed = ", ".join(names[j] for j in fit.aliased)
        found.append(f"not estimable beside the other columns: {listed}")
    if not state["converged"]:
        found.append(NOT_CONVERGED)
    inverse = full_covariance(information.tolist(), state["kept"])
    further = np.abs(inverse @ np.array(state["score"]))
    beta = np.abs(np.array(state["beta"]))
    infinite = (further > epsilon) & (further > _INFINITE * beta)
    listed = ", ".join(name for name, one in zip(names, infinite, strict=True) if one)
    if listed:
        found.append(f"Loglik converged before variable {listed}; coefficient may be infinite")
    return found


def describe_events(asked: CoxRounds, state: Any, schema: Schema | PublicSchema) -> list[str]:
    """Return what the event is, and how many steps of time have it."""
    outcome = factor(schema, asked.event)
    (time,) = asked._covariates(schema).made.targets
    return [
        f"event: {outcome.name} is {outcome.labels[asked._event_level(schema)]}",
        f"{plural(len(state['starts']), 'step')} of {variable_name(schema, time)} with events, at "
        f"which {asked.minimum} rows or more leave",
    ]
