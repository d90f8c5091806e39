"""A hospital with an encrypted table, and one worker of every kind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx2")
pytest.importorskip("distributed")
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "service"))
sys.path.insert(0, str(Path(__file__).parents[1] / "procedures"))

import cluster_samples as samples
import distributed
import service_samples as service

import encryptedstats as es
from encryptedstats.cluster import scheduling
from encryptedstats.workers.queued import DaskWorker

PLACES = ("local", "dask", "queue", "service")


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


@contextmanager
def _working(queue: Path) -> Iterator[None]:
    """Work through a queue in a thread of this process."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.is_set():
            try:
                es.cluster.work(queue, lease=60, wait=0.2)
            except (es.EncryptedStatsError, OSError):  # a job was deleted while it was done, say
                stopping.wait(0.05)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what computes keeps its files."""
    return tmp_path_factory.mktemp("behind")


@pytest.fixture(scope="module", params=PLACES)
def worker(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[es.Worker]:
    """A worker of each kind, with something behind it that computes."""
    folder = folder / request.param
    folder.mkdir()
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if request.param == "local":
            made = es.connect("local")
        elif request.param == "dask":
            patch.setattr(scheduling, "refuse_secret_keys", lambda: None)
            client = stack.enter_context(
                distributed.Client(
                    processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
                )
            )
            made = DaskWorker(client, str(folder / "work"))
        elif request.param == "queue":
            patch.setenv("ENCRYPTEDSTATS_ALLOW", str(tmp_path_factory.getbasetemp()))
            made = es.connect(f"queue://{folder / 'work'}")
            stack.enter_context(_working(folder / "work"))
        else:
            server = stack.enter_context(
                service.Server(folder, replace(service.LIMITS, object_bytes=32 << 20))
            )
            stack.enter_context(server.worker())
            made = server.connect("north")
        yield stack.enter_context(made)
