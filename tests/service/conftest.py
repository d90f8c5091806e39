"""A hospital with an encrypted table, and servers that are real processes with real sockets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx2")
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

import cluster_samples as samples
import service_samples as service

import encryptedstats as es
from certificates import new_certificate


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The small rings of these tests warn wherever a table of theirs is opened."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(
                pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
            )


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> samples.Hospital:
    return samples.new_hospital(tmp_path_factory.mktemp("hospital"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Server]:
    """One server for all tests of a module, with a worker of its queue that is forked from this
    process.
    """
    with service.Server(tmp_path_factory.mktemp("server")) as running, running.worker():
        yield running


@pytest.fixture(scope="module")
def north(server: service.Server) -> Iterator[es.Worker]:
    """The server as an owner sees it."""
    with server.connect("north") as worker:
        yield worker


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that nobody vouches for, with its key."""
    return new_certificate(tmp_path_factory.mktemp("tls"))
