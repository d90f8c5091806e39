"""Keys for encrypted tables, made once a session: small ones for most tests, real ones for facts
about size.
"""

from __future__ import annotations

import encrypted_samples as samples
import pytest

import encryptedstats as es


@pytest.fixture(scope="session")
def small(scheme: str) -> es.Owner:
    """Both schemes, 1024 slots."""
    return samples.small_owner(scheme)


@pytest.fixture(scope="session")
def keeper() -> es.Owner:
    """One scheme, for what does not depend on it."""
    return samples.small_owner()


@pytest.fixture(scope="session")
def stranger_keeper() -> es.Owner:
    """Another key for the same parameters."""
    return samples.small_owner()


@pytest.fixture(scope="session")
def real() -> es.Owner:
    """128 bits of security, 8192 slots, 4 data primes of 43 and 44 bits."""
    return es.Owner(es.Parameters.from_bits("bgv", 8192, 4000, (42, 43, 43, 43, 43)))


@pytest.fixture(scope="session")
def schema() -> es.Schema:
    return samples.mixed_schema()
