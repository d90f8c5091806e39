"""The table of times and the case study, measured here: seconds to fit and predict encrypted, and
bytes of an encrypted value.

The paper's unit is 100 rows and one tree or predictor, because its cost grows with the rows. Here
up to 8192 rows share a ciphertext and cost the same, so two figures are given: for a table of just
100 rows, and for a full ciphertext shared out over its rows.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from encryptedstats.crypto import Owner
from encryptedstats.machine import cores
from encryptedstats.models import CompletelyRandomForest, SemiparametricNB
from encryptedstats.progress import progress_bar
from encryptedstats.tables import EncryptedTable, Schema, plan
from reproduction.evaluation.results import ResultFolder
from reproduction.evaluation.samples import load
from reproduction.evaluation.settings import BINS, DEPTH, N_TREES, Settings, derived_seed

N_VARIABLES: Final = 10
_TREES: Final = 50
_REPEATS: Final = 3
ROWS: Final = (100, 8192, 32768)
CASE_STUDY_ROWS: Final = 547
_SHARD_ROWS: Final = 32

#: The table of times: seconds to fit and to predict, and KB of an encrypted value.
PAPER: Final = {
    "SNB-paired": (18.0, 7.8, 154),
    "CRF, L=1": (12.5, 15.1, 128),
    "CRF, L=2": (45.2, 48.3, 528),
    "CRF, L=3": (347.0, 353.0, 1672),
}


@dataclass(frozen=True)
class Timed:
    """A model of the table, and how many trees or predictors its seconds are shared out over."""

    name: str
    model: Callable[[], Any]
    units: int


PREDICTED: Final = (100, 8192)
MODELS: Final = (
    Timed("SNB-paired", lambda: SemiparametricNB(paired=True), N_VARIABLES),
    Timed("CRF, L=1", lambda: CompletelyRandomForest(_TREES, 1), _TREES),
    Timed("CRF, L=2", lambda: CompletelyRandomForest(_TREES, 2), _TREES),
    Timed("CRF, L=3", lambda: CompletelyRandomForest(_TREES, 3), _TREES),
)
# Fewer trees: keys that leave room for predicting are for a ring twice as large.
_FEW_TREES: Final = 10
PREDICTING: Final = (
    MODELS[0],
    Timed("CRF, L=1", lambda: CompletelyRandomForest(_FEW_TREES, 1), _FEW_TREES),
    Timed("CRF, L=2", lambda: CompletelyRandomForest(_FEW_TREES, 2), _FEW_TREES),
    Timed("CRF, L=3", lambda: CompletelyRandomForest(_FEW_TREES, 3), _FEW_TREES),
)


def made_up(n_rows: int, seed: int) -> pd.DataFrame:
    """Continuous predictors and two classes that depend on them a little."""
    rng = np.random.default_rng(derived_seed(seed, "times", n_rows))
    x = rng.normal(size=(n_rows, N_VARIABLES))
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(N_VARIABLES)])
    return frame.assign(target=(x[:, 0] + rng.normal(size=n_rows) > 0).astype(int))


def time_fit(timed: Timed, n_rows: int, seed: int, workers: int | None) -> dict[str, Any]:
    """Seconds to plan, to make keys, to encrypt, to fit (the median of some) and to predict with
    the opened model.
    """
    frame = made_up(n_rows, seed)
    schema = Schema.infer(frame, target="target", bins=BINS)
    rows = schema.table(frame)
    keys_plan, plan_seconds = _timed(lambda: plan(timed.model(), schema, n_rows))
    owner, key_seconds = _timed(lambda: Owner(keys_plan))
    table, encrypt_seconds = _timed(lambda: owner.encrypt(rows))
    fits = [
        _timed(lambda: timed.model().fit(table, workers=workers, progress=False))
        for _ in range(_REPEATS)
    ]
    fit_seconds = statistics.median(seconds for _, seconds in fits)
    opened, open_seconds = _timed(lambda: owner.open(fits[0][0], schema=schema))
    _, predict_seconds = _timed(lambda: opened.predict_proba(rows))
    per_unit = 100 / n_rows / timed.units
    parameters = owner.parameters
    return {
        "model": timed.name,
        "rows": n_rows,
        "units": timed.units,
        "ring": parameters.ring_degree,
        "modulus_bits": parameters.modulus_bits,
        "data_primes": len(parameters.data_moduli),
        "security": parameters.security,
        "plan_seconds": plan_seconds,
        "key_seconds": key_seconds,
        "encrypt_seconds": encrypt_seconds,
        "fit_seconds": fit_seconds,
        "open_seconds": open_seconds,
        "predict_seconds": predict_seconds,
        "fit_per_100": fit_seconds * per_unit,
        "predict_per_100": predict_seconds * per_unit,
        "memory_per_ciphertext": parameters.ciphertext_bytes(),
        "memory_per_value": parameters.ciphertext_bytes() * table.layout.n_chunks / n_rows,
    }


def time_prediction(timed: Timed, n_rows: int, seed: int, workers: int | None) -> dict[str, Any]:
    """Seconds to predict rows that stay encrypted with a model of 100 rows that stays encrypted
    too.
    """
    frame, new = made_up(100, seed), made_up(n_rows, seed + 1).drop(columns="target")
    schema = Schema.infer(frame, target="target", bins=BINS)
    model = timed.model()
    keys_plan = plan(model, schema, len(frame), n_predict=n_rows, encrypted_prediction=True)
    owner = Owner(keys_plan)
    model.fit(owner.encrypt(schema.table(frame)), workers=workers, progress=False)
    rows = owner.encrypt(schema.table(new))
    votes, seconds = _timed(lambda: model.predict_votes(rows, workers=workers, progress=False))
    clear = timed.model().fit(schema.table(frame)).predict_votes(schema.table(new))
    return {
        "model": timed.name,
        "rows": n_rows,
        "units": timed.units,
        "ring": owner.parameters.ring_degree,
        "modulus_bits": owner.parameters.modulus_bits,
        "security": owner.parameters.security,
        "predict_seconds": seconds,
        "predict_per_100": seconds * 100 / n_rows / timed.units,
        "exact": bool(
            np.array_equal(owner.open(votes, schema=schema).to_numpy(), clear.to_numpy())
        ),
    }


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started


def case_study(settings: Settings) -> dict[str, Any]:
    """The paper's section 5.4 on this machine: 100 trees of 3 levels over 547 rows of the original
    Wisconsin data.
    """
    data = load("bcw_o", settings.data_home)
    rng = np.random.default_rng(derived_seed(settings.seed, "case study"))
    frame = data.table_frame().iloc[np.sort(rng.permutation(len(data.target))[:CASE_STUDY_ROWS])]
    schema = Schema.infer(frame, target="target", bins=BINS, kinds=data.kinds)
    model = CompletelyRandomForest(N_TREES, DEPTH, fraction=0)
    owner, key_seconds = _timed(lambda: Owner(plan(model, schema, len(frame))))
    table, encrypt_seconds = _timed(lambda: owner.encrypt(schema.table(frame)))
    with tempfile.TemporaryDirectory(prefix="encryptedstats-reproduce-") as folder:
        stored = Path(folder) / "table"
        table.save(stored)
        table_bytes = sum(file.stat().st_size for file in stored.rglob("*") if file.is_file())
        worker_table = EncryptedTable.load(stored)
        fit, fit_seconds = _timed(
            lambda: model.fit(worker_table, workers=settings.workers, progress=False)
        )
        fit.save(Path(folder) / "forest")
        model_bytes = (Path(folder) / "forest").stat().st_size
    opened, open_seconds = _timed(lambda: owner.open(fit, schema=schema))
    rows = schema.table(frame)
    clear = CompletelyRandomForest(N_TREES, DEPTH, fraction=0).fit(rows)
    shards = [
        rows[start : start + _SHARD_ROWS].with_layout(256)
        for start in range(0, len(rows), _SHARD_ROWS)
    ]
    added = reduce(
        add, [CompletelyRandomForest(N_TREES, DEPTH, fraction=0).fit(shard) for shard in shards]
    )
    return {
        "rows": len(frame),
        "cores": cores() if settings.workers is None else settings.workers,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "security": owner.parameters.security,
        "ring": owner.parameters.ring_degree,
        "modulus_bits": owner.parameters.modulus_bits,
        "plan_and_key_seconds": key_seconds,
        "encrypt_seconds": encrypt_seconds,
        "fit_seconds": fit_seconds,
        "open_seconds": open_seconds,
        "table_bytes": table_bytes,
        "model_bytes": model_bytes,
        "memory_per_ciphertext": owner.parameters.ciphertext_bytes(),
        "exact": list(opened.totals_) == list(clear.totals_),
        "shards_add_up": list(added.totals_) == list(clear.totals_),
    }


def run_times(settings: Settings, show: bool | None = None) -> int:
    """Measure what was not measured yet; returns how many measurements were made."""
    constants = {"variables": N_VARIABLES, "bins": BINS, "trees": _TREES, "repeats": _REPEATS}
    folder = ResultFolder(settings.output, "times", constants)
    keys = ("model", "rows")
    fits, predictions = folder.file("fits", keys), folder.file("predictions", keys)
    study = folder.file("case_study", ("rows",))
    wanted = [(fits, time_fit, timed, n) for timed in MODELS for n in ROWS]
    wanted += [(predictions, time_prediction, timed, n) for timed in PREDICTING for n in PREDICTED]
    missing = [
        (file, measure, timed, n)
        for file, measure, timed, n in wanted
        if not file.has(timed.name, n)
    ]
    with progress_bar("times", len(missing) + 1, "measurements", show) as advance:
        for file, measure, timed, n_rows in missing:
            file.add([measure(timed, n_rows, settings.seed, settings.workers)])
            advance(1)
        if not len(study):
            study.add([case_study(settings)])
    return len(missing)
