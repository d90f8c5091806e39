"""Genome-wide scans: every SNP as scipy and statsmodels test it alone, from encrypted genotypes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import statsmodels.api as sm
from asked_samples import opened, table_of

import encryptedstats as es
from error_codes import error

N, SNPS = 400, 12


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    genotypes = rng.binomial(2, rng.uniform(0.1, 0.5, SNPS), (N, SNPS))
    sick = rng.random(N) < 0.3 + 0.2 * (genotypes[:, 3] > 0)
    return pd.DataFrame(genotypes, columns=[f"rs{j}" for j in range(SNPS)]).assign(
        sick=sick.astype(int)
    )


def as_numbers(frame: pd.DataFrame) -> es.Table:
    return table_of(frame, "sick", dict.fromkeys([name for name in frame if name != "sick"], 0))


def as_bins(frame: pd.DataFrame, **options: str) -> es.Table:
    return table_of(
        frame,
        "sick",
        kinds=dict.fromkeys([name for name in frame if name != "sick"], "ordinal"),
        **options,
    )


def alone(genotypes: pd.Series, sick: pd.Series) -> dict[str, float]:
    """One SNP, by scipy."""
    known = genotypes.notna()
    g, y = genotypes[known].to_numpy(dtype=float), sick[known].to_numpy()
    alleles = np.array([[g[y == c].sum(), 2 * (y == c).sum() - g[y == c].sum()] for c in (1, 0)])
    allelic = st.chi2_contingency(alleles, correction=False)
    table = sm.stats.Table2x2(alleles)
    share = g.mean() / 2
    expected = len(g) * np.array([(1 - share) ** 2, 2 * share * (1 - share), share**2])
    hwe = st.chisquare([(g == k).sum() for k in range(3)], expected, ddof=1)
    return {
        "n": len(g),
        "chi2_allelic": allelic.statistic,
        "pvalue_allelic": allelic.pvalue,
        "chi2_trend": len(g) * np.corrcoef(g, y)[0, 1] ** 2,
        "odds_ratio": table.oddsratio,
        "low": table.oddsratio_confint()[0],
        "high": table.oddsratio_confint()[1],
        "freq_cases": g[y == 1].mean() / 2,
        "pvalue_hwe": hwe.pvalue,
    }


def check(found: pd.DataFrame, frame: pd.DataFrame) -> None:
    for name in frame.columns[:-1]:
        for column, wanted in alone(frame[name], frame["sick"]).items():
            assert found.loc[name, column] == pytest.approx(wanted, rel=1e-9), (name, column)


def test_every_snp_is_tested_as_scipy_does(people: pd.DataFrame) -> None:
    found = opened(as_numbers(people), es.GenomeScan())
    check(found.table, people)
    assert found.top(1).index[0] == "rs3"
    assert found.inflation == pytest.approx(found.table["chi2_trend"].median() / st.chi2.median(1))
    assert "cases are sick = 1" in found.summary()


def test_bins_give_what_numbers_give_with_no_product_for_squares(people: pd.DataFrame) -> None:
    numbers, bins = as_numbers(people), as_bins(people)
    pd.testing.assert_frame_equal(
        opened(bins, es.GenomeScan()).table, opened(numbers, es.GenomeScan()).table
    )
    assert (
        es.plan(es.GenomeScan(), bins).products == SNPS < es.plan(es.GenomeScan(), numbers).products
    )


def test_missing_genotypes_are_left_out_snp_by_snp(people: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    gaps = people.iloc[:, :-1].mask(rng.random((N, SNPS)) < 0.05).assign(sick=people["sick"])
    found = opened(as_bins(gaps, missing="bin"), es.GenomeScan(test="allelic"))
    check(found.table, gaps)
    assert f"SNP by SNP: {int(gaps.isna().sum().sum()):,} in all" in found.summary()


def test_missing_numbers_are_left_out_snp_by_snp(people: pd.DataFrame) -> None:
    rng = np.random.default_rng(1)
    gaps = people.iloc[:, :-1].mask(rng.random((N, SNPS)) < 0.05).assign(sick=people["sick"])
    table = es.Schema.infer(gaps, target="sick", numbers="keep", digits=0, missing="bin").table(
        gaps
    )
    check(opened(table, es.GenomeScan()).table, gaps)


def test_another_variable_and_another_class_can_be_the_outcome(people: pd.DataFrame) -> None:
    table = as_numbers(people)
    other = opened(table, es.GenomeScan(["rs3", "rs1"], event=0))
    assert list(other.table.index) == ["rs3", "rs1"]
    whole = table.ask(es.GenomeScan()).table
    assert other.table.loc["rs3", "odds_ratio"] == pytest.approx(1 / whole.loc["rs3", "odds_ratio"])
    named = table_of(
        people.assign(sick=people["sick"].map({0: "no", 1: "yes"})), numbers={"rs1": 0}
    )
    found = opened(named, es.GenomeScan(["rs1"], target="sick"))
    assert found.table.loc["rs1", "chi2_trend"] == pytest.approx(whole.loc["rs1", "chi2_trend"])


@pytest.mark.filterwarnings("ignore:column .* is constant")
def test_a_snp_of_one_genotype_is_not_tested(people: pd.DataFrame) -> None:
    found = opened(as_numbers(people.assign(rs0=0, rs1=2)), es.GenomeScan())
    assert (
        found.table.loc[
            ["rs0", "rs1"], ["chi2_trend", "pvalue_trend", "chi2_allelic", "pvalue_hwe"]
        ]
        .isna()
        .all(axis=None)
    )
    assert "2 SNPs have one genotype only and were not tested" in found.notes
    assert np.isfinite(found.inflation)


def test_one_class_and_impossible_totals_are_refused(people: pd.DataFrame) -> None:
    table, question = as_numbers(people), es.GenomeScan()
    with pytest.raises(es.DataError, check=error("one-class")):
        opened(table.take(np.flatnonzero(people["sick"] == 1)), question)
    totals = table.totals(question)
    totals[-1] = 10**6
    with pytest.raises(ValueError, match="more alleles than rows can have"):
        question.interpret(totals, table.schema, len(table))


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (es.GenomeScan(["v1"]), "not-a-genotype"),
        (es.GenomeScan(["v9"]), "unknown-variable"),
        (es.GenomeScan(test="both"), "unknown-test"),
        (es.GenomeScan(["v0"], target="v2"), "event-not-named"),
        (es.GenomeScan(["v2"], target="v2", event="bin0"), "outcome-is-genotype"),
    ],
)
def test_what_cannot_be_asked_is_refused(question: es.Question, complaint: str) -> None:
    frame = pd.DataFrame(
        {
            "rs": [0, 1, 2, 1],
            "age": [40, 50, 60, 70],
            "where": ["a", "b", "c", "a"],
            "y": [0, 1, 1, 0],
        }
    )
    table = table_of(frame, "y", {"rs": 0, "age": 0})
    with pytest.raises(es.EncryptedStatsError, check=error(complaint)):
        table.ask(question)


def test_categories_are_genotypes_only_when_they_are_named() -> None:
    frame = pd.DataFrame({"rs": [0, 1, 2, 1], "where": ["a", "b", "c", "a"], "y": [0, 1, 1, 0]})
    table = table_of(frame, "y", {"rs": 0})
    assert list(table.ask(es.GenomeScan()).table.index) == ["rs"]
    assert list(table.ask(es.GenomeScan(["v1"])).table.index) == ["where"]


def test_keys_for_a_scan_are_real_and_small(people: pd.DataFrame) -> None:
    """With the parameters of the plan, 128 bits."""
    table = as_numbers(people)
    plan = es.plan(es.GenomeScan(), table)
    owner = es.Owner(plan)
    assert (plan.depth, plan.parameters.ring_degree, plan.security) == (1, 4096, 128)
    assert owner.open(owner.encrypt(table).ask(es.GenomeScan())) == table.ask(es.GenomeScan())
