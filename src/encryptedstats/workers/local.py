"""The worker that is this process: nothing is sent, and answers are kept while it lives."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from operator import add, sub
from typing import Any, ClassVar

from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import ArgumentError, Failure, WorkerError
from encryptedstats.spotcheck import Response, respond
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.questions.question import Question
from encryptedstats.workers.worker import (
    ASK,
    COMBINE,
    FIT,
    PREDICT,
    RESPOND,
    JobStatus,
    Order,
    Progress,
    Url,
    Worker,
    WorkerJob,
    WorkerTable,
    read_given,
    read_public_keys,
)


class LocalWorker(Worker):
    """Compute in this process. Jobs are done one after the other, and end with it."""

    takes: ClassVar[frozenset[str]] = frozenset(
        {"by_others", "device", "workers", "memory_limit", "checkpoint"}
    )

    def __init__(self, place: str = "local") -> None:
        super().__init__(place)
        self._tables: dict[str, WorkerTable] = {}
        self._jobs: dict[str, tuple[WorkerJob, Future[Any]]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="encryptedstats")

    def close(self) -> None:
        """Give up jobs that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- tables ------------------------------------------------------------------------------------

    def upload(
        self,
        table: Url | EncryptedTable,
        *,
        keys: PublicKeys | Url | None = None,
        progress: bool | Callable[[int, int], None] | None = None,
    ) -> WorkerTable:
        public = read_public_keys(keys)
        if not isinstance(table, EncryptedTable):
            sealed = EncryptedTable.load(table, public)
        elif public is None:
            sealed = table
        else:
            sealed = EncryptedTable(table.facts, table.blocks, public, table.private_schema)
        known = WorkerTable(
            self,
            sealed.source().content_id,
            "",
            sealed.facts,
            tuple(sealed.blocks.rows),
            tuple(sealed.blocks.ids),
            sealed.private_schema or sealed.schema,
            sealed,
        )
        return self._tables.setdefault(known.name, known)

    def table(self, name: str) -> WorkerTable:
        if name not in self._tables:
            raise WorkerError(f"no table {name[:12]} was uploaded here", code="no-such-table")
        return self._tables[name]

    def _delete_table(self, table: WorkerTable) -> None:
        self._tables.pop(table.name, None)

    def _to_plan(
        self, table: WorkerTable | Url | EncryptedTable, keys: PublicKeys | Url | None
    ) -> tuple[WorkerTable, int]:
        return (table if isinstance(table, WorkerTable) else self.upload(table, keys=keys)), 0

    def _plan(self, question: Question, table: WorkerTable) -> dict[str, Any]:
        from encryptedstats.cluster.planning import plan_question  # imports the whole cluster

        return plan_question(question, table.facts, table.rows)

    # -- jobs --------------------------------------------------------------------------------------

    def _submit(self, order: Order) -> WorkerJob:
        job = WorkerJob(self, secrets.token_hex(16), order.kind, order.table, order.question)
        if not order.wait:
            self._jobs[job.id] = job, self._pool.submit(_compute, replace(order, progress=False))
            return job
        done: Future[Any] = Future()
        done.set_result(_compute(order))
        self._jobs[job.id] = job, done
        return job

    def job(self, job_id: str) -> WorkerJob:
        return self._found(job_id)[0]

    def _found(self, job: WorkerJob | str) -> tuple[WorkerJob, Future[Any]]:
        name = job if isinstance(job, str) else job.id
        if name not in self._jobs:
            raise WorkerError(f"there is no job {name[:12]} here", code="no-such-job")
        return self._jobs[name]

    def jobs(self) -> list[JobStatus]:
        return [self.status(job) for job, _ in reversed(self._jobs.values())]

    def status(self, job: WorkerJob | str) -> JobStatus:
        known, future = self._found(job)
        failures: tuple[Failure, ...] = ()
        if future.cancelled():
            state = "cancelled"
        elif future.done():
            error = future.exception()
            state = "done" if error is None else "failed"
            failures = () if error is None else (Failure.of(error),)
        else:
            state = "running" if future.running() else "queued"
        done = int(state == "done")
        rows = known.table.n_rows
        question = None if known.question is None else known.question.name
        return JobStatus(
            known.id,
            known.kind,
            state,
            rows,
            rows * done,
            shards_done=done,
            workers=int(state == "running"),
            failures=failures,
            table=known.table.name,
            question=question,
        )

    def cancel(self, job: WorkerJob | str) -> JobStatus:
        known, future = self._found(job)
        if not future.cancel() and not future.done():
            raise WorkerError(
                "what this process computes already cannot be cancelled: end the process",
                code="cannot-cancel",
            )
        return self.status(known)

    def delete(self, job: WorkerJob | str) -> None:
        known, future = self._found(job)
        if not future.done():
            raise WorkerError(f"job {known.id[:12]} is not finished", code="unfinished-job")
        del self._jobs[known.id]

    def _fetch(self, job: WorkerJob, progress: Progress) -> Answer | Response:
        found: Answer | Response = self._found(job)[1].result()
        return found

    def _failure(self, job: WorkerJob, status: JobStatus) -> BaseException:
        try:
            error = self._found(job)[1].exception()
        except CancelledError as cancelled:
            error = cancelled
        return error or super()._failure(job, status)


def _compute(order: Order) -> Answer | Response:
    options = {**order.options, "progress": False if callable(order.progress) else order.progress}
    sealed = order.table.sealed
    assert sealed is not None  # tables of this process
    if options.pop("by_others", False):
        sealed = sealed.accept_others()
    if order.kind == RESPOND:
        assert order.question is not None
        assert order.challenge is not None
        options.pop("progress")
        return respond(sealed, order.question, order.challenge, **options)
    if order.kind in (FIT, ASK):
        assert order.question is not None
        return sealed._answer_to(order.question, **options)
    encrypted, forgotten = (
        [read_given(one, order.table) for one in some] for some in (order.answers, order.forget)
    )
    if order.kind == COMBINE:
        return _answer_of(reduce(sub, forgotten, reduce(add, encrypted)))
    if order.kind == PREDICT:
        options = {**options, **({} if order.output is None else {"output": order.output})}
        return _answer_of(encrypted[0].predict_votes(sealed, **options))
    if not hasattr(encrypted[0], "draw_fraction"):
        raise ArgumentError(
            (
                f"a {type(encrypted[0]).__name__} has no stochastic fraction to draw: only forests "
                "have one"
            ),
            code="no-stochastic-fraction",
        )
    if set(encrypted[0].block_ids_) != set(order.table.block_ids):
        raise ArgumentError(
            "fractions are drawn from all rows of a forest and no others, and the table holds "
            "other rows",
            code="other-rows",
        )
    return _answer_of(encrypted[0].draw_fraction(sealed, **options))


def _answer_of(found: Any) -> Answer:
    """Return the answer that a model holds, or that something is."""
    answer: Answer = found if isinstance(found, Answer) else found.answer_
    return answer
