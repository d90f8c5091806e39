"""Cox regression over sites: R's ``coxph`` and ``cox.zph`` on an agreed grid of times.

Each Newton step takes the two rounds of `cox_rounds`. After the last one, products over risk sets
are opened once more, weighted by a function of time, for the test of proportional hazards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from encryptedstats.procedures.pooled.algebra import Cholesky, dot, n_pairs, pack, unpack
from encryptedstats.procedures.pooled.cox_result import PooledCoxResult, read_cox
from encryptedstats.procedures.pooled.cox_rounds import COUNTS, DONE, PRODUCTS, SUMS, CoxRounds
from encryptedstats.procedures.pooled.risk_sets import RiskRows, RiskSteps
from encryptedstats.procedures.pooled.scaling import BITS, to_floats
from encryptedstats.procedures.site_procedure import State
from encryptedstats.statistics.hazards import TIES
from encryptedstats.statistics.survival import CLASS
from encryptedstats.tables.questions.constraints import Choice, Constraints
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

EFRON: Final = "efron"
LAST = "last"


@dataclass(frozen=True)
class PooledCox(CoxRounds):
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
        Times are merged until as many rows, or none, leave at each step, of all rows, of every
        level and of the levels of two factors; and for Efron's rule as many with the event, and
        without.
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
    >>> weeks, died = [1, 2, 3, 4, 2, 3, 4, 4], [1, 1, 1, 0, 1, 0, 1, 0]
    >>> frame = pd.DataFrame({"week": weeks, "arm": list("aaaabbbb"), "died": died})
    >>> schema = es.Schema.infer(frame, target="died")
    >>> schema = schema.with_kind("week", "ordinal", levels=[1, 2, 3, 4])
    >>> result = es.PooledCox("week ~ arm", minimum=1).run(schema.table(frame))
    >>> float(round(result.coefficients.loc["arm[b]", "estimate"], 4))
    -0.7549
    """

    title = "Cox regression, by all sites"
    formula: str
    event: str = CLASS
    event_level: Any = None
    ties: str = EFRON
    reference: Mapping[str, Any] | None = None
    minimum: int = 10
    epsilon: float = 1e-9
    max_iterations: int = 8
    bits: int = BITS
    confidence: float = 0.95

    constraints: ClassVar[Constraints] = {"ties": Choice(values=TIES, code="unknown-ties")}

    @property
    def _is_efron(self) -> bool:
        return self.ties == EFRON

    # -- rounds ------------------------------------------------------------------------------------

    @property
    def at_most(self) -> int:
        """The largest number of rounds: counts, two for each iteration, and two at the end."""
        return 2 * self.max_iterations + 3

    def n_totals(self, state: State, schema: PublicSchema) -> int:
        if state["stage"] != LAST:
            return super().n_totals(state, schema)
        k = self.n_parameters(schema)
        return 3 * n_pairs(k) + k

    def n_opened(self, schema: PublicSchema) -> int:
        k, n_times = self.n_parameters(schema), self._n_times(schema)
        counts = self.n_totals({"stage": COUNTS}, schema)
        sums = (self.max_iterations + 1) * self._n_sums(k, n_times)
        return counts + sums + (self.max_iterations + 3) * n_pairs(k) + k

    def _measure_products(self, state: State, rows: RiskRows, steps: RiskSteps) -> list[float]:
        found = super()._measure_products(state, rows, steps)
        if state["stage"] != LAST:
            return found
        for power in (1, 2):
            at_risk, at_event = (
                [one * g**power for one, g in zip(state[name], state["g"], strict=True)]
                for name in ("at_risk", "at_event")
            )
            found += rows.products(steps, state["beta"], (at_risk, at_event))
        return found + rows.weigh_events(steps, state["g"])

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
        begun = super()._begin(state, opened, schema)
        rows = self._counts(opened, schema)[1][0]
        at_risk = [sum(rows.leaving[start:]) for start in begun["starts"]]
        return {**begun, "g": _centred_survival(begun["events"], at_risk)}

    def _take_sums(self, state: State, values: list[float]) -> State:
        """Evaluate the likelihood and the score; then ask for products, or halve the step."""
        found = self._evaluate(state, values)
        before, value = state.get("likelihood"), found.value
        after = {**state}
        if before is not None:
            after["iterations"] += 1
            if value < before and not _is_same(before, value, self.epsilon):
                beta = [(a + b) / 2 for a, b in zip(state["beta"], state["last"], strict=True)]
                if after["iterations"] < self.max_iterations:
                    return {**after, "beta": beta}
        after |= {**found.to_state(), "stage": PRODUCTS}
        outers = [pack(one.outer) for one in found.parts]
        for name, power in (("outer_g", 1), ("outer_gg", 2)):
            weighed = [
                [one * g**power for one in outer]
                for outer, g in zip(outers, state["g"], strict=True)
            ]
            after[name] = [math.fsum(column) for column in zip(*weighed, strict=True)]
        after["score_g"] = [
            math.fsum(g * one.score[j] for g, one in zip(state["g"], found.parts, strict=True))
            for j in range(len(state["beta"]))
        ]
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
