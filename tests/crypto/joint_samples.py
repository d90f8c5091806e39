"""Joint keys for tests: members in one process, and a lab that, unlike anybody else, adds their
secrets up.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from noise_samples import RING, NoiseLab, centred, inverse_transform, polynomial

import encryptedstats as es
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.noise import NoiseModel
from encryptedstats.crypto.packing import packing_parameters

NAMES = ("north", "south", "west", "east", "upper", "lower", "inner", "outer", "old", "new")
#: Exact up to 2000, room for a product or two and for flooding, in a ring of 1024.
BITS, KEPT = (50,) * 6, 4


def joint_parameters(
    members: int, bits: tuple[int, ...] = BITS, kept: int | None = KEPT, max_value: int = 2000
) -> es.Parameters:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        made = es.Parameters.from_bits("bgv", RING, max_value, bits, allow_insecure=True)
        return replace(made, members=members, kept_primes=kept)


@dataclass
class Study:
    """Members of one joint key, with all that they have sent each other."""

    joint: es.JointKey
    members: dict[str, es.Member]
    commitments: dict[str, bytes]
    contributions: dict[str, bytes]
    relinearisations: dict[str, bytes]
    keys: es.PublicKeys

    def shares(self, answer: Any, question: Any, table: Any, **options: Any) -> dict[str, bytes]:
        return {
            name: member.share(answer, question, table, **options)
            for name, member in self.members.items()
        }


def made(home: Path, parameters: Any, label: str | None = None) -> Study:
    """All rounds of key generation."""
    count = getattr(parameters, "parameters", parameters).members
    joint = es.JointKey(NAMES[:count], parameters, label=label)
    members = {name: es.Member(home / name, joint, name) for name in joint.members}
    first = {name: member.commit() for name, member in members.items()}
    second = {name: member.contribute(first) for name, member in members.items()}
    third = {name: member.relinearise(second) for name, member in members.items()}
    keys = [member.finish(first, second, third) for member in members.values()]
    assert len({one.key_id for one in keys}) == 1
    return Study(joint, members, first, second, third, keys[0])


def secret_of(member: es.Member) -> np.ndarray:
    """A member's secret, coefficient by coefficient."""
    moduli = member.joint.parameters.coefficient_moduli
    found = member.state.secret("secret").residues
    return centred(polynomial(inverse_transform(found[0], moduli[0])), moduli[0])


def coefficients_of(residues: np.ndarray, moduli: Sequence[int]) -> np.ndarray:
    """A polynomial that is kept transformed, prime by prime: its coefficients, from 0 to below the
    product of the primes.
    """
    modulus, total = math.prod(moduli), polynomial([0] * RING)
    for own, q in zip(residues, moduli, strict=True):
        part = polynomial(inverse_transform((own.astype(object) % q).astype(np.uint64), q))
        total = total + part * (pow(modulus // q, -1, q) * (modulus // q))
    return total % modulus


def times_secrets(second: np.ndarray, members: Sequence[es.Member]) -> np.ndarray:
    """c_1 times the sum of the secrets of some members, prime by prime, not reduced."""
    secrets = sum(m.state.secret("secret").residues[: len(second)].astype(object) for m in members)
    return second.astype(object) * secrets


class JointLab(NoiseLab):
    """What a noise lab does, for the sum of the members' secrets."""

    def __init__(self, study: Study, seed: int = 0) -> None:
        self.study, self.keys, self.parameters = study, study.keys, study.joint.parameters
        self.engine, self.small = (
            engine_for(self.parameters),
            engine_for(packing_parameters(self.parameters)),
        )
        self.random, self._powers_of_secret = np.random.default_rng(seed), {}
        self.secret = sum(map(secret_of, study.members.values()), polynomial([0] * RING))

    def _made_typical(self, model: NoiseModel) -> NoiseModel:
        model.__dict__.update(tail=1.0)  # and any secrets of so many members
        model.members = self.parameters.members
        return model

    def encrypted(self, plain: Any, *, with_secret_key: bool) -> Any:
        assert not with_secret_key
        return self.keys.encryptor.encrypt(plain)[0]
