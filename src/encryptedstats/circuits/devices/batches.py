"""Runs the batches of a program one after the other, each with the given totals that it needs.

A device supplies the functions that compute a batch, and its :class:`Packing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from encryptedstats.circuits.devices.base import Task
from encryptedstats.circuits.devices.packing import Packing, PackMerger, expand_totals
from encryptedstats.circuits.program import EXPAND, Batch, Step
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues
from encryptedstats.progress import progress_bar

#: Returns the packing operations for 2^start interleaved totals.
MakePacking = Callable[[int], Packing]
#: A batch with the expanded totals that it needs.
Supplied = tuple[Batch, Mapping[Step, Residues]]
#: Computes the outputs of a task from expanded totals, some at a time.
ComputeTotals = Callable[[Task, Mapping[Step, Residues]], Iterable[Mapping[Step, Residues]]]
#: Computes the steps of batches over rows: for each batch, chunk after chunk, one value per step.
ComputeRows = Callable[[Task, Iterable[Supplied]], Iterator[Sequence[Residues]]]
#: Computes steps from known ciphertexts: switched, relinearised, added, rotated.
BringDown = Callable[[Sequence[Step], Mapping[Step, Residues], PublicKeys, int], list[Residues]]


def run_totals(
    task: Task,
    make_packing: MakePacking,
    compute: ComputeTotals,
    batches: Iterable[Supplied] | None = None,
) -> Iterator[Residues]:
    """Compute the totals of a program, batch by batch, and pack them."""
    program = task.program
    merger = PackMerger(program, make_packing(program.beside.bit_length() - 1), task.memory_limit)
    for batch, given in supply_batches(task, make_packing) if batches is None else batches:
        whole = len(program.batches) == 1
        part = task if whole else replace(task, program=program.part(batch.steps))
        for totals in compute(part, given):
            merger.add(totals)
    yield from merger.results()


def run_rows(
    task: Task, make_packing: MakePacking, compute: ComputeRows, bring_down: BringDown
) -> Iterator[Residues]:
    """Compute numbers of every row: add up the batches of each chunk, and bring the sums down."""
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
                    sums |= zip(later, bring_down(later, sums, keys, 1), strict=True)
                for step in set(sums) - needed:
                    del sums[step]
            advance(len(batch.expanded))
    outputs = [output.step for output in program.outputs]
    done = [bring_down(outputs, sums_of.pop(0), keys, task.workers) for _ in range(n_chunks)]
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
        (name, start): expand_totals(task.given[name], numbers, make_packing(start))
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
