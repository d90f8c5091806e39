"""From a column of data to a `Variable`: summarise the column, then choose kind and bins.

The summary is kept privately by an inferred schema, so that a kind can be changed without the data;
it holds what any of the kinds would publish to the owner anyway (cut points, levels, least and
greatest value), and no rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from encryptedstats.errors import Cure, SchemaError, SchemaWarning
from encryptedstats.tables.rows.frames import numeric_values, read_numbers
from encryptedstats.tables.schema.bins import fixed_point, quantile_edges
from encryptedstats.tables.schema.variables import (
    BOTH,
    Level,
    Variable,
    as_level,
    as_levels,
    check_kind,
)
from encryptedstats.words import did_you_mean

#: More levels than this are names or measurements, not a category: each would cost an encrypted
#: column.
MOST_LEVELS = 1000
LEAVE_OUT: Final = Cure("leave out", "leave it out")
#: Whole-number columns with at most this many different values are taken for grades.
MOST_GRADES = 10
#: Decimal digits of a number that are kept where nobody says how many, at most.
MOST_SHOWN_DIGITS = 4
#: More classes than this are rarely meant, where they are numbers.
MANY_CLASSES = 20
_MOSTLY_NUMBERS = 0.9
_MOSTLY_DISTINCT = 0.9
_ID_WORDS = ("id", "ids", "uid", "uuid", "guid", "nr", "no", "number", "key", "index")


@dataclass(frozen=True)
class Summary:
    """What all kinds need to know of a column, whatever the order of its rows."""

    name: str
    default_kind: str
    has_missing: bool
    declared: bool  # a Categorical, which declares its levels and their order
    n_distinct: int
    levels: tuple[Level, ...]  # empty when there are more than MOST_LEVELS
    bins: int
    rare: tuple[Level, ...] = ()  # those with too few rows for a bin of their own
    edges: tuple[float, ...] = ()
    low: float = 0
    high: float = 0
    # decimal digits that the numbers show, one more than MOST_SHOWN_DIGITS where they show more
    digits: int = 0
    problem: str = ""  # why the column cannot be read as numbers; empty when it can
    doubt: SchemaWarning | None = (
        None  # why the default kind is probably not what is meant, if it is not
    )


def summarise(
    series: pd.Series[Any],
    bins: int,
    rare: float | None = None,
    weights: NDArray[np.int64] | None = None,
    *,
    dates: bool = False,
) -> Summary:
    """Read a column once, for all kinds.

    Levels with fewer than `rare` rows, or a smaller share of them, are rare. `dates` are days.
    """
    name = str(series.name)
    numbers, problem = _numbers_or_problem(series)
    n_distinct, levels = column_levels(series, f"column {name!r}")
    if not n_distinct:
        raise SchemaError(
            f"column {name!r} has no values at all: ", LEAVE_OUT, code="column-without-values"
        )
    few, levels = ((), levels) if rare is None else _rare_levels(series, levels, rare)
    missing, declared = bool(series.isna().any()), isinstance(series.dtype, pd.CategoricalDtype)
    if problem:
        kind, doubt = (
            _text_kind(series),
            None if declared or few else _doubt(series, n_distinct, problem),
        )
        return Summary(
            name,
            kind,
            missing,
            declared,
            n_distinct,
            levels,
            bins,
            few,
            problem=problem,
            doubt=doubt,
        )
    whole = bool((numbers == np.rint(numbers)).all())
    if _is_number_column(series):
        kind = _number_kind(n_distinct, whole)
    else:
        kind, levels = _text_kind(series), levels if declared else _by_number(levels)
    weights = None if weights is None else weights[series.notna().to_numpy(dtype=bool)]
    edges = tuple(quantile_edges(numbers, bins, weights).tolist())
    if dates and whole:  # a cut between two days is one at the end of the first
        edges = tuple(sorted({float(np.floor(edge)) for edge in edges}))
    low, high = numbers.min().item(), numbers.max().item()
    digits = 0 if whole else _count_shown_digits(numbers)
    if _is_number_column(series):
        doubt = (
            _doubt_numbering(name, numbers)
            if kind == "continuous" and numbers.dtype.kind == "i"
            else None
        )
    else:
        doubt = None if declared else _doubt(series, n_distinct, "")
    return Summary(
        name,
        kind,
        missing,
        declared,
        n_distinct,
        levels,
        bins,
        few,
        edges,
        low,
        high,
        digits,
        doubt=doubt,
    )


def _count_shown_digits(numbers: NDArray[Any]) -> int:
    """Return how many decimal digits the numbers show; one more than is kept if they show more.

    >>> [_count_shown_digits(np.array(numbers)) for numbers in ([1.5, 2.25], [1 / 3])]
    [2, 5]
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers that no integer holds
        for digits in range(MOST_SHOWN_DIGITS + 1):
            scaled = numbers * 10.0**digits
            if bool(
                (np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(1.0, np.abs(scaled))).all()
            ):
                return digits
    return MOST_SHOWN_DIGITS + 1


@dataclass(frozen=True)
class Wishes:
    """What a caller says of the schema that is inferred; see `Schema.infer`.

    `weights` count a row several times, for its quantiles. `compare` is whether columns are
    compared with each other, for warnings.
    """

    bins: int = 5
    kinds: Mapping[str, str] | None = None
    missing: str = "error"
    classes: Iterable[object] | None = None
    kept: Kept = field(default_factory=lambda: Kept())
    rare: float | None = None
    unknown: str = "error"
    id: str | None = None
    weights: NDArray[np.int64] | None = None
    compare: bool = True


@dataclass(frozen=True)
class Kept:
    """Which numbers are kept as numbers, with how many digits, between which bounds."""

    numbers: str = "bins"
    digits: int | Mapping[str, int] | None = None
    bounds: Mapping[str, tuple[float, float]] | None = None

    @property
    def keeps(self) -> bool:
        """Whether numbers are kept, with bins or without."""
        return self.numbers in ("keep", BOTH)

    def is_number(self, summary: Summary | None, wanted: str | None) -> bool:
        """Return whether a column is kept as a number, with bins or without: because it is wanted
        so, or because all measurements are.
        """
        if wanted is not None or summary is None:
            return wanted in ("number", BOTH)
        return (
            self.keeps
            and summary.default_kind in ("continuous", "ordinal")
            and not summary.declared
        )

    def digits_of(self, name: str) -> int | None:
        return self.digits.get(name) if isinstance(self.digits, Mapping) else self.digits

    def bounds_of(self, name: str) -> tuple[float | None, float | None]:
        return (self.bounds or {}).get(name, (None, None))

    def check(
        self, names: Sequence[str], summaries: Mapping[str, Summary], wanted: Mapping[str, str]
    ) -> None:
        """Refuse what cannot be, and what is said of columns that are not there, or are
        no numbers.
        """
        if self.numbers not in ("bins", "keep", BOTH):
            raise SchemaError(
                f"numbers={self.numbers!r}: one of 'bins', 'keep', 'both' is needed",
                code="unknown-numbers-policy",
            )
        kept = [name for name in names if self.is_number(summaries.get(name), wanted.get(name))]
        digits = self.digits if isinstance(self.digits, Mapping) else {}
        for by_name, named in (
            (digits, Cure("digits of columns", "digits= names")),
            (self.bounds or {}, Cure("bounds of columns", "bounds= names")),
        ):
            strange = [name for name in by_name if name not in kept]
            if strange:
                listed = ", ".join(map(repr, kept)) or "none"
                raise SchemaError(
                    named,
                    f" {strange[0]!r}, which is no column that is kept as a number"
                    f"{did_you_mean(strange[0], kept)}; these are {listed}",
                    code="not-kept-as-number",
                )
        if self.digits is not None and not kept:
            raise SchemaError(
                Cure("digits", "digits="),
                " is for numbers that are kept: ",
                Cure("keep all numbers", "numbers='keep'"),
                code="digits-without-numbers",
            )

    def warn_of_rounding(
        self, variables: Sequence[Variable], summaries: Mapping[str, Summary]
    ) -> SchemaWarning | None:
        """Warn of numbers that show more digits than are kept by default."""
        names = [
            v.name
            for v in variables
            if self.digits_of(v.name) is None
            and v.name in summaries
            and summaries[v.name].digits > (v.digits or 0)
        ]
        if not names:
            return None
        listed = ", ".join(map(repr, names[:5])) + (
            f" and {len(names) - 5} more" if len(names) > 5 else ""
        )
        return SchemaWarning(
            f"{listed}: values have more than {MOST_SHOWN_DIGITS} decimal digits and are rounded "
            f"to {MOST_SHOWN_DIGITS}; ",
            Cure("say the digits", "digits= says how many to keep"),
        )


def _rare_levels(
    series: pd.Series[Any], levels: tuple[Level, ...], rare: float
) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
    """Levels with too few rows, and all levels: of more than MOST_LEVELS also, if rows enough have
    those that are not rare.
    """
    counts = {as_level(value): int(n) for value, n in series.value_counts().items()}
    least = rare if rare >= 1 else rare * sum(counts.values())
    known = levels or tuple(sorted(counts, key=_level_order))
    few = tuple(level for level in known if counts.get(level, 0) < least)
    return (few, known) if levels or len(known) - len(few) < MOST_LEVELS else ((), ())


def check_rare(rare: object) -> None:
    """Refuse what is neither a number of rows nor a share of them."""
    is_number = isinstance(rare, (int, float, np.integer, np.floating)) and not isinstance(
        rare, bool
    )
    if rare is None:
        return
    share: Any = rare
    if not (is_number and share > 0 and (share < 1 or share == int(share))):
        raise SchemaError(
            Cure("rare levels", f"rare={rare!r}", {"value": rare}),
            ": a number of rows, such as 5, or a share of them between 0 and 1, such as 0.01",
        )


def _doubt(series: pd.Series[Any], n_distinct: int, problem: str) -> SchemaWarning | None:
    """Warn if a column of text is probably no category."""
    present = series[series.notna()]
    share = float(read_numbers(present).notna().mean()) if problem else 0.0
    became = f"became a categorical with {n_distinct} levels, an encrypted column each"
    if share >= _MOSTLY_NUMBERS and n_distinct > MOST_GRADES:
        return SchemaWarning(
            f"column {series.name!r} has numbers in {int(1000 * share) / 10:g} % of its rows and "
            f"{became}, because of other values "
            f"among them ({problem}): correct these, or leave them empty"
        )
    if len(present) > MANY_CLASSES and n_distinct >= _MOSTLY_DISTINCT * len(present):
        every = "every row" if n_distinct == len(present) else "nearly every row"
        return SchemaWarning(
            f"column {series.name!r} has another value in {every}, as names and ids have, and "
            f"{became}: ",
            LEAVE_OUT,
        )
    return None


def _doubt_numbering(name: str, numbers: NDArray[Any]) -> SchemaWarning | None:
    """Warn if integers are probably no measurements: they count the rows, or are called ids."""
    if len(numbers) <= MANY_CLASSES or len(np.unique(numbers)) < len(numbers):
        return None
    counts_rows = numbers[0] in (0, 1) and bool((np.diff(numbers) == 1).all())
    if not counts_rows and not looks_like_id(name):
        return None
    why = "counts the rows" if counts_rows else "has another whole number in every row, as ids have"
    return SchemaWarning(
        f"column {name!r} {why}, and became a predictor: ",
        LEAVE_OUT,
        ", or make it the id of the rows",
        Cure("name the id", f", id={name!r}", {"name": name}),
    )


def looks_like_id(name: str) -> bool:
    """Return whether a column is called an identifier: ``id``, ``patient_id``, ``PatientID``,
    ``Nr``.

    >>> [looks_like_id(name) for name in ("id", "patient ID", "PatientId", "case-nr")]
    [True, True, True, True]
    >>> [looks_like_id(name) for name in ("acid", "hybrid")]
    [False, False]
    """
    last = name.replace("-", " ").replace("_", " ").replace(".", " ").split(" ")[-1]
    return last.lower() in _ID_WORDS or (last[-2:] in ("Id", "ID") and last[:-2] != "")


def doubtful_columns(
    frame: pd.DataFrame, names: Sequence[str], labels: pd.Series[Any] | None
) -> list[SchemaWarning]:
    """Warn of predictors that are nameless, constant, twice the same, or the target again."""
    doubts: list[SchemaWarning] = []
    seen: dict[bytes, str] = {}
    target = None if labels is None else _partition(labels)
    for name in names:
        if _has_no_name(name):
            nameless = (
                f"column {name!r} has no name in its file, as row numbers have that pandas wrote: "
            )
            doubts.append(SchemaWarning(nameless, LEAVE_OUT, " if it is one"))
        codes = _partition(frame[name])
        if not len(codes) or (codes == codes[0]).all():
            doubts.append(
                SchemaWarning(f"column {name!r} is constant and tells nothing: ", LEAVE_OUT)
            )
            continue
        if len(codes) <= MANY_CLASSES:
            continue  # in a few rows columns are alike by chance
        if target is not None and _has_groups(codes) and np.array_equal(codes, target):
            same = f"column {name!r} says the same as the target in every row: "
            doubts.append(SchemaWarning(same, LEAVE_OUT, ", unless new rows will have it too"))
        content = _content(frame[name], codes)
        if content in seen:
            same = f"column {name!r} says the same as column {seen[content]!r} in every row: "
            doubts.append(SchemaWarning(same, Cure("leave one out", "leave one of them out")))
        seen.setdefault(content, name)
    return doubts


def _has_groups(codes: NDArray[np.int64]) -> bool:
    return 2 * (int(codes.max()) + 1) <= len(codes)


def _content(series: pd.Series[Any], codes: NDArray[np.int64]) -> bytes:
    """Hash what a column tells: which rows are alike, or its values where hardly any are."""
    values = (
        codes if _has_groups(codes) else pd.util.hash_pandas_object(series, index=False).to_numpy()
    )
    return hashlib.sha256(values.tobytes()).digest()


def _partition(series: pd.Series[Any]) -> NDArray[np.int64]:
    """Number the different values of a column; missing ones are alike."""
    try:
        return np.asarray(pd.factorize(series, use_na_sentinel=False)[0], dtype=np.int64)
    except TypeError:  # values that cannot be compared, which are refused elsewhere
        return np.arange(len(series))


def _has_no_name(name: str) -> bool:
    return not name.strip() or (name.startswith("Unnamed: ") and name[9:].isdigit())


def doubtful_target(labels: pd.Series[Any], n_classes: int) -> SchemaWarning | None:
    """Warn if numbers are probably no classes."""
    if n_classes <= MANY_CLASSES or not _is_number_column(labels):
        return None
    return SchemaWarning(
        f"target {labels.name!r} has {n_classes} different numbers, and each became a class: if "
        "it is a measurement, keep it as a number for regressions",
        Cure("keep the target", ", numbers='keep'"),
        ", or cut it into classes for classifiers",
        Cure("cut at the median", f", df[{labels.name!r}] > df[{labels.name!r}].median()"),
    )


def column_levels(series: pd.Series[Any], where: str) -> tuple[int, tuple[Level, ...]]:
    """Return how many different values a column has, and which (none when they are more than
    MOST_LEVELS).

    A Categorical's own order is kept, else numbers by size come before text by alphabet.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        declared = as_levels(series.cat.categories, where)
        return len(declared), declared if len(declared) <= MOST_LEVELS else ()
    try:
        distinct = pd.unique(series[series.notna()])
    except TypeError as error:
        raise SchemaError(f"{where}: {error}", code="unhashable-value") from None
    if len(distinct) > MOST_LEVELS:
        return len(distinct), ()
    # One by one and then as a set: 1, 1.0 and True are the same label, as they are in Python.
    levels = {level for value in distinct for level in as_levels([value], where)}
    return len(levels), tuple(sorted(levels, key=_level_order))


def _level_order(level: Level) -> tuple[bool, Level]:
    return isinstance(level, str), level


def _by_number(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Sort text that spells numbers by the numbers: "2" before "10"."""
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
    """Return the kind of numbers: whole with at most 2 values categorical, with at most 10 ordinal,
    else continuous.
    """
    if whole and n_distinct <= 2:
        return "categorical"
    return "ordinal" if whole and n_distinct <= MOST_GRADES else "continuous"


def _text_kind(series: pd.Series[Any]) -> str:
    ordered = isinstance(series.dtype, pd.CategoricalDtype) and series.cat.ordered
    return "ordinal" if ordered else "categorical"


def make_variable(summary: Summary, kind: str, *, missing_bin: bool) -> Variable:
    """Make the binned variable of this kind for a column that was summarised."""
    check_kind(kind, f"column {summary.name!r}")
    many = summary.n_distinct > summary.bins and not summary.declared and not summary.problem
    if kind == "continuous" or (kind == "ordinal" and many):
        check_numeric(summary, kind)
        edges, asked = summary.edges, summary.bins
        return Variable(summary.name, kind, edges=edges, missing_bin=missing_bin, asked_bins=asked)
    if not summary.levels:
        raise SchemaError(
            f"column {summary.name!r} has {summary.n_distinct} different values; kind {kind!r} "
            "takes at most "
            f"{MOST_LEVELS}: ",
            Cure(
                "fewer levels",
                "leave the column out, give it another kind, let rare= join those of few rows, or "
                "give levels=",
            ),
            f". As numbers it cannot be read: {summary.problem}" if summary.problem else "",
        )
    variable = Variable(summary.name, kind, levels=summary.levels, missing_bin=missing_bin)
    return variable.with_rare(summary.rare) if kind == "categorical" else variable


def make_number(
    name: str, summary: Summary | None, digits: int | None, low: float | None, high: float | None
) -> Variable:
    """Make a fixed-point variable.

    By default digits are those shown, and bounds powers of two around all values.
    """
    if low is None or high is None or digits is None:
        if summary is None:
            raise SchemaError(
                f"variable {name!r}: without data a number needs digits=, low= and high=",
                code="number-without-range",
            )
        check_numeric(summary, "number")
        digits = min(summary.digits, MOST_SHOWN_DIGITS) if digits is None else digits
    try:
        low_bound = _public_bound(low, None if summary is None else summary.low, digits, min)
        high_bound = _public_bound(high, None if summary is None else summary.high, digits, max)
    except SchemaError as error:
        raise SchemaError(f"variable {name!r}: {error}") from None
    return Variable(name, "number", digits=digits, low=low_bound, high=high_bound)


def _public_bound(
    wished: float | None, seen: float | None, digits: int, outer: Callable[[int, int], int]
) -> int:
    """Return a bound as a fixed-point integer; by default a power of two (or 0) beyond the data.

    Bounds are public, and the exact extremes would be the values of two rows.
    """
    if wished is not None:
        return int(fixed_point(wished, digits))
    value = int(fixed_point(0.0 if seen is None else seen, digits))
    power = 1 << (abs(value) - 1).bit_length() if value else 0
    return outer(-power if value < 0 else power, 0)


def with_number_bins(number: Variable, summary: Summary | None) -> Variable:
    """Return a number that has bins as well, cut where inference would cut it."""
    if summary is None:
        raise SchemaError(
            f"variable {number.name!r}: a number that has bins as well needs cut points: ",
            Cure("cut points", "with_bins(name, edges=[...]) first"),
        )
    if not summary.edges:
        return number
    return replace(number, edges=summary.edges, asked_bins=summary.bins)


def check_numeric(summary: Summary, kind: str) -> None:
    """Refuse a kind that needs numbers for a column of something else."""
    if summary.problem:
        raise SchemaError(f"kind {kind!r} needs numbers: {summary.problem}", code="not-a-number")
