"""To the worker and back: the table goes up, questions are asked, encrypted results come down. No
secret is known here.

Results are fetched whole as soon as they are there, and nothing is said to the worker after that:
what becomes of them, it never learns. A worker that cannot be reached is asked again until it
answers, or until the owner stops it; a refusal ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import encryptedstats as es
from encryptedstats.app.asking import title_of
from encryptedstats.app.projects import Asked, Project
from encryptedstats.app.work import Work
from encryptedstats.words import plural

#: Makes a client from the URL and the token of a worker; ``es.connect``, and seconds for which a
#: request is tried.
Connect = Callable[..., Any]
PATIENCE: Final = 3.0
_BETWEEN: Final = 1.0  # seconds between two looks
_LATER: Final = (
    408,
    429,
    502,
    503,
    504,
)  # what a worker, or what stands before it, says that is starting or busy
T = TypeVar("T")


def at_worker(
    client: es.Worker, project: Project, questions: Sequence[es.Question], work: Work
) -> None:
    """Send the table, ask all that was not asked yet, and fetch every result once it is there."""
    table = _again(work, lambda: client.upload(project.table_folder, progress=_uploaded(work)))
    with project.changing() as state:
        assert state.sent is not None
        state.sent.table, state.sent.done = table.name, True
    jobs: dict[str, Any] = {}
    for asked, question in zip(project.state.asked, questions, strict=True):
        if asked.state != "here":
            jobs[asked.id] = _again(work, partial(client.ask, question, table, wait=False))
            _note(project, asked, job=jobs[asked.id].id, state="queued", failed="")
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
                    failed="; ".join(map(str, status.failures)) or f"it was {status.state} there",
                )
            else:
                _note(project, asked, state=status.state)
                work.tell(
                    f"Computing: {title_of(asked.name)}", status.rows_done, status.rows, "rows"
                )
                continue
            del jobs[asked.id]
        if jobs:
            work.wait(_BETWEEN)
    failed = [one for one in project.state.asked if one.failed]
    if failed:
        raise es.WorkerError(
            f"{plural(len(failed), 'question')} could not be computed: {failed[0].failed}",
            code="failed-questions",
        )


def _fetch(client: es.Worker, job: Any, project: Project, asked: Asked) -> None:
    client.result(job, project.result_file(asked), overwrite=True, progress=False)
    project.result_file(asked).chmod(0o600)


def _note(project: Project, asked: Asked, **facts: str) -> None:
    with project.changing():
        for name, value in facts.items():
            setattr(asked, name, value)


def _uploaded(work: Work) -> Callable[[int, int], None]:
    def told(there: int, total: int) -> None:
        work.tell("Sending the encrypted table", there / 1e6, total / 1e6, "MB")

    return told


def _again(work: Work, request: Callable[[], T]) -> T:
    """What a request gives, however often the worker has to be asked; a refusal is raised."""
    while True:
        try:
            return request()
        except es.WorkerError as error:
            unreachable = error.status == 0 and error.__cause__ is not None
            if error.untrusted or (not unreachable and error.status not in _LATER):
                raise
            work.tell("The worker does not answer: trying again", work.done, work.total, work.unit)
        work.wait(_BETWEEN)
