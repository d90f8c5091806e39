"""Predictors of linear models: each variable becomes one or several integers (section 2.2).

An ordered variable becomes its ordinal code, a number stays as it is, and a category becomes one
0/1 predictor for each level, as in the paper's table of data sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression, column, linear
from encryptedstats.errors import ArgumentError
from encryptedstats.tables import PublicSchema, Table
from encryptedstats.tables.columns import list_question_columns, table_columns
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.questions.question import bin_columns, number_column
from encryptedstats.tables.schema.bins import code_values
from encryptedstats.tables.schema.variables import PublicVariable


@dataclass(frozen=True)
class Feature:
    """A predictor with its expression and the expression of its square."""

    variable: int
    level: int | None  # of a category; None for other variables
    value: Expression
    square: Expression


def features(
    schema: PublicSchema,
    columns: Sequence[Column] | None,
    positions: Sequence[int],
    *,
    centred: bool,
) -> list[Feature]:
    """Return the predictors of the variables at these positions."""
    if not count_features(schema, positions):
        raise ArgumentError(
            "every variable of this schema is constant: a model needs at least one that varies",
            code="nothing-varies",
        )
    stored = set(
        list_question_columns(schema, table_columns(schema)) if columns is None else columns
    )
    found: list[Feature] = []
    for j in positions:
        variable, bins = schema.variables[j], bin_columns(schema, j)
        if variable.kind == "number":
            x = number_column(schema, j)
            found.append(Feature(j, None, x, x * x))
        elif not variable.has_codes:
            found += [Feature(j, k, x, x) for k, x in enumerate(bins)]
        elif not is_constant(variable):
            found.append(_make_coded(j, variable.n_bins, bins, stored, centred))
    return found


class CodedPredictors:
    """Base class of models whose predictors are codes, centred around 0 or not."""

    remarks: ClassVar[tuple[str, ...]] = (
        "predictors: codes of bins, 0/1 for a level of a category, and numbers in units of their "
        "last decimal",
    )
    centred: bool

    if TYPE_CHECKING:

        def _positions(self, schema: PublicSchema) -> list[int]: ...

    def _features(
        self, schema: PublicSchema, columns: Sequence[Column] | None = None
    ) -> list[Feature]:
        return features(schema, columns, self._positions(schema), centred=self.centred)

    def _count_features(self, schema: PublicSchema) -> int:
        return count_features(schema, self._positions(schema))

    def _matrix(self, table: Table) -> NDArray[np.int64]:
        """Return the predictors of clear rows, shape (rows, predictors)."""
        return feature_matrix(self._features(table.public_schema), table, centred=self.centred)


def count_features(schema: PublicSchema, positions: Sequence[int]) -> int:
    """Return the number of predictors of the variables at these positions."""
    used = [schema.variables[j] for j in positions]
    return sum(not is_constant(v) if v.kind == "number" or v.has_codes else v.n_bins for v in used)


def is_constant(variable: PublicVariable) -> bool:
    """Return whether an ordered variable has a single code, so that it is no predictor."""
    return variable.has_codes and variable.n_bins < 2


def symmetric(products: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the symmetric matrix of exact integers with this upper triangle, row by row.

    >>> symmetric(np.array([1, 2, 3], dtype=object), 2).tolist()
    [[1, 2], [2, 3]]
    """
    matrix = np.empty((k, k), dtype=object)
    for (a, b), value in zip(combinations_with_replacement(range(k), 2), products, strict=True):
        matrix[a, b] = matrix[b, a] = value
    return matrix


def solve(matrix: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """Solve a system of exact moments by least squares.

    The system may be singular because of a constant or repeated predictor.
    """
    # On a common scale, small predictors do not fall below the cutoff of the rank.
    scale = np.sqrt([float(value) or 1.0 for value in np.diag(matrix)])
    scaled = (matrix / np.outer(scale, scale)).astype(float)
    solution = np.linalg.lstsq(scaled, (right.T / scale).T.astype(float), rcond=1e-10)[0]
    result: NDArray[np.float64] = (solution.T / scale).T
    return result


def _make_coded(
    j: int, n_bins: int, bins: list[Expression], stored: set[Column], centred: bool
) -> Feature:
    # From indicators of bins, the square is a sum of indicators too and costs no product.
    if Column("onehot", j, 0) in stored:
        codes = code_values(n_bins, centred=centred)
        value = linear([(code, x) for code, x in zip(codes, bins, strict=True) if code])
        square = linear([(code * code, x) for code, x in zip(codes, bins, strict=True) if code])
        return Feature(j, None, value, square)
    x = column(str(Column("centred" if centred else "ordinal", j)))
    return Feature(j, None, x, x * x)


def product_totals(found: Sequence[Feature], everyone: Expression) -> list[Expression]:
    """Return the totals of all products of two predictors.

    ``everyone`` is 1, or the weight, in the rows that count.
    """
    return [
        (a.square * everyone if a is b else a.value * b.value * everyone).total()
        for a, b in combinations_with_replacement(found, 2)
    ]


def feature_matrix(found: Iterable[Feature], table: Table, *, centred: bool) -> NDArray[np.int64]:
    """Return the predictors of clear rows, shape (rows, predictors)."""
    columns = []
    for feature in found:
        if feature.level is not None:
            columns.append(table.values(Column("onehot", feature.variable, feature.level)))
        elif table.public_schema.variables[feature.variable].kind == "number":
            columns.append(table.values(Column("number", feature.variable)))
        else:
            columns.append(
                table.values(Column("centred" if centred else "ordinal", feature.variable))
            )
    return np.column_stack(columns)
