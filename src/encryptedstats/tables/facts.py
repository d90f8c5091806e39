"""What is publicly known of an encrypted table: facts, blocks, and the source that devices read.

Nothing here writes a table or asks a question.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.expressions import Expression
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.lowering import Setting
from encryptedstats.circuits.passes.digits import Stored
from encryptedstats.circuits.passes.pairs import join_pairs, prove_pairs
from encryptedstats.circuits.program import PACKED, SLOTS
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto import Parameters, PublicKeys
from encryptedstats.storage.objects import Readable
from encryptedstats.tables.blocks import (
    BlockEntry,
    BlockFacts,
    BlockShape,
    Residues,
    block_statement,
    read_block,
    read_column,
    read_columns,
    read_runs,
    read_seeds,
)
from encryptedstats.tables.columns import (
    column_ranges,
    encoding_choices,
    list_question_columns,
    rewrite_in_stored,
    stored_groups,
)
from encryptedstats.tables.encodings import Column, ColumnGroup
from encryptedstats.tables.questions.question import (
    Question,
    question_key,
    rebuild_question,
)
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    pass


TABLE_VERSION: Final = 3


@lru_cache(maxsize=8)
def _write_circuit(
    kind: type[Question],
    parameters: str,
    schema: PublicSchema,
    columns: tuple[Column, ...],
    bound: int,
) -> tuple[Expression, ...]:
    """Write the totals of a question; cached, because it takes long in Python."""
    question = kind._from_parameters(json.loads(parameters))
    return tuple(
        question.circuit(schema, list_question_columns(schema, columns), weight_bound=bound)
    )


@dataclass(frozen=True)
class TableFacts:
    """The public facts of an encrypted table, apart from its blocks."""

    parameters: Parameters
    key_id: str
    schema: PublicSchema
    columns: tuple[Column, ...]
    weight_bound: int
    n_folds: int
    with_secret_key: bool
    #: A keyed digest by which the owner recognises the private schema; None for contributors.
    schema_digest: str | None = None
    n_dropped: int = 0  # rows that were left out before encryption because of missing values

    @property
    def shape(self) -> BlockShape:
        """Shape of a block that is stored whole; each block says whether it is."""
        return BlockShape(self.parameters, len(self.columns))

    @property
    def form(self) -> str:
        """Form in which totals are computed: with several lanes, they stay in the slots."""
        return SLOTS if self.schema.lanes > 1 else PACKED

    @property
    def groups(self) -> list[ColumnGroup]:
        """The columns, variable by variable, and how they are coded."""
        return column_groups(
            self.schema,
            self.columns,
            self.n_folds,
            self.parameters.digit_bits,
            weighed=self.weight_bound > 1,
        )

    def layout(self, blocks: Blocks) -> Layout:
        """Return the layout of the rows of some blocks."""
        return self.layout_of(blocks.rows)

    def layout_of(self, rows: Sequence[int]) -> Layout:
        """Return the layout of blocks of these sizes."""
        parameters, lanes = self.parameters, self.schema.lanes
        return Layout(sum(rows), parameters.slots, tuple(rows), parameters.copies, lanes)

    def ranges(self) -> dict[str, ColumnRange]:
        """Return the public range of every stored column."""
        return column_ranges(self.schema, self.columns, self.weight_bound)

    def circuit(self, question: Question, layout: Layout) -> tuple[list[Expression], list[Stored]]:
        """Return the totals to compute for a question, and how they relate to the
        requested ones.
        """
        return self.totals(self.write_circuit(question), layout, self.form)

    def write_circuit(self, question: Question) -> list[Expression]:
        """Write the totals of a question as it asks for them; the latest are cached."""
        settled = question._fix_seed()
        rebuilt = rebuild_question(settled)
        if rebuilt is not None:
            return list(
                _write_circuit(*question_key(rebuilt), self.schema, self.columns, self.weight_bound)
            )
        asked = list_question_columns(self.schema, self.columns)
        return settled.circuit(self.schema, asked, weight_bound=self.weight_bound)

    def totals(
        self, outputs: Sequence[Expression], layout: Layout, form: str = PACKED
    ) -> tuple[list[Expression], list[Stored]]:
        """Return the totals over stored columns to compute for requested ones, and their relation.

        Packs hold pairs if the keys were planned for it and it is proven for these rows.
        """
        known = replace(self, key_id="", schema_digest=None, n_dropped=0)  # nothing else tells
        found, stored = _compute_circuit(tuple(outputs), known, layout, form)
        return list(found), list(stored)

    def statement(self, block: BlockFacts) -> bytes:
        """Return what the owner signs of one of its blocks."""
        columns = [str(column) for column in self.columns]
        return block_statement(
            block, TABLE_VERSION, columns, self.weight_bound, self.schema.to_json()
        )


Sign = Callable[[bytes], str]


class Blocks(Protocol):
    """The blocks of a table, in memory or in a store."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The owner's id of each block."""

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of rows in each block."""

    def block(self, index: int) -> Residues:
        """Return all columns of a block, shape (columns, 2, primes, N)."""

    def seeds(self, index: int) -> bytes:
        """Return what stands for the second polynomials of a stored block; nothing if it is stored
        whole.
        """

    def column(self, index: int, column: int) -> Residues:
        """Return one column of a block, shape (2, primes, N)."""

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        """Return some columns of a block."""

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        """Return some columns of a block, one prime and the coefficients from start to stop; shape
        (columns, 2, coefficients).
        """

    def content(self) -> list[str]:
        """Return what tells these blocks from all others."""

    def stored_bytes(self) -> int:
        """Return bytes that the blocks take where they are."""

    def signer(self, index: int) -> Sign | None:
        """Return the function that gives the owner's signature of a block; None where others
        encrypted it.
        """


@dataclass(frozen=True)
class MemoryBlocks:
    """Blocks held as arrays."""

    ids: tuple[str, ...]
    rows: tuple[int, ...]
    residues: tuple[Residues, ...]
    signers: tuple[Sign | None, ...] = field(default=(), repr=False)
    seeding: tuple[bytes, ...] = field(default=(), repr=False)

    def block(self, index: int) -> Residues:
        return self.residues[index]

    def seeds(self, index: int) -> bytes:
        return self.seeding[index] if self.seeding else b""

    def column(self, index: int, column: int) -> Residues:
        one: Residues = self.residues[index][column]
        return one

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        """Return some columns of a block, not copied."""
        return [self.residues[index][column] for column in columns]

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        return self.residues[index][list(columns), :, prime, start:stop]

    def content(self) -> list[str]:
        return list(self.ids)

    def stored_bytes(self) -> int:
        return sum(r.nbytes for r in self.residues)

    def signer(self, index: int) -> Sign | None:
        return self.signers[index] if self.signers else None


@dataclass(frozen=True)
class StoredBlocks:
    """Blocks that are read from a store, and checked, when they are needed."""

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
        """Number of rows in each block."""
        return tuple(entry.rows for entry in self.entries)

    def block(self, index: int) -> Residues:
        return read_block(self.store, self.entries[index], self.shape, self.key_id)

    def seeds(self, index: int) -> bytes:
        return read_seeds(self.store, self.entries[index], self.shape)

    def column(self, index: int, column: int) -> Residues:
        return read_column(self.store, self.entries[index], self.shape, column)

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        """Return some columns of a block, without reading more than that where it pays."""
        return read_columns(self.store, self.entries[index], self.shape, self.key_id, columns)

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        """Return some coefficients of some columns; read only the runs that they are in."""
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
        return [entry.sha256 for entry in self.entries]

    def stored_bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    def signer(self, index: int) -> Sign | None:
        signature = self.entries[index].signature
        return (lambda _: signature) if signature else None


@lru_cache(maxsize=8)
def _compute_circuit(
    outputs: tuple[Expression, ...], facts: TableFacts, layout: Layout, form: str
) -> tuple[tuple[Expression, ...], tuple[Stored, ...]]:
    single, shifts = rewrite_in_stored(outputs, facts.schema, facts.columns)
    base = facts.parameters.pair_base
    if base is not None and form == PACKED and len(single) == len(outputs):
        paired = tuple(rewrite_in_stored(join_pairs(outputs, base), facts.schema, facts.columns)[0])
        ranges = column_ranges(facts.schema, facts.columns, facts.weight_bound)
        setting = Setting(facts.parameters, layout, facts.with_secret_key)
        stored = prove_pairs(single, paired, setting, ranges)
        if stored is not None:
            return paired, tuple(stored)
    return tuple(single), tuple(map(Stored, shifts))


def column_groups(
    schema: PublicSchema,
    columns: Sequence[Column],
    n_folds: int,
    digit_bits: int | None,
    *,
    weighed: bool,
) -> list[ColumnGroup]:
    """Return how columns such as these are coded."""
    return stored_groups(
        schema,
        encoding_choices(columns),
        classes=any(column.variable == -1 for column in columns),
        n_folds=n_folds,
        digit_bits=digit_bits,
        weighed=weighed,
    )


class TableSource(Source):
    """The stored columns of a table as devices read them, chunk by chunk.

    When one of the columns ``names`` is read, all of these are; all columns if there are no names.
    """

    def __init__(
        self, facts: TableFacts, blocks: Blocks, keys: PublicKeys, names: tuple[str, ...] = ()
    ) -> None:
        self.facts, self.blocks = facts, blocks
        self._keys, self._names = keys, names
        self._held: tuple[int, dict[str, Residues]] | None = None
        self._places = {str(column): place for place, column in enumerate(facts.columns)}

    @property
    def parameters(self) -> Parameters:
        return self.facts.parameters

    @property
    def layout(self) -> Layout:
        return self.facts.layout(self.blocks)

    @property
    def keys(self) -> PublicKeys:
        return self._keys

    @property
    def with_secret_key(self) -> bool:
        return self.facts.with_secret_key

    def ranges(self) -> dict[str, ColumnRange]:
        return self.facts.ranges()

    def chunk(self, names: Sequence[str], chunk: int) -> Sequence[Residues]:
        """Return some stored columns over one chunk of rows, without reading others.

        Each has the shape (2, primes, N).
        """
        return self.blocks.columns(chunk, [self._places[name] for name in names])

    def residues(self, name: str, chunk: int) -> Residues:
        # Neighbours are read with it and kept: they will be asked for next. Another thread may put
        # its own chunk there meanwhile.
        held = self._held
        if held is None or held[0] != chunk or name not in held[1]:
            names = self._names if name in self._names else tuple(self._places)
            held = self._held = (chunk, dict(zip(names, self.chunk(names, chunk), strict=True)))
        return held[1][name]

    def pieces(
        self, names: Sequence[str], chunk: int, prime: int | None, start: int, stop: int
    ) -> Sequence[Residues]:
        if prime is None:
            return self.chunk(names, chunk)
        columns = self.blocks.pieces(
            chunk, [self._places[name] for name in names], prime, start, stop
        )
        return [column[:, None] for column in columns]

    @property
    def piece_width(self) -> int:
        return self.facts.shape.run

    @property
    def in_memory(self) -> bool:
        return isinstance(self.blocks, MemoryBlocks)

    @property
    def content_id(self) -> str:
        names = [str(column) for column in self.facts.columns]
        content = [
            self.facts.key_id,
            self.parameters.fingerprint,
            names,
            list(self.blocks.rows),
            self.blocks.content(),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def chunk_name(self, chunk: int) -> str:
        return f"block {self.blocks.ids[chunk]}"
