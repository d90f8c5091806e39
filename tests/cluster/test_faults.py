"""What can go wrong with stored objects: the result is exact, or an error names the object; what
was paid for is not lost.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_samples import (
    BLOCKS,
    FOREST,
    ROWS,
    SLOW,
    Hospital,
    finish,
    names,
    start,
    start_worker,
    until,
)

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cluster import items, jobs
from encryptedstats.cluster.jobs import Job
from encryptedstats.storage.objects import open_store
from error_codes import error


def blocks(hospital: Hospital) -> list[Path]:
    return sorted((hospital.table / "blocks").iterdir())


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = (cut_short, flip_a_byte, empty, Path.unlink)


@pytest.fixture
def job(copied: Hospital, tmp_path: Path) -> Job:
    return cluster.submit(FOREST, copied.table, tmp_path / "m", rows_per_shard=ROWS)


# -- the table
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_block_is_named_and_all_else_is_done(
    job: Job, copied: Hospital, damage: Any
) -> None:
    """Mended, only the shard of that block is left to do."""
    path = blocks(copied)[3]
    whole = path.read_bytes()
    damage(path)
    with pytest.raises((es.FileFormatError, FileNotFoundError), match=path.name):
        cluster.work(job.queue)
    assert not Path(job.out).exists()
    (state,) = cluster.status(job.queue)
    assert (state.shards_done, state.finished) == (BLOCKS - 1, False)
    assert path.name in state.failures[0].message
    path.write_bytes(whole)
    assert cluster.work(job.queue).shards == 1
    assert copied.is_exact(FOREST, job.out)


def test_an_exchanged_block_is_named(job: Job, copied: Hospital) -> None:
    """Whole and valid, but not the one that the table lists there: what a stale store
    would serve.
    """
    first, second = blocks(copied)[:2]
    shutil.copy(first, second)
    with pytest.raises(es.FileFormatError, check=error("block-not-listed", second.name)):
        cluster.work(job.queue)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_keys_are_named(job: Job, copied: Hospital, damage: Any) -> None:
    (path,) = copied.table.glob("public-*.keys")
    damage(path)
    jobs.public_keys.cache_clear()  # this process has read them already
    jobs._load_job.cache_clear()
    with pytest.raises((es.FileFormatError, FileNotFoundError), match=path.name):
        cluster.work(job.queue)


def test_a_worker_with_damaged_keys_says_so_and_ends(job: Job, copied: Hospital) -> None:
    (path,) = copied.table.glob("public-*.keys")
    flip_a_byte(path)
    worker = start(SLOW, job.queue, 0.0, 60.0)
    _, errors = worker.communicate(timeout=600)
    assert worker.returncode == 1
    assert path.name in errors


def test_a_stale_manifest_does_no_harm(job: Job, copied: Hospital) -> None:
    """The job brings the list of blocks that it was made for; what the table's own says later is
    not looked at.
    """
    es.load(copied.table).append(copied.owner.encrypt(copied.plain(range(1)), workers=1))
    cluster.work(job.queue)
    assert copied.is_exact(FOREST, job.out)
    (copied.table / "table.manifest").unlink()
    assert cluster.work(job.queue).items == 0


# -- results
# ------------------------------------------------------------------------------------------------


def results(job: Job, folder: str) -> list[Path]:
    return sorted(Path(job.queue) / folder / name for name in names(Path(job.queue), folder))


def do_shards(job: Job) -> list[Path]:
    for item in job.items.values():
        if item.is_shard:
            items.run_item(job, item.name)
    return results(job, "shards")


@pytest.mark.parametrize("damage", DAMAGES[:3], ids=lambda damage: damage.__name__)
def test_a_damaged_result_is_made_again(
    job: Job, copied: Hospital, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    done = do_shards(job)
    whole = done[2].read_bytes()
    damage(done[2])
    with caplog.at_level(logging.WARNING, "encryptedstats.cluster"):
        cluster.work(job.queue)
    assert done[2].name in caplog.text
    assert "made again" in caplog.text
    assert done[2].read_bytes() == whole
    assert copied.is_exact(FOREST, job.out)


def test_counting_a_shard_twice_is_impossible(job: Job, copied: Hospital) -> None:
    """One shard's result under the name of another: valid, and of the right shape."""
    done = do_shards(job)
    shutil.copy(done[0], done[1])
    item = job.items[f"shards/{done[1].name}"]
    with pytest.raises(es.FileFormatError, check=error("other-result", done[1].name)):
        items.read_result(job, item, open_store(job.queue))
    cluster.work(job.queue)
    assert copied.is_exact(FOREST, job.out)


def test_leaving_a_shard_out_is_impossible(job: Job, copied: Hospital) -> None:
    """A sum of too few shards under the name of the sum of all."""
    done = do_shards(job)
    store = open_store(job.queue)
    total = next(item for item in job.items.values() if item.name.startswith("sums/"))
    some = [items.read_result(job, job.items[name], store) for name in total.needs[:-1]]
    partly = some[0]
    for one in some[1:]:
        partly = partly + one
    forged = items.Item(
        total.name, total.needs[:-1], total.shards[:-1], total.outputs, total.blocks, total.rows
    )
    store.write(total.name, [items.result_bytes(forged, partly)])
    with pytest.raises(
        es.FileFormatError,
        match="other shards than it must: some would be left out or counted twice",
    ):
        items.read_result(job, total, store)
    cluster.work(job.queue)
    assert copied.is_exact(FOREST, job.out)
    assert len(done) == BLOCKS


def test_results_of_another_fit_are_refused(job: Job, copied: Hospital, tmp_path: Path) -> None:
    other = es.CompletelyRandomForest(n_trees=2, depth=1, random_state=3)
    theirs = cluster.submit(other, copied.table, tmp_path / "other", rows_per_shard=ROWS)
    item, foreign = (next(iter(one.items.values())) for one in (job, theirs))
    items.run_item(theirs, foreign.name)
    totals = items.read_result(theirs, foreign, open_store(theirs.queue))
    store = open_store(job.queue)
    store.write(item.name, [items.result_bytes(item, totals)])
    with pytest.raises(es.FileFormatError, match="totals of another computation"):
        items.read_result(job, item, store)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_model_or_record_is_written_again(
    job: Job, copied: Hospital, damage: Any
) -> None:
    cluster.work(job.queue)
    for path in (Path(job.out), *results(job, "records")):
        damage(path)
        assert not cluster.status(job.queue)[0].finished
        assert cluster.work(job.queue).shards == 0
        assert copied.is_exact(FOREST, job.out)


# -- a full disk
# ------------------------------------------------------------------------------------------------

_FULL = """
set -e
mount -t tmpfs -o size=$1 tmpfs "$2"
cp -r "$2.jobs/." "$2"
"$3" "$4" "$2" 0 60 2> "$2.errors" || true
mkdir -p "$2.saved" && cp -r "$2/." "$2.saved"
"""


def can_mount() -> bool:
    """Whether a file system of its own can be had here, in a namespace that ends with the test."""
    test = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
    try:
        return subprocess.run(test, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_mount(), reason="no file systems can be mounted here")
def test_a_full_disk_is_named_and_what_was_done_is_kept(
    job: Job, copied: Hospital, tmp_path: Path
) -> None:
    """A real, small file system that is full after two results; then their worker goes on where
    there is room.
    """
    size = (Path(job.queue) / "jobs" / job.id).stat().st_size
    item = next(iter(job.items.values()))
    items.run_item(job, item.name)
    one = (Path(job.queue) / item.name).stat().st_size
    (Path(job.queue) / item.name).unlink()
    place = tmp_path / "disk"
    place.mkdir()
    shutil.copytree(job.queue, f"{place}.jobs")
    script = [
        "unshare",
        "-m",
        "bash",
        "-c",
        _FULL,
        "-",
        f"{size + 2 * one + one // 2 + 7 * 4096}",
        str(place),
    ]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([*script, sys.executable, str(SLOW)], check=True, timeout=600, env=environment)
    errors = Path(f"{place}.errors").read_text()
    assert "No space left on device" in errors
    assert f"{place}/" in errors.splitlines()[-1]
    kept = results(Job(**{**vars_of(job), "queue": f"{place}.saved"}), "shards")
    assert 0 < len(kept) < BLOCKS
    report = cluster.work(f"{place}.saved")
    assert report.shards == BLOCKS - len(kept)
    assert copied.is_exact(FOREST, job.out)


def vars_of(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__dataclass_fields__}


# -- several at once
# ------------------------------------------------------------------------------------------------


def test_workers_that_all_begin_with_the_same_shard_do_no_harm(job: Job, copied: Hospital) -> None:
    """Leases that run out at once: everybody takes everything from everybody."""
    workers = [start_worker(job.queue, slow=0.2, lease=0.001) for _ in range(2)]
    until(lambda: all(worker.poll() is not None for worker in workers), "finish")
    for worker in workers:
        finish(worker)
    assert copied.is_exact(FOREST, job.out)
