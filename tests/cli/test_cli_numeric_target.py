"""Tables whose target is a number: what the commands say of them, and which commands are not for
them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import Run, cause_of, done, the_error

import encryptedstats as es


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with a number as their target, a schema, keys, and an opened regression."""
    folder = tmp_path_factory.mktemp("numbers")
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": rng.integers(20, 80, 60), "sex": rng.choice(["f", "m"], 60)})
    frame = frame.assign(cost=3 * frame["age"] + rng.integers(0, 50, 60))
    frame.to_csv(folder / "rows.csv", index=False)
    frame.drop(columns="cost").to_csv(folder / "new.csv", index=False)
    done(
        "data",
        "schema",
        folder / "rows.csv",
        "--target",
        "cost",
        "--numbers",
        "keep",
        "-o",
        folder / "schema.json",
    )
    schema = es.Schema.load(folder / "schema.json")
    owner = es.Owner(es.plan(es.LinearRegression("cost ~ age"), schema, 60))
    owner.save(folder / "secret.key")
    es.LinearRegression("cost ~ age").fit(schema.table(frame)).save(folder / "lm.opened")
    return folder


def test_the_next_command_that_schema_names_runs(home: Path, tmp_path: Path) -> None:
    shown = done(
        "data",
        "schema",
        home / "rows.csv",
        "--target",
        "cost",
        "--numbers",
        "keep",
        "-o",
        tmp_path / "s",
    ).stdout
    words = shown[shown.index("encryptedstats plan") :].split()[1:]
    words[words.index("-o") + 1] = str(tmp_path / "plan.json")
    done(*words)


@pytest.mark.parametrize(("file", "has_target"), [("rows.csv", True), ("new.csv", False)])
def test_rows_with_their_target_are_not_said_to_lack_it(
    home: Path, tmp_path: Path, file: str, has_target: bool
) -> None:
    words = ("--schema", home / "schema.json", "--key", home / "secret.key")
    shown = done("encrypt", home / file, tmp_path / "t.enc", *words).stdout
    assert ("rows to predict" in shown) == (not has_target)
    assert ("rows to predict" in done("data", "info", tmp_path / "t.enc").stdout) == (
        not has_target
    )
    assert es.load(tmp_path / "t.enc").has_target == has_target


@pytest.mark.parametrize("file", ["rows.csv", "new.csv"])
def test_a_regression_predicts_with_and_without_the_target(
    home: Path, tmp_path: Path, file: str
) -> None:
    facts = json.loads(
        done("predict", home / "lm.opened", home / file, "-o", tmp_path / "p.csv", "--json").stdout
    )
    assert facts["rows"] == len(pd.read_csv(tmp_path / "p.csv")) == 60


@pytest.mark.parametrize("command", ["evaluate", "model calibrate"])
def test_a_regression_is_not_scored_by_classes(
    home: Path, run: Run, tmp_path: Path, command: str
) -> None:
    result = run(*command.split(), home / "lm.opened", home / "rows.csv", "-o", tmp_path / "out")
    the_error(result)
    error = cause_of(result)
    assert isinstance(error, es.DataError)
    assert [cure.action for cure in error.cures] == ["predict numbers"]
    assert not (tmp_path / "out").exists()
