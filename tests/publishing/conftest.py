"""What is published does not depend on the scheme: BGV alone, on a small insecure ring."""

from __future__ import annotations

import pytest

import encryptedstats as es
from insecure import insecure_parameters


@pytest.fixture(scope="session")
def owner() -> es.Owner:
    return es.Owner(insecure_parameters("bgv", 1 << 20, (50,) * 6))


@pytest.fixture(scope="session")
def stranger(owner: es.Owner) -> es.Owner:
    return es.Owner(owner.parameters)
