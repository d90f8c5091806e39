"""Do one item of a job: evaluate a shard, add results up, or write the end result.

An item reads stored objects and writes one, once. The same item gives the same bytes on every
worker, or votes that open to the same, so two workers on one item do no harm. A result that is
missing, cut short or altered is computed again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Final, Protocol

from encryptedstats.circuits.devices import AUTO
from encryptedstats.cluster.jobs import RECORD_KIND, Item, ItemResult, StoredJob
from encryptedstats.cluster.outputs import place, refuse_superseded
from encryptedstats.errors import FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import name_errors
from encryptedstats.storage.objects import Store, open_store, retry_read, sha256_of

RESULT_KIND: Final = "cluster result"
# behind the name of a record: the end result itself, where making it again gives other bytes
_MADE: Final = ".made"
_MAX_RESULT_BYTES: Final = 4 << 30
_MAX_RECORD_BYTES: Final = 512 << 20
_log = logging.getLogger("encryptedstats.cluster")


@dataclass(frozen=True)
class Done:
    """The report of a finished item: small, since it travels through the scheduler."""

    name: str
    rows: int
    seconds: float
    is_shard: bool
    found: bool = False  # it was there already

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for receivers that must not unpickle our classes."""
        return dict(vars(self))


def run_item(job: StoredJob, name: str, device: str = AUTO) -> Done:
    """Do an item on a device of this machine, unless its object exists already."""
    item, store = job.items[name], open_store(job.queue)
    started = time.perf_counter()
    found = is_done(job, item, store)
    if not found:
        _make(job, item, store, device)
    return Done(name, item.rows, time.perf_counter() - started, item.is_shard, found)


def is_done(job: StoredJob, item: Item, store: Store) -> bool:
    """Return True if the object of an item exists; the end result must be at its final place."""
    if not item.is_model:
        return store.exists(item.name)
    return store.exists(item.name) and model_is_there(job, store)


class Recorded(Protocol):
    """The facts that identify a job's end result."""

    @property
    def id(self) -> str:
        """SHA-256 of the job."""

    @property
    def out(self) -> str:
        """Where the end result goes."""

    @property
    def record(self) -> str:
        """The name of the object that describes the end result."""


def model_is_there(job: Recorded, store: Store) -> bool:
    """Return True if the end result of the record is what lies at ``out``."""
    try:
        wanted: str = read_record(job, store).expect("sha256", str)
        return sha256_of(job.out) == wanted
    except (FileNotFoundError, FileFormatError):
        return False


def _make(
    job: StoredJob, item: Item, store: Store, device: str, *, replace_it: bool = False
) -> None:
    if item.is_model:
        _write_model(job, item, store)
        return
    result = _evaluate(job, item, device) if item.is_shard else _add_up(job, item, store)
    data = result_bytes(item, result)
    with name_errors(store.where(item.name)):
        if replace_it:
            store.write(item.name, [data])
        else:
            store.create(item.name, data)


def _evaluate(job: StoredJob, item: Item, device: str) -> ItemResult:
    return job.evaluate(item, device)


def _add_up(job: StoredJob, item: Item, store: Store) -> Any:
    return reduce(add, (believed_result(job, job.items[name], store) for name in item.needs))


# -- results
# ------------------------------------------------------------------------------------------------


def result_bytes(item: Item, result: ItemResult) -> bytes:
    """Return the object of a result: the result, its name, and its shards."""
    file = result.to_container(RESULT_KIND, {"name": item.name, "rows": item.rows})
    sections = {**file.sections, "shards": json.dumps(item.shards).encode()}
    return container.to_bytes(replace(file, sections=sections))


def read_result(job: StoredJob, item: Item, store: Store) -> Any:
    """Read a stored result, if it is whole and has this name and exactly the required shards."""
    return retry_read(store, lambda: _read_result(job, item, store))


def _read_result(job: StoredJob, item: Item, store: Store) -> Any:
    where = store.where(item.name)
    data = store.read(item.name, limit=_MAX_RESULT_BYTES)
    file = container.from_bytes(data, kind=RESULT_KIND, name=where)
    if file.expect("name", str) != item.name or file.expect("rows", int) != item.rows:
        raise FileFormatError(
            f"{where} holds another result than its name says: it is stale, or was exchanged",
            code="other-result",
        )
    try:
        if file.read_list("shards") != list(item.shards):
            raise FileFormatError(
                "it adds up other shards than it must: some would be left out or counted twice",
                code="other-shards",
            )
        return job.result(item, file)
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from error


def believed_result(job: StoredJob, item: Item, store: Store) -> Any:
    """Read a result, computing it again first if it is missing or damaged."""
    try:
        return read_result(job, item, store)
    except (FileFormatError, FileNotFoundError) as error:
        _log.warning("%s: it is made again", error)
    _make(job, item, store, AUTO, replace_it=True)
    return read_result(job, item, store)


# -- the end result
# ------------------------------------------------------------------------------------------------


def _write_model(job: StoredJob, item: Item, store: Store) -> None:
    """Write the record, then the end result.

    An end result without a record would count as somebody else's, and is never overwritten.
    """
    refuse_superseded(job, store)
    data = container.to_bytes(
        job.finish(item, [believed_result(job, job.items[name], store) for name in item.needs])
    )
    if job.finish_is_random:  # then all workers use what the first one made
        data = _first_made(store, item.name + _MADE, data)
    again = store.exists(item.name)
    with name_errors(store.where(item.name)):
        store.write(item.name, [record_bytes(job, item, data)])
    with name_errors(job.out):
        place(job, store, data, again=again)


def _first_made(store: Store, name: str, data: bytes) -> bytes:
    if store.create(name, data):
        return data
    found = store.read(name)
    try:
        container.from_bytes(found, name=store.where(name))
    except FileFormatError:
        store.write(name, [data])
        return data
    return found


def record_bytes(job: StoredJob, item: Item, made: bytes) -> bytes:
    """Return the record of an end result: every shard with its blocks, once."""
    shards = [
        [
            name,
            list(job.items[name].outputs),
            [entry.id for entry in job.entries[slice(*job.items[name].blocks)]],
        ]
        for name in item.shards
    ]
    fields = {
        "job": job.id,
        "out": job.out,
        "rows": job.n_rows,
        "sha256": hashlib.sha256(made).hexdigest(),
    }
    sections = {"shards": json.dumps(shards).encode()}
    facts = job.facts
    return container.to_bytes(
        Container(RECORD_KIND, facts.parameters.fingerprint, facts.key_id, fields, sections)
    )


def read_record(job: Recorded, store: Store) -> Container:
    """Read the record of a finished job."""
    where = store.where(job.record)
    file = retry_read(
        store,
        lambda: container.from_bytes(
            store.read(job.record, limit=_MAX_RECORD_BYTES), kind=RECORD_KIND, name=where
        ),
    )
    if file.expect("job", str) != job.id:
        raise FileFormatError(f"{where} is the record of another job", code="other-job")
    return file
