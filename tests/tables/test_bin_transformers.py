"""The scikit-learn transformers: check_estimator, and the same integers as the schema."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from encryptedstats.errors import SchemaError
from encryptedstats.tables import Schema
from encryptedstats.tables.schema.bin_transformers import (
    FixedPoint,
    QuantileOneHot,
    QuantileOrdinal,
)
from error_codes import error

# No expected failures. One declared deviation, by tag: the output is int64 whatever the input
# (preserves_dtype is empty), because integers are what can be encrypted.
ESTIMATORS = [
    QuantileOneHot(),
    QuantileOrdinal(),
    QuantileOrdinal(bins=4, centred=True),
    FixedPoint(),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.fixture
def frame():
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {"age": rng.normal(50, 10, 60).round(1), "ties": rng.poisson(0.5, 60) * 1.0}
    )


@pytest.mark.parametrize("bins", [2, 4, 5])
def test_same_integers_as_the_schema(frame, bins):
    schema = Schema.infer(frame, bins=bins, kinds={"age": "continuous", "ties": "continuous"})
    table = schema.table(frame)
    onehot = np.column_stack([values for name in frame for values in table.bins(name)])
    np.testing.assert_array_equal(QuantileOneHot(bins).fit_transform(frame), onehot)
    for centred in (False, True):
        codes = np.column_stack([table.codes(name, centred=centred) for name in frame])
        np.testing.assert_array_equal(QuantileOrdinal(bins, centred).fit_transform(frame), codes)
    numbers = (
        schema.with_kind("age", "number", digits=1)
        .with_kind("ties", "number", digits=1)
        .table(frame)
    )
    expected = np.column_stack([numbers.numbers(name) for name in frame])
    np.testing.assert_array_equal(FixedPoint(1).fit_transform(frame), expected)


def test_values_outside_the_training_range_fall_into_the_end_bins(frame):
    ordinal = QuantileOrdinal().fit(frame)
    codes = ordinal.transform(pd.DataFrame({"age": [-1e9, 1e9], "ties": [-5.0, 99.0]}))
    assert codes.tolist() == [[1, 1], list(ordinal.n_bins_)]


def test_names_and_frames_out(frame):
    onehot = QuantileOneHot(bins=2).set_output(transform="pandas").fit(frame)
    out = onehot.transform(frame)
    assert list(out.columns) == [
        "age_bin0",
        "age_bin1",
        *[f"ties_bin{k}" for k in range(onehot.n_bins_[1])],
    ]
    assert list(QuantileOrdinal().fit(frame).get_feature_names_out()) == ["age", "ties"]


def test_fixed_point_goes_back(frame):
    fixed = FixedPoint(digits=1).fit(frame)
    np.testing.assert_allclose(fixed.inverse_transform(fixed.transform(frame)), frame, atol=1e-12)


def test_in_a_pipeline(frame):
    assert make_pipeline(StandardScaler(), QuantileOrdinal()).fit_transform(frame).min() == 1


def test_impossible_parameters_are_refused(frame):
    with pytest.raises(SchemaError, check=error("bins-out-of-range", "bins=0")):
        QuantileOneHot(bins=0).fit(frame)
    with pytest.raises(SchemaError, check=error("digits-out-of-range", "digits=-1", "0", "15")):
        FixedPoint(digits=-1).fit(frame)
