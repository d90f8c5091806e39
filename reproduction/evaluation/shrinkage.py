"""What one step of reweighted least squares does to a binary predictor: shrinkage and
generalisation error (paper, section 4.2.3).

Three ways to the same numbers: the paper's formulas, the exact expectation over a binomial count,
and a simulation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom

from reproduction.evaluation.results import ResultFolder, write_csv
from reproduction.evaluation.settings import Settings, derived_seed

_REPEATS: Final = 20_000
_ROWS: Final = 100  # of the simulated shrinkage; the expectation does not depend on it
SIZES: Final = (1, 2, 3, 5, 10, 20, 50, 100)
_BETAS: Final = tuple(np.round(np.arange(-6, 6.01, 0.25), 2).tolist())
_SHARES: Final = tuple(np.round(np.arange(0.0, 1.001, 0.05), 2).tolist())

Numbers = NDArray[np.float64]


def one_step_slope(n1: NDArray[Any], n: int) -> Numbers:
    """The one-step slope of a binary predictor that is 1 in n rows, n1 of them of class 1 (section
    Logistic Regression).
    """
    return np.asarray(2 * (2 * n1 - n) / n, dtype=float)


def expected_shrinkage(beta: Numbers) -> Numbers:
    """E[slope] - beta (section Logistic Regression): the expected slope is 4p - 2."""
    return np.asarray(4 * expit(beta) - 2 - beta)


def approximate_error(n: int, p: Numbers) -> Numbers:
    """The paper's cubic approximation of the generalisation error E[p~ - p] from n rows."""
    cubic = 8 * n**2 * p**3 - 12 * n**2 * p**2 + 6 * n**2 * p - n**2
    linear = -24 * n * p**3 + 36 * n * p**2 - 12 * n * p
    return np.asarray(-(cubic + linear + 16 * p**3 - 24 * p**2 + 8 * p) / (6 * n**2))


def approximate_limit(p: Numbers) -> Numbers:
    """Its limit for many rows."""
    return np.asarray(-((2 * p - 1) ** 3) / 6)


def exact_error(n: int, p: Numbers) -> Numbers:
    """E[p~ - p] itself: a sum over the n + 1 counts there can be."""
    counts = np.arange(n + 1)
    weights = binom.pmf(counts[:, None], n, p[None, :])
    return np.asarray((weights * expit(one_step_slope(counts, n))[:, None]).sum(axis=0) - p)


def exact_limit(p: Numbers) -> Numbers:
    """Its limit for many rows, where the slope is its expectation."""
    return np.asarray(expit(4 * p - 2) - p)


def simulate_shrinkage(seed: int) -> list[dict[str, float]]:
    """Mean difference of slope and beta over many simulated tables, beside the formula."""
    rng = np.random.default_rng(derived_seed(seed, "shrinkage"))
    rows = []
    for beta in _BETAS:
        slopes = one_step_slope(rng.binomial(_ROWS, expit(beta), _REPEATS), _ROWS)
        error = slopes.std(ddof=1) / np.sqrt(_REPEATS)
        theory = float(expected_shrinkage(np.array(beta)))
        rows.append(
            {
                "beta": beta,
                "theory": theory,
                "simulated": float(slopes.mean() - beta),
                "standard_error": float(error),
            }
        )
    return rows


def simulate_error(seed: int) -> list[dict[str, float]]:
    """Mean difference of predicted and true probability over many simulated tables, beside the
    formulas.
    """
    rng = np.random.default_rng(derived_seed(seed, "generalisation"))
    p = np.array(_SHARES)
    rows = []
    for n in SIZES:
        predicted = expit(one_step_slope(rng.binomial(n, p, (_REPEATS, len(p))), n))
        columns = {
            "p": p,
            "approximation": approximate_error(n, p),
            "exact": exact_error(n, p),
            "simulated": predicted.mean(axis=0) - p,
            "standard_error": predicted.std(axis=0, ddof=1) / np.sqrt(_REPEATS),
            "approximate_limit": approximate_limit(p),
            "exact_limit": exact_limit(p),
        }
        rows += [
            {"n": n, **{name: float(v[i]) for name, v in columns.items()}} for i in range(len(p))
        ]
    return rows


def run_shrinkage(settings: Settings) -> int:
    """Simulate both; returns how many of them were not there."""
    folder = ResultFolder(
        settings.output, "shrinkage", {"seed": settings.seed, "repeats": _REPEATS}
    )
    done = 0
    for name, simulate in (("shrinkage", simulate_shrinkage), ("generalisation", simulate_error)):
        path: Path = folder.path / f"{name}.csv"
        if not path.exists():
            write_csv(
                path, [{k: f"{v:.6g}" for k, v in row.items()} for row in simulate(settings.seed)]
            )
            done += 1
    return done
