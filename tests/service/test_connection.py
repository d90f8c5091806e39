"""A worker whose answers break off, wherever they do: they are asked for again; and what is no answer is said to be none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import encryptedstats as es
from encryptedstats.service.connection import Connection

WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"taken": 17}'
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
ELSEWHERE = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def scripted(*answers: bytes) -> Iterator[tuple[str, Callable[[], int]]]:
    """A server that gives one answer a connection and hangs up: its address, and how many were asked for."""
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
        assert Connection(url, "token", None, 20.0).json("POST", "/v1/jobs/1/cancel") == {"taken": 17}
        assert asked() == 3


@pytest.mark.parametrize("cut", [WHOLE.index(b"{"), len(WHOLE)])
def test_an_upload_to_the_storage_is_sent_again_too(cut: int) -> None:
    with scripted(WHOLE[: cut - 1], BUSY, WHOLE) as (url, asked):
        Connection("http://127.0.0.1:9", "token", None, 20.0).put_elsewhere(f"{url}/signed", b"block")
        assert asked() == 3


def test_patience_ends_with_what_went_wrong() -> None:
    with (
        scripted(WHOLE[:-1]) as (url, _),
        pytest.raises(es.WorkerError, match=r"cannot be reached .*complete message body"),
    ):
        Connection(url, "token", None, 0.0).json("GET", "/v1/offers")


def test_the_token_does_not_follow_a_redirection() -> None:
    with scripted(ELSEWHERE) as (url, asked), pytest.raises(es.WorkerError, match="answered 307"):
        Connection(url, "token", None, 20.0).json("GET", "/v1/offers")
    assert asked() == 1
