"""Load the inputs of a command: rows, schemas, plans, tables, public keys.

An error for a file of another kind says what it is and which option or command takes it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

from encryptedstats.crypto import PublicKeys
from encryptedstats.crypto.keyfiles import OWNER_KIND, PUBLIC_KIND
from encryptedstats.errors import FileFormatError
from encryptedstats.kinds import KINDS
from encryptedstats.storage import container
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, read_regular
from encryptedstats.storage.objects import is_url, load_file, local_or_url
from encryptedstats.tables import EncryptedTable, Schema
from encryptedstats.tables.encryption import DRAFT, DRAFT_KIND
from encryptedstats.tables.manifest import MANIFEST, TABLE_KIND
from encryptedstats.tables.rows.row_files import PARQUET_SUFFIXES

SCHEMA: Final = "schema"
PLAN: Final = "plan"
JSON: Final = "JSON"
FOLDER: Final = "folder"
RUN: Final = "run"
OTHER: Final = "other"
_HEAD_BYTES: Final = 64

# Kinds of files in words, and where each belongs.
_NATURES: Final[dict[str, tuple[str, str]]] = {
    **{kind: (known.words, known.use) for kind, known in KINDS.items()},
    SCHEMA: ("a schema", "give it with --schema"),
    PLAN: ("a plan", "give it with key make --plan"),
    JSON: ("JSON of another kind", "check the path"),
    RUN: ("the rounds of a procedure", "open and predict take them, with --schema"),
    FOLDER: ("a folder without a table in it", "check the path"),
    OTHER: ("no file of this program", "check the path"),
}


def nature(place: str | Path) -> str:
    """Return the kind of the file at a path or URL, or one of the words above."""
    address = local_or_url(place)
    if is_url(address):
        return load_file(address).kind
    path = Path(address)
    if path.is_dir():
        for name, kind in ((MANIFEST, TABLE_KIND), (DRAFT, DRAFT_KIND)):
            if (path / name).exists():
                return kind
        from encryptedstats.procedures.folder import is_run  # which loads what runs procedures

        return RUN if is_run(path) else FOLDER
    if path.exists() and not path.is_file():  # bytes read from a pipe would be missing later
        return OTHER
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(container.MAGIC):
        return container.read(path).kind
    if head.lstrip().startswith(b"{"):
        return _nature_of_json(path)
    return OTHER


def _nature_of_json(path: Path) -> str:
    try:
        found = json.loads(read_regular(path, limit=MAX_DOCUMENT_BYTES))
    except (ValueError, RecursionError):
        return JSON
    if found.get("format") == "encryptedstats.schema":
        return SCHEMA
    return PLAN if {"questions", "parameters"} <= set(found) else JSON


def expect(path: str | Path, kinds: Collection[str], wanted: str, cure: str = "") -> str:
    """Return the kind of a file, or raise an error that says what is wanted and how to get it."""
    found = nature(path)
    if found in kinds:
        return found
    what, use = _NATURES.get(found, (f"{found!r}", "check the path"))
    verb = "is" if found in (FOLDER, OTHER, TABLE_KIND, DRAFT_KIND) else "holds"
    raise FileFormatError(
        f"{path} {verb} {what}, and {wanted} is wanted here: {cure or use}", code="wrong-kind"
    )


def check_rows(path: Path) -> None:
    """Refuse a file of this program where rows are needed; pandas refuses what is no CSV."""
    if path.suffix.lower() in PARQUET_SUFFIXES and path.is_file():
        return
    if nature(path) != OTHER:
        expect(path, (), "a CSV or Parquet file with rows")


def load_schema(path: Path) -> Schema:
    """Load a schema."""
    # The loader describes errors of documents that were edited by hand.
    expect(
        path, (SCHEMA, JSON), "a schema", "encryptedstats data schema DATA -o schema.json makes one"
    )
    return Schema.load(path)


def load_public_keys(path: Path) -> PublicKeys:
    """Load public keys from their file or from the folder of a table."""
    if path.is_dir():
        expect(path, (TABLE_KIND,), "a file of public keys, or the folder of a table with them")
        return EncryptedTable.load(path).public_keys()
    cure = "give the file that key make wrote second"
    if nature(path) == OWNER_KIND:
        cure += ", and keep the secret key off every machine but the owner's"
    expect(path, (PUBLIC_KIND,), "a file of public keys", cure)
    return PublicKeys.load(path)


def load_table(url: str, keys: Path | None, by_others: bool) -> EncryptedTable:
    """Load an encrypted table to compute on, with its own public keys or those of a file."""
    public = None if keys is None else load_public_keys(keys)
    address = local_or_url(url)
    if not is_url(address) and Path(address).exists():
        expect(
            address, (TABLE_KIND,), "the folder of an encrypted table", _table_cure(Path(address))
        )
    table = EncryptedTable.load(url, public, by_others=by_others)
    _ = table.keys  # refuses rows of contributors without by_others
    return table


def _table_cure(path: Path) -> str:
    return "" if nature(path) == DRAFT_KIND else "encryptedstats encrypt makes one"
