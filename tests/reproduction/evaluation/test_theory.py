"""Formulas of one step of reweighted least squares, against the library, scikit-learn, sums and
simulations.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import encryptedstats as es
from reproduction.evaluation.convergence import fit_irls
from reproduction.evaluation.shrinkage import (
    approximate_error,
    approximate_limit,
    exact_error,
    exact_limit,
    expected_shrinkage,
    one_step_slope,
    simulate_error,
    simulate_shrinkage,
)


def rows(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    x = np.column_stack([rng.integers(1, 6, n), rng.integers(0, 2, n), rng.integers(1, 4, n)])
    y = (rng.random(n) < 1 / (1 + np.exp(-(0.8 * x[:, 0] - 2.5 - x[:, 1])))).astype(int)
    return x, y


def test_converged_slopes_are_those_of_scikit_learn() -> None:
    x, y = rows()
    fit = fit_irls(x, y)
    assert fit.converged.all()
    for j in range(x.shape[1]):
        other = LogisticRegression(C=1e12, tol=1e-10, solver="newton-cholesky").fit(x[:, [j]], y)
        assert fit.slope[j] == pytest.approx(other.coef_[0, 0], abs=1e-6)
        assert fit.intercept[j] == pytest.approx(other.intercept_[0], abs=1e-6)


def test_converged_slopes_without_intercept() -> None:
    x, y = rows()
    fit = fit_irls(x, y, paired=False)
    for j in range(x.shape[1]):
        other = LogisticRegression(
            C=1e12, tol=1e-10, fit_intercept=False, solver="newton-cholesky"
        ).fit(x[:, [j]], y)
        assert fit.slope[j] == pytest.approx(other.coef_[0, 0], abs=1e-6)


@pytest.mark.parametrize("paired", [True, False])
def test_the_first_step_is_the_library_s_estimate(paired: bool) -> None:
    x, y = rows()
    model = es.SemiparametricNB(paired=paired).fit(x, y)
    one = fit_irls(x, y, paired=paired, steps=1)
    assert np.allclose(one.slope, [b / d for b, d in zip(model.b_, model.d_, strict=True)])
    if paired:
        assert np.allclose(one.intercept, [a / d for a, d in zip(model.a_, model.d_, strict=True)])


def test_separable_predictors_stay_finite() -> None:
    x, y = np.array([[0], [0], [1], [1]]), np.array([0, 0, 1, 1])
    fit = fit_irls(x, y)
    assert np.isfinite(fit.slope).all()
    assert fit.slope[0] > 10


def test_the_slope_of_a_binary_predictor_is_the_library_s() -> None:
    y = np.array([1, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1])
    x = np.array([[1, 0], [1, 1], [1, 0]] * 4)
    model = es.SemiparametricNB(paired=False).fit(x, y)
    assert model.b_[0] / model.d_[0] == pytest.approx(
        float(one_step_slope(np.array(y.sum()), len(y)))
    )


def test_shrinkage_formula_against_simulation() -> None:
    for row in simulate_shrinkage(1):
        assert abs(row["simulated"] - row["theory"]) < 5 * row["standard_error"] + 1e-9
    assert float(expected_shrinkage(np.array(0.0))) == 0


def test_generalisation_error_against_simulation() -> None:
    simulated = simulate_error(1)
    for row in simulated:
        assert abs(row["simulated"] - row["exact"]) < 5 * row["standard_error"] + 1e-9
    middle = [row for row in simulated if 0.3 <= row["p"] <= 0.7 and row["n"] >= 20]
    assert middle
    assert max(abs(row["approximation"] - row["exact"]) for row in middle) < 0.005


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_the_paper_s_polynomial_is_the_expectation_of_its_cubic(n: int) -> None:
    from scipy.stats import binom

    p = np.linspace(0.05, 0.95, 19)
    counts = np.arange(n + 1)
    slope = one_step_slope(counts, n)
    cubic = 0.5 + slope / 4 - slope**3 / 48
    expected = (binom.pmf(counts[:, None], n, p) * cubic[:, None]).sum(axis=0) - p
    assert np.allclose(approximate_error(n, p), expected)


def test_limits() -> None:
    p = np.linspace(0, 1, 21)
    assert np.allclose(approximate_error(10**7, p), approximate_limit(p), atol=1e-6)
    assert np.allclose(exact_error(200_000, p), exact_limit(p), atol=1e-4)
