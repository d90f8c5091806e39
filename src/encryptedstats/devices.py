"""What devices of your own are written with: ``docs/guides/devices.md`` shows one."""

from __future__ import annotations

from encryptedstats.circuits.devices import (
    SEAL_RULES,
    Device,
    NativeDevice,
    Run,
    SealDevice,
    Speed,
    Task,
    get_devices,
    on_residues,
    register,
    run_steps,
    unregister,
)

__all__ = [
    "SEAL_RULES",
    "Device",
    "NativeDevice",
    "Run",
    "SealDevice",
    "Speed",
    "Task",
    "get_devices",
    "on_residues",
    "register",
    "run_steps",
    "unregister",
]
