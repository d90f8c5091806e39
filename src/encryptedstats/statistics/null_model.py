"""The logistic regression on covariates alone, whose residuals and weights a score test needs.

The owner fits it in the clear, before anything is encrypted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.errors import ArgumentError, DataError

_STEPS: Final = 50
_CONVERGED: Final = 1e-10


def null_model(
    people: pd.DataFrame,
    target: str,
    covariates: Sequence[str] = (),
    *,
    event: Any = None,
    digits: int = 3,
) -> pd.DataFrame:
    """Return the people with two more columns, ``residual`` and ``weight``, of the logistic
    regression of a trait on covariates: y - p and p (1 - p).

    ``GenomeScan(null_model=["residual", "weight"], covariates=[...])`` makes score tests of them.

    Parameters
    ----------
    people : DataFrame
        All people of the scan: the model is of all of them, so that none can be added later.
    target : str
        The trait: a column of two values.
    covariates : sequence of str
        Columns of numbers or categories.
    event : optional
        Which of the two values is the case; by default the larger.
    digits : int
        Decimal digits that are kept: more make larger keys, fewer a coarser test.

    Examples
    --------
    >>> people = pd.DataFrame({"sick": [0, 1, 0, 1, 1], "age": [40, 50, 60, 70, 55]})
    >>> null_model(people, "sick", ["age"]).round(2)["residual"].tolist()
    [-0.28, 0.5, -0.72, 0.13, 0.38]
    """
    levels = sorted(people[target].unique())
    event = levels[-1] if event is None else event
    if len(levels) != 2 or event not in levels:
        raise ArgumentError(
            f"target {target!r} has the values {levels}: two are needed, and one of them as event",
            code="not-two-values",
        )
    y = (people[target] == event).to_numpy(dtype=float)
    dummies = pd.get_dummies(people[list(covariates)], drop_first=True)
    x = np.column_stack([np.ones(len(people)), dummies.to_numpy(dtype=float)])
    p = _fit(x, y)
    return people.assign(residual=np.round(y - p, digits), weight=np.round(p * (1 - p), digits))


def _fit(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities at the maximum of the likelihood, by Newton's method."""
    scale = np.abs(x).max(axis=0)
    x = x / np.where(scale > 0, scale, 1)
    beta = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-x @ beta))
        information = (x * (p * (1 - p))[:, None]).T @ x
        try:
            step = np.linalg.solve(information, x.T @ (y - p))
        except np.linalg.LinAlgError:
            break
        beta = beta + step
        if np.abs(step).max() < _CONVERGED:
            found: NDArray[np.float64] = 1 / (1 + np.exp(-x @ beta))
            return found
    raise DataError(
        "the logistic regression on the covariates does not converge: one follows from the others, "
        "or they tell cases from controls",
        code="no-convergence",
    )
