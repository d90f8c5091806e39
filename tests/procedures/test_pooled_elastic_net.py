"""The elastic net over three sites, beside R's glmnet, scikit-learn and the conditions of its
minimum.
"""

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
from encryptedstats.procedures.pooled.penalties import minimise
from error_codes import error

RIGHT = "age + bmi + arm*sex + I(age^2)"
Case = tuple[str, str, str | None, float, float]
# R 4.2, glmnet 4.1, with the rows of pooled_samples: coefficients and deviance, by outcome, family,
# link, lambda and alpha.
#     glmnet.control(epsnr = 1e-15, mxitnr = 100)
#     x <- model.matrix(~ age + bmi + arm * sex + I(age^2), d)[, -1]
#     fit <- glmnet(x, y, family, lambda = lambda, alpha = alpha, thresh = 1e-22, maxit = 1e8)
#     c(as.vector(coef(fit)), deviance(fit))
# with family = gaussian(), "binomial" and "poisson", or binomial("probit") and its like.
GLMNET: dict[Case, str] = {
    ("cost", "gaussian", None, 0.2, 0.0): (
        "3.4154421289 0.01472396155 0.038250241513 -0.016298583092 -0.046655108978 "
        "-0.10258948945 -4.2184820232e-05 -0.11073710527 -0.28121865941 5385.9637948"
    ),
    ("cost", "gaussian", None, 0.2, 0.4): (
        "3.8513267954 0.0079946590965 0.026650491168 0 0 -0.046539079278 0 0 -0.13632062206 "
        "5396.8696824"
    ),
    ("cost", "gaussian", None, 0.2, 1.0): (
        "4.6822842247 0.0020648852272 0.0048395471128 0 0 0 0 0 0 5420.6299495"
    ),
    ("ill", "binomial", None, 0.03, 0.0): (
        "-2.8495711273 0.02348456631 -0.012313663158 0.43639113569 -0.28313180418 0.24079396376 "
        "0.00017361061594 -0.52788963788 0.73699356971 291.88508673"
    ),
    ("ill", "binomial", None, 0.03, 0.4): (
        "-2.9772681578 0.023708152888 0 0.13457248982 -0.08668467729 0 0.00014357332639 0 "
        "0.57480685132 295.74088907"
    ),
    ("ill", "binomial", None, 0.03, 1.0): (
        "-3.0267881248 0.034685014891 0 0 0 0 0 0 0.24020721229 298.93573373"
    ),
    ("visits", "poisson", None, 0.05, 0.0): (
        "-0.12539457526 0.018628891376 -0.0090244857856 0.010182457907 -0.1627064594 "
        "-0.44435240835 -3.3536950691e-05 -0.20372998668 0.47850062616 596.11013751"
    ),
    ("visits", "poisson", None, 0.05, 0.4): (
        "-0.15769675465 0.014748006165 -0.0052367718647 0 -0.071788814579 -0.37501246822 0 "
        "-0.17804694504 0.3283738591 598.40252357"
    ),
    ("visits", "poisson", None, 0.05, 1.0): (
        "-0.29024489105 0.013921106996 0 0 0 -0.27394678387 0 -0.16801990409 0.1496366657 "
        "602.34756767"
    ),
    ("ill", "binomial", "probit", 0.02, 0.4): (
        "-1.9415882409 0.020966283385 -0.0058439795072 0.23859814864 -0.17895730539 "
        "0.11872114494 4.7042959846e-05 -0.26888096202 0.50003736905 290.61177222"
    ),
    ("ill", "binomial", "cloglog", 0.02, 0.4): (
        "-3.0762817959 0.027003768729 -0.0021194773443 0.31480371337 -0.20497523298 "
        "0.071459482906 7.7339528258e-05 -0.26590264427 0.58785714789 293.55034059"
    ),
    ("visits", "poisson", "sqrt", 0.02, 0.4): (
        "0.90752817338 0.012629060887 -0.0063283777721 0 -0.10451847278 -0.26913340067 "
        "-3.323665665e-05 -0.08778994516 0.31398847542 594.69384087"
    ),
    ("cost", "gamma", None, 0.02, 0.4): (
        "0.39103937794 -0.0057420458273 -0.001803217907 0.00027000261398 0 0.0043197546885 "
        "5.1289869116e-05 0.0042632128575 0.015272637143 215.38317942"
    ),
    ("cost", "gamma", "log", 0.02, 0.4): (
        "1.2716103695 0.00243492133 0.0079268029568 0 0 -0.0059456480546 0 -0.0083916496024 "
        "-0.063548815027 217.79429052"
    ),
}
# glmnet(x, d$visits, "poisson", lambda = 0.05, alpha = 0.4, offset = log(d$days))
OF_DAYS = (
    "-1.4619529681 0.014347018676 -0.010658394791 -0.085115757972 -0.39874480899 -0.27232387697 "
    "0 -0.34533493123 0.2374151854 703.65535635"
)
# glmnet(x, d$cost, "gaussian", lambda = 0.2, alpha = alpha), by alpha
GAUSSIAN_AS_A_WORD = {
    0.0: (
        "2.6838179557 0.03972077574 0.044042818245 -0.015676969176 -0.021580742448 "
        "-0.090965910291 -0.0002807026315 -0.13184921661 -0.3592130874 5369.2266365"
    ),
    0.4: (
        "3.7505984021 0.0087208535747 0.029131405085 0 0 -0.044295692889 0 0 -0.15227858858 "
        "5395.2726032"
    ),
}


def check_is_that_of_glmnet(asked: es.PooledElasticNet, numbers: str, within: float) -> None:
    """Compare coefficients and deviance; what is 0 in R is 0 here."""
    found, expected = fit(asked, cohort()), list(map(float, numbers.split()))
    own = [*found.coefficients["estimate"], found.deviance]
    assert found.converged
    assert [one == 0 for one in own] == [one == 0 for one in expected]
    np.testing.assert_allclose(own, expected, rtol=within)


@pytest.mark.parametrize("case", GLMNET)
def test_a_fit_is_that_of_glmnet(case: Case) -> None:
    outcome, family, link, alpha, l1_ratio = case
    asked = es.PooledElasticNet(
        f"{outcome} ~ {RIGHT}", alpha, l1_ratio, family, link, max_iterations=20
    )
    # glmnet ends earlier where the family is an object
    within = 1e-8 if family != "gamma" and link is None else 1e-6
    check_is_that_of_glmnet(asked, GLMNET[case], within)


def test_an_offset_is_that_of_glmnet() -> None:
    asked = es.PooledElasticNet(f"visits ~ {RIGHT}", 0.05, 0.4, "poisson", exposure="days")
    check_is_that_of_glmnet(asked, OF_DAYS, 1e-8)


@pytest.mark.parametrize("mixing", GAUSSIAN_AS_A_WORD)
def test_the_penalties_of_a_gaussian_as_a_word_are_as_documented(mixing: float) -> None:
    """glmnet scales the outcome, and its penalty on squares with it."""
    penalty, sd = 0.2, float(cohort().cost.std(ddof=0))
    alpha = penalty * (mixing + (1 - mixing) / sd)
    asked = es.PooledElasticNet(f"cost ~ {RIGHT}", alpha, penalty * mixing / alpha)
    check_is_that_of_glmnet(asked, GAUSSIAN_AS_A_WORD[mixing], 1e-8)


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
