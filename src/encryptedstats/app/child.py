"""Run a command of this program in a process that ends when the process that started it ends.

``python -m encryptedstats.app.child DESCRIPTOR COMMAND ...``: the descriptor is the reading end of
a pipe. Only the parent has the other end, and the system closes it however the parent ends.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

#: Seconds in which a command may tidy up before it is killed.
GRACE: Final = 5.0


def end_with_parent(descriptor: int) -> None:
    """Start a thread that terminates this process once the pipe has no writer any more."""
    threading.Thread(target=_wait_and_end, args=(descriptor,), daemon=True).start()


def _wait_and_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the command line with the arguments after the descriptor."""
    end_with_parent(int(sys.argv.pop(1)))
    runpy.run_module("encryptedstats.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
