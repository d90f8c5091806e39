"""Opened totals of large tables, read by their owner: seconds for each result, beside the same call
of R on the rows.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, measure, part

_REPEATED = (
    "d <- read.csv('{file}', stringsAsFactors = TRUE); f <- function() {call}; invisible(f()); "
    "cat(median(replicate(5, system.time(f())[['elapsed']])))"
)


@dataclass(frozen=True)
class Case:
    """A result, how it is read from totals, and the call of R that gives it from rows."""

    name: str
    read: Callable[[], object]
    rows: pd.DataFrame
    call: str


@part("readers")
def readers(settings: Settings) -> Report:
    cases = [
        *_of_a_regression(12 if settings.quick else 60),
        *_of_groups(settings.quick),
        *_of_counts(settings.quick),
    ]
    rows = [_timed(case, settings) for case in cases]
    return Report(
        results={"rows": rows},
        tables=[_table(rows)],
        remarks=[
            "The owner's side only: totals are opened already. R reads the rows, of which it has "
            "the same result.",
        ],
    )


def _timed(case: Case, settings: Settings) -> dict[str, Any]:
    ours, theirs = measure(case.read, settings), _seconds_of_r(case)
    ratio = None if not theirs else ours.median / theirs
    return {"result": case.name, **ours.to_dict(), "r_s": theirs, "times_r": ratio}


def _seconds_of_r(case: Case) -> float | None:
    """Return R's seconds in a session that runs already; None where there is no R."""
    if shutil.which("Rscript") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        case.rows.to_csv(file, index=False)
        code = _REPEATED.replace("{file}", str(file)).replace("{call}", case.call)
        found = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True, check=True)
    return float(found.stdout)


def _of_a_regression(n_columns: int) -> list[Case]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, n_columns)).round(4)
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(n_columns)])
    frame["y"] = (x.sum(axis=1) + rng.normal(size=len(x))).round(4)
    table = es.Schema.infer(frame, numbers="keep").table(frame)
    model = es.LinearRegression("y ~ .").fit(table)
    fit = "lm(y ~ ., d)"
    name = f"regression on {n_columns} columns"
    return [
        Case(f"{name}: summary", lambda: _opened(model, table).summary(), frame, f"summary({fit})"),
        Case(f"{name}: anova", lambda: _opened(model, table).anova(), frame, f"anova({fit})"),
        Case(
            f"{name}: anova of type 2",
            lambda: _opened(model, table).anova(2),
            frame,
            f"drop1({fit})",
        ),
    ]


def _opened(model: es.LinearRegression, table: es.Table) -> es.LinearRegression:
    return model.interpret(model.totals_, table.schema, len(table))


def _of_groups(quick: bool) -> list[Case]:
    rng, n = np.random.default_rng(2), 500 if quick else 5000
    levels = (3, 4) if quick else (15, 10)
    frame = pd.DataFrame(
        {name: rng.integers(0, k, n).astype(str) for name, k in zip("ab", levels, strict=True)}
    )
    frame["a"], frame["b"] = "a" + frame["a"], "b" + frame["b"]
    frame["y"] = rng.normal(size=n).round(3)
    table = es.Schema.infer(frame).with_kind("y", "number", digits=3).table(frame)
    size = " x ".join(map(str, levels))
    found = []
    for typ in (1, 2, 3):
        question = es.Anova("y", ["a", "b"], typ=typ)
        found.append(
            Case(
                f"analysis of variance of {size} groups, type {typ}",
                _reader(question, table),
                frame,
                "summary(aov(y ~ a * b, d))",
            )
        )
    return found


def _of_counts(quick: bool) -> list[Case]:
    rng, n = np.random.default_rng(3), 1000 if quick else 100_000
    frame = pd.DataFrame({"a": rng.integers(0, 2, n), "b": rng.integers(0, 2, n)}).astype(str)
    table = es.Schema.infer(frame).table(frame)
    name = f"Fisher's exact test of {n:,} rows"
    return [
        Case(name, _reader(es.FisherExact("a", "b"), table), frame, "fisher.test(table(d$a, d$b))")
    ]


def _reader(question: es.Question, table: es.Table) -> Callable[[], object]:
    """Return what the owner does with the opened totals of a question."""
    asked = question.in_ids(table.schema)
    totals = asked._name_totals(table.totals(asked), table.public_schema)
    return lambda: asked.read(totals, table.schema, len(table))


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Results read by the owner", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading in ("result", "ours, s", "R, s", "times R"):
        table.add_column(heading, justify="left" if heading == "result" else "right")
    for row in rows:
        theirs = [
            "" if row[name] is None else f"{row[name]:.{digits}f}"
            for name, digits in (("r_s", 3), ("times_r", 1))
        ]
        table.add_row(row["result"], f"{row['median_s']:.3f}", *theirs)
    return table
