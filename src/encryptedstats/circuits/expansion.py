"""Packs taken apart again: each total in all slots of a ciphertext, to be computed on with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.devices import Device
from encryptedstats.circuits.program import PACKED
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.residues import Residues

_EXPANDED_AT_ONCE: Final = 64  # totals ...
_EXPANDED_BYTES: Final = 64 << 20  # ... and bytes: as long as one of these is held, all are


def check_packed(totals: EncryptedNumbers) -> None:
    """Refuse what cannot be expanded."""
    if totals.form != PACKED:
        raise ValueError(f"totals in form {totals.form!r} are no packs, and only packs can be expanded: form='packed'")
    if not totals.are_whole:
        raise ValueError(
            "these totals are in parts, or two travel as one: they are to be opened, and cannot be computed on with. Keys that are "
            "planned for predicting unopened keep them whole"
        )
    if any(part.noise.level for part in totals.parts):
        raise ValueError("packs that were switched down cannot be expanded: take them as they were computed")


def expand_totals(
    totals: EncryptedNumbers, wanted: Collection[int], device: Device, workers: int | None = None, start: int = 0
) -> Iterator[tuple[int, Residues]]:
    """Packed totals with their numbers, in the order of their places: each in all slots of a ciphertext, under packing's primes.

    A pack is parted into halves again and again, the first totals first, so that few ciphertexts are held at a time; parts that
    hold no ``wanted`` total are left alone. With ``start``, 2^start neighbours stay side by side, and what is numbered, and wanted,
    is these.
    """
    check_packed(totals)
    n_places = totals.n_places
    chosen = np.zeros(n_places, dtype=bool)
    # Equal totals share a place, which goes by the number of the first of them.
    numbers = {place: number for number, place in reversed(list(enumerate(totals.places)))}
    if start:
        numbers = {place: place >> start for place in totals.places}
    for number in wanted:
        chosen[number << start if start else totals.places[number]] = True
    top = totals.keys.parameters.ring_degree.bit_length() - 1
    for number, part in enumerate(totals.parts):
        places = range(number * totals.width, min((number + 1) * totals.width, n_places))
        for group, level, node in _groups(device, totals, part.residues, places, top, chosen, start):
            found = device.expand(node, len(group), level, totals.keys, workers, start)
            yield from ((numbers[place], one) for place, one in zip(group[:: 1 << start], found, strict=True))


def _groups(
    device: Device,
    totals: EncryptedNumbers,
    node: Residues,
    numbers: range,
    level: int,
    chosen: NDArray[np.bool_],
    start: int,
) -> Iterator[tuple[range, int, Residues]]:
    """Nodes of at most so many totals, first totals first; nodes above them are parted when it is their turn."""
    if not chosen[numbers.start : numbers.stop].any():
        return
    most = min(_EXPANDED_AT_ONCE, max(1, _EXPANDED_BYTES // (8 * math.prod(node.shape))))
    if 1 << (level - start) <= most:
        yield numbers, level, node
        return
    half = 1 << (level - 1)
    parts = device.split(node, level, totals.keys, odd=len(numbers) > half, start=start)
    for part, some in zip(parts, (numbers[:half], numbers[half:]), strict=False):
        yield from _groups(device, totals, part, some, level - 1, chosen, start)
