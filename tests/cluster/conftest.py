"""A hospital whose table was encrypted once; tests that damage something get a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import cluster_samples as samples
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The small rings of these tests warn wherever a table of theirs is opened."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(
                pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
            )


@pytest.fixture(autouse=True)
def anywhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of all tests lies in a folder of its own: workers may go there."""
    monkeypatch.setenv("ENCRYPTEDSTATS_ALLOW", str(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> samples.Hospital:
    return samples.new_hospital(tmp_path_factory.mktemp("hospital"))


@pytest.fixture
def copied(hospital: samples.Hospital, tmp_path: Path) -> samples.Hospital:
    """The same hospital, with a table that may be damaged."""
    place = tmp_path / "train"
    shutil.copytree(hospital.table, place)
    return samples.Hospital(hospital.owner, place)
