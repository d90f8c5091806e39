"""What comes in and goes out: encrypted objects, each named by the SHA-256 that its file ends with, in a place of its owner's own.

A body is written to a temporary file while it is hashed, and becomes an object only when its hash is its name. What it says it is
is looked at when its first bytes are there: a secret key, an opened model, or what is no file of this library is refused at once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from encryptedstats.cluster.jobs import listed_table
from encryptedstats.crypto.keys import OWNER_KIND, PUBLIC_KIND
from encryptedstats.errors import FileFormatError
from encryptedstats.kinds import KINDS
from encryptedstats.service.limits import Limits
from encryptedstats.service.refusals import Refusal, missing
from encryptedstats.storage import container
from encryptedstats.storage.container import DIGEST_BYTES
from encryptedstats.storage.files import temporary_name
from encryptedstats.storage.objects import FolderStore, Store
from encryptedstats.tables.answers import ANSWER_KINDS
from encryptedstats.tables.blocks import BLOCK_KIND, BlockEntry
from encryptedstats.tables.encrypted import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    TABLE_KIND,
    TableFacts,
    keys_name,
)
from encryptedstats.words import plural

#: What an owner may send: all of it encrypted, or public.
WELCOME: Final = (TABLE_KIND, BLOCK_KIND, PUBLIC_KIND, *ANSWER_KINDS)
PART_BYTES: Final = 1 << 20
_SPOOL: Final = "spool"
_SHOWN_MISSING: Final = 1000
_RECOUNT_SECONDS: Final = (
    30.0  # after which what an owner has stored is counted again: another server may have taken some
)


def refused_kind(found: container.Container, lengths: dict[str, int], name: str) -> Refusal | None:
    """Why a file of this kind, with these sections, does not come in; None where it may."""
    what, known = f"the object {name[:12]}", KINDS.get(found.kind)
    if found.kind == OWNER_KIND or "secret_key" in lengths:
        return Refusal(
            422,
            what,
            "it is a secret key, and a worker must never have one",
            "keep it on the owner's machine; if it was sent on purpose, make a new key and encrypt again",
        )
    if found.kind not in WELCOME or known is None:
        kind = known.words if known is not None else repr(found.kind[:60])
        return Refusal(
            422, what, f"it is {kind}, which is not sent to a worker", "send encrypted tables, answers and public keys"
        )
    strange = sorted(set(lengths) - known.sections)
    if strange:
        return Refusal(
            422, what, f"{known.words} has no section {strange[0][:60]!r}", "send the file as the library wrote it"
        )
    return None


class Incoming:
    """A body on its way: to a temporary file, hashed as it comes. ``close`` removes what did not become an object."""

    def __init__(self, folder: Path, sha256: str, size: int) -> None:
        self.sha256, self.size, self.received = sha256, size, 0
        self.path = folder / temporary_name(f".{sha256[:16]}")
        self._file: BinaryIO = open(self.path, "xb")  # noqa: SIM115  closed by close
        self._hash, self._tail, self._head = hashlib.sha256(), b"", b""
        self._is_known = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes; refused as soon as they are too many, or of something that must not come in."""
        self.received += len(data)
        if self.received > self.size:
            raise Refusal(400, self._what, "the body is longer than it said", "send it again, whole")
        if not self._is_known:
            self._look(data)
        both = self._tail + data
        self._hash.update(memoryview(both)[:-DIGEST_BYTES])
        self._tail = both[-DIGEST_BYTES:]
        self._file.write(data)

    @property
    def _what(self) -> str:
        return f"the object {self.sha256[:12]}"

    def _look(self, data: bytes) -> None:
        self._head += data
        try:
            found = container.peeked(self._head, self.size, self._what)
        except FileFormatError as error:
            why = str(error).removeprefix(f"{self._what} ")
            raise Refusal(422, self._what, why, "send files that this library wrote, whole") from None
        if found is None:
            return
        refusal = refused_kind(*found, self.sha256)
        if refusal is not None:
            raise refusal
        self._is_known, self._head = True, b""

    def finish(self) -> Path:
        """The file, if its hash is its name."""
        if self.received != self.size:
            raise Refusal(400, self._what, f"{self.received:,} of {self.size:,} bytes came", "send it again, whole")
        if not self._is_known or self._hash.hexdigest() != self.sha256 or self._tail.hex() != self.sha256:
            raise Refusal(
                422,
                self._what,
                "its bytes have another SHA-256 than its name: damaged on the way, or forged",
                "send it again; nothing of it was kept",
            )
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.path

    def close(self) -> None:
        """Remove what is left."""
        self._file.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Place:
    """Where all that is one owner's lies. Names are hashes and random ids: nothing that she writes is ever a path."""

    store: Store
    owner: str

    def of(self, what: str, name: str = "") -> str:
        """The full name of an object, a table, a job or a result of hers."""
        return f"owners/{self.owner}/{what}/{name}".rstrip("/")

    def has(self, what: str, name: str) -> bool:
        """Whether there is such a one."""
        return self.store.exists(self.of(what, name))

    def url(self, what: str, name: str) -> str:
        """Where it lies, for workers."""
        return self.store.where(self.of(what, name))

    def private(self, message: str) -> str:
        """A message of the library, without where things lie on this machine."""
        for what in ("objects", "tables", "results"):
            message = message.replace(self.url(what, "") + "/", f"{what}/")
        return message.replace(self.store.where("").rstrip("/"), "(storage)")

    def parts(self, name: str, start: int, size: int) -> Iterator[bytes]:
        """An object a piece at a time: it may be larger than memory."""
        while start < size:
            data = self.store.read(name, start, min(PART_BYTES, size - start))
            if not data:
                raise FileFormatError(f"{name} ends before it should")
            start += len(data)
            yield data


class Usage:
    """What owners have stored, counted now and then, and kept up to date between."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def of(self, owner: str) -> int:
        """Bytes of an owner's objects and results."""
        with self._lock:
            since, known = self._counted.get(owner, (float("-inf"), 0))
        if time.monotonic() - since < _RECOUNT_SECONDS:
            return known
        place = Place(self._store, owner)
        total = sum(sum(self._store.sizes(place.of(what)).values()) for what in ("objects", "results"))
        with self._lock:
            self._counted[owner] = (time.monotonic(), total)
        return total

    def add(self, owner: str, amount: int) -> None:
        """More, or less, is stored, or about to be."""
        with self._lock:
            if owner in self._counted:
                since, known = self._counted[owner]
                self._counted[owner] = (since, max(0, known + amount))

    def reserve(self, owner: str, amount: int, quota: int) -> None:
        """Count what is about to come, unless it would be too much."""
        used = self.of(owner)
        if used + amount > quota:
            raise Refusal(
                413,
                f"{plural(amount, 'byte')} more",
                f"{used:,} of {quota:,} bytes are taken",
                "delete tables, objects or jobs that are not needed, or ask whoever runs the worker for more",
            )
        self.add(owner, amount)


class Door:
    """Objects and tables of owners in a storage."""

    def __init__(self, store: Store, limits: Limits, spool: Path | None = None) -> None:
        self.store, self.limits = store, limits
        self.usage = Usage(store)
        beside = Path(store.url).absolute() / _SPOOL if isinstance(store, FolderStore) else None
        self.spool = spool or beside or Path(tempfile.gettempdir()) / "encryptedstats-spool"
        self.spool.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- objects -----------------------------------------------------------------------------------------------------

    def reserve(self, place: Place, sha256: str, size: int, quota: int) -> None:
        """A body of so many bytes is about to come: it is counted, unless it is too large."""
        if size > self.limits.object_bytes:
            raise Refusal(
                413,
                f"the object {sha256[:12]}",
                f"{size:,} bytes are over the limit of {self.limits.object_bytes:,}",
                "encrypt in smaller blocks",
            )
        self.usage.reserve(place.owner, size, quota)

    def keep(self, place: Place, incoming: Incoming) -> None:
        """Make an object of a body that is all there."""
        self.store.take(place.of("objects", incoming.sha256), incoming.finish())

    def size(self, place: Place, what: str, name: str) -> int:
        """The bytes of an object or a result."""
        try:
            return self.store.size(place.of(what, name))
        except FileNotFoundError:
            raise missing(what.removesuffix("s")) from None

    def delete(self, place: Place, what: str, name: str) -> int:
        """Remove an object or a result: its bytes."""
        size = self.size(place, what, name)
        self.store.delete(place.of(what, name))
        self.usage.add(place.owner, -size)
        return size

    # -- tables ------------------------------------------------------------------------------------------------------

    def make_table(self, place: Place, manifest_sha256: str, keys_sha256: str) -> TableFacts:
        """Put a table together from objects that are here. The manifest comes last: with it, the table is there."""
        manifest = self._read(place, manifest_sha256, MAX_MANIFEST_BYTES)
        try:
            facts, entries = listed_table(manifest, "the manifest")
        except FileFormatError as error:
            raise Refusal(
                422, "the table", str(error), "send the manifest of a table, as the library wrote it"
            ) from None
        self._check_keys(place, keys_sha256, facts)
        wanted = {entry.sha256: entry for entry in entries}
        lost = self.missing(place, list(wanted))
        lost += [sha for sha, entry in wanted.items() if sha not in lost and not self._fits(place, entry)]
        if lost:
            raise Refusal(
                409,
                "the table",
                f"{plural(len(lost), 'block')} of {len(entries):,} are not here: {', '.join(lost[:_SHOWN_MISSING])}",
                "upload these, then ask again",
            )
        inside = place.of("tables", manifest_sha256)
        for name, sha256 in {**{e.name: e.sha256 for e in entries}, keys_name(facts.key_id): keys_sha256}.items():
            if not self.store.exists(f"{inside}/{name}"):
                self.store.copy(place.of("objects", sha256), f"{inside}/{name}")
        self.store.write(f"{inside}/{MANIFEST}", [manifest])
        return facts

    def _fits(self, place: Place, entry: BlockEntry) -> bool:
        return self.store.size(place.of("objects", entry.sha256)) == entry.bytes

    def _check_keys(self, place: Place, sha256: str, facts: TableFacts) -> None:
        name = place.of("objects", sha256)
        size = self.size(place, "objects", sha256)
        found = container.peeked(self.store.read(name, 0, container.MAX_HEADER_BYTES + DIGEST_BYTES), size, "the keys")
        if found is None or found[0].kind != PUBLIC_KIND or found[0].key_id != facts.key_id:
            raise Refusal(
                422,
                "the table",
                "what was given as its public keys are not those of its key",
                f"send those of key {facts.key_id}",
            )

    def _read(self, place: Place, sha256: str, limit: int) -> bytes:
        try:
            return self.store.read(place.of("objects", sha256), limit=limit)
        except FileNotFoundError:
            raise missing("object") from None
        except FileFormatError as error:
            raise Refusal(422, "the table", place.private(str(error)), "send the manifest of a table") from None

    def missing(self, place: Place, names: list[str]) -> list[str]:
        """Those of some objects that are not here."""
        if len(names) < 8:
            return [name for name in names if not place.has("objects", name)]
        there = set(self.store.sizes(place.of("objects")))
        return [name for name in names if place.of("objects", name) not in there]

    def table(self, place: Place, table_id: str) -> tuple[TableFacts, tuple[BlockEntry, ...]]:
        """What is known of a table."""
        try:
            manifest = self.store.read(f"{place.of('tables', table_id)}/{MANIFEST}", limit=MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            raise missing("table") from None
        return listed_table(manifest, "the manifest")

    def has_table(self, place: Place, table_id: str) -> bool:
        """Whether it is there, whole."""
        return self.store.exists(f"{place.of('tables', table_id)}/{MANIFEST}")

    def delete_table(self, place: Place, table_id: str) -> int:
        """Remove a table and the objects that it was made from: bytes that are free again."""
        _, entries = self.table(place, table_id)
        inside = place.of("tables", table_id)
        self.store.delete(f"{inside}/{MANIFEST}")
        for name in self.store.sizes(inside):
            self.store.delete(name)
        freed = 0
        for sha256 in (table_id, *(entry.sha256 for entry in entries)):
            if place.has("objects", sha256):
                freed += self.delete(place, "objects", sha256)
        return freed

    def seen(self, place: Place, table_id: str, count: int = 5) -> list[dict[str, Any]]:
        """What this machine can see of a table's blocks: an opaque name, a size, and bytes that look like noise."""
        _, entries = self.table(place, table_id)
        inside = place.of("tables", table_id)
        return [
            {
                "name": entry.name.rpartition("/")[2],
                "bytes": entry.bytes,
                "rows": entry.rows,
                "first": self.store.read(f"{inside}/{entry.name}", entry.bytes - DIGEST_BYTES - 48, 48).hex(" ", 2),
            }
            for entry in entries[:count]
        ]
