"""How many bits of modulus fits of depth 3 take, and what that leaves of a ring: no times, so any
machine gives the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.crypto.packing import packing_parameters
from encryptedstats.crypto.security import MAX_MODULUS_BITS

#: Rows and variables: bcw_o's training rows, adult, and a large table.
TABLES = {"547 rows": (547, 9), "45,222 rows": (45_222, 14), "1,000,000 rows": (1_000_000, 10)}
TREES, DEPTH = 100, 3


@part("modulus")
def modulus(settings: Settings) -> Report:
    """Parameters of a forest's fit, for rows of the owner and for rows of others."""
    rows = [_row(name, others) for name in TABLES for others in (False, True)]
    return Report(rows, [_table(rows)])


def _row(name: str, by_others: bool) -> dict[str, Any]:
    n_rows, n_variables = TABLES[name]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {f"x{i}": rng.normal(size=200) for i in range(n_variables)} | {"y": rng.integers(0, 2, 200)}
    )
    forest = es.CompletelyRandomForest(n_trees=TREES, depth=DEPTH, random_state=1)
    plan = es.plan(forest, es.Schema.infer(frame, target="y"), n_rows, by_others=by_others)
    parameters = plan.parameters
    return {
        "table": name,
        "by_others": by_others,
        "ring_degree": parameters.ring_degree,
        "data_primes": len(parameters.data_moduli),
        "packing_primes": len(packing_parameters(parameters).data_moduli),
        "bits": round(math.log2(math.prod(parameters.coefficient_moduli)), 1),
        "allowed_bits": MAX_MODULUS_BITS[128][parameters.ring_degree],
        "bytes_up": plan.bytes_up,
        "bytes_down": plan.bytes_down,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    title = (
        f"Bits of modulus: {TREES} trees of depth {DEPTH}, results cleared, 128 bits of security"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("table", "rows of"):
        table.add_column(heading)
    for heading in ("N", "data primes", "of packs", "bits", "allowed", "MB up", "MB down"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row["table"],
            "others, flooded" if row["by_others"] else "the owner",
            *(
                str(row[name])
                for name in ("ring_degree", "data_primes", "packing_primes", "bits", "allowed_bits")
            ),
            f"{row['bytes_up'] / 1e6:.1f}",
            f"{row['bytes_down'] / 1e6:.2f}",
        )
    return table
