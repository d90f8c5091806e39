"""Tests of every two groups, with adjusted p-values: of ranks, of shares, and of survival curves.

Each question opens the counts of all groups once, as the test of all groups together does. Imports
those tests, and the adjustment from pairwise t-tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import DataError, ParameterError
from encryptedstats.statistics._distributions import chi2_tail
from encryptedstats.statistics._fisher import two_by_two_pvalue
from encryptedstats.statistics.contingency import two_groups
from encryptedstats.statistics.factors import Counted, check_groups, choose_group, factor
from encryptedstats.statistics.grids import OnGrid
from encryptedstats.statistics.pairwise import ADJUSTMENT_NOTES, adjust_pvalues
from encryptedstats.statistics.results import TestResult
from encryptedstats.statistics.survival import SurvivalQuestion, log_rank, quadratic_form
from encryptedstats.tables.questions.constraints import Choice, Constraints
from encryptedstats.tables.questions.question import Totals
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

#: Tukey's differences need means with a common variance.
ADJUSTMENTS: Final = tuple(name for name in ADJUSTMENT_NOTES if name != "tukey")
ADJUST: Final = Choice(values=ADJUSTMENTS, code="unknown-adjustment")
SHARE_TESTS: Final = ("chi2", "fisher")
Compare = Callable[[int, int], Mapping[str, float]]


def compare_pairs(
    labels: Sequence[Any], used: Sequence[int], adjust: str, compare: Compare
) -> pd.DataFrame:
    """Return a line for every two groups that have rows, with adjusted p-values."""
    if len(used) < 2:
        raise DataError(
            f"{len(used)} groups have rows, and two groups are needed", code="too-few-groups"
        )
    pairs = list(combinations(used, 2))
    terms = pd.DataFrame(
        [compare(a, b) for a, b in pairs],
        index=[f"{labels[b]} - {labels[a]}" for a, b in pairs],
    )
    terms["pvalue"] = adjust_pvalues(terms["pvalue"].tolist(), adjust)
    return terms


def note_dropped(labels: Sequence[Any], used: Sequence[int]) -> tuple[str, ...]:
    """Return a note on groups without rows."""
    gone = [str(one) for place, one in enumerate(labels) if place not in used]
    return (f"groups without rows were dropped: {', '.join(gone)}",) if gone else ()


@dataclass(frozen=True)
class PairwiseMannWhitney(OnGrid):
    """Mann-Whitney (Wilcoxon rank-sum) tests of every two groups, with adjusted p-values.

    Parameters
    ----------
    variable : str
        A number of at most 1,024 values, stored as a grid.
    by : str
        A variable with bins, or the class.
    adjust : "holm", "bh", "bonferroni" or "none"
        As R's ``pairwise.wilcox.test``; "bh" is the false discovery rate of Benjamini and Hochberg.

    References
    ----------
    Mann and Whitney (1947). Holm (1979). Benjamini and Hochberg (1995).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"w": [4, 5, 6, 8, 9, 9, 2, 1, 3], "diet": list("aaabbbccc")})
    >>> table = es.Schema.infer(frame).with_kind("w", "number", digits=0).table(frame)
    >>> table.ask(es.PairwiseMannWhitney("w", "diet")).tidy()["pvalue"].round(4).tolist()
    [0.2296, 0.2296, 0.2296]
    """

    adjust: str = "holm"

    title: ClassVar[str] = "Pairwise Mann-Whitney tests"
    constraints: ClassVar[Constraints] = {"adjust": ADJUST}

    def __post_init__(self) -> None:
        self.check_parameters()
        if self.by is None:
            raise ParameterError(
                "by=None: groups are compared, by= names the variable", code="by-missing"
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return a test for every two groups."""
        from scipy.stats import mannwhitneyu

        found = self.read_counts(totals, schema, n_rows)
        used = np.flatnonzero(found.counts.sum(axis=0)).tolist()
        samples = {group: found.rows(group) for group in used}

        def compare(a: int, b: int) -> Mapping[str, float]:
            test = mannwhitneyu(samples[b], samples[a], method="asymptotic")
            area = float(test.statistic) / (len(samples[a]) * len(samples[b]))
            return {"estimate": area, "statistic": test.statistic, "pvalue": test.pvalue}

        return TestResult.of_terms(
            compare_pairs(found.groups, used, self.adjust, compare),
            title=(
                f"Pairwise Mann-Whitney tests: {found.name} by {factor(schema, str(self.by)).name}"
            ),
            n_rows=found.n,
            notes=(
                *found.notes,
                *note_dropped(found.groups, used),
                "estimate: how often a row of the first group has the larger number; ties count "
                "one half",
                ADJUSTMENT_NOTES[self.adjust],
            ),
            table=pd.DataFrame(
                {
                    "n": [len(samples[group]) for group in used],
                    "median": [float(np.median(samples[group])) for group in used],
                },
                index=[found.groups[group] for group in used],
            ),
            details={"adjust": self.adjust},
        )


@dataclass(frozen=True)
class PairwiseProportions(Counted):
    """Tests of the share of an event in every two groups, with adjusted p-values.

    Parameters
    ----------
    target : str
        A variable with bins, or the class.
    by : str
        A variable with bins, or the class.
    event : level, optional
        The last group of the outcome by default; all others count as none.
    adjust : "holm", "bh", "bonferroni" or "none"
        As R's ``pairwise.prop.test``.
    method : "chi2" or "fisher"
        The chi-square test with Yates's correction, or Fisher's exact test.

    References
    ----------
    Yates (1934). Fisher (1935). Holm (1979). Benjamini and Hochberg (1995).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"arm": list("aaaabbbbcccc"), "ill": [1, 1, 1, 0] + [0] * 6 + [1, 1]})
    >>> table = es.Schema.infer(frame, target="ill").table(frame)
    >>> found = table.ask(es.PairwiseProportions("ill", "arm", method="fisher", adjust="bh"))
    >>> found.tidy()["pvalue"].round(4).tolist()
    [0.4286, 1.0, 0.6429]
    """

    title: ClassVar[str] = "Pairwise tests of shares"
    of_variables: ClassVar[tuple[str, ...]] = ("target", "by")
    of_levels: ClassVar[Mapping[str, str]] = {"event": "target"}
    constraints: ClassVar[Constraints] = {
        "adjust": ADJUST,
        "method": Choice(values=SHARE_TESTS, code="unknown-method"),
    }

    target: str
    by: str
    event: Any = None
    adjust: str = "holm"
    method: str = "chi2"

    def __post_init__(self) -> None:
        self.check_parameters()

    def _list_variables(self) -> tuple[str, ...]:
        return self.target, self.by

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse factors of one group."""
        super().check_schema(schema)
        check_groups(schema, self._list_variables())
        two_groups(factor(schema, self.target), self.event)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return a test for every two groups."""
        cells = self._cells(totals, schema, n_rows)
        outcome, groups = cells.factors
        event = choose_group(outcome, self.event, "event", -1)
        rows = cells.counts.sum(axis=0).astype(np.int64)
        events = cells.counts[event].astype(np.int64)
        used = np.flatnonzero(rows).tolist()
        shares = events / np.maximum(rows, 1)

        def compare(a: int, b: int) -> Mapping[str, float]:
            two = np.array([[events[k], rows[k] - events[k]] for k in (b, a)])
            return {"estimate": shares[b] - shares[a], **self._test(two)}

        return TestResult.of_terms(
            compare_pairs(groups.labels, used, self.adjust, compare),
            title=f"Pairwise tests of {outcome.name} = {outcome.labels[event]} by {groups.name}",
            n_rows=cells.n,
            notes=(
                *cells.notes,
                *note_dropped(groups.labels, used),
                "estimate: the difference of the shares",
                ADJUSTMENT_NOTES[self.adjust],
            ),
            table=pd.DataFrame(
                {"rows": rows, "events": events, "share": shares}, index=groups.index
            ).iloc[used],
            details={"adjust": self.adjust, "method": self.method},
        )

    def _test(self, two: Any) -> Mapping[str, float]:
        if self.method == "fisher":
            return {"pvalue": two_by_two_pvalue(two, "two-sided")}
        expected = np.outer(two.sum(axis=1), two.sum(axis=0)) / two.sum()
        if not expected.all():  # all rows or none have the event, as R's prop.test without a result
            return {"statistic": np.nan, "df": 1.0, "pvalue": np.nan}
        apart = np.abs(two - expected)
        nearer = apart - np.minimum(0.5, apart)
        statistic = float((nearer**2 / expected).sum())
        return {"statistic": statistic, "df": 1.0, "pvalue": chi2_tail(statistic, 1)}


@dataclass(frozen=True)
class PairwiseLogRank(SurvivalQuestion):
    """Log-rank tests of every two groups, with adjusted p-values.

    Parameters
    ----------
    time, event, by, event_level
        See :class:`LogRank`.
    adjust : "holm", "bh", "bonferroni" or "none"
        As survminer's ``pairwise_survdiff``, whose default is "bh".

    References
    ----------
    Mantel (1966). Holm (1979). Benjamini and Hochberg (1995).
    """

    adjust: str = "holm"

    title: ClassVar[str] = "Pairwise log-rank tests"
    constraints: ClassVar[Constraints] = {"adjust": ADJUST}

    def __post_init__(self) -> None:
        self.check_parameters()
        if self.by is None:
            raise ParameterError(
                "by=None: groups are compared, by= names the variable", code="by-missing"
            )

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse one group as well."""
        super().check_schema(schema)
        check_groups(schema, [str(self.by)])

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return a test for every two groups."""
        sets = self.risk_sets(totals, schema, n_rows).with_rows(2)
        sets.need_events("a comparison of groups")

        def compare(a: int, b: int) -> Mapping[str, float]:
            two = sets.of_groups([sets.groups[a], sets.groups[b]])
            observed, expected, covariance = log_rank(two.at_risk, two.events)
            try:
                statistic, df = quadratic_form(observed - expected, covariance)
            except DataError:  # the two are never at risk together
                return {"statistic": np.nan, "df": np.nan, "pvalue": np.nan}
            return {"statistic": statistic, "df": df, "pvalue": chi2_tail(statistic, df)}

        return TestResult.of_terms(
            compare_pairs(sets.groups, range(len(sets.groups)), self.adjust, compare),
            title=f"Pairwise log-rank tests: {sets.times.name} by {sets.by}",
            n_rows=sets.n_rows,
            notes=(*sets.notes, ADJUSTMENT_NOTES[self.adjust]),
            table=pd.DataFrame(
                {"rows": sets.ending.sum(axis=1), "events": sets.events.sum(axis=1)},
                index=pd.Index(list(sets.groups), name=sets.by),
            ),
            details={"adjust": self.adjust},
        )
