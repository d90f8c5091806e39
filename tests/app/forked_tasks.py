"""Processes of the page's tasks, forked from one that has imported what tasks need.

A task's own process takes 1.5 s to import everything, and much less to compute what tests ask for.
The process that forks has no threads, whatever those of the test hold.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import reduction
from typing import Any

from encryptedstats.app import child

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "pandas",
        "encryptedstats.app.tasks",
        "encryptedstats.app.words",
        "encryptedstats.models.forest",
        "encryptedstats.procedures",
        "encryptedstats.statistics",
        "encryptedstats.tables.encryption",
        "encryptedstats.workers",
    ]
)


class _Passed:
    """A descriptor that a new process gets as its own."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> Any:
        return _take, (reduction.DupFd(self.descriptor),)


def _take(passed: Any) -> int:
    descriptor: int = passed.detach()
    return descriptor


def _become_child(reading: int, writing: int, environment: dict[str, str], folder: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(reading, 0)
    os.dup2(writing, 1)
    os.close(reading)
    os.close(writing)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.exit(child.main())


class ForkedTask:
    """What the page uses of a ``subprocess.Popen``."""

    def __init__(self, *_: object, **__: object) -> None:
        reading, asking = os.pipe()
        answers, writing = os.pipe()
        given = (_Passed(reading), _Passed(writing), dict(os.environ), os.getcwd())
        self._process = CONTEXT.Process(target=_become_child, args=given)
        self._process.start()
        os.close(reading)
        os.close(writing)
        self.stdin = os.fdopen(asking, "w", encoding="utf-8")
        self.stdout = os.fdopen(answers, encoding="utf-8")
        self.terminate, self.kill = self._process.terminate, self._process.kill

    def wait(self) -> None:
        self._process.join()

    def __enter__(self) -> ForkedTask:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        try:
            self.stdin.close()
        finally:
            self.wait()
