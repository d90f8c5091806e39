"""``schema``: what it finds, what it is told, how it shows it, and what it refuses."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, disk_full, done, names, patients, the_error

import encryptedstats as es
from encryptedstats.storage import files as storage_files


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    patients().to_csv(path, index=False)
    return path


def test_it_is_inferred_written_and_shown(csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "schema.json"
    shown = done(
        "data", "schema", csv, "--target", "ill", "--leave-out", "patient", "-o", out
    ).stdout
    expected = es.Schema.infer(pd.read_csv(csv).drop(columns="patient"), target="ill")
    assert replace(es.Schema.load(out), csv=None) == expected
    assert "60 rows, 6 variables" in shown
    for position, variable in enumerate(expected.variables):
        line = next(line for line in shown.splitlines() if line.startswith(f"v{position} "))
        assert variable.name in line
        assert variable.kind in line
    assert "no, yes" in shown
    assert "a worker must not get it" in shown
    assert "encryptedstats plan " in shown


def test_without_a_place_nothing_is_written(csv: Path, tmp_path: Path) -> None:
    assert "give -o schema.json to keep it" in done("data", "schema", csv).stdout
    assert names(tmp_path) == ["patients.csv"]


def test_single_columns(csv: Path) -> None:
    options = (
        "--column",
        "visits kind=continuous",
        "--column",
        "dose digits=1",
        "--column",
        "dose range=0:50.5",
        "--column",
        "kilos range=0:200",
    )
    result = done("data", "schema", csv, "--leave-out", "patient", "--bins", 4, *options)
    shown = result.stdout
    found = es.Schema.from_json(
        done(
            "data", "schema", csv, "--leave-out", "patient", "--bins", 4, *options, "--json"
        ).stdout
    )
    assert found.target is None
    assert (found["dose"].digits, found["dose"].low, found["dose"].high) == (1, 0, 505)
    assert (found["kilos"].digits, found["kilos"].high) == (1, 2000)
    assert found["age"].n_bins == 4
    assert "4 bins asked" in shown
    assert "ties" in shown
    assert shown.count("these bounds are public") == 2
    assert "0 to 50.5, 1 decimal" in shown


def test_an_identifier_is_pointed_out(csv: Path) -> None:
    line = next(
        line
        for line in done("data", "schema", csv).stdout.splitlines()
        if "patient" in line and "v0" in line
    )
    assert "an identifier? --leave-out" in line


def test_names_with_signs_of_all_sorts(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a=b": [1, 2, 3, 1], "größe [m]": [1.5, 1.6, 1.7, 1.8], "\x1b[31mred": [1, 2, 1, 2]}
    )
    frame.to_csv(tmp_path / "d.csv", index=False)
    result = done("data", "schema", tmp_path / "d.csv", "--column", "a=b kind=categorical")
    assert "a=b" in result.stdout
    assert "größe [m]" in result.stdout
    assert "\x1b" not in result.stdout


def test_cut_points_and_bounds_of_dates_are_dates(tmp_path: Path) -> None:
    seen = pd.date_range("2020-01-01", periods=40, freq="D").strftime("%Y-%m-%d")
    pd.DataFrame({"seen": seen, "age": range(40)}).to_csv(tmp_path / "d.csv", index=False)
    binned = done("data", "schema", tmp_path / "d.csv", "--bins", 2).stdout
    assert "cut at 2020-01-20" in binned
    kept = done("data", "schema", tmp_path / "d.csv", "--numbers", "keep").stdout
    assert "1970-01-01 to " in kept


def test_parquet(tmp_path: Path, csv: Path) -> None:
    pd.read_csv(csv).to_parquet(tmp_path / "p.parquet")
    found = [
        done("data", "schema", path, "--target", "ill", "--json").stdout
        for path in (csv, tmp_path / "p.parquet")
    ]
    assert {**json.loads(found[0]), "csv": None} == json.loads(found[1])


@pytest.mark.parametrize(("policy", "n_bins"), [("bin", 4), ("drop", 3)])
def test_missing_values(tmp_path: Path, run: Run, policy: str, n_bins: int) -> None:
    pd.DataFrame({"a": [1, 2, np.nan, 3], "b": [1, 2, 1, 2]}).to_csv(
        tmp_path / "d.csv", index=False
    )
    error = the_error(run("data", "schema", tmp_path / "d.csv"))
    assert "missing values in column 'a' (row 3)" in error
    assert "--missing bin or --missing drop" in error
    assert "with_missing_bin" not in error
    found = es.Schema.from_json(
        done("data", "schema", tmp_path / "d.csv", "--missing", policy, "--json").stdout
    )
    assert (found.missing, found["a"].n_bins) == (policy, n_bins)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "sick"), "no target column 'sick'; it has 'patient', 'age'"),
        (("--column", "agee kind=ordinal"), "no column 'agee' to describe (did you mean 'age'?)"),
        (
            ("--column", "age kind=nominal"),
            "kind 'nominal' does not exist; the kinds are continuous, ordinal",
        ),
        (("--column", "ill digits=1"), "kind 'number' needs numbers"),
        (("--leave-out", "name"), "has no column 'name' to leave out; it has 'patient'"),
        (("--bins", "0"), "bins"),
        (("--column", "dose digits=99"), "digits"),
        (("--column", "dose range=7:3"), "variable 'dose'"),
    ],
)
def test_wrong_columns(run: Run, csv: Path, tmp_path: Path, options: Any, words: str) -> None:
    assert words in the_error(run("data", "schema", csv, *options, "-o", tmp_path / "s.json"))
    assert names(tmp_path) == ["patients.csv"]


@pytest.mark.parametrize(
    "options",
    [
        ("--column", "age"),
        ("--column", "=ordinal"),
        ("--column", "age kidn=ordinal"),
        ("--column", "age digits=many"),
        ("--column", "age range=1"),
        ("--column", "dose kind=ordinal", "--column", "dose digits=1"),
        ("--missing", "ignore"),
    ],
)
def test_usage_errors(run: Run, csv: Path, options: Any) -> None:
    assert run("data", "schema", csv, *options).exit_code == 2


def test_files_that_are_no_data(run: Run, tmp_path: Path, files: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "p.parquet").write_text("no")
    assert "is empty" in the_error(run("data", "schema", tmp_path / "empty.csv"))
    assert "not a Parquet file" in the_error(run("data", "schema", tmp_path / "p.parquet"))
    assert "check the path" in the_error(run("data", "schema", tmp_path / "none.csv"))
    wanted = "and a CSV or Parquet file with rows is wanted here"
    assert f"is a folder without a table in it, {wanted}" in the_error(
        run("data", "schema", tmp_path)
    )
    assert f"holds an encrypted array, {wanted}" in the_error(
        run("data", "schema", files / "array.enc")
    )
    (tmp_path / "bytes.csv").write_bytes(bytes(range(256)))
    assert "not a CSV file" in the_error(run("data", "schema", tmp_path / "bytes.csv"))


def test_a_schema_is_not_overwritten(run: Run, csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.json"
    out.write_text("old")
    assert "--force" in the_error(run("data", "schema", csv, "-o", out))
    assert out.read_text() == "old"
    done("data", "schema", csv, "-o", out, "--force")
    assert es.Schema.load(out).names[0] == "patient"


def test_a_full_disk_leaves_nothing(
    run: Run, csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    error = the_error(run("data", "schema", csv, "-o", tmp_path / "s.json"))
    assert (
        error
        == f"error: {tmp_path / 's.json'}: no space left on device; free some space, or write "
        "elsewhere"
    )
    assert names(tmp_path) == ["patients.csv"]


def test_a_folder_that_is_not_ours(
    run: Run, csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not write in the folder" in the_error(
        run("data", "schema", csv, "-o", tmp_path / "s.json")
    )
