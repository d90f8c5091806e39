"""The covariates of a formula at every site: the columns, the rows that are complete, and how
columns are standardised by sums that the first round opens.

A column lies between bounds that follow from the schema. Sites add up u = (x - middle) / half,
which lies between -1 and 1, and its square. Later rounds use z = (u - mean) / sd with the opened
mean and standard deviation, so that Newton steps are well conditioned and roundings small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import ParameterError
from encryptedstats.procedures.pooled.scaling import to_floats, to_integers
from encryptedstats.statistics.designs import Combination, Design, combine, design
from encryptedstats.statistics.formulas import FormulaNode, parse
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.names import position
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

Floats = NDArray[np.float64]
#: A column whose standard deviation is a smaller share of half its range counts as constant: it
#: is not scaled up further, so that z is at most 2 / 1e-5 in size.
LEAST_SPREAD: Final = 1e-5


@dataclass(frozen=True)
class Covariates:
    """The columns of a formula in ids, the intercept first where there is one."""

    made: Design

    @classmethod
    def of(
        cls, formula: str, schema: PublicSchema, reference: Mapping[str, Any] | None = None
    ) -> Covariates:
        """Return the covariates of a formula; refuse what rounds of totals cannot have."""
        made = design(parse(formula), schema, reference)
        if made.polynomials:
            raise ParameterError(
                f"formula={formula!r}: the columns of poly() depend on all rows: write "
                "poly(x, 2, raw = TRUE), which fits the same",
                code="orthogonal-polynomial",
            )
        return cls(made)

    @property
    def n(self) -> int:
        """Return how many columns there are."""
        return len(self.made.model)

    @property
    def first(self) -> int:
        """Return the place of the first column after the intercept."""
        return int(self.made.intercept)

    @property
    def cells(self) -> list[tuple[tuple[int, int], ...]]:
        """Return the levels whose rows are counted: of every factor, of factors that a term has
        together, and of the factors of any two terms, since X'WX has their products. Each is a
        variable's position with a level.
        """
        found = dict[tuple[tuple[int, int], ...], None]()
        factors = [self._levels(term.atoms) for term in self.made.terms]
        for one, other in sorted(combinations_with_replacement(factors, 2), key=_n_variables):
            if axes := {**one, **other}:
                found |= dict.fromkeys(tuple(sorted(cell)) for cell in product(*axes.values()))
        return list(found)

    def cells_with_numbers(self, n_terms: int) -> list[tuple[tuple[int, int], ...]]:
        """Return the levels over whose rows products of columns of up to so many terms sum up a
        number.
        """
        found = dict[tuple[tuple[int, int], ...], None]()
        for terms in combinations_with_replacement(self.made.terms, n_terms):
            axes = {j: one for term in terms for j, one in self._levels(term.atoms).items()}
            is_number = any(len(self._levels(term.atoms)) < len(term.atoms) for term in terms)
            if axes and is_number:
                found |= dict.fromkeys(tuple(sorted(cell)) for cell in product(*axes.values()))
        return list(found)

    def _levels(self, atoms: Sequence[FormulaNode]) -> dict[int, list[tuple[int, int]]]:
        """Return the levels of the factors of a term, by position."""
        found = {}
        for atom in atoms:
            if atom.kind == "name":
                where = position(self.made.schema, atom.text)
                known = self.made.schema.variables[where]
                if known.kind != "number":
                    levels = range(known.n_bins - known.missing_bin)
                    found[where] = [(where, level) for level in levels]
        return found

    def cell_names(self, schema: Schema | PublicSchema) -> list[str]:
        """Return the names of the counted levels."""
        return [name_cell(cell, schema) for cell in self.cells]

    def ranges(self, schema: Schema | PublicSchema) -> list[tuple[float, float]]:
        """Return the middle and half the width of the range of each column after the intercept, in
        the units that the schema knows.
        """
        found = []
        for column in self.made.model[self.first :]:
            low, high = _range(column.combination, schema)
            half = (high - low) / 2
            found.append((float((low + high) / 2), float(half) or 1.0))
        return found

    def offset_width(self, schema: Schema | PublicSchema) -> float:
        """Return how far apart the offsets of two rows can be."""
        low, high = _range(self.made.offset, schema)
        return float(high - low)

    # -- at a site ---------------------------------------------------------------------------------

    def rows(self, table: Table) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return the columns of complete rows in their own units, their offset, and which rows of
        the table are complete.
        """
        monomials = self.made.monomials(table)
        if self.made.is_plain:
            x, offset = monomials, np.zeros(len(table))
        else:
            lines, own = self.made.transform({})
            x = combine(monomials, lines) if len(lines) else np.empty((len(table), 0))
            offset = combine(monomials, own)[:, 0]
        complete = ~np.isnan(monomials).any(axis=1) & ~np.isnan(offset)
        return x[complete], offset[complete], complete

    def to_units(self, x: Floats, schema: Schema | PublicSchema) -> Floats:
        """Return the columns after the intercept, each between -1 and 1."""
        middle, half = np.array(self.ranges(schema), dtype=float).reshape(-1, 2).T
        found: Floats = (x[:, self.first :] - middle) / half
        return found

    def count(self, table: Table, x: Floats, complete: NDArray[np.bool_], bits: int) -> list[int]:
        """Return the complete rows of every cell, and sums and squares of the columns of a site.

        Sums are at most the rows in size, so the integers are below rows x 2^bits: 2^100 for 2^40
        rows and 60 bits.
        """
        counts = [int((complete & is_in_cell(table, cell)).sum()) for cell in self.cells]
        units = self.to_units(x, table.schema)
        return [*counts, *to_integers([*units.sum(axis=0), *(units**2).sum(axis=0)], bits)]

    @property
    def n_counts(self) -> int:
        """Return how many numbers a site gives of its covariates in the first round."""
        return len(self.cells) + 2 * (self.n - self.first)

    def standardise(self, x: Floats, spread: Spread, schema: Schema | PublicSchema) -> Floats:
        """Return the columns with mean 0 and standard deviation 1, after the intercept."""
        z = (self.to_units(x, schema) - np.array(spread.means)) / np.array(spread.sds)
        return np.column_stack([x[:, : self.first], z])

    # -- from sums over all sites ------------------------------------------------------------------

    def counts_of(self, totals: Sequence[int], schema: Schema | PublicSchema) -> dict[str, int]:
        """Return the rows of each cell that has any, by name."""
        counts = totals[: len(self.cells)]
        pairs = zip(self.cell_names(schema), counts, strict=True)
        return {name: int(count) for name, count in pairs if count}

    def spread(self, totals: Sequence[int], n_rows: int, bits: int) -> Spread:
        """Return means and standard deviations from what sites counted."""
        values = to_floats(totals[len(self.cells) :], bits)
        k = self.n - self.first
        means = [one / n_rows for one in values[:k]]
        sds = []
        for mean, squares in zip(means, values[k:], strict=True):
            variance = squares / n_rows - mean * mean
            least = LEAST_SPREAD * LEAST_SPREAD
            sds.append(math.sqrt(variance) if variance > least else 1.0)
        return Spread(means, sds)

    def to_own_units(self, spread: Spread, schema: Schema | PublicSchema) -> Floats:
        """Return the matrix by which coefficients of standardised columns become those of the
        columns in their own units.
        """
        found = np.eye(self.n)
        parts = zip(self.ranges(schema), spread.means, spread.sds, strict=True)
        for j, ((middle, half), mean, sd) in enumerate(parts, self.first):
            found[j, j] = 1 / (half * sd)
            if self.first:
                found[0, j] = -(middle + half * mean) / (half * sd)
        return found


@dataclass(frozen=True)
class Spread:
    """Means and standard deviations of columns between -1 and 1, as opened sums give them."""

    means: list[float]
    sds: list[float]


def name_cell(cell: Sequence[tuple[int, int]], schema: Schema | PublicSchema) -> str:
    """Return the levels of a cell in words."""
    return ", ".join(f"{variable_name(schema, j)} (level {level + 1})" for j, level in cell)


def is_in_cell(table: Table, cell: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which rows of a table have the levels of a cell."""
    inside = np.ones(len(table), dtype=bool)
    for where, level in cell:
        inside &= np.asarray(table.codes_of(where)) == level
    return inside


def _n_variables(pair: tuple[Mapping[int, Any], Mapping[int, Any]]) -> int:
    return len({**pair[0], **pair[1]})


def _range(one: Combination, schema: Schema | PublicSchema) -> tuple[Fraction, Fraction]:
    """Return bounds of a sum of monomials."""
    low = high = Fraction(0)
    for monomial, value, _ in one.parts:
        ends = [value]
        for factor in monomial.factors:
            ends = _product_ends(ends, _ends(factor, schema))
        low, high = low + min(ends), high + max(ends)
    return low, high


def _product_ends(one: Sequence[Fraction], other: Sequence[Fraction]) -> list[Fraction]:
    found = [a * b for a in one for b in other]
    return [min(found), max(found)]


def _ends(factor: Any, schema: Schema | PublicSchema) -> list[Fraction]:
    """Return the least and the largest value of a part of a monomial."""
    if factor.level is not None:
        return [Fraction(0), Fraction(1)]
    known, unit = schema.public().at(factor.variable), scale(schema, factor.variable)
    ends = [Fraction(known.low or 0, unit), Fraction(known.high or 0, unit)]
    powers = [end**factor.power for end in ends]
    crosses = factor.power % 2 == 0 and ends[0] < 0 < ends[1]
    return [*powers, Fraction(0)] if crosses else powers
