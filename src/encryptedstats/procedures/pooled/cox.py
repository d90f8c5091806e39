"""Cox regression over sites: R's ``coxph`` on an agreed grid of times.

Each Newton step takes two rounds. The first opens sums over risk sets; the likelihood, the score
and what each risk set weighs in the information follow from them. The second opens one weighted
matrix of products over all risk sets, so that products of single risk sets stay closed.

Bounds: z is at most 2e5 in size and exp(z'beta) is refused with the total that it is in, from 2^210
on; with linear predictors below 30, sums over 2^40 rows are below 2^(40 + 44 + 36 + bits).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from encryptedstats.errors import DataError, DisclosureError, ParameterError
from encryptedstats.procedures.pooled.algebra import Cholesky, dot, n_pairs, pack, unpack
from encryptedstats.procedures.pooled.base import PooledRegression, refuse_weights
from encryptedstats.procedures.pooled.covariates import Spread
from encryptedstats.procedures.pooled.cox_result import PooledCoxResult, read_cox
from encryptedstats.procedures.pooled.risk_sets import RiskRows, RiskSteps, StepSums
from encryptedstats.procedures.pooled.scaling import BITS, to_floats, to_integers
from encryptedstats.procedures.site_procedure import RowLimits, State
from encryptedstats.statistics.hazards import TIES
from encryptedstats.statistics.survival import CLASS, check_time, event_number
from encryptedstats.tables.questions.constraints import (
    Choice,
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

COUNTS, SUMS, PRODUCTS, LAST, DONE = "counts", "sums", "products", "last", "done"


@dataclass(frozen=True)
class PooledCox(PooledRegression):
    r"""Cox's proportional hazards regression of the rows of several sites.

    .. math:: h(t \mid x) = h_0(t) \exp(x'\beta)

    The result is that of R's ``coxph`` on all rows together, with times as the schema has them and
    merged to steps at which enough rows leave.

    Parameters
    ----------
    formula : str
        ``"week ~ age + sex"``: the time, a variable with bins, and what explains it.
    event : str
        Whether a row ends with the event; by default the class.
    event_level : optional
        The level that is the event; the second of two by default.
    ties : "efron" or "breslow"
    reference : dict, optional
        The level of a factor that all others are compared with; its first by default.
    minimum : int
        Times are merged until as many rows leave at each step, and Efron's events are as many.
    epsilon : float
        The relative change of the log-likelihood below which the fit has converged, as in R.
    max_iterations : int
        R has 20. Each takes two rounds.
    bits : int
        Totals are rounded to 2 to the power of ``-bits``.
    confidence : float

    References
    ----------
    Cox (1972). Efron (1977). Grambsch and Therneau (1994).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame(
    ...     {"week": [1, 2, 3, 4, 2, 3, 4, 4], "arm": list("aaaabbbb"), "died": [1, 1, 1, 0, 1, 0, 1, 0]}
    ... )
    >>> schema = es.Schema.infer(frame, target="died").with_kind("week", "ordinal", levels=[1, 2, 3, 4])
    >>> result = es.PooledCox("week ~ arm", minimum=1).run(schema.table(frame))
    >>> float(round(result.coefficients.loc["arm[b]", "estimate"], 4))
    -0.7549
    """

    title = "Cox regression, by all sites"
    formula: str
    event: str = CLASS
    event_level: Any = None
    ties: str = "efron"
    reference: Mapping[str, Any] | None = None
    minimum: int = 10
    epsilon: float = 1e-9
    max_iterations: int = 8
    bits: int = BITS
    confidence: float = 0.95

    constraints: ClassVar[Constraints] = {
        "event": VariableName(),
        "event_level": LevelName(optional=True),
        "ties": Choice(values=TIES, code="unknown-ties"),
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

    # -- rounds ------------------------------------------------------------------------------------

    @property
    def at_most(self) -> int:
        """The largest number of rounds: counts, two for each iteration, and two at the end."""
        return 2 * self.max_iterations + 3

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
            return 1 + 2 * self._n_times(schema) + covariates.n_counts
        if stage == SUMS:
            return self._n_sums(k, len(state["starts"]))
        return 3 * n_pairs(k) + k if stage == LAST else n_pairs(k)

    def _n_sums(self, k: int, n_steps: int) -> int:
        return k + n_steps * (1 + k) * (1 + (self.ties == "efron"))

    def n_opened(self, schema: PublicSchema) -> int:
        k, n_times = self._covariates(schema).n - 1, self._n_times(schema)
        counts = self.n_totals({"stage": COUNTS}, schema)
        sums = (self.max_iterations + 1) * self._n_sums(k, n_times)
        return counts + sums + (self.max_iterations + 3) * n_pairs(k) + k

    def n_parameters(self, schema: PublicSchema) -> int:
        return self._covariates(schema).n - 1

    def check(
        self, state: State, totals: Sequence[int], schema: PublicSchema, limits: RowLimits
    ) -> None:
        """Refuse few rows of a level, few events, and steps at which fewer rows may leave than the
        study has agreed on.
        """
        if state["stage"] != COUNTS:
            return
        if self.minimum < limits.minimum:
            raise DisclosureError(
                f"minimum={self.minimum}: the study has agreed on {limits.minimum} rows behind "
                "every step of a risk set: give minimum= as many",
                code="minimum-too-small",
            )
        n, (_, events), rest = self._counts(totals, schema)
        self._check_cells(rest, schema, limits, {"complete rows": n, "events": sum(events)})

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
            n = self._n_times(public)
            counts = [np.bincount(times, minlength=n), np.bincount(times[is_event], minlength=n)]
            listed = [int(one) for part in counts for one in part]
            return [len(x), *listed, *covariates.count(table, x, known, self.bits)]
        z = covariates.standardise(x, Spread(state["means"], state["sds"]), table.schema)
        rows, steps = RiskRows(z[:, 1:], times, is_event), _steps(state)
        if state["stage"] == SUMS:
            found = rows.sums(steps, state["beta"], self.ties == "efron")
        else:
            found = []
            for power in range(3 if state["stage"] == LAST else 1):
                scaled = [
                    [one * g**power for one, g in zip(state[name], state["g"], strict=True)]
                    for name in ("at_risk", "at_event")
                ]
                found += rows.products(steps, state["beta"], (scaled[0], scaled[1]))
            if state["stage"] == LAST:
                found += rows.weigh_events(steps, state["g"])
        return to_integers(found, self.bits)

    # -- from sums to the next state ---------------------------------------------------------------

    def step(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        if state["stage"] == COUNTS:
            return self._begin(state, opened, schema)
        values = to_floats(opened, self.bits)
        if state["stage"] == SUMS:
            return self._take_sums(state, values)
        k = len(state["beta"])
        closed = [state["outer"], state["outer_g"], state["outer_gg"]]
        size = n_pairs(k)
        information = [
            [a - b for a, b in zip(values[n * size : (n + 1) * size], outer, strict=True)]
            for n, outer in enumerate(closed[: len(values) // size])
        ]
        if state["stage"] == LAST:
            names = ("information", "information_g", "information_gg")
            pairs = zip(values[3 * size :], state["score_g"], strict=True)
            found = dict(zip(names, information, strict=True))
            return {**state, "stage": DONE, **found, "score_g": [a - b for a, b in pairs]}
        return self._move(state, information[0])

    def _begin(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        covariates = self._covariates(schema)
        n, (leaving, events), rest = self._counts(opened, schema)
        pairs = zip(leaving, events, strict=True)
        if sum(leaving) != n or any(not 0 <= d <= left for left, d in pairs):
            raise DataError(
                "the rows and events of the times do not add up: a site has given false counts",
                code="impossible-counts",
            )
        if not sum(events):
            raise DataError(
                f"no row has the event: all {n:,} rows are censored, and a Cox regression needs "
                "events",
                code="no-events",
            )
        steps = RiskSteps.of(leaving, events, self.minimum, self.ties == "efron")
        spread = covariates.spread(rest, n, self.bits)
        at_risk = [sum(leaving[start:]) for start in steps.starts]
        k = covariates.n - 1
        return {
            **state,
            "stage": SUMS,
            "n": n,
            "means": spread.means,
            "sds": spread.sds,
            "starts": steps.starts,
            "events": steps.events,
            "g": _centred_survival(steps.events, at_risk),
            "beta": [0.0] * k,
        }

    def _take_sums(self, state: State, values: list[float]) -> State:
        """Evaluate the likelihood and the score; then ask for products, or halve the step."""
        k, steps = len(state["beta"]), _steps(state)
        of_events, rest = values[:k], values[k:]
        lines = [rest[place : place + k + 1] for place in range(0, len(rest), k + 1)]
        n = len(steps.starts)
        efron = lines[n:] if self.ties == "efron" else [None] * n
        parts = [StepSums.of(*one) for one in zip(steps.events, lines[:n], efron, strict=True)]
        value = dot(of_events, state["beta"]) - math.fsum(one.log_sum for one in parts)
        before = state.get("likelihood")
        after = {**state}
        if before is not None:
            after["iterations"] += 1
            if value < before and not _is_same(before, value, self.epsilon):
                beta = [(a + b) / 2 for a, b in zip(state["beta"], state["last"], strict=True)]
                if after["iterations"] < self.max_iterations:
                    return {**after, "beta": beta}
        score = [of_events[j] - math.fsum(one.score[j] for one in parts) for j in range(k)]
        outers = [pack(one.outer) for one in parts]
        weighed = {
            name: [
                math.fsum(one[j] * g**power for one, g in zip(outers, state["g"], strict=True))
                for j in range(n_pairs(k))
            ]
            for power, name in enumerate(("outer", "outer_g", "outer_gg"))
        }
        after["score_g"] = [
            math.fsum(g * one.score[j] for g, one in zip(state["g"], parts, strict=True))
            for j in range(k)
        ]
        after |= {"likelihood": value, "score": score, **weighed, "stage": PRODUCTS}
        after |= {"at_risk": [one.at_risk for one in parts]}
        after |= {"at_event": [one.at_event for one in parts]}
        if before is None:
            return {**after, "null": value}
        after["converged"] = _is_same(before, value, self.epsilon)
        if after["converged"] or after["iterations"] >= self.max_iterations:
            after["stage"] = LAST
        return after

    def _move(self, state: State, information: list[float]) -> State:
        k = len(state["beta"])
        found = Cholesky.of(unpack(information, k), *self._tolerance(k))
        step = found.solve(state["score"])
        after = {**state, "stage": SUMS, "last": state["beta"]}
        after["beta"] = [a + b for a, b in zip(state["beta"], step, strict=True)]
        if "kept" not in state:
            after |= {"kept": found.kept, "score_test": dot(step, state["score"])}
        return after

    def read(self, state: State, schema: Schema | PublicSchema) -> PooledCoxResult:
        """Return hazard ratios with tests, as R's ``summary(coxph)`` says them."""
        return read_cox(self, state, schema)

    # -- parts of it -------------------------------------------------------------------------------

    def _event_level(self, schema: Schema | PublicSchema) -> int:
        return event_number(schema, self.event, self.event_level)

    def _n_times(self, schema: Schema | PublicSchema) -> int:
        (time,) = self._covariates(schema).made.targets
        return _n_levels(schema.public(), time)

    def _counts(
        self, opened: Sequence[int], schema: Schema | PublicSchema
    ) -> tuple[int, tuple[Sequence[int], Sequence[int]], Sequence[int]]:
        """Return rows, rows that leave and events by time, and what is counted of covariates."""
        n, rest = self._n_times(schema), opened[1:]
        return opened[0], (rest[:n], rest[n : 2 * n]), rest[2 * n :]


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


def _is_same(before: float, now: float, epsilon: float) -> bool:
    """Return whether a log-likelihood has converged, by R's rule."""
    return now == before or (now != 0.0 and abs(1 - before / now) <= epsilon)


def _centred_survival(events: Sequence[int], at_risk: Sequence[int]) -> list[float]:
    """Return the function of time that hazard ratios are tested against: 1 less the survival of
    Kaplan and Meier just before each step, less its mean.
    """
    kept, found = 1.0, []
    for d, n in zip(events, at_risk, strict=True):
        found.append(1 - kept)
        kept *= 1 - d / n
    mean = math.fsum(found) / len(found)
    return [one - mean for one in found]
