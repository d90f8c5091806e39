"""Prediction without opening anything: encrypted model, encrypted rows, an answer for the owner.

A model writes its prediction as a circuit over the columns of the new rows and its own totals,
once: with the totals as plain numbers it is the prediction of an opened model, in the clear or on
encrypted rows; with the totals as ciphertexts it is that of a model that stays closed. All four
combinations are one formula therefore, and give the same integers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import (
    Expression,
    combination,
)
from encryptedstats.errors import REPLACE, ExistsError
from encryptedstats.models.features import Feature
from encryptedstats.storage.files import PRIVATE
from encryptedstats.storage.objects import is_url, write_object
from encryptedstats.tables import PublicSchema, Schema
from encryptedstats.tables.questions.question import Number, Totals


class Votes(pd.DataFrame):
    """Opened predictions of every row: the votes of a forest, or the integers that another model
    gives.

    It answers as an opened model does, :meth:`predict` and :meth:`predict_proba`, for the rows that
    it is of.

    Attributes
    ----------
    classes_ : array
        The classes, in the order of the scores.
    scores : DataFrame
        Score of each class: the probabilities, for models that have them.
    """

    _metadata: ClassVar[list[str]] = ["_scores", "_are_probabilities"]
    _scores: pd.DataFrame
    _are_probabilities: bool

    @property
    def _constructor(
        self,
    ) -> Callable[..., pd.DataFrame]:  # what is computed from it is an ordinary DataFrame
        return pd.DataFrame

    @property
    def scores(self) -> pd.DataFrame:
        """Score of each class."""
        return self._scores

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the scores."""
        return np.asarray(self._scores.columns)

    def predict_proba(self) -> pd.DataFrame:
        """Return the probability of each class."""
        if not self._are_probabilities:
            raise AttributeError(
                "this model gives scores of the classes, no probabilities: see .scores and "
                ".predict()"
            )
        return self._scores

    def predict(self) -> pd.Series[Any]:
        """Return the most probable class of each row."""
        best = self._scores.to_numpy().argmax(axis=1)
        return pd.Series(self.classes_[best], index=self.index, name="predicted")

    def frame(self) -> pd.DataFrame:
        """Return one table of predicted classes, probabilities or scores, and the integers they are
        made of.
        """
        letter = "P" if self._are_probabilities else "score"
        scores = self._scores.set_axis(
            [f"{letter}({label})" for label in self._scores.columns], axis=1
        )
        of_classes = list(self.columns) == list(self._scores.columns)
        numbers = self.set_axis(
            [f"votes({name})" if of_classes else str(name) for name in self.columns], axis=1
        )
        together: pd.DataFrame = pd.concat([self.predict(), scores, numbers], axis=1).rename_axis(
            "row"
        )
        return together

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write :meth:`frame` as a CSV to a path or fsspec URL. These are rows of people: a local
        file is private.
        """
        try:
            write_object(url, self.frame().to_csv().encode(), private=True, overwrite=overwrite)
        except FileExistsError as error:
            raise ExistsError(f"{error} (", REPLACE, " replaces it)") from None

    def to_csv(self, path_or_buf: Any = None, *args: Any, **options: Any) -> Any:
        """Write CSV as any DataFrame does; a file has a line for every row and is readable to its
        user only.
        """
        if isinstance(path_or_buf, (str, os.PathLike)) and not is_url(os.fspath(path_or_buf)):
            os.close(os.open(path_or_buf, os.O_WRONLY | os.O_CREAT, PRIVATE))
            os.chmod(path_or_buf, PRIVATE)  # one that was there before, too
        return super().to_csv(path_or_buf, *args, **options)


def votes_of(
    answers: Totals,
    names: Sequence[Any],
    scores: NDArray[np.float64],
    schema: Schema | PublicSchema,
    *,
    are_probabilities: bool = True,
) -> Votes:
    """Make votes of opened answers: the answers under names, and the scores of the classes."""
    values = np.concatenate([array.reshape(len(array), -1) for array in answers.values()], axis=1)
    votes = Votes(_narrow(values), columns=list(names))
    votes._scores = pd.DataFrame(scores, columns=class_names(schema))
    votes._are_probabilities = are_probabilities
    return votes


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Integers of 64 bits where all fit, else Python's own."""
    if values.dtype == np.int64:
        return values
    fits = all(abs(int(value)) < 1 << 62 for value in values.flat)
    return values.astype(np.int64) if fits else values


# -- pieces that predictions are made of
# -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """The estimates of intercept and slope of one predictor, a/d and b/d, in integers."""

    a: Number
    b: Number
    d: Number

    def at(self, x: Expression) -> Number:
        """e = a + b x."""
        return sum_of_numbers([self.a, times(self.b, x)])


def line_of(
    n0: Number, n1: Number, x0: Number, x1: Number, sum_xx: Number, *, paired: bool
) -> Line:
    """Compute the paper's estimators from counts, sums of x by class and the sum of squares
    (section 4.1).
    """
    n, sum_x, sum_z, sum_xz = n0 + n1, x0 + x1, 2 * (n1 - n0), 2 * (x1 - x0)
    if paired:
        return Line(
            sum_xx * sum_z - sum_x * sum_xz, n * sum_xz - sum_x * sum_z, n * sum_xx - sum_x * sum_x
        )
    # Intercept sum z / N and slope sum xz / sum x^2, over the common denominator N sum x^2.
    return Line(sum_xx * sum_z, n * sum_xz, n * sum_xx)


def times(a: Number, b: Number) -> Number:
    """Multiply; a plain 0 gives 0."""
    return 0 if (isinstance(a, int) and a == 0) or (isinstance(b, int) and b == 0) else a * b


def sum_of_numbers(terms: Sequence[Number]) -> Number:
    """Add expressions and plain numbers in one node; a plain number where expressions cancel."""
    plain = sum(term for term in terms if isinstance(term, int))
    return combination([(1, term) for term in terms if isinstance(term, Expression)], plain)


def weighted_sum(weights: Sequence[Number], columns: Sequence[Expression]) -> Number:
    """Add columns times weights."""
    return sum_of_numbers([times(weight, x) for weight, x in zip(weights, columns, strict=True)])


def shallow_product(factors: Sequence[Number]) -> Number:
    """Multiply factors in a depth of log2 of their number."""
    if len(factors) == 1:
        return factors[0]
    half = len(factors) // 2
    return times(shallow_product(factors[:half]), shallow_product(factors[half:]))


def class_names(schema: Schema | PublicSchema) -> list[Any]:
    """Return the classes by name, or by number where names are not known."""
    return list(range(schema.n_classes) if isinstance(schema, PublicSchema) else schema.classes)


def count_names(schema: Schema | PublicSchema) -> list[str]:
    """Return the names of class counts."""
    return [f"n[{label}]" for label in class_names(schema)]


def variable_names(schema: Schema | PublicSchema) -> list[str]:
    """Return the variables by name, or by id."""
    return (
        [v.id for v in schema.variables] if isinstance(schema, PublicSchema) else list(schema.names)
    )


def predictor_index(found: Sequence[Feature], schema: Schema | PublicSchema) -> pd.Index[Any]:
    """Return the predictors by name, as the lines of a table."""
    return pd.Index(feature_labels(found, schema), name="predictor")


def feature_labels(found: Sequence[Feature], schema: Schema | PublicSchema) -> list[str]:
    """Return the predictors by name."""
    names = variable_names(schema)
    labels = []
    for feature in found:
        name = names[feature.variable]
        if feature.level is None:
            labels.append(name)
        elif isinstance(schema, PublicSchema):
            labels.append(f"{name}.bin{feature.level}")
        else:
            labels.append(f"{name} = {schema.variables[feature.variable].labels[feature.level]}")
    return labels
