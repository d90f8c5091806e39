"""The audit log: who did what with which object or job, when, and how many bytes. Lines of JSON,
each with the hash of the last.

Lines are only ever added. Who takes one out, or changes one, breaks the chain from there on, and
:func:`check` says where. No token is ever in it, nor anything that an owner has written but the
name that the operator gave her.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from encryptedstats.errors import FileFormatError
from encryptedstats.storage.files import PRIVATE, hold_lock, open_flags

START: Final = "0" * 64
_TAIL_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Log:
    """An audit log in a local file. Several servers of one machine may write to it at the same
    time.
    """

    path: Path

    def add(self, who: str, what: str, **facts: Any) -> None:
        """Write a line. ``who`` is an owner's id, ``what`` a verb; facts are names of objects and
        jobs, and bytes.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(self.path.with_name(f"{self.path.name}.lock")):
            flags = open_flags("O_RDWR", "O_APPEND", "O_CREAT", "O_CLOEXEC", "O_NOFOLLOW")
            descriptor = os.open(self.path, flags, PRIVATE)
            try:
                before, torn = _last(descriptor)
                when = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
                known = {name: value for name, value in facts.items() if value is not None}
                line = json.dumps(
                    {"when": when, "who": who, "what": what, **known, "before": before},
                    sort_keys=True,
                )
                os.write(descriptor, f"{torn}{line}\n".encode())
            finally:
                os.close(descriptor)

    def entries(self) -> Iterator[dict[str, Any]]:
        """All lines, oldest first, without checking the chain."""
        for _, entry in _lines(self.path):
            if entry is not None:
                yield entry

    def last(self, count: int) -> list[dict[str, Any]]:
        """Return the latest lines, newest first, without reading the whole file."""
        try:
            with open(self.path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - count * 512 - _TAIL_BYTES))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        found = [entry for entry in map(_parse, lines) if entry is not None]
        return found[::-1][:count]


def check(path: str | os.PathLike[str]) -> int:
    """Count the lines of a log whose hashes are linked. The error names the first line that
    does not.
    """
    before, count = START, 0
    for number, (line, entry) in enumerate(_lines(Path(path)), 1):
        if (
            entry is None
        ):  # the machine went down in the middle of a line, whose request was not answered
            continue
        if entry.get("before") != before:
            raise FileFormatError(
                f"{path}: line {number} does not follow the one before: lines were taken out, put "
                "in or changed there",
                code="broken-chain",
            )
        before, count = _hash(line), count + 1
    return count


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    with open(path, "rb") as file:
        for line in file:
            yield line.rstrip(b"\n"), _parse(line)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _last(descriptor: int) -> tuple[str, str]:
    """Return the hash of the last whole line, and what completes a torn line after it."""
    size = os.fstat(descriptor).st_size
    os.lseek(
        descriptor, max(0, size - _TAIL_BYTES), os.SEEK_SET
    )  # lines are added at the end all the same
    tail = os.read(descriptor, min(size, _TAIL_BYTES))
    torn = "" if not tail or tail.endswith(b"\n") else "\n"
    whole = next((line for line in reversed(tail.splitlines()) if _parse(line) is not None), None)
    return (START if whole is None else _hash(whole)), torn


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
