"""The rows of every pair of bins, and what they tell: counts, mutual information, a Chow-Liu tree,
and classifiers that need no other pass.
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
from encryptedstats.models.pairs import (
    PairClassifier,
    complete_pairs,
    mutual_information,
    pair_arrays,
    pair_shapes,
    strongest_tree,
)
from encryptedstats.statistics._distributions import chi2_tail
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    bin_columns,
    class_columns,
    refuse_impossible,
    row_column,
)
from encryptedstats.tables.questions.summaries import labels, variable_name
from encryptedstats.tables.schema.names import chosen_positions
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = TypeVar("P", bound=PairClassifier)


@dataclass(frozen=True, kw_only=True)
class PairsResult(Result):
    """How much each pair of variables tells of each other.

    Attributes
    ----------
    associations : DataFrame
        Of every pair, the target included: mutual information in nats (``estimate``), and the
        likelihood-ratio test of independence.
    tree : DataFrame
        The edges of the Chow-Liu tree, with their mutual information.
    """

    caption: ClassVar[str] = "associations"

    associations: pd.DataFrame
    tree: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        """Return the associations."""
        return self.associations

    def counts(self, one: str, other: str, *, by_class: bool = False) -> pd.DataFrame:
        """Return the rows of every pair of bins of two variables, perhaps by class."""
        schema, names, tables, classes = self._tables()
        for name in (one, other):
            if name not in names:
                raise ArgumentError(
                    f"{name!r} is not among the variables that were counted: {', '.join(names)}",
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
        """Return the mutual information of all pairs as a square table."""
        pairs = self.associations.index.tolist()
        names = list(dict.fromkeys(name for pair in pairs for name in pair))
        square = pd.DataFrame(np.nan, names, names)
        for (one, other), value in zip(pairs, self.associations["estimate"], strict=True):
            square.loc[one, other] = square.loc[other, one] = value
        return square

    def fit_classifier(self, model: P) -> P:
        """Return a classifier that is fitted by these counts, without another pass over the rows.

        ``model`` is an unfitted AODE or TAN; it uses the variables that were counted.
        """
        question = self.question
        schema, *_ = self._tables()
        if not schema.public().n_classes:
            raise SchemaError(
                "the rows have no classes: a classifier needs a target with classes",
                code="no-target",
            )
        unfitted = type(model)(**{**model.get_params(), "variables": question.variables})
        assert self.source is not None
        fitted: P = unfitted.opened(self.source.totals, schema, self.source.n_rows)
        return fitted

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the Chow-Liu tree; the width of an edge grows with its mutual information."""
        from encryptedstats.statistics.plots import plot_tree

        return plot_tree(self.tree, ax)

    @property
    def question(self) -> Pairs:
        """Return the question that was asked."""
        if self.source is None or not isinstance(self.source.question, Pairs):
            raise ArgumentError(
                "only what was read from a table has counts: this result was made by hand",
                code="made-by-hand",
            )
        return self.source.question

    def _tables(
        self,
    ) -> tuple[Any, list[str], dict[tuple[int, int], NDArray[np.int64]], Sequence[Any]]:
        question = self.question
        assert self.source is not None
        schema = self.source.schema
        totals = question._named(self.source.totals, schema.public())
        _, tables = question.tables(totals, schema.public())
        names = [variable_name(schema, j) for j in question.pair_positions(schema.public())]
        classes = schema.classes if isinstance(schema, Schema) else range(schema.n_classes)
        return schema, names, tables, classes


@dataclass(frozen=True)
class Pairs(Question):
    """The rows of every class in every pair of bins of two variables, in one pass.

    Parameters
    ----------
    variables : list of str, optional
        The variables to pair; all that have bins by default.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"smoker": list("nyny"), "cough": list("nyyy"), "ill": [0, 1, 0, 1]})
    >>> result = es.Schema.infer(frame, target="ill").table(frame).ask(es.Pairs())
    >>> result.counts("smoker", "cough")
    cough   n  y
    smoker
    n       1  1
    y       0  2
    """

    variables: list[str] | None = None

    title: ClassVar[str] = "Pairs of variables"
    of_variables: ClassVar[tuple[str, ...]] = ("variables",)

    def __post_init__(self) -> None:
        if self.variables is not None and not isinstance(self.variables, str):
            object.__setattr__(self, "variables", tuple(self.variables))
        self.check_parameters()

    def pair_positions(self, schema: PublicSchema) -> list[int]:
        """Return the positions of the variables."""
        if self.variables is not None:
            return chosen_positions(schema, self.variables)
        return [j for j, variable in enumerate(schema.variables) if variable.n_bins]

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse numbers, which have no bins, and fewer than two variables."""
        positions = self.pair_positions(schema)
        for j in positions:
            if not schema.variables[j].n_bins:
                raise SchemaError(
                    f"variable {schema.variables[j].id!r} is a number, and pairs are counted in "
                    "bins: cut it, schema.with_kind(name, 'continuous'), or leave it out",
                    code="kept-as-number",
                )
        if len(positions) < 2:
            raise SchemaError("pairs need two variables with bins", code="too-few-variables")
        self._classes(schema, None)

    def _classes(self, schema: PublicSchema, fold: int | None) -> list[Any]:
        if schema.target_number is None:
            return class_columns(schema, fold)
        return [row_column(schema, fold)]

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every class, in every bin, and in every pair of bins."""
        bins = [bin_columns(schema, j) for j in self.pair_positions(schema)]
        return pair_arrays(bins, self._classes(schema, fold))

    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of the totals."""
        n_bins = [schema.variables[j].n_bins for j in self.pair_positions(schema)]
        return pair_shapes(n_bins, max(schema.n_classes, 1))

    def tables(
        self, totals: Totals, schema: PublicSchema
    ) -> tuple[list[NDArray[np.int64]], dict[tuple[int, int], NDArray[np.int64]]]:
        """Return the counts of bins by class, and of pairs of bins by class."""
        n_bins = [schema.variables[j].n_bins for j in self.pair_positions(schema)]
        classes = totals["class_counts"].astype(np.int64)
        bins = np.split(totals["bins"].astype(np.int64), np.cumsum(n_bins)[:-1])
        for counts in bins:
            good = bool((counts >= 0).all() and (counts.sum(axis=0) == classes).all())
            refuse_impossible(good, "the bins of a variable do not add up to the rows")
        pairs = complete_pairs(bins, totals["pairs"].astype(np.int64))
        return bins, dict(zip(combinations(range(len(bins)), 2), pairs, strict=True))

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> PairsResult:
        """Return the associations and the tree."""
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
    """Return mutual information and the likelihood-ratio test of independence."""
    used = [int((counts.sum(axis=axis) > 0).sum()) for axis in (0, 1)]
    df = max(0, (used[0] - 1) * (used[1] - 1))
    statistic = 2 * float(counts.sum()) * strength
    return strength, statistic, df, chi2_tail(statistic, df) if df else float("nan")
