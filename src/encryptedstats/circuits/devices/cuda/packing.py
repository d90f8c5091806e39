"""Packing on a GPU: all merges of a level at a time; what is expanded stays there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from encryptedstats.circuits.devices.batches import Packing
from encryptedstats.circuits.devices.cuda.gpu import Array
from encryptedstats.circuits.devices.cuda.session import Session
from encryptedstats.circuits.devices.cuda.steps import Keyed
from encryptedstats.circuits.devices.native.steps import KernelPacking
from encryptedstats.crypto.residues import Residues


@dataclass(frozen=True)
class CudaPacking(Packing):
    """Packing on a GPU, or in C if this process has no GPU."""

    session: Session | None = None

    @property
    def _elsewhere(self) -> KernelPacking:
        return KernelPacking(self.keys, self.workers, self.start)

    @property
    def _keyed(self) -> Keyed | None:
        return None if self.session is None else self.session.load_keys(self.keys)

    def merge(self, parts: Sequence[Residues], level: int, to: int | None = None) -> Residues:
        """Merge all parts of a level at a time."""
        keyed = self._keyed
        return (
            self._elsewhere.merge(parts, level, to)
            if keyed is None
            else merge_on_gpu(keyed, parts, level, to, self.start)
        )

    def split(self, node: Residues, level: int, *, odd: bool) -> Sequence[Residues]:
        """Split a part; the halves stay on the GPU."""
        keyed = self._keyed
        if keyed is None:
            return self._elsewhere.split(np.asarray(node), level, odd=odd)
        levels = level, level - 1, self.start
        return _expand_on_gpu(keyed, node, 1 << (level if odd else level - 1), levels)

    def expand(self, node: Residues, count: int, level: int) -> Iterable[Residues]:
        """Expand a part; the totals stay on the GPU."""
        keyed = self._keyed
        if keyed is None:
            return self._elsewhere.expand(np.asarray(node), count, level)
        return _expand_on_gpu(keyed, node, count, (level, self.start, self.start))


def merge_on_gpu(
    keyed: Keyed, parts: Sequence[Any], level: int = 0, to: int | None = None, start: int = 0
) -> Residues:
    """Merge parts that may be on the GPU, and copy the result to memory."""
    there = keyed.ring.gpu.concatenate(parts).reshape(len(parts), *parts[0].shape)
    return np.asarray(keyed.ring.pack(there, keyed.packing, level, to, start)[0])


def _expand_on_gpu(keyed: Keyed, node: Any, count: int, levels: tuple[int, int, int]) -> list[Any]:
    there = node if isinstance(node, Array) else keyed.ring.gpu.upload(np.asarray(node))
    found = keyed.ring.expand(there, count, levels, keyed.packing)
    return [found[number] for number in range(len(found))]
