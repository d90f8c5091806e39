"""A joint key for a study: made by the sites in three rounds of messages, held by nobody; all sites
together open results for the receiver.

The cryptography is in :mod:`encryptedstats.joint`. A site does its rounds and recomputes what the
worker claims before it shares. The receiver has an ordinary key, to which the shares switch the
results.
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
from encryptedstats.studies.documents import JOINT, StudyDocument
from encryptedstats.studies.holding import (
    KeyKind,
    Opener,
    load_key,
    own_key,
    publish_keys,
    register,
)
from encryptedstats.studies.parties import RECEIVER, SITE
from encryptedstats.studies.transcript import CHECK, KEY_ROUNDS, Call, StudyState
from encryptedstats.tables import PublicSchema, Schema, plan
from encryptedstats.tables.answers.files import read_answer

if TYPE_CHECKING:
    from encryptedstats.studies.study import Study

RECEIVER_KEYS: Final = "public keys of the receiver"
_HOME: Final = ".member"


def joint_key(document: StudyDocument) -> JointKey:
    """Return the sites' agreement on their joint key, bound to the study's document."""
    return JointKey(document.sites, document.parameters, label=f"study {document.id}")


class Joint(KeyKind):
    """A key that nobody ever has: every site has a share, and all of them are needed."""

    kind = JOINT
    shared = True

    def parameters(
        self, circuits: Sequence[Any], schema: Schema | PublicSchema, n_rows: int, sites: int
    ) -> Parameters:
        """Return parameters with room for the noise of every site's share and for flooding."""
        return plan(list(circuits), schema, n_rows, members=sites).parameters

    # -- making the key ----------------------------------------------------------------------------

    def makers(self, state: StudyState) -> tuple[str, ...]:
        """Return the sites that owe a message of the current round; then the receiver, who
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
        """Send the messages that are due from this site; the receiver makes its own key, and the
        joint public keys once all messages are there.
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

    def _rounds(self, study: Study, state: StudyState) -> StudyState:
        member, me = self._member(study), study.me.name
        makes: dict[str, Callable[[dict[str, dict[str, bytes]]], bytes]] = {
            KEY_ROUNDS[0]: lambda said: member.commit(),
            KEY_ROUNDS[1]: lambda said: member.contribute(said[KEY_ROUNDS[0]]),
            KEY_ROUNDS[2]: lambda said: member.relinearise(said[KEY_ROUNDS[1]]),
        }
        for number, name in enumerate(KEY_ROUNDS):
            if number and not state.is_key_round_complete(KEY_ROUNDS[number - 1]):
                return state
            if me not in state.key_rounds[name]:
                said = {one: self._read_messages(study, state, one) for one in KEY_ROUNDS[:number]}
                study.send("key round", {"round": name}, f"key-{name}", partial(makes[name], said))
                state = study.state()
            else:
                study.store_announced(f"key-{name}", state.key_rounds[name][me])
        return state

    def check_keys(self, study: Study, state: StudyState, keys: PublicKeys) -> None:
        """Refuse to encrypt for a key that is not the one that this site has helped to make."""
        made = self._finish(study, state)
        if made.key_id != keys.key_id:
            raise KeyMismatchError(
                f"{study.document.receiver} has announced the key {keys.key_id}, and the sites "
                f"have made {made.key_id}: encrypt "
                "nothing, and tell the other sites",
                code="other-key",
            )

    def _finish(self, study: Study, state: StudyState) -> PublicKeys:
        member = self._member(study)
        if not member.finished:
            member.finish(*(self._read_messages(study, state, name) for name in KEY_ROUNDS))
        return member.keys

    def _public_keys(self, study: Study, state: StudyState) -> PublicKeys:
        return joint_key(study.document).public_keys(
            *(self._read_messages(study, state, name) for name in KEY_ROUNDS)
        )

    def _read_messages(self, study: Study, state: StudyState, name: str) -> dict[str, bytes]:
        return {
            site: study.transcript.read_object(digest)
            for site, digest in state.key_rounds[name].items()
        }

    def _member(self, study: Study) -> Member:
        # Locked by a secret of the identity, so the identity's passphrase protects it too.
        words = study.me.secret(b"member of a joint key").hex()
        return Member(
            study.path_by_identity(_HOME),
            joint_key(study.document),
            study.me.name,
            passphrase=words,
        )

    # -- opening -----------------------------------------------------------------------------------

    def share(self, study: Study, state: StudyState, call: Call) -> bytes:
        """Return this site's shares for a call, after recomputing each result from the rows of all
        sites.
        """
        keys, joint = study.public_keys(), joint_key(study.document)
        self.check_keys(study, state, keys)
        receiver = self._receiver(study, state)
        member, sections = self._member(study), {}
        for name, digest in call.items.items():
            before = self._find_sent(study, state, name, digest)
            if before is not None:
                sections[name] = before
                continue
            claimed, own = (
                self._read_claim(study, state, name, digest, keys),
                self._recompute(study, state, name, keys),
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

    def _find_sent(self, study: Study, state: StudyState, name: str, digest: str) -> bytes | None:
        """Return the share that this site has sent before, which must be sent again.

        It is found even if the site's folder is an old copy.
        """
        me = study.me.name
        sent = [
            c
            for c in state.calls
            if c.items.get(name) == digest and me in state.shares.get(c.hash, {})
        ]
        return self._share_of(study, me, state.shares[sent[0].hash][me], name) if sent else None

    def _read_claim(
        self, study: Study, state: StudyState, name: str, digest: str, keys: PublicKeys
    ) -> EncryptedNumbers:
        """Return what the worker has computed."""
        file = container.from_bytes(study.transcript.read_object(digest))
        if name.startswith(CHECK):
            return EncryptedNumbers.from_container(file, keys)
        answer = read_answer(file, keys)
        study._check_answer(name, answer, state)
        return answer.ciphertexts

    def _recompute(
        self, study: Study, state: StudyState, name: str, keys: PublicKeys
    ) -> EncryptedNumbers:
        """Recompute the same from the rows of all sites."""
        if name.startswith(CHECK):
            rows, sites = (
                study._rows_to_check(name.removeprefix(CHECK), state, keys),
                len(study.document.sites),
            )
            return validity.ask(rows, state.coin or b"", sites)
        return study.answer_from_rows(name).ciphertexts

    def _receiver(self, study: Study, state: StudyState) -> PublicKeys:
        digest = state.more["key parts"].get(RECEIVER_KEYS, "")
        return PublicKeys.from_container(container.from_bytes(study.transcript.read_object(digest)))

    def opener(
        self,
        study: Study,
        state: StudyState,
        call: Call | None,
        path: str | os.PathLike[str] | None,
        passphrase: str | None,
    ) -> Opener | None:
        """Return an opener with the receiver's key for results that the shares of all sites switch
        to it.
        """
        if call is None:
            raise StudyError("nothing is called for", code="nothing-to-open")
        taken = state.shares.get(call.hash, {})
        if set(taken) != set(study.document.sites):
            return None
        if path is None:
            raise StudyError(
                "the receiver holds the key that results are switched to: say which file it is in",
                code="no-key-file",
            )
        keys, receiver = study.public_keys(), self._receiver(study, state)
        owner = load_key(path, passphrase, receiver.key_id)
        switched: dict[str, list[Pack]] = {}
        for name, digest in call.items.items():
            packs = self._read_claim(study, state, name, digest, keys).packs()
            try:
                shares = {
                    site: self._share_of(study, site, found, name) for site, found in taken.items()
                }
                found = joint_key(study.document).switch_packs(packs, shares, owner.key_id)
            except (MemberError, FileFormatError) as error:
                study.refusals.append(f"{name}: {error}")
                return None
            switched[packs_digest(packs)] = found

        def open_switched(value: Any, schema: Any = None) -> Any:
            closed = openable(value)
            mine = closed.with_packs(owner.public_keys(), switched[packs_digest(closed.packs())])
            return owner.open(mine, **({} if schema is None else {"schema": schema}))

        return open_switched

    def _share_of(self, study: Study, site: str, digest: str, name: str) -> bytes:
        shares = container.from_bytes(
            study.transcript.read_object(digest), kind=SHARES_KIND, name=f"what came from {site}"
        )
        return shares.section(name)


register(Joint())
