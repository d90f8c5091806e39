"""Descriptions, histograms and quantiles: what is read from encrypted totals equals pandas and
scipy on the same rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
from asked_samples import opened, small_owner, table_of
from hypothesis import given
from hypothesis import strategies as some
from sklearn.datasets import load_wine

import encryptedstats as es
from encryptedstats.statistics.descriptive import bin_quantile
from error_codes import error


@pytest.fixture(scope="module")
def wine() -> es.Table:
    """scikit-learn's wines: numbers of one digit, one variable in bins."""
    frame = load_wine(as_frame=True).frame[["alcohol", "malic_acid", "magnesium", "target"]]
    schema = es.Schema.infer(frame, target="target").with_bins(
        "magnesium", edges=[85, 90, 95, 100, 105, 110, 120]
    )
    for name in ("alcohol", "malic_acid"):
        schema = schema.with_kind(name, "number", digits=1)
    return schema.table(frame)


def test_numbers_are_described_as_pandas_and_scipy_do(wine: es.Table) -> None:
    table = table_of(
        pd.DataFrame({"x": wine.to_pandas()["malic_acid"].iloc[::4]}), numbers={"x": 1}
    )
    found, x = opened(table, es.Describe(moments=4)).table.loc["x"], table.to_pandas()["x"]
    assert (found["n"], found["missing"]) == (len(x), 0)
    assert found["mean"] == pytest.approx(x.mean(), rel=1e-13)
    assert found["sd"] == pytest.approx(x.std(), rel=1e-12)
    assert found["skewness"] == pytest.approx(st.skew(x), rel=1e-11)
    assert found["kurtosis"] == pytest.approx(st.kurtosis(x), rel=1e-11)


def test_groups_have_means_and_variances_of_their_own(wine: es.Table) -> None:
    found, frame = opened(wine, es.Describe(by="class")), wine.to_pandas()
    for name in ("alcohol", "malic_acid"):
        wanted = frame.groupby("target")[name].agg(["count", "mean", "std"])
        np.testing.assert_allclose(found.table.loc[name][["n", "mean", "sd"]], wanted, rtol=1e-12)
    pd.testing.assert_frame_equal(found.tables["magnesium"], wine.counts("v2", by="class"))
    assert "skewness" not in found.table


def test_a_table_is_described_by_name(wine: es.Table) -> None:
    assert wine.describe() == wine.ask(es.Describe())
    assert wine.describe(["alcohol"], by="class", moments=4) == wine.ask(
        es.Describe(["v0"], by="class", moments=4)
    )


def test_an_encrypted_table_is_described_by_name() -> None:
    table = table_of(pd.DataFrame({"x": [1, 2, 2, 5], "g": list("abab")}), numbers={"x": 0})
    assert small_owner().open(
        small_owner().encrypt(table).describe(["x"], by="g")
    ) == table.describe(["x"], by="g")


def test_missing_values_of_bins_are_counted() -> None:
    table = table_of(
        pd.DataFrame({"g": ["a", None, "b", "a", None], "h": list("xxyyy")}), missing="bin"
    )
    found = opened(table, es.Describe(["v0"], by="v1")).table
    assert found[["n", "missing"]].to_numpy().tolist() == [[1, 1], [2, 1]]
    assert opened(table, es.Describe(["v0"])).table.loc["g", "missing"] == 2


@pytest.mark.filterwarnings("ignore:column 'x' is constant")
def test_one_row_and_a_constant_column_have_no_spread() -> None:
    table = table_of(pd.DataFrame({"x": [4, 4, 4]}), numbers={"x": 0})
    whole = opened(table, es.Describe(moments=4)).table.loc["x"]
    assert (whole["mean"], whole["sd"]) == (4, 0)
    assert whole[["skewness", "kurtosis"]].isna().all()
    assert np.isnan(opened(table[0:1], es.Describe()).table.loc["x", "sd"])


def test_an_empty_group_has_no_mean() -> None:
    table = table_of(pd.DataFrame({"x": [1, 2, 3], "g": list("aab")}), numbers={"x": 0})
    found = opened(table[0:2], es.Describe(["v0"], by="v1")).table
    assert found["n"].tolist() == [2, 0]
    assert np.isnan(found.loc[("x", "b"), "mean"])


# -- bins
# ------------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_rows_spread_evenly_in_their_bins(wine: es.Table) -> None:
    found = opened(wine, es.Histogram("v2"))
    edges, counts = wine.schema["magnesium"].edges, found.counts["rows"].to_numpy()
    spread = np.concatenate(
        [
            np.linspace(a, b, 2 * n + 1)[1::2]
            for a, b, n in zip([70, *edges], [*edges, 162], counts, strict=True)
        ]
    )
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert found.quantile(share, low=70, high=162)["rows"] == pytest.approx(
            np.quantile(spread, share, method="hazen")
        )
    assert found.quantile([0.25, 0.5]).shape == (2, 1)
    assert "quantiles are interpolated within bins" in found.notes


def test_open_bins_have_no_quantiles_unless_their_ends_are_said(wine: es.Table) -> None:
    found = opened(wine, es.Histogram("v2"))
    assert np.isnan(found.quantile(0.01)["rows"])
    assert 70 < found.quantile(0.01, low=70)["rows"] < 85
    with pytest.raises(ValueError, check=error("quantile-out-of-range", "q=2", "0", "1")):
        found.quantile(2)
    assert np.isnan(opened(wine, es.Describe(["v2"], quantiles=[0.01])).table["0.01"]).all()


def test_density_adds_up_to_one(wine: es.Table) -> None:
    found = opened(wine, es.Histogram("v2", by="class"))
    ends = np.array([70, *wine.schema["magnesium"].edges, 162])
    np.testing.assert_allclose((found.density(low=70, high=162).T * np.diff(ends)).sum(axis=1), 1)
    assert found.density().iloc[0].isna().all()


def test_levels_have_no_quantiles() -> None:
    table = table_of(pd.DataFrame({"g": list("aab")}))
    with pytest.raises(es.DataError, check=error("no-cut-points")):
        opened(table, es.Histogram("v0")).quantile(0.5)


@given(some.lists(some.integers(0, 50), min_size=4, max_size=4).filter(any), some.floats(0, 1))
def test_quantiles_rise_and_stay_inside(counts: list[int], share: float) -> None:
    found = bin_quantile([1, 2, 3], counts, share, low=0, high=4)
    assert 0 <= found <= 4
    assert found <= bin_quantile([1, 2, 3], counts, min(1, share + 0.1), low=0, high=4)


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (es.Describe(moments=3), "unknown-moments"),
        (es.Describe(quantiles=[1.5]), "quantile-out-of-range"),
        (es.Describe(by="v0"), "kept-as-number"),
        (es.Describe([]), "no-variables"),
        (es.Histogram("v0"), "kept-as-number"),
        (es.Histogram("v2", by="v2"), "same-variable-twice"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    wine: es.Table, question: es.Question, complaint: str
) -> None:
    with pytest.raises(es.EncryptedStatsError, check=error(complaint)):
        wine.ask(question)
    with pytest.raises(es.EncryptedStatsError, check=error(complaint)):
        es.plan(question, wine)


def test_one_variable_is_one() -> None:
    frame = pd.DataFrame({"x": [1, 2, 5], "y": [2, 1, 4]})
    table = es.Schema.infer(frame, numbers="keep", digits=0).table(frame)
    assert table.ask(es.Describe(["x"])).title == "Description of 1 variable"
    assert table.ask(es.Describe(["x", "y"])).title == "Description of 2 variables"
    one = es.LinearRegression("y ~ 1").fit(
        es.Schema.infer(frame, numbers="keep", digits=0).table(frame[:1])
    )
    assert any(
        note.startswith("1 row and 1 coefficient: no degrees") for note in one.summary().notes
    )
