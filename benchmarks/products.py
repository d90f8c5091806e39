"""Sums of products of numbers: all of X'X, encrypted, beside NumPy's in the same run, checked
number by number.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.machine import cores
from encryptedstats.tables.questions.summaries import Moments

#: Rows, columns, and bits of the numbers: a regression, a covariance matrix, and numbers that have
#: to be stored in digits.
CASES = ((1_000_000, 20, 8), (60_000, 256, 8), (100_000, 20, 12), (100_000, 20, 24))
QUICK_CASES = ((9000, 4, 8), (9000, 3, 24))


@part("products")
def products(settings: Settings) -> Report:
    rows = [_case(*case) for case in (QUICK_CASES if settings.quick else CASES)]
    return Report(
        results={"cases": rows, "cores": cores()},
        tables=[_table(rows)],
        remarks=[
            "Sums of all columns and of all products of two, from encrypted rows in memory to "
            "packed totals, with parameters that "
            f"the plan chooses; {cores()} cores, one run each. Plain: NumPy's X'X on 64-bit "
            "integers (on Python's own where 64 "
            "bits do not hold it). All totals are compared with the plain ones.",
        ],
    )


def _case(n_rows: int, n_columns: int, bits: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << bits, (n_rows, n_columns))
    x[0], x[1] = 0, (1 << bits) - 1
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(n_columns)])
    names = list(frame.columns)
    schema = es.Schema.infer(frame.iloc[:1000])
    for name in names:
        schema = schema.with_kind(name, "number", digits=0, low=0, high=(1 << bits) - 1)
    question = Moments(tuple(range(n_columns)))
    made = es.plan(question, schema, n_rows=n_rows)
    owner = es.Owner(made)
    encrypting, sealed = _timed(lambda: owner.encrypt(schema.table(frame), progress=False))
    asking, totals = _timed(lambda: sealed.totals(question, progress=False))
    opening, found = _timed(lambda: owner.open(totals))
    fits = n_rows * 4**bits < 1 << 63
    plain, gram = _timed(lambda: x.T @ x if fits else x.T.astype(object) @ x.astype(object))
    expected = [
        *x.sum(axis=0).tolist(),
        *(int(gram[i, j]) for i in range(n_columns) for j in range(i, n_columns)),
    ]
    if found != expected:
        raise AssertionError("encrypted totals differ from the plain ones")
    return {
        "rows": n_rows,
        "columns": n_columns,
        "bits": bits,
        "products": made.products,
        "parameters": repr(made.parameters),
        "digit_bits": made.parameters.digit_bits,
        "planned_s": made.seconds,
        "encrypt_s": encrypting,
        "seconds": asking,
        "open_s": opening,
        "numpy_s": plain,
        "load_average": os.getloadavg()[0],
    }


def _timed(action: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    found = action()
    return time.perf_counter() - started, found


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Sums of products of numbers",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in (
        "rows",
        "columns",
        "bits",
        "digits",
        "products",
        "encrypt",
        "compute",
        "planned",
        "open",
        "NumPy",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['rows']:,}",
            str(row["columns"]),
            str(row["bits"]),
            "whole" if row["digit_bits"] is None else f"{row['digit_bits']} bits",
            f"{row['products']:,}",
            *(
                f"{row[name]:.2f} s"
                for name in ("encrypt_s", "seconds", "planned_s", "open_s", "numpy_s")
            ),
        )
    return table
