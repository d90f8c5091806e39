"""A member of a joint key: makes the messages of every round, and a share of every opening."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from encryptedstats.crypto.dispatch import openable
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import residues_to_bytes
from encryptedstats.errors import ArgumentError, ArgumentTypeError, KeyMismatchError, MemberError
from encryptedstats.joint import galois_keys, public_key, relinearisation_key
from encryptedstats.joint.key import JointKey
from encryptedstats.joint.messages import (
    COMMITMENT_KIND,
    CONTRIBUTION_KIND,
    RELINEARISATION_KIND,
    SHARE_KIND,
    Messages,
    digest_of,
    make_message,
    read_commitments,
    read_contributions,
    sum_section,
    transcript_of,
)
from encryptedstats.joint.opening import (
    OpenableAnswer,
    Pack,
    common_moduli,
    make_opening_share,
    packs_digest,
    second_digest,
)
from encryptedstats.joint.state import EPHEMERAL, SECRET, SEEN_KIND, MemberState
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.files import PRIVATE

_PUBLIC_KEYS = "public.keys"


class Member:
    """One member of a joint key, with a share of the secret.

    Parameters
    ----------
    home : path of a folder
        Keeps the member's secret and all sent messages, readable to this user alone. Created if it
        does not exist, loaded otherwise. Never use a copy or a restored backup of it next to the
        original: a share must be made only once.
    joint : JointKey
    name : str
        Which of the members this is.
    passphrase : str, optional
        Encrypts the secret, from the first use on.
    """

    def __init__(
        self,
        home: str | os.PathLike[str],
        joint: JointKey,
        name: str,
        *,
        passphrase: str | None = None,
    ) -> None:
        if name not in joint.members:
            raise ArgumentError(
                f"{name!r} is no member: there are {', '.join(joint.members)}",
                code="unknown-member",
            )
        self.joint, self.name, self.home = joint, name, Path(home)
        self.state = MemberState(self.home, joint, name, passphrase)

    # -- making the public keys --------------------------------------------------------------------

    def commit(self) -> bytes:
        """Make the first message, a hash of the second. All commit before anybody contributes."""
        digest = digest_of(self._contribution())
        return container.to_bytes(
            make_message(self.joint, COMMITMENT_KIND, self.name, {"digest": digest}, {})
        )

    def contribute(self, commitments: Messages) -> bytes:
        """Make the second message: shares of public and Galois keys, relinearisation round 1."""
        digests, own = read_commitments(self.joint, commitments), self._contribution()
        if digests[self.name] != digest_of(own):
            raise MemberError(
                f"the commitment that is said to be {self.name}'s is not hers: it was exchanged "
                "in transit",
                code="exchanged-commitment",
            )
        with self.state.lock():
            stored = self.state.find("commitments", SEEN_KIND)
            if stored is not None and stored.fields["digests"] != digests:
                raise MemberError(
                    f"{self.name} has shown her contribution after other commitments than these: "
                    "the members begin anew, with "
                    "another label",
                    code="other-commitments",
                )
            if stored is None:
                seen = make_message(self.joint, SEEN_KIND, self.name, {"digests": digests}, {})
                self.state.store("commitments", seen)
        return own

    def relinearise(self, contributions: Messages) -> bytes:
        """Make the third message from the second ones of all members: relinearisation round 2."""
        checked = read_contributions(self.joint, self.state.seen_digests(), contributions)
        transcript = transcript_of(self.joint, contributions)
        with self.state.lock():
            stored = self.state.find("relinearisation", RELINEARISATION_KIND)
            if stored is None:
                stored = self.state.store(
                    "relinearisation", self._second_round(checked, transcript)
                )
            self.state.delete_ephemeral()
        if stored.expect("transcript", str) != transcript:
            raise MemberError(
                f"{self.name} has relinearised other contributions than these, and does so once: "
                "the members begin anew, with "
                "another label",
                code="other-contributions",
            )
        return self.state.stored_bytes("relinearisation")

    def finish(
        self, commitments: Messages, contributions: Messages, relinearisations: Messages
    ) -> PublicKeys:
        """Make and store the public keys. She makes shares for ciphertexts of these keys only."""
        digests = read_commitments(self.joint, commitments)
        own = relinearisations.get(self.name)
        if digests != self.state.seen_digests() or own != self.state.stored_bytes(
            "relinearisation"
        ):
            raise MemberError(
                f"these are not the messages that {self.name} has seen and sent",
                code="other-messages",
            )
        keys = self.joint.public_keys(commitments, contributions, relinearisations)
        with self.state.lock():
            if not self.finished:
                container.write(
                    keys.to_container(), self.home / _PUBLIC_KEYS, mode=PRIVATE, overwrite=False
                )
        return keys

    @property
    def finished(self) -> bool:
        """True once the joint public keys are complete."""
        return (self.home / _PUBLIC_KEYS).exists()

    @cached_property
    def keys(self) -> PublicKeys:
        """The joint public keys."""
        if not self.finished:
            raise MemberError(
                f"{self.name} knows no public keys of this joint key yet: finish(...) makes them",
                code="not-finished",
            )
        return PublicKeys.load(self.home / _PUBLIC_KEYS)

    def _contribution(self) -> bytes:
        with self.state.lock():
            if self.state.find("contribution", CONTRIBUTION_KIND) is None:
                self.state.store("contribution", self._first_round())
        return self.state.stored_bytes("contribution")

    def _first_round(self) -> Container:
        joint, moduli = self.joint, self.joint.parameters.coefficient_moduli
        own, ephemeral = self.state.secret(SECRET), self.state.secret(EPHEMERAL)
        shares = {public_key.SECTION: public_key.make_public_share(own, joint.common)}
        first = relinearisation_key.make_first_shares(own, ephemeral, joint.common)
        shares |= zip(relinearisation_key.FIRST_ROUND, first, strict=True)
        made = {name: residues_to_bytes(share, moduli) for name, share in shares.items()}
        for section in joint.galois_sections():
            secret = self.state.secret(SECRET, section.engine)
            share = galois_keys.make_galois_shares(secret, section, joint.common)
            made[section.name] = residues_to_bytes(
                share, section.engine.parameters.coefficient_moduli
            )
        return make_message(joint, CONTRIBUTION_KIND, self.name, {}, made)

    def _second_round(self, checked: Mapping[str, Container], transcript: str) -> Container:
        joint, moduli = self.joint, self.joint.parameters.coefficient_moduli
        shape = (len(moduli) - 1, joint.parameters.ring_degree)
        h_sum, k_sum = (
            sum_section(checked, name, moduli, shape) for name in relinearisation_key.FIRST_ROUND
        )
        own, ephemeral = self.state.secret(SECRET), self.state.secret(EPHEMERAL)
        made = relinearisation_key.make_second_shares(own, ephemeral, h_sum, k_sum)
        sections = {relinearisation_key.SECOND_ROUND: residues_to_bytes(made, moduli)}
        return make_message(
            joint, RELINEARISATION_KIND, self.name, {"transcript": transcript}, sections
        )

    # -- opening -----------------------------------------------------------------------------------

    def share(
        self,
        answer: OpenableAnswer,
        question: Any,
        table: Any = None,
        rows: Any = None,
        *,
        receiver: PublicKeys | None = None,
        trust_worker: bool = False,
    ) -> bytes:
        """Make her share of an opening, once, from an answer that she has computed anew.

        Parameters
        ----------
        answer : EncryptedAnswer
            Of packed totals; or votes, by a model that stayed encrypted.
        question : Question
            What was agreed to be asked; of votes, the model.
        table : EncryptedTable
            The rows that were agreed on: the answer is computed from them again, and refused where
            it differs.
        rows : EncryptedTable, optional
            Of votes: the new rows that they are for. What is opened are their votes, row by row.
        receiver : PublicKeys, optional
            Whose key the answer is switched to. Without one, anybody with all shares can read it.
        trust_worker : bool
            Share for what the worker has sent, without the rows: **the worker is then trusted with
            the key**, since a party that may have any ciphertext opened can read the secret off the
            shares.
        """
        if (table is None) != trust_worker:
            raise ArgumentError(
                "share needs the table that the answer is of, to compute it anew; or, without it, "
                "trust_worker=True: a worker who "
                "may have any ciphertext opened can read a member's secret off her shares",
                code="table-or-trust",
            )
        answer = openable(answer)
        if answer.keys.key_id != self.keys.key_id:
            raise KeyMismatchError(
                f"this belongs to key {answer.keys.key_id}, and {self.name} shares for "
                f"{self.keys.key_id}",
                code="other-key",
            )
        answer = answer.verify(question, table, rows)
        return self.share_packs(answer.packs(), answer.statement(), receiver)

    def share_packs(
        self, packs: Sequence[Pack], statement: bytes, receiver: PublicKeys | None
    ) -> bytes:
        """Make her share of packs that she has computed herself, once for a statement."""
        if receiver is not None and (
            receiver.joint or receiver.parameters != self.joint.parameters
        ):
            raise KeyMismatchError(
                "a receiver has a key of her own with the joint key's parameters: "
                "es.Owner(parameters)",
                code="unfit-receiver",
            )
        fields = {
            "packs": packs_digest(packs),
            "seconds": [second_digest(residues) for residues, _ in packs],
            "receiver": "" if receiver is None else receiver.key_id,
        }
        name = f"share-{hashlib.sha256(statement).hexdigest()}"
        with self.state.lock():
            stored = self.state.find(name, SHARE_KIND)
            if stored is None:
                stored = self.state.store(name, self._make_shares(packs, fields, receiver))
        if {field: stored.fields.get(field) for field in fields} != fields:
            raise MemberError(
                f"{self.name} has shared once for this question over these rows, for another "
                "ciphertext or receiver, and does not "
                "a second time",
                code="already-shared",
            )
        return self.state.stored_bytes(name)

    def _make_shares(
        self, packs: Sequence[Pack], fields: Mapping[str, Any], receiver: PublicKeys | None
    ) -> Container:
        moduli = common_moduli(self.joint.parameters, packs)
        shares, secret = self.state.find_shares(fields, moduli), self.state.secret(SECRET)
        for pack, second in zip(packs, fields["seconds"], strict=True):
            if second not in shares:
                shares[second] = make_opening_share(secret, pack, moduli, receiver)
        body = np.concatenate([shares[second] for second in fields["seconds"]])
        sections = {"packs": residues_to_bytes(body, moduli)}
        return make_message(self.joint, SHARE_KIND, self.name, fields, sections)

    def __repr__(self) -> str:
        return f"Member({self.name} of {self.joint!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("a Member is not pickled, it holds a secret", code="not-pickled")
