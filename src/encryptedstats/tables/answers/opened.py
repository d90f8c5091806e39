"""What was opened, as it is shown and as data: results, models, votes, tables, arrays.

``open`` and ``study open`` show it. Nothing here knows keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from encryptedstats.tables.answers.answer import PREDICTION_KIND, Answer
from encryptedstats.tables.questions.words import describe
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.views import TableView, View, view_document
from encryptedstats.words import plural

#: What is noted where names are not known.
NO_NAMES = "Give --schema to see the names of columns, bins and classes."


@dataclass(frozen=True)
class Opened:
    """What was opened, as it is shown and as data."""

    view: View
    kind: str
    question: str = ""
    params: Mapping[str, Any] | None = None
    rows: int | None = None
    value: Any = None
    display: View | None = None  # where people see more than programs, such as sums in the margin

    @property
    def document(self) -> dict[str, Any]:
        """All of it for programs."""
        found = getattr(self.value, "to_dict", None) if is_result(self.value) else None
        return {
            "kind": self.kind,
            "question": self.question,
            "params": self.params,
            "rows": self.rows,
            **view_document(self.view),
            "result": None if found is None else found(),
        }


def describe_opened(
    value: Any, kind: str, sealed: Any = None, schema: Schema | None = None
) -> Opened:
    """Return what was opened with its view: a result, a model, votes, or what a question makes."""
    answer: Any = sealed if isinstance(sealed, Answer) else getattr(value, "source", None)
    answer = getattr(value, "answer_", answer)
    question = getattr(answer, "question", value)
    params, rows = question.parameters(), answer.n_rows if answer is not None else None
    own = getattr(answer, "schema", None)
    schema = own if schema is None and isinstance(own, Schema) else schema
    notes = () if schema is not None else (NO_NAMES,)
    text = describe(question, schema)
    text += "" if rows is None else f", {plural(rows, 'row')}"
    title = text[0].upper() + text[1:]
    about: dict[str, Any] = {
        "question": question.name,
        "params": params,
        "rows": rows,
        "value": value,
    }
    if kind == PREDICTION_KIND:
        return Opened(_votes_view(value, question, text, notes), kind, **about)
    is_model = hasattr(value, "answer_") and hasattr(value, "summary")
    found = value.summary() if is_model else value
    if is_result(found):
        shown = found.view()
        if found is not value:  # a model
            shown = replace(shown, title=f"Opened {text}")
        return Opened(replace(shown, notes=(*shown.notes, *notes)), kind, **about)
    frame = as_frame(value)
    if frame is None:
        return Opened(View(title, {"value": str(value)}, notes=notes), kind, **about)
    view = View(title, tables=(TableView(question.name, frame),), notes=notes)
    counts = question.name in ("counts", "crosstab")
    display = replace(view, tables=(TableView(question.name, with_margins(frame)),))
    return Opened(view, kind, display=display if counts else None, **about)


def is_result(value: Any) -> bool:
    """Return whether a value is a result with its own view."""
    return hasattr(value, "view") and hasattr(value, "to_dict") and hasattr(value, "to_frame")


def with_margins(frame: pd.DataFrame) -> pd.DataFrame:
    """Return counts of one variable with their shares, of two with the sums of rows and columns."""
    total = frame.to_numpy().sum()
    names = [frame.index.name, frame.columns.name]
    margin = "all"
    while margin in {*map(str, frame.index), *map(str, frame.columns)}:
        margin = f"({margin})"
    if len(frame.columns) == 1:
        frame = pd.concat([frame, frame.sum().to_frame(margin).T])
        share = [f"{100 * n / total:.1f} %" if total else "" for n in frame.iloc[:, 0]]
        frame = frame.assign(share=share)
        frame.index.name = names[0]
        return frame
    wide = pd.concat([frame, frame.sum(axis=1).rename(margin)], axis=1)
    full = pd.concat([wide, wide.sum().to_frame(margin).T])
    full.index.name, full.columns.name = names
    return full


def _votes_view(votes: Any, question: Any, title: str, notes: Sequence[str]) -> View:
    frame = votes.frame()
    if type(frame.index).__name__ == "RangeIndex":
        frame.index = frame.index + 1  # rows are counted from 1, as those of a file
    counts = {str(label): int((votes.predict() == label).sum()) for label in votes.scores.columns}
    facts: dict[str, Any] = {"predicted": counts}
    if question.caveat:
        facts["P(...)"] = f"{question.caveat} (see model calibrate)"
    return View(f"Prediction by {title}", facts, (TableView("rows", frame),), notes=tuple(notes))


def as_frame(value: Any) -> pd.DataFrame | None:
    """Return what a question made of its totals as a table; None where it is none."""
    if hasattr(value, "to_frame"):
        value = value.to_frame()
    if isinstance(value, pd.DataFrame):
        return value
    if isinstance(value, dict):
        return pd.Series(value, name="value").to_frame()
    if isinstance(value, (int, float, np.generic, list, np.ndarray)) and np.ndim(value) <= 2:
        return pd.DataFrame(np.atleast_1d(np.asarray(value)))
    return None


def array_view(values: Any) -> View:
    """Return the view of an array: rows of a matrix, one value a line of a vector; more dimensions
    as a list of indices with the value.
    """
    array = np.asarray(values, dtype=object)
    shape = " x ".join(map(str, array.shape))
    title = f"Array of {shape} integers" if shape else "An integer"
    if array.ndim > 2:
        rows = [(*index, value) for index, value in np.ndenumerate(array)]
        frame = pd.DataFrame(rows, columns=[*(f"i{k}" for k in range(array.ndim)), "value"])
    else:
        frame = pd.DataFrame(np.atleast_1d(array))
    return View(title, {"shape": list(array.shape)}, (TableView("values", frame),))
