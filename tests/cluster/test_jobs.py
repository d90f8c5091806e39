"""Cutting a fit into items: nothing is left out, nothing is there twice, and names say what an item
is made from.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cluster_samples as samples
import numpy as np
import pandas as pd
import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, Hospital
from hypothesis import given
from hypothesis import strategies as st

import encryptedstats as es
from encryptedstats import cluster, machine
from encryptedstats.circuits.expressions import Expression, circuit_digest, column
from encryptedstats.circuits.shards import FAN_IN, MAX_SHARD_CHUNKS
from encryptedstats.cluster import jobs
from encryptedstats.cluster.jobs import JOBS, Job, cut_rows
from encryptedstats.storage import container
from encryptedstats.tables.questions.summaries import Counts
from error_codes import error


@given(
    rows=st.lists(st.integers(1, 50), min_size=1, max_size=60), size=st.none() | st.integers(1, 200)
)
def test_every_block_is_in_exactly_one_shard(rows: list[int], size: int | None) -> None:
    shards = cut_rows(rows, size)
    assert [block for a, b in shards for block in range(a, b)] == list(range(len(rows)))
    if size is not None:
        assert all(sum(rows[a:b]) <= size or b - a == 1 for a, b in shards)
        assert all(
            sum(rows[a:b]) + rows[b] > size for a, b in shards if b < len(rows)
        )  # none is smaller than it must be


def test_default_shards_are_few_and_not_too_large() -> None:
    assert len(cut_rows([8192], None)) == 1
    assert len(cut_rows([8192] * 123, None)) == 31
    assert max(b - a for a, b in cut_rows([8192] * 100_000, None)) == MAX_SHARD_CHUNKS


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5])
def test_wrong_sizes(hospital: Hospital, tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, check=error("not-a-count", "1")):
        cluster.submit(FOREST, hospital.table, tmp_path / "m", rows_per_shard=wrong)
    with pytest.raises(ValueError, check=error("not-a-count", "1")):
        cluster.submit(FOREST, hospital.table, tmp_path / "m", trees_per_task=wrong)


def test_numpy_integers_are_sizes(hospital: Hospital, tmp_path: Path) -> None:
    sizes = {"rows_per_shard": ROWS, "trees_per_task": 2}
    wanted = cluster.submit(FOREST, hospital.table, tmp_path / "m", queue=tmp_path / "q", **sizes)
    found = cluster.submit(
        FOREST,
        hospital.table,
        tmp_path / "m",
        queue=tmp_path / "q",
        **{name: np.int64(n) for name, n in sizes.items()},
    )
    assert found.id == wanted.id


def test_workers_share_the_memory_of_their_machine(
    hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one for every core: each takes its part of what one fit would take."""
    evaluate, limits = es.EncryptedTable.evaluate, []

    def watched(table: es.EncryptedTable, outputs: Any, **options: Any) -> Any:
        limits.append(options["memory_limit"])
        return evaluate(table, outputs, **options)

    monkeypatch.setattr(es.EncryptedTable, "evaluate", watched)
    monkeypatch.setattr(machine, "available_memory", lambda: 64 << 30)
    monkeypatch.setattr(jobs, "cores", lambda: 8)
    job = cluster.submit(FOREST, hospital.table, tmp_path / "m", rows_per_shard=ROWS)
    job.evaluate(next(item for item in job.items.values() if item.is_shard))
    assert limits == [2 << 30]


def test_what_cannot_be_submitted(hospital: Hospital, tmp_path: Path) -> None:
    with pytest.raises(ValueError, check=error("no-trees")):
        cluster.submit(es.MultinomialNB(), hospital.table, tmp_path / "m", trees_per_task=2)
    with pytest.raises(TypeError, check=error("not-a-question")):
        cluster.submit("forest", hospital.table, tmp_path / "m")  # type: ignore[arg-type]  # that is what is tried
    with pytest.raises(
        FileNotFoundError, match=r"nowhere.table\.manifest is not there: no encrypted table"
    ):
        cluster.submit(FOREST, tmp_path / "nowhere", tmp_path / "m")
    (tmp_path / "m").write_bytes(b"mine")
    with pytest.raises(FileExistsError, check=error("already-exists")):
        cluster.submit(FOREST, hospital.table, tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"mine"
    assert not (tmp_path / "m.work").exists()


def test_a_fit_that_the_keys_cannot_carry_is_refused_before_any_work(tmp_path: Path) -> None:
    samples.store_table(samples.small_owner(primes=3), tmp_path / "train", range(2))
    with pytest.raises(es.NoiseError, check=error("not-proven")):
        cluster.submit(FOREST, tmp_path / "train", tmp_path / "m")
    assert not (tmp_path / "m.work").exists()


def test_more_results_than_can_be_added_up_are_refused_before_any_work(
    hospital: Hospital, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if there were so many shards that not even a pack of one total has room for
    their noise.
    """
    monkeypatch.setattr(jobs, "room_for", lambda _, flooded: 500.0)
    with pytest.raises(es.NoiseError, check=error("too-many-shards", "6")):
        cluster.submit(FOREST, hospital.table, tmp_path / "m", rows_per_shard=ROWS)


def test_a_sum_that_would_overflow_is_refused_before_any_work(tmp_path: Path) -> None:
    """Every shard fits on its own; all of them together do not."""
    owner = samples.small_owner(max_value=64)
    limit = owner.parameters.max_value
    bound = limit // ROWS
    assert bound * ROWS <= limit < bound * 4 * ROWS
    samples.store_table(owner, tmp_path / "weighted", range(4), weight_bound=bound)
    with pytest.raises(OverflowError, check=error("larger-values")):
        cluster.submit(FOREST, tmp_path / "weighted", tmp_path / "m", rows_per_shard=ROWS)


# -- items and names
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job(hospital: Hospital, tmp_path_factory: pytest.TempPathFactory) -> Job:
    place = tmp_path_factory.mktemp("job") / "m"
    return cluster.submit(FOREST, hospital.table, place, rows_per_shard=ROWS, trees_per_task=2)


def test_items_come_after_what_they_need_and_hold_each_shard_once(job: Job) -> None:
    seen: set[str] = set()
    for item in job.items.values():
        assert seen.issuperset(item.needs)
        seen.add(item.name)
        assert len(set(item.shards)) == len(item.shards)
    model = job.items[job.record]
    assert set(model.shards) == {item.name for item in job.items.values() if item.is_shard}
    assert len(model.shards) == BLOCKS * len(job.ranges)
    assert len(job.ranges) > 1
    assert all(first % job.report.width == 0 for first, _ in job.ranges)


def test_sums_have_few_terms(hospital: Hospital, tmp_path: Path) -> None:
    job = cluster.submit(FOREST, hospital.table, tmp_path / "m", rows_per_shard=ROWS)
    many = replace(
        job,
        entries=tuple(replace(e, sha256=f"{k:064x}") for k in range(7) for e in job.entries * 7),
    )
    many = replace(many, shards=tuple((k, k + 1) for k in range(len(many.entries))))
    with pytest.raises(es.ClusterError, check=error("repeated-block")):
        _ = many.items  # the same contents seven times over
    distinct = tuple(replace(e, sha256=f"{k:064x}") for k, e in enumerate(many.entries))
    items = replace(many, entries=distinct).items.values()
    assert max(len(item.needs) for item in items) == FAN_IN
    assert sum(item.is_shard for item in items) == len(distinct)


def test_submitting_again_changes_nothing(job: Job) -> None:
    path = Path(job.queue) / JOBS / job.id
    before = path.stat().st_mtime_ns
    again = cluster.submit(FOREST, job.table, job.out, rows_per_shard=ROWS, trees_per_task=2)
    assert again.id == job.id
    assert list(again.items) == list(job.items)
    assert path.stat().st_mtime_ns == before


def shard_names(job: Job) -> set[str]:
    return {item.name for item in job.items.values() if item.is_shard}


def test_names_differ_with_rows_circuit_and_keys(hospital: Hospital, tmp_path: Path) -> None:
    job = cluster.submit(FOREST, hospital.table, tmp_path / "a", rows_per_shard=ROWS)
    other_trees = es.CompletelyRandomForest(n_trees=4, depth=2, random_state=4)
    other = cluster.submit(other_trees, hospital.table, tmp_path / "b", rows_per_shard=ROWS)
    larger = cluster.submit(FOREST, hospital.table, tmp_path / "c", rows_per_shard=2 * ROWS)
    stranger = samples.small_owner()
    samples.store_table(stranger, tmp_path / "theirs")
    theirs = cluster.submit(FOREST, tmp_path / "theirs", tmp_path / "d", rows_per_shard=ROWS)
    found = [shard_names(one) for one in (job, other, larger, theirs)]
    assert len(set().union(*found)) == sum(map(len, found))


def test_appended_rows_leave_the_names_of_the_others(copied: Hospital, tmp_path: Path) -> None:
    before = cluster.submit(FOREST, copied.table, tmp_path / "m", rows_per_shard=ROWS)
    es.load(copied.table).append(copied.owner.encrypt(samples.rows(BLOCKS), workers=1))
    after = cluster.submit(FOREST, copied.table, tmp_path / "n", rows_per_shard=ROWS)
    assert shard_names(before) < shard_names(after)
    assert len(shard_names(after)) == BLOCKS + 1


def test_the_digest_of_a_circuit_does_not_depend_on_the_order_of_writing() -> None:
    def written(first: str, second: str) -> list[Expression]:
        a, b = column(first), column(second)
        return [(a * b + 2 * a).total(), b.total()]

    kept = written("x", "y")
    digest = circuit_digest(kept)
    # equal expressions are one object, in the order that was written first, until they are
    # forgotten
    del kept
    x, y = column("x"), column("y")
    assert circuit_digest([(2 * x + y * x).total(), y.total()]) == digest
    assert circuit_digest([y.total(), (x * y + 2 * x).total()]) != digest
    assert circuit_digest([(x * y + 3 * x).total(), y.total()]) != digest
    assert circuit_digest(written("y", "x")) != digest


def test_any_question_is_asked_on_a_cluster(hospital: Hospital, tmp_path: Path) -> None:
    job = cluster.submit(
        Counts((0, -1)), hospital.table, tmp_path / "counts", rows_per_shard=2 * ROWS
    )
    cluster.work(job.queue)
    found = hospital.owner.open(tmp_path / "counts", samples.SCHEMA)
    pd.testing.assert_frame_equal(found, hospital.plain().counts("age", by="class"))


# -- the stored job
# ------------------------------------------------------------------------------------------------


def test_a_job_is_read_back_as_it_was_made(job: Job) -> None:
    again = Job.load(job.queue, job.id)
    assert again.items == job.items
    assert again.report == job.report
    assert again.question.get_params() == job.question.get_params()


def test_a_seed_that_is_drawn_is_drawn_once(hospital: Hospital, tmp_path: Path) -> None:
    forest = es.CompletelyRandomForest(n_trees=3, depth=1, random_state=None)
    job = cluster.submit(forest, hospital.table, tmp_path / "m")
    assert Job.load(job.queue, job.id).question.random_state == job.question.random_state
    cluster.work(job.queue)
    assert hospital.is_exact(Job.load(job.queue, job.id).question, tmp_path / "m")


def altered(job: Job, place: Path, **changes: Any) -> str:
    """A job with other fields or sections, under the name that fits it; its id."""
    file = container.read(Path(job.queue) / JOBS / job.id)
    fields = {
        **file.fields,
        **{name: value for name, value in changes.items() if name in file.fields},
    }
    sections = {
        name: json.dumps(changes[name]).encode() if name in changes else data
        for name, data in file.sections.items()
    }
    data = container.to_bytes(replace(file, fields=fields, sections=sections))
    job_id = hashlib.sha256(data).hexdigest()
    (place / "jobs").mkdir(exist_ok=True)
    (place / "jobs" / job_id).write_bytes(data)
    return job_id


@pytest.mark.parametrize(
    "shards",
    [[2, 4], [1, 2, 3, 4, 5, 7], [2, 2, 6], [4, 2, 6], [], [0, 6], ["6"], {"0": 6}],
    ids=["left out", "too many", "empty", "twice", "none", "empty first", "text", "no list"],
)
def test_a_job_that_leaves_out_or_repeats_is_refused(job: Job, tmp_path: Path, shards: Any) -> None:
    job_id = altered(job, tmp_path, shards=shards)
    with pytest.raises(
        es.FileFormatError,
        match=r"shards that leave something out|malformed list of shards|no list",
    ):
        Job.load(str(tmp_path), job_id)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ranges": [8, 16]}, "ranges that leave something out"),
        ({"ranges": [3, 26]}, "ranges that leave something out"),  # no whole packs
        ({"width": 0}, "impossible width"),
        ({"width": 1024, "ranges": [20]}, "not proven to decrypt"),
        ({"relinearise": True}, "not proven to decrypt"),
        ({"question": "Nonsense"}, "nobody here knows the question"),
        ({"params": {}}, "other parameters than"),
        ({"table": 7}, "'table'"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_its_name(
    job: Job, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    job_id = altered(job, tmp_path, **changes)
    with pytest.raises(es.FileFormatError, match=complaint) as caught:
        Job.load(str(tmp_path), job_id)
    assert job_id in str(caught.value)


def test_a_job_of_another_version_is_refused(job: Job, tmp_path: Path) -> None:
    job_id = altered(job, tmp_path, circuit="0" * 64)
    with pytest.raises(es.ClusterError, check=error("other-library-version")):
        _ = Job.load(str(tmp_path), job_id).outputs


def test_a_job_that_was_cut_or_exchanged_is_refused(job: Job, tmp_path: Path) -> None:
    data = (Path(job.queue) / JOBS / job.id).read_bytes()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / job.id).write_bytes(data[:-1])
    with pytest.raises(es.FileFormatError, check=error("altered-file")):
        Job.load(str(tmp_path), job.id)


def test_a_model_of_more_blocks_than_a_header_holds(hospital: Hospital, tmp_path: Path) -> None:
    """A billion rows are some 100,000 blocks."""
    model = FOREST.fit(es.load(hospital.table), workers=1)
    for number in (4096, 4097, 100_000):
        model.answer_ = replace(model.answer_, block_ids=tuple(f"{k:032x}" for k in range(number)))
        model.save(tmp_path / f"{number}")
        again = es.load(tmp_path / f"{number}", keys=hospital.owner.public_keys())
        assert again.block_ids_ == model.block_ids_
