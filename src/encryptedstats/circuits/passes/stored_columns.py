"""Rewrite circuits over the columns that are stored.

Indicators of exclusive bins add up to 1 in every row, so one of them is not stored; and *at most
cut j* is one stored column instead of the sum of several bins. A coding writes each column as a sum
of stored columns with coefficients, and a number in every row. Nested sums of columns are
flattened, so that neighbouring bins become one column again.

Stored columns are 0 in padding. The numbers that a coding adds there are public, and lowering takes
them off the totals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from encryptedstats.circuits.expressions import (
    COLUMN,
    GIVEN,
    HERE,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    column,
    combination,
    fold,
    linear,
    ones,
)
from encryptedstats.circuits.rules import RuleTable
from encryptedstats.errors import ArgumentError

#: For each column, the stored columns with their coefficients, and the number to add in every row.
Coding = Mapping[str, tuple[Mapping[str, int], int]]
_Value = Expression | int


def use_stored_columns(
    outputs: Sequence[Expression | int], coding: Coding, indicator: str | None = None
) -> list[_Value]:
    """Rewrite outputs over stored columns; an output that is constant becomes a plain number.

    A constant total is written with a stored ``indicator`` x as the total of x² - x plus the
    number, because results are always encrypted. If rows are moved into padding, or totals are
    replicated there, the number of a coding is added in rows only, so that padding stays 0.

    >>> x, y = column("bin0") + column("bin1"), column("class1")
    >>> coding = {"bin0": ({"upto0": 1}, 0), "bin1": ({"upto1": 1, "upto0": -1}, 0)}
    >>> coding["class1"] = ({"class0": -1}, 1)
    >>> use_stored_columns([(x * y).total()], coding)
    [(upto1 * (-class0 + 1)).total()]
    """
    expressions = [output for output in outputs if isinstance(output, Expression)]
    context = _Context(coding, indicator, _fills_padding(expressions, coding))

    def rule(node: Expression, args: list[_Value]) -> _Value:
        if args and all(new is old for new, old in zip(args, node.args, strict=True)):
            return node
        return STORED[node.op](node, args, context)

    values = fold(expressions, rule)
    return [values[output] if isinstance(output, Expression) else output for output in outputs]


@dataclass(frozen=True)
class _Context:
    coding: Coding
    indicator: str | None
    in_rows_alone: bool


#: Writes a node over stored columns, from its args.
STORED: Final = RuleTable[Callable[[Expression, list[_Value], _Context], _Value]]("stored columns")

STORED.rule(GIVEN, HERE)(lambda node, args, context: node)
STORED.rule(PRODUCT)(lambda node, args, context: _product(*args))


@STORED.rule(COLUMN)
def _use_column(node: Expression, args: list[_Value], context: _Context) -> _Value:
    terms, more = context.coding.get(node.data, ({node.data: 1}, 0))
    added = [(more, ones())] if context.in_rows_alone and more else []
    return combination(
        [*((c, column(name)) for name, c in terms.items()), *added], 0 if added else more
    )


@STORED.rule(LINEAR)
def _use_sum(node: Expression, args: list[_Value], context: _Context) -> _Value:
    if node.is_total:
        return _sum_of_totals(node, args, context.indicator)
    coefficients, constant = node.data
    return _sum(coefficients, constant, args)


@STORED.rule(TOTAL, REPLICATE, RESAMPLE, MASK)
def _use_alike(node: Expression, args: list[_Value], context: _Context) -> _Value:
    inner = tuple(_varying(arg, context.indicator) for arg in args)
    return Expression(node.op, inner, node.data, node.is_total)


def _fills_padding(outputs: Sequence[Expression], coding: Coding) -> bool:
    """Return whether moving or replicating can fill padding in a coded circuit.

    Masked expressions do not count, because marks are never on padding.
    """
    reached: set[Expression] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(() if node.op == MASK else node.args)
    filled = any(node.op in (RESAMPLE, REPLICATE) for node in reached)
    return filled and any(node.op == COLUMN and node.data in coding for node in reached)


def _sum_of_totals(node: Expression, args: Sequence[_Value], indicator: str | None) -> Expression:
    """Join totals of columns to the total of their sum, whose bounds are smaller."""
    coefficients, constant = node.data
    terms: list[tuple[int, Expression]] = []
    of_columns: list[tuple[int, Expression]] = []
    for coefficient, arg in zip(coefficients, args, strict=True):
        assert isinstance(arg, Expression)  # totals are always encrypted
        is_of_columns = arg.op == TOTAL and _is_of_columns(arg.args[0])
        (of_columns if is_of_columns else terms).append(
            (coefficient, arg.args[0] if is_of_columns else arg)
        )
    if of_columns:
        together = _sum([c for c, _ in of_columns], 0, [x for _, x in of_columns])
        if together != 0 or not terms:
            terms.append((1, _varying(together, indicator).total()))
    return linear(terms, constant)


def _is_of_columns(node: Expression) -> bool:
    return node.op == COLUMN or (
        node.op == LINEAR and all(one.op in (COLUMN, HERE) for one in node.args)
    )


def _sum(coefficients: Sequence[int], constant: int, args: Sequence[_Value]) -> _Value:
    terms: list[tuple[int, Expression]] = []
    for coefficient, arg in zip(coefficients, args, strict=True):
        if isinstance(arg, int):
            constant += coefficient * arg
        elif arg.op == LINEAR and _is_of_columns(arg):
            inside, added = arg.data
            terms += [(coefficient * c, one) for c, one in zip(inside, arg.args, strict=True)]
            constant += coefficient * added
        else:
            terms.append((coefficient, arg))
    return combination(terms, constant)


def _product(a: _Value, b: _Value) -> _Value:
    if isinstance(a, Expression) and isinstance(b, Expression):
        return a * b
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    number, other = (a, b) if isinstance(a, int) else (b, a)
    return other * number if number else 0


def _varying(value: _Value, indicator: str | None) -> Expression:
    """Write a number as an encrypted expression, by x² - x = 0 for an indicator x."""
    if isinstance(value, Expression):
        return value
    if indicator is None:
        raise ArgumentError(
            f"this expression is {value} in every row, so there is nothing to encrypt",
            code="constant-expression",
        )
    x = column(indicator)
    return linear([(1, x * x), (-1, x)], value)
