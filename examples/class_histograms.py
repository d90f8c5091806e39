"""A classifier of your own that predicts while it is encrypted: ``python
examples/class_histograms.py``.

A row goes to the class in whose histograms its bins are most frequent. ``docs/guides/questions.md``
explains the methods. Encryption does not divide, so the encrypted answers are sums of counts, and
the owner divides them by the class counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

import encryptedstats as es
from encryptedstats.questions import (
    bin_columns,
    class_columns,
    class_names,
    count_names,
    refuse_impossible,
    votes_of,
    weighted_sum,
)


def all_bins(schema: Any) -> list[Any]:
    """Return the indicators of the bins of all variables."""
    return [x for j in range(len(schema.variables)) for x in bin_columns(schema, j)]


class EncryptedHistograms(es.TotalsClassifier):
    """Every row goes to the class in whose histograms its bins are most frequent."""

    def __init__(self, bins: int = 5) -> None:
        self.bins = bins

    def totals(self, schema: Any, columns: Any = None, fold: int | None = None) -> Any:
        classes = class_columns(schema, fold)
        by_bin = [[(x * y).total() for y in classes] for x in all_bins(schema)]
        return {"class_counts": [y.total() for y in classes], "by_bin": by_bin}

    def shapes(self, schema: Any) -> Any:
        n_bins = sum(variable.n_bins for variable in schema.variables)
        return {"class_counts": (schema.n_classes,), "by_bin": (n_bins, schema.n_classes)}

    def learn(self, totals: Any, schema: Any) -> None:
        self.class_counts_ = totals["class_counts"].astype(int)
        self.bin_counts_ = totals["by_bin"].astype(int)
        refuse_impossible(self.bin_counts_.min() >= 0, "a bin has a negative number of rows")

    def answers(self, schema: Any, columns: Any, known: Any, output: str = "") -> Any:
        sums = [weighted_sum(counts, all_bins(schema)) for counts in known["by_bin"].T]
        return {"sums": sums, "class_counts": known["class_counts"]}

    def answer_shapes(self, schema: Any, output: str = "") -> Any:
        return {"sums": (schema.n_classes,), "class_counts": (schema.n_classes,)}

    def judge(self, answers: Any, schema: Any, output: str = "") -> Any:
        n = np.maximum(answers["class_counts"].astype(float), 1)
        names = [*class_names(schema), *count_names(schema)]
        scores = answers["sums"].astype(float) / n
        return votes_of(answers, names, scores, schema, are_probabilities=False)


def main() -> bool:
    """Predict five rows by an encrypted model; return True if the decrypted one
    predicts the same.
    """
    frame = load_breast_cancer(as_frame=True).frame.iloc[:, [0, 1, 4, 7, -1]]
    schema = es.Schema.infer(frame, target="target")
    table, new = schema.table(frame), schema.table(frame.tail(5).drop(columns="target"))
    model = EncryptedHistograms()
    owner = es.Owner(es.plan(model, table, n_predict=5, encrypted_prediction=True))
    fitted = model.fit(owner.encrypt(table))
    votes = owner.open(fitted.predict_votes(owner.encrypt(new)), schema=schema)
    opened = owner.open(fitted, schema=schema)
    print(votes)
    print("accuracy of the decrypted model:", round(opened.score(frame, frame["target"]), 2))
    return bool((votes.predict() == opened.predict(frame.tail(5))).all())


if __name__ == "__main__":
    print("the same when decrypted:", main())
