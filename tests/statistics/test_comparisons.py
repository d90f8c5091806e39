"""T-tests and analysis of variance: what is read from encrypted totals equals scipy and statsmodels
on the same rows.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import statsmodels.api as sm
from asked_samples import opened, table_of
from hypothesis import given, settings
from hypothesis import strategies as some
from statsmodels.formula.api import ols
from statsmodels.stats.oneway import anova_oneway

import encryptedstats as es
from effort import examples
from error_codes import error

DATA = Path(os.environ.get("ENCRYPTEDSTATS_DATA", "missing"))


@pytest.fixture(scope="module")
def anes() -> es.Table:
    """statsmodels' election study of 1996: ages, thermometers, and groups of very
    different sizes.
    """
    frame = sm.datasets.anes96.load_pandas().data
    made = pd.DataFrame(
        {
            "age": frame["age"].astype(int),
            "clinton": frame["ClinLR"].astype(int),
            "dole": frame["DoleLR"].astype(int),
            "news": pd.cut(frame["TVnews"], [-1, 0, 3, 7], labels=["none", "some", "daily"]).astype(
                str
            ),
            "educ": frame["educ"].astype(int),
            "vote": np.where(frame["vote"] > 0, "dole", "clinton"),
        }
    )
    return table_of(
        made, "vote", {"age": 0, "clinton": 0, "dole": 0}, kinds={"educ": "categorical"}
    )


def rows(table: es.Table) -> pd.DataFrame:
    frame = table.to_pandas()
    return frame.assign(
        **{name: frame[name].astype(str) for name in ("news", "educ") if name in frame}
    )


# -- t-tests
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["two-sided", "less", "greater"])
def test_the_mean_of_one_sample_is_tested_as_scipy_does(anes: es.Table, side: str) -> None:
    found = opened(anes, es.TTest("v0", mu=46.5, alternative=side))
    wanted = st.ttest_1samp(rows(anes)["age"], 46.5, alternative=side)
    assert (found.statistic, found.df) == (pytest.approx(wanted.statistic, rel=1e-11), wanted.df)
    assert found.pvalue == pytest.approx(wanted.pvalue, rel=1e-9)
    interval = wanted.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-11)


@pytest.mark.parametrize("equal_var", [False, True])
def test_two_groups_are_compared_as_scipy_does(anes: es.Table, equal_var: bool) -> None:
    found = opened(anes, es.TTest("v0", by="class", equal_var=equal_var, confidence=0.9))
    frame = rows(anes)
    groups = [frame.loc[frame["vote"] == name, "age"] for name in ("clinton", "dole")]
    wanted = st.ttest_ind(*groups, equal_var=equal_var)
    assert (found.statistic, found.df) == (
        pytest.approx(wanted.statistic, rel=1e-11),
        pytest.approx(wanted.df, rel=1e-11),
    )
    assert found.pvalue == pytest.approx(wanted.pvalue, rel=1e-9)
    interval = wanted.confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-10)
    np.testing.assert_allclose(found.table["sd"], [group.std() for group in groups], rtol=1e-12)


def test_two_of_many_groups_are_named(anes: es.Table) -> None:
    found = opened(anes, es.TTest("age", by="news", groups=["none", "daily"]))
    frame = rows(anes)
    wanted = st.ttest_ind(
        *(frame.loc[frame["news"] == name, "age"] for name in ("none", "daily")), equal_var=False
    )
    assert found.statistic == pytest.approx(wanted.statistic, rel=1e-11)
    assert f"{(frame['news'] == 'some').sum():,} rows of other groups were left out" in found.notes


def test_pairs_are_compared_as_scipy_does_whatever_their_digits() -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(60, 9, 150).round(1)
    frame = pd.DataFrame({"before": before, "after": (before - 2 + rng.normal(0, 3, 150)).round(0)})
    found = opened(table_of(frame, numbers={"before": 1, "after": 0}), es.TTest("v0", paired="v1"))
    wanted = st.ttest_rel(frame["before"], frame["after"])
    assert (found.statistic, found.df) == (pytest.approx(wanted.statistic, rel=1e-10), wanted.df)
    assert found.pvalue == pytest.approx(wanted.pvalue, rel=1e-9)
    assert "Paired t-test: before and after" in found.summary()


def test_missing_numbers_are_left_out_and_said() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, None, 3, 4, 6, 9], "b": [2.0, 2, None, 7, 7, 8], "g": list("xxxyyy")}
    )
    table = es.Schema.infer(frame, numbers="keep", digits=0, missing="bin").table(frame)
    found = opened(table, es.TTest("a", by="g"))
    wanted = st.ttest_ind([1, 3], [4, 6, 9], equal_var=False)
    assert (found.statistic, found.df) == (
        pytest.approx(wanted.statistic),
        pytest.approx(wanted.df),
    )
    assert found.notes == ("1 row was left out because a is missing",)
    pairs = opened(table, es.TTest("a", paired="b"))
    assert pairs.statistic == pytest.approx(st.ttest_rel([1, 4, 6, 9], [2, 7, 7, 8]).statistic)
    assert pairs.notes == ("2 rows were left out because a or b is missing",)
    alone = opened(table, es.TTest("b"))
    assert (alone.statistic, alone.df) == (
        pytest.approx(st.ttest_1samp([2, 2, 7, 7, 8], 0).statistic),
        4,
    )
    assert opened(table, es.Describe(["a"], by="g")).table["missing"].tolist() == [1, 0]


def test_a_target_that_is_a_number_is_compared() -> None:
    frame = pd.DataFrame({"g": list("xxxyyy"), "y": [1, 2, 3, 4, 6, 9]})
    table = es.Schema.infer(frame, target="y", numbers="keep", digits=0).table(frame)
    assert opened(table, es.TTest("y", by="g")).statistic == pytest.approx(
        st.ttest_ind([1, 2, 3], [4, 6, 9], equal_var=False).statistic
    )
    assert opened(table, es.Describe(["y"])).table.loc["y", "mean"] == pytest.approx(25 / 6)
    with pytest.raises(es.SchemaError, check=error("kept-as-number")):
        table.ask(es.ChiSquare("g", "y"))


def test_a_summary_has_the_test_before_the_groups(anes: es.Table) -> None:
    shown = opened(anes, es.TTest("v0", by="class")).summary()
    assert shown.startswith("Welch two sample t-test: age by vote\n\nconfidence   0.95\n")
    assert "alternative  two-sided" in shown
    assert shown.index("difference in means") < shown.index("clinton")


# -- analysis of variance
# ------------------------------------------------------------------------------------------------


def test_one_way_is_that_of_scipy_and_statsmodels(anes: es.Table) -> None:
    found, frame = opened(anes, es.Anova("v0", ["v4"])), rows(anes)
    groups = [part["age"] for _, part in frame.groupby("educ")]
    wanted = st.f_oneway(*groups)
    assert (found.statistic, found.pvalue) == (
        pytest.approx(wanted.statistic, rel=1e-11),
        pytest.approx(wanted.pvalue, rel=1e-8),
    )
    table = sm.stats.anova_lm(ols("age ~ educ", frame).fit())
    np.testing.assert_allclose(found.table["sum_sq"], table["sum_sq"], rtol=1e-9)
    assert found.tables["eta_squared"].loc["educ", "eta_squared"] == pytest.approx(
        table["sum_sq"].iloc[0] / table["sum_sq"].sum(), rel=1e-9
    )


def test_welchs_analysis_is_that_of_statsmodels(anes: es.Table) -> None:
    found, frame = opened(anes, es.Anova("v0", ["v4"], equal_var=False)), rows(anes)
    wanted = anova_oneway(
        [part["age"].to_numpy() for _, part in frame.groupby("educ")], use_var="unequal"
    )
    assert found.statistic == pytest.approx(wanted.statistic, rel=1e-10)
    assert (found.df, found.df_resid) == pytest.approx((wanted.df_num, wanted.df_denom), rel=1e-10)
    assert found.pvalue == pytest.approx(wanted.pvalue, rel=1e-8)


@pytest.mark.parametrize("interaction", [True, False])
@pytest.mark.parametrize("typ", [1, 2, 3])
def test_two_way_unbalanced_is_that_of_statsmodels(
    anes: es.Table, typ: int, interaction: bool
) -> None:
    found, frame = (
        opened(anes, es.Anova("v0", ["v3", "class"], interaction=interaction, typ=typ)),
        rows(anes),
    )
    sign = "*" if interaction else "+"
    wanted = sm.stats.anova_lm(ols(f"age ~ C(news, Sum) {sign} C(vote, Sum)", frame).fit(), typ=typ)
    wanted = wanted.drop(index="Intercept", errors="ignore")
    np.testing.assert_allclose(found.table["sum_sq"], wanted["sum_sq"], rtol=1e-7)
    np.testing.assert_allclose(found.table["df"], wanted["df"], rtol=1e-12)
    np.testing.assert_allclose(found.table["statistic"].dropna(), wanted["F"].dropna(), rtol=1e-7)
    np.testing.assert_allclose(found.table["pvalue"].dropna(), wanted["PR(>F)"].dropna(), rtol=1e-6)


@pytest.mark.skipif(not (DATA / "heart.csv.gz").is_file(), reason="needs ENCRYPTEDSTATS_DATA")
def test_a_table_of_ours_is_analysed_as_statsmodels_does() -> None:
    frame = pd.read_csv(DATA / "heart.csv.gz").dropna().iloc[:, [0, 1, 2, 3]]
    frame.columns = ["age", "sex", "pain", "pressure"]
    table = table_of(
        frame,
        numbers={"pressure": 0, "age": 0},
        kinds={"sex": "categorical", "pain": "categorical"},
    )
    found = opened(table, es.Anova("v3", ["v2", "v1"]))
    wanted = sm.stats.anova_lm(ols("pressure ~ C(pain) * C(sex)", frame).fit(), typ=2)
    np.testing.assert_allclose(found.table["sum_sq"], wanted["sum_sq"], rtol=1e-7)
    np.testing.assert_allclose(found.table["pvalue"].dropna(), wanted["PR(>F)"].dropna(), rtol=1e-6)


# -- rows that nothing can be computed from
# ------------------------------------------------------------------------------------


def small(w: list[float], g: list[str] | None = None, h: list[str] | None = None) -> es.Table:
    columns = {"w": w, **({} if g is None else {"g": g}), **({} if h is None else {"h": h})}
    return table_of(pd.DataFrame(columns), numbers={"w": 0})


def test_too_few_rows_and_constant_data_are_refused_as_r_does() -> None:
    with pytest.raises(es.DataError, check=error("too-few-rows", "1")):
        opened(small([3, 4])[0:1], es.TTest("v0"))
    with pytest.raises(es.DataError, check=error("constant-data")):
        opened(small([3, 3, 3, 4])[0:3], es.TTest("v0"))
    with pytest.raises(es.DataError, check=error("constant-data")):
        opened(small([3, 3, 4, 4], list("aabb")), es.TTest("v0", by="v1"))
    with pytest.raises(es.DataError, check=error("too-few-rows", "'b'", "'g'", "1")):
        opened(small([3, 5, 4], list("aab")), es.TTest("v0", by="v1"))
    with pytest.raises(es.DataError, check=error("too-few-rows", "'b'")):
        opened(small([3, 5, 4], list("aab")), es.Anova("v0", ["v1"], equal_var=False))


def test_an_empty_group_is_dropped_and_said() -> None:
    whole = small([1, 2, 3, 4, 5, 9], list("aabbcc"))
    found = opened(whole[0:4], es.Anova("v0", "v1"))
    assert (found.df, found.df_resid) == (1, 2)
    assert "groups of g without rows were dropped: c" in found.notes
    with pytest.raises(es.DataError, check=error("too-few-groups", "'g'", "1", "3")):
        opened(whole[0:2], es.Anova("v0", "v1"))


def test_groups_without_spread_and_as_many_as_rows() -> None:
    perfect = opened(small([3, 3, 4, 4], list("aabb")), es.Anova("v0", "v1"))
    assert perfect.statistic == np.inf
    assert "the groups have no spread: an essentially perfect fit" in perfect.notes
    single = opened(small([3, 4], list("ab")), es.Anova("v0", "v1"))
    assert np.isnan(single.statistic)
    assert np.isnan(single.pvalue)
    assert "there are as many groups as rows: nothing is left to measure effects by" in single.notes


def test_type_three_needs_rows_in_every_pair_of_groups() -> None:
    table = small([1, 2, 3, 4, 5, 7], list("aabbaa"), ["x", "x", "x", "x", "y", "y"])
    with pytest.raises(es.DataError, check=error("empty-cells", "typ=2", "interaction=False")):
        opened(table, es.Anova("v0", ["v1", "v2"], typ=3))
    found = opened(table, es.Anova("v0", ["v1", "v2"]))
    assert found.table.loc["g:h", "df"] == 0
    assert np.isnan(found.table.loc["g:h", "statistic"])


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (es.TTest("v1"), "keep-numbers"),
        (
            es.TTest("v0", by="v1"),
            "not-two-groups",
        ),
        (es.TTest("v0", by="v1", groups=["bin0", "bin0"]), "not-two-different-groups"),
        (
            es.TTest("v0", by="v1", groups=["bin0", "bin7"]),
            "unknown-level",
        ),
        (es.TTest("v0", by="v1", paired="v0"), "by-with-paired"),
        (es.TTest("v0", paired="v0"), "same-variable-twice"),
        (es.TTest("v0", groups=["bin0", "bin1"]), "groups-without-by"),
        (es.Anova("v0", []), "invalid-factors"),
        (es.Anova("v0", ["v1", "v1"]), "invalid-factors"),
        (es.Anova("v0", ["v1"], typ=4), "unknown-sum-type"),
        (es.Anova("v0", ["v1", "v2"], equal_var=False), "welch-two-factors"),
        (es.Anova("v1", ["v0"]), "keep-numbers"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_computed(
    question: es.Question, complaint: str
) -> None:
    table = small([1, 2, 3, 5, 6, 7], list("aabbcc"), list("xyxyxy"))
    with pytest.raises(es.EncryptedStatsError, check=error(complaint)):
        table.ask(question)
    with pytest.raises(es.EncryptedStatsError, check=error(complaint)):
        es.plan(question, table)


def test_totals_that_cannot_be_are_refused() -> None:
    question, table = es.TTest("v0", by="v1"), small([1, 2, 3, 5], list("aabb"))
    totals = table.totals(question)
    totals[-1] = 1
    with pytest.raises(ValueError, match="a variance would be negative"):
        question.interpret(totals, table.schema, len(table))


@settings(max_examples=examples(8))  # each encrypts a table
@given(
    some.lists(
        some.tuples(some.integers(-50, 50), some.sampled_from("ab"), some.sampled_from("xy")),
        min_size=4,
        max_size=30,
    )
)
def test_any_table_encrypted_is_as_in_the_clear(given_rows: list[tuple[int, str, str]]) -> None:
    known = pd.DataFrame({"w": [-50, 50, 0, 0], "g": list("abab"), "h": list("xxyy")})
    schema = es.Schema.infer(known).with_kind("w", "number", digits=0)
    table = schema.table(pd.DataFrame(given_rows, columns=["w", "g", "h"]))
    for question in (es.TTest("v0", by="v1"), es.Anova("v0", ["v1", "v2"])):
        try:
            table.ask(question)
        except es.DataError:
            continue
        opened(table, question)
