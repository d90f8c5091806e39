"""Competing risks: the cumulative incidence of each cause, and Gray's test between groups.

All of it is read from the rows of every time, cause and group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import DataError, SchemaError
from encryptedstats.statistics._distributions import chi2_tail, normal_quantile
from encryptedstats.statistics.factors import Counted, Factor, choose_group, factor
from encryptedstats.statistics.survival import CLASS, check_time, times_of
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.constraints import CONFIDENCE, Constraints
from encryptedstats.tables.questions.question import Totals
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


# -- Aalen-Johansen --------------------------------------------------------------------------------


def cumulative_incidence(events: Floats, at_risk: Floats) -> tuple[Floats, Floats]:
    """Estimate the cumulative incidence of every cause by Aalen and Johansen.

    Parameters
    ----------
    events : array of shape (times, causes)
    at_risk : array of shape (times,)
        Rows that are followed at least until a time.

    Returns
    -------
    incidence, std_error : arrays of shape (times, causes)
        The standard error is that of the infinitesimal jackknife, as in R's ``survfit``.
    """
    n_times, n_causes = events.shape
    ended = at_risk - np.append(at_risk[1:], 0)
    # One row of every time and outcome stands for all: its influence on the estimates so far.
    outcomes = np.eye(n_causes, n_causes + 1, 1)
    counts = np.concatenate([ended[:, None] - events.sum(axis=1, keepdims=True), events], axis=1)
    influence = np.zeros((n_causes, n_times, n_causes + 1))
    on_survival = np.zeros((n_times, n_causes + 1))
    survival, incidence = 1.0, np.zeros(n_causes)
    found, errors = [], []
    for time, n in enumerate(at_risk):
        if n:
            hazards = events[time] / n
            still = (np.arange(n_times) >= time)[:, None].astype(float)
            change = -hazards[:, None, None] * still[None] / n + np.zeros_like(influence)
            change[:, time] += outcomes / n
            influence += on_survival * hazards[:, None, None] + survival * change
            incidence = incidence + survival * hazards
            on_survival = on_survival * (1 - hazards.sum()) - survival * change.sum(axis=0)
            survival *= 1 - hazards.sum()
        found.append(incidence)
        errors.append(np.sqrt((influence**2 * counts).sum(axis=(1, 2))))
    return np.array(found), np.array(errors)


def gray_test(events: Floats, at_risk: Floats, cause: int) -> tuple[float, int]:
    """Compare the cumulative incidence of one cause between groups (Gray, 1988).

    Parameters
    ----------
    events : array of shape (groups, times, causes)
    at_risk : array of shape (groups, times)
    cause : int

    Returns
    -------
    statistic : float
    df : int
    """
    n_groups, n_times, _ = events.shape
    own, other = events[:, :, cause], events.sum(axis=2) - events[:, :, cause]
    score, variance = np.zeros(n_groups), np.zeros((n_groups, n_groups))
    carried, mixed, last = (
        np.zeros((n_groups, n_groups)),
        np.zeros((n_groups, n_groups)),
        np.zeros(n_groups),
    )
    survival, incidence, pooled = np.ones(n_groups), np.zeros(n_groups), 0.0
    for time in range(n_times):
        d, e, n = own[:, time], other[:, time], at_risk[:, time]
        if not (d.sum() + e.sum()):
            continue
        present = n > 0
        # Rows that would be at risk of this cause, had nobody left for another one.
        risk = np.where(present, n / np.where(survival > 0, survival, 1), 0.0)
        total = risk.sum()
        subject = (risk * (1 - incidence)).sum()
        after = np.where(present, survival * (n - d - e) / np.where(present, n, 1), survival)
        pooled_after = pooled + d.sum() / total
        contrast = np.diag(risk) - np.outer(risk, risk) / total
        carried += contrast * d.sum() / (total * (1 - pooled))
        score += d - d.sum() * risk * (1 - incidence) / subject
        left = np.divide(1 - pooled_after, after, out=np.zeros(n_groups), where=after > 0)
        for k in np.flatnonzero(present):
            if d.sum():
                share = 1 - left[k] if after[k] > 0 else 1.0
                tied = 1 - (d.sum() - 1) / (total * survival[k] - 1) if d.sum() > 1 else 1.0
                unit = tied * survival[k] * d.sum() / (total * n[k])
                term = contrast[:, k] - share * carried[:, k]
                variance += np.outer(term, term) * unit
                mixed[:, k] += term * share * unit
                last[k] += share**2 * unit
            if e[k] and after[k] > 0:
                tied = 1 - (e[k] - 1) / (n[k] - 1) if e[k] > 1 else 1.0
                unit = tied * survival[k] ** 2 * e[k] / n[k] ** 2
                term = left[k] * carried[:, k]
                variance += np.outer(term, term) * unit
                mixed[:, k] -= term * left[k] * unit
                last[k] += left[k] ** 2 * unit
        incidence = incidence + np.where(present, survival * d / np.where(present, n, 1), 0.0)
        survival, pooled = after, pooled_after
    variance += (carried * last) @ carried.T + carried @ mixed.T + mixed @ carried.T
    df = n_groups - 1
    statistic = float(score[:df] @ np.linalg.pinv(variance[:df, :df], hermitian=True) @ score[:df])
    return statistic, df


# -- what the owner reads --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CumulativeIncidenceResult(Result):
    """Cumulative incidence curves.

    Attributes
    ----------
    curves : DataFrame
        By group, cause and time: rows at risk, events, incidence, its standard error and interval.
    tests : DataFrame
        Of every cause, Gray's test between groups.
    confidence : float
    """

    caption: ClassVar[str] = "incidence"

    curves: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    confidence: float

    @property
    def tests(self) -> pd.DataFrame:
        return self.tables["Gray's tests"]

    def to_frame(self) -> pd.DataFrame:
        """Return the curves."""
        return self.curves

    def incidence_at(self, times: Sequence[float]) -> pd.DataFrame:
        """Return the incidence at these times, a column for each cause (of each group)."""
        keys = list(self.curves.index.names[:-1])
        found = {}
        for name, curve in self.curves.groupby(level=keys, sort=False):
            known = curve.index.get_level_values(-1).to_numpy(dtype=float)
            values = np.concatenate([[0.0], curve["incidence"].to_numpy()])
            found[name[0] if len(name) == 1 else name] = values[
                np.searchsorted(known, times, side="right")
            ]
        return pd.DataFrame(found, index=pd.Index(list(times), name=self.curves.index.names[-1]))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curves as steps with their intervals."""
        from encryptedstats.statistics.plots import plot_incidence

        return plot_incidence(self, ax)


# -- the question ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CumulativeIncidence(Counted):
    r"""Cumulative incidence of competing events by the estimator of Aalen and Johansen, and Gray's
    test.

    .. math:: \hat F_k(t) = \sum_{s \le t} \hat S(s-) \frac{d_{ks}}{n_s}

    with :math:`d_{ks}` events of cause k among :math:`n_s` rows at risk, and the share
    :math:`\hat S` without any event.

    Parameters
    ----------
    time : str
        See :class:`KaplanMeier`.
    event : str
        The class, or a variable: its levels are the causes, and one says that there was no event.
    by : str, optional
        Groups, with curves for each.
    censored : optional
        The level of ``event`` of rows that were censored; its first by default.
    confidence : float

    References
    ----------
    Aalen and Johansen (1978). Gray (1988).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"week": [1, 2, 2, 3], "end": ["death", "relapse", "alive", "alive"]})
    >>> schema = es.Schema.infer(frame, target="end", classes=["alive", "death", "relapse"])
    >>> schema = schema.with_kind("week", "ordinal", levels=[1, 2, 3])
    >>> found = schema.table(frame).ask(es.CumulativeIncidence("week"))
    >>> found.incidence_at([1, 3]).to_dict("list")
    {'death': [0.25, 0.25], 'relapse': [0.0, 0.25]}
    """

    time: str
    event: str = CLASS
    by: str | None = None
    censored: Any = None
    confidence: float = 0.95

    title: ClassVar[str] = "Cumulative incidence"
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}
    of_variables: ClassVar[tuple[str, ...]] = ("time", "event", "by")
    of_levels: ClassVar[dict[str, str]] = {"censored": "event"}
    _apart: ClassVar[str] = "time, event and group have to be different variables"

    def __post_init__(self) -> None:
        self.check_parameters()

    def _list_variables(self) -> tuple[str, ...]:
        return (self.time, self.event) if self.by is None else (self.time, self.event, self.by)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, an unknown level, and an event of one level."""
        check_time(schema, self.time)
        super().check_schema(schema)
        outcome = factor(schema, self.event)
        choose_group(outcome, self.censored, "censored", 0)
        if len(outcome.labels) < 2:
            raise SchemaError(
                f"{outcome.name!r} has one level: an event needs a level for rows without it",
                code="one-level",
            )

    def check_names(self, schema: Schema) -> None:
        """Refuse levels of the time that are not numbers."""
        times_of(schema, self.time)

    def read(
        self, totals: Totals, schema: Schema | PublicSchema, n_rows: int
    ) -> CumulativeIncidenceResult:
        """Estimate the curves, and test for differences between groups."""
        cells = self._cells(totals, schema, n_rows)
        times, outcome = times_of(schema, self.time), cells.factors[1]
        without = choose_group(outcome, self.censored, "censored", 0)
        counts = cells.counts.astype(float)
        if self.by is None:
            counts = counts[:, :, None]
        causes = [k for k in range(len(outcome.labels)) if k != without]
        ended = counts.sum(axis=1).T
        at_risk = np.cumsum(ended[:, ::-1], axis=1)[:, ::-1]
        events = np.moveaxis(counts[:, causes], 2, 0)
        if not events.sum():
            raise DataError(
                f"no row has an event: all {cells.n:,} rows are censored", code="no-events"
            )
        names = [outcome.labels[k] for k in causes]
        groups = cells.factors[2] if self.by is not None else None
        kept = np.flatnonzero(ended.sum(axis=1))
        seen = {names[k]: int(events[:, :, k].sum()) for k in range(len(names))}
        listed = ", ".join(f"{name} ({n:,})" for name, n in seen.items())
        level = normal_quantile(self.confidence)
        parts = {
            g: _curves(events[g], at_risk[g], names, times.index, level) for g in kept.tolist()
        }
        return CumulativeIncidenceResult(
            title=f"Cumulative incidence of {outcome.name} over {times.name}"
            + (f" by {groups.name}" if groups else ""),
            n_rows=cells.n,
            notes=(
                *cells.notes,
                *times.notes,
                f"causes: {listed}; censored: {outcome.labels[without]}",
                f"{100 * self.confidence:g} % intervals on the logarithmic scale",
            ),
            curves=_by_group(parts, groups, outcome.name),
            tables={}
            if groups is None
            else {"Gray's tests": _tests(events[kept], at_risk[kept], names, outcome.name)},
            confidence=self.confidence,
        )


def _curves(
    events: Floats, at_risk: Floats, names: Sequence[Any], index: pd.Index[Any], reach: float
) -> dict[Any, pd.DataFrame]:
    incidence, error = cumulative_incidence(events, at_risk)
    ended = at_risk - np.append(at_risk[1:], 0)
    seen = np.flatnonzero(ended)
    found = {}
    for k, name in enumerate(names):
        share, own = incidence[seen, k], error[seen, k]
        with np.errstate(divide="ignore", invalid="ignore"):
            width = np.exp(reach * own / share)
        found[name] = pd.DataFrame(
            {
                "at_risk": at_risk[seen].astype(np.int64),
                "events": events[seen, k].astype(np.int64),
                "incidence": share,
                "std_error": own,
                "low": np.where(share > 0, share / width, 0.0),
                "high": np.where(share > 0, np.minimum(1.0, share * width), 0.0),
            },
            index=index[seen],
        )
    return found


def _by_group(
    parts: dict[int, dict[Any, pd.DataFrame]], groups: Factor | None, event: str
) -> pd.DataFrame:
    tables = {
        None if groups is None else groups.labels[g]: pd.concat(found, names=[event])
        for g, found in parts.items()
    }
    joined: pd.DataFrame
    joined = tables[None] if groups is None else pd.concat(tables, names=[groups.name])
    return joined


def _tests(events: Floats, at_risk: Floats, names: Sequence[Any], event: str) -> pd.DataFrame:
    rows = {}
    for k, name in enumerate(names):
        if len(events) > 1 and events[:, :, k].sum():
            statistic, df = gray_test(events, at_risk, k)
            rows[name] = (statistic, df, chi2_tail(statistic, df))
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["statistic", "df", "pvalue"])
    return frame.rename_axis(event)
