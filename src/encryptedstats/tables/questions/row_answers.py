"""Answers for rows as circuits, written once for plain totals and for totals that stay encrypted.

A question says what it answers; here are the totals that it is given for it, what bounds the
answers, and what a plan computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from encryptedstats.circuits.bounds import ColumnRange, Interval, read_bounds
from encryptedstats.circuits.expressions import Expression, Key, pack_total, totals_of
from encryptedstats.circuits.program import ROWS
from encryptedstats.circuits.search import Stage
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.columns import column_ranges, list_question_columns, rewrite_over_stored
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.question import (
    ModelTotals,
    Number,
    Question,
    RowAnswer,
    flat,
    in_shapes,
)
from encryptedstats.tables.schema.variables import PublicSchema

MODEL, DRAWN = "model", "drawn"  # what circuits call the totals of a model, and its drawn fractions


def stages_of(
    question: Question,
    schema: PublicSchema,
    stored: Sequence[Column],
    n_rows: int,
    n_predict: int | None = None,
    weight_bound: int = 1,
) -> list[Stage]:
    """Write what answering for rows without opening computes, for a plan: the answers, and totals
    that are not opened.

    ``stored`` are the columns of a table. Totals are over those that are asked for, answers over
    those that are stored.
    """
    columns = list_question_columns(schema, stored)
    new = [column for column in columns if column.variable != -1]
    drawn, drawn_bound = question._drawn_circuit(schema)
    totals: list[Expression] = []
    numbers = question._get_plain_totals()
    if numbers is not None:
        bounds = {
            name: [Interval.of(number) for number in found] for name, found in numbers.items()
        }
        known = use_plain_totals(question, schema, numbers)
    else:
        totals = question.circuit(schema, columns, weight_bound=weight_bound)
        found = read_bounds(totals, column_ranges(schema, columns, weight_bound), n_rows)
        n_drawn = sum(math.prod(shape) for shape in question._extra_shapes(schema).values())
        bounds = {
            MODEL: [found[total] for total in totals],
            **({DRAWN: [drawn_bound] * n_drawn} if drawn else {}),
        }
        known = use_encrypted_totals(question, schema, bounds)
    asked = flat_answers(question, schema, new, known, question.outputs[0])
    limits = answer_bounds(
        asked, {**column_ranges(schema, new, 1), **bound_encrypted_totals(bounds, asked)}, n_rows
    )
    answers = rewrite_over_stored([answer.value for answer in asked], schema, stored)
    fits = [Stage(totals, n_rows, gives=MODEL)] if totals else []
    if totals and drawn is not None:
        fits.append(Stage(drawn, n_rows, drawn_bound, gives=DRAWN))
    return [*fits, Stage(answers, n_predict, limits, ROWS)]


def flat_answers(
    question: Question,
    schema: PublicSchema,
    columns: Sequence[Column] | None,
    known: ModelTotals,
    output: str,
) -> list[RowAnswer]:
    """Return all answers of a question for a row, one after the other."""
    shapes, gives = question.answer_shapes(schema, output), f"{question.name}: answers()"
    found = flat(question.answers(schema, columns, known, output), shapes, gives, "answer_shapes()")
    return [one if isinstance(one, RowAnswer) else RowAnswer(one) for one in found]


def numbers_of(answer: Answer) -> dict[str, Any]:
    """Return all totals of an answer, by their names in circuits."""
    return {MODEL: answer.totals, **answer.extra_totals}


def use_plain_totals(
    question: Question, schema: PublicSchema, numbers: Mapping[str, Sequence[int]]
) -> ModelTotals:
    """Return the totals of a decrypted model."""
    bounds = {name: [Interval.of(number) for number in found] for name, found in numbers.items()}
    return _arrange_totals(question, schema, numbers, bounds)


def use_encrypted_totals(
    question: Question, schema: PublicSchema, bounds: Mapping[str, Sequence[Interval]]
) -> ModelTotals:
    """Return the totals of an encrypted model."""
    numbers = {
        name: [pack_total(name, k) for k in range(len(found))] for name, found in bounds.items()
    }
    return _arrange_totals(question, schema, numbers, bounds)


def _arrange_totals(
    question: Question,
    schema: PublicSchema,
    numbers: Mapping[str, Sequence[Number]],
    bounds: Mapping[str, Sequence[Interval]],
) -> ModelTotals:
    extra_totals = question._extra_shapes(schema)
    totals: dict[str, NDArray[Any]] = {}
    limits: dict[str, NDArray[Any]] = {}
    for name, found in numbers.items():
        shapes = question.shapes(schema) if name == MODEL else {name: extra_totals[name]}
        totals |= in_shapes(found, shapes)
        limits |= in_shapes(bounds[name], shapes)
    return ModelTotals(totals, limits)


def bound_encrypted_totals(
    bounds: Mapping[str, Sequence[Interval]], answers: Sequence[RowAnswer]
) -> dict[Key, ColumnRange]:
    """Return what is publicly known of the given totals that some answers use."""
    used = totals_of([a.value for a in answers if isinstance(a.value, Expression)])
    return {
        key: ColumnRange(bounds[name][k].low, bounds[name][k].high)
        for key, (name, k) in used.items()
    }


def answer_bounds(
    answers: Sequence[RowAnswer], ranges: Mapping[Any, ColumnRange], n_rows: int
) -> list[Interval]:
    """Return the bounds of each answer: those of the model, else as far as intervals tell."""
    open_ones = [a.value for a in answers if a.bound is None and isinstance(a.value, Expression)]
    found = read_bounds(open_ones, ranges, n_rows)
    return [
        a.bound or (found[a.value] if isinstance(a.value, Expression) else Interval.of(a.value))
        for a in answers
    ]
