"""Builds the source package and from it the wheel for this machine, checks both, and tries the
wheel in fresh environments.

For every Python that is here (or those given), without a compiler on the path: the smoke test, the
demo and ``check install``, with the highest or the lowest versions of what the package depends on,
or both. ``--quick`` has tests of the command line instead of the demo, and no checks of the
packages themselves.
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
EXTRAS = ("cli", "plots")
# What uv calls them. The lowest versions are those of what the package itself asks for.
RESOLUTIONS = {"lowest": "lowest-direct", "highest": "highest"}
# Of the test suite, what depends most on the versions of others: the command line, which is read
# from annotations.
TESTS = (
    "tests/cli/test_cli_help.py",
    "tests/cli/test_cli_outputs.py",
    "tests/cli/test_cli_json.py",
)


def main() -> None:
    """Build, check, install and try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python",
        nargs="*",
        default=PYTHONS,
        help="versions to try; those that are not here are named",
    )
    parser.add_argument(
        "--versions",
        nargs="+",
        choices=RESOLUTIONS,
        default=["highest"],
        help="of all that the package depends on",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tests of the command line instead of the demo and of checks of the packages",
    )
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    run(sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(FOLDER))
    (source,) = FOLDER.glob("*.tar.gz")
    if not options.quick:
        run(sys.executable, "-m", "twine", "check", "--strict", str(source))
        # Two points are for addresses, which the project has not yet.
        run(sys.executable, "-m", "pyroma", "--min=8", str(source))
    for version in options.python:
        uv = ("uv", "python", "find", "--no-python-downloads", version)
        pyenv = sorted(
            (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin")
        )  # which shows one version at a time
        path = os.pathsep.join([*map(str, pyenv), os.environ["PATH"]])
        found = subprocess.run(
            uv, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        if found.returncode:
            print(f"Python {version}: not here, not tried")
            continue
        with tempfile.TemporaryDirectory() as folder:
            wheel = build_wheel(source, found.stdout.strip(), Path(folder))
            if not options.quick:
                check_wheel(wheel)
            for versions in options.versions:
                interpreter = install_wheel(wheel, found.stdout.strip(), versions, Path(folder))
                try_wheel(interpreter, Path(folder), quick=options.quick)


def build_wheel(source: Path, python: str, folder: Path) -> Path:
    """From the source package, not from the checkout: what is missing in it is missed here."""
    run(
        "uv",
        "build",
        "--quiet",
        "--wheel",
        "--python",
        python,
        "--out-dir",
        str(folder),
        str(source),
    )
    (wheel,) = folder.glob("*.whl")
    shutil.copy(wheel, FOLDER)
    return FOLDER / wheel.name


def check_wheel(wheel: Path) -> None:
    """What an index would refuse, and what does not belong in a wheel."""
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel))
    run(
        sys.executable,
        "-m",
        "check_wheel_contents",
        "--config",
        str(ROOT / "pyproject.toml"),
        str(wheel),
    )


def install_wheel(wheel: Path, python: str, versions: str, folder: Path) -> Path:
    """The Python of an environment that has the wheel and what it needs, and nothing else."""
    environment = folder / f"environment-{versions}"
    run("uv", "venv", "--quiet", "--python", python, str(environment))
    interpreter = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    # Wheels alone: the lowest versions that can be had are those that were built for this Python.
    how = (
        "--quiet",
        "--only-binary=:all:",
        f"--resolution={RESOLUTIONS[versions]}",
        "--python",
        str(interpreter),
    )
    what = ("--requirement", str(stated(folder)), f"{wheel}[{','.join(EXTRAS)}]")
    run("uv", "pip", "install", *how, *what)
    return interpreter


def try_wheel(interpreter: Path, folder: Path, quick: bool) -> None:
    """What a user would do first, without a compiler on the path."""
    alone = {"PATH": str(interpreter.parent), "HOME": str(folder)}
    run(str(interpreter), str(ROOT / "packaging" / "smoke.py"), cwd=folder, environment=alone)
    run(
        str(interpreter.with_name("encryptedstats")),
        "check",
        "install",
        cwd=folder,
        environment=alone,
    )
    if quick:
        run(
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            str(interpreter),
            "pytest",
            "hypothesis",
            "pyarrow",
        )
        run(
            str(interpreter),
            "-m",
            "pytest",
            "--quiet",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",
            *TESTS,
        )
    else:
        run(str(interpreter), str(ROOT / "examples" / "forest.py"), cwd=folder, environment=alone)


def stated(folder: Path) -> Path:
    """What the package itself asks for, as if somebody asked for it: the lowest versions are taken
    of that alone.
    """
    path = folder / "stated.txt"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [needed for extra in EXTRAS for needed in project["optional-dependencies"][extra]]
    path.write_text("\n".join([*project["dependencies"], *extras]))
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
