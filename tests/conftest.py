"""Keys that many tests share, made once a session: real ones for what is shown, small insecure ones
for what is tried often.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import effort  # noqa: F401  # sets how many examples Hypothesis tries
import encryptedstats as es
from encryptedstats import machine
from encryptedstats.circuits import calibration
from encryptedstats.circuits.cost import OperationTimes
from encryptedstats.circuits.devices import base
from encryptedstats.storage import passphrase
from insecure import insecure_parameters

SCHEMES = ("bfv", "bgv")
_LIBC = ctypes.CDLL(None)
_MUCH, _LITTLE = 64 << 20, 8 << 20
_TESTS = Path(__file__).parent
_CACHED_FOLDERS = tuple(
    str(folder)
    for folder in (
        _TESTS,
        *(Path(es.__file__).parent / name for name in ("crypto", "circuits", "tables", "cluster")),
    )
)


def _clear_caches() -> None:
    """Empty the caches of keys, tables and contexts in the tests and in the library."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is None or not file.startswith(_CACHED_FOLDERS):
            continue
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def free_memory_after_module() -> Iterator[None]:
    """Drop what a module cached.

    SEAL's memory pool never shrinks: keys that stay alive make it grow with every module, and
    every process that is forked later is slower.
    """
    yield
    _clear_caches()
    _return_memory_above(_LITTLE)


def _return_memory_above(growth: int) -> None:
    """Return memory if the process holds so much more than after it last returned some.

    Most of it is free. To look for garbage in cycles as well takes a tenth of a second.
    """
    if _resident_bytes() <= _returned_at[0] + growth:
        return
    _trim_heap()
    if _resident_bytes() > _returned_at[0] + growth:
        gc.collect()
        _trim_heap()
    _returned_at[0] = _resident_bytes()


def _trim_heap() -> None:
    if hasattr(_LIBC, "malloc_trim"):  # glibc keeps freed memory until it is asked
        _LIBC.malloc_trim(0)


_returned_at = [0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Return the memory of a test that took much: that of the next would come on top of it."""
    _return_memory_above(_MUCH)


def _resident_bytes() -> int:
    """Return the memory that this process holds, or 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def made_up_times(parameters: es.Parameters) -> OperationTimes:
    """Those of a usual machine, about: they grow with the ring and its primes."""
    size = parameters.ring_degree / 8192 * len(parameters.data_moduli) / 3
    multiply, primes = (
        (0.36e-3 if parameters.scheme == "bgv" else 8.7e-3),
        len(parameters.data_moduli) / 3,
    )
    one = {
        "load": 6e-5,
        "add": 6e-5,
        "scale": 0.4e-3,
        "mask": 0.5e-3,
        "multiply": multiply,
        "switch": 0.8e-3,
    }
    one |= {"key_switch": 2.5e-3 * primes, "encrypt": 3e-3, "unpack": 1e-3}
    ratios = (0.08, 0.13) if parameters.scheme == "bgv" else (1.1, 1.4)
    return OperationTimes(
        **{name: size * seconds for name, seconds in one.items()},
        rows_ratio=ratios[0],
        finish_ratio=ratios[1],
    )


@pytest.fixture(scope="session", autouse=True)
def nothing_is_measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Plans price work by a made-up machine: to measure this one takes seconds for each set of
    parameters, and finds other times each time. Nothing of this machine's cache is read or written.
    Tests of the measuring itself import what measures.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENCRYPTEDSTATS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(calibration, "calibrate", made_up_times)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_process() -> Iterator[None]:
    """Who does not say how many gets one: a fork takes longer than what most tests compute. Tests
    of processes say how many.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (machine, base):
            patch.setattr(module, "cores", lambda: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def same_memory() -> Iterator[None]:
    """Limits of memory do not depend on what other programs of this machine hold. To ask the system
    takes longer than many a small computation.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "available_memory", lambda: 16 << 30)
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_passphrases() -> Iterator[None]:
    """A guess costs a thousandth of what it should: few tests are about that, and they say so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passphrase, "SCRYPT", {**passphrase.SCRYPT, "n": 1 << 7})
        yield


def pytest_collection_finish() -> None:
    """Modules and thousands of collected tests stay to the end: nobody looks through them again,
    and forks do not copy them.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def owner(scheme: str) -> es.Owner:
    """Real parameters: 128 bits, depth 2, N=8192."""
    return es.Owner(es.Parameters.choose(max_value=65_536, depth=2, scheme=scheme))


@pytest.fixture(scope="session")
def stranger(owner: es.Owner) -> es.Owner:
    """Another key for the same parameters."""
    return es.Owner(owner.parameters)


@pytest.fixture(scope="session")
def toy(scheme: str) -> es.Owner:
    """A small insecure ring, exact up to a million and four products deep: an operation takes a
    fraction of a millisecond.
    """
    return es.Owner(insecure_parameters(scheme, 1 << 20, (50,) * 6))


@pytest.fixture(scope="session")
def toy_stranger(toy: es.Owner) -> es.Owner:
    return es.Owner(toy.parameters)


@pytest.fixture(scope="session")
def tiny(scheme: str) -> es.Owner:
    """The smallest keys of all, for loaders that are run thousands of times."""
    return es.Owner(insecure_parameters(scheme, 4000, (36, 36, 36)))


@pytest.fixture(scope="session")
def tiny_stranger(tiny: es.Owner) -> es.Owner:
    return es.Owner(tiny.parameters)
