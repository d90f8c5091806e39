"""The collective public key (eprint 2020/304, EncKeyGen): one round.

With a polynomial a of the common string:

    b_j = sample(s_j, a) = -(a s_j + t e_j)   member j sends b_j
    (sum of the b_j, a)                       is a public key under s with error e_1 + ... + e_n
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import seal

from encryptedstats.crypto.engine import HEADER_BYTES, Engine
from encryptedstats.crypto.residues import Residues
from encryptedstats.joint.common_string import CommonString
from encryptedstats.joint.secret import MemberSecret

SECTION: Final = "public"


def make_public_share(secret: MemberSecret, common: CommonString) -> Residues:
    """Return b_j, shape (1, primes, N)."""
    return secret.sample(common.polynomial(SECTION, 0, secret.engine))[None]


def combine_public_shares(total: Residues, common: CommonString, engine: Engine) -> Any:
    """Return SEAL's public key from the sum of all shares."""
    body = np.concatenate([total, common.polynomial(SECTION, 0, engine)[None]])
    template = seal.KeyGenerator(
        engine.context
    ).create_public_key()  # for the form of SEAL's bytes alone
    return engine.context.from_public_str(
        template.to_string()[:HEADER_BYTES] + body.astype("<u8").tobytes()
    )
