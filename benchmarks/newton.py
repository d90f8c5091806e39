"""Newton steps of a logistic regression whose owner returns encrypted weights: what a step takes.

``python -m benchmarks.newton`` prints, for tables of some numbers of columns, what the plan of a
step counts and how many Newton steps in the clear take the CPU time that the owner needs to encrypt
the two columns of a step, the weights and the residuals.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd

import encryptedstats as es
from encryptedstats.circuits.expressions import Expression

ROWS = 81_920
COLUMNS = (5, 20, 50)
KEPT = {"w": (0.0, 0.25), "r": (-1.0, 1.0)}


def step_totals(p: int) -> list[Expression]:
    """Return the totals of a step, X'WX and X'r, of p columns, the weights and the residuals."""
    *x, w, r = [es.column(f"v{j}.number") for j in range(p + 2)]
    information = [(a * w * b).total() for a, b in combinations_with_replacement(x, 2)]
    return [*information, *((a * r).total() for a in x)]


def schema_of(p: int) -> es.Schema:
    """Return the schema of p numbers of two digits, with weights and residuals of three."""
    bounds = {**{f"x{j}": (-5.0, 5.0) for j in range(p)}, **KEPT}
    frame = pd.DataFrame(
        {name: np.linspace(low, high, 101) for name, (low, high) in bounds.items()}
    )
    frame = frame.sample(frac=1.0, random_state=0, ignore_index=True)
    digits = {name: 3 if name in KEPT else 2 for name in frame}
    shifted = pd.DataFrame({name: np.roll(one, k) for k, (name, one) in enumerate(frame.items())})
    return es.Schema.infer(shifted.round(3), numbers="keep", digits=digits, bounds=bounds)


def cpu_seconds(act: Callable[[], object]) -> float:
    """Return the CPU time of the fastest of three calls."""
    found = []
    for _ in range(3):
        started = time.process_time()
        act()
        found.append(time.process_time() - started)
    return min(found)


def newton_step(p: int) -> Callable[[], object]:
    """Return a Newton step on random rows in the clear."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, p))
    y, beta = (rng.random(ROWS) < 0.5).astype(float), rng.normal(size=p) / p

    def step() -> object:
        mean = 1 / (1 + np.exp(-x @ beta))
        weights = mean * (1 - mean)
        return np.linalg.solve(x.T @ (x * weights[:, None]), x.T @ (y - mean))

    return step


def encrypting(parameters: es.Parameters) -> Callable[[], object]:
    """Return the encryption of the two columns of a step."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"w": rng.random(ROWS) / 4, "r": 2 * rng.random(ROWS) - 1}).round(3)
    schema = es.Schema.infer(frame, numbers="keep", digits=3, bounds=KEPT)
    table, owner = schema.table(frame, slots=parameters.slots), es.Owner(parameters)
    return lambda: owner.encrypt(table, workers=1)


def main() -> None:
    """Print a line for each number of columns."""
    for p in COLUMNS:
        plan = es.plan(step_totals(p), schema_of(p), n_rows=ROWS)
        ratio = cpu_seconds(encrypting(plan.parameters)) / cpu_seconds(newton_step(p))
        print(
            f"{p} columns: {plan.n_totals:,} totals, {plan.products:,} products and "
            f"{plan.key_switches:,} key switches a step; the owner encrypts in the CPU time of "
            f"{ratio:.1f} steps in the clear"
        )


if __name__ == "__main__":
    main()
