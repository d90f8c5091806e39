"""Noise flooding: make a ciphertext reveal nothing but its message, even to the key holder.

Clearing a pack cleans its message, but its noise and its second polynomial still depend on the
rows, and the key holder sees both. So a fresh encryption of zero is added, which replaces the
second polynomial, and a polynomial with coefficients drawn uniformly from a range 2^64 times as
wide as the proven noise. For other rows with the same totals, the distribution of the result
differs by at most N / 2^64 a pack (docs/explanation/noise.md). All random numbers come from the
operating system's generator.
"""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from encryptedstats.crypto.engine import HEADER_BYTES, Engine, engine_for
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, moduli_column, times_constant
from encryptedstats.errors import InsecureParametersWarning

FLOODING_BITS: Final = 64
_DIGIT: Final = 32


def flooding_width(model: NoiseModel, noise: Noise) -> int:
    """Return the bits of the flooding coefficients: 2^64 times the proven noise, as a
    power of two.
    """
    unit = model.unit(noise.level)
    return math.ceil(FLOODING_BITS + math.log2(max(model.coefficient_bound(noise) / unit, 1.0)))


def flooded_noise(model: NoiseModel, noise: Noise, zero: Noise) -> Noise:
    """Return a bound on the coefficients of the noise after flooding.

    Under a joint key every member floods the ciphertext as if alone.
    """
    wide = model.unit(noise.level) * 2.0 ** flooding_width(model, noise)
    added = model.members * (model.coefficient_bound(zero) + wide)
    return Noise(model.coefficient_bound(noise) + added, level=noise.level)


def flood(engine: Engine, residues: Residues, zero: Residues, width: int) -> Residues:
    """Add a fresh encryption of zero and noise of ``width`` bits to a ciphertext of two
    polynomials.
    """
    moduli = moduli_column(engine.parameters.data_moduli[: residues.shape[1]])
    flooded = (residues + zero) % moduli
    flooded[0] = (flooded[0] + flooding_polynomial(engine, residues.shape[1], width)) % moduli
    return flooded


def flooding_polynomial(engine: Engine, primes: int, width: int) -> Residues:
    """Draw the polynomial that is added to a ciphertext's first polynomial: (primes, N), times t in
    BGV.

    Its coefficients are uniform from -2^width to 2^width - 1.
    """
    parameters = engine.parameters
    moduli, ring = parameters.data_moduli[:primes], parameters.ring_degree
    residues = uniform_residues(moduli, ring, width)
    if parameters.scheme == "bfv":
        return residues
    factors = [parameters.plain_modulus] * primes
    return times_constant(_transform(parameters, residues), factors, moduli)


def uniform_residues(moduli: tuple[int, ...], count: int, width: int) -> Residues:
    """Draw numbers uniformly from -2^width to 2^width - 1, modulo each prime: (primes, count)."""
    # width + 1 random bits, from the most significant 32 down, less 2^width.
    digits = -(-(width + 1) // _DIGIT)
    words = (
        np.frombuffer(os.urandom(4 * digits * count), dtype="<u4")
        .reshape(digits, count)
        .astype(np.uint64)
    )
    words[0] >>= np.uint64(digits * _DIGIT - (width + 1))
    residues = np.zeros((len(moduli), count), dtype=np.uint64)
    for digit in words:
        residues = (
            times_constant(residues, [1 << _DIGIT] * len(moduli), moduli) + digit
        ) % moduli_column(moduli)
    lowest = moduli_column(tuple(p - pow(2, width, p) for p in moduli))
    return (residues + lowest) % moduli_column(moduli)


def _transform(parameters: Parameters, polynomial: Residues) -> Residues:
    """Transform a polynomial prime by prime as SEAL does.

    The transform depends on the ring and the prime alone; SEAL's binding offers it for BFV
    ciphertexts.
    """
    engine = engine_for(_same_primes_for_bfv(parameters))
    ciphertext = ciphertext_of(engine, np.stack([polynomial, np.ones_like(polynomial)]))
    data = engine.ciphertext_to_bytes(engine.evaluator.transform_to_ntt(ciphertext))
    transformed: Residues = np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(
        2, *polynomial.shape
    )[0]
    return transformed


@lru_cache(maxsize=16)
def _same_primes_for_bfv(parameters: Parameters) -> Parameters:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", InsecureParametersWarning
        )  # the parameters themselves have warned
        return replace(parameters, scheme="bfv", members=1)
