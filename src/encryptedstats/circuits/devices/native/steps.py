"""Steps one by one: kernels switch keys and moduli and add up marked rows."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from encryptedstats.circuits.devices.batches import Packing
from encryptedstats.circuits.devices.seal import (
    SEAL_RULES,
    SealExecution,
    encode_marks,
    on_residues,
)
from encryptedstats.circuits.devices.steps import Known, Place, Rule, StepByStep
from encryptedstats.circuits.program import (
    ADD_UP,
    COLUMN,
    MASK,
    RELINEARISE,
    ROTATE,
    SWITCH,
    Step,
)
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.kernels import Kernels
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.packing import packing_primes, plaintext_coefficients
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError
from encryptedstats.machine import thread_pool


def kernels_of(keys: PublicKeys) -> Kernels:
    """Return the kernels of some keys, or raise an error if there are none."""
    kernels = keys.evaluator.kernels
    if kernels is None:
        raise ArgumentError("there are no kernels for these keys", code="no-kernels")
    return kernels


def _rotate(keys: PublicKeys, rotation: int, value: Residues) -> Residues:
    keys.evaluator.check_rotation(rotation)
    return kernels_of(keys).rotate(value, rotation)


#: SEAL multiplies and adds; the kernels switch keys and moduli.
KERNEL_RULES: Final[Mapping[str, Rule]] = {
    **SEAL_RULES,
    RELINEARISE: on_residues(lambda keys, _, value: kernels_of(keys).relinearise(value)),
    SWITCH: on_residues(lambda keys, level, value: kernels_of(keys).switch(value, level)),
    ROTATE: on_residues(_rotate),
}


class NativeExecution(SealExecution):
    """Evaluate steps with the kernels; mark rows and add them up in one step."""

    def __init__(self, keys: PublicKeys, known: Known, source: Source | None = None) -> None:
        super().__init__(
            keys, known, source, SEAL_RULES if keys.evaluator.kernels is None else KERNEL_RULES
        )
        self._read: dict[Place, Residues] = {}

    def needs(self, place: Place) -> list[Place]:
        """Return the places that a step reads.

        Masked sums are evaluated in one step, so their columns are loaded lazily.
        """
        step, chunk = place
        masks = self._masks(step, chunk)
        if place in self.known or not masks:
            return super().needs(place)
        return [(mask.args[0], chunk) for mask in masks if mask.args[0].op != COLUMN]

    def compute(self, step: Step, chunk: int | None, args: Mapping[Step, Any]) -> Any:
        """Add up masked rows at once; compute other steps by their rules."""
        masks = self._masks(step, chunk)
        if not masks or chunk is None:
            return super().compute(step, chunk, args)
        rows, ring = list[Residues](), self.keys.parameters.ring_degree
        for row in (mask.args[0] for mask in masks):
            rows.append(
                self._column(row, chunk) if row.op == COLUMN else self.residues_of(args[row])
            )
        plains = [
            plaintext_coefficients(encode_marks(self.keys, mask.data), ring) for mask in masks
        ]
        return self.value_of(kernels_of(self.keys).multiply_and_sum(rows, plains))

    def _masks(self, step: Step, chunk: int | None) -> list[Step]:
        """Return the masked terms of a step that is nothing but their sum."""
        if self.keys.evaluator.kernels is None or chunk is None or step.size > 2:
            return []
        if step.op == MASK:
            return [step]
        is_plain_sum = step.op == ADD_UP and step.data == ((1,) * len(step.args), 0)
        terms = [arg for arg in step.args if arg.is_at(chunk)] if is_plain_sum else []
        return (
            terms if all(arg.op == MASK and (arg, chunk) not in self.known for arg in terms) else []
        )

    def _column(self, column: Step, chunk: int) -> Residues:
        """Read a column once: it is marked many times."""
        if (column, chunk) in self.known:
            return self.known[column, chunk]
        if (column, chunk) not in self._read:
            if self.source is None:
                raise ArgumentError(
                    f"{column!r} is over rows, and there are none here", code="no-rows-here"
                )
            self._read[column, chunk] = self.source.residues(column.data, chunk)
        return self._read[column, chunk]


# -- modulus switching and relinearisation of totals -----------------------------------------------


def lower_totals(
    steps: Sequence[Step], known: Mapping[Step, Residues], keys: PublicKeys, workers: int
) -> list[Residues]:
    """Compute steps from totals; kernels do the last switches and relinearisations."""
    kernels = kernels_of(keys)
    bases = [base_below(step, known) for step in steps]
    missing = [base for base in dict.fromkeys(bases) if base not in known]
    before = StepByStep(NativeExecution).lower_totals(missing, known, keys, workers)
    known = {**known, **dict(zip(missing, before, strict=True))}
    found: dict[Step, Residues] = {}
    lowest = len(keys.parameters.data_moduli) - packing_primes(keys.parameters)
    pairs = list(zip(steps, bases, strict=True))
    low = [(step, base) for step, base in pairs if step is not base and step.level == lowest]
    levels = [relinearised_at(step, base) for step, base in low]
    lowered = kernels.lower([known[base] for _, base in low], levels, workers)
    for (step, _), residues in zip(low, lowered, strict=True):
        found[step] = residues
    others = {step: base for step, base in pairs if step not in found}
    values = thread_pool(workers).map(
        lambda step: _lower_one(step, others[step], known[others[step]], kernels), others
    )
    found |= zip(others, values, strict=True)
    return [found[step] for step in steps]


def _lower_one(step: Step, base: Step, residues: Residues, kernels: Kernels) -> Residues:
    if step is base:
        return np.array(residues)  # a copy: the next batch overwrites the memory of the sums
    below = _lower_one(step.args[0], base, residues, kernels)
    return kernels.switch(below, step.level) if step.op == SWITCH else kernels.relinearise(below)


def base_below(step: Step, known: Container[Step]) -> Step:
    """Return the step before the last switches and relinearisations, or one that is known."""
    while step.op in (SWITCH, RELINEARISE) and step not in known:
        step = step.args[0]
    return step


def relinearised_at(step: Step, base: Step) -> int:
    """Return the level at which a step is relinearised on the way from its base; else its own."""
    level = step.level
    while step is not base:
        if step.op == RELINEARISE:
            return step.level
        step = step.args[0]
    return level


class KernelPacking(Packing):
    """Packing on residues."""

    early_bytes: ClassVar[int] = 16 << 20

    def merge(self, parts: Sequence[Residues], level: int, to: int | None = None) -> Residues:
        """Merge in threads."""
        return kernels_of(self.keys).pack(parts, to, level, self.workers, start=self.start)

    def merge_groups(self, groups: Sequence[Sequence[Residues]], to: int) -> list[Residues]:
        """Merge in threads, each group in one of them."""
        kernels, start = kernels_of(self.keys), self.start
        pool = thread_pool(self.workers)
        return list(pool.map(lambda group: kernels.pack(group, to, start, 1, start=start), groups))

    def split(self, node: Residues, level: int, *, odd: bool) -> Sequence[Residues]:
        """Split residues."""
        return kernels_of(self.keys).split(node, level, odd=odd, start=self.start)

    def expand(self, node: Residues, count: int, level: int) -> Iterable[Residues]:
        """Expand in threads."""
        kernels = kernels_of(self.keys)
        return kernels.expand(
            node, count, level, self.start, threads=self.workers, start=self.start
        )
