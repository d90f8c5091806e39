"""Semi-parametric naive Bayes with iteratively reweighted least squares run to its end: only in the
clear.

The weights of the second step are no polynomial of the data, so that nobody can compute it
encrypted. Rows with the same value of a predictor are alike, so that a step needs no more than the
counts of every value.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from encryptedstats.metrics import auc
from encryptedstats.models import SemiparametricNB
from reproduction.evaluation.samples import Sample

# R's glm has the same two: at most 25 steps, or until the deviance changes by a hundred millionth
# of itself.
MOST_STEPS: Final = 25
_SMALL_CHANGE: Final = 1e-8
_SINGULAR: Final = 1e-10

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Logistic:
    """Intercepts and slopes of many simple logistic regressions.

    Attributes
    ----------
    intercept, slope : arrays
        One for each predictor.
    converged : boolean array
        Whether the deviance settled within the steps. Where a value of a predictor occurs in one
        class only, there is no maximum, and slopes grow until the steps are used up or the weights
        vanish.
    """

    intercept: Numbers
    slope: Numbers
    converged: NDArray[np.bool_]


def fit_irls(
    x: NDArray[np.int64], y: NDArray[Any], *, paired: bool = True, steps: int = MOST_STEPS
) -> Logistic:
    """One logistic regression for each column of ``x``, all from zero, by so many steps at most.

    Parameters
    ----------
    x : integer array of shape (n_rows, n_predictors)
        Codes of bins, or zeros and ones.
    y : array of zeros and ones
    paired : bool
        Intercept and slope together, or each as if the other were 0.
    steps : int
        1 gives the paper's one-step estimates.

    Examples
    --------
    >>> x, y = np.array([[1], [2], [3], [4]]), np.array([0, 1, 0, 1])
    >>> fit_irls(x, y).slope.round(3).tolist(), fit_irls(x, y, steps=1).slope.round(3).tolist()
    ([0.908], [0.8])
    """
    value, n, n1 = _grouped(x, y)
    intercept, slope = np.zeros(len(n)), np.zeros(len(n))
    deviance = np.full(len(n), np.inf)
    converged = np.zeros(len(n), dtype=bool)
    for _ in range(steps):
        eta = slope[:, None] * value + intercept[:, None]
        mu = expit(eta)
        now = 2 * (n * np.logaddexp(0, eta) - n1 * eta).sum(axis=1)
        converged |= np.abs(deviance - now) < _SMALL_CHANGE * (now + 0.1)
        deviance = now
        if converged.all():
            break
        up, along = _step(value, n1 - n * mu, n * mu * (1 - mu), paired)
        intercept = intercept + np.where(converged, 0, up)
        slope = slope + np.where(converged, 0, along)
    return Logistic(intercept if paired else np.full(len(n), logit(y.mean())), slope, converged)


def _grouped(x: NDArray[np.int64], y: NDArray[Any]) -> tuple[Numbers, Numbers, Numbers]:
    """The values of the predictors, and for each predictor how many rows have them, and how many of
    class 1.
    """
    low = int(x.min())
    values = np.arange(low, int(x.max()) + 1)
    cells = (x - low) + len(values) * np.arange(x.shape[1])
    counts = [
        np.bincount(part.ravel(), minlength=len(values) * x.shape[1])
        for part in (cells, cells[y == 1])
    ]
    n, n1 = (count.reshape(x.shape[1], len(values)).astype(float) for count in counts)
    return values.astype(float), n, n1


def _step(x: Numbers, residual: Numbers, weight: Numbers, paired: bool) -> tuple[Numbers, Numbers]:
    """Newton's step of intercept and slope; none where the weights have vanished."""
    wxx, rx = (weight * x * x).sum(axis=1), (residual * x).sum(axis=1)
    if not paired:
        return np.zeros(len(wxx)), _divide(rx, wxx)
    w, wx, r = weight.sum(axis=1), (weight * x).sum(axis=1), residual.sum(axis=1)
    determinant = w * wxx - wx**2
    return _divide(wxx * r - wx * rx, determinant), _divide(w * rx - wx * r, determinant)


def _divide(numerator: Numbers, denominator: Numbers) -> Numbers:
    usable = denominator > _SINGULAR
    return np.where(usable, numerator / np.where(usable, denominator, 1.0), 0.0)


#: Estimates: of intercept and slope together, by themselves, and by themselves from codes around 0.
VARIANTS: Final = {"paired": (True, False), "unpaired": (False, False), "centred": (False, True)}


def compare_convergence(sample: Sample, variant: str) -> dict[str, Any]:
    """AUC of one step and of convergence on a split, for one of :data:`VARIANTS`."""
    paired, centred = VARIANTS[variant]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="constant predictors")
        model = SemiparametricNB(paired=paired, centred=centred).fit(sample.train)
    one_step = auc(sample.y_test, model.predict_log_odds(sample.test))
    x, x_new = model._matrix(sample.train), model._matrix(sample.test)
    varies = np.ptp(x, axis=0) > 0
    fit = fit_irls(x[:, varies], sample.y_train, paired=paired)
    # What all rows share (intercepts, the power of theta) moves no row past another.
    converged = auc(sample.y_test, x_new[:, varies] @ fit.slope)
    return {
        "variant": variant,
        "one_step": one_step,
        "converged": converged,
        "ratio": converged / one_step,
        "predictors": int(varies.sum()),
        "not_settled": int((~fit.converged).sum()),
    }
