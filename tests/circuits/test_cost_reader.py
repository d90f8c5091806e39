"""The cost reader: it counts the operations that SEAL is really called with, all of them and no
others.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from circuit_samples import (
    FORMS,
    SCHEMES,
    MemorySource,
    circuits,
    forced,
    lab_of,
    lowered,
    unless_refused,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits import calibration, column, linear
from encryptedstats.circuits.calibration import calibrate, measure_times, scale_times
from encryptedstats.circuits.cost import ALONE, Cost, OperationTimes, read_cost
from encryptedstats.circuits.devices.steps import BATCH, batches_of
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.lowering import FLAT, LEVELLED, Setting, lower
from encryptedstats.circuits.proof import read_noise
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.packing import packing_parameters
from encryptedstats.machine import cores

A, B, C, Y, W, N = (column(name) for name in ("a0", "b1", "a1", "y0", "w", "n"))
NAMES = {
    **dict.fromkeys(("add", "sub", "negate", "add_plain"), "add"),
    **dict.fromkeys(("multiply", "square"), "multiply"),
    "multiply_plain": "scale",
    **dict.fromkeys(("relinearize", "rotate_rows", "rotate_columns", "apply_galois"), "key switch"),
    "mod_switch_to": "switch",
}


class CountingEvaluator:
    """SEAL's evaluator, with account of what is asked of it, in the words of the cost reader."""

    def __init__(self, evaluator: Any, counts: Counter[tuple[str, int, int]]) -> None:
        self._evaluator, self._counts = evaluator, counts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._evaluator, name)

        def call(first: Any, *rest: Any) -> Any:
            result = method(first, *rest)
            kind, size, primes = NAMES[name], first.size(), first.coeff_modulus_size()
            if kind == "multiply":
                size *= (rest[0] if rest else first).size()
            if kind == "key switch":
                assert size == (3 if name == "relinearize" else 2)
                size = 2
            if kind == "switch":
                for left in range(result.coeff_modulus_size(), primes):
                    self._counts[kind, size, left + 1] += 1
            else:
                self._counts[kind, size, primes] += 1
            return result

        return call


def really_called(outputs, source: MemorySource, **options: Any) -> Counter[tuple[str, int, int]]:
    """What SEAL is called with."""
    options = {"device": "seal", "workers": 1, **options}
    evaluate(
        outputs, source, **options
    )  # once before: headers are made with an evaluator, and then kept
    counts: Counter[tuple[str, int, int]] = Counter()
    engines = {
        engine_for(source.parameters),
        engine_for(packing_parameters(source.parameters)),
        source.keys.engine,
    }
    with pytest.MonkeyPatch.context() as patch:
        for engine in engines:
            patch.setattr(engine, "evaluator", CountingEvaluator(engine.evaluator, counts))
        source.loads = 0
        evaluate(outputs, source, **options)
    counts["load", 2, len(source.parameters.data_moduli)] = source.loads
    return counts


def counted(outputs, source: MemorySource, form: str) -> Counter[tuple[str, int, int]]:
    """What the cost reader says."""
    return read_cost(compile_for(outputs, source, form=form).program).counts


def by_name(counts: Counter[tuple[str, int, int]]) -> dict[str, int]:
    named: Counter[str] = Counter()
    for (name, _, _), count in counts.items():
        named[name] += count
    return {name: count for name, count in sorted(named.items()) if count}


def assert_same(outputs, source: MemorySource, form: str) -> None:
    found, expected = counted(outputs, source, form), really_called(outputs, source, form=form)
    assert by_name(found) == by_name(expected)
    # Sums are priced as large as their largest term; everything else is exact in size and primes
    # too.
    exact = {kind: n for kind, n in found.items() if kind[0] not in ("add", "scale") and n}
    assert exact == {
        kind: n for kind, n in expected.items() if kind[0] not in ("add", "scale") and n
    }


TREE = Y * (A + C)
CIRCUITS = {
    "sum": [N.total()],
    "tree": [(TREE * B).total(), (TREE - TREE * B).total(), ((Y - TREE) * B).total()],
    "powers": [(N**5).total(), (N**2).total()],
    "linear": [
        linear([(-1, A), (-2, B)], 3).total(),
        (2 * A - 5 * W + 1).total(),
        (-N).total() * 3 - 1,
    ],
    "totals": [
        A.total() * B.total() + 4,
        A.total() * Y.total(),
        A.total(),
        (A.total() - N.total()) ** 2,
    ],
    "stages": [(A.total().replicate() * Y * B).total(), ((A.total() + 2).replicate() * N).total()],
    "resample": [
        (A.resample(1) * Y).total(),
        ((A * B).resample(2).resample(3) * A.resample(1)).total(),
        (A * B).total(),
    ],
    "five": [(A * Y).total(), (B * Y).total(), W.total(), N.total(), Y.total()],
    "twice": [(A * Y).total(), (A * Y).total()],
}
MANY = ("tree", "totals", "resample")


# Three chunks are three times as dear, BFV is twice as dear as BGV, and each is counted by one
# rule: three circuits show it.
CHUNKS = {"one": (100,), "three": (1024, 1024, 40)}
COUNTED = [
    pytest.param(
        scheme,
        name,
        counts,
        marks=[pytest.mark.slow] if (scheme == "bfv") + (few == "three") > (name in MANY) else [],
        id=f"{scheme}-{name}-{few}",
    )
    for scheme in SCHEMES
    for name in CIRCUITS
    for few, counts in CHUNKS.items()
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("lab", "name", "counts"), COUNTED, indirect=["lab"])
def test_counts_are_what_seal_is_called_with(lab, name, counts, form):
    source = lab.source(counts)
    for strategy in (FLAT, LEVELLED):
        with forced(strategy):
            assert_same(CIRCUITS[name], source, form)


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    outputs=circuits(max_depth=2),
    counts=st.sampled_from([(7,), (1024, 100)]),
    form=st.sampled_from(FORMS),
)
def test_random_circuits(scheme, outputs, counts, form):
    source = lab_of(scheme).source(counts)
    if unless_refused(lambda: evaluate(outputs, source, form=form, workers=1)) is not None:
        assert_same(outputs, source, form)


def test_more_outputs_than_a_batch(bgv):
    """Every batch computes what it needs: what batches share is paid for in each, and
    counted so.
    """
    shared = (A * B) * Y
    outputs = [(shared * (k + 1) + N).total() for k in range(BATCH + 4)]
    source = bgv.source((30,))
    assert [len(batch) for batch in batches_of(lowered(outputs, source, FLAT))] == [BATCH, 4]
    assert_same(outputs, source, "packed")
    assert by_name(counted(outputs, source, "packed"))["multiply"] == 4


@pytest.mark.parametrize(
    "tie", [A.resample(1).total(), A.total() * B.total(), (A.total().replicate() * B).total()]
)
def test_outputs_that_share_what_is_dear_stay_together(bgv, tie):
    outputs = [*[(A * k + B).total() for k in range(1, 100)], tie]
    assert [len(batch) for batch in batches_of(lowered(outputs, bgv.source((30,)), FLAT))] == [100]


def test_several_packs(bgv):
    """As many packs as the width asks for, the last not full."""
    outputs = [(A * (k + 1) + N).total() for k in range(11)]
    source = bgv.source((30,))
    report = read_noise(outputs, Setting(bgv.parameters, source.layout)).with_width(4)
    program = lower(outputs, Setting(bgv.parameters, source.layout), report.schedule)
    assert [len(pack.args) for pack in program.packs] == [4, 4, 3]
    # 2 + 2 + 2 steps at the first level, two automorphisms at the second, and 8 more levels to
    # clear.
    found = read_cost(program).counts
    assert by_name(found)["key switch"] == 3 * (2 * 1 + 1 * 2 + 8 * 1)
    assert by_name(found) == by_name(really_called(outputs, source, report=report))
    assert_same(outputs, source, "packed")


def test_number_and_seconds(bgv):
    cost = read_cost(lowered([(A * B).total()], bgv.source((1024,) * 4 + (904,)), FLAT))
    assert (cost.number("multiply"), cost.number("load"), cost.number("key switch")) == (5, 10, 1)
    assert (cost.number("add"), cost.number("nothing")) == (4, 0)
    times = OperationTimes(
        load=1.0,
        add=10.0,
        scale=0.0,
        multiply=100.0,
        switch=0.0,
        key_switch=1000.0,
        encrypt=0.0,
        unpack=0.0,
    )
    assert cost.seconds(times, workers=1) == 10 * 1 + 4 * 10 * 1.5 + 5 * 100 + 1000 + ALONE
    one_batch = 10 * 1 + 5 * 100 + 4 * 10 * 1.5  # which one process computes
    assert cost.seconds(times, workers=4) == one_batch + 1000 / 4 + ALONE
    assert cost.seconds(times) == cost.seconds(times, workers=cores())


def test_times_scale_with_size_and_primes(bgv):
    p = bgv.parameters
    assert len(p.data_moduli) == 6
    times = OperationTimes(
        load=6.0,
        add=6.0,
        scale=6.0,
        multiply=6.0,
        switch=6.0,
        key_switch=42.0,
        encrypt=1.0,
        unpack=0.0,
    )
    assert times.of(("add", 2, 6), p) == 6
    assert times.of(("add", 5, 3), p) == 6 * 2.5 / 2
    assert times.of(("multiply", 12, 6), p) == 18
    assert times.of(("key switch", 2, 6), p) == 42
    assert times.of(("key switch", 2, 2), p) == 6
    assert Cost(p, Counter(), Counter(), Counter(), 1, 0).seconds(times) == 0


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_times_are_measured_once_and_kept(bgv, tmp_path, monkeypatch):
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path))
    runs = []
    monkeypatch.setattr(
        calibration,
        "calibrate",
        lambda parameters: runs.append(parameters) or calibrate(bgv.parameters),
    )
    first = measure_times(bgv.parameters)
    assert measure_times(bgv.parameters) == first
    assert len(runs) == 1
    assert all(value > 0 for value in vars(first).values())
    (file,) = tmp_path.rglob("times.json")
    other = lab_of("bfv").parameters
    measure_times(other)
    assert len(json.loads(file.read_text())) == 2
    measure_times(
        es.Parameters.from_bits("bgv", 16384, 4000, (54,) * 5)
    )  # scaled from what is known
    assert len(runs) == 2


def test_times_of_other_parameters_are_scaled(bgv):
    measured, larger = (
        es.Parameters.from_bits("bgv", n, 4000, bits)
        for n, bits in ((8192, (50,) * 4), (16384, (50,) * 7))
    )
    times = OperationTimes(
        load=1, add=1, scale=1, multiply=1, switch=1, key_switch=1, encrypt=1, unpack=1, mask=1
    )
    assert scale_times(times, measured, measured) == times
    found = scale_times(times, measured, larger)
    assert (found.add, found.multiply, found.load) == (4, 4, 4)
    assert found.switch == pytest.approx(4 * 14 / 13)
    assert found.key_switch == pytest.approx(4 * 14 / 13 * 7 / 4)
    assert found.rows_ratio == 1


def test_what_a_busy_machine_measured_is_measured_again_when_it_is_quiet(
    bgv, tmp_path, monkeypatch
):
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path))
    runs = []
    monkeypatch.setattr(
        calibration,
        "calibrate",
        lambda parameters: runs.append(1) or OperationTimes(*[len(runs)] * 8),
    )
    for busy, measured in ((4.0, 1), (3.0, 1), (0.1, 2), (0.1, 2), (4.0, 2)):
        monkeypatch.setattr(calibration, "_read_load", lambda busy=busy: busy)
        measure_times(bgv.parameters)
        assert len(runs) == measured


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
def test_what_seal_computes_is_measured_with_a_handful_of_totals(monkeypatch):
    """Its products take so long that a measurement of all that kernels are measured with would take
    a minute.
    """
    computed = []

    def counted(outputs, source, **options):
        computed.append(len(outputs) * source.layout.n_chunks)
        return evaluate(outputs, source, **options)

    monkeypatch.setattr(calibration, "evaluate", counted)
    assert calibrate(lab_of("bfv").parameters).rows_ratio > 0
    assert max(computed) < 50


@pytest.mark.parametrize("content", ["", "no json", "[1, 2]", "null", "damaged entry", "old entry"])
def test_a_damaged_cache_of_times_is_measured_again(bgv, tmp_path, monkeypatch, content):
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path))
    monkeypatch.setattr(
        calibration, "calibrate", lambda parameters: OperationTimes(1, 2, 3, 4, 5, 6, 7, 8)
    )
    measure_times(bgv.parameters)
    (file,) = tmp_path.rglob("times.json")
    if content.endswith("entry"):
        (key,) = json.loads(file.read_text())
        content = json.dumps({key: [1] if "damaged" in content else {"add": 1}})
    file.write_text(content)
    measure_times(bgv.parameters)
    assert [kept["times"] for kept in json.loads(file.read_text()).values()] == [
        vars(OperationTimes(1, 2, 3, 4, 5, 6, 7, 8))
    ]


def test_a_cache_that_cannot_be_written_does_no_harm(bgv, tmp_path, monkeypatch):
    (tmp_path / "encryptedstats").write_text("a file where a folder should be")
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path))
    monkeypatch.setattr(
        calibration, "calibrate", lambda parameters: OperationTimes(1, 2, 3, 4, 5, 6, 7, 8)
    )
    assert (
        measure_times(es.Parameters.from_bits("bgv", 8192, 4000, (42, 43, 43, 43, 43))).encrypt == 7
    )
