"""Work through a queue without a scheduler: workers claim items of jobs in a folder or bucket by
lease.

A lease is an object that only one of several workers can create, and that names its holder. Once it
has been unchanged for its duration, by the watcher's clock, the item is free again: a worker that
is killed, suspended or slow costs time and nothing else. Leases only save work: correctness does
not depend on them, since an item has one result on every worker.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from encryptedstats.circuits.devices import AUTO, check_device_name
from encryptedstats.cluster.items import Done, is_done, model_is_there, run_item
from encryptedstats.cluster.jobs import JOBS, RECORDS, Item, StoredJob
from encryptedstats.cluster.outputs import SupersededError, claim_name, is_current
from encryptedstats.cluster.places import allowed_places, check_places
from encryptedstats.errors import (
    ArgumentError,
    EncryptedStatsError,
    Failure,
    FileFormatError,
    StorageError,
)
from encryptedstats.storage.files import name_errors
from encryptedstats.storage.objects import Store, open_store

LEASES: Final = "leases/"
DAMAGED: Final = "damaged/"
CANCELLED: Final = "cancelled/"
QUEUED, RUNNING, DONE, FAILED, CANCELLED_STATE = STATES = (
    "queued", "running", "done", "failed", "cancelled",
)  # fmt: skip
LEASE_SECONDS: Final = 300.0
MAX_LEASE_SECONDS: Final = 7 * 24 * 3600.0  # who asks for more would keep an item for ever
_MAX_LEASE_BYTES: Final = 1 << 16
_log = logging.getLogger("encryptedstats.cluster")
_POLL_SECONDS: Final = (
    0.05,
    2.0,
)  # the pause between looks at a queue where others are at work grows so far
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Lease:
    """Who works on an item, has finished it, or failed.

    ``state`` is "working", "done" or "failed"; ``token`` is new with every claim, so that a watcher
    sees that it changed.
    """

    worker: str
    token: str
    seconds: float
    state: str = "working"
    rows: int = 0
    took: float = 0.0
    message: str = ""
    error: str = ""
    code: str = ""

    @property
    def failure(self) -> Failure:
        """The failure that the lease records."""
        return Failure(self.message, self.error, self.code)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Lease | None:
        """Return the lease that :meth:`to_bytes` wrote, or None for anything else, which then
        blocks nobody.
        """
        try:
            values = json.loads(data)
            lease = cls(
                **{name: kind(values.get(name, "")) for name, kind in _LEASE_FIELDS.items()}
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        return lease if 0 <= lease.seconds <= MAX_LEASE_SECONDS else None


_LEASE_FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    "worker": str, "token": str, "seconds": float, "state": str, "rows": int, "took": float,
    "message": str, "error": str, "code": str,
}  # fmt: skip


def lease_name(item_name: str) -> str:
    """Return the name of the object that claims an item."""
    return LEASES + item_name.replace("/", "-")


@dataclass(frozen=True)
class WorkReport:
    """What a worker has done.

    Attributes
    ----------
    worker : str
    shards, items, rows : int
        Shards and items of all kinds that it did, and rows of the shards.
    seconds : float
        Of work.
    """

    worker: str
    shards: int
    items: int
    rows: int
    seconds: float


def work(
    queue: str | os.PathLike[str],
    *,
    keys: str | os.PathLike[str] | None = None,
    lease: float = LEASE_SECONDS,
    wait: float = 0.0,
    worker: str | None = None,
    on_done: Callable[[Done], None] | None = None,
    allow: Sequence[str | os.PathLike[str]] = (),
    device: str = AUTO,
) -> WorkReport:
    """Work on the jobs of a queue until all are finished. Run it on as many machines as there are;
    stop it at any time.

    Parameters
    ----------
    queue : path or fsspec URL
        Where :func:`submit` has put jobs.
    keys : path or fsspec URL, optional
        Public keys to compute with, instead of those that lie in the table.
    lease : float
        Seconds after which others may take over what this worker has begun and not finished. Longer
        than a shard takes.
    wait : float
        Seconds to look for new jobs, when nothing is left to do, before ending.
    worker : str, optional
        A name for this worker; by default host, process, and a random part.
    on_done : callable, optional
        Called with every item that was done.
    allow : sequence of paths or fsspec URLs
        Below which jobs may read and write, beside the folder or the bucket that the queue lies in.
        Other jobs are refused.
    device : str
        What computes here: "native", "seal" or "auto", as of ``model.fit``; results are the same.

    Raises
    ------
    FileFormatError, FileNotFoundError, FileExistsError
        For an object that is damaged or missing and cannot be made again, or would be written over;
        after all else was done.
    ClusterError
        For a job that names places that are not allowed; after all else was done.
    OSError
        At once, for a result that cannot be written: the disk is full, say.
    """
    if not 0 < lease <= MAX_LEASE_SECONDS:
        raise ArgumentError(
            f"lease={lease!r}: a number of seconds is needed, more than 0 and at most "
            f"{MAX_LEASE_SECONDS:,.0f} (a week)",
            code="lease-out-of-range",
        )
    check_device_name(device)
    name = worker or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    keys_url = None if keys is None else os.fspath(keys)
    own = [] if keys_url is None else [keys_url]  # what the worker was given needs no leave
    allowed = allowed_places(os.fspath(queue), [*(os.fspath(place) for place in allow), *own])
    return _Worker(
        open_store(queue), name, lease, keys_url, on_done or (lambda _: None), allowed, device
    ).run(wait)


@dataclass
class _Worker:
    store: Store
    name: str
    lease_seconds: float
    keys: str | None
    on_done: Callable[[Done], None]
    allowed: Sequence[str] = ("/",)
    device: str = AUTO
    done: list[Done] = field(default_factory=list)
    failed: dict[str, Exception] = field(default_factory=dict)
    _watched: dict[str, tuple[str, float]] = field(default_factory=dict)

    def run(self, wait: float) -> WorkReport:
        pause, idle_since = _POLL_SECONDS[0], time.monotonic()
        self.store.sweep()
        while True:
            pending, did = self._pass()
            if did:
                pause, idle_since = _POLL_SECONDS[0], time.monotonic()
                continue
            if not pending and time.monotonic() - idle_since >= wait:
                break
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS[1], self.lease_seconds)
        self.store.sweep()  # what was killed meanwhile
        if self.failed:
            raise next(iter(self.failed.values()))
        shards = [one for one in self.done if one.is_shard]
        rows, seconds = sum(one.rows for one in shards), sum(one.seconds for one in self.done)
        return WorkReport(self.name, len(shards), len(self.done), rows, seconds)

    def _pass(self) -> tuple[int, bool]:
        """Look at the queue once; return the items that can still be done, and whether one was
        done.
        """
        names, pending = set(self.store.names()), 0
        for job in jobs_of(self.store, names, self.keys):
            left = self._left(job, names)
            pending += len(left)
            ready = list(_from_anywhere([item for item in left if names.issuperset(item.needs)]))
            unclaimed = [item for item in ready if lease_name(item.name) not in names]
            did = [self._do(job, item) for item in unclaimed if self._claim(job, item)]
            # What others have begun comes last, when its lease has run out.
            if any(did) or any(self._do(job, item) for item in ready if self._take_over(job, item)):
                return pending, True
        return pending, False

    def _left(self, job: StoredJob, names: set[str]) -> list[Item]:
        """Return the items of a job that can still be done, allowed, and supported by
        this version.
        """
        try:
            check_places(job, self.allowed)
            if CANCELLED + job.id in names:
                return []
            self._forget_failures(job, names)
            return self._possible(find_unfinished(job, names, self.store))
        except StorageError:
            raise
        except (EncryptedStatsError, ValueError, ArithmeticError) as error:
            self.failed.setdefault(job.record, error)
            return []

    def _forget_failures(self, job: StoredJob, names: set[str]) -> None:
        """Forget failures whose lease is gone: the job was submitted again."""
        for name in [
            name for name in self.failed if name in job.items and lease_name(name) not in names
        ]:
            del self.failed[name]

    def _possible(self, items: list[Item]) -> list[Item]:
        """Drop items that failed on this worker, and items that need them."""
        hopeless = set(self.failed)
        for item in items:
            if hopeless.intersection(item.needs):
                hopeless.add(item.name)
        return [item for item in items if item.name not in hopeless]

    def _do(self, job: StoredJob, item: Item) -> bool:
        try:
            done = run_item(job, item.name, self.device)
        except SupersededError:
            self.store.delete(lease_name(item.name))
            return True
        except (FileNotFoundError, FileExistsError) as error:
            return self._fail(item, error)
        except OSError:
            self.store.delete(lease_name(item.name))
            raise  # such as a full disk, on which no other item could be stored either
        except (EncryptedStatsError, ValueError, ArithmeticError) as error:
            return self._fail(item, error)
        except BaseException:  # interrupted: leave the item to another worker
            self.store.delete(lease_name(item.name))
            raise
        if done.found:  # another process stored it meanwhile
            self.store.delete(lease_name(item.name))
            return True
        self.done.append(done)
        rows = item.rows if item.is_shard else 0
        self._write_lease(
            item, replace(self._own_lease(item), state="done", rows=rows, took=done.seconds)
        )
        self.on_done(done)
        return True

    def _fail(self, item: Item, error: Exception) -> bool:
        """Record a failure and continue: objects may be repaired, and other items are useful."""
        self.failed[item.name] = error
        failed = replace(self._own_lease(item), state="failed", **vars(Failure.of(error)))
        self._write_lease(item, failed)
        return False

    def _write_lease(self, item: Item, lease: Lease) -> None:
        name = lease_name(item.name)
        with name_errors(self.store.where(name)):
            self.store.write(name, [lease.to_bytes()])

    # -- claiming
    # --------------------------------------------------------------------------------------------

    def _claim(self, job: StoredJob, item: Item) -> bool:
        """Claim an item, and return whether it was free and its job was not cancelled."""
        name = lease_name(item.name)
        if self.store.exists(CANCELLED + job.id):
            return False
        with name_errors(self.store.where(name)):
            return self.store.create(name, self._own_lease(item).to_bytes())

    def _take_over(self, job: StoredJob, item: Item) -> bool:
        """Return True if the lease of the item had run out and the item is this worker's now."""
        if (
            item.name in self.failed
            or not self._has_run_out(item)
            or is_done(job, item, self.store)
        ):
            return False
        self._write_lease(item, self._own_lease(item))
        return True

    def _own_lease(self, item: Item) -> Lease:
        return Lease(self.name, secrets.token_hex(8), self.lease_seconds)

    def _has_run_out(self, item: Item) -> bool:
        """Return True if a lease has been unchanged for its duration, or is done
        without a result.
        """
        lease = _read_lease(self.store, item.name)
        if lease is None or lease.state != "working":
            return True
        token, since = self._watched.setdefault(item.name, (lease.token, time.monotonic()))
        if token != lease.token:
            self._watched[item.name] = (lease.token, time.monotonic())
            return False
        return time.monotonic() - since >= lease.seconds


def _from_anywhere(items: list[Item]) -> Iterator[Item]:
    """Yield all items from a random one on, so that workers do not all try for the same."""
    start = secrets.randbelow(len(items)) if items else 0
    yield from items[start:]
    yield from items[:start]


def _read_lease(store: Store, name: str) -> Lease | None:
    """Return the lease of an item, or None."""
    try:
        return Lease.from_bytes(store.read(lease_name(name), limit=_MAX_LEASE_BYTES))
    except (FileNotFoundError, FileFormatError):
        return None


def job_ids(names: Collection[str]) -> list[str]:
    """Return the ids of the jobs of a queue."""
    ids = (name.removeprefix(JOBS) for name in sorted(names) if name.startswith(JOBS))
    return [job_id for job_id in ids if len(job_id) == 64 and set(job_id) <= _HEX]


def jobs_of(store: Store, names: Collection[str], keys: str | None = None) -> Iterator[StoredJob]:
    """Yield the jobs of a queue. A damaged one is set aside, with a warning."""
    for job_id in job_ids(names):
        if DAMAGED + job_id in names:
            continue
        try:
            job = StoredJob.load(store.url, job_id, keys)
        except FileNotFoundError:
            continue  # taken away just now
        except FileFormatError as error:
            _log.warning("%s: the job is set aside; submit it again, or delete it", error)
            store.create(DAMAGED + job_id, str(error).encode())
            continue
        yield job


def find_unfinished(job: StoredJob, names: set[str], store: Store) -> list[Item]:
    """Return the unfinished items of a job.

    There are none once its model exists, even if results were deleted, and none if a later job
    writes the model.
    """
    if not is_current(job, store, names) or (job.record in names and model_is_there(job, store)):
        return []
    return [item for item in job.items.values() if item.name not in names or item.is_model]


def forget_failures(job: StoredJob, store: Store) -> None:
    """Remove the leases of failed items, so that workers try them again."""
    names = set(store.names())
    for name in job.items:
        lease = _read_lease(store, name) if lease_name(name) in names else None
        if lease is not None and lease.state == "failed":
            store.delete(lease_name(name))


def cancel(queue: str | os.PathLike[str], job_id: str) -> bool:
    """Cancel a job, and return whether there is one; running items are finished.

    Results are kept, so that submitting the same job again continues.
    """
    store = open_store(queue)
    if job_id not in job_ids([JOBS + job_id]) or not store.exists(JOBS + job_id):
        return False
    store.create(CANCELLED + job_id, b"")
    return True


def forget_job(store: Store, sheet: Sheet) -> None:
    """Remove all that lies in a queue for a job."""
    store.delete(JOBS + sheet.id)
    for name, _, _ in sheet.items:
        store.delete(name)
        store.delete(lease_name(name))
    for name in (CANCELLED + sheet.id, f"{sheet.record}.made", claim_name(sheet.out)):
        store.delete(name)


# -- looking at a queue
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobProgress:
    """The progress of a job: figures, and who did what. ``str`` of it is a small table.

    Attributes
    ----------
    id, table, out : str
    shards, shards_done, rows, rows_done : int
    finished : bool
        True if the model is where it should be.
    workers : dict
        For every worker its shards and rows, its rows per second, and its current item.
    failures : tuple of Failure
        What could not be done, and why.
    superseded : bool
        True if a later job writes the model instead.
    cancelled : bool
        True if no more of it is begun.
    """

    id: str
    table: str
    out: str
    shards: int
    shards_done: int
    rows: int
    rows_done: int
    finished: bool
    workers: dict[str, dict[str, Any]]
    failures: tuple[Failure, ...]
    superseded: bool = False
    cancelled: bool = False

    @property
    def stage(self) -> str:
        """Return "queued", "running", "done", "failed" or "cancelled"."""
        working = any(one["working"] for one in self.workers.values())
        if self.finished:
            return DONE
        if self.cancelled or self.superseded:
            return CANCELLED_STATE
        if self.failures and not working:
            return FAILED
        return RUNNING if working or self.shards_done else QUEUED

    @property
    def state(self) -> str:
        """The state in a word or two."""
        if self.finished or self.superseded:
            return "finished" if self.finished else "superseded"
        return "cancelled" if self.cancelled else "under way"

    def __str__(self) -> str:
        lines = [
            f"job {self.id[:12]}, {self.state}: {self.shards_done:,} of {self.shards:,} shards, "
            f"{self.rows_done:,} of {self.rows:,} rows"
        ]
        lines += [
            f"  {name}: {one['shards']:,} shards, {one['rows']:,} rows, "
            f"{one['rows_per_second']:,.0f} rows/s"
            + (f", at {one['working']}" if one["working"] else "")
            for name, one in sorted(self.workers.items())
        ]
        return "\n".join([*lines, *(f"  failed: {message}" for message in self.failures)])


def status(queue: str | os.PathLike[str]) -> list[JobProgress]:
    """Return the progress of the jobs of a queue, from its objects alone."""
    store = open_store(queue)
    names = set(store.names())
    return [*(_status(job, names, store) for job in jobs_of(store, names)), *_set_aside(store)]


def _set_aside(store: Store) -> list[JobProgress]:
    """Return the status of damaged jobs, of which only the reason is known."""
    names = store.names()
    found = [job_id for job_id in job_ids(names) if DAMAGED + job_id in names]
    why = {
        job_id: store.read(DAMAGED + job_id, limit=_MAX_LEASE_BYTES).decode(errors="replace")
        for job_id in found
    }
    return [
        JobProgress(job_id, "", "", 0, 0, 0, 0, False, {}, (Failure(f"set aside: {why[job_id]}"),))
        for job_id in found
    ]


@dataclass(frozen=True)
class Sheet:
    """The names of a job's items, enough to see its progress without reading the job, which takes
    long.

    ``items`` has the name of each, its rows, and whether it is a shard; the last one is the record.
    """

    id: str
    table: str
    out: str
    rows: int
    passes: int
    items: tuple[tuple[str, int, bool], ...]

    @property
    def record(self) -> str:
        """The name of the last object."""
        return RECORDS + self.id

    @classmethod
    def of(cls, job: StoredJob) -> Sheet:
        """Return the sheet of a job."""
        items = tuple((item.name, item.rows, item.is_shard) for item in job.items.values())
        return cls(job.id, job.table, job.out, job.n_rows, job.passes, items)


def status_of(
    sheet: Sheet, names: Collection[str], store: Store, *, is_current: bool = True
) -> JobProgress:
    """Return the progress of a job, from the names of the objects in its queue."""
    shards = [name for name, _, is_shard in sheet.items if is_shard]
    done = {name for name in shards if name in names}
    finished = sheet.record in names and model_is_there(sheet, store)
    workers: dict[str, dict[str, Any]] = {}
    failures = []
    for name, _, is_shard in sheet.items:
        there = (
            finished if name == sheet.record else name in names
        )  # a record without its end result is nothing done
        lease = _read_lease(store, name) if lease_name(name) in names else None
        if lease is None:
            continue
        one = workers.setdefault(
            lease.worker, {"shards": 0, "rows": 0, "seconds": 0.0, "working": 0}
        )
        if lease.state == "failed" and not there:
            failures.append(lease.failure)
        elif lease.state == "done":
            one["shards"] += is_shard
            one["rows"] += lease.rows
            one["seconds"] += lease.took
        elif not there:
            one["working"] += 1
    for one in workers.values():
        one["rows_per_second"] = one["rows"] / one["seconds"] if one["seconds"] else 0.0
    return JobProgress(
        sheet.id,
        sheet.table,
        sheet.out,
        len(shards),
        len(done),
        sheet.rows,
        sum(rows for name, rows, _ in sheet.items if name in done) // sheet.passes,
        finished,
        workers,
        tuple(failures),
        superseded=not is_current,
        cancelled=CANCELLED + sheet.id in names,
    )


def _status(job: StoredJob, names: set[str], store: Store) -> JobProgress:
    return status_of(Sheet.of(job), names, store, is_current=is_current(job, store, names))


def finished_items(job: StoredJob, store: Store) -> set[str]:
    """Return the names of all items of a job that exist."""
    return set(store.names()) & set(job.items)
