"""A data set and one of its random splits, as every method wants it: bins for ours, standardised
numbers for the others.

Cut points of bins, and means and scales, come from the training rows alone. Levels of categories
are those of the whole data set, which the owner of a table knows.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.tables import Schema, Table
from reproduction import datasets
from reproduction.datasets import Dataset
from reproduction.evaluation.results import check_settings, write_csv
from reproduction.evaluation.settings import BINS, TEST_SHARE, Settings, derived_seed

Rows = NDArray[np.intp]
# A clear table is laid out like an encrypted one, in slots: as few as hold the rows, or small sets
# would be mostly padding.
_SLOTS: Final = (256, 1024, 4096, 8192)


@dataclass(frozen=True, eq=False)
class Sample:
    """One split of a data set.

    Attributes
    ----------
    data : Dataset
    split : int
        Number of the split, from 0.
    train_rows, test_rows : arrays
        Row numbers.
    """

    data: Dataset
    split: int
    train_rows: Rows
    test_rows: Rows

    @property
    def y_train(self) -> NDArray[np.int64]:
        """Classes of the training rows."""
        return self._classes[self.train_rows]

    @property
    def y_test(self) -> NDArray[np.int64]:
        """Classes of the test rows."""
        return self._classes[self.test_rows]

    @cached_property
    def _classes(self) -> NDArray[np.int64]:
        return np.asarray(self.data.target, dtype=np.int64)

    @cached_property
    def schema(self) -> Schema:
        """Quintiles of the training rows, and the levels of categories."""
        frame = self.data.frame.iloc[self.train_rows]
        target = pd.Series(self.y_train, index=frame.index, name="target")
        return Schema.infer(frame, y=target, bins=BINS, kinds=self.data.kinds, classes=(0, 1))

    @cached_property
    def train(self) -> Table:
        """Training rows in bins, with classes."""
        return self._table(self.train_rows, self.y_train)

    @cached_property
    def test(self) -> Table:
        """Test rows in bins, without classes."""
        return self._table(self.test_rows, None)

    def _table(self, rows: Rows, y: NDArray[np.int64] | None) -> Table:
        table = self.schema.table(self.data.frame.iloc[rows], y)
        return table.with_layout(
            next((slots for slots in _SLOTS if len(rows) <= slots), _SLOTS[-1])
        )

    @cached_property
    def plain(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Training and test rows as numbers: categories as 0/1 columns, every column standardised
        by the training rows.
        """
        numbers = numeric(self.data)
        train, test = numbers[self.train_rows], numbers[self.test_rows]
        mean, scale = train.mean(axis=0), train.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        return (train - mean) / scale, (test - mean) / scale


@lru_cache(maxsize=2)
def load(name: str, data_home: Path | None) -> Dataset:
    """A data set, without the rows that have missing values."""
    return datasets.load(name, data_home=data_home)


def numeric(data: Dataset) -> NDArray[np.float64]:
    """The predictors as numbers, one 0/1 column for each level of a category."""
    return pd.get_dummies(data.frame, dtype=float).to_numpy()


def stratified_test_rows(classes: NDArray[Any], seed: int, share: float = TEST_SHARE) -> Rows:
    """Row numbers of a test set that has the same share of every class, in order."""
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        chosen.append(rng.permutation(rows)[: round(share * len(rows))])
    return np.sort(np.concatenate(chosen))


def store_splits(settings: Settings, name: str) -> Path:
    """The CSV file with the test rows of every split of a data set; made, or made longer, where it
    is not there.
    """
    path = settings.output / "splits" / f"{name}.csv"
    check_settings(path.parent, {"seed": settings.seed, "test_share": TEST_SHARE})
    stored = _stored_splits(path)
    if len(stored) < settings.splits:
        classes = load(name, settings.data_home).target.to_numpy()
        for split in range(len(stored), settings.splits):
            stored.append(
                stratified_test_rows(classes, derived_seed(settings.seed, "split", name, split))
            )
        rows = [
            {"split": s, "n_test": len(test), "test_rows": " ".join(map(str, test))}
            for s, test in enumerate(stored)
        ]
        write_csv(path, rows)
    return path


@lru_cache(maxsize=2)
def _cached_splits(path: Path, modified: int) -> list[Rows]:
    return _stored_splits(path)


def _stored_splits(path: Path) -> list[Rows]:
    if not path.exists():
        return []
    csv.field_size_limit(1 << 24)
    with open(path, newline="") as file:
        return [np.array(row["test_rows"].split(), dtype=np.intp) for row in csv.DictReader(file)]


def sample(settings: Settings, name: str, split: int) -> Sample:
    """A split of a data set, from the file that :func:`store_splits` wrote."""
    path = settings.output / "splits" / f"{name}.csv"
    data = load(name, settings.data_home)
    test = _cached_splits(path, path.stat().st_mtime_ns)[split]
    train = np.setdiff1d(np.arange(len(data.target)), test)
    return Sample(data, split, train, test)
