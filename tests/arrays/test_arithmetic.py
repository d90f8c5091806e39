"""Arithmetic that integers share with vectors of several ciphertexts: what holds for one must hold
chunk by chunk.
"""

from __future__ import annotations

import numpy as np
import pytest

import encryptedstats as es
from encryptedstats.arrays.vectors import EncryptedVector
from encryptedstats.crypto.encryption import encrypt_slots
from error_codes import error


def vectors(owner: es.Owner, *rows: list[list[int]]) -> list[EncryptedVector]:
    """Vectors in chunks of rows; chunks that are equal share their ciphertext, as vectors with
    common parts do.
    """
    encryptor, made = owner.public_keys().encryptor, {}
    for chunk in (tuple(chunk) for vector in rows for chunk in vector):
        made[chunk] = made.get(chunk) or encrypt_slots(np.array(chunk), encryptor)
    noise = next(iter(made.values()))[1]
    return [
        EncryptedVector(
            owner.public_keys(), [made[tuple(c)][0] for c in v], noise, 16, 0, [len(c) for c in v]
        )
        for v in rows
    ]


def test_chunks_that_cancel_do_not_take_the_others_with_them(toy: es.Owner) -> None:
    """SEAL refuses a difference that hides nothing, as x - x; only that chunk is zero, not the
    whole vector.
    """
    v, w = vectors(toy, [[1, 2], [3, 4]], [[1, 2], [5, 6]])
    assert toy.open(v - w).tolist() == [0, 0, -2, -2]
    assert toy.open(v + -w).tolist() == [0, 0, -2, -2]
    assert toy.open(v * v - w * v).tolist() == [0, 0, -6, -8]
    assert toy.open((v - w) * (v - w) + v).tolist() == [1, 2, 7, 8]


def test_a_vector_minus_itself_is_zero(toy: es.Owner) -> None:
    (v,) = vectors(toy, [[1, 2], [3, 4]])
    assert toy.open(v - v).tolist() == [0, 0, 0, 0]
    assert (v - v).bound == 0
    assert toy.open((v - v) + v).tolist() == [1, 2, 3, 4]


def test_vectors_of_another_layout_or_key_do_not_fit(toy: es.Owner, toy_stranger: es.Owner) -> None:
    v, w = vectors(toy, [[1, 2], [3, 4]], [[1, 2, 3], [4]])
    with pytest.raises(ValueError, check=error("different-layouts")):
        v + w
    (u,) = vectors(toy_stranger, [[1, 2], [3, 4]])
    with pytest.raises(es.KeyMismatchError, check=error("other-key")):
        v * u
