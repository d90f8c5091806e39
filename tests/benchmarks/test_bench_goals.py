"""What is to be reached, and pictures: read from JSON files, with parts that are missing or were
quick left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FIT = {
    "full_chunk": {"times_faster": 14.0},
    "case_study": {
        "sums": {"median_s": 0.1},
        "fit_packed": {"median_s": 1.6},
        "scikit_learn": {"median_s": 0.2},
        "download_bytes": 400_000,
    },
    "scaling": [{"rows": 8192, "ns_per_row": 10_000}, {"rows": 16384, "ns_per_row": 9_000}],
    "bin_counts": {"share_of_copy": 0.35},
}
STREAMING = {
    "made_up": [
        {"rows": 8192, "seconds": 2.0, "us_per_row": 244.1, "peak_bytes": 8e8},
        {"rows": 1_000_000, "seconds": 70.0, "us_per_row": 70.0, "peak_bytes": 13e8},
    ],
    "adult": None,
}
CLEAR = {
    "rows": [
        {
            "rows": 1_000_000,
            "ours": {"seconds": 2.5, "peak_bytes": 3e8},
            "scikit_learn": {"seconds": 9.0},
        }
    ]
}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        if not str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmarks")):
            monkeypatch.delitem(sys.modules, name)


def written(folder: Path, part: str, results: Any, *, quick: bool = False) -> None:
    (folder / f"{part}.json").write_text(
        json.dumps({"part": part, "quick": quick, "results": results})
    )


def test_goals_are_compared_in_the_right_direction(tmp_path: Path) -> None:
    from benchmarks._goals import goals_table, reached

    written(tmp_path, "fit", FIT)
    written(tmp_path, "streaming", STREAMING)
    written(tmp_path, "clear", CLEAR)
    found = {row["what"]: (row["value"], row["reached"]) for row in reached(tmp_path)}
    assert found["100 trees, L=3, 8192 rows: fused against SEAL"] == (14.0, False)
    assert found["bcw_o, 547 rows, 100 trees: fit"] == (0.1, True)
    assert found["the same, packed for download: seconds more"] == (1.5, True)
    assert found["class-conditional bin counts, of copy speed"] == (35.0, True)
    value, good = found["seconds a row, 8 thousand to 1 million rows: spread"]
    assert (round(value, 1), good) == (11.1, True)
    assert found["1,000,000 rows from disk, 100 trees"] == (70.0, False)
    assert found["1,000,000 rows in the clear, 100 trees"] == (2.5, False)
    assert found["1,000,000 rows in the clear: memory"] == (0.3, True)
    assert not any(what.startswith(("adult", "SNB", "encrypted")) for what in found)
    assert goals_table(reached(tmp_path)).row_count == len(found)


def test_quick_results_are_none(tmp_path: Path) -> None:
    from benchmarks._goals import reached

    written(tmp_path, "fit", FIT, quick=True)
    assert reached(tmp_path) == []


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks._plots import draw_all

    assert draw_all(tmp_path) == []
    written(tmp_path, "fit", FIT)
    written(tmp_path, "streaming", STREAMING)
    point = {"value": 1, "sums_s": 0.1, "total_s": 0.2}
    written(tmp_path, "growth", {"sweeps": {"trees": [point]}})
    assert sorted(path.name for path in draw_all(tmp_path)) == [
        "goals.png",
        "growth.png",
        "rows.png",
    ]
    written(tmp_path, "growth", {"sweeps": {"trees": [point], "depth": [point, point]}})
    assert (tmp_path / "rows.png").stat().st_size > 1000
    assert len(draw_all(tmp_path)) == 3
