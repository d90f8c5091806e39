"""Noise measured with the real secret, at the roots of X^N + 1, beside the noise model with one
standard deviation for its tail.

SEAL says how many bits are left, which is a maximum over coefficients and in whole bits: a term
that is missing from the model hides behind another. Here the noise polynomial itself is computed,
in Python's integers, and ciphertexts are made with whatever noise a test wants, none at all
included. So what an operation adds is seen alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import seal

import encryptedstats as es
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.kernels import minimal_root
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.packing import packing_model, packing_parameters, packing_primes
from encryptedstats.crypto.residues import ciphertext_of, residues_of

RING = 1024
MAX_VALUE = 4000  # t = 12289, the smallest there is for this ring
Polynomial = np.ndarray  # of Python's integers, one for each coefficient


# -- polynomials
# ------------------------------------------------------------------------------------------------


def polynomial(coefficients: Iterable[int]) -> Polynomial:
    return np.array([int(c) for c in coefficients], dtype=object)


def constant(value: int) -> Polynomial:
    return polynomial([value] + [0] * (RING - 1))


def at_roots(values: np.ndarray) -> np.ndarray:
    """The polynomial at exp(i pi (2k+1)/N), k below N/2: the other roots are conjugate. Mean weight
    first: k = 0 is next to 1.
    """
    twisted = values.astype(float) * np.exp(1j * np.pi * np.arange(RING) / RING)
    return np.fft.ifft(twisted)[: RING // 2] * RING


def real_parts(root: int) -> np.ndarray:
    """The real parts of 1, z, z^2, ... at the k-th root: which signs of coefficients
    add up there.
    """
    return np.cos(np.pi * (2 * root + 1) * np.arange(RING) / RING)


def moved(values: Polynomial, element: int) -> Polynomial:
    """The automorphism X -> X^element."""
    places = np.arange(RING) * element % (2 * RING)
    result = np.zeros_like(values)
    result[places % RING] = np.where(places < RING, values, -values)
    return result


def centred(values: Polynomial, modulus: int) -> Polynomial:
    low = values % modulus
    return np.where(low > modulus // 2, low - modulus, low)


def modular_product(a: np.ndarray, b: np.ndarray | int, prime: int) -> np.ndarray:
    """a b modulo a prime below 2^60: the quotient in long doubles is off by one at most, and
    products may wrap.
    """
    b = np.asarray(b, dtype=np.uint64)
    quotient = (a.astype(np.longdouble) * b.astype(np.longdouble) / np.longdouble(prime)).astype(
        np.uint64
    )
    rest = (a * b - quotient * np.uint64(prime)).astype(np.int64)
    return (rest % prime).astype(np.uint64)


@cache
def _powers(prime: int, *, inverse: bool = False) -> np.ndarray:
    """The powers of SEAL's root, in the order of its transforms."""
    root, bits = minimal_root(prime, 2 * RING), RING.bit_length() - 1
    root = pow(root, -1, prime) if inverse else root
    return np.array(
        [pow(root, int(f"{i:0{bits}b}"[::-1], 2), prime) for i in range(RING)], dtype=np.uint64
    )


def transform(values: np.ndarray, prime: int) -> np.ndarray:
    """The number-theoretic transform of residues, in SEAL's order."""
    result, blocks, q = values, 1, np.uint64(prime)
    while blocks < RING:
        low, high = np.moveaxis(result.reshape(blocks, 2, -1), 1, 0)
        high = modular_product(high, _powers(prime)[blocks : 2 * blocks, None], prime)
        result, blocks = (
            np.stack([low + high, low + (q - high)], axis=1).reshape(-1) % q,
            2 * blocks,
        )
    return result


def inverse_transform(values: np.ndarray, prime: int) -> np.ndarray:
    result, blocks, q = values, RING, np.uint64(prime)
    while blocks > 1:
        blocks //= 2
        low, high = np.moveaxis(result.reshape(blocks, 2, -1), 1, 0)
        difference = modular_product(
            (low + (q - high)) % q, _powers(prime, inverse=True)[blocks : 2 * blocks, None], prime
        )
        result = np.stack([(low + high) % q, difference], axis=1).reshape(-1)
    return modular_product(result, pow(RING, -1, prime), prime)


# -- keys
# ------------------------------------------------------------------------------------------------


def lab_parameters(
    scheme: str, bits: Sequence[int], kept_primes: int | None = None
) -> es.Parameters:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = es.Parameters.from_bits(scheme, RING, MAX_VALUE, tuple(bits), allow_insecure=True)
        values = {**made.to_dict(), "kept_primes": kept_primes} if kept_primes else made.to_dict()
        return es.Parameters.from_dict(values)


class NoiseLab:
    """One key, with what only who has the secret can do: see the noise of a ciphertext, and make
    one with any noise.

    Parameters
    ----------
    parameters : Parameters
    seed : int
        Of the uniform parts of the ciphertexts that are made here; keys and errors are SEAL's own.
    """

    def __init__(self, parameters: es.Parameters, seed: int = 0) -> None:
        self.owner = es.Owner(parameters)
        self.keys = self.owner.public_keys(rotations=[1])
        self.parameters, self.engine = parameters, engine_for(parameters)
        self.small = engine_for(packing_parameters(parameters))
        self.random = np.random.default_rng(seed)
        self._powers_of_secret: dict[tuple[int, int], np.ndarray] = {}
        moduli = parameters.coefficient_moduli
        body = self.owner._generator.secret_key().to_string()[-8 * RING * len(moduli) :]
        transformed = np.frombuffer(body, dtype="<u8").reshape(-1, RING)
        self.secret = centred(polynomial(inverse_transform(transformed[0], moduli[0])), moduli[0])
        assert set(self.secret) == {-1, 0, 1}

    @cached_property
    def decryptor(self) -> Any:
        return seal.Decryptor(self.engine.context, self.owner._generator.secret_key())

    @cached_property
    def secret_at_roots(self) -> np.ndarray:
        return np.abs(at_roots(self.secret))

    @cached_property
    def typical(self) -> NoiseModel:
        """The model as a prediction of what is typical: one standard deviation, and this secret at
        every root.
        """
        p = self.parameters
        model = NoiseModel(
            p.scheme, p.ring_degree, p.plain_modulus, p.data_moduli, p.coefficient_moduli[-1]
        )
        return self._made_typical(model)

    @cached_property
    def typical_packing(self) -> NoiseModel:
        """The same under the primes of the packing context."""
        return self._made_typical(
            packing_model.__wrapped__(self.parameters, packing_primes(self.parameters))
        )

    def _made_typical(self, model: NoiseModel) -> NoiseModel:
        model.__dict__.update(tail=1.0, _secret=self.secret_at_roots)
        return model

    # -- making ciphertexts
    # --------------------------------------------------------------------------------------------

    def encrypted(self, plain: Any, *, with_secret_key: bool) -> Any:
        """By the library's own encryptors."""
        encryptor = self.owner._encryptor if with_secret_key else self.keys.encryptor
        return encryptor.encrypt(plain)[0]

    def made(
        self, phase: Polynomial, *, size: int = 2, level: int = 0, engine: Engine | None = None
    ) -> Any:
        """A ciphertext c with c(s) = phase and all but c_0 uniform: noise to order, and none for
        phase 0.
        """
        engine = engine or self.engine
        primes = engine.parameters.data_moduli[: len(engine.parameters.data_moduli) - level]
        residues = np.zeros((size, len(primes), RING), dtype=np.uint64)
        for i, q in enumerate(primes):
            parts = [self.random.integers(0, q, RING, dtype=np.uint64) for _ in range(size - 1)]
            rest = self._at_secret(parts, 1, q)
            first = transform((phase % q).astype(np.uint64), q) + (np.uint64(q) - rest)
            parts = [first % np.uint64(q), *parts]
            if self.parameters.scheme == "bfv":  # whose ciphertexts SEAL keeps as coefficients
                parts = [inverse_transform(part, q) for part in parts]
            residues[:, i] = np.stack(parts)
        return ciphertext_of(engine, residues)

    def _at_secret(self, parts: Sequence[np.ndarray], power: int, prime: int) -> np.ndarray:
        """parts[0] s^power + parts[1] s^(power + 1) + ..., all of it transformed."""
        total = np.zeros(RING, dtype=np.uint64)
        for k, part in enumerate(parts, power):
            total = (
                total
                + (modular_product(part, self._power_of_secret(k, prime), prime) if k else part)
            ) % np.uint64(prime)
        return total

    def _power_of_secret(self, power: int, prime: int) -> np.ndarray:
        if (power, prime) not in self._powers_of_secret:
            first = transform((self.secret % prime).astype(np.uint64), prime)
            below = (
                modular_product(first, self._power_of_secret(power - 1, prime), prime)
                if power > 1
                else first
            )
            self._powers_of_secret[power, prime] = below
        return self._powers_of_secret[power, prime]

    # -- seeing noise
    # --------------------------------------------------------------------------------------------

    def phase(self, ciphertext: Any, engine: Engine | None = None) -> Polynomial:
        """c(s) modulo q, around 0."""
        engine = engine or self.engine
        residues = residues_of(engine, ciphertext)
        primes = engine.parameters.data_moduli[: residues.shape[1]]
        modulus, total = math.prod(primes), np.zeros(RING, dtype=object)
        for i, q in enumerate(primes):
            parts = residues[:, i]
            if self.parameters.scheme == "bfv":
                parts = [transform(part, q) for part in parts]
            others = modulus // q
            total = total + polynomial(inverse_transform(self._at_secret(parts, 0, q), q)) * (
                pow(others, -1, q) * others
            )
        return centred(total, modulus)

    def noise(self, ciphertext: Any, engine: Engine | None = None) -> Exact:
        """The noise polynomial as docs/explanation/noise.md defines it."""
        return self.noise_of(self.phase(ciphertext, engine), ciphertext.coeff_modulus_size())

    def noise_of(self, phase: Polynomial, primes: int) -> Exact:
        """What c(s) = phase means under so many primes."""
        if self.parameters.scheme == "bgv":
            return Exact(phase, 1)
        modulus = math.prod(self.parameters.data_moduli[:primes])
        return Exact(centred(self.parameters.plain_modulus * phase, modulus), modulus)


@dataclass(frozen=True)
class Exact:
    """A polynomial with rational coefficients."""

    numerators: Polynomial
    denominator: int

    def __sub__(self, other: Exact) -> Exact:
        """Noise counts modulo 1 for BFV and modulo q for BGV; differences of small ones need no
        reduction.
        """
        return Exact(
            self.numerators * other.denominator - other.numerators * self.denominator,
            self.denominator * other.denominator,
        )

    def __truediv__(self, divisor: int) -> Exact:
        return Exact(self.numerators, self.denominator * divisor)

    def moved(self, element: int) -> Exact:
        return Exact(moved(self.numerators, element), self.denominator)

    @property
    def at_roots(self) -> np.ndarray:
        return at_roots(np.array([int(n) / self.denominator for n in self.numerators]))


# -- measured over predicted
# ------------------------------------------------------------------------------------------------

WEIGHTS = 1 / (2 * np.arange(RING // 2) + 1)


@dataclass
class Ratios:
    """Squares of measured over predicted noise: of every root, over ciphertexts and keys."""

    squares: list[np.ndarray] = field(default_factory=list)

    def add(self, measured: Exact, predicted: Noise) -> None:
        with np.errstate(divide="ignore"):  # nothing predicted: infinitely more was measured
            self.squares.append((np.abs(measured.at_roots) / bound_at_roots(predicted)) ** 2)

    @property
    def everywhere(self) -> float:
        """Root of the mean square."""
        return float(np.sqrt(np.mean(self.squares)))

    def at(self, root: int) -> float:
        """The same at one root alone."""
        return float(np.sqrt(np.mean([square[root] for square in self.squares])))

    @property
    def next_to_one(self) -> float:
        """At the root next to 1, where rounding down leaves its mean."""
        return self.at(0)

    def __str__(self) -> str:
        return (
            f"{self.everywhere:.3f} of what the model says is typical, {self.next_to_one:.3f} at "
            "the root next to 1"
        )


def bound_at_roots(noise: Noise) -> np.ndarray:
    return np.broadcast_to(noise.flat + noise.peak * WEIGHTS, RING // 2)
