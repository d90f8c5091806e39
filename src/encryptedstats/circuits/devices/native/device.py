"""The native device: kernels in C that release the interpreter's lock and return SEAL's residues.

If rows must be relinearised before they are added up, or moved, SEAL multiplies and adds, and the
kernels do the key switching and modulus switching, which is most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Final

from encryptedstats.circuits.devices.base import Device, Speed, Task
from encryptedstats.circuits.devices.batches import LowerTotals, Supplied, run_rows, run_totals
from encryptedstats.circuits.devices.native.steps import (
    KernelPacking,
    NativeExecution,
    base_below,
    kernels_of,
    lower_totals,
)
from encryptedstats.circuits.devices.native.sums import (
    Loads,
    SumsEvaluator,
    row_obstacle,
    sums_in_batches,
)
from encryptedstats.circuits.devices.seal import SealDevice
from encryptedstats.circuits.devices.steps import StepByStep
from encryptedstats.circuits.program import EXPAND, HERE, ROTATE, ROWS, SUM, Program, Step
from encryptedstats.crypto.kernels import has_extension
from encryptedstats.crypto.residues import Residues
from encryptedstats.machine import LEAST
from encryptedstats.progress import progress_bar

_KEPT_BYTES: Final = 1 << 30  # of columns that are switched once and kept
_LOWERED_AT_ONCE: Final = 32  # totals for each thread
_BY_STEPS: Final = StepByStep(NativeExecution, lower_totals)
#: Returns what adds up rows in place of the kernels.
MakeEvaluator = Callable[[Loads, int, int], SumsEvaluator]


def program_obstacle(program: Program) -> str | None:
    """Say why no tape adds up the rows of a program; return None if one does."""
    # Asked by each price, plan and fit: it walks over all steps.
    if "obstacle" not in program.findings:
        program.findings["obstacle"] = _find_obstacle(program)
    found: str | None = program.findings["obstacle"]
    return found


def _find_obstacle(program: Program) -> str | None:
    if any(program.stages[total] for total in program.sums):
        return "the circuit replicates totals into rows, or moves rows"
    if any(step.op == HERE for step in program.steps):
        return "the circuit encrypts numbers with the public key, anew in every chunk"
    return row_obstacle([total.args[0] for total in program.sums], program.parameters)


def compute_totals(task: Task, expanded: Mapping[Step, Residues]) -> Iterator[dict[Step, Residues]]:
    """Compute the outputs of a program by a tape if there is one, else step by step."""
    if program_obstacle(task.program) is None:
        yield from totals_by_tape(task, expanded, SumsEvaluator, lower_totals)
        return
    # Before processes begin, which inherit them.
    has_rotations = any(step.op == ROTATE for step in task.program.steps)
    kernels_of(task.keys).prepare(rotations=has_rotations)
    yield from _BY_STEPS.totals(task, expanded)


def totals_by_tape(
    task: Task, expanded: Mapping[Step, Residues], make_evaluator: MakeEvaluator, lower: LowerTotals
) -> Iterator[dict[Step, Residues]]:
    """Compute outputs, some at a time and not in their order."""
    for batch, sums in _sums_by_tape(task, expanded, make_evaluator):
        # Some at a time, which are merged before the next ones need their memory; but all at once
        # if they may share steps on totals, which every call computes.
        is_direct = all(base_below(step, sums) in sums for step in batch)
        at_once = _LOWERED_AT_ONCE * task.workers if is_direct else len(batch)
        for first in range(0, len(batch), at_once):
            some = batch[first : first + at_once]
            found = lower(some, sums, task.source.keys, task.workers)
            yield dict(zip(some, found, strict=True))


def _sums_by_tape(
    task: Task, expanded: Mapping[Step, Residues], make_evaluator: MakeEvaluator
) -> Iterator[tuple[list[Step], dict[Step, Residues]]]:
    """Yield outputs, some at a time and not in their order, with the sums that they need."""
    source, loads = task.source, loads_of(task, expanded)
    outputs = list(dict.fromkeys(output.step for output in task.program.outputs))
    with progress_bar("computing", source.layout.n_rows, "rows", task.options.progress) as advance:
        yield from sums_in_batches(
            outputs,
            make_evaluator(loads, task.workers, task.memory_limit),
            checkpoint=task.options.checkpoint,
            advance=advance,
        )


def compute_rows(task: Task, batches: Iterable[Supplied]) -> Iterator[list[Residues]]:
    """Compute steps over rows as sums over a single chunk."""
    source, limit = task.source, task.memory_limit // 2
    loads: Loads | None = None
    for batch, expanded in batches:
        if row_obstacle(batch.steps, source.parameters) is not None:
            yield from _BY_STEPS.rows(task, [(batch, expanded)])
            continue
        sum_of = sums_over_a_chunk(batch.steps)
        sums = list(sum_of.values())
        if loads is None:
            loads = Loads(source, rows_level(sums), expanded, limit)
        loads.expanded = expanded
        evaluator = SumsEvaluator(loads, task.workers, limit)
        evaluator.prepare(sums)
        evaluator.keeps = False  # the next chunk has other columns
        tape = evaluator.tape(sums)
        for chunk in range(source.layout.n_chunks):
            loads.make(tape.columns, chunk)
            evaluator.chunks = range(chunk, chunk + 1)
            found = evaluator.run(tape)
            yield [found[sum_of[step]].copy() for step in batch.steps]


def sums_over_a_chunk(steps: Iterable[Step]) -> dict[Step, Step]:
    """Return for each step, once, the sum of it alone."""
    return {step: Step(SUM, (step,), None, step.noise, is_total=True) for step in steps}


def loads_of(task: Task, expanded: Mapping[Step, Residues]) -> Loads:
    """Return what the tapes of a program read."""
    kept_bytes = min(_KEPT_BYTES, max(LEAST, task.memory_limit // 2))
    return Loads(task.source, rows_level(task.program.sums), expanded, kept_bytes)


def rows_level(sums: list[Step] | tuple[Step, ...]) -> int:
    """Return the level of all rows."""
    return sums[0].args[0].level


class NativeDevice(Device):
    """BGV by the kernels: threads add up rows, switch and relinearise totals, pack and expand."""

    name: ClassVar[str] = "native"
    speed: ClassVar[Speed] = Speed(rows=0.3e-9, totals=3e-9)  # measured as SEAL's

    @property
    def is_here(self) -> bool:
        """True if the kernels are built."""
        return has_extension()

    def obstacle(self, program: Program) -> str | None:
        """Refuse other schemes than BGV, and installations without kernels."""
        if not has_extension():
            return "its kernels are not there: the library was installed without a C compiler"
        if program.parameters.scheme != "bgv":
            return f"it computes BGV ciphertexts, and these are {program.parameters.scheme.upper()}"
        return None

    def seconds(self, program: Program) -> float:
        """Estimate the time by the speed of the kernels, or of SEAL if it adds up the rows."""
        rows, totals = program.words
        if program.form == ROWS:
            why_not = row_obstacle(
                [step for batch in program.batches for step in batch.steps], program.parameters
            )
        else:
            why_not = program_obstacle(program)
        speed = self.speed if why_not is None else SealDevice.speed
        return self.speed.start + speed.rows * rows + self.speed.totals * totals

    def checkpoint_obstacle(self, program: Program) -> str | None:
        """Refuse programs without a tape, or with given totals: checkpoints do not tell these
        apart.
        """
        if any(step.op == EXPAND for step in program.steps):
            return "the circuit computes with totals of an earlier evaluation"
        return program_obstacle(program)

    def run(self, task: Task) -> Iterable[Residues]:
        """Run with the kernels."""
        make_packing = partial(KernelPacking, task.keys, task.workers)
        if task.program.form == ROWS:
            return run_rows(task, make_packing, compute_rows, lower_totals)
        return run_totals(task, make_packing, compute_totals)

    def sums(self, task: Task) -> Iterator[Mapping[Step, Residues]]:
        """Yield the sums of tapes where they lie, in memory that the next ones overwrite."""
        if program_obstacle(task.program) is not None:
            yield from super().sums(task)
            return
        for batch, sums in _sums_by_tape(task, {}, SumsEvaluator):
            others = [step for step in batch if step not in sums]
            found = lower_totals(others, sums, task.keys, task.workers) if others else []
            yield {step: sums[step] for step in batch if step in sums} | dict(
                zip(others, found, strict=True)
            )
