"""The file format: a checked envelope around named byte sections.

There is no pickle, and reading executes nothing. Layout, all integers little-endian::

    8 bytes   magic
    2 bytes   format version
    4 bytes   length of the header
    header    JSON: kind, parameters' fingerprint, key id, free fields, and name and length of each
              section
    sections  one after the other, without gaps
    32 bytes  SHA-256 of everything before

The hash catches accidents, not forgers: a person who can write the file can write a fitting hash,
so readers must check the content of every section.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from encryptedstats.errors import FileFormatError
from encryptedstats.storage.files import (
    MAX_FILE_BYTES,
    PUBLIC,
    check_size,
    open_regular,
    write_atomic,
)

MAGIC: Final = b"\x89EncStat"
VERSION: Final = 2
_PREFIX: Final = struct.Struct("<8sHI")
DIGEST_BYTES: Final = 32
MAX_HEADER_BYTES: Final = 1 << 20
MAX_SECTIONS: Final = 1 << 12
_FIELDS: Final = {"kind": str, "fingerprint": str, "key_id": str, "fields": dict, "sections": list}


@dataclass(frozen=True)
class Container:
    """The content of a file: its kind, owner, free fields, and byte sections."""

    kind: str
    fingerprint: str
    key_id: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, bytes] = field(default_factory=dict)

    def section(self, name: str) -> bytes:
        """Return the bytes of a required section."""
        if name not in self.sections:
            raise FileFormatError(
                f"the file has no section {name!r}: it is not a whole {self.kind} file",
                code="missing-section",
            )
        return self.sections[name]

    def read_list(self, name: str) -> list[Any]:
        """Return the list that a section holds as JSON."""
        data = self.section(name)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(
                f"the {name} of the file are not valid JSON", code="not-json"
            ) from error
        if not isinstance(found, list):
            raise FileFormatError(f"the {name} of the file are no list", code="not-a-list")
        return found

    def expect(self, name: str, kind: type) -> Any:
        """Return a required field of this type. A bool does not pass as an int."""
        value = self.fields.get(name)
        if type(value) is not kind:
            raise FileFormatError(
                f"field {name!r} of the {self.kind} file is missing or no {kind.__name__}",
                code="malformed-field",
            )
        return value


def to_bytes(container: Container) -> bytes:
    """Return the whole file as bytes."""
    return b"".join(parts_of(container))


def write(
    container: Container,
    path: str | os.PathLike[str],
    *,
    mode: int = PUBLIC,
    overwrite: bool = True,
) -> None:
    """Write a file, whole or not at all."""
    write_atomic(path, parts_of(container), mode=mode, overwrite=overwrite)


def parts_of(container: Container) -> Iterator[bytes]:
    """Yield the whole file in pieces, without joining them."""
    lengths = {name: len(data) for name, data in container.sections.items()}
    header = header_bytes(
        container.kind, container.fingerprint, container.key_id, container.fields, lengths
    )
    digest = hashlib.sha256()
    for part in (header, *container.sections.values()):
        digest.update(part)
        yield part
    yield digest.digest()


def header_bytes(
    kind: str, fingerprint: str, key_id: str, fields: Mapping[str, Any], lengths: Mapping[str, int]
) -> bytes:
    """Return everything of a file before its sections, from their names and lengths."""
    header = {
        "kind": kind,
        "fingerprint": fingerprint,
        "key_id": key_id,
        "fields": dict(fields),
        "sections": [[name, length] for name, length in lengths.items()],
    }
    encoded = json.dumps(header, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    if len(lengths) > MAX_SECTIONS:
        raise FileFormatError(
            f"{len(lengths)} sections are over the limit of {MAX_SECTIONS}",
            code="too-many-sections",
        )
    if len(encoded) > MAX_HEADER_BYTES:
        raise FileFormatError(
            f"a header of {len(encoded)} bytes is over the limit of {MAX_HEADER_BYTES}",
            code="header-too-large",
        )
    return _PREFIX.pack(MAGIC, VERSION, len(encoded)) + encoded


def read(
    path: str | os.PathLike[str], *, kind: str | None = None, limit: int = MAX_FILE_BYTES
) -> Container:
    """Read and check a file. Every error names it and says what is wrong; one of more bytes than
    ``limit`` is not read.
    """
    with open_regular(path) as file:
        check_size(os.fstat(file.fileno()).st_size, limit, str(path))
        data = file.read(_PREFIX.size)
        if len(data) == _PREFIX.size and data[: len(MAGIC)] == MAGIC:
            # Compare lengths before reading on, so that a huge file is not read only to be refused.
            data += file.read(min(_PREFIX.unpack(data)[2], MAX_HEADER_BYTES))
            header, start = _header(data + bytes(DIGEST_BYTES), str(path))
            _check_kind(header, kind, str(path))
            _check_length(start, header, os.fstat(file.fileno()).st_size, str(path))
            data += file.read()
    return from_bytes(data, kind=kind, name=str(path))


def _check_length(start: int, header: dict[str, Any], size: int, name: str) -> dict[str, int]:
    lengths = _section_lengths(header["sections"], name)
    if start + sum(lengths.values()) + DIGEST_BYTES != size:
        raise FileFormatError(
            f"{name} is truncated or has bytes too many: its length is not what its header says",
            code="truncated-file",
        )
    return lengths


def from_bytes(data: bytes, *, kind: str | None = None, name: str = "these bytes") -> Container:
    """Check and take apart a whole file; ``kind`` refuses every other kind."""
    header, start = _header(data, name)
    content_end = len(data) - DIGEST_BYTES
    lengths = _check_length(start, header, len(data), name)
    if hashlib.sha256(memoryview(data)[:content_end]).digest() != data[content_end:]:
        raise FileFormatError(
            f"{name} was altered or damaged: its SHA-256 does not fit", code="altered-file"
        )
    _check_kind(header, kind, name)
    sections = {}
    for section, length in lengths.items():
        sections[section] = data[start : start + length]
        start += length
    return Container(
        header["kind"], header["fingerprint"], header["key_id"], header["fields"], sections
    )


def header_of(data: bytes, *, kind: str, name: str) -> tuple[Container, dict[str, int]]:
    """Return the header of a whole file, and the length of each section.

    The SHA-256 is not checked: callers check the sections themselves.
    """
    header, start = _header(data, name)
    lengths = _check_length(start, header, len(data), name)
    _check_kind(header, kind, name)
    return Container(
        header["kind"], header["fingerprint"], header["key_id"], header["fields"]
    ), lengths


def peek(head: bytes, size: int, name: str) -> tuple[Container, dict[str, int]] | None:
    """Return the header of a file of ``size`` bytes, and the lengths of its sections, from its
    first bytes.

    Returns None if there are too few bytes.
    """
    if len(head) < min(size, _PREFIX.size):
        return None
    if head[: len(MAGIC)] == MAGIC and len(head) >= _PREFIX.size:
        needed = _PREFIX.size + min(_PREFIX.unpack_from(head)[2], MAX_HEADER_BYTES)
        if len(head) < min(size, needed):
            return None
    header, start = _header(head + bytes(DIGEST_BYTES), name)
    return Container(
        header["kind"], header["fingerprint"], header["key_id"], header["fields"]
    ), _check_length(start, header, size, name)


def _check_kind(header: dict[str, Any], kind: str | None, name: str) -> None:
    if kind is not None and header["kind"] != kind:
        raise FileFormatError(
            f"{name} holds {header['kind']!r}, and {kind!r} is wanted here", code="wrong-kind"
        )


def _header(data: bytes, name: str) -> tuple[dict[str, Any], int]:
    if len(data) < _PREFIX.size or data[: len(MAGIC)] != MAGIC:
        raise FileFormatError(f"{name} is not an encryptedstats file", code="foreign-file")
    _, version, length = _PREFIX.unpack_from(data)
    if version > VERSION:
        raise FileFormatError(
            f"{name} has format version {version}; this library reads up to {VERSION}: upgrade it",
            code="unsupported-version",
        )
    if version < 1:
        raise FileFormatError(
            f"{name} has format version {version}, which never existed", code="impossible-version"
        )
    if version < VERSION:
        raise FileFormatError(
            f"{name} has format version {version}, and this library reads {VERSION}, in which "
            "keys have longer ids: "
            "open what is still needed with the version that wrote it, then make new keys and "
            "encrypt again",
            code="outdated-version",
        )
    start = _PREFIX.size + length
    if length > MAX_HEADER_BYTES or start + DIGEST_BYTES > len(data):
        raise FileFormatError(
            f"{name} is truncated: its header is not all there", code="truncated-header"
        )
    try:
        header = json.loads(data[_PREFIX.size : start], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{name} has a header that is not valid JSON", code="header-not-json"
        ) from error
    if not isinstance(header, dict) or set(header) != set(_FIELDS):
        raise FileFormatError(
            f"{name} has a header with other fields than {', '.join(_FIELDS)}",
            code="unknown-fields",
        )
    for key, kind in _FIELDS.items():
        if type(header[key]) is not kind:
            raise FileFormatError(
                f"{name} has a header whose {key!r} is not of type {kind.__name__}",
                code="malformed-field",
            )
    # Both are shown in messages, where forged ones must not command the terminal.
    if not (header["key_id"] + header["fingerprint"]).isprintable():
        raise FileFormatError(
            f"{name} states a key id or fingerprint that is none", code="malformed-key-id"
        )
    return header, start


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _section_lengths(entries: list[Any], name: str) -> dict[str, int]:
    if len(entries) > MAX_SECTIONS:
        raise FileFormatError(
            f"{name} claims {len(entries)} sections, the limit is {MAX_SECTIONS}",
            code="too-many-sections",
        )
    lengths: dict[str, int] = {}
    for entry in entries:
        good = (
            isinstance(entry, list)
            and len(entry) == 2
            and type(entry[0]) is str
            and type(entry[1]) is int
        )
        if not good or entry[1] < 0 or entry[0] in lengths:
            raise FileFormatError(f"{name} has a malformed list of sections", code="malformed-list")
        lengths[entry[0]] = entry[1]
    return lengths


# -- kinds of files

Facts = dict[str, Any]


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes
    ----------
    words : str
        What it is, for people.
    use : str
        Where it belongs on the command line.
    sections : set of str
        What it consists of; none of them is secret.
    read : callable, optional
        What makes an object of it, given its container and public keys.
    needs_keys : bool
        Whether that takes public keys.
    opens : bool
        Whether its owner opens it with the secret key.
    facts : callable
        What it tells about itself, without making anything of it, ready for JSON.
    describe : callable
        That for people, given these facts, its kind among them, and its question in words.
    """

    words: str
    use: str
    sections: frozenset[str]
    read: Callable[[Container, Any], Any] | None = None
    needs_keys: bool = False
    opens: bool = False
    facts: Callable[[Container], Facts] = lambda file: {}
    describe: Callable[[Facts, str], str] = lambda facts, question: str(facts["kind"])
