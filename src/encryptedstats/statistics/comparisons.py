"""Comparing means: t-tests, and analysis of variance by one or two factors.

All of it follows from the number of rows, the sum and the sum of squares of every group. Sums of
squares are formed in exact fractions, so that nothing cancels; one division at the end gives a
float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from math import lcm
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import DataError, ParameterError, SchemaError
from encryptedstats.statistics.contingency import exact_ratio
from encryptedstats.statistics.factors import (
    Powers,
    check_groups,
    choose_group,
    factor,
    factor_position,
    left_out,
    number_position,
    power_shapes,
    power_totals,
    read_powers,
    without_empty,
)
from encryptedstats.statistics.results import TestResult
from encryptedstats.tables.questions.constraints import ALTERNATIVE, CONFIDENCE, Choice, Constraints
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    check_complete_rows,
    complete_rows,
    has_gaps,
    number_column,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

ANOVA_COLUMNS: Final = ["df", "sum_sq", "mean_sq", "statistic", "pvalue"]
_CONSTANT: Final = "the data are constant: there is no spread to measure a difference by"


# -- t-tests ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mean:
    """A mean or a difference of means, with its variance and degrees of freedom."""

    n_rows: int
    estimate: Fraction
    variance: Fraction
    df: float


@dataclass(frozen=True)
class TTest(Question):
    """A t-test: of one mean, of two groups, or of pairs.

    Parameters
    ----------
    variable : str
        Kept as a number.
    by : str, optional
        A variable with bins, or the class: two of its groups are compared.
    groups : list of two, optional
        Which, where there are more than two.
    paired : str, optional
        Another number, measured on the same rows: the mean of the differences is tested.
    mu : float
        The mean, or difference, to test against.
    equal_var : bool
        Pool the variances of two groups (Student); by default they may differ (Welch), as in R.
    alternative : "two-sided", "less" or "greater"
    confidence : float

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"weight": [4, 5, 6, 7, 5, 8, 9, 9], "diet": list("aaaabbbb")})
    >>> schema = es.Schema.infer(frame).with_kind("weight", "number", digits=0)
    >>> found = schema.table(frame).ask(es.TTest("weight", by="diet"))
    >>> round(found.statistic, 4), round(found.df, 4), round(found.pvalue, 4)
    (-1.964, 5.2944, 0.1036)
    """

    title: ClassVar[str] = "t-test"
    of_variables: ClassVar[tuple[str, ...]] = ("variable", "by", "paired")
    of_levels: ClassVar[Mapping[str, str]] = {"groups": "by"}
    constraints: ClassVar[Constraints] = {
        "alternative": ALTERNATIVE,
        "confidence": CONFIDENCE,
    }

    variable: str
    by: str | None = None
    groups: list[Any] | None = None
    paired: str | None = None
    mu: float = 0.0
    equal_var: bool = False
    alternative: str = "two-sided"
    confidence: float = 0.95

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no number, and groups that there are not."""
        own = number_position(schema, self.variable)
        if self.by is not None and self.paired is not None:
            raise ParameterError(
                "by= compares groups of rows and paired= two numbers of a row: give one of them",
                code="by-with-paired",
            )
        if self.paired is not None and number_position(schema, self.paired) == own:
            raise SchemaError(
                f"{self.variable!r} is paired with itself: every difference is 0",
                code="same-variable-twice",
            )
        if self.by is None:
            if self.groups is not None:
                raise ParameterError(
                    "groups= are those of a variable: by= names it", code="groups-without-by"
                )
            return
        self._choose_groups(schema)

    def _choose_groups(self, schema: Schema | PublicSchema) -> tuple[int, int]:
        one = factor(schema, str(self.by))
        if self.groups is None and len(one.labels) != 2:
            raise ParameterError(
                f"{one.name!r} has {len(one.labels)} groups and a t-test compares two: groups= "
                "says which, or see Anova",
                code="not-two-groups",
            )
        found = (
            [0, 1]
            if self.groups is None
            else [choose_group(one, name, "groups", 0) for name in self.groups]
        )
        if len(found) != 2 or found[0] == found[1]:
            raise ParameterError(
                f"groups={self.groups!r}: two different groups of {one.name!r} are needed",
                code="not-two-different-groups",
            )
        return found[0], found[1]

    @property
    def _by(self) -> tuple[str, ...]:
        return () if self.by is None else (self.by,)

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return sums and sums of squares; of pairs also of the products of both."""
        if self.paired is None:
            return power_totals(schema, self.variable, self._by, fold=fold)
        positions = [number_position(schema, name) for name in (self.variable, self.paired)]
        x, y = (number_column(schema, j, gaps=True) for j in positions)
        both = complete_rows(schema, positions)
        if both is None:
            return {"pairs": [total.total() for total in (x, y, x * x, x * y, y * y)]}
        return {
            "pairs": [
                total.total()
                for total in (x * both, y * both, x * x * both, x * y, y * y * both, both)
            ]
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        if self.paired is None:
            return power_shapes(schema, self.variable, self._by)
        gaps = any(
            has_gaps(schema, number_position(schema, name)) for name in (self.variable, self.paired)
        )
        return {"pairs": (5 + gaps,)}

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the test."""
        if self.paired is not None:
            return self._of_pairs(totals, schema, n_rows)
        found = read_powers(totals, schema, self.variable, self._by, n_rows)
        if self.by is None:
            check_complete_rows(int(found.n), n_rows, [found.name])
            title, frame = f"One sample t-test: {found.name}", found.describe()
            return self._of_one(
                title, found.notes, int(found.n), found.mean(()), found.scatter(()), frame
            )
        chosen = self._choose_groups(schema)
        one = found.cells.factors[0]
        for k in chosen:
            if found.n[k] < 2:
                raise DataError(
                    f"not enough observations: group {one.labels[k]!r} of {one.name!r} has "
                    f"{found.n[k]} rows, and two are needed",
                    code="too-few-rows",
                )
        (n1, n2), (s1, s2) = ([int(found.n[k]) for k in chosen], [found.scatter(k) for k in chosen])
        if self.equal_var:
            squared = (s1 + s2) / (n1 + n2 - 2) * (Fraction(1, n1) + Fraction(1, n2))
            df = float(n1 + n2 - 2)
        else:
            v1, v2 = s1 / (n1 - 1) / n1, s2 / (n2 - 1) / n2
            squared = v1 + v2
            df = float(squared**2 / (v1**2 / (n1 - 1) + v2**2 / (n2 - 1))) if squared else np.nan
        rest = sum(int(x) for x in found.n) - n1 - n2
        notes = found.notes + ((f"{rest:,} rows of other groups were left out",) if rest else ())
        kind = "Two sample t-test, equal variances" if self.equal_var else "Welch two sample t-test"
        title, estimate = (
            f"{kind}: {found.name} by {one.name}",
            found.mean(chosen[0]) - found.mean(chosen[1]),
        )
        frame = found.describe().iloc[list(chosen)]
        return self._test(title, notes, _Mean(n1 + n2, estimate, squared, df), frame)

    def _of_pairs(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        positions = [number_position(schema, str(name)) for name in (self.variable, self.paired)]
        a, b = (scale(schema, j) for j in positions)
        x, y, xx, xy, yy, *complete = (int(total) for total in totals["pairs"])
        n = complete[0] if complete else n_rows
        refuse_impossible(0 <= n <= n_rows, "there would be more pairs than rows")
        if n < 2:
            raise DataError(
                f"not enough observations: complete pairs are {n}, and two are needed",
                code="too-few-rows",
            )
        differences = Fraction(x, a) - Fraction(y, b)
        squares = Fraction(xx, a * a) - 2 * Fraction(xy, a * b) + Fraction(yy, b * b)
        mean, scatter = differences / n, squares - differences**2 / n
        refuse_impossible(
            scatter >= 0 and n * xx >= x * x and n * yy >= y * y, "a variance would be negative"
        )
        one, other = (variable_name(schema, j) for j in positions)
        lines = {"n": [n], "mean": [float(mean)], "sd": [float(scatter / (n - 1)) ** 0.5]}
        frame, notes = (
            pd.DataFrame(lines, index=[f"{one} - {other}"]),
            left_out(n_rows - n, [one, other]),
        )
        return self._of_one(f"Paired t-test: {one} and {other}", notes, n, mean, scatter, frame)

    def _of_one(
        self,
        title: str,
        notes: tuple[str, ...],
        n: int,
        mean: Fraction,
        scatter: Fraction,
        frame: pd.DataFrame,
    ) -> TestResult:
        if n < 2:
            raise DataError(
                f"not enough observations: there is {n} row, and two are needed",
                code="too-few-rows",
            )
        return self._test(title, notes, _Mean(n, mean, scatter / (n - 1) / n, float(n - 1)), frame)

    def _test(
        self, title: str, notes: tuple[str, ...], mean: _Mean, frame: pd.DataFrame
    ) -> TestResult:
        from scipy.stats import t as student

        estimate, df = mean.estimate, mean.df
        if not mean.variance:
            raise DataError(_CONSTANT, code="constant-data")
        stderr = float(mean.variance) ** 0.5
        statistic = float(estimate - Fraction(str(self.mu))) / stderr
        above, below = float(student.sf(statistic, df)), float(student.cdf(statistic, df))
        pvalue = {"two-sided": 2 * min(above, below), "greater": above, "less": below}[
            self.alternative
        ]
        both = self.alternative == "two-sided"
        half = (
            float(student.ppf((1 + self.confidence) / 2 if both else self.confidence, df)) * stderr
        )
        low = -np.inf if self.alternative == "less" else float(estimate) - half
        high = np.inf if self.alternative == "greater" else float(estimate) + half
        return TestResult(
            title=title,
            n_rows=mean.n_rows,
            notes=notes,
            statistic=statistic,
            df=df,
            pvalue=pvalue,
            estimate=float(estimate),
            std_error=stderr,
            low=low,
            high=high,
            confidence=self.confidence,
            term="difference in means" if len(frame) > 1 else "mean",
            table=frame,
            details={"alternative": self.alternative, "mu": self.mu},
        )


# -- analysis of variance --------------------------------------------------------------------------


@dataclass(frozen=True)
class Anova(Question):
    """Analysis of variance of a number by one factor or two.

    Parameters
    ----------
    variable : str
        Kept as a number.
    by : list of one or two str
        Variables with bins, or the class.
    interaction : bool
        Of two factors: whether the effect of one may depend on the other.
    typ : 1, 2 or 3
        How sums of squares are taken where groups are not of one size: one source after the other
        (R's ``aov``), each given the other factor (``car::Anova``, the default), or each given all
        else, with effects that add up to 0.
    equal_var : bool
        Of one factor: False gives Welch's test, R's ``oneway.test``.
    """

    title: ClassVar[str] = "Analysis of variance"
    of_variables: ClassVar[tuple[str, ...]] = ("variable", "by")
    constraints: ClassVar[Constraints] = {
        "typ": Choice(values=(1, 2, 3), code="unknown-sum-type"),
    }

    variable: str
    by: list[str]
    interaction: bool = True
    typ: int = 2
    equal_var: bool = True

    def __post_init__(self) -> None:
        named = [self.by] if isinstance(self.by, str) else list(self.by)
        object.__setattr__(self, "by", named)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no number, no factor, or too many of them."""
        number_position(schema, self.variable)
        positions = [factor_position(schema, variable) for variable in self.by]
        if not 1 <= len(positions) <= 2 or len(set(positions)) < len(positions):
            raise ParameterError(
                f"by={self.by!r}: one factor, or two different ones", code="invalid-factors"
            )
        check_groups(schema, self.by)
        if not self.equal_var and len(positions) == 2:
            raise ParameterError(
                "equal_var=False is Welch's test, which is for one factor", code="welch-two-factors"
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return rows, sums and sums of squares of every group."""
        return power_totals(schema, self.variable, self.by, fold=fold)

    def shapes(self, schema: PublicSchema) -> Shapes:
        return power_shapes(schema, self.variable, self.by)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the table."""
        found, notes = _with_rows(read_powers(totals, schema, self.variable, self.by, n_rows))
        names = [one.name for one in found.cells.factors]
        n = found.cells.n
        grand: Fraction = sum(found.sums[0].flat, Fraction(0)) ** 2 / n
        whole: Fraction = sum(found.sums[1].flat, Fraction(0)) - grand
        filled: list[Any] = [place for place in np.ndindex(found.n.shape) if found.n[place]]
        sources: list[Source]
        if len(self.by) == 1:
            between = (
                sum((Fraction(found.sums[0][k]) * found.mean(k) for k in filled), Fraction(0))
                - grand
            )
            sources = [(names[0], between, len(filled) - 1)]
        else:
            sources = _two_way(_TwoWay.read(found), names, self.interaction, self.typ)
            if self.typ == 3:
                notes = (*notes, "effects add up to 0 over the groups of a factor")
        if len(self.by) == 1 or self.interaction:
            residual = sum((found.scatter(place) for place in filled), Fraction(0))
            left = n - len(filled)
        else:
            explained, rank = _TwoWay.read(found).additive()
            residual, left = sum(found.sums[1].flat, Fraction(0)) - explained, n - rank
        if self.equal_var:
            table, notes = _anova_table(sources, residual, left, notes)
        else:
            table, notes = _welch(found, filled, names[0], sources[0][1], residual), notes
        kind = "Analysis of variance" if self.equal_var else "Welch's analysis of variance"
        typed = f", type {'I' * self.typ} sums of squares" if len(self.by) == 2 else ""
        return TestResult.of_terms(
            table,
            title=f"{kind}{typed}: {found.name} by {' and '.join(names)}",
            n_rows=n,
            notes=notes,
            df_resid=float(table["df"].iloc[-1]),
            table=table,
            tables={
                "groups": found.describe(),
                "eta_squared": pd.DataFrame(
                    {"eta_squared": [exact_ratio(part, whole) for _, part, _ in sources]},
                    [name for name, _, _ in sources],
                ),
            },
            picture="plot_means",
        )


def _with_rows(found: Powers) -> tuple[Powers, tuple[str, ...]]:
    """Return the groups without levels that have no rows."""
    cells, notes = without_empty(found.cells)
    sums, missing = found.sums, found.missing
    for axis, (old, new) in enumerate(zip(found.cells.factors, cells.factors, strict=True)):
        kept = [k for k, label in enumerate(old.labels) if label in new.labels]
        sums, missing = (
            tuple(np.take(part, kept, axis=axis) for part in sums),
            np.take(missing, kept, axis=axis),
        )
    return replace(found, cells=cells, sums=sums, missing=missing), (*found.notes, *notes)


Source = tuple[str, Fraction, int]


def _anova_table(
    sources: Sequence[Source], residual: Fraction, left: int, notes: tuple[str, ...]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    from scipy.stats import f as fisher

    lines = []
    for _, squares, df in sources:
        mean = squares / df if df else None
        value = exact_ratio(mean * left, residual) if mean is not None and left else np.nan
        lines.append(
            [
                df,
                float(squares),
                np.nan if mean is None else float(mean),
                value,
                float(fisher.sf(value, df, left)),
            ]
        )
    lines.append([left, float(residual), exact_ratio(residual, left), np.nan, np.nan])
    if not left:
        notes = (*notes, "there are as many groups as rows: nothing is left to measure effects by")
    elif not residual:
        notes = (*notes, "the groups have no spread: an essentially perfect fit")
    index = [*(name for name, _, _ in sources), "Residual"]
    return pd.DataFrame(lines, index=index, columns=ANOVA_COLUMNS), notes


def _welch(
    found: Powers, filled: Sequence[Any], name: str, squares: Fraction, residual: Fraction
) -> pd.DataFrame:
    """Welch (1951), On the comparison of several mean values."""
    from scipy.stats import f as fisher

    few = [found.cells.factors[0].labels[k[0]] for k in filled if found.n[k] < 2]
    if few:
        raise DataError(
            f"not enough observations: group {few[0]!r} has one row, and two are needed for its "
            "variance",
            code="too-few-rows",
        )
    if not all(found.scatter(k) for k in filled):
        raise DataError(_CONSTANT, code="constant-data")
    n, k = np.array([int(found.n[place]) for place in filled]), len(filled)
    precision = [int(found.n[place]) / found.variance(place) for place in filled]
    whole = sum(precision, Fraction(0))
    centre = (
        sum(
            (w * found.mean(place) for w, place in zip(precision, filled, strict=True)), Fraction(0)
        )
        / whole
    )
    between = sum(
        (w * (found.mean(place) - centre) ** 2 for w, place in zip(precision, filled, strict=True)),
        Fraction(0),
    ) / (k - 1)
    apart = sum(
        ((1 - w / whole) ** 2 / int(m - 1) for w, m in zip(precision, n, strict=True)), Fraction(0)
    )
    value = float(between / (1 + Fraction(2 * (k - 2), k * k - 1) * apart))
    left = float(Fraction(k * k - 1) / (3 * apart))
    p = float(fisher.sf(value, k - 1, left))
    lines = [
        [k - 1, float(squares), float(squares / (k - 1)), value, p],
        [left, float(residual), np.nan, np.nan, np.nan],
    ]
    return pd.DataFrame(lines, index=[name, "Residual"], columns=ANOVA_COLUMNS)


# -- two factors: sums of squares that models explain, in exact fractions --------------------------


Explained = tuple[
    Fraction, int
]  # a sum of squares, and the number of independent columns that explain it


@dataclass(frozen=True)
class _TwoWay:
    """What models of two factors explain, from the rows and sums of every pair of groups.

    A model with the interaction fits the mean of every pair, and a model of one factor the mean of
    every group. Only the additive model needs an elimination: of the smaller factor, after the
    larger one.
    """

    rows: list[list[int]]
    sums: list[list[Fraction]]

    @classmethod
    def read(cls, found: Powers) -> _TwoWay:
        """Take the groups of the first factor as lines."""
        rows = [[int(n) for n in line] for line in found.n.tolist()]
        return cls(rows, [[Fraction(s) for s in line] for line in found.sums[0].tolist()])

    @property
    def exchanged(self) -> _TwoWay:
        """With the second factor as the first."""
        return _TwoWay(
            [*map(list, zip(*self.rows, strict=True))], [*map(list, zip(*self.sums, strict=True))]
        )

    @property
    def is_complete(self) -> bool:
        """Return whether every pair of groups has rows."""
        return all(map(all, self.rows))

    def by_pair(self) -> Explained:
        """Explain every pair of groups by its mean."""
        places = zip(chain(*self.sums), chain(*self.rows), strict=True)
        found = [s**2 / n for s, n in places if n]
        return sum(found, Fraction(0)), len(found)

    def by_first(self) -> Explained:
        """Explain every group of the first factor by its mean."""
        found = [
            sum(s, Fraction(0)) ** 2 / sum(n) for s, n in zip(self.sums, self.rows, strict=True)
        ]
        return sum(found, Fraction(0)), len(found)

    def by_constant(self) -> Explained:
        """Explain all rows by their mean."""
        return sum(chain(*self.sums), Fraction(0)) ** 2 / sum(chain(*self.rows)), 1

    def additive(self) -> Explained:
        """Explain all rows by the sum of the effects of both factors."""
        if len(self.rows) < len(self.rows[0]):
            return self.exchanged.additive()
        common = lcm(
            *(sum(line) for line in self.rows)
        )  # denominators, so that all that follows is in integers
        unit = lcm(*(s.denominator for s in chain(*self.sums)))
        own = range(len(self.rows[0]))
        matrix = [[0] * (len(own) + 1) for _ in own]
        for rows, sums in zip(self.rows, self.sums, strict=True):
            share, total = common // sum(rows), int(sum(sums) * unit)
            for j in own:
                matrix[j][j] += common * rows[j]
                matrix[j][-1] += common * int(sums[j] * unit) - share * rows[j] * total
                for k in own:
                    matrix[j][k] -= share * rows[j] * rows[k]
        (first, rank), (more, free) = self.by_first(), _eliminate(matrix)
        return first + more / (common * unit**2), rank + free

    def between_means(self) -> Fraction:
        """Return the sum of squares of the first factor in a model with the interaction and effects
        that add up to 0.

        Every pair of groups must have rows. The means over the groups of the second factor are
        compared, each weighted by the inverse of its variance (Yates, 1934: weighted squares of
        means).
        """
        k = len(self.rows[0])
        means = [
            sum((s / n for s, n in zip(sums, rows, strict=True)), Fraction(0)) / k
            for sums, rows in zip(self.sums, self.rows, strict=True)
        ]
        weights = [k**2 / sum((Fraction(1, n) for n in rows), Fraction(0)) for rows in self.rows]
        whole = sum((w * m for w, m in zip(weights, means, strict=True)), Fraction(0))
        squares = sum((w * m**2 for w, m in zip(weights, means, strict=True)), Fraction(0))
        return squares - whole**2 / sum(weights, Fraction(0))


def _eliminate(matrix: list[list[int]]) -> Explained:
    """Eliminate a positive semidefinite matrix with one column beside it, without fractions
    (Bareiss, 1968).

    Return what the columns explain of the last one, and how many of them depend on no earlier ones.
    """
    gained, rank, before = Fraction(0), 0, 1
    rows = [row[k:] for k, row in enumerate(matrix)]
    for k, (pivot, *rest) in enumerate(rows):
        if not pivot:  # the column depends on earlier ones
            continue
        gained, rank = gained + Fraction(rest[-1] ** 2, pivot * before), rank + 1
        for place, below in enumerate(rows[k + 1 :]):
            value = rest[place]
            below[:] = [
                (pivot * b - value * a) // before for a, b in zip(rest[place:], below, strict=True)
            ]
        before = pivot
    return gained, rank


def _two_way(cells: _TwoWay, names: Sequence[str], interaction: bool, typ: int) -> list[Source]:
    a, b = len(cells.rows), len(cells.rows[0])
    additive = cells.additive()
    full = cells.by_pair() if interaction else additive
    if typ == 3 and (not cells.is_complete if interaction else full[1] < a + b - 1):
        raise DataError(
            f"there are no rows in some groups of {names[0]} and {names[1]}, so effects are "
            "aliased: typ=2, or interaction=False",
            code="empty-cells",
        )
    if typ == 3 and interaction:
        one, other = (cells.between_means(), a - 1), (cells.exchanged.between_means(), b - 1)
    else:
        first, second = cells.by_first(), cells.exchanged.by_first()
        one = _more(first, cells.by_constant()) if typ == 1 else _more(additive, second)
        other = _more(additive, first)
    sources = [(names[0], *one), (names[1], *other)]
    return (
        [*sources, (f"{names[0]}:{names[1]}", *_more(full, additive))] if interaction else sources
    )


def _more(with_it: Explained, without: Explained) -> Explained:
    return with_it[0] - without[0], with_it[1] - without[1]
