"""Jobs of owners: what was asked, written down in the storage; the queue, whose workers do it; and
how far it is.

A job is named by a hash of what is asked: to ask twice, because an answer was lost on the way, is
to ask once.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from encryptedstats.cluster.queues import (
    CANCELLED_STATE as CANCELLED,
)
from encryptedstats.cluster.queues import (
    DONE,
    FAILED,
    Sheet,
    cancel,
    forget_job,
    status_of,
)
from encryptedstats.errors import Failure
from encryptedstats.service import messages
from encryptedstats.service.door import Door, OwnerPlace
from encryptedstats.service.limits import Limits
from encryptedstats.service.refusals import Refusal, missing
from encryptedstats.storage.objects import FolderStore, open_store
from encryptedstats.tables.manifest import MANIFEST

ENDED: Final = (DONE, FAILED, CANCELLED)
_MAX_RECORD: Final = 64 << 20
_NAMES_SECONDS: Final = 0.3  # for which one look at the queue serves all who ask
_PROCESS_TASKS: Final = (
    100  # after which the process that makes jobs is replaced, and what it holds is free
)
_SHOWN_FAILURES: Final = 20
_REMEMBERED: Final = 10_000  # jobs that are done


class Maker:
    """A process that turns requests into jobs. One that dies is replaced; what it was at is asked
    again once.

    One that takes longer than some seconds for a request is ended, and the request refused.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._left = 0

    def __call__(self, function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        """Call a function of :mod:`encryptedstats.service.making`."""
        for _ in range(2):
            try:
                with self._lock:
                    pool = self._ready()
                    future = pool.submit(function, *arguments)
                return self._result(pool, future)
            except BrokenProcessPool:
                self._end(pool)
        raise _busy("the process that works it out was ended twice")

    def _result(self, pool: ProcessPoolExecutor, future: Future[dict[str, Any]]) -> dict[str, Any]:
        try:
            return future.result(self._seconds)
        except FutureTimeoutError:
            if (
                not future.cancel()
            ):  # it was begun: others behind it are asked again, of another process
                self._end(pool)
            raise _busy(f"it was not worked out within {self._seconds:g} seconds") from None

    def _ready(self) -> ProcessPoolExecutor:
        if self._pool is None or self._left == 0:
            if self._pool is not None:
                self._pool.shutdown(wait=False)
            # A server has threads, which a fork would leave in the middle of what they were at.
            self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            self._left = _PROCESS_TASKS
        self._left -= 1
        return self._pool

    def _end(self, pool: ProcessPoolExecutor) -> None:
        """End a process, whatever it is at; the next request finds another."""
        with self._lock:
            if self._pool is pool:
                self._pool = None
        # Before Python 3.14 an executor has no public way to end what it runs; its processes are
        # forgotten by shutdown.
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False)
        for process in processes:
            process.kill()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            pool = self._pool
        if pool is not None:
            self._end(pool)


class Makers:
    """Several makers, one request each: the long plan of one owner does not hold up another's."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._idle: list[Maker] = []
        self._all: list[Maker] = []

    def __call__(self, function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        """Return the result of a function of :mod:`encryptedstats.service.making`."""
        with self._lock:
            if not self._idle:
                self._idle.append(Maker(self._seconds))
                self._all.append(self._idle[0])
            maker = (
                self._idle.pop()
            )  # the one used last: others stay unused where few requests come
        try:
            return maker(function, *arguments)
        finally:
            with self._lock:
                self._idle.append(maker)

    def close(self) -> None:
        """End all processes."""
        for maker in self._all:
            maker.close()


def _busy(why: str) -> Refusal:
    return Refusal(
        503,
        "the request",
        why,
        "ask for less at once, or try again in a while",
        {"Retry-After": "5"},
    )


def _refusal(place: OwnerPlace, what: str, refused: Mapping[str, str]) -> Refusal:
    why = Failure(**{**refused, "message": place.private(refused["message"])})
    return Refusal(422, what, why.message, "change what is asked; nothing was begun", failure=why)


@dataclass(frozen=True)
class Record:
    """What is written down of a job."""

    id: str
    kind: str
    asked: dict[str, Any]
    made: str
    sheet: Sheet
    plan: dict[str, Any] | None
    finished: dict[str, Any] | None = None

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        return json.dumps({**vars(self), "sheet": vars(self.sheet)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Record:
        """Read what `to_bytes` wrote; only this server writes it."""
        values = json.loads(data)
        sheet = values.pop("sheet")
        items = tuple((name, rows, is_shard) for name, rows, is_shard in sheet.pop("items"))
        return cls(**values, sheet=Sheet(**sheet, items=items))


class Jobs:
    """The jobs of all owners of a storage, and the queue that they are in."""

    def __init__(self, door: Door, queue: str, limits: Limits) -> None:
        self.door, self.queue, self.limits = door, queue, limits
        self.make = door.make = Makers(limits.making_seconds)
        self._queue_store = open_store(queue)
        self._names: tuple[float, Collection[str]] = (float("-inf"), ())
        self._lock = threading.Lock()
        self._finished: dict[str, Record] = {}
        self._questions: messages.QuestionList | None = None

    def questions(self) -> messages.QuestionList:
        """Return what can be asked; found out once, in a process of its own."""
        from encryptedstats.service import making

        if self._questions is None:
            self._questions = messages.QuestionList(**self.make(making.list_questions))
        return self._questions

    # -- asking
    # --------------------------------------------------------------------------------------------

    def submit(self, place: OwnerPlace, asked: Mapping[str, Any]) -> Record:
        """Put a job into the queue, or find the one that asks the same."""
        from encryptedstats.service import making

        job_id = hashlib.sha256(
            json.dumps([place.owner, asked], sort_keys=True).encode()
        ).hexdigest()[:32]
        known = self._read(place, job_id)
        if known is not None and self.status(place, known)["state"] not in (CANCELLED, FAILED):
            return known
        if self._open_jobs(place) >= self.limits.jobs:
            raise Refusal(
                429,
                "one job more",
                f"{self.limits.jobs} jobs of this owner are not finished",
                "wait for one, or cancel one",
            )
        if isinstance(self.door.store, FolderStore):  # workers write there, and make no folders
            Path(place.url("results", "")).mkdir(parents=True, exist_ok=True)
        made = self.make(making.submit_job, self._resolve(place, job_id, asked))
        if "refused" in made:
            raise _refusal(place, f"the {asked['kind']}", made["refused"])
        sheet = Sheet(**{**made["sheet"], "items": tuple(map(tuple, made["sheet"]["items"]))})
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        record = Record(
            job_id, asked["kind"], dict(asked), known.made if known else now, sheet, made["plan"]
        )
        self.door.store.write(place.of("jobs", job_id), [record.to_bytes()])
        self._forget_names()
        return record

    def plan(self, place: OwnerPlace, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cost of a job. Only the manifest of the table has to be stored."""
        from encryptedstats.service import making

        found = {"manifest": self._manifest(place, asked["table"]), "totals": self.limits.totals}
        made = self.make(making.plan_job, {**asked, **found})
        if "refused" in made:
            raise _refusal(place, "the plan", made["refused"])
        plan: dict[str, Any] = made["plan"]
        return plan

    def _resolve(self, place: OwnerPlace, job_id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Replace names in a request by places where workers find them; refused where something is
        not there.
        """
        if not self.door.has_table(place, asked["table"]):
            raise missing("table")
        found = {
            name: [self._answer(place, one) for one in asked.get(name) or ()]
            for name in ("answers", "forget")
        }
        places = {
            "table": place.url("tables", asked["table"]),
            "manifest": self._manifest(place, asked["table"]),
            "out": place.url("results", job_id),
            "queue": self.queue,
        }
        return {**asked, **found, **places, "totals": self.limits.totals}

    def _manifest(self, place: OwnerPlace, table: str) -> str:
        """Return where the manifest of a table lies, of one that is stored, or of one that is
        still to come.
        """
        if self.door.has_table(place, table):
            return f"{place.url('tables', table)}/{MANIFEST}"
        if not place.has("objects", table):
            raise missing("table")
        return place.url("objects", table)

    def _answer(self, place: OwnerPlace, named: str) -> str:
        """Return where an encrypted answer lies that is named ``job:ID`` or ``object:SHA256``."""
        form, _, name = named.partition(":")
        what = {"job": "results", "object": "objects"}[form]
        if not place.has(what, name):
            raise missing("result of a job" if form == "job" else "object")
        return place.url(what, name)

    # -- looking
    # --------------------------------------------------------------------------------------------

    def record(self, place: OwnerPlace, job_id: str) -> Record:
        """Return a job of an owner."""
        found = self._read(place, job_id)
        if found is None:
            raise missing("job")
        return found

    def _read(self, place: OwnerPlace, job_id: str) -> Record | None:
        try:
            found = Record.from_bytes(
                self.door.store.read(place.of("jobs", job_id), limit=_MAX_RECORD)
            )
        except FileNotFoundError:
            return None
        self._remember(found)
        return found

    def _remember(self, record: Record) -> None:
        """Remember a job that has ended: pages that show many jobs need not read it again, nor what
        its items were called.
        """
        if record.finished is not None:
            if len(self._finished) >= _REMEMBERED:
                self._finished.clear()
            self._finished[record.id] = replace(record, sheet=replace(record.sheet, items=()))

    def records(self, place: OwnerPlace) -> list[Record]:
        """All jobs of an owner, the latest first."""
        names = (name.rpartition("/")[2] for name in self.door.store.sizes(place.of("jobs")))
        found = (self._finished.get(name) or self._read(place, name) for name in names)
        return sorted(
            (one for one in found if one is not None),
            key=lambda one: (one.made, one.id),
            reverse=True,
        )

    def _open_jobs(self, place: OwnerPlace) -> int:
        return sum(
            self.status(place, record)["state"] not in ENDED for record in self.records(place)
        )

    def status(self, place: OwnerPlace, record: Record) -> dict[str, Any]:
        """Return the progress of a job, read from the names of the objects in its queue."""
        known = {"id": record.id, "kind": record.kind, "made": record.made, "plan": record.plan}
        known |= {name: record.asked.get(name) for name in ("question", "table")}
        record = self._finished.get(record.id, record)
        if record.finished is not None:
            return {**known, **record.finished}
        found = status_of(record.sheet, self._names_now(), self._queue_store)
        working = sum(one["working"] for one in found.workers.values())
        seconds = sum(one["seconds"] for one in found.workers.values())
        state = found.stage
        figures = {
            "state": state,
            "shards": found.shards,
            "shards_done": found.shards_done,
            "rows": found.rows,
            "rows_done": found.rows_done,
            "workers": working,
            "core_seconds": seconds,
            "failures": [
                {**vars(one), "message": place.private(one.message)}
                for one in found.failures[:_SHOWN_FAILURES]
            ],
            "result_bytes": self.door.store.size(place.of("results", record.id))
            if state == DONE
            else None,
        }
        if state == DONE:
            self._keep_finished(place, record, figures)
        return {**known, **figures}

    def _keep_finished(self, place: OwnerPlace, record: Record, figures: dict[str, Any]) -> None:
        """Record that a job is done, so that the result is not hashed again for every
        look.
        """
        done = replace(record, finished=figures)
        self._remember(done)
        self.door.usage.add(place.owner, figures["result_bytes"])
        self.door.store.write(place.of("jobs", record.id), [done.to_bytes()])

    def _names_now(self) -> Collection[str]:
        with self._lock:
            since, names = self._names
            if time.monotonic() - since >= _NAMES_SECONDS:
                names = frozenset(self._queue_store.names())
                self._names = (time.monotonic(), names)
            return names

    def _forget_names(self) -> None:
        with self._lock:
            self._names = (float("-inf"), ())

    # -- ending
    # --------------------------------------------------------------------------------------------

    def cancel(self, record: Record) -> None:
        """Let workers begin nothing more of it."""
        if record.finished is None:
            cancel(self.queue, record.sheet.id)
            self._forget_names()

    def delete(self, place: OwnerPlace, record: Record) -> None:
        """Remove a job that has ended: its result, and what lies in the queue for it."""
        if self.status(place, record)["state"] not in ENDED:
            raise Refusal(409, f"job {record.id[:12]}", "it is not finished", "cancel it first")
        self._finished.pop(record.id, None)
        forget_job(self._queue_store, record.sheet)
        if place.has("results", record.id):
            self.door.delete(place, "results", record.id)
        self.door.store.delete(place.of("jobs", record.id))
        self._forget_names()

    def close(self) -> None:
        """End the processes that make jobs."""
        self.make.close()
