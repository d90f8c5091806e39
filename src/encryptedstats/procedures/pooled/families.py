"""Families and links of generalised linear models, as R's ``glm`` has them, for the rows of a site.

A family or a link is an entry of a table. Means are kept off the ends of their range by R's
thresholds, so that warnings of separation come in the same round as R's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr, ndtri, xlogy

Floats = NDArray[np.float64]
_EPS: Final = float(np.finfo(float).eps)
_BOUNDARY: Final = 10 * _EPS

BINOMIAL, POISSON, GAMMA, NEGATIVE = "binomial", "poisson", "gamma", "negative binomial"
GAUSSIAN: Final = "gaussian"
GLM_FAMILIES: Final = (BINOMIAL, POISSON, GAMMA, NEGATIVE)
PENALISED_FAMILIES: Final = (GAUSSIAN, BINOMIAL, POISSON, GAMMA)


# -- links -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """A link function.

    Attributes
    ----------
    apply, invert : function
        From means to linear predictors, and back.
    slope : function
        The derivative of the mean.
    is_valid : function
        Which linear predictors have a mean.
    """

    apply: Callable[[Any], Any]
    invert: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    is_valid: Callable[[Any], Any] = np.isfinite


def _normal_density(eta: Any) -> Any:
    return np.exp(-(eta**2) / 2) / np.sqrt(2 * np.pi)


def _invert_logit(eta: Any) -> Any:
    odds = np.exp(np.clip(eta, -30, 30))
    odds = np.where(eta < -30, _EPS, np.where(eta > 30, 1 / _EPS, odds))
    return odds / (1 + odds)


def _logit_slope(eta: Any) -> Any:
    odds = np.exp(-np.abs(np.clip(eta, -30, 30)))
    return np.where(np.abs(eta) > 30, _EPS, odds / (1 + odds) ** 2)


def _invert_cloglog(eta: Any) -> Any:
    return np.clip(-np.expm1(-np.exp(np.minimum(eta, 700))), _EPS, 1 - _EPS)


def _cloglog_slope(eta: Any) -> Any:
    eta = np.minimum(eta, 700)
    return np.maximum(np.exp(eta - np.exp(eta)), _EPS)


def _exponential(eta: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.maximum(np.exp(eta), _EPS)


_FARTHEST: Final = float(-ndtri(_EPS))

LINKS: Final[Mapping[str, Link]] = {
    "logit": Link(lambda mu: np.log(mu / (1 - mu)), _invert_logit, _logit_slope),
    "probit": Link(
        ndtri,
        lambda eta: ndtr(np.clip(eta, -_FARTHEST, _FARTHEST)),
        lambda eta: np.maximum(_normal_density(eta), _EPS),
    ),
    "cloglog": Link(lambda mu: np.log(-np.log1p(-mu)), _invert_cloglog, _cloglog_slope),
    "log": Link(np.log, _exponential, _exponential),
    "identity": Link(lambda mu: mu, lambda eta: eta, np.ones_like),
    "sqrt": Link(
        np.sqrt,
        lambda eta: eta**2,
        lambda eta: 2 * eta,
        lambda eta: np.isfinite(eta) & (eta > 0),
    ),
    "inverse": Link(
        lambda mu: 1 / mu,
        lambda eta: 1 / eta,
        lambda eta: -1 / eta**2,
        lambda eta: np.isfinite(eta) & (eta != 0),
    ),
}


# -- families --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """A family of distributions.

    Attributes
    ----------
    links : tuple of str
        The first is R's default.
    variance, deviance : function
        Of the mean; of the outcome and the mean, for each row. The last argument is the shape of
        the negative binomial, which others ignore.
    start : function
        Means to start from, as R's.
    is_valid : function
        Which means there can be.
    is_at_boundary : function
        Which means are numerically at an end of their range.
    sums : function
        Totals of the outcome and the exposure that the log-likelihood and the null model need.
    boundary : str
        R's warning of such means.
    needs : str
        What outcomes have to be; "" for classes.
    is_possible : function
        Which outcomes there can be.
    """

    links: tuple[str, ...]
    variance: Callable[[Any, float], Any]
    deviance: Callable[[Any, Any, float], Any]
    start: Callable[[Any], Any]
    is_valid: Callable[[Any], Any]
    is_at_boundary: Callable[[Any], Any]
    sums: Callable[[Any, Any], list[Any]]
    boundary: str = ""
    needs: str = ""
    is_possible: Callable[[Any], Any] = np.isfinite


def _is_positive(mu: Any) -> Any:
    return np.isfinite(mu) & (mu > 0)


def _is_count(y: Any) -> Any:
    return y >= 0


def _count_sums(y: Any, exposure: Any) -> list[Any]:
    logs = [xlogy(y, y).sum(), gammaln(y + 1).sum()]
    return [y.sum(), *logs, exposure.sum(), xlogy(y, exposure).sum()]


def _ratio(y: Any, mu: Any) -> Any:
    return np.where(y > 0, y / mu, 1.0)


def _negative_deviance(y: Any, mu: Any, theta: float) -> Any:
    shared = (y + theta) * np.log((y + theta) / (mu + theta))
    return 2 * (y * np.log(np.maximum(1, y) / mu) - shared)


_RATES_ZERO: Final = "fitted rates numerically 0 occurred"

FAMILIES: Final[Mapping[str, Family]] = {
    BINOMIAL: Family(
        ("logit", "probit", "cloglog"),
        lambda mu, theta: mu * (1 - mu),
        lambda y, mu, theta: -2 * np.log(np.where(y > 0, mu, 1 - mu)),
        lambda y: (y + 0.5) / 2,
        lambda mu: np.isfinite(mu) & (mu > 0) & (mu < 1),
        lambda mu: (mu < _BOUNDARY) | (mu > 1 - _BOUNDARY),
        lambda y, exposure: [y.sum()],
        boundary="fitted probabilities numerically 0 or 1 occurred",
    ),
    GAUSSIAN: Family(
        ("identity",),
        lambda mu, theta: np.ones_like(mu),
        lambda y, mu, theta: (y - mu) ** 2,
        lambda y: y,
        np.isfinite,
        lambda mu: np.zeros(len(mu), dtype=bool),
        lambda y, exposure: [y.sum(), (y**2).sum()],
    ),
    POISSON: Family(
        ("log", "identity", "sqrt"),
        lambda mu, theta: mu,
        lambda y, mu, theta: 2 * (xlogy(y, _ratio(y, mu)) - (y - mu)),
        lambda y: y + 0.1,
        _is_positive,
        lambda mu: mu < _BOUNDARY,
        _count_sums,
        boundary=_RATES_ZERO,
        needs="at least 0",
        is_possible=_is_count,
    ),
    GAMMA: Family(
        ("inverse", "log", "identity"),
        lambda mu, theta: mu**2,
        lambda y, mu, theta: -2 * (np.log(y / mu) - (y - mu) / mu),
        lambda y: y,
        _is_positive,
        lambda mu: np.zeros(len(mu), dtype=bool),
        lambda y, exposure: [y.sum(), np.log(y).sum()],
        needs="above 0",
        is_possible=lambda y: y > 0,
    ),
    NEGATIVE: Family(
        ("log",),
        lambda mu, theta: mu + mu**2 / theta,
        _negative_deviance,
        lambda y: y + 0.1,
        _is_positive,
        lambda mu: mu < _BOUNDARY,
        _count_sums,
        boundary=_RATES_ZERO,
        needs="at least 0",
        is_possible=_is_count,
    ),
}
#: Theta of a negative binomial moves no further.
LARGEST_THETA: Final = 1e9
#: The families whose dispersion is estimated.
ESTIMATED: Final = (GAMMA,)
