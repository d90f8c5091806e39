"""Tests of several groups or ratings, and rates: compared with R 4.2.2 (base, survival 3.5-3,
nnet), scipy, statsmodels and lifelines. The rows are those of ``test_values_of_r``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from asked_samples import opened, table_of
from lifelines.statistics import pairwise_logrank_test
from scipy.stats import fisher_exact, gamma
from statsmodels.multivariate.manova import MANOVA
from statsmodels.stats.contingency_tables import cochrans_q
from test_values_of_r import make_rows
from test_values_of_r import table_of as table_of_r

import encryptedstats as es
from effort import one_scheme
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
PAIRS = ["b - a", "c - a", "c - b"]


@pytest.fixture(scope="module")
def numbers() -> es.Table:
    return table_of_r(make_rows())


@pytest.fixture(scope="module")
def bins() -> es.Table:
    known = es.Schema.infer(make_rows(), target="died")
    return known.with_kind("week", "ordinal", levels=range(1, 10)).table(make_rows())


def test_several_means_are_compared_as_in_r(numbers: es.Table) -> None:
    """summary(manova(cbind(x, z, y) ~ g, d), test = ...)$stats."""
    found = opened(numbers, es.Manova(["x", "z", "y"], by="g")).tidy()
    wanted = [
        [0.4836040055455, 2.7639447281946, 6, 0.0208226905963],
        [0.55081879382050, 2.89497626708228, 6, 0.01681740249678],
        [0.75298521304381, 3.01194085217524, 6, 0.01401712697641],
        [0.658011363370107, 5.702765149207594, 3, 0.003875087350554],
    ]
    columns = ["estimate", "statistic", "df", "pvalue"]
    np.testing.assert_allclose(found[columns].to_numpy(), wanted, rtol=1e-10)


def test_two_groups_have_hotellings_test(numbers: es.Table) -> None:
    """summary(manova(cbind(x, z, y) ~ h, d), test = "Hotelling-Lawley")$stats."""
    found = opened(numbers, es.Manova(["x", "z", "y"], by="h"))
    assert found.details["T2"] == pytest.approx(28 * 0.33715402626396, rel=1e-10)
    assert (found.pvalue, found.df, found.df_resid) == pytest.approx((0.05278703842427, 3, 26))
    assert found.tidy()["pvalue"].to_numpy() == pytest.approx([found.pvalue] * 4)


def test_manova_of_weighted_rows_and_gaps_is_that_of_statsmodels() -> None:
    rows = make_rows().astype({"x": float, "z": float})
    rows.loc[[3, 7], "x"] = np.nan
    table = table_of(rows, numbers={"x": 0, "z": 0}, missing="bin")
    found = opened(table, es.Manova(["x", "z"], by="g"))
    whole = rows.dropna()
    wanted = MANOVA.from_formula("x + z ~ g", whole).mv_test().results["g"]["stat"]
    for ours, theirs in (("Pillai's trace", "Pillai's trace"), ("Wilks's lambda", "Wilks' lambda")):
        line = found.tables["tests"].loc[ours]
        assert line["pvalue"] == pytest.approx(wanted.loc[theirs, "Pr > F"], rel=1e-9)
    assert found.n_rows == 28
    assert "2 rows were left out" in found.notes[0]


def test_ranks_of_pairs_are_compared_as_in_r() -> None:
    """pairwise.wilcox.test(d$y, d$g, p.adjust.method = "BH")."""
    table = table_of(make_rows(), numbers={"y": 0})
    found = table.ask(es.PairwiseMannWhitney("y", "g", adjust="bh")).tidy()
    assert list(found.index) == PAIRS
    wanted = [0.09988263039135, 0.09988263039135, 0.8378350834211]
    np.testing.assert_allclose(found["pvalue"], wanted, rtol=1e-10)


@one_scheme
def test_encrypted_ranks_of_pairs(toy: es.Owner) -> None:
    known = table_of(make_rows(), numbers={"y": 0})
    sealed = toy.encrypt(known, encodings=("onehot", "grid"), workers=1)
    question = es.PairwiseMannWhitney("y", "g")
    answer = sealed.ask(question.in_ids(known.schema), workers=1)
    assert toy.open(answer, schema=known.schema) == known.ask(question)


def test_shares_of_pairs_are_compared_as_in_r(numbers: es.Table) -> None:
    """pairwise.prop.test(table(d$g, d$died)[, 2:1], p.adjust.method = "holm")."""
    found = opened(numbers, es.PairwiseProportions("died", "g")).tidy()
    assert list(found.index) == PAIRS
    np.testing.assert_allclose(
        found["pvalue"], [0.4774114679200, 0.9268990697886, 0.3342665340774], rtol=1e-10
    )
    exact = numbers.ask(es.PairwiseProportions("died", "g", adjust="none", method="fisher"))
    rows = make_rows()
    for name, pvalue in exact.tidy()["pvalue"].items():
        two = rows[rows["g"].isin(str(name).split(" - "))]
        assert pvalue == pytest.approx(fisher_exact(pd.crosstab(two["g"], two["died"]))[1])


def test_curves_of_pairs_are_compared_as_in_r_and_lifelines(bins: es.Table) -> None:
    """survdiff(Surv(week, died) ~ g, d[d$g %in% p, ]) of each pair p."""
    found = opened(bins, es.PairwiseLogRank("week", by="g", adjust="none")).tidy()
    assert list(found.index) == PAIRS
    np.testing.assert_allclose(
        found["statistic"], [1.502180910633, 0.2319189251536, 2.133969996431], rtol=1e-10
    )
    rows = make_rows()
    wanted = pairwise_logrank_test(rows["week"], rows["g"], rows["died"]).summary["p"]
    np.testing.assert_allclose(sorted(found["pvalue"]), sorted(wanted), rtol=1e-9)
    adjusted = bins.ask(es.PairwiseLogRank("week", by="g", adjust="bonferroni")).tidy()["pvalue"]
    np.testing.assert_allclose(adjusted, np.minimum(1, 3 * found["pvalue"]))


def test_cochrans_q_is_that_of_r_and_statsmodels() -> None:
    """b <- cbind(d$h == "v", d$died == 1, d$x > 5); Q by its formula."""
    rows = make_rows()
    ratings = pd.DataFrame({"a": rows["h"] == "v", "b": rows["died"] == 1, "c": rows["x"] > 5})
    table = table_of(ratings.astype(str))
    found = opened(table, es.CochranQ(["a", "b", "c"]))
    assert (found.statistic, found.pvalue) == pytest.approx((0.75, 0.687289278791), rel=1e-10)
    wanted = cochrans_q(ratings.to_numpy(dtype=int))
    assert (found.statistic, found.pvalue) == pytest.approx((wanted.statistic, wanted.pvalue))
    two = table.ask(es.CochranQ(["a", "c"]))
    assert two.statistic == pytest.approx(
        table.ask(es.McNemar("a", "c", correction=False)).statistic
    )


def test_multinomial_regressions_are_those_of_r_and_statsmodels() -> None:
    """d$m <- factor(d$n %% 3); multinom(m ~ g + h, d, reltol = 1e-16)."""
    rows = make_rows().assign(m=lambda d: d["n"] % 3)
    table = table_of(rows[["m", "g", "h"]], target="m")
    found = opened(table, es.MultinomialRegression(["g", "h"]))
    wanted = [
        0.2445067932099, 1.041259730921, -0.08535494585219, 0.582162098513,
        -0.8236230679354, 2.066221854761, 0.74185299132022, 1.460962657385,
    ]  # fmt: skip
    errors = [
        0.8749460184002, 1.374374060503, 1.177400249387, 1.083383984784,
        1.0531093748459, 1.455919456083, 1.236614321271, 1.132899623934,
    ]  # fmt: skip
    # nnet stops before the maximum: five digits are its own.
    np.testing.assert_allclose(found.coefficients["estimate"], wanted, rtol=2e-4)
    np.testing.assert_allclose(found.coefficients["std_error"], errors, rtol=2e-4)
    assert (found.llf, found.aic) == pytest.approx((-29.71851003088, 75.43702006176), rel=1e-9)
    design = sm.add_constant(pd.get_dummies(rows[["g", "h"]], drop_first=True, dtype=float))
    theirs = sm.MNLogit(rows["m"], design).fit(disp=0, method="newton", tol=1e-14)
    np.testing.assert_allclose(
        found.coefficients["estimate"], theirs.params.to_numpy().T.ravel(), rtol=1e-8
    )
    assert (found.statistic, found.pvalue) == pytest.approx((theirs.llr, theirs.llr_pvalue))
    other = table.ask(es.MultinomialRegression(["g", "h"], base=2))
    assert other.coefficients["estimate"].iloc[0] == pytest.approx(
        -found.coefficients["estimate"].iloc[4]
    )


def test_levels_without_rows_have_no_maximum() -> None:
    rows = pd.DataFrame({"g": list("aaabbb"), "m": [0, 1, 2, 0, 0, 1]})
    found = table_of(rows, target="m").ask(es.MultinomialRegression(["g"]))
    assert "no maximum in 2: g[b]" in found.notes[-1]


def made_up_towns() -> pd.DataFrame:
    rng = np.random.default_rng(9)
    age, town = rng.choice(["1 young", "2 old"], 400), rng.choice(["a", "b"], 400)
    ill = (rng.random(400) < np.where(age == "2 old", 0.3, 0.1)).astype(int)
    return pd.DataFrame({"town": town, "age": age, "ill": ill, "years": rng.integers(1, 9, 400)})


@pytest.mark.parametrize("exposure", [None, "years"])
def test_standardised_rates_are_those_of_the_formulas(exposure: str | None) -> None:
    """ageadjust.direct of R's epitools has this rate and these limits of the gamma distribution."""
    rows = made_up_towns().assign(one=1)
    table = table_of(rows.drop(columns="one"), target="ill", numbers={"years": 0})
    question = es.StandardisedRate("town", "age", exposure=exposure, standard=[3, 1])
    found = opened(table, question).table
    unit = exposure or "one"
    whole = rows.groupby("age")["ill"].sum() / rows.groupby("age")[unit].sum()
    for town, own in rows.groupby("town"):
        events, exposed = own.groupby("age")["ill"].sum(), own.groupby("age")[unit].sum()
        share = np.array([0.75, 0.25]) / exposed
        rate, variance = float(share @ events), float(share**2 @ events)
        line = found.loc[town]
        assert line["standardised"] == pytest.approx(rate, rel=1e-12)
        assert line["crude"] == pytest.approx(events.sum() / exposed.sum(), rel=1e-12)
        assert line["low"] == pytest.approx(gamma.ppf(0.025, rate**2 / variance) * variance / rate)
        assert line["low"] < rate < line["high"]
        assert line["smr"] == pytest.approx(events.sum() / float(whole @ exposed), rel=1e-12)
        assert line["smr_low"] < line["smr"] < line["smr_high"]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (es.Manova(["x"], by="g"), "too-few-variables"),
        (es.Manova(["x", "x"], by="g"), "same-variable-twice"),
        (es.CochranQ(["h"]), "too-few-variables"),
        (es.CochranQ(["h", "g"]), "not-two-levels"),
        (es.PairwiseProportions("died", "died"), "same-variable-twice"),
        (es.MultinomialRegression(["h"], target="died"), "not-several-levels"),
        (es.StandardisedRate("g", "h", standard=[1, 2, 3]), "invalid-standard"),
    ],
)
def test_questions_that_are_refused(numbers: es.Table, question: es.Question, code: str) -> None:
    with pytest.raises((es.SchemaError, es.ParameterError), check=error(code)):
        numbers.ask(question)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: es.PairwiseMannWhitney("y"), "by-missing"),
        (lambda: es.PairwiseLogRank("week"), "by-missing"),
        (lambda: es.MultinomialRegression([]), "no-covariates"),
        (lambda: es.PairwiseProportions("died", "g", adjust="tukey"), "unknown-adjustment"),
        (lambda: es.PairwiseProportions("died", "g", method="exact"), "unknown-method"),
    ],
)
def test_parameters_that_are_refused(make: Any, code: str) -> None:
    with pytest.raises(es.ParameterError, check=error(code)):
        make()


def test_rows_without_an_answer_are_refused(numbers: es.Table) -> None:
    flat = table_of(make_rows().assign(x=1, z=2), numbers={"x": 0, "z": 0})
    with pytest.raises(es.DataError, check=error("constant-data")):
        flat.ask(es.Manova(["x", "z"], by="g"))
    with pytest.raises(es.DataError, check=error("collinear")):
        table_of(make_rows().assign(z=lambda d: 2 * d["x"]), numbers={"x": 0, "z": 0}).ask(
            es.Manova(["x", "z"], by="g")
        )
    same = table_of(pd.DataFrame({"a": list("yynn"), "b": list("yynn")}))
    with pytest.raises(es.DataError, check=error("no-difference")):
        same.ask(es.CochranQ(["a", "b"]))
