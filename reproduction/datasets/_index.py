"""What is known of each data set without having it: checksums, counts, columns and kinds.

The facts lie in ``index.json``, in the order of the paper's table; ``_build_index.py`` writes that
file.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from reproduction.datasets._errors import UnknownDatasetError


@dataclass(frozen=True)
class DatasetInfo:
    """The index entry of one data set.

    Counts named ``n_*`` are those of the CSV; ``paper_*`` are the figures printed in the paper's
    table. The two differ only where ``rows_missing_only_in_dropped_columns`` (0-based rows of the
    CSV) is not empty.
    """

    name: str
    full_name: str
    file: str
    sha256: str
    csv_sha256: str
    bytes: int
    n_rows: int
    n_rows_complete: int
    n_predictors: int
    n_vars2: int
    n_vars3: int
    n_positive: int
    n_negative: int
    n_positive_complete: int
    positive_class: str
    paper_obs1: int
    paper_obs2: int
    paper_vars1: int
    paper_vars2: int
    paper_vars3: int
    rows_missing_only_in_dropped_columns: tuple[int, ...]
    uci_id: int
    uci_doi: str
    licence: str
    note: str
    kinds: Mapping[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the predictors, in the order of the CSV."""
        return tuple(self.kinds)

    @property
    def url(self) -> str:
        """The data set's page: its DOI where it has one, its UCI address otherwise."""
        if self.uci_doi:
            return f"https://doi.org/{self.uci_doi}"
        return f"https://archive.ics.uci.edu/dataset/{self.uci_id}"

    @property
    def citation(self) -> str:
        """How to cite the data set."""
        return f"{self.full_name}. UCI Machine Learning Repository. {self.url}"


def names() -> list[str]:
    """Names of the data sets, in the order of the paper's table."""
    return list(_entries())


def info(name: str) -> DatasetInfo:
    """Facts about one data set; needs no data and no network.

    Raises
    ------
    UnknownDatasetError
        If there is no such data set; names the closest ones.
    """
    entries = _entries()
    if not isinstance(name, str) or name not in entries:
        raise UnknownDatasetError(_unknown(name))
    entry = dict(entries[name])
    entry["rows_missing_only_in_dropped_columns"] = tuple(
        entry["rows_missing_only_in_dropped_columns"]
    )
    entry["kinds"] = dict(entry["kinds"])
    return DatasetInfo(name=name, **entry)


@lru_cache(maxsize=1)
def _entries() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("index.json").read_text(encoding="utf-8")
    )
    return entries


def _unknown(name: object) -> str:
    close = difflib.get_close_matches(str(name).lower(), names(), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    return f"unknown data set {name!r}.{hint} Available: {', '.join(names())}."
