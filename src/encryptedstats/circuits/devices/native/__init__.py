"""The native device."""

from __future__ import annotations

from encryptedstats.circuits.devices.native.device import NativeDevice

__all__ = ["NativeDevice"]
