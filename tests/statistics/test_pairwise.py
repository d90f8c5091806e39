"""Pairwise tests, equal variances, McNemar, partial correlations, Cronbach's alpha and
likelihood-ratio tests, compared with R 4.2.2, scipy and statsmodels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
from asked_samples import opened, table_of
from statsmodels.stats.contingency_tables import SquareTable
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests
from test_values_of_r import make_rows
from test_values_of_r import table_of as table_of_r

import encryptedstats as es
from encryptedstats.statistics.pairwise import adjust_pvalues
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@pytest.fixture(scope="module")
def rows() -> es.Table:
    return table_of_r(make_rows())


def close(found: Any, wanted: list[float], rel: float = 1e-9) -> None:
    assert list(np.ravel(found)) == pytest.approx(wanted, rel=rel, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0.121413314003, 0.121413314003, 0.888743879758]),
        ({"adjust": "bh"}, [0.0728843190293, 0.0728843190293, 0.8887438797577]),
        (
            {"adjust": "bonferroni", "equal_var": False},
            [0.2207373705340, 0.0999804935361, 1.0],
        ),
    ],
)
def test_pairs_of_groups_are_compared_as_in_r(
    rows: es.Table, options: dict[str, Any], wanted: list[float]
) -> None:
    """pairwise.t.test(d$y, d$g) with p.adjust.method and pool.sd."""
    found = opened(rows, es.PairwiseTTest("y", "g", **options))
    assert list(found.tidy().index) == ["b - a", "c - a", "c - b"]
    close(found.tidy()["pvalue"], wanted)


def test_tukeys_differences_are_those_of_r(rows: es.Table) -> None:
    """TukeyHSD(aov(y ~ g, d))."""
    found = rows.ask(es.PairwiseTTest("y", "g", adjust="tukey")).tidy()
    wanted = [
        -4.6363636363636, -10.2016485785278, 0.9289213058006, 0.1161645853005,
        -4.9696969696970, -10.6946443701605, 0.7552504307665, 0.0981556714706,
        -0.3333333333333, -6.1856746392798, 5.5190079726131, 0.9890698134905,
    ]  # fmt: skip
    close(found[["estimate", "low", "high", "pvalue"]].to_numpy(), wanted, rel=1e-6)


@pytest.mark.parametrize("method", ["holm", "bh", "bonferroni"])
def test_adjusted_pvalues_are_those_of_statsmodels(method: str) -> None:
    values = np.random.default_rng(1).uniform(0, 0.2, 9)
    name = {"bh": "fdr_bh"}.get(method, method)
    np.testing.assert_allclose(
        adjust_pvalues(list(values), method), multipletests(values, method=name)[1]
    )
    with_gap = adjust_pvalues([*values, np.nan], method)
    assert np.isnan(with_gap[-1])
    assert with_gap[:-1] == adjust_pvalues(list(values), method)


def test_variances_are_compared_as_in_r(rows: es.Table) -> None:
    """bartlett.test(y ~ g, d); var.test(y ~ h, d)."""
    found = opened(rows, es.VarianceTest("y", "g"))
    close([found.statistic, found.df, found.pvalue], [1.608545017589, 2, 0.447413297432])
    found = opened(rows, es.VarianceTest("y", "h", method="f"))
    close(
        [found.statistic, found.pvalue, found.low, found.high],
        [1.047393697388, 0.942648036829, 0.343102549277, 3.063526455549],
    )
    assert found.estimate == found.statistic
    groups = [part.astype(float) for _, part in make_rows().groupby("g")["y"]]
    close(rows.ask(es.VarianceTest("y", "g")).pvalue, [st.bartlett(*groups).pvalue])


def ratings(counts: list[list[int]]) -> es.Table:
    pairs = [(i, j) for i, line in enumerate(counts) for j, n in enumerate(line) for _ in range(n)]
    frame = pd.DataFrame(pairs, columns=["before", "after"])
    return table_of(frame, kinds=dict.fromkeys(frame, "categorical"))


def test_mcnemar_is_that_of_r_and_statsmodels() -> None:
    """R: mcnemar.test(matrix(c(794, 86, 150, 570), 2)) is 16.818, p = 4.115e-05."""
    counts = [[79, 15], [8, 57]]
    table = ratings(counts)
    for exact, correction in ((False, True), (False, False), (True, True)):
        found = opened(table, es.McNemar("v0", "v1", exact=exact, correction=correction))
        wanted = statsmodels_mcnemar(np.array(counts), exact=exact, correction=correction)
        close([found.statistic, found.pvalue], [wanted.statistic, wanted.pvalue])
        assert found.estimate == 15 / 8
        assert found.low < found.estimate < found.high
    large = ratings([[794, 150], [86, 570]]).ask(es.McNemar("before", "after"))
    assert large.statistic == pytest.approx(16.818, abs=5e-4)
    assert large.pvalue == pytest.approx(4.115e-05, rel=1e-3)
    three = [[10, 4, 3], [7, 12, 1], [2, 5, 9]]
    found = opened(ratings(three), es.McNemar("v0", "v1"))
    wanted = SquareTable(np.array(three), shift_zeros=False).symmetry()
    close([found.statistic, found.df, found.pvalue], [wanted.statistic, wanted.df, wanted.pvalue])


def test_bowkers_test_leaves_pairs_without_rows_out(rows: es.Table) -> None:
    """mcnemar.test(table(d$g, d$again))."""
    found = rows.ask(es.McNemar("g", "again"))
    close([found.statistic, found.df, found.pvalue], [2.452380952381, 3, 0.483958410007])
    agreed = ratings([[5, 0], [0, 5]])
    with pytest.raises(es.DataError, check=error("no-difference")):
        agreed.ask(es.McNemar("before", "after"))


def test_partial_correlations_are_those_of_residuals(rows: es.Table) -> None:
    """cor(resid(lm(x ~ z)), resid(lm(y ~ z))), and its test on n - 3 degrees of freedom."""
    found = opened(rows, es.PartialCorrelation(["x", "y"], covariates=["z"]))
    [pair] = found.tidy().to_dict("records")
    close(
        [pair[name] for name in ("estimate", "statistic", "df", "pvalue", "low", "high")],
        [0.3163861759626, 1.7330149403073, 27, 0.0945018748928, -0.0566935325321, 0.6119336604711],
    )
    twice = rows.ask(es.PartialCorrelation(["x", "y"], covariates=["z", "n"]))
    frame = make_rows()
    basis = np.column_stack([np.ones(30), frame[["z", "n"]]])
    left = [
        frame[name] - basis @ np.linalg.lstsq(basis, frame[name], rcond=None)[0] for name in "xy"
    ]
    close(twice.correlation.loc["x", "y"], [np.corrcoef(*left)[0, 1]])
    assert twice.pairs["df"].tolist() == [26]


def test_cronbachs_alpha_is_that_of_its_definition(rows: es.Table) -> None:
    """k / (k - 1) (1 - tr(S) / sum(S)), and Feldt's interval, in R."""
    found = opened(rows, es.CronbachAlpha(["x", "z", "y"]))
    close(
        [found.estimate, found.low, found.high],
        [0.4396654019132, -0.0272688262204, 0.7146934200315],
    )
    two = rows.ask(es.CronbachAlpha(["x", "z"])).estimate
    assert found.table.loc["y", "alpha without it"] == pytest.approx(two, rel=1e-12)


def test_likelihood_ratio_tests_are_those_of_r(rows: es.Table) -> None:
    """anova(glm(died ~ g + h, binomial, d), test = "LRT"); drop1 of the same."""
    model = es.GLM("died ~ g + h").fit(rows)
    first = model.anova().table
    assert list(first.index) == ["g", "h"]
    close(first["statistic"], [4.8318918122722, 0.0282914294939], rel=1e-7)
    close(first["pvalue"], [0.0892828457751, 0.8664254978111], rel=1e-7)
    last = model.anova(typ=2).table
    close(last["statistic"], [4.7429603714621, 0.0282914294939], rel=1e-7)
    assert last["df"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (
            es.PairwiseTTest("y", "g", adjust="tukey", equal_var=False),
            "tukey-needs-equal-variances",
        ),
        (es.VarianceTest("y", "g", method="f"), "not-two-groups"),
        (es.McNemar("g", "h"), "group-counts-differ"),
        (es.McNemar("g", "again", exact=True), "not-two-by-two"),
        (es.PartialCorrelation(["x", "y"], covariates=["y"]), "same-variable-twice"),
        (es.CronbachAlpha(["x"]), "too-few-variables"),
    ],
)
def test_what_cannot_be_asked_is_refused(rows: es.Table, question: es.Question, code: str) -> None:
    with pytest.raises(ValueError, check=error(code)):
        rows.ask(question)
