"""Do the items of a job on Dask.

Only the queue's address, a job's id and names of items travel through the scheduler. It need not
remember anything: finished items are in the queue. Dask replaces a worker that dies, the library
waits for a scheduler that dies, and a worker that holds up all others is overtaken: its item is
busy to another as well.
"""

from __future__ import annotations

import gc
import math
import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from encryptedstats.circuits.devices import AUTO, check_device_name
from encryptedstats.cluster.board import Board, show_board
from encryptedstats.cluster.items import Done, is_done, run_item
from encryptedstats.cluster.jobs import Item, StoredJob
from encryptedstats.cluster.queues import CANCELLED, finished_items
from encryptedstats.crypto import Owner
from encryptedstats.errors import ArgumentError, ArgumentTypeError, ClusterError, FileFormatError
from encryptedstats.machine import check_workers, cores
from encryptedstats.storage.objects import Store, open_store

PATIENCE: Final = 60.0  # seconds that a scheduler may be away
_TRIES: Final = 2  # of an item whose objects could not be read: the network may have cut it short
_OVERTAKE: Final = 4.0  # times the usual duration after which an item is busy to a second worker
_IDLE_TIMEOUT: Final = "2 minutes"  # a local cluster that nobody asks anything any more ends itself
# Run by the scheduler and the nannies of a local cluster: who is killed cannot end them. Workers
# end with their nannies.
_END_WITH_PARENT: Final = """\
import os, threading, time

def watch():
    while os.getppid() == {parent}:
        time.sleep(0.5)
    os._exit(1)

threading.Thread(target=watch, daemon=True).start()
"""


def dask_item(queue: str, job_id: str, name: str, device: str = AUTO) -> dict[str, Any]:
    """Do an item on a worker, from addresses, and report in a few plain values."""
    from distributed import get_worker

    done = run_item(StoredJob.load(queue, job_id), name, device)
    return {**done.to_dict(), "worker": str(get_worker().address)}


@dataclass(frozen=True)
class DaskRun:
    """How Dask does the items of a job.

    Attributes
    ----------
    scheduler : str or dask.distributed.Client, optional
        By default a cluster of ``workers`` processes is started on this machine.
    workers : int, optional
    progress : bool, optional
    patience : float
        Seconds to wait for a scheduler that is not there or has gone.
    on_done : callable, optional
        Called with every item that was done.
    device : str
    """

    scheduler: Any = None
    workers: int | None = None
    progress: bool | None = None
    patience: float = PATIENCE
    on_done: Callable[[Done], None] | None = None
    device: str = AUTO


def run_on_dask(job: StoredJob, how: DaskRun) -> None:
    """Do all items of a job that are not done."""
    scheduler, patience = how.scheduler, how.patience
    workers = check_workers(how.workers)
    check_device_name(how.device)
    store = open_store(job.queue)
    if is_done(job, job.items[job.record], store):
        return
    refuse_secret_keys()
    deadline = time.monotonic() + patience
    while True:
        try:
            with connect(
                scheduler, workers, max(1.0, deadline - time.monotonic()), how.progress
            ) as client:
                _Run(job, store, client, how).run()
            return
        except _SchedulerLost as error:
            if not isinstance(scheduler, str) or (
                time.monotonic() > deadline and not error.made_progress
            ):
                there = len(finished_items(job, store))
                raise ClusterError(
                    f"the scheduler {_address(scheduler)} is gone ({error}). {there:,} of "
                    f"{len(job.items):,} items are done and "
                    "are not done again: start a scheduler and run this again",
                    code="scheduler-gone",
                ) from error
            if error.made_progress:
                deadline = time.monotonic() + patience
            time.sleep(0.5)


def refuse_secret_keys() -> None:
    """Raise an error if this process holds a secret key.

    A scheduler can make the processes that are connected to it run anything.
    """
    if any(isinstance(thing, Owner) for thing in gc.get_objects()):
        raise ClusterError(
            "this process holds a secret key (an Owner), and the operator of a scheduler could "
            "read it: work in another process, "
            "for instance with encryptedstats ask or predict --on dask://..., and let the owner "
            "touch the storage only",
            code="secret-key-in-process",
        )


def _address(scheduler: Any) -> str:
    return scheduler if isinstance(scheduler, str) else "of this client"


class _SchedulerLost(Exception):
    """The scheduler cannot be reached, or has forgotten its tasks."""

    def __init__(self, reason: object, made_progress: bool = False) -> None:
        super().__init__(str(reason) or type(reason).__name__)
        self.made_progress = made_progress


@contextmanager
def connect(
    scheduler: Any, workers: int | None, timeout: float, progress: bool | None
) -> Iterator[Any]:
    """Return a client of a scheduler by address, of a new local cluster, or the client that was
    passed.
    """
    try:
        from distributed import Client, SubprocessCluster
    except ImportError as error:
        raise ClusterError(
            "a scheduler needs Dask: pip install 'encryptedstats[cluster]'", code="missing-package"
        ) from error
    if isinstance(scheduler, Client):
        yield scheduler
        return
    if scheduler is None:
        watch = [_END_WITH_PARENT.format(parent=os.getpid())]
        cluster = SubprocessCluster(
            host="127.0.0.1",
            n_workers=workers or cores(),
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"idle_timeout": _IDLE_TIMEOUT, "preload": watch},
            worker_kwargs={"preload_nanny": watch},
        )
        with cluster, Client(cluster) as client:
            _tell_dashboard(client, progress)
            yield client
        return
    if not isinstance(scheduler, str):
        raise ArgumentTypeError(
            f"scheduler={scheduler!r}: an address such as 'tcp://10.0.0.1:8786', a Client, or None",
            code="not-a-scheduler",
        )
    try:
        client = Client(scheduler, timeout=timeout)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError):
            raise ArgumentError(
                f"scheduler={scheduler!r} is no address, such as 'tcp://10.0.0.1:8786': {error}",
                code="not-an-address",
            ) from error
        raise _SchedulerLost(error) from error
    try:
        _tell_dashboard(client, progress)
        yield client
    finally:
        client.close(timeout=5)


def _tell_dashboard(client: Any, progress: bool | None) -> None:
    if progress or (progress is None and sys.stderr.isatty()):
        print(f"dashboard: {client.dashboard_link}", file=sys.stderr, flush=True)


@dataclass
class _Run:
    """The work of one connection: items are submitted once what they need is done, until the model
    exists.
    """

    job: StoredJob
    store: Store
    client: Any
    how: DaskRun
    under_way: dict[Any, tuple[str, float]] = field(
        default_factory=dict
    )  # future: item, since when
    tries: dict[str, int] = field(default_factory=dict)
    durations: list[float] = field(default_factory=list)
    threads: tuple[int, float] = (0, -math.inf)  # how many, and when that was so
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    made_progress: bool = False

    def run(self) -> None:
        """Work until nothing is left."""
        done = finished_items(self.job, self.store) - {self.job.record}
        left = self._missing_items(done)
        shards = [item for item in left.values() if item.is_shard]
        all_shards = sum(item.is_shard for item in self.job.items.values())
        rows = sum(item.rows for item in shards)
        board = Board(len(shards), rows, len(left), found=all_shards - len(shards))
        with show_board(board, self.how.progress) as tell:
            try:
                while left:
                    if self.store.exists(CANCELLED + self.job.id):
                        raise ClusterError(
                            f"job {self.job.id[:12]} was cancelled: to run it again goes on",
                            code="cancelled-job",
                        )
                    self._give_out(left, done)
                    for one, worker in self._take_finished():
                        if one.name in left:
                            done.add(one.name)
                            del left[one.name]
                            board.add(one, worker)
                            if self.how.on_done is not None:
                                self.how.on_done(one)
                    tell()
            finally:
                self._forget(list(self.under_way))

    def _missing_items(self, done: set[str]) -> dict[str, Item]:
        """Return what must be done for the model: nothing below a sum that exists."""
        needed: dict[str, Item] = {}
        stack = [self.job.record]
        while stack:
            name = stack.pop()
            if name not in done and name not in needed:
                needed[name] = self.job.items[name]
                stack.extend(self.job.items[name].needs)
        return needed

    def _give_out(self, left: dict[str, Item], done: set[str]) -> None:
        busy = {name for name, _ in self.under_way.values()}
        ready = [
            item for item in left.values() if item.name not in busy and done.issuperset(item.needs)
        ]
        # One for every thread that is idle, and no more: what waits in a worker's own list waits
        # behind a slow one.
        free = max(1, self._threads()) - len(self.under_way)
        for item in ready[: max(0, free)]:
            self._submit(item.name)
        if free > len(ready):
            self._overtake()

    def _submit(self, name: str) -> None:
        number = self.tries[name] = self.tries.get(name, 0) + 1
        # never that of an earlier run, whose failure would be remembered
        key = f"{name}-{self.token}-{number}"
        try:
            future = self.client.submit(
                dask_item, self.job.queue, self.job.id, name, self.how.device, key=key, pure=False
            )
        except Exception as error:
            raise _SchedulerLost(error, self.made_progress) from error
        self.under_way[future] = (name, time.monotonic())

    def _overtake(self) -> None:
        """Give the oldest item to somebody else too, where it takes several times as long as is
        usual, and others are idle.
        """
        if len(self.durations) < 3:
            return
        usual, now = statistics.median(self.durations), time.monotonic()
        often = [name for name, _ in self.under_way.values()]
        for name, since in list(self.under_way.values()):
            is_late = now - since > max(2.0, _OVERTAKE * usual)
            if is_late and often.count(name) == 1:
                self._submit(name)
                return

    def _threads(self) -> int:
        """Return the threads of all workers, asked for once a second."""
        count, when = self.threads
        if time.monotonic() - when > 1.0:
            try:
                count = sum(self.client.nthreads().values())
            except Exception as error:
                raise _SchedulerLost(error, self.made_progress) from error
            self.threads = (count, time.monotonic())
        return count

    def _take_finished(self) -> Iterator[tuple[Done, str]]:
        """Yield items that were done since the last look, or raise the error of one."""
        from distributed import wait

        try:
            ended = wait(list(self.under_way), timeout=1.0, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            self._check_alive()
            return
        except Exception as error:  # whatever Dask says when it has lost its scheduler
            raise _SchedulerLost(error, self.made_progress) from error
        for future in ended:
            name, since = self.under_way.pop(future)
            if future.status == "finished":
                facts = dict(self._fetch(future.result))
                self.durations.append(time.monotonic() - since)
                self.made_progress = True
                self._forget([other for other, (same, _) in self.under_way.items() if same == name])
                worker = str(facts.pop("worker"))
                yield Done(**facts), worker
            elif future.status == "error":
                self._retry_or_raise(name, self._fetch(future.exception))
            else:
                raise _SchedulerLost(f"it has forgotten {name}", self.made_progress)

    def _fetch(self, fetch: Callable[[], Any]) -> Any:
        """Fetch a result that exists from the scheduler, which may be gone by now."""
        try:
            return fetch()
        except Exception as error:
            raise _SchedulerLost(error, self.made_progress) from error

    def _check_alive(self) -> None:
        if self.client.status not in ("running", "connecting") or self.client.scheduler is None:
            raise _SchedulerLost(f"the client is {self.client.status}", self.made_progress)
        if self.client.status == "connecting":
            raise _SchedulerLost("the connection was lost", self.made_progress)

    def _retry_or_raise(self, name: str, error: BaseException | None) -> None:
        """Retry what may be a network failure, and raise every other error."""
        if isinstance(error, (OSError, FileFormatError)) and self.tries[name] < _TRIES:
            return
        if type(error).__name__ == "KilledWorker":
            raise ClusterError(
                f"every worker that began {self.store.where(name)} died: have they enough memory? "
                "Their logs say more. "
                "What is done is kept",
                code="workers-died",
            ) from error
        raise (
            error
            if error is not None
            else ClusterError(
                f"{self.store.where(name)} failed, and nobody knows why", code="unknown-failure"
            )
        )

    def _forget(self, futures: list[Any]) -> None:
        for future in futures:
            self.under_way.pop(future, None)
            try:
                future.cancel()
            except Exception:  # the scheduler may be gone, and then so is what it would have done
                return
