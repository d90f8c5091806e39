"""Ciphertexts as arrays of residues: what kernels compute on, what is stored, and the way back to SEAL, with every check.

An uncompressed SEAL ciphertext is a header of 113 bytes and then ``size x primes x N`` residues, 64 bits each. The header depends
on the parameters, the size and the level alone (for BGV because our correction factors are always 1), so it need not be stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.crypto.engine import HEADER_BYTES, Engine
from encryptedstats.errors import FileFormatError

Residues = NDArray[np.uint64]
__all__ = ["HEADER_BYTES", "Residues", "ciphertext_of", "residues_of"]


def residues_of(engine: Engine, ciphertext: Any) -> Residues:
    """The residues of a ciphertext, shape (size, primes, N)."""
    data = engine.ciphertext_to_bytes(ciphertext)
    size, ring = ciphertext.size(), engine.parameters.ring_degree
    level = len(engine.parameters.data_moduli) - ciphertext.coeff_modulus_size()
    if data[:HEADER_BYTES] != engine.ciphertext_header(size, level):
        raise ValueError("a ciphertext of another form than the evaluators know (correction factor, level or form)")
    return np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(size, -1, ring)


def ciphertext_of(engine: Engine, residues: Residues) -> Any:
    """The SEAL ciphertext of such residues; SEAL checks that each is below its prime."""
    size, primes, ring = residues.shape
    parameters = engine.parameters
    level = len(parameters.data_moduli) - primes
    if ring != parameters.ring_degree or not 0 <= level < len(parameters.data_moduli) or size < 2:
        raise FileFormatError(f"residues of shape {residues.shape} are no ciphertext of {parameters!r}")
    data = engine.ciphertext_header(size, level) + np.ascontiguousarray(residues, dtype="<u8").tobytes()
    return engine.ciphertext_from_bytes(data, size=size, level=level)
