"""``info`` on tables, their parts and schemas: what a worker may know, what is damaged, and what
lies there by mistake.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_helpers import Hospital, Run, done, the_error

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.tables.encryption import DRAFT_KIND


@pytest.fixture
def table(hospital: Hospital, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(hospital.table, tmp_path / "copy"))


def a_block(table: Path) -> Path:
    return next((table / "blocks").iterdir())


def test_a_table(hospital: Hospital) -> None:
    shown = done("data", "info", hospital.table).stdout
    for words in (
        "encrypted table of 60 rows",
        "v0  continuous, 5 bins",
        "v4  number, 0 to 500",
        "2 classes",
        "bits of modulus",
    ):
        assert words in shown
    assert "none: nothing in it can decrypt" in shown
    assert "age" not in shown.replace(str(hospital.table), "")
    facts = json.loads(done("data", "info", hospital.table, "--json").stdout)
    assert facts["kind"] == "encrypted table"
    assert (facts["rows"], facts["classes"], facts["blocks"]) == (60, 2, 1)
    assert facts["holds_secret_key"] is False
    assert facts["other_files"] == {}
    assert [variable["id"] for variable in facts["schema"]] == [f"v{j}" for j in range(6)]
    assert done("data", "info", f"file://{hospital.table}").exit_code == 0


def test_variables_that_are_alike_share_a_line(hospital: Hospital, tmp_path: Path) -> None:
    frame = hospital.frame[["age", "kilos", "dose", "grade"]]
    schema = es.Schema.infer(frame, bins=3)
    es.Owner.load(hospital.key).encrypt(schema.table(frame), out=tmp_path / "t")
    shown = done("data", "info", tmp_path / "t").stdout
    assert "v0 to v2  continuous, 3 bins" in shown
    assert "rows to predict" in shown


def test_a_key_or_a_schema_that_lies_in_the_folder(hospital: Hospital, table: Path) -> None:
    shutil.copy(hospital.key, table / "blocks" / "backup")
    shutil.copy(hospital.schema, table / "schema.json")
    (table / "notes.txt").write_text("hello")
    shown = done("data", "info", table).stdout
    assert "A SECRET KEY lies in the folder" in shown
    for words in (
        "blocks/backup: secret key",
        "schema.json: schema",
        "notes.txt: no part of a table",
    ):
        assert words in shown
    facts = json.loads(done("data", "info", table, "--json").stdout)
    assert facts["holds_secret_key"] is True
    assert facts["other_files"]["schema.json"] == "schema"


def test_check_reads_every_block(run: Run, table: Path) -> None:
    assert "as the owner wrote it" in done("data", "info", table, "--check").stdout
    block = a_block(table)
    data = bytearray(block.read_bytes())
    data[-1000] ^= 1
    block.write_bytes(data)
    assert done("data", "info", table).exit_code == 0
    assert block.name in the_error(run("data", "info", table, "--check"))
    block.unlink()
    assert "is not there" in the_error(run("data", "info", table, "--check"))


def test_a_table_without_its_keys(run: Run, table: Path, tmp_path: Path) -> None:
    next(table.glob("public-*.keys")).unlink()
    assert "give them with --keys" in done("data", "info", table).stdout
    assert "give --keys, those of key" in the_error(
        run("ask", table, "counts(v0)", "-o", tmp_path / "r")
    )


def test_a_damaged_manifest(run: Run, table: Path) -> None:
    manifest = table / "table.manifest"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    assert "table.manifest is truncated" in the_error(run("data", "info", table))


@pytest.mark.parametrize(
    ("part", "kind", "words"),
    [
        ("block", "table block", "block of an encrypted table: 60 rows, 13 columns"),
        ("table.manifest", "encrypted table", "manifest of an encrypted table: give its folder"),
        ("public-*.keys", "public keys", "public keys"),
    ],
)
def test_parts_of_a_table(table: Path, part: str, kind: str, words: str) -> None:
    path = a_block(table) if part == "block" else next(table.glob(part))
    assert words in done("data", "info", path).stdout
    facts = json.loads(done("data", "info", path, "--json").stdout)
    assert facts["kind"] == kind
    assert facts["holds_secret_key"] is False


def test_a_draft(table: Path, tmp_path: Path) -> None:
    manifest = container.read(table / "table.manifest")
    sections = {name: manifest.sections[name] for name in ("schema", "columns")}
    draft = container.Container(
        DRAFT_KIND, manifest.fingerprint, manifest.key_id, manifest.fields, sections
    )
    container.write(draft, tmp_path / "table.draft")
    assert (
        "draft of a table that is not finished"
        in done("data", "info", tmp_path / "table.draft").stdout
    )


def test_a_result(hospital: Hospital) -> None:
    result = hospital.ask("age-ill", "counts(v0, class)")
    shown = done("data", "info", result).stdout
    assert "encrypted result: counts of v0 by class" in shown
    assert "60 rows, 6 variables, 2 classes; 10 totals in 1 ciphertext" in shown
    facts = json.loads(done("data", "info", result, "--json").stdout)
    assert (facts["question"], facts["params"]) == ("counts", {"variables": [0, -1]})
    assert facts["totals"] == 10
    assert facts["holds_secret_key"] is False


@pytest.mark.parametrize(
    ("fields", "sections"),
    [
        ({"params": {"variables": ["v0"]}}, {}),
        ({"params": {}}, {}),
        ({"question": 7}, {}),
        ({"n_rows": "many"}, {}),
        ({}, {"numbers": b"{"}),
        ({}, {"numbers": b"7"}),
    ],
)
def test_a_malformed_result(
    run: Run, hospital: Hospital, tmp_path: Path, fields: dict, sections: dict
) -> None:
    good = container.read(hospital.ask("age", "counts(v0)"))
    changed = (
        good.kind,
        good.fingerprint,
        good.key_id,
        {**good.fields, **fields},
        {**good.sections, **sections},
    )
    container.write(container.Container(*changed), tmp_path / "bad")
    the_error(run("data", "info", tmp_path / "bad"))


def test_a_schema(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    shown = done("data", "info", hospital.schema).stdout
    assert "a worker never gets it" in shown
    assert "sex, at birth" in shown
    assert json.loads(done("data", "info", hospital.schema, "--json").stdout)["target"] == "ill"


def test_a_plan(run: Run, hospital: Hospital, tmp_path: Path) -> None:
    plan = hospital.home / "plan.json"
    shown = done("data", "info", plan).stdout
    for words in (
        "plan",
        "counts of age by ill",
        "up to 60",
        "192 bits",
        "encryptedstats key make",
    ):
        assert words in shown
    assert json.loads(done("data", "info", plan, "--json").stdout)["rows"] == 60
    (tmp_path / "other.json").write_text("{}")
    assert "format None" in the_error(run("data", "info", tmp_path / "other.json"))
