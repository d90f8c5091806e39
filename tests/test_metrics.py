"""Scores and intervals: by published values, by brute force, and by scikit-learn."""

from __future__ import annotations

import doctest
import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    log_loss,
    precision_score,
    recall_score,
    roc_auc_score,
    roc_curve,
)
from sklearn.svm import LinearSVC

import encryptedstats as es
from encryptedstats import metrics
from error_codes import error


def rows(
    n: int = 200, seed: int = 0, classes: tuple[Any, ...] = ("no", "yes")
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(classes), n)
    frame = pd.DataFrame({"a": rng.normal(size=n) + codes, "b": rng.normal(size=n).round(1)})
    return frame, pd.Series(np.array(classes, dtype=object)[codes], name="ill")


def test_examples() -> None:
    assert doctest.testmod(metrics).failed == 0


# -- intervals
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (5, 5, 0.5655, 1),
    ],
)
def test_wilson_as_published(successes: int, n: int, low: float, high: float) -> None:
    """Newcombe (1998), Two-sided confidence intervals for the single proportion, table I."""
    assert metrics.wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_of_nothing_and_of_what_cannot_be() -> None:
    assert np.isnan(metrics.wilson_interval(0, 0)).all()
    with pytest.raises(ValueError, check=error("successes-out-of-range", "3", "2", "0")):
        metrics.wilson_interval(3, 2)
    with pytest.raises(
        ValueError, check=error("confidence-out-of-range", "confidence=95", "0", "1", "0.95")
    ):
        metrics.wilson_interval(1, 2, confidence=95)


def brute_force(truth: Any, scores: Any) -> tuple[float, float]:
    """AUC and DeLong's variance, pair by pair."""
    one, other = scores[truth], scores[~truth]
    order = np.array([[float(a > b) + 0.5 * float(a == b) for b in other] for a in one])
    return order.mean(), order.mean(axis=1).var(ddof=1) / len(one) + order.mean(axis=0).var(
        ddof=1
    ) / len(other)


@pytest.mark.parametrize("seed", range(5))
def test_auc_and_delong_pair_by_pair(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.random(60) < 0.4
    scores = (rng.normal(size=60) + truth).round(1)  # with ties
    value, variance = brute_force(truth, scores)
    assert (
        metrics.auc(truth, scores)
        == pytest.approx(value, abs=1e-14)
        == roc_auc_score(truth, scores)
    )
    assert metrics.delong_variance(truth, scores, np.ones(60)) == pytest.approx(variance)
    low, high = metrics.auc_interval(truth, scores)
    half = 1.959964 * np.sqrt(variance) / (value * (1 - value))
    odds = np.log(value / (1 - value))
    assert [low, high] == pytest.approx(
        [1 / (1 + np.exp(half - odds)), 1 / (1 + np.exp(-half - odds))]
    )
    assert 0 < low < value < high < 1


def test_perfect_order_still_has_an_interval() -> None:
    """DeLong's variance is 0 there; Newcombe's interval solves (1 - x)^2 = z^2 V(x)."""
    truth, scores = np.repeat([False, True], 10), np.arange(20.0)
    low, high = metrics.auc_interval(truth, scores)
    assert high == 1
    assert 0.7 < low < 0.9
    variance = low * (1 - low) * (1 + 9 * ((1 - low) / (2 - low) + low / (1 + low))) / 100
    assert (1 - low) ** 2 == pytest.approx(1.959964**2 * variance, rel=1e-5)
    assert metrics.auc_interval(~truth, scores) == pytest.approx((0, 1 - low))
    few = metrics.auc_interval([0, 1, 0], [1, 2, 3])  # a class with a single row
    assert few[0] < 0.5 < few[1]
    assert np.isnan(metrics.auc_interval([1, 1], [1, 2])).all()


def test_intervals_cover() -> None:
    """Of 300 samples, about 95 % of the intervals hold the AUC of the population."""
    rng, hits = np.random.default_rng(1), 0
    for _ in range(300):
        truth = np.arange(60) < 25
        low, high = metrics.auc_interval(truth, rng.normal(size=60) + truth)
        hits += low < 0.7602 < high  # Phi(1 / sqrt 2)
    assert 0.91 < hits / 300 < 0.99


def test_weights() -> None:
    rng = np.random.default_rng(3)
    truth, scores, weights = (
        rng.random(80) < 0.5,
        rng.normal(size=80).round(1),
        rng.integers(1, 5, 80),
    )
    expected = roc_auc_score(truth, scores, sample_weight=weights)
    assert metrics.auc(truth, scores, weights) == pytest.approx(expected)
    plain = metrics.auc_interval(truth, scores)
    assert metrics.auc_interval(truth, scores, np.full(80, 7)) == pytest.approx(
        plain
    )  # weights are no copies
    with pytest.raises(ValueError, check=error("lengths-differ", "80", "3")):
        metrics.auc(truth, scores, [1, 2, 3])
    with pytest.raises(ValueError, check=error("negative-weights", "0")):
        metrics.auc(truth, scores, np.zeros(80))
    with pytest.raises(ValueError, check=error("nan-scores")):
        metrics.auc([0, 1], [np.nan, 1])


# -- curves
# ------------------------------------------------------------------------------------------------


def test_roc_points_and_band() -> None:
    rng = np.random.default_rng(5)
    truth = rng.random(150) < 0.4
    scores, ones = (rng.normal(size=150) + truth).round(1), np.ones(150)
    fpr, tpr = metrics.roc_points(truth, scores, ones)
    expected = roc_curve(truth, scores, drop_intermediate=False)
    np.testing.assert_allclose([fpr, tpr], expected[:2])
    grid = np.linspace(0, 1, 21)
    low, high = metrics.roc_band(truth, scores, ones, grid)
    middle = np.interp(grid, fpr, tpr)
    assert (low <= middle + 0.02).all()
    assert (middle <= high + 0.02).all()
    assert 0.05 < (high - low)[2:10].mean() < 0.5
    again = metrics.roc_band(truth, scores, ones, grid)
    np.testing.assert_array_equal((low, high), again)


def test_calibration_table() -> None:
    rng = np.random.default_rng(4)
    p = rng.random(200)
    truth = rng.random(200) < p
    table = metrics.calibration_table(truth, p, n_bins=5)
    assert table["rows"].tolist() == [40] * 5
    assert table["positives"].sum() == truth.sum()
    order = np.argsort(p)
    np.testing.assert_allclose(table["predicted"], p[order].reshape(5, 40).mean(axis=1))
    np.testing.assert_allclose(table["observed"], truth[order].reshape(5, 40).mean(axis=1))
    for _, line in table.iterrows():
        assert metrics.wilson_interval(line["positives"], line["rows"]) == pytest.approx(
            (line["low"], line["high"])
        )
    same = metrics.calibration_table(truth, np.full(200, 0.4))
    assert same["rows"].tolist() == [200]  # equal predictions stay together
    with pytest.raises(ValueError, check=error("too-few-groups", "n_bins=0")):
        metrics.calibration_table(truth, p, n_bins=0)
    with pytest.raises(ValueError, check=error("probabilities-out-of-range", "0", "1")):
        metrics.calibration_table(truth, p + 1)


def test_slope_and_intercept_of_calibration() -> None:
    """Probabilities that are too timid have a slope above 1, and their logistic fit is
    scikit-learn's.
    """
    rng = np.random.default_rng(6)
    odds = rng.normal(size=4000)
    truth = rng.random(4000) < 1 / (1 + np.exp(-(2 * odds + 0.5)))
    line = metrics.logistic_line(odds, truth.astype(float), np.ones(4000))
    fit = LogisticRegression(C=1e9, tol=1e-10).fit(odds[:, None], truth)
    assert line.slope == pytest.approx(fit.coef_[0, 0], rel=1e-4)
    assert line.intercept == pytest.approx(fit.intercept_[0], rel=1e-3)
    p = fit.predict_proba(odds[:, None])[:, 1]
    design = np.column_stack([np.ones(4000), odds])
    np.testing.assert_allclose(
        line.covariance, np.linalg.inv((design.T * (p * (1 - p))) @ design), rtol=1e-3
    )
    level = metrics.logistic_line(odds, truth.astype(float), np.ones(4000), slope=1.0)
    assert (1 / (1 + np.exp(-(odds + level.intercept)))).mean() == pytest.approx(truth.mean())
    assert np.isnan(
        metrics.logistic_line(odds, (odds > 0).astype(float), np.ones(4000)).slope
    )  # separated


# -- all of it
# ------------------------------------------------------------------------------------------------


def test_scores_are_those_of_scikit_learn() -> None:
    X, y = rows()
    model = LogisticRegression().fit(X, y)
    found = metrics.evaluate(model, X, y)
    p, said = model.predict_proba(X)[:, 1], model.predict(X)
    expected = {
        "accuracy": accuracy_score(y, said),
        "auc": roc_auc_score(y == "yes", p),
        "log_loss": log_loss(y, model.predict_proba(X)),
        "brier": brier_score_loss(y == "yes", p),
        "sensitivity": recall_score(y, said, pos_label="yes"),
        "specificity": recall_score(y, said, pos_label="no"),
        "ppv": precision_score(y, said, pos_label="yes"),
        "npv": precision_score(y, said, pos_label="no"),
    }
    assert {name: found.scores[name].estimate for name in expected} == pytest.approx(expected)
    assert found.positive == "yes"
    assert found.class_counts == {"no": int((y == "no").sum()), "yes": int((y == "yes").sum())}
    table = found.calibration
    assert table is not None
    error = np.average((table["predicted"] - table["observed"]).abs(), weights=table["rows"])
    assert found.scores["calibration_error"].estimate == pytest.approx(error)
    shares = found.table.loc[["accuracy", "sensitivity", "specificity", "ppv", "npv"]]
    assert shares["interval"].unique().tolist() == ["Wilson"]
    assert shares["n"].tolist()[:3] == [200, (y == "yes").sum(), (y == "no").sum()]
    assert found.table.loc["auc", "interval"] == "DeLong"
    for name, one in found.scores.items():
        assert name == "calibration_error" or one.low <= one.estimate <= one.high, name
    shown = str(found)
    assert "200 rows, " in shown
    assert "of the positive class yes" in shown


def test_the_other_class_swaps_everything() -> None:
    X, y = rows()
    model = LogisticRegression().fit(X, y)
    yes, no = (metrics.evaluate(model, X, y, pos_label=label).scores for label in ("yes", "no"))
    for a, b in (("sensitivity", "specificity"), ("ppv", "npv")):
        assert (yes[a], yes[b]) == (no[b], no[a])
    for name in ("accuracy", "auc", "log_loss", "brier", "calibration_slope"):
        assert yes[name].estimate == pytest.approx(no[name].estimate)
        assert (yes[name].low, yes[name].high) == pytest.approx((no[name].low, no[name].high))
    assert yes["calibration_intercept"].estimate == pytest.approx(
        -no["calibration_intercept"].estimate
    )
    with pytest.raises(
        ValueError, check=error("unknown-class", "'maybe'", "'no'", "'yes'", "pos_label='maybe'")
    ):
        metrics.evaluate(model, X, y, pos_label="maybe")


def test_a_threshold_moves_sensitivity_and_specificity() -> None:
    X, y = rows()
    model = LogisticRegression().fit(X, y)
    p = model.predict_proba(X)[:, 1]
    found = metrics.evaluate(model, X, y, threshold=0.2)
    called = np.where(p >= 0.2, "yes", "no")
    assert found.scores["sensitivity"].estimate == pytest.approx(
        recall_score(y, called, pos_label="yes")
    )
    assert found.scores["specificity"].estimate == pytest.approx(
        recall_score(y, called, pos_label="no")
    )
    assert found.scores["accuracy"].estimate == pytest.approx(accuracy_score(y, called))
    assert found.scores["auc"] == metrics.evaluate(model, X, y).scores["auc"]


def test_a_score_that_is_the_threshold_reaches_it() -> None:
    p = np.array([[0.7, 0.3], [0.5, 0.5], [0.4, 0.6]])
    codes = np.array([0, 1, 1])
    made = metrics.Predictions(np.array(["no", "yes"]), codes, codes, p, are_probabilities=True)
    assert made.against(1, 0.5).called.tolist() == [False, True, True]
    assert made.against(1, 0.6).called.tolist() == [False, False, True]


def test_several_classes() -> None:
    X, y = rows(300, classes=("a", "b", "c"))
    model = LogisticRegression().fit(X, y)
    found, p = metrics.evaluate(model, X, y), model.predict_proba(X)
    assert found.positive is None
    assert found.scores["auc"].estimate == pytest.approx(
        roc_auc_score(y, p, multi_class="ovr", average="macro")
    )
    assert found.scores["auc"].method == "mean over classes"
    assert found.scores["sensitivity"].estimate == pytest.approx(
        recall_score(y, model.predict(X), average="macro")
    )
    assert found.scores["log_loss"].estimate == pytest.approx(log_loss(y, p))
    truth = pd.get_dummies(y).to_numpy()
    assert found.scores["brier"].estimate == pytest.approx(((p - truth) ** 2).sum(axis=1).mean())
    assert list(found.by_class) == ["a", "b", "c"]
    assert "each class against all others" in str(found)
    one = metrics.evaluate(model, X, y, pos_label="b")
    assert one.scores == found.by_class["b"]
    assert one.notes == ("b against all other classes",)
    with pytest.raises(ValueError, check=error("threshold-without-class", "3")):
        metrics.evaluate(model, X, y, threshold=0.3)


def test_scores_without_probabilities() -> None:
    X, y = rows()
    model = LinearSVC().fit(X, y)
    for label, sign in (("yes", 1), ("no", -1)):
        found = metrics.evaluate(model, X, y, pos_label=label)
        expected = roc_auc_score(y == label, sign * model.decision_function(X))
        assert found.scores["auc"].estimate == pytest.approx(expected)
        assert np.isnan(found.scores["brier"].estimate)
        assert found.calibration is None
        assert found.notes == (
            "the model has scores and no probabilities: no log loss, Brier score or calibration",
        )


def test_one_class_and_tiny_inputs() -> None:
    X, y = rows()
    model = LogisticRegression().fit(X, y)
    only = metrics.evaluate(model, X[y == "no"], y[y == "no"])
    assert np.isnan(
        [only.scores[name].estimate for name in ("auc", "sensitivity", "calibration_slope")]
    ).all()
    assert 0 < only.scores["specificity"].estimate <= 1
    assert only.notes[0].startswith(
        f"none of the {(y == 'no').sum()} rows is of the positive class yes: AUC"
    )
    assert "n/a" in str(only)
    single = metrics.evaluate(model, X[:1], y[:1])
    assert single.scores["accuracy"].n == 1
    assert np.isnan(single.scores["brier"].low)
    with pytest.raises(ValueError, check=error("no-classes")):
        metrics.evaluate(model, X)
    with pytest.raises(ValueError, check=error("unknown-class", "'perhaps'", "200")):
        metrics.evaluate(model, X, ["perhaps"] * 200)
    with pytest.raises(ValueError, check=error("no-known-classes", "200")):
        metrics.evaluate(model, X, [None] * 200)


def test_rows_that_are_left_out_are_counted() -> None:
    X, y = rows()
    model = LogisticRegression().fit(X, y)
    partly = y.where(np.arange(200) % 10 > 0)
    found = metrics.evaluate(model, X, partly)
    assert (found.n_rows, found.n_unlabelled) == (180, 20)
    assert found.scores == metrics.evaluate(model, X[partly.notna()], y[partly.notna()]).scores
    assert "left out: 20 rows without a class" in str(found)
    gaps = X.assign(ill=y)
    gaps.loc[:6, "a"] = np.nan
    schema = es.Schema.infer(gaps, target="ill", missing="drop")
    forest = es.CompletelyRandomForest(5, 2, random_state=1).fit(schema.table(gaps))
    dropped = metrics.evaluate(forest, schema.table(gaps))
    assert (dropped.n_rows, dropped.n_dropped) == (193, 7)
    assert "left out: 7 rows with missing values" in str(dropped)


def test_weights_of_a_table() -> None:
    X, y = rows()
    weights = np.random.default_rng(0).integers(0, 4, 200)
    schema = es.Schema.infer(X.assign(ill=y), target="ill")
    model = es.MultinomialNB().fit(schema.table(X.assign(ill=y)))
    found = metrics.evaluate(model, schema.table(X, y, weights=weights)).scores
    p, said = model.predict_proba(X), model.predict(X)
    assert found["accuracy"].estimate == pytest.approx(
        accuracy_score(y, said, sample_weight=weights)
    )
    assert found["log_loss"].estimate == pytest.approx(log_loss(y, p, sample_weight=weights))
    assert found["auc"].estimate == pytest.approx(
        roc_auc_score(y == "yes", p[:, 1], sample_weight=weights)
    )
    expected = recall_score(y, said, pos_label="yes", sample_weight=weights)
    assert found["sensitivity"].estimate == pytest.approx(expected)
    assert found["accuracy"].n == np.count_nonzero(weights)


def test_weights_are_no_copies_of_rows_in_intervals_of_calibration() -> None:
    rng = np.random.default_rng(5)
    p = rng.uniform(0.05, 0.95, 150)
    positive, row = rng.random(150) < p, np.ones(150)
    arrays = (positive, p, p > 0.5)
    plain = metrics.Binary("yes", *arrays, row, True).estimates()
    heavy = metrics.Binary("yes", *arrays, 7 * row, True, True).estimates()
    for name in ("calibration_slope", "calibration_intercept", "auc", "accuracy", "brier"):
        for end in ("estimate", "low", "high"):
            assert getattr(heavy[name], end) == pytest.approx(getattr(plain[name], end)), name


def test_everything_is_ready_for_json() -> None:
    X, y = rows(60)
    document = metrics.evaluate(DummyClassifier().fit(X, y), X, y).to_dict()
    leaves = list(
        itertools.chain.from_iterable(one.values() for one in document["scores"].values())
    )
    assert all(type(leaf) in (float, int, str) for leaf in leaves)
    assert (document["rows_left_out"], document["rows_without_class"]) == (0, 0)
    assert document["calibration"][0]["rows"] == 60
