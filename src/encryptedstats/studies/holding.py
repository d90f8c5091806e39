"""The kinds of keys that a study can have, one class each, in this module or one of their own.

With one holder, the receiver makes the key and keeps it. Under escrow the receiver makes the key,
encrypts it and deletes it: every site gets a share of the encrypting key (Shamir, by PyCryptodome),
and any k sites together let the receiver open. The key is whole at two moments: where it is made,
and during an opening. A joint key (``joint``) is never whole.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from encryptedstats.crypto import Owner, Parameters, PublicKeys
from encryptedstats.crypto.envelopes import seal_for
from encryptedstats.errors import FileFormatError, KeyMismatchError, PassphraseError, StudyError
from encryptedstats.storage import container
from encryptedstats.studies.documents import ESCROW, ONE_HOLDER
from encryptedstats.studies.transcript import Call, StudyState
from encryptedstats.tables import PublicSchema, Schema, plan

if TYPE_CHECKING:
    from encryptedstats.studies.study import Study

#: Opens an encrypted value: with ``schema=`` by its names.
Opener = Callable[..., Any]
_HALF: Final = 16  # bytes that Shamir's sharing by PyCryptodome takes at a time
SEALED: Final = "sealed key"
SHARE: Final = "share of "
COMMITMENT: Final = "hash of the share of "


class KeyKind(ABC):
    """Make a study's key, share it among the parties, and open results with it."""

    kind: ClassVar[str]
    #: Whether sites have to give shares before anything is opened: then the receiver calls for them
    #: first.
    shared: ClassVar[bool] = False

    def parameters(
        self, circuits: Sequence[Any], schema: Schema | PublicSchema, n_rows: int, sites: int
    ) -> Parameters:
        """Return parameters that carry all these circuits, over the rows of all sites, and their
        opening.
        """
        return plan(list(circuits), schema, n_rows, by_others=True).parameters

    def makers(self, state: StudyState) -> tuple[str, ...]:
        """Return who must act next before there is a key."""
        return (state.document.receiver,)

    @abstractmethod
    def keygen(
        self, study: Study, path: str | os.PathLike[str] | None, passphrase: str | None
    ) -> None:
        """Do this party's next step of making the key."""

    # most kinds believe the receiver
    def check_keys(self, study: Study, state: StudyState, keys: PublicKeys) -> None:  # noqa: B027
        """Refuse to encrypt for keys that are not the study's."""

    def share(self, study: Study, state: StudyState, call: Call) -> bytes:
        """Return this site's share for an opening, a public object.

        It is made once for a call, and stored before it is sent.
        """
        raise StudyError(
            f"the key of this study has {self.kind}: there are no shares to give", code="no-shares"
        )

    @abstractmethod
    def opener(
        self,
        study: Study,
        state: StudyState,
        call: Call | None,
        path: str | os.PathLike[str] | None,
        passphrase: str | None,
    ) -> Opener | None:
        """Return the function that opens results, or None where shares are missing."""


_KINDS: dict[str, KeyKind] = {}


def register(kind: KeyKind) -> KeyKind:
    """Make a kind of key known."""
    _KINDS[kind.kind] = kind
    return kind


def kind_of(name: str) -> KeyKind:
    if name not in _KINDS:
        raise StudyError(
            f"key={name!r}: the key of a study can be {', '.join(map(repr, _KINDS))}",
            code="unknown-key-kind",
        )
    return _KINDS[name]


def publish_keys(study: Study, keys: PublicKeys, parts: dict[str, str]) -> None:
    """Say which public keys are the study's, and where what belongs to them lies."""
    digest = study.transcript.store_object(container.to_bytes(keys.to_container()))
    study.post("keys", {"object": digest, "key_id": keys.key_id, "parts": parts})


def own_key(study: Study, path: str | os.PathLike[str] | None, passphrase: str | None) -> Owner:
    """Return the receiver's key from its file, making the file first if it does not exist."""
    if path is None:
        raise StudyError(
            "the receiver holds a key of this study alone: say which file it is kept in",
            code="no-key-file",
        )
    if not Path(path).exists():
        owner = Owner(study.document.parameters)
        owner.save(path, passphrase)
        return owner
    owner = Owner.load(path, passphrase)
    if owner.parameters != study.document.parameters:
        raise KeyMismatchError(
            f"{os.fspath(path)} has a key of other parameters than the study has agreed on",
            code="other-parameters",
        )
    return owner


def load_key(path: str | os.PathLike[str], passphrase: str | None, key_id: str) -> Owner:
    """Return the receiver's key from its file, or raise an error if it is another key."""
    owner = Owner.load(path, passphrase)
    if owner.key_id != key_id:
        raise KeyMismatchError(
            f"{os.fspath(path)} has key {owner.key_id}, and that of the study is {key_id}",
            code="other-key",
        )
    return owner


class OneHolder(KeyKind):
    """The receiver alone has the key, in a file."""

    kind = ONE_HOLDER

    def keygen(
        self, study: Study, path: str | os.PathLike[str] | None, passphrase: str | None
    ) -> None:
        """Make the key; the file first, so that no study has a key that is nowhere. A file of a run
        that was killed is taken.
        """
        keys, known = own_key(study, path, passphrase).public_keys(), study.state().key_id
        if not known:
            publish_keys(study, keys, {})
        elif known != keys.key_id:
            raise StudyError(
                f"the study has the key {known} already, and {os.fspath(path or '')} has another "
                "one: it is not used",
                code="already-has-key",
            )

    def opener(
        self,
        study: Study,
        state: StudyState,
        call: Call | None,
        path: str | os.PathLike[str] | None,
        passphrase: str | None,
    ) -> Opener | None:
        if path is None:
            raise StudyError(
                "the receiver holds the key of this study alone: say which file it is in",
                code="no-key-file",
            )
        return load_key(path, passphrase, state.key_id).open


class Escrow(KeyKind):
    """The encrypted key, which any k of n sites together decrypt."""

    kind = ESCROW
    shared = True

    def keygen(
        self, study: Study, path: str | os.PathLike[str] | None, passphrase: str | None
    ) -> None:
        """Make the key, seal it, split what unseals it, and forget both."""
        if path is not None:
            raise StudyError(
                "the key of this study is under escrow: it is kept in no file",
                code="key-under-escrow",
            )
        document, state = study.document, study.state()
        if state.keys:
            return
        owner, secret = Owner(document.parameters), os.urandom(2 * _HALF)
        stored = study.transcript.store_object
        parts = {SEALED: stored(_seal(owner, secret))}
        for site, share in zip(
            document.sites, _split(document.key.openers, len(document.sites), secret), strict=True
        ):
            sealed = seal_for(state.parties[site].sealing, share, _bound_to(study, "deal", site))
            parts[SHARE + site] = stored(sealed)
            parts[COMMITMENT + site] = _commitment(study, share)
        publish_keys(study, owner.public_keys(), parts)

    def share(self, study: Study, state: StudyState, call: Call) -> bytes:
        """Return this site's share, encrypted for the receiver and for this call alone."""
        share = self._own_share(study, state)
        receiver = state.parties[study.document.receiver]
        return seal_for(receiver.sealing, share, _bound_to(study, call.hash, study.me.name))

    def _own_share(self, study: Study, state: StudyState) -> bytes:
        parts, name = state.more["key parts"], study.me.name
        if SHARE + name not in parts:
            raise StudyError(f"{name} has no share of the key", code="no-share")
        share = study.me.reader.open(
            study.transcript.read_object(parts[SHARE + name]), _bound_to(study, "deal", name)
        )
        if _commitment(study, share) != parts[COMMITMENT + name]:
            raise FileFormatError(
                "the share that was dealt is not the one that was committed to: the dealer has "
                "cheated",
                code="uncommitted-share",
            )
        return share

    def opener(
        self,
        study: Study,
        state: StudyState,
        call: Call | None,
        path: str | os.PathLike[str] | None,
        passphrase: str | None,
    ) -> Opener | None:
        """Combine the shares to the key, which is whole until the called-for results are opened."""
        if call is None:
            raise StudyError("nothing is called for", code="nothing-to-open")
        shares, parts = {}, state.more["key parts"]
        for site, digest in state.shares.get(call.hash, {}).items():
            sealed = study.transcript.read_object(digest)
            try:
                share = study.me.reader.open(sealed, _bound_to(study, call.hash, site))
                good = _commitment(study, share) == parts[COMMITMENT + site]
            except (KeyMismatchError, FileFormatError):
                good = False
            if good:
                shares[site] = share
            else:
                study.refusals.append(
                    f"the share of {site} for this opening is not the one that was dealt: refused"
                )
        if len(shares) < study.document.key.openers:
            return None
        secret = _combine_shares(list(shares.values())[: study.document.key.openers])
        return _unseal(study.transcript.read_object(parts[SEALED]), secret).open


def _bound_to(study: Study, place: str, site: str) -> bytes:
    return f"encryptedstats escrow {study.document.id} {place} {site}".encode()


def _commitment(study: Study, share: bytes) -> str:
    """Return a hash of a share, by which everybody can recognise a wrong share.

    A share is uniform, so its hash reveals nothing.
    """
    return hashlib.sha256(_bound_to(study, "share", "") + share).hexdigest()


def _split(k: int, n: int, secret: bytes) -> list[bytes]:
    """Split a secret into n shares, any k of which restore it and fewer of which reveal nothing.

    The halves of the secret are shared separately, each by Shamir over GF(2^128).
    """
    halves = [_shamir().split(k, n, secret[start : start + _HALF]) for start in (0, _HALF)]
    return [bytes([one[0]]) + one[1] + two[1] for one, two in zip(*halves, strict=True)]


def _combine_shares(shares: list[bytes]) -> bytes:
    halves = [[(one[0], one[start : start + _HALF]) for one in shares] for start in (1, 1 + _HALF)]
    return b"".join(_shamir().combine(half) for half in halves)


def _shamir() -> Any:
    try:
        from Crypto.Protocol.SecretSharing import Shamir
    except ImportError as error:
        raise StudyError(
            "a key under escrow is split by PyCryptodome: pip install 'encryptedstats[studies]'",
            code="missing-package",
        ) from error
    return Shamir


def _seal(owner: Owner, secret: bytes) -> bytes:
    """Return the locked key file, which is written to disk for a moment in this form only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sealed.key"
        owner.save(path, passphrase=secret.hex())
        return path.read_bytes()


def _unseal(data: bytes, secret: bytes) -> Owner:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sealed.key"
        path.touch(mode=0o600)
        path.write_bytes(data)
        try:
            return Owner.load(path, passphrase=secret.hex())
        except PassphraseError:
            raise FileFormatError(
                "the shares do not open the sealed key: the dealer has cheated",
                code="shares-not-opening",
            ) from None


register(OneHolder())
register(Escrow())
