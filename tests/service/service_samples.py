"""Servers as processes: forked, since to start Python and import everything again takes far longer
than what these tests do.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from anyio._backends import _asyncio

import encryptedstats as es
from encryptedstats.service import tokens
from encryptedstats.service.limits import Limits
from encryptedstats.storage.objects import open_store
from ports import free_port

LIMITS = Limits(
    object_bytes=8 << 20,
    quota_bytes=64 << 20,
    idle_seconds=60.0,  # a kept connection must not end while a test uses it
    requests_per_second=1000.0,
    burst=4000,
    failures_per_minute=1e4,
)


def _limit_threads(count: int) -> None:
    """Give the server of this process fewer threads than anyio's 40, so that few requests fill
    them.

    The limit is made in the event loop, which a test does not reach: hence the backend is patched.
    """
    limiter = _asyncio.CapacityLimiter

    def make(tokens: float) -> Any:
        return limiter(count if tokens == 40 else tokens)

    _asyncio.CapacityLimiter = make  # type: ignore[misc, assignment]


class Gate:
    """Hold up plans, submissions and uploads of keys in a server until a test lets them go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = folder / "gate-is-open"

    def hold(self, calls: int) -> None:
        """Hold up so many of the calls that come from now on."""
        for number in range(calls):
            (self._folder / f"gate-{number}.free").touch()

    def pass_through(self) -> None:
        for place in sorted(self._folder.glob("gate-*.free")):
            with suppress(FileNotFoundError):  # another thread has taken it
                place.rename(place.with_suffix(".taken"))
                while not self._open.exists():
                    time.sleep(0.02)
                return

    def wait_for(self, calls: int) -> None:
        """Wait until so many are held up."""
        wait_until(lambda: len(list(self._folder.glob("gate-*.taken"))) >= calls)

    def open(self) -> None:
        self._open.touch()


def wait_until(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    """Wait for something that comes soon, or later on a busy machine."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


class Server:
    """A server of a storage in a process of its own, which can be killed and started again at the
    same port.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits = LIMITS,
        *,
        certificate: Path | None = None,
        threads: int = 40,
    ) -> None:
        self.folder, self.limits, self.port = folder, limits, free_port()
        self.certificate = certificate
        self.gate = Gate(folder)
        self.threads = threads  # of the server, as anyio has them
        self.pid = 0

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    @property
    def store(self) -> Any:
        return open_store(self.folder / "storage")

    def start(self) -> None:
        from encryptedstats.service import jobs, making, running, server  # noqa: F401  imported before the fork

        settings = server.Settings(
            str(self.folder / "storage"),
            str(self.folder / "storage/queue"),
            self.folder / "audit.jsonl",
            "test",
            self.limits,
        )
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                # A process that imports everything again takes seconds: the test of the program
                # itself has it.
                gate = self.gate

                def make(self: Any, function: Any, *given: Any) -> Any:
                    gate.pass_through()
                    return function(*given)

                _limit_threads(self.threads)
                jobs.Maker.__call__ = make  # type: ignore[method-assign]  # in this process
                files = (self.certificate, self.certificate)
                running.serve(settings, running.Listening("127.0.0.1", self.port, *files))
                code = 0
            finally:
                os._exit(code)
        self.wait()

    def wait(self) -> None:
        end = time.monotonic() + 120
        while True:
            try:
                httpx2.get(f"{self.url}/healthz", timeout=5, trust_env=False, verify=False)
                return
            except httpx2.TransportError:
                assert time.monotonic() < end, "the server does not start"
                time.sleep(0.05)

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.pid:
            os.kill(self.pid, number)
            os.waitpid(self.pid, 0)
            self.pid = 0

    @contextmanager
    def connected(self, first: bytes) -> Iterator[socket.socket]:
        """Connect and send something while the server stands still: however busy the machine is, it
        finds both at once, and does not take this for a connection where nothing comes.
        """
        os.kill(self.pid, signal.SIGSTOP)
        try:
            line = socket.create_connection(("127.0.0.1", self.port), timeout=600)
            line.sendall(first)
        finally:
            os.kill(self.pid, signal.SIGCONT)
        with line:
            yield line

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def token(self, name: str, **options: Any) -> str:
        return tokens.add(self.store, name, **options)[0]

    def connect(self, name: str, **options: Any) -> es.Worker:
        return es.connect(self.url, self.token(name), **options)

    def raw(self, token: str) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=600,
        )

    def objects(self) -> list[str]:
        """All files that lie in the storage, temporary ones too, but for tokens."""
        root = self.folder / "storage"
        found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        return sorted(name for name in found if not name.startswith(("tokens/", "sessions/")))

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A worker of the queue, in a forked process."""
        pid = os.fork()
        if pid == 0:
            try:
                os.environ["ENCRYPTEDSTATS_ALLOW"] = str(self.folder)
                while True:
                    try:
                        es.cluster.work(self.folder / "storage/queue", lease=0.3, wait=3600)
                    except Exception:
                        time.sleep(0.1)
            finally:
                os._exit(1)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def slowly(server: Server, parts: list[bytes], pause: float) -> bytes:
    """What a server answers to bytes that come one part after the other."""
    with server.connected(parts[0]) as line:
        stopped = threading.Event()

        def send() -> None:
            for part in parts[1:]:
                if stopped.wait(pause):
                    return
                try:
                    line.sendall(part)
                except OSError:
                    return

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        answer = b""
        try:
            while data := line.recv(65536):
                answer += data
                if b"\r\n\r\n" in answer:
                    break
        except ConnectionError:
            pass
        finally:
            stopped.set()
        return answer
