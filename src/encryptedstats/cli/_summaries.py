"""What an opened model found, as a table: importances, coefficients, counts or means, as suits the model. Needs scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from encryptedstats.cli._console import fact_table, printable
from encryptedstats.cli._frames import frame_view, label_text
from encryptedstats.models import (
    CompletelyRandomForest,
    FisherDiscriminant,
    LinearMeans,
    MultinomialNB,
    OneStepLogisticRegression,
    SemiparametricNB,
    TotalsClassifier,
)
from encryptedstats.models.features import features
from encryptedstats.tables import Schema
from encryptedstats.tables.statistics import variable_name

_PREDICTORS = "Of codes of bins, of 0/1 for a level of a category, and of numbers in units of their last decimal."


def model_facts(model: Any) -> dict[str, Any]:
    """An opened model, ready for JSON."""
    frame = model_frame(model)
    counted = isinstance(model, TotalsClassifier)
    classes = {"classes": model.classes_.tolist(), "class_counts": model.class_counts_.tolist()} if counted else {}
    return {
        "model": type(model).__name__,
        "params": model.parameters(),
        "rows": model.n_rows_,
        **classes,
        "index": [str(label) for label in frame.index],
        "columns": [str(name) for name in frame.columns],
        "values": frame.astype(object).to_numpy().tolist(),
    }


def model_view(model: Any, width: int) -> RenderableType:
    """An opened model on a screen of this width."""
    if not isinstance(model, TotalsClassifier):
        if not hasattr(model, "summary"):
            return frame_view(model_frame(model), width)
        return Text("\n".join(printable(line) for line in model.summary().summary().splitlines()))
    counts = zip(model.classes_, model.class_counts_, strict=True)
    classes = ", ".join(f"{label_text(label)} {count:,}" for label, count in counts)
    rows: list[tuple[str, RenderableType]] = [("classes", classes)]
    if isinstance(model, OneStepLogisticRegression):
        rows.append(("intercept", f"{model.intercept_[0]:.6g}"))
    frame = model_frame(model)
    if isinstance(model, CompletelyRandomForest):
        frame = frame.sort_values("importance", ascending=False, kind="stable")
    parts: list[RenderableType] = [fact_table(rows), Text(), frame_view(frame, width)]
    if frame.index.name == "predictor":
        parts.append(Text(_PREDICTORS, style="dim"))
    return Group(*parts)


def model_frame(model: Any) -> pd.DataFrame:
    """The table of a model: a row for each variable, bin or predictor."""
    if isinstance(model, CompletelyRandomForest):
        used = np.bincount(
            [split.variable for tree in model.trees_ for split in tree], minlength=len(_variables(model))
        )
        columns = {"importance": model.feature_importances_, "splits": used}
        return pd.DataFrame(columns, pd.Index(_variables(model), name="variable"))
    if isinstance(model, MultinomialNB):
        labels = pd.Index(_bins(model), name="bin")
        return pd.DataFrame(np.concatenate(model.bin_counts_), labels, _class_names(model))
    if not isinstance(model, TotalsClassifier) and hasattr(model, "summary"):
        frame: pd.DataFrame = model.summary().to_frame()
        return frame
    if not isinstance(model, (SemiparametricNB, OneStepLogisticRegression, LinearMeans)):
        return pd.DataFrame({"total": [int(total) for total in model.totals_]})  # of a model that somebody else wrote
    index = pd.Index(_predictors(model), name="predictor")
    if isinstance(model, SemiparametricNB):
        slopes = [b / d if d else np.nan for b, d in zip(model.b_, model.d_, strict=True)]
        return pd.DataFrame({"slope": slopes, "a": model.a_, "b": model.b_, "d": model.d_}, index)
    if isinstance(model, OneStepLogisticRegression):
        return pd.DataFrame({"coefficient": model.coef_[0]}, index)
    if isinstance(model, FisherDiscriminant) and hasattr(model, "directions_"):  # other discriminants have none
        return pd.DataFrame(model.directions_.T, index, _class_names(model, "direction"))
    return pd.DataFrame(model.means_.T, index, _class_names(model, "mean"))


def _known(model: Any) -> Schema | None:
    return model.schema_ if isinstance(model.schema_, Schema) else None


def _variables(model: Any) -> list[str]:
    return [variable_name(_known(model), j) for j in range(len(model.schema_.public().variables))]


def _bin(model: Any, variable: int, k: int) -> str:
    schema = _known(model)
    return f"bin {k}" if schema is None else schema.variables[variable].labels[k]


def _bins(model: Any) -> list[str]:
    sizes = [len(counts) for counts in model.bin_counts_]
    names = _variables(model)
    return [f"{names[j]}: {_bin(model, j, k)}" for j, size in enumerate(sizes) for k in range(size)]


def _predictors(model: Any) -> list[str]:
    names = _variables(model)
    found = features(model.schema_.public(), None, centred=False)
    return [
        names[f.variable] if f.level is None else f"{names[f.variable]} = {_bin(model, f.variable, f.level)}"
        for f in found
    ]


def _class_names(model: Any, what: str = "") -> list[str]:
    return [printable(f"{what} {label}".strip()) for label in model.classes_]
