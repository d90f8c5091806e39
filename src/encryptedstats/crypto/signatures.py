"""The owner's signature (Ed25519, by the ``cryptography`` package): how a worker knows what the
owner made from what others did.

Ciphertexts do not say who made them. A signature does, and the key that checks it is part of what
the key id is a hash of.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNING_KEY_BYTES: Final = 32


class Signer:
    """Who can sign: the owner, by a seed of 32 bytes that is made from the secret key."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public_bytes(self) -> bytes:
        """The key that checks signatures; anybody may have it."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> str:
        """A signature, 128 hexadecimal digits."""
        return self._key.sign(statement).hex()


def verifies(signing_key: bytes, statement: bytes, signature: str) -> bool:
    """Whether the holder of the signing key has signed this; whatever is malformed was not.

    Nor is a signature that is written in another way than :meth:`Signer.sign` writes it (in
    capitals, with spaces): nobody but the signer can make other bytes of one, and with them another
    hash of what it is part of.
    """
    try:
        data = bytes.fromhex(signature)
        Ed25519PublicKey.from_public_bytes(signing_key).verify(data, statement)
    except (InvalidSignature, ValueError):
        return False
    return data.hex() == signature
