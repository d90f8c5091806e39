"""Are they good classifiers? On the paper's data, encrypted; and beside scikit-learn's own where
the method is the same.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_samples import name, predictors, random_table
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import CategoricalNB
from sklearn.neighbors import NearestCentroid

import encryptedstats as es
from encryptedstats.tables import Variable
from reproduction import datasets

# -- the paper's breast cancer data
# -------------------------------------------------------------------------------------------

needs_data = pytest.mark.skipif(
    not os.environ.get("ENCRYPTEDSTATS_DATA"),
    reason="the paper's data are not here: set ENCRYPTEDSTATS_DATA",
)


def encrypted_auc(model: Any) -> float:
    """Of the model that is fitted on encrypted rows, as the owner opens it, on the fifth of the
    rows it has not seen.
    """
    data = datasets.load("bcw_o", download=False)
    frame = data.table_frame()
    train, test = train_test_split(frame, test_size=0.2, random_state=0, stratify=frame["target"])
    schema = es.Schema.infer(train, target="target", kinds=data.kinds)
    owner = es.Owner(es.plan(model, schema, len(train)))
    sealed = owner.encrypt(schema.table(train))
    plain = owner.open(model.fit(sealed))
    assert owner.parameters.security >= 128
    return float(roc_auc_score(test["target"], plain.predict_proba(test)[:, 1]))


@needs_data
@pytest.mark.parametrize(
    "model",
    [
        es.CompletelyRandomForest(n_trees=10, depth=3, random_state=0),
        es.SemiparametricNB(),
        es.MultinomialNB(),
        pytest.param(
            es.CompletelyRandomForest(n_trees=100, depth=3, random_state=0), marks=pytest.mark.slow
        ),
    ],
    ids=lambda m: f"{name(m)}{getattr(m, 'n_trees', '')}",
)
def test_auc_of_breast_cancer_encrypted(model: Any) -> None:
    assert encrypted_auc(model) >= 0.98


# -- scikit-learn's own
# ------------------------------------------------------------------------------------------------


def numbers(n: int, seed: int, n_classes: int = 2) -> es.Table:
    """Correlated integers around a mean for each class: a well-conditioned problem."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    means = rng.normal(0, 25, (n_classes, 3))
    mixing = rng.normal(0, 10, (3, 3)) + 15 * np.eye(3)
    X = np.rint(means[codes] + rng.normal(size=(n, 3)) @ mixing).astype(np.int64)
    variables = tuple(Variable(f"x{j}", "number", digits=0, low=-500, high=500) for j in range(3))
    return es.Table(es.Schema(variables, "y", tuple(range(n_classes))), tuple(X.T), codes)


def matrix(rows: es.Table) -> NDArray[np.int64]:
    return predictors(rows, centred=False)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_multinomial_naive_bayes_is_categorical_nb(alpha: float, n_classes: int) -> None:
    shapes = [
        ("continuous", (0.0, 1.0, 2.0), ()),
        ("categorical", (), ("a", "b", "c")),
        ("ordinal", (), (1, 2)),
    ]
    variables = tuple(Variable(f"x{j}", k, edges=e, levels=v) for j, (k, e, v) in enumerate(shapes))
    rows = random_table(es.Schema(variables, "y", tuple(range(n_classes))), 150, 4)
    X = np.column_stack(rows.data)
    theirs = CategoricalNB(alpha=alpha, min_categories=[4, 3, 2]).fit(X, rows.class_codes)
    ours = es.MultinomialNB(alpha=alpha).fit(rows)
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(X), rtol=1e-10)
    np.testing.assert_array_equal(ours.predict(rows), theirs.predict(X))


def test_rows_that_are_impossible_in_every_class_get_the_frequencies() -> None:
    schema = es.Schema((Variable("x", "ordinal", levels=(1, 2, 3)),), "y", (0, 1))
    ours = es.MultinomialNB(alpha=0).fit(
        es.Table(schema, (np.array([0, 0, 1, 1]),), np.array([0, 0, 0, 1]))
    )
    new = es.Table(schema, (np.array([0, 1, 2]),))
    np.testing.assert_allclose(ours.predict_proba(new), [[1, 0], [0.5, 0.5], [0.75, 0.25]])


def test_fishers_discriminant_is_linear_discriminant_analysis() -> None:
    rows = numbers(400, 1)
    n = len(rows)
    theirs = LinearDiscriminantAnalysis(solver="svd", priors=[0.5, 0.5]).fit(
        matrix(rows), rows.class_codes
    )
    ours = es.FisherDiscriminant().fit(rows)
    factor = ours.decision_function(rows) / theirs.decision_function(matrix(rows))
    np.testing.assert_allclose(factor, factor[0], rtol=1e-6)
    assert np.isclose(
        factor[0], [1, n / (n - 2)], rtol=1e-6
    ).any()  # their covariance is divided by N or N - 2
    np.testing.assert_array_equal(ours.predict(rows), theirs.predict(matrix(rows)))


def test_fishers_discriminant_of_several_classes() -> None:
    rows = numbers(400, 2, n_classes=4)
    theirs = LinearDiscriminantAnalysis(solver="svd", priors=[0.25] * 4).fit(
        matrix(rows), rows.class_codes
    )
    ours = es.FisherDiscriminant().fit(rows)
    np.testing.assert_array_equal(ours.predict(rows), theirs.predict(matrix(rows)))
    assert ours.decision_function(rows).shape == (400, 4)


def test_fishers_discriminant_of_collinear_levels_and_of_a_perfect_predictor() -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 200)
    frame = pd.DataFrame(
        {"sex": rng.choice(["f", "m", "x"], 200), "noise": rng.normal(size=200), "y": y}
    )
    frame["tells"] = np.where(y == 1, "a", "b")
    for columns, score in ((["sex", "noise"], 0.4), (["sex", "noise", "tells"], 1.0)):
        schema = es.Schema.infer(frame[[*columns, "y"]], target="y")
        model = es.FisherDiscriminant().fit(schema.table(frame))
        assert model.score(frame, y) >= score
        assert np.isfinite(model.decision_function(frame)).all()
    # Without the constant within classes, the levels of a category do not blow up.
    small = es.FisherDiscriminant().fit(
        es.Schema.infer(frame[["sex", "noise", "y"]], target="y").table(frame)
    )
    assert np.abs(small.decision_function(frame)).max() < 5


@pytest.mark.parametrize("n_classes", [2, 4])
def test_linear_means_is_the_nearest_centroid(n_classes: int) -> None:
    rows = numbers(300, 5, n_classes)
    theirs = NearestCentroid().fit(matrix(rows), rows.class_codes)
    ours = es.LinearMeans().fit(rows)
    np.testing.assert_allclose(ours.means_, theirs.centroids_)
    np.testing.assert_array_equal(ours.predict(rows), theirs.predict(matrix(rows)))
    if n_classes == 2:
        np.testing.assert_array_equal(ours.predict(rows), ours.decision_function(rows) > 0)


def first_step(X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Iteratively reweighted least squares, once, from coefficients 0 (paper, section 4.2.1)."""
    beta = np.zeros(X.shape[1])
    eta = X @ beta
    mu = np.exp(eta) / (1 + np.exp(eta))
    w = mu * (1 - mu)
    z = eta + (y - mu) / w
    solution: NDArray[np.float64] = np.linalg.solve((X.T * w) @ X, (X.T * w) @ z)
    return solution


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_one_step_is_the_first_step_of_irls(fit_intercept: bool) -> None:
    rows = numbers(200, 7)
    X = matrix(rows).astype(float)
    by_hand = first_step(
        np.column_stack([np.ones(200), X]) if fit_intercept else X, rows.class_codes
    )
    ours = es.OneStepLogisticRegression(fit_intercept=fit_intercept).fit(rows)
    np.testing.assert_allclose(ours.coef_[0], by_hand[-3:], rtol=1e-9)
    np.testing.assert_allclose(ours.intercept_[0], by_hand[0] if fit_intercept else 0.0, rtol=1e-9)
    log_odds = X @ by_hand[-3:] + ours.intercept_[0]
    np.testing.assert_allclose(ours.decision_function(rows), log_odds, rtol=1e-9)
    np.testing.assert_allclose(
        ours.predict_proba(rows)[:, 1], 1 / (1 + np.exp(-log_odds)), rtol=1e-9
    )


def test_one_step_of_one_predictor_is_the_papers_paired_estimator() -> None:
    rows = numbers(100, 8)
    alone = es.Table(
        es.Schema(rows.schema.variables[:1], "y", (0, 1)), rows.data[:1], rows.class_codes
    )
    logistic, bayes = es.OneStepLogisticRegression().fit(alone), es.SemiparametricNB().fit(alone)
    assert logistic.coef_[0, 0] == pytest.approx(bayes.b_[0] / bayes.d_[0], rel=1e-12)
    assert logistic.intercept_[0] == pytest.approx(bayes.a_[0] / bayes.d_[0], rel=1e-12)


def test_one_step_of_collinear_constant_and_ill_scaled_predictors() -> None:
    """Levels that add up to the intercept, a constant, and a number a million times larger than the
    others.
    """
    rng = np.random.default_rng(9)
    variables = (
        Variable("level", "categorical", levels=("a", "b", "c")),
        Variable("flat", "number", digits=0, low=3, high=3),
        Variable("big", "number", digits=0, low=10**8, high=10**8 + 10**6),
    )
    y = rng.integers(0, 2, 300)
    level = np.where(rng.random(300) < 0.8, y, 2)
    big = 10**8 + rng.integers(0, 10**6, 300)
    rows = es.Table(es.Schema(variables, "y", (0, 1)), (level, np.full(300, 3), big), y)
    ours = es.OneStepLogisticRegression().fit(rows)
    X = np.column_stack([np.ones(300), level == 0, level == 1, (big - big.mean()) / 1e6])
    by_hand = X @ np.linalg.lstsq(X, 4 * y - 2, rcond=None)[0]
    np.testing.assert_allclose(ours.decision_function(rows), by_hand, atol=1e-5)
    assert ours.coef_[0, 3] == 0
