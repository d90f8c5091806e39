"""Opened results as the page shows them: tables with their numbers as text, what is said beside
them, a picture if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.app.words import WORDS
from encryptedstats.metrics import SCORES
from encryptedstats.plots import draw_svg
from encryptedstats.publishing.publish import with_hidden
from encryptedstats.publishing.release import PUBLIC_SCHEMA
from encryptedstats.tables.answers.results import ModelSummary, Result
from encryptedstats.views import frame_text, is_pvalue, number_text, pvalue_text


@dataclass(frozen=True)
class Table:
    """A table as a page needs it: text in every cell."""

    corner: str
    head: list[str]
    rows: list[tuple[str, list[str]]]

    @property
    def is_list(self) -> bool:
        """Whether it is a line for each number."""
        return self.head == ["value"]

    @cached_property
    def kinds(self) -> list[str]:
        """What each column holds, as styles call it: "number", or "" where no cell begins like one.

        >>> Table("", ["what", "rows"], [("0", ["opened", "400"]), ("1", ["hidden", "hidden"])]).kinds
        ['', 'number']
        """
        columns = [[cells[place] for _, cells in self.rows] for place in range(len(self.head))]
        return [
            "number" if any(cell.lstrip("<±-−.")[:1].isdigit() for cell in cells) else ""
            for cells in columns
        ]


@dataclass(frozen=True)
class Shown:
    """An opened result: its forms for the page, for a file, and for predictions."""

    title: str
    table: Table
    notes: list[str]
    text: str
    csv: str
    facts: list[tuple[str, str]]
    model: Any = None
    result: Result | None = None

    @property
    def predicts(self) -> bool:
        """Whether it says something of new rows."""
        return self.model is not None and hasattr(self.model, "predict")

    @property
    def classifies(self) -> bool:
        """Whether it can be scored on rows of known classes."""
        return self.predicts and hasattr(self.model, "classes_")

    @cached_property
    def svg(self) -> bytes | None:
        """Its picture; None where it has none, or nothing here draws."""
        if self.result is None:
            return None
        try:
            return draw_svg(self.result.plot)
        except (ImportError, NotImplementedError):
            return None


def shown_result(value: Any, title: str) -> Shown:
    """Whatever an owner has opened."""
    if isinstance(value, Result):
        return _shown(value, None)
    if hasattr(value, "summary"):
        found = value.summary()
        return _shown(found, value) if isinstance(found, Result) else _plain(found, title)
    return _plain(value, title)


def _shown(result: Result, model: Any) -> Shown:
    frame = result.to_frame()
    facts = [] if list(frame.columns) == ["value"] else _numbers(result)
    if isinstance(result, ModelSummary):
        facts = [
            (f"rows of class {label}", f"{count:,}") for label, count in result.class_counts.items()
        ]
    text = result.summary()
    return Shown(
        title=result.title,
        table=table_of(frame),
        notes=[f"{result.n_rows:,} rows", *result._dropped(), *result.notes],
        text=text.removeprefix(result.title).strip("\n"),
        csv=str(result.to_csv()),
        facts=facts,
        model=model,
        result=result,
    )


def _numbers(result: Result) -> list[tuple[str, str]]:
    """The single numbers of a result, which its main table need not have: a statistic, degrees of
    freedom, a probability.
    """
    term = getattr(result, "term", "")
    return ([("term", term)] if term else []) + [
        (name.replace("_", " "), _cell(name, getattr(result, name)))
        for name, value in result.to_dict().items()
        if name not in ("title", "n_rows", "notes")
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
    ]


def _plain(value: Any, title: str) -> Shown:
    frame = (
        value
        if isinstance(value, pd.DataFrame)
        else pd.DataFrame({"value": np.atleast_1d(np.asarray(value))})
    )
    return Shown(title, table_of(frame), [], str(value), frame.to_csv(lineterminator="\n"), [])


@dataclass(frozen=True)
class Outgoing:
    """What others may see of a result, by rules or with noise, and what is said of it."""

    title: str
    table: Table | None
    facts: list[tuple[str, str]]
    remarks: list[str]
    text: str
    csv: str
    file: Path | None = None


def published(found: es.Published, title: str, warned: list[str]) -> Outgoing:
    """What rules leave of a result: all of it, a table in which counts are hidden, or nothing."""
    named = replace(found, title=title)  # by the names that the owner knows
    remarks, text = [*named.remarks(), *warned], "\n".join([named.summary(), *warned])
    if found.is_whole:
        shown = shown_result(found.result, title)
        return Outgoing(shown.title, shown.table, shown.facts, remarks, text, shown.csv)
    if found.table is None:
        return Outgoing(title, None, [], remarks, text, "")
    frame = with_hidden(found.table)
    return Outgoing(title, table_of(frame), [], remarks, text, frame.to_csv(lineterminator="\n"))


def released(found: es.Release, title: str, file: Path) -> Outgoing:
    """A result with noise, what it cost, and what is left of the budget."""
    shown, privacy = shown_result(found.result, title), found.privacy
    facts = [
        ("epsilon", f"{privacy.epsilon:g}"),
        ("delta", f"{privacy.delta:g}"),
        ("rho", f"{privacy.rho:.4g}"),
        ("unit", privacy.unit),
    ]
    if privacy.spent is not None and privacy.budget is not None:
        facts.append(("left of the budget", left_text(privacy.spent, privacy.budget)))
    remarks = [_in_page_words(line) for line in privacy.describe()]
    written = found.to_frame()
    text = "\n".join(
        [shown.title, "", frame_text(written), "", *remarks]
    )  # not the summary, which has p-values
    return Outgoing(
        shown.title,
        table_of(written),
        facts,
        remarks,
        text,
        written.to_csv(lineterminator="\n"),
        file,
    )


def left_text(spent: float, budget: float) -> str:
    """What is left of a budget, in epsilon."""
    return f"{max(budget - spent, 0.0):.4g} of {budget:g}"


def _in_page_words(text: str) -> str:
    return text.replace(PUBLIC_SCHEMA.words, WORDS[PUBLIC_SCHEMA.action])


def scores_of(scores: Mapping[str, Mapping[str, Any]]) -> Table:
    """The scores of a model, each with its interval, as the command ``evaluate`` gives them."""
    rows = []
    for name, score in scores.items():
        low, high = score.get("low"), score.get("high")
        interval = "" if low is None or high is None else f"{low:.4f} to {high:.4f}"
        value = "NA" if score.get("estimate") is None else f"{score['estimate']:.4f}"
        rows.append((SCORES.get(name, name), [value, interval]))
    return Table("", ["estimate", "95 % interval"], rows)


def table_of(frame: pd.DataFrame) -> Table:
    """A data frame, its numbers to a few digits."""
    corner = " / ".join(str(name) for name in frame.index.names if name is not None)
    head = [_label(name) for name in frame.columns]
    rows = []
    for place, label in enumerate(frame.index):
        cells = [
            _cell(label if head == ["value"] else frame.columns[column], frame.iat[place, column])
            for column in range(frame.shape[1])
        ]
        rows.append((_label(label), cells))
    return Table(corner, head, rows)


def _label(value: Any) -> str:
    return " / ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _cell(name: object, value: Any) -> str:
    if isinstance(value, (float, np.floating)) and is_pvalue(name):
        return pvalue_text(float(value))
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(number_text, value))
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return f"{int(value):,}"
    return number_text(value)
