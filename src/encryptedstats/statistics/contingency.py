"""Tables of counts: chi-square, Fisher's exact test, Mantel-Haenszel, trends, odds and risks,
kappa, ROC curves of binned scores.

Each needs the rows of every combination of groups and nothing else. Fields have the names that
scipy and statsmodels give them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import Cure, DataError, ParameterError, SchemaError
from encryptedstats.metrics import wilson_interval
from encryptedstats.statistics._distributions import chi2_tail, normal_quantile, normal_tails
from encryptedstats.statistics._fisher import (
    SIMULATED,
    conditional_odds,
    larger_pvalue,
    two_by_two_pvalue,
)
from encryptedstats.statistics.factors import (
    Cells,
    Counted,
    Factor,
    check_groups,
    choose_group,
    factor,
    without_empty,
)
from encryptedstats.statistics.results import TestResult
from encryptedstats.tables.questions.constraints import (
    ALTERNATIVE,
    CONFIDENCE,
    NUMBERS,
    Choice,
    Constraints,
)
from encryptedstats.tables.questions.question import Totals
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.views import number_text

Floats = NDArray[np.float64]
MEASURES: Final = ("odds_ratio", "risk_ratio", "risk_difference")
_FEW: Final = 5  # expected rows of a cell below which a chi-square is said to be rough, as R does
_ROUGH: Final = "some cells are expected to have fewer than 5 rows: the approximation may be rough"


_RATINGS: Final = 12  # of Cochran's Q: 4,096 patterns


def exact_ratio(above: Fraction | int, below: Fraction | int) -> float:
    """Return a ratio of exact numbers: infinite over nothing, NaN of nothing over nothing."""
    if below == 0:
        return np.nan if above == 0 else float(np.inf if above > 0 else -np.inf)
    return float(Fraction(above) / Fraction(below))


# -- chi-square ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChiSquare(Counted):
    """Whether two variables are independent; or, of one, whether its groups have the shares ``p``.

    Parameters
    ----------
    first, second : str
        Variables with bins, or the class.
    correction : bool
        Yates's, for two groups by two, as scipy and R do.
    p : list of float, optional
        Of one variable: the shares that its groups are compared with; equal ones by default.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> sick = [1] * 18 + [0] * 12 + [1] * 9 + [0] * 21
    >>> frame = pd.DataFrame({"exposed": ["yes"] * 30 + ["no"] * 30, "sick": sick})
    >>> table = es.Schema.infer(frame, target="sick").table(frame)
    >>> found = table.ask(es.ChiSquare("exposed", "sick"))
    >>> round(found.statistic, 3), found.df, round(found.pvalue, 3)
    (4.31, 1.0, 0.038)
    """

    title: ClassVar[str] = "Chi-squared test"
    of_variables: ClassVar[tuple[str, ...]] = ("first", "second")

    first: str
    second: str | None = None
    correction: bool = True
    p: list[float] | None = None
    constraints: ClassVar[Constraints] = {"p": NUMBERS}

    def _list_variables(self) -> tuple[str, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse factors of one group, and shares that do not fit."""
        super().check_schema(schema)
        check_groups(schema, self._list_variables())
        if self.p is None:
            return
        if self.second is not None:
            raise ParameterError(
                "p= is for one variable: two are compared with independence",
                code="p-with-two-variables",
            )
        n = len(factor(schema, self.first).labels)
        if len(self.p) != n or min(self.p) < 0 or abs(sum(self.p) - 1) > 1e-9:
            raise ParameterError(
                f"p={self.p!r}: {n} shares that add up to 1 are needed, one for each group",
                code="invalid-shares",
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        cells = self._cells(totals, schema, n_rows)
        if self.second is None:
            return self._of_one(cells)
        kept, notes = without_empty(cells)
        observed = kept.counts.astype(float)
        n, rows, columns = (
            kept.n,
            kept.counts.sum(axis=1).astype(float),
            kept.counts.sum(axis=0).astype(float),
        )
        expected = np.outer(rows, columns) / n
        variances = expected * np.outer(1 - rows / n, 1 - columns / n)
        yates = self.correction and observed.shape == (2, 2)
        title = "Pearson's chi-square test" + (" with Yates's correction" if yates else "")
        df = (len(rows) - 1) * (len(columns) - 1)
        wanted = _Expected(expected, variances, df)
        return _chi_square(title, (*cells.notes, *notes), kept, wanted, yates=yates)

    def _of_one(self, cells: Cells) -> TestResult:
        n, k = cells.n, len(cells.counts)
        shares = np.full(k, 1 / k) if self.p is None else np.array(self.p, dtype=float)
        if not n or k < 2:
            raise DataError(
                f"{cells.factors[0].name!r} has {n} rows in {k} groups: two groups and some rows "
                "are needed",
                code="too-few-groups",
            )
        expected = (n * shares)[:, None]
        variances = expected * (1 - shares)[:, None]
        title = "Chi-square test for given shares"
        wanted = _Expected(expected, variances, k - 1)
        return _chi_square(title, cells.notes, cells, wanted, yates=False)


@dataclass(frozen=True)
class _Expected:
    """Counts under the null hypothesis, their variances, and the degrees of freedom."""

    counts: Floats
    variances: Floats
    df: int


def _chi_square(
    title: str, notes: tuple[str, ...], cells: Cells, wanted: _Expected, *, yates: bool
) -> TestResult:
    frame, expected = cells.frame, wanted.counts
    apart = frame.to_numpy(dtype=float) - expected
    # Yates's correction never goes beyond the expected count.
    nearer = np.abs(apart) - (np.minimum(0.5, np.abs(apart)) if yates else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = float((nearer**2 / expected).sum())
        residuals, stdres = apart / np.sqrt(expected), apart / np.sqrt(wanted.variances)

    def label(values: Floats) -> pd.DataFrame:
        return pd.DataFrame(values, index=frame.index, columns=frame.columns)

    return TestResult(
        title=f"{title}: {' by '.join(one.name for one in cells.factors)}",
        n_rows=cells.n,
        notes=(*notes, _ROUGH) if expected.min() < _FEW else notes,
        statistic=statistic,
        df=float(wanted.df),
        pvalue=chi2_tail(statistic, wanted.df),
        term="chi-square",
        table=frame,
        tables={
            "expected": label(expected),
            "residuals": label(residuals),
            "standardised residuals": label(stdres),
        },
        picture="plot_residuals",
    )


# -- Fisher's exact test ---------------------------------------------------------------------------


@dataclass(frozen=True)
class FisherExact(Counted):
    """Fisher's exact test of two variables; of two groups by two also the odds ratio with its exact
    interval.

    The p-value is exact, as in R. Where a table is too large for that, it is estimated from random
    tables, which are the same at every time; a note then says so.

    Parameters
    ----------
    first, second : str
        Variables with bins, or the class.
    alternative : "two-sided", "less" or "greater"
        Other than two-sided only for two groups by two.
    confidence : float

    References
    ----------
    Mehta and Patel (1983), A network algorithm for performing Fisher's exact test in r x c
    contingency tables.
    """

    title: ClassVar[str] = "Fisher's exact test"
    of_variables: ClassVar[tuple[str, ...]] = ("first", "second")

    first: str
    second: str
    alternative: str = "two-sided"
    confidence: float = 0.95
    constraints: ClassVar[Constraints] = {
        "alternative": ALTERNATIVE,
        "confidence": CONFIDENCE,
    }

    def _list_variables(self) -> tuple[str, ...]:
        return self.first, self.second

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse factors of one group, unknown alternatives, and one-sided tests of more than two
        groups.
        """
        super().check_schema(schema)
        check_groups(schema, self._list_variables())
        shape = tuple(len(factor(schema, variable).labels) for variable in self._list_variables())
        if self.alternative != "two-sided" and shape != (2, 2):
            sizes = " by ".join(map(str, shape))
            raise ParameterError(
                f"alternative={self.alternative!r} is for two groups by two, and these are "
                f"{sizes}: ",
                Cure(
                    "parameter",
                    "alternative='two-sided'",
                    {"parameter": "alternative", "value": "two-sided"},
                ),
                code="not-two-by-two",
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Test the counts, with both margins fixed."""
        cells = self._cells(totals, schema, n_rows)
        kept, notes = without_empty(cells)
        counts = kept.counts.astype(np.int64)
        estimate, interval, statistic = np.nan, (np.nan, np.nan), np.nan
        if counts.shape == (2, 2):
            pvalue = two_by_two_pvalue(counts, self.alternative)
            statistic = exact_ratio(
                int(counts[0, 0]) * int(counts[1, 1]), int(counts[0, 1]) * int(counts[1, 0])
            )
            estimate, interval = conditional_odds(counts, self.alternative, self.confidence)
        else:
            pvalue, exact = larger_pvalue(counts)
            if not exact:
                notes = (*notes, _simulated_note(pvalue))
        return TestResult(
            title=f"Fisher's exact test: {' by '.join(one.name for one in kept.factors)}",
            n_rows=cells.n,
            notes=(*cells.notes, *notes),
            statistic=statistic,
            pvalue=pvalue,
            estimate=estimate,
            low=interval[0],
            high=interval[1],
            confidence=self.confidence,
            term="odds ratio",
            table=kept.frame,
            details={"alternative": self.alternative},
        )


def _simulated_note(pvalue: float) -> str:
    error = float(np.sqrt(pvalue * (1 - pvalue) / SIMULATED))
    return (
        f"the table is too large for an exact p-value: it is estimated from {SIMULATED:,} random "
        f"tables, the same at every time, with a standard error of {number_text(error)}"
    )


# -- strata ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MantelHaenszel(Counted):
    """The odds ratio of two variables of two groups each, common to all strata of a third, and
    whether it is 1.

    Parameters
    ----------
    exposure, target : str
        Variables of two groups each. The event is the last group of the outcome, the exposed are
        the last of the exposure.
    strata : str
    correction : bool
        For continuity, as R's ``mantelhaen.test``.
    confidence : float
    """

    title: ClassVar[str] = "Mantel-Haenszel odds ratio"
    of_variables: ClassVar[tuple[str, ...]] = ("exposure", "target", "strata")

    exposure: str
    target: str
    strata: str
    correction: bool = True
    confidence: float = 0.95
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}

    def _list_variables(self) -> tuple[str, ...]:
        return self.exposure, self.target, self.strata

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse more than two groups."""
        super().check_schema(schema)
        for variable in (self.exposure, self.target):
            n = len(factor(schema, variable).labels)
            if n != 2:
                raise SchemaError(
                    f"{variable!r} has {n} groups: Mantel-Haenszel is about two by two in every "
                    "stratum",
                    code="not-two-groups",
                )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the estimates of the textbook, their sums in exact fractions."""
        cells = self._cells(totals, schema, n_rows)
        named = cells.factors[2]
        # Exposed and with the event first: a, b / c, d, as the textbook has it.
        tables = [cells.counts[::-1, ::-1, k] for k in range(len(named.labels))]
        used = [k for k, table in enumerate(tables) if table.sum() > 1]
        notes = cells.notes
        if len(used) < len(tables):
            few = ", ".join(str(named.labels[k]) for k in range(len(tables)) if k not in used)
            notes = (*notes, f"strata with fewer than 2 rows were left out: {few}")
        if not used:
            raise DataError(f"no stratum of {named.name!r} has two rows", code="strata-too-small")
        found = _pool([tables[k] for k in used], self.correction)
        z = normal_quantile(self.confidence)
        ends = (
            np.exp(np.log(found["odds"]) + z * found["se"] * np.array([-1, 1]))
            if found["odds"] > 0
            else (np.nan, np.nan)
        )
        day, day_df = _breslow_day([tables[k] for k in used], found["odds"])
        event, exposed = cells.factors[1].labels[1], cells.factors[0].labels[1]
        lines = {
            "exposed, event": [int(t[0, 0]) for t in tables],
            "exposed, none": [int(t[0, 1]) for t in tables],
            "unexposed, event": [int(t[1, 0]) for t in tables],
            "unexposed, none": [int(t[1, 1]) for t in tables],
            "odds_ratio": [exact_ratio(t[0, 0] * t[1, 1], t[0, 1] * t[1, 0]) for t in tables],
        }
        return TestResult(
            title=f"Mantel-Haenszel test: {cells.factors[0].name} and {cells.factors[1].name} by "
            f"{named.name}",
            n_rows=sum(int(tables[k].sum()) for k in used),
            notes=(
                *notes,
                f"the event is {event} of {cells.factors[1].name}, the exposed are {exposed} of "
                f"{cells.factors[0].name}",
            ),
            statistic=found["chi2"],
            df=1.0,
            pvalue=chi2_tail(found["chi2"], 1),
            estimate=found["odds"],
            low=float(ends[0]),
            high=float(ends[1]),
            confidence=self.confidence,
            term="common odds ratio",
            table=pd.DataFrame(lines, index=named.index),
            others=pd.DataFrame(
                [
                    {"estimate": found["risk"]},
                    {
                        "statistic": day,
                        "df": day_df or np.nan,
                        "pvalue": chi2_tail(day, day_df) if day_df else np.nan,
                    },
                ],
                index=["common risk ratio", "Breslow-Day"],
            ),
            details={"log_odds_std_error": found["se"]},
        )


def _pool(tables: Sequence[NDArray[Any]], correction: bool) -> dict[str, float]:
    """Mantel and Haenszel's test and ratios, and the variance of the log odds by Robins, Breslow
    and Greenland (1986).
    """
    zero = Fraction(0)
    apart, variance, r, s, pr, mixed, qs, above, below = (zero,) * 9
    for table in tables:
        (a, b), (c, d) = ((int(x) for x in line) for line in table)
        n = a + b + c + d
        apart += a - Fraction((a + b) * (a + c), n)
        variance += Fraction((a + b) * (c + d) * (a + c) * (b + d), n * n * (n - 1))
        R, S, P, Q = Fraction(a * d, n), Fraction(b * c, n), Fraction(a + d, n), Fraction(b + c, n)
        r, s, pr, mixed, qs = r + R, s + S, pr + P * R, mixed + P * S + Q * R, qs + Q * S
        above, below = above + Fraction(a * (c + d), n), below + Fraction(c * (a + b), n)
    # As in R, the correction is left out where it would go beyond what is expected.
    half = Fraction(1, 2)
    away = abs(apart) - (half if correction and abs(apart) >= half else 0)
    chi2 = exact_ratio(away * away, variance)
    squared = pr / (2 * r * r) + mixed / (2 * r * s) + qs / (2 * s * s) if r and s else None
    se = np.nan if squared is None else float(np.sqrt(float(squared)))
    return {"chi2": chi2, "odds": exact_ratio(r, s), "se": se, "risk": exact_ratio(above, below)}


def _breslow_day(tables: Sequence[NDArray[Any]], odds: float) -> tuple[float, int]:
    """Test for one odds ratio in all strata, with Tarone's correction; also its degrees of freedom.

    Strata with an empty margin have no odds ratio: they say nothing, and do not count.
    """
    tables = [table for table in tables if table.sum(axis=0).all() and table.sum(axis=1).all()]
    if not np.isfinite(odds) or odds <= 0 or len(tables) < 2:
        return np.nan, 0
    total, apart, spread = 0.0, 0.0, 0.0
    for table in tables:
        (a, b), (c, d) = ((float(x) for x in line) for line in table)
        exposed, events, n = a + b, a + c, a + b + c + d
        # The count of exposed events at which this stratum has the common odds ratio: a root of a
        # quadratic equation.
        quadratic, linear, constant = (
            1 - odds,
            (n - exposed - events) + odds * (exposed + events),
            -odds * exposed * events,
        )
        if abs(quadratic) < 1e-12:
            fitted = -constant / linear
        else:
            root = np.sqrt(linear**2 - 4 * quadratic * constant)
            roots = np.array([-linear + root, -linear - root]) / (2 * quadratic)
            low, high = max(0.0, exposed + events - n), min(exposed, events)
            inside = [x for x in roots if low - 1e-9 <= x <= high + 1e-9]
            fitted = float(inside[0])
        parts = (fitted, exposed - fitted, events - fitted, n - exposed - events + fitted)
        variance = 1 / sum(1 / part for part in parts)
        total, apart, spread = (
            total + (a - fitted) ** 2 / variance,
            apart + a - fitted,
            spread + variance,
        )
    return total - apart**2 / spread, len(tables) - 1


# -- trend -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CochranArmitage(Counted):
    """Whether the share of events rises or falls over the ordered groups of an exposure.

    Parameters
    ----------
    exposure : str
        A variable whose bins have an order.
    target : str
        A variable of two groups, or the class; the event is the last one, or ``event``.
    scores : list of int or float, optional
        Of the groups; 0, 1, 2 ... by default.
    event : level, optional
    """

    title: ClassVar[str] = "Cochran-Armitage trend test"
    of_variables: ClassVar[tuple[str, ...]] = ("exposure", "target")
    of_levels: ClassVar[Mapping[str, str]] = {"event": "target"}

    exposure: str
    target: str = "class"
    scores: list[float] | None = None
    event: Any = None
    constraints: ClassVar[Constraints] = {"scores": NUMBERS}

    def _list_variables(self) -> tuple[str, ...]:
        return self.exposure, self.target

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse scores that do not fit, and more than two outcomes without an event."""
        super().check_schema(schema)
        exposure = factor(schema, self.exposure)
        if self.scores is not None:
            if len(self.scores) != len(exposure.labels):
                raise ParameterError(
                    (
                        f"scores={self.scores!r}: {len(exposure.labels)} are needed, one for each "
                        "group"
                    ),
                    code="wrong-score-count",
                )
            if len(set(self.scores)) < 2:
                raise ParameterError(
                    f"scores={self.scores!r}: all are the same, and a trend needs two different "
                    "ones",
                    code="scores-all-equal",
                )
        check_groups(schema, [self.exposure])
        two_groups(factor(schema, self.target), self.event)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test of the textbook; its sums are exact where the scores are."""
        cells = self._cells(totals, schema, n_rows)
        exposure, outcome = cells.factors
        event = choose_group(outcome, self.event, "event", -1)
        scores = [Fraction(x) for x in (self.scores or range(len(exposure.labels)))]
        rows, events = cells.counts.sum(axis=1), cells.counts[:, event]
        n, cases = cells.n, int(events.sum())
        if not 0 < cases < n:
            raise DataError(
                f"all rows of {outcome.name!r} are in one group: there is no trend of shares",
                code="constant-outcome",
            )
        trend = n * sum(w * int(e) for w, e in zip(scores, events, strict=True)) - cases * sum(
            w * int(r) for w, r in zip(scores, rows, strict=True)
        )
        spread = n * sum(w * w * int(r) for w, r in zip(scores, rows, strict=True)) - (
            sum(w * int(r) for w, r in zip(scores, rows, strict=True)) ** 2
        )
        if not spread:
            raise DataError(
                f"all rows of {exposure.name!r} have one score: there is no trend",
                code="constant-exposure",
            )
        statistic = float(n * trend**2 / (cases * (n - cases) * spread))
        lines = pd.DataFrame(
            {
                "score": [float(w) for w in scores],
                "rows": rows.astype(np.int64),
                "events": events.astype(np.int64),
                "share": [exact_ratio(int(e), int(r)) for e, r in zip(events, rows, strict=True)],
            },
            index=exposure.index,
        )
        notes = (
            ()
            if exposure.ordered
            else (
                f"the groups of {exposure.name} have no order of their own: scores are taken as "
                "given",
            )
        )
        return TestResult(
            title=f"Cochran-Armitage test for trend: {outcome.name} = {outcome.labels[event]} over "
            f"{exposure.name}",
            n_rows=cells.n,
            notes=(*cells.notes, *notes),
            statistic=statistic,
            df=1.0,
            pvalue=chi2_tail(statistic, 1),
            term="trend",
            table=lines,
            details={"z": float(np.copysign(np.sqrt(statistic), float(trend)))},
        )


def two_groups(outcome: Factor, event: Any) -> None:
    """Refuse an outcome of one group, of more than two where no event is named, and an event that
    it does not have.
    """
    if len(outcome.labels) < 2:
        raise SchemaError(
            f"the outcome {outcome.name!r} has one group: every row has the event, or none has; ",
            Cure("name another variable", "name a variable with two groups or more"),
            code="one-level",
        )
    if event is None and len(outcome.labels) != 2:
        raise ParameterError(
            f"{outcome.name!r} has {len(outcome.labels)} groups: say which of them is the event=",
            code="event-not-named",
        )
    choose_group(outcome, event, "event", -1)


# -- odds and risks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class OddsRatio(Counted):
    """How much more frequent an event is in the groups of an exposure: odds ratio, risk ratio and
    risk difference.

    Parameters
    ----------
    exposure : str
        A variable with bins; all its groups are compared with one of them.
    target : str
        A variable with bins, or the class.
    reference, event : level, optional
        The first of the exposure and the last of the outcome by default.
    confidence : float
        Intervals are Wald's on the logarithm for ratios, and Newcombe's (from Wilson's) for
        differences.
    """

    title: ClassVar[str] = "Odds ratio and risk ratio"
    of_variables: ClassVar[tuple[str, ...]] = ("exposure", "target")
    of_levels: ClassVar[Mapping[str, str]] = {"reference": "exposure", "event": "target"}

    exposure: str
    target: str = "class"
    reference: Any = None
    event: Any = None
    confidence: float = 0.95
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}

    def _list_variables(self) -> tuple[str, ...]:
        return self.exposure, self.target

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse an exposure of one group, and more than two outcomes without an event."""
        super().check_schema(schema)
        check_groups(schema, [self.exposure])
        choose_group(factor(schema, self.exposure), self.reference, "reference", 0)
        two_groups(factor(schema, self.target), self.event)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the measures of every group against the reference."""
        cells = self._cells(totals, schema, n_rows)
        exposure, outcome = cells.factors
        event, first = (
            choose_group(outcome, self.event, "event", -1),
            choose_group(exposure, self.reference, "reference", 0),
        )
        rows, events = cells.counts.sum(axis=1), cells.counts[:, event]
        if not rows[first]:
            raise DataError(
                f"the reference group {exposure.labels[first]!r} of {exposure.name!r} has no rows",
                code="empty-reference",
            )
        z, others = normal_quantile(self.confidence), [k for k in range(len(rows)) if k != first]
        order = [others[-1], *others[:-1]]
        reference = int(events[first]), int(rows[first])
        found = {
            k: _measures((int(events[k]), int(rows[k])), reference, z, self.confidence)
            for k in order
        }
        lines = pd.DataFrame(
            [found[k][name] for name in MEASURES for k in order],
            index=[
                f"{name.replace('_', ' ')} [{exposure.labels[k]}]"
                for name in MEASURES
                for k in order
            ],
        )
        frame = pd.DataFrame(
            {
                "rows": rows.astype(np.int64),
                "events": events.astype(np.int64),
                "risk": [exact_ratio(int(e), int(n)) for e, n in zip(events, rows, strict=True)],
                **{
                    name: [
                        found[k][name]["estimate"] if k in found else np.nan
                        for k in range(len(rows))
                    ]
                    for name in MEASURES
                },
            },
            index=exposure.index,
        )
        notes = [
            f"compared with {exposure.name} = {exposure.labels[first]}; the event is "
            f"{outcome.name} = {outcome.labels[event]}"
        ]
        empty = [
            str(exposure.labels[k])
            for k in range(len(rows))
            if 0 in (events[k], rows[k] - events[k])
        ]
        if empty:
            notes.append(
                f"no rows with or without the event in {exposure.name} = {', '.join(empty)}: "
                "ratios with it are 0, infinite or not "
                "defined, and have no interval; Fisher's exact test takes such tables"
            )
        return TestResult.of_terms(
            lines,
            title=f"Odds and risks: {outcome.name} by {exposure.name}",
            n_rows=cells.n,
            notes=(
                *cells.notes,
                *notes,
                f"{self.confidence:.0%} intervals: Wald's of the logarithm for ratios, Newcombe's "
                "for differences",
            ),
            confidence=self.confidence,
            table=frame,
            details={"reference": exposure.labels[first]},
            picture="plot_ratios",
        )


def _measures(
    one: tuple[int, int], other: tuple[int, int], z: float, confidence: float
) -> dict[str, dict[str, float]]:
    """Compare the events among rows of one group with those of another."""
    (a, n1), (c, n0) = one, other
    b, d = n1 - a, n0 - c
    odds, risk = exact_ratio(a * d, b * c), exact_ratio(a * n0, c * n1)
    odds_se = np.sqrt(1 / a + 1 / b + 1 / c + 1 / d) if min(a, b, c, d) else np.nan
    risk_se = np.sqrt(max(0.0, 1 / a - 1 / n1 + 1 / c - 1 / n0)) if min(a, c) else np.nan
    p1, p0 = exact_ratio(a, n1), exact_ratio(c, n0)
    (low1, high1), (low0, high0) = (
        wilson_interval(events, n, confidence) for events, n in (one, other)
    )
    difference = exact_ratio(a * n0 - c * n1, n1 * n0)
    wald = float(np.log(odds) / odds_se) if np.isfinite(odds_se) else np.nan
    return {
        "odds_ratio": {
            "estimate": odds,
            "statistic": wald,
            "pvalue": normal_tails(wald) if np.isfinite(wald) else np.nan,
            "low": float(odds * np.exp(-z * odds_se)),
            "high": float(odds * np.exp(z * odds_se)),
        },
        "risk_ratio": {
            "estimate": risk,
            "low": float(risk * np.exp(-z * risk_se)),
            "high": float(risk * np.exp(z * risk_se)),
        },
        "risk_difference": {
            "estimate": difference,
            "low": p1 - p0 - float(np.hypot(p1 - low1, high0 - p0)),
            "high": p1 - p0 + float(np.hypot(high1 - p1, p0 - low0)),
        },
    }


# -- pairs of ratings ------------------------------------------------------------------------------


@dataclass(frozen=True)
class McNemar(Counted):
    """Whether two ratings of the same rows have the same shares: McNemar's test, and Bowker's of
    more than two levels.

    Parameters
    ----------
    first, second : str
        Variables with the same levels, or the class.
    exact : bool
        Of two levels: the binomial test of the rows where the ratings differ.
    correction : bool
        For continuity, of two levels, as R's ``mcnemar.test``.
    confidence : float
        Of the odds ratio of two levels, whose interval is exact.

    References
    ----------
    McNemar (1947). Bowker (1948), A test for symmetry in contingency tables.
    """

    of_variables: ClassVar[tuple[str, ...]] = ("first", "second")
    title: ClassVar[str] = "McNemar's test"

    first: str
    second: str
    exact: bool = False
    correction: bool = True
    confidence: float = 0.95
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}

    def _list_variables(self) -> tuple[str, ...]:
        return self.first, self.second

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse ratings of different numbers of groups, and an exact test of more than two."""
        super().check_schema(schema)
        one, other = (factor(schema, variable) for variable in self._list_variables())
        if len(one.labels) != len(other.labels):
            raise SchemaError(
                f"{self.first!r} has {len(one.labels)} groups, {self.second!r} has "
                f"{len(other.labels)}: McNemar's test needs the same",
                code="group-counts-differ",
            )
        check_groups(schema, self._list_variables())
        if self.exact and len(one.labels) != 2:
            raise ParameterError(
                f"exact=True is for two levels, and there are {len(one.labels)}: ",
                Cure("parameter", "exact=False", {"parameter": "exact", "value": False}),
                code="not-two-by-two",
            )

    def check_names(self, schema: Schema) -> None:
        """Refuse ratings whose levels differ."""
        check_same_levels(*(factor(schema, variable) for variable in self._list_variables()))

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test of the rows where the ratings differ."""
        cells = self._cells(totals, schema, n_rows)
        one, other = cells.factors
        if isinstance(schema, Schema):
            self.check_names(schema)
        counts, k = cells.counts, len(one.labels)
        pairs = [(int(counts[i, j]), int(counts[j, i])) for i in range(k) for j in range(i)]
        used = [pair for pair in pairs if sum(pair)]
        if not used:
            raise DataError("the ratings agree in all rows: nothing differs", code="no-difference")
        half = 1 if self.correction and k == 2 else 0
        statistic = float(sum(Fraction(max(0, abs(a - b) - half) ** 2, a + b) for a, b in used))
        estimate = low = high = np.nan
        pvalue, df = chi2_tail(statistic, len(used)), float(len(used))
        if k == 2:
            from scipy.stats import binomtest

            below, above = pairs[0]  # second below first, and above it
            test = binomtest(above, above + below)
            ends = test.proportion_ci(self.confidence)
            estimate = exact_ratio(above, below)
            low, high = (exact_ratio(Fraction(p), 1 - Fraction(p)) for p in (ends.low, ends.high))
            if self.exact:
                statistic, df, pvalue = float(min(pairs[0])), np.nan, float(test.pvalue)
        kind = (
            "Bowker's test"
            if k > 2
            else "McNemar's test, exact"
            if self.exact
            else "McNemar's test"
        )
        return TestResult(
            title=f"{kind}: {one.name} and {other.name}",
            n_rows=cells.n,
            notes=cells.notes,
            statistic=statistic,
            df=df,
            pvalue=pvalue,
            estimate=estimate,
            low=low,
            high=high,
            confidence=self.confidence if k == 2 else np.nan,
            term="odds ratio of the second to the first" if k == 2 else "symmetry",
            table=cells.frame,
        )


@dataclass(frozen=True)
class CochranQ(Counted):
    """Cochran's Q: whether several yes-or-no ratings of the same rows have the same shares.

    Of two ratings it is McNemar's test without a correction.

    Parameters
    ----------
    variables : list of str
        Two or more variables of two levels, of which the second counts. Rows where one is missing
        are left out.

    References
    ----------
    Cochran (1950), The comparison of percentages in matched samples.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> rows = [(1, 1, 0), (1, 0, 0), (1, 1, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    >>> frame = pd.DataFrame(rows, columns=["a", "b", "c"]).astype(str)
    >>> found = es.Schema.infer(frame).table(frame).ask(es.CochranQ(["a", "b", "c"]))
    >>> round(found.statistic, 4), round(found.pvalue, 4)
    (5.2, 0.0743)
    """

    title: ClassVar[str] = "Cochran's Q test"
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)

    variables: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(self.variables))
        self.check_parameters()

    def _list_variables(self) -> tuple[str, ...]:
        return self.variables

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse fewer than two ratings, and ratings of other than two levels."""
        super().check_schema(schema)
        if len(self.variables) < 2:
            raise SchemaError("Cochran's Q needs two ratings or more", code="too-few-variables")
        for name in self.variables:
            if len(factor(schema, name).labels) != 2:
                raise SchemaError(
                    f"{name!r} has {len(factor(schema, name).labels)} levels, and Cochran's Q is "
                    "of ratings with two",
                    code="not-two-levels",
                )
        if len(self.variables) > _RATINGS:
            raise ParameterError(
                f"variables: {len(self.variables)} ratings, and at most {_RATINGS} are counted "
                "together: name fewer",
                code="table-too-large",
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test, from the rows of every pattern of ratings."""
        cells = self._cells(totals, schema, n_rows)
        k = len(cells.factors)
        per_row = np.indices(cells.counts.shape).sum(axis=0)
        yes = [int(np.take(cells.counts, 1, axis=axis).sum()) for axis in range(k)]
        total = sum(yes)
        below = k * total - int((cells.counts * per_row**2).sum())
        if not below:
            raise DataError("the ratings agree in all rows: nothing differs", code="no-difference")
        statistic = float(Fraction((k - 1) * (k * sum(n * n for n in yes) - total**2), below))
        table = pd.DataFrame(
            {"rows": cells.n, "yes": yes, "share": [n / cells.n for n in yes]},
            index=[f"{one.name} = {one.labels[1]}" for one in cells.factors],
        )
        return TestResult(
            title=f"Cochran's Q test: {', '.join(one.name for one in cells.factors)}",
            n_rows=cells.n,
            notes=cells.notes,
            statistic=statistic,
            df=float(k - 1),
            pvalue=chi2_tail(statistic, k - 1),
            term="Q",
            table=table,
        )


def check_same_levels(one: Factor, other: Factor) -> None:
    """Refuse ratings whose levels differ."""
    if list(map(str, one.labels)) != list(map(str, other.labels)):
        raise SchemaError(
            f"{one.name!r} and {other.name!r} have different levels, {one.labels} and "
            f"{other.labels}: ",
            Cure(
                "give the same levels",
                "give both the same levels in the same order, schema.with_kind(name, kind, "
                "levels=[...])",
            ),
        )


# -- agreement -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kappa(Counted):
    """Cohen's kappa of two ratings with the same groups.

    Parameters
    ----------
    first, second : str
        Variables with the same levels, or the class.
    weights : "linear" or "quadratic", optional
        How much rows count where both differ, by how far; all the same by default.
    confidence : float

    References
    ----------
    Fleiss, Cohen and Everitt (1969), Large sample standard errors of kappa and weighted kappa.
    """

    title: ClassVar[str] = "Cohen's kappa"
    of_variables: ClassVar[tuple[str, ...]] = ("first", "second")

    first: str
    second: str
    weights: str | None = None
    confidence: float = 0.95
    constraints: ClassVar[Constraints] = {
        "confidence": CONFIDENCE,
        "weights": Choice(values=("linear", "quadratic"), optional=True, code="unknown-weights"),
    }

    def _list_variables(self) -> tuple[str, ...]:
        return self.first, self.second

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse ratings of different numbers of groups."""
        super().check_schema(schema)
        one, other = (factor(schema, variable) for variable in self._list_variables())
        if len(one.labels) != len(other.labels):
            raise SchemaError(
                f"{self.first!r} has {len(one.labels)} groups, {self.second!r} has "
                f"{len(other.labels)}: kappa needs the same",
                code="group-counts-differ",
            )
        check_groups(schema, self._list_variables())

    def check_names(self, schema: Schema) -> None:
        """Refuse ratings whose levels differ."""
        check_same_levels(*(factor(schema, variable) for variable in self._list_variables()))

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Kappa, and its large-sample errors."""
        cells = self._cells(totals, schema, n_rows)
        one, other = cells.factors
        if isinstance(schema, Schema):
            self.check_names(schema)
        if not cells.n:
            raise DataError("there are no rows with both ratings", code="no-rows")
        k = len(one.labels)
        apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
        power = {None: 0, "linear": 1, "quadratic": 2}[self.weights]
        weights = 1 - (apart / max(1, k - 1)) ** power if power else np.eye(k)
        p = cells.counts.astype(float) / cells.n
        rows, columns = p.sum(axis=1), p.sum(axis=0)
        agreed, chance = (
            float((weights * p).sum()),
            float((weights * np.outer(rows, columns)).sum()),
        )
        kappa = (agreed - chance) / (1 - chance) if chance < 1 else np.nan
        marginal = (weights @ columns)[:, None] + (rows @ weights)[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = (p * (weights - marginal * (1 - kappa)) ** 2).sum() - (
                kappa - chance * (1 - kappa)
            ) ** 2
            null = (np.outer(rows, columns) * (weights - marginal) ** 2).sum() - chance**2
            se, se0 = (float(np.sqrt(max(0.0, x) / cells.n) / (1 - chance)) for x in (spread, null))
            z = kappa / se0 if se0 else np.nan
        half = normal_quantile(self.confidence) * se
        return TestResult(
            title=f"Cohen's kappa{f', {self.weights} weights' if self.weights else ''}: {one.name} "
            f"and {other.name}",
            n_rows=cells.n,
            notes=(
                *cells.notes,
                *(() if chance < 1 else ("all rows are in one group: kappa is not defined",)),
            ),
            statistic=z,
            pvalue=normal_tails(z) if np.isfinite(z) else np.nan,
            estimate=kappa,
            std_error=se,
            low=kappa - half,
            high=kappa + half,
            confidence=self.confidence,
            term="kappa",
            table=cells.frame,
            details={"std_error_null": se0, "agreement": float(np.trace(p))},
        )
