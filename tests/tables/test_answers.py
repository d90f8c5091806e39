"""One class holds every answer: encrypted and decrypted, of statistics and of models."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.tables.answers.answer import Answer
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
FRAME = pd.DataFrame({"age": [30, 40, 50, 60, 40, 30], "sick": [0, 1, 1, 0, 1, 1]})
SCHEMA = es.Schema.infer(FRAME, target="sick")


@pytest.fixture
def halves(tiny: es.Owner) -> list[es.EncryptedTable]:
    return [tiny.encrypt(SCHEMA.table(part), workers=1) for part in (FRAME[:4], FRAME[4:])]


def test_a_model_holds_one_answer_and_reads_it(
    tiny: es.Owner, halves: list[es.EncryptedTable]
) -> None:
    model = es.MultinomialNB().fit(halves[0], workers=1)
    answer = model.answer_
    assert isinstance(answer, Answer)
    assert (answer.is_encrypted, answer.kind) == (True, "encrypted model")
    assert (model.totals_, model.n_rows_, model.schema_) == (
        answer.totals,
        answer.n_rows,
        answer.schema,
    )
    assert (model.block_ids_, model.n_dropped_, model.weight_bound_) == (answer.block_ids, 0, 1)
    assert {name for name in vars(model) if name.endswith("_") and name in dir(Answer)} == set()
    opened = tiny.open(model).answer_
    assert (opened.is_encrypted, opened.kind, opened.program_digest) == (
        False,
        "opened model",
        None,
    )
    assert repr(opened) == "Answer(MultinomialNB(), 4 rows, decrypted)"
    with pytest.raises(TypeError, check=error("already-decrypted")):
        _ = opened.ciphertexts


def test_an_answer_keeps_the_question_that_was_asked(halves: list[es.EncryptedTable]) -> None:
    asked = es.MultinomialNB(alpha=2.0)
    model = halves[0].ask(asked, workers=1)
    asked.set_params(alpha=3.0)
    model.set_params(alpha=4.0)
    assert model.answer_.question.alpha == 2.0
    assert model.growth_["alpha"] == 2.0
    with pytest.raises(AttributeError, match="answer_"):
        _ = es.MultinomialNB().growth_


def test_decrypted_answers_add_up_and_forget_as_encrypted_ones_do(
    tiny: es.Owner, halves: list[es.EncryptedTable]
) -> None:
    one, other = (es.MultinomialNB().fit(half, workers=1) for half in halves)
    opened = [tiny.open(model).answer_ for model in (one, other)]
    both = opened[0] + opened[1]
    assert both.totals == tiny.open(one + other).answer_.totals
    assert (both.n_rows, both.block_ids) == (6, one.block_ids_ + other.block_ids_)
    assert (both - opened[1]).totals == opened[0].totals
    with pytest.raises(TypeError, check=error("encrypted-and-open")):
        both + one.answer_
    with pytest.raises(es.SchemaError, check=error("block-already-included")):
        both + opened[0]


def test_a_decrypted_answer_is_stored_as_what_it_presents(
    tiny: es.Owner, halves: list[es.EncryptedTable], tmp_path: Path
) -> None:
    model = tiny.open(es.MultinomialNB().fit(halves[0], workers=1))
    model.answer_.save(tmp_path / "answer")
    model.save(tmp_path / "model")
    assert (tmp_path / "answer").read_bytes() == (tmp_path / "model").read_bytes()
    assert es.load(tmp_path / "answer").totals_ == model.totals_


def test_an_answer_names_the_program_that_computed_it(halves: list[es.EncryptedTable]) -> None:
    one, again = (halves[0].counts("age", by="class") for _ in range(2))
    assert one.program_digest is not None
    assert one.program_digest == again.program_digest == one.ciphertexts.program_digest
    assert es.MultinomialNB().fit(halves[0], workers=1).answer_.program_digest != one.program_digest
