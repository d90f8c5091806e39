"""The rounds of a negative binomial regression: coefficients and theta move together.

A Poisson regression gives the start of both. Then Newton steps on the log-likelihood of the
coefficients and of log(theta) together converge in a few rounds, to the maximum that
``MASS::glm.nb`` finds by turns. A last round opens the expected information, which standard errors
are made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma, xlogy

from encryptedstats.procedures.pooled.algebra import Cholesky, n_pairs, unpack
from encryptedstats.procedures.pooled.families import FAMILIES, LARGEST_THETA, NEGATIVE
from encryptedstats.procedures.pooled.scaling import weighted_products

Floats = NDArray[np.float64]
#: Theta moves by a factor of at most this in a round.
_FASTEST: Final = 4.0
_MOST_THETA_OF_MOMENTS: Final = 100.0


def n_joint_totals(n_columns: int) -> int:
    """Return how many totals a joint round has: information and score of the coefficients and of
    log(theta), the log-likelihood, the deviance, and three for standard errors and warnings.
    """
    return n_pairs(n_columns + 1) + n_columns + 1 + 5


def moment_totals(y: Floats, mu: Floats) -> list[float]:
    """Return the totals by which theta starts: of the variance beyond Poisson's."""
    return [float(((y - mu) ** 2 - mu).sum()), float((mu**2).sum())]


def first_theta(beyond: float, squares: float) -> float:
    """Return theta by moments."""
    least = squares / _MOST_THETA_OF_MOMENTS
    return squares / max(beyond, least) if squares > 0 else 1.0


def measure_joint(z: Floats, y: Floats, mu: Floats, theta: float) -> list[float]:
    """Return the totals of a joint round at one site, with the link log."""
    share = theta / (theta + mu)
    slope = digamma(theta + y) - digamma(theta) + np.log(share) + 1 - (y + theta) / (mu + theta)
    curvature = (
        polygamma(1, theta)
        - polygamma(1, theta + y)
        - 1 / theta
        + 2 / (mu + theta)
        - (y + theta) / (mu + theta) ** 2
    )
    cross = -theta * (y - mu) * mu / (theta + mu) ** 2
    products = weighted_products(z, mu * share**2 * (1 + y / theta))
    corner = float((theta**2 * curvature - theta * slope).sum())
    packed, borders = [], (z.T @ cross).tolist()
    for a in range(z.shape[1]):
        size = z.shape[1] - a
        packed += [*products[:size], borders[a]]
        products = products[size:]
    own = y * np.log(np.maximum(1, y)) - xlogy(y + theta, y + theta)
    likelihood = (
        gammaln(theta + y)
        - gammaln(theta)
        - gammaln(y + 1)
        + theta * np.log(share)
        + xlogy(y, mu / (theta + mu))
    )
    return [
        *packed,
        corner,
        *(z.T @ (share * (y - mu))).tolist(),
        theta * float(slope.sum()),
        float(likelihood.sum()),
        float(FAMILIES[NEGATIVE].deviance(y, mu, theta).sum()),
        float(own.sum()),
        float(curvature.sum()),
        float(FAMILIES[NEGATIVE].is_at_boundary(mu).any()),
    ]


def expected_information(z: Floats, mu: Floats, theta: float) -> list[float]:
    """Return X'WX of Fisher scoring at one site."""
    return weighted_products(z, mu * theta / (theta + mu))


def move_jointly(
    state: Any, values: Sequence[float], tolerance: tuple[float, float], epsilon: float
) -> dict[str, Any]:
    """Return what changes after a joint round: the next coefficients and theta, or that both have
    arrived.
    """
    n = len(state["beta"])
    matrix = unpack(values[: n_pairs(n + 1)], n + 1)
    score, rest = list(values[n_pairs(n + 1) :][: n + 1]), values[n_pairs(n + 1) + n + 1 :]
    likelihood, deviance, own, curvature, boundary = rest
    before, theta = state.get("likelihood"), state["theta"]
    if before is not None and not likelihood >= before - 1e-9 * abs(before):
        pairs = zip(state["beta"], state["last"], strict=True)
        halved = [(a + b) / 2 for a, b in pairs]
        return {"beta": halved, "theta": (theta + state["last_theta"]) / 2}
    found = {"likelihood": likelihood, "deviance": deviance, "own": own}
    found |= {"curvature": curvature, "boundary": bool(boundary)}
    factors = Cholesky.of(matrix, *tolerance)
    if n in factors.kept:
        *step, growth = factors.solve(score)
    else:  # the likelihood is not concave in log(theta) here: go towards its maximum
        of_beta = [row[:n] for row in matrix[:n]]
        step = Cholesky.of(of_beta, *tolerance).solve(score[:n])
        growth = math.copysign(1.0, score[n])
    largest = max(abs(one) for one in [*step, growth])
    if largest <= math.sqrt(epsilon) and n in factors.kept:
        arrived = largest <= epsilon or state.get("close", False)
        found["close"] = True
        if arrived:
            return {**found, "converged": True}
    following = theta * min(max(1 + growth, 1 / _FASTEST), _FASTEST)
    moved = [a + b for a, b in zip(state["beta"], step, strict=True)]
    return {
        **found,
        "beta": moved,
        "last": state["beta"],
        "theta": min(following, LARGEST_THETA),
        "last_theta": theta,
    }
