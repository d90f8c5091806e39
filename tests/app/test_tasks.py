"""Tasks that run in a process of their own: what they do, and how their errors reach the page."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from desk_helpers import PASSPHRASE, Page, patients
from pydantic import ValidationError

import encryptedstats as es
from encryptedstats.app.tasks import TASKS, EvaluateTask, PredictTask
from encryptedstats.app.work import TaskError, run_task


@pytest.fixture
def facts(sealed: Page, tmp_path: Path) -> dict[str, Any]:
    """What a task needs for an encrypted model of the project."""
    result = tmp_path / "forest.enc"
    es.load(sealed.folder / "table.enc").ask(es.CompletelyRandomForest(n_trees=2, depth=1)).save(
        result
    )
    new = patients(20)
    new.loc[3, "age"] = 1000
    new.to_csv(tmp_path / "new.csv", index=False)
    return {
        "key": sealed.folder / "secret.key",
        "passphrase": PASSPHRASE,
        "schema_file": sealed.folder / "schema.json",
        "result": result,
        "rows": tmp_path / "new.csv",
    }


def nothing(_: float) -> None:
    pass


def test_a_file_is_predicted_for_its_user_only(facts: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "predicted.csv"
    found = run_task(PredictTask(**facts, out=out))
    lines = pd.read_csv(out)
    assert len(lines) == found["rows"] == 20
    assert sum(found["predicted"].values()) == lines["predicted"].notna().sum()
    assert found["judged"] == 20
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".opened"] == []


def test_a_model_is_scored_and_drawn(facts: dict[str, Any], tmp_path: Path) -> None:
    found = EvaluateTask(**facts, curves=tmp_path / "curves.svg").run(nothing)
    assert 0 <= found["scores"]["auc"]["estimate"] <= 1
    assert not found["seen"]
    assert b"<svg" in (tmp_path / "curves.svg").read_bytes()


@pytest.mark.parametrize(
    ("change", "code"),
    [({"passphrase": "not this one"}, "wrong-passphrase"), ({"rows": Path("/none.csv")}, "")],
)
def test_errors_of_a_task_have_their_code(
    facts: dict[str, Any], tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    with pytest.raises(TaskError) as refused:
        run_task(PredictTask(**{**facts, **change}, out=tmp_path / "predicted.csv"))
    assert refused.value.code == (code or "ended-from-outside")
    assert not (tmp_path / "predicted.csv").exists()


def test_a_task_has_no_other_fields_and_does_not_show_its_passphrase(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    task = PredictTask(**facts, out=tmp_path / "x")
    assert PASSPHRASE not in repr(task)
    assert TASKS.validate_json(task.model_dump_json()) == task
    with pytest.raises(ValidationError):
        PredictTask(**facts, out=tmp_path / "x", more=1)
