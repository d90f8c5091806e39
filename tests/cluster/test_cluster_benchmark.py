"""The benchmark of the cluster runs, and its simulation behaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_runs_and_more_workers_are_no_slower(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "cluster", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "cluster.json").read_text())["results"]
    assert [one["workers"] for one in results["measured"]] == [1, 2]
    simulated = [one for one in results["simulated"] if one["tables"] == 1]
    assert [one["workers"] for one in simulated] == sorted(one["workers"] for one in simulated)
    assert simulated[1]["seconds"] < simulated[0]["seconds"]
    assert all(0 < one["efficiency"] <= 1 for one in simulated)
