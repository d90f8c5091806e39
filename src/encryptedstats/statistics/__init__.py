"""The statistics people use, as questions: what totals each needs, and what the owner reads from them once they are opened.

A statistic is a question that reads its totals as a :class:`Result`. Imports tables and models, and knows no ciphertexts.
"""

from encryptedstats.statistics.linear import LinearRegression, Ridge
from encryptedstats.statistics.multivariate import (
    PCA,
    Correlation,
    Covariance,
    LinearDiscriminant,
    QuadraticDiscriminant,
)
from encryptedstats.statistics.results import Result

__all__ = [
    "PCA",
    "Correlation",
    "Covariance",
    "LinearDiscriminant",
    "LinearRegression",
    "QuadraticDiscriminant",
    "Result",
    "Ridge",
]
