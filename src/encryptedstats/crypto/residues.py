"""Ciphertexts as arrays of residues: what kernels compute on, what is stored, and the way back to SEAL, with every check.

An uncompressed SEAL ciphertext is a header of 113 bytes and then ``size x primes x N`` residues, 64 bits each. The header depends
on the parameters, the size and the level alone (for BGV because our correction factors are always 1), so it need not be stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import seal
from numpy.typing import NDArray

from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import FileFormatError

Residues = NDArray[np.uint64]
HEADER_BYTES: Final = 113


def residues_of(engine: Engine, ciphertext: Any) -> Residues:
    """The residues of a ciphertext, shape (size, primes, N)."""
    data = engine.ciphertext_to_bytes(ciphertext)
    size, ring = ciphertext.size(), engine.parameters.ring_degree
    level = len(engine.parameters.data_moduli) - ciphertext.coeff_modulus_size()
    if data[:HEADER_BYTES] != _header(engine.parameters, size, level):
        raise ValueError("a ciphertext of another form than the evaluators know (correction factor, level or form)")
    return np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(size, -1, ring)


def ciphertext_of(engine: Engine, residues: Residues) -> Any:
    """The SEAL ciphertext of such residues; SEAL checks that each is below its prime."""
    size, primes, ring = residues.shape
    parameters = engine.parameters
    level = len(parameters.data_moduli) - primes
    if ring != parameters.ring_degree or not 0 <= level < len(parameters.data_moduli) or size < 2:
        raise FileFormatError(f"residues of shape {residues.shape} are no ciphertext of {parameters!r}")
    data = _header(parameters, size, level) + np.ascontiguousarray(residues, dtype="<u8").tobytes()
    return engine.ciphertext_from_bytes(data, size=size, level=level)


@lru_cache(maxsize=64)
def _header(parameters: Parameters, size: int, level: int) -> bytes:
    """SEAL's header for this size and level, taken from a ciphertext that SEAL made."""
    engine = engine_for(parameters)
    # Any key will do: the header does not depend on it. Squaring gives the larger sizes.
    generator = seal.KeyGenerator(engine.context)
    base = seal.Encryptor(engine.context, generator.create_public_key()).encrypt_zero()
    grown = base
    while grown.size() < size:
        grown = engine.evaluator.multiply(grown, base)
    lowered = engine.evaluator.mod_switch_to(grown, engine.level_ids[level])
    return engine.ciphertext_to_bytes(lowered)[:HEADER_BYTES]
