"""Predict rows by an answer in totals: one circuit, whether answer and rows are encrypted or clear.

The worker opens nothing, and what cannot be predicted is refused before a row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import ColumnRange, Interval
from encryptedstats.circuits.compiled import refuse_further_computation
from encryptedstats.circuits.evaluate import compile_for, evaluate
from encryptedstats.circuits.expressions import Expression, column_names
from encryptedstats.circuits.program import ROWS
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.encryption import join_digests
from encryptedstats.errors import Cure, KeyMismatchError, RowsByOthersError, SchemaError
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.columns import digits_among, rewrite_over_stored
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.questions.question import Number, RowAnswer, in_shapes, question_key
from encryptedstats.tables.questions.row_answers import (
    answer_bounds,
    bound_encrypted_totals,
    flat_answers,
    numbers_of,
    use_encrypted_totals,
    use_plain_totals,
)
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.table import Table

_IN_DIGITS: Final = (
    "in digits, for totals that only their owner puts together, and nothing is predicted from "
    "digits. Predict with the opened "
    "model, or make keys whose numbers are whole, with ",
    Cure("keys that predict", "es.Owner(es.plan(..., encrypted_prediction=True))"),
    ", and encrypt with those",
)


@dataclass(frozen=True)
class Prediction:
    """The expressions of a prediction on encrypted rows: answers, bounds, and packs unless totals
    are clear.
    """

    answers: list[RowAnswer]
    bounds: list[Interval]
    packs: dict[str, EncryptedNumbers]

    @property
    def values(self) -> list[Number]:
        """The answers, as expressions or plain numbers."""
        return [answer.value for answer in self.answers]

    @property
    def expressions(self) -> list[Expression]:
        """The answers that have to be computed."""
        return [value for value in self.values if isinstance(value, Expression)]

    def reported_bounds(self, max_value: int) -> list[Interval]:
        """Return the public bounds of the answers; those by clear totals would reveal
        the totals.
        """
        if self.packs:
            return self.bounds
        return [Interval(-max_value if answer.signed else 0, max_value) for answer in self.answers]


def prediction_of(by: Answer, rows: EncryptedTable, output: str) -> Prediction:
    """Write the circuit of a prediction, if the rows are of its schema and have its columns."""
    _check_rows(by, rows)
    packs = numbers_of(by) if by.is_encrypted else {}
    facts = [facts for totals in packs.values() for facts in totals.facts]
    if any(one.stored.base for one in facts):
        raise refuse_further_computation(rows.parameters)
    if any(one.stored.shift for one in facts):
        raise SchemaError(
            f"the totals of this {by.question.name} are ", *_IN_DIGITS, code="model-in-digits"
        )
    bounds = {name: total_bounds(totals) for name, totals in packs.items()}
    return Prediction(*_answers(by, rows, output, bounds), packs)


Made = TypeVar("Made")


class _Recent(Generic[Made]):
    """The last ``most`` results by key. Unlike ``lru_cache`` it does not keep the
    arguments alive.
    """

    def __init__(self, most: int) -> None:
        self._most, self._made, self._lock = most, dict[Hashable, Made](), Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the result for this key, and make it first if it is not there."""
        with self._lock:
            if key in self._made:
                self._made[key] = self._made.pop(key)
                return self._made[key]
        made = make()
        with self._lock:
            self._made[key] = made
            while len(self._made) > self._most:
                del self._made[next(iter(self._made))]
        return made


_Answers = tuple[list[RowAnswer], list[Interval]]
_kept: _Recent[_Answers] = _Recent(4)


def _answers(
    by: Answer, rows: EncryptedTable, output: str, bounds: Mapping[str, list[Interval]]
) -> _Answers:
    """Write all answers over the stored columns, with bounds; by encrypted totals they
    are cached.
    """
    if not bounds:
        return _write_answers(by, rows, output, bounds)
    limits = [(name, tuple(found)) for name, found in bounds.items()]
    public = rows.schema, rows.facts.columns, tuple(rows.facts.ranges().items()), rows.n_rows
    key = (
        question_key(by.question),
        question_key(by.question._as_asked()),
        *limits,
        *public,
        output,
    )
    return _kept.get(key, lambda: _write_answers(by, rows, output, bounds))


def _write_answers(
    by: Answer, rows: EncryptedTable, output: str, bounds: Mapping[str, list[Interval]]
) -> _Answers:
    question, schema = by.question, rows.schema
    known = (
        use_encrypted_totals(question, schema, bounds)
        if bounds
        else use_plain_totals(question, schema, numbers_of(by))
    )
    answers = flat_answers(question, schema, rows.columns(), known, output)
    used = column_names(
        [answer.value for answer in answers if isinstance(answer.value, Expression)]
    )
    whole = [name for name in used if name in digits_among(rows.facts.columns)]
    if whole:
        raise SchemaError(
            f"the rows to predict have column {whole[0]} ", *_IN_DIGITS, code="rows-in-digits"
        )
    for name in used:
        rows._check_stored(Column.parse(name))
    stored = rewrite_over_stored([answer.value for answer in answers], schema, rows.facts.columns)
    answers = [replace(answer, value=value) for answer, value in zip(answers, stored, strict=True)]
    ranges: dict[Any, ColumnRange] = {
        **rows.facts.ranges(),
        **(bound_encrypted_totals(bounds, answers) if bounds else {}),
    }
    return answers, answer_bounds(answers, ranges, rows.n_rows)


def check_prediction(by: Answer, rows: EncryptedTable, output: str) -> Prediction:
    """Refuse rows of another key or schema, or without a proof of decryption, before
    reading any.
    """
    refuse_rows_of_others(rows)
    asked = prediction_of(by, rows, output)
    compile_for(
        asked.values, rows.source(), form=ROWS, packs=asked.packs, bounds=tuple(asked.bounds)
    )
    return asked


def predict_rows(by: Answer, rows: Table | EncryptedTable, output: str, **options: Any) -> Any:
    """Predict every row of a table; the result is encrypted unless the answer and the rows are
    clear.

    The question of ``by`` may be a fitted model whose parameters were changed since; the votes then
    name the question that was asked.
    """
    if isinstance(rows, EncryptedTable):
        refuse_rows_of_others(rows)
        return _predict_encrypted(by, rows, output, **options)
    if not by.is_encrypted:
        schema = by.schema if isinstance(by.schema, Schema) else rows.schema
        return by.question.judge(predict_clear(by, rows, output), schema, output)
    sealed = by.keys.encrypt(rows).accept_others()  # under the public key, which the worker has
    return _predict_encrypted(by, sealed, output, **options)


def _predict_encrypted(by: Answer, rows: EncryptedTable, output: str, **options: Any) -> Answer:
    asked = prediction_of(by, rows, output)
    reported = asked.reported_bounds(rows.parameters.max_value)
    found = evaluate(
        asked.values,
        rows.source(),
        form=ROWS,
        packs=asked.packs,
        bounds=asked.bounds,
        reported_bounds=reported,
        **options,
    )
    schema = rows.private_schema or (by.schema if isinstance(by.schema, Schema) else rows.schema)
    # Rows encrypted with the public key have no digest: take that of the rows behind the totals.
    found.schema_digest = join_digests(by.schema_digest, rows.facts.schema_digest)
    cut = by.ciphertexts.cut if by.is_encrypted else None
    question = by.question._as_asked()
    return Answer(
        question, found, schema, rows.n_rows, rows.blocks.ids, output=output, model_cut=cut
    )


def predict_clear(by: Answer, table: Table, output: str) -> dict[str, NDArray[Any]]:
    """Predict clear rows by decrypted totals, with the circuit for encrypted rows.

    The numbers come by name; their first axis is the rows.
    """
    question, public = by.question, table.public_schema
    answers = flat_answers(
        question,
        public,
        table.columns(),
        use_plain_totals(question, public, numbers_of(by)),
        output,
    )
    found = iter(
        table.evaluate([answer.value for answer in answers if isinstance(answer.value, Expression)])
    )
    exact = [
        next(found) if isinstance(a.value, Expression) else np.full(len(table), a.value, object)
        for a in answers
    ]
    # Floats are exact below 2^53, so 64-bit integers give what Python's integers give, only sooner.
    fit = all(
        abs(answer) < 1 << 53 for numbers in exact for answer in (numbers.min(), numbers.max())
    )
    numbers = np.column_stack([numbers.astype(np.int64 if fit else object) for numbers in exact])
    return in_shapes(numbers, question.answer_shapes(public, output))


def total_bounds(totals: EncryptedNumbers) -> list[Interval]:
    """Return what is publicly known of encrypted totals."""
    return [Interval(facts.low, facts.high) for facts in totals.facts]


def refuse_rows_of_others(rows: EncryptedTable) -> None:
    """Refuse rows that others encrypted, except under a joint key: votes speak of single rows."""
    if rows.by_others and not rows.public_keys().joint:
        raise RowsByOthersError(
            "these rows were encrypted by contributors, and decrypted votes would tell something "
            "of every single row. Only rows that the owner encrypted with the secret key are "
            "predicted; let contributors predict their own rows with a decrypted model",
            code="rows-by-others",
        )


def _check_rows(by: Answer, rows: EncryptedTable) -> None:
    if rows.public_keys().joint and not by.is_encrypted:
        raise RowsByOthersError(
            "these rows are encrypted for a joint key, and the model is open: give it to the one "
            "who has the rows, for predictions at "
            "home. Members open votes of models that nobody has opened",
            code="rows-of-joint-key",
        )
    if by.is_encrypted and rows.key_id != by.keys.key_id:
        raise KeyMismatchError(
            f"rows of key {rows.key_id} cannot be predicted by a model of key {by.keys.key_id}: "
            "both belong to one owner",
            code="other-key",
        )
    if rows.schema.variables != by.schema.public().variables:
        raise SchemaError(
            "the rows are of another schema than the model: make them with schema.table(...) of "
            "its own",
            code="different-schemas",
        )
    mine, theirs, known = by.schema_digest, rows.facts.schema_digest, rows.private_schema
    other = (
        known is not None
        and isinstance(by.schema, Schema)
        and known.strict_variables != by.schema.strict_variables
    )
    if other or (mine is not None and theirs is not None and mine != theirs):
        raise SchemaError(
            "the rows have the shape of those the model was fitted to, and yet another schema "
            "(cut points, levels or their order "
            "differ): encrypt them with the schema of the training rows",
            code="other-schema",
        )
