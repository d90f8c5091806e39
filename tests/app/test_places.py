"""Sending to every kind of place that computes: a queue in a folder and a Dask cluster as well as a
service.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from desk_helpers import Page, patients, waited

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.app import sending
from encryptedstats.app.steps.results import open_result


def rows_opened(page: Page) -> int:
    project = page.desk.projects.get(page.project)
    found = open_result(page.desk, project, page.state.asked[0])
    return int(found.view.tables[0].frame.to_numpy().sum())


def test_a_queue_needs_no_token_and_says_that_nobody_is_there(
    sealed: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tmp_path / "queue"
    queue.mkdir()
    sealed.desk.connect = es.connect
    monkeypatch.setattr(sending, "_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(sending, "_BETWEEN", 0.05)
    sealed.post("send", to="worker", url=f"queue://{queue}")
    work = sealed.desk.work(sealed.desk.projects.get(sealed.project), "send")
    assert work is not None
    while work.is_running and work.said != sending.NOBODY:
        work.wait(0.05)
    assert work.is_running, work.error
    assert "ask the person who runs the worker" in sealed.get("send")
    there = {path.name for path in queue.rglob("*") if path.is_file()}
    assert not [name for name in there if "secret" in name or "token" in name]
    at_work = threading.Thread(target=cluster.work, args=(queue,), kwargs={"wait": 0.5})
    at_work.start()
    waited(sealed, "send")
    at_work.join(600)
    assert rows_opened(sealed) == len(patients())


@pytest.mark.slow
def test_a_dask_cluster_computes(sealed: Page, tmp_path: Path) -> None:
    sealed.desk.connect = es.connect
    sealed.post("send", to="worker", url=f"dask://local{tmp_path / 'jobs'}")
    waited(sealed, "send")
    assert rows_opened(sealed) == len(patients())


@pytest.mark.slow
def test_a_dask_cluster_that_is_nowhere_is_a_sentence(sealed: Page, tmp_path: Path) -> None:
    sealed.desk.connect = es.connect
    sealed.post("send", to="worker", url=f"dask://127.0.0.1:9{tmp_path / 'jobs'}")
    work = sealed.desk.work(sealed.desk.projects.get(sealed.project), "send")
    assert work is not None
    assert work.finished.wait(600)
    assert "The worker does not answer" in sealed.get("send")


@pytest.mark.parametrize("url", ["queue://", "queue://not/there", "queue:///not/there", "local"])
def test_a_place_that_cannot_be_is_refused_before(sealed: Page, url: str) -> None:
    sealed.desk.connect = es.connect
    sealed.post("send", 422, to="worker", url=url)
    assert sealed.state.sent is None
