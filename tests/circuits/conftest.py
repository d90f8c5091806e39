"""Keys for circuits, made once a session: small ones for most tests, real ones for a few."""

from __future__ import annotations

import pytest
from circuit_samples import SCHEMES, Lab, lab_of

import encryptedstats as es


@pytest.fixture(scope="session", params=SCHEMES)
def lab(request: pytest.FixtureRequest) -> Lab:
    """Both schemes, 1024 slots, all rotations."""
    return lab_of(request.param)


@pytest.fixture(scope="session")
def bgv() -> Lab:
    """One scheme, for what does not depend on it."""
    return lab_of("bgv")


@pytest.fixture(scope="session", params=SCHEMES)
def real(request: pytest.FixtureRequest) -> Lab:
    """128 bits of security, 8192 slots."""
    return Lab(es.Owner(es.Parameters.from_bits(request.param, 8192, 4000, (42, 43, 43, 43, 43))))
