"""From a column of data to a `Variable`: a compact summary of the column, then the rule that picks kind and bins.

The summary is kept privately by an inferred schema, so that a kind can be changed without the data; it holds what any of
the kinds would publish to the owner anyway (cut points, levels, least and greatest value), and no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from encryptedstats.errors import Cure, SchemaError, SchemaWarning
from encryptedstats.tables._frames import numeric_values, read_numbers
from encryptedstats.tables.binning import fixed_point, quantile_edges
from encryptedstats.tables.variables import Level, Variable, as_levels, check_kind

#: More levels than this are names or measurements, not a category: each would cost an encrypted column.
MOST_LEVELS = 1000
LEAVE_OUT: Final = Cure("leave out", "leave it out")
#: Whole-number columns with at most this many different values are taken for grades.
MOST_GRADES = 10
DEFAULT_DIGITS = 2
#: More classes than this are rarely meant, where they are numbers.
MANY_CLASSES = 20
_MOSTLY_NUMBERS = 0.9


@dataclass(frozen=True)
class Summary:
    """What the kinds need to know about a column: nothing here depends on the order of the rows."""

    name: str
    default_kind: str
    has_missing: bool
    declared: bool  # a Categorical, which declares its levels and their order
    n_distinct: int
    levels: tuple[Level, ...]  # empty when there are more than MOST_LEVELS
    bins: int
    edges: tuple[float, ...] = ()
    low: float = 0
    high: float = 0
    whole: bool = False
    problem: str = ""  # why the column cannot be read as numbers; empty when it can
    doubt: str | SchemaWarning = ""  # why the default kind is probably not what is meant; empty when it is


def summarise(series: pd.Series[Any], bins: int) -> Summary:
    """Read a column once, for all kinds."""
    name = str(series.name)
    numbers, problem = _numbers_or_problem(series)
    n_distinct, levels = column_levels(series, f"column {name!r}")
    if not n_distinct:
        raise SchemaError(f"column {name!r} has no values at all: ", LEAVE_OUT)
    missing, declared = bool(series.isna().any()), isinstance(series.dtype, pd.CategoricalDtype)
    if problem:
        kind, doubt = _text_kind(series), "" if declared else _doubt(series, n_distinct, problem)
        return Summary(name, kind, missing, declared, n_distinct, levels, bins, problem=problem, doubt=doubt)
    whole = bool((numbers == np.rint(numbers)).all())
    if _is_number_column(series):
        kind = _number_kind(n_distinct, whole)
    else:
        kind, levels = _text_kind(series), levels if declared else _by_number(levels)
    edges = tuple(quantile_edges(numbers, bins).tolist())
    low, high = numbers.min().item(), numbers.max().item()
    doubt = "" if declared or _is_number_column(series) else _doubt(series, n_distinct, "")
    return Summary(name, kind, missing, declared, n_distinct, levels, bins, edges, low, high, whole, doubt=doubt)


def _doubt(series: pd.Series[Any], n_distinct: int, problem: str) -> str | SchemaWarning:
    """What speaks against taking a column of text for a category."""
    present = series[series.notna()]
    share = float(read_numbers(present).notna().mean()) if problem else 0.0
    became = f"became a categorical with {n_distinct} levels, an encrypted column each"
    if share >= _MOSTLY_NUMBERS and n_distinct > MOST_GRADES:
        return (
            f"column {series.name!r} has numbers in {int(1000 * share) / 10:g} % of its rows and {became}, because of other values "
            f"among them ({problem}): correct these, or leave them empty"
        )
    if n_distinct == len(present) > MANY_CLASSES:
        return SchemaWarning(
            f"column {series.name!r} has another value in every row, as names and ids have, and {became}: ", LEAVE_OUT
        )
    return ""


def doubtful_target(labels: pd.Series[Any], n_classes: int) -> str:
    """What speaks against taking numbers for classes; empty if nothing does."""
    if n_classes <= MANY_CLASSES or not _is_number_column(labels):
        return ""
    return (
        f"target {labels.name!r} has {n_classes} different numbers, and each became a class: if it is a measurement, cut it into "
        f"classes first, for example at its median, df[{labels.name!r}] > df[{labels.name!r}].median()"
    )


def column_levels(series: pd.Series[Any], where: str) -> tuple[int, tuple[Level, ...]]:
    """How many different values a column has, and which (none when they are more than MOST_LEVELS).

    A Categorical's own order is kept, else numbers by size come before text by alphabet.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        declared = as_levels(series.cat.categories, where)
        return len(declared), declared if len(declared) <= MOST_LEVELS else ()
    try:
        distinct = pd.unique(series[series.notna()])
    except TypeError as error:
        raise SchemaError(f"{where}: {error}") from None
    if len(distinct) > MOST_LEVELS:
        return len(distinct), ()
    # One by one and then as a set: 1, 1.0 and True are the same label, as they are in Python.
    levels = {level for value in distinct for level in as_levels([value], where)}
    return len(levels), tuple(sorted(levels, key=_level_order))


def _level_order(level: Level) -> tuple[bool, Level]:
    return isinstance(level, str), level


def _by_number(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Text that spells numbers in the order of the numbers: "2" before "10"."""
    numbers = pd.to_numeric(pd.Series(levels, dtype=object)).to_numpy(dtype=np.float64)
    return tuple(levels[position] for position in np.argsort(numbers, kind="stable"))


def _is_number_column(series: pd.Series[Any]) -> bool:
    return is_numeric_dtype(series.dtype) and not is_bool_dtype(series.dtype)


def _numbers_or_problem(series: pd.Series[Any]) -> tuple[Any, str]:
    try:
        numbers = numeric_values(series)
    except SchemaError as error:
        if _is_number_column(series):
            raise
        return None, str(error)
    return (numbers, "") if numbers.size else (None, f"column {series.name!r} has no values")


def _number_kind(n_distinct: int, whole: bool) -> str:
    """The rule for numbers: whole with at most 2 values categorical, with at most 10 ordinal, else continuous."""
    if whole and n_distinct <= 2:
        return "categorical"
    return "ordinal" if whole and n_distinct <= MOST_GRADES else "continuous"


def _text_kind(series: pd.Series[Any]) -> str:
    ordered = isinstance(series.dtype, pd.CategoricalDtype) and series.cat.ordered
    return "ordinal" if ordered else "categorical"


def make_variable(summary: Summary, kind: str, *, missing_bin: bool) -> Variable:
    """The binned variable of this kind for the column that was summarised."""
    check_kind(kind, f"column {summary.name!r}")
    many = summary.n_distinct > summary.bins and not summary.declared and not summary.problem
    if kind == "continuous" or (kind == "ordinal" and many):
        check_numeric(summary, kind)
        edges, asked = summary.edges, summary.bins
        return Variable(summary.name, kind, edges=edges, missing_bin=missing_bin, asked_bins=asked)
    if not summary.levels:
        raise SchemaError(
            f"column {summary.name!r} has {summary.n_distinct} different values; kind {kind!r} takes at most "
            f"{MOST_LEVELS}: ",
            Cure("fewer levels", "leave the column out, give it another kind, or give levels="),
            f". As numbers it cannot be read: {summary.problem}" if summary.problem else "",
        )
    return Variable(summary.name, kind, levels=summary.levels, missing_bin=missing_bin)


def make_number(
    name: str, summary: Summary | None, digits: int | None, low: float | None, high: float | None
) -> Variable:
    """A fixed-point variable; bounds (in real units) that are not given are powers of two around what was seen."""
    if low is None or high is None or digits is None:
        if summary is None:
            raise SchemaError(f"variable {name!r}: without data a number needs digits=, low= and high=")
        check_numeric(summary, "number")
        digits = (0 if summary.whole else DEFAULT_DIGITS) if digits is None else digits
    try:
        low_bound = _public_bound(low, None if summary is None else summary.low, digits, min)
        high_bound = _public_bound(high, None if summary is None else summary.high, digits, max)
    except SchemaError as error:
        raise SchemaError(f"variable {name!r}: {error}") from None
    return Variable(name, "number", digits=digits, low=low_bound, high=high_bound)


def _public_bound(given: float | None, seen: float | None, digits: int, outer: Callable[[int, int], int]) -> int:
    """A bound as a fixed-point integer. One that is not given is rounded out from what was seen to a power of two (or 0).

    Bounds are public, and the exact extremes would be the values of two rows.
    """
    if given is not None:
        return int(fixed_point(given, digits))
    value = int(fixed_point(0.0 if seen is None else seen, digits))
    power = 1 << (abs(value) - 1).bit_length() if value else 0
    return outer(-power if value < 0 else power, 0)


def check_numeric(summary: Summary, kind: str) -> None:
    """Refuse a kind that needs numbers for a column of something else."""
    if summary.problem:
        raise SchemaError(f"kind {kind!r} needs numbers: {summary.problem}")
