"""Writing a file so that it is either there and whole, or not there: temporary name, flush, rename."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

PRIVATE = 0o600
PUBLIC = 0o644
# What file systems say that have no hard links: FAT, and some that are mounted from elsewhere.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextlib.contextmanager
def naming(path: object) -> Iterator[None]:
    """Errors of the system with the name of the file: a disk that is full does not say whose write it refused."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_atomic(
    path: str | os.PathLike[str], parts: Iterable[bytes], *, mode: int = PUBLIC, overwrite: bool = True
) -> None:
    """Write ``parts`` one after the other to ``path``; on any failure the old file, or none, is what stays.

    ``mode`` is given at creation, so that a private file is never readable by others, not even for a moment.
    """
    target = Path(path)
    if not overwrite and target.exists():
        raise FileExistsError(f"{target} exists already; it was not touched")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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
        os.unlink(temporary)
        raise FileExistsError(f"{target} exists already; it was not touched") from None
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def place_new(temporary: Path, target: Path) -> None:
    """Give a finished file its name; raises FileExistsError where a file of that name has appeared, unlike a rename."""
    try:
        os.link(temporary, target)
        os.unlink(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))  # the name is ours from here on
        os.replace(temporary, target)
