"""k-means over sites: Lloyd's steps, from a start that follows from the document.

A round first opens how many rows move between any two clusters, and only then the sums of the
clusters: where a few rows alone move between some clusters and the others, the difference of sums
would be their values, so the rounds end there.

Bounds: numbers are integers of at most 2^62, so sums of 2^40 rows are below 2^102 and those of
squares below 2^164.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import Cure, DataError, SchemaError
from encryptedstats.models.growth import Draws
from encryptedstats.procedures.pooled.algebra import n_pairs
from encryptedstats.procedures.pooled.base import check_fields, refuse_weights
from encryptedstats.procedures.site_procedure import (
    RowLimits,
    SiteProcedure,
    State,
    refuse_small,
)
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.encodings import GAP
from encryptedstats.tables.questions.constraints import (
    Constraints,
    Flag,
    Integer,
    ListOf,
    VariableName,
)
from encryptedstats.tables.questions.question import number_column
from encryptedstats.tables.questions.summaries import scale, variable_name
from encryptedstats.tables.rows.table_from_frame import rows_to_predict
from encryptedstats.tables.schema.names import choose_positions, ids_of
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

Floats = NDArray[np.float64]
COUNTS, MOVES, SUMS, DONE = "counts", "moves", "sums", "done"
_DRAWN: Final = 1 << 53


@dataclass(frozen=True, kw_only=True)
class PooledKMeansResult(Result):
    """Clusters of k-means.

    Attributes
    ----------
    centers : DataFrame
        The rows of each cluster and the means of its variables.
    inertia : float
        The sum of squared distances from the centres, of standardised variables where these are.
    iterations : int
    converged : bool
    """

    caption: ClassVar[str] = "centers"

    centers: pd.DataFrame
    inertia: float
    iterations: int
    converged: bool

    _asked: ClassVar[PooledKMeans]
    _state: ClassVar[Any]
    _schema: ClassVar[Schema | PublicSchema]

    def to_frame(self) -> pd.DataFrame:
        """Return the centres."""
        return self.centers

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the cluster of each row, from 0; None where a value is missing or not allowed."""
        positions = self._asked._positions(self._schema)
        if isinstance(X, Table):
            table = X
        elif isinstance(self._schema, Schema):
            names = [self._schema.names[j] for j in positions]
            table = rows_to_predict(self._schema, X, names)
        else:
            raise SchemaError(
                "this was read without the names of variables: ",
                Cure("open with names", "read the study with schema="),
                code="no-names",
            )
        x, complete = _numbers(table, positions)
        found = np.full(len(table), None, dtype=object)
        units = self._asked._units(self._state, table)
        found[complete] = _nearest(x[complete], self._state["centers"], units)
        return table.leave_blank(found)


@dataclass(frozen=True)
class PooledKMeans(SiteProcedure):
    """k-means clusters of the rows of several sites.

    Equal to Lloyd's algorithm on all rows, as scikit-learn has it, from the same start; but a
    cluster without rows stays where it is, and rounds end where only a few rows move.

    Parameters
    ----------
    n_clusters : int
    variables : list of str, optional
        Variables that are kept as numbers; by default all of these.
    standardise : bool
        Whether distances are of variables divided by their standard deviations.
    seed : int
        The start is drawn by it: points around the mean of each variable, as far as a uniform
        distribution with its standard deviation goes, and within its bounds.
    minimum : int
        Rounds end where fewer rows, and some, move between any clusters and all others.
    max_iterations : int
        Each takes two rounds.

    References
    ----------
    Lloyd (1982).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"x": [1, 2, 3, 11, 12, 13], "y": [5, 7, 6, 1, 2, 3]})
    >>> schema = es.Schema.infer(frame, numbers="keep")
    >>> sites = [schema.table(frame[::2]), schema.table(frame[1::2])]
    >>> es.PooledKMeans(2, minimum=1).run(sites).centers["x"].sort_values().tolist()
    [2.0, 12.0]
    """

    title = "k-means clusters, by all sites"
    n_clusters: int
    variables: Sequence[str] | None = None
    standardise: bool = True
    seed: int = 0
    minimum: int = 10
    max_iterations: int = 20

    constraints: ClassVar[Constraints] = {
        "n_clusters": Integer(low=1, high=1 << 10),
        "variables": ListOf(item=VariableName(), optional=True),
        "standardise": Flag(),
        "seed": Integer(low=0),
        "minimum": Integer(low=1),
        "max_iterations": Integer(low=1, high=400),
    }

    def __post_init__(self) -> None:
        check_fields(self)

    # -- rounds ------------------------------------------------------------------------------------

    @property
    def at_most(self) -> int:
        """The largest number of rounds: counts, two for each iteration, and the last moves."""
        return 2 * self.max_iterations + 2

    def start(self, schema: Schema | PublicSchema) -> State:
        for j in self._positions(schema):
            number_column(schema.public(), j, gaps=True)
        return {"stage": COUNTS, "iterations": 0, "converged": False}

    def is_done(self, state: State) -> bool:
        return bool(state["stage"] == DONE)

    def n_totals(self, state: State, schema: PublicSchema) -> int:
        d = len(self._positions(schema))
        moves = n_pairs(self.n_clusters)  # the sizes, and the rows that move between two
        return {COUNTS: 1 + 2 * d, MOVES: moves}.get(state["stage"], self.n_clusters * d)

    def n_opened(self, schema: PublicSchema) -> int:
        counts, moves, sums = (
            self.n_totals({"stage": stage}, schema) for stage in (COUNTS, MOVES, SUMS)
        )
        return counts + moves + self.max_iterations * (moves + sums)

    def n_parameters(self, schema: PublicSchema) -> int:
        return self.n_clusters * len(self._positions(schema))

    def fits(self, schema: PublicSchema) -> Any:
        """Return None: a study has one of them. The sums of clusters of another start, which other
        variables lead to as well, would differ by few rows.
        """
        return None

    def check(
        self, state: State, totals: Sequence[int], schema: PublicSchema, limits: RowLimits
    ) -> None:
        """Refuse clusters of few rows, before their sums are opened, and rounds that would open the
        sums of few rows that move.
        """
        if self.minimum < limits.minimum:
            refuse_small({f"minimum={self.minimum}, the rows that move": self.minimum}, limits)
        if state["stage"] == COUNTS:
            refuse_small({"complete rows": totals[0]}, limits)
        if state["stage"] == MOVES:
            sizes = enumerate(totals[: self.n_clusters])
            refuse_small({f"cluster {k}": size for k, size in sizes if size}, limits)

    # -- at a site ---------------------------------------------------------------------------------

    def measure(self, state: State, table: Table) -> list[int]:
        refuse_weights(table)
        x, complete = _numbers(table, self._positions(table.public_schema))
        x = x[complete]
        if state["stage"] == COUNTS:
            whole = x.astype(object)
            return [len(x), *_add_up(whole), *_add_up(whole * whole)]
        units, n = self._units(state, table), self.n_clusters
        label = _nearest(x, state["centers"], units)
        if state["stage"] == SUMS:
            return [one for k in range(n) for one in _add_up(x[label == k].astype(object))]
        before = label if state["last"] is None else _nearest(x, state["last"], units)
        flows = np.bincount(before * n + label, minlength=n * n).reshape(n, n)
        both = (flows + flows.T)[np.triu_indices(n, 1)]
        return [*np.bincount(label, minlength=n).tolist(), *both.tolist()]

    def _units(self, state: State, table: Table) -> Floats:
        """Return what each variable is divided by in distances."""
        if self.standardise:
            return np.array(state["sds"])
        positions = self._positions(table.public_schema)
        return np.array([scale(table.schema, j) for j in positions], dtype=float)

    # -- from sums to the next state ---------------------------------------------------------------

    def step(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        if state["stage"] == COUNTS:
            return self._begin(state, opened, schema.public())
        if state["stage"] == SUMS:
            return self._move(state, opened)
        n = self.n_clusters
        sizes, flows, first = list(opened[:n]), opened[n:], state["last"] is None
        after = {**state, "sizes": sizes}
        if not any(flows) and not first:
            return {**after, "stage": DONE, "converged": True}
        if state["iterations"] >= self.max_iterations:
            return {**state, "stage": DONE}
        if first and any(0 < one < self.minimum for one in sizes):
            raise DataError(
                f"the start has a cluster of fewer than {self.minimum} rows: choose another "
                "seed, or fewer clusters",
                code="small-cluster",
            )
        if 0 < smallest_cut(flows, n) < self.minimum:
            return {**state, "moving": sum(flows), "stage": DONE, "converged": True}
        return {**after, "stage": SUMS}

    def _begin(self, state: State, opened: Sequence[int], schema: PublicSchema) -> State:
        n, positions = opened[0], self._positions(schema)
        if n < 1:
            raise DataError("no row has all variables: choose others", code="no-complete-rows")
        sums, squares = opened[1 : 1 + len(positions)], opened[1 + len(positions) :]
        variances = [Fraction(n * q - s * s, n * n) for s, q in zip(sums, squares, strict=True)]
        sds = [math.sqrt(float(one)) if one else 1.0 for one in variances]
        draws, reach = Draws("k-means", self.seed), math.sqrt(3.0)
        centers = []
        for _ in range(self.n_clusters):
            point = []
            for j, total, sd in zip(positions, sums, sds, strict=True):
                known, share = schema.variables[j], draws.below(_DRAWN) / _DRAWN
                value = total / n + sd * reach * (2 * share - 1)
                point.append(min(max(value, float(known.low or 0)), float(known.high or 0)))
            centers.append(point)
        about = {"n": n, "sds": sds, "squares": [str(q) for q in squares]}
        return {**state, **about, "stage": MOVES, "centers": centers, "last": None}

    def _move(self, state: State, opened: Sequence[int]) -> State:
        d = len(state["sds"])
        centers = []
        for k, (size, before) in enumerate(zip(state["sizes"], state["centers"], strict=True)):
            sums = opened[k * d : (k + 1) * d]
            centers.append([one / size for one in sums] if size else before)
        moved = {"centers": centers, "last": state["centers"]}
        return {
            **state,
            **moved,
            "stage": MOVES,
            "sums": [str(one) for one in opened],
            "iterations": state["iterations"] + 1,
        }

    # -- the result --------------------------------------------------------------------------------

    def read(self, state: State, schema: Schema | PublicSchema) -> PooledKMeansResult:
        """Return the centres."""
        positions = self._positions(schema)
        units = np.array([scale(schema, j) for j in positions], dtype=float)
        frame = pd.DataFrame(
            np.array(state["centers"]) / units,
            pd.RangeIndex(self.n_clusters, name="cluster"),
            [variable_name(schema, j) for j in positions],
        )
        frame.insert(0, "rows", state["sizes"])
        divisors = state["sds"] if self.standardise else units.tolist()
        notes = []
        if state.get("moving"):
            notes.append(
                f"{state['moving']} rows would move on: fewer than {self.minimum} between "
                "some clusters and the others, whose values the next sums would tell"
            )
        if not state["converged"]:
            notes.append("the clusters did not converge")
        if 0 in state["sizes"]:
            notes.append("a cluster without rows stays where it was")
        found = PooledKMeansResult(
            title=f"{self.n_clusters} clusters by k-means",
            n_rows=int(state["n"]),
            notes=tuple(notes),
            centers=frame,
            inertia=_inertia(state, divisors),
            iterations=int(state["iterations"]),
            converged=bool(state["converged"]),
        )
        for name, value in {"_asked": self, "_state": state, "_schema": schema}.items():
            object.__setattr__(found, name, value)
        return found

    def _positions(self, schema: Schema | PublicSchema) -> list[int]:
        public = schema.public()
        if self.variables is not None:
            return choose_positions(public, ids_of(list(self.variables), schema))
        found = [j for j, one in enumerate(public.variables) if one.kind == "number"]
        if not found:
            raise SchemaError(
                "no variable is kept as a number, and k-means takes means: keep some, "
                "schema.with_kind(name, 'number', digits=...)",
                code="no-numbers",
            )
        return found


def smallest_cut(flows: Sequence[int], n: int) -> int:
    """Return the fewest rows, and some, that move between any clusters and all others (Stoer and
    Wagner 1997); 0 if none move. Sums over several clusters differ by these rows.

    >>> smallest_cut([12, 0, 1, 0, 0, 12], 4)  # 12 between 0 and 1, and 2 and 3; 1 from 0 to 3
    1
    """
    between = [[0] * n for _ in range(n)]
    for (a, b), flow in zip(combinations(range(n), 2), flows, strict=True):
        between[a][b] = between[b][a] = flow
    left, smallest = list(range(n)), 0
    while len(left) > 1:
        order, weights = [left[0]], {k: between[left[0]][k] for k in left[1:]}
        cut = 0
        while weights:
            order.append(max(weights, key=weights.__getitem__))
            cut = weights.pop(order[-1])
            weights = {k: one + between[order[-1]][k] for k, one in weights.items()}
        if cut > 0:
            smallest = min(cut, smallest or cut)
        kept, gone = order[-2:]
        left.remove(gone)
        for k in left:
            between[kept][k] += between[gone][k]
            between[k][kept] = between[kept][k]
    return smallest


def _numbers(table: Table, positions: Sequence[int]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the integers of numbers, and which rows have all of them."""
    x = np.column_stack([np.asarray(table.data_of(j)).astype(np.int64) for j in positions])
    return x, (x != GAP).all(axis=1)


def _add_up(values: NDArray[Any]) -> list[int]:
    return [int(one) for one in values.sum(axis=0)]


def _nearest(x: NDArray[Any], centers: Sequence[Sequence[float]], units: Floats) -> NDArray[Any]:
    """Return the nearest centre of each row; of equal ones the first."""
    distances = np.column_stack(
        [(((x - np.array(center)) / units) ** 2).sum(axis=1) for center in centers]
    )
    found: NDArray[Any] = distances.argmin(axis=1)
    return found


def _inertia(state: Any, divisors: Sequence[float]) -> float:
    """Return squares less those of the means, which are exact until they are divided."""
    d, found = len(divisors), 0.0
    sums = [int(one) for one in state["sums"]]
    for j, divisor in enumerate(divisors):
        left = Fraction(int(state["squares"][j]))
        for k, size in enumerate(state["sizes"]):
            left -= Fraction(sums[k * d + j] ** 2, size) if size else 0
        found += float(left) / divisor**2
    return found
