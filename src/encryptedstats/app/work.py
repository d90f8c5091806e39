"""Work that outlasts a page: a thread that tells how far it is, and tasks in processes of their
own.

A passphrase reaches such a process through a pipe, never as an argument, in the environment or in
a file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import encryptedstats as es
from encryptedstats.app.tasks import AskTask, EncryptTask, RoundsTask, Task
from encryptedstats.app.words import in_page_words

CHILD: Final = (sys.executable, "-m", "encryptedstats.app.child")


class TaskError(es.EncryptedStatsError, RuntimeError):
    """A task in a process of its own has failed; the message is for the page."""


class Cancelled(Exception):
    """The owner has stopped the work."""


class Work:
    """Something under way: how far it is, what it says, and how it ended. Threads write it, pages
    read it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.said = ""
        self.done, self.total = 0.0, 0.0
        self.unit = ""
        self.error = ""
        self.finished = threading.Event()
        self.process: subprocess.Popen[str] | None = None
        self._stop = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return not self.finished.is_set()

    @property
    def share(self) -> float | None:
        """Return the share that is done, from 0 to 1, or None if that is not known."""
        return min(1.0, self.done / self.total) if self.total else None

    def tell(self, said: str, done: float = 0.0, total: float = 0.0, unit: str = "") -> None:
        """Say how far it is. Raise Cancelled if the owner has stopped it."""
        self.said, self.done, self.total, self.unit = said, done, total, unit
        self.check()

    def wait(self, seconds: float) -> None:
        """Sleep. Raise Cancelled if the owner stops it."""
        self._stop.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise Cancelled if the owner has stopped it."""
        if self._stop.is_set():
            raise Cancelled

    def stop(self) -> None:
        """Stop it, and the process that it has started."""
        self._stop.set()
        if self.process is not None:
            self.process.terminate()

    def start(self, target: Callable[[Work], None]) -> Work:
        """Run a function in a thread. Its error is kept for the page."""
        threading.Thread(target=self._run, args=(target,), daemon=True, name=self.name).start()
        return self

    def _run(self, target: Callable[[Work], None]) -> None:
        try:
            target(self)
        except Cancelled:
            self.error = "stopped: what was done is kept, and you can go on"
        except Exception as error:  # a thread has nobody else to tell
            self.error = in_page_words(error)
        finally:
            self.finished.set()


def run_task(task: Task, work: Work | None = None, total: float = 0.0) -> dict[str, Any]:
    """Run a task in a process of its own, and return its result with its ``warnings``.

    The process ends if this one ends, or if ``work`` is stopped. ``work`` is told its progress.
    """
    with subprocess.Popen(
        CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if work is not None:
                work.process = process
                work.check()
            process.stdin.write(task.model_dump_json() + "\n")
            process.stdin.flush()  # and left open: when it is closed, the process ends
            last: dict[str, Any] = {}
            warnings = []
            for line in process.stdout:
                last = json.loads(line)
                if "warning" in last:
                    warnings.append(last["warning"])
                elif (
                    "done" in last
                    and work is not None
                    and isinstance(task, (EncryptTask, AskTask, RoundsTask))
                ):
                    work.tell(task.label, last["done"], total, task.unit)
        except BrokenPipeError:
            last = {}
        except BaseException:
            process.terminate()
            raise
        process.wait()
    if work is not None:
        work.check()
    if "result" in last:
        return {**last["result"], "warnings": warnings}
    raise TaskError(
        last.get("error")
        or "it was ended from outside, most often because memory ran out: close other programs, "
        "and go on",
        code=last.get("code") or "ended-from-outside",
    )
