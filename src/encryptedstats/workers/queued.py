"""Workers that share a folder or a bucket: jobs lie there, cut into shards, until a queue's workers
or a Dask cluster have done them.

Nothing is sent anywhere else. A table that lies where the workers may read is used where it is.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, ClassVar, Final

from encryptedstats import cluster
from encryptedstats.circuits.devices import AUTO
from encryptedstats.cluster.fitting import place_of_queue
from encryptedstats.cluster.jobs import JOBS, Job, StoredJob, absolute, read_table
from encryptedstats.cluster.outputs import is_current
from encryptedstats.cluster.places import allowed_places, is_within
from encryptedstats.cluster.planning import plan_question
from encryptedstats.cluster.predicting import PredictionJob
from encryptedstats.cluster.queues import Sheet, forget_job, jobs_of, status_of
from encryptedstats.cluster.responding import ResponseJob
from encryptedstats.cluster.scheduling import DaskRun, run_on_dask
from encryptedstats.cluster.whole import WholeJob
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import (
    ArgumentError,
    ClusterError,
    EncryptedStatsError,
    Failure,
    WorkerError,
)
from encryptedstats.storage.container import DIGEST_BYTES, Container
from encryptedstats.storage.objects import is_url, load_file, open_store
from encryptedstats.tables import EncryptedTable, Question
from encryptedstats.tables.facts import StoredBlocks
from encryptedstats.tables.manifest import MANIFEST, keys_name
from encryptedstats.tables.questions.question import RESULT_KIND
from encryptedstats.workers.sending import describe_table, objects_of, open_table
from encryptedstats.workers.worker import (
    ASK,
    COMBINE,
    DRAW,
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
    data_of,
)

_OF_JOBS: Final = ("by_others", "rows_per_shard", "trees_per_task")
_TABLES: Final = "tables/"  # tables that were copied here, by name
_UPLOADED: Final = "uploaded/"  # where the tables lie that were named here
_KEYS: Final = "keys/"
_ANSWERS: Final = "answer-"  # what was asked for, and answers that are computed with
_MAX_NOTE: Final = 1 << 16


class _StoredWorker(Worker):
    """A worker that is reached through storage only."""

    writes_out: ClassVar[bool] = True
    #: The queue of all jobs; None where each table has its own, beside it.
    _queue: str | None

    def _reaches(self, url: str) -> bool:
        """Return whether the worker may read a table where it lies."""
        raise NotImplementedError

    def _run(self, job: StoredJob, order: Order) -> None:
        """Have a job done that lies in the queue."""

    # -- tables ------------------------------------------------------------------------------------

    def upload(
        self,
        table: Url | EncryptedTable,
        *,
        keys: PublicKeys | Url | None = None,
        progress: bool | Callable[[int, int], None] | None = None,
    ) -> WorkerTable:
        with open_table(table) as store:
            found = objects_of(store, keys)
            own = _lasting_url(table)
            in_place = own is not None and self._reaches(own)
            queue = self._queue_of(own)
            place = own if in_place and own is not None else f"{queue}/{_TABLES}{found.name}"
            if not in_place:
                copy = open_store(place)
                there, n_bytes = set(copy.names()), 0
                for sha256, name in found.files.items():  # the manifest is the last
                    if name not in there:
                        copy.create(name, found.read[sha256]())
                    n_bytes += found.sizes[sha256]
                    if callable(progress):
                        progress(n_bytes, sum(found.sizes.values()))
            sealed = found.load(table, keys)
            keys_url = None
            if in_place and keys is not None:
                keys_url = f"{queue}/{_KEYS}{found.keys}"
                open_store(queue).create(_KEYS + found.keys, found.read[found.keys]())
        note = json.dumps({"table": place, "keys": keys_url}).encode()
        open_store(queue).write(_UPLOADED + found.name, [note])
        known = describe_table(self, found.name, found.facts, found.entries, sealed)
        return replace(known, place=place, keys_url=keys_url)

    def _queue_of(self, table: str | None) -> str:
        if self._queue is not None:
            return self._queue
        if table is None:
            raise ArgumentError(
                "this table is in memory, and workers read stored tables: save it where they can "
                f"read it, or name a shared folder, {self.place}/path/of/folder",
                code="table-not-stored",
            )
        return place_of_queue(table, None)

    def table(self, name: str) -> WorkerTable:
        queue = self._queue_of(None)
        try:
            note = json.loads(open_store(queue).read(_UPLOADED + name, limit=_MAX_NOTE))
        except FileNotFoundError:
            raise WorkerError(f"no table {name[:12]} is at {queue}", code="no-such-table") from None
        return self._open_table(note["table"], note["keys"], name)

    def _open_table(self, place: str, keys_url: str | None, name: str) -> WorkerTable:
        store = open_store(place)
        facts, entries = read_table(store.read(MANIFEST), store.where(MANIFEST))
        where = keys_url or f"{place}/{keys_name(facts.key_id)}"
        keys = PublicKeys.from_container(load_file(where))
        sealed = EncryptedTable.load(place, keys)
        known = describe_table(self, name, facts, entries, sealed)
        return replace(known, place=place, keys_url=keys_url)

    def _delete_table(self, table: WorkerTable) -> None:
        queue = self._queue_of(table.place)
        store = open_store(queue)
        store.delete(_UPLOADED + table.name)
        if table.place == f"{queue}/{_TABLES}{table.name}":
            for name in store.sizes(_TABLES + table.name):
                store.delete(name)

    def _to_plan(
        self, table: WorkerTable | Url | EncryptedTable, keys: PublicKeys | Url | None
    ) -> tuple[WorkerTable, int]:
        if isinstance(table, WorkerTable):
            return table, 0
        with open_table(table) as store:
            found = objects_of(store, keys)
        own = _lasting_url(table)
        to_send = 0 if own is not None and self._reaches(own) else sum(found.sizes.values())
        return found.describe(self, table, keys), to_send

    def _plan(self, question: Question, table: WorkerTable) -> dict[str, Any]:
        return plan_question(question, table.facts, table.rows)

    # -- jobs --------------------------------------------------------------------------------------

    def _submit(self, order: Order) -> WorkerJob:
        queue = self._queue_of(order.table.place)
        # What lies at a place of our own can only be of this very request, whose name it has.
        out, overwrite = f"{queue}/{_ANSWERS}{order.digest()}", True
        if order.out is not None and not order.wait:
            out, overwrite = absolute(order.out), order.overwrite
        places: dict[str, Any] = {
            "queue": queue,
            "keys": order.table.keys_url,
            "overwrite": overwrite,
        }
        added, forgotten = (
            [self._address(one, queue) for one in some] for some in (order.answers, order.forget)
        )
        cut = {name: one for name, one in order.options.items() if name in _OF_JOBS}
        made: StoredJob
        if order.kind in (FIT, ASK):
            assert order.question is not None
            made = cluster.submit(order.question, order.table.place, out, **places, **cut)
        elif order.kind == PREDICT:
            cut.pop("trees_per_task", None)
            output = order.output
            made = cluster.submit_prediction(
                added[0], order.table.place, out, output=output, **places, **cut
            )
        elif order.kind == DRAW:
            made = cluster.submit_drawing(added[0], order.table.place, out, **places)
        elif order.kind == RESPOND:
            assert order.question is not None
            assert order.challenge is not None
            asked = order.question, order.challenge
            made = cluster.submit_response(*asked, order.table.place, out, **places)
        else:
            made = cluster.submit_combination(
                added, order.table.place, out, forget=forgotten, **places
            )
        self._run(made, order)
        return WorkerJob(self, made.id, order.kind, order.table, order.question, queue)

    def _address(self, answer: WorkerJob | Container, queue: str) -> str:
        """Return where an answer lies that is computed with."""
        if isinstance(answer, WorkerJob) and answer.place == queue:
            return StoredJob.load(queue, answer.id).out
        data = data_of(answer)
        name = _ANSWERS + hashlib.sha256(data).hexdigest()
        open_store(queue).create(name, data)
        return f"{queue}/{name}"

    def job(self, job_id: str) -> WorkerJob:
        queue = self._queue_of(None)
        if not open_store(queue).exists(JOBS + job_id):
            raise WorkerError(f"there is no job {job_id[:12]} at {queue}", code="no-such-job")
        return self._as_job(StoredJob.load(queue, job_id))

    def _as_job(self, job: StoredJob) -> WorkerJob:
        data = open_store(job.table).read(MANIFEST)
        table = self._open_table(job.table, job.keys_url, data[-DIGEST_BYTES:].hex())
        table = replace(
            table,
            rows=tuple(one.rows for one in job.entries),
            block_ids=tuple(one.id for one in job.entries),
        )
        question = job.question if isinstance(job, (Job, ResponseJob)) else None
        return WorkerJob(self, job.id, _kind_of(job), table, question, job.queue)

    def jobs(self) -> list[JobStatus]:
        store = open_store(self._queue_of(None))
        return [self._status(job) for job in jobs_of(store, set(store.names()))]

    def status(self, job: WorkerJob | str) -> JobStatus:
        known = self._job(job)
        return self._status(StoredJob.load(known.place, known.id))

    def _status(self, job: StoredJob) -> JobStatus:
        store = open_store(job.queue)
        names = set(store.names())
        current = is_current(job, store, names)
        found = status_of(Sheet.of(job), names, store, is_current=current)
        question = job.question.name if isinstance(job, (Job, ResponseJob)) else None
        return JobStatus(
            job.id,
            _kind_of(job),
            found.stage,
            found.rows,
            found.rows_done,
            found.shards,
            found.shards_done,
            sum(one["working"] for one in found.workers.values()),
            sum(one["seconds"] for one in found.workers.values()),
            found.failures,
            table=job.table,
            question=question,
        )

    def cancel(self, job: WorkerJob | str) -> JobStatus:
        known = self._job(job)
        cluster.cancel(known.place, known.id)
        return self.status(known)

    def delete(self, job: WorkerJob | str) -> None:
        known = self._job(job)
        if not self.status(known).has_ended:
            raise WorkerError(f"job {known.id[:12]} is not finished", code="unfinished-job")
        made = StoredJob.load(known.place, known.id)
        forget_job(open_store(known.place), Sheet.of(made))
        if made.out.startswith(f"{known.place}/{_ANSWERS}"):  # other places are the caller's
            open_store(known.place).delete(made.out.removeprefix(f"{known.place}/"))

    def _fetch(self, job: WorkerJob, progress: Progress) -> Container:
        return load_file(StoredJob.load(job.place, job.id).out)


class QueueWorker(_StoredWorker):
    """Put jobs into a folder or bucket where ``encryptedstats worker run`` does them."""

    takes: ClassVar[frozenset[str]] = frozenset({"by_others", "rows_per_shard", "trees_per_task"})

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue://{queue}")
        self._queue = absolute(queue)
        self._hint = f" encryptedstats worker run {queue}"

    def _reaches(self, url: str) -> bool:
        assert self._queue is not None
        if is_url(url):  # a copy would not be nearer
            return True
        return any(is_within(url, place) for place in allowed_places(self._queue, ()))


class DaskWorker(_StoredWorker):
    """Compute on a Dask cluster, which this process directs: jobs end with it, and asking the same
    again goes on from what is done.

    Parameters
    ----------
    scheduler : str, optional
        Such as ``"tcp://10.0.0.1:8786"``; by default a cluster of processes is started here.
    storage : path or fsspec URL, optional
        A shared folder for jobs and answers; by default beside each table, as ``train.work``.
    """

    takes: ClassVar[frozenset[str]] = frozenset(
        {"by_others", "rows_per_shard", "trees_per_task", "device", "workers"}
    )

    def __init__(self, scheduler: Any = None, storage: str | None = None) -> None:
        super().__init__(f"dask://{scheduler or 'local'}")
        self.scheduler = scheduler
        self._queue = None if storage is None else absolute(storage)
        self._running: dict[str, Future[None]] = {}

    def _reaches(self, url: str) -> bool:
        return True

    def _run(self, job: StoredJob, order: Order) -> None:
        if order.wait:
            self._drive(job, order)
            return
        done: Future[None] = Future()
        self._running[job.id] = done

        def drive() -> None:
            try:
                self._drive(job, replace(order, progress=False))
            except BaseException as error:  # told by status and result
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=drive, daemon=True, name=f"dask job {job.id[:12]}").start()

    def _drive(self, job: StoredJob, order: Order) -> None:
        if order.kind == RESPOND and (self.scheduler is None or isinstance(self.scheduler, str)):
            # Asked for by the owner, whose process never speaks to a scheduler.
            _drive_elsewhere(job, self.scheduler, order.options)
            return
        report = order.progress if callable(order.progress) else None
        run_on_dask(
            job,
            DaskRun(
                self.scheduler,
                order.options.get("workers"),
                False if callable(order.progress) else order.progress,
                on_done=lambda _: None if report is None else report(self._status(job)),
                device=order.options.get("device", AUTO),
            ),
        )

    def _status(self, job: StoredJob) -> JobStatus:
        found = super()._status(job)
        running = self._running.get(job.id)
        if running is None or found.has_ended:
            return found
        if not running.done():
            return replace(found, state="running")
        error = running.exception()
        return (
            found
            if error is None
            else replace(found, state="failed", failures=(Failure.of(error),))
        )

    def _failure(self, job: WorkerJob, status: JobStatus) -> BaseException:
        running = self._running.get(job.id)
        error = running.exception() if running is not None and running.done() else None
        return error or super()._failure(job, status)


def _drive_elsewhere(job: StoredJob, scheduler: str | None, options: Mapping[str, Any]) -> None:
    """Have a job done by Dask from a process of its own, which holds no secret key."""
    asked = json.dumps([job.queue, job.id, scheduler, dict(options)])
    command = [sys.executable, "-c", f"from {__name__} import drive; drive()"]
    done = subprocess.run(command, input=asked.encode(), stdout=subprocess.PIPE, check=False)
    if not done.returncode:
        return
    try:
        failure = Failure(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, TypeError, IndexError):
        raise ClusterError(
            f"the process that had job {job.id[:12]} done by Dask ended with code "
            f"{done.returncode}",
            code="unfinished-job",
        ) from None
    raise failure.to_error()


def drive() -> None:
    """Have the job that standard input names done by Dask; say why not as the last line."""
    queue, job_id, scheduler, options = json.loads(sys.stdin.buffer.read())
    try:
        job = StoredJob.load(queue, job_id)
        device, workers = options.get("device", AUTO), options.get("workers")
        run_on_dask(job, DaskRun(scheduler, workers, progress=False, device=device))
    except EncryptedStatsError as error:
        print(json.dumps(vars(Failure.of(error))))
        sys.exit(1)


def _lasting_url(table: Url | EncryptedTable) -> str | None:
    """Return where a table is stored; None of one in memory."""
    if not isinstance(table, EncryptedTable):
        return absolute(table)
    return absolute(table.blocks.store.url) if isinstance(table.blocks, StoredBlocks) else None


def _kind_of(job: StoredJob) -> str:
    if isinstance(job, Job):
        return ASK if job.question.kind == RESULT_KIND else FIT
    if isinstance(job, PredictionJob):
        return PREDICT
    if isinstance(job, ResponseJob):
        return RESPOND
    return DRAW if isinstance(job, WholeJob) and job.verb == DRAW else COMBINE
