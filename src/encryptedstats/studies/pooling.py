"""The rows of all sites as one table, in which nothing shows where one site ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from encryptedstats.crypto import PublicKeys
from encryptedstats.errors import FileFormatError, SchemaError, StudyError
from encryptedstats.storage.objects import open_store
from encryptedstats.studies.documents import StudyDocument
from encryptedstats.studies.sealing import SealedStore
from encryptedstats.studies.transcript import SiteRows
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.blocks import Residues
from encryptedstats.tables.columns import table_columns
from encryptedstats.tables.facts import Blocks, Sign, StoredBlocks
from encryptedstats.tables.manifest import MANIFEST, MAX_MANIFEST_BYTES, read_manifest


@dataclass(frozen=True)
class PooledBlocks:
    """The blocks of several tables, one after the other."""

    parts: tuple[Blocks, ...]

    def _at(self, index: int) -> tuple[Blocks, int]:
        for part in self.parts:
            if index < len(part.rows):
                return part, index
            index -= len(part.rows)
        raise IndexError(index)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one for part in self.parts for one in part.ids)

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(one for part in self.parts for one in part.rows)

    def block(self, index: int) -> Residues:
        part, place = self._at(index)
        return part.block(place)

    def seeds(self, index: int) -> bytes:
        part, place = self._at(index)
        return part.seeds(place)

    def column(self, index: int, column: int) -> Residues:
        part, place = self._at(index)
        return part.column(place, column)

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        part, place = self._at(index)
        return part.columns(place, columns)

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        part, place = self._at(index)
        return part.pieces(place, columns, prime, start, stop)

    def content(self) -> list[str]:
        return [one for part in self.parts for one in part.content()]

    def stored_bytes(self) -> int:
        return sum(part.stored_bytes() for part in self.parts)

    def signer(self, index: int) -> Sign | None:
        """Return None: rows of sites carry no signature of an owner."""
        part, place = self._at(index)
        return part.signer(place)


def describe_rows(url: str, folder: str) -> dict[str, Any]:
    """Return how a message announces a stored table: hashes that fix it, and its size."""
    store = open_store(url)
    data = store.read(MANIFEST, limit=MAX_MANIFEST_BYTES)
    _, entries = read_manifest(store, data)
    return {
        "folder": folder,
        "manifest": hashlib.sha256(data).hexdigest(),
        "n_rows": sum(entry.rows for entry in entries),
        "n_blocks": len(entries),
        "blocks": hash_block_ids([entry.id for entry in entries]),
    }


def hash_block_ids(ids: Sequence[str]) -> str:
    """Return the hash by which parties who cannot read rows know the blocks that
    results are from.
    """
    return hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()


def are_from_rows(ids: Sequence[str], rows: Sequence[SiteRows]) -> bool:
    """Return whether these are the blocks of these rows, one site behind the other."""
    start = 0
    for one in rows:
        if hash_block_ids(ids[start : start + one.n_blocks]) != one.blocks:
            return False
        start += one.n_blocks
    return start == len(ids)


def seal_rows(url: str, sealed: SealedStore) -> None:
    """Copy a stored table into a sealed folder, the manifest last; objects that are there stay."""
    store = open_store(url)
    _, entries = read_manifest(store, store.read(MANIFEST, limit=MAX_MANIFEST_BYTES))
    for name in (*(entry.name for entry in entries), MANIFEST):
        if not sealed.exists(name):
            sealed.write(name, store.read(name))


def site_table(
    place: SealedStore,
    site: str,
    rows: SiteRows,
    document: StudyDocument,
    keys: PublicKeys,
    *,
    new: bool = False,
) -> EncryptedTable:
    """Return the rows of a site, checked against its message and the schema of the study.

    ``new`` rows are to be voted on: they have no class.
    """
    try:
        data = place.read(MANIFEST, limit=MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise StudyError(
            f"the rows of {site} are announced and not all there yet: {site} has to add them again",
            code="rows-missing",
        ) from None
    if hashlib.sha256(data).hexdigest() != rows.manifest:
        raise FileFormatError(
            f"the rows of {site} at {place.url} are not those of its message: they were altered "
            "or exchanged. Do not go on",
            code="altered-rows",
        )
    facts, entries = read_manifest(place, data)
    schema = document.site_schema(site)
    columns = tuple(
        table_columns(
            schema,
            classes=schema.has_target and not new,
            digit_bits=document.parameters.digit_bits,
        )
    )
    agreed = (schema, columns, 1, 0, document.parameters, keys.key_id)
    found = (
        facts.schema,
        facts.columns,
        facts.weight_bound,
        facts.n_folds,
        facts.parameters,
        facts.key_id,
    )
    n_rows = sum(entry.rows for entry in entries)
    announced = n_rows == rows.n_rows and are_from_rows([entry.id for entry in entries], [rows])
    if found != agreed or not announced:
        raise SchemaError(
            f"the table of {site} has other columns, weights, folds, keys or rows than the study "
            f"has agreed on: exclude {site}, or "
            "let it encrypt again in a new study",
            code="other-table-shape",
        )
    blocks = StoredBlocks(place, entries, facts.shape, facts.key_id)
    # Sites sign nothing as owners: their rows count as contributors' rows.
    return EncryptedTable(
        replace(facts, with_secret_key=False, schema_digest=None), blocks, keys, accepted=True
    )


def pool(tables: Sequence[EncryptedTable]) -> EncryptedTable:
    """Return the rows of all tables as one table."""
    first = tables[0]
    ids = [one for table in tables for one in table.blocks.ids]
    if len(set(ids)) != len(ids):
        raise SchemaError(
            "a block is there twice: its rows would count twice", code="repeated-block"
        )
    facts = replace(first.facts, n_dropped=sum(table.n_dropped for table in tables))
    blocks = PooledBlocks(tuple(table.blocks for table in tables))
    return EncryptedTable(facts, blocks, first.public_keys(), accepted=True)
