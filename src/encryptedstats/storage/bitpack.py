"""Bit packing of residues: numbers below 2**b take b bits on disk instead of 64.

64 numbers of b bits are exactly b words of 64. The numbers of a run are dealt out in 64 rows, and
row i always starts at bit i*b: so packing is 64 shifts of whole rows, in NumPy, with no loop over
numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError

Words = NDArray[np.uint64]
_WORD = 64


def pack(values: Words, bits: int) -> Words:
    """Pack along the last axis (a multiple of 64 long); numbers must be below ``2**bits``.

    >>> packed = pack(np.arange(64, dtype=np.uint64), 6)
    >>> packed.shape, bool((unpack(packed, 6) == np.arange(64)).all())
    ((6,), True)
    """
    _check(values.shape[-1], _WORD, bits)
    rows = values.reshape(*values.shape[:-1], _WORD, -1)
    packed = np.zeros((*values.shape[:-1], bits, rows.shape[-1]), dtype=np.uint64)
    for i in range(_WORD):
        word, shift = divmod(i * bits, _WORD)
        packed[..., word, :] |= rows[..., i, :] << np.uint64(shift)
        if shift + bits > _WORD:
            packed[..., word + 1, :] |= rows[..., i, :] >> np.uint64(_WORD - shift)
    return packed.reshape(*values.shape[:-1], -1)


def unpack(packed: Words, bits: int) -> Words:
    """Return the numbers that :func:`pack` packed."""
    _check(packed.shape[-1], bits, bits)
    words = packed.reshape(*packed.shape[:-1], bits, -1)
    rows = np.empty((*packed.shape[:-1], _WORD, words.shape[-1]), dtype=np.uint64)
    mask = np.uint64((1 << bits) - 1)
    for i in range(_WORD):
        word, shift = divmod(i * bits, _WORD)
        row = words[..., word, :] >> np.uint64(shift)
        if shift + bits > _WORD:
            row = row | words[..., word + 1, :] << np.uint64(_WORD - shift)
        np.bitwise_and(row, mask, out=rows[..., i, :])
    return rows.reshape(*packed.shape[:-1], -1)


def _check(length: int, multiple: int, bits: int) -> None:
    if not 1 <= bits < _WORD:
        raise ArgumentError(f"bits={bits}: between 1 and 63 are packed", code="bits-out-of-range")
    if length % multiple:
        raise ArgumentError(
            f"{length} numbers: a multiple of {multiple} is needed", code="not-a-multiple"
        )
