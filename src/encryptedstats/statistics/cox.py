"""Cox regression of factors, by exact maximum partial likelihood from a cross table.

The rows of every time, outcome and combination of levels are counted. Rows that agree in all
covariates have the same linear predictor, so the sums over risk sets are sums over cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import DataError, ParameterError
from encryptedstats.statistics._distributions import chi2_tail, normal_quantile, normal_tails
from encryptedstats.statistics.factors import Counted, cell_shape, check_groups
from encryptedstats.statistics.generalized import Levels, cell_matrix, check_size, independent
from encryptedstats.statistics.hazards import TIES
from encryptedstats.statistics.survival import CLASS, check_time, event_number, times_of
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.constraints import CONFIDENCE, Choice, Constraints
from encryptedstats.tables.questions.question import Totals
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
TRANSFORMS: Final = ("km", "rank", "identity", "log")
_STEPS: Final = 30
_CONVERGED: Final = 1e-11
_UNBOUNDED: Final = 1e-4  # a relative step that is still made when the likelihood has converged
_SAME: Final = 9  # decimals to which linear predictors are compared


# -- the partial likelihood ------------------------------------------------------------------------


@dataclass(frozen=True)
class Stratum:
    """Rows that are compared with each other.

    Attributes
    ----------
    name : str
    events, at_risk : array of shape (times, cells)
        Rows with the event at a time, and rows that are followed at least until then.
    """

    name: str
    events: Floats
    at_risk: Floats

    @property
    def n_events(self) -> Floats:
        """Return the events at each time."""
        found: Floats = self.events.sum(axis=1)
        return found


@dataclass(frozen=True)
class Likelihood:
    """The logarithm of the partial likelihood with its derivatives.

    Attributes
    ----------
    value : float
    score : array of shape (columns,)
    information : array of shape (columns, columns)
    by_time : list of (int, array, array)
        Of every time with events: its place, its part of the score and of the information.
    hazards : list of (int, float)
        The same times with the increment of the cumulative baseline hazard.
    """

    value: float
    score: Floats
    information: Floats
    by_time: tuple[tuple[int, Floats, Floats], ...]
    hazards: tuple[tuple[int, float], ...]


def partial_likelihood(stratum: Stratum, matrix: Floats, beta: Floats, ties: str) -> Likelihood:
    """Evaluate the partial likelihood of one stratum.

    With ``ties="efron"``, of d events at one time each leaves the risk set by a share: the k-th
    term has the sum over the risk set less k/d of the sum over the events.
    """
    link = matrix @ beta
    shift = float(link.max(initial=0.0))
    weight = np.exp(link - shift)
    k = matrix.shape[1]
    value, score, information = 0.0, np.zeros(k), np.zeros((k, k))
    parts, hazards = [], []
    for time in np.flatnonzero(stratum.n_events):
        events, n = stratum.events[time], int(stratum.n_events[time])
        s0, s1, s2 = _moments(stratum.at_risk[time] * weight, matrix)
        e0, e1, e2 = _moments(events * weight, matrix)
        share = np.arange(n) / n if ties == "efron" else np.zeros(n)
        left = s0 - share * e0
        means = (s1 - share[:, None] * e1) / left[:, None]
        value += float(events @ link - np.log(left).sum() - n * shift)
        own_score = events @ matrix - means.sum(axis=0)
        own = s2 * (1 / left).sum() - e2 * (share / left).sum() - means.T @ means
        score, information = score + own_score, information + own
        parts.append((int(time), own_score, own))
        hazards.append((int(time), float((1 / left).sum() * np.exp(-shift))))
    return Likelihood(value, score, information, tuple(parts), tuple(hazards))


def _moments(weights: Floats, matrix: Floats) -> tuple[float, Floats, Floats]:
    weighted = matrix * weights[:, None]
    return float(weights.sum()), weighted.sum(axis=0), weighted.T @ matrix


def total_likelihood(
    strata: Sequence[Stratum], matrix: Floats, beta: Floats, ties: str
) -> Likelihood:
    """Add the partial likelihoods of strata."""
    found = [partial_likelihood(one, matrix, beta, ties) for one in strata]
    return Likelihood(
        sum(one.value for one in found),
        np.sum([one.score for one in found], axis=0),
        np.sum([one.information for one in found], axis=0),
        tuple(part for one in found for part in one.by_time),
        tuple(part for one in found for part in one.hazards),
    )


def maximise_partial(
    strata: Sequence[Stratum], matrix: Floats, ties: str
) -> tuple[Floats, Likelihood, tuple[int, ...]]:
    """Maximise the partial likelihood by Newton steps, halved where they do not improve it.

    Returns
    -------
    beta : array
    likelihood : Likelihood
        At the maximum.
    unbounded : tuple of int
        Columns in which the likelihood has no maximum: their estimates grow with every step.
    """
    beta = np.zeros(matrix.shape[1])
    now = total_likelihood(strata, matrix, beta, ties)
    for _ in range(_STEPS):
        step = np.linalg.lstsq(now.information, now.score, rcond=1e-12)[0]
        following = total_likelihood(strata, matrix, beta + step, ties)
        while (
            not following.value >= now.value - 1e-9 * abs(now.value) and np.abs(step).max() > 1e-12
        ):
            step = step / 2
            following = total_likelihood(strata, matrix, beta + step, ties)
        gained, beta, now = following.value - now.value, beta + step, following
        if abs(gained) <= _CONVERGED * (1 + abs(now.value)):
            break
    further = np.abs(np.linalg.lstsq(now.information, now.score, rcond=1e-12)[0])
    unbounded = np.flatnonzero(further > _UNBOUNDED * (1 + np.abs(beta)))
    return beta, now, tuple(unbounded.tolist())


def concordance(strata: Sequence[Stratum], link: Floats) -> float:
    """Return the share of comparable pairs of rows whose order the linear predictor tells.

    A pair is comparable if the row with the event is followed for less long, or as long as a
    censored one. Pairs of equal predictors count one half.
    """
    _, place = np.unique(np.round(link, _SAME), return_inverse=True)
    n = int(place.max(initial=0)) + 1
    right = tied = pairs = 0.0
    for stratum in strata:
        events = np.stack([np.bincount(place, one, n) for one in stratum.events])
        later = np.stack([np.bincount(place, one, n) for one in stratum.at_risk]) - events
        lower = np.cumsum(later, axis=1) - later
        right += float((events * lower).sum())
        tied += float((events * later).sum())
        pairs += float((events.sum(axis=1) * later.sum(axis=1)).sum())
    return (right + tied / 2) / pairs if pairs else float("nan")


def proportionality_test(
    likelihood: Likelihood, transformed: Floats, terms: Mapping[str, Sequence[int]]
) -> pd.DataFrame:
    r"""Test whether hazard ratios change with time.

    The score test of the coefficients :math:`\theta` in :math:`\beta + \theta g(t)` at
    :math:`\theta = 0`, as in R's ``cox.zph``.

    Parameters
    ----------
    likelihood : Likelihood
        At the maximum.
    transformed : array
        g of every time.
    terms : dict
        The columns of each term.
    """
    k = len(likelihood.score)
    score, with_beta, of_theta = np.zeros(k), np.zeros((k, k)), np.zeros((k, k))
    mean = np.mean([transformed[time] for time, _, _ in likelihood.by_time])
    for time, own_score, own in likelihood.by_time:
        g = transformed[time] - mean
        score += g * own_score
        with_beta += g * own
        of_theta += g * g * own
    return proportionality_table(score, (likelihood.information, with_beta, of_theta), terms)


def proportionality_table(
    score: Floats,
    information: tuple[Floats, Floats, Floats],
    terms: Mapping[str, Sequence[int]],
) -> pd.DataFrame:
    r"""Return the score tests of the coefficients :math:`\theta` of each term and of all.

    ``information`` is that on :math:`\beta`, on :math:`\beta` with :math:`\theta`, and on
    :math:`\theta`.
    """
    of_beta, with_beta, of_theta = information
    # The information on theta once beta is estimated.
    inverse = np.linalg.pinv(of_beta, rcond=1e-12, hermitian=True)
    left = of_theta - with_beta @ inverse @ with_beta
    rows = {}
    for name, columns in (*terms.items(), ("GLOBAL", range(len(score)))):
        at = list(columns)
        part = left[np.ix_(at, at)]
        statistic = float(score[at] @ np.linalg.pinv(part, rcond=1e-12, hermitian=True) @ score[at])
        rows[name] = (statistic, len(at), chi2_tail(statistic, len(at)))
    return pd.DataFrame.from_dict(rows, orient="index", columns=["statistic", "df", "pvalue"])


def transform_times(strata: Sequence[Stratum], ends: Floats, transform: str) -> Floats:
    """Return the function of time that hazard ratios are tested against, at every time.

    "km" is 1 less the share without the event just before, as Kaplan and Meier estimate it.
    """
    if transform == "identity":
        return ends
    if transform == "log":
        return np.log(np.maximum(ends, np.finfo(float).tiny))
    at_risk = np.sum([one.at_risk.sum(axis=1) for one in strata], axis=0)
    if transform == "rank":
        ended = at_risk - np.append(at_risk[1:], 0)
        ranks: Floats = np.cumsum(ended) - (ended - 1) / 2
        return ranks
    events = np.sum([one.n_events for one in strata], axis=0)
    kept = np.cumprod(1 - events / np.maximum(at_risk, 1))
    return 1 - np.concatenate([[1.0], kept[:-1]])


# -- what the owner reads --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CoxRegressionResult(Result):
    """A fitted Cox regression, as R's ``summary(coxph)`` shows it.

    Attributes
    ----------
    coefficients : DataFrame
        Logarithms of hazard ratios with standard errors, Wald's tests and intervals.
    hazard_ratios : DataFrame
        The same as ratios, with intervals.
    tests : DataFrame
        Likelihood-ratio, Wald and score test of all covariates.
    proportionality : DataFrame
        Test of each term, and of all, for hazard ratios that change with time.
    baseline : DataFrame
        Cumulative hazard and survival of the reference levels, by stratum and time.
    n_events : int
    llf, llf_null : float
        Logarithm of the partial likelihood with and without covariates.
    concordance : float
    ties : str
    """

    caption: ClassVar[str] = "coefficients"

    coefficients: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    n_events: int
    llf: float
    llf_null: float
    concordance: float
    ties: str

    @property
    def hazard_ratios(self) -> pd.DataFrame:
        return self.tables["hazard ratios"]

    @property
    def tests(self) -> pd.DataFrame:
        return self.tables["tests of all covariates"]

    @property
    def proportionality(self) -> pd.DataFrame:
        return self.tables["tests of proportional hazards"]

    @property
    def baseline(self) -> pd.DataFrame:
        return self.tables["baseline"]

    def to_frame(self) -> pd.DataFrame:
        """Return the coefficients."""
        return self.coefficients


# -- the question ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoxRegression(Counted):
    r"""Cox's proportional hazards regression on factors, from the rows of every cell.

    .. math:: h(t \mid x) = h_0(t) \exp(x'\beta)

    Estimates, tests and baseline are those of R's ``coxph`` on the same bins.

    Parameters
    ----------
    time, event, event_level
        See :class:`KaplanMeier`.
    variables : list of str
        Factors; their first levels are the reference.
    strata : list of str
        Factors whose levels have a baseline hazard each.
    ties : "efron" or "breslow"
    transform : "km", "rank", "identity" or "log"
        The function of time that hazard ratios are tested against.
    confidence : float

    References
    ----------
    Cox (1972). Efron (1977). Grambsch and Therneau (1994).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"week": [1, 2, 3, 4, 2, 3, 4, 4], "arm": list("aaaabbbb")})
    >>> frame["died"] = [1, 1, 1, 0, 1, 0, 1, 0]
    >>> schema = es.Schema.infer(frame, target="died")
    >>> schema = schema.with_kind("week", "ordinal", levels=[1, 2, 3, 4])
    >>> result = schema.table(frame).ask(es.CoxRegression("week", variables=["arm"]))
    >>> float(round(result.coefficients.loc["arm[b]", "estimate"], 4))
    -0.7549
    """

    time: str
    event: str = CLASS
    variables: Any = ()
    strata: Any = ()
    event_level: Any = None
    ties: str = "efron"
    transform: str = "km"
    confidence: float = 0.95

    title: ClassVar[str] = "Cox regression"
    constraints: ClassVar[Constraints] = {
        "ties": Choice(values=TIES, code="unknown-ties"),
        "transform": Choice(values=TRANSFORMS),
        "confidence": CONFIDENCE,
    }
    of_variables: ClassVar[tuple[str, ...]] = ("time", "event", "variables", "strata")
    of_levels: ClassVar[Mapping[str, str]] = {"event_level": "event"}
    _apart: ClassVar[str] = "time, event, covariates and strata have to be different variables"

    def __post_init__(self) -> None:
        for name in ("variables", "strata"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        self.check_parameters()
        if not self.variables:
            raise ParameterError(
                "variables=[]: a Cox regression needs at least one covariate", code="no-covariates"
            )

    def _list_variables(self) -> tuple[str, ...]:
        return (self.time, self.event, *self.variables, *self.strata)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, an unknown event, and tables that are too large."""
        check_time(schema, self.time)
        super().check_schema(schema)
        event_number(schema, self.event, self.event_level)
        check_groups(schema, self.variables)
        check_size(
            "CoxRegression", self._list_variables(), cell_shape(schema, self._list_variables())
        )

    def check_names(self, schema: Schema) -> None:
        """Refuse levels of the time that are not numbers."""
        times_of(schema, self.time)

    def read(
        self, totals: Totals, schema: Schema | PublicSchema, n_rows: int
    ) -> CoxRegressionResult:
        """Maximise the partial likelihood of the counts."""
        cells = self._cells(totals, schema, n_rows)
        times = times_of(schema, self.time)
        level = event_number(schema, self.event, self.event_level)
        counts = cells.counts.astype(float)
        outcome, rest = cells.factors[1], cells.factors[2:]
        covariates, by = rest[: len(self.variables)], rest[len(self.variables) :]
        n_events = int(counts[:, level].sum())
        if not n_events:
            raise DataError(
                f"no row has the event: all {cells.n:,} rows are censored, and a Cox regression "
                "needs events",
                code="no-events",
            )
        names, columns, terms = main_effects(covariates)
        sizes = [len(one.labels) for one in covariates]
        places = np.stack([axis.ravel() for axis in np.indices(sizes)], axis=1)
        strata = _strata(counts, level, sizes, by)
        matrix = cell_matrix(columns, places)
        kept = _estimable(matrix, strata)
        if not kept:
            raise DataError(
                "at no time with an event are rows of different levels at risk: there is nothing "
                "to compare",
                code="no-overlap-at-risk",
            )
        fit = _Fit.of(strata, matrix[:, kept], self.ties)
        notes = [
            *cells.notes,
            *times.notes,
            f"event: {outcome.name} is {outcome.labels[level]}; all others are censored",
            f"ties: {self.ties.capitalize()}",
            *_fit_notes(names, kept, fit.unbounded),
        ]
        at = {column: place for place, column in enumerate(kept)}
        tested = {
            term: [at[column] for column in found if column in at] for term, found in terms.items()
        }
        shown = " + ".join([*terms, *(f"strata({one.name})" for one in by)])
        return CoxRegressionResult(
            title=f"Cox regression of {times.name} ~ {shown}",
            n_rows=cells.n,
            notes=tuple(notes),
            coefficients=_coefficients(names, kept, fit, self.confidence),
            tables={
                "hazard ratios": _ratios(names, kept, fit, self.confidence),
                "tests of all covariates": fit.tests,
                "tests of proportional hazards": proportionality_test(
                    fit.likelihood,
                    transform_times(strata, times.ends, self.transform),
                    {term: found for term, found in tested.items() if found},
                ),
                "baseline": _baseline(strata, matrix[:, kept], fit.beta, self.ties, times.index),
            },
            n_events=n_events,
            llf=fit.likelihood.value,
            llf_null=fit.null.value,
            concordance=concordance(strata, matrix[:, kept] @ fit.beta),
            ties=self.ties,
        )


@dataclass(frozen=True)
class _Fit:
    beta: Floats
    covariance: Floats
    likelihood: Likelihood
    null: Likelihood
    unbounded: tuple[int, ...]

    @classmethod
    def of(cls, strata: Sequence[Stratum], matrix: Floats, ties: str) -> _Fit:
        beta, found, unbounded = maximise_partial(strata, matrix, ties)
        covariance = np.linalg.pinv(found.information, rcond=1e-14, hermitian=True).astype(float)
        null = total_likelihood(strata, matrix, np.zeros(len(beta)), ties)
        return cls(beta, covariance, found, null, unbounded)

    @property
    def tests(self) -> pd.DataFrame:
        """Return the three tests of all covariates together."""
        null, found, df = self.null, self.likelihood, len(self.beta)
        statistics = {
            "Likelihood ratio": 2 * (found.value - null.value),
            "Wald": float(self.beta @ found.information @ self.beta),
            "Score (logrank)": float(null.score @ np.linalg.solve(null.information, null.score)),
        }
        frame = pd.DataFrame({"statistic": pd.Series(statistics), "df": df})
        frame["pvalue"] = [chi2_tail(one, df) for one in frame["statistic"]]
        return frame


def main_effects(covariates: Sequence[Any]) -> tuple[list[str], list[Levels], dict[str, list[int]]]:
    """Return the columns of the regression, one for each level but the first of each factor."""
    names: list[str] = []
    columns: list[Levels] = []
    terms: dict[str, list[int]] = {}
    for axis, one in enumerate(covariates):
        for level in range(1, len(one.labels)):
            terms.setdefault(one.name, []).append(len(columns))
            names.append(f"{one.name}[{one.labels[level]}]")
            columns.append(((axis, level),))
    return names, columns, terms


def _strata(counts: Floats, level: int, sizes: Sequence[int], by: Sequence[Any]) -> list[Stratum]:
    n_times, n_cells = len(counts), int(np.prod(sizes))
    ended = counts.sum(axis=1).reshape(n_times, n_cells, -1)
    events = counts[:, level].reshape(n_times, n_cells, -1)
    at_risk = np.cumsum(ended[::-1], axis=0)[::-1]
    labels = np.ndindex(*(len(one.labels) for one in by))
    found = []
    for place, label in enumerate(labels):
        named = ", ".join(f"{one.name}={one.labels[k]}" for one, k in zip(by, label, strict=True))
        stratum = Stratum(named, events[:, :, place], at_risk[:, :, place])
        if stratum.at_risk[0].any():
            found.append(stratum)
    return found


def _estimable(matrix: Floats, strata: Sequence[Stratum]) -> list[int]:
    """Return the columns that vary among the rows at risk of some stratum, beside earlier ones."""
    null = total_likelihood(strata, matrix, np.zeros(matrix.shape[1]), "breslow").information
    # Columns of the information depend on each other as the covariates in the risk sets do.
    return independent(null)


def _fit_notes(names: Sequence[str], kept: Sequence[int], unbounded: Sequence[int]) -> list[str]:
    notes = []
    aliased = [name for place, name in enumerate(names) if place not in kept]
    if aliased:
        notes.append(f"not estimable beside the other columns: {', '.join(aliased)}")
    if unbounded:
        listed = ", ".join(names[kept[place]] for place in unbounded)
        notes.append(f"the likelihood has no maximum in {listed}: the coefficient may be infinite")
    return notes


def _coefficients(
    names: Sequence[str], kept: Sequence[int], fit: _Fit, confidence: float
) -> pd.DataFrame:
    error = np.sqrt(fit.covariance.diagonal().clip(min=0.0))
    reach = normal_quantile(confidence) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        z = fit.beta / error
    found = pd.DataFrame(
        {
            "estimate": fit.beta,
            "std_error": error,
            "statistic": z,
            "pvalue": [normal_tails(one) for one in z],
            "low": fit.beta - reach,
            "high": fit.beta + reach,
        },
        index=[names[place] for place in kept],
    )
    return found.reindex(pd.Index(list(names), name="term"))


def _ratios(
    names: Sequence[str], kept: Sequence[int], fit: _Fit, confidence: float
) -> pd.DataFrame:
    table = _coefficients(names, kept, fit, confidence)
    with np.errstate(over="ignore"):
        return table[["estimate", "low", "high"]].map(np.exp)


def _baseline(
    strata: Sequence[Stratum], matrix: Floats, beta: Floats, ties: str, times: pd.Index[Any]
) -> pd.DataFrame:
    parts = {}
    for stratum in strata:
        steps = partial_likelihood(stratum, matrix, beta, ties).hazards
        at = [time for time, _ in steps]
        cumulative = np.cumsum([step for _, step in steps])
        parts[stratum.name] = pd.DataFrame(
            {"hazard": cumulative, "survival": np.exp(-cumulative)}, index=times[at]
        )
    return parts[""] if list(parts) == [""] else pd.concat(parts, names=["stratum"])
