"""From the verified CSV to a :class:`Dataset`: columns typed by their kinds, rows
complete or all.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reproduction.datasets._files import csv_bytes
from reproduction.datasets._index import DatasetInfo, info


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set of the paper.

    Attributes
    ----------
    name, full_name
        Short name, as given to :func:`load`, and UCI's.
    frame
        The predictors: ``float64`` for continuous columns, ``int64`` for ordinal ones (``float64``
        where values are missing), ``category`` for categorical ones. Levels are those of *all*
        rows, as the paper counts them, also where dropping incomplete rows leaves none with a
        level.
    target
        The response, named ``target``: 1 for ``positive_class``, else 0.
    kinds
        ``continuous``, ``ordinal`` or ``categorical`` for each column of ``frame``.
    positive_class
        What ``target == 1`` means.
    citation, doi, licence, note
        How to cite the set (``doi`` is empty where the index has none), its terms, what was
        changed.
    """

    name: str
    full_name: str
    frame: pd.DataFrame
    target: pd.Series[int]
    kinds: dict[str, str]
    positive_class: str
    citation: str
    doi: str
    licence: str
    note: str

    def table_frame(self) -> pd.DataFrame:
        """Predictors and, as last column, ``target``, in one new frame."""
        return pd.concat([self.frame, self.target], axis=1)

    def __repr__(self) -> str:
        rows, columns = self.frame.shape
        return f"<Dataset {self.name}: {self.full_name}; {rows} rows, {columns} predictors>"


def load(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    complete: bool = True,
    download: bool = True,
) -> Dataset:
    """One of the 19 data sets of the paper.

    Parameters
    ----------
    name
        One of :func:`names`.
    data_home
        Folder with the ``NAME.csv.gz`` files; ``ENCRYPTEDSTATS_DATA`` by default. What is not there
        is looked for in the cache (``ENCRYPTEDSTATS_CACHE``, by default
        ``~/.cache/encryptedstats``), then at UCI.
    complete
        Only the rows without missing values, the paper's obs_2 (a value missing in a UCI column
        that is not a predictor counts, too). With ``False`` all rows, its obs_1.
    download
        Whether UCI may be asked.

    Raises
    ------
    UnknownDatasetError
        If there is no such data set.
    DatasetUnavailableError
        If the data are in no folder and cannot, or may not, be downloaded.
    FileFormatError
        If a file's checksum is not that of the index.

    Examples
    --------
    >>> cancer = load("bcw_o")  # doctest: +SKIP
    >>> cancer  # doctest: +SKIP
    <Dataset bcw_o: Breast Cancer Wisconsin (Original); 683 rows, 9 predictors>
    """
    facts = info(name)
    table = _table(facts, csv_bytes(facts, data_home=data_home, download=download))
    if complete:
        dropped_too = table.index.isin(facts.rows_missing_only_in_dropped_columns)
        table = table[table.notna().all(axis=1) & ~dropped_too].reset_index(drop=True)
    # Only now, as a column of integers cannot hold a missing value.
    whole = [c for c, kind in facts.kinds.items() if kind == "ordinal" and table[c].notna().all()]
    table = table.astype(dict.fromkeys(whole, np.int64))
    return Dataset(
        name=facts.name,
        full_name=facts.full_name,
        frame=table[
            list(facts.columns)
        ].copy(),  # joins the columns; pandas warns of a fragmented frame else
        target=table["target"],
        kinds=dict(facts.kinds),
        positive_class=facts.positive_class,
        citation=facts.citation,
        doi=facts.uci_doi,
        licence=facts.licence,
        note=facts.note,
    )


def _table(facts: DatasetInfo, csv: bytes) -> pd.DataFrame:
    """All rows, predictors and target; numbers as ``float64``, categories with their levels in
    order.
    """
    # As text first: only the empty field is a missing value, and each number is the float64 nearest
    # to it.
    text = pd.read_csv(io.BytesIO(csv), dtype=str, keep_default_na=False, na_values=[""])
    columns = {column: _typed(text[column], kind) for column, kind in facts.kinds.items()}
    return pd.DataFrame({**columns, "target": text["target"].astype(np.int64)})


def _typed(text: pd.Series[str], kind: str) -> pd.Series[Any]:
    if kind == "categorical":
        return text.astype(pd.CategoricalDtype(_in_order(text.dropna().unique().tolist())))
    return text.astype(np.float64)


def _in_order(levels: list[str]) -> list[str]:
    """By value where all levels are numbers (so that 10 comes after 9), else by spelling."""
    try:
        return sorted(levels, key=float)
    except ValueError:
        return sorted(levels)
