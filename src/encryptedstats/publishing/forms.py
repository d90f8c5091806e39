"""The numbers of each question that get noise, and how noisy numbers become possible totals again.

Noise is added to numbers of which a row changes as few as possible: the leaves of a tree and not
its inner nodes, bins and not the class counts that they add up to, numbers centred in their bounds.
Everything afterwards is post-processing and costs no privacy. Counts in the result are whole, not
negative, and add up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, combinations_with_replacement
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.bounds import Interval
from encryptedstats.circuits.expressions import Expression, combination
from encryptedstats.errors import ParameterError
from encryptedstats.publishing.counts import (
    Boxes,
    as_objects,
    class_counts_of,
    counts_of,
    leaf_counts_of,
    likely_leaf_counts,
    shrunk,
    table_of,
)
from encryptedstats.publishing.sensitivity import Number, row_contribution, row_interval
from encryptedstats.tables.questions.pair_counts import fill_pairs, subtract_each
from encryptedstats.tables.questions.question import (
    Question,
    complete_rows,
    in_shapes,
    number_column,
)
from encryptedstats.tables.schema.names import position
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from encryptedstats.models import CompletelyRandomForest

Numbers = NDArray[Any]
Named = Mapping[str, NDArray[Any]]
_LEAST_SCATTER: Final = 1e-9  # of a direction, as a share of the largest that could be
_RELEASED: Final = (
    "counts, cross tables and all that is made of cells (tests of tables, survival curves, "
    "logistic GLM), moments, covariances, "
    "correlations, PCA, t-tests (of pairs by their covariance), Anova, tests of pairs of groups "
    "and of variances, Cronbach's alpha, LinearRegression and Ridge without weights and poly(), "
    "CompletelyRandomForest, MultinomialNB, SemiparametricNB, Pairs, AODE and TAN"
)


class ReleaseForm(ABC):
    """The numbers of a question that get noise.

    Attributes
    ----------
    rows : list
        What a row adds to each of them.
    groups : list
        Positions whose sensitivity is computed separately.
    """

    rows: list[Number]
    groups: list[list[int]]

    def __init__(self, question: Question, schema: PublicSchema) -> None:
        self.question = question
        self.schema = schema
        self.shapes = question.shapes(schema)
        written = question.circuit(schema)
        self.written = in_shapes([row_contribution(total) for total in written], self.shapes)

    @abstractmethod
    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        """Return the numbers that get noise, from the opened totals."""

    @abstractmethod
    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Return possible totals by name, and the number of rows; ``n_rows`` is None where that is
        not public.

        ``deviation`` is the noise on a number that one row moves by 1.
        """


class CellForm(ReleaseForm):
    """Cells, exactly one of which each row belongs to."""

    def __init__(self, question: Question, schema: PublicSchema) -> None:
        super().__init__(question, schema)
        self.rows = list(self.written["cells"].flat)
        self.groups = [list(range(len(self.rows)))]

    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        return [int(total) for total in totals["cells"].flat]

    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Counts that add up to the rows."""
        cells = counts_of(noisy, n_rows)
        return {"cells": cells.reshape(self.shapes["cells"])}, int(cells.sum())


class LeafForm(ReleaseForm):
    """The leaves of every tree, one of which each row reaches; class counts and inner
    nodes follow.
    """

    def __init__(self, question: CompletelyRandomForest, schema: PublicSchema) -> None:
        super().__init__(question, schema)
        leaves = [
            self._leaves(tree, self.written["class_counts"], _less) for tree in self.written["left"]
        ]
        self.leaf_shape = np.array(leaves, dtype=object).shape
        self.rows = [x for tree in leaves for leaf in tree for x in leaf]
        size = len(self.rows) // len(leaves)
        self.groups = [list(range(t * size, (t + 1) * size)) for t in range(len(leaves))]
        self.boxes = Boxes.of(
            question.grow(schema), [variable.n_bins for variable in schema.variables]
        )

    @staticmethod
    def _leaves(
        left: Numbers, classes: Numbers, less: Callable[[Any, Any], Any]
    ) -> list[list[Any]]:
        nodes = [list(classes)]
        for node, counts in enumerate(left):
            nodes += [list(counts), [less(a, b) for a, b in zip(nodes[node], counts, strict=True)]]
        return nodes[len(left) :]

    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        trees = [
            self._leaves(tree, totals["class_counts"], lambda a, b: a - b)
            for tree in totals["left"]
        ]
        return [int(count) for tree in trees for leaf in tree for count in leaf]

    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Return class counts from all trees, leaves that add up to them in every tree, and inner
        nodes.
        """
        leaves: NDArray[np.float64] = noisy.astype(float).reshape(self.leaf_shape)
        sums = leaves.sum(axis=1).mean(axis=0)
        total = max(0, round(float(sums.sum()))) if n_rows is None else n_rows
        likely = likely_leaf_counts(leaves, total, self.boxes, deviation)
        classes = counts_of(likely.sum(axis=1).mean(axis=0), total)
        fitted = leaf_counts_of(likely, classes, self.boxes)
        left = np.stack([_count_left(tree) for tree in fitted])
        return {"class_counts": classes, "left": left}, int(classes.sum())


class BinForm(ReleaseForm):
    """The bins of every variable by class; class counts follow."""

    def __init__(self, question: Question, schema: PublicSchema) -> None:
        super().__init__(question, schema)
        self.rows = list(self.written["bins"].flat)
        self.sizes = [variable.n_bins for variable in schema.variables]
        ends = np.cumsum(self.sizes) * schema.n_classes
        self.groups = [
            list(range(end - size * schema.n_classes, end))
            for size, end in zip(self.sizes, ends, strict=True)
        ]

    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        return [int(count) for count in totals["bins"].flat]

    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Return class counts from all variables, and bins that add up to them.

        Variables with few bins have less noise and weigh more.
        """
        found = np.split(
            noisy.astype(float).reshape(-1, self.schema.n_classes), np.cumsum(self.sizes)[:-1]
        )
        sums = np.average(
            [bins.sum(axis=0) for bins in found], axis=0, weights=[1 / size for size in self.sizes]
        )
        classes = class_counts_of(
            sums, n_rows, deviation / math.sqrt(sum(1 / size for size in self.sizes))
        )
        found = [shrunk(bins, classes.astype(float) / len(bins), deviation) for bins in found]
        fitted = [
            np.stack([counts_of(bins[:, c], int(n)) for c, n in enumerate(classes)], axis=1)
            for bins in found
        ]
        return {"class_counts": classes, "bins": np.concatenate(fitted)}, int(classes.sum())


class PairForm(ReleaseForm):
    """All cells of the tables of pairs, by class; the bins and class counts follow."""

    def __init__(self, question: Question, schema: PublicSchema) -> None:
        super().__init__(question, schema)
        of_bins = self._split_bins(self.written["bins"])
        self.sizes = [len(bins) for bins in of_bins]
        self.n_classes = self.shapes["class_counts"][0]
        subtract = partial(subtract_each, less=_difference)
        tables = fill_pairs(of_bins, self.written["pairs"], subtract)
        self.rows = [cell for table in tables for cell in table.flat]
        ends = np.cumsum([table.size for table in tables])
        self.groups = [
            list(range(end - table.size, end)) for table, end in zip(tables, ends, strict=True)
        ]

    def _split_bins(self, bins: Numbers) -> list[Numbers]:
        """Return the bins of each variable, which add up to all rows of a class once."""
        question: Any = self.question
        sizes = [self.schema.variables[j].n_bins for j in question.pair_positions(self.schema)]
        return np.split(bins, np.cumsum(sizes)[:-1])

    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        bins = self._split_bins(totals["bins"])
        tables = fill_pairs(bins, totals["pairs"], lambda whole, parts: whole - parts.sum(axis=0))
        return [int(cell) for table in tables for cell in table.flat]

    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Return bins from all pairs of a variable, and tables of pairs with these margins."""
        sizes, n_classes = self.sizes, self.n_classes
        places = list(combinations(range(len(sizes)), 2))
        ends = np.cumsum([sizes[i] * sizes[j] for i, j in places])[:-1]
        cells = np.split(noisy.astype(float).reshape(-1, n_classes), ends)
        tables = [
            part.reshape(sizes[i], sizes[j], n_classes)
            for (i, j), part in zip(places, cells, strict=True)
        ]
        each = [1 / (sizes[i] * sizes[j]) for i, j in places]
        sums = np.average([table.sum(axis=(0, 1)) for table in tables], axis=0, weights=each)
        classes = class_counts_of(sums, n_rows, deviation / math.sqrt(sum(each)))
        bins = []
        for k in range(len(sizes)):
            own = [
                (table.sum(axis=int(k == i)), sizes[j if k == i else i])
                for (i, j), table in zip(places, tables, strict=True)
                if k in (i, j)
            ]
            weights = [1 / size for _, size in own]
            margin = np.average([found for found, _ in own], axis=0, weights=weights)
            noise = deviation / math.sqrt(sum(weights))
            margin = shrunk(margin, np.tile(classes.astype(float) / sizes[k], (sizes[k], 1)), noise)
            bins.append(
                np.stack([counts_of(margin[:, c], int(n)) for c, n in enumerate(classes)], axis=1)
            )
        inner = []
        for (i, j), table in zip(places, tables, strict=True):
            fitted = np.empty(table.shape, dtype=object)
            for c, n in enumerate(classes):
                rows, columns = bins[i][:, c], bins[j][:, c]
                expected = np.outer(rows, columns).astype(float) / max(int(n), 1)
                near = shrunk(table[:, :, c], expected, deviation)
                fitted[:, :, c] = table_of(near, rows, columns)
            inner.append(fitted[:-1, :-1].reshape(-1, n_classes))
        found = {
            "class_counts": classes,
            "bins": np.concatenate(bins),
            "pairs": np.concatenate(inner),
        }
        return found, int(classes.sum())


class LineForm(ReleaseForm):
    """Class counts, and sums and squares of every predictor by class."""

    def __init__(self, question: Question, schema: PublicSchema) -> None:
        super().__init__(question, schema)
        names = ("class_counts", "sums", "squares")
        self.rows, self._places = _once([x for name in names for x in self.written[name].flat])
        self.groups = [list(range(len(self.rows)))]

    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        """Return each number once: the square of a 0/1 column is the column itself."""
        found = [int(x) for name in ("class_counts", "sums", "squares") for x in totals[name].flat]
        return _of_first(found, self._places)

    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Return class counts that add up, and squares that are large enough for their sums."""
        found = in_shapes([round(float(noisy[place])) for place in self._places], self.shapes)
        classes = counts_of(found["class_counts"], n_rows)
        n = max(1, int(classes.sum()))
        squares = np.maximum(found["squares"], 0)
        for sums, own in zip(found["sums"], squares, strict=True):
            lacking = -(-(int(sums.sum()) ** 2) // n) - int(own.sum())
            own[int(np.argmax(own))] += max(0, lacking)
        return {"class_counts": classes, "sums": found["sums"], "squares": squares}, int(
            classes.sum()
        )


class MomentForm(ReleaseForm):
    """Sums of columns and of their products, with numbers centred in their bounds."""

    def __init__(
        self, question: Question, schema: PublicSchema, pairs: Sequence[tuple[int, int]]
    ) -> None:
        super().__init__(question, schema)
        self.pairs = pairs
        self.counted = counted = next(
            (name for name in self.shapes if name not in ("sums", "products")), None
        )
        columns, products = list(self.written["sums"]), list(self.written["products"])
        self.bounds = [row_interval(x, schema) for x in columns]
        count = self.written[counted][0] if counted else 1
        gaps = (
            isinstance(count, Expression)
            and row_interval(count, schema).low != row_interval(count, schema).high
        )
        # Where rows may not count, what they count for is not known to all: then there is no middle
        # to start from.
        self.middle = [
            0 if gaps or one.high - one.low < 2 else (one.low + one.high) // 2
            for one in self.bounds
        ]
        around = [x - c if c else x for x, c in zip(columns, self.middle, strict=True)]
        moved = [
            around[a] * around[b] if self.middle[a] or self.middle[b] else product
            for (a, b), product in zip(pairs, products, strict=True)
        ]
        self.rows, self._places = _once([count, *around, *moved])
        self.groups = [list(range(len(self.rows)))]

    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        """Return the number of rows, sums and products."""
        n = int(totals[self.counted][0]) if self.counted else n_rows
        c, sums = self.middle, [int(x) for x in totals["sums"]]
        products = [
            int(x) - c[b] * sums[a] - c[a] * sums[b] + n * c[a] * c[b]
            for (a, b), x in zip(self.pairs, totals["products"], strict=True)
        ]
        return _of_first(
            [n, *(s - n * m for s, m in zip(sums, c, strict=True)), *products], self._places
        )

    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Sums within their bounds, and products with enough on the diagonal that no combination
        has a negative variance.
        """
        found = [float(noisy[place]) for place in self._places]
        p = len(self.middle)
        n = max(1, round(found[0])) if n_rows is None else min(n_rows, max(1, round(found[0])))
        limits = [
            (n * (one.low - c), n * (one.high - c))
            for one, c in zip(self.bounds, self.middle, strict=True)
        ]
        around = np.array(
            [
                min(high, max(low, x))
                for x, (low, high) in zip(found[1 : p + 1], limits, strict=True)
            ]
        )
        products = np.zeros((p, p))
        for (a, b), value in zip(self.pairs, found[p + 1 :], strict=True):
            products[a, b] = products[b, a] = value
        products += np.diag(_missing_diagonal(products - np.outer(around, around) / n, limits, n))
        whole, c = [round(x) for x in around], self.middle
        sums = [s + n * m for s, m in zip(whole, c, strict=True)]
        # Squares are put right once more in whole numbers: floats round those above 2^53.
        moved = [
            max(round(products[a, b]), -(-whole[a] * whole[b] // n))
            if a == b
            else round(products[a, b])
            for a, b in self.pairs
        ]
        back = [
            x + c[b] * whole[a] + c[a] * whole[b] + n * c[a] * c[b]
            for (a, b), x in zip(self.pairs, moved, strict=True)
        ]
        named = {"sums": as_objects(sums), "products": as_objects(back)}
        if self.counted:
            named[self.counted] = as_objects([n])
        return named, n if n_rows is None else n_rows


class PowerForm(ReleaseForm):
    """The rows of every group, and the sum and the sum of squares of a number centred in its
    bounds.
    """

    def __init__(self, question: Question, schema: PublicSchema, number: str) -> None:
        super().__init__(question, schema)
        where = position(schema, number)
        self.bound = Interval(schema.at(where).low or 0, schema.at(where).high or 0)
        self.middle = (self.bound.low + self.bound.high) // 2
        there = complete_rows(schema, [where])
        y = number_column(schema, where, gaps=True)
        apart = y - (self.middle if there is None else there * self.middle)
        self.inside = tuple(
            slice(0, size) for size in self.shapes["sums"][1:]
        )  # of the groups, without those of missing values
        groups = list(self.written["rows"][self.inside].flat) if "rows" in self.shapes else [1]
        counted = list(self.written["rows"].flat) if "rows" in self.shapes else [1]
        present = list(self.written["present"].flat) if "present" in self.shapes else []
        self._sizes = np.cumsum([len(counted), len(present), len(groups)])
        self.rows = [
            *counted,
            *present,
            *(x * apart for x in groups),
            *(x * (apart * apart) for x in groups),
        ]
        self.groups = [list(range(len(self.rows)))]

    def numbers(self, totals: Named, n_rows: int) -> list[int]:
        """Return rows, sums and sums of squares of every group."""
        c, n = self.middle, self.group_rows(totals, n_rows)
        sums, squares = totals["sums"].reshape(2, -1)
        rows = totals["rows"].flat if "rows" in totals else [n_rows]
        present = list(totals["present"].flat) if "present" in totals else []
        return [
            int(x)
            for x in [*rows, *present, *(sums - c * n), *(squares - 2 * c * sums + c * c * n)]
        ]

    def group_rows(self, totals: Named, n_rows: int) -> Numbers:
        """Return the rows of every group that have the number."""
        if "present" in totals:
            return totals["present"].ravel()
        return totals["rows"][self.inside].ravel() if "rows" in totals else as_objects([n_rows])

    def totals(
        self, noisy: Numbers, n_rows: int | None, deviation: float = 0.0
    ) -> tuple[dict[str, Numbers], int]:
        """Return rows that add up, sums within their bounds, and squares without a negative
        variance.
        """
        rows, present, sums, squares = np.split(noisy, self._sizes)
        rows = counts_of(rows, n_rows)
        named, whole = {}, int(rows.sum())
        if "rows" in self.shapes:
            named["rows"] = rows.reshape(self.shapes["rows"])
        if "present" in self.shapes:
            most = self.group_rows(named, whole)
            there = [min(n, max(0, round(float(x)))) for n, x in zip(most, present, strict=True)]
            named["present"] = as_objects(there).reshape(self.shapes["present"])
        low, high, c = self.bound.low - self.middle, self.bound.high - self.middle, self.middle
        found = []
        for n, s, q in zip(self.group_rows(named, whole), sums, squares, strict=True):
            s = min(n * high, max(n * low, round(float(s))))
            q = max(-(-s * s // n), min(n * max(low**2, high**2), round(float(q)))) if n else 0
            found.append((s + n * c, q + 2 * c * s + n * c * c))
        powers = as_objects([x for power in zip(*found, strict=True) for x in power])
        return {**named, "sums": powers.reshape(self.shapes["sums"])}, whole


def _missing_diagonal(
    scatter: NDArray[np.float64], limits: Sequence[tuple[float, float]], n: int
) -> NDArray[np.float64]:
    """Return what the diagonal lacks, in the units of each column, with a margin for rounding."""
    units = np.array([max(1.0, (high - low) / n) for low, high in limits])
    least = float(np.linalg.eigvalsh(scatter / np.outer(units, units)).min())
    more: NDArray[np.float64] = units**2 * max(0.0, _LEAST_SCATTER * n - least)
    return np.ceil(more) + len(units) + 1 if more.any() else more


# -- small parts
# ------------------------------------------------------------------------------------------------


def _count_left(leaves: Numbers) -> Numbers:
    """Return how many rows go left at every node of a tree, root first, from the counts of its
    leaves.
    """
    level, found = leaves, []
    while len(level) > 1:
        found.append(level[::2])
        level = level[::2] + level[1::2]
    return np.concatenate(found[::-1])


def _less(a: Number, b: Number) -> Number:
    return (
        combination([(1, a), (-1, b)])
        if isinstance(a, Expression) and isinstance(b, Expression)
        else a - b
    )


def _difference(whole: Number, parts: Sequence[Number]) -> Number:
    expressions = [part for part in parts if isinstance(part, Expression)]
    if isinstance(whole, Expression) and len(expressions) == len(parts):
        return combination([(1, whole), *((-1, part) for part in expressions)])
    return whole - sum(parts)


def _once(rows: Sequence[Number]) -> tuple[list[Number], list[int]]:
    """Return the distinct expressions, and the position of each expression among them."""
    first = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    return list(first), [first[row] for row in rows]


def _of_first(values: Sequence[int], places: Sequence[int]) -> list[int]:
    found = dict(zip(reversed(places), reversed(values), strict=True))
    return [found[place] for place in range(len(found))]


# -- by question
# ------------------------------------------------------------------------------------------------


def form_of(question: Question, schema: PublicSchema) -> ReleaseForm:
    """Return how a question is released, or raise an error before anything is spent."""
    from encryptedstats.models import CompletelyRandomForest, MultinomialNB, SemiparametricNB
    from encryptedstats.models.pairs import PairClassifier
    from encryptedstats.statistics import PCA, Anova, LinearRegression, Pairs, Ridge, TTest
    from encryptedstats.statistics.descriptive import Histogram
    from encryptedstats.statistics.factors import Counted
    from encryptedstats.statistics.generalized import GLM
    from encryptedstats.statistics.multivariate import (
        Correlation,
        Covariance,
        CronbachAlpha,
        PartialCorrelation,
    )
    from encryptedstats.statistics.pairwise import PairwiseTTest, VarianceTest
    from encryptedstats.tables.questions.summaries import Counts, CrossTable, Moments

    shapes = question.shapes(schema)
    if isinstance(question, (Counts, CrossTable, Counted, Histogram, GLM)) and set(shapes) == {
        "cells"
    }:
        return CellForm(question, schema)
    if isinstance(question, CompletelyRandomForest):
        return LeafForm(question, schema)
    if isinstance(question, MultinomialNB):
        return BinForm(question, schema)
    if isinstance(question, (Pairs, PairClassifier)):
        return PairForm(question, schema)
    if isinstance(question, SemiparametricNB):
        return LineForm(question, schema)
    if isinstance(
        question,
        (Moments, Covariance, Correlation, PartialCorrelation, CronbachAlpha, PCA),
    ):
        return MomentForm(
            question,
            schema,
            list(combinations_with_replacement(range(math.prod(shapes["sums"])), 2)),
        )
    if (
        isinstance(question, (LinearRegression, Ridge))
        and question.weights is None
        and not any(name.startswith("powers") for name in shapes)  # of poly(): they have no form
    ):
        return MomentForm(question, schema, question.column_pairs(schema))
    if isinstance(question, (Anova, PairwiseTTest, VarianceTest)):
        return PowerForm(question, schema, question.variable)
    if isinstance(question, TTest) and question.paired is None:
        return PowerForm(question, schema, question.variable)
    raise ParameterError(
        f"{question.name} cannot be released with noise here: what can is {_RELEASED}",
        code="no-noisy-release",
    )
