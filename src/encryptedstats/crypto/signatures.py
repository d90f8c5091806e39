"""The owner's signature (Ed25519, by the ``cryptography`` package), by which a worker knows the
owner's data from a contributor's.

Ciphertexts do not say who made them. A signature does, and the key id is a hash of the key that
checks it.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNING_KEY_BYTES: Final = 32


class Signer:
    """The owner as a signer, with a seed of 32 bytes that is derived from the secret key."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public_bytes(self) -> bytes:
        """The key that checks signatures."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> str:
        """Return a signature of 128 hexadecimal digits."""
        return self._key.sign(statement).hex()


def verifies(signing_key: bytes, statement: bytes, signature: str) -> bool:
    """Return True if the holder of the signing key signed this. A malformed signature is invalid.

    So is a signature in another spelling than :meth:`Signer.sign` writes (capitals, spaces):
    otherwise anybody could change its bytes, and with them the hashes that cover it.
    """
    try:
        data = bytes.fromhex(signature)
        Ed25519PublicKey.from_public_bytes(signing_key).verify(data, statement)
    except (InvalidSignature, ValueError):
        return False
    return data.hex() == signature
