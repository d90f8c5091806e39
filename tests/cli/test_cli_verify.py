"""``verify``: what the worker computed comes out again, and what it altered does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from cli_helpers import Hospital, Run, done, invoke, patients, the_error

import encryptedstats as es
from encryptedstats.storage import container


def test_what_the_worker_computed_comes_out_again(hospital: Hospital) -> None:
    result = hospital.ask("age", "counts(v0)")
    shown = done("check", "answer", result, hospital.table).stdout
    assert "Verified" in shown
    assert "60 rows in 1 block" in shown
    facts = json.loads(
        done("check", "answer", result, hospital.table, "--on", "device=seal", "--json").stdout
    )
    assert facts["verified"] is True
    assert facts["question"] == "counts"


def test_what_it_altered_does_not(hospital: Hospital, run: Run, tmp_path: Path) -> None:
    file = container.read(hospital.ask("age", "counts(v0)"))
    residues = bytearray(file.section("residues"))
    residues[0] ^= 1
    forged = replace(file, sections={**file.sections, "residues": bytes(residues)})
    container.write(forged, tmp_path / "forged.enc")
    error = the_error(run("check", "answer", tmp_path / "forged.enc", hospital.table))
    assert (
        "this is not the answer to its question over these rows: it was altered, or computed in "
        "another way" in error
    )


def test_what_is_no_result_of_this_table(hospital: Hospital, run: Run) -> None:
    assert "encrypted answer" in the_error(run("check", "answer", hospital.public, hospital.table))


def test_votes_come_out_again_too(tmp_path: Path) -> None:
    """The model is computed from its table, and asked for the rows."""
    frame = patients(40).drop(columns=["patient", "dose", "kilos"])
    schema = es.Schema.infer(frame, target="ill", bins=2)
    model = es.MultinomialNB()
    owner = es.Owner(es.plan(model, schema, n_rows=40, encrypted_prediction=True))
    trained, new = (
        owner.encrypt(schema.table(frame)),
        owner.encrypt(schema.table(frame[:7].drop(columns="ill"))),
    )
    trained.save(tmp_path / "table.enc")
    new.save(tmp_path / "new.enc")
    model.fit(trained).predict_votes(new).save(tmp_path / "votes.enc")
    facts = json.loads(
        done(
            "check",
            "answer",
            tmp_path / "votes.enc",
            tmp_path / "table.enc",
            "--rows",
            tmp_path / "new.enc",
            "--json",
        ).stdout
    )
    assert (facts["verified"], facts["rows"], facts["blocks"]) == (True, 7, 1)
    error = the_error(invoke("check", "answer", tmp_path / "votes.enc", tmp_path / "table.enc"))
    assert "a prediction is verified with the table of its model and the predicted rows" in error
