"""Put every mutant in place of its rule and run its tests, which must fail."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from linked_package import check_imported, link_package, run_python
from mutation.lists import ALL_MUTANTS
from mutation.mutants import Mutant

PASSED, FAILED = 0, 1  # pytest's exit status; any other means that it did not run as it should


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them all, say which test killed which, and return how many survived."""
    options = _options(arguments)
    chosen = [mutant for mutant in ALL_MUTANTS if options.only in mutant.name]
    for mutant in chosen:
        mutant.source()  # a list that has rotted is noticed before anything is run
    _check_that_tests_pass_without_mutants(
        sorted({test for mutant in chosen for test in mutant.tests})
    )
    with ThreadPoolExecutor(options.jobs) as pool:
        killers = list(pool.map(_tried, chosen))
    survivors = [
        mutant.name for mutant, killer in zip(chosen, killers, strict=True) if killer is None
    ]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were killed")
    if survivors:
        print(f"survived: {'; '.join(survivors)}")
    return len(survivors)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--only", default="", help="those with this in their name")
    return parser.parse_args(arguments)


def _check_that_tests_pass_without_mutants(tests: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        link_package(Path(folder))
        check_imported(Path(folder), "encryptedstats")
        done = _run_tests(Path(folder), tests)
        if done.returncode != PASSED:
            raise SystemExit(f"the tests fail without any mutant:\n{done.stdout}{done.stderr}")


def _tried(mutant: Mutant) -> str | None:
    """The test that killed it, or None."""
    with tempfile.TemporaryDirectory() as folder:
        place = link_package(Path(folder)) / mutant.file
        place.unlink()
        place.write_text(mutant.source())
        done = _run_tests(Path(folder), mutant.tests)
    if done.returncode not in (PASSED, FAILED):
        raise SystemExit(
            f"mutant {mutant.name!r}: the tests did not run\n{done.stdout}{done.stderr}"
        )
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    killer = failures[0].split("::")[1].split(" - ")[0] if failures else None
    print(
        f"killed    {mutant.name}, by {killer}" if killer else f"SURVIVED  {mutant.name}",
        flush=True,
    )
    return killer


def _run_tests(folder: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    arguments = ["-q", "-x", "-rf", "-m", "not slow", "-p", "no:cacheprovider"]
    return run_python(folder, "-m", "pytest", *tests, *arguments, COLUMNS="200")


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
