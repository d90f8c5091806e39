"""Genome tables: thousands of variants of few people, as integer columns.

A ciphertext holds as many variants of one person as there are lanes, for as many people as fit.
What belongs to people, the trait and the covariates, is repeated in every lane. With more lanes
there are fewer totals, and more ciphertexts that repeat: :func:`choose_lanes` weighs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from encryptedstats.errors import ArgumentError, DataError, SchemaError
from encryptedstats.tables.schema.genome import Genome
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import Variable
from encryptedstats.tables.table import Table

MISSING: Final = -1
_ALLELES: Final = 2
_SLOTS: Final = 8192  # of the ring that most scans take
_LEAST_LANES: Final = 64
# Times of lowering a total, in those of encrypting a column of a chunk.
_UNPACKED, _PACKED = 1.5, 2.0
_UNKNOWN: Final = {"CHROM": "0", "POS": 0, "ID": "", "A1": "?", "A2": "?"}
_NOBODY: Final = "_nothing"  # a column where people have neither trait nor covariates


def genome_table(
    genotypes: ArrayLike,
    people: pd.DataFrame,
    target: str | None = None,
    *,
    variants: pd.DataFrame | None = None,
    digits: int | Mapping[str, int] | None = None,
    lanes: int | None = None,
    schema: Schema | None = None,
) -> Table:
    """Return a table of many variants of some people, for :class:`~encryptedstats.GenomeScan`.

    Parameters
    ----------
    genotypes : array of shape (people, variants)
        Numbers of the counted allele: 0, 1 or 2. What is missing is negative or NaN.
    people : DataFrame
        Trait and covariates of each person, in the same order, without gaps.
    target : str, optional
        The trait: a column of `people` with two classes, or with numbers.
    variants : DataFrame, optional
        Columns CHROM, POS, ID, A1 (the counted allele) and A2, as far as they are known.
    digits : int or mapping, optional
        Decimal digits of the numbers in `people`, as of :meth:`Schema.infer`.
    lanes : int, optional
        Variants in each ciphertext, a power of two. By default what takes least time. With 1, each
        variant is a column of its own, and the table can be asked whatever others are asked.
    schema : Schema, optional
        That of an earlier genome table, for more people of the same variants; instead of the four
        parameters above.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> people = pd.DataFrame({"sick": [0, 0, 1, 1], "age": [40, 50, 60, 71]})
    >>> genome_table(np.array([[0, 2], [1, 1], [1, -1], [2, 0]]), people, "sick", lanes=2)
    Table(4 rows, 2 variables, 2 classes; 1 x 8192 slots, 2 lanes)
    """
    codes = _codes(genotypes)
    if len(codes) != len(people):
        raise ArgumentError(
            f"genotypes of {len(codes):,} people and {len(people):,} rows of people: one row is "
            "needed for each person, in the same order",
            code="other-number-of-people",
        )
    if schema is None:
        schema = add_variants(_people_schema(people, target, digits), codes, variants, lanes)
    elif any(one is not None for one in (target, variants, digits, lanes)):
        raise ArgumentError(
            "schema= says the target, the variants, the digits and the lanes: leave these out",
            code="schema-and-more",
        )
    return encode_genotypes(schema, codes, people)


def encode_genotypes(schema: Schema, codes: NDArray[np.int8], people: pd.DataFrame) -> Table:
    """Return the table of a genome schema for the genotypes of some people."""
    genome = schema.genome
    if genome is None or codes.shape[1] != len(genome.ids):
        n_known = 0 if genome is None else len(genome.ids)
        raise SchemaError(
            f"genotypes of {codes.shape[1]:,} variants, and a schema of {n_known:,}: they are for "
            "the same variants, in the same order",
            code="other-variants",
        )
    if (codes < 0).any() and not schema.variables[0].missing_bin:
        raise SchemaError(
            "genotypes are missing, and the schema has none that may be: infer it from genotypes "
            "with gaps before anything is encrypted",
            code="unexpected-gaps",
        )
    lanes, n_tiles = genome.lanes, genome.public().n_tiles
    own = replace(schema, variables=schema.variables[n_tiles:] or (_nothing(),), genome=None)
    table = own.table(people.assign(**{_NOBODY: 0}) if own.names == (_NOBODY,) else people)
    tiles = (_tile(codes[:, start : start + lanes], lanes) for start in _starts(codes, lanes))
    data = (*tiles, *table.data[: len(schema.variables) - n_tiles])
    return replace(table, schema=schema, data=data)


def choose_lanes(n_people: int, n_variants: int, n_columns: int, *, gaps: bool = False) -> int:
    """Return the number of lanes that takes least time to encrypt and to scan.

    >>> choose_lanes(5_000, 10_000, 4), choose_lanes(1_000_000, 100, 4)
    (256, 1)
    """

    def price(lanes: int) -> float:
        tiles, chunks = -(-n_variants // lanes), -(-n_people * lanes // _SLOTS)
        totals = tiles * (3 + n_columns)
        down = _PACKED if lanes == 1 else _UNPACKED
        return chunks * (tiles * (1 + gaps) + n_columns) + down * totals

    wide = (_LEAST_LANES << k for k in range((_SLOTS // _LEAST_LANES).bit_length()))
    return min((1, *wide), key=price)


def add_variants(
    people: Schema,
    codes: NDArray[np.int8],
    variants: pd.DataFrame | None = None,
    lanes: int | None = None,
) -> Schema:
    """Return a schema of people with the variants of their genotypes as its first variables."""
    n_people, n_variants = codes.shape
    gaps = bool((codes < 0).any())
    own = () if people.names == (_NOBODY,) else people.variables
    if lanes is None:
        columns = sum(max(1, one.n_bins - 1) for one in own) + max(1, people.n_classes - 1)
        lanes = choose_lanes(n_people, n_variants, columns, gaps=gaps)
    genome = _genome(lanes, n_variants, variants)
    tiles = []
    for start in range(0, n_variants, lanes):
        last = min(start + lanes, n_variants)
        name = genome.ids[start] if lanes == 1 else f"variants {start + 1} to {last}"
        tiles.append(Variable(name, "number", digits=0, low=0, high=_ALLELES, missing_bin=gaps))
    return replace(people, variables=(*tiles, *own), genome=genome)


def _people_schema(
    people: pd.DataFrame, target: str | None, digits: int | Mapping[str, int] | None
) -> Schema:
    """Infer the schema of people, with numbers kept as numbers."""
    if target is not None and target not in people.columns:
        raise SchemaError(f"people have no column {target!r}", code="unknown-column")
    if len(people.columns) > (target is not None):
        return Schema.infer(people, target=target, numbers="keep", digits=digits)
    alone = people.assign(**{_NOBODY: np.arange(len(people)) % 3})
    kinds = {_NOBODY: "number"}
    return Schema.infer(alone, target=target, numbers="keep", digits=digits, kinds=kinds)


def _genome(lanes: int, n_variants: int, variants: pd.DataFrame | None) -> Genome:
    listed = pd.DataFrame(index=range(n_variants)) if variants is None else variants
    if len(listed) != n_variants:
        raise ArgumentError(
            f"{len(listed):,} rows of variants, and genotypes of {n_variants:,}: one row is needed "
            "for each variant, in the same order",
            code="other-number-of-variants",
        )
    known = listed.reindex(columns=list(_UNKNOWN)).astype(object).fillna(_UNKNOWN)
    ids = [
        str(name) if str(name) not in ("", ".") else f"variant{place + 1}"
        for place, name in enumerate(known["ID"])
    ]
    if lanes == 1 and len(set(ids)) < len(ids):  # they are names of variables
        ids = [f"{name}.{place + 1}" for place, name in enumerate(ids)]
    chromosomes, counted, others = (tuple(map(str, known[name])) for name in ("CHROM", "A1", "A2"))
    positions = tuple(int(place) for place in known["POS"])
    return Genome(lanes, chromosomes, positions, tuple(ids), counted, others)


def _codes(genotypes: ArrayLike) -> NDArray[np.int8]:
    values = np.asarray(genotypes)
    if values.ndim != _ALLELES or not values.size or values.dtype.kind not in "iuf":
        raise DataError(
            "genotypes are an array of numbers with a row for each person and a column for each "
            "variant",
            code="malformed-genotypes",
        )
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
    missing |= values < 0
    codes = np.where(missing, MISSING, values).astype(np.int8)
    wrong = ~missing & ((codes > _ALLELES) | (codes != values))
    if wrong.any():
        person, variant = np.argwhere(wrong)[0]
        raise DataError(
            f"variant {variant} of person {person} is {values[person, variant]}: genotypes are "
            "0, 1 "
            "or 2, and negative or NaN where they are missing",
            code="no-genotype",
        )
    return codes


def _starts(codes: NDArray[np.int8], lanes: int) -> range:
    return range(0, codes.shape[1], lanes)


def _tile(codes: NDArray[np.int8], lanes: int) -> NDArray[Any]:
    """Return the data of a tile, with 0 in lanes that no variant has."""
    data = np.zeros((len(codes), lanes), dtype=np.int8)
    data[:, : codes.shape[1]] = codes
    return data[:, 0] if lanes == 1 else data


def _nothing() -> Variable:
    return Variable(_NOBODY, "number", digits=0, low=0, high=0)
