"""encryptedstats: statistical machine learning on encrypted data.

Somebody encrypts a table, a computer that is never trusted with it computes, and only the owner
opens the result.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    BudgetError,
    BusyError,
    ClusterError,
    DataError,
    DeviceError,
    DisclosureError,
    DisclosureWarning,
    EncryptedStatsError,
    FileFormatError,
    HeavyArrayWarning,
    HelperError,
    InsecureKeyFileWarning,
    InsecureParametersWarning,
    KeyMismatchError,
    MemberError,
    NoiseError,
    ParameterError,
    PassphraseError,
    RowsByOthersError,
    SchemaError,
    SchemaWarning,
    StorageError,
    StudyError,
    VerificationError,
    WorkerError,
)

if TYPE_CHECKING:
    from encryptedstats import cluster as cluster
    from encryptedstats.arrays import EncryptedArray, EncryptedInteger
    from encryptedstats.circuits import column
    from encryptedstats.circuits.plan import Plan
    from encryptedstats.crypto import Owner, Parameters, PublicKeys
    from encryptedstats.joint import JointKey, Member
    from encryptedstats.loading import load
    from encryptedstats.models import (
        AODE,
        TAN,
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
    from encryptedstats.publishing import Ledger, Published, Release, Rules, write_report
    from encryptedstats.statistics import (
        GLM,
        PCA,
        ROC,
        Anova,
        ChiSquare,
        CochranArmitage,
        Correlation,
        Covariance,
        CoxRegression,
        CoxScore,
        CumulativeIncidence,
        Describe,
        ElasticNet,
        FisherExact,
        GenomeScan,
        Histogram,
        IncidenceRate,
        KaplanMeier,
        Kappa,
        KruskalWallis,
        LifeTable,
        LinearDiscriminant,
        LinearRegression,
        LogRank,
        MannWhitney,
        MantelHaenszel,
        OddsRatio,
        Pairs,
        PiecewiseExponential,
        QuadraticDiscriminant,
        Quantiles,
        RankCorrelation,
        Result,
        Ridge,
        SignedRank,
        TTest,
    )
    from encryptedstats.studies import Study
    from encryptedstats.tables import (
        EncryptedAnswer,
        EncryptedTable,
        PublicSchema,
        Question,
        Schema,
        Table,
        plan,
        verify,
    )
    from encryptedstats.tables.schema.bin_transformers import (
        FixedPoint,
        QuantileOneHot,
        QuantileOrdinal,
    )
    from encryptedstats.workers import Worker, connect

__version__ = "0.3.0"

# Nothing is imported before it is first asked for, NumPy, pandas and SEAL among it: `import
# encryptedstats` itself takes no time.
_LATE = {
    "cluster": "encryptedstats",
    "column": "encryptedstats.circuits",
    "Plan": "encryptedstats.circuits.plan",
    "load": "encryptedstats.loading",
    **dict.fromkeys(("EncryptedArray", "EncryptedInteger"), "encryptedstats.arrays"),
    **dict.fromkeys(("Owner", "Parameters", "PublicKeys"), "encryptedstats.crypto"),
    **dict.fromkeys(("JointKey", "Member"), "encryptedstats.joint"),
    **dict.fromkeys(
        ("Ledger", "Published", "Release", "Rules", "write_report"), "encryptedstats.publishing"
    ),
    **dict.fromkeys(
        (
            "EncryptedAnswer",
            "EncryptedTable",
            "PublicSchema",
            "Question",
            "Schema",
            "Table",
            "plan",
            "verify",
        ),
        "encryptedstats.tables",
    ),
    **dict.fromkeys(
        (
            "AODE",
            "TAN",
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
            "CoxRegression",
            "CoxScore",
            "CumulativeIncidence",
            "Describe",
            "ElasticNet",
            "FisherExact",
            "GLM",
            "GenomeScan",
            "Histogram",
            "IncidenceRate",
            "Kappa",
            "KruskalWallis",
            "MannWhitney",
            "Quantiles",
            "RankCorrelation",
            "SignedRank",
            "KaplanMeier",
            "LifeTable",
            "LogRank",
            "MantelHaenszel",
            "OddsRatio",
            "Pairs",
            "PiecewiseExponential",
            "ROC",
            "TTest",
        ),
        "encryptedstats.statistics",
    ),
    "Study": "encryptedstats.studies",
    **dict.fromkeys(
        ("FixedPoint", "QuantileOneHot", "QuantileOrdinal"),
        "encryptedstats.tables.schema.bin_transformers",
    ),
    **dict.fromkeys(("Worker", "connect"), "encryptedstats.workers"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'encryptedstats' has no attribute {name!r}")
    for module in (
        "loading",
        "moving",
        "publishing",
    ):  # with them all that can be stored is known: to be opened, moved, published
        import_module(f"encryptedstats.{module}")
    if name == "cluster":
        return import_module("encryptedstats.cluster")
    found = globals()[name] = getattr(import_module(_LATE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "AODE",
    "GLM",
    "PCA",
    "ROC",
    "TAN",
    "Anova",
    "ArgumentError",
    "ArgumentTypeError",
    "BudgetError",
    "BusyError",
    "CalibratedModel",
    "ChiSquare",
    "ClusterError",
    "CochranArmitage",
    "CompletelyRandomForest",
    "Correlation",
    "Covariance",
    "CoxRegression",
    "CoxScore",
    "CumulativeIncidence",
    "DataError",
    "Describe",
    "DeviceError",
    "DisclosureError",
    "DisclosureWarning",
    "ElasticNet",
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
    "JointKey",
    "KaplanMeier",
    "Kappa",
    "KeyMismatchError",
    "KruskalWallis",
    "Ledger",
    "LifeTable",
    "LinearDiscriminant",
    "LinearMeans",
    "LinearRegression",
    "LogRank",
    "MannWhitney",
    "MantelHaenszel",
    "Member",
    "MemberError",
    "MultinomialNB",
    "NoiseError",
    "OddsRatio",
    "OneStepLogisticRegression",
    "Owner",
    "Pairs",
    "ParameterError",
    "Parameters",
    "PassphraseError",
    "PiecewiseExponential",
    "Plan",
    "PublicKeys",
    "PublicSchema",
    "Published",
    "QuadraticDiscriminant",
    "QuantileOneHot",
    "QuantileOrdinal",
    "Quantiles",
    "Question",
    "RankCorrelation",
    "Release",
    "Result",
    "Ridge",
    "RowsByOthersError",
    "Rules",
    "Schema",
    "SchemaError",
    "SchemaWarning",
    "SemiparametricNB",
    "SignedRank",
    "StorageError",
    "Study",
    "StudyError",
    "TTest",
    "Table",
    "TotalsClassifier",
    "TotalsModel",
    "VerificationError",
    "Votes",
    "Worker",
    "WorkerError",
    "__version__",
    "cluster",
    "column",
    "connect",
    "load",
    "plan",
    "score_folds",
    "verify",
    "write_report",
]
