"""Sums along the paths of trees, which processors and GPUs compute in registers: which they are,
and that no residue differs.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
import test_devices as suite
from circuit_samples import Lab, MemorySource, insecure, totals_of
from host_gpu import COMPILER
from test_cuda import HostCuda

import encryptedstats as es
from encryptedstats.circuits.devices import get_devices, register, unregister
from encryptedstats.circuits.devices.branchings import branchings_of
from encryptedstats.circuits.devices.cuda import sums
from encryptedstats.circuits.devices.cuda.totals import compute_totals as cuda_totals
from encryptedstats.circuits.devices.native import sums as native_sums
from encryptedstats.circuits.devices.native.device import compute_totals as native_totals
from encryptedstats.circuits.devices.native.points import LEVELS
from encryptedstats.circuits.devices.native.sums import Loads, SumsEvaluator, arithmetic
from encryptedstats.circuits.evaluate import compile_for
from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import FileFormatError
from encryptedstats.machine import CPU_LEVELS, CPU_VARIABLE
from error_codes import error

a, b, c, n, w, y = suite.a, suite.b, suite.c, suite.n, suite.w, suite.y
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here")


def tree(root: Expression, splits: list[Expression]) -> list[Expression]:
    """The totals of a tree: what is inside the split of each of its nodes, which come level by
    level.
    """
    found, whole = [], [root]
    for number, split in enumerate(splits):
        left = whole[number] * split
        whole += [left, whole[number] - left]
        found.append(left.total())
    return found


FOREST = [
    *tree(y, [a, b, c, n, w, b + c, a]),
    *tree(y, [a, b + c, c, w, n, a, b]),  # begins with the same split
    *tree(7 - 3 * y, [b, a, c, w, w, n]),  # one leaf less, and a root that is a sum itself
    *tree(7 - 3 * y, [a + b, c]),
    y.total(),
    (7 - 3 * y).total(),
]


class Extreme(MemorySource):
    """Residues that are as far from 0 as can be, or next to it: no ciphertexts of anything."""

    def residues(self, name: str, chunk: int) -> Any:
        found = np.empty_like(super().residues(name, chunk))
        rng = np.random.default_rng([chunk, *name.encode()])
        for prime, p in enumerate(self.parameters.data_moduli):
            far = [0, 1, p - 1, p // 2, p // 2 + 1, p // 2, p // 2 + 1]
            found[:, prime] = rng.choice(np.array(far, dtype=np.uint64), found[:, prime].shape)
        return found


@pytest.fixture(params=["doubles", "integers"])
def device(request: pytest.FixtureRequest) -> Any:
    register(HostCuda(request.param))
    yield get_devices()[HostCuda.name]
    unregister(HostCuda.name)


@lru_cache(maxsize=5)
def lab_with(bits: int) -> Lab:
    """Keys without rotations, which sums do not need."""
    return Lab(es.Owner(insecure("bgv", 1 << 12, (bits,) * 9)))


@pytest.mark.parametrize("chunks", [2, 16, 21])
@pytest.mark.parametrize("bits", [39, 46, 47, 48, 49, 50])
def test_sums_at_points_are_those_of_a_tape(
    bits: int, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every set of instructions that this processor has."""
    lab = lab_with(bits)
    plain = lab.source((2,) * chunks, seed=2)
    source = Extreme(lab, plain.layout, plain.columns, plain.known)
    program = compile_for(FOREST, source).program
    found = {}
    ways = [("baseline", 128)]
    ways += [(level, block) for level in CPU_LEVELS if level in LEVELS for block in (40, None)]
    for name, block in ways:
        monkeypatch.setenv(CPU_VARIABLE, name)
        if name != "baseline" and arithmetic() != name:
            continue  # this processor has none of them
        evaluator = SumsEvaluator(Loads(source, 0, {}, 0), 1, 1 << 30, level=name, block=block)
        made = evaluator.sums(program.sums)
        assert evaluator.at_points == (name != "baseline")
        for step, residues in made.items():
            np.testing.assert_array_equal(residues, found.setdefault(step, residues.copy()))
    assert set(found) == set(program.sums)


def test_sums_at_points_of_groups_of_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_sums, "_SCRATCH", 1)  # a group for each chunk
    suite.check(FOREST, lab_with(46).source((5, 4, 3), seed=1), "native")


def test_sums_at_points_in_slices_and_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = lab_with(46).source((5, 4, 3), seed=1)
    suite.check(FOREST, source, "native", memory_limit=1 << 20)
    monkeypatch.setattr(native_sums, "_SMALL_BATCH", 1)
    suite.check(FOREST, source, "native")


def test_a_residue_that_is_none_is_refused_at_points(monkeypatch: pytest.MonkeyPatch) -> None:
    source = lab_with(46).source((5, 4), seed=1)
    program = compile_for(FOREST, source).program
    read = type(source).residues
    monkeypatch.setattr(
        type(source), "residues", lambda self, *at: read(self, *at) | np.uint64(1 << 50)
    )
    with pytest.raises(FileFormatError, check=error("unreduced-residues")):
        totals_of(program, source, native_totals)


@needs_compiler
@pytest.mark.parametrize("chunks", [1, 5, 11])
@pytest.mark.parametrize("bits", [39, 46, 47, 48, 49])
def test_residues_of_every_size(device: Any, bits: int, chunks: int) -> None:
    """Below 2^40 sums are never brought back on the way, and of 49 bits after every chunk."""
    lab = lab_with(bits)
    plain = lab.source((2,) * chunks, seed=2)
    source = Extreme(lab, plain.layout, plain.columns, plain.known)
    program = compile_for(FOREST, source).program
    assert branchings_of(program.sums) is not None
    expected = totals_of(program, source, native_totals)
    for step, found in totals_of(program, source, partial(cuda_totals, device.session)).items():
        np.testing.assert_array_equal(found, expected[step])


@needs_compiler
def test_groups_of_chunks_add_up(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shared has no room for all chunks at once."""
    monkeypatch.setattr(sums, "_PROLOGUE_BYTES", 1)
    suite.check(FOREST, lab_with(49).source((5, 4, 3), seed=1), device.name)


def test_every_sum_is_in_one_tree_and_trees_that_begin_alike_share_it() -> None:
    program = compile_for(FOREST, lab_with(49).source((9,))).program
    trees = branchings_of(program.sums)
    assert trees is not None
    asked = Counter(
        total for one in trees for total in (one.root_total, *one.totals) if total is not None
    )
    assert asked == Counter(program.sums)
    assert (
        len(trees) == 4
    )  # the first two share their first split, and the sums of roots are with others
    assert len({tree.root for tree in trees}) == 2


@needs_compiler
@pytest.mark.parametrize(
    "outputs",
    [
        tree(y, [a, b, c, n, w, b + c, a, n]),  # a fourth factor
        [(a * y).total(), (n * n).total()],  # no paths
        [*FOREST, (y * a * b + y * c).total()],  # a sum of products
        [*FOREST, (y - y * a).total()],  # what is outside, and not a product
    ],
)
def test_all_else_is_a_tape(outputs: list[Expression], device: Any) -> None:
    source = lab_with(49).source((4, 3))
    assert branchings_of(compile_for(outputs, source).program.sums) is None
    suite.check(outputs, source, device.name)
