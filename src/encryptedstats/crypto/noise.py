"""How much noise a ciphertext can carry: proven bounds, for both schemes, by one small algebra.

A ciphertext decrypts to the right message as long as a certain polynomial v (the *noise*) has
coefficients below a limit. For BGV, v = c(s) mod q is message plus t times error and the limit is
q/2; for BFV, v is the invariant noise and the limit is 1/2. What v is after an operation follows
from what it was before; ``docs/explanation/noise.md`` derives every line here.

The bound is one on the canonical embedding: |v(z)| for each of the N complex roots z of X^N + 1, so
that a product of polynomials is bounded by the product of the bounds. SEAL rounds *down* in several
places, which leaves a mean: that is the polynomial 1 + X + ... + X^(N-1), large (2N/pi) at the root
nearest to 1 and quickly falling away from it. Bounds therefore have two parts: ``flat``, for every
root, and ``peak`` times weights 1, 1/3, 1/5, ... on the pairs of roots, in an order that
automorphisms change. Weights are at most 1 and w w' <= (w + w')/2, so that a product (f1 + p1 w)(f2
+ p2 w') stays in the same form with peak f1 p2 + f2 p1 + p1 p2, and a coefficient, being an average
over the roots, sees next to nothing of the peak, wherever it lies.

Random polynomials (secret, errors, rounding, key-switching digits) have independent, symmetric,
strictly sub-Gaussian coefficients, around the mean treated above. ``tail`` standard deviations are
exceeded at some root of some of 2^32 such polynomials with probability below 2^-128. That is the
failure bound. It assumes that ciphertexts look uniform, which is the assumption their security
rests on, and that the digits and remainders of products do too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from encryptedstats.errors import ArgumentError

Scheme = Literal["bgv", "bfv"]

FAILURE_BITS: Final = 128  # decryption fails with probability at most 2^-FAILURE_BITS ...
POLYNOMIALS_BITS: Final = (
    32  # ... over a whole computation that meets up to 2^POLYNOMIALS_BITS random polynomials
)
ERROR_DEVIATION: Final = math.sqrt(10.5)  # SEAL's centred binomial error: 21 bits minus 21 bits
SECRET_VARIANCE: Final = 2 / 3  # uniform ternary
UNIFORM_DEVIATION: Final = math.sqrt(1 / 12)  # of a uniform number on an interval of length 1
# |z| > r forces the projection of z on one of 64 directions above r cos(pi/64): a rigorous tail for
# complex sums.
_DIRECTIONS: Final = 64


@dataclass(frozen=True)
class Noise:
    """A bound on the noise of a ciphertext, with the facts that decide what the next operation
    adds.

    Attributes
    ----------
    flat, peak : float
        The bound is ``flat`` plus ``peak`` times weights 1, 1/3, 1/5, ... on the pairs of roots, in
        some order.
    level : int
        How many data primes have been dropped by modulus switching.
    size : int
        Number of polynomials: 2 when fresh or relinearised, 3 after a product.
    """

    flat: float
    peak: float = 0.0
    level: int = 0
    size: int = 2

    # Spelt out: dataclasses.replace takes several times as long, and plans ask for millions.

    def __mul__(self, other: Noise) -> Noise:
        peak = self.flat * other.peak + self.peak * other.flat + self.peak * other.peak
        return Noise(self.flat * other.flat, peak, self.level, self.size)

    def __add__(self, other: Noise) -> Noise:
        return Noise(
            self.flat + other.flat, self.peak + other.peak, self.level, max(self.size, other.size)
        )

    def times(self, factor: float) -> Noise:
        """Return the bound multiplied by a number."""
        return Noise(self.flat * factor, self.peak * factor, self.level, self.size)

    def with_size(self, size: int) -> Noise:
        return Noise(self.flat, self.peak, self.level, size)

    def at(self, level: int) -> Noise:
        """Return the same bound at another level."""
        return Noise(self.flat, self.peak, level, self.size)


class NoiseModel:
    """The noise rules of one set of moduli. Stateless: every method maps bounds to a bound.

    Parameters
    ----------
    scheme : "bgv" or "bfv"
    ring_degree : int
        N, a power of two.
    plain_modulus : int
        t.
    data_moduli : sequence of float
        The data primes, in SEAL's order: switching drops the last one first. Approximate values
        suffice.
    special_modulus : float
        The key-switching prime.
    members : int
        How many secrets and errors the keys are sums of (:mod:`encryptedstats.joint`); 1 for an
        owner's.
    """

    def __init__(
        self,
        scheme: Scheme,
        ring_degree: int,
        plain_modulus: float,
        data_moduli: Sequence[float],
        special_modulus: float,
        members: int = 1,
    ) -> None:
        self.scheme = scheme
        self.members = members
        self.ring_degree = ring_degree
        self.plain_modulus = float(plain_modulus)
        self.data_moduli = tuple(float(q) for q in data_moduli)
        self.special_modulus = float(special_modulus)
        # What operations add whatever they are applied to: asked for again and again, so
        # remembered.
        self._key_switches: dict[tuple[int, str], Noise] = {}
        self._divisions: dict[tuple[int, int], Noise] = {}
        self._product_levels: dict[tuple[Noise, Noise], int] = {}

    # -- building blocks: what is known of a random polynomial at every root
    # --------------------------------------

    @cached_property
    def tail(self) -> float:
        """The number of standard deviations that no random polynomial exceeds at any root, but for
        the failure probability.
        """
        events = FAILURE_BITS + POLYNOMIALS_BITS + math.log2(_DIRECTIONS * self.ring_degree / 2)
        return math.sqrt(math.log(2) * events) / math.cos(math.pi / _DIRECTIONS)

    def _random(self, deviation: float) -> float:
        return self.tail * deviation * math.sqrt(self.ring_degree)

    @cached_property
    def _secret(self) -> float:
        return self._random(math.sqrt(self.members * SECRET_VARIANCE))

    @cached_property
    def _error(self) -> float:
        return self._random(ERROR_DEVIATION)

    @cached_property
    def _key_error(self) -> float:
        """The error of a public or Galois key: the sum of the members' errors."""
        return self._random(math.sqrt(self.members) * ERROR_DEVIATION)

    @cached_property
    def _relinearisation_error(self) -> float:
        """The error of a relinearisation key.

        For several members it is s e0 + u e1 + e2 with a second secret u, where e2 is three errors
        a member: docs/explanation/threshold.md.
        """
        if self.members == 1:
            return self._error
        return (2 * self._secret + math.sqrt(3)) * self._key_error

    def _centred_polynomial(self, width: float) -> Noise:
        """Bound a polynomial with coefficients uniform on an interval of this width around 0."""
        return Noise(width * self._random(UNIFORM_DEVIATION))

    def _floor_polynomial(self, width: float) -> Noise:
        """Bound a polynomial with coefficients uniform on [0, width), around the mean width/2 (1 +
        X + ...).
        """
        # At the k-th root the mean is width/2 / sin x with x = (2k+1) pi/2N, and 1/sin x <= 1/x +
        # 0.37 up to pi/2.
        mean = Noise(0.2 * width, peak=width * self.ring_degree / math.pi)
        return self._centred_polynomial(width) + mean

    def _powers_of_secret(self, size: int) -> float:
        return sum(self._secret**k for k in range(size))

    def _division_error(self, level: int, size: int = 2) -> Noise:
        """Bound what dividing the polynomials of a ciphertext by a prime adds.

        BGV's remainders are multiples of t in [0, t).
        """
        if (level, size) not in self._divisions:
            error = (
                self._floor_polynomial(self.plain_modulus)
                if self.scheme == "bgv"
                else self._centred_polynomial(self.unit(level))
            )
            self._divisions[level, size] = error.times(self._powers_of_secret(size))
        return self._divisions[level, size]

    # -- limits
    # --------------------------------------------------------------------------------------------

    @property
    def levels(self) -> int:
        """The number of data primes."""
        return len(self.data_moduli)

    def modulus(self, level: int) -> float:
        """Return q after ``level`` switches."""
        return math.prod(self.data_moduli[: self.levels - level])

    def unit(self, level: int) -> float:
        """Return what an error of size 1 in the ciphertext adds to the noise: t for BGV, t/q for
        BFV.
        """
        return self.plain_modulus / (self.modulus(level) if self.scheme == "bfv" else 1.0)

    def coefficient_bound(self, noise: Noise) -> float:
        """Bound the largest coefficient: coefficients are averages over the roots."""
        mean_weight = (math.log(self.ring_degree) + 3) / self.ring_degree
        return noise.flat + noise.peak * mean_weight

    def budget(self, noise: Noise) -> float:
        """Return the noise budget in bits. Less than 1 is not accepted as proven."""
        limit = 0.5 * (self.modulus(noise.level) if self.scheme == "bgv" else 1.0)
        bound = self.coefficient_bound(noise)
        return math.log2(limit) - math.log2(bound) if math.isfinite(bound) else -math.inf

    def decrypts(self, noise: Noise) -> bool:
        """Return True if decryption is proven, with one bit to spare for SEAL's own arithmetic."""
        return self.budget(noise) >= 1.0

    # -- operations
    # --------------------------------------------------------------------------------------------

    def message(self, *, constant: bool = False) -> float:
        """Bound an encoded message at a root: SEAL keeps coefficients in [0, t)."""
        return self.plain_modulus * (1 if constant else self.ring_degree)

    def _encoding_error(self, *, constant: bool, level: int) -> Noise:
        """Bound the noise that a message itself adds: itself in BGV, the rounding of q/t times it
        in BFV.
        """
        if self.scheme == "bgv":
            return Noise(self.message(constant=constant), level=level)
        return Noise(self.unit(level) * (1 if constant else self.ring_degree), level=level)

    def fresh(self, *, with_secret_key: bool, constant: bool = False) -> Noise:
        """Bound a new ciphertext, under the secret key (one error) or the public key (divided by
        the special prime).
        """
        if with_secret_key:
            error = Noise(self._key_error * self.unit(0))  # a public key is such a ciphertext too
        else:
            # e0 + e1 s with the secret of all, and the public key's error of all with one secret of
            # who encrypts: as large.
            raw = self._error * (1 + 2 * self._secret) / self.special_modulus
            error = Noise(raw * self.unit(0)) + self._division_error(level=0)
        return error + self._encoding_error(constant=constant, level=0)

    def add(self, a: Noise, b: Noise) -> Noise:
        """Sum or difference. Both must be at one level."""
        if a.level != b.level:
            raise ArgumentError(
                f"operands at levels {a.level} and {b.level}: switch to a common one first",
                code="different-levels",
            )
        return a + b

    def sum(self, a: Noise, terms: int) -> Noise:
        """Bound a sum of ``terms`` ciphertexts that are all bounded by ``a``."""
        return a.times(terms)

    def add_plain(self, a: Noise, *, constant: bool = False) -> Noise:
        """Bound the sum with a plain message."""
        return a + self._encoding_error(constant=constant, level=a.level)

    def multiply_plain(self, a: Noise, norm: float) -> Noise:
        """Bound the product with a plain polynomial that is at most ``norm`` at every root.

        For a constant k from 0 on, the norm is k.
        """
        return a.times(max(norm, 1.0))

    def multiply(self, a: Noise, b: Noise) -> Noise:
        """Bound a product at one level, before relinearisation."""
        if a.level != b.level:
            raise ArgumentError(
                f"operands at levels {a.level} and {b.level}: switch to a common one first",
                code="different-levels",
            )
        size = a.size + b.size - 1
        if self.scheme == "bgv":
            return (a * b).with_size(size)
        return self._bfv_product(a, b).with_size(size)

    def _bfv_product(self, a: Noise, b: Noise) -> Noise:
        # (t/q) c(s) = M + v with M = m mod t, M below t/q times ciphertexts that are uniform modulo
        # q.
        whole_a = self._centred_polynomial(self.plain_modulus).times(self._powers_of_secret(a.size))
        whole_b = self._centred_polynomial(self.plain_modulus).times(self._powers_of_secret(b.size))
        # BEHZ base conversion is off by up to one unit a prime, in every coefficient of every
        # component.
        conversion = (
            (self.levels + 1) * self.ring_degree * self._powers_of_secret(a.size + b.size - 1)
        )
        cross = (whole_a * b + whole_b * a + a * b).at(a.level)
        return cross + Noise(self.unit(a.level) * conversion)

    def key_switch(self, a: Noise) -> Noise:
        """Bound a rotation: digits times key errors, divided by the special prime."""
        return a + self._switching_error("galois", a.level)

    def _switching_error(self, key: Literal["galois", "relinearisation"], level: int) -> Noise:
        if (level, key) not in self._key_switches:
            digits = self._floor_polynomial(sum(self.data_moduli[: self.levels - level]))
            error = self._key_error if key == "galois" else self._relinearisation_error
            switched = digits.times(error * self.unit(level) / self.special_modulus)
            self._key_switches[level, key] = switched + self._division_error(level)
        return self._key_switches[level, key]

    def relinearise(self, a: Noise) -> Noise:
        """Bound a relinearisation from any size down to 2.

        Each step's error is multiplied by one power of the secret less than the component it
        removed.
        """
        for k in range(a.size - 1, 1, -1):
            extra = self._switching_error("relinearisation", a.level).times(self._secret ** (k - 2))
            a = (a + extra).with_size(k)
        return a

    def rounding(self, size: int, level: int = 0) -> Noise:
        """Bound what dividing a ciphertext of this size by a prime leaves, however little noise it
        had.
        """
        return self._division_error(level, size).at(level).with_size(size)

    def switch(self, a: Noise, level: int) -> Noise:
        """Bound modulus switching down to ``level``, one prime after the other."""
        while a.level < level:
            prime = self.data_moduli[self.levels - a.level - 1]
            shrunk = a.times(1 / prime) if self.scheme == "bgv" else a
            a = shrunk.at(a.level + 1) + self._division_error(a.level + 1, a.size)
        return a

    def best_product_level(self, a: Noise, b: Noise) -> int:
        """Return the level at which multiplying ``a`` by ``b`` leaves the largest budget.

        BFV gains nothing by switching.
        """
        lowest = max(a.level, b.level)
        if self.scheme == "bfv":
            return lowest
        if (a, b) not in self._product_levels:
            self._product_levels[a, b] = self._best_product_level(a, b, lowest)
        return self._product_levels[a, b]

    def _best_product_level(self, a: Noise, b: Noise, lowest: int) -> int:
        best, largest = lowest, -math.inf
        for level in range(lowest, self.levels):
            a, b = self.switch(a, level), self.switch(b, level)
            budget = self.budget(self.relinearise(self.multiply(a, b)))
            if budget > largest:
                best, largest = level, budget
        return best

    def product(self, a: Noise, b: Noise) -> Noise:
        """Bound a product as the library computes it: operands relinearised and at the best level,
        the result left at size 3.
        """
        a, b = self.relinearise(a), self.relinearise(b)
        level = self.best_product_level(a, b)
        return self.multiply(self.switch(a, level), self.switch(b, level))

    # -- the promise
    # --------------------------------------------------------------------------------------------

    def promised_noise(self, depth: int, terms: int) -> Noise:
        """Bound a sum of ``terms`` products at this depth of the promised circuit."""
        noise = self.fresh(with_secret_key=False)
        if depth == 0:
            return self.sum(noise, terms)
        for _ in range(depth):
            noise = self.relinearise(self.sum(self.product(noise, noise), terms))
        return noise

    def proven_depth(self, terms: int, at_most: int = 64) -> int:
        """Return the largest depth (up to ``at_most``) that is proven to decrypt.

        Returns -1 where not even encryption is. The promised circuit is public-key encryption with
        all slots in use, then at each level a sum of ``terms`` products.
        """
        noise = self.fresh(with_secret_key=False)
        if not self.decrypts(self.sum(noise, terms)):
            return 0 if at_most > 0 and self.decrypts(noise) else -1
        for depth in range(at_most + 1):
            if not self.decrypts(noise):
                return depth - 1
            if depth < at_most:
                noise = self.relinearise(self.sum(self.product(noise, noise), terms))
        return at_most
