"""How much of the processor the kernels may use: all that it has, or what ``ENCRYPTEDSTATS_CPU``
allows.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Final

from encryptedstats.errors import ArgumentError

CPU_VARIABLE: Final = "ENCRYPTEDSTATS_CPU"
#: What kernels know how to use on this kind of processor, the slowest first.
CPU_LEVELS: Final = (
    ("baseline", "neon")
    if platform.machine().lower() in ("aarch64", "arm64")
    else ("baseline", "avx2", "avx512", "ifma")
)


def cpu_level() -> str:
    """The most that kernels may use; whether the processor has it, they find out."""
    level = os.environ.get(CPU_VARIABLE) or CPU_LEVELS[-1]
    if level not in CPU_LEVELS:
        raise ArgumentError(
            f"{CPU_VARIABLE}={level!r}: it can be {', '.join(CPU_LEVELS)}", code="unknown-cpu-level"
        )
    return level


def best_level(here: Sequence[str]) -> str:
    """The best of the levels that a kernel has on this processor, the slowest first, that it may
    use.
    """
    return str(here[min(CPU_LEVELS.index(cpu_level()), len(here) - 1)])
