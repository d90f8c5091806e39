"""Batches of given totals: those that belong together are expanded together, whatever else all of
them need.
"""

from __future__ import annotations

from encryptedstats.circuits.passes.batching import _group
from encryptedstats.circuits.program import EXPAND, GIVEN, Step
from encryptedstats.crypto.noise import Noise


def test_a_total_that_all_need_does_not_part_neighbours() -> None:
    """Two classes of eight trees, which share the first total and, tree by tree, a drawn one: trees
    come one after the other.
    """
    noise = Noise(1.0)
    model, drawn = (Step(GIVEN, (), name, noise) for name in ("model", "drawn"))
    counts = [Step(EXPAND, (model,), number, noise) for number in range(17)]
    fractions = [Step(EXPAND, (drawn,), number, noise) for number in range(8)]
    things = [
        ((tree, c), {counts[0], counts[1 + 2 * tree + c], fractions[tree]})
        for c in range(2)
        for tree in range(8)
    ]
    assert _group(things, 4) == [[(tree, 0), (tree, 1)] for tree in range(8)]
