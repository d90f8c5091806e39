"""How the columns of a DataFrame or array become numbers in fixed point, where nobody has said with
how many digits.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import SchemaError, SchemaWarning
from encryptedstats.models.base import array_names, check_weights, is_number
from encryptedstats.tables import Schema, Variable
from encryptedstats.tables.rows.frames import describe_missing, missing_masks
from encryptedstats.tables.schema.bins import LARGEST_INTEGER, MOST_DIGITS

#: A double has 15 digits that one can rely on.
_SIGNIFICANT: Final = 15
#: By how many times new rows may lie farther out than those that were seen.
_BEYOND: Final = 1000


def repeat_rows(rows: Any, weights: Any) -> Any:
    """Return the rows of a DataFrame or array, each as often as its weight says: a row of weight 2
    is two rows.
    """
    counts = check_weights(weights, len(rows))
    if counts is None:
        return rows
    places = np.repeat(np.arange(len(rows)), counts)
    return rows.iloc[places].reset_index(drop=True) if hasattr(rows, "iloc") else rows[places]


def named_columns(rows: Any) -> pd.DataFrame:
    """Return rows as a DataFrame, whose columns have names."""
    return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, columns=array_names(rows))


def schema_of_numbers(frame: pd.DataFrame, target: str | None = None) -> Schema:
    """Return a schema that keeps numbers: all their digits if they are few, else 15. Text, booleans
    and Categoricals are categories.
    """
    numbers = [name for name in frame.columns if is_number(frame[name])]
    gaps = missing_masks(frame, list(frame.columns))
    if gaps:
        raise SchemaError(
            f"missing values in {describe_missing(gaps, frame.index)}: fill them in, or leave the "
            "rows out",
            code="missing-values",
        )
    categories = [name for name in frame.columns if name not in numbers and name != target]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", SchemaWarning
        )  # constant columns are said where they matter
        known = (
            {} if not categories else {v.name: v for v in Schema.infer(frame[categories]).variables}
        )
    found = [
        known.get(str(name)) or _number(str(name), frame[name])
        for name in frame.columns
        if name != target
    ]
    return Schema(
        tuple(found),
        target,
        target_number=None if target is None else _number(target, frame[target]),
    )


def _number(name: str, values: pd.Series[Any]) -> Variable:
    digits, low, high = digits_and_bounds(values.to_numpy(dtype=float))
    return Variable(
        name, "number", digits=digits, low=round(low * 10**digits), high=round(high * 10**digits)
    )


def with_numbers(schema: Schema, frame: pd.DataFrame, names: list[Any]) -> Schema:
    """Return the schema with these columns kept as numbers, in the same way."""
    for name in names:
        digits, low, high = digits_and_bounds(frame[name].to_numpy(dtype=float))
        schema = schema.with_kind(str(name), "number", digits=digits, low=low, high=high)
    return schema


def digits_and_bounds(values: Any) -> tuple[int, float, float]:
    """Return how many decimal digits to keep of these numbers, and between which bounds new ones
    may lie.
    """
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    whole = int(np.floor(np.log10(largest))) + 1
    most = max(0, min(MOST_DIGITS, _SIGNIFICANT - whole))
    digits = next((d for d in range(most) if _is_exact(values, d)), most)
    bound = min(_BEYOND * max(largest, 1.0), LARGEST_INTEGER / 10.0**digits / 2)
    return digits, -bound, bound


def _is_exact(values: Any, digits: int) -> bool:
    return bool((np.rint(values * 10.0**digits) / 10.0**digits == values).all())
