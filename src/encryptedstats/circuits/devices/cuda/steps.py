"""Steps one by one on a GPU, for programs without a tape: they mark, move or relinearise rows.

Values are arrays on the GPU from the columns to the results. Each instruction is a few kernels,
which wait for each other on the GPU only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import proxy

import numpy as np

from encryptedstats.circuits.devices.cuda.gpu import Array, Gpu
from encryptedstats.circuits.devices.cuda.ring import (
    GpuRing,
    Key,
    packing_keys,
    relinearisation_key,
    rotation_keys,
)
from encryptedstats.circuits.devices.native.sums import hides
from encryptedstats.circuits.devices.seal import encrypted_here
from encryptedstats.circuits.devices.steps import NOTHING_HIDDEN, Execution, Known, Rule
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    MASK,
    MULTIPLY,
    RELINEARISE,
    ROTATE,
    SHIFT,
    SWITCH,
    Step,
)
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.kernels import galois_element
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError, FileFormatError


class Keyed:
    """Public keys on a GPU; each is read on first use."""

    def __init__(self, keys: PublicKeys, gpu: Gpu, arithmetic: str | None) -> None:
        self.ring = GpuRing(keys.parameters, gpu, arithmetic)
        self._keys = proxy(keys)  # what is kept by keys must not keep them
        self._relinearisation: Key | None = None
        self._packing: list[list[Key]] | None = None
        self._rotations: dict[int, Key] | None = None
        self.tapes: dict[Any, Any] = {}  # of rows that were computed last

    @property
    def relinearisation(self) -> Key:
        """The key for s^2."""
        if self._relinearisation is None:
            self._relinearisation = relinearisation_key(
                self.ring, self._keys.evaluator.keys.relinearisation
            )
        return self._relinearisation

    @property
    def packing(self) -> list[list[Key]]:
        """The keys of all automorphisms of packing, level by level."""
        if self._packing is None:
            self._packing = packing_keys(self.ring, self._keys.evaluator.packing_keys)
        return self._packing

    def rules(self) -> Mapping[str, Rule]:
        """Return the rules that compute on the GPU."""
        ring, n_primes = self.ring, len(self.ring.parameters.data_moduli)
        return {
            ADD_UP: lambda _, data, *values: ring.combine(
                list(zip(data[0], values, strict=True)), data[1]
            ),
            MULTIPLY: lambda _, data, a, b: ring.multiply(a, b),
            RELINEARISE: lambda _, data, value: ring.reduce(
                value, value.shape[1], self.relinearisation
            ),
            SWITCH: lambda _, level, value: ring.reduce(value, n_primes - level),
            SHIFT: lambda _, power, value: ring.shift(value, power),
            ROTATE: lambda _, rotation, value: ring.rotate(value, self.rotation(rotation)),
            MASK: lambda _, marks, value: ring.multiply(value, ring.encode(marks, value.shape[1])),
        }

    def rotation(self, step: int) -> Key:
        """Return the key of one rotation."""
        self._keys.evaluator.check_rotation(step)
        if self._rotations is None:
            self._rotations = rotation_keys(self.ring, self._keys.evaluator.keys.rotation)
        return self._rotations[galois_element(self.ring.n, step)]


class CudaExecution(Execution):
    """Evaluate steps on a GPU.

    Parameters
    ----------
    keys, known, source
        As for :class:`Execution`; known ciphertexts may be on the GPU already.
    keyed : Keyed
    held : dict
        Columns on the GPU, by name, level and chunk; columns that are read stay there.
    """

    def __init__(
        self,
        keys: PublicKeys,
        known: Known,
        source: Source | None,
        keyed: Keyed,
        held: dict[Any, Array],
    ) -> None:
        super().__init__(keys, known, source)
        self.rules = keyed.rules()
        self._gpu, self._held = keyed.ring.gpu, held

    def value_of(self, residues: Any) -> Array:
        """Copy residues to the GPU."""
        return residues if isinstance(residues, Array) else self._gpu.upload(residues)

    def residues_of(self, value: Any) -> Any:
        """Leave the value on the GPU."""
        return value

    def check_sum(self, value: Array) -> None:
        """Refuse a sum that is 0 whatever the table; a few of its numbers tell, as a rule."""
        few = Array(value.gpu, value[1].pointer, (8,), value)
        if not np.asarray(few).any() and not hides(np.asarray(value)):
            raise ArgumentError(NOTHING_HIDDEN, code="sum-cancels")

    def load(self, step: Step, source: Source, chunk: int) -> Any:
        """Read a column, or take it from the GPU; check what was read."""
        if step.op != COLUMN:
            return self.value_of(encrypted_here(step, source, chunk))
        name = step.data, 0, chunk
        if name not in self._held:
            residues = source.residues(step.data, chunk)
            self._check_column(residues, f"{source.chunk_name(chunk)}: column {step.data}")
            self._held[name] = self.value_of(residues)
        return self._held[name]

    def _check_column(self, residues: Residues, where: str) -> None:
        moduli = np.array(self.keys.parameters.data_moduli, dtype=np.uint64)
        shape = (2, len(moduli), self.keys.parameters.ring_degree)
        if (
            residues.shape != shape
            or not hides(residues)
            or (residues.max(axis=(0, 2)) >= moduli).any()
        ):
            raise FileFormatError(
                f"{where} holds what no encryption made: it is transparent, or its residues are "
                "not below their primes",
                code="invalid-ciphertext",
            )
