"""The commands for many machines: ask --on queue:// and dask://, worker run and queue.

``tests/cli/scripts/queue.txt`` has more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_samples import BLOCKS, FOREST, ROWS, SCHEMA, Hospital, store_table
from typer.testing import CliRunner

from encryptedstats.cli._app import app

MODEL = ("forest", "trees=4", "depth=2", "seed=3")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def done(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_queue_from_beginning_to_end(hospital: Hospital, tmp_path: Path) -> None:
    queue, out = tmp_path / "work", tmp_path / "forest.enc"
    (queued,) = done(
        "ask", hospital.table, "-o", out, *MODEL, "--on", f"queue://{queue} rows_per_shard={ROWS}"
    )["answers"]
    assert (queued["shards"], queued["rows"]) == (BLOCKS, BLOCKS * ROWS)
    assert not out.exists()
    assert not done("worker", "queue", queue)["jobs"][0]["finished"]
    (keys,) = hospital.table.glob("public-*.keys")
    report = done("worker", "run", queue, "--keys", keys)
    assert report["shards"] == BLOCKS
    assert done("worker", "run", queue)["items"] == 0
    assert hospital.is_exact(FOREST, out)
    (job,) = done("worker", "queue", queue)["jobs"]
    assert job["finished"]
    assert job["workers"][report["worker"]]["shards"] == BLOCKS


def test_folds_by_a_queue(hospital: Hospital, tmp_path: Path) -> None:
    place, queue = tmp_path / "dealt", tmp_path / "work"
    store_table(hospital.owner, place, range(3), folds=2)
    fit = ("ask", place, *MODEL, "--folds")
    done(*fit, "-o", tmp_path / "there", "--on", f"queue://{queue} rows_per_shard={ROWS}")
    assert done("worker", "run", queue)["shards"] == 3
    done(*fit, "-o", tmp_path / "here")
    here, there = (hospital.owner.open(tmp_path / name, SCHEMA) for name in ("here", "there"))
    assert [list(one.totals_) for one in here] == [list(one.totals_) for one in there]
    refused = run(*fit, "-o", tmp_path / "x", "--on", f"queue://{queue} trees_per_task=2")
    assert "folds are cut by rows alone" in refused.output


def test_a_damaged_block_is_one_line(copied: Hospital, tmp_path: Path) -> None:
    path = sorted((copied.table / "blocks").iterdir())[0]
    path.write_bytes(b"nothing")
    done("ask", copied.table, "-o", tmp_path / "m", *MODEL, "--on", f"queue://{tmp_path / 'work'}")
    result = run("worker", "run", tmp_path / "work")
    assert result.exit_code != 0
    assert path.name in result.output
    assert "Traceback" not in result.output


def program(*arguments: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which holds no secret key."""
    command = [sys.executable, "-m", "encryptedstats.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=environment
    )


@pytest.mark.slow
def test_a_local_cluster(hospital: Hospital, tmp_path: Path) -> None:
    out = tmp_path / "m"
    options = ("--on", f"dask://local workers=2 rows_per_shard={2 * ROWS}", "--json")
    result = program("ask", hospital.table, "-o", out, *MODEL, *options)
    assert result.returncode == 0, result.stderr
    (facts,) = json.loads(result.stdout)["answers"]
    assert (facts["rows"], facts["bytes"]) == (BLOCKS * ROWS, out.stat().st_size)
    assert hospital.is_exact(FOREST, out)
