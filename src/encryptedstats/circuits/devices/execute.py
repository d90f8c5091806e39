"""Runs a program on a device and checks what the device returns."""

from __future__ import annotations

import numpy as np

from encryptedstats.circuits.devices.base import Device, Task
from encryptedstats.circuits.program import PACK, PACKED, ROWS, Step
from encryptedstats.circuits.results import Part
from encryptedstats.crypto.noise import Noise
from encryptedstats.crypto.packing import packing_primes
from encryptedstats.crypto.parameters import Parameters
from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import DeviceError


def execute(device: Device, task: Task, noise: Noise | None = None) -> list[Part]:
    """Run a program, and refuse results that are not what it says.

    ``noise`` is what the results say of their noise; by default that of their steps.
    """
    steps, parts = _result_steps(task), list[Part]()
    for residues in device.run(task):
        if len(parts) == len(steps):
            raise _fault(device, f"it gives more than {len(steps)} ciphertexts")
        step = steps[len(parts)]
        fault = _find_fault(residues, step, task.program.parameters)
        if fault is not None:
            raise _fault(device, fault)
        parts.append(Part(residues, noise or step.noise))
    if len(parts) < len(steps):
        raise _fault(device, f"it gives {len(parts)} of {len(steps)} ciphertexts")
    return parts


def _result_steps(task: Task) -> list[Step]:
    """Return the step that each result is the value of."""
    program = task.program
    if program.form == PACKED:
        return list(program.packs)
    n_chunks = task.source.layout.n_chunks if program.form == ROWS else 1
    return [output.step for output in program.outputs for _ in range(n_chunks)]


def _find_fault(residues: Residues, step: Step, parameters: Parameters) -> str | None:
    """Say what is wrong with the value of a step: its type, size or level, or its residues."""
    is_pack = step.op == PACK
    primes = packing_primes(parameters) if is_pack else len(parameters.data_moduli) - step.level
    shape = (2 if is_pack else step.size, primes, parameters.ring_degree)
    if residues.dtype != np.uint64 or residues.shape != shape:
        return (
            f"it gives {residues.dtype} of shape {residues.shape}, not 64-bit words of shape "
            f"{shape}"
        )
    moduli = np.array(parameters.data_moduli[:primes], dtype=np.uint64)
    if (residues.max(axis=(0, 2)) >= moduli).any():
        return "it gives residues that are not below their primes"
    return None


def _fault(device: Device, why: str) -> DeviceError:
    return DeviceError(
        f"the device {device.name!r} does not do what its program says: {why}", code="faulty-device"
    )
