"""What fuzzing of the C extensions shares: random runs that can be repeated after a crash, and
arguments that are strange.

A crash takes the process with it, so every run follows from a seed that is known beforehand: ``make
test-sanitize`` says which, and ENCRYPTEDSTATS_FUZZ_SEED repeats it. ENCRYPTEDSTATS_FUZZ_RUNS says
how many runs there are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

SEED = int(os.environ.get("ENCRYPTEDSTATS_FUZZ_SEED") or 0)
RUNS = int(os.environ.get("ENCRYPTEDSTATS_FUZZ_RUNS") or 300)
#: What an extension may say to arguments that it does not like.
REFUSALS = (ValueError, TypeError, OverflowError, BufferError)
STRANGE_INTEGERS = [
    *range(-3, 20),
    *(
        sign * (1 << bits) + more
        for bits in (10, 31, 32, 62, 63)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ),
]


def random_runs() -> Iterator[tuple[str, np.random.Generator]]:
    """How to repeat a run, and its random numbers."""
    for run in range(RUNS):
        yield f"ENCRYPTEDSTATS_FUZZ_SEED={SEED}, run {run}", np.random.default_rng([SEED, run])


def one_of(random: np.random.Generator, choices: Any) -> Any:
    return choices[int(random.integers(len(choices)))]


def strange(random: np.random.Generator, value: Any, others: list[Any]) -> Any:
    """Something else in place of an argument: of the same kind most of the time."""
    if random.random() < 0.1 or not isinstance(value, (int, tuple, np.ndarray)):
        other = one_of(random, others)
        return (
            other.copy() if isinstance(other, np.ndarray) else other
        )  # results may be written to it
    if isinstance(value, tuple):
        return strange_tuple(random, value, others)
    return (
        strange_array(random, value)
        if isinstance(value, np.ndarray)
        else one_of(random, STRANGE_INTEGERS)
    )


def strange_tuple(
    random: np.random.Generator, values: tuple[Any, ...], others: list[Any]
) -> tuple[Any, ...]:
    what = int(random.integers(4))
    if what == 0:
        return values[: int(random.integers(len(values) + 1))]
    if what == 1 and values:
        return (*values, values[0])
    at = int(random.integers(max(1, len(values))))
    return tuple(
        strange(random, value, others) if i == at else value for i, value in enumerate(values)
    )


def strange_array(random: np.random.Generator, array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array).reshape(-1)
    what = int(random.integers(7))
    if what == 0:
        return flat[: int(random.integers(flat.size + 1))].copy()
    if what == 1:
        return np.resize(flat, flat.size + int(random.integers(1, 3)))
    if what == 2:
        return flat.view(np.uint8)
    if what == 3 and flat.size:  # at an odd address
        moved = np.zeros(flat.nbytes + 1, dtype=np.uint8)[1:]
        moved[:] = flat.view(np.uint8)
        return moved.view(array.dtype)
    if what == 4:
        return flat[::2]
    if what == 5:
        fixed = flat.copy()
        fixed.flags.writeable = False
        return fixed
    changed = array.copy()
    if changed.size:
        limits = np.iinfo(changed.dtype)
        values = [value for value in STRANGE_INTEGERS if limits.min <= value <= limits.max]
        changed.flat[int(random.integers(changed.size))] = one_of(random, values)
    return changed
