"""The public layout of rows in slots, the same for clear and encrypted tables."""

from __future__ import annotations

from dataclasses import dataclass

from encryptedstats.errors import SchemaError


@dataclass(frozen=True)
class Layout:
    """Which rows each chunk holds, from slot 0 on; the other slots of a chunk are padding.

    Usually all chunks but the last are full, and row i is in chunk ``i // slots``, slot ``i %
    slots``. Appending can leave partly filled chunks in between. A chunk becomes one plaintext of
    `slots` slots. SEAL arranges them as two half rows of ``slots / 2`` that rotate separately.
    Padding is 0 in every column.

    With ``copies`` > 1 a ciphertext repeats its ``slots`` values that many times, and all slots
    rotate together.

    With ``lanes``, a row fills that many neighbouring slots, one for each of as many values of the
    same kind, such as the variants of a genome. A total is then one number for each lane.

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
    lanes: int = 1

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
        if not 1 <= self.lanes <= self.slots or self.lanes & (self.lanes - 1):
            raise SchemaError(
                f"lanes={self.lanes}: a power of two, at most {self.slots}, is needed",
                code="lanes-beyond-slots",
            )
        counts = self.uneven
        if counts and (
            sum(counts) != self.n_rows or not all(0 < count <= self.rows_each for count in counts)
        ):
            raise SchemaError(
                f"chunks of {counts} rows do not hold {self.n_rows} rows, {self.rows_each} in each",
                code="chunk-rows-mismatch",
            )
        if all(count == self.rows_each for count in counts[:-1]):
            object.__setattr__(self, "uneven", ())  # so that equal layouts compare equal

    @property
    def rows_each(self) -> int:
        """Rows that a full chunk holds."""
        return self.slots // self.lanes

    @property
    def size_text(self) -> str:
        """How many rows a full chunk holds, in words."""
        lanes = f", {self.lanes} lanes each" if self.lanes > 1 else ""
        return f"{self.rows_each:,}{lanes}"

    @property
    def n_places(self) -> int:
        """Places for rows in all chunks; those without a row are padding."""
        return self.n_chunks * self.rows_each

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return len(self.uneven) or -(-self.n_rows // self.rows_each)

    @property
    def turn(self) -> int:
        """Return how many slots rotate together."""
        return self.slots if self.copies > 1 else self.slots // 2

    @property
    def counts(self) -> tuple[int, ...]:
        """Rows of each chunk."""
        full, rest = divmod(self.n_rows, self.rows_each)
        return self.uneven or (self.rows_each,) * full + ((rest,) if rest else ())

    @property
    def padding(self) -> int:
        """Places of all chunks that hold no row."""
        return self.n_places - self.n_rows

    def rows_of(self, chunk: int) -> tuple[int, int]:
        """Return the first row of a chunk and the row after its last."""
        if not 0 <= chunk < self.n_chunks:
            raise SchemaError(f"no chunk {chunk}: there are {self.n_chunks}", code="unknown-chunk")
        if not self.uneven:
            return chunk * self.rows_each, min((chunk + 1) * self.rows_each, self.n_rows)
        start = sum(self.uneven[:chunk])
        return start, start + self.uneven[chunk]
