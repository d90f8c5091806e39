"""A progress bar on anything that lasts: drawn by Rich where it is installed and somebody watches, silent otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(
    label: str, total: int | None, unit: str, show: bool | None = None
) -> Iterator[Callable[[float], None]]:
    """Yields a function to call with how much was done. ``show=None``: only on a terminal."""
    if show is None:
        show = sys.stderr.isatty()
    bar = _rich_bar() if show else None
    if bar is None:
        yield lambda _: None
        return
    with bar:
        task = bar.add_task(label, total=total, unit=unit)
        yield lambda amount: bar.advance(task, amount)


def rate_text(speed: float | None, unit: str) -> str:
    """How fast it goes: nothing before that is known, and no digits that mean nothing.

    >>> rate_text(48210.7, "rows"), rate_text(0.25, "models"), rate_text(None, "rows")
    ('48,211 rows/s', '0.25 models/s', '')
    """
    if not speed:
        return ""
    return f"{speed:,.0f} {unit}/s" if speed >= 10 else f"{speed:.2g} {unit}/s"


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text
    except ImportError:
        return None

    class Rate(ProgressColumn):
        """Done per second, of late."""

        def render(self, task: Task) -> Text:
            return Text(rate_text(task.finished_speed or task.speed, task.fields["unit"]), style="progress.data.speed")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
