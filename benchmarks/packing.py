"""Bringing totals down: switched, relinearised and packed, by SEAL and by the kernels on residues,
in one run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.circuits.devices.seal import relinearise_any
from encryptedstats.circuits.lowering import plan_descent
from encryptedstats.circuits.noise import NoiseRules
from encryptedstats.circuits.results import EncryptedNumbers, NumberFacts, Part
from encryptedstats.crypto.encryption import encrypt_slots
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.kernels import Kernels
from encryptedstats.crypto.packing import packing_levels, packing_parameters, packing_primes
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.machine import CPU_LEVELS, cores

RING = 8192
CHAINS: dict[str, tuple[int, ...]] = {
    "3 x 43 bits": (43, 43, 44, 44),  # what a forest of depth 3 takes
    "3 x 48 bits": (48, 48, 48, 48),
    "4 x 43 bits": (42, 43, 43, 43, 43),
}
SIZES = (3, 4, 5)
EACH = 2  # different totals of each size
PACKED = 16  # totals in the packs that are compared
ALL_TOTALS = 1214  # 100 trees of depth 3, two classes, what they share counted once
QUICK_TOTALS = 40


@dataclass(frozen=True)
class Case:
    """Keys, and sums over rows as a fit leaves them."""

    owner: es.Owner
    totals: list[Part]
    expected: list[int]

    @property
    def parameters(self) -> es.Parameters:
        return self.owner.parameters

    @property
    def keys(self) -> es.PublicKeys:
        return self.owner.public_keys()

    def levels(self) -> list[int]:
        """Where to relinearise; as low as it goes where the noise is not proven, for there is a
        time to be had all the same.
        """
        last = len(self.parameters.data_moduli) - packing_primes(self.parameters)
        plans = [plan_descent(self.parameters, part.noise) for part in self.totals]
        return [last if plan is None else plan.relinearise_at for plan in plans]


def make_case(bits: tuple[int, ...]) -> Case:
    """Products of 2, 3 and 4 encrypted columns of zeros and ones, not relinearised."""
    owner = es.Owner(es.Parameters.from_bits("bgv", RING, 4000, bits))
    engine, rng = owner.public_keys().engine, np.random.default_rng(3)
    account = NoiseRules(owner.parameters, with_secret_key=True)
    totals, expected = [], []
    for size in SIZES:
        for _ in range(EACH):
            columns = [rng.integers(0, 2, RING) for _ in range(size - 1)]
            product, noise = encrypt_slots(columns[0], owner._encryptor)
            for column in columns[1:]:
                factor, more = encrypt_slots(column, owner._encryptor)
                product, noise = (
                    engine.evaluator.multiply(product, factor),
                    account.multiply(noise, more),
                )
            totals.append(Part(residues_of(engine, product), noise))
            expected.append(int(np.prod(columns, axis=0).sum()))
    return Case(owner, totals, expected)


@part("packing")
def packing(settings: Settings) -> Report:
    rows = [_compared(name, make_case(bits), settings) for name, bits in CHAINS.items()]
    return Report(
        results={"rows": rows},
        tables=[_table(rows)],
        remarks=[
            f"BGV, N={RING}, sums of {', '.join(map(str, SIZES))} polynomials in turn, "
            "milliseconds a total. Every round times "
            "SEAL and all kernels one after the other; medians, and medians of the ratios to SEAL "
            "in the same round. One thread "
            "but where it says otherwise.",
            "lower: switched to the primes of packing and relinearised. pack: merged into one "
            "ciphertext, "
            f"{PACKED} in the compared packs. The last lines lower and pack "
            f"{rows[0]['all_totals']} totals on all cores, and pack "
            "them again on one, in turns; they are decrypted and compared with the plain sums "
            "(decryption_checked in the JSON "
            "file).",
        ],
    )


def _compared(name: str, case: Case, settings: Settings) -> dict[str, Any]:
    p, keys = case.parameters, case.keys
    ways = {
        cpu: Kernels(p, keys.evaluator.keys.relinearisation, keys.evaluator.keys.packing, cpu)
        for cpu in CPU_LEVELS
    }
    levels = case.levels()
    residues = [part.residues for part in case.totals]
    low = ways[CPU_LEVELS[-1]].lower(residues, levels)
    many = [low[i % len(low)] for i in range(PACKED)]
    lowering: dict[str, Callable[[], Any]] = {"seal": lambda: _seal_lower(case, levels)}
    merging: dict[str, Callable[[], Any]] = {"seal": lambda: _seal_pack(case, many)}
    for cpu, kernels in ways.items():
        lowering[cpu] = lambda kernels=kernels: kernels.lower(residues, levels, threads=1)
        merging[cpu] = lambda kernels=kernels: kernels.pack(many, threads=1)
    fastest = ways[CPU_LEVELS[-1]]
    lowering["all cores"] = lambda: fastest.lower(residues, levels)
    merging["all cores"] = lambda: fastest.pack(many)
    _check_equal(lowering)
    _check_equal(merging)
    rounds = 2 if settings.quick else 25
    return {
        "chain": name,
        "parameters": p.to_dict(),
        "packing_primes": packing_primes(p),
        "relinearised_at": levels,
        "ways": {cpu: kernels.arithmetic for cpu, kernels in ways.items()},
        "cores": cores(),
        "lower": _rounds(lowering, len(residues), rounds),
        "pack": _rounds(merging, PACKED, rounds),
        **_everything(
            case,
            fastest,
            levels,
            QUICK_TOTALS if settings.quick else ALL_TOTALS,
            1 if settings.quick else 5,
        ),
    }


def _seal_lower(case: Case, levels: Sequence[int]) -> list[Residues]:
    keys, engine = case.keys, case.keys.engine
    last = engine.level_ids[len(case.parameters.data_moduli) - packing_primes(case.parameters)]
    found = []
    for total, level in zip(case.totals, levels, strict=True):
        switched = engine.evaluator.mod_switch_to(
            ciphertext_of(engine, total.residues), engine.level_ids[level]
        )
        found.append(
            residues_of(
                engine, engine.evaluator.mod_switch_to(relinearise_any(keys, switched), last)
            )
        )
    return found


def _seal_pack(case: Case, totals: Sequence[Residues]) -> Residues:
    small = engine_for(packing_parameters(case.parameters))
    return residues_of(
        small, case.keys.evaluator.pack([ciphertext_of(small, total) for total in totals])
    )


def _check_equal(ways: dict[str, Callable[[], Any]]) -> None:
    expected = np.asarray(ways["seal"]())
    for name, way in ways.items():
        if not np.array_equal(np.asarray(way()), expected):
            raise RuntimeError(
                f"{name} gives other residues than SEAL: there is nothing to measure"
            )


def _rounds(
    ways: dict[str, Callable[[], Any]], count: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Seconds a total of every way, and how many times faster than SEAL in the same round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            seconds[name].append((time.perf_counter() - started) / count)
    ratios = {
        name: [s / t for s, t in zip(seconds["seal"], times, strict=True)]
        for name, times in seconds.items()
    }
    return {
        name: {
            "median_s": statistics.median(times),
            "best_s": min(times),
            "ratio": statistics.median(ratios[name]),
        }
        for name, times in seconds.items()
    }


def _everything(
    case: Case, kernels: Kernels, levels: Sequence[int], count: int, rounds: int
) -> dict[str, Any]:
    """As many totals as a forest has, on all cores."""
    chosen = [i % len(case.totals) for i in range(count)]
    lower_times, pack_times, one_times = [], [], []
    for _ in range(rounds):
        started = time.perf_counter()
        low = kernels.lower([case.totals[i].residues for i in chosen], [levels[i] for i in chosen])
        lowered = time.perf_counter()
        pack = kernels.pack(low)
        pack_times.append(time.perf_counter() - lowered)
        lower_times.append(lowered - started)
        started = time.perf_counter()
        alone = kernels.pack(low, threads=1)
        one_times.append(time.perf_counter() - started)
        if not np.array_equal(alone, pack):
            raise RuntimeError("one thread packs other residues than all of them")
        del low
    return {
        "all_totals": count,
        "all_lower_s": statistics.median(lower_times),
        "all_pack_s": statistics.median(pack_times),
        "one_thread_pack_s": statistics.median(one_times),
        "all_best_s": min(a + b for a, b in zip(lower_times, pack_times, strict=True)),
        "all_bytes": pack.nbytes,
        "decryption_checked": _decrypts(case, chosen, pack),
    }


def _decrypts(case: Case, chosen: Sequence[int], pack: Residues) -> bool:
    """Whether the pack was compared with the plain sums; it is an error if they differ. Not done
    where the noise is not proven.
    """
    width, limit = 1 << packing_levels(len(chosen)), case.parameters.max_value
    plans = [plan_descent(case.parameters, total.noise) for total in case.totals]
    noises = [plan.noise for plan in plans if plan is not None]
    if len(noises) < len(plans):
        return False
    noise = max(noises, key=lambda noise: noise.flat)
    totals = EncryptedNumbers(
        case.keys, "packed", [NumberFacts(-limit, limit)] * len(chosen), [Part(pack, noise)], width
    )
    if case.owner.open(totals) != [case.expected[i] for i in chosen]:
        raise RuntimeError("what the kernels packed does not decrypt to the plain sums")
    return True


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Totals brought down: milliseconds a total",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("primes", "by", "computes with"):
        table.add_column(heading)
    for heading in ("lower", "pack", "together", "lower:\nSEAL / it", "pack:\nSEAL / it"):
        table.add_column(heading, justify="right")
    for row in rows:
        for name, lower in row["lower"].items():
            pack = row["pack"][name]
            way = row["ways"].get(name, row["ways"][CPU_LEVELS[-1]] if name != "seal" else "")
            table.add_row(
                row["chain"],
                name,
                f"{way}, {row['cores']} threads" if name == "all cores" else way,
                f"{lower['median_s'] * 1e3:.2f}",
                f"{pack['median_s'] * 1e3:.2f}",
                f"{(lower['median_s'] + pack['median_s']) * 1e3:.2f}",
                f"{lower['ratio']:.1f}",
                f"{pack['ratio']:.1f}",
            )
        count = row["all_totals"]
        table.add_row(
            row["chain"],
            f"{count} totals",
            f"{row['all_lower_s'] + row['all_pack_s']:.2f} s, {row['all_bytes'] / 1e6:.2f} MB",
            f"{row['all_lower_s'] / count * 1e3:.2f}",
            f"{row['all_pack_s'] / count * 1e3:.2f}",
            f"{(row['all_lower_s'] + row['all_pack_s']) / count * 1e3:.2f}",
            "",
            "",
        )
        table.add_row(
            row["chain"],
            f"{count} totals",
            "packed by 1 thread",
            "",
            f"{row['one_thread_pack_s'] / count * 1e3:.2f}",
            end_section=True,
        )
    return table
