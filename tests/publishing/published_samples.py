"""Small tables, keys and questions that the tests of publishing share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.circuits.expressions import sum_of
from encryptedstats.tables.questions.question import bin_columns


def patients(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Rows with a rare region, c."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, n),
            "sex": rng.choice(["f", "m"], n),
            "region": rng.choice(list("abc"), n, p=[0.68, 0.30, 0.02]),
            "sick": rng.integers(0, 2, n),
        }
    )


@dataclass(frozen=True)
class Recoded(es.Question):
    """Counts of bins that are put together anew: ``groups`` of the bins of a variable."""

    variable: int = 0
    groups: Any = ()

    def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> Any:
        bins = bin_columns(schema, self.variable)
        return {"groups": [sum_of([bins[k] for k in group]).total() for group in self.groups]}

    def shapes(self, schema: Any) -> Any:
        return {"groups": (len(self.groups),)}

    def read(self, totals: Any, schema: Any, n_rows: int) -> Any:
        return totals["groups"].tolist()
