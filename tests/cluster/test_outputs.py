"""One end result, one job: later ones supersede or are refused, nothing that came later is written
over, no worker loops.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import cluster_samples as samples
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, Hospital, names

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cluster import items
from encryptedstats.cluster.jobs import JOBS
from encryptedstats.cluster.queues import DAMAGED, Lease, lease_name
from encryptedstats.storage.objects import open_store
from error_codes import error

OTHER = es.CompletelyRandomForest(n_trees=2, depth=1, random_state=3)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    return tmp_path / "queue"


def submit(model: Any, hospital: Hospital, queue: Path, **options: Any) -> Any:
    return cluster.submit(
        model, hospital.table, queue.parent / "m", queue=queue, rows_per_shard=2 * ROWS, **options
    )


def test_after_an_append_the_later_fit_stays(copied: Hospital, queue: Path) -> None:
    """Fit, append rows, the same fit again: workers used to write both models in turn, for ever."""
    first = submit(FOREST, copied, queue)
    cluster.work(queue)
    es.load(copied.table).append(copied.owner.encrypt(samples.rows(BLOCKS), workers=1))
    with pytest.raises(FileExistsError, check=error("already-exists")):
        submit(FOREST, copied, queue)
    second = submit(FOREST, copied, queue, overwrite=True)
    assert second.id != first.id
    for _ in range(3):
        cluster.work(queue)
        assert copied.is_exact(FOREST, queue.parent / "m", range(BLOCKS + 1))
    states = {state.id: state for state in cluster.status(queue)}
    assert states[first.id].superseded
    assert "superseded" in str(states[first.id])
    assert states[second.id].finished


def test_a_job_that_is_not_finished_is_given_up_only_when_asked(
    hospital: Hospital, queue: Path
) -> None:
    first = submit(FOREST, hospital, queue)
    with pytest.raises(es.ClusterError, check=error("unfinished-job", first.id[:12])):
        submit(OTHER, hospital, queue)
    assert names(queue, "jobs") == {first.id}
    submit(OTHER, hospital, queue, overwrite=True)
    cluster.work(queue)
    assert hospital.is_exact(OTHER, queue.parent / "m")
    submit(FOREST, hospital, queue, overwrite=True)  # and back again
    cluster.work(queue)
    assert hospital.is_exact(FOREST, queue.parent / "m")


def test_a_second_submission_says_that_it_is_finished(hospital: Hospital, queue: Path) -> None:
    assert not submit(FOREST, hospital, queue).finished
    assert not submit(FOREST, hospital, queue).finished
    cluster.work(queue)
    assert submit(FOREST, hospital, queue).finished


def test_what_appears_after_submission_is_not_written_over(hospital: Hospital, queue: Path) -> None:
    out = queue.parent / "m"
    submit(FOREST, hospital, queue)
    out.write_text("somebody's notes")
    with pytest.raises(FileExistsError, check=error("output-appeared")):
        cluster.work(queue)
    assert out.read_text() == "somebody's notes"
    OTHER.fit(es.load(hospital.table), workers=1).save(out, overwrite=True)
    with pytest.raises(FileExistsError, check=error("output-appeared")):
        cluster.work(queue)
    assert hospital.is_exact(OTHER, out)
    submit(FOREST, hospital, queue, overwrite=True)
    cluster.work(queue)
    assert hospital.is_exact(FOREST, out)


def test_two_queues_for_one_end_result(hospital: Hospital, queue: Path, tmp_path: Path) -> None:
    submit(FOREST, hospital, queue)
    cluster.work(queue)
    cluster.submit(OTHER, hospital.table, tmp_path / "m", queue=tmp_path / "second", overwrite=True)
    cluster.work(tmp_path / "second")
    with pytest.raises(FileExistsError, check=error("output-appeared")):
        cluster.work(queue)
    assert hospital.is_exact(OTHER, tmp_path / "m")


def test_a_superseded_job_writes_nothing_even_if_it_is_under_way(
    hospital: Hospital, queue: Path
) -> None:
    """A worker that stood still before its last step."""
    first = submit(FOREST, hospital, queue)
    for name in list(first.items)[:-1]:
        items.run_item(first, name)
    submit(OTHER, hospital, queue, overwrite=True)
    with pytest.raises(es.ClusterError, check=error("superseded-job")):
        items.run_item(first, first.record)
    assert not (queue.parent / "m").exists()


# -- damaged jobs
# ------------------------------------------------------------------------------------------------


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def sparse(path: Path) -> None:
    os.truncate(path, 40 << 30)


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "sparse": sparse,
    "fifo": fifo,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_job_holds_no_other_up(
    hospital: Hospital, queue: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = cluster.submit(OTHER, hospital.table, queue.parent / "other", queue=queue)
    submit(FOREST, hospital, queue)
    DAMAGES[damage](queue / JOBS / bad.id)
    with caplog.at_level(logging.WARNING, "encryptedstats.cluster"):
        cluster.work(queue)
    assert hospital.is_exact(FOREST, queue.parent / "m")
    assert f"{bad.id}" in caplog.text
    assert "the job is set aside; submit it again, or delete it" in caplog.text
    assert names(queue, DAMAGED) == {bad.id}
    (state,) = (one for one in cluster.status(queue) if one.id == bad.id)
    assert not state.finished
    assert "set aside" in state.failures[0].message
    cluster.submit(OTHER, hospital.table, queue.parent / "other", queue=queue)  # repairs it
    cluster.work(queue)
    assert hospital.is_exact(OTHER, queue.parent / "other")


# -- leases and places
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_lease_has_an_end(hospital: Hospital, queue: Path, seconds: float) -> None:
    with pytest.raises(ValueError, check=error("lease-out-of-range", "0", "604,800")):
        cluster.work(queue, lease=seconds)
    assert seconds == 0 or Lease.from_bytes(Lease("x", "y", seconds).to_bytes()) is None


def test_a_lease_that_is_no_file_holds_nobody_up(hospital: Hospital, queue: Path) -> None:
    job = submit(FOREST, hospital, queue)
    place = queue / lease_name(next(iter(job.items)))
    place.parent.mkdir()
    place.write_bytes(b"")
    os.truncate(place, 40 << 30)
    cluster.work(queue)
    assert hospital.is_exact(FOREST, queue.parent / "m")


def test_jobs_stay_within_what_is_allowed(
    copied: Hospital, queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENCRYPTEDSTATS_ALLOW")
    far = tmp_path / "far" / "away"
    far.mkdir(parents=True)
    submit(FOREST, copied, queue)  # beside the queue
    cluster.submit(OTHER, copied.table, queue / ".." / "far" / "away" / "m", queue=queue)
    cluster.work(queue)
    assert copied.is_exact(FOREST, tmp_path / "m")
    inner = far / "queue"
    job = cluster.submit(OTHER, copied.table, far / "n", queue=inner)
    with pytest.raises(es.ClusterError, check=error("place-not-allowed", copied.table, far)):
        cluster.work(inner)
    assert not (far / "n").exists()
    (far / "link").symlink_to(tmp_path)
    with pytest.raises(es.ClusterError, check=error("place-not-allowed")):
        cluster.work(inner, allow=[tmp_path / "m"])
    cluster.work(inner, allow=[tmp_path / "train"])
    assert copied.is_exact(OTHER, job.out)


def test_nobody_is_kept_by_leftovers(hospital: Hospital, queue: Path) -> None:
    submit(FOREST, hospital, queue)
    (queue / "shards").mkdir()
    (queue / "shards" / ".x.00000000-1-1-00000000.tmp").write_bytes(b"half")
    os.utime(queue / "shards" / ".x.00000000-1-1-00000000.tmp", (0, 0))
    cluster.work(queue)
    assert not list(queue.rglob("*.tmp"))
    assert open_store(queue).names()
