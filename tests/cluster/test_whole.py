"""Jobs that are done whole, combine and draw, and jobs that are cancelled: through the same queue
and its workers.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import cluster_samples as samples
import pytest
from cluster_samples import BLOCKS, FOREST, SCHEMA, Hospital

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cluster.jobs import JOBS, StoredJob
from encryptedstats.cluster.queues import Sheet, _Worker, status_of
from encryptedstats.storage import container
from encryptedstats.storage.objects import open_store
from error_codes import error


@pytest.fixture(scope="module")
def parts(hospital: Hospital, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models of two parts of the rows, still encrypted."""
    place = tmp_path_factory.mktemp("parts")
    for blocks in (range(2), range(2, BLOCKS)):
        samples.store_table(hospital.owner, place / f"rows{blocks[0]}", blocks)
        FOREST.fit(es.load(place / f"rows{blocks[0]}"), workers=1).save(
            place / f"model{blocks[0]}.enc"
        )
    return [place / "model0.enc", place / "model2.enc"]


def test_answers_are_combined_and_forgotten(
    hospital: Hospital, parts: list[Path], tmp_path: Path
) -> None:
    queue, out = tmp_path / "work", tmp_path / "all.enc"
    job = cluster.submit_combination(parts, hospital.table, out, queue=queue)
    assert not job.finished
    assert cluster.work(queue).items == 1
    assert hospital.is_exact(FOREST, out)
    assert cluster.submit_combination(parts, hospital.table, out, queue=queue).finished
    (status,) = cluster.status(queue)
    assert (status.finished, status.state) == (True, "finished")
    less = tmp_path / "less.enc"
    cluster.submit_combination([out], hospital.table, less, forget=parts[:1], queue=queue)
    cluster.work(queue)
    assert hospital.is_exact(FOREST, less, range(2, BLOCKS))
    with pytest.raises(ValueError, check=error("wrong-number-of-answers")):
        cluster.submit_combination(parts[:1], hospital.table, tmp_path / "x", queue=queue)


def test_an_answer_that_was_exchanged_is_refused(
    hospital: Hospital, parts: list[Path], tmp_path: Path
) -> None:
    mine = [tmp_path / part.name for part in parts]
    for part, copy in zip(parts, mine, strict=True):
        copy.write_bytes(part.read_bytes())
    queue = tmp_path / "work"
    cluster.submit_combination(mine, hospital.table, tmp_path / "all.enc", queue=queue)
    mine[0].write_bytes(mine[1].read_bytes())
    with pytest.raises(es.FileFormatError, check=error("altered-file")):
        cluster.work(queue)
    (status,) = cluster.status(queue)
    assert len(status.failures) == 1
    assert not (tmp_path / "all.enc").exists()


def test_a_fraction_is_drawn_from_the_rows_of_a_forest_and_no_others(tmp_path: Path) -> None:
    owner = samples.small_owner(primes=9, kept=4)
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=4, random_state=1)
    samples.store_table(owner, tmp_path / "rows", range(2))
    samples.store_table(owner, tmp_path / "others", range(1))
    owner.public_keys([0, 1, 4, 16, 64, 256]).save(tmp_path / "public.keys")
    queue, keys = tmp_path / "work", tmp_path / "public.keys"
    cluster.submit(forest, tmp_path / "rows", tmp_path / "forest.enc", queue=queue)
    cluster.work(queue)
    cluster.submit_drawing(
        tmp_path / "forest.enc", tmp_path / "rows", tmp_path / "drawn.enc", queue=queue, keys=keys
    )
    cluster.work(queue)
    opened = owner.open(tmp_path / "drawn.enc", SCHEMA)
    clear = forest.fit(es.Table.concat([samples.rows(block) for block in range(2)]))
    assert list(opened.totals_) == list(clear.totals_)
    assert len(opened.drawn_) == len(clear.drawn_)
    other = tmp_path / "other-work"
    cluster.submit_drawing(
        tmp_path / "forest.enc", tmp_path / "others", tmp_path / "x.enc", queue=other, keys=keys
    )
    with pytest.raises(es.ClusterError, check=error("other-rows")):
        cluster.work(other)


def test_a_forged_job_is_set_aside(hospital: Hospital, parts: list[Path], tmp_path: Path) -> None:
    queue = tmp_path / "work"
    job = cluster.submit_combination(parts, hospital.table, tmp_path / "all.enc", queue=queue)
    file = container.from_bytes((queue / JOBS / job.id).read_bytes())
    for changed in (
        replace(file, fields={**file.fields, "verb": "delete"}),
        replace(file, sections={**file.sections, "answers": b"[[1, 2]]"}),
        replace(file, sections={**file.sections, "answers": b"[]"}),
    ):
        data = container.to_bytes(changed)
        name = hashlib.sha256(data).hexdigest()
        (queue / JOBS / name).write_bytes(data)
        with pytest.raises(es.FileFormatError, match=r"malformed list|not done whole"):
            StoredJob.load(str(queue), name)


def test_workers_begin_nothing_of_a_cancelled_job(hospital: Hospital, tmp_path: Path) -> None:
    queue, out = tmp_path / "work", tmp_path / "forest.enc"
    job = cluster.submit(FOREST, hospital.table, out, queue=queue)
    assert cluster.cancel(queue, job.id)
    assert not cluster.cancel(queue, "0" * 64)
    assert not cluster.cancel(queue, "../x")
    assert cluster.work(queue).items == 0
    (status,) = cluster.status(queue)
    assert (status.cancelled, status.state, status.shards_done) == (True, "cancelled", 0)
    cluster.submit(FOREST, hospital.table, out, queue=queue)
    assert cluster.work(queue).items > 0
    assert hospital.is_exact(FOREST, out)


def test_a_job_that_is_cancelled_in_the_middle_stops(hospital: Hospital, tmp_path: Path) -> None:
    queue = tmp_path / "work"
    job = cluster.submit(
        FOREST, hospital.table, tmp_path / "forest.enc", queue=queue, rows_per_shard=samples.ROWS
    )
    report = cluster.work(queue, on_done=lambda done: cluster.cancel(queue, job.id))
    assert report.items == 1
    (status,) = cluster.status(queue)
    assert (status.shards, status.shards_done, status.state) == (BLOCKS, 1, "cancelled")


def test_what_failed_is_tried_again_by_the_same_worker_when_it_is_submitted_again(
    copied: Hospital, tmp_path: Path
) -> None:
    queue, out = tmp_path / "work", tmp_path / "forest.enc"
    cluster.submit(FOREST, copied.table, out, queue=queue)
    damaged = next((copied.table / "blocks").iterdir())
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-1])
    worker = _Worker(open_store(queue), "one", 60.0, None, lambda _: None)
    with pytest.raises(es.FileFormatError):
        worker.run(0.0)
    damaged.write_bytes(good)
    with pytest.raises(es.FileFormatError):  # nobody has asked again
        worker.run(0.0)
    cluster.submit(FOREST, copied.table, out, queue=queue)
    worker.run(0.0)
    assert copied.is_exact(FOREST, out)


def test_an_end_result_that_could_not_be_placed_is_a_failure(
    hospital: Hospital, tmp_path: Path
) -> None:
    queue, out = tmp_path / "work", tmp_path / "missing-folder" / "forest.enc"
    job = cluster.submit(FOREST, hospital.table, out, queue=queue)
    with pytest.raises(OSError):
        cluster.work(queue)
    store = open_store(queue)
    status = status_of(Sheet.of(job), store.names(), store)
    assert not status.finished
    assert len(status.failures) == 1
