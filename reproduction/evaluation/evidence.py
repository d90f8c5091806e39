"""All results of a run in one place, as tables: what pictures, statements and the report are made
from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from reproduction import datasets
from reproduction.evaluation.results import read_part, read_settings
from reproduction.evaluation.settings import PARTS

# A DataFrame. The stubs of pandas cannot follow arithmetic with columns of numbers that they do not
# know to be numbers.
Frame: TypeAlias = Any


@dataclass(frozen=True)
class Evidence:
    """The results in a folder; a part that was not run is an empty table.

    Attributes
    ----------
    output : Path
        Folder of the run.
    """

    output: Path

    def _by_dataset(self, part: str) -> Frame:
        """Rows of all data sets one after the other, in the order of the paper's figure."""
        tables = read_part(self.output, part)
        known = [tables[name].assign(dataset=name) for name in datasets.names() if name in tables]
        return pd.concat(known, ignore_index=True) if known else pd.DataFrame()

    @cached_property
    def performance(self) -> Frame:
        """AUC by data set, split and method."""
        return self._by_dataset("performance")

    @cached_property
    def fraction(self) -> Frame:
        """AUC by data set, split and M."""
        return self._by_dataset("fraction")

    @cached_property
    def trees(self) -> Frame:
        """AUC by data set, split, depth and number of trees."""
        return self._by_dataset("trees")

    @cached_property
    def convergence(self) -> Frame:
        """AUC after one step and after convergence, by data set, split and variant."""
        return self._by_dataset("convergence")

    def table(self, part: str, name: str) -> Frame:
        """One file of a part, empty where it is not there."""
        return read_part(self.output, part).get(name, pd.DataFrame())

    @cached_property
    def catalogue(self) -> Frame:
        """The table of data sets, counted again."""
        return self.table("datasets", "datasets")

    @cached_property
    def encrypted(self) -> Frame:
        """Encrypted fits held against clear ones."""
        return self.table("encrypted", "encrypted")

    @cached_property
    def fits(self) -> Frame:
        """Seconds of encrypted fits."""
        return self.table("times", "fits")

    @cached_property
    def predictions(self) -> Frame:
        """Seconds of encrypted predictions."""
        return self.table("times", "predictions")

    @cached_property
    def case_study(self) -> Frame:
        """The paper's section 5.4 here: one row."""
        return self.table("times", "case_study")

    @cached_property
    def shrinkage(self) -> Frame:
        """Shrinkage of the one-step slope."""
        return self.table("shrinkage", "shrinkage")

    @cached_property
    def generalisation(self) -> Frame:
        """Generalisation error of the one-step estimate."""
        return self.table("shrinkage", "generalisation")

    @cached_property
    def mean_auc(self) -> Frame:
        """Mean AUC, one row a data set and one column a method."""
        return _pivot(self.performance, "method")

    @cached_property
    def mean_auc_by_fraction(self) -> Frame:
        """Mean AUC, one row a data set and one column a value of M."""
        return _pivot(self.fraction, "fraction")

    @cached_property
    def mean_auc_by_size(self) -> Frame:
        """Mean AUC, one row a data set and one column a pair of depth and number of trees."""
        return _pivot(self.trees, ["depth", "trees"])

    def parts(self) -> dict[str, dict[str, object]]:
        """The settings of every part that was run."""
        found = {part: read_settings(self.output, part) for part in PARTS}
        return {part: settings for part, settings in found.items() if settings}

    def n_splits(self, part: str) -> str:
        """How many splits a part has, as a number or a range."""
        rows = self._by_dataset(part)
        if rows.empty:
            return "0"
        counts = rows.groupby("dataset")["split"].nunique()
        return (
            str(counts.min())
            if counts.min() == counts.max()
            else f"{counts.min()} to {counts.max()}"
        )


def _pivot(rows: Frame, by: str | list[str]) -> Frame:
    if rows.empty:
        return rows
    order = [name for name in datasets.names() if name in set(rows["dataset"])]
    return rows.pivot_table(index="dataset", columns=by, values="auc", aggfunc="mean").reindex(
        order
    )
