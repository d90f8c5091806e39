"""Put fits of stored tables into queues.

Everything that is read or written is a stored object.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from encryptedstats.cluster.items import model_is_there
from encryptedstats.cluster.jobs import JOBS, FitOptions, Job, StoredJob, absolute, make_job
from encryptedstats.cluster.outputs import claim, digest_at
from encryptedstats.cluster.queues import CANCELLED, DAMAGED, forget_failures
from encryptedstats.errors import REPLACE, ArgumentTypeError, ExistsError, FileFormatError
from encryptedstats.storage.objects import Store, open_store
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
    """Cut a fit into items of work and put them into a queue.

    ``es.connect("queue://...").ask(...)`` calls it, and ``encryptedstats worker run`` or
    :func:`work` does the work. Submitting the same job again changes nothing; ``finished`` of the
    job that is returned says whether the result exists. An unfinished job of the queue with the
    same ``out`` is replaced only by ``overwrite=True``.

    Parameters
    ----------
    model : a model of this library, not fitted, or another question
    table : path or fsspec URL
        An encrypted table that every worker can read.
    out : path or fsspec URL
        Where the encrypted answer goes.
    queue : path or fsspec URL, optional
        Folder for the job and the results of shards; ``out`` + ".work" by default. They are kept,
        so that a later job with appended rows computes new shards only. Delete the folder when you
        have the answer.
    keys : path or fsspec URL, optional
        Public keys to compute with, instead of those in the table.
    rows_per_shard : int, optional
        The largest number of rows of a shard; a block of the table is never cut. By default 32
        shards, none of more than 64 blocks.
    trees_per_task : int, optional
        Split a forest by trees as well, into tasks of about this size.
    by_others : bool
        Compute on rows of contributors: see :meth:`encryptedstats.EncryptedTable.accept_others`.
    folds : bool
        Fit every cross-validation fold of a table that declares folds, as ``model.fit_folds``.
    overwrite : bool
        Replace what exists at ``out``.
    """
    if not isinstance(model, Question):
        raise ArgumentTypeError(
            f"a model of this library or another question is needed, not a {type(model).__name__}",
            code="not-a-question",
        )
    place, keys_url = place_of_queue(out, queue), None if keys is None else absolute(keys)
    asked = FitOptions(
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
    job: AnyJob, data: bytes, overwrite: bool, objects: Mapping[str, bytes] = MappingProxyType({})
) -> AnyJob:
    """Store a job after the ``objects`` that it needs, unless its result would replace another
    file.

    The returned job knows whether its end result exists already.
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
    for name, needed in {**objects, JOBS + job.id: data}.items():
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
