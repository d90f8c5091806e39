"""Tables of counts: what is read from encrypted ones equals scipy and statsmodels on
the same rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import statsmodels.api as sm
from asked_samples import opened, table_of
from hypothesis import given, settings
from hypothesis import strategies as some
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import cohen_kappa_score, roc_auc_score
from statsmodels.stats.contingency_tables import StratifiedTable, Table2x2
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.proportion import confint_proportions_2indep

import encryptedstats as es
from effort import examples
from encryptedstats.statistics._fisher import conditional_odds, larger_pvalue, two_by_two_pvalue
from encryptedstats.statistics.contingency import _breslow_day, _pool
from error_codes import error


@pytest.fixture(scope="module")
def affairs() -> es.Table:
    """statsmodels' survey of marriages: ordered and unordered groups."""
    frame = sm.datasets.fair.load_pandas().data.iloc[::10]
    made = pd.DataFrame(
        {
            "rate": frame["rate_marriage"].astype(int),
            "children": np.where(frame["children"] > 0, "some", "none"),
            "religious": frame["religious"].astype(int),
            "age": frame["age"],
            "affair": np.where(frame["affairs"] > 0, "yes", "no"),
        }
    )
    kinds = {"rate": "ordinal", "religious": "ordinal"}
    return table_of(made, "affair", kinds=kinds)


def crosstab(table: es.Table, *names: str) -> np.ndarray:
    frame = table.to_pandas()
    return pd.crosstab(frame[names[0]], frame[names[1]]).to_numpy()


def ids(table: es.Table, *names: str) -> list[str]:
    return [
        "class" if name == table.schema.target else f"v{table.schema.index(name)}" for name in names
    ]


@pytest.mark.parametrize(
    "names", [("rate", "religious"), ("children", "affair"), ("religious", "affair")]
)
@pytest.mark.parametrize("correction", [True, False])
def test_chi_square_is_scipys(affairs: es.Table, names: tuple[str, str], correction: bool) -> None:
    found = opened(affairs, es.ChiSquare(*ids(affairs, *names), correction=correction))
    counts = crosstab(affairs, *names)
    wanted = st.chi2_contingency(counts, correction=correction)
    assert found.statistic == pytest.approx(wanted.statistic, rel=1e-12)
    assert (found.df, found.pvalue) == (wanted.dof, pytest.approx(wanted.pvalue, rel=1e-10))
    np.testing.assert_allclose(found.tables["expected"], wanted.expected_freq, rtol=1e-12)
    residuals = sm.stats.Table(counts, shift_zeros=False)
    np.testing.assert_allclose(
        found.tables["residuals"], residuals.resid_pearson, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        found.tables["standardised residuals"], residuals.standardized_resids, rtol=1e-9, atol=1e-9
    )


def test_chi_square_of_one_variable_compares_with_shares(affairs: es.Table) -> None:
    counts = affairs.to_pandas()["children"].value_counts(sort=False).to_numpy()
    assert opened(affairs, es.ChiSquare(*ids(affairs, "children"))).statistic == pytest.approx(
        st.chisquare(counts).statistic
    )
    found = opened(affairs, es.ChiSquare(*ids(affairs, "children"), p=[0.25, 0.75]))
    wanted = st.chisquare(counts, counts.sum() * np.array([0.25, 0.75]))
    assert (found.statistic, found.pvalue) == (
        pytest.approx(wanted.statistic),
        pytest.approx(wanted.pvalue),
    )


def test_fishers_test_is_scipys(affairs: es.Table) -> None:
    counts = crosstab(affairs, "children", "affair")
    for side in ("two-sided", "less", "greater"):
        found = opened(
            affairs, es.FisherExact(*ids(affairs, "children", "affair"), alternative=side)
        )
        wanted = st.fisher_exact(counts, side)
        assert (found.statistic, found.pvalue) == (
            pytest.approx(wanted.statistic),
            pytest.approx(wanted.pvalue),
        )
        exact = st.contingency.odds_ratio(counts)
        assert found.estimate == pytest.approx(exact.statistic)
        assert (found.low, found.high) == pytest.approx(
            tuple(exact.confidence_interval(0.95, side))
        )


@pytest.mark.parametrize(
    ("counts", "pvalue"),
    [
        ([[1, 2, 1, 0], [3, 3, 6, 1], [10, 10, 14, 9], [6, 7, 12, 11]], 0.782684938966546),
        ([[3, 1, 2], [2, 4, 1]], 0.475524475524475),
        ([[5, 0, 3], [1, 6, 2], [2, 2, 7]], 0.0115889672728258),
        ([[12, 5, 9, 3, 1], [4, 8, 2, 7, 6], [3, 3, 8, 5, 9]], 0.00359009225004907),
        ([[20, 15, 30], [10, 25, 12]], 0.00477646190175992),
        ([[200, 150, 300], [190, 170, 280]], 0.344456447096715),
        ([[2, 3, 1, 0], [1, 1, 4, 2], [0, 2, 2, 5], [3, 0, 1, 1], [1, 2, 0, 3]], 0.104772508743194),
        ([[40, 30, 20], [35, 28, 30], [22, 31, 40]], 0.0146564662233516),
    ],
)
def test_fishers_test_of_larger_tables_is_rs(counts: list[list[int]], pvalue: float) -> None:
    """R: fisher.test(matrix(c(...), nrow, byrow = TRUE), workspace = 2e7)$p.value."""
    found, exact = larger_pvalue(np.array(counts))
    assert exact
    assert found == pytest.approx(pvalue, rel=1e-9)
    assert larger_pvalue(np.array(counts).T) == (pytest.approx(found, rel=1e-12), True)


@settings(max_examples=examples(30))
@given(some.lists(some.lists(some.integers(0, 4), min_size=3, max_size=3), min_size=2, max_size=4))
def test_fishers_test_of_larger_tables_counts_every_table(counts: list[list[int]]) -> None:
    table = np.array(counts)
    rows, columns = table.sum(axis=1).tolist(), table.sum(axis=0).tolist()

    def weights(rows: list[int], left: list[int]) -> Iterator[Fraction]:
        if not rows:
            yield Fraction(1)
            return
        for line in itertools.product(*(range(x + 1) for x in left)):
            if sum(line) == rows[0]:
                for rest in weights(rows[1:], [x - y for x, y in zip(left, line, strict=True)]):
                    yield rest / math.prod(map(math.factorial, line))

    every = list(weights(rows, columns))
    own = Fraction(1, math.prod(math.factorial(x) for x in table.flat))
    wanted = sum(x for x in every if x <= own) / sum(every)
    assert larger_pvalue(table) == (pytest.approx(float(wanted), rel=1e-12), True)


def test_fishers_test_of_a_table_that_is_too_large_is_simulated_alike_every_time() -> None:
    counts = np.array([[30_000, 20_000, 10_000], [20_100, 13_300, 6_600]])
    rows = np.repeat(np.argwhere(counts >= 0), counts.flat, axis=0)
    table = table_of(
        pd.DataFrame(rows, columns=["a", "b"]), kinds={"a": "categorical", "b": "categorical"}
    )
    found = table.ask(es.FisherExact("a", "b"))
    assert found == table.ask(es.FisherExact("a", "b"))
    assert any("20,000 random tables" in note for note in found.notes)
    # With so many rows, the chi-square distribution is as good: R's chisq.test.
    assert found.pvalue == pytest.approx(st.chi2_contingency(counts).pvalue, abs=0.01)


def test_simulated_pvalues_are_never_0() -> None:
    """As R's simulated ones: the table itself is among the 20,001."""
    extreme = np.array([[30_000, 0, 10_000], [0, 20_000, 10_000]])
    assert larger_pvalue(extreme) == (1 / 20_001, False)


@pytest.mark.parametrize(
    ("counts", "pvalues"),
    [
        ([[3, 1], [1, 3]], (0.485714285714286, 0.985714285714286, 0.242857142857143)),
        ([[0, 5], [4, 6]], (0.230769230769231, 0.153846153846154, 1)),
        (
            [[25_100, 24_900], [24_950, 25_050]],
            (0.346008806385954, 0.830213240274863, 0.173004403192977),
        ),
        ([[30_000, 20_000], [26_000, 24_000]], (2.50672929448391e-143, 1, 1.25336464724197e-143)),
    ],
)
def test_fishers_test_of_two_by_two_is_rs(
    counts: list[list[int]], pvalues: tuple[float, ...]
) -> None:
    """R: fisher.test(matrix(c(...), 2, byrow = TRUE), alternative = a)$p.value."""
    for side, wanted in zip(("two-sided", "less", "greater"), pvalues, strict=True):
        assert two_by_two_pvalue(np.array(counts), side) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    "counts", [[[3, 1], [1, 3]], [[0, 5], [4, 6]], [[5, 0], [4, 6]], [[40, 25], [30, 44]]]
)
@pytest.mark.parametrize("side", ["two-sided", "less", "greater"])
def test_the_conditional_odds_ratio_is_scipys(counts: list[list[int]], side: str) -> None:
    wanted = st.contingency.odds_ratio(counts)
    estimate, interval = conditional_odds(np.array(counts), side, 0.9)
    assert estimate == pytest.approx(wanted.statistic)
    assert interval == pytest.approx(tuple(wanted.confidence_interval(0.9, side)))


def test_yates_correction_stops_at_the_expected_counts() -> None:
    """R: chisq.test(matrix(c(5, 5, 6, 7), 2, byrow = TRUE)) gives X-squared = 0: |O -
    E| is 0.217.
    """
    table = small(a=["x"] * 10 + ["y"] * 13, b=list("pppppqqqqq") + list("ppppppqqqqqqq"))
    found = opened(table, es.ChiSquare("a", "b"))
    assert (found.statistic, found.pvalue) == (0, 1)
    assert opened(table, es.ChiSquare("a", "b", correction=False)).statistic > 0.03


def test_mantel_haenszel_leaves_out_a_correction_that_is_too_large() -> None:
    """R: mantelhaen.test(array(c(3, 2, 4, 3, 5, 4, 6, 5), c(2, 2, 2))), where |sum(O - E)| < 0.5.

    And mantelhaen.test(array(c(8, 2, 4, 7, 5, 4, 2, 9), c(2, 2, 2)))$statistic, where it is not.
    """
    near = [np.array([[3, 4], [2, 3]]), np.array([[5, 6], [4, 5]])]
    assert _pool(near, correction=True)["chi2"] == pytest.approx(0.00861759055363638, rel=1e-12)
    assert _pool(near, correction=False)["chi2"] == pytest.approx(0.00861759055363638, rel=1e-12)
    far = [np.array([[8, 4], [2, 7]]), np.array([[5, 2], [4, 9]])]
    assert _pool(far, correction=True)["chi2"] == pytest.approx(5.21985682488884, rel=1e-12)
    assert _pool(far, correction=False)["chi2"] > 5.3


def test_strata_with_an_empty_margin_are_no_degrees_of_freedom_of_breslow_and_day() -> None:
    full = [np.array([[8, 4], [2, 7]]), np.array([[5, 2], [4, 9]]), np.array([[3, 6], [5, 4]])]
    odds = _pool(full, correction=False)["odds"]
    wanted = StratifiedTable(full).test_equal_odds(adjust=True).statistic
    for empty in ([[5, 0], [3, 0]], [[0, 5], [0, 3]], [[0, 0], [3, 4]], [[2, 4], [0, 0]]):
        assert _breslow_day([*full, np.array(empty)], odds) == (pytest.approx(wanted), 2)
    assert _breslow_day([full[0], np.array([[5, 0], [3, 0]])], odds)[1] == 0


def test_odds_without_events_are_printed_as_not_available() -> None:
    frame = pd.DataFrame({"a": ["x", "y"] * 5, "b": ["no"] * 10})
    schema = es.Schema.infer(pd.DataFrame({"a": ["x", "y"], "b": ["no", "yes"]}))
    found = opened(schema.table(frame), es.OddsRatio("a", "b"))
    assert np.isnan(found.estimate)
    assert found.tidy().loc["risk difference [y]", "estimate"] == 0
    assert "Empty" not in found.summary()
    [line] = [one for one in found.summary().splitlines() if one.startswith("risk ratio [y]")]
    assert line.split()[3:] == ["NA"] * 3


def test_strata_are_those_of_statsmodels(affairs: es.Table) -> None:
    found = opened(affairs, es.MantelHaenszel(*ids(affairs, "children", "affair", "religious")))
    frame = affairs.to_pandas()
    tables = [
        pd.crosstab(part["children"], part["affair"]).to_numpy()[::-1, ::-1]
        for _, part in frame.groupby("religious", observed=True)
    ]
    wanted = StratifiedTable(tables)
    assert found.estimate == pytest.approx(wanted.oddsratio_pooled, rel=1e-12)
    assert found.tidy().loc["common risk ratio", "estimate"] == pytest.approx(
        wanted.riskratio_pooled, rel=1e-12
    )
    assert found.details["log_odds_std_error"] == pytest.approx(wanted.logodds_pooled_se, rel=1e-12)
    assert (found.low, found.high) == pytest.approx(wanted.oddsratio_pooled_confint(), rel=1e-10)
    assert found.statistic == pytest.approx(
        wanted.test_null_odds(correction=True).statistic, rel=1e-10
    )
    plain = opened(
        affairs,
        es.MantelHaenszel(*ids(affairs, "children", "affair", "religious"), correction=False),
    )
    assert plain.statistic == pytest.approx(wanted.test_null_odds().statistic, rel=1e-10)
    same = wanted.test_equal_odds(adjust=True)
    day = found.tidy().loc["Breslow-Day"]
    assert (day["statistic"], day["pvalue"]) == (
        pytest.approx(same.statistic),
        pytest.approx(same.pvalue),
    )


def test_strata_of_berkeley_as_r_prints_them() -> None:
    """R's mantelhaen.test(UCBAdmissions): X-squared = 1.4269, common odds ratio 0.9046968, interval
    0.7719074 to 1.0603298.
    """
    admitted = np.array([[512, 89], [353, 17], [120, 202], [138, 131], [53, 94], [22, 24]])
    rejected = np.array([[313, 19], [207, 8], [205, 391], [279, 244], [138, 299], [351, 317]])
    tables = [
        np.array([[a[0], r[0]], [a[1], r[1]]]) for a, r in zip(admitted, rejected, strict=True)
    ]
    found = _pool(tables, correction=True)
    assert found["chi2"] == pytest.approx(1.4269, abs=5e-5)
    assert found["odds"] == pytest.approx(0.9046968, abs=5e-8)
    assert np.exp(
        np.log(found["odds"]) + 1.959964 * found["se"] * np.array([-1, 1])
    ) == pytest.approx([0.7719074, 1.0603298], abs=5e-7)
    assert _breslow_day(tables, found["odds"])[0] == pytest.approx(
        18.8255, abs=0.01
    )  # DescTools::BreslowDayTest


def test_the_trend_test_is_the_linear_association_of_statsmodels(affairs: es.Table) -> None:
    found = opened(affairs, es.CochranArmitage(*ids(affairs, "rate", "affair")))
    wanted = sm.stats.Table(
        crosstab(affairs, "rate", "affair"), shift_zeros=False
    ).test_ordinal_association()
    n = len(affairs)
    # The variance of statsmodels is that of permutations, R's that of the binomial: they differ by
    # n / (n - 1).
    assert found.details["z"] == pytest.approx(wanted.zscore * np.sqrt(n / (n - 1)), rel=1e-9)
    codes, events = affairs.data[0].astype(float), (affairs.class_codes == 1).astype(float)
    assert found.statistic == pytest.approx(n * np.corrcoef(codes, events)[0, 1] ** 2, rel=1e-10)
    other = opened(
        affairs,
        es.CochranArmitage(*ids(affairs, "rate", "affair"), scores=[1, 2, 3, 4, 5], event="class0"),
    )
    assert other.details["z"] == pytest.approx(-found.details["z"])


def test_the_trend_test_of_r() -> None:
    """R: prop.trend.test(c(83, 90, 129, 70), c(86, 93, 136, 82)) gives X-squared = 8.2249."""
    events, rows = [83, 90, 129, 70], [86, 93, 136, 82]
    frame = pd.DataFrame(
        [
            (k, int(i < e))
            for k, (e, n) in enumerate(zip(events, rows, strict=True))
            for i in range(n)
        ],
        columns=["k", "y"],
    )
    found = table_of(frame, "y", kinds={"k": "ordinal"}).ask(es.CochranArmitage("v0"))
    assert found.statistic == pytest.approx(8.2249, abs=5e-5)
    assert found.table["events"].tolist() == events


def test_odds_and_risks_are_those_of_statsmodels(affairs: es.Table) -> None:
    found = opened(affairs, es.OddsRatio(*ids(affairs, "children", "affair")))
    counts = crosstab(affairs, "children", "affair")
    wanted = Table2x2(counts[::-1, ::-1])
    terms = found.tidy()
    assert found.estimate == pytest.approx(wanted.oddsratio, rel=1e-12)
    assert (found.low, found.high) == pytest.approx(wanted.oddsratio_confint(), rel=1e-10)
    assert found.pvalue == pytest.approx(wanted.oddsratio_pvalue(), rel=1e-8)
    assert terms["estimate"].iloc[1] == pytest.approx(wanted.riskratio, rel=1e-12)
    interval = terms[["low", "high"]].iloc[1].tolist()
    assert interval == pytest.approx(wanted.riskratio_confint(), rel=1e-10)
    (b0, a0), (b1, a1) = counts
    newcombe = confint_proportions_2indep(
        a1, a1 + b1, a0, a0 + b0, method="newcomb", compare="diff"
    )
    difference = terms.iloc[2]
    assert difference[["low", "high"]].tolist() == pytest.approx(newcombe, rel=1e-9)
    assert difference["estimate"] == pytest.approx(a1 / (a1 + b1) - a0 / (a0 + b0))


def test_every_group_is_compared_with_the_reference(affairs: es.Table) -> None:
    found = opened(affairs, es.OddsRatio("religious", "affair", reference=3, event="no"))
    counts = crosstab(affairs, "religious", "affair")
    for k in (0, 1, 3):
        wanted = Table2x2(counts[[k, 2]])
        assert found.table["odds_ratio"].iloc[k] == pytest.approx(wanted.oddsratio)
    assert np.isnan(found.table["odds_ratio"].iloc[2])
    assert "compared with religious = 3" in found.summary()


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_kappa_is_that_of_statsmodels_and_sklearn(weights: str | None) -> None:
    rng = np.random.default_rng(2)
    one = rng.integers(1, 5, 200)
    other = np.where(rng.random(200) < 0.6, one, rng.integers(1, 5, 200))
    table = table_of(
        pd.DataFrame({"a": one, "b": other}), kinds={"a": "categorical", "b": "categorical"}
    )
    found = opened(table, es.Kappa("v0", "v1", weights=weights))
    assert found.estimate == pytest.approx(
        cohen_kappa_score(one, other, weights=weights), rel=1e-12
    )
    wanted = cohens_kappa(crosstab(table, "a", "b"), wt=weights)
    ours = [found.std_error, found.details["std_error_null"], found.low, found.high, found.pvalue]
    names = ("std_kappa", "std_kappa0", "kappa_low", "kappa_upp", "pvalue_two_sided")
    assert ours == pytest.approx([wanted[name] for name in names], rel=1e-8)


def test_the_roc_curve_of_a_binned_score_is_sklearns() -> None:
    frame = load_breast_cancer(as_frame=True).frame[["mean texture", "mean radius", "target"]]
    table = table_of(frame, "target", bins=8)
    found = opened(table, es.ROC("v1", event="class0"))
    codes, sick = table.data[1], table.class_codes == 0
    assert found.estimate == pytest.approx(roc_auc_score(sick, codes), rel=1e-12)
    assert found.low < found.estimate < found.high
    assert np.trapezoid(found.table["tpr"], found.table["fpr"]) == pytest.approx(found.estimate)
    assert found.table.index[1] == table.schema.variables[1].labels[-1]


# -- rows that nothing can be computed from
# ------------------------------------------------------------------------------------


def small(**columns: list) -> es.Table:
    return table_of(pd.DataFrame(columns), kinds=dict.fromkeys(columns, "categorical"))


def test_groups_without_rows_are_dropped_and_said() -> None:
    frame = pd.DataFrame({"a": ["x", "y", "z", "x"] * 5, "b": ["p", "q", "q", "q"] * 5})
    whole = es.Schema.infer(frame)
    part = whole.table(frame[frame["a"] != "z"])
    found = opened(part, es.ChiSquare("v0", "v1"))
    assert found.df == 1
    assert "groups of a without rows were dropped: z" in found.summary()
    with pytest.raises(es.DataError, check=error("too-few-groups", "'a'", "1", "3", "2")):
        opened(whole.table(frame[frame["a"] == "z"]), es.ChiSquare("v0", "v1"))


def test_missing_values_are_left_out_and_said() -> None:
    frame = pd.DataFrame({"a": ["x", "y", None, "x"] * 5, "b": ["p", "q", "q", None] * 5})
    table = table_of(frame, missing="bin")
    found = opened(table, es.FisherExact("v0", "v1"))
    assert found.table.to_numpy().sum() == 10
    assert "10 rows were left out because a or b is missing" in found.notes
    for question in (es.ChiSquare("v0", "v1"), es.OddsRatio("v0", "v1"), es.ChiSquare("v0")):
        asked = table.ask(question)
        assert asked.n_rows == (15 if question == es.ChiSquare("v0") else 10)
        assert any(f"{20 - asked.n_rows} rows were left out" in note for note in asked.notes)


def test_zero_cells_give_what_r_gives() -> None:
    table = small(a=["x"] * 6 + ["y"] * 6, b=["p"] * 6 + ["q"] * 6)
    assert opened(table, es.FisherExact("v0", "v1")).statistic == np.inf
    odds = opened(table, es.OddsRatio("v0", "v1"))
    assert odds.estimate == np.inf
    assert np.isnan(odds.low)
    assert any(
        note.startswith("no rows with or without the event in a = x, y: ratios with it")
        for note in odds.notes
    )


def test_one_row_and_one_class_are_refused() -> None:
    one = small(a=["x", "y"], b=["p", "q"])[0:1]
    with pytest.raises(es.DataError, check=error("too-few-groups", "'a'", "1", "2")):
        opened(one, es.ChiSquare("v0", "v1"))
    with pytest.raises(es.DataError, check=error("constant-outcome", "'b'")):
        opened(one, es.CochranArmitage("v0", "v1"))
    with pytest.raises(es.DataError, check=error("strata-too-small", "'c'")):
        opened(small(a=["x", "y"], b=["p", "q"], c=["s", "t"]), es.MantelHaenszel("v0", "v1", "v2"))
    with pytest.raises(es.DataError, check=error("empty-reference", "'y'", "'a'")):
        opened(one, es.OddsRatio("v0", "v1", reference="bin1"))


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (es.ChiSquare("v0", "v0"), "same-variable-twice"),
        (es.ChiSquare("v0", p=[1.0]), "invalid-shares"),
        (es.ChiSquare("v2", "v0"), "kept-as-number"),
        (
            es.FisherExact("v0", "v1", alternative="less"),
            "not-two-by-two",
        ),
        (
            es.FisherExact("v0", "v1", alternative="both"),
            "unknown-alternative",
        ),
        (
            es.MantelHaenszel("v0", "v1", "class"),
            "not-two-groups",
        ),
        (es.OddsRatio("v1", "v0"), "event-not-named"),
        (es.OddsRatio("v1", "v0", confidence=95), "confidence-out-of-range"),
        (es.Kappa("v0", "v1"), "group-counts-differ"),
        (
            es.Kappa("v1", "class", weights="cubic"),
            "unknown-weights",
        ),
        (es.ROC("v0"), "no-order"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_computed(
    question: es.Question, complaint: str
) -> None:
    frame = pd.DataFrame(
        {"a": ["x", "y", "z"] * 4, "b": ["p", "q"] * 6, "w": range(12), "y": [0, 1, 1] * 4}
    )
    table = table_of(frame, "y", {"w": 0})
    with pytest.raises(es.EncryptedStatsError, check=error(complaint)):
        table.ask(question)
    with pytest.raises(es.EncryptedStatsError, check=error(complaint)):
        es.plan(question, table)


@settings(max_examples=examples(8))  # each encrypts a table
@given(some.lists(some.tuples(some.integers(0, 2), some.integers(0, 1)), min_size=8, max_size=40))
def test_any_table_encrypted_is_as_in_the_clear(rows: list[tuple[int, int]]) -> None:
    frame = pd.DataFrame(rows, columns=["a", "b"])
    schema = es.Schema.infer(
        pd.DataFrame({"a": [0, 1, 2], "b": [0, 1, 0]}), kinds={"a": "ordinal", "b": "categorical"}
    )
    table = schema.table(frame)
    for question in (
        es.ChiSquare("v0", "v1"),
        es.OddsRatio("v0", "v1"),
        es.CochranArmitage("v0", "v1"),
        es.ROC("v0", "v1"),
    ):
        try:
            table.ask(question)
        except es.DataError:
            continue
        opened(table, question)
