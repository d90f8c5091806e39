"""How the columns of a DataFrame or array become numbers in fixed point, where nobody has said with how many digits."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import SchemaWarning
from encryptedstats.models.base import checked_weights
from encryptedstats.tables import Schema
from encryptedstats.tables.binning import LARGEST_INTEGER, MOST_DIGITS

#: A double has 15 digits that one can rely on.
_SIGNIFICANT: Final = 15
#: New rows may lie so many times farther out than those that were seen.
_BEYOND: Final = 1000


def repeated(rows: Any, weights: Any) -> Any:
    """The rows of a DataFrame or array, each as often as its weight says: a row of weight 2 is two rows."""
    counts = checked_weights(weights, len(rows))
    if counts is None:
        return rows
    places = np.repeat(np.arange(len(rows)), counts)
    return rows.iloc[places].reset_index(drop=True) if hasattr(rows, "iloc") else rows[places]


def schema_of_numbers(frame: pd.DataFrame) -> Schema:
    """A schema that keeps all columns as numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)  # constant columns are said where they matter
        schema = Schema.infer(frame, kinds={str(name): "continuous" for name in frame})
    return with_numbers(schema, frame, list(frame))


def with_numbers(schema: Schema, frame: pd.DataFrame, names: list[Any]) -> Schema:
    """The schema with these columns kept as numbers: all their digits if they are few, else 15."""
    for name in names:
        values = frame[name].to_numpy(dtype=float)
        digits, low, high = digits_and_bounds(values)
        schema = schema.with_kind(str(name), "number", digits=digits, low=low, high=high)
    return schema


def digits_and_bounds(values: Any) -> tuple[int, float, float]:
    """How many decimal digits to keep of these numbers, and between which bounds new ones may lie."""
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    whole = int(np.floor(np.log10(largest))) + 1
    most = max(0, min(MOST_DIGITS, _SIGNIFICANT - whole))
    digits = next((d for d in range(most) if _is_exact(values, d)), most)
    bound = min(_BEYOND * max(largest, 1.0), LARGEST_INTEGER / 10.0**digits / 2)
    return digits, -bound, bound


def _is_exact(values: Any, digits: int) -> bool:
    return bool((np.rint(values * 10.0**digits) / 10.0**digits == values).all())
