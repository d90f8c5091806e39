"""From rows to an encrypted table, a chunk at a time, over all cores; a stored table can be
resumed.

A block is named by a keyed hash of its plain rows, so that a second run recognises what a first one
has finished; without the owner's secret nobody can make such a hash, or learn anything from it. The
manifest is written last: until then there is a draft, and no table.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.crypto.dispatch import encrypt_file_value, encrypt_value
from encryptedstats.crypto.encryption import Encryptor, encode_slots
from encryptedstats.crypto.keys import read_encryptor
from encryptedstats.crypto.residues import residues_of
from encryptedstats.crypto.seeded import SEED_BYTES, expand_seeds
from encryptedstats.errors import (
    REPLACE,
    Cure,
    FileFormatError,
    SchemaError,
    SchemaWarning,
    TooLargeError,
)
from encryptedstats.machine import Portable, check_workers, cores, ordered_map
from encryptedstats.progress import progress_bar
from encryptedstats.storage import container
from encryptedstats.storage.leases import Writer, write_alone
from encryptedstats.storage.objects import Store, open_store
from encryptedstats.tables.blocks import (
    BlockEntry,
    BlockFacts,
    BlockRows,
    BlockShape,
    Residues,
    block_bytes,
    block_id_of,
    block_name,
    find_stored_entry,
    store_block,
)
from encryptedstats.tables.columns import column_bound
from encryptedstats.tables.encodings import Column, encoding_of
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks, StoredBlocks, TableFacts
from encryptedstats.tables.manifest import (
    MANIFEST,
    facts_from_container,
    facts_to_container,
    remove_unlisted,
    table_is_there,
    write_keys,
    write_manifest,
)
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions
from encryptedstats.tables.rows.frames import refuse
from encryptedstats.tables.rows.row_files import read_frames
from encryptedstats.tables.rows.table_from_frame import (
    RowOptions,
    encode_table,
    gapless_target,
    without_gaps,
)
from encryptedstats.tables.schema.bins import LARGEST_INTEGER
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.table import Moved, Table, merge_moved, warn_of_moved
from encryptedstats.words import did_you_mean

DRAFT: Final = "table.draft"
DRAFT_KIND: Final = "unfinished table"
# Blocks of this many rows are recognised when the owner encrypts them once more.
KNOWN_AGAIN: Final = 64
_MAX_DRAFT_BYTES: Final = 64 << 20  # it has the columns, and no blocks
_LEAST_COLUMNS: Final = 8  # of a part of a chunk
# Starting processes pays from a few seconds of work on, which are this many ciphertexts.
_WORTH_PROCESSES: Final = 400


@dataclass(frozen=True)
class EncryptionOptions:
    """How rows are encrypted and stored.

    Parameters
    ----------
    encodings : sequence of "onehot", "ordinal", "centred"
        What is stored of binned variables; numbers and classes always are. Codes can also be
        derived from the bins.
    whole : bool
        Store both polynomials of every ciphertext. By default those that the owner encrypts are
        stored as one polynomial and a seed of 32 bytes for the other: half of the bytes, and a
        little more work for readers. Rows that others encrypt with the public keys are
        always stored whole. Blocks that an interrupted run has finished stay as they are.
    overwrite : bool
        Replace a table that lies at ``out``.
    workers : int, optional
        Processes; all cores by default, none for a small table.
    progress : bool, optional
        A progress bar; by default on a terminal.
    """

    encodings: Sequence[str] = ("onehot",)
    whole: bool = False
    overwrite: bool = False
    workers: int | None = None
    progress: bool | None = None


@encrypt_value.register(Table)
def encrypt_table(
    table: Table,
    encryptor: Encryptor,
    *,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> EncryptedTable:
    """Encrypt a clear table, into memory or into a store.

    Parameters
    ----------
    out : path or fsspec URL, optional
        Write blocks there as they are made, instead of holding them all in memory. Running again
        resumes.
    **options
        See :class:`EncryptionOptions`.
    """
    made = EncryptionOptions(**options)
    check_workers(made.workers)
    count = RowCount(len(table) + table.n_dropped, table.n_dropped)
    table = table.with_layout(encryptor.keys.parameters.slots)
    facts = _facts(table, encryptor, made.encodings)
    if made.workers is None and table.layout.n_chunks * len(facts.columns) < _WORTH_PROCESSES:
        made = replace(made, workers=1)
    _warns_of_many(len(table), facts, stacklevel=5)
    chunks = (
        table[start:stop] for start, stop in map(table.layout.rows_of, range(table.layout.n_chunks))
    )
    job = _Job(facts, table.schema, encryptor, made, count, total=len(table))
    sealed = job.to_memory(chunks) if out is None else job.to_store(chunks, open_store(out))
    count.warn(stacklevel=4)
    return sealed


@encrypt_file_value.register(Schema)
def encrypt_file(
    schema: Schema,
    encryptor: Encryptor,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    **options: Any,
) -> EncryptedTable:
    """Encrypt a CSV or Parquet file into a store, in bounded memory. Running again resumes.

    Parameters
    ----------
    csv : CsvOptions, optional
        How a CSV file is written, where that is not to be found out from its beginning.
    on_format : callable, optional
        Called with the format that it is read by.
    weights : str, optional
        Name of a column of integer weights; needs their public ``weight_bound``.
    folds, fold_seed
        Cross-validation folds, stratified within every piece of the file that is read at once (a
        chunk of rows).
    **options
        See :class:`EncryptionOptions`.
    """
    row_names = {field.name for field in fields(RowOptions)} & options.keys()
    rows_as = RowOptions(**{name: options.pop(name) for name in row_names})
    reading = {name: options.pop(name) for name in ("csv", "on_format") if name in options}
    made = EncryptionOptions(**options)
    check_workers(made.workers)
    if rows_as.weights is not None and rows_as.weight_bound is None:
        raise SchemaError(
            "weights from a file need weight_bound=: a public bound, since no row has been read "
            "yet",
            code="weight-bound-missing",
        )
    slots, rows = encryptor.keys.parameters.slots, FileRows(schema, path, rows_as, **reading)
    chunks = _full_chunks(rows.tables(slots), slots)
    first = next(chunks, None)
    if first is None:
        raise SchemaError(
            f"{path} has no rows" + (" without missing values" if schema.missing == "drop" else ""),
            code="no-rows",
        )
    facts = _facts(first, encryptor, made.encodings)
    job = _Job(facts, schema, encryptor, made, rows.count)
    sealed = job.to_store(_chain(first, chunks), open_store(out))
    rows.count.warn(stacklevel=4)
    return sealed


@dataclass
class RowCount:
    """Number of rows of a file, and of those left out because values are missing."""

    n_rows: int = 0
    left_out: int = 0

    def complete(self, frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
        """Return the rows to keep, and count them.

        `Schema.table` would refuse a piece of a file that loses all rows.
        """
        kept = frame
        if schema.missing == "drop" and schema.onehot is None:
            needed = [
                name
                for name in (*without_gaps(schema), *gapless_target(schema))
                if name in frame.columns
            ]
            kept = frame[frame[needed].notna().all(axis=1)]
        self.n_rows += len(frame)
        self.left_out += len(frame) - len(kept)
        return kept

    def warn(self, stacklevel: int) -> None:
        """Warn of rows that were left out."""
        if self.left_out:
            words = f"{self.left_out:,} of {self.n_rows:,} rows have gaps and are left out ("
            warnings.warn(
                SchemaWarning(words, Cure("drop gaps", "missing='drop'"), ")"),
                stacklevel=stacklevel + 1,
            )


@dataclass
class FileRows:
    """The rows of a file as clear tables, with weights and folds, as :func:`encrypt_file` needs
    them.

    ``count`` counts them, and those that are left out.
    """

    schema: Schema
    path: str | os.PathLike[str]
    options: RowOptions = field(default_factory=RowOptions)
    csv: CsvOptions | None = None
    on_format: Callable[[CsvFormat], None] | None = None
    count: RowCount = field(default_factory=RowCount)

    def tables(self, slots: int) -> Iterator[Table]:
        """Yield tables of a piece of the file at a time."""
        schema, options = self.schema, self.options
        pieces = read_frames(self.path, schema, slots, self.csv, self.on_format)
        frames = (self.count.complete(frame, schema) for frame in pieces)
        moved: tuple[Moved, ...] = ()
        for number, frame in enumerate(_at_least(options.folds or 1, frames)):
            try:
                table = self._table(frame, number, slots)
            except SchemaError as error:
                counted = (
                    " (the first row below the names is row 1)" if ", row " in str(error) else ""
                )
                raise SchemaError(f"{self.path}: {error}{counted}") from error
            moved = merge_moved((*moved, *table.moved))
            yield table
        warn_of_moved(moved, stacklevel=2)

    def _table(self, frame: pd.DataFrame, number: int, slots: int) -> Table:
        name, options = self.options.weights, self.options
        options = replace(options, fold_seed=options.fold_seed + number)
        if name is not None:
            options = replace(options, weights=_weights(frame, name))
            # The columns of a one-hot table count by position: weights must not stand among them.
            frame = frame if self.schema.onehot is None else frame.drop(columns=name)
        return encode_table(self.schema, frame, options=options, slots=slots)


def _at_least(rows: int, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield the same rows in frames of a least size: a few left over could not be dealt into
    folds.
    """
    waiting: pd.DataFrame | None = None
    for frame in frames:
        if waiting is None or not len(waiting):
            waiting = frame
        elif len(frame) < rows or len(waiting) < rows:
            waiting = pd.concat([waiting, frame]) if len(frame) else waiting
        else:
            yield waiting
            waiting = frame
    if waiting is not None and len(waiting):
        yield waiting


def _weights(frame: pd.DataFrame, name: str) -> NDArray[Any]:
    """Return the column of weights; an error names the row of the file."""
    if name not in frame.columns:
        near = did_you_mean(name, frame.columns)
        raise SchemaError(
            f"there is no column {name!r} for the weights{near}", code="unknown-column"
        )
    weights = pd.to_numeric(frame[name], errors="coerce")
    numbers = weights.to_numpy(dtype=np.float64, na_value=np.nan)
    bad = ~((numbers >= 0) & (numbers <= LARGEST_INTEGER) & (numbers == np.floor(numbers)))
    if bad.any():
        refuse(
            name, frame[name], bad, "is no weight: these are integers, at least 0 and at most 2**62"
        )
    return weights.to_numpy()


def _chain(first: Table, rest: Iterator[Table]) -> Iterator[Table]:
    yield first
    yield from rest


def _full_chunks(tables: Iterable[Table], slots: int) -> Iterator[Table]:
    """Tables of any length dealt out as chunks of exactly ``slots`` rows, but for the last."""
    waiting: list[Table] = []
    for table in tables:
        waiting.append(table)
        while sum(map(len, waiting)) >= slots:
            joined = Table.concat(waiting)
            yield joined[:slots]
            waiting = [joined[slots:]] if len(joined) > slots else []
    if waiting:
        yield Table.concat(waiting)


def _facts(table: Table, encryptor: Encryptor, encodings: Sequence[str]) -> TableFacts:
    keys, schema = encryptor.keys, table.public_schema
    if schema.lanes > 1 and not encryptor.with_secret_key:
        raise SchemaError(
            "several variants in a ciphertext are for the owner of all rows, who opens sums of "
            "some people as well: rows for other receivers are stored with lanes=1",
            code="lanes-of-contributor",
        )
    columns = tuple(table.stored_columns(encodings, keys.parameters.digit_bits))
    if not columns:
        raise SchemaError(f"encodings={encodings!r} leave no column to encrypt", code="no-columns")
    for column in columns:
        bound = column_bound(schema, column, table.weight_bound)
        if bound > keys.parameters.max_value:
            raise TooLargeError(
                f"{_describe(column, table.schema)} holds values up to {bound:,}, and the "
                "parameters are exact up to "
                f"±{keys.parameters.max_value:,}: ",
                Cure("larger values", "choose a larger max_value", {"value": bound}),
            )
    return TableFacts(
        keys.parameters,
        keys.key_id,
        schema,
        columns,
        table.weight_bound,
        table.n_folds,
        encryptor.with_secret_key,
        encryptor.schema_digest(table.schema.digest_json()),
    )


def _warns_of_many(
    rows: int, facts: TableFacts, stacklevel: int, *, more_follow: bool = False
) -> bool:
    """Warn if the keys were made for fewer rows, and return whether they were.

    This comes before encrypting, which may take days; where rows are read piece by piece, as soon
    as there are too many.
    """
    most, exact = rows * facts.weight_bound, facts.parameters.max_value
    if most > exact:
        weighed = f" with weights up to {facts.weight_bound:,}" if facts.weight_bound > 1 else ""
        or_more = " or more" if more_follow else ""
        needed = "N (the number of all rows)" if more_follow else rows
        warning = SchemaWarning(
            f"these are {rows:,} rows{or_more}{weighed}: counts over them can reach {most:,}, and "
            f"these keys are exact up to ±{exact:,}, so larger totals will be refused. Make keys "
            "with ",
            Cure("keys for more rows", "es.Owner(es.plan(..., n_rows=...))", {"rows": needed}),
            ", and encrypt again",
        )
        warnings.warn(warning, stacklevel=stacklevel)
    return most > exact


def _describe(column: Column, schema: Schema) -> str:
    if encoding_of(column).counts_rows:
        return f"the {'class' if schema.classes else 'row'} indicator {column}, times the weights,"
    name = schema.target if column.variable == -1 else schema.variables[column.variable].name
    return f"column {name!r} ({column})"


@dataclass(frozen=True)
class _BlockPart:
    """All columns of a chunk or some, as they lie in slots, for the block of a name."""

    name: str
    rows: int
    values: list[NDArray[np.int64]]
    is_first: bool
    is_last: bool

    def slots(self, columns: Sequence[Column]) -> Iterable[NDArray[np.int64]]:
        """Return its own columns."""
        return self.values

    def cut(self, size: int) -> Iterator[_BlockPart]:
        """Yield all its columns, ``size`` at a time."""
        for start in range(0, len(self.values), size):
            stop = start + size
            some, is_last = self.values[start:stop], stop >= len(self.values)
            yield _BlockPart(self.name, self.rows, some, start == 0, is_last)


@dataclass(frozen=True)
class _Chunk:
    """A chunk of rows for the block of a name."""

    name: str
    chunk: Table

    @property
    def rows(self) -> int:
        return len(self.chunk)

    def slots(self, columns: Sequence[Column]) -> Iterable[NDArray[np.int64]]:
        """Yield columns as they lie in slots."""
        return map(self.chunk.slot_values, columns)

    def part(self, columns: Sequence[Column]) -> _BlockPart:
        """Return all columns as one part."""
        return _BlockPart(self.name, self.rows, list(self.slots(columns)), True, True)


@dataclass(frozen=True)
class _Made:
    """Encrypted columns of a chunk: their seeds and polynomials."""

    name: str
    rows: int
    seeds: bytes
    residues: Residues
    is_last: bool


@dataclass(frozen=True)
class _Object:
    """A block as it is stored."""

    name: str
    rows: int
    data: bytes


_Item = TypeVar("_Item")


def _join_parts(made: Iterable[_Item]) -> Iterator[_Item]:
    """Yield blocks, joining the parts of those that were cut."""
    waiting: list[_Made] = []
    for one in made:
        if not isinstance(one, _Made):
            yield one
            continue
        waiting.append(one)
        if not one.is_last:
            continue
        if len(waiting) > 1:
            seeds = b"".join(part.seeds for part in waiting)
            residues = np.concatenate([part.residues for part in waiting])
            yield replace(one, seeds=seeds, residues=residues)
        else:
            yield one
        waiting = []


@dataclass(frozen=True)
class _BlockMaker:
    """Makes blocks of chunks of rows; holds all that another process needs for it."""

    facts: TableFacts
    encryptor: Encryptor
    whole: bool

    @property
    def shape(self) -> BlockShape:
        """Shape of the blocks. Only the owner can store seeds in place of polynomials."""
        return replace(
            self.facts.shape, seeded=not self.whole and self.encryptor.seeded is not None
        )

    def encrypt(self, item: _Chunk | _BlockPart) -> _Made:
        """Encrypt all columns of a chunk, or some, into shape (columns, 1 or 2, primes, N)."""
        columns = self.facts.columns
        count = len(item.values) if isinstance(item, _BlockPart) else len(columns)
        encryptor, shape = self.encryptor, self.shape
        parameters = self.facts.parameters
        sizes = (shape.components, len(parameters.data_moduli), parameters.ring_degree)
        seeds, residues = [], np.empty((count, *sizes), dtype=np.uint64)
        for position, values in enumerate(item.slots(columns)):
            plain = encode_slots(values, encryptor)
            if shape.seeded and encryptor.seeded is not None:
                seed, residues[position, 0] = encryptor.seeded.encrypt(plain)
                seeds.append(seed)
            else:
                residues[position] = residues_of(encryptor.keys.engine, encryptor.encrypt(plain)[0])
        is_last = not isinstance(item, _BlockPart) or item.is_last
        return _Made(item.name, item.rows, b"".join(seeds), residues, is_last)

    def store(self, item: _Chunk | _BlockPart | BlockEntry) -> _Object | _Made | BlockEntry:
        """Return a new object, a part of one, or the entry of one that is stored already."""
        if isinstance(item, BlockEntry):
            return item
        made = self.encrypt(item)
        is_whole = isinstance(item, _Chunk) or (item.is_first and item.is_last)
        return self.serialise(made) if is_whole else made

    def serialise(self, made: _Made) -> _Object:
        """Return the object of a whole block."""
        rows = BlockRows(block_id_of(made.name) or "", made.rows, self.facts.key_id)
        data = block_bytes(made.residues, self.shape, seeds=made.seeds, rows=rows, seal=self.seal)
        return _Object(made.name, made.rows, data)

    def seal(self, block: BlockFacts) -> str:
        """Return a keyed hash of all that is signed, by which the owner recognises a block of an
        interrupted run.
        """
        return hmac.new(
            self.encryptor.token_key, b"block" + self.facts.statement(block), hashlib.sha256
        ).hexdigest()

    def to_bytes(self) -> bytes:
        """Return bytes for another process of the owner; they hold the secret key if the encryptor
        does.
        """
        sections = {"encryptor": self.encryptor.to_bytes()}
        return container.to_bytes(
            facts_to_container(self.facts, "block maker", {"whole": self.whole}, sections)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> _BlockMaker:
        file = container.from_bytes(data, kind="block maker")
        encryptor = read_encryptor(file.section("encryptor"))
        return cls(facts_from_container(file), encryptor, file.expect("whole", bool))


# What a process that begins afresh makes from the bytes of a maker.
def _encrypting(data: bytes) -> Callable[[_Chunk | _BlockPart], _Made]:
    return _BlockMaker.from_bytes(data).encrypt


def _storing(data: bytes) -> Callable[[Any], _Object | _Made | BlockEntry]:
    return _BlockMaker.from_bytes(data).store


@dataclass(frozen=True)
class _Job:
    """One run of encryption: its rows, key and options."""

    facts: TableFacts
    schema: Schema
    encryptor: Encryptor
    options: EncryptionOptions
    count: RowCount
    total: int | None = None

    @property
    def maker(self) -> _BlockMaker:
        """The maker of its blocks."""
        return _BlockMaker(self.facts, self.encryptor, self.options.whole)

    def to_memory(self, chunks: Iterable[Table]) -> EncryptedTable:
        table_id = secrets.token_bytes(16)
        ids, rows, residues, seeding = [], [], [], []
        with progress_bar("encrypting", self.total, "rows", self.options.progress) as advance:
            items = (
                _Chunk(self._block_id(table_id, i, chunk), chunk) for i, chunk in enumerate(chunks)
            )
            function = Portable(self.maker.encrypt, _encrypting, self.maker.to_bytes)
            parts = self._share_columns(items)
            with closing(ordered_map(function, parts, self.options.workers)) as made:
                for block in _join_parts(made):
                    ids.append(block.name)
                    rows.append(block.rows)
                    residues.append(self._both(block.seeds, block.residues))
                    seeding.append(block.seeds)
                    advance(block.rows)
        sign = None if self.encryptor.signer is None else self.encryptor.signer.sign
        blocks = MemoryBlocks(
            tuple(ids), tuple(rows), tuple(residues), (sign,) * len(ids), tuple(seeding)
        )
        return EncryptedTable(self._count_dropped(), blocks, self.encryptor.keys, self.schema)

    def _count_dropped(self) -> TableFacts:
        """Return the facts with the number of dropped rows, which is known after the last row."""
        return replace(self.facts, n_dropped=self.count.left_out)

    def to_store(self, chunks: Iterable[Table], store: Store) -> EncryptedTable:
        overwrite = self.options.overwrite
        if store.exists(MANIFEST) and not overwrite:
            raise table_is_there(store)
        with write_alone(store) as writer:
            store.sweep()
            table_id = self._draft(store, overwrite)
            entries = self._store_all(chunks, table_id, store, writer)
            write_keys(store, self.encryptor.keys)
            writer.check()
            write_manifest(store, self._count_dropped(), entries, overwrite=overwrite)
            store.delete(DRAFT)
            writer.check()
            remove_unlisted(store, self.facts, entries)
        blocks = StoredBlocks(store, tuple(entries), self.facts.shape, self.facts.key_id)
        return EncryptedTable(self._count_dropped(), blocks, self.encryptor.keys, self.schema)

    def _store_all(
        self, chunks: Iterable[Table], table_id: bytes, store: Store, writer: Writer
    ) -> list[BlockEntry]:
        """Store all blocks, each as soon as it is made."""
        entries: list[BlockEntry] = []
        warned, shape = False, self.maker.shape
        with progress_bar("encrypting", self.total, "rows", self.options.progress) as advance:
            items = self._unless_stored(chunks, table_id, store)
            function = Portable(self.maker.store, _storing, self.maker.to_bytes)
            parts = self._share_columns(items)
            with closing(ordered_map(function, parts, self.options.workers)) as made:
                for item in _join_parts(made):
                    if isinstance(item, BlockEntry):
                        entry = item
                    else:
                        writer.check()
                        new = self.maker.serialise(item) if isinstance(item, _Made) else item
                        entry = store_block(store, new.data, new.name, shape, new.rows)
                    entries.append(self._sign(entry))
                    advance(entry.rows)
                    if self.total is None and not warned:
                        warned = _warns_of_many(
                            sum(one.rows for one in entries),
                            self.facts,
                            stacklevel=7,
                            more_follow=True,
                        )
        return entries

    def _share_columns(self, items: Iterable[_Item]) -> Iterator[_Item | _BlockPart]:
        """Yield chunks, cut by columns where there are fewer chunks than processes."""
        workers = self.options.workers or cores()
        waiting: Iterator[_Item | _BlockPart] = iter(items)
        if self.schema.genome is not None and workers > 1:
            # A chunk would take the list of all variants along to its process.
            waiting = map(self._as_part, waiting)
        first = list(islice(waiting, workers))
        if len(first) == workers or workers == 1:
            yield from first
            yield from waiting
            return
        columns, count = self.facts.columns, -(-2 * workers // max(1, len(first)))
        size = max(_LEAST_COLUMNS, -(-len(columns) // count))
        for item in first:
            part = self._as_part(item) if size < len(columns) else item
            yield from part.cut(size) if isinstance(part, _BlockPart) else (part,)

    def _as_part(self, item: _Item | _BlockPart) -> _Item | _BlockPart:
        """Return a chunk as a single part, which needs no schema."""
        if not isinstance(item, _Chunk):
            return item
        return item.part(self.facts.columns)

    # -- a block -----------------------------------------------------------------------------------

    def _both(self, seeds: bytes, polynomials: Residues) -> Residues:
        """Both polynomials of all columns, shape (columns, 2, primes, N)."""
        if not seeds:
            return polynomials
        residues = np.empty((len(polynomials), 2, *polynomials.shape[2:]), dtype=np.uint64)
        moduli, count = self.facts.parameters.data_moduli, len(polynomials)
        size = max(_LEAST_COLUMNS, -(-count // (self.options.workers or cores())))

        def expand(start: int) -> None:
            some = slice(start, start + size)
            residues[some, 0] = polynomials[some, 0]
            of_some = seeds[SEED_BYTES * start : SEED_BYTES * (start + size)]
            expand_seeds(of_some, moduli, residues[some])

        with ThreadPoolExecutor() as threads:  # the kernel works without the interpreter's lock
            for _ in threads.map(expand, range(0, count, size)):
                pass
        return residues

    def _sign(self, entry: BlockEntry) -> BlockEntry:
        """Add the owner's signature to an entry, unless it is under the public key."""
        signer = self.encryptor.signer
        return (
            entry
            if signer is None
            else replace(entry, signature=signer.sign(self.facts.statement(entry)))
        )

    def _block_id(self, table_id: bytes, index: int, chunk: Table) -> str:
        """Return two keyed hashes of the plain rows: the same in every table of the key, and unlike
        any other. See `same_rows`.

        Of the rows as they are held, and not of their columns, which are many more bytes.
        """
        key, place = (
            self.encryptor.token_key,
            index.to_bytes(8, "big") + len(chunk).to_bytes(8, "big"),
        )
        # Few rows may be alike by chance, and a worker who sees that would learn something of
        # them.
        salt = b"" if len(chunk) >= KNOWN_AGAIN else table_id
        schema = (self.facts.schema_digest or "").encode()
        same = hmac.new(key, b"same rows" + schema + salt + place, hashlib.sha256)
        own = hmac.new(key, table_id + place, hashlib.sha256)
        for values in chunk.raw_values():
            same.update(values)
            own.update(values)
        own.update(b"" if chunk.fold_codes is None else chunk.fold_codes.astype("<i8").tobytes())
        return same.hexdigest()[:16] + own.hexdigest()[:16]

    def _unless_stored(
        self, chunks: Iterable[Table], table_id: bytes, store: Store
    ) -> Iterator[_Chunk | BlockEntry]:
        have = set(store.names())
        for index, chunk in enumerate(chunks):
            name = block_name(index, self._block_id(table_id, index, chunk))
            known = len(chunk), self.facts.shape, self.facts.key_id, self.maker.seal
            stored = find_stored_entry(store, name, *known) if name in have else None
            yield stored or _Chunk(name, chunk)

    # -- the draft: what a second run finds of the first -------------------------------------------

    def _draft(self, store: Store, overwrite: bool) -> bytes:
        """Return the id of the table under way at this place: a new one, or the one to resume."""
        if store.exists(DRAFT):
            table_id, why_not = self._resumable(store)
            if table_id is not None:
                return table_id
            if not overwrite:
                raise FileFormatError("an unfinished table ", *why_not, code="unfinished-table")
        table_id = secrets.token_bytes(16)
        extra = {"table_id": table_id.hex(), "token": self._token(table_id)}
        store.write(
            DRAFT, [container.to_bytes(facts_to_container(self.facts, DRAFT_KIND, extra, {}))]
        )
        return table_id

    def _resumable(self, store: Store) -> tuple[bytes | None, tuple[object, ...]]:
        """Return the id of the table under way, or what it is and why this run cannot go on with
        it.
        """
        other = (
            f"of another schema, key or encoding lies at {store.url}, or a damaged one: choose "
            "another place, or ",
            REPLACE,
            " to give it up",
        )
        try:
            draft = container.from_bytes(store.read(DRAFT, limit=_MAX_DRAFT_BYTES), kind=DRAFT_KIND)
            table_id = bytes.fromhex(draft.expect("table_id", str))
            same = hmac.compare_digest(
                draft.expect("token", str).encode(), self._token(table_id).encode()
            )
            if facts_from_container(draft) != self.facts:
                return None, other
        except ValueError:  # a FileFormatError among them
            return None, other
        if not same and not self.encryptor.with_secret_key:
            return None, (
                f"that was begun with the public key lies at {store.url}. Finished blocks are "
                "known again only with the secret "
                "key, or in the run that made them: choose another place, or ",
                REPLACE,
                " to start again",
            )
        return (table_id, ()) if same else (None, other)

    def _token(self, table_id: bytes) -> str:
        return hmac.new(self.encryptor.token_key, b"draft" + table_id, hashlib.sha256).hexdigest()
