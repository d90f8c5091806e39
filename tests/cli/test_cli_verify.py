"""``verify``: what the worker computed comes out again, and what it altered does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from cli_helpers import Hospital, Run, done, the_error

from encryptedstats.storage import container


def test_what_the_worker_computed_comes_out_again(hospital: Hospital) -> None:
    result = hospital.ask("age", "counts", "v0")
    shown = done("verify", result, hospital.table).stdout
    assert "Verified" in shown
    assert "60 rows in 1 block" in shown
    facts = json.loads(done("verify", result, hospital.table, "--device", "seal", "--json").stdout)
    assert facts["verified"] is True
    assert facts["question"] == "counts"


def test_what_it_altered_does_not(hospital: Hospital, run: Run, tmp_path: Path) -> None:
    file = container.read(hospital.ask("age", "counts", "v0"))
    residues = bytearray(file.section("residues"))
    residues[0] ^= 1
    forged = replace(file, sections={**file.sections, "residues": bytes(residues)})
    container.write(forged, tmp_path / "forged.enc")
    error = the_error(run("verify", tmp_path / "forged.enc", hospital.table))
    assert "this is not what its question gives over these rows: it was altered, or computed in another way" in error


def test_what_is_no_result_of_this_table(hospital: Hospital, run: Run) -> None:
    assert "encrypted result" in the_error(run("verify", hospital.public, hospital.table))


def test_plans_for_members(hospital: Hospital) -> None:
    arguments = ("plan", "--schema", hospital.schema, "--rows", 60, "--counts", "v0", "--members", 3, "--json")
    facts = json.loads(done(*arguments).stdout)
    assert facts["parameters"]["members"] == 3
    assert facts["flooded"] is True
