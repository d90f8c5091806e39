"""A joint key for a study: made by the sites in three rounds of messages, held by nobody; all sites
together open for the receiver.

Cryptography is in :mod:`encryptedstats.joint`. Here a site does its rounds, computes anew what the
worker claims before it shares, and the receiver, who has an ordinary key of its own, gets what the
shares switch to that key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto import Parameters, PublicKeys
from encryptedstats.crypto.dispatch import openable
from encryptedstats.errors import (
    FileFormatError,
    KeyMismatchError,
    MemberError,
    StudyError,
    VerificationError,
)
from encryptedstats.joint import JointKey, Member
from encryptedstats.joint.messages import SHARES_KIND
from encryptedstats.joint.opening import Pack, packs_digest
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.studies import validity
from encryptedstats.studies.documents import JOINT, Document
from encryptedstats.studies.holding import (
    KeyKind,
    Opener,
    loaded_key,
    own_key,
    publish_keys,
    register,
)
from encryptedstats.studies.parties import RECEIVER, SITE
from encryptedstats.studies.transcript import CHECK, KEY_ROUNDS, Call, State
from encryptedstats.tables import Schema, plan
from encryptedstats.tables.answers.files import read_answer

if TYPE_CHECKING:
    from encryptedstats.studies.study import Study

RECEIVER_KEYS: Final = "public keys of the receiver"
_HOME: Final = ".member"


def joint_key(document: Document) -> JointKey:
    """What the sites of a study agree on of their key: bound to its document."""
    return JointKey(document.sites, document.parameters, label=f"study {document.id}")


class Joint(KeyKind):
    """Nobody ever has the key: every site has a part of it, and all of them are needed."""

    kind = JOINT
    shared = True

    def parameters(
        self, circuits: Sequence[Any], schema: Schema, n_rows: int, sites: int
    ) -> Parameters:
        """With room for the noise of as many members as there are sites, and for what hides their
        secrets.
        """
        return plan(list(circuits), schema, n_rows, members=sites).parameters

    # -- making the key
    # --------------------------------------------------------------------------------------------

    def makers(self, state: State) -> tuple[str, ...]:
        """The sites that owe a message of the round that is going on; then the receiver, who
        announces the keys.
        """
        for name in KEY_ROUNDS:
            owing = tuple(
                site for site in state.document.sites if site not in state.key_rounds[name]
            )
            if owing:
                return owing
        return (state.document.receiver,)

    def keygen(
        self, study: Study, path: str | os.PathLike[str] | None, passphrase: str | None
    ) -> None:
        """A site: the messages that are due. The receiver: its own key, and the joint public keys,
        when all messages are there.
        """
        roles, state = study.document.roles(study.me.name), study.state()
        if SITE in roles:
            state = self._rounds(study, state)
        if RECEIVER in roles and not state.keys and state.key_rounds_complete:
            owner = own_key(study, path, passphrase)
            receiver = study.transcript.store_object(
                container.to_bytes(owner.public_keys().to_container())
            )
            publish_keys(study, self._public_keys(study, state), {RECEIVER_KEYS: receiver})
        elif SITE not in roles and not state.key_rounds_complete:
            raise StudyError(
                "the sites have not made their parts of the joint key yet: status says who is next",
                code="key-parts-missing",
            )

    def _rounds(self, study: Study, state: State) -> State:
        member, me = self._member(study), study.me.name
        makes: dict[str, Callable[[dict[str, dict[str, bytes]]], bytes]] = {
            KEY_ROUNDS[0]: lambda said: member.commit(),
            KEY_ROUNDS[1]: lambda said: member.contribute(said[KEY_ROUNDS[0]]),
            KEY_ROUNDS[2]: lambda said: member.relinearise(said[KEY_ROUNDS[1]]),
        }
        for number, name in enumerate(KEY_ROUNDS):
            if number and not state.key_round_complete(KEY_ROUNDS[number - 1]):
                return state
            if me not in state.key_rounds[name]:
                said = {one: self._said(study, state, one) for one in KEY_ROUNDS[:number]}
                study.send("key round", {"round": name}, f"key-{name}", partial(makes[name], said))
                state = study.state()
            else:
                study.store_announced(f"key-{name}", state.key_rounds[name][me])
        return state

    def check_keys(self, study: Study, state: State, keys: PublicKeys) -> None:
        """Refuse to encrypt for a key that is not the one that this site has helped to make."""
        made = self._finished(study, state)
        if made.key_id != keys.key_id:
            raise KeyMismatchError(
                f"{study.document.receiver} has announced the key {keys.key_id}, and the sites "
                f"have made {made.key_id}: encrypt "
                "nothing, and tell the other sites",
                code="other-key",
            )

    def _finished(self, study: Study, state: State) -> PublicKeys:
        member = self._member(study)
        if not member.finished:
            member.finish(*(self._said(study, state, name) for name in KEY_ROUNDS))
        return member.keys

    def _public_keys(self, study: Study, state: State) -> PublicKeys:
        return joint_key(study.document).public_keys(
            *(self._said(study, state, name) for name in KEY_ROUNDS)
        )

    def _said(self, study: Study, state: State, name: str) -> dict[str, bytes]:
        return {
            site: study.transcript.read_object(digest)
            for site, digest in state.key_rounds[name].items()
        }

    def _member(self, study: Study) -> Member:
        # Locked by a secret of the identity: whoever has a passphrase for that has one for this.
        words = study.me.secret(b"member of a joint key").hex()
        return Member(
            study.beside_identity(_HOME), joint_key(study.document), study.me.name, passphrase=words
        )

    # -- opening
    # --------------------------------------------------------------------------------------------

    def share(self, study: Study, state: State, call: Call) -> bytes:
        """This site's shares of all that is called for, each computed anew from the rows of all
        sites first.
        """
        keys, joint = study.public_keys(), joint_key(study.document)
        self.check_keys(study, state, keys)
        receiver = self._receiver(study, state)
        member, sections = self._member(study), {}
        for name, digest in call.items.items():
            before = self._sent_before(study, state, name, digest)
            if before is not None:
                sections[name] = before
                continue
            claimed, own = (
                self._claimed(study, state, name, digest, keys),
                self._computed(study, state, name, keys),
            )
            if not own.equals(claimed):
                raise VerificationError(
                    f"what {study.document.worker} gave for {name!r} is not what comes out of the "
                    "rows of the study: nothing is "
                    "shared for it",
                    code="wrong-result",
                )
            statement = json.dumps(["study", study.document.id, name, digest]).encode()
            sections[name] = member.share_packs(own.packs(), statement, receiver)
        shares = Container(
            SHARES_KIND, joint.parameters.fingerprint, joint.id, {"member": study.me.name}, sections
        )
        return container.to_bytes(shares)

    def _sent_before(self, study: Study, state: State, name: str, digest: str) -> bytes | None:
        """The share that this site has sent for the same: there is no other, even if its folder is
        an old copy.
        """
        me = study.me.name
        sent = [
            c
            for c in state.calls
            if c.items.get(name) == digest and me in state.shares.get(c.hash, {})
        ]
        return self._share_of(study, me, state.shares[sent[0].hash][me], name) if sent else None

    def _claimed(
        self, study: Study, state: State, name: str, digest: str, keys: PublicKeys
    ) -> EncryptedNumbers:
        """What the worker has computed."""
        file = container.from_bytes(study.transcript.read_object(digest))
        if name.startswith(CHECK):
            return EncryptedNumbers.from_container(file, keys)
        answer = read_answer(file, keys)
        study._check_answer(name, answer, state)
        return answer.ciphertexts

    def _computed(
        self, study: Study, state: State, name: str, keys: PublicKeys
    ) -> EncryptedNumbers:
        """The same, computed here from the rows of all sites."""
        if name.startswith(CHECK):
            rows, sites = (
                study._checked_rows(name.removeprefix(CHECK), state, keys),
                len(study.document.sites),
            )
            return validity.ask(rows, state.coin or b"", sites)
        return study.answer_from_rows(name).ciphertexts

    def _receiver(self, study: Study, state: State) -> PublicKeys:
        digest = state.more["key parts"].get(RECEIVER_KEYS, "")
        return PublicKeys.from_container(container.from_bytes(study.transcript.read_object(digest)))

    def opener(
        self,
        study: Study,
        state: State,
        call: Call | None,
        path: str | os.PathLike[str] | None,
        passphrase: str | None,
    ) -> Opener | None:
        """The receiver's key, for what the shares of all sites switch to it."""
        if call is None:
            raise StudyError("nothing is called for", code="nothing-to-open")
        given = state.shares.get(call.hash, {})
        if set(given) != set(study.document.sites):
            return None
        if path is None:
            raise StudyError(
                "the receiver holds the key that results are switched to: say which file it is in",
                code="no-key-file",
            )
        keys, receiver = study.public_keys(), self._receiver(study, state)
        owner = loaded_key(path, passphrase, receiver.key_id)
        switched: dict[str, list[Pack]] = {}
        for name, digest in call.items.items():
            packs = self._claimed(study, state, name, digest, keys).packs()
            try:
                shares = {
                    site: self._share_of(study, site, found, name) for site, found in given.items()
                }
                found = joint_key(study.document).switch_packs(packs, shares, owner.key_id)
            except (MemberError, FileFormatError) as error:
                study.refusals.append(f"{name}: {error}")
                return None
            switched[packs_digest(packs)] = found

        def opened(value: Any, schema: Any = None) -> Any:
            closed = openable(value)
            mine = closed.with_packs(owner.public_keys(), switched[packs_digest(closed.packs())])
            return owner.open(mine, **({} if schema is None else {"schema": schema}))

        return opened

    def _share_of(self, study: Study, site: str, digest: str, name: str) -> bytes:
        shares = container.from_bytes(
            study.transcript.read_object(digest), kind=SHARES_KIND, name=f"what came from {site}"
        )
        return shares.section(name)


register(Joint())
