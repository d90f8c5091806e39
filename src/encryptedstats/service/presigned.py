"""Uploads that go straight to S3, by an address that the server has signed; the server looks at
them when they have arrived.

S3 takes whatever is put there, so that an upload has a random name at first. Only what has the
right hash, and is of a kind that may come in, becomes an object.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from encryptedstats.service.door import Door, Incoming, OwnerPlace
from encryptedstats.service.refusals import Refusal, missing
from encryptedstats.storage.objects import FsspecStore

_SECONDS: Final = 3600
_NAME_BYTES: Final = 16


class Presigner:
    """Signs addresses, and takes what has arrived at them."""

    def __init__(self, door: Door) -> None:
        self._door = door

    @property
    def is_possible(self) -> bool:
        """Whether the storage knows such addresses."""
        return isinstance(self._door.store, FsspecStore) and self._door.store.url.startswith(
            ("s3://", "s3a://")
        )

    def sign(self, place: OwnerPlace, sha256: str, size: int, quota: int) -> dict[str, Any]:
        """Return an address that takes an object of ``size`` bytes."""
        store = self._door.store
        if not self.is_possible or not isinstance(store, FsspecStore):
            raise Refusal(
                404,
                "the address",
                "the storage of this worker signs none",
                f"PUT /v1/objects/{sha256} instead",
            )
        upload = secrets.token_hex(_NAME_BYTES)
        self._door.check_size(sha256, size)
        self._door.usage.reserve(place.owner, upload, size, quota, seconds=_SECONDS, arrives=sha256)
        url = store.presign(place.of("incoming", upload), _SECONDS, size)
        return {"upload": upload, "url": url, "seconds": _SECONDS}

    def take(self, place: OwnerPlace, sha256: str, upload: str, quota: int) -> int:
        """Make an object of an upload, if its hash is the name: its bytes."""
        if (
            not self.is_possible
            or len(upload) != 2 * _NAME_BYTES
            or not set(upload) <= set("0123456789abcdef")
        ):
            raise missing("upload")
        store, usage, name = self._door.store, self._door.usage, place.of("incoming", upload)
        try:
            size = store.size(name)
        except FileNotFoundError:
            raise missing("upload") from None
        there, kept = place.has("objects", sha256), False
        known = usage.held(place.owner, upload) == size
        if (
            not known
        ):  # signed by another server, or before a restart: what lies there is counted instead
            usage.settle(place.owner, upload, 0)
            usage.forget(place.owner)
        try:
            self._door.check_size(sha256, size)
            usage.check(place.owner, quota)
        except Refusal:
            store.delete(name)
            usage.settle(place.owner, upload, 0)
            raise
        incoming = Incoming(self._door.spool, sha256, size)
        try:
            for part in place.parts(name, 0, size):
                incoming.feed(part)
            self._door.keep(place, incoming, quota)
            kept = True
        finally:
            incoming.close()
            store.delete(name)
            usage.settle(place.owner, upload, size if kept and not there else 0)
            if not known:
                usage.forget(place.owner)
        return size

    def sweep(self) -> None:
        """Remove uploads that nobody has said to have arrived, long after their addresses have
        ended.
        """
        store = self._door.store
        if self.is_possible and isinstance(store, FsspecStore):
            for name in store.older("owners", 2 * _SECONDS):
                if name.split("/")[2:3] == ["incoming"]:
                    store.delete(name)
