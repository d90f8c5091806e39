"""Bounds of coefficients: against polynomials that reach them, and against SEAL's own noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import encryptedstats as es
from encryptedstats.circuits.coefficients import Norms, bound_coefficients
from encryptedstats.circuits.expressions import Expression, column
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.program import Step
from encryptedstats.circuits.spot_plan import lower_sums
from encryptedstats.crypto.noise import ERROR_DEVIATION, FAILURE_BITS, POLYNOMIALS_BITS
from encryptedstats.crypto.parameters import Parameters
from insecure import insecure_parameters

RING = 64
A, B = column("a"), column("b")


def times(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the product modulo X^N + 1."""
    whole = np.convolve(a, b)
    found = whole[:RING].copy()
    found[: RING - 1] -= whole[RING:]
    return found


def norms_of(polynomial: NDArray[np.int64]) -> Norms:
    twisted = polynomial * np.exp(1j * np.pi * np.arange(RING) / RING)
    return Norms(
        float(abs(np.fft.fft(twisted)).max()),
        math.sqrt(float((polynomial**2).sum())),
        float(abs(polynomial).max()),
    )


def conjugate(polynomial: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the polynomial at 1/X: the constant coefficient of the product is the sum of
    squares.
    """
    found = -polynomial[::-1]
    return np.concatenate([polynomial[:1], found[:-1]])


def assert_below(found: Norms, bound: Norms) -> None:
    assert found.roots <= bound.roots * (1 + 1e-9)
    assert found.euclidean <= bound.euclidean * (1 + 1e-9)
    assert found.largest <= bound.largest * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_products_and_sums_stay_below_their_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-(10**k), 10**k, RING) for k in rng.integers(1, 4, 2))
    assert_below(norms_of(times(a, b)), norms_of(a) * norms_of(b))
    assert_below(norms_of(a + b), norms_of(a) + norms_of(b))
    assert_below(norms_of(7 * a), norms_of(a).times(7))
    shifted = times(a, np.eye(RING, dtype=np.int64)[5])
    assert norms_of(shifted).largest == norms_of(a).largest
    assert norms_of(shifted).euclidean == norms_of(a).euclidean


def test_bounds_of_products_are_reached() -> None:
    a = np.random.default_rng(1).integers(-9, 10, RING)
    one = np.eye(RING, dtype=np.int64)[0]
    reached = norms_of(times(a, conjugate(a)))
    assert reached.largest == pytest.approx((norms_of(a) * norms_of(conjugate(a))).largest)
    for product in (norms_of(3 * one) * norms_of(a), norms_of(a) * norms_of(3 * one)):
        assert norms_of(3 * a).euclidean == pytest.approx(product.euclidean)


# -- bounds of steps -------------------------------------------------------------------------------


def _sum_of(expression: Expression, parameters: Parameters, chunks: int = 1) -> Step:
    layout = Layout(chunks * parameters.slots, parameters.slots)
    (output,) = lower_sums([expression.total()], parameters, layout)
    return output.step


def _bound(expression: Expression, parameters: Parameters, chunks: int = 1) -> float:
    step = _sum_of(expression, parameters, chunks)
    return bound_coefficients([step], parameters, chunks)[step]


@pytest.fixture(scope="module")
def parameters() -> Parameters:
    return insecure_parameters("bgv", 1 << 16, (50,) * 5)


def test_fresh_columns_have_the_largest_error_of_seal(parameters: Parameters) -> None:
    assert _bound(A, parameters) == 22 * parameters.plain_modulus


def test_an_error_is_as_long_as_is_assumed() -> None:
    """The square of its norm exceeds twice its mean with probability (2/e)^(N/2) at most."""
    exponent = 1024 / 2 * math.log2(math.e / 2)
    assert exponent > FAILURE_BITS + POLYNOMIALS_BITS
    errors = np.random.default_rng(3).binomial(42, 0.5, (2000, 1024)) - 21
    norms = np.sqrt((errors**2).sum(axis=1))
    assert norms.max() < math.sqrt(2 * 1024) * ERROR_DEVIATION


def test_bounds_of_steps_follow_from_their_columns(parameters: Parameters) -> None:
    t, ring = parameters.plain_modulus, parameters.ring_degree
    long = t * math.sqrt(ring) * (1 + math.sqrt(2) * ERROR_DEVIATION)
    roots = parameters.noise.fresh(with_secret_key=True).flat
    assert _bound(A * B, parameters) == pytest.approx(long**2)
    assert _bound(A * B * A, parameters) == pytest.approx(roots * long**2)
    assert _bound(A * B, parameters, chunks=3) == pytest.approx(3 * long**2)
    assert _bound(5 * A - 3 * B, parameters) == pytest.approx(8 * 22 * t)
    with_constant = _bound((A + 2) * B, parameters)
    assert with_constant == pytest.approx((long + t) * long)


def test_bounds_are_sharper_than_those_of_roots(parameters: Parameters) -> None:
    for expression in (A, A * B, A * B * A, (A + 1) * (B - 2)):
        step = _sum_of(expression, parameters)
        assert _bound(expression, parameters) < parameters.noise.coefficient_bound(step.noise) / 16


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_noise_that_seal_measures_is_below(parameters: Parameters, degree: int) -> None:
    owner = es.Owner(parameters)
    rng = np.random.default_rng(degree)
    engine = owner.public_keys().engine
    q_bits = math.prod(parameters.data_moduli).bit_length()
    expression = A
    for _ in range(degree - 1):
        expression = expression * B
    for _ in range(5):
        values = rng.integers(0, 2, parameters.slots)
        made = [owner._encryptor.encrypt(engine.encoder.encode(values))[0] for _ in range(degree)]
        product = made[0]
        for one in made[1:]:
            product = engine.evaluator.multiply(product, one)
        largest = q_bits - 1 - owner.decryptor.measure_budget(product)
        assert largest <= math.log2(_bound(expression, parameters)) + 1
        assert largest >= math.log2(_bound(expression, parameters)) - 16
