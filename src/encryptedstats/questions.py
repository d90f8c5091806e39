"""What questions of your own are written with; ``docs/guides/questions.md`` shows examples.

Those that are for classifiers need scikit-learn, which takes a second to import: they are imported
when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from encryptedstats.tables.questions.question import (
    ModelTotals,
    Question,
    bin_columns,
    class_columns,
    complete_rows,
    load_questions,
    number_column,
    product_of,
    refuse_impossible,
    row_column,
)
from encryptedstats.tables.questions.question import (
    RowAnswer as Answer,
)
from encryptedstats.tables.questions.summaries import labels, scale, variable_name
from encryptedstats.tables.schema.names import level_number, position

if TYPE_CHECKING:
    from encryptedstats.models.prediction import class_names, count_names, votes_of, weighted_sum

_LATE = ("class_names", "count_names", "votes_of", "weighted_sum")


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'encryptedstats.questions' has no attribute {name!r}")
    return getattr(import_module("encryptedstats.models.prediction"), name)


__all__ = [
    "Answer",
    "ModelTotals",
    "Question",
    "bin_columns",
    "class_columns",
    "class_names",
    "complete_rows",
    "count_names",
    "labels",
    "level_number",
    "load_questions",
    "number_column",
    "position",
    "product_of",
    "refuse_impossible",
    "row_column",
    "scale",
    "variable_name",
    "votes_of",
    "weighted_sum",
]
