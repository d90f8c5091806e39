"""What is shown of a cluster at work."""

from __future__ import annotations

import io

import pytest

from encryptedstats.cluster import board as boards
from encryptedstats.cluster.board import Board, show_board
from encryptedstats.cluster.items import Done


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(boards.time, "monotonic", lambda: now[0])
    return now


def shard(name: str, seconds: float = 2.0) -> Done:
    return Done(name, rows=1000, seconds=seconds, is_shard=True)


def test_figures(clock: list[float]) -> None:
    board = Board(shards=4, rows=4000, items_left=6, found=2, started=clock[0])
    assert board.seconds_left is None
    assert "time left unknown" in board.line()
    clock[0] += 5.0
    board.add(shard("a"), "left")
    board.add(shard("b", seconds=4.0), "right")
    board.add(Done("sum", 2000, 1.0, is_shard=False), "right")
    assert board.items_left == 3
    assert board.rows_per_second == 400.0
    assert board.seconds_left == 5.0
    assert board.line() == "4 of 6 shards (2 were there), 400 rows/s, about 5 s left, 2 workers"
    clock[0] += 3.0
    assert board.worker_lines() == [
        "left: 1 shards, 500 rows/s, heard of 3 s ago",
        "right: 1 shards, 200 rows/s, heard of 3 s ago",
    ]


def test_many_workers_are_not_all_listed(clock: list[float]) -> None:
    board = Board(shards=100, rows=100_000, items_left=100)
    for number in range(40):
        board.add(shard(f"{number}"), f"worker {number:02d}")
    lines = board.worker_lines()
    assert len(lines) == 17
    assert lines[-1] == "and 24 workers more"


def test_lines_where_no_terminal_redraws(clock: list[float]) -> None:
    stream = io.StringIO()
    board = Board(shards=2, rows=2000, items_left=2, started=clock[0])
    with show_board(board, True, stream) as tell:
        clock[0] += 1.0
        board.add(shard("a"), "w")
        tell()
        assert not stream.getvalue()  # a line every ten seconds is enough
        clock[0] += 10.0
        tell()
        assert stream.getvalue().startswith("1 of 2 shards, 91 rows/s")
        board.add(shard("b"), "w")
        tell()
    assert "2 of 2 shards" in stream.getvalue()


@pytest.mark.parametrize("show", [None, False])
def test_silence(show: bool | None) -> None:
    stream = io.StringIO()
    with show_board(Board(1, 1000, 1), show, stream) as tell:
        tell()
    assert not stream.getvalue()


def test_a_terminal_is_drawn_on(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(1, 1000, 1)
    with show_board(board, None, Terminal()) as tell:
        board.add(shard("a"), "w")
        tell()
    assert "\x1b" not in capsys.readouterr().out  # it goes to stderr, or nowhere
