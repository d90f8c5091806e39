"""``open``: arrays, integers and totals; keys, schemas and files that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Hospital, Run, disk_full, done, names, the_error

import encryptedstats as es
from encryptedstats.circuits import column
from encryptedstats.storage import container
from encryptedstats.storage import files as storage_files


@pytest.fixture(scope="module")
def cube(owner: es.Owner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cube") / "cube.enc"
    owner.encrypt(np.arange(8).reshape(2, 2, 2)).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "csv", "shown"),
    [
        ("array.enc", "1,2,3\n4,5,6\n", "Array of 2 x 3 integers"),
        ("integer.enc", "7\n", "An integer"),
    ],
)
def test_arrays(files: Path, tmp_path: Path, name: str, csv: str, shown: str) -> None:
    opened = ("open", files / name, "--key", files / "secret.key")
    assert shown in done(*opened).stdout
    wrote = done(*opened, "-o", tmp_path / "a.csv").stdout
    assert f"wrote  {tmp_path / 'a.csv'}" in wrote
    assert (tmp_path / "a.csv").read_text() == csv
    assert done(*opened, "-o", "-").stdout == csv
    assert json.loads(done(*opened, "--json").stdout)["kind"] == "encrypted array"


def test_more_dimensions(files: Path, cube: Path) -> None:
    lines = done("open", cube, "--key", files / "secret.key", "-o", "-").stdout.splitlines()
    assert lines[0] == "i0,i1,i2,value"
    assert lines[-1] == "1,1,1,7"
    assert len(lines) == 9
    assert json.loads(done("open", cube, "--key", files / "secret.key", "--json").stdout)["facts"][
        "shape"
    ] == [2, 2, 2]


def test_totals(hospital: Hospital, tmp_path: Path) -> None:
    table = es.EncryptedTable.load(hospital.table)
    table.evaluate([column("v1.bin0").total(), column("v4.number").total()]).save(tmp_path / "t")
    expected = [int((hospital.frame["grade"] == 1).sum()), round(10 * hospital.frame["dose"].sum())]
    opened = ("open", tmp_path / "t", "--key", hospital.key)
    (table,) = json.loads(done(*opened, "--json").stdout)["tables"].values()
    assert [row[0] for row in table["values"]] == expected
    assert done(*opened, "-o", "-").stdout == f"total\n{expected[0]}\n{expected[1]}\n"
    assert "2 totals" in done(*opened).stdout
    assert (
        "encrypted result: 2 totals in 1 ciphertext" in done("data", "info", tmp_path / "t").stdout
    )


def test_keys_that_do_not_fit(run: Run, hospital: Hospital, files: Path, tmp_path: Path) -> None:
    result, out = hospital.ask("age", "counts(v0)"), tmp_path / "x.csv"
    assert "--key secret.key" in the_error(run("open", result, "-o", out))
    wanted, given = (container.read(path).key_id for path in (hospital.key, files / "secret.key"))
    wrong = the_error(run("open", result, "--key", files / "secret.key", "-o", out))
    assert (
        f"{result} belongs to key {wanted}, and {files / 'secret.key'} is the secret key {given}"
        in wrong
    )
    assert f"only the secret key {wanted} opens it, give that one with --key" in wrong
    assert "belongs to key" in the_error(
        run("open", files / "array.enc", "--key", hospital.key, "-o", out)
    )
    assert (
        "holds public keys, and your secret key is wanted here: give the file that key make "
        "wrote first" in the_error(run("open", result, "--key", hospital.public, "-o", out))
    )
    assert "check the path" in the_error(run("open", result, "--key", tmp_path / "none", "-o", out))
    assert names(tmp_path) == []


def test_files_that_are_no_results(
    run: Run, hospital: Hospital, files: Path, tmp_path: Path
) -> None:
    key = ("--key", hospital.key)
    assert "a table is not opened" in the_error(run("open", hospital.table, *key))
    assert (
        "holds public keys, and an encrypted answer, prediction, model or array is wanted here"
        in the_error(run("open", hospital.public, *key))
    )
    assert "is no file of this program, and an encrypted answer" in the_error(
        run("open", hospital.csv, *key)
    )
    assert "check the path" in the_error(run("open", tmp_path / "none", *key))
    damaged = bytearray(hospital.ask("age", "counts(v0)").read_bytes())
    damaged[-100] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    assert "SHA-256 does not fit" in the_error(run("open", tmp_path / "damaged", *key))


def test_a_schema_of_another_table(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    hospital.frame[["age", "ill"]].to_csv(tmp_path / "d.csv", index=False)
    done("data", "schema", tmp_path / "d.csv", "-o", tmp_path / "s.json")
    result = hospital.ask("age", "counts(v0)")
    error = the_error(run("open", result, "--key", hospital.key, "--schema", tmp_path / "s.json"))
    assert "this schema is not the one of the rows" in error
    assert "with --schema" in error


def test_places_for_the_csv(
    run: Run, hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ("open", hospital.ask("age", "counts(v0)"), "--key", hospital.key, "-o")
    assert "is read by this command" in the_error(run(*opened, hospital.key, "--force"))
    assert "make it first" in the_error(run(*opened, tmp_path / "no" / "x.csv"))
    (tmp_path / "x.csv").write_text("old")
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    error = the_error(run(*opened, tmp_path / "x.csv", "--force"))
    assert (
        error == f"error: {tmp_path / 'x.csv'}: no space left on device; free some space, or write "
        "elsewhere"
    )
    assert names(tmp_path) == ["x.csv"]
    assert (tmp_path / "x.csv").read_text() == "old"


def test_a_result_at_a_url(hospital: Hospital, tmp_path: Path) -> None:
    """Where a cluster left it: the owner needs nothing but the storage."""
    result = hospital.ask("age", "counts(v0)")
    es.load(result, es.PublicKeys.load(hospital.public)).save("memory://cli/age.enc")
    key = ("--key", hospital.key, "-o", "-")
    assert done("open", "memory://cli/age.enc", *key).stdout == done("open", result, *key).stdout
