"""The clear reader: what a circuit gives on plain integers, slot by slot, exactly as the encrypted readers compute it.

Numbers are 64-bit where the bounds reader proves that they fit, Python integers otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import (
    COLUMN,
    LINEAR,
    MASK,
    PRODUCT,
    REPLICATE,
    TOTAL,
    Expression,
    Marks,
    fold,
    in_order,
    padding_value,
)
from encryptedstats.circuits.layout import Layout

Values = NDArray[Any]


def read_clear(
    outputs: Iterable[Expression], columns: Mapping[str, Values], layout: Layout, *, largest: int | None = None
) -> list[Any]:
    """The value of every output: an integer for a total, an array over the rows otherwise.

    Parameters
    ----------
    outputs : expressions
    columns : mapping
        The rows of every column that occurs.
    layout : Layout
    largest : int, optional
        A bound on every intermediate value; beyond 2**62, or unknown, Python's own integers are used.
    """
    outputs = list(outputs)
    exact = np.int64 if largest is not None and max(largest, _largest_factor(outputs)) < 1 << 62 else object
    padding = padding_value(outputs)

    def rule(node: Expression, args: list[Any]) -> Any:
        if node.op == COLUMN:
            return to_slots(np.asarray(columns[node.data]), layout, exact)
        if node.op == PRODUCT:
            return args[0] * args[1]
        if node.op == LINEAR:
            coefficients, constant = node.data
            combined = sum((c * a for c, a in zip(coefficients, args, strict=True)), start=0)
            return combined + constant
        if node.op == TOTAL:
            # Less padding before it is summed up: a sum that still counts it could pass what 64 bits hold.
            pad = known_padding(node, padding)
            return int((args[0] - pad if pad else args[0]).sum()) + pad * layout.n_rows
        if node.op == REPLICATE:
            return np.full((layout.n_chunks, layout.slots), args[0], dtype=exact)
        if node.op == MASK:
            return args[0] * mark_slots(node.data, layout)
        return permute_slots(args[0], drawn_shift(node.data, layout))

    values = fold(outputs, rule)
    return [values[output] if output.is_total else from_slots(values[output], layout) for output in outputs]


def _largest_factor(outputs: Iterable[Expression]) -> int:
    """The largest plain number that occurs."""
    numbers = [node.data for node in in_order(outputs) if node.op == LINEAR]
    return max((abs(n) for coefficients, constant in numbers for n in (*coefficients, constant)), default=0)


def known_padding(total: Expression, padding: Mapping[Expression, int | None]) -> int:
    """What one padding slot adds to the sum that a total takes over all slots."""
    value = padding[total.args[0]]
    if value is None:
        raise ValueError(
            f"the total of {total.args[0]!r} would count padding slots, whose content is encrypted: multiply by a column "
            "(the class indicators, say) before taking the total"
        )
    return value


def to_slots(rows: Values, layout: Layout, dtype: Any = np.int64) -> Values:
    """Rows in their slots, shape (chunks, slots), zeros as padding."""
    if len(rows) != layout.n_rows:
        raise ValueError(f"a column of {len(rows)} rows in a table of {layout.n_rows}")
    slots = np.zeros((layout.n_chunks, layout.slots), dtype=dtype)
    start = 0
    for chunk, count in enumerate(layout.counts):
        slots[chunk, :count] = rows[start : start + count]
        start += count
    return slots


def from_slots(slots: Values, layout: Layout) -> Values:
    """The rows of a table out of their slots."""
    rows = [chunk[:count] for chunk, count in zip(slots, layout.counts, strict=True)]
    return np.concatenate(rows) if rows else slots.reshape(-1)


def mark_slots(marks: Marks, layout: Layout) -> Values:
    """1 at the marked slots and 0 elsewhere, shape (chunks, slots)."""
    check_marks(marks, layout)
    slots = np.zeros((layout.n_chunks, layout.slots), dtype=np.int64)
    slots[marks.chunk, marks.slots] = 1
    return slots


def check_marks(marks: Marks, layout: Layout) -> None:
    """Refuse marks on padding: nobody would take off what it holds."""
    if marks.chunk >= layout.n_chunks or marks.slots[-1] >= layout.counts[marks.chunk]:
        raise ValueError(f"marks on {marks!r} are not all on rows: the table has {layout.counts} rows in its chunks")


def drawn_shift(seed: int | tuple[int, int, bool], layout: Layout) -> tuple[int, int, bool]:
    """The move that a seed stands for: (chunks, slots within the half rows, whether half rows are swapped).

    From a hash, so that it is the same on every machine and for every version of every library. A move stands for itself.
    """
    if isinstance(seed, tuple):
        return seed[0] % max(1, layout.n_chunks), seed[1] % (layout.slots // 2), seed[2]
    digest = hashlib.sha256(f"encryptedstats resample {seed}".encode()).digest()
    chunk, rotation = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")
    return chunk % max(1, layout.n_chunks), rotation % (layout.slots // 2), bool(digest[16] & 1)


def permute_slots(slots: Values, shift: tuple[int, int, bool]) -> Values:
    """Slots moved as SEAL moves them: whole chunks around, half rows rotated to the left, half rows swapped."""
    chunks, rotation, swap = shift
    halves = np.roll(slots, -chunks, axis=0).reshape(len(slots), 2, slots.shape[1] // 2)
    halves = np.roll(halves, -rotation, axis=2)
    if swap:
        halves = halves[:, ::-1]
    return halves.reshape(slots.shape)
