"""The noise model against SEAL: what it accepts decrypts, and its bound is above the measured noise
every time.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import seal
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.noise import Noise, NoiseModel
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import InsecureParametersWarning
from error_codes import error

SCHEMES = ("bgv", "bfv")


@dataclass
class Lab:
    """Keys of one set of parameters, with SEAL's own measure of noise."""

    parameters: Parameters

    def __post_init__(self) -> None:
        self.engine = engine_for(self.parameters)
        generator = seal.KeyGenerator(self.engine.context)
        secret, public = generator.secret_key(), generator.create_public_key()
        self.relin = generator.create_relin_keys()
        self.galois = seal.GaloisKeys()
        generator.create_galois_keys([1], self.galois)
        self.encryptor = seal.Encryptor(self.engine.context, public, secret)
        self.decryptor = seal.Decryptor(self.engine.context, secret)
        self.model = self.parameters.noise

    def encrypt(self, values: np.ndarray, *, with_secret_key: bool) -> Tracked:
        plain = self.engine.encoder.encode(values.astype(np.int64))
        encrypt = self.encryptor.encrypt_symmetric if with_secret_key else self.encryptor.encrypt
        return Tracked(
            self, encrypt(plain), self.model.fresh(with_secret_key=with_secret_key), values
        )


@dataclass
class Tracked:
    """A ciphertext beside its predicted noise and its clear values."""

    lab: Lab
    ciphertext: Any
    noise: Noise
    values: np.ndarray

    @property
    def _evaluator(self) -> Any:
        return self.lab.engine.evaluator

    def __add__(self, other: Tracked) -> Tracked:
        level = max(self.noise.level, other.noise.level)
        a, b = self.at(level), other.at(level)
        noise = self.lab.model.add(a.noise, b.noise)
        return Tracked(
            self.lab, self._evaluator.add(a.ciphertext, b.ciphertext), noise, a.values + b.values
        )

    def __mul__(self, other: Tracked) -> Tracked:
        a, b = self.relinearised(), other.relinearised()
        level = self.lab.model.best_product_level(a.noise, b.noise)
        a, b = a.at(level), b.at(level)
        return a.raw_product(b)

    def raw_product(self, other: Tracked) -> Tracked:
        noise = self.lab.model.multiply(self.noise, other.noise)
        product = self._evaluator.multiply(self.ciphertext, other.ciphertext)
        return Tracked(self.lab, product, noise, self.values * other.values)

    def relinearised(self) -> Tracked:
        if self.noise.size == 2:
            return self
        ciphertext = self._evaluator.relinearize(self.ciphertext, self.lab.relin)
        return replace(self, ciphertext=ciphertext, noise=self.lab.model.relinearise(self.noise))

    def rotated(self) -> Tracked:
        ciphertext = self._evaluator.rotate_rows(self.ciphertext, 1, self.lab.galois)
        half = len(self.values) // 2
        values = np.concatenate([np.roll(self.values[:half], -1), np.roll(self.values[half:], -1)])
        return Tracked(self.lab, ciphertext, self.lab.model.key_switch(self.noise), values)

    def scaled(self, factor: int) -> Tracked:
        plain = self.lab.engine.encode_integer(factor)
        ciphertext = self._evaluator.multiply_plain(self.ciphertext, plain)
        noise = self.lab.model.multiply_plain(self.noise, abs(factor))
        return Tracked(self.lab, ciphertext, noise, self.values * factor)

    def shifted(self, other: np.ndarray) -> Tracked:
        plain = self.lab.engine.encoder.encode(other.astype(np.int64))
        ciphertext = self._evaluator.add_plain(self.ciphertext, plain)
        return Tracked(
            self.lab, ciphertext, self.lab.model.add_plain(self.noise), self.values + other
        )

    def at(self, level: int) -> Tracked:
        if level == self.noise.level:
            return self
        ciphertext = self._evaluator.mod_switch_to(
            self.ciphertext, self.lab.engine.level_ids[level]
        )
        return replace(self, ciphertext=ciphertext, noise=self.lab.model.switch(self.noise, level))

    def check(self) -> float:
        """Decrypts to the clear values modulo t; returns by how many bits the bound was too
        careful.
        """
        t = self.lab.parameters.plain_modulus
        found = self.lab.engine.encoder.decode(self.lab.decryptor.decrypt(self.ciphertext))
        assert np.array_equal(np.mod(found, t), np.mod(self.values, t))
        slack = self.lab.decryptor.invariant_noise_budget(self.ciphertext) - self.lab.model.budget(
            self.noise
        )
        assert slack > -1, (
            "SEAL measures more noise than was proven possible (it rounds down to whole bits)"
        )
        return slack


def random_values(lab: Lab, seed: int) -> np.ndarray:
    """All slots in use, all values of the ring of plaintexts."""
    t = lab.parameters.plain_modulus
    return np.random.default_rng(seed).integers(0, t, lab.parameters.slots).astype(object) - t // 2


def small_lab(scheme: str) -> Lab:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureParametersWarning)
        return Lab(
            Parameters.from_bits(scheme, 1024, 4000, (40, 40, 40, 40, 40), allow_insecure=True)
        )


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("key", range(3))
def test_promised_depth_decrypts_at_the_limit(scheme: str, depth: int, key: int) -> None:
    """Repeated squaring of sums as wide as promised, public-key encryption, every slot in use,
    fresh keys each time.
    """
    lab = Lab(Parameters.choose(max_value=65_536, depth=depth, scheme=scheme))
    x = lab.encrypt(random_values(lab, key), with_secret_key=False)
    for _ in range(depth):
        square = x * x
        # The sum of 64 equal ciphertexts is the worst sum of 64 there is; six doublings give it.
        for _ in range(int(math.log2(lab.parameters.terms))):
            square = square + square
        x = square.relinearised()
    assert lab.model.decrypts(x.noise)
    x.check()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", range(2, 6))
def test_products_without_relinearisation(scheme: str, size: int) -> None:
    """Sizes 3, 4, 5: what a forest's fit leaves, also after switching the modulus."""
    lab = small_lab(scheme)
    factors = [lab.encrypt(random_values(lab, i), with_secret_key=True) for i in range(size - 1)]
    product = factors[0]
    for factor in factors[1:]:
        product = product.raw_product(factor)
    assert product.ciphertext.size() == product.noise.size == size
    if lab.model.decrypts(product.noise):
        product.check()
        if lab.model.decrypts(lab.model.switch(product.noise, 1)):
            product.at(1).check()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bound_is_not_absurdly_careful(scheme: str) -> None:
    """A bound nobody can use is no use: at the promised depth it costs at most 20 bits a level."""
    lab = Lab(Parameters.choose(max_value=65_536, depth=2, scheme=scheme))
    x = lab.encrypt(random_values(lab, 1), with_secret_key=False)
    assert 0 < x.check() < 20
    y = (x * x).relinearised()
    assert 0 < y.check() < 30
    assert 0 < (y * y).relinearised().check() < 45


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_random_programs_stay_within_their_bound(scheme: str, data: st.DataObject) -> None:
    """Random sequences of all operations: the bound is above the measured noise after each, and
    values are right.
    """
    lab = small_lab(scheme)
    pool = [
        lab.encrypt(
            random_values(lab, data.draw(st.integers(0, 9))),
            with_secret_key=data.draw(st.booleans()),
        )
        for _ in range(2)
    ]
    for _ in range(data.draw(st.integers(1, 6))):
        result = _random_operation(lab, data, pool)
        if lab.model.decrypts(result.noise):
            result.check()
            pool.append(result)


def _random_operation(lab: Lab, data: st.DataObject, pool: list[Tracked]) -> Tracked:
    x, y = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
    name = data.draw(
        st.sampled_from(["add", "multiply", "scale", "shift", "rotate", "switch", "relinearise"])
    )
    if name == "add":
        return x + y
    if name == "multiply":
        return x * y
    if name == "scale":
        return x.scaled(data.draw(st.integers(1, 4000)))
    if name == "shift":
        return x.shifted(random_values(lab, data.draw(st.integers(0, 9))))
    if name == "rotate":
        return x.relinearised().rotated()
    if name == "switch":
        return x.at(min(x.noise.level + 1, lab.model.levels - 1))
    return x.relinearised()


def test_bgv_correction_factors_stay_one() -> None:
    """Data primes are 1 modulo t, so ciphertexts of any history add without balancing."""
    lab = small_lab("bgv")
    x = lab.encrypt(random_values(lab, 1), with_secret_key=True)
    once, twice = (x * x).relinearised().at(2), x.at(2)
    for tracked in (x, once, twice):
        header = tracked.ciphertext.to_string()[:113]
        assert int.from_bytes(header[81:89], "little") == 1
    (once + twice).check()


def test_refused_levels() -> None:
    model = NoiseModel("bgv", 8192, 65537, [2.0**43] * 3, 2.0**44)
    fresh = model.fresh(with_secret_key=True)
    with pytest.raises(ValueError, check=error("different-levels", "0", "1")):
        model.add(fresh, model.switch(fresh, 1))
    with pytest.raises(ValueError, check=error("different-levels", "1", "0")):
        model.multiply(model.switch(fresh, 1), fresh)


def test_secret_key_encryption_has_less_noise() -> None:
    for scheme in SCHEMES:
        model = NoiseModel(scheme, 8192, 65537, [2.0**43] * 3, 2.0**44)
        assert (
            model.budget(model.fresh(with_secret_key=True))
            > model.budget(model.fresh(with_secret_key=False)) + 4
        )


def test_tail_meets_the_failure_bound() -> None:
    """The union bound written out: directions x roots x polynomials x Gaussian tail is below
    2^-128.
    """
    for ring in (1024, 8192, 32768):
        model = NoiseModel("bgv", ring, 65537, [2.0**43], 2.0**44)
        one_direction = (model.tail * math.cos(math.pi / 64)) ** 2 / math.log(2)
        assert math.log2(64 * ring / 2) + 32 - one_direction <= -128 + 1e-9


def test_peaks_are_what_a_floored_mean_has() -> None:
    """|1 + z + ... + z^(N-1)| / 2 at the roots of X^N + 1 is below the bound used for numbers
    rounded down.
    """
    ring = 1024
    model = NoiseModel("bgv", ring, 65537, [2.0**43], 2.0**44)
    roots = np.exp(1j * np.pi * (2 * np.arange(ring // 2) + 1) / ring)
    mean = np.abs(2 / (1 - roots)) / 2
    bound = model._floor_polynomial(1.0)
    without_random = (
        bound.flat
        - model._centred_polynomial(1.0).flat
        + bound.peak / (2 * np.arange(ring // 2) + 1)
    )
    assert np.all(mean <= without_random)
    weights = 1 / (2 * np.arange(ring // 2) + 1)
    assert weights.mean() <= (math.log(ring) + 3) / ring
