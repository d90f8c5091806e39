"""Running a function over items in several processes, in order, with a bounded number under way.

SEAL's Python binding holds the interpreter's lock, so threads would not help. Processes are forked: they inherit the function and
all it refers to, keys included, so no key is ever written, sent or pickled. Where forking is not to be had, everything runs here.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from encryptedstats.checks import as_count
from encryptedstats.errors import HelperError

Item = TypeVar("Item")
Result = TypeVar("Result")

_inherited: Callable[[Any], Any] | None = None  # set in worker processes only, each of which serves one map


def cores() -> int:
    """How many processes may really run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked_workers(workers: int | None) -> int | None:
    """How many processes or threads somebody asks for, None for as many as there are cores."""
    return None if workers is None else as_count(workers, "workers", "workers")


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Generator[Result, None, None]:
    """``map(function, items)`` over processes. ``items`` may be endless: only a few are taken ahead.

    Close it (``contextlib.closing``) when it may not be run to its end: that is what ends the processes.
    """
    workers = cores() if workers is None else workers
    if workers < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(function, items)
        return
    # The function travels as an argument of the initialiser, which forked processes inherit as it is, unpickled.
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, fork, initializer=_inherit, initargs=(function,)) as pool:
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
                f"one of {workers} helper processes was ended from outside, most often because memory ran out (the system's log "
                "says): take fewer, workers=1 for none, or free memory, and run it again. What was stored is kept"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, item: Any) -> Future[Any]:
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside other threads; the children only compute, and take no lock of the parent.
        warnings.simplefilter("ignore", DeprecationWarning)
        return pool.submit(_call, item)


def _inherit(function: Callable[[Any], Any]) -> None:
    """In a new worker process: what to run, and when to stop."""
    global _inherited
    _inherited = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Without this, workers of a parent that was killed would wait for work for ever, with the secret key in memory."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(item: Any) -> Any:
    if _inherited is None:
        raise RuntimeError("a worker process was not forked from the one that gave it work")
    return _inherited(item)
