"""Split sums over given totals, so that interleaved totals are multiplied some at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from encryptedstats.circuits.expressions import (
    GIVEN,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    RESAMPLE,
    TOTAL,
    Expression,
    combination,
    fold,
    in_order,
)
from encryptedstats.circuits.rules import RuleTable


def split_by_given(
    output: Expression, names: Collection[str]
) -> tuple[dict[Expression, Expression], Expression | int] | None:
    """Write an output as a sum over given totals of these names, and a rest.

    Return the factor of each total, and the rest; None if the output is not linear in the totals.

    >>> from encryptedstats.circuits.expressions import column, pack_total
    >>> x, a, b = column("x"), pack_total("model", 0), pack_total("model", 1)
    >>> split_by_given(b * x + (a - b) * x * column("y") + 3 * x, {"model"})
    ({model[0]: y * x, model[1]: -y * x + x}, 3*x)
    """
    order = list(in_order([output]))
    has = fold(
        [output], lambda node, args: any(args) or (node.op == GIVEN and node.data[0] in names)
    )
    split = _Split(has, {output: [(1, None)]})
    for node in reversed(order):
        if node in split.factors and has[node]:
            factor = _factor_of(split.factors.pop(node))
            if not LINEAR_IN_GIVEN[node.op](node, factor, split):
                return None
    return split.found, _factor_of(split.rest)


_Factor = Expression | int
_Term = tuple[int, Expression | None]


@dataclass(frozen=True)
class _Split:
    has_given: Mapping[Expression, bool]
    factors: dict[Expression, list[_Term]]
    found: dict[Expression, Expression] = field(default_factory=dict)
    rest: list[_Term] = field(default_factory=list)


#: Passes the factor of a node to its args; returns False if it is not linear in given totals.
LINEAR_IN_GIVEN: Final = RuleTable[Callable[[Expression, _Factor, _Split], bool]](
    "linearity in given totals"
)

LINEAR_IN_GIVEN.rule(TOTAL, REPLICATE, RESAMPLE, MASK)(lambda node, factor, split: False)


@LINEAR_IN_GIVEN.rule(GIVEN)
def _take_given(node: Expression, factor: _Factor, split: _Split) -> bool:
    if isinstance(factor, int):
        return False
    split.found[node] = factor
    return True


@LINEAR_IN_GIVEN.rule(LINEAR)
def _split_sum(node: Expression, factor: _Factor, split: _Split) -> bool:
    coefficients, constant = node.data
    for coefficient, arg in zip(coefficients, node.args, strict=True):
        if split.has_given[arg]:
            split.factors.setdefault(arg, []).append(_times(factor, coefficient, None))
        else:
            split.rest.append(_times(factor, coefficient, arg))
    if constant:
        split.rest.append(_times(factor, constant, None))
    return True


@LINEAR_IN_GIVEN.rule(PRODUCT)
def _split_product(node: Expression, factor: _Factor, split: _Split) -> bool:
    a, b = node.args
    if split.has_given[a] == split.has_given[b]:
        return False
    inner, other = (a, b) if split.has_given[a] else (b, a)
    split.factors.setdefault(inner, []).append(_times(factor, 1, other))
    return True


def _factor_of(terms: Sequence[tuple[int, Expression | None]]) -> Expression | int:
    constant = sum(c for c, term in terms if term is None)
    return combination([(c, term) for c, term in terms if term is not None], constant)


def _times(
    factor: Expression | int, number: int, other: Expression | None
) -> tuple[int, Expression | None]:
    if isinstance(factor, int):
        return factor * number, other
    return number, factor if other is None else factor * other
