"""Several numbers compared between groups at once: MANOVA, which of two groups is Hotelling's test.

Within and between sums of products follow from the rows and sums of every group and the products of
all rows. Imports factors and the names of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import sum_of
from encryptedstats.errors import DataError, SchemaError
from encryptedstats.statistics.factors import check_groups, factor, groups, left_out, totals_of
from encryptedstats.statistics.results import TestResult
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    complete_rows,
    number_column,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.names import position
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Manova(Question):
    """Whether the means of several numbers differ between groups: multivariate analysis of
    variance.

    Pillai's trace, Wilks's lambda, the trace of Hotelling and Lawley, and Roy's largest root, each
    with its F test, as R's ``summary(manova(cbind(a, b) ~ g), test=)``. Of two groups the tests
    are one, Hotelling's, whose T-squared is in ``details``.

    Parameters
    ----------
    variables : list of str
        Two or more, kept as numbers. Rows where one is missing are left out.
    by : str
        A variable with bins, or the class.

    References
    ----------
    Hotelling (1931). Wilks (1932). Pillai (1955).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"a": [1, 2, 3, 5, 6, 8], "b": [2, 1, 4, 3, 7, 5]})
    >>> frame["g"] = list("xxxyyy")
    >>> table = es.Schema.infer(frame, numbers="keep").table(frame)
    >>> round(table.ask(es.Manova(["a", "b"], by="g")).pvalue, 4)
    0.0837
    """

    title: ClassVar[str] = "Multivariate analysis of variance"
    of_variables: ClassVar[tuple[str, ...]] = ("variables", "by")

    variables: tuple[str, ...]
    by: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(self.variables))
        self.check_parameters()

    def _positions(self, schema: PublicSchema) -> list[int]:
        return [position(schema, name) for name in self.variables]

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse fewer than two numbers, a number twice, and factors of one group."""
        positions = self._positions(schema)
        for where in positions:
            number_column(schema, where, gaps=True)
        if len(set(positions)) < max(2, len(positions)):
            raise SchemaError(
                "a MANOVA is of two numbers or more, each once: Anova is for one",
                code="same-variable-twice" if len(positions) > 1 else "too-few-variables",
            )
        factor(schema, self.by)
        check_groups(schema, [self.by])

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return rows and sums of every group, and the products of all rows."""
        positions = self._positions(schema)
        inside = groups(schema, [self.by], fold, present=True)
        complete = complete_rows(schema, positions)
        if complete is not None:
            inside = inside * complete
        numbers = [number_column(schema, j, gaps=True) for j in positions]
        counted = sum_of(list(inside))
        pairs = combinations_with_replacement(numbers, 2)
        return {
            "rows": totals_of(inside),
            "sums": np.stack([totals_of(inside * one) for one in numbers]),
            "products": [((a * b) * counted).total() for a, b in pairs],
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of the totals."""
        k, n_groups = len(self.variables), len(factor(schema, self.by).labels)
        return {"rows": (n_groups,), "sums": (k, n_groups), "products": (k * (k + 1) // 2,)}

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the four tests; the first is Pillai's."""
        public = schema.public()
        positions, one = self._positions(public), factor(schema, self.by)
        names = [variable_name(schema, j) for j in positions]
        rows = [int(n) for n in totals["rows"]]
        n = sum(rows)
        refuse_impossible(min(rows) >= 0, "a group would have fewer rows than none")
        used = [g for g, size in enumerate(rows) if size]
        free = n - len(used)
        if len(used) < 2 or free < len(names):
            raise DataError(
                f"{len(used)} groups of {one.name!r} have rows, {n:,} together: two groups and "
                f"more rows than {len(names)} numbers and the groups need are required",
                code="too-few-rows",
            )
        units = [scale(schema, j) for j in positions]
        sums = [
            [Fraction(int(s), unit) for s in line]
            for line, unit in zip(totals["sums"], units, strict=True)
        ]
        within, between = _split_products(totals["products"], sums, rows, units)
        roots = _relative_roots(within, between)
        tests = multivariate_tests(roots, len(names), len(used) - 1, free)
        means = {one.labels[g]: [float(line[g] / rows[g]) for line in sums] for g in used}
        table = pd.DataFrame.from_dict(means, orient="index", columns=names)
        table.insert(0, "n", [rows[g] for g in used])
        gone = [str(one.labels[g]) for g in range(len(rows)) if g not in used]
        return TestResult.of_terms(
            tests,
            title=f"Multivariate analysis of variance: {', '.join(names)} by {one.name}",
            n_rows=n,
            notes=(
                *left_out(max(0, n_rows - n), [*names, one.name]),
                *((f"groups without rows were dropped: {', '.join(gone)}",) if gone else ()),
            ),
            df_resid=float(tests["df_resid"].iloc[0]),
            table=table,
            tables={"tests": tests},
            details={"T2": float(free * roots.sum())} if len(used) == 2 else {},
        )


def _split_products(
    products: NDArray[Any],
    sums: Sequence[Sequence[Fraction]],
    rows: Sequence[int],
    units: Sequence[int],
) -> tuple[Floats, Floats]:
    """Return the sums of products within and between groups, each rounded once."""
    k = len(units)
    within, between = np.zeros((k, k)), np.zeros((k, k))
    whole = [sum(line, Fraction(0)) for line in sums]
    for (a, b), product in zip(combinations_with_replacement(range(k), 2), products, strict=True):
        by_group = sum(
            (sums[a][g] * sums[b][g] / size for g, size in enumerate(rows) if size), Fraction(0)
        )
        inside = Fraction(int(product), units[a] * units[b]) - by_group
        refuse_impossible(a != b or inside >= 0, "a variance would be negative")
        within[a, b] = within[b, a] = float(inside)
        between[a, b] = between[b, a] = float(by_group - whole[a] * whole[b] / sum(rows))
    return within, between


def _relative_roots(within: Floats, between: Floats) -> Floats:
    """Return the eigenvalues of the spread between groups in units of that within them."""
    unit = np.sqrt(within.diagonal())
    if (unit <= 0).any():
        raise DataError(
            "a number is constant within all groups: there is no spread to compare means with",
            code="constant-data",
        )
    within, between = (one / np.outer(unit, unit) for one in (within, between))
    if np.linalg.eigvalsh(within)[0] < 1e-10:
        raise DataError(
            "the numbers depend on each other within groups: leave one of them out",
            code="collinear",
        )
    root = np.linalg.inv(np.linalg.cholesky(within))
    found: Floats = np.linalg.eigvalsh(root @ between @ root.T).clip(min=0.0)
    return found


def multivariate_tests(roots: Floats, k: int, between: int, within: int) -> pd.DataFrame:
    """Return the four tests of a MANOVA with their F tests, as R's ``summary.manova``.

    Parameters
    ----------
    roots : array
        Eigenvalues of the spread between groups in units of that within them.
    k : int
        Numbers.
    between, within : int
        Degrees of freedom.
    """
    from scipy.stats import f as fisher

    s = min(k, between)
    m, n = (abs(k - between) - 1) / 2, (within - k - 1) / 2
    first, second = 2 * m + s + 1, 2 * n + s + 1
    pillai = float((roots / (1 + roots)).sum())
    wilks = float(np.prod(1 / (1 + roots)))
    hotelling, roy = float(roots.sum()), float(roots.max())
    squares = k**2 + between**2 - 5
    power = math.sqrt((k**2 * between**2 - 4) / squares) if squares > 0 else 1.0
    product = k * between
    below = (within - (k - between + 1) / 2) * power - (product - 2) / 2
    left = wilks ** (1 / power)
    largest = max(k, between)
    lines = {
        "Pillai's trace": (
            pillai,
            second / first * pillai / (s - pillai) if s > pillai else math.inf,
            s * first,
            s * second,
        ),
        "Wilks's lambda": (wilks, (1 / left - 1) * below / product, product, below),
        "Hotelling-Lawley trace": (
            hotelling,
            2 * (s * n + 1) * hotelling / (s * s * first),
            s * first,
            2 * (s * n + 1),
        ),
        "Roy's largest root": (
            roy,
            (within - largest + between) * roy / largest,
            largest,
            within - largest + between,
        ),
    }
    found = pd.DataFrame.from_dict(
        lines, orient="index", columns=["estimate", "statistic", "df", "df_resid"]
    ).astype(float)
    found["pvalue"] = fisher.sf(found["statistic"], found["df"], found["df_resid"])
    return found
