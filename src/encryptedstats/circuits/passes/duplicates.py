"""Remove duplicates: equal outputs are computed and packed once."""

from __future__ import annotations

from collections.abc import Sequence

from encryptedstats.circuits.expressions import Expression


def deduplicate(outputs: Sequence[Expression]) -> tuple[list[Expression], list[int]]:
    """Return the distinct outputs, and the position of each output among them.

    Random trees often repeat a split: a forest of 100 trees of depth 1 over six variables asks for
    202 totals, of which 50 differ.

    >>> from encryptedstats.circuits.expressions import column
    >>> x, y = column("x").total(), column("y").total()
    >>> deduplicate([x, y, x])
    ([x.total(), y.total()], [0, 1, 0])
    """
    distinct = list(dict.fromkeys(outputs))
    position = {output: number for number, output in enumerate(distinct)}
    return distinct, [position[output] for output in outputs]
