"""DataFrames on the screen: numbers in line, sums in the margin, and columns that do not fit below
the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from encryptedstats.cli._console import printable

_MOST_ROWS: Final = 60
_GAP: Final = 2
_BAR: Final = 24
_LONGEST_LABEL: Final = 40
ALL: Final = "all"


@dataclass(frozen=True)
class _Cells:
    """A column as it is printed."""

    name: str
    cells: list[str]


def plain_table() -> Table:
    """A table without lines, the headings dim."""
    return Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")


def frame_view(frame: pd.DataFrame, width: int, margin: str | None = None) -> RenderableType:
    """A DataFrame, index and all, in as many tables below each other as the width asks for;
    ``margin`` is shown dim.
    """
    shown, hidden = _shown_rows(len(frame))
    labels = [label_text(frame.index[row]) for row in shown]
    columns = [  # by position: labels that differ may read the same
        _Cells(label_text(name), [number_text(frame.iloc[row, position]) for row in shown])
        for position, name in enumerate(frame.columns)
    ]
    head = _heading(frame)
    room = width - _GAP - max(map(len, [head, *labels]))
    tables: list[RenderableType] = []
    for side_by_side in _fitting(columns, room):
        if tables:
            tables.append(Text())
        tables.append(_table(head, labels, side_by_side, margin, broken=bool(hidden)))
    if hidden:
        tables.append(
            Text(f"{hidden:,} rows are not shown: -o FILE writes all of them", style="dim")
        )
    return Group(*tables)


def counts_view(frame: pd.DataFrame, width: int) -> RenderableType:
    """Counts: of one variable with their shares, of two with the sums of rows and columns."""
    if len(frame.columns) > 1:
        return frame_view(*_with_margins(frame, width))
    counts = frame["count"].tolist()
    total, largest = sum(counts), max(*counts, 1)
    table = plain_table()
    table.add_column(Text(_heading(frame)), style="bold", no_wrap=True)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    shown, hidden = _shown_rows(len(counts))
    for position, row in enumerate(shown):
        if hidden and position == len(shown) // 2:
            table.add_row("...", "...", "...", "")
        share = f"{100 * counts[row] / total:.1f} %" if total else ""
        bar = Text("█" * round(_BAR * counts[row] / largest), style="blue")
        table.add_row(Text(label_text(frame.index[row])), f"{counts[row]:,}", share, bar)
    table.add_row(ALL, f"{total:,}", "", "", style="dim")
    if not hidden:
        return table
    return Group(
        table, Text(f"{hidden:,} rows are not shown: -o FILE writes all of them", style="dim")
    )


def moments_view(frame: pd.DataFrame, width: int) -> RenderableType:
    """Moments: a line for each variable, then the covariances of several."""
    single = frame.loc[["count", "sum", "mean", "var", "std"]].T
    single["count"] = single["count"].astype(int)
    parts: list[RenderableType] = [frame_view(single.rename_axis("variable"), width)]
    if len(frame.columns) > 1:
        covariances = frame.iloc[5:].set_axis(frame.columns).rename_axis("covariance")
        parts += [Text(), frame_view(covariances, width)]
    return Group(*parts)


def _with_margins(frame: pd.DataFrame, width: int) -> tuple[pd.DataFrame, int, str]:
    """Counts of two variables with a row and a column of their sums, under a name that
    no bin has.
    """
    taken = {label_text(label) for label in (*frame.index, *frame.columns)}
    margin = ALL
    while margin in taken:
        margin = f"({margin})"
    sums = frame.sum(axis=1)
    wide = pd.concat([frame, sums], axis=1)
    full = pd.concat([wide, wide.sum(axis=0).to_frame().T])
    full.index = pd.Index([*frame.index, margin], name=frame.index.name, dtype=object)
    full.columns = pd.Index([*frame.columns, margin], name=frame.columns.name, dtype=object)
    return full, width, margin


def label_text(label: object) -> str:
    """The name of a row or a column, shortened where it would leave no room for numbers."""
    text = printable(str(label))
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"


def number_text(value: Any) -> str:
    """A cell."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return printable(str(value))
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    return f"{value:,.6g}" if np.isfinite(value) else "n/a"


def _heading(frame: pd.DataFrame) -> str:
    names = [
        printable(str(name)) for name in (frame.index.name, frame.columns.name) if name is not None
    ]
    return " \\ ".join(names)


def _shown_rows(count: int) -> tuple[list[int], int]:
    """Which rows are shown, the first and the last where there are too many, and how
    many are not.
    """
    if count <= _MOST_ROWS:
        return list(range(count)), 0
    half = _MOST_ROWS // 2
    return [*range(half), *range(count - half, count)], count - 2 * half


def _fitting(columns: list[_Cells], room: int) -> Iterator[list[_Cells]]:
    """The columns in runs that fit side by side; at least one in each."""
    run: list[_Cells] = []
    used = 0
    for column in columns:
        needed = _GAP + max(map(len, [column.name, *column.cells]))
        if run and used + needed > room:
            yield run
            run, used = [], 0
        run.append(column)
        used += needed
    yield run


def _table(
    head: str, labels: list[str], columns: list[_Cells], margin: str | None, *, broken: bool
) -> Table:
    table = plain_table()
    table.add_column(Text(head), style="bold", no_wrap=True)
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="right",
            no_wrap=True,
            style="dim" if column.name == margin else "",
        )
    for position, label in enumerate(labels):
        if broken and position == len(labels) // 2:
            table.add_row("...", *("..." for _ in columns))
        cells = [Text(column.cells[position]) for column in columns]
        table.add_row(Text(label), *cells, style="dim" if label == margin else "")
    return table
