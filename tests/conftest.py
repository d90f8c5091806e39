"""Keys that many tests share, made once a session: real ones for what is shown, small insecure ones for what is tried often."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

import effort  # noqa: F401  # sets how many examples Hypothesis tries
import encryptedstats as es

SCHEMES = ("bfv", "bgv")
_LIBC = ctypes.CDLL(None)


def insecure_parameters(scheme: str, max_value: int, bits: tuple[int, ...], ring_degree: int = 1024) -> es.Parameters:
    """Parameters of a ring so small that thousands of operations take seconds; made by the library's own builder."""
    with pytest.warns(es.InsecureParametersWarning):
        return es.Parameters.from_bits(scheme, ring_degree, max_value, bits, allow_insecure=True)


@pytest.fixture(scope="module", autouse=True)
def caches_end_with_their_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Those of the kernels take 1.5 GB, and every process that is forked later is the slower for it."""
    yield
    own = [value for value in vars(request.module).values() if hasattr(value, "cache_clear")]
    for value in own:
        if value.__module__ == request.module.__name__:
            value.cache_clear()
    if own and hasattr(_LIBC, "malloc_trim"):  # glibc keeps what was freed, unless it is asked
        _LIBC.malloc_trim(0)


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
    """A small insecure ring, exact up to a million and four products deep: an operation takes a fraction of a millisecond."""
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
