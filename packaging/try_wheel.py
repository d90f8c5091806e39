"""Builds the source package and from it the wheel for this machine, checks both, and tries the wheel in fresh environments.

For every Python that is here (or those given), without a compiler on the path: the smoke test and the demo. With ``--matrix`` also
with the lowest and the highest versions of what the package depends on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
FOLDER = ROOT / "dist"


def main() -> None:
    """Build, check, install and try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", nargs="*", default=PYTHONS, help="versions to try; those that are not here are named"
    )
    parser.add_argument(
        "--matrix", action="store_true", help="with the lowest and the highest versions of all dependencies"
    )
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    run(sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(FOLDER))
    (source,) = FOLDER.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", str(source))
    run(
        sys.executable, "-m", "pyroma", "--min=8", str(source)
    )  # two points are for addresses, which the project has not yet
    for version in options.python:
        uv = ("uv", "python", "find", "--no-python-downloads", version)
        pyenv = sorted(
            (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin")
        )  # which shows one version at a time
        path = os.pathsep.join([*map(str, pyenv), os.environ["PATH"]])
        found = subprocess.run(uv, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
        if found.returncode:
            print(f"Python {version}: not here, not tried")
            continue
        with tempfile.TemporaryDirectory() as folder:
            wheel = build_wheel(source, found.stdout.strip(), Path(folder))
            for resolution in ("lowest-direct", "highest") if options.matrix else ("highest",):
                try_wheel(wheel, found.stdout.strip(), resolution, Path(folder))


def build_wheel(source: Path, python: str, folder: Path) -> Path:
    """From the source package, not from the checkout: what is missing in it is missed here."""
    run("uv", "build", "--quiet", "--wheel", "--python", python, "--out-dir", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel))
    run(sys.executable, "-m", "check_wheel_contents", "--config", str(ROOT / "pyproject.toml"), str(wheel))
    shutil.copy(wheel, FOLDER)
    return FOLDER / wheel.name


def try_wheel(wheel: Path, python: str, resolution: str, folder: Path) -> None:
    """In an environment that has the wheel and what it needs, and nothing else."""
    environment = folder / f"environment-{resolution}"
    run("uv", "venv", "--quiet", "--python", python, str(environment))
    interpreter = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    # Wheels alone: the lowest versions that can be had are those that were built for this Python.
    install = (
        "uv",
        "pip",
        "install",
        "--quiet",
        "--only-binary=:all:",
        f"--resolution={resolution}",
        "--python",
        str(interpreter),
    )
    floors = [] if resolution == "highest" else ["--requirement", str(stated(folder))]
    run(*install, *floors, f"{wheel}[cli,plots]")
    alone = {"PATH": str(interpreter.parent), "HOME": str(folder)}  # no compiler
    run(str(interpreter), str(ROOT / "packaging" / "smoke.py"), cwd=folder, environment=alone)
    run(str(interpreter), str(ROOT / "examples" / "forest.py"), cwd=folder, environment=alone)
    run(str(interpreter.with_name("encryptedstats")), "doctor", cwd=folder, environment=alone)


def stated(folder: Path) -> Path:
    """What the package itself asks for, as if somebody asked for it: the lowest versions are taken of that alone."""
    path = folder / "stated.txt"
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    path.write_text("\n".join(needed))
    return path


def run(*command: str, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    """A program that has to succeed; what it says is shown."""
    print("$", " ".join(command), flush=True)
    _check(subprocess.run(command, cwd=cwd, env=environment, check=False).returncode, command)


def _check(status: int, command: Sequence[str]) -> None:
    if status:
        raise SystemExit(f"{command[0]} ended with {status}")


if __name__ == "__main__":
    main()
