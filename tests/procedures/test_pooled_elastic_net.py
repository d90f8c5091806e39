"""The elastic net over three sites, beside scikit-learn and the conditions of its minimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pooled_samples import check_rounds_are_the_same, cohort, fit, schema_of
from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor
from sklearn.preprocessing import StandardScaler

import encryptedstats as es
from effort import examples
from encryptedstats.procedures.pooled.elastic_net import minimise
from error_codes import error

RIGHT = "age + bmi + arm*sex + I(age^2)"


def columns(frame: pd.DataFrame) -> Any:
    """Return the standardised columns of RIGHT."""
    male = (frame.sex == "m").astype(float)
    arms = [(frame.arm == one).astype(float) for one in "bc"]
    own = [frame.age, frame.bmi, *arms, male, frame.age**2, *(one * male for one in arms)]
    return StandardScaler().fit_transform(np.column_stack(own).astype(float))


@pytest.mark.parametrize("l1_ratio", [0.3, 1.0])
@pytest.mark.parametrize("alpha", [0.01, 0.2])
def test_a_gaussian_fit_is_that_of_scikit_learn(alpha: float, l1_ratio: float) -> None:
    frame = cohort()
    found = fit(es.PooledElasticNet(f"cost ~ {RIGHT}", alpha, l1_ratio), frame)
    theirs = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-14, max_iter=1_000_000)
    x = columns(frame)
    theirs.fit(x, frame.cost)
    order = list(found.coefficients.index)
    assert order[1:] == [
        *("age", "bmi", "arm[b]", "arm[c]", "sex[m]", "I(age^2)", "arm[b]:sex[m]", "arm[c]:sex[m]")
    ]
    own = found.coefficients["standardised"].to_numpy()[1:]
    np.testing.assert_allclose(own, theirs.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.predict(frame), theirs.predict(x), rtol=1e-8)
    assert found.nonzero == (theirs.coef_ != 0).sum()
    assert found.converged


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_a_logistic_fit_is_that_of_scikit_learn(l1_ratio: float) -> None:
    frame, alpha = cohort(), 0.03
    found = fit(es.PooledElasticNet(f"ill ~ {RIGHT}", alpha, l1_ratio, "binomial"), frame)
    theirs = LogisticRegression(
        penalty="elasticnet",
        solver="saga",
        C=1 / (len(frame) * alpha),
        l1_ratio=l1_ratio,
        tol=1e-12,
        max_iter=200_000,
        random_state=0,
    )
    x = columns(frame)
    theirs.fit(x, frame.ill)
    own = found.coefficients["standardised"].to_numpy()[1:]
    np.testing.assert_allclose(own, theirs.coef_[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.predict(frame), theirs.predict_proba(x)[:, 1], rtol=1e-7)


def test_a_poisson_ridge_is_that_of_scikit_learn() -> None:
    frame = cohort()
    found = fit(es.PooledElasticNet(f"visits ~ {RIGHT}", 0.1, 0.0, "poisson"), frame)
    theirs = PoissonRegressor(alpha=0.1, solver="newton-cholesky", tol=1e-10)
    x = columns(frame)
    theirs.fit(x, frame.visits)
    own = found.coefficients["standardised"].to_numpy()[1:]
    np.testing.assert_allclose(own, theirs.coef_, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("l1_ratio", [0.25, 1.0])
def test_a_poisson_lasso_meets_the_conditions_of_the_minimum(l1_ratio: float) -> None:
    frame, alpha = cohort(), 0.05
    asked = es.PooledElasticNet(f"visits ~ {RIGHT}", alpha, l1_ratio, "poisson")
    found = fit(asked, frame)
    beta = found.coefficients["standardised"].to_numpy()[1:]
    residual = frame.visits.to_numpy() - found.predict(frame)
    slopes = columns(frame).T @ residual / len(frame) - alpha * (1 - l1_ratio) * beta
    bound = alpha * l1_ratio
    assert abs(residual.mean()) < 1e-9
    assert (beta == 0).any()
    assert (beta != 0).any()
    np.testing.assert_allclose(slopes[beta != 0], bound * np.sign(beta[beta != 0]), atol=1e-9)
    assert (np.abs(slopes[beta == 0]) <= bound + 1e-9).all()


def test_a_penalty_of_nothing_is_the_plain_fit() -> None:
    frame = cohort()
    found = fit(es.PooledElasticNet("ill ~ age + arm", 0.0, 0.5, "binomial"), frame)
    plain = fit(es.PooledGLM("ill ~ age + arm", epsilon=1e-14), frame)
    np.testing.assert_allclose(
        found.coefficients["estimate"], plain.coefficients["estimate"], rtol=1e-8
    )
    assert found.deviance == pytest.approx(plain.deviance, rel=1e-10)


def test_separated_rows_have_a_penalised_fit() -> None:
    frame = cohort().assign(old=lambda d: np.where(d.age > 50, "y", "n"))
    found = fit(es.PooledElasticNet("old ~ age", 0.01, 0.5, "binomial"), frame)
    assert found.converged
    assert 0 < found.coefficients.loc["age", "standardised"] < 20


def test_an_infinite_penalty_leaves_the_mean() -> None:
    found = fit(es.PooledElasticNet("cost ~ age + arm", 1e6), cohort())
    assert found.nonzero == 0
    np.testing.assert_allclose(found.predict(cohort()), cohort().cost.mean(), rtol=1e-10)


@settings(max_examples=examples(40))
@given(st.integers(1, 6), st.integers(0, 2**32), st.floats(0, 5), st.floats(0, 5))
def test_coordinate_descent_ends_at_the_minimum(
    n: int, seed: int, first: float, second: float
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 4, n))
    matrix, score = x.T @ x, 4 * rng.normal(size=n)
    start = rng.normal(size=n)
    found = np.array(minimise(matrix.tolist(), score.tolist(), start.tolist(), (first, second)))
    slopes = score - matrix @ (found - start)
    slopes[1:] -= second * found[1:]
    assert abs(slopes[0]) < 1e-8
    for slope, one in zip(slopes[1:], found[1:], strict=True):
        assert abs(slope) <= first + 1e-8
        if one:
            assert slope == pytest.approx(first * np.sign(one), abs=1e-8)


def test_rounds_are_the_same_everywhere_and_as_few_as_announced() -> None:
    frame, schema = cohort(), schema_of(cohort())
    asked = es.PooledElasticNet("ill ~ age + arm", 0.05, 0.5, "binomial")
    check_rounds_are_the_same(asked, schema, frame)


def test_rounds_that_run_out_are_said() -> None:
    found = fit(es.PooledElasticNet("ill ~ age", 0.01, 0.5, "binomial", max_iterations=1), cohort())
    assert not found.converged
    assert "algorithm did not converge" in found.notes


def test_impossible_penalties_are_refused() -> None:
    with pytest.raises(es.ParameterError, check=error("alpha-out-of-range")):
        es.PooledElasticNet("ill ~ age", -1.0)
    with pytest.raises(es.ParameterError, check=error("not-a-number", "l1_ratio")):
        es.PooledElasticNet("ill ~ age", 1.0, 2.0)
    with pytest.raises(es.ParameterError, check=error("unknown-family")):
        es.PooledElasticNet("ill ~ age", family="negative binomial")
