"""A worker whose answers break off, wherever they do: they are asked for again; and what is no
answer is said to be none.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import encryptedstats as es
from encryptedstats.workers import connection as connection_module
from encryptedstats.workers.connection import Body, Connection, pinned_context
from error_codes import error

WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"taken": 17}'
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
ELSEWHERE = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def scripted(*answers: bytes) -> Iterator[tuple[str, Callable[[], int]]]:
    """A server that gives one answer a connection and hangs up: its address, and how many were
    asked for.
    """
    asked = 0

    def serve() -> None:
        nonlocal asked
        for answer in answers:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while b"\r\n\r\n" not in connection.recv(65536):
                    pass
                asked += 1
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: asked
        listener.close()


@pytest.mark.parametrize("cut", [0, 10, WHOLE.index(b"{"), len(WHOLE) - 1])
def test_an_answer_that_breaks_off_is_asked_for_again(cut: int) -> None:
    """Before its first byte, in its head, between head and body, in its body."""
    with scripted(WHOLE[:cut], BUSY, WHOLE) as (url, asked):
        assert Connection(url, "token", None, 20.0).json("POST", "/v1/jobs/1/cancel") == {
            "taken": 17
        }
        assert asked() == 3


@pytest.mark.parametrize("cut", [WHOLE.index(b"{"), len(WHOLE)])
def test_an_upload_to_the_storage_is_sent_again_too(cut: int) -> None:
    sent: list[float] = []
    with scripted(WHOLE[: cut - 1], BUSY, WHOLE) as (url, asked):
        Connection("http://127.0.0.1:9", "token", None, 20.0).put_elsewhere(
            f"{url}/signed", Body(b"block", sent.append)
        )
        assert asked() == 3
    assert sum(sent) == 5  # however often it was sent


def test_a_body_says_how_much_of_it_has_left() -> None:
    sent: list[float] = []
    body = Body(bytes(300_000), sent.append)
    assert (b"".join(body), body.headers) == (bytes(300_000), {"Content-Length": "300000"})
    assert len(sent) > 2
    assert sum(sent) == 300_000
    next(iter(body))
    assert sum(sent) == 0


def test_patience_ends_with_what_went_wrong() -> None:
    with (
        scripted(WHOLE[:-1]) as (url, _),
        pytest.raises(es.WorkerError, check=error("unreachable-worker")),
    ):
        Connection(url, "token", None, 0.0).json("GET", "/v1/offers")


def test_the_token_does_not_follow_a_redirection() -> None:
    with (
        scripted(ELSEWHERE) as (url, asked),
        pytest.raises(es.WorkerError, check=error("refused-by-worker", "307")),
    ):
        Connection(url, "token", None, 20.0).json("GET", "/v1/offers")
    assert asked() == 1


def test_a_pin_is_not_lost_within_a_line_to_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS within TLS is not spoken on a socket, where the certificate is looked at."""
    pin = "sha256:" + "0" * 64
    with pytest.raises(ssl.SSLError, match="TLS proxy"):
        pinned_context(pin).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO())
    with scripted(b"", b"") as (proxy, asked):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        for given, through in ((pin, 0), (None, 1)):
            with pytest.raises(es.WorkerError, check=error("unreachable-worker")):
                Connection("https://worker.invalid", "token", given, 0.0).json("GET", "/v1/offers")
            assert asked() == through


def give_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten what bounds the first answer: together less than ten seconds."""
    assert connection_module._FIRST_SECONDS < 10
    assert connection_module._FIRST_PATIENCE + connection_module._CONNECT_SECONDS <= 10
    monkeypatch.setattr(connection_module, "_FIRST_SECONDS", 0.5)
    monkeypatch.setattr(connection_module, "_FIRST_PATIENCE", 0.3)
    monkeypatch.setattr(connection_module, "_CONNECT_SECONDS", 0.3)


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize(
    "call", [("GET", "/v1/offers"), ("POST", "/v1/plans"), ("POST", "/v1/objects/missing")]
)
def test_an_unreachable_worker_is_an_error_within_ten_seconds(
    listens: bool, call: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that nobody listens on, and one that takes connections and never answers.

    Neither is waited for as long as a worker that has answered before.
    """
    give_up_at_once(monkeypatch)
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        if listens:
            line.listen(8)
        url = f"http://127.0.0.1:{line.getsockname()[1]}"
        with pytest.raises(es.WorkerError) as caught:
            Connection(url, "est_x", None, patience=1e6).json(*call)
        assert caught.value.status == 0


def test_a_worker_that_takes_no_connection_is_an_error_within_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As behind a firewall that drops packets: the queue of connections is full, and nobody accepts
    one.
    """
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        line.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(line.getsockname())
        give_up_at_once(monkeypatch)
        url = f"http://127.0.0.1:{line.getsockname()[1]}"
        with pytest.raises(es.WorkerError):
            Connection(url, "est_x", None, patience=1e6).json("POST", "/v1/plans")
        for one in waiting:
            one.close()


def test_a_worker_that_has_answered_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is started anew: nobody listens for longer than a first answer may take."""
    monkeypatch.setattr(connection_module, "_FIRST_PATIENCE", 0.5)
    with scripted(WHOLE) as (url, _):
        connection = Connection(url, "token", None, 3.0)
        assert connection.json("GET", "/v1/offers") == {"taken": 17}
    started = time.monotonic()
    with pytest.raises(es.WorkerError):
        connection.json("GET", "/v1/offers")
    assert time.monotonic() - started > 1
