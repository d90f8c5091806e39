"""Results: what statistics are read as, and what models show of themselves.

A result is made from opened totals. A file of it holds these, the question and the schema, and
reads them again. What it shows is a view, which the renderers of ``views`` write as text, HTML,
JSON or CSV. All results name their numbers alike: see ``ESTIMATE_COLUMNS``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from encryptedstats.errors import ArgumentError
from encryptedstats.tables.questions.question import ReadResult
from encryptedstats.views import (
    ESTIMATE_COLUMNS,
    FigureView,
    TableView,
    View,
    as_json,
    is_missing,
    render_csv,
    render_html,
    render_json,
    render_text,
)


@dataclass(frozen=True, kw_only=True)
class Result(ReadResult):
    """What a statistic came to. A subclass is a frozen dataclass that adds its numbers.

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
    >>> notes = ("equal variances",)
    >>> Test(title="A test", n_rows=40, notes=notes, statistic=2.5, df=38, pvalue=0.0169)
    A test
    <BLANKLINE>
    statistic  2.5
    df         38
    pvalue     0.0169
    <BLANKLINE>
    40 rows
    equal variances
    """

    #: How the main table is called where it is shown.
    caption: ClassVar[str] = "result"

    title: str
    n_rows: int
    notes: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A dataclass would write its own of these, which its fields (tables, arrays) cannot do.
        for name in ("__repr__", "__eq__", "__hash__"):
            if name not in vars(cls):
                setattr(cls, name, getattr(Result, name))

    # -- as tables ---------------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """Return the main table: by default a line for each number."""
        return pd.DataFrame({"value": pd.Series(self._scalars(), dtype=object)})

    def tidy(self) -> pd.DataFrame:
        """Return a line for each term, with the columns that all results share.

        They are ``estimate``, ``std_error``, ``statistic``, ``df``, ``pvalue``, ``low`` and
        ``high``; NaN where a result has none of them. A result without estimates has no lines.
        """
        frame = self.to_frame()
        if not {"estimate", "statistic"} & set(frame.columns):
            frame = frame.iloc[:0]
        return as_terms(frame)

    def glance(self) -> pd.DataFrame:
        """Return one line with the rows and every single number."""
        return pd.DataFrame([{"n_rows": self.n_rows, **self._scalars()}])

    # -- showing -----------------------------------------------------------------------------------

    def view(self) -> View:
        """Return what is shown of it: facts, tables and figures."""
        main = self.to_frame()
        tables = [TableView(self.caption, main, "pvalue" in main)]
        if list(main.columns) == ["value"]:
            tables = []
        for name, value in self._numbers().items():
            parts = value if isinstance(value, Mapping) else {name: value}
            tables += [
                TableView(str(label), one)
                for label, one in parts.items()
                if isinstance(one, pd.DataFrame) and one is not main and len(one.columns)
            ]
        figures = (FigureView("plot", self.plot),) if self._is_drawn else ()
        return View(self.title, self._facts(), tuple(tables), figures, tuple(self._remarks()))

    def _facts(self) -> dict[str, Any]:
        return {name: one for name, one in self._scalars().items() if not is_missing(one)}

    @property
    def _is_drawn(self) -> bool:
        return type(self).plot is not Result.plot

    def summary(self) -> str:
        """Return the result as text."""
        return render_text(self.view())

    def _remarks(self) -> list[str]:
        return [
            f"{self.n_rows:,} row{'' if self.n_rows == 1 else 's'}",
            *self._note_dropped(),
            *self.notes,
        ]

    def _note_dropped(self) -> list[str]:
        return [] if self.source is None else list(note_dropped_rows(self.source.n_dropped))

    def plot(self, ax: Any = None) -> Any:
        """Draw it on a matplotlib axes, where it has something to show."""
        raise NotImplementedError(f"{type(self).__name__} has no plot: print it, or see to_frame()")

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return render_html(self.view())

    # -- as data -----------------------------------------------------------------------------------

    def _numbers(self) -> dict[str, Any]:
        """Return the fields of the subclass."""
        return {
            one.name: getattr(self, one.name) for one in fields(self) if one.name not in _COMMON
        }

    def _scalars(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self._numbers().items()
            if np.ndim(value) == 0 and not isinstance(value, Mapping)
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON knows it: no value is None, infinite ones are text, and a table
        has its index, columns and values.
        """
        return {one.name: as_json(getattr(self, one.name)) for one in fields(self)}

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write the main table as CSV, or return it where no path is given."""
        return _write_text(render_csv(self.view()), path)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write facts, tables and notes as JSON with all digits, or return it."""
        return _write_text(render_json(self.view()), path)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write a fragment of HTML, or return it."""
        return _write_text(render_html(self.view()), path)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return json.dumps(self.to_dict()) == json.dumps(other.to_dict())

    def __hash__(self) -> int:
        return hash((type(self), self.title, self.n_rows))

    # -- files -------------------------------------------------------------------------------------

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
class TableResult(Result):
    """A table, and perhaps further ones by name.

    ``estimates`` names the column that :meth:`tidy` gives as the estimate, and ``confidence`` is
    the level of its interval.
    """

    table: pd.DataFrame
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    estimates: str = "estimate"
    confidence: float = np.nan

    def to_frame(self) -> pd.DataFrame:
        """Return the table."""
        return self.table

    def tidy(self) -> pd.DataFrame:
        """Return the estimates of the table as terms."""
        if self.estimates not in self.table:
            return super().tidy()
        return as_terms(self.table.rename(columns={self.estimates: "estimate"}))

    def _scalars(self) -> dict[str, Any]:
        return {name: one for name, one in super()._scalars().items() if name != "estimates"}


@dataclass(frozen=True, kw_only=True)
class ModelSummary(TableResult):
    """What a model has learned.

    Attributes
    ----------
    table : DataFrame
        A line for each variable, bin or predictor, as suits the model.
    class_counts : dict
        The rows of each class; empty of a model without classes.
    """

    class_counts: Mapping[Any, int]

    def _facts(self) -> dict[str, Any]:
        return {"classes": self.class_counts} if self.class_counts else {}


def as_terms(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the columns that all tables of terms share, each a float."""
    found = frame.reindex(columns=list(ESTIMATE_COLUMNS)).astype(float)
    if isinstance(found.index, pd.MultiIndex):
        found.index = pd.Index([", ".join(map(str, one)) for one in found.index])
    return found.set_axis(found.index.map(str), axis=0).rename_axis("term")


def _write_text(text: str, path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return text
    Path(path).write_text(text, encoding="utf-8")
    return None


def note_dropped_rows(n: int) -> tuple[str, ...]:
    """Return the note on rows that the schema left out of a table, if any.

    >>> note_dropped_rows(1), note_dropped_rows(0)
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
