"""Compare the programs that a plan for a cluster compiled with those that its shards run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats import cluster
from encryptedstats.circuits.program import add_digests, subtract_digests
from encryptedstats.circuits.results import Cut
from encryptedstats.cluster.items import read_result
from encryptedstats.cluster.jobs import StoredJob
from encryptedstats.storage.objects import open_store
from encryptedstats.tables.shards import answer_again, total_in_shards

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
WORKERS = 2
N_ROWS = 8192 * 4 + 100  # five chunks of the smallest secure ring, two or three to a shard
FOREST = es.CompletelyRandomForest(n_trees=2, depth=1, random_state=1)


def make_frame(n_rows: int) -> pd.DataFrame:
    i = np.arange(n_rows)
    return pd.DataFrame({"a": i % 7, "b": (i * 3) % 5, "y": i * 5 % 3 % 2})


SCHEMA = es.Schema.infer(make_frame(40), target="y", bins=2)


def store(owner: es.Owner, n_rows: int, place: Path, folds: int | None = None) -> Path:
    owner.encrypt(SCHEMA.table(make_frame(n_rows), folds=folds)).save(place)
    return place


def shard_digests(job: StoredJob) -> list[str | None]:
    """Return what the stored results of all shards say, in the order of the rows."""
    queue = open_store(job.queue)
    shards = [item for item in job.items.values() if item.is_shard]
    results = [read_result(job, item, queue) for item in shards]
    return [result.program_digest for result in results]


@pytest.fixture(autouse=True)
def anywhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCRYPTEDSTATS_ALLOW", str(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[es.Plan, es.Owner, Path]:
    plan = es.plan(FOREST, SCHEMA, N_ROWS, workers=WORKERS)
    owner = es.Owner(plan)
    return plan, owner, store(owner, N_ROWS, tmp_path_factory.mktemp("digests") / "table")


def test_the_planned_shards_are_run_by_a_queue(
    stored: tuple[es.Plan, es.Owner, Path], tmp_path: Path
) -> None:
    plan, owner, table = stored
    planned = plan.cluster
    assert planned is not None
    assert planned.shards == 3
    rows = planned.rows_per_shard
    job = cluster.submit(FOREST, table, tmp_path / "out", rows_per_shard=rows)
    cluster.work(job.queue)
    assert tuple(shard_digests(job)) == planned.shard_digests[0]
    assert len(set(planned.shard_digests[0])) == 2  # the last shard is smaller
    answer = es.load(tmp_path / "out", keys=owner.public_keys()).answer_
    assert (answer.program_digest,) == planned.digests
    again = answer_again(answer, es.load(table))  # the same shards in one process
    assert again.program_digest == answer.program_digest


def test_one_shard_is_the_whole(stored: tuple[es.Plan, es.Owner, Path]) -> None:
    plan, _, place = stored
    table = es.load(place)
    n_chunks = plan.layout.n_chunks
    n_totals = len(table._answer_to(FOREST).ciphertexts.facts)
    cut = Cut((n_chunks,), (n_totals,), plan.report.width)
    assert (total_in_shards(table, FOREST, cut).program_digest,) == plan.digests


@pytest.mark.parametrize("model", [es.FisherDiscriminant()], ids=repr)
def test_the_planned_shards_of_folds_are_run(model: Any, tmp_path: Path) -> None:
    frame = make_frame(8192 + 100)
    schema = es.Schema.infer(frame, target="y").with_kind("a", "number", digits=0)
    schema = schema.with_kind("b", "number", digits=0)
    plan = es.plan(model, schema, len(frame), folds=2, workers=WORKERS)
    owner = es.Owner(plan)
    owner.encrypt(schema.table(frame, folds=2)).save(tmp_path / "table")
    assert plan.cluster is not None
    rows = plan.cluster.rows_per_shard
    for folds, number in ((False, 0), (True, 1)):
        out = tmp_path / f"out {number}"
        job = cluster.submit(model, tmp_path / "table", out, rows_per_shard=rows, folds=folds)
        cluster.work(job.queue)
        assert tuple(shard_digests(job)) == plan.cluster.shard_digests[number]


@pytest.mark.parametrize(
    "fraction", [0, pytest.param(2, marks=pytest.mark.slow)], ids=["whole", "fraction"]
)
def test_the_planned_shards_of_a_prediction_are_run(fraction: int, tmp_path: Path) -> None:
    """The keys of a fraction take more than a gigabyte."""
    n_rows, n_new = 20_000, 17_000
    forest = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=fraction, random_state=1)
    plan = es.plan(
        forest, SCHEMA, n_rows, n_predict=n_new, encrypted_prediction=True, workers=WORKERS
    )
    planned, owner = plan.cluster, es.Owner(plan)
    assert planned is not None
    fit, *draw, prediction = planned.shard_digests
    assert len(fit) > 1
    assert len(prediction) > 1
    assert [len(shards) for shards in draw] == ([1] if fraction else [])
    table = store(owner, n_rows, tmp_path / "table")
    new = tmp_path / "new"
    owner.encrypt(SCHEMA.table(make_frame(n_new)[["a", "b"]])).save(new)
    job = cluster.submit(forest, table, tmp_path / "f", rows_per_shard=planned.rows_per_shard)
    cluster.work(job.queue)
    place = tmp_path / "f"
    if fraction:
        place = tmp_path / "drawn"
        cluster.work(cluster.submit_drawing(tmp_path / "f", table, place).queue)
    fitted = es.load(place, keys=owner.public_keys())
    drawn = [fitted.extra_totals_["drawn"].program_digest] if fraction else []
    asked = cluster.submit_prediction(
        place, new, tmp_path / "votes", rows_per_shard=plan.parameters.slots
    )
    cluster.work(asked.queue)
    assert tuple(shard_digests(asked)) == prediction
    assert (fitted.answer_.program_digest, *drawn) == planned.digests[:-1]
    assert planned.digests[-1] == add_digests(prediction)
    votes = es.load(tmp_path / "votes", keys=owner.public_keys())
    assert votes.to_container().fields["program"] is None


def test_shards_of_a_prediction_by_an_opened_model_do_not_store_what_could_be_guessed(
    stored: tuple[es.Plan, es.Owner, Path], tmp_path: Path
) -> None:
    frame = make_frame(30)
    model = es.MultinomialNB().fit(SCHEMA.table(frame))
    owner = es.Owner(es.plan(model, SCHEMA, n_predict=30, n_rows=30, encrypted_prediction=True))
    owner.encrypt(SCHEMA.table(frame[["a", "b"]])).save(tmp_path / "new")
    job = cluster.submit_prediction(model, tmp_path / "new", tmp_path / "votes")
    cluster.work(job.queue)
    assert shard_digests(job) == [None]


def test_digests_of_sums_do_not_depend_on_the_order() -> None:
    a, b, c = (f"{value:064x}" for value in (5, (1 << 256) - 2, 77))
    assert add_digests([a]) == a
    assert add_digests([add_digests([a, b]), c]) == add_digests([c, add_digests([b, a])])
    assert subtract_digests(add_digests([a, b]), b) == a
    assert int(add_digests([a, b]), 16) == 3
