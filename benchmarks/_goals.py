"""What the library wants to reach on two cores, and what the last results say: read from their JSON
files, whoever made them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

Results = Any


@dataclass(frozen=True)
class Goal:
    """A figure with a limit: at most, or (``least``) at least so much."""

    what: str
    part: str
    value: Callable[[Results], float]
    limit: float
    unit: str
    least: bool = False

    def reached(self, value: float) -> bool:
        return value >= self.limit if self.least else value <= self.limit


def _of_rows(results: Results, rows: int, which: str = "made_up") -> Any:
    return next(row for row in results[which] if row["rows"] == rows)


def _in_the_clear(results: Results, what: str) -> float:
    return float(_of_rows(results, 1_000_000, "rows")["ours"][what])


def _flatness(results: Results) -> float:
    each = [row["ns_per_row"] for row in results["scaling"]]
    return max(each) / min(each) - 1


def _ms(results: Results, name: str) -> float:
    return 1e3 * float(results["case_study"][name]["median_s"])


def _whole(results: Any, case: str) -> float:
    """Fit (drawing included) and prediction of one case."""
    seconds = next(row["seconds"] for row in results if row["case"] == case)
    return float(seconds["fit"] + seconds["predict"])


GOALS = (
    Goal(
        "100 trees, L=3, 8192 rows: fused against SEAL",
        "fit",
        lambda r: r["full_chunk"]["times_faster"],
        15,
        "x",
        True,
    ),
    Goal("bcw_o, 547 rows, 100 trees: fit", "fit", lambda r: _ms(r, "sums") / 1e3, 0.4, "s"),
    Goal(
        "the same, times scikit-learn's plain RandomForest(100, max_depth=3)",
        "fit",
        lambda r: _ms(r, "sums") / _ms(r, "scikit_learn"),
        1,
        "x",
    ),
    Goal(
        "the same, packed for download: seconds more",
        "fit",
        lambda r: (_ms(r, "fit_packed") - _ms(r, "sums")) / 1e3,
        3,
        "s",
    ),
    Goal(
        "the same: bytes to download",
        "fit",
        lambda r: r["case_study"]["download_bytes"] / 1e6,
        1,
        "MB",
    ),
    Goal("adult, 45,222 rows, 100 trees", "streaming", lambda r: r["adult"]["seconds"], 4, "s"),
    Goal("adult: memory", "streaming", lambda r: r["adult"]["peak_bytes"] / 1e9, 4, "GB"),
    Goal(
        "1,000,000 rows from disk, 100 trees",
        "streaming",
        lambda r: _of_rows(r, 1_000_000)["seconds"],
        60,
        "s",
    ),
    Goal(
        "1,000,000 rows: memory",
        "streaming",
        lambda r: _of_rows(r, 1_000_000)["peak_bytes"] / 1e9,
        4,
        "GB",
    ),
    Goal(
        "1,000,000 rows in the clear, 100 trees",
        "clear",
        lambda r: _in_the_clear(r, "seconds"),
        2,
        "s",
    ),
    Goal(
        "1,000,000 rows in the clear: memory",
        "clear",
        lambda r: _in_the_clear(r, "peak_bytes") / 1e9,
        2,
        "GB",
    ),
    Goal(
        "seconds a row, 8 thousand to 1 million rows: spread",
        "fit",
        lambda r: 100 * _flatness(r),
        20,
        "%",
    ),
    Goal(
        "class-conditional bin counts, of copy speed",
        "fit",
        lambda r: 100 * r["bin_counts"]["share_of_copy"],
        30,
        "%",
        True,
    ),
    Goal(
        "encrypted model and rows, 136 rows, M=0", "predict", lambda r: _whole(r, "forest"), 20, "s"
    ),
    Goal(
        "encrypted model and rows, 136 rows, M=8", "predict", lambda r: _whole(r, "drawn"), 180, "s"
    ),
    Goal(
        "SNB paired, 100 rows and predictor: fit",
        "bayes",
        lambda r: r["fit_ms_per_100_rows_and_predictor"],
        1,
        "ms",
    ),
    Goal(
        "SNB paired, 100 rows and predictor: predict",
        "bayes",
        lambda r: r["predict_ms_per_100_rows_and_predictor"],
        2,
        "ms",
    ),
)


def reached(folder: Path) -> list[dict[str, Any]]:
    """Every goal for which there are results, with what was reached; results of quick runs are
    none.
    """
    rows = []
    for goal in GOALS:
        path = folder / f"{goal.part}.json"
        content = json.loads(path.read_text()) if path.exists() else None
        if content is None or content["quick"]:
            continue
        try:
            value = float(goal.value(content["results"]))
        except (KeyError, IndexError, StopIteration, TypeError):
            continue
        rows.append(
            {
                "what": goal.what,
                "limit": goal.limit,
                "least": goal.least,
                "unit": goal.unit,
                "value": value,
                "reached": goal.reached(value),
            }
        )
    return rows


def goals_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="What is to be reached on two cores",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("what", "goal", "measured", ""):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        sign, mark = ("≥" if row["least"] else "≤"), ("yes" if row["reached"] else "no")
        table.add_row(
            row["what"],
            f"{sign} {row['limit']:g} {row['unit']}",
            f"{row['value']:.3g} {row['unit']}",
            mark,
        )
    return table
