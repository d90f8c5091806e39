"""Hazards and covariates: the score test of Cox's regression, and piecewise-exponential regression.

Both are read from totals by time. Cox's regression itself is iterative and asks the rows anew at
every step: its score test, and the first step towards its estimate, do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression, sum_of
from encryptedstats.errors import DataError, ParameterError, SchemaError
from encryptedstats.statistics._distributions import chi2_tail
from encryptedstats.statistics.factors import (
    Counted,
    cell_shape,
    check_groups,
    choose_group,
    factor,
)
from encryptedstats.statistics.formulas import INTERCEPT
from encryptedstats.statistics.generalized import (
    GLMResult,
    Levels,
    cell_matrix,
    check_size,
    fitted_result,
)
from encryptedstats.statistics.results import TestResult
from encryptedstats.statistics.survival import (
    CLASS,
    check_person_time,
    check_points,
    check_time,
    event_number,
    is_kept_number,
    need_times,
    quadratic_form,
    times_of,
)
from encryptedstats.tables.questions.constraints import CONFIDENCE, Choice, Constraints
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    bin_columns,
    number_column,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import indicators, scale, variable_name
from encryptedstats.tables.schema.names import class_or_variable
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
TIES: Final = ("efron", "breslow")


def _names(covariates: Any) -> tuple[str, ...]:
    return (covariates,) if isinstance(covariates, str) else tuple(covariates)


# -- Cox -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of the regression: a level of a factor, or a number."""

    variable: str
    level: int | None  # None for a number


@dataclass(frozen=True)
class CoxScore(Question):
    r"""The score test of Cox's proportional hazards regression, from totals by time.

    .. math:: U = \sum_t \Big(\sum_{i \text{ has the event at } t} x_i - d_t \bar x_t\Big)

    where the mean is over the rows at risk. It is the test that R's ``coxph`` calls score
    (logrank). The first Newton step,
    :math:`I^{-1} U`, comes along: near the log hazard ratio where that is small, too small where it
    is not.

    Parameters
    ----------
    time, event, event_level
        See :class:`KaplanMeier`.
    variables : list of str
        Factors, whose first level is the reference, and numbers.
    ties : "efron" or "breslow"

    References
    ----------
    Cox (1972). Efron (1977).
    """

    time: str
    event: str = CLASS
    variables: Any = ()
    event_level: Any = None
    ties: str = "efron"

    title: ClassVar[str] = "Cox score test"
    constraints: ClassVar[Constraints] = {"ties": Choice(values=TIES, code="unknown-ties")}
    of_variables: ClassVar[tuple[str, ...]] = ("time", "event", "variables")
    of_levels: ClassVar[Mapping[str, str]] = {"event_level": "event"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", _names(self.variables))
        self.check_parameters()
        if not self.variables:
            raise ParameterError(
                "variables=[]: a score test is of covariates, name some", code="no-covariates"
            )

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, and a variable beside itself."""
        check_time(schema, self.time)
        named = (self.time, self.event, *self.variables)
        positions = [class_or_variable(name, schema) for name in named]
        if len(set(positions)) < len(positions):
            raise SchemaError(
                f"{self.describe(schema)}: time, event and covariates have to be different "
                "variables",
                code="same-variable-twice",
            )
        event_number(schema, self.event, self.event_level)
        constant = [
            name
            for name in self.variables
            if not is_kept_number(schema, name) and len(factor(schema, name).labels) < 2
        ]
        if constant:
            raise DataError(
                f"the covariate {constant[0]!r} has one level: it is constant, and there is "
                "nothing to test",
                code="one-level",
            )

    def check_names(self, schema: Schema) -> None:
        """Refuse levels of the time that are no numbers."""
        times_of(schema, self.time)

    def _columns(self, schema: PublicSchema) -> list[_Column]:
        found: list[_Column] = []
        for name in self.variables:
            if is_kept_number(schema, name):
                found.append(_Column(name, None))
            else:
                found += [
                    _Column(name, level) for level in range(1, len(factor(schema, name).labels))
                ]
        return found

    def _pairs(self, schema: PublicSchema) -> list[tuple[int, int]]:
        """Return columns whose product is asked for: of two levels of one factor it is known."""
        columns = self._columns(schema)
        return [
            (p, q)
            for p, q in combinations_with_replacement(range(len(columns)), 2)
            if columns[p].level is None or columns[p].variable != columns[q].variable
        ]

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return for every time, with and without the event, the rows, the sums of the columns and
        the sums of their products.
        """
        known = self._columns(schema)
        x = [
            number_column(schema, class_or_variable(one.variable, schema))
            if one.level is None
            else indicators(schema, class_or_variable(one.variable, schema), fold)[one.level]
            for one in known
        ]
        products = [x[p] * x[q] for p, q in self._pairs(schema)]
        followed = self._follow(schema, fold)
        return {
            "rows": [[one.total() for one in line] for line in followed],
            "sums": [
                [[(one * column).total() for column in x] for one in line] for line in followed
            ],
            "products": [
                [[(one * two).total() for two in products] for one in line] for line in followed
            ],
        }

    def _follow(self, schema: PublicSchema, fold: int | None) -> list[list[Expression]]:
        """Return rows that are followed until a time, without the event and with it; complete in
        all covariates.
        """
        outcome = factor(schema, self.event)
        level = choose_group(outcome, self.event_level, "event_level", 1)
        columns = indicators(schema, outcome.position, fold)[: len(outcome.labels)]
        both = [sum_of([one for k, one in enumerate(columns) if k != level]), columns[level]]
        for name in self.variables:
            if not is_kept_number(schema, name) and factor(schema, name).missing_bin:
                present = sum_of(bin_columns(schema, factor(schema, name).position)[:-1])
                both = [one * present for one in both]
        time = factor(schema, self.time)
        return [
            [at * one for one in both]
            for at in indicators(schema, time.position, fold)[: len(time.labels)]
        ]

    def shapes(self, schema: PublicSchema) -> Shapes:
        n = len(factor(schema, self.time).labels)
        return {
            "rows": (n, 2),
            "sums": (n, 2, len(self._columns(schema))),
            "products": (n, 2, len(self._pairs(schema))),
        }

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        rows, public = totals["rows"], schema.public()
        refuse_impossible(min(rows.flat) >= 0, "a time would have fewer than no rows")
        if not rows[:, 1].sum():
            raise DataError(
                f"no row has the event: all {int(rows.sum()):,} rows are censored, and a score "
                "test needs events",
                code="no-events",
            )
        first, second, units = self._moments(totals, schema)
        score, information = cox_score(rows, first, second, self.ties)
        statistic, df = quadratic_form(score, information)
        names = self._names(schema)
        notes = []
        n_all = int(rows.sum())
        if class_or_variable(self.event, public) != -1 and n_all < n_rows:
            notes.append(f"{n_rows - n_all:,} rows were left out because a value is missing")
        outcome = factor(schema, self.event)
        level = choose_group(outcome, self.event_level, "event_level", 1)
        notes += [
            f"event: {outcome.name} is {outcome.labels[level]} ({int(rows[:, 1].sum()):,}); all "
            "others are censored"
        ]
        notes += [*times_of(schema, self.time).notes, f"ties: {self.ties.capitalize()}"]
        notes.append(
            "estimates are the first Newton step towards the log hazard ratio, without standard "
            "error"
        )
        if df < len(names):
            notes.append(
                f"{len(names) - df} columns depend on others or are constant, and were not "
                "counted as degrees of freedom"
            )
        matrix = information * np.outer(units, units)
        table, terms = _covariate_tables(names, score * units, matrix)
        return TestResult(
            title="Score test of Cox's regression of "
            f"{variable_name(schema, class_or_variable(self.time, public))}",
            n_rows=n_all,
            notes=tuple(notes),
            statistic=statistic,
            df=float(df),
            pvalue=chi2_tail(statistic, df),
            term="all covariates",
            table=table,
            others=terms,
            tables={"information": pd.DataFrame(matrix, index=names, columns=names)},
            details={"ties": self.ties},
        )

    def _names(self, schema: Schema | PublicSchema) -> list[str]:
        found = []
        for one in self._columns(schema.public()):
            if one.level is None:
                found.append(
                    variable_name(schema, class_or_variable(one.variable, schema.public()))
                )
            else:
                known = factor(schema, one.variable)
                found.append(f"{known.name}[{known.labels[one.level]}]")
        return found

    def _moments(
        self, totals: Totals, schema: Schema | PublicSchema
    ) -> tuple[NDArray[Any], NDArray[Any], Floats]:
        """Return sums and sums of products of all columns by time and outcome, in integers, about a
        whole number near the mean of each.
        """
        public = schema.public()
        columns, rows, first = self._columns(public), totals["rows"], totals["sums"].copy()
        n, k = len(rows), len(columns)
        second = np.zeros((n, 2, k, k), dtype=object)
        for place, (p, q) in enumerate(self._pairs(public)):
            second[:, :, p, q] = second[:, :, q, p] = totals["products"][:, :, place]
        for p, one in enumerate(columns):
            if one.level is not None:
                second[:, :, p, p] = first[:, :, p]
        count = int(rows.sum())
        near = np.array(
            [
                int(first[:, :, p].sum()) // count if columns[p].level is None else 0
                for p in range(k)
            ],
            dtype=object,
        )
        for p in range(k):
            for q in range(k):
                shift = (
                    near[p] * first[:, :, q] + near[q] * first[:, :, p] - near[p] * near[q] * rows
                )
                second[:, :, p, q] = second[:, :, p, q] - shift
        for p in range(k):
            first[:, :, p] = first[:, :, p] - near[p] * rows
        units = [
            1.0
            if one.level is not None
            else 1 / scale(schema, class_or_variable(one.variable, public))
            for one in columns
        ]
        return first, second, np.array(units)


def _covariate_tables(
    names: Sequence[str], score: Floats, information: Floats
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the score and information of every column, and its test with the one-step estimate."""
    alone, index = information.diagonal(), pd.Index(list(names), name="covariate")
    with np.errstate(divide="ignore", invalid="ignore"):
        chi2 = np.where(alone > 0, score**2 / alone, np.nan)
    step = np.linalg.pinv(information, rcond=1e-12, hermitian=True) @ score
    pvalues = [chi2_tail(value, 1) for value in chi2]
    terms = {"estimate": step, "statistic": chi2, "df": 1.0, "pvalue": pvalues}
    scores = {"score": score, "information": alone, "one_step": step}
    return pd.DataFrame(scores, index), pd.DataFrame(terms, index)


def cox_score(
    rows: NDArray[Any], first: NDArray[Any], second: NDArray[Any], ties: str
) -> tuple[Floats, Floats]:
    """Score and information of the partial likelihood where all coefficients are 0, from sums by
    time, without and with events.
    """
    at_risk, sums, products = (_from_the_end(array.sum(axis=1)) for array in (rows, first, second))
    k = first.shape[2]
    score, information = np.zeros(k), np.zeros((k, k))
    for t in np.flatnonzero(rows[:, 1].astype(bool)):
        n, d = int(at_risk[t]), int(rows[t, 1])
        s1, s2 = sums[t].astype(float), products[t].astype(float)
        d1, d2 = first[t, 1].astype(float), second[t, 1].astype(float)
        # Efron's: of d events at once, each is thought to leave the others at risk by a share.
        gone = np.arange(d, dtype=float) if ties == "efron" else np.zeros(d)
        left, share = n - gone, gone / d
        means = (s1 - share[:, None] * d1) / left[:, None]
        score += d1 - means.sum(axis=0)
        information += s2 * (1 / left).sum() - d2 * (share / left).sum() - means.T @ means
    return score, information


def _from_the_end(array: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.cumsum(array[::-1], axis=0)[::-1]
    return found


# -- piecewise exponential -------------------------------------------------------------------------


@dataclass(frozen=True)
class PiecewiseExponential(Counted):
    """Regression of a hazard that is constant between cut points, on factors: a Poisson regression
    of events on person-time.

    Parameters
    ----------
    time, event, event_level
        See :class:`KaplanMeier`; the time is a grid of numbers, which says how long rows were
        followed.
    variables : list of str
        Factors; their first levels are the reference.
    cuts : list
        Levels of the time at which an interval ends and the next one starts.
    confidence : float

    References
    ----------
    Holford (1980). Laird and Olivier (1981).
    """

    time: str
    event: str = CLASS
    variables: Any = ()
    cuts: Any = ()
    event_level: Any = None
    confidence: float = 0.95

    title: ClassVar[str] = "Piecewise exponential regression"
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}
    of_variables: ClassVar[tuple[str, ...]] = ("time", "event", "variables")
    of_levels: ClassVar[Mapping[str, str]] = {"event_level": "event", "cuts": "time"}
    _apart: ClassVar[str] = "time, event and covariates have to be different variables"

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", _names(self.variables))
        object.__setattr__(self, "cuts", tuple(self.cuts))
        self.check_parameters()

    def _list_variables(self) -> tuple[str, ...]:
        return (self.time, self.event, *self.variables)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, cuts that are no levels, and tables that are too large."""
        check_time(schema, self.time)
        super().check_schema(schema)
        event_number(schema, self.event, self.event_level)
        self._ends(schema)
        check_groups(schema, self.variables)
        check_size(
            "PiecewiseExponential",
            self._list_variables(),
            cell_shape(schema, self._list_variables()),
        )

    def check_names(self, schema: Schema) -> None:
        """Refuse a time that does not say how long rows were followed."""
        check_person_time(schema, self.time)

    def _ends(self, schema: Schema | PublicSchema) -> list[int]:
        """Return the last point of the grid in every interval."""
        known = factor(schema, self.time)
        found = [choose_group(known, cut, "cuts", 0) for cut in self.cuts]
        if found != sorted(set(found)) or (found and found[-1] == len(known.labels) - 1):
            raise ParameterError(
                f"cuts={list(self.cuts)}: increasing levels of the time, before its last one",
                code="invalid-cuts",
            )
        return [*found, len(known.labels) - 1]

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> GLMResult:
        """Return the Poisson regression: log hazard ratios."""
        cells = self._cells(totals, schema, n_rows)
        times, level = (
            times_of(schema, self.time),
            event_number(schema, self.event, self.event_level),
        )
        need_times(schema, times.name)
        check_points(times)
        counts, covariates = cells.counts.astype(float), cells.factors[2:]
        events, exposure = by_interval(counts, times.ends, self._ends(schema), level)
        if not events.sum():
            raise DataError(
                f"no row has the event: all {cells.n:,} rows are censored, and a regression of "
                "hazards needs events",
                code="no-events",
            )
        names = [f"{low:g}-{high:g}" for low, high in self._limits(times.ends, schema)]
        axes: list[tuple[str, Sequence[Any]]] = [
            ("interval", names),
            *((one.name, one.labels) for one in covariates),
        ]
        columns: list[Levels] = [
            (),
            *(((axis, k),) for axis, (_, levels) in enumerate(axes) for k in range(1, len(levels))),
        ]
        shown = [INTERCEPT, *(f"{name}[{level}]" for name, levels in axes for level in levels[1:])]
        places = np.argwhere(exposure > 0)
        chosen = tuple(places.T)
        if events[chosen].sum() < events.sum():
            raise DataError(
                "rows have the event at time 0, before any person-time: a hazard is infinite there",
                code="event-at-time-zero",
            )
        outcome = factor(schema, self.event)
        covered = " + ".join(["interval", *(one.name for one in covariates)])
        result, _ = fitted_result(
            shown,
            cell_matrix(columns, places),
            events[chosen],
            exposure[chosen],
            "poisson",
            title=f"Piecewise-exponential regression of {times.name}",
            n_rows=cells.n,
            notes=(
                *cells.notes,
                *times.notes,
                f"event: {outcome.name} is {outcome.labels[level]} ({int(events.sum()):,}); all "
                "others are censored",
                "the hazard is constant within an interval; estimates are log hazard ratios, and "
                "the log hazard of the first cell",
                "deviance, its degrees of freedom and AIC are those of intervals by cells",
            ),
            formula=f"hazard({times.name}) ~ {covered}",
            n_trials=len(places),
            confidence=self.confidence,
        )
        return result

    def _limits(self, points: Floats, schema: Schema | PublicSchema) -> list[tuple[float, float]]:
        ends = [float(points[end]) for end in self._ends(schema)]
        return list(zip([0.0, *ends[:-1]], ends, strict=True))


def by_interval(
    counts: Floats, points: Floats, ends: Sequence[int], level: int
) -> tuple[Floats, Floats]:
    """Return events and person-time of every interval and cell, from the rows of every time,
    outcome and cell.
    """
    events, exposure, start, low = [], [], 0, 0.0
    followed = counts.sum(axis=1)
    for end in ends:
        high = float(points[end])
        events.append(counts[start : end + 1, level].sum(axis=0))
        inside = np.clip(points - low, 0.0, high - low)
        exposure.append(np.tensordot(inside, followed, axes=(0, 0)))
        start, low = end + 1, high
    return np.stack(events), np.stack(exposure)
