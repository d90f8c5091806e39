"""What commands write, under one rule for all of them.

A parameter that names something to write is marked with :class:`Writes`, and the program checks all
of them before a command begins (:func:`check_outputs`): nothing that exists is replaced without
``--force``, and nothing that the same command reads is written to, not even with it. What was made
is written by the functions at the end, whole or not at all, and without ``--force`` not over a file
that has appeared meanwhile. Whatever lies open there is for its user only.
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
# Where a secret key says that it is one, within the first bytes of its file.
_QUEUE: Final = "queue://"
_HEAD_BYTES: Final = container.MAX_HEADER_BYTES + 64
_SECRET_MARK: Final = f'"kind":"{OWNER_KIND}"'.encode()
_PUBLIC_MARK: Final = f'"kind":"{PUBLIC_KIND}"'.encode()


@dataclass(frozen=True)
class Writes:
    """Marks a parameter that names something its command writes: a file, unless it says otherwise.

    loss
        What is lost with what is replaced, for the error.
    table
        An encrypted table: what counts as there already is a finished one.
    folder
        A folder that is there is fine: the command looks at what it writes into it.
    or_file
        A table or a file, by what is read.
    over_keys
        With ``--force`` a secret key may be replaced.
    resumed
        The command goes on from what is there. With ``--on queue://`` it always does.
    """

    loss: str = "it would be lost"
    table: bool = False
    folder: bool = False
    or_file: bool = False
    over_keys: bool = False
    resumed: bool = False


class Reads:
    """Marks a parameter that is a text and names a file, a folder or a URL to read; one that is a
    path needs no mark.
    """


def outputs_of(function: Callable[..., Any]) -> dict[str, Writes]:
    """The parameters of a command that name what it writes."""
    marked = {name: marks_of(hint) for name, hint in hints_of(function).items()}
    return {
        name: mark for name, marks in marked.items() for mark in marks if isinstance(mark, Writes)
    }


def inputs_of(function: Callable[..., Any]) -> list[str]:
    """The parameters of a command that name what it reads."""
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


def check_outputs(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse what a command, called with these parameters, must not write; before it has done
    anything.
    """
    places = [
        (place, mark)
        for name, mark in outputs_of(function).items()
        for place in _places(given.get(name))
        if place
    ]
    inputs = [place for name in inputs_of(function) for place in _places(given.get(name))]
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
        resumed = mark.resumed or str(given.get("on")).startswith(_QUEUE)
        check_output(place, mark, force=bool(given.get("force")) or resumed)


def _places(value: Any) -> list[str]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [local_or_url(str(one)) for one in values if one is not None and str(one) != SCREEN]


def check_output(place: str | Path, mark: Writes, *, force: bool) -> None:
    """Refuse a place that cannot be written, and without ``force`` one that holds something."""
    place = str(place)
    if mark.table and not (mark.or_file and Path(place).is_file()):
        there = open_store(place).exists(MANIFEST)
    elif is_url(place) or (mark.folder and Path(place).is_dir()):
        there = False  # only a cluster writes to a URL, and looks for itself
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
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is no ordinary file: give the name of a file to write")
    if not mark.over_keys and path.exists() and is_secret_key(_head(path)):
        raise FileExistsError(f"{path} holds a secret key and was not touched: give another name")


def is_same(one: str, other: str) -> bool:
    """Whether two addresses are one place: by their names, by what these lead to, or as two names
    of one file.
    """
    if is_url(one) or is_url(other):
        return one.rstrip("/") == other.rstrip("/")
    if Path(one).exists() and Path(other).exists():
        return os.path.samefile(one, other)
    return Path(one).resolve() == Path(other).resolve()


def _is_inside(place: str, table: str) -> bool:
    """Whether a place lies in an encrypted table."""
    if is_url(table) or is_url(place):
        return place.startswith(table.rstrip("/") + "/")
    is_table = any((Path(table) / name).exists() for name in (MANIFEST, DRAFT))
    return is_table and Path(table).resolve() in Path(place).resolve().parents


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


# -- after it
# ------------------------------------------------------------------------------------------------


def save(made: Any, path: Path, *, force: bool) -> None:
    """Write what has a ``save`` of its own; what lies open, such as an opened model, is private by
    it.
    """
    with name_errors(path):
        made.save(path, overwrite=force)


def write_text(path: Path, text: str, *, force: bool, private: bool = True) -> None:
    """A text file, whole or not at all."""
    write_parts(path, [text.encode()], force=force, private=private)


def write_parts(path: Path, parts: Iterable[bytes], *, force: bool, private: bool = True) -> None:
    """A file that is made a piece at a time, whole or not at all."""
    with name_errors(path):
        write_atomic(path, parts, mode=PRIVATE if private else PUBLIC, overwrite=force)
