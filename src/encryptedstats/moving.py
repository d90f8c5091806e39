"""Move stored tables and results to another key: their owner decrypts and encrypts them anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encryptedstats.circuits.passes.digits import WHOLE
from encryptedstats.circuits.program import PACKED
from encryptedstats.circuits.results import EncryptedNumbers, encrypted_numbers
from encryptedstats.crypto.dispatch import decrypt_value, move_value
from encryptedstats.crypto.encryption import Decryptor, Encryptor, encode_slots
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of
from encryptedstats.errors import Cure, KeyMismatchError, SchemaError
from encryptedstats.storage.objects import load_file, open_store, save_file
from encryptedstats.tables import EncryptedTable, Schema
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.files import read_answer
from encryptedstats.tables.columns import column_bound
from encryptedstats.tables.facts import Blocks, Sign, TableFacts
from encryptedstats.tables.manifest import MANIFEST


@move_value.register(str)
@move_value.register(os.PathLike)
def move(
    url: str | os.PathLike[str],
    decryptor: Decryptor,
    encryptor: Encryptor,
    out: str | os.PathLike[str],
    schema: Schema | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Encrypt a stored table, model or result for another key: ``owner.move(url, successor, out)``.

    Parameters
    ----------
    url : path or fsspec URL
    decryptor : Decryptor
        The old owner's.
    encryptor : Encryptor
        The new owner's. A table keeps its blocks, so the ring must be as large as before.
    out : path or fsspec URL
        Where the new ciphertexts go.
    schema : Schema, optional
        Of a table's rows: the new key marks it as its own, as the old one did. A model or result
        can do without.
    overwrite : bool
        Replace what is at ``out``.
    """
    if encryptor.keys.key_id == decryptor.keys.key_id:
        raise KeyMismatchError(
            f"the old and the new key are both {decryptor.keys.key_id}: nothing would be moved",
            code="same-key",
        )
    if open_store(url).exists(MANIFEST):
        table = EncryptedTable.load(url, decryptor.keys, by_others=True)
        move_table(table, decryptor, encryptor, schema).save(out, overwrite=overwrite)
    else:
        answer = read_answer(load_file(url), decryptor.keys)
        save_file(
            move_answer(answer, decryptor, encryptor, schema).to_container(),
            out,
            overwrite=overwrite,
        )


def move_answer(
    answer: Answer, decryptor: Decryptor, encryptor: Encryptor, schema: Schema | None
) -> Answer:
    """Encrypt totals for another key. Draws stored beside them are dropped and can be
    made again.
    """
    numbers = answer.ciphertexts
    digest = (
        None if schema is None else _mark_again(numbers.schema_digest, decryptor, encryptor, schema)
    )
    if numbers.form != PACKED:
        raise KeyMismatchError(
            "numbers of single rows are not moved to another key: open them, or predict again "
            "under it",
            code="row-numbers-not-moved",
        )
    if any(facts.stored.shift for facts in numbers.facts) and (
        numbers.keys.parameters.digit_bits != encryptor.keys.parameters.digit_bits
    ):
        raise KeyMismatchError(
            "these totals are stored in digits, and the new keys have others: make keys by the "
            "same plan",
            code="other-digits",
        )
    # As they are stored: each part of a total that is in digits by itself.
    apart = [replace(facts, stored=WHOLE) for facts in numbers.facts]
    whole = EncryptedNumbers(
        numbers.keys, numbers.form, apart, numbers.parts, numbers.width, places=numbers.places
    )
    values = decrypt_value(whole, decryptor)
    facts = [replace(one, offset=0, factor=1) for one in numbers.facts]
    moved = encrypted_numbers(encryptor.keys, values, facts, numbers.places)
    moved.flooded, moved.schema_digest = numbers.flooded, digest
    return replace(answer, totals=moved, extra_totals={})


def move_table(
    table: EncryptedTable, decryptor: Decryptor, encryptor: Encryptor, schema: Schema | None
) -> EncryptedTable:
    """Return the same rows under another key. Each block is encrypted when it is read."""
    old, new = table.parameters, encryptor.keys.parameters
    if (old.slots, old.digit_bits) != (new.slots, new.digit_bits):
        raise KeyMismatchError(
            f"the blocks of this table have {old.slots} rows, and under the new keys they would "
            f"have {new.slots}, or numbers in "
            "other digits: make keys by the same plan, or encrypt the rows themselves",
            code="other-block-size",
        )
    largest = max(
        column_bound(table.schema, column, table.facts.weight_bound)
        for column in table.facts.columns
    )
    if largest > new.max_value:
        raise KeyMismatchError(
            f"this table has values up to {largest:,}, and the new keys are exact up to "
            f"±{new.max_value:,}",
            code="value-too-large",
        )
    digest = _mark_again(table.facts.schema_digest, decryptor, encryptor, schema)
    facts = replace(
        table.facts,
        parameters=new,
        key_id=encryptor.keys.key_id,
        with_secret_key=True,
        schema_digest=digest,
    )
    blocks = _MovedBlocks(table.blocks, table, facts, decryptor, encryptor)
    return EncryptedTable(facts, blocks, encryptor.keys, schema)


def _mark_again(
    known: str | None, decryptor: Decryptor, encryptor: Encryptor, schema: Schema | None
) -> str | None:
    """Return the digest of the rows' schema by the new key, if the old key has marked
    this schema.
    """
    if known is not None and (
        schema is None or decryptor.schema_digest(schema.digest_json()) != known
    ):
        raise SchemaError(
            "what is moved is marked with the schema that its rows were encrypted with, and the "
            "new key has to mark it again: ",
            Cure("schema of the rows", "give that schema, schema="),
            code="no-schema",
        )
    return None if schema is None else encryptor.schema_digest(schema.digest_json())


@dataclass(frozen=True)
class _MovedBlocks:
    """Blocks that are decrypted and encrypted again when they are read, under the same ids."""

    old: Blocks
    table: EncryptedTable
    facts: TableFacts
    decryptor: Decryptor
    encryptor: Encryptor

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids from before, so that blocks in two tables that were moved are still noticed."""
        return self.old.ids

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows each block has."""
        return self.old.rows

    def block(self, index: int) -> Residues:
        return np.stack([self.column(index, column) for column in range(len(self.facts.columns))])

    def column(self, index: int, column: int) -> Residues:
        """Return one column of a block; slots without a row are 0 again, whatever they held."""
        engine, t = self.decryptor.keys.engine, self.decryptor.keys.parameters.plain_modulus
        plain = self.decryptor.decrypt(ciphertext_of(engine, self.old.column(index, column)))
        slots = engine.encoder.decode(plain).astype(np.int64)[: self.rows[index]]
        values = np.where(slots > t // 2, slots - t, slots)
        return residues_of(
            self.encryptor.keys.engine,
            self.encryptor.encrypt(encode_slots(values, self.encryptor))[0],
        )

    def columns(self, index: int, columns: Sequence[int]) -> Sequence[Residues]:
        return [self.column(index, column) for column in columns]

    def pieces(
        self, index: int, columns: Sequence[int], prime: int, start: int, stop: int
    ) -> Residues:
        return np.stack([self.column(index, column)[:, prime, start:stop] for column in columns])

    def seeds(self, index: int) -> bytes:
        return b""

    def content(self) -> list[str]:
        return list(self.ids)

    def stored_bytes(self) -> int:
        return self.old.stored_bytes()

    def signer(self, index: int) -> Sign | None:
        """Sign as the owner of the new key, who has encrypted every row."""
        signer: Any = self.encryptor.signer
        return None if signer is None else signer.sign
