"""Joint Galois keys, for packing and for rotations (eprint 2020/304, RotKeyGen): one round.

For each automorphism X -> X^g and digit i, with polynomials a_gi of the common string:

    g_i = sample(s_j, a_gi) + w_i s_j(X^g)    SEAL's own Galois key of member j, re-based on a_gi
    (sum of the g_i, a_gi)                    is digit i of a Galois key under s
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import seal

from encryptedstats.crypto import packing
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.kernels import galois_element, replace_switching_keys
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.joint.common_string import CommonString
from encryptedstats.joint.secret import MemberSecret


@dataclass(frozen=True)
class GaloisSection:
    """The Galois keys of one purpose: their section, context and rotations."""

    name: str
    engine: Engine
    steps: Sequence[int]

    def places(self) -> list[tuple[int, int]]:
        """Return SEAL's index of a key, and the digit, of every polynomial of the section."""
        ring, digits = self.engine.parameters.ring_degree, len(self.engine.parameters.data_moduli)
        indices = sorted({galois_element(ring, step) // 2 for step in self.steps})
        return [(index, digit) for index in indices for digit in range(digits)]


def galois_sections(parameters: Parameters, rotations: Sequence[int]) -> list[GaloisSection]:
    """Return the sections of a joint key: packing, and the planned rotations if there are any."""
    small = engine_for(packing.packing_parameters(parameters))
    packs = GaloisSection("packing", small, packing.packing_steps(parameters.ring_degree))
    return [
        packs,
        *([GaloisSection("rotation", engine_for(parameters), rotations)] if rotations else []),
    ]


def make_galois_shares(
    secret: MemberSecret, section: GaloisSection, common: CommonString
) -> Residues:
    """Return all polynomials of a member's section; the secret is that of the section's context."""
    return np.stack(list(secret.galois_samples(section.name, section.steps, common)))


def combine_galois_shares(total: Residues, section: GaloisSection, common: CommonString) -> Any:
    """Return SEAL's Galois keys from the sum of all shares of a section."""
    keys: dict[int, list[Residues]] = {}
    for polynomial, (index, digit) in zip(total, section.places(), strict=True):
        a = common.polynomial(f"{section.name} {index}", digit, section.engine)
        keys.setdefault(index, []).append(np.stack([polynomial, a]))
    template = seal.GaloisKeys()  # for the form of SEAL's bytes alone
    seal.KeyGenerator(section.engine.context).create_galois_keys(list(section.steps), template)
    stacked = {index: np.stack(digits) for index, digits in keys.items()}
    return section.engine.context.from_galois_str(
        replace_switching_keys(template.to_string(), stacked)
    )
