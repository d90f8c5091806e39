"""Where rows lie in slots: public, and the same for clear and encrypted tables, so that both
compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from encryptedstats.errors import SchemaError


@dataclass(frozen=True)
class Layout:
    """Where rows lie: chunk after chunk, some rows in each, from slot 0 on; what is left of a chunk
    is padding.

    Usually all chunks but the last are full, and row i is in chunk ``i // slots``, slot ``i %
    slots``. A table that was appended to can have partly filled chunks in between. A chunk becomes
    one plaintext of `slots` slots. SEAL arranges them as two rows of ``slots / 2`` that rotate
    separately: slots 0 to slots/2 - 1, then the rest. Padding is 0 in every column.

    With ``copies``, a ciphertext holds every value so many times, ``slots`` different ones, and
    these rotate together.

    Examples
    --------
    >>> layout = Layout(n_rows=10_000, slots=8192)
    >>> layout.n_chunks, layout.rows_of(1), layout.padding
    (2, (8192, 10000), 6384)
    """

    n_rows: int
    slots: int = 8192
    uneven: tuple[int, ...] = ()  # rows of each chunk, where not all but the last are full
    copies: int = 1

    def __post_init__(self) -> None:
        if self.n_rows < 0:
            raise SchemaError(
                f"n_rows={self.n_rows}: a table cannot have fewer than 0 rows",
                code="negative-row-count",
            )
        if self.slots < 2 or self.slots & (self.slots - 1):
            raise SchemaError(
                f"slots={self.slots}: a power of two, at least 2, is needed",
                code="not-power-of-two",
            )
        given = self.uneven
        if given and (
            sum(given) != self.n_rows or not all(0 < count <= self.slots for count in given)
        ):
            raise SchemaError(
                f"chunks of {given} rows do not hold {self.n_rows} rows in {self.slots} slots each",
                code="chunk-rows-mismatch",
            )
        if all(
            count == self.slots for count in given[:-1]
        ):  # one way to say it, so that equal layouts are equal
            object.__setattr__(self, "uneven", ())

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self.uneven) or -(-self.n_rows // self.slots)

    @property
    def turn(self) -> int:
        """How many slots rotate together."""
        return self.slots if self.copies > 1 else self.slots // 2

    @property
    def counts(self) -> tuple[int, ...]:
        """Rows of each chunk."""
        full, rest = divmod(self.n_rows, self.slots)
        return self.uneven or (self.slots,) * full + ((rest,) if rest else ())

    @property
    def padding(self) -> int:
        """Unused slots of all chunks."""
        return self.n_chunks * self.slots - self.n_rows

    def rows_of(self, chunk: int) -> tuple[int, int]:
        """First row of a chunk and the row after its last."""
        if not 0 <= chunk < self.n_chunks:
            raise SchemaError(f"no chunk {chunk}: there are {self.n_chunks}", code="unknown-chunk")
        if not self.uneven:
            return chunk * self.slots, min((chunk + 1) * self.slots, self.n_rows)
        start = sum(self.uneven[:chunk])
        return start, start + self.uneven[chunk]
