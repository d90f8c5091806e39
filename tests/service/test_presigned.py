"""Uploads that go straight to S3 (moto's server): taken when their hash is right, removed when it
is not, and nobody else's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from cluster_samples import FOREST, Hospital

import encryptedstats as es
from encryptedstats.service import tokens
from encryptedstats.storage.objects import open_store
from ports import free_port

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")
pytestmark = pytest.mark.slow  # moto takes seconds to start

ROOT = "s3://worker"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    moto = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before, address = dict(os.environ), f"http://127.0.0.1:{port}"
    os.environ.update(
        AWS_ENDPOINT_URL=address, AWS_ACCESS_KEY_ID="nobody", AWS_SECRET_ACCESS_KEY="nothing",
        AWS_DEFAULT_REGION="us-east-1", no_proxy="127.0.0.1", NO_PROXY="127.0.0.1",
    )  # fmt: skip
    try:
        end = time.monotonic() + 600
        while True:
            try:
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                    f"{address}/moto-api/", timeout=5
                )
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.1)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir(ROOT)
        s3fs.S3FileSystem.clear_instance_cache()  # its threads do not outlive a fork
        yield ROOT
    finally:
        os.environ.clear()
        os.environ.update(before)
        moto.kill()
        moto.wait()


def test_the_story_with_a_bucket(bucket: str, tmp_path: Path, hospital: Hospital) -> None:
    """The server is a process of its own that was not forked: s3fs has threads."""
    place, port = f"{bucket}/storage", free_port()
    token, holder = tokens.add(open_store(place), "north")
    command = [
        *(
            sys.executable,
            "-m",
            "encryptedstats.cli",
            "worker",
            "serve",
            place,
            "--listen",
            f"127.0.0.1:{port}",
        ),
        *("--audit", str(tmp_path / "audit.jsonl")),
    ]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        with es.connect(f"http://127.0.0.1:{port}", token, patience=60) as worker:
            assert worker.offers()["presigned"] is True
            table = worker.upload(hospital.table)
            job = worker.fit(FOREST, table, wait=False)
            es.cluster.work(f"{place}/queue")
            assert hospital.is_exact(FOREST, worker.result(job, tmp_path / "forest.enc"))
            store = open_store(place)
            assert store.sizes(f"owners/{holder.owner}/incoming") == {}

            # what is put there and is something else does not become an object
            data = next((hospital.table / "blocks").iterdir()).read_bytes()
            name = data[-32:].hex()
            worker._connection.json("DELETE", f"/v1/objects/{name}")
            signed = worker._connection.json(
                "POST", f"/v1/objects/{name}/presigned", params={"bytes": len(data)}
            )
            forged = data[:-100] + bytes(100)
            assert httpx2.put(signed["url"], content=forged, trust_env=False).status_code == 200
            with pytest.raises(es.WorkerError, match="another SHA-256 than its name"):
                worker._connection.json(
                    "POST", f"/v1/objects/{name}/arrived", params={"upload": signed["upload"]}
                )
            assert store.sizes(f"owners/{holder.owner}/incoming") == {}
            for upload in (signed["upload"], "../objects", "0" * 32):
                with pytest.raises(es.WorkerError, match="no such upload"):
                    worker._connection.json(
                        "POST", f"/v1/objects/{name}/arrived", params={"upload": upload}
                    )
    finally:
        running.terminate()
        running.wait()
        s3fs.S3FileSystem.clear_instance_cache()
