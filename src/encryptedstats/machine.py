"""This machine: worker processes, the instructions of its processor, and its memory.

:func:`ordered_map` runs a function over items in several processes, in order, with a bounded number
under way. SEAL's Python binding holds the interpreter's lock, so threads would not help. On Linux
processes are forked: they inherit the function and all it refers to, keys included. Elsewhere
forking is unsafe or unavailable, and processes are spawned: a function that can be rebuilt from
bytes (``Portable``) is rebuilt there, and the bytes, secrets among them, travel through a pipe of
the operating system, never through a file. Any other function then runs in this process alone.
``ENCRYPTEDSTATS_PROCESSES`` chooses: fork, spawn, or none.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import platform
import signal
import sys
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from encryptedstats.checks import as_count
from encryptedstats.errors import ArgumentError, HelperError

# -- processes -------------------------------------------------------------------------------------

Item = TypeVar("Item")
Result = TypeVar("Result")

PROCESSES_VARIABLE: Final = "ENCRYPTEDSTATS_PROCESSES"
_START_METHODS: Final = ("fork", "spawn", "none")

_inherited: Callable[[Any], Any] | None = (
    None  # set in worker processes only, each of which serves one map
)


@dataclass(frozen=True)
class Portable(Generic[Item, Result]):
    """A function that a new process can rebuild as ``make(pack())``, where ``make`` is
    importable.
    """

    function: Callable[[Item], Result]
    make: Callable[[bytes], Callable[[Item], Result]]
    pack: Callable[[], bytes] = field(repr=False)

    def __call__(self, item: Item) -> Result:
        """Call the function in this process."""
        return self.function(item)


def start_method() -> str:
    """Return how processes start: "fork", "spawn" or "none". Forking is safe on Linux only."""
    asked = os.environ.get(PROCESSES_VARIABLE) or ("fork" if sys.platform == "linux" else "spawn")
    if asked not in _START_METHODS:
        raise ArgumentError(
            f"{PROCESSES_VARIABLE}={asked!r}: it can be {', '.join(_START_METHODS)}",
            code="unknown-start-method",
        )
    return asked if asked in multiprocessing.get_all_start_methods() else "none"


def cores() -> int:
    """Return the number of processes that this machine can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_workers(workers: int | None) -> int | None:
    """Return the requested number of processes or threads, or None for as many as there
    are cores.
    """
    return None if workers is None else as_count(workers, "workers", "workers")


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Generator[Result, None, None]:
    """Yield ``map(function, items)``, computed in several processes.

    ``items`` may be endless: only a few are taken ahead. Close the generator
    (``contextlib.closing``) if it may not be run to its end, so that the processes end.
    """
    workers = cores() if workers is None else workers
    method = start_method() if workers > 1 else "none"
    if method == "none" or (method == "spawn" and not isinstance(function, Portable)):
        yield from map(function, items)
        return
    with _processes(method, function, workers) as pool:
        under_way: deque[Future[Result]] = deque()
        try:
            for item in items:
                under_way.append(_submit(pool, item))
                if len(under_way) > 2 * workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool as error:
            raise HelperError(
                f"one of {workers} helper processes was ended from outside, most often because "
                "memory ran out (the system's log "
                "says): take fewer, workers=1 for none, or free memory, and run it again. What "
                "was stored is kept",
                code="helper-killed",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def thread_pool(threads: int) -> ThreadPoolExecutor:
    """Return threads that are kept for the next caller: starting 16 takes as long as much of what
    they do.

    A task must not wait for another task of the same pool.
    """
    return _keep_pool(threads, os.getpid())  # threads do not survive a fork


@lru_cache(maxsize=4)
def _keep_pool(threads: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=f"computing-{process}")


def _processes(method: str, function: Callable[[Any], Any], workers: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context(method)
    if method == "spawn" and isinstance(function, Portable):
        return ProcessPoolExecutor(
            workers, context, initializer=_make, initargs=(function.make, function.pack())
        )
    # The function travels as an argument of the initialiser, which forked processes inherit as it
    # is, unpickled.
    return ProcessPoolExecutor(workers, context, initializer=_inherit, initargs=(function,))


def _submit(pool: ProcessPoolExecutor, item: Any) -> Future[Any]:
    with warnings.catch_warnings(), _nameless_main():
        # Python 3.12 warns of forking beside other threads; the children only compute, and take no
        # lock of the parent.
        warnings.simplefilter("ignore", DeprecationWarning)
        return pool.submit(_call, item)


@contextmanager
def _nameless_main() -> Iterator[None]:
    """Keep spawned processes from running the user's main program again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _make(make: Callable[[bytes], Callable[[Any], Any]], data: bytes) -> None:
    _inherit(make(data))


def _inherit(function: Callable[[Any], Any]) -> None:
    global _inherited
    _inherited = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Otherwise workers of a killed parent would wait for ever, with the secret key in memory.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(item: Any) -> Any:
    if _inherited is None:
        raise RuntimeError("a worker process was not told what to run")
    return _inherited(item)


# -- processor -------------------------------------------------------------------------------------

CPU_VARIABLE: Final = "ENCRYPTEDSTATS_CPU"
#: What kernels know how to use on this kind of processor, the slowest first.
CPU_LEVELS: Final = (
    ("baseline", "neon")
    if platform.machine().lower() in ("aarch64", "arm64")
    else ("baseline", "avx2", "avx512", "ifma")
)


def cpu_level() -> str:
    """Return the highest instruction level that kernels may use, whether or not the processor has
    it.
    """
    level = os.environ.get(CPU_VARIABLE) or CPU_LEVELS[-1]
    if level not in CPU_LEVELS:
        raise ArgumentError(
            f"{CPU_VARIABLE}={level!r}: it can be {', '.join(CPU_LEVELS)}", code="unknown-cpu-level"
        )
    return level


def best_level(levels: Sequence[str]) -> str:
    """Return the highest allowed one of the levels that a kernel has on this processor.

    ``levels`` begins with the slowest.
    """
    return str(levels[min(CPU_LEVELS.index(cpu_level()), len(levels) - 1)])


# -- memory ----------------------------------------------------------------------------------------

LEAST: Final = 256 << 20
MOST: Final = 8 << 30
UNKNOWN: Final = 1 << 30  # where the system does not say what it has
_ROOT: Final = Path("/")


@contextmanager
def paused_collection() -> Iterator[None]:
    """Pause Python's garbage collector.

    Compiling makes tens of thousands of small objects that all stay: searching them for garbage
    over and over took a third of the time of a plan.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def default_limit(processes: int = 1) -> int:
    """Return the bytes for each of ``processes`` processes.

    Together they get a quarter of the available memory, each from 256 MiB to 8 GiB.
    """
    available = available_memory()
    return UNKNOWN if available is None else min(max(available // 4 // processes, LEAST), MOST)


def available_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes that are available without swapping, within the limits of control groups."""
    system = _meminfo(root).get("MemAvailable") or total_memory(root)
    known = [limit for limit in (system, *_memory_left_to_groups(root)) if limit is not None]
    return min(known, default=None)


def total_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes that the machine has."""
    try:
        return _meminfo(root).get("MemTotal") or os.sysconf("SC_PAGE_SIZE") * os.sysconf(
            "SC_PHYS_PAGES"
        )
    except (AttributeError, OSError, ValueError):
        return None


def _meminfo(root: Path) -> dict[str, int]:
    """Read Linux's sizes by name."""
    lines = [line.partition(":") for line in read_system(root / "proc/meminfo").splitlines()]
    return {name: int(value.split()[0]) * 1024 for name, _, value in lines if value.endswith("kB")}


def _memory_left_to_groups(root: Path) -> Iterator[int]:
    """Yield what is left to the control group of this process and to those above it, of both
    versions.

    A container may see its own group as the root: invisible groups are skipped.
    """
    for line in read_system(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (base / one for one in (group, *group.parents)):
            limit, used, cache = (
                read_system(folder / name) for name in (*names[:2], "memory.stat")
            )
            if limit.strip().isdigit():  # "max" is no limit
                taken = int(used) if used.strip().isdigit() else 0
                yield max(0, int(limit) - max(0, taken - _number_of(cache, names[2])))


def _number_of(stat: str, name: str) -> int:
    """Return a number from a file of names and numbers, 0 if it is missing."""
    found = [line.split()[1] for line in stat.splitlines() if line.startswith(f"{name} ")]
    return int(found[0]) if found else 0


def read_system(path: Path) -> str:
    """Return the content of a file of the system, empty if there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
