"""Encrypted numbers for every row: what a prediction comes back as, opened by the owner alone. Slots without a row are 0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.results import (
    Part,
    json_list,
    noise_from_json,
    residues_from_bytes,
    residues_to_bytes,
)
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.keys import Decryptor, PublicKeys, check_belongs
from encryptedstats.crypto.residues import ciphertext_of
from encryptedstats.errors import FileFormatError
from encryptedstats.storage.container import Container

ROWS_KIND: Final = "encrypted rows"
VOTES_KIND: Final = "encrypted votes"  # rows with what a model needs to read them
MAX_OUTPUTS: Final = 1 << 16
MAX_CHUNKS: Final = 1 << 24


@dataclass(frozen=True)
class RowFacts:
    """What is publicly known of one number in all rows: between which it lies, and what it is multiplied by, modulo t."""

    low: int
    high: int
    factor: int = 1


class EncryptedRows:
    """Some numbers for every row, under encryption. ``owner.decrypt`` gives an array of shape (rows, numbers).

    Parameters
    ----------
    keys : PublicKeys
    facts : sequence of RowFacts
        One for each number.
    counts : sequence of int
        Rows of each chunk.
    parts : sequence of sequences of Part
        For each number the ciphertext of each chunk.
    """

    def __init__(
        self,
        keys: PublicKeys,
        facts: Sequence[RowFacts],
        counts: Sequence[int],
        parts: Sequence[Sequence[Part]],
    ) -> None:
        self.keys = keys
        self.facts = tuple(facts)
        self.counts = tuple(counts)
        self.parts = tuple(tuple(chunks) for chunks in parts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.counts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(part.residues.nbytes for chunks in self.parts for part in chunks)

    def __repr__(self) -> str:
        size = f"{self.nbytes / 1e6:.1f} MB"
        return f"EncryptedRows({self.n_rows} rows of {len(self.facts)} numbers, {size}, key {self.keys.key_id})"

    # -- files -----------------------------------------------------------------------------------------------------

    def to_container(self, kind: str = ROWS_KIND, fields: dict[str, Any] | None = None) -> Container:
        """As a checked envelope of bytes; ``fields`` are for those who store more with it."""
        parameters, engine = self.keys.parameters, self.keys.engine
        every = [part for chunks in self.parts for part in chunks]
        sections = {
            "numbers": json.dumps([[f.low, f.high, f.factor] for f in self.facts]).encode(),
            "chunks": json.dumps(list(self.counts)).encode(),
            "noise": json.dumps([[p.noise.flat, p.noise.peak, p.noise.level] for p in every]).encode(),
            "residues": b"".join(residues_to_bytes(part.residues, engine) for part in every),
        }
        return Container(
            kind,
            parameters.fingerprint,
            self.keys.key_id,
            {"parameters": parameters.to_dict(), **(fields or {})},
            sections,
        )

    @classmethod
    def from_container(cls, file: Container, keys: PublicKeys) -> EncryptedRows:
        """The inverse, with every check."""
        check_belongs(file, keys)
        parameters, engine = keys.parameters, keys.engine
        facts = [_read_facts(entry, parameters.max_value) for entry in json_list(file, "numbers")]
        counts = json_list(file, "chunks")
        if not all(type(count) is int and 0 < count <= parameters.slots for count in counts):
            raise FileFormatError("the chunks of the file have impossible numbers of rows")
        noises = [noise_from_json(entry, parameters.noise) for entry in json_list(file, "noise")]
        if not 0 < len(facts) <= MAX_OUTPUTS or not 0 < len(counts) <= MAX_CHUNKS:
            raise FileFormatError("the file has no numbers or rows, or more than there can be")
        if len(noises) != len(facts) * len(counts):
            raise FileFormatError("the number of ciphertexts does not fit the numbers and rows")
        data, start, parts = file.section("residues"), 0, []
        for noise in noises:
            length = parameters.packed_bytes(noise.level)
            residues = residues_from_bytes(data[start : start + length], engine, noise.level)
            ciphertext_of(engine, residues)  # refuses what is no ciphertext, now and not when it is decrypted
            parts.append(Part(residues, noise))
            start += length
        if start != len(data):
            raise FileFormatError("the residues of the file are cut short or too many")
        by_output = [parts[first : first + len(counts)] for first in range(0, len(parts), len(counts))]
        return cls(keys, facts, counts, by_output)

    def __reduce__(self) -> NoReturn:
        raise TypeError("encrypted rows are not pickled: use to_container()")


@decrypt_value.register(EncryptedRows)
def decrypt_rows(rows: EncryptedRows, decryptor: Decryptor) -> NDArray[Any]:
    """The integers, shape (rows, numbers), if they are what their bounds say, and there is nothing else."""
    decryptor.check_own(rows.keys)
    engine, t = rows.keys.engine, rows.keys.parameters.plain_modulus
    columns = []
    for number, (facts, chunks) in enumerate(zip(rows.facts, rows.parts, strict=True)):
        inverse = pow(facts.factor, -1, t)
        values = [np.zeros(0, dtype=object)]
        for part, count in zip(chunks, rows.counts, strict=True):
            plain = decryptor.decrypt(ciphertext_of(engine, part.residues))
            slots = engine.encoder.decode(plain)
            if slots[count:].any():
                raise ValueError(
                    f"number {number} decrypts to something in slots that no row has, where results hold zeros: the result was "
                    "altered, or does not belong to this computation. It is refused"
                )
            values.append(slots[:count].astype(object))
        exact = np.concatenate(values) * inverse % t
        exact = np.where(exact > t // 2, exact - t, exact)
        outside = np.flatnonzero((exact < facts.low) | (exact > facts.high))
        if len(outside):
            raise ValueError(
                f"number {number} of row {outside[0]} decrypts to {exact[outside[0]]}, outside the {facts.low} to {facts.high} it "
                "is proven to keep: the result was altered, or does not belong to this computation. It is refused"
            )
        columns.append(exact)
    return np.column_stack(columns) if columns else np.zeros((rows.n_rows, 0), dtype=object)


def _read_facts(entry: Any, max_value: int) -> RowFacts:
    if not isinstance(entry, list) or [type(part) for part in entry] != [int, int, int]:
        raise FileFormatError("the list of numbers is malformed")
    facts = RowFacts(*entry)
    if not -max_value <= facts.low <= facts.high <= max_value or not 0 < facts.factor <= 2 * max_value:
        raise FileFormatError(f"the file claims a number between {facts.low} and {facts.high}: that cannot be")
    return facts
