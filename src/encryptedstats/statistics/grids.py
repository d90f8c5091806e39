"""Numbers that are counted on their grid: the rows of every value, perhaps by group.

A number of up to 1,024 values is stored as two digits in base 32, whose indicators are multiplied.
Imports factors; rank tests and ROC curves read what is counted.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import column
from encryptedstats.statistics.factors import (
    cell_shape,
    check_groups,
    factor,
    groups,
    left_out,
    number_position,
    totals_of,
)
from encryptedstats.tables.encodings import grid_columns, grid_shape
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    refuse_impossible,
    row_column,
)
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
_ALL: Final = "all rows"


@dataclass(frozen=True)
class GridCounts:
    """The rows of every value of a number, by group.

    Attributes
    ----------
    name : str
        The number.
    values : array of shape (values,)
    counts : array of shape (values, groups)
    groups : tuple
    notes : tuple of str
        What was left out.
    """

    name: str
    values: Floats
    counts: Counts
    groups: tuple[Any, ...]
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    def rows(self, group: int) -> Floats:
        """Return the values of all rows of a group, in order."""
        found: Floats = np.repeat(self.values, self.counts[:, group])
        return found


def _n_values(schema: PublicSchema, where: int) -> int:
    known = schema.at(where)
    return (known.high or 0) - (known.low or 0) + 1


def grid_totals(
    schema: PublicSchema, variable: str, by: str | None, fold: int | None = None
) -> NDArray[Any]:
    """Return the rows of every value of a number, in every group where ``by`` names some."""
    where = number_position(schema, variable)
    high, low = ([column(str(one)) for one in part] for part in grid_columns(schema, where))
    n_values = _n_values(schema, where)
    values = np.array([a * b for a, b in product(high, low)][:n_values], dtype=object)
    if by is not None:
        inside = np.multiply.outer(values, groups(schema, [by], fold, present=True))
    elif schema.has_target:
        inside = values[:, None] * row_column(schema, fold)
    else:
        inside = values[:, None]
    return totals_of(inside)


def grid_cells(schema: PublicSchema, variable: str, by: str | None) -> tuple[int, int]:
    """Return the shape of :func:`grid_totals`."""
    n_groups = 1 if by is None else cell_shape(schema, [by], present=True)[0]
    return _n_values(schema, number_position(schema, variable)), n_groups


def check_grid(schema: PublicSchema, variable: str, by: str | None) -> None:
    """Refuse what is not a number, and numbers of too many values."""
    grid_shape(schema.at(number_position(schema, variable)))
    if by is not None:
        check_groups(schema, [by])


def read_grid(
    cells: NDArray[Any], schema: Schema | PublicSchema, variable: str, by: str | None, n_rows: int
) -> GridCounts:
    """Return the decrypted counts, refusing those that no rows can have."""
    public = schema.public()
    where = number_position(public, variable)
    counts = cells.astype(np.int64)
    weighed = public.has_target
    refuse_impossible(
        bool((counts >= 0).all()) and (weighed or counts.sum() <= n_rows),
        "the counts of the values do not add up to the rows",
    )
    low, name = public.at(where).low or 0, variable_name(schema, where)
    values = (low + np.arange(len(counts))) / scale(schema, where)
    known = None if by is None else factor(schema, by)
    missing = [name, *(() if known is None else (known.name,))]
    notes = left_out(max(0, n_rows - int(counts.sum())), missing)
    return GridCounts(name, values, counts, (_ALL,) if known is None else known.labels, notes)


@dataclass(frozen=True)
class OnGrid(Question):
    """A question about the rows of every value of a number, perhaps by group.

    The table stores the grid of the number: ``encodings=("onehot", "grid")`` in ``es.plan`` and
    ``owner.encrypt``.
    """

    variable: str
    by: str | None = None

    of_variables: ClassVar[tuple[str, ...]] = ("variable", "by")

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is not a number, and numbers of too many values."""
        check_grid(schema, self.variable, self.by)

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every value and group."""
        return {"cells": grid_totals(schema, self.variable, self.by, fold)}

    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shape of the totals."""
        return {"cells": grid_cells(schema, self.variable, self.by)}

    def read_counts(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> GridCounts:
        """Return the decrypted counts, refusing those that no rows can have."""
        return read_grid(totals["cells"], schema, self.variable, self.by, n_rows)

    @abstractmethod
    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> Any:
        """Return what the counts tell."""
