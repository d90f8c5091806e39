"""Find out whether each residue of a program's sums depends on one residue of each column.

Then a sum can be recomputed at a few positions: docs/explanation/verification.md. This holds for
additions and products of BGV ciphertexts, and not for key switching, modulus switching and BFV
products.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from encryptedstats.circuits.expressions import ONES, in_order
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    EXPAND,
    GIVEN,
    HERE,
    MASK,
    MOVE,
    MULTIPLY,
    PACKED,
    RELINEARISE,
    ROTATE,
    ROWS,
    SHIFT,
    SLOTS,
    SUM,
    SWITCH,
    Program,
    Step,
)

_LOCAL: Final = {COLUMN, ADD_UP, MULTIPLY, SHIFT, SUM}
_REASONS: Final = {
    RELINEARISE: "it relinearises between products, which mixes residues",
    SWITCH: "it switches to fewer primes before its sums, which mixes residues",
    ROTATE: "it moves rows to other slots, which mixes residues",
    MOVE: "it reads rows of other chunks",
    MASK: "it marks slots, and the marks would have to be transformed",
    HERE: "it encrypts numbers with the public key, with noise that cannot be drawn again",
    GIVEN: "it computes with encrypted totals of an earlier evaluation",
    EXPAND: "it computes with encrypted totals of an earlier evaluation",
}


def find_sum(step: Step) -> Step:
    """Return the sum behind a total, which is neither relinearised nor switched."""
    while step.is_total and step.op in (RELINEARISE, SWITCH):
        (step,) = step.args
    return step


def find_residue_obstacle(program: Program) -> str | None:
    """Say why single residues of the sums cannot be recomputed; return None if they can."""
    if program.parameters.scheme != "bgv":
        return "its products are those of BFV, which mix residues"
    if program.layout.lanes > 1:
        return "its totals stay in the slots, one for each variant"
    if program.form == ROWS:
        return "it computes numbers of rows, which are not added up"
    if program.form not in (PACKED, SLOTS) or any(output.each for output in program.outputs):
        return _REASONS[ROTATE]
    return find_step_obstacle([find_sum(output.step) for output in program.outputs])


def find_step_obstacle(sums: Iterable[Step]) -> str | None:
    """Say why single residues of some sums cannot be recomputed; return None if they can."""
    for step in in_order(sums):
        if step.op not in _LOCAL and not (step.op == HERE and step.data == ONES):
            return _REASONS[step.op]
    return None
