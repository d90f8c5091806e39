"""Files of rows, read a piece at a time: CSV through pandas, Parquet through pyarrow. The whole
file is never in memory.

How a CSV file is written is found out from its beginning (see
:mod:`encryptedstats.tables.rows.csv_format`), and all of it is read that way.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, Final

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from encryptedstats.errors import Cure, SchemaError, SchemaWarning
from encryptedstats.tables.rows.csv_format import (
    MISSING_WORDS,
    NAME_COLUMNS,
    REMOVE_TITLE,
    SAMPLE_BYTES,
    CsvFormat,
    CsvOptions,
    Expected,
    Sample,
    find_format,
    is_mostly_numbers,
    read_dates,
    say,
    spelt_numbers,
)
from encryptedstats.tables.rows.frames import days, refuse
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import Level

PARQUET_SUFFIXES = (".parquet", ".pq")
# From 3.1 on pandas reads the nearest double anyway; before, a value could come out one step beside
# the edge that it equals.
_EXACT_NUMBERS: dict[str, Any] = (
    {}
    if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)
    else {"float_precision": "round_trip"}
)
_UNPACKED: Final[dict[str, Callable[..., Any]]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
_PACKED_OTHERWISE: Final = (".zip", ".tar", ".tgz", ".zst")  # pandas unpacks these itself
_READ_FAILED: Final = "Calling read(nbytes) on source failed"
_BOOLEANS: Final = {
    "True": True,
    "TRUE": True,
    "true": True,
    "False": False,
    "FALSE": False,
    "false": False,
}


def read_frames(
    path: str | os.PathLike[str],
    schema: Schema | None = None,
    rows: int | None = None,
    options: CsvOptions | None = None,
    on_format: Callable[[CsvFormat], None] | None = None,
) -> Iterator[pd.DataFrame]:
    """Yield frames of up to ``rows`` rows (all for None), indexed by the rows of the file from 1.

    With a schema, columns whose levels are text are read as text: ``01`` is not ``1``, and a level
    such as ``None`` is not a missing value. Numbers are the nearest doubles; dates become days
    since 1970-01-01. The format of a CSV file is detected unless ``options`` fix it, and passed to
    ``on_format`` before the first frame.
    """
    if Path(path).suffix.lower() in PARQUET_SUFFIXES:
        yield from _parquet_frames(path, rows)
        return
    options = options or CsvOptions()
    try:
        with _beginning(path) as (source, sample):
            if b"\0" in sample.content and not sample.content.startswith(
                (BOM_UTF16_LE, BOM_UTF16_BE)
            ):
                raise SchemaError(
                    f"{path} is not a CSV file that pandas can read: it has bytes that are no text",
                    code="not-a-text-file",
                )
            form, skipped = find_format(sample, options, _expect(schema, options), str(path))
            if on_format is not None:
                on_format(form)
            reader = _PieceReader(form, _levels(schema), _text_columns(schema, options))
            # Not low_memory: it guesses types for a few rows at a time, and one column comes out as
            # numbers here and text there.
            with pd.read_csv(
                source,
                chunksize=rows or 1 << 62,
                low_memory=False,
                # or pandas takes first fields for labels where the names are too few
                index_col=False,
                skiprows=skipped,
                **_EXACT_NUMBERS,
                **reader.options(),
            ) as frames:
                for number, frame in enumerate(_whole_rows(frames, path)):
                    if not number:
                        _warn_of_names_given_twice(frame, path)
                    frame.index += 1
                    yield reader.read(frame, path)
    except pd.errors.EmptyDataError:
        raise SchemaError(
            f"{path} is empty: there is not even a line of column names", code="empty-file"
        ) from None
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{path} is not written in {error.encoding}, as its beginning looked: {error}; say in "
            "which it is, for instance ",
            say("charset", "cp1252"),
            code="wrong-charset",
        ) from error
    except pd.errors.ParserError as error:
        if _READ_FAILED in str(error):  # pandas loses the exception where that is an interruption
            raise KeyboardInterrupt from error
        raise SchemaError(
            f"{path} is not a CSV file that pandas can read: {error}", code="malformed-csv"
        ) from error
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise SchemaError(
            f"{path} is not a CSV file that pandas can read: {error}", code="damaged-compression"
        ) from error


def _whole_rows(
    frames: Iterator[pd.DataFrame], path: str | os.PathLike[str]
) -> Iterator[pd.DataFrame]:
    """Refuse rows with more fields than there are names, which pandas cuts off with a warning.

    The beginning of a file shows most of them by their line; packed files have no sample.
    """
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            try:
                frame = next(frames, None)
            except pd.errors.ParserWarning as error:
                raise SchemaError(
                    f"{path}: rows have more fields than the first line has names: ",
                    NAME_COLUMNS,
                    ", or ",
                    REMOVE_TITLE,
                    code="more-fields-than-names",
                ) from error
        if frame is None:
            return
        yield frame


def read_frame(
    path: str | os.PathLike[str],
    schema: Schema | None = None,
    options: CsvOptions | None = None,
    on_format: Callable[[CsvFormat], None] | None = None,
) -> pd.DataFrame:
    """Read the whole file."""
    frames = list(read_frames(path, schema, None, options, on_format))
    if not frames:
        raise SchemaError(f"{path} has no rows", code="no-rows")
    return pd.concat(frames) if len(frames) > 1 else frames[0]


# -- the beginning of a file -----------------------------------------------------------------------


@contextmanager
def _beginning(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes] | str, Sample]]:
    """Return what pandas is to read, from its first byte on, and the sample that its format is
    found from.
    """
    suffix = Path(path).suffix.lower()
    if suffix in _PACKED_OTHERWISE:
        yield os.fspath(path), Sample(b"", is_all=True)
        return
    with _UNPACKED.get(suffix, open)(path, "rb") as file:
        content = _read_full(file, SAMPLE_BYTES)
        is_all = len(content) < SAMPLE_BYTES
        if Path(path).is_file():
            file.seek(0)
            yield file, Sample(content, is_all)
        else:  # a pipe gives its bytes once
            yield BufferedReader(_Again(content, file)), Sample(content, is_all)


def _read_full(file: IO[bytes], size: int) -> bytes:
    parts, missing = [], size
    while missing and (part := file.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


class _Again(RawIOBase):
    """Bytes that were read already, followed by the rest of their file."""

    def __init__(self, content: bytes, rest: IO[bytes]) -> None:
        self._content = content
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._content[: len(buffer)] or self._rest.read(len(buffer))
        self._content = self._content[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _warn_of_names_given_twice(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Warn of columns that pandas has renamed: ``a.1`` next to ``a`` had the name ``a``."""
    names = set(map(str, frame.columns))
    twice = [name for name in map(str, frame.columns) if name.endswith(".1") and name[:-2] in names]
    if twice:
        warnings.warn(
            f"{path}: column {twice[0]!r} stands beside {twice[0][:-2]!r}: either the file has "
            f"the name {twice[0][:-2]!r} twice, "
            "and the second was renamed, or it is called so",
            SchemaWarning,
            stacklevel=2,
        )


# -- what the schema knows of a file ---------------------------------------------------------------


def _levels(schema: Schema | None) -> dict[str, tuple[Level, ...]]:
    """Return the levels of every column that the schema reads; none for columns of numbers."""
    if schema is None:
        return {}
    levels = {variable.name: (*variable.levels, *variable.rare) for variable in schema.variables}
    if schema.target is not None:
        levels[schema.target] = schema.classes
    return levels


def _is_text(levels: tuple[Level, ...]) -> bool:
    return bool(levels) and all(isinstance(level, str) for level in levels)


def _text_columns(schema: Schema | None, options: CsvOptions) -> frozenset[str]:
    """Return the columns that are kept as text: levels that are text, the id of the rows, and what
    nobody reads.
    """
    text = {name for name, values in _levels(schema).items() if _is_text(values)}
    return options.ignored.union(
        text, {schema.id} if schema is not None and schema.id is not None else ()
    )


def _expect(schema: Schema | None, options: CsvOptions) -> Expected:
    if schema is None:
        return Expected()
    columns = frozenset(_levels(schema)) if schema.onehot is None else None
    return Expected(schema.csv, columns, _text_columns(schema, options))


@dataclass(frozen=True)
class _PieceReader:
    """Reads the pieces of a file with pandas, and finishes each."""

    form: CsvFormat
    levels: dict[str, tuple[Level, ...]]
    text: frozenset[str]

    def options(self) -> dict[str, Any]:
        """Return the options of pandas: the format, text columns, and words that are levels and not
        missing.
        """
        form = self.form
        options: dict[str, Any] = {
            "sep": form.separator,
            "decimal": form.mark,
            "encoding": form.charset,
        }
        options["dtype"] = dict.fromkeys((*self.text, *(name for name, _ in form.dates)), str)
        missing = {
            name: MISSING_WORDS.difference(self.levels[name] if name in self.text else ())
            for name in self.levels
        }
        if any(len(words) < len(MISSING_WORDS) for words in missing.values()):
            options |= {
                "keep_default_na": False,
                "na_values": {name: sorted(words) for name, words in missing.items()},
            }
        return options

    def read(self, frame: pd.DataFrame, path: str | os.PathLike[str]) -> pd.DataFrame:
        """Read a piece, with dates as days and numbers as numbers even where a word made pandas
        leave all as text.
        """
        dates = dict(self.form.dates)
        for name in frame.columns:
            if name in dates:
                frame[name] = _days(frame[name], dates[name])
            elif not (is_numeric_dtype(frame[name].dtype) or is_bool_dtype(frame[name].dtype)):
                try:
                    frame[name] = self._numbers(frame[name])
                except SchemaError as error:
                    raise SchemaError(f"{path}: {error}") from error
        return frame

    def _numbers(self, column: pd.Series[Any]) -> pd.Series[Any]:
        known = self.levels.get(str(column.name))
        if column.name in self.text:
            return column
        if known is None:
            # nothing is known of the column, so that most of its values decide; pandas has read
            # plain ones
            is_plain = self.form.thousands is None and self.form.mark == "."
            return (
                column
                if is_plain or not is_mostly_numbers(column, self.form)
                else self._spelt(column)
            )
        if known and all(isinstance(level, (bool, str)) for level in known):
            return column.map(lambda value: _BOOLEANS.get(value, value))
        return self._spelt(column)

    def _spelt(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Read numbers in the format of the file, and refuse others, which its beginning did not
        show.
        """
        read = spelt_numbers(column, self.form)
        if is_numeric_dtype(read.dtype):
            return read
        is_text = read.map(lambda value: isinstance(value, str)).to_numpy(dtype=bool)
        foreign = is_text & pd.to_numeric(column.where(is_text), errors="coerce").notna().to_numpy(
            dtype=bool
        )
        if foreign.any():
            cure = Cure(
                "say the decimal mark",
                "correct it, or say how numbers are written, decimal='.' or decimal=','",
            )
            refuse(
                column.name,
                column,
                foreign,
                f"is no number in a file that is {self.form.describe()}",
                cure=cure,
            )
        return read


def _days(column: pd.Series[Any], spelt: str) -> pd.Series[Any]:
    """Dates as days; what is no date stays as it is, to be refused by name."""
    text = (
        column.astype(object)
        .where(column.notna(), None)
        .map(lambda value: value.strip(), na_action="ignore")
    )
    times = read_dates(text, spelt)
    found: pd.Series[Any] = days(times)
    unread = (times.isna() & column.notna()).to_numpy(dtype=bool)
    return found.astype(object).where(~unread, column.astype(object)) if unread.any() else found


def _parquet_frames(path: str | os.PathLike[str], rows: int | None) -> Iterator[pd.DataFrame]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SchemaError(
            "Parquet files need pyarrow: pip install 'encryptedstats[parquet]'",
            code="pyarrow-missing",
        ) from error
    first = 1
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=rows or max(1, file.metadata.num_rows)):
                frame = batch.to_pandas()
                frame.index = pd.RangeIndex(first, first + len(frame))
                first += len(frame)
                yield frame
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(
            f"{path} is not a Parquet file that pyarrow can read: {error}", code="malformed-parquet"
        ) from error
