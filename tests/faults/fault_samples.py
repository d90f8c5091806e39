"""Processes that are killed or stopped at random moments, and a proxy before an imitation of S3
that breaks answers on purpose.

Everything stays on 127.0.0.1. Moments and faults come from ``ENCRYPTEDSTATS_FAULT_SEED``, 0 by
default.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SEED = int(os.environ.get("ENCRYPTEDSTATS_FAULT_SEED", "0"))
KINDS = ("503", "reset", "altered", "cut", "pause")


def chance(name: str) -> random.Random:
    """Chance that is the same in every run with the same seed."""
    return random.Random(f"{SEED} {name}")


def fork(act: Callable[[], Any]) -> int:
    """Do something in a process of its own: exits with 0 when it is done, with 1 when it raised."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        act()
        code = 0
    except BaseException:
        if os.environ.get("ENCRYPTEDSTATS_FAULT_DEBUG"):
            traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int, timeout: float = 600.0) -> int:
    """The exit code of a process, or minus the signal that ended it."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("a process did not end")


def killed(act: Callable[[], Any], after: float) -> int:
    """Do something in a process of its own that is killed after some seconds, if it has not ended
    by then.
    """
    child = fork(act)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    return ended(child)


def duration(act: Callable[[], Any]) -> float:
    """How long it takes in a process of its own."""
    started = time.monotonic()
    assert ended(fork(act)) == 0
    return time.monotonic() - started


def unfinished_files(folder: Path) -> list[str]:
    """Files that nobody but a process under way should have."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.name.startswith(".") or path.name.endswith((".tmp", ".lease"))
    ]


class Proxy:
    """Hands requests on to a server; while there are ``faults`` left, some answers are broken, by
    the share ``rate``.
    """

    def __init__(self, port: int) -> None:
        self.upstream, self.rate, self.faults, self.kinds = port, 0.0, 0, KINDS
        self.chance, self.broken = chance("proxy"), []
        self._guard = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # clients wait for "100 Continue" before they send a body

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

            def answer(self) -> None:
                proxy.answer(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def _fault(self) -> str | None:
        with self._guard:
            if not self.faults or self.chance.random() >= self.rate:
                return None
            self.faults -= 1
            kind = self.chance.choice(self.kinds)
            self.broken.append(kind)
            return kind

    def break_next(self, faults: int, rate: float = 1.0, kinds: tuple[str, ...] = KINDS) -> None:
        """Break so many answers from now on."""
        with self._guard:
            self.faults, self.rate, self.kinds = faults, rate, kinds

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        """One request and its answer, maybe broken on the way back: the server may have done what
        was asked.
        """
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        fault = self._fault()
        if fault == "503":
            asked.send_response(503)
            asked.send_header("Content-Length", "0")
            asked.end_headers()
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        upstream.request(asked.command, asked.path, body, dict(asked.headers))
        answer = upstream.getresponse()
        data = answer.read()
        if fault == "reset":
            asked.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            asked.connection.close()
            raise ConnectionResetError
        if fault == "pause":
            time.sleep(1.0)
        sent = data
        if fault == "altered" and data:
            at = self.chance.randrange(len(data))
            sent = data[:at] + bytes([data[at] ^ (1 << self.chance.randrange(8))]) + data[at + 1 :]
        if fault == "cut":
            sent = data[: len(data) // 2]
        asked.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                asked.send_header(name, value)
        length = answer.getheader("Content-Length") if asked.command == "HEAD" else str(len(data))
        asked.send_header("Content-Length", length or "0")
        asked.send_header("Connection", "close")
        asked.end_headers()
        asked.close_connection = True
        if asked.command != "HEAD":
            asked.wfile.write(sent)
        upstream.close()

    def close(self) -> None:
        """Stop."""
        self.server.shutdown()
        self.server.server_close()
