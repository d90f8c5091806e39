"""A hospital with an encrypted table of small blocks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

import cluster_samples as samples


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for known in ("encryptedstats.InsecureParametersWarning", "DeprecationWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{known}"))


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> samples.Hospital:
    return samples.new_hospital(tmp_path_factory.mktemp("hospital"))
