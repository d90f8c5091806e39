"""People and their genotypes, from a file of PLINK to the table of a scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, done, the_error

import encryptedstats as es

PEOPLE, VARIANTS = 80, 70


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bed_reader = pytest.importorskip("bed_reader")
    rng = np.random.default_rng(1)
    codes = rng.binomial(2, 0.3, (PEOPLE, VARIANTS)).astype(np.int8)
    names = [f"i{k}" for k in range(PEOPLE)]
    properties = {"iid": names, "sid": [f"rs{j}" for j in range(VARIANTS)]}
    bed_reader.to_bed(tmp_path / "study.bed", codes, properties=properties)
    people = pd.DataFrame({"IID": names, "age": rng.integers(20, 60, PEOPLE)})
    people.assign(bmi=20 + codes[:, 9]).to_csv(tmp_path / "people.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_scan_from_files_to_a_table(home: Path) -> None:
    from_bed = ("--genotypes", "study.bed")
    who = ("--target", "bmi", "--id", "IID")
    shown = done("data", "schema", "people.csv", *from_bed, *who, "-o", "schema.json")
    assert "next  encryptedstats plan schema.json GenomeScan --rows 80" in shown.stdout
    scan = "GenomeScan covariates=age"
    shown = done("plan", "schema.json", scan, "--rows", PEOPLE, "-o", "plan.json")
    assert "lanes each" in shown.stdout
    done("key", "make", "secret.key", "public.keys", "--plan", "plan.json")
    own = ("--schema", "schema.json", "--key", "secret.key")
    shown = done("encrypt", "people.csv", "people.enc", *from_bed, *own)
    assert "of up to 32, 128 lanes each" in shown.stdout
    done("ask", "people.enc", scan, "--schema", "schema.json", "-o", "scan.enc")
    done("open", "scan.enc", *own, "-o", "scan.csv", "--plot", "manhattan.png")
    table = pd.read_csv("scan.csv", index_col="snp")
    assert len(table) == VARIANTS
    assert table["pvalue"].idxmin() == "rs9"
    assert table.loc["rs9", "beta"] == pytest.approx(1)
    assert Path("manhattan.png").stat().st_size


def test_genotypes_go_with_a_schema_of_theirs(home: Path, run: Run) -> None:
    without = ("data", "schema", "people.csv", "--target", "bmi")
    assert "--id" in run(*without, "--genotypes", "study.bed").stderr
    done(*without, "--id", "IID", "--numbers", "keep", "-o", "plain.json")
    plan = es.plan(es.LinearRegression("bmi ~ age"), es.Schema.load("plain.json"), PEOPLE)
    es.Owner(plan).save("secret.key")
    own = ("--schema", "plain.json", "--key", "secret.key", "--genotypes", "study.bed")
    assert "data schema --genotypes" in the_error(run("encrypt", "people.csv", "x.enc", *own))
