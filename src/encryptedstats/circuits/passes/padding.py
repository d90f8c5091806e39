"""Clear padding, so that answers for rows hold 0 in slots without a row.

The numbers of a decrypted model are coefficients of the circuit. To hide them, an encryption of the
constant is added to each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    combination,
    encrypted_constant,
    fold,
    linear,
    ones,
)
from encryptedstats.circuits.rules import RuleTable

#: Says whether a node is 0 in padding slots, from whether its args are.
VANISHES: Final = RuleTable[Callable[[Expression, list[bool]], bool]]("vanishing padding")

VANISHES.rule(COLUMN, HERE, MASK)(lambda node, args: True)
VANISHES.rule(GIVEN, TOTAL, REPLICATE, RESAMPLE)(lambda node, args: False)
VANISHES.rule(PRODUCT)(lambda node, args: any(args))
VANISHES.rule(LINEAR)(lambda node, args: not node.data[1] and all(args))


def clear_padding(outputs: Sequence[Expression | int]) -> list[Expression]:
    """Rewrite every output so that it is 0 in padding slots and unchanged in rows.

    Columns are 0 in padding, so most terms of a sum are. Given totals and plain numbers are not,
    and are multiplied by ``ones()``. An output without given totals gets a fresh encryption of its
    constant, even of 0, which hides the coefficients of its terms.

    >>> from encryptedstats.circuits.expressions import column, pack_total
    >>> x, intercept, slope = column("v0.bin1"), pack_total("model", 0), pack_total("model", 1)
    >>> clear_padding([intercept + slope * x, x - 7, 5])
    [model[1] * v0.bin1 + model[0] * here:one, v0.bin1 + here:answer1, here:answer2]
    """
    clearing = _Clearing([output for output in outputs if isinstance(output, Expression)])
    found = []
    for number, output in enumerate(outputs):
        terms, constant = ([], output) if isinstance(output, int) else clearing.split(output)
        done: Expression | int = 0
        if isinstance(output, Expression) and clearing.is_given[output]:
            done = combination([*terms, (constant, clearing.ones)])
        if isinstance(done, int):
            done = linear([*terms, (1, encrypted_constant(constant, f"answer{number}"))])
        found.append(done)
    return found


class _Clearing:
    """The values of some circuits in padding slots, and how to rewrite them to 0."""

    def __init__(self, outputs: Sequence[Expression]) -> None:
        self.ones = ones()

        def is_mixed(node: Expression, args: list[bool]) -> bool:
            if self.vanishes[node] or node.op not in (PRODUCT, LINEAR):
                return False
            return any(args) or (node.op == LINEAR and any(self.vanishes[arg] for arg in node.args))

        self.vanishes = fold(outputs, lambda node, args: VANISHES[node.op](node, args))
        self.is_mixed = fold(outputs, is_mixed)  # nodes of which only a part is 0 in padding
        self.is_given = fold(outputs, lambda node, args: any(args) or node.op == GIVEN)

    def split(self, node: Expression, times: int = 1) -> tuple[list[tuple[int, Expression]], int]:
        """Split a node times a number into terms that are 0 in padding, and a plain number."""
        if self.vanishes[node]:
            return [(times, node)], 0
        if not self.is_mixed[node]:
            return [(times, node * self.ones)], 0
        if node.op == PRODUCT:
            mixed, other = node.args if self.is_mixed[node.args[0]] else node.args[::-1]
            terms, constant = self.split(mixed)
            factor = combination([*terms, (constant, self.ones)])
            return ([], 0) if isinstance(factor, int) else ([(times, factor * other)], 0)
        coefficients, constant = node.data
        terms, same = [], []  # `same` is equal in all slots and shares one product
        for coefficient, arg in zip(coefficients, node.args, strict=True):
            if self.vanishes[arg] or self.is_mixed[arg]:
                more, plain = self.split(arg, coefficient)
                terms += more
                constant += plain
            else:
                same.append((coefficient, arg))
        shared = combination(same, constant)
        if isinstance(shared, int):
            return [(times * c, term) for c, term in terms], times * shared
        return [(times * c, term) for c, term in [*terms, (1, shared * self.ones)]], 0
