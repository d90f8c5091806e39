"""The columns of a formula in a schema, coded as R codes them.

A worker multiplies and adds whole numbers, so it is asked for sums of monomials: products of
numbers and of indicators of levels. The columns of the model are combinations of monomials, which
the owner makes of the opened sums: ``I((x - 30)^2)`` of x^2, x and 1, and ``poly(x, 2)`` with
coefficients that depend on the sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import Cure, DataError, ParameterError, SchemaError
from encryptedstats.statistics.formulas import (
    INTERCEPT,
    Formula,
    FormulaNode,
    Polynomial,
    parse,
    poly_options,
    polynomial_of,
)
from encryptedstats.tables.questions.question import (
    bin_columns,
    complete_rows,
    number_column,
    product_of,
)
from encryptedstats.tables.questions.summaries import labels, scale, variable_name
from encryptedstats.tables.schema.names import level_number, position, target_id
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema
    from encryptedstats.tables.table import Table

MOST_COLUMNS: Final = 4096
_TOO_MANY: Final = f"the formula has more than {MOST_COLUMNS:,} columns: leave terms out"
#: What becomes of rows in the bin for missing values of a factor: it is a level as any other, or
#: they are left out.
MISSING: Final = ("level", "complete")
_ROOT_BITS: Final = 256  # of the square roots by which orthogonal polynomials are divided


# -- monomials: columns that a worker computes -----------------------------------------------------


@dataclass(frozen=True)
class MonomialFactor:
    """A part of a monomial: a number to a power, or the indicator of one level; the variable is a
    position, -1 for the target.
    """

    variable: int
    level: int | None = None
    power: int = 1


@dataclass(frozen=True)
class DesignColumn:
    """A monomial: a product of factors; the intercept has none."""

    factors: tuple[MonomialFactor, ...] = ()

    @property
    def key(self) -> frozenset[MonomialFactor]:
        """Return what equal monomials share, whatever the order of their factors."""
        return frozenset(self.factors)

    def name(self, schema: Schema | PublicSchema) -> str:
        """Return its name in tables: ``(Intercept)``, ``age^2``, ``sex[f]:age``."""
        return ":".join(_name(factor, schema) for factor in self.factors) or INTERCEPT

    def scale(self, schema: Schema | PublicSchema) -> int:
        """Return what its integers are larger by than what they stand for."""
        numbers = [one for one in self.factors if one.level is None]
        return math.prod(scale(schema, one.variable) ** one.power for one in numbers)

    def times(self, other: DesignColumn) -> DesignColumn | None:
        """Return the product; None where no row has both levels of a variable."""
        found = {one.variable: one for one in self.factors}
        for factor in other.factors:
            known = found.get(factor.variable)
            if known is None:
                found[factor.variable] = factor
            elif factor.level != known.level:
                return None
            elif factor.level is None:
                found[factor.variable] = replace(factor, power=factor.power + known.power)
        return DesignColumn(tuple(found.values()))


def _name(factor: MonomialFactor, schema: Schema | PublicSchema) -> str:
    name = variable_name(schema, factor.variable)
    if factor.level is not None:
        return f"{name}[{labels(schema, factor.variable)[factor.level]}]"
    return name + (f"^{factor.power}" if factor.power > 1 else "")


# -- columns of the model --------------------------------------------------------------------------


@dataclass(frozen=True)
class Orthogonal:
    """A coefficient of ``poly()``, which follows from sums: that of ``power`` in column ``degree``
    (from 1 on) of a variable.
    """

    variable: int
    degree: int
    power: int
    most: int  # the degree that was asked for


@dataclass(frozen=True)
class Combination:
    """A sum of monomials, each with a number and perhaps coefficients of ``poly()``."""

    parts: tuple[tuple[DesignColumn, Fraction, tuple[Orthogonal, ...]], ...]

    def times(self, other: Combination) -> Combination:
        """Return the product of two sums."""
        found = []
        for a, x, left in self.parts:
            for b, y, right in other.parts:
                column = a.times(b)
                if column is not None:
                    found.append((column, x * y, (*left, *right)))
        return Combination(tuple(found))


_ONE: Final = Combination(((DesignColumn(), Fraction(1), ()),))


@dataclass(frozen=True)
class ModelColumn:
    """A column of the model: its name, in atoms and levels, and the combination that it is."""

    parts: tuple[tuple[FormulaNode, int | None], ...]  # an atom, with a level or a column of poly()
    combination: Combination

    def name(self, schema: Schema | PublicSchema) -> str:
        """Return its name as R has it, with levels in brackets."""
        return ":".join(_part_name(*one, schema) for one in self.parts) or INTERCEPT


def _part_name(atom: FormulaNode, number: int | None, schema: Schema | PublicSchema) -> str:
    if atom.kind == "call":
        return f"{_in_schema(atom, schema)}{'' if number is None else number}"
    where = position(schema, atom.text)
    return _name(MonomialFactor(where, number), schema)


def _in_schema(node: FormulaNode, schema: Schema | PublicSchema) -> str:
    return str(node.rename(lambda name: variable_name(schema, position(schema, name))))


@dataclass(frozen=True)
class DesignTerm:
    """A term: its atoms, and the places of its columns among those of the model."""

    atoms: tuple[FormulaNode, ...]
    columns: tuple[int, ...]

    def name(self, schema: Schema | PublicSchema) -> str:
        """Return its name, without levels."""
        atoms = (
            _in_schema(one, schema)
            if one.kind == "call"
            else variable_name(schema, position(schema, one.text))
            for one in self.atoms
        )
        return ":".join(atoms)


@dataclass(frozen=True)
class Design:
    """What a formula comes to in a schema.

    Attributes
    ----------
    targets : tuple of int
        Positions of what is explained; -1 for the target of the schema.
    columns : tuple of DesignColumn
        Monomials, whose sums a worker computes; the intercept first, where there is one.
    model : tuple of ModelColumn
        The columns that explain, the intercept first.
    terms : tuple of DesignTerm
    offset : Combination
        What is added to the prediction.
    complete : Expression or None
        What is 1 in rows where nothing that is needed is missing, else 0; None where nothing can
        be.
    compared : tuple of (int, int)
        Positions of factors that have no column for a level, and that level: the one that their
        others are compared with.
    constant : tuple of int
        Positions of factors with one level, which ``.`` does not stand for.
    """

    schema: PublicSchema
    targets: tuple[int, ...]
    columns: tuple[DesignColumn, ...]
    model: tuple[ModelColumn, ...]
    terms: tuple[DesignTerm, ...]
    offset: Combination
    complete: Expression | None
    compared: tuple[tuple[int, int], ...] = ()
    constant: tuple[int, ...] = ()

    @property
    def intercept(self) -> bool:
        """Return whether there is one."""
        return bool(self.model) and not self.model[0].parts

    @property
    def variables(self) -> tuple[int, ...]:
        """Return the positions of all variables that the columns are made of."""
        return tuple(
            dict.fromkeys(one.variable for column in self.columns for one in column.factors)
        )

    @property
    def is_plain(self) -> bool:
        """Return whether every column of the model is the monomial at its place."""
        own = tuple(((column, Fraction(1), ()),) for column in self.columns)
        return not self.offset.parts and own == tuple(one.combination.parts for one in self.model)

    @property
    def polynomials(self) -> tuple[tuple[int, int], ...]:
        """Return the positions of variables in ``poly()``, each with its degree."""
        return tuple(
            dict.fromkeys(
                (one.variable, one.most)
                for column in self.model
                for _, _, coefficients in column.combination.parts
                for one in coefficients
            )
        )

    def number(self, position: int) -> DesignColumn:
        """Return a variable that is kept as numbers, such as a target, as a column."""
        number_column(self.schema, position, gaps=True)  # which refuses others
        return DesignColumn((MonomialFactor(position),))

    def product(self, *columns: DesignColumn) -> Expression | int:
        """Return the product of columns over complete rows: 0 where no row has it, 1 where every
        row has, else an expression.

        Bins of one variable exclude each other, and the square of an indicator is the indicator:
        neither costs a product.
        """
        found = DesignColumn()
        for column in columns:
            joined = found.times(column)
            if joined is None:
                return 0
            found = joined
        parts = [_expression(factor, self.schema) for factor in found.factors]
        if self.complete is not None:
            parts.append(self.complete)
        return product_of(parts) if parts else 1

    def reference_notes(
        self, levels: Mapping[int, set[int]], schema: Schema | PublicSchema
    ) -> list[str]:
        """Return what to say of factors whose reference has no rows: by position, ``levels`` are
        those that have.
        """
        found = []
        for j, reference in self.compared:
            if reference not in levels[j]:
                # The last level with rows is the one that depends on the columns before it.
                missing, instead = (
                    _name(MonomialFactor(j, level), schema) for level in (reference, max(levels[j]))
                )
                found.append(
                    f"no rows have {missing}, the reference level: others of "
                    f"{variable_name(schema, j)} are compared with {instead}"
                )
        if self.constant:
            names = ", ".join(variable_name(schema, j) for j in self.constant)
            found.append(f"left out, with one level each: {names}")
        return found

    def names(self, schema: Schema | PublicSchema) -> list[str]:
        """Return the names of the columns of the model."""
        return [column.name(schema) for column in self.model]

    def scales(self, schema: Schema | PublicSchema) -> list[int]:
        """Return what the integers of each monomial are larger by than what they stand for."""
        return [column.scale(schema) for column in self.columns]

    def transform(self, polynomials: Mapping[int, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the columns of the model, and the offset, as exact combinations of monomials.

        ``polynomials`` has the coefficients of ``poly()`` by variable. Monomials are in units of
        their own, in the order of ``columns``, and a constant is the last.
        """
        places = {column.key: k for k, column in enumerate(self.columns) if column.factors}
        places[frozenset()] = len(self.columns)

        def line(one: Combination) -> list[Fraction]:
            found = [Fraction(0)] * (len(self.columns) + 1)
            for column, value, coefficients in one.parts:
                for own in coefficients:
                    value *= polynomials[own.variable][own.degree][own.power]
                found[places[column.key]] += value
            return found

        model = [line(column.combination) for column in self.model]
        shape = (len(model), len(self.columns) + 1)
        return np.array(model, dtype=object).reshape(shape), np.array(
            line(self.offset), dtype=object
        )

    def monomials(self, table: Table) -> NDArray[np.float64]:
        """Return the monomials of a clear table in their own units; NaN in rows where something is
        missing.
        """
        made = replace(self, complete=None, schema=table.public_schema)
        found = [made.product(column) for column in self.columns]
        wanted = [one for one in found if isinstance(one, Expression)]
        values = iter(
            table.evaluate([*wanted, *(() if self.complete is None else (self.complete,))])
        )
        columns = [
            next(values) if isinstance(one, Expression) else np.ones(len(table)) for one in found
        ]
        matrix = np.column_stack(
            [np.asarray(column, dtype=float) for column in columns] or [np.empty((len(table), 0))]
        )
        matrix /= np.array(self.scales(table.schema), dtype=float)
        if self.complete is not None:
            matrix[np.asarray(next(values)) == 0] = np.nan
        return matrix

    def matrix(
        self, table: Table, polynomials: Mapping[int, Any] | None = None
    ) -> NDArray[np.float64]:
        """Return the columns of the model for a clear table."""
        monomials = self.monomials(table)
        if self.is_plain:
            return monomials
        model, _ = self.transform(polynomials or {})
        return combine(monomials, model)


def combine(monomials: NDArray[np.float64], combinations: NDArray[Any]) -> NDArray[np.float64]:
    """Return combinations of monomials, the last of which is 1."""
    ones = np.where(np.isnan(monomials).any(axis=1), np.nan, 1.0)
    found: NDArray[np.float64] = (
        np.column_stack([monomials, ones]) @ np.atleast_2d(combinations).astype(float).T
    )
    return found


def _expression(factor: MonomialFactor, schema: PublicSchema) -> Expression:
    if factor.level is not None:
        return bin_columns(schema, factor.variable)[factor.level]
    number = number_column(schema, factor.variable, gaps=True)
    return number if factor.power == 1 else number**factor.power


# -- orthogonal polynomials ------------------------------------------------------------------------


def orthogonal(sums: Sequence[Fraction], degree: int, name: str) -> list[list[Fraction]]:
    """Return the coefficients of R's ``poly(x, degree)``: of every column those of x^0, x^1 ...

    Parameters
    ----------
    sums : sequence of Fraction
        Of x^0, x^1 ... x^(2 degree) over all rows.
    degree : int
    name : str
        The variable, for errors.
    """

    def inner(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
        return sum(
            (x * y * sums[i + j] for i, x in enumerate(a) for j, y in enumerate(b)), Fraction(0)
        )

    found: list[list[Fraction]] = []
    for power in range(degree + 1):
        column = [Fraction(int(k == power)) for k in range(degree + 1)]
        for other in found:  # exact, so once is enough
            share = inner(column, other) / inner(other, other)
            column = [a - share * b for a, b in zip(column, other, strict=True)]
        if inner(column, column) <= 0:
            raise DataError(
                f"poly({name}, {degree}): {name} has {power} different values, and a degree has to "
                "be smaller",
                code="degree-too-high",
            )
        found.append(column)
    return [[c / _root(inner(column, column)) for c in column] for column in found]


def _root(value: Fraction) -> Fraction:
    shift = 2 * max(_ROOT_BITS, value.denominator.bit_length())
    return Fraction(math.isqrt((value.numerator << shift) // value.denominator), 1 << shift // 2)


# -- from formulas to designs ----------------------------------------------------------------------


def design(
    formula: str | Formula,
    schema: PublicSchema,
    reference: Mapping[str, Any] | None = None,
    *,
    missing: str = "complete",
    besides: Sequence[int] = (),
) -> Design:
    """Return the design of a formula in ids (see :meth:`Formula.in_ids`).

    A variable with bins is coded as R codes a factor: by all levels but the ``reference`` one (by
    default the first) where the rest of the term is in a term before it, else by all levels;
    without an intercept, the first factor has all of them. ``missing`` says what becomes of its bin
    for missing values.

    A term with a factor of one level is refused, as in R; ``.`` does not stand for such factors,
    nor for variables at the positions ``besides``.
    """
    made = parse(formula) if isinstance(formula, str) else formula
    if missing not in MISSING:
        raise ParameterError(
            f"missing={missing!r}: one of 'level', 'complete' is needed",
            code="unknown-missing-rule",
        )
    return _Designer(made, schema, reference or {}, missing).design(besides)


class _Designer:
    """Make the columns of a formula in a schema."""

    def __init__(
        self, formula: Formula, schema: PublicSchema, reference: Mapping[str, Any], missing: str
    ) -> None:
        if not formula.targets and not schema.has_target:
            raise SchemaError(
                "the schema has no target: say what is explained, 'y ~ ...'", code="no-target"
            )
        self.formula = formula
        self.schema = schema
        self.missing = missing
        names = formula.targets or (target_id(schema),)
        self.targets = tuple(position(schema, name) for name in names)
        self.references = {
            position(schema, name): level_number(schema, name, level)
            for name, level in reference.items()
        }

    def design(self, besides: Sequence[int]) -> Design:
        schema, others, constant = self.schema, list[int](), tuple[int, ...]()
        if self.formula.has_dot:
            explained = (*self.targets, *besides)
            others = [j for j in range(len(schema.variables)) if j not in explained]
            constant = tuple(j for j in others if self.n_levels(j) == 1)
            others = [j for j in others if j not in constant]
        found = self.formula.expand([schema.variables[j].id for j in others])
        atoms = dict.fromkeys(atom for term in found.terms for atom in term)
        self.check_targets([*atoms, *found.offsets])
        whole = None
        if not found.intercept:  # the first factor has all levels then, as in R
            factors = ((k, atom) for k, term in enumerate(found.terms) for atom in term)
            whole = next((one for one in factors if self.is_factor(one[1])), None)
        model = [ModelColumn((), _ONE)] if found.intercept else []
        terms = []
        for k, term in enumerate(found.terms):
            full = whole[1] if whole is not None and whole[0] == k else None
            start = len(model)
            model += self.encode_term(term, found.terms[:k], full)
            if len(model) > MOST_COLUMNS:
                raise ParameterError(_TOO_MANY, code="too-many-columns")
            terms.append(DesignTerm(term, tuple(range(start, len(model)))))
        offset = self.offset(found.offsets)
        names = dict.fromkeys(name for one in (*atoms, *found.offsets) for name in one.names)
        used = dict.fromkeys([*self.targets, *(position(schema, name) for name in names)])
        compared = []
        for k, term in enumerate(found.terms):
            if len(term) == 1 and self.is_factor(term[0]) and (whole is None or whole[0] != k):
                j = position(schema, term[0].text)
                compared.append((j, self.references.get(j, 0)))
        return Design(
            schema,
            self.targets,
            _basis([*(one.combination for one in model), offset], found.intercept),
            tuple(model),
            tuple(terms),
            offset,
            complete_rows(schema, used, bins=self.missing == "complete"),
            tuple(compared),
            constant,
        )

    def check_targets(self, nodes: Sequence[FormulaNode]) -> None:
        for node in nodes:
            if any(position(self.schema, name) == -1 for name in node.names):
                raise SchemaError(
                    "the target explains nothing: leave it out on the right side",
                    code="target-among-predictors",
                )

    def n_levels(self, j: int) -> int:
        """Return how many levels a factor has in a design; 0 for a number."""
        known = self.schema.variables[j]
        if known.kind == "number":
            return 0
        return known.n_bins - (self.missing == "complete" and known.missing_bin)

    def is_factor(self, atom: FormulaNode) -> bool:
        if atom.kind != "name":
            return False
        j = position(self.schema, atom.text)
        return j != -1 and self.schema.variables[j].kind != "number"

    def encode_term(
        self,
        term: Sequence[FormulaNode],
        before: Sequence[Sequence[FormulaNode]],
        full: FormulaNode | None,
    ) -> list[ModelColumn]:
        """Return the columns of a term, the first atom changing fastest, as R has them.

        As in R, a factor lacks a level if the rest of the term is part of a term before it.
        """
        ways = []
        for atom in term:
            rest = set(term) - {atom}
            contrasted = not rest or any(rest <= set(one) for one in before)
            ways.append(self.ways(atom, contrasted and atom != full))
        if math.prod(map(len, ways)) > MOST_COLUMNS:
            raise ParameterError(_TOO_MANY, code="too-many-columns")
        found = []
        for chosen in product(*reversed(ways)):
            combination = _ONE
            for one in reversed(chosen):
                combination = combination.times(one.combination)
            parts = tuple(part for one in reversed(chosen) for part in one.parts)
            found.append(ModelColumn(parts, combination))
        return found

    def ways(self, atom: FormulaNode, contrasted: bool) -> list[ModelColumn]:
        """Return the columns of an atom by itself."""
        if atom.kind == "call":
            return self.poly(atom) if atom.text == "poly" else [self.inside(atom)]
        j = position(self.schema, atom.text)
        known = self.schema.variables[j]
        if known.kind == "number":
            return [ModelColumn(((atom, None),), _monomial(DesignColumn((MonomialFactor(j),))))]
        levels = list(range(self.n_levels(j)))
        if len(levels) < 2:
            raise SchemaError(
                f"the factor {known.id!r} has one level, and terms need factors with two or more: ",
                Cure("leave the term out", "leave it out of the formula"),
                code="one-level",
            )
        first = self.references.get(j, 0)
        if first not in levels:
            raise SchemaError(
                f"the reference of {known.id!r} is its bin for missing values, whose rows are "
                "left out",
                code="reference-is-missing-bin",
            )
        if contrasted:
            levels.remove(first)
        return [
            ModelColumn(((atom, level),), _monomial(DesignColumn((MonomialFactor(j, level),))))
            for level in levels
        ]

    def number(self, name: str, node: FormulaNode) -> int:
        j = position(self.schema, name)
        if j != -1 and self.schema.variables[j].kind != "number":
            raise SchemaError(
                f"{node}: {name!r} has bins, and formulas compute with numbers",
                code="power-of-factor",
            )
        return j

    def polynomial(self, polynomial: Polynomial, node: FormulaNode) -> Combination:
        parts = []
        for monomial, value in polynomial.items():
            factors = tuple(
                MonomialFactor(self.number(name, node), None, n) for name, n in monomial
            )
            parts.append((DesignColumn(factors), value, tuple[Orthogonal, ...]()))
        return Combination(tuple(parts))

    def inside(self, atom: FormulaNode) -> ModelColumn:
        polynomial = polynomial_of(atom.parts[0], self.formula.refuse)
        return ModelColumn(((atom, None),), self.polynomial(polynomial, atom))

    def poly(self, atom: FormulaNode) -> list[ModelColumn]:
        name, degree, raw = poly_options(atom)
        j = self.number(name, atom)
        powers = [
            DesignColumn((MonomialFactor(j, None, n),) if n else ()) for n in range(degree + 1)
        ]
        found = []
        for k in range(1, degree + 1):
            combination = _monomial(powers[k])
            if not raw:
                combination = Combination(
                    tuple(
                        (powers[n], Fraction(1), (Orthogonal(j, k, n, degree),))
                        for n in range(k + 1)
                    )
                )
            found.append(ModelColumn(((atom, k),), combination))
        return found

    def offset(self, nodes: Sequence[FormulaNode]) -> Combination:
        parts: list[Any] = []
        for node in nodes:
            parts += self.polynomial(polynomial_of(node, self.formula.refuse), node).parts
        return Combination(tuple(parts))


def _monomial(column: DesignColumn) -> Combination:
    return Combination(((column, Fraction(1), ()),))


def _basis(combinations: Sequence[Combination], intercept: bool) -> tuple[DesignColumn, ...]:
    """Return all monomials of some combinations, in the order of their first use."""
    found = {frozenset[MonomialFactor](): DesignColumn()} if intercept else {}
    for one in combinations:
        for column, _, _ in one.parts:
            if column.factors:
                found.setdefault(column.key, column)
    return tuple(found.values())
