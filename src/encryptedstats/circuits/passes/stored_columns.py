"""Circuits over columns that are not stored, rewritten to those that are.

Indicators of exclusive things add up to 1 in every row, so one of them need not be stored; and *at
most cut j* is one column where the bins up to j are several. A coding says what each column that is
asked for is in those that are stored: a sum with coefficients, and a number in every row. Sums of
sums of columns are written as one, so that neighbouring bins become one column again.

Padding is 0 in all stored columns. What is a number there is known to everybody, and totals are rid
of it where they are lowered.
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

#: For a column that is asked for: stored ones with their coefficients, and the number that is added
#: in every row.
Coding = Mapping[str, tuple[Mapping[str, int], int]]
_Value = Expression | int


def use_stored_columns(
    outputs: Sequence[Expression | int], coding: Coding, indicator: str | None = None
) -> list[_Value]:
    """Write the outputs over stored columns: a plain number where what is asked for is the same in every
    row.

    A total that would be a plain number is written with a stored ``indicator``, x, as the total of
    x² - x and that number: results are encrypted, be they known to everybody or not. Where rows are
    moved into padding, or totals are brought there, it has to hold 0 as it does in columns: the
    number is then added in rows alone.

    >>> x, y = column("bin0") + column("bin1"), column("class1")
    >>> coding = {"bin0": ({"upto0": 1}, 0), "bin1": ({"upto1": 1, "upto0": -1}, 0), "class1": ({"class0": -1}, 1)}
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
    """Whether padding can hold something beside what columns are there: but for what is marked, and
    marks are never on padding.
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
    """Totals of columns as one: two of them can be as much as there are rows, and their ciphertexts
    cancel.
    """
    coefficients, constant = node.data
    terms: list[tuple[int, Expression]] = []
    of_columns: list[tuple[int, Expression]] = []
    for coefficient, arg in zip(coefficients, args, strict=True):
        assert isinstance(
            arg, Expression
        )  # totals are encrypted, be they known to everybody or not
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
    """A number as what is encrypted: x² = x where x is 0 or 1."""
    if isinstance(value, Expression):
        return value
    if indicator is None:
        raise ArgumentError(
            f"this is {value} in every row: there is nothing to compute with",
            code="constant-expression",
        )
    x = column(indicator)
    return linear([(1, x * x), (-1, x)], value)
