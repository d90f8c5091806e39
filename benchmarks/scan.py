"""A genome-wide scan with covariates beside plain NumPy and beside a table of columns: 5,000 people
and 10,000 variants, every step from the genotypes to the table of tests.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.machine import cores

T = TypeVar("T")
SHAPES = ((5_000, 10_000), (1_000, 131_071))  # the second is a published one
QUICK_SHAPES = ((200, 300),)
COLUMNS = 300  # variants of the table of columns: all would take minutes and a gigabyte
COVARIATES = ["age", "sex", "component"]
QUESTION = es.GenomeScan(covariates=COVARIATES)


@part("scan")
def scan(settings: Settings) -> Report:
    cases = [_measure(*shape) for shape in (QUICK_SHAPES if settings.quick else SHAPES)]
    return Report(
        results={"cases": cases},
        tables=[_table(case) for case in cases],
        remarks=[
            f"A number as trait, three covariates, {cores()} cores, each step once; seconds, and "
            "those of all processors. Every slope is compared with the plain one. A table of "
            f"columns has {COLUMNS} variants; its steps are scaled to all."
        ],
    )


def _measure(people: int, variants: int) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    genotypes = np.empty((people, variants), dtype=np.int8)
    for j, share in enumerate(rng.uniform(0.05, 0.5, variants)):
        genotypes[:, j] = rng.binomial(2, share, people)
    rows = pd.DataFrame(
        {
            "age": rng.integers(40, 70, people),
            "sex": rng.integers(0, 2, people),
            "component": rng.normal(size=people).round(2),
            "pressure": rng.integers(100, 180, people),
        }
    )
    clock = _Clock()
    plain = clock.time("NumPy", lambda: _plain(genotypes, rows))
    table = clock.time("make the table", lambda: es.genome_table(genotypes, rows, "pressure"))
    plan, slopes, facts = _compute(clock, table, "")
    if not np.allclose(slopes, plain, rtol=1e-6, atol=1e-9):
        raise RuntimeError("the encrypted scan is not the plain one: there is nothing to measure")
    few = min(COLUMNS, variants)
    columns = es.genome_table(genotypes[:, :few], rows, "pressure", lanes=1)
    _compute(clock, columns, f", {few} columns")
    return {
        "people": people,
        "snps": variants,
        "lanes": table.layout.lanes,
        "ring_degree": plan.parameters.ring_degree,
        "products": plan.products,
        "key_switches": plan.key_switches,
        "ciphertexts_up": plan.n_columns * plan.layout.n_chunks,
        "bytes_up": plan.bytes_up,
        "columns": few,
        **facts,
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu_seconds,
    }


def _compute(clock: _Clock, table: es.Table, name: str) -> tuple[es.Plan, Any, dict[str, Any]]:
    """Plan, encrypt into a store, scan and open."""
    plan = clock.time(f"plan{name}", lambda: es.plan(QUESTION, table))
    owner = clock.time(f"keys{name}", lambda: es.Owner(plan))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "table"
        sealed = clock.time(
            f"encrypt{name}", lambda: owner.encrypt(table, out=place, progress=False)
        )
        answer = clock.time(f"scan{name}", lambda: sealed.ask(QUESTION, progress=False))
        opened = clock.time(f"open{name}", lambda: owner.open(answer))
        stored = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    facts = {"stored_bytes": stored, "download_bytes": answer.nbytes}
    return plan, opened.table["beta"].to_numpy(), facts


class _Clock:
    """Seconds of each step, on the wall and of all processors."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def time(self, step: str, work: Callable[[], T]) -> T:
        start, used = time.perf_counter(), _cpu_seconds()
        found = work()
        self.seconds[step] = time.perf_counter() - start
        self.cpu_seconds[step] = _cpu_seconds() - used
        return found


def _cpu_seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _plain(genotypes: NDArray[np.int8], rows: pd.DataFrame) -> NDArray[np.float64]:
    """The slopes of all variants beside the covariates, as one writes them in NumPy."""
    x = np.column_stack([np.ones(len(rows)), rows[COVARIATES]])
    basis, _ = np.linalg.qr(x)
    y = rows["pressure"].to_numpy(dtype=float)
    left, slopes = y - basis @ (basis.T @ y), []
    for start in range(0, genotypes.shape[1], 8192):
        g = genotypes[:, start : start + 8192].astype(np.float64)
        spread = (g * g).sum(axis=0) - ((basis.T @ g) ** 2).sum(axis=0)
        slopes.append(left @ g / spread)
    return np.concatenate(slopes)


def _table(case: dict[str, Any]) -> Table:
    table = Table(
        title=f"{case['people']:,} people, {case['snps']:,} variants in {case['lanes']} lanes",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("step", "seconds", "of processors"):
        table.add_column(name, justify="left" if name == "step" else "right")
    for step, taken in case["seconds"].items():
        table.add_row(step, f"{taken:.2f}", f"{case['cpu_seconds'][step]:.2f}")
    sizes = (case["stored_bytes"], case["download_bytes"])
    table.add_row("MB up, MB down", *(f"{size / 1e6:,.0f}" for size in sizes))
    return table
