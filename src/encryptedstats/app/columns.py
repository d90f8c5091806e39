"""The rows and their columns: reading the file that was chosen, noticing when it changes, and a
schema from what the owner wants.

Everything is the library's: :func:`read_frame` reads, :class:`Schema` infers. Here is what a form
needs besides.
"""

from __future__ import annotations

import csv
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

import encryptedstats as es
from encryptedstats.app.projects import Bounds, Choices, Data, private_folder
from encryptedstats.app.words import in_page_words
from encryptedstats.storage.files import PRIVATE, open_regular, write_atomic
from encryptedstats.tables import Variable
from encryptedstats.tables.questions.parameters import value_of
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions
from encryptedstats.tables.rows.row_files import PARQUET_SUFFIXES, read_frame
from encryptedstats.tables.schema.inference import looks_like_id
from encryptedstats.tables.schema.schema import MISSING_POLICIES
from encryptedstats.tables.schema.variables import as_level
from encryptedstats.views import label_text
from encryptedstats.words import plural

KINDS: Final = ("continuous", "ordinal", "categorical", "number", "both")
LEFT_OUT: Final = "out"
AS_FOUND: Final = "auto"
#: Names of files that are offered; what is in them is looked at when one is chosen.
EXCEL: Final = ".xlsx"
SUFFIXES: Final = (
    ".csv", ".tsv", ".txt", ".csv.gz", ".csv.bz2", ".csv.xz", EXCEL, *PARQUET_SUFFIXES
)  # fmt: skip
_READ_AT_ONCE: Final = 1 << 20
_BARS: Final = 24
MOST_LEVELS: Final = 12
_MOST_LABELS: Final = 6
_MOST_TEXTS: Final = 200  # different values of a column of text that questions may be asked of


class ChangedError(es.EncryptedStatsError, ValueError):
    """The file of rows is not what it was when it was chosen."""


def look_at(path: Path, *, copied: bool) -> Data:
    """Describe a file of rows as it is now."""
    frame, found = frame_of(path), path.stat()
    return Data(
        path=str(path),
        bytes=found.st_size,
        modified=found.st_mtime_ns,
        sha256=_sha256(path),
        rows=len(frame),
        columns=list(map(str, frame.columns)),
        copied=copied,
    )


def as_csv(path: Path, folder: Path) -> Path:
    """Return a file of rows as the library reads it: the first sheet of an Excel file becomes a CSV
    file in a folder, readable to its user only.
    """
    if path.suffix.lower() != EXCEL:
        return path
    try:
        frame = pd.read_excel(path, dtype=object, engine="openpyxl")
    except (ValueError, KeyError, BadZipFile) as error:
        raise es.SchemaError(
            f"{path.name} is not an Excel file that can be read: save it as CSV, and choose that",
            code="malformed-excel",
        ) from error
    private_folder(folder)
    made = folder / f"{safe_name(path.stem)}"
    write_atomic(made, [frame.to_csv(index=False).encode()], mode=PRIVATE)
    return made


def check_unchanged(data: Data) -> None:
    """Refuse a file that has other contents than when it was chosen."""
    found = os.stat(data.path)
    if (found.st_size, found.st_mtime_ns) == (data.bytes, data.modified):
        return
    if found.st_size != data.bytes or _sha256(Path(data.path)) != data.sha256:
        raise ChangedError(
            f"{data.path} has changed since you chose it. Choose it again in the step Data, and "
            "look at its columns",
            code="changed-file",
        )


def frame_of(path: Path, ignored: frozenset[str] = frozenset()) -> pd.DataFrame:
    """Read all rows of a file. The last few files stay in memory."""
    return _read(path, ignored)[0]


def _read(path: Path, ignored: frozenset[str]) -> tuple[pd.DataFrame, CsvFormat | None]:
    found = os.stat(path)
    return _read_cached(str(path), found.st_size, found.st_mtime_ns, ignored)


@lru_cache(maxsize=3)
def _read_cached(
    path: str, size: int, modified: int, ignored: frozenset[str]
) -> tuple[pd.DataFrame, CsvFormat | None]:
    formats: list[CsvFormat] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.SchemaWarning)
        frame = read_frame(path, None, CsvOptions(ignored=ignored), formats.append)
    return frame, formats[0] if formats else None


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with open_regular(path) as file:
        while part := file.read(_READ_AT_ONCE):
            found.update(part)
    return found.hexdigest()


# -- the schema
# ------------------------------------------------------------------------------------------------

#: What a question needs of a column.
NUMBER, BINS, TIMES = "number", "bins", "times"
_MOST_TIMES: Final = 120  # points of a grid of times; more are cut into bins


@dataclass(frozen=True)
class Made:
    """A schema, what is doubtful about it, and the rows that it was made from."""

    schema: es.Schema
    doubts: tuple[str, ...]
    frame: pd.DataFrame


class MissingValuesError(es.EncryptedStatsError, ValueError):
    """Nobody has said yet what becomes of missing values."""


def draft(data: Data, choices: Choices, need: str) -> es.Schema:
    """Return a schema of all columns, with measurements kept as numbers or cut into bins.

    It tells which questions can be asked. Rows with gaps are left out of it, and the target may be
    missing.
    """
    kinds = {
        name: use
        for name, use in choices.uses.items()
        if use in KINDS and use not in (NUMBER, "both")
    }
    file, ignored = (data.path, data.bytes, data.modified), _names_to_ignore(data, choices)
    return _make_cached_draft(
        file, ignored, choices.target, need, choices.bins, frozenset(kinds.items())
    )


@lru_cache(maxsize=8)
def _make_cached_draft(
    file: tuple[str, int, int],
    ignored: frozenset[str],
    target: str,
    need: str,
    bins: int,
    kinds: frozenset[tuple[str, str]],
) -> es.Schema:
    frame, _ = _read_cached(*file, ignored)
    frame = frame.drop(
        columns=[
            name
            for name in map(str, frame.columns)
            if name in ignored
            or not frame[name].notna().any()
            or (not is_numeric_dtype(frame[name].dtype) and frame[name].nunique() > _MOST_TEXTS)
        ]
    )
    known = {name: kind for name, kind in kinds if name in frame.columns and name != target}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.SchemaWarning)
        return es.Schema.infer(
            frame,
            target=target or None,
            bins=bins,
            kinds=known,
            missing="drop",
            numbers="keep" if need == NUMBER else "bins",
        )


def with_times(schema: es.Schema, data: Data, name: str) -> es.Schema:
    """Return the schema with a level for every point in time, if a column has few whole numbers.

    Curves and hazards then change where events happen, and not at the quantiles of all times.
    """
    present = frame_of(Path(data.path))[name].dropna()
    if not is_numeric(present) or not len(present) or not (present == present.round()).all():
        return schema
    low, high = min(1, int(present.min())), int(present.max())
    if high - low >= _MOST_TIMES:
        return schema
    return schema.with_kind(name, "ordinal", levels=range(low, high + 1))


def _names_to_ignore(data: Data, choices: Choices) -> frozenset[str]:
    left_out = (name for name, use in choices.uses.items() if use == LEFT_OUT)
    return frozenset([*left_out, *([choices.id] if choices.id else [])]) & frozenset(data.columns)


def make_schema(data: Data, choices: Choices, needs: Mapping[str, set[str]]) -> Made:
    """Return the schema of the columns that the questions need, as they need them; kinds, cut
    points and levels are as the owner wants them.
    """
    left_out = frozenset(
        name
        for name in data.columns
        if name not in needs and name not in (choices.target, choices.id)
    )
    frame, form = _read(Path(data.path), left_out | _names_to_ignore(data, choices))
    used = frame.drop(columns=sorted(left_out))
    gaps = used.drop(columns=[choices.id] if choices.id else []).isna().any(axis=1)
    if gaps.any() and not choices.missing:
        raise MissingValuesError(
            f"{plural(int(gaps.sum()), 'row')} of {len(used):,} have missing values: say below "
            "what "
            "becomes of them",
            code="missing-values-undecided",
        )
    target_number = NUMBER in needs.get(choices.target, ())
    binned = draft(data, choices, BINS)
    kinds = {
        name: kind_of(name, uses, choices, binned)
        for name, uses in needs.items()
        if name != choices.target and name in used.columns
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", es.SchemaWarning)
        made = es.Schema.infer(
            used,
            target=choices.target or None,
            bins=choices.bins,
            kinds=kinds,
            missing=choices.missing or "error",
            numbers="keep" if target_number else "bins",
            rare=_rare(choices.rare),
            unknown=choices.unknown,
            id=choices.id or None,
        )
        for name, uses in needs.items():
            is_time = TIMES in uses and NUMBER not in uses and name != choices.target
            is_free = choices.uses.get(name, AS_FOUND) == AS_FOUND and not choices.cuts.get(name)
            if is_time and is_free and name in made.names:
                made = with_times(made, data, name)
        for name, (low, high) in choices.bounds.items():
            kind = NUMBER if name == choices.target and target_number else kinds.get(name)
            if kind in (NUMBER, "both"):
                made = made.with_kind(name, kind, low=low, high=high)
        for name, text in choices.cuts.items():
            if text.strip() and name in made.names and made[name].n_bins:
                made = made.with_bins(name, edges=_cut_points(text, name))
        for name, text in choices.levels.items():
            made = _with_levels(made, name, text)
    doubts = dict.fromkeys(
        in_page_words(one.message) for one in caught if isinstance(one.message, Warning)
    )
    return Made(replace(made, csv=form), tuple(doubts), frame)


def _with_levels(schema: es.Schema, name: str, text: str) -> es.Schema:
    """Return the schema with further levels of a column, which other rows than these have."""
    is_target = name == schema.target
    known = schema.classes if is_target else schema[name].levels if name in schema.names else ()
    wanted = [as_level(value_of(one)) for one in next(csv.reader([text], skipinitialspace=True))]
    more = [one for one in wanted if one not in known]
    if not known or not more:
        return schema
    if is_target:
        return schema.with_classes([*known, *more])
    return schema.with_kind(name, schema[name].kind, levels=[*known, *more])


def kind_of(name: str, uses: set[str], choices: Choices, binned: es.Schema) -> str:
    """Return the kind that a column gets: what the owner says, or what the questions need."""
    wanted = choices.uses.get(name, AS_FOUND)
    if wanted in KINDS:
        return wanted
    if NUMBER in uses and len(uses) > 1:
        return "both"
    return NUMBER if NUMBER in uses else binned[name].kind


def choices_in(form: Any, before: Choices, data: Data) -> Choices:
    """Return what a form that was sent says; ValueError where it says what cannot be. Columns that
    the form does not have stay as they were.
    """
    uses, cuts = dict(before.uses), dict(before.cuts)
    bounds, levels = dict(before.bounds), dict(before.levels)
    for place, name in enumerate(data.columns):
        if f"low-{place}" in form:
            bounds.pop(name, None)
            if span := _bounds_in(form[f"low-{place}"], form.get(f"high-{place}", ""), name):
                bounds[name] = span
        if f"more-{place}" in form:
            levels[name] = form[f"more-{place}"].strip()
        if f"use-{place}" in form:
            uses[name] = form[f"use-{place}"]
        if f"cuts-{place}" in form:
            cuts[name] = form[f"cuts-{place}"].strip()
    missing = form.get("missing", before.missing)
    if missing not in ("", *MISSING_POLICIES):
        raise es.ArgumentError(
            f"missing values: {missing!r} is none of {', '.join(MISSING_POLICIES)}",
            code="unknown-choice",
        )
    bins = form.get("bins", str(before.bins))
    if not bins.isdigit():
        raise es.ArgumentError(f"bins: {bins!r} is no whole number", code="not-an-integer")
    return Choices(
        target=before.target,
        id=before.id,
        bins=int(bins),
        missing=missing,
        unknown=form.get("unknown", before.unknown),
        rare=form.get("rare", before.rare).strip(),
        uses={name: use for name, use in uses.items() if use in (*KINDS, LEFT_OUT)},
        cuts={name: text for name, text in cuts.items() if text},
        bounds=bounds,
        levels={name: text for name, text in levels.items() if text},
    )


def _bounds_in(low: str, high: str, name: str) -> Bounds | None:
    """Return the bounds of a number that a form gives; None where it gives none."""
    try:
        found = (float(low) if low.strip() else None, float(high) if high.strip() else None)
    except ValueError:
        found = (1.0, 0.0)
    if found[0] is not None and found[1] is not None and not found[0] < found[1]:
        raise es.ArgumentError(
            f"{name}: give its least and its greatest value at any site, such as 0 and 120",
            code="not-a-number",
        )
    return None if found == (None, None) else found


def find_id(frame: pd.DataFrame) -> str:
    """Return the column that tells rows apart, by its name and values, or nothing."""
    for name in map(str, frame.columns):
        column = frame[name]
        is_text = not is_numeric_dtype(column.dtype) and len(frame) > MOST_LEVELS
        if column.nunique() == len(frame) > 1 and (looks_like_id(name) or is_text):
            return name
    return ""


def levels_by_column(data: Data, choices: Choices) -> dict[str, tuple[Any, ...]]:
    """Return the levels of the columns that have a few: what a form offers."""
    schema = draft(data, choices, NUMBER)
    found: dict[str, tuple[Any, ...]] = {
        one.name: one.levels for one in schema.variables if one.levels
    }
    if schema.target is not None and schema.classes:
        found[schema.target] = schema.classes
    return {name: levels for name, levels in found.items() if len(levels) <= MOST_LEVELS}


def _rare(text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise es.ArgumentError(f"rare levels: {text!r} is no number", code="not-a-number") from None
    return int(value) if value >= 1 and value == int(value) else value


def _cut_points(text: str, name: str) -> list[float]:
    items = next(csv.reader([text.replace(";", ",")], skipinitialspace=True), [])
    try:
        return [float(one) for one in items]
    except ValueError:
        raise es.ArgumentError(
            f"{name}: the cut points {text!r} are not all numbers, as in 18, 40, 65",
            code="not-a-number",
        ) from None


def words_of(variable: Variable) -> str:
    """Return what is encrypted of a variable, in words."""
    labels = list(map(label_text, variable.labels))
    shown = labels if len(labels) <= _MOST_LABELS else [*labels[:3], "…", *labels[-2:]]
    noun = "level" if variable.levels else "bin"
    bins = f"{plural(len(labels), noun)}: {'; '.join(shown)}"
    if variable.kind != NUMBER:
        return bins
    digits = variable.digits or 0
    low, high = ((bound or 0) / 10**digits for bound in (variable.low, variable.high))
    gaps = "; values may be missing" if variable.missing_bin else ""
    kind, decimals = (
        ("numbers", f", with {plural(digits, 'decimal')}") if digits else ("whole numbers", "")
    )
    numbers = f"{kind} from {low:g} to {high:g}{decimals}{gaps}"
    return f"{numbers}; and {bins}" if labels else numbers


# -- drawings
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bars:
    """How many rows have which value: for a drawing beside a column."""

    heights: tuple[int, ...]
    edges: tuple[float, ...]  # where bins are cut, as shares of the width
    labels: tuple[str, ...]  # one for each bar, or the least and the greatest value
    are_levels: bool

    @property
    def tallest(self) -> int:
        """Rows of the tallest bar."""
        return max((1, *self.heights))

    @property
    def words(self) -> str:
        """The drawing as text, for screen readers."""
        if self.are_levels:
            return ", ".join(
                f"{label}: {n:,}" for label, n in zip(self.labels, self.heights, strict=True)
            )
        return f"from {self.labels[0]} to {self.labels[1]}" if self.labels else "no values"


def is_numeric(column: pd.Series[Any]) -> bool:
    """Return whether the values of a column are numbers."""
    return bool(is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype))


def bars_of(column: pd.Series[Any], variable: Variable | None) -> Bars:
    """Count the values of a column, with the cut points of its variable."""
    present = column.dropna()
    numeric = is_numeric(column)
    levels = variable is not None and bool(variable.levels)
    if not numeric or (levels and present.nunique() <= MOST_LEVELS):
        counted = present.astype(str).value_counts()
        if variable is not None and variable.levels:
            known = [text for text in map(str, variable.levels) if text in counted.index]
            counted = counted.reindex([*known, *(one for one in counted.index if one not in known)])
        counted = counted.head(MOST_LEVELS)
        return Bars(tuple(map(int, counted)), (), tuple(map(str, counted.index)), True)
    numbers = present.to_numpy(dtype=np.float64)
    if not len(numbers):
        return Bars((), (), (), False)
    low, high = float(numbers.min()), float(numbers.max())
    heights = np.histogram(numbers, _BARS, (low, high) if high > low else (low - 0.5, low + 0.5))[0]
    cuts = variable.edges if variable is not None else ()
    shares = tuple((edge - low) / (high - low) for edge in cuts if high > low and low < edge < high)
    return Bars(tuple(map(int, heights)), shares, (f"{low:g}", f"{high:g}"), False)


# -- finding files
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileEntry:
    """A line of the file list."""

    name: str
    path: str
    is_folder: bool
    bytes: int


def list_folder(folder: Path) -> Iterator[FileEntry]:
    """Yield folders, then files of rows, by name, without hidden and unreadable ones."""
    found: list[FileEntry] = []
    with os.scandir(folder) as entries:
        for one in entries:
            try:
                is_folder = one.is_dir()
                if not one.name.startswith(".") and (is_folder or _is_rows(one.name)):
                    found.append(
                        FileEntry(
                            one.name, one.path, is_folder, 0 if is_folder else one.stat().st_size
                        )
                    )
            except OSError:
                continue
    yield from sorted(found, key=lambda one: (not one.is_folder, one.name.lower()))


def _is_rows(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def safe_name(name: str) -> str:
    """Return a safe file name for a file that was dropped, without any folder.

    >>> safe_name("../../etc/passwd"), safe_name("my rows.csv"), safe_name(".parquet")
    ('passwd.csv', 'my_rows.csv', 'rows.parquet')
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    text = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in last)[-80:]
    suffix = next(
        (one for one in sorted(SUFFIXES, key=len, reverse=True) if text.lower().endswith(one)), ""
    )
    stem = (text[: len(text) - len(suffix)] if suffix else text).strip(".") or "rows"
    return f"{stem}{suffix.lower() or '.csv'}"
