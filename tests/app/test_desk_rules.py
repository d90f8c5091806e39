"""Rules of the owner's desk, one by one, without a page and without encrypting."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import encryptedstats as es
from encryptedstats.app.desk import IDLE_SECONDS, Desk, Refused, Unlocked
from encryptedstats.app.projects import Project, ProjectKey, ProjectQuestion, Sent
from encryptedstats.app.steps import key, questions, send
from encryptedstats.app.steps.send import UnfinishedError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.tables.questions.question import RESULT_KIND
from error_codes import error


def no_worker(*_: Any, **__: Any) -> Any:
    raise AssertionError("nobody is asked")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "home", no_worker)


@pytest.fixture
def project(desk: Desk) -> Project:
    made = desk.projects.new("Readmissions")
    with made.changing() as state:
        state.asked.append(
            ProjectQuestion(id="a1", name="Histogram", parameters={"variable": "v0"})
        )
        state.key = ProjectKey(key_id="k", fingerprint="f", made="2026-01-01")
    return made


def result(path: Path, key_id: str = "k") -> bytes:
    content = container.to_bytes(Container(RESULT_KIND, "", key_id, {}, {"residues": b"x" * 100}))
    path.write_bytes(content)
    return content


def test_passphrases_are_typed_twice_and_long_enough(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_one = desk.projects.new("No key yet")
    monkeypatch.setattr(key, "plan", no_worker)  # what comes next
    for passphrase, again, code in (
        ("correct horse battery", "correct horse batteries", "passphrases-differ"),
        ("x7%Kq2!vB", "x7%Kq2!vB", "passphrase-too-short"),
        ("x" * 30, "x" * 30, "passphrase-too-weak"),
        ("password2026", "password2026", "passphrase-too-weak"),
        ("hospital123!", "hospital123!", "passphrase-too-weak"),
    ):
        with pytest.raises(Refused, check=error(code)):
            key.make_key(desk, open_one, passphrase, again)
    with pytest.raises(AssertionError):
        key.make_key(desk, open_one, "correct horse battery", "correct horse battery")


def test_a_key_that_nobody_uses_is_locked(
    desk: Desk, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    desk._unlocked[project.id] = Unlocked(None, "correct horse battery", clock[0])  # type: ignore[arg-type]  # unused
    clock[0] += IDLE_SECONDS - 1
    assert desk.is_unlocked(project)  # which uses it
    clock[0] += IDLE_SECONDS - 1
    assert desk.is_unlocked(project)
    clock[0] += IDLE_SECONDS + 1
    assert not desk.is_unlocked(project)
    assert project.id not in desk._unlocked


def test_questions_do_not_change_after_the_key(desk: Desk, project: Project) -> None:
    with pytest.raises(Refused):
        questions.unask(desk, project, "a1")
    assert len(project.state.asked) == 1


def test_only_a_whole_result_of_the_key_is_taken(
    desk: Desk, project: Project, tmp_path: Path
) -> None:
    (asked,), path = project.state.asked, tmp_path / "result.enc"
    content = result(path, "other")
    with pytest.raises(es.KeyMismatchError):
        send.take_result(project, asked, path)
    content = result(path)
    for damaged in (b"", content[:-1], content[:-40] + b"y" + content[-39:], content + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(UnfinishedError):
            send.take_result(project, asked, path)
        assert not project.result_file(asked).exists()
        assert asked.state != "here"
    path.write_bytes(content)
    send.take_result(project, asked, path)
    assert asked.state == "here"
    assert project.result_file(asked).read_bytes() == content


def test_results_are_waited_for_while_they_are_copied(
    desk: Desk, project: Project, tmp_path: Path
) -> None:
    """A result that is not whole is read again when it has changed, and not before."""
    path, looks = tmp_path / "drive" / "a1.enc", []

    class Work:
        def tell(self, *_: Any) -> None:
            pass

        def wait(self, seconds: float) -> None:
            looks.append(seconds)
            assert len(looks) < 5
            if len(looks) == 2:
                result(path)

    path.parent.mkdir()
    path.write_bytes(result(path)[:50])
    with project.changing() as state:
        state.sent = Sent(to="folder", place=str(path.parent), done=True)
    send._at_folder(desk, project, Work())  # type: ignore[arg-type]  # a stand-in
    assert len(looks) == 3
    assert project.state.asked[0].state == "here"
