"""Predict and score the rows of a file with a decrypted model.

The command line and the owner's page share this module. It reads files piece by piece, writes a
line for every row, and counts rows without a prediction and rows outside the bins.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError, Cure, DataError, SchemaError
from encryptedstats.tables import Schema, Table
from encryptedstats.tables.encryption import RowCount
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions
from encryptedstats.tables.rows.row_files import read_frame, read_frames
from encryptedstats.tables.rows.table_from_frame import mark_rows_to_predict
from encryptedstats.tables.table import (
    Moved,
    Unusable,
    merge_moved,
    merge_unusable,
    warn_of_moved,
    warn_of_unusable,
)
from encryptedstats.words import did_you_mean, plural

_ROWS_AT_ONCE: Final = 1 << 16
#: The statistics that summarise predicted numbers.
SUMMARIES_OF_NUMBERS: Final[dict[str, Callable[[Any], Any]]] = {
    "least": np.min,
    "mean": np.mean,
    "largest": np.max,
}
FormatCallback = Callable[[CsvFormat], None]


class FilePredictions:
    """Predict the rows of a file with a decrypted model, and summarise the predictions.

    Every row of the file has a line. The line is empty for rows with values that the schema does
    not allow, such as a number out of bounds.

    Parameters
    ----------
    model : fitted model
    options : CsvOptions, optional
    on_format : callable, optional
        Called with the format of the CSV file once it is known.
    """

    def __init__(
        self, model: Any, options: CsvOptions | None = None, on_format: FormatCallback | None = None
    ) -> None:
        self.model, self.schema = model, model._get_private_schema()
        self.options, self.on_format = options, on_format
        self.moved: tuple[Moved, ...] = ()
        self.unusable: tuple[Unusable, ...] = ()
        self.n_rows = self.n_unpredicted = 0
        self.has_classes = hasattr(model, "classes_")  # else the model predicts numbers
        self.predicted: Counter[Any] = Counter()
        self.numbers: list[NDArray[np.float64]] = []
        self.judged: int | None = 0  # rows with a known class and a prediction; None if none has
        self.right = 0

    def csv(self, data: str | os.PathLike[str]) -> Iterator[str]:
        """Yield the CSV file of predictions in pieces."""
        for frame in read_frames(data, self.schema, _ROWS_AT_ONCE, self.options, self.on_format):
            if len(frame):
                is_first = not self.n_rows
                lines = self._predict(frame, data).set_axis(self._index(frame))
                yield lines.to_csv(header=is_first, lineterminator="\n")
        if not self.n_rows:
            raise no_rows_error(data, self.schema)
        if self.n_rows == self.n_unpredicted > 1:
            raise SchemaError(
                f"no row of {data} can be predicted: {'; '.join(map(str, self.unusable))}. Correct "
                "the file, or fit a model with a schema that allows such rows",
                code="no-row-predicted",
            )
        warn_of_unusable(self.unusable, self.n_unpredicted, self.n_rows, stacklevel=1)
        warn_of_moved(self.moved, stacklevel=1)

    def _index(self, frame: pd.DataFrame) -> pd.Index[Any]:
        # Rows are labelled by the id that the schema names, else by number.
        has_id = self.schema.id is not None and self.schema.id in frame.columns
        index: pd.Index[Any] = (
            pd.Index(frame[self.schema.id]) if has_id else pd.Index(frame.index, name="row")
        )
        return index

    def _predict(self, frame: pd.DataFrame, data: str | os.PathLike[str]) -> pd.DataFrame:
        rows = frame.drop(columns=[name for name in (self.schema.target,) if name in frame.columns])
        model = model_in(self.model)
        needed = [self.schema.names[j] for j in model._used_positions()]
        try:
            table = mark_rows_to_predict(self.schema, model._with_unused(rows), needed)
        except SchemaError as error:
            raise SchemaError(f"{data}: {error}") from error
        self.moved = merge_moved((*self.moved, *table.moved))
        self.unusable = merge_unusable((*self.unusable, *table.unusable))
        self.n_rows += len(table)
        self.n_unpredicted += table.n_unpredicted
        if not self.has_classes:
            self.numbers.append(self.model.predict(table))
            return pd.DataFrame({"predicted": self.numbers[-1]}, frame.index)
        classes = self.model.predict(table)
        is_predicted = pd.notna(classes)
        self.predicted.update(classes[is_predicted].tolist())
        if self.schema.target in frame.columns and self.judged is not None:
            known = frame[self.schema.target].notna().to_numpy() & is_predicted
            self.judged += int(known.sum())
            self.right += int((frame[self.schema.target].to_numpy() == classes)[known].sum())
        else:
            self.judged = None
        predicted = pd.Series(classes, frame.index, dtype=object, name="predicted")
        return pd.concat([predicted, self._scores(table, frame.index)], axis=1)

    def _scores(self, table: Table, index: pd.Index[Any]) -> pd.DataFrame:
        labels = list(self.model.classes_)
        if hasattr(self.model, "predict_proba"):
            return pd.DataFrame(self.model.predict_proba(table), index, score_names(labels))
        scores = self.model.decision_function(table)
        names = score_names(labels if scores.ndim == 2 else labels[1:], are_probabilities=False)
        return pd.DataFrame(scores.reshape(len(index), -1), index, names)

    def facts(self) -> dict[str, Any]:
        """Return a summary of the predictions for JSON."""
        predicted: dict[str, Any]
        if self.has_classes:
            predicted = {
                str(label): self.predicted[label] for label in self.model.classes_.tolist()
            }
        else:
            known, self.judged = np.concatenate(self.numbers), None
            known = known[~np.isnan(known)]
            predicted = (
                {name: float(find(known)) for name, find in SUMMARIES_OF_NUMBERS.items()}
                if len(known)
                else {}
            )
        return {
            "rows": self.n_rows,
            "rows_without_prediction": self.n_unpredicted,
            "reasons": list(map(str, self.unusable)),
            "without_a_bin": {part.column: part.n_rows for part in self.moved},
            "predicted": predicted,
            "right": None if self.judged is None else self.right,
            "judged": self.judged,
            "caveat": self.model.caveat,
        }


def score_names(labels: Sequence[Any], are_probabilities: bool = True) -> list[str]:
    """Return the names of columns of probabilities or scores.

    >>> score_names(["no", "yes"])
    ['P(no)', 'P(yes)']
    """
    return [f"{'P' if are_probabilities else 'score'}({label})" for label in labels]


def model_in(model: Any) -> Any:
    """Return the model inside a calibrated model; any other model is returned as it is."""
    from encryptedstats.models.calibration import CalibratedModel  # imports scikit-learn

    return model.model if isinstance(model, CalibratedModel) else model


def check_predicts(model: Any) -> None:
    """Raise ArgumentError for a result that predicts nothing, such as a test."""
    if not hasattr(model, "predict"):
        raise ArgumentError(
            f"{model.name} cannot predict: give a classifier or a regression",
            code="not-predicting",
        )


def check_classifies(model: Any, file: str | os.PathLike[str]) -> None:
    """Raise DataError for a model that predicts no classes, such as a regression."""
    if not hasattr(model, "classes_"):
        raise DataError(
            f"{file} has a {model_in(model).name}, which predicts numbers, and only classifiers "
            "can be scored: give a classifier, or compare the numbers yourself; ",
            Cure("predict numbers", "predict() returns them"),
            code="not-a-classifier",
        )


def read_labelled_rows(
    schema: Schema,
    data: str | os.PathLike[str],
    weights: str | None = None,
    options: CsvOptions | None = None,
    on_format: FormatCallback | None = None,
) -> tuple[Table, int]:
    """Read the rows of a file that have a class.

    Returns
    -------
    Table
        The rows with a class.
    int
        The number of rows without a class.

    Raises
    ------
    SchemaError
        If no row has a class, or the file does not fit the schema.
    """
    frame = read_frame(data, schema, options, on_format)
    if not len(frame):
        raise no_rows_error(data, schema)
    if schema.target not in frame.columns:
        raise no_classes_error(data, schema)
    known = frame[frame[schema.target].notna()]
    if not len(known):
        raise SchemaError(
            f"none of the {plural(len(frame), 'row')} of {data} has a class: fill in the column "
            f"{schema.target!r} to score predictions",
            code="no-known-classes",
        )
    if weights is not None and weights not in known.columns:
        raise SchemaError(
            f"{data} has no column {weights!r} for the weights"
            f"{did_you_mean(weights, known.columns)}",
            code="unknown-column",
        )
    # Columns of one-hot tables are found by position, so the weights must not be among them.
    rows = known if weights is None or schema.onehot is None else known.drop(columns=weights)
    try:
        table = schema.table(rows, weights=None if weights is None else known[weights].to_numpy())
    except SchemaError as error:
        raise SchemaError(f"{data}: {error}") from error
    RowCount(len(known), table.n_dropped).warn(stacklevel=2)
    return table, len(frame) - len(known)


def no_rows_error(data: str | os.PathLike[str], schema: Schema) -> SchemaError:
    """Return the error for a file without a row to use."""
    return SchemaError(
        f"{data} has no rows{' without missing values' if schema.missing == 'drop' else ''}",
        code="no-rows",
    )


def no_classes_error(data: str | os.PathLike[str], schema: Schema) -> SchemaError:
    """Return the error for a file without the column of the target."""
    return SchemaError(
        f"{data} has no column {schema.target!r} with the known outcome of the rows: add it to "
        "score predictions",
        code="no-class-column",
    )
