"""The results of tests and regressions, with the same names everywhere.

Imports results and views, and pictures only where one is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from encryptedstats.tables.answers.results import Result, as_terms
from encryptedstats.views import ESTIMATE_COLUMNS, TableView, View


@dataclass(frozen=True, kw_only=True)
class TestResult(Result):
    """A test, an estimate with its interval, or both.

    Numbers that a test does not have are NaN.

    Attributes
    ----------
    statistic, df, pvalue : float
        The test. ``df_resid`` are the second degrees of freedom of an F test.
    estimate, std_error, low, high, confidence : float
        What is estimated, with its interval and the level of that.
    term : str
        What the estimate is of: ``odds ratio``, ``difference in means``.
    table : DataFrame
        What was compared: groups, or the observed counts.
    others : DataFrame, optional
        Further terms, with the columns of :meth:`tidy`.
    tables : dict of DataFrame
        Further tables by name.
    details : dict
        Further numbers and texts by name.
    picture : str
        The function of ``statistics.plots`` that draws it.
    """

    __test__: ClassVar[bool] = False  # for pytest: it is no class of tests
    caption: ClassVar[str] = "table"

    statistic: float = np.nan
    df: float = np.nan
    df_resid: float = np.nan
    pvalue: float = np.nan
    estimate: float = np.nan
    std_error: float = np.nan
    low: float = np.nan
    high: float = np.nan
    confidence: float = np.nan
    term: str = "test"
    table: pd.DataFrame
    others: pd.DataFrame | None = None
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    picture: str = ""

    @classmethod
    def of_terms(cls, terms: pd.DataFrame, **said: Any) -> TestResult:
        """Return a result whose test is the first of some terms."""
        first = as_terms(terms).iloc[0]
        own: dict[str, Any] = {name: float(first[name]) for name in ESTIMATE_COLUMNS}
        others = terms.iloc[1:] if len(terms) > 1 else None
        return cls(**own, term=str(terms.index[0]), others=others, **said)

    def to_frame(self) -> pd.DataFrame:
        """Return what was compared."""
        return self.table

    def tidy(self) -> pd.DataFrame:
        """Return the test and further terms, a line for each."""
        own = {name: float(getattr(self, name)) for name in ESTIMATE_COLUMNS}
        first = as_terms(pd.DataFrame([own], index=[self.term]))
        return first if self.others is None else pd.concat([first, as_terms(self.others)])

    def _scalars(self) -> dict[str, Any]:
        single = {name: one for name, one in self.details.items() if np.ndim(one) == 0}
        hidden = ("picture", "others")
        own = {name: one for name, one in super()._scalars().items() if name not in hidden}
        return {**own, **single}

    def _facts(self) -> dict[str, Any]:
        inside = ("term", "df_resid", *ESTIMATE_COLUMNS)
        return {name: one for name, one in super()._facts().items() if name not in inside}

    def view(self) -> View:
        """Return the test before what was compared."""
        found = super().view()
        if "pvalue" in self.table:
            return found
        tables = [one for one in found.tables if one.caption != "others"]
        first = TableView("test", self.tidy(), marks=False)
        return View(found.title, found.facts, (first, *tables), found.figures, found.notes)

    @property
    def _is_drawn(self) -> bool:
        return bool(self.picture)

    def plot(self, ax: Any = None) -> Any:
        """Draw what was compared."""
        if not self.picture:
            return super().plot(ax)
        from encryptedstats.statistics import plots

        return getattr(plots, self.picture)(self, ax)


@dataclass(frozen=True, kw_only=True)
class Coefficients(Result):
    """A fitted model: its coefficients, a line for each, with intervals.

    Attributes
    ----------
    coefficients : DataFrame
        A line for each, with the columns of :meth:`tidy`.
    confidence : float
        The level of the intervals.
    """

    caption: ClassVar[str] = "coefficients"

    coefficients: pd.DataFrame
    confidence: float

    def to_frame(self) -> pd.DataFrame:
        """Return the coefficients."""
        return self.coefficients

    def plot(self, ax: Any = None) -> Any:
        """Draw the coefficients and their intervals, without the intercept."""
        from encryptedstats.statistics.plots import plot_coefficients

        return plot_coefficients(self.coefficients.drop(index="(Intercept)", errors="ignore"), ax)
