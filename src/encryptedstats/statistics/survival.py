"""Survival: how long rows go without an event, though not all of them were followed until it came.

Everything here is counted: the rows of every time, outcome and group. Time is a variable with bins,
a grid of numbers or intervals. For the table as it was cut, all of it is exact. Fields have the
names that lifelines and R's survival package give them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import Cure, DataError, ParameterError, SchemaError
from encryptedstats.statistics._distributions import chi2_tail, normal_quantile
from encryptedstats.statistics.factors import (
    Cells,
    Counted,
    cell_shape,
    cell_totals,
    check_groups,
    choose_group,
    factor,
    factor_position,
    groups,
    read_cells,
    totals_of,
)
from encryptedstats.statistics.results import TestResult
from encryptedstats.tables.answers.results import Result, TableResult, as_terms
from encryptedstats.tables.questions.constraints import CONFIDENCE, Choice, Constraints, RealNumber
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Shapes,
    Totals,
    number_column,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.names import class_or_variable
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.views import number_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Self

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
CLASS: Final = "class"
INTERVALS: Final = ("log", "log-log", "plain")
WEIGHTS: Final = ("logrank", "wilcoxon", "tarone-ware", "peto")
_ALL: Final = "all rows"  # the group that everybody is in
_FLAT: Final = float(
    np.sqrt(np.finfo(float).eps)
)  # a curve this close to a share has reached it, as in R


# -- times -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """The bins of a time: each is a point of a grid, or an interval that is known by its end."""

    name: str
    ends: Floats
    starts: Floats | None  # of intervals; None for points of a grid
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def index(self) -> pd.Index[Any]:
        """As the index of a table: whole numbers where all of them are."""
        whole = bool((np.isfinite(self.ends) & (self.ends == np.round(self.ends))).all())
        return pd.Index(self.ends.astype(np.int64) if whole else self.ends, name=self.name)


def times_of(schema: Schema | PublicSchema, variable: str) -> Times:
    """Return what the bins of a time stand for, as far as it is known here."""
    found = factor(schema, variable)
    if isinstance(schema, PublicSchema) or found.position == -1:
        known = np.arange(len(found.labels), dtype=float)
        return Times(
            found.name,
            known,
            None,
            ("times are numbers of bins: open it with the schema to see times",),
        )
    return _read_times(schema, found.position)


def need_times(schema: Schema | PublicSchema, time: str) -> None:
    """Refuse to read person-time where nobody here knows what the bins of a time stand for."""
    if isinstance(schema, PublicSchema):
        raise SchemaError(
            f"the times of {time!r} are numbers of bins here, and person-time needs the times "
            "themselves: ",
            Cure("open with names", "owner.open(answer, schema=schema)"),
            code="times-are-bins",
        )


def check_points(times: Times) -> None:
    """Refuse intervals, which do not say how long a row was followed: person-time needs points of a
    grid, or numbers.
    """
    if times.starts is not None:
        words = (
            f"keep it as a number, schema.with_kind({times.name!r}, 'number', digits=...), or "
            "give it a grid of levels"
        )
        raise SchemaError(
            f"the time {times.name!r} is cut into intervals, which do not say how long a row was "
            "followed: ",
            Cure("keep points of time", words, {"name": times.name}),
        )


def check_person_time(schema: Schema, time: str) -> None:
    """Refuse a time that does not say how long rows were followed: intervals, or the class, whose
    levels are no times.
    """
    if factor(schema, time).position == -1:
        raise SchemaError(
            f"the time {time!r} is the class, whose levels do not say how long a row was "
            "followed: ",
            Cure("name another variable", "name a variable with a grid of levels, or a number"),
            code="time-is-class",
        )
    check_points(times_of(schema, time))


def _read_times(schema: Schema, position: int) -> Times:
    known = schema.variables[position]
    if not known.levels:
        edges = np.array([-np.inf, *known.edges, np.inf])
        starts = np.where(np.isneginf(edges[:-1]), min(0.0, *known.edges[:1], 0.0), edges[:-1])
        note = (
            f"an event in an interval of {known.name} counts at its end, and who leaves there is "
            "at risk until then"
        )
        return Times(known.name, edges[1:], starts, (note,))
    numbers = [
        level
        for level in known.levels
        if isinstance(level, (int, float)) and not isinstance(level, bool)
    ]
    if len(numbers) < len(known.levels) or list(numbers) != sorted(numbers):
        raise SchemaError(
            f"the levels of the time {known.name!r} are no numbers in their order: give it a grid, "
            f"schema.with_kind({known.name!r}, 'ordinal', levels=range(1, 53)), or cut points, "
            f"schema.with_bins({known.name!r}, edges=[...])",
            code="levels-not-numbers",
        )
    return Times(known.name, np.array(numbers, dtype=float), None)


# -- who is at risk, and who has the event ---------------------------------------------------------


@dataclass(frozen=True)
class RiskSets:
    """Of every group and time: rows that are followed until then, and those of them that have the
    event.
    """

    times: Times
    by: str | None
    groups: tuple[Any, ...]
    ending: Counts
    events: Counts
    n_rows: int
    notes: tuple[str, ...]

    @property
    def at_risk(self) -> Counts:
        """Return rows that are followed at least until then."""
        return self.ending[:, ::-1].cumsum(axis=1)[:, ::-1]

    def with_rows(self, least: int = 1) -> RiskSets:
        """Without the groups that have no rows."""
        kept = np.flatnonzero(self.ending.sum(axis=1))
        if len(kept) < least:
            raise DataError(
                _too_few(self.by, len(kept), len(self.groups), least), code="too-few-groups"
            )
        if len(kept) == len(self.groups):
            return self
        gone = [str(one) for g, one in enumerate(self.groups) if g not in kept]
        note = f"groups of {self.by} without rows were dropped: {', '.join(gone)}"
        groups = tuple(self.groups[g] for g in kept)
        notes = (*self.notes, note)
        return RiskSets(
            self.times, self.by, groups, self.ending[kept], self.events[kept], self.n_rows, notes
        )

    def of_groups(self, names: Sequence[Any]) -> RiskSets:
        """Return the risk sets of some groups, in their order."""
        kept = [self.groups.index(name) for name in names]
        return replace(
            self, groups=tuple(names), ending=self.ending[kept], events=self.events[kept]
        )

    def need_events(self, for_what: str) -> None:
        """Refuse rows that are all censored."""
        if not self.events.sum():
            raise DataError(
                f"no row has the event: all {self.n_rows:,} rows are censored, and {for_what} "
                "needs events",
                code="no-events",
            )


def _too_few(by: str | None, found: int, of: int, least: int) -> str:
    if by is None or not found:
        return "there are no rows to follow"
    return (
        f"{by!r} has rows in {found} of its {of} groups: at least {least} groups with rows are "
        "needed"
    )


@dataclass(frozen=True)
class SurvivalQuestion(Counted):
    """A question about rows that are followed for a time until an event, by group."""

    time: str
    event: str = CLASS
    by: str | None = None
    event_level: Any = None

    of_variables: ClassVar[tuple[str, ...]] = ("time", "event", "by")
    of_levels: ClassVar[Mapping[str, str]] = {"event_level": "event"}
    _apart: ClassVar[str] = "time, event and group have to be different variables"

    def _list_variables(self) -> tuple[str, ...]:
        return (self.time, self.event) if self.by is None else (self.time, self.event, self.by)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, a variable beside itself, and an event that is not known."""
        check_time(schema, self.time)
        super().check_schema(schema)
        event_number(schema, self.event, self.event_level)

    def check_names(self, schema: Schema) -> None:
        """Refuse levels of the time that are no numbers."""
        if not is_kept_number(schema.public(), self.time):
            times_of(schema, self.time)

    def risk_sets(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> RiskSets:
        """Return the opened totals, refusing those that cannot be."""
        cells = self._cells(totals, schema, n_rows)
        return risk_sets(
            cells, times_of(schema, self.time), event_number(schema, self.event, self.event_level)
        )


def is_kept_number(schema: PublicSchema, name: str) -> bool:
    """Return whether a variable is kept as a number."""
    position = class_or_variable(name, schema)
    return position != -1 and schema.variables[position].kind == "number"


def check_time(schema: PublicSchema, time: str) -> None:
    """Refuse a time without bins, and say how it gets them."""
    position = class_or_variable(time, schema)
    if position != -1 and not schema.variables[position].n_bins:
        raise SchemaError(
            f"the time {time!r} is kept as a number, and is counted in bins here: give it a grid, "
            "schema.with_kind(time, 'ordinal', levels=range(1, 53)), or cut points, "
            "schema.with_bins(time, edges=[...])",
            code="kept-as-number",
        )


def event_number(schema: Schema | PublicSchema, event: str, level: Any) -> int:
    """Return which bin of the event is the event: the second of two, or the one that is named."""
    found = factor(schema, event)
    if level is None and len(found.labels) != 2:
        levels = ", ".join(map(repr, found.labels))
        raise ParameterError(
            f"{found.name!r} has {len(found.labels)} levels ({levels}): event_level= names the "
            "one that is the event",
            code="event-not-named",
        )
    return choose_group(found, level, "event_level", 1)


def risk_sets(cells: Cells, times: Times, level: int) -> RiskSets:
    """Cells of time, event and perhaps group, as counts by group and time."""
    _, outcome, *by = cells.factors
    counts = cells.counts.astype(np.int64)
    counts = counts if by else counts[:, :, None]
    notes = (
        *cells.notes,
        *times.notes,
        outcome_note(outcome.name, outcome.labels, level, counts.sum(axis=(0, 2))),
    )
    return RiskSets(
        times,
        by[0].name if by else None,
        tuple(by[0].labels) if by else (_ALL,),
        counts.sum(axis=1).T,
        counts[:, level].T,
        cells.n,
        notes,
    )


def outcome_note(name: str, levels: Sequence[Any], level: int, rows: Counts) -> str:
    """Return what counts as the event, and what does not."""
    others = [f"{one} ({rows[k]:,})" for k, one in enumerate(levels) if k != level]
    said = f"event: {name} is {levels[level]} ({rows[level]:,}); censored: {', '.join(others)}"
    competing = "; competing events among these count as censored" if len(others) > 1 else ""
    return said + competing


# -- Kaplan-Meier ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class KaplanMeierResult(Result):
    """Survival curves.

    Attributes
    ----------
    curves : DataFrame
        By group and time: rows at risk, events, censored, survival, its standard error (Greenwood)
        and its interval.
    groups : DataFrame
        Of every group: rows, events, and the median time with its interval. Infinite where survival
        stays above one half.
    confidence : float
    interval : str
    """

    curves: pd.DataFrame
    groups: pd.DataFrame
    confidence: float
    interval: str

    @property
    def median(self) -> pd.Series[float]:
        """When one half or fewer are without the event, by group.

        Where exactly one half are for some time, the middle of this time, as in R.
        """
        return self.groups["median"]

    def to_frame(self) -> pd.DataFrame:
        """Return the curves."""
        return self.curves

    def tidy(self) -> pd.DataFrame:
        """Return survival at every time of every group."""
        return as_terms(self.curves.rename(columns={"survival": "estimate"}))

    def survival_at(self, times: Sequence[float]) -> pd.DataFrame:
        """Return the share without the event at these times, a column for each group."""
        found = {}
        for group, curve in self.parts():
            known = curve.index.get_level_values(-1).to_numpy(dtype=float)
            values = np.concatenate([[1.0], curve["survival"].to_numpy()])
            found[group] = values[np.searchsorted(known, times, side="right")]
        return pd.DataFrame(found, index=pd.Index(list(times), name=self.curves.index.names[-1]))

    def at_risk(self, times: Sequence[float]) -> pd.DataFrame:
        """Return how many rows are at risk at these times, a column for each group."""
        found = {}
        for group, curve in self.parts():
            known = curve.index.get_level_values(-1).to_numpy(dtype=float)
            counts = np.append(curve["at_risk"].to_numpy(), 0)
            found[group] = counts[np.searchsorted(known, times, side="left")]
        return pd.DataFrame(found, index=pd.Index(list(times), name=self.curves.index.names[-1]))

    def restricted_mean(self, until: float) -> pd.DataFrame:
        """Return the mean time without the event up to ``until``: the area under each curve.

        With standard errors and intervals, as R's ``print(survfit(...), rmean = until)`` has them.
        """
        lines = {}
        for group, curve in self.parts():
            known = curve.index.get_level_values(-1).to_numpy(dtype=float)
            inside = known < until
            times = np.concatenate([[0.0], known[inside], [float(until)]])
            survival = np.concatenate([[1.0], curve["survival"].to_numpy()[inside]])
            # The area to the right of each event.
            areas = np.cumsum((np.diff(times) * survival)[::-1])[::-1]
            n, d = (curve[name].to_numpy(dtype=float)[inside] for name in ("at_risk", "events"))
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(n > d, areas[1:] ** 2 * d / (n * (n - d)), 0.0)
            error = float(np.sqrt(terms.sum()))
            reach = normal_quantile(self.confidence) * error
            mean = float(areas[0])
            lines[group] = (mean, error, max(0.0, mean - reach), min(float(until), mean + reach))
        names = ["estimate", "std_error", "low", "high"]
        return pd.DataFrame.from_dict(lines, orient="index", columns=names)

    def parts(self) -> list[tuple[Any, pd.DataFrame]]:
        """Return the curve of each group; one without groups is its own only part."""
        if self.curves.index.nlevels == 1:
            return [(_ALL, self.curves)]
        groups = self.curves.index.get_level_values(0)
        return [(group, self.curves[groups == group]) for group in dict.fromkeys(groups)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the curves with their intervals, a mark where rows are censored, and the number at
        risk below.
        """
        from encryptedstats.statistics.plots import plot_survival

        return plot_survival(self, ax)


@dataclass(frozen=True)
class KaplanMeier(SurvivalQuestion):
    r"""Survival curves of groups by the estimator of Kaplan and Meier, with Greenwood's intervals.

    .. math:: \hat S(t) = \prod_{s \le t} \Big(1 - \frac{d_s}{n_s}\Big), \qquad
              \widehat{var}\, \log \hat S(t) = \sum_{s \le t} \frac{d_s}{n_s (n_s - d_s)}

    with d events among n rows at risk.

    Parameters
    ----------
    time : str
        How long a row was followed: a variable with bins, a grid of numbers (its levels) or
        intervals (its cut points).
    event : str
        What ended it: the class, or a categorical variable.
    by : str, optional
        Groups, a curve for each.
    event_level : optional
        The level of ``event`` that is the event; the second of two by default. All other levels
        count as censored.
    confidence : float
    interval : "log", "log-log" or "plain"
        On which scale intervals are symmetric; R's default is ``log``, that of lifelines
        ``log-log``.

    References
    ----------
    Kaplan and Meier (1958). Greenwood (1926).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"week": [1, 2, 2, 3], "died": [1, 1, 0, 0]})
    >>> schema = es.Schema.infer(frame, target="died")
    >>> schema = schema.with_kind("week", "ordinal", levels=[1, 2, 3])
    >>> schema.table(frame).ask(es.KaplanMeier("week")).curves["survival"].tolist()
    [0.75, 0.5, 0.5]
    """

    confidence: float = 0.95
    interval: str = "log"
    title: ClassVar[str] = "Kaplan-Meier survival curves"
    constraints: ClassVar[Constraints] = {
        "confidence": CONFIDENCE,
        "interval": Choice(values=INTERVALS),
    }

    def __post_init__(self) -> None:
        self.check_parameters()

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> KaplanMeierResult:
        """Return the curves."""
        sets = self.risk_sets(totals, schema, n_rows).with_rows()
        parts, groups = [], []
        for g in range(len(sets.groups)):
            curve = _curve(sets, g, self.confidence, self.interval)
            parts.append(curve)
            groups.append(_group_line(curve, int(sets.ending[g].sum())))
        quiet = [str(one) for g, one in enumerate(sets.groups) if not sets.events[g].sum()]
        notes = sets.notes if not quiet else (*sets.notes, _without_events(sets.by, quiet))
        shown = f"{100 * self.confidence:g} % intervals on the {self.interval} scale (Greenwood)"
        return KaplanMeierResult(
            title=_title("Kaplan-Meier survival", sets),
            n_rows=sets.n_rows,
            notes=(*notes, shown),
            curves=_join_curves(parts, sets),
            groups=pd.DataFrame(groups, index=pd.Index(list(sets.groups), name=sets.by)),
            confidence=self.confidence,
            interval=self.interval,
        )


def _title(what: str, sets: RiskSets) -> str:
    return f"{what} of {sets.times.name}" + (f" by {sets.by}" if sets.by else "")


def _without_events(by: str | None, groups: Sequence[str]) -> str:
    if by is None:
        return "no row has the event: all are censored, and the curve stays at 1"
    return (
        f"no events in {by} {', '.join(groups)}: all rows there are censored, and the curve stays "
        "at 1"
    )


def _join_curves(parts: Sequence[pd.DataFrame], sets: RiskSets) -> pd.DataFrame:
    return (
        parts[0]
        if sets.by is None
        else pd.concat(dict(zip(sets.groups, parts, strict=True)), names=[sets.by])
    )


def _curve(sets: RiskSets, g: int, confidence: float, interval: str) -> pd.DataFrame:
    seen = np.flatnonzero(sets.ending[g])
    n, d = sets.at_risk[g, seen], sets.events[g, seen]
    survival, log_variance = kaplan_meier(n, d)
    error = np.sqrt(log_variance)
    low, high = survival_interval(survival, error, confidence, interval)
    return pd.DataFrame(
        {
            "at_risk": n,
            "events": d,
            "censored": sets.ending[g, seen] - d,
            "survival": survival,
            "std_error": survival * error,
            "low": low,
            "high": high,
        },
        index=sets.times.index[seen],
    )


def kaplan_meier(at_risk: Counts, events: Counts) -> tuple[Floats, Floats]:
    """Survival, rounded once, and the variance of its logarithm: infinite, hence no number, once
    nobody is left.
    """
    exact, survival, variance, log_variance = Fraction(1), [], 0.0, []
    for n, d in zip(at_risk.tolist(), events.tolist(), strict=True):
        exact *= Fraction(n - d, n)
        variance += d / (n * (n - d)) if n > d else np.nan
        survival.append(float(exact))
        log_variance.append(variance)
    return np.array(survival), np.array(log_variance)


def survival_interval(
    survival: Floats, error: Floats, confidence: float, interval: str
) -> tuple[Floats, Floats]:
    """Greenwood's interval, symmetric on one of three scales; ``error`` is that of the logarithm of
    survival.
    """
    reach = normal_quantile(confidence) * error
    if interval == "plain":
        low, high = survival * (1 - reach), survival * (1 + reach)
    elif interval == "log":
        low, high = survival * np.exp(-reach), survival * np.exp(reach)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(survival)
            low, high = (np.exp(log * np.exp(sign * reach / -log)) for sign in (1, -1))
    certain = survival == 1  # nothing happened yet, whatever the scale
    return np.where(certain, 1.0, np.maximum(low, 0.0)), np.where(
        certain, 1.0, np.minimum(high, 1.0)
    )


def _group_line(curve: pd.DataFrame, rows: int) -> dict[str, float]:
    """Return the line of a group that R prints. The median is the first time at which the curve is
    at one half or below, and its limits are those times of the limits of the curve.
    """
    return {
        "rows": rows,
        "events": int(curve["events"].sum()),
        "median": _first_below(curve, "survival"),
        "low": _first_below(curve, "low"),
        "high": _first_below(curve, "high"),
    }


def _first_below(curve: pd.DataFrame, what: str, share: float = 0.5) -> float:
    """Return when a curve comes down to a share; the middle of the time that it stays
    there, as R.
    """
    values, times = curve[what].to_numpy(), curve.index.to_numpy(dtype=float)
    reached = np.flatnonzero(values < share + _FLAT)
    if not len(reached):
        return np.inf
    first = reached[0]
    lower = np.flatnonzero(values < values[first])
    stays = abs(values[first] - share) < _FLAT and len(lower) and np.isfinite(times[lower[0]])
    return float((times[first] + times[lower[0]]) / 2 if stays else times[first])


# -- life tables -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LifeTable(SurvivalQuestion):
    """An actuarial life table by group: who leaves during an interval was at risk for half of it.

    Intervals are those of the time: between its cut points, or from one point of its grid to the
    next.

    Parameters
    ----------
    time, event, by, event_level, confidence, interval
        See :class:`KaplanMeier`.

    References
    ----------
    Cutler and Ederer (1958).
    """

    confidence: float = 0.95
    interval: str = "log"
    title: ClassVar[str] = "Life table"
    constraints: ClassVar[Constraints] = {
        "confidence": CONFIDENCE,
        "interval": Choice(values=INTERVALS),
    }

    def __post_init__(self) -> None:
        self.check_parameters()

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TableResult:
        """Return the table."""
        sets = self.risk_sets(totals, schema, n_rows).with_rows()
        parts = [
            _life_table(sets, g, self.confidence, self.interval) for g in range(len(sets.groups))
        ]
        intervals = (
            f"{100 * self.confidence:g} % intervals on the {self.interval} scale (Greenwood)"
        )
        kept = [note for note in sets.notes if note not in sets.times.notes]
        return TableResult(
            title=_title("Life table", sets),
            n_rows=sets.n_rows,
            notes=(
                *kept,
                "who leaves during an interval counts as exposed for half of it",
                intervals,
            ),
            table=_join_curves(parts, sets),
            estimates="survival",
            confidence=self.confidence,
        )


def _life_table(sets: RiskSets, g: int, confidence: float, interval: str) -> pd.DataFrame:
    starts, ends = _interval_limits(sets.times)
    entered, events = sets.at_risk[g], sets.events[g]
    kept = np.flatnonzero(entered)
    entered, events, starts, ends = entered[kept], events[kept], starts[kept], ends[kept]
    withdrawn = sets.ending[g, kept] - events
    twice = 2 * entered - withdrawn  # of those exposed: an integer
    share = 2 * events / twice
    survival = np.cumprod((twice - 2 * events) / twice)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(
            np.cumsum(
                np.where(events < twice / 2, 4 * events / (twice * (twice - 2 * events)), np.nan)
            )
        )
        hazard = 2 * share / (2 - share) / (ends - starts)
    low, high = survival_interval(survival, error, confidence, interval)
    found = {
        "end": ends,
        "entered": entered,
        "withdrawn": withdrawn,
        "events": events,
        "exposed": twice / 2,
        "event_share": share,
        "survival": survival,
        "std_error": survival * error,
        "low": low,
        "high": high,
        "hazard": np.where(np.isfinite(ends), hazard, np.nan),
    }
    return pd.DataFrame(found, index=pd.Index(starts, name=f"{sets.times.name} from"))


def _interval_limits(times: Times) -> tuple[Floats, Floats]:
    """Return where each interval starts and ends: a point of a grid reaches to the next one."""
    if times.starts is not None:
        return times.starts, times.ends
    return times.ends, np.append(times.ends[1:], np.inf)


# -- the log-rank test -----------------------------------------------------------------------------


_TESTS: Final = {
    "logrank": "Log-rank test",
    "wilcoxon": "Wilcoxon (Gehan-Breslow) test",
    "tarone-ware": "Tarone-Ware test",
    "peto": "Peto-Peto test",
}


@dataclass(frozen=True)
class LogRank(SurvivalQuestion):
    r"""The log-rank test of two or more groups, or one of its weighted forms.

    At every time the d events among n rows are expected to fall on a group in proportion to its
    rows at risk. It is the test of

    .. math:: U_g = \sum_t w_t \Big(d_{tg} - d_t \frac{n_{tg}}{n_t}\Big)

    with the variance of the hypergeometric distribution, and has one degree of freedom fewer than
    there are groups.

    Parameters
    ----------
    time, event, by, event_level
        See :class:`KaplanMeier`; here ``by`` is needed.
    weights : "logrank", "wilcoxon", "tarone-ware" or "peto"
        What a time weighs: 1, the rows at risk, their square root, or survival by then.
    strata : str, optional
        A factor: rows are compared within its levels, and the differences are added.

    References
    ----------
    Mantel (1966). Gehan (1965). Tarone and Ware (1977). Peto and Peto (1972).
    """

    weights: str = "logrank"
    strata: str | None = None
    title: ClassVar[str] = "Log-rank test"
    of_variables: ClassVar[tuple[str, ...]] = (*SurvivalQuestion.of_variables, "strata")
    _apart: ClassVar[str] = "time, event, group and strata have to be different variables"
    constraints: ClassVar[Constraints] = {"weights": Choice(values=WEIGHTS)}

    def __post_init__(self) -> None:
        self.check_parameters()
        if self.by is None:
            raise ParameterError(
                "by=None: a log-rank test compares groups, by= names the variable",
                code="by-missing",
            )

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the question with these parameters; files of version 0.2 lack ``strata``."""
        return super()._from_parameters({"strata": None, **parameters})

    def _list_variables(self) -> tuple[str, ...]:
        return (*super()._list_variables(), *((self.strata,) if self.strata else ()))

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse one group as well."""
        super().check_schema(schema)
        check_groups(schema, [str(self.by)])

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        cells = self._cells(totals, schema, n_rows)
        times = times_of(schema, self.time)
        level = event_number(schema, self.event, self.event_level)
        strata = _split(cells) if self.strata else [cells]
        pooled = replace(strata[0], counts=np.sum([one.counts for one in strata], axis=0))
        sets = risk_sets(pooled, times, level).with_rows(2)
        sets.need_events("a comparison of groups")
        within = [risk_sets(one, times, level).of_groups(sets.groups) for one in strata]
        found = [log_rank(one.at_risk, one.events, self.weights) for one in within]
        observed, expected, covariance = (sum(parts) for parts in zip(*found, strict=True))
        statistic, df = quadratic_form(observed - expected, covariance)
        difference = (observed - expected) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            groups = {
                "rows": sets.ending.sum(axis=1),
                "observed": observed,
                "expected": expected,
                "(O-E)^2/E": difference / expected,
                "(O-E)^2/V": difference / covariance.diagonal(),
            }
        return TestResult(
            title=_title(_TESTS[self.weights], sets)
            + (f", within {cells.factors[-1].name}" if self.strata else ""),
            n_rows=sets.n_rows,
            notes=sets.notes,
            statistic=statistic,
            df=float(df),
            pvalue=chi2_tail(statistic, df),
            term=sets.by or "groups",
            table=pd.DataFrame(groups, index=pd.Index(list(sets.groups), name=sets.by)),
            details={"weights": self.weights},
        )


def _split(cells: Cells) -> list[Cells]:
    """Return the cells of every level of the last factor."""
    *factors, last = cells.factors
    return [
        Cells(tuple(factors), cells.counts[..., k], cells.n_missing)
        for k in range(len(last.labels))
    ]


def log_rank(
    at_risk: Counts, events: Counts, weights: str = "logrank"
) -> tuple[Floats, Floats, Floats]:
    """Return events that are observed and expected in every group, weighted, and the covariance of
    their differences.
    """
    seen = np.flatnonzero(events.sum(axis=0))
    own, n, d = (
        at_risk[:, seen].astype(float),
        at_risk[:, seen].sum(axis=0),
        events[:, seen].sum(axis=0),
    )
    weight = {
        "logrank": np.ones(len(seen)),
        "wilcoxon": n.astype(float),
        "tarone-ware": np.sqrt(n),
        "peto": np.cumprod(1 - d / (n + 1)),
    }[weights]
    observed, expected = events[:, seen] @ weight, own @ (weight * d / n)
    # Of one row at risk that has the event nothing is left to chance: (n - d) / (n - 1) is 0 / 0,
    # and its variance is 0.
    spread = weight**2 * d * (n - d) / (n.astype(float) ** 2 * np.maximum(n - 1, 1))
    covariance = np.diag(own @ (spread * n)) - (own * spread) @ own.T
    return observed, expected, covariance


def quadratic_form(score: Floats, covariance: Floats) -> tuple[float, int]:
    """Return the chi-square statistic of a score, and its degrees of freedom: the rank of the
    covariance.
    """
    spread = np.sqrt(covariance.diagonal().clip(min=0.0))
    unit = np.where(
        spread > 0, spread, 1.0
    )  # as correlations, so that no unit of a covariate decides on the rank
    rank = int(np.linalg.matrix_rank(covariance / np.outer(unit, unit), tol=1e-9, hermitian=True))
    if not rank:
        raise DataError(
            "at no time with an event are rows of different kinds at risk: there is nothing to "
            "compare",
            code="no-overlap-at-risk",
        )
    inverse = np.linalg.pinv(covariance / np.outer(unit, unit), rcond=1e-9, hermitian=True)
    return float(score / unit @ inverse @ (score / unit)), rank


# -- person-time -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class IncidenceRate(SurvivalQuestion):
    """Events per person-time by group, with exact Poisson intervals, and the ratio of each rate to
    that of the first group.

    Parameters
    ----------
    time, event, by, event_level
        See :class:`KaplanMeier`. The time may also be kept as a number, which sums it exactly;
        intervals do not say how long rows were followed and are refused.
    confidence : float
    per : float
        Person-time that rates are for, such as 1000.

    References
    ----------
    Garwood (1936) for a rate; for a ratio the binomial distribution of the events given their
    number, as R's ``poisson.test``.
    """

    confidence: float = 0.95
    per: float = 1.0
    title: ClassVar[str] = "Incidence rates"
    constraints: ClassVar[Constraints] = {
        "confidence": CONFIDENCE,
        "per": RealNumber(low=0, closed="right", code="per-out-of-range"),
    }

    def __post_init__(self) -> None:
        self.check_parameters()

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what a survival question refuses, but allow a time that is a number."""
        if not is_kept_number(schema, self.time):
            super().check_schema(schema)
            return
        positions = [factor_position(schema, variable) for variable in self._list_variables()[1:]]
        if len(set(positions)) < len(positions):
            raise SchemaError(
                f"{self.describe(schema)}: event and group have to be different variables",
                code="same-variable-twice",
            )
        event_number(schema, self.event, self.event_level)

    def check_names(self, schema: Schema) -> None:
        """Refuse a time that does not say how long rows were followed."""
        if not is_kept_number(schema.public(), self.time):
            check_person_time(schema, self.time)

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every outcome and group, and their time; or the rows of every time."""
        if not is_kept_number(schema, self.time):
            return super().totals(schema, columns, fold)
        asked = self._list_variables()[1:]
        time = number_column(schema, class_or_variable(self.time, schema))
        followed = groups(schema, asked, fold, present=True).sum(axis=0, keepdims=self.by is None)
        return {
            "cells": cell_totals(schema, asked, fold),
            "person_time": totals_of(followed * time),
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        if not is_kept_number(schema, self.time):
            return super().shapes(schema)
        asked = self._list_variables()[1:]
        return {
            "cells": cell_shape(schema, asked),
            "person_time": cell_shape(schema, asked, present=True)[1:] or (1,),
        }

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the rates."""
        sets, person_time = self._read_counts(totals, schema, n_rows)
        kept = sets.with_rows()
        time = [person_time[sets.groups.index(group)] for group in kept.groups]
        rows, events = kept.ending.sum(axis=1).tolist(), kept.events.sum(axis=1).tolist()
        lines = [
            {
                "rows": n,
                "events": d,
                "person_time": float(t),
                **_rate(d, t, self.per, self.confidence),
            }
            for n, d, t in zip(rows, events, time, strict=True)
        ]
        rates = pd.DataFrame(lines, index=pd.Index(list(kept.groups), name=kept.by))
        terms = as_terms(rates.rename(columns={"rate": "estimate"}))
        terms.index = pd.Index(
            ["rate" if kept.by is None else f"rate [{one}]" for one in kept.groups]
        )
        if kept.by is not None:
            first = events[0], time[0]
            ratios = {
                f"rate ratio [{group}]": _rate_ratio((d, t), first, self.confidence)
                for group, d, t in zip(kept.groups[1:], events[1:], time[1:], strict=True)
            }
            found = pd.DataFrame(list(ratios.values()), index=list(ratios))
            terms = as_terms(pd.concat([found.iloc[::-1], terms]))
        return TestResult.of_terms(
            terms,
            title=_title("Incidence rates", kept),
            n_rows=kept.n_rows,
            notes=(*kept.notes, *self._remarks(kept)),
            confidence=self.confidence,
            table=rates,
            details={"per": self.per},
        )

    def _remarks(self, sets: RiskSets) -> list[str]:
        said = [
            f"rates per {number_text(self.per)} of {sets.times.name}, exact "
            f"{100 * self.confidence:g} % intervals"
        ]
        if sets.by is not None:
            said.append(f"rate ratios to {sets.by} {sets.groups[0]}")
        return said

    def _read_counts(
        self, totals: Totals, schema: Schema | PublicSchema, n_rows: int
    ) -> tuple[RiskSets, list[Fraction]]:
        """Return the rows and events of every group, and how long it was followed."""
        if not is_kept_number(schema.public(), self.time):
            sets = self.risk_sets(totals, schema, n_rows)
            need_times(schema, sets.times.name)
            check_points(sets.times)
            points = [Fraction(point) for point in sets.times.ends.tolist()]
            return sets, [
                sum((n * t for n, t in zip(row, points, strict=True)), Fraction(0))
                for row in sets.ending.tolist()
            ]
        position = class_or_variable(self.time, schema.public())
        cells = read_cells(totals["cells"], schema, self._list_variables()[1:], n_rows)
        name, unit = variable_name(schema, position), scale(schema, position)
        one = cells.counts[None]  # all rows at one time: only their sums are read
        whole = Cells((factor(schema, self.event), *cells.factors), one, cells.n_missing)
        sets = risk_sets(
            whole,
            Times(name, np.zeros(1), None),
            event_number(schema, self.event, self.event_level),
        )
        return sets, [Fraction(int(total), unit) for total in totals["person_time"].flat]


def _rate(events: int, time: Fraction, per: float, confidence: float) -> dict[str, float]:
    """Return events per time with Garwood's exact interval."""
    from scipy.stats import chi2

    refuse_impossible(time >= 0, "rows would have been followed for less than no time")
    if not time:
        return {"rate": np.nan, "low": np.nan, "high": np.nan}
    unit, tail = per / float(time), (1 - confidence) / 2
    low = float(chi2.ppf(tail, 2 * events)) / 2 if events else 0.0
    return {
        "rate": events * unit,
        "low": low * unit,
        "high": float(chi2.isf(tail, 2 * events + 2)) / 2 * unit,
    }


def _rate_ratio(
    one: tuple[int, Fraction], other: tuple[int, Fraction], confidence: float
) -> dict[str, float]:
    """Return the ratio of two rates: given all events, those of the first are binomial."""
    from scipy.stats import binomtest

    (events, time), (others, their_time) = one, other
    if not events + others or not time or not their_time:
        return {"estimate": np.nan}
    test = binomtest(events, events + others, float(time / (time + their_time)))
    limits = test.proportion_ci(confidence)
    relative = float(their_time / time)
    low, high, ratio = (
        relative * share / (1 - share) if share < 1 else np.inf
        for share in (limits.low, limits.high, events / (events + others))
    )
    return {"estimate": ratio, "low": low, "high": high, "pvalue": float(test.pvalue)}
