"""The CUDA device: one NVIDIA GPU, with SEAL's residues, bit for bit.

Sums over rows, modulus switching, relinearisation, packing, expanding and rows with packed totals
are kernels (``kernels.cu``). Work that does not fit on the GPU is left to the native device. Arrays
stay on the GPU between the steps of one evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar, Final

from encryptedstats.circuits.devices.base import Device, Speed, Task
from encryptedstats.circuits.devices.batches import Supplied, run_rows, run_totals, supply_batches
from encryptedstats.circuits.devices.cuda import gpu as gpus
from encryptedstats.circuits.devices.cuda.gpu import Gpu
from encryptedstats.circuits.devices.cuda.lower import lower_totals
from encryptedstats.circuits.devices.cuda.packing import CudaPacking
from encryptedstats.circuits.devices.cuda.rows import compute_rows
from encryptedstats.circuits.devices.cuda.session import Session
from encryptedstats.circuits.devices.cuda.totals import compute_packs, compute_totals
from encryptedstats.circuits.devices.native import NativeDevice
from encryptedstats.circuits.devices.native.device import program_obstacle
from encryptedstats.circuits.program import PACKED, ROWS, Program
from encryptedstats.crypto.residues import Residues

_MAX_PRIME_BITS: Final = 60
_STEP_SECONDS: Final = 1e-4  # ten kernels


class CudaDevice(Device):
    """BGV on a GPU.

    Parameters
    ----------
    gpu : Gpu, optional
        The first one of this machine by default.
    arithmetic : "doubles" or "integers", optional
        By default the faster one on this GPU.
    """

    name: ClassVar[str] = "cuda"
    # Measured on an H200; it begins with a tape and its copies.
    speed: ClassVar[Speed] = Speed(rows=2e-12, totals=35e-12, start=0.05)

    def __init__(self, gpu: Gpu | None = None, arithmetic: str | None = None) -> None:
        self.session = Session(gpu, arithmetic)
        self._native = NativeDevice()  # whose helpers compute what has no room on the GPU

    @property
    def is_here(self) -> bool:
        """True if the driver knows a GPU."""
        return self._native.is_here and (self.session.given_gpu is not None or gpus.is_there())

    def obstacle(self, program: Program) -> str | None:
        """Refuse machines without a GPU, other schemes than BGV, and large primes."""
        gpu = self.session.given_gpu
        if gpu is None and not gpus.is_there():
            return f"no GPU was found here: {gpus.obstacle()}"
        why_not = self._native.obstacle(program)
        if why_not is not None:
            return why_not
        bits = max(program.parameters.coefficient_moduli).bit_length()
        if bits > _MAX_PRIME_BITS:
            return (
                f"it computes modulo primes below 2^{_MAX_PRIME_BITS}, and one of these has "
                f"{bits} bits"
            )
        return gpus.obstacle() if gpu is None else gpus.obstacle_of(gpu)

    def seconds(self, program: Program) -> float:
        """Estimate the time; without a tape for the rows, every step starts a few kernels."""
        is_tape = program.form == ROWS or program_obstacle(program) is None
        steps = 0 if is_tape else len(program.steps) * max(1, program.layout.n_chunks)
        return self.speed.seconds(program) + _STEP_SECONDS * steps

    def checkpoint_obstacle(self, program: Program) -> str | None:
        """Refuse what the native device refuses: slices of sums are kept as it keeps them."""
        return self._native.checkpoint_obstacle(program)

    def run(self, task: Task) -> Iterable[Residues]:
        """Run on the GPU what has room there."""
        session = self.session
        make_packing = partial(CudaPacking, task.keys, task.workers, session=session)
        if task.program.form == ROWS:
            return run_rows(
                task, make_packing, partial(compute_rows, session), partial(lower_totals, session)
            )
        batches: Iterable[Supplied] = supply_batches(task, make_packing)
        if task.program.form == PACKED and len(task.program.batches) == 1:
            batches = [next(iter(batches))]
            packs = compute_packs(session, task, batches[0][1])
            if packs is not None:
                return packs
        return run_totals(task, make_packing, partial(compute_totals, session), batches)


__all__ = ["CudaDevice"]
