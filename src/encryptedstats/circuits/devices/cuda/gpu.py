"""A GPU: its memory, starting kernels on it, and its errors as :class:`DeviceError`.

It uses NVIDIA's driver alone, through ``cuda-bindings``, and loads the files that :mod:`.build`
compiled.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from encryptedstats.crypto.residues import Residues
from encryptedstats.errors import Cure, DeviceError
from encryptedstats.machine import cores

BUILT: Final = Path(__file__).parent / "built"
OLDEST: Final = (8, 0)  # compute capability: the first that all kernels were compiled for
_FULL_RATE: Final = 4  # of single to double precision: more is a GPU with few FP64 units
_ELSEWHERE: Final = Cure("other device", "device='native' goes on without it", {"device": "native"})


class GpuFullError(DeviceError):
    """There is no memory left on a GPU: cached arrays can be freed, or less is computed
    at a time.
    """


class Array:
    """Words in the GPU's memory; :func:`numpy.asarray` fetches them."""

    dtype = np.dtype(np.uint64)

    def __init__(
        self, gpu: Gpu, pointer: int, shape: tuple[int, ...], owner: Array | None = None
    ) -> None:
        self.gpu, self.pointer, self.shape, self.owner = gpu, pointer, shape, owner

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def words(self) -> int:
        """Number of words."""
        return math.prod(self.shape)

    def __getitem__(self, index: int) -> Array:
        apart = math.prod(self.shape[1:])
        return Array(self.gpu, self.pointer + 8 * apart * index, self.shape[1:], self)

    def reshape(self, *shape: int) -> Array:
        """Return the same words in another shape."""
        return Array(self.gpu, self.pointer, shape, self)

    def first(self, count: int) -> Array:
        """Return the first ``count`` items."""
        return Array(self.gpu, self.pointer, (count, *self.shape[1:]), self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Residues:
        return self.gpu.download(self)

    def __del__(self, _ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if (
            self.owner is None and not _ends()
        ):  # when the interpreter ends, the process does, and the GPU takes its memory back
            self.gpu.free(self.pointer)


class Recording:
    """Started kernels with their memory, to be started again at once.

    Recorded memory is not reused. If it exceeds ``most`` bytes, nothing is kept.
    """

    def __init__(self, most: int) -> None:
        self.calls: list[Callable[[], None]] = []
        self.image: Any = None  # what a GPU makes of the calls
        self.whole, self.thread = True, threading.get_ident()
        self._arrays: list[Array] = []
        self._left = most

    def call(self, start: Callable[[], None]) -> None:
        """Add a start, and start it."""
        start()
        if self.whole and threading.get_ident() == self.thread:
            self.calls.append(start)

    def keep(self, array: Array) -> Array:
        """Keep memory that calls use."""
        if self.whole and threading.get_ident() == self.thread:
            self._arrays.append(array)
            self._left -= 8 * array.words
            if self._left < 0:
                self.whole = False
                self.calls.clear()
                self._arrays.clear()
        return array


class Gpu:
    """One NVIDIA GPU for this process alone: it cannot be used after a fork."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver, self.process = driver, os.getpid()
        self.failure: str | None = None  # what it has failed with, for good
        self.device = self._done(driver.cuDeviceGet(0))
        self.context = self._done(driver.cuDevicePrimaryCtxRetain(self.device))
        self.enter()
        attribute = driver.CUdevice_attribute
        self.name = self._done(driver.cuDeviceGetName(128, self.device)).split(b"\0")[0].decode()
        self.capability = (
            self._fact(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self._fact(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        ratio = self._fact(attribute.CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO)
        self.doubles = ratio <= _FULL_RATE
        self.shared_bytes = self._fact(
            attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        )
        # Kernels follow one another on one stream, and what is brought for the next ones comes on
        # another meanwhile.
        self.stream, self.copies = (
            self._done(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
            for _ in range(2)
        )
        self._keep_memory()
        self.module = self._done(driver.cuModuleLoadData(image_for(self.capability)))
        self._functions: dict[str, Any] = {}
        self.recording: Recording | None = None
        self._pinned = (0, 0)  # where it is, and bytes
        self._pinned_ranges: list[tuple[int, int]] = []  # all of it
        self._copied = self._done(driver.cuEventCreate(0))
        self._staging = _Staging(self)

    def enter(self) -> None:
        """Make it the GPU of the calling thread."""
        self._done(self.driver.cuCtxSetCurrent(self.context))

    def _fact(self, attribute: Any) -> int:
        return int(self._done(self.driver.cuDeviceGetAttribute(attribute, self.device)))

    def _keep_memory(self) -> None:
        """Keep freed memory for the next allocation."""
        driver = self.driver
        pool = self._done(driver.cuDeviceGetDefaultMemPool(self.device))
        name = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        self._done(driver.cuMemPoolSetAttribute(pool, name, driver.cuuint64_t((1 << 64) - 1)))

    def _done(self, result: tuple[Any, ...]) -> Any:
        error, *rest = result
        if error != self.driver.CUresult.CUDA_SUCCESS:
            raise self._error(error)
        return rest[0] if rest else None

    def _error(self, error: Any) -> DeviceError:
        if error == self.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return GpuFullError(
                "the GPU has not enough memory left for this: end what else runs on it. ",
                _ELSEWHERE,
                code="GPU-full",
            )
        said = self.driver.cuGetErrorString(error)[1]
        self.failure = (
            said.decode() if isinstance(said, bytes) else str(error)
        )  # and so will whatever is asked of it next
        return DeviceError(
            f"the GPU failed ({self.failure}); nothing was written. ",
            _ELSEWHERE,
            code="GPU-failed",
        )

    # -- memory
    # --------------------------------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes."""
        free, total = self._pair(self.driver.cuMemGetInfo())
        return int(free), int(total)

    def _pair(self, result: tuple[Any, ...]) -> tuple[Any, Any]:
        self._done(result[:1])
        return result[1], result[2]

    def empty(self, *shape: int) -> Array:
        """Allocate uninitialised words."""
        array = self._empty(shape, self.stream)
        return array if self.recording is None else self.recording.keep(array)

    def _empty(self, shape: tuple[int, ...], stream: Any) -> Array:
        size = max(8, 8 * math.prod(shape))
        return Array(self, int(self._done(self.driver.cuMemAllocAsync(size, stream))), shape)

    def free(self, pointer: int) -> None:
        """Give memory back; after a fork it is not ours."""
        if os.getpid() == self.process:
            self.driver.cuMemFreeAsync(pointer, self.stream)

    def upload(self, words: NDArray[Any]) -> Array:
        """Copy words of 64 bits, or pairs of 32, to the GPU."""
        words = np.ascontiguousarray(words)
        array = self.empty(*(words.shape if words.itemsize == 8 else (-(-words.nbytes // 8),)))
        if words.nbytes:
            self.write(array, words)
        return array

    def upload_together(self, parts: Sequence[NDArray[np.uint64]]) -> list[Array]:
        """Copy arrays of one shape while kernels run; later kernels see the copies.

        The GPU reads pinned memory directly. Threads copy other memory into pinned memory while the
        GPU reads the previous piece.
        """
        if len(parts) < 2:
            return [self.upload(part) for part in parts]
        size, whole = parts[0].nbytes, self._empty((len(parts), *parts[0].shape), self.copies)
        parts = [np.ascontiguousarray(part) for part in parts]
        if all(map(self._is_pinned, parts)):
            for number, part in enumerate(parts):
                self._bring(whole.pointer + number * size, part.ctypes.data, size)
        else:
            with self._staging:
                at = self._staging.next(len(parts) * size)
                moves = (
                    (at + number * size, part.ctypes.data, size)
                    for number, part in enumerate(parts)
                )
                list(self._staging.threads.map(lambda move: ctypes.memmove(*move), moves))
                self._bring(whole.pointer, at, len(parts) * size)
                self._staging.mark_sent()
        self._done(self.driver.cuEventRecord(self._copied, self.copies))
        self._done(self.driver.cuStreamWaitEvent(self.stream, self._copied, 0))
        return [whole[number] for number in range(len(parts))]

    def _bring(self, pointer: int, at: int, nbytes: int) -> None:
        self._done(self.driver.cuMemcpyHtoDAsync(pointer, at, nbytes, self.copies))

    def _is_pinned(self, part: NDArray[Any]) -> bool:
        first = int(part.ctypes.data)
        return any(
            begin <= first and first + part.nbytes <= end for begin, end in self._pinned_ranges
        )

    def concatenate(self, parts: Sequence[Array | Residues]) -> Array:
        """Return one array of several along their first axis, wherever they are."""
        whole = self.empty(sum(map(len, parts)), *parts[0].shape[1:])
        at, each = whole.pointer, 8 * math.prod(parts[0].shape[1:])
        for part in parts:
            on_gpu = Array(self, at, part.shape, whole)
            if isinstance(part, Array):
                self.copy(on_gpu, part)
            else:
                self.write(on_gpu, np.ascontiguousarray(part))
            at += each * len(part)
        return whole

    def copy(self, array: Array, other: Array) -> None:
        """Copy one array over another within the GPU."""
        nbytes = 8 * other.words
        self._start(
            lambda: self._done(
                self.driver.cuMemcpyDtoDAsync(array.pointer, other.pointer, nbytes, self.stream)
            )
        )

    def write(self, array: Array, words: NDArray[Any]) -> None:
        """Overwrite an array. The driver copies Python's memory before this returns."""
        self._done(
            self.driver.cuMemcpyHtoDAsync(
                array.pointer, words.ctypes.data, words.nbytes, self.stream
            )
        )

    def download(self, array: Array) -> Residues:
        """Return a copy in memory, through pinned memory, which is several times faster."""
        found = np.empty(array.shape, dtype=np.uint64)
        at, piece = self._pinned_memory(min(found.nbytes, 32 << 20)), 32 << 20
        flat = found.reshape(-1).view(np.uint8)
        for start in range(0, found.nbytes, piece):
            size = min(piece, found.nbytes - start)
            self._done(self.driver.cuMemcpyDtoHAsync(at, array.pointer + start, size, self.stream))
            self.wait()
            ctypes.memmove(flat.ctypes.data + start, at, size)
        return found

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Allocate memory that the GPU reads directly; it stays until the process ends."""
        at = int(self._done(self.driver.cuMemHostAlloc(nbytes, 0)))
        self._pinned_ranges.append((at, at + nbytes))
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(at))

    def _pinned_memory(self, nbytes: int) -> int:
        if self._pinned[1] < nbytes:
            self._pinned = (int(self.allocate_pinned(nbytes).ctypes.data), nbytes)
        return self._pinned[0]

    def clear(self, array: Array, byte: int = 0) -> None:
        """Set all bytes to one value."""
        self._start(
            lambda: self._done(
                self.driver.cuMemsetD8Async(array.pointer, byte, 8 * array.words, self.stream)
            )
        )

    # -- kernels
    # --------------------------------------------------------------------------------------------

    def launch(
        self, name: str, grid: Sequence[int], threads: int, args: Sequence[Any], shared: int = 0
    ) -> None:
        """Start a kernel; what it reads is there by then, and what it writes for whatever is
        started after it.
        """
        if 0 in grid:
            return
        function = self._functions.get(name)
        if function is None:
            function = self._done(self.driver.cuModuleGetFunction(self.module, name.encode()))
            self._functions[name] = function
            most = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._done(self.driver.cuFuncSetAttribute(function, most, self.shared_bytes))
        places = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        x, y, z = grid

        def start(_args: Sequence[Any] = args) -> None:  # which stay in memory with it
            at = ctypes.addressof(places)
            self._done(
                self.driver.cuLaunchKernel(
                    function, x, y, z, threads, 1, 1, shared, self.stream, at, 0
                )
            )

        self._start(start)

    def _start(self, call: Callable[[], None]) -> None:
        if self.recording is None:
            call()
        else:
            self.recording.call(call)

    @contextmanager
    def record(self) -> Iterator[Recording]:
        """Record everything that this thread starts in the context."""
        self.recording = Recording(self.memory()[1] // 4)
        try:
            yield self.recording
        finally:
            self.recording = None

    def again(self, recording: Recording) -> None:
        """Start everything that was recorded, as one graph."""
        driver = self.driver
        if recording.image is None:
            mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            self._done(driver.cuStreamBeginCapture(self.stream, mode))
            try:
                for call in recording.calls:
                    call()
            finally:
                graph = self._done(driver.cuStreamEndCapture(self.stream))
            recording.image = self._done(driver.cuGraphInstantiate(graph, 0))
        self._done(driver.cuGraphLaunch(recording.image, self.stream))

    def wait(self) -> None:
        """Wait until everything is done."""
        self._done(self.driver.cuStreamSynchronize(self.stream))


class _Staging:
    """Two pieces of pinned memory in turns: the GPU reads one while threads write the other."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._lock = gpu, threading.Lock()
        self.threads = ThreadPoolExecutor(min(8, cores()))
        self._places, self._turn = [(0, 0), (0, 0)], 0
        driver = gpu.driver
        self._events = [gpu._done(driver.cuEventCreate(0)) for _ in self._places]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *failure: object) -> None:
        self._lock.release()

    def next(self, nbytes: int) -> int:
        """Return where to write, once the GPU has read the previous content."""
        self._turn = 1 - self._turn
        self._gpu._done(self._gpu.driver.cuEventSynchronize(self._events[self._turn]))
        if self._places[self._turn][1] < nbytes:
            self._places[self._turn] = (int(self._gpu.allocate_pinned(nbytes).ctypes.data), nbytes)
        return self._places[self._turn][0]

    def mark_sent(self) -> None:
        """Note that the GPU was told to read the piece."""
        self._gpu._done(self._gpu.driver.cuEventRecord(self._events[self._turn], self._gpu.copies))


def image_for(capability: tuple[int, int]) -> bytes:
    """Return the code for a GPU: of its architecture, or of the newest older one with the same
    major number.
    """
    major, minor = capability
    found = [int(path.stem[3:]) for path in BUILT.glob("sm_*.cubin")]
    fitting = [number for number in found if number // 10 == major and number % 10 <= minor]
    if fitting:
        return (BUILT / f"sm_{max(fitting)}.cubin").read_bytes()
    return (BUILT / "compute_80.ptx").read_bytes() + b"\0"  # the driver compiles it


def obstacle() -> str | None:
    """Return why this process cannot use a GPU, or None.

    The driver is looked for once: it does not come and go.
    """
    found, why_not = _found()
    return why_not if found is None else obstacle_of(found)


def obstacle_of(gpu: Gpu) -> str | None:
    """Return why this process cannot use a GPU that exists, or None."""
    if gpu.process != os.getpid():
        return (
            "this process was forked from one that computes on the GPU, which no fork can go on "
            "with: start processes by "
            "multiprocessing's 'spawn', or before the GPU is used"
        )
    if gpu.failure is not None:
        return f"the GPU has failed ({gpu.failure}), and is of use again to a new process"
    return None


def gpu() -> Gpu | None:
    """Return the GPU if this process can use one."""
    return _found()[0] if obstacle() is None else None


@cache
def is_there() -> bool:
    """Return True if the driver knows a GPU.

    The GPU is not opened for that: a process that computes nothing need not hold one.
    """
    if not _may_have_driver():
        return False
    try:
        from cuda.bindings import driver

        (error,) = driver.cuInit(0)
        if error != driver.CUresult.CUDA_SUCCESS:
            return False
        error, count = driver.cuDeviceGetCount()
    except (ImportError, RuntimeError):
        return False
    return bool(error == driver.CUresult.CUDA_SUCCESS and count > 0)


def _may_have_driver() -> bool:
    """Check for a device of NVIDIA's, or WSL's: importing the bindings to ask them takes 50 ms.

    Device files may appear with the first use of the driver only, so the PCI bus is looked at too.
    """
    if sys.platform != "linux" or any(
        any(Path("/dev").glob(name)) for name in ("nvidia*", "nvhost*", "nvmap", "dxg")
    ):
        return True
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return any(vendor.read_text().strip() == "0x10de" for vendor in vendors)


@cache
def _found() -> tuple[Gpu | None, str | None]:
    if not _may_have_driver():
        return None, "there is no NVIDIA driver here (no NVIDIA device is known to the system)"
    try:
        from cuda.bindings import driver
    except ImportError:
        return None, "it needs the package cuda-bindings: pip install 'encryptedstats[gpu]'"
    try:
        (error,) = driver.cuInit(0)
    except RuntimeError as failure:  # what the bindings say where the driver's library is not there
        return None, f"there is no NVIDIA driver here ({failure})"
    if error == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        return None, "there is no NVIDIA GPU here that the driver knows"
    if error != driver.CUresult.CUDA_SUCCESS:
        return (
            None,
            f"NVIDIA's driver does not start ({error.name}): is it older than the package "
            "cuda-bindings?",
        )
    try:
        found = Gpu()
    except DeviceError as failure:
        return None, f"the GPU cannot be used: {failure}"
    if found.capability < OLDEST:
        shown = ".".join(map(str, found.capability))
        return (
            None,
            f"the GPU {found.name} is too old: it has compute capability {shown}, and 8.0 is the "
            "least",
        )
    return found, None
