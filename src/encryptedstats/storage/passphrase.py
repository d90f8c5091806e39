"""Encryption of bytes with a passphrase: scrypt makes the key, AES-256-GCM encrypts and
authenticates.

Both come from the ``cryptography`` package. The cost is stored with the encrypted bytes so that it
can grow over the years, and is limited on reading so that a hostile file cannot use up all memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from encryptedstats.errors import FileFormatError, PassphraseError

SCRYPT: Final = {"n": 1 << 17, "r": 8, "p": 1}  # 128 MiB and about half a second
MAX_SCRYPT_BYTES: Final = 1 << 30
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


def lock(data: bytes, passphrase: str, *, bind_to: bytes) -> tuple[dict[str, Any], bytes]:
    """Seal ``data``; returns the public description of the lock and the sealed bytes. ``bind_to``
    must be given again to open.
    """
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    cipher = _cipher(passphrase, salt, SCRYPT)
    return {**SCRYPT, "kdf": "scrypt", "aead": "AES-256-GCM"}, salt + nonce + cipher.encrypt(
        nonce, data, bind_to
    )


def unlock(lock: Mapping[str, Any], sealed: bytes, passphrase: str, *, bind_to: bytes) -> bytes:
    """Open what :func:`lock` sealed; a wrong passphrase and an altered file look the same and are
    refused.
    """
    if (
        set(lock) != {"n", "r", "p", "kdf", "aead"}
        or lock["kdf"] != "scrypt"
        or lock["aead"] != "AES-256-GCM"
    ):
        raise FileFormatError(
            "the key file is locked in a way this library does not know", code="unknown-lock"
        )
    cost = {name: lock[name] for name in ("n", "r", "p")}
    if not all(type(value) is int and value > 0 for value in cost.values()) or cost["n"] & (
        cost["n"] - 1
    ):
        raise FileFormatError(
            "the key file has a malformed passphrase cost", code="malformed-passphrase-cost"
        )
    # r and p as they are written, and n within reach: odd mixtures take seconds, or are refused by
    # OpenSSL as lack of memory.
    if (
        128 * cost["n"] * cost["r"] * cost["p"] > MAX_SCRYPT_BYTES
        or cost["n"] < 2
        or cost["r"] != 8
        or cost["p"] > 16
    ):
        raise FileFormatError(
            f"the key file asks for more than {MAX_SCRYPT_BYTES >> 20} MiB to check a passphrase: "
            "refused",
            code="passphrase-cost-too-high",
        )
    if len(sealed) < _SALT_BYTES + _NONCE_BYTES + _TAG_BYTES:
        raise FileFormatError(
            "the locked section of the key file is too short", code="truncated-section"
        )
    salt, nonce, body = (
        sealed[:_SALT_BYTES],
        sealed[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES],
        sealed[_SALT_BYTES + _NONCE_BYTES :],
    )
    cipher = _cipher(passphrase, salt, cost)
    try:
        opened: bytes = cipher.decrypt(nonce, body, bind_to)
    except InvalidTag:
        raise PassphraseError(
            "the passphrase does not open this key file (or the file was altered)",
            code="wrong-passphrase",
        ) from None
    return opened


def seal(data: bytes, key: bytes, *, bind_to: bytes) -> bytes:
    """Seal bytes under a key of 32 bytes, by AES-256-GCM with a random nonce."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, bind_to)


def unseal(sealed: bytes, key: bytes, *, bind_to: bytes) -> bytes:
    """Open what :func:`seal` sealed; another key and altered bytes are refused alike."""
    nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    if len(body) < _TAG_BYTES:
        raise FileFormatError("a sealed section is too short", code="truncated-section")
    try:
        return AESGCM(key).decrypt(nonce, body, bind_to)
    except InvalidTag:
        raise FileFormatError(
            "a sealed section does not open: it belongs to another key, or was altered",
            code="altered-file",
        ) from None


def _cipher(passphrase: str, salt: bytes, cost: Mapping[str, int]) -> Any:
    if not isinstance(passphrase, str) or not passphrase:
        raise PassphraseError("the passphrase must be text and not empty", code="empty-passphrase")
    try:
        return AESGCM(Scrypt(salt=salt, length=32, **cost).derive(passphrase.encode()))
    except MemoryError as error:
        raise PassphraseError(
            "there is not enough memory to check the passphrase of this key file",
            code="not-enough-memory",
        ) from error
