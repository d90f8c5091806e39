"""A progress bar on anything that lasts: drawn by Rich where it is installed and somebody watches, silent otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(label: str, total: int | None, unit: str, show: bool | None = None) -> Iterator[Callable[[int], None]]:
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


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
