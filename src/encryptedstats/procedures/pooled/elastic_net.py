"""Regressions with an elastic net over sites, as glmnet has them at one penalty.

Every round opens what Fisher scoring needs at the current coefficients. The next coefficients
minimise the quadratic approximation with the penalty; where the objective grows, the step is
halved. Bounds are those of `glm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.procedures.pooled.algebra import n_pairs, unpack
from encryptedstats.procedures.pooled.covariates import Spread
from encryptedstats.procedures.pooled.families import LINKS, PENALISED_FAMILIES
from encryptedstats.procedures.pooled.family_regression import (
    COUNTS,
    DONE,
    FIT,
    START,
    FamilyRegression,
)
from encryptedstats.procedures.pooled.glm_result import NOT_CONVERGED, Predictor, write_formula
from encryptedstats.procedures.pooled.penalties import (
    Penalised,
    PenalisedResult,
    furthest_move,
    grows,
    minimise,
)
from encryptedstats.procedures.pooled.scaling import BITS, to_floats
from encryptedstats.procedures.site_procedure import State
from encryptedstats.statistics.formulas import INTERCEPT
from encryptedstats.tables.questions.constraints import Choice, Constraints, VariableName
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PooledElasticNetResult(PenalisedResult):
    """A regression with an elastic net.

    Attributes
    ----------
    coefficients : DataFrame
        In the units of the columns; ``standardised`` are those of columns with mean 0 and standard
        deviation 1, which the penalty is of.
    formula, family, link : str
    alpha, l1_ratio : float
    deviance, objective : float
    nonzero : int
        Coefficients other than 0, without the intercept.
    iterations : int
    converged : bool
    """

    family: str
    link: str

    def predict(self, X: Any) -> Floats:
        """Return the expected outcome of each row; NaN where a value is missing or not allowed."""
        eta = self._predictor.evaluate(self._predictor.table(X))
        missing = np.isnan(eta)
        found: Floats = np.where(
            missing, np.nan, LINKS[self.link].invert(np.where(missing, 0.5, eta))
        )
        return found


@dataclass(frozen=True)
class PooledElasticNet(Penalised, FamilyRegression):
    r"""Regression with penalties on the absolute and on the squared coefficients, over sites.

    .. math:: \frac{1}{2n} D(\beta) + \alpha \rho \lVert \beta \rVert_1
              + \frac{\alpha (1 - \rho)}{2} \lVert \beta \rVert^2

    with the deviance D, and :math:`\beta` of columns with mean 0 and standard deviation 1 over all
    rows, as ``glmnet`` has it (its ``lambda`` is ``alpha``, its ``alpha`` is ``l1_ratio``). The
    intercept has no penalty.

    With ``family = "gaussian"``, as a word, ``glmnet`` scales the outcome to a standard deviation
    of 1, s before, so that its penalty on squares is smaller by the factor s than it says. Its
    results at (lambda, a) are those of ``alpha = lambda * (a + (1 - a) / s)`` and ``l1_ratio =
    lambda * a / alpha``. With ``family = gaussian()`` it does not, and results are equal.

    Parameters
    ----------
    formula : str
        See :class:`PooledGLM`.
    alpha : float
        At least 0.
    l1_ratio : float
        Between 0 (ridge) and 1 (lasso).
    family : "gaussian", "binomial", "poisson" or "gamma"
    link, reference, exposure
        See :class:`PooledGLM`.
    epsilon : float
        The fit has converged where no standardised coefficient moves by more.
    max_iterations : int
    bits : int
        Totals are rounded to 2 to the power of ``-bits``.

    References
    ----------
    Friedman, Hastie and Tibshirani (2010).

    Examples
    --------
    >>> import pandas as pd, encryptedstats as es
    >>> frame = pd.DataFrame({"dose": [1, 2, 3, 4, 5, 6], "ill": [0, 0, 1, 0, 1, 1]})
    >>> schema = es.Schema.infer(frame, target="ill", numbers="keep")
    >>> sites = [schema.table(frame[:3]), schema.table(frame[3:])]
    >>> result = es.PooledElasticNet("ill ~ dose", alpha=0.1, family="binomial").run(sites)
    >>> float(round(result.coefficients.loc["dose", "estimate"], 4))
    0.6452
    """

    title = "Lasso, ridge or elastic net, by all sites"
    formula: str
    alpha: float = 1.0
    l1_ratio: float = 0.5
    family: str = "gaussian"
    link: str | None = None
    reference: Mapping[str, Any] | None = None
    exposure: str | None = None
    epsilon: float = 1e-9
    max_iterations: int = 12
    bits: int = BITS

    constraints: ClassVar[Constraints] = {
        "family": Choice(values=PENALISED_FAMILIES, code="unknown-family"),
        "link": Choice(values=tuple(LINKS), optional=True, code="unknown-link"),
        "exposure": VariableName(optional=True),
    }
    of_variables: ClassVar[tuple[str, ...]] = ("exposure",)

    # -- rounds ------------------------------------------------------------------------------------

    def n_totals(self, state: State, schema: PublicSchema) -> int:
        covariates = self._covariates(schema)
        if state["stage"] == COUNTS:
            return self._n_counts(covariates)
        return n_pairs(covariates.n) + covariates.n + 3

    def n_opened(self, schema: PublicSchema) -> int:
        counts, each = (self.n_totals({"stage": one}, schema) for one in (COUNTS, FIT))
        return counts + (self.at_most - 1) * each

    def n_parameters(self, schema: PublicSchema) -> int:
        return self._covariates(schema).n

    def step(self, state: State, opened: Sequence[int], schema: Schema | PublicSchema) -> State:
        after = {**state, "round": state["round"] + 1}
        if state["stage"] == COUNTS:
            return self._begin(after, opened, self._covariates(schema))
        values, n = to_floats(opened, self.bits), len(state["beta"])
        information, score = unpack(values[: n_pairs(n)], n), values[n_pairs(n) :][:n]
        deviance, invalid, _ = values[n_pairs(n) + n :]
        if invalid:
            return self._halve(after)
        if state["stage"] == FIT:
            after["iterations"] += 1
            objective = self._objective(deviance / 2, state["beta"][1:], state["n"])
            if grows(objective, state.get("objective")):
                return self._halve(after)
            after |= {"objective": objective, "deviance": deviance}
        beta = minimise(information, score, state["beta"], self._penalties(state["n"]))
        if state["stage"] == FIT and furthest_move(beta, state["beta"]) <= self.epsilon:
            return {**after, "beta": beta, "stage": DONE, "converged": True}
        last = None if state["stage"] == START else state["beta"]
        return self._end(after, {"beta": beta, "last": last, "stage": FIT})

    # -- the result --------------------------------------------------------------------------------

    def read(self, state: State, schema: Schema | PublicSchema) -> PooledElasticNetResult:
        """Return the coefficients."""
        covariates = self._covariates(schema)
        names = covariates.made.names(schema)
        beta = np.array(state["beta"])
        back = covariates.to_own_units(Spread(state["means"], state["sds"]), schema)
        own, formula = back @ beta, write_formula(covariates, schema)
        table = pd.DataFrame({"estimate": own, "standardised": beta}, pd.Index(names))
        table.loc[INTERCEPT, "standardised"] = np.nan
        found = PooledElasticNetResult(
            title=f"Elastic net: {formula}",
            n_rows=int(state["n"]),
            notes=() if state["converged"] else (NOT_CONVERGED,),
            coefficients=table,
            formula=formula,
            family=self.family,
            link=self.link or self._kind.links[0],
            alpha=float(self.alpha),
            l1_ratio=float(self.l1_ratio),
            deviance=float(state["deviance"]),
            objective=float(state["objective"]),
            nonzero=int((beta[1:] != 0).sum()),
            iterations=int(state["iterations"]),
            converged=bool(state["converged"]),
        )
        predictor = Predictor(covariates, own, schema, self.exposure)
        object.__setattr__(found, "_predictor", predictor)
        return found
