"""Compiles the C extensions for ARM, and makes the calls of their tests again on an emulated
processor (qemu-user).

The tests run here and write down what they call and what they get (``kernel_calls``), on the levels
that have an equal on ARM; there every call must give the same residues. Needs Debian's packages
gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user; Python and NumPy for ARM are fetched
into the folder: nothing of this system is changed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from linked_package import PACKAGE, ROOT, run_python
from run_sanitized import TESTS, flags

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
# Python of the same Debian as the cross compiler, with the libraries that it and NumPy load.
PACKAGES = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libpython3.11-dev"),
    *(
        "libc6",
        "libstdc++6",
        "libgcc-s1",
        "libexpat1",
        "zlib1g",
        "libssl3",
        "libffi8",
        "libbz2-1.0",
        "liblzma5",
    ),
)
# It counts references to what the recorder keeps.
NOT_RECORDED = "tests/crypto/test_kernels.py::test_a_key_keeps_its_ring"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, compile, record and replay; returns the exit status of the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "arm", help="where Python for ARM is kept"
    )
    folder = parser.parse_args(arguments).folder.resolve()
    missing = [
        program
        for program in (COMPILER, EMULATOR, "dpkg", "apt-get")
        if shutil.which(program) is None
    ]
    if missing:
        raise SystemExit(
            f"{', '.join(missing)}: not here. apt-get install gcc-aarch64-linux-gnu "
            "libc6-dev-arm64-cross qemu-user"
        )
    fetch(folder)
    compile_extensions(folder)
    with tempfile.TemporaryDirectory() as calls:
        record(Path(calls))
        return replay(folder, Path(calls))


def fetch(folder: Path) -> None:
    """Python and NumPy for ARM, once."""
    if (folder / "complete").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("debs", "apt/lists/partial", "wheels", "site"):
        (folder / name).mkdir(parents=True)
    # A list of packages of its own: the system's need not know of ARM.
    apt = [
        "apt-get",
        "-qq",
        "-o",
        "APT::Architecture=arm64",
        "-o",
        "APT::Architectures=arm64",
        "-o",
        f"Dir::State={folder / 'apt'}",
    ]
    run([*apt, "update"])
    run([*apt, "download", *PACKAGES], cwd=folder / "debs")
    for package in sorted((folder / "debs").iterdir()):
        run(["dpkg", "--extract", str(package), str(folder / "root")])
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version=3.11",
    ]
    platforms = ["--platform=manylinux2014_aarch64", "--platform=manylinux_2_28_aarch64"]
    run([*pip, *platforms, "--dest", str(folder / "wheels"), "numpy"])
    for wheel in (folder / "wheels").iterdir():
        zipfile.ZipFile(wheel).extractall(folder / "site")
    (folder / "complete").touch()


def compile_extensions(folder: Path) -> None:
    """Those of this checkout, with the flags of setup.py and all warnings."""
    headers = folder / "root" / "usr" / "include"
    for source in sorted((PACKAGE / "_native").glob("*.c")):
        target = folder / "site" / f"_{source.stem}.so"
        warnings = ["-Wall", "-Wextra", "-Werror"]
        include = [f"-I{headers / 'python3.11'}", f"-I{headers}"]
        run(
            [
                COMPILER,
                "-shared",
                "-fPIC",
                *flags(),
                *warnings,
                *include,
                str(source),
                "-o",
                str(target),
                "-lm",
            ]
        )


def record(calls: Path) -> None:
    """What the tests of the extensions call here."""
    pytest = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "kernel_calls",
        "-m",
        "not slow",
        "--deselect",
        NOT_RECORDED,
    ]
    path = f"{PACKAGE.parent}{os.pathsep}{ROOT / 'tests'}"
    done = run_python(Path(path), *pytest, *TESTS, ENCRYPTEDSTATS_CALLS=str(calls))
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def replay(folder: Path, calls: Path) -> int:
    """The same calls there; returns the exit status."""
    python = str(folder / "root" / "usr" / "bin" / "python3.11")
    command = [
        EMULATOR,
        "-L",
        str(folder / "root"),
        python,
        str(ROOT / "tests" / "kernel_calls.py"),
        str(calls),
    ]
    environment = {"PYTHONPATH": str(folder / "site"), "PATH": os.environ["PATH"]}
    return subprocess.run(command, env=environment, check=False).returncode


def run(command: Sequence[str], cwd: Path | None = None) -> None:
    """A program that has to succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    raise SystemExit(main())
