"""Send the encrypted table to a worker: by its address, by a folder, or to another process of this
machine, to try it out. Results are fetched before they are opened, whole, by a thread that knows
nothing of opening.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

import encryptedstats as es
from encryptedstats.app import asking
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Project, ProjectQuestion, Sent
from encryptedstats.app.sending import PATIENCE, at_worker
from encryptedstats.app.steps.publish import ledger
from encryptedstats.app.tasks import AskTask, RoundsTask
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.app.words import in_page_words
from encryptedstats.app.work import Cancelled, Work, run_task
from encryptedstats.errors import Cure
from encryptedstats.procedures.procedure import procedure_class
from encryptedstats.storage import container
from encryptedstats.storage.files import PRIVATE, temporary_path, write_atomic
from encryptedstats.storage.objects import is_url
from encryptedstats.tables.questions.words import words_of

router = APIRouter()
WORKER, FOLDER, HERE = "worker", "folder", "here"
_SERVICES: Final = ("https", "http")
_DASK: Final = ("dask", "dask+tls")
_SHARED: Final = ("queue", *_DASK)  # reached through storage, without a token
_SECONDS_BETWEEN_LOOKS: Final = 1.0


class UnfinishedError(es.FileFormatError):
    """A file of a result that is damaged, or that is still being copied."""


def values(desk: Desk, project: Project, **typed: Any) -> dict[str, Any]:
    """Return what is under way, and the commands for a folder."""
    sent = project.state.sent
    found = []
    if sent is not None and sent.to == FOLDER:
        found = [shlex.join(words) for _, words in commands(desk, project)]
    return {
        "work": desk.work(project, "send"),
        "commands": found,
        "suggested": Path.home() / "for-the-worker",
        "given_url": typed.get("given_url", sent.place if sent and sent.to == WORKER else ""),
        "given_pin": typed.get("given_pin", sent.pin if sent else ""),
        "given_folder": typed.get("given_folder", ""),
        "has_token": project.token_file.exists(),
        "rounds": desk.rounds(project),
        "cannot": _why_no_rounds(project) if sent is not None else "",
        "has_rounds_to_come": bool(rounds_to_come(desk, project)),
    }


# -- where to
# ------------------------------------------------------------------------------------------------


def send_to_worker(desk: Desk, project: Project, url: str, token: str, pin: str = "") -> None:
    """Upload the table, ask all questions, wait for the results, and fetch them: in a thread,
    resumed after a restart.
    """
    _check_sealed(project)
    kind, _, rest = url.partition("://")
    if kind not in (*_SERVICES, *_SHARED) or not rest:
        raise Refused(
            f"{url or 'nothing'} is no address of a worker: it begins with https://, with queue:// "
            "and a folder or bucket, or with dask:// and a host",
            code="not-a-url",
        )
    if kind == "queue" and not is_url(rest) and not Path(rest).is_dir():
        raise Refused(
            f"{rest} is not the full path of a folder that exists: give that of the queue, as in "
            "queue:///srv/queue",
            code="not-a-full-path",
        )
    sent = project.state.sent
    known = sent is not None and sent.place == url and project.token_file.is_file()
    if kind in _SERVICES and not token and not known:
        raise Refused(
            "the worker wants a token: the person who runs it gives you one", code="no-token"
        )
    with desk.connect(url, token or read_token(project), pin=pin or None):
        pass  # nothing is sent yet: an address or a pin that cannot be is refused
    if token and kind in _SERVICES:
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


def read_token(project: Project) -> str:
    """Return the token that was kept, or nothing: only a service has one."""
    return project.token_file.read_text().strip() if project.token_file.is_file() else ""


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
    """Send what is to be sent, wait for results that are still to come, and ask in rounds while
    the key is unlocked.
    """
    sent = project.state.sent
    if sent is None or not any(one.state != "here" for one in project.state.asked):
        return
    wait = {WORKER: _at_worker, FOLDER: _at_folder, HERE: _in_process}[sent.to]
    if sent.place.startswith(_DASK):
        wait = _in_process
    tasks = _tasks_of_rounds(desk, project)

    def run(work: Work) -> None:
        wait(desk, project, work)
        for asked, task in tasks:
            _ask_in_rounds(project, asked, task, work)

    desk.start(project, "send", run)


# -- rounds
# ------------------------------------------------------------------------------------------------


def rounds_to_come(desk: Desk, project: Project) -> list[tuple[ProjectQuestion, es.Procedure]]:
    """Return what is asked in rounds and has not come to its end."""
    return [(one, made) for one, made in desk.rounds(project) if one.state != "here"]


def _why_no_rounds(project: Project) -> str:
    """Return why nothing can be asked in rounds where the table went, or nothing."""
    sent = project.state.sent
    assert sent is not None
    if sent.to == FOLDER:
        return (
            "a folder takes no questions in rounds, each of which waits for the answer before it: "
            "send the table to a worker"
        )
    if sent.place.startswith(_DASK):
        return (
            "a Dask cluster can run programs here, so that no process with your key connects to "
            "it: ask in rounds at a worker, at a queue or on this machine"
        )
    return ""


def _tasks_of_rounds(desk: Desk, project: Project) -> list[tuple[ProjectQuestion, RoundsTask]]:
    """Return a task for each of the rounds to come; none while the key is locked."""
    coming, sent = rounds_to_come(desk, project), project.state.sent
    assert sent is not None
    if not coming or not desk.is_unlocked(project) or _why_no_rounds(project):
        return []
    ledger(desk, project)  # begun, where there is none yet
    facts = desk.task_facts(project)
    if sent.to == WORKER:
        facts |= {"place": sent.place, "token": read_token(project), "pin": sent.pin}
    return [
        (
            one,
            RoundsTask(
                **facts,
                table=project.table_folder,
                procedure=made.name,
                parameters=made.parameters(),
                folder=project.run_folder(one),
                ledger=project.ledger_folder,
                check=project.state.spot_check,
            ),
        )
        for one, made in coming
    ]


def _ask_in_rounds(project: Project, asked: ProjectQuestion, task: RoundsTask, work: Work) -> None:
    most = procedure_class(task.procedure)(**task.parameters).at_most
    work.tell(RoundsTask.label, 0, most, RoundsTask.unit)
    try:
        run_task(task, work, most)
    except Cancelled:
        raise
    except Exception as error:
        with project.changing():
            asked.state, asked.failed = "", in_page_words(error)
        raise
    with project.changing():
        asked.state, asked.failed, asked.checked = "here", "", task.check


def resume(desk: Desk) -> None:
    """Go on after a restart wherever results are still to come, unless the owner has stopped it."""
    for project in desk.projects.all()[0]:
        if project.state.sent is not None and not project.state.sent.stopped:
            go_on(desk, project)


def _at_worker(desk: Desk, project: Project, work: Work) -> None:
    sent = project.state.sent
    assert sent is not None
    token = read_token(project)
    with desk.connect(sent.place, token, patience=PATIENCE, pin=sent.pin or None) as client:
        at_worker(client, project, desk.pair_questions(project), work)


def _in_process(desk: Desk, project: Project, work: Work) -> None:
    """Compute on this machine or by a Dask cluster, in a process that has no key: a scheduler can
    make whatever is connected to it run programs.
    """
    sent = project.state.sent
    assert sent is not None
    place = sent.place if sent.place.startswith(_DASK) else "local"
    coming = [
        (one, question) for one, question in desk.pair_questions(project) if one.state != "here"
    ]
    if not coming:
        return
    work.tell(AskTask.label, 0, len(coming), AskTask.unit)
    asked = [(one.name, one.parameters(), project.result_file(known)) for known, one in coming]
    try:
        task = AskTask(place=place, table=project.table_folder, questions=asked)
        run_task(task, work, len(coming))
    finally:
        with project.changing():
            for one, _ in coming:
                if project.result_file(one).is_file():
                    one.state, one.failed = "here", ""


def _at_folder(desk: Desk, project: Project, work: Work) -> None:
    sent = project.state.sent
    assert sent is not None
    unfinished: dict[str, tuple[int, int]] = {}
    while coming := [
        one
        for one in project.state.asked
        if one.name not in asking.IN_ROUNDS and one.state != "here"
    ]:
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
        n_here = sum(one.state == "here" for one in project.state.asked)
        work.tell("Waiting for results in the folder", n_here, len(project.state.asked), "results")
        work.wait(_SECONDS_BETWEEN_LOOKS)


def take_result(project: Project, asked: ProjectQuestion, path: Path) -> None:
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


def delete_at_worker(desk: Desk, project: Project) -> None:
    """Delete the table and the results at the worker. It learns nothing else by that: results that
    do not open are deleted as well.
    """
    sent = project.state.sent
    if sent is None or not sent.table:
        raise Refused("no worker has a table of this project", code="nothing-sent")
    with desk.connect(sent.place, read_token(project), pin=sent.pin or None) as client:
        jobs = [one.job for one in project.state.asked if one.job]
        if desk.rounds(project):  # each round was a job
            jobs += [one.id for one in client.jobs() if one.table == sent.table]
        for job in dict.fromkeys(jobs):
            with _ignoring_unknown():
                client.delete(job)
        with _ignoring_unknown():
            client.table(sent.table).delete()
    with project.changing() as state:
        sent.table = ""
        for one in state.asked:
            one.job = ""


@contextmanager
def _ignoring_unknown() -> Iterator[None]:
    """Ignore that a worker does not have what is deleted."""
    try:
        yield
    except es.WorkerError as error:
        if error.status != 404 and error.code not in ("no-such-job", "no-such-table"):
            raise


def commands(desk: Desk, project: Project) -> list[tuple[ProjectQuestion, list[str]]]:
    """Return how a worker computes each result in the folder that the table went to."""
    found = []
    for one, question in desk.pair_questions(project):
        words = ["encryptedstats", "ask", "table.enc", *words_of(question)]
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

    return web.attempt(project, "send", act, given_url=url, given_pin=pin, given_folder=folder)


@router.post("/p/{id}/send/rounds")
def send_rounds(desk: TheDesk, web: TheWeb, project: TheProject) -> Response:
    """Go on with the rounds."""

    def act() -> None:
        desk.key(project)
        if project.state.sent is None:
            raise Refused("say first where the table is to go", code="not-sent")
        if why := _why_no_rounds(project):
            raise Refused(why, code="no-rounds-there")
        go_on(desk, project)

    return web.attempt(project, "send", act)


@router.post("/p/{id}/worker/delete")
def delete_sent(desk: TheDesk, web: TheWeb, project: TheProject) -> Response:
    """Delete what the worker has."""

    def act() -> str:
        delete_at_worker(desk, project)
        return "send?done=cleared"

    return web.attempt(project, "send", act)


@router.post("/p/{id}/token/forget")
def forget_token(project: TheProject) -> Response:
    """Delete the worker's token."""
    project.token_file.unlink(missing_ok=True)
    return RedirectResponse(f"/p/{project.id}/send?done=forgotten", 303)
