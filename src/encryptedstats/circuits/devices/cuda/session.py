"""What stays on a GPU between two programs: keys, tapes, columns and recorded packs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from encryptedstats.circuits.devices.base import Task
from encryptedstats.circuits.devices.cuda import gpu as gpus
from encryptedstats.circuits.devices.cuda.gpu import Array, Gpu, GpuFullError, Recording
from encryptedstats.circuits.devices.cuda.steps import CudaExecution, Keyed
from encryptedstats.circuits.devices.cuda.sums import (
    Columns,
    CudaEvaluator,
    GpuTape,
    Sums,
    Tables,
)
from encryptedstats.circuits.devices.steps import Known
from encryptedstats.circuits.program import Program, Step
from encryptedstats.circuits.sources import Source
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.crypto.residues import Residues

Found = TypeVar("Found")


@dataclass(frozen=True)
class LoadedTape:
    """A tape and its columns on the GPU."""

    evaluator: CudaEvaluator
    made: GpuTape
    columns: Iterable[Columns]  # a list if all of them are there
    stays: bool  # whether the columns are those of the table alone, without given totals


@dataclass(frozen=True)
class RecordedPacks:
    """The packs of a program and a table, recorded so that one call computes them again."""

    program: Program
    content: str
    keys: PublicKeys
    loaded: LoadedTape
    sums: Sums
    packs: list[Array]
    recording: Recording

    def are_of(self, task: Task, expanded: Mapping[Step, Residues]) -> bool:
        """Return True if these are the packs that a task asks for."""
        same = self.program is task.program and self.keys is task.keys
        is_plain = not expanded and task.options.checkpoint is None
        return same and is_plain and self.content == task.source.content_id


class Session:
    """A GPU with what stays on it.

    Parameters
    ----------
    gpu : Gpu, optional
        The first one of this machine by default.
    arithmetic : "doubles" or "integers", optional
        By default the faster one on this GPU.
    """

    def __init__(self, gpu: Gpu | None = None, arithmetic: str | None = None) -> None:
        self.given_gpu, self._arithmetic = gpu, arithmetic
        self.lock = RLock()
        self.tapes: WeakKeyDictionary[Program, tuple[Any, GpuTape]] = WeakKeyDictionary()
        self.recorded: RecordedPacks | None = None
        self._keyed: WeakKeyDictionary[PublicKeys, Keyed] = WeakKeyDictionary()
        self._tables = Tables()

    def gpu(self) -> Gpu | None:
        """Return the GPU for the calling thread; None in a fork of the process that opened it."""
        found = self.given_gpu or gpus.gpu()
        if found is None or found.process != os.getpid():
            return None
        found.enter()
        return found

    def load_keys(self, keys: PublicKeys) -> Keyed | None:
        """Return the keys on the GPU; None if this process has no GPU."""
        gpu = self.gpu()
        if gpu is None:
            return None
        if keys not in self._keyed:
            self._keyed[keys] = Keyed(keys, gpu, self._arithmetic)
        return self._keyed[keys]

    def columns_of(self, source: Source) -> dict[Any, Array]:
        """Return the columns of a table that are on the GPU; those of other tables make room."""
        name, gpu = source.content_id, self.gpu()
        if name is None or gpu is None:
            return {}
        found = self._tables.of(name, gpu.memory()[1] // 4)
        if self.recorded is not None and self.recorded.content not in self._tables:
            self.recorded = None
        return found

    def start(self, keys: PublicKeys, known: Known, source: Source | None) -> CudaExecution:
        """Begin to evaluate steps on the GPU."""
        keyed = self.load_keys(keys)
        assert keyed is not None
        held = {} if source is None else self.columns_of(source)
        return CudaExecution(keys, known, source, keyed, held)

    def forget_columns(self) -> None:
        """Free the columns, and the packs that are computed from them."""
        self._tables, self.recorded = Tables(), None

    def forget(self) -> None:
        """Free columns, keys and tapes."""
        self.forget_columns()
        self.tapes.clear()
        self._keyed.clear()

    def attempt(self, compute: Callable[[], Found | None]) -> Found | None:
        """Compute on the GPU; if it is full, free what stays there and try once more.

        Return None if there is still no room.
        """
        for _ in range(2):
            try:
                return compute()
            except GpuFullError:
                self.forget()
        return None
