"""Encrypted vectors: columns with one number in each slot and one ciphertext for each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encryptedstats.arrays.arithmetic import EncryptedOperand
from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.encryption import Decryptor
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.errors import ArgumentError


class EncryptedVector(EncryptedOperand):
    """Encrypted numbers, thousands in a ciphertext, that are added and multiplied slot by slot.

    Columns of an encrypted table are vectors. Plain integers apply to every row.

    Attributes
    ----------
    rows : tuple of int
        How many rows each ciphertext holds; slots beyond are padding.
    """

    __slots__ = ("rows",)

    def __init__(
        self,
        keys: PublicKeys,
        ciphertexts: Sequence[Any],
        noise: Noise,
        bound: int,
        depth: int,
        rows: Sequence[int],
    ) -> None:
        super().__init__(keys, ciphertexts, noise, bound, depth)
        self.rows = tuple(rows)

    def _like(
        self, ciphertexts: Sequence[Any], noise: Noise, bound: int, depth: int
    ) -> EncryptedVector:
        return EncryptedVector(self.keys, ciphertexts, noise, bound, depth, self.rows)

    def within(self, bound: int) -> EncryptedVector:
        """Return the same numbers with a tighter bound than sums of bounds give."""
        return self._like(self._ciphertexts, self._noise, bound, self.depth)

    def _check_fits(self, other: EncryptedOperand) -> None:
        super()._check_fits(other)
        if not isinstance(other, EncryptedVector) or other.rows != self.rows:
            raise ArgumentError(
                "vectors of different layout: their rows lie in other slots, so they do not fit "
                "together",
                code="different-layouts",
            )

    def __len__(self) -> int:
        return sum(self.rows)

    def __repr__(self) -> str:
        return (
            f"EncryptedVector({len(self):,} rows in {len(self._ciphertexts)} ciphertexts, within "
            f"±{self.bound:,}, "
            f"depth {self.depth}, key {self.keys.key_id})"
        )


@decrypt_value.register(EncryptedVector)
def _decrypt_vector(value: EncryptedVector, decryptor: Decryptor) -> NDArray[np.int64]:
    decryptor.check_own(value.keys)
    encoder = value.keys.engine.encoder
    chunks = [
        encoder.decode(decryptor.decrypt(c))[:n]
        for c, n in zip(value._ciphertexts, value.rows, strict=True)
    ]
    numbers = np.concatenate(chunks).astype(np.int64)
    if len(numbers) and np.abs(numbers).max() > value.bound:
        raise ArgumentError(
            "this does not decrypt to numbers within their bound: the ciphertext was altered, or "
            "is of another key",
            code="outside-bound",
        )
    return numbers
