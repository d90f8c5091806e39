"""The columns of a regression: which terms its formula names, and what they are as expressions over the columns of a table.

``y ~ a + b + a:b + a^2``: variables by name or id (odd names in backquotes), ``a * b`` for ``a + b + a:b``, ``.`` for all others,
``- 1`` for no intercept. Numbers are one column, other variables an indicator for each bin but the first, which is the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import ParameterError, SchemaError
from encryptedstats.statistics._least_squares import Exact
from encryptedstats.tables import PublicSchema, Schema
from encryptedstats.tables.questions import bin_columns, number_column
from encryptedstats.tables.statistics import labels, scale, variable_name

Term = tuple[tuple[int, int], ...]  # positions of variables, each with its power
_TOKEN: Final = re.compile(r"\s*(`[^`]+`|[~+\-:*^]|[^\s~+\-:*^`]+)")
MOST_POWER: Final = 16


@dataclass(frozen=True)
class Formula:
    """What is regressed on what, by position of the variables."""

    target: int
    terms: tuple[Term, ...]
    intercept: bool = True

    @classmethod
    def parse(cls, text: str, position: Callable[[str], int], others: Callable[[int], list[int]]) -> Formula:
        """A formula as people write it; ``others`` are all variables but one."""
        tokens = _tokens(text)
        if tokens.count("~") != 1 or tokens.index("~") != 1:
            raise ParameterError(f"formula={text!r}: it reads 'y ~ a + b', one variable before the ~")
        target = position(_name(tokens[0]))
        terms: list[Term] = []
        intercept, sign, part = True, "+", list[str]()
        for token in [*tokens[2:], "+"]:
            if token not in ("+", "-"):
                part.append(token)
                continue
            if part in (["0"], ["1"]):
                intercept = (part == ["1"]) == (sign == "+")
            elif part and sign == "-":
                terms = [term for term in terms if term not in _terms(part, text, position, others, target)]
            elif part:
                terms += [term for term in _terms(part, text, position, others, target) if term not in terms]
            sign, part = token, []
        if any(target == variable for term in terms for variable, _ in term):
            raise ParameterError(
                f"formula={text!r}: what is to be explained explains nothing, leave it out on the right"
            )
        # As in R, products come after what they are products of.
        return cls(target, tuple(sorted(terms, key=len)), intercept)

    def __str__(self) -> str:
        """By id."""
        written = [":".join(f"v{j}" if power == 1 else f"v{j}^{power}" for j, power in term) for term in self.terms]
        return f"v{self.target} ~ {' + '.join(written) or '1'}{'' if self.intercept else ' - 1'}"


def _tokens(text: str) -> list[str]:
    found, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise ParameterError(f"formula={text!r}: {text[place:]!r} cannot be read")
        found.append(match.group(1))
        place = match.end()
    return found


def _name(token: str) -> str:
    return token.strip("`")


def _terms(
    part: list[str], text: str, position: Callable[[str], int], others: Callable[[int], list[int]], target: int
) -> list[Term]:
    """The terms that one summand stands for."""
    if part == ["."]:
        return [((j, 1),) for j in others(target)]
    crossed: list[list[tuple[int, int]]] = [[]]
    waiting = True
    for place, token in enumerate(part):
        if token == "^":
            continue
        if place and part[place - 1] == "^":
            if not token.isdigit() or not 1 <= int(token) <= MOST_POWER or not crossed[-1]:
                raise ParameterError(f"formula={text!r}: ^{token} is no power from 1 to {MOST_POWER}")
            crossed[-1][-1] = (crossed[-1][-1][0], int(token))
        elif token == "*":
            crossed.append([])
            waiting = True
        elif token == ":":
            waiting = True
        elif waiting:
            crossed[-1].append((position(_name(token)), 1))
            waiting = False
        else:
            raise ParameterError(f"formula={text!r}: something is missing before {token!r}, such as +")
    if waiting or not all(crossed):
        raise ParameterError(f"formula={text!r}: something is missing in {''.join(part)!r}")
    found: list[Term] = []
    for chosen in sorted(product((0, 1), repeat=len(crossed)), key=lambda one: (sum(one), [-c for c in one])):
        factors = [factor for inside, group in zip(chosen, crossed, strict=True) if inside for factor in group]
        if factors:
            found.append(tuple(sorted(set(factors))))
    return found


@dataclass(frozen=True, eq=False)
class Design:
    """The columns of a regression over the columns of a table, the target last.

    Attributes
    ----------
    values : list of Expression
    is_indicator : list of bool
    term : list of int
        To which term of the formula each column belongs.
    """

    formula: Formula
    values: list[Expression]
    is_indicator: list[bool]
    term: list[int]
    parts: list[list[tuple[int, int, int | None]]]  #: position, power and level of every factor

    @classmethod
    def of(cls, formula: Formula, schema: PublicSchema) -> Design:
        """The columns that a formula has with a schema."""
        values, indicators, term, parts = [], [], [], []
        for place, factors in enumerate(formula.terms):
            for chosen in product(*(_factor(schema, j, power) for j, power in factors)):
                values.append(_product([value for value, _ in chosen]))
                levels = [level for _, level in chosen]
                indicators.append(all(level is not None for level in levels))
                parts.append([(j, power, level) for (j, power), level in zip(factors, levels, strict=True)])
                term.append(place)
        values.append(number_column(schema, formula.target))
        return cls(formula, values, [*indicators, False], term, parts)

    def names(self, schema: Schema | PublicSchema) -> list[str]:
        """The columns as the owner calls them, without the target: ``age``, ``age^2``, ``sex[m]``, ``age:sex[m]``."""
        return [":".join(_label(schema, *factor) for factor in part) for part in self.parts]

    def term_names(self, schema: Schema | PublicSchema) -> list[str]:
        """The terms as the owner calls them."""
        return [":".join(_label(schema, j, power, None) for j, power in term) for term in self.formula.terms]

    def scales(self, schema: Schema | PublicSchema) -> Exact:
        """What the integers of each column are multiplied by."""
        found = []
        for part in self.parts:
            whole = 1
            for j, power, level in part:
                whole *= 1 if level is not None else scale(schema, j) ** power
            found.append(whole)
        return np.array([*found, scale(schema, self.formula.target)], dtype=object)


def _product(factors: list[Expression]) -> Expression:
    """In as few products in a row as there can be."""
    while len(factors) > 1:
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[2 * len(pairs) :]
    return factors[0]


def _factor(schema: PublicSchema, variable: int, power: int) -> list[tuple[Expression, int | None]]:
    known = schema.variables[variable]
    if known.kind == "number":
        return [(_product([number_column(schema, variable)] * power), None)]
    if power > 1:
        raise SchemaError(f"variable {known.id!r} is {known.kind}: only numbers have powers, and it is no number")
    if known.n_bins < 2:
        raise SchemaError(
            f"variable {known.id!r} has one level: contrasts can be applied only to factors with 2 or more"
        )
    return [(x, level) for level, x in enumerate(bin_columns(schema, variable)) if level]


def _label(schema: Schema | PublicSchema, variable: int, power: int, level: int | None) -> str:
    name = variable_name(schema, variable)
    if level is not None:
        return f"{name}[{labels(schema, variable)[level]}]"
    return name if power == 1 else f"{name}^{power}"
