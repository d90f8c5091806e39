"""Privacy costs in one currency: rho of zero-concentrated differential privacy (Bun and Steinke,
2016), which adds up.

People state epsilon and delta; these functions convert one to the other (Canonne, Kamath and
Steinke, 2020, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = 80  # of halving an interval: no float is between its ends then


@dataclass(frozen=True)
class Spent:
    """The cost of one release: rho, and epsilon if it holds without a delta."""

    rho: float
    pure_epsilon: float | None = None


def delta_of(rho: float, epsilon: float) -> float:
    """Return the smallest delta for ``epsilon`` that this bound gives for a rho-zCDP mechanism."""
    if rho == 0:
        return 0.0
    low, high = 1.01, max(2.0, (epsilon + 1) / (2 * rho) + 2)
    for _ in range(_STEPS):  # the derivative by alpha, which grows, is 0 at the best one
        alpha = (low + high) / 2
        slope = (2 * alpha - 1) * rho - epsilon + math.log1p(-1 / alpha)
        low, high = (alpha, high) if slope < 0 else (low, alpha)
    exponent = (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha)
    return min(1.0, math.exp(min(exponent, 0.0 if exponent > 700 else exponent)) / (alpha - 1.0))


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest rho that still gives (epsilon, delta); delta 0 asks for pure epsilon."""
    if delta == 0:
        return epsilon**2 / 2
    low, high = 0.0, epsilon + 1
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, epsilon) <= delta else (low, middle)
    return low


def epsilon_of(rho: float, delta: float) -> float:
    """Return the smallest epsilon at this delta of a rho-zCDP mechanism."""
    if rho == 0:
        return 0.0
    low, high = (
        0.0,
        rho + 2 * math.sqrt(rho * math.log(1 / delta)),
    )  # Bun and Steinke's bound is enough
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(rho, middle) <= delta else (middle, high)
    return high


def total_epsilon(spent: Iterable[Spent], delta: float) -> float:
    """Return the cost of all releases together at this delta.

    Those without a delta add up directly, or as rho, whichever is less.
    """
    spent = list(spent)
    pure = sum(one.pure_epsilon for one in spent if one.pure_epsilon is not None)
    others = sum(one.rho for one in spent if one.pure_epsilon is None)
    whole = sum(one.rho for one in spent)
    if delta == 0:
        return pure if others == 0 else math.inf
    return min(epsilon_of(whole, delta), pure + epsilon_of(others, delta))
