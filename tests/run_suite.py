"""Run the tests in parts, several at a time, and fail where a part fails or takes too much memory.

A part is a folder, a share of a large folder, or of all small ones; it has a process of its own,
so its session's fixtures are made once. SEAL's memory pool never shrinks: a process that ran every
test would hold the most that each of them needed of every size.

With ``--rerun``, as in CPython's own runner, the few tests that failed are run once more, alone,
after all parts. What passes then is named as unstable and does not fail the run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

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
_MOST_RERUN = 3  # more failures than these are no accident
_GOOD = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)  # a part may be slow tests alone


@dataclass(frozen=True)
class Part:
    name: str
    files: tuple[Path | str, ...]

    @property
    def size(self) -> int:
        """Estimate how long it takes by the length of its files."""
        return sum(os.stat(file).st_size for file in self.files)


@dataclass(frozen=True)
class Outcome:
    part: Part
    code: int
    output: str
    cpu_seconds: float
    peak_mb: int
    failed: tuple[str, ...] = ()

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
    outcomes = list[Outcome]()
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(run, part, for_pytest) for part in parts]):
            outcomes.append(done.result())
            _report(outcomes[-1])
    cpu_seconds = sum(outcome.cpu_seconds for outcome in outcomes)
    peak_mb = max((outcome.peak_mb for outcome in outcomes), default=0)
    print(f"{len(parts)} parts, {cpu_seconds:.0f} s of CPU, at most {peak_mb} MB each")
    if options.rerun:
        outcomes = rerun(outcomes, for_pytest)
    problems = [line for outcome in outcomes for line in outcome.problems(options.limit)]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems or not parts else 0


def rerun(outcomes: Sequence[Outcome], for_pytest: Sequence[str]) -> list[Outcome]:
    """Return the outcomes after one more run of the tests that failed, if these are few.

    A part that ended in any other way than by failing tests is left as it is.
    """
    # Without the names of what failed, pytest would run everything.
    failed = [one for one in outcomes if one.code == pytest.ExitCode.TESTS_FAILED and one.failed]
    if sum(len(outcome.failed) for outcome in failed) > _MOST_RERUN:
        return list(outcomes)
    settled = list(outcomes)
    for outcome in failed:
        again = run(Part(f"{outcome.part.name}, again", outcome.failed), for_pytest)
        _report(again)
        if again.code == pytest.ExitCode.OK:
            print(*(f"UNSTABLE {name}" for name in outcome.failed), sep="\n", flush=True)
            settled[settled.index(outcome)] = replace(outcome, code=again.code)
    return settled


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="Other options are pytest's."
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many parts at a time")
    parser.add_argument("--only", default="", help="parts with this in their name")
    parser.add_argument(
        "--limit", type=int, default=MEMORY_LIMIT_MB, help="the most memory of a part, in MB"
    )
    parser.add_argument(
        "--rerun", action="store_true", help="run a few failing tests again before giving up"
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


def run(part: Part, for_pytest: Sequence[str]) -> Outcome:
    """Run a part in a process and measure it, with all processes that it starts and waits for."""
    command = [sys.executable, "-m", "pytest", "-q", *for_pytest, *map(str, part.files)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as cache:
        command += ["-o", f"cache_dir={cache}"]
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**_ENVIRONMENT, **os.environ}
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
        failed = _read_failed(Path(cache) / "v/cache/lastfailed", part.files)
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    cpu_seconds = used.ru_utime + used.ru_stime
    return Outcome(part, process.returncode, text, cpu_seconds, used.ru_maxrss // unit, failed)


def _read_failed(written: Path, files: Sequence[Path | str]) -> tuple[str, ...]:
    """Return the tests that pytest's cache says have failed, with the whole path of their files."""
    failed = list[str]()
    for test in json.loads(written.read_text()) if written.exists() else ():
        place, _, name = test.partition("::")
        failed += [f"{file}::{name}" for file in files if Path(file).match(place)]
    return tuple(failed)


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
    raise SystemExit(main())
