"""Facts of the machine for ``check`` and the benchmarks: CPU, memory, GPU, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from encryptedstats import __version__
from encryptedstats import machine as this_machine
from encryptedstats.circuits.devices.cuda import gpu as gpus
from encryptedstats.machine import cores

FEATURES: Final = ("avx2", "fma", "avx512f", "avx512ifma")  # they speed up modular arithmetic
REQUIRED: Final = ("cryptography", "numpy", "pandas", "scikit-learn", "seal-python")
OPTIONAL: Final = {
    "typer": "cli",
    "rich": "cli",
    "fsspec": "storage",
    "pyarrow": "parquet",
}


def describe_machine() -> dict[str, Any]:
    """Describe the machine, ready for JSON; unknown facts are None."""
    model, features = read_cpuinfo(this_machine.read_system(Path("/proc/cpuinfo")))
    return {
        "platform": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cpu": model or platform.processor() or platform.machine() or None,
        "cpu_features": features,
        "cores": os.cpu_count(),
        "usable_cores": cores(),
        "memory_bytes": this_machine.total_memory(),
        "memory_available_bytes": this_machine.available_memory(),
        "graphics_card": describe_gpu(),
    }


def describe_gpu() -> str:
    """Describe the GPU, or say why there is none."""
    found = gpus.gpu()
    if found is None:
        return f"none: {gpus.obstacle()}"
    arithmetic = "doubles" if found.doubles else "64-bit integers"
    return f"{found.name}, {found.memory()[1] / 2**30:.0f} GiB, computes with {arithmetic}"


def package_versions() -> dict[str, str | None]:
    """Return the versions of packages; None for one that is not installed."""
    return {"encryptedstats": __version__} | {
        name: _version(name) for name in (*REQUIRED, *OPTIONAL)
    }


def read_cpuinfo(text: str) -> tuple[str | None, dict[str, bool] | None]:
    """Return the model and the features of the CPU from /proc/cpuinfo, None if unknown."""
    entries: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        entries.setdefault(name.strip(), value.strip())
    flags = entries["flags"].split() if "flags" in entries else None
    return entries.get("model name"), None if flags is None else {
        name: name in flags for name in FEATURES
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
