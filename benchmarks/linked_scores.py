"""Poisson and Cox regressions over linked columns, by one encrypted column of scores for each site
and round: how exact they are, and what a round takes.

The mean exp(a + b) of a person is exp(a) exp(b), where a is known to one site and b to the other,
so the worker could multiply encrypted scores exp(a) and exp(b), rounded to some decimal places.
``python -m benchmarks.linked_scores`` prints how far the coefficients are from those of the joined
rows, in standard errors, and what the plan of a round counts.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt
import pandas as pd

import encryptedstats as es
from encryptedstats.circuits.expressions import Expression

Floats = npt.NDArray[np.float64]
ROWS, COLUMNS, ROUNDS = 10_000, 4, 30  # half of the columns at each site
DECIMALS = (2, 3, 4)
LARGEST = 20.0  # of a score


def round_totals() -> list[Expression]:
    """Return the totals of a round: the scores, times columns and products of two columns."""
    *x, first, second = [es.column(f"v{j}.number") for j in range(COLUMNS + 2)]
    mean = first * second
    pairs = [mean * a * b for a, b in combinations_with_replacement(x, 2)]
    return [one.total() for one in (mean, *(mean * a for a in x), *pairs)]


def schema_of(decimals: int) -> es.Schema:
    """Return the schema of the columns, of one decimal place, and of two columns of scores."""
    scores = {"first": (0.0, LARGEST), "second": (0.0, LARGEST)}
    bounds = {**{f"x{j}": (-3.0, 3.0) for j in range(COLUMNS)}, **scores}
    frame = pd.DataFrame({name: np.linspace(*ends, 121) for name, ends in bounds.items()})
    shifted = pd.DataFrame({name: np.roll(one, k) for k, (name, one) in enumerate(frame.items())})
    digits = {name: decimals if name in scores else 1 for name in frame}
    return es.Schema.infer(shifted.round(decimals), numbers="keep", digits=digits, bounds=bounds)


def fit_poisson(x: Floats, y: Floats, decimals: int | None) -> tuple[Floats, Floats]:
    """Return coefficients and standard errors after Newton steps with scores rounded to some decimal places."""
    beta, half = np.zeros(x.shape[1]), x.shape[1] // 2
    for _ in range(ROUNDS):
        scores = [np.exp(x[:, s] @ beta[s]) for s in (slice(None, half), slice(half, None))]
        if decimals is not None:
            scores = [one.round(decimals) for one in scores]
        mean = scores[0] * scores[1]
        information = x.T @ (x * mean[:, None])
        beta = beta + np.linalg.solve(information, x.T @ (y - mean))
    return beta, np.sqrt(np.diag(np.linalg.inv(information)))


def main() -> None:
    """Print a line for each number of decimal places."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).clip(-3, 3).round(1)
    x[:, 0] = 1.0
    y = rng.poisson(np.exp(x @ np.array([-0.5, 0.3, -0.2, 0.4]))).astype(float)
    exact, errors = fit_poisson(x, y, None)
    for decimals in DECIMALS:
        found, _ = fit_poisson(x, y, decimals)
        line = f"{decimals} places: off by {np.abs(found - exact).max():.1e}, "
        line += f"{np.abs((found - exact) / errors).max():.1e} standard errors"
        try:
            plan = es.plan(round_totals(), schema_of(decimals), n_rows=ROWS)
        except es.EncryptedStatsError as error:
            print(f"{line}; a round cannot be planned ({error.code})")
            continue
        print(
            f"{line}; a round has {plan.n_totals} totals, {plan.products:,} products and "
            f"{plan.key_switches:,} key switches, and a ring of {plan.parameters.slots:,}"
        )


if __name__ == "__main__":
    main()
