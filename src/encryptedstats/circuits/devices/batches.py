"""Run the batches of a program one after the other, and merge their totals into packs.

A device supplies the functions that compute a batch, and its :class:`Packing`. A pack of level k
has 2^k places. Ciphertexts of level ``start`` hold 2^start interleaved totals each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.circuits.devices.base import Task
from encryptedstats.circuits.program import EXPAND, PACKED, Batch, Program, Step
from encryptedstats.circuits.results import EncryptedNumbers
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.packing import packing_parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import ArgumentError
from encryptedstats.progress import progress_bar

_EXPANDED_AT_ONCE: Final = 64  # totals ...
_EXPANDED_BYTES: Final = 64 << 20  # ... and bytes: as long as one of these is held, all are
_NEIGHBOURS: Final = 5  # 2^5 totals are merged at a time if there is no room for all of them ...
_FEW_NEIGHBOURS: Final = 3  # ... and 2^3 if there is: many threads share small groups better
_HELD_SHARE: Final = 32  # of the memory, that they take before they are merged


@dataclass(frozen=True)
class Packing(ABC):
    """The operations of packing with one set of keys."""

    #: Bytes of totals from which groups are merged early even if all totals have room; 0 for never.
    early_bytes: ClassVar[int] = 0

    keys: PublicKeys
    workers: int
    start: int = 0

    @property
    def top(self) -> int:
        """The level of a whole pack."""
        return self.keys.parameters.ring_degree.bit_length() - 1

    @abstractmethod
    def merge(self, parts: Sequence[Residues], level: int, to: int | None = None) -> Residues:
        """Merge neighbouring parts of a pack into one part of level ``to``, or into a whole pack.

        Totals are under the primes of the packing context; a whole pack holds nothing but totals.
        """

    def merge_groups(self, groups: Sequence[Sequence[Residues]], to: int) -> list[Residues]:
        """Merge each group of neighbouring totals into one part of level ``to``."""
        return [self.merge(group, self.start, to) for group in groups]

    @abstractmethod
    def split(self, node: Residues, level: int, *, odd: bool) -> Sequence[Residues]:
        """Split a part of a pack into the first half of its places and, if ``odd``, the second."""

    @abstractmethod
    def expand(self, node: Residues, count: int, level: int) -> Iterable[Residues]:
        """Expand a part into the ciphertexts of its first ``count`` totals.

        Each has its total in every slot, or 2^start interleaved totals.
        """


# -- merging ---------------------------------------------------------------------------------------


class PackMerger:
    """Collects the totals of a program and merges them into its packs.

    If all totals are too large to be held together, groups of neighbours are merged as soon as
    there are many, all of them in parallel. A packing whose totals lie in fresh memory asks for the
    same from a few megabytes on: the next totals can use the memory of the merged ones again.
    """

    def __init__(self, program: Program, packing: Packing, memory_limit: int) -> None:
        self._program, self._packing = program, packing
        self._totals: dict[Step, Residues] = {}
        self._merged: dict[tuple[Step, ...], Residues] = {}
        ciphertext = packing_parameters(program.parameters).ciphertext_bytes()
        nbytes, early = ciphertext * len(program.outputs), packing.early_bytes
        is_short = nbytes > memory_limit // 4
        self._is_early = bool(program.packs) and (is_short or 0 < early < nbytes)
        self._neighbours = _NEIGHBOURS if is_short else _FEW_NEIGHBOURS
        groups = (group for pack in program.packs for group in self._groups_of(pack))
        self._waiting = list(dict.fromkeys(groups)) if self._is_early else []
        self._uses = Counter(step for group in self._waiting for step in group)
        self._level = min(packing.start + self._neighbours, packing.top)
        held = memory_limit // _HELD_SHARE
        self._most = (min(held, early) if early else held) // ciphertext

    def add(self, totals: Mapping[Step, Residues]) -> None:
        """Add totals, and merge the complete groups if many totals are held."""
        self._totals |= totals
        if self._is_early and len(self._totals) > self._most:
            self._merge_complete()

    def _merge_complete(self) -> None:
        complete, waiting = list[tuple[Step, ...]](), list[tuple[Step, ...]]()
        for group in self._waiting:
            is_complete = all(step in self._totals for step in group)
            (complete if is_complete else waiting).append(group)
        parts = [[self._totals[step] for step in group] for group in complete]
        merged = self._packing.merge_groups(parts, self._level)
        self._merged |= zip(complete, merged, strict=True)
        self._waiting = waiting
        for group in complete:
            self._uses.subtract(group)
            for step in {step for step in group if not self._uses[step]}:
                del self._totals[step]

    def results(self) -> Iterator[Residues]:
        """Return the packs, or the totals of a program that is not packed."""
        if not self._program.packs:
            yield from (self._totals[output.step] for output in self._program.outputs)
        self._merge_complete()
        for pack in self._program.packs:
            if self._is_early:
                parts = [self._merged[group] for group in self._groups_of(pack)]
                yield self._packing.merge(parts, self._level)
            else:
                parts = [self._totals[arg] for arg in pack.args]
                yield self._packing.merge(parts, self._packing.start)

    def _groups_of(self, pack: Step) -> list[tuple[Step, ...]]:
        size = 1 << self._neighbours
        return [pack.args[first : first + size] for first in range(0, len(pack.args), size)]


# -- expanding -------------------------------------------------------------------------------------


def expand_totals(
    totals: EncryptedNumbers, wanted: Collection[int], packing: Packing
) -> Iterator[tuple[int, Residues]]:
    """Yield packed totals with their numbers, in the order of their places.

    Each total is in all slots of a ciphertext, under the primes of packing. A pack is split into
    halves again and again, the first totals first, so that few ciphertexts are held at a time;
    parts without a ``wanted`` total are left alone. Interleaved totals stay together: groups of
    2^start of them are numbered and wanted.
    """
    check_packed(totals)
    start = packing.start
    n_places = totals.n_places
    chosen = np.zeros(n_places, dtype=bool)
    # Equal totals share a place, which goes by the number of the first of them.
    numbers = {place: number for number, place in reversed(list(enumerate(totals.places)))}
    if start:
        numbers = {place: place >> start for place in totals.places}
    for number in wanted:
        chosen[number << start if start else totals.places[number]] = True
    for number, part in enumerate(totals.parts):
        places = range(number * totals.width, min((number + 1) * totals.width, n_places))
        for group, level, node in _split_into_groups(
            packing, part.residues, places, packing.top, chosen
        ):
            found = packing.expand(node, len(group), level)
            yield from (
                (numbers[place], one)
                for place, one in zip(group[:: 1 << start], found, strict=True)
            )


def check_packed(totals: EncryptedNumbers) -> None:
    """Refuse what cannot be expanded."""
    if totals.form != PACKED:
        raise ArgumentError(
            f"totals in form {totals.form!r} cannot be expanded: choose form='packed'",
            code="not-packed",
        )
    if not totals.are_whole:
        raise ArgumentError(
            "these totals are stored as digits or pairs, so they can be opened but not used to "
            "predict. Plan keys with encrypted_prediction=True",
            code="totals-in-parts",
        )
    if any(part.noise.level for part in totals.parts):
        raise ArgumentError(
            "packs cannot be expanded after modulus switching: take them as they were computed",
            code="switched-down",
        )


def _split_into_groups(
    packing: Packing, node: Residues, places: range, level: int, chosen: NDArray[np.bool_]
) -> Iterator[tuple[range, int, Residues]]:
    """Split a part until each group is small enough to be expanded at once; split late."""
    if not chosen[places.start : places.stop].any():
        return
    most = min(_EXPANDED_AT_ONCE, max(1, _EXPANDED_BYTES // (8 * math.prod(node.shape))))
    if 1 << (level - packing.start) <= most:
        yield places, level, node
        return
    half = 1 << (level - 1)
    parts = packing.split(node, level, odd=len(places) > half)
    for part, some in zip(parts, (places[:half], places[half:]), strict=False):
        yield from _split_into_groups(packing, part, some, level - 1, chosen)


# -- batches

#: Returns the packing operations for 2^start interleaved totals.
MakePacking = Callable[[int], Packing]
#: A batch with the expanded totals that it needs.
Supplied = tuple[Batch, Mapping[Step, Residues]]
#: Computes the outputs of a task from expanded totals, some at a time.
ComputeTotals = Callable[[Task, Mapping[Step, Residues]], Iterable[Mapping[Step, Residues]]]
#: Computes the steps of batches over rows: for each batch, chunk after chunk, one value per step.
ComputeRows = Callable[[Task, Iterable[Supplied]], Iterator[Sequence[Residues]]]
#: Computes steps from known ciphertexts: switched, relinearised, added, rotated.
LowerTotals = Callable[[Sequence[Step], Mapping[Step, Residues], PublicKeys, int], list[Residues]]


def run_totals(
    task: Task,
    make_packing: MakePacking,
    compute: ComputeTotals,
    batches: Iterable[Supplied] | None = None,
) -> Iterator[Residues]:
    """Compute the totals of a program, batch by batch, and pack them."""
    program = task.program
    merger = PackMerger(
        program, make_packing(program.n_interleaved.bit_length() - 1), task.memory_limit
    )
    for batch, expanded in supply_batches(task, make_packing) if batches is None else batches:
        whole = len(program.batches) == 1
        part = task if whole else replace(task, program=program.part(batch.steps))
        for totals in compute(part, expanded):
            merger.add(totals)
    yield from merger.results()


def run_rows(
    task: Task, make_packing: MakePacking, compute: ComputeRows, lower_totals: LowerTotals
) -> Iterator[Residues]:
    """Compute numbers of every row: add up the batches of each chunk, and finish the sums."""
    program, keys, n_chunks = task.program, task.keys, task.source.layout.n_chunks
    sums_of: list[dict[Step, Residues]] = [{} for _ in range(n_chunks)]
    expanded = max(1, sum(len(batch.expanded) for batch in program.batches))
    with progress_bar("predicting", expanded, "totals", task.options.progress) as advance:
        found = compute(task, supply_batches(task, make_packing))
        for number, batch in enumerate(program.batches):
            needed = program.needed_after(number)
            for sums in sums_of:
                sums |= zip(batch.steps, next(found), strict=True)
                later = [step for step in batch.sums if step not in sums]
                if later:
                    sums |= zip(later, lower_totals(later, sums, keys, 1), strict=True)
                for step in set(sums) - needed:
                    del sums[step]
            advance(len(batch.expanded))
    outputs = [output.step for output in program.outputs]
    done = [lower_totals(outputs, sums_of.pop(0), keys, task.workers) for _ in range(n_chunks)]
    for of_all_chunks in zip(*done, strict=True):
        yield from of_all_chunks


def supply_batches(task: Task, make_packing: MakePacking) -> Iterator[Supplied]:
    """Yield every batch with the totals that it needs.

    Totals are expanded in the order of their places, when it is their turn, and held until the last
    batch that needs them.
    """
    steps = {
        (step.args[0].data, step.data): step for step in task.program.steps if step.op == EXPAND
    }
    wanted: dict[tuple[str, int], set[int]] = {}
    for packs, index in steps:
        wanted.setdefault(packs, set()).add(index)
    streams = {
        (name, start): expand_totals(task.packs[name], numbers, make_packing(start))
        for (name, start), numbers in wanted.items()
    }
    held: dict[Step, Residues] = {}
    batches = task.program.batches
    for number, batch in enumerate(batches):
        for step in sorted(set(batch.expanded) - set(held), key=lambda step: int(step.data)):
            packs = step.args[0].data
            while step not in held:
                index, residues = next(streams[packs])
                if (packs, index) in steps:
                    held[steps[packs, index]] = residues
        yield batch, held
        later = {step for one in batches[number + 1 :] for step in one.expanded}
        for step in set(held) - later:
            del held[step]
