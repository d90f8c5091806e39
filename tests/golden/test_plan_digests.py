"""Compare what a plan compiled with what the evaluation of a table of the planned size runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from golden_questions import make_frame, make_questions, make_schema

import encryptedstats as es

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
QUESTIONS = make_questions()
FRAME = make_frame()
SCHEMA = make_schema(FRAME)


@pytest.fixture(scope="module")
def binned() -> tuple[es.Schema, pd.DataFrame]:
    i = np.arange(40)
    frame = pd.DataFrame({"a": i % 7, "b": (i * 3) % 5, "y": i * 5 % 3 % 2})
    return es.Schema.infer(frame, target="y", bins=3), frame


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_planned_program_of_a_question_is_run(name: str) -> None:
    rows = SCHEMA.table(FRAME, folds=2)
    plan = es.plan(QUESTIONS[name], rows)
    answer = es.Owner(plan).encrypt(rows).ask(QUESTIONS[name], workers=1)
    assert digest_of(answer) == plan.digests[0]


def digest_of(answer: Any) -> str | None:
    return getattr(answer, "answer_", answer).program_digest


@pytest.mark.parametrize("fraction", [0, 2])
def test_the_planned_programs_of_a_prediction_are_run(
    fraction: int, binned: tuple[es.Schema, pd.DataFrame]
) -> None:
    schema, frame = binned
    size = (1, 1) if fraction else (3, 2)  # keys that draw of deeper trees are half a gigabyte
    forest = es.CompletelyRandomForest(*size, fraction=fraction, random_state=1)
    rows, new = schema.table(frame), schema.table(frame[["a", "b"]].head(9))
    plan = es.plan(forest, rows, n_predict=9, encrypted_prediction=True)
    owner = es.Owner(plan)
    sealed = owner.encrypt(rows)
    fitted = forest.fit(sealed)
    found = [digest_of(fitted)]
    if fraction:
        fitted.draw_fraction(sealed)
        found.append(fitted.extra_totals_["drawn"].program_digest)
    votes = fitted.predict_votes(owner.encrypt(new))
    assert (*found, votes.program_digest) == plan.digests


def test_the_planned_program_of_an_opened_prediction_is_run(
    binned: tuple[es.Schema, pd.DataFrame],
) -> None:
    schema, frame = binned
    forest = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=1).fit(schema.table(frame))
    new = schema.table(frame[["a", "b"]].head(9))
    plan = es.plan(forest, new, n_predict=9, encrypted_prediction=True)
    votes = forest.predict_votes(es.Owner(plan).encrypt(new))
    assert (votes.program_digest,) == plan.digests


def test_the_digest_is_stored_with_an_answer_but_not_with_votes(
    binned: tuple[es.Schema, pd.DataFrame], tmp_path: Path
) -> None:
    schema, frame = binned
    forest = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=1)
    owner = es.Owner(es.plan(forest, schema.table(frame)))
    answer = owner.encrypt(schema.table(frame)).ask(forest).answer_
    file = answer.to_container()
    assert file.fields["program"] == answer.program_digest
    answer.save(tmp_path / "answer")
    assert (
        es.EncryptedAnswer.load(tmp_path / "answer", owner.public_keys()).program_digest
        == answer.program_digest
    )
    votes = owner.open(answer).predict_votes(owner.encrypt(schema.table(frame[["a", "b"]])))
    assert votes.to_container().fields["program"] is None


def test_other_rows_are_another_program(binned: tuple[es.Schema, pd.DataFrame]) -> None:
    schema, _ = binned
    forest = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=1)
    few, many = (es.plan(forest, schema, n_rows=n).digests for n in (40, 90_000))
    other = es.plan(
        es.CompletelyRandomForest(n_trees=3, depth=2, random_state=2), schema, n_rows=40
    ).digests
    assert len({few, many, other}) == 3


@pytest.mark.parametrize(
    "model", [es.OneStepLogisticRegression(), es.FisherDiscriminant()], ids=repr
)
def test_the_planned_program_of_folds_is_run(model: Any) -> None:
    rows = SCHEMA.table(FRAME, folds=2)
    plan = es.plan(model, rows)
    folds = model.fit_folds(es.Owner(plan).encrypt(rows))
    assert folds.program_digest == plan.digests[1]
