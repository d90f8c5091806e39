"""Named objects in a folder, or on anything that fsspec opens (S3, GCS, Azure, SFTP, memory).

Objects are written whole or not at all, and are never changed except by being replaced whole. An
object counts as missing only where the storage says so: any other answer is an error that names the
object.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeVar

from encryptedstats.errors import REPLACE, ArgumentError, ExistsError, FileFormatError, StorageError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import (
    FULL,
    MAX_FILE_BYTES,
    PRIVATE,
    PUBLIC,
    check_size,
    hold_lock,
    is_left_behind,
    is_temporary,
    name_errors,
    open_regular,
    read_regular,
    sweep,
    temporary_name,
    temporary_path,
    write_atomic,
)

T = TypeVar("T")
#: By which a store has one writer at a time: see :mod:`encryptedstats.storage.leases`.
LEASE: Final = "writer.lease"
#: What an address may begin with. Others read or run what their address says (``reference``,
#: ``http``, ...), or name several.
PROTOCOLS: Final = (
    "file",
    "local",
    "s3",
    "s3a",
    "gs",
    "gcs",
    "az",
    "abfs",
    "abfss",
    "sftp",
    "ssh",
    "memory",
)
PROTOCOLS_VARIABLE: Final = "ENCRYPTEDSTATS_PROTOCOLS"
#: Storage that has an object whole or not at all by itself; elsewhere it is written under a
#: temporary name first.
_WHOLE: Final = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"))
_S3: Final = frozenset(("s3", "s3a"))
#: Bytes up to which S3 takes an object in one request, which leaves nothing behind when it breaks
#: off.
_ONE_PUT: Final = 5 << 30
_PART_BYTES: Final = 1 << 20
_FAR_PART_BYTES: Final = 32 << 20  # over a network, where every piece is a request
_PAUSES: Final = (0.2, 1.0)  # seconds before what failed is asked again
_HERE: Final = ("memory://", "local://")  # no network lies in between
_LOOKS: Final = 3  # at an object that is not what it should be, where it came over a network
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class Readable(Protocol):
    """Named objects at one address that can be read."""

    url: str

    def read(
        self, name: str, start: int = 0, length: int | None = None, *, limit: int = MAX_FILE_BYTES
    ) -> bytes:
        """Return an object, or a part of it.

        A missing object raises FileNotFoundError with its full name. A whole object of more than
        ``limit`` bytes is refused before it is read.
        """

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return several parts of an object, given by start and length, in as few requests as
        possible.
        """

    def where(self, name: str) -> str:
        """Return the full name of an object, for messages."""


class Store(Readable, Protocol):
    """Named objects at one address."""

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Make or replace an object, whole or not at all."""

    def create(self, name: str, data: bytes) -> bool:
        """Make an object unless there is one of this name: whether it was made. Of several who try,
        one succeeds.
        """

    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        """Put an object in the place of one that is as it was: whether that was so. Of several who
        try, one succeeds.
        """

    def exists(self, name: str) -> bool:
        """Return True if there is such an object.

        Raises StorageError where the storage does not answer the question.
        """

    def names(self) -> list[str]:
        """Return all objects, with their path below the address."""

    def sizes(self, below: str = "") -> dict[str, int]:
        """Return the bytes of all objects, or of those in a folder."""

    def room(self, below: str = "") -> dict[str, int]:
        """Return the disk space of all objects: an object with several names counts once."""

    def size(self, name: str) -> int:
        """Return the bytes of an object. A missing object raises FileNotFoundError with its full
        name.
        """

    def take(self, name: str, file: Path) -> None:
        """Make or replace an object by a local file, which is moved there or copied; it is never
        read into memory whole.
        """

    def copy(self, old: str, new: str) -> None:
        """Make or replace an object by another one, within the storage; where it can be, without
        taking room twice.
        """

    def delete(self, name: str) -> None:
        """Remove an object; none is no error."""

    def sweep(self) -> None:
        """Remove what killed processes have left unfinished."""


def open_store(url: str | os.PathLike[str]) -> Store:
    """Open the store at a local path, or at a URL of an allowed fsspec protocol."""
    address = local_or_url(url)
    if not is_url(address):
        return FolderStore(address)
    check_protocol(address)
    return FsspecStore(address)


def check_protocol(address: str) -> None:
    """Refuse an address that fsspec would take for more than a place: one that names others inside,
    or is not known here.

    ``ENCRYPTEDSTATS_PROTOCOLS``, names with commas between them, allows more.
    """
    protocol = address.partition("://")[0]
    more = os.environ.get(PROTOCOLS_VARIABLE, "")
    allowed = (*PROTOCOLS, *(name.strip() for name in more.split(",") if name.strip()))
    if "::" in address or protocol not in allowed:
        raise ArgumentError(
            f"{address!r} is no address that is opened here: a local path, or a URL that begins "
            f"with one of {', '.join(allowed)}, "
            f"without '::'. {PROTOCOLS_VARIABLE} in the environment allows others",
            code="protocol-not-allowed",
        )


def retry_read(store: Readable, read: Callable[[], T]) -> T:
    """Return the result of ``read``, and try once more if data that came over a network looks
    damaged.
    """
    over_network = isinstance(store, FsspecStore) and not store.url.startswith(_HERE)
    for _ in range(_LOOKS - 1 if over_network else 0):
        try:
            return read()
        except FileFormatError:
            time.sleep(_PAUSES[0])
    return read()


def local_or_url(url: str | os.PathLike[str]) -> str:
    """Return an address in its internal spelling: ``file://`` becomes a local path."""
    return os.fspath(url).removeprefix("file://")


def is_url(address: str) -> bool:
    """Return True if fsspec has to open the address."""
    return "://" in address


def folder_and_name(address: str) -> tuple[str, str]:
    """Return the store of a single object at a URL, and its name in it."""
    folder, _, name = address.rstrip("/").rpartition("/")
    return folder, name


def _read_at(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


class FolderStore:
    """Objects as files of a local folder.

    A link in the folder is not an object: only the folder itself may be reached through one.
    """

    def __init__(self, path: str) -> None:
        self.url = path
        self._root = Path(
            path
        ).absolute()  # blocks are read later, when the working directory may be another

    def where(self, name: str) -> str:
        return str(self._root / name)

    def read(
        self, name: str, start: int = 0, length: int | None = None, *, limit: int = MAX_FILE_BYTES
    ) -> bytes:
        try:
            if length is None:
                return read_regular(self._root / name, limit=limit, follow=False)[start:]
            with open_regular(self._root / name, follow=False) as file:
                return _read_at(file, start, length)
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(name)} is not there") from error

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        try:
            with open_regular(self._root / name, follow=False) as file:
                return [_read_at(file, start, length) for start, length in ranges]
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(name)} is not there") from error

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Make or replace an object by renaming."""
        target = self._root / name
        with name_errors(target):
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

    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        """Compare and write under a lock, which all take who replace."""
        with hold_lock(self._root / f"{name}.lock"):
            try:
                same = self.read(name, limit=len(old)) == old
            except (FileNotFoundError, FileFormatError):
                same = False
            if same:
                self.write(name, [new])
            return same

    def exists(self, name: str) -> bool:
        try:
            mode = os.lstat(self._root / name).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unknown(self.where(name), error) from error
        return not stat.S_ISDIR(mode)

    def names(self) -> list[str]:
        found = (
            p.relative_to(self._root).as_posix() for p in self._root.rglob("*") if not p.is_dir()
        )
        return sorted(name for name in found if not _is_ours(name))

    def sizes(self, below: str = "") -> dict[str, int]:
        return {name: facts.st_size for name, facts in self._files(below)}

    def room(self, below: str = "") -> dict[str, int]:
        files = {
            (facts.st_dev, facts.st_ino): (name, facts.st_size)
            for name, facts in self._files(below)
        }
        return dict(files.values())

    def _files(self, below: str) -> Iterator[tuple[str, os.stat_result]]:
        for path in (self._root / below).rglob("*"):
            with suppress(FileNotFoundError):  # removed just now
                facts = path.lstat()
                name = path.relative_to(self._root).as_posix()
                if stat.S_ISREG(facts.st_mode) and not _is_ours(name):
                    yield name, facts

    def size(self, name: str) -> int:
        try:
            facts = os.lstat(self._root / name)
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(name)} is not there") from error
        if not stat.S_ISREG(facts.st_mode):
            raise FileNotFoundError(f"{self.where(name)} is not there")
        return facts.st_size

    def take(self, name: str, file: Path) -> None:
        """Rename the file, or copy it under a temporary name first if it lies on another disk."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(file, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with open(file, "rb") as parts:
                write_atomic(target, iter(lambda: parts.read(_PART_BYTES), b""))
            file.unlink()

    def copy(self, old: str, new: str) -> None:
        """Link the file under a second name where the file system can: objects never change."""
        target, temporary = self._root / new, temporary_path(self._root / new)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._root / old, temporary, follow_symlinks=False)
            os.replace(temporary, target)
            temporary.unlink(
                missing_ok=True
            )  # a rename of one name of a file to another one of it does nothing
        except _ABSENT as error:
            raise FileNotFoundError(f"{self.where(old)} is not there") from error
        except OSError:
            with open_regular(self._root / old, follow=False) as file:
                write_atomic(target, iter(lambda: file.read(_PART_BYTES), b""))

    def delete(self, name: str) -> None:
        """Remove the file."""
        (self._root / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove temporary files of processes that are gone."""
        sweep(self._root, below=True)


def _is_ours(name: str) -> bool:
    """Return True for names of temporary objects and locks, which are not objects of the store."""
    last = name.rpartition("/")[2]
    return is_temporary(last) or last == LEASE or last.endswith(".lock")


def _unknown(where: str, error: BaseException) -> StorageError:
    said = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, PermissionError):
        cure = (
            "check who may read and list there; S3 answers so for an object that is not there, "
            "too, to who may not list"
        )
    else:
        cure = (
            "check the address and the network, and run it again; nothing is concluded from no "
            "answer"
        )
    return StorageError(
        f"{where}: the storage cannot be reached or does not answer ({type(error).__name__}: "
        f"{said}): {cure}",
        code="unreachable-storage",
    )


class FsspecStore:
    """Objects under any URL that fsspec opens. Failed requests are tried twice more."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise FileFormatError(
                f"{url} is not a local path: other storage needs fsspec, pip install "
                "'encryptedstats[storage]'",
                code="missing-package",
            ) from error
        self.url = url.rstrip("/")
        self._protocol = url.partition("://")[0]
        self._files: Any
        self._files, self._root = fsspec.core.url_to_fs(self.url)

    def where(self, name: str) -> str:
        return f"{self.url}/{name}"

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _ask(self, name: str, ask: Callable[[], T]) -> T:
        """Return an answer of the storage, and retry: most network failures do not happen twice."""
        for pause in (*_PAUSES, None):
            try:
                return ask()
            except _ABSENT as error:
                raise FileNotFoundError(f"{self.where(name)} is not there") from error
            except Exception as error:
                if isinstance(error, FileExistsError) or _is_refused(error):
                    raise
                if isinstance(error, OSError) and error.errno in FULL:
                    raise OSError(error.errno, error.strerror, self.where(name)) from error
                if pause is None or isinstance(error, PermissionError):
                    raise _unknown(self.where(name), error) from error
                time.sleep(pause)
        raise AssertionError  # the last pause is None

    def read(
        self, name: str, start: int = 0, length: int | None = None, *, limit: int = MAX_FILE_BYTES
    ) -> bytes:
        if length is None:
            check_size(self._facts(name)["size"] or 0, limit, self.where(name))
        end = None if length is None else start + length
        data: bytes = self._ask(
            name, lambda: self._files.cat_file(self._path(name), start=start or None, end=end)
        )
        return data

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, ends = [start for start, _ in ranges], [start + length for start, length in ranges]
        paths = [self._path(name)] * len(ranges)
        return list(
            self._ask(name, lambda: self._files.cat_ranges(paths, starts, ends, on_error="raise"))
        )

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Make or replace an object: under a temporary name first, where the storage would show
        half of one.
        """
        data, path = b"".join(parts), self._path(name)
        self._make_folder(path)
        if self._protocol in _WHOLE:
            self._ask(name, lambda: self._upload(path, data))
            return
        temporary = temporary_name(path)
        try:
            self._ask(name, lambda: self._upload(temporary, data))
            self._ask(name, lambda: self._rename(temporary, path))
        except BaseException:
            if self._files.exists(temporary):
                self._files.rm_file(temporary)
            raise

    def _make_folder(self, path: str) -> None:
        if self._protocol not in _WHOLE or self._protocol == "memory":
            self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)

    def _upload(self, path: str, data: bytes, **conditions: Any) -> None:
        if self._protocol in _S3 and len(data) < _ONE_PUT:
            conditions["chunksize"] = _ONE_PUT
        self._files.pipe_file(path, data, **conditions)

    def _rename(self, old: str, new: str) -> None:
        from fsspec import AbstractFileSystem

        if type(self._files).mv is not AbstractFileSystem.mv:
            self._files.mv(old, new)
        else:
            # by copying; fsspec's own mv would take the brackets of a folder "a[1]" for a pattern
            self._files.cp_file(old, new)
            self._files.rm_file(old)

    def create(self, name: str, data: bytes) -> bool:
        """Make an object where there is none; S3, GCS and Azure refuse the second of two who try at
        once, by themselves.
        """
        if self.exists(name):
            return False
        if self._protocol not in _WHOLE:
            return self._write_new(name, data)
        path = self._path(name)
        self._make_folder(path)
        return self._write_conditionally(
            name, data, lambda: self._upload(path, data, mode="create")
        )

    def _write_new(self, name: str, data: bytes) -> bool:
        """Write whole what no condition can be put on, and see whether it is what stayed: of two at
        once, the later one does.
        """
        self.write(name, [data])
        try:
            return self.read(name, limit=len(data)) == data
        except (FileNotFoundError, FileFormatError):
            return False

    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        """Replace by ``If-Match`` on S3; elsewhere compare the old content just before writing."""
        try:
            tag = str(self._facts(name).get("ETag") or "")
            if self.read(name, limit=len(old)) != old:
                return False
        except (FileNotFoundError, FileFormatError):
            return False
        if self._protocol not in _WHOLE:
            return self._write_new(name, new)
        conditions = {"IfMatch": tag} if tag and self._protocol in _S3 else {}
        return self._write_conditionally(
            name, new, lambda: self._upload(self._path(name), new, **conditions)
        )

    def _write_conditionally(self, name: str, data: bytes, put: Callable[[], None]) -> bool:
        """Return True if a write succeeded.

        A refused write may have been this one, if its first answer was lost on the network.
        """
        try:
            self._ask(name, put)
        except Exception as error:
            if not (isinstance(error, FileExistsError) or _is_refused(error)):
                raise
            try:
                return self.read(name, limit=len(data)) == data
            except (FileNotFoundError, FileFormatError):
                return False
        return True

    def _facts(self, name: str) -> dict[str, Any]:
        """Return size and type of an object, or raise an error."""
        self._files.invalidate_cache()
        facts: dict[str, Any] = self._ask(name, lambda: self._files.info(self._path(name)))
        if facts["type"] == "directory":
            raise FileNotFoundError(f"{self.where(name)} is not there")
        return facts

    def exists(self, name: str) -> bool:
        try:
            self._facts(name)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        return sorted(name for name in self._find_all() if not _is_ours(name))

    def _find_all(self) -> dict[str, dict[str, Any]]:
        """Return all objects, temporary ones included, with what the storage says of each."""
        self._files.invalidate_cache()
        root = self._root.rstrip("/") + "/"
        try:
            found = self._ask("", lambda: self._files.find(self._root, detail=True))
        except FileNotFoundError:
            return {}
        return {
            str(path).removeprefix(root).removeprefix("/" + root): facts
            for path, facts in found.items()
        }

    def sizes(self, below: str = "") -> dict[str, int]:
        inside = f"{below.rstrip('/')}/" if below else ""
        known = {
            name: int(facts.get("size") or 0)
            for name, facts in self._find_all().items()
            if not _is_ours(name)
        }
        return {name: size for name, size in known.items() if name.startswith(inside)}

    def room(self, below: str = "") -> dict[str, int]:
        return self.sizes(below)

    def older(self, below: str, seconds: float) -> list[str]:
        """Names of objects below a folder that were written longer ago."""
        return [
            name
            for name, facts in self._find_all().items()
            if name.startswith(f"{below}/") and _age(facts) > seconds
        ]

    def size(self, name: str) -> int:
        return int(self._facts(name)["size"] or 0)

    def take(self, name: str, file: Path) -> None:
        """Send a file, as the storage likes to have it sent."""
        path = self._path(name)
        self._make_folder(path)
        if self._protocol in _WHOLE:
            self._ask(name, lambda: self._files.put_file(str(file), path))
        else:
            temporary = temporary_name(path)
            self._ask(name, lambda: self._files.put_file(str(file), temporary))
            self._ask(name, lambda: self._rename(temporary, path))
        file.unlink()

    def copy(self, old: str, new: str) -> None:
        """Copy within the storage, without a download."""
        self._make_folder(self._path(new))
        self._ask(old, lambda: self._files.cp_file(self._path(old), self._path(new)))

    def delete(self, name: str) -> None:
        """Remove the object."""
        if self.exists(name):
            with suppress(FileNotFoundError):
                self._ask(name, lambda: self._files.rm_file(self._path(name)))

    def presign(self, name: str, seconds: int, size: int) -> str:
        """Return an S3 URL that accepts one upload of ``size`` bytes for a while."""
        options = {"client_method": "put_object", "ContentLength": size}
        url: str = self._ask(
            name, lambda: self._files.url(self._path(name), expires=seconds, **options)
        )
        return url

    def sweep(self) -> None:
        """Remove temporary objects of processes that are gone."""
        for name, facts in self._find_all().items():
            if is_left_behind(name.rpartition("/")[2], _age(facts)):
                self.delete(name)


def _age(facts: dict[str, Any]) -> float:
    """Return the seconds since an object was written, 0 if the storage does not say."""
    when = next(
        (facts[key] for key in ("LastModified", "mtime", "modified", "created") if facts.get(key)),
        None,
    )
    seconds = when.timestamp() if isinstance(when, datetime) else when
    return time.time() - seconds if isinstance(seconds, (int, float)) else 0.0


def _is_refused(error: BaseException) -> bool:
    """Return True if S3 refused a conditional write because its condition did not hold."""
    response = getattr(error.__cause__, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return code in ("PreconditionFailed", "412", "ConditionalRequestConflict")


# -- single objects
# ------------------------------------------------------------------------------------------------


def object_exists(url: str | os.PathLike[str]) -> bool:
    """Return True if there is an object at a path or fsspec URL."""
    address = local_or_url(url)
    if not is_url(address):
        try:
            return not stat.S_ISDIR(os.stat(address).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return os.path.islink(address)
        except OSError as error:
            raise _unknown(address, error) from error
    folder, name = folder_and_name(address)
    return open_store(folder).exists(name)


def write_object(
    url: str | os.PathLike[str],
    parts: bytes | Iterable[bytes],
    *,
    private: bool = False,
    overwrite: bool = True,
) -> None:
    """Write a single object to a path or fsspec URL; ``private`` makes a local file readable to its
    user only.
    """
    address, pieces = local_or_url(url), [parts] if isinstance(parts, bytes) else parts
    if not is_url(address):
        sweep(Path(address).parent)
        write_atomic(address, pieces, mode=PRIVATE if private else PUBLIC, overwrite=overwrite)
        return
    folder, name = folder_and_name(address)
    store = open_store(folder)
    if overwrite:
        store.write(name, pieces)
    elif not store.create(name, b"".join(pieces)):
        raise FileExistsError(f"{url} exists already; it was not touched")


def read_object(url: str | os.PathLike[str], *, limit: int = MAX_FILE_BYTES) -> bytes:
    """Read a single object from a path or fsspec URL, unless it is larger than its kind can be."""
    address = local_or_url(url)
    if not is_url(address):
        return read_regular(address, limit=limit)
    folder, name = folder_and_name(address)
    return open_store(folder).read(name, limit=limit)


def sha256_of(url: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of the object at a path or fsspec URL, read in pieces."""
    address, digest = local_or_url(url), hashlib.sha256()
    if not is_url(address):
        with open_regular(address) as file:
            for part in iter(lambda: file.read(_PART_BYTES), b""):
                digest.update(part)
        return digest.hexdigest()
    folder, name = folder_and_name(address)
    store = open_store(folder)
    size = store.size(name)
    for start in range(0, size, _FAR_PART_BYTES):
        digest.update(store.read(name, start, min(_FAR_PART_BYTES, size - start)))
    return digest.hexdigest()


def save_file(
    file: Container, url: str | os.PathLike[str], *, overwrite: bool = False, private: bool = False
) -> None:
    """Write what ``save`` of anything writes: to a path or fsspec URL, whole or not at all, and not
    over a file that is there.
    """
    try:
        write_object(url, container.parts_of(file), private=private, overwrite=overwrite)
    except FileExistsError as error:
        raise ExistsError(f"{error} (", REPLACE, " replaces it)", code="already-exists") from None


def load_file(url: str | os.PathLike[str], *, kind: str | None = None) -> Container:
    """Read and check what :func:`save_file` wrote."""
    address = local_or_url(url)
    if not is_url(address):
        return container.read(address, kind=kind)
    folder, name = folder_and_name(address)
    store = open_store(folder)
    return retry_read(
        store, lambda: container.from_bytes(store.read(name), kind=kind, name=os.fspath(url))
    )
