"""scikit-learn's tools take these classifiers as their own: thresholds, pipelines, searches,
ensembles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from model_samples import MODELS, frame, name, schema, table
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import encryptedstats as es

X, Y = load_breast_cancer(return_X_y=True)
X = X[:, :6]
each_model = pytest.mark.parametrize("model", MODELS, ids=name)


@pytest.mark.parametrize("model", [m for m in MODELS if hasattr(m, "predict_proba")], ids=name)
def test_a_threshold_is_chosen_on_a_labelled_test_set(model: Any, keeper: es.Owner) -> None:
    """Paper, section 3.3.1: the forest is not calibrated, so the owner chooses the threshold, in
    the clear.
    """
    tools = pytest.importorskip("sklearn.model_selection", minversion=None)
    frozen = pytest.importorskip("sklearn.frozen").FrozenEstimator
    plain = keeper.open(clone(model).fit(keeper.encrypt(table(300), workers=1), workers=1))
    held_out = frame(200, seed=1)
    rows, labels = held_out.drop(columns="ill"), held_out["ill"]
    tuned = tools.TunedThresholdClassifierCV(
        frozen(plain), cv="prefit", refit=False, scoring="balanced_accuracy"
    )
    tuned.fit(rows, labels)
    chosen = balanced_accuracy_score(labels, tuned.predict(rows))
    assert chosen >= balanced_accuracy_score(labels, plain.predict(rows)) - 1e-9
    np.testing.assert_array_equal(tuned.predict_proba(rows), plain.predict_proba(rows))

    cautious = tools.FixedThresholdClassifier(frozen(plain), threshold=0.2, pos_label="yes").fit(
        rows, labels
    )
    np.testing.assert_array_equal(
        cautious.predict(rows) == "yes", plain.predict_proba(rows)[:, 1] >= 0.2
    )
    missed = [confusion_matrix(labels, m.predict(rows))[1, 0] for m in (cautious, plain)]
    assert missed[0] <= missed[1]


@each_model
def test_pipelines_searches_and_clones(model: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), clone(model))
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.8
    search = GridSearchCV(pipeline, {f"{name(model).lower()}__bins": [3, 6]}, cv=2).fit(X, Y)
    assert search.best_params_[f"{name(model).lower()}__bins"] in (3, 6)
    again = clone(clone(model).set_params(bins=7).fit(X, Y))
    assert again.get_params() == {**model.get_params(), "bins": 7}
    assert not hasattr(again, "totals_")


@each_model
def test_frames_of_mixed_columns_are_cross_validated(model: Any) -> None:
    rows = frame(200)
    assert cross_val_score(clone(model), rows.drop(columns="ill"), rows["ill"], cv=4).mean() > 0.6


def test_ensembles_and_calibration() -> None:
    forest = es.CompletelyRandomForest(n_trees=10, depth=2)
    calibrated = CalibratedClassifierCV(forest, cv=3).fit(X, Y)
    assert calibrated.score(X, Y) > 0.85
    votes = VotingClassifier(
        [("forest", forest), ("bayes", es.MultinomialNB())], voting="soft"
    ).fit(X, Y)
    assert votes.score(X, Y) > 0.85
    assert (
        BaggingClassifier(es.LinearMeans(), n_estimators=3, random_state=0).fit(X, Y).score(X, Y)
        > 0.85
    )


def test_models_of_two_classes_serve_for_more() -> None:
    rows = frame(200, classes=("a", "b", "c"))
    y = rows.pop("ill")
    model = OneVsRestClassifier(es.SemiparametricNB()).fit(rows[["age", "grade"]].to_numpy(), y)
    assert model.score(rows[["age", "grade"]].to_numpy(), y) > 0.4


def test_sklearn_sees_a_classifier_with_its_tags() -> None:
    from sklearn.utils import get_tags

    assert all(get_tags(model).estimator_type == "classifier" for model in MODELS)
    assert not get_tags(es.SemiparametricNB()).classifier_tags.multi_class
    assert get_tags(es.MultinomialNB()).classifier_tags.multi_class
    assert "depth=2" in repr(MODELS[0])
    assert clone(MODELS[0]).fit(schema().table(frame(40))).n_features_in_ == 3


def test_a_model_says_what_it_is(keeper: es.Owner, sealed_fit: Any) -> None:
    forest = es.CompletelyRandomForest(n_trees=4, depth=2, random_state=3)
    words = "CompletelyRandomForest(depth=2, n_trees=4, random_state=3)"
    assert repr(forest) == words
    sealed = sealed_fit(forest, table(60))
    assert repr(sealed) == f"{words} [encrypted, 60 rows, key {keeper.key_id[:4]}...]"
    assert repr(keeper.open(sealed)) == f"{words} [fitted, 60 rows]"
    assert repr(clone(sealed)) == words
    assert words in repr(make_pipeline(StandardScaler(), sealed)).replace("\n", "")
    assert "CompletelyRandomForest" in sealed._repr_html_()
