"""Generalized linear models against statsmodels on the rows themselves, from encrypted tables; and
what has no maximum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from error_codes import error

pytestmark = pytest.mark.filterwarnings(
    "ignore::encryptedstats.InsecureParametersWarning", "ignore:column .* is constant"
)


def made_up(n: int = 150, seed: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    arm, sex = rng.choice(["a", "b", "c"], n), rng.choice(["f", "m"], n)
    chance = 1 / (1 + np.exp(0.5 - 0.8 * (arm == "b") - 0.6 * (sex == "m")))
    time = rng.integers(1, 10, n)
    return pd.DataFrame(
        {
            "arm": arm,
            "sex": sex,
            "visits": rng.poisson(0.4 * time * np.where(arm == "c", 2, 1)).clip(max=15),
            "time": time,
            "ill": (rng.random(n) < chance).astype(int),
        }
    )


def schema_of(frame: pd.DataFrame) -> es.Schema:
    known = es.Schema.infer(frame, target="ill", classes=[0, 1])
    return known.with_kind("visits", "number", digits=0, low=0, high=15).with_kind(
        "time", "number", digits=0, low=0, high=9
    )


def statsmodels_fit(formula: str, frame: pd.DataFrame, family: str, **options: Any) -> Any:
    pytest.importorskip("statsmodels")
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    known = {"binomial": sm.families.Binomial(), "poisson": sm.families.Poisson()}[family]
    return smf.glm(formula, frame, family=known, **options).fit(tol=1e-14, maxiter=100)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("class ~ v0 + v1", "ill ~ arm + sex"),
        ("class ~ v0*v1", "ill ~ arm * sex"),
        ("class ~ v0:v1", "ill ~ C(arm):C(sex)"),
        ("class ~ 1", "ill ~ 1"),
    ],
)
def test_logistic_regression_is_that_of_statsmodels(ours: str, theirs: str) -> None:
    frame = made_up()
    found = es.GLM(ours).fit(schema_of(frame).table(frame)).summary()
    wanted = statsmodels_fit(theirs, frame, "binomial")
    assert found.llf == pytest.approx(wanted.llf, rel=1e-12)
    assert found.deviance == pytest.approx(wanted.deviance, rel=1e-12)
    assert found.null_deviance == pytest.approx(wanted.null_deviance, rel=1e-12)
    assert found.aic == pytest.approx(wanted.aic, rel=1e-12)
    assert (found.df_resid, found.df_null) == (wanted.df_resid, len(frame) - 1)
    if ":" not in ours:  # statsmodels codes an interaction without its main effects in another way
        table = found.coefficients
        np.testing.assert_allclose(table["estimate"], wanted.params, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(table["std_error"], wanted.bse, rtol=1e-9)
        np.testing.assert_allclose(table["pvalue"], wanted.pvalues, rtol=1e-8)
        np.testing.assert_allclose(table[["low", "high"]], wanted.conf_int(), rtol=1e-8, atol=1e-10)


def test_encrypted_fits_are_those_of_statsmodels(toy: es.Owner) -> None:
    frame = made_up()
    known = schema_of(frame)
    sealed = toy.encrypt(known.table(frame), workers=1)
    logistic = toy.open(es.GLM("class ~ v0 + v1").fit(sealed, workers=1), schema=known)
    wanted = statsmodels_fit("ill ~ arm + sex", frame, "binomial")
    np.testing.assert_allclose([logistic.intercept_, *logistic.coef_], wanted.params, rtol=1e-9)
    np.testing.assert_allclose(logistic.predict(frame), wanted.predict(frame), rtol=1e-9)
    rates = toy.open(es.GLM("v2 ~ v0 + v1", "poisson", "v3").fit(sealed, workers=1), schema=known)
    wanted = statsmodels_fit("visits ~ arm + sex", frame, "poisson", offset=np.log(frame["time"]))
    table = rates.summary().coefficients
    np.testing.assert_allclose(table["estimate"], wanted.params, rtol=1e-9)
    np.testing.assert_allclose(table["std_error"], wanted.bse, rtol=1e-9)
    assert list(table.index) == ["(Intercept)", "arm[b]", "arm[c]", "sex[m]"]


def test_poisson_deviance_is_that_of_the_cells() -> None:
    frame = made_up()
    found = es.GLM("v2 ~ v0 + v1", "poisson", "v3").fit(schema_of(frame).table(frame)).summary()
    cells = frame.groupby(["arm", "sex"], as_index=False)[["visits", "time"]].sum()
    wanted = statsmodels_fit("visits ~ arm + sex", cells, "poisson", offset=np.log(cells["time"]))
    assert found.deviance == pytest.approx(wanted.deviance, rel=1e-9)
    assert found.null_deviance == pytest.approx(wanted.null_deviance, rel=1e-9)
    assert found.aic == pytest.approx(wanted.aic, rel=1e-10)
    assert (found.df_resid, found.df_null) == (2, 5)
    assert any("are those of the cells" in note for note in found.notes)


def test_models_add_and_are_stored(toy: es.Owner, tmp_path: Any) -> None:
    frame = made_up()
    known = schema_of(frame)
    halves = [es.GLM("class ~ v0 + v1").fit(known.table(part)) for part in (frame[:70], frame[70:])]
    whole = es.GLM("class ~ v0 + v1").fit(known.table(frame))
    both = halves[0] + halves[1]
    assert both.totals_ == whole.totals_
    np.testing.assert_array_equal(both.coef_, whole.coef_)
    whole.save(tmp_path / "model")
    again = es.load(tmp_path / "model")
    assert again.summary() == whole.summary()
    np.testing.assert_array_equal(again.predict(frame), whole.predict(frame))


def test_it_prints_as_r_does() -> None:
    frame = made_up()
    text = es.GLM("class ~ v0 + v1").fit(schema_of(frame).table(frame)).summary().summary()
    for part in (
        "estimate",
        "statistic",
        "pvalue",
        "null deviance",
        "df null",
        "aic",
        "iterations",
    ):
        assert part in text
    assert "event: ill is 1" in text


# -- hostile rows
# ------------------------------------------------------------------------------------------------


def test_separation_is_said_and_names_the_level() -> None:
    frame = made_up()
    frame.loc[frame["arm"] == "c", "ill"] = 1
    found = es.GLM("class ~ v0 + v1").fit(schema_of(frame).table(frame)).summary()
    assert any(
        "fitted probabilities numerically 0 or 1 occurred" in note and "arm[c]" in note
        for note in found.notes
    )
    assert not any("sex[m]" in note for note in found.notes)
    rest = frame[frame["arm"] != "c"]
    wanted = statsmodels_fit("ill ~ arm + sex", rest, "binomial")
    np.testing.assert_allclose(
        found.coefficients.loc["sex[m]", "estimate"], wanted.params["sex[T.m]"], rtol=1e-6
    )
    frame.loc[frame["arm"] == "c", "visits"] = 0
    rates = es.GLM("v2 ~ v0", "poisson").fit(schema_of(frame).table(frame)).summary()
    assert any(
        "fitted rates numerically 0 occurred" in note and "arm[c]" in note for note in rates.notes
    )


def test_empty_and_collinear_levels_are_aliased() -> None:
    frame = made_up()
    known = schema_of(frame)
    found = es.GLM("class ~ v0 + v1").fit(known.table(frame[frame["arm"] != "b"])).summary()
    assert np.isnan(found.coefficients.loc["arm[b]", "estimate"])
    assert any(
        "not defined because of singularities (aliased): arm[b]" in note for note in found.notes
    )
    wanted = statsmodels_fit("ill ~ arm + sex", frame[frame["arm"] != "b"], "binomial")
    np.testing.assert_allclose(found.coefficients["estimate"].dropna(), wanted.params, rtol=1e-9)
    twice = frame.assign(sex=np.where(frame["arm"] == "b", "m", "f"))
    assert any(
        "aliased): sex[m]" in note
        for note in es.GLM("class ~ v0 + v1").fit(known.table(twice)).summary().notes
    )


def test_rows_from_which_nothing_is_learnt() -> None:
    frame = made_up()
    known = schema_of(frame)
    with pytest.raises(es.DataError, check=error("constant-outcome")):
        es.GLM("class ~ v0").fit(known.table(frame.assign(ill=0)))
    with pytest.raises(es.DataError, check=error("constant-outcome")):
        es.GLM("class ~ v0").fit(known.table(frame[:1]))
    with pytest.raises(es.DataError, check=error("constant-outcome")):
        es.GLM("v2 ~ v0", "poisson").fit(known.table(frame.assign(visits=0)))


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (es.GLM("class"), es.ParameterError, "a ~ is needed"),
        (es.GLM("class ~ v0 + "), es.ParameterError, "the name of a variable is needed here"),
        (
            es.GLM("class ~ v0", "gamma"),
            es.ParameterError,
            "family='gamma': one of 'binomial', 'poisson'",
        ),
        (es.GLM("class ~ v0", exposure="v3"), es.ParameterError, "only family='poisson' has one"),
        (es.GLM("class ~ v3"), es.SchemaError, "kept as a number, and a GLM takes factors"),
        (es.GLM("v0 ~ v1"), es.SchemaError, "has 3 levels, and a binomial one has two"),
        (es.GLM("class ~ class"), es.ParameterError, "on both sides"),
        (es.GLM("class ~ v0", "poisson"), es.SchemaError, "."),
    ],
)
def test_what_cannot_be_asked(model: es.GLM, error: Any, message: str) -> None:
    frame = made_up()
    with pytest.raises(error, match=message):
        model.fit(schema_of(frame).table(frame))


def test_too_large_a_table_is_refused_with_its_size() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{j}": rng.integers(0, 10, 50) for j in range(4)}).assign(
        y=rng.integers(0, 2, 50)
    )
    known = es.Schema.infer(frame, target="y", kinds={f"x{j}": "categorical" for j in range(4)})
    sizes = " x ".join(str(variable.n_bins) for variable in known.variables)
    with pytest.raises(es.ParameterError, check=error("table-too-large", sizes)):
        es.plan(es.GLM("class ~ v0 + v1 + v2 + v3"), known, n_rows=50)


def test_names_are_those_of_the_owner(toy: es.Owner) -> None:
    frame = made_up()
    known = schema_of(frame)
    named, by_id = (
        es.GLM("visits ~ arm*sex", "poisson", "time"),
        es.GLM("v2 ~ v0*v1", "poisson", "v3"),
    )
    assert named.in_ids(known).parameters() == by_id.in_ids(known.public()).parameters()
    assert by_id.in_ids(known).in_ids(known).formula == "v2 ~ v0 + v1 + v0:v1"
    assert es.GLM("ill ~ arm", reference={"arm": "b"}).in_ids(known).reference == {"v0": "bin1"}
    opened = toy.open(
        named.fit(toy.encrypt(known.table(frame), workers=1), workers=1), schema=known
    )
    np.testing.assert_array_equal(opened.coef_, by_id.fit(known.table(frame)).coef_)
    assert opened.summary().formula == "visits ~ arm + sex + arm:sex"
    with pytest.raises(es.SchemaError, check=error("name-instead-of-id")):
        es.GLM("visits ~ arm*sex", "poisson", "time").in_ids(known.public())


def test_intervals_have_the_level_that_is_asked_for() -> None:
    frame = made_up()
    model = es.GLM("ill ~ arm").fit(schema_of(frame).table(frame))
    wanted = statsmodels_fit("ill ~ arm", frame, "binomial").conf_int(0.1)
    found = model.summary(confidence=0.9)
    assert found.confidence == 0.9
    np.testing.assert_allclose(found.coefficients[["low", "high"]], wanted, rtol=1e-7)
    with pytest.raises(es.ParameterError, check=error("confidence-out-of-range")):
        model.summary(confidence=90)


def test_another_reference_level() -> None:
    frame = made_up()
    found = (
        es.GLM("ill ~ arm", reference={"arm": "b"})
        .fit(schema_of(frame).table(frame))
        .summary()
        .coefficients
    )
    wanted = statsmodels_fit("ill ~ C(arm, Treatment('b'))", frame, "binomial")
    assert list(found.index) == ["(Intercept)", "arm[a]", "arm[c]"]
    np.testing.assert_allclose(found["estimate"], wanted.params, rtol=1e-9)


def test_all_other_variables_by_default() -> None:
    frame = made_up()[["arm", "sex", "ill"]]
    table = es.Schema.infer(frame, target="ill").table(frame)
    np.testing.assert_array_equal(
        es.GLM().fit(table).coef_, es.GLM("ill ~ arm + sex").fit(table).coef_
    )
