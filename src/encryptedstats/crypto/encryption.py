"""SEAL's encryption and decryption, and keyed digests of what only the owner knows."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import seal
from numpy.typing import NDArray

from encryptedstats.crypto.keyfiles import encryptor_bytes
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.residues import Residues, residues_of
from encryptedstats.crypto.seeded import SeededEncryption
from encryptedstats.crypto.signatures import Signer
from encryptedstats.errors import (
    ArgumentError,
    Cure,
    FileFormatError,
    KeyMismatchError,
    SchemaError,
)
from encryptedstats.storage.container import Container

if TYPE_CHECKING:
    from encryptedstats.crypto.keys import PublicKeys


@dataclass(frozen=True)
class Encryptor:
    """SEAL's encryption under one of the keys, for the types that register with ``encrypt``.

    Attributes
    ----------
    keys : PublicKeys
        The keys that new values belong to.
    token_key : bytes
        For keyed hashes of plain data, which only the one who encrypts can make or compare.
    signer, seeded, secret_key
        The owner's; None under the public key.
    """

    keys: PublicKeys
    seal_encrypt: Any
    with_secret_key: bool
    token_key: bytes = field(repr=False)
    signer: Signer | None = field(default=None, repr=False)
    seeded: SeededEncryption | None = field(default=None, repr=False)
    secret_key: Any = field(default=None, repr=False)

    @classmethod
    def of_owner(
        cls, keys: PublicKeys, secret_key: Any, token_key: bytes, signer: Signer | None
    ) -> Encryptor:
        """Return encryption with the secret key."""
        encrypt = seal.Encryptor(keys.engine.context, secret_key).encrypt_symmetric
        return cls(
            keys,
            encrypt,
            True,
            token_key,
            signer,
            SeededEncryption(keys.engine, secret_key),
            secret_key,
        )

    def to_bytes(self) -> bytes:
        """Serialise for another process of the same user, which reads it with ``read_encryptor``.

        The bytes may hold the secret key: never write them to a file.
        """
        return encryptor_bytes(self.keys.material, self.secret_key, self.token_key)

    def encrypt(self, plain: Any, *, constant: bool = False) -> tuple[Any, Noise]:
        """Encrypt a SEAL plaintext; return the ciphertext with its noise."""
        noise = self.keys.parameters.noise.fresh(
            with_secret_key=self.with_secret_key, constant=constant
        )
        return self.seal_encrypt(plain), noise

    def encrypt_zero(self, level: int) -> Residues:
        """Encrypt 0 and switch it down to a level."""
        engine = self.keys.engine
        ciphertext, _ = self.encrypt(engine.encode_integer(0), constant=True)
        return residues_of(engine, engine.switch(ciphertext, level))

    def schema_digest(self, content: bytes) -> str | None:
        """Return the owner's digest of a private schema; None under the public key."""
        return keyed_digest(self.token_key, "schema", content) if self.with_secret_key else None


@dataclass(frozen=True)
class Decryptor:
    """SEAL's decryption, for the types that register with ``decrypt``."""

    keys: PublicKeys
    seal_decrypt: Any
    seal_decrypt_packed: Any
    token_key: bytes = field(repr=False)
    seal_budget: Any

    def decrypt(self, ciphertext: Any) -> Any:
        """Return the SEAL plaintext of a ciphertext."""
        return self.seal_decrypt(ciphertext)

    def decrypt_packed(self, ciphertext: Any) -> Any:
        """Return the SEAL plaintext of a ciphertext of the packing context."""
        return self.seal_decrypt_packed(ciphertext)

    def measure_budget(self, ciphertext: Any) -> int:
        """Return the noise budget that SEAL measures, in bits; 0 where nothing is left."""
        return int(self.seal_budget(ciphertext))

    def check_own(self, keys: PublicKeys) -> None:
        """Raise an error for values that belong to another key."""
        if keys is not self.keys and keys.key_id != self.keys.key_id:
            raise KeyMismatchError(
                f"these belong to different keys: what is to be opened to {keys.key_id}, and the "
                "secret key that was given is "
                f"{self.keys.key_id}. Only the secret key {keys.key_id} opens it",
                Cure("load the key", ": es.Owner.load(path) with the file of that one"),
            )

    def schema_digest(self, content: bytes) -> str:
        """Return the digest that this owner gives a private schema."""
        return keyed_digest(self.token_key, "schema", content)


def encode_slots(values: NDArray[np.int64], encryptor: Encryptor) -> Any:
    """Return the plaintext with these values in its first slots and zeros in the others."""
    parameters = encryptor.keys.parameters
    if len(values) > parameters.slots:
        raise ArgumentError(
            f"{len(values)} values do not fit into {parameters.slots} slots", code="too-many-values"
        )
    padded = np.zeros(parameters.slots, dtype=np.int64)
    padded[: len(values)] = values
    return encryptor.keys.engine.encoder.encode(padded)


def encrypt_slots(values: NDArray[np.int64], encryptor: Encryptor) -> tuple[Any, Noise]:
    """Encrypt values into the first slots of one ciphertext, with zeros in the others."""
    return encryptor.encrypt(encode_slots(values, encryptor))


# -- keyed digests -------------------------------------------------------------------------------
# Digests of facts that only the owner knows. Anybody can copy one and see which results carry the
# same one; only the owner can make or check it. Data that was encrypted with the public key has
# none, since a contributor has no secret to make one with.

DIGEST_FIELD: Final = "schema_digest"
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def keyed_digest(key: bytes, purpose: str, data: bytes) -> str:
    """Compute an HMAC-SHA256 in hexadecimal. Digests for different purposes never collide."""
    return hmac.new(key, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def read_digest(file: Container) -> str | None:
    """Return the digest in the fields of a file, or None."""
    digest = file.fields.get(DIGEST_FIELD)
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise FileFormatError(
            f"field {DIGEST_FIELD!r} of the {file.kind} file is no digest", code="malformed-digest"
        )
    return digest


def join_digests(a: str | None, b: str | None) -> str | None:
    """Return the digest of two parts, or raise an error where the digests differ.

    A part without a digest is accepted: nobody can vouch for it.
    """
    if a is not None and b is not None and a != b:
        raise SchemaError(
            "these were encrypted with different schemas of the same shape (cut points, levels, "
            "names, their order, or classes "
            "differ): only rows that were encrypted with one and the same schema can be brought "
            "together",
            code="different-schemas",
        )
    return a if a is not None else b
