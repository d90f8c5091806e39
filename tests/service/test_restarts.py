"""Servers that are killed in the middle of every kind of request, run twice, and asked by many
owners at once: nothing is lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import cluster_samples as samples
import pytest
import service_samples as service
from cluster_samples import FOREST, Hospital

import encryptedstats as es
from encryptedstats.service import audit
from encryptedstats.storage.container import Container, to_bytes
from encryptedstats.tables.blocks import BLOCK_KIND
from encryptedstats.workers import connection


class Flaky:
    """A server that is killed whenever a request of some kind comes, a few times, and started
    again.
    """

    def __init__(
        self, server: service.Server, worker: es.Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.server, self.kinds = server, set[str]()
        client = worker._connection._client
        send = client.send

        def cut(request: Any, **options: Any) -> Any:
            kind = (
                f"{request.method} "
                f"{'/'.join(p for p in request.url.path.split('/') if len(p) < 32)}"
            )
            if kind not in self.kinds:
                self.kinds.add(kind)
                killer = threading.Timer(0.005, self.restart)
                killer.start()
                try:
                    return send(request, **options)
                finally:
                    killer.join()
            return send(request, **options)

        monkeypatch.setattr(client, "send", cut)

    def restart(self) -> None:
        self.server.kill()
        self.server.start()


def test_a_restart_in_the_middle_of_every_kind_of_request_loses_nothing(
    tmp_path: Path, hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        ExitStack() as later,
        service.Server(tmp_path) as server,
        server.connect("north", patience=600) as worker,
    ):
        monkeypatch.setattr(connection, "_FIRST_PATIENCE", 600.0)
        flaky = Flaky(server, worker, monkeypatch)
        worker.offers()
        table = worker.upload(hospital.table)
        worker.plan(FOREST, table)
        job = worker.fit(FOREST, table, wait=False)
        job.cancel()
        job = worker.fit(FOREST, table, wait=False)
        events = job.events()
        assert next(events).state != "done"
        later.enter_context(server.worker())  # so that the stream of events is opened
        assert [status.state for status in events][-1] == "done"
        assert hospital.is_exact(FOREST, worker.result(job, tmp_path / "forest.enc"))
        assert [one.id for one in worker.jobs()] == [job.id]
        assert {
            "POST /v1/objects/missing",
            "PUT /v1/objects",
            "PUT /v1/tables",
            "POST /v1/plans",
            "POST /v1/jobs",
        } <= flaky.kinds
        assert {
            "GET /v1/jobs/events",
            "GET /v1/jobs/result",
            "POST /v1/jobs/cancel",
            "GET /v1/jobs",
        } <= flaky.kinds
        assert not [
            name for name in server.objects() if name.startswith("spool/")
        ]  # swept at the start
        assert audit.check(tmp_path / "audit.jsonl") > 0


def test_two_servers_of_one_storage_are_one(tmp_path: Path, hospital: Hospital) -> None:
    with service.Server(tmp_path) as first, service.Server(tmp_path) as second:
        token = first.token("north")
        with es.connect(first.url, token) as here, es.connect(second.url, token) as there:
            table = here.upload(hospital.table)
            job = there.fit(FOREST, table.name, wait=False)
            assert here.fit(FOREST, table, wait=False).id == job.id
            es.cluster.work(tmp_path / "storage/queue")
            assert hospital.is_exact(FOREST, here.result(job, tmp_path / "forest.enc"))
        assert audit.check(tmp_path / "audit.jsonl") > 0


def memory_of(pid: int) -> int:
    """Bytes of memory that are a process's own, at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def many_owners(folder: Path, count: int, hospital: Hospital) -> tuple[int, int]:
    """So many owners who upload and fit at once: the memory of the server before and after."""
    with (
        service.Server(folder, replace(service.LIMITS, idle_seconds=60.0)) as server,
        server.worker(),
        server.worker(),
    ):
        tokens = [server.token(f"owner {number}") for number in range(count)]
        before = memory_of(server.pid)

        def story(number: int) -> bool:
            with es.connect(server.url, tokens[number], patience=300) as worker:
                table = worker.upload(hospital.table, progress=False)
                model = replace_seed(number)
                out = worker.fit(model, table, folder / f"{number}.enc", progress=False)
                return hospital.is_exact(model, out)

        with ThreadPoolExecutor(count) as pool:
            exact = list(pool.map(story, range(count)))
        assert exact == [True] * count
        after = memory_of(server.pid)
        assert audit.check(folder / "audit.jsonl") == count * (
            len(list((hospital.table / "blocks").iterdir())) + 5
        )
        return before, after


def replace_seed(number: int) -> Any:
    return es.CompletelyRandomForest(n_trees=2, depth=2, random_state=number)


def test_several_owners_at_once(tmp_path: Path, hospital: Hospital) -> None:
    many_owners(tmp_path, 4, hospital)


@pytest.mark.slow
def test_fifty_owners_at_once(tmp_path: Path, hospital: Hospital) -> None:
    before, after = many_owners(tmp_path, 50, hospital)
    assert after - before < 400 << 20


@pytest.mark.slow
def test_memory_does_not_grow_with_what_is_sent(tmp_path: Path) -> None:
    """Objects of 64 MB, eight at a time: they are never in memory whole."""
    limits = replace(service.LIMITS, object_bytes=1 << 30, quota_bytes=8 << 30, idle_seconds=60.0)
    with service.Server(tmp_path, limits) as server, server.connect("north") as worker:
        objects = []
        for number in range(8):
            residues = {"residues": os.urandom(64 << 20)}
            data = to_bytes(Container(BLOCK_KIND, "", "", {"rows": number}, residues))
            objects.append((data[-32:].hex(), data))
        before = memory_of(server.pid)
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda one: worker._connection.send(
                        "PUT", f"/v1/objects/{one[0]}", content=one[1]
                    ),
                    objects,
                )
            )
        assert memory_of(server.pid) - before < 128 << 20


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_time_and_nothing_else(
    tmp_path: Path, hospital: Hospital
) -> None:
    with service.Server(tmp_path) as server, server.connect("north") as worker:
        job = worker.fit(FOREST, worker.upload(hospital.table), wait=False)
        slow = samples.start_worker(tmp_path / "storage/queue", slow=30.0, lease=0.3)
        _until(lambda: job.status().state == "running")
        slow.kill()
        slow.poll()
        with server.worker():
            assert hospital.is_exact(FOREST, worker.result(job, tmp_path / "forest.enc"))


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
