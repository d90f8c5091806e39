"""Count the rows of every pair of bins.

The counts give cross tables, mutual information, a Chow-Liu tree, and classifiers without another
pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError, SchemaError
from encryptedstats.models.naive_bayes import check_bin_counts, check_have_bins
from encryptedstats.models.pairs import PairClassifier, mutual_information, strongest_tree
from encryptedstats.statistics._distributions import chi2_tail
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.pair_counts import (
    complete_pairs,
    count_pair_totals,
    pair_arrays,
    pair_shapes,
)
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    bin_columns,
    class_columns,
    row_column,
)
from encryptedstats.tables.questions.summaries import labels, variable_name
from encryptedstats.tables.schema.names import choose_positions
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = TypeVar("P", bound=PairClassifier)


@dataclass(frozen=True, kw_only=True)
class PairsResult(Result):
    """The association of each pair of variables.

    Attributes
    ----------
    associations : DataFrame
        The mutual information in nats (``estimate``) and the likelihood-ratio test of independence
        of every pair, the target included.
    tree : DataFrame
        The edges of the Chow-Liu tree with their mutual information.
    """

    caption: ClassVar[str] = "associations"

    associations: pd.DataFrame
    tree: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """Return the associations."""
        return self.associations

    def counts(self, one: str, other: str, *, by_class: bool = False) -> pd.DataFrame:
        """Return the number of rows of every pair of bins of two variables.

        Parameters
        ----------
        one, other : str
            Names of variables that were counted.
        by_class : bool
            Whether to count the rows of each class separately.
        """
        schema, names, tables, classes = self._tables()
        for name in (one, other):
            if name not in names:
                raise ArgumentError(
                    f"{name!r} was not counted: choose among {', '.join(names)}",
                    code="unknown-variable",
                )
        i, j = names.index(one), names.index(other)
        table = tables[min(i, j), max(i, j)]
        table = table if i < j else table.swapaxes(0, 1)
        question = self.question
        positions = question.pair_positions(schema.public())
        index, columns = (pd.Index(labels(schema, positions[k]), name=names[k]) for k in (i, j))
        if not by_class:
            return pd.DataFrame(table.sum(axis=2), index, columns)
        found = {
            label: pd.DataFrame(table[:, :, c], index, columns) for c, label in enumerate(classes)
        }
        joined: pd.DataFrame = pd.concat(found, names=["class"])
        return joined

    def mutual_information(self) -> pd.DataFrame:
        """Return the mutual information of all pairs as a symmetric table."""
        pairs = self.associations.index.tolist()
        names = list(dict.fromkeys(name for pair in pairs for name in pair))
        square = pd.DataFrame(np.nan, names, names)
        for (one, other), value in zip(pairs, self.associations["estimate"], strict=True):
            square.loc[one, other] = square.loc[other, one] = value
        return square

    def fit_classifier(self, model: P) -> P:
        """Return a classifier that is fitted to these counts, without another pass over the rows.

        Parameters
        ----------
        model : AODE or TAN
            An unfitted model; the fitted one uses the variables that were counted.

        Raises
        ------
        SchemaError
            If the rows have no classes.
        """
        question = self.question
        schema, *_ = self._tables()
        if not schema.public().n_classes:
            raise SchemaError(
                "the rows have no classes: count a table whose target has classes",
                code="no-target",
            )
        unfitted = type(model)(**{**model.get_params(), "variables": question.variables})
        assert self.source is not None
        fitted: P = unfitted.interpret(self.source.totals, schema, self.source.n_rows)
        return fitted

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the Chow-Liu tree; the width of an edge grows with its mutual information."""
        from encryptedstats.statistics.plots import plot_tree

        return plot_tree(self.tree, ax)

    @property
    def question(self) -> Pairs:
        """The question that was asked."""
        if self.source is None or not isinstance(self.source.question, Pairs):
            raise ArgumentError(
                "this result has no counts, because it was not read from a table: use a result of "
                "table.ask(es.Pairs()) or owner.open",
                code="made-by-hand",
            )
        return self.source.question

    def _tables(
        self,
    ) -> tuple[Any, list[str], dict[tuple[int, int], NDArray[np.int64]], Sequence[Any]]:
        question = self.question
        assert self.source is not None
        schema = self.source.schema
        totals = question._name_totals(self.source.totals, schema.public())
        _, tables = question.tables(totals, schema.public())
        names = [variable_name(schema, j) for j in question.pair_positions(schema.public())]
        classes = schema.classes if isinstance(schema, Schema) else range(schema.n_classes)
        return schema, names, tables, classes


@dataclass(frozen=True)
class Pairs(Question):
    """Count the rows of every class in every pair of bins of two variables, in one pass.

    Parameters
    ----------
    variables : list of str, optional
        The variables to pair; by default all that have bins.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"smoker": list("nyny"), "cough": list("nyyy"), "ill": [0, 1, 0, 1]})
    >>> result = es.Schema.infer(frame, target="ill").table(frame).ask(es.Pairs())
    >>> result.counts("smoker", "cough").to_dict("index")
    {'n': {'n': 1, 'y': 1}, 'y': {'n': 0, 'y': 2}}
    """

    variables: list[str] | None = None

    title: ClassVar[str] = "Pairs of variables"
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)

    def __post_init__(self) -> None:
        if self.variables is not None and not isinstance(self.variables, str):
            object.__setattr__(self, "variables", tuple(self.variables))
        self.check_parameters()

    def pair_positions(self, schema: PublicSchema) -> list[int]:
        """Return the positions of the variables that are paired."""
        if self.variables is not None:
            return choose_positions(schema, self.variables)
        return [j for j, variable in enumerate(schema.variables) if variable.n_bins]

    def check_schema(self, schema: PublicSchema) -> None:
        """Raise SchemaError for numbers, which have no bins, and for fewer than two variables."""
        positions = self.pair_positions(schema)
        check_have_bins(schema, positions, self.name)
        if len(positions) < 2:
            raise SchemaError(
                f"{self.name} needs at least two variables with bins, and there are "
                f"{len(positions)}",
                code="too-few-variables",
            )
        self._classes(schema, None)

    def _classes(self, schema: PublicSchema, fold: int | None) -> list[Any]:
        if schema.target_number is None:
            return class_columns(schema, fold)
        return [row_column(schema, fold)]

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        bins = [bin_columns(schema, j) for j in self.pair_positions(schema)]
        return pair_arrays(bins, self._classes(schema, fold))

    def count_rows(self, table: Table, fold: int | None = None) -> Arrays | None:
        """Count the totals of a clear table without a circuit."""
        return count_pair_totals(table, self.pair_positions(table.public_schema), fold)

    def shapes(self, schema: PublicSchema) -> Shapes:
        n_bins = [schema.variables[j].n_bins for j in self.pair_positions(schema)]
        return pair_shapes(n_bins, max(schema.n_classes, 1))

    def tables(
        self, totals: Totals, schema: PublicSchema
    ) -> tuple[list[NDArray[np.int64]], dict[tuple[int, int], NDArray[np.int64]]]:
        """Return the counts of all bins, and of the pairs of bins of two variables, by class."""
        n_bins = [schema.variables[j].n_bins for j in self.pair_positions(schema)]
        bins = np.split(totals["bins"].astype(np.int64), np.cumsum(n_bins)[:-1])
        check_bin_counts(bins, totals["class_counts"].astype(np.int64))
        pairs = complete_pairs(bins, totals["pairs"].astype(np.int64))
        return bins, dict(zip(combinations(range(len(bins)), 2), pairs, strict=True))

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> PairsResult:
        public = schema.public()
        bins, tables = self.tables(totals, public)
        names = [variable_name(schema, j) for j in self.pair_positions(public)]
        joint = {pair: counts.sum(axis=2) for pair, counts in tables.items()}
        if public.n_classes:
            names.append(variable_name(schema, -1))
            joint |= {(i, len(bins)): counts for i, counts in enumerate(bins)}
        n = len(names)
        strengths = np.zeros((n, n))
        for (i, j), counts in joint.items():
            strengths[i, j] = strengths[j, i] = mutual_information(counts)
        lines = {
            (names[i], names[j]): _association(counts, strengths[i, j])
            for (i, j), counts in sorted(joint.items())
        }
        frame = pd.DataFrame.from_dict(
            lines, orient="index", columns=["estimate", "statistic", "df", "pvalue"]
        )
        frame.index = pd.MultiIndex.from_tuples(list(lines), names=["variable", "other"])
        edges = [
            (names[child], names[parent], strengths[parent, child])
            for parent, child in strongest_tree(strengths)
        ]
        tree = pd.DataFrame(edges, columns=["variable", "parent", "estimate"])
        return PairsResult(
            title=f"Pairs of {len(bins)} variables",
            n_rows=int(totals["class_counts"].sum()),
            notes=("estimate: mutual information in nats",),
            associations=frame.sort_values("estimate", ascending=False, kind="stable"),
            tree=tree.set_index("variable"),
        )


def _association(counts: NDArray[Any], strength: float) -> tuple[float, float, int, float]:
    """Return the mutual information, and statistic, df and p-value of the likelihood-ratio test."""
    used = [int((counts.sum(axis=axis) > 0).sum()) for axis in (0, 1)]
    df = max(0, (used[0] - 1) * (used[1] - 1))
    statistic = 2 * float(counts.sum()) * strength
    return strength, statistic, df, chi2_tail(statistic, df) if df else float("nan")
