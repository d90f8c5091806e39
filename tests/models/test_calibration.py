"""Calibrated models: scikit-learn's probabilities, on rows the model has not seen, in a file
without pickle.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_samples import MODELS, frame, name, schema, table
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import encryptedstats as es
from encryptedstats.metrics import evaluate
from encryptedstats.models.calibration import CALIBRATION
from encryptedstats.tables.answers.files import read_presented
from error_codes import error

frozen = pytest.importorskip("sklearn.frozen", reason="scikit-learn before 1.6")
THREE = ("a", "b", "c")


def split(n: int, seed: int, classes: tuple[Any, ...] = ("no", "yes")) -> tuple[Any, Any]:
    rows = frame(n, seed, classes)
    return rows.drop(columns="ill"), rows["ill"]


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_probabilities_are_those_of_scikit_learn(model: Any, method: str) -> None:
    classes = ("no", "yes") if model.binary_only else THREE
    opened = clone(model).fit(table(200, classes=classes))
    X, y = split(150, 1, classes)
    new, _ = split(80, 2, classes)
    ours = es.CalibratedModel(opened, method).fit(X, y)
    theirs = CalibratedClassifierCV(
        frozen.FrozenEstimator(opened), method=method, ensemble=False
    ).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=1e-4)
    assert (ours.predict(new) == theirs.predict(new)).mean() > 0.98
    np.testing.assert_allclose(ours.predict_proba(new).sum(axis=1), 1)


def test_a_table_and_a_frame_are_the_same_rows() -> None:
    X, y = split(150, 1)
    opened = es.CompletelyRandomForest(10, 2, random_state=1).fit(table(200))
    by_frame, by_table = (
        es.CalibratedModel(opened).fit(X, y),
        es.CalibratedModel(opened).fit(schema().table(frame(150, 1))),
    )
    assert by_frame.curves_ == by_table.curves_
    assert by_frame.n_rows_ == 150
    assert by_frame.class_counts_.tolist() == y.value_counts()[["no", "yes"]].tolist()


def test_it_mends_the_probabilities_of_a_forest_and_keeps_its_ranks() -> None:
    opened = es.CompletelyRandomForest(30, 3, fraction=0, random_state=1).fit(table(300))
    X, y = split(400, 2)
    before = evaluate(opened, X, y).scores
    after = evaluate(es.CalibratedModel(opened).fit(*split(400, 1)), X, y).scores
    assert before["calibration_slope"].low > 1.2  # shares of votes are timid
    assert after["calibration_slope"].low < 1 < after["calibration_slope"].high
    assert after["log_loss"].estimate < before["log_loss"].estimate - 0.01
    assert after["auc"].estimate == pytest.approx(before["auc"].estimate)


def test_rows_of_the_fit_are_refused() -> None:
    rows = table(120)
    opened = es.CompletelyRandomForest(5, 2, random_state=1).fit(rows)
    for given in ((rows,), (frame(120).drop(columns="ill"), frame(120)["ill"])):
        with pytest.raises(ValueError, check=error("training-rows-reused")):
            es.CalibratedModel(opened).fit(*given)
    turned = rows.take(np.arange(120)[::-1])
    with pytest.raises(ValueError, check=error("training-rows-reused")):
        es.CalibratedModel(opened).fit(turned)


def test_what_cannot_be_calibrated(keeper: es.Owner) -> None:
    X, y = split(60, 1)
    opened = es.MultinomialNB().fit(table())
    with pytest.raises(
        ValueError,
        check=error("unknown-method", "'beta'", "'sigmoid'", "'isotonic'", "method='beta'"),
    ):
        es.CalibratedModel(opened, "beta").fit(X, y)
    with pytest.raises(TypeError, check=error("not-a-fitted-model")):
        es.CalibratedModel(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, check=error("class-without-rows")):
        es.CalibratedModel(opened).fit(X[y == "yes"], y[y == "yes"])
    with pytest.raises(NotFittedError):
        es.CalibratedModel(opened).predict_proba(X)
    closed = es.MultinomialNB().fit(keeper.encrypt(table(), workers=1), workers=1)
    with pytest.raises(NotFittedError, match="still encrypted"):
        es.CalibratedModel(closed).fit(X, y)
    without = frame(60)[lambda rows: rows["ill"] == "yes"]
    with pytest.raises(ValueError, check=error("infinite-scores")):
        es.CalibratedModel(es.LinearMeans().fit(schema().table(without))).fit(X, y)
    done = es.CalibratedModel(opened).fit(X, y)
    with pytest.raises(ValueError, check=error("calibrated-not-combinable")):
        done + done
    with pytest.raises(ValueError, check=error("still-encrypted")):
        done.predict_votes(X)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("classes", [("no", "yes"), THREE], ids=["two", "three"])
def test_files(method: str, classes: tuple[str, ...], tmp_path: Path) -> None:
    opened = es.CompletelyRandomForest(5, 2, random_state=1).fit(table(120, classes=classes))
    X, y = split(90, 1, classes)
    model = es.CalibratedModel(opened, method).fit(X, y)
    model.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        model.save(tmp_path / "m")
    again = es.load(tmp_path / "m")
    assert isinstance(again, es.CalibratedModel)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.n_rows_, again.class_counts_.tolist()) == (90, model.class_counts_.tolist())
    again.model.save(tmp_path / "plain")
    assert type(es.load(tmp_path / "plain")) is es.CompletelyRandomForest


GOOD = {"method": "sigmoid", "class_counts": [30, 30], "curves": [{"slope": 1.0, "intercept": 0}]}
CURVE = {"x": [0.0, 1.0], "y": [0.0, 1.0]}


def isotonic(**corners: Any) -> dict[str, Any]:
    return GOOD | {"method": "isotonic", "curves": [{**CURVE, **corners}]}


@pytest.mark.parametrize(
    "facts",
    [
        [],
        {},
        GOOD | {"more": 1},
        GOOD | {"method": "pickle"},
        GOOD | {"method": ["sigmoid"]},
        GOOD | {"class_counts": [30]},
        GOOD | {"class_counts": [0, 30]},
        GOOD | {"class_counts": [True, 30]},
        GOOD | {"curves": []},
        GOOD | {"curves": [{"slope": 1.0}]},
        GOOD | {"curves": [{"slope": float("nan"), "intercept": 0}]},
        GOOD | {"curves": [{"slope": "1", "intercept": 0}]},
        GOOD | {"curves": [CURVE]},
        GOOD | {"curves": 2 * GOOD["curves"]},
        isotonic(x=[1.0, 0.0]),
        isotonic(y=[1.0, 0.0]),
        isotonic(y=[0.0, 1.5]),
        isotonic(x=[0.0]),
        isotonic(x=[], y=[]),
        isotonic(x=[0.0, 10**400]),
    ],
    ids=str,
)
def test_files_that_cannot_be(facts: Any) -> None:
    opened = es.MultinomialNB().fit(table())
    file = opened.to_container()
    with pytest.raises(es.FileFormatError, match="calibration"):
        read_presented(
            replace(file, sections={**file.sections, CALIBRATION: json.dumps(facts).encode()}), None
        )


def test_the_forged_ones_differ_from_a_good_one() -> None:
    file = es.MultinomialNB().fit(table()).to_container()
    for facts in (GOOD, isotonic()):
        sections = {**file.sections, CALIBRATION: json.dumps(facts).encode()}
        assert isinstance(
            read_presented(replace(file, sections=sections), None), es.CalibratedModel
        )
    with pytest.raises(es.FileFormatError, check=error("invalid-json")):
        read_presented(replace(file, sections={**file.sections, CALIBRATION: b"{"}), None)
