"""Files that commands write: refused before the work where they cannot be, whole or not at all, never over a secret key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from encryptedstats.crypto.keys import OWNER_KIND, PUBLIC_KIND
from encryptedstats.storage import container
from encryptedstats.storage.files import naming as naming
from encryptedstats.storage.files import write_atomic

# Where a secret key says that it is one, within the first bytes of its file.
_HEAD_BYTES: Final = container.MAX_HEADER_BYTES + 64
_SECRET_MARK: Final = f'"kind":"{OWNER_KIND}"'.encode()
_PUBLIC_MARK: Final = f'"kind":"{PUBLIC_KIND}"'.encode()


def check_target(path: Path, *, over_keys: bool = False) -> None:
    """Refuse before any work is done what would fail, or destroy a secret key, after it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: make it first")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"you may not write in the folder {path.parent}: give another, or check its permissions")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no ordinary file: give the name of a file to write")
    if not over_keys and path.exists() and is_secret_key(_head(path)):
        raise FileExistsError(f"{path} holds a secret key and was not touched: give another name")


def check_new(path: Path, force: bool, loss: str) -> None:
    """As :func:`check_target`, and refuse to replace a file unless told to; ``loss`` says what would be lost with it."""
    check_target(path)
    if path.exists() and not force:
        raise FileExistsError(
            f"{path} exists already and was not touched: give another name, or --force to replace it ({loss})"
        )


def is_secret_key(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a secret key."""
    return head.startswith(container.MAGIC) and _SECRET_MARK in head[:_HEAD_BYTES]


def is_key_file(path: Path) -> bool:
    """Whether a file is a secret key or public keys, by its first bytes."""
    head = _head(path) if path.is_file() else b""
    return is_secret_key(head) or (head.startswith(container.MAGIC) and _PUBLIC_MARK in head)


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(_HEAD_BYTES)


def save(made: Any, path: Path) -> None:
    """Write what a command has made. Whether it may replace a file was settled before the work, by ``check_new``."""
    with naming(path):
        made.save(path, overwrite=True)


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with naming(path):
        write_atomic(path, [text.encode()])
