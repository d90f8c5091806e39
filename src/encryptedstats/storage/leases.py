"""One writer at a time: a system lock for folders, and a lease (an object that only one process can
create) elsewhere.

A lock ends with its process. A lease is renewed while its holder lives; once it has been unchanged
for its duration, by the watcher's clock, another process may take it over. A holder that was
suspended that long finds the lease taken before its next write, and gives up. Conditional writes
(``Store.create`` and ``Store.replace``) protect data from two simultaneous writers; the lease only
saves work.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from encryptedstats.errors import BusyError, StorageError
from encryptedstats.storage.files import (
    NoLocks,
    is_dead,
    process_tag,
    read_regular,
    release_lock,
    take_lock,
)
from encryptedstats.storage.objects import LEASE, FolderStore, Store

LEASE_SECONDS: Final = 20.0
_BEATS: Final = 4  # in the time of a lease
_POLL_SECONDS: Final = 0.1
_HELPERS_SECONDS: Final = 10.0  # for which helper processes of a killed one may still hold its lock
_MAX_BYTES: Final = 1 << 12
_ended: set[str] = (
    set()
)  # leases of this process that were given back, or could not be because the storage was away


class Writer(Protocol):
    """The permission to write, as long as it lasts."""

    def check(self) -> None:
        """Refuse to go on where somebody else has taken over."""


@contextmanager
def write_alone(store: Store, *, wait: float = 0.0) -> Iterator[Writer]:
    """Be the only writer of a store.

    Waits up to ``wait`` seconds for other writers, then raises a :class:`BusyError` that names the
    holder.
    """
    lock: _Lock | _Lease
    if isinstance(store, FolderStore):
        lock = _Lock(Path(store.where(LEASE)), store.url)
        try:
            lock.take(wait)
        except NoLocks:
            lock = _Lease(store, LEASE_SECONDS)
            lock.take(wait)
    else:
        lock = _Lease(store, LEASE_SECONDS)
        lock.take(wait)
    try:
        yield lock
    finally:
        lock.give_back()


def _who() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "tag": process_tag()}


def _describe(content: bytes) -> tuple[str, str]:
    """Return the holder in words and the tag of its process.

    The words are for messages only: nothing but the tag is trusted.
    """
    try:
        said = json.loads(content)
        host, pid, tag = str(said["host"])[:64], int(said["pid"]), str(said["tag"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return "another process", ""
    return f"process {pid} on {host if host.isprintable() else 'another machine'}", tag


def _busy(url: str, who: str, cure: str) -> BusyError:
    return BusyError(
        f"{who} is writing to {url} now; nothing was touched: {cure}", code="already-being-written"
    )


@dataclass
class _Lock:
    path: Path
    url: str
    _descriptor: int | None = None

    def take(self, wait: float) -> None:
        started = time.monotonic()
        while (descriptor := take_lock(self.path, json.dumps(_who()).encode())) is None:
            try:
                who, tag = _describe(read_regular(self.path, limit=_MAX_BYTES, follow=False))
            except OSError:
                continue  # given back just now
            patience = max(wait, _HELPERS_SECONDS) if tag and is_dead(tag) else wait
            if time.monotonic() - started >= patience:
                raise _busy(
                    self.url, who, "wait until it has finished, stop it, or give another place"
                )
            time.sleep(_POLL_SECONDS)
        self._descriptor = descriptor

    def check(self) -> None:
        """Do nothing: a lock of the system cannot be lost."""

    def give_back(self) -> None:
        if self._descriptor is not None:
            release_lock(self.path, self._descriptor)


@dataclass
class _Lease:
    store: Store
    seconds: float
    _content: bytes = b""
    _beat: int = 0
    _renewed: float = 0.0
    _lost: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _who: dict[str, Any] = field(default_factory=_who)

    def take(self, wait: float) -> None:
        started, seen, since, alive = time.monotonic(), b"", 0.0, False
        while True:
            mine = self._next()
            if self.store.create(LEASE, mine):
                break
            try:
                held = self.store.read(LEASE, limit=_MAX_BYTES)
            except FileNotFoundError:
                continue
            now = time.monotonic()
            who, tag = _describe(held)
            if held != seen:
                # It changed while it was watched: its holder lives.
                alive, seen, since = bool(seen), held, now
            if (
                not tag or tag in _ended or is_dead(tag) or now - since >= self.seconds
            ) and self.store.replace(LEASE, held, mine):
                break
            if alive and now - started >= wait:
                raise _busy(
                    self.store.url, who, "wait until it has finished, or give another place"
                )
            time.sleep(5 * _POLL_SECONDS)
        self._content, self._renewed = mine, time.monotonic()
        threading.Thread(target=self._keep, daemon=True).start()

    def _next(self) -> bytes:
        self._beat += 1
        return json.dumps({**self._who, "beat": self._beat}).encode()

    def _keep(self) -> None:
        while not self._ended.wait(self.seconds / _BEATS):
            with suppress(
                StorageError
            ):  # tried again; when it has been too long, check() asks for itself
                self._renew()

    def _renew(self) -> None:
        with self._guard:
            if self._ended.is_set() or self._lost:
                return
            mine = self._next()
            if self.store.replace(LEASE, self._content, mine):
                self._content, self._renewed = mine, time.monotonic()
            else:
                self._lost = True

    def check(self) -> None:
        if time.monotonic() - self._renewed > self.seconds / 2:
            self._renew()
        if self._lost:
            raise BusyError(
                f"{self.store.url} was taken over by another process, since this one had stood "
                "still for more than "
                f"{self.seconds:.0f} seconds; it has stopped writing: run it again when the other "
                "has finished",
                code="lease-lost",
            )

    def give_back(self) -> None:
        self._ended.set()
        _ended.add(self._who["tag"])
        with self._guard, suppress(StorageError, FileNotFoundError):
            if not self._lost and self.store.read(LEASE, limit=_MAX_BYTES) == self._content:
                self.store.delete(LEASE)
