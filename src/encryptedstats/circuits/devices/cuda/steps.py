"""Steps one by one on a card: what no tape does, because rows are marked, moved, or relinearised on the way.

Values are arrays on the card from the columns to the results. Each instruction is a few kernels; none of them waits for another
but on the card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import proxy

import numpy as np

from encryptedstats.circuits.devices.cuda.card import Array, Card
from encryptedstats.circuits.devices.cuda.ring import (
    Key,
    RingOnCard,
    packing_keys,
    relinearisation_key,
    rotation_keys,
)
from encryptedstats.circuits.devices.native.sums import NOTHING_HIDDEN, hides
from encryptedstats.circuits.devices.seal import Execution, Place, encrypted_here
from encryptedstats.circuits.program import COLUMN, MASK, MULTIPLY, RELINEARISE, ROTATE, SWITCH, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.kernels import galois_element
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import FileFormatError


class Keyed:
    """What is on a card for one set of public keys; keys are read when they are needed for the first time."""

    def __init__(self, keys: PublicKeys, card: Card, arithmetic: str | None) -> None:
        self.ring = RingOnCard(keys.parameters, card, arithmetic)
        self._keys = proxy(keys)  # what is kept by keys must not keep them
        self._relinearisation: Key | None = None
        self._packing: list[list[Key]] | None = None
        self._rotations: dict[int, Key] | None = None
        self.tapes: dict[Any, Any] = {}  # of rows that were computed last

    @property
    def relinearisation(self) -> Key:
        """For s^2."""
        if self._relinearisation is None:
            self._relinearisation = relinearisation_key(self.ring, self._keys.evaluator.keys.relinearisation)
        return self._relinearisation

    @property
    def packing(self) -> list[list[Key]]:
        """Of all automorphisms of packing, level by level."""
        if self._packing is None:
            self._packing = packing_keys(self.ring, self._keys.evaluator.packing_keys)
        return self._packing

    def rotation(self, step: int) -> Key:
        """Of one rotation."""
        self._keys.evaluator.check_rotation(step)
        if self._rotations is None:
            self._rotations = rotation_keys(self.ring, self._keys.evaluator.keys.rotation)
        return self._rotations[galois_element(self.ring.n, step)]


class CudaExecution(Execution):
    """Step by step on a card.

    Parameters
    ----------
    keys, known, source
        As of :class:`Execution`; what is known may be on the card already.
    keyed : Keyed
    held : dict
        Columns that are on the card, by name, level and chunk; those that are read stay there.
    """

    def __init__(
        self,
        keys: PublicKeys,
        known: Mapping[Place, Residues],
        source: Source | None,
        keyed: Keyed,
        held: dict[Any, Array],
    ) -> None:
        super().__init__(keys, known, source)
        self._keyed, self._held = keyed, held

    def value_of(self, residues: Any) -> Array:
        """On the card."""
        return residues if isinstance(residues, Array) else self._keyed.ring.card.upload(residues)

    def residues_of(self, value: Any) -> Any:
        """They stay there."""
        return value

    def _instruction(self, step: Step, chunk: int | None, args: Mapping[Step, Any]) -> Any:
        ring = self._keyed.ring
        if step.op == MULTIPLY:
            return ring.multiply(args[step.args[0]], args[step.args[1]])
        if step.op not in (RELINEARISE, SWITCH, ROTATE, MASK):
            return super()._instruction(step, chunk, args)
        value: Array = args[step.args[0]]
        primes = value.shape[1]
        if step.op == RELINEARISE:
            return ring.brought(value, primes, self._keyed.relinearisation)
        if step.op == SWITCH:
            return ring.brought(value, len(self.keys.parameters.data_moduli) - step.data)
        if step.op == ROTATE:
            return ring.rotate(value, self._keyed.rotation(step.data))
        return ring.multiply(value, ring.encode(step.data, primes))

    def _combined(self, terms: Sequence[tuple[int, Any]], constant: int) -> Any:
        return self._keyed.ring.combine(terms, constant)

    def _loaded(self, step: Step, chunk: int | None) -> Any:
        if self.source is None or chunk is None:
            return super()._loaded(step, chunk)
        if step.op != COLUMN:
            return self.value_of(encrypted_here(step, self.source, chunk))
        name = step.data, 0, chunk
        if name not in self._held:
            self._held[name] = self.value_of(self._checked(self.source.residues(step.data, chunk), step, chunk))
        return self._held[name]

    def _checked(self, residues: Residues, step: Step, chunk: int) -> Residues:
        moduli = np.array(self.keys.parameters.data_moduli, dtype=np.uint64)
        shape = (2, len(moduli), self.keys.parameters.ring_degree)
        if residues.shape == shape and hides(residues) and (residues.max(axis=(0, 2)) < moduli).all():
            return residues
        assert self.source is not None
        raise FileFormatError(
            f"{self.source.chunk_name(chunk)}: column {step.data} holds what no encryption made: it is transparent, or its "
            "residues are not below their primes"
        )


def check_hides(value: Array) -> None:
    """Refuse a sum that is 0 whatever the table, as a few of its numbers tell, as a rule."""
    few = Array(value.card, value[1].pointer, (8,), value)
    if not np.asarray(few).any() and not hides(np.asarray(value)):
        raise ValueError(NOTHING_HIDDEN)
