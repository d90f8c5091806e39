"""What scikit-learn's users bring: text with levels that a fold has not seen, weights, names of
features, an index.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from model_samples import MODELS, frame, name, schema, table
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import encryptedstats as es
from error_codes import error


def rows_with_rare_levels(n: int = 240) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Levels of one row each, gaps in a few rows, and a class that hardly any fold has."""
    X = frame(n).drop(columns="ill")
    X.loc[[7, 90, 200], "sex"] = ["once", "twice", "thrice"]
    X["town"] = [None if i in (3, 77) else f"t{i % 5}" for i in range(n)]
    return X, frame(n)["ill"]


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_levels_that_a_fold_has_not_seen_do_not_stop_cross_validation(model: Any) -> None:
    scores = cross_val_score(clone(model), *rows_with_rare_levels(), cv=4, error_score="raise")
    assert np.isfinite(scores).all()
    assert scores.mean() > 0.6


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
def test_cross_validation_of_adult_as_it_is() -> None:
    folder = os.environ.get("ENCRYPTEDSTATS_DATA")
    if not folder:
        pytest.skip("ENCRYPTEDSTATS_DATA names no folder with the data sets")
    X = pd.read_csv(Path(folder) / "adult.csv.gz", nrows=3000)
    y = X.pop("target")
    scores = cross_val_score(es.MultinomialNB(), X, y, cv=5)
    assert scores.min() > 0.77  # the share of the larger class is 0.755


def test_a_class_of_a_single_row_does_not_stop_it_either() -> None:
    X, y = rows_with_rare_levels()
    y = y.mask(y.index == 5, "once")
    with pytest.warns(UserWarning, match="least populated class"):
        assert np.isfinite(cross_val_score(es.MultinomialNB(), X, y, cv=3)).all()


def test_where_unknown_levels_and_gaps_go() -> None:
    X, y = rows_with_rare_levels()
    model = es.MultinomialNB().fit(X, y)
    sex, town = model.schema_["sex"], model.schema_["town"]
    assert (sex.unknown, sex.other, sex.missing_bin) == (
        "other",
        "twice",
        False,
    )  # the last of the rarest
    assert (town.unknown, town.missing_bin) == ("missing", True)
    new = X[:4].assign(sex=["f", "new", None, "twice"])
    with pytest.warns(
        es.SchemaWarning,
        match=r"such as 'new', row 1\) went to 'twice'; column 'sex': 1 row without a value",
    ) as caught:
        shares = model.predict_proba(new)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(
        shares[[1, 2]], model.predict_proba(X[:4].assign(sex="twice"))[[1, 2]]
    )
    with pytest.raises(es.SchemaError, check=error("missing-values", "'age'")):
        es.MultinomialNB().fit(X.assign(age=np.nan), y)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_a_row_of_weight_two_is_two_rows(model: Any) -> None:
    X, y = frame(80).drop(columns="ill"), frame(80)["ill"]
    weights = np.random.default_rng(1).integers(0, 4, 80)
    weighted = clone(model).fit(X, y, sample_weight=weights.astype(float))
    again = np.repeat(np.arange(80), weights)
    assert weighted.totals_ == clone(model).fit(X.iloc[again], y.iloc[again]).totals_
    assert weighted.schema_ == clone(model).fit(X.iloc[again], y.iloc[again]).schema_


def test_weights_that_cannot_be() -> None:
    X, y = frame(6).drop(columns="ill"), ["no", "yes"] * 3
    model = es.MultinomialNB()
    with pytest.raises(ValueError, check=error("invalid-weights", "1", "0.5", "100")):
        model.fit(X, y, sample_weight=[1, 0.5, 1, 1, 1, 1])
    with pytest.raises(ValueError, check=error("invalid-weights", "6")):
        model.fit(X, y, sample_weight=[1, 2])
    for fit in (model.fit, clone(model).fit(table(20)).partial_fit):
        with pytest.raises(ValueError, check=error("weights-with-table")):
            fit(table(20), sample_weight=np.ones(20))
    more = (
        es.MultinomialNB()
        .partial_fit(X, y, sample_weight=[2] * 6)
        .partial_fit(X, y, sample_weight=[3] * 6)
    )
    assert more.totals_ == es.MultinomialNB().fit(X, y, sample_weight=[5] * 6).totals_


def test_opened_models_know_their_features(tmp_path: Path, keeper: es.Owner) -> None:
    sealed = es.MultinomialNB().fit(keeper.encrypt(table(30), workers=1), workers=1)
    opened = keeper.open(sealed, schema=schema())
    opened.save(tmp_path / "opened")
    for model in (opened, es.load(tmp_path / "opened"), es.MultinomialNB().fit(table(30))):
        assert model.feature_names_in_.tolist() == ["age", "grade", "sex"]
        assert model.n_features_in_ == 3


def test_bins_beside_a_table_are_warned_of() -> None:
    with pytest.warns(
        es.SchemaWarning, match=r"bins=7 is not used: a table has the bins of its schema"
    ) as caught:
        es.MultinomialNB(bins=7).fit(table(30))
    assert caught[0].filename == __file__


def test_votes_keep_the_index() -> None:
    rows = frame(9).drop(columns="ill").set_axis([f"p{i}" for i in range(9)])
    votes = es.MultinomialNB().fit(table(40)).predict_votes(rows)
    for found in (votes, votes.predict_proba(), votes.predict()):
        assert list(found.index) == list(rows.index)
