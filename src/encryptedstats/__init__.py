"""encryptedstats: statistical machine learning on encrypted data.

Somebody encrypts a table, a computer that is never trusted with it computes, and only the owner opens the result.
"""

from __future__ import annotations

from encryptedstats import datasets
from encryptedstats.circuits.plan import Plan
from encryptedstats.crypto import EncryptedArray, EncryptedInteger, Owner, Parameters, PublicKeys
from encryptedstats.errors import (
    EncryptedStatsError,
    FileFormatError,
    HeavyArrayWarning,
    InsecureParametersWarning,
    KeyMismatchError,
    NoiseError,
    ParameterError,
    PassphraseError,
    SchemaError,
)
from encryptedstats.loading import load
from encryptedstats.models import (
    CompletelyRandomForest,
    EncryptedFolds,
    FisherDiscriminant,
    LinearMeans,
    MultinomialNB,
    OneStepLogisticRegression,
    SemiparametricNB,
)
from encryptedstats.tables import (
    EncryptedStatistic,
    EncryptedTable,
    FixedPoint,
    PublicSchema,
    QuantileOneHot,
    QuantileOrdinal,
    Schema,
    Table,
    plan,
)

__version__ = "0.1.0"

__all__ = [
    "CompletelyRandomForest",
    "EncryptedArray",
    "EncryptedFolds",
    "EncryptedInteger",
    "EncryptedStatistic",
    "EncryptedStatsError",
    "EncryptedTable",
    "FileFormatError",
    "FisherDiscriminant",
    "FixedPoint",
    "HeavyArrayWarning",
    "InsecureParametersWarning",
    "KeyMismatchError",
    "LinearMeans",
    "MultinomialNB",
    "NoiseError",
    "OneStepLogisticRegression",
    "Owner",
    "ParameterError",
    "Parameters",
    "PassphraseError",
    "Plan",
    "PublicKeys",
    "PublicSchema",
    "QuantileOneHot",
    "QuantileOrdinal",
    "Schema",
    "SchemaError",
    "SemiparametricNB",
    "Table",
    "__version__",
    "datasets",
    "load",
    "plan",
]
