"""Running a server: uvicorn, TLS from certificate files, connections that say nothing, and workers
of the queue beside it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from encryptedstats.service.limits import Limits
from encryptedstats.service.server import Settings, make_app

_GRACE_SECONDS: Final = 10  # for requests that are under way when the server is told to stop
_YEAR: Final = 365 * 24 * 3600
_RESTART_SECONDS: Final = 2.0
_CONNECTIONS: Final = 1000  # above which requests are answered with 503
_IDLE_IN_ALL: Final = 700  # of all addresses: the rest is for connections with requests


class Lines:
    """The open connections of a server: limited per address, and idle ones limited in all.

    A connection is idle while no request of it is being received or answered.
    """

    def __init__(self, limits: Limits, proxies: str | None) -> None:
        self._limits = limits
        self._proxies = {one.strip() for one in (proxies or "").split(",")} - {""}
        self._open: Counter[str] = Counter()
        self._idle: dict[asyncio.Transport, str] = {}  # oldest first

    def add(self, transport: asyncio.Transport, address: str) -> bool:
        """Count a new connection, or return False where its address has too many."""
        if self._open[address] >= self._limits.connections and not self._is_proxy(address):
            return False
        self._open[address] += 1
        self.rest(transport, address)
        return True

    def rest(self, transport: asyncio.Transport, address: str) -> None:
        """Note that a connection is idle; close the oldest idle one of the address if it has too
        many.
        """
        self._idle.pop(transport, None)
        self._idle[transport] = address
        same = [one for one, whose in self._idle.items() if whose == address]
        if len(same) > self._limits.idle_connections and not self._is_proxy(address):
            self._close(same[0])
        elif len(self._idle) > _IDLE_IN_ALL:
            self._close(next(iter(self._idle)))

    def wake(self, transport: asyncio.Transport) -> None:
        """Note that a request comes."""
        self._idle.pop(transport, None)

    def remove(self, transport: asyncio.Transport, address: str) -> None:
        """Forget a connection that has ended."""
        self._idle.pop(transport, None)
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    def _is_proxy(self, address: str) -> bool:
        return bool(self._proxies & {address, "*"})

    def _close(self, transport: asyncio.Transport) -> None:
        del self._idle[transport]
        transport.close()


def _impatient(seconds: float, lines: Lines) -> type[H11Protocol]:
    """uvicorn's protocol, which would wait for ever for a request that never comes, or comes a byte
    at a time.
    """

    class Impatient(H11Protocol):
        _alarm: asyncio.TimerHandle | None = None
        _is_counted = False
        _address = ""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._address = str((transport.get_extra_info("peername") or ("?",))[0])
            self._is_counted = lines.add(transport, self._address)
            if not self._is_counted:
                transport.close()
                return
            self._wind()

        def _wind(self) -> None:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self.loop.call_later(seconds, self._hang_up)

        def _hang_up(self) -> None:
            if self._at_work:
                # a request is being answered: how fast its body comes is looked after in bodies
                self._wind()
            else:
                self.transport.close()

        @property
        def _at_work(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._at_work:
                lines.wake(self.transport)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._wind()
            if not self._at_work and not self.transport.is_closing():
                lines.rest(self.transport, self._address)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._alarm is not None:
                self._alarm.cancel()
            if self._is_counted:
                lines.remove(self.transport, self._address)
            super().connection_lost(exc)

    return Impatient


@dataclass(frozen=True)
class Listening:
    """Where a server listens.

    Attributes
    ----------
    host, port : str, int
    certificate, certificate_key : Path, optional
        For TLS.
    proxies : str, optional
        Addresses of proxies that say who asks, with commas between them.
    """

    host: str
    port: int
    certificate: Path | None = None
    certificate_key: Path | None = None
    proxies: str | None = None


def serve(settings: Settings, at: Listening, *, workers: int = 0, device: str = "auto") -> None:
    """Serve until stopped, with ``workers`` workers of the queue beside it."""
    config = uvicorn.Config(
        make_app(settings),
        host=at.host,
        port=at.port,
        http=_impatient(settings.limits.idle_seconds, Lines(settings.limits, at.proxies)),
        ws="none",
        log_level="warning",
        server_header=False,
        ssl_certfile=at.certificate,
        ssl_keyfile=at.certificate_key,
        proxy_headers=at.proxies is not None,
        forwarded_allow_ips=at.proxies,
        timeout_keep_alive=int(settings.limits.idle_seconds) or 1,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        limit_concurrency=_CONNECTIONS,
    )
    with queue_workers(settings.queue, settings.storage, workers, device):
        uvicorn.Server(config).run()


@contextmanager
def queue_workers(queue: str, storage: str, count: int, device: str) -> Iterator[None]:
    """Workers of a queue as processes of their own, for an installation on one machine. One that
    ends is started again.
    """
    command = [
        sys.executable,
        "-m",
        "encryptedstats.cli",
        "worker",
        "run",
        queue,
        "--allow",
        storage,
    ]
    command += ["--wait", str(_YEAR), "--device", device, "--json"]
    stopping = threading.Event()
    running = [
        threading.Thread(target=_keep_running, args=(command, stopping), daemon=True)
        for _ in range(count)
    ]
    for one in running:
        one.start()
    try:
        yield
    finally:
        stopping.set()
        for one in running:
            one.join()


def _keep_running(command: Sequence[str], stopping: threading.Event) -> None:
    while not stopping.is_set():
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        while process.poll() is None and not stopping.wait(0.2):
            pass
        if process.poll() is None:
            process.terminate()
            process.wait()
        elif not stopping.is_set():
            time.sleep(_RESTART_SECONDS)
