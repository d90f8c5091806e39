"""The live view of a cluster: shards done, rows a second, time left, and every worker."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from encryptedstats.cluster.items import Done

_PLAIN_SECONDS: Final = 10.0  # between lines where no terminal redraws
_SHOWN_WORKERS: Final = 16


@dataclass
class WorkerView:
    """What a worker did, and when it last reported."""

    shards: int = 0
    rows: int = 0
    seconds: float = 0.0
    last: float = 0.0


@dataclass
class Board:
    """Figures of a running job."""

    shards: int
    rows: int
    items_left: int
    shards_done: int = 0
    rows_done: int = 0
    found: int = 0
    workers: dict[str, WorkerView] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def add(self, done: Done, worker: str) -> None:
        """Add a finished item."""
        self.items_left -= 1
        view = self.workers.setdefault(worker, WorkerView())
        view.last = time.monotonic()
        view.seconds += done.seconds
        if done.is_shard:
            self.shards_done += 1
            self.rows_done += done.rows
            view.shards += 1
            view.rows += done.rows

    @property
    def rows_per_second(self) -> float:
        """Rows of finished shards per second of wall time."""
        return self.rows_done / max(1e-9, time.monotonic() - self.started)

    @property
    def seconds_left(self) -> float | None:
        """The time of the remaining shards at this pace; None before the first."""
        speed = self.rows_per_second
        return (self.rows - self.rows_done) / speed if self.rows_done else None

    def line(self) -> str:
        """Return all figures in one line."""
        left = self.seconds_left
        return (
            f"{self.found + self.shards_done:,} of {self.found + self.shards:,} shards"
            f"{f' ({self.found:,} were there)' if self.found else ''}, "
            f"{self.rows_per_second:,.0f} rows/s, "
            f"{'time left unknown' if left is None else f'about {left:,.0f} s left'}, "
            f"{len(self.workers)} workers"
        )

    def worker_lines(self) -> list[str]:
        """Return one line a worker."""
        now = time.monotonic()
        shown = sorted(self.workers.items())[:_SHOWN_WORKERS]
        lines = [
            f"{name}: {view.shards:,} shards, {view.rows / max(1e-9, view.seconds):,.0f} rows/s, "
            f"heard of {now - view.last:.0f} s ago"
            for name, view in shown
        ]
        more = len(self.workers) - len(shown)
        return [*lines, f"and {more:,} workers more"] if more else lines


@contextmanager
def show_board(board: Board, show: bool | None, stream: TextIO | None = None) -> Iterator[Any]:
    """Yield a function to call after every change. ``show=None``: only on a terminal."""
    stream = stream or sys.stderr
    if not (stream.isatty() if show is None else show):
        yield lambda: None
        return
    live = _live(board) if stream.isatty() else None
    if live is not None:
        with live:
            yield lambda: live.update(_picture(board))
        return
    last = [time.monotonic()]

    def tell() -> None:
        if time.monotonic() - last[0] >= _PLAIN_SECONDS or not board.items_left:
            last[0] = time.monotonic()
            print("\n  ".join([board.line(), *board.worker_lines()]), file=stream, flush=True)

    yield tell


def _live(board: Board) -> Any:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        return None
    return Live(_picture(board), console=Console(stderr=True), transient=True, refresh_per_second=4)


def _picture(board: Board) -> Any:
    from rich.text import Text

    return Text("\n  ".join([board.line(), *board.worker_lines()]))
