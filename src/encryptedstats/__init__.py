"""encryptedstats: statistical machine learning on encrypted data.

Somebody encrypts a table, a computer that is never trusted with it computes, and only the owner opens the result.
"""

from __future__ import annotations

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

__version__ = "0.1.0"

__all__ = [
    "EncryptedArray",
    "EncryptedInteger",
    "EncryptedStatsError",
    "FileFormatError",
    "HeavyArrayWarning",
    "InsecureParametersWarning",
    "KeyMismatchError",
    "NoiseError",
    "Owner",
    "ParameterError",
    "Parameters",
    "PassphraseError",
    "PublicKeys",
    "SchemaError",
    "__version__",
]
