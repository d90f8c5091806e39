"""Encrypted integers that can be computed with but not read.

A single integer is the constant of a plaintext polynomial; the arithmetic is that of
:mod:`encryptedstats.arrays.arithmetic`.
"""

from __future__ import annotations

import os
from typing import Any, Final, NoReturn

import numpy as np

from encryptedstats.arrays.arithmetic import EncryptedOperand, plain_integer
from encryptedstats.crypto.dispatch import decrypt_value, encrypt_value
from encryptedstats.crypto.encryption import Decryptor, Encryptor
from encryptedstats.errors import ArgumentError

SMALLEST_BOUND: Final = 16


class EncryptedInteger(EncryptedOperand):
    """An encrypted integer: ``+ - *``, unary minus and small powers, also with plain integers.

    Made by ``owner.encrypt(7)`` or ``public.encrypt(7)``; opened by ``owner.open``.

    Attributes
    ----------
    bound : int
        The absolute value is proven to be at most this. Public.
    depth : int
        How many multiplications in a row led to it.
    keys : PublicKeys
    """

    __slots__ = ()

    # NumPy's functions, not operators: they box single integers, and never compute with the plain
    # array itself, whose type may be too narrow to hold its own negative.
    def __add__(self, other: Any) -> Any:
        return np.add(_broadcast(self), other) if _is_many(other) else super().__add__(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return np.subtract(_broadcast(self), other) if _is_many(other) else super().__sub__(other)

    def __rsub__(self, other: Any) -> Any:
        return np.subtract(other, _broadcast(self)) if _is_many(other) else super().__rsub__(other)

    def __mul__(self, other: Any) -> Any:
        return np.multiply(_broadcast(self), other) if _is_many(other) else super().__mul__(other)

    __rmul__ = __mul__

    def save(self, url: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write it with its public parameters; read it again with ``EncryptedArray.load``."""
        from encryptedstats.arrays.array import save_encrypted

        save_encrypted(self, url, overwrite=overwrite)

    def __repr__(self) -> str:
        scheme = self.keys.parameters.scheme
        return (
            f"EncryptedInteger(within ±{self.bound:,}, depth {self.depth}, {scheme}, key "
            f"{self.keys.key_id})"
        )


def public_bound(values: Any, bound: int | None, limit: int) -> int:
    """Return the bound stored in the clear: given, or coarse enough to say little."""
    largest = max((abs(v) for v in values), default=0)
    if bound is None:
        bound = max(SMALLEST_BOUND, 1 << (largest - 1).bit_length() if largest else 0)
        bound = min(bound, limit) if largest <= limit else bound
    elif isinstance(bound, bool) or not isinstance(bound, (int, np.integer)) or bound < 1:
        raise ArgumentError(
            f"bound={bound!r}: it must be a positive integer", code="bound-not-positive"
        )
    if largest > bound:
        raise OverflowError(
            f"a value of {largest:,} in absolute terms is beyond the bound={bound} it is declared "
            "to keep"
        )
    if bound > limit:
        cure = (
            f"choose parameters with max_value={bound} or more"
            if bound < 1 << 59
            else "no parameters hold that"
        )
        raise OverflowError(
            f"values up to ±{bound:,} do not fit these parameters, which are exact up to "
            f"±{limit:,}: {cure}"
        )
    return int(bound)


def encrypt_integer(value: int, encryptor: Encryptor, bound: int) -> EncryptedInteger:
    """Encrypt one integer with a given public bound."""
    ciphertext, noise = encryptor.encrypt(
        encryptor.keys.engine.encode_integer(value), constant=True
    )
    return EncryptedInteger(encryptor.keys, [ciphertext], noise, bound, 0)


@encrypt_value.register(int)
@encrypt_value.register(np.integer)
@encrypt_value.register(np.bool_)
def _encrypt(value: Any, encryptor: Encryptor, *, bound: int | None = None) -> EncryptedInteger:
    value = int(value)
    return encrypt_integer(
        value, encryptor, public_bound([value], bound, encryptor.keys.parameters.max_value)
    )


@encrypt_value.register(float)
@encrypt_value.register(np.floating)
def _refuse_float(value: Any, encryptor: Encryptor, **options: Any) -> NoReturn:
    plain_integer(value, "encryption")
    raise AssertionError("floats are refused above")


@decrypt_value.register(EncryptedInteger)
def decrypt_integer(value: EncryptedInteger, decryptor: Decryptor, *, schema: Any = None) -> int:
    """Decrypt an integer and check its bound; a schema has no name for it."""
    decryptor.check_own(value.keys)
    number = value.keys.engine.decode_integer(decryptor.decrypt(value._ciphertexts[0]))
    if number is None or abs(number) > value.bound:
        raise ArgumentError(
            "this does not decrypt to an integer within its bound: the ciphertext was altered, or "
            "does not belong to this key",
            code="outside-bound",
        )
    return number


def _is_many(value: Any) -> bool:
    return isinstance(value, (np.ndarray, list, tuple))


def _broadcast(value: EncryptedInteger) -> Any:
    """Return a scalar as an array without dimensions, so that NumPy broadcasts it."""
    from encryptedstats.arrays.array import EncryptedArray

    return EncryptedArray(np.array(value, dtype=object))
