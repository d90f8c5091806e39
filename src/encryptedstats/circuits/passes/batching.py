"""What of a program is computed at a time: given totals are large once they are expanded, so few of
them are held at once.

A part of lowering: a sum over terms is cut into sums over some of them, and these are added up
again, as instructions.
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
#: Bytes of expanded totals that a batch may hold, beside those that earlier ones have left to later
#: ones.
HELD: Final = 256 << 20
_LEAST: Final = 16  # totals, whatever they take: each batch reads the rows again

#: Writes the sum of some steps, with their coefficients, plus a plain number.
AddUp = Callable[[Sequence[int], Sequence[Step], int], Step]


def batches_of_totals(
    totals: Sequence[Step], parameters: Parameters, held: int
) -> tuple[Batch, ...]:
    """Totals in groups that need few given ones each, neighbours of these together."""
    every = tuple(dict.fromkeys(totals))
    most = most_expanded(every, parameters, held)
    if most is None:
        return (Batch(every),)
    groups = _grouped([(total, _expanded([total])) for total in every], most)
    return tuple(Batch(tuple(group)) for group in groups)


def batches_of_rows(
    rows: Sequence[Step], parameters: Parameters, held: int, add_up: AddUp
) -> tuple[tuple[Batch, ...], dict[Step, Step]]:
    """Sums cut into such with few given totals each; and by each sum, what it is when all batches
    are added up.
    """
    every = tuple(dict.fromkeys(rows))
    most = most_expanded(every, parameters, held)
    if most is None:
        return (Batch(every, every),), {row: row for row in every}
    t = parameters.plain_modulus
    terms = [
        ((row, coefficient, term), _expanded([term]))
        for row in every
        for coefficient, term in _terms(row, t)
    ]
    batches, known = [], dict[Step, Step]()
    for group in _grouped(terms, most):
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


def most_expanded(steps: Sequence[Step], parameters: Parameters, held: int) -> int | None:
    """How many given totals may be held at once; None where all of them may."""
    every = _expanded(steps)
    if not every:
        return None
    level = min(step.level for step in every)
    most = max(_LEAST, held // parameters.ciphertext_bytes(level=level))
    return None if len(every) <= most else most


def _piece(terms: Sequence[tuple[int, Step]], add_up: AddUp, constant: int) -> Step:
    """Some terms of a row, plus a plain number."""
    if len(terms) == 1 and terms[0][0] == 1 and not constant:
        return terms[0][1]
    return add_up([coefficient for coefficient, _ in terms], [term for _, term in terms], constant)


def _terms(row: Step, t: int) -> Iterator[tuple[int, Step]]:
    """The terms of a sum with the coefficients that it was written with: in it they make up for
    what switching left in them.
    """
    if row.op != ADD_UP:
        yield 1, row
        return
    for coefficient, term in zip(row.data[0], row.args, strict=True):
        yield rescale(coefficient, row.factor, term.factor, t), term


def _constant(row: Step, t: int) -> int:
    """The plain number of a sum, as it was written."""
    return rescale(row.data[1], row.factor, 1, t) if row.op == ADD_UP else 0


def _expanded(steps: Sequence[Step]) -> set[Step]:
    return {step for step in in_order(steps) if step.op == EXPAND}


def _grouped(things: Sequence[tuple[T, set[Step]]], most: int) -> list[list[T]]:
    """Things in groups that need no more than so many given totals together, or than one alone
    does.

    They come in the order in which their totals come out of their packs, all packs from first to
    last side by side: on average, since a total that all of them need, as the count of a class,
    says nothing about their order.
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
