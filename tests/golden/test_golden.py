"""Pin the residues of encrypted results and the loading of files that version 0.2 wrote.

Evaluation is deterministic, so a refactoring must not change a bit. A change of packing on purpose
writes new digests with ``make_golden.py digests`` and says so in its commit.
"""

from __future__ import annotations

import json

import pytest
from golden_questions import (
    DEVICES,
    STORED,
    STORED_ANSWERS,
    digest_result,
    make_frame,
    make_genome,
    make_questions,
    make_scans,
    read_totals,
)

import encryptedstats as es

pytestmark = pytest.mark.filterwarnings(
    "ignore::encryptedstats.InsecureParametersWarning",
    "ignore::encryptedstats.InsecureKeyFileWarning",
)
QUESTIONS = make_questions()
SCANS = make_scans()


@pytest.fixture(scope="module")
def table() -> es.EncryptedTable:
    return es.load(STORED / "table")


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    return es.Owner.load(STORED / "insecure.key")


@pytest.fixture(scope="module")
def schema() -> es.Schema:
    return es.Schema.load(STORED / "schema.json")


def test_every_question_has_a_digest() -> None:
    assert set(json.loads((STORED / "digests.json").read_text())) == set(QUESTIONS)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_residues_are_those_that_were_stored(
    name: str, device: str, table: es.EncryptedTable
) -> None:
    answer = table.ask(QUESTIONS[name], device=device, workers=1)
    stored = json.loads((STORED / "digests.json").read_text())
    assert digest_result(answer) == stored[name][device]


@pytest.mark.parametrize("name", QUESTIONS)
def test_opened_totals_are_the_clear_ones(
    name: str, table: es.EncryptedTable, owner: es.Owner, schema: es.Schema
) -> None:
    rows = schema.table(make_frame(), folds=2)
    opened = owner.open(table.ask(QUESTIONS[name], workers=1), schema)
    assert read_totals(opened) == read_totals(rows.ask(QUESTIONS[name]))


@pytest.mark.parametrize("file", STORED_ANSWERS)
def test_answers_of_version_0_2_are_opened(file: str, owner: es.Owner, schema: es.Schema) -> None:
    opened = owner.open(STORED / file, schema)
    stored = json.loads((STORED / "opened.json").read_text())
    assert read_totals(opened) == stored[file]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SCANS)
def test_scans_of_a_genome_table_have_the_stored_residues(
    name: str, device: str, owner: es.Owner
) -> None:
    answer = es.load(STORED / "genome", owner.public_keys()).ask(
        SCANS[name], device=device, workers=1
    )
    assert digest_result(answer) == json.loads((STORED / "scans.json").read_text())[name][device]
    table = make_genome()
    found = owner.open(answer, table.schema)
    assert read_totals(found) == read_totals(table.ask(SCANS[name]))
