"""The errors and warnings of the library, so that callers can catch them by name.

Lowest module of all: imports nothing. Each error also is the built-in exception a Python user would expect
(``ValueError``, ``ArithmeticError``), so that generic handlers keep working.
"""

from __future__ import annotations


class EncryptedStatsError(Exception):
    """Base of every error raised on purpose by this library."""


class ParameterError(EncryptedStatsError, ValueError):
    """Encryption parameters that are impossible, insecure or inconsistent."""


class NoiseError(EncryptedStatsError, ArithmeticError):
    """A computation that the parameters cannot carry: its result could not be proven to decrypt."""


class KeyMismatchError(EncryptedStatsError, ValueError):
    """Data, keys or models that belong to different keys were brought together."""


class RowsByOthersError(EncryptedStatsError, ValueError):
    """Rows that others have encrypted with the public keys, where nobody has asked for such rows, or they must not be."""


class FileFormatError(EncryptedStatsError, ValueError):
    """A file that is truncated, altered, foreign, of another kind, or too new."""


class StorageError(EncryptedStatsError, OSError):
    """Storage that cannot be reached or does not answer: what lies there is not known, so nothing is concluded from it."""


class BusyError(EncryptedStatsError, RuntimeError):
    """Somebody else is writing there now: one at a time, so that nothing is lost."""


class HelperError(EncryptedStatsError, RuntimeError):
    """A process that helped here was ended from outside."""


class PassphraseError(EncryptedStatsError, ValueError):
    """A secret key file needs a passphrase, or the one given does not open it."""


class SchemaError(EncryptedStatsError, ValueError):
    """A table that does not fit its schema: names the column, the row and the value."""


class ClusterError(EncryptedStatsError, RuntimeError):
    """A cluster that could not do its work: what is missing, who is gone, and how to go on from what is done."""


class InsecureParametersWarning(UserWarning):
    """Parameters below 128-bit security are in use because ``allow_insecure=True`` was given."""


class InsecureKeyFileWarning(UserWarning):
    """A file with a secret key that other users of the machine may read."""


class SchemaWarning(UserWarning):
    """A schema that is probably not meant so, rows that count as another level, or keys that are too small for a table."""


class HeavyArrayWarning(UserWarning):
    """An encrypted array has grown so large that an encrypted table would serve better."""
