"""Tails and quantiles that several statistics need. scipy.stats takes a while to import: only where
a test is read.
"""

from __future__ import annotations


def chi2_tail(statistic: float, dof: float) -> float:
    """Return the probability that a chi-square variable is at least ``statistic``."""
    from scipy.stats import chi2

    return float(chi2.sf(statistic, dof))


def normal_quantile(level: float) -> float:
    """Return z such that a normal deviate lies between -z and z with this probability."""
    from scipy.stats import norm

    return float(norm.ppf((1 + level) / 2))


def normal_tails(z: float) -> float:
    """Return the two-sided p-value of a normal deviate."""
    from scipy.stats import norm

    return float(2 * norm.sf(abs(z)))
