"""Generalised linear models by Newton steps over sites: R's ``glm`` and MASS's ``glm.nb``.

Every round opens X'WX, the score X'W(z - eta) and the deviance at the current coefficients, summed
over all sites. Starting values, steps, halving and the rule of convergence are R's, so that
iterations, warnings and standard errors are as well. `negative_binomial` has the rounds that are
its own.

Bounds: z of a standardised column is at most 2e5 in size (`LEAST_SPREAD`), and the weights of a
binomial at most 1/4 (logit) or 2 (probit, cloglog), so a total of 2^40 rows is below 2^(40 + 36 +
1), and as an integer below 2^(77 + bits) < 2^137. Weights of other families grow with the mean: a
site refuses what reaches 2^210.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.procedures.pooled.algebra import (
    Cholesky,
    n_pairs,
    unpack,
)
from encryptedstats.procedures.pooled.base import has_arrived
from encryptedstats.procedures.pooled.families import (
    BINOMIAL,
    ESTIMATED,
    FAMILIES,
    GLM_FAMILIES,
    LINKS,
    NEGATIVE,
    POISSON,
)
from encryptedstats.procedures.pooled.family_regression import (
    COUNTS,
    DONE,
    FIT,
    START,
    FamilyRegression,
)
from encryptedstats.procedures.pooled.glm_result import PooledGLMResult, read_fit
from encryptedstats.procedures.pooled.negative_binomial import (
    expected_information,
    first_theta,
    measure_joint,
    moment_totals,
    move_jointly,
    n_joint_totals,
)
from encryptedstats.procedures.pooled.scaling import BITS, to_floats
from encryptedstats.procedures.pooled.site_rows import (
    PreparedRows,
    fisher_weights,
    measure_scores,
    start_from,
)
from encryptedstats.procedures.site_procedure import State
from encryptedstats.tables.questions.constraints import Choice, Constraints, VariableName
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
JOINT, LAST = "joint", "last"  # of a negative binomial
_COARSE: Final = 1e-2  # from here on theta moves as well


@dataclass(frozen=True)
class PooledGLM(FamilyRegression):
    r"""Logistic, Poisson, Gamma or negative binomial regression of the rows of several sites.

    .. math:: g(E[y]) = x'\beta + \text{offset} + \log(\text{exposure})

    The result is that of R's ``glm`` (``MASS::glm.nb``) on all rows together, to the rounding of
    the totals. Numbers and factors explain; see :class:`GLM` for encrypted rows and factors alone.

    Parameters
    ----------
    formula : str
        As in R: ``"y ~ age + sex + age:sex + I(age^2)"``; ``"~ ."`` for the target of the schema on
        all other variables.
    family : "binomial", "poisson", "gamma" or "negative binomial"
        A binomial outcome has two levels, of which the second is the event; others are numbers.
    link : str, optional
        ``"logit"``, ``"probit"`` or ``"cloglog"`` of a binomial; ``"log"``, ``"identity"`` or
        ``"sqrt"`` of counts; ``"inverse"``, ``"log"`` or ``"identity"`` of a Gamma. By default the
        first of them, as in R.
    reference : dict, optional
        The level of a factor that all others are compared with; its first by default.
    exposure : str, optional
        A number above 0 that counts are out of, with the link ``"log"``.
    epsilon : float
        The relative change of the deviance below which the fit has converged, as in R.
    max_iterations : int
        R has 25. Fewer rounds open fewer numbers, for which there must be rows.
    bits : int
        Totals are rounded to 2 to the power of ``-bits``.
    confidence : float

    References
    ----------
    McCullagh and Nelder (1989). Venables and Ripley (2002), section 7.4.

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"dose": [1, 2, 3, 4, 5, 6], "ill": [0, 0, 1, 0, 1, 1]})
    >>> schema = es.Schema.infer(frame, target="ill", numbers="keep")
    >>> sites = [schema.table(frame[:3]), schema.table(frame[3:])]
    >>> result = es.PooledGLM("ill ~ dose").run(sites)
    >>> [round(float(x), 4) for x in result.coefficients["estimate"]]
    [-4.2491, 1.214]
    """

    title = "Logistic, Poisson, Gamma or negative binomial regression, by all sites"
    formula: str
    family: str = BINOMIAL
    link: str | None = None
    reference: Mapping[str, Any] | None = None
    exposure: str | None = None
    epsilon: float = 1e-8
    max_iterations: int = 12
    bits: int = BITS
    confidence: float = 0.95

    constraints: ClassVar[Constraints] = {
        "family": Choice(values=GLM_FAMILIES, code="unknown-family"),
        "link": Choice(values=tuple(LINKS), optional=True, code="unknown-link"),
        "exposure": VariableName(optional=True),
    }
    of_variables: ClassVar[tuple[str, ...]] = ("exposure",)

    # -- rounds ------------------------------------------------------------------------------------

    @property
    def at_most(self) -> int:
        """The largest number of rounds: a negative binomial has one more."""
        return super().at_most + (self.family == NEGATIVE)

    def n_totals(self, state: State, schema: PublicSchema) -> int:
        covariates = self._covariates(schema)
        if state["stage"] == COUNTS:
            return self._n_counts(covariates)
        n = covariates.n
        if state["stage"] in (JOINT, LAST):
            return n_joint_totals(n) if state["stage"] == JOINT else n_pairs(n)
        return n_pairs(n) + n + 3 + (self.family in ESTIMATED) + 2 * (self.family == NEGATIVE)

    def n_opened(self, schema: PublicSchema) -> int:
        stage = JOINT if self.family == NEGATIVE else FIT
        counts, each = (self.n_totals({"stage": one}, schema) for one in (COUNTS, stage))
        return counts + (self.at_most - 1) * each

    def n_parameters(self, schema: PublicSchema) -> int:
        return self._covariates(schema).n + (self.family == NEGATIVE)

    def _measure_rows(self, state: State, rows: PreparedRows) -> list[float]:
        """Return X'WX, the score, the deviance, whether a mean is impossible or at the boundary,
        and what the family adds.
        """
        family, link, eta = FAMILIES[self._base], self._link, rows.predict(state["beta"])
        if state["stage"] == JOINT:
            return measure_joint(rows.z, rows.y, link.invert(eta), state["theta"])
        if state["stage"] == LAST:
            return expected_information(rows.z, link.invert(eta), state["theta"])
        scores = measure_scores(family, link, rows, None if state["stage"] == START else eta)
        if self.family == NEGATIVE:
            return [*scores.totals, *moment_totals(scores.y, scores.mu)]
        if self.family not in ESTIMATED:
            return scores.totals
        # R estimates the dispersion by the weights of the step before.
        last = state.get("last")
        before = start_from(family, link, rows) if last is None else rows.predict(last)
        weights, _ = fisher_weights(family, link, before, link.invert(before))
        return [*scores.totals, float((weights * scores.residual**2).sum())]

    # -- from sums to the next state ---------------------------------------------------------------

    def step(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        covariates = self._covariates(schema)
        after = {**state, "round": state["round"] + 1}
        if state["stage"] == COUNTS:
            return self._begin(after, opened, covariates)
        values, n = to_floats(opened, self.bits), covariates.n
        if state["stage"] == LAST:
            kept = Cholesky.of(unpack(values, n), *self._tolerance(n)).kept
            return {**after, "stage": DONE, "information": values, "kept": kept}
        if state["stage"] == JOINT:
            return self._step_jointly(after, values)
        information, values = values[: n_pairs(n)], values[n_pairs(n) :]
        score, (deviance, invalid, boundary, *others) = values[:n], values[n:]
        if invalid:
            return self._halve(after)
        if state["stage"] == START:
            return self._move({**after, "deviance": deviance}, information, score)
        after |= {"boundary": bool(boundary), "iterations": state["iterations"] + 1}
        before, after["deviance"] = state["deviance"], deviance
        if self.family in ESTIMATED:
            after["pearson"] = others[0]
        if self.family == NEGATIVE and has_arrived(deviance, before, _COARSE):
            return self._end(after, {"stage": JOINT, "theta": first_theta(*others)})
        if has_arrived(deviance, before, self.epsilon):
            return {**after, "stage": DONE, "converged": True}
        return self._move(after, information, score)

    def _move(self, after: State, information: list[float], score: list[float]) -> State:
        """Take a Newton step; at the end of rounds, or where nothing is left to divide by, stop."""
        n = len(score)
        found = Cholesky.of(unpack(information, n), *self._tolerance(n))
        first = after["stage"] == START
        if not first and found.kept != after["kept"]:
            return {**after, "stage": DONE, "singular": True}
        beta = [a + b for a, b in zip(after["beta"], found.solve(score), strict=True)]
        last = None if first else after["beta"]
        moved = {"stage": FIT, "beta": beta, "last": last}
        return self._end(after, {**moved, "information": information, "kept": found.kept})

    def _step_jointly(self, after: State, values: list[float]) -> State:
        """Move the coefficients and theta of a negative binomial."""
        n = len(after["beta"])
        moved = move_jointly(after, values, self._tolerance(n + 1), self.epsilon)
        after |= {"iterations": after["iterations"] + 1}
        if moved.get("converged") or after["round"] >= self.at_most - 1:
            return {**after, **moved, "stage": LAST}
        return {**after, **moved}

    # -- the result --------------------------------------------------------------------------------

    def read(self, state: State, schema: Schema | PublicSchema) -> PooledGLMResult:
        """Return the coefficients with tests, and what R's ``summary`` says besides."""
        return read_fit(self, state, schema)

    @property
    def _base(self) -> str:
        """The family of the rounds before theta is known."""
        return POISSON if self.family == NEGATIVE else self.family
