"""Encrypted fits by the instructions of the processor, beside plain ones: processor time of all
threads, so that a busy machine spoils less.

A table is encrypted once; scikit-learn and the levels take turns on its rows, in one process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.fit import study_schema
from benchmarks.plain import STUDY_ROWS, _timed
from benchmarks.streaming import DEPTH, N_TREES, adult_rows
from benchmarks.tables import SAMPLE_ROWS, _sample
from encryptedstats.circuits.devices.native.sums import arithmetic
from encryptedstats.machine import CPU_VARIABLE
from reproduction import datasets

#: Processor time of a fit with AVX2, over scikit-learn's.
GOALS = {"bcw_o": 1.5, "adult": 2.5, "made up": 0.2}
LEVELS = ("avx2", "ifma")
_AGAIN = {"bcw_o": 5, "adult": 1, "made up": 0}
#: A quarter of a million: of more, both take longer in proportion.
MANY_ROWS = 30 * 8192


@part("instructions")
def instructions(settings: Settings) -> Report:
    """Measure each table, from the smallest to the largest."""
    trees = 2 if settings.quick else N_TREES
    rows = [_measure(what, *case, trees) for what, case in _tables(settings.quick)]
    return Report(
        results={"trees": trees, "depth": DEPTH, "tables": rows},
        tables=[_table(rows)],
        remarks=[
            f"{trees} trees of depth {DEPTH}: processor time of all threads, scikit-learn's on one "
            "core; the least of a few fits in turns."
        ],
    )


def _tables(quick: bool) -> Iterator[tuple[str, tuple[es.Schema, pd.DataFrame, str]]]:
    try:
        schema, frame = study_schema()
        yield "bcw_o", (schema, frame.iloc[:STUDY_ROWS], "target")
    except datasets.DatasetUnavailableError:
        pass
    if quick:
        return
    if (rows := adult_rows()) is not None:
        yield "adult", (*rows, "target")
    parts = [_sample(SAMPLE_ROWS, seed=at) for at in range(0, MANY_ROWS, SAMPLE_ROWS)]
    schema = es.Schema.infer(parts[0], target="y")
    yield "made up", (schema, pd.concat(parts).iloc[:MANY_ROWS], "y")


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


def _measure(
    what: str, schema: es.Schema, frame: pd.DataFrame, target: str, trees: int
) -> dict[str, Any]:
    table, forest = schema.table(frame), es.CompletelyRandomForest(trees, DEPTH, random_state=1)
    owner = es.Owner(es.plan(forest, table))
    x, y = pd.get_dummies(frame.drop(columns=target)).to_numpy(), frame[target].to_numpy()
    plain = RandomForestClassifier(trees, max_depth=DEPTH, random_state=0, n_jobs=1)
    expected, times = forest.fit(table).leaf_counts_, dict[str, list[float]]()
    with tempfile.TemporaryDirectory(prefix="encryptedstats-bench-") as folder:
        owner.encrypt(table, out=Path(folder) / "table", progress=False)
        # Kernels belong to loaded keys: each level has its own.
        sealed = {level: es.load(Path(folder) / "table") for level in LEVELS}
        for _ in range(1 + _AGAIN[what]):
            _, (_, seconds) = _timed(partial(plain.fit, x, y))
            times.setdefault("scikit-learn", []).append(seconds)
            for level in LEVELS:
                with _capped(level):
                    if arithmetic() != level:
                        continue
                    asked = es.CompletelyRandomForest(trees, DEPTH, random_state=1)
                    model, (_, seconds) = _timed(partial(asked.fit, sealed[level], progress=False))
                    if not np.array_equal(owner.open(model).leaf_counts_, expected):
                        raise RuntimeError("the encrypted forest is not the plain one")
                    times.setdefault(level, []).append(seconds)
    best = {name: min(some) for name, some in times.items()}
    return {
        "what": what,
        "rows": len(frame),
        "goal": GOALS[what],
        "cpu_seconds": best,
        "times_plain": {level: best[level] / best["scikit-learn"] for level in best},
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Processor time by instructions", box=box.SIMPLE_HEAD)
    for heading in ("table", "scikit-learn", *LEVELS, "goal with AVX2"):
        table.add_column(heading)
    for row in rows:
        found = (
            f"{row['cpu_seconds'][level]:.2f} s ({row['times_plain'][level]:.2f})"
            for level in LEVELS
            if level in row["cpu_seconds"]
        )
        plain = f"{row['cpu_seconds']['scikit-learn']:.2f} s"
        table.add_row(row["what"], plain, *found, f"{row['goal']}")
    return table
