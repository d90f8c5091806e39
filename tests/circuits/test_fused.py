"""The native device gives SEAL's residues, bit for bit: any circuit, size and number of primes,
every kind of arithmetic.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from circuit_samples import (
    NAMES,
    SLOTS,
    Lab,
    MemorySource,
    circuits,
    forced,
    insecure,
    lab_of,
    lowered,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from encryptedstats.circuits import Expression, Layout, column, linear
from encryptedstats.circuits.bounds import ColumnRange, read_bounds
from encryptedstats.circuits.clear import read_clear
from encryptedstats.circuits.devices import NativeDevice, get_devices
from encryptedstats.circuits.devices.native import sums as reader
from encryptedstats.circuits.devices.native.points import write_branchings
from encryptedstats.circuits.devices.native.sums import (
    Loads,
    SumsEvaluator,
    arithmetic,
    sums_in_batches,
)
from encryptedstats.circuits.devices.native.sums import _allocate_aligned as aligned
from encryptedstats.circuits.devices.native.tape import Tape, TapeWriter
from encryptedstats.circuits.devices.seal import SealExecution
from encryptedstats.circuits.devices.steps import StepByStep
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import (
    COLUMN,
    PRODUCT,
    TOTAL,
    Marks,
    encrypted_constant,
    fold,
    in_order,
    pack_total,
)
from encryptedstats.circuits.lowering import FLAT, LEVELLED, Lowering, Schedule, Setting, Strategy
from encryptedstats.circuits.noise import NoiseRules
from encryptedstats.circuits.program import SWITCH, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto import kernels
from encryptedstats.errors import DeviceError
from error_codes import error
from native_samples import REFUSALS, one_of, random_runs, strange
from reproduction import datasets

fused = pytest.importorskip("encryptedstats._fused")
LEVELS = fused.levels()
GIB = 1 << 30
BLOCKS = (8, 100, 128, 129, 1000, 4096)  # with remainders of all kinds, for 1024 coefficients
A, B, Y = map(column, ("a0", "b0", "y0"))
slow_examples = settings(
    deadline=None, max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow]
)


@cache
def fast_lab(bits: tuple[int, ...] = (49,) * 6, max_value: int = 4000) -> Lab:
    return Lab(es.Owner(insecure("bgv", max_value, bits)))


def keyed_lab() -> Lab:
    """The same, with all rotations."""
    return lab_of("bgv", 0, 4000, (49,) * 6)


@cache
def fast_source(
    counts: tuple[int, ...] = (1000,), bits: tuple[int, ...] = (49,) * 6
) -> MemorySource:
    return fast_lab(bits).source(counts)


Sums = dict[Expression, np.ndarray]


def sum_steps(totals: Sequence[Expression], source: Source) -> dict[Expression, Step]:
    """Sums over rows, not brought into any form."""
    rules = NoiseRules(source.parameters, with_secret_key=source.with_secret_key)
    outputs = Lowering(rules, Setting(source.parameters, source.layout), Schedule(FLAT)).outputs(
        totals
    )
    return {total: output.step for total, output in zip(totals, outputs, strict=True)}


def seal_sums(totals: Sequence[Expression], source: Source) -> Sums:
    """What SEAL adds up, before anything is relinearised."""
    steps = sum_steps(totals, source)
    found = StepByStep(SealExecution).sums(list(dict.fromkeys(steps.values())), source, {})
    return {total: found[step] for total, step in steps.items()}


def loads_of(source: Source) -> Loads:
    """Columns as they were encrypted."""
    return Loads(source, 0, {}, 0)


def fused_sums(
    totals: Sequence[Expression],
    source: Source,
    threads: int = 2,
    *,
    memory_limit: int = GIB,
    **options: Any,
) -> Sums:
    steps = sum_steps(totals, source)
    found = SumsEvaluator(loads_of(source), threads, memory_limit, **options).sums(
        list(dict.fromkeys(steps.values()))
    )
    assert all(len(residues) == step.size for step, residues in found.items())
    return {total: found[step] for total, step in steps.items()}


def write_tape(totals: Sequence[Expression], source: Source, *, montgomery: bool) -> Tape:
    steps = list(sum_steps(totals, source).values())
    return TapeWriter(steps, source.parameters.plain_modulus, montgomery=montgomery).tape(steps)


def assert_same(found: Sums, expected: Sums) -> None:
    assert set(found) == set(expected)
    for total, residues in expected.items():
        np.testing.assert_array_equal(found[total], residues, err_msg=repr(total))


def tree(y: str = "y0") -> list[Expression]:
    """A tree of depth 3 as the forest writes it, and its neighbour with the same root."""
    outputs = []
    for second in (column("b0"), column("b1") + column("a0")):
        inside = [column(y)]
        for node in range(7):
            share = [column("a0") + column("a1"), second, column("b1"), column("a2")][node % 4]
            left = inside[node] * share
            inside += [left, inside[node] - left]
            outputs.append(left.total())
    return list(dict.fromkeys(outputs))


# -- against SEAL
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@given(
    outputs=circuits(max_depth=2, resample=False, stages=False, outputs=6),
    block=st.sampled_from(BLOCKS),
)
@slow_examples
def test_random_circuits(level: str, outputs: list[Expression], block: int) -> None:
    source = fast_source((1000, 24))
    totals = [node for node in in_order(outputs) if node.op == TOTAL]
    assume(totals)
    try:
        expected = seal_sums(totals, source)
    except ValueError:  # SEAL refuses a sum whose terms cancel wherever it meets one
        assume(False)
    assert_same(fused_sums(totals, source, level=level, block=block), expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("primes", range(1, 6))
def test_every_number_of_primes(level: str, primes: int) -> None:
    bits = (*(47, 45, 49, 43, 48)[:primes], 49)
    source = fast_source((1024, 77), bits)
    assert len(source.parameters.data_moduli) == primes
    assert_same(fused_sums(tree(), source, level=level), seal_sums(tree(), source))


@pytest.mark.parametrize("level", LEVELS)
def test_every_size(level: str) -> None:
    source, n, w = fast_source(), column("n"), column("w")
    powers = {1: n, 2: n * w}
    for k in range(3, 16):
        powers[k] = powers[k - 2] * powers[2] if k % 2 else powers[k // 2] * powers[k - k // 2]
    totals = [powers[k].total() for k in range(1, 16)]
    totals += [((n * w) * (n * n)).total(), ((n * w * w) * (n * n * w)).total()]
    found = fused_sums(totals, source, level=level)
    assert [len(found[total]) for total in totals] == [*range(2, 17), 5, 7]
    assert_same(found, seal_sums(totals, source))


@pytest.mark.parametrize("level", LEVELS)
def test_constants_and_coefficients(level: str) -> None:
    source, (a, b, n) = fast_source((1000, 5)), map(column, ("a0", "b0", "n"))
    t = source.parameters.plain_modulus
    rows = [
        a + 1,
        3 * n - 2 * a + 5,
        -n,
        -n - a - 7,
        (2 * n + 1) ** 3 - 7,
        a - a * b,
        2 * a - a * b,
        a * b - a,
        (t // 2) * a + t // 2,
        (t // 2 + 1) * a - (t - 1) * n + (t - 1),
        (t + 2) * a + 5 * t + 3,
        linear([(k + 1, column(name)) for k, name in enumerate(NAMES)], -4) * (a + b),
        (5 * a * n - 3) * (a * b + 4),
    ]
    totals = [row.total() for row in rows]
    assert_same(fused_sums(totals, source, level=level), seal_sums(totals, source))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_and_threads(level: str, threads: int, block: int) -> None:
    source = fast_source((1024, 77))
    assert_same(
        fused_sums(tree(), source, threads, level=level, block=block), seal_sums(tree(), source)
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("chunks_at_once", [1, 3, 16])
def test_many_chunks(level: str, chunks_at_once: int) -> None:
    source = fast_source((3,) * 20)
    totals = tree()
    one_chunk = (
        len(write_tape(totals, source, montgomery=False).columns)
        * source.parameters.ciphertext_bytes()
    )
    limit = 4 * chunks_at_once * one_chunk
    found = fused_sums(totals, source, level=level, memory_limit=limit)
    assert_same(found, seal_sums(totals, source))


# -- against integers: residues that encryption would hardly ever give
# -----------------------------------------------------


class Crafted(Source):
    """Columns whose residues are given."""

    def __init__(self, parameters: es.Parameters, columns: dict[str, list[np.ndarray]]) -> None:
        self._parameters, self.columns = parameters, columns

    @property
    def parameters(self) -> es.Parameters:
        return self._parameters

    @property
    def layout(self) -> Layout:
        chunks = len(next(iter(self.columns.values())))
        return Layout(chunks, SLOTS, (1,) * chunks)

    @property
    def keys(self) -> es.PublicKeys:
        raise AssertionError("residues alone are added up")

    @property
    def with_secret_key(self) -> bool:
        return True

    def ranges(self) -> dict[str, ColumnRange]:
        return dict.fromkeys(self.columns, ColumnRange(0, 1))

    def residues(self, name: str, chunk: int) -> np.ndarray:
        return self.columns[name][chunk]

    def sums(self, totals: Sequence[Expression]) -> dict[Expression, np.ndarray]:
        """In Python's integers."""
        p = np.array(self.parameters.data_moduli, dtype=object)[:, None]

        def rule(node: Expression, args: list[list[np.ndarray]]) -> list[np.ndarray]:
            if node.op == COLUMN:
                return list(self.columns[node.data][at[0]].astype(object))
            if node.op == PRODUCT:
                a, b = args
                return [
                    sum(a[j] * b[k - j] for j in range(len(a)) if 0 <= k - j < len(b)) % p
                    for k in range(len(a) + len(b) - 1)
                ]
            coefficients, constant = node.data
            size = max(map(len, args))
            zero = np.zeros_like(args[0][0])
            return [
                (
                    sum(
                        (c * x[k] for c, x in zip(coefficients, args, strict=True) if k < len(x)),
                        zero,
                    )
                    + constant * (k == 0)
                )
                % p
                for k in range(size)
            ]

        sums: dict[Expression, Any] = dict.fromkeys(totals, 0)
        at = [0]
        first = [id(chunk) for chunk in self.columns["x"]]
        for at[0] in sorted({first.index(one) for one in first}):
            values = fold([total.args[0] for total in totals], rule)
            for total in totals:
                sums[total] = (
                    sums[total] + first.count(first[at[0]]) * np.stack(values[total.args[0]])
                ) % p
        return {total: value.astype(np.uint64) for total, value in sums.items()}


def crafted(
    parameters: es.Parameters,
    chunks: int,
    seed: int,
    extreme: Sequence[int],
    different: int | None = None,
) -> Crafted:
    """Residues that are mostly extreme: as many before p as the negative numbers say; after
    ``different`` chunks they return.
    """
    rng = np.random.default_rng(seed)
    columns = {}
    for name in ("x", "y", "z"):
        columns[name] = []
        for _ in range(different or chunks):
            residues = np.empty((2, len(parameters.data_moduli), SLOTS), dtype=np.uint64)
            for prime, p in enumerate(parameters.data_moduli):
                special = np.array([e % p for e in extreme] + [p // 2, p // 2 + 1], dtype=np.uint64)
                uniform = rng.integers(0, p, (2, SLOTS), dtype=np.uint64)
                residues[:, prime] = np.where(
                    rng.random((2, SLOTS)) < 0.8, rng.choice(special, (2, SLOTS)), uniform
                )
            columns[name].append(residues)
        columns[name] = [columns[name][chunk % len(columns[name])] for chunk in range(chunks)]
    return Crafted(parameters, columns)


@cache
def extremes(
    bits: tuple[int, ...], extreme: tuple[int, ...]
) -> tuple[Crafted, dict[Expression, np.ndarray]]:
    """Chunks, and what Python's integers make of them: once for all processors."""
    source = crafted(
        insecure("bgv", 4000, bits), chunks=17, seed=len(bits), extreme=extreme, different=3
    )
    x, y, z = map(column, "xyz")
    rows = [
        x,
        x * y,
        x - x * y,
        (x - x * y) * z,
        (x - x * y) - (x - x * y) * z,
        (x - x * y) - (x - x * y) * z - ((x - x * y) - (x - x * y) * z) * y,
        (x * y) * (y * z),
        (x + y + z) * (x - y - z),
        7 * x * y - 3 * z - 1,
    ]
    rows += [
        linear([(1, x), (1, y), (1, z)] * 1, 1) ** 6,
        sum((k * x * (y + k) for k in range(2, 14)), -x),
        x**8 * y**7,
    ]
    return source, source.sums([row.total() for row in rows])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [(50, 50, 50), (32, 50, 34, 44), (44, 47, 45, 47)])
@pytest.mark.parametrize("extreme", [(0, 1, -1), (-1,), (-1, -2)])
def test_extreme_residues(level: str, bits: tuple[int, ...], extreme: tuple[int, ...]) -> None:
    source, expected = extremes(bits, extreme)
    assert max(source.parameters.data_moduli) < 1 << 50
    for block in (64, 1000):
        found = fused_sums(list(expected), source, level=level, block=block)
        for total in expected:
            np.testing.assert_array_equal(found[total], expected[total], err_msg=repr(total))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [(50, 50), (44, 44), (47, 47)])
def test_sums_of_many_residues_of_one_sign(level: str, bits: tuple[int, ...]) -> None:
    """As far from 0 as residues and products are: as many terms as are added up before they are
    reduced, of several sizes, and what is left over after three splits.
    """
    parameters, names = insecure("bgv", 4000, bits), ["x", *(f"c{k}" for k in range(27))]
    columns = {}
    for place, name in enumerate(names):
        residues = np.empty((2, len(parameters.data_moduli), SLOTS), dtype=np.uint64)
        for prime, p in enumerate(parameters.data_moduli):
            # (p - 1) / 2 in the first half, and -(p - 1) / 2 in the second; what others are
            # multiplied by has both signs.
            residues[:, prime] = np.repeat([p // 2, p // 2 + 1], SLOTS // 2)
            residues[1, prime] = np.roll(residues[1, prime], place % 2)
        columns[name] = [residues] * 16  # as many chunks as are added up before they are reduced
    source, (x, *others) = Crafted(parameters, columns), map(column, names)
    lefts = []
    for name in others[:24]:
        left = name
        for by in others[24:]:
            left = left - left * by
        lefts.append(left)
    plain = linear([(1, name) for name in others])
    rows = [
        plain,
        linear([(1, name) for name in reversed(others)] + [(-1, x), (2, x * x)], -1),
        linear([(1, left) for left in lefts] + [(1, x)]),
        linear([(1, x), *((1, left * x) for left in lefts), (3, x * x)]),
        *lefts,
        plain * lefts[0],
    ]
    expected = source.sums([row.total() for row in rows])
    found = fused_sums(list(expected), source, level=level, block=1000)
    for total in expected:
        np.testing.assert_array_equal(found[total], expected[total], err_msg=repr(total)[:200])


def polynomials(node: Expression) -> int:
    """How many a ciphertext has that nothing was relinearised for."""
    sizes = fold(
        [node], lambda one, args: sum(args) - 1 if one.op == PRODUCT else max(args, default=2)
    )
    return int(sizes[node])


@pytest.mark.parametrize("level", LEVELS)
@given(data=st.data())
@slow_examples
def test_random_circuits_over_extreme_residues(level: str, data: st.DataObject) -> None:
    bits = data.draw(st.sampled_from([(50, 50), (44, 47), (42, 44, 43)]))
    source = crafted(
        insecure("bgv", 4000, bits),
        chunks=2,
        seed=data.draw(st.integers(0, 9)),
        extreme=(0, 1, -1),
    )
    pool = [column(name) for name in "xyz"]
    for _ in range(data.draw(st.integers(1, 8))):
        a, b = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
        c, d = data.draw(st.integers(-3, 3)), data.draw(st.integers(1, 3))
        new = data.draw(st.sampled_from(["product", "rest", "linear"]))
        try:
            pool.append(
                {"product": a * b, "rest": a - a * b}[new]
                if new != "linear"
                else linear([(d, a), (c, b)], c)
            )
        except ValueError:
            continue
        if polynomials(pool[-1]) > 16:
            pool.pop()
    totals = list(dict.fromkeys(row.total() for row in pool))
    try:
        found = fused_sums(totals, source, level=level, block=data.draw(st.sampled_from(BLOCKS)))
    except ValueError as error:
        if "terms cancel" not in str(error):
            raise
        return
    for total, expected in source.sums(totals).items():
        np.testing.assert_array_equal(found[total], expected, err_msg=repr(total))


# -- what is refused
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("value", ["p", "2^50", "2^52", "2^63", "2^64-1"])
@pytest.mark.parametrize("where", [(0, 0, 0), (1, 2, 1023)])
def test_residues_that_are_none_are_refused(
    level: str, value: str, where: tuple[int, int, int]
) -> None:
    source = crafted(insecure("bgv", 4000, (50, 50, 50, 50)), chunks=3, seed=0, extreme=(0, 1, -1))
    p = source.parameters.data_moduli[where[1]]
    source.columns["y"][2][where] = {
        "p": p,
        "2^50": 1 << 50,
        "2^52": 1 << 52,
        "2^63": 1 << 63,
        "2^64-1": 2**64 - 1,
    }[value]
    totals = [(column("x") * column("y")).total()]
    with pytest.raises(es.FileFormatError, check=error("unreduced-residues", where[1])):
        fused_sums(totals, source, level=level, block=100)
    del source.columns["y"]
    fused_sums([column("x").total()], source, level=level)  # what nobody reads does no harm


def test_columns_of_another_shape_or_without_a_secret_are_refused() -> None:
    source = crafted(insecure("bgv", 4000, (50, 50, 50)), chunks=2, seed=0, extreme=(0, 1))
    totals = [column("x").total()]
    whole, source.columns["x"][1] = source.columns["x"][1], source.columns["x"][1][:, :1]
    with pytest.raises(es.FileFormatError, check=error("wrong-residue-shape", "chunk 1")):
        fused_sums(totals, source)
    source.columns["x"][1] = whole
    whole[1] = 0
    with pytest.raises(es.FileFormatError, check=error("transparent-ciphertext", "chunk 1")):
        fused_sums(totals, source)


def test_a_sum_that_cancels_is_refused_as_by_seal() -> None:
    source, (a, b, c) = fast_source(), map(column, ("a0", "b0", "y0"))
    zero = ((a + b) * c - a * c - b * c).total()
    for device in ("native", "seal"):
        with pytest.raises(ValueError, check=error("sum-cancels", "0")):
            evaluate([zero], source, device=device)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: (lab_of("bgv"), FLAT, A.total()),
            r"primes below 2\^50, and one of these parameters has 56 bits",
        ),
        (
            lambda: (keyed_lab(), LEVELLED, (A * B * Y).total()),
            "only if products are relinearised on the way",
        ),
        (lambda: (keyed_lab(), FLAT, (A.total().replicate() * B).total()), "or moves rows"),
        (lambda: (keyed_lab(), FLAT, (A * B.resample(1)).total()), "or moves rows"),
        (lambda: (keyed_lab(), FLAT, A.mask(Marks(0, [0, 3])).total()), "or moves rows"),
    ],
    ids=["primes", "relinearised", "replicated", "resampled", "masked"],
)
def test_what_kernels_cannot_add_up_seal_does(
    make: Callable[[], Any], why: str, tmp_path: Any
) -> None:
    """And the device says why, to who wants a checkpoint."""
    lab, strategy, output = make()
    source = lab.source((5,))
    assert re.search(
        why, str(NativeDevice().checkpoint_obstacle(lowered([output], source, strategy)))
    )
    with forced(strategy):
        found, expected = (
            evaluate([output], source, device=name, workers=1) for name in ("native", "seal")
        )
        with pytest.raises(DeviceError, match=why, check=error("checkpoint-unsupported")):
            evaluate([output], source, device="native", checkpoint=tmp_path)
    np.testing.assert_array_equal(found.parts[0].residues, expected.parts[0].residues)
    assert lab.owner.open(found) == source.clear([output])


@pytest.mark.parametrize("strategy", [FLAT, LEVELLED])
def test_sums_of_columns_are_added_up_by_kernels_whatever_is_done_about_products(
    strategy: Strategy,
) -> None:
    source = fast_source()
    for total in ((A + 3 * B).total(), A.total() * B.total(), (A * B).total()):
        assert NativeDevice().checkpoint_obstacle(lowered([total], source, strategy)) is None


def test_bfv_is_refused() -> None:
    why = "device-unable"
    with pytest.raises(DeviceError, check=error(why)):
        evaluate([A.total()], lab_of("bfv").source((5,)), device="native")


def test_without_the_extension_seal_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source, total = fast_source(), (column("a0") * column("b0")).total()
    expected = source.clear([total])
    monkeypatch.setattr(reader, "_fused", None)
    monkeypatch.setattr(kernels, "_residues", None)
    assert arithmetic() is None
    with pytest.raises(DeviceError, check=error("device-unable")):
        evaluate([total], source, device="native")
    assert source.encrypted([total]) == expected


def test_devices_are_named_rightly() -> None:
    assert {"native", "seal"} <= set(get_devices())
    known = ", ".join(map(repr, ("auto", *get_devices())))
    with pytest.raises(DeviceError, check=error("unknown-device", known)):
        evaluate([column("a0").total()], fast_source(), device="z80")


# -- processors
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", ["baseline", "avx2", "avx512", "ifma"])
def test_the_processor_can_be_capped(cap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_CPU", cap)
    known = ["baseline", "avx2", "avx512", "ifma"]
    assert arithmetic() == LEVELS[min(known.index(cap), len(LEVELS) - 1)]
    source, outputs = fast_source((1024, 5)), tree()
    assert source.encrypted(outputs, device="native") == source.clear(outputs)


def test_an_unknown_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_CPU", "z80")
    with pytest.raises(
        ValueError, check=error("unknown-cpu-level", "'z80'", "ENCRYPTEDSTATS_CPU='z80'")
    ):
        arithmetic()


def test_the_cap_reaches_a_fresh_process() -> None:
    code = "from encryptedstats.circuits.devices.native.sums import arithmetic; print(arithmetic())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ENCRYPTEDSTATS_CPU": "baseline"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "baseline"


def test_the_extension_knows_its_levels_only() -> None:
    assert LEVELS[0] == "baseline"
    with pytest.raises(ValueError, match="this processor has no level z80"):
        fused_sums([column("a0").total()], fast_source(), level="z80")


# -- whole evaluations
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["packed", "slots"])
@pytest.mark.parametrize("memory_limit", [None, 1])
def test_results_are_those_of_seal(form: str, memory_limit: int | None) -> None:
    source = fast_source((1024, 77))
    outputs = [*tree(), *tree("y1"), column("n").total(), tree()[0]]
    outputs += [2 * outputs[0] - 3 * outputs[5] + 4, (column("a0") + 3).total()]
    expected = evaluate(outputs, source, form=form, device="seal", workers=1)
    found = evaluate(outputs, source, form=form, device="native", memory_limit=memory_limit)
    assert (found.form, found.width, found.facts) == (expected.form, expected.width, expected.facts)
    assert [part.noise for part in found.parts] == [part.noise for part in expected.parts]
    for one, other in zip(found.parts, expected.parts, strict=True):
        np.testing.assert_array_equal(one.residues, other.residues)
    assert source.lab.owner.open(found) == source.clear(outputs)


def test_totals_in_every_slot() -> None:
    lab = lab_of("bgv", 0, 4000, (49,) * 6)
    source, outputs = (
        lab.source((1000,)),
        [column("n").total() + 2, (column("a0") * column("n")).total()],
    )
    for device in ("native", "seal"):
        totals = evaluate(outputs, source, form="replicated", device=device)
        assert lab.owner.open(totals) == source.clear(outputs)


@pytest.mark.parametrize("counts", [(50, 60), (110,)])
@pytest.mark.parametrize("sums_at_once", [1, 4, 1000])
def test_memory_bounds_what_is_summed_at_once(counts: tuple[int, ...], sums_at_once: int) -> None:
    source, outputs = fast_source(counts), tree()
    largest = source.parameters.ciphertext_bytes(5)
    limit = 2 * sums_at_once * largest + 1
    rows: list[float] = []
    seen, batches = {}, 0
    steps = sum_steps(outputs, source)
    evaluator = SumsEvaluator(loads_of(source), 2, limit)
    for batch, sums in sums_in_batches(list(steps.values()), evaluator, advance=rows.append):
        held = sum(one.nbytes for one in sums.values())
        assert held <= limit // 2 or len(batch) == 1
        seen.update({step: one.copy() for step, one in sums.items()})
        batches += 1
    assert (batches == 1) == (sums_at_once == 1000)
    assert sum(rows) == pytest.approx(110)
    assert_same({total: seen[step] for total, step in steps.items()}, seal_sums(outputs, source))


def test_a_forest_of_several_chunks(tmp_path: Any) -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "u": rng.normal(size=2500),
            "v": rng.choice(list("abcd"), 2500),
            "y": rng.integers(0, 3, 2500),
        }
    )
    table = es.Schema.infer(frame, target="y", bins=4).table(frame)
    owner = es.Owner(insecure("bgv", 4000, (49,) * 5))
    sealed = owner.encrypt(table, out=tmp_path / "table")
    forest = es.CompletelyRandomForest(n_trees=8, depth=3, random_state=1)
    clear = es.CompletelyRandomForest(n_trees=8, depth=3, random_state=1).fit(table)
    for options in (
        {"device": "native", "memory_limit": 1 << 22},
        {"device": "auto", "workers": 1},
    ):
        opened = owner.open(forest.fit(sealed, **options))
        np.testing.assert_array_equal(opened.leaf_counts_, clear.leaf_counts_)


def test_a_damaged_block_is_named() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"u": rng.normal(size=1500), "y": rng.integers(0, 2, 1500)})
    owner = es.Owner(insecure("bgv", 4000, (49,) * 5))
    sealed = owner.encrypt(es.Schema.infer(frame, target="y", bins=4).table(frame))
    sealed.blocks.residues[1][2, 0, 3, 7] = 1 << 60
    with pytest.raises(es.FileFormatError, check=error("unreduced-residues", sealed.blocks.ids[1])):
        es.CompletelyRandomForest(n_trees=8, depth=2).fit(sealed, device="native")


def test_the_case_study() -> None:
    """bcw_o, at 128 bits of security."""
    try:
        data = datasets.load("bcw_o", download=False)
    except es.EncryptedStatsError:
        pytest.skip("the data set is not here")
    frame = data.table_frame()
    table = es.Schema.infer(frame, target="target", kinds=data.kinds).table(frame)
    owner = es.Owner(es.Parameters.from_bits("bgv", 8192, 4000, (42, 43, 43, 43, 43)))
    sealed = owner.encrypt(table)
    clear = es.CompletelyRandomForest(n_trees=3, depth=3, random_state=7).fit(table)
    forest = es.CompletelyRandomForest(n_trees=3, depth=3, random_state=7).fit(
        sealed, device="native"
    )
    np.testing.assert_array_equal(owner.open(forest).leaf_counts_, clear.leaf_counts_)


# -- the tape
# ------------------------------------------------------------------------------------------------


def test_trees_share_what_they_have_in_common() -> None:
    tape = write_tape([*tree(), *tree("y1")], fast_source(), montgomery=True)
    assert len(tape.totals) == len(set(tape.totals)) == len([*tree(), *tree("y1")])
    assert {step.data for step in tape.columns} == {"a0", "a1", "a2", "b0", "b1", "y0", "y1"}
    _, temporary, local = tape.vectors
    assert temporary <= 24  # of some forty products of 3 to 5 components
    assert local <= sum(tape.sizes)
    assert max(tape.sizes) == 5


@cache
def a_run() -> dict[str, Any]:
    """The arguments of a run that is right, by their names."""
    source, totals = fast_source(bits=(49, 49)), tree()
    tape = write_tape(totals, source, montgomery=False)
    modulus = source.parameters.data_moduli[0]
    return {
        "level": "baseline",
        "modulus": modulus,
        "shape": (0, 1, SLOTS, 1, 64, 0, SLOTS),
        "vectors": tape.vectors,
        "add": False,
        "known": False,
        "columns": tuple(
            np.require(source.residues(step.data, 0), np.uint64, ("C", "A"))
            for step in tape.columns
        ),
        "tape": tape.words,
        "segments": tape.segments,
        "totals": tape.places,
        "constants": tape.constants_modulo(modulus),
        "accumulators": np.zeros(sum(tape.sizes) * SLOTS, dtype=np.uint64),
        "scratch": np.zeros(sum(tape.vectors) * 64 + 16, dtype=np.uint64),
        "kept": aligned(0),
        "branchings": tape.branchings,
    }


@pytest.mark.parametrize("level", LEVELS)
def test_numbers_near_the_largest_do_not_come_round(level: str) -> None:
    """The end of a vector with such a number is beyond 32 bits: taken for a negative one, it was
    once let through.
    """
    given = dict(a_run(), level=level)
    for which in ("tape", "segments", "totals"):
        array = given[which] = given[which].copy()
        for place in range(array.size):
            right = array.flat[place]
            for value in range(2**31 - 16, 2**31):
                array.flat[place] = value
                with pytest.raises(ValueError, match="is not run"):
                    fused.run(*given.values())
            array.flat[place] = right


def test_a_spoilt_tape_is_refused_or_harmless() -> None:
    """Whatever is written on it, nothing outside of the given arrays is touched: the process would
    not survive it.
    """
    for name, random in random_runs():
        given = dict(a_run(), level=one_of(random, LEVELS), known=bool(random.integers(2)))
        for _ in range(random.integers(1, 4)):
            which = one_of(random, ("tape", "segments", "totals"))
            spoilt = given[which].copy()
            low, high = (-3, 41) if random.integers(2) else (-(2**31), 2**31)
            spoilt.flat[random.integers(spoilt.size)] = random.integers(low, high)
            given[which] = spoilt
        if random.integers(2):
            given["vectors"] = tuple(int(v) for v in random.integers(-1, 61, 3))
        given["kept"] = aligned(one_of(random, (0, 1, a_run()["vectors"][0] * SLOTS)))
        given["shape"] = (0, 1, SLOTS, 1, 64, 0, one_of(random, (64, 100, SLOTS)))
        try:
            fused.run(*given.values())
        except ValueError as error:
            if "is not run" not in str(error):
                raise AssertionError(name) from error


@cache
def a_run_at_points() -> dict[str, Any]:
    """As :func:`a_run`, over two chunks, by branchings."""
    source, totals = fast_source((1000, 900), bits=(46, 46)), tree()
    steps = list(sum_steps(totals, source).values())
    writer = TapeWriter(steps, source.parameters.plain_modulus, montgomery=False)
    tape = writer.tape(steps, write_branchings)
    modulus = source.parameters.data_moduli[0]
    columns = [source.residues(step.data, chunk) for chunk in range(2) for step in tape.columns]
    words = 3 * tape.vectors[0] + sum(tape.sizes)
    return {
        **a_run(),
        "modulus": modulus,
        "shape": (0, len(source.parameters.data_moduli), SLOTS, 2, 64, 0, SLOTS),
        "vectors": tape.vectors,
        "columns": tuple(np.require(one, np.uint64, ("C", "A")) for one in columns),
        "tape": tape.words,
        "segments": tape.segments,
        "totals": tape.places,
        "constants": tape.constants_modulo(modulus),
        "accumulators": np.zeros(
            sum(tape.sizes) * len(source.parameters.data_moduli) * SLOTS, dtype=np.uint64
        ),
        "scratch": np.zeros(words * 64 + 16, dtype=np.uint64),
        "branchings": tape.branchings,
    }


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "baseline"])
def test_spoilt_branchings_are_refused_or_harmless(level: str) -> None:
    given = dict(a_run_at_points(), level=level)
    assert fused.run(*given.values()) == -1
    words, refused = given["branchings"], 0
    for place in range(words.size):
        for value in (-1, 1, 2, 9, 31, 40, 1 << 10, 2**31 - 2, -(2**31)):
            given["branchings"] = words.copy()
            given["branchings"][place] = value
            try:
                fused.run(*given.values())
            except ValueError as error:
                refused += 1
                if "is not run" not in str(error):
                    raise AssertionError((place, value)) from error
    assert refused > 3 * words.size
    for change in ({"level": "baseline"}, {"known": True}, {"kept": aligned(1 << 12)}):
        with pytest.raises(ValueError, match="is not run"):
            fused.run(*{**given, "branchings": words, **change}.values())


def test_strange_arguments_are_refused_or_harmless() -> None:
    others = [None, "x", b"", 1.5, (), np.zeros(0, dtype=np.uint64), 1 << 70]
    for name, random in random_runs():
        given = dict(a_run(), level=one_of(random, LEVELS))
        if random.integers(2):  # more chunks than one, of the same columns
            given["shape"], given["columns"] = (0, 1, SLOTS, 2, 64, 0, SLOTS), given["columns"] * 2
            given["scratch"] = np.zeros(2 * len(given["scratch"]), dtype=np.uint64)
        for _ in range(random.integers(1, 3)):
            which = one_of(random, [key for key in given if key != "level"])
            given[which] = strange(random, given[which], others)
        try:
            fused.run(*given.values())
        except REFUSALS:
            continue
        except BaseException as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize(
    "change",
    [
        {"modulus": (1 << 50) + 1},
        {"modulus": 12288},
        {"shape": (1, 1, SLOTS, 1, 64, 0, SLOTS)},
        {"shape": (0, 1, SLOTS, 1, 64, 0, SLOTS + 1)},
        {"shape": (0, 1, SLOTS, 17, 64, 0, SLOTS)},
        {"shape": (0, 1, SLOTS, 1, 0, 0, SLOTS)},
        {"shape": (0, 1, SLOTS, 1, 64, -1, SLOTS)},
        {"shape": (0, 2, SLOTS, 1, 64, 0, SLOTS)},
        {"columns": (np.zeros((2, 1, SLOTS), dtype=np.uint32),)},
        {"columns": (np.zeros((2, 1, SLOTS - 1), dtype=np.uint64),)},
        {"accumulators": np.zeros(1, dtype=np.uint64)},
        {"scratch": np.zeros(1, dtype=np.uint64)},
        {"tape": np.zeros(3, dtype=np.int64)},
        {"constants": np.array([1 << 51], dtype=np.uint64)},
        {"kept": np.zeros(8, dtype=np.uint64)},
        {"known": True, "kept": np.zeros(0, dtype=np.uint64)},
        {"shape": (0, 1, SLOTS, 1, 64, 8, SLOTS)},
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    tape = write_tape([column("n").total()], fast_source(), montgomery=False)
    given_ = {
        "level": "baseline",
        "modulus": 786433,
        "shape": (0, 1, SLOTS, 1, 64, 0, SLOTS),
        "vectors": tape.vectors,
        "add": False,
        "known": False,
        "columns": (np.ones((2, 1, SLOTS), dtype=np.uint64),),
        "tape": tape.words,
        "segments": tape.segments,
        "totals": tape.places,
        "constants": np.zeros(0, dtype=np.uint64),
        "accumulators": np.zeros(2 * SLOTS, dtype=np.uint64),
        "scratch": np.zeros(1 << 12, dtype=np.uint64),
        "kept": aligned(2 * SLOTS),
        "branchings": tape.branchings,
    }
    assert fused.run(*given_.values()) == -1
    with pytest.raises(ValueError):
        fused.run(*{**given_, **change}.values())


# -- columns that begin lower, given totals, and numbers that are encrypted on the spot
# -------------------------------------------


@cache
def kept_lab() -> Lab:
    """Packs keep primes to be computed on with, so that columns begin at a lower level."""
    return lab_of("bgv", 0, 1 << 22, (49,) * 10, kept=6)


def assert_same_parts(found: Any, expected: Any) -> None:
    assert [part.noise for part in found.parts] == [part.noise for part in expected.parts]
    for one, other in zip(found.parts, expected.parts, strict=True):
        np.testing.assert_array_equal(one.residues, other.residues)


def test_columns_that_begin_lower_are_read_and_switched_once() -> None:
    source, outputs = (
        kept_lab().source((300, 40)),
        [(A * B).total(), (A + 3 * B).total(), (A * Y - B).total()],
    )
    program = compile_for(outputs, source).program
    assert (
        {step.level for total in program.sums for step in total.args}
        == {program.sums[0].level}
        != {0}
    )
    loads = {
        step.args[0].data
        for step in program.steps
        if step.op == SWITCH and step.args[0].op == COLUMN
    }
    assert loads == {"y0", "a0", "b0"}
    for options in ({}, {"memory_limit": 1 << 20}):
        source.loads = 0
        found = evaluate(outputs, source, device="native", **options)
        assert source.loads == 2 * len(loads)
        assert_same_parts(found, evaluate(outputs, source, device="seal", workers=1))
    assert kept_lab().owner.open(found) == source.clear(outputs)


def test_given_totals_in_totals() -> None:
    source = kept_lab().source((300, 40))
    packs = {"model": evaluate([A.total(), (B * Y).total(), column("n").total()], source)}
    model = [pack_total("model", k) for k in range(3)]
    outputs = [(model[0] * A * Y).total(), (model[1] * B - 2 * model[2] * A).total()]
    opened = kept_lab().owner.open(packs["model"])
    columns = {
        **source.columns,
        **{("model", k): np.full(340, value) for k, value in enumerate(opened)},
    }
    ranges = {**source.known, **{("model", k): ColumnRange(-2000, 2000) for k in range(3)}}
    bounds = list(map(read_bounds(outputs, ranges, 340).__getitem__, outputs))
    options = {"packs": packs, "bounds": bounds}
    found, expected = (
        evaluate(outputs, source, device=name, workers=1, **options) for name in ("native", "seal")
    )
    assert_same_parts(found, expected)
    assert kept_lab().owner.open(found) == read_clear(outputs, columns, source.layout)


def test_numbers_that_are_encrypted_on_the_spot_in_totals() -> None:
    """They are others every time, so that no tape reads them in pieces: SEAL adds up."""
    source, outputs = (
        fast_source((30, 20)),
        [(encrypted_constant(3, "x") * A + B).total(), (encrypted_constant(-2, "y") + A).total()],
    )
    for device in ("native", "seal"):
        assert source.encrypted(outputs, device=device) == source.clear(outputs)
    with pytest.raises(DeviceError, check=error("checkpoint-unsupported")):
        evaluate(outputs, source, checkpoint="somewhere")
