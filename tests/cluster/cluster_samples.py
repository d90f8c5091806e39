"""What the tests of the cluster share: a stored table of small blocks, its clear twin, and workers
that are real processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from slow_worker import hold_in_second, make_slow

import encryptedstats as es

SLOTS = 1024
BLOCKS, ROWS = 6, 20
FOREST = es.CompletelyRandomForest(n_trees=4, depth=2, random_state=3)
#: Runs a worker whose shards take so long that it can be killed in the middle of one.
SLOW = Path(__file__).with_name("slow_worker.py")
_CLASSES = ("no", "yes")


def small_owner(
    scheme: str = "bgv", max_value: int = 1 << 22, primes: int = 6, kept: int | None = None
) -> es.Owner:
    """Keys so small that a shard takes milliseconds: 1024 slots, exact up to four millions, four
    products deep.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", es.InsecureParametersWarning)
        parameters = es.Parameters.from_bits(
            scheme, SLOTS, max_value, (52,) * primes, allow_insecure=True
        )
        return es.Owner(replace(parameters, kept_primes=kept))


def frame(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 10, n) + 12 * codes,
            "sex": rng.choice(["f", "m", "x"], n),
            "ill": np.array(_CLASSES, dtype=object)[codes],
        }
    )


SCHEMA = es.Schema.infer(
    frame(400, 99), target="ill", bins=3, kinds={"sex": "categorical"}, classes=_CLASSES
)


def rows(block: int, folds: int | None = None) -> es.Table:
    """The rows of a block, in the clear."""
    return SCHEMA.table(frame(ROWS, block), slots=SLOTS, folds=folds)


@dataclass(frozen=True)
class Hospital:
    """An owner, and where the table of all blocks is stored."""

    owner: es.Owner
    table: Path

    def plain(self, blocks: range = range(BLOCKS)) -> es.Table:
        return es.Table.concat([rows(block) for block in blocks])

    def is_exact(self, model: Any, out: Any, blocks: range = range(BLOCKS)) -> bool:
        """Whether a model, or its file, opens to what the clear rows give."""
        sealed = out
        if isinstance(out, (str, Path)):
            sealed = es.load(out, keys=self.owner.public_keys())
        opened = self.owner.open(sealed)
        return list(opened.totals_) == list(model.fit(self.plain(blocks)).totals_)


def store_table(
    owner: es.Owner,
    place: Path | str,
    blocks: range = range(BLOCKS),
    weight_bound: int = 1,
    folds: int | None = None,
) -> None:
    """A table that has been appended to: a block of its own for every few rows."""
    first, *others = [replace(rows(block, folds), weight_bound=weight_bound) for block in blocks]
    sealed = owner.encrypt(first, workers=1)
    for more in others:
        sealed = sealed.append(owner.encrypt(more, workers=1))
    sealed.save(place)


def new_hospital(folder: Path) -> Hospital:
    """An owner, and an encrypted table in this folder."""
    owner, place = small_owner(), folder / "train"
    store_table(owner, place)
    return Hospital(owner, place)


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Python with these arguments in a process of its own; one thread each, or they would keep each
    other waiting.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        **options.pop("env", {}),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], text=True, env=environment, **(pipes | options)
    )


class Worker:
    """A worker of a queue in a process of its own, forked from this one: to start Python and import
    everything again takes far longer than what these workers do. Asked as a Popen is.
    """

    def __init__(
        self, queue: Path | str, slow: float, lease: float, released: Path | None = None
    ) -> None:
        self.returncode: int | None = None
        self._report, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            if released is not None:
                hold_in_second(released)
            self._work(writing, str(queue), slow, lease)
        os.close(writing)

    @staticmethod
    def _work(writing: int, queue: str, slow: float, lease: float) -> NoReturn:
        code = 1
        try:
            with os.fdopen(writing, "w") as out:
                try:
                    make_slow(slow)
                    print(json.dumps(vars(es.cluster.work(queue, lease=lease))), file=out)
                    code = 0
                except BaseException as error:
                    print(repr(error), file=out)
        finally:
            os._exit(code)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def communicate(self, timeout: float = 600.0) -> tuple[str, str]:
        """Return what it printed at its end, and the same again where it failed."""
        until(lambda: self.poll() is not None, "end", timeout)
        with os.fdopen(self._report) as report:
            said = report.read()
        return said, said if self.returncode else ""


def start_worker(
    queue: Path | str, *, slow: float = 0.0, lease: float = 60.0, released: Path | None = None
) -> Worker:
    """Start a worker that is slow, or stands still in its second shard until it is released."""
    return Worker(queue, slow, lease, released)


def finish(process: subprocess.Popen[str] | Worker, timeout: float = 600.0) -> str:
    """What it printed; it must have ended well."""
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    return out


def until(condition: Callable[[], bool], what: str, timeout: float = 600.0) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"nobody did it: {what}"
        time.sleep(0.05)


def names(queue: Path, folder: str) -> set[str]:
    place = queue / folder
    return (
        {path.name for path in place.iterdir() if not path.name.endswith(".tmp")}
        if place.is_dir()
        else set()
    )
