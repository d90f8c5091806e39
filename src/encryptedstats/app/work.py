"""What lasts, beside the page: in a thread that says how far it is, or in a process of its own that
is a command of this program.

Commands are those of the command line, so that nothing is done in two ways. A passphrase reaches
them through a pipe, never as an argument, in the environment or in a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import encryptedstats as es
from encryptedstats.app.words import in_page_words

_STDIN: Final = "/dev/stdin"


class CommandError(es.EncryptedStatsError, RuntimeError):
    """A command has failed; its own line says why."""


class Cancelled(Exception):
    """Somebody wanted it to end."""


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
        self._stop = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return not self.finished.is_set()

    @property
    def share(self) -> float | None:
        """How much is done, from 0 to 1; None where that is not known."""
        return min(1.0, self.done / self.total) if self.total else None

    def tell(self, said: str, done: float = 0.0, total: float = 0.0, unit: str = "") -> None:
        """Say how far it is; here it also ends, if somebody wanted it to."""
        self.said, self.done, self.total, self.unit = said, done, total, unit
        if self._stop.is_set():
            raise Cancelled

    def wait(self, seconds: float) -> None:
        """Sleep, unless somebody wants it to end."""
        if self._stop.wait(seconds):
            raise Cancelled

    def stop(self) -> None:
        """Want it to end."""
        self._stop.set()

    def start(self, target: Callable[[Work], None]) -> Work:
        """Run a function in a thread; what it raises is said on the page."""
        threading.Thread(target=self._run, args=(target,), daemon=True, name=self.name).start()
        return self

    def _run(self, target: Callable[[Work], None]) -> None:
        try:
            target(self)
        except Cancelled:
            self.error = "stopped: what was done is kept, and you can go on"
        except Exception as error:  # a thread has nobody else to tell
            self.error = in_page_words(error) or type(error).__name__
        finally:
            self.finished.set()


def command_words(*words: str, parent: int | None = None) -> list[str]:
    """Return the command line that runs a command of this program in a new process.

    ``parent`` is the descriptor of a pipe: the process ends when the other end is closed.
    """
    if parent is None:
        return [sys.executable, "-m", "encryptedstats.cli", *words]
    return [sys.executable, "-m", "encryptedstats.app.child", str(parent), *words]


def run_command(
    words: Sequence[str], passphrase: str | None = None, watch: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Run a command, and give what it prints as JSON. ``watch`` is called twice a second meanwhile;
    if it raises, the command ends.

    With a passphrase, the command gets it as the first line of its standard input.
    """
    unlock = [] if passphrase is None else ["--passphrase-file", _STDIN]
    with _open_life_line() as life:
        return _run([*words, *unlock, "--json"], passphrase, watch, life)


@contextmanager
def _open_life_line() -> Iterator[int | None]:
    """Open a pipe that a child waits on: the system closes its other end however this
    process ends.
    """
    if os.name != "posix":  # descriptors cannot be passed on by number elsewhere
        yield None
        return
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


def _run(
    words: Sequence[str],
    passphrase: str | None,
    watch: Callable[[], None] | None,
    life: int | None,
) -> dict[str, Any]:
    process = subprocess.Popen(
        command_words(*words, parent=life),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=() if life is None else (life,),
    )
    given: str | None = "" if passphrase is None else f"{passphrase}\n"
    try:
        while True:
            try:
                out, err = process.communicate(given, timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                given = None  # it was written already
                if watch is not None:
                    watch()
    except BaseException:
        process.terminate()  # as Ctrl-C: nothing is left half-written
        process.communicate()
        raise
    if process.returncode:
        raise CommandError(
            _last_error(err) or f"the command {words[0]} has ended with {process.returncode}",
            code="failed-command",
        )
    found: dict[str, Any] = json.loads(out)
    found["warnings"] = [
        line.removeprefix("warning: ") for line in err.splitlines() if line.startswith("warning: ")
    ]
    return found


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else ""
