"""Builds the C extensions with the address and undefined-behaviour sanitizers of gcc, and runs
their tests and fuzzers on them.

The fuzzers are random: what is printed first repeats a run (``--seed``).
"""

from __future__ import annotations

import argparse
import ast
import secrets
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from linked_package import PACKAGE, ROOT, check_imported, link_package, run_python

TESTS = (
    "tests/crypto/test_kernels.py",
    "tests/circuits/test_fused.py",
    "tests/circuits/test_expansion.py",
    "tests/storage/test_pieces.py",
    "tests/crypto/test_seeded.py",
    "tests/spotcheck/test_spot_bounds.py",
)
SANITIZED = (
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
SUFFIX: str = sysconfig.get_config_var(
    "EXT_SUFFIX"
)  # asked for once: threads that ask together may be told None
INCLUDE = sysconfig.get_paths()["include"]
# gcc, whatever compiler Python itself was built with: its run-time libraries are asked for by name.
GCC = "gcc"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and run; returns the exit status of the tests."""
    options = _options(arguments)
    print(f"sanitized fuzzing: --seed {options.seed} --runs {options.runs}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = link_package(folder, "*.so")
        with ThreadPoolExecutor(options.jobs) as pool:
            modules = list(
                pool.map(
                    lambda source: _build(source, package),
                    sorted((PACKAGE / "_native").glob("*.c")),
                )
            )
        environment = _environment(options)
        check_imported(folder, *modules, **environment)
        # Not captured (-s): a process that dies takes what was captured with it, and that is what
        # the sanitizers say.
        pytest = [
            "-m",
            "pytest",
            "-q",
            "-x",
            "-s",
            "-p",
            "no:cacheprovider",
            "-n",
            str(options.jobs),
        ]
        done = run_python(folder, *pytest, *options.tests, **environment)
        print(
            "\n".join((done.stdout + done.stderr).splitlines()[-200 if done.returncode else -3 :])
        )
    return done.returncode


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs",
        type=int,
        default=20_000,
        help="made-up tapes and sets of arguments for each fuzzer",
    )
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the fuzzers")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    parser.add_argument(
        "tests", nargs="*", default=TESTS, help="other tests than those of the extensions"
    )
    return parser.parse_args(arguments)


def _environment(options: argparse.Namespace) -> dict[str, str]:
    return {
        # the latter for the exceptions of SEAL
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so.6')}",
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "ENCRYPTEDSTATS_FUZZ_SEED": str(options.seed),
        "ENCRYPTEDSTATS_FUZZ_RUNS": str(options.runs),
    }


def _build(source: Path, package: Path) -> str:
    """The name of the extension."""
    target = package / f"_{source.stem}{SUFFIX}"
    command = [
        GCC,
        "-shared",
        "-fPIC",
        *flags(),
        *SANITIZED,
        f"-I{INCLUDE}",
        str(source),
        "-o",
        str(target),
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{done.stderr}")
    return f"{package.name}._{source.stem}"


def flags() -> list[str]:
    """Those that the extensions are built with."""
    assigned = {
        node.targets[0].id: node.value
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    flags: list[str] = ast.literal_eval(assigned["FLAGS"])
    return flags


def _library(name: str) -> str:
    """Where gcc has a library of its own."""
    found = subprocess.run(
        [GCC, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(found).is_absolute():
        raise SystemExit(
            f"gcc has no {name} here: install its sanitizers (Debian: libgcc-12-dev, or that of "
            "your gcc)"
        )
    return found


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
