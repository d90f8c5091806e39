"""Encrypted tables: the paper's case study in time and bytes, and a file of a million rows in rows
a second and memory.
"""

from __future__ import annotations

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
from benchmarks._common import Report, Settings, measure, part
from encryptedstats.machine import cores
from reproduction import datasets

PAPER = {"source": "Aslett, Esperança, Holmes (2015): 547 rows of bcw_o", "bytes": 13.8e9}
N_VARIABLES = 10
SAMPLE_ROWS = 50_000  # what the schema is inferred from
COMPARED_ROWS = 200_000  # one worker against all of them
ALL_ROWS = 1_000_000
QUICK_ROWS = 20_000
PUBLIC_KEYS = "public-*.keys"


@part("tables")
def tables(settings: Settings) -> Report:
    rows = run(settings.quick, settings)
    return Report(
        results={"rows": rows, "paper": PAPER},
        tables=[_table(rows)],
        remarks=[
            "BGV, N=8192, data primes of 43 and 44 bits, secret-key encryption, all but one of "
            "bins and classes, into a local "
            "folder with every object flushed to disk. Bytes are those of the encrypted data, "
            "public keys apart.",
            "Files: CSV, 10 variables of 5 bins, 2 classes, 41 columns. Peak memory is that of "
            "the process and, for each of its "
            "workers, of the largest: pages that they share count several times, so it is an "
            "upper bound.",
        ],
    )


def run(quick: bool = False, settings: Settings | None = None) -> list[dict[str, Any]]:
    """One row for the case study, and one for each file and number of workers."""
    settings = settings or (Settings.for_quick() if quick else Settings())
    rows = [row for row in [_case_study(settings)] if row is not None]
    compared = QUICK_ROWS if quick else COMPARED_ROWS
    jobs = [(compared, 1), (compared, cores())] + ([] if quick else [(ALL_ROWS, cores())])
    with tempfile.TemporaryDirectory(prefix="encryptedstats-bench-") as folder:
        for n_rows, workers in jobs:
            rows.append(_afresh(Path(folder), n_rows, workers))
    return rows


def parameters() -> es.Parameters:
    return es.Parameters.from_bits("bgv", 8192, 4000, (42, 43, 43, 43, 43))


def _case_study(settings: Settings) -> dict[str, Any] | None:
    """bcw_o: 683 rows, 9 variables of 5 bins, 2 classes."""
    try:
        data = datasets.load("bcw_o", download=False)
    except datasets.DatasetUnavailableError:
        return None
    frame = data.table_frame()
    schema = es.Schema.infer(frame, target="target", kinds=data.kinds)
    for name in (
        schema.names
    ):  # quintiles of these ten-point scales tie; the paper counts five bins for each
        schema = schema.with_bins(name, edges=(2, 4, 6, 8))
    owner, table = es.Owner(parameters()), schema.table(frame)
    with tempfile.TemporaryDirectory() as folder:
        timing = measure(lambda: owner.encrypt(table, out=folder, overwrite=True), settings)
        stored = _stored_bytes(Path(folder))
        keys = next(Path(folder).glob(PUBLIC_KEYS)).stat().st_size
    return {
        "what": "bcw_o",
        "rows": len(table),
        "columns": len(table.stored_columns()),
        "workers": 1,
        "seconds": timing.median,
        "timing": timing.to_dict(),
        "rows_per_second": len(table) / timing.median,
        "bytes": stored,
        "key_bytes": keys,
    }


def _afresh(folder: Path, n_rows: int, workers: int) -> dict[str, Any]:
    """A file encrypted in a process of its own: the peak of a process never goes down again."""
    path = folder / f"{n_rows}.csv"
    if not path.exists():
        _write_rows(path, n_rows)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_encrypt_file, str(path), n_rows, workers).result()


def _write_rows(path: Path, n_rows: int) -> None:
    for start in range(0, n_rows, SAMPLE_ROWS):
        part_of_file = _sample(min(SAMPLE_ROWS, n_rows - start), seed=start)
        part_of_file.to_csv(path, index=False, mode="a", header=start == 0)


def _sample(n_rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        f"x{j}": rng.normal(0, 1, n_rows).round(6) for j in range(N_VARIABLES)
    }
    return pd.DataFrame({**columns, "y": rng.integers(0, 2, n_rows)})


def _encrypt_file(path: str, n_rows: int, workers: int) -> dict[str, Any]:
    owner = es.Owner(parameters())
    schema = es.Schema.infer(_sample(SAMPLE_ROWS, seed=0), target="y")
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as out:
        started = time.perf_counter()
        sealed = owner.encrypt_file(path, schema, out, workers=workers)
        seconds = time.perf_counter() - started
        stored = _stored_bytes(Path(out))
    if len(sealed) != n_rows:
        raise RuntimeError(
            f"{len(sealed)} of {n_rows} rows were encrypted: there is nothing to measure"
        )
    own, child = (
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "what": "CSV",
        "rows": n_rows,
        "columns": len(sealed.facts.columns),
        "workers": workers,
        "seconds": seconds,
        "rows_per_second": n_rows / seconds,
        "bytes": stored,
        "peak_bytes_of_process": own,
        "peak_bytes_of_largest_worker": child if workers > 1 else 0,
        "peak_bytes_at_most": own + (workers * child if workers > 1 else 0),
    }


def _stored_bytes(folder: Path) -> int:
    return sum(
        p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.match(PUBLIC_KEYS)
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Encrypting tables", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for title in (
        "what",
        "rows",
        "columns",
        "workers",
        "seconds",
        "rows/s",
        "MB",
        "bytes\na value",
        "peak memory\nMB",
    ):
        table.add_column(title, justify="left" if title == "what" else "right", no_wrap=True)
    for row in rows:
        peak = row.get("peak_bytes_at_most")
        table.add_row(
            row["what"],
            f"{row['rows']:,}",
            str(row["columns"]),
            str(row["workers"]),
            f"{row['seconds']:.2f}",
            f"{row['rows_per_second']:,.0f}",
            f"{row['bytes'] / 1e6:,.1f}",
            f"{row['bytes'] / row['rows'] / row['columns']:.1f}",
            "" if peak is None else f"{peak / 1e6:,.0f}",
        )
    return table
