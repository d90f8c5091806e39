"""Rounds that Cox regressions over sites share: the counts of the first round, sums over risk sets,
and the likelihood and score that follow from them.

Each step takes two rounds. The first opens sums over risk sets; the likelihood, the score and what
each risk set weighs in the information follow from them. The second opens one weighted matrix of
products over all risk sets, in place of one for each.

Bounds: z is at most 2e5 in size and exp(z'beta) is refused with the total that it is in, from 2^210
on; with linear predictors below 30, sums over 2^40 rows are below 2^(40 + 44 + 36 + bits).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError, DisclosureError, ParameterError
from encryptedstats.procedures.pooled.algebra import Vector, dot, n_pairs, pack
from encryptedstats.procedures.pooled.base import PooledRegression, refuse_weights
from encryptedstats.procedures.pooled.covariates import Spread, is_in_cell, name_cell
from encryptedstats.procedures.pooled.risk_sets import RiskRows, RiskSteps, StepSums, TimeCounts
from encryptedstats.procedures.pooled.scaling import to_integers
from encryptedstats.procedures.site_procedure import RowLimits, State
from encryptedstats.statistics.survival import check_time, event_number
from encryptedstats.tables.questions.constraints import (
    Constraints,
    Integer,
    LevelName,
    VariableName,
)
from encryptedstats.tables.schema.names import level_id, position
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table

if TYPE_CHECKING:
    from typing_extensions import Self

COUNTS, SUMS, PRODUCTS, DONE = "counts", "sums", "products", "done"


@dataclass(frozen=True)
class PartialLikelihood:
    """The logarithm of the partial likelihood, its slope, and the risk sets that it is of."""

    value: float
    score: Vector
    parts: list[StepSums]

    def to_state(self) -> State:
        """Return what the round after it and the result need."""
        outers = [pack(one.outer) for one in self.parts]
        return {
            "likelihood": self.value,
            "score": self.score,
            "outer": [math.fsum(column) for column in zip(*outers, strict=True)],
            "at_risk": [one.at_risk for one in self.parts],
            "at_event": [one.at_event for one in self.parts],
        }


class CoxRounds(PooledRegression):
    """Base class of Cox regressions: who is at risk at which steps of an agreed grid of times."""

    event: str
    event_level: Any
    minimum: int
    max_iterations: int

    constraints: ClassVar[Constraints] = {
        "event": VariableName(),
        "event_level": LevelName(optional=True),
        "minimum": Integer(low=1),
    }
    of_variables: ClassVar[tuple[str, ...]] = ("event",)

    def in_ids(self, schema: Schema | PublicSchema) -> Self:
        """Return it with ids of variables and levels."""
        found = super().in_ids(schema)
        if self.event_level is None:
            return found
        level = level_id(schema, self.event, self.event_level)
        return found.from_parameters({**found.parameters(), "event_level": level})

    def fits(self, schema: PublicSchema) -> Any:
        """Return the time, the event and the columns of the formula."""
        return [*super().fits(schema), self.event, self._event_level(schema)]

    def agrees_on(self, schema: PublicSchema) -> dict[str, Any]:
        """Return what the steps of risk sets follow from; by Efron's rule, also the events."""
        (time,) = self._covariates(schema).made.targets
        events = [self.event, self._event_level(schema)] if self._is_efron else []
        groups = sorted(map(list, self._groups(schema)))
        return {"the steps of their risk sets": [time, self.minimum, *events, groups]}

    # -- rounds ------------------------------------------------------------------------------------

    def start(self, schema: Schema | PublicSchema) -> State:
        covariates, public = self._covariates(schema), schema.public()
        (time,) = covariates.made.targets
        check_time(public, "class" if time == -1 else f"v{time}")
        self._event_level(public)
        if covariates.n < 2:
            raise ParameterError(
                f"formula={self.formula!r}: a Cox regression needs a covariate",
                code="no-predictors",
            )
        if covariates.made.offset.parts:
            raise ParameterError(
                f"formula={self.formula!r}: a Cox regression in rounds takes no offset()",
                code="offset-in-cox",
            )
        used = [time, position(public, self.event), *covariates.made.variables]
        if len(set(used)) < len(used):
            raise ParameterError(
                "time, event and covariates have to be different variables",
                code="duplicate-variables",
            )
        return {"stage": COUNTS, "iterations": 0, "converged": False}

    def is_done(self, state: State) -> bool:
        return bool(state["stage"] == DONE)

    def n_totals(self, state: State, schema: PublicSchema) -> int:
        covariates, stage = self._covariates(schema), state["stage"]
        k = covariates.n - 1
        if stage == COUNTS:
            n_groups = 1 + len(self._groups(schema))
            return 1 + 2 * self._n_times(schema) * n_groups + covariates.n_counts
        return self._n_sums(k, len(state["starts"])) if stage == SUMS else n_pairs(k)

    def _n_sums(self, k: int, n_steps: int) -> int:
        return k + n_steps * (1 + k) * (1 + (self._is_efron))

    def n_parameters(self, schema: PublicSchema) -> int:
        return self._covariates(schema).n - 1

    def check(
        self, state: State, totals: Sequence[int], schema: PublicSchema, limits: RowLimits
    ) -> None:
        """Refuse few rows of a level, few events and few rows without, of all rows and of every
        level, and steps at which fewer rows may leave than the study has agreed on.
        """
        if state["stage"] != COUNTS:
            return
        if self.minimum < limits.minimum:
            raise DisclosureError(
                f"minimum={self.minimum}: the study has agreed on {limits.minimum} rows behind "
                "every step of a risk set: give minimum= as many",
                code="minimum-too-small",
            )
        n, groups, rest = self._counts(totals, schema)
        named = ["", *(f"{name_cell(one, schema)}, " for one in self._groups(schema))]
        counts = {"complete rows": n}
        for name, group in zip(named, groups, strict=True):
            events = sum(group.events)
            counts |= {f"{name}events": events, f"{name}no event": sum(group.leaving) - events}
        self._check_cells(rest, schema, limits, counts)

    # -- at a site ---------------------------------------------------------------------------------

    def measure(self, state: State, table: Table) -> list[int]:
        refuse_weights(table)
        public = table.public_schema
        covariates = self._covariates(public)
        x, _, complete = covariates.rows(table)
        (time,), where = covariates.made.targets, position(public, self.event)
        outcome = _codes(table, where)
        known = complete & (outcome < _n_levels(public, where))
        times = _codes(table, time)[known]
        is_event = outcome[known] == self._event_level(public)
        x = x[known[complete]]
        if state["stage"] == COUNTS:
            n, listed = self._n_times(public), list[int]()
            for cell in ((), *self._groups(public)):
                inside = is_in_cell(table, cell)[known]
                for own in (times[inside], times[inside & is_event]):
                    listed += np.bincount(own, minlength=n).tolist()
            return [len(x), *listed, *covariates.count(table, x, known, self.bits)]
        z = covariates.standardise(x, Spread(state["means"], state["sds"]), table.schema)
        rows, steps = RiskRows(z[:, 1:], times, is_event), _steps(state)
        if state["stage"] == SUMS:
            found = rows.sums(steps, state["beta"], self._is_efron)
        else:
            found = self._measure_products(state, rows, steps)
        return to_integers(found, self.bits)

    def _measure_products(self, state: State, rows: RiskRows, steps: RiskSteps) -> list[float]:
        """Return one matrix of products over all risk sets."""
        return rows.products(steps, state["beta"], (state["at_risk"], state["at_event"]))

    # -- from sums to the next state ---------------------------------------------------------------

    def _begin(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        covariates = self._covariates(schema)
        n, groups, rest = self._counts(opened, schema)
        if not sum(groups[0].events):
            raise DataError(
                f"no row has the event: all {n:,} rows are censored, and a Cox regression needs "
                "events",
                code="no-events",
            )
        steps = RiskSteps.of(groups, self.minimum, self._is_efron)
        spread = covariates.spread(rest, n, self.bits)
        return {
            **state,
            "stage": SUMS,
            "n": n,
            "means": spread.means,
            "sds": spread.sds,
            "starts": steps.starts,
            "events": steps.events,
            "beta": [0.0] * (covariates.n - 1),
        }

    def _evaluate(self, state: State, values: list[float]) -> PartialLikelihood:
        """Return the partial likelihood at the current coefficients."""
        k, steps = len(state["beta"]), _steps(state)
        of_events, rest = values[:k], values[k:]
        lines = [rest[place : place + k + 1] for place in range(0, len(rest), k + 1)]
        n = len(steps.starts)
        efron = lines[n:] if self._is_efron else [None] * n
        parts = [StepSums.of(*one) for one in zip(steps.events, lines[:n], efron, strict=True)]
        value = dot(of_events, state["beta"]) - math.fsum(one.log_sum for one in parts)
        score = [of_events[j] - math.fsum(one.score[j] for one in parts) for j in range(k)]
        return PartialLikelihood(value, score, parts)

    # -- parts of it -------------------------------------------------------------------------------

    @property
    def _is_efron(self) -> bool:
        """True if ties are Efron's, and sums over events are opened as well."""
        return False

    def _event_level(self, schema: Schema | PublicSchema) -> int:
        return event_number(schema, self.event, self.event_level)

    def _n_times(self, schema: Schema | PublicSchema) -> int:
        (time,) = self._covariates(schema).made.targets
        return _n_levels(schema.public(), time)

    def _groups(self, schema: Schema | PublicSchema) -> list[tuple[tuple[int, int], ...]]:
        """Return the levels, and those of two factors, whose rows are counted by time: sums at a
        step are of these as well, and where there are few steps, products at each of them follow
        from the weighted sums of all.
        """
        return self._covariates(schema).cells

    def _counts(
        self, opened: Sequence[int], schema: Schema | PublicSchema
    ) -> tuple[int, list[TimeCounts], Sequence[int]]:
        """Return rows, rows that leave and events by time, of all rows and of every level, and what
        is counted of covariates; refuse counts that cannot be.
        """
        n, end = self._n_times(schema), 1
        groups = []
        for _ in range(1 + len(self._groups(schema))):
            groups.append(TimeCounts(opened[end : end + n], opened[end + n : end + 2 * n]))
            end += 2 * n
        pairs = [zip(one.events, one.leaving, groups[0].leaving, strict=True) for one in groups]
        possible = all(0 <= d <= own <= left for part in pairs for d, own, left in part)
        if sum(groups[0].leaving) != opened[0] or not possible:
            raise DataError(
                "the rows and events of the times do not add up: a site has given false counts",
                code="impossible-counts",
            )
        return opened[0], groups, opened[end:]


def _steps(state: State) -> RiskSteps:
    return RiskSteps(state["starts"], state["events"])


def _codes(table: Table, where: int) -> NDArray[np.int64]:
    codes = table.class_codes if where == -1 else table.codes_of(where)
    return np.asarray(codes).astype(np.int64)


def _n_levels(schema: PublicSchema, where: int) -> int:
    """Return the levels of a variable with bins, without the one for missing values."""
    if where == -1:
        return schema.n_classes
    known = schema.variables[where]
    return known.n_bins - known.missing_bin
