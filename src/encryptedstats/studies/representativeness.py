"""Compare the linked people of a site with those who could not be linked.

Links are seldom missing at random: people with typing errors, or who have moved, are often others
than the rest. A site makes this table at home, of its own rows, and sends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_MOST_LEVELS: Final = 20  # a column of texts with more is a name or a remark
_COLUMNS: Final = ["column", "level", "linked", "unlinked", "difference"]


def compare_linked(
    rows: pd.DataFrame, is_linked: NDArray[np.bool_], identifiers: Collection[str]
) -> pd.DataFrame:
    """Return means of numbers and shares of levels among linked people and among the others.

    Parameters
    ----------
    rows : DataFrame
        One row for each person, with any columns.
    is_linked : array of bool
    identifiers : collection of str
        Columns to leave out.

    Examples
    --------
    >>> rows = pd.DataFrame({"age": [30, 40, 50, 60], "sex": list("fmff")})
    >>> compare_linked(rows, np.array([True, True, False, False]), []).round(2).reset_index()
       column level  linked  unlinked  difference
    0  people           2.0       2.0         NaN
    1     age  mean    35.0      55.0       -2.83
    2     sex     f     0.5       1.0       -1.41
    3     sex     m     0.5       0.0        1.41
    """
    parts = rows[is_linked], rows[~is_linked]
    found = [("people", "", float(len(parts[0])), float(len(parts[1])), math.nan)]
    for name in rows.columns:
        if name not in identifiers:
            found += _compare_column(str(name), *(part[name] for part in parts))
    return pd.DataFrame(found, columns=_COLUMNS).set_index(["column", "level"])


def _compare_column(
    name: str, linked: pd.Series, unlinked: pd.Series
) -> Iterator[tuple[str, str, float, float, float]]:
    if pd.api.types.is_numeric_dtype(linked) and not pd.api.types.is_bool_dtype(linked):
        numbers = [one.dropna().astype(float) for one in (linked, unlinked)]
        yield (name, "mean", *_standardise(numbers, ddof=1))
        return
    levels = sorted({*linked.dropna().unique(), *unlinked.dropna().unique()}, key=str)
    if len(levels) > _MOST_LEVELS:
        return
    for level in levels:
        has_level = [(one.dropna() == level).astype(float) for one in (linked, unlinked)]
        yield (name, str(level), *_standardise(has_level, ddof=0))


def _standardise(groups: list[pd.Series], ddof: int) -> tuple[float, float, float]:
    """Return both means and their difference, divided by the root of the mean variance."""
    one, other = (float(group.mean()) for group in groups)
    spread = math.sqrt(sum(float(group.var(ddof=ddof)) for group in groups) / 2)
    return one, other, (one - other) / spread if spread else math.nan
