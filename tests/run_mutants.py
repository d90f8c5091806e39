"""Puts every mutant in place of its rule and runs the calibration of the noise rules, which must fail."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from linked_package import check_imported, link_package, run_python
from mutation.mutants import NOISE_MUTANTS, Mutant

TESTS = ("tests/crypto/test_noise_calibration.py", "tests/crypto/test_joint_noise.py")
PASSED, FAILED = 0, 1  # pytest's exit status; any other means that it did not run as it should


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them all, say which test killed which, and return how many survived."""
    options = _options(arguments)
    chosen = [mutant for mutant in NOISE_MUTANTS if options.only in mutant.name]
    for mutant in chosen:
        mutant.source()  # a list that has rotted is noticed before anything is run
    _expect_untouched_to_pass()
    with ThreadPoolExecutor(options.jobs) as pool:
        killers = list(pool.map(_tried, chosen))
    survivors = [mutant.name for mutant, killer in zip(chosen, killers, strict=True) if killer is None]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were killed")
    if survivors:
        print(f"survived, so {' and '.join(TESTS)} do not see them: {'; '.join(survivors)}")
    return len(survivors)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--only", default="", help="those with this in their name")
    return parser.parse_args(arguments)


def _expect_untouched_to_pass() -> None:
    """In the same kind of folder, without a mistake in it."""
    with tempfile.TemporaryDirectory() as folder:
        link_package(Path(folder))
        check_imported(Path(folder), "encryptedstats")
        done = _calibration(Path(folder))
        if done.returncode != PASSED:
            raise SystemExit(f"the calibration fails without any mutant:\n{done.stdout}{done.stderr}")


def _tried(mutant: Mutant) -> str | None:
    """The test that killed it, or None."""
    with tempfile.TemporaryDirectory() as folder:
        place = link_package(Path(folder)) / mutant.file
        place.unlink()
        place.write_text(mutant.source())
        done = _calibration(Path(folder))
    if done.returncode not in (PASSED, FAILED):
        raise SystemExit(f"mutant {mutant.name!r}: the tests did not run\n{done.stdout}{done.stderr}")
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    killer = failures[0].split("::")[1].split(" - ")[0] if failures else None
    print(f"killed    {mutant.name}, by {killer}" if killer else f"SURVIVED  {mutant.name}", flush=True)
    return killer


def _calibration(folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = ["-q", "-x", "-rf", "-m", "not slow", "-p", "no:cacheprovider"]
    return run_python(folder, "-m", "pytest", *TESTS, *arguments, COLUMNS="200")


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
