"""What comes in and goes out: encrypted objects, each named by the SHA-256 that its file ends with,
in a place of its owner's own.

A body is written to a temporary file while it is hashed, and becomes an object only when its hash
is its name. What it says it is is looked at when its first bytes are there: a secret key, an opened
model, or what is no file of this library is refused at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import stat
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from encryptedstats.cluster.jobs import read_table
from encryptedstats.crypto.keyfiles import OWNER_KIND, PUBLIC_KIND
from encryptedstats.errors import FileFormatError
from encryptedstats.kinds import KINDS
from encryptedstats.service.contents import READ_WHOLE, refuse_fields, refuse_sections
from encryptedstats.service.limits import Limits
from encryptedstats.service.refusals import Refusal, missing
from encryptedstats.storage import container
from encryptedstats.storage.container import DIGEST_BYTES
from encryptedstats.storage.files import temporary_name
from encryptedstats.storage.objects import FolderStore, Store
from encryptedstats.tables.answers.files import ANSWER_KINDS
from encryptedstats.tables.blocks import BLOCK_KIND, BlockEntry
from encryptedstats.tables.facts import TableFacts
from encryptedstats.tables.manifest import MANIFEST, MAX_MANIFEST_BYTES, TABLE_KIND, keys_name
from encryptedstats.words import plural

#: Runs a function of :mod:`encryptedstats.service.making`, in another process where there is one.
Make = Callable[..., dict[str, Any]]
#: What an owner may send: all of it encrypted, or public.
WELCOME: Final = (TABLE_KIND, BLOCK_KIND, PUBLIC_KIND, *ANSWER_KINDS)
PART_BYTES: Final = 1 << 20
_SPOOL: Final = "spool"
_SHOWN_MISSING: Final = 1000
# after which what an owner has stored is counted again: another server may have taken some
_RECOUNT_SECONDS: Final = 30.0


def refused_kind(found: container.Container, lengths: dict[str, int], name: str) -> Refusal | None:
    """Return why a file of this kind, with these sections, is refused; None if it is accepted."""
    what, known = f"the object {name[:12]}", KINDS.get(found.kind)
    if found.kind == OWNER_KIND or "secret_key" in lengths:
        return Refusal(
            422,
            what,
            "it is a secret key, and a worker must never have one",
            "keep it on the owner's machine; if it was sent on purpose, make a new key and "
            "encrypt again",
        )
    if found.kind not in WELCOME or known is None:
        kind = known.words if known is not None else repr(found.kind[:60])
        return Refusal(
            422,
            what,
            f"it is {kind}, which is not sent to a worker",
            "send encrypted tables, answers and public keys",
        )
    strange = sorted(set(lengths) - known.sections)
    if strange:
        return Refusal(
            422,
            what,
            f"{known.words} has no section {strange[0][:60]!r}",
            "send the file as the library wrote it",
        )
    return refuse_fields(found, what)


class Incoming:
    """A body in transit: to a temporary file, hashed as it comes. ``close`` removes what did not
    become an object.
    """

    def __init__(self, folder: Path, sha256: str, size: int) -> None:
        self.sha256, self.size, self.received = sha256, size, 0
        self.path = folder / temporary_name(f".{sha256[:16]}")
        self._file: BinaryIO = open(self.path, "xb")  # noqa: SIM115  closed by close
        self._hash, self._tail, self._head = hashlib.sha256(), b"", b""
        self._is_known = False
        self.kind, self._lengths = "", dict[str, int]()

    def feed(self, data: bytes) -> None:
        """Take the next bytes; refused as soon as they are too many, or of something that must not
        come in.
        """
        self.received += len(data)
        if self.received > self.size:
            raise Refusal(
                400, self._what, "the body is longer than it said", "send it again, whole"
            )
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
            found = container.peek(self._head, self.size, self._what)
        except FileFormatError as error:
            why = str(error).removeprefix(f"{self._what} ")
            raise Refusal(
                422, self._what, why, "send files that this library wrote, whole"
            ) from None
        if found is None:
            return
        refusal = refused_kind(*found, self.sha256)
        if refusal is not None:
            raise refusal
        self._is_known, self._head = True, b""
        self.kind, self._lengths = found[0].kind, found[1]

    def finish(self) -> Path:
        """Return the file if its hash is its name."""
        if self.received != self.size:
            raise Refusal(
                400,
                self._what,
                f"{self.received:,} of {self.size:,} bytes came",
                "send it again, whole",
            )
        if (
            not self._is_known
            or self._hash.hexdigest() != self.sha256
            or self._tail.hex() != self.sha256
        ):
            raise Refusal(
                422,
                self._what,
                "its bytes have another SHA-256 than its name: damaged on the way, or forged",
                "send it again; nothing of it was kept",
            )
        self._file.flush()
        os.fsync(self._file.fileno())
        refuse_sections(self.path, self._lengths, self.kind, self._what)
        return self.path

    def close(self) -> None:
        """Remove what is left."""
        self._file.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class OwnerPlace:
    """Where all that is one owner's lies. Names are hashes and random ids: nothing that she writes
    is ever a path.
    """

    store: Store
    owner: str

    def of(self, what: str, name: str = "") -> str:
        """Return the full name of an object, a table, a job or a result of the owner."""
        return f"owners/{self.owner}/{what}/{name}".rstrip("/")

    def has(self, what: str, name: str) -> bool:
        """Return whether it exists."""
        return self.store.exists(self.of(what, name))

    def url(self, what: str, name: str) -> str:
        """Return its URL, for workers."""
        return self.store.where(self.of(what, name))

    def private(self, message: str) -> str:
        """Return a message of the library without paths of this machine."""
        for what in ("objects", "tables", "results"):
            message = message.replace(self.url(what, "") + "/", f"{what}/")
        return message.replace(self.store.where("").rstrip("/"), "(storage)")

    def parts(self, name: str, start: int, size: int) -> Iterator[bytes]:
        """Yield an object in pieces: it may be larger than memory."""
        while start < size:
            data = self.store.read(name, start, min(PART_BYTES, size - start))
            if not data:
                raise FileFormatError(f"{name} ends before it should", code="truncated-file")
            start += len(data)
            yield data


@dataclass(frozen=True)
class _Hold:
    bytes: int
    until: float
    arrives: str  # the object that it is for, where another server may be told that it has come


@dataclass
class _Account:
    counted: int = 0
    since: float = -math.inf
    added: int = 0  # ever: what comes while it is counted again is not lost
    held: dict[str, _Hold] = field(default_factory=dict)


class Usage:
    """What owners have stored, counted now and then, and kept up to date between; and what is held
    for bodies in transit.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: defaultdict[str, _Account] = defaultdict(_Account)
        self._lock = threading.Lock()

    def of(self, owner: str) -> int:
        """Bytes that an owner's objects, tables, results and unfinished uploads take; without what
        is held.
        """
        with self._lock:
            account = self._accounts[owner]
            if time.monotonic() - account.since < _RECOUNT_SECONDS:
                return account.counted
            before = account.added
        place, total = OwnerPlace(self._store, owner), 0
        found = self._store.room(place.of(""))
        with self._lock:
            _forget_late(account)
            stored = {
                key
                for key, hold in account.held.items()
                if place.of("objects", hold.arrives) in found
            }
            account.held = {key: hold for key, hold in account.held.items() if key not in stored}
            for what in ("objects", "tables", "results", "incoming"):
                inside = place.of(what) + "/"
                total += sum(
                    size
                    for name, size in found.items()
                    if name.startswith(inside) and name.removeprefix(inside) not in account.held
                )
            account.counted, account.since = total + account.added - before, time.monotonic()
            return account.counted

    def add(self, owner: str, amount: int) -> None:
        """More is stored."""
        with self._lock:
            account = self._accounts[owner]
            account.counted, account.added = account.counted + amount, account.added + amount

    def forget(self, owner: str) -> None:
        """Something was deleted, which other names may still hold: the next look counts again."""
        with self._lock:
            self._accounts[owner].since = -math.inf

    def held(self, owner: str, key: str) -> int | None:
        """Return what is held under a name, or None."""
        with self._lock:
            hold = self._accounts[owner].held.get(key)
        return None if hold is None else hold.bytes

    def reserve(
        self,
        owner: str,
        key: str,
        amount: int,
        quota: int,
        *,
        seconds: float = math.inf,
        arrives: str = "",
    ) -> None:
        """Hold room for what is about to come, until it is settled or so long; unless it would be
        too much.
        """
        self.of(owner)
        with self._lock:
            account = self._accounts[owner]
            _check_room(account, amount, quota)
            account.held[key] = _Hold(amount, time.monotonic() + seconds, arrives)

    def check(self, owner: str, quota: int) -> None:
        """Refuse if more is stored and held than may be: another server may have taken some
        meanwhile.
        """
        self.of(owner)
        with self._lock:
            _check_room(self._accounts[owner], 0, quota)

    def settle(self, owner: str, key: str, stored: int) -> None:
        """Hold nothing under this name any more; so much was stored."""
        with self._lock:
            self._accounts[owner].held.pop(key, None)
        self.add(owner, stored)


def _forget_late(account: _Account) -> None:
    now = time.monotonic()
    account.held = {key: hold for key, hold in account.held.items() if hold.until > now}


def _check_room(account: _Account, amount: int, quota: int) -> None:
    _forget_late(account)
    used = account.counted + sum(hold.bytes for hold in account.held.values())
    if used + amount > quota:
        raise Refusal(
            413,
            f"{plural(amount, 'byte')} more",
            f"{used:,} of {quota:,} bytes are taken",
            "delete tables, objects or jobs that are not needed, or ask the person who runs the "
            "worker for more",
        )


def _own_folder() -> Path:
    """Make a folder of this user's own among temporary files, where others may make folders too;
    the same after a restart.
    """
    if os.name != "posix":
        return (
            Path(tempfile.gettempdir()) / "encryptedstats-spool"
        )  # which is this user's by itself
    folder = Path(tempfile.gettempdir()) / f"encryptedstats-spool-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        raise PermissionError(
            f"{folder} is for uploads under way, and is a link, another's, or open to others: "
            "remove it, or name a folder "
            "of this user's own in TMPDIR"
        )
    return folder


class Door:
    """Objects and tables of owners in a storage."""

    def __init__(
        self, store: Store, limits: Limits, spool: Path | None = None, make: Make | None = None
    ) -> None:
        self.store, self.limits = store, limits
        self._reading, self._lock = set[str](), threading.Lock()
        self.make: Make = (
            (lambda function, *arguments: function(*arguments)) if make is None else make
        )
        self.usage = Usage(store)
        own_spool = Path(store.url).absolute() / _SPOOL if isinstance(store, FolderStore) else None
        self.spool = spool or own_spool or _own_folder()
        self.spool.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- objects
    # --------------------------------------------------------------------------------------------

    def check_size(self, sha256: str, size: int) -> None:
        """Refuse an object that is too large."""
        if size > self.limits.object_bytes:
            raise Refusal(
                413,
                f"the object {sha256[:12]}",
                f"{size:,} bytes are over the limit of {self.limits.object_bytes:,}",
                "encrypt in smaller blocks",
            )

    def keep(self, place: OwnerPlace, incoming: Incoming, quota: int) -> None:
        """Make an object of a body that is all there, and that there is still room for."""
        self.usage.check(place.owner, quota)
        path = incoming.finish()
        if incoming.kind in READ_WHOLE:
            self._read_whole(place.owner, path, f"the object {incoming.sha256[:12]}")
        self.store.take(place.of("objects", incoming.sha256), path)

    def _read_whole(self, owner: str, path: Path, what: str) -> None:
        """Refuse a file that is not what it says, in another process; one file of an owner at a
        time.
        """
        from encryptedstats.service import making

        with self._lock:
            if owner in self._reading or len(self._reading) >= self.limits.makers:
                cure, again = "send it again in a second", {"Retry-After": "1"}
                raise Refusal(429, what, "other uploads are being checked", cure, again)
            self._reading.add(owner)
        try:
            refused = self.make(making.check_file, str(path)).get("refused")
        finally:
            with self._lock:
                self._reading.discard(owner)
        if refused is not None:
            raise Refusal(
                422, what, refused.replace(str(path), "it"), "send the file as the library wrote it"
            )

    def size(self, place: OwnerPlace, what: str, name: str) -> int:
        """Return the number of bytes of an object or a result."""
        try:
            return self.store.size(place.of(what, name))
        except FileNotFoundError:
            raise missing(what.removesuffix("s")) from None

    def delete(self, place: OwnerPlace, what: str, name: str) -> int:
        """Remove an object or a result: its bytes."""
        size = self.size(place, what, name)
        self.store.delete(place.of(what, name))
        self.usage.forget(place.owner)
        return size

    # -- tables
    # --------------------------------------------------------------------------------------------

    def make_table(
        self, place: OwnerPlace, manifest_sha256: str, keys_sha256: str, quota: int
    ) -> TableFacts:
        """Put a table together from objects that are here. The manifest comes last: with it, the
        table is there.
        """
        manifest = self._read(place, manifest_sha256, MAX_MANIFEST_BYTES)
        try:
            facts, entries = read_table(manifest, "the manifest")
        except FileFormatError as error:
            raise Refusal(
                422,
                "the table",
                str(error),
                "send the manifest of a table, as the library wrote it",
            ) from None
        self._check_keys(place, keys_sha256, facts)
        wanted = {entry.sha256: entry for entry in entries}
        lost = self.missing(place, list(wanted))
        lost += [
            sha for sha, entry in wanted.items() if sha not in lost and not self._fits(place, entry)
        ]
        if lost:
            raise Refusal(
                409,
                "the table",
                f"{plural(len(lost), 'block')} of {len(entries):,} are not here: "
                f"{', '.join(lost[:_SHOWN_MISSING])}",
                "upload these, then ask again",
            )
        inside = place.of("tables", manifest_sha256)
        parts = {**{e.name: e.sha256 for e in entries}, keys_name(facts.key_id): keys_sha256}
        lacking = {
            name: sha for name, sha in parts.items() if not self.store.exists(f"{inside}/{name}")
        }
        # In a folder a copy is a second name, and takes no room.
        copied = () if isinstance(self.store, FolderStore) else lacking.values()
        room, key = (
            len(manifest) + sum(self.size(place, "objects", sha) for sha in copied),
            secrets.token_hex(),
        )
        self.usage.reserve(place.owner, key, room, quota)
        try:
            for name, sha256 in lacking.items():
                self.store.copy(place.of("objects", sha256), f"{inside}/{name}")
            self.store.write(f"{inside}/{MANIFEST}", [manifest])
        finally:
            self.usage.settle(place.owner, key, 0)
            self.usage.forget(place.owner)
        return facts

    def _fits(self, place: OwnerPlace, entry: BlockEntry) -> bool:
        return self.store.size(place.of("objects", entry.sha256)) == entry.bytes

    def _check_keys(self, place: OwnerPlace, sha256: str, facts: TableFacts) -> None:
        name = place.of("objects", sha256)
        size = self.size(place, "objects", sha256)
        found = container.peek(
            self.store.read(name, 0, container.MAX_HEADER_BYTES + DIGEST_BYTES), size, "the keys"
        )
        if found is None or found[0].kind != PUBLIC_KIND or found[0].key_id != facts.key_id:
            raise Refusal(
                422,
                "the table",
                "what was given as its public keys are not those of its key",
                f"send those of key {facts.key_id}",
            )

    def _read(self, place: OwnerPlace, sha256: str, limit: int) -> bytes:
        try:
            return self.store.read(place.of("objects", sha256), limit=limit)
        except FileNotFoundError:
            raise missing("object") from None
        except FileFormatError as error:
            raise Refusal(
                422, "the table", place.private(str(error)), "send the manifest of a table"
            ) from None

    def missing(self, place: OwnerPlace, names: list[str]) -> list[str]:
        """Return the objects that are not stored."""
        if len(names) < 8:
            return [name for name in names if not place.has("objects", name)]
        there = set(self.store.sizes(place.of("objects")))
        return [name for name in names if place.of("objects", name) not in there]

    def table(self, place: OwnerPlace, table_id: str) -> tuple[TableFacts, tuple[BlockEntry, ...]]:
        """Return the public facts of a table."""
        try:
            manifest = self.store.read(
                f"{place.of('tables', table_id)}/{MANIFEST}", limit=MAX_MANIFEST_BYTES
            )
        except FileNotFoundError:
            raise missing("table") from None
        return read_table(manifest, "the manifest")

    def has_table(self, place: OwnerPlace, table_id: str) -> bool:
        """Return whether the whole table is stored."""
        return self.store.exists(f"{place.of('tables', table_id)}/{MANIFEST}")

    def delete_table(self, place: OwnerPlace, table_id: str) -> int:
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
        self.usage.forget(place.owner)
        return freed

    def seen(self, place: OwnerPlace, table_id: str, count: int = 5) -> list[dict[str, Any]]:
        """Return what this machine can see of a table's blocks: an opaque name, a size, and bytes
        that look like noise.
        """
        _, entries = self.table(place, table_id)
        inside = place.of("tables", table_id)
        return [
            {
                "name": entry.name.rpartition("/")[2],
                "bytes": entry.bytes,
                "rows": entry.rows,
                "first": self.store.read(
                    f"{inside}/{entry.name}", entry.bytes - DIGEST_BYTES - 48, 48
                ).hex(" ", 2),
            }
            for entry in entries[:count]
        ]
