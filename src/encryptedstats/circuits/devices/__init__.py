"""What runs programs: SEAL everywhere, C kernels where they are built, a card where there is one; others by :func:`register`."""

from __future__ import annotations

from encryptedstats.circuits.devices.base import (
    AUTO,
    Device,
    Run,
    Speed,
    checked_name,
    device_for,
    present,
    prices,
    register,
    registered,
    unregister,
)
from encryptedstats.circuits.devices.cuda import CudaDevice
from encryptedstats.circuits.devices.native import NativeDevice
from encryptedstats.circuits.devices.seal import Execution, SealDevice

register(CudaDevice())
register(NativeDevice())
register(SealDevice())

__all__ = [
    "AUTO",
    "CudaDevice",
    "Device",
    "Execution",
    "NativeDevice",
    "Run",
    "SealDevice",
    "Speed",
    "checked_name",
    "device_for",
    "present",
    "prices",
    "register",
    "registered",
    "unregister",
]
