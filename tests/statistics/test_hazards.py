"""The score test of Cox's regression and piecewise-exponential regression, against statsmodels,
from encrypted rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from error_codes import error

pytestmark = pytest.mark.filterwarnings(
    "ignore::encryptedstats.InsecureParametersWarning", "ignore:column .* is constant"
)


def made_up(n: int = 60, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "week": rng.integers(1, 7, n),
            "arm": rng.choice(["a", "b", "c"], n),
            "age": rng.integers(40, 60, n),
            "died": rng.integers(0, 2, n),
        }
    )


def schema_of(frame: pd.DataFrame) -> es.Schema:
    known = es.Schema.infer(frame, target="died", kinds={"arm": "categorical"}, classes=[0, 1])
    known = known.with_kind("week", "ordinal", levels=range(1, 7))
    return known.with_kind("age", "number", digits=0, low=0, high=63)


def score_by_statsmodels(frame: pd.DataFrame, columns: list[str], ties: str) -> tuple[Any, Any]:
    regression = pytest.importorskip("statsmodels.duration.hazard_regression")
    x = pd.get_dummies(frame, columns=["arm"], dtype=float)[columns].to_numpy(dtype=float)
    model = regression.PHReg(
        frame["week"].to_numpy(dtype=float), x, status=frame["died"].to_numpy(), ties=ties
    )
    nothing = np.zeros(len(columns))
    return model.score(nothing), -model.hessian(nothing)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_encrypted_scores_are_those_of_statsmodels(toy: es.Owner, ties: str) -> None:
    frame = made_up()
    known = schema_of(frame)
    question = es.CoxScore("v0", variables=["v1", "v2"], ties=ties)
    found = toy.open(
        toy.encrypt(known.table(frame), workers=1).ask(question, workers=1), schema=known
    )
    score, information = score_by_statsmodels(frame, ["arm_b", "arm_c", "age"], ties)
    assert list(found.table.index) == ["arm[b]", "arm[c]", "age"]
    np.testing.assert_allclose(found.table["score"], score, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.tables["information"], information, rtol=1e-9, atol=1e-9)
    assert found.statistic == pytest.approx(score @ np.linalg.solve(information, score), rel=1e-9)
    np.testing.assert_allclose(
        found.table["one_step"], np.linalg.solve(information, score), rtol=1e-8
    )
    assert found.df == 3
    assert found == known.table(frame).ask(question)


def test_rossi_as_r_has_it() -> None:
    """coxph(Surv(week, arrest) ~ fin + age + prio), rossi: the score test of statsmodels' own score
    and hessian.
    """
    datasets = pytest.importorskip("lifelines.datasets")
    regression = pytest.importorskip("statsmodels.duration.hazard_regression")
    rossi = datasets.load_rossi()[["week", "fin", "age", "prio", "arrest"]]
    known = es.Schema.infer(rossi, target="arrest").with_kind(
        "week", "ordinal", levels=range(1, 53)
    )
    known = known.with_kind("age", "number", digits=0).with_kind("prio", "number", digits=0)
    found = known.table(rossi).ask(es.CoxScore("v0", variables=["v1", "v2", "v3"]))
    x = rossi[["fin", "age", "prio"]].to_numpy(dtype=float)
    model = regression.PHReg(
        rossi["week"].to_numpy(dtype=float), x, status=rossi["arrest"].to_numpy(), ties="efron"
    )
    score, information = model.score(np.zeros(3)), -model.hessian(np.zeros(3))
    assert found.statistic == pytest.approx(score @ np.linalg.solve(information, score), rel=1e-10)
    assert found.df == 3


def test_a_score_test_of_groups_without_ties_is_the_log_rank_test() -> None:
    frame = made_up(6).assign(week=range(1, 7), died=[1, 0, 1, 1, 0, 1], arm=list("ababab"))
    table = schema_of(frame).table(frame)
    score, rank = (
        table.ask(es.CoxScore("v0", variables=["v1"])),
        table.ask(es.LogRank("v0", by="v1")),
    )
    assert score.statistic == pytest.approx(rank.statistic, rel=1e-12)


def long_rows(frame: pd.DataFrame, cuts: list[float]) -> pd.DataFrame:
    """A line for each row and interval that it was followed in."""
    limits = [0.0, *cuts, 6.0]
    lines = []
    for _, row in frame.iterrows():
        for j, (low, high) in enumerate(pairwise(limits)):
            if row["week"] > low:
                ended = row["week"] <= high
                lines.append(
                    (j, row["arm"], int(row["died"] and ended), min(row["week"], high) - low)
                )
    return pd.DataFrame(lines, columns=["interval", "arm", "died", "time"])


def test_a_piecewise_exponential_regression_is_that_of_statsmodels_on_the_long_table(
    toy: es.Owner,
) -> None:
    pytest.importorskip("statsmodels")
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    frame = made_up()
    known = schema_of(frame)
    question = es.PiecewiseExponential("v0", variables=["v1"], cuts=["bin1", "bin3"])
    found = toy.open(
        toy.encrypt(known.table(frame), workers=1).ask(question, workers=1), schema=known
    )
    rows = long_rows(frame, [2, 4])
    wanted = smf.glm(
        "died ~ C(interval) + arm",
        rows,
        family=sm.families.Poisson(),
        offset=np.log(rows["time"].astype(float)),
    ).fit(tol=1e-14)
    assert list(found.coefficients.index) == [
        "(Intercept)",
        "interval[2-4]",
        "interval[4-6]",
        "arm[b]",
        "arm[c]",
    ]
    np.testing.assert_allclose(found.coefficients["estimate"], wanted.params, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.coefficients["std_error"], wanted.bse, rtol=1e-8)
    assert found.formula == "hazard(week) ~ interval + arm"


def test_without_cuts_and_covariates_it_is_the_incidence_rate() -> None:
    frame = made_up()
    table = schema_of(frame).table(frame)
    found = table.ask(es.PiecewiseExponential("v0"))
    rate = table.ask(es.IncidenceRate("v0")).table["rate"].iloc[0]
    assert np.exp(found.coefficients.loc["(Intercept)", "estimate"]) == pytest.approx(
        rate, rel=1e-12
    )


def test_rows_from_which_nothing_is_learnt() -> None:
    frame = made_up()
    known = schema_of(frame)
    nobody = known.table(frame.assign(died=0))
    with pytest.raises(es.DataError, check=error("no-events", "60")):
        nobody.ask(es.CoxScore("v0", variables="v1"))
    with pytest.raises(es.DataError, check=error("no-events", "60")):
        nobody.ask(es.PiecewiseExponential("v0", variables="v1"))
    with pytest.raises(es.DataError, check=error("no-overlap-at-risk")):
        known.table(frame.assign(arm="a")).ask(es.CoxScore("v0", variables="v1"))
    with pytest.raises(es.DataError, check=error("no-overlap-at-risk")):
        known.table(frame[:1].assign(died=1)).ask(es.CoxScore("v0", variables="v1"))
    empty = known.table(frame[frame["arm"] != "b"])
    assert empty.ask(es.CoxScore("v0", variables="v1")).df == 1
    found = empty.ask(es.PiecewiseExponential("v0", variables="v1"))
    assert any("aliased): arm[b]" in note for note in found.notes)
    assert (
        schema_of(frame)
        .table(frame.assign(age=50))
        .ask(es.CoxScore("v0", variables=["v1", "v2"]))
        .df
        == 2
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: es.CoxScore("v0"), es.ParameterError, "name some"),
        (
            lambda: es.CoxScore("v0", variables="v1", ties="exact"),
            es.ParameterError,
            "ties='exact': one of",
        ),
        (
            lambda: es.CoxScore("v0", variables=["v0"]),
            es.SchemaError,
            "have to be different variables",
        ),
        (
            lambda: es.PiecewiseExponential("v0", cuts=["bin3", "bin1"]),
            es.ParameterError,
            "increasing levels of the time",
        ),
        (
            lambda: es.PiecewiseExponential("v0", cuts=["bin5"]),
            es.ParameterError,
            "before its last one",
        ),
        (
            lambda: es.PiecewiseExponential("v2"),
            es.SchemaError,
            "kept as a number, and is counted in bins",
        ),
    ],
)
def test_what_cannot_be_asked(make: Any, error: Any, message: str) -> None:
    frame = made_up()
    with pytest.raises(error, match=message):
        schema_of(frame).table(frame).ask(make())


def test_results_are_stored_and_read_again(tmp_path: Any) -> None:
    frame = made_up()
    table = schema_of(frame).table(frame)
    for number, question in enumerate(
        (
            es.CoxScore("v0", variables=["v1", "v2"]),
            es.PiecewiseExponential("v0", variables=["v1"], cuts=["bin2"]),
        )
    ):
        found = table.ask(question)
        found.save(tmp_path / str(number))
        assert es.load(tmp_path / str(number)) == found
        assert found.summary()


def test_events_before_any_person_time() -> None:
    frame = made_up().assign(week=lambda rows: rows["week"] - 1, died=1)
    known = schema_of(frame).with_kind("week", "ordinal", levels=range(6))
    with pytest.raises(es.DataError, check=error("event-at-time-zero", "0")):
        known.table(frame).ask(es.PiecewiseExponential("week", variables="arm", cuts=[0]))


def test_totals_that_cannot_be_are_refused() -> None:
    frame = made_up()
    known = schema_of(frame)
    question = es.CoxScore("v0", variables=["v1"])
    totals = list(known.table(frame).totals(question))
    totals[0] = -1
    with pytest.raises(ValueError, match="fewer than no rows: the result was altered"):
        question.interpret(totals, known, len(frame))
    for other in (es.KaplanMeier("v0"), es.PiecewiseExponential("v0", variables="v1")):
        altered = list(known.table(frame).totals(other))
        altered[0] = -1
        with pytest.raises(ValueError, match="the result was altered"):
            other.interpret(altered, known, len(frame))
