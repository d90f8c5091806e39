"""The proxy of packaging/service/nginx.conf in front of the program itself: nginx speaks
TLS, and all else goes on.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, Hospital

import encryptedstats as es
from certificates import pin_of
from encryptedstats.service import tokens
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.blocks import BLOCK_KIND
from ports import free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CONFIGURATION = Path(__file__).parents[2] / "packaging/service/nginx.conf"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed: apt-get install nginx-light"),
]


@dataclass
class Site:
    """A worker behind a proxy."""

    folder: Path
    url: str
    pin: str
    start: Callable[[], None]
    stop: Callable[[], None]

    def token(self, name: str, role: str = tokens.OWNER) -> str:
        return tokens.add(open_store(self.folder / "storage"), name, role=role)[0]

    def connect(self, name: str) -> es.Worker:
        return es.connect(self.url, self.token(name), pin=self.pin)

    def raw(self, token: str, address: str = "127.0.0.1") -> httpx2.Client:
        """Somebody at an address of this machine."""
        transport = httpx2.HTTPTransport(local_address=address, verify=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.Client(
            base_url=self.url, headers=headers, transport=transport, trust_env=False, timeout=600
        )


def documented(port: int, behind: int, certificate: Path) -> str:
    """The configuration with other ports and another certificate."""
    text = CONFIGURATION.read_text()
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/worker.pem", str(certificate)),
        ("/etc/ssl/worker.key", str(certificate)),
        ("http://127.0.0.1:8443", f"http://127.0.0.1:{behind}"),
        ("client_header_timeout 30s", "client_header_timeout 2s"),
        ("client_body_timeout 30s", "client_body_timeout 2s"),
        ("limit_conn addresses 64", "limit_conn addresses 8"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    port, behind = free_port(), free_port()
    places = "".join(
        f"{name}_temp_path {folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user}daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}{documented(port, behind, certificate)}}}\n"
    )
    command = [
        sys.executable,
        "-m",
        "encryptedstats.cli",
        "worker",
        "serve",
        str(folder / "storage"),
    ]
    command += [
        "--listen",
        f"127.0.0.1:{behind}",
        "--behind-proxy",
        "127.0.0.1",
        "--workers",
        "1",
        "--limits",
        "largest=0.1",
    ]
    running: list[subprocess.Popen[bytes]] = []

    def stop() -> None:
        program = running.pop()
        program.terminate()
        program.wait(30)

    def start() -> None:
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    start()
    assert NGINX is not None
    proxy = subprocess.Popen(
        [NGINX, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    )
    try:
        made = Site(folder, f"https://127.0.0.1:{port}", pin_of(certificate), start, stop)
        _until_it_answers(made)
        yield made
    finally:
        proxy.terminate()
        proxy.wait(30)
        if running:
            stop()


def _until_it_answers(site: Site) -> None:
    end = time.monotonic() + 600
    with site.raw("") as client:
        while True:
            try:
                if client.get("/healthz").status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            assert time.monotonic() < end, (site.folder / "error.log").read_text()
            time.sleep(0.1)


def test_the_whole_story(site: Site, hospital: Hospital, tmp_path: Path) -> None:
    with site.connect("north") as worker:
        table = worker.upload(hospital.table)
        assert worker.plan(FOREST, table)["rows"] == BLOCKS * ROWS
        job = worker.fit(FOREST, table, rows_per_shard=ROWS, wait=False)
        status = job.wait(progress=False)
        assert status.rows_done == BLOCKS * ROWS
        assert hospital.is_exact(FOREST, worker.result(job, tmp_path / "forest.enc"))
    with pytest.raises(es.WorkerError, match="is not the pinned one"):
        es.connect(site.url, "est_x", pin="sha256:" + "0" * 64, patience=5).offers()


def test_events_come_as_they_happen(site: Site, hospital: Hospital, tmp_path: Path) -> None:
    """Of a job that nobody works on, the first event is there at once, and not when the stream has
    ended.
    """
    token = site.token("watcher")
    with es.connect(site.url, token, pin=site.pin) as worker:
        table = worker.upload(hospital.table)
        job = worker.fit(
            es.CompletelyRandomForest(n_trees=64, depth=3, random_state=8),
            table,
            rows_per_shard=ROWS,
            wait=False,
        )
        with site.raw(token) as client, client.stream("GET", f"/v1/jobs/{job.id}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            times = [time.monotonic() for line in stream.iter_lines() if line.startswith("data:")]
        assert job.status().state == "done"
    assert len(times) > 1
    assert times[-1] - times[0] > 0.3  # the first one did not wait for the last


def test_large_bodies_go_through_and_come_back(site: Site) -> None:
    fields = {"id": "0" * 32, "rows": 1, "columns": 1, "seal": ""}
    data = container.to_bytes(
        Container(BLOCK_KIND, "", "", fields, {"residues": os.urandom(48 << 20)})
    )
    name = data[-32:].hex()
    with site.connect("large") as worker, site.raw(site.token("large")) as client:
        worker._connection.send("PUT", f"/v1/objects/{name}", content=data)
        assert client.get(f"/v1/objects/{name}").content == data
        rest = client.get(f"/v1/objects/{name}", headers={"Range": "bytes=1000000-"})
        assert (rest.status_code, rest.content == data[1000000:]) == (206, True)
        assert client.head(f"/v1/objects/{name}").headers["content-length"] == str(len(data))
    temporary = [
        path
        for kind in ("client_body", "proxy")
        for path in (site.folder / kind).rglob("*")
        if path.is_file()
    ]
    assert temporary == []  # nothing is collected on the disk of the proxy


def test_refusals_are_the_servers_own(site: Site, hospital: Hospital) -> None:
    """Not those of a proxy that saw a connection close."""
    block = next((hospital.table / "blocks").iterdir()).read_bytes()
    with site.raw(site.token("careless")) as client:
        for content, status, why in (
            (b"x" * (120 << 20), 413, "over the limit of 107,374,182"),
            (block[:-1] + bytes([block[-1] ^ 1]), 422, "another SHA-256"),
        ):
            answer = client.put(f"/v1/objects/{block[-32:].hex()}", content=content)
            assert answer.status_code == status, answer.text
            assert why in answer.json()["why"]
        assert client.put(f"/v1/objects/{block[-32:].hex()}", content=block).status_code == 201


def test_slow_and_silent_clients_are_cut_off_by_the_proxy(site: Site) -> None:
    host, port = site.url.removeprefix("https://").split(":")
    context = ssl._create_unverified_context()
    head = "PUT /v1/objects/{} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
    for request in ("GET /healthz HTTP/1.1\r\n", head.format("0" * 64) + "\r\n0"):
        began = time.monotonic()
        with (
            socket.create_connection((host, int(port)), timeout=20) as line,
            context.wrap_socket(line) as secured,
        ):
            secured.sendall(request.encode())
            answer = secured.recv(1000)
            assert b" 200 " not in answer, answer
        assert time.monotonic() - began < 10


def test_an_address_has_so_many_requests_at_once(site: Site, hospital: Hospital) -> None:
    token = site.token("hasty")
    with es.connect(site.url, token, pin=site.pin) as worker, ExitStack() as stack:
        table = worker.upload(hospital.table)
        site.stop()  # so that nobody works on the job, and its events do not end
        site.start()
        _until_it_answers(site)
        job = worker.fit(FOREST, table, rows_per_shard=ROWS, wait=False)
        codes = []
        for _ in range(12):
            client = stack.enter_context(site.raw(token))
            stream = client.stream("GET", f"/v1/jobs/{job.id}/events")
            codes.append(stack.enter_context(stream).status_code)
        assert codes.count(429) >= 2, codes
        assert codes[0] == 200


def test_who_guesses_tokens_waits_and_nobody_else_does(site: Site) -> None:
    """All come from the proxy: it says who asks, and takes nobody's own word for it."""
    with (
        site.raw("est_wrong", "127.0.0.2") as guesser,
        site.raw(site.token("honest"), "127.0.0.3") as honest,
    ):
        codes = [
            guesser.get("/v1/offers", headers={"X-Forwarded-For": f"10.0.0.{number}"}).status_code
            for number in range(40)
        ]
        assert codes[0] == 401
        assert codes[-1] == 429
        assert honest.get("/v1/offers").status_code == 200


def test_the_page_behind_it(site: Site) -> None:
    form = {"token": site.token("the operator", tokens.OPERATOR)}
    with site.raw("") as client:
        assert (
            client.post(
                "/login", data=form, headers={"Origin": "https://elsewhere.example"}
            ).status_code
            == 403
        )
        answer = client.post("/login", data=form, headers={"Origin": site.url})
        assert answer.status_code == 303, answer.text
        assert "secure" in answer.headers["set-cookie"].lower()
        assert answer.headers["location"] == "/"
        assert "All jobs" in client.get("/").text
        assert "strict-transport" not in client.get("/").headers


def test_a_server_that_is_restarted(site: Site, hospital: Hospital, tmp_path: Path) -> None:
    """The proxy says 502 meanwhile, and the client asks again."""
    with site.connect("patient") as worker:
        table = worker.upload(hospital.table)
        site.stop()
        with site.raw("") as client:
            assert client.get("/healthz").status_code == 502
        site.start()
        job = worker.fit(es.MultinomialNB(), table, wait=False)
        assert hospital.is_exact(es.MultinomialNB(), worker.result(job, tmp_path / "model.enc"))
