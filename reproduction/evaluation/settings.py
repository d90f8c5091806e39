"""What a run of the evaluation is asked for, and the constants of the paper that it does not ask
for.

Everything random starts from one seed through :func:`derived_seed`, so that a split or a forest is
the same whatever else is run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reproduction import datasets

#: What can be run, in the order in which it is run: cheap things first, the long ones last.
PARTS: Final = (
    "datasets",
    "shrinkage",
    "encrypted",
    "times",
    "convergence",
    "fraction",
    "performance",
    "trees",
    "models",
    "learned",
)

TEST_SHARE: Final = 0.2
BINS: Final = 5
N_TREES: Final = 100
DEPTH: Final = 3
FRACTION: Final = 8
FRACTIONS: Final = (0, 2, 4, 8, 16, 32, 64)
TREE_COUNTS: Final = (10, 20, 50, 100, 200, 500, 1000)
DEPTHS: Final = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class Settings:
    """A run: where it writes, which data sets and how many splits of each.

    Parameters
    ----------
    output : Path
        Folder of results, pictures and the report.
    splits : int
        Random splits of every data set, the paper's 100 by default.
    names : tuple of str
        Data sets; all 19 by default.
    seed : int
        Where all randomness starts.
    data_home : Path, optional
        Folder with the data sets, see ``datasets.load``.
    workers : int, optional
        Processes; all cores by default.
    """

    output: Path = Path("out", "reproduction")
    splits: int = 100
    names: tuple[str, ...] = field(default_factory=lambda: tuple(datasets.names()))
    seed: int = 2015
    data_home: Path | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.splits < 1:
            raise ValueError(f"splits={self.splits}: at least 1 is needed")
        if not self.names:
            raise ValueError(
                "no data set is left to run: name some of python -m reproduction datasets, or "
                "none for all"
            )
        for name in self.names:
            datasets.info(name)  # refuses a name that it does not know, and says which there are


def derived_seed(seed: int, *purpose: object) -> int:
    """A seed of its own for every purpose: 63 bits of a hash, the same on every machine.

    >>> derived_seed(1, "iono", 0) == derived_seed(1, "iono", 0) != derived_seed(1, "iono", 1)
    True
    """
    digest = hashlib.sha256(
        " ".join(map(str, ("encryptedstats evaluation", seed, *purpose))).encode()
    ).digest()
    return int.from_bytes(digest[:8], "big") >> 1
