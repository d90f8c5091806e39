"""A worker that says yes to everything, writes down every request, and gives the answers that it
was told to give.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "est_the_token"


class FakeWorker:
    """Its address, and what it was asked; ``answer`` makes the bytes of a result, from the question
    that was asked.
    """

    def __init__(
        self, answer: Callable[[dict[str, Any]], bytes], certificate: Path | None = None
    ) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self.jobs: dict[str, bytes] = {}
        worker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                worker.requests.append((self.command, self.path, len(body)))
                if self.headers.get("authorization") != f"Bearer {TOKEN}":
                    refusal = {
                        "what": "the token",
                        "why": "it is not known here",
                        "cure": "Ask anybody who runs this",
                    }
                    self.say(refusal, 401)
                elif self.path == "/v1/objects/missing":
                    self.say({"sha256": []})
                elif self.path == "/v1/jobs":
                    worker.jobs["job1"] = answer(json.loads(body))
                    self.say(self.status())
                elif self.path.endswith("/result"):
                    self.say(worker.jobs["job1"])
                elif self.path.startswith("/v1/jobs/"):
                    self.say(self.status())
                else:
                    self.say({})

            def status(self) -> dict[str, Any]:
                counts = dict.fromkeys(("shards", "shards_done", "rows", "rows_done", "workers"), 1)
                done = {
                    "id": "job1",
                    "kind": "ask",
                    "state": "done",
                    "made": "2026-11-19T03:45:00+00:00",
                    "table": None,
                    "question": None,
                    "plan": None,
                    "result_bytes": len(worker.jobs["job1"]),
                }
                return {**counts, **done, "core_seconds": 0.0, "failures": []}

            def say(self, what: Any, status: int = 200) -> None:
                content = what if isinstance(what, bytes) else json.dumps(what).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = (
            f"http{'' if certificate is None else 's'}://127.0.0.1:{self._server.server_address[1]}"
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
