"""Pieces: short runs of stored residues, each with its own digest, and polynomials stored as a
seed.

Hashing and expanding are SHAKE-256 (FIPS 202). A compiled extension, ``_native/storage.c``, works
on several pieces at a time without the interpreter's lock; where it was not built, hashlib and
NumPy give the same bytes. ``ENCRYPTEDSTATS_CPU`` limits the instructions that it uses.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError
from encryptedstats.machine import best_level
from encryptedstats.storage import bitpack

try:
    from encryptedstats import _storage
except ImportError:  # not built: hashlib and NumPy do everything
    _storage = None  # type: ignore[assignment]  # the one place that has to know

Residues = NDArray[np.uint64]
Bytes = bytes | memoryview

RUN: Final = 1024  # numbers in a run, unless a polynomial has fewer
DIGEST_BYTES: Final = 16
SEED_BYTES: Final = 32
# what is hashed before a seed, so that no other use of SHAKE-256 has the same input
_DOMAIN: Final = b"encryptedstats a"
_WORD_BYTES: Final = 8
_LEVELS: Final = () if _storage is None else _storage.levels()


def level() -> str | None:
    """Return the instructions in use: "avx512", "avx2", "neon" or "baseline"; None without the
    extension.
    """
    return None if _storage is None else best_level(_LEVELS)


def digests_of(data: Bytes, size: int) -> bytes:
    """Return the digests of adjacent pieces of ``size`` bytes."""
    isa = level()
    if isa is None:
        view = memoryview(data)
        return b"".join(_digest(view[at : at + size]) for at in range(0, len(view), size))
    out = bytearray(DIGEST_BYTES * (len(data) // size))
    _storage.hash(isa, data, size, out)
    return bytes(out)


def pack(runs: Residues, bits: int, out: Residues) -> None:
    """Pack runs of numbers below ``2**bits``, along the last axis, to their bits, into ``out``."""
    isa = level()
    if isa is not None:
        fits = _storage.pack(isa, np.ascontiguousarray(runs), bits, runs.shape[-1], out)
    else:
        fits = not (runs >> np.uint64(bits)).any()
        out[:] = bitpack.pack(runs, bits).reshape(-1)
    if not fits:
        raise ArgumentError(
            f"numbers of more than {bits} bits are not packed to as many", code="value-too-large"
        )


@dataclass(frozen=True)
class Target:
    """Where pieces are unpacked to.

    Attributes
    ----------
    out : residues of shape (columns, 2, primes, coefficients)
    prime : int
    start : int
        The first coefficient.
    """

    out: Residues
    prime: int
    start: int


def read(
    data: Bytes,
    digests: bytes,
    seeds: bytes,
    modulus: int,
    runs: range,
    target: Target,
) -> tuple[int, bool] | None:
    """Unpack pieces of one prime, ``[run][column]``, into the residues of ciphertexts.

    A piece is a run of the first polynomial, and the second is expanded from the column's seed;
    without ``seeds``, a run of both.

    Returns
    -------
    tuple of int and bool, or None
        The first bad piece, and whether its digest matches. None if all are good.
    """
    out, prime, start = target.out, target.prime, target.start
    columns, _, primes, width = out.shape
    run, isa = min(RUN, width), level()
    if isa is None:
        return _read(
            data, digests, seeds, modulus, runs, out[:, :, prime, start : start + run * len(runs)]
        )
    places = (prime * width + start, 2 * primes * width, primes * width)
    bad = _storage.read(
        isa, modulus, (run, runs.start, len(runs), columns), data, digests, seeds, out, places
    )
    return None if bad < 0 else (bad // 2, bad % 2 == 1)


def expand(seeds: bytes, modulus: int, out: Residues, prime: int) -> None:
    """Expand seeds into the last polynomials of ``out``, (columns, components, primes, N), modulo
    one prime.
    """
    columns, components, primes, ring = out.shape
    run, isa = min(RUN, ring), level()
    runs = range(ring // run)
    if isa is not None:
        places = (((components - 1) * primes + prime) * ring, components * primes * ring, 0)
        _storage.read(isa, modulus, (run, 0, len(runs), columns), b"", b"", seeds, out, places)
        return
    for column in range(columns):
        for number in runs:
            seed = seeds[SEED_BYTES * column : SEED_BYTES * (column + 1)]
            out[column, -1, prime, number * run : (number + 1) * run] = _expand_run(
                seed, modulus, number, run
            )


# The multiply-add of crypto/seeded.py, which says what it is for; None where the extension was not
# built.
rebase: Final = None if _storage is None else _storage.rebase


# -- without the extension
# ------------------------------------------------------------------------------------------------


def _digest(piece: Bytes) -> bytes:
    return hashlib.shake_256(piece).digest(DIGEST_BYTES)


def _read(
    data: Bytes, digests: bytes, seeds: bytes, modulus: int, runs: range, out: Residues
) -> tuple[int, bool] | None:
    columns, components, width = out.shape
    run, bits, view = width // len(runs), modulus.bit_length(), memoryview(data)
    half = run // 64 * bits * _WORD_BYTES
    size = half if seeds else components * half
    for index in range(columns * len(runs)):
        piece, (number, column) = view[index * size : (index + 1) * size], divmod(index, columns)
        if _digest(piece) != digests[DIGEST_BYTES * index : DIGEST_BYTES * (index + 1)]:
            return index, False
        found = bitpack.unpack(np.frombuffer(piece, dtype="<u8").reshape(size // half, -1), bits)
        if found.max() >= modulus:
            return index, True
        into = out[column, :, number * run : (number + 1) * run]
        into[: len(found)] = found
        if seeds:
            seed = seeds[SEED_BYTES * column : SEED_BYTES * (column + 1)]
            into[1] = _expand_run(seed, modulus, runs.start + number, run)
    return None


def _expand_run(seed: bytes, modulus: int, number: int, run: int) -> Residues:
    """Expand one run of a polynomial from its seed: uniform below the modulus, by rejection.

    The output of SHAKE-256 is read as a packed run. Numbers that are not below the modulus are
    replaced, first to last, by the following words with their upper bits cleared, skipping words
    that are not below the modulus either.
    """
    bits, words = modulus.bit_length(), run // 64 * modulus.bit_length()
    numbers = [modulus.to_bytes(_WORD_BYTES, "little"), number.to_bytes(_WORD_BYTES, "little")]
    stream = hashlib.shake_256(b"".join((_DOMAIN, seed, *numbers)))
    found = bitpack.unpack(np.frombuffer(stream.digest(_WORD_BYTES * words), dtype="<u8"), bits)
    rejected, more = np.flatnonzero(found >= modulus), run
    while len(rejected):
        after = np.frombuffer(stream.digest(_WORD_BYTES * (words + more)), dtype="<u8")[words:]
        after = after & np.uint64((1 << bits) - 1)
        after = after[after < modulus]
        if len(after) >= len(rejected):
            found[rejected] = after[: len(rejected)]
            break
        more *= 2
    return found
