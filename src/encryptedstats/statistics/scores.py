"""How well a score orders rows: ROC curves of an outcome, and the concordance of a time.

Imports factors, grids and risk sets. Both count pairs of rows from cross tables, so ties are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from encryptedstats.errors import DataError, SchemaError
from encryptedstats.metrics import auc, auc_interval, delong_variance, roc_points
from encryptedstats.statistics._distributions import normal_quantile
from encryptedstats.statistics.contingency import two_groups
from encryptedstats.statistics.factors import Counted, Factor, choose_group, factor
from encryptedstats.statistics.grids import Counts, check_grid, grid_cells, grid_totals, read_grid
from encryptedstats.statistics.results import TestResult
from encryptedstats.statistics.survival import (
    check_time,
    event_number,
    is_kept_number,
    outcome_note,
    times_of,
)
from encryptedstats.tables.questions.constraints import CONFIDENCE, Constraints
from encryptedstats.tables.questions.question import Arrays, Columns, Shapes, Totals
from encryptedstats.tables.schema.names import CLASS
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema


def check_score(one: Factor) -> None:
    """Refuse a score whose bins have no order."""
    if not one.ordered and len(one.labels) > 2:
        raise SchemaError(
            f"{one.name!r} has no order among its bins: a score is continuous or ordinal",
            code="no-order",
        )


@dataclass(frozen=True)
class _Scored:
    """The rows of every value of a score with the event and without it."""

    name: str
    labels: tuple[Any, ...]
    events: Counts
    others: Counts
    n_rows: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ROC(Counted):
    """The ROC curve of a score and the area under it.

    Parameters
    ----------
    score : str
        A variable with ordered bins, or a number of at most 1,024 values, stored as a grid: higher
        ones speak for the event.
    target : str
        A variable of two groups, or the class.
    event : level, optional
        The last group by default; all others count as none.
    confidence : float
        Of DeLong's interval.

    References
    ----------
    DeLong, DeLong and Clarke-Pearson (1988).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"score": [1, 3, 2, 4, 5, 6], "ill": [0, 0, 0, 1, 0, 1]})
    >>> schema = es.Schema.infer(frame, target="ill").with_kind("score", "number", digits=0)
    >>> schema.table(frame).ask(es.ROC("score")).estimate
    0.875
    """

    title: ClassVar[str] = "ROC curve"
    of_variables: ClassVar[tuple[str, ...]] = ("score", "target")
    of_levels: ClassVar[Mapping[str, str]] = {"event": "target"}

    score: str
    target: str = CLASS
    event: Any = None
    confidence: float = 0.95
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}

    def _list_variables(self) -> tuple[str, ...]:
        return self.score, self.target

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse a score without order."""
        if is_kept_number(schema, self.score):
            check_grid(schema, self.score, self.target)
        else:
            super().check_schema(schema)
            score = factor(schema, self.score)
            if not score.ordered:
                raise SchemaError(
                    f"{self.score!r} has no order among its bins: a score is continuous or ordinal",
                    code="no-order",
                )
        two_groups(factor(schema, self.target), self.event)

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every value of the score and group."""
        if is_kept_number(schema, self.score):
            return {"values": grid_totals(schema, self.score, self.target, fold)}
        return super().totals(schema, columns, fold)

    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shape of the totals."""
        if is_kept_number(schema, self.score):
            return {"values": grid_cells(schema, self.score, self.target)}
        return super().shapes(schema)

    def _count_scores(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> _Scored:
        outcome = factor(schema, self.target)
        event = choose_group(outcome, self.event, "event", -1)
        if "values" in totals:
            found = read_grid(totals["values"], schema, self.score, self.target, n_rows)
            name, labels, counts = found.name, tuple(found.values.tolist()), found.counts
            n, notes = found.n, (*found.notes, "rows of one value are ties, and count half")
        else:
            cells = self._cells(totals, schema, n_rows)
            name, labels = cells.factors[0].name, cells.factors[0].labels
            counts, n = cells.counts.astype(np.int64), cells.n
            notes = (*cells.notes, "rows of one bin are ties, and count half")
        events = counts[:, event]
        return _Scored(name, labels, events, counts.sum(axis=1) - events, n, notes)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the curve, from the rows of each value."""
        outcome = factor(schema, self.target)
        event = choose_group(outcome, self.event, "event", -1)
        found = self._count_scores(totals, schema, n_rows)
        events, others = found.events, found.others
        if not events.sum() or not others.sum():
            raise DataError(
                f"all rows of {outcome.name!r} are in one group: there is no curve",
                code="constant-outcome",
            )
        levels = np.arange(len(found.labels))
        scores = np.concatenate([np.repeat(levels, events), np.repeat(levels, others)]).astype(
            float
        )
        positive = np.arange(len(scores)) < events.sum()
        ones = np.ones(len(scores))
        false, true = roc_points(positive, scores, ones)
        seen = np.flatnonzero(events + others)[::-1]  # values without rows are no points
        curve = pd.DataFrame(
            {"fpr": false, "tpr": true},
            index=pd.Index(["none", *(found.labels[k] for k in seen)], name=f"{found.name} from"),
        )
        low, high = auc_interval(positive, scores, confidence=self.confidence)
        return TestResult(
            title=f"ROC curve: {outcome.name} = {outcome.labels[event]} by {found.name}",
            n_rows=found.n_rows,
            notes=found.notes,
            estimate=auc(positive, scores),
            std_error=float(np.sqrt(delong_variance(positive, scores, ones))),
            low=low,
            high=high,
            confidence=self.confidence,
            term="AUC",
            table=curve,
            picture="plot_roc_points",
        )


@dataclass(frozen=True)
class Concordance(Counted):
    """Harrell's C: how often the row with the higher score has the event earlier.

    Two rows are comparable where the one with the event was followed for less long than the other,
    or as long as a censored one. Equal scores count one half. The standard error is that of the
    infinitesimal jackknife, as of R's ``concordance(..., reverse=TRUE)``.

    Parameters
    ----------
    time : str
        A grid of times, or intervals.
    score : str
        A variable with ordered bins; 32 by 32 bins of time and score are 2,048 totals.
    event : str
        The class, or a variable with bins.
    event_level : level, optional
        The second of two by default.
    confidence : float

    References
    ----------
    Harrell, Lee and Mark (1996). Therneau and Watson (2017).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame(
    ...     {"week": [1, 2, 3, 4, 5], "grade": [3, 2, 2, 1, 2], "died": [1, 1, 0, 1, 0]}
    ... )
    >>> kinds = {"week": "ordinal", "grade": "ordinal"}
    >>> table = es.Schema.infer(frame, target="died", kinds=kinds).table(frame)
    >>> round(table.ask(es.Concordance("week", "grade")).estimate, 4)
    0.75
    """

    title: ClassVar[str] = "Concordance"
    of_variables: ClassVar[tuple[str, ...]] = ("time", "score", "event")
    of_levels: ClassVar[Mapping[str, str]] = {"event_level": "event"}
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE}
    _apart: ClassVar[str] = "time, score and event have to be different variables"

    time: str
    score: str
    event: str = CLASS
    event_level: Any = None
    confidence: float = 0.95

    def _list_variables(self) -> tuple[str, ...]:
        return self.time, self.event, self.score

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse what has no bins, and a score without order."""
        check_time(schema, self.time)
        super().check_schema(schema)
        event_number(schema, self.event, self.event_level)
        check_score(factor(schema, self.score))

    def check_names(self, schema: Schema) -> None:
        """Refuse levels of the time that are no numbers."""
        times_of(schema, self.time)

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TestResult:
        """Return the coefficient and its interval."""
        cells = self._cells(totals, schema, n_rows)
        level = event_number(schema, self.event, self.event_level)
        _, outcome, score = cells.factors
        counts = cells.counts.astype(np.int64)
        events = counts[:, level]
        pairs = count_comparable(events, counts.sum(axis=1) - events)
        concordant, tied, discordant = pairs.sums
        if not concordant + tied + discordant:
            raise DataError(
                "no two rows are comparable: after every event nobody is followed longer",
                code="no-overlap-at-risk",
            )
        estimate, error = pairs.estimate()
        reach = normal_quantile(self.confidence) * error
        spread = counts.sum(axis=(0, 1))
        return TestResult(
            title=f"Concordance of {score.name} with {cells.factors[0].name}",
            n_rows=cells.n,
            notes=(
                *cells.notes,
                *times_of(schema, self.time).notes,
                outcome_note(outcome.name, outcome.labels, level, counts.sum(axis=(0, 2))),
                "above 0.5 where rows with higher scores have the event earlier",
            ),
            estimate=estimate,
            std_error=error,
            low=max(0.0, estimate - reach),
            high=min(1.0, estimate + reach),
            confidence=self.confidence,
            term="C",
            table=pd.DataFrame({"rows": spread, "events": events.sum(axis=0)}, index=score.index),
            details={
                "concordant": int(concordant),
                "tied": int(tied),
                "discordant": int(discordant),
            },
        )


@dataclass(frozen=True)
class ComparablePairs:
    """For every time, status and score: its rows, and the pairs that one of them is in.

    Attributes
    ----------
    rows, concordant, tied, discordant : array
    """

    rows: Counts
    concordant: Counts
    tied: Counts
    discordant: Counts

    @property
    def sums(self) -> tuple[int, int, int]:
        """Return how many pairs are concordant, tied and discordant; each has two rows."""
        found = ((self.rows * one).sum() // 2 for one in self._kinds)
        first, second, third = (int(one) for one in found)
        return first, second, third

    @property
    def _kinds(self) -> tuple[Counts, Counts, Counts]:
        return self.concordant, self.tied, self.discordant

    def estimate(self) -> tuple[float, float]:
        """Return C and its standard error, from the influence of every row."""
        concordant, tied, discordant = self.sums
        n_pairs = concordant + tied + discordant
        found = (concordant + tied / 2) / n_pairs
        own = self.concordant + self.tied / 2 - found * sum(self._kinds)
        return found, float(np.sqrt((self.rows * own**2).sum())) / n_pairs


def count_comparable(events: Counts, censored: Counts) -> ComparablePairs:
    """Return the comparable pairs of rows, by time and score.

    Parameters
    ----------
    events, censored : array of shape (times, scores)
        Rows with the event and without it.
    """
    later = np.triu(np.ones((len(events), len(events)), dtype=np.int64), 1)  # [t, s]: s after t
    until = later + np.eye(len(events), dtype=np.int64)  # censored rows outlive events at a time
    followed = later @ events + until @ censored  # the longer-lived partners of an event
    before = np.stack([later.T @ events, until.T @ events])  # the partners that died earlier
    concordant, tied, discordant = _sum_above(before), before.copy(), _sum_below(before)
    concordant[0] += _sum_below(followed)
    tied[0] += followed
    discordant[0] += _sum_above(followed)
    return ComparablePairs(np.stack([events, censored]), concordant, tied, discordant)


def _sum_below(counts: Counts) -> Counts:
    """Return the rows with a lower score."""
    found: Counts = counts.cumsum(axis=-1) - counts
    return found


def _sum_above(counts: Counts) -> Counts:
    """Return the rows with a higher score."""
    found: Counts = counts.sum(axis=-1, keepdims=True) - counts.cumsum(axis=-1)
    return found
