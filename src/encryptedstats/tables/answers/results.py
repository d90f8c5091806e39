"""What statistics are read as, and what models show of themselves: results print as a statistician
expects, and can be kept.

A result is a DataFrame or a dict as well. The one idea: it is made from opened totals, so a file of
it holds these, the question and the schema, and reads them again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import ArgumentError
from encryptedstats.tables.questions.question import ReadResult
from encryptedstats.views import FigureView, TableView, View, as_json, frame_text, render_html


@dataclass(frozen=True, kw_only=True)
class Result(ReadResult):
    """What a statistic came to. A subclass is a frozen dataclass that adds its numbers, by the
    names scipy and statsmodels have.

    It says what its main table is (:meth:`to_frame`), where that is not a line for each number, and
    may draw it (:meth:`plot`). ``print`` gives :meth:`summary`.

    Parameters
    ----------
    title : str
        What it is, in one line.
    n_rows : int
        Rows that it was made from, without those that were left out; each as often as its weight
        says.
    notes : tuple of str
        What was left out, and what was assumed.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Test(Result):
    ...     statistic: float
    ...     df: int
    ...     pvalue: float
    >>> Test(title="A test", n_rows=40, notes=("equal variances",), statistic=2.5, df=38, pvalue=0.0169)
    A test
    <BLANKLINE>
                value
    statistic     2.5
    df             38
    pvalue     0.0169
    <BLANKLINE>
    40 rows
    equal variances
    """

    title: str
    n_rows: int
    notes: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A dataclass would write its own of these, which its fields (tables, arrays) cannot do.
        for name in ("__repr__", "__eq__", "__hash__"):
            if name not in vars(cls):
                setattr(cls, name, getattr(Result, name))

    # -- showing
    # --------------------------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """The main table: by default a line for each number."""
        own = {name: value for name, value in self._numbers().items() if np.ndim(value) == 0}
        return pd.DataFrame({"value": pd.Series(own, dtype=object)})

    def body(self) -> str:
        """What the summary shows below its title: by default the main table."""
        frame = self.to_frame()
        return frame_text(frame)

    def summary(self) -> str:
        """The result as text, for people."""
        return "\n".join([self.title, "", self.body(), "", *self._remarks()])

    def _remarks(self) -> list[str]:
        return [
            f"{self.n_rows:,} row{'' if self.n_rows == 1 else 's'}",
            *self._dropped(),
            *self.notes,
        ]

    def _dropped(self) -> list[str]:
        """Rows that the schema leaves out of every table, because values are missing."""
        return [] if self.source is None else list(dropped_rows(self.source.n_dropped))

    def plot(self, ax: Any = None) -> Any:
        """Draw it on a matplotlib axes, where it has something to show."""
        raise NotImplementedError(f"{type(self).__name__} has no plot: print it, or see to_frame()")

    def __repr__(self) -> str:
        return self.summary()

    def view(self) -> View:
        """Return what is shown of it: facts, tables and figures."""
        numbers = self._numbers()
        facts = {name: one for name, one in numbers.items() if np.ndim(one) == 0}
        frames = {name: one for name, one in numbers.items() if isinstance(one, pd.DataFrame)}
        main = self.to_frame()
        tables = [TableView("result", main)] if list(main.columns) != ["value"] else []
        tables += [TableView(name, one) for name, one in frames.items() if one is not main]
        drawn = type(self).plot is not Result.plot
        figures = (FigureView("plot", self.plot),) if drawn else ()
        return View(self.title, facts, tuple(tables), figures, tuple(self._remarks()))

    def _repr_html_(self) -> str:
        return render_html(self.view())

    # -- as data
    # --------------------------------------------------------------------------------------------

    def _numbers(self) -> dict[str, Any]:
        """The fields of the subclass."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in _COMMON
        }

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON knows it: no value is None, infinite ones are text, and a table has its
        index, columns and values.
        """
        return {field.name: as_json(getattr(self, field.name)) for field in fields(self)}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return json.dumps(self.to_dict()) == json.dumps(other.to_dict())

    def __hash__(self) -> int:
        return hash((type(self), self.title, self.n_rows))

    # -- files
    # --------------------------------------------------------------------------------------------

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write it to a path or fsspec URL; ``es.load(url)`` reads it again.

        It is not encrypted: the totals are inside, and the names of the schema it was opened with.
        A local file is readable to its user only.
        """
        if self.source is None:
            raise ArgumentError(
                "only what was read from a table, or opened by its owner, can be stored: this was "
                "made by hand",
                code="made-by-hand",
            )
        self.source.save(url, overwrite=overwrite)


@dataclass(frozen=True, kw_only=True)
class ModelSummary(Result):
    """What a model has learned.

    Attributes
    ----------
    table : DataFrame
        A line for each variable, bin or predictor, as suits the model.
    class_counts : dict
        The rows of each class; empty of a model without classes.
    """

    table: pd.DataFrame
    class_counts: Mapping[Any, int]

    def to_frame(self) -> pd.DataFrame:
        """What was learned."""
        return self.table

    def body(self) -> str:
        """The classes, and what was learned."""
        classes = ", ".join(f"{label} {count:,}" for label, count in self.class_counts.items())
        return "\n\n".join([*([f"classes: {classes}"] if classes else []), frame_text(self.table)])


def dropped_rows(n: int) -> tuple[str, ...]:
    """The note on rows that the schema left out of a table; none where none was.

    >>> dropped_rows(1), dropped_rows(0)
    (('1 row with missing values was left out of the table',), ())
    """
    return (
        (
            f"{n:,} row{'' if n == 1 else 's'} with missing values {'was' if n == 1 else 'were'} "
            "left out of the table",
        )
        if n
        else ()
    )


_COMMON: Final = frozenset(field.name for field in fields(Result))
