"""What regressions with an elastic net over sites share: the penalty, the minimum of a quadratic
approximation with it, and what their results say.

Penalties are those of glmnet: on coefficients of columns with mean 0 and standard deviation 1.
Imports the algebra of steps and what is below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pandas as pd

from encryptedstats.procedures.pooled.algebra import Matrix, Vector, dot
from encryptedstats.tables.answers.results import Result
from encryptedstats.tables.questions.constraints import ALPHA, Constraints, RealNumber

if TYPE_CHECKING:
    from encryptedstats.procedures.pooled.glm_result import Predictor

_MOST_SWEEPS: Final = 10_000
_SWEPT: Final = 1e-14  # a sweep that moves no coefficient by more is the last


@dataclass(frozen=True, kw_only=True)
class PenalisedResult(Result):
    """Base class of results of regressions with an elastic net."""

    caption: ClassVar[str] = "coefficients"

    coefficients: pd.DataFrame
    formula: str
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


class Penalised:
    """A regression with penalties on absolute and on squared coefficients."""

    alpha: float
    l1_ratio: float

    constraints: ClassVar[Constraints] = {"alpha": ALPHA, "l1_ratio": RealNumber(low=0, high=1)}

    def _penalties(self, n: int) -> tuple[float, float]:
        """Return what absolute and squared coefficients cost, beside a loss over n rows."""
        return n * self.alpha * self.l1_ratio, n * self.alpha * (1 - self.l1_ratio)

    def _objective(self, loss: float, slopes: Sequence[float], n: int) -> float:
        """Return what is minimised: a loss over n rows with the penalties, for each row."""
        first, second = self._penalties(n)
        penalty = first * math.fsum(map(abs, slopes)) + second / 2 * dot(slopes, slopes)
        return (loss + penalty) / float(n)


def grows(objective: float, before: float | None) -> bool:
    """Return whether a step has led to a larger objective, by more than rounding."""
    return before is not None and objective > before + 1e-12 * (abs(objective) + 0.1)


def furthest_move(one: Sequence[float], other: Sequence[float]) -> float:
    """Return by how much the coefficient that moved furthest did."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def minimise(
    information: Matrix,
    score: Sequence[float],
    beta: Sequence[float],
    penalties: tuple[float, float],
    n_free: int = 1,
) -> Vector:
    """Minimise the quadratic approximation of a loss at some coefficients, with penalties on all
    but the first ``n_free``, by coordinate descent.
    """
    first, second = penalties
    found, slopes = list(beta), list(score)  # slopes of the approximation, which point downwards
    for _ in range(_MOST_SWEEPS):
        furthest = 0.0
        for j, row in enumerate(information):
            is_free = j < n_free
            curvature = row[j] + (0.0 if is_free else second)
            if not curvature > 0:
                continue
            pull = slopes[j] + row[j] * found[j]
            if not is_free:
                pull = math.copysign(max(abs(pull) - first, 0.0), pull)
            moved = pull / curvature - found[j]
            if moved:
                found[j] += moved
                slopes = [a - moved * b for a, b in zip(slopes, row, strict=True)]
                furthest = max(furthest, abs(moved))
        if furthest <= _SWEPT * max(1.0, max(map(abs, found))):
            break
    return found
