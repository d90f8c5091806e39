"""What a worker can do wrong: one line each, and no file is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import Hospital, Run, disk_full, names, the_error

import encryptedstats as es
from encryptedstats.storage import files as storage_files


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("counts(age)", "no variable 'age'; the variables are 'v0', 'v1'"),
        ("counts(v0, v9)", "no variable 'v9'"),
        ("counts(v4)", "is a number and has no bins to count: see moments"),
        ("crosstab(v0, v5)", "is a number"),
        ("moments(v0)", "moments are for numbers, data schema --column 'COLUMN digits=N' keeps"),
        ("moments(v4, v4)", "different variables"),
        ("moments(class)", "the class has no moments"),
    ],
)
def test_wrong_questions(
    run: Run, hospital: Hospital, tmp_path: Path, question: str, words: str
) -> None:
    assert words in the_error(run("ask", hospital.table, question, "-o", tmp_path / "r"))
    assert names(tmp_path) == []


def test_what_is_no_table(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    out = tmp_path / "r"
    for place in (tmp_path / "none", "memory://nowhere"):
        assert "no encrypted table lies at" in the_error(run("ask", place, "counts(v0)", "-o", out))
    wanted = "and the folder of an encrypted table is wanted here: encryptedstats encrypt makes one"
    for place, what in (
        (tmp_path, "is a folder without a table in it"),
        (hospital.public, "holds public keys"),
        (hospital.csv, "is no file of this program"),
    ):
        assert f"{what}, {wanted}" in the_error(run("ask", place, "counts(v0)", "-o", out))
    assert names(tmp_path) == []


def test_places_for_the_result(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    key = hospital.key.read_bytes()
    question = ("ask", hospital.table, "counts(v0)", "-o")
    assert "make it first" in the_error(run(*question, tmp_path / "no" / "r"))
    assert run(*question, tmp_path).exit_code == 2
    assert "holds a secret key and was not touched" in the_error(run(*question, hospital.key))
    assert hospital.key.read_bytes() == key


def test_a_full_disk(
    run: Run, hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r").write_text("old")
    monkeypatch.setattr(storage_files.os, "fsync", disk_full)
    counts = ("ask", hospital.table, "counts(v0)", "-o", tmp_path / "r")
    assert "--force to replace it" in the_error(run(*counts))
    error = the_error(run(*counts, "--force"))
    assert (
        error
        == f"error: {tmp_path / 'r'}: no space left on device; free some space, or write elsewhere"
    )
    assert names(tmp_path) == ["r"]
    assert (tmp_path / "r").read_text() == "old"


def test_parameters_that_do_not_carry_it(
    run: Run, tmp_path: Path, files: Path, hospital: Hospital
) -> None:
    """Keys for values up to a few thousand, and a sum of squares: refused before anything is
    computed.
    """
    table = es.Schema.load(hospital.schema).table(hospital.frame)
    owner = es.Owner(es.Parameters.choose(max_value=2000, depth=1))
    owner.encrypt(table, out=tmp_path / "t")
    error = the_error(run("ask", tmp_path / "t", "moments(v4)", "-o", tmp_path / "r"))
    assert "max_value" in error or "plan" in error
    assert "es." not in error
    assert names(tmp_path) == ["t"]
