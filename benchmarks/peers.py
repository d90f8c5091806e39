"""Encrypted fits beside what a user would take instead, on the same rows in one run.

Plain: scikit-learn's random forest and extra trees, statsmodels and NumPy. Encrypted: HElayers and
Concrete ML, which run with interpreters of their own, because their requirements are not ours:
``ENCRYPTEDSTATS_PEERS`` names a folder with the environments ``pyhelayers`` and ``concrete-ml``.
"""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import encryptedstats as es
from benchmarks._common import Report, Settings, part
from benchmarks.fit import study_schema
from benchmarks.plain import STUDY_ROWS, _timed
from benchmarks.streaming import DEPTH, N_TREES, adult_rows
from reproduction import datasets

ENVIRONMENTS = "ENCRYPTEDSTATS_PEERS"
_AGAIN = 3
_LONGEST = 1800  # seconds that another system may take
_HERE = Path(__file__).parent
Entry = dict[str, Any]


@part("peers")
def peers(settings: Settings) -> Report:
    trees, again = (2, 1) if settings.quick else (N_TREES, _AGAIN)
    cases = [
        *_forests(settings, trees, again),
        _linear(settings, again),
        _logistic(settings, again),
    ]
    return Report(
        results={"trees": trees, "depth": DEPTH, "cases": cases},
        tables=[_table(cases)],
        remarks=[
            "The shorter of some runs; ours after a first fit that prepares. Processor time is of "
            "all threads together: on a busy machine it says more than the clock.",
            "Concrete ML is timed for one batch of its gradient descent, which is repeated until "
            f"it has converged. Other systems need {ENVIRONMENTS}.",
        ],
    )


def _best(action: Callable[[], Any], again: int) -> tuple[float, float]:
    return min(_timed(action)[1] for _ in range(again))


def _entry(name: str, seconds: tuple[float, float], *, encrypted: bool = False) -> Entry:
    return {
        "name": name,
        "encrypted": encrypted,
        "seconds": seconds[0],
        "cpu_seconds": seconds[1],
    }


# -- forests


def _forests(settings: Settings, trees: int, again: int) -> list[dict[str, Any]]:
    try:
        schema, frame = study_schema()
        tables = [("bcw_o", schema, frame.iloc[:STUDY_ROWS])]
    except datasets.DatasetUnavailableError:
        tables = []
    adult = None if settings.quick else adult_rows()
    if adult is not None:
        tables.append(("adult", *adult))
    return [_forest(*one, trees, again) for one in tables]


def _forest(
    name: str, schema: es.Schema, frame: pd.DataFrame, trees: int, again: int
) -> dict[str, Any]:
    table = schema.table(frame)
    owner = es.Owner(es.plan(es.CompletelyRandomForest(trees, DEPTH, random_state=1), table))
    sealed, encrypting = _timed(lambda: owner.encrypt(table))

    def fit() -> None:
        es.CompletelyRandomForest(trees, DEPTH, random_state=1).fit(sealed, progress=False)

    fit()
    x = pd.get_dummies(frame.drop(columns="target")).to_numpy()
    y = frame["target"].to_numpy()
    entries = [_entry("encryptedstats", _best(fit, again), encrypted=True)]
    for kind in (RandomForestClassifier, ExtraTreesClassifier):
        model = kind(trees, max_depth=DEPTH, random_state=0, n_jobs=1)
        entries.append(
            _entry(f"scikit-learn {kind.__name__}", _best(lambda m=model: m.fit(x, y), again))
        )
    if name == "bcw_o":
        classes = np.unique(y, return_inverse=True)[1].tolist()
        entries += [*_helayers(table, classes, trees), *_concrete(table, classes)]
    return {
        "task": f"{trees} trees of depth {DEPTH}, {name}",
        "rows": len(frame),
        "encrypt": encrypting,
        "entries": entries,
    }


def _codes(table: es.Table) -> Any:
    n_variables = len(table.public_schema.variables)
    return np.stack([table.codes_of(j) for j in range(n_variables)], axis=1)


def _helayers(table: es.Table, classes: list[int], trees: int) -> list[Entry]:
    codes = _codes(table)
    sizes = [variable.n_bins for variable in table.public_schema.variables]
    ends = np.cumsum([0, *sizes])
    asked = {
        "onehot": np.concatenate(
            [np.eye(size)[codes[:, j]] for j, size in enumerate(sizes)], axis=1
        ).tolist(),
        "groups": [list(range(*ends[j : j + 2])) for j in range(len(sizes))],
        "target": classes,
        "trees": trees,
        "depth": DEPTH,
    }
    found = _ask_other("pyhelayers", asked)
    if found is None:
        return []
    return [
        _other_entry(f"HElayers {found['version']}, its completely random forest", found["fit"])
    ]


def _concrete(table: es.Table, classes: list[int]) -> list[Entry]:
    asked = {"numbers": _codes(table).tolist(), "target": classes}
    found = _ask_other("concrete-ml", asked)
    if found is None:
        return []
    name = f"Concrete ML {found['version']}, logistic regression, a batch of {found['rows']} rows"
    return [_other_entry(name, found["batch"])]


def _other_entry(name: str, found: dict[str, float]) -> Entry:
    return _entry(name, (found["seconds"], found["cpu_seconds"]), encrypted=True)


def _ask_other(environment: str, asked: dict[str, Any]) -> dict[str, Any] | None:
    """Run the script of another system in its environment; None where there is none."""
    folder = os.environ.get(ENVIRONMENTS)
    python = Path(folder or "", environment, "bin", "python")
    if not folder or not python.exists():
        return None
    script = _HERE / f"_peer_{environment.replace('-', '_')}.py"
    try:
        done = subprocess.run(
            [python, script],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST,
        )
    except subprocess.TimeoutExpired:
        warnings.warn(f"{environment} was stopped after {_LONGEST} s", stacklevel=2)
        return None
    if done.returncode:
        warnings.warn(f"{environment} failed: {done.stderr[-300:]}", stacklevel=2)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- regressions


def _linear(settings: Settings, again: int) -> dict[str, Any]:
    import statsmodels.api as sm

    rng = np.random.default_rng(1)
    n, k = (500, 3) if settings.quick else (10_000, 10)
    x = np.round(rng.normal(size=(n, k)), 2)
    y = np.round(x @ rng.normal(size=k) + rng.normal(size=n), 2)
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(k)]).assign(y=y)
    schema = es.Schema.infer(frame, target="y", numbers="keep", digits=2)
    table = schema.table(frame)
    owner = es.Owner(es.plan(es.LinearRegression(), table))
    sealed, encrypting = _timed(lambda: owner.encrypt(table))

    def fit() -> None:
        owner.open(es.LinearRegression().fit(sealed, progress=False), schema=schema)

    fit()
    design = sm.add_constant(x)
    entries = [
        _entry("encryptedstats, opened", _best(fit, again), encrypted=True),
        _entry("statsmodels OLS", _best(lambda: sm.OLS(y, design).fit().summary(), again)),
        _entry("NumPy lstsq", _best(lambda: np.linalg.lstsq(design, y, rcond=None), again)),
    ]
    return {
        "task": f"linear regression on {k} numbers",
        "rows": n,
        "encrypt": encrypting,
        "entries": entries,
    }


def _logistic(settings: Settings, again: int) -> dict[str, Any]:
    import statsmodels.api as sm

    rng = np.random.default_rng(2)
    n = 500 if settings.quick else 10_000
    frame = pd.DataFrame({name: rng.choice(list("abcd"), n) for name in ("f", "g", "h")})
    risk = 1 / (1 + np.exp(1 - (frame["f"] == "b") - (frame["g"] == "c")))
    frame["y"] = (rng.random(n) < risk).astype(int)
    schema = es.Schema.infer(frame, target="y")
    table = schema.table(frame)
    owner = es.Owner(es.plan(es.GLM(), table))
    sealed, encrypting = _timed(lambda: owner.encrypt(table))

    def fit() -> None:
        owner.open(es.GLM().fit(sealed, progress=False), schema=schema)

    fit()
    design = sm.add_constant(pd.get_dummies(frame.drop(columns="y"), drop_first=True, dtype=float))
    glm = sm.GLM(frame["y"], design, family=sm.families.Binomial())
    entries = [
        _entry("encryptedstats, opened", _best(fit, again), encrypted=True),
        _entry("statsmodels GLM", _best(lambda: glm.fit().summary(), again)),
    ]
    return {
        "task": "logistic regression on 3 factors",
        "rows": n,
        "encrypt": encrypting,
        "entries": entries,
    }


# -- showing


def _table(cases: list[dict[str, Any]]) -> Table:
    table = Table(title="Fits", title_justify="left", box=box.SIMPLE_HEAD)
    for title in ("task", "by", "rows", "encrypted", "s", "CPU s", "times ours, CPU"):
        table.add_column(title, justify="left" if title in ("task", "by") else "right")
    for case in cases:
        ours = case["entries"][0]["cpu_seconds"]
        for number, entry in enumerate(case["entries"]):
            table.add_row(
                "" if number else case["task"],
                entry["name"],
                f"{case['rows']:,}",
                "yes" if entry["encrypted"] else "",
                f"{entry['seconds']:.3f}",
                f"{entry['cpu_seconds']:.3f}",
                f"{entry['cpu_seconds'] / ours:.2g}",
            )
    return table
