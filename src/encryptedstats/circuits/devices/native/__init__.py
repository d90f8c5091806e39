"""The native device: kernels in C that release the interpreter's lock and return SEAL's residues.

If rows have to be relinearised before they are added up, or moved, SEAL multiplies and adds, and
the kernels switch keys and moduli, which is most of the work.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from encryptedstats.circuits.devices.base import Device, Speed, Task
from encryptedstats.circuits.devices.batches import run_rows, run_totals
from encryptedstats.circuits.devices.native.packing import KernelPacking
from encryptedstats.circuits.devices.native.steps import bring_down
from encryptedstats.circuits.devices.native.sums import row_obstacle
from encryptedstats.circuits.devices.native.tapes import (
    compute_rows,
    compute_totals,
    program_obstacle,
)
from encryptedstats.circuits.devices.seal import SealDevice
from encryptedstats.circuits.program import EXPAND, ROWS, Program
from encryptedstats.crypto.kernels import kernels_are_built
from encryptedstats.crypto.residues import Residues


class NativeDevice(Device):
    """BGV by the kernels: threads add up rows, bring totals down, pack and expand."""

    name: ClassVar[str] = "native"
    speed: ClassVar[Speed] = Speed(rows=0.3e-9, totals=3e-9)  # measured as SEAL's

    @property
    def is_here(self) -> bool:
        """Whether the kernels are built."""
        return kernels_are_built()

    def obstacle(self, program: Program) -> str | None:
        """Refuse other schemes than BGV, and installations without kernels."""
        if not kernels_are_built():
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
