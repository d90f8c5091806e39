"""What people are shown of anything: title, facts, tables, figures and notes, and its renderers.

A result, a plan or the status of a study has ``view() -> View``; terminal, notebook, pages, files
and reports render that. Imports ``words`` and nothing else of the library; pandas is imported by
those who make tables.
"""

from __future__ import annotations

import html
import json
import math
import numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

#: Smaller p-values are shown as smaller than this, as in R.
LEAST_PVALUE: Final = 2.2e-16
SIGNIFICANT: Final = 4
MAX_ROWS: Final = 60
_MOST_DIGITS: Final = 17
_MARKS: Final = ((0.001, "***"), (0.01, "**"), (0.05, "*"), (0.1, "."))
_LEGEND: Final = "Signif. codes: 0 '***' 0.001 '**' 0.01 '*' 0.05 '.' 0.1 ' ' 1"
_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_BIN: Final = re.compile(rf"\((-inf|{_NUMBER}), (?:(inf)\)|({_NUMBER})\])")
_GAP: Final = "  "
#: The columns that all tables of estimates and tests share.
ESTIMATE_COLUMNS: Final = (
    "estimate",
    "std_error",
    "statistic",
    "df",
    "pvalue",
    "low",
    "high",
)


@dataclass(frozen=True)
class TableView:
    """A table and what it shows; ``marks`` adds R's stars to its p-values.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"estimate": [1.0003], "pvalue": [1e-20]}, index=["age"])
    >>> TableView("Coefficients", frame).cells().rows
    [['age', '1.0003', '< 2.2e-16']]
    """

    caption: str
    frame: pd.DataFrame
    marks: bool = False

    def cells(self, max_rows: int | None = None) -> FormattedTable:
        """Return the table with text in every cell; columns of estimates that have no value at all
        are left out.
        """
        return _cells_of(self.frame, self.marks, max_rows)


@dataclass(frozen=True)
class FormattedTable:
    """A table with text in every cell. The first ``n_labels`` columns name its lines."""

    heads: list[str]
    rows: list[list[str]]
    n_labels: int


@dataclass(frozen=True)
class FigureView:
    """A figure by name, and how it is drawn: ``draw(axes)`` takes matplotlib axes."""

    name: str
    draw: Callable[[Any], Any]


@dataclass(frozen=True)
class View:
    """What is shown of an object.

    Parameters
    ----------
    title : str
    facts : mapping of str to anything
        Single values by label: numbers, text, lists, mappings of names to numbers.
    tables : tuple of TableView
        The main one first; captions are all different.
    figures : tuple of FigureView
    notes : tuple of str
    """

    title: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[TableView, ...] = ()
    figures: tuple[FigureView, ...] = ()
    notes: tuple[str, ...] = ()


# -- renderers
# ------------------------------------------------------------------------------------------------


def render_text(view: View, width: int | None = None, *, max_rows: int | None = MAX_ROWS) -> str:
    """Return a view as text.

    Parameters
    ----------
    view : View
    width : int, optional
        Columns that do not fit into it are written below the others; by default no line wraps.
    max_rows : int, optional
        Longer tables are cut in the middle; None shows all of them.
    """
    parts = [view.title]
    facts = fact_texts(view.facts)
    if facts:
        longest = max(len(label) for label, _ in facts)
        parts.append("\n".join(f"{label:<{longest}}{_GAP}{value}" for label, value in facts))
    for table in view.tables:
        text = _table_text(table, width, max_rows)
        parts.append(f"{table.caption}:\n{text}" if len(view.tables) > 1 else text)
    parts += ["\n".join(view.notes)] if view.notes else []
    return "\n\n".join(parts)


def render_html(view: View, *, max_rows: int | None = MAX_ROWS) -> str:
    """Return a view as a fragment of HTML, without figures."""
    facts = "".join(
        f"<tr><th>{html.escape(label)}</th><td>{html.escape(value)}</td></tr>"
        for label, value in fact_texts(view.facts)
    )
    parts = [f"<b>{html.escape(view.title)}</b>"]
    parts += [f"<table class=facts>{facts}</table>"] if facts else []
    parts += [_table_html(table, len(view.tables) > 1, max_rows) for table in view.tables]
    parts += [f"<small>{'<br>'.join(map(html.escape, view.notes))}</small>"] if view.notes else []
    return f"<div class=view>{''.join(parts)}</div>"


def view_document(view: View) -> dict[str, Any]:
    """Return a view as JSON knows it: without a value is None, infinite numbers are text, and a
    table has its index, columns and values.
    """
    return {
        "title": view.title,
        "facts": {label: as_json(value) for label, value in view.facts.items()},
        "tables": {table.caption: as_json(table.frame) for table in view.tables},
        "notes": list(view.notes),
    }


def render_json(view: View) -> str:
    """Return a view as a JSON document: all of its numbers, with all of their digits."""
    return json.dumps(view_document(view), indent=2, allow_nan=False) + "\n"


def render_csv(view: View) -> str:
    """Return the main table of a view as CSV, or its facts if it has no table."""
    if view.tables:
        text: str = view.tables[0].frame.to_csv(lineterminator="\n")
        return text
    import csv
    import io

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([("", "value"), *view.facts.items()])
    return stream.getvalue()


def as_json(value: Any) -> Any:
    """Return a value, table or array as JSON knows it."""
    if hasattr(value, "columns"):
        labels = {"index": _json_labels(value.index), "columns": _json_labels(value.columns)}
        return {**labels, "values": as_json(value.astype(object).to_numpy().tolist())}
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(name): as_json(one) for name, one in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _json_labels(index: Any) -> list[Any]:
    return [list(map(str, label)) if isinstance(label, tuple) else str(label) for label in index]


# -- values as text
# ------------------------------------------------------------------------------------------------


def number_text(value: Any) -> str:
    """Return a number as tables show it: four significant digits, and more where they tell it from
    1 or -1; no value is NA.

    >>> [number_text(x) for x in (3, 1234567, 0.5, 2.0, 1234.5678, 1.5e-9, float("nan"), "a")]
    ['3', '1,234,567', '0.5', '2', '1235', '1.5e-09', 'NA', 'a']
    >>> [number_text(x) for x in (1.0003, 0.99996, -1.00002, 1 + 1e-9, 1.0)]
    ['1.0003', '0.99996', '-1.00002', '1.000000001', '1']
    """
    if hasattr(value, "item"):
        value = value.item()
    if is_missing(value):
        return "NA"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    value = float(value)
    digits = max(SIGNIFICANT, len(str(int(abs(value)))) if abs(value) < 1e7 else 0)
    text = f"{value:.{digits}g}"
    while digits < _MOST_DIGITS and abs(value) != 1 and abs(float(text)) == 1:
        digits += 1
        text = f"{value:.{digits}g}"
    return text


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or pandas' NA."""
    return value is None or type(value).__name__ == "NAType" or value != value


def pvalue_text(value: float) -> str:
    """Return a p-value as R shows it.

    >>> pvalue_text(0.04321), pvalue_text(1e-20), pvalue_text(float("nan"))
    ('0.0432', '< 2.2e-16', 'NA')
    """
    if math.isnan(value):
        return "NA"
    return f"< {LEAST_PVALUE:g}" if value < LEAST_PVALUE else f"{value:.3g}"


def stars(pvalue: float) -> str:
    """Return the mark of R's tables: ``***`` below .001, ``**`` below .01, ``*`` below .05, ``.``
    below .1.
    """
    return next((mark for limit, mark in _MARKS if pvalue < limit), "")


def is_pvalue(name: object) -> bool:
    """Return whether a column or fact of this name holds p-values."""
    text = str(name)
    return text.startswith("pvalue") or text.endswith("pvalue")


def value_text(name: object, value: Any) -> str:
    """Return any value as text; ``name`` is that of its column or fact."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float) and is_pvalue(name):
        return pvalue_text(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{label_text(one)} {number_text(n)}" for one, n in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(number_text, value))
    return number_text(value)


def fact_texts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts with labels and values as text."""
    return [(label.replace("_", " "), value_text(label, value)) for label, value in facts.items()]


def label_text(label: object) -> str:
    """Return the name of a line or column; bins as people write them.

    >>> [label_text(x) for x in ("(-inf, 40.0]", "(40.0, 50.5]", "(50.5, inf)", "male", ("a", 1))]
    ['up to 40', '40 to 50.5', 'over 50.5', 'male', 'a / 1']
    """
    if isinstance(label, tuple):
        return " / ".join(map(label_text, label))
    found = _BIN.fullmatch(str(label))
    if found is None:
        return "" if is_missing(label) else str(label)
    low, open_end, high = found.groups()
    if open_end:
        return f"over {_edge_text(low)}"
    return (
        f"up to {_edge_text(high)}" if low == "-inf" else f"{_edge_text(low)} to {_edge_text(high)}"
    )


def _edge_text(edge: str) -> str:
    return edge.removesuffix(".0")


# -- tables
# ------------------------------------------------------------------------------------------------


def frame_text(frame: pd.DataFrame) -> str:
    """Return a table as text; no line wraps."""
    return _table_text(TableView("", frame), None, None)


def _cells_of(frame: pd.DataFrame, marks: bool, max_rows: int | None) -> FormattedTable:
    index, columns = frame.index, frame.columns
    shown = _rows_to_show(len(frame), max_rows)
    named = not (type(index).__name__ == "RangeIndex" and index.name is None)
    heads = [label_text(name) if name is not None else "" for name in index.names] if named else []
    if heads and columns.name is not None:
        heads[-1] = f"{heads[-1]} \\ {label_text(columns.name)}".strip()
    rows: list[list[str]] = []
    for place in shown:
        if place is None:
            rows.append(["..."] * len(heads))
            continue
        label = index[place]
        rows.append(
            list(map(label_text, label if isinstance(label, tuple) else (label,)))[: len(heads)]
        )
    n_labels = len(heads)
    for position, name in enumerate(columns):
        values = frame.iloc[:, position].tolist()
        if name in ESTIMATE_COLUMNS and all(map(is_missing, values)):
            continue
        heads.append(label_text(name))
        for row, place in zip(rows, shown, strict=True):
            row.append("..." if place is None else value_text(name, values[place]))
    if marks and "pvalue" in columns:
        values = frame["pvalue"].tolist()
        heads.append("")
        for row, place in zip(rows, shown, strict=True):
            row.append("" if place is None else stars(values[place]))
    return FormattedTable(heads, rows, n_labels)


def _rows_to_show(count: int, most: int | None) -> Sequence[int | None]:
    """Return the lines that are shown; None stands for those left out in the middle."""
    if most is None or count <= most:
        return range(count)
    half = most // 2
    return [*range(half), None, *range(count - half, count)]


def _table_text(table: TableView, width: int | None, max_rows: int | None) -> str:
    cells = table.cells(max_rows)
    columns = [[head, *(row[k] for row in cells.rows)] for k, head in enumerate(cells.heads)]
    widths = [max(map(len, column)) for column in columns]
    parts = []
    for chosen in _fitting(widths, cells.n_labels, width):
        lines = []
        for line in zip(*(columns[k] for k in chosen), strict=True):
            padded = [
                cell.ljust(widths[k])
                if k < cells.n_labels or not cells.heads[k]
                else cell.rjust(widths[k])
                for k, cell in zip(chosen, line, strict=True)
            ]
            lines.append(_GAP.join(padded).rstrip())
        parts.append("\n".join(lines))
    if max_rows is not None and len(table.frame) > max_rows:
        parts.append(f"({len(table.frame) - len(cells.rows) + 1:,} lines are not shown)")
    if table.marks:
        parts.append(_LEGEND)
    return "\n\n".join(parts)


def _fitting(widths: Sequence[int], n_labels: int, width: int | None) -> Iterator[list[int]]:
    """Return the columns in runs that fit into one width, each after the labels; at least one in
    each.
    """
    labels = list(range(n_labels))
    run, used = [*labels], sum(widths[:n_labels])
    for k in range(n_labels, len(widths)):
        needed = len(_GAP) + widths[k]
        if width is not None and len(run) > n_labels and used + needed > width:
            yield run
            run, used = [*labels], sum(widths[:n_labels])
        run.append(k)
        used += needed
    yield run


def _table_html(table: TableView, captioned: bool, max_rows: int | None) -> str:
    cells = table.cells(max_rows)
    caption = f"<caption>{html.escape(table.caption)}</caption>" if captioned else ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in cells.heads)
    body = "".join(
        "<tr>"
        + "".join(
            f"<th>{html.escape(cell)}</th>"
            if k < cells.n_labels
            else f"<td>{html.escape(cell)}</td>"
            for k, cell in enumerate(row)
        )
        + "</tr>"
        for row in cells.rows
    )
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
