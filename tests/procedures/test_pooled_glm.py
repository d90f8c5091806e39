"""Generalised linear models over three sites, beside R's and statsmodels' of all rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from pooled_samples import at_sites, cohort, fit, schema_of

import encryptedstats as es
from encryptedstats.procedures import RowLimits, SiteCourse
from encryptedstats.procedures.pooled.families import FAMILIES, GLM_FAMILIES
from encryptedstats.procedures.pooled.negative_binomial import move_jointly
from error_codes import error

# What R 4.2 prints for summary(glm(...))$coefficients (columns 1 and 2), deviance, null.deviance,
# AIC, iter, and the dispersion, of the rows in pooled_samples. The Poisson regression is
# glm(visits ~ age + sex + offset(log(days)), family = poisson).
R: dict[str, tuple[Any, ...]] = {
    "logit": (
        es.PooledGLM("ill ~ age + bmi + arm * sex"),
        {
            "(Intercept)": (-3.52605651304, 1.02293862093),
            "age": (0.047448528497, 0.00912720492724),
            "bmi": (-0.0185112422817, 0.0300577399567),
            "arm[b]": (0.68971916928, 0.495208004672),
            "arm[c]": (-0.452618502358, 0.564444728877),
            "sex[m]": (0.359241985229, 0.511619942224),
            "arm[b]:sex[m]": (-0.905211354072, 0.715938700961),
            "arm[c]:sex[m]": (0.977167470287, 0.738507572801),
        },
        (290.126349906, 330.647956852, 306.126349906, 4, 1.0),
    ),
    "probit": (
        es.PooledGLM("ill ~ age + I((bmi-25)^2) + arm", link="probit"),
        {
            "(Intercept)": (-2.08683023237, 0.322544021674),
            "age": (0.0271771636114, 0.0050365614783),
            "I((bmi - 25)^2)": (-0.00541083377981, 0.00328966154135),
            "arm[b]": (0.135493835379, 0.205349765891),
            "arm[c]": (0.0827880084229, 0.206240272709),
        },
        (295.776795798, 330.647956852, 305.776795798, 5, 1.0),
    ),
    "cloglog": (
        es.PooledGLM("ill ~ age + arm", link="cloglog"),
        {
            "(Intercept)": (-3.55673549327, 0.501146314492),
            "age": (0.0395869512288, 0.00755901562033),
            "arm[b]": (0.253055097389, 0.290820304693),
            "arm[c]": (0.0670037713809, 0.299877726485),
        },
        (298.901282694, 330.647956852, 306.901282694, 5, 1.0),
    ),
    "poisson": (
        es.PooledGLM("visits ~ age + sex", family="poisson", exposure="days"),
        {
            "(Intercept)": (-1.98222585549, 0.171890900565),
            "age": (0.0157518383492, 0.00286065715366),
            "sex[m]": (-0.324910937953, 0.100737060223),
        },
        (722.414685845, 765.566638506, 1173.92076728, 6, 1.0),
    ),
    "square root": (
        es.PooledGLM("visits ~ age + sex", family="poisson", link="sqrt"),
        {
            "(Intercept)": (0.766698559163, 0.0921822255385),
            "age": (0.00955181307358, 0.00164084727125),
            "sex[m]": (-0.185707865587, 0.0577608575001),
        },
        (607.867620924, 653.282935127, 1059.37370236, 5, 1.0),
    ),
    "gamma": (
        es.PooledGLM("cost ~ bmi + age + arm", family="gamma"),
        {
            "(Intercept)": (0.278912409775, 0.0646635586799),
            "bmi": (-0.00189136425357, 0.00203226807349),
            "age": (-0.000561220402105, 0.000570056828314),
            "arm[b]": (0.00331684375328, 0.0242626233088),
            "arm[c]": (0.00825121240321, 0.0245721765912),
        },
        (218.05521594, 219.464241755, 1539.24134485, 6, 0.7292268),
    ),
    "gamma, log": (
        es.PooledGLM("cost ~ bmi + age + arm", family="gamma", link="log"),
        {
            "(Intercept)": (1.20654752041, 0.312178821832),
            "bmi": (0.00943638618924, 0.00997764238183),
            "age": (0.00297864911995, 0.00279833723114),
            "arm[b]": (-0.00788687482618, 0.120624244447),
            "arm[c]": (-0.0419124797451, 0.120612225811),
        },
        (217.981943392, 219.464241755, 1539.12884089, 6, 0.727348173565),
    ),
}


@pytest.mark.parametrize("name", R)
def test_a_fit_over_sites_is_that_of_r(name: str) -> None:
    asked, coefficients, (deviance, null, aic, iterations, dispersion) = R[name]
    found = fit(asked, cohort())
    own = found.coefficients[["estimate", "std_error"]]
    wanted = pd.DataFrame.from_dict(coefficients, orient="index", columns=own.columns)
    pd.testing.assert_frame_equal(own, wanted, rtol=1e-10, atol=1e-11)
    assert (found.deviance, found.null_deviance) == pytest.approx((deviance, null), rel=1e-10)
    assert found.aic == pytest.approx(aic, rel=1e-10)
    assert found.dispersion == pytest.approx(dispersion, rel=1e-6)
    assert (found.iterations, found.converged, found.n_rows) == (iterations, True, 300)


def test_a_gamma_has_students_tests() -> None:
    found = fit(R["gamma"][0], cohort()).coefficients
    # summary(glm(cost ~ bmi + age + arm, family = Gamma))$coefficients["(Intercept)", 3:4]
    assert found.loc["(Intercept)", "statistic"] == pytest.approx(4.31328580531, rel=1e-9)
    assert found.loc["(Intercept)", "pvalue"] == pytest.approx(2.19639146719e-05, rel=1e-8)
    assert found.loc["(Intercept)", "df"] == 295


def test_a_negative_binomial_is_that_of_mass() -> None:
    found = fit(es.PooledGLM("visits ~ age + sex", family="negative binomial"), cohort())
    # glm.nb(visits ~ age + sex, control = glm.control(epsilon = 1e-13, maxit = 100))
    wanted = {
        "(Intercept)": (-0.421459441119, 0.246181661263),
        "age": (0.0166993301071, 0.00425861584393),
        "sex[m]": (-0.320546686519, 0.149349033527),
    }
    own = found.coefficients[["estimate", "std_error"]]
    pd.testing.assert_frame_equal(
        own, pd.DataFrame.from_dict(wanted, orient="index", columns=own.columns), rtol=1e-9
    )
    assert found.theta == pytest.approx(1.13434177519, rel=1e-10)
    # theta.ml takes its standard error a step before the last.
    assert found.theta_std_error == pytest.approx(0.202600721904, rel=1e-5)
    assert 2 * found.llf == pytest.approx(-948.420161262, rel=1e-11)
    assert found.deviance == pytest.approx(310.507792145, rel=1e-9)
    assert found.null_deviance == pytest.approx(331.233977179, rel=1e-9)
    assert found.aic == pytest.approx(956.420161262, rel=1e-11)


def test_a_negative_binomial_with_exposure_is_that_of_mass() -> None:
    asked = es.PooledGLM("visits ~ age + sex", family="negative binomial", exposure="days")
    found = fit(asked, cohort())
    # glm.nb(visits ~ age + sex + offset(log(days))), with its default control
    estimates = [-2.02696608433, 0.0208365312887, -0.383217898992]
    np.testing.assert_allclose(found.coefficients["estimate"], estimates, rtol=2e-8)
    assert found.theta == pytest.approx(0.779151342979, rel=1e-7)


@pytest.mark.parametrize("family", ["binomial", "poisson", "gamma"])
def test_an_exact_fit_is_that_of_statsmodels(family: str) -> None:
    frame = cohort().assign(sick=lambda d: (d.ill == "yes").astype(int))
    target, theirs = {
        "binomial": ("sick", sm.families.Binomial()),
        "poisson": ("visits", sm.families.Poisson()),
        "gamma": ("cost", sm.families.Gamma()),
    }[family]
    asked = es.PooledGLM(
        f"{target} ~ age*sex + bmi + I(bmi^2)",
        family=family,
        epsilon=1e-15,
        max_iterations=40,
    )
    found = fit(asked, frame)
    wanted = smf.glm(f"{target} ~ age*sex + bmi + I(bmi**2)", frame, family=theirs).fit(
        tol=1e-13, tol_criterion="params"
    )
    names = ["Intercept", "age", "sex[T.m]", "bmi", "I(bmi ** 2)", "age:sex[T.m]"]
    table = found.coefficients
    np.testing.assert_allclose(table["estimate"], wanted.params[names], rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(table["std_error"], wanted.bse[names], rtol=1e-8)
    assert found.deviance == pytest.approx(wanted.deviance, rel=1e-11)
    np.testing.assert_allclose(found.predict(frame), wanted.predict(frame), rtol=1e-8)


def test_sites_may_lack_levels_and_events() -> None:
    frame = cohort()
    parts = [
        frame[frame.arm == "a"],
        frame[(frame.arm != "a") & (frame.ill == "no")],
        frame[(frame.arm != "a") & (frame.ill == "yes")],
    ]
    schema = schema_of(frame)
    asked = es.PooledGLM("ill ~ age + arm")
    split = asked.run([schema.table(part) for part in parts])
    whole = asked.run(schema.table(frame))
    pd.testing.assert_frame_equal(split.coefficients, whole.coefficients, rtol=1e-10)


# -- what R warns of -------------------------------------------------------------------------------


def test_theta_moves_towards_its_maximum_where_the_likelihood_is_not_concave() -> None:
    # Information of (beta, log theta) with a negative corner, and the score of each.
    for slope, factor in ((3.0, 2.0), (-3.0, 0.25)):
        values = [4.0, 0.0, -1.0, 2.0, slope, -100.0, 50.0, 10.0, 1.0, 0.0]
        state = {"beta": [0.5], "theta": 1.5, "likelihood": -101.0, "last": [0.0]}
        moved = move_jointly(state, values, (1e-10, 1e-9), 1e-8)
        assert moved["theta"] == 1.5 * factor
        assert moved["beta"] == [1.0]
        assert "converged" not in moved


def test_a_step_that_lowers_the_likelihood_is_halved() -> None:
    values = [4.0, 0.0, 1.0, 2.0, 0.0, -100.0, 50.0, 10.0, 1.0, 0.0]
    state = {"beta": [2.0], "theta": 3.0, "likelihood": -90.0, "last": [1.0], "last_theta": 1.0}
    moved = move_jointly(state, values, (1e-10, 1e-9), 1e-8)
    assert moved == {"beta": [1.5], "theta": 2.0}


def test_separation_is_reported_as_r_does() -> None:
    frame = cohort().assign(old=lambda d: np.where(d.age > 50, "y", "n"))
    with pytest.warns(UserWarning, match="did not converge|numerically 0 or 1") as warned:
        found = fit(es.PooledGLM("old ~ age + sex", max_iterations=25, bits=60), frame)
    said = [str(one.message) for one in warned]
    assert "algorithm did not converge" in said
    assert "fitted probabilities numerically 0 or 1 occurred" in said
    # glm(factor(age > 50) ~ age + sex, family = binomial), with both warnings
    assert found.coefficients["estimate"].tolist() == pytest.approx(
        [-1805.56928405, 35.7510365046, 0.500223799918], rel=1e-7
    )
    assert found.coefficients["std_error"].tolist() == pytest.approx(
        [149337.58472, 2957.03140854, 3258.90088072], rel=1e-6
    )
    assert (found.iterations, found.converged) == (25, False)
    assert set(said) <= set(found.notes)


def test_few_bits_end_a_separated_fit_before_it_divides_by_nothing() -> None:
    frame = cohort().assign(old=lambda d: np.where(d.age > 50, "y", "n"))
    with pytest.warns(UserWarning, match="did not converge|numerically 0 or 1") as warned:
        found = fit(es.PooledGLM("old ~ age + sex", max_iterations=40, bits=20), frame)
    said = [str(one.message) for one in warned]
    assert "algorithm did not converge" in said
    assert "fitted probabilities numerically 0 or 1 occurred" in said
    assert not found.converged
    assert found.iterations < 40


def test_aliased_columns_have_no_coefficient() -> None:
    frame = cohort().assign(again=lambda d: 2 * d.age + 1)
    with pytest.warns(UserWarning, match="1 coefficients not defined because of singularities"):
        found = fit(es.PooledGLM("ill ~ age + again + sex"), frame)
    assert found.coefficients.loc["again"].drop("df").isna().all()
    without = fit(es.PooledGLM("ill ~ age + sex"), frame)
    pd.testing.assert_frame_equal(found.coefficients.drop("again"), without.coefficients, rtol=1e-9)
    np.testing.assert_allclose(found.predict(frame), without.predict(frame), rtol=1e-9)
    assert found.df_resid == 297


def test_a_level_without_rows_is_aliased() -> None:
    frame = cohort()
    schema = schema_of(frame).with_kind("arm", "categorical", levels=["a", "b", "c", "d"])
    with pytest.warns(UserWarning, match="singularities"):
        found = es.PooledGLM("ill ~ age + arm").run(at_sites(schema, frame))
    assert found.coefficients["estimate"].isna().tolist() == [False, False, False, False, True]


def test_rounds_that_run_out_are_said() -> None:
    with pytest.warns(UserWarning, match="algorithm did not converge"):
        found = fit(es.PooledGLM("ill ~ age", max_iterations=2), cohort())
    assert (found.converged, found.iterations) == (False, 2)


def test_a_first_step_without_means_is_refused_as_in_r() -> None:
    # glm(y ~ x, family = poisson("identity")): "no valid set of coefficients has been found"
    i = np.arange(40)
    frame = pd.DataFrame({"x": i % 20, "y": np.where(i % 20 >= 15, 50 + i, 0)})
    with pytest.raises(es.DataError, check=error("no-valid-coefficients")):
        fit(es.PooledGLM("y ~ x", family="poisson", link="identity"), frame, target="y")


def test_steps_out_of_bounds_are_halved_as_in_r() -> None:
    # glm(y ~ x, family = poisson("identity")): 9 iterations, "step size truncated: out of bounds",
    # "algorithm stopped at boundary value"
    i = np.arange(60)
    x = (i * 2) % 23
    y = np.floor(((i * i * 7 + 2 * i) % 31) / 31 * (0.2 + x * 2 / 3))
    frame = pd.DataFrame({"x": x, "y": y.astype(int)})
    asked = es.PooledGLM("y ~ x", family="poisson", link="identity", max_iterations=25, bits=60)
    with pytest.warns(UserWarning, match="algorithm stopped at boundary value"):
        found = fit(asked, frame, target="y")
    assert found.coefficients.loc["x", "estimate"] == pytest.approx(0.2975077881, rel=1e-6)
    assert found.converged


def test_counts_without_overdispersion_have_no_theta() -> None:
    i = np.arange(400)
    frame = pd.DataFrame({"x": i % 7, "y": 2 + i % 3})
    with pytest.warns(UserWarning, match="did not converge|without bound"):
        found = fit(es.PooledGLM("y ~ x", family="negative binomial"), frame, target="y")
    assert found.theta > 1e3
    assert not found.converged


# -- rounds ----------------------------------------------------------------------------------------


def test_the_same_sums_lead_to_the_same_bytes() -> None:
    schema, frame = schema_of(cohort()), cohort()
    asked = es.PooledGLM("ill ~ age + arm").in_ids(schema)
    one, other = (SiteCourse(asked, schema.public()) for _ in range(2))
    while not one.is_done:
        parts = [one.measure(table) for table in at_sites(schema, frame)]
        assert len(parts[0]) == one.n_totals
        sums = [sum(column) for column in zip(*parts, strict=True)]
        one.take(sums)
        other.take(sums)
        assert json.dumps(one.state) == json.dumps(other.state)
        assert one.digest == other.digest


@pytest.mark.parametrize("name", R)
def test_no_more_numbers_are_opened_than_announced(name: str) -> None:
    schema, frame = schema_of(cohort()), cohort()
    asked = R[name][0].in_ids(schema)
    course, opened = SiteCourse(asked, schema.public()), 0
    while not course.is_done:
        opened += course.n_totals - (1 if course.number else 2)
        course.take(course.measure(schema.table(frame)))
    assert opened <= asked.n_opened(schema.public())
    assert course.number <= asked.at_most + 1


def test_totals_stay_within_the_bounds_that_are_proven() -> None:
    schema = schema_of(cohort())
    asked = es.PooledGLM("ill ~ age + bmi").in_ids(schema)
    course = SiteCourse(asked, schema.public())
    while not course.is_done:
        found = course.measure(schema.table(cohort()))
        assert max(map(abs, found)).bit_length() < 137
        course.take(found)


def test_few_rows_of_a_level_are_refused() -> None:
    frame = cohort()
    frame.loc[:4, "arm"] = "d"
    schema = schema_of(frame)
    sites = at_sites(schema, frame)
    limits = RowLimits(minimum=10, per_number=0)
    with pytest.raises(es.DisclosureError, check=error("small-count", "v2")):
        es.PooledGLM("ill ~ age + arm").run(sites, limits=limits)
    es.PooledGLM("ill ~ age").run(sites, limits=limits)


def test_few_rows_of_a_class_are_refused() -> None:
    frame = cohort().assign(rare=lambda d: np.where(d.index < 7, "y", "n"))
    with pytest.raises(es.DisclosureError, check=error("small-count", "event")):
        es.PooledGLM("rare ~ age").run(
            at_sites(schema_of(frame), frame), limits=RowLimits(minimum=10, per_number=0)
        )


def test_more_numbers_than_rows_allow_are_refused() -> None:
    with pytest.raises(es.DisclosureError, check=error("too-few-rows-for-rounds")):
        es.PooledGLM("ill ~ age").run(at_sites(schema_of(cohort()), cohort()), limits=RowLimits())


# -- what is refused -------------------------------------------------------------------------------


def test_impossible_questions_are_refused() -> None:
    frame = cohort()
    refused = {
        "not-two-levels": es.PooledGLM("arm ~ age"),
        "orthogonal-polynomial": es.PooledGLM("ill ~ poly(age, 2)"),
        "outcome-or-intercept-missing": es.PooledGLM("ill ~ age - 1"),
        "keep-numbers": es.PooledGLM("ill ~ age", family="poisson"),
    }
    for code, asked in refused.items():
        with pytest.raises(ValueError, check=error(code)):
            fit(asked, frame)
    for code, options in {
        "unknown-link": {"link": "log"},
        "unknown-family": {"family": "normal"},
        "exposure-not-poisson": {"exposure": "days"},
        "bits-out-of-range": {"bits": 100},
    }.items():
        with pytest.raises(es.ParameterError, check=error(code)):
            es.PooledGLM("ill ~ age", **options)


def test_impossible_outcomes_are_refused_by_their_site() -> None:
    frame = cohort().assign(cost=lambda d: d.cost - 0.5)
    with pytest.raises(es.DataError, check=error("outcome-out-of-range")):
        fit(es.PooledGLM("cost ~ age", family="gamma"), frame)
    healthy = at_sites(schema_of(cohort()), cohort().query("ill == 'no'"))
    with pytest.raises(es.DataError, check=error("constant-outcome")):
        es.PooledGLM("ill ~ age").run(healthy)
    with pytest.raises(es.SchemaError, check=error("no-rows")):
        at_sites(schema_of(cohort()), cohort()[:2])


def test_coefficients_that_overflow_are_refused_by_their_site() -> None:
    schema = schema_of(cohort())
    asked = es.PooledGLM("visits ~ age", family="poisson").in_ids(schema)
    course = SiteCourse(asked, schema.public())
    for _ in range(3):
        course.take(course.measure(schema.table(cohort())))
    course.state = {**course.state, "beta": [600.0, 0.0]}
    with pytest.raises(es.DataError, check=error("total-too-large")):
        course.measure(schema.table(cohort()))


# -- the result ------------------------------------------------------------------------------------


def test_a_result_shows_what_that_of_glm_shows() -> None:
    frame = cohort()
    schema = es.Schema.infer(frame, target="ill")
    table = schema.table(frame)
    encrypted = es.GLM("ill ~ arm*sex").fit(table)
    pooled = es.PooledGLM("ill ~ arm*sex", epsilon=1e-12).run([table])
    theirs = encrypted.result_.tidy()
    # As in R, standard errors are those of the step before the last.
    pd.testing.assert_frame_equal(pooled.tidy(), theirs, rtol=1e-5)
    for name in ("deviance", "null_deviance", "llf", "aic", "df_resid", "df_null"):
        assert getattr(pooled, name) == pytest.approx(getattr(encrypted.result_, name), rel=1e-8)
    assert set(encrypted.result_.glance().columns) <= set(pooled.glance().columns)
    np.testing.assert_allclose(pooled.predict(frame), encrypted.predict(frame), rtol=1e-8)
    assert [one.caption for one in pooled.view().tables] == ["coefficients"]
    narrow = pooled.with_confidence(0.5)
    assert (narrow.coefficients["high"] < pooled.coefficients["high"]).all()
    np.testing.assert_array_equal(narrow.predict(frame), pooled.predict(frame))


def test_missing_values_leave_rows_out_and_have_no_prediction() -> None:
    frame = cohort().astype({"age": float, "arm": object})
    frame.loc[3:9, "age"] = np.nan
    frame.loc[20:29, "arm"] = None
    schema = es.Schema.infer(frame, target="ill", numbers="keep", missing="bin")
    found = es.PooledGLM("ill ~ age + arm").run(at_sites(schema, frame))
    complete = frame.dropna()
    whole = es.PooledGLM("ill ~ age + arm").run(schema.table(complete))
    assert found.n_rows == len(complete) == 283
    pd.testing.assert_frame_equal(found.coefficients, whole.coefficients, rtol=1e-10)
    assert np.isnan(found.predict(frame)).tolist() == frame.isna().any(axis=1).tolist()


def test_every_family_has_a_link_that_is_known() -> None:
    for name in GLM_FAMILIES:
        for link in FAMILIES[name].links:
            assert es.PooledGLM("y ~ x", family=name, link=link).link == link


def test_what_is_estimated_does_not_depend_on_where_rounds_start() -> None:
    schema = schema_of(cohort())
    one, other = (
        es.PooledGLM(formula, max_iterations=n).in_ids(schema).fits(schema.public())
        for formula, n in (("ill ~ age + arm", 5), ("ill ~ arm + age", 9))
    )
    assert one == other
    third = es.PooledGLM("ill ~ age").in_ids(schema).fits(schema.public())
    assert third != one


@pytest.mark.parametrize(
    "asked",
    [
        es.PooledGLM("ill ~ age"),
        es.PooledElasticNet("ill ~ age", family="binomial"),
        es.PooledCox("week ~ age", event="died"),
        es.PooledKMeans(2, ["age"]),
        es.PooledBoosting(1, 1, variables=["arm"]),
    ],
    ids=lambda asked: str(asked.name),
)
def test_rows_with_weights_are_refused(asked: es.SiteProcedure) -> None:
    frame = cohort()
    schema = schema_of(frame, week="ordinal")
    with pytest.raises(es.DataError, check=error("weighted-rows")):
        asked.run(schema.table(frame, weights=1 + frame.index % 2))
    asked.run(schema.table(frame, weights=[1] * 300))
