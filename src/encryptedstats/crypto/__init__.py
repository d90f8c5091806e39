"""Parameters, noise, keys, and evaluation on ciphertexts.

Only this package and ``joint`` import SEAL. It imports nothing but ``storage`` and the errors.
"""

from __future__ import annotations

from encryptedstats.crypto.keys import Owner, PublicKeys
from encryptedstats.crypto.parameters import Parameters

__all__ = ["Owner", "Parameters", "PublicKeys"]
