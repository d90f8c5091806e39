"""The SEAL reader: encrypted equals clear, whatever the size, the stage, the form, the layout or
the number of processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from circuit_samples import (
    FORMS,
    NAMES,
    RANGES,
    SCHEMES,
    SLOTS,
    Lab,
    circuits,
    forced,
    insecure,
    one_lab,
    row_pools,
    source_of,
    unless_refused,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits import Layout, column, linear, sum_of
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.clear import draw_shift
from encryptedstats.circuits.devices.seal import relinearise_any
from encryptedstats.circuits.devices.steps import BATCH, batches_of
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.lowering import FLAT, rotations_needed
from encryptedstats.crypto.encryption import encrypt_slots
from encryptedstats.crypto.residues import residues_of
from encryptedstats.tables.encrypted_table import EncryptedTable
from error_codes import error

pytestmark = pytest.mark.filterwarnings(
    "ignore::encryptedstats.InsecureParametersWarning"
)  # when they are loaded

MANY = settings(
    max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
A, A1, B, B1, Y, Y1, W, N = (
    column(name) for name in ("a0", "a1", "b0", "b1", "y0", "y1", "w", "n")
)


# -------------------------------------------------------------------------------------------
# relinearising any size


@pytest.mark.parametrize("size", range(3, 8))
@pytest.mark.parametrize("level", [0, 1, 2])
def test_any_size_is_relinearised_with_the_ordinary_key(lab, size, level):
    engine = lab.keys.engine
    rng = np.random.default_rng(size)
    values = [rng.integers(-2, 3, SLOTS) for _ in range(size - 1)]
    product = None
    for one in values:
        fresh, _ = encrypt_slots(one, lab.owner._encryptor)
        product = fresh if product is None else engine.evaluator.multiply(product, fresh)
    product = engine.evaluator.mod_switch_to(product, engine.level_ids[level])
    assert product.size() == size
    small = relinearise_any(lab.keys, product)
    assert (small.size(), small.coeff_modulus_size()) == (
        2,
        len(lab.parameters.data_moduli) - level,
    )
    assert not small.is_transparent()
    expected = np.prod(values, axis=0)
    np.testing.assert_array_equal(lab.decrypt_slots(small), expected)
    np.testing.assert_array_equal(lab.decrypt_slots(product), expected)


def test_size_three_is_what_seal_gives(lab):
    x, _ = encrypt_slots(np.arange(10), lab.owner._encryptor)
    square = lab.keys.engine.evaluator.square(x)
    ours, theirs = relinearise_any(lab.keys, square), lab.keys.evaluator.relinearise(square)
    np.testing.assert_array_equal(*(residues_of(lab.keys.engine, c) for c in (ours, theirs)))


# ----------------------------------------------------------------------------------------------
# encrypted == clear


@pytest.mark.parametrize("scheme", SCHEMES)
@MANY
@given(
    outputs=circuits(max_depth=2, outputs=6),
    key=st.integers(0, 2),
    counts=st.sampled_from([(3,), (SLOTS,), (500, SLOTS, 20)]),
    form=st.sampled_from(FORMS),
)
def test_encrypted_equals_clear(scheme, outputs, key, counts, form):
    source = source_of(scheme, key, counts)
    found = unless_refused(lambda: source.encrypted(outputs, form=form, workers=1))
    if found is not None:
        assert found == source.clear(outputs)
        assert all(type(value) is int for value in found)


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pool=row_pools(max_depth=2), counts=st.sampled_from([(3,), (500, SLOTS, 20)]))
def test_rows(scheme, pool, counts):
    source = source_of(scheme, 0, counts)
    numbers = unless_refused(lambda: evaluate(pool, source, form="rows", workers=1))
    if numbers is not None:
        np.testing.assert_array_equal(
            source.lab.owner.open(numbers), np.column_stack(source.clear(pool))
        )


def test_rows_are_small_however_many_factors_they_have(lab):
    """Regression: rows came back with more polynomials than the next product could relinearise."""
    source, outputs = lab.source((SLOTS, 9)), [A * Y * N * W, 3 - N]
    with forced(FLAT):
        rows = evaluate(outputs, source, form="rows", workers=1)
    assert {len(part.residues) for part in rows.parts} == {2}
    assert [(facts.low, facts.high) for facts in rows.facts] == [(-12, 20), (-2, 6)]
    np.testing.assert_array_equal(lab.owner.open(rows), np.column_stack(source.clear(outputs)))


def test_totals_are_no_numbers_of_rows(lab):
    source = lab.source((9,))
    with pytest.raises(TypeError, check=error("totals-as-rows", "'packed'", "form='packed'")):
        evaluate([N, A.total()], source, form="rows")
    with pytest.raises(TypeError, check=error("rows-beside-totals")):
        evaluate([B.total().replicate() - N], source, form="rows")
    assert source.loads == 0


@pytest.mark.parametrize("form", FORMS)
def test_stages(lab, form):
    """Products of totals, totals back in the rows, replicated totals used twice, constants on the
    way, three stages deep.
    """
    source = lab.source((500, 77))
    a, b = A.total(), (B + 2).total()
    back = a.replicate()
    outputs = [
        a * b,
        a * a - 3 * b + 7,
        (back * Y).total(),
        (back * Y).total() + (back * B).total(),
        (back * Y + back * B - 1).total(),
        ((a - 5).replicate() * N).total(),
        linear([(2, a), (-3, b)], 11),
        linear([(2, a * b), (-3, b)], 11),
        a,
        b,
        (((Y * back).total() - a).replicate() * A1).total(),
    ]
    assert source.encrypted(outputs, form=form) == source.clear(outputs)


@pytest.mark.parametrize("form", FORMS)
def test_zeros_among_totals(lab, form):
    source = lab.source((600,))
    source.columns = {
        **source.columns,
        "a0": np.zeros(600, dtype=int),
        "n": np.arange(600) % 2 * 2 - 1,
    }
    outputs = [
        A.total(),
        Y.total(),
        (A * Y).total(),
        N.total(),
        (A - A * Y).total(),
        (N * N).total() - 600,
        W.total(),
    ]
    expected = source.clear(outputs)
    assert expected.count(0) == 5
    assert source.encrypted(outputs, form=form) == expected


def test_extreme_values(lab):
    """The largest results that are allowed, of both signs; one more is refused."""
    limit = lab.parameters.max_value
    ranges = {**RANGES, "n": ColumnRange(-limit, limit)}
    for sign in (-1, 1):
        source = lab.source((1,), known=ranges)
        source.columns = {**source.columns, "n": np.array([sign * limit])}
        for form in FORMS:
            assert source.encrypted([N.total()], form=form) == [sign * limit]
        with pytest.raises(OverflowError, check=error("larger-values")):
            evaluate([N.total() + 1], source)


def test_only_results_have_to_fit(lab):
    """What is computed on the way is exact modulo t whatever its size."""
    source = lab.source((50,))
    huge = 1 << 45
    outputs = [linear([(1, Y * huge + N), (-huge, Y)]).total()]
    ranges = {**RANGES, "n": ColumnRange(-3, 5)}
    with pytest.raises(OverflowError):  # intervals do not see that the large parts cancel
        evaluate(outputs, source)
    cancelled = Y * huge - Y * A * huge  # complements they do see, but this one is large
    with pytest.raises(OverflowError):
        evaluate([cancelled.total()], source)
    zeros = lab.source((50,), known={**ranges, "w": ColumnRange(0, 0)})
    zeros.columns = {**zeros.columns, "w": np.zeros(50, dtype=int)}
    outputs = [(W * huge + N).total()]
    assert zeros.encrypted(outputs) == zeros.clear(outputs)


# ----------------------------------------------------------------------------------------------
# never transparent


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "total",
    [
        linear([(1, (A + B) * Y), (-1, A * Y), (-1, B * Y)]).total(),
        linear([(1, A + B), (-1, A), (-1, B)]).total(),
        (A + B).total() - A.total() - B.total() + 5,
        sum_of([A + B + 1, -A, -B]).total(),
    ],
    ids=["products", "sums", "totals", "constant"],
)
def test_what_is_zero_whatever_the_table_is_refused(bgv, total, form):
    """Its ciphertext would hide nothing; SEAL refuses it, and we say what it was."""
    source = bgv.source((10,))
    with (
        forced(FLAT),
        pytest.raises(ValueError, check=error("sum-cancels", "0")),
    ):
        evaluate([N.total(), total], source, form=form)


def test_factors_that_are_zero_modulo_t_are_refused(lab):
    t = lab.parameters.plain_modulus
    source = lab.source((10,), known={**RANGES, "w": ColumnRange(0, 0)})
    with pytest.raises(ValueError, check=error("sum-cancels", "0")):
        evaluate([(W * t + N).total()], source)


@MANY
@given(outputs=circuits(max_depth=2))
def test_no_ciphertext_of_a_result_is_transparent(outputs):
    source = source_of("bgv", 0, (3,))
    for form in FORMS:
        totals = unless_refused(lambda form=form: evaluate(outputs, source, form=form, workers=1))
        assert totals is None or all(part.residues[1:].any() for part in totals.parts)


# ----------------------------------------------------------------------------------------------
# resampling


@pytest.mark.parametrize("form", FORMS)
def test_resampling_is_the_same_under_encryption(lab, form):
    source = lab.source((SLOTS, 300, 800))
    outputs = [
        (A.resample(0) * Y).total(),
        ((A + B).resample(1) * (Y - N)).total(),
        (A.resample(2) * B.resample(3) * Y).total(),
        ((A * B).resample(1).resample(2) * N).total(),
        (A.resample(3) + 4).total(),
        (A.total().replicate() * B.resample(0)).total(),
    ]
    assert source.encrypted(outputs, form=form) == source.clear(outputs)


def test_resampling_needs_its_rotations_and_says_which(lab):
    source, outputs = lab.source((SLOTS, 300)), [(A.resample(1) * Y).total()]
    needed = rotations_needed(outputs, source.layout)
    _, rotation, swap = draw_shift(1, source.layout)
    assert set(needed) == {rotation} | ({0} if swap else set())
    source.given_keys = lab.owner.public_keys(rotations=needed)
    assert source.encrypted(outputs) == source.clear(outputs)
    source.given_keys = lab.owner.public_keys()
    with pytest.raises(es.KeyMismatchError, check=error("planned-keys", rotation)):
        evaluate(outputs, source)


def test_rotations_needed():
    layout, steps = Layout(10, 16), (0, 1, 2, 4)
    assert rotations_needed([A.total(), (A * B).total() + B.total()], layout) == ()
    assert rotations_needed([A.total()], layout, replicated=True) == steps
    assert rotations_needed([A.total() * B.total()], layout) == steps
    assert rotations_needed([(A.total().replicate() * B).total()], layout) == steps
    assert rotations_needed([A.total().replicate()], Layout(10, 8)) == (0, 1, 2)
    _, rotation, swap = draw_shift(5, layout)
    assert rotations_needed([A.resample(5)], layout) == tuple(
        sorted({rotation} - {0} | ({0} if swap else set()))
    )


def test_missing_rotations_for_replicating(lab):
    source = lab.source((10,))
    source.given_keys = lab.owner.public_keys()
    for outputs, form in (([A.total()], "replicated"), ([A.total() * B.total()], "packed")):
        with pytest.raises(es.KeyMismatchError, check=error("planned-keys", "1")):
            evaluate(outputs, source, form=form)


# ----------------------------------------------------------------------------------------------
# processes


@one_lab
def test_batches_over_processes_equal_serial(lab):
    source = lab.source((300,))
    names = [column(name) for name in NAMES]
    outputs = [(x * y + k).total() for k, x in enumerate(names) for y in names][: BATCH + 20]
    assert len(outputs) > BATCH
    expected = source.clear(outputs)
    serial, parallel = (evaluate(outputs, source, workers=workers) for workers in (1, 2))
    assert lab.owner.open(serial) == lab.owner.open(parallel) == expected
    assert serial.facts == parallel.facts
    for a, b in zip(
        serial.parts, parallel.parts, strict=True
    ):  # nothing random is added, so they are the same
        np.testing.assert_array_equal(a.residues, b.residues)
        assert a.noise == b.noise
    for form in ("slots", "replicated"):
        serial, parallel = (
            evaluate(outputs[:20], source, form=form, workers=workers) for workers in (1, 2)
        )
        assert all(
            (a.residues == b.residues).all()
            for a, b in zip(serial.parts, parallel.parts, strict=True)
        )


@pytest.mark.parametrize("form", FORMS)
def test_totals_that_share_nothing_dear_are_computed_by_several_processes(lab, form):
    """Regression: totals that are replicated in the end were one batch, however many."""
    outputs = [
        (column(a) * k + column(b)).total()
        for k in (1, 2, 3)
        for a in NAMES
        for b in NAMES
        if a < b
    ]
    program = compile_for(outputs, lab.source((30,)), form=form).program
    assert [len(batch) for batch in batches_of(program)] == [BATCH, len(outputs) - BATCH]


def test_errors_in_processes_reach_the_caller(bgv):
    source = bgv.source((10,))
    outputs = [(A * k + B).total() for k in range(1, BATCH + 2)]
    outputs[-1] = linear([(1, (A + B) * Y), (-1, A * Y), (-1, B * Y)]).total()
    with forced(FLAT), pytest.raises(ValueError, check=error("sum-cancels", "0")):
        evaluate(outputs, source, workers=2)


# ----------------------------------------------------------------------------------------------
# the call


def test_what_evaluate_refuses(bgv):
    source = bgv.source((10,))
    for outputs in ([], [A], [A.total(), B * Y]):
        with pytest.raises(TypeError, check=error("not-a-total")):
            evaluate(outputs, source)
    with pytest.raises(
        ValueError,
        check=error(
            "unknown-form", "'loose'", "'packed'", "'replicated'", "'slots'", "form='loose'"
        ),
    ):
        evaluate([A.total()], source, form="loose")
    with pytest.raises(ValueError, check=error("padding-counted")):
        evaluate([A.total().replicate().total()], source)
    with pytest.raises(ValueError, check=error("column-not-stored")):
        evaluate([column("unknown").total()], source)


def test_without_packing_keys_totals_come_unsummed_if_asked_for(lab):
    """Unsummed slots hold what is known of single rows: nobody gets them without asking."""
    source = lab.source((40,))
    source.given_keys = lab.owner.public_keys(packing=False)
    with pytest.raises(
        es.KeyMismatchError,
        check=error("no-packing-keys", "'slots'", "packing=True", "form='slots'"),
    ):
        evaluate([A.total(), (B + 1).total()], source)
    totals = evaluate([A.total(), (B + 1).total()], source, form="slots")
    assert totals.form == "slots"
    assert lab.owner.open(totals) == source.clear([A.total(), (B + 1).total()])


def test_progress_is_shown_when_asked(bgv, capsys):
    source = bgv.source((10,))
    evaluate([A.total(), B.total()], source, progress=True, workers=1)
    assert capsys.readouterr().out == ""


# ----------------------------------------------------------------------------------------------
# tables


def rows_of(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(0, 4, n),
            "place": rng.choice(["here", "there"], n),
            "dose": rng.integers(-20, 21, n) / 10,
            "sick": rng.choice(["no", "yes"], n),
        }
    )


SCHEMA = es.Schema.infer(
    rows_of(400), target="sick", kinds={"age": "ordinal", "place": "categorical"}
).with_kind("dose", "number", digits=1, low=-2, high=2)


def table_circuit() -> list[Any]:
    young, here = sum_of([column("v0.bin0"), column("v0.bin1")]), column("v1.bin0")
    left = column("class1") * young
    counts = [
        (left * here).total(),
        (left - left * here).total(),
        ((column("class1") - left) * here).total(),
    ]
    dose = column("v2.number")
    return [*counts, dose.total(), (dose * dose).total(), (dose * column("class0")).total()]


@pytest.mark.parametrize("public", [False, True])
def test_tables(lab, public):
    table = SCHEMA.table(rows_of(SLOTS + 200), slots=SLOTS)
    sealed = lab.keys.encrypt(table).accept_others() if public else lab.owner.encrypt(table)
    outputs = table_circuit()
    expected = table.evaluate(outputs)
    for form in ("packed",) if public else ("packed", "slots"):
        assert lab.owner.open(sealed.evaluate(outputs, form=form, flood=False)) == expected
    with pytest.raises(es.SchemaError, check=error("column-not-stored", "v0.code")):
        sealed.evaluate([column("v0.code").total()])


def test_appended_and_stored_tables(lab, tmp_path):
    """Partly filled chunks in between, read from a store, resampled: still what the clear twin with
    that layout gives.
    """
    first, second = rows_of(SLOTS + 5, 1), rows_of(30, 2)
    sealed = lab.owner.encrypt(SCHEMA.table(first), out=tmp_path)
    sealed = sealed.append(lab.owner.encrypt(SCHEMA.table(second)))
    assert sealed.layout.counts == (SLOTS, 5, 30)
    outputs = [
        *table_circuit(),
        (column("v0.bin1").resample(2) * column("class1")).total(),
        (1 - column("class0")).total(),
    ]
    loaded = EncryptedTable.load(tmp_path, lab.keys)
    twin = SCHEMA.table(pd.concat([first, second])).with_layout(loaded.layout)
    assert lab.owner.open(loaded.evaluate(outputs)) == twin.evaluate(outputs)


def test_real_parameters_with_all_forms(real):
    """128 bits, 8192 slots, more rows than slots; rotation keys of a real size for one total."""
    table = SCHEMA.table(rows_of(9000))
    sealed = real.owner.encrypt(table)
    outputs = [(column("class1") * column("v0.bin0")).total(), (column("class1") + 1).total()]
    assert real.owner.open(sealed.evaluate(outputs, form="packed")) == table.evaluate(outputs)
    keys = real.owner.public_keys(
        rotations=rotations_needed(outputs, sealed.layout, replicated=True)
    )
    sealed = EncryptedTable(sealed.facts, sealed.blocks, keys)
    assert real.owner.open(sealed.evaluate(outputs, form="replicated")) == table.evaluate(outputs)


def test_keys_of_another_owner(lab):
    stranger = Lab(es.Owner(lab.parameters))
    source = lab.source((10,))
    totals = evaluate([A.total()], source)
    with pytest.raises(
        es.KeyMismatchError, check=error("load-the-key", lab.owner.key_id, stranger.owner.key_id)
    ):
        stranger.owner.open(totals)


def test_many_keys():
    """Six fresh pairs of keys each: nothing depends on luck."""
    outputs = [(A * B * Y).total(), (N**2 - W * 3).total()]
    for scheme in SCHEMES:
        p = insecure(scheme, 1 << 20, (50,) * 5)
        for seed in range(6):
            source = Lab(es.Owner(p)).source((SLOTS, 10), seed)
            assert source.encrypted(outputs, workers=1) == source.clear(outputs)
