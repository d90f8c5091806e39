"""One owner, or a stranger, tries to keep the server from answering others: plans, connections,
guesses.
"""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import service_samples as service
from cluster_samples import FOREST, Hospital

from encryptedstats.service import audit, limits, sessions, tokens
from encryptedstats.storage.objects import open_store

THREADS = 4
AT_ONCE = THREADS + 2  # more than the threads of the server


def plan_request(table: str) -> dict[str, Any]:
    return {"kind": "fit", "table": table, "question": FOREST.name, "params": FOREST.parameters()}


def is_healthy(server: service.Server) -> bool:
    return httpx2.get(f"{server.url}/healthz", timeout=600, trust_env=False).status_code == 200


@contextmanager
def planning(server: service.Server, tokens_: list[str], table: str) -> Iterator[list[Any]]:
    """Ask for plans at the same time, one for each token; those that are held up go on at the end.

    What is asked of the server meanwhile has to be answered by it while they wait.
    """

    def plan(token: str) -> httpx2.Response:
        with server.raw(token) as client:
            return client.post("/v1/plans", json=plan_request(table))

    with ThreadPoolExecutor(len(tokens_)) as pool:
        asked = [pool.submit(plan, token) for token in tokens_]
        try:
            yield asked
        finally:
            server.gate.open()


def test_one_owner_does_not_hold_up_another(tmp_path: Path, hospital: Hospital) -> None:
    with service.Server(tmp_path, threads=THREADS) as server:
        north = server.token("north")
        with server.connect("south") as south:
            table = south.upload(hospital.table)
        with server.connect("north") as worker:
            worker.upload(hospital.table)
        server.gate.hold(1)
        with planning(server, [north] * AT_ONCE, table.name) as asked:
            service.wait_until(lambda: sum(one.done() for one in asked) == AT_ONCE - 1)
            assert is_healthy(server)
            with server.raw(server.token("south")) as client:
                assert client.post("/v1/plans", json=plan_request(table.name)).status_code == 200
            server.gate.open()
            answers = [one.result() for one in asked]
        statuses = sorted(one.status_code for one in answers)
        assert statuses == [200] + [429] * (AT_ONCE - 1)
        late = next(one for one in answers if one.status_code == 429)
        assert int(late.headers["Retry-After"]) > 0
        with server.raw(north) as client:  # a submission takes the same turn, which is free again
            assert client.post("/v1/jobs", json=plan_request(table.name)).status_code == 201


def test_a_submission_and_a_plan_are_one_turn(tmp_path: Path, hospital: Hospital) -> None:
    with service.Server(tmp_path) as server:
        north = server.token("north")
        with server.connect("north") as worker:
            table = worker.upload(hospital.table)
        server.gate.hold(1)
        with planning(server, [north], table.name) as (asked,), server.raw(north) as client:
            server.gate.wait_for(1)
            assert client.post("/v1/jobs", json=plan_request(table.name)).status_code == 429
            assert client.get("/v1/jobs").json() == {"jobs": []}  # what takes no time is answered
            server.gate.open()
            assert asked.result().status_code == 200


def test_health_is_answered_while_all_threads_are_busy(tmp_path: Path, hospital: Hospital) -> None:
    with service.Server(tmp_path, replace(service.LIMITS, makers=64), threads=THREADS) as server:
        owners = [server.token(f"owner {number}") for number in range(AT_ONCE)]
        with server.connect("owner 0") as worker:
            table = worker.upload(hospital.table)
        for number in range(1, AT_ONCE):
            with server.connect(f"owner {number}") as worker:
                worker.upload(hospital.table)
        server.gate.hold(AT_ONCE)
        with planning(server, owners, table.name) as asked:
            server.gate.wait_for(THREADS)
            assert is_healthy(server)
            server.gate.open()
            assert {one.result().status_code for one in asked} == {200}


def test_more_owners_than_makers_wait_for_each_other(tmp_path: Path, hospital: Hospital) -> None:
    with service.Server(tmp_path, replace(service.LIMITS, makers=1)) as server:
        owners = [server.token(name) for name in ("north", "south")]
        for name in ("north", "south"):
            with server.connect(name) as worker:
                table = worker.upload(hospital.table)
        server.gate.hold(1)
        with planning(server, owners, table.name) as asked:
            server.gate.wait_for(1)
            server.gate.open()
            assert [one.result().status_code for one in asked] == [200, 200]


# -- connections
# ------------------------------------------------------------------------------------------------


@contextmanager
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def is_closed(line: socket.socket, within: float = 60.0) -> bool:
    line.settimeout(within)
    try:
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_idle_connections_of_one_address_do_not_shut_others_out(tmp_path: Path) -> None:
    allowed = replace(service.LIMITS, idle_seconds=600.0, idle_connections=20, connections=100_000)
    with many_files(), ExitStack() as open_ones, service.Server(tmp_path, allowed) as server:
        lines = []
        for _ in range(1100):
            lines.append(
                open_ones.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), timeout=600)
                )
            )
        assert is_healthy(server)
        assert all(is_closed(line) for line in lines[:100])  # the oldest went
        assert not any(is_closed(line, within=0.05) for line in lines[-10:])


def test_an_address_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    allowed = replace(service.LIMITS, idle_seconds=600.0, connections=10)
    request = b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx"
    with ExitStack() as open_ones, service.Server(tmp_path, allowed) as server:

        def connect() -> socket.socket:
            # From another address than that of the request which waited for the server.
            here, there = ("127.0.0.2", 0), ("127.0.0.1", server.port)
            return open_ones.enter_context(socket.create_connection(there, 120, here))

        lines = []
        for _ in range(30):  # none is idle: each has begun a request
            lines.append(connect())
            with suppress(ConnectionError):  # it may be closed by then
                lines[-1].sendall(request)
        assert all(is_closed(line) for line in lines[10:])
        assert not any(is_closed(line, within=0.05) for line in lines[:10])
        for line in lines:
            line.close()

        def is_taken() -> bool:
            with connect() as line, suppress(ConnectionError):
                line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                return b" 200 " in line.recv(100)
            return False

        service.wait_until(is_taken)  # those that ended count no more


# -- tokens
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No guess is allowed again, however long the others take: of the clock of limits, in servers
    that are started from now on.
    """
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: 0.0))


@pytest.mark.usefixtures("stopped_clock")
def test_guesses_are_slowed_down_and_good_tokens_are_not(tmp_path: Path) -> None:
    with service.Server(tmp_path, replace(service.LIMITS, failures_per_minute=5)) as server:
        good, operator = server.token("north"), server.token("me", role=tokens.OPERATOR)
        with server.raw("est_guess") as client:
            answers = [client.get("/v1/offers") for _ in range(8)]
        assert [one.status_code for one in answers] == [401] * 5 + [429] * 3
        assert int(answers[-1].headers["Retry-After"]) > 0
        with server.raw(good) as client:  # from the same address
            assert client.get("/v1/offers").status_code == 200
        with httpx2.Client(base_url=server.url, trust_env=False) as page:
            assert page.post("/login", data={"token": operator}).status_code == 303


@pytest.mark.usefixtures("stopped_clock")
def test_failed_logins_are_in_the_log(tmp_path: Path) -> None:
    with service.Server(tmp_path, replace(service.LIMITS, failures_per_minute=4)) as server:
        owner = server.token("north")
        with httpx2.Client(base_url=server.url, trust_env=False) as page:
            assert page.post("/login", data={"token": "est_guess"}).status_code == 401
            assert page.post("/login", data={"token": ""}).status_code == 401
            assert page.post("/login", data={"token": owner}).status_code == 403
        with server.raw("est_another") as client:
            for _ in range(10):
                client.get("/v1/offers")
        path = server.folder / "audit.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert audit.check(path) == len(lines)
        found = [(line["what"], line["role"], line.get("name"), line["address"]) for line in lines]
        here = "127.0.0.1"
        assert found == [
            ("token refused", "operator", None, here),
            ("token refused", "operator", None, here),
            ("token refused", "operator", "north", here),
            ("token refused", "owner", None, here),  # guesses beyond the limit do not fill the log
        ]
        assert "est_" not in path.read_text()


def test_a_session_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    _, holder = tokens.add(store, "me", role=tokens.OPERATOR)
    found = sessions.Sessions(store, tokens.Tokens(store))
    cookie, now = found.begin(holder), time.time()
    monkeypatch.setattr(time, "time", lambda: now + sessions.SECONDS - 60)
    assert found.holder(cookie) == holder
    monkeypatch.setattr(time, "time", lambda: now + sessions.SECONDS + 60)
    assert found.holder(cookie) is None
