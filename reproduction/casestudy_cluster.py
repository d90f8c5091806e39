"""The untrusted side of the case study, a process of its own: a local Dask cluster that fits
forests to a stored table.

Run by its path; it reads what to do as JSON from its input, and prints how it went as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import encryptedstats as es
from encryptedstats.cluster import submit
from encryptedstats.cluster.items import Done
from encryptedstats.cluster.scheduling import DaskRun, connect, run_on_dask


def main() -> None:
    """Fit every forest of every round, one round after the other, on one cluster."""
    asked = json.load(sys.stdin)
    started = time.perf_counter()
    with connect(None, asked["workers"], 60.0, False) as client:
        client.wait_for_workers(asked["workers"])
        ready = time.perf_counter() - started
        rounds = [_round(one, client) for one in asked["rounds"]]
    json.dump({"start_seconds": ready, "workers": asked["workers"], "rounds": rounds}, sys.stdout)


def _round(asked: dict[str, Any], client: Any) -> dict[str, Any]:
    done: list[Done] = []

    def fit(forest: tuple[int, str]) -> None:
        seed, out = forest
        model = es.CompletelyRandomForest(
            asked["trees"], asked["depth"], fraction=0, random_state=seed
        )
        job = submit(model, asked["table"], out, rows_per_shard=asked["rows_per_shard"])
        run_on_dask(job, DaskRun(client, on_done=done.append))

    started = time.perf_counter()
    with ThreadPoolExecutor(
        len(asked["forests"])
    ) as pool:  # all forests at once: they share the workers
        list(pool.map(fit, asked["forests"]))
    seconds = time.perf_counter() - started
    places = [Path(f"{out}.work", "shards") for _, out in asked["forests"]]
    shards = [path.stat().st_size for place in places for path in place.iterdir()]
    return {
        "seconds": seconds,
        "work_seconds": sum(one.seconds for one in done),
        "items": len(done),
        "shard_results": len(shards),
        "shard_bytes": sum(shards),
    }


if __name__ == "__main__":
    main()
