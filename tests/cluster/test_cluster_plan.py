"""Plans for a cluster: room for adding up all shards, and figures that follow from the shards."""

from __future__ import annotations

import json
import math

import cluster_samples as samples
import pytest

import encryptedstats as es
from encryptedstats.circuits.shards import chunks_per_shard

FOREST = es.CompletelyRandomForest(n_trees=10, depth=2, random_state=1)


@pytest.fixture(scope="module")
def plan() -> es.Plan:
    return es.plan(FOREST, samples.SCHEMA, 3_000_000, workers=100, price_per_core_hour=0.5)


def test_a_plan_for_workers_leaves_room_for_all_shards(plan: es.Plan) -> None:
    there = plan.cluster
    assert there is not None
    assert there.shards == math.ceil(plan.layout.n_rows / there.rows_per_shard)
    assert there.shards >= 100
    assert plan.report.budget >= 1 + math.log2(there.shards)


def test_its_figures(plan: es.Plan) -> None:
    there = plan.cluster
    assert there is not None
    assert there.bytes_read > plan.bytes_up
    assert there.bytes_written >= there.shards * plan.bytes_down
    assert 0 < there.core_hours * 3600 / there.workers <= there.seconds
    assert there.price == pytest.approx(100 * there.seconds / 3600 * 0.5)
    text = str(plan)
    for part in (
        "100 workers",
        f"{there.shards:,} shards",
        "time there",
        "core hours",
        "read",
        "written",
    ):
        assert part in text
    assert json.loads(json.dumps(plan.to_dict()))["cluster"]["shards"] == there.shards


def test_more_workers_take_less_time_until_there_are_no_more_shards() -> None:
    plans = [
        es.plan(FOREST, samples.SCHEMA, 400_000, workers=n).cluster for n in (1, 10, 1000, 100_000)
    ]
    seconds = [one.seconds for one in plans if one is not None]
    assert seconds[0] > seconds[1] > seconds[2]
    assert plans[2] is not None
    assert plans[3] is not None
    assert plans[2].shards == plans[3].shards


def test_a_plan_without_workers_says_nothing_of_a_cluster() -> None:
    plan = es.plan(FOREST, samples.SCHEMA, 1000)
    assert plan.cluster is None
    assert "cluster" not in plan.to_dict()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"workers": 0}, "workers=0: a number of workers"),
        ({"workers": True}, "workers=True"),
        ({"price_per_core_hour": 1.0}, "needs workers="),
        ({"workers": 2, "price_per_core_hour": -1.0}, "a price is at least 0"),
    ],
)
def test_wrong_wishes(options: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        es.plan(FOREST, samples.SCHEMA, 1000, **options)  # type: ignore[arg-type]  # that is what is tried


@pytest.mark.parametrize(
    ("chunks", "workers", "size"), [(1, 1, 1), (123, None, 4), (61036, 1000, 31), (10**6, 10, 64)]
)
def test_chunks_of_a_shard(chunks: int, workers: int | None, size: int) -> None:
    assert chunks_per_shard(chunks, workers) == size
