"""Run the tests in parts, several at a time, and fail where a part fails or takes too much memory.

A part is a folder, a share of a large folder, or of all small ones; it has a process of its own,
so its session's fixtures are made once. SEAL's memory pool never shrinks: a process that ran every
test would hold the most that each of them needed of every size. On Linux these processes are forked
from this one, which has imported what most of them need, 2 s of each.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import pytest

TESTS = Path(__file__).parent
MEMORY_LIMIT_MB = 1500
_FEWEST_FILES, _MOST_FILES, _MOST_BYTES = 4, 14, 150_000
# Folders whose keys take little memory have larger parts: each imports everything, in seconds.
_LIGHT, _TIMES_AS_MUCH = ("app", "cli", "publishing", "service", "statistics"), 2.5
# glibc keeps a heap for each thread, and large blocks that were freed, unless it is told not to.
# Blocks of a few megabytes it has to keep: mapping them again and again takes a tenth of the time.
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
_SUMMARY = re.compile(r"^=* ?(\d+ \w+|no tests ran).* in [\d.]+s")
#: What most parts need. Plugins of pytest are not here: pytest rewrites their assertions first.
_IMPORTED = (
    "pandas",
    "scipy.stats",
    "sklearn.ensemble",
    "sklearn.model_selection",
    "seal",
    "typer",
)
_GOOD = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)  # a part may be slow tests alone


@dataclass(frozen=True)
class Part:
    name: str
    files: tuple[Path, ...]

    @property
    def size(self) -> int:
        """Estimate how long it takes by the length of its files."""
        return sum(file.stat().st_size for file in self.files)


@dataclass(frozen=True)
class Outcome:
    part: Part
    code: int
    output: str
    cpu_seconds: float
    peak_mb: int

    def problems(self, limit_mb: int) -> Iterator[str]:
        """Say what is wrong with it, if anything."""
        if self.code not in _GOOD:
            yield f"{self.part.name} failed (pytest's exit status is {self.code})"
        if self.peak_mb > limit_mb:
            yield f"{self.part.name} held {self.peak_mb} MB, more than {limit_mb} MB"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every part, print what failed and what was skipped, and return the exit status."""
    options, for_pytest = _parser().parse_known_args(arguments)
    parts = [part for part in split(options.tests) if options.only in part.name]
    problems, cpu_seconds, peak_mb = list[str](), _import_once(), 0
    for outcome in run(parts, options.jobs, for_pytest):
        _report(outcome)
        problems.extend(outcome.problems(options.limit))
        cpu_seconds += outcome.cpu_seconds
        peak_mb = max(peak_mb, outcome.peak_mb)
    print(f"{len(parts)} parts, {cpu_seconds:.0f} s of CPU, at most {peak_mb} MB each")
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems or not parts else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="Other options are pytest's."
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many parts at a time")
    parser.add_argument("--only", default="", help="parts with this in their name")
    parser.add_argument(
        "--limit", type=int, default=MEMORY_LIMIT_MB, help="the most memory of a part, in MB"
    )
    parser.add_argument("--tests", type=Path, default=TESTS, help="the folder with the tests")
    return parser


def split(tests: Path) -> list[Part]:
    """Return all test files in parts, the longest part first."""
    folders: dict[str, list[Path]] = {}
    for file in sorted(tests.rglob("test_*.py")):
        place = file.relative_to(tests).parts
        folders.setdefault(place[0] if len(place) > 1 else "", []).append(file)
    few = {name for name, files in folders.items() if len(files) < _FEWEST_FILES or not name}
    together = [file for name in sorted(few) for file in folders.pop(name)]
    parts = list[Part]()
    for name, files in {**folders, "other folders": together}.items():
        size = sum(file.stat().st_size for file in files)
        larger = _TIMES_AS_MUCH if name in _LIGHT else 1
        share = max(len(files) / _MOST_FILES, size / _MOST_BYTES) / larger
        shares = _balance(files, math.ceil(share))
        for i, share in enumerate(shares, 1):
            label = f"{name} {i}/{len(shares)}" if len(shares) > 1 else name
            parts.append(Part(label, tuple(share)))
    return sorted(parts, key=lambda part: part.size, reverse=True)


def _balance(files: Sequence[Path], count: int) -> list[list[Path]]:
    """Deal files out to parts of about the same size, the longest file first."""
    shares: list[list[Path]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in sorted(files, key=lambda file: file.stat().st_size, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(file)
        sizes[least] += file.stat().st_size
    return [sorted(share) for share in shares]


def _import_once() -> float:
    """Import what most parts need, and return the CPU time of that in seconds."""
    if sys.platform != "linux":
        return 0.0
    before = os.times()
    for name in _IMPORTED:
        importlib.import_module(name)
    import encryptedstats as es

    for name in es.__all__:
        getattr(es, name)
    gc.collect()
    gc.freeze()  # forked processes would copy what their collectors look through
    now = os.times()
    return now.user + now.system - before.user - before.system


def run(parts: Sequence[Part], jobs: int, for_pytest: Sequence[str]) -> Iterator[Outcome]:
    """Run each part in a process, so many at a time, and measure it with all processes that it
    starts and waits for.
    """
    left = list(reversed(parts))
    running = dict[int, tuple[Part, IO[bytes]]]()
    while left or running:
        while left and len(running) < jobs:
            part = left.pop()
            output = tempfile.TemporaryFile()  # noqa: SIM115  # closed when its part has ended
            running[_start(["-q", *for_pytest, *map(str, part.files)], output)] = part, output
        process, status, used = os.wait4(-1, 0)
        if process not in running:
            continue
        part, output = running.pop(process)
        with output:
            output.seek(0)
            text = output.read().decode(errors="replace")
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        cpu_seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss // unit
        yield Outcome(part, os.waitstatus_to_exitcode(status), text, cpu_seconds, peak)


def _start(arguments: Sequence[str], output: IO[bytes]) -> int:
    """Run pytest in another process, and return its number."""
    if sys.platform != "linux":
        command = [sys.executable, "-m", "pytest", *arguments]
        environment = {**_ENVIRONMENT, **os.environ}
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        ).pid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's threads hold no lock here
        sys.stdout.flush()
        process = os.fork()
    if process == 0:
        _become_pytest(arguments, output)
    return process


def _become_pytest(arguments: Sequence[str], output: IO[bytes]) -> NoReturn:
    """End this process as ``python -m pytest`` does."""
    code = 1
    try:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))
        sys.argv[1:], sys.path[0] = arguments, os.getcwd()
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _report(outcome: Outcome) -> None:
    lines = outcome.output.splitlines()
    if outcome.code not in _GOOD:
        print(outcome.output)
    else:
        print(*(line for line in lines if line.startswith(("SKIPPED", "XFAIL", "XPASS"))), sep="\n")
    summary = next((line for line in reversed(lines) if _SUMMARY.search(line)), "no output")
    measured = f"{outcome.cpu_seconds:.0f} s of CPU, {outcome.peak_mb} MB"
    print(f"{outcome.part.name}: {summary.strip('= ')}; {measured}", flush=True)


if __name__ == "__main__":
    if not set(_ENVIRONMENT) <= set(os.environ):  # glibc reads it when a process begins
        os.execve(sys.executable, [sys.executable, *sys.argv], {**_ENVIRONMENT, **os.environ})
    raise SystemExit(main())
