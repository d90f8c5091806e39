"""One member's secret, and the identity by which SEAL's samples become samples of the protocols.

A fresh SEAL public key under a secret s is (-(a s + t e), a) with a polynomial a of SEAL's choice.
For any other polynomial x,

    sample(s, x)  =  -(a s + t e) + (a - x) s  =  -(x s + t e),

with the same error: the key is *re-based* on x, as ciphertexts are in
:mod:`encryptedstats.crypto.seeded`. A Galois key of SEAL, re-based digit by digit, is the share of
a joint Galois key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seal

from encryptedstats.crypto.engine import HEADER_BYTES, Engine
from encryptedstats.crypto.kernels import read_switching_keys
from encryptedstats.crypto.residues import Residues, secret_residues
from encryptedstats.crypto.seeded import SecretFactor
from encryptedstats.joint.common_string import CommonString


class MemberSecret:
    """A secret of SEAL in one of its contexts."""

    def __init__(self, engine: Engine, secret: Any) -> None:
        self.engine = engine
        self.residues = secret_residues(engine.parameters, secret.to_string())
        self.factor = SecretFactor(engine.parameters.coefficient_moduli, self.residues)
        self._generator = seal.KeyGenerator(engine.context, secret)

    def sample(self, x: Residues) -> Residues:
        """Return -(x s + t e). The SEAL key that is re-based on x is made here and kept nowhere."""
        data = self._generator.create_public_key().to_string()
        pair = np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(2, *x.shape)
        return self.factor.rebase(pair, x)

    def galois_samples(
        self, name: str, steps: Sequence[int], common: CommonString
    ) -> Iterator[Residues]:
        """Yield the digits of SEAL's Galois keys, re-based on the common polynomials."""
        made = seal.GaloisKeys()
        self._generator.create_galois_keys(list(steps), made)
        for index, digits in read_switching_keys(
            made.to_string(), self.engine.parameters.ring_degree
        ):
            for digit, pair in enumerate(digits):
                yield self.factor.rebase(
                    pair, common.polynomial(f"{name} {index}", digit, self.engine)
                )
