"""The joint key: what is agreed on, and the public keys and answers that messages combine to."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from encryptedstats.crypto.dispatch import openable
from encryptedstats.crypto.engine import engine_for
from encryptedstats.crypto.keyfiles import read_parameters
from encryptedstats.crypto.keys import HasParameters, Owner, PublicKeys
from encryptedstats.crypto.material import EvaluationKeys
from encryptedstats.crypto.parameters import MAX_MEMBERS, Parameters
from encryptedstats.crypto.residues import add_modulo
from encryptedstats.errors import ArgumentError, FileFormatError, MemberError, ParameterError
from encryptedstats.joint import galois_keys, public_key, relinearisation_key
from encryptedstats.joint.common_string import CommonString
from encryptedstats.joint.messages import (
    RELINEARISATION_KIND,
    SHARE_KIND,
    Messages,
    read_commitments,
    read_contributions,
    read_messages,
    sum_section,
    transcript_of,
)
from encryptedstats.joint.opening import (
    Openable,
    Pack,
    common_moduli,
    packs_digest,
    plan_for,
    switch_packs,
)
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import load_file, save_file

JOINT_KIND: Final = "joint key"
MAX_NAME: Final = 200


class JointKey:
    """The agreement of the members of a joint key: their names, the parameters, and a unique label.

    Parameters
    ----------
    members : sequence of str
        Their names: all of them are needed for every opening.
    parameters : Parameters or Plan
        Of ``es.plan(..., members=len(members))``.
    label : str, optional
        What tells this key from every other one that the same members make; random by default.

    Examples
    --------
    >>> import encryptedstats as es
    >>> parameters = es.Parameters.choose(max_value=1000, depth=0)
    >>> es.JointKey(["north", "south"], parameters)
    Traceback (most recent call last):
    ...
    encryptedstats.errors.ParameterError: these parameters are for 1 members and there are 2: ...
    """

    def __init__(
        self,
        members: Sequence[str],
        parameters: Parameters | HasParameters,
        *,
        label: str | None = None,
    ) -> None:
        rotations = (
            () if isinstance(parameters, Parameters) else getattr(parameters, "rotations", ())
        )
        parameters = parameters if isinstance(parameters, Parameters) else parameters.parameters
        self.members = tuple(members)
        self.parameters = parameters
        self.rotations = tuple(sorted({int(step) for step in rotations}))
        self.label = secrets.token_hex(16) if label is None else label
        good = all(
            isinstance(m, str) and m.isprintable() and 0 < len(m) <= MAX_NAME for m in self.members
        )
        if (
            not good
            or len(set(self.members)) != len(self.members)
            or not 2 <= len(self.members) <= MAX_MEMBERS
        ):
            raise ArgumentError(
                f"members={list(members)!r}: 2 to {MAX_MEMBERS} different names are needed",
                code="invalid-members",
            )
        if parameters.members != len(self.members):
            raise ParameterError(
                f"these parameters are for {parameters.members} members and there are "
                f"{len(self.members)}: ",
                plan_for(len(self.members)),
                code="member-count-mismatch",
            )

    @cached_property
    def id(self) -> str:
        """A hash of the agreement, which every message carries."""
        agreed = [self.label, list(self.members), self.parameters.fingerprint, list(self.rotations)]
        return hashlib.sha256(b"encryptedstats joint key" + json.dumps(agreed).encode()).hexdigest()

    @property
    def common(self) -> CommonString:
        return CommonString(self.id)

    def galois_sections(self) -> list[galois_keys.GaloisSection]:
        """Return the sections of Galois keys that contributions have."""
        return galois_keys.galois_sections(self.parameters, self.rotations)

    def public_keys(
        self, commitments: Messages, contributions: Messages, relinearisations: Messages
    ) -> PublicKeys:
        """Combine the messages of all members into the public keys, the same for everybody."""
        checked = read_contributions(self, read_commitments(self, commitments), contributions)
        last = read_messages(self, RELINEARISATION_KIND, relinearisations)
        for member, message in last.items():
            if message.fields["transcript"] != transcript_of(self, contributions):
                raise MemberError(
                    f"the relinearisation of {member} was made for other contributions than these",
                    code="other-contributions",
                )
        engine, moduli = engine_for(self.parameters), self.parameters.coefficient_moduli
        ring, digits = self.parameters.ring_degree, len(moduli) - 1
        public = sum_section(checked, public_key.SECTION, moduli, (1, ring))
        r_sum = sum_section(last, relinearisation_key.SECOND_ROUND, moduli, (digits, ring))
        k_sum = sum_section(checked, relinearisation_key.FIRST_ROUND[1], moduli, (digits, ring))
        galois = {}
        for section in self.galois_sections():
            shape = (len(section.places()), ring)
            total = sum_section(
                checked, section.name, section.engine.parameters.coefficient_moduli, shape
            )
            galois[section.name] = galois_keys.combine_galois_shares(total, section, self.common)
        relinearisation = relinearisation_key.combine_relinearisation_shares(r_sum, k_sum, engine)
        evaluation = EvaluationKeys(
            relinearisation, galois["packing"], galois.get("rotation"), self.rotations
        )
        return PublicKeys.of_members(
            engine, public_key.combine_public_shares(public, self.common, engine), evaluation
        )

    # -- opening -----------------------------------------------------------------------------------

    def combine(self, answer: Openable, shares: Messages, receiver: PublicKeys) -> Any:
        """Switch an answer to the receiver's key with the shares that all members made for her.

        ``owner.open`` of the receiver's then opens it like any other.
        """
        found: Openable = openable(answer)
        return found.with_packs(receiver, self.switch_packs(found.packs(), shares, receiver.key_id))

    def open(self, answer: Openable, shares: Messages, schema: Any = None) -> Any:
        """Open an answer with shares that were made without a receiver: anybody can."""
        owner, found = Owner(self.parameters), openable(answer)
        keys, moduli = owner.public_keys(), common_moduli(self.parameters, found.packs())
        level = len(self.parameters.data_moduli) - len(moduli)
        packs = [
            (add_modulo(residues, keys.encryptor.encrypt_zero(level), moduli), noise)
            for residues, noise in self.switch_packs(found.packs(), shares, "")
        ]
        return owner.open(found.with_packs(keys, packs), schema)

    def switch_packs(self, packs: Sequence[Pack], shares: Messages, receiver: str) -> list[Pack]:
        """Switch packs to the key with this id, or to none: see ``opening.switch_packs``."""
        checked = read_messages(self, SHARE_KIND, shares)
        for member, message in checked.items():
            if message.fields["packs"] != packs_digest(packs):
                raise MemberError(
                    f"the share of {member} was made for another ciphertext than this answer's",
                    code="other-ciphertext",
                )
            if message.fields["receiver"] != receiver:
                whom = receiver or "that holds all shares"
                raise MemberError(
                    f"the share of {member} was not made for the receiver {whom}",
                    code="other-receiver",
                )
        moduli, each, ring = (
            common_moduli(self.parameters, packs),
            2 if receiver else 1,
            self.parameters.ring_degree,
        )
        totals = sum_section(checked, "packs", moduli, (each * len(packs), ring))
        return switch_packs(
            self.parameters, packs, totals.reshape(len(packs), each, len(moduli), ring)
        )

    # -- files -------------------------------------------------------------------------------------

    def to_container(self) -> Container:
        """Return what is agreed on as a checked envelope of bytes."""
        fields = {
            "members": list(self.members),
            "parameters": self.parameters.to_dict(),
            "rotations": list(self.rotations),
            "label": self.label,
        }
        return Container(JOINT_KIND, self.parameters.fingerprint, self.id, fields)

    @classmethod
    def from_container(cls, file: Container) -> JointKey:
        """Read what :meth:`to_container` made."""
        members, steps = file.expect("members", list), file.expect("rotations", list)
        try:
            joint = cls(members, read_parameters(file), label=file.expect("label", str))
            joint.rotations = tuple(sorted({int(step) for step in steps}))
        except (TypeError, ValueError) as error:
            raise FileFormatError(
                f"the file has a joint key that cannot be: {error}", code="impossible-joint-key"
            ) from error
        if joint.id != file.key_id:
            raise FileFormatError(
                "the joint key of the file does not fit its id", code="joint-id-mismatch"
            )
        return joint

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write what is agreed on to a path or fsspec URL: everybody may read it."""
        save_file(self.to_container(), url, overwrite=overwrite)

    @classmethod
    def load(cls, url: str | os.PathLike[str]) -> JointKey:
        """Read what was agreed on."""
        return cls.from_container(load_file(url, kind=JOINT_KIND))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JointKey) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"JointKey({', '.join(self.members)}, {self.id[:16]}, {self.parameters!r})"
