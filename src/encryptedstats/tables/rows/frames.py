"""Data of pandas, polars and NumPy as one pandas DataFrame, and its columns as values.

The only place that knows polars, and it does not import it: a frame is recognised by the module of
its class. Errors name the column, the row by its label, and the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import infer_dtype, is_bool_dtype, is_integer_dtype, is_numeric_dtype

from encryptedstats.errors import Cure, SchemaError

Mask = NDArray[np.bool_]


def as_frame(data: object, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return data as a DataFrame with different text names; a NumPy array gets `names`, or x0, x1,
    ...
    """
    if isinstance(data, pd.DataFrame):
        frame = data.copy(deep=False)
        frame.columns = pd.Index([str(name) for name in frame.columns], dtype=object)
    elif is_polars(data):
        frame = _from_polars(data)
    elif isinstance(data, np.ndarray):
        frame = _from_numpy(data, names)
    else:
        raise SchemaError(
            "a pandas or polars DataFrame or a 2-D NumPy array is needed, not "
            f"{type(data).__name__}",
            code="not-a-table",
        )
    twice = [name for name, count in Counter(frame.columns).items() if count > 1]
    if twice:
        raise SchemaError(f"column name {twice[0]!r} is given twice", code="duplicate-columns")
    return frame


def is_polars(data: object) -> bool:
    """Return whether `data` is a polars object."""
    return type(data).__module__.partition(".")[0] == "polars"


def _from_numpy(data: NDArray[Any], names: Sequence[str] | None) -> pd.DataFrame:
    if data.ndim != 2:
        raise SchemaError(
            f"a 2-D array is needed, not one of shape {data.shape}", code="not-two-dimensional"
        )
    names = [f"x{j}" for j in range(data.shape[1])] if names is None else names
    if len(names) != data.shape[1]:
        raise SchemaError(
            f"the array has {data.shape[1]} columns, the schema {len(names)}",
            code="wrong-number-of-columns",
        )
    return pd.DataFrame({name: data[:, j] for j, name in enumerate(names)}, index=range(len(data)))


def _from_polars(data: Any) -> pd.DataFrame:
    if type(data).__name__ == "LazyFrame":
        raise SchemaError(
            "a polars LazyFrame holds no rows yet: call .collect() first", code="lazy-frame"
        )
    columns = {name: polars_series(data.get_column(name)) for name in data.columns}
    return pd.DataFrame(columns, index=range(data.height))


def polars_series(series: Any) -> pd.Series[Any]:
    """Convert a polars column to a pandas one without pyarrow; integers stay exact and an Enum
    keeps its order.
    """
    dtype = series.dtype
    if type(dtype).__name__ == "Enum":
        categories = dtype.categories.to_list()
        return pd.Series(pd.Categorical(series.to_list(), categories=categories, ordered=True))
    if dtype.is_integer() and series.null_count():
        return pd.Series(series.to_list(), dtype="Int64")
    if dtype.is_decimal():
        return pd.Series([None if x is None else float(x) for x in series.to_list()], dtype=float)
    if dtype.is_numeric():
        return pd.Series(series.to_numpy())
    return pd.Series(series.to_list(), dtype=object)


def days(times: pd.Series[Any]) -> pd.Series[Any]:
    """Times as days since 1970-01-01, with fractions; NaN where they are missing."""
    zone = getattr(times.dtype, "tz", None)
    plain = times if zone is None else times.dt.tz_localize(None)
    return (plain - pd.Timestamp(0)) / pd.Timedelta(days=1)


def has_dates(series: pd.Series[Any]) -> bool:
    """Return whether a column holds dates or times, which become days since 1970-01-01."""
    if series.dtype != object:
        return series.dtype.kind == "M"
    return infer_dtype(series.dropna(), skipna=False) in ("datetime", "datetime64", "date")


def unbox(series: pd.Series[Any]) -> pd.Series[Any]:
    """Return the column, with times as days, and objects that are all numbers or all booleans as a
    column of such.
    """
    if series.dtype.kind == "M":
        return days(series)
    if series.dtype != object:
        return series
    content = infer_dtype(series.dropna(), skipna=False)
    if content in ("datetime", "datetime64", "date"):
        return days(pd.to_datetime(series))
    try:
        if content == "integer":
            return series.astype("Int64")
        if content == "boolean":
            return series.astype("boolean")
        if content in ("floating", "mixed-integer-float", "decimal"):
            return series.where(series.notna(), np.nan).astype("float64")
    except OverflowError:
        bad = series.map(_is_beyond_64_bits).to_numpy(dtype=bool)
        refuse(series.name, series, bad, _BEYOND, cure=_TOO_LARGE)
    return series


_BEYOND: Final = "is an integer beyond 64 bits"
_TOO_LARGE: Final = Cure(
    "smaller integers", "correct it, write the column in a larger unit, or leave the column out"
)


def _is_beyond_64_bits(value: object) -> bool:
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63


def numeric_values(series: pd.Series[Any], cure: str | Cure = "") -> NDArray[Any]:
    """Return the present values as int64 or float64; text that spells a number is read as that
    number.

    ``cure`` says in errors what can be done about text that spells none.
    """
    present = series[series.notna()]
    if isinstance(present.dtype, pd.CategoricalDtype):
        present = present.astype(object)
    if is_bool_dtype(present.dtype):
        return present.to_numpy(dtype=np.int64)
    if not is_numeric_dtype(present.dtype):
        present = _parse_numbers(present, cure)
    if present.dtype.kind == "c":
        refuse(series.name, present, np.ones(len(present), bool), "is a complex number")
    if is_integer_dtype(present.dtype):
        too_large = np.asarray(present > np.iinfo(np.int64).max, dtype=bool)
        if too_large.any():
            refuse(series.name, present, too_large, _BEYOND, cure=_TOO_LARGE)
        return present.to_numpy(dtype=np.int64)
    values = present.to_numpy(dtype=np.float64)
    infinite = ~np.isfinite(values)
    if infinite.any():
        refuse(series.name, present, infinite, "is not finite")
    return values


def _parse_numbers(present: pd.Series[Any], cure: str | Cure) -> pd.Series[Any]:
    numbers = read_numbers(present)
    unread = numbers.isna().to_numpy(dtype=bool)
    if unread.any():
        refuse(present.name, present, unread, "is not a number", cure=cure)
    return numbers


def read_numbers(present: pd.Series[Any]) -> pd.Series[Any]:
    """Read numbers, and text that spells some; NaN for everything else, dates among it."""
    if present.dtype.kind in "mM":
        return pd.Series(np.nan, present.index)
    readable = present.map(lambda value: isinstance(value, (str, int, float, np.number))).to_numpy(
        dtype=bool
    )
    return pd.to_numeric(present.where(readable), errors="coerce")


def refuse(
    name: object,
    series: pd.Series[Any],
    bad: Mask,
    reason: str,
    *,
    what: str = "column",
    cure: str | Cure = "",
) -> NoReturn:
    """Raise the error for the first bad row: column, row label, value, reason, how many more there
    are, what to do.
    """
    rows = np.flatnonzero(bad)
    place = f"{what} {name!r}, row {show(series.index[rows[0]])}"
    more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
    raise SchemaError(
        f"{place}: {show(series.iloc[rows[0]])} {reason}{more}",
        ": " if cure else "",
        cure,
        code="unusable-value",
    )


def show(value: object) -> str:
    """Return a value for an error message, NumPy scalars as plain numbers."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def missing_masks(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, Mask]:
    """Return which rows are missing, for those of the columns where any is."""
    masks = {name: frame[name].isna().to_numpy(dtype=bool) for name in names}
    return {name: mask for name, mask in masks.items() if mask.any()}


def bin_for(name: str) -> Cure:
    """Return how a variable of a schema gets a bin for missing values, as a part of an error."""
    return Cure("bin for gaps", f"schema.with_missing_bin({name!r})", {"name": name})


def refuse_missing(masks: dict[str, Mask], index: pd.Index[Any], *, made: bool) -> NoReturn:
    """Raise the error for missing values that nobody said what to do with, in a schema that is
    under way or `made` already.
    """
    where = f"missing values in {describe_missing(masks, index)}"
    if not made:
        cure = Cure(
            "say what becomes of gaps", "infer the schema with missing='bin' or missing='drop'"
        )
        raise SchemaError(f"{where}: fill them in, or ", cure, code="missing-values")
    raise SchemaError(
        f"{where}, and the schema has no bin for them there: fill them in, or leave these rows "
        "out; or, before anything is "
        "encrypted, make one, ",
        bin_for(next(iter(masks))),
        code="missing-without-bin",
    )


def describe_missing(masks: dict[str, Mask], index: pd.Index[Any], most: int = 5) -> str:
    """Describe which columns miss values in which rows, for an error message."""
    parts = []
    for name, mask in masks.items():
        rows = np.flatnonzero(mask)
        shown = ", ".join(show(index[row]) for row in rows[:most])
        more = f", ... ({len(rows)} in all)" if len(rows) > most else ""
        parts.append(f"column {name!r} (row{'s' if len(rows) > 1 else ''} {shown}{more})")
    return "; ".join(parts)
