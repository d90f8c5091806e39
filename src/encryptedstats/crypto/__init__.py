"""Parameters, noise, keys, and evaluation on ciphertexts: with ``joint`` the only packages that import SEAL.

Imports only ``storage`` and the errors.
"""

from __future__ import annotations

from encryptedstats.crypto.arrays import EncryptedArray
from encryptedstats.crypto.integers import EncryptedInteger
from encryptedstats.crypto.keys import Owner, PublicKeys
from encryptedstats.crypto.parameters import Parameters

__all__ = ["EncryptedArray", "EncryptedInteger", "Owner", "Parameters", "PublicKeys"]
