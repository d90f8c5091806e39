"""Comparing many groups: pairwise t-tests with adjusted p-values, Tukey's intervals, and tests of
equal variances.

All of it follows from the rows, sums and sums of squares of every group, as an analysis of
variance does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import Cure, DataError, ParameterError
from encryptedstats.statistics._distributions import chi2_tail
from encryptedstats.statistics.factors import (
    Powers,
    check_groups,
    factor,
    number_position,
    power_shapes,
    power_totals,
    read_powers,
)
from encryptedstats.statistics.results import TestResult
from encryptedstats.tables.questions.constraints import CONFIDENCE, Choice, Constraints
from encryptedstats.tables.questions.question import Arrays, Columns, Question, Shapes, Totals
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

ADJUSTMENT_NOTES: Final = {
    "holm": "p-values are adjusted by Holm's method",
    "bh": "p-values are adjusted by Benjamini and Hochberg's method",
    "bonferroni": "p-values are adjusted by Bonferroni's method",
    "none": "p-values are not adjusted for the number of tests",
    "tukey": "p-values and intervals are Tukey's, for all pairs together",
}
ADJUSTMENTS: Final = tuple(ADJUSTMENT_NOTES)
VARIANCE_TESTS: Final = ("bartlett", "f")


def adjust_pvalues(pvalues: Sequence[float], method: str) -> list[float]:
    """Return p-values for several tests at once, as R's ``p.adjust``; NaN stays and counts for
    nothing.

    >>> [round(p, 3) for p in adjust_pvalues([0.01, 0.04, 0.03], "holm")]
    [0.03, 0.06, 0.06]
    >>> [round(p, 3) for p in adjust_pvalues([0.01, 0.04, 0.03], "bh")]
    [0.03, 0.04, 0.04]
    """
    values = np.asarray(pvalues, dtype=float)
    known = np.flatnonzero(~np.isnan(values))
    n, found = len(known), values.copy()
    order = known[np.argsort(values[known], kind="stable")]
    factors: Any
    if method == "bonferroni":
        found[known] = np.minimum(1.0, n * values[known])
    elif method == "holm":
        factors = n - np.arange(n)
        found[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    elif method == "bh":
        factors = n / np.arange(n, 0, -1)
        back = order[::-1]
        found[back] = np.minimum(1.0, np.minimum.accumulate(factors * values[back]))
    return [float(value) for value in found]


@dataclass(frozen=True)
class _OfGroups(Question):
    """A question about a number in the groups of a factor."""

    variable: str
    by: str

    of_variables: ClassVar[tuple[str, ...]] = ("variable", "by")

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no number, and factors of one group."""
        number_position(schema, self.variable)
        factor(schema, self.by)
        check_groups(schema, [self.by])

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return rows, sums and sums of squares of every group."""
        return power_totals(schema, self.variable, [self.by], fold=fold)

    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of the totals."""
        return power_shapes(schema, self.variable, [self.by])

    def _groups(
        self, totals: Totals, schema: Schema | PublicSchema, n_rows: int
    ) -> tuple[Powers, list[int]]:
        """Return the groups, and which of them have two rows or more."""
        found = read_powers(totals, schema, self.variable, [self.by], n_rows)
        used = [k for k in range(len(found.n)) if found.n[k] > 1]
        if len(used) < 2:
            raise DataError(
                f"not enough observations: {len(used)} groups of {found.cells.factors[0].name!r} "
                "have two rows, and two groups are needed",
                code="too-few-rows",
            )
        return found, used

    def _notes(self, found: Powers, used: Sequence[int]) -> tuple[str, ...]:
        labels = found.cells.factors[0].labels
        gone = [str(labels[k]) for k in range(len(labels)) if k not in used]
        left = (
            (f"groups with fewer than two rows were left out: {', '.join(gone)}",) if gone else ()
        )
        return (*found.notes, *left)


@dataclass(frozen=True)
class PairwiseTTest(_OfGroups):
    """t-tests of every two groups, with p-values that are adjusted for their number.

    Parameters
    ----------
    variable : str
        Kept as a number.
    by : str
        A variable with bins, or the class.
    adjust : "holm", "bh", "bonferroni", "none" or "tukey"
        How p-values are adjusted: Holm, Benjamini and Hochberg (the false discovery rate), and
        Bonferroni as R's ``p.adjust``. Tukey's honest significant differences also adjust the
        intervals.
    equal_var : bool
        Use the spread of all groups together, as R's ``pairwise.t.test``; else each pair is tested
        by Welch's test.
    confidence : float
        Of the intervals, which belong to a single pair except for Tukey's.

    References
    ----------
    Tukey (1949). Kramer (1956). Holm (1979). Benjamini and Hochberg (1995).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"w": [4, 5, 6, 8, 9, 9, 2, 1, 3], "diet": list("aaabbbccc")})
    >>> table = es.Schema.infer(frame).with_kind("w", "number", digits=0).table(frame)
    >>> table.ask(es.PairwiseTTest("w", "diet")).tidy()["pvalue"].round(4).tolist()
    [0.0045, 0.0059, 0.0003]
    """

    title: ClassVar[str] = "Pairwise t-tests"
    constraints: ClassVar[Constraints] = {
        "adjust": Choice(values=ADJUSTMENTS, code="unknown-adjustment"),
        "confidence": CONFIDENCE,
    }

    adjust: str = "holm"
    equal_var: bool = True
    confidence: float = 0.95

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse Tukey's differences without a common spread."""
        super().check_schema(schema)
        if self.adjust == "tukey" and not self.equal_var:
            raise ParameterError(
                "adjust='tukey' is of groups with equal variances: ",
                Cure(
                    "parameter",
                    "equal_var=True",
                    {"parameter": "equal_var", "value": True},
                ),
                code="tukey-needs-equal-variances",
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return a test for every two groups."""
        found, used = self._groups(totals, schema, n_rows)
        one = found.cells.factors[0]
        lines = [self._compare(found, used, a, b) for a, b in combinations(used, 2)]
        terms = pd.DataFrame(
            lines,
            index=[f"{one.labels[b]} - {one.labels[a]}" for a, b in combinations(used, 2)],
        )
        if self.adjust != "tukey":
            terms["pvalue"] = adjust_pvalues(terms["pvalue"].tolist(), self.adjust)
        return TestResult.of_terms(
            terms,
            title=f"Pairwise t-tests: {found.name} by {one.name}",
            n_rows=sum(int(found.n[k]) for k in used),
            notes=(*self._notes(found, used), ADJUSTMENT_NOTES[self.adjust]),
            confidence=self.confidence,
            table=found.describe(),
            details={"adjust": self.adjust, "equal_var": self.equal_var},
        )

    def _compare(self, found: Powers, used: Sequence[int], a: int, b: int) -> dict[str, float]:
        from scipy.stats import studentized_range
        from scipy.stats import t as student

        n, m = int(found.n[a]), int(found.n[b])
        estimate = found.mean(b) - found.mean(a)
        if self.equal_var:
            df = float(sum(int(found.n[k]) for k in used) - len(used))
            spread = sum((found.scatter(k) for k in used), Fraction(0)) / int(df)
            squared = spread * (Fraction(1, n) + Fraction(1, m))
        else:
            v, w = found.variance(a) / n, found.variance(b) / m
            squared = v + w
            df = float(squared**2 / (v**2 / (n - 1) + w**2 / (m - 1))) if squared else math.nan
        if not squared:
            raise DataError(
                "the data are constant: there is no spread to measure a difference by",
                code="constant-data",
            )
        error = math.sqrt(squared)
        statistic = float(estimate) / error
        if self.adjust == "tukey":
            reach = float(studentized_range.ppf(self.confidence, len(used), df)) / math.sqrt(2)
            pvalue = float(studentized_range.sf(abs(statistic) * math.sqrt(2), len(used), df))
        else:
            reach = float(student.ppf((1 + self.confidence) / 2, df))
            pvalue = 2 * float(student.sf(abs(statistic), df))
        return {
            "estimate": float(estimate),
            "std_error": error,
            "statistic": statistic,
            "df": df,
            "pvalue": pvalue,
            "low": float(estimate) - reach * error,
            "high": float(estimate) + reach * error,
        }


@dataclass(frozen=True)
class VarianceTest(_OfGroups):
    """Whether a number has the same variance in all groups.

    Parameters
    ----------
    variable : str
        Kept as a number.
    by : str
        A variable with bins, or the class.
    method : "bartlett" or "f"
        Bartlett's test of any number of groups, or the F test of two (R's ``var.test``), with the
        ratio of the variances and its interval.
    confidence : float

    References
    ----------
    Bartlett (1937), Properties of sufficiency and statistical tests.
    """

    title: ClassVar[str] = "Equal variances"
    constraints: ClassVar[Constraints] = {
        "method": Choice(values=VARIANCE_TESTS, code="unknown-method"),
        "confidence": CONFIDENCE,
    }

    method: str = "bartlett"
    confidence: float = 0.95

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse an F test of more than two groups."""
        super().check_schema(schema)
        labels = factor(schema, self.by).labels
        if self.method == "f" and len(labels) != 2:
            raise ParameterError(
                f"method='f' compares two groups, and {self.by!r} has {len(labels)}: ",
                Cure(
                    "parameter",
                    "method='bartlett'",
                    {"parameter": "method", "value": "bartlett"},
                ),
                code="not-two-groups",
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        found, used = self._groups(totals, schema, n_rows)
        if not all(found.scatter(k) for k in used):
            raise DataError(
                "the data are constant in a group: its variance is 0", code="constant-data"
            )
        tested = self._bartlett(found, used) if self.method == "bartlett" else self._f(found, used)
        name = "Bartlett's test" if self.method == "bartlett" else "F test"
        return TestResult(
            title=f"{name} of equal variances: {found.name} by {found.cells.factors[0].name}",
            n_rows=sum(int(found.n[k]) for k in used),
            notes=self._notes(found, used),
            table=found.describe(),
            **tested,
        )

    def _bartlett(self, found: Powers, used: Sequence[int]) -> dict[str, Any]:
        free = [int(found.n[k]) - 1 for k in used]
        whole, k = sum(free), len(used)
        pooled = sum((found.scatter(place) for place in used), Fraction(0)) / whole
        apart = sum(
            df * math.log(found.variance(place) / pooled)
            for df, place in zip(free, used, strict=True)
        )
        correction = 1 + (sum(1 / df for df in free) - 1 / whole) / (3 * (k - 1))
        statistic = -apart / correction
        return {
            "statistic": statistic,
            "df": float(k - 1),
            "pvalue": chi2_tail(statistic, k - 1),
            "term": "Bartlett's K-squared",
        }

    def _f(self, found: Powers, used: Sequence[int]) -> dict[str, Any]:
        from scipy.stats import f as fisher

        (a, b), (n, m) = used, (int(found.n[k]) - 1 for k in used)
        ratio = float(found.variance(a) / found.variance(b))
        tail = (1 - self.confidence) / 2
        return {
            "statistic": ratio,
            "df": float(n),
            "df_resid": float(m),
            "pvalue": 2 * min(float(fisher.cdf(ratio, n, m)), float(fisher.sf(ratio, n, m))),
            "estimate": ratio,
            "low": ratio / float(fisher.isf(tail, n, m)),
            "high": ratio / float(fisher.ppf(tail, n, m)),
            "confidence": self.confidence,
            "term": "ratio of variances",
        }
