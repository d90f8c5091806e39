"""Strict JSON: whatever is missing, unknown or of a wrong type is refused with its place.

A schema decides how data is read, so a file that was altered by hand or by accident must never half
load. The base class gives text, file and fingerprint to anything that can say itself as plain JSON
values.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from encryptedstats.errors import SchemaError
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, PRIVATE, read_regular, write_atomic

if TYPE_CHECKING:
    from typing_extensions import Self

Types = tuple[type, ...]
NUMBER: Types = (int, float)
OPTIONAL_INT: Types = (int, type(None))
OPTIONAL_TEXT: Types = (str, type(None))
LEVEL: Types = (str, int, float, bool)
_LINE = 120  # characters


def check_fields(value: object, fields: Mapping[str, Types], where: str) -> dict[str, Any]:
    """Return a JSON object; refuse it if it has other fields or types."""
    if not isinstance(value, dict):
        raise SchemaError(
            f"{where}: a JSON object is needed, not {_type_name(value)}", code="not-an-object"
        )
    for problem, names in (
        ("missing", fields.keys() - value.keys()),
        ("unknown", value.keys() - fields.keys()),
    ):
        if names:
            raise SchemaError(
                f"{where}: {problem} field {', '.join(map(repr, sorted(names)))}",
                code="wrong-fields",
            )
    for name, types in fields.items():
        _check_type(value[name], types, f"{where}, field {name!r}")
    return value


def check_items(values: list[Any], types: Types, where: str) -> tuple[Any, ...]:
    """Return the list as a tuple; refuse items of other types."""
    for position, item in enumerate(values):
        _check_type(item, types, f"{where}[{position}]")
    return tuple(values)


def _check_type(value: object, types: Types, where: str) -> None:
    # type(), not isinstance: JSON's true must not pass for the integer 1.
    if type(value) not in types:
        allowed = " or ".join(_NAMES.get(t, t.__name__) for t in types)
        raise SchemaError(
            f"{where}: {allowed} is needed, not {_type_name(value)}", code="wrong-field-type"
        )


_NAMES = {
    type(None): "null",
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
} | {
    list: "a list",
    dict: "a JSON object",
}


def _type_name(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def _format(value: object, indent: int, level: int = 0) -> str:
    """Write JSON for people: one field on each line, and short lists on one line."""
    flat = json.dumps(value, allow_nan=False)
    inner = " " * indent * (level + 1)
    if not isinstance(value, (dict, list)) or not value:
        return flat
    is_plain = not any(
        isinstance(item, (dict, list))
        for item in (value.values() if isinstance(value, dict) else value)
    )
    if isinstance(value, list) and is_plain and len(flat) + len(inner) <= _LINE:
        return flat
    if isinstance(value, dict):
        items = [
            f"{json.dumps(name)}: {_format(item, indent, level + 1)}"
            for name, item in value.items()
        ]
    else:
        items = [_format(item, indent, level + 1) for item in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    return f"{ends[0]}\n{inner}" + f",\n{inner}".join(items) + f"\n{' ' * indent * level}{ends[1]}"


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise SchemaError("a field is given twice in one JSON object", code="duplicate-fields")
    return fields


def _refuse_constant(text: str) -> NoReturn:
    raise SchemaError(f"{text} is not a finite number", code="not-finite")


class Document(ABC):
    """Base of objects with a strict JSON form; subclasses give `_fields` and `_from_fields`."""

    _FORMAT: ClassVar[str]
    _FILE_MODE: ClassVar[int] = PRIVATE
    _FIELDS: ClassVar[Mapping[str, Types]]
    _VERSION: ClassVar[int] = 1
    _OLDEST: ClassVar[int] = 1  # version that can be read

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """Return the content as plain JSON values."""

    @classmethod
    @abstractmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Self:
        """Make the document of its fields, whose types are checked already."""

    def _document(self) -> dict[str, Any]:
        return {"format": self._FORMAT, "version": self._VERSION, **self._fields()}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the content as JSON text, for people to read and to edit; in one line without
        `indent`.
        """
        if indent is None:
            return json.dumps(self._document(), allow_nan=False)
        return _format(self._document(), indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; anything else is a `SchemaError` that says where."""
        try:
            value = json.loads(
                text, object_pairs_hook=_unique_fields, parse_constant=_refuse_constant
            )
        except SchemaError:
            raise
        except (
            ValueError
        ) as error:  # also for integers of thousands of digits, which Python refuses to read
            raise SchemaError(f"not JSON: {error}", code="malformed-json") from error
        except RecursionError as error:
            raise SchemaError(
                "not a schema: nested too deeply", code="nested-too-deeply"
            ) from error
        cls._check_format(value)
        value = cls._upgrade(value)
        header: dict[str, Types] = {"format": (str,), "version": (int,)}
        fields = check_fields(value, {**header, **cls._FIELDS}, cls._FORMAT)
        return cls._from_fields(fields)

    @classmethod
    def _check_format(cls, value: object) -> None:
        found = value.get("format") if isinstance(value, dict) else None
        if found != cls._FORMAT:
            raise SchemaError(f"format {found!r}: {cls._FORMAT!r} is needed", code="wrong-format")
        version = value["version"] if isinstance(value, dict) and "version" in value else None
        if type(version) is not int or not cls._OLDEST <= version <= cls._VERSION:
            versions = (
                f"version {cls._VERSION}"
                if cls._OLDEST == cls._VERSION
                else f"versions {cls._OLDEST} to {cls._VERSION}"
            )
            raise SchemaError(
                f"{cls._FORMAT} version {version!r}: this library reads {versions}",
                code="unsupported-version",
            )

    @classmethod
    def _upgrade(cls, value: Any) -> Any:
        """Add the fields that a document of an older version lacks, with their defaults."""
        return value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON to a file; after a crash the file is the old one or the new one, never
        half of it.
        """
        write_atomic(path, [f"{self.to_json()}\n".encode()], mode=self._FILE_MODE)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        try:
            return cls.from_json(read_regular(path, limit=MAX_DOCUMENT_BYTES).decode("utf-8"))
        except (SchemaError, UnicodeDecodeError) as error:
            raise SchemaError(f"{os.fspath(path)}: {error}") from error

    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON (sorted fields, no spaces, ASCII), in hexadecimal."""
        return hashlib.sha256(self.canonical_json()).hexdigest()

    def canonical_json(self) -> bytes:
        """Write the content in the one way in which equal documents, and no others, have equal
        bytes.
        """
        return canonical(self._document())


def canonical(value: object) -> bytes:
    """Write plain values as JSON in one way: sorted fields, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def quote(values: Collection[object], most: int = 8) -> str:
    """List values for an error message, the first few if there are many."""
    shown = ", ".join(repr(value) for value in list(values)[:most])
    return shown + (f", ... ({len(values)} in all)" if len(values) > most else "")
