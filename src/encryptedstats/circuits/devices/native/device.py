"""The native device: kernels in C that release the interpreter's lock and return SEAL's residues.

If rows must be relinearised before they are added up, or moved, SEAL multiplies and adds, and the
kernels do the key switching and modulus switching, which is most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Final

from encryptedstats.circuits.devices.base import Device, Speed, Task
from encryptedstats.circuits.devices.batches import BringDown, Supplied, run_rows, run_totals
from encryptedstats.circuits.devices.native.steps import (
    KernelPacking,
    NativeExecution,
    bring_down,
    kernels_of,
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
_BY_STEPS: Final = StepByStep(NativeExecution, bring_down)
#: Returns what adds up rows in place of the kernels.
MakeEvaluator = Callable[[Loads, int, int], SumsEvaluator]


def program_obstacle(program: Program) -> str | None:
    """Say why no tape adds up the rows of a program; return None if one does."""
    if any(program.stages[total] for total in program.sums):
        return "the circuit brings totals back into the rows, or rows into other places"
    if any(step.op == HERE for step in program.steps):
        return "the circuit has numbers that are encrypted on the spot, which are others every time"
    return row_obstacle([total.args[0] for total in program.sums], program.parameters)


def compute_totals(task: Task, given: Mapping[Step, Residues]) -> Iterator[dict[Step, Residues]]:
    """Compute the outputs of a program by a tape if there is one, else step by step."""
    if program_obstacle(task.program) is None:
        yield from totals_by_tape(task, given, SumsEvaluator, bring_down)
        return
    # Before processes begin, which inherit them.
    has_rotations = any(step.op == ROTATE for step in task.program.steps)
    kernels_of(task.keys).prepare(rotations=has_rotations)
    yield from _BY_STEPS.totals(task, given)


def totals_by_tape(
    task: Task, given: Mapping[Step, Residues], make_evaluator: MakeEvaluator, lower: BringDown
) -> Iterator[dict[Step, Residues]]:
    """Compute outputs, some at a time and not in their order."""
    program, source = task.program, task.source
    outputs = list(dict.fromkeys(output.step for output in program.outputs))
    loads = loads_of(task, given)
    with progress_bar("computing", source.layout.n_rows, "rows", task.options.progress) as advance:
        batches = sums_in_batches(
            outputs,
            make_evaluator(loads, task.workers, task.memory_limit),
            checkpoint=task.options.checkpoint,
            advance=advance,
        )
        for batch, sums in batches:
            found = lower(batch, sums, source.keys, task.workers)
            yield dict(zip(batch, found, strict=True))


def compute_rows(task: Task, batches: Iterable[Supplied]) -> Iterator[list[Residues]]:
    """Compute steps over rows as sums over a single chunk."""
    source, limit = task.source, task.memory_limit // 2
    loads: Loads | None = None
    for batch, given in batches:
        if row_obstacle(batch.steps, source.parameters) is not None:
            yield from _BY_STEPS.rows(task, [(batch, given)])
            continue
        sum_of = sums_over_a_chunk(batch.steps)
        sums = list(sum_of.values())
        if loads is None:
            loads = Loads(source, rows_level(sums), given, limit)
        loads.given = given
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


def loads_of(task: Task, given: Mapping[Step, Residues]) -> Loads:
    """Return what the tapes of a program read."""
    kept_bytes = min(_KEPT_BYTES, max(LEAST, task.memory_limit // 2))
    return Loads(task.source, rows_level(task.program.sums), given, kept_bytes)


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
            return "the circuit has totals that are given from elsewhere"
        return program_obstacle(program)

    def run(self, task: Task) -> Iterable[Residues]:
        """Run with the kernels."""
        make_packing = partial(KernelPacking, task.keys, task.workers)
        if task.program.form == ROWS:
            return run_rows(task, make_packing, compute_rows, bring_down)
        return run_totals(task, make_packing, compute_totals)
