"""Clear padding: answers for rows hold nothing in the slots without a row.

Where the model is plain, its numbers are coefficients, and what is stored in the clear is the same
for every model: an encryption of each answer's plain number is added, so that only the owner can
tell the coefficients from the ciphertexts.
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
    fold,
    here,
    linear,
    ones,
)
from encryptedstats.circuits.rules import RuleTable

#: Whether a node is 0 in padding slots, from whether its args are.
VANISHES: Final = RuleTable[Callable[[Expression, list[bool]], bool]]("vanishing padding")

VANISHES.rule(COLUMN, HERE, MASK)(lambda node, args: True)
VANISHES.rule(GIVEN, TOTAL, REPLICATE, RESAMPLE)(lambda node, args: False)
VANISHES.rule(PRODUCT)(lambda node, args: any(args))
VANISHES.rule(LINEAR)(lambda node, args: not node.data[1] and all(args))


def clear_padding(outputs: Sequence[Expression | int]) -> list[Expression]:
    """Write every output so that it is the same in rows, and 0 in padding slots.

    Columns are 0 in padding, so most terms of a sum are; given totals and plain numbers are not,
    and are multiplied by what is 1 in every row, ``ones()``: the same rows give the same
    ciphertexts. An output without given totals has a fresh encryption of its plain number, 0
    included, which hides the coefficients of the others.

    >>> from encryptedstats.circuits.expressions import column, given
    >>> clear_padding([given("model", 0) + given("model", 1) * column("v0.bin1"), column("v0.bin1") - 7, 5])
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
            done = linear([*terms, (1, here(constant, f"answer{number}"))])
        found.append(done)
    return found


class _Clearing:
    """What some circuits are in padding slots, and how they are written so that it is 0."""

    def __init__(self, outputs: Sequence[Expression]) -> None:
        self.ones = ones()

        def is_mixed(node: Expression, args: list[bool]) -> bool:
            if self.vanishes[node] or node.op not in (PRODUCT, LINEAR):
                return False
            return any(args) or (node.op == LINEAR and any(self.vanishes[arg] for arg in node.args))

        self.vanishes = fold(outputs, lambda node, args: VANISHES[node.op](node, args))
        self.is_mixed = fold(outputs, is_mixed)  # not 0 in padding, but a part of it is
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
        terms, same = [], []  # in all slots alike, so that one product does for all of these
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
