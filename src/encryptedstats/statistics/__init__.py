"""The statistics people use, as questions: what totals each needs, and what the owner reads from
them once they are opened.

A statistic is a question that reads its totals as a :class:`Result`. Imports tables and models, and
knows no ciphertexts.
"""

from encryptedstats.statistics.comparisons import Anova, TTest
from encryptedstats.statistics.competing import CumulativeIncidence
from encryptedstats.statistics.contingency import (
    ROC,
    ChiSquare,
    CochranArmitage,
    FisherExact,
    Kappa,
    MantelHaenszel,
    McNemar,
    OddsRatio,
)
from encryptedstats.statistics.cox import CoxRegression
from encryptedstats.statistics.descriptive import Describe, Histogram
from encryptedstats.statistics.elastic_net import ElasticNet
from encryptedstats.statistics.generalized import GLM
from encryptedstats.statistics.genome import GenomeScan
from encryptedstats.statistics.hazards import CoxScore, PiecewiseExponential
from encryptedstats.statistics.linear import LinearRegression, Ridge
from encryptedstats.statistics.multivariate import (
    PCA,
    Correlation,
    Covariance,
    CronbachAlpha,
    LinearDiscriminant,
    PartialCorrelation,
    QuadraticDiscriminant,
)
from encryptedstats.statistics.pairs import Pairs
from encryptedstats.statistics.pairwise import PairwiseTTest, VarianceTest
from encryptedstats.statistics.ranks import (
    KruskalWallis,
    MannWhitney,
    Quantiles,
    RankCorrelation,
    SignedRank,
)
from encryptedstats.statistics.survival import IncidenceRate, KaplanMeier, LifeTable, LogRank
from encryptedstats.tables.answers.results import Result

__all__ = [
    "GLM",
    "PCA",
    "ROC",
    "Anova",
    "ChiSquare",
    "CochranArmitage",
    "Correlation",
    "Covariance",
    "CoxRegression",
    "CoxScore",
    "CronbachAlpha",
    "CumulativeIncidence",
    "Describe",
    "ElasticNet",
    "FisherExact",
    "GenomeScan",
    "Histogram",
    "IncidenceRate",
    "KaplanMeier",
    "Kappa",
    "KruskalWallis",
    "LifeTable",
    "LinearDiscriminant",
    "LinearRegression",
    "LogRank",
    "MannWhitney",
    "MantelHaenszel",
    "McNemar",
    "OddsRatio",
    "Pairs",
    "PairwiseTTest",
    "PartialCorrelation",
    "PiecewiseExponential",
    "QuadraticDiscriminant",
    "Quantiles",
    "RankCorrelation",
    "Result",
    "Ridge",
    "SignedRank",
    "TTest",
    "VarianceTest",
]
