"""Parameters, noise, keys, and evaluation on ciphertexts: with ``joint`` the only packages that
import SEAL.

Imports only ``storage`` and the errors.
"""

from __future__ import annotations

from encryptedstats.crypto.keys import Owner, PublicKeys
from encryptedstats.crypto.parameters import Parameters

__all__ = ["Owner", "Parameters", "PublicKeys"]
