"""Workers without a scheduler: exact, by lease, started twice, killed, stopped and slow."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import cluster_samples as samples
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, Hospital, finish, names, start_worker, until

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cluster import items, queues
from encryptedstats.cluster.jobs import Job
from encryptedstats.cluster.queues import LEASES, Lease, lease_name
from encryptedstats.storage.objects import open_store
from error_codes import error

MODELS = (
    FOREST,
    es.SemiparametricNB(),
    es.OneStepLogisticRegression(),
    es.MultinomialNB(),
    es.LinearMeans(),
    es.FisherDiscriminant(),
)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_fit_of_shards_is_the_fit(hospital: Hospital, tmp_path: Path, model: Any) -> None:
    job = cluster.submit(model, hospital.table, tmp_path / "m", rows_per_shard=2 * ROWS)
    report = cluster.work(job.queue)
    assert (report.shards, report.rows) == (BLOCKS // 2, BLOCKS * ROWS)
    assert hospital.is_exact(model, tmp_path / "m")


@pytest.mark.parametrize("scheme", ["bgv", "bfv"])
@pytest.mark.parametrize("trees_per_task", [1, 3, 100])
def test_split_by_rows_and_trees(tmp_path: Path, scheme: str, trees_per_task: int) -> None:
    owner = samples.small_owner(scheme)
    samples.store_table(owner, tmp_path / "train", range(3))
    hospital = Hospital(owner, tmp_path / "train")
    job = cluster.submit(
        FOREST, hospital.table, tmp_path / "m", rows_per_shard=ROWS, trees_per_task=trees_per_task
    )
    assert (len(job.ranges) > 1) == (trees_per_task < 100)
    cluster.work(job.queue)
    assert hospital.is_exact(FOREST, tmp_path / "m", range(3))
    # The same bytes as a fit in one piece would be too much to ask: packs are narrower. The same
    # model it is.
    whole = FOREST.fit(es.load(hospital.table), workers=1)
    found = es.load(tmp_path / "m", keys=owner.public_keys())
    assert (found.n_rows_, found.block_ids_) == (whole.n_rows_, whole.block_ids_)


def test_more_shards_than_packs_have_room_for_by_default(tmp_path: Path) -> None:
    """Seventeen and more results need more than the four bits that every pack leaves: narrower
    packs have them.
    """
    owner = es.Owner(es.plan(FOREST, samples.SCHEMA, 18 * ROWS))
    samples.store_table(owner, tmp_path / "train", range(18))
    hospital = Hospital(owner, tmp_path / "train")
    job = cluster.submit(FOREST, hospital.table, tmp_path / "m", rows_per_shard=ROWS)
    assert len(job.shards) == 18
    cluster.work(job.queue)
    assert hospital.is_exact(FOREST, tmp_path / "m", range(18))


# -- never twice
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def job(hospital: Hospital, tmp_path: Path) -> Job:
    return cluster.submit(FOREST, hospital.table, tmp_path / "m", rows_per_shard=ROWS)


def test_finished_shards_are_never_computed_again(
    job: Job, hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [item.name for item in job.items.values() if item.is_shard]:
        items.run_item(job, name)
    before = {path: path.stat().st_mtime_ns for path in (Path(job.queue) / "shards").iterdir()}
    monkeypatch.setattr(items, "_evaluate", lambda *_: pytest.fail("a shard was computed again"))
    report = cluster.work(job.queue)
    assert report.shards == 0
    assert report.items > 0
    assert cluster.work(job.queue).items == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert hospital.is_exact(FOREST, tmp_path / "m")


def test_a_second_submission_finds_the_model_there(job: Job, hospital: Hospital) -> None:
    cluster.work(job.queue)
    again = cluster.submit(FOREST, hospital.table, job.out, rows_per_shard=ROWS)
    assert again.id == job.id
    assert cluster.status(job.queue)[0].finished


def test_only_new_rows_are_computed_after_an_append(copied: Hospital, tmp_path: Path) -> None:
    queue = tmp_path / "queue"
    cluster.submit(FOREST, copied.table, tmp_path / "m", queue=queue, rows_per_shard=ROWS)
    cluster.work(queue)
    es.load(copied.table).append(copied.owner.encrypt(samples.rows(BLOCKS), workers=1))
    cluster.submit(FOREST, copied.table, tmp_path / "n", queue=queue, rows_per_shard=ROWS)
    assert cluster.work(queue).shards == 1
    assert copied.is_exact(FOREST, tmp_path / "n", range(BLOCKS + 1))


def test_the_record_says_which_shards_went_in(job: Job) -> None:
    cluster.work(job.queue)
    file = items.read_record(job, open_store(job.queue))
    shards = json.loads(file.section("shards"))
    assert [name for name, _, _ in shards] == list(job.items[job.record].shards)
    blocks = [block for _, _, ids in shards for block in ids]
    assert sorted(blocks) == sorted(es.load(job.table).blocks.ids)
    assert len(set(blocks)) == len(blocks)


# -- leases
# ------------------------------------------------------------------------------------------------


def claim(job: Job, name: str, seconds: float) -> None:
    open_store(job.queue).write(lease_name(name), [Lease("somebody", "token", seconds).to_bytes()])


def test_what_somebody_is_at_is_left_alone_until_the_lease_runs_out(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is the watcher's own; time passes when it sleeps."""
    taken = next(iter(job.items))
    claim(job, taken, seconds=1000.0)
    now = [0.0]
    monkeypatch.setattr(queues.time, "monotonic", lambda: now[0])
    order: list[tuple[str, float]] = []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(queues.time, "sleep", sleep)
    report = cluster.work(job.queue, on_done=lambda done: order.append((done.name, now[0])))
    when = dict(order)
    assert report.shards == BLOCKS
    assert when.pop(taken) >= 1000.0
    assert all(at == 0.0 for name, at in when.items() if job.items[name].is_shard)


def test_a_lease_that_changes_hands_counts_from_then_on(job: Job) -> None:
    item = next(iter(job.items.values()))
    worker = queues._Worker(open_store(job.queue), "me", 60.0, None, lambda _: None)
    claim(job, item.name, seconds=0.05)
    assert not worker._has_run_out(item)
    time.sleep(0.1)
    open_store(job.queue).write(lease_name(item.name), [Lease("another", "new", 30.0).to_bytes()])
    assert not worker._has_run_out(item)
    claim(job, item.name, seconds=0.0)
    assert not worker._has_run_out(item)
    assert worker._has_run_out(item)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"worker": "x"}', b"\xff" * 9])
def test_a_lease_that_is_none_holds_nobody_up(job: Job, hospital: Hospital, content: bytes) -> None:
    for name in job.items:
        open_store(job.queue).write(lease_name(name), [content])
    cluster.work(job.queue)
    assert hospital.is_exact(FOREST, job.out)


def test_one_of_many_gets_a_lease(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert [store.create("lease", bytes([k])) for k in range(5)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert store.read("lease") == b"\x00"


def test_an_interrupted_worker_gives_its_lease_back(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(items, "_evaluate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cluster.work(job.queue)
    assert not names(Path(job.queue), LEASES)


def test_wrong_lease(job: Job) -> None:
    with pytest.raises(ValueError, check=error("lease-out-of-range", "lease=0")):
        cluster.work(job.queue, lease=0)


# -- real processes
# ------------------------------------------------------------------------------------------------


def test_two_workers_share_the_work(job: Job, hospital: Hospital) -> None:
    workers = [start_worker(job.queue, slow=0.3) for _ in range(2)]
    reports = [json.loads(finish(worker)) for worker in workers]
    assert (
        sum(report["shards"] for report in reports) == BLOCKS
    )  # started twice, nothing done twice
    assert hospital.is_exact(FOREST, job.out)
    (state,) = cluster.status(job.queue)
    assert state.finished
    assert state.shards_done == state.shards == BLOCKS
    assert state.rows_done == state.rows == BLOCKS * ROWS
    assert {name: one["shards"] for name, one in state.workers.items()} == {
        report["worker"]: report["shards"] for report in reports if report["items"]
    }
    assert "6 of 6 shards" in str(state)


def under_way(job: Job) -> bool:
    """Some shard is finished, and another is claimed and not finished."""
    queue = Path(job.queue)
    return 0 < len(names(queue, "shards")) < len(names(queue, LEASES))


def test_killing_a_worker_in_the_middle_costs_time_and_nothing_else(
    job: Job, hospital: Hospital, tmp_path: Path
) -> None:
    victim = start_worker(job.queue, lease=1.0, released=tmp_path / "never")
    until(lambda: under_way(job), "finish a shard and begin another")
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    finished = {
        path: path.stat().st_mtime_ns for path in (Path(job.queue) / "shards").glob("[!.]*")
    }
    assert len(finished) == 1
    report = cluster.work(job.queue, lease=1.0)
    assert report.shards == BLOCKS - len(finished)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished  # paid for once
    assert hospital.is_exact(FOREST, job.out)


def test_a_stopped_worker_is_overtaken_and_does_no_harm_when_it_goes_on(
    job: Job, hospital: Hospital, tmp_path: Path
) -> None:
    """The slowest worker of all: it stands still, is taken for lost, and then finishes what another
    has finished.
    """
    released = tmp_path / "released"
    slow = start_worker(job.queue, lease=1.0, released=released)
    until(lambda: under_way(job), "finish a shard and begin another")
    os.kill(slow.pid, signal.SIGSTOP)
    try:
        cluster.work(job.queue, lease=1.0)
        before = Path(job.out).read_bytes()
        assert hospital.is_exact(FOREST, job.out)
    finally:
        released.touch()
        os.kill(slow.pid, signal.SIGCONT)
    finish(slow)
    assert Path(job.out).read_bytes() == before


def test_two_workers_on_one_shard_write_the_same_bytes(
    job: Job, hospital: Hospital, tmp_path: Path
) -> None:
    other = cluster.submit(FOREST, hospital.table, tmp_path / "other", rows_per_shard=ROWS)
    assert {item for item in other.items if "records" not in item} == {
        item for item in job.items if "records" not in item
    }
    cluster.work(job.queue)
    finish(start_worker(other.queue))
    for folder in ("shards", "sums"):
        for name in names(Path(job.queue), folder):
            assert (Path(job.queue) / folder / name).read_bytes() == (
                Path(other.queue) / folder / name
            ).read_bytes()
    assert Path(job.out).read_bytes() == Path(other.out).read_bytes()
