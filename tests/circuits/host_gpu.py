"""The kernels of the CUDA device on an ordinary processor: compiled as C++, one thread a block,
blocks one after another.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from encryptedstats.circuits.devices import cuda
from encryptedstats.circuits.devices.cuda.gpu import Array, Gpu, Recording

SOURCE = Path(cuda.__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
_COMPILED: list[ctypes.CDLL] = []


class _Index(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def library() -> ctypes.CDLL:
    """The kernels as functions of this machine; exact doubles forbid contraction here too."""
    if not _COMPILED:  # kept when a module ends, unlike caches: compiling takes two seconds
        _COMPILED.append(_compile())
    return _COMPILED[0]


def _compile() -> ctypes.CDLL:
    folder = tempfile.mkdtemp()
    made = Path(folder) / "kernels.so"
    flags = ["-O2", "-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", "-x", "c++"]
    subprocess.run(
        [COMPILER or "", *flags, str(SOURCE / "kernels.cu"), "-o", str(made)], check=True
    )
    found = ctypes.CDLL(str(made))
    shutil.rmtree(folder)
    return found


class HostGpu:
    """What :class:`Gpu` is, in the memory of this process."""

    name, capability, shared_bytes, failure = "this processor", (0, 0), 1 << 20, None

    def __init__(self, doubles: bool = True) -> None:
        self.doubles, self.process, self._held = doubles, os.getpid(), dict[int, np.ndarray]()

    def enter(self) -> None:
        pass

    def memory(self) -> tuple[int, int]:
        return 1 << 30, 1 << 30

    def empty(self, *shape: int) -> Array:
        words = np.full(max(1, int(np.prod(shape))), 0xDEADBEEFDEADBEEF, dtype=np.uint64)
        self._held[words.ctypes.data] = words
        array = Array(self, words.ctypes.data, shape)  # type: ignore[arg-type]  # a GPU in all that matters
        return array if self.recording is None else self.recording.keep(array)

    def free(self, pointer: int) -> None:
        self._held.pop(pointer, None)

    def upload(self, words: np.ndarray) -> Array:
        words = np.ascontiguousarray(words)
        array = self.empty(*(words.shape if words.itemsize == 8 else (-(-words.nbytes // 8),)))
        self.write(array, words)
        return array

    def upload_together(self, parts: Sequence[np.ndarray]) -> list[Array]:
        return [self.upload(part) for part in parts]

    def write(self, array: Array, words: np.ndarray) -> None:
        ctypes.memmove(array.pointer, words.ctypes.data, words.nbytes)

    def copy(self, array: Array, other: Array) -> None:
        self._start(lambda: ctypes.memmove(array.pointer, other.pointer, 8 * other.words))

    def download(self, array: Array) -> np.ndarray:
        found = np.empty(array.shape, dtype=np.uint64)
        ctypes.memmove(found.ctypes.data, array.pointer, found.nbytes)
        return found

    def clear(self, array: Array, byte: int = 0) -> None:
        self._start(lambda: ctypes.memset(array.pointer, byte, 8 * array.words))

    def allocate_pinned(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, dtype=np.uint8)

    def launch(
        self, name: str, grid: Sequence[int], threads: int, args: Sequence[Any], shared: int = 0
    ) -> None:
        self._start(lambda: self._launched(name, grid, threads, args))

    _start, record, concatenate, recording = Gpu._start, Gpu.record, Gpu.concatenate, None

    def again(self, recording: Recording) -> None:
        for call in recording.calls:
            call()

    def _launched(self, name: str, grid: Sequence[int], threads: int, args: Sequence[Any]) -> None:
        kernel, at = library()[name], _Index.in_dll(library(), "blockIdx")
        size, block = _Index.in_dll(library(), "gridDim"), _Index.in_dll(library(), "blockDim")
        block.x = 1
        if name.startswith(
            ("one_", "four_", "branchings_")
        ):  # a thread has a coefficient: one block for each
            grid = (grid[0], grid[1] * threads, grid[2])
        size.x, size.y, size.z = grid
        kernel.restype = None
        for z, y, x in product(*(range(length) for length in reversed(grid))):
            at.x, at.y, at.z = x, y, z
            kernel(*args)

    def wait(self) -> None:
        pass
