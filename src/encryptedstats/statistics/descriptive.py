"""What a table looks like: rows, means, spreads and shapes of numbers, quantiles, histograms and
box plots of bins, all by group.

Quantiles are read from the counts of bins: within a bin rows are taken to be spread evenly. The
outermost bins are open, so nothing is said of a quantile that falls there unless the owner, who
knows, says where they end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import ArgumentError, DataError, SchemaError
from encryptedstats.statistics.factors import (
    Powers,
    cell_shape,
    cell_totals,
    factor,
    factor_position,
    power_shapes,
    power_totals,
    read_cells,
    read_powers,
)
from encryptedstats.tables.answers.results import Result, TableResult
from encryptedstats.tables.questions.constraints import Choice, Constraints, ListOf, RealNumber
from encryptedstats.tables.questions.question import Arrays, Columns, Question, Shapes, Totals
from encryptedstats.tables.questions.summaries import variable_name
from encryptedstats.tables.schema.names import position, target_id
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INTERPOLATED: Final = "quantiles are interpolated within bins"


# -- quantiles of bins -----------------------------------------------------------------------------


def bin_quantile(
    edges: Sequence[float],
    counts: Sequence[int],
    share: float,
    low: float | None = None,
    high: float | None = None,
) -> float:
    """Return the quantile of values of which only the bins are known, spread evenly within each.

    Parameters
    ----------
    edges : sequence of float
        Inner cut points.
    counts : sequence of int
        Rows in each bin, one more than there are edges.
    share : float
        0 to 1.
    low, high : float, optional
        Where the outermost bins end. Without them a quantile inside one is NaN.

    Examples
    --------
    >>> bin_quantile([10, 20, 30], [5, 10, 20, 5], 0.5)
    22.5
    >>> bin_quantile([10, 20, 30], [5, 10, 20, 5], 0.05)
    nan
    >>> bin_quantile([10, 20, 30], [5, 10, 20, 5], 0.05, low=0)
    4.0
    """
    ends = [np.nan if low is None else low, *edges, np.nan if high is None else high]
    n = int(sum(counts))
    if not n:
        return np.nan
    wanted, before = Fraction(str(share)) * n, 0
    for k, rows in enumerate(counts):
        if rows and wanted <= before + rows:
            inside = float((wanted - before) / int(rows))
            # The end of a bin is known even where its beginning is not.
            return float(ends[k + 1] if inside == 1 else ends[k] + inside * (ends[k + 1] - ends[k]))
        before += int(rows)
    return float(ends[-1])


# -- histograms ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HistogramResult(Result):
    """How many rows are in each bin of a variable, by group.

    Attributes
    ----------
    counts : DataFrame
        A line for each bin, a column for each group.
    edges : tuple of float
        Inner cut points; empty where bins are levels, or where they are not known.
    """

    counts: pd.DataFrame
    edges: tuple[float, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return the counts."""
        return self.counts

    def quantile(
        self,
        q: float | Sequence[float] = (0.25, 0.5, 0.75),
        *,
        low: float | None = None,
        high: float | None = None,
    ) -> Any:
        """Return quantiles of every group, interpolated within bins; NaN in an open bin, unless
        ``low`` or ``high`` says where it ends.

        Of one share a Series, of several a DataFrame with a line for each.
        """
        self._check_edges()
        shares = [q] if isinstance(q, (int, float)) else list(q)
        wrong = [share for share in shares if not 0 <= share <= 1]
        if wrong:
            raise ArgumentError(
                f"q={wrong[0]!r}: shares between 0 and 1", code="quantile-out-of-range"
            )
        groups = {
            name: [
                bin_quantile(self.edges, self.counts[name].tolist(), share, low, high)
                for share in shares
            ]
            for name in self.counts
        }
        frame = pd.DataFrame(groups, index=pd.Index(shares, name="quantile"))
        frame.columns = self.counts.columns
        return frame.iloc[0] if isinstance(q, (int, float)) else frame

    def density(self, *, low: float | None = None, high: float | None = None) -> pd.DataFrame:
        """Return the share of the rows of each group per unit of the variable; NaN of bins without
        end.
        """
        self._check_edges()
        ends = np.array(
            [np.nan if low is None else low, *self.edges, np.nan if high is None else high],
            dtype=float,
        )
        shares: pd.DataFrame = self.counts / self.counts.sum()
        return shares.div(np.diff(ends), axis=0)

    def _check_edges(self) -> None:
        if not self.edges:
            raise DataError(
                "the bins have no cut points, which quantiles need: ask of a continuous variable, "
                "and open it with its schema",
                code="no-cut-points",
            )

    def plot(
        self, ax: Axes | None = None, *, low: float | None = None, high: float | None = None
    ) -> Axes:
        """Draw bars: of bins with ends by density, else by the number of rows."""
        from encryptedstats.statistics.plots import plot_histogram

        return plot_histogram(self, ax, low=low, high=high)

    def boxplot(
        self, ax: Axes | None = None, *, low: float | None = None, high: float | None = None
    ) -> Axes:
        """Draw a box from the lower to the upper quartile for each group, the median, and whiskers
        to the 5 % and 95 % quantiles.
        """
        from encryptedstats.statistics.plots import plot_boxes

        return plot_boxes(self, ax, low=low, high=high)


@dataclass(frozen=True)
class Histogram(Question):
    """How many rows are in each bin of a variable, by group; its result draws it, and has quantiles
    and box plots.

    Parameters
    ----------
    variable : str
        A variable with bins.
    by : str, optional
        Another one, or the class.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"age": range(20, 80)})
    >>> schema = es.Schema.infer(frame).with_bins("age", edges=[30, 40, 50, 60, 70])
    >>> found = schema.table(frame).ask(es.Histogram("age"))
    >>> float(found.quantile(0.5)["rows"])
    49.0
    """

    title: ClassVar[str] = "Histogram"
    of_variables: ClassVar[tuple[str, ...]] = ("variable", "by")

    variable: str
    by: str | None = None

    def _list_variables(self) -> tuple[str, ...]:
        return (self.variable,) if self.by is None else (self.variable, self.by)

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins."""
        positions = [factor_position(schema, name) for name in self._list_variables()]
        if len(set(positions)) < len(positions):
            raise SchemaError(
                f"a histogram of {self.variable!r} by itself: by= names another variable",
                code="same-variable-twice",
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every bin."""
        return {"cells": cell_totals(schema, self._list_variables(), fold)}

    def shapes(self, schema: PublicSchema) -> Shapes:
        return {"cells": cell_shape(schema, self._list_variables())}

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> HistogramResult:
        """Return the counts."""
        cells = read_cells(totals["cells"], schema, self._list_variables(), n_rows)
        frame = cells.frame if self.by is not None else cells.frame.set_axis(["rows"], axis=1)
        by = f" by {cells.factors[1].name}" if self.by is not None else ""
        edges = _edges(schema, cells.factors[0].position)
        return HistogramResult(
            title=f"Histogram: {cells.factors[0].name}{by}",
            n_rows=cells.n,
            notes=(*cells.notes, *((_INTERPOLATED,) if edges else ())),
            counts=frame,
            edges=edges,
        )


def _edges(schema: Schema | PublicSchema, position: int) -> tuple[float, ...]:
    return (
        ()
        if isinstance(schema, PublicSchema) or position == -1
        else schema.variables[position].edges
    )


# -- describe --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Describe(Question):
    """Rows, missing values, means and spreads of numbers; quantiles and counts of bins. By group,
    if wanted.

    Parameters
    ----------
    variables : list of str, optional
        All by default.
    by : str, optional
        A variable with bins, or the class: everything for each of its groups.
    moments : 2 or 4
        4 adds skewness and kurtosis of numbers, from sums of their third and fourth powers, which
        need larger keys.
    quantiles : list of float
        Of variables that are cut into bins.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"weight": [4, 5, 6, 7, 5, 8, 9, 9], "diet": list("aaaabbbb")})
    >>> schema = es.Schema.infer(frame).with_kind("weight", "number", digits=0)
    >>> found = schema.table(frame).ask(es.Describe(["weight"], by="diet")).to_frame()
    >>> found.loc["weight", "mean"].to_dict()
    {'a': 5.5, 'b': 7.75}
    """

    title: ClassVar[str] = "Descriptive statistics"
    of_variables: ClassVar[tuple[str, ...]] = ("variables", "by")

    variables: list[str] | None = None
    by: str | None = None
    moments: int = 2
    quantiles: tuple[float, ...] = (0.25, 0.5, 0.75)
    constraints: ClassVar[Constraints] = {
        "moments": Choice(values=(2, 4), code="unknown-moments"),
        "quantiles": ListOf(item=RealNumber(low=0, high=1, code="quantile-out-of-range")),
    }

    def __post_init__(self) -> None:
        named = None if self.variables is None else list(self.variables)
        object.__setattr__(self, "variables", named)
        object.__setattr__(self, "quantiles", tuple(self.quantiles))

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse groups that are no groups."""
        if self.by is not None:
            factor_position(schema, self.by)
        if not self._list_variables(schema):
            raise SchemaError("there is no variable to describe", code="no-variables")

    @property
    def _by(self) -> tuple[str, ...]:
        return () if self.by is None else (self.by,)

    def _list_variables(self, schema: PublicSchema) -> list[int]:
        """Return the positions of the variables; not that of the groups, unless it is named."""
        if self.variables is not None:
            return [position(schema, name) for name in self.variables]
        own = None if self.by is None else position(schema, self.by)
        return [j for j in range(len(schema.variables)) if j != own]

    def _parts(self, schema: PublicSchema) -> list[tuple[str, bool]]:
        """Return the id of each variable, by which its totals are called, and whether it is a
        number.
        """
        return [
            (
                f"v{j}" if j >= 0 else target_id(schema),
                schema.target_number is not None if j < 0 else is_number(schema, j),
            )
            for j in self._list_variables(schema)
        ]

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return sums of powers of numbers, and rows of bins."""
        found: dict[str, Any] = {}
        for name, number in self._parts(schema):
            if number:
                powers = power_totals(schema, name, self._by, self.moments, fold)
                found |= {f"{name} {part}": values for part, values in powers.items()}
            else:
                found[f"{name} cells"] = cell_totals(
                    schema, (name, *self._others(schema, name)), fold
                )
        return found

    def _others(self, schema: PublicSchema, variable: str) -> tuple[str, ...]:
        """Return the groups, unless they are those of the variable itself."""
        return (
            ()
            if self.by is None or position(schema, self.by) == position(schema, variable)
            else (self.by,)
        )

    def shapes(self, schema: PublicSchema) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        for name, number in self._parts(schema):
            if number:
                found |= {
                    f"{name} {part}": s
                    for part, s in power_shapes(schema, name, self._by, self.moments).items()
                }
            else:
                found[f"{name} cells"] = cell_shape(schema, (name, *self._others(schema, name)))
        return found

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TableResult:
        """Return the table."""
        lines: dict[Any, dict[str, Any]] = {}
        frequencies: dict[str, pd.DataFrame] = {}
        by = None if self.by is None else factor(schema, self.by)
        for name, number in self._parts(schema.public()):
            shown = variable_name(schema, position(schema, name))
            if number:
                own = {
                    part.removeprefix(f"{name} "): values
                    for part, values in totals.items()
                    if part.startswith(f"{name} ")
                }
                found = read_powers(own, schema, name, self._by, n_rows)
                for place in np.ndindex(found.n.shape):
                    lines[(shown, by.labels[place[0]]) if by else shown] = _number_line(
                        found, place
                    )
                continue
            others = self._others(schema.public(), name)
            cells = read_cells(totals[f"{name} cells"], schema, (name, *others), n_rows)
            frequencies[shown] = cells.frame
            edges, one = _edges(schema, cells.factors[0].position), cells.factors[0]
            for k in range(len(by.labels) if others and by else 1):
                counts = cells.counts[:, k] if others else cells.counts
                absent = (
                    int(totals[f"{name} cells"][len(one.labels) :, k].sum())
                    if others
                    else cells.n_missing
                )
                line: dict[str, Any] = {"n": int(counts.sum()), "missing": absent}
                if edges:
                    line |= {
                        f"{q:.4g}": bin_quantile(edges, counts.tolist(), q) for q in self.quantiles
                    }
                lines[(shown, by.labels[k] if others else "") if by else shown] = line
        columns = [
            "n",
            "missing",
            "mean",
            "sd",
            *(("skewness", "kurtosis") if self.moments == 4 else ()),
        ]
        columns += [f"{q:.4g}" for q in self.quantiles]
        index = (
            pd.MultiIndex.from_tuples(list(lines), names=["", by.name])
            if by
            else pd.Index(list(lines))
        )
        frame = pd.DataFrame(list(lines.values()), index=index).reindex(columns=columns)
        quantiles = frame[[f"{q:.4g}" for q in self.quantiles]]
        notes = (_INTERPOLATED,) if quantiles.notna().any(axis=None) else ()
        return TableResult(
            title=f"Description of {plural(frame.shape[0], 'variable')}"
            if by is None
            else f"Description by {by.name}",
            n_rows=n_rows,
            notes=notes,
            table=frame,
            tables=frequencies,
            estimates="mean",
        )


def is_number(schema: PublicSchema, where: int) -> bool:
    """Return whether the variable at a position is kept as a number."""
    return schema.variables[where].kind == "number"


def _number_line(found: Powers, place: Any) -> dict[str, Any]:
    n = int(found.n[place])
    line: dict[str, Any] = {"n": n, "missing": int(found.missing[place])}
    if not n:
        return line
    mean, scatter = found.mean(place), found.scatter(place)
    line |= {"mean": float(mean), "sd": float(found.variance(place)) ** 0.5 if n > 1 else np.nan}
    if len(found.sums) > 2 and scatter:
        _, two, three, four = (part[place] for part in found.sums)
        third = (
            three - 3 * mean * two + 2 * n * mean**3
        )  # central moments, times n: nothing cancels in fractions
        fourth = four - 4 * mean * three + 6 * mean**2 * two - 3 * n * mean**4
        line["skewness"] = float(third / n) / float(scatter / n) ** 1.5
        line["kurtosis"] = float(fourth * n / scatter**2) - 3
    return line
