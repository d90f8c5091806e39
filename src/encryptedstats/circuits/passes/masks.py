"""Join masks, so that a sum of masked sums of columns takes one product for each column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    MASK,
    Expression,
    Factors,
    Marks,
    fold,
    linear,
    ones,
)


def join_masks(outputs: Sequence[Expression]) -> list[Expression]:
    """Write sums of masked sums of columns with one product for each column.

    >>> from encryptedstats.circuits.expressions import Marks, column
    >>> x, y = column("x"), column("y")
    >>> join_masks([(x - y).mask(Marks(0, [1])) + (1 - x).mask(Marks(0, [2]))])
    [x.mask(2 slots of chunk 0) + y.mask(1 slots of chunk 0) + here:one.mask(1 slots of chunk 0)]
    """

    def rule(node: Expression, args: list[Expression]) -> Expression:
        if node.op == LINEAR and node.data == ((1,) * len(args), 0) and _are_of_one_chunk(args):
            return _join(args)
        return Expression(node.op, tuple(args), node.data, node.is_total) if args else node

    values = fold(outputs, rule)
    return [values[output] for output in outputs]


def _are_of_one_chunk(masks: Sequence[Expression]) -> bool:
    return (
        all(
            mask.op == MASK and type(mask.data) is Marks and _of_columns(mask.args[0])
            for mask in masks
        )
        and len({mask.data.chunk for mask in masks}) == 1
    )


def _of_columns(row: Expression) -> bool:
    return row.op == COLUMN or (row.op == LINEAR and all(arg.op == COLUMN for arg in row.args))


def _join(masks: Sequence[Expression]) -> Expression:
    found: dict[Expression, Counter[int]] = {}
    for mask in masks:
        (row,), slots = mask.args, mask.data.slots.tolist()
        coefficients, constant = row.data if row.op == LINEAR else ((1,), 0)
        terms = list(zip(coefficients, row.args or (row,), strict=True))
        for coefficient, arg in [*terms, *([(constant, ones())] if constant else [])]:
            factors = found.setdefault(arg, Counter())
            for slot in slots:
                factors[slot] += coefficient
    chunk, parts = masks[0].data.chunk, list[tuple[int, Expression]]()
    for arg, factors in found.items():
        kept = {slot: factor for slot, factor in factors.items() if factor}
        if kept:
            plain = set(kept.values()) == {1}
            parts.append((1, arg.mask(Marks(chunk, kept) if plain else Factors(chunk, kept))))
    return linear(parts)
