"""Memory: how much a computation may take by default, and when not to look for garbage in it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LEAST: Final = 256 << 20
MOST: Final = 8 << 30
UNKNOWN: Final = 1 << 30  # where the system does not say what it has
_ROOT: Final = Path("/")


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause Python's garbage collector.

    Compiling makes tens of thousands of small objects that all stay: searching them for garbage
    over and over took a third of the time of a plan.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def default_limit(processes: int = 1) -> int:
    """Bytes for each of so many processes: together a quarter of the available memory, each from
    256 MiB to 8 GiB.
    """
    available = available_memory()
    return UNKNOWN if available is None else min(max(available // 4 // processes, LEAST), MOST)


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that can be had without swapping: what the system has, or what is left to the control
    group of this process.
    """
    system = _meminfo(root).get("MemAvailable") or total_memory(root)
    known = [limit for limit in (system, *_left_to_groups(root)) if limit is not None]
    return min(known, default=None)


def total_memory(root: Path = _ROOT) -> int | None:
    """Bytes that the machine has."""
    try:
        return _meminfo(root).get("MemTotal") or os.sysconf("SC_PAGE_SIZE") * os.sysconf(
            "SC_PHYS_PAGES"
        )
    except (AttributeError, OSError, ValueError):
        return None


def _meminfo(root: Path) -> dict[str, int]:
    """Sizes by name, from Linux's own description."""
    lines = [line.partition(":") for line in read_system(root / "proc/meminfo").splitlines()]
    return {name: int(value.split()[0]) * 1024 for name, _, value in lines if value.endswith("kB")}


def _left_to_groups(root: Path) -> Iterator[int]:
    """What is left to the control group of this process, and to all that it lies in; both versions
    of these groups.

    A container may see its own group as the root of all: groups that are not to be seen are passed
    over.
    """
    for line in read_system(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (base / one for one in (group, *group.parents)):
            limit, used, cache = (
                read_system(folder / name) for name in (*names[:2], "memory.stat")
            )
            if limit.strip().isdigit():  # "max" is no limit
                taken = int(used) if used.strip().isdigit() else 0
                yield max(0, int(limit) - max(0, taken - _named(cache, names[2])))


def _named(stat: str, name: str) -> int:
    """A number of a file of names and numbers, 0 if it is not there. Pages of files that nobody
    uses can be had at once.
    """
    found = [line.split()[1] for line in stat.splitlines() if line.startswith(f"{name} ")]
    return int(found[0]) if found else 0


def read_system(path: Path) -> str:
    """What a file of the system says; nothing where there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
