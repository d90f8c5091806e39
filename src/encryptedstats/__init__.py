"""encryptedstats: statistical machine learning on encrypted data.

Somebody encrypts a table, a computer that is never trusted with it computes, and only the owner opens the result.
"""

from __future__ import annotations

from encryptedstats import datasets
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
from encryptedstats.tables import (
    EncryptedTable,
    FixedPoint,
    PublicSchema,
    QuantileOneHot,
    QuantileOrdinal,
    Schema,
    Table,
)

__version__ = "0.1.0"

__all__ = [
    "EncryptedArray",
    "EncryptedInteger",
    "EncryptedStatsError",
    "EncryptedTable",
    "FileFormatError",
    "FixedPoint",
    "HeavyArrayWarning",
    "InsecureParametersWarning",
    "KeyMismatchError",
    "NoiseError",
    "Owner",
    "ParameterError",
    "Parameters",
    "PassphraseError",
    "PublicKeys",
    "PublicSchema",
    "QuantileOneHot",
    "QuantileOrdinal",
    "Schema",
    "SchemaError",
    "Table",
    "__version__",
    "datasets",
    "load",
]
