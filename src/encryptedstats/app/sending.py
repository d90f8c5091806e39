"""To the worker and back: the table goes up, questions are asked, encrypted results come down. No
secret is known here.

Results are fetched whole as soon as they are there, and nothing is said to the worker after that:
what becomes of them, it never learns. A worker that cannot be reached is asked again until it
answers, or until the owner stops it; a refusal ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import encryptedstats as es
from encryptedstats.app.asking import title_of
from encryptedstats.app.projects import Project, ProjectQuestion
from encryptedstats.app.words import LATER, in_page_words
from encryptedstats.app.work import Work
from encryptedstats.words import plural

#: Makes a client from the URL and the token of a worker; ``es.connect``, and seconds for which a
#: request is tried.
Connect = Callable[..., Any]
PATIENCE: Final = 3.0
NOBODY: Final = (
    "Nobody has begun yet: ask the person who runs the worker whether it is running. Waiting"
)
_IDLE_SECONDS: Final = 20.0  # after which that is said
_BETWEEN: Final = 1.0  # seconds between two looks
T = TypeVar("T")


def at_worker(
    client: es.Worker,
    project: Project,
    questions: Sequence[tuple[ProjectQuestion, es.Question]],
    work: Work,
) -> None:
    """Send the table, ask all that was not asked yet, and fetch every result once it is there."""
    table = _again(work, lambda: client.upload(project.table_folder, progress=_report_upload(work)))
    with project.changing() as state:
        assert state.sent is not None
        state.sent.table, state.sent.done = table.name, True
    jobs: dict[str, Any] = {}
    for asked, question in questions:
        if asked.state != "here":
            jobs[asked.id] = _again(work, partial(client.ask, question, table, wait=False))
            _note(project, asked, job=jobs[asked.id].id, state="queued", failed="")
    _fetch_all(client, jobs, project, work)
    failed = [one for one, _ in questions if one.failed]
    if failed:
        raise es.WorkerError(
            f"{plural(len(failed), 'question')} could not be computed: {failed[0].failed}",
            code="failed-questions",
        )


def _fetch_all(client: es.Worker, jobs: dict[str, Any], project: Project, work: Work) -> None:
    """Fetch the result of every job once it is there."""
    last_moved = time.monotonic()
    while jobs:
        for asked in [one for one in project.state.asked if one.id in jobs]:
            job = jobs[asked.id]
            status = _again(work, job.status)
            if status.state == "done":
                _again(work, partial(_fetch, client, job, project, asked))
                _note(project, asked, state="here", failed="")
            elif status.has_ended:
                _note(
                    project,
                    asked,
                    state="",
                    failed=_sentence_of(status),
                )
            else:
                _note(project, asked, state=status.state)
                if status.state != "queued":
                    last_moved = time.monotonic()
                _tell(work, asked, status, time.monotonic() - last_moved > _IDLE_SECONDS)
                continue
            del jobs[asked.id]
            last_moved = time.monotonic()
        if jobs:
            work.wait(_BETWEEN)


def _tell(work: Work, asked: ProjectQuestion, status: Any, is_idle: bool) -> None:
    """Say how far a job is; nobody may be there to do it."""
    said = f"Computing: {title_of(asked.name)}"
    if status.state == "queued":
        said = NOBODY if is_idle else f"Waiting to begin: {title_of(asked.name)}"
    work.tell(said, status.rows_done, status.rows, "rows")


def _sentence_of(status: Any) -> str:
    """Return why a job has no result; the words of the worker itself are not shown."""
    code = (status.failures[0].code or "failed-job") if status.failures else "cancelled-job"
    return in_page_words(es.WorkerError(code=code))


def _fetch(client: es.Worker, job: Any, project: Project, asked: ProjectQuestion) -> None:
    client.result(job, project.result_file(asked), overwrite=True, progress=False)
    project.result_file(asked).chmod(0o600)


def _note(project: Project, asked: ProjectQuestion, **facts: str) -> None:
    with project.changing():
        for name, value in facts.items():
            setattr(asked, name, value)


def _report_upload(work: Work) -> Callable[[int, int], None]:
    def report(there: int, total: int) -> None:
        work.tell("Sending the encrypted table", there / 1e6, total / 1e6, "MB")

    return report


def _again(work: Work, request: Callable[[], T]) -> T:
    """Repeat a request until the worker answers. Raise its refusal."""
    while True:
        try:
            return request()
        except es.WorkerError as error:
            unreachable = error.status == 0 and error.__cause__ is not None
            if error.untrusted or (not unreachable and error.status not in LATER):
                raise
            work.tell("The worker does not answer: trying again", work.done, work.total, work.unit)
        work.wait(_BETWEEN)
