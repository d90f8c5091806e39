"""Running a server: uvicorn, TLS from certificate files, connections that say nothing, and workers of the queue beside it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from encryptedstats.service.server import Settings, make_app

_GRACE_SECONDS: Final = 10  # for requests that are under way when the server is told to stop
_YEAR: Final = 365 * 24 * 3600
_RESTART_SECONDS: Final = 2.0


def _impatient(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol, which would wait for ever for a request that never comes, or comes a byte at a time."""

    class Impatient(H11Protocol):
        _alarm: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wind()

        def _wind(self) -> None:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self.loop.call_later(seconds, self._hang_up)

        def _hang_up(self) -> None:
            at_work = self.cycle is not None and not self.cycle.response_complete
            if at_work:
                self._wind()  # a request is being answered: how fast its body comes is looked after in bodies
            else:
                self.transport.close()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._wind()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._alarm is not None:
                self._alarm.cancel()
            super().connection_lost(exc)

    return Impatient


def serve(
    settings: Settings,
    host: str,
    port: int,
    *,
    certificate: Path | None = None,
    certificate_key: Path | None = None,
    proxies: str | None = None,
    workers: int = 0,
    device: str = "auto",
) -> None:
    """Serve until stopped, with so many workers of the queue beside it."""
    config = uvicorn.Config(
        make_app(settings),
        host=host,
        port=port,
        http=_impatient(settings.limits.idle_seconds),
        ws="none",
        log_level="warning",
        server_header=False,
        ssl_certfile=certificate,
        ssl_keyfile=certificate_key,
        proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies,
        timeout_keep_alive=int(settings.limits.idle_seconds) or 1,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        limit_concurrency=1000,
    )
    with queue_workers(settings.queue, settings.storage, workers, device):
        uvicorn.Server(config).run()


@contextmanager
def queue_workers(queue: str, storage: str, count: int, device: str) -> Iterator[None]:
    """Workers of a queue as processes of their own, for an installation on one machine. One that ends is started again."""
    command = [sys.executable, "-m", "encryptedstats.cli", "worker", "--queue", queue, "--allow", storage]
    command += ["--wait", str(_YEAR), "--device", device, "--json"]
    stopping = threading.Event()
    running = [threading.Thread(target=_keep_running, args=(command, stopping), daemon=True) for _ in range(count)]
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
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        while process.poll() is None and not stopping.wait(0.2):
            pass
        if process.poll() is None:
            process.terminate()
            process.wait()
        elif not stopping.is_set():
            time.sleep(_RESTART_SECONDS)
