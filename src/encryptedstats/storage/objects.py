"""Where named objects lie: a folder, or anything that fsspec opens (S3, GCS, SFTP, memory).

Objects are written whole or not at all and never changed afterwards, except by being replaced whole.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from encryptedstats.errors import REPLACE, ExistsError, FileFormatError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE, PUBLIC, naming, write_atomic

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class Store(Protocol):
    """Named objects under one address."""

    url: str

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it. A missing object raises FileNotFoundError with its full name."""

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several parts of an object, each given by its start and length, in as few steps as the storage can."""

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Make or replace an object, whole or not at all."""

    def create(self, name: str, data: bytes) -> bool:
        """Make an object unless there is one of this name: whether it was made. Of several who try, one succeeds."""

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""

    def names(self) -> list[str]:
        """All objects, with their path below the address."""

    def delete(self, name: str) -> None:
        """Remove an object; none is no error."""

    def where(self, name: str) -> str:
        """The full name of an object, for messages."""


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store at a local path or fsspec URL."""
    address = local_or_url(url)
    return FsspecStore(address) if is_url(address) else FolderStore(address)


def local_or_url(url: str | os.PathLike[str]) -> str:
    """An address as it is spelled inside: ``file://`` is a local path, everything else stays."""
    return os.fspath(url).removeprefix("file://")


def is_url(address: str) -> bool:
    """Whether fsspec has to open it."""
    return "://" in address


def folder_and_name(address: str) -> tuple[str, str]:
    """The store of a single object at a URL, and its name there."""
    folder, _, name = address.rstrip("/").rpartition("/")
    return folder, name


def _read_at(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


class FolderStore:
    """Objects as files of a local folder."""

    def __init__(self, path: str) -> None:
        self.url = path
        self._root = Path(path).absolute()  # blocks are read later, when the working directory may be another

    def where(self, name: str) -> str:
        """The path of an object."""
        return str(self._root / name)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it."""
        try:
            with open(self._root / name, "rb") as file:
                file.seek(start)
                return file.read() if length is None else file.read(length)
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(name)} is not there") from error

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several parts of a file, which is opened once."""
        try:
            with open(self._root / name, "rb") as file:
                return [_read_at(file, start, length) for start, length in ranges]
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(name)} is not there") from error

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Make or replace an object by renaming."""
        target = self._root / name
        with naming(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, parts)

    def create(self, name: str, data: bytes) -> bool:
        """Make a file by linking, which fails where there is one."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_atomic(target, [data], overwrite=False)
        except FileExistsError:
            return False
        return True

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        return (self._root / name).is_file()

    def names(self) -> list[str]:
        """All files below the folder, but for the temporary ones of a write under way."""
        found = (p.relative_to(self._root).as_posix() for p in self._root.rglob("*") if p.is_file())
        return sorted(name for name in found if not name.endswith(".tmp"))

    def delete(self, name: str) -> None:
        """Remove the file."""
        (self._root / name).unlink(missing_ok=True)


class FsspecStore:
    """Objects under any URL that fsspec knows."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise FileFormatError(
                f"{url} is not a local path: other storage needs fsspec, pip install 'encryptedstats[storage]'"
            ) from error
        self.url = url.rstrip("/")
        self._files: Any
        self._files, self._root = fsspec.core.url_to_fs(self.url)

    def where(self, name: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{name}"

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object, or a part of it."""
        end = None if length is None else start + length
        try:
            data: bytes = self._files.cat_file(self._path(name), start=start or None, end=end)
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(name)} is not there") from error
        return data

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several parts of an object, asked for at the same time where the storage can."""
        starts, ends = [start for start, _ in ranges], [start + length for start, length in ranges]
        try:
            data = self._files.cat_ranges([self._path(name)] * len(ranges), starts, ends, on_error="raise")
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(name)} is not there") from error
        return list(data)

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Make or replace an object: under a temporary name first, since not every store writes at once."""
        path = self._path(name)
        temporary = f"{path}.{secrets.token_hex(8)}.tmp"
        self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        try:
            with self._files.open(temporary, "wb") as file:
                for part in parts:
                    file.write(part)
            self._rename(temporary, path)
        except BaseException:
            if self._files.exists(temporary):
                self._files.rm_file(temporary)
            raise

    def _rename(self, old: str, new: str) -> None:
        from fsspec import AbstractFileSystem

        if type(self._files).mv is not AbstractFileSystem.mv:
            self._files.mv(old, new)
        else:  # by copying; fsspec's own mv would take the brackets of a folder "a[1]" for a pattern
            self._files.cp_file(old, new)
            self._files.rm_file(old)

    def create(self, name: str, data: bytes) -> bool:
        """Make an object where there is none; S3 and others refuse the second of two who try at once, by themselves."""
        if self.exists(name):
            return False
        path = self._path(name)
        self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        try:
            self._files.pipe_file(path, data, mode="create")
        except OSError as error:
            if isinstance(error, FileExistsError) or self.exists(name):
                return False
            raise
        return True

    def exists(self, name: str) -> bool:
        """Whether the object is there."""
        self._files.invalidate_cache()
        return bool(self._files.isfile(self._path(name)))

    def names(self) -> list[str]:
        """All objects below the URL."""
        self._files.invalidate_cache()
        root = self._root.rstrip("/") + "/"
        found = (str(path) for path in self._files.find(self._root))
        stripped = (path.removeprefix(root).removeprefix("/" + root) for path in found)
        return sorted(name for name in stripped if not name.endswith(".tmp"))

    def delete(self, name: str) -> None:
        """Remove the object."""
        if self.exists(name):
            self._files.rm_file(self._path(name))


# -- single objects --------------------------------------------------------------------------------------------------


def object_exists(url: str | os.PathLike[str]) -> bool:
    """Whether a single object lies at a path or fsspec URL."""
    address = local_or_url(url)
    if not is_url(address):
        return Path(address).is_file()
    folder, name = folder_and_name(address)
    return open_store(folder).exists(name)


def write_object(
    url: str | os.PathLike[str], parts: bytes | Iterable[bytes], *, private: bool = False, overwrite: bool = True
) -> None:
    """Write a single object to a path or fsspec URL; ``private`` makes a local file readable to its user only."""
    address, pieces = local_or_url(url), [parts] if isinstance(parts, bytes) else parts
    if not is_url(address):
        write_atomic(address, pieces, mode=PRIVATE if private else PUBLIC, overwrite=overwrite)
        return
    folder, name = folder_and_name(address)
    store = open_store(folder)
    if not overwrite and store.exists(name):
        raise FileExistsError(f"{url} exists already; it was not touched")
    store.write(name, pieces)


def read_object(url: str | os.PathLike[str]) -> bytes:
    """Read a single object from a path or fsspec URL."""
    address = local_or_url(url)
    if not is_url(address):
        return Path(address).read_bytes()
    folder, name = folder_and_name(address)
    return open_store(folder).read(name)


def save_file(file: Container, url: str | os.PathLike[str], *, overwrite: bool = False, private: bool = False) -> None:
    """Write what ``save`` of anything writes: to a path or fsspec URL, whole or not at all, and not over a file that is there."""
    try:
        write_object(url, container.parts_of(file), private=private, overwrite=overwrite)
    except FileExistsError as error:
        raise ExistsError(f"{error} (", REPLACE, " replaces it)") from None


def load_file(url: str | os.PathLike[str], *, kind: str | None = None) -> Container:
    """Read and check what :func:`save_file` wrote."""
    address = local_or_url(url)
    if not is_url(address):
        return container.read(address, kind=kind)
    return container.from_bytes(read_object(address), kind=kind, name=os.fspath(url))
