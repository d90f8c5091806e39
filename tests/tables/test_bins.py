"""Cut points, bin numbers, codes and fixed point against NumPy and by their defining properties."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encryptedstats.errors import SchemaError
from encryptedstats.tables.schema.bins import (
    assign_bins,
    centred_codes,
    code_values,
    fixed_point,
    ordinal_codes,
    quantile_edges,
)
from error_codes import error

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("bins", [1, 2, 3, 5, 7, 10])
@pytest.mark.parametrize("n", [11, 100, 101, 547])
def test_edges_are_numpys_quantiles(bins, n):
    values = np.random.default_rng(n).normal(size=n)
    np.testing.assert_allclose(
        quantile_edges(values, bins), np.quantile(values, np.arange(1, bins) / bins), rtol=1e-12
    )


@pytest.mark.parametrize("n", [10, 11, 99, 500])
def test_bins_are_those_of_pandas_qcut(n):
    values = np.random.default_rng(n).normal(size=n)
    assert (
        assign_bins(values, quantile_edges(values, 5)) == pd.qcut(values, 5, labels=False)
    ).all()


@given(st.lists(FINITE, min_size=1, max_size=40), st.integers(1, 9))
def test_every_bin_holds_a_value_and_edges_increase(values, bins):
    edges = quantile_edges(values, bins)
    assert (np.diff(edges) > 0).all()
    assert np.isfinite(edges).all()
    numbers = assign_bins(values, edges)
    assert sorted(set(numbers.tolist())) == list(range(len(edges) + 1))
    assert len(edges) < bins


@given(
    st.lists(FINITE, min_size=1, max_size=20), st.lists(FINITE, max_size=6, unique=True).map(sorted)
)
def test_bin_number_counts_the_edges_below(values, edges):
    expected = [sum(edge < value for edge in edges) for value in values]
    assert assign_bins(values, edges).tolist() == expected


def test_ties_merge_and_a_heavy_least_value_keeps_its_bin():
    assert quantile_edges([1] * 80 + [2, 3, 4, 9] * 5, 5).tolist() == [1.0]
    assert quantile_edges([4.5] * 7, 5).tolist() == []
    assert quantile_edges([3.0], 5).tolist() == []


def test_an_edge_meant_to_be_a_data_value_is_that_value():
    # k/bins * (n - 1) in doubles can miss an integer by one rounding and push a value over its own
    # cut point.
    for n in range(2, 300):
        values = np.arange(n) / 10
        exact = [values[k * (n - 1) // 5] for k in range(1, 5) if k * (n - 1) % 5 == 0]
        assert set(exact) <= {*quantile_edges(values, 5), values[-1]}


@pytest.mark.parametrize(
    ("values", "bins"), [([], 5), ([np.nan], 5), ([np.inf, 1], 5), ([1, 2], 0)]
)
def test_impossible_quantiles_are_refused(values, bins):
    with pytest.raises(SchemaError, match=r"bins=0|at least one value, all of them finite"):
        quantile_edges(values, bins)


@pytest.mark.parametrize("m", range(1, 9))
def test_centred_codes_are_symmetric_and_evenly_spaced(m):
    codes = np.array(code_values(m, centred=True))
    assert (codes == -codes[::-1]).all()
    assert set(np.diff(codes)) <= {1 if m % 2 else 2}
    assert (centred_codes(np.arange(m), m) == codes).all()
    assert ordinal_codes(np.arange(m)).tolist() == list(code_values(m)) == list(range(1, m + 1))


def test_fixed_point_rounds_halves_to_even_on_both_sides_of_zero():
    assert fixed_point([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], 0).tolist() == [0, 2, 2, 0, -2, -2]
    assert fixed_point([0.25, 0.75, -0.25, 12.34], 1).tolist() == [2, 8, -2, 123]
    single = np.array(
        [36.64, 123456.78], dtype=np.float32
    )  # scaled in double precision, like a column of a table
    assert fixed_point(single, 4).tolist() == [366400, 1234567812]
    assert fixed_point([True, False], 2).tolist() == [100, 0]


def test_large_integers_are_exact():
    large = np.array([2**62, -(2**62), 2**53 + 1], dtype=np.int64)
    assert fixed_point(large, 0).tolist() == large.tolist()
    assert fixed_point(np.array([2**53 + 1], dtype=np.uint64), 2).tolist() == [(2**53 + 1) * 100]


@pytest.mark.parametrize(
    ("values", "digits"),
    [
        ([2**62 + 1], 0),
        ([-(2**62)], 1),
        (np.array([2**63], np.uint64), 0),
        ([1e19], 0),
        ([np.nan], 0),
        ([np.inf], 2),
    ],
)
def test_what_does_not_fit_is_refused(values, digits):
    with pytest.raises(SchemaError, check=error("number-too-large")):
        fixed_point(values, digits)


@pytest.mark.parametrize("values", [["a"], [2**70]])
def test_fixed_point_needs_numbers(values):
    with pytest.raises(SchemaError, check=error("number-too-wide", "64")):
        fixed_point(values, 0)


@pytest.mark.parametrize("digits", [-1, 16, 1.5, True, "2", None])
def test_digits_are_checked(digits):
    with pytest.raises(SchemaError, check=error("digits-out-of-range", "0", "15")):
        fixed_point([1], digits)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1), st.integers(0, 6))
def test_decimals_round_trip(integers, digits):
    decimals = np.array(integers) / 10.0**digits
    assert fixed_point(decimals, digits).tolist() == integers
