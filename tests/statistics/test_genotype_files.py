"""Genotypes from PLINK's files and from VCF, and scans that PLINK itself makes of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from asked_samples import opened

import encryptedstats as es
from error_codes import error

PEOPLE, VARIANTS = 90, 17


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    rng = np.random.default_rng(2)
    found = rng.binomial(2, rng.uniform(0.2, 0.5, VARIANTS), (PEOPLE, VARIANTS))
    return np.where(rng.random(found.shape) < 0.04, -1, found).astype(np.int8)


@pytest.fixture(scope="module")
def people(codes: np.ndarray) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "IID": [f"i{k}" for k in range(PEOPLE)],
            "bmi": rng.integers(180, 350, PEOPLE) / 10 + np.maximum(codes[:, 5], 0),
            "age": rng.integers(20, 80, PEOPLE),
            "sick": rng.integers(0, 2, PEOPLE),
        }
    )


@pytest.fixture(scope="module")
def bed(codes: np.ndarray, people: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bed_reader = pytest.importorskip("bed_reader")
    path = tmp_path_factory.mktemp("plink") / "study.bed"
    properties = {
        "fid": people["IID"],
        "iid": people["IID"],
        "sex": np.ones(PEOPLE, dtype=int),
        "sid": [f"rs{j}" for j in range(VARIANTS)],
        "chromosome": ["1"] * 10 + ["2"] * 7,
        "bp_position": np.arange(VARIANTS) * 1000 + 5,
        "allele_1": ["C"] * VARIANTS,
        "allele_2": ["T"] * VARIANTS,
    }
    bed_reader.to_bed(path, np.where(codes < 0, -127, codes), properties=properties)
    return path


def test_a_bed_file_is_read_as_it_was_written(bed: Path, codes: np.ndarray) -> None:
    found = es.read_genotypes(bed)
    np.testing.assert_array_equal(found.codes, codes)
    assert found.people[:2] == ("i0", "i1")
    assert found.variants.iloc[-1].tolist() == ["2", 16005, "rs16", "C", "T"]


def test_people_are_matched_by_id_and_others_left_out(
    bed: Path, people: pd.DataFrame, codes: np.ndarray
) -> None:
    genotypes = es.read_genotypes(bed)
    shuffled = people.sample(frac=1, random_state=1).iloc[5:]
    with pytest.warns(es.SchemaWarning, match="5 people have genotypes and no row"):
        table = genotypes.table(shuffled, "bmi", lanes=8)
    assert len(table) == PEOPLE - 5
    whole = genotypes.table(people.sample(frac=1, random_state=1), "bmi", lanes=8)
    np.testing.assert_array_equal(whole.numbers("age"), people["age"])
    again = genotypes.table(people, schema=whole.schema)
    assert again.ask(es.GenomeScan()) == whole.ask(es.GenomeScan())
    with pytest.raises(es.DataError, check=error("no-common-people")):
        genotypes.table(people.assign(IID="nobody").head(1), "bmi")
    with pytest.raises(es.DataError, check=error("same-person")):
        genotypes.table(people.assign(IID="i1"), "bmi")
    swapped = es.Genotypes(genotypes.codes, genotypes.people, genotypes.variants.assign(A1="T"))
    with pytest.raises(es.SchemaError, check=error("other-variants")):
        swapped.table(people, schema=whole.schema)


def test_a_vcf_counts_the_alternative_allele(codes: np.ndarray, tmp_path: Path) -> None:
    pytest.importorskip("cyvcf2")
    words = {0: "0/0", 1: "0|1", 2: "1/1", -1: "./."}
    names = "\t".join(f"i{k}" for k in range(PEOPLE))
    head = (
        "##fileformat=VCFv4.2\n##contig=<ID=7>\n"
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
        f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{names}\n"
    )

    def line(j: int, alt: str) -> str:
        genotypes = "\t".join(words[int(code)] for code in codes[:, j])
        return f"7\t{j + 1}\trs{j}\tG\t{alt}\t.\tPASS\t.\tGT\t{genotypes}\n"

    path = tmp_path / "study.vcf"
    path.write_text(head + "".join(line(j, "A") for j in range(VARIANTS)))
    found = es.read_genotypes(path)
    np.testing.assert_array_equal(found.codes, codes)
    assert found.variants.iloc[2].tolist() == ["7", 3, "rs2", "A", "G"]
    path.write_text(head + line(0, "A,T"))
    with pytest.raises(es.DataError, check=error("not-biallelic")):
        es.read_genotypes(path)
    with pytest.raises(es.DataError, check=error("unknown-genotype-file")):
        es.read_genotypes(Path(__file__))


def plink(program: str, bed: Path, people: pd.DataFrame, *options: str) -> pd.DataFrame:
    """Run PLINK on the file, with trait and covariate, and return its table."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    folder = bed.parent
    for name in ("bmi", "sick", "age"):
        kept = people[["IID", "IID", name]].set_axis(["FID", "IID", name], axis=1)
        if name == "sick":
            kept = kept.assign(sick=kept["sick"] + 1)
        kept.to_csv(folder / f"{name}.txt", sep=" ", index=False)
    command = [program, "--bfile", str(bed.with_suffix("")), "--out", str(folder / "out")]
    subprocess.run([*command, *options], cwd=folder, check=True, capture_output=True)
    (found,) = folder.glob("out.*assoc*") if program == "plink1.9" else folder.glob("out.*.glm.*")
    table = pd.read_csv(found, sep=r"\s+")
    found.unlink()
    return table


def test_a_linear_scan_is_that_of_plink(bed: Path, people: pd.DataFrame) -> None:
    table = es.read_genotypes(bed).table(people.drop(columns="sick"), "bmi", lanes=8)
    found = opened(table, es.GenomeScan(covariates=["age"])).to_plink()
    wanted = plink(
        "plink1.9", bed, people, "--pheno", "bmi.txt", "--covar", "age.txt",
        "--linear", "hide-covar", "--keep-allele-order", "--allow-no-sex",
    )  # fmt: skip
    assert found["ID"].tolist() == wanted["SNP"].tolist()
    assert found["OBS_CT"].tolist() == wanted["NMISS"].tolist()
    for own, other in (("BETA", "BETA"), ("T", "STAT"), ("P", "P")):
        np.testing.assert_allclose(found[own], wanted[other], rtol=2e-3)  # four digits are printed


def test_a_linear_scan_is_that_of_plink2(bed: Path, people: pd.DataFrame) -> None:
    table = es.read_genotypes(bed).table(people.drop(columns="sick"), "bmi", lanes=8)
    found = opened(table, es.GenomeScan(covariates=["age"])).to_plink()
    wanted = plink(
        "plink2", bed, people, "--pheno", "bmi.txt", "--covar", "age.txt", "--covar-variance-standardize",
        "--glm", "hide-covar", "omit-ref",
    )  # fmt: skip
    sign = np.where(wanted["A1"] == "C", 1, -1)
    assert found["OBS_CT"].tolist() == wanted["OBS_CT"].tolist()
    np.testing.assert_allclose(found["BETA"], sign * wanted["BETA"], rtol=1e-4)
    np.testing.assert_allclose(found["SE"], wanted["SE"], rtol=1e-4)
    np.testing.assert_allclose(found["P"], wanted["P"], rtol=1e-4)


def test_an_allelic_scan_is_that_of_plink(bed: Path, people: pd.DataFrame) -> None:
    table = es.read_genotypes(bed).table(people[["IID", "sick"]], "sick", lanes=8)
    found = opened(table, es.GenomeScan(test="allelic")).to_plink()
    wanted = plink(
        "plink1.9", bed, people, "--pheno", "sick.txt", "--assoc", "--keep-allele-order",
        "--allow-no-sex",
    )  # fmt: skip
    for name in ("OR", "CHISQ", "P"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=2e-3)
