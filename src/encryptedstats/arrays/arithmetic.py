"""Arithmetic shared by encrypted integers and encrypted vectors.

An integer has one ciphertext, a vector one for each chunk of rows.

Operands carry proven bounds of their values and of their noise, by the rules of
:mod:`encryptedstats.crypto.noise`. An operation that could overflow or exhaust the noise budget is
refused *before* it is computed. A product keeps three polynomials until it is multiplied again, so
that a sum of products is relinearised once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.errors import ArgumentError, ArgumentTypeError, NoiseError, ParameterError

MAX_POWER: Final = 1 << 16
S = TypeVar("S", bound="EncryptedOperand")


class EncryptedOperand:
    """Ciphertexts with their public bounds.

    Supports ``+ - *`` and small powers, also with plain integers.

    Attributes
    ----------
    keys : PublicKeys
    bound : int
        No value inside exceeds this in absolute terms. Public.
    depth : int
        How many multiplications in a row led to it.
    """

    __slots__ = ("_ciphertexts", "_noise", "bound", "depth", "keys")
    __array_ufunc__ = None  # NumPy scalars and arrays leave mixed operations to this class
    # equality cannot be known, so there is no sensible hash
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, keys: PublicKeys, ciphertexts: Sequence[Any], noise: Noise, bound: int, depth: int
    ) -> None:
        self.keys = keys
        self.bound = bound
        self.depth = depth
        self._ciphertexts = tuple(ciphertexts)
        self._noise = noise

    def _like(self: S, ciphertexts: Sequence[Any], noise: Noise, bound: int, depth: int) -> S:
        """Return another operand of this class and shape; subclasses pass on more attributes."""
        return type(self)(self.keys, ciphertexts, noise, bound, depth)

    def _check_fits(self, other: EncryptedOperand) -> None:
        """Raise an error for an operand of another key (in subclasses: of another shape)."""
        self.keys.check_same(other.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        one = self.keys.parameters.ciphertext_bytes(self._noise.size, self._noise.level)
        return len(self._ciphertexts) * one

    # -- sums --------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return self._linear(other, "addition", sign=1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._linear(other, "subtraction", sign=-1)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, type(self)):
            return other._add_operand(self, "subtraction", sign=-1)
        plain = plain_integer(other, "subtraction")
        self._check_bound(self.bound + abs(plain), "subtraction")
        return (-self)._add_plain(plain, "subtraction")

    def __neg__(self: S) -> S:
        negated = [self._evaluator.negate(c) for c in self._ciphertexts]
        return self._like(negated, self._noise, self.bound, self.depth)

    def __pos__(self: S) -> S:
        return self

    def _linear(self, other: Any, operation: str, sign: int) -> Any:
        if isinstance(other, type(self)):
            return self._add_operand(other, operation, sign)
        return self._add_plain(sign * plain_integer(other, operation), operation)

    def _add_operand(self: S, other: S, operation: str, sign: int) -> S:
        self._check_fits(other)
        if other.bound == 0:
            return self
        if self.bound == 0:
            return other if sign > 0 else -other
        bound = self._check_bound(self.bound + other.bound, operation)
        depth = max(self.depth, other.depth)
        level = max(self._noise.level, other._noise.level)
        model = self.keys.parameters.noise
        noise = model.add(model.switch(self._noise, level), model.switch(other._noise, level))
        self._check_noise(noise, operation, depth)
        combine = self._evaluator.add if sign > 0 else self._evaluator.sub
        pairs = zip(self._at_level(level), other._at_level(level), strict=True)
        result = [_unless_transparent(combine, a, b) for a, b in pairs]
        if all(part is None for part in result):
            return self._zero()
        if any(
            part is None for part in result
        ):  # some chunks of a vector are zero for all to see, others are not
            zero, fresh = self.keys.encryptor.encrypt(
                self.keys.engine.encode_integer(0), constant=True
            )
            zero = self.keys.engine.switch(zero, level)
            result = [zero if part is None else part for part in result]
            noise = model.add(noise, model.switch(fresh, level))
            self._check_noise(noise, operation, depth)
        return self._like(result, noise, bound, depth)

    def _add_plain(self: S, value: int, operation: str) -> S:
        if value == 0:
            return self
        bound = self._check_bound(self.bound + abs(value), operation)
        noise = self.keys.parameters.noise.add_plain(self._noise, constant=True)
        self._check_noise(noise, operation, self.depth)
        plain = self.keys.engine.encode_integer(value)
        result = [self._evaluator.add_plain(c, plain) for c in self._ciphertexts]
        return self._like(result, noise, bound, self.depth)

    # -- products ----------------------------------------------------------------------------------

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, type(self)):
            return self._multiply_operand(other)
        return self._multiply_plain(plain_integer(other, "multiplication"))

    __rmul__ = __mul__

    def _multiply_operand(self: S, other: S) -> S:
        self._check_fits(other)
        if self.bound == 0 or other.bound == 0:
            return self._zero()
        bound = self._check_bound(self.bound * other.bound, "multiplication")
        depth = max(self.depth, other.depth) + 1
        noise = self.keys.parameters.noise.product(self._noise, other._noise)
        self._check_noise(noise, "multiplication", depth)
        self.relinearise()
        other.relinearise()
        if other is self:
            result = [self._evaluator.square(c) for c in self._at_level(noise.level)]
        else:
            pairs = zip(self._at_level(noise.level), other._at_level(noise.level), strict=True)
            result = [self._evaluator.multiply(a, b) for a, b in pairs]
        return self._like(result, noise, bound, depth)

    def _multiply_plain(self: S, value: int) -> S:
        if value == 0 or self.bound == 0:
            return self._zero()
        if abs(value) == 1:
            return self if value > 0 else -self
        bound = self._check_bound(self.bound * abs(value), "multiplication")
        noise = self.keys.parameters.noise.multiply_plain(self._noise, abs(value))
        self._check_noise(noise, "multiplication", self.depth)
        plain = self.keys.engine.encode_integer(abs(value))
        scaled = self._like(
            [self._evaluator.multiply_plain(c, plain) for c in self._ciphertexts],
            noise,
            bound,
            self.depth,
        )
        return scaled if value > 0 else -scaled

    def __pow__(self: S, exponent: Any) -> S:
        exponent = plain_integer(exponent, "power")
        if not 0 <= exponent <= MAX_POWER:
            raise ArgumentError(
                f"power {exponent}: encrypted integers have powers from 0 to {MAX_POWER}",
                code="power-out-of-range",
            )
        if exponent == 0:
            one: S = self._zero()._add_plain(1, "power")
            return one
        return self._power(exponent, {1: self})

    def _power(self: S, exponent: int, powers: dict[int, S]) -> S:
        """Split the exponent into halves: the depth is its log2."""
        if exponent not in powers:
            left, right = exponent - exponent // 2, exponent // 2
            powers[exponent] = self._power(left, powers)._multiply_operand(
                self._power(right, powers)
            )
        return powers[exponent]

    # -- what happens underneath -------------------------------------------------------------------

    @property
    def _evaluator(self) -> Any:
        return self.keys.engine.evaluator

    def relinearise(self) -> None:
        """Relinearise all ciphertexts in place. Operations do so when they need it."""
        if self._noise.size > 2:
            self._ciphertexts = tuple(self.keys.evaluator.relinearise(c) for c in self._ciphertexts)
            self._noise = self.keys.parameters.noise.relinearise(self._noise)

    def _at_level(self, level: int) -> tuple[Any, ...]:
        if level == self._noise.level:
            return self._ciphertexts
        if self.keys.parameters.has_factors:
            raise ParameterError(
                f"{self.keys.parameters!r} were planned for the totals of a table, so large that "
                "nothing but those can be "
                "computed with them: for encrypted integers and arrays make keys with "
                "Parameters.choose(max_value=..., depth=...)",
                code="planned-for-table",
            )
        return tuple(self.keys.engine.switch(c, level) for c in self._ciphertexts)

    def _zero(self: S) -> S:
        """Return a publicly known zero: its bound is 0, so adding it costs nothing."""
        encryptor = self.keys.encryptor
        zeros = [
            encryptor.encrypt(self.keys.engine.encode_integer(0), constant=True)
            for _ in self._ciphertexts
        ]
        return self._like([ciphertext for ciphertext, _ in zeros], zeros[0][1], 0, 0)

    def _check_bound(self, bound: int, operation: str) -> int:
        limit = self.keys.parameters.max_value
        if bound > limit:
            raise OverflowError(
                f"this {operation} could reach ±{bound:,}, and these parameters are exact up to "
                f"±{limit:,}. "
                f"Choose parameters with max_value={bound} or more, or give a tighter bound= when "
                "encrypting"
            )
        return bound

    def _check_noise(self, noise: Noise, operation: str, depth: int) -> None:
        parameters = self.keys.parameters
        budget = parameters.noise.budget(parameters.noise.relinearise(noise))
        if budget >= 1.0:
            return
        if depth > parameters.depth:
            cure = f"depth={depth} or more (they have {parameters.depth})"
        else:
            promised = parameters.noise.budget(
                parameters.noise.promised_noise(depth, parameters.terms)
            )
            missing = max(1, math.ceil(promised - budget)) if math.isfinite(budget) else 64
            cure = f"terms={parameters.terms << missing} or more (they have {parameters.terms})"
        raise NoiseError(
            f"this {operation}, {depth} products deep, could not be proven to decrypt with these "
            "parameters. Choose "
            f"parameters with {cure}: Parameters.choose(max_value=..., depth=..., terms=..., "
            f"scheme={parameters.scheme!r})",
            code="not-proven",
        )

    # -- what cannot be: explained instead of guessed ----------------------------------------------

    def __truediv__(self, other: Any) -> NoReturn:
        raise ArgumentTypeError(
            "encrypted integers cannot be divided. Multiply everything by the denominator "
            "instead, or decrypt first: "
            "owner.open(total) / n",
            code="division-impossible",
        )

    __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = (
        __truediv__
    )

    def __eq__(self, other: object) -> NoReturn:
        raise ArgumentTypeError(
            "encrypted integers cannot be compared: the worker cannot see them. Compare "
            "after owner.open, "
            "or encode categories as 0/1 indicators, whose products test for equality",
            code="comparison-impossible",
        )

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__

    def __bool__(self) -> NoReturn:
        raise ArgumentTypeError(
            "whether an encrypted integer is zero cannot be known without owner.open",
            code="truth-unknown",
        )

    def __int__(self) -> NoReturn:
        raise ArgumentTypeError(
            "an encrypted integer is no plain number: open it first, with owner.open(x)",
            code="still-encrypted",
        )

    __float__ = __index__ = __abs__ = __int__

    def __copy__(self: S) -> S:
        # its value never changes and it holds no secret, so it is its own copy, as an int is
        return self

    def __deepcopy__(self: S, memo: Any) -> S:
        return self

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{type(self).__name__} is not pickled: use save() and load()", code="not-pickled"
        )


def _unless_transparent(combine: Callable[[Any, Any], Any], a: Any, b: Any) -> Any | None:
    """Return the sum or difference; None where it is transparent, as x - x, which SEAL refuses."""
    try:
        return combine(a, b)
    except RuntimeError as error:
        if "transparent" not in str(error):
            raise
        return None


def plain_integer(value: Any, operation: str) -> int:
    """Return a plain operand as a Python integer; raise ``TypeError`` for anything else."""
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if float(value).is_integer():
            raise ArgumentTypeError(
                f"{operation} with {value!r}: only integers are exact here. This is a whole "
                "number in a float: give "
                f"{int(value)} (of an array: array.astype(int))",
                code="whole-number-float",
            )
        raise ArgumentTypeError(
            f"{operation} with {value!r}: only integers are exact here. Scale it to an integer "
            "first "
            f"(for example round({value!r} * 100), and divide after decryption)",
            code="not-an-integer",
        )
    raise ArgumentTypeError(
        f"{operation} with an object of type {type(value).__name__}: plain operands must be "
        "integers",
        code="foreign-operand",
    )


def combine_pairwise(combine: Callable[[Any, Any], Any], items: Sequence[Any]) -> Any:
    """Combine pairwise, so that n items are only log2(n) operations deep."""
    if not items:
        raise ArgumentError("nothing to combine", code="nothing-to-combine")
    while len(items) > 1:
        pairs = [combine(a, b) for a, b in zip(items[::2], items[1::2], strict=False)]
        items = [*pairs, *items[len(items) & ~1 :]]
    return items[0]
