"""The list of projects, files of all kinds, and computing on this machine."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from desk_helpers import PASSPHRASE, Page, patients, waited

import encryptedstats as es
from encryptedstats.app.steps.plan import START_SECONDS


def files_of(page: Page) -> list[str]:
    return sorted(str(path.relative_to(page.folder)) for path in page.folder.rglob("*.*"))


def test_a_project_with_a_key_is_deleted_by_its_name(keyed: Page) -> None:
    folder = keyed.folder
    keyed.post(f"/p/{keyed.project}/delete", 422)
    keyed.post(f"/p/{keyed.project}/delete", 422, title="readmissions")
    assert (folder / "secret.key").is_file()
    keyed.post(f"/p/{keyed.project}/delete", title="Readmissions")
    assert not folder.exists()
    assert keyed.client.get(f"/p/{keyed.project}/key").status_code == 404


def test_a_project_is_renamed(page: Page) -> None:
    assert "Second try" in page.post("rename", title=" Second try ")
    page.post("rename", title="  ")
    assert page.state.title == "Second try"


def test_an_excel_file_is_read_as_its_first_sheet(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "patients.xlsx"
    with pd.ExcelWriter(file) as writer:
        patients().to_excel(writer, sheet_name="rows", index=False)
        pd.DataFrame({"other": [1]}).to_excel(writer, sheet_name="notes")
    page.choose(file)
    assert page.state.data.rows == 60
    assert files_of(page) == ["data/patients.csv", "project.json"]
    assert Path(page.state.data.path).stat().st_mode & 0o777 == 0o600
    pd.testing.assert_frame_equal(pd.read_csv(page.state.data.path), patients())


@pytest.mark.parametrize("name", ["no.csv", "no.xlsx", "no.parquet"])
def test_a_refused_upload_is_not_kept(page: Page, rows: Path, name: str) -> None:
    good = {"dropped": ("good.csv", rows.read_bytes(), "text/csv")}
    page.client.post(f"/p/{page.project}/data", files=good)
    before = page.state.data
    refused = {"dropped": (name, b"\0\1\2 no table", "text/csv")}
    answer = page.client.post(f"/p/{page.project}/data", files=refused)
    assert answer.status_code == 422
    assert page.state.data == before
    assert files_of(page) == ["data/good.csv", "project.json"]
    again = {"dropped": ("better.csv", rows.read_bytes(), "text/csv")}
    page.client.post(f"/p/{page.project}/data", files=again)
    assert files_of(page) == ["data/better.csv", "project.json"]


def test_a_project_is_computed_on_this_machine_without_a_key(
    sealed: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    from encryptedstats.app.steps import send

    tasks = []
    run = send.run_task
    monkeypatch.setattr(
        send, "run_task", lambda task, *more: (tasks.append(task), run(task, *more))[1]
    )
    sealed.post("send", to="here")
    waited(sealed, "send")
    assert [one.state for one in sealed.state.asked] == ["here"]
    (task,) = tasks
    assert PASSPHRASE not in task.model_dump_json()
    assert str(sealed.folder / "secret.key") not in task.model_dump_json()
    assert "does not open" not in sealed.get("results")


def test_another_place_is_offered_after_a_worker_that_failed(sealed: Page) -> None:
    sealed.desk.connect = lambda *_, **__: (_ for _ in ()).throw(es.WorkerError("no", code="no"))
    sealed.post("send", 422, to="worker", url="http://127.0.0.1:9", token="est_x")
    text = sealed.get("send")
    assert "Or to a folder" in text
    assert "Or on this machine" in text


def test_what_was_planned_is_what_is_sent(sealed: Page) -> None:
    plan = sealed.state.plan
    planned = plan["bytes_up"] + plan["bytes_keys"]
    assert planned == pytest.approx(sealed.state.sealed.bytes, rel=0.25)
    assert START_SECONDS > 0


def test_a_form_of_another_tab_changes_nothing(page: Page, rows: Path) -> None:
    page.choose(rows)
    page.ask()
    stale = page.state.revision
    page.post("columns", revision=str(stale), **{"cuts-1": "50"})
    page.post("columns", 422, revision=str(stale), **{"cuts-1": "60"}, go="on")
    assert page.state.choices.cuts == {"age": "50"}
    assert page.state.choices.target == "ill"
    page.post("columns", revision=str(page.state.revision), **{"use-1": "both"}, go="on")
    assert page.state.columns_done


def test_to_look_how_long_a_key_stays_unlocked_is_not_to_use_it(keyed: Page) -> None:
    used = keyed.desk._unlocked[keyed.project].used
    seconds = keyed.client.get(f"/p/{keyed.project}/key/left").json()["seconds"]
    assert 0 < seconds <= 1800
    assert keyed.desk._unlocked[keyed.project].used == used
    keyed.desk._unlocked[keyed.project].used -= 1900
    assert keyed.client.get(f"/p/{keyed.project}/key/left").json()["seconds"] == 0


def test_the_token_of_a_worker_is_deleted(sealed: Page) -> None:
    file = sealed.folder / "worker.token"
    file.write_text("est_x")
    assert "Delete the token" in sealed.get("send")
    sealed.post("token/forget")
    assert not file.exists()


def test_the_sample_is_ready_to_be_planned(page: Page) -> None:
    answer = page.client.post("/projects/sample")
    page.project = answer.url.path.split("/")[2]
    assert [one.name for one in page.state.asked] == ["TTest", "OddsRatio", "GLM"]
    page.decide()
    assert len(page.desk.questions(page.desk.projects.get(page.project))) == 3
