"""Models without classes, and discriminants, are opened on the command line as any other: as a
view, and as facts.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from sklearn.datasets import load_iris

import encryptedstats as es
from encryptedstats.cli import decrypt

FRAME = (
    load_iris(as_frame=True)
    .frame.set_axis(["sl", "sw", "pl", "pw", "kind"], axis=1)
    .replace({"kind": {0: "a", 1: "b", 2: "c"}})
)


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        (es.LinearRegression("pw ~ sl + sw"), "rsquared adj"),
        (es.Ridge(1.0, "pw ~ sl + sw"), "Ridge regression of pw by alpha"),
        (es.PCA(2), "Proportion of variance"),
        (es.LinearDiscriminant(), "mean c"),
        (es.QuadraticDiscriminant(), "mean c"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_opened_models_are_shown(model: Any, shown: str) -> None:
    schema = es.Schema.infer(FRAME, target="kind", numbers="keep", digits=1)
    fitted = model.fit(schema.table(FRAME))
    console = Console(width=120, record=True)
    opened = decrypt._model("model.enc", fitted, schema)
    console.print(opened.view(120))
    assert shown in console.export_text()
    facts = json.loads(json.dumps(opened.facts, allow_nan=False))
    assert facts["rows"] == 150
    assert facts["model"] == type(model).__name__
    frame = fitted.summary().to_frame()
    assert facts["index"] == list(map(str, frame.index))
    assert pd.DataFrame(facts["values"], facts["index"], facts["columns"]).shape == frame.shape
    assert ("classes" in facts) == isinstance(model, es.TotalsClassifier)
