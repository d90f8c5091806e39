"""Encryption of bytes for one reader, and secrets shared by two: X25519, HKDF-SHA256 and
AES-256-GCM, by the ``cryptography`` package.

Everything is bound to a context (study, round, reader), so that a message for one place cannot be
used in another.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from encryptedstats.errors import FileFormatError, KeyMismatchError

SEED_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
_FIELD: Final = (1 << 255) - 19
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


def derive_key(secret: bytes, purpose: bytes, length: int = SEED_BYTES) -> bytes:
    """Derive a key for one purpose from a secret. Keys for other purposes reveal
    nothing about it.
    """
    made: bytes = HKDF(SHA256(), length, salt=None, info=b"encryptedstats " + purpose).derive(
        secret
    )
    return made


def lock(key: bytes, data: bytes, bind_to: bytes) -> bytes:
    """Encrypt bytes under a key. :func:`unlock` needs the same ``bind_to``."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, bind_to)


def unlock(key: bytes, sealed: bytes, bind_to: bytes) -> bytes:
    """Decrypt what :func:`lock` returned."""
    if len(sealed) < _NONCE_BYTES + _TAG_BYTES:
        raise FileFormatError("sealed bytes that are cut short", code="truncated-envelope")
    try:
        opened: bytes = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bind_to)
    except InvalidTag:
        raise KeyMismatchError(
            "sealed bytes that were altered, or are for another reader or another place",
            code="altered-envelope",
        ) from None
    return opened


class Reader:
    """The holder of a secret seed of 32 bytes, who can read what is sealed for them."""

    def __init__(self, seed: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(seed)

    @property
    def public_bytes(self) -> bytes:
        """The public key that others seal for."""
        return self._key.public_key().public_bytes_raw()

    def open(self, sealed: bytes, bind_to: bytes) -> bytes:
        """Read what :func:`seal_for` made for this reader and this place."""
        return unlock(
            self._key_with(sealed[:PUBLIC_BYTES], sealed[:PUBLIC_BYTES], self.public_bytes),
            sealed[PUBLIC_BYTES:],
            bind_to,
        )

    def agree_secret(self, public: bytes, purpose: bytes) -> bytes:
        """Return the 32-byte secret that this reader shares with another, for one purpose."""
        low, high = sorted((self.public_bytes, public))
        return derive_key(self._exchange(public), b"pair\0" + low + high + purpose)

    def _key_with(self, public: bytes, sender: bytes, receiver: bytes) -> bytes:
        return derive_key(self._exchange(public), b"envelope\0" + sender + receiver)

    def _exchange(self, public: bytes) -> bytes:
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise FileFormatError(
                f"a public key that cannot be: {error}", code="invalid-public-key"
            ) from None


def is_public_key(public: bytes) -> bool:
    """Return whether everybody can seal for the holder of a key, and it is written in the one way:
    RFC 7748 ignores the highest bit and reduces what is too large, so that a key has aliases.
    """
    if len(public) != PUBLIC_BYTES or int.from_bytes(public, "little") >= _FIELD:
        return False
    try:
        Reader(bytes(SEED_BYTES)).agree_secret(public, b"check")
    except FileFormatError:  # of small order: a shared secret would be known to everybody
        return False
    return True


def seal_for(public: bytes, data: bytes, bind_to: bytes) -> bytes:
    """Encrypt bytes for the holder of a public key, under a key agreed on with an ephemeral key."""
    ephemeral = Reader(os.urandom(SEED_BYTES))
    key = ephemeral._key_with(public, ephemeral.public_bytes, public)
    return ephemeral.public_bytes + lock(key, data, bind_to)
