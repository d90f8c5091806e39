"""Where rows lie in slots: public, and the same for clear and encrypted tables, so that both compute the same."""

from __future__ import annotations

from dataclasses import dataclass

from encryptedstats.errors import SchemaError


@dataclass(frozen=True)
class Layout:
    """Where rows lie: chunk after chunk, `counts` rows in each, from slot 0 on; what is left of a chunk is padding.

    Usually all chunks but the last are full, and row i is in chunk ``i // slots``, slot ``i % slots``. A table that was
    appended to can have partly filled chunks in between. A chunk becomes one plaintext of `slots` slots. SEAL arranges them
    as two rows of ``slots / 2`` that rotate separately: slots 0 to slots/2 - 1, then the rest. Padding is 0 in every column.

    Examples
    --------
    >>> layout = Layout(n_rows=10_000, slots=8192)
    >>> layout.n_chunks, layout.rows_of(1), layout.padding
    (2, (8192, 10000), 6384)
    """

    n_rows: int
    slots: int = 8192
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.n_rows < 0:
            raise SchemaError(f"n_rows={self.n_rows}: a table cannot have fewer than 0 rows")
        if self.slots < 2 or self.slots & (self.slots - 1):
            raise SchemaError(f"slots={self.slots}: a power of two, at least 2, is needed")
        if not self.counts:
            full, rest = divmod(self.n_rows, self.slots)
            object.__setattr__(self, "counts", (self.slots,) * full + ((rest,) if rest else ()))
        if sum(self.counts) != self.n_rows or not all(0 < count <= self.slots for count in self.counts):
            raise SchemaError(f"chunks of {self.counts} rows do not hold {self.n_rows} rows in {self.slots} slots each")

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self.counts)

    @property
    def padding(self) -> int:
        """Unused slots of all chunks."""
        return self.n_chunks * self.slots - self.n_rows

    def rows_of(self, chunk: int) -> tuple[int, int]:
        """First row of a chunk and the row after its last."""
        if not 0 <= chunk < self.n_chunks:
            raise SchemaError(f"no chunk {chunk}: there are {self.n_chunks}")
        start = sum(self.counts[:chunk])
        return start, start + self.counts[chunk]
