"""The parties of a study: public names and keys, and the one secret that each keeps at home.

A party has one secret seed for one study, from which its signing key, its decryption key, its coin
and its masks are derived: a process that is killed and started again sends the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NoReturn

from encryptedstats.crypto.envelopes import SEED_BYTES, Reader, derive_key, is_public_key
from encryptedstats.crypto.signatures import SIGNING_KEY_BYTES, Signer, verifies
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    ExistsError,
    FileFormatError,
    PassphraseError,
)
from encryptedstats.storage import passphrase as locks
from encryptedstats.storage.objects import read_object, write_object

#: What somebody can be in a study; one party can be several of them.
SITE, WORKER, RECEIVER, AGENT = "site", "worker", "receiver", "linkage agent"
_FORMAT: Final = "encryptedstats study identity 1"
_MAX_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Party:
    """The public side of a party: keys that check its signatures and encrypt for it, and its
    commitment.

    ``coin`` is the hash of a random number that the party reveals once all rows are there.
    """

    name: str
    signing: bytes
    sealing: bytes
    coin: str

    def to_dict(self) -> dict[str, str]:
        return {
            "name": self.name,
            "signing": self.signing.hex(),
            "sealing": self.sealing.hex(),
            "coin": self.coin,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Party:
        """Return the party that :meth:`to_dict` wrote. Malformed values raise ValueError."""
        name, coin = values["name"], values["coin"]
        signing, sealing = bytes.fromhex(values["signing"]), bytes.fromhex(values["sealing"])
        good = (
            isinstance(name, str)
            and isinstance(coin, str)
            and len(bytes.fromhex(coin)) == hashlib.sha256().digest_size
        )
        if not good or len(signing) != SIGNING_KEY_BYTES or not is_public_key(sealing):
            raise ArgumentError("malformed keys of a party", code="malformed-keys")
        return cls(name, signing, sealing, coin)


class Identity:
    """A party's own secret in one study, kept at home in a file of mode 0600.

    ``reading`` decrypts what only members may read (names, levels, cut points); a worker has none.
    """

    def __init__(self, study: str, name: str, seed: bytes, reading: bytes = b"") -> None:
        self.study = study
        self.name = name
        self.reading = reading
        self._seed = seed

    @classmethod
    def new(cls, study: str, name: str, reading: bytes = b"") -> Identity:
        """Return an identity with a fresh random seed."""
        return cls(study, name, os.urandom(SEED_BYTES), reading)

    @cached_property
    def signer(self) -> Signer:
        return Signer(self.secret(b"signing"))

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.secret(b"sealing"))

    @property
    def coin(self) -> bytes:
        """The random number that the party reveals once all rows are there."""
        return self.secret(b"coin")

    @property
    def party(self) -> Party:
        """The public side of this party."""
        return Party(
            self.name,
            self.signer.public_bytes,
            self.reader.public_bytes,
            hashlib.sha256(self.coin).hexdigest(),
        )

    def secret(self, purpose: bytes) -> bytes:
        """Return a secret of 32 bytes for one purpose, the same each time."""
        return derive_key(self._seed, b"party\0" + self.study.encode() + b"\0" + purpose)

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], passphrase: str | None = None) -> None:
        """Write it to a file that only its user can read, locked if a passphrase is given. A file
        that is there stays.
        """
        secret = json.dumps({"seed": self._seed.hex(), "reading": self.reading.hex()}).encode()
        lock: dict[str, Any] = {}
        if passphrase is not None:
            lock, secret = locks.lock(secret, passphrase, bind_to=self._bound_to())
        head = {
            "format": _FORMAT,
            "study": self.study,
            "name": self.name,
            "lock": lock,
            "secret": secret.hex(),
        }
        try:
            write_object(path, json.dumps(head).encode() + b"\n", private=True, overwrite=False)
        except FileExistsError:
            raise ExistsError(
                f"{os.fspath(path)} exists already, and it was not touched: without its "
                "identity a party has left the study. "
                "Give another name",
                code="already-exists",
            ) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str], passphrase: str | None = None) -> Identity:
        """Read it again."""
        try:
            head = json.loads(read_object(path, limit=_MAX_BYTES))
            if head["format"] != _FORMAT:
                raise ValueError
            study, name, lock, secret = (head[key] for key in ("study", "name", "lock", "secret"))
            own = cls(str(study), str(name), b"")
            data = own._decrypt(bytes.fromhex(secret), lock, passphrase)
            values = json.loads(data)
            seed, reading = bytes.fromhex(values["seed"]), bytes.fromhex(values["reading"])
        except PassphraseError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError):
            raise FileFormatError(
                f"{os.fspath(path)} is no identity of a study: it is made when somebody joins one",
                code="not-an-identity",
            ) from None
        return cls(own.study, own.name, seed, reading)

    def _bound_to(self) -> bytes:
        return json.dumps([_FORMAT, self.study, self.name]).encode()

    def _decrypt(self, secret: bytes, lock: Mapping[str, Any], passphrase: str | None) -> bytes:
        if lock and passphrase is None:
            raise PassphraseError(
                "this identity is locked: give its passphrase", code="no-passphrase"
            )
        return (
            locks.unlock(lock, secret, passphrase or "", bind_to=self._bound_to())
            if lock
            else secret
        )

    def __repr__(self) -> str:
        return f"Identity({self.name!r} in study {self.study})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "an identity is not pickled, it is a secret: save() it to a file that stays with you",
            code="secret-not-pickled",
        )


# -- invitations -----------------------------------------------------------------------------------


class Invitation:
    """A secret that the maker of a study sends to one party, who joins with it under that name.

    It works once; all others check the proof against the study's document.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self._signer = Signer(derive_key(code.encode(), b"invitation"))

    @classmethod
    def new(cls) -> Invitation:
        """Return an invitation with a random code."""
        return cls(os.urandom(SEED_BYTES).hex())

    @property
    def public(self) -> str:
        """The key that checks proofs."""
        return self._signer.public_bytes.hex()

    @property
    def reading(self) -> bytes:
        """The key that decrypts the members' part of the document for this party."""
        return derive_key(self.code.encode(), b"invitation reading")

    def proof(self, study: str, party: Party) -> str:
        """Return the proof that the party with these keys was invited."""
        return self._signer.sign(_join_statement(study, party))


def was_invited(public: str, study: str, party: Party, proof: str) -> bool:
    """Return True if the proof of an invitation belongs to these keys."""
    return verifies(bytes.fromhex(public), _join_statement(study, party), proof)


def _join_statement(study: str, party: Party) -> bytes:
    return json.dumps(["encryptedstats join", study, party.to_dict()], sort_keys=True).encode()
