"""Encrypted integers, arrays and vectors: NumPy-like arithmetic, one operation at a time.

Imports ``crypto``, whose noise model decides whether an operation may be computed, and ``storage``.
It does not use circuits: an operation runs at once. Statistics and models do not use this package.
"""

from encryptedstats.arrays.array import EncryptedArray
from encryptedstats.arrays.integers import EncryptedInteger

__all__ = ["EncryptedArray", "EncryptedInteger"]
