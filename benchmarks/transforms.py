"""Number theoretic transforms, one at a time on one core: by SEAL and by the kernels at every
arithmetic level, in one run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.kernels import Kernels
from encryptedstats.crypto.residues import Residues, ciphertext_of
from encryptedstats.machine import CPU_LEVELS

RING = 8192
BITS = (
    44,
    47,
    49,
    50,
    55,
)  # on every side of where the kernels reduce more often, or compute with 64-bit integers
POLYNOMIALS = 8  # in the cache together with their tables
ROUNDS = 60

Ways = dict[str, Callable[[], Any]]


@part("transforms")
def transforms(settings: Settings) -> Report:
    rows = [_compared(bits, 2 if settings.quick else ROUNDS) for bits in BITS]
    return Report(
        results={"rows": rows},
        tables=[_table(rows)],
        remarks=[
            f"{RING} points, microseconds of CPU time a transform with reading and writing its "
            "polynomial, one core. Every "
            "round times SEAL and all levels one after the other; the best of all rounds (others "
            "may use the machine), and the "
            "median of the ratios to SEAL in the same round. All give the same residues, which is "
            "checked first.",
        ],
    )


def _compared(bits: int, rounds: int) -> dict[str, Any]:
    parameters = es.Parameters.from_bits("bgv", RING, 4000, (bits,) * 3)
    rng = np.random.default_rng(7)
    q = parameters.data_moduli[0]
    values = rng.integers(0, q, (POLYNOMIALS, RING), dtype=np.uint64)
    kernels = {cpu: Kernels(parameters, None, None, cpu) for cpu in CPU_LEVELS}
    back = kernels["baseline"].transform(values, 0, inverse=True)
    forward: Ways = {"seal": _seal(parameters, back, inverse=False)}
    inverse: Ways = {"seal": _seal(parameters, values, inverse=True)}
    for cpu, each in kernels.items():
        forward[cpu] = lambda each=each: each.transform(back, 0)
        inverse[cpu] = lambda each=each: each.transform(values, 0, inverse=True)
        if not np.array_equal(forward[cpu](), values) or not np.array_equal(inverse[cpu](), back):
            raise RuntimeError(f"{cpu} gives other residues: there is nothing to measure")
    return {
        "bits": bits,
        "ways": {cpu: each.arithmetic for cpu, each in kernels.items()},
        "forward": _rounds(forward, rounds),
        "inverse": _rounds(inverse, rounds),
    }


def _seal(parameters: es.Parameters, values: Residues, *, inverse: bool) -> Callable[[], Any]:
    """As many transforms by SEAL, of ciphertexts of two polynomials under one prime each."""
    engine = engine_for(parameters)
    pairs = [ciphertext_of(engine, values[i : i + 2, None]) for i in range(0, POLYNOMIALS, 2)]
    evaluator = engine.evaluator
    if inverse:
        return lambda: [evaluator.transform_from_ntt(pair) for pair in pairs]
    coefficients = [evaluator.transform_from_ntt(pair) for pair in pairs]
    return lambda: [evaluator.transform_to_ntt(pair) for pair in coefficients]


def _rounds(ways: Ways, rounds: int) -> dict[str, dict[str, float]]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.thread_time()
            way()
            seconds[name].append((time.thread_time() - started) / POLYNOMIALS)
    return {
        name: {
            "median_s": statistics.median(times),
            "best_s": min(times),
            "ratio": statistics.median(s / t for s, t in zip(seconds["seal"], times, strict=True)),
        }
        for name, times in seconds.items()
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Transforms: microseconds of CPU time",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("prime", "level", "computes with"):
        table.add_column(heading)
    for heading in (
        "forward",
        "inverse",
        "a second\nand core",
        "forward:\nSEAL / it",
        "inverse:\nSEAL / it",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        for name, forward in row["forward"].items():
            inverse = row["inverse"][name]
            table.add_row(
                f"{row['bits']} bits",
                name,
                row["ways"].get(name, ""),
                f"{forward['best_s'] * 1e6:.1f}",
                f"{inverse['best_s'] * 1e6:.1f}",
                f"{2 / (forward['best_s'] + inverse['best_s']):,.0f}",
                f"{forward['ratio']:.1f}",
                f"{inverse['ratio']:.1f}",
                end_section=name == CPU_LEVELS[-1],
            )
    return table
