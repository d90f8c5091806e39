"""The encrypted table: the same columns and layout as its clear twin, readable by nobody but the
owner.

It is a list of blocks (one for each chunk of rows) that lie in memory or in a store, and what a
worker may know: the public schema, which columns there are, how many rows each block has. Whatever
is asked of it beyond stored columns follows by additions, from the code it shares with the clear
table.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from encryptedstats.arrays.vectors import EncryptedVector
from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.cost import Times
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.passes.digits import Stored
from encryptedstats.circuits.passes.pairs import join_pairs, prove_pairs
from encryptedstats.circuits.plan import plan_stages
from encryptedstats.circuits.program import PACKED
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.circuits.search import Stage, Wish
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto import Parameters, PublicKeys
from encryptedstats.crypto.digests import DIGEST_FIELD, join_digests, read_digest
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.encryption import Decryptor
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.keyfiles import PUBLIC_KIND, read_parameters
from encryptedstats.crypto.residues import ciphertext_of
from encryptedstats.errors import (
    REPLACE,
    ArgumentTypeError,
    Cure,
    ExistsError,
    FileFormatError,
    KeyMismatchError,
    NoiseError,
    ParameterError,
    RowsByOthersError,
    SchemaError,
    TooLargeError,
)
from encryptedstats.recent import Recent
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.leases import write_alone
from encryptedstats.storage.objects import Readable, Store, open_store, retry_read
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.blocks import (
    BlockEntry,
    BlockFacts,
    BlockRows,
    BlockShape,
    Residues,
    block_bytes,
    block_id_of,
    block_name,
    block_statement,
    read_block,
    read_column,
    read_columns,
    read_runs,
    read_seeds,
    same_rows,
    store_block,
)
from encryptedstats.tables.columns import (
    ColumnAlgebra,
    asked_columns,
    check_column,
    column_bound,
    column_ranges,
    digits_among,
    encoding_choices,
    in_stored,
    stored_groups,
    stored_terms,
)
from encryptedstats.tables.encodings import Column, ColumnGroup
from encryptedstats.tables.questions.question import (
    Question,
    asked_of,
    checked_question,
    question_key,
    told_by_parameters,
)
from encryptedstats.tables.questions.summaries import Asked
from encryptedstats.tables.schema.names import class_or_variable
from encryptedstats.tables.schema.variables import PublicSchema, PublicVariable

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema

TABLE_KIND: Final = "encrypted table"
MANIFEST: Final = "table.manifest"
TABLE_VERSION: Final = 3
MAX_BINS: Final = 1 << 20
ROWS_BY_OTHERS: Final = (
    "rows of this table were encrypted with the public keys, by others than its owner: whoever "
    "forges such rows and sees a result "
    "that is opened can recover the secret key. If all of them are trusted like the key, or never "
    "see results, ask for such rows, ",
    Cure(
        "accept rows of others",
        "es.load(url, by_others=True), or table.accept_others() for a table that was made here",
    ),
)
BY_OTHERS_FACT: Final = (
    "yes: others encrypted rows of it with the public keys; computed on only when asked for"
)
MAX_MANIFEST_BYTES: Final = 256 << 20  # a billion rows are a list of some 20 MB
APPEND_SECONDS: Final = 60.0  # for which another writer of a table is waited for
_KEYS_NAME: Final = re.compile("public-[0-9a-f]{32}[.]keys")


def keys_name(key_id: str) -> str:
    """The name of the public keys beside a table: other keys never take the place of those that a
    table needs.
    """
    return f"public-{key_id}.keys"


_written: Recent[tuple[Expression, ...]] = Recent(8)


@dataclass(frozen=True)
class TableFacts:
    """What is publicly known of an encrypted table, apart from its blocks."""

    parameters: Parameters
    key_id: str
    schema: PublicSchema
    columns: tuple[Column, ...]
    weight_bound: int
    n_folds: int
    with_secret_key: bool
    schema_digest: str | None = (
        None  # by which the owner knows the private schema again; None under the public key
    )
    n_dropped: int = 0  # rows that were left out before encryption, for values that were missing

    @property
    def shape(self) -> BlockShape:
        """Where things lie in a block that is stored whole: each says by itself whether it is."""
        return BlockShape(self.parameters, len(self.columns))

    @property
    def groups(self) -> list[ColumnGroup]:
        """The columns, variable by variable, and how they are coded."""
        return _groups(
            self.schema,
            self.columns,
            self.n_folds,
            self.parameters.digit_bits,
            weighed=self.weight_bound > 1,
        )

    def circuit(self, question: Question, layout: Layout) -> tuple[list[Expression], list[Stored]]:
        """All that is computed for a question over so many rows, and what each is of what is asked
        for.
        """
        return self.totals(self.written(question), layout)

    def written(self, question: Question) -> list[Expression]:
        """The totals of a question, as they are asked for; those that were asked for
        last are kept.
        """
        settled, asked = question.settled(), asked_columns(self.schema, self.columns)
        told = told_by_parameters(settled)
        if told is None:
            return settled.circuit(self.schema, asked, weight_bound=self.weight_bound)
        key = (question_key(told), self.schema, self.columns, self.weight_bound)
        found = _written.get(
            key, lambda: tuple(told.circuit(self.schema, asked, weight_bound=self.weight_bound))
        )
        return list(found)

    def totals(
        self, outputs: Sequence[Expression], layout: Layout, form: str = PACKED
    ) -> tuple[list[Expression], list[Stored]]:
        """The totals that are computed for some that are asked for, over the stored columns, and
        what each is of them.

        Packs hold two in one where the keys were planned for it, and it is proven for so many rows.
        """
        known = replace(self, key_id="", schema_digest=None, n_dropped=0)  # nothing else tells
        found, stored = _computed(tuple(outputs), known, layout, form)
        return list(found), list(stored)

    def statement(self, block: BlockFacts) -> bytes:
        """What the owner signs of one of its blocks."""
        columns = [str(column) for column in self.columns]
        return block_statement(
            block, TABLE_VERSION, columns, self.weight_bound, self.schema.to_json()
        )


Sign = Callable[[bytes], str]


class Blocks(Protocol):
    """Where the blocks of a table are: in memory or in a store."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The owner's id of each block."""

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows each block has."""

    def block(self, index: int) -> Residues:
        """All columns of a block, shape (columns, 2, primes, N)."""

    def seeds(self, index: int) -> bytes:
        """What stands for the second polynomials of a block where it is stored; nothing where it is
        stored whole.
        """

    def column(self, index: int, column: int) -> Residues:
        """One column of a block, shape (2, primes, N)."""

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        """Some columns of a block."""

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        """Some columns of a block, one prime and the coefficients from start to stop; shape
        (columns, 2, coefficients).
        """

    def content(self) -> list[str]:
        """What tells these blocks from all others."""

    def stored_bytes(self) -> int:
        """Bytes that the blocks take where they are."""

    def signer(self, index: int) -> Sign | None:
        """What gives the owner's signature of a block; None where others have encrypted it."""


@dataclass(frozen=True)
class MemoryBlocks:
    """Blocks held as arrays."""

    ids: tuple[str, ...]
    rows: tuple[int, ...]
    residues: tuple[Residues, ...]
    signers: tuple[Sign | None, ...] = field(default=(), repr=False)
    seeding: tuple[bytes, ...] = field(default=(), repr=False)

    def block(self, index: int) -> Residues:
        """All columns of a block."""
        return self.residues[index]

    def seeds(self, index: int) -> bytes:
        """What its second polynomials were expanded from; nothing where SEAL drew them."""
        return self.seeding[index] if self.seeding else b""

    def column(self, index: int, column: int) -> Residues:
        """One column of a block."""
        one: Residues = self.residues[index][column]
        return one

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        """Some columns of a block, not copied."""
        return [self.residues[index][column] for column in columns]

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        """Some coefficients of some columns."""
        return self.residues[index][list(columns), :, prime, start:stop]

    def content(self) -> list[str]:
        """The ids: no two blocks that were ever encrypted have the same."""
        return list(self.ids)

    def stored_bytes(self) -> int:
        """Bytes of memory."""
        return sum(r.nbytes for r in self.residues)

    def signer(self, index: int) -> Sign | None:
        """The owner's, who encrypted it in this process."""
        return self.signers[index] if self.signers else None


@dataclass(frozen=True)
class StoredBlocks:
    """Blocks that are read from a store when they are needed, and checked then."""

    store: Readable
    entries: tuple[BlockEntry, ...]
    shape: BlockShape
    key_id: str

    @property
    def ids(self) -> tuple[str, ...]:
        """The owner's id of each block."""
        return tuple(entry.id for entry in self.entries)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows each block has."""
        return tuple(entry.rows for entry in self.entries)

    def block(self, index: int) -> Residues:
        """All columns of a block."""
        return read_block(self.store, self.entries[index], self.shape, self.key_id)

    def seeds(self, index: int) -> bytes:
        """What stands for the second polynomials of a block."""
        return read_seeds(self.store, self.entries[index], self.shape)

    def column(self, index: int, column: int) -> Residues:
        """One column of a block, without reading the others."""
        return read_column(self.store, self.entries[index], self.shape, column)

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        """Some columns of a block, without reading more than that where it pays."""
        return list(read_columns(self.store, self.entries[index], self.shape, self.key_id, columns))

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        """Some coefficients of some columns, without reading more than the runs that
        they are in.
        """
        run = self.shape.run
        first, last = start // run, -(-stop // run)
        residues = read_runs(
            self.store,
            self.entries[index],
            self.shape,
            prime=prime,
            runs=range(first, last),
            columns=columns,
        )
        return residues[:, :, start - first * run : stop - first * run]

    def content(self) -> list[str]:
        """The hashes of the objects, which hold their ids."""
        return [entry.sha256 for entry in self.entries]

    def stored_bytes(self) -> int:
        """Bytes of the stored objects."""
        return sum(entry.bytes for entry in self.entries)

    def signer(self, index: int) -> Sign | None:
        """What gives the signature that the manifest lists."""
        signature = self.entries[index].signature
        return (lambda _: signature) if signature else None


class EncryptedTable(ColumnAlgebra[EncryptedVector], Source, Asked):
    """A table under encryption: what the owner hands to anybody who may compute on it.

    Made by ``owner.encrypt(table)``, ``owner.encrypt_file(...)`` or :func:`encryptedstats.load`.
    Variables are known by position or by the ids ``"v0"``, ``"v1"``, ... of the public schema.

    Attributes
    ----------
    schema : PublicSchema
    layout : Layout
        Rows, slots and chunks, as of its clear twin.
    by_others : bool
        Whether rows of it were encrypted with the public keys, by others than the owner: see
        :meth:`accept_others`.
    n_dropped : int
        How many rows were left out, for values that were missing, when it was encrypted: as public
        as the number of rows.
    """

    def __init__(
        self,
        facts: TableFacts,
        blocks: Blocks,
        keys: PublicKeys | Callable[[], PublicKeys] | None,
        private_schema: Schema | None = None,
        *,
        accepted: bool = False,
    ) -> None:
        self.facts = facts
        self._accepted = accepted  # rows by others were asked for
        self._checked = False
        self.blocks = blocks
        self.private_schema = (
            private_schema  # of who encrypted it here, to speak by names; never stored
        )
        self._keys = keys
        self._wanted: tuple[
            str, ...
        ] = ()  # columns that are read when one of them is; all of them if empty
        self._held: tuple[int, dict[str, Residues]] | None = None
        self.schema: PublicSchema = facts.schema
        self._positions = {column: position for position, column in enumerate(facts.columns)}
        self._places = {str(column): position for column, position in self._positions.items()}

    # -- facts
    # --------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> Parameters:
        """The parameters it is encrypted with."""
        return self.facts.parameters

    @property
    def key_id(self) -> str:
        """Whose it is."""
        return self.facts.key_id

    @property
    def by_others(self) -> bool:
        """Whether rows were encrypted with the public keys, by others than the owner. The owner's
        rows are signed.
        """
        return not self.facts.with_secret_key

    def accept_others(self) -> EncryptedTable:
        """The same table, to be computed on although others have encrypted rows of it; as
        ``es.load(url, by_others=True)``.

        Ask for it only where all who contributed are trusted like the secret key, or never see a
        result: whoever forges rows and sees what was computed from them can recover the secret key
        (SECURITY.md).
        """
        return EncryptedTable(
            self.facts, self.blocks, self._keys, self.private_schema, accepted=True
        )

    @property
    def keys(self) -> PublicKeys:
        """The public keys to compute with. Whoever computes asks for them: rows that were not asked
        for are refused here.
        """
        if not self._checked:
            self._check_origin(keys := self.public_keys())
            self._keys, self._checked = keys, True
        return self.public_keys()

    def public_keys(self) -> PublicKeys:
        """The public keys that came with the table, whoever encrypted its rows."""
        if self._keys is None:
            raise KeyMismatchError(
                "this table came without public keys: ",
                Cure("give keys", "es.load(url, keys=...) with those"),
                f" of key {self.key_id}",
            )
        if not isinstance(self._keys, PublicKeys):
            self._keys = _checked_keys(self._keys(), self.facts)
        return self._keys

    def _check_origin(self, keys: PublicKeys | None) -> None:
        """Refuse rows by others unless they were asked for, and rows that only claim to be the
        owner's.
        """
        if self.by_others and not self._accepted:
            raise RowsByOthersError(*ROWS_BY_OTHERS, code="rows-by-others")
        if self.by_others or keys is None or not isinstance(self.blocks, StoredBlocks):
            return
        for entry in self.blocks.entries:
            if not keys.is_signed_by_owner(self.facts.statement(entry), entry.signature):
                raise FileFormatError(
                    f"block {entry.id} of the table at {self.blocks.store.url} is not signed by "
                    f"the owner of key {self.key_id}, "
                    "and the table says that the owner encrypted it: it was forged or altered, do "
                    "not compute on it",
                    code="unsigned-block",
                )

    @property
    def layout(self) -> Layout:
        """Where the rows lie: slots and chunks, public."""
        return Layout(self.n_rows, self.parameters.slots, self.blocks.rows, self.parameters.copies)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.blocks.rows)

    @property
    def n_dropped(self) -> int:
        """Number of rows that were left out, for values that were missing."""
        return self.facts.n_dropped

    @property
    def weight_bound(self) -> int:
        """Return the public bound of the weights of the rows; 1 where they have none."""
        return self.facts.weight_bound

    def __len__(self) -> int:
        return self.n_rows

    @property
    def n_folds(self) -> int:
        """Number of cross-validation folds that were declared at encryption."""
        return self.facts.n_folds

    @property
    def has_target(self) -> bool:
        """Whether the target of every row is inside, be it a class or a number."""
        return any(column.variable == -1 for column in self.facts.columns)

    @property
    def has_classes(self) -> bool:
        """Whether the class of every row is inside."""
        return self.has_target and self.schema.n_classes > 0

    def columns(self) -> list[Column]:
        """The columns that can be asked for: all bins, all classes and whole numbers, however they
        are stored.
        """
        return asked_columns(self.schema, self.facts.columns)

    def holds(self, column: Column) -> bool:
        """Whether the column itself is stored."""
        return column in self._positions

    def bound(self, column: Column) -> int:
        """The largest absolute value the column can hold."""
        return column_bound(self.schema, column, self.facts.weight_bound)

    # -- columns
    # --------------------------------------------------------------------------------------------

    def values(self, column: Column) -> EncryptedVector:
        """One column; from others, where it is not stored but follows from them."""
        self._check_stored(column)
        if not self.holds(column):
            return self._combined({column: 1})
        chunks = [
            self._ciphertext(i, self._positions[column]) for i in range(len(self.blocks.rows))
        ]
        noise = self.parameters.noise.fresh(with_secret_key=self.facts.with_secret_key)
        return EncryptedVector(self.keys, chunks, noise, self.bound(column), 0, self.blocks.rows)

    def _combined(self, weights: Mapping[Column, int]) -> EncryptedVector:
        """Within the largest of its terms: a row is in one bin."""
        bound = max(abs(weight) * self.bound(column) for column, weight in weights.items())
        return super()._combined(weights).within(bound)

    def _whole_numbers(self, position: int) -> EncryptedVector:
        """From their digits, where they are stored so; refused where they are too large for the
        parameters.
        """
        digits = digits_among(self.facts.columns).get(str(Column("number", position)))
        if not digits:
            return super()._whole_numbers(position)
        total, *others = [self.values(Column.parse(key)) * (1 << shift) for shift, key in digits]
        for each in others:
            total = total + each
        vector: EncryptedVector = total
        return vector

    def _ciphertext(self, block: int, position: int) -> Any:
        residues = self.blocks.column(block, position)
        try:
            return ciphertext_of(engine_for(self.parameters), residues)
        except FileFormatError as error:
            raise FileFormatError(f"block {self.blocks.ids[block]}: {error}") from error

    def _check_stored(self, column: Column) -> None:
        check_column(self.schema, column)
        if not self.holds(column) and stored_terms(self.schema, self.holds, column) is None:
            raise SchemaError(
                f"column {column} was not stored when this table was encrypted: it has "
                f"{self._described_columns()}",
                code="column-not-stored",
            )

    # -- circuits
    # --------------------------------------------------------------------------------------------

    @property
    def with_secret_key(self) -> bool:
        """Whether all rows were encrypted with the secret key, hence with less noise."""
        return self.facts.with_secret_key

    def ranges(self) -> dict[str, ColumnRange]:
        """What is publicly known of every stored column."""
        return column_ranges(self.schema, self.facts.columns, self.facts.weight_bound)

    def chunk(self, names: Sequence[str], chunk: int) -> Sequence[Residues]:
        """Some stored columns, by their keys, over one chunk of rows, each of shape (2, primes, N).
        No others are read.
        """
        return self.blocks.columns(chunk, [self._places[name] for name in names])

    def pieces(
        self, names: Sequence[str], chunk: int, prime: int | None, start: int, stop: int
    ) -> Sequence[Residues]:
        """Coefficients from start to stop of some stored columns over one chunk, of one prime or of
        all (then all of them).
        """
        if prime is None:
            return self.chunk(names, chunk)
        columns = self.blocks.pieces(
            chunk, [self._places[name] for name in names], prime, start, stop
        )
        return [column[:, None] for column in columns]

    @property
    def piece_width(self) -> int:
        """Coefficients that can be read without their neighbours."""
        return self.facts.shape.run

    @property
    def content_id(self) -> str:
        """A hash of which rows these are, by whose key, under which columns."""
        names = [str(column) for column in self.facts.columns]
        content = [
            self.key_id,
            self.parameters.fingerprint,
            names,
            list(self.blocks.rows),
            self.blocks.content(),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def residues(self, name: str, chunk: int) -> Residues:
        """One stored column over one chunk of rows. Its neighbours are read with it and kept: they
        will be asked for next.
        """
        held = self._held  # read once: another thread may put its own chunk there meanwhile
        if held is None or held[0] != chunk or name not in held[1]:
            names = self._wanted if name in self._wanted else tuple(map(str, self.facts.columns))
            held = self._held = (chunk, dict(zip(names, self.chunk(names, chunk), strict=True)))
        return held[1][name]

    def _reading(self, names: Sequence[str]) -> EncryptedTable:
        """The same table for a computation that needs only these columns: no others are read."""
        table = EncryptedTable(
            self.facts, self.blocks, self.keys, self.private_schema, accepted=self._accepted
        )
        table._wanted, table._checked = tuple(names), True
        return table

    @property
    def in_memory(self) -> bool:
        """Whether all residues are in memory already."""
        return isinstance(self.blocks, MemoryBlocks)

    def chunk_name(self, chunk: int) -> str:
        """What errors call a chunk of rows."""
        return f"block {self.blocks.ids[chunk]}"

    def evaluate(self, outputs: Sequence[Expression], **options: Any) -> EncryptedNumbers:
        """The encrypted totals of a circuit; checked, before anything is computed, to fit the
        parameters.

        Options are those of :func:`encryptedstats.circuits.evaluate.evaluate`: ``form``,
        ``workers``, ``progress``, ``device`` ("auto", "native" or "seal"), ``memory_limit`` and
        ``checkpoint``.
        """
        outputs, stored = self.facts.totals(outputs, self.layout, options.get("form", PACKED))
        names = column_names(outputs)
        for name in names:
            self._check_stored(Column.parse(name))
        try:
            totals = evaluate(outputs, self._reading(names), **options).in_parts(stored)
        except (NoiseError, TooLargeError) as error:
            raise type(error)(error, ". ", self._cure(outputs)) from None
        totals.schema_digest = self.facts.schema_digest
        return totals

    def _cure(self, outputs: Sequence[Expression]) -> str | ParameterError:
        """Which parameters a circuit would take, for who has to encrypt again."""
        try:
            made = plan_stages(
                [Stage(list(outputs), self.n_rows)],
                self.ranges(),
                Wish(with_secret_key=self.with_secret_key),
                times=Times.unknown(),
            )
        except ParameterError as error:
            return error
        return f"It would take {made.parameters!r}"

    def _variable(self, variable: str | int) -> tuple[int, PublicVariable]:
        position = (self.private_schema or self.schema).index(variable)
        return position, self.schema.variables[position]

    def _position(self, variable: str | int) -> int:
        return class_or_variable(variable, self.private_schema or self.schema)

    def ask(self, question: Question, **options: Any) -> Any:
        """The encrypted answer to a question: an :class:`EncryptedAnswer`, or a model. Options are
        those of :meth:`evaluate`.

        Variables go by id, ``v0`` and so on; by name only where the table was encrypted in this
        process, by its owner.
        """
        asked = asked_of(checked_question(question), self.private_schema or self.schema).settled()
        return asked.present(self.answer_to(asked, **options))

    def answer_to(self, asked: Question, **options: Any) -> Answer:
        """Return the encrypted answer to a question in ids, whatever its question makes of it."""
        return self.with_totals(asked, self.totals(asked, **options))

    def with_totals(self, asked: Question, totals: EncryptedNumbers) -> Answer:
        """Return the encrypted answer that totals over all rows are."""
        return Answer(
            asked,
            totals,
            self.private_schema or self.schema,
            self.n_rows,
            self.blocks.ids,
            n_dropped=self.n_dropped,
            weight_bound=self.weight_bound,
        )

    def totals(self, question: Question, **options: Any) -> EncryptedNumbers:
        """The encrypted totals that answer a question, one after the other. Options: as of
        :meth:`evaluate`.
        """
        return self.evaluate(self.facts.written(question), **options)

    def _described_columns(self) -> str:
        encodings = sorted({column.encoding for column in self.facts.columns})
        return f"{len(self.facts.columns)} columns of the encodings {', '.join(encodings)}"

    # -- joining and storing
    # ---------------------------------------------------------------------------------------

    def append(self, more: EncryptedTable) -> EncryptedTable:
        """This table with the rows of another behind its own. A stored table grows where it is
        stored, at once or not at all.

        Refused unless keys, parameters, schema and columns are the same, and for a block of rows
        that is in it already. A stored table has one writer at a time: others wait for up to a
        minute. Rows that somebody has appended since it was opened stay, and are in what is
        returned; a table that was replaced meanwhile is refused. Rows that the owner encrypted
        twice are noticed where whole blocks of them are the same; rows by others are not.
        """
        if not isinstance(more, EncryptedTable):
            raise ArgumentTypeError(
                f"only an EncryptedTable can be appended, not {type(more).__name__}: encrypt the "
                "rows first",
                code="not-an-encrypted-table",
            )
        self._check_appendable(more)
        known = next((table for table in (self, more) if table._keys is not None), None)
        for table in (self, more):
            table._check_origin(None if known is None else known.public_keys())
        if isinstance(self.blocks, StoredBlocks):
            return self._append_stored(self.blocks, more)
        ids = (*self.blocks.ids, *more.blocks.ids)
        rows = (*self.blocks.rows, *more.blocks.rows)
        places = [(t.blocks, i) for t in (self, more) for i in range(len(t.blocks.rows))]
        parts = ((blocks.block(i), blocks.signer(i), blocks.seeds(i)) for blocks, i in places)
        joined, accepted = (
            MemoryBlocks(ids, rows, *zip(*parts, strict=True)),
            self._accepted or more._accepted,
        )
        return EncryptedTable(
            self._joined_facts(more), joined, self._keys, self.private_schema, accepted=accepted
        )

    def _joined_facts(self, more: EncryptedTable) -> TableFacts:
        return replace(
            self.facts,
            with_secret_key=self.facts.with_secret_key and more.facts.with_secret_key,
            schema_digest=join_digests(self.facts.schema_digest, more.facts.schema_digest),
            n_dropped=self.n_dropped + more.n_dropped,
        )

    def _append_stored(self, blocks: StoredBlocks, more: EncryptedTable) -> EncryptedTable:
        store = open_store(blocks.store.url)
        with write_alone(store, wait=APPEND_SECONDS) as writer:
            store.sweep()
            manifest = _manifest_bytes(store)
            facts, entries = read_manifest(store, manifest)
            if entries[: len(blocks.entries)] != blocks.entries:
                raise FileFormatError(
                    f"the table at {store.url} is no longer the one that was opened, it was "
                    "replaced: es.load() it again",
                    code="table-replaced",
                )
            now = EncryptedTable(
                facts,
                replace(blocks, entries=entries),
                self._keys,
                self.private_schema,
                accepted=self._accepted,
            )
            now._check_appendable(more)
            facts = now._joined_facts(more)
            entries += _store_blocks(store, more, first=len(entries))
            writer.check()
            if not store.replace(MANIFEST, manifest, manifest_bytes(facts, entries)):
                raise FileFormatError(
                    f"the table at {store.url} was changed while rows were appended; these are "
                    "not in it: append them again",
                    code="table-changed",
                )
        blocks, accepted = replace(blocks, entries=entries), self._accepted or more._accepted
        return EncryptedTable(facts, blocks, self._keys, self.private_schema, accepted=accepted)

    def _check_appendable(self, more: EncryptedTable) -> None:
        if more.key_id != self.key_id or more.parameters != self.parameters:
            raise KeyMismatchError(
                f"rows of key {more.key_id} cannot be appended to a table of key {self.key_id}",
                code="other-key",
            )
        if more.schema != self.schema or more.facts.columns != self.facts.columns:
            raise SchemaError(
                "only rows of the same schema, with the same columns stored, can be appended",
                code="different-schemas",
            )
        if (more.n_folds, more.facts.weight_bound) != (self.n_folds, self.facts.weight_bound):
            raise SchemaError(
                "only rows with the same number of folds and the same bound of weights can be "
                "appended",
                code="different-folds-or-weights",
            )
        twice = same_rows(self.blocks.ids, more.blocks.ids)
        if twice is not None:
            raise SchemaError(
                f"block {twice} is in this table already: its rows would count twice",
                code="block-already-included",
            )

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Store the table, and the public keys to compute with, under a path or fsspec URL. The
        manifest is written last.
        """
        store = open_store(url)
        if store.exists(MANIFEST) and not overwrite:
            raise table_is_there(store)
        with write_alone(store) as writer:
            store.sweep()
            entries = _store_blocks(store, self)
            if self._keys is not None:
                write_keys(store, self.public_keys())
            writer.check()
            write_manifest(store, self.facts, entries, overwrite=overwrite)
            writer.check()
            remove_unlisted(store, self.facts, entries)

    @classmethod
    def load(
        cls, url: str | os.PathLike[str], keys: PublicKeys | None = None, *, by_others: bool = False
    ) -> EncryptedTable:
        """Open a stored table. Blocks are read, and checked, when they are needed.

        A table with rows that others have encrypted with the public keys is computed on only with
        ``by_others=True``: see
        :meth:`accept_others`.
        """
        store = open_store(url)
        facts, entries = retry_read(store, lambda: read_manifest(store, _manifest_bytes(store)))
        blocks = StoredBlocks(store, entries, facts.shape, facts.key_id)
        if keys is not None:
            return cls(facts, blocks, _checked_keys(keys, facts), accepted=by_others)
        name = keys_name(facts.key_id)
        stored = (lambda: _stored_keys(store, name)) if store.exists(name) else None
        return cls(facts, blocks, stored, accepted=by_others)

    # -- showing
    # --------------------------------------------------------------------------------------------

    def info(self) -> TableInfo:
        """Rows, columns, bytes, parameters, and that no secret key is inside."""
        return TableInfo(self)

    def __repr__(self) -> str:
        return (
            f"EncryptedTable({self.n_rows:,} rows, {len(self.schema.variables)} variables, "
            f"{len(self.facts.columns)} columns, "
            f"{len(self.blocks.rows)} blocks, {_megabytes(self.blocks.stored_bytes())}, key "
            f"{self.key_id})"
        )

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "an EncryptedTable is not pickled: save() it and es.load() it where it is needed",
            code="not-pickled",
        )


@lru_cache(maxsize=8)  # as circuits are that were prepared
def _computed(
    outputs: tuple[Expression, ...], facts: TableFacts, layout: Layout, form: str
) -> tuple[tuple[Expression, ...], tuple[Stored, ...]]:
    single, shifts = in_stored(outputs, facts.schema, facts.columns)
    base = facts.parameters.pair_base
    if base is not None and form == PACKED and len(single) == len(outputs):
        paired = tuple(in_stored(join_pairs(outputs, base), facts.schema, facts.columns)[0])
        ranges = column_ranges(facts.schema, facts.columns, facts.weight_bound)
        setting = Setting(facts.parameters, layout, facts.with_secret_key)
        stored = prove_pairs(single, paired, setting, ranges)
        if stored is not None:
            return paired, tuple(stored)
    return tuple(single), tuple(map(Stored, shifts))


class TableInfo:
    """What can be said of an encrypted table without a key; prints as a small table, ``to_dict``
    for programs.
    """

    def __init__(self, table: EncryptedTable) -> None:
        self._table = table

    def to_dict(self) -> dict[str, Any]:
        """The facts, ready for JSON."""
        table = self._table
        kinds: dict[str, int] = {}
        for variable in table.schema.variables:
            kinds[variable.kind] = kinds.get(variable.kind, 0) + 1
        size = table.blocks.stored_bytes()
        return {
            "rows": table.n_rows,
            "rows_left_out": table.n_dropped,
            "variables": kinds,
            "classes": table.schema.n_classes if table.has_classes else 0,
            "folds": table.n_folds,
            "columns": len(table.facts.columns),
            "blocks": len(table.blocks.rows),
            "slots": table.parameters.slots,
            "bytes": size,
            "bytes_per_value": round(size / max(1, table.n_rows * len(table.facts.columns)), 2),
            "stored": isinstance(table.blocks, StoredBlocks),
            "key_id": table.key_id,
            "encrypted_with": "secret key" if table.facts.with_secret_key else "public key",
            "by_others": table.by_others,
            "secret_key_inside": False,
            "parameters": table.parameters.to_dict(),
            "security": table.parameters.security,
        }

    def __str__(self) -> str:
        facts = self.to_dict()
        kinds = ", ".join(f"{count} {kind}" for kind, count in facts["variables"].items())
        lines = [
            f"rows        {facts['rows']:,} in {facts['blocks']} blocks of up to "
            f"{facts['slots']:,}",
            f"variables   {kinds}",
            f"classes     {facts['classes'] or 'none (rows to predict)'}",
            f"columns     {facts['columns']}",
            f"size        {_megabytes(facts['bytes'])}, {facts['bytes_per_value']} bytes a value"
            f" {'stored' if facts['stored'] else 'in memory'}",
            f"key         {facts['key_id']}, encrypted with the {facts['encrypted_with']}; no "
            "secret key is inside",
            str(self._table.parameters),
        ]
        if facts["rows_left_out"]:
            lines.insert(
                1,
                f"left out    {facts['rows_left_out']:,} rows with missing values, when it was "
                "encrypted",
            )
        if facts["by_others"]:
            lines.insert(-1, "by others   " + BY_OTHERS_FACT)
        if facts["folds"]:
            lines.insert(-4, f"folds       {facts['folds']}")
        return "Encrypted table\n" + "\n".join("  " + line for line in "\n".join(lines).split("\n"))

    __repr__ = __str__


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


# -- stored form
# ------------------------------------------------------------------------------------------------


def _store_blocks(store: Store, table: EncryptedTable, first: int = 0) -> tuple[BlockEntry, ...]:
    entries = []
    for index, (block_id, rows) in enumerate(zip(table.blocks.ids, table.blocks.rows, strict=True)):
        seeds, residues = table.blocks.seeds(index), table.blocks.block(index)
        shape = replace(table.facts.shape, seeded=bool(seeds))
        stored = residues[:, : shape.components]
        data = block_bytes(stored, shape, BlockRows(block_id, rows, table.key_id), seeds=seeds)
        entry = store_block(store, data, block_name(first + index, block_id), shape, rows)
        sign = table.blocks.signer(index)
        entries.append(
            replace(entry, signature="" if sign is None else sign(table.facts.statement(entry)))
        )
    return tuple(entries)


def facts_to_container(
    facts: TableFacts, kind: str, extra: dict[str, Any], sections: dict[str, bytes]
) -> Container:
    """The facts of a table as a checked envelope: the manifest of a whole table, or the draft of
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
    """The inverse, with every check: the file may come from anybody."""
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
    groups = _groups(schema, columns, n_folds, digit_bits, weighed=weighed)
    if not columns or list(columns) != [column for group in groups for column in group.columns]:
        raise FileFormatError(
            "a list of columns that does not fit the schema and the folds",
            code="columns-not-of-schema",
        )


def _groups(
    schema: PublicSchema,
    columns: Sequence[Column],
    n_folds: int,
    digit_bits: int | None,
    *,
    weighed: bool,
) -> list[ColumnGroup]:
    """How columns such as these are coded."""
    return stored_groups(
        schema,
        encoding_choices(columns),
        classes=any(column.variable == -1 for column in columns),
        n_folds=n_folds,
        digit_bits=digit_bits,
        weighed=weighed,
    )


def write_manifest(
    store: Store, facts: TableFacts, entries: Sequence[BlockEntry], *, overwrite: bool
) -> None:
    """The last thing that is written of a table: with it, the table exists. Not over another one,
    unless asked to.
    """
    data = manifest_bytes(facts, entries)
    if overwrite:
        store.write(MANIFEST, [data])
    elif not store.create(MANIFEST, data):
        raise table_is_there(store)


def manifest_bytes(facts: TableFacts, entries: Sequence[BlockEntry]) -> bytes:
    """What is publicly known of a table, and its list of blocks."""
    blocks = json.dumps([entry.to_dict() for entry in entries]).encode()
    return container.to_bytes(facts_to_container(facts, TABLE_KIND, {}, {"blocks": blocks}))


def table_is_there(store: Store) -> ExistsError:
    """The refusal to replace a table."""
    return ExistsError(
        f"there is a table at {store.url} already; it was not touched (",
        REPLACE,
        " replaces it)",
        code="already-exists",
    )


def read_manifest(store: Readable, data: bytes) -> tuple[TableFacts, tuple[BlockEntry, ...]]:
    """What a manifest says of the table in a store, checked."""
    where = store.where(MANIFEST)
    file = container.from_bytes(data, kind=TABLE_KIND, name=where)
    with _named(where):
        facts = facts_from_container(file)
        return facts, _listed_blocks(file, facts.shape)


def _manifest_bytes(store: Store) -> bytes:
    where = store.where(MANIFEST)
    try:
        return store.read(MANIFEST, limit=MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{where} is not there: no encrypted table lies at {store.url}, or it was not finished"
        ) from None


def _listed_blocks(file: Container, shape: BlockShape) -> tuple[BlockEntry, ...]:
    listed = file.read_list("blocks")
    if not listed:
        raise FileFormatError("no blocks are listed", code="no-blocks")
    entries = tuple(BlockEntry.from_dict(values, shape) for values in listed)
    if len({entry.id for entry in entries}) != len(entries):
        raise FileFormatError("a block is listed twice", code="duplicate-blocks")
    return entries


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Errors about what a file says, with the name of the file."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from error


def remove_unlisted(store: Store, facts: TableFacts, entries: Sequence[BlockEntry]) -> None:
    """Blocks and keys of a table that was replaced, or of an attempt that was given up; nothing
    else that may lie there.
    """
    kept = {keys_name(facts.key_id), *(entry.name for entry in entries)}
    for name in store.names():
        if name not in kept and (block_id_of(name) is not None or _KEYS_NAME.fullmatch(name)):
            store.delete(name)


def write_keys(store: Store, keys: PublicKeys) -> None:
    """Public keys beside the blocks, for whoever computes."""
    store.write(keys_name(keys.key_id), [container.to_bytes(keys.to_container())])


def _stored_keys(store: Store, name: str) -> PublicKeys:
    where = store.where(name)
    file = retry_read(
        store, lambda: container.from_bytes(store.read(name), kind=PUBLIC_KIND, name=where)
    )
    with _named(where):
        return PublicKeys.from_container(file)


def _checked_keys(keys: PublicKeys, facts: TableFacts) -> PublicKeys:
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


@decrypt_value.register(EncryptedTable)
def _refuse_whole_table(table: EncryptedTable, decryptor: Decryptor, **options: Any) -> NoReturn:
    raise ArgumentTypeError(
        "a table is not opened as a whole, it is what you encrypted: decrypt what was computed "
        "from it, or a single column, "
        "owner.open(table.values(column))",
        code="whole-table-decryption",
    )
