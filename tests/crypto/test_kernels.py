"""The kernels on residues against SEAL: every residue, for all primes, sizes and levels, on every
kind of processor there is.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seal

import encryptedstats as es
from encryptedstats.circuits import Layout, column
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.devices.native.steps import KernelPacking
from encryptedstats.circuits.devices.seal import SealPacking, relinearise_any
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto import kernels, packing
from encryptedstats.crypto.encryption import encrypt_slots
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.kernels import Kernels, make_kernels, minimal_root, read_switching_keys
from encryptedstats.crypto.packing import (
    packing_elements,
    packing_levels,
    packing_parameters,
    packing_primes,
)
from encryptedstats.crypto.primes import primes_of_bits
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.machine import CPU_LEVELS, cpu_level
from error_codes import error
from native_samples import REFUSALS, one_of, random_runs, strange

needs_extension = pytest.mark.skipif(
    kernels._residues is None, reason="the extension was not built"
)
pytestmark = needs_extension

# Ring, primes (the key-switching prime last), largest value: small and large t, primes on both
# sides of every border.
RINGS: dict[str, tuple[int, tuple[int, ...], int]] = {
    "small": (1024, (36, 36, 36), 4000),
    "thin primes": (1024, (34, 34, 35, 34, 34), 500),
    "50 bits": (1024, (50,) * 6, 1 << 20),
    "49 bits": (4096, (49, 49, 49), 1 << 20),
    "mixed": (2048, (50, 40, 49, 36, 48), 4000),
    "47 bits": (2048, (47,) * 4, 60_000),
    # Coefficients of the largest prime under the largest ones that are not reduced before and after
    # a transform.
    "47 and 50 bits": (1024, (47, 47, 50, 47), 4000),
    "60 bits": (1024, (60, 55, 50, 60), 100_000),
    "many": (1024, (44,) * 10, 4000),
    "odd stages": (2048, (45, 45, 46), 4000),
    "kept": (4096, (46,) * 5, 60_000),
    "kept, 8192": (8192, (43,) * 5, 4000),
    "fused": (8192, (48, 48, 48, 48), 4000),
    "forest": (8192, (43, 43, 43, 43, 43), 4000),
    "large t": (8192, (43, 43, 43, 43, 43), 1 << 20),
}
QUICK = ("small", "50 bits", "60 bits", "forest")
# Of the dearest ring, one of four: what is special of the others, their primes, their t or what
# they keep, a smaller ring has, too.
_SLOW = ("kept, 8192", "fused", "large t")
TRIED = [pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else []) for name in RINGS]
# With most of the stages that sums are never reduced in, for the largest primes of that kind: 33
# times one of them is above 2^52.
LARGEST = "47 bits, 32768"
LARGE = {LARGEST: (32768, (47, 47, 47), 60_000)}
# Packed totals keep this many primes, so that nodes of one prime to this many can be expanded.
KEPT = {"50 bits": 4, "49 bits": 2, "mixed": 4, "60 bits": 3, "kept": 4, "kept, 8192": 4}


@dataclass(frozen=True)
class Lab:
    owner: es.Owner

    @property
    def keys(self) -> es.PublicKeys:
        return self.owner.public_keys()

    @property
    def parameters(self) -> es.Parameters:
        return self.owner.parameters

    @property
    def engine(self) -> Engine:
        return self.keys.engine

    @property
    def small(self) -> Engine:
        return engine_for(packing_parameters(self.parameters))

    @property
    def primes(self) -> int:
        return len(self.parameters.data_moduli)

    @property
    def packed_primes(self) -> int:
        return packing_primes(self.parameters)

    def kernels(self, cpu: str) -> Kernels:
        return _kernels(self, cpu)

    def residues(self, size: int, primes: int, fill: str = "random", seed: int = 0) -> Residues:
        rng = np.random.default_rng([size, primes, seed])
        found = np.empty((size, primes, self.parameters.ring_degree), dtype=np.uint64)
        for i, q in enumerate(self.parameters.data_moduli[:primes]):
            found[:, i] = FILLS[fill](rng, q, found[:, i].shape)
        return found

    def seal_switched(self, residues: Residues, level: int) -> Residues:
        engine = self.engine
        switched = engine.evaluator.mod_switch_to(
            ciphertext_of(engine, residues), engine.level_ids[level]
        )
        return residues_of(engine, switched)

    def seal_relinearised(self, residues: Residues) -> Residues:
        if len(residues) == 2:
            return residues
        return residues_of(
            self.engine, relinearise_any(self.keys, ciphertext_of(self.engine, residues))
        )

    def seal_packed(self, totals: Any, levels: int | None = None) -> Residues:
        return residues_of(
            self.small,
            self.keys.evaluator.pack([ciphertext_of(self.small, r) for r in totals], levels),
        )

    def seal_moved(self, ciphertext: Any, level: int) -> Any:
        for element in packing_elements(self.parameters.ring_degree)[level]:
            ciphertext = self.small.evaluator.apply_galois(
                ciphertext, element, self.keys.evaluator.keys.packing
            )
        return ciphertext

    def seal_expanded(self, ciphertext: Any, count: int, level: int, lowest: int = 0) -> list[Any]:
        """Step by step as it is defined, one level after the other; X^-h is -X^(N-h)."""
        evaluator, ring, nodes = self.small.evaluator, self.parameters.ring_degree, [ciphertext]
        if 1 << level == ring:
            nodes = [packing._divide(self.small, ciphertext, self.small.parameters.ring_degree)]
        for now in range(level, lowest, -1):
            monomial = seal.Plaintext(f"1x^{ring - (ring >> now)}")
            moved = [self.seal_moved(node, now) for node in nodes]
            odd = [
                evaluator.negate(evaluator.multiply_plain(evaluator.sub(a, b), monomial))
                for a, b in zip(nodes, moved, strict=True)
            ]
            even = [evaluator.add(a, b) for a, b in zip(nodes, moved, strict=True)]
            nodes = [node for pair in zip(even, odd, strict=True) for node in pair][
                : -(-count >> (now - 1))
            ]
        return nodes


FILLS: dict[str, Callable[[np.random.Generator, int, tuple[int, ...]], Any]] = {
    "random": lambda rng, q, shape: rng.integers(0, q, shape, dtype=np.uint64),
    "ends": lambda rng, q, shape: rng.choice(np.array([0, 1, q - 1], dtype=np.uint64), shape),
    "largest": lambda rng, q, shape: np.full(shape, q - 1, dtype=np.uint64),
    "middle": lambda rng, q, shape: rng.choice(
        np.array([q // 2, q // 2 + 1], dtype=np.uint64), shape
    ),
    "ones": lambda rng, q, shape: np.ones(shape, dtype=np.uint64),
}


# The scope of the parameter "name" makes pytest run all tests of a ring before those of the next.
@lru_cache(maxsize=4)
def lab_of(name: str) -> Lab:
    ring, bits, max_value = {**RINGS, **LARGE}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        parameters = es.Parameters.from_bits("bgv", ring, max_value, bits, allow_insecure=True)
        return Lab(es.Owner(replace(parameters, kept_primes=KEPT.get(name))))


@lru_cache(maxsize=4)
def _kernels(lab: Lab, cpu: str) -> Kernels:
    return Kernels(
        lab.parameters,
        lab.keys.evaluator.keys.relinearisation,
        lab.keys.evaluator.keys.packing,
        cpu,
    )


def memory_for(ours: Kernels, primes: int, levels: int = 0) -> Any:
    with ours._scratch(primes, levels) as memory:
        return memory.copy()


@pytest.fixture(params=CPU_LEVELS)
def cpu(request: pytest.FixtureRequest) -> str:
    return request.param


# ----------------------------------------------------------------------------------------------
# transforms


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("name", TRIED, scope="module")
def test_transforms_are_seals(name, fill):
    """A BGV ciphertext is in NTT form; SEAL can be asked for its coefficients."""
    lab = lab_of(name)
    values = lab.residues(2, lab.primes, fill)
    data = lab.engine.evaluator.transform_from_ntt(ciphertext_of(lab.engine, values)).to_string()
    coefficients = np.frombuffer(data[-values.nbytes :], dtype="<u8").reshape(values.shape)
    for cpu, prime in product(CPU_LEVELS, range(lab.primes)):
        back = lab.kernels(cpu).transform(values[1, prime], prime, inverse=True)
        np.testing.assert_array_equal(back, coefficients[1, prime], cpu)
        np.testing.assert_array_equal(
            lab.kernels(cpu).transform(back, prime), values[1, prime], cpu
        )


@pytest.mark.parametrize("name", QUICK)
def test_a_transform_is_the_values_at_the_odd_powers_of_the_smallest_root(name, cpu):
    lab = lab_of(name)
    ring = lab.parameters.ring_degree
    for prime, q in enumerate(lab.parameters.coefficient_moduli):
        root = minimal_root(q, 2 * ring)
        assert pow(root, ring, q) == q - 1
        exponent = 3 * ring // 8 + 5
        monomial = np.zeros(ring, dtype=np.uint64)
        monomial[exponent] = q - 2
        values = lab.kernels(cpu).transform(monomial, prime)
        for i in (0, 1, 2, 5, ring // 2, ring - 1):
            power = 2 * int(f"{i:0{ring.bit_length() - 1}b}"[::-1], 2) + 1
            assert int(values[i]) == -2 * pow(root, exponent * power, q) % q


@pytest.mark.parametrize("ring", [16384, 32768])
@pytest.mark.parametrize("bits", [44, 45, 47, 48, 49, 50])
def test_transforms_of_the_largest_rings(ring, bits, cpu):
    """On both sides of every size from which on sums are reduced more often, and for all numbers of
    stages.
    """
    parameters = es.Parameters.from_bits(
        "bgv", ring, 1 << 20 if bits == 50 else 60_000, (bits,) * 3
    )
    ours, baseline = (
        Kernels(parameters, None, None, cpu),
        Kernels(parameters, None, None, "baseline"),
    )
    q = parameters.coefficient_moduli[-1]
    values = np.stack([fill(np.random.default_rng(bits), q, (ring,)) for fill in FILLS.values()])
    for inverse in (False, True):
        found = ours.transform(values, 2, inverse=inverse)
        np.testing.assert_array_equal(found, baseline.transform(values, 2, inverse=inverse))


def test_the_largest_ring_of_all(cpu):
    """More stages than anybody has parameters for."""
    primes = primes_of_bits(47, 1 << 17, 2)
    moduli = np.array(primes, dtype=np.uint64)
    roots = np.array([minimal_root(q, 1 << 17) for q in primes], dtype=np.uint64)
    values = np.stack(
        [fill(np.random.default_rng(1), primes[0], (1 << 16,)) for fill in FILLS.values()]
    )
    found = {}
    for way in {cpu, "baseline"}:
        ring = kernels._residues.ring(1 << 16, moduli, roots, 17, way)
        found[way] = np.empty_like(values)
        memory = np.empty(kernels._residues.scratch(ring, 1, 0) + 8, dtype=np.uint64)
        kernels._residues.transform(ring, 0, 0, values, found[way], memory)
        back = np.empty_like(values)
        kernels._residues.transform(ring, 0, 1, found[way], back, memory)
        np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(found[cpu], found["baseline"])


def test_the_way_follows_from_primes_and_processor():
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text() if cpuinfo.exists() else ""
    expected = {"baseline": "integers", "avx2": "avx2" if "avx2" in flags else "integers"}
    expected["avx512"] = "avx512" if "avx512dq" in flags else expected["avx2"]
    expected["ifma"] = "ifma" if "avx512ifma" in flags else expected["avx512"]
    for cpu in CPU_LEVELS:
        assert lab_of("forest").kernels(cpu).arithmetic == expected[cpu]
        assert lab_of("60 bits").kernels(cpu).arithmetic == "integers"


# -------------------------------------------------------------------------------------------
# switching, relinearisation


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("name", TRIED, scope="module")
def test_modulus_switching(name, size):
    lab = lab_of(name)
    for fill in FILLS:
        residues = lab.residues(size, lab.primes, fill)
        for level in range(1, min(lab.primes, 4)):
            theirs = lab.seal_switched(residues, level)
            for cpu in CPU_LEVELS:
                ours = lab.kernels(cpu).switch(residues, level)
                np.testing.assert_array_equal(ours, theirs, f"{fill}, {level}, {cpu}")


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("name", TRIED, scope="module")
def test_relinearisation_at_every_level(name, fill):
    lab = lab_of(name)
    for primes in range(1, lab.primes + 1):
        residues = lab.residues(3, primes, fill)
        theirs = lab.seal_relinearised(residues)
        for cpu in CPU_LEVELS:
            np.testing.assert_array_equal(lab.kernels(cpu).relinearise(residues), theirs, cpu)


def test_relinearisation_where_sums_grow_most():
    lab = lab_of(LARGEST)
    assert 33 * min(lab.parameters.coefficient_moduli) > 1 << 52
    keys = lab.keys.evaluator.keys.relinearisation  # without the 15 keys that pack
    kernels_of = {cpu: Kernels(lab.parameters, keys, None, cpu) for cpu in CPU_LEVELS}
    for fill in FILLS:
        residues = lab.residues(3, lab.primes, fill)
        theirs = lab.seal_relinearised(residues)
        for cpu, ours in kernels_of.items():
            np.testing.assert_array_equal(ours.relinearise(residues), theirs, f"{fill}, {cpu}")


@pytest.mark.slow
def test_packs_where_sums_grow_most():
    lab = lab_of(LARGEST)
    totals = [lab.residues(2, lab.packed_primes, fill) for fill in ("largest", "ends")]
    theirs = lab.seal_packed(totals)
    for cpu in CPU_LEVELS:
        np.testing.assert_array_equal(lab.kernels(cpu).pack(totals), theirs, cpu)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("name", QUICK)
def test_relinearisation_of_every_size(name, size):
    lab = lab_of(name)
    for fill in ("random", "ends"):
        residues = lab.residues(size, lab.primes, fill)
        theirs = lab.seal_relinearised(residues)
        for cpu in CPU_LEVELS:
            np.testing.assert_array_equal(lab.kernels(cpu).relinearise(residues), theirs, cpu)


def test_a_top_component_of_zeros(cpu):
    lab = lab_of("small")
    residues = lab.residues(4, lab.primes)
    residues[2:] = 0
    np.testing.assert_array_equal(lab.kernels(cpu).relinearise(residues), residues[:2])


@pytest.mark.parametrize("name", TRIED, scope="module")
def test_lowering(name):
    """Sizes 2 to 6 in one batch, from the top and from below, relinearised at every
    level in turn.
    """
    lab = lab_of(name)
    last = lab.primes - lab.packed_primes
    jobs = [
        (size, start, at)
        for i, size in enumerate((2, 3, 4, 5, 6))
        for start in {0, min(i % 2, last)}
        for at in {start, last, (start + last) // 2}
    ]
    totals = [
        lab.residues(size, lab.primes - start, ("random", "ends")[size % 2], seed=at)
        for size, start, at in jobs
    ]
    theirs = np.empty(
        (len(jobs), 2, lab.packed_primes, lab.parameters.ring_degree), dtype=np.uint64
    )
    for i, (residues, (_, start, at)) in enumerate(zip(totals, jobs, strict=True)):
        one = lab.seal_relinearised(residues if at == start else lab.seal_switched(residues, at))
        theirs[i] = one if at == last else lab.seal_switched(one, last)
    for cpu, threads in product(CPU_LEVELS, (1, 2, 5)):
        found = lab.kernels(cpu).lower(totals, [at for _, _, at in jobs], threads)
        np.testing.assert_array_equal(found, theirs, f"{cpu}, {threads} threads")


def test_one_level_for_all_and_no_totals(cpu):
    lab = lab_of("small")
    totals = [lab.residues(3, lab.primes, seed=i) for i in range(3)]
    last = lab.primes - lab.packed_primes
    ours = lab.kernels(cpu)
    np.testing.assert_array_equal(ours.lower(totals, last), ours.lower(totals, [last] * 3))
    assert len(ours.lower([], [])) == 0


# ----------------------------------------------------------------------------------------------
# packing


@pytest.mark.parametrize("fill", ["random", "ends", "largest"])
@pytest.mark.parametrize("name", TRIED, scope="module")
def test_automorphisms(name, fill):
    lab = lab_of(name)
    residues = lab.residues(2, lab.packed_primes, fill)
    ciphertext = ciphertext_of(lab.small, residues)
    groups = packing_elements(lab.parameters.ring_degree)
    for element in {g for group in groups.values() for g in group}:
        theirs = residues_of(
            lab.small,
            lab.small.evaluator.apply_galois(ciphertext, element, lab.keys.evaluator.keys.packing),
        )
        for cpu in CPU_LEVELS:
            ours = lab.kernels(cpu).apply_galois(residues, element)
            np.testing.assert_array_equal(ours, theirs, f"{element}, {cpu}")


@pytest.mark.parametrize("name", ["small", "60 bits", "forest"])
def test_rotations(name):
    """At every level, and the swap of the half rows too."""
    lab = lab_of(name)
    keys, steps = lab.owner.public_keys(rotations=(0, 1, 4)), (0, 1, 4)
    for primes in range(1, lab.primes + 1):
        residues = lab.residues(2, primes)
        for step in steps:
            theirs = residues_of(
                lab.engine, keys.evaluator.rotate(ciphertext_of(lab.engine, residues), step)
            )
            for cpu in CPU_LEVELS:
                ours = Kernels(
                    lab.parameters, None, None, cpu, keys.evaluator.keys.rotation
                ).rotate(residues, step)
                np.testing.assert_array_equal(ours, theirs, f"{step}, {primes} primes, {cpu}")


def test_all_threads_merge_up_to_the_last_level(monkeypatch):
    """Few totals as well as many: no thread waits while there are two nodes to be merged."""
    lab = lab_of("small")
    ours, levels = lab.kernels("ifma"), []
    whole = Kernels._pack

    def watched(self: Kernels, totals: Any, level: int, lowest: int, start: int) -> Residues:
        levels.append((threading.current_thread() is threading.main_thread(), lowest, level))
        return whole(self, totals, level, lowest, start)

    monkeypatch.setattr(Kernels, "_pack", watched)
    totals = [lab.residues(2, lab.packed_primes, seed=i) for i in range(70)]
    pack = ours.pack(totals, threads=2)
    assert [each for each in levels if each[0]] == [
        (True, 7, 10)
    ]  # the one that is left, to the end
    assert sum(not main for main, *_ in levels) == 9 + 5 + 3 + 2 + 1
    np.testing.assert_array_equal(pack, ours.pack(totals, threads=1))


def test_memory_is_used_again(cpu):
    lab = lab_of("small")
    ours = Kernels(
        lab.parameters,
        lab.keys.evaluator.keys.relinearisation,
        lab.keys.evaluator.keys.packing,
        cpu,
    )
    totals = [lab.residues(3, lab.primes, seed=i) for i in range(6)]
    ours.lower(totals, 0, threads=3)
    kept = {id(memory) for memory in ours._memory}
    assert 1 <= len(kept) <= 3
    with pytest.raises(ValueError, match="below their prime"):
        ours.lower([np.full_like(totals[0], 1 << 60)], 0)
    ours.lower(totals, 0, threads=len(kept))
    assert {id(memory) for memory in ours._memory} == kept


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("name", TRIED, scope="module")
def test_packs(name, count):
    lab = lab_of(name)
    totals = [
        lab.residues(2, lab.packed_primes, ("random", "ends", "largest")[i % 3], seed=i)
        for i in range(count)
    ]
    theirs = lab.seal_packed(totals)
    # How threads share the work does not depend on the ring: small ones show it.
    for cpu, threads in product(
        CPU_LEVELS, (1, 2, 7) if lab.parameters.ring_degree <= 2048 else (2,)
    ):
        ours = lab.kernels(cpu).pack(totals, threads=threads)
        np.testing.assert_array_equal(ours, theirs, f"{cpu}, {threads} threads")


def test_all_levels_down_to_single_coefficients():
    """A full pack: shifts shorter than a vector."""
    lab = lab_of("small")
    ring = lab.parameters.ring_degree
    few = [lab.residues(2, lab.packed_primes, seed=i) for i in range(5)]
    for count in (ring // 4 + 1, ring - 3, ring):
        totals = (few * ring)[:count]
        theirs = lab.seal_packed(totals)
        for cpu in CPU_LEVELS:
            np.testing.assert_array_equal(lab.kernels(cpu).pack(totals), theirs, f"{count}, {cpu}")


def test_parts_of_more(cpu):
    lab = lab_of("small")
    ours = lab.kernels(cpu)
    totals = [lab.residues(2, lab.packed_primes, seed=i) for i in range(11)]
    whole = lab.seal_packed(totals)
    for level in (1, 2, 3, 4):
        some = [totals[first : first + (1 << level)] for first in range(0, 11, 1 << level)]
        parts = [ours.pack(part, level) for part in some]
        np.testing.assert_array_equal(parts[-1], lab.seal_packed(some[-1], level))
        np.testing.assert_array_equal(ours.pack(parts, lowest=level), whole)


def test_views_are_as_good_as_arrays(cpu):
    lab = lab_of("small")
    totals = lab.residues(2 * 6, lab.packed_primes).reshape(6, 2, lab.packed_primes, -1)
    apart = np.asfortranarray(totals)
    np.testing.assert_array_equal(
        lab.kernels(cpu).pack(apart[::2]), lab.kernels(cpu).pack(list(totals[::2].copy()))
    )


# ----------------------------------------------------------------------------------------------
# expanding

COUNTS = (1, 2, 3, 5, 16, 37)


@lru_cache(maxsize=4)
def expansion_of(lab: Lab, primes: int, count: int) -> tuple[Residues, Residues]:
    """Any node, and its totals: by SEAL."""
    node = lab.residues(2, primes, ("random", "ends", "largest")[count % 3], seed=count)
    totals = lab.seal_expanded(ciphertext_of(lab.small, node), count, packing_levels(count))
    return node, np.stack([residues_of(lab.small, total) for total in totals])


@pytest.mark.parametrize("name", [one for one in TRIED if one.values[0] in KEPT], scope="module")
def test_expansion(name):
    lab = lab_of(name)
    for primes, count in product(range(1, KEPT[name] + 1), COUNTS):
        node, totals = expansion_of(lab, primes, count)
        some = (1, 3) if primes == 1 else ((1, 3)[count % 2],)
        for cpu, threads in product(CPU_LEVELS, some):
            found = lab.kernels(cpu).expand(node, count, packing_levels(count), threads=threads)
            np.testing.assert_array_equal(
                found, totals, f"{primes} primes, {count}, {cpu}, {threads} threads"
            )


@pytest.mark.parametrize("name", ["60 bits", "kept"])
def test_expansion_in_two_parts(name, cpu):
    """The upper levels once, then each part on its own: in its own order."""
    lab = lab_of(name)
    ours = lab.kernels(cpu)
    top, totals = expansion_of(lab, lab.packed_primes, 37)
    for lowest in range(packing_levels(37) + 1):
        size = 1 << lowest
        nodes = ours.expand(top, 37, packing_levels(37), lowest, threads=2)
        assert len(nodes) == -(-37 // size)
        for i, node in enumerate(nodes):
            mine = totals[i * size : (i + 1) * size]
            np.testing.assert_array_equal(ours.expand(node, len(mine), lowest), mine)


def test_expansion_into_memory_that_is_there(cpu):
    lab = lab_of("kept")
    ours = lab.kernels(cpu)
    node, totals = expansion_of(lab, 2, 5)
    out = np.empty_like(totals)
    assert ours.expand(node, 5, 3, threads=2, out=out) is out
    np.testing.assert_array_equal(out, totals)
    for wrong in (out[:4], out.astype(np.int64), np.asfortranarray(out)):
        with pytest.raises(ValueError, check=error("wrong-output-array", "5", "2", "4096")):
            ours.expand(node, 5, 3, out=wrong)


def test_one_split(cpu):
    lab = lab_of("60 bits")
    node = lab.residues(2, lab.packed_primes)
    for level in range(1, lab.parameters.ring_degree.bit_length()):
        theirs = lab.seal_expanded(ciphertext_of(lab.small, node), 1 << level, level, level - 1)
        for part, ciphertext in zip(lab.kernels(cpu).split(node, level), theirs, strict=True):
            np.testing.assert_array_equal(
                part, residues_of(lab.small, ciphertext), f"level {level}"
            )


def test_a_single_total_far_down(cpu):
    """Levels without a partner: what lies in the partner's place is cleared away."""
    lab = lab_of("mixed")
    node = lab.residues(2, 2)
    for count, level in ((1, 7), (3, 6), (5, 11)):
        theirs = lab.seal_expanded(ciphertext_of(lab.small, node), count, level)
        found = lab.kernels(cpu).expand(node, count, level, threads=2)
        np.testing.assert_array_equal(found, [residues_of(lab.small, total) for total in theirs])


def test_all_places_down_to_single_coefficients(cpu):
    """A full ring of totals: shifts shorter than a vector."""
    lab = lab_of("50 bits")
    node, ring = lab.residues(2, 1), lab.parameters.ring_degree
    theirs = [
        residues_of(lab.small, total)
        for total in lab.seal_expanded(ciphertext_of(lab.small, node), ring, 10)
    ]
    np.testing.assert_array_equal(lab.kernels(cpu).expand(node, ring, 10), theirs)


@pytest.mark.parametrize("count", [1, 9])
def test_what_is_packed_and_expanded_is_in_every_slot(count, cpu):
    lab = lab_of("kept, 8192")
    ours, t, ring = lab.kernels(cpu), lab.parameters.plain_modulus, lab.parameters.ring_degree
    values = np.random.default_rng(3).integers(0, 50, (count, ring))
    last = lab.primes - lab.packed_primes
    fresh = [residues_of(lab.engine, encrypt_slots(row, lab.owner._encryptor)[0]) for row in values]
    pack = ours.pack(list(ours.lower(fresh, last)))
    for row, total in zip(values, ours.expand(pack, count, ring.bit_length() - 1), strict=True):
        plain = lab.owner._decryptor.decrypt_packed(ciphertext_of(lab.small, total))
        # the constant coefficient times N is the sum; packing and expansion multiply by 1
        assert plain.to_string() == f"{int(row.sum()) * pow(ring, -1, t) % t:X}"


def test_views_of_nodes_are_as_good_as_arrays(cpu):
    lab = lab_of("mixed")
    nodes = lab.residues(2, 4)
    view = np.asfortranarray(nodes)[:, :3]
    np.testing.assert_array_equal(
        lab.kernels(cpu).expand(view, 5, 3), lab.kernels(cpu).expand(nodes[:, :3].copy(), 5, 3)
    )


# ----------------------------------------------------------------------------------------------
# end to end


class Columns(Source):
    """Columns of two chunks with their clear twin."""

    def __init__(self, lab: Lab, columns: dict[str, np.ndarray]) -> None:
        self.lab, self.columns = lab, columns

    @property
    def with_secret_key(self) -> bool:
        return True

    @property
    def parameters(self) -> es.Parameters:
        return self.lab.parameters

    @property
    def keys(self) -> es.PublicKeys:
        return self.lab.keys

    @property
    def layout(self) -> Layout:
        slots = self.parameters.slots
        return Layout(len(next(iter(self.columns.values()))), slots)

    def ranges(self) -> dict[str, ColumnRange]:
        return {name: ColumnRange(0, 1) for name in self.columns}

    def residues(self, name: str, chunk: int) -> Residues:
        slots = self.parameters.slots
        values = np.zeros(slots, dtype=np.int64)
        part = self.columns[name][chunk * slots : (chunk + 1) * slots]
        values[: len(part)] = part
        return residues_of(self.lab.engine, encrypt_slots(values, self.lab.owner._encryptor)[0])


@pytest.mark.parametrize("name", ["forest", pytest.param("fused", marks=pytest.mark.slow)])
def test_totals_packed_by_kernels_are_the_bytes_that_seal_packs(name):
    lab = lab_of(name)
    rng = np.random.default_rng(5)
    n_rows = lab.parameters.slots + 321
    columns = {f"x{i}": rng.integers(0, 2, n_rows) for i in range(4)}
    source = Columns(lab, columns)
    a, b, c, d = (column(f"x{i}") for i in range(4))
    outputs = [
        a.total(),
        (a * b).total(),
        (a * b * c).total(),
        (a - a * d).total(),
        (b * c + d).total(),
    ]
    x = [columns[f"x{i}"] for i in range(4)]
    clear = [
        x[0].sum(),
        (x[0] * x[1]).sum(),
        (x[0] * x[1] * x[2]).sum(),
        (x[0] - x[0] * x[3]).sum(),
        (x[1] * x[2] + x[3]).sum(),
    ]
    cached: dict[tuple[str, int], Residues] = {}
    fresh = source.residues
    source.residues = lambda name, chunk: cached.setdefault((name, chunk), fresh(name, chunk))  # type: ignore[method-assign]

    assert lab.keys.evaluator.kernels is not None
    ours = evaluate(outputs, source, workers=1, progress=False, device="native")
    theirs = evaluate(outputs, source, workers=1, progress=False, device="seal")
    assert lab.owner.open(ours) == [int(value) for value in clear]
    assert [p.noise for p in ours.parts] == [p.noise for p in theirs.parts]
    assert ours.to_container().sections == theirs.to_container().sections


@pytest.mark.parametrize("count", [1, 5, 70])
def test_devices_pack_alike(count):
    lab = lab_of("small")
    totals = [lab.residues(2, lab.packed_primes, seed=i) for i in range(count)]
    ours, theirs = (
        packing(lab.keys, 2).merge(totals, 0) for packing in (KernelPacking, SealPacking)
    )
    np.testing.assert_array_equal(ours, theirs)


# ----------------------------------------------------------------------------------------------
# keys and refusals


def test_keys_are_read_out_of_seals_bytes():
    lab = lab_of("forest")
    ring, p = lab.parameters.ring_degree, lab.parameters
    relinearisation = dict(
        read_switching_keys(lab.keys.evaluator.keys.relinearisation.to_string(), ring)
    )
    assert {i: key.shape for i, key in relinearisation.items()} == {
        0: (lab.primes, 2, lab.primes + 1, ring)
    }
    assert all((relinearisation[0][:, :, i] < q).all() for i, q in enumerate(p.coefficient_moduli))
    packing = dict(read_switching_keys(lab.keys.evaluator.keys.packing.to_string(), ring))
    elements = {g for group in packing_elements(ring).values() for g in group}
    assert set(packing) == {(g - 1) // 2 for g in elements}
    with pytest.raises(ValueError, check=error("unknown-key-form")):
        list(
            read_switching_keys(
                lab.keys.evaluator.keys.relinearisation.to_string() + b"\0" * 8, ring
            )
        )


@pytest.mark.parametrize("wrong", [0, 1, 1 << 62, (1 << 64) - 1])
def test_residues_that_are_not_reduced_are_refused(wrong, cpu):
    lab = lab_of("small")
    q = lab.parameters.data_moduli[1]
    bad = q + wrong if wrong < 2 else wrong
    total = lab.residues(3, lab.primes)
    total[2, 1, 17] = bad
    with pytest.raises(ValueError, match="residues that are not below their prime"):
        lab.kernels(cpu).lower([total], 0)
    low = lab.residues(2, lab.packed_primes)
    low[1, 0, 1023] = max(bad, lab.parameters.data_moduli[0])
    with pytest.raises(ValueError, match="residues that are not below their prime"):
        lab.kernels(cpu).pack([low, low])
    with pytest.raises(ValueError, match="residues that are not below their prime"):
        lab.kernels(cpu).apply_galois(low, 3)
    for threads in (1, 2):
        with pytest.raises(ValueError, match="residues that are not below their prime"):
            lab.kernels(cpu).expand(low, 4, 2, threads=threads)


def test_what_does_not_fit_is_refused(cpu):
    lab = lab_of("small")
    ours = lab.kernels(cpu)
    ring = lab.parameters.ring_degree
    low = lab.residues(2, lab.packed_primes)
    for totals, levels in (([], None), ([low] * 3, 1), ([low] * (ring + 1), None), ([low], 11)):
        with pytest.raises(ValueError, check=error("totals-out-of-range", len(totals), ring)):
            ours.pack(totals, levels)
    with pytest.raises(ValueError, check=error("wrong-residue-shape")):
        ours.pack([low, lab.residues(3, lab.packed_primes)])
    with pytest.raises(ValueError, check=error("level-count-mismatch", "2", "1")):
        ours.lower([low], [0, 0])
    for residues, level in (
        (lab.residues(1, lab.primes), 1),
        (low[:, :, :-1], 1),
        (lab.residues(2, 1), 0),
        (low, -1),
        (low, 9),
    ):
        with pytest.raises(ValueError, match=r"no such size or level|bytes where|negative"):
            ours.switch(residues, level)
    with pytest.raises(ValueError, check=error("no-packing-keys")):
        Kernels(lab.parameters, lab.keys.evaluator.keys.relinearisation, None, cpu).pack([low, low])


def test_nodes_that_do_not_fit_are_refused(cpu):
    lab = lab_of("60 bits")
    ours = lab.kernels(cpu)
    low = lab.residues(2, 2)
    for shape in (
        (3, 2, 1024),
        (2, 4, 1024),
        (2, 0, 1024),
        (2, 2, 1023),
        (2, 1024),
        (1, 2, 2, 1024),
    ):
        with pytest.raises(ValueError, check=error("wrong-residue-shape", "2", "1", "3", "1024")):
            ours.expand(np.zeros(shape, dtype=np.uint64), 1, 1)
    for count, level in ((0, 3), (-1, 3), (9, 3), (2, 0)):
        with pytest.raises(
            ValueError, check=error("totals-out-of-range", count, level, 1 << level)
        ):
            ours.expand(low, count, level)
    for level, lowest in ((11, 0), (-1, -1), (3, 4), (3, -1)):
        with pytest.raises(ValueError, check=error("level-out-of-range", "10")):
            ours.expand(low, 1, level, lowest)
    for level in (0, 11):
        with pytest.raises(ValueError, check=error("level-out-of-range", "10")):
            ours.split(low, level)
    with pytest.raises(ValueError, check=error("no-packing-keys")):
        Kernels(lab.parameters, lab.keys.evaluator.keys.relinearisation, None, cpu).expand(
            low, 2, 1
        )


def test_the_extension_refuses_what_would_not_fit_in_memory(cpu):
    lab = lab_of("60 bits")
    ours = lab.kernels(cpu)
    node, out = lab.residues(2, 2), np.zeros((3, 2, 2, 1024), dtype=np.uint64)

    def expand(
        count: int, first: int, step: int, primes: int = 2, level: int = 2, scratch: Any = None
    ) -> None:
        memory = memory_for(ours, 2, 2) if scratch is None else scratch
        kernels._residues.expand(
            ours._ring, ours._packing, node, primes, (level, 0, 0), count, out, first, step, memory
        )

    expand(3, 0, 1)
    expand(2, 1, 1)
    for count, first, step in (
        (4, 0, 1),
        (3, 1, 1),
        (2, 0, 3),
        (1, 3, 1),
        (1, -1, 1),
        (1, 0, 0),
        (2, 0, 1 << 62),
    ):
        with pytest.raises(ValueError, match="no place for so many nodes"):
            expand(count, first, step)
    for count, primes, level in (
        (5, 2, 2),
        (0, 2, 2),
        (1, 2, 11),
        (1, 2, -1),
        (1, 9, 2),
        (1, 0, 2),
    ):
        with pytest.raises(ValueError, match="no such node"):
            expand(count, 0, 1, primes, level)
    with pytest.raises(ValueError, match="a ciphertext has"):
        expand(1, 0, 1, 1)
    with pytest.raises(ValueError, match="not enough scratch memory"):
        expand(1, 0, 1, scratch=np.empty(1024, dtype=np.uint64))


def test_keys_of_another_ring_are_refused(cpu):
    """A key of a smaller ring would be read beyond its end."""
    ours, other = lab_of("mixed").kernels(cpu), lab_of("small").kernels(cpu)
    whole, node = lab_of("mixed").residues(3, 4), lab_of("mixed").residues(2, 1)
    native, ring, out = kernels._residues, ours._ring, np.empty_like(node)
    with pytest.raises(ValueError, match="a key of another ring"):
        native.lower(ring, other._relinearisation, whole, 3, 4, 1, 1, out, memory_for(ours, 4))
    with pytest.raises(ValueError, match="a key of another ring"):
        native.pack(ring, other._packing, (node, node), 1, 1, 0, True, out, memory_for(ours, 1, 1))
    with pytest.raises(ValueError, match="a key of another ring"):
        native.expand(
            ring, other._packing, node, 1, (1, 0, 0), 1, out, 0, 1, memory_for(ours, 1, 1)
        )
    with pytest.raises(ValueError, match="a key of another ring"):
        native.automorphism(ring, other._packing[0][0], node, 1, out, memory_for(ours, 1, 1))


def test_a_key_keeps_its_ring():
    lab = lab_of("small")
    ring = kernels._ring.__wrapped__(lab.parameters, "baseline")
    before = sys.getrefcount(ring)
    key = kernels._residues.key(
        ring,
        dict(read_switching_keys(lab.keys.evaluator.keys.relinearisation.to_string(), 1024))[0],
        2,
        0,
    )
    assert sys.getrefcount(ring) == before + 1
    del key
    assert sys.getrefcount(ring) == before


def test_arrays_that_begin_within_a_word_are_refused(cpu):
    ours, polynomial = lab_of("small").kernels(cpu), lab_of("small").residues(2, 1)[0, 0]
    shifted = np.zeros(polynomial.nbytes + 1, dtype=np.uint8)[1:]
    with pytest.raises(ValueError, match="polynomials does not begin at a whole word"):
        kernels._residues.transform(
            ours._ring, 0, 0, shifted, np.empty_like(polynomial), memory_for(ours, 1)
        )


@lru_cache(maxsize=4)
def good_calls() -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Calls of the extension with arguments that are right, for several rings: arguments of one are
    strange to the others.
    """
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    for name, cpu in zip(("60 bits", "small", "odd stages", "mixed"), CPU_LEVELS, strict=True):
        lab = lab_of(name)
        ours, primes, n = lab.kernels(cpu), lab.packed_primes, lab.parameters.ring_degree
        ring, keys, native = ours._ring, ours._packing, kernels._residues
        roots = [minimal_root(q, 2 * n) for q in lab.parameters.coefficient_moduli]
        node, whole = lab.residues(2, primes), lab.residues(4, lab.primes)
        relinearisation = dict(
            read_switching_keys(lab.keys.evaluator.keys.relinearisation.to_string(), n)
        )[0]
        memory = memory_for(ours, lab.primes)

        def words(*shape: int) -> Residues:
            return np.zeros(shape, dtype=np.uint64)

        moduli = np.array(lab.parameters.coefficient_moduli, dtype=np.uint64)
        given: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (native.ring, (n, moduli, np.array(roots, dtype=np.uint64), lab.parameters.plain_modulus, cpu)),
            (native.key, (ring, relinearisation, len(relinearisation), 0)),
            (native.scratch, (ring, primes, 2)),
            (native.lower, (ring, ours._relinearisation, whole, 4, *[lab.primes] * 2, 1, words(2, 1, n), memory)),
            (native.pack, (ring, keys, (node,) * 3, primes, 2, 0, True, words(2, primes, n), memory_for(ours, primes, 2))),
            (native.masked, (ring, primes, (node,) * 3, (words(n) * 0,) * 3, words(2, primes, n), memory_for(ours, primes))),
            (native.expand, (ring, keys, node, primes, (2, 0, 0), 3, words(3, 2, primes, n), 0, 1, memory_for(ours, primes, 2))),
            (native.automorphism, (ring, keys[0][0], node, primes, words(2, primes, n), memory_for(ours, primes, 1))),
            (native.transform, (ring, 0, 0, node[0, 0], words(n), memory_for(ours, 1))),
            (native.transform, (ring, 0, 1, node[0, 0], words(n), memory_for(ours, 1))),
            (native.way, (ring,)),
        ]  # fmt: skip
        calls += given
    return calls


def test_right_arguments_are_taken() -> None:
    for call, arguments in good_calls():
        call(*arguments)


def test_strange_arguments_are_refused_or_harmless() -> None:
    """Also those that fit another ring, or are keys where rings should be: the process survives all
    of them.
    """
    calls = good_calls()
    others = [
        None,
        b"",
        1.5,
        (),
        1 << 70,
        "z80",
        *(argument for _, arguments in calls for argument in arguments),
    ]
    for name, random in random_runs():
        call, arguments = one_of(random, calls)
        changed = list(arguments)
        for _ in range(random.integers(1, 3)):
            at = int(random.integers(len(changed)))
            changed[at] = strange(random, changed[at], others)
        try:
            call(*changed)
        except REFUSALS:
            continue
        except BaseException as error:
            raise AssertionError(name) from error


def test_the_environment_caps_the_processor(monkeypatch):
    lab = lab_of("forest")
    for level in CPU_LEVELS:
        monkeypatch.setenv("ENCRYPTEDSTATS_CPU", level)
        made = make_kernels(
            lab.parameters, lab.keys.evaluator.keys.relinearisation, lab.keys.evaluator.keys.packing
        )
        assert made is not None
        assert made.arithmetic == lab.kernels(level).arithmetic
    monkeypatch.setenv("ENCRYPTEDSTATS_CPU", "")
    assert cpu_level() == "ifma"
    monkeypatch.setenv("ENCRYPTEDSTATS_CPU", "pentium")
    with pytest.raises(
        ValueError, check=error("unknown-cpu-level", "'pentium'", "ENCRYPTEDSTATS_CPU='pentium'")
    ):
        cpu_level()


def test_seal_does_what_there_are_no_kernels_for(monkeypatch):
    lab = lab_of("small")
    with pytest.warns(es.InsecureParametersWarning):
        bfv = es.Parameters.from_bits("bfv", 1024, 4000, (36, 36, 36), allow_insecure=True)
    assert make_kernels(bfv, None, None) is None
    monkeypatch.setattr(kernels, "_residues", None)
    assert make_kernels(lab.parameters, None, None) is None


def test_the_library_works_where_the_extension_is_missing():
    program = (
        "import sys; sys.modules['encryptedstats._residues'] = None\n"
        "import encryptedstats as es, encryptedstats.crypto.kernels as k\n"
        "assert k._residues is None\n"
        "owner = es.Owner(es.Parameters.choose(max_value=1000, depth=1))\n"
        "assert owner.public_keys().evaluator.kernels is None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("prime", [65537, 147457, (1 << 43) - 0])
def test_the_smallest_root(prime):
    if prime == 1 << 43:
        prime = lab_of("forest").parameters.data_moduli[0]
    root = minimal_root(prime, 1024)
    assert pow(root, 512, prime) == prime - 1
    assert all(pow(root, k, prime) >= root for k in range(1, 1024, 2))
