"""Learned trees on the owner's page: asked in rounds by a process of its own, and resumed."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from desk_helpers import PASSPHRASE, Page, patients, waited

import encryptedstats as es
from encryptedstats.app.desk import Desk
from encryptedstats.app.steps import send
from encryptedstats.app.steps.send import rounds_to_come
from encryptedstats.storage import container
from encryptedstats.tables.answers.files import read_answer
from encryptedstats.workers import LocalWorker
from error_codes import error

TREE = {"question": "DecisionTree", "outcome-column": "ill", "depth": "2", "criterion": "gini"}


def asked(page: Page, rows: Path, *, checked: bool = False) -> None:
    """A tree and a question, planned and encrypted."""
    page.choose(rows)
    page.ask()
    assert "learns its splits" in page.get("questions?ask=DecisionTree")
    page.post("questions", **TREE, variables=["age", "smoker", "bmi"])
    page.decide()
    plan = page.get("plan")
    assert "the variable (by id) and the bins of every split" in plan
    assert "The rounds are not checked" in plan
    if checked:
        page.post("plan/checks", wanted="yes")
        assert "The rounds are not checked" not in page.get("plan")
    page.post("key", passphrase=PASSPHRASE, again=PASSPHRASE)
    page.post("encrypt")
    waited(page, "encrypt")


def project_of(page: Page) -> Any:
    return page.desk.projects.get(page.project)


def in_the_clear(page: Page) -> Any:
    schema = page.desk.schema(project_of(page))
    tree = es.DecisionTree(depth=2, variables=["age", "smoker", "bmi"])
    return tree.run(schema.table(patients()))


def predicts_and_is_scored(page: Page, id: str, rows: Path) -> None:
    """The opened tree predicts the rows of a file, and is scored on them, as any other model."""
    tree, frame = in_the_clear(page), patients()
    said = page.post(f"results/{id}/predict", path=str(rows))
    assert "Predicted 60 rows." in said
    right = int((tree.predict(frame) == frame["ill"]).sum())
    assert f"{right} of 60" in said
    found = pd.read_csv(io.StringIO(page.get(f"results/{id}/predictions.csv")))
    assert found["predicted"].tolist() == tree.predict(frame).tolist()
    assert np.allclose(found[["P(no)", "P(yes)"]], tree.predict_proba(frame))
    seen = page.post(f"results/{id}/evaluate", path=str(rows))
    assert "These are the rows that it was fitted to" in seen
    assert f"{right / 60:.4f}" in seen
    assert page.client.get(f"/p/{page.project}/results/{id}/curves.svg").status_code == 200
    assert "That did not work" in page.post(f"results/{id}/predict", 422, path="/nowhere.csv")


def test_a_tree_of_a_number_is_scored_by_its_errors(page: Page, rows: Path, tmp_path: Path) -> None:
    page.choose(rows)
    page.post("questions", **{**TREE, "outcome-column": "bmi"}, variables=["age", "smoker"])
    page.decide()
    page.get("plan")
    page.post("key", passphrase=PASSPHRASE, again=PASSPHRASE)
    page.post("encrypt")
    waited(page, "encrypt")
    page.post("send", to="here")
    waited(page, "send")
    [asked_tree], frame = page.state.asked, patients()
    tree = es.DecisionTree(depth=2).run(page.desk.schema(project_of(page)).table(frame))
    page.get("results")
    said = page.post(f"results/{asked_tree.id}/predict", path=str(rows))
    assert "Predicted 60 rows." in said
    assert "right" not in said.partition("Predicted 60 rows.")[2].partition("</dl>")[0]
    found = pd.read_csv(io.StringIO(page.get(f"results/{asked_tree.id}/predictions.csv")))
    assert np.allclose(found["predicted"], tree.predict(frame))
    scored = page.post(f"results/{asked_tree.id}/evaluate", path=str(rows))
    assert "share of the variance that is explained" in scored
    error = np.abs(frame["bmi"] - tree.predict(frame)).mean()
    assert f"{error:.4g}" in scored
    fresh = patients(80).iloc[60:]
    fresh[["age", "smoker"]].to_csv(tmp_path / "new.csv", index=False)
    said = page.post(f"results/{asked_tree.id}/evaluate", 422, path=str(tmp_path / "new.csv"))
    assert "with the known outcome of the rows" in said


def test_a_tree_is_asked_in_rounds_and_shown(page: Page, rows: Path) -> None:
    asked(page, rows)
    sending = page.get("send")
    assert (
        sending.count("the variable (by id) and the bins of every split") == 2
    )  # and in the panel
    page.post("send", to="here")
    waited(page, "send")
    tree = page.state.asked[1]
    assert [one.state for one in page.state.asked] == ["here", "here"]
    shown = page.get("results")
    wanted = in_the_clear(page)
    assert page.desk.shown[page.project, tree.id].tables[0].rows
    for name in wanted.importances.index:
        assert name in shown
    assert f"/results/{tree.id}.svg" in shown
    assert page.client.get(f"/p/{page.project}/results/{tree.id}.svg").status_code == 200
    assert "nodes" in shown
    assert "importance" in shown
    csv = page.get(f"results/{tree.id}.csv")
    assert len(csv.splitlines()) == 1 + len(wanted.nodes)
    run = project_of(page).run_folder(tree)
    assert {f"{path.stat().st_mode & 0o777:o}" for path in run.iterdir()} == {"600"}
    ledger = es.Ledger(project_of(page).ledger_folder, page.desk.key(project_of(page)).owner)
    opened = [one.content for one in ledger.entries() if one.content["what"] == "opened"]
    assert [one["round"] for one in opened if "round" in one] == [1, 2]
    predicts_and_is_scored(page, tree.id, rows)
    page.post("key/lock")
    assert "Unlock the key to see it" in page.get("results")
    assert page.client.get(f"/p/{page.project}/results/{tree.id}.csv").status_code == 409
    page.get("report")


def test_rounds_wait_for_the_key_and_go_on_after_a_kill(page: Page, rows: Path) -> None:
    asked(page, rows)
    tree = page.state.asked[1]
    run = project_of(page).run_folder(tree)
    page.post("send", to="here")
    work = page.desk.work(project_of(page), "send")
    assert work is not None
    first_round, was_running = run / "round-0001.json", True
    while not first_round.exists():
        assert was_running, work.error
        was_running = work.is_running  # before the last look: it may end while nobody looks
        time.sleep(0.005)
    assert work.process is not None
    work.process.kill()  # which may have ended just now
    assert work.finished.wait(600.0)
    first = (run / "round-0001.json").read_bytes()

    again = Page.__new__(Page)  # the program is started anew: nothing is unlocked
    again.__dict__ |= page.__dict__
    again.desk = page.client.app.app.app.state.web.desk = Desk(page.desk.projects.home, None)  # type: ignore[attr-defined]  # through both guards
    send.resume(again.desk)
    if (resumed := again.desk.work(project_of(again), "send")) is not None:
        assert resumed.finished.wait(600.0)
    left = rounds_to_come(again.desk, project_of(again))
    if left:  # the second round had not ended when it was killed
        assert "Passphrase of your key" in again.get("send")
        again.post("key/unlock", passphrase=PASSPHRASE, step="send")
        waited(again, "send")
    assert not rounds_to_come(again.desk, project_of(again))
    assert (run / "round-0001.json").read_bytes() == first
    again.post("key/unlock", passphrase=PASSPHRASE, step="results")
    again.get("results")
    found = again.desk.shown[again.project, tree.id]
    assert found.view.tables[0].frame.equals(in_the_clear(again).nodes)


def test_every_round_is_checked_if_that_was_planned(page: Page, rows: Path) -> None:
    asked(page, rows, checked=True)
    assert "Each round is checked" in page.get("send")
    page.post("send", to="here")
    waited(page, "send")
    assert page.state.asked[1].checked
    assert "Every round was checked" in page.get("results")


def test_a_lie_in_a_round_is_found_before_the_next(
    page: Page, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(page, rows, checked=True)
    project = project_of(page)
    send._begin(project, send.HERE, "this machine")
    [(_, task)] = send._tasks_of_rounds(page.desk, project)
    honest, seen = LocalWorker._answer, []

    def lie(self: LocalWorker, job: Any, progress: Any) -> Any:
        answer = honest(self, job, progress)
        seen.append(answer.question)
        residues = container.from_bytes(container.to_bytes(answer.to_container()))
        altered = bytearray(residues.section("residues"))
        altered[0] ^= 1
        sections = {**residues.sections, "residues": bytes(altered)}
        forged = container.to_bytes(replace(residues, sections=sections))
        return read_answer(container.from_bytes(forged), job.table.sealed.public_keys())

    monkeypatch.setattr(LocalWorker, "_answer", lie)
    reports: list[float] = []
    with pytest.raises(es.EncryptedStatsError, check=error("spot-check-failed")):
        task.run(reports.append)
    assert (len(seen), reports) == (1, [])
    assert not list(project.run_folder(project.state.asked[1]).glob("round-*.json"))


def test_a_folder_takes_no_rounds(page: Page, rows: Path, tmp_path: Path) -> None:
    asked(page, rows)
    page.post("send", to="folder", folder=str(tmp_path / "drive"))
    assert "DecisionTree" not in page.get("send")
    assert "a folder takes no questions in rounds" in page.get("send").lower()
    page.post("send/rounds", 422)
    page.desk.stop(project_of(page), "send")


@pytest.mark.parametrize("wrong", [{"depth": "9"}, {"outcome-column": ""}, {"n_trees": "0"}])
def test_wrong_parameters_are_refused_in_words(
    page: Page, rows: Path, wrong: dict[str, str]
) -> None:
    page.choose(rows)
    form = {**TREE, "question": "RandomForest", **wrong}
    said = page.post("questions", 422, **form)
    assert "That did not work" in said
    assert "Something is broken" not in said
    assert not page.state.asked
