"""Encrypted fits beside plain ones: the same rows in scikit-learn's random forest, in the same run,
with planned keys.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
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
from benchmarks.streaming import DEPTH, N_TREES, adult_rows
from benchmarks.tables import SAMPLE_ROWS, _sample
from encryptedstats.machine import cores
from reproduction import datasets

MANY_ROWS = 1_000_000
STUDY_ROWS = 547  # that the paper fits bcw_o to
AGAIN = 5  # fits of what takes less than a second or two; the best of them counts


@part("plain")
def plain(settings: Settings) -> Report:
    trees = 2 if settings.quick else N_TREES
    rows = [
        row
        for row in (_study(trees), *([] if settings.quick else [_adult(trees), _made_up(trees)]))
        if row
    ]
    return Report(
        results={"trees": trees, "depth": DEPTH, "cores": cores(), "tables": rows},
        tables=[_table(rows)] if rows else [],
        remarks=[
            f"{trees} trees of depth {DEPTH}, packed for download, against "
            f"RandomForestClassifier({trees}, max_depth={DEPTH}) on "
            "the same rows in turns, on one core or on all, whichever is faster; all but bcw_o "
            "from disk. The first fit of a "
            "process prepares keys and programs.",
            "CPU seconds are of all threads together: on a busy machine they say more than the "
            "clock.",
        ],
    )


def _study(trees: int) -> dict[str, Any] | None:
    try:
        schema, frame = study_schema()
    except datasets.DatasetUnavailableError:
        return None
    return _measured("bcw_o", schema, frame.iloc[:STUDY_ROWS], "target", trees, AGAIN)


def _adult(trees: int) -> dict[str, Any] | None:
    rows = adult_rows()
    if rows is None:
        return None
    schema, frame = rows
    return _measured("adult", schema, frame, "target", trees, 2, stored=True)


def _made_up(trees: int) -> dict[str, Any]:
    parts = [
        _sample(min(SAMPLE_ROWS, MANY_ROWS - at), seed=at)
        for at in range(0, MANY_ROWS, SAMPLE_ROWS)
    ]
    schema = es.Schema.infer(_sample(SAMPLE_ROWS, seed=0), target="y")
    return _measured("made up", schema, pd.concat(parts), "y", trees, 1, stored=True)


def _measured(
    what: str,
    schema: es.Schema,
    frame: pd.DataFrame,
    target: str,
    trees: int,
    again: int,
    *,
    stored: bool = False,
) -> dict[str, Any]:
    table, forest = schema.table(frame), es.CompletelyRandomForest(trees, DEPTH, random_state=1)
    plan, planning = _timed(lambda: es.plan(forest, table))
    owner = es.Owner(plan)
    with tempfile.TemporaryDirectory(prefix="encryptedstats-bench-") as folder:
        place = Path(folder) / "table"
        sealed, encrypting = _timed(
            lambda: owner.encrypt(table, **({"out": place} if stored else {}))
        )
        sealed = es.load(place) if stored else sealed
        x, y = pd.get_dummies(frame.drop(columns=target)).to_numpy(), frame[target].to_numpy()
        # One core is the fastest for few rows, and takes minutes for many.
        theirs: dict[int, list[tuple[float, float]]] = {
            jobs: [] for jobs in {1, cores()} if jobs == cores() or len(frame) < MANY_ROWS
        }
        ours = []
        for _ in range(again + 1):  # the first prepares
            model, seconds = _timed(
                lambda: es.CompletelyRandomForest(trees, DEPTH, random_state=1).fit(sealed)
            )
            ours.append(seconds)
            for jobs, times in theirs.items():
                plain = RandomForestClassifier(trees, max_depth=DEPTH, random_state=0, n_jobs=jobs)
                times.append(_timed(partial(plain.fit, x, y))[1])
        if not np.array_equal(owner.open(model).leaf_counts_, forest.fit(table).leaf_counts_):
            raise RuntimeError(
                "the encrypted forest is not the plain one: there is nothing to measure"
            )
    best, plain_best = min(ours[1:]), min(min(times[1:]) for times in theirs.values())
    return {
        "what": what,
        "rows": len(frame),
        "pair_base": plan.parameters.pair_base,
        "plan": planning,
        "planned_seconds": plan.seconds,
        "planned_encrypting": plan.encrypt_seconds,
        "encrypt": encrypting,
        "first": ours[0],
        "fit": best,
        "scikit_learn": plain_best,
        "scikit_learn_by_cores": {jobs: min(times[1:]) for jobs, times in theirs.items()},
        "times_plain": [mine / other for mine, other in zip(best, plain_best, strict=True)],
        "upload_bytes": plan.bytes_up,
        "download_bytes": model.totals_.nbytes,
    }


def _timed(action: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """What it gives, with the seconds it takes on a clock and of the processor, those of children
    included.
    """
    started, cpu = time.perf_counter(), _cpu()
    found = action()
    return found, (time.perf_counter() - started, _cpu() - cpu)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _table(rows: list[dict[str, Any]]) -> Table:
    title = "Encrypted and plain: seconds on a clock (of the processor)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (
        "table",
        "rows",
        "plan",
        "encrypt",
        "first fit",
        "fit",
        "planned",
        "scikit-learn",
        "times plain",
    ):
        table.add_column(heading, justify="left" if heading == "table" else "right")
    for row in rows:
        times = [_both(row[name]) for name in ("plan", "encrypt", "first", "fit")]
        wall, cpu = row["times_plain"]
        ends = (
            f"{row['planned_seconds']:.2f}",
            _both(row["scikit_learn"]),
            f"{wall:.2f} ({cpu:.2f})",
        )
        table.add_row(row["what"], f"{row['rows']:,}", *times, *ends)
    return table


def _both(seconds: tuple[float, float]) -> str:
    return f"{seconds[0]:.2f} ({seconds[1]:.2f})"
