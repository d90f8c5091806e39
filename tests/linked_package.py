"""The package in another folder, by links, so that some of its files can be others: nothing of the
checkout is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "encryptedstats"


def link_package(folder: Path, *without: str) -> Path:
    """Links to all files of the package but those of these patterns; the folder is to be on
    Python's path.
    """
    ignored = shutil.ignore_patterns("__pycache__", *without)
    return Path(
        shutil.copytree(PACKAGE, folder / PACKAGE.name, copy_function=os.symlink, ignore=ignored)
    )


def run_python(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Python in the checkout, with the package of this folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def check_imported(folder: Path, *modules: str, **environment: str) -> None:
    """That these are found there: or else the tests would try the package that is installed, or
    skip what is missing.
    """
    for module in modules:
        code = f"import {module} as module; print(module.__file__)"
        done = run_python(folder, "-c", code, **environment)
        if done.returncode or not Path(done.stdout.strip()).is_relative_to(folder):
            raise SystemExit(
                f"{module} is not imported from {folder}, but: {done.stdout}{done.stderr}"
            )
