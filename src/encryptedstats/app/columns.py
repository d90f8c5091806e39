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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

import encryptedstats as es
from encryptedstats.app.projects import Choices, Data
from encryptedstats.app.words import in_page_words
from encryptedstats.storage.files import open_regular
from encryptedstats.tables import Variable
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions
from encryptedstats.tables.rows.row_files import PARQUET_SUFFIXES, read_frame
from encryptedstats.tables.schema.schema import MISSING_POLICIES
from encryptedstats.words import plural

KINDS: Final = ("continuous", "ordinal", "categorical", "number")
LEFT_OUT: Final = "out"
AS_FOUND: Final = "auto"
#: Names of files that are offered; what is in them is looked at when one is chosen.
SUFFIXES: Final = (".csv", ".tsv", ".txt", ".csv.gz", ".csv.bz2", ".csv.xz", *PARQUET_SUFFIXES)
_READ_AT_ONCE: Final = 1 << 20
_BARS: Final = 24
_MOST_LEVELS: Final = 12


class ChangedError(es.EncryptedStatsError, ValueError):
    """The file of rows is not what it was when it was chosen."""


def look_at(path: Path, *, copied: bool) -> Data:
    """A file of rows, as it is now."""
    frame = frame_of(path)
    found = path.stat()
    return Data(
        str(path),
        found.st_size,
        found.st_mtime_ns,
        _sha256(path),
        len(frame),
        list(map(str, frame.columns)),
        copied,
    )


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
    """All rows of a file; the last few that were read are kept in memory."""
    return _read(path, ignored)[0]


def _read(path: Path, ignored: frozenset[str]) -> tuple[pd.DataFrame, CsvFormat | None]:
    found = os.stat(path)
    return _kept(str(path), found.st_size, found.st_mtime_ns, ignored)


@lru_cache(maxsize=3)
def _kept(
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


@dataclass(frozen=True)
class Made:
    """A schema, what is doubtful about it, and the rows that it was made from."""

    schema: es.Schema
    doubts: tuple[str, ...]
    frame: pd.DataFrame


def make_schema(data: Data, choices: Choices) -> Made:
    """The schema that the rows and the owner's choices make."""
    left_out = [
        name for name, use in choices.uses.items() if use == LEFT_OUT and name in data.columns
    ]
    ignored = frozenset([*left_out, *([choices.id] if choices.id else [])])
    frame, form = _read(Path(data.path), ignored)
    kinds = {
        name: use
        for name, use in choices.uses.items()
        if use in KINDS and name in frame.columns and name not in (choices.target, choices.id)
    }
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", es.SchemaWarning)
        made = es.Schema.infer(
            frame.drop(columns=left_out),
            target=choices.target or None,
            bins=choices.bins,
            kinds=kinds,
            missing=choices.missing,
            numbers=choices.numbers,
            rare=_rare(choices.rare),
            unknown=choices.unknown,
            id=choices.id or None,
        )
        for name, text in choices.cuts.items():
            if text.strip() and name in made.names:
                made = made.with_bins(name, edges=_cut_points(text, name))
    doubts = dict.fromkeys(
        in_page_words(one.message) for one in told if isinstance(one.message, Warning)
    )
    return Made(replace(made, csv=form), tuple(doubts), frame)


def choices_in(form: Any, data: Data) -> Choices:
    """What a form that was sent says; ValueError where it says what cannot be."""
    uses = {name: form.get(f"use-{place}", AS_FOUND) for place, name in enumerate(data.columns)}
    cuts = {name: form.get(f"cuts-{place}", "").strip() for place, name in enumerate(data.columns)}
    target = next((name for name, use in uses.items() if use == "target"), "")
    id = next((name for name, use in uses.items() if use == "id"), "")
    for role, words in (("target", "target"), ("id", "row number")):
        if list(uses.values()).count(role) > 1:
            raise es.ArgumentError(
                f"two columns are the {words}: choose one", code="role-given-twice"
            )
    missing = form.get("missing", "error")
    if missing not in MISSING_POLICIES:
        raise es.ArgumentError(
            f"missing values: {missing!r} is none of {', '.join(MISSING_POLICIES)}",
            code="unknown-choice",
        )
    bins = form.get("bins", "5")
    if not bins.isdigit():
        raise es.ArgumentError(f"bins: {bins!r} is no whole number", code="not-an-integer")
    return Choices(
        target=target,
        id=id,
        bins=int(bins),
        numbers="keep" if form.get("numbers") == "keep" else "bins",
        missing=missing,
        unknown=form.get("unknown", "error"),
        rare=form.get("rare", "").strip(),
        uses={name: use for name, use in uses.items() if use in (*KINDS, LEFT_OUT)},
        cuts={name: text for name, text in cuts.items() if text},
    )


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
    """What is encrypted of a variable, in words."""
    if variable.kind != "number":
        return variable.describe()
    digits = variable.digits or 0
    low, high = ((bound or 0) / 10**digits for bound in (variable.low, variable.high))
    gaps = "; values may be missing" if variable.missing_bin else ""
    return f"numbers from {low:g} to {high:g}, with {plural(digits, 'decimal')}{gaps}"


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
        """The same for who does not see it."""
        if self.are_levels:
            return ", ".join(
                f"{label}: {n:,}" for label, n in zip(self.labels, self.heights, strict=True)
            )
        return f"from {self.labels[0]} to {self.labels[1]}" if self.labels else "no values"


def bars_of(column: pd.Series[Any], variable: Variable | None) -> Bars:
    """The values of a column, with the cut points of its variable."""
    present = column.dropna()
    numeric = is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype)
    levels = variable is not None and bool(variable.levels)
    if not numeric or (levels and present.nunique() <= _MOST_LEVELS):
        counted = present.astype(str).value_counts()
        if variable is not None and variable.levels:
            known = [text for text in map(str, variable.levels) if text in counted.index]
            counted = counted.reindex([*known, *(one for one in counted.index if one not in known)])
        counted = counted.head(_MOST_LEVELS)
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
class Entry:
    """A line of the file list."""

    name: str
    path: str
    is_folder: bool
    bytes: int


def listed(folder: Path) -> Iterator[Entry]:
    """Folders, then files of rows, by name; hidden ones and what cannot be read are left out."""
    found: list[Entry] = []
    with os.scandir(folder) as entries:
        for one in entries:
            try:
                is_folder = one.is_dir()
                if not one.name.startswith(".") and (is_folder or _is_rows(one.name)):
                    found.append(
                        Entry(one.name, one.path, is_folder, 0 if is_folder else one.stat().st_size)
                    )
            except OSError:
                continue
    yield from sorted(found, key=lambda one: (not one.is_folder, one.name.lower()))


def _is_rows(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def safe_name(given: str) -> str:
    """The name of a file that was dropped, as a name and nothing else.

    >>> safe_name("../../etc/passwd"), safe_name("my rows.csv"), safe_name(".parquet")
    ('passwd.csv', 'my_rows.csv', 'rows.parquet')
    """
    last = given.replace("\\", "/").rpartition("/")[2]
    text = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in last)[-80:]
    suffix = next(
        (one for one in sorted(SUFFIXES, key=len, reverse=True) if text.lower().endswith(one)), ""
    )
    stem = (text[: len(text) - len(suffix)] if suffix else text).strip(".") or "rows"
    return f"{stem}{suffix.lower() or '.csv'}"
