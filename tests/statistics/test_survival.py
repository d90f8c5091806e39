"""Survival against lifelines and SciPy on the quantised table, from encrypted rows; and rows from
which nothing can be learnt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import encryptedstats as es
from effort import examples
from error_codes import error

pytestmark = pytest.mark.filterwarnings(
    "ignore:column .* is constant",
    "ignore:Starting with pandas version 4",
    "ignore::encryptedstats.InsecureParametersWarning",
)

WEEKS = range(1, 13)


def made_up(n: int = 60, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "week": rng.integers(1, 13, n),
            "arm": rng.choice(["a", "b", "c"], n),
            "died": rng.choice([0, 1], n, p=[0.4, 0.6]),
        }
    )


def schema_of(frame: pd.DataFrame) -> es.Schema:
    kinds = {"arm": "categorical"}
    known = es.Schema.infer(frame, target="died", kinds=kinds, classes=[0, 1])
    return known.with_kind("week", "ordinal", levels=WEEKS)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return made_up()


@pytest.fixture(scope="module")
def schema(frame: pd.DataFrame) -> es.Schema:
    return schema_of(frame)


def in_the_clear(frame: pd.DataFrame, question: es.Question) -> Any:
    return schema_of(frame).table(frame).ask(question)


@pytest.mark.parametrize(
    ("weeks", "died", "median", "low"),
    [
        ([1, 2, 3, 4, 5, 6], [1, 1, 0, 1, 1, 1], 4, 2),
        ([1, 2, 3, 5, 8, 9], [1, 1, 1, 1, 0, 1], 4, 2),  # flat at one half from 3 to 5
        ([1, 2, 3, 6, 8, 9], [1, 1, 1, 0, 0, 1], 6, 2),  # flat over two censored weeks
        ([1, 2, 3, 4], [1, 1, 0, 0], 2, 1),  # flat to the end
    ],
)
def test_the_median_of_a_flat_curve_is_rs(
    weeks: list[int], died: list[int], median: float, low: float
) -> None:
    """R: summary(survfit(Surv(weeks, died) ~ 1))$table[c("median", "0.95LCL", "0.95UCL")]; the last
    is NA.
    """
    found = in_the_clear(
        pd.DataFrame({"week": weeks, "arm": "a", "died": died}), es.KaplanMeier("week")
    )
    assert found.groups[["median", "low", "high"]].iloc[0].tolist() == [median, low, np.inf]


# -- equality with others
# ---------------------------------------------------------------------------------------------


def test_encrypted_answers_are_those_of_lifelines(
    toy: es.Owner, frame: pd.DataFrame, schema: es.Schema
) -> None:
    lifelines = pytest.importorskip("lifelines")
    tests = pytest.importorskip("lifelines.statistics")
    sealed = toy.encrypt(schema.table(frame), workers=1)
    curves = toy.open(
        sealed.ask(es.KaplanMeier("v0", by="v1", interval="log-log"), workers=1), schema=schema
    )
    for arm, rows in frame.groupby("arm"):
        fitted = lifelines.KaplanMeierFitter().fit(rows["week"], rows["died"])
        own = curves.curves.loc[arm]
        wanted = fitted.survival_function_.loc[own.index, "KM_estimate"]
        np.testing.assert_allclose(own["survival"], wanted, rtol=1e-13)
        limits = fitted.confidence_interval_.loc[own.index].to_numpy()
        left = own["survival"].to_numpy() > 0
        np.testing.assert_allclose(own[["low", "high"]][left], limits[left], rtol=1e-12)
        np.testing.assert_array_equal(own["at_risk"], fitted.event_table.loc[own.index, "at_risk"])
        assert curves.median[arm] == fitted.median_survival_time_
    found = toy.open(sealed.ask(es.LogRank("v0", by="v1"), workers=1), schema=schema)
    assert found == schema.table(frame).ask(es.LogRank("v0", by="v1"))
    for weights in ("logrank", "wilcoxon", "tarone-ware", "peto"):
        found = schema.table(frame).ask(es.LogRank("v0", by="v1", weights=weights))
        wanted = tests.multivariate_logrank_test(
            frame["week"],
            frame["arm"],
            frame["died"],
            weightings=None if weights == "logrank" else weights,
        )
        assert found.df == 2
        assert found.statistic == pytest.approx(wanted.test_statistic, rel=1e-11)
        assert found.pvalue == pytest.approx(wanted.p_value, rel=1e-11)


def test_rossi_as_lifelines_and_r_have_it() -> None:
    """432 convicts, 52 weeks: the log-rank test of financial aid, chi-square 3.8 on one degree of
    freedom, p = 0.05.
    """
    datasets = pytest.importorskip("lifelines.datasets")
    tests = pytest.importorskip("lifelines.statistics")
    rossi = datasets.load_rossi()[["week", "fin", "arrest"]]
    known = es.Schema.infer(rossi, target="arrest").with_kind(
        "week", "ordinal", levels=range(1, 53)
    )
    table = known.table(rossi)
    found = table.ask(es.LogRank("v0", by="v1"))
    one, other = (rossi[rossi["fin"] == fin] for fin in (0, 1))
    wanted = tests.logrank_test(one["week"], other["week"], one["arrest"], other["arrest"])
    assert found.statistic == pytest.approx(wanted.test_statistic, rel=1e-12)
    assert (round(found.statistic, 3), found.df, round(found.pvalue, 4)) == (3.838, 1, 0.0501)
    assert found.table["expected"].sum() == pytest.approx(rossi["arrest"].sum())
    curves = table.ask(es.KaplanMeier("v0", by="v1"))
    assert curves.survival_at([0, 52, 99]).to_numpy().tolist()[0] == [1, 1]
    assert curves.survival_at([52]).loc[52].tolist() == pytest.approx([150 / 216, 168 / 216])
    assert curves.at_risk([0, 1, 52, 53])["0"].tolist() == [216, 216, 154, 0]


@pytest.mark.parametrize("interval", ["plain", "log"])
def test_other_scales_by_their_formula(frame: pd.DataFrame, interval: str) -> None:
    from scipy.stats import norm

    found = in_the_clear(frame, es.KaplanMeier("v0", interval=interval, confidence=0.9)).curves
    n, d, s = found["at_risk"], found["events"], found["survival"]
    reach = norm.ppf(0.95) * np.sqrt((d / (n * (n - d))).cumsum())
    wanted = (
        (s - s * reach, s + s * reach)
        if interval == "plain"
        else (s * np.exp(-reach), s * np.exp(reach))
    )
    left = s > 0
    np.testing.assert_allclose(found["low"][left], wanted[0][left].clip(lower=0), rtol=1e-12)
    np.testing.assert_allclose(found["high"][left], wanted[1][left].clip(upper=1), rtol=1e-12)


def test_rates_are_those_of_scipy(toy: es.Owner, frame: pd.DataFrame, schema: es.Schema) -> None:
    from scipy.stats import chi2

    kept = schema.with_kind("week", "number", digits=0, low=0, high=12)
    grid = schema.table(frame).ask(es.IncidenceRate("v0", by="v1", per=100))
    sealed = toy.encrypt(kept.table(frame), workers=1)
    numbers = toy.open(sealed.ask(es.IncidenceRate("v0", by="v1", per=100), workers=1), schema=kept)
    pd.testing.assert_frame_equal(grid.table, numbers.table)
    for arm, rows in frame.groupby("arm"):
        d, time, line = rows["died"].sum(), rows["week"].sum(), grid.table.loc[arm]
        assert (line["events"], line["person_time"]) == (d, time)
        assert line["rate"] == pytest.approx(100 * d / time)
        assert line["low"] == pytest.approx(100 * chi2.ppf(0.025, 2 * d) / 2 / time)
        assert line["high"] == pytest.approx(100 * chi2.ppf(0.975, 2 * d + 2) / 2 / time)
    whole = kept.table(frame).ask(es.IncidenceRate("v0"))
    assert whole.table["person_time"].tolist() == [frame["week"].sum()]


def test_a_rate_ratio_as_r_has_it() -> None:
    """poisson.test(c(11, 6 + 8 + 7), c(800, 1083 + 1050 + 878)), R's own example: 1.971 (0.858 to
    4.278), p = 0.079.
    """
    from encryptedstats.statistics.survival import _rate_ratio

    found = _rate_ratio((11, 800), (21, 3011), 0.95)
    assert found["estimate"] == pytest.approx(1.971488, abs=1e-6)
    assert (found["low"], found["high"]) == pytest.approx((0.8584264, 4.2772659), abs=1e-6)
    assert found["pvalue"] == pytest.approx(0.07967, abs=1e-5)


def test_a_life_table_by_hand() -> None:
    """To 5, to 10 and beyond: 10 rows enter, 2 leave and 3 have the event; then 1 leaves of 5 and 2
    have it; then 2 leave.
    """
    frame = pd.DataFrame(
        {"week": [1] * 5 + [7] * 3 + [11] * 2, "died": [0, 0, 1, 1, 1, 0, 1, 1, 0, 0], "arm": "a"}
    )
    known = es.Schema.infer(
        frame, target="died", kinds={"arm": "categorical", "week": "continuous"}
    )
    found = (
        known.with_bins("week", edges=[5, 10])
        .table(frame)
        .ask(es.LifeTable("v0", interval="plain"))
        .table
    )
    assert found.index.tolist() == [0, 5, 10]
    assert found["end"].tolist() == [5, 10, np.inf]
    assert found["exposed"].tolist() == [9, 4.5, 1]
    np.testing.assert_allclose(found["event_share"], [1 / 3, 2 / 4.5, 0])
    np.testing.assert_allclose(found["survival"], [2 / 3, 2 / 3 * 2.5 / 4.5, 2 / 3 * 2.5 / 4.5])
    variance = np.cumsum([3 / (9 * 6), 2 / (4.5 * 2.5), 0])
    np.testing.assert_allclose(found["std_error"], found["survival"] * np.sqrt(variance))
    np.testing.assert_allclose(found["hazard"][:2], [3 / (5 * 7.5), 2 / (5 * 3.5)])
    assert np.isnan(found["hazard"].iloc[2])


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 40), st.integers(0, 999), st.sampled_from([None, "v1"]))
def test_curves_hold_together(n: int, seed: int, by: str | None) -> None:
    rows = made_up(n, seed)
    found = in_the_clear(rows, es.KaplanMeier("v0", by=by))
    assert found.groups["rows"].sum() == n
    assert found.groups["events"].sum() == rows["died"].sum()
    for _, curve in found.parts():
        assert (curve["survival"].diff().dropna() <= 0).all()
        assert ((curve["low"] <= curve["survival"]) | curve["low"].isna()).all()
        assert ((curve["high"] >= curve["survival"]) | curve["high"].isna()).all()
        left = curve["at_risk"] - curve["events"] - curve["censored"]
        assert left.tolist() == [*curve["at_risk"].tolist()[1:], 0]


# -- what is counted as what
# --------------------------------------------------------------------------------------------


def test_an_event_may_be_a_variable_with_competing_levels(frame: pd.DataFrame) -> None:
    rng = np.random.default_rng(4)
    more = frame.assign(end=rng.choice(["alive", "relapse", "death"], len(frame))).drop(
        columns="died"
    )
    known = es.Schema.infer(more).with_kind("week", "ordinal", levels=WEEKS)
    table, level = known.table(more), known.variables[2].levels.index("relapse")
    found = table.ask(es.KaplanMeier("v0", "v2", event_level=f"bin{level}"))
    assert found.groups["events"].tolist() == [(more["end"] == "relapse").sum()]
    assert any("competing events among these count as censored" in note for note in found.notes)
    with pytest.raises(es.ParameterError, check=error("event-not-named")):
        table.ask(es.KaplanMeier("v0", "v2"))
    with pytest.raises(
        es.SchemaError, check=error("unknown-level", "'bin9'", "'alive'", "'death'", "'relapse'")
    ):
        table.ask(es.KaplanMeier("v0", "v2", event_level="bin9"))


def test_missing_groups_are_left_out_and_said(frame: pd.DataFrame) -> None:
    gaps = frame.assign(arm=frame["arm"].where(frame["arm"] != "c"))
    known = es.Schema.infer(gaps, target="died", missing="bin").with_kind(
        "week", "ordinal", levels=WEEKS
    )
    found = known.table(gaps).ask(es.KaplanMeier("v0", by="v1"))
    n_missing = int(gaps["arm"].isna().sum())
    assert list(found.groups.index) == ["a", "b"]
    assert found.n_rows == len(frame) - n_missing
    assert any(f"{n_missing} rows were left out" in note for note in found.notes)


def test_weights_count_rows_several_times(frame: pd.DataFrame, schema: es.Schema) -> None:
    weights = np.random.default_rng(3).integers(0, 3, len(frame))
    numbers = schema.with_kind("week", "number", digits=0, low=0, high=12)
    for known, question in (
        (schema, es.KaplanMeier("v0", by="v1")),
        (schema, es.IncidenceRate("v0", by="v1")),
        (numbers, es.IncidenceRate("v0", by="v1")),
        (schema, es.CoxScore("v0", variables=["v1"])),
        (schema, es.PiecewiseExponential("v0", variables=["v1"], cuts=["bin4"])),
    ):
        weighted = known.table(frame, weights=weights).ask(question)
        repeated = known.table(frame.loc[frame.index.repeat(weights)]).ask(question)
        pd.testing.assert_frame_equal(weighted.to_frame(), repeated.to_frame())


def test_without_names_times_are_bins(
    frame: pd.DataFrame, schema: es.Schema, toy: es.Owner, tmp_path: Any
) -> None:
    toy.encrypt(schema.table(frame), workers=1).ask(es.KaplanMeier("v0"), workers=1).save(
        tmp_path / "curve"
    )
    found = toy.open(es.load(tmp_path / "curve", toy.public_keys()))
    wanted = schema.table(frame).ask(es.KaplanMeier("v0")).curves
    assert found.curves["survival"].tolist() == wanted["survival"].tolist()
    assert found.curves.index.tolist() == [week - 1 for week in wanted.index]
    assert any("numbers of bins" in note for note in found.notes)
    for question in (es.IncidenceRate("v0"), es.PiecewiseExponential("v0")):
        answer = toy.encrypt(schema.table(frame), workers=1).ask(question, workers=1)
        answer.save(tmp_path / question.name)
        with pytest.raises(es.SchemaError, check=error("times-are-bins")):
            toy.open(es.load(tmp_path / question.name, toy.public_keys()))


# -- hostile rows
# ------------------------------------------------------------------------------------------------


def test_all_censored(frame: pd.DataFrame) -> None:
    nobody = frame.assign(died=0)
    found = in_the_clear(nobody, es.KaplanMeier("v0"))
    assert (found.curves[["survival", "low", "high"]] == 1).all(axis=None)
    assert found.median.tolist() == [np.inf]
    assert any("no row has the event" in note for note in found.notes)
    with pytest.raises(es.DataError, check=error("no-events", "60")):
        in_the_clear(nobody, es.LogRank("v0", by="v1"))
    incidence = in_the_clear(nobody, es.IncidenceRate("v0", by="v1"))
    rates = incidence.table
    assert (rates["rate"] == 0).all()
    assert (rates["low"] == 0).all()
    assert (rates["high"] > 0).all()
    assert incidence.tidy()["estimate"].isna().sum() == 2
    assert (in_the_clear(nobody, es.LifeTable("v0")).table["survival"] == 1).all()


def test_all_have_the_event(frame: pd.DataFrame) -> None:
    found = in_the_clear(frame.assign(died=1), es.KaplanMeier("v0")).curves
    assert found["survival"].iloc[-1] == 0
    assert found[["low", "high"]].iloc[-1].isna().all()  # as R: of nobody left there is no interval


def test_one_row(frame: pd.DataFrame) -> None:
    one = frame.iloc[:1].assign(died=1)
    found = in_the_clear(pd.concat([one]), es.KaplanMeier("v0"))
    assert found.curves["survival"].tolist() == [0]
    assert found.median.tolist() == [one["week"].iloc[0]]
    with pytest.raises(es.SchemaError):
        in_the_clear(one, es.LogRank("v0", by="v1"))
    assert in_the_clear(one, es.IncidenceRate("v0")).table["events"].tolist() == [1]


def test_empty_groups_are_dropped_and_said(frame: pd.DataFrame, schema: es.Schema) -> None:
    table = schema.table(frame[frame["arm"] != "b"])
    for question in (
        es.KaplanMeier("v0", by="v1"),
        es.LogRank("v0", by="v1"),
        es.IncidenceRate("v0", by="v1"),
    ):
        found = table.ask(question)
        assert any("groups of arm without rows were dropped: b" in note for note in found.notes)
        assert "b" not in found.to_frame().index.get_level_values(0)


def test_groups_that_are_never_at_risk_together() -> None:
    apart = pd.DataFrame({"week": [1, 1, 2, 2], "arm": ["a", "a", "b", "b"], "died": [1, 1, 1, 0]})
    together = in_the_clear(apart, es.LogRank("v0", by="v1"))
    assert together.statistic > 0  # b is at risk when a has its events
    last = pd.DataFrame({"week": [1, 2, 2], "arm": ["a", "b", "b"], "died": [0, 1, 1]})
    with pytest.raises(es.DataError, check=error("no-overlap-at-risk")):
        in_the_clear(last, es.LogRank("v0", by="v1"))


def test_times_that_are_none(frame: pd.DataFrame, schema: es.Schema) -> None:
    words = schema.with_kind("week", "ordinal", levels=[f"week {week}" for week in WEEKS])
    rows = frame.assign(week=[f"week {week}" for week in frame["week"]])
    with pytest.raises(es.SchemaError, check=error("levels-not-numbers")):
        words.table(rows).ask(es.KaplanMeier("v0"))
    with pytest.raises(es.SchemaError, check=error("kept-as-number")):
        schema.with_kind("week", "number", digits=0, low=0, high=12).table(frame).ask(
            es.KaplanMeier("v0")
        )
    with pytest.raises(es.SchemaError, check=error("keep-points-of-time")):
        schema.with_bins("week", edges=[3, 6]).table(frame).ask(es.IncidenceRate("v0"))
    with pytest.raises(es.SchemaError, check=error("same-variable-twice")):
        schema.table(frame).ask(es.KaplanMeier("v0", by="v0"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: es.KaplanMeier("v0", interval="arcsine"),
            "unknown-choice",
        ),
        (lambda: es.KaplanMeier("v0", confidence=95), "confidence-out-of-range"),
        (lambda: es.LogRank("v0"), "by-missing"),
        (lambda: es.LogRank("v0", by="v1", weights="none"), "unknown-choice"),
        (lambda: es.IncidenceRate("v0", per=0), "per-out-of-range"),
    ],
)
def test_parameters_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(es.ParameterError, check=error(message)):
        make()


# -- shown and stored
# ------------------------------------------------------------------------------------------------


def test_results_are_stored_and_read_again(
    frame: pd.DataFrame, schema: es.Schema, tmp_path: Any
) -> None:
    questions = (
        es.KaplanMeier("v0", by="v1"),
        es.LifeTable("v0"),
        es.LogRank("v0", by="v1"),
        es.IncidenceRate("v0", by="v1"),
    )
    for number, question in enumerate(questions):
        found = schema.table(frame).ask(question)
        found.save(tmp_path / str(number))
        assert es.load(tmp_path / str(number)) == found
        assert found._repr_html_()


def test_curves_are_drawn_with_the_number_at_risk(frame: pd.DataFrame) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ax = in_the_clear(frame, es.KaplanMeier("v0", by="v1")).plot()
    texts = [text.get_text() for text in ax.texts]
    assert texts[:2] == ["at risk", "a"]
    assert str((frame["arm"] == "a").sum()) in texts
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    plt.close(ax.figure)
    alone = in_the_clear(frame, es.KaplanMeier("v0")).plot()
    assert alone.get_legend() is None
    plt.close(alone.figure)


def test_variables_and_levels_go_by_name(frame: pd.DataFrame, schema: es.Schema) -> None:
    table = schema.table(frame)
    for named, by_id in (
        (es.KaplanMeier("week", "died", by="arm"), es.KaplanMeier("v0", by="v1")),
        (es.KaplanMeier("week", "died", event_level=0), es.KaplanMeier("v0", event_level="class0")),
        (es.LogRank("week", by="arm"), es.LogRank("v0", by="v1")),
        (es.IncidenceRate("week", by="arm"), es.IncidenceRate("v0", by="v1")),
        (es.CoxScore("week", variables=["arm"]), es.CoxScore("v0", variables=["v1"])),
        (
            es.PiecewiseExponential("week", variables=["arm"], cuts=[4, 8]),
            es.PiecewiseExponential("v0", variables=["v1"], cuts=["bin3", "bin7"]),
        ),
    ):
        assert table.ask(named) == table.ask(by_id)
        assert named.in_ids(schema).parameters() == by_id.in_ids(schema).parameters()
