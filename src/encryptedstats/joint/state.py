"""The folder of a member, readable to this user alone: the secrets, and each message before it is
sent.

**Once.** A stored message is sent again unchanged, and never made a second time: so neither a crash
nor a repeated request reveals a second sample under the same secret. A second share of a ciphertext
(of a c_1), or for the same question over the same rows, is never computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import seal

from encryptedstats.crypto import packing
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.residues import Residues, residues_from_bytes
from encryptedstats.errors import KeyMismatchError, MemberError, PassphraseError
from encryptedstats.joint.messages import SHARE_KIND, make_message
from encryptedstats.joint.secret import MemberSecret
from encryptedstats.storage import container
from encryptedstats.storage import passphrase as locks
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE, hold_lock

if TYPE_CHECKING:
    from encryptedstats.joint.key import JointKey

MEMBER_KIND: Final = "secret of a member"
SEEN_KIND: Final = "commitments that a member has seen"
#: The secret s_j, and the ephemeral u_j, which is deleted once the relinearisation key is made.
SECRET: Final = "secret"
EPHEMERAL: Final = "second"


class MemberState:
    """The folder of one member. Its secrets are drawn when it is first opened."""

    def __init__(self, home: Path, joint: JointKey, name: str, passphrase: str | None) -> None:
        self.home, self.joint, self.name = home, joint, name
        self._passphrase, self._unlocked = passphrase, dict[str, bytes]()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.lock():
            # The secret comes last: as long as it is not there, no message was made of either.
            if self.find(SECRET, MEMBER_KIND) is None:
                for part in (EPHEMERAL, SECRET):
                    if self.find(part, MEMBER_KIND) is None:
                        self.store(part, self._draw_secret(part))

    def lock(self) -> AbstractContextManager[None]:
        """Lock the folder while it is read and written."""
        return hold_lock(self.home / "lock")

    # -- messages ----------------------------------------------------------------------------------

    def store(self, name: str, message: Container) -> Container:
        """Write a message that is not there yet."""
        container.write(message, self.home / name, mode=PRIVATE, overwrite=False)
        return message

    def find(self, name: str, kind: str) -> Container | None:
        """Return a stored message, or None."""
        if not (self.home / name).exists():
            return None
        message = container.read(self.home / name, kind=kind)
        if message.key_id != self.joint.id or message.fields.get("member") != self.name:
            raise KeyMismatchError(
                f"{self.home} belongs to another joint key or member: each has a folder of its own",
                code="other-joint-key",
            )
        return message

    def require(self, name: str, kind: str) -> Container:
        """Return a stored message that has to be there."""
        found = self.find(name, kind)
        if found is None:
            raise MemberError(
                f"{self.home / name} is not there: it was used already, or an earlier round is "
                "missing",
                code="earlier-round-missing",
            )
        return found

    def stored_bytes(self, name: str) -> bytes:
        """Return a stored message as it is sent."""
        return (self.home / name).read_bytes()

    def seen_digests(self) -> dict[str, str]:
        """Return the commitments that the member has seen."""
        digests: dict[str, str] = self.require("commitments", SEEN_KIND).expect("digests", dict)
        return digests

    def find_shares(self, fields: Mapping[str, Any], moduli: Sequence[int]) -> dict[str, Residues]:
        """Return the shares that were made for some of these ciphertexts, by the digest of c_1.

        Class counts beside votes are the same ciphertext for as many rows, under whatever question,
        and keep their share. Raises an error where all of ``fields["seconds"]`` is known, or was
        shared with another receiver.
        """
        wanted, each, found = (
            set(fields["seconds"]),
            2 if fields["receiver"] else 1,
            dict[str, Residues](),
        )
        for path in self.home.glob("share-*"):
            file = container.read(path, kind=SHARE_KIND)
            seconds = file.expect("seconds", list)
            if not wanted & set(seconds):
                continue
            if wanted <= set(seconds) or file.expect("receiver", str) != fields["receiver"]:
                raise MemberError(
                    f"{self.name} has shared once for this ciphertext, and does not a second time",
                    code="already-shared",
                )
            ring, count = self.joint.parameters.ring_degree, each * len(seconds)
            body = residues_from_bytes(file.section("packs"), moduli, ring, polynomials=count)
            found |= zip(seconds, body.reshape(len(seconds), each, len(moduli), ring), strict=True)
        return {second: share for second, share in found.items() if second in wanted}

    # -- secrets -----------------------------------------------------------------------------------

    def secret(self, part: str, engine: Engine | None = None) -> MemberSecret:
        """Return one of the secrets, by default in the context of the joint key's parameters."""
        own = engine_for(self.joint.parameters)
        key = own.context.from_secret_str(self._unlock_secret(part))
        if engine is None or engine is own:
            return MemberSecret(own, key)
        return MemberSecret(engine, packing.packing_secret(self.joint.parameters, key))

    def delete_ephemeral(self) -> None:
        """Delete the ephemeral secret; nothing needs it after the second round."""
        (self.home / EPHEMERAL).unlink(missing_ok=True)
        self._unlocked.pop(EPHEMERAL, None)

    def _draw_secret(self, part: str) -> Container:
        engine, lock = engine_for(self.joint.parameters), dict[str, Any]()
        key = seal.KeyGenerator(engine.context).secret_key().to_string()
        if self._passphrase is not None:
            lock, key = locks.lock(key, self._passphrase, bind_to=self._binding(part))
        return make_message(self.joint, MEMBER_KIND, self.name, {"lock": lock}, {"secret_key": key})

    def _unlock_secret(self, part: str) -> bytes:
        if part not in self._unlocked:
            file = self.require(part, MEMBER_KIND)
            lock, key = file.expect("lock", dict), file.section("secret_key")
            if bool(lock) != (self._passphrase is not None):
                raise PassphraseError(
                    f"the secret in {self.home} is "
                    f"{'hold_lock: give its' if lock else 'not hold_lock by a'} passphrase",
                    code="passphrase-mismatch",
                )
            if lock:
                key = locks.unlock(lock, key, self._passphrase or "", bind_to=self._binding(part))
            self._unlocked[part] = key
        return self._unlocked[part]

    def _binding(self, part: str) -> bytes:
        return json.dumps([MEMBER_KIND, self.joint.id, self.name, part]).encode()
