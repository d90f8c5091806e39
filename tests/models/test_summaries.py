"""What a model shows of itself: its summary, a result as those of statistics are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import encryptedstats as es
from encryptedstats.questions import class_columns

FRAME = pd.DataFrame(
    {
        "age": [20, 30, 40, 50, 60, 70] * 4,
        "sex": ["f", "m", "m"] * 8,
        "ill": ["no", "no", "yes", "no", "yes", "yes"] * 4,
    }
)
SCHEMA = es.Schema.infer(FRAME, target="ill", bins=3)


class Shares(es.TotalsClassifier):
    """A model that says nothing of its summary."""

    def __init__(self, bins: int = 5) -> None:
        self.bins = bins

    def totals(self, schema: Any, columns: Any = None, fold: Any = None) -> Any:
        return {"class_counts": [y.total() for y in class_columns(schema, fold)]}

    def shapes(self, schema: Any) -> Any:
        return {"class_counts": (schema.n_classes,)}

    def learn(self, totals: Any, schema: Any) -> None:
        self.class_counts_ = totals["class_counts"].astype(int)


@pytest.mark.parametrize(
    ("model", "column", "lines"),
    [
        (es.CompletelyRandomForest(n_trees=3, depth=2), "importance", {"age", "sex"}),
        (es.MultinomialNB(), "yes", {"sex: f", "sex: m"}),
        (es.SemiparametricNB(), "slope", {"age", "sex = f", "sex = m"}),
        (es.OneStepLogisticRegression(), "estimate", {"(Intercept)", "age"}),
        (es.LinearMeans(), "mean yes", {"age", "sex = m"}),
        (es.FisherDiscriminant(), "direction no", {"age", "sex = m"}),
        (es.QuadraticDiscriminant(), "mean no", {"age"}),
        (Shares(), "total", {"class_counts[0]", "class_counts[1]"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, es.TotalsModel) else "",
)
def test_every_classifier_has_a_summary(model: Any, column: str, lines: set[str]) -> None:
    frame = FRAME.drop(columns="sex") if isinstance(model, es.QuadraticDiscriminant) else FRAME
    schema = es.Schema.infer(frame, target="ill", bins=3)
    summary = model.fit(schema.table(frame)).summary()
    assert isinstance(summary, es.Result)
    table = summary.to_frame()
    assert column in table.columns
    assert lines <= set(table.index)
    assert dict(summary.class_counts) == {"no": 12, "yes": 12}
    assert "classes  no 12, yes 12" in str(summary)
    assert summary.n_rows == 24


def test_what_the_numbers_are() -> None:
    """Against what the fitted attributes say."""
    forest = es.CompletelyRandomForest(n_trees=5, depth=2).fit(SCHEMA.table(FRAME))
    table = forest.summary().to_frame()
    assert table["importance"].is_monotonic_decreasing
    by_name = dict(zip(SCHEMA.names, forest.feature_importances_, strict=True))
    assert table["importance"].to_dict() == by_name
    assert table["splits"].sum() == 5 * 3
    model = es.OneStepLogisticRegression().fit(SCHEMA.table(FRAME))
    found = model.summary().to_frame()["estimate"]
    np.testing.assert_array_equal(found, [*model.intercept_, *model.coef_[0]])
    without = es.OneStepLogisticRegression(fit_intercept=False).fit(SCHEMA.table(FRAME))
    assert "(Intercept)" not in without.summary().to_frame().index


def test_a_summary_takes_an_opened_model() -> None:
    with pytest.raises(NotFittedError):
        es.LinearMeans().summary()
