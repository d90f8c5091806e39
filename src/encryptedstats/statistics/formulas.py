"""Formulas: ``y ~ age + sex + age:sex + bmi^2``, parsed, translated to ids, and expanded to columns
of a design as expressions.

The grammar is R's, without functions: a side is a sum of terms, a term a product of factors
(``a:b``; ``a*b`` is ``a + b + a:b``), a factor a variable or a power of a number. ``- 1`` leaves
the intercept out, ``.`` or nothing stands for all other variables, and names that are no words are
in backticks. Factors with bins are dummies: all levels but the reference, coded as R does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import Cure, ParameterError, SchemaError
from encryptedstats.tables.questions.constraints import Constraints, ReferenceLevels, Text
from encryptedstats.tables.questions.question import (
    Question,
    bin_columns,
    complete_rows,
    number_column,
    product_of,
)
from encryptedstats.tables.questions.summaries import labels, scale, variable_name
from encryptedstats.tables.schema.names import (
    level_id,
    level_name,
    level_number,
    name_of,
    position,
    target_id,
    variable_id,
)
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from typing_extensions import Self

    from encryptedstats.tables.schema.schema import Schema
    from encryptedstats.tables.table import Table

INTERCEPT: Final = "(Intercept)"
MOST_POWER: Final = 16
MOST_COLUMNS: Final = 4096
_TOO_MANY: Final = f"the formula has more than {MOST_COLUMNS:,} columns: leave terms out"
#: What becomes of rows in the bin for missing values of a factor: it is a level as any other, or
#: they are left out.
MISSING: Final = ("level", "complete")
Term = tuple[tuple[str, int], ...]  # variables and their powers, in the order they were written


@dataclass(frozen=True)
class Formula:
    """A formula that was parsed: what is explained by what.

    Attributes
    ----------
    targets : tuple of str
        What is explained; none for the target of the schema.
    terms : tuple of terms, or None
        What explains it; None for all other variables.
    intercept : bool

    Examples
    --------
    >>> str(parse("y ~ a*b + c^2 - 1"))
    'y ~ a + b + c^2 + a:b - 1'
    """

    targets: tuple[str, ...]
    terms: tuple[Term, ...] | None
    intercept: bool = True

    def __str__(self) -> str:
        terms = (
            ["."]
            if self.terms is None
            else [":".join(_factor_text(*factor) for factor in term) for term in self.terms]
        )
        if not terms:
            terms = ["1"] if self.intercept else ["0"]
            return f"{' + '.join(map(_quoted, self.targets))} ~ {terms[0]}".strip()
        right = " + ".join(terms) + ("" if self.intercept else " - 1")
        return f"{' + '.join(map(_quoted, self.targets))} ~ {right}".strip()

    def in_ids(self, schema: Schema | PublicSchema) -> Formula:
        """The same with the ids of variables, as whoever computes writes it."""
        return self._renamed(lambda name: variable_id(schema, name))

    def in_names(self, schema: Schema) -> Formula:
        """The inverse, for the owner."""
        return self._renamed(lambda name: name_of(name, schema))

    def _renamed(self, rename: Callable[[str], str]) -> Formula:
        targets = tuple(map(rename, self.targets))
        if self.terms is None:
            return replace(self, targets=targets)
        terms = (tuple((rename(name), power) for name, power in term) for term in self.terms)
        return replace(self, targets=targets, terms=tuple(dict.fromkeys(terms)))


def _quoted(name: str) -> str:
    return name if _is_word(name) else f"`{name}`"


def _factor_text(name: str, power: int) -> str:
    return _quoted(name) + (f"^{power}" if power > 1 else "")


def _is_word(name: str) -> bool:
    return name.replace(".", "_").isidentifier() and name != "."


# -- parsing
# ------------------------------------------------------------------------------------------------


def parse(text: str) -> Formula:
    """The formula of a text, or an error that shows where it is wrong."""
    if not isinstance(text, str):
        raise ParameterError(
            f"a formula is text, such as 'y ~ age + sex', not {text!r}", code="not-text"
        )
    return _Parser(text).formula()


class _Parser:
    """Reads a formula from left to right, one word at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.next = 0
        self.expanded = 0  # terms so far

    def _tokens(self) -> list[tuple[str, int]]:
        """The words, signs and numbers, and where each starts; a name in backticks keeps the first
        of them.
        """
        found, at, text = [], 0, self.text
        while at < len(text):
            start, sign = at, text[at]
            at += 1
            if sign.isspace():
                continue
            if sign == "`":
                end = text.find("`", at)
                if end <= at:
                    self.refuse(
                        start,
                        "this backtick is not closed"
                        if end < 0
                        else "a name is needed between backticks",
                    )
                at = end + 1
                found.append((text[start : at - 1], start))
                continue
            if sign.isalnum() or sign in "_.":
                while at < len(text) and (text[at].isalnum() or text[at] in "_."):
                    at += 1
            elif sign not in "~+-:*^":
                self.refuse(
                    start,
                    f"{sign!r} means nothing in a formula: names that are no words are put in "
                    "`backticks`",
                )
            found.append((text[start:at], start))
        return found

    def refuse(self, at: int, why: str) -> Any:
        """An error with a mark below the place."""
        raise ParameterError(
            f"formula: {why}\n  {self.text}\n  {' ' * at}^", code="invalid-formula"
        )

    def peek(self) -> str:
        """The next word; nothing at the end."""
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    def place(self) -> int:
        """Where it starts."""
        return self.tokens[self.next][1] if self.next < len(self.tokens) else len(self.text)

    def formula(self) -> Formula:
        """All of it."""
        if not self.tokens:
            return Formula((), None)
        signs = [at for word, at in self.tokens if word == "~"]
        if len(signs) != 1:
            why = (
                "there is one ~, before what explains"
                if signs
                else "a ~ is needed, as in 'y ~ age + sex'"
            )
            self.refuse(signs[1] if signs else len(self.text), why)
        targets = self.targets()
        self.next += 1
        terms, intercept = self.right()
        repeated = [
            name
            for name, _ in (factor for term in terms or () for factor in term)
            if name in targets
        ]
        if repeated:
            self.refuse(0, f"{repeated[0]!r} is on both sides")
        return Formula(targets, terms, intercept)

    def targets(self) -> tuple[str, ...]:
        """Names with a plus between them, up to the ~."""
        found: list[str] = []
        while self.peek() != "~":
            if found:
                if self.peek() != "+":
                    self.refuse(
                        self.place(), "what is explained is a variable, or some with + between them"
                    )
                self.next += 1
            place, name = self.place(), self.name()
            if name in found:
                self.refuse(place, f"{name!r} is explained twice")
            found.append(name)
        return tuple(found)

    def right(self) -> tuple[tuple[Term, ...] | None, bool]:
        """The terms, and whether there is an intercept."""
        terms: dict[frozenset[tuple[str, int]], Term] = {}
        intercept, all_others, first = True, self.next >= len(self.tokens), True
        while self.next < len(self.tokens):
            sign = self.peek() if self.peek() in ("+", "-") else ""
            if not sign and not first:
                self.refuse(self.place(), "+ or - is needed between terms")
            self.next += bool(sign)
            place, word, first = self.place(), self.peek(), False
            if word in ("0", "1"):
                self.next += 1
                intercept = (word == "1") == (sign != "-")
            elif word == ".":
                self.next += 1
                if sign == "-":
                    self.refuse(
                        place, "'.' stands for all other variables, which cannot be left out"
                    )
                all_others = True
            else:
                for term in self.term():
                    if sign == "-":
                        if terms.pop(frozenset(term), None) is None:
                            self.refuse(place, "there is no such term to leave out")
                    else:
                        terms.setdefault(frozenset(term), term)
        if all_others and terms:
            self.refuse(
                0,
                "'.' stands for all other variables, and other terms beside it are not supported: "
                "write them out",
            )
        return (
            None if all_others else tuple(sorted(terms.values(), key=len))
        ), intercept  # by order, as in R

    def term(self) -> list[Term]:
        """Factors with : or * between them; what these expand to."""
        place, parts = self.place(), [self.interaction()]
        while self.peek() == "*":
            self.next += 1
            parts.append(self.interaction())
        self.expanded += (1 << len(parts)) - 1
        if self.expanded > MOST_COLUMNS:
            self.refuse(place, f"this comes to more than {MOST_COLUMNS:,} terms: leave some out")
        found = [
            _joined(chosen)
            for size in range(1, len(parts) + 1)
            for chosen in combinations(parts, size)
        ]
        if any(power > MOST_POWER for term in found for _, power in term):
            self.refuse(place, f"a power above {MOST_POWER} comes of this")
        return found

    def interaction(self) -> Term:
        """Factors with : between them."""
        factors = [self.factor()]
        while self.peek() == ":":
            self.next += 1
            factors.append(self.factor())
        return _joined([(factor,) for factor in factors])

    def factor(self) -> tuple[str, int]:
        """A variable, or a power of it."""
        name = self.name()
        if self.peek() != "^":
            return name, 1
        self.next += 1
        place, word = self.place(), self.peek()
        digits = word.lstrip("0")
        if not (
            word.isascii()
            and word.isdigit()
            and len(digits) < 4
            and 1 <= int(digits or 0) <= MOST_POWER
        ):
            self.refuse(place, f"a power is a whole number from 1 to {MOST_POWER}")
        self.next += 1
        return name, int(word)

    def name(self) -> str:
        """A variable."""
        word, place = self.peek(), self.place()
        if not word.startswith("`") and not _is_word(word):
            self.refuse(
                place, "the name of a variable is needed here" + (f", not {word!r}" if word else "")
            )
        self.next += 1
        return word.removeprefix("`")


def _joined(terms: Iterable[Term]) -> Term:
    """The product of terms: a factor counts once, as in R (``x:x`` is ``x``); different powers of
    one variable add up.
    """
    found: dict[str, int] = {}
    for name, power in dict.fromkeys(factor for term in terms for factor in term):
        found[name] = found.get(name, 0) + power
    return tuple(found.items())


# -- designs
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """A part of a column: a number to a power, or the indicator of one level; the variable is a
    position, -1 for the target.
    """

    variable: int
    level: int | None = None
    power: int = 1


@dataclass(frozen=True)
class DesignColumn:
    """A column of a design: a product of factors; the intercept has none."""

    factors: tuple[Factor, ...] = ()

    def name(self, schema: Schema | PublicSchema) -> str:
        """As tables call it: ``(Intercept)``, ``age^2``, ``sex[f]:age``."""
        return ":".join(_name(factor, schema) for factor in self.factors) or INTERCEPT

    def scale(self, schema: Schema | PublicSchema) -> int:
        """What its integers are larger by than what they stand for."""
        return int(
            np.prod(
                [scale(schema, f.variable) ** f.power for f in self.factors if f.level is None],
                dtype=object,
            )
        )


def _name(factor: Factor, schema: Schema | PublicSchema) -> str:
    name = variable_name(schema, factor.variable)
    if factor.level is not None:
        return f"{name}[{labels(schema, factor.variable)[factor.level]}]"
    return name + (f"^{factor.power}" if factor.power > 1 else "")


@dataclass(frozen=True)
class Design:
    """What a formula comes to in a schema: positions of what is explained, and the columns that
    explain it.

    Attributes
    ----------
    targets : tuple of int
        Positions; -1 for the target of the schema.
    columns : tuple of DesignColumn
        The intercept first, where there is one.
    terms : tuple of (str, tuple of int)
        Every term by ids, and which of the columns are its own; for tables of variance.
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
    terms: tuple[tuple[str, tuple[int, ...]], ...]
    complete: Expression | None
    compared: tuple[tuple[int, int], ...] = ()
    constant: tuple[int, ...] = ()

    @property
    def intercept(self) -> bool:
        """Whether there is one."""
        return bool(self.columns) and not self.columns[0].factors

    @property
    def variables(self) -> tuple[int, ...]:
        """Positions of all variables that the columns are made of."""
        return tuple(
            dict.fromkeys(factor.variable for column in self.columns for factor in column.factors)
        )

    def number(self, position: int) -> DesignColumn:
        """A variable that is kept as numbers, such as a target, as a column."""
        number_column(self.schema, position, gaps=True)  # which refuses others
        return DesignColumn((Factor(position),))

    def product(self, *columns: DesignColumn) -> Expression | int:
        """The product of columns over complete rows: 0 where no row has it, 1 where every row has,
        else an expression.

        Bins of one variable exclude each other, and the square of an indicator is the indicator:
        neither costs a product.
        """
        found: dict[int, Factor] = {}
        for factor in (factor for column in columns for factor in column.factors):
            known = found.get(factor.variable)
            if known is None:
                found[factor.variable] = factor
            elif factor.level != known.level:
                return 0
            elif factor.level is None:
                found[factor.variable] = replace(factor, power=factor.power + known.power)
        parts = [_expression(factor, self.schema) for factor in found.values()]
        if self.complete is not None:
            parts.append(self.complete)
        return product_of(parts) if parts else 1

    def reference_notes(
        self, levels: Mapping[int, set[int]], schema: Schema | PublicSchema
    ) -> list[str]:
        """What to say of factors whose reference has no rows: by position, ``levels`` are those
        that have.
        """
        found = []
        for j, reference in self.compared:
            if reference not in levels[j]:
                # The last level with rows is the one that depends on the columns before it.
                missing, instead = (
                    _name(Factor(j, level), schema) for level in (reference, max(levels[j]))
                )
                found.append(
                    f"no rows have {missing}, the reference level: others of "
                    f"{variable_name(schema, j)} are compared with {instead}"
                )
        if self.constant:
            names = ", ".join(variable_name(schema, j) for j in self.constant)
            found.append(f"left out, with one level each: {names}")
        return found

    def term_factors(self, columns: Sequence[int]) -> frozenset[tuple[int, int]]:
        """Return the variables and powers of the term that these columns belong to."""
        return frozenset(
            (factor.variable, factor.power) for factor in self.columns[columns[0]].factors
        )

    def names(self, schema: Schema | PublicSchema) -> list[str]:
        """What the columns are called."""
        return [column.name(schema) for column in self.columns]

    def scales(self, schema: Schema | PublicSchema) -> list[int]:
        """What the integers of each column are larger by than what they stand for."""
        return [column.scale(schema) for column in self.columns]

    def matrix(self, table: Table) -> NDArray[np.float64]:
        """The columns of a clear table in their own units; NaN in rows where something
        is missing.
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


def _expression(factor: Factor, schema: PublicSchema) -> Expression:
    if factor.level is not None:
        return bin_columns(schema, factor.variable)[factor.level]
    number = number_column(schema, factor.variable, gaps=True)
    return number if factor.power == 1 else number**factor.power


def design(
    formula: str | Formula,
    schema: PublicSchema,
    reference: Mapping[str, Any] | None = None,
    *,
    missing: str = "complete",
    besides: Sequence[int] = (),
) -> Design:
    """The design of a formula in ids (see :meth:`Formula.in_ids`).

    A variable with bins is coded as R codes a factor: by all levels but the ``reference`` one (by
    default the first) where the rest of the term is in the model as well, else by all levels;
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
    if not made.targets and not schema.has_target:
        raise SchemaError(
            "the schema has no target: say what is explained, 'y ~ ...'", code="no-target"
        )
    targets = tuple(position(schema, name) for name in made.targets or (target_id(schema),))
    if made.terms is None:
        others = [j for j in range(len(schema.variables)) if j not in (*targets, *besides)]
        constant = tuple(j for j in others if _n_levels(schema, j, missing) == 1)
        terms: list[tuple[tuple[int, int], ...]] = [((j, 1),) for j in others if j not in constant]
    else:
        constant = ()
        terms = [
            tuple((position(schema, name), power) for name, power in term) for term in made.terms
        ]
    references = _references(schema, reference or {})
    present = {frozenset(term) for term in (*terms, ())}
    # Without an intercept the levels of the first factor take its place, as in R: they are all
    # there.
    whole = (
        None if made.intercept else next((term for term in terms if _is_factor(term, schema)), None)
    )
    columns, listed = [DesignColumn()] if made.intercept else [], []
    for term in terms:
        start = len(columns)
        columns += _coded(
            term, schema, references, present - {frozenset()} if term == whole else present, missing
        )
        if len(columns) > MOST_COLUMNS:
            raise ParameterError(_TOO_MANY, code="too-many-columns")
        listed.append(
            (
                ":".join(_factor_text(variable_name(schema, j), n) for j, n in term),
                tuple(range(start, len(columns))),
            )
        )
    used = [*targets, *dict.fromkeys(j for term in terms for j, _ in term)]
    complete = complete_rows(schema, used, bins=missing == "complete")
    compared = (term[0][0] for term in terms if _is_factor(term, schema) and term != whole)
    reference_levels = tuple((j, references.get(j, 0)) for j in compared)
    return Design(
        schema, targets, tuple(columns), tuple(listed), complete, reference_levels, constant
    )


def _n_levels(schema: PublicSchema, j: int, missing: str) -> int:
    """Return how many levels a factor has in a design; 0 for a number."""
    known = schema.variables[j]
    return (
        0
        if known.kind == "number"
        else known.n_bins - (missing == "complete" and known.missing_bin)
    )


def _is_factor(term: Sequence[tuple[int, int]], schema: PublicSchema) -> bool:
    """Whether a term is one variable with bins."""
    return len(term) == 1 and term[0][0] != -1 and schema.variables[term[0][0]].kind != "number"


def _references(schema: PublicSchema, reference: Mapping[str, Any]) -> dict[int, int]:
    return {
        position(schema, name): level_number(schema, name, level)
        for name, level in reference.items()
    }


def _coded(
    term: Sequence[tuple[int, int]],
    schema: PublicSchema,
    references: Mapping[int, int],
    present: set[frozenset[tuple[int, int]]],
    missing: str,
) -> list[DesignColumn]:
    """The columns of a term, the first factor changing fastest, as R has them."""
    ways: list[list[Factor]] = []
    for j, power in term:
        if j == -1:
            raise SchemaError(
                "the target explains nothing: leave it out on the right side",
                code="target-among-predictors",
            )
        known = schema.variables[j]
        if known.kind == "number":
            ways.append([Factor(j, None, power)])
            continue
        if power > 1:
            raise SchemaError(
                f"{known.id}^{power}: {known.id!r} has bins, and powers are of numbers",
                code="power-of-factor",
            )
        levels = list(range(_n_levels(schema, j, missing)))
        if len(levels) < 2:
            raise SchemaError(
                f"the factor {known.id!r} has one level, and terms need factors with two or more: ",
                Cure("leave the term out", "leave it out of the formula"),
                code="one-level",
            )
        first = references.get(j, 0)
        if first not in levels:
            raise SchemaError(
                f"the reference of {known.id!r} is its bin for missing values, whose rows are "
                "left out",
                code="reference-is-missing-bin",
            )
        if frozenset(one for one in term if one[0] != j) in present:
            levels.remove(first)
        ways.append([Factor(j, level) for level in levels])
    if math.prod(map(len, ways)) > MOST_COLUMNS:
        raise ParameterError(_TOO_MANY, code="too-many-columns")
    return [DesignColumn(tuple(reversed(factors))) for factors in product(*reversed(ways))]


class OfFormula(Question):
    """A question with the parameters ``formula`` and ``reference``, which may name variables and
    levels.
    """

    constraints: ClassVar[Constraints] = {
        "formula": Text(),
        "reference": ReferenceLevels(optional=True),
    }

    def in_ids(self, schema: Schema | PublicSchema) -> Self:
        """With ids in the formula and for the reference levels."""
        own = self.parameters()
        reference = own.get("reference")
        if reference is not None:
            reference = {
                variable_id(schema, one): level_id(schema, one, level)
                for one, level in reference.items()
            }
        found = {
            "formula": own["formula"] and str(parse(own["formula"]).in_ids(schema)),
            "reference": reference,
        }
        found = {name: value for name, value in found.items() if name in own}
        translated = super().in_ids(schema)
        return (
            translated
            if found.items() <= own.items()
            else self.from_parameters({**translated.parameters(), **found})
        )

    def in_names(self, schema: Schema) -> Self:
        """With names in the formula and for the reference levels."""
        asked = super().in_names(schema)
        return asked.from_parameters(
            {**asked.parameters(), **formula_in_names(asked.parameters(), schema)}
        )


def formula_in_names(parameters: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The parameters ``formula`` and ``reference``, which are by ids, as the owner writes them."""
    formula, reference = parameters["formula"], parameters.get("reference")
    found = {"formula": formula and str(parse(formula).in_names(schema))}
    if reference is not None:
        found["reference"] = {
            name_of(one, schema): level_name(schema, one, level) for one, level in reference.items()
        }
    return found
