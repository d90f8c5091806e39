"""Ciphertexts of half the size: a seed replaces the uniform second polynomial.

SEAL makes a ciphertext (c0, a) with a polynomial ``a`` for which no seed is known. With a' expanded
from 32 fresh random bytes,

    (c0 + (a - a') s, a')

is a ciphertext of the same message with the same error: c0 + (a - a') s + a' s = c0 + a s. It is
*re-based* on a'. This is the only place of this library that computes with a secret key: in
:class:`SecretFactor`, which members of a joint key use as well. Two things must never happen:

- **Two versions of one SEAL ciphertext** differ by (a - a') s, which gives the key away to anybody
  who sees both. So this module calls SEAL itself and re-bases its ciphertext at once; the original
  is neither an argument nor a result, and is not kept. Seed and a' exist before the original, so no
  failure, fork or retry can re-base one original twice.
- **Two ciphertexts under one a'** show the difference of their messages. So each has a seed of its
  own, drawn in this module, after any fork, from the operating system. A seed is never an argument,
  derived or used again.

Only the seed is sampled here. The polynomial a' and the stored polynomial are public.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import seal

from encryptedstats.crypto.engine import HEADER_BYTES, Engine
from encryptedstats.crypto.residues import (
    Residues,
    ciphertext_of,
    residues_of,
    secret_residues,
    times_each,
)
from encryptedstats.errors import ArgumentError, ArgumentTypeError, FileFormatError
from encryptedstats.storage import pieces

SEED_BYTES = pieces.SEED_BYTES


def expand_seeds(seeds: bytes, moduli: tuple[int, ...], out: Residues) -> None:
    """Expand seeds into the last polynomials of ciphertexts, shape (ciphertexts, components,
    primes, N).
    """
    if len(seeds) != SEED_BYTES * len(out):
        raise ArgumentError(
            f"{len(seeds)} bytes of seeds for {len(out)} ciphertexts: each has {SEED_BYTES}",
            code="wrong-seed-length",
        )
    for prime, modulus in enumerate(moduli):
        pieces.expand(seeds, modulus, out, prime)


class SecretFactor:
    """A transformed secret polynomial, and the one computation with it. Never stored or sent."""

    def __init__(self, moduli: tuple[int, ...], residues: Residues) -> None:
        self._moduli = moduli
        # A copy: it would be a view of bytes that may hold the residues of more primes.
        self._residues = np.array(residues[: len(moduli)], dtype=np.uint64)

    def rebase(self, pair: Residues, fresh: Residues) -> Residues:
        """Return c0 + (a - a') s, for a pair (c0, a) of shape (2, primes, N) and a' of shape
        (primes, N).
        """
        out = np.empty_like(fresh)
        if pieces.rebase is not None:
            pieces.rebase(np.array(self._moduli, dtype=np.uint64), pair, fresh, self._residues, out)
            return out
        for prime, modulus in enumerate(self._moduli):
            p, secret = np.uint64(modulus), self._residues[prime]
            difference = (pair[1, prime] + (p - fresh[prime])) % p
            product = times_each(difference, secret, self._quotients[prime], modulus)
            out[prime] = (pair[0, prime] + product) % p
        return out

    @cached_property
    def _quotients(self) -> list[Residues]:
        """floor(s 2^64 / p), which products with the secret need without the extension."""
        return [
            np.array([(int(s) << 64) // p for s in secret], dtype=np.uint64)
            for secret, p in zip(self._residues, self._moduli, strict=True)
        ]

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("a secret polynomial is not pickled", code="not-pickled")


class SeededEncryption:
    """Encryption with the secret key into a seed and one polynomial. Never stored or sent."""

    def __init__(self, engine: Engine, secret_key: Any) -> None:
        self._engine = engine
        self._seal_encrypt = seal.Encryptor(engine.context, secret_key).encrypt_symmetric
        self._secret = SecretFactor(
            self._moduli, secret_residues(engine.parameters, secret_key.to_string())
        )
        self._try(seal.Decryptor(engine.context, secret_key))

    def encrypt(self, plain: Any) -> tuple[bytes, Residues]:
        """Encrypt a SEAL plaintext into a seed and its first polynomial, shape (primes, N).

        Nothing random is drawn after SEAL's original exists.
        """
        seed = os.urandom(SEED_BYTES)
        fresh = np.empty(
            (1, 1, len(self._moduli), self._engine.parameters.ring_degree), dtype=np.uint64
        )
        expand_seeds(seed, self._moduli, fresh)
        original = residues_of(self._engine, self._seal_encrypt(plain))
        return seed, self._rebase_original(original, fresh[0, 0])

    def _try(self, decryptor: Any) -> None:
        """Refuse to go on where a 0 does not decrypt to 0: what was taken for the secret key is not
        what SEAL means by it.
        """
        seed, first = self.encrypt(self._engine.encode_integer(0))
        both = np.empty((1, 2, *first.shape), dtype=np.uint64)
        both[0, 0] = first
        expand_seeds(seed, self._moduli, both)
        if (
            self._engine.decode_integer(decryptor.decrypt(ciphertext_of(self._engine, both[0])))
            != 0
        ):
            raise FileFormatError(
                "the residues of the secret key are not in the form that this library knows of "
                "SEAL's",
                code="unknown-key-form",
            )

    # -- c0 + (a - a') s
    # --------------------------------------------------------------------------------------------

    def _rebase_original(self, original: Residues, fresh: Residues) -> Residues:
        if (
            self._engine.parameters.scheme == "bgv"
        ):  # ciphertexts of BGV are transformed, as the secret is
            return self._secret.rebase(original, fresh)
        moduli = np.array(self._moduli, dtype=np.uint64)[:, None]
        moved = np.stack([original[0], (original[1] + (moduli - fresh)) % moduli])
        header, transformed = self._transform(moved)
        moved = np.stack([self._secret.rebase(transformed, np.zeros_like(fresh)), transformed[1]])
        ciphertext = seal.Ciphertext()
        ciphertext.load_bytes(self._engine.context, header + moved.astype("<u8").tobytes())
        both = residues_of(self._engine, self._engine.evaluator.transform_from_ntt(ciphertext))
        return np.array(both[0])  # a copy: what it would be a view of holds a - a' as well

    def _transform(self, residues: Residues) -> tuple[bytes, Residues]:
        """Return two polynomials in the transformed form, and SEAL's header of that form."""
        ciphertext = ciphertext_of(self._engine, residues)
        data = self._engine.ciphertext_to_bytes(self._engine.evaluator.transform_to_ntt(ciphertext))
        return data[:HEADER_BYTES], np.frombuffer(data, dtype="<u8", offset=HEADER_BYTES).reshape(
            residues.shape
        )

    @property
    def _moduli(self) -> tuple[int, ...]:
        return self._engine.parameters.data_moduli

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            "seeded encryption is not pickled, it holds the secret key", code="not-pickled"
        )
