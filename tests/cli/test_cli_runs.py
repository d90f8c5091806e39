"""The folder of a procedure's rounds as a model: ``predict`` and ``open``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run

import encryptedstats as es

N = 80


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(6)
    age, ward = rng.integers(20, 90, N), rng.choice(["a", "b", "c"], N)
    cost = np.round(age / 7 + 9 * (ward == "b") + rng.normal(size=N), 1)
    ill = np.where(age + 30 * (ward == "c") > 60, "yes", "no")
    return pd.DataFrame({"age": age, "ward": ward, "spare": 1 + np.arange(N) % 3, "cost": cost,
                         "ill": ill})  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def learn(target: str) -> es.Schema:
    """Learn trees in ``trees.run``; their schema is in ``schema.json``."""
    known = frame().drop(columns="ill" if target == "cost" else "cost")
    numbers = "keep" if target == "cost" else "bins"
    kinds = {"age": "continuous", "spare": "ordinal"}
    schema = es.Schema.infer(known, target=target, bins=4, kinds=kinds, numbers=numbers)
    schema.save("schema.json")
    trees = es.RandomForest(n_trees=3, depth=2, max_features=2, random_state=2)
    trees.run(schema.table(known), folder="trees.run")
    return schema


def predict(run: Run, rows: pd.DataFrame, *more: str) -> pd.DataFrame:
    rows.to_csv("new.csv", index=False)
    options = ["--schema", "schema.json", "-o", "out.csv", *more]
    done = run("predict", "trees.run", "new.csv", *options)
    assert done.exit_code == 0, done.output
    return pd.read_csv("out.csv", index_col="row")


def test_the_folder_of_learned_trees_predicts_classes(run: Run, folder: Path) -> None:
    schema = learn("ill")
    trees = es.RandomForest(n_trees=3, depth=2, max_features=2, random_state=2)
    result = trees.run(schema.table(frame().drop(columns="cost")), folder="trees.run")
    found = predict(run, frame(), "--force")
    assert found["predicted"].tolist() == result.predict(frame()).tolist()
    shares = result.predict_proba(frame())
    np.testing.assert_allclose(found[["P(no)", "P(yes)"]], shares, rtol=1e-12)
    done = run(
        "predict", "trees.run", "new.csv", "--schema", "schema.json", "-o", "b.csv", "--json"
    )
    facts = json.loads(done.stdout)
    assert facts["judged"] == N
    assert facts["right"] == (result.predict(frame()) == frame()["ill"]).sum()


def test_the_folder_of_learned_trees_predicts_numbers(run: Run, folder: Path) -> None:
    schema = learn("cost")
    trees = es.RandomForest(n_trees=3, depth=2, max_features=2, random_state=2)
    result = trees.run(schema.table(frame().drop(columns="ill")))
    found = predict(run, frame())
    np.testing.assert_allclose(found["predicted"], result.predict(frame()), rtol=1e-12)


def test_rows_that_trees_cannot_read_have_empty_lines(run: Run, folder: Path) -> None:
    """Columns that they do not read may be absent, and values that they do not read may be any."""
    learn("ill")
    rows = frame().drop(columns=["ill", "cost"])
    rows.loc[3, "ward"] = "x"
    found = predict(run, rows)
    assert found["predicted"].isna().tolist() == [k == 3 for k in range(N)]


def test_columns_that_no_split_names_may_be_absent(run: Run, folder: Path) -> None:
    known = frame().drop(columns="cost")
    schema = es.Schema.infer(known, target="ill", bins=4, kinds={"spare": "ordinal"})
    schema.save("schema.json")
    result = es.DecisionTree(depth=1).run(schema.table(known), folder="trees.run")
    (used,) = set(result.nodes["variable"]) - {""}
    found = predict(run, known[[used]])
    assert found["predicted"].tolist() == result.predict(known).tolist()


def test_the_folder_is_shown_and_written(run: Run, folder: Path) -> None:
    learn("ill")
    shown = run("open", "trees.run", "--schema", "schema.json", "--json")
    facts = json.loads(shown.stdout)
    assert (facts["question"], facts["rows"]) == ("RandomForest", N)
    assert facts["params"]["n_trees"] == 3
    assert facts["result"]["n_trees"] == 3


@pytest.mark.parametrize("command", ["predict", "open"])
def test_rounds_that_are_not_done_are_no_model(run: Run, folder: Path, command: str) -> None:
    learn("ill")
    Path("trees.run/round-0002.json").unlink()
    frame().to_csv("new.csv", index=False)
    rows = ["new.csv", "-o", "out.csv"] if command == "predict" else []
    refused = run(command, "trees.run", *rows, "--schema", "schema.json")
    assert refused.exit_code == 1
    assert "has 1 round of RandomForest, which is not done" in refused.output
    assert not Path("out.csv").exists()
