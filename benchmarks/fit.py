"""Fitting a forest under encryption: what a tree costs the fused reader and SEAL, how it grows with rows, beside scikit-learn.

Everything is measured up to the sums over rows, before they are switched down, relinearised and packed (see the part "packing"),
unless it says "packed".
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from encryptedstats.circuits.fused import CPU_VARIABLE, _fused, arithmetic, sums_in_batches
from encryptedstats.circuits.seal import SealMachine
from encryptedstats.circuits.walk import FLAT, Walk
from encryptedstats.datasets import DatasetUnavailableError
from encryptedstats.parallel import cores

PARAMETERS = ("bgv", 8192, 4000, (43, 43, 44, 44, 44))
N_VARIABLES, N_TREES, DEPTH = 9, 100, 3
SEAL_TREES = 3  # SEAL takes long enough for these; every tree costs it the same
CHUNKS = (1, 2, 4, 8, 16, 32, 64, 122)  # the last is a million rows
QUICK_CHUNKS = (1, 3)


@dataclass
class Repeated:
    """A table of many chunks that holds one of them: encrypting a million rows is not what is measured here."""

    table: es.EncryptedTable
    chunks: int
    in_memory: bool = True

    def __post_init__(self) -> None:
        self.parameters, self.keys = self.table.parameters, self.table.keys
        self.with_secret_key = self.table.with_secret_key
        slots = self.parameters.slots
        self.layout = Layout(self.chunks * slots, slots)

    def residues(self, name: str, chunk: int) -> Any:
        return self.table.residues(name, 0)


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
        results={"full_chunk": chunk, "scaling": scaling, "bin_counts": counts, "case_study": study},
        tables=[_chunk_table(chunk), _scaling_table(scaling), *([_study_table(study)] if study else [])],
        remarks=[
            f"BGV, N=8192, data primes of 43 and 44 bits; {N_VARIABLES} variables of 5 bins, 2 classes; {forest.n_trees} trees of "
            f"depth {DEPTH}. Up to the sums over rows; the SEAL reader without relinearising, {SEAL_TREES} of the trees.",
            f"Class-conditional bin counts read {counts['gigabytes_per_second']:.1f} GB/s of ciphertexts, "
            f"{counts['share_of_copy']:.0%} of the {counts['copy_gigabytes_per_second']:.1f} GB/s that memory is copied at.",
        ],
    )


def _table_of(n_rows: int) -> es.Table:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=n_rows) for j in range(N_VARIABLES)})
    frame["y"] = rng.integers(0, 2, n_rows)
    return es.Schema.infer(frame, target="y", bins=5).table(frame)


def _add_up(outputs: list[Expression], source: Any, threads: int) -> None:
    """The fused reader, with the sums thrown away."""
    for _ in sums_in_batches(outputs, source, workers=threads):
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


def _full_chunk(sealed: es.EncryptedTable, forest: es.CompletelyRandomForest, settings: Settings) -> dict[str, Any]:
    """One core against one core, for every kind of arithmetic; and all cores."""
    outputs = forest.circuit(sealed.schema, sealed.columns())
    few = es.CompletelyRandomForest(min(SEAL_TREES, forest.n_trees), DEPTH, random_state=1)
    few_outputs = few.circuit(sealed.schema, sealed.columns())

    def by_seal() -> object:
        return Walk(SealMachine(sealed), FLAT, sealed.layout).outputs(few_outputs)

    seal = _per_tree(measure(by_seal, settings), few.n_trees)
    levels = {}
    for level in _fused.levels():
        with _capped(level):
            levels[level] = _per_tree(measure(lambda: _add_up(outputs, sealed, 1), settings), forest.n_trees)
    all_cores = _per_tree(measure(lambda: _add_up(outputs, sealed, cores()), settings), forest.n_trees)
    best = levels[arithmetic() or "baseline"]
    return {
        "trees": forest.n_trees,
        "columns": len(sealed.columns()),
        "arithmetic": arithmetic(),
        "seal_per_tree": seal.to_dict(),
        "fused_per_tree": {level: timing.to_dict() for level, timing in levels.items()},
        "fused_all_cores_per_tree": all_cores.to_dict(),
        "cores": cores(),
        "times_faster_than_seal": {level: seal.median / timing.median for level, timing in levels.items()},
        "times_faster": seal.median / best.median,
    }


def _per_tree(timing: Timing, trees: int) -> Timing:
    return Timing(timing.median / trees, timing.lower / trees, timing.upper / trees, timing.runs)


def _scaling(sealed: es.EncryptedTable, forest: es.CompletelyRandomForest, settings: Settings) -> list[dict[str, Any]]:
    """Seconds for 1 to 122 full chunks: each run several times for few chunks, once for many."""
    outputs = forest.circuit(sealed.schema, sealed.columns())
    rows = []
    for chunks in QUICK_CHUNKS if settings.quick else CHUNKS:
        source, times = Repeated(sealed, chunks), []
        for _ in range(3 if chunks < 32 else 1):
            started = time.perf_counter()
            _add_up(outputs, source, cores())
            times.append(time.perf_counter() - started)
        seconds = float(np.median(times))
        rows.append(
            {"rows": source.layout.n_rows, "seconds": seconds, "ns_per_row": 1e9 * seconds / source.layout.n_rows}
        )
    return rows


def _bin_counts(sealed: es.EncryptedTable, settings: Settings) -> dict[str, Any]:
    """What naive Bayes and forests of depth 1 need: every bin times every class. Bound by memory, so compared with copying."""
    names = [str(c) for c in sealed.columns()]
    classes = [name for name in names if name.startswith("class")]
    outputs = [(column(x) * column(y)).total() for x in names if x not in classes for y in classes]
    chunks = 2 if settings.quick else 16
    source = Repeated(sealed, chunks)
    timing = measure(lambda: _add_up(outputs, source, cores()), settings)
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


def _case_study(owner: es.Owner, forest: es.CompletelyRandomForest, settings: Settings) -> dict[str, Any] | None:
    """bcw_o, 547 rows as in the paper, beside scikit-learn's plain random forest."""
    try:
        data = es.datasets.load("bcw_o", download=False)
    except DatasetUnavailableError:
        return None
    frame = data.table_frame().iloc[:547]
    schema = es.Schema.infer(frame, target="target", kinds=data.kinds)
    for name in schema.names:
        schema = schema.with_bins(name, edges=(2, 4, 6, 8))
    table = schema.table(frame)
    sealed = owner.encrypt(table)
    opened = owner.decrypt(forest.fit(sealed, engine="fused"))
    if not np.array_equal(opened.leaf_counts_, clone(forest).fit(table).leaf_counts_):
        raise RuntimeError("the encrypted forest is not the plain one: there is nothing to measure")
    x, y = frame.drop(columns="target").to_numpy(), frame["target"].to_numpy()
    plain = RandomForestClassifier(forest.n_trees, max_depth=DEPTH, random_state=0)

    def sums() -> None:
        _add_up(forest.circuit(sealed.schema, sealed.columns()), sealed, cores())

    few = Settings(settings.quick, 0.0, 2 if settings.quick else 3, 3)
    return {
        "rows": len(table),
        "trees": forest.n_trees,
        "sums": measure(sums, settings).to_dict(),
        "fit_packed": measure(lambda: forest.fit(sealed, engine="fused"), few).to_dict(),
        "scikit_learn": measure(lambda: plain.fit(x, y), settings).to_dict(),
        "download_bytes": forest.totals_.nbytes,
    }


def _chunk_table(chunk: dict[str, Any]) -> Table:
    table = Table(title="One chunk of 8192 rows: milliseconds a tree", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("reader", "cores", "ms a tree", "times faster\nthan SEAL"):
        table.add_column(title, justify="left" if title == "reader" else "right")
    table.add_row("SEAL", "1", _shown(chunk["seal_per_tree"]), "1.0")
    for level, timing in chunk["fused_per_tree"].items():
        table.add_row(f"fused, {level}", "1", _shown(timing), f"{chunk['times_faster_than_seal'][level]:.1f}")
    every = chunk["fused_all_cores_per_tree"]
    faster = chunk["seal_per_tree"]["median_s"] / every["median_s"]
    table.add_row(f"fused, {chunk['arithmetic']}", str(chunk["cores"]), _shown(every), f"{faster:.1f}")
    return table


def _scaling_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="More rows, all trees, all cores", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("rows", "seconds", "ns a row"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(f"{row['rows']:,}", f"{row['seconds']:.2f}", f"{row['ns_per_row']:.0f}")
    return table


def _study_table(study: dict[str, Any]) -> Table:
    table = Table(
        title=f"bcw_o, {study['rows']} rows, {study['trees']} trees", title_justify="left", box=box.SIMPLE_HEAD
    )
    for title in ("what", "ms"):
        table.add_column(title, justify="left" if title == "what" else "right")
    table.add_row("fit, encrypted, sums over rows", _shown(study["sums"]))
    table.add_row("fit, encrypted, packed for download", _shown(study["fit_packed"]))
    table.add_row("fit, scikit-learn's RandomForest, plain", _shown(study["scikit_learn"]))
    return table


def _shown(timing: dict[str, Any]) -> str:
    return milliseconds(
        Timing(timing["median_s"], timing["lower_quartile_s"], timing["upper_quartile_s"], timing["runs"])
    )
