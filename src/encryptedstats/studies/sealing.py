"""Encrypted objects of a store that can be read in parts: AES-256-GCM in chunks.

An object is a random salt and its chunks. The key of an object is derived from the common key, its
name and its salt, so a nonce (the number of a chunk, and whether it is the last) is never used
twice. A chunk that was altered, moved, exchanged or cut off does not decrypt.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from encryptedstats.crypto.envelopes import SEED_BYTES, derive_key
from encryptedstats.errors import FileFormatError
from encryptedstats.storage.files import MAX_FILE_BYTES
from encryptedstats.storage.objects import Store

CHUNK_BYTES: Final = 1 << 16
_TAG_BYTES: Final = 16
_STORED_BYTES: Final = CHUNK_BYTES + _TAG_BYTES


class SealedStore:
    """Write and read objects in a folder of a store, encrypted under a key of 32 bytes.

    Parameters
    ----------
    store : Store
    folder : str
        Where the encrypted objects lie in the store.
    key : bytes
        Everybody with this key can read the objects.
    """

    def __init__(self, store: Store, folder: str, key: bytes) -> None:
        self.url = store.where(folder)
        self._store = store
        self._folder = folder
        self._key = key
        self._sizes: dict[str, int] = {}

    def where(self, name: str) -> str:
        """Return the full name of an object, for messages."""
        return self._store.where(self._path(name))

    def exists(self, name: str) -> bool:
        """Return whether there is such an object."""
        return self._store.exists(self._path(name))

    def write(self, name: str, data: bytes) -> None:
        """Seal an object and store it, whole or not at all."""
        self._store.write(self._path(name), self._seal_parts(name, data))

    def read(
        self, name: str, start: int = 0, length: int | None = None, *, limit: int = MAX_FILE_BYTES
    ) -> bytes:
        """Open an object, or a part of it; a whole object of more than ``limit`` bytes
        is refused.
        """
        size = self._size(name)
        if length is None and size > limit:
            raise FileFormatError(
                f"{self.where(name)} has {size:,} bytes, and {limit:,} are allowed",
                code="file-too-large",
            )
        return self.read_ranges(name, [(start, size if length is None else length)])[0]

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Open several parts of an object, each given by its start and length."""
        size, path = self._size(name), self._path(name)
        last = max(0, (size - 1) // CHUNK_BYTES)
        spans = []
        for start, length in ranges:
            stop = min(size, start + length)
            spans.append((start, stop, start // CHUNK_BYTES, max(start, stop - 1) // CHUNK_BYTES))
        wanted = [
            (SEED_BYTES + first * _STORED_BYTES, (final - first + 1) * _STORED_BYTES)
            for _, _, first, final in spans
        ]
        salt, *found = self._store.read_ranges(path, [(0, SEED_BYTES), *wanted])
        cipher = self._cipher(name, salt)
        opened = []
        for sealed, (start, stop, first, _) in zip(found, spans, strict=True):
            chunks = [
                self._open_chunk(cipher, name, first + place, first + place == last, chunk)
                for place, chunk in enumerate(_split_chunks(sealed))
            ]
            offset = first * CHUNK_BYTES
            opened.append(b"".join(chunks)[start - offset : max(start, stop) - offset])
        return opened

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _size(self, name: str) -> int:
        """Return the bytes of an object before it was sealed."""
        if name not in self._sizes:
            stored = self._store.size(self._path(name)) - SEED_BYTES
            chunks = -(-stored // _STORED_BYTES)
            if stored < _TAG_BYTES or stored - chunks * _TAG_BYTES < 0:
                raise FileFormatError(f"{self.where(name)} is cut short", code="truncated-file")
            self._sizes[name] = stored - chunks * _TAG_BYTES
        return self._sizes[name]

    def _cipher(self, name: str, salt: bytes) -> AESGCM:
        return AESGCM(derive_key(self._key, b"sealed object\0" + name.encode() + b"\0" + salt))

    def _seal_parts(self, name: str, data: bytes) -> Iterator[bytes]:
        salt = os.urandom(SEED_BYTES)
        cipher = self._cipher(name, salt)
        yield salt
        last = max(0, (len(data) - 1) // CHUNK_BYTES)
        for index in range(last + 1):
            chunk = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
            yield cipher.encrypt(_nonce(index, index == last), chunk, None)

    def _open_chunk(
        self, cipher: AESGCM, name: str, index: int, is_last: bool, chunk: bytes
    ) -> bytes:
        try:
            return cipher.decrypt(_nonce(index, is_last), chunk, None)
        except InvalidTag:
            raise FileFormatError(
                f"{self.where(name)} was altered or cut short, or was sealed for others",
                code="altered-chunk",
            ) from None


def _nonce(index: int, is_last: bool) -> bytes:
    return index.to_bytes(11, "big") + bytes([is_last])


def _split_chunks(sealed: bytes) -> Iterable[bytes]:
    return (sealed[at : at + _STORED_BYTES] for at in range(0, len(sealed), _STORED_BYTES))
