"""``fit`` and ``submit``: fit a model to a stored table on many machines.

Everything that is read or written is a stored object.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from encryptedstats.circuits.devices import AUTO
from encryptedstats.cluster.items import Done, model_is_there
from encryptedstats.cluster.jobs import JOBS, Fit, Job, StoredJob, absolute, make_job
from encryptedstats.cluster.outputs import claim, digest_at
from encryptedstats.cluster.queues import CANCELLED, DAMAGED, forget_failures, refuse_unfinished
from encryptedstats.cluster.scheduling import PATIENCE, DaskRun, run_on_dask
from encryptedstats.errors import REPLACE, ArgumentTypeError, ExistsError, FileFormatError
from encryptedstats.kinds import read_file
from encryptedstats.storage.objects import Store, load_file, open_store
from encryptedstats.tables import Question

Url = str | os.PathLike[str]
AnyJob = TypeVar("AnyJob", bound=StoredJob)


def submit(
    model: Question,
    table: Url,
    out: Url,
    *,
    queue: Url | None = None,
    keys: Url | None = None,
    rows_per_shard: int | None = None,
    trees_per_task: int | None = None,
    by_others: bool = False,
    folds: bool = False,
    overwrite: bool = False,
) -> Job:
    """Cut a fit into items of work and put them into a queue; ``encryptedstats worker run`` or
    :func:`work` does them.

    Submitting the same again changes nothing; ``finished`` of what is returned says whether the
    model is there already. Another job of the queue that is to write ``out`` and has not finished
    is given up only by ``overwrite=True``.

    Parameters
    ----------
    model, table, out, queue, keys, rows_per_shard, trees_per_task, by_others, folds, overwrite
        As of :func:`fit`.
    """
    if not isinstance(model, Question):
        raise ArgumentTypeError(
            "cluster.fit needs a model of this library or another question, not a "
            f"{type(model).__name__}",
            code="not-a-question",
        )
    place, keys_url = place_of_queue(out, queue), None if keys is None else absolute(keys)
    asked = Fit(
        absolute(table),
        absolute(out),
        place,
        keys_url,
        rows_per_shard,
        trees_per_task,
        by_others,
        folds,
    )
    return put_into_queue(*make_job(model, asked), overwrite)


def place_of_queue(out: Url, queue: Url | None) -> str:
    """Return the requested queue, or the one next to the end result."""
    return absolute(f"{os.fspath(out).rstrip('/')}.work" if queue is None else queue)


def put_into_queue(
    job: AnyJob, data: bytes, overwrite: bool, beside: Mapping[str, bytes] = MappingProxyType({})
) -> AnyJob:
    """Store a job, and first what it needs ``beside`` it, unless its end result would replace what
    it did not write.

    What is returned knows whether the end result is there already.
    """
    store = open_store(job.queue)
    finished = model_is_there(job, store)
    before = None if finished else digest_at(job.out)
    if before is not None and not overwrite:
        raise ExistsError(
            f"there is something at {job.out} already; it was not touched (",
            REPLACE,
            " replaces it)",
            code="already-exists",
        )
    claim(job, store, before, overwrite)
    if not finished and store.exists(JOBS + job.id):
        forget_failures(job, store)
    for name, needed in {**beside, JOBS + job.id: data}.items():
        _keep(store, name, needed)
    for mark in (DAMAGED, CANCELLED):
        store.delete(mark + job.id)
    return replace(job, finished=finished)


def _keep(store: Store, name: str, data: bytes) -> None:
    """Store an object that is named by its hash, replacing a damaged one."""
    if store.create(name, data):
        return
    try:
        same = store.read(name, limit=len(data)) == data
    except (FileFormatError, FileNotFoundError):
        same = False
    if not same:
        store.write(name, [data])


def fit(
    model: Question,
    table: Url,
    out: Url,
    *,
    scheduler: Any = None,
    queue: Url | None = None,
    keys: Url | None = None,
    rows_per_shard: int | None = None,
    trees_per_task: int | None = None,
    by_others: bool = False,
    folds: bool = False,
    workers: int | None = None,
    device: str = AUTO,
    overwrite: bool = False,
    progress: bool | None = None,
    patience: float = PATIENCE,
    on_done: Callable[[Done], None] | None = None,
) -> Any:
    """Fit a model to a stored table on a cluster. The result is exactly
    ``model.fit(es.load(table))``, encrypted.

    Parameters
    ----------
    model : a model of this library, not fitted, or another question
    table : path or fsspec URL
        Of an encrypted table. Every worker must be able to read it.
    out : path or fsspec URL
        Where the encrypted model goes.
    scheduler : str or dask.distributed.Client, optional
        Address of a Dask scheduler, or a client of one. By default a cluster of processes is
        started here.
    queue : path or fsspec URL, optional
        Folder for the results of shards, ``out`` + ".work" by default. They are kept: a second run
        goes on from there, and after rows were appended to the table only new shards are computed.
        Delete it when the model is yours.
    keys : path or fsspec URL, optional
        Of the public keys to compute with, instead of those that lie in the table.
    rows_per_shard : int, optional
        Rows of a shard, at most; a block of the table is never cut. By default 32 shards, none of
        more than 64 blocks.
    trees_per_task : int, optional
        Of a forest: split by trees as well, about so many a task.
    by_others : bool
        Compute on rows that others have encrypted with the public keys: see
        :meth:`encryptedstats.EncryptedTable.accept_others`.
    folds : bool
        Fit every cross-validation fold of a table that declares folds: what ``model.fit_folds``
        gives.
    workers : int, optional
        Processes of a cluster that is started here; as many as there are cores by default.
    device : str
        What computes on every worker: "native", "seal" or "auto", as of ``model.fit``; the result
        is the same.
    overwrite : bool
        Replace what lies at ``out``.
    progress : bool, optional
        Show shards, rows a second, time left and workers; by default on a terminal. The address of
        the dashboard is printed too.
    patience : float
        Seconds to wait for a scheduler, given by address, that is not there or has gone.
    on_done : callable, optional
        Called with every item that was done.

    Returns
    -------
    The fitted model, still encrypted; of another question, its EncryptedAnswer.

    Raises
    ------
    ClusterError
        If the cluster could not do it, or this process holds a secret key. What was done is kept.
    FileFormatError, FileNotFoundError
        Names the stored object that is damaged or missing.
    """
    job = submit(
        model,
        table,
        out,
        queue=queue,
        keys=keys,
        rows_per_shard=rows_per_shard,
        trees_per_task=trees_per_task,
        by_others=by_others,
        folds=folds,
        overwrite=overwrite,
    )
    run_on_dask(job, DaskRun(scheduler, workers, progress, patience, on_done, device))
    refuse_unfinished(job, open_store(job.queue))
    return read_file(load_file(job.out), job.keys, job.out)
