"""What a plan says of bytes is what files take, and its seconds include the start of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.circuits import calibration, plan
from encryptedstats.circuits.cost import OperationTimes

N = np.arange(300)
FRAME = pd.DataFrame({"a": N % 7, "b": N * 3 % 11, "arm": N % 3, "y": N * 5 % 3 % 2})
SCHEMA = es.Schema.infer(FRAME, target="y", bins=3, kinds={"arm": "categorical"})
NUMBERS = SCHEMA.with_kind("a", "number", digits=0).with_kind("b", "number", digits=0)
QUESTIONS = [
    (es.CompletelyRandomForest(20, 2, random_state=1), SCHEMA),
    (es.MultinomialNB(), SCHEMA),
    (es.LinearRegression("v0 ~ v1 + v2"), NUMBERS),
    (es.TTest("v0", by="class"), NUMBERS),
]


@pytest.mark.parametrize(("question", "schema"), QUESTIONS, ids=lambda one: type(one).__name__)
def test_bytes_are_those_of_the_files(question: Any, schema: es.Schema, tmp_path: Path) -> None:
    table = schema.table(FRAME)
    made = es.plan(question, table)
    sealed = es.Owner(made).encrypt(table)
    sealed.save(tmp_path / "table")
    sealed.ask(question).save(tmp_path / "answer")
    files = [one for one in (tmp_path / "table").rglob("*") if one.is_file()]
    stored = sum(one.stat().st_size for one in files)
    assert stored == pytest.approx(made.bytes_up + made.bytes_keys, rel=0.02)
    assert (tmp_path / "answer").stat().st_size == pytest.approx(made.bytes_down, rel=0.02)


def test_seconds_include_contexts_keys_and_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = dict.fromkeys(vars(OperationTimes.unknown()), 0.0)
    seconds = {}
    for name in ("start", "read_key", "compile"):
        times = OperationTimes(**{**nothing, name: 1.0})
        monkeypatch.setattr(plan, "measure_times", lambda parameters, times=times: times)
        made = es.plan(es.MultinomialNB(), SCHEMA.table(FRAME))
        seconds[name] = made.seconds
    monkeypatch.setattr(plan, "measure_times", lambda parameters: OperationTimes(**nothing))
    none = es.plan(es.MultinomialNB(), SCHEMA.table(FRAME)).seconds
    assert seconds["start"] - none == pytest.approx(1)
    assert seconds["read_key"] - none == pytest.approx(made.bytes_keys)
    assert seconds["compile"] - none > made.n_totals


@pytest.mark.slow
def test_the_start_is_measured() -> None:
    parameters = es.Parameters.from_bits("bgv", 8192, 4000, (42, 43, 43, 43, 43))
    found = calibration._measure_start(
        *(lambda owner: (owner.public_keys(), _residues(owner)))(es.Owner(parameters))
    )
    assert set(found) == {"start", "read_key", "compile"}
    assert all(0 < value < 1 for value in found.values())


def _residues(owner: es.Owner) -> Any:
    ciphertext, _ = calibration.encrypt_slots(
        np.arange(owner.parameters.slots, dtype=np.int64) % 2, owner._encryptor
    )
    return calibration.residues_of(owner.public_keys().engine, ciphertext)
