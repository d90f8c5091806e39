"""A genome-wide scan: every variant is tested against the trait, all of them in one pass.

Of each variant a scan needs few totals: the sum of the numbers of alleles, of their squares, and of
their products with the trait and the covariates. Genotypes are numbers from 0 to 2 (one column
each, the cheapest), or three bins, for 0, 1 and 2 alleles, and one for missing ones. In a genome
table a column holds thousands of variants, and totals have a lane for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import DataError, SchemaError
from encryptedstats.statistics._scan import Exact, ScanSums, find_slopes
from encryptedstats.statistics.contingency import two_groups
from encryptedstats.statistics.factors import (
    cell_shape,
    choose_group,
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
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.genome import PublicGenome
from encryptedstats.tables.schema.names import position
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import ORDERED_KINDS, PublicSchema, PublicVariable
from encryptedstats.views import TableView, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
TESTS: Final = ("trend", "allelic")  # of two classes without covariates
GAPS: Final = ("drop", "mean")
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
        (``freq_cases``, ``freq_controls``), the odds ratio of an allele with its 95 % interval
        ``low`` to ``high``, ``chi2_allelic`` and ``chi2_trend`` with ``pvalue_allelic`` and
        ``pvalue_trend``, and ``pvalue_hwe`` of Hardy and Weinberg's proportions among all. Of a
        regression: ``n``, ``freq`` of the counted allele, ``beta``, ``se``, ``statistic``,
        ``pvalue`` and ``pvalue_hwe``.
    inflation : float
        Genomic control's lambda: the median of the chi-squares over the one expected.
    test : str
        The test that plots and ``inflation`` are of: "trend", "allelic", "linear" or "score".
    variants : DataFrame, optional
        Of a genome table: chromosome, position, id and alleles of each variant.
    """

    table: pd.DataFrame
    inflation: float
    test: str
    variants: pd.DataFrame | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return a line for each SNP, in the order of the table that was asked."""
        return self.table

    @property
    def pvalues(self) -> pd.Series[float]:
        """Of the chosen test."""
        return self.table[self._column("pvalue")]

    def _column(self, name: str) -> str:
        """Return the name of a column of the chosen test."""
        return name if name in self.table else f"{name}_{self.test}"

    def top(self, n: int = _SHOWN) -> pd.DataFrame:
        """Return the SNPs with the smallest p-values."""
        return self.table.sort_values(self._column("pvalue")).head(n)

    def to_plink(self) -> pd.DataFrame:
        """Return the columns that PLINK users know: CHROM, POS, ID, A1, OBS_CT, A1_FREQ, and BETA,
        SE, T and P of a regression, or OR, CHISQ and P of two classes.

        Chromosome, position and allele are those of a genome table, and left out elsewhere.
        """
        table = self.table
        known = pd.DataFrame({"ID": table.index}) if self.variants is None else self.variants
        known = known.drop(columns="A2", errors="ignore").set_index(table.index)
        found = known.assign(OBS_CT=table["n"])
        if "beta" in table:
            of_test = {"BETA": "beta", "SE": "se", "T": "statistic", "P": "pvalue"}
            found["A1_FREQ"] = table["freq"]
        else:
            of_test = {
                "OR": "odds_ratio",
                "CHISQ": self._column("chi2"),
                "P": self._column("pvalue"),
            }
        for name, column in of_test.items():
            found[name] = table[column]
        return found.reset_index(drop=True)

    def tidy(self) -> pd.DataFrame:
        """Return the slope or odds ratio of every SNP with the chosen test."""
        if "beta" in self.table:
            return as_terms(self.table.rename(columns={"beta": "estimate"}))
        chosen = {f"chi2_{self.test}": "statistic", f"pvalue_{self.test}": "pvalue"}
        return as_terms(
            self.table.rename(columns={"odds_ratio": "estimate", **chosen}).assign(df=1.0)
        )

    def view(self) -> View:
        """Return the SNPs with the smallest p-values; all are in the table."""
        found = super().view()
        top = TableView("smallest p-values", self.top())
        return replace(found, tables=(*found.tables, top))

    def plot(
        self, ax: Axes | None = None, *, positions: Any = None, chromosomes: Any = None
    ) -> Axes:
        """Draw a Manhattan plot. Without ``positions`` and ``chromosomes`` (one for each SNP) by
        those of a genome table, or else in the order of the table.
        """
        from encryptedstats.statistics.plots import plot_manhattan

        if positions is None and self.variants is not None and "POS" in self.variants:
            positions, chromosomes = self.variants["POS"], self.variants["CHROM"]
        return plot_manhattan(self, ax, positions=positions, chromosomes=chromosomes)

    def qq(self, ax: Axes | None = None) -> Axes:
        """Draw the p-values against those expected of SNPs that have nothing to do with
        the class.
        """
        from encryptedstats.statistics.plots import plot_qq

        return plot_qq(self, ax)


@dataclass(frozen=True)
class GenomeScan(Question):
    """The association of many variants with a trait, each tested alone, in one pass: chi-squares of
    two classes, linear regressions with covariates, or score tests of a logistic regression.

    Parameters
    ----------
    variables : list of str, optional
        Variables that are genotypes; by default all that can be: numbers from 0 to 2, and variables
        of three ordered bins. Of a genome table always all variants.
    target : str
        The trait: the class, a variable with bins, or a number.
    event : level, optional
        Which of its groups the cases are; the last of two by default. All others are controls.
    test : "trend" or "allelic"
        Which is drawn and ranked by, of two classes without covariates. Both are computed.
    covariates : list of str, optional
        Variables beside the variant, numbers or categories. Each variant then has the slope, its
        standard error and the t test of a linear regression with an intercept; so it has where the
        target is a number.
    null_model : list of str, optional
        Two numbers of each person, the residual and the weight of a logistic regression on the
        covariates alone, as :func:`~encryptedstats.null_model` makes them. Each variant then has
        the score test of a logistic regression.
    gaps : "drop" or "mean"
        What a regression does with missing genotypes: leave these people out, variant by variant,
        or count them with the mean of the others, which takes fewer totals.

    Notes
    -----
    With g alleles in a row, y = 1 for cases and R the number of these, the trend test is
    N (N sum gy - R sum g)^2 / (R (N - R) (N sum g^2 - (sum g)^2)); the allelic test is the
    chi-square of the alleles of cases and controls, without correction. Regressions follow from the
    sums of g, g^2, gy and gz for each covariate z, and of the products of y and all z, exactly
    (Frisch and Waugh). Rows without a genotype count for neither.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"rs1": [0, 1, 2, 1, 0, 2, 2, 1], "sick": [0, 0, 1, 0, 0, 1, 1, 1]})
    >>> schema = es.Schema.infer(frame, target="sick").with_kind("rs1", "number", digits=0)
    >>> scan = schema.table(frame).ask(es.GenomeScan()).to_frame()
    >>> float(scan.loc["rs1", "chi2_trend"].round(3))
    5.128
    """

    title: ClassVar[str] = "Genome-wide scan"
    of_variables: ClassVar[tuple[str, ...]] = ("variables", "target", "covariates", "null_model")
    of_levels: ClassVar[Mapping[str, str]] = {"event": "target"}
    reads_lanes: ClassVar[bool] = True

    variables: list[str] | None = None
    target: str = "class"
    event: Any = None
    test: str = "trend"
    covariates: list[str] | None = None
    null_model: list[str] | None = None
    gaps: str = "drop"
    constraints: ClassVar[Constraints] = {
        "test": Choice(values=tuple(TESTS), code="unknown-test"),
        "gaps": Choice(values=tuple(GAPS), code="unknown-gaps"),
    }

    def __post_init__(self) -> None:
        for name in ("variables", "covariates", "null_model"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else list(value))

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> GenomeScan:
        # Files of version 0.2 have no regressions.
        return super()._from_parameters(
            {"covariates": None, "null_model": None, "gaps": "drop", **parameters}
        )

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no genotype, and a schema without the trait."""
        people = self._people_variables(schema)
        trait = None if self.null_model is not None else self._trait_position(schema)
        if self.null_model is None and not self._is_number(schema):
            self._case(schema)
        self._check_people(schema, people)
        named = self.variables is not None
        found = self._positions(schema)
        wrong = [schema.variables[j].id for j in found if not _is_genotype(schema.variables[j])]
        own = [j for j in (trait, *people) if j is not None and j != -1]
        if set(own) & set(found):
            known = schema.variables[next(j for j in own if j in found)].id
            raise SchemaError(
                f"{known!r} is the trait or a covariate: it is no genotype beside it",
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

    def _check_people(self, schema: PublicSchema, people: Sequence[int]) -> None:
        """Refuse a trait and covariates that are not known of everybody."""
        if self.null_model is not None and (
            len(self.null_model) != 2 or any(schema.at(j).kind != "number" for j in people[:2])
        ):
            raise SchemaError(
                "null_model= names two numbers, the residuals and the weights",
                code="malformed-null-model",
            )
        missing = [schema.at(j).id for j in people if schema.at(j).missing_bin]
        if self.null_model is None and (
            schema.at(self._trait_position(schema)).missing_bin
            if self._is_number(schema)
            else factor(schema, self.target).missing_bin
        ):
            missing.insert(0, self.target)
        if missing:
            raise SchemaError(
                f"values of {missing[0]!r} may be missing: a scan needs all of the trait and the "
                "covariates",
                code="outcome-may-be-missing",
            )

    # -- what is asked of --------------------------------------------------------------------------

    def _case(self, schema: Schema | PublicSchema) -> int:
        one = factor(schema, self.target)
        two_groups(one, self.event)
        return choose_group(one, self.event, "event", -1)

    def _is_number(self, schema: Schema | PublicSchema) -> bool:
        """Return whether the target is a number that is not cut into bins."""
        public, where = schema.public(), position(schema, self.target)
        if where == -1:
            return public.target_number is not None
        return public.at(where).kind == "number" and not public.at(where).n_bins

    def _trait_position(self, schema: PublicSchema) -> int:
        """Return the position of the target; -1 of the class or of a target that is a number."""
        where = position(schema, self.target)
        return where if self._is_number(schema) else factor_position(schema, self.target)

    def _regresses(self, schema: PublicSchema) -> bool:
        return self.null_model is not None or self.covariates is not None or self._is_number(schema)

    def _people_variables(self, schema: PublicSchema) -> list[int]:
        """Return the positions of the null model's numbers and of the covariates."""
        return [schema.index(name) for name in (*(self.null_model or ()), *(self.covariates or ()))]

    def _positions(self, schema: PublicSchema) -> list[int]:
        if schema.genome is not None:
            if self.variables is not None:
                raise SchemaError(
                    "a scan of a genome table is of all its variants: leave variables= out",
                    code="variants-not-chosen",
                )
            return list(range(schema.genome.n_tiles))
        if self.variables is None:
            # A category of three levels may be anything: it has to be named.
            kinds = (*ORDERED_KINDS, "number")
            excluded = set(self._people_variables(schema))
            if self.null_model is None and self._is_number(schema):
                excluded.add(self._trait_position(schema))
            return [
                j
                for j, v in enumerate(schema.variables)
                if v.kind in kinds and _is_genotype(v) and j not in excluded
            ]
        places = {variable.id: j for j, variable in enumerate(schema.variables)}
        unknown = [name for name in self.variables if name not in places]
        if unknown:
            raise SchemaError(f"variables: no variable {unknown[0]!r}", code="unknown-column")
        return [places[name] for name in self.variables]

    # -- totals ------------------------------------------------------------------------------------

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return for each variant the alleles, their squares and the alleles of cases, and the rows
        without a genotype, of all and of cases; for a regression the sums of ``ScanSums``.
        """
        found = [_genotype(schema, j) for j in self._positions(schema)]
        if self._regresses(schema):
            return self._regression(schema).totals(found, self.gaps)
        classes = groups(schema, [self.target], fold)
        case = classes[self._case(schema)]
        gaps = [present for _, _, present in found if present is not None]
        return {
            "classes": [y.total() for y in classes],
            "alleles": [g.total() for g, _, _ in found],
            "squares": [square.total() for _, square, _ in found],
            "of_cases": [(g * case).total() for g, _, _ in found],
            "present": [present.total() for present in gaps],
            "present_cases": [(present * case).total() for present in gaps],
        }

    def _regression(self, schema: PublicSchema) -> _Regression:
        people = self._people_variables(schema)
        of_model, covariates = people[: len(people) - len(self.covariates or ())], []
        for j in people[len(of_model) :]:
            covariates += _covariate(schema, j)
        if of_model:
            trait, weight = (number_column(schema, j) for j in of_model)
            return _Regression(trait, weight, tuple(covariates))
        if self._is_number(schema):
            trait = number_column(schema, self._trait_position(schema))
        else:
            trait = groups(schema, [self.target])[self._case(schema)]
        return _Regression(trait, None, tuple(covariates))

    def shapes(self, schema: PublicSchema) -> Shapes:
        positions = self._positions(schema)
        n, gaps = len(positions), sum(schema.variables[j].missing_bin for j in positions)
        if self._regresses(schema):
            return self._regression(schema).shapes(n, gaps, self.gaps)
        of_each = dict.fromkeys(("alleles", "squares", "of_cases"), (n,))
        return {
            "classes": cell_shape(schema, [self.target]),
            **of_each,
            "present": (gaps,),
            "present_cases": (gaps,),
        }

    # -- reading -----------------------------------------------------------------------------------

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> GenomeScanResult:
        """Return the tests, all variants at once."""
        public = schema.public()
        of_variants = _Variants(
            public.lanes,
            np.array([public.variables[j].missing_bin for j in self._positions(public)]),
            None if public.genome is None else public.genome.n_variants,
        )
        if self._regresses(public):
            table, notes, test = self._read_regression(totals, schema, n_rows, of_variants)
            chi2 = table["statistic"] ** 2
        else:
            table, notes = self._read_classes(totals, schema, of_variants)
            test, chi2 = self.test, table[f"chi2_{self.test}"]
        known = _variants_of(schema)
        names = (
            [variable_name(schema, j) for j in self._positions(public)]
            if known is None
            else known["ID"].tolist()
        )
        tested = chi2.notna().to_numpy()
        if not tested.all():
            notes.append(
                f"{int((~tested).sum()):,} SNPs have one genotype only and were not tested"
            )
        return GenomeScanResult(
            title="Genome-wide scan",
            n_rows=n_rows,
            notes=tuple(notes),
            table=table.set_index(pd.Index(names, name="snp")),
            inflation=float(chi2[tested].median() / _MEDIAN) if tested.any() else np.nan,
            test=test,
            variants=known,
        )

    def _read_classes(
        self, totals: Totals, schema: Schema | PublicSchema, of_variants: _Variants
    ) -> tuple[pd.DataFrame, list[str]]:
        case = self._case(schema)
        classes = of_variants.people(totals["classes"]).astype(np.int64)
        n = of_variants.with_gaps(totals["present"], int(classes.sum())).astype(np.int64)
        cases = of_variants.with_gaps(totals["present_cases"], int(classes[case])).astype(np.int64)
        missing = int(classes.sum()) - n
        alleles, squares, of_cases = (
            of_variants.each(totals[name]).astype(np.int64)
            for name in ("alleles", "squares", "of_cases")
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
        )
        refuse_impossible(good, _TOO_MANY)
        _refuse_impossible_alleles(n, alleles, squares)
        if not 0 < classes[case] < classes.sum():
            raise DataError(
                "all rows are of one class: there is nothing to compare", code="one-class"
            )
        notes = [
            f"cases are {_group_name(schema, self.target, case)}: {int(classes[case]):,} of "
            f"{int(classes.sum()):,}"
        ]
        if missing.any():
            notes.append(
                f"rows without a genotype were left out, SNP by SNP: {int(missing.sum()):,} in all"
            )
        return scan_table(n, cases, alleles, squares, of_cases), notes

    def _read_regression(
        self,
        totals: Totals,
        schema: Schema | PublicSchema,
        n_rows: int,
        of_variants: _Variants,
    ) -> tuple[pd.DataFrame, list[str], str]:
        public = schema.public()
        regression = self._regression(public)
        n, sums = regression.read(totals, of_variants, n_rows, self.gaps)
        alleles, squares = (of_variants.each(totals[name]) for name in ("alleles", "squares"))
        _refuse_impossible_alleles(n, alleles, squares)
        slopes = find_slopes(sums)
        of_trait, of_weight = self._scales(schema)
        filled = n.astype(np.float64) if self.gaps == "mean" else 1.0  # units of filled genotypes
        beta = slopes.score / slopes.spread * filled * (of_weight / of_trait)
        counted = np.full(len(n), n_rows) if self.gaps == "mean" else n.astype(np.int64)
        spread = slopes.spread / filled**2 / of_weight
        table, test = regression_table(n, alleles, squares), "linear"
        if slopes.left is None:
            se, test = 1 / np.sqrt(spread), "score"
            df: Any = None
        else:
            df = counted - len(regression.covariates) - 2
            with np.errstate(divide="ignore", invalid="ignore"):
                se = np.sqrt(np.where(df > 0, slopes.left / of_trait**2 / df / spread, np.nan))
        table = table.assign(**tested_slopes(beta, se, df))
        notes = [_REGRESSIONS[test]]
        missing = int(n_rows * len(n) - n.sum())
        if missing:
            words = {"drop": "were left out", "mean": "were counted with the mean of the others"}
            notes.append(
                f"rows without a genotype {words[self.gaps]}, SNP by SNP: {missing:,} in all"
            )
        return table[[*_FIRST, "pvalue_hwe"]], notes, test

    def _scales(self, schema: Schema | PublicSchema) -> tuple[float, float]:
        """Return by what the integers of the trait and of the weights were multiplied."""
        public = schema.public()
        if self.null_model is not None:
            trait, weight = (scale(schema, schema.index(name)) for name in self.null_model)
            return float(trait), float(weight)
        if not self._is_number(public):
            return 1.0, 1.0
        return float(scale(schema, self._trait_position(public))), 1.0


_TOO_MANY: Final = "there would be more alleles than rows can have"
_FIRST: Final = ("n", "freq", "beta", "se", "statistic", "pvalue")
_REGRESSIONS: Final = {
    "linear": "linear regression of the trait on each variant and the covariates",
    "score": "score tests of a logistic regression, with the residuals and weights of the model "
    "without variants, as they were rounded; beta is one step from 0",
}


def _refuse_impossible_alleles(n: Any, alleles: Any, squares: Any) -> None:
    good = (
        (n >= 0).all()
        and (squares >= alleles).all()
        and (squares <= _ALLELES * alleles).all()
        and (alleles <= _ALLELES * n).all()
    )
    refuse_impossible(bool(good), _TOO_MANY)


@dataclass(frozen=True)
class _Variants:
    """Where the totals of variants lie: one each, or in the lanes of tiles."""

    lanes: int
    gaps: NDArray[np.bool_]  # of each tile, whether genotypes of it may be missing
    n_variants: int | None

    def each(self, totals: Any) -> Any:
        """Return totals of tiles, shape (tiles, ..., lanes), as those of variants,
        (variants, ...).
        """
        if self.lanes == 1:
            return totals
        moved = np.moveaxis(totals, -1, 1)
        return moved.reshape(-1, *moved.shape[2:])[: self.n_variants]

    def people(self, totals: Any) -> Any:
        """Return totals that no variant has a part in, which are the same in every lane."""
        if self.lanes == 1:
            return totals
        refuse_impossible(
            bool((totals == totals[..., :1]).all()),
            "totals of people would differ between variants",
        )
        return totals[..., 0]

    def with_gaps(self, totals: Any, whole: Any) -> Any:
        """Return totals over known genotypes; those of tiles without gaps are over everybody."""
        lanes = (self.lanes,) if self.lanes > 1 else ()
        whole = np.asarray(whole, dtype=object)
        found = np.empty((len(self.gaps), *whole.shape, *lanes), dtype=object)
        found[...] = whole[..., None] if lanes else whole
        found[self.gaps] = totals
        return self.each(found)


@dataclass(frozen=True)
class _Regression:
    """The totals of regressions on a trait, with weights and covariates of people."""

    trait: Expression
    weight: Expression | None
    covariates: tuple[Expression, ...]

    @property
    def _weighted(self) -> list[Expression]:
        """The weight, where there is one, and each covariate times it."""
        if self.weight is None:
            return list(self.covariates)
        return [self.weight, *(self.weight * x for x in self.covariates)]

    @property
    def _people(self) -> list[Expression]:
        """What is summed over people: weights and covariates, products of covariates, the trait and
        its products with covariates, and its squares where there are no weights.
        """
        x = self.covariates
        weighted = self._weighted[-len(x) :] if x else []
        products = [weighted[i] * x[j] for i in range(len(x)) for j in range(i, len(x))]
        trait = [self.trait, *(self.trait * one for one in x)]
        squares = [self.trait * self.trait] if self.weight is None else []
        return [*self._weighted, *products, *trait, *squares]

    @property
    def _filled(self) -> list[Expression]:
        """What is summed over known genotypes where the mean stands for the others."""
        return [*self._weighted, self.trait]

    def totals(
        self, found: Sequence[tuple[Expression, Expression, Expression | None]], gaps: str
    ) -> Arrays:
        of_gaps = self._people if gaps == "drop" else self._filled
        scores = [self.trait, *self._weighted]
        return {
            "people": [x.total() for x in self._people],
            "alleles": [g.total() for g, _, _ in found],
            "squares": [square.total() for _, square, _ in found],
            "products": [[(g * x).total() for x in scores] for g, _, _ in found],
            "weighted_squares": [
                (square * self.weight).total() for _, square, _ in found if self.weight is not None
            ],
            "present": [
                [p.total(), *((p * x).total() for x in of_gaps)]
                for _, _, p in found
                if p is not None
            ],
        }

    def shapes(self, n: int, n_gaps: int, gaps: str) -> Shapes:
        q, w = len(self.covariates), int(self.weight is not None)
        people = w + q + q * (q + 1) // 2 + 1 + q + (1 - w)
        of_gaps = people if gaps == "drop" else w + q + 1
        return {
            "people": (people,),
            "alleles": (n,),
            "squares": (n,),
            "products": (n, 1 + w + q),
            "weighted_squares": (n * w,),
            "present": (n_gaps, 1 + of_gaps),
        }

    def read(
        self, totals: Totals, of_variants: _Variants, n_rows: int, gaps: str
    ) -> tuple[Exact, ScanSums]:
        """Return the people with a genotype and the sums of a regression, for each variant."""
        everybody = [n_rows, *of_variants.people(totals["people"]).tolist()]
        kept = everybody
        if gaps == "mean":
            q, w = len(self.covariates), int(self.weight is not None)
            kept = [*everybody[: 1 + w + q], everybody[1 + w + q + q * (q + 1) // 2]]
        present = of_variants.with_gaps(totals["present"], kept)
        n = present[:, 0]
        alleles, squares, products = (
            of_variants.each(totals[name]) for name in ("alleles", "squares", "products")
        )
        w = int(self.weight is not None)
        own = {
            "genotypes": products[:, 1] if w else alleles,
            "squares": of_variants.each(totals["weighted_squares"]) if w else squares,
            "trait_genotypes": products[:, 0],
            "genotype_covariates": products[:, 1 + w :],
        }
        if gaps == "drop":
            return n, ScanSums(**self._sums(present), **own)
        whole = np.empty((len(n), len(everybody)), dtype=object)
        whole[...] = everybody
        sums = ScanSums(**self._sums(whole), **own)
        first = 1 if w else 0
        q = len(self.covariates)
        known = replace(
            sums,
            weight=present[:, first],
            covariates=present[:, 1 + w : 1 + w + q],
            trait=present[:, -1],
        )
        return n, sums.fill(alleles, n, known)

    def _sums(self, people: Exact) -> dict[str, Any]:
        """Return the sums over people from their columns: count, weights, covariates and so on."""
        q, w = len(self.covariates), int(self.weight is not None)
        start = 1 + w + q
        stop = start + q * (q + 1) // 2
        products = np.zeros((len(people), q, q), dtype=object)
        rows, columns = np.triu_indices(q)
        products[:, rows, columns] = products[:, columns, rows] = people[:, start:stop]
        return {
            "weight": people[:, w],
            "covariates": people[:, 1 + w : start],
            "products": products,
            "trait": people[:, stop],
            "trait_covariates": people[:, stop + 1 : stop + 1 + q],
            "trait_squares": None if w else people[:, stop + 1 + q],
        }


def _covariate(schema: PublicSchema, position: int) -> list[Expression]:
    """Return the columns of a covariate: the number, or an indicator of each bin but the first."""
    if schema.variables[position].kind == "number":
        return [number_column(schema, position)]
    return bin_columns(schema, position)[1:]


def _variants_of(schema: Schema | PublicSchema) -> pd.DataFrame | None:
    """Return the variants of a genome table as PLINK lists them; None where names are not known."""
    genome = schema.genome
    if genome is None:
        return None
    if isinstance(genome, PublicGenome):
        return pd.DataFrame({"ID": [f"variant{j + 1}" for j in range(genome.n_variants)]})
    return pd.DataFrame(
        {
            "CHROM": genome.chromosomes,
            "POS": genome.positions,
            "ID": genome.ids,
            "A1": genome.counted,
            "A2": genome.others,
        }
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
    """Return the number of alleles, its square, and whether it is known (None where it
    always is).
    """
    if schema.variables[position].kind == "number":
        g = number_column(schema, position, gaps=True)
        return g, g * g, complete_rows(schema, [position])
    none, one, two, *gap = bin_columns(schema, position)
    # Bins are 0 or 1 and exclude each other: their squares need no product.
    return one + 2 * two, one + 4 * two, none + one + two if gap else None


def regression_table(n: Any, alleles: Any, squares: Any) -> pd.DataFrame:
    """Return what genotypes alone say of many variants: how many are known, how frequent the
    counted allele is, and the test of Hardy and Weinberg's proportions.
    """
    n, alleles, squares = (part.astype(np.int64) for part in (n, alleles, squares))
    return pd.DataFrame(
        {
            "n": n,
            "freq": alleles / (_ALLELES * np.maximum(n, 1)),
            "pvalue_hwe": _hardy_weinberg(n, alleles, squares),
        }
    )


def tested_slopes(beta: Floats, se: Floats, df: Any) -> dict[str, Any]:
    """Return slopes with their tests: t with ``df`` degrees of freedom, or normal without."""
    from scipy.stats import norm
    from scipy.stats import t as student

    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = beta / se
    apart = np.abs(statistic)
    pvalue = 2 * (norm.sf(apart) if df is None else student.sf(apart, np.maximum(df, 1)))
    return {"beta": beta, "se": se, "statistic": statistic, "pvalue": pvalue}


def _hardy_weinberg(n: Any, alleles: Any, squares: Any) -> Any:
    """Return the p-values of chi-square tests; NaN for variants of one genotype."""
    from scipy.stats import chi2 as chi_square

    twos = (squares - alleles) // 2
    ones = alleles - 2 * twos
    with np.errstate(divide="ignore", invalid="ignore"):
        share = alleles / (_ALLELES * n)
        expected = n * 2 * share * (1 - share)
        hwe = n * ((ones - expected) / expected) ** 2
    varies = n * squares.astype(float) - alleles.astype(float) ** 2 > 0
    return chi_square.sf(np.where(varies, hwe, np.nan), 1)


def scan_table(n: Any, cases: Any, alleles: Any, squares: Any, of_cases: Any) -> pd.DataFrame:
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
        half = 1.959963984540054 * se
        low, high = odds * np.exp(-half), odds * np.exp(half)
    trend, allelic = (np.where(spread > 0, x, np.nan) for x in (trend, allelic))
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
            "pvalue_hwe": _hardy_weinberg(n, alleles, squares),
        }
    )
