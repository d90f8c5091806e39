"""Fits on Dask: what travels, what is refused, and what happens when workers and schedulers, real
processes, are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, Hospital, names, start, until

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cluster import items, jobs, scheduling
from error_codes import error
from ports import free_port

distributed = pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")

PRELOAD = Path(__file__).with_name("slow_preload.py")
FIT = """
import sys, json
from encryptedstats import cluster, CompletelyRandomForest
from encryptedstats.cluster.scheduling import DaskRun, run_on_dask
table, out, address, patience = sys.argv[1:]
forest = CompletelyRandomForest(n_trees=4, depth=2, random_state=3)
job = cluster.submit(forest, table, out, rows_per_shard={rows})
run_on_dask(job, DaskRun(address, patience=float(patience), progress=True))
"""
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def fit_on_dask(
    table: Path, out: Path, scheduler: Any = None, patience: float = 60.0, **options: Any
) -> Any:
    job = cluster.submit(FOREST, table, out, rows_per_shard=ROWS, **options)
    scheduling.run_on_dask(job, scheduling.DaskRun(scheduler, patience=patience))
    return es.load(job.out, job.keys)


@contextmanager
def running(*arguments: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone afterwards, with all that it started."""
    process = start(*arguments, **{**QUIET, **options})
    try:
        yield process
    finally:
        kill_all(process)
        process.wait()


def kill_all(process: subprocess.Popen[str]) -> None:
    try:
        family = [
            *psutil.Process(process.pid).children(recursive=True),
            psutil.Process(process.pid),
        ]
    except psutil.NoSuchProcess:
        return
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def scheduler(port: int) -> Any:
    return running(
        "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"
    )


def worker(port: int, slow: float) -> Any:
    command = (
        "-m",
        "dask",
        "worker",
        f"tcp://127.0.0.1:{port}",
        "--nthreads",
        1,
        "--no-dashboard",
        "--preload",
        PRELOAD,
    )
    return running(*command, env={"SLOW_SECONDS": str(slow)})


def start_fit(
    hospital: Hospital, out: Path, port: int, patience: float = 100.0
) -> subprocess.Popen[str]:
    code = FIT.format(rows=ROWS)
    return start(
        "-c",
        code,
        hospital.table,
        out,
        f"tcp://127.0.0.1:{port}",
        patience,
        stdout=subprocess.DEVNULL,
    )


def ends_well(fit: subprocess.Popen[str]) -> None:
    _, errors = fit.communicate(timeout=600)
    assert fit.returncode == 0, errors


def shards_done(out: Path) -> int:
    return len(names(Path(f"{out}.work"), "shards"))


def worker_processes(nanny: subprocess.Popen[str]) -> list[int]:
    """Those that compute: the nanny starts them anew when they die."""
    children = psutil.Process(nanny.pid).children(recursive=True)
    return [child.pid for child in children if "resource_tracker" not in " ".join(child.cmdline())]


@pytest.mark.slow
def test_a_worker_is_killed_and_then_the_scheduler(hospital: Hospital, tmp_path: Path) -> None:
    """Both in one fit, which knows nothing of it but that it takes longer; no finished shard is
    written again.
    """
    port, out = free_port(), tmp_path / "m"
    with ExitStack() as stack:
        first = stack.enter_context(scheduler(port))
        nanny = stack.enter_context(worker(port, 1.0))
        fit = stack.enter_context(_ended(start_fit(hospital, out, port)))
        until(lambda: shards_done(out) >= 1, "finish a shard")
        for pid in worker_processes(nanny):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: shards_done(out) >= 2, "finish a shard after a worker was killed")
        kill_all(first)
        kill_all(nanny)
        done = {
            path: path.stat().st_mtime_ns for path in (tmp_path / "m.work" / "shards").glob("[!.]*")
        }
        assert 2 <= len(done) < BLOCKS
        stack.enter_context(scheduler(port))
        stack.enter_context(worker(port, 0.0))
        ends_well(fit)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert hospital.is_exact(FOREST, out)


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        kill_all(process)


@pytest.mark.slow
def test_a_slow_worker_is_overtaken(hospital: Hospital, tmp_path: Path) -> None:
    """One worker sits on its first shard for ever. The other does the rest, and then that shard
    too.
    """
    port, out = free_port(), tmp_path / "m"
    with ExitStack() as stack:
        stack.enter_context(scheduler(port))
        stack.enter_context(worker(port, 10_000.0))
        stack.enter_context(worker(port, 0.2))
        ends_well(stack.enter_context(_ended(start_fit(hospital, out, port))))
    assert hospital.is_exact(FOREST, out)


# -- in this process
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of these tests are nobody's: a scheduler may be near them."""
    monkeypatch.setattr(scheduling, "refuse_secret_keys", lambda: None)


def test_a_process_with_a_secret_key_is_refused(hospital: Hospital, tmp_path: Path) -> None:
    assert hospital.owner is not None
    with pytest.raises(es.ClusterError, check=error("secret-key-in-process")):
        fit_on_dask(hospital.table, tmp_path / "m", "tcp://127.0.0.1:9")


def test_a_process_without_one_is_not() -> None:
    code = (
        "from encryptedstats.cluster.scheduling import refuse_secret_keys as refuse; refuse(); "
        "print('none here')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout == "none here\n"


@pytest.mark.usefixtures("trusting")
def test_a_scheduler_that_is_not_there(hospital: Hospital, tmp_path: Path) -> None:
    items.run_item(job := submit(hospital, tmp_path), next(iter(job.items)))
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(es.ClusterError, check=error("scheduler-gone", address)):
        fit_on_dask(hospital.table, job.out, address, patience=0.5)


def submit(hospital: Hospital, tmp_path: Path) -> jobs.Job:
    return cluster.submit(FOREST, hospital.table, tmp_path / "m", rows_per_shard=ROWS)


@pytest.mark.usefixtures("trusting")
def test_what_is_no_scheduler(hospital: Hospital, tmp_path: Path) -> None:
    with pytest.raises(TypeError, check=error("not-a-scheduler", "scheduler=42")):
        fit_on_dask(hospital.table, tmp_path / "m", 42)
    with pytest.raises(
        ValueError, check=error("not-an-address", "'nonsense://x'", "scheduler='nonsense")
    ):
        fit_on_dask(hospital.table, tmp_path / "m", "nonsense://x")


@pytest.mark.usefixtures("trusting")
def test_without_dask(hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        es.ClusterError, check=error("missing-package", "'encryptedstats[cluster]'")
    ):
        fit_on_dask(hospital.table, tmp_path / "m")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A scheduler and a worker as threads of this process, where they can be looked at."""
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        yield client


@pytest.mark.usefixtures("trusting")
def test_only_names_travel_and_keys_are_read_once(
    hospital: Hospital, tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Any, ...]] = []
    submit_to = type(client).submit

    def submit(self: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(arguments)
        return submit_to(self, function, *arguments, **options)

    monkeypatch.setattr(type(client), "submit", submit)
    jobs.public_keys.cache_clear()
    out = tmp_path / "m"
    model = fit_on_dask(hospital.table, out, client, trees_per_task=2)
    assert model.is_encrypted
    assert (model.n_rows_, len(model.block_ids_)) == (BLOCKS * ROWS, BLOCKS)
    assert hospital.is_exact(FOREST, out)
    assert len(sent) > BLOCKS
    assert all(
        isinstance(value, str) and len(value) < 500 for arguments in sent for value in arguments
    )
    assert jobs.public_keys.cache_info().misses == 1


@pytest.mark.usefixtures("trusting")
def test_what_comes_back_is_small_and_plain(
    hospital: Hospital, tmp_path: Path, client: Any
) -> None:
    job = submit(hospital, tmp_path)
    result = client.submit(scheduling.dask_item, job.queue, job.id, next(iter(job.items))).result()
    assert {type(value) for value in result.values()} <= {str, int, float, bool}
    assert len(str(result)) < 500


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("kind", ["cut", "missing"])
def test_a_damaged_block_is_an_error_that_names_it(
    copied: Hospital, tmp_path: Path, client: Any, kind: str
) -> None:
    path = sorted((copied.table / "blocks").iterdir())[2]
    whole = path.read_bytes()
    path.write_bytes(whole[:-5]) if kind == "cut" else path.unlink()
    with pytest.raises((es.FileFormatError, FileNotFoundError), match=path.name):
        fit_on_dask(copied.table, tmp_path / "m", client)
    path.write_bytes(whole)
    fit_on_dask(copied.table, tmp_path / "m", client)
    assert copied.is_exact(FOREST, tmp_path / "m")


@pytest.mark.usefixtures("trusting")
def test_a_finished_fit_needs_no_cluster(
    hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(hospital, tmp_path)
    cluster.work(job.queue)
    monkeypatch.setattr(scheduling, "connect", lambda *_: pytest.fail("a cluster was started"))
    again = fit_on_dask(hospital.table, Path(job.out))
    assert again.n_rows_ == BLOCKS * ROWS
