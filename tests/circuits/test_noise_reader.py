"""The noise reader: what it accepts decrypts, its bound is above the measured noise every time,
what it refuses is never begun.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pytest
from circuit_samples import (
    FORMS,
    SCHEMES,
    SEEDS,
    Lab,
    check_slots,
    circuits,
    computed,
    forced,
    insecure,
    lab_of,
    lowered,
    part_slacks,
    source_of,
    unless_refused,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples, one_scheme
from encryptedstats.circuits import Layout, column, linear, lowering
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import depth_of
from encryptedstats.circuits.lowering import FLAT, LEVELLED, Setting
from encryptedstats.circuits.noise import MAX_SIZE
from encryptedstats.circuits.program import MULTIPLY, RELINEARISE
from encryptedstats.circuits.proof import read_noise, strategies
from encryptedstats.circuits.shapes import find_shapes
from error_codes import error

MANY = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
KEYS = 3
COUNTS = ((5,), (1024,), (700, 1024, 300))
A, B, Y, W, N = (column(name) for name in ("a0", "b1", "y0", "w", "n"))
LAYOUT = Layout(1500, 1024)


@pytest.fixture
def slacks(record_property: Any, request: pytest.FixtureRequest) -> Any:
    """Collects slacks (proven minus measured noise, in bits) and says what they were: run with -s
    to see.
    """
    found: list[float] = []
    yield found
    if found:
        low, mean, high = min(found), statistics.mean(found), max(found)
        record_property("slack_bits", f"{low:.1f} {mean:.1f} {high:.1f}")
        print(
            f"\n{request.node.name}: {len(found)} ciphertexts, slack min {low:.1f} mean "
            f"{mean:.1f} max {high:.1f} bits"
        )


# ---------------------------------------------------------------------------------------------
# accepted: it decrypts


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_accepted_decrypts_in_every_form(scheme, slacks):
    @MANY
    @example(
        outputs=[(A * B).total(), (Y + N).total()], key=0, counts=COUNTS[0], own=True
    )  # is accepted, in every form
    @given(
        outputs=circuits(max_depth=3),
        key=st.integers(0, KEYS - 1),
        counts=st.sampled_from(COUNTS),
        own=st.booleans(),
    )
    def check(outputs, key, counts, own):
        source = source_of(scheme, key, counts, own)
        for form in (
            FORMS if source.with_secret_key else FORMS[:1]
        ):  # of rows of others there are packs alone
            totals = unless_refused(
                lambda form=form: evaluate(outputs, source, form=form, workers=1, flood=False)
            )
            if totals is not None:
                assert source.lab.owner.open(totals) == source.clear(outputs)
                slacks.extend(part_slacks(source.lab, totals))

    check()
    assert len(slacks) >= len(FORMS)
    assert min(slacks) > -1


@pytest.mark.parametrize("strategy", [FLAT, LEVELLED], ids=["flat", "levelled"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_ciphertext_on_the_way_is_within_its_bound(scheme, strategy, slacks):
    """Both strategies for both schemes, also where the reader would choose the other; slots decrypt
    to the clear values.
    """

    @MANY
    @given(
        outputs=circuits(max_depth=2), key=st.integers(0, KEYS - 1), counts=st.sampled_from(COUNTS)
    )
    def check(outputs, key, counts):
        source = source_of(scheme, key, counts)
        with forced(strategy):
            report = unless_refused(
                lambda: read_noise(outputs, Setting(source.parameters, source.layout, form="slots"))
            )
        if report is None:
            return
        assert report.strategy is strategy
        program = lowered(outputs, source, strategy)
        found = unless_refused(lambda: computed(program, source))
        if found is None:
            return
        ciphertexts, device = found
        slacks.extend(device.slacks)
        assert {step for step, _ in device.taken} == set(program.steps)
        for ciphertext, output, expected in zip(
            ciphertexts, program.outputs, source.clear(outputs), strict=True
        ):
            check_slots(source.lab, ciphertext, output, expected)

    check()
    assert len(slacks) > 100


@pytest.mark.parametrize("strategy", [FLAT, LEVELLED], ids=["flat", "levelled"])
def test_both_strategies_give_the_same(lab, strategy):
    source = lab.source((600, 200))
    outputs = [
        (A * B * Y).total(),
        ((A + B) ** 4).total(),
        (N**3 - N).total(),
        (A * B).total() * Y.total(),
    ]
    with forced(strategy):
        for form in FORMS:
            assert source.encrypted(outputs, form=form) == source.clear(outputs)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("key", range(3))
def test_repeated_squaring_at_the_limit(scheme, key, slacks):
    """The worst case there is, as deep as is accepted, fresh keys each time; one product more is
    refused.
    """
    lab = Lab(es.Owner(insecure(scheme, 4000, (40,) * 5)))
    source = lab.source((1024,), seed=key)
    source.columns = {**source.columns, "n": np.random.default_rng(key).integers(-1, 2, 1024)}
    outputs = [N.total()]
    for depth in range(1, 9):
        deeper = [(N ** (1 << depth)).total()]
        try:
            read_noise(deeper, Setting(lab.parameters, source.layout, form="slots"))
        except es.NoiseError:
            break
        outputs = deeper
    assert 2 <= depth_of(outputs) < 8
    program = lowered(
        outputs,
        source,
        read_noise(outputs, Setting(lab.parameters, source.layout, form="slots")).strategy,
    )
    (ciphertext,), device = computed(program, source)
    check_slots(lab, ciphertext, program.outputs[0], source.clear(outputs)[0])
    slacks.extend(device.slacks)


def test_real_parameters(real, slacks):
    """128 bits, 8192 slots: a tree's products, packed and unsummed."""
    source = real.source((547,))
    left = Y * (A + column("a1"))
    outputs = [(left * B).total(), (left - left * B).total(), ((Y - left) * B).total(), N.total()]
    for form in ("packed", "slots"):
        totals = evaluate(outputs, source, form=form, workers=1)
        assert real.owner.open(totals) == source.clear(outputs)
        slacks.extend(part_slacks(real, totals))
    assert min(slacks) > 0


def test_encryption_with_the_public_key_is_noisier_and_known_to_be(bgv):
    outputs = [(A * B * Y).total()]
    budgets = [
        read_noise(
            outputs, Setting(bgv.parameters, LAYOUT, with_secret_key=secret, form="slots")
        ).budget
        for secret in (True, False)
    ]
    assert budgets[0] > budgets[1] + 10
    source = bgv.source((300,), with_secret_key=False)
    assert source.encrypted(outputs, flood=False) == source.clear(outputs)


def test_more_chunks_and_larger_factors_cost_budget(lab):
    p, outputs = lab.parameters, [(A * B).total()]

    def budget(outputs, rows=1000, form="slots"):
        return read_noise(outputs, Setting(p, Layout(rows, 1024), form=form)).budget

    assert budget(outputs) == pytest.approx(budget(outputs, 1024))
    assert budget(outputs) - budget(outputs, 1024 * 64) == pytest.approx(6, abs=0.1)
    assert budget(outputs) - budget([1024 * outputs[0]]) == pytest.approx(10, abs=0.1)
    assert budget(outputs, form="replicated") < budget(outputs)
    assert 1 <= budget(outputs, form="packed") <= budget(outputs)


def test_strategies():
    assert strategies(insecure("bgv", 4000, (40,) * 4)) == (FLAT, LEVELLED)
    assert strategies(insecure("bfv", 4000, (40,) * 4)) == (LEVELLED,)


# --------------------------------------------------------------------------------- representati
# stand for the rest


def test_representatives_are_one_of_every_shape():
    x, y, z = A * B, A * Y, B * Y
    outputs = [
        x.total(),
        y.total(),
        z.total(),
        (A * A).total(),
        (x - A).total(),
        (y - B).total(),
        (A - x).total(),
    ]
    assert find_shapes(tuple(outputs)).representatives == [outputs[0], outputs[4]]


@settings(max_examples=60, deadline=None)
@given(
    outputs=circuits(max_depth=3, outputs=8),
    data=st.data(),
    form=st.sampled_from(["slots", "replicated"]),
)
def test_no_output_is_noisier_than_what_stands_for_it(outputs, data, form):
    """In whatever order, and beside whatever else: the budget of all is the least of the budgets of
    each alone.
    """
    p = lab_of("bgv").parameters
    outputs = data.draw(st.permutations(outputs))

    def budget(some):
        return unless_refused(lambda: read_noise(some, Setting(p, LAYOUT, form=form)))

    with forced(FLAT):
        together, alone = budget(outputs), [budget([output]) for output in outputs]
    if together is None:
        assert None in alone
    else:
        assert together.budget == min(one.budget for one in alone)


def test_a_replicated_total_does_not_change_what_others_of_its_shape_are():
    """Regression: a + c is a sum like d + e, though a is replicated for a product beside them."""
    a, b, c, d, e = (column(name).total() for name in ("a0", "a1", "b0", "b1", "y0"))
    source = lab_of("bgv").source((50,))
    outputs = [d + e, a * b, a + c, a]
    totals = evaluate(outputs, source, form="slots", workers=1)
    assert [facts.factor for facts in totals.facts] == [
        1,
        1024,
        1,
        1,
    ]  # in every slot, or in all slots together
    assert source.lab.owner.open(totals) == source.clear(outputs)


# ----------------------------------------------------------------------------------------------
# refused: never begun


class Untouchable:
    """Where nothing may be computed."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called though the circuit was to be refused first")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_refused_is_refused_before_anything_is_computed(scheme, form, monkeypatch):
    lab = Lab(es.Owner(insecure(scheme, 4000, (40,) * 3)), rotations=[1])
    source = lab.source((100,))
    keys = lab.keys
    monkeypatch.setattr(keys.engine, "evaluator", Untouchable())
    monkeypatch.setattr(source, "residues", _untouchable)
    deep = (column("y1") * B) * ((A * B) * (A * Y))
    with pytest.raises(es.NoiseError) as refusal:
        evaluate([N.total(), deep.total()], source, form=form)
    message = str(refusal.value)
    assert message.startswith(
        "this circuit, 3 products deep over 100 rows, could not be proven to decrypt with "
        "Parameters("
    )
    assert "the binding step is" in message
    assert message.endswith("es.plan(...) finds parameters that carry it")
    assert repr(lab.parameters) in message


def _untouchable(name: str, chunk: int) -> Any:
    raise AssertionError("a column was read though the circuit was to be refused first")


def test_the_binding_node_is_the_first_that_cannot_be_proven():
    p = insecure("bgv", 4000, (40,) * 3)
    fine, too_deep = A * B, (A * B) * (A * Y)
    assert read_noise([fine.total()], Setting(p, LAYOUT, form="slots")).budget >= 1
    for outputs in (
        [too_deep.total()],
        [fine.total(), (too_deep * W).total()],
        [(too_deep + 3 * N).total(), N.total()],
    ):
        with pytest.raises(es.NoiseError) as refusal:
            read_noise(outputs, Setting(p, LAYOUT, form="slots"))
        assert f"the binding step is {too_deep!r}. es.plan" in str(refusal.value)


def test_sums_can_bind_as_well():
    """No product at all: a factor so large that nothing is left, and more chunks than a sum can
    carry.
    """
    p = insecure("bgv", 4000, (30, 30))
    heavy = linear([(1 << 40, A)])
    with pytest.raises(es.NoiseError, check=error("not-proven", "0", "1099511627776")):
        read_noise([heavy.total()], Setting(p, LAYOUT, form="slots"))
    with pytest.raises(es.NoiseError, check=error("not-proven", "10,000,000,000")):
        read_noise([A.total()], Setting(p, _many_rows(10**10), form="slots"))


def _many_rows(n_rows: int) -> Layout:
    return Layout(n_rows, 1024)


def test_results_that_decrypt_but_cannot_be_packed_say_so(bgv, monkeypatch):
    p, outputs = bgv.parameters, [(N**4).total()]
    monkeypatch.setattr(lowering, "plan_descent", lambda parameters, noise: None)
    assert read_noise(outputs, Setting(p, LAYOUT, form="slots")).budget >= 1
    with pytest.raises(es.NoiseError, check=error("not-proven", "'slots'", "form='slots'")):
        read_noise(outputs, Setting(p, LAYOUT, form="packed"))


@one_scheme
def test_absurd_depths_are_refused_at_once(scheme):
    """Regression: bounds beyond what a float holds, sizes beyond counting, thousands of products in
    a row.
    """
    p = insecure(scheme, 4000, (40,) * 5)
    squared = chained = A
    for _ in range(40):
        squared = squared * squared
    for i in range(5000):
        chained = chained * column(f"a{i % 3}")
    start = time.process_time()
    for deep in (squared, chained):
        with pytest.raises(es.NoiseError, check=error("not-proven")):
            read_noise([deep.total()], Setting(p, LAYOUT))
    assert time.process_time() - start < 20


def test_ciphertexts_never_grow_beyond_what_seal_has():
    """Regression: without relinearisation 16 factors have 17 polynomials, one more than
    SEAL has.
    """
    p = insecure("bgv", 4000, (60,) * 12)
    fits, beyond = [(A ** (MAX_SIZE - 1)).total()], [(A**MAX_SIZE).total()]
    assert read_noise(fits, Setting(p, LAYOUT, form="slots")).strategy is FLAT
    assert read_noise(beyond, Setting(p, LAYOUT, form="slots")).strategy is LEVELLED
    source = Lab(es.Owner(p)).source((40,))
    for outputs in (fits, beyond):
        assert source.encrypted(outputs, form="slots") == source.clear(outputs)


def test_chains_of_thousands_of_totals(bgv):
    """Regression: no recursion along totals."""
    total = A.total()
    for i in range(3000):
        total = total + (column(f"b{i % 2}").total() if i % 3 else 1)
    assert read_noise([total], Setting(bgv.parameters, LAYOUT)).budget >= 1
    source = bgv.source((20,))
    assert source.encrypted([total], form="slots") == source.clear([total])


def test_nested_resampling_does_not_double_the_work(bgv):
    """Regression: every draw from another chunk computed its source twice, so ten in a row a
    thousand times.
    """
    rows = A * B
    for seed in list(SEEDS) * 3:
        rows = rows.resample(seed)
    source = bgv.source((1024, 1024, 100))
    outputs = [(rows * Y).total()]
    program = lowered(outputs, source, FLAT)
    (ciphertext,), device = computed(program, source)
    check_slots(bgv, ciphertext, program.outputs[0], source.clear(outputs)[0])
    assert sum(step.op == MULTIPLY for step, _ in device.taken) == 2 * 3


def test_evaluate_takes_the_strategy_that_was_proven(bgv):
    source = bgv.source((10,))
    flat, levelled = [(A * B).total()], [(A**16).total()]
    for outputs, strategy, form in ((flat, FLAT, "packed"), (levelled, LEVELLED, "slots")):
        assert (
            read_noise(outputs, Setting(bgv.parameters, source.layout, form=form)).strategy
            is strategy
        )
        program = compile_for(outputs, source, form=form).program
        relinearised = [
            step for step in program.steps if step.op == RELINEARISE and not step.is_total
        ]
        assert bool(relinearised) is (strategy is LEVELLED)
