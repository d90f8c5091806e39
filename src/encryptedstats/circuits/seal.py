"""The SEAL reader: the encrypted value of a circuit, operation by operation. The reference that faster readers must equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from encryptedstats.circuits.bounds import ColumnRange
from encryptedstats.circuits.clear import check_marks
from encryptedstats.circuits.expressions import Marks
from encryptedstats.circuits.layout import Layout
from encryptedstats.circuits.noise import NoiseMachine
from encryptedstats.circuits.walk import Machine
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues, ciphertext_of, residues_of


class Source(Protocol):
    """What a circuit is evaluated on: an encrypted table, as far as circuits need to know it."""

    @property
    def parameters(self) -> Parameters:
        """The parameters of the ciphertexts."""

    @property
    def layout(self) -> Layout:
        """Where the rows lie."""

    @property
    def keys(self) -> PublicKeys:
        """The keys to compute with."""

    @property
    def with_secret_key(self) -> bool:
        """Whether the ciphertexts were made with the secret key, hence with less noise."""

    def ranges(self) -> dict[str, ColumnRange]:
        """What is publicly known of every column."""

    def residues(self, name: str, chunk: int) -> Residues:
        """A column over one chunk of rows."""


def column_noises(source: Source) -> Mapping[str, Noise]:
    """The noise of those columns of a source that are not as they were encrypted; sources without such need not say so."""
    noises: Mapping[str, Noise] = getattr(source, "noises", {})
    return noises


@dataclass(frozen=True)
class SealValue:
    """A ciphertext with its noise."""

    ciphertext: Any
    bound: Noise


class SealMachine(Machine[SealValue]):
    """A machine whose values are SEAL ciphertexts; the noise is kept by a :class:`NoiseMachine` beside it."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.parameters)
        self._source = source
        self._keys = source.keys
        self._engine = source.keys.engine
        self._evaluator = source.keys.engine.evaluator
        self._account = NoiseMachine(
            source.parameters, with_secret_key=source.with_secret_key, known=column_noises(source)
        )

    def noise(self, value: SealValue) -> Noise:
        """The bound that goes with the ciphertext."""
        return value.bound

    def column(self, name: str, chunk: int) -> SealValue:
        """Load a column."""
        return SealValue(
            ciphertext_of(self._engine, self._source.residues(name, chunk)), self._account.column(name, chunk)
        )

    def add_up(self, terms: Sequence[tuple[int, SealValue]], constant: int) -> SealValue:
        """Additions and subtractions; coefficients beyond 1 by a plain constant."""
        noise = self._account.add_up([(c, value.bound) for c, value in terms], constant)
        try:
            return SealValue(self._combined([(c, value.ciphertext) for c, value in terms], constant), noise)
        except RuntimeError as error:
            if "transparent" not in str(error):
                raise
            raise ValueError(
                "a sum in this circuit is 0 whatever the table, its terms cancel: leave it out. (Its ciphertext would hide "
                "nothing, and is not made)"
            ) from error

    def _combined(self, terms: Sequence[tuple[int, Any]], constant: int) -> Any:
        # Begin with a positive term, so that nothing has to be negated.
        ordered = sorted(terms, key=lambda term: term[0] < 0)
        total: Any = None
        for coefficient, ciphertext in ordered:
            scaled = self._scaled(ciphertext, abs(coefficient))
            if total is None:
                total = scaled if coefficient > 0 else self._evaluator.negate(scaled)
            else:
                total = (self._evaluator.add if coefficient > 0 else self._evaluator.sub)(total, scaled)
        if constant:
            total = self._evaluator.add_plain(total, self._engine.encode_integer(constant))
        return total

    def _scaled(self, ciphertext: Any, factor: int) -> Any:
        if factor == 1:
            return ciphertext
        return self._evaluator.multiply_plain(ciphertext, self._engine.encode_integer(factor))

    def multiply(self, a: SealValue, b: SealValue) -> SealValue:
        """A product, or a square."""
        noise = self._account.multiply(a.bound, b.bound)
        if a is b:
            return SealValue(self._evaluator.square(a.ciphertext), noise)
        return SealValue(self._evaluator.multiply(a.ciphertext, b.ciphertext), noise)

    def relinearise(self, value: SealValue) -> SealValue:
        """Any size down to two polynomials, with the ordinary key."""
        if value.bound.size == 2:
            return value
        return SealValue(relinearise_any(self._keys, value.ciphertext), self._account.relinearise(value.bound))

    def switch(self, value: SealValue, level: int) -> SealValue:
        """Modulus switching."""
        if value.bound.level == level:
            return value
        lower = self._evaluator.mod_switch_to(value.ciphertext, self._engine.level_ids[level])
        return SealValue(lower, self._account.switch(value.bound, level))

    def rotate(self, value: SealValue, step: int) -> SealValue:
        """A rotation with its key."""
        return SealValue(self._keys.rotate(value.ciphertext, step), self._account.rotate(value.bound, step))

    def mask(self, value: SealValue, marks: Marks) -> SealValue:
        """A product with a plaintext of ones and zeros."""
        check_marks(marks, self._source.layout)
        slots = np.zeros(self.parameters.slots, dtype=np.int64)
        slots[marks.slots] = 1
        masked = self._evaluator.multiply_plain(value.ciphertext, self._engine.encoder.encode(slots))
        return SealValue(masked, self._account.mask(value.bound, marks))


def relinearise_any(keys: PublicKeys, ciphertext: Any) -> Any:
    """Relinearise a ciphertext of any size with the key for s^2 alone.

    The top component c_k counts for c_k s^k = s^(k-2) (c_k s^2): so relinearise (0, 0, c_k) into (e0, e1) and add these to the
    components k-2 and k-1; repeat.
    """
    if ciphertext.size() == 3:
        return keys.relinearise(ciphertext)
    engine = keys.engine
    residues = residues_of(engine, ciphertext).copy()
    primes = engine.parameters.data_moduli[: residues.shape[1]]
    while len(residues) > 3:
        top = residues[-1:]
        switched = residues_of(engine, keys.relinearise(ciphertext_of(engine, _only_top(top))))
        residues = residues[:-1].copy()
        for prime, q in enumerate(primes):
            residues[-2:, prime] = (residues[-2:, prime] + switched[:, prime]) % q
    return keys.relinearise(ciphertext_of(engine, residues))


def _only_top(top: Residues) -> Residues:
    return np.concatenate([np.zeros_like(top), np.zeros_like(top), top])
