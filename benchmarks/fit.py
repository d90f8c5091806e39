"""Fitting a forest under encryption: what a tree costs the kernels and SEAL, how it grows with
rows, beside scikit-learn.

Everything is measured up to the sums over rows, before they are switched down, relinearised and
packed (see the part "packing"), unless it says "packed".
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

import encryptedstats as es
from benchmarks._common import Report, Settings, Timing, measure, milliseconds, part
from encryptedstats.circuits import Expression, Layout, column
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.devices.native.sums import (
    Loads,
    SumsEvaluator,
    _fused,
    arithmetic,
    sums_in_batches,
)
from encryptedstats.circuits.devices.seal import SealExecution
from encryptedstats.circuits.devices.steps import StepByStep
from encryptedstats.circuits.lowering import FLAT, Schedule, Setting, lower
from encryptedstats.circuits.program import SLOTS, Program
from encryptedstats.circuits.sources import Source
from encryptedstats.machine import CPU_VARIABLE, cores, default_limit
from reproduction import datasets

PARAMETERS = ("bgv", 8192, 4000, (42, 43, 43, 43, 43))
N_VARIABLES, N_TREES, DEPTH = 9, 100, 3
SEAL_TREES = 3  # SEAL takes long enough for these; every tree costs it the same
CHUNKS = (1, 2, 4, 8, 16, 32, 64, 122)  # the last is a million rows
QUICK_CHUNKS = (1, 3)


class Repeated(Source):
    """A table of many chunks that holds one of them: encrypting a million rows is not what is
    measured here.
    """

    def __init__(self, table: es.EncryptedTable, chunks: int) -> None:
        self.table, self.chunks = table.source(), chunks

    @property
    def parameters(self) -> es.Parameters:
        return self.table.parameters

    @property
    def layout(self) -> Layout:
        return Layout(self.chunks * self.parameters.slots, self.parameters.slots)

    @property
    def keys(self) -> es.PublicKeys:
        return self.table.keys

    @property
    def with_secret_key(self) -> bool:
        return self.table.with_secret_key

    @property
    def in_memory(self) -> bool:
        return True

    def ranges(self) -> dict[str, ColumnRange]:
        return self.table.ranges()

    def residues(self, name: str, chunk: int) -> Any:
        return self.table.residues(name, 0)


class Copied(Repeated):
    """The same with memory of its own for every chunk: no chunk is found in the cache because
    another was there.
    """

    def __init__(self, table: es.EncryptedTable, chunks: int) -> None:
        super().__init__(table, chunks)
        names = [str(column) for column in table.facts.columns]
        self._copies = [
            {name: self.table.residues(name, 0).copy() for name in names} for _ in range(chunks)
        ]

    def residues(self, name: str, chunk: int) -> Any:
        return self._copies[chunk][name]


@part("fit")
def fit(settings: Settings) -> Report:
    owner = es.Owner(es.Parameters.from_bits(*PARAMETERS))
    sealed = owner.encrypt(_table_of(8192))
    forest = es.CompletelyRandomForest(2 if settings.quick else N_TREES, DEPTH, random_state=1)
    chunk = _full_chunk(sealed, forest, settings)
    scaling = _scaling(sealed, forest, settings)
    counts = _bin_counts(sealed, settings)
    study = _case_study(owner, forest, settings)
    return Report(
        results={
            "full_chunk": chunk,
            "scaling": scaling,
            "bin_counts": counts,
            "case_study": study,
        },
        tables=[
            _chunk_table(chunk),
            _scaling_table(scaling),
            *([_study_table(study)] if study else []),
        ],
        remarks=[
            f"BGV, N=8192, data primes of 43 and 44 bits; {N_VARIABLES} variables of 5 bins, 2 "
            f"classes; {forest.n_trees} trees of "
            f"depth {DEPTH}. Up to the sums over rows; SEAL without relinearising, {SEAL_TREES} "
            "of the trees.",
            f"Class-conditional bin counts read {counts['gigabytes_per_second']:.1f} GB/s of "
            "ciphertexts, "
            f"{counts['share_of_copy']:.0%} of the {counts['copy_gigabytes_per_second']:.1f} GB/s "
            "that memory is copied at.",
        ],
    )


def _table_of(n_rows: int) -> es.Table:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=n_rows) for j in range(N_VARIABLES)})
    frame["y"] = rng.integers(0, 2, n_rows)
    return es.Schema.infer(frame, target="y", bins=5).table(frame)


def sums_program(outputs: Sequence[Expression], source: Source) -> Program:
    """The sums over rows of some totals, without relinearising; nothing is proven of what comes
    after.
    """
    setting = Setting(source.parameters, source.layout, source.with_secret_key, SLOTS)
    return lower(outputs, setting, Schedule(FLAT))


def add_up(program: Program, source: Source, threads: int) -> None:
    """The kernels, with the sums thrown away."""
    loads = Loads(source, 0, {}, 0)
    for _ in sums_in_batches(program.sums, SumsEvaluator(loads, threads, default_limit())):
        pass


@contextmanager
def _capped(level: str) -> Iterator[None]:
    before = os.environ.get(CPU_VARIABLE)
    os.environ[CPU_VARIABLE] = level
    try:
        yield
    finally:
        del os.environ[CPU_VARIABLE]
        if before is not None:
            os.environ[CPU_VARIABLE] = before


def _full_chunk(
    sealed: es.EncryptedTable, forest: es.CompletelyRandomForest, settings: Settings
) -> dict[str, Any]:
    """One core against one core, for every kind of arithmetic; and all cores."""
    program = sums_program(sealed.facts.circuit(forest, sealed.layout)[0], sealed.source())
    few = es.CompletelyRandomForest(min(SEAL_TREES, forest.n_trees), DEPTH, random_state=1)
    few_sums = sums_program(sealed.facts.circuit(few, sealed.layout)[0], sealed.source()).sums

    def by_seal() -> object:
        return StepByStep(SealExecution).sums(few_sums, sealed.source(), {})

    def by_kernels(level: str, threads: int) -> None:
        with _capped(level):
            add_up(program, sealed.source(), threads)

    best_level = arithmetic() or "baseline"
    ways: dict[str, tuple[Callable[[], object], int]] = {"seal": (by_seal, few.n_trees)}
    ways |= {level: (partial(by_kernels, level, 1), forest.n_trees) for level in _fused.levels()}
    ways["all cores"] = (partial(by_kernels, best_level, cores()), forest.n_trees)
    found = _rounds(ways, 2 if settings.quick else 7)
    timings = {name: _timing([lap.seconds for lap in laps]) for name, laps in found.items()}
    seal, all_cores = timings.pop("seal"), timings.pop("all cores")
    levels = timings
    ratios = {name: _median_ratio(found["seal"], found[name], "seconds") for name in levels}
    return {
        "trees": forest.n_trees,
        "columns": len(sealed.facts.columns),
        "arithmetic": arithmetic(),
        "seal_per_tree": seal.to_dict(),
        "native_per_tree": {level: timing.to_dict() for level, timing in levels.items()},
        "native_all_cores_per_tree": all_cores.to_dict(),
        "cores": cores(),
        "times_faster_than_seal": ratios,
        "times_faster": ratios[best_level],
        "times_faster_in_cpu_time": _median_ratio(found["seal"], found[best_level], "cpu_seconds"),
    }


@dataclass(frozen=True)
class Lap:
    """One run, for one tree of it."""

    seconds: float
    cpu_seconds: float


def _rounds(ways: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, list[Lap]]:
    """Every way once a round, so that what else the machine does hits all of them alike. The first
    round only warms up.
    """
    laps: dict[str, list[Lap]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, (action, trees) in ways.items():
            started, cpu = time.perf_counter(), time.process_time()
            action()
            laps[name].append(
                Lap((time.perf_counter() - started) / trees, (time.process_time() - cpu) / trees)
            )
    return {name: some[1:] for name, some in laps.items()}


def _median_ratio(slow: list[Lap], fast: list[Lap], what: str) -> float:
    """The median over rounds of how many times faster, each within its round."""
    return float(
        np.median([getattr(a, what) / getattr(b, what) for a, b in zip(slow, fast, strict=True)])
    )


def _timing(seconds: list[float]) -> Timing:
    lower, median, upper = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
    return Timing(median, lower, upper, len(seconds))


def _scaling(
    sealed: es.EncryptedTable, forest: es.CompletelyRandomForest, settings: Settings
) -> list[dict[str, Any]]:
    """Seconds for 1 to 122 full chunks: the best of several runs for few chunks, one
    run for many.
    """
    outputs = sealed.facts.circuit(forest, sealed.layout)[0]
    rows = []
    for chunks in QUICK_CHUNKS if settings.quick else CHUNKS:
        source, n_rows = Repeated(sealed, chunks), chunks * sealed.layout.slots
        program = sums_program(outputs, source)
        laps = _rounds(
            {"fit": (partial(add_up, program, source, cores()), 1)}, 5 if chunks < 32 else 1
        )["fit"]
        seconds, cpu = min(lap.seconds for lap in laps), min(lap.cpu_seconds for lap in laps)
        each = {"ns_per_row": 1e9 * seconds / n_rows, "cpu_ns_per_row": 1e9 * cpu / n_rows}
        rows.append({"rows": n_rows, "seconds": seconds, "cpu_seconds": cpu, **each})
    return rows


def _bin_counts(sealed: es.EncryptedTable, settings: Settings) -> dict[str, Any]:
    """What naive Bayes and forests of depth 1 need: every bin times every class. Bound by memory,
    so compared with copying.
    """
    names = [str(c) for c in sealed.facts.columns]
    classes = [name for name in names if name.startswith("class")]
    outputs = [(column(x) * column(y)).total() for x in names if x not in classes for y in classes]
    chunks = 2 if settings.quick else 16
    source = Copied(sealed, chunks)
    program = sums_program(outputs, source)
    timing = measure(lambda: add_up(program, source, cores()), settings)
    nbytes = chunks * len(names) * sealed.parameters.ciphertext_bytes()
    array = np.ones(1 << 23, dtype=np.uint64)
    target = np.empty_like(array)
    copy = measure(lambda: np.copyto(target, array), settings)
    return {
        "totals": len(outputs),
        "timing": timing.to_dict(),
        "gigabytes_per_second": nbytes / timing.median / 1e9,
        "copy_gigabytes_per_second": array.nbytes / copy.median / 1e9,
        "share_of_copy": (nbytes / timing.median) / (array.nbytes / copy.median),
    }


def study_schema() -> tuple[es.Schema, pd.DataFrame]:
    """bcw_o with five bins for each of its ten-point scales, as the paper counts them: quintiles
    would tie.
    """
    data = datasets.load("bcw_o", download=False)
    frame = data.table_frame()
    schema = es.Schema.infer(frame, target="target", kinds=data.kinds)
    for name in schema.names:
        schema = schema.with_bins(name, edges=(2, 4, 6, 8))
    return schema, frame


def _case_study(
    owner: es.Owner, forest: es.CompletelyRandomForest, settings: Settings
) -> dict[str, Any] | None:
    """bcw_o, 547 rows as in the paper, beside scikit-learn's plain random forest."""
    try:
        schema, frame = study_schema()
    except datasets.DatasetUnavailableError:
        return None
    frame = frame.iloc[:547]
    table = schema.table(frame)
    sealed = owner.encrypt(table)
    opened = owner.open(forest.fit(sealed, device="native"))
    if not np.array_equal(opened.leaf_counts_, clone(forest).fit(table).leaf_counts_):
        raise RuntimeError("the encrypted forest is not the plain one: there is nothing to measure")
    x, y = frame.drop(columns="target").to_numpy(), frame["target"].to_numpy()
    plain = RandomForestClassifier(forest.n_trees, max_depth=DEPTH, random_state=0)

    def sums() -> None:
        add_up(
            sums_program(sealed.facts.circuit(forest, sealed.layout)[0], sealed.source()),
            sealed,
            cores(),
        )

    few = Settings(settings.quick, 0.0, 2 if settings.quick else 3, 3)
    return {
        "rows": len(table),
        "trees": forest.n_trees,
        "sums": measure(sums, settings).to_dict(),
        "fit_packed": measure(lambda: forest.fit(sealed, device="native"), few).to_dict(),
        "scikit_learn": measure(lambda: plain.fit(x, y), settings).to_dict(),
        "download_bytes": forest.totals_.nbytes,
    }


def _chunk_table(chunk: dict[str, Any]) -> Table:
    table = Table(
        title="One chunk of 8192 rows: milliseconds a tree",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for title in ("device", "cores", "ms a tree", "times faster\nthan SEAL"):
        table.add_column(title, justify="left" if title == "device" else "right")
    table.add_row("SEAL", "1", _shown(chunk["seal_per_tree"]), "1.0")
    for level, timing in chunk["native_per_tree"].items():
        table.add_row(
            f"native, {level}", "1", _shown(timing), f"{chunk['times_faster_than_seal'][level]:.1f}"
        )
    every = chunk["native_all_cores_per_tree"]
    faster = chunk["seal_per_tree"]["median_s"] / every["median_s"]
    table.add_row(
        f"native, {chunk['arithmetic']}", str(chunk["cores"]), _shown(every), f"{faster:.1f}"
    )
    return table


def _scaling_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="More rows, all trees, all cores", title_justify="left", box=box.SIMPLE_HEAD
    )
    for title in ("rows", "seconds", "ns a row", "CPU ns a row"):
        table.add_column(title, justify="right")
    for row in rows:
        each = f"{row['ns_per_row']:,.0f}", f"{row['cpu_ns_per_row']:,.0f}"
        table.add_row(f"{row['rows']:,}", f"{row['seconds']:.2f}", *each)
    return table


def _study_table(study: dict[str, Any]) -> Table:
    table = Table(
        title=f"bcw_o, {study['rows']} rows, {study['trees']} trees",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for title in ("what", "ms"):
        table.add_column(title, justify="left" if title == "what" else "right")
    table.add_row("fit, encrypted, sums over rows", _shown(study["sums"]))
    table.add_row("fit, encrypted, packed for download", _shown(study["fit_packed"]))
    table.add_row("fit, scikit-learn's RandomForest, plain", _shown(study["scikit_learn"]))
    return table


def _shown(timing: dict[str, Any]) -> str:
    return milliseconds(
        Timing(
            timing["median_s"],
            timing["lower_quartile_s"],
            timing["upper_quartile_s"],
            timing["runs"],
        )
    )
