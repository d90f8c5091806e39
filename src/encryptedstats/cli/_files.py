"""One rule for all that commands write.

A parameter that names an output is marked with :class:`Writes`. The program checks all outputs
before a command begins (:func:`check_outputs`): nothing that exists is replaced without
``--force``, and no command writes to what it reads. The functions at the end write a file whole or
not at all, readable only to its user unless it is encrypted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import typer

from encryptedstats.cli._parameters import hints_of, marks_of
from encryptedstats.crypto.keyfiles import OWNER_KIND, PUBLIC_KIND
from encryptedstats.storage import container
from encryptedstats.storage.files import PRIVATE, PUBLIC, name_errors, write_atomic
from encryptedstats.storage.objects import is_url, local_or_url, open_store
from encryptedstats.tables.encryption import DRAFT
from encryptedstats.tables.manifest import MANIFEST

#: Instead of a file: CSV on the screen.
SCREEN: Final = "-"
COMPUTED: Final = "what it holds would have to be computed again"
_QUEUE: Final = "queue://"
_HEAD_BYTES: Final = container.MAX_HEADER_BYTES + 64
_SECRET_MARK: Final = f'"kind":"{OWNER_KIND}"'.encode()
_PUBLIC_MARK: Final = f'"kind":"{PUBLIC_KIND}"'.encode()


@dataclass(frozen=True)
class Writes:
    """Mark a parameter that names an output of its command: a file by default.

    loss
        What is lost when it is replaced, for the error.
    table
        An encrypted table; an unfinished one may be replaced.
    folder
        A folder may exist: the command checks the files in it.
    or_file
        A table or a file, as the input is.
    over_keys
        With ``--force`` a secret key may be replaced.
    resumed
        The command resumes from what exists. With ``--on queue://`` it always does.
    """

    loss: str = "it would be lost"
    table: bool = False
    folder: bool = False
    or_file: bool = False
    over_keys: bool = False
    resumed: bool = False


class Reads:
    """Mark a text parameter that names a file, a folder or a URL to read."""


def outputs_of(function: Callable[..., Any]) -> dict[str, Writes]:
    """Return the parameters of a command that name its outputs."""
    marked = {name: marks_of(hint) for name, hint in hints_of(function).items()}
    return {
        name: mark for name, marks in marked.items() for mark in marks if isinstance(mark, Writes)
    }


def inputs_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a command that name its inputs."""
    hints, written = hints_of(function), outputs_of(function)
    return [
        name
        for name, hint in hints.items()
        if name not in written and (_is_path(hint) or Reads in marks_of(hint))
    ]


def _is_path(hint: Any) -> bool:
    return hint is Path or any(_is_path(part) for part in get_args(hint))


# -- before the work
# ------------------------------------------------------------------------------------------------


def check_outputs(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Refuse outputs that a command, called with these parameters, must not write."""
    places = [
        (place, mark)
        for name, mark in outputs_of(function).items()
        for place in _places(values.get(name))
        if place
    ]
    inputs = [place for name in inputs_of(function) for place in _places(values.get(name))]
    for number, (place, mark) in enumerate(places):
        for other, _ in places[:number]:
            if is_same(place, other):
                raise typer.BadParameter(
                    f"{other} and {place} are one place for two outputs: give two different files"
                )
        for read in inputs:
            if is_same(place, read) or _is_inside(place, read):
                raise FileExistsError(
                    f"{place} is read by this command, so that nothing is written there: give "
                    "another name"
                )
        resumed = mark.resumed or str(values.get("on")).startswith(_QUEUE)
        check_output(place, mark, force=bool(values.get("force")) or resumed)


def _places(value: Any) -> list[str]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [local_or_url(str(one)) for one in values if one is not None and str(one) != SCREEN]


def check_output(place: str | Path, mark: Writes, *, force: bool) -> None:
    """Refuse a place that cannot be written, and without ``force`` one that exists."""
    place = str(place)
    if mark.table and not (mark.or_file and Path(place).is_file()):
        there = open_store(place).exists(MANIFEST)
    elif is_url(place) or (mark.folder and Path(place).is_dir()):
        there = False  # a cluster checks URLs itself
    else:
        _check_file(Path(place), mark)
        there = Path(place).exists()
    if there and not force:
        raise FileExistsError(
            f"{place} exists already and was not touched: give another name, or --force to "
            f"replace it ({mark.loss})"
        )


def _check_file(path: Path, mark: Writes) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: make it first")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(
            f"you may not write in the folder {path.parent}: give another, or check its permissions"
        )
    if path.is_dir():
        raise FileExistsError(f"{path} is a folder that exists already: give another name")
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no ordinary file: give the name of a file to write")
    if not mark.over_keys and path.exists() and is_secret_key(_head(path)):
        raise FileExistsError(f"{path} holds a secret key and was not touched: give another name")


def is_same(one: str, other: str) -> bool:
    """Return whether two addresses are one place, also by links."""
    if is_url(one) or is_url(other):
        return one.rstrip("/") == other.rstrip("/")
    if Path(one).exists() and Path(other).exists():
        return os.path.samefile(one, other)
    return Path(one).resolve() == Path(other).resolve()


def _is_inside(place: str, table: str) -> bool:
    """Return whether a place lies in an encrypted table."""
    if is_url(table) or is_url(place):
        return place.startswith(table.rstrip("/") + "/")
    is_table = any((Path(table) / name).exists() for name in (MANIFEST, DRAFT))
    return is_table and Path(table).resolve() in Path(place).resolve().parents


def is_secret_key(head: bytes) -> bool:
    """Return whether a file that begins so is a secret key."""
    return head.startswith(container.MAGIC) and _SECRET_MARK in head[:_HEAD_BYTES]


def is_key_file(path: Path) -> bool:
    """Return whether a file is a secret key or public keys, by its first bytes."""
    head = _head(path) if path.is_file() else b""
    return is_secret_key(head) or (head.startswith(container.MAGIC) and _PUBLIC_MARK in head)


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(_HEAD_BYTES)


# -- after it
# ------------------------------------------------------------------------------------------------


def save(made: Any, path: Path, *, force: bool) -> None:
    """Call ``save`` of an object, with errors that name the file."""
    with name_errors(path):
        made.save(path, overwrite=force)


def write_text(path: Path, text: str, *, force: bool, private: bool = True) -> None:
    """Write a text file, whole or not at all."""
    write_parts(path, [text.encode()], force=force, private=private)


def write_parts(path: Path, parts: Iterable[bytes], *, force: bool, private: bool = True) -> None:
    """Write a file from pieces, whole or not at all."""
    with name_errors(path):
        write_atomic(path, parts, mode=PRIVATE if private else PUBLIC, overwrite=force)
