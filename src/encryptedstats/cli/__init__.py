"""The command line ``encryptedstats``: a thin layer over the library.

Each family of commands has a module, and ``_app`` puts them together. This module imports neither
Typer nor Rich, the optional extra ``cli``, so that it can say when they are missing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial

_EXTRA = {"typer", "rich", "click"}


def main() -> None:
    """Run the program ``encryptedstats``."""
    try:
        program = load_program()
    except KeyboardInterrupt:
        print("interrupted: nothing was begun", file=sys.stderr)
        sys.exit(130)
    program()


def load_program() -> Callable[[], None]:
    """Import the command line, and return the function that runs it."""
    try:
        import rich  # noqa: F401  help and spinners import parts of it later

        from encryptedstats.cli._app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.exit("error: the command line needs Typer and Rich: pip install 'encryptedstats[cli]'")
    signal.signal(signal.SIGTERM, _exit_on_signal)
    return partial(app, prog_name="encryptedstats")


def _exit_on_signal(number: int, _: object) -> None:
    """Exit as after Ctrl-C, so that temporary files are deleted. A forked process has none."""
    processes = sys.modules.get("multiprocessing")  # imported wherever processes are forked
    if processes is not None and processes.parent_process() is not None:
        os._exit(128 + number)
    raise SystemExit(128 + number)
