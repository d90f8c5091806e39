"""Fits of tables that lie on disk: ``adult``, and up to a million rows, in seconds, memory and
seconds a row, beside the plan.

Every fit runs in a process of its own, which reads the table, fits and packs, so that its peak
memory is that of the fit alone. The encrypted tables of made-up rows are kept under the temporary
folder, and used again by the next run.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.tables import SAMPLE_ROWS, _sample
from encryptedstats.machine import cores
from encryptedstats.tables.facts import TABLE_VERSION
from reproduction import datasets

N_TREES, DEPTH = 100, 3
ROWS = (8192, 32_768, 131_072, 1_000_000)
QUICK_ROWS = (4000,)
PLACE = Path(
    os.environ.get("ENCRYPTEDSTATS_BENCH", Path(tempfile.gettempdir()) / "encryptedstats-bench")
)


@part("streaming")
def streaming(settings: Settings) -> Report:
    trees = 2 if settings.quick else N_TREES
    rows = [
        _fit_afresh(_made_up(n, trees), n, trees) for n in (QUICK_ROWS if settings.quick else ROWS)
    ]
    adult = None if settings.quick else _adult(trees)
    return Report(
        results={"made_up": rows, "adult": adult, "trees": trees, "depth": DEPTH},
        tables=[_table([*rows, *([adult] if adult else [])])],
        remarks=[
            f"{trees} trees of depth {DEPTH}, read from a local folder, fitted and packed; "
            "checked against the same fit in the "
            "clear. Made-up rows: 10 variables of 5 bins, 2 classes, 52 columns. Parameters are "
            "those that the plan chooses.",
            "Peak memory is that of the process that fits, with the interpreter and its libraries.",
        ],
    )


def _forest(trees: int) -> es.CompletelyRandomForest:
    return es.CompletelyRandomForest(trees, DEPTH, random_state=1)


def _made_up(n_rows: int, trees: int) -> Path:
    """A stored table of made-up rows, encrypted now unless a run before this has done it (with this
    version of tables).
    """
    place = PLACE / f"{n_rows}-rows-{TABLE_VERSION}"
    if (place / "table" / "table.manifest").exists():
        return place
    schema = es.Schema.infer(_sample(SAMPLE_ROWS, seed=0), target="y")
    place.mkdir(parents=True, exist_ok=True)
    frame = pd.concat(
        [
            _sample(min(SAMPLE_ROWS, n_rows - start), seed=start)
            for start in range(0, n_rows, SAMPLE_ROWS)
        ]
    )
    _encrypt(place, schema, frame, trees)
    return place


def _encrypt(place: Path, schema: es.Schema, frame: pd.DataFrame, trees: int) -> None:
    owner = es.Owner(es.plan(_forest(trees), schema, len(frame)))
    table = schema.table(frame)
    counts = np.asarray(_forest(trees).fit(table).totals_, dtype=np.int64)
    np.save(place / "expected.npy", counts, allow_pickle=False)
    owner.save(place / "owner.key", overwrite=True)
    owner.encrypt(table, out=place / "table", overwrite=True)


def adult_rows() -> tuple[es.Schema, pd.DataFrame] | None:
    """All rows of ``adult`` with their schema; None where the data set is not here."""
    try:
        data = datasets.load("adult", download=False)
    except datasets.DatasetUnavailableError:
        return None
    frame = data.table_frame()
    schema = es.Schema.infer(frame, target="target", kinds=data.kinds)
    return schema, frame


def _adult(trees: int) -> dict[str, Any] | None:
    rows = adult_rows()
    if rows is None:
        return None
    schema, frame = rows
    with tempfile.TemporaryDirectory(prefix="encryptedstats-bench-") as folder:
        _encrypt(Path(folder), schema, frame, trees)
        return {**_fit_afresh(Path(folder), len(frame), trees), "what": "adult"}


def _fit_afresh(place: Path, n_rows: int, trees: int) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(_fit, str(place), trees).result()
    if found["rows"] != n_rows:
        raise RuntimeError(f"{place} holds {found['rows']} rows, not {n_rows}: delete it")
    return {**found, **_checked(place, trees)}


def _fit(place: str, trees: int) -> dict[str, Any]:
    """The fit, and nothing else, in this process."""
    sealed = es.load(Path(place) / "table")
    _ = sealed.keys.evaluator.kernels  # read and prepared once for a table, not for a fit
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    forest = _forest(trees).fit(sealed, progress=False)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    forest.save(Path(place) / "forest.enc", overwrite=True)
    facts = sealed.info().to_dict()
    return {
        "what": "made up",
        "rows": sealed.n_rows,
        "chunks": sealed.layout.n_chunks,
        "columns": len(sealed.facts.columns),
        "cores": cores(),
        "seconds": seconds,
        "cpu_seconds": (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime),
        "us_per_row": 1e6 * seconds / sealed.n_rows,
        "us_per_row_of_full_chunks": 1e6 * seconds / (sealed.layout.n_chunks * sealed.layout.slots),
        "table_bytes": facts["bytes"],
        "download_bytes": forest.totals_.nbytes,
        "peak_bytes": after.ru_maxrss * 1024,
        "load_average": os.getloadavg()[0],
    }


def _checked(place: Path, trees: int) -> dict[str, Any]:
    """What the plan says, and that the result is the right one; not in the process that is
    measured.
    """
    owner = es.Owner.load(place / "owner.key")
    sealed = es.load(place / "table")
    forest = es.CompletelyRandomForest.load(place / "forest.enc", keys=sealed.keys)
    opened = owner.open(forest)
    if not np.array_equal(
        np.asarray(opened.totals_), np.load(place / "expected.npy", allow_pickle=False)
    ):
        raise RuntimeError("the encrypted forest is not the plain one: there is nothing to measure")
    plan = es.plan(_forest(trees), sealed.schema, sealed.n_rows)
    return {"planned_seconds": plan.seconds, "planned_memory": plan.memory}


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Fits of stored tables", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    headings = (
        "what",
        "rows",
        "columns",
        "MB on disk",
        "seconds",
        "CPU s",
        "µs a row",
        "planned s",
        "peak MB",
        "download MB",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        table.add_row(
            row["what"],
            f"{row['rows']:,}",
            str(row["columns"]),
            f"{row['table_bytes'] / 1e6:,.0f}",
            f"{row['seconds']:.2f}",
            f"{row['cpu_seconds']:.2f}",
            f"{row['us_per_row']:.1f}",
            f"{row['planned_seconds']:.1f}",
            f"{row['peak_bytes'] / 1e6:,.0f}",
            f"{row['download_bytes'] / 1e6:.2f}",
        )
    return table
