"""The table of methods: every question of this package has a line, and its facts are those of the
code.
"""

from __future__ import annotations

import json
from pathlib import Path

import encryptedstats as es
from encryptedstats.method_status import BY_AUC, STATUS
from encryptedstats.publishing.tables import WRITTEN
from encryptedstats.tables.questions.words import find_question_types


def test_every_question_has_a_status() -> None:
    own = {
        name
        for name, question in find_question_types().items()
        if question.__module__.startswith("encryptedstats.")
    }
    assert own == set(STATUS)
    shown = es.methods()
    assert own <= set(shown.index)
    assert (shown.loc[sorted(own), ["title", "totals", "products", "compared_with"]] != "").all(
        axis=None
    )


def test_facts_are_those_of_the_code() -> None:
    shown = es.methods()
    assert set(shown.index[shown["released"]]) == set(WRITTEN)
    assert shown.loc["AODE", "predicts"] == "encrypted"
    assert shown.loc["TAN", "predicts"] == "opened"
    assert shown.loc["TTest", "predicts"] == ""
    assert shown.loc["LinearRegression", ["kind", "predicts"]].tolist() == ["model", "opened"]
    assert not shown.loc["CoxScore", "exact"]
    assert shown.loc["CoxScore", "note"]


def test_classifiers_are_ranked_by_the_evaluation() -> None:
    """The file is that which ``python -m reproduction.evaluation.model_summary`` wrote."""
    path = Path(__file__).parents[1] / "benchmarks" / "results" / "models.json"
    results = json.loads(path.read_text())["results"]
    found = {one["model"]: one["auc"] for one in results["models"]}
    names = {"CompletelyRandomForest": "forest of depth 3, leaf shares"}
    ranks = es.methods()["auc_rank"]
    ordered = sorted(ranks.index[ranks != ""], key=lambda name: -found[names.get(name, name)])
    assert tuple(ordered) == BY_AUC
    assert ranks["AODE"] == f"1 of {len(BY_AUC)}"
    assert found["TAN"] < found["forest of depth 6, leaf shares"] < found["AODE"]
    assert results["splits"] > 1
    assert len(results["datasets"]) == 19
