"""Which job may write an end result: of the jobs of a queue that name one address, the last
submitted.

The claim of an address names that job, and what lay there when it was submitted. A worker writes
the end result only if that, or nothing, or a damaged end result of the same job lies there still:
never over anything newer.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final

from encryptedstats.cluster.jobs import JOBS, RECORDS, StoredJob
from encryptedstats.errors import REPLACE, ClusterError, ExistsError, FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.objects import Store, read_object, sha256_of, write_object

CLAIMS: Final = "outs/"
_MAX_BYTES: Final = 1 << 16
_log = logging.getLogger("encryptedstats.cluster")


class SupersededError(ClusterError):
    """A later job writes the result of this one."""


@dataclass(frozen=True)
class Claim:
    """The job that writes an address, and the SHA-256 of the object there when it was submitted, if
    any.
    """

    job: str
    out: str
    before: str | None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def claim_name(out: str) -> str:
    """Return the name of the object that claims an address."""
    return CLAIMS + hashlib.sha256(out.encode()).hexdigest()


def read_claim(store: Store, out: str) -> tuple[Claim | None, bytes]:
    """Return the claim of an address and its bytes; None if there is none, or a damaged one."""
    try:
        data = store.read(claim_name(out), limit=_MAX_BYTES)
    except FileNotFoundError:
        return None, b""
    except FileFormatError as error:
        _log.warning("%s: nobody's claim", error)
        return None, b""
    try:
        values = json.loads(data)
        claim = Claim(str(values["job"]), str(values["out"]), values["before"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, data
    good = claim.out == out and (claim.before is None or isinstance(claim.before, str))
    return (claim if good else None), data


def digest_at(out: str) -> str | None:
    """Return the SHA-256 of the object at an address, or None."""
    try:
        return sha256_of(out)
    except FileNotFoundError:
        return None


def claim(job: StoredJob, store: Store, before: str | None, overwrite: bool) -> None:
    """Make a job the one that writes its address; refused where another one is about to, unless
    that is to be given up.
    """
    name, mine = claim_name(job.out), Claim(job.id, job.out, before)
    while not store.create(name, mine.to_bytes()):
        theirs, data = read_claim(store, job.out)
        if (
            theirs is not None
            and theirs.job == job.id
            and (before is None or theirs.before == before)
        ):
            return
        if (
            theirs is not None
            and theirs.job != job.id
            and not overwrite
            and _is_open(theirs, store)
        ):
            raise ClusterError(
                f"job {theirs.job[:12]} of the queue {store.url} is to write {job.out} and has "
                "not finished: let workers "
                "finish it, give another place, or overwrite=True to give it up (what it has "
                "computed is kept)",
                code="unfinished-job",
            )
        if store.replace(name, data, mine.to_bytes()):
            return


def _is_open(claim: Claim, store: Store) -> bool:
    """Return True if a job was submitted and never finished."""
    return store.exists(JOBS + claim.job) and not store.exists(RECORDS + claim.job)


def is_current(job: StoredJob, store: Store, names: Collection[str]) -> bool:
    """Return True if no later job writes the same result."""
    if claim_name(job.out) not in names:
        return True
    claimed, _ = read_claim(store, job.out)
    return claimed is None or claimed.job == job.id


def refuse_superseded(job: StoredJob, store: Store) -> Claim | None:
    """Return the claim of a job, or raise an error if the address belongs to another job by now."""
    claimed, _ = read_claim(store, job.out)
    if claimed is not None and claimed.job != job.id:
        raise SupersededError(
            f"job {job.id[:12]} was superseded by job {claimed.job[:12]}, which writes {job.out}",
            code="superseded-job",
        )
    return claimed


def place(job: StoredJob, store: Store, data: bytes, *, again: bool) -> None:
    """Put an end result where it belongs. ``again``: this job has finished before, and what it
    wrote may be damaged.
    """
    claimed = refuse_superseded(job, store)
    try:
        found = read_object(job.out)
    except FileNotFoundError:
        write_object(job.out, data, overwrite=False)
        return
    if found == data:
        return
    seen = claimed is not None and hashlib.sha256(found).hexdigest() == claimed.before
    if not seen and not (again and _is_damaged(found)):
        raise ExistsError(
            f"something else has appeared at {job.out} since job {job.id[:12]} was submitted; it "
            "was not touched: move it away, "
            "or submit again with ",
            REPLACE,
            code="output-appeared",
        )
    write_object(job.out, data)


def _is_damaged(found: bytes) -> bool:
    """Return True for one of our files that was cut short or altered, not for others' files."""
    if not found:
        return True
    try:
        container.from_bytes(found)
    except FileFormatError:
        return found.startswith(container.MAGIC)
    return False
