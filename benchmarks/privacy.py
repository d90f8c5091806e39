"""How good a released forest is: AUC against epsilon on the paper's data sets, beside diffprivlib's
forest.

Totals are the same numbers whether they were encrypted or not, so this takes clear ones.
diffprivlib needs an older scikit-learn: it runs in an environment of its own, which is made below
``out/``, or is the interpreter that DIFFPRIVLIB_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from encryptedstats.publishing.release import plan_release
from reproduction import datasets

EPSILONS = (0.01, 0.1, 1.0, 10.0)
DELTA = 1e-6
TREES, DEPTH = 100, 3
VARIABLE = "DIFFPRIVLIB_PYTHON"
ENVIRONMENT = Path("out/diffprivlib")
REQUIREMENTS = ("diffprivlib==0.6.5", "scikit-learn<1.5", "numpy<2", "pandas")
#: Run by the other interpreter: reads rows, prints AUCs. It is given the bounds of the training
#: rows for free.
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from diffprivlib.models import RandomForestClassifier
from sklearn.metrics import roc_auc_score
found = {}
with np.load(sys.argv[1]) as data:
    X, y, new, wanted = (data[name] for name in ("X", "y", "new", "wanted"))
bounds = (X.min(axis=0), np.maximum(X.max(axis=0), X.min(axis=0) + 1e-9))
for epsilon in map(float, sys.argv[3].split(",")):
    scores = []
    for seed in range(int(sys.argv[2])):
        known = dict(epsilon=epsilon, bounds=bounds, classes=[0, 1], random_state=seed)
        forest = RandomForestClassifier(n_estimators=10, max_depth=5, **known)
        scores.append(roc_auc_score(wanted, forest.fit(X, y).predict_proba(new)[:, 1]))
    found[epsilon] = scores
print(json.dumps(found))
"""


@part("privacy")
def privacy(settings: Settings) -> Report:
    names = ["bcw_o", "haber"] if settings.quick else datasets.names()
    repeats = 1 if settings.quick else 5
    python, why = (
        _interpreter()
        if not settings.quick
        else (os.environ.get(VARIABLE), "a quick run makes no environment")
    )
    rows = [_of(name, repeats, python) for name in names]
    remarks = [
        f"Forests of {TREES} trees, depth {DEPTH}, votes; delta {DELTA:g}; a row for another, the "
        "number of rows public; mean AUC "
        f"of {repeats} releases on a fifth of the rows. Bins are quintiles of all rows, which "
        "epsilon does not cover."
    ]
    if python is None:
        remarks.append(f"Without diffprivlib: {why}.")
    else:
        remarks.append(
            "diffprivlib: its forest with its defaults (10 trees, depth 5), with the bounds of "
            "the training rows for free."
        )
    return Report({"epsilons": EPSILONS, "delta": DELTA, "sets": rows}, [_table(rows)], remarks)


def _of(name: str, repeats: int, python: str | None) -> dict[str, Any]:
    """Exact and released AUCs of one data set."""
    data = datasets.load(name)
    frame = data.table_frame()
    target = frame.columns[-1]
    train, test = train_test_split(frame, test_size=0.2, random_state=0, stratify=frame[target])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = es.Schema.infer(frame, target=target, kinds=dict(data.kinds))
        table, new = (
            schema.table(train.reset_index(drop=True)),
            schema.table(test.reset_index(drop=True)),
        )
    wanted = (test[target] == schema.classes[1]).to_numpy()
    forest = es.CompletelyRandomForest(n_trees=TREES, depth=DEPTH, random_state=0)
    exact = [int(total) for total in table.totals(forest)]
    auc = _auc(forest.interpret(exact, schema, len(table)), new, wanted)
    released = {}
    for epsilon in EPSILONS:
        plan = plan_release(forest, schema.public(), epsilon=epsilon, delta=DELTA)
        made = [plan.noisy(exact, len(table)) for _ in range(repeats)]
        released[epsilon] = [
            _auc(forest.interpret(totals, schema, n), new, wanted) for totals, n in made
        ]
    beside = None if python is None else _beside(python, train, test, target, wanted, repeats)
    return {
        "name": name,
        "rows": len(table),
        "exact": auc,
        "released": released,
        "diffprivlib": beside,
    }


def _auc(forest: es.CompletelyRandomForest, rows: es.Table, wanted: Any) -> float:
    return float(roc_auc_score(wanted, forest.predict_proba(rows)[:, 1]))


def _beside(
    python: str, train: pd.DataFrame, test: pd.DataFrame, target: str, wanted: Any, repeats: int
) -> dict[str, list[float]]:
    """What diffprivlib's forest gives on the same rows: categories are one column a level."""
    both = pd.get_dummies(pd.concat([train, test]).drop(columns=target)).to_numpy(dtype=float)
    y = (train[target] == sorted(train[target].unique())[1]).to_numpy().astype(int)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=both[: len(train)], y=y, new=both[len(train) :], wanted=wanted)
        asked = [python, "-c", SCRIPT, str(path), str(repeats), ",".join(map(str, EPSILONS))]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def _interpreter() -> tuple[str | None, str]:
    """A Python that has diffprivlib, made if it can be; or why there is none."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE], ""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    install = [str(python), "-m", "pip", "install", "-q", *REQUIREMENTS]
    try:
        done = subprocess.run(install, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return (
        (str(python), "")
        if done.returncode == 0
        else (None, (done.stderr.strip().splitlines() or [sys.platform])[-1])
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="AUC of released forests", box=box.SIMPLE_HEAD)
    for name in (
        "set",
        "rows",
        "exact",
        *(f"epsilon {epsilon:g}" for epsilon in EPSILONS),
        "diffprivlib, 1",
        "0.1",
    ):
        table.add_column(name, justify="left" if name == "set" else "right")
    for row in rows:
        beside = row["diffprivlib"]
        others = [f"{np.mean(beside[str(e)]):.3f}" if beside else "" for e in (1.0, 0.1)]
        ours = [f"{np.mean(row['released'][epsilon]):.3f}" for epsilon in EPSILONS]
        table.add_row(row["name"], f"{row['rows']:,}", f"{row['exact']:.3f}", *ours, *others)
    return table
