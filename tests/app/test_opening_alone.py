"""Sending, fetching and opening: what a worker sees is the same whether a result opens or not, and
nothing comes after it.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk_helpers import PASSPHRASE, Page, answered, patients, waited
from fake_worker import TOKEN, FakeWorker

import encryptedstats as es
from certificates import new_certificate, pin_of
from encryptedstats.app.steps.results import open_result
from encryptedstats.app.steps.send import resume
from encryptedstats.storage import container


def damaged(content: bytes) -> bytes:
    """The same with other ciphertexts in it, and with a hash that fits: only who opens
    it can tell.
    """
    file = container.from_bytes(content)
    name = max(file.sections, key=lambda one: len(file.sections[one]))
    section = bytearray(file.sections[name])
    for place in range(len(section) // 2, len(section) // 2 + 64):
        section[place] ^= 0x55
    return container.to_bytes(replace(file, sections={**file.sections, name: bytes(section)}))


Serve = Callable[[Callable[[bytes], bytes]], FakeWorker]


@pytest.fixture
def serve(sealed: Page) -> Iterator[Serve]:
    """Starts a fake worker that changes honest answers in a way that is given."""
    started: list[FakeWorker] = []
    sealed.desk.connect = es.connect

    def start(change: Callable[[bytes], bytes]) -> FakeWorker:
        started.append(FakeWorker(lambda asked: change(answered(sealed.folder, asked))))
        return started[-1]

    yield start
    for one in started:
        one.close()


def look_around(page: Page) -> str:
    """Everything that somebody does who wants to see results."""
    page.post("key/lock")
    page.post("key/unlock", 422, passphrase="not this one", step="results")
    page.post("key/unlock", passphrase=PASSPHRASE, step="results")
    text = page.get("results")
    asked = page.state.asked[0].id
    page.client.post(f"/p/{page.project}/results/{asked}/publish", data={"rules": "five"})
    for path in (
        f"results/{asked}.csv",
        f"results/{asked}.svg",
        "report",
        "board",
        "send",
        "results",
    ):
        page.client.get(f"/p/{page.project}/{path}")
    page.post("key/lock")
    return text


def test_a_worker_never_learns_how_an_opening_went(sealed: Page, serve: Serve) -> None:
    before = (sealed.folder / "project.json").read_bytes()
    seen, said = [], []
    for change in (lambda content: content, damaged):
        worker = serve(change)
        sealed.post("send", to="worker", url=worker.url, token=TOKEN)
        waited(sealed, "send")
        fetched = len(worker.requests)
        said.append(look_around(sealed))
        again = Page(
            sealed.desk.projects.home, sealed.folder, es.connect
        )  # the program, started anew
        resume(again.desk)
        time.sleep(0.3)
        assert len(worker.requests) == fetched, (
            "something was asked of the worker after the result had come"
        )
        seen.append([(method, path) for method, path, _ in worker.requests])
        (sealed.folder / "results" / f"{sealed.state.asked[0].id}.enc").unlink()
        (sealed.folder / "project.json").write_bytes(before)
        sealed.desk.projects._known.clear()
        sealed.desk._work.clear()
    assert "Histogram: age by ill" in said[0]
    assert "This result does not open." in said[1]
    assert "Histogram: age by ill" not in said[1]
    assert seen[0] == seen[1]
    assert seen[0][-1] == ("GET", "/v1/jobs/job1/result")


def test_nothing_private_is_sent(sealed: Page, serve: Serve) -> None:
    kept: list[dict[str, Any]] = []
    worker = FakeWorker(lambda asked: (kept.append(asked), answered(sealed.folder, asked))[1])
    try:
        sealed.post("send", to="worker", url=worker.url, token=TOKEN)
        waited(sealed, "send")
    finally:
        worker.close()
    assert [asked["params"] for asked in kept] == [{"variable": "v0", "by": "class"}]


def test_the_token_is_kept_apart_and_for_its_user_only(sealed: Page, serve: Serve) -> None:
    worker = serve(lambda content: content)
    sealed.post("send", to="worker", url=worker.url, token=TOKEN)
    waited(sealed, "send")
    assert TOKEN not in (sealed.folder / "project.json").read_text()
    file = sealed.folder / "worker.token"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (TOKEN, 0o600)
    assert TOKEN not in sealed.get("send")


def test_a_refused_token_is_said_on_the_page(sealed: Page, serve: Serve) -> None:
    worker = serve(lambda content: content)
    sealed.post("send", to="worker", url=worker.url, token="est_wrong")
    work = sealed.desk.work(sealed.desk.projects.get(sealed.project), "send")
    assert work is not None
    assert work.finished.wait(600)
    text = sealed.get("send")
    assert "does not take this access token" in text
    sealed.post("send", to="worker", url=worker.url, token=TOKEN)
    waited(sealed, "send")
    assert "All results are here" in sealed.get("send")


def test_a_certificate_that_nobody_vouches_for_is_refused_or_pinned(
    sealed: Page, tmp_path: Path
) -> None:
    """It is not asked again and again, as one that does not answer is: no token went to it, and
    none will.
    """
    certificate = new_certificate(tmp_path)
    worker = FakeWorker(lambda asked: answered(sealed.folder, asked), certificate)
    sealed.desk.connect = es.connect
    try:
        for pin in ("", "sha256:" + "0" * 64):
            sealed.post("send", to="worker", url=worker.url, token=TOKEN, pin=pin)
            work = sealed.desk.work(sealed.desk.projects.get(sealed.project), "send")
            assert work is not None
            assert work.finished.wait(600)
            assert "identity cannot be checked" in work.error
            assert "the SHA-256 of its certificate, and give it below the address" in sealed.get(
                "send"
            )
        assert worker.requests == []
        sealed.post("send", to="worker", url=worker.url, token="", pin=pin_of(certificate))
        waited(sealed, "send")
        assert "All results are here" in sealed.get("send")
        assert sealed.state.sent.pin == pin_of(certificate)
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"url": "https://x", "token": TOKEN, "pin": "sha256:12"}, "64 hexadecimal digits"),
        ({"url": "http://worker.example", "token": TOKEN}, "would be sent unencrypted"),
        ({"url": "ftp://x", "token": TOKEN}, "no address of a worker"),
        ({"url": "http://127.0.0.1:9", "token": ""}, "wants a token"),
        ({"to": "folder", "folder": "here"}, "not the full path"),
    ],
)
def test_where_it_cannot_go_is_said_before(sealed: Page, form: dict[str, str], said: str) -> None:
    sealed.desk.connect = es.connect
    assert said in sealed.post("send", 422, **{"to": "worker", **form})
    assert sealed.state.sent is None
    assert not (sealed.folder / "worker.token").exists()


def test_a_folder_gets_the_table_and_nothing_else(sealed: Page, tmp_path: Path) -> None:
    folder = tmp_path / "drive"
    sealed.post("send", to="folder", folder=str(folder))
    assert [path.name for path in folder.iterdir()] == ["table.enc"]
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        path.relative_to(sealed.folder)
        for path in (sealed.folder / "table.enc").rglob("*")
        if path.is_file()
    }
    asked = sealed.state.asked[0]
    assert (
        f"encryptedstats ask table.enc Histogram variable=v0 by=class -o {asked.id}.enc"
        in sealed.get("send")
    )
    assert "is there already" in sealed.post("send", 422, to="folder", folder=str(folder))
    params = {"question": "Histogram", "params": {"variable": "v0", "by": "class"}}
    (folder / f"{asked.id}.enc").write_bytes(answered(folder, params))
    waited(sealed, "send")
    text = sealed.get("results")
    truth = patients()
    assert "Histogram: age by ill" in text
    found = open_result(sealed.desk, sealed.desk.projects.get(sealed.project), asked)
    assert int(found.view.tables[0].frame.to_numpy().sum()) == len(truth)
    assert (
        "attachment"
        in sealed.client.get(f"/p/{sealed.project}/results/{asked.id}.csv").headers[
            "content-disposition"
        ]
    )
    assert (
        sealed.client.get(f"/p/{sealed.project}/results/{asked.id}.svg")
        .content.lstrip()
        .startswith(b"<?xml")
    )
    assert "Print, or save as PDF" in sealed.get("report")


def test_encrypting_goes_on_where_it_was(keyed: Page) -> None:
    keyed.post("encrypt")
    keyed.post("encrypt/stop")
    work = keyed.desk.work(keyed.desk.projects.get(keyed.project), "encrypt")
    assert work is not None
    assert work.finished.wait(600)
    if keyed.state.sealed is None:  # it may have been quicker
        assert "what was done is kept" in keyed.get("encrypt")
        keyed.post("encrypt")
        waited(keyed, "encrypt")
    assert keyed.state.sealed.rows == 60
    assert len(es.load(keyed.folder / "table.enc")) == 60
