"""Linear and ridge regression: NIST's certified digits, statsmodels and scikit-learn, from clear
and encrypted rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nist_samples import SETS, Certified, longley
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge as PlainRidge
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.outliers_influence import variance_inflation_factor

import encryptedstats as es
from effort import examples
from error_codes import error
from insecure import insecure_parameters

CLOSE = 1e-9


@pytest.fixture(scope="module")
def keys() -> es.Owner:
    """A small insecure ring whose totals may be as large as a hundred millions."""
    return es.Owner(insecure_parameters("bgv", 1 << 27, (55,) * 6))


def numbers(frame: pd.DataFrame, digits: dict[str, int], **options: Any) -> es.Schema:
    kinds = dict.fromkeys(digits, "continuous")
    with np.errstate(all="ignore"):
        schema = es.Schema.infer(frame, kinds=kinds, **options)
    for name, kept in digits.items():
        schema = schema.with_kind(name, "number", digits=kept)
    return schema


def patients(n: int = 442) -> pd.DataFrame:
    frame = (
        load_diabetes(as_frame=True, scaled=False)
        .frame[["age", "sex", "bmi", "bp", "target"]]
        .head(n)
    )
    sex = frame["sex"].map({1.0: "f", 2.0: "m"})
    region = np.array(["north", "south", "west"])[np.arange(n) % 3]
    return frame.assign(
        sex=sex, region=region, bmi=frame["bmi"].round(), bp=frame["bp"].round()
    ).rename(columns={"target": "y"})


NUMBERS = {"age": 0, "bmi": 0, "bp": 0, "y": 0}


@pytest.fixture(scope="module")
def table() -> es.Table:
    return numbers(patients(), NUMBERS).table(patients(), slots=1024)


@pytest.fixture(scope="module")
def plain(table: es.Table) -> pd.DataFrame:
    return table.to_pandas().astype({"sex": str, "region": str})


# -- certified values
# ------------------------------------------------------------------------------------------------


def digits_right(found: Any, certified: Any) -> float:
    """How many digits agree: the least of -log10 of the relative errors (absolute ones where the
    value is 0).
    """
    found, certified = np.asarray(found, dtype=float), np.asarray(certified, dtype=float)
    below = np.where(certified == 0, 1.0, np.abs(certified))
    return float(-np.log10(np.maximum(np.abs(found - certified) / below, 1e-16)).min())


@pytest.mark.parametrize("name", [*(one.name for one in SETS), "Longley"])
def test_certified_digits_of_nist(name: str) -> None:
    certified: Certified = (
        longley() if name == "Longley" else next(one for one in SETS if one.name == name)
    )
    table = numbers(certified.frame, certified.digits).table(certified.frame)
    result = es.LinearRegression(certified.formula).fit(table).summary()
    # NIST prints 15 significant digits.
    assert digits_right(result.coefficients["estimate"], certified.estimates) > 14
    assert digits_right(result.coefficients["std_error"], certified.errors) > 14
    if certified.residual_sd is not None:
        assert digits_right(np.sqrt(result.scale), certified.residual_sd) > 14
        assert digits_right(result.rsquared, certified.rsquared) > 14


LONG = pytest.mark.slow
OF_NIST = [
    "Norris",
    "NoInt1",
    "Longley",
    pytest.param("Pontius", marks=LONG),
    pytest.param("Wampler1", marks=LONG),
]


@pytest.mark.parametrize("name", OF_NIST)
def test_certified_digits_come_out_of_encrypted_rows(name: str) -> None:
    """With 128 bits of security: totals of up to 45 bits, powers, and numbers that are stored in
    digits.
    """
    certified: Certified = (
        longley() if name == "Longley" else next(one for one in SETS if one.name == name)
    )
    schema = es.Schema.infer(certified.frame, target="y", numbers="keep", digits=certified.digits)
    rows, regression = schema.table(certified.frame), es.LinearRegression(certified.formula)
    owner = es.Owner(es.plan(regression, rows))
    result = owner.open(regression.fit(owner.encrypt(rows)), schema=schema).summary()
    assert digits_right(result.coefficients["estimate"], certified.estimates) > 14
    assert digits_right(result.coefficients["std_error"], certified.errors) > 14


# -- statsmodels
# ------------------------------------------------------------------------------------------------

FORMULAS = {
    "y ~ age + bmi": "y ~ age + bmi",
    "y ~ bmi + sex + region": "y ~ bmi + C(sex) + C(region)",
    "y ~ bmi * sex + I(age^2)": "y ~ bmi + C(sex) + I(age**2) + bmi:C(sex)",
    "y ~ bmi + age - 1": "y ~ bmi + age - 1",
    "y ~ .": "y ~ age + C(sex) + bmi + bp + C(region)",
    "y ~ 1": "y ~ 1",
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_summaries_are_those_of_statsmodels(
    table: es.Table, plain: pd.DataFrame, formula: str
) -> None:
    result, wanted = (
        es.LinearRegression(formula).fit(table).summary(0.9),
        smf.ols(FORMULAS[formula], plain).fit(),
    )
    found = result.coefficients
    order = np.argsort(found["estimate"].to_numpy())
    other = np.argsort(wanted.params.to_numpy())
    assert len(found) == len(wanted.params)
    np.testing.assert_allclose(found["estimate"].iloc[order], wanted.params.iloc[other], rtol=CLOSE)
    np.testing.assert_allclose(found["std_error"].iloc[order], wanted.bse.iloc[other], rtol=CLOSE)
    np.testing.assert_allclose(
        found["statistic"].iloc[order], wanted.tvalues.iloc[other], rtol=CLOSE
    )
    np.testing.assert_allclose(
        found["pvalue"].iloc[order], wanted.pvalues.iloc[other], rtol=1e-6, atol=1e-300
    )
    np.testing.assert_allclose(
        found[["low", "high"]].iloc[order], wanted.conf_int(0.1).iloc[other], rtol=CLOSE
    )
    names = ("rsquared", "rsquared_adj", "llf", "aic", "bic", "scale")
    theirs = {name: name for name in names}
    if formula != "y ~ 1":
        theirs |= {"statistic": "fvalue", "pvalue": "f_pvalue"}
    for name, other_name in theirs.items():
        np.testing.assert_allclose(
            getattr(result, name),
            getattr(wanted, other_name),
            rtol=1e-6 if "pvalue" in name else CLOSE,
            atol=1e-12,
            err_msg=name,
        )
    assert (result.df, result.df_resid, result.n_rows) == (
        wanted.df_model,
        wanted.df_resid,
        442,
    )


def test_columns_are_called_as_the_owner_calls_them(table: es.Table) -> None:
    model = es.LinearRegression("y ~ I(age^2) + bmi:sex + region").fit(table)
    assert model.columns_ == [
        "I(age^2)",
        "region[south]",
        "region[west]",
        "bmi:sex[f]",
        "bmi:sex[m]",
    ]
    text = str(model.summary())
    assert "Linear regression of y on I(age^2)" in text
    assert "Signif. codes" in text
    assert "442 rows" in text


def test_predictions_and_their_intervals_are_those_of_statsmodels(
    table: es.Table, plain: pd.DataFrame
) -> None:
    model, wanted = (
        es.LinearRegression("y ~ bmi + sex").fit(table),
        smf.ols("y ~ bmi + C(sex)", plain).fit(),
    )
    new = plain.head(7).drop(columns="y")
    expected = wanted.get_prediction(new).summary_frame(alpha=0.2)
    np.testing.assert_allclose(model.predict(new), expected["mean"], rtol=CLOSE)
    for interval, names in {
        "confidence": ["mean_ci_lower", "mean_ci_upper"],
        "prediction": ["obs_ci_lower", "obs_ci_upper"],
    }.items():
        found = model.predict(new, interval=interval, confidence=0.8)
        np.testing.assert_allclose(
            found[["estimate", "low", "high"]], expected[["mean", *names]], rtol=CLOSE
        )
    np.testing.assert_allclose(model.predict(table)[:7], expected["mean"], rtol=CLOSE)
    with pytest.raises(
        ValueError,
        check=error(
            "unknown-interval", "'both'", "'confidence'", "'prediction'", "interval='both'"
        ),
    ):
        model.predict(new, interval="both")


@pytest.mark.parametrize(
    ("kind", "formula", "theirs", "terms"),
    [
        (
            1,
            "y ~ bmi + bp + age + bmi:age",
            "y ~ bmi + bp + age + bmi:age",
            ["bmi", "bp", "age", "bmi:age"],
        ),
        (
            2,
            "y ~ bmi * sex + region",
            "y ~ bmi + C(sex) + C(region) + bmi:C(sex)",
            ["bmi", "sex", "region", "bmi:sex"],
        ),
    ],
)
def test_analysis_of_variance_is_that_of_statsmodels(
    table: es.Table, plain: pd.DataFrame, kind: int, formula: str, theirs: str, terms: list[str]
) -> None:
    found = es.LinearRegression(formula).fit(table).anova(kind).table
    wanted = anova_lm(smf.ols(theirs, plain).fit(), typ=kind)
    wanted = wanted.loc[[*(part.strip() for part in theirs.split("~")[1].split("+")), "Residual"]]
    assert list(found.index) == [*terms, "Residual"]
    np.testing.assert_allclose(found["sum_sq"], wanted["sum_sq"], rtol=1e-8)
    np.testing.assert_allclose(found["df"], wanted["df"])
    np.testing.assert_allclose(found["statistic"], wanted["F"], rtol=1e-8)
    np.testing.assert_allclose(found["pvalue"], wanted["PR(>F)"], rtol=1e-6)


def test_variance_inflation_is_that_of_statsmodels(table: es.Table, plain: pd.DataFrame) -> None:
    found = es.LinearRegression("y ~ age + bmi + bp").fit(table).vif()
    X = sm.add_constant(plain[["age", "bmi", "bp"]]).to_numpy()
    np.testing.assert_allclose(
        found, [variance_inflation_factor(X, j) for j in (1, 2, 3)], rtol=CLOSE
    )


def test_a_variable_weighs_the_rows_as_in_wls(table: es.Table, plain: pd.DataFrame) -> None:
    result = es.LinearRegression("y ~ bmi + bp", weights="age").fit(table).summary()
    wanted = sm.WLS(plain["y"], sm.add_constant(plain[["bmi", "bp"]]), weights=plain["age"]).fit()
    np.testing.assert_allclose(result.coefficients["estimate"], wanted.params, rtol=CLOSE)
    np.testing.assert_allclose(result.coefficients["std_error"], wanted.bse, rtol=CLOSE)
    np.testing.assert_allclose(
        [result.rsquared, result.statistic, result.scale],
        [wanted.rsquared, wanted.fvalue, wanted.scale],
        rtol=CLOSE,
    )
    assert np.isnan(result.llf)
    assert "weighted by age" in str(result)


# -- encrypted
# ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
@pytest.mark.parametrize(
    "model",
    [es.LinearRegression("v4 ~ v2 + v1 + v5"), es.Ridge(3.5, "v4 ~ v2 + v0")],
    ids=lambda one: type(one).__name__,
)
def test_encrypted_is_clear_and_can_be_stored(
    keys: es.Owner, table: es.Table, model: Any, tmp_path: Any
) -> None:
    keys.encrypt(table).save(tmp_path / "sealed")
    model.fit(es.load(tmp_path / "sealed", keys.public_keys())).save(tmp_path / "m.enc")
    opened, clear = (
        keys.open(tmp_path / "m.enc", table.schema),
        type(model)(**model.get_params()).fit(table),
    )
    assert opened.totals_ == clear.totals_
    assert opened.columns_ == clear.columns_
    np.testing.assert_array_equal(opened.coef_, clear.coef_)
    opened.save(tmp_path / "m")
    again = es.load(tmp_path / "m")
    assert again.intercept_ == clear.intercept_
    np.testing.assert_array_equal(again.predict(table), clear.predict(table))


def test_names_are_translated_where_they_are_known(keys: es.Owner, table: es.Table) -> None:
    fitted = es.LinearRegression("y ~ bmi").fit(keys.encrypt(table))
    assert fitted.growth_["formula"] == "v4 ~ v2"
    assert fitted.formula == "y ~ bmi"
    opened = keys.open(fitted, schema=table.schema)
    assert opened.columns_ == ["bmi"]
    assert opened.summary() == es.LinearRegression("y ~ bmi").fit(table).summary()


@settings(
    max_examples=examples(5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 50, 1024, 1300]), st.booleans())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_encrypted_equals_clear(keys: es.Owner, seed: int, n: int, intercept: bool) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(-50, 50, (n, 3)), columns=list("aby"))
    known = numbers(frame, dict.fromkeys("aby", 0))
    rows = known.table(frame, slots=1024)
    model = es.LinearRegression("v2 ~ v0 + v1", fit_intercept=intercept)
    opened = keys.open(model.fit(keys.encrypt(rows, workers=1), workers=1), schema=known)
    assert (
        opened.totals_
        == es.LinearRegression("y ~ a + b", fit_intercept=intercept).fit(rows).totals_
    )


def test_rows_are_added_and_forgotten(table: es.Table) -> None:
    model = es.LinearRegression("y ~ bmi + sex")
    first, second, whole = (
        type(model)(model.formula).fit(part) for part in (table[:200], table[200:], table)
    )
    assert (first + second).totals_ == whole.totals_
    assert (whole - second).totals_ == first.totals_
    assert first.partial_fit(table[200:]).totals_ == whole.totals_


# -- ridge
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.3, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_is_that_of_scikit_learn(
    table: es.Table, plain: pd.DataFrame, alpha: float, intercept: bool
) -> None:
    X = plain[["age", "bmi", "bp"]]
    found = es.Ridge(alpha, "y ~ age + bmi + bp", fit_intercept=intercept).fit(table)
    wanted = PlainRidge(alpha, fit_intercept=intercept, solver="svd").fit(X, plain["y"])
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=CLOSE)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, rtol=CLOSE)
    np.testing.assert_allclose(found.predict(X.head()), wanted.predict(X.head()), rtol=CLOSE)
    centred = X - X.mean() if intercept else X
    values = np.linalg.svd(centred, compute_uv=False) ** 2
    np.testing.assert_allclose(found.df_, (values / (values + alpha)).sum(), rtol=CLOSE)


def test_a_path_is_many_ridges(table: es.Table) -> None:
    path = es.Ridge(formula="y ~ age + bmi").fit(table).path([0.1, 1, 10])
    for alpha in (0.1, 1, 10):
        model = es.Ridge(alpha, "y ~ age + bmi").fit(table)
        np.testing.assert_array_equal(
            path.coefficients.loc[alpha], [model.intercept_, *model.coef_]
        )


def test_alpha_is_chosen_by_folds_of_encrypted_rows_in_one_pass(keys: es.Owner) -> None:
    frame = patients(300).assign(late=lambda rows: np.arange(300) % 2)
    small = frame.assign(y=frame["y"] // 10, age=frame["age"] // 10)[["age", "bmi", "y", "late"]]
    known = numbers(small, {"age": 0, "bmi": 0, "y": 0}, target="late")
    rows = known.table(small, folds=4, slots=1024)
    answer = es.Ridge(formula="v2 ~ v0 + v1").fit_folds(keys.encrypt(rows))
    alphas = [0.1, 10.0, 1000.0, 1e6]
    found = es.Ridge.cross_validate(keys.open(answer, known), alphas)
    X, y, folds = small[["age", "bmi"]].to_numpy(float), small["y"].to_numpy(float), rows.fold_codes
    for alpha in alphas:
        errors = []
        for fold in range(4):
            model = PlainRidge(alpha, solver="svd").fit(X[folds != fold], y[folds != fold])
            errors.append(np.mean((model.predict(X[folds == fold]) - y[folds == fold]) ** 2))
        np.testing.assert_allclose(found.errors.loc[alpha, "estimate"], np.mean(errors), rtol=CLOSE)
        np.testing.assert_allclose(
            found.errors.loc[alpha, "std_error"], np.std(errors, ddof=1) / 2, rtol=1e-8
        )
    assert found.best_alpha == found.errors["estimate"].idxmin()
    whole = es.Ridge(10.0, "y ~ age + bmi").fit(rows)
    np.testing.assert_array_equal(found.coefficients.loc[10.0], [whole.intercept_, *whole.coef_])
    with pytest.raises(ValueError, check=error("too-few-folds")):
        es.Ridge.cross_validate([whole], alphas)


# -- hostile tables
# ------------------------------------------------------------------------------------------------


def test_aliased_columns_are_named_as_in_r() -> None:
    frame = pd.DataFrame(
        {
            "a": [1, 2, 3, 4, 6],
            "twice": [2, 4, 6, 8, 12],
            "flat": 7,
            "b": [0, 1, 0, 2, 1],
            "y": [1, 2, 2, 5, 4],
        }
    )
    rows = numbers(frame, dict.fromkeys(frame, 0)).table(frame)
    with pytest.warns(UserWarning, match="aliased.*: twice, flat"):
        model = es.LinearRegression("y ~ a + twice + flat + b").fit(rows)
    kept = es.LinearRegression("y ~ a + b").fit(rows)
    assert model.aliased_ == ["twice", "flat"]
    assert np.isnan(model.coef_[[1, 2]]).all()
    np.testing.assert_array_equal(model.coef_[[0, 3]], kept.coef_)
    np.testing.assert_allclose(model.predict(rows), kept.predict(rows))
    assert model.summary().rsquared == kept.summary().rsquared
    assert "aliased, depends on columns before it: twice" in str(model.summary())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_row_has_a_mean_and_nothing_else() -> None:
    frame = pd.DataFrame({"a": [3], "y": [5]})
    result = (
        es.LinearRegression("y ~ a")
        .fit(numbers(frame, dict.fromkeys(frame, 0)).table(frame))
        .summary()
    )
    assert result.coefficients.loc["(Intercept)", "estimate"] == 5
    assert result.coefficients["std_error"].isna().all()
    assert "no degrees of freedom are left" in str(result)


def test_a_perfect_fit_leaves_nothing() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "y": [2, 4, 6]})
    result = (
        es.LinearRegression("y ~ a")
        .fit(numbers(frame, dict.fromkeys(frame, 0)).table(frame))
        .summary()
    )
    assert result.scale == 0.0
    assert result.rsquared == 1.0
    assert result.statistic == np.inf
    assert result.pvalue == 0.0


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (es.LinearRegression(), "the schema has no target: say what is explained"),
        (es.LinearRegression("y"), "a ~ is needed"),
        (es.LinearRegression("y + age ~ bmi"), "one variable is explained at a time"),
        (es.LinearRegression("y ~ age + nothing"), "no variable 'nothing'"),
        (es.LinearRegression("y ~ age + y"), "is on both sides"),
        (es.LinearRegression("y ~ age bmi"), "is needed before"),
        (es.LinearRegression("y ~ age + bmi:"), "formula: "),
        (es.LinearRegression("y ~ I(age^0)"), "a power is a whole number"),
        (es.LinearRegression("y ~ I(sex^2)"), "formulas compute with numbers"),
        (es.LinearRegression("y ~ 0"), "nothing to explain anything by"),
        (es.LinearRegression("sex ~ age"), "is categorical and not kept as numbers"),
        (es.LinearRegression("y ~ age", weights="sex"), "is categorical and not kept as numbers"),
        (es.LinearRegression("y ~ age", weights="rows"), "has no classes"),
        (es.Ridge(-1.0, "y ~ age"), r"alpha=-1.0: a number of at least 0 is needed"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(table: es.Table, model: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        model.fit(table)


def test_a_reference_without_rows_is_noted() -> None:
    frame = pd.DataFrame(
        {"b": list("uvwuvwvw"), "y": [1, 4, 2, 5, 3, 6, 7, 9], "ill": [0, 0, 1, 0, 1, 1, 0, 1]}
    )
    schema = es.Schema.infer(frame, target="ill").with_kind("y", "number", digits=0)
    said = "no rows have b[u], the reference level: others of b are compared with b[w]"
    for weights in (None, "y"):
        model = es.LinearRegression("y ~ b", weights=weights)
        assert said not in model.fit(schema.table(frame)).summary().notes
        with pytest.warns(UserWarning, match="aliased"):
            found = model.fit(schema.table(frame[frame["b"] != "u"])).summary()
        assert said in found.notes
        v, w = (frame.loc[frame["b"] == level, "y"] for level in "vw")
        if weights is None:
            assert found.coefficients.loc["b[v]", "estimate"] == pytest.approx(v.mean() - w.mean())
    glm = es.GLM("ill ~ b")
    assert said not in glm.fit(schema.table(frame)).summary().notes
    assert said in glm.fit(schema.table(frame[frame["b"] != "u"])).summary().notes


def test_rows_of_weight_0_count_in_the_degrees_of_freedom_as_in_statsmodels() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 5, 4], "y": [2, 3, 5, 8, 1], "w": [1, 0, 2, 1, 1]})
    result = (
        es.LinearRegression("y ~ a", weights="w")
        .fit(numbers(frame, dict.fromkeys("ayw", 0)).table(frame))
        .summary()
    )
    wanted = sm.WLS(frame["y"], sm.add_constant(frame[["a"]]), weights=frame["w"]).fit()
    assert result.df_resid == wanted.df_resid == 3
    np.testing.assert_allclose(result.coefficients["std_error"], wanted.bse, rtol=1e-12)


def test_new_rows_are_read_by_the_schema() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 5], "y": [2, 3, 5, 8]})
    model = es.LinearRegression("y ~ a").fit(numbers(frame, {"a": 0, "y": 0}).table(frame))
    np.testing.assert_array_equal(
        model.predict(pd.DataFrame({"a": [2.4, 2.6]})), model.predict(frame[["a"]])[1:3]
    )
    with pytest.warns(es.SchemaWarning, match="column 'a', row 0: 100 is out of bounds"):
        assert np.isnan(model.predict(pd.DataFrame({"a": [100]}))).all()


def test_a_constant_target_has_no_f_statistic() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 5], "y": [2, 2, 2, 2]})
    result = (
        es.LinearRegression("y ~ a").fit(numbers(frame, {"a": 0, "y": 0}).table(frame)).summary()
    )
    assert np.isnan([result.statistic, result.pvalue, result.rsquared]).all()
    line = frame.assign(y=2 * frame["a"])
    result = es.LinearRegression("y ~ a").fit(numbers(line, {"a": 0, "y": 0}).table(line)).summary()
    assert (result.statistic, result.pvalue) == (np.inf, 0)


def test_a_fitted_model_is_that_of_its_fit_whatever_is_set_later(table: es.Table) -> None:
    ridge = es.Ridge(1.0, "y ~ age + bmi").fit(table)
    before = ridge.summary(), ridge.predict(table)
    ridge.set_params(alpha=100, formula="y ~ bmi", fit_intercept=False)
    assert ridge.summary() == before[0]
    np.testing.assert_array_equal(ridge.predict(table), before[1])
    line = es.LinearRegression("y ~ age + bmi").fit(table)
    before = line.summary(), line.anova(), line.predict(table)
    line.set_params(formula="y ~ bmi", weights="age")
    assert (line.summary(), line.anova()) == before[:2]
    np.testing.assert_array_equal(line.predict(table), before[2])


def test_the_penalty_that_is_refused_is_the_one_that_was_given(table: es.Table) -> None:
    with pytest.raises(es.ParameterError, check=error("alpha-out-of-range", "alpha=-1", "0")):
        es.Ridge(1.0, "y ~ age").fit(table).path([0.5, -1])


def test_weights_of_a_table_are_not_overlooked() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 5], "y": [2, 3, 5, 8], "group": list("uvuv")})
    known = numbers(frame, {"a": 0, "y": 0}, target="group")
    weighted = known.table(frame, weights=[1, 2, 3, 1])
    with pytest.raises(es.SchemaError, check=error("weighted-rows", "'rows'", "weights='rows'")):
        es.LinearRegression("y ~ a").fit(weighted)
    twice = known.table(frame.iloc[[0, 1, 1, 2, 2, 2, 3]])
    found = es.LinearRegression("y ~ a", weights="rows").fit(weighted).summary()
    assert found == es.LinearRegression("y ~ a").fit(twice).summary()


def test_totals_that_no_rows_have_are_refused(table: es.Table) -> None:
    model = es.LinearRegression("y ~ age").fit(table)
    totals = list(model.totals_)
    totals[-1] = 0  # the sum of the squares of y
    with pytest.raises(ValueError, match="a sum of squares would be negative"):
        model.interpret(totals, table.schema, len(table))


# -- scikit-learn
# ------------------------------------------------------------------------------------------------

#: Checks that do not apply, and why.
NOT_APPLICABLE: dict[str, str] = {}


@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [es.LinearRegression(), es.Ridge()], expected_failed_checks=lambda model: NOT_APPLICABLE
)
def test_scikit_learn_is_content(estimator: Any, check: Any) -> None:
    check(estimator)


def test_coefficients_and_paths_are_drawn(table: es.Table) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    ax = es.LinearRegression("y ~ bmi + sex").fit(table).summary().plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["bmi", "sex[m]"]
    path = es.Ridge(formula="y ~ age + bmi").fit(table).path([0.1, 1, 10])
    assert [line.get_label() for line in path.plot().lines] == ["age", "bmi"]


# -- targets, gaps and plans
# ------------------------------------------------------------------------------------------------


def test_the_target_of_a_schema_is_explained_by_all_other_variables(keys: es.Owner) -> None:
    frame = patients(200)[["age", "sex", "bmi", "y"]]
    known = es.Schema.infer(frame, target="y", numbers="keep", digits=0)
    rows = known.table(frame, slots=1024)
    opened = keys.open(es.LinearRegression().fit(keys.encrypt(rows)), schema=known)
    wanted = smf.ols("y ~ age + C(sex) + bmi", frame).fit()
    assert opened.columns_ == ["age", "sex[m]", "bmi"]
    assert opened.target_ == "y"
    found = opened.summary().coefficients["estimate"]
    np.testing.assert_allclose(
        found[["(Intercept)", "sex[m]", "age", "bmi"]], wanted.params, rtol=CLOSE
    )
    np.testing.assert_allclose(
        opened.predict(frame.drop(columns="y")), wanted.predict(frame), rtol=CLOSE
    )


def test_the_reference_level_is_the_owners_choice(table: es.Table, plain: pd.DataFrame) -> None:
    model = es.LinearRegression("y ~ bmi + region", reference={"region": "west"}).fit(table)
    wanted = smf.ols("y ~ bmi + C(region, Treatment('west'))", plain).fit()
    assert model.columns_ == ["bmi", "region[north]", "region[south]"]
    np.testing.assert_allclose(model.intercept_, wanted.params["Intercept"], rtol=CLOSE)


@pytest.mark.parametrize("missing", ["level", "complete"])
def test_missing_values_are_left_out_or_a_level_and_it_is_said(
    keys: es.Owner, missing: str
) -> None:
    frame = patients(200)[["age", "sex", "bmi", "y"]]
    frame.loc[[3, 50, 120], "bmi"] = np.nan
    frame.loc[[7, 50], "sex"] = None
    known = es.Schema.infer(frame, target="y", numbers="keep", digits=0, missing="bin")
    rows = known.table(frame, slots=1024)
    model = es.LinearRegression("y ~ bmi + sex", missing=missing)
    opened = keys.open(model.fit(keys.encrypt(rows)), schema=known)
    whole = frame.dropna(subset=["bmi"] if missing == "level" else None).fillna({"sex": "missing"})
    wanted = smf.ols("y ~ bmi + C(sex, Treatment('f'))", whole).fit()
    assert opened.summary().n_rows == len(whole) == wanted.nobs
    np.testing.assert_allclose(opened.coef_[0], wanted.params["bmi"], rtol=CLOSE)
    np.testing.assert_allclose(opened.scale_, wanted.scale, rtol=CLOSE)
    assert f"{200 - len(whole)} rows were left out because of missing values" in str(
        opened.summary()
    )


def test_folds_of_a_target_that_is_a_number(keys: es.Owner) -> None:
    frame = patients(200)[["age", "bmi", "y"]] // 10
    known = es.Schema.infer(frame, target="y", numbers="keep", digits=0)
    rows = known.table(frame, folds=3, slots=1024)
    models = keys.open(es.Ridge(2.0).fit_folds(keys.encrypt(rows)), known)
    for fold, model in enumerate(models):
        kept = frame[rows.fold_codes != fold]
        wanted = PlainRidge(2.0, solver="svd").fit(kept[["age", "bmi"]], kept["y"])
        np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=CLOSE)
        assert model.n_rows_ == len(kept)


def test_a_plan_takes_names_and_real_parameters_carry_it() -> None:
    frame = patients()[["age", "sex", "bmi", "y"]]
    known = es.Schema.infer(frame, target="y", numbers="keep", digits=0)
    model = es.LinearRegression("y ~ age + sex + bmi")
    plan = es.plan(model, known, n_rows=len(frame))
    assert plan.depth == 1
    owner = es.Owner(plan)
    opened = owner.open(model.fit(owner.encrypt(known.table(frame))), schema=known)
    assert (
        opened.summary()
        == es.LinearRegression("y ~ age + sex + bmi").fit(known.table(frame)).summary()
    )


def test_totals_far_beyond_32_bits_are_exact() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(50, 10, 300).round(3), "y": rng.normal(0, 1, 300).round(4)}
    )
    known = es.Schema.infer(frame, target="y", numbers="keep", digits={"a": 3, "y": 4})
    plan = es.plan(es.LinearRegression(), known, n_rows=300)
    assert plan.largest > 1 << 37
    owner, rows = es.Owner(plan), known.table(frame)
    opened = owner.open(es.LinearRegression().fit(owner.encrypt(rows)), schema=known)
    assert opened.summary() == es.LinearRegression().fit(rows).summary()


def test_a_plan_with_folds_carries_them() -> None:
    frame = patients(60)[["age", "y"]] // 10
    known = es.Schema.infer(frame, target="y", numbers="keep", digits=0)
    assert es.plan(es.Ridge(), known, n_rows=60).depth == 1
    plan = es.plan(es.Ridge(), known, n_rows=60, folds=3)
    assert plan.depth == 2
    assert plan.n_totals == 6  # those of folds are proven and not yet asked for
    assert len(plan.digests) == 2
    owner, rows = es.Owner(plan), known.table(frame, folds=3)
    sealed = owner.encrypt(rows)
    opened = owner.open(es.Ridge().fit_folds(sealed), known)
    assert [model.totals_ for model in opened] == [
        model.totals_ for model in es.Ridge().fit_folds(rows)
    ]


def test_classes_are_no_target_of_a_regression() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 5], "y": list("uvuv")})
    rows = numbers(frame, {"a": 0}, target="y").table(frame)
    with pytest.raises(es.SchemaError, check=error("keep-numbers")):
        es.LinearRegression().fit(rows)


def test_a_worker_knows_no_names(keys: es.Owner, table: es.Table) -> None:
    sealed = keys.encrypt(table)
    with pytest.raises(es.SchemaError, check=error("name-instead-of-id")):
        es.LinearRegression("y ~ bmi").in_ids(sealed.schema)
    assert es.LinearRegression("v4 ~ v2").in_ids(sealed.schema).formula == "v4 ~ v2"


def test_products_are_counted_without_making_them(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(
        {"a": list("uvwuvw"), "b": list("xyxyyx"), "n": range(6), "y": [1, 3, 2, 5, 4, 6]}
    )
    public = es.Schema.infer(frame, target="y", numbers="keep", digits=0).public()
    asked = es.LinearRegression("target ~ v0*v1 + v2")
    made = len(asked.totals(public)["products"])
    monkeypatch.setattr("encryptedstats.statistics.designs.Design.product", None)
    assert asked.shapes(public)["products"] == (made,)
    many = pd.DataFrame({f"x{j}": [0, 1, 2] for j in range(1500)} | {"y": [0, 1, 2]})
    wide = es.Schema.infer(many, target="y", numbers="keep", digits=0).public()
    with pytest.raises(es.ParameterError, check=error("too-many-products", "1,501", "1,048,576")):
        es.LinearRegression().check_schema(wide)
