"""A thin wrapper of SEAL: checked contexts, bytes that are checked before SEAL reads them, and
plaintexts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import seal
from numpy.typing import NDArray

from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import FileFormatError, ParameterError

# SEAL's own file header: magic, header size, version, compression, reserved, total length.
_SEAL_HEADER: Final = struct.Struct("<HBBBBHQ")
_SEAL_MAGIC: Final = 0xA15E
_UNCOMPRESSED: Final = 0
HEADER_BYTES: Final = 113  # of an uncompressed ciphertext, before its residues
_FACTOR: Final = slice(81, 89)  # of BGV's correction factor in it
_ONE: Final = (1).to_bytes(8, "little")


def power_of_x(power: int) -> Any:
    """Return the plaintext X^power."""
    return seal.Plaintext(f"1x^{power}" if power else "1")


def in_copies(values: NDArray[Any], copies: int) -> NDArray[Any]:
    """Return the slots of a ciphertext, in SEAL's order, with every value in ``copies`` of them.

    See :class:`Encoder`.
    """
    return values if copies == 1 else np.tile(np.repeat(values, copies // 2), 2)


class Encoder:
    """Encode values as plaintexts and decode them, with each value in one slot or in several
    copies.

    The slots of the copies of a value lie in different cosets of the automorphisms X -> X^g with g
    = 1 modulo 2k, where k is the number of copies, so a sum over one coset is the sum over all
    values. See :mod:`encryptedstats.crypto.packing`.
    """

    def __init__(self, context: Any, parameters: Parameters) -> None:
        self._encoder = seal.BatchEncoder(context)
        self._copies, self._t = parameters.copies, parameters.plain_modulus
        self._powers: dict[int, NDArray[Any]] = {}

    def encode(self, values: NDArray[Any]) -> Any:
        """Return the plaintext with one value in each slot."""
        return self._encoder.encode(in_copies(values, self._copies))

    def encode_interleaved(self, parts: Sequence[tuple[NDArray[Any], int]]) -> Any:
        """Return the sum of several encoded arrays, each multiplied by a power of X."""
        found = np.zeros(len(self._power(0)), dtype=object)
        for values, power in parts:
            spread = in_copies(values, self._copies)
            (there,) = np.nonzero(spread)
            found[there] += spread[there].astype(object) * self._power(power)[there]
        return self._encoder.encode((found % self._t).astype(np.uint64))

    def _power(self, power: int) -> NDArray[Any]:
        if power not in self._powers:
            self._powers[power] = self._encoder.decode(power_of_x(power))
        return self._powers[power]

    def decode(self, plain: Any) -> NDArray[Any]:
        """Return the values of a plaintext.

        Parts that differ between copies cancel, such as those of interleaved totals.
        """
        slots: NDArray[Any] = self._encoder.decode(plain)
        if self._copies == 1:
            return slots
        t, found = self._t, slots.astype(object).reshape(2, -1, self._copies // 2).sum(axis=(0, 2))
        found = found * pow(self._copies, -1, t) % t
        values: NDArray[Any] = np.where(found > t // 2, found - t, found).astype(slots.dtype)
        return values


class Engine:
    """A SEAL context with its encoder and evaluator. Use :func:`engine_for` to get one."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        chosen = seal.EncryptionParameters(getattr(seal.scheme_type, parameters.scheme))
        chosen.set_poly_modulus_degree(parameters.ring_degree)
        chosen.set_coeff_modulus([seal.Modulus(q) for q in parameters.coefficient_moduli])
        chosen.set_plain_modulus(parameters.plain_modulus)
        level = seal.sec_level_type.tc128 if parameters.security else seal.sec_level_type.none
        self.context = seal.SEALContext(chosen, True, level)
        # SEALContext does not raise on broken parameters; it only says so when asked.
        if not self.context.parameters_set():
            raise ParameterError(
                f"SEAL refuses these parameters: {self.context.parameter_error_message()}",
                code="refused-by-seal",
            )
        self.evaluator = seal.Evaluator(self.context)
        self.encoder = Encoder(self.context, parameters)
        self.level_ids = self._level_ids()
        self._headers: dict[tuple[int, int], bytes] = {}

    def _level_ids(self) -> list[Any]:
        """Return SEAL's identifier of each level of the modulus chain, from all data
        primes to one.
        """
        ids, data = [], self.context.first_context_data()
        for _ in self.parameters.data_moduli:
            ids.append(data.parms_id())
            data = data.next_context_data() if len(ids) < len(self.parameters.data_moduli) else data
        return ids

    # -- single integers: constant polynomials, which have the same value in every slot
    # ------------------------------

    def encode_integer(self, value: int) -> Any:
        """Return a plaintext with ``value`` in its constant coefficient."""
        return seal.Plaintext(f"{value % self.parameters.plain_modulus:X}")

    def encode_power(self, power: int) -> Any:
        return power_of_x(power)

    def decode_integer(self, plain: Any) -> int | None:
        """Return the integer of a constant plaintext.

        Returns None if the plaintext is not constant, as after a failed decryption.
        """
        if plain.significant_coeff_count() > 1:
            return None
        value = int(plain.to_string(), 16)
        return value - self.parameters.plain_modulus if value > self.parameters.max_value else value

    def switch(self, ciphertext: Any, level: int) -> Any:
        """Switch a ciphertext down to a level, without the correction factor that SEAL would store
        in it.

        It then decrypts to the message times ``parameters.switch_factor``, which programs keep
        track of.
        """
        lowered = self.evaluator.mod_switch_to(ciphertext, self.level_ids[level])
        if not self.parameters.has_factors:
            return lowered
        data, plain = self.ciphertext_to_bytes(lowered), seal.Ciphertext()
        plain.load_bytes(self.context, _without_factor(data[:HEADER_BYTES]) + data[HEADER_BYTES:])
        return plain

    # -- bytes
    # --------------------------------------------------------------------------------------------

    def ciphertext_to_bytes(self, ciphertext: Any) -> bytes:
        """Serialise a ciphertext uncompressed: residues are random, so compression
        gains nothing.
        """
        data: bytes = ciphertext.to_string(seal.compr_mode_type.none)
        return data

    def ciphertext_from_bytes(self, data: bytes, *, size: int, level: int) -> Any:
        """Load a ciphertext of exactly this size and level, or raise an error."""
        expected = self.parameters.ciphertext_bytes(size, level) + HEADER_BYTES
        if len(data) != expected:
            raise FileFormatError(
                f"a ciphertext of {len(data)} bytes stands where one of {expected} is expected",
                code="wrong-ciphertext-length",
            )
        check_seal_bytes(data)
        if data[:HEADER_BYTES] != self.ciphertext_header(size, level):
            raise FileFormatError(
                "a ciphertext has another form than ours (scale, correction factor, level or size)",
                code="wrong-ciphertext-form",
            )
        ciphertext = seal.Ciphertext()
        try:
            ciphertext.load_bytes(self.context, data)
        except (RuntimeError, ValueError, IndexError) as error:
            raise FileFormatError(
                f"a ciphertext is malformed: {error}", code="malformed-ciphertext"
            ) from error
        if ciphertext.size() != size or list(ciphertext.parms_id()) != list(self.level_ids[level]):
            raise FileFormatError(
                "a ciphertext has another size or level than its file says",
                code="wrong-ciphertext-level",
            )
        if ciphertext.is_transparent():
            raise FileFormatError(
                "a ciphertext is transparent: it hides nothing and was not made by encryption",
                code="transparent-ciphertext",
            )
        return ciphertext

    def ciphertext_header(self, size: int, level: int) -> bytes:
        """Return SEAL's header for this size and level, as SEAL writes it under any key."""
        if (size, level) not in self._headers:
            generator = seal.KeyGenerator(self.context)
            base = seal.Encryptor(self.context, generator.create_public_key()).encrypt_zero()
            grown = base
            while grown.size() < size:
                grown = self.evaluator.multiply(grown, base)
            lowered = self.evaluator.mod_switch_to(grown, self.level_ids[level])
            self._headers[size, level] = _without_factor(
                self.ciphertext_to_bytes(lowered)[:HEADER_BYTES]
            )
        return self._headers[size, level]


def _without_factor(header: bytes) -> bytes:
    return header[: _FACTOR.start] + _ONE + header[_FACTOR.stop :]


@lru_cache(maxsize=16)
def engine_for(parameters: Parameters) -> Engine:
    """Return the engine of these parameters. Contexts are expensive, so the last few are cached."""
    return Engine(parameters)


def check_seal_bytes(data: bytes, whole: int | None = None) -> None:
    """Refuse bytes that SEAL would have to guess about: wrong magic, compressed (a bomb could
    hide), wrong length.

    ``whole`` is the length of the object where only its first bytes are given.
    """
    if len(data) < _SEAL_HEADER.size:
        raise FileFormatError("a SEAL object is cut short", code="truncated-seal-object")
    magic, header_size, _major, _minor, compression, _reserved, length = _SEAL_HEADER.unpack_from(
        data
    )
    if magic != _SEAL_MAGIC or header_size != _SEAL_HEADER.size:
        raise FileFormatError("bytes that should be a SEAL object are not", code="not-seal-object")
    if compression != _UNCOMPRESSED:
        raise FileFormatError(
            "a SEAL object is compressed; this library writes and reads plain ones only",
            code="compressed-seal-object",
        )
    if length != (len(data) if whole is None else whole):
        raise FileFormatError(
            "a SEAL object states another length than it has", code="seal-length-mismatch"
        )
