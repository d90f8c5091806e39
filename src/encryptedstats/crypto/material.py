"""Public key material as data: SEAL's keys, the key id, and the owner's signatures.

Nothing here encrypts, evaluates or touches a file: see :mod:`encryptedstats.crypto.keys`,
``evaluator`` and ``keyfiles``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from encryptedstats.crypto.engine import Engine
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.signatures import verifies
from encryptedstats.errors import KeyMismatchError

KEY_ID_DIGITS: Final = 32  # 128 bits: nobody can make a second key with the id of a given one
#: In the place of a signature of joint keys, which have no owner who could sign.
UNSIGNED: Final = ""


@dataclass(frozen=True)
class EvaluationKeys:
    """SEAL's key-switching keys.

    Attributes
    ----------
    relinearisation : SEAL's relinearisation keys
    packing : SEAL's Galois keys or None
        All automorphisms that packing uses, in the packing context.
    rotation : SEAL's Galois keys or None
        For ``rotations``.
    rotations : tuple of int
        Steps to the left within both half rows; 0 swaps the half rows.
    """

    relinearisation: Any
    packing: Any = None
    rotation: Any = None
    rotations: tuple[int, ...] = ()

    def galois(self) -> dict[str, Any]:
        """Return the Galois keys that there are, by the names of their sections in key files."""
        galois = {"packing": self.packing, "rotation": self.rotation}
        return {name: keys for name, keys in galois.items() if keys is not None}


@dataclass(frozen=True)
class Retirement:
    """The owner's signed statement that nothing may be encrypted under the keys any more."""

    why: str
    successor: str  # the id of the keys to take instead; empty where there are none
    signature: str

    def statement(self, key_id: str) -> bytes:
        """Return the bytes that are signed."""
        return json.dumps(
            ["encryptedstats retired keys", key_id, self.why, self.successor]
        ).encode()


@dataclass(frozen=True)
class KeyMaterial:
    """The content of a file of public keys.

    Attributes
    ----------
    engine : Engine
    public_key : SEAL's public key
    evaluation : EvaluationKeys
    signing_key : bytes
        Checks the owner's signatures; a digest of the Galois keys if the keys are joint.
    signatures : mapping
        The owner's signatures of the Galois keys, by section.
    key_id : str
        The result of :func:`compute_key_id`.
    retirement : Retirement or None
    """

    engine: Engine
    public_key: Any
    evaluation: EvaluationKeys
    signing_key: bytes
    key_id: str
    signatures: Mapping[str, str] = field(default_factory=dict)
    retirement: Retirement | None = None

    @property
    def parameters(self) -> Parameters:
        return self.engine.parameters

    @property
    def is_joint(self) -> bool:
        """True for the keys of several members, none of whom can decrypt alone."""
        return UNSIGNED in self.signatures.values()

    def identity_sections(self) -> dict[str, bytes]:
        """Return the sections that the key id is a hash of."""
        return {
            "public_key": self.public_key.to_string(),
            "relinearisation": self.evaluation.relinearisation.to_string(),
            "signing_key": self.signing_key,
        }

    def is_signed(self, statement: bytes, signature: str) -> bool:
        """Return whether the owner has signed this statement."""
        return verifies(self.signing_key, statement, signature)


def identify_material(
    engine: Engine, public_key: Any, evaluation: EvaluationKeys, signing_key: bytes
) -> KeyMaterial:
    """Return key material with its id."""
    sections = (public_key.to_string(), evaluation.relinearisation.to_string(), signing_key)
    return KeyMaterial(
        engine, public_key, evaluation, signing_key, compute_key_id(engine.parameters, sections)
    )


def joint_material(engine: Engine, public_key: Any, evaluation: EvaluationKeys) -> KeyMaterial:
    """Return the material of keys that members have made together. Nobody can sign for a joint key.

    In the place of the key that checks signatures stands a digest of the Galois keys, so the key id
    covers all of them.
    """
    check_joint_parameters(engine.parameters)
    sections = {name: keys.to_string() for name, keys in evaluation.galois().items()}
    material = identify_material(
        engine, public_key, evaluation, digest_of_members(sections, evaluation.rotations)
    )
    return replace(material, signatures=dict.fromkeys(sections, UNSIGNED))


def check_joint_parameters(parameters: Parameters) -> None:
    """Refuse joint keys under parameters of one member, whose results need no shares to
    be opened.
    """
    if parameters.members < 2:
        raise KeyMismatchError(
            f"keys that are marked as joint, and their parameters are for {parameters.members} "
            "member: joint keys "
            "have parameters for all of their members",
            code="member-count-mismatch",
        )


def compute_key_id(parameters: Parameters, sections: Sequence[bytes]) -> str:
    """Return a hash of hashes, so that bytes of one section cannot pass for those of another."""
    parts = [hashlib.sha256(section).digest() for section in sections]
    return hashlib.sha256(parameters.fingerprint.encode() + b"".join(parts)).hexdigest()[
        :KEY_ID_DIGITS
    ]


def section_statement(name: str, steps: Sequence[int], content: bytes) -> bytes:
    """Return the bytes that are signed of a section; only rotation keys have ``steps``."""
    steps = list(steps) if name == "rotation" else []
    return json.dumps(
        ["encryptedstats keys", name, steps, hashlib.sha256(content).hexdigest()]
    ).encode()


def digest_of_members(sections: Mapping[str, bytes], steps: Sequence[int]) -> bytes:
    """Return the digest of the Galois keys of a joint key."""
    statements = (section_statement(name, steps, sections[name]) for name in sorted(sections))
    return hashlib.sha256(b"encryptedstats: keys of members" + b"".join(statements)).digest()
