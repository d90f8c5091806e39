"""Adding votes against averaging leaf shares: the table of the documents, from the forests' own
predictions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sklearn.metrics import roc_auc_score

from encryptedstats.models import CompletelyRandomForest
from reproduction.evaluation import Settings, leaf_shares
from reproduction.evaluation.methods import forest_seed
from reproduction.evaluation.samples import sample


def test_scores_are_those_of_the_forest(
    data_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_shares, "N_TREES", 5)
    settings = Settings(tmp_path, 1, ("haber",), data_home=data_home, workers=1)
    found = leaf_shares.compare(settings).loc["haber"]
    one = sample(settings, "haber", 0)
    forest = CompletelyRandomForest(
        5, 6, fraction="inverse", random_state=forest_seed(one, settings.seed), repeats=True
    ).fit(one.train)
    assert found["auc", 6, "inverse"] == pytest.approx(
        roc_auc_score(one.y_test, forest.predict_proba(one.test)[:, 1])
    )
    assert found["auc", 6, "inverse"] != found["auc", 6, "0"]
    assert len(found) == len(leaf_shares.SCORES) * len(leaf_shares.DEPTHS) * len(
        leaf_shares.WEIGHED
    )
