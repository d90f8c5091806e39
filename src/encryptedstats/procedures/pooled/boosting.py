"""Gradient boosting over sites: trees grow by histograms of gradients on the bins of the schema.

Each round opens the histograms of one level of one tree. Bounds: gradients of classes are at most 1
in size and hessians at most 1/4, so totals of 2^40 rows are below 2^(40 + bits); those of numbers
are below 2^(63 + 40 + bits), and a site refuses what reaches 2^210.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError, SchemaError
from encryptedstats.procedures.pooled.algebra import exact_log
from encryptedstats.procedures.pooled.base import check_fields, refuse_weights
from encryptedstats.procedures.pooled.boosting_result import (
    PooledBoostingResult,
    assign_nodes,
    evaluate_trees,
    read_boosting,
)
from encryptedstats.procedures.pooled.histograms import (
    Chooser,
    Histogram,
    Sums,
    add_up,
    subtract,
    subtract_histograms,
)
from encryptedstats.procedures.pooled.scaling import BITS, BITS_ALLOWED, to_integers
from encryptedstats.procedures.site_procedure import (
    RowLimits,
    SiteProcedure,
    State,
    refuse_small,
)
from encryptedstats.tables.encodings import GAP
from encryptedstats.tables.questions.constraints import (
    Constraints,
    Integer,
    ListOf,
    RealNumber,
    VariableName,
)
from encryptedstats.tables.schema.names import choose_positions, ids_of
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

Floats = NDArray[np.float64]
COUNTS, GROW, DONE = "counts", "grow", "done"
ROOT = 0


@dataclass(frozen=True)
class PooledBoosting(SiteProcedure):
    """Boosted trees of the rows of several sites.

    Split by split those that a program grows from histograms of all rows, on the bins of the
    schema. The target of the schema has two classes (log loss) or is a number (squared error).

    Parameters
    ----------
    n_trees : int
    depth : int
        Every level of every tree is a round.
    learning_rate : float
    l2 : float
        A penalty on the values of leaves.
    min_rows : int
        The smallest number of rows of a leaf.
    variables : list of str, optional
        Variables with bins; by default all.
    bits : int
        Gradients and hessians are rounded to 2 to the power of ``-bits``.

    References
    ----------
    Friedman (2001). Chen and Guestrin (2016).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"x": [*range(0, 80, 2)], "ill": [0] * 15 + [1] * 25})
    >>> schema = es.Schema.infer(frame, target="ill", bins=8)
    >>> sites = [schema.table(frame[::2]), schema.table(frame[1::2])]
    >>> model = es.PooledBoosting(n_trees=3, depth=1, min_rows=5).run(sites)
    >>> model.predict(frame).tolist() == frame["ill"].tolist()
    True
    """

    title = "Boosted trees, by all sites"
    n_trees: int = 20
    depth: int = 2
    learning_rate: float = 0.1
    l2: float = 0.0
    min_rows: int = 20
    variables: Sequence[str] | None = None
    bits: int = BITS

    constraints: ClassVar[Constraints] = {
        "n_trees": Integer(low=1, high=300),
        "depth": Integer(low=1, high=6),
        "learning_rate": RealNumber(low=0, high=1, closed="right"),
        "l2": RealNumber(low=0),
        "min_rows": Integer(low=1),
        "variables": ListOf(item=VariableName(), optional=True),
        "bits": BITS_ALLOWED,
    }

    def __post_init__(self) -> None:
        check_fields(self)

    # -- rounds ------------------------------------------------------------------------------------

    @property
    def at_most(self) -> int:
        """The largest number of rounds: counts, and each level of each tree."""
        return 1 + self.n_trees * self.depth

    def start(self, schema: Schema | PublicSchema) -> State:
        public = schema.public()
        if public.n_classes != 2 and public.target_number is None:
            raise SchemaError(
                f"the target has {public.n_classes} classes: boosting takes two, or a number",
                code="not-two-levels",
            )
        self._positions(schema)
        return {"stage": COUNTS, "trees": []}

    def is_done(self, state: State) -> bool:
        return bool(state["stage"] == DONE)

    def n_totals(self, state: State, schema: PublicSchema) -> int:
        cells = sum(schema.variables[j].n_bins for j in self._positions(schema))
        if state["stage"] == COUNTS:
            return 2 + cells
        return self._n_measures(schema) * self._n_cells(schema) * len(state["asked"])

    def n_opened(self, schema: PublicSchema) -> int:
        # Of two siblings one is asked: 1, 1, 2, 4 ... nodes at the levels of a tree.
        nodes: list[int] = [0] * (1 << (self.depth - 1))
        counts = self.n_totals({"stage": COUNTS}, schema)
        return counts + self.n_trees * self.n_totals({"stage": GROW, "asked": nodes}, schema)

    def n_parameters(self, schema: PublicSchema) -> int:
        return self.n_trees * (1 << self.depth)

    def fits(self, schema: PublicSchema) -> Any:
        """Return the variables: the target is that of the schema."""
        return self._positions(schema)

    def check(
        self, state: State, totals: Sequence[int], schema: PublicSchema, limits: RowLimits
    ) -> None:
        """Refuse bins and classes of few rows, and leaves that may have fewer."""
        if state["stage"] != COUNTS:
            return
        counts = {"rows": totals[0], f"min_rows={self.min_rows}, rows of a leaf": self.min_rows}
        if schema.n_classes:
            counts |= {"class1": totals[1], "class0": totals[0] - totals[1]}
        left = iter(totals[2:])
        for j in self._positions(schema):
            named = {f"v{j} (bin {k})": next(left) for k in range(schema.variables[j].n_bins)}
            counts |= {name: n for name, n in named.items() if n}
        refuse_small(counts, limits)

    # -- at a site ---------------------------------------------------------------------------------

    def measure(self, state: State, table: Table) -> list[int]:
        refuse_weights(table)
        public, y = table.public_schema, _target(table)
        known, positions = ~np.isnan(y), self._positions(public)
        if state["stage"] == COUNTS:
            counts = [
                np.bincount(table.codes_of(j)[known], minlength=public.variables[j].n_bins)
                for j in positions
            ]
            total = sum(int(one) for one in y[known])
            return [int(known.sum()), total, *(int(one) for part in counts for one in part)]
        score = state["base"] + evaluate_trees(state["trees"], table)
        gradient, hessian = score - y, np.ones(len(y))
        if public.n_classes:
            share = 1 / (1 + np.exp(-score))
            gradient, hessian = share - y, share * (1 - share)
        measures = [gradient, hessian, np.ones(len(y))]
        node = np.where(known, assign_nodes(state["tree"], table), -1)
        found: list[int] = []
        for number in state["asked"]:
            inside = node == number
            for place, values in enumerate(measures):
                if place == 1 and not public.n_classes:
                    continue  # the hessians of squared errors are rows
                sums = [float(values[inside].sum())]
                for j in positions:
                    codes, n = table.codes_of(j)[inside], public.variables[j].n_bins
                    by_bin = np.bincount(codes, weights=values[inside], minlength=n)
                    sums += by_bin[:-1].tolist()  # the last follows from the whole
                found += (
                    [round(one) for one in sums] if place == 2 else to_integers(sums, self.bits)
                )
        return found

    # -- from sums to the next state ---------------------------------------------------------------

    def step(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        public = schema.public()
        if state["stage"] == COUNTS:
            return self._begin(state, opened, public)
        chooser = self._chooser(public)
        histograms, sums = self._histograms(state, opened, public)
        tree = dict(state["tree"])
        if ROOT in state["open"]:
            tree = {str(ROOT): {"sums": sums[ROOT], "split": None}}
        children: list[int] = []
        for number in state["open"]:
            whole = tree[str(number)]["sums"]
            found = chooser.choose(histograms[number], whole)
            if found is None:
                continue
            split, left = found
            tree[str(number)] = {"sums": whole, "split": [split.variable, list(split.left)]}
            for child, own in ((2 * number + 1, left), (2 * number + 2, subtract(whole, left))):
                tree[str(child)] = {"sums": own, "split": None}
                if child < (1 << self.depth) - 1 and chooser.can_split(own):
                    children.append(child)
        if not children:
            return self._end_tree({**state, "tree": tree}, chooser)
        asked = [one for one in children if one % 2 or one - 1 not in children]
        above = {str((one - 1) // 2): histograms[(one - 1) // 2] for one in children}
        return {**state, "tree": tree, "open": children, "asked": asked, "above": above}

    def _begin(self, state: State, opened: Sequence[int], schema: PublicSchema) -> State:
        n, total = opened[:2]
        if n < 1 or (schema.n_classes and not 0 < total < n):
            raise DataError(
                "the target is the same in all rows, or there are none: there is nothing to "
                "explain",
                code="constant-outcome",
            )
        base = exact_log(total / (n - total)) if schema.n_classes else total / n
        return {**state, "n": n, "base": base, **_new_tree(), "stage": GROW}

    def _end_tree(self, state: State, chooser: Chooser) -> State:
        """Give the leaves their values, and start the next tree."""
        nodes = {
            number: {
                "split": node["split"],
                "rows": node["sums"][2],
                "value": self.learning_rate * chooser.value(node["sums"]),
            }
            for number, node in state["tree"].items()
        }
        trees = [*state["trees"], nodes]
        if len(trees) == self.n_trees:
            return {"stage": DONE, "trees": trees, "n": state["n"], "base": state["base"]}
        return {**state, **_new_tree(), "trees": trees}

    def _histograms(
        self, state: State, opened: Sequence[int], schema: PublicSchema
    ) -> tuple[dict[int, Histogram], dict[int, Sums]]:
        """Return the histogram of each open node and the sums of those that are asked."""
        size, n = self._n_cells(schema), self._n_measures(schema)
        found: dict[int, Histogram] = {}
        sums: dict[int, Sums] = {}
        for place, number in enumerate(state["asked"]):
            start = place * n * size
            lines = [list(opened[start + m * size : start + (m + 1) * size]) for m in range(n)]
            if n == 2:
                lines.insert(1, [one << self.bits for one in lines[1]])
            cells = [list(cell) for cell in zip(*lines, strict=True)]
            sums[number], rest = cells[0], cells[1:]
            found[number] = []
            for j in self._positions(schema):
                n_bins = schema.variables[j].n_bins
                own, rest = rest[: n_bins - 1], rest[n_bins - 1 :]
                found[number].append([*own, subtract(sums[number], add_up(own))])
        for number in set(state["open"]) - set(found):  # right siblings of nodes that are asked
            whole = state["above"][str((number - 1) // 2)]
            found[number] = subtract_histograms(whole, found[number - 1])
        return found, sums

    # -- the result --------------------------------------------------------------------------------

    def read(self, state: State, schema: Schema | PublicSchema) -> PooledBoostingResult:
        """Return the trees, which predict rows in the clear."""
        return read_boosting(state, schema)

    def _chooser(self, schema: PublicSchema) -> Chooser:
        return Chooser(schema, self._positions(schema), self.l2, self.min_rows, self.bits)

    def _n_cells(self, schema: PublicSchema) -> int:
        """Return how many sums of one kind a histogram has: the whole, and all bins but the last of
        each variable.
        """
        return 1 + sum(schema.variables[j].n_bins - 1 for j in self._positions(schema))

    def _n_measures(self, schema: PublicSchema) -> int:
        return 3 if schema.n_classes else 2

    def _positions(self, schema: Schema | PublicSchema) -> list[int]:
        public = schema.public()
        ids = None if self.variables is None else ids_of(list(self.variables), schema)
        found = [j for j in sorted(choose_positions(public, ids)) if public.variables[j].n_bins > 1]
        if not found:
            raise SchemaError(
                "no variable has two bins or more, so trees cannot split: choose other variables "
                "or cut more bins",
                code="nothing-to-split",
            )
        return found


def _new_tree() -> Mapping[str, Any]:
    return {"tree": {}, "open": [ROOT], "asked": [ROOT], "above": {}}


def _target(table: Table) -> Floats:
    """Return the class or the integer of each row; NaN where it is missing."""
    if table.class_codes is not None:
        return np.asarray(table.class_codes, dtype=float)
    if table.target_values is None:
        raise SchemaError("the table has no target", code="no-target")
    values = np.asarray(table.target_values)
    return np.where(values == GAP, np.nan, values.astype(float))
