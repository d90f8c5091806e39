"""The conformance suite: every registered device over the same programs, demanding SEAL's residues,
bit for bit.

Devices of other files join it by being registered; the one of examples/numpy_device.py is run here
too.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from circuit_samples import SEEDS, Lab, MemorySource, circuits, forced, lab_of, unless_refused
from given_samples import kept_lab, packed, packing_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats.circuits import Expression, column
from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.devices import (
    SEAL_RULES,
    Device,
    NativeDevice,
    SealDevice,
    Speed,
    device_for,
    get_devices,
    prices,
    register,
    run_steps,
    unregister,
)
from encryptedstats.circuits.devices.batches import Packing, expand_totals
from encryptedstats.circuits.devices.cuda import gpu as gpus
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import Marks, Weights, pack_total
from encryptedstats.circuits.lowering import FLAT, LEVELLED
from encryptedstats.circuits.program import MULTIPLY, SHIFT
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.evaluator import Evaluator
from encryptedstats.crypto.packing import packing_parameters
from encryptedstats.errors import DeviceError
from error_codes import error

EXAMPLE = Path(__file__).parents[2] / "examples/numpy_device.py"
few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
a, b, c, y, w, n = (column(name) for name in ("a0", "b1", "a2", "y0", "w", "n"))
QUIET: dict[str, Any] = {"progress": False, "workers": 1}


def documented_device() -> Device:
    """Return the device of the examples, which registers itself."""
    runpy.run_path(str(EXAMPLE))
    return get_devices()["numpy"]


documented_device()
NO_GPU = gpus.obstacle()
NAMES = [name for name in get_devices() if name != "seal" and not (name == "cuda" and NO_GPU)]


@pytest.fixture(params=[*NAMES, *(["cuda"] if NO_GPU else [])])
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and NO_GPU:
        pytest.skip(NO_GPU)
    return request.param


def same_residues(found: EncryptedNumbers, expected: EncryptedNumbers) -> None:
    assert found.facts == expected.facts
    assert len(found.parts) == len(expected.parts)
    for mine, theirs in zip(found.parts, expected.parts, strict=True):
        assert mine.noise == theirs.noise
        np.testing.assert_array_equal(mine.residues, theirs.residues)


def by_seal(
    outputs: Sequence[Expression], source: MemorySource, name: str, **options: Any
) -> EncryptedNumbers:
    """SEAL's residues of what a device of this name computes: with interleaved totals,
    or without.
    """
    with mock.patch.object(SealDevice, "interleaves", get_devices()[name].interleaves):
        return evaluate(outputs, source, device="seal", **QUIET, **options)


def check(outputs: Sequence[Expression], source: MemorySource, name: str, **options: Any) -> None:
    """Through the public entry point."""
    expected = by_seal(outputs, source, name, **options)
    same_residues(evaluate(outputs, source, device=name, **QUIET, **options), expected)
    if expected.form != "rows":
        assert source.lab.owner.open(expected) == source.clear(outputs)


#: BGV that the kernels take, primes below 2^50: with primes that are 1 modulo t, with others, and
#: with interleaved totals.
LABS: dict[str, dict[str, Any]] = {
    "plain": {},
    "factors": {"factors": True},
    "copies": {"copies": 8},
}


@pytest.fixture(scope="module", params=LABS)
def lab(request: pytest.FixtureRequest) -> Lab:
    return lab_of("bgv", bits=(49,) * 8, **LABS[request.param])


#: One program for each thing that a device has to do.
PROGRAMS = {
    "columns": [a.total(), n.total(), (a + b).total()],
    "products": [
        (a * y).total(),
        (a * b * y).total(),
        (n * n).total(),
        ((a + c) * (y + w) * n).total(),
    ],
    "trees": [
        (y * a).total(),
        (y - y * a).total(),
        (y * a * (b + c)).total(),
        (y * a - y * a * (b + c)).total(),
    ],
    "paths": [
        (y * a).total(),
        ((y - y * a) * b).total(),
        ((y * a - y * a * c) * (b + c)).total(),
        (((7 - n) - (7 - n) * a) * w).total(),
    ],
    "numbers": [
        (3 * a - 2 * n + 5).total(),
        (7 - a * y).total(),
        (-(n * w) - 4).total(),
        (-a).total(),
    ],
    "totals added up": [2 * a.total() - 3 * (a * y).total() + 11, -(n.total()) + w.total()],
    "totals multiplied": [a.total() * n.total(), (a * y).total() * w.total() - 5, n.total() ** 2],
    "totals back in the rows": [
        (a.total().replicate() * y).total(),
        ((n * y).total().replicate() * y + 1 * y).total(),
    ],
    "rows elsewhere": [n.resample(SEEDS[0]).total(), (n * w.resample(SEEDS[1])).total()],
    "the same twice": [(a * y).total(), (a * y).total(), 1 * (y * a).total()],
}


# What switching leaves is in packs as in the other forms.
FORMED = [("plain", form) for form in ("packed", "replicated", "slots")] + [
    ("factors", "packed"),
    ("copies", "packed"),
]
FORMED += [("copies", "replicated"), ("copies", "slots")]
REST = [pytest.param("factors", form, marks=pytest.mark.slow) for form in ("replicated", "slots")]


@pytest.mark.parametrize(("lab", "form"), [*FORMED, *REST], indirect=["lab"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_totals(lab: Lab, what: str, form: str) -> None:
    outputs, source = PROGRAMS[what], lab.source((9, 5, 7), seed=3)
    # The form is made of what a device computes: one of them shows it, and all of them the rest.
    made: dict[bool, EncryptedNumbers] = {}
    for name in NAMES if form == "packed" else ["native"]:
        together = get_devices()[name].interleaves and lab.owner.parameters.copies > 1
        if together not in made:
            made[together] = by_seal(outputs, source, name, form=form)
            assert lab.owner.open(made[together]) == source.clear(outputs)
        found = evaluate(outputs, source, device=name, form=form, **QUIET)
        same_residues(found, made[together])


@pytest.mark.parametrize("strategy", [FLAT, LEVELLED], ids=["flat", "levelled"])
def test_what_is_done_about_growing_ciphertexts(lab: Lab, name: str, strategy: Any) -> None:
    with forced(strategy):
        check(PROGRAMS["products"], lab.source((30,)), name)


@few
@given(circuits(), st.sampled_from(list(LABS)))
def test_random_programs(outputs: list[Expression], which: str) -> None:
    source = lab_of("bgv", bits=(49,) * 8, **LABS[which]).source((9, 5), seed=1)
    for name in NAMES:
        expected = unless_refused(lambda name=name: by_seal(outputs, source, name))
        if expected is not None:
            same_residues(evaluate(outputs, source, device=name, **QUIET), expected)


def test_marked_slots(name: str) -> None:
    lab = Lab(es.Owner(lab_of("bgv", bits=(49,) * 8).parameters), (0, 1, 4, 16, 64, 256))
    source = lab.source((9, 7))
    moved = (n * w).mask(Marks(1, [2, 3])).move(1, 5, True)
    check(
        [moved.mask(Marks(0, [0, 1])).total(), n.mask(Marks(0, [4])).total() + 3 * w.total()],
        source,
        name,
    )


def test_weighted_slots(name: str) -> None:
    """Numbers modulo t for rows and for padding: no device takes them for marks."""
    source = lab_of("bgv", bits=(49,) * 8).source((9, 7))
    modulus = source.parameters.plain_modulus
    whole = Interval(-(modulus // 2), modulus // 2)
    row = (n * w - n).mask(Weights(0, 0, source.parameters.slots, b"a")) + w.mask(
        Weights(1, 3, 7, b"b")
    )
    expected = evaluate([row.total()], source, device="seal", bounds=[whole], **QUIET)
    same_residues(evaluate([row.total()], source, device=name, bounds=[whole], **QUIET), expected)
    marks = (n * w - n).mask(Marks(0, range(9))) + w.mask(Marks(1, range(3, 7)))
    plain = evaluate([marks.total()], source, device="seal", bounds=[whole], **QUIET)
    assert (plain.parts[0].residues != expected.parts[0].residues).any()


def test_the_kernels_switch_keys_where_rows_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is dear in drawing a fraction; and what is marked twice is relinearised once, before."""
    source = Lab(es.Owner(lab_of("bgv", bits=(49,) * 8).parameters), (0, 1, 4, 16, 64, 256)).source(
        (9, 7)
    )
    moved = (n * w).mask(Marks(1, [2, 3])).move(1, 5, True)
    outputs = [(moved * w).mask(Marks(0, [slot])).total() for slot in range(3)]
    with forced(LEVELLED):
        program = compile_for(outputs, source).program
        assert (
            sum(step.op == "relinearise" for step in program.steps) == 2
        )  # of n * w and of moved * w
        expected = evaluate(outputs, source, device="seal", **QUIET)
        for method in ("rotate", "relinearise"):
            monkeypatch.delattr(Evaluator, method)
        same_residues(evaluate(outputs, source, device="native", **QUIET), expected)
        with pytest.raises(AttributeError):
            evaluate(outputs, source, device="seal", **QUIET)


def test_columns_that_begin_lower_down(name: str) -> None:
    """Keys that have primes to spare for a shallow circuit."""
    lab = kept_lab("bgv")
    source = lab.source((25, 3), seed=1)
    outputs = [a.total(), (a * y).total()]
    assert compile_for(outputs, source).program.sums[0].level > 0
    check(outputs, source, name)


@pytest.mark.parametrize(
    "lab", ["plain", "copies", pytest.param("factors", marks=pytest.mark.slow)], indirect=True
)
def test_many_packs_and_batches(lab: Lab, name: str) -> None:
    """More totals than a batch has, several in a pack."""
    outputs = [(a * y + k * w).total() for k in range(1, 71)]
    source = lab.source((9, 5))
    expected = packed(outputs, source, 16)
    report = compile_for(outputs, source)
    assert report.program.width >= 16
    found = evaluate(outputs, source, device=name, progress=False, workers=2)
    assert lab.owner.open(found) == lab.owner.open(expected) == source.clear(outputs)
    same_residues(found, by_seal(outputs, source, name))


def test_totals_that_need_not_be_lowered_outlive_their_batch(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are computed batch after batch in the same memory."""
    monkeypatch.setattr("encryptedstats.circuits.devices.native.sums._SMALL_BATCH", 1)
    outputs = [k * a.total() + w.total() for k in range(1, 4)] + [
        a.total(),
        w.total(),
        n.total(),
        y.total(),
    ]
    source = lab.source((30,))
    for form in ("slots", "packed"):
        check(outputs, source, "native", form=form)
        check([a.total(), w.total(), n.total(), y.total()], source, "native", form=form)


def check_expanding(packing: Packing) -> None:
    """The totals that SEAL expands from packs under keys of ``kept_lab``, bit for bit."""
    lab = kept_lab("bgv")
    totals = packed([(k * a + w).total() for k in range(2, 75)], lab.source((25, 3)), 64)
    wanted = {0, 1, 5, 63, 64, 70}
    expected = dict(expand_totals(totals, wanted, packing_of("seal", lab.keys)))
    for index, residues in expand_totals(totals, wanted, packing):
        np.testing.assert_array_equal(residues, expected.pop(index))
    assert not expected


def test_packs_are_taken_apart() -> None:
    check_expanding(packing_of("native", kept_lab("bgv").keys))


def test_rows_beside_given_totals(name: str) -> None:
    lab = kept_lab("bgv")
    source, new = lab.source((25, 3), seed=1), lab.source((5, 9), seed=2)
    packs = {"model": packed([(a * y).total(), w.total(), (2 - b * y).total() + 3], source, 2)}
    outputs = [
        pack_total("model", 0) * a + pack_total("model", 2) * (y - a),
        pack_total("model", 1) * w * n - 2 * (w * y),
    ]
    options = {"form": "rows", "packs": packs, "bounds": [Interval(-100_000, 100_000)] * 2}
    check(outputs, new, name, **options)


@pytest.mark.parametrize("limit", [None, 1], ids=["at once", "in batches"])
def test_terms_of_other_degrees_beside_given_totals(limit: int | None) -> None:
    """Under primes that are not 1 modulo t, terms have other factors: a sum has that of one of
    them, whichever comes first.
    """
    lab = lab_of("bgv", max_value=1 << 22, bits=(49,) * 10, kept=6, factors=True)
    source, new = lab.source((25, 3), seed=1), lab.source((9,), seed=2)
    totals = [(a * y).total() + k for k in range(20)]
    packs = {"model": packed(totals, source)}
    terms = [pack_total("model", k) * (a if k % 2 else a * y) for k in range(20)]
    outputs = [sum(terms, 3 * w), sum(terms[::-1], n * w)]
    found = evaluate(
        outputs,
        new,
        form="rows",
        packs=packs,
        bounds=[Interval(-100_000, 100_000)] * 2,
        device="native",
        memory_limit=limit,
        **QUIET,
    )
    known = source.clear(totals)
    rows = {name: np.asarray(new.columns[name], dtype=np.int64) for name in ("a0", "y0", "w", "n")}
    votes = sum(known[k] * rows["a0"] * (1 if k % 2 else rows["y0"]) for k in range(20))
    expected = np.stack([votes + 3 * rows["w"], votes + rows["n"] * rows["w"]])
    assert np.array(lab.owner.open(found)).tolist() in (expected.tolist(), expected.T.tolist())


@pytest.mark.parametrize("workers", [1, 3])
def test_totals_that_are_merged_as_they_come(workers: int) -> None:
    """Groups of neighbours are merged early where memory is short: the packs are the same."""
    lab = kept_lab("bgv")
    source = lab.source((25, 3), seed=1)
    outputs = [(a * y).total() + (w * k).total() for k in range(1, 301)]
    short = 4 * (len(outputs) - 1) * packing_parameters(source.parameters).ciphertext_bytes()
    found, expected = (
        evaluate(outputs, source, memory_limit=limit, progress=False, workers=workers)
        for limit in (short, None)
    )
    same_residues(found, expected)
    assert lab.owner.open(found) == source.clear(outputs)


def test_totals_of_given_totals(name: str) -> None:
    lab = kept_lab("bgv")
    source, new = lab.source((25, 3), seed=1), lab.source((5, 9), seed=2)
    packs = {"model": packed([(a * y).total(), w.total()], source, 2)}
    outputs = [(pack_total("model", 0) * a).total(), (pack_total("model", 1) * (w - n)).total()]
    options: dict[str, Any] = {"packs": packs, "bounds": [Interval(-100_000, 100_000)] * 2, **QUIET}
    expected = evaluate(outputs, new, device="seal", **options)
    same_residues(evaluate(outputs, new, device=name, **options), expected)
    fitted, (sa, sw, sn) = (
        source.clear([(a * y).total(), w.total()]),
        new.clear([a.total(), w.total(), n.total()]),
    )
    assert lab.owner.open(expected) == [fitted[0] * sa, fitted[1] * (sw - sn)]


def test_a_sum_that_is_always_0_is_refused(lab: Lab, name: str) -> None:
    with pytest.raises(ValueError, match=r"0 for every table|transparent"):
        evaluate([((a + b) * y - a * y - b * y).total()], lab.source((5,)), device=name, **QUIET)


# -- the registry
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def stubborn() -> Iterator[Device]:
    class Stubborn(SealDevice):
        name = "stubborn"

        speed = Speed(rows=0.0, totals=0.0)

        def obstacle(self, program: Any) -> str | None:
            return "it does not want to"

    device = Stubborn()
    register(device, preferred=True)
    yield device
    unregister("stubborn")


def test_auto_takes_the_cheapest_that_can(lab: Lab, stubborn: Device) -> None:
    program = compile_for([(a * b).total()], lab.source((5,))).program
    assert stubborn.seconds(program) == 0
    assert "stubborn" not in prices([program])
    assert isinstance(device_for("auto", program), NativeDevice)
    bfv = compile_for([a.total()], lab_of("bfv").source((5,))).program
    assert type(device_for("auto", bfv)) is SealDevice
    with pytest.raises(
        DeviceError, check=error("device-unable", "'stubborn'", "device='stubborn'")
    ):
        evaluate([a.total()], lab.source((5,)), device="stubborn")


def test_a_faster_device_is_taken_where_it_is_worth_beginning(lab: Lab) -> None:
    class Gpu(SealDevice):
        name = "gpu"
        speed = Speed(rows=0.0, totals=0.0, start=1.0)

    programs = [
        compile_for([(a * b).total()], lab.source((5,) * chunks)).program for chunks in (1, 9)
    ]
    (small, large), gpu = (program.words for program in programs), Gpu()
    assert large[0] == 9 * small[0]
    assert large[1] == small[1]
    register(gpu)
    try:
        assert device_for("auto", programs[0]) is get_devices()["native"]
        Gpu.speed = Speed(rows=0.0, totals=0.0)
        assert device_for("auto", programs[0]) is gpu
        assert list(prices(programs))[:2] == ["gpu", "native"]
    finally:
        unregister("gpu")


def test_kernels_price_what_seal_does_for_them(lab: Lab) -> None:
    here = compile_for([(a * b).total()], lab.source((5, 5))).program
    moved = compile_for([(a * b).resample(SEEDS[0]).total()], lab.source((5, 5))).program
    native, by_seal = get_devices()["native"], get_devices()["seal"]
    assert by_seal.seconds(here) > 5 * native.seconds(here)
    assert native.seconds(moved) > SealDevice.speed.rows * moved.words[0]


def test_no_such_device(lab: Lab) -> None:
    with pytest.raises(
        DeviceError,
        check=error(
            "unknown-device",
            "'gpu'",
            "'auto'",
            "'cuda'",
            "'native'",
            "'seal'",
            "'numpy'",
            "device='gpu'",
        ),
    ):
        evaluate([a.total()], lab.source((5,)), device="gpu")


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU here")
def test_without_a_gpu_the_device_says_why(lab: Lab) -> None:
    with pytest.raises(DeviceError, check=error("device-unable", "'cuda'", "device='cuda'")):
        evaluate([a.total()], lab.source((5,)), device="cuda")


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU here")
def test_without_a_gpu_nothing_else_is_blamed(lab: Lab) -> None:
    """Interleaved totals, which this device does not compute, are not the reason."""
    totals = [(a * b).total(), a.total(), b.total()]
    with pytest.raises(DeviceError, check=error("device-unable")) as refused:
        evaluate(totals, lab.source((5, 5)), device="cuda")
    assert [cure.action for cure in refused.value.cures] == ["device", "any device"]
    shifted: Any = SimpleNamespace(steps=[SimpleNamespace(op=SHIFT)])
    assert "no GPU was found" in str(get_devices()["cuda"].obstacle(shifted))


def test_what_a_device_cannot_do_it_says(name: str) -> None:
    with pytest.raises(DeviceError, check=error("device-unable", name)):
        evaluate([a.total()], lab_of("bfv").source((5,)), device=name)


def test_a_registered_device_is_known_wherever_work_is_done(name: str) -> None:
    """A fit, a statistic and a prediction by the public calls alone."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {"u": rng.integers(0, 3, 40), "v": rng.integers(0, 2, 40), "ill": rng.integers(0, 2, 40)}
    ).astype(str)
    schema = es.Schema.infer(frame, target="ill")
    table = schema.table(frame)
    owner = kept_lab("bgv").owner
    sealed = owner.encrypt(table)
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, random_state=1)
    clear = es.CompletelyRandomForest(n_trees=2, depth=1, random_state=1).fit(table)
    forest.fit(sealed, device=name, progress=False)
    assert owner.open(forest).leaf_counts_.tolist() == clear.leaf_counts_.tolist()
    votes = forest.predict_votes(
        owner.encrypt(schema.table(frame.head(5))), device=name, progress=False
    )
    assert (
        owner.open(votes).to_numpy().tolist()
        == clear.predict_votes(frame.head(5)).to_numpy().tolist()
    )
    counts = owner.open(sealed.counts("u", by="class", device=name, progress=False))
    assert counts.to_numpy().tolist() == table.counts("u", by="class").to_numpy().tolist()


# -- devices that do something else
# -----------------------------------------------------------------------------------------


class Liar(SealDevice):
    """Does what SEAL does, and then something to it."""

    name = "liar"
    spoil: Any = staticmethod(lambda results: results)

    def run(self, task: Any) -> Iterator[Any]:
        yield from type(self).spoil(list(super().run(task)))


@pytest.fixture
def liar() -> Iterator[type[Liar]]:
    register(Liar())
    yield Liar
    unregister("liar")
    Liar.spoil = staticmethod(lambda results: results)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda results: [one[..., :1] for one in results], "shape"),
        (lambda results: [one.astype(np.int64) for one in results], "int64"),
        (lambda results: [one + np.uint64(1 << 60) for one in results], "not below their primes"),
        (lambda results: [np.concatenate([one, one[:1]]) for one in results], "shape"),
        (lambda results: results[1:], "it gives 1 of 2 ciphertexts"),
        (lambda results: [*results, results[0]], "it gives more than 2 ciphertexts"),
    ],
)
@pytest.mark.parametrize("form", ["slots", "rows"])
def test_what_a_device_gives_is_looked_at(
    lab: Lab, liar: type[Liar], form: str, spoil: Any, complaint: str
) -> None:
    liar.spoil = staticmethod(spoil)
    outputs = [w, n] if form == "rows" else [(a * y).total(), w.total()]
    options: dict[str, Any] = {"bounds": [Interval(-9, 9)] * 2} if form == "rows" else {}
    with pytest.raises(DeviceError, check=error("faulty-device", complaint)):
        evaluate(outputs, lab.source((5,)), device="liar", form=form, **options, **QUIET)


def test_packs_are_looked_at(lab: Lab, liar: type[Liar]) -> None:
    liar.spoil = staticmethod(lambda results: [one[:, :1] for one in results])
    with pytest.raises(DeviceError, check=error("faulty-device", "2", "1", "1024")):
        evaluate([(a * y).total()], lab.source((5,)), device="liar", **QUIET)


def test_an_operation_without_a_rule_is_refused(lab: Lab) -> None:
    class Adder(SealDevice):
        name = "adder"

        def run(self, task: Any) -> Any:
            return run_steps(task, {op: rule for op, rule in SEAL_RULES.items() if op != MULTIPLY})

    register(Adder())
    try:
        check([(a + y).total()], lab.source((5,)), "adder")
        with pytest.raises(ValueError, check=error("unknown-step")):
            evaluate([(a * y).total()], lab.source((5,)), device="adder", **QUIET)
    finally:
        unregister("adder")


def test_a_checkpoint_does_not_know_given_totals(tmp_path: Path) -> None:
    lab = kept_lab("bgv")
    source, new = lab.source((25, 3), seed=1), lab.source((5, 9), seed=2)
    options: dict[str, Any] = {
        "packs": {"model": packed([w.total()], source, 1)},
        "bounds": [Interval(-9999, 9999)],
    }
    with pytest.raises(DeviceError, check=error("checkpoint-unsupported")):
        evaluate(
            [(pack_total("model", 0) * a).total()],
            new,
            checkpoint=tmp_path / "c",
            **options,
            **QUIET,
        )
