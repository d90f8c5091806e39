"""What a stored table consists of, as objects that are sent to a worker or copied to where it
reads.

Each object is named by the SHA-256 that ends its file, so that nothing is sent twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from encryptedstats.cluster.jobs import read_table
from encryptedstats.crypto.keyfiles import PUBLIC_KIND
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import Cure, FileFormatError, KeyMismatchError, WorkerError
from encryptedstats.storage import container
from encryptedstats.storage.container import DIGEST_BYTES
from encryptedstats.storage.objects import Store, open_store, read_object
from encryptedstats.tables import EncryptedTable
from encryptedstats.tables.blocks import BlockEntry
from encryptedstats.tables.facts import StoredBlocks, TableFacts
from encryptedstats.tables.manifest import MANIFEST, MAX_MANIFEST_BYTES, keys_name
from encryptedstats.workers.worker import Url, Worker, WorkerTable


@dataclass(frozen=True)
class TableObjects:
    """The objects of a stored table: the size of each, and what reads it.

    Attributes
    ----------
    name, keys : str
        The names of the manifest and of the public keys.
    files : dict
        The name of each object in the folder of a table.
    """

    name: str
    keys: str
    facts: TableFacts
    entries: tuple[BlockEntry, ...]
    sizes: dict[str, int]
    read: dict[str, Callable[[], bytes]]
    files: dict[str, str]

    def describe(
        self, worker: Worker, table: Url | EncryptedTable, keys: PublicKeys | Url | None
    ) -> WorkerTable:
        """Return the table as a worker names it."""
        return describe_table(worker, self.name, self.facts, self.entries, self.load(table, keys))

    def load(self, table: Url | EncryptedTable, keys: PublicKeys | Url | None) -> EncryptedTable:
        """Return the local table."""
        if isinstance(table, EncryptedTable):
            return table
        return EncryptedTable.load(table, keys if isinstance(keys, PublicKeys) else None)


def describe_table(
    worker: Worker,
    name: str,
    facts: TableFacts,
    entries: tuple[BlockEntry, ...],
    sealed: EncryptedTable | None = None,
) -> WorkerTable:
    """Return a table as a worker names it, from its list of blocks."""
    private = None if sealed is None else sealed.private_schema
    rows, ids = tuple(one.rows for one in entries), tuple(one.id for one in entries)
    return WorkerTable(worker, name, "", facts, rows, ids, private or facts.schema, sealed)


def objects_of(store: Store, keys: PublicKeys | Url | None) -> TableObjects:
    """List the objects of a stored table."""
    manifest = _manifest(store)
    facts, entries = read_table(manifest, store.where(MANIFEST))
    read: dict[str, Callable[[], bytes]] = {
        entry.sha256: partial(_read_block, store, entry) for entry in entries
    }
    public = _keys_bytes(store, facts, keys)
    name, of_keys = (data[-DIGEST_BYTES:].hex() for data in (manifest, public))
    sizes = {entry.sha256: entry.bytes for entry in entries}
    sizes |= {name: len(manifest), of_keys: len(public)}
    read |= {name: partial(bytes, manifest), of_keys: partial(bytes, public)}
    files = {entry.sha256: entry.name for entry in entries}
    files |= {of_keys: keys_name(facts.key_id), name: MANIFEST}
    return TableObjects(name, of_keys, facts, entries, sizes, read, files)


@contextmanager
def open_table(table: Url | EncryptedTable) -> Iterator[Store]:
    """Yield the store of a table; a table in memory is stored temporarily."""
    if not isinstance(table, EncryptedTable):
        yield open_store(table)
    elif isinstance(table.blocks, StoredBlocks):
        yield open_store(table.blocks.store.url)
    else:
        with tempfile.TemporaryDirectory() as folder:
            table.save(folder)
            yield open_store(folder)


def _manifest(store: Store) -> bytes:
    try:
        return store.read(MANIFEST, limit=MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no encrypted table at {store.url}, or its encryption was not finished"
        ) from None


def _read_block(store: Store, entry: BlockEntry) -> bytes:
    data = store.read(entry.name, limit=entry.bytes)
    if data[-DIGEST_BYTES:].hex() != entry.sha256:
        raise FileFormatError(
            f"{store.where(entry.name)} is not the block that the manifest lists: it was altered "
            "or "
            "exchanged",
            code="altered-block",
        )
    return data


def _keys_bytes(store: Store, facts: TableFacts, keys: PublicKeys | Url | None) -> bytes:
    if isinstance(keys, PublicKeys):
        data = container.to_bytes(keys.to_container())
    elif keys is not None:
        data = read_object(keys)
    else:
        try:
            return store.read(keys_name(facts.key_id))
        except FileNotFoundError:
            raise WorkerError(
                f"there are no public keys beside the table {store.url}: ",
                Cure("give keys", "give keys=, those"),
                f" of key {facts.key_id}",
                code="no-public-keys",
            ) from None
    found = container.from_bytes(data, name="the public keys")
    if found.kind == PUBLIC_KIND and found.key_id != facts.key_id:
        raise KeyMismatchError(
            f"this table belongs to key {facts.key_id}, and these are the keys {found.key_id}",
            code="other-key",
        )
    return data
