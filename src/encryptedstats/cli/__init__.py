"""The command line ``encryptedstats``: a thin layer over the library, one module for each family of
commands.

This module itself imports neither Typer nor Rich, which are the optional extra ``cli``, so that it
can say so when they are missing. ``_app`` puts the commands together.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial

_EXTRA = {"typer", "rich", "click"}


def main() -> None:
    """The program ``encryptedstats``: imports the command line and runs it.

    Interrupted before its library is there, there is nothing to tidy up and one line to say.
    """
    try:
        program = load_program()
    except KeyboardInterrupt:
        print("interrupted: nothing was begun", file=sys.stderr)
        sys.exit(130)
    program()


def load_program() -> Callable[[], None]:
    """Import all that the program needs, and give the function that runs it."""
    try:
        import rich  # noqa: F401  help and spinners import parts of it when they are shown

        from encryptedstats.cli._app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.exit("error: the command line needs Typer and Rich: pip install 'encryptedstats[cli]'")
    signal.signal(signal.SIGTERM, _terminated)
    return partial(app, prog_name="encryptedstats")


def _terminated(number: int, _: object) -> None:
    """Leave as after Ctrl-C, so that temporary files are taken away; in a forked worker there is
    nothing to tidy.
    """
    processes = sys.modules.get(
        "multiprocessing"
    )  # which a worker has imported, and whoever asks for help need not wait for
    if processes is not None and processes.parent_process() is not None:
        os._exit(128 + number)
    raise SystemExit(128 + number)
