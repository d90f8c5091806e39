"""What every part shares: the registry of parts, timing by repetition, the machine's description,
tables and JSON files.

A part is a function of :class:`Settings` that returns a :class:`Report`; ``@part`` makes it known.
Times are medians with quartiles, never best cases.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._goals import goals_table, reached
from benchmarks._plots import draw_all
from encryptedstats import __version__
from encryptedstats.cli.machine import describe_machine, package_versions
from encryptedstats.storage.files import write_atomic


@dataclass(frozen=True)
class Settings:
    """How thorough to be: each timing repeats for about ``seconds``, between ``least`` and ``most``
    times.
    """

    quick: bool = False
    seconds: float = 0.5
    least: int = 5
    most: int = 200

    @classmethod
    def for_quick(cls) -> Settings:
        """Enough to see that everything runs, not to quote figures."""
        return cls(quick=True, seconds=0.02, least=2, most=10)


@dataclass(frozen=True)
class Timing:
    """Seconds of one operation: the median over ``runs`` runs, and the quartiles around it."""

    median: float
    lower: float
    upper: float
    runs: int

    def to_dict(self) -> dict[str, float | int]:
        return {
            "median_s": self.median,
            "lower_quartile_s": self.lower,
            "upper_quartile_s": self.upper,
            "runs": self.runs,
        }


@dataclass(frozen=True)
class Report:
    """What a part found: tables for people, results for the JSON file, and remarks that belong
    under the tables.
    """

    results: Any
    tables: list[Table] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


Part = Callable[[Settings], Report]
PARTS: dict[str, Part] = {}


def part(name: str) -> Callable[[Part], Part]:
    """Make a part known under a name, which is that of its JSON file as well."""

    def register(function: Part) -> Part:
        if name in PARTS:
            raise ValueError(f"there are two parts named {name!r}")
        PARTS[name] = function
        return function

    return register


def measure(operation: Callable[[], object], settings: Settings) -> Timing:
    """Time an operation: once to warm up, then again and again. Results are dropped before the
    clock runs again.
    """
    operation()
    times: list[float] = []
    # The collector's pauses belong to whoever made the garbage, not to the operation that happens
    # to be running.
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + settings.seconds
        while len(times) < settings.least or (
            len(times) < settings.most and time.perf_counter() < end
        ):
            started = time.perf_counter()
            result = operation()
            times.append(time.perf_counter() - started)
            del result
    finally:
        if collecting:
            gc.enable()
    lower, median, upper = statistics.quantiles(times, n=4, method="inclusive")
    return Timing(median, lower, upper, len(times))


def resident_bytes() -> int | None:
    """Memory that this process holds, where Linux tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def milliseconds(timing: Timing) -> str:
    """The median, and half the distance between the quartiles as its spread."""
    digits = 3 if timing.median < 1e-3 else 2 if timing.median < 1e-2 else 1
    spread = (timing.upper - timing.lower) / 2 / timing.median
    return f"{timing.median * 1e3:.{digits}f} ±{spread:.0%}"


def describe_run() -> dict[str, Any]:
    """Return what a result file says of its version, date and machine."""
    machine = {
        **describe_machine(),
        "packages": package_versions(),
        "load_average": os.getloadavg()[0],
    }
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"version": __version__, "date": date, "machine": machine}


def run(names: list[str], settings: Settings, out: Path, console: Console) -> None:
    """Run parts one after the other; print and write each as soon as it is done."""
    machine = describe_run()["machine"]
    console.print(
        f"{machine['cpu']}, {machine['usable_cores']} of {machine['cores']} cores, "
        f"{(machine['memory_bytes'] or 0) / 2**30:.1f} GiB; {machine['python']}, seal-python "
        f"{machine['packages']['seal-python']}",
        highlight=False,
    )
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        started = time.perf_counter()
        report = PARTS[name](settings)
        for table in report.tables:
            console.print(table)
        for remark in report.remarks:
            console.print(remark, style="dim", highlight=False)
        path = out / f"{name}.json"
        write_json(
            path,
            {
                "part": name,
                **describe_run(),
                "quick": settings.quick,
                "machine": machine,
                "remarks": report.remarks,
                "results": report.results,
            },
        )
        console.print(f"{path} written, {time.perf_counter() - started:.0f} s\n", highlight=False)
    rows = reached(out)
    if rows:
        console.print(goals_table(rows))
    for path in draw_all(out):
        console.print(f"{path} drawn", highlight=False)


def write_json(path: Path, content: Any) -> None:
    """Write JSON, whole or not at all."""
    write_atomic(path, [json.dumps(content, indent=2).encode(), b"\n"])
