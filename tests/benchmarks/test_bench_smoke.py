"""The benchmarks run, print tables, and write JSON that can be read again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a run of its own: half a minute with what it sets up

ROOT = Path(__file__).parents[2]


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Some parts in one process: where the files are, and what was printed."""
    out = tmp_path_factory.mktemp("bench") / "new" / "folder"
    done = bench("integers", "growth", "scan", "readers", "--quick", "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_integers(measured: tuple[Path, str]) -> None:
    out, printed = measured
    assert "measured elsewhere" in printed
    content = json.loads((out / "integers.json").read_text())
    assert content["quick"] is True
    assert content["machine"]["packages"]["seal-python"]
    rows = content["results"]["rows"]
    assert [(row["scheme"], row["wished_depth"]) for row in rows] == [("bgv", 2), ("bfv", 2)]
    for row in rows:
        assert row["security"] >= 128
        assert row["proven_depth"] >= row["wished_depth"]
        assert row["memory_bytes_per_ciphertext"] <= row["file_bytes_per_ciphertext"]
        for timing in row["timings"].values():
            assert (
                0 < timing["lower_quartile_s"] <= timing["median_s"] <= timing["upper_quartile_s"]
            )
            assert timing["runs"] >= 2


def test_growth(measured: tuple[Path, str]) -> None:
    (points,) = json.loads((measured[0] / "growth.json").read_text())["results"]["sweeps"].values()
    assert [point["value"] for point in points] == [1, 2]
    assert all(0 < point["sums_s"] < point["total_s"] for point in points)


def test_a_scan_is_measured_beside_numpy(measured: tuple[Path, str]) -> None:
    found = json.loads((measured[0] / "scan.json").read_text())["results"]
    (case,) = found["cases"]
    assert (case["people"], case["snps"]) == (200, 300)
    assert {"NumPy", "encrypt", "scan", "open", "scan, 300 columns"} <= set(case["seconds"])
    assert set(case["seconds"]) == set(case["cpu_seconds"])


def test_readers_are_measured_beside_r(measured: tuple[Path, str]) -> None:
    rows = json.loads((measured[0] / "readers.json").read_text())["results"]["rows"]
    assert len(rows) == 7
    assert all(row["median_s"] > 0 for row in rows)


def test_an_unknown_part_is_a_usage_error() -> None:
    done = bench("nonsense")
    assert done.returncode == 2
    assert "no part named nonsense: there are" in done.stderr
    assert "integers" in done.stderr


def test_transforms(tmp_path: Path) -> None:
    done = bench("transforms", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "transforms.json").read_text())["results"]["rows"]
    assert [row["bits"] for row in rows] == [44, 47, 49, 50, 55]
    assert all(
        set(row["forward"]) == {"seal", "baseline", "avx2", "avx512", "ifma"} for row in rows
    )
