"""What boosting over sites comes to: trees with the values of their leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import Cure, SchemaError
from encryptedstats.models.growth import Split
from encryptedstats.procedures.learned_trees import left_text
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.summaries import labels, scale, variable_name
from encryptedstats.tables.rows.table_from_frame import rows_to_predict
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

Floats = NDArray[np.float64]
Nodes = Mapping[str, Any]  # by number: the children of i are 2i + 1 and 2i + 2


def assign_nodes(tree: Nodes, table: Table) -> NDArray[np.int64]:
    """Return the node of each row, as far as the tree has grown."""
    found = np.zeros(len(table), dtype=np.int64)
    for number in sorted(map(int, tree)):
        split = tree[str(number)]["split"]
        if split is not None:
            inside = found == number
            goes_left = np.isin(table.codes_of(split[0])[inside], split[1])
            found[inside] = 2 * number + 2 - goes_left
    return found


def evaluate_trees(trees: Sequence[Nodes], table: Table) -> Floats:
    """Return the sum of the leaves of each row."""
    found = np.zeros(len(table))
    for tree in trees:
        values = np.zeros(1 + max(map(int, tree)))
        for number, node in tree.items():
            values[int(number)] = node["value"]
        found += values[assign_nodes(tree, table)]
    return found


@dataclass(frozen=True, kw_only=True)
class PooledBoostingResult(Result):
    """Boosted trees; ``predict`` and ``predict_proba`` use them.

    Attributes
    ----------
    nodes : DataFrame
        A line for each node: its variable and left bins if it is split, its rows and its value.
    base : float
        What the values of leaves are added to: a log odds, or a mean.
    n_trees : int
    """

    caption: ClassVar[str] = "nodes"

    nodes: pd.DataFrame
    base: float
    n_trees: int

    _state: ClassVar[Any]
    _schema: ClassVar[Schema | PublicSchema]

    def to_frame(self) -> pd.DataFrame:
        """Return the nodes."""
        return self.nodes

    @property
    def classes(self) -> list[Any]:
        """The classes; empty for a number."""
        return labels(self._schema, -1) if self._schema.public().n_classes else []

    def decision_function(self, X: Any) -> Floats:
        """Return the log odds of each row, or its mean. NaN for rows that the schema does not
        allow, and a warning names them.
        """
        table = self._rows(X)
        values = self._state["base"] + evaluate_trees(self._state["trees"], table)
        found: Floats = table.leave_blank(values)
        return found if self.classes else found / scale(self._schema, -1)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class."""
        if not self.classes:
            raise SchemaError("a number has no classes: see predict", code="number-without-classes")
        share = 1 / (1 + np.exp(-self.decision_function(X)))
        return np.column_stack([1 - share, share])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, or its mean."""
        score = self.decision_function(X)
        if not self.classes:
            return score
        found: NDArray[Any] = np.array(self.classes, dtype=object)[(score > 0).astype(int)]
        found[np.isnan(score)] = None
        return found

    def _rows(self, X: Any) -> Table:
        if isinstance(X, Table):
            return X
        if not isinstance(self._schema, Schema):
            raise SchemaError(
                "these trees were read without the names of variables: ",
                Cure("open with names", "read the study with schema="),
                code="no-names",
            )
        splits = [node["split"] for tree in self._state["trees"] for node in tree.values()]
        used = sorted({split[0] for split in splits if split is not None})
        return rows_to_predict(self._schema, X, [self._schema.names[j] for j in used])


def read_boosting(state: Any, schema: Schema | PublicSchema) -> PooledBoostingResult:
    """Return the trees of the last state."""
    unit = 1 if schema.public().n_classes else scale(schema, -1)
    lines = []
    for place, tree in enumerate(state["trees"]):
        for number, node in sorted(tree.items(), key=lambda one: int(one[0])):
            split = node["split"]
            line = {"tree": place, "node": int(number), "variable": "", "left": ""}
            if split is not None:
                own = Split(split[0], tuple(split[1]))
                line["variable"] = variable_name(schema, own.variable)
                line["left"] = left_text(schema, own, labels(schema, own.variable))
            lines.append({**line, "rows": node["rows"], "value": node["value"] / unit})
    found = PooledBoostingResult(
        title=f"{len(state['trees'])} boosted trees",
        n_rows=int(state["n"]),
        nodes=pd.DataFrame(lines).set_index(["tree", "node"]),
        base=float(state["base"]) / unit,
        n_trees=len(state["trees"]),
    )
    object.__setattr__(found, "_state", state)
    object.__setattr__(found, "_schema", schema)
    return found
