"""Local files: atomic writes, and reads of ordinary files of a sensible size only.

A file is first written under a temporary name that identifies the writing process. So the next run
can remove what a killed process has left behind, and never touches what another process is writing.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

from encryptedstats.errors import FileFormatError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # the one place that has to know

PRIVATE = 0o600
PUBLIC = 0o644
#: The largest file that is read at all, where nothing smaller is known of its kind.
MAX_FILE_BYTES: Final = 16 << 30
#: The largest file of JSON: a schema of a hundred thousand levels has some megabytes.
MAX_DOCUMENT_BYTES: Final = 64 << 20
#: Seconds without changes after which an unknown process counts as ended.
_OLD_SECONDS: Final = 24 * 3600.0
_TAG: Final = r"[0-9a-f]{8}-[0-9]{1,10}-[0-9]{1,20}-[0-9a-f]{8}"
_TEMPORARY: Final = re.compile(
    rf"(?P<name>.*)\.(?P<tag>{_TAG}|[0-9a-f]{{16}})\.(?P<role>tmp|new[0-9]|old)", re.DOTALL
)
#: Errors of a disk without room, or without room for so large a file.
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What file systems say that have no hard links: FAT, and some that are mounted from elsewhere.
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
#: A file system that knows no locks says one of these.
_NO_LOCKS: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)


def open_flags(*names: str) -> int:
    """Return these flags of ``os.open``, as far as this system has them.

    Files are opened in binary mode, which Windows does not do by default.
    """
    flags = 0
    for name in (*names, "O_BINARY"):
        flags |= getattr(os, name, 0)
    return flags


@contextlib.contextmanager
def name_errors(path: object) -> Iterator[None]:
    """Add the name of the file to errors of the system, such as of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


# -- reading
# ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open an ordinary file for reading.

    A pipe or a device would hang or never end; ``follow=False`` refuses links too.
    """
    if not follow and not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
        raise _is_link(path)
    flags = (
        ("O_RDONLY", "O_NONBLOCK", "O_CLOEXEC")
        if follow
        else ("O_RDONLY", "O_NONBLOCK", "O_CLOEXEC", "O_NOFOLLOW")
    )
    try:
        descriptor = os.open(path, open_flags(*flags))
    except OSError as error:
        if not follow and error.errno in (errno.ELOOP, errno.EMLINK):
            raise _is_link(path) from error
        if error.errno == errno.ENXIO:
            raise FileFormatError(
                f"{path} is no ordinary file: it is not read", code="not-a-regular-file"
            ) from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise FileFormatError(
                f"{path} is no ordinary file: it is not read", code="not-a-regular-file"
            )
        yield file


def _is_link(path: str | os.PathLike[str]) -> FileFormatError:
    return FileFormatError(
        f"{path} is a link: what is stored in a folder are ordinary files. Copy what it points to "
        "(cp -L)",
        code="symbolic-link",
    )


def read_regular(
    path: str | os.PathLike[str], *, limit: int = MAX_FILE_BYTES, follow: bool = True
) -> bytes:
    """Return the content of an ordinary file, unless it is larger than ``limit``."""
    with open_regular(path, follow=follow) as file:
        check_size(os.fstat(file.fileno()).st_size, limit, str(path))
        return file.read(limit + 1)


def check_size(size: int, limit: int, where: str) -> None:
    """Refuse what is larger than its kind can be, before it is read into memory."""
    if size > limit:
        raise FileFormatError(
            f"{where} has {size:,} bytes, and what belongs there has at most {limit:,}: it is not "
            "read. "
            "It is no such file, or was altered",
            code="file-too-large",
        )


# -- writing
# ------------------------------------------------------------------------------------------------


def write_atomic(
    path: str | os.PathLike[str],
    parts: Iterable[bytes],
    *,
    mode: int = PUBLIC,
    overwrite: bool = True,
) -> None:
    """Write ``parts`` one after the other to ``path``; on any failure the old file, or none, is
    what stays.

    ``mode`` is given at creation, so that a private file is never readable by others, not even for
    a moment. Before a private file is written, what killed processes left unfinished in its folder
    is removed: it may be a secret key.
    """
    target = Path(path)
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(f"{target} exists already; it was not touched")
    if mode == PRIVATE:
        repair_folder(target.parent)
        sweep(target.parent)
    temporary = temporary_path(target)
    with name_errors(target):
        descriptor = os.open(temporary, open_flags("O_WRONLY", "O_CREAT", "O_EXCL"), mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            if overwrite:
                os.replace(temporary, target)
            else:
                place_new(temporary, target)
        except FileExistsError:
            raise FileExistsError(f"{target} exists already; it was not touched") from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync_folder(target.parent)


def place_new(temporary: Path, target: Path) -> None:
    """Give a finished file its name; raises FileExistsError where a file of that name has appeared,
    unlike a rename.
    """
    try:
        os.link(temporary, target)
        os.unlink(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        )  # the name is ours from here on
        os.replace(temporary, target)


def _sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that new names survive a power failure.

    Some file systems cannot do this.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, open_flags("O_RDONLY", "O_DIRECTORY"))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_together(writers: Mapping[Path, Callable[[Path], None]], *, overwrite: bool) -> None:
    """Write several files that belong together: all of them are new, or all stay as they were.

    Each writer gets the name to write under. With ``overwrite`` old files are set aside and come
    back if anything fails; without it, none may exist. If this process is killed half way,
    :func:`repair_folder` undoes or finishes the write the next time, depending on whether the first
    file was in its place.
    """
    for folder in {path.parent for path in writers}:
        repair_folder(folder)
    tag = process_tag()
    fresh = {
        path: path.with_name(f".{path.name}.{tag}.new{number}")
        for number, path in enumerate(writers)
    }
    aside = {path: path.with_name(f".{path.name}.{tag}.old") for path in writers}
    placed: list[Path] = []
    try:
        for path, write in writers.items():
            with _name_target(path):
                write(fresh[path])
        for path, old in aside.items() if overwrite else ():
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, old)
        for path, new in fresh.items():
            if overwrite:
                placed.append(path)
                os.replace(new, path)
            else:
                place_new(new, path)
                placed.append(path)
    except BaseException:
        for path in placed:
            path.unlink(missing_ok=True)
        for path, old in aside.items():
            if old.exists():
                os.replace(old, path)
        raise
    else:
        for old in aside.values():
            old.unlink(missing_ok=True)
    finally:
        for new in reversed(
            fresh.values()
        ):  # the first one last: as long as it is there, nothing was put in place
            new.unlink(missing_ok=True)


@contextlib.contextmanager
def _name_target(path: Path) -> Iterator[None]:
    """Name the final file in errors of the system about its temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def repair_folder(folder: str | os.PathLike[str]) -> None:
    """Undo or finish what a killed :func:`write_together` left in a folder, and remove its
    leftovers.
    """
    groups: dict[str, dict[str, dict[Path, Path]]] = {}
    for path, found in _find_left_behind(Path(folder)):
        if found["role"] != "tmp":
            target = path.with_name(found["name"].removeprefix("."))
            groups.setdefault(found["tag"], {}).setdefault(found["role"], {})[path] = target
    for group in groups.values():
        with contextlib.suppress(
            PermissionError
        ):  # of another user, in a folder that all may write to
            _repair_group(group)


def _repair_group(group: dict[str, dict[Path, Path]]) -> None:
    aside, first = group.pop("old", {}), group.get("new0", {})
    nothing_placed = any(not _is_same(path, target) for path, target in first.items())
    fresh = {path: target for one in group.values() for path, target in one.items()}
    for path, target in fresh.items():
        if not nothing_placed:
            os.replace(path, target)
    for path, target in aside.items():
        if (
            not target.exists()
        ):  # whatever else is missing: an old file is given up for a new one only
            os.replace(path, target)
    for path in (*aside, *fresh):
        path.unlink(missing_ok=True)


def _is_same(path: Path, target: Path) -> bool:
    return target.exists() and os.path.samefile(path, target)


# -- temporary names
# ------------------------------------------------------------------------------------------------


def temporary_path(target: Path) -> Path:
    """Return the hidden path, beside the target, for writing a file."""
    return target.with_name(temporary_name(f".{target.name[:120]}"))


def temporary_name(name: str) -> str:
    """Return a name that :func:`is_left_behind` recognises."""
    return f"{name}.{process_tag()}.tmp"


def process_tag() -> str:
    """Return a unique tag of this process with a random part: ``machine-pid-start-token``."""
    pid = os.getpid()
    return f"{_machine()}-{pid}-{_start_of(pid) or 0}-{secrets.token_hex(4)}"


def is_dead(tag: str) -> bool | None:
    """Return True if the process of a tag has ended; None if that is unknown, as on another
    machine.
    """
    parts = tag.split("-")
    if len(parts) != 4 or parts[0] != _machine():
        return None
    start = _start_of(int(parts[1]))
    return None if start == 0 else start != int(parts[2])


def is_left_behind(name: str, age: float) -> bool:
    """Return True for the name of a temporary object whose process has ended.

    A temporary object of an unknown process counts after a day without changes.
    """
    found = _TEMPORARY.fullmatch(name)
    if found is None:
        return False
    dead = is_dead(found["tag"])
    return age > _OLD_SECONDS if dead is None else dead


def is_temporary(name: str) -> bool:
    """Return True for the name of an object that is being written."""
    return name.endswith(".tmp") or _TEMPORARY.fullmatch(name) is not None


def sweep(folder: str | os.PathLike[str], *, below: bool = False) -> None:
    """Remove what killed processes left unfinished in a folder, and ``below`` it if asked for."""
    for path, found in _find_left_behind(Path(folder), below):
        if found["role"] == "tmp":
            with contextlib.suppress(FileNotFoundError, PermissionError):
                path.unlink()


def _find_left_behind(folder: Path, below: bool = False) -> Iterator[tuple[Path, re.Match[str]]]:
    try:
        for path in list(folder.rglob("*") if below else folder.iterdir()):
            found = _TEMPORARY.fullmatch(path.name)
            if found is None:
                continue
            # A file that was set aside keeps the time of its content: when that was done, the other
            # time tells.
            facts = path.lstat()
            changed = (
                max(facts.st_mtime, facts.st_ctime) if found["role"] == "old" else facts.st_mtime
            )
            if is_left_behind(path.name, time.time() - changed):
                yield path, found
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return


@lru_cache(maxsize=1)
def _machine() -> str:
    """Identify this machine since its last start, and the namespace of its process numbers.

    Containers have their own process numbers.
    """
    known = [socket.gethostname()]
    with contextlib.suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def _start_of(pid: int) -> int | None:
    """Return when a process began, in ticks of the system; None if there is none, 0 if it is
    hidden.

    Process numbers are reused, but not with the same start.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if state in (b"Z", b"X") else int(rest[18])
    except (OSError, ValueError):
        pass
    if os.name == "nt":  # where asking would interrupt it
        return 0
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:
        pass
    return 0


# -- one at a time
# ------------------------------------------------------------------------------------------------

_held: set[int] = (
    set()
)  # descriptors of locks; a forked helper must not keep one that its parent held


def _forget_locks() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


class NoLocks(Exception):
    """The file system supports no locks."""


def take_lock(path: Path, content: bytes) -> int | None:
    """Take a lock that the system releases when this process ends, and return its descriptor.

    Returns None if another process has it. ``content`` names the holder, for messages. The file is
    removed by :func:`release_lock`; a process that waited for the removed file tries again.
    """
    if fcntl is None:
        raise NoLocks(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(
            path, open_flags("O_RDWR", "O_CREAT", "O_CLOEXEC", "O_NOFOLLOW"), PUBLIC
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(descriptor), os.lstat(path))
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            same = False
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                raise NoLocks(path) from error
            raise
        if same:
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, content, 0)
            _held.add(descriptor)
            return descriptor
        os.close(descriptor)


def release_lock(path: Path, descriptor: int) -> None:
    """Give a lock back."""
    _held.discard(descriptor)
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(descriptor)


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for a lock and hold it for a few lines; where the file system knows none, go
    on without.
    """
    try:
        while (descriptor := take_lock(path, b"")) is None:
            time.sleep(0.01)
    except NoLocks:
        yield
        return
    try:
        yield
    finally:
        release_lock(path, descriptor)
