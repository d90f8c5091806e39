"""What can go wrong besides an altered file (which is a
:class:`~encryptedstats.errors.FileFormatError`).
"""

from __future__ import annotations

from encryptedstats.errors import EncryptedStatsError


class UnknownDatasetError(EncryptedStatsError, ValueError):
    """A name that is not one of the paper's data sets."""


class DatasetUnavailableError(EncryptedStatsError, OSError):
    """A data set that is in no folder looked at and could not be downloaded or stored."""
