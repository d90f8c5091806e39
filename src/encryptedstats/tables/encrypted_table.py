"""The encrypted table: the columns and layout of its clear twin, readable by nobody but the owner.

It is a list of blocks (one for each chunk of rows) that lie in memory or in a store, and what a
worker may know: the public schema, which columns there are, how many rows each block has. Whatever
is asked of it beyond stored columns follows by additions, from the code it shares with the clear
table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from encryptedstats.arrays.vectors import EncryptedVector
from encryptedstats.circuits.cost import OperationTimes
from encryptedstats.circuits.evaluate import evaluate
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.plan import plan_stages
from encryptedstats.circuits.program import SLOTS
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.circuits.search import Stage, Wish
from encryptedstats.crypto import Parameters, PublicKeys
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.encryption import Decryptor, join_digests
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.residues import ciphertext_of
from encryptedstats.errors import (
    ArgumentTypeError,
    Cure,
    FileFormatError,
    KeyMismatchError,
    NoiseError,
    ParameterError,
    RowsByOthersError,
    SchemaError,
    TooLargeError,
)
from encryptedstats.storage.leases import write_alone
from encryptedstats.storage.objects import Store, open_store, retry_read
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.blocks import (
    BlockEntry,
    BlockRows,
    block_bytes,
    block_name,
    same_rows,
    store_block,
)
from encryptedstats.tables.columns import (
    ColumnAlgebra,
    check_column,
    column_bound,
    digits_among,
    list_question_columns,
    stored_terms,
)
from encryptedstats.tables.encodings import Column, encoding_of, store_too
from encryptedstats.tables.facts import (
    Blocks,
    MemoryBlocks,
    StoredBlocks,
    TableFacts,
    TableSource,
)
from encryptedstats.tables.manifest import (
    MANIFEST,
    check_keys,
    keys_name,
    manifest_bytes,
    read_manifest,
    read_manifest_bytes,
    read_stored_keys,
    remove_unlisted,
    table_is_there,
    write_keys,
    write_manifest,
)
from encryptedstats.tables.questions.question import (
    Question,
    check_question,
    prepare_question,
)
from encryptedstats.tables.questions.summaries import Asked
from encryptedstats.tables.schema.names import class_or_variable
from encryptedstats.tables.schema.variables import PublicSchema, PublicVariable

if TYPE_CHECKING:
    from encryptedstats.tables.schema.schema import Schema

ROWS_BY_OTHERS: Final = (
    "contributors encrypted rows of this table with the public keys, and a contributor who forges "
    "rows and sees a decrypted result can recover the secret key. If you trust all of them with "
    "the key, or none of them sees results, accept the rows: ",
    Cure(
        "accept contributors",
        "es.load(url, by_others=True), or table.accept_others() for a table that was made here",
    ),
)
BY_OTHERS_FACT: Final = (
    "yes: contributors encrypted rows with the public keys; they must be accepted explicitly"
)
APPEND_SECONDS: Final = 60.0  # to wait for another writer of the table


class EncryptedTable(ColumnAlgebra[EncryptedVector], Asked):
    """A table under encryption, which its owner gives to a worker.

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
        # The owner's, where rows were encrypted in this process, for names; never stored.
        self.private_schema = private_schema
        self._keys = keys
        self.schema: PublicSchema = facts.schema
        self._positions = {column: position for position, column in enumerate(facts.columns)}

    # -- facts -------------------------------------------------------------------------------------

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
        """Return the table with rows of contributors accepted, like ``es.load(url,
        by_others=True)``.

        A contributor who forges rows and sees a result that was computed from them can recover the
        secret key (SECURITY.md). So accept rows only if all contributors are trusted with the key,
        or none of them sees a result.
        """
        return EncryptedTable(
            self.facts, self.blocks, self._keys, self.private_schema, accepted=True
        )

    @property
    def keys(self) -> PublicKeys:
        """The public keys to compute with; rows of contributors must have been accepted before."""
        if not self._checked:
            self._check_origin(keys := self.public_keys())
            self._keys, self._checked = keys, True
        return self.public_keys()

    def public_keys(self) -> PublicKeys:
        """Return the public keys that came with the table, also where others encrypted its rows."""
        if self._keys is None:
            raise KeyMismatchError(
                "this table came without public keys: ",
                Cure("give keys", "es.load(url, keys=...) with those"),
                f" of key {self.key_id}",
            )
        if not isinstance(self._keys, PublicKeys):
            self._keys = check_keys(self._keys(), self.facts)
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
        """Positions of the rows: slots and chunks, which are public."""
        return self.facts.layout(self.blocks)

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
        """Whether the target of every row is stored, a class or a number."""
        return any(column.variable == -1 for column in self.facts.columns)

    @property
    def has_classes(self) -> bool:
        """Whether the class of every row is inside."""
        return self.has_target and self.schema.n_classes > 0

    def columns(self) -> list[Column]:
        """Return the columns that can be asked for: all bins, all classes and whole numbers,
        however they are stored.
        """
        return list_question_columns(self.schema, self.facts.columns)

    def holds(self, column: Column) -> bool:
        """Return whether the column itself is stored."""
        return column in self._positions

    def bound(self, column: Column) -> int:
        """Return the largest absolute value the column can hold."""
        return column_bound(self.schema, column, self.facts.weight_bound)

    # -- columns -----------------------------------------------------------------------------------

    def values(self, column: Column) -> EncryptedVector:
        """Return one column, derived from others if it is not stored."""
        self._check_stored(column)
        if not self.holds(column):
            return self._combine({column: 1})
        chunks = [
            self._ciphertext(i, self._positions[column]) for i in range(len(self.blocks.rows))
        ]
        noise = self.parameters.noise.fresh(with_secret_key=self.facts.with_secret_key)
        return EncryptedVector(self.keys, chunks, noise, self.bound(column), 0, self.blocks.rows)

    def _combine(self, weights: Mapping[Column, int]) -> EncryptedVector:
        # A row is in one bin, so the largest term is the bound.
        bound = max(abs(weight) * self.bound(column) for column, weight in weights.items())
        return super()._combine(weights).within(bound)

    def _whole_numbers(self, position: int) -> EncryptedVector:
        """Combine digits where numbers are stored so; refuse numbers too large for the
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
                f"{self._described_columns()}; ",
                store_too(column, self._stored_encodings()),
                code="column-not-stored",
            )

    # -- circuits ----------------------------------------------------------------------------------

    def source(self, names: Sequence[str] = ()) -> TableSource:
        """Return what devices read: the stored columns with these keys, by default all."""
        return TableSource(self.facts, self.blocks, self.keys, tuple(names))

    def evaluate(self, outputs: Sequence[Expression], **options: Any) -> EncryptedNumbers:
        """Compute the encrypted totals of a circuit, after a check that they fit the parameters.

        Options are those of :func:`encryptedstats.circuits.evaluate.evaluate`: ``form``,
        ``workers``, ``progress``, ``device`` ("auto", "native" or "seal"), ``memory_limit`` and
        ``checkpoint``.
        """
        form = options.setdefault("form", self.facts.form)
        self._check_lanes(form, options)
        outputs, stored = self.facts.totals(outputs, self.layout, form)
        names = column_names(outputs)
        for name in names:
            self._check_stored(Column.parse(name))
        try:
            totals = evaluate(outputs, self.source(names), **options).in_parts(stored)
        except (NoiseError, TooLargeError) as error:
            raise type(error)(error, ". ", self._cure(outputs)) from None
        totals.schema_digest = self.facts.schema_digest
        return totals

    def _check_lanes(self, form: str, options: Mapping[str, Any]) -> None:
        """Refuse what has no meaning where totals stay in the slots, lane by lane."""
        if self.schema.lanes > 1 and (form != SLOTS or options.get("flood")):
            raise SchemaError(
                "totals of a genome table stay in the slots, one for each variant: they are for "
                "the owner of all rows, and are neither packed nor flooded",
                code="lanes-not-packed",
            )

    def _cure(self, outputs: Sequence[Expression]) -> str | ParameterError:
        """Say which parameters a circuit would take, to encrypt the rows again."""
        try:
            made = plan_stages(
                [Stage(list(outputs), self.n_rows, form=self.facts.form, lanes=self.schema.lanes)],
                self.facts.ranges(),
                Wish(with_secret_key=self.facts.with_secret_key),
                times=OperationTimes.unknown(),
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
        """Compute the encrypted answer to a question: an :class:`EncryptedAnswer`, or a model.

        Options are those of :meth:`evaluate`.

        Variables go by id, ``v0`` and so on; by name only where the table was encrypted in this
        process, by its owner.
        """
        asked = prepare_question(
            check_question(question), self.private_schema or self.schema
        )._fix_seed()
        return asked._present(self._answer_to(asked, **options))

    def _answer_to(self, asked: Question, **options: Any) -> Answer:
        """Return the encrypted answer to a question in ids, whatever its question makes of it."""
        return self._with_totals(asked, self.totals(asked, **options))

    def _with_totals(self, asked: Question, totals: EncryptedNumbers) -> Answer:
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
        """Compute the encrypted totals that answer a question.

        Options are those of :meth:`evaluate`.
        """
        return self.evaluate(self.facts.write_circuit(question), **options)

    def _stored_encodings(self) -> list[str]:
        """Return the choices of ``encodings=`` that this table was encrypted with."""
        chosen = (encoding_of(column).stored_as for column in self.facts.columns)
        return list(dict.fromkeys(name for name in chosen if name is not None))

    def _described_columns(self) -> str:
        encodings = sorted({column.encoding for column in self.facts.columns})
        return f"{len(self.facts.columns)} columns of the encodings {', '.join(encodings)}"

    # -- joining and storing -----------------------------------------------------------------------

    def append(self, more: EncryptedTable) -> EncryptedTable:
        """Append the rows of another table.

        A stored table grows where it is stored, at once or not at all.

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
            manifest = read_manifest_bytes(store)
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
        facts, entries = retry_read(store, lambda: read_manifest(store, read_manifest_bytes(store)))
        blocks = StoredBlocks(store, entries, facts.shape, facts.key_id)
        if keys is not None:
            return cls(facts, blocks, check_keys(keys, facts), accepted=by_others)
        name = keys_name(facts.key_id)
        stored = (lambda: read_stored_keys(store, name)) if store.exists(name) else None
        return cls(facts, blocks, stored, accepted=by_others)

    # -- showing -----------------------------------------------------------------------------------

    def info(self) -> TableInfo:
        """Return rows, columns, bytes and parameters, and that no secret key is inside."""
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


class TableInfo:
    """What is known of an encrypted table without a key. Prints as a small table."""

    def __init__(self, table: EncryptedTable) -> None:
        self._table = table

    def to_dict(self) -> dict[str, Any]:
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
            f"{self._table.layout.size_text}",
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


# -- stored form -----------------------------------------------------------------------------------


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


@decrypt_value.register(EncryptedTable)
def _refuse_whole_table(table: EncryptedTable, decryptor: Decryptor, **options: Any) -> NoReturn:
    raise ArgumentTypeError(
        "a table is not opened as a whole, it is what you encrypted: decrypt what was computed "
        "from it, or a single column, "
        "owner.open(table.values(column))",
        code="whole-table-decryption",
    )
