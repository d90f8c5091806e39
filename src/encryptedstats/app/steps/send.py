"""Sending the encrypted table to whoever computes: a worker on the network, a folder, or this
machine, to try it out. Results are fetched before they are opened, whole, by a thread that knows
nothing of opening.
"""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

import encryptedstats as es
from encryptedstats.app import asking
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Asked, Project, Sent
from encryptedstats.app.sending import PATIENCE, at_worker
from encryptedstats.app.tasks import AskTask
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.app.work import Work, run_task
from encryptedstats.errors import Cure
from encryptedstats.storage import container
from encryptedstats.storage.files import PRIVATE, temporary_path, write_atomic

router = APIRouter()
WORKER, FOLDER, HERE = "worker", "folder", "here"
_SECONDS_BETWEEN_LOOKS: Final = 1.0


class UnfinishedError(es.FileFormatError):
    """A file of a result that is damaged, or that is still being copied."""


def values(desk: Desk, project: Project, **given: Any) -> dict[str, Any]:
    """Return what is under way, and the commands for a folder."""
    sent = project.state.sent
    found = []
    if sent is not None and sent.to == FOLDER:
        found = [shlex.join(words) for _, words in commands(desk, project)]
    return {
        "work": desk.work(project, "send"),
        "commands": found,
        "suggested": Path.home() / "for-the-worker",
        "given_url": given.get("given_url", sent.place if sent and sent.to == WORKER else ""),
        "given_pin": given.get("given_pin", sent.pin if sent else ""),
        "given_folder": given.get("given_folder", ""),
        "has_token": project.token_file.exists(),
    }


# -- where to
# ------------------------------------------------------------------------------------------------


def send_to_worker(desk: Desk, project: Project, url: str, token: str, pin: str = "") -> None:
    """Upload the table, ask all questions, wait for the results, and fetch them: in a thread,
    resumed after a restart.
    """
    _check_sealed(project)
    if not url.startswith(("http://", "https://")):
        raise Refused(
            f"{url or 'nothing'} is no address of a worker: it begins with https://, or "
            "http:// on your own machine",
            code="not-a-url",
        )
    sent = project.state.sent
    known = sent is not None and sent.place == url and project.token_file.is_file()
    if not token and not known:
        raise Refused(
            "the worker wants a token: whoever runs it has given you one", code="no-token"
        )
    with desk.connect(url, token or project.token_file.read_text().strip(), pin=pin or None):
        pass  # nothing is sent yet: an address or a pin that cannot be is refused
    if token:
        write_atomic(project.token_file, [token.strip().encode()], mode=PRIVATE)
    _begin(project, WORKER, url, pin)
    go_on(desk, project)


def send_to_folder(desk: Desk, project: Project, folder: Path) -> None:
    """Copy the table into a folder that a worker reads, and watch there for results."""
    _check_sealed(project)
    if not folder.is_absolute():
        raise Refused(
            f"{folder} is not the full path of a folder: it begins with /",
            code="not-a-full-path",
        )
    target = folder / "table.enc"
    if target.exists():
        raise Refused(f"{target} is there already: choose another folder", code="already-exists")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(target)
    try:
        shutil.copytree(project.table_folder, temporary)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _begin(project, FOLDER, str(folder))
    go_on(desk, project)


def compute_here(desk: Desk, project: Project) -> None:
    """Compute on this machine, in a process that has no key: to try it out."""
    _check_sealed(project)
    _begin(project, HERE, "this machine")
    go_on(desk, project)


def _begin(project: Project, to: str, place: str, pin: str = "") -> None:
    """Note where the table goes. Jobs at another place are forgotten."""
    with project.changing() as state:
        if state.sent is None or (state.sent.to, state.sent.place) != (to, place):
            state.sent = Sent(to=to, place=place)
            for one in state.asked:
                one.job, one.failed = "", ""
                one.state = "here" if project.result_file(one).is_file() else ""
        state.sent.stopped, state.sent.pin = False, pin
        state.sent.done = state.sent.done or to != WORKER


def _check_sealed(project: Project) -> None:
    if project.state.sealed is None:
        raise Refused("encrypt the table first, in the step Encrypt", code="not-encrypted")


# -- waiting for results
# ------------------------------------------------------------------------------------------------


def go_on(desk: Desk, project: Project) -> None:
    """Send what is to be sent, and wait for results that are still to come."""
    sent = project.state.sent
    if sent is None or not any(one.state != "here" for one in project.state.asked):
        return
    wait = {WORKER: _at_worker, FOLDER: _at_folder, HERE: _here}[sent.to]
    desk.start(project, "send", lambda work: wait(desk, project, work))


def resume(desk: Desk) -> None:
    """Go on after a restart wherever results are still to come, unless the owner has stopped it."""
    for project in desk.projects.all()[0]:
        if project.state.sent is not None and not project.state.sent.stopped:
            go_on(desk, project)


def _at_worker(desk: Desk, project: Project, work: Work) -> None:
    sent = project.state.sent
    assert sent is not None
    token = project.token_file.read_text().strip()
    with desk.connect(sent.place, token, patience=PATIENCE, pin=sent.pin or None) as client:
        at_worker(client, project, desk.questions(project), work)


def _here(desk: Desk, project: Project, work: Work) -> None:
    coming = [
        (one, question)
        for one, question in zip(project.state.asked, desk.questions(project), strict=True)
        if one.state != "here"
    ]
    work.tell(AskTask.label, 0, len(coming), AskTask.unit)
    asked = [(one.name, one.parameters(), project.result_file(known)) for known, one in coming]
    try:
        run_task(AskTask(table=project.table_folder, questions=asked), work, len(coming))
    finally:
        with project.changing():
            for one, _ in coming:
                if project.result_file(one).is_file():
                    one.state, one.failed = "here", ""


def _at_folder(desk: Desk, project: Project, work: Work) -> None:
    sent = project.state.sent
    assert sent is not None
    unfinished: dict[str, tuple[int, int]] = {}
    while coming := [one for one in project.state.asked if one.state != "here"]:
        for one in coming:
            path = Path(sent.place) / f"{one.id}.enc"
            if not path.is_file():
                continue
            found = path.stat()
            if unfinished.get(one.id) == (found.st_size, found.st_mtime_ns):
                continue
            with suppress(UnfinishedError):  # still being copied: read again when it has changed
                take_result(project, one, path)
                continue
            unfinished[one.id] = found.st_size, found.st_mtime_ns
        here = sum(one.state == "here" for one in project.state.asked)
        work.tell("Waiting for results in the folder", here, len(project.state.asked), "results")
        work.wait(_SECONDS_BETWEEN_LOOKS)


def take_result(project: Project, asked: Asked, path: Path) -> None:
    """Keep a result that has come back as a file in the project, still encrypted.

    Raises
    ------
    UnfinishedError
        The file is damaged, or not all of it is there yet. Nothing is kept.
    """
    content = path.read_bytes()
    try:
        key_id = container.from_bytes(content).key_id
    except es.FileFormatError as error:
        raise UnfinishedError(
            f"{path} is not a complete result ({error}). If it is still being copied, wait and ",
            Cure("take again", "take it again"),
            code="incomplete-result",
        ) from error
    if project.state.key is None or key_id != project.state.key.key_id:
        raise es.KeyMismatchError(
            f"{path} belongs to key {key_id}, which is not the key of this project",
            code="other-key",
        )
    with project.changing():
        write_atomic(project.result_file(asked), [content], mode=PRIVATE)
        asked.state, asked.failed = "here", ""


def commands(desk: Desk, project: Project) -> list[tuple[Asked, list[str]]]:
    """Return how a worker computes each result in the folder that the table went to."""
    found = []
    for one, question in zip(project.state.asked, desk.questions(project), strict=True):
        words = ["encryptedstats", "ask", "table.enc", *asking.asking_words(question)]
        found.append((one, [*words, "-o", f"{one.id}.enc"]))
    return found


# -- routes
# ------------------------------------------------------------------------------------------------


@router.post("/p/{id}/send")
def send(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Send the table, or go on."""
    url, token, pin, folder = (text_in(form, name) for name in ("url", "token", "pin", "folder"))

    def act() -> None:
        to = text_in(form, "to")
        if to == HERE:
            compute_here(desk, project)
        elif to == FOLDER:
            send_to_folder(desk, project, Path(folder).expanduser())
        else:
            send_to_worker(desk, project, url, token, pin)

    return web.tried(project, "send", act, given_url=url, given_pin=pin, given_folder=folder)


@router.post("/p/{id}/token/forget")
def forget_token(project: TheProject) -> Response:
    """Delete the worker's token."""
    project.token_file.unlink(missing_ok=True)
    return RedirectResponse(f"/p/{project.id}/send?done=forgotten", 303)
