"""Run one task of the owner's page in a process of its own.

``python -m encryptedstats.app.child`` reads a task, one line of JSON, from its standard input and
writes lines of JSON: ``{"done": 3}`` for progress, ``{"warning": "..."}``, and at last
``{"result": {...}}`` or ``{"error": "...", "code": "..."}``. The parent keeps the pipe to the
standard input open. However the parent ends, the system closes it, and then this process ends too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any, Final

#: Seconds in which a task may tidy up before its process is killed.
GRACE: Final = 5.0
FAILED: Final = 1
INTERRUPTED: Final = 130


def end_with_parent(descriptor: int) -> None:
    """Start a thread that ends this process once the pipe has no writer any more.

    It reads the descriptor itself: a lock of ``sys.stdin`` that this thread held would be held for
    ever in processes that are forked from this one.
    """
    threading.Thread(target=_wait_and_end, args=(descriptor,), daemon=True).start()


def _wait_and_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(INTERRUPTED)


class OutputLines:
    """The lines that the parent reads. What else is printed goes to the error output."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def write(self, **document: Any) -> None:
        """Write a line."""
        with self._lock:
            print(json.dumps(document), file=self._file, flush=True)


def run(line: bytes, output: OutputLines) -> int:
    """Run a task and return the exit code."""
    from encryptedstats.app.tasks import TASKS
    from encryptedstats.app.words import CORRECTABLE, in_page_words, is_ours

    def show_warning(message: Warning | str, *_: object, **__: object) -> None:
        if isinstance(message, UserWarning) and is_ours(message):
            output.write(warning=in_page_words(message))

    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            result = TASKS.validate_json(line).run(lambda done: output.write(done=done))
        except CORRECTABLE as error:
            output.write(error=in_page_words(error), code=getattr(error, "code", ""))
            return FAILED
    output.write(result=result)
    return 0


def main() -> int:
    """Read a task and run it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left half-written
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the parent's
    output, line = OutputLines(), sys.stdin.buffer.readline()
    end_with_parent(sys.stdin.fileno())
    try:
        return run(line, output)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
