"""Ranks: quantiles, and tests that compare the order of rows, from the counts of every value.

A number of up to 1,024 values is counted exactly, on its grid. What follows from the counts is
scipy's and NumPy's. Rank correlations are read from cross tables of ordered bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import DataError, ParameterError, SchemaError
from encryptedstats.metrics import auc_interval
from encryptedstats.statistics.factors import (
    Counted,
    choose_group,
    factor,
)
from encryptedstats.statistics.grids import Counts, Floats, GridCounts, OnGrid
from encryptedstats.statistics.results import TestResult
from encryptedstats.tables.answers.results import TableResult
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

COEFFICIENTS: Final = ("spearman", "kendall")


# -- quantiles -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantiles(OnGrid):
    """Exact quantiles of a number, by group.

    Parameters
    ----------
    variable : str
        A number of at most 1,024 values, stored as a grid.
    by : str, optional
        Groups of rows.
    probabilities : list of float
        Least, quartiles and largest by default. Between two values quantiles are interpolated, as
        by NumPy and R by default.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"age": [30, 41, 52, 30, 67]})
    >>> table = es.Schema.infer(frame, numbers="keep").table(frame)
    >>> table.ask(es.Quantiles("age")).table
                n   min   25%   50%   75%   max
    all rows  5.0  30.0  30.0  41.0  52.0  67.0
    """

    probabilities: Any = (0.0, 0.25, 0.5, 0.75, 1.0)

    title: ClassVar[str] = "Quantiles"
    constraints: ClassVar[Constraints] = {"probabilities": NUMBERS}

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", tuple(self.probabilities))
        self.check_parameters()
        if not self.probabilities or not all(0 <= p <= 1 for p in self.probabilities):
            raise ParameterError(
                f"probabilities={list(self.probabilities)}: numbers between 0 and 1",
                code="invalid-probabilities",
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TableResult:
        """Return the quantiles of every group."""
        found = self.read_counts(totals, schema, n_rows)
        names = [_quantile_name(p) for p in self.probabilities]
        lines = {}
        for g, group in enumerate(found.groups):
            rows = found.rows(g)
            own = np.quantile(rows, self.probabilities) if len(rows) else [np.nan] * len(names)
            lines[group] = [float(len(rows)), *own]
        return TableResult(
            title=f"Quantiles of {found.name}"
            + (f" by {_name(schema, self.by)}" if self.by else ""),
            n_rows=found.n,
            notes=found.notes,
            table=pd.DataFrame.from_dict(lines, orient="index", columns=["n", *names]),
        )


def _quantile_name(probability: float) -> str:
    if probability in (0, 1):
        return "max" if probability else "min"
    return f"{100 * probability:g}%"


def _name(schema: Schema | PublicSchema, variable: str | None) -> str:
    return factor(schema, str(variable)).name


# -- tests of groups -------------------------------------------------------------------------------


@dataclass(frozen=True)
class MannWhitney(OnGrid):
    """The Mann-Whitney (Wilcoxon rank-sum) test of two groups, with the area under the ROC curve.

    Ties count one half. The p-value is that of the normal distribution with corrections for ties
    and continuity, as of scipy's ``mannwhitneyu(method="asymptotic")``.

    Parameters
    ----------
    variable : str
        A number of at most 1,024 values, stored as a grid.
    by : str
        A variable with bins, or the class.
    groups : list of two, optional
        Which groups are compared, where there are more than two.
    alternative : "two-sided", "less" or "greater"
    confidence : float
        Of the interval of the area, which is DeLong's.

    References
    ----------
    Mann and Whitney (1947). DeLong, DeLong and Clarke-Pearson (1988).
    """

    groups: Any = None
    alternative: str = "two-sided"
    confidence: float = 0.95

    title: ClassVar[str] = "Mann-Whitney test"
    of_levels: ClassVar[Mapping[str, str]] = {"groups": "by"}
    constraints: ClassVar[Constraints] = {"alternative": ALTERNATIVE, "confidence": CONFIDENCE}

    def __post_init__(self) -> None:
        if self.groups is not None:
            object.__setattr__(self, "groups", tuple(self.groups))
        self.check_parameters()
        _need_groups(self.by)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse other than two groups."""
        super().check_schema(schema)
        self._choose(schema)

    def _choose(self, schema: Schema | PublicSchema) -> tuple[int, int]:
        one = factor(schema, str(self.by))
        named = one.labels if self.groups is None else self.groups
        if len(named) != 2 or named[0] == named[1]:
            raise ParameterError(
                f"{one.name!r}: a Mann-Whitney test compares two groups, groups= names them; "
                "see KruskalWallis for more",
                code="not-two-groups",
            )
        if self.groups is None:
            return 0, 1
        first, second = (choose_group(one, name, "groups", 0) for name in named)
        return first, second

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        from scipy.stats import mannwhitneyu

        found = self.read_counts(totals, schema, n_rows)
        first, second = self._choose(schema)
        samples = [found.rows(first), found.rows(second)]
        names = [found.groups[first], found.groups[second]]
        _check_samples(samples, names)
        test = mannwhitneyu(*samples, alternative=self.alternative, method="asymptotic")
        area = float(test.statistic) / (len(samples[0]) * len(samples[1]))
        is_first = np.repeat([True, False], [len(rows) for rows in samples])
        low, high = auc_interval(is_first, np.concatenate(samples), confidence=self.confidence)
        return TestResult(
            title=f"Mann-Whitney test of {found.name} by {_name(schema, self.by)}",
            n_rows=sum(map(len, samples)),
            notes=(
                *found.notes,
                f"estimate: how often a row of {names[0]} has a larger {found.name} than one of "
                f"{names[1]}; ties count one half",
            ),
            statistic=float(test.statistic),
            pvalue=float(test.pvalue),
            estimate=area,
            low=low,
            high=high,
            confidence=self.confidence,
            term="area under the ROC curve",
            table=_describe(found, [first, second]),
            details={"alternative": self.alternative},
        )


@dataclass(frozen=True)
class KruskalWallis(OnGrid):
    """The Kruskal-Wallis test of two groups or more, with the correction for ties.

    Parameters
    ----------
    variable : str
        A number of at most 1,024 values, stored as a grid.
    by : str
        A variable with bins, or the class.

    References
    ----------
    Kruskal and Wallis (1952).
    """

    title: ClassVar[str] = "Kruskal-Wallis test"

    def __post_init__(self) -> None:
        self.check_parameters()
        _need_groups(self.by)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        from scipy.stats import kruskal

        found = self.read_counts(totals, schema, n_rows)
        kept = np.flatnonzero(found.counts.sum(axis=0)).tolist()
        samples = [found.rows(g) for g in kept]
        if len(samples) < 2:
            raise DataError(
                f"{_name(schema, self.by)!r} has rows in {len(samples)} of its "
                f"{len(found.groups)} groups, and two are needed",
                code="too-few-groups",
            )
        _check_varies(samples, found.name)
        test = kruskal(*samples)
        gone = [str(one) for g, one in enumerate(found.groups) if g not in kept]
        dropped = (f"groups without rows were dropped: {', '.join(gone)}",) if gone else ()
        return TestResult(
            title=f"Kruskal-Wallis test of {found.name} by {_name(schema, self.by)}",
            n_rows=found.n,
            notes=(*found.notes, *dropped),
            statistic=float(test.statistic),
            df=float(len(samples) - 1),
            pvalue=float(test.pvalue),
            term=_name(schema, self.by),
            table=_describe(found, kept),
        )


@dataclass(frozen=True)
class SignedRank(OnGrid):
    """Wilcoxon's signed-rank test of one number, such as a difference, against a middle.

    Rows at the middle are left out, and ties share their ranks. The p-value is that of the normal
    distribution with a correction for continuity, as of scipy's ``wilcoxon(correction=True,
    method="approx")`` and R's ``wilcox.test``.

    Parameters
    ----------
    variable : str
        A number of at most 1,024 values, stored as a grid.
    mu : float
        The middle.
    alternative : "two-sided", "less" or "greater"

    References
    ----------
    Wilcoxon (1945).
    """

    mu: float = 0.0
    alternative: str = "two-sided"

    title: ClassVar[str] = "Wilcoxon signed-rank test"
    constraints: ClassVar[Constraints] = {"alternative": ALTERNATIVE}

    def __post_init__(self) -> None:
        self.check_parameters()
        if self.by is not None:
            raise ParameterError(
                f"by={self.by!r}: a signed-rank test is of all rows; MannWhitney compares groups",
                code="by-not-allowed",
            )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        from scipy.stats import wilcoxon

        found = self.read_counts(totals, schema, n_rows)
        differences = found.rows(0) - self.mu
        used = differences[differences != 0]
        if not len(used):
            raise DataError(
                f"every row of {found.name!r} is {self.mu:g}: there are no ranks to compare",
                code="constant-outcome",
            )
        test = wilcoxon(used, correction=True, alternative=self.alternative, method="approx")
        ties = len(differences) - len(used)
        return TestResult(
            title=f"Wilcoxon signed-rank test: {found.name}",
            n_rows=found.n,
            notes=(
                *found.notes,
                *((f"{ties:,} rows are {self.mu:g} and were left out",) if ties else ()),
            ),
            statistic=float(test.statistic),
            pvalue=float(test.pvalue),
            term=found.name,
            table=_describe(found, [0]),
            details={"alternative": self.alternative, "mu": self.mu},
        )


def _need_groups(by: str | None) -> None:
    if by is None:
        raise ParameterError(
            "by=None: groups are compared, by= names the variable", code="by-missing"
        )


def _check_samples(samples: Sequence[Floats], names: Sequence[Any]) -> None:
    empty = [name for name, rows in zip(names, samples, strict=True) if not len(rows)]
    if empty:
        raise DataError(
            f"the group {empty[0]!r} has no rows: there is nothing to compare",
            code="too-few-groups",
        )


def _check_varies(samples: Sequence[Floats], name: str) -> None:
    if len({value for rows in samples for value in (rows[0], rows[-1])}) < 2:
        raise DataError(
            f"{name!r} is the same in all rows: there are no ranks to compare",
            code="constant-outcome",
        )


def _describe(found: GridCounts, kept: Sequence[int]) -> pd.DataFrame:
    lines = {}
    for g in kept:
        rows = found.rows(g)
        lines[found.groups[g]] = (len(rows), float(np.median(rows)) if len(rows) else np.nan)
    return pd.DataFrame.from_dict(lines, orient="index", columns=["n", "median"])


# -- rank correlation ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankCorrelation(Counted):
    """Spearman's or Kendall's rank correlation of two ordered variables, with ties.

    Both are in bins, so rows of one bin are tied. Values and p-values are those of scipy's
    ``spearmanr`` and ``kendalltau`` on the numbers of the bins.

    Parameters
    ----------
    variable, other : str
        Ordered variables with bins.
    coefficient : "spearman" or "kendall"
        Kendall's is tau-b.

    References
    ----------
    Spearman (1904). Kendall (1945).
    """

    variable: str
    other: str
    coefficient: str = "spearman"

    title: ClassVar[str] = "Rank correlation"
    of_variables: ClassVar[tuple[str, ...]] = ("variable", "other")
    constraints: ClassVar[Constraints] = {"coefficient": Choice(values=COEFFICIENTS)}
    _apart: ClassVar[str] = "the variables have to be different ones"

    def __post_init__(self) -> None:
        self.check_parameters()

    def _list_variables(self) -> tuple[str, ...]:
        return (self.variable, self.other)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse bins without an order."""
        super().check_schema(schema)
        for name in self._list_variables():
            one = factor(schema, name)
            if not one.ordered and len(one.labels) > 2:
                raise SchemaError(
                    f"{one.name!r} has levels without an order, and ranks need one: "
                    "schema.with_kind(name, 'ordinal', levels=[...])",
                    code="not-ordered",
                )

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the coefficient and its test."""
        from scipy.stats import kendalltau, spearmanr

        cells = self._cells(totals, schema, n_rows)
        counts = cells.counts.astype(np.int64)
        if min((counts.sum(axis=axis) > 0).sum() for axis in (0, 1)) < 2:
            raise DataError(
                "a variable has rows in one bin only: there are no ranks to compare",
                code="constant-outcome",
            )
        x, y = (np.repeat(places.ravel(), counts.ravel()) for places in np.indices(counts.shape))
        compute: Callable[..., Any] = {
            "spearman": spearmanr,
            "kendall": lambda a, b: kendalltau(a, b, method="asymptotic"),
        }[self.coefficient]
        found = compute(x, y)
        concordant, discordant = count_concordant(counts)
        return TestResult(
            title=f"{self.coefficient.capitalize()} correlation of {cells.factors[0].name} and "
            f"{cells.factors[1].name}",
            n_rows=cells.n,
            notes=cells.notes,
            statistic=float(found.statistic),
            pvalue=float(found.pvalue),
            estimate=float(found.statistic),
            term={"spearman": "rho", "kendall": "tau-b"}[self.coefficient],
            table=cells.frame,
            details={"concordant": concordant, "discordant": discordant},
        )


def count_concordant(counts: Counts) -> tuple[int, int]:
    """Return the pairs of rows that a cross table orders alike, and those that it orders otherwise.

    >>> count_concordant(np.array([[2, 1], [0, 3]]))
    (6, 0)
    """
    table = counts.astype(object)
    from_the_end = table[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    other_way = table[::-1].cumsum(axis=0).cumsum(axis=1)[::-1]
    concordant = (table[:-1, :-1] * from_the_end[1:, 1:]).sum()
    discordant = (table[:-1, 1:] * other_way[1:, :-1]).sum()
    return int(concordant), int(discordant)
