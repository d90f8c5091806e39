"""The statistics people use, as questions: what totals each needs, and what the owner reads from
them once they are opened.

A statistic is a question that reads its totals as a :class:`Result`. Imports tables and models, and
knows no ciphertexts. Its module is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from encryptedstats.lazy import import_on_use

if TYPE_CHECKING:
    from encryptedstats.statistics.comparisons import Anova, TTest
    from encryptedstats.statistics.competing import CumulativeIncidence
    from encryptedstats.statistics.components import PCA
    from encryptedstats.statistics.contingency import (
        ChiSquare,
        CochranArmitage,
        CochranQ,
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
    from encryptedstats.statistics.manova import Manova
    from encryptedstats.statistics.multinomial import MultinomialRegression
    from encryptedstats.statistics.multivariate import (
        Correlation,
        Covariance,
        CronbachAlpha,
        LinearDiscriminant,
        PartialCorrelation,
        QuadraticDiscriminant,
    )
    from encryptedstats.statistics.pairs import Pairs
    from encryptedstats.statistics.pairwise import PairwiseTTest, VarianceTest
    from encryptedstats.statistics.pairwise_tests import (
        PairwiseLogRank,
        PairwiseMannWhitney,
        PairwiseProportions,
    )
    from encryptedstats.statistics.ranks import (
        KruskalWallis,
        MannWhitney,
        Quantiles,
        RankCorrelation,
        SignedRank,
    )
    from encryptedstats.statistics.rates import StandardisedRate
    from encryptedstats.statistics.scores import ROC, Concordance
    from encryptedstats.statistics.survival import IncidenceRate, KaplanMeier, LifeTable, LogRank
    from encryptedstats.tables.answers.results import Result

_MODULES: Final = {
    ".comparisons": ("Anova", "TTest"),
    ".competing": ("CumulativeIncidence",),
    ".components": ("PCA",),
    ".contingency": (
        "ChiSquare",
        "CochranArmitage",
        "CochranQ",
        "FisherExact",
        "Kappa",
        "MantelHaenszel",
        "McNemar",
        "OddsRatio",
    ),
    ".cox": ("CoxRegression",),
    ".descriptive": ("Describe", "Histogram"),
    ".elastic_net": ("ElasticNet",),
    ".generalized": ("GLM",),
    ".genome": ("GenomeScan",),
    ".hazards": ("CoxScore", "PiecewiseExponential"),
    ".linear": ("LinearRegression", "Ridge"),
    ".manova": ("Manova",),
    ".multinomial": ("MultinomialRegression",),
    ".multivariate": (
        "Correlation",
        "Covariance",
        "CronbachAlpha",
        "LinearDiscriminant",
        "PartialCorrelation",
        "QuadraticDiscriminant",
    ),
    ".pairs": ("Pairs",),
    ".pairwise": ("PairwiseTTest", "VarianceTest"),
    ".pairwise_tests": ("PairwiseLogRank", "PairwiseMannWhitney", "PairwiseProportions"),
    ".ranks": ("KruskalWallis", "MannWhitney", "Quantiles", "RankCorrelation", "SignedRank"),
    ".rates": ("StandardisedRate",),
    ".scores": ("ROC", "Concordance"),
    ".survival": ("IncidenceRate", "KaplanMeier", "LifeTable", "LogRank"),
    "encryptedstats.tables.answers.results": ("Result",),
}
__getattr__ = import_on_use(__name__, _MODULES)

__all__ = [
    "GLM",
    "PCA",
    "ROC",
    "Anova",
    "ChiSquare",
    "CochranArmitage",
    "CochranQ",
    "Concordance",
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
    "Manova",
    "MantelHaenszel",
    "McNemar",
    "MultinomialRegression",
    "OddsRatio",
    "Pairs",
    "PairwiseLogRank",
    "PairwiseMannWhitney",
    "PairwiseProportions",
    "PairwiseTTest",
    "PartialCorrelation",
    "PiecewiseExponential",
    "QuadraticDiscriminant",
    "Quantiles",
    "RankCorrelation",
    "Result",
    "Ridge",
    "SignedRank",
    "StandardisedRate",
    "TTest",
    "VarianceTest",
]
