"""Regressions with an elastic net over sites, as glmnet has them at one penalty.

Every round opens what Fisher scoring needs at the current coefficients. The next coefficients
minimise the quadratic approximation with the penalty, by coordinate descent in plain Python; where
the penalised deviance grows, the step is halved. Bounds are those of `glm`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.procedures.pooled.algebra import Matrix, Vector, dot, n_pairs, unpack
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
from encryptedstats.procedures.pooled.scaling import BITS, to_floats
from encryptedstats.procedures.site_procedure import State
from encryptedstats.statistics.formulas import INTERCEPT
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.constraints import (
    ALPHA,
    Choice,
    Constraints,
    RealNumber,
    VariableName,
)
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

Floats = NDArray[np.float64]
_MOST_SWEEPS: Final = 10_000
_SWEPT: Final = 1e-14  # a sweep that moves no coefficient by more is the last


@dataclass(frozen=True, kw_only=True)
class PooledElasticNetResult(Result):
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

    caption: ClassVar[str] = "coefficients"

    coefficients: pd.DataFrame
    formula: str
    family: str
    link: str
    alpha: float
    l1_ratio: float
    deviance: float
    objective: float
    nonzero: int
    iterations: int
    converged: bool

    _predictor: ClassVar[Predictor]

    def to_frame(self) -> pd.DataFrame:
        """Return the coefficients."""
        return self.coefficients

    def predict(self, X: Any) -> Floats:
        """Return the expected outcome of each row; NaN where a value is missing or not allowed."""
        eta = self._predictor.evaluate(self._predictor.table(X))
        missing = np.isnan(eta)
        found: Floats = np.where(
            missing, np.nan, LINKS[self.link].invert(np.where(missing, 0.5, eta))
        )
        return found


@dataclass(frozen=True)
class PooledElasticNet(FamilyRegression):
    r"""Regression with penalties on the absolute and on the squared coefficients, over sites.

    .. math:: \frac{1}{2n} D(\beta) + \alpha \rho \lVert \beta \rVert_1
              + \frac{\alpha (1 - \rho)}{2} \lVert \beta \rVert^2

    with the deviance D, and :math:`\beta` of columns with mean 0 and standard deviation 1 over all
    rows, as ``glmnet`` has it (its ``lambda`` is ``alpha``, its ``alpha`` is ``l1_ratio``). The
    intercept has no penalty.

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
        "alpha": ALPHA,
        "l1_ratio": RealNumber(low=0, high=1),
        "family": Choice(values=PENALISED_FAMILIES, code="unknown-family"),
        "link": Choice(values=tuple(LINKS), optional=True, code="unknown-link"),
        "exposure": VariableName(optional=True),
    }
    of_variables: ClassVar[tuple[str, ...]] = ("exposure",)

    # -- rounds ------------------------------------------------------------------------------------

    def n_totals(self, state: State, schema: PublicSchema) -> int:
        covariates = self._covariates(schema)
        if state["stage"] == COUNTS:
            return 1 + self._n_sums + covariates.n_counts
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
            objective = self._objective(deviance, state)
            before = state.get("objective")
            rounding = 1e-12 * (abs(objective) + 0.1)
            if before is not None and objective > before + rounding:
                return self._halve(after)
            after |= {"objective": objective, "deviance": deviance}
        beta = minimise(information, score, state["beta"], self._penalties(state["n"]))
        furthest = max(abs(a - b) for a, b in zip(beta, state["beta"], strict=True))
        if state["stage"] == FIT and furthest <= self.epsilon:
            return {**after, "beta": beta, "stage": DONE, "converged": True}
        last = None if state["stage"] == START else state["beta"]
        return self._end(after, {"beta": beta, "last": last, "stage": FIT})

    def _penalties(self, n: int) -> tuple[float, float]:
        """Return what absolute and squared coefficients cost, beside half the deviance."""
        return n * self.alpha * self.l1_ratio, n * self.alpha * (1 - self.l1_ratio)

    def _objective(self, deviance: float, state: State) -> float:
        first, second = self._penalties(state["n"])
        slopes = state["beta"][1:]
        penalty = first * math.fsum(map(abs, slopes)) + second / 2 * dot(slopes, slopes)
        return (deviance / 2 + penalty) / float(state["n"])

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


def minimise(
    information: Matrix,
    score: Sequence[float],
    beta: Sequence[float],
    penalties: tuple[float, float],
) -> Vector:
    """Minimise the quadratic approximation of half the deviance at some coefficients, with
    penalties on all but the first.
    """
    first, second = penalties
    found, slopes = list(beta), list(score)  # slopes of the approximation, which point downwards
    for _ in range(_MOST_SWEEPS):
        furthest = 0.0
        for j, row in enumerate(information):
            curvature = row[j] + (second if j else 0.0)
            if not curvature > 0:
                continue
            pull = slopes[j] + row[j] * found[j]
            if j:
                pull = math.copysign(max(abs(pull) - first, 0.0), pull)
            moved = pull / curvature - found[j]
            if moved:
                found[j] += moved
                slopes = [a - moved * b for a, b in zip(slopes, row, strict=True)]
                furthest = max(furthest, abs(moved))
        if furthest <= _SWEPT * max(1.0, max(map(abs, found))):
            break
    return found
