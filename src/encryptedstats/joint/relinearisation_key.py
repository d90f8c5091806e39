"""The joint relinearisation key (eprint 2020/304, RelinKeyGen): two rounds.

For each digit i, with polynomials a_i of the common string:

    round 1   h_i = sample(u_j, a_i) + w_i s_j,  k_i = -sample(s_j, a_i)
    round 2   r_i = -sample(s_j, H_i) + sample(s_j, K_i) - sample(u_j, K_i)
    key       (sum of the r_i, K_i)

H_i and K_i are the sums of h_i and k_i over members. u_j is a second secret of member j, used in
these two rounds and deleted. w_i is the special prime modulo the i-th prime and 0 modulo all
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import seal

from encryptedstats.crypto.engine import Engine
from encryptedstats.crypto.kernels import replace_switching_keys
from encryptedstats.crypto.residues import Residues, add_modulo, negate_modulo
from encryptedstats.joint.common_string import CommonString
from encryptedstats.joint.secret import MemberSecret

#: Sections of the two polynomials of round 1, and of that of round 2.
FIRST_ROUND: Final = ("first", "second")
SECOND_ROUND: Final = "both"


def make_first_shares(
    secret: MemberSecret, ephemeral: MemberSecret, common: CommonString
) -> tuple[Residues, Residues]:
    """Return all h_i and all k_i, each of shape (digits, primes, N)."""
    moduli, ring = secret.engine.parameters.coefficient_moduli, secret.engine.parameters.ring_degree
    h, k = [], []
    for digit in range(len(moduli) - 1):
        a = common.polynomial("relinearisation", digit, secret.engine)
        weight = np.zeros((len(moduli), ring), dtype=np.uint64)
        weight[digit] = (
            moduli[-1] % moduli[digit]
        )  # w_i: a constant polynomial has one value everywhere
        h.append(
            secret.factor.rebase(np.stack([ephemeral.sample(a), weight]), np.zeros_like(weight))
        )
        k.append(negate_modulo(secret.sample(a), moduli))
    return np.stack(h), np.stack(k)


def make_second_shares(
    secret: MemberSecret, ephemeral: MemberSecret, h_sum: Residues, k_sum: Residues
) -> Residues:
    """Return all r_i from the sums of round 1."""
    moduli = secret.engine.parameters.coefficient_moduli
    return np.stack(
        [_second_share(secret, ephemeral, h, k, moduli) for h, k in zip(h_sum, k_sum, strict=True)]
    )


def _second_share(
    secret: MemberSecret, ephemeral: MemberSecret, h: Residues, k: Residues, moduli: Sequence[int]
) -> Residues:
    minus = add_modulo(secret.sample(h), ephemeral.sample(k), moduli)
    return add_modulo(secret.sample(k), negate_modulo(minus, moduli), moduli)


def combine_relinearisation_shares(r_sum: Residues, k_sum: Residues, engine: Engine) -> Any:
    """Return SEAL's relinearisation keys from the sums of both rounds."""
    template = seal.KeyGenerator(
        engine.context
    ).create_relin_keys()  # for the form of SEAL's bytes alone
    data = replace_switching_keys(template.to_string(), {0: np.stack([r_sum, k_sum], axis=1)})
    return engine.context.from_relin_str(data)
