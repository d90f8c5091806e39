"""The CUDA device without a GPU: its kernels on this processor, over the conformance suite; and
what is shipped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import test_devices as suite
import test_interleaving as neighbours
from circuit_samples import Lab, MemorySource, forced, lab_of
from given_samples import kept_lab
from host_gpu import COMPILER, HostGpu

import encryptedstats as es
from encryptedstats.circuits.devices import Run, Task, get_devices, register, seal, unregister
from encryptedstats.circuits.devices.branchings import branchings_of
from encryptedstats.circuits.devices.cuda import CudaDevice, build
from encryptedstats.circuits.devices.cuda.gpu import BUILT, Gpu, GpuFullError, obstacle_of
from encryptedstats.circuits.devices.cuda.packing import CudaPacking
from encryptedstats.circuits.devices.cuda.ring import GpuRing
from encryptedstats.circuits.devices.cuda.sums import CudaEvaluator, Tables, parts_of
from encryptedstats.circuits.devices.native.sums import SumsEvaluator
from encryptedstats.circuits.devices.seal import SealExecution
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import Marks
from encryptedstats.circuits.lowering import FLAT, LEVELLED
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.circuits.slices import CheckpointSums
from encryptedstats.crypto.kernels import Kernels
from encryptedstats.errors import DeviceError, FileFormatError
from encryptedstats.machine import cpu_level
from encryptedstats.spotcheck import Challenge
from encryptedstats.spotcheck.combining import compile_sums, compute_combinations
from error_codes import error

n, w = suite.n, suite.w
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


class HostCuda(CudaDevice):
    """The device with all that it does on this processor."""

    name = "cuda on this processor"

    def __init__(self, arithmetic: str) -> None:
        super().__init__(HostGpu(), arithmetic)  # type: ignore[arg-type]  # a GPU in all that matters


@pytest.fixture(params=["doubles", "integers"])
def name(request: pytest.FixtureRequest) -> Any:
    register(HostCuda(request.param))
    yield HostCuda.name
    unregister(HostCuda.name)


@pytest.fixture(scope="module", params=suite.LABS)
def lab(request: pytest.FixtureRequest) -> Lab:
    return lab_of("bgv", bits=(49,) * 8, **suite.LABS[request.param])


@pytest.fixture(scope="module")
def plain() -> Lab:
    return lab_of("bgv", bits=(49,) * 8)


@pytest.fixture
def doubles() -> Iterator[str]:
    register(HostCuda("doubles"))
    yield HostCuda.name
    unregister(HostCuda.name)


@pytest.fixture(scope="module")
def totals_by_seal(lab: Lab) -> Callable[[str, str], tuple[MemorySource, EncryptedNumbers]]:
    """Rows, and what SEAL computes of them: the same whichever arithmetic is compared with it."""
    source = lab.source((9, 5, 7), seed=3)

    @cache
    def computed(what: str, form: str) -> tuple[MemorySource, EncryptedNumbers]:
        expected = suite.by_seal(suite.PROGRAMS[what], source, HostCuda.name, form=form)
        assert lab.owner.open(expected) == source.clear(suite.PROGRAMS[what])
        return source, expected

    return computed


@pytest.mark.parametrize("form", ["packed", "slots"])
@pytest.mark.parametrize("what", suite.PROGRAMS)
def test_totals(totals_by_seal: Callable[..., Any], name: str, what: str, form: str) -> None:
    source, expected = totals_by_seal(what, form)
    found = evaluate(suite.PROGRAMS[what], source, device=name, form=form, **suite.QUIET)
    suite.same_residues(found, expected)


@pytest.mark.parametrize("copies", [1, 8])
def test_responses_to_spot_checks(name: str, copies: int) -> None:
    """All devices share the code that weighs; a device gives the sums, interleaved or not."""
    totals, source = (
        neighbours.forest(20),
        lab_of("bgv", bits=(49,) * 8, copies=copies).source((7,)),
    )
    challenge = Challenge(source.keys.key_id, "", (), 7, (b"1" * 32, b"2" * 32, b"3" * 32))
    n_groups = len(compile_sums(totals, source).groups)
    assert n_groups == -(-len(dict.fromkeys(totals)) // copies)
    expected, found = (
        compute_combinations(
            totals, challenge, source, device=device, options=Run(1, progress=False)
        )
        for device in ("seal", name)
    )
    assert len(found) == 3
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one, other)


def test_columns_that_begin_lower_down(name: str) -> None:
    suite.test_columns_that_begin_lower_down(name)


def test_packs_are_taken_apart(name: str) -> None:
    session = get_devices()[name].session  # type: ignore[attr-defined]  # of this device
    suite.check_expanding(CudaPacking(kept_lab("bgv").keys, 1, session=session))


def test_rows_beside_given_totals(name: str) -> None:
    suite.test_rows_beside_given_totals(name)


def test_totals_of_given_totals(name: str) -> None:
    suite.test_totals_of_given_totals(name)


@pytest.mark.parametrize("strategy", [FLAT, LEVELLED], ids=["flat", "levelled"])
def test_what_is_done_about_growing_ciphertexts(lab: Lab, name: str, strategy: Any) -> None:
    suite.test_what_is_done_about_growing_ciphertexts(lab, name, strategy)


def test_marked_slots(name: str) -> None:
    suite.test_marked_slots(name)


def test_weighted_slots(name: str) -> None:
    suite.test_weighted_slots(name)


def test_marked_slots_of_interleaved_totals(name: str) -> None:
    """Masks of several totals in one ciphertext, each with its power of X."""
    lab = Lab(es.Owner(lab_of("bgv", bits=(49,) * 8, copies=8).parameters), (0, 1, 4, 16))
    outputs = [(n * w).mask(Marks(chunk, [slot])).total() for chunk in range(2) for slot in (0, 3)]
    outputs += [(n - w).mask(Marks(1, [1, 2])).total() + 3 * w.total()]
    suite.check(outputs, lab.source((9, 7)), name)


@pytest.mark.parametrize("chunks", [1, 3])
def test_parts_of_interleaved_totals(name: str, chunks: int) -> None:
    """The products that interleaved totals add up are computed as trees, and then added up."""
    source, outputs = neighbours.lab(8).source((9,) * chunks, seed=3), neighbours.forest(9)
    parts = parts_of(compile_for(outputs, source).program.sums)
    assert parts is not None
    assert branchings_of(parts.sums) is not None
    suite.check(outputs, source, name)


@pytest.mark.parametrize("form", ["packed", "slots"])
def test_drawing_never_leaves_the_gpu(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks, moves, and products that are relinearised on the way: SEAL and the native kernels do
    nothing of it.
    """
    source = Lab(es.Owner(lab_of("bgv", bits=(49,) * 8).parameters), (0, 1, 4, 16, 64, 256)).source(
        (9, 7)
    )
    moved = (n * w).mask(Marks(1, [2, 3])).move(1, 5, True)
    outputs = [1 - (3 * moved - w - 2).mask(Marks(0, [slot])).total() for slot in range(3)]
    outputs += [(moved * w * w).mask(Marks(0, [0])).total()]
    with forced(LEVELLED):
        expected = evaluate(outputs, source, device="seal", form=form, **suite.QUIET)
        monkeypatch.setattr(SealExecution, "residues_of", None)
        monkeypatch.setattr(seal, "_scale", None)
        for native in ("switch", "relinearise", "rotate", "lower", "pack"):
            monkeypatch.setattr(Kernels, native, None)
        suite.same_residues(
            evaluate(outputs, source, device=name, form=form, progress=False), expected
        )


def test_a_column_that_no_encryption_made_is_refused_before_it_is_marked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lab_of("bgv", bits=(49,) * 8).source((9,))
    read = type(source).residues
    monkeypatch.setattr(
        type(source), "residues", lambda self, *at: read(self, *at) | np.uint64(1 << 50)
    )
    with pytest.raises(FileFormatError, check=error("invalid-ciphertext")):
        evaluate([n.mask(Marks(0, [1])).total()], source, device=name, **suite.QUIET)


def test_a_rotation_without_a_key_is_refused(name: str) -> None:
    source = Lab(es.Owner(lab_of("bgv", bits=(49,) * 8).parameters), (1,)).source((9,))
    with pytest.raises(es.KeyMismatchError, check=error("planned-keys", "4")):
        evaluate([n.move(0, 4, False).total()], source, device=name, **suite.QUIET)


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
    """A program on a table that is there already: the same residues from what was recorded; and
    others for another table.
    """
    outputs, device = suite.PROGRAMS["products"], get_devices()[name]
    assert isinstance(device, CudaDevice)
    for seed in (3, 4):
        source = lab.source((9, 5), seed=seed)
        program = compile_for(outputs, source).program
        first, again = (
            list(device.run(Task(program, source, {}, Run(progress=False)))) for _ in range(2)
        )
        assert device.session.recorded is not None
        assert device.session.recorded.program is program
        expected = evaluate(outputs, source, device="native", progress=False)
        for packs in (first, again):
            np.testing.assert_array_equal(packs, [part.residues for part in expected.parts])


def test_a_table_that_has_no_room_on_the_gpu_is_computed_by_way_of_memory(
    lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs = lab.source((9, 5, 7), seed=3), suite.PROGRAMS["products"]
    monkeypatch.setattr(HostGpu, "memory", lambda self: (1 << 20, 1 << 20))
    monkeypatch.setattr(CudaEvaluator, "sums_on_gpu", None)
    suite.check(outputs, source, name)
    suite.check(outputs, source, name, memory_limit=1 << 16)


@pytest.mark.usefixtures("named")
def test_a_table_whose_columns_have_no_room_on_the_gpu_comes_there_some_chunks_at_a_time(
    plain: Lab, doubles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs, groups = (
        plain.source((2,) * 30, seed=3),
        suite.PROGRAMS["products"],
        list[range](),
    )
    polynomial, run = (
        8 * len(plain.parameters.data_moduli) * plain.parameters.ring_degree,
        CudaEvaluator._run,
    )

    def seen(self: CudaEvaluator, made: Any, some: Any, *more: Any, **options: Any) -> None:
        groups.append(some.chunks)
        run(self, made, some, *more, **options)

    monkeypatch.setattr(CudaEvaluator, "_run", seen)
    monkeypatch.setattr(SumsEvaluator, "passes", None)
    monkeypatch.setattr(HostGpu, "memory", lambda self: (0, 600 * polynomial))
    suite.check(outputs, source, doubles)
    assert [len(group) for group in groups] == [4] * 7 + [2]
    device = get_devices()[doubles]
    assert isinstance(device, CudaDevice)
    assert device.session.recorded is None


def test_vectors_that_have_no_room_in_a_block_lie_in_the_memory_of_the_gpu(
    lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostGpu, "shared_bytes", 64)
    device = get_devices()[name]
    assert isinstance(device, CudaDevice)
    for rows in ((30,), (9, 5, 7)):
        suite.check(suite.PROGRAMS["trees"], lab.source(rows, seed=3), name)


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("begun_by", ["gpu", "native"])
def test_a_checkpoint_goes_on_on_another_device(
    lab: Lab, name: str, begun_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs, put = (
        lab.source((9, 5), seed=3),
        suite.PROGRAMS["products"],
        CheckpointSums.put,
    )
    kept = []

    def put_once(self: CheckpointSums, number: int, sums: Any) -> None:
        if kept:
            raise DeviceError("the GPU failed")
        put(self, number, sums)
        kept.append(number)

    first, second = (name, "native") if begun_by == "gpu" else ("native", name)
    monkeypatch.setattr(CheckpointSums, "put", put_once)
    with pytest.raises(DeviceError, match="failed"):
        evaluate(outputs, source, device=first, checkpoint=tmp_path, progress=False, workers=1)
    monkeypatch.setattr(CheckpointSums, "put", put)
    computed = []
    passes = SumsEvaluator.passes
    monkeypatch.setattr(
        SumsEvaluator,
        "passes",
        lambda self, tape, slices, *more: (
            computed.extend(slices) or passes(self, tape, slices, *more)
        ),
    )
    found = evaluate(outputs, source, device=second, checkpoint=tmp_path, progress=False, workers=1)
    suite.same_residues(found, evaluate(outputs, source, device="seal", **suite.QUIET))
    assert len(kept) == 1
    assert computed
    assert len(computed) == len(lab.parameters.data_moduli) - 1


# -- a GPU that fails
# ------------------------------------------------------------------------------------------------


def failing(
    monkeypatch: pytest.MonkeyPatch, what: str, error: Exception, at: Callable[[int, Any], bool]
) -> list[int]:
    """A GPU that fails where ``at`` says, by the number of the call and the size that is asked
    for; and how often it has.
    """
    calls, failures, done = [0], [0], getattr(HostGpu, what)

    def fails(self: HostGpu, *args: Any, **options: Any) -> Any:
        calls[0] += 1
        if at(calls[0], args):
            failures[0] += 1
            raise type(error)(str(error))
        return done(self, *args, **options)

    monkeypatch.setattr(HostGpu, what, fails)
    return failures


FULL, GONE = (
    GpuFullError("the GPU has not enough memory left"),
    DeviceError("the GPU failed"),
)


@pytest.mark.parametrize("what", ["products", "rows elsewhere", "totals multiplied"])
@pytest.mark.parametrize("form", ["packed", "slots"])
def test_what_is_kept_on_a_full_gpu_makes_room(
    plain: Lab, doubles: str, what: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs = plain.source((9, 5), seed=3), suite.PROGRAMS[what]
    failures = failing(monkeypatch, "empty", FULL, lambda call, shape: call == 40)
    suite.check(outputs, source, doubles, form=form)
    assert failures == [1]


@pytest.mark.parametrize("what", ["products", "rows elsewhere"])
def test_what_has_no_room_at_once_is_computed_some_at_a_time_or_elsewhere(
    plain: Lab, doubles: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs = plain.source((9, 5), seed=3), suite.PROGRAMS[what]
    ring = (
        plain.parameters.ring_degree
    )  # what goes through whole is refused, and keys with it where steps are taken
    failures = failing(
        monkeypatch,
        "empty",
        FULL,
        lambda call, shape: shape[-1] == ring and (shape[0] > 2 or what == "rows elsewhere"),
    )
    suite.check(outputs, source, doubles, memory_limit=1 << 16, form="slots")
    assert failures[0] >= 2


@pytest.mark.parametrize("call", [1, 5, 30])
def test_a_gpu_that_fails_says_so_and_another_device_goes_on(
    plain: Lab, doubles: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs = plain.source((9, 5), seed=3), suite.PROGRAMS["products"]
    failing(monkeypatch, "launch", GONE, lambda number, args: number >= call)
    with pytest.raises(DeviceError, match="the GPU failed"):
        evaluate(outputs, source, device=doubles, **suite.QUIET)
    suite.check(outputs, source, "native")


@pytest.mark.usefixtures("named")
def test_a_checkpoint_of_a_gpu_that_fails_goes_on_on_another_device(
    plain: Lab, doubles: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, outputs = plain.source((9, 5), seed=3), suite.PROGRAMS["products"]
    options: dict[str, Any] = {"checkpoint": tmp_path, "progress": False, "workers": 1}
    failing(monkeypatch, "launch", GONE, lambda number, args: number > 5)  # two for a slice
    with pytest.raises(DeviceError, match="the GPU failed"):
        evaluate(outputs, source, device=doubles, **options)
    computed: list[Any] = []
    passes = SumsEvaluator.passes
    monkeypatch.setattr(
        SumsEvaluator,
        "passes",
        lambda self, tape, slices, *more: (
            computed.extend(slices) or passes(self, tape, slices, *more)
        ),
    )
    found = evaluate(outputs, source, device="native", **options)
    suite.same_residues(found, evaluate(outputs, source, device="seal", **suite.QUIET))
    assert 0 < len(computed) < len(plain.parameters.data_moduli)


def test_what_the_driver_says_becomes_an_error_and_a_gpu_that_failed_is_not_taken_again() -> None:
    gpu = Gpu.__new__(Gpu)
    results = SimpleNamespace(CUDA_SUCCESS=0, CUDA_ERROR_OUT_OF_MEMORY=2)
    said = lambda error: (0, b"an illegal memory access was encountered")  # noqa: E731
    gpu.driver, gpu.process, gpu.failure = (
        SimpleNamespace(CUresult=results, cuGetErrorString=said),
        os.getpid(),
        None,
    )
    assert gpu._done((0, 7)) == 7
    with pytest.raises(GpuFullError, check=error("GPU-full", "'native'", "device='native'")):
        gpu._done((2,))
    assert obstacle_of(gpu) is None
    with pytest.raises(DeviceError, check=error("GPU-failed", "'native'", "device='native'")):
        gpu._done((700,))
    assert (
        "has failed (an illegal memory access was encountered), and is of use again to a new "
        "process" in str(obstacle_of(gpu))
    )


def test_a_forked_process_is_told_why_it_has_no_gpu(
    plain: Lab, doubles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, check=error("device-unable", "'spawn'")):
        evaluate([n.total()], plain.source((5,)), device=doubles, **suite.QUIET)


@pytest.mark.usefixtures("named")
def test_columns_stay_on_the_gpu_until_another_table_needs_the_room(
    plain: Lab, doubles: str, monkeypatch: Any
) -> None:
    sources, outputs, read = (
        [plain.source((9,), seed=seed) for seed in (3, 4)],
        suite.PROGRAMS["products"],
        [],
    )
    pieces = MemorySource.pieces
    monkeypatch.setattr(
        MemorySource, "pieces", lambda self, *args: read.append(self) or pieces(self, *args)
    )
    for source in (*sources, *sources):
        evaluate(outputs, source, device=doubles, **suite.QUIET)
    assert read == sources
    monkeypatch.setattr(Tables, "of", lambda self, name, most, of=Tables.of: of(self, name, 0))
    for source in (*sources, *sources):
        evaluate(outputs, source, device=doubles, **suite.QUIET)
    assert read == [*sources, sources[1], *sources]


@pytest.mark.parametrize("arithmetic", ["doubles", "integers"])
@pytest.mark.parametrize(
    ("ring_degree", "bits"), [(8192, 36), (8192, 43), (8192, 49), (16384, 47), (32768, 49)]
)
def test_transforms(ring_degree: int, bits: int, arithmetic: str) -> None:
    """Of every length that a block does at once or not, up to the largest prime of doubles;
    residues 0, 1 and p - 1 too.
    """
    parameters = es.Parameters.from_bits("bgv", ring_degree, 4000, (bits,) * 3)
    kernels = Kernels(parameters, None, None, cpu_level())
    ring = GpuRing(parameters, HostGpu(), arithmetic)  # type: ignore[arg-type]  # a GPU in all that matters
    p = parameters.data_moduli[0]
    values = np.random.default_rng(1).integers(0, p, (5, ring_degree), dtype=np.uint64)
    values[1], values[2], values[3], values[4, ::2] = p - 1, 1, 0, p - 1
    for inverse in (False, True):
        expected = kernels.transform(values, 0, inverse=inverse)
        np.testing.assert_array_equal(ring.transform(values, 0, inverse=inverse), expected)


def test_what_is_shipped_is_made_from_the_sources() -> None:
    made = json.loads((BUILT / "made.json").read_text())
    assert made["sources"] == build.digest(), (
        "python -m encryptedstats.circuits.devices.cuda.build makes them again"
    )
    for architecture in build.ARCHITECTURES:
        assert (
            hashlib.sha256(build.path_of(architecture).read_bytes()).hexdigest()
            == made["made"][architecture]
        )


@pytest.mark.slow
@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_the_kernels_compile(architecture: str) -> None:
    """Where NVRTC is installed; by the version that made what is shipped, to the same bytes."""
    pytest.importorskip("cuda.bindings.nvrtc")
    try:
        version = build.version()
    except RuntimeError as error:
        pytest.skip(str(error))
    code = build.compile_kernels(architecture)
    if version == json.loads((BUILT / "made.json").read_text())["nvrtc"]:
        assert code == build.path_of(architecture).read_bytes()
