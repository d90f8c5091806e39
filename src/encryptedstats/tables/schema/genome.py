"""What a schema says of the variants of a genome table.

Such a table has thousands of variants and few people. Its first variables are *tiles*: each holds
as many variants as there are lanes, one number from 0 to 2 for each person and lane. Variables of
people follow. With one lane, a tile is a variant and the table is like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from encryptedstats.errors import SchemaError
from encryptedstats.tables.schema.documents import Types, check_fields, check_items

MAX_LANES: Final = 1 << 14
MAX_VARIANTS: Final = 1 << 24


@dataclass(frozen=True)
class PublicGenome:
    """The number of variants, and in how many lanes they are stored: all that a worker learns.

    >>> PublicGenome(lanes=512, n_variants=10_000).n_tiles
    20
    """

    lanes: int
    n_variants: int

    _FIELDS: ClassVar[Mapping[str, Types]] = {"lanes": (int,), "n_variants": (int,)}

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= MAX_LANES or self.lanes & (self.lanes - 1):
            raise SchemaError(
                f"lanes={self.lanes}: a power of two up to {MAX_LANES:,} is needed",
                code="impossible-lanes",
            )
        if not 1 <= self.n_variants <= MAX_VARIANTS:
            raise SchemaError(
                f"{self.n_variants:,} variants: a genome has 1 to {MAX_VARIANTS:,}",
                code="wrong-number-of-variants",
            )

    @property
    def n_tiles(self) -> int:
        """Number of tiles; the last may have unused lanes."""
        return -(-self.n_variants // self.lanes)

    def _fields(self) -> dict[str, Any]:
        return {"lanes": self.lanes, "n_variants": self.n_variants}

    @classmethod
    def _from_fields(cls, value: Any) -> PublicGenome:
        return cls(**check_fields(value, cls._FIELDS, "field 'genome'"))


@dataclass(frozen=True)
class Genome:
    """The lanes and the variants, in order: what PLINK's ``.bim`` files list.

    Parameters
    ----------
    lanes : int
    chromosomes, ids, counted, others : tuple of str
        The counted allele is PLINK's A1.
    positions : tuple of int
    """

    lanes: int
    chromosomes: tuple[str, ...]
    positions: tuple[int, ...]
    ids: tuple[str, ...]
    counted: tuple[str, ...]
    others: tuple[str, ...]

    _FIELDS: ClassVar[Mapping[str, Types]] = {
        "lanes": (int,),
        "chromosomes": (list,),
        "positions": (list,),
        "ids": (list,),
        "counted": (list,),
        "others": (list,),
    }

    def __post_init__(self) -> None:
        lists = (self.chromosomes, self.positions, self.counted, self.others)
        if any(len(one) != len(self.ids) for one in lists):
            raise SchemaError(
                "each variant needs a chromosome, a position, an id and two alleles",
                code="incomplete-variants",
            )
        _ = self.public()

    def public(self) -> PublicGenome:
        """Return what a worker may know."""
        return PublicGenome(self.lanes, len(self.ids))

    def _fields(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in self._FIELDS if name != "lanes"}
        return {"lanes": self.lanes, **lists}

    @classmethod
    def _from_fields(cls, value: Any) -> Genome:
        fields = check_fields(value, cls._FIELDS, "field 'genome'")
        lists = {
            name: check_items(
                fields[name], (int,) if name == "positions" else (str,), f"genome, {name}"
            )
            for name in cls._FIELDS
            if name != "lanes"
        }
        return cls(fields["lanes"], **lists)
