"""The stored form of an encrypted table: its manifest, which is written last, and the keys beside
it.

Whatever is read here may come from anybody, and is checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.crypto import PublicKeys
from encryptedstats.crypto.encryption import DIGEST_FIELD, read_digest
from encryptedstats.crypto.keyfiles import PUBLIC_KIND, read_parameters
from encryptedstats.errors import (
    REPLACE,
    ArgumentTypeError,
    ExistsError,
    FileFormatError,
    KeyMismatchError,
)
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import Readable, Store, retry_read
from encryptedstats.tables.blocks import (
    BlockEntry,
    BlockShape,
    block_id_of,
)
from encryptedstats.tables.columns import (
    column_bound,
    encoding_choices,
)
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.facts import (
    TABLE_VERSION,
    TableFacts,
    column_groups,
)
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    pass


TABLE_KIND: Final = "encrypted table"
MANIFEST: Final = "table.manifest"
MAX_BINS: Final = 1 << 20
MAX_MANIFEST_BYTES: Final = 256 << 20  # a billion rows are a list of some 20 MB
_KEYS_NAME: Final = re.compile("public-[0-9a-f]{32}[.]keys")


def keys_name(key_id: str) -> str:
    """Return the name of the public keys beside a table; keys of another id have another name."""
    return f"public-{key_id}.keys"


def facts_to_container(
    facts: TableFacts, kind: str, extra: dict[str, Any], sections: dict[str, bytes]
) -> Container:
    """Return the facts of a table as a checked envelope: the manifest of a table, or the draft of
    one under way.
    """
    fields = {
        "version": TABLE_VERSION,
        "parameters": facts.parameters.to_dict(),
        "weight_bound": facts.weight_bound,
        "n_folds": facts.n_folds,
        "with_secret_key": facts.with_secret_key,
        "n_dropped": facts.n_dropped,
        DIGEST_FIELD: facts.schema_digest,
        **extra,
    }
    own = {
        "schema": facts.schema.to_json().encode(),
        "columns": json.dumps([str(column) for column in facts.columns]).encode(),
    }
    return Container(kind, facts.parameters.fingerprint, facts.key_id, fields, {**own, **sections})


def facts_from_container(file: Container) -> TableFacts:
    """Read the facts of a table with every check: the file may come from anybody."""
    _check_version(file)
    parameters = read_parameters(file)
    weight_bound, n_folds = file.expect("weight_bound", int), file.expect("n_folds", int)
    n_dropped = file.expect("n_dropped", int)
    if weight_bound < 1 or n_folds < 0 or not 0 <= n_dropped < 1 << 63:
        raise FileFormatError(
            "an impossible bound of weights, number of folds or number of rows that were left out",
            code="impossible-facts",
        )
    try:
        schema = PublicSchema.from_json(file.section("schema").decode())
        keys = file.read_list("columns")
        if not all(isinstance(key, str) for key in keys):
            raise FileFormatError("a malformed list of columns", code="malformed-columns")
        columns = tuple(Column.parse(key) for key in keys)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"a malformed schema or list of columns: {error}", code="malformed-schema"
        ) from error
    _check_columns(schema, columns, n_folds, parameters.digit_bits, weighed=weight_bound > 1)
    if any(column_bound(schema, column, weight_bound) > parameters.max_value for column in columns):
        raise FileFormatError(
            f"a column with values beyond ±{parameters.max_value:,}, which its parameters cannot "
            "hold",
            code="column-beyond-parameters",
        )
    with_secret_key = file.expect("with_secret_key", bool)
    return TableFacts(
        parameters,
        file.key_id,
        schema,
        columns,
        weight_bound,
        n_folds,
        with_secret_key,
        read_digest(file),
        n_dropped,
    )


def _check_version(file: Container) -> None:
    version = file.fields.get("version", 1)  # the first had no number
    if type(version) is not int or not 0 < version <= TABLE_VERSION:
        raise FileFormatError(
            f"a table of version {version!r}; this library reads {TABLE_VERSION}: upgrade it",
            code="newer-version",
        )
    if version < TABLE_VERSION:
        raise FileFormatError(
            f"a table of version {version}, and this library reads {TABLE_VERSION}, whose columns "
            "are others and take "
            "half of the bytes or less: encrypt the rows again, the same keys will do",
            code="outdated-version",
        )


def _check_columns(
    schema: PublicSchema,
    columns: Sequence[Column],
    n_folds: int,
    digit_bits: int | None,
    *,
    weighed: bool,
) -> None:
    """Refuse a list of columns that encryption would not have made."""
    has_target = any(column.variable == -1 for column in columns)
    n_bins = [variable.n_bins for variable in schema.variables]
    # Counted before it is written out: a file can claim more bins or folds than there is memory.
    bins = sum(n_bins) - len(n_bins) if "onehot" in encoding_choices(columns) else 0
    least = bins + has_target * (schema.n_classes * (1 + n_folds) - 1)
    if max(n_bins) > MAX_BINS or max(least, n_folds) > len(columns) or (n_folds and not has_target):
        raise FileFormatError(
            "more bins, classes or folds than columns for them", code="too-many-bins"
        )
    groups = column_groups(schema, columns, n_folds, digit_bits, weighed=weighed)
    if not columns or list(columns) != [column for group in groups for column in group.columns]:
        raise FileFormatError(
            "a list of columns that does not fit the schema and the folds",
            code="columns-not-of-schema",
        )


def write_manifest(
    store: Store, facts: TableFacts, entries: Sequence[BlockEntry], *, overwrite: bool
) -> None:
    """Write the manifest, last of all: with it, the table exists.

    Another table is replaced only if ``overwrite``.
    """
    data = manifest_bytes(facts, entries)
    if overwrite:
        store.write(MANIFEST, [data])
    elif not store.create(MANIFEST, data):
        raise table_is_there(store)


def manifest_bytes(facts: TableFacts, entries: Sequence[BlockEntry]) -> bytes:
    """Return the manifest: what is publicly known of a table, and its list of blocks."""
    blocks = json.dumps([entry.to_dict() for entry in entries]).encode()
    return container.to_bytes(facts_to_container(facts, TABLE_KIND, {}, {"blocks": blocks}))


def table_is_there(store: Store) -> ExistsError:
    """Return the error that refuses to replace a table."""
    return ExistsError(
        f"there is a table at {store.url} already; it was not touched (",
        REPLACE,
        " replaces it)",
        code="already-exists",
    )


def read_manifest(store: Readable, data: bytes) -> tuple[TableFacts, tuple[BlockEntry, ...]]:
    """Read and check what a manifest says of the table in a store."""
    where = store.where(MANIFEST)
    file = container.from_bytes(data, kind=TABLE_KIND, name=where)
    with _name_errors(where):
        facts = facts_from_container(file)
        return facts, read_blocks(file, facts.shape)


def read_manifest_bytes(store: Store) -> bytes:
    where = store.where(MANIFEST)
    try:
        return store.read(MANIFEST, limit=MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{where} is not there: no encrypted table lies at {store.url}, or it was not finished"
        ) from None


def read_blocks(file: Container, shape: BlockShape) -> tuple[BlockEntry, ...]:
    listed = file.read_list("blocks")
    if not listed:
        raise FileFormatError("no blocks are listed", code="no-blocks")
    entries = tuple(BlockEntry.from_dict(values, shape) for values in listed)
    if len({entry.id for entry in entries}) != len(entries):
        raise FileFormatError("a block is listed twice", code="duplicate-blocks")
    return entries


@contextmanager
def _name_errors(where: str) -> Iterator[None]:
    """Add the name of the file to errors."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from error


def remove_unlisted(store: Store, facts: TableFacts, entries: Sequence[BlockEntry]) -> None:
    """Delete blocks and keys of a table that was replaced, or of an attempt that was given up, and
    nothing else.
    """
    kept = {keys_name(facts.key_id), *(entry.name for entry in entries)}
    for name in store.names():
        if name not in kept and (block_id_of(name) is not None or _KEYS_NAME.fullmatch(name)):
            store.delete(name)


def write_keys(store: Store, keys: PublicKeys) -> None:
    """Write public keys beside the blocks, for the worker."""
    store.write(keys_name(keys.key_id), [container.to_bytes(keys.to_container())])


def read_stored_keys(store: Store, name: str) -> PublicKeys:
    where = store.where(name)
    file = retry_read(
        store, lambda: container.from_bytes(store.read(name), kind=PUBLIC_KIND, name=where)
    )
    with _name_errors(where):
        return PublicKeys.from_container(file)


def check_keys(keys: PublicKeys, facts: TableFacts) -> PublicKeys:
    if not isinstance(keys, PublicKeys):
        raise ArgumentTypeError(
            "a table is computed on with PublicKeys, nothing more: owner.public_keys()",
            code="not-public-keys",
        )
    if (keys.key_id, keys.parameters) != (facts.key_id, facts.parameters):
        raise KeyMismatchError(
            f"this table belongs to key {facts.key_id}, and these are the keys {keys.key_id}: "
            f"give those of {facts.key_id}, or "
            "none where they lie beside the table",
            code="other-key",
        )
    return keys
