"""Packing: many totals in the coefficients of one ciphertext, against plain sums."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from circuit_samples import SLOTS, Lab, insecure, lab_of, part_slacks
from given_samples import packing_of, usable
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.circuits import column
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.results import EncryptedNumbers, NumberFacts, Part
from encryptedstats.crypto import packing
from encryptedstats.crypto.encryption import encrypt_slots
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import (
    merges_of,
    packed_noise,
    packing_elements,
    packing_levels,
    packing_model,
    packing_parameters,
    packing_primes,
    packing_secret,
    packing_steps,
)
from encryptedstats.crypto.residues import residues_of
from error_codes import error


@dataclass
class Packer(Lab):
    """Keys, and the name of the device that packs."""

    device: str = "seal"

    def pack(
        self,
        totals: Sequence[Part],
        width: int,
        workers: int | None = None,
        keys: PublicKeys | None = None,
    ) -> list[Part]:
        """Totals that were switched down, up to ``width`` in a pack, each with the noise that
        lowering would give it.
        """
        model, packs = packing_model(self.parameters, packing_primes(self.parameters)), []
        for start in range(0, len(totals), width):
            some = totals[start : start + width]
            worst = Noise(
                max(part.noise.flat for part in some), max(part.noise.peak for part in some)
            )
            packing = packing_of(self.device, keys or self.keys, workers or 1)
            residues = packing.merge([part.residues for part in some], 0)
            packs.append(Part(residues, packed_noise(model, worst)))
        return packs


@pytest.fixture(params=["bgv by SEAL", "bgv by kernels", "bfv"])
def lab(request: pytest.FixtureRequest) -> Packer:
    """Both schemes; SEAL packs, or the kernels that must do the same."""
    return packer(request.param)


@pytest.fixture(params=["bgv by SEAL", "bgv by kernels"])
def bgv(request: pytest.FixtureRequest) -> Packer:
    """The scheme that there are kernels for."""
    return packer(request.param)


def packer(way: str) -> Packer:
    lab = lab_of(way[:3])
    if not way.endswith("kernels"):
        return with_device(lab, "seal")
    if lab.keys.evaluator.kernels is None:
        pytest.skip("the extension was not built")
    return with_device(lab, "native")


def with_device(lab: Lab, device: str) -> Packer:
    made = Packer(lab.owner, lab.rotations, device)
    made.keys = lab.keys
    return made


def lowered_parts(lab: Lab, vectors: Sequence[np.ndarray]) -> list[Part]:
    """Encrypted vectors, switched down to where packing works."""
    p, engine = lab.parameters, lab.keys.engine
    level = len(p.data_moduli) - packing_primes(p)
    parts = []
    for vector in vectors:
        ciphertext, noise = encrypt_slots(vector, lab.owner._encryptor)
        low = engine.evaluator.mod_switch_to(ciphertext, engine.level_ids[level])
        parts.append(Part(residues_of(engine, low), p.noise.switch(noise, level)))
    return parts


def a_few_vectors(lab: Lab, seed: int = 0) -> tuple[list[Part], list[int]]:
    """Seven different totals, one of them 0, two of them negative; the slots hold numbers all over
    the range.
    """
    rng, limit = np.random.default_rng(seed), lab.parameters.max_value
    vectors = [rng.integers(-9, 10, lab.parameters.slots) for _ in range(7)]
    vectors[2][:] = 0
    vectors[4][:2] += (limit // 2, -(limit // 2))
    vectors[5] -= 1000 * (np.arange(len(vectors[5])) < 3)
    return lowered_parts(lab, vectors), [int(vector.sum()) for vector in vectors]


def opened(lab: Packer, parts: Sequence[Part], count: int, width: int) -> list[int]:
    limit = lab.parameters.max_value
    totals = EncryptedNumbers(
        lab.keys, "packed", [NumberFacts(-limit, limit)] * count, parts, width
    )
    assert min(part_slacks(lab, totals)) > -1
    return lab.owner.open(totals)


def check_packing(
    lab: Packer, count: int, *, width: int | None = None, workers: int = 1, few: Any = None
) -> list[Part]:
    few, sums = few or a_few_vectors(lab)
    chosen = np.random.default_rng(count).integers(0, len(few), count)
    width = width or 1 << packing_levels(min(count, lab.parameters.ring_degree))
    packs = lab.pack([few[i] for i in chosen], width, workers)
    assert len(packs) == -(-count // width)
    assert opened(lab, packs, count, width) == [sums[i] for i in chosen]
    return packs


# ----------------------------------------------------------------------------------------------
# against plain sums


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 64, 65])
def test_few_totals(lab, count):
    check_packing(lab, count)


def test_a_thousand_totals_in_one_ciphertext(lab):
    (pack,) = check_packing(lab, 1000)
    assert pack.residues.shape == (2, packing_primes(lab.parameters), SLOTS)


def test_as_many_totals_as_coefficients(bgv):
    check_packing(bgv, SLOTS)


@pytest.mark.parametrize("count", [SLOTS + 1, pytest.param(2500, marks=pytest.mark.slow)])
def test_more_totals_than_coefficients_take_several_packs(bgv, count):
    assert len(check_packing(bgv, count)) == -(-count // SLOTS)


@pytest.mark.parametrize("width", [1, 2, 16])
def test_narrow_packs(lab, width):
    check_packing(lab, 37, width=width)


@pytest.mark.slow
def test_five_thousand_totals_with_real_parameters(real):
    real = with_device(real, usable(real.keys)[0])
    start = time.perf_counter()
    (pack,) = check_packing(real, 5000, workers=2)
    print(f"\n5000 totals, {real.parameters.scheme}, N=8192: {time.perf_counter() - start:.1f} s")
    assert pack.residues.nbytes < 600_000


def test_real_parameters(real):
    check_packing(with_device(real, usable(real.keys)[0]), 70)


def test_zeros_only(lab):
    parts = lowered_parts(lab, [np.zeros(SLOTS, dtype=int)] * 3)
    assert opened(lab, lab.pack(parts, 4), 3, 4) == [0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.sampled_from(["bgv", "bfv"]))
def test_every_total_stays_at_its_place(chosen, scheme):
    lab = with_device(lab_of(scheme), usable(lab_of(scheme).keys)[0])
    few, sums = a_few_vectors(lab)
    width = 1 << packing_levels(len(chosen))
    packs = lab.pack([few[i] for i in chosen], width)
    assert opened(lab, packs, len(chosen), width) == [sums[i] for i in chosen]


def test_a_circuit_of_many_totals(lab):
    """End to end: 150 totals, among them zeros, in one ciphertext."""
    source = lab.source((300,))
    source.columns = {**source.columns, "w": np.zeros(300, dtype=int)}
    x, y, w = column("a0"), column("n"), column("w")
    outputs = [(x * k - y).total() for k in range(1, 100)] + [
        (w * k + x * w).total() for k in range(1, 52)
    ]
    totals = evaluate(outputs, source, device=lab.device)
    assert (len(totals), len(totals.parts), totals.width) == (150, 1, 256)
    expected = source.clear(outputs)
    assert lab.owner.open(totals) == expected
    assert expected[-51:] == [0] * 51


# ----------------------------------------------------------------------------------------------
# processes


SHARED = [(57, 2), (100, 3), (129, 4), (57, 64), (129, 64)]
REST = [case for case in product((57, 100, 129), (2, 3, 4, 64)) if case not in SHARED]


@pytest.mark.parametrize(
    ("count", "workers"), [*SHARED, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)]
)
def test_shares_over_processes_equal_serial(bgv, count, workers, monkeypatch):
    """Also with more processes than totals: regression, a share without totals was an error."""
    if workers == 64:  # the shares, without really starting so many processes
        monkeypatch.setattr(
            "encryptedstats.circuits.devices.seal.ordered_map",
            lambda function, items, workers: map(function, items),
        )
    few = a_few_vectors(bgv)
    serial, shared = (
        check_packing(bgv, count, few=few),
        check_packing(bgv, count, few=few, workers=workers),
    )
    for a, b in zip(serial, shared, strict=True):
        np.testing.assert_array_equal(a.residues, b.residues)
        assert a.noise == b.noise


@pytest.mark.parametrize("level", [1, 2, 4, 5, 10])
def test_merged_parts_are_the_pack_of_all(lab, level):
    few, _ = a_few_vectors(lab)
    engine = lab.keys.engine
    contexts = [
        packing.to_packing_context(engine, packing.ciphertext_of(engine, part.residues))
        for part in few * 3
    ]
    whole, size = lab.keys.evaluator.pack(contexts), 1 << level
    parts = [
        lab.keys.evaluator.pack(contexts[first : first + size], level)
        for first in range(0, len(contexts), size)
    ]
    small = engine_for(packing_parameters(lab.parameters))
    merged = lab.keys.evaluator.pack(parts, lowest=level)
    np.testing.assert_array_equal(residues_of(small, merged), residues_of(small, whole))


# ----------------------------------------------------------------------------------------------
# merging


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 100, 1000])
def test_merges_are_one_fewer_than_totals(count):
    """At each level at most one is without a partner, and above the last pair there is only that
    one to clear.
    """
    levels = list(merges_of(count, SLOTS))
    assert [level for level, _, _ in levels] == list(range(1, SLOTS.bit_length()))
    assert sum(pairs for _, pairs, _ in levels) == count - 1
    assert all(alone in (0, 1) for _, _, alone in levels)
    assert all(
        (pairs, alone) == (0, 1) for level, pairs, alone in levels if level > packing_levels(count)
    )


class Counting:
    def __init__(self, evaluator: Any) -> None:
        self.evaluator, self.counts = evaluator, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.counts[name] += 1
        return getattr(self.evaluator, name)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 33])
def test_key_switches_are_as_many_as_the_cost_reader_counts(count, monkeypatch):
    lab = packer("bfv")
    engine = engine_for(packing_parameters(lab.parameters))
    counting = Counting(engine.evaluator)
    few, _ = a_few_vectors(lab)
    monkeypatch.setattr(engine, "evaluator", counting)
    lab.pack((few * 5)[:count], 1 << packing_levels(count))
    elements = packing_elements(SLOTS)
    expected = sum(
        (pairs + alone) * len(elements[level]) for level, pairs, alone in merges_of(count, SLOTS)
    )
    assert counting.counts["apply_galois"] == expected
    assert counting.counts["multiply_plain"] == counting.counts["sub"] == count - 1


@pytest.mark.parametrize("ring", [1024, 4096, 8192, 32768])
def test_automorphisms_do_what_merging_needs(ring):
    """X -> X^g at level l keeps X^(2h) and turns the sign of X^h, h = N / 2^l; rotations give all
    of them.
    """
    for level, elements in packing_elements(ring).items():
        g = int(np.prod([*map(int, elements)], dtype=object)) % (2 * ring)
        h = ring >> level
        assert h * g % (2 * ring) == h + ring
        assert 2 * h * g % (2 * ring) == 2 * h % (2 * ring)
    steps = packing_steps(ring)
    assert (
        len(steps)
        == len(set(steps))
        == len({g for group in packing_elements(ring).values() for g in group})
    )
    assert 0 in steps
    assert all(0 <= step < ring // 2 for step in steps)


def test_levels():
    assert [packing_levels(n) for n in (0, 1, 2, 3, 4, 5, 8, 9, 1024, 1025)] == [
        0,
        0,
        1,
        2,
        2,
        3,
        3,
        4,
        10,
        11,
    ]


def test_packing_adds_noise_and_does_not_multiply_it_and_is_above_what_is_measured(lab):
    model = packing_model(lab.parameters, packing_primes(lab.parameters))
    start = model.rounding(2)
    added = packed_noise(model, start.times(2.0**30)).flat - model.coefficient_bound(
        start.times(2.0**30)
    )
    assert added > 0
    for factor in (1, 2.0**10, 2.0**20):
        assert packed_noise(model, start.times(factor)).flat == pytest.approx(
            model.coefficient_bound(start.times(factor)) + added
        )
    few, _ = a_few_vectors(lab)
    for count in (1, 2, 7, 100, 700):
        packs = lab.pack((few * 100)[:count], 1 << packing_levels(count))
        totals = EncryptedNumbers(
            lab.keys, "packed", [NumberFacts(0, 0)] * count, packs, 1 << packing_levels(count)
        )
        assert min(part_slacks(lab, totals)) > 0


def test_the_worst_of_the_totals_counts(bgv):
    few, _ = a_few_vectors(bgv)
    noisy = replace(few[3], noise=few[3].noise.times(1024))
    quiet, loud = bgv.pack(few, 8)[0], bgv.pack([*few[:3], noisy, *few[4:]], 8)[0]
    model = packing_model(bgv.parameters, packing_primes(bgv.parameters))
    assert model.budget(quiet.noise) > model.budget(loud.noise)
    assert isinstance(loud.noise, Noise)
    assert loud.noise.level == 0


# ----------------------------------------------------------------------------------------------
# parameters


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
@pytest.mark.parametrize("bits", [(46,) * 2, (40,) * 5, (56,) * 7, (30, 60, 60, 45)])
def test_the_packing_context_is_the_first_primes_with_the_same_secret(scheme, bits):
    p = insecure(scheme, 4000, bits)
    small = packing_parameters(p)
    count = packing_primes(p)
    assert 1 <= count <= len(p.data_moduli)
    assert small.coefficient_moduli == (*p.data_moduli[:count], p.coefficient_moduli[-1])
    assert (small.ring_degree, small.plain_modulus, small.scheme) == (
        p.ring_degree,
        p.plain_modulus,
        p.scheme,
    )
    owner = es.Owner(p)
    assert Lab(owner).source((30,)).encrypted([column("a0").total()]) == Lab(owner).source(
        (30,)
    ).clear([column("a0").total()])
    assert packing_secret(
        p, owner._generator.secret_key()
    ).to_string() != owner._generator.secret_key().to_string() or (count == len(p.data_moduli))


# ----------------------------------------------------------------------------------------------
# refusals


def test_missing_packing_keys(lab):
    few, _ = a_few_vectors(lab)
    keys = lab.owner.public_keys(packing=False)
    assert not keys.packs
    assert lab.keys.packs
    message = "no-packing-keys"
    with pytest.raises(es.KeyMismatchError, check=error(message)):
        lab.pack(few, 8, keys=keys)
    with pytest.raises(es.KeyMismatchError, check=error(message)):
        keys.evaluator.pack([], 1)


def test_too_many_or_none(lab):
    engine = lab.keys.engine
    few, _ = a_few_vectors(lab)
    one = packing.to_packing_context(engine, packing.ciphertext_of(engine, few[0].residues))
    for ciphertexts, levels in (
        ([], None),
        ([one] * 3, 1),
        ([one] * (SLOTS + 1), None),
        ([one], 11),
    ):
        with pytest.raises(ValueError, check=error("totals-out-of-range", len(ciphertexts), SLOTS)):
            lab.keys.evaluator.pack(ciphertexts, levels)


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_packing_keys_of_another_owner_give_nothing_that_passes(lab):
    """The owner signs them, so that files of exchanged keys are refused; and what would come out
    holds more than totals.
    """
    few, _ = a_few_vectors(lab)
    stranger, own = es.Owner(lab.parameters).public_keys(), lab.keys
    exchanged = replace(own.evaluator.keys, packing=stranger.evaluator.keys.packing)
    mixed = PublicKeys(replace(own.material, evaluation=exchanged))
    assert mixed.key_id == own.key_id
    totals = EncryptedNumbers(
        mixed, "packed", [NumberFacts(-5000, 5000)] * 7, lab.pack(few, 8, keys=mixed), 8
    )
    with pytest.raises(ValueError, check=error("foreign-coefficients")):
        lab.owner.open(totals)


def test_ciphertexts_of_another_context_are_refused(bgv):
    """A ciphertext that was not switched down has other primes than the packing context."""
    ciphertext, noise = encrypt_slots(np.arange(5), bgv.owner._encryptor)
    with pytest.raises(ValueError, check=error("wrong-residue-shape")):
        bgv.pack([Part(residues_of(bgv.keys.engine, ciphertext), noise)], 1)


# -------------------------------------------------------------------------------------------
# nothing beside the totals


def coefficients_of(lab: Lab, part: Part) -> np.ndarray:
    small = engine_for(packing_parameters(lab.parameters))
    plain = lab.owner._decryptor.decrypt_packed(packing.ciphertext_of(small, part.residues))
    return packing.plaintext_coefficients(plain, lab.parameters.ring_degree)


@pytest.mark.parametrize("count", [1, 3, 8, 33, 100])
def test_every_other_coefficient_of_a_pack_is_zero(lab, count):
    few, _ = a_few_vectors(lab)
    for part in lab.pack((few * 15)[:count], 64):
        coefficients = coefficients_of(lab, part)
        places = packing.packing_places(min(count, 64), SLOTS)
        assert np.count_nonzero(np.delete(coefficients, places)) == 0


def test_a_pack_that_was_not_cleared_is_refused(lab):
    """What merging leaves before the last levels holds rows: nobody is to open that, and the owner
    says so.
    """
    few, _ = a_few_vectors(lab)
    engine, small = lab.keys.engine, engine_for(packing_parameters(lab.parameters))
    contexts = [
        packing.to_packing_context(engine, packing.ciphertext_of(engine, part.residues))
        for part in few
    ]
    unfinished = Part(
        residues_of(small, lab.keys.evaluator.pack(contexts, packing_levels(7))), few[0].noise.at(0)
    )
    assert np.count_nonzero(coefficients_of(lab, unfinished)) > SLOTS // 2
    limit = lab.parameters.max_value
    totals = EncryptedNumbers(lab.keys, "packed", [NumberFacts(-limit, limit)] * 7, [unfinished], 8)
    with pytest.raises(ValueError, check=error("foreign-coefficients")):
        lab.owner.open(totals)
