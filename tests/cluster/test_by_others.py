"""Rows by others on many machines: asked for when the work is submitted, and the job carries it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cluster_samples import FOREST, SCHEMA, frame, small_owner

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.cluster.jobs import Job
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@pytest.fixture(scope="module")
def owner() -> es.Owner:
    return small_owner(kept=5)


@pytest.fixture
def by_others(owner: es.Owner, tmp_path: Path) -> Path:
    owner.public_keys().encrypt(SCHEMA.table(frame(30, 5)), workers=1).save(tmp_path / "t")
    return tmp_path / "t"


def test_a_fit_takes_rows_by_others_only_when_asked_for(
    owner: es.Owner, by_others: Path, tmp_path: Path
) -> None:
    with pytest.raises(es.RowsByOthersError, check=error("rows-by-others", "by_others=True")):
        cluster.submit(FOREST, by_others, tmp_path / "m")
    assert not (tmp_path / "m.work").exists()
    job = cluster.submit(FOREST, by_others, tmp_path / "m", by_others=True)
    assert cluster.work(job.queue).shards == 1
    opened = owner.open(es.load(tmp_path / "m", keys=owner.public_keys()))
    assert es.load(tmp_path / "m", keys=owner.public_keys()).totals_.flooded
    assert list(opened.totals_) == list(FOREST.fit(SCHEMA.table(frame(30, 5))).totals_)


def test_rows_by_others_are_not_predicted(by_others: Path, tmp_path: Path) -> None:
    """Votes are numbers of single rows, and only their owner is to learn them."""
    model = es.MultinomialNB().fit(SCHEMA.table(frame(30, 5)))
    message = "rows-by-others"
    with pytest.raises(es.RowsByOthersError, check=error(message)):
        cluster.submit_prediction(model, by_others, tmp_path / "v")
    with pytest.raises(es.RowsByOthersError, check=error(message)):
        model.predict_votes(es.load(by_others, by_others=True))


def test_a_job_that_does_not_say_so_is_not_worked_on(by_others: Path, tmp_path: Path) -> None:
    job = Job.load(
        (made := cluster.submit(FOREST, by_others, tmp_path / "m", by_others=True)).queue, made.id
    )
    assert job.by_others
    shard = next(item for item in job.items.values() if item.is_shard)
    with pytest.raises(es.RowsByOthersError):
        replace(job, by_others=False).evaluate(shard)


def test_who_makes_the_end_result_second_takes_what_the_first_made(
    owner: es.Owner, by_others: Path, tmp_path: Path
) -> None:
    """A flooded result is other bytes each time: a job that is finished twice must not stand in its
    own way.
    """
    job = cluster.submit(FOREST, by_others, tmp_path / "m", by_others=True)
    cluster.work(job.queue)
    first = (tmp_path / "m").read_bytes()
    for record in Path(job.queue).rglob(f"*{job.record.rpartition('/')[2]}"):
        record.unlink()
    (tmp_path / "m").unlink()
    again = cluster.submit(FOREST, by_others, tmp_path / "m", by_others=True)
    cluster.work(again.queue)
    assert (tmp_path / "m").read_bytes() == first


def test_a_worker_may_use_the_keys_that_it_was_given(
    owner: es.Owner, by_others: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    owner.public_keys().save(elsewhere / "public.keys")
    job = cluster.submit(
        FOREST, by_others, tmp_path / "deep" / "m", by_others=True, queue=tmp_path / "deep" / "q"
    )
    assert (
        cluster.work(job.queue, keys=elsewhere / "public.keys", allow=[tmp_path / "t"]).shards == 1
    )
