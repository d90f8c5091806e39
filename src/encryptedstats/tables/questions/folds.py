"""The folds of a cross-validation as one question, asked of all folds in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from encryptedstats.errors import ArgumentError, Cure, FileFormatError, SchemaError
from encryptedstats.tables.block_ids import without_fold
from encryptedstats.tables.questions.question import (
    FOLDS_KIND,
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    question_class,
)
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from encryptedstats.tables.answers.answer import Answer
    from encryptedstats.tables.schema.schema import Schema
    from encryptedstats.tables.table import Table

MAX_FOLDS: Final = 1 << 16
CLASS_COUNTS: Final = "class_counts"


def folds_of(question: Question, n_folds: int) -> Folds:
    """Return a question of every fold of a table; refuse a table without folds."""
    if not n_folds:
        raise SchemaError(
            "this table declares no folds: ",
            Cure("declare folds", "schema.table(df, folds=k) does, before it is encrypted"),
        )
    return Folds(question, n_folds)


class Folds(Question):
    """A question asked of every fold, read as a list: for every fold the answer of all other rows.

    How many these are, the classes say (by weight, where rows have one), so the question must count
    them, as ``class_counts``.
    """

    name: ClassVar[str] = "folds"
    kind: ClassVar[str] = FOLDS_KIND

    def __init__(self, question: Question, n_folds: int) -> None:
        self.question = question
        self.n_folds = n_folds

    def parameters(self) -> dict[str, Any]:
        return {
            "question": self.question.name,
            "params": self.question.parameters(),
            "n_folds": self.n_folds,
        }

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> Folds:
        name, params, n_folds = (parameters.get(one) for one in ("question", "params", "n_folds"))
        if (
            len(parameters) != 3
            or type(name) is not str
            or type(params) is not dict
            or type(n_folds) is not int
        ):
            raise FileFormatError(
                "the file has other parameters than folds have", code="wrong-parameters"
            )
        inside = question_class(name)
        if inside is cls or not 2 <= n_folds <= MAX_FOLDS:
            raise FileFormatError(
                f"the file has {n_folds} folds of a {name}, which cannot be",
                code="impossible-folds",
            )
        return cls(inside._from_parameters(params), n_folds)

    def _fix_seed(self) -> Folds:
        settled = self.question._fix_seed()
        return self if settled is self.question else Folds(settled, self.n_folds)

    def in_ids(self, schema: Schema | PublicSchema) -> Folds:
        inside = self.question.in_ids(schema)
        return self if inside is self.question else Folds(inside, self.n_folds)

    def describe(self, schema: Schema | PublicSchema | None = None) -> str:
        return f"{self.n_folds} folds of {self.question.describe(schema)}"

    def check_schema(self, schema: PublicSchema) -> None:
        self.question.check(schema)
        if CLASS_COUNTS not in self.question.shapes(schema):
            raise ArgumentError(
                f"folds are of questions that count the classes, and {self.question.name} does not",
                code="question-without-classes",
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        by_fold = [self.question.totals(schema, columns, k) for k in range(self.n_folds)]
        return {name: [np.array(one[name], dtype=object) for one in by_fold] for name in by_fold[0]}

    def count_rows(self, table: Table, fold: int | None = None) -> Arrays | None:
        by_fold = [self.question.count_rows(table, k) for k in range(self.n_folds)]
        counted = [one for one in by_fold if one is not None]
        if len(counted) < self.n_folds:
            return None
        return {name: [one[name] for one in counted] for name in counted[0]}

    def shapes(self, schema: PublicSchema) -> Shapes:
        return {
            name: (self.n_folds, *shape) for name, shape in self.question.shapes(schema).items()
        }

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> list[Any]:
        """Return for every fold what all other rows say."""
        found: list[Any] = self.interpret(
            [int(x) for array in totals.values() for x in array.flat], schema, n_rows
        )
        return found

    def _present(self, answer: Answer) -> Any:
        """Return for every fold what the rows of all others say; an encrypted answer as it is."""
        if answer.is_encrypted:
            return answer
        totals = self._name_totals(answer.totals, answer.schema.public())
        return [
            self.question._present(self._without(answer, totals, fold))
            for fold in range(self.n_folds)
        ]

    def _without(self, answer: Answer, totals: Totals, fold: int) -> Answer:
        """Return the answer of all rows but those of a fold."""
        rest = {name: array.sum(axis=0) - array[fold] for name, array in totals.items()}
        return replace(
            answer,
            question=self.question,
            totals=tuple(int(total) for array in rest.values() for total in array.flat),
            n_rows=int(rest[CLASS_COUNTS].sum()),
            block_ids=without_fold(answer.block_ids, fold, self.n_folds),
        )
