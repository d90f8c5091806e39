"""Two programs, as processes of their own: the owner's page and the worker's service; and a
registry that was made up.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd

from ports import free_port

#: Where pictures for the documents go; nowhere, unless somebody asks for them.
PICTURES = os.environ.get("ENCRYPTEDSTATS_SCREENSHOTS", "")
START_SECONDS = 300.0


class Program:
    """A command of this program, running; it can be killed, and started again with the
    same words.
    """

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.words, self.environment = words, environment
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> queue.Queue[str]:
        """Begin; the lines that it prints."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "encryptedstats.cli", *self.words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, lines), daemon=True).start()
        return lines

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)

    def kill(self) -> None:
        """At once, with all that it has started: as a machine dies that loses its power."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Owner:
    """The owner's program."""

    def __init__(self, folder: Path, files: Path, environment: dict[str, str]) -> None:
        words = ["app", "--folder", str(folder), "--files", str(files), "--no-browser"]
        self.program, self.folder, self.files = Program(words, environment), folder, files

    def start(self) -> str:
        """The address that it prints."""
        lines = self.program.start()
        while True:
            line = lines.get(timeout=START_SECONDS)
            if "http://" in line:
                return "http://" + line.partition("http://")[2].strip()


class Service:
    """The worker's server; ``workers=0`` takes jobs, and computes none of them."""

    def __init__(self, storage: Path, environment: dict[str, str]) -> None:
        self.port = free_port()
        self.storage, self.environment = storage, environment
        self.url = f"http://127.0.0.1:{self.port}"
        self.program: Program | None = None

    def token(self, name: str, *more: str) -> str:
        words = ["worker", "token", str(self.storage), "add", name, "--json", *more]
        done = subprocess.run(
            [sys.executable, "-m", "encryptedstats.cli", *words],
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            check=True,
        )
        return str(json.loads(done.stdout)["token"])

    def start(self, workers: int) -> None:
        words = [
            "worker",
            "serve",
            str(self.storage),
            "--listen",
            f"127.0.0.1:{self.port}",
            "--workers",
            str(workers),
        ]
        self.program = Program(words, self.environment)
        self.program.start()
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(self.url, timeout=2):
                    return
            except urllib.error.HTTPError:
                return
            except OSError:
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.1)

    def kill(self) -> None:
        if self.program is not None:
            self.program.kill()


def patients(n: int, seed: int = 3) -> pd.DataFrame:
    """A registry that was made up: older patients and smokers come back more often."""
    rng = np.random.default_rng(seed)
    age, smoker = (
        rng.integers(19, 92, n),
        rng.choice(["never", "former", "current"], n, p=[0.5, 0.3, 0.2]),
    )
    risk = 1 / (1 + np.exp(-(-4.0 + 0.05 * age + 0.9 * (smoker == "current"))))
    return pd.DataFrame(
        {
            "patient": [f"P{i:05d}" for i in range(n)],
            "age": age,
            "sex": rng.choice(["female", "male"], n),
            "smoker": smoker,
            "bmi": rng.normal(27, 4.5, n).round(1),
            "readmitted": np.where(rng.random(n) < risk, "yes", "no"),
        }
    )
