"""Standardised rates: events out of rows or person-time, as if all groups had the same strata.

Imports factors and the tails of distributions; the counts are those of a cross table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import DataError, ParameterError
from encryptedstats.statistics.contingency import two_groups
from encryptedstats.statistics.factors import (
    Counted,
    cell_shape,
    check_groups,
    choose_group,
    factor,
    groups,
    totals_of,
)
from encryptedstats.tables.answers.results import TableResult
from encryptedstats.tables.questions.constraints import CONFIDENCE, NUMBERS, Constraints
from encryptedstats.tables.questions.question import Arrays, Columns, Shapes, Totals, number_column
from encryptedstats.tables.questions.summaries import scale
from encryptedstats.tables.schema.names import CLASS, position
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StandardisedRate(Counted):
    """Rates of an event by group, standardised directly and indirectly to the same strata.

    The directly standardised rate weights the rates of a group's strata by a standard population.
    The standardised ratio (SMR) compares its events with those expected at the rates of all rows.

    Parameters
    ----------
    by, strata : str
        Variables with bins: the groups, and what is standardised for, such as age.
    target : str
        The class, or a variable with bins.
    event : level, optional
        The last group of the outcome by default.
    exposure : str, optional
        A number, the person-time that events are out of; rows count as 1 without it.
    standard : list of float, optional
        The size of each stratum in the standard population; that of all rows by default.
    confidence : float
        Of the intervals: by the gamma distribution, and exact Poisson limits for the ratio.

    References
    ----------
    Fay and Feuer (1997), as of R's ``epitools::ageadjust.direct``. Breslow and Day (1987).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"town": list("aaaabbbb"), "age": list("yyyoyooo"), "ill": [0, 1] * 4})
    >>> table = es.Schema.infer(frame, target="ill").table(frame)
    >>> table.ask(es.StandardisedRate("town", "age")).table["standardised"].round(4).tolist()
    [0.6667, 0.3333]
    """

    title: ClassVar[str] = "Standardised rates"
    of_variables: ClassVar[tuple[str, ...]] = ("by", "strata", "target", "exposure")
    of_levels: ClassVar[Mapping[str, str]] = {"event": "target"}
    constraints: ClassVar[Constraints] = {"confidence": CONFIDENCE, "standard": NUMBERS}

    by: str
    strata: str
    target: str = CLASS
    event: Any = None
    exposure: str | None = None
    standard: Any = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.standard is not None:
            object.__setattr__(self, "standard", tuple(self.standard))
        self.check_parameters()

    def _list_variables(self) -> tuple[str, ...]:
        return self.target, self.by, self.strata

    def check_schema(self, schema: PublicSchema) -> None:
        """Refuse factors of one group, and a standard of other strata."""
        super().check_schema(schema)
        check_groups(schema, self._list_variables())
        two_groups(factor(schema, self.target), self.event)
        if self.exposure is not None:
            number_column(schema, position(schema, self.exposure))
        strata = factor(schema, self.strata).labels
        if self.standard is not None and (
            len(self.standard) != len(strata)
            or min(self.standard) < 0
            or not sum(self.standard) > 0
        ):
            raise ParameterError(
                f"standard={list(self.standard)}: one size of at least 0 for each of the strata "
                f"{', '.join(map(str, strata))}",
                code="invalid-standard",
            )

    def totals(
        self, schema: PublicSchema, columns: Columns = None, fold: int | None = None
    ) -> Arrays:
        """Return the rows of every cell, and the exposure of every group and stratum."""
        found: dict[str, Any] = {**super().totals(schema, columns, fold)}
        if self.exposure is not None:
            inside = groups(schema, self._list_variables(), fold, present=True).sum(axis=0)
            number = number_column(schema, position(schema, self.exposure))
            found["exposure"] = totals_of(inside * number)
        return found

    def shapes(self, schema: PublicSchema) -> Shapes:
        """Return the shapes of the totals."""
        shape = cell_shape(schema, (self.by, self.strata), present=True)
        return {
            **super().shapes(schema),
            **({} if self.exposure is None else {"exposure": shape}),
        }

    def read(self, totals: Totals, schema: Schema | PublicSchema, n_rows: int) -> TableResult:
        """Return crude and standardised rates of every group."""
        cells = self._cells(totals, schema, n_rows)
        outcome, group, strata = cells.factors
        event = choose_group(outcome, self.event, "event", -1)
        events = cells.counts[event].astype(float)
        if self.exposure is None:
            exposed = cells.counts.sum(axis=0).astype(float)
        else:
            unit = scale(schema, position(schema.public(), self.exposure))
            exposed = np.asarray(totals["exposure"]).astype(float) / unit
        if (events[exposed <= 0] > 0).any() or (exposed < 0).any():
            raise DataError(
                "a cell has events and no exposure: its rate is infinite",
                code="events-without-exposure",
            )
        if not events.sum():
            raise DataError("no row has the event: all rates are 0", code="no-events")
        standard = exposed.sum(axis=0) if self.standard is None else np.array(self.standard)
        lines = [
            standardise(events[g], exposed[g], standard / standard.sum(), self.confidence)
            | standardised_ratio(
                events[g], exposed[g], events.sum(axis=0), exposed.sum(axis=0), self.confidence
            )
            for g in range(len(group.labels))
        ]
        table = pd.DataFrame(lines, index=group.index)
        empty = [str(one) for one, line in zip(group.labels, table["standardised"], strict=True)
                 if np.isnan(line)]  # fmt: skip
        return TableResult(
            title=f"Rates of {outcome.name} = {outcome.labels[event]} by {group.name}, "
            f"standardised for {strata.name}",
            n_rows=cells.n,
            notes=(
                *cells.notes,
                "standard population: "
                + ("all rows" if self.standard is None else "the given sizes of the strata"),
                *(
                    (
                        f"a stratum of the standard has no exposure in {', '.join(empty)}: its "
                        "rate "
                        "is not known",
                    )
                    if empty
                    else ()
                ),
            ),
            table=table,
            estimates="standardised",
            confidence=self.confidence,
        )


def standardise(
    events: Floats, exposed: Floats, weights: Floats, confidence: float
) -> dict[str, float]:
    """Return the crude and the directly standardised rate with the interval of Fay and Feuer."""
    from scipy.stats import gamma

    used = weights > 0
    crude = events.sum() / exposed.sum() if exposed.sum() else np.nan
    found = {"events": events.sum(), "exposed": exposed.sum(), "crude": crude}
    if (exposed[used] <= 0).any():
        return {**found, "standardised": np.nan, "low": np.nan, "high": np.nan}
    share = weights[used] / exposed[used]
    rate, variance = float(share @ events[used]), float(share**2 @ events[used])
    tail, largest = (1 - confidence) / 2, float(share.max())
    low = gamma.ppf(tail, rate**2 / variance, scale=variance / rate) if rate else 0.0
    above, spread = rate + largest, variance + largest**2
    high = gamma.isf(tail, above**2 / spread, scale=spread / above)
    return {**found, "standardised": rate, "low": float(low), "high": float(high)}


def standardised_ratio(
    events: Floats,
    exposed: Floats,
    all_events: Floats,
    all_exposed: Floats,
    confidence: float,
) -> dict[str, float]:
    """Return the events that are expected at the rates of all rows, and the ratio to them."""
    from scipy.stats import chi2

    rates = np.divide(all_events, all_exposed, out=np.zeros_like(all_events), where=all_exposed > 0)
    expected, n = float(rates @ exposed), float(events.sum())
    if not expected:
        return {"expected": expected, "smr": np.nan, "smr_low": np.nan, "smr_high": np.nan}
    tail = (1 - confidence) / 2
    low = chi2.ppf(tail, 2 * n) / 2 if n else 0.0
    high = chi2.isf(tail, 2 * (n + 1)) / 2
    return {
        "expected": expected,
        "smr": n / expected,
        "smr_low": float(low) / expected,
        "smr_high": float(high) / expected,
    }
