"""Split a program into batches that need few given totals each, because expanded totals are large.

This pass is a part of lowering: a sum is split into partial sums, which are added up again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from encryptedstats.circuits.expressions import in_order
from encryptedstats.circuits.passes.correction_factors import rescale
from encryptedstats.circuits.program import ADD_UP, EXPAND, Batch, Step
from encryptedstats.crypto.parameters import Parameters

T = TypeVar("T")
#: Bytes of expanded totals that a batch may hold, besides those that it passes to later batches.
HELD: Final = 256 << 20
_LEAST: Final = 16  # totals, however large they are, because each batch reads the rows again

#: Writes the sum of some steps, with their coefficients, plus a plain number.
AddUp = Callable[[Sequence[int], Sequence[Step], int], Step]


def batches_of_totals(
    totals: Sequence[Step], parameters: Parameters, held: int
) -> tuple[Batch, ...]:
    """Group totals into batches that need few given totals each."""
    every = tuple(dict.fromkeys(totals))
    most = limit_expanded(every, parameters, held)
    if most is None:
        return (Batch(every),)
    groups = _group([(total, _find_expanded([total])) for total in every], most)
    return tuple(Batch(tuple(group)) for group in groups)


def batches_of_rows(
    rows: Sequence[Step], parameters: Parameters, held: int, add_up: AddUp
) -> tuple[tuple[Batch, ...], dict[Step, Step]]:
    """Split sums over rows into batches that need few given totals each.

    Return the batches, and for each sum the step that adds up its parts.
    """
    every = tuple(dict.fromkeys(rows))
    most = limit_expanded(every, parameters, held)
    if most is None:
        return (Batch(every, every),), {row: row for row in every}
    t = parameters.plain_modulus
    terms = [
        ((row, coefficient, term), _find_expanded([term]))
        for row in every
        for coefficient, term in _terms(row, t)
    ]
    batches, known = [], dict[Step, Step]()
    for group in _group(terms, most):
        pieces: dict[Step, list[tuple[int, Step]]] = {}
        for row, coefficient, term in group:
            pieces.setdefault(row, []).append((coefficient, term))
        steps = [
            _piece(some, add_up, 0 if row in known else _constant(row, t))
            for row, some in pieces.items()
        ]
        for row, step in zip(pieces, steps, strict=True):
            known[row] = add_up((1, 1), (known[row], step), 0) if row in known else step
        batches.append(Batch(tuple(steps), tuple(known[row] for row in pieces)))
    return tuple(batches), known


def limit_expanded(steps: Sequence[Step], parameters: Parameters, held: int) -> int | None:
    """Return how many given totals may be held at once; None if all of them may."""
    every = _find_expanded(steps)
    if not every:
        return None
    level = min(step.level for step in every)
    most = max(_LEAST, held // parameters.ciphertext_bytes(level=level))
    return None if len(every) <= most else most


def _piece(terms: Sequence[tuple[int, Step]], add_up: AddUp, constant: int) -> Step:
    """Add up some terms of a row and a plain number."""
    if len(terms) == 1 and terms[0][0] == 1 and not constant:
        return terms[0][1]
    return add_up([coefficient for coefficient, _ in terms], [term for _, term in terms], constant)


def _terms(row: Step, t: int) -> Iterator[tuple[int, Step]]:
    """Yield the terms of a sum with their original coefficients, without correction factors."""
    if row.op != ADD_UP:
        yield 1, row
        return
    for coefficient, term in zip(row.data[0], row.args, strict=True):
        yield rescale(coefficient, row.factor, term.factor, t), term


def _constant(row: Step, t: int) -> int:
    """Return the plain number of a sum, without its correction factor."""
    return rescale(row.data[1], row.factor, 1, t) if row.op == ADD_UP else 0


def _find_expanded(steps: Sequence[Step]) -> set[Step]:
    return {step for step in in_order(steps) if step.op == EXPAND}


def _group(things: Sequence[tuple[T, set[Step]]], most: int) -> list[list[T]]:
    """Group things so that no group needs more given totals than ``most``, or than one thing does.

    Things are ordered by the mean relative place of their totals in the packs, which is the order
    of expanding. A mean, because a total that all need, such as the count of a class, says nothing
    about their order.
    """
    last: dict[Step, int] = {}
    for step in {step for _, needed in things for step in needed}:
        last[step.args[0]] = max(step.data, last.get(step.args[0], 0))

    def place(entry: tuple[T, set[Step]]) -> float:
        return math.fsum(step.data / (last[step.args[0]] + 1) for step in entry[1]) / max(
            1, len(entry[1])
        )

    most = max(most, *(len(needed) for _, needed in things))
    groups: list[list[T]] = []
    held: set[Step] = set()
    for thing, needed in sorted(things, key=place):
        if not groups or len(held | needed) > most:
            groups.append([])
            held = set()
        groups[-1].append(thing)
        held |= needed
    return groups
