"""Packing by the kernels, in threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from encryptedstats.circuits.devices.native.steps import kernels_of
from encryptedstats.circuits.devices.packing import Packing
from encryptedstats.crypto.residues import Residues


class KernelPacking(Packing):
    """Packing on residues."""

    def merge(self, parts: Sequence[Residues], level: int, to: int | None = None) -> Residues:
        """Merge in threads."""
        return kernels_of(self.keys).pack(parts, to, level, self.workers, start=self.start)

    def split(self, node: Residues, level: int, *, odd: bool) -> Sequence[Residues]:
        """Split residues."""
        return kernels_of(self.keys).split(node, level, odd=odd, start=self.start)

    def expand(self, node: Residues, count: int, level: int) -> Iterable[Residues]:
        """Expand in threads."""
        kernels = kernels_of(self.keys)
        return kernels.expand(
            node, count, level, self.start, threads=self.workers, start=self.start
        )
