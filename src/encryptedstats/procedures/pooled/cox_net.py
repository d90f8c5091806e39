"""Cox regression with an elastic net over sites: glmnet's ``family="cox"`` at one penalty, on an
agreed grid of times.

Each step takes the two rounds of `cox_rounds`. The next coefficients minimise the quadratic
approximation of the partial likelihood with the penalty; where the objective grows, the step is
halved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.procedures.pooled.algebra import exact_log, n_pairs, unpack
from encryptedstats.procedures.pooled.covariates import Spread
from encryptedstats.procedures.pooled.cox_result import (
    NOT_CONVERGED,
    describe_events,
    read_baseline,
)
from encryptedstats.procedures.pooled.cox_rounds import COUNTS, DONE, PRODUCTS, SUMS, CoxRounds
from encryptedstats.procedures.pooled.glm_result import Predictor, write_formula
from encryptedstats.procedures.pooled.penalties import (
    Penalised,
    PenalisedResult,
    furthest_move,
    grows,
    minimise,
)
from encryptedstats.procedures.pooled.scaling import BITS, to_floats
from encryptedstats.procedures.site_procedure import State
from encryptedstats.statistics.survival import CLASS
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PooledCoxNetResult(PenalisedResult):
    """A Cox regression with an elastic net.

    Attributes
    ----------
    coefficients : DataFrame
        In the units of the columns; ``standardised`` are those of columns with mean 0 and standard
        deviation 1, which the penalty is of.
    baseline : DataFrame
        Breslow's cumulative hazard and the survival at zeros of all columns, by time.
    formula : str
    alpha, l1_ratio : float
    n_events : int
    llf, llf_null : float
        The log partial likelihood at the coefficients, and without any.
    deviance, objective : float
        The deviance is glmnet's: it compares with a model of the events of each time.
    nonzero : int
        Coefficients other than 0.
    iterations : int
    converged : bool
    """

    baseline: pd.DataFrame
    n_events: int
    llf: float
    llf_null: float

    def predict(self, X: Any, kind: str = "risk") -> Floats:
        """Return the hazard of each row relative to that of zeros and reference levels, or with
        ``kind="link"`` its logarithm. NaN for rows where a value is missing or not allowed.
        """
        link = self._predictor.evaluate(self._predictor.table(X))
        return link if kind == "link" else np.exp(link)


@dataclass(frozen=True)
class PooledCoxNet(Penalised, CoxRounds):
    r"""Cox regression with penalties on the absolute and on the squared coefficients, over sites.

    .. math:: -\frac{1}{n} \ell(\beta) + \alpha \rho \lVert \beta \rVert_1
              + \frac{\alpha (1 - \rho)}{2} \lVert \beta \rVert^2

    with the log partial likelihood and Breslow's ties, and :math:`\beta` of columns with mean 0 and
    standard deviation 1 over all rows, as ``glmnet(family = "cox")`` has it (its ``lambda`` is
    ``alpha``, its ``alpha`` is ``l1_ratio``). Times are merged as in :class:`PooledCox`.

    Parameters
    ----------
    formula : str
        See :class:`PooledCox`.
    alpha : float
        At least 0.
    l1_ratio : float
        Between 0 (ridge) and 1 (lasso).
    event, event_level, reference, minimum
        See :class:`PooledCox`.
    epsilon : float
        The fit has converged where no standardised coefficient moves by more.
    max_iterations : int
        Each takes two rounds.
    bits : int
        Totals are rounded to 2 to the power of ``-bits``.

    References
    ----------
    Simon, Friedman, Hastie and Tibshirani (2011).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> weeks, died = [1, 2, 3, 4, 2, 3, 4, 4], [1, 1, 1, 0, 1, 0, 1, 0]
    >>> frame = pd.DataFrame({"week": weeks, "arm": list("aaaabbbb"), "died": died})
    >>> schema = es.Schema.infer(frame, target="died")
    >>> schema = schema.with_kind("week", "ordinal", levels=[1, 2, 3, 4])
    >>> result = es.PooledCoxNet("week ~ arm", alpha=0.05, minimum=1).run(schema.table(frame))
    >>> float(round(result.coefficients.loc["arm[b]", "estimate"], 4))
    -0.6351
    """

    title = "Cox regression with an elastic net, by all sites"

    formula: str
    alpha: float = 1.0
    l1_ratio: float = 0.5
    event: str = CLASS
    event_level: Any = None
    reference: Mapping[str, Any] | None = None
    minimum: int = 10
    epsilon: float = 1e-9
    max_iterations: int = 8
    bits: int = BITS

    # -- rounds ------------------------------------------------------------------------------------

    @property
    def at_most(self) -> int:
        """The largest number of rounds: counts, and two without coefficients and for each
        iteration.
        """
        return 2 * self.max_iterations + 3

    def n_opened(self, schema: PublicSchema) -> int:
        k, n_times = self.n_parameters(schema), self._n_times(schema)
        counts = self.n_totals({"stage": COUNTS}, schema)
        return counts + (self.max_iterations + 1) * (self._n_sums(k, n_times) + n_pairs(k))

    def step(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        if state["stage"] == COUNTS:
            return self._begin(state, opened, schema)
        values = to_floats(opened, self.bits)
        return (
            self._take_sums(state, values) if state["stage"] == SUMS else self._move(state, values)
        )

    def _take_sums(self, state: State, values: list[float]) -> State:
        """Evaluate the likelihood and the score; then ask for products, or halve the step."""
        found, after = self._evaluate(state, values), {**state}
        objective = self._objective(-found.value, state["beta"], state["n"])
        before = state.get("objective")
        if before is not None:
            after["iterations"] += 1
        if grows(objective, before):
            if after["iterations"] >= self.max_iterations:
                return {**after, "beta": state["last"], "stage": DONE}
            beta = [(a + b) / 2 for a, b in zip(state["beta"], state["last"], strict=True)]
            return {**after, "beta": beta}
        null = state.get("null", found.value)
        return {
            **after,
            **found.to_state(),
            "objective": objective,
            "null": null,
            "stage": PRODUCTS,
        }

    def _move(self, state: State, values: list[float]) -> State:
        beta = state["beta"]
        information = [a - b for a, b in zip(values, state["outer"], strict=True)]
        moved = minimise(
            unpack(information, len(beta)),
            state["score"],
            beta,
            self._penalties(state["n"]),
            n_free=0,
        )
        if furthest_move(moved, beta) <= self.epsilon:
            return {**state, "beta": moved, "stage": DONE, "converged": True}
        if state["iterations"] >= self.max_iterations:
            return {**state, "stage": DONE}
        return {**state, "beta": moved, "last": beta, "stage": SUMS}

    # -- the result --------------------------------------------------------------------------------

    def read(self, state: State, schema: Schema | PublicSchema) -> PooledCoxNetResult:
        """Return the coefficients and the baseline hazard."""
        covariates = self._covariates(schema)
        beta = np.array(state["beta"])
        units = covariates.to_own_units(Spread(state["means"], state["sds"]), schema)
        own, formula = units[1:, 1:] @ beta, write_formula(covariates, schema)
        table = pd.DataFrame(
            {"estimate": own, "standardised": beta},
            pd.Index(covariates.made.names(schema)[1:], name="term"),
        )
        warned = () if state["converged"] else (NOT_CONVERGED,)
        found = PooledCoxNetResult(
            title=f"Cox regression with an elastic net: {formula}",
            n_rows=int(state["n"]),
            notes=(*describe_events(self, state, schema), *warned),
            coefficients=table,
            baseline=read_baseline(self, state, schema),
            formula=formula,
            alpha=float(self.alpha),
            l1_ratio=float(self.l1_ratio),
            n_events=sum(state["events"]),
            llf=float(state["likelihood"]),
            llf_null=float(state["null"]),
            deviance=2 * (_likelihood_by_time(state["events"]) - float(state["likelihood"])),
            objective=float(state["objective"]),
            nonzero=int((beta != 0).sum()),
            iterations=int(state["iterations"]),
            converged=bool(state["converged"]),
        )
        object.__setattr__(found, "_predictor", Predictor(covariates, np.append(0.0, own), schema))
        return found


def _likelihood_by_time(events: Sequence[int]) -> float:
    """Return the log likelihood of a model of its own for each time: glmnet's, with Breslow's
    ties.
    """
    return -sum(d * exact_log(d) for d in events)
