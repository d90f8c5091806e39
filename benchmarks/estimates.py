"""Planned beside measured: seconds and bytes of ten questions, each asked in a new process.

All is pinned to one core, so that planned seconds are those of one core, and compared with the
processor time of user code: what else the machine does hardly counts.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.words import size_text

ROWS, QUICK_ROWS = 20_000, 200


def _questions(trees: int) -> dict[str, Any]:
    return {
        "forest of depth 3": es.CompletelyRandomForest(trees, 3, random_state=1),
        "forest of depth 1": es.CompletelyRandomForest(trees, 1, random_state=1),
        "naive Bayes": es.MultinomialNB(),
        "linear means": es.LinearMeans(),
        "one-step logistic": es.OneStepLogisticRegression(),
        "linear regression": es.LinearRegression("v0 ~ v1 + v2 + v3"),
        "t-test": es.TTest("v0", by="v3"),
        "chi-square": es.ChiSquare("v3", "v4"),
        "description": es.Describe(["v0", "v1", "v2"], by="v3"),
        "correlation": es.Correlation(("v0", "v1", "v2")),
    }


@part("estimates")
def estimates(settings: Settings) -> Report:
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(affinity)})
    try:
        rows = [_compare(name, settings.quick) for name in _questions(2)]
    finally:
        os.sched_setaffinity(0, affinity)
    return Report(
        results={"rows": QUICK_ROWS if settings.quick else ROWS, "questions": rows},
        tables=[_shown(rows)],
        remarks=[
            "Seconds of one core for the first question of a process, after imports: keys are "
            "read, the program is compiled and run, and the answer is saved."
        ],
    )


def _asked(name: str, quick: bool) -> tuple[Any, es.Table]:
    n_rows, trees = (QUICK_ROWS, 2) if quick else (ROWS, 100)
    question = _questions(trees)[name]
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n_rows),
            "dose": rng.integers(0, 50, n_rows),
            "weight": rng.integers(40, 130, n_rows),
            "arm": rng.choice(["control", "treated"], n_rows),
            "site": rng.choice(["north", "east", "south"], n_rows),
            "sick": rng.integers(0, 2, n_rows),
        }
    )
    schema = es.Schema.infer(frame, target="sick", bins=5)
    bins = (es.CompletelyRandomForest, es.MultinomialNB)
    if not isinstance(question, bins):
        for number in ("age", "dose", "weight"):
            schema = schema.with_kind(number, "number", digits=0)
    return question, schema.table(frame)


def _compare(name: str, quick: bool) -> dict[str, Any]:
    question, table = _asked(name, quick)
    plan = es.plan(question, table)
    owner = es.Owner(plan)
    before = _user_seconds()
    sealed = owner.encrypt(table)
    encrypted = _user_seconds() - before
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sealed.save(place / "table")
        command = [sys.executable, "-m", "benchmarks.estimates", name, str(place), str(int(quick))]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        keys = sum(one.stat().st_size for one in (place / "table").glob("*keys*"))
        up = sum(one.stat().st_size for one in (place / "table").rglob("*") if one.is_file())
        down = (place / "answer").stat().st_size
    return {
        "question": name,
        "seconds": [plan.seconds, found["seconds"]],
        "encrypt_seconds": [plan.encrypt_seconds, encrypted],
        "bytes_up": [plan.bytes_up + plan.bytes_keys, up],
        "bytes_keys": [plan.bytes_keys, keys],
        "bytes_down": [plan.bytes_down, down],
    }


def _user_seconds() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def _ask(name: str, place: Path, quick: bool) -> dict[str, float]:
    question, _ = _asked(name, quick)
    before = _user_seconds()
    sealed = es.load(place / "table")
    sealed.ask(question, progress=False).save(place / "answer")
    return {"seconds": _user_seconds() - before}


def _shown(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Planned and measured", title_justify="left", box=box.SIMPLE_HEAD)
    titles = {
        "seconds": "seconds",
        "encrypt_seconds": "encrypt",
        "bytes_up": "up",
        "bytes_down": "down",
    }
    table.add_column("question")
    for title in titles.values():
        for head in (f"{title}\nplanned", "\nmeasured", "\nratio"):
            table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        cells = []
        for title in titles:
            planned, measured = row[title]
            show = size_text if title.startswith("bytes") else "{:.3f}".format
            cells += [show(planned), show(measured), f"{planned / measured:.2f}"]
        table.add_row(row["question"], *cells)
    return table


if __name__ == "__main__":
    print(json.dumps(_ask(sys.argv[1], Path(sys.argv[2]), bool(int(sys.argv[3])))))
