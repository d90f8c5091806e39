"""Predicting without opening anything: encrypted models and rows of ``bcw_o``, forests without and
with a drawn fraction.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from sklearn.base import clone

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.fit import study_schema
from encryptedstats.machine import cores
from reproduction import datasets

N_TREES, DEPTH, TRAINING_ROWS = 100, 3, 547
MANY = 8192  # rows at once, for the cost of one
# Name, what is fitted, rows to predict (None: those that are left of the data set).
CASES: tuple[tuple[str, str, int | None], ...] = (
    ("forest", "forest, M=0", None),
    ("forest of 8192 rows", "forest, M=0", MANY),
    ("snb", "naive Bayes, semi-parametric", None),
    ("mnb", "naive Bayes, multinomial", None),
    ("drawn", "forest, M=8", None),
)


@part("predict")
def predict(settings: Settings) -> Report:
    trees = 2 if settings.quick else N_TREES
    try:
        datasets.load("bcw_o", download=False)
    except datasets.DatasetUnavailableError:
        return Report(
            results=None, remarks=["the data set bcw_o is not here: nothing was measured"]
        )
    rows = []
    for name, _, new_rows in CASES[:1] if settings.quick else CASES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(_predict, name, trees, new_rows).result())
    return Report(
        results=rows,
        tables=[_table(rows)],
        remarks=[
            f"bcw_o, {TRAINING_ROWS} rows to fit to, {rows[0]['new_rows']} others to predict, "
            f"{trees} trees of depth {DEPTH}; "
            f"answers are compared with those in the clear. {cores()} cores. M is the stochastic "
            "fraction, 0: none; drawing it "
            "is part of the fit."
        ],
    )


def _model(name: str, trees: int) -> Any:
    if name == "snb":
        return es.SemiparametricNB()
    if name == "mnb":
        return es.MultinomialNB()
    return es.CompletelyRandomForest(
        trees, DEPTH, fraction=8 if name == "drawn" else 0, random_state=1
    )


def _predict(name: str, trees: int, new_rows: int | None) -> dict[str, Any]:
    """In a process of its own, for its peak memory."""
    schema, frame = study_schema()
    rest = frame.iloc[TRAINING_ROWS:].drop(columns="target")
    if new_rows is not None:
        rest = rest.iloc[np.resize(np.arange(len(rest)), new_rows)]
    train, new = schema.table(frame.iloc[:TRAINING_ROWS]), schema.table(rest)
    forest = _model(name, trees)
    plan = es.plan(forest, schema, len(train), len(new), encrypted_prediction=True)
    owner = es.Owner(plan)
    laps = [time.perf_counter()]
    sealed, sealed_new = owner.encrypt(train), owner.encrypt(new)
    laps.append(time.perf_counter())
    forest.fit(sealed, progress=False)
    laps.append(time.perf_counter())
    votes = forest.predict_votes(sealed_new, progress=False)
    laps.append(time.perf_counter())
    opened = owner.open(votes, schema=schema)
    laps.append(time.perf_counter())
    if not np.array_equal(
        opened.to_numpy(), clone(forest).fit(train).predict_votes(new).to_numpy()
    ):
        raise RuntimeError(
            "the encrypted votes are not the plain ones: there is nothing to measure"
        )
    seconds = dict(zip(("encrypt", "fit", "predict", "open"), np.diff(laps).tolist(), strict=True))
    return {
        "case": name,
        "fraction": getattr(forest, "fraction", 0),
        "trees": trees,
        "new_rows": len(new),
        "ring_degree": plan.parameters.ring_degree,
        "primes": len(plan.parameters.data_moduli),
        "seconds": seconds,
        "planned_seconds": plan.seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Encrypted model, encrypted rows: seconds",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in (
        "what",
        "rows",
        "ring",
        "primes",
        "encrypt",
        "fit",
        "predict",
        "open",
        "peak MB",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            {name: shown for name, shown, _ in CASES}[row["case"]],
            f"{row['new_rows']:,}",
            f"{row['ring_degree']:,}",
            str(row["primes"]),
            *(f"{row['seconds'][step]:.2f}" for step in ("encrypt", "fit", "predict", "open")),
            f"{row['peak_bytes'] / 1e6:,.0f}",
        )
    return table
