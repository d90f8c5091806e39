"""Cox regression with an elastic net over three sites, beside R's glmnet of all rows; what holds for
every Cox regression over sites is in ``test_pooled_cox.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pooled_samples import at_sites, cohort, schema_with_weeks

import encryptedstats as es
from encryptedstats.procedures import SiteCourse
from encryptedstats.procedures.pooled.risk_sets import TimeCounts, merge_times
from error_codes import error

RIGHT = "age + bmi + arm*sex + I(age^2)"
# R 4.2, glmnet 4.1, with the rows of pooled_samples: coefficients and deviance, by lambda and alpha.
#     x <- model.matrix(~ age + bmi + arm * sex + I(age^2), d)[, -1]
#     y <- Surv(d$week, d$died == "yes")
#     fit <- glmnet(x, y, "cox", lambda = lambda, alpha = alpha, thresh = 1e-22, maxit = 1e8)
#     c(as.vector(coef(fit)), deviance(fit))
GLMNET = {
    (0.003, 0.0): (
        "-0.020949166195 0.01893881249 0.13848604856 -0.10083151614 -0.039890286315 "
        "0.00033044866693 -0.34263214283 0.058996762858 743.77977618"
    ),
    (0.03, 0.0): (
        "-0.00048762740159 0.017241788606 0.11522774716 -0.10482678482 -0.067707239548 "
        "0.00012811262046 -0.28456683197 0.072662058769 744.89353808"
    ),
    (0.003, 0.4): (
        "-0.016425529447 0.018495607389 0.13596314795 -0.084596873295 -0.028526788928 "
        "0.00028670375187 -0.33935977221 0.030709592375 743.95016775"
    ),
    (0.03, 0.4): (
        "0 0.013800675267 0.036050900856 -0.039518612597 -0.036749814636 0.00011378615562 "
        "-0.1736133262 0 745.67708526"
    ),
    (0.003, 1.0): (
        "-0.0060327585272 0.017623824318 0.12989049595 -0.065809162558 -0.018733883864 "
        "0.0001860881262 -0.32708580908 0 744.53092931"
    ),
    (0.03, 1.0): (
        "0 0.0074662546616 0 0 -0.0050500403618 9.7565078896e-05 -0.05993249102 0 747.5277876"
    ),
}
# at = coxph(y ~ x, init = coef(fit), ties = "breslow", control = coxph.control(iter.max = 0)), for
# lambda = 0.03, alpha = 1: at$loglik, and three lines of basehaz(at, centered = FALSE)
LOGLIK = -768.0183673297
HAZARDS = (0.05168430034708, 0.10555897201736, 0.16367846013501)


def fit(asked: es.PooledCoxNet, frame: pd.DataFrame, **options: Any) -> Any:
    return asked.run(at_sites(schema_with_weeks(frame), frame), **options)


@pytest.mark.parametrize("case", GLMNET)
def test_a_fit_over_sites_is_that_of_glmnet(case: tuple[float, float]) -> None:
    found = fit(es.PooledCoxNet(f"week ~ {RIGHT}", *case, minimum=1), cohort())
    expected = list(map(float, GLMNET[case].split()))
    own = [*found.coefficients["estimate"], found.deviance]
    assert [one == 0 for one in own] == [one == 0 for one in expected]
    np.testing.assert_allclose(own, expected, rtol=1e-7)
    assert found.nonzero == sum(one != 0 for one in expected[:-1])
    assert (found.n_events, found.n_rows, found.converged) == (145, 300, True)


def test_the_likelihood_and_the_hazard_are_those_of_coxph() -> None:
    found = fit(es.PooledCoxNet(f"week ~ {RIGHT}", 0.03, 1.0, minimum=1), cohort())
    assert found.llf == pytest.approx(LOGLIK, rel=1e-10)
    assert found.llf_null == pytest.approx(-772.417669362, rel=1e-10)
    assert found.baseline["hazard"].iloc[:3].tolist() == pytest.approx(HAZARDS, rel=1e-8)


def test_a_penalty_of_nothing_is_the_plain_fit() -> None:
    right = "week ~ age + bmi + arm"
    found = fit(es.PooledCoxNet(right, 0.0, minimum=1), cohort())
    plain = fit(es.PooledCox(right, ties="breslow", minimum=1, epsilon=1e-14), cohort())
    for name in ("coefficients", "baseline"):
        columns_of = ["estimate"] if name == "coefficients" else ["hazard", "survival"]
        one, other = (getattr(result, name)[columns_of] for result in (found, plain))
        pd.testing.assert_frame_equal(one, other, rtol=1e-8)
    assert (found.llf, found.llf_null) == pytest.approx((plain.llf, plain.llf_null), rel=1e-12)
    np.testing.assert_allclose(found.predict(cohort()), plain.predict(cohort()), rtol=1e-8)


def test_an_infinite_penalty_leaves_nothing() -> None:
    found = fit(es.PooledCoxNet("week ~ age + arm", 1e6, minimum=1), cohort())
    assert (found.nonzero, found.iterations, found.converged) == (0, 0, True)
    assert found.llf == found.llf_null
    assert (found.predict(cohort()) == 1).all()


def test_merged_times_are_those_of_a_coarser_grid() -> None:
    frame = cohort()
    parts = [frame, *(part for _, part in frame.groupby("arm"))]
    leaving = [np.bincount(part.week - 1, minlength=12).tolist() for part in parts]
    starts = merge_times([TimeCounts(one, one) for one in leaving], 25, efron=False)
    assert 1 < len(starts) < 12
    merged = frame.assign(week=np.searchsorted(starts, frame.week - 1, side="right"))
    asked = {"alpha": 0.01, "l1_ratio": 0.5}
    found = fit(es.PooledCoxNet("week ~ age + bmi + arm", minimum=25, **asked), frame)
    coarser = fit(es.PooledCoxNet("week ~ age + bmi + arm", minimum=1, **asked), merged)
    pd.testing.assert_frame_equal(found.coefficients, coarser.coefficients, rtol=1e-9)
    assert found.deviance == pytest.approx(coarser.deviance, rel=1e-12)


def test_infinite_coefficients_have_a_penalised_fit() -> None:
    frame = cohort().assign(g=lambda d: np.where((d.arm == "a") & (d.died == "yes"), "b", d.arm))
    found = fit(es.PooledCoxNet("week ~ age + g", 0.01, 0.5, minimum=1), frame)
    assert found.converged
    assert 0 < found.coefficients.loc["g[b]", "estimate"] < 5


def test_dependent_columns_share_a_ridge() -> None:
    frame = cohort().assign(again=lambda d: 3 - d.age)
    with pytest.warns(es.SchemaWarning):
        found = fit(es.PooledCoxNet("week ~ age + again", 0.01, 0.0, minimum=1), frame)
    age, again = found.coefficients["standardised"]
    assert found.converged
    assert age == pytest.approx(-again, rel=1e-6)


def test_a_step_that_makes_it_worse_is_halved() -> None:
    frame, asked = cohort(), es.PooledCoxNet("week ~ age + bmi", 0.01, 0.5, minimum=1)
    schema = schema_with_weeks(frame)
    course, table = SiteCourse(asked.in_ids(schema), schema.public()), schema.table(frame)
    while not course.state.get("last"):
        course.take(course.measure(table))
    good = course.state["beta"]
    course.state = {**course.state, "beta": [one + 4.0 for one in good]}
    before = course.state["last"]
    course.take(course.measure(table))
    assert course.state["stage"] == "sums"
    halved = [(a + 4.0 + b) / 2 for a, b in zip(good, before, strict=True)]
    assert course.state["beta"] == pytest.approx(halved)
    while not course.is_done:
        course.take(course.measure(table))
    expected = asked.run(table)
    found = course.read(schema)
    np.testing.assert_allclose(
        found.coefficients["estimate"], expected.coefficients["estimate"], rtol=1e-8
    )
    assert found.iterations > expected.iterations


def test_rounds_that_run_out_are_said() -> None:
    asked = es.PooledCoxNet("week ~ age + bmi + arm", 0.01, minimum=1, max_iterations=1)
    found = fit(asked, cohort())
    assert not found.converged
    assert "Ran out of iterations and did not converge" in found.notes
    assert found.iterations == 1


def test_impossible_penalties_are_refused() -> None:
    with pytest.raises(es.ParameterError, check=error("alpha-out-of-range")):
        es.PooledCoxNet("week ~ age", -1.0)
    with pytest.raises(es.ParameterError, check=error("not-a-number", "l1_ratio")):
        es.PooledCoxNet("week ~ age", 1.0, 2.0)
