"""Tails and quantiles that several statistics need. scipy.stats takes a while to import: only where
a test is read.
"""

from __future__ import annotations


def chi2_tail(statistic: float, dof: float) -> float:
    """How likely a chi-square is that is at least so large."""
    from scipy.stats import chi2

    return float(chi2.sf(statistic, dof))


def normal_quantile(level: float) -> float:
    """Between which multiples of the standard error an interval of this level lies."""
    from scipy.stats import norm

    return float(norm.ppf((1 + level) / 2))


def normal_tails(z: float) -> float:
    """How likely a normal deviate is that is at least so far from 0 on either side."""
    from scipy.stats import norm

    return float(2 * norm.sf(abs(z)))
