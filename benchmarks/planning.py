"""How long a plan takes, and the first fit of a process beside the second.

Plans are timed in processor time, on one core, each of a forest that was never planned before. Fits
run in a process of their own, after all imports, and are timed in the processor time that user code
takes: memory that a process touches for the first time is the system's business.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.fit import study_schema
from benchmarks.streaming import adult_rows
from reproduction import datasets

N_TREES, DEPTH = 100, 3
STUDY_ROWS = 547
#: Seconds of processor time that plans of these tables may take on one core.
GOALS = {"bcw_o": 0.3, "adult": 0.3, "a million rows": 0.3, "100 columns": 2.0}


@part("planning")
def planning(settings: Settings) -> Report:
    trees, runs = (2, 2) if settings.quick else (N_TREES, 7)
    plans = [
        {"table": name, "goal": GOALS[name], "cpu_seconds": _time_plans(schema, n, trees, runs)}
        for name, schema, n in _tables()
    ]
    fits = [] if settings.quick else list(_time_fits(trees))
    return Report(
        results={"trees": trees, "depth": DEPTH, "plans": plans, "fits": fits},
        tables=[_plan_table(plans), *([_fit_table(fits)] if fits else [])],
        remarks=[
            f"Forests of {trees} trees of depth {DEPTH}, another one each time; medians of {runs} "
            "plans in processor time, after a first one that measures the machine.",
            "Fits: processor time of user code in a new process, after imports; the second is the "
            "median of three.",
        ],
    )


def _tables() -> Iterator[tuple[str, es.Schema, int]]:
    study, adult = _rows_of("bcw_o"), _rows_of("adult")
    if study is not None:
        yield "bcw_o", study[0], len(study[1])
    if adult is not None:
        yield "adult", adult[0], len(adult[1])
    yield "a million rows", _made_up(20), 1_000_000
    yield "100 columns", _made_up(100), 10_000


def _made_up(n_columns: int) -> es.Schema:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=2000) for j in range(n_columns)})
    frame["y"] = rng.integers(0, 2, 2000)
    return es.Schema.infer(frame, target="y", bins=5)


def _time_plans(schema: es.Schema, n_rows: int, trees: int, runs: int) -> list[float]:
    """Return the quartiles of some plans."""
    times = []
    for seed in range(runs + 1):
        forest = es.CompletelyRandomForest(trees, DEPTH, random_state=seed)
        started = time.process_time()
        es.plan(forest, schema, n_rows=n_rows)
        times.append(time.process_time() - started)
    return statistics.quantiles(times[1:], n=4, method="inclusive")


# -- fits, each in a process of its own


def _time_fits(trees: int) -> Iterator[dict[str, Any]]:
    for name in ("bcw_o", "adult"):
        rows = _rows_of(name)
        if rows is None:
            continue
        table = rows[0].table(rows[1])
        forest = es.CompletelyRandomForest(trees, DEPTH, random_state=1)
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder) / "table")
            es.Owner(es.plan(forest, table)).encrypt(table).save(place)
            command = [sys.executable, "-m", "benchmarks.planning", place, str(trees)]
            found = [
                json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
                for _ in range(3)
            ]
        first = statistics.median(times[0] for times in found)
        second = statistics.median(statistics.median(times[1:]) for times in found)
        yield {"table": name, "first": first, "second": second}


def _rows_of(name: str) -> tuple[es.Schema, pd.DataFrame] | None:
    if name == "adult":
        return adult_rows()
    try:
        schema, frame = study_schema()
    except datasets.DatasetUnavailableError:
        return None
    return schema, frame.iloc[:STUDY_ROWS]


def _fit_again_and_again(place: str, trees: int) -> list[float]:
    sealed, times = es.load(place), []
    for _ in range(4):
        forest = es.CompletelyRandomForest(trees, DEPTH, random_state=1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        forest.fit(sealed, progress=False)
        times.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
    return times


# -- showing


def _plan_table(plans: list[dict[str, Any]]) -> Table:
    table = Table(title="Plans, seconds of one core", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("table", "median", "quartiles", "goal"):
        table.add_column(title, justify="left" if title == "table" else "right")
    for plan in plans:
        lower, median, upper = plan["cpu_seconds"]
        quartiles = f"{lower:.2f} to {upper:.2f}"
        table.add_row(plan["table"], f"{median:.2f}", quartiles, f"{plan['goal']:.1f}")
    return table


def _fit_table(fits: list[dict[str, Any]]) -> Table:
    table = Table(title="Fits, seconds of user code", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("table", "first of a process", "second", "difference"):
        table.add_column(title, justify="left" if title == "table" else "right")
    for fit in fits:
        first, second = fit["first"], fit["second"]
        table.add_row(fit["table"], f"{first:.2f}", f"{second:.2f}", f"{first - second:.2f}")
    return table


if __name__ == "__main__":
    print(json.dumps(_fit_again_and_again(sys.argv[1], int(sys.argv[2]))))
