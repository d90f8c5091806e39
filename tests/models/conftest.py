"""Small keys for models: made once, so that a fit takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import model_samples as samples
import pytest

import encryptedstats as es


@pytest.fixture(scope="session")
def keeper() -> es.Owner:
    """One scheme, for what does not depend on it."""
    return samples.small_owner("bgv")


@pytest.fixture(scope="session")
def other_keeper() -> es.Owner:
    return samples.small_owner("bgv")


@pytest.fixture(scope="session")
def both() -> dict[str, es.Owner]:
    """Both schemes, for property tests."""
    return {scheme: samples.small_owner(scheme) for scheme in ("bfv", "bgv")}


@pytest.fixture(scope="session")
def sealed_fit(keeper: es.Owner) -> Callable[..., Any]:
    """A model fitted on the encrypted rows of a table, still encrypted."""

    def fit(model: Any, rows: es.Table, owner: es.Owner = keeper) -> Any:
        return model.fit(owner.encrypt(rows, workers=1), workers=1)

    return fit
