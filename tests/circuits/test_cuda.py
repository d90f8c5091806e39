"""The CUDA device without a card: its kernels on this processor, over the conformance suite; and what is shipped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_devices as suite
from circuit_samples import Lab, MemorySource, lab_of
from host_card import COMPILER, HostCard

import encryptedstats as es
from encryptedstats.circuits.devices import Run, register, registered, unregister
from encryptedstats.circuits.devices.cuda import CudaDevice, build
from encryptedstats.circuits.devices.cuda.card import BUILT
from encryptedstats.circuits.devices.cuda.ring import RingOnCard
from encryptedstats.circuits.devices.cuda.sums import CudaEvaluator
from encryptedstats.circuits.devices.native.sums import Evaluator
from encryptedstats.circuits.evaluate import evaluate, prepare
from encryptedstats.circuits.slices import CheckpointSums
from encryptedstats.errors import DeviceError

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


class HostCuda(CudaDevice):
    """The device with all that it does on this processor."""

    name = "cuda on this processor"

    def __init__(self, arithmetic: str) -> None:
        super().__init__(HostCard(), arithmetic)  # type: ignore[arg-type]  # a card in all that matters


@pytest.fixture(params=["doubles", "integers"])
def name(request: pytest.FixtureRequest) -> Any:
    register(HostCuda(request.param))
    yield HostCuda.name
    unregister(HostCuda.name)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "factors"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return lab_of("bgv", bits=(49,) * 8, factors=request.param)


@pytest.mark.parametrize("form", ["packed", "slots"])
@pytest.mark.parametrize("what", suite.PROGRAMS)
def test_totals(lab: Lab, name: str, what: str, form: str) -> None:
    suite.check(suite.PROGRAMS[what], lab.source((9, 5, 7), seed=3), name, form=form)


def test_columns_that_begin_lower_down(name: str) -> None:
    suite.test_columns_that_begin_lower_down(name)


def test_packs_are_taken_apart(name: str) -> None:
    suite.test_packs_are_taken_apart(name)


def test_rows_beside_given_totals(name: str) -> None:
    suite.test_rows_beside_given_totals(name)


def test_totals_of_given_totals(name: str) -> None:
    suite.test_totals_of_given_totals(name)


def test_a_sum_that_is_always_0_is_refused(lab: Lab, name: str) -> None:
    suite.test_a_sum_that_is_always_0_is_refused(lab, name)


def test_many_packs_and_batches(lab: Lab, name: str) -> None:
    suite.test_many_packs_and_batches(lab, name)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with a name of their own."""
    monkeypatch.setattr(MemorySource, "content_id", property(lambda self: str(id(self))))


@pytest.mark.usefixtures("named")
def test_what_is_run_again_is_started_at_once(lab: Lab, name: str) -> None:
    """A program on a table that is there already: the same residues from what was recorded; and others for another table."""
    outputs, device = suite.PROGRAMS["products"], registered()[name]
    assert isinstance(device, CudaDevice)
    for seed in (3, 4):
        source = lab.source((9, 5), seed=seed)
        program = prepare(outputs, source).program
        first, again = (list(device.packs(program, source, {}, Run(progress=False)) or ()) for _ in range(2))
        assert device._ready is not None
        assert device._ready.program is program
        expected = evaluate(outputs, source, device="native", progress=False)
        for packs in (first, again):
            np.testing.assert_array_equal(packs, [part.residues for part in expected.parts])


def test_a_table_that_has_no_room_on_the_card_is_computed_by_way_of_memory(
    lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs = lab.source((9, 5, 7), seed=3), suite.PROGRAMS["products"]
    monkeypatch.setattr(HostCard, "memory", lambda self: (1 << 20, 1 << 20))
    monkeypatch.setattr(CudaEvaluator, "sums_on_card", None)
    suite.check(outputs, source, name)
    suite.check(outputs, source, name, memory_limit=1 << 16)


def test_vectors_that_have_no_room_in_a_block_lie_in_the_memory_of_the_card(
    lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostCard, "shared_bytes", 64)
    device = registered()[name]
    assert isinstance(device, CudaDevice)
    for rows in ((30,), (9, 5, 7)):
        suite.check(suite.PROGRAMS["trees"], lab.source(rows, seed=3), name)


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("begun_by", ["card", "native"])
def test_a_checkpoint_goes_on_on_another_device(
    lab: Lab, name: str, begun_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs, put = lab.source((9, 5), seed=3), suite.PROGRAMS["products"], CheckpointSums.put
    kept = []

    def put_once(self: CheckpointSums, number: int, sums: Any) -> None:
        if kept:
            raise DeviceError("the graphics card failed")
        put(self, number, sums)
        kept.append(number)

    first, second = (name, "native") if begun_by == "card" else ("native", name)
    monkeypatch.setattr(CheckpointSums, "put", put_once)
    with pytest.raises(DeviceError, match="failed"):
        evaluate(outputs, source, device=first, checkpoint=tmp_path, progress=False, workers=1)
    monkeypatch.setattr(CheckpointSums, "put", put)
    computed = []
    passes = Evaluator.passes
    monkeypatch.setattr(
        Evaluator,
        "passes",
        lambda self, tape, slices, *more: computed.extend(slices) or passes(self, tape, slices, *more),
    )
    found = evaluate(outputs, source, device=second, checkpoint=tmp_path, progress=False, workers=1)
    suite.same_residues(found, evaluate(outputs, source, device="seal", **suite.QUIET))
    assert len(kept) == 1
    assert computed
    assert len(computed) == len(lab.parameters.data_moduli) - 1


@pytest.mark.parametrize("arithmetic", ["doubles", "integers"])
@pytest.mark.parametrize(("ring_degree", "bits"), [(8192, 36), (8192, 43), (8192, 49), (16384, 47), (32768, 49)])
def test_transforms(ring_degree: int, bits: int, arithmetic: str) -> None:
    """Of every length that a block does at once or not, up to the largest prime of doubles; residues 0, 1 and p - 1 too."""
    parameters = es.Parameters.from_bits("bgv", ring_degree, 4000, (bits,) * 3)
    keys = es.Owner(parameters).public_keys(packing=False)
    ring = RingOnCard(parameters, HostCard(), arithmetic)  # type: ignore[arg-type]  # a card in all that matters
    p = parameters.data_moduli[0]
    values = np.random.default_rng(1).integers(0, p, (5, ring_degree), dtype=np.uint64)
    values[1], values[2], values[3], values[4, ::2] = p - 1, 1, 0, p - 1
    assert keys.kernels is not None
    for inverse in (False, True):
        expected = keys.kernels.transform(values, 0, inverse=inverse)
        np.testing.assert_array_equal(ring.transform(values, 0, inverse=inverse), expected)


def test_what_is_shipped_is_made_from_the_sources() -> None:
    made = json.loads((BUILT / "made.json").read_text())
    assert made["sources"] == build.digest(), "python -m encryptedstats.circuits.devices.cuda.build makes them again"
    for architecture in build.ARCHITECTURES:
        assert hashlib.sha256(build.path_of(architecture).read_bytes()).hexdigest() == made["made"][architecture]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_the_kernels_compile(architecture: str) -> None:
    """Where NVRTC is installed; by the version that made what is shipped, to the same bytes."""
    pytest.importorskip("cuda.bindings.nvrtc")
    try:
        version = build.version()
    except RuntimeError as error:
        pytest.skip(str(error))
    code = build.compiled(architecture)
    if version == json.loads((BUILT / "made.json").read_text())["nvrtc"]:
        assert code == build.path_of(architecture).read_bytes()
