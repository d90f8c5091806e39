"""The table of models: means over complete splits, and parts with splits of their own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from reproduction.evaluation.model_summary import summarise
from reproduction.evaluation.models import LEARNED, MODELS, OURS


def write(output: Path, part: str, dataset: str, rows: list[tuple[int, str, float]]) -> None:
    folder = output / "results" / part
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows, columns=["split", "model", "auc"])
    frame.assign(seconds=0.1).to_csv(folder / f"{dataset}.csv", index=False)


def test_means_are_over_the_splits_that_every_data_set_has(tmp_path: Path) -> None:
    best = "AODE"
    for dataset, shift in (("a", 0.0), ("b", 0.1)):
        rows = [
            (split, name, 0.6 + shift + 0.05 * (name == best) + 0.02 * split)
            for split in range(3)
            for name in MODELS
        ]
        # The last split of "b" lacks a model, and counts for none.
        write(tmp_path, "models", dataset, rows[: len(rows) - (dataset == "b")])
        write(tmp_path, "learned", dataset, [(0, name, 0.64 + shift) for name in LEARNED])
    results = summarise(tmp_path)["results"]
    found = {one["model"]: one for one in results["models"]}
    assert list(found) == [*MODELS, *LEARNED]
    assert {name: one["splits"] for name, one in found.items()} == {
        **dict.fromkeys(MODELS, 2),
        **dict.fromkeys(LEARNED, 1),
    }
    assert found[best]["auc"] == pytest.approx(0.6 + 0.05 + 0.05 + 0.01)
    assert found["plain random forest"]["near_the_best_of_ours"] is None
    near = {name for name in OURS if found[name]["near_the_best_of_ours"] == 2}
    assert near == {best}  # learned trees are 0.02 away, the others 0.05


def test_without_learned_trees(tmp_path: Path) -> None:
    write(tmp_path, "models", "a", [(0, name, 0.7) for name in MODELS])
    assert [one["model"] for one in summarise(tmp_path)["results"]["models"]] == list(MODELS)
