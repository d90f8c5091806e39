"""A row that the schema does not allow costs its own prediction, and no other."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.models.clear_rows import FilePredictions
from error_codes import error

#: Rows of `new_rows` that cannot be predicted, and why.
BAD = {2: "column 'age', row 2: 200 is out of bounds", 5: "column 'sex', row 5: 'x' is not a level"}


def people(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    age = rng.integers(30, 80, n)
    return pd.DataFrame(
        {
            "age": age,
            "sex": rng.choice(["f", "m"], n),
            "group": rng.choice(list("abc"), n),
            "dose": (age / 10 + rng.integers(0, 4, n)).round(),
            "ill": (age + rng.normal(0, 10, n) > 55).astype(int),
        }
    )


def new_rows() -> pd.DataFrame:
    rows = people(8).drop(columns="ill")
    rows.loc[2, "age"] = 200
    rows.loc[5, "sex"] = "x"
    return rows


def fitted(model: Any) -> Any:
    kinds = {"age": "both", "dose": "number"}
    table = es.Schema.infer(people(), target="ill", kinds=kinds).table(people())
    return model.fit(table)


MODELS = [
    es.CompletelyRandomForest(n_trees=5, variables=["age", "sex"]),
    es.MultinomialNB(variables=["age", "sex"]),
    es.SemiparametricNB(variables=["age", "sex"]),
    es.LinearMeans(variables=["age", "sex"]),
    es.LinearDiscriminant(variables=["age", "sex"]),
    es.QuadraticDiscriminant(variables=["age"]),
    es.OneStepLogisticRegression(variables=["age", "sex"]),
    es.LinearRegression("dose ~ age + sex"),
    es.Ridge(1.0, "dose ~ age + sex"),
    es.GLM("ill ~ sex"),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_other_rows_are_predicted_as_ever(model: Any) -> None:
    found, rows = fitted(model), new_rows()
    used = {found.schema_.names[j] for j in found._used_positions()} & {"age", "sex"}
    bad = [row for row, column in ((2, "age"), (5, "sex")) if column in used]
    good = rows.drop(index=bad)
    for name in ("predict", "predict_proba", "decision_function", "apply"):
        if hasattr(found, name):
            with pytest.warns(es.SchemaWarning, match="no prediction for [12] of 8 rows") as heard:
                values = getattr(found, name)(rows)
            assert all(BAD[row] in str(heard[0].message) for row in bad)
            assert pd.isna(pd.DataFrame(values)).all(axis=1).to_numpy().nonzero()[0].tolist() == bad
            kept = np.delete(values, bad, axis=0)
            np.testing.assert_array_equal(
                kept.astype(float), np.asarray(getattr(found, name)(good)).astype(float)
            )


def test_columns_that_are_not_used_may_hold_anything() -> None:
    model, rows = fitted(es.MultinomialNB(variables=["group"])), new_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not pd.isna(model.predict(rows)).any()


def test_one_row_alone() -> None:
    model = fitted(es.LinearRegression("dose ~ age"))
    with pytest.warns(es.SchemaWarning, match="for 1 of 1 row"):
        assert np.isnan(model.predict(new_rows()[2:3])).all()


def test_intervals_are_empty_too() -> None:
    model = fitted(es.LinearRegression("dose ~ age"))
    with pytest.warns(es.SchemaWarning):
        found = model.predict(new_rows(), interval="confidence")
    assert found.index[found.isna().all(axis=1)].tolist() == [2]


def test_calibrated_models_predict_the_others() -> None:
    model = fitted(es.CompletelyRandomForest(n_trees=5, variables=["age", "sex"]))
    others = people(120)[80:]
    calibrated = es.CalibratedModel(model).fit(others, others["ill"])
    with pytest.warns(es.SchemaWarning):
        assert np.flatnonzero(pd.isna(calibrated.predict(new_rows()))).tolist() == [2, 5]


def test_missing_factors_are_not_predicted_by_models_of_complete_rows() -> None:
    gaps = people()
    gaps.loc[::9, "sex"] = None
    schema = es.Schema.infer(
        gaps, target="ill", kinds={"age": "both", "dose": "number"}, missing="bin"
    )
    model = es.GLM("ill ~ sex + group").fit(schema.table(gaps))
    assert np.flatnonzero(np.isnan(model.predict(gaps))).tolist() == list(range(0, 80, 9))


def test_scores_and_encrypted_predictions_need_every_row() -> None:
    rows = people(8)
    rows.loc[2, "age"] = 200
    model = fitted(es.CompletelyRandomForest(n_trees=5))
    for ask in (lambda: model.score(rows, rows["ill"]), lambda: model.predict_votes(rows)):
        with pytest.raises(es.SchemaError, check=error("unusable-value", "'age'", "row 2")):
            ask()


@pytest.mark.parametrize("at_once", [3, 1000])
def test_files_have_an_empty_line_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("encryptedstats.models.clear_rows._ROWS_AT_ONCE", at_once)
    new_rows().assign(ill=1).to_csv(tmp_path / "new.csv", index=False)
    for model in (
        es.LinearRegression("dose ~ age + sex"),
        es.CompletelyRandomForest(n_trees=5, variables=["age", "sex"]),
    ):
        found = FilePredictions(fitted(model))
        with pytest.warns(es.SchemaWarning, match="column 'age', row 3: 200 is out of bounds"):
            text = "".join(found.csv(tmp_path / "new.csv"))
        (tmp_path / "out.csv").write_text(text)
        lines = pd.read_csv(tmp_path / "out.csv", index_col="row")
        assert lines.index[lines.isna().all(axis=1)].tolist() == [3, 6]
        facts = json.loads(json.dumps(found.facts()))
        assert (facts["rows"], facts["rows_without_prediction"]) == (8, 2)
        assert facts["judged"] in (None, 6)
