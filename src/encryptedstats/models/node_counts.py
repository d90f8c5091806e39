"""Counts of the rows at nodes of trees: what learned trees are grown from, level by level.

A node is a path of splits. The totals are of the rows at the node that are in each of some *cells*,
sets of bins of a variable: by class, or for a number its rows, sum and squares. Who asks chooses
the splits; nothing here does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression, linear, sum_of
from encryptedstats.errors import SchemaError
from encryptedstats.tables import PublicSchema, Schema, Table
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    bin_columns,
    class_columns,
    number_column,
    product_of,
    refuse_impossible,
    row_column,
)

Cell = tuple[int, tuple[int, ...]]  # a variable and bins of it
Values = NDArray[Any]  # by class; or rows, sum and squares of a number
MAX_CELLS: Final = 1 << 20
MAX_PATH: Final = 8
ORDERED: Final = ("continuous", "ordinal", "number")
_EXACT: Final = 2**53  # integers below this are exact in floating point
_NO_PATH: Final = (
    "each node is [path, cells, folds]: path and cells are lists of [variable, [bins]], and "
    "folds is a list of integers from 0"
)


@dataclass(frozen=True)
class NodeCounts(Question):
    """Counts of the rows at nodes of trees, in sets of bins: of each class, or with their sums.

    Parameters
    ----------
    nodes : list
        Each ``[path, cells, folds]``. The path is a list of ``[variable, bins]``, the rows whose
        variable is in one of the bins at every step. Cells are the same, one at a time, or the
        number of a variable, for the counts that those of all its bins follow from. ``folds`` says
        how often the rows of each fold count; empty for all rows once. Variables and bins are
        numbers.
    whole : bool
        Count all rows of each node as well.
    """

    nodes: list[Any]
    whole: bool = False

    title: ClassVar[str] = "Counts at nodes of trees"
    is_listed: ClassVar[bool] = False

    def check_schema(self, schema: PublicSchema) -> None:
        n_cells = 0
        for node in self.nodes if isinstance(self.nodes, (list, tuple)) else [None]:
            if not isinstance(node, (list, tuple)) or len(node) != 3:
                raise SchemaError(_NO_PATH, code="malformed-node")
            path, cells, folds = node
            whole = [one for one in _as_list(cells) if type(one) is int]
            if any(not 0 <= j < len(schema.variables) for j in whole):
                raise SchemaError(f"the schema has no variables {whole}", code="unknown-variable")
            cells = expand_cells(schema, cells)
            for step in (*_as_list(path), *cells):
                _check_cell(step, schema)
            if len(path) > MAX_PATH or any(type(w) is not int or w < 0 for w in _as_list(folds)):
                raise SchemaError(_NO_PATH, code="malformed-node")
            n_cells += len(cells)
        if not 0 < n_cells + bool(self.whole) <= MAX_CELLS:
            raise SchemaError(
                f"{n_cells:,} cells are counted: from 1 to {MAX_CELLS:,} are allowed",
                code="wrong-number-of-cells",
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        found = []
        sides: dict[Cell, Expression] = {}
        for path, cells, folds in self.nodes:
            inside = _at_node(
                _measures(schema, tuple(folds), fold), [_side(sides, schema, s) for s in path]
            )
            if self.whole:
                found.append([x.total() for x in inside])
            found += [
                [(x * _side(sides, schema, one)).total() for x in inside]
                for one in expand_cells(schema, cells)
            ]
        return {"counts": found}

    def shapes(self, schema: PublicSchema) -> Shapes:
        n_cells = sum(self._n_cells(schema, node) for node in self.nodes)
        return {"counts": (n_cells, count_measures(schema))}

    def _n_cells(self, schema: PublicSchema, node: Sequence[Any]) -> int:
        return len(expand_cells(schema, node[1])) + bool(self.whole)

    def count_rows(self, table: Table, fold: int | None = None) -> Arrays | None:
        """Count the rows of a clear table without a circuit."""
        measures = clear_measures(table, fold)
        if measures is None:
            return None
        counts = _ClearCounts(table, measures)
        return {"counts": [row for node in self.nodes for row in counts.at(node, self.whole)]}

    def read(
        self, totals: Totals, schema: Schema | PublicSchema, n_rows: int
    ) -> list[list[Values]]:
        """Return the values of all rows of each node, if wanted, and of each of its cells."""
        counts = totals["counts"]
        sizes = counts if schema.public().n_classes else counts[:, ::2]
        refuse_impossible(
            bool((sizes >= 0).all()), "a node would have a negative number of rows or squares"
        )
        ends = np.cumsum([self._n_cells(schema.public(), node) for node in self.nodes])[:-1]
        return [list(part) for part in np.split(counts, ends)]


def answer_from_pairs(
    asked: NodeCounts,
    schema: PublicSchema,
    bins: Sequence[Values],
    pairs: Mapping[tuple[int, int], Values],
) -> list[list[Values]]:
    """Return what :meth:`NodeCounts.read` gives for paths of one split at most, from counts by
    class.

    ``bins`` has the counts of the bins of each variable, ``pairs`` those of the bins of each two
    variables, the first of them the smaller.
    """

    def count(cells: Sequence[Cell]) -> Values:
        (i, one), *others = sorted((j, tuple(k)) for j, k in cells)
        j, other = others[0] if others else (i, one)
        if i == j:
            found: Values = bins[i][[k for k in one if k in other]].sum(axis=0)
        else:
            found = pairs[i, j][np.ix_(list(one), list(other))].sum(axis=(0, 1))
        return found

    answered = []
    for path, cells, _ in asked.nodes:
        every = [(0, tuple(range(len(bins[0]))))]
        whole = [count(path or every)] if asked.whole else []
        answered.append([*whole, *(count([*path, cell]) for cell in expand_cells(schema, cells))])
    return answered


def count_measures(schema: PublicSchema) -> int:
    """Return how many totals each cell has: one for each class, three of a number."""
    return schema.n_classes or 3


def cells_of(schema: PublicSchema, variable: int) -> list[Cell]:
    """Return sets of bins from whose counts the counts of all bins of a variable follow.

    Of ordered bins these are the left sides of all cuts, which is what a table stores; of levels
    all but the last.
    """
    known = schema.variables[variable]
    if known.kind in ORDERED:
        return [(variable, tuple(range(k + 1))) for k in range(known.n_bins - 1)]
    return [(variable, (k,)) for k in range(known.n_bins - 1)]


def expand_cells(schema: PublicSchema, cells: Sequence[Any]) -> list[Any]:
    """Return cells with those of :func:`cells_of` in place of numbers of variables."""
    return [
        cell for one in cells for cell in (cells_of(schema, one) if type(one) is int else [one])
    ]


def by_bin(schema: PublicSchema, variable: int, cells: Sequence[Values], whole: Values) -> Values:
    """Return the values of every bin of a variable, from those of :func:`cells_of` and of all."""
    found = np.array([*cells, whole])
    if schema.variables[variable].kind in ORDERED:
        found[1:] -= found[:-1].copy()
    else:
        found[-1] -= found[:-1].sum(axis=0)
    sizes = found if schema.n_classes else found[:, 0]
    refuse_impossible(bool((sizes >= 0).all()), "a bin would have a negative number of rows")
    return found


# -- circuits --------------------------------------------------------------------------------------


def _measures(
    schema: PublicSchema, folds: tuple[int, ...], fold: int | None
) -> list[list[Expression]]:
    """Return the factors that each total starts from: a class; or rows, the number, its square."""
    if schema.n_classes:
        return [
            [y]
            for y in _of_folds([class_columns(schema, k) for k in _find_folds(folds, fold)], folds)
        ]
    rows = _of_folds([[row_column(schema, k)] for k in _find_folds(folds, fold)], folds)
    y = number_column(schema, -1)
    return [rows, [*rows, y] if folds else [y], [*rows, y, y] if folds else [y, y]]


def _find_folds(folds: tuple[int, ...], fold: int | None) -> list[int | None]:
    return [k for k, n in enumerate(folds) if n] if folds else [fold]


def _of_folds(columns: Sequence[Sequence[Expression]], folds: tuple[int, ...]) -> list[Expression]:
    """Return columns in which the rows of each fold count as often as is said."""
    if not folds:
        return list(columns[0])
    times = [n for n in folds if n]
    return [linear(zip(times, same, strict=True)) for same in zip(*columns, strict=True)]


def _at_node(measures: Sequence[Sequence[Expression]], path: Sequence[Expression]) -> list[Any]:
    """Return each measure in the rows of a node, and 0 in all others, in few products in a row."""
    return [product_of([*factors, *path]) for factors in measures]


def _side(sides: dict[Cell, Expression], schema: PublicSchema, cell: Sequence[Any]) -> Expression:
    key = (cell[0], tuple(cell[1]))
    if key not in sides:
        bins = bin_columns(schema, key[0])
        sides[key] = sum_of([bins[k] for k in key[1]])
    return sides[key]


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise SchemaError(_NO_PATH, code="malformed-node")
    return list(value)


def _check_cell(cell: Any, schema: PublicSchema) -> None:
    if not isinstance(cell, (list, tuple)) or len(cell) != 2 or type(cell[0]) is not int:
        raise SchemaError(_NO_PATH, code="malformed-node")
    variable, bins = cell[0], _as_list(cell[1])
    if not 0 <= variable < len(schema.variables):
        raise SchemaError(f"the schema has no variable v{variable}", code="unknown-variable")
    n_bins = schema.variables[variable].n_bins
    known = all(type(k) is int and 0 <= k < n_bins for k in bins)
    if not known or not 0 < len(set(bins)) == len(bins) < n_bins:
        raise SchemaError(
            f"v{variable} has {n_bins} bins: a side of a split has some of them and not all",
            code="impossible-side",
        )


# -- clear tables ----------------------------------------------------------------------------------


def clear_measures(table: Table, fold: int | None = None) -> NDArray[Any] | None:
    """Return what each row of a clear table adds to each total; None where it has no target."""
    if not table.has_target:
        return None
    schema = table.public_schema
    if not schema.n_classes:
        if table.weights is not None:
            return None
        y = table.data_of(-1).astype(object)
        found = np.column_stack([y * 0 + 1, y, y * y])
        return found.astype(np.int64) if int(found[:, 2].sum()) < _EXACT else found
    assert table.class_codes is not None
    inside = table.class_codes[:, None] == np.arange(schema.n_classes)
    return np.column_stack(
        [table.weigh(inside[:, c], fold).astype(np.int64) for c in range(schema.n_classes)]
    )


class _ClearCounts:
    """Counts of clear rows, with the histogram of each variable counted once for a node."""

    def __init__(self, table: Table, measures: NDArray[Any]) -> None:
        self.table, self.measures = table, measures

    def at(self, node: Sequence[Any], whole: bool) -> Iterator[list[int]]:
        """Yield the counts of a node: all rows, if wanted, and each cell."""
        path, cells, folds = node
        inside = np.ones(len(self.table), dtype=bool)
        for variable, bins in path:
            inside &= np.isin(self.table.codes_of(variable), bins)
        values = self.measures[inside]
        if folds and self.table.fold_codes is not None:
            times = np.array(folds)[self.table.fold_codes[inside]]
            values = values * times[:, None]
        if whole:
            yield [int(total) for total in values.sum(axis=0)]
        histograms: dict[int, NDArray[Any]] = {}
        for variable, bins in expand_cells(self.table.public_schema, cells):
            if variable not in histograms:
                histograms[variable] = self._histogram(variable, inside, values)
            found = histograms[variable][list(bins)].sum(axis=0)
            yield [int(total) for total in found]

    def _histogram(
        self, variable: int, inside: NDArray[np.bool_], values: NDArray[Any]
    ) -> NDArray[Any]:
        n_bins = self.table.public_schema.variables[variable].n_bins
        codes = self.table.codes_of(variable)[inside].astype(np.intp)
        if values.dtype != object and int(np.abs(values).sum()) < _EXACT:
            columns = [np.bincount(codes, one.astype(float), n_bins) for one in values.T]
            return np.column_stack(columns).astype(np.int64)
        found = np.zeros((n_bins, values.shape[1]), dtype=object)
        np.add.at(found, codes, values.astype(object))
        return found
