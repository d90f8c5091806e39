"""Many machines: a fit on 1 and 2 workers here, what a shard is made of, and from that a simulation
of up to 1,000 workers.

The simulation deals shards to workers as they become free. A shard takes the measured time of its
chunks and of bringing its totals down, the time to fetch its bytes at an assumed bandwidth, and
what handing it out was measured to cost. Then results are added up.
"""

from __future__ import annotations

import heapq
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.circuits.devices import AUTO
from encryptedstats.circuits.shards import FAN_IN, chunks_per_shard
from encryptedstats.cluster import items
from encryptedstats.storage.objects import open_store
from reproduction import casestudy_cluster

N_VARIABLES, N_TREES, DEPTH = 9, 100, 3
CHUNKS, QUICK_CHUNKS = 8, 2
ROWS = (10**6, 10**7, 10**8, 10**9)
WORKERS = (1, 2, 10, 100, 1000)
PLANNED_WORKERS = {10**6: 16, 10**7: 1000, 10**9: 1000}
# Keys for how many rows a shard is measured with, and with which share of the trees: the large ones
# take ten times as long.
MEASURED = {10**6: 1.0, 10**7: 1.0, 10**9: 0.1}
# The largest table once more, as so many smaller ones whose models the owner adds up when they are
# opened.
IN_TABLES = 1000
WORKER_BANDWIDTH = (
    100e6  # bytes a second from an object store to one worker: assumed, and on the cautious side
)
STORE_BANDWIDTH = 20e9  # and to all of them together
LATENCY = 0.05  # seconds to the first byte of an object


@dataclass(frozen=True)
class Shard:
    """What a shard was measured to take: seconds for each of its chunks, and once for itself;
    bytes; and to add up results.
    """

    ring_degree: int
    chunk_seconds: float
    finish_seconds: float
    block_bytes: int
    result_bytes: int
    keys_bytes: int
    add_seconds: float  # one result, read and added


@dataclass(frozen=True)
class Simulated:
    """A fit that was not run."""

    rows: int
    tables: int
    workers: int
    shards: int
    seconds: float
    efficiency: float  # of the time of one worker
    bytes_read: float


@part("cluster")
def cluster(settings: Settings) -> Report:
    trees = 2 if settings.quick else N_TREES
    with tempfile.TemporaryDirectory(prefix="encryptedstats-") as folder:
        measured = _measured(Path(folder), trees, settings)
        sizes = list(MEASURED)[:1] if settings.quick else list(MEASURED)
        shards = {n: _shard(Path(folder) / f"{n}", trees, n) for n in sizes}
    handing_out = measured[0]["seconds"] - measured[0]["work_seconds"]
    overhead = max(0.0, handing_out) / measured[0]["items"]
    simulated = [
        _simulate(shards[min(n for n in shards if n >= total)], total, workers, overhead)
        for total in (ROWS[:1] if settings.quick else ROWS)
        for workers in WORKERS
    ]
    smallest = shards[min(shards)]
    simulated += [
        _simulate(smallest, ROWS[-1], workers, overhead, IN_TABLES) for workers in WORKERS
    ]
    return Report(
        results={
            "measured": measured,
            "shards": {str(n): asdict(shard) for n, shard in shards.items()},
            "seconds_to_hand_out": overhead,
            "simulated": [asdict(one) for one in simulated],
        },
        tables=[_measured_table(measured), _shard_table(shards), _simulated_table(simulated)],
        remarks=[
            f"{N_VARIABLES} variables of 5 bins, 2 classes, {trees} trees of depth {DEPTH}. "
            "Workers are processes of one core; "
            "starting them is not counted.",
            f"Simulated with {WORKER_BANDWIDTH / 1e6:.0f} MB/s to a worker, "
            f"{STORE_BANDWIDTH / 1e9:.0f} GB/s from the store, "
            f"{LATENCY * 1e3:.0f} ms to the first byte (assumed), and {overhead * 1e3:.0f} ms to "
            "hand out an item (measured).",
        ],
    )


def _frame(n_rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{j}": rng.normal(size=n_rows) for j in range(N_VARIABLES)})
    return frame.assign(y=rng.integers(0, 2, n_rows))


def _stored(plan: es.Plan, schema: es.Schema, chunks: int, place: Path) -> es.Owner:
    owner = es.Owner(plan)
    owner.encrypt(schema.table(_frame(chunks * plan.layout.slots)), out=place)
    return owner


def _forest(trees: int) -> es.CompletelyRandomForest:
    return es.CompletelyRandomForest(trees, DEPTH, random_state=1)


def _schema() -> es.Schema:
    return es.Schema.infer(_frame(2000), target="y")


# -- measured
# ------------------------------------------------------------------------------------------------


def _measured(folder: Path, trees: int, settings: Settings) -> list[dict[str, Any]]:
    """The same fit on 1 and on 2 workers, by the cluster process of the case study."""
    chunks = QUICK_CHUNKS if settings.quick else CHUNKS
    schema = _schema()
    plan = es.plan(_forest(trees), schema, min(MEASURED), workers=PLANNED_WORKERS[min(MEASURED)])
    _stored(plan, schema, chunks, folder / "train")
    found = []
    for workers in (1, 2):
        out = folder / f"forest-{workers}"
        real = {
            "table": str(folder / "train"),
            "trees": trees,
            "depth": DEPTH,
            "rows_per_shard": plan.layout.slots * max(1, chunks // 8),
            "forests": [[1, str(out)]],
        }
        # First a small one: workers import the library and read the keys with their first item.
        warm = {**real, "trees": 1, "forests": [[2, f"{out}-warm"]]}
        asked = {"workers": workers, "rounds": [warm, real]}
        command = [sys.executable, str(casestudy_cluster.__file__)]
        done = subprocess.run(
            command, input=json.dumps(asked), capture_output=True, text=True, check=True
        )
        _, told = json.loads(done.stdout)["rounds"]
        rows = chunks * plan.layout.slots
        found.append(
            {"workers": workers, "rows": rows, "rows_per_second": rows / told["seconds"], **told}
        )
    return found


def _shard(place: Path, trees: int, n_rows: int) -> Shard:
    """A shard of one chunk and one of three, on one core, read from files."""
    schema, share = _schema(), MEASURED[n_rows]
    trees = max(1, round(trees * share))
    plan = es.plan(_forest(trees), schema, n_rows, workers=PLANNED_WORKERS[n_rows])
    _stored(plan, schema, 3, place / "train")
    slots = plan.layout.slots
    job = es.cluster.submit(_forest(trees), place / "train", place / "one", rows_per_shard=slots)
    whole = es.cluster.submit(
        _forest(trees), place / "train", place / "three", rows_per_shard=3 * slots
    )
    store = open_store(job.queue)
    first = next(iter(job.items.values()))
    _ = job.keys, job.outputs
    one = _seconds(lambda: items._evaluate(job, first, AUTO))
    three = _seconds(lambda: items._evaluate(whole, next(iter(whole.items.values())), AUTO), runs=1)
    items.run_item(job, first.name)
    result = items.read_result(job, first, store)
    (keys,) = (place / "train").glob("public-*.keys")
    chunk = max(1e-3, (three - one) / 2)
    return Shard(
        ring_degree=plan.parameters.ring_degree,
        chunk_seconds=chunk / share,
        finish_seconds=max(0.0, one - chunk) / share,
        block_bytes=job.entries[0].bytes,
        result_bytes=round(len(store.read(first.name)) / share),
        keys_bytes=keys.stat().st_size,
        add_seconds=_seconds(lambda: items.read_result(job, first, store) + result) / share,
    )


def _seconds(action: Callable[[], object], runs: int = 2) -> float:
    """Time of the processor, which other work on the machine does not lengthen much."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


# -- simulated
# ------------------------------------------------------------------------------------------------


def _simulate(shard: Shard, rows: int, workers: int, overhead: float, tables: int = 1) -> Simulated:
    chunks = math.ceil(rows / shard.ring_degree)
    size = chunks_per_shard(chunks, workers)
    sizes = [min(size, chunks - start) for start in range(0, chunks, size)]
    bandwidth = min(WORKER_BANDWIDTH, STORE_BANDWIDTH / workers)
    busy = 0.0

    def duration(n_chunks: int) -> float:
        fetch = LATENCY * n_chunks + n_chunks * shard.block_bytes / bandwidth
        return (
            fetch
            + n_chunks * shard.chunk_seconds
            + shard.finish_seconds
            + shard.result_bytes / bandwidth
            + LATENCY
        )

    start = shard.keys_bytes / bandwidth + LATENCY  # every worker reads the keys once
    free = [start] * min(workers, len(sizes))
    heapq.heapify(free)
    given_out = 0.0
    for n_chunks in sizes:
        given_out += overhead  # one after the other: there is one scheduler
        begin = max(heapq.heappop(free), given_out)
        heapq.heappush(free, begin + duration(n_chunks))
        busy += duration(n_chunks)
    seconds = max(free)
    results = len(sizes)
    while results > tables:
        sums = math.ceil(results / FAN_IN)
        adding = FAN_IN * (shard.add_seconds + LATENCY + shard.result_bytes / bandwidth)
        seconds += math.ceil(sums / workers) * adding + sums * overhead
        results = sums
    alone = (
        chunks * (duration(1) - shard.finish_seconds)
        + math.ceil(chunks / 64) * shard.finish_seconds
    )
    read = chunks * shard.block_bytes + workers * shard.keys_bytes
    return Simulated(
        rows, tables, workers, len(sizes), seconds, min(1.0, alone / (workers * seconds)), read
    )


# -- tables
# ------------------------------------------------------------------------------------------------


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _measured_table(measured: list[dict[str, Any]]) -> Table:
    table = _table(
        "A fit on a local cluster, measured", ("workers", "rows", "shards", "seconds", "rows/s")
    )
    for one in measured:
        cells = (one["workers"], f"{one['rows']:,}", one["shard_results"])
        table.add_row(*map(str, cells), f"{one['seconds']:.1f}", f"{one['rows_per_second']:,.0f}")
    return table


def _shard_table(shards: dict[int, Shard]) -> Table:
    columns = (
        "keys for rows",
        "N",
        "s a chunk",
        "s a shard",
        "MB a chunk",
        "MB a result",
        "MB keys",
        "ms to add",
    )
    table = _table("What a shard is made of, measured, one core", columns)
    for rows, one in shards.items():
        sizes = (one.block_bytes, one.result_bytes, one.keys_bytes)
        times = (f"{one.chunk_seconds:.2f}", f"{one.finish_seconds:.2f}")
        megabytes = (f"{size / 1e6:.1f}" for size in sizes)
        table.add_row(
            f"{rows:,}", f"{one.ring_degree}", *times, *megabytes, f"{one.add_seconds * 1e3:.0f}"
        )
    return table


def _simulated_table(simulated: list[Simulated]) -> Table:
    table = _table(
        "Simulated", ("rows", "tables", "workers", "shards", "seconds", "efficiency", "GB read")
    )
    for one in simulated:
        cells = (
            f"{one.rows:,}",
            f"{one.tables}",
            f"{one.workers:,}",
            f"{one.shards:,}",
            f"{one.seconds:,.0f}",
        )
        table.add_row(*cells, f"{one.efficiency:.0%}", f"{one.bytes_read / 1e9:,.1f}")
    return table
