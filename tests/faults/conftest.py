"""All of these are faults; those of many rounds are slow as well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cluster"))

import cluster_samples as samples


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.faults)
            item.add_marker(
                pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
            )
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@pytest.fixture(params=[2, pytest.param(15, marks=pytest.mark.slow)], ids=["short", "long"])
def rounds(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> samples.Hospital:
    return samples.new_hospital(tmp_path_factory.mktemp("hospital"))
