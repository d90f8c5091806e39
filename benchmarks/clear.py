"""The plain twin: what a fit in the clear takes, up to a million rows, in seconds and memory,
beside scikit-learn's forest.

Every fit runs in a process of its own, so that its peak memory is that of its rows and of the fit.
"""

from __future__ import annotations

import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table
from sklearn.ensemble import RandomForestClassifier

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.tables import SAMPLE_ROWS, _sample
from encryptedstats.machine import cores

N_TREES, DEPTH = 100, 3
ROWS = (8192, 131_072, 1_000_000)
QUICK_ROWS = (4000,)


@part("clear")
def clear(settings: Settings) -> Report:
    trees = 2 if settings.quick else N_TREES
    rows = [_both(n, trees) for n in (QUICK_ROWS if settings.quick else ROWS)]
    return Report(
        results={"rows": rows, "trees": trees, "depth": DEPTH, "cores": cores()},
        tables=[_table(rows)],
        remarks=[
            f"{trees} trees of depth {DEPTH}; 10 variables of 5 bins, 2 classes. Ours computes on "
            "one core, scikit-learn's "
            f"RandomForestClassifier({trees}, max_depth={DEPTH}) with n_jobs={cores()}, on the "
            "same bins; one run each.",
            "Memory is that of the whole process, before the fit and at its peak, with the "
            "interpreter, libraries and rows.",
        ],
    )


def _both(n_rows: int, trees: int) -> dict[str, Any]:
    ours, theirs = _afresh("ours", n_rows, trees), _afresh("scikit-learn", n_rows, trees)
    return {
        "rows": n_rows,
        "ours": ours,
        "scikit_learn": theirs,
        "times_faster": theirs["seconds"] / ours["seconds"],
        "load_average": os.getloadavg()[0],
    }


def _afresh(which: str, n_rows: int, trees: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_fit, which, n_rows, trees).result()


def _fit(which: str, n_rows: int, trees: int) -> dict[str, Any]:
    """The fit, and nothing else but its rows, in this process."""
    schema = es.Schema.infer(_sample(SAMPLE_ROWS, seed=0), target="y")
    starts = range(0, n_rows, SAMPLE_ROWS)
    tables = [
        schema.table(_sample(min(SAMPLE_ROWS, n_rows - start), seed=start)) for start in starts
    ]
    table = es.Table.concat(tables)
    if which == "ours":
        return _timed(lambda: es.CompletelyRandomForest(trees, DEPTH, random_state=1).fit(table))
    bins = pd.DataFrame(dict(enumerate(table.data))).to_numpy()
    theirs = RandomForestClassifier(trees, max_depth=DEPTH, random_state=1, n_jobs=cores())
    return _timed(lambda: theirs.fit(bins, table.class_codes))


def _timed(fit: Any) -> dict[str, Any]:
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    fit()
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_seconds": (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime),
        "bytes_before": before.ru_maxrss * 1024,
        "peak_bytes": after.ru_maxrss * 1024,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Fits in the clear", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading in ("rows", "what", "seconds", "CPU s", "MB before", "peak MB", "times faster"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        for name, which in (("scikit-learn", row["scikit_learn"]), ("ours", row["ours"])):
            table.add_row(
                f"{row['rows']:,}",
                name,
                f"{which['seconds']:.2f}",
                f"{which['cpu_seconds']:.2f}",
                f"{which['bytes_before'] / 1e6:,.0f}",
                f"{which['peak_bytes'] / 1e6:,.0f}",
                f"{row['times_faster']:.1f}" if name == "ours" else "",
                end_section=name == "ours",
            )
    return table
