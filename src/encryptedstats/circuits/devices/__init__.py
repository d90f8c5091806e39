"""Devices: what runs programs. SEAL everywhere, kernels in C where they are built; others by :func:`register`."""

from __future__ import annotations

from encryptedstats.circuits.devices.base import (
    AUTO,
    Device,
    Run,
    Speed,
    checked_name,
    device_for,
    prices,
    register,
    registered,
    unregister,
)
from encryptedstats.circuits.devices.native import NativeDevice
from encryptedstats.circuits.devices.seal import Execution, SealDevice

register(NativeDevice())
register(SealDevice())

__all__ = [
    "AUTO",
    "Device",
    "Execution",
    "NativeDevice",
    "Run",
    "SealDevice",
    "Speed",
    "checked_name",
    "device_for",
    "prices",
    "register",
    "registered",
    "unregister",
]
