"""Parameters, keys, and encrypted integers and arrays: the only package that imports SEAL.

Imports only ``storage`` and the errors.
"""

from __future__ import annotations

from encryptedstats.crypto.arrays import EncryptedArray
from encryptedstats.crypto.integers import EncryptedInteger
from encryptedstats.crypto.keys import Owner, PublicKeys
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.threshold import JointKey, Member

__all__ = ["EncryptedArray", "EncryptedInteger", "JointKey", "Member", "Owner", "Parameters", "PublicKeys"]
