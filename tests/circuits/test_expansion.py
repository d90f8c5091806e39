"""Packs taken apart: every total comes out in all slots, times a known power of two, by SEAL and by
the kernels alike.
"""

from __future__ import annotations

import doctest
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from circuit_samples import SLOTS, Lab
from given_samples import fastest, kept_lab, packed, packing_of, usable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from encryptedstats.circuits import column
from encryptedstats.circuits.compiled import GivenPacks
from encryptedstats.circuits.devices import batches as device_packing
from encryptedstats.circuits.devices.batches import expand_totals
from encryptedstats.circuits.noise import NoiseRules
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto import packing
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.packing import packing_levels, packing_parameters, packing_places
from encryptedstats.crypto.residues import Residues, ciphertext_of
from error_codes import error

few = settings(max_examples=examples(5), deadline=None, suppress_health_check=list(HealthCheck))
BASE = [column(name) for name in ("a0", "a1", "a2", "b0", "b1", "y0", "y1", "w", "n")]
#: As many different totals as are wanted.
TOTALS = [(k % 7 + 1) * BASE[k % 9].total() + k * BASE[(k + 1) % 9].total() for k in range(1, 150)]


def values_of(lab: Lab, residues: Residues) -> np.ndarray:
    small = engine_for(packing_parameters(lab.parameters))
    plain = lab._decryptors["packed"].decrypt(ciphertext_of(small, residues))
    return np.asarray(small.encoder.decode(plain)).astype(object)


def test_examples() -> None:
    assert doctest.testmod(packing).failed == 0


@given(st.integers(1, 300))
def test_places_are_different_and_keep_neighbours_together(count: int) -> None:
    places, levels = packing_places(count, 1024), packing_levels(count)
    assert len(set(places)) == count
    assert all(
        place % (1024 >> levels) == 0 for place in places
    )  # what merging so many times can reach
    first = 1 << max(0, levels - 1)
    assert all((place // (1024 >> levels)) % 2 == (i >= first) for i, place in enumerate(places))


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
@few
@given(st.integers(1, 24), st.sampled_from([1, 2, 4, 8, 32]), st.integers(0, 1), st.data())
def test_every_total_in_every_slot(
    scheme: str, count: int, width: int, key: int, data: st.DataObject
) -> None:
    lab = kept_lab(scheme, key)
    source = lab.source((30, 7), seed=count)
    outputs = TOTALS[:count]
    totals = packed(outputs, source, width)
    assert len(totals.parts) == -(-count // width)
    wanted = set(data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True)))
    scales, t = GivenPacks.of_numbers("model", totals).factors, lab.parameters.plain_modulus
    found = dict(expand_totals(totals, wanted, fastest(lab.keys)))
    assert wanted <= set(found)
    clear = source.clear(outputs)
    for k, residues in found.items():
        values = values_of(lab, residues)
        assert len(values) == SLOTS
        assert set(values * pow(scales[k], -1, t) % t) == {clear[k] % t}
    assert all(scale * SLOTS % t == 1 for scale in scales)


@few
@given(st.integers(1, 80), st.sampled_from([4, 64, 128]))
def test_every_device_gives_the_residues_of_seal(count: int, width: int) -> None:
    lab = kept_lab("bgv")
    totals = packed(TOTALS[:count], lab.source((20,)), width)
    wanted = range(0, count, 3)
    by_seal = list(expand_totals(totals, wanted, packing_of("seal", lab.keys, 2)))
    for device in usable(lab.keys):
        found = list(expand_totals(totals, wanted, packing_of(device, lab.keys, 2)))
        assert [k for k, _ in found] == [k for k, _ in by_seal] == sorted(k for k, _ in by_seal)
        for (_, ours), (_, theirs) in zip(found, by_seal, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_parts_that_nobody_wants_are_left_alone() -> None:
    lab = kept_lab("bgv")
    totals = packed(TOTALS[:130], lab.source((20,)), 128)
    with mock.patch.object(device_packing, "_EXPANDED_AT_ONCE", 16):
        for wanted in ([3], [3, 5, 15], [127], [128], [0, 129]):
            numbers = [k for k, _ in expand_totals(totals, wanted, fastest(lab.keys))]
            groups = {k // 16 for k in wanted if k < 128}
            expected = [k for k in range(128) if k // 16 in groups] + (
                [128, 129] if max(wanted) > 127 else []
            )
            assert numbers == expected
    assert list(expand_totals(totals, [], fastest(lab.keys))) == []


def test_only_packs_are_expanded() -> None:
    lab = kept_lab("bgv")
    slots = EncryptedNumbers(lab.keys, "slots", (), ())
    with pytest.raises(ValueError, check=error("not-packed", "'slots'")):
        list(expand_totals(slots, [], fastest(lab.keys)))


# -- margins
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
def test_expanded_totals_have_less_noise_than_was_proven(scheme: str) -> None:
    """Over many keys, what SEAL measures; the bound is at least one bit."""
    for key in range(4):
        lab = kept_lab(scheme, key)
        totals = packed(TOTALS[:20], lab.source((40,), seed=key), 16)
        rules = NoiseRules(lab.parameters, with_secret_key=True)
        small, noise = (
            engine_for(packing_parameters(lab.parameters)),
            rules.expand(GivenPacks.of_numbers("model", totals).noise),
        )
        dropped = len(lab.parameters.data_moduli) - lab.parameters.kept_primes
        assert noise.level == dropped
        bound = noise.at(0)
        model = packing.packing_model(lab.parameters, lab.parameters.kept_primes)
        assert model.budget(bound) >= 1
        for _, residues in expand_totals(totals, range(20), fastest(lab.keys)):
            assert lab.slack(ciphertext_of(small, residues), bound, packed=True) > -1


def test_one_bound_holds_for_packs_of_different_noise() -> None:
    lab = kept_lab("bgv")
    totals = packed(TOTALS[:8], lab.source((20,)), 4)
    quiet, loud = totals.parts[0], replace(totals.parts[1], noise=totals.parts[1].noise.times(1024))
    for parts in ((quiet, loud), (loud, quiet)):
        both = EncryptedNumbers(lab.keys, "packed", totals.facts, parts, 4)
        alone = EncryptedNumbers(lab.keys, "packed", totals.facts[:4], [loud], 4)
        assert (
            GivenPacks.of_numbers("model", both).noise
            == GivenPacks.of_numbers("model", alone).noise
        )
