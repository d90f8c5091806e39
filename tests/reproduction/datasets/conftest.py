"""A data folder where there is one, and a UCI of our own on 127.0.0.1: no test reaches the
internet.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

Answer = Callable[[BaseHTTPRequestHandler], None]

_FOLDER = os.environ.get("ENCRYPTEDSTATS_DATA", "")


@pytest.fixture
def data_folder() -> Path:
    if not _FOLDER or not Path(_FOLDER).is_dir():
        pytest.skip(
            "the data sets are not here: set ENCRYPTEDSTATS_DATA to the folder that holds them"
        )
    return Path(_FOLDER)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no data folder, and a UCI at a closed port; returns the cache's
    data folder.
    """
    monkeypatch.delenv("ENCRYPTEDSTATS_DATA", raising=False)
    monkeypatch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENCRYPTEDSTATS_UCI", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "datasets"


class FakeUCI:
    """Serves what is put into ``pages`` (path to body, or to a function that answers), notes
    requests.
    """

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.release = (
            threading.Event()
        )  # lets a stalled answer end, so that the server can be shut down

    def respond(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        page = self.pages.get(request.path)
        if page is None:
            request.send_error(404)
        elif callable(page):
            page(request)
        else:
            request.send_response(200)
            request.send_header("Content-Length", str(len(page)))
            request.end_headers()
            request.wfile.write(page)


@pytest.fixture
def uci(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeUCI]:
    fake = FakeUCI()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.respond(self)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv(
            "ENCRYPTEDSTATS_UCI", f"http://127.0.0.1:{server.server_port}/static/public/"
        )
        try:
            yield fake
        finally:
            fake.release.set()
            server.shutdown()
            thread.join()
