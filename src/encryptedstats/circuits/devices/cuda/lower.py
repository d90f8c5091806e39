"""Totals on a GPU: modulus switching and relinearisation, many at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from encryptedstats.circuits.devices.cuda.gpu import Array
from encryptedstats.circuits.devices.cuda.session import Session
from encryptedstats.circuits.devices.cuda.steps import Keyed
from encryptedstats.circuits.devices.native.steps import base_below, relinearised_at
from encryptedstats.circuits.devices.native.steps import lower_totals as lower_totals_natively
from encryptedstats.circuits.devices.steps import Place
from encryptedstats.circuits.program import RELINEARISE, Step
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues


def lower_totals(
    session: Session,
    steps: Sequence[Step],
    known: Mapping[Step, Residues],
    keys: PublicKeys,
    workers: int,
) -> list[Residues]:
    """Compute steps from totals on the GPU, or natively if it has no room."""

    def compute() -> list[Residues] | None:
        if session.load_keys(keys) is None:
            return None
        return fetch(lower_known(session, steps, known, keys))

    found = session.attempt(compute)
    return (
        lower_totals_natively(steps, copy_to_memory(known), keys, workers)
        if found is None
        else found
    )


def lower_known(
    session: Session,
    steps: Sequence[Step],
    known: Mapping[Step, Any],
    keys: PublicKeys,
    workers: int = 1,
) -> list[Any]:
    """Compute steps from totals: many at a time what is switched and relinearised last.

    What comes before is computed step by step. The results stay on the GPU.
    """
    keyed = session.load_keys(keys)
    assert keyed is not None
    gpu = keyed.ring.gpu
    base = {step: base_below(step, known) for step in steps}
    bases = list(dict.fromkeys(base.values()))
    missing = [step for step in bases if step not in known]
    if missing:
        places: dict[Place, Any] = {(step, None): value for step, value in known.items()}
        values = session.start(keys, places, None).values([(step, None) for step in missing])
        known = {**known, **dict(zip(missing, values, strict=True))}
    found = {step: gpu.concatenate([known[step]]) for step in base if step in bases}
    by_level: dict[int, list[Step]] = defaultdict(list)
    for step in base:
        if step not in found:
            by_level[base[step].level].append(step)
    for some in by_level.values():
        under = list(dict.fromkeys(base[step] for step in some))
        ends = np.cumsum([0, *(one.size for one in under[:-1])]).tolist()
        firsts = dict(zip(under, ends, strict=True))
        found |= lower_sums(keyed, some, gpu.concatenate([known[one] for one in under]), firsts)
    return [found[step] for step in steps]


def lower_sums(
    keyed: Keyed, steps: Sequence[Step], sums: Array, firsts: Mapping[Step, int]
) -> dict[Step, Array]:
    """Lower steps that are computed from sums, whose first polynomials are at ``firsts``."""
    alike: dict[tuple[int, int], list[Step]] = defaultdict(list)
    found: dict[Step, Array] = {}
    for step in steps:
        if step in firsts:
            found[step] = part_of(sums, firsts[step], step.size)
        else:
            alike[step.size, step.level].append(step)
    for some in alike.values():
        together = lower_together(keyed, some, sums, firsts)
        found |= {step: together[number] for number, step in enumerate(some)}
    return found


def lower_together(
    keyed: Keyed, steps: Sequence[Step], sums: Array, firsts: Mapping[Step, int]
) -> Array:
    """Lower steps of one size and level; return (steps, polynomials, primes, N)."""
    ring = keyed.ring
    every = len(ring.parameters.data_moduli)
    out = ring.gpu.empty(len(steps), steps[0].size, every - steps[0].level, ring.n)
    groups: dict[tuple[int, int, int, bool], list[int]] = defaultdict(list)
    for number, step in enumerate(steps):
        base = base_below(step, firsts)
        groups[
            base.size, base.level, relinearised_at(step, base), _relinearises(step, base)
        ].append(number)
    for (size, level, at, switches), numbers in groups.items():
        places = [firsts[base_below(steps[number], firsts)] for number in numbers]
        levels = (every - level, every - at, every - steps[0].level)
        key = keyed.relinearisation if switches else None
        ring.lower(sums, places, size, levels, key, out, numbers)
    return out


def part_of(sums: Array, first: int, size: int) -> Array:
    """Return some polynomials of an array, in its memory."""
    each = math.prod(sums.shape[1:])
    return Array(sums.gpu, sums.pointer + 8 * each * first, (size, *sums.shape[1:]), sums)


def fetch(values: Sequence[Array]) -> list[Residues]:
    """Copy arrays to memory; parts of one array all at once."""
    whole: dict[int, Residues] = {}
    fetched = []
    for value in values:
        owner = value.owner
        if owner is None or owner.shape[1:] != value.shape:
            fetched.append(np.asarray(value))
            continue
        if owner.pointer not in whole:
            whole[owner.pointer] = np.asarray(owner)
        fetched.append(whole[owner.pointer][(value.pointer - owner.pointer) // (8 * value.words)])
    return fetched


def copy_to_memory(values: Mapping[Step, Any]) -> dict[Step, Residues]:
    """Copy to memory what is on the GPU."""
    return {step: np.asarray(value) for step, value in values.items()}


def _relinearises(step: Step, base: Step) -> bool:
    while step is not base:
        if step.op == RELINEARISE:
            return True
        step = step.args[0]
    return False
