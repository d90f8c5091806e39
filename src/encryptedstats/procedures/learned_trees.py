"""What learned trees come to: a table of their nodes, which predicts rows in the clear."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import Cure, SchemaError
from encryptedstats.models.growth import Split
from encryptedstats.models.node_counts import ORDERED, Values
from encryptedstats.procedures.growing import ROOT, Tree
from encryptedstats.procedures.splits import SQUARED, Impurity
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.summaries import labels, scale, variable_name
from encryptedstats.tables.rows.table_from_frame import rows_to_predict, with_unread_columns
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

Floats = NDArray[np.float64]
_SHARES: Final = "shares of the classes in the leaves, which rank the rows and are not calibrated"


@dataclass(frozen=True, kw_only=True)
class LearnedTrees(Result):
    """Trees with the splits that were learned; ``predict`` and ``predict_proba`` use them.

    Attributes
    ----------
    nodes : DataFrame
        A line for each node: its variable and left bins if it is split, its rows, its impurity and
        what it predicts.
    importances : DataFrame
        The share of each variable in the decrease of impurity over all splits.
    n_trees : int
    criterion : str
    """

    caption: ClassVar[str] = "nodes"

    nodes: pd.DataFrame
    importances: pd.DataFrame
    n_trees: int
    criterion: str

    _trees: ClassVar[tuple[Tree, ...]] = ()
    _schema: ClassVar[Schema | PublicSchema]

    @classmethod
    def of(
        cls,
        trees: Sequence[Tree],
        schema: Schema | PublicSchema,
        impurity: Impurity,
        title: str,
    ) -> LearnedTrees:
        """Return the result of grown trees."""
        n_rows = max((impurity.count(tree[ROOT].values) for tree in trees if tree), default=0)
        found = cls(
            title=title,
            n_rows=n_rows,
            nodes=_table_of_nodes(trees, schema, impurity),
            importances=_importances(trees, schema, impurity),
            n_trees=len(trees),
            criterion=impurity.criterion,
        )
        # Not fields: they are shown, compared and written as the table of nodes.
        object.__setattr__(found, "_trees", tuple(trees))
        object.__setattr__(found, "_schema", schema)
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return the nodes."""
        return self.nodes

    def plot(self, ax: Any = None) -> Any:
        """Draw the importance of each variable, the largest first."""
        from encryptedstats.plots import colour, new_axes, without_frame

        shown = self.importances["importance"].sort_values(kind="stable")
        axes = new_axes(ax, (5.0, 1.0 + 0.3 * len(shown)))
        axes.barh(range(len(shown)), shown.to_numpy(), color=colour(0), height=0.7)
        axes.set_yticks(range(len(shown)), [str(name) for name in shown.index])
        axes.set_xlabel("share of the decrease of impurity")
        without_frame(axes)
        return axes

    # -- predicting --------------------------------------------------------------------------------

    @property
    def classes(self) -> list[Any]:
        """The classes; empty for a number."""
        return [] if self.criterion == SQUARED else labels(self._schema, -1)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, as scikit-learn's classifiers have them.

        Raises
        ------
        AttributeError
            If the trees predict a number.
        """
        if self.criterion == SQUARED:
            raise AttributeError("trees that predict a number have no classes_")
        return np.array(self.classes, dtype=object)

    @property
    def name(self) -> str:
        """The name of the procedure."""
        return self.title

    @property
    def caveat(self) -> str:
        """What to know of the probabilities; nothing of predicted numbers."""
        return "" if self.criterion == SQUARED else _SHARES

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, or the mean of a number.

        It is missing for rows with values that the schema does not allow, and a warning names
        these rows.
        """
        if self.criterion == SQUARED:
            return self._by_row(X, lambda table: self._average(table)[:, 0])
        return self._by_row(X, lambda table: self.classes_[self._average(table).argmax(axis=1)])

    def predict_proba(self, X: Any) -> Floats:
        """Return the share of each class in the leaves of each row, averaged over trees."""
        if self.criterion == SQUARED:
            raise SchemaError("a number has no classes: see predict", code="number-without-classes")
        found: Floats = self._by_row(X, self._average)
        return found

    def apply(self, X: Any) -> NDArray[np.int64]:
        """Return the leaf of each row in each tree: nodes i have the children 2i + 1 and 2i + 2."""
        table = self._rows(X)
        return np.column_stack([_leaves(tree, table) for tree in self._trees])

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy, or of a number the share of the variance that is explained."""
        found, wanted = self.predict(X), np.asarray(y)
        if self.criterion != SQUARED:
            return float(np.mean(found == wanted))
        residual = float(((wanted - found) ** 2).sum())
        return 1.0 - residual / float(((wanted - wanted.mean()) ** 2).sum())

    def was_fitted_to(self, table: Table) -> bool:
        """Return whether the trees were grown from exactly these rows, counted once each.

        Rows with equal sums in all leaves count as the same rows.
        """
        tree = self._trees[0]
        leaves = _leaves(tree, table)
        return all(
            np.array_equal(_sum_values(table, leaves == number), node.values)
            for number, node in tree.items()
            if node.split is None
        )

    def _average(self, table: Table) -> Floats:
        total: Any = 0.0
        for tree in self._trees:
            values = {i: self._value(node.values) for i, node in tree.items() if node.split is None}
            total = total + np.stack([values[i] for i in _leaves(tree, table).tolist()])
        found: Floats = total / len(self._trees)
        return found

    def _value(self, values: Values) -> Floats:
        if self.criterion == SQUARED:
            return np.array([int(values[1]) / (int(values[0]) * scale(self._schema, -1))])
        return np.array([int(k) for k in values], dtype=float) / int(values.sum())

    def _by_row(self, X: Any, compute: Callable[[Table], NDArray[Any]]) -> NDArray[Any]:
        table = self._rows(X)
        return table.leave_blank(compute(table))

    def _rows(self, X: Any) -> Table:
        if isinstance(X, Table):
            return X
        schema, used = self._get_private_schema(), sorted(self._used_positions())
        rows = self._with_unused(X) if isinstance(X, pd.DataFrame) else X
        return rows_to_predict(schema, rows, [schema.names[j] for j in used])

    # What reads a file of rows asks every model for these.

    def _get_private_schema(self) -> Schema:
        if not isinstance(self._schema, Schema):
            raise SchemaError(
                "these trees were opened without the names of variables: ",
                Cure("open with names", "run the procedure with schema="),
            )
        return self._schema

    def _used_positions(self) -> Collection[int]:
        return {node.split.variable for tree in self._trees for node in tree.values() if node.split}

    def _with_unused(self, frame: pd.DataFrame) -> pd.DataFrame:
        return with_unread_columns(self._get_private_schema(), frame, self._used_positions())


def _leaves(tree: Tree, table: Table) -> NDArray[np.int64]:
    """Return the leaf of each row."""
    found = np.zeros(len(table), dtype=np.int64)
    for number in sorted(tree):
        split = tree[number].split
        if split is not None:
            inside = found == number
            goes_left = np.isin(table.codes_of(split.variable)[inside], split.left)
            found[inside] = 2 * number + 2 - goes_left
    return found


def _sum_values(table: Table, inside: NDArray[np.bool_]) -> Values:
    """Return what a node with these rows holds: rows of each class, or rows, sum and squares."""
    if table.target_values is None:
        assert table.class_codes is not None
        return np.bincount(table.class_codes[inside], minlength=table.schema.n_classes)
    numbers = [int(one) for one in table.target_values[inside]]
    return np.array([len(numbers), sum(numbers), sum(one * one for one in numbers)], dtype=object)


def _table_of_nodes(
    trees: Sequence[Tree], schema: Schema | PublicSchema, impurity: Impurity
) -> pd.DataFrame:
    lines = [
        {"tree": t, "node": number, **line}
        for t, tree in enumerate(trees)
        for number, line in _lines(tree, schema, impurity)
    ]
    return pd.DataFrame(lines).set_index(["tree", "node"])


def _lines(
    tree: Tree, schema: Schema | PublicSchema, impurity: Impurity
) -> Iterator[tuple[int, dict[str, Any]]]:
    classes = labels(schema, -1) if impurity.criterion != SQUARED else []
    for number, node in sorted(tree.items()):
        split, n = node.split, impurity.count(node.values)
        bins = [] if split is None else labels(schema, split.variable)
        line: dict[str, Any] = {
            "variable": "" if split is None else variable_name(schema, split.variable),
            "left": "" if split is None else left_text(schema, split, bins),
            "rows": n,
            "impurity": impurity.measure(node.values)
            / (scale(schema, -1) ** 2 if not classes else 1),
        }
        if classes:
            line |= {str(label): int(k) for label, k in zip(classes, node.values, strict=True)}
        else:
            line["mean"] = int(node.values[1]) / (max(n, 1) * scale(schema, -1))
        yield number, line


def left_text(schema: Schema | PublicSchema, split: Split, bins: Sequence[Any]) -> str:
    """Return the left side in words: of ordered bins the last of a run stands for all of it."""
    run = next((k for k, bin_ in enumerate(split.left) if bin_ != k), len(split.left))
    if schema.public().variables[split.variable].kind in ORDERED and run > 1:
        names = [f"up to {bins[run - 1]}", *(str(bins[k]) for k in split.left[run:])]
    else:
        names = [str(bins[k]) for k in split.left]
    return ", ".join(names)


def _importances(
    trees: Sequence[Tree], schema: Schema | PublicSchema, impurity: Impurity
) -> pd.DataFrame:
    n = len(schema.public().variables)
    total = np.zeros(n)
    for tree in trees:
        found = np.zeros(n)
        for number, node in tree.items():
            if node.split is not None:
                left = tree[2 * number + 1].values
                found[node.split.variable] += impurity.score(left, node.values)
        total += found / found.sum() if found.sum() > 0 else 0.0
    share = total / total.sum() if total.sum() > 0 else total
    index = pd.Index([variable_name(schema, j) for j in range(n)], name="variable")
    return pd.DataFrame({"importance": share}, index=index)
