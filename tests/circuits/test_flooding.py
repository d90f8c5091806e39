"""Flooding: noise of the right width, from the system, over ciphertexts that still decrypt to the
last unit.
"""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import seal
from circuit_samples import Lab, lab_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import encryptedstats as es
from encryptedstats.circuits import column
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto import flooding
from encryptedstats.crypto.engine import HEADER_BYTES, Engine, engine_for
from encryptedstats.crypto.flooding import (
    FLOODING_BITS,
    flooding_polynomial,
    flooding_width,
    uniform_residues,
)
from encryptedstats.crypto.packing import (
    has_room_for_flooding,
    packing_model,
    packing_parameters,
    packing_primes,
    packing_secret,
)
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of, times_constant
from error_codes import error

OUTPUTS = [
    (column("a0") * column("y0")).total(),
    (column("n") * column("w")).total(),
    column("n").total(),
]


def integers(residues: Residues, moduli: tuple[int, ...]) -> list[int]:
    """The centred integers that have these residues."""
    q = math.prod(moduli)
    weights = [q // p * pow(q // p, -1, p) for p in moduli]
    values = [
        sum(int(r) * w for r, w in zip(column, weights, strict=True)) % q for column in residues.T
    ]
    return [v - q if v > q // 2 else v for v in values]


def coefficients(engine: Engine, transformed: Residues) -> Residues:
    """A polynomial out of the form that ciphertexts of BGV have."""
    ciphertext = ciphertext_of(engine, np.stack([transformed, np.ones_like(transformed)]))
    data = engine.ciphertext_to_bytes(engine.evaluator.transform_from_ntt(ciphertext))
    return np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(2, *transformed.shape)[0]


def noise_of(lab: Lab, residues: Residues) -> list[int]:
    """c0 + c1 s of a BGV ciphertext of the packing context, with the real secret."""
    engine = engine_for(packing_parameters(lab.parameters))
    moduli, ring = engine.parameters.data_moduli, engine.parameters.ring_degree
    secret = packing_secret(lab.parameters, lab.owner._generator.secret_key()).to_string()
    s = np.frombuffer(secret[-8 * ring * (len(moduli) + 1) :], dtype="<u8").reshape(-1, ring)[
        : len(moduli)
    ]
    p = np.array(moduli, dtype=object)[:, None]
    v = (residues[0].astype(object) + residues[1].astype(object) * s.astype(object)) % p
    return integers(coefficients(engine, v.astype(np.uint64)), moduli)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_products_with_constants_are_exact(data: st.DataObject) -> None:
    moduli = (
        lab_of("bgv").parameters.data_moduli[:2]
        + es.Parameters.from_bits("bfv", 8192, 1000, (60, 60, 60)).data_moduli[:1]
    )
    special = [[0, 1, p - 1, p // 2] for p in moduli]
    x = np.array(
        [
            [data.draw(st.integers(0, p - 1)) for _ in range(4)] + s
            for p, s in zip(moduli, special, strict=True)
        ]
    )
    factors = [data.draw(st.sampled_from([0, 1, p - 1]) | st.integers(0, p - 1)) for p in moduli]
    found = times_constant(x.astype(np.uint64), factors, moduli)
    expected = [[int(v) * f % p for v in row] for row, f, p in zip(x, factors, moduli, strict=True)]
    assert found.tolist() == expected


@pytest.mark.parametrize("width", [1, 31, 32, 63, 64, 100, 127])
def test_numbers_are_uniform_over_the_whole_range(width: int) -> None:
    moduli = lab_of("bgv").parameters.data_moduli
    values = integers(uniform_residues(moduli, 4000, width), moduli)
    assert -(1 << width) <= min(values) < max(values) < 1 << width
    assert (
        stats.kstest([v / (1 << width) for v in values], "uniform", (-1, 2)).pvalue > 1e-12
        or width == 1
    )
    assert width > 1 or set(values) == {-2, -1, 0, 1}
    assert np.mean([v % 2 for v in values]) == pytest.approx(0.5, abs=0.06)


def test_numbers_come_from_the_system_and_from_nowhere_else() -> None:
    moduli = lab_of("bgv").parameters.data_moduli
    with mock.patch.object(flooding.os, "urandom", side_effect=lambda n: bytes(n)) as asked:
        assert set(integers(uniform_residues(moduli, 7, 90), moduli)) == {-(1 << 90)}
    asked.assert_called_once_with(7 * 4 * 3)


def test_the_polynomial_stands_as_ciphertexts_do() -> None:
    """In BGV a multiple of t, transformed; what comes back has the width that was asked for."""
    lab = lab_of("bgv")
    engine, t = lab.keys.engine, lab.parameters.plain_modulus
    values = integers(
        coefficients(engine, flooding_polynomial(engine, 6, 80)), lab.parameters.data_moduli
    )
    assert all(v % t == 0 for v in values)
    assert 0.97 < max(abs(v) // t for v in values) / 2**80 <= 1
    bfv = lab_of("bfv")
    values = integers(flooding_polynomial(bfv.keys.engine, 6, 80), bfv.parameters.data_moduli)
    assert 0.97 < max(map(abs, values)) / 2**80 <= 1


# -- flooded totals
# ------------------------------------------------------------------------------------------------


def packed(lab: Lab, *, flood: bool, key: int = 0) -> tuple[EncryptedNumbers, list[int]]:
    source = lab.source((30, 20), seed=key)
    return evaluate(OUTPUTS, source, flood=flood), source.clear(OUTPUTS)


def room(scheme: str, key: int = 0) -> Lab:
    """Keys that keep so many primes for packs that flooding fits."""
    return lab_of(scheme, key, 4000, (50,) * 6, 4)


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
def test_flooded_totals_decrypt_to_the_same_numbers(scheme: str) -> None:
    for key in range(4):
        lab = room(scheme, key)
        totals, expected = packed(lab, flood=True, key=key)
        assert totals.flooded
        assert lab.owner.open(totals) == expected
        small = engine_for(packing_parameters(lab.parameters))
        for part in totals.parts:
            slack = lab.slack(ciphertext_of(small, part.residues), part.noise, packed=True)
            assert -1 < slack < 2  # the bound is nearly reached: most of it is the flood


def test_both_polynomials_are_new_and_the_noise_is_that_of_the_flood() -> None:
    """Anybody who has the secret sees noise that is uniform over a range 2^64 times as wide as what
    the rows could leave.
    """
    lab = room("bgv")
    plain, _ = packed(lab, flood=False)
    one, other = plain.with_flooding(), plain.with_flooding()
    for a, b in zip(one.parts, other.parts, strict=True):
        assert (a.residues[0] != b.residues[0]).mean() > 0.99
        assert (a.residues[1] != b.residues[1]).mean() > 0.99
    model = packing_model(lab.parameters, packing_primes(lab.parameters))
    before = noise_of(lab, plain.parts[0].residues)
    after = noise_of(lab, one.parts[0].residues)
    bound, t = model.coefficient_bound(plain.parts[0].noise), lab.parameters.plain_modulus
    assert max(map(abs, before)) <= bound
    width = flooding_width(model, plain.parts[0].noise)
    assert 2.0**FLOODING_BITS <= t * 2.0**width / bound < 2.0 ** (FLOODING_BITS + 1)
    assert stats.kstest([v / t / 2**width for v in after], "uniform", (-1, 2)).pvalue > 1e-12
    assert [v % t for v in after] == [v % t for v in before]  # the message is what it was


def test_rows_of_others_are_flooded_by_default_and_rows_of_the_owner_are_not() -> None:
    lab = room("bgv")
    own, others = (lab.source((30,), with_secret_key=secret) for secret in (True, False))
    assert evaluate(OUTPUTS, own).flooded is None
    assert evaluate(OUTPUTS, others).flooded is True
    assert evaluate(OUTPUTS, others, flood=False).flooded is False
    assert lab.owner.open(evaluate(OUTPUTS, others)) == others.clear(OUTPUTS)


def test_sums_are_flooded_where_all_that_must_be_is() -> None:
    lab = room("bgv")
    own, others = (lab.source((30,), with_secret_key=secret) for secret in (True, False))
    mine, hidden, bare = (
        evaluate(OUTPUTS, own),
        evaluate(OUTPUTS, others),
        evaluate(OUTPUTS, others, flood=False),
    )
    assert [
        (a + b).flooded
        for a, b in ((mine, mine), (mine, hidden), (hidden, hidden), (mine, bare), (hidden, bare))
    ] == [
        None,
        True,
        True,
        False,
        False,
    ]
    assert lab.owner.open(mine + hidden) == [
        a + b for a, b in zip(own.clear(OUTPUTS), others.clear(OUTPUTS), strict=True)
    ]


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
@pytest.mark.parametrize("flooded", [None, True, False])
def test_files_say_whether_totals_are_flooded(flooded: bool | None) -> None:
    lab = room("bgv")
    source = lab.source((30,), with_secret_key=flooded is None)
    totals = evaluate(OUTPUTS, source, flood=flooded)
    again = EncryptedNumbers.from_container(totals.to_container(), lab.keys)
    assert again.flooded is flooded
    assert lab.owner.open(again) == source.clear(OUTPUTS)


def test_without_room_nothing_is_computed() -> None:
    lab = lab_of("bgv", 0, 4000, (40,) * 4)
    source = lab.source((30,), with_secret_key=False)
    with pytest.raises(es.NoiseError, check=error("not-proven", "by_others=True")):
        evaluate(OUTPUTS, source)
    assert source.loads == 0
    bare = evaluate(OUTPUTS, source, flood=False)
    with pytest.raises(es.NoiseError, check=error("no-room-for-noise", "by_others=True")):
        bare.with_flooding()


@pytest.mark.parametrize("form", ["slots", "replicated"])
def test_what_shows_rows_is_refused_for_rows_of_others(form: str) -> None:
    source = room("bgv").source((30,), with_secret_key=False)
    with pytest.raises(ValueError, check=error("others-rows-unpacked", form)):
        evaluate(OUTPUTS, source, form=form)
    with pytest.raises(ValueError, check=error("not-packed")):
        evaluate(OUTPUTS, room("bgv").source((30,)), form=form).with_flooding()


def test_an_encryption_of_zero_is_by_the_public_key_and_decrypts_to_zero() -> None:
    lab = room("bgv")
    engine = lab.keys.engine
    for level in range(3):
        zero = lab.keys.encryptor.encrypt_zero(level)
        assert zero.shape == (2, 5 - level, 1024)
        plain = seal.Decryptor(engine.context, lab.owner._generator.secret_key()).decrypt(
            ciphertext_of(engine, zero)
        )
        assert plain.to_string() == "0"
    assert (
        residues_of(engine, ciphertext_of(engine, lab.keys.encryptor.encrypt_zero(0)))
        != lab.keys.encryptor.encrypt_zero(0)
    ).any()


def test_keys_say_whether_rows_of_others_could_be_hidden() -> None:
    assert has_room_for_flooding(room("bgv").parameters)
    assert not has_room_for_flooding(lab_of("bgv", 0, 4000, (40,) * 4).parameters)
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0] * 4, "y": [0, 1] * 6})
    schema = es.Schema.infer(frame, target="y", bins=2)
    for by_others in (True, False):
        planned = es.plan(es.MultinomialNB(), schema, n_rows=1000, by_others=by_others)
        assert has_room_for_flooding(planned.parameters) is planned.flooded is by_others
