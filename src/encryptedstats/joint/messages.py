"""Messages between members, each bound to the joint key, its round and its member.

Each member sends, in this order:

    commitment         SHA-256 of the contribution: nobody contributes before all have committed
    contribution       shares of the public key and Galois keys, and relinearisation round 1
    relinearisation    round 2, with a hash of all contributions
    share              for every opening, with a hash of the ciphertexts and the receiver's key id
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from encryptedstats.crypto.residues import Residues, add_modulo, moduli_column, residues_from_bytes
from encryptedstats.errors import FileFormatError, MemberError
from encryptedstats.storage import container
from encryptedstats.storage.container import Container

if TYPE_CHECKING:
    from encryptedstats.joint.key import JointKey

COMMITMENT_KIND: Final = "commitment of a member"
CONTRIBUTION_KIND: Final = "contribution of a member"
RELINEARISATION_KIND: Final = "relinearisation of a member"
SHARE_KIND: Final = "share of a member"
SHARES_KIND: Final = "shares of a member"
#: The fields that messages have beside their member.
_FIELDS: Final = {
    COMMITMENT_KIND: ("digest",),
    RELINEARISATION_KIND: ("transcript",),
    SHARE_KIND: ("packs", "receiver"),
}
Messages = Mapping[str, bytes]


def make_message(
    joint: JointKey,
    kind: str,
    member: str,
    fields: Mapping[str, Any],
    sections: Mapping[str, bytes],
) -> Container:
    """Return a message of a member, bound to the joint key and its round."""
    return Container(
        kind, joint.parameters.fingerprint, joint.id, {"member": member, **fields}, sections
    )


def read_messages(joint: JointKey, kind: str, messages: Messages) -> dict[str, Container]:
    """Read one message of every member; errors name the member whose message is refused."""
    missing = [member for member in joint.members if member not in messages]
    unknown = [str(member) for member in messages if member not in joint.members]
    if missing or unknown:
        who = (
            f"there is none of {', '.join(missing)}"
            if missing
            else f"{', '.join(unknown)} is no member"
        )
        raise MemberError(
            f"a {kind} is needed, from each of {', '.join(joint.members)}: {who}",
            code="wrong-messages",
        )
    return {
        member: _read_message(joint, kind, member, messages[member]) for member in joint.members
    }


def _read_message(joint: JointKey, kind: str, member: str, data: bytes) -> Container:
    try:
        message = container.from_bytes(data, kind=kind, name=f"the message of {member}")
    except FileFormatError as error:
        raise MemberError(
            f"what came from {member} is refused: {error}", code="unreadable-message"
        ) from error
    if message.key_id != joint.id or message.fingerprint != joint.parameters.fingerprint:
        raise MemberError(
            f"the message of {member} belongs to another joint key: other members, parameters or "
            "another label",
            code="other-joint-key",
        )
    if not all(
        isinstance(message.fields.get(field), str) for field in ("member", *_FIELDS.get(kind, ()))
    ):
        raise MemberError(
            f"what came from {member} is refused: it does not say all that a {kind} says",
            code="incomplete-message",
        )
    if message.fields["member"] != member:
        raise MemberError(
            f"the message that is to be {member}'s is {message.fields['member']}'s",
            code="other-sender",
        )
    return message


def read_commitments(joint: JointKey, commitments: Messages) -> dict[str, str]:
    """Return the digest that each member has committed to."""
    read = read_messages(joint, COMMITMENT_KIND, commitments)
    return {name: message.fields["digest"] for name, message in read.items()}


def read_contributions(
    joint: JointKey, digests: Mapping[str, str], contributions: Messages
) -> dict[str, Container]:
    """Read the contributions and check them against the commitments."""
    checked = read_messages(joint, CONTRIBUTION_KIND, contributions)
    for member in checked:
        if digest_of(contributions[member]) != digests.get(member):
            raise MemberError(
                f"the contribution of {member} is not the one that {member} committed to",
                code="broken-commitment",
            )
    return checked


def transcript_of(joint: JointKey, messages: Messages) -> str:
    """Return a hash of one message of every member."""
    return digest_of("".join(digest_of(messages[member]) for member in joint.members).encode())


def sum_section(
    contributions: Mapping[str, Container],
    section: str,
    moduli: Sequence[int],
    shape: tuple[int, int],
) -> Residues:
    """Add up a section of all members.

    ``shape`` is (polynomials, N); the result has shape (polynomials, primes, N).
    """
    polynomials, ring = shape
    total = np.zeros((polynomials, len(moduli), ring), dtype=np.uint64)
    for member, message in contributions.items():
        try:
            one = residues_from_bytes(
                message.section(section), moduli, ring, polynomials=polynomials
            )
        except FileFormatError as error:
            raise MemberError(
                f"what came from {member} is refused: {error}", code="unreadable-message"
            ) from error
        if (one >= moduli_column(moduli)).any():
            raise MemberError(
                f"what came from {member} is refused: residues that are not below their primes",
                code="unreduced-residues",
            )
        total = add_modulo(total, one, moduli)
    return total


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()
