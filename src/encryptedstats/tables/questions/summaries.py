"""Cheap statistics of clear and encrypted tables: counts, cross tables and moments.

Each is a question, and both kinds of table answer it. Answers of encrypted tables stay encrypted:
``owner.open`` gives the same DataFrame that the clear table, or pandas, would. Variables are
positions here, -1 is the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd

from encryptedstats.circuits.expressions import Expression
from encryptedstats.errors import SchemaError
from encryptedstats.tables.questions.constraints import (
    AnyOf,
    Constraints,
    Integer,
    ListOf,
    VariableName,
)
from encryptedstats.tables.questions.question import (
    Arrays,
    Columns,
    Question,
    Shapes,
    Totals,
    bin_columns,
    check_complete_rows,
    class_columns,
    complete_rows,
    has_gaps,
    number_column,
    product_of,
    question_class,
    refuse_impossible,
)
from encryptedstats.tables.schema.names import CLASS, class_or_variable, target_id
from encryptedstats.tables.schema.variables import KEEP_NUMBERS, PublicSchema

if TYPE_CHECKING:
    from typing_extensions import Self

    from encryptedstats.tables.schema.schema import Schema


_COMPLETE: Final = "complete"


@dataclass(frozen=True)
class Statistic(Question):
    """A question about some variables."""

    variables: tuple[int, ...]
    constraints: ClassVar[Constraints] = {
        "variables": ListOf(item=AnyOf(parts=(VariableName(), Integer(low=-1))))
    }

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(self.variables))

    def in_ids(self, schema: Schema | PublicSchema) -> Self:
        found = tuple(
            j if isinstance(j, int) else class_or_variable(j, schema) for j in self.variables
        )
        return self if found == self.variables else type(self)(found)

    def names(self, schema: Schema | PublicSchema | None = None) -> list[str]:
        """Return the variables as the owner calls them, or as a worker has to."""
        return [variable_name(schema, j) for j in self.variables]

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse variables that are not there."""
        known = all(type(j) is int and -1 <= j < len(schema.variables) for j in self.variables)
        if not known or not self.variables:
            raise SchemaError(
                f"{self.name} of {list(self.variables)}: the schema has no such variables",
                code="unknown-variable",
            )


class _Cells(Statistic):
    """Number of rows in each bin, or pair of bins."""

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse numbers, which have no bins."""
        super().check_schema(schema)
        if not 1 <= len(self.variables) <= 2:
            raise SchemaError(
                f"{self.name} are of one or two variables, not of {len(self.variables)}",
                code="wrong-number-of-variables",
            )
        if -1 in self.variables and not schema.n_classes:
            raise SchemaError("the schema has no classes to count by", code="no-classes")
        numbers = [
            schema.variables[j].id
            for j in self.variables
            if j != -1 and not schema.variables[j].n_bins
        ]
        if numbers:
            raise SchemaError(
                f"variable {numbers[0]!r} is a number and has no bins to count: see moments",
                code="number-without-bins",
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        rows, *others = [indicators(schema, j, fold) for j in self.variables]
        if not others:
            return {"cells": [x.total() for x in rows]}
        return {"cells": [[(x * y).total() for y in others[0]] for x in rows]}

    def shapes(self, schema: PublicSchema) -> Shapes:
        return {
            "cells": tuple(
                schema.n_classes if j == -1 else schema.variables[j].n_bins for j in self.variables
            )
        }

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> pd.DataFrame:
        """Label the cells as far as the schema knows labels.

        Every row is in exactly one; weights count for the class.
        """
        cells = totals["cells"].astype(np.int64)
        good = cells.min() >= 0 and (-1 in self.variables or cells.sum() == n_rows)
        refuse_impossible(good, f"the counts add up to {cells.sum():,} over {n_rows:,} rows")
        index, *columns = [
            pd.Index(labels(schema, j), name=variable_name(schema, j)) for j in self.variables
        ]
        if not columns:
            return pd.DataFrame({"count": cells}, index=index)
        return pd.DataFrame(cells, index=index, columns=columns[0])


class Counts(_Cells):
    """Number of rows in each bin of a variable; by class, or by another variable."""

    name: ClassVar[str] = "counts"

    def describe(self, schema: Schema | PublicSchema | None = None) -> str:
        return f"counts of {' by '.join(self.names(schema))}"


class CrossTable(_Cells):
    """Number of rows in each pair of bins of two variables."""

    name: ClassVar[str] = "crosstab"

    def check_schema(self, schema: PublicSchema) -> None:
        super().check_schema(schema)
        if len(self.variables) != 2:
            raise SchemaError("a cross table is of two variables", code="not-two-variables")

    def describe(self, schema: Schema | PublicSchema | None = None) -> str:
        return f"cross table of {' and '.join(self.names(schema))}"


class Moments(Statistic):
    """Sums, means, variances and covariances of numbers, over rows where none of them
    is missing.
    """

    name: ClassVar[str] = "moments"

    def describe(self, schema: Schema | PublicSchema | None = None) -> str:
        return f"moments of {', '.join(self.names(schema))}"

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what is no number."""
        super().check_schema(schema)
        if len(set(self.variables)) != len(self.variables):
            raise SchemaError(
                "moments need one or several different variables", code="duplicate-or-no-variables"
            )
        for j in self.variables:
            if j == -1 and schema.target_number is None:
                raise SchemaError("the class has no moments", code="class-without-moments")
            known = schema.at(j)
            if known.kind != "number":
                raise SchemaError(
                    f"variable {known.id!r} is {known.kind}: moments are for numbers, ",
                    KEEP_NUMBERS,
                )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Write sums, sums of products above the diagonal, and how many rows are complete if not
        all need be.
        """
        complete = complete_rows(schema, self.variables)
        also = [] if complete is None else [complete]
        numbers = [number_column(schema, j, gaps=True) for j in self.variables]
        pairs = combinations_with_replacement(numbers, 2)
        found = {
            "sums": [product_of([x, *also]).total() for x in numbers],
            "products": [product_of([a, b, *also]).total() for a, b in pairs],
        }
        return {**({_COMPLETE: [complete.total()]} if complete is not None else {}), **found}

    def shapes(self, schema: PublicSchema) -> Shapes:
        k, gaps = len(self.variables), any(has_gaps(schema, j) for j in self.variables)
        return {
            **({_COMPLETE: (1,)} if gaps else {}),
            "sums": (k,),
            "products": (k * (k + 1) // 2,),
        }

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> pd.DataFrame:
        """Return a column per variable, in its own units as far as the schema knows them; ``count``
        is of complete rows.
        """
        names = self.names(schema)
        n_rows = complete_count(totals, n_rows, names)
        sums = totals["sums"]
        scales = [scale(schema, j) for j in self.variables]
        frame = pd.DataFrame(
            index=["count", "sum", "mean", "var", "std", *(f"cov({name})" for name in names)],
            columns=names,
        )
        for j, name in enumerate(names):
            frame.loc["count", name] = n_rows
            frame.loc["sum", name] = sums[j] / scales[j]
            frame.loc["mean", name] = sums[j] / (n_rows * scales[j])
        pairs = combinations_with_replacement(range(len(names)), 2)
        for (a, b), product in zip(pairs, totals["products"], strict=True):
            # n sum xy - sum x sum y is an exact integer; one division at the end.
            scatter = n_rows * product - sums[a] * sums[b]
            refuse_impossible(a != b or scatter >= 0, "a variance would be negative")
            covariance = (
                scatter / (n_rows * (n_rows - 1) * scales[a] * scales[b]) if n_rows > 1 else np.nan
            )
            frame.loc[f"cov({names[a]})", names[b]] = frame.loc[f"cov({names[b]})", names[a]] = (
                covariance
            )
            if a == b:
                frame.loc["var", names[a]] = covariance
                frame.loc["std", names[a]] = np.sqrt(covariance)
        return frame.astype(float)


def complete_count(totals: Totals, n_rows: int, names: Sequence[str] = ()) -> int:
    """Return how many rows the totals of :class:`Moments` count; refuse impossible counts and 0."""
    n = int(totals[_COMPLETE][0]) if _COMPLETE in totals else n_rows
    refuse_impossible(n <= n_rows, f"{n:,} rows are counted, of {n_rows:,}")
    check_complete_rows(n, n_rows, names)
    return n


def indicators(schema: PublicSchema, variable: int, fold: int | None = None) -> list[Expression]:
    """Return the indicators of the bins of a variable; at the position -1 those of the classes (of
    a fold).
    """
    return class_columns(schema, fold) if variable == -1 else bin_columns(schema, variable)


def labels(schema: Schema | PublicSchema, variable: int) -> list[Any]:
    """Return the bins of a variable as the owner calls them, or by number; those of the class, at
    the position -1, are the classes.
    """
    if isinstance(schema, PublicSchema):
        return list(
            range(schema.n_classes if variable == -1 else schema.variables[variable].n_bins)
        )
    return list(schema.classes if variable == -1 else schema.variables[variable].labels)


def variable_name(schema: Schema | PublicSchema | None, variable: int) -> str:
    """Return a variable as the owner calls it, or as a worker has to; the class has the position
    -1.
    """
    if schema is None or isinstance(schema, PublicSchema):
        return (
            target_id(schema)
            if variable == -1 and schema is not None
            else CLASS
            if variable == -1
            else f"v{variable}"
        )
    return str(schema.target) if variable == -1 else schema.variables[variable].name


def scale(schema: Schema | PublicSchema, variable: int) -> int:
    """Return what the fixed-point integers of a number were multiplied by; 1 for a worker, who sees
    integers.

    The target has the position -1.
    """
    if isinstance(schema, PublicSchema):
        return 1
    number = schema.target_number if variable == -1 else schema.variables[variable]
    digits = 0 if number is None else number.digits or 0
    return int(10**digits)


class Asked(ABC):
    """Questions that clear and encrypted tables answer by methods."""

    @abstractmethod
    def _position(self, variable: str | int) -> int:
        """Return where a variable stands; -1 for the class."""

    @abstractmethod
    def ask(self, question: Question, **options: Any) -> Any:
        """Return the answer to a question."""

    def counts(self, variable: str | int, by: str | int | None = None, **options: Any) -> Any:
        """Count rows in each bin of a variable; ``by="class"`` (or the target's name), or by
        another variable.

        Counts by class are weighted where the table has weights, and others are refused there.
        Options of encrypted tables: those of ``evaluate``.
        """
        asked = (variable,) if by is None else (variable, by)
        return self.ask(Counts(tuple(map(self._position, asked))), **options)

    def crosstab(self, first: str | int, second: str | int, **options: Any) -> Any:
        """Count rows in each pair of bins of two variables."""
        return self.ask(CrossTable((self._position(first), self._position(second))), **options)

    def moments(self, variables: Sequence[str | int], **options: Any) -> Any:
        """Count, sum, mean, variance, standard deviation and covariances of variables kept as
        numbers.
        """
        positions = tuple(map(self._position, variables))
        if not positions or len(set(positions)) != len(positions):
            raise SchemaError(
                "moments need one or several different variables", code="duplicate-or-no-variables"
            )
        return self.ask(Moments(positions), **options)

    def describe(
        self, variables: Sequence[str] | None = None, by: str | None = None, **options: Any
    ) -> Any:
        """Describe rows, missing values, means and spreads of numbers, quantiles and counts of
        bins; by group, if wanted.

        ``moments=4`` adds skewness and kurtosis, ``quantiles=`` says which ones; other options are
        those of :meth:`ask`. See ``es.Describe``, which this asks.
        """
        own = {name: options.pop(name) for name in ("moments", "quantiles") if name in options}
        question: Any = question_class(
            "Describe"
        )  # statistics lie above tables, and are found by name
        return self.ask(question(variables=variables, by=by, **own), **options)
