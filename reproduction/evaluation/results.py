"""Results as CSV files that are always whole: what is there is never computed again, and belongs to
the settings beside it.

A part has a folder with ``settings.json`` and one file for each data set. Rows are added by writing
the file anew under a temporary name and renaming it, so that a run may be killed at any moment.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from encryptedstats.storage.files import write_atomic

RESULTS = "results"
_SETTINGS = "settings.json"


class ResultFolder:
    """The results of one part.

    Parameters
    ----------
    output : Path
        Folder of the run.
    part : str
    settings : mapping
        What the numbers depend on, as JSON knows it. A folder of other settings is refused.
    """

    def __init__(self, output: Path, part: str, settings: Mapping[str, Any]) -> None:
        self.path = output / RESULTS / part
        self.path.mkdir(parents=True, exist_ok=True)
        check_settings(self.path, settings)

    def file(self, name: str, keys: Sequence[str]) -> ResultFile:
        """The rows of one data set; ``keys`` are the columns that tell rows apart."""
        return ResultFile(self.path / f"{name}.csv", keys)


class ResultFile:
    """Rows of a CSV file, told apart by some of their columns."""

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self.path, self._keys = path, tuple(keys)
        self._read()

    def _read(self) -> None:
        self._rows = (
            list(csv.DictReader(self.path.read_text().splitlines())) if self.path.exists() else []
        )
        self._known = {self._key(row) for row in self._rows}

    def _key(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self._keys)

    def has(self, *key: object) -> bool:
        """Whether there is a row with these values of the key columns."""
        return tuple(map(str, key)) in self._known

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows and write the file; those that are there already stay as they are."""
        self._read()  # another run may have added some meanwhile
        for row in rows:
            if self._key(row) not in self._known:
                self._known.add(self._key(row))
                self._rows.append({name: _text(value) for name, value in row.items()})
        if self._rows:
            write_csv(self.path, self._rows)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as CSV, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, [text.getvalue().encode()])


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Facts as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, [json.dumps(facts, indent=2).encode() + b"\n"])


def check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings beside what a folder holds, or refuse a folder that has others."""
    path = folder / _SETTINGS
    known = json.loads(json.dumps(settings))  # tuples become lists, as they will be when read
    if not path.exists():
        write_json(path, known)
        return
    stored = json.loads(path.read_text())
    changed = sorted(name for name in {*stored, *known} if stored.get(name) != known.get(name))
    if changed:
        name = changed[0]
        raise ValueError(
            f"{folder} has results of other settings ({name} was {stored.get(name)!r} and is "
            f"{known.get(name)!r}): "
            "give another --output, or delete that folder"
        )


def read_part(output: Path, part: str) -> dict[str, pd.DataFrame]:
    """All results of a part that are there, by the names of their files."""
    return {
        path.stem: pd.read_csv(path) for path in sorted((output / RESULTS / part).glob("*.csv"))
    }


def read_settings(output: Path, part: str) -> dict[str, Any]:
    """The settings of a part, empty where it was not run."""
    path = output / RESULTS / part / _SETTINGS
    return dict(json.loads(path.read_text())) if path.exists() else {}
