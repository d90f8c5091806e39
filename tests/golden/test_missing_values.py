"""Missing values mean the same to all pinned questions: statistics take complete rows, classifiers
take all.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from golden_questions import make_frame, make_questions

import encryptedstats as es

QUESTIONS = make_questions()
#: What results tell of the rows that were left out: the only thing that may differ.
TOLD = {"missing", "n_missing_", "n_rows_", "n_rows"}


def gappy_frame() -> pd.DataFrame:
    """Three cohorts, with gaps in all variables, of other rows each."""
    frames = [make_frame().assign(age=lambda rows, k=k: rows["age"] + k) for k in range(3)]
    frame = pd.concat(frames, ignore_index=True).astype({"arm": object})
    for k, name in enumerate(frame.columns[:-1]):
        frame[name] = frame[name].where(frame.index % (11 + k) != k)
    return frame


def gappy_schema(frame: pd.DataFrame) -> es.Schema:
    schema = es.Schema.infer(frame, target="event", bins=3, missing="bin")
    for name in ("age", "dose"):
        schema = schema.with_kind(name, "number", digits=0)
    for name, levels in (("month", range(6)), ("snp", range(3))):
        schema = schema.with_kind(name, "ordinal", levels=levels)
    return schema


def numbers_of(result: object) -> dict[str, str]:
    """Return all tables and numbers of a result, without the counts of missing values."""
    kinds = (pd.DataFrame, pd.Series, np.ndarray, float)
    found = {name: one for name, one in vars(result).items() if isinstance(one, kinds)}
    return {
        name: repr(one.drop(columns="missing", errors="ignore") if name == "table" else one)
        for name, one in found.items()
        if name not in TOLD
    }


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", [name for name, one in QUESTIONS.items() if not isinstance(one, es.TotalsClassifier)]
)
def test_statistics_are_those_of_complete_rows(name: str) -> None:
    question, frame = QUESTIONS[name], gappy_frame()
    if name == "describe":  # each variable for itself
        question = es.Describe(["v0"])
    schema = gappy_schema(frame)
    asked = {int(j) for j in re.findall(r"\bv(\d)\b", json.dumps(question.parameters()))}
    complete = frame.dropna(subset=[schema.names[j] for j in asked])
    assert 0 < len(complete) < len(frame)
    found = numbers_of(schema.table(frame).ask(question))
    assert found
    assert found == numbers_of(schema.table(complete).ask(question))


@pytest.mark.parametrize("missing", ["complete", "level"])
def test_a_level_for_missing_values_has_to_be_asked_for(missing: str) -> None:
    frame = gappy_frame()
    model = gappy_schema(frame).table(frame).ask(es.LinearRegression("v0 ~ v2", missing=missing))
    assert ("arm[missing]" in model.columns_) == (missing == "level")


@pytest.mark.parametrize(
    "model",
    [
        es.CompletelyRandomForest(n_trees=3, depth=2),
        es.MultinomialNB(variables=["arm", "month"]),
        es.SemiparametricNB(variables=["arm", "month"]),
        es.LinearMeans(variables=["arm", "month"]),
        es.FisherDiscriminant(variables=["arm", "month"]),
        es.OneStepLogisticRegression(variables=["arm", "month"]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_take_all_rows(model: es.TotalsClassifier) -> None:
    frame = gappy_frame()
    fitted = model.fit(gappy_schema(frame).table(frame))
    assert fitted.class_counts_.sum() == len(frame)
    assert not pd.isna(fitted.predict(frame)).any()


def test_classifiers_refuse_numbers_that_may_be_missing() -> None:
    frame = gappy_frame()
    with pytest.raises(es.SchemaError, match="v0"):
        es.LinearMeans(variables=["age"]).fit(gappy_schema(frame).table(frame))
