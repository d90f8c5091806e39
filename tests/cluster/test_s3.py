"""The same on S3, through s3fs and over HTTP: moto's server, an imitation of S3 of its own, is
started here on loopback.

moto implements conditional writes (``If-None-Match``), which leases rest on, as S3 does.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cluster_samples as samples
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, SLOW, Hospital, finish, start, until

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.storage.objects import open_store
from ports import free_port

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

ROOT = "s3://hospital"


def answers(address: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An empty bucket; processes that are started inherit how it is reached."""
    port = free_port()
    quiet = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }  # a pipe that nobody reads would fill up
    server = start("-m", "moto.server", "-H", "127.0.0.1", "-p", port, **quiet)
    address = f"http://127.0.0.1:{port}"
    before = dict(os.environ)
    os.environ.update(
        AWS_ENDPOINT_URL=address,
        AWS_ACCESS_KEY_ID="nobody",
        AWS_SECRET_ACCESS_KEY="nothing",
        AWS_DEFAULT_REGION="us-east-1",
        no_proxy="127.0.0.1",
        NO_PROXY="127.0.0.1",
    )
    try:
        until(lambda: answers(f"{address}/moto-api/"), "start moto's server")
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir(ROOT)
        yield ROOT
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        os.environ.clear()
        os.environ.update(before)
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def on_s3(hospital: Hospital, bucket: str) -> Hospital:
    """The owner uploads the table, and has nothing more to do with the cluster."""
    s3fs.S3FileSystem().put(str(hospital.table), f"{bucket}/train", recursive=True)
    return Hospital(hospital.owner, hospital.table)


def test_of_many_who_create_an_object_one_succeeds(bucket: str) -> None:
    """Not by looking first: all look before the first one writes."""
    store: Any = open_store(f"{bucket}/race")
    store.exists = lambda name: False

    def create(who: int) -> bool:
        try:
            made: bool = store.create("lease", f"{who}".encode())
        except OSError:
            return False  # refused by the server, where looking would have told why
        return made

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(8)))
    assert sum(outcomes) == 1
    assert store.read("lease") == f"{outcomes.index(True)}".encode()


def test_workers_of_a_bucket(on_s3: Hospital, bucket: str) -> None:
    job = cluster.submit(FOREST, f"{bucket}/train", f"{bucket}/forest", rows_per_shard=ROWS)
    workers = [start(SLOW, job.queue, 0.2, 60.0) for _ in range(2)]
    reports = [json.loads(finish(worker)) for worker in workers]
    assert sum(report["shards"] for report in reports) == BLOCKS
    assert on_s3.is_exact(FOREST, f"{bucket}/forest")
    assert cluster.status(job.queue)[0].finished
    again = cluster.submit(FOREST, f"{bucket}/train", f"{bucket}/forest", rows_per_shard=ROWS)
    assert cluster.work(again.queue).items == 0


# All four in folders: test_faults.py.
@pytest.mark.parametrize(
    "kind",
    [
        "flipped",
        "missing",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cut short", "stale")),
    ],
)
def test_damaged_objects_in_a_bucket_are_named(
    on_s3: Hospital, bucket: str, kind: str, tmp_path: Path
) -> None:
    place = f"{bucket}/{kind.replace(' ', '-')}"
    files = s3fs.S3FileSystem()
    files.put(str(on_s3.table), place, recursive=True)
    name = f"{place}/blocks/{sorted(path.name for path in (on_s3.table / 'blocks').iterdir())[1]}"
    data = files.cat_file(name)
    job = cluster.submit(FOREST, place, f"{place}-forest", rows_per_shard=ROWS)
    if kind == "missing":
        files.rm_file(name)
    else:
        other = files.cat_file(sorted(files.ls(f"{place}/blocks", detail=False))[0])
        changed = bytes([data[-9] ^ 1])
        files.pipe_file(
            name,
            {"cut short": data[:-7], "flipped": data[:-9] + changed + data[-8:], "stale": other}[
                kind
            ],
        )
    with pytest.raises((es.FileFormatError, FileNotFoundError), match=name):
        cluster.work(job.queue)
    files.pipe_file(name, data)
    assert cluster.work(job.queue).shards == 1
    assert on_s3.is_exact(FOREST, f"{place}-forest")


@pytest.mark.slow
def test_a_fit_on_dask_from_bucket_to_bucket(on_s3: Hospital, bucket: str) -> None:
    pytest.importorskip("distributed")
    script = (
        "import sys; from encryptedstats import cluster, CompletelyRandomForest as F;"
        "from encryptedstats.cluster.scheduling import DaskRun, run_on_dask;"
        f"job = cluster.submit(F(n_trees=4, depth=2, random_state=3), '{bucket}/train', "
        f"'{bucket}/dask', rows_per_shard={2 * ROWS}, trees_per_task=2);"
        "run_on_dask(job, DaskRun(workers=2, progress=True))"
    )
    process = start("-c", script)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "dashboard: http://127.0.0.1:" in errors
    assert "shards, " in errors
    assert "rows/s" in errors
    assert on_s3.is_exact(FOREST, f"{bucket}/dask")


def test_samples_are_what_they_seem() -> None:
    """The tests above compare with the clear rows: they must differ from block to block."""
    counts = {tuple(es.MultinomialNB().fit(samples.rows(block)).totals_) for block in range(BLOCKS)}
    assert len(counts) == BLOCKS
