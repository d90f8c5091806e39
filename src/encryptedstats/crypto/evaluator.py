"""Evaluation with key-switching keys: relinearisation, rotation, packing and expanding packs.

An :class:`Evaluator` owns the evaluation keys. Sums and products need no keys and belong to the
engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from encryptedstats.crypto import packing
from encryptedstats.crypto.engine import Engine, engine_for
from encryptedstats.crypto.kernels import Kernels, make_kernels
from encryptedstats.crypto.material import EvaluationKeys
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.errors import Cure, KeyMismatchError


class Evaluator:
    """SEAL's key switching, and the kernels that do the same work faster.

    Parameters
    ----------
    engine : Engine
    keys : EvaluationKeys
        Devices read them to convert them to their own layout.
    """

    def __init__(self, engine: Engine, keys: EvaluationKeys) -> None:
        self.engine, self.keys = engine, keys

    @property
    def parameters(self) -> Parameters:
        return self.engine.parameters

    @cached_property
    def kernels(self) -> Kernels | None:
        """The native kernels for these keys, with SEAL's residues as results; None where only SEAL
        can run.
        """
        return make_kernels(
            self.parameters, self.keys.relinearisation, self.keys.packing, self.keys.rotation
        )

    @property
    def packing_keys(self) -> Any:
        """SEAL's Galois keys for packing. Raises an error where the keys were made without them."""
        if self.keys.packing is None:
            raise KeyMismatchError(packing.NO_PACKING_KEYS, code="no-packing-keys")
        return self.keys.packing

    def relinearise(self, ciphertext: Any) -> Any:
        """Return a ciphertext of three polynomials as one of two."""
        return self.engine.evaluator.relinearize(ciphertext, self.keys.relinearisation)

    def check_rotation(self, step: int) -> None:
        """Raise an error where there is no key for a rotation."""
        if step not in self.keys.rotations:
            raise KeyMismatchError(
                f"these public keys have no key for rotation {step}: ",
                Cure(
                    "planned keys",
                    "owner.public_keys(rotations=[...]), or encrypt with es.Owner(plan), which "
                    "makes those that were planned",
                ),
            )

    def rotate(self, ciphertext: Any, step: int) -> Any:
        """Rotate slots to the left within both half rows; step 0 swaps the half rows."""
        self.check_rotation(step)
        if step == 0:
            return self.engine.evaluator.rotate_columns(ciphertext, self.keys.rotation)
        return self.engine.evaluator.rotate_rows(ciphertext, step, self.keys.rotation)

    def pack(
        self, ciphertexts: Sequence[Any], levels: int | None = None, lowest: int = 0, start: int = 0
    ) -> Any:
        """Merge ciphertexts of the packing context into one: see ``packing.pack``."""
        return packing.pack(self.parameters, self.packing_keys, ciphertexts, levels, lowest, start)

    def split(self, pack: Any, level: int, *, odd: bool = True, start: int = 0) -> tuple[Any, ...]:
        """Split a pack at a level into the first half of its totals and (``odd``) the others."""
        return packing.split(
            self._packing_engine, self.packing_keys, pack, level, odd=odd, start=start
        )

    def expand(self, pack: Any, count: int, level: int, start: int = 0) -> list[Any]:
        """Return the totals of a pack, a ciphertext for each, or for 2^start interleaved totals."""
        return packing.expand(self._packing_engine, self.packing_keys, pack, count, level, start)

    @property
    def _packing_engine(self) -> Engine:
        return engine_for(packing.packing_parameters(self.parameters))
