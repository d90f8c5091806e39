"""Votes, and the parts of circuits that predict encrypted rows with encrypted models.

A model writes its prediction once, as expressions of the columns of new rows and of its totals. The
totals may be plain numbers or ciphertexts, and the rows clear or encrypted: all four combinations
evaluate the same formula and give the same integers.
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
    """Decrypted predictions: a DataFrame with the votes, or other integers, of each row.

    :meth:`predict` and :meth:`predict_proba` return what the decrypted model would return for these
    rows.

    Attributes
    ----------
    classes_ : array
        The classes, in the order of the scores.
    scores : DataFrame
        The score of each class; a probability if the model has probabilities.
    """

    _metadata: ClassVar[list[str]] = ["_scores", "_are_probabilities"]
    _scores: pd.DataFrame
    _are_probabilities: bool

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame  # slices and sums of votes are ordinary DataFrames

    @property
    def scores(self) -> pd.DataFrame:
        """The score of each class."""
        return self._scores

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the scores."""
        return np.asarray(self._scores.columns)

    def predict_proba(self) -> pd.DataFrame:
        """Return the probability of each class.

        Raises
        ------
        AttributeError
            If the model has scores only.
        """
        if not self._are_probabilities:
            raise AttributeError(
                "this model has scores and no probabilities: use .scores or .predict()"
            )
        return self._scores

    def predict(self) -> pd.Series[Any]:
        """Return the most probable class of each row."""
        best = self._scores.to_numpy().argmax(axis=1)
        return pd.Series(self.classes_[best], index=self.index, name="predicted")

    def frame(self) -> pd.DataFrame:
        """Return a table of the predicted classes, the probabilities or scores, and the
        integers.
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
        """Write :meth:`frame` as CSV to a path or fsspec URL.

        A local file is readable by its user only, because rows are those of people.
        """
        try:
            write_object(url, self.frame().to_csv().encode(), private=True, overwrite=overwrite)
        except FileExistsError as error:
            raise ExistsError(f"{error} (", REPLACE, " replaces it)") from None

    def to_csv(self, path_or_buf: Any = None, *args: Any, **options: Any) -> Any:
        """Write CSV as any DataFrame does; a local file is readable by its user only."""
        if isinstance(path_or_buf, (str, os.PathLike)) and not is_url(os.fspath(path_or_buf)):
            os.close(os.open(path_or_buf, os.O_WRONLY | os.O_CREAT, PRIVATE))
            os.chmod(path_or_buf, PRIVATE)  # an existing file keeps its mode when it is opened
        return super().to_csv(path_or_buf, *args, **options)


def votes_of(
    answers: Totals,
    names: Sequence[Any],
    scores: NDArray[np.float64],
    schema: Schema | PublicSchema,
    *,
    are_probabilities: bool = True,
) -> Votes:
    """Return votes with decrypted answers as named columns and the scores of the classes."""
    values = np.concatenate([array.reshape(len(array), -1) for array in answers.values()], axis=1)
    votes = Votes(_narrow(values), columns=list(names))
    votes._scores = pd.DataFrame(scores, columns=class_names(schema))
    votes._are_probabilities = are_probabilities
    return votes


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Convert values to 64-bit integers if all fit; else keep Python's integers."""
    if values.dtype == np.int64:
        return values
    fits = all(abs(int(value)) < 1 << 62 for value in values.flat)
    return values.astype(np.int64) if fits else values


# -- parts of predictions --------------------------------------------------------------------------


@dataclass(frozen=True)
class LineEstimate:
    """Intercept and slope of one predictor, a/d and b/d, as integers."""

    a: Number
    b: Number
    d: Number

    def at(self, x: Expression) -> Number:
        """Return e = a + b x."""
        return sum_of_numbers([self.a, times(self.b, x)])


def line_of(
    n0: Number, n1: Number, x0: Number, x1: Number, sum_xx: Number, *, paired: bool
) -> LineEstimate:
    """Compute the estimators of the paper (section 4.1).

    ``n0`` and ``n1`` count the rows of the classes, and ``x0`` and ``x1`` are their sums of x.
    """
    n, sum_x, sum_z, sum_xz = n0 + n1, x0 + x1, 2 * (n1 - n0), 2 * (x1 - x0)
    if paired:
        return LineEstimate(
            sum_xx * sum_z - sum_x * sum_xz, n * sum_xz - sum_x * sum_z, n * sum_xx - sum_x * sum_x
        )
    # The intercept sum z / N and the slope sum xz / sum x^2, over the denominator N sum x^2.
    return LineEstimate(sum_xx * sum_z, n * sum_xz, n * sum_xx)


def times(a: Number, b: Number) -> Number:
    """Return the product; the integer 0 if a factor is 0, so that no expression is needed."""
    return 0 if (isinstance(a, int) and a == 0) or (isinstance(b, int) and b == 0) else a * b


def sum_of_numbers(terms: Sequence[Number]) -> Number:
    """Add expressions and integers in one node; return an integer if the expressions cancel."""
    plain = sum(term for term in terms if isinstance(term, int))
    return combination([(1, term) for term in terms if isinstance(term, Expression)], plain)


def weighted_sum(weights: Sequence[Number], columns: Sequence[Expression]) -> Number:
    """Return the sum of columns times weights."""
    return sum_of_numbers([times(weight, x) for weight, x in zip(weights, columns, strict=True)])


def shallow_product(factors: Sequence[Number]) -> Number:
    """Multiply factors as a balanced tree, whose depth is logarithmic."""
    if len(factors) == 1:
        return factors[0]
    half = len(factors) // 2
    return times(shallow_product(factors[:half]), shallow_product(factors[half:]))


def class_names(schema: Schema | PublicSchema) -> list[Any]:
    """Return the names of the classes; numbers for a public schema."""
    return list(range(schema.n_classes) if isinstance(schema, PublicSchema) else schema.classes)


def count_names(schema: Schema | PublicSchema) -> list[str]:
    """Return the names of the counts of rows of each class."""
    return [f"n[{label}]" for label in class_names(schema)]


def variable_names(schema: Schema | PublicSchema) -> list[str]:
    """Return the names of the variables; ids for a public schema."""
    return (
        [v.id for v in schema.variables] if isinstance(schema, PublicSchema) else list(schema.names)
    )


def predictor_index(found: Sequence[Feature], schema: Schema | PublicSchema) -> pd.Index[Any]:
    """Return the names of the predictors as the index of a table."""
    return pd.Index(feature_labels(found, schema), name="predictor")


def feature_labels(found: Sequence[Feature], schema: Schema | PublicSchema) -> list[str]:
    """Return the names of the predictors, such as ``sex = f`` for a level."""
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
