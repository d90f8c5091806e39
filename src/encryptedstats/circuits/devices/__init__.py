"""Devices run programs: SEAL everywhere, native kernels in C, an NVIDIA GPU; others by
:func:`register`.
"""

from __future__ import annotations

from encryptedstats.circuits.devices.base import (
    AUTO,
    Device,
    Run,
    Speed,
    Task,
    check_device_name,
    device_for,
    execute,
    get_devices,
    present,
    prices,
    register,
    unregister,
)
from encryptedstats.circuits.devices.cuda import CudaDevice
from encryptedstats.circuits.devices.native import NativeDevice
from encryptedstats.circuits.devices.seal import SEAL_RULES, SealDevice, on_residues, run_steps

register(CudaDevice())
register(NativeDevice())
register(SealDevice())

__all__ = [
    "AUTO",
    "SEAL_RULES",
    "CudaDevice",
    "Device",
    "NativeDevice",
    "Run",
    "SealDevice",
    "Speed",
    "Task",
    "check_device_name",
    "device_for",
    "execute",
    "get_devices",
    "on_residues",
    "present",
    "prices",
    "register",
    "run_steps",
    "unregister",
]
