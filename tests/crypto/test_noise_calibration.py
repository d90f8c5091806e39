"""Every rule of the noise model against the noise itself, seen with the secret: not larger than the
rule says, nor much smaller.

A bound alone cannot be seen to miss a term as long as another one covers for it. So each operation
is applied where one term dominates (noise to order, primes to order), what it adds is measured at
the roots of X^N + 1, and is compared with the model for one standard deviation (``tail`` 1) and
this secret. Rules that are worst cases are met with their worst case.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import seal
from noise_samples import (
    RING,
    WEIGHTS,
    Exact,
    NoiseLab,
    Polynomial,
    Ratios,
    at_roots,
    constant,
    lab_parameters,
    polynomial,
    real_parts,
)

from encryptedstats.circuits.devices.batches import expand_totals
from encryptedstats.circuits.devices.seal import SealPacking, relinearise_any
from encryptedstats.circuits.results import EncryptedNumbers, NumberFacts, Part
from encryptedstats.crypto.noise import ERROR_DEVIATION, SECRET_VARIANCE, Noise, NoiseModel
from encryptedstats.crypto.packing import expanded_noise, packed_noise, packing_places
from encryptedstats.crypto.residues import ciphertext_of, residues_of

SCHEMES = ("bgv", "bfv")
KEYS = 3
# The key-switching prime last: large, so that a key switch adds what its division leaves; small, so
# that it adds digits x errors.
CHAINS = {"division": (42, 40, 44, 50), "digits": (60, 60, 60, 42)}
PACKING_CHAIN = (50, 50, 50, 50)
LEVELS = range(3)
ZERO = constant(0)
# Three keys and 512 roots: the root mean square of what is as large as predicted is within a
# twentieth but once in a billion runs.
MOST = 1.05


@cache
def lab(
    scheme: str, chain: tuple[int, ...], key: int = 0, kept_primes: int | None = None
) -> NoiseLab:
    return NoiseLab(lab_parameters(scheme, chain, kept_primes), key)


def labs(scheme: str, chain: tuple[int, ...] = CHAINS["division"]) -> list[NoiseLab]:
    return [lab(scheme, chain, key) for key in range(KEYS)]


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return request.param


def random_phase(lab: NoiseLab, largest: int) -> Polynomial:
    return polynomial(lab.random.integers(-largest, largest + 1, RING))


def known(noise: Exact, **facts: int) -> Noise:
    """A bound that is exact: what the noise is at every root."""
    return Noise(np.abs(noise.at_roots), **facts)


def typical(model: NoiseModel) -> NoiseModel:
    """With one standard deviation for its tail, and any secret."""
    model.__dict__["tail"] = 1.0
    return model


# -- the instrument
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4])
def test_noise_to_order_is_what_is_measured(scheme: str, size: int) -> None:
    one = labs(scheme)[0]
    for level in LEVELS:
        phase = random_phase(one, 1 << 20)
        assert (one.phase(one.made(phase, size=size, level=level)) == phase).all()


def test_measured_noise_leaves_the_budget_that_seal_measures(scheme: str) -> None:
    one = labs(scheme)[0]
    ciphertext = one.encrypted(one.engine.encode_integer(5), with_secret_key=False)
    noise = one.noise(ciphertext)
    limit = (
        math.prod(one.parameters.data_moduli) // 2 if scheme == "bgv" else noise.denominator // 2
    )
    largest = max(abs(int(n)) for n in noise.numerators)
    if scheme == "bgv":  # SEAL looks at what is left after the message
        assert (noise.numerators % one.parameters.plain_modulus == [5] + [0] * (RING - 1)).all()
    assert abs(math.log2(limit / largest) - one.decryptor.invariant_noise_budget(ciphertext)) < 1.1


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_the_limit_is_where_decryption_fails(scheme: str, inside: bool) -> None:
    """Budget 0 is exactly there: the message 0 with one coefficient of noise just below the limit,
    and just above.
    """
    one = labs(scheme)[0]
    for level in LEVELS:
        primes = one.parameters.data_moduli[: len(one.parameters.data_moduli) - level]
        q, t = math.prod(primes), one.parameters.plain_modulus
        limit = q // 2 if scheme == "bgv" else q // (2 * t)
        phase = limit + (-1 if inside else 1) * (limit // 100)  # decryption works in doubles
        if scheme == "bgv":
            phase -= phase % t
        plain = one.decryptor.decrypt(one.made(constant(phase), level=level))
        assert (plain.to_string() == "0") == inside
        noise = float(phase) if scheme == "bgv" else t * phase / q
        assert one.typical.budget(Noise(noise, level=level)) == pytest.approx(0, abs=0.02)


def test_a_coefficient_is_an_average_over_the_roots() -> None:
    """One polynomial has its whole bound in one coefficient: the constants, and what is a peak's
    weight at every root.
    """
    model = labs("bgv")[0].typical
    assert model.coefficient_bound(Noise(7.0)) == 7.0
    assert 0.7 < WEIGHTS.mean() / model.coefficient_bound(Noise(0.0, peak=1.0)) <= 1


# -- what is random
# ------------------------------------------------------------------------------------------------


def test_secrets(scheme: str) -> None:
    squares = [one.secret_at_roots**2 for one in labs(scheme)]
    model = typical(NoiseModel(scheme, RING, 12289, [2.0**40], 2.0**40))
    assert np.sqrt(np.mean(squares)) / model._secret == pytest.approx(1, abs=0.08)


@pytest.mark.parametrize("with_secret_key", [True, False], ids=["secret", "public"])
def test_encryption(scheme: str, with_secret_key: bool) -> None:
    ratios = Ratios()
    for one in labs(scheme):
        for value in (0, 1):
            predicted = one.typical.fresh(with_secret_key=with_secret_key, constant=True)
            ratios.add(
                one.noise(
                    one.encrypted(one.engine.encode_integer(value), with_secret_key=with_secret_key)
                ),
                predicted,
            )
    assert 0.75 < ratios.everywhere < MOST, ratios
    if scheme == "bgv" and not with_secret_key:
        assert 0.6 < ratios.next_to_one < MOST, ratios


def test_errors_of_public_key_encryption_before_they_are_divided() -> None:
    """Next to nothing once divided by any prime that there is, so drawn here: -e u + e_0 + e_1 s,
    against p = 1 and no rounding.
    """
    rng, model = np.random.default_rng(1), typical(NoiseModel("bfv", RING, 12289, [12289.0], 1.0))

    def drawn(variance: float) -> np.ndarray:
        return at_roots(rng.normal(0, math.sqrt(variance), RING))

    e, e0, e1 = (drawn(ERROR_DEVIATION**2) for _ in range(3))
    u, s = (drawn(SECRET_VARIANCE) for _ in range(2))
    measured = np.sqrt(np.mean(np.abs(-e * u + e0 + e1 * s) ** 2))
    predicted = model.fresh(with_secret_key=False, constant=True).flat - model.rounding(2).flat - 1
    assert 0.6 < measured / predicted < MOST


@pytest.mark.parametrize("root", [0, 3, 500])
def test_messages_at_their_worst(scheme: str, root: int) -> None:
    """Coefficients of the signs that add up at one root reach 2/pi of a bound that takes them to
    have its direction; and SEAL's are around 0, so half as large: messages below t/2, roundings
    below 1/2.
    """
    added, encrypted = Ratios(), Ratios()
    for one in labs(scheme):
        plain = _worst_message(one, root)
        added.add(
            one.noise(one.engine.evaluator.add_plain(one.made(ZERO), plain)),
            one.typical.add_plain(Noise(0.0)),
        )
        for with_secret_key in (True, False):
            predicted = one.typical.fresh(with_secret_key=with_secret_key)
            encrypted.add(
                one.noise(one.encrypted(plain, with_secret_key=with_secret_key)), predicted
            )
    assert 0.3 < added.at(root) < 0.35, added.at(root)
    assert 0.1 < encrypted.at(root) < MOST, encrypted.at(root)


def _worst_message(lab: NoiseLab, root: int) -> Any:
    half = lab.parameters.plain_modulus // 2
    least, most = (
        _worst_roundings(lab) if lab.parameters.scheme == "bfv" else (half + 1, half)
    )  # which SEAL centres
    coefficients = np.where(real_parts(root) > 0, most, least)
    terms = [f"{c:X}x^{power}" for power, c in enumerate(coefficients) if power]
    return seal.Plaintext(" + ".join([*reversed(terms), f"{coefficients[0]:X}"]))


def _worst_roundings(lab: NoiseLab) -> tuple[int, int]:
    """The messages whose q m / t is rounded down the most, and up the most."""
    q, t = math.prod(lab.parameters.data_moduli), lab.parameters.plain_modulus
    remainders = [q * m % t for m in range(t)]
    return remainders.index(t // 2 - 1), remainders.index(t // 2)


def test_a_single_integer_at_its_worst(scheme: str) -> None:
    one, ratios = labs(scheme)[0], Ratios()
    value = one.parameters.max_value if scheme == "bgv" else _worst_roundings(one)[0]
    sum_ = one.engine.evaluator.add_plain(one.made(ZERO), one.engine.encode_integer(value))
    ratios.add(one.noise(sum_), one.typical.add_plain(Noise(0.0), constant=True))
    assert 0.45 < ratios.everywhere <= 1


# -- sums and products
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_sums(scheme: str, level: int) -> None:
    """Copies of one ciphertext are the worst there is."""
    one = labs(scheme)[0]
    a = one.made(random_phase(one, 1 << 16), level=level)
    noise, evaluator, model = known(one.noise(a), level=level), one.engine.evaluator, one.typical
    for computed, predicted in (
        (evaluator.add(a, a), model.add(noise, noise)),
        (evaluator.sub(a, evaluator.negate(a)), model.add(noise, noise)),
        (evaluator.add_many([a] * 64), model.sum(noise, 64)),
        (evaluator.multiply_plain(a, one.engine.encode_integer(3)), model.multiply_plain(noise, 3)),
        (evaluator.multiply_plain(a, seal.Plaintext("1x^7")), model.multiply_plain(noise, 1)),
    ):
        assert _ratio(one.noise(computed), predicted) == pytest.approx(1)


def _ratio(measured: Exact, predicted: Noise) -> float:
    ratios = Ratios()
    ratios.add(measured, predicted)
    return ratios.everywhere


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (3, 3)])
def test_bgv_products(level: int, sizes: tuple[int, int]) -> None:
    one = labs("bgv")[0]
    a, b = (one.made(random_phase(one, 1 << 10), size=size, level=level) for size in sizes)
    noise_a, noise_b = (
        known(one.noise(x), size=size, level=level) for x, size in zip((a, b), sizes, strict=True)
    )
    product, predicted = one.engine.evaluator.multiply(a, b), one.typical.multiply(noise_a, noise_b)
    assert product.size() == predicted.size
    assert _ratio(one.noise(product), predicted) == pytest.approx(1)


def test_peaks_multiply() -> None:
    """1 + X + ... has next to its whole bound at the root next to 1, and so have its products."""
    one, ones = labs("bgv")[0], polynomial([1] * RING)
    peak = Noise(0.0, peak=2 * RING / math.pi)
    cases = [
        (ones, peak, ones, peak),
        (ones, peak, constant(100), Noise(100.0)),
        (constant(9), Noise(9.0), ones, peak),
    ]
    for phase_a, noise_a, phase_b, noise_b in cases:
        product = one.engine.evaluator.multiply(one.made(phase_a), one.made(phase_b))
        ratios = Ratios()
        ratios.add(one.noise(product), one.typical.multiply(noise_a, noise_b))
        assert ratios.next_to_one == pytest.approx(1, abs=1e-3)


PRODUCT_SIZES = [(2, 2), (2, 3), (3, 2), (3, 3)]


@pytest.mark.parametrize("sizes", PRODUCT_SIZES)
@pytest.mark.parametrize("noisy", ["first", "second", "both"])
def test_bfv_products_of_what_has_noise(sizes: tuple[int, int], noisy: str) -> None:
    for level in LEVELS[::2]:
        ratios = Ratios()
        for one in labs("bfv", CHAINS["digits"])[:2]:
            phases = [
                random_phase(one, 1 << 10) if noisy in (who, "both") else ZERO
                for who in ("first", "second")
            ]
            a, b = (
                one.made(phase, size=size, level=level)
                for phase, size in zip(phases, sizes, strict=True)
            )
            noises = [
                known(one.noise(x), size=size, level=level)
                for x, size in zip((a, b), sizes, strict=True)
            ]
            ratios.add(
                one.noise(one.engine.evaluator.multiply(a, b)), one.typical.multiply(*noises)
            )
        # Two that are independent add up to less than the sum of both.
        least = 0.55 if noisy == "both" else 0.8
        assert least < ratios.everywhere < MOST, (level, str(ratios))


@pytest.mark.parametrize("sizes", PRODUCT_SIZES)
def test_bfv_products_of_what_has_no_noise(sizes: tuple[int, int]) -> None:
    """All that is left is what SEAL's change of base is off by: a worst case in the model, nearly
    met next to 1 by its mean.
    """
    for level in LEVELS[::2]:
        ratios = Ratios()
        for one in labs("bfv"):
            a, b = (one.made(ZERO, size=size, level=level) for size in sizes)
            predicted = one.typical.multiply(
                *(Noise(0.0, level=level, size=size) for size in sizes)
            )
            ratios.add(one.noise(one.engine.evaluator.multiply(a, b)), predicted)
        assert 0.05 < ratios.next_to_one < 0.4, (level, str(ratios))


def test_what_two_noises_make_together_counts() -> None:
    """With no parameters does it dominate a BFV product before decryption fails, so the rule itself
    is asked.
    """
    model = labs("bfv")[0].typical
    assert model.multiply(Noise(1e30), Noise(1e40)).flat.min() >= 1e70


# -- key switching
# ------------------------------------------------------------------------------------------------


def _independent_digits(one: NoiseLab, chain: str, level: int) -> float:
    """The model adds up the digits of all primes; they are independent, so that k of them are
    sqrt(k) of one.
    """
    return math.sqrt(len(one.parameters.data_moduli) - level) if chain == "digits" else 1.0


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("level", LEVELS)
def test_rotation(scheme: str, chain: str, level: int) -> None:
    ratios = Ratios()
    for one in labs(scheme, CHAINS[chain]):
        rotated = one.keys.evaluator.rotate(one.made(ZERO, level=level), 1)
        ratios.add(one.noise(rotated), one.typical.key_switch(Noise(0.0, level=level)))
    _check_key_switch(ratios, scheme, chain, _independent_digits(one, chain, level))


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("level", LEVELS)
def test_relinearisation(scheme: str, chain: str, size: int, level: int) -> None:
    ratios = Ratios()
    for one in labs(scheme, CHAINS[chain]):
        small = relinearise_any(one.keys, one.made(ZERO, size=size, level=level))
        ratios.add(one.noise(small), one.typical.relinearise(Noise(0.0, level=level, size=size)))
    _check_key_switch(ratios, scheme, chain, _independent_digits(one, chain, level))


def _check_key_switch(ratios: Ratios, scheme: str, chain: str, primes: float) -> None:
    assert 0.6 / primes < ratios.everywhere < MOST / primes, ratios
    if scheme == "bgv" and chain == "division":
        assert 0.4 < ratios.next_to_one < MOST, ratios


# -- modulus switching
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("levels", [(0, 1), (1, 2), (0, 2)])
def test_what_switching_adds(scheme: str, size: int, levels: tuple[int, int]) -> None:
    before, after = levels
    ratios = Ratios()
    for one in labs(scheme):
        switched = one.engine.evaluator.mod_switch_to(
            one.made(ZERO, size=size, level=before), one.engine.level_ids[after]
        )
        predicted = one.typical.switch(Noise(0.0, size=size, level=before), after)
        assert (predicted.level, predicted.size) == (after, size)
        ratios.add(one.noise(switched), predicted)
    assert 0.75 < ratios.everywhere < MOST, ratios
    if scheme == "bgv":
        assert 0.6 < ratios.next_to_one < MOST, ratios


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("levels", [(0, 1), (1, 2), (0, 2)])
def test_what_switching_leaves_of_what_there_was(
    scheme: str, size: int, levels: tuple[int, int]
) -> None:
    """Noise so large that nothing else counts: divided by the prime in BGV, kept in BFV."""
    before, after = levels
    for one in labs(scheme)[:1]:
        primes = one.parameters.data_moduli[: len(one.parameters.data_moduli) - before]
        largest = math.prod(primes) // (
            100 * (one.parameters.plain_modulus if scheme == "bfv" else 1)
        )
        phase = polynomial(int(x * largest) for x in one.random.uniform(-1, 1, RING))
        a = one.made(phase, size=size, level=before)
        switched = one.engine.evaluator.mod_switch_to(a, one.engine.level_ids[after])
        predicted = one.typical.switch(known(one.noise(a), size=size, level=before), after)
        assert _ratio(one.noise(switched), predicted) == pytest.approx(1, abs=0.01)


def test_key_switching_keeps_what_there_was(scheme: str) -> None:
    one = labs(scheme)[0]
    phase = polynomial(int(x * 2.0**70) for x in one.random.uniform(-1, 1, RING))
    for size in (2, 3, 4):
        a = one.made(phase, size=size)
        noise = one.noise(a)
        if size == 2:
            computed, noise = one.keys.evaluator.rotate(a, 1), noise.moved(3)
            predicted = one.typical.key_switch(known(noise))
        else:
            computed = relinearise_any(one.keys, a)
            predicted = one.typical.relinearise(known(noise, size=size))
        assert predicted.size == 2
        assert _ratio(one.noise(computed), predicted) == pytest.approx(1, abs=0.01)


# -- packing
# ------------------------------------------------------------------------------------------------


def packing_lab(scheme: str, key: int = 0) -> NoiseLab:
    return lab(scheme, PACKING_CHAIN, key, 2)


COUNTS = [
    1,
    3,
    8,
    pytest.param(64, marks=pytest.mark.slow),
    pytest.param(1024, marks=pytest.mark.slow),
]


def at_places(one: NoiseLab, pack: Any, count: int) -> np.ndarray:
    """The noise of a pack where its totals stand."""
    noise = one.noise(pack, one.small)
    return np.array([int(n) / noise.denominator for n in noise.numerators])[
        packing_places(count, RING)
    ]


@pytest.mark.parametrize("count", COUNTS)
def test_packs_of_what_has_noise(scheme: str, count: int) -> None:
    """Each total's own noise, divided by N and multiplied by it: neither more of it, nor anything
    of the others'.
    """
    one = packing_lab(scheme)
    each = one.made(constant(1 << 70), engine=one.small)
    own = one.noise(each, one.small).at_roots.real[0]
    predicted = np.mean(packed_noise(one.typical_packing, Noise(abs(own))).flat)
    assert at_places(one, one.keys.evaluator.pack([each] * count), count) / own == pytest.approx(
        1, abs=1e-3
    )
    assert abs(own) / predicted == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("count", COUNTS[2:])
def test_packs_of_what_has_no_noise(scheme: str, count: int) -> None:
    """What automorphisms add, doubled at each level that follows. It is independent, and a
    coefficient is 1/sqrt(N) of a root.
    """
    measured, predicted = [], []
    for key in range(KEYS):
        one = packing_lab(scheme, key)
        pack = one.keys.evaluator.pack([one.made(ZERO, engine=one.small) for _ in range(count)])
        measured.append(at_places(one, pack, count) * math.sqrt(RING))
        predicted.append(packed_noise(one.typical_packing, Noise(0.0)).flat)
    with np.errstate(divide="ignore"):  # nothing predicted: infinitely more was measured
        ratio = np.sqrt(np.mean(np.square(measured))) / np.sqrt(np.mean(np.square(predicted)))
    assert 0.25 < ratio < 1, ratio


@pytest.mark.parametrize("phase", [1 << 45, 0], ids=["noise", "none"])
def test_expansion(scheme: str, phase: int) -> None:
    """A coefficient of the pack comes out as it was; what automorphisms add grows by sqrt(2) a
    level, not by 2.
    """
    ratios = Ratios()
    for key in range(2):
        one = packing_lab(scheme, key)
        pack = one.made(constant(phase), engine=one.small)
        start = known(one.noise(pack, one.small))
        totals = EncryptedNumbers(
            one.keys,
            "packed",
            [NumberFacts(0, 0)] * 4,
            [Part(residues_of(one.small, pack), start)],
            4,
        )
        for place, residues in expand_totals(totals, [0], SealPacking(one.keys, 1)):
            if place == 0 or not phase:
                ratios.add(
                    one.noise(ciphertext_of(one.small, residues), one.small),
                    expanded_noise(one.typical_packing, start),
                )
    if phase:
        assert ratios.everywhere == pytest.approx(1, abs=0.01)
    else:
        assert 0.02 < ratios.everywhere < MOST, ratios
