"""Models without classes, and discriminants, are opened on the command line as any other: as a
view, and as facts.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from sklearn.datasets import load_iris

import encryptedstats as es
from encryptedstats.cli._console import view_text
from encryptedstats.tables.answers.opened import describe_opened
from encryptedstats.tables.questions.question import MODEL_KIND

FRAME = (
    load_iris(as_frame=True)
    .frame.set_axis(["sl", "sw", "pl", "pw", "kind"], axis=1)
    .replace({"kind": {0: "a", 1: "b", 2: "c"}})
)


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        (es.LinearRegression("pw ~ sl + sw"), "rsquared adj"),
        (es.Ridge(1.0, "pw ~ sl + sw"), "alpha  (Intercept)"),
        (es.PCA(2), "Proportion of variance"),
        (es.LinearDiscriminant(), "mean c"),
        (es.QuadraticDiscriminant(), "mean c"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_opened_models_are_shown(model: Any, shown: str) -> None:
    schema = es.Schema.infer(FRAME, target="kind", numbers="keep", digits=1)
    fitted = model.fit(schema.table(FRAME))
    opened = describe_opened(fitted, MODEL_KIND, schema=schema)
    assert shown in view_text(opened.view, 120)
    facts = json.loads(json.dumps(opened.document, allow_nan=False))
    assert facts["rows"] == 150
    assert facts["question"] == type(model).__name__
    frame = fitted.summary().to_frame()
    table = next(iter(facts["tables"].values()))
    assert table["index"] == list(map(str, frame.index))
    assert pd.DataFrame(table["values"], table["index"], table["columns"]).shape == frame.shape
    assert ("classes" in facts["facts"]) == isinstance(model, es.TotalsClassifier)
