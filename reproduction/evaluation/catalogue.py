"""The table of data sets, counted again from the data: rows, complete rows, and predictors in the
three ways of counting.
"""

from __future__ import annotations

from typing import Any

from encryptedstats.tables import Schema
from reproduction import datasets
from reproduction.datasets import DatasetInfo
from reproduction.evaluation.results import ResultFolder
from reproduction.evaluation.samples import load
from reproduction.evaluation.settings import BINS, Settings

COUNTS = ("obs1", "obs2", "vars1", "vars2", "vars3")


def count_dataset(settings: Settings, name: str) -> dict[str, Any]:
    """The paper's five numbers of a data set, ours beside them, and how many bins quintiles really
    give.
    """
    info, data = datasets.info(name), load(name, settings.data_home)
    everything = datasets.load(name, data_home=settings.data_home, complete=False)
    levels = [
        len(data.frame[column].cat.categories) if kind == "categorical" else None
        for column, kind in data.kinds.items()
    ]
    ours = {
        "obs1": len(everything.frame),
        "obs2": len(data.frame),
        "vars1": len(levels),
        "vars2": sum(1 if n is None else n for n in levels),
        "vars3": sum(BINS if n is None else n for n in levels),
    }
    schema = Schema.infer(data.frame, bins=BINS, kinds=data.kinds)
    return {
        "name": name,
        "full_name": data.full_name,
        **ours,
        **{f"paper_{count}": value for count, value in _paper(info).items()},
        "bins": sum(variable.n_bins for variable in schema.variables),
        "share_of_class_1": float(data.target.mean()),
    }


def _paper(info: DatasetInfo) -> dict[str, int]:
    return {count: int(getattr(info, f"paper_{count}")) for count in COUNTS}


def run_catalogue(settings: Settings) -> int:
    """Count what is missing; returns how many data sets were counted."""
    file = ResultFolder(settings.output, "datasets", {"bins": BINS}).file("datasets", ("name",))
    missing = [name for name in settings.names if not file.has(name)]
    for name in missing:
        file.add([count_dataset(settings, name)])
    return len(missing)
