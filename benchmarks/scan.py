"""A genome-wide scan beside plain NumPy: 5,000 people and 10,000 SNPs, every step from the frame to
the table of tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
PEOPLE, SNPS = 5_000, 10_000
QUICK_PEOPLE, QUICK_SNPS = 500, 100


@part("scan")
def scan(settings: Settings) -> Report:
    people, snps = (QUICK_PEOPLE, QUICK_SNPS) if settings.quick else (PEOPLE, SNPS)
    rng, seconds = np.random.default_rng(7), {}

    def timed(step: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        found = work()
        seconds[step] = time.perf_counter() - start
        return found

    genotypes = rng.binomial(2, rng.uniform(0.05, 0.5, snps), (people, snps)).astype(np.int8)
    sick = rng.integers(0, 2, people)
    frame = pd.DataFrame(genotypes, columns=[f"rs{j}" for j in range(snps)]).assign(sick=sick)
    plain = timed("plain NumPy", lambda: _plain(genotypes, sick))
    kinds = dict.fromkeys(frame.columns[:-1], "number")
    schema = timed("infer the schema", lambda: es.Schema.infer(frame, target="sick", kinds=kinds))
    table, question = timed("make the table", lambda: schema.table(frame)), es.GenomeScan()
    plan = timed("plan", lambda: es.plan(question, table))
    owner = timed("keys", lambda: es.Owner(plan))
    sealed = timed("encrypt", lambda: owner.encrypt(table, progress=False))
    answer = timed("scan, encrypted", lambda: sealed.ask(question, progress=False))
    opened = timed("open and read", lambda: owner.open(answer))
    if not np.allclose(opened.table["chi2_trend"], plain, equal_nan=True, rtol=1e-9):
        raise RuntimeError("the encrypted scan is not the plain one: there is nothing to measure")
    return Report(
        results={
            "people": people,
            "snps": snps,
            "ring_degree": plan.parameters.ring_degree,
            "products": plan.products,
            "totals": plan.n_totals,
            "bytes_up": plan.bytes_up,
            "download_bytes": answer.nbytes,
            "seconds": seconds,
        },
        tables=[_table(seconds)],
        remarks=[
            f"{people:,} people, {snps:,} SNPs as numbers from 0 to 2, {cores()} cores, each step "
            f"once. {plan.products:,} "
            f"products, {plan.n_totals:,} totals; {plan.bytes_up / 1e6:,.0f} MB go up, "
            f"{answer.nbytes / 1e6:.1f} MB come down. The trend test of every SNP is compared "
            "with the plain one."
        ],
    )


def _plain(genotypes: NDArray[np.int8], sick: NDArray[Any]) -> NDArray[np.float64]:
    """The trend test of every SNP, as one writes it in NumPy."""
    g, y, n = genotypes.astype(np.float64), sick.astype(np.float64), len(sick)
    alleles, squares, of_cases, cases = g.sum(axis=0), (g * g).sum(axis=0), y @ g, y.sum()
    found: NDArray[np.float64] = n * (n * of_cases - cases * alleles) ** 2
    return found / (cases * (n - cases) * (n * squares - alleles**2))


def _table(seconds: dict[str, float]) -> Table:
    table = Table(
        title="Genome-wide scan", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("step")
    table.add_column("seconds", justify="right")
    for step, taken in seconds.items():
        table.add_row(step, f"{taken:.2f}")
    return table
