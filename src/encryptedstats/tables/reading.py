"""Files of rows, read a piece at a time: CSV through pandas, Parquet through pyarrow. The whole file is never in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from encryptedstats.errors import SchemaError
from encryptedstats.tables.schema import Schema

PARQUET_SUFFIXES = (".parquet", ".pq")
# From 3.1 on pandas reads the nearest double anyway; before, a value could come out one step beside the edge that it equals.
_EXACT_NUMBERS: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)
#: What pandas takes for a missing value in a CSV file.
MISSING_WORDS = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA")
) | {"NULL", "NaN", "None", "n/a", "nan", "null"}


def read_frames(
    path: str | os.PathLike[str], schema: Schema | None = None, rows: int | None = None
) -> Iterator[pd.DataFrame]:
    """Frames of up to ``rows`` rows (all at once for None), their index counting the rows of the file from 1.

    With a schema, columns whose levels are text are read as text, whatever their values look like: ``01`` is not ``1``, and
    a level such as ``None`` is no missing value. Numbers are the doubles nearest to what is written.
    """
    if Path(path).suffix.lower() in PARQUET_SUFFIXES:
        yield from _parquet_frames(path, rows)
        return
    try:
        # Not low_memory: it guesses types for a few rows at a time, and one column comes out as numbers here and text there.
        with pd.read_csv(
            path,
            chunksize=rows or 1 << 62,
            low_memory=False,
            **_EXACT_NUMBERS,
            **_text_options(schema),
        ) as frames:
            for frame in frames:
                frame.index += 1
                yield frame
    except pd.errors.EmptyDataError:
        raise SchemaError(f"{path} is empty: there is not even a line of column names") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path} is not a CSV file that pandas can read: {error}") from error


def read_frame(path: str | os.PathLike[str], schema: Schema | None = None) -> pd.DataFrame:
    """The whole file."""
    frames = list(read_frames(path, schema))
    if not frames:
        raise SchemaError(f"{path} has no rows")
    return pd.concat(frames) if len(frames) > 1 else frames[0]


def _text_options(schema: Schema | None) -> dict[str, Any]:
    """What pandas has to know about columns of text: which they are, and which words are levels and not missing."""
    if schema is None:
        return {}
    levels = {variable.name: variable.levels for variable in schema.variables}
    if schema.target is not None:
        levels[schema.target] = schema.classes
    text = {name: str for name, values in levels.items() if values and all(isinstance(v, str) for v in values)}
    missing = {name: sorted(MISSING_WORDS.difference(levels[name] if name in text else ())) for name in levels}
    if all(len(words) == len(MISSING_WORDS) for words in missing.values()):
        return {"dtype": text}
    return {"dtype": text, "keep_default_na": False, "na_values": missing}


def _parquet_frames(path: str | os.PathLike[str], rows: int | None) -> Iterator[pd.DataFrame]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SchemaError("Parquet files need pyarrow: pip install 'encryptedstats[parquet]'") from error
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
        raise SchemaError(f"{path} is not a Parquet file that pyarrow can read: {error}") from error
