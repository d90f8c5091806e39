"""Noise against theory, and the accounting against OpenDP's own. Statistical tests fail by chance
less than once in 1e9 runs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

import encryptedstats as es
from effort import examples
from encryptedstats.publishing.accounting import Spent, delta_of, epsilon_of, rho_of, total_epsilon
from encryptedstats.publishing.mechanisms import GAUSSIAN, LAPLACE, Mechanism, add_noise, calibrate
from encryptedstats.publishing.sensitivity import Sensitivity

dp = pytest.importorskip("opendp.prelude")
dp.enable_features("contrib")
DRAWS = 8_000
BY_CHANCE = 1e-9


def sensitivity(l1: float, l2: float) -> Sensitivity:
    return Sensitivity(np.array([1]), l1, l2, True)


def drawn(mechanism: Mechanism, size: int = 1) -> np.ndarray:
    return add_noise(np.zeros(DRAWS, dtype=object), np.full(DRAWS, size), mechanism).astype(float)


def fits(found: np.ndarray, weights: np.ndarray, values: np.ndarray) -> None:
    """Pearson's test of whole numbers against their probabilities, in cells that are expected to be
    hit a hundred times.
    """
    expected = weights / weights.sum() * len(found)
    counts = np.array([(found == value).sum() for value in values])
    kept = expected >= 100
    observed = [*counts[kept], len(found) - counts[kept].sum()]
    wanted = [*expected[kept], len(found) - expected[kept].sum()]
    assert stats.chisquare(observed, wanted).pvalue > BY_CHANCE


@pytest.mark.parametrize(("name", "scale"), [(LAPLACE, 3.0), (GAUSSIAN, 4.0)])
def test_noise_has_the_distribution_that_theory_says(name: str, scale: float) -> None:
    values = np.arange(-200, 201)
    weights = (
        np.exp(-np.abs(values) / scale)
        if name == LAPLACE
        else np.exp(-(values**2) / (2 * scale**2))
    )
    fits(drawn(Mechanism(name, scale, Spent(0))), weights, values)


def test_a_wrong_scale_would_be_noticed() -> None:
    values = np.arange(-200, 201)
    with pytest.raises(AssertionError):
        fits(drawn(Mechanism(GAUSSIAN, 4.0, Spent(0))), np.exp(-(values**2) / (2 * 4.8**2)), values)


def test_noise_is_as_much_larger_as_a_row_moves_a_total() -> None:
    found = drawn(Mechanism(GAUSSIAN, 2.0, Spent(0)), size=50)
    # The variance of n normal numbers is chi-square distributed around theirs.
    low, high = (
        stats.chi2.ppf(q, DRAWS) / DRAWS * 100**2 for q in (BY_CHANCE / 2, 1 - BY_CHANCE / 2)
    )
    assert low < found.var() < high


def test_what_no_row_moves_is_exact() -> None:
    values, ranges = np.array([7, 10**15], dtype=object), np.array([0, 0])
    assert add_noise(values, ranges, Mechanism(LAPLACE, 1e6, Spent(0))).tolist() == [7, 10**15]


def test_neighbours_are_told_apart_no_more_often_than_epsilon_allows() -> None:
    """A count of 0 and one of 1, both released with epsilon 1: every set of results, here all up to
    some number.
    """
    mechanism = calibrate(sensitivity(1, 1), 1.0, 0.0)
    zero, one = (
        add_noise(np.full(DRAWS, k, dtype=object), np.ones(DRAWS), mechanism).astype(int)
        for k in (0, 1)
    )
    for limit in range(-3, 4):
        a, b = ((one_of <= limit).sum() for one_of in (zero, one))
        # The largest that b can be and the smallest that a can be, but for one run in 1e9 each.
        most = stats.beta.ppf(1 - BY_CHANCE, b + 1, DRAWS - b)
        least = stats.beta.ppf(BY_CHANCE, a, DRAWS - a + 1)
        assert least <= math.e * most
    exact = (zero <= 0).mean() / max(1e-9, (one <= 0).mean())
    assert 2 < exact < math.e * 1.4  # it is nearly reached: the noise is not more than it has to be


@pytest.mark.parametrize("size", [1, 7])
def test_opendp_agrees_on_what_the_noise_costs(size: int) -> None:
    gaussian = calibrate(sensitivity(4, 2), 1.0, 1e-6, max_rows=3, mechanism=GAUSSIAN)
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=dp.f64)
    made = dp.m.make_gaussian(*space, scale=gaussian.scale * size)
    assert made.map(3 * 2.0 * size) == pytest.approx(gaussian.spent.rho)
    laplace = calibrate(sensitivity(4, 2), 1.0, 0.0, max_rows=3)
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l1_distance(T=dp.i64)
    made = dp.m.make_laplace(*space, scale=laplace.scale * size)
    assert made.map(3 * 4 * size) == pytest.approx(1.0)


@settings(max_examples=examples(10))
@given(st.floats(0.01, 8), st.sampled_from([1e-3, 1e-6, 1e-10]))
def test_rho_and_epsilon_are_the_same_thing(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-6)
    assert delta_of(rho, epsilon) <= delta * (1 + 1e-9)
    # No worse than the bound of Bun and Steinke, which is known to hold, and no better than a
    # Gaussian can be.
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9
    sigma = 1 / math.sqrt(2 * rho)
    exact = stats.norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * stats.norm.cdf(
        -0.5 / sigma - epsilon * sigma
    )
    assert delta >= exact * (1 - 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_no_gaussian_noise_is_much_less(epsilon: float) -> None:
    """The least of a single release (Balle and Wang, 2018), whose cost would not add up as it is
    stated, is within a tenth.
    """

    def lacks(sigma: float) -> float:
        above, below = (stats.norm.cdf(end / sigma - epsilon * sigma) for end in (0.5, -0.5))
        return float(above - math.exp(epsilon) * below - 1e-6)

    least = brentq(lacks, 0.05, 1000)
    scale = calibrate(sensitivity(1, 1), epsilon, 1e-6, mechanism=GAUSSIAN).scale
    assert least < scale < 1.1 * least


def test_opendp_agrees_on_the_conversion() -> None:
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=dp.f64)
    for rho in (0.01, 0.1, 1.0):
        made = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=1 / math.sqrt(2 * rho)))
        assert epsilon_of(rho, 1e-6) == pytest.approx(made.map(1.0).epsilon(1e-6), rel=0.02)


def test_releases_add_up() -> None:
    one = Spent(rho_of(1.0, 1e-6))
    assert total_epsilon([one], 1e-6) == pytest.approx(1.0)
    four = total_epsilon([one] * 4, 1e-6)
    assert 2.0 < four < 2.2  # as the root of their number, and not as their number
    pure = Spent(0.005, 0.1)
    assert total_epsilon([pure] * 3, 1e-6) == pytest.approx(0.3)
    assert total_epsilon([pure] * 2000, 1e-6) < 200  # many are cheaper as rho
    assert total_epsilon([pure, one], 1e-6) == pytest.approx(
        min(1.1, epsilon_of(one.rho + 0.005, 1e-6))
    )
    assert total_epsilon([pure] * 3, 0.0) == pytest.approx(0.3)
    assert total_epsilon([one], 0.0) == math.inf
    assert total_epsilon([], 1e-6) == 0


def test_of_two_mechanisms_that_do_the_one_of_less_noise_is_taken() -> None:
    assert calibrate(sensitivity(2, math.sqrt(2)), 1.0, 1e-6).name == LAPLACE
    assert calibrate(sensitivity(200, math.sqrt(200)), 1.0, 1e-6).name == GAUSSIAN
    assert calibrate(sensitivity(200, math.sqrt(200)), 1.0, 0.0).name == LAPLACE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon=0: a number above 0, such as 1.0"),
        ({"epsilon": "1"}, "epsilon='1': a number above 0"),
        ({"epsilon": math.nan}, "epsilon=nan: a number above 0"),
        ({"delta": 1}, "delta=1: 0, or a number far below 1"),
        ({"max_rows": 0}, "max_rows=0: how many rows a person has at most"),
        ({"mechanism": "uniform"}, "mechanism='uniform': 'auto', 'laplace' or 'gaussian'"),
        ({"mechanism": "gaussian", "delta": 0}, "mechanism='gaussian' needs a delta above 0"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(es.ParameterError, match=message.replace("(", r"\(")):
        calibrate(sensitivity(1, 1), **{"epsilon": 1.0, "delta": 1e-6, **options})


@pytest.mark.parametrize(
    "epsilon", [1e-320, 1e-170, 1e-10, 1e10, 1e200, float("inf"), float("nan"), 0, True]
)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_an_epsilon_that_floats_cannot_count_with_is_refused(epsilon: float, delta: float) -> None:
    """Beyond these the noise or the cost overflows, when the cost is spent already."""
    with pytest.raises(es.ParameterError):
        calibrate(Sensitivity(np.array([1], dtype=object), 1.0, 1.0, exact=True), epsilon, delta)


@pytest.mark.parametrize("value", [1 << 62, -(1 << 62), 1 << 64])
def test_a_total_that_noise_of_64_bits_does_not_reach_is_refused(value: int) -> None:
    with pytest.raises(es.ParameterError):
        add_noise(np.array([value], dtype=object), np.array([1]), Mechanism(LAPLACE, 1.0, Spent(0)))
