"""Variables as statistics see them: factors, whose bins are groups of rows, and numbers by group.

Rows whose value is missing are in no group. They are counted, so that a result can say how many
were left out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import Cure, DataError, ParameterError, SchemaError
from encryptedstats.tables.questions.constraints import CONFIDENCE
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    complete_rows,
    has_gaps,
    number_column,
    refuse_impossible,
)
from encryptedstats.tables.questions.summaries import indicators, labels, scale, variable_name
from encryptedstats.tables.schema.names import position
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Ints = NDArray[Any]  # Python's own integers, which never overflow


@dataclass(frozen=True)
class Factor:
    """A variable with bins, or the class: where it stands, its groups, and whether a last bin holds
    missing values.
    """

    position: int
    name: str
    labels: tuple[Any, ...]
    missing_bin: bool
    ordered: bool

    @property
    def index(self) -> pd.Index[Any]:
        """Return the groups as an axis of a table."""
        axis: pd.Index[Any] = pd.Index(list(self.labels), name=self.name)
        return axis

    @property
    def n_bins(self) -> int:
        """Return how many bins it has, the one for missing values included."""
        return len(self.labels) + self.missing_bin


def factor(schema: Schema | PublicSchema, variable: str) -> Factor:
    """Return a variable that has bins, by its id, or the class."""
    where = factor_position(schema, variable)
    known = None if where == -1 else schema.public().variables[where]
    missing = known is not None and known.missing_bin
    named = labels(schema, where)
    ordered = known is not None and known.is_ordered
    return Factor(
        where, variable_name(schema, where), tuple(named[: len(named) - missing]), missing, ordered
    )


def factor_position(schema: Schema | PublicSchema, variable: str) -> int:
    """Return the position of a variable with bins, -1 for the class; refuse what has no bins."""
    public = schema.public()
    where = position(public, variable)
    if where == -1 and not public.n_classes and public.target_number is None:
        raise SchemaError(
            "the schema has no classes: ", Cure("name the target", "infer it with target=")
        )
    if not public.at(where).n_bins if where != -1 else public.target_number is not None:
        raise SchemaError(
            f"variable {variable!r} is a number and has no bins: a factor is needed here",
            code="kept-as-number",
        )
    return where


def check_groups(schema: Schema | PublicSchema, variables: Iterable[str]) -> None:
    """Refuse factors of one group, of which nothing can be compared; a bin for missing values is no
    group.
    """
    for variable in variables:
        found = factor(schema, variable)
        if len(found.labels) < 2:
            raise SchemaError(
                f"{variable!r} has {len(found.labels)} group, and groups are compared: ",
                Cure("name another variable", "name a variable with two groups or more"),
                code="one-level",
            )


def cell_totals(
    schema: PublicSchema, variables: Sequence[str], fold: int | None = None
) -> NDArray[Any]:
    """Return the rows of every combination of bins, missing values included."""
    return totals_of(groups(schema, variables, fold))


def groups(
    schema: PublicSchema,
    variables: Sequence[str],
    fold: int | None = None,
    *,
    present: bool = False,
) -> NDArray[Any]:
    """Return the indicators of every combination of bins; of those that are ``present``, without
    missing values.
    """
    axes = []
    for variable in variables:
        where = factor_position(schema, variable)
        found = indicators(schema, where, fold)
        missing = present and where != -1 and schema.variables[where].missing_bin
        axes.append(_array(found[:-1] if missing else found))
    return reduce(np.multiply.outer, axes)


def _array(expressions: Sequence[Expression]) -> NDArray[Any]:
    found = np.empty(len(expressions), dtype=object)
    found[:] = expressions
    return found


def totals_of(expressions: NDArray[Any]) -> NDArray[Any]:
    """Return the total of each expression."""
    found = np.empty(expressions.shape, dtype=object)
    for place, expression in np.ndenumerate(expressions):
        found[place] = expression.total()
    return found


def cell_shape(
    schema: PublicSchema, variables: Sequence[str], *, present: bool = False
) -> tuple[int, ...]:
    """Return the shape of :func:`cell_totals`, or of the groups that are ``present``."""
    found = [factor(schema, variable) for variable in variables]
    return tuple(len(one.labels) if present else one.n_bins for one in found)


@dataclass(frozen=True)
class Cells:
    """How many rows are in each combination of groups, and how many in none because a value is
    missing.
    """

    factors: tuple[Factor, ...]
    counts: Ints
    n_missing: int

    @property
    def n(self) -> int:
        """Return the number of rows in all groups."""
        return int(self.counts.sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was left out."""
        return left_out(self.n_missing, [one.name for one in self.factors])

    @property
    def frame(self) -> pd.DataFrame:
        """Return the counts of one or two factors as a table."""
        if len(self.factors) == 1:
            return pd.DataFrame(
                {"count": self.counts.astype(np.int64)}, index=self.factors[0].index
            )
        index, columns = (one.index for one in self.factors)
        return pd.DataFrame(self.counts.astype(np.int64), index=index, columns=columns)


def read_cells(
    counts: Ints, schema: Schema | PublicSchema, variables: Sequence[str], n_rows: int
) -> Cells:
    """Return the opened :func:`cell_totals`, refusing those that cannot be. Every row is in one of
    them (weights count for the class).
    """
    found = tuple(factor(schema, variable) for variable in variables)
    total, weighted = int(counts.sum()), any(one.position == -1 for one in found)
    refuse_impossible(
        min(counts.flat) >= 0 and (weighted or total == n_rows),
        f"the counts add up to {total:,} over {n_rows:,} rows",
    )
    present = counts[tuple(slice(0, len(one.labels)) for one in found)]
    return Cells(found, present, total - int(present.sum()))


def left_out(n_missing: int, names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on rows that are in no group."""
    if not n_missing:
        return ()
    row = "row was" if n_missing == 1 else "rows were"
    return (f"{n_missing:,} {row} left out because {' or '.join(dict.fromkeys(names))} is missing",)


def without_empty(cells: Cells, least: int = 2) -> tuple[Cells, tuple[str, ...]]:
    """Return the cells without groups that have no rows, as R drops unused levels; refuses factors
    with fewer than ``least`` left.
    """
    counts, factors, notes = cells.counts, [], []
    for axis, one in enumerate(cells.factors):
        sums = counts.sum(axis=tuple(a for a in range(counts.ndim) if a != axis))
        kept = [k for k, rows in enumerate(np.atleast_1d(sums)) if rows]
        if len(kept) < least:
            raise DataError(
                f"{one.name!r} has rows in {len(kept)} of its {len(one.labels)} groups, and "
                f"{least} are needed",
                code="too-few-groups",
            )
        if len(kept) < len(one.labels):
            gone = [str(one.labels[k]) for k in range(len(one.labels)) if k not in kept]
            notes.append(f"groups of {one.name} without rows were dropped: {', '.join(gone)}")
            counts = np.take(counts, kept, axis=axis)
        factors.append(
            Factor(one.position, one.name, tuple(one.labels[k] for k in kept), False, one.ordered)
        )
    return Cells(tuple(factors), counts, cells.n_missing), tuple(notes)


def choose_group(one: Factor, named: Any, what: str, default: int) -> int:
    """Return one of the groups by its id, ``bin2`` or ``class1``, as names become where a question
    is asked; ``default`` for None.
    """
    if named is None:
        return default % len(one.labels)
    bins = [
        f"{'class' if one.position == -1 else 'bin'}{number}" for number in range(len(one.labels))
    ]
    if named not in bins:
        listed = ", ".join(
            f"{name} ({label})" for name, label in zip(bins, one.labels, strict=True)
        )
        raise ParameterError(
            f"{what}={named!r}: {one.name!r} has the groups {listed}", code="unknown-group"
        )
    return bins.index(named)


def confidence_level(level: float) -> float:
    """Return the level of an interval as a float; refuse what is not between 0 and 1."""
    CONFIDENCE.check(level, "confidence")
    return float(level)


# -- numbers by group ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Powers:
    """Rows, and sums of the powers of a number, in every group: exact, in units of the number.

    Attributes
    ----------
    name : str
        The number.
    cells : Cells
        The rows of each group.
    sums : list of arrays of Fraction
        Sums of the first, second ... power.
    missing : array
        Rows of each group where the number is missing, which do not count.
    """

    name: str
    cells: Cells
    sums: tuple[NDArray[Any], ...]
    missing: NDArray[Any]

    @property
    def n(self) -> NDArray[Any]:
        """Return rows of each group, as Python integers."""
        return self.cells.counts

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was left out."""
        return (*self.cells.notes, *left_out(int(self.missing.sum()), [self.name]))

    def mean(self, place: Any) -> Fraction:
        """Return the mean of a group that has rows."""
        return Fraction(self.sums[0][place]) / int(self.n[place])

    def scatter(self, place: Any) -> Fraction:
        """Return the sum of squared distances from the mean of the group."""
        return Fraction(self.sums[1][place]) - Fraction(self.sums[0][place]) ** 2 / int(
            self.n[place]
        )

    def variance(self, place: Any) -> Fraction:
        """Return the variance of a group with at least two rows."""
        return self.scatter(place) / (int(self.n[place]) - 1)

    def describe(self) -> pd.DataFrame:
        """Return rows, mean and standard deviation of every group."""
        lines = []
        for place in np.ndindex(self.n.shape):
            n = int(self.n[place])
            mean = float(self.mean(place)) if n else np.nan
            lines.append(
                {
                    "n": n,
                    "mean": mean,
                    "sd": float(self.variance(place)) ** 0.5 if n > 1 else np.nan,
                }
            )
        axes = [one.index for one in self.cells.factors]
        index = (
            axes[0]
            if len(axes) == 1
            else pd.MultiIndex.from_product(axes)
            if axes
            else pd.Index([self.name])
        )
        return pd.DataFrame(lines, index=index)


def number_position(schema: Schema | PublicSchema, variable: str) -> int:
    """Return where a variable that is kept as a number stands; -1 for a target that is one."""
    public = schema.public()
    where = position(public, variable)
    if where == -1 and public.target_number is None:
        raise SchemaError(
            "the class is no number: a variable that is kept as one is needed here",
            code="class-not-number",
        )
    number_column(public, where, gaps=True)  # refuses what is none
    return where


def power_totals(
    schema: PublicSchema, number: str, by: Sequence[str], n_powers: int = 2, fold: int | None = None
) -> Arrays:
    """Return what :func:`read_powers` reads: the rows of every group, and in each the sums of the
    powers of a number.
    """
    where = number_position(schema, number)
    y = number_column(schema, where, gaps=True)
    powers = [y, y * y][:n_powers]
    if n_powers > 2:
        powers += [y * powers[1], powers[1] * powers[1]][: n_powers - 2]
    present = complete_rows(schema, [where])
    if not by:
        found: dict[str, Any] = {"sums": [power.total() for power in powers]}
        return found if present is None else {**found, "present": present.total()}
    inside = groups(schema, by, fold, present=True)
    found = {
        "rows": cell_totals(schema, by, fold),
        "sums": np.stack([totals_of(inside * power) for power in powers]),
    }
    return found if present is None else {**found, "present": totals_of(inside * present)}


def power_shapes(schema: PublicSchema, number: str, by: Sequence[str], n_powers: int = 2) -> Shapes:
    """Return the shapes of :func:`power_totals`."""
    inside = cell_shape(schema, by, present=True)
    rows = {"rows": cell_shape(schema, by)} if by else {}
    present = {"present": inside} if has_gaps(schema, number_position(schema, number)) else {}
    return {**rows, "sums": (n_powers, *inside), **present}


def read_powers(
    totals: Totals, schema: Schema | PublicSchema, number: str, by: Sequence[str], n_rows: int
) -> Powers:
    """Return the opened totals, refusing those that cannot be."""
    where = number_position(schema, number)
    unit, name = scale(schema, where), variable_name(schema, where)
    cells = (
        read_cells(totals["rows"], schema, by, n_rows)
        if by
        else Cells((), np.array(n_rows, dtype=object), 0)
    )
    missing = np.zeros(cells.counts.shape, dtype=object)
    if "present" in totals:
        missing = np.asarray(cells.counts - totals["present"], dtype=object)
        refuse_impossible(
            min(missing.flat) >= 0 <= min(totals["present"].flat),
            "more numbers than rows would be there",
        )
        cells = Cells(cells.factors, np.asarray(totals["present"], dtype=object), cells.n_missing)
    sums = tuple(
        np.array([Fraction(int(x), unit**power) for x in found.flat], dtype=object).reshape(
            found.shape
        )
        for power, found in enumerate(
            (np.asarray(part, dtype=object) for part in totals["sums"]), start=1
        )
    )
    made = Powers(name, cells, sums, missing)
    for place in np.ndindex(cells.counts.shape):
        empty = not cells.counts[place]
        good = not any(part[place] for part in sums) if empty else made.scatter(place) >= 0
        refuse_impossible(good, "a variance would be negative")
    return made


# -- questions about cells -------------------------------------------------------------------------


class Counted(Question):
    """A question about the rows of every combination of groups of some variables."""

    _apart: ClassVar[str] = "the variables have to be different ones"

    @abstractmethod
    def _list_variables(self) -> tuple[str, ...]:
        """Return the variables, in the order of the axes."""

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, and a variable beside itself."""
        positions = [factor_position(schema, variable) for variable in self._list_variables()]
        if len(set(positions)) < len(positions):
            raise SchemaError(f"{self.describe(schema)}: {self._apart}", code="same-variable-twice")

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every cell."""
        return {"cells": cell_totals(schema, self._list_variables(), fold)}

    def shapes(self, schema: PublicSchema) -> Shapes:
        return {"cells": cell_shape(schema, self._list_variables())}

    def _cells(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> Cells:
        return read_cells(totals["cells"], schema, self._list_variables(), n_rows)
