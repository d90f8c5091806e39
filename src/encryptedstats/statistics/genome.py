"""A genome-wide scan: every SNP is tested against the class, all of them in one pass.

Of each SNP a scan needs few totals: the sum of the numbers of alleles, of their squares, and of
their products with the class. Genotypes are numbers from 0 to 2 (one column each, the cheapest), or
three bins, for 0, 1 and 2 alleles, and one for missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import DataError, SchemaError
from encryptedstats.statistics.contingency import two_groups
from encryptedstats.statistics.factors import (
    cell_shape,
    chosen_group,
    factor,
    factor_position,
    groups,
)
from encryptedstats.tables.answers.results import Result, as_terms
from encryptedstats.tables.questions.constraints import Choice, Constraints
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    bin_columns,
    complete_rows,
    number_column,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import variable_name
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import ORDERED_KINDS, PublicSchema, PublicVariable
from encryptedstats.views import TableView, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
TESTS: Final = ("trend", "allelic")
_ALLELES: Final = 2
_SHOWN: Final = 10
_MEDIAN: Final = 0.454936423119572  # of chi-square with one degree of freedom


@dataclass(frozen=True, kw_only=True)
class GenomeScanResult(Result):
    """Every SNP's tests.

    Attributes
    ----------
    table : DataFrame
        For each SNP: rows with a genotype ``n``, the share of the counted allele in both classes
        (``freq_cases``, ``freq_controls``), the odds ratio of an allele with its 95 % interval ``low`` to ``high``,
        ``chi2_allelic`` and ``chi2_trend`` with ``pvalue_allelic`` and ``pvalue_trend``, and ``pvalue_hwe`` of
        Hardy and Weinberg's proportions among all.
    inflation : float
        Genomic control's lambda: the median of the chi-squares over the one expected.
    test : str
        The test that plots and ``inflation`` are of.
    """

    table: pd.DataFrame
    inflation: float
    test: str

    def to_frame(self) -> pd.DataFrame:
        """Return a line for each SNP, in the order of the table that was asked."""
        return self.table

    @property
    def pvalues(self) -> pd.Series[float]:
        """Of the chosen test."""
        return self.table[f"pvalue_{self.test}"]

    def top(self, n: int = _SHOWN) -> pd.DataFrame:
        """Return the SNPs with the smallest p-values."""
        return self.table.sort_values(f"pvalue_{self.test}").head(n)

    def tidy(self) -> pd.DataFrame:
        """Return the odds ratio of every SNP with the chosen test."""
        chosen = {f"chi2_{self.test}": "statistic", f"pvalue_{self.test}": "pvalue"}
        return as_terms(
            self.table.rename(columns={"odds_ratio": "estimate", **chosen}).assign(df=1.0)
        )

    def view(self) -> View:
        """Return the SNPs with the smallest p-values; all are in the table."""
        found = super().view()
        top = TableView("smallest p-values", self.top())
        return replace(found, tables=(*found.tables[:0], top, *found.tables))

    def plot(
        self, ax: Axes | None = None, *, positions: Any = None, chromosomes: Any = None
    ) -> Axes:
        """Draw a Manhattan plot. Without ``positions`` and ``chromosomes`` (one for each SNP) in
        the order of the table.
        """
        from encryptedstats.statistics.plots import plot_manhattan

        return plot_manhattan(self, ax, positions=positions, chromosomes=chromosomes)

    def qq(self, ax: Axes | None = None) -> Axes:
        """Draw the p-values against those expected of SNPs that have nothing to do with the class."""
        from encryptedstats.statistics.plots import plot_qq

        return plot_qq(self, ax)


@dataclass(frozen=True)
class GenomeScan(Question):
    """The allelic chi-square and the Cochran-Armitage trend test of many SNPs against two classes,
    in one pass.

    Parameters
    ----------
    variables : list of str, optional
        Variables that are genotypes; by default all that can be: numbers from 0 to 2, and variables
        of three ordered bins.
    target : str
        The class, or a variable with bins.
    event : level, optional
        Which of its groups the cases are; the last of two by default. All others are controls.
    test : "trend" or "allelic"
        Which is drawn and ranked by. Both are computed.

    Notes
    -----
    With g alleles in a row, y = 1 for cases and R the number of these, the trend test is
    N (N sum gy - R sum g)^2 / (R (N - R) (N sum g^2 - (sum g)^2)); the allelic test is the
    chi-square of the alleles of cases and controls, without correction. Rows without a genotype
    count for neither.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"rs1": [0, 1, 2, 1, 0, 2, 2, 1], "sick": [0, 0, 1, 0, 0, 1, 1, 1]})
    >>> schema = es.Schema.infer(frame, target="sick").with_kind("rs1", "number", digits=0)
    >>> round(schema.table(frame).ask(es.GenomeScan()).to_frame().loc["rs1", "chi2_trend"], 3)
    5.818
    """

    title: ClassVar[str] = "Genome-wide scan"
    of_variables: ClassVar[tuple[str, ...]] = ("variables", "target")
    of_levels: ClassVar[Mapping[str, str]] = {"event": "target"}

    variables: list[str] | None = None
    target: str = "class"
    event: Any = None
    test: str = "trend"
    constraints: ClassVar[Constraints] = {"test": Choice(values=tuple(TESTS), code="unknown-test")}

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "variables", None if self.variables is None else list(self.variables)
        )

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no genotype, and a schema without classes."""
        self._case(schema)
        named = self.variables is not None
        found = self._positions(schema)
        wrong = [schema.variables[j].id for j in found if not _is_genotype(schema.variables[j])]
        own = factor_position(schema, self.target)
        if factor(schema, self.target).missing_bin:
            raise SchemaError(
                f"values of the outcome {self.target!r} may be missing: a scan needs all of them",
                code="outcome-may-be-missing",
            )
        if own in found:
            raise SchemaError(
                f"{self.target!r} is the outcome: it is no genotype beside it",
                code="outcome-is-genotype",
            )
        if wrong or not found:
            what = (
                f"variable {wrong[0]!r} is no genotype"
                if named and wrong
                else "no variable is a genotype"
            )
            raise SchemaError(
                f"{what}: numbers from 0 to 2 are, and variables of three bins, for 0, 1 and 2 "
                "alleles",
                code="not-a-genotype",
            )

    def _case(self, schema: Schema | PublicSchema) -> int:
        one = factor(schema, self.target)
        two_groups(one, self.event)
        return chosen_group(one, self.event, "event", -1)

    def _positions(self, schema: PublicSchema) -> list[int]:
        if self.variables is None:
            ordered = (
                *ORDERED_KINDS,
                "number",
            )  # a category of three levels may be anything: it has to be named
            return [
                j for j, v in enumerate(schema.variables) if v.kind in ordered and _is_genotype(v)
            ]
        places = {variable.id: j for j, variable in enumerate(schema.variables)}
        unknown = [name for name in self.variables if name not in places]
        if unknown:
            raise SchemaError(f"variables: no variable {unknown[0]!r}", code="unknown-column")
        return [places[name] for name in self.variables]

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Of each SNP: alleles, their squares, those of cases; and rows without a genotype, of all
        and of cases.
        """
        classes = groups(schema, [self.target], fold)
        case = classes[self._case(schema)]
        found = [_genotype(schema, j) for j in self._positions(schema)]
        gaps = [present for _, _, present in found if present is not None]
        return {
            "classes": [y.total() for y in classes],
            "alleles": [g.total() for g, _, _ in found],
            "squares": [square.total() for _, square, _ in found],
            "of_cases": [(g * case).total() for g, _, _ in found],
            "present": [present.total() for present in gaps],
            "present_cases": [(present * case).total() for present in gaps],
        }

    def shapes(self, schema: PublicSchema) -> Shapes:
        positions = self._positions(schema)
        n, gaps = len(positions), sum(schema.variables[j].missing_bin for j in positions)
        of_each = dict.fromkeys(("alleles", "squares", "of_cases"), (n,))
        return {
            "classes": cell_shape(schema, [self.target]),
            **of_each,
            "present": (gaps,),
            "present_cases": (gaps,),
        }

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> GenomeScanResult:
        """Return the tests, all SNPs at once."""
        public = schema.public()
        positions, case = self._positions(public), self._case(schema)
        classes = totals["classes"].astype(np.int64)
        gaps = np.array([public.variables[j].missing_bin for j in positions])
        n, cases = (
            np.full(len(positions), int(classes.sum())),
            np.full(len(positions), int(classes[case])),
        )
        n[gaps], cases[gaps] = (
            totals[name].astype(np.int64) for name in ("present", "present_cases")
        )
        missing = int(classes.sum()) - n
        alleles, squares, of_cases = (
            totals[name].astype(np.int64) for name in ("alleles", "squares", "of_cases")
        )
        good = (
            bool((classes >= 0).all())
            and bool(
                (missing >= 0).all()
                and (cases >= 0).all()
                and (cases <= n).all()
                and (cases <= classes[case]).all()
            )
            and bool(
                (of_cases >= 0).all()
                and (of_cases <= alleles).all()
                and (of_cases <= _ALLELES * cases).all()
            )
            and bool(
                (squares >= alleles).all()
                and (squares <= _ALLELES * alleles).all()
                and (alleles <= _ALLELES * n).all()
            )
        )
        refuse_impossible(good, "there would be more alleles than rows can have")
        if not 0 < classes[case] < classes.sum():
            raise DataError(
                "all rows are of one class: there is nothing to compare", code="one-class"
            )
        names = pd.Index([variable_name(schema, j) for j in positions], name="snp")
        table = scanned(n, cases, alleles, squares, of_cases).set_index(names)
        chi2 = table[f"chi2_{self.test}"]
        tested = chi2.notna()
        notes = [
            f"cases are {_group_name(schema, self.target, case)}: {int(classes[case]):,} of "
            f"{int(classes.sum()):,}"
        ]
        if missing.any():
            notes.append(
                f"rows without a genotype were left out, SNP by SNP: {int(missing.sum()):,} in all"
            )
        if not tested.all():
            notes.append(
                f"{int((~tested).sum()):,} SNPs have one genotype only and were not tested"
            )
        return GenomeScanResult(
            title="Genome-wide scan",
            n_rows=n_rows,
            notes=tuple(notes),
            table=table,
            inflation=float(chi2[tested].median() / _MEDIAN) if tested.any() else np.nan,
            test=self.test,
        )


def _group_name(schema: Schema | PublicSchema, outcome: str, case: int) -> str:
    one = factor(schema, outcome)
    return f"{one.name} = {one.labels[case]}"


def _is_genotype(variable: PublicVariable) -> bool:
    if variable.kind == "number":
        return (
            variable.low is not None
            and variable.low >= 0
            and variable.high is not None
            and variable.high <= _ALLELES
        )
    return variable.n_bins - variable.missing_bin == _ALLELES + 1


def _genotype(
    schema: PublicSchema, position: int
) -> tuple[Expression, Expression, Expression | None]:
    """Return the number of alleles, its square, and whether it is known (None where it always is)."""
    if schema.variables[position].kind == "number":
        g = number_column(schema, position, gaps=True)
        return g, g * g, complete_rows(schema, [position])
    none, one, two, *gap = bin_columns(schema, position)
    # Bins are 0 or 1 and exclude each other: their squares need no product.
    return one + 2 * two, one + 4 * two, none + one + two if gap else None


def scanned(n: Any, cases: Any, alleles: Any, squares: Any, of_cases: Any) -> pd.DataFrame:
    """Return the tests of many SNPs from their totals: integers, which are exact in float64 as far
    as they go here.
    """
    from scipy.stats import chi2 as chi_square

    controls, of_controls = n - cases, alleles - of_cases
    with np.errstate(divide="ignore", invalid="ignore"):
        # Differences that cancel are formed in integers; their products may be larger than those.
        apart = (n * of_cases - cases * alleles).astype(float)
        spread = (n * squares - alleles * alleles).astype(float)
        rows = cases.astype(float) * controls
        trend = n * apart**2 / (rows * spread)
        allelic = 2 * n * apart**2 / (rows * (alleles * (_ALLELES * n - alleles)).astype(float))
        other_cases, other_controls = _ALLELES * cases - of_cases, _ALLELES * controls - of_controls
        odds = of_cases.astype(float) * other_controls / (other_cases.astype(float) * of_controls)
        se = np.sqrt(sum(1 / part for part in (of_cases, of_controls, other_cases, other_controls)))
        twos = (squares - alleles) // 2
        ones = alleles - 2 * twos
        share = alleles / (_ALLELES * n)
        expected = n * 2 * share * (1 - share)
        hwe = n * ((ones - expected) / expected) ** 2
        half = 1.959963984540054 * se
        low, high = odds * np.exp(-half), odds * np.exp(half)
    trend, allelic, hwe = (np.where(spread > 0, x, np.nan) for x in (trend, allelic, hwe))
    return pd.DataFrame(
        {
            "n": n,
            "freq_cases": of_cases / (_ALLELES * np.maximum(cases, 1)),
            "freq_controls": of_controls / (_ALLELES * np.maximum(controls, 1)),
            "odds_ratio": odds,
            "low": low,
            "high": high,
            "chi2_allelic": allelic,
            "pvalue_allelic": chi_square.sf(allelic, 1),
            "chi2_trend": trend,
            "pvalue_trend": chi_square.sf(trend, 1),
            "pvalue_hwe": chi_square.sf(hwe, 1),
        }
    )
