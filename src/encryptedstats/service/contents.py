"""What an upload may contain: the fields and sections of its kind, each holding what its kind says.

Headers are checked while a body comes. Public keys, manifests and answers are then read whole, with
every check of the library, in a process of its own
(:func:`encryptedstats.service.making.check_file`). Blocks are too many and too large for that. No
section of theirs may hold an object of SEAL, which is how keys are stored.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from encryptedstats.crypto.encryption import DIGEST_FIELD
from encryptedstats.crypto.keyfiles import PUBLIC_KIND
from encryptedstats.crypto.keys import PublicKeys, reading_keys
from encryptedstats.errors import FileFormatError
from encryptedstats.service.refusals import Refusal
from encryptedstats.storage import container
from encryptedstats.storage.container import DIGEST_BYTES, Container
from encryptedstats.tables.answers.answer import BLOCKS, PREDICTION_KIND
from encryptedstats.tables.answers.files import ANSWER_KINDS, read_answer
from encryptedstats.tables.blocks import BLOCK_KIND
from encryptedstats.tables.manifest import TABLE_KIND, facts_from_container

_NUMBERS: Final = {"parameters", "form", "width", "flooded", "circuit", "program", DIGEST_FIELD}
_ANSWER: Final = _NUMBERS | {
    "question",
    "params",
    "n_rows",
    "n_dropped",
    BLOCKS,
    "schema",
    "weight_bound",
}
#: The fields of each kind of file that may come in. All are checked where the file is read.
FIELDS: Final[dict[str, set[str]]] = {
    PUBLIC_KIND: {"parameters", "rotations", "signatures", "retired"},
    TABLE_KIND: {
        *("version", "parameters", "weight_bound", "n_folds", "with_secret_key", "n_dropped"),
        DIGEST_FIELD,
    },
    BLOCK_KIND: {"id", "rows", "columns", "seal"},
    **dict.fromkeys(ANSWER_KINDS, _ANSWER),
    PREDICTION_KIND: _ANSWER | {"output"},
}
#: Kinds that are read whole before they become objects.
READ_WHOLE: Final = (PUBLIC_KIND, TABLE_KIND, *ANSWER_KINDS)
_SEAL_MAGIC: Final = 0xA15E
_SEAL_HEADER: Final = struct.Struct(
    "<HBBBBHQ"
)  # magic, its size, version, compression, reserved, length
_LONGEST_FIELD: Final = 64  # characters of the fields of a block: an id and a seal


def refuse_fields(found: Container, what: str) -> Refusal | None:
    """Return why a file with these fields does not come in; None where it may."""
    strange = sorted(set(found.fields) - FIELDS[found.kind])
    if strange:
        why = f"a file of this kind has no field {strange[0][:60]!r}"
        return Refusal(422, what, why, "send the file as the library wrote it")
    if found.kind == BLOCK_KIND and any(not _is_small(value) for value in found.fields.values()):
        return Refusal(
            422, what, "a block has no such fields", "send the file as the library wrote it"
        )
    return None


def _is_small(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_FIELD
    return type(value) is int and abs(value) < 1 << 63


def refuse_sections(path: Path, lengths: Mapping[str, int], kind: str, what: str) -> None:
    """Refuse a file with an object of SEAL where its kind has none."""
    if kind == PUBLIC_KIND:
        return  # these are read one by one, each as the kind of key that it must be
    with path.open("rb") as file:
        start = path.stat().st_size - DIGEST_BYTES - sum(lengths.values())
        for name, length in lengths.items():
            file.seek(start)
            if is_seal_object(file.read(min(length, _SEAL_HEADER.size)), length):
                why = f"its section {name!r} holds a key, which is not sent in such a file"
                raise Refusal(422, what, why, "send the file as the library wrote it")
            start += length


def is_seal_object(head: bytes, length: int) -> bool:
    """Return whether a section of this length with these first bytes is an object of SEAL,
    compressed or not.
    """
    if len(head) < _SEAL_HEADER.size:
        return False
    magic, header_size, _major, _minor, _compression, _reserved, stated = _SEAL_HEADER.unpack_from(
        head
    )
    return (magic, header_size, stated) == (_SEAL_MAGIC, _SEAL_HEADER.size, length)


def read_whole(data: bytes) -> None:
    """Read public keys, a manifest or an answer with every check, and keep nothing."""
    file = container.from_bytes(data)
    if file.kind == PUBLIC_KIND:
        PublicKeys.from_container(file)
    elif file.kind == TABLE_KIND:
        facts_from_container(file)
    elif file.kind in ANSWER_KINDS:
        read_answer(file, reading_keys(file))
    else:
        raise FileFormatError(
            f"a file that holds {file.kind!r} is not read whole", code="wrong-kind"
        )
