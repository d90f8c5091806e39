"""What a release writes as a table: no standard errors, intervals or tests, for every question."""

from __future__ import annotations

import pandas as pd
import pytest
from test_sensitivity import LEVELS, OF_LEVELS, OF_NUMBERS, every_row, mixed

import encryptedstats as es
from encryptedstats.publishing.tables import WRITTEN, check_written, release_table

QUESTIONS = [*OF_LEVELS, *OF_NUMBERS]
#: Parts of the names of columns, or of rows of a table of single values, that know nothing of the
#: noise.
FORBIDDEN = ("statistic", "error", "std_", "low", "high", "upp", "value", "pr(", "%", "/e", "/v")


def read_exactly(question: es.Question) -> tuple[object, pd.DataFrame]:
    """Return what a question reads, and all of its table."""
    schema = LEVELS if question in OF_LEVELS else mixed()
    rows = schema.table(pd.concat([every_row(schema)] * 20, ignore_index=True))
    result = question.fit(rows) if hasattr(question, "fit") else rows.ask(question)
    made = result.summary() if hasattr(result, "fit") else result
    return result, made if isinstance(made, pd.DataFrame) else made.to_frame()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)
def test_no_released_question_writes_what_knows_nothing_of_the_noise(question: es.Question) -> None:
    result, everything = read_exactly(question)
    table = release_table(question.name, result)
    single = list(table.columns) == ["value"]
    names = [str(name).lower() for name in (table.index if single else table.columns)]
    assert names
    assert not [name for name in names if any(part in name for part in FORBIDDEN)]
    chosen = WRITTEN[question.name]
    if chosen is not None:  # a column that was renamed would be left out without a word
        assert set(chosen) <= set(everything.index if single else everything.columns)
        assert len(chosen) == len(names)


def test_every_question_that_is_written_can_be_released() -> None:
    assert {question.name for question in QUESTIONS} == set(WRITTEN)


def test_a_question_of_which_no_table_is_written_is_known_before_it_is_released() -> None:
    check_written("counts")
    with pytest.raises(es.ParameterError) as refused:
        check_written("CoxScore")
    assert [cure.action for cure in refused.value.cures] == ["save the release"]
