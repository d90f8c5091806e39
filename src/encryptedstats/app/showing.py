"""Opened results as the page shows them: the view of a result, its tables with text in every cell,
and its pictures.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.app.words import WORDS, bins_in_words
from encryptedstats.metrics import SCORES, SCORES_OF_NUMBERS
from encryptedstats.plots import style
from encryptedstats.procedures.learned_trees import LearnedTrees
from encryptedstats.publishing.publish import with_hidden
from encryptedstats.publishing.release import PUBLIC_SCHEMA
from encryptedstats.views import (
    ESTIMATE_COLUMNS,
    TableView,
    View,
    fact_texts,
    frame_text,
    number_text,
    render_csv,
    render_text,
)

#: What the columns of tables are called on the page.
_HEADS: Final = {
    "estimate": "Estimate",
    "std error": "Std. error",
    "statistic": "Statistic",
    "df": "df",
    "pvalue": "p-value",
    "odds_ratio": "Odds ratio",
    "risk_ratio": "Risk ratio",
    "risk_difference": "Risk difference",
}
#: What single numbers are called there.
_FACTS: Final = {
    "mu": "compared with",
    "llf": "log-likelihood",
    "aic": "AIC",
    "bic": "BIC",
    "df resid": "residual df",
    "df null": "null df",
}
_MOST_LINES: Final = 12
_MOST_POINTS: Final = 200
_RATIOS: Final = {"binomial": "Odds ratios", "poisson": "Rate ratios"}
_INTERCEPTS: Final = ["Intercept", "(Intercept)"]


@dataclass(frozen=True)
class ShownTable:
    """A table as a page needs it: text in every cell."""

    corner: str
    head: list[str]
    rows: list[tuple[str, list[str]]]
    caption: str = ""

    @property
    def has_labels(self) -> bool:
        """Whether rows have names of their own."""
        return any(label for label, _ in self.rows)

    @cached_property
    def kinds(self) -> list[str]:
        """What each column holds, as styles call it: "number", or "" where no cell begins like one.

        >>> rows = [("0", ["opened", "400"]), ("1", ["hidden", "hidden"])]
        >>> ShownTable("", ["what", "rows"], rows).kinds
        ['', 'number']
        """
        columns = [[cells[place] for _, cells in self.rows] for place in range(len(self.head))]
        return [
            "number" if any(cell.lstrip("<±-−. ")[:1].isdigit() for cell in cells) else ""
            for cells in columns
        ]


@dataclass(frozen=True)
class Shown:
    """An opened result: its forms for the page, for a file, and for predictions."""

    view: View
    model: Any = None
    _drawn: dict[bool, Drawing | None] = field(default_factory=dict, compare=False)

    @property
    def title(self) -> str:
        """What it is."""
        return self.view.title

    @cached_property
    def facts(self) -> list[tuple[str, str]]:
        """Its single numbers; an interval is one of them."""
        facts = dict(self.view.facts)
        level = facts.pop("confidence", None)
        if "low" in facts and "high" in facts:
            span = f"{number_text(facts.pop('low'))} to {number_text(facts.pop('high'))}"
            facts[_interval(level)] = span
        names = _HEADS | _FACTS
        return [(names.get(label, label), text) for label, text in fact_texts(facts) if text]

    @cached_property
    def tables(self) -> list[ShownTable]:
        """Its tables, the main one first."""
        return [_table(one, self.view) for one in self.view.tables]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of it."""
        return self.view.notes

    @property
    def text(self) -> str:
        """All of it as text."""
        return render_text(self.view)

    @property
    def csv(self) -> str:
        """Its main table as CSV, with all digits."""
        return render_csv(self.view)

    @property
    def predicts(self) -> bool:
        """Whether it says something of new rows."""
        return self.model is not None and hasattr(self.model, "predict")

    @property
    def classifies(self) -> bool:
        """Whether it predicts classes."""
        return self.predicts and hasattr(self.model, "classes_")

    @property
    def is_scored(self) -> bool:
        """Whether it can be scored on rows of known outcome."""
        return self.classifies or isinstance(self.model, LearnedTrees)

    def svg(self, *, dark: bool = False) -> bytes | None:
        """Return its picture; None where it has none, or nothing here draws."""
        found = self._drawing(dark)
        return None if found is None else found.svg

    @property
    def is_drawn(self) -> bool:
        """Whether it has a picture."""
        return self.svg() is not None

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Where its picture has which values."""
        found = self._drawing(False)
        return () if found is None else found.marks

    def _drawing(self, dark: bool) -> Drawing | None:
        if dark not in self._drawn:
            self._drawn[dark] = _draw(self.view, dark)
        return self._drawn[dark]


@dataclass(frozen=True)
class Mark:
    """A place of a picture and what is there: a bar, or a point without width."""

    x: float
    y: float
    text: str
    width: float = 0.0
    height: float = 0.0


@dataclass(frozen=True)
class Drawing:
    """A picture, and where it has which values."""

    svg: bytes
    marks: tuple[Mark, ...]


def _draw(view: View, dark: bool) -> Drawing | None:
    if not view.figures:
        return None
    try:
        from matplotlib.figure import Figure  # not pyplot: nobody is to see a window
    except ImportError:
        return None
    with style(dark=dark):
        figure = Figure(figsize=(7, 5), layout="constrained")
        axes = figure.add_subplot()
        try:
            view.figures[0].draw(axes)
        except NotImplementedError:
            return None
        content = io.BytesIO()
        figure.savefig(content, format="svg", transparent=True)
        return Drawing(content.getvalue(), tuple(_marks_of(figure)))


def _marks_of(figure: Any) -> Iterator[Mark]:
    """Yield the bars and the points of lines, in points from the upper left corner."""
    scale, height = 72 / figure.dpi, figure.bbox.height
    for axes in figure.axes:
        for bar in axes.patches:
            box = bar.get_window_extent()
            if box.width > 0 and box.height > 0:
                value = bar.get_height() if bar.get_y() == 0 else bar.get_width()
                yield Mark(
                    round(box.x0 * scale, 1), round((height - box.y1) * scale, 1),
                    number_text(float(value)),
                    round(box.width * scale, 1), round(box.height * scale, 1),
                )  # fmt: skip
        for line in axes.lines[:_MOST_LINES]:
            places = axes.transData.transform(line.get_xydata())
            for (x, y), (a, b) in zip(places[:_MOST_POINTS], line.get_xydata(), strict=False):
                if np.isfinite([x, y]).all() and axes.bbox.contains(x, y):
                    text = f"{number_text(float(a))}, {number_text(float(b))}"
                    yield Mark(round(x * scale, 1), round((height - y) * scale, 1), text)


def show_result(value: Any) -> Shown:
    """Return whatever an owner has opened as it is shown."""
    model = value if hasattr(value, "predict") else None
    found = value
    if not hasattr(value, "view") and hasattr(value, "summary"):
        model, found = value, value.summary()
    view = found.view() if hasattr(found, "view") else _plain(found)
    return Shown(_with_ratios(_with_frames_as_tables(view)), model)


def _with_frames_as_tables(view: View) -> View:
    """Return a view whose facts hold no tables."""
    facts: dict[str, Any] = {}
    tables = list(view.tables)
    for name, value in view.facts.items():
        inside = value if isinstance(value, Mapping) else {}
        frames = {one: frame for one, frame in inside.items() if isinstance(frame, pd.DataFrame)}
        tables += [TableView(f"{name}: {one}", frame) for one, frame in frames.items()]
        if not frames:
            facts[name] = value
    return replace(view, facts=facts, tables=tuple(tables))


def _with_ratios(view: View) -> View:
    """Return the view of a logistic or Poisson regression with its odds or rate ratios, which are
    what is read.
    """
    caption = _RATIOS.get(str(view.facts.get("family")))
    if caption is None or not view.tables:
        return view
    frame = view.tables[0].frame.rename(columns=str.lower)
    if not {"estimate", "low", "high"} <= set(frame.columns):
        return view
    logs = frame[["estimate", "low", "high"]].drop(index=_INTERCEPTS, errors="ignore")
    ratios = logs.apply(np.exp)
    ratios = ratios.rename(columns={"estimate": caption[:-1].lower()})
    return replace(view, tables=(view.tables[0], TableView(caption, ratios), *view.tables[1:]))


def _plain(value: Any) -> View:
    frame = (
        value
        if isinstance(value, pd.DataFrame)
        else pd.DataFrame({"value": np.atleast_1d(np.asarray(value))})
    )
    return View("Result", {}, (TableView("result", frame),))


def _interval(level: Any, of: str = "") -> str:
    name = "interval" if level is None else f"{100 * level:g} % interval"
    return f"{of} {name}".strip()


def _table(table: TableView, view: View) -> ShownTable:
    """Return a table with the two ends of each interval in one column."""
    made = replace(table_of(table.frame, marks=table.marks), caption=table.caption)
    level = view.facts.get("confidence")
    for head in list(made.head):
        of = head.removesuffix("low").strip()
        high = f"{of} high".strip()
        if head in (f"{of} low", "low") and high in made.head:
            made = _with_interval(made, head, high, _interval(level, of))
    return replace(made, head=[_HEADS.get(one, one) for one in made.head])


def _with_interval(table: ShownTable, low: str, high: str, name: str) -> ShownTable:
    a, b = table.head.index(low), table.head.index(high)
    head = [name if k == a else one for k, one in enumerate(table.head) if k != b]
    rows = [
        (label, [_span(c[a], c[b]) if k == a else one for k, one in enumerate(c) if k != b])
        for label, c in table.rows
    ]
    return replace(table, head=head, rows=rows)


def _span(low: str, high: str) -> str:
    return "NA" if low == high == "NA" else f"{low} to {high}"


def table_of(frame: pd.DataFrame, *, marks: bool = False) -> ShownTable:
    """Return a data frame as a table, its numbers to a few digits."""
    cells = TableView("", frame, marks).cells()
    n = cells.n_labels
    heads = [one.replace("_", " ") if one in ESTIMATE_COLUMNS else one for one in cells.heads]
    rows = [(bins_in_words(" / ".join(row[:n])), row[n:]) for row in cells.rows]
    return ShownTable(" / ".join(one for one in heads[:n] if one), heads[n:], rows)


def scores_of(scores: Mapping[str, Mapping[str, Any]]) -> ShownTable:
    """Return the scores of a model, each with its interval."""
    rows = []
    for name, score in scores.items():
        texts = [_score_text(name, score.get(part)) for part in ("estimate", "low", "high")]
        label = SCORES.get(name) or SCORES_OF_NUMBERS.get(name, name)
        rows.append((label, [texts[0] or "NA", f"{texts[1]} to {texts[2]}" if texts[1] else ""]))
    return ShownTable("", ["Estimate", "95 % interval"], rows)


def _score_text(name: str, value: float | None) -> str:
    """Return a score; nothing where there is none."""
    if value is None or np.isnan(value):
        return ""
    return number_text(value) if name in SCORES_OF_NUMBERS else f"{value:.4f}"


# -- what others may see
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outgoing:
    """What others may see of a result, by rules or with noise, and what is said of it."""

    title: str
    table: ShownTable | None
    facts: list[tuple[str, str]]
    remarks: list[str]
    text: str
    csv: str
    file: Path | None = None


def show_published(found: es.Published, title: str, warned: list[str]) -> Outgoing:
    """Return what rules leave of a result: all of it, a table in which counts are hidden, or
    nothing.
    """
    named = replace(found, title=title)  # by the names that the owner knows
    remarks, text = [*named.remarks(), *warned], "\n".join([named.summary(), *warned])
    if found.is_whole:
        shown = show_result(found.result)
        table = shown.tables[0] if shown.tables else ShownTable("", ["Value"], _lines(shown.facts))
        return Outgoing(shown.title, table, shown.facts, remarks, text, shown.csv)
    if found.table is None:
        return Outgoing(title, None, [], remarks, text, "")
    frame = with_hidden(found.table)
    return Outgoing(title, table_of(frame), [], remarks, text, frame.to_csv(lineterminator="\n"))


def _lines(facts: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    return [(label, [text]) for label, text in facts]


def show_released(found: es.Release, file: Path) -> Outgoing:
    """Return a result with noise, what it cost, and what is left of the budget."""
    title, privacy = show_result(found.result).title, found.privacy
    facts = [
        ("epsilon", f"{privacy.epsilon:g}"),
        ("delta", f"{privacy.delta:g}"),
        ("rho", f"{privacy.rho:.4g}"),
        ("unit", privacy.unit),
    ]
    if privacy.spent is not None and privacy.budget is not None:
        facts.append(("left of the budget", left_text(privacy.spent, privacy.budget)))
    remarks = [_in_page_words(line) for line in privacy.describe()]
    written = found.to_frame()  # without standard errors and p-values, which know nothing of noise
    text = "\n".join([title, "", frame_text(written), "", *remarks])
    csv = written.to_csv(lineterminator="\n")
    return Outgoing(title, table_of(written), facts, remarks, text, csv, file)


def left_text(spent: float, budget: float) -> str:
    """Return what is left of a budget, in epsilon."""
    return f"{max(budget - spent, 0.0):.4g} of {budget:g}"


def _in_page_words(text: str) -> str:
    return text.replace(PUBLIC_SCHEMA.words, WORDS[PUBLIC_SCHEMA.action])
