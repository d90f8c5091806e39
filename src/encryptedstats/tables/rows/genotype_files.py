"""Genotypes from PLINK's ``.bed`` files and from VCF: read by ``bed-reader`` and ``cyvcf2``, the
extra ``genome``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import DataError, SchemaError, SchemaWarning
from encryptedstats.tables.rows.genotypes import MISSING, genome_table
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.table import Table

_VCF: Final = (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")
_UNKNOWN: Final = 3  # of cyvcf2, with genotypes as numbers of alleles


@dataclass(frozen=True, eq=False)
class Genotypes:
    """Genotypes of some people, as a file has them.

    Attributes
    ----------
    codes : array of shape (people, variants)
        Numbers of the counted allele, -1 where they are missing.
    people : tuple of str
        Ids of the people: PLINK's IID, or the samples of a VCF.
    variants : DataFrame
        CHROM, POS, ID, A1 (the counted allele) and A2.
    """

    codes: NDArray[np.int8]
    people: tuple[str, ...]
    variants: pd.DataFrame

    def table(
        self,
        people: pd.DataFrame,
        target: str | None = None,
        *,
        id: str = "IID",
        digits: int | Mapping[str, int] | None = None,
        lanes: int | None = None,
        schema: Schema | None = None,
    ) -> Table:
        """Return the genome table of the people that have genotypes and a row.

        Parameters
        ----------
        people : DataFrame
            Trait and covariates.
        id : str
            The column of `people` with the ids; others are the trait and covariates.
        target, digits, lanes, schema
            See :func:`genome_table`.

        Warns
        -----
        SchemaWarning
            Where people have no row, or rows no genotypes: they are left out.
        """
        places, rows = self.match(people, id)
        known = None if schema is not None else self.variants
        if schema is not None:
            self._check_variants(schema)
        return genome_table(
            self.codes[places],
            rows,
            target,
            variants=known,
            digits=digits,
            lanes=lanes,
            schema=schema,
        )

    def match(self, people: pd.DataFrame, id: str) -> tuple[NDArray[np.intp], pd.DataFrame]:
        """Return the places of the people with genotypes and a row, and their rows in that order,
        without the ids; warn of others.
        """
        if id not in people.columns:
            raise SchemaError(
                f"people have no column {id!r} with the ids of the genotypes: name it, id=...",
                code="unknown-column",
            )
        names = people[id].astype(str)
        if names.duplicated().any():
            raise DataError(
                f"{names[names.duplicated()].iloc[0]!r} is twice among the people",
                code="same-person",
            )
        rows = people.drop(columns=id).set_axis(pd.Index(names))
        both = [place for place, name in enumerate(self.people) if name in rows.index]
        left_out = len(self.people) + len(rows) - 2 * len(both)
        if not both:
            raise DataError(
                f"nobody in column {id!r} has genotypes: its first id is {names.iloc[0]!r}, and "
                f"that of the genotypes {self.people[0]!r}",
                code="no-common-people",
            )
        if left_out:
            warnings.warn(
                f"{left_out:,} people have genotypes and no row, or a row and no genotypes: they "
                "are left out",
                SchemaWarning,
                stacklevel=3,
            )
        found = rows.loc[[self.people[place] for place in both]].reset_index(drop=True)
        return np.array(both, dtype=np.intp), found

    def _check_variants(self, schema: Schema) -> None:
        """Refuse a schema of other variants, or of the same with the other allele counted."""
        genome = schema.genome
        own = (tuple(self.variants["POS"]), tuple(self.variants["A1"]))
        if genome is None or (genome.positions, genome.counted) != own:
            raise SchemaError(
                "the schema is of other variants than the genotypes, or counts the other allele",
                code="other-variants",
            )


def read_genotypes(path: str | os.PathLike[str]) -> Genotypes:
    """Read the genotypes of PLINK's ``.bed``, ``.bim`` and ``.fam``, or of a VCF or BCF file.

    Of a ``.bed`` file allele A1 is counted, of a VCF the alternative one.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there")
    if path.suffix == ".bed":
        return _read_bed(path)
    if path.name.endswith(_VCF):
        return _read_vcf(path)
    raise DataError(
        f"{path}: genotypes are read from .bed files (with .bim and .fam beside them), and from "
        f"{', '.join(_VCF)}",
        code="unknown-genotype-file",
    )


def _reader(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{path} is read by {name}: pip install 'encryptedstats[genome]'"
        ) from error


def _read_bed(path: Path) -> Genotypes:
    bed_reader = _reader("bed_reader", path)
    try:
        with bed_reader.open_bed(path) as bed:
            codes = bed.read(dtype="int8", order="C")
            variants = pd.DataFrame(
                {
                    "CHROM": bed.chromosome,
                    "POS": bed.bp_position,
                    "ID": bed.sid,
                    "A1": bed.allele_1,
                    "A2": bed.allele_2,
                }
            )
            people = tuple(map(str, bed.iid))
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: {error}", code="malformed-genotype-file") from error
    return Genotypes(np.where(codes < 0, np.int8(MISSING), codes), people, variants)


def _read_vcf(path: Path) -> Genotypes:
    cyvcf2 = _reader("cyvcf2", path)
    columns: list[NDArray[np.int8]] = []
    variants: list[tuple[str, int, str, str, str]] = []
    try:
        file = cyvcf2.VCF(str(path), gts012=True)
        for one in file:
            if len(one.ALT) != 1:
                raise DataError(
                    f"{path}, {one.CHROM}:{one.POS}: {len(one.ALT)} alternative alleles, and a "
                    "scan "
                    "counts one: split such variants (bcftools norm -m-)",
                    code="not-biallelic",
                )
            codes = one.gt_types.astype(np.int8)
            columns.append(np.where(codes == _UNKNOWN, np.int8(MISSING), codes))
            variants.append((one.CHROM, int(one.POS), one.ID or ".", one.ALT[0], one.REF))
    except OSError as error:
        raise DataError(f"{path}: {error}", code="malformed-genotype-file") from error
    if not columns or not file.samples:
        raise DataError(f"{path} has no genotypes", code="malformed-genotype-file")
    known = pd.DataFrame(variants, columns=["CHROM", "POS", "ID", "A1", "A2"])
    return Genotypes(np.ascontiguousarray(np.stack(columns, axis=1)), tuple(file.samples), known)
