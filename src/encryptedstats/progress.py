"""Progress bars: drawn by Rich on terminals where it is installed, silent otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from encryptedstats.words import size_text

BYTES: Final = "bytes"


@contextmanager
def progress_bar(
    label: str, total: int | None, unit: str, show: bool | None = None, done: int = 0
) -> Iterator[Callable[[float], None]]:
    """Yields a function to call with how much was done, beside what was ``done`` before.
    ``show=None``: only on a terminal.
    """
    if show is None:
        show = sys.stderr.isatty()
    bar = _rich_bar() if show else None
    if bar is None:
        yield lambda _: None
        return
    with bar:
        task = bar.add_task(label, total=total, unit=unit, completed=done)
        yield lambda amount: bar.advance(task, amount)


def rate_text(speed: float | None, unit: str) -> str:
    """Return a speed in words, or nothing before it is known.

    >>> rate_text(48210.7, "rows"), rate_text(0.25, "models"), rate_text(9.4e6, "bytes")
    ('48,211 rows/s', '0.25 models/s', '9.4 MB/s')
    """
    if not speed:
        return ""
    if unit == BYTES:
        return f"{size_text(round(speed))}/s"
    return f"{speed:,.0f} {unit}/s" if speed >= 10 else f"{speed:.2g} {unit}/s"


def amount_text(done: float, total: float | None, unit: str) -> str:
    """Return how much is done.

    >>> amount_text(1200, 4000, "rows"), amount_text(7, None, "shards")
    ('1,200 of 4,000 rows', '7 shards')
    >>> amount_text(61_200_000, 395_000_000, "bytes")
    '61.2 of 395.0 MB'
    """
    if unit != BYTES:
        return f"{done:,.0f} {unit}" if total is None else f"{done:,.0f} of {total:,.0f} {unit}"
    if total is None:
        return size_text(round(done))
    number, _, scale = size_text(round(total)).partition(" ")
    so_far, _, same = size_text(round(done)).partition(" ")
    return (
        f"{so_far} of {number} {scale}" if same == scale else f"{so_far} {same} of {number} {scale}"
    )


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text
    except ImportError:
        return None

    class RateColumn(ProgressColumn):
        """Done per second, of late."""

        def render(self, task: Task) -> Text:
            return Text(
                rate_text(task.finished_speed or task.speed, task.fields["unit"]),
                style="progress.data.speed",
            )

    class AmountColumn(ProgressColumn):
        """Done, of all."""

        def render(self, task: Task) -> Text:
            return Text(
                amount_text(task.completed, task.total, task.fields["unit"]),
                style="progress.download",
            )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        AmountColumn(),
        RateColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
