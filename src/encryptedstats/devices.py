"""What devices of your own are written with: ``docs/devices.md`` shows one."""

from __future__ import annotations

from encryptedstats.circuits.devices import (
    Device,
    NativeDevice,
    Run,
    SealDevice,
    Speed,
    register,
    registered,
    unregister,
)

__all__ = ["Device", "NativeDevice", "Run", "SealDevice", "Speed", "register", "registered", "unregister"]
