"""encryptedstats: statistical machine learning on encrypted data.

Somebody encrypts a table, a computer that is never trusted with it computes, and only the owner opens the result.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from encryptedstats.circuits import column
from encryptedstats.circuits.plan import Plan
from encryptedstats.crypto import EncryptedArray, EncryptedInteger, Owner, Parameters, PublicKeys
from encryptedstats.errors import (
    BusyError,
    ClusterError,
    DataError,
    DeviceError,
    EncryptedStatsError,
    FileFormatError,
    HeavyArrayWarning,
    HelperError,
    InsecureKeyFileWarning,
    InsecureParametersWarning,
    KeyMismatchError,
    NoiseError,
    ParameterError,
    PassphraseError,
    RowsByOthersError,
    SchemaError,
    SchemaWarning,
    StorageError,
)
from encryptedstats.loading import load
from encryptedstats.tables import EncryptedAnswer, EncryptedTable, PublicSchema, Question, Schema, Table, plan
from encryptedstats.tables.questions import found_in

if TYPE_CHECKING:
    from encryptedstats import cluster as cluster
    from encryptedstats.models import (
        CalibratedModel,
        CompletelyRandomForest,
        FisherDiscriminant,
        LinearMeans,
        MultinomialNB,
        OneStepLogisticRegression,
        SemiparametricNB,
        TotalsClassifier,
        TotalsModel,
        Votes,
        score_folds,
    )
    from encryptedstats.statistics import (
        GLM,
        PCA,
        ROC,
        Anova,
        ChiSquare,
        CochranArmitage,
        Correlation,
        Covariance,
        CoxScore,
        Describe,
        FisherExact,
        GenomeScan,
        Histogram,
        IncidenceRate,
        KaplanMeier,
        Kappa,
        LifeTable,
        LinearDiscriminant,
        LinearRegression,
        LogRank,
        MantelHaenszel,
        OddsRatio,
        PiecewiseExponential,
        QuadraticDiscriminant,
        Result,
        Ridge,
        TTest,
    )
    from encryptedstats.tables.transformers import FixedPoint, QuantileOneHot, QuantileOrdinal

__version__ = "0.2.0"

# What needs scikit-learn, which takes a second to import, is imported when it is first asked for.
_LATE = {
    **dict.fromkeys(
        (
            "CalibratedModel",
            "CompletelyRandomForest",
            "FisherDiscriminant",
            "LinearMeans",
            "MultinomialNB",
            "OneStepLogisticRegression",
            "SemiparametricNB",
            "TotalsClassifier",
            "TotalsModel",
            "Votes",
            "score_folds",
        ),
        "encryptedstats.models",
    ),
    **dict.fromkeys(
        (
            "PCA",
            "Correlation",
            "Covariance",
            "LinearDiscriminant",
            "LinearRegression",
            "QuadraticDiscriminant",
            "Result",
            "Ridge",
            "Anova",
            "ChiSquare",
            "CochranArmitage",
            "CoxScore",
            "Describe",
            "FisherExact",
            "GLM",
            "GenomeScan",
            "Histogram",
            "IncidenceRate",
            "Kappa",
            "KaplanMeier",
            "LifeTable",
            "LogRank",
            "MantelHaenszel",
            "OddsRatio",
            "PiecewiseExponential",
            "ROC",
            "TTest",
        ),
        "encryptedstats.statistics",
    ),
    **dict.fromkeys(("FixedPoint", "QuantileOneHot", "QuantileOrdinal"), "encryptedstats.tables.transformers"),
}

found_in("encryptedstats.models")  # whose questions files may name
found_in("encryptedstats.statistics")


def __getattr__(name: str) -> Any:
    if name == "cluster":
        return import_module("encryptedstats.cluster")
    if name not in _LATE:
        raise AttributeError(f"module 'encryptedstats' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "GLM",
    "PCA",
    "ROC",
    "Anova",
    "BusyError",
    "CalibratedModel",
    "ChiSquare",
    "ClusterError",
    "CochranArmitage",
    "CompletelyRandomForest",
    "Correlation",
    "Covariance",
    "CoxScore",
    "DataError",
    "Describe",
    "DeviceError",
    "EncryptedAnswer",
    "EncryptedArray",
    "EncryptedInteger",
    "EncryptedStatsError",
    "EncryptedTable",
    "FileFormatError",
    "FisherDiscriminant",
    "FisherExact",
    "FixedPoint",
    "GenomeScan",
    "HeavyArrayWarning",
    "HelperError",
    "Histogram",
    "IncidenceRate",
    "InsecureKeyFileWarning",
    "InsecureParametersWarning",
    "KaplanMeier",
    "Kappa",
    "KeyMismatchError",
    "LifeTable",
    "LinearDiscriminant",
    "LinearMeans",
    "LinearRegression",
    "LogRank",
    "MantelHaenszel",
    "MultinomialNB",
    "NoiseError",
    "OddsRatio",
    "OneStepLogisticRegression",
    "Owner",
    "ParameterError",
    "Parameters",
    "PassphraseError",
    "PiecewiseExponential",
    "Plan",
    "PublicKeys",
    "PublicSchema",
    "QuadraticDiscriminant",
    "QuantileOneHot",
    "QuantileOrdinal",
    "Question",
    "Result",
    "Ridge",
    "RowsByOthersError",
    "Schema",
    "SchemaError",
    "SchemaWarning",
    "SemiparametricNB",
    "StorageError",
    "TTest",
    "Table",
    "TotalsClassifier",
    "TotalsModel",
    "Votes",
    "__version__",
    "cluster",
    "column",
    "load",
    "plan",
    "score_folds",
]
