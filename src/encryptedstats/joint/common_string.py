"""The common random string: uniform polynomials that all members expand from public data.

a = SHAKE-256(SHA-256(id of the joint key, name, digit)) modulo each prime, in transformed form
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from encryptedstats.crypto.engine import Engine
from encryptedstats.crypto.residues import Residues
from encryptedstats.crypto.seeded import SEED_BYTES, expand_seeds


@dataclass(frozen=True)
class CommonString:
    """The common string of the joint key with this id."""

    joint_id: str

    def polynomial(self, name: str, digit: int, engine: Engine) -> Residues:
        """Return a polynomial of the string, shape (primes, N)."""
        label = (
            b"encryptedstats joint key: common polynomial"
            + json.dumps([self.joint_id, name, digit]).encode()
        )
        moduli = engine.parameters.coefficient_moduli
        out = np.empty((1, 1, len(moduli), engine.parameters.ring_degree), dtype=np.uint64)
        expand_seeds(hashlib.sha256(label).digest()[:SEED_BYTES], moduli, out)
        polynomial: Residues = out[0, 0]
        return polynomial
