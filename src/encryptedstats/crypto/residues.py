"""Ciphertexts as arrays of residues: the form that kernels compute on and files store, with checked
conversions from and to SEAL.

An uncompressed SEAL ciphertext is a header of 113 bytes and then ``size x primes x N`` residues of
64 bits. The header depends on the parameters, the size and the level alone (SEAL's own correction
factor is always 1 here), so it is not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.crypto.engine import HEADER_BYTES, Engine, check_seal_bytes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import ArgumentError, FileFormatError
from encryptedstats.storage.bitpack import pack as pack_bits
from encryptedstats.storage.bitpack import unpack as unpack_bits

Residues = NDArray[np.uint64]
__all__ = [
    "HEADER_BYTES",
    "Residues",
    "add_modulo",
    "ciphertext_of",
    "moduli_column",
    "negate_modulo",
    "public_residues",
    "residues_from_bytes",
    "residues_of",
    "residues_to_bytes",
    "secret_residues",
    "times_constant",
    "times_each",
]
_SECRET_HEADER_BYTES = 88  # of an uncompressed secret key, before its residues
_PUBLIC_HEADER_BYTES = (
    HEADER_BYTES  # of an uncompressed public key: it is written as the ciphertext that it is
)


def residues_of(engine: Engine, ciphertext: Any) -> Residues:
    """Return the residues of a ciphertext, shape (size, primes, N)."""
    data = engine.ciphertext_to_bytes(ciphertext)
    size, ring = ciphertext.size(), engine.parameters.ring_degree
    level = len(engine.parameters.data_moduli) - ciphertext.coeff_modulus_size()
    if data[:HEADER_BYTES] != engine.ciphertext_header(size, level):
        raise ArgumentError(
            "a ciphertext of another form than the evaluators know (correction factor, level or "
            "form)",
            code="wrong-ciphertext-form",
        )
    return np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(size, -1, ring)


def ciphertext_of(engine: Engine, residues: Residues) -> Any:
    """Return the SEAL ciphertext of these residues. SEAL checks that each is below its prime."""
    size, primes, ring = residues.shape
    parameters = engine.parameters
    level = len(parameters.data_moduli) - primes
    if ring != parameters.ring_degree or not 0 <= level < len(parameters.data_moduli) or size < 2:
        raise FileFormatError(
            f"residues of shape {residues.shape} are no ciphertext of {parameters!r}",
            code="wrong-residue-shape",
        )
    data = (
        engine.ciphertext_header(size, level)
        + np.ascontiguousarray(residues, dtype="<u8").tobytes()
    )
    return engine.ciphertext_from_bytes(data, size=size, level=level)


def residues_to_bytes(residues: Residues, moduli: Sequence[int]) -> bytes:
    """Pack polynomials of shape (polynomials, primes, N) to the bits of their primes."""
    return b"".join(
        pack_bits(np.ascontiguousarray(residues[:, i], dtype=np.uint64), modulus.bit_length())
        .astype("<u8", copy=False)
        .tobytes()
        for i, modulus in zip(range(residues.shape[1]), moduli, strict=False)
    )


def residues_from_bytes(
    data: bytes, moduli: Sequence[int], ring_degree: int, polynomials: int = 2
) -> Residues:
    """Unpack what :func:`residues_to_bytes` packed.

    The caller must check that residues are below their primes.
    """
    lengths = [polynomials * ring_degree * modulus.bit_length() // 8 for modulus in moduli]
    if len(data) != sum(lengths):
        raise FileFormatError(
            "the residues of the file are cut short or too many", code="wrong-residue-length"
        )
    residues, start = np.empty((polynomials, len(moduli), ring_degree), dtype=np.uint64), 0
    for prime, (modulus, length) in enumerate(zip(moduli, lengths, strict=True)):
        words = np.frombuffer(data, dtype="<u8", offset=start, count=length // 8).reshape(
            polynomials, -1
        )
        residues[:, prime] = unpack_bits(words, modulus.bit_length())
        start += length
    return residues


def secret_residues(parameters: Parameters, data: bytes) -> Residues:
    """Return the residues of a secret key in SEAL's bytes, transformed, one row for each prime.

    The key-switching prime is last. Any other form is refused: another version of SEAL might store
    something else there.
    """
    check_seal_bytes(data)
    primes, ring = parameters.coefficient_moduli, parameters.ring_degree
    expected = _SECRET_HEADER_BYTES + 8 * ring * len(primes)
    if len(data) != expected:
        raise FileFormatError(
            f"a secret key of {len(data)} bytes stands where one of {expected} is expected",
            code="wrong-secret-key-length",
        )
    residues = np.frombuffer(data, dtype="<u8", offset=_SECRET_HEADER_BYTES).reshape(
        len(primes), ring
    )
    if (residues >= np.array(primes, dtype=np.uint64)[:, None]).any():
        raise FileFormatError(
            "a secret key holds residues that are not below their primes: SEAL writes none such",
            code="unreduced-residues",
        )
    return residues.astype(np.uint64)


def public_residues(parameters: Parameters, data: bytes) -> Residues:
    """Return a public key in SEAL's bytes as an encryption of 0, without the key-switching prime.

    The shape is (2, primes, N). b + a s = -t e holds modulo all primes, hence modulo the data
    primes: the result is as fresh as an encryption by the secret key.
    """
    check_seal_bytes(data)
    primes, ring = len(parameters.coefficient_moduli), parameters.ring_degree
    if len(data) != _PUBLIC_HEADER_BYTES + 16 * ring * primes:
        raise FileFormatError(
            f"a public key of {len(data)} bytes is none of {parameters!r}",
            code="wrong-public-key-length",
        )
    residues = np.frombuffer(data, dtype="<u8", offset=_PUBLIC_HEADER_BYTES).reshape(
        2, primes, ring
    )
    return residues[:, : len(parameters.data_moduli)].astype(np.uint64)


def moduli_column(moduli: Sequence[int]) -> Residues:
    """Return the primes as a column, to be broadcast over residues of shape (..., primes, N)."""
    return np.array(moduli, dtype=np.uint64)[:, None]


def add_modulo(a: Residues, b: Residues, moduli: Sequence[int]) -> Residues:
    """Add residues of shape (..., primes, N)."""
    return (a + b) % moduli_column(moduli)


def negate_modulo(a: Residues, moduli: Sequence[int]) -> Residues:
    """Negate residues of shape (..., primes, N)."""
    return (moduli_column(moduli) - a) % moduli_column(moduli)


def times_constant(residues: Residues, factors: Sequence[int], moduli: Sequence[int]) -> Residues:
    """Multiply residues of shape (..., primes, N) exactly by one number for each prime, below 2^63.

    Shoup's product: with w' = floor(w 2^64 / p), x w - floor(x w' / 2^64) p is x w modulo p, or p
    more.
    """
    out = np.empty_like(residues, dtype=np.uint64)
    for i, (factor, p) in enumerate(zip(factors, moduli, strict=True)):
        x, w = residues[..., i, :].astype(np.uint64), factor % p
        out[..., i, :] = times_each(x, np.uint64(w), np.uint64((w << 64) // p), p)
    return out


def times_each(
    x: Residues, factors: Residues | np.uint64, quotients: Residues | np.uint64, p: int
) -> Residues:
    """Multiply residues exactly by factors below p, one or as many, with floor(factor 2^64 / p) of
    each.
    """
    rest = x * factors - _high_word(x, quotients) * np.uint64(p)  # wraps around, as it should
    return np.where(rest >= np.uint64(p), rest - np.uint64(p), rest)


def _high_word(x: Residues, y: Residues | np.uint64) -> Residues:
    """Return the upper 64 bits of the products with numbers below 2^64, from products of halves."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x1, x0, y1, y0 = x >> half, x & low, y >> half, y & low
    middle = (x0 * y0 >> half) + (x1 * y0 & low) + (x0 * y1 & low)
    high: Residues = x1 * y1 + (x1 * y0 >> half) + (x0 * y1 >> half) + (middle >> half)
    return high
