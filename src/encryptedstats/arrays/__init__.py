"""Encrypted integers, arrays and vectors: NumPy-like arithmetic, one operation at a time.

Imports ``crypto``, whose noise model decides whether an operation may be computed, and ``storage``.
Nothing of circuits is known here: an operation runs at once, and statistics and models do not use
it.
"""

from encryptedstats.arrays.array import EncryptedArray
from encryptedstats.arrays.integers import EncryptedInteger

__all__ = ["EncryptedArray", "EncryptedInteger"]
