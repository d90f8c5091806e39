"""Cox regression over three sites, beside R's coxph and cox.zph of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from pooled_samples import at_sites, check_rounds_are_the_same, cohort
from pooled_samples import schema_with_weeks as schema_of

import encryptedstats as es
from effort import examples
from encryptedstats.procedures import RowLimits, SiteCourse
from encryptedstats.procedures.pooled.risk_sets import RiskSteps, StepSums, TimeCounts, merge_times
from encryptedstats.procedures.words import make_procedure
from error_codes import error

ASKED = es.PooledCox("week ~ age + bmi + arm", minimum=1)
# R 4.2, survival 3.5: coxph(Surv(week, died == "yes") ~ age + bmi + arm, ties = ...) of the rows in
# pooled_samples: coefficients and se(coef); loglik, score, wald.test, iter; cox.zph()$table[, 1];
# the first two lines of basehaz(centered = FALSE).
R: dict[str, tuple[Any, ...]] = {
    "efron": (
        {
            "age": (0.0133301214246, 0.00488798838986),
            "bmi": (0.0212883754793, 0.0170159572181),
            "arm[b]": (-0.00362684728945, 0.203410144555),
            "arm[c]": (-0.0803749544995, 0.204227042589),
        },
        (-767.152343308, -762.542340558, 9.19432714149, 9.11156492251, 3),
        (1.470419015, 1.779083184, 3.877633729, 7.372273281),
        (0.0252853554490, 0.0517928720621),
    ),
    "breslow": (
        {
            "age": (0.0127300924315, 0.00487279912281),
            "bmi": (0.0203325207336, 0.0169914999649),
            "arm[b]": (-0.0047840337173, 0.203383459327),
            "arm[c]": (-0.0749678189715, 0.204230194433),
        },
        (-772.417669362, -768.193251004, 8.42750649723, 8.35818182108, 3),
        (1.332479967, 1.625841101, 3.609894442, 6.752994413),
        (0.0255745549957, 0.0523440519920),
    ),
}


BOTH = pytest.mark.parametrize("model", [es.PooledCox, es.PooledCoxNet])


def fit(asked: es.PooledCox | es.PooledCoxNet, frame: pd.DataFrame, **options: Any) -> Any:
    return asked.run(at_sites(schema_of(frame), frame), **options)


@pytest.mark.parametrize("ties", R)
def test_a_fit_over_sites_is_that_of_coxph(ties: str) -> None:
    coefficients, numbers, proportionality, hazards = R[ties]
    found = fit(es.PooledCox("week ~ age + bmi + arm", ties=ties, minimum=1), cohort())
    own = found.coefficients[["estimate", "std_error"]].rename_axis(None)
    wanted = pd.DataFrame.from_dict(coefficients, orient="index", columns=own.columns)
    pd.testing.assert_frame_equal(own, wanted, rtol=1e-10, atol=1e-12)
    tests = found.tests["statistic"]
    mine = (found.llf_null, found.llf, tests["Score (logrank)"], tests["Wald"], found.iterations)
    assert mine == pytest.approx(numbers, rel=1e-10)
    assert tests["Likelihood ratio"] == pytest.approx(2 * (numbers[1] - numbers[0]), rel=1e-7)
    assert found.proportionality["statistic"].tolist() == pytest.approx(proportionality, rel=1e-8)
    assert found.baseline["hazard"].iloc[:2].tolist() == pytest.approx(hazards, rel=1e-10)
    assert (found.n_events, found.n_rows, found.converged) == (145, 300, True)


def test_a_formula_may_name_time_and_event_as_in_r() -> None:
    asked = make_procedure(["PooledCox(Surv(week, `left`) ~ age + arm, minimum=20)"])
    assert asked == es.PooledCox("week ~ age + arm", event="left", minimum=20)


def by_time(frame: pd.DataFrame) -> TimeCounts:
    dead = frame[frame.died == "yes"]
    return TimeCounts(*(np.bincount(one.week - 1, minlength=12).tolist() for one in (frame, dead)))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("minimum", [5, 10])
def test_merged_times_are_those_of_a_coarser_grid(ties: str, minimum: int) -> None:
    frame = cohort().assign(arm=lambda d: np.where(d.arm == "a", "b", d.arm))
    parts = [frame, frame[frame.arm == "b"], frame[frame.arm == "c"]]
    starts = merge_times([by_time(one) for one in parts], minimum, ties == "efron")
    assert 2 < len(starts) < 12
    found = fit(es.PooledCox("week ~ age + bmi + arm", ties=ties, minimum=minimum), frame)
    step = np.searchsorted(starts, frame.week - 1, side="right")
    x = frame[["age", "bmi"]].assign(c=frame.arm == "c").astype(float)
    theirs = sm.PHReg(step, x, (frame.died == "yes").astype(int), ties=ties).fit()
    np.testing.assert_allclose(found.coefficients["estimate"], theirs.params, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.coefficients["std_error"], theirs.bse, rtol=1e-6)
    assert found.llf == pytest.approx(theirs.llf, rel=1e-10)


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(*[st.integers(0, 15)] * 4), min_size=1, max_size=20),
    st.integers(1, 15),
    st.booleans(),
)
def test_enough_rows_leave_at_every_step(
    times: list[tuple[int, int, int, int]], minimum: int, efron: bool
) -> None:
    """Of all rows and of both levels, with the event and without; single events count together."""
    both = [(d + e, c + f) for d, c, e, f in times]
    levels = [(d, c) for d, c, _, _ in times], [(e, f) for _, _, e, f in times]
    groups = [TimeCounts([d + c for d, c in one], [d for d, _ in one]) for one in (both, *levels)]
    starts = merge_times(groups, minimum, efron)
    steps = list(zip(starts, [*starts[1:], len(times)], strict=True))
    assert starts[0] == 0
    single = [one for one in steps if groups[0].between(*one)[1] == 1]
    for group in groups if len(starts) > 1 else ():
        shown = [group.between(*one)[0] for one in steps]
        if efron:
            open_steps = [group.between(*one) for one in steps if one not in single]
            shown += [count for n, d in open_steps for count in (d, n - d)]
            shown.append(sum(group.between(*one)[1] for one in single))
        assert all(not count or count >= minimum for count in shown)
    assert len(starts) == 1 or all(groups[0].between(*one)[0] >= minimum for one in steps)
    found = RiskSteps.of(groups, minimum, efron)
    assert sum(found.events) == sum(groups[0].events)
    assert all(found.events)


def test_a_single_event_has_no_sum_of_its_own() -> None:
    frame = cohort().assign(died="no")
    frame.loc[[5, 60, 61, 62, 63], "died"] = "yes"
    frame["week"] = np.where(frame.died == "yes", np.where(frame.index == 5, 4, 8), 12)
    schema = schema_of(frame)
    course = SiteCourse(ASKED.in_ids(schema), schema.public())
    for _ in range(2):
        course.take(course.measure(schema.table(frame)))
    assert course.state["events"] == [1, 4]
    totals, k = course.measure(schema.table(frame)), 4
    of_events = totals[k + 2 * (k + 1) : -1]
    assert set(of_events[: k + 1]) == {0}
    assert all(of_events[k + 1 :])


def test_a_risk_set_that_rounds_to_nothing_is_refused() -> None:
    with pytest.raises(es.DataError, check=error("empty-risk-set")):
        StepSums.of(3, [0.0, 0.0], None)
    assert StepSums.of(2, [4.0, 2.0], [2.0, 2.0]).at_risk == 1 / 4 + 1 / 3


@BOTH
def test_a_site_may_have_no_events(model: Any) -> None:
    frame, asked = cohort(), model("week ~ age + bmi + arm", minimum=1)
    schema = schema_of(frame)
    parts = [
        frame[frame.died == "no"],
        frame[frame.died == "yes"][:40],
        frame[frame.died == "yes"][40:],
    ]
    split = asked.run([schema.table(part) for part in parts])
    whole = asked.run(schema.table(frame))
    pd.testing.assert_frame_equal(split.coefficients, whole.coefficients, rtol=1e-9)


def test_infinite_coefficients_are_said_as_in_r() -> None:
    frame = cohort().assign(g=lambda d: np.where((d.arm == "a") & (d.died == "yes"), "b", d.arm))
    # coxph(Surv(week, died == "yes") ~ age + g): "Loglik converged before variable 2,3; coefficient
    # may be infinite", 18 iterations
    with pytest.warns(UserWarning, match=r"Loglik converged before variable g\[b\], g\[c\]"):
        found = fit(es.PooledCox("week ~ age + g", minimum=1, max_iterations=20), frame)
    estimates = [0.01202408381, 18.61000466559, 18.13534959524]
    np.testing.assert_allclose(found.coefficients["estimate"], estimates, rtol=1e-6)
    assert found.coefficients.loc["age", "std_error"] == pytest.approx(4.707499116e-03, rel=1e-8)
    assert found.iterations == 18


def test_rounds_that_run_out_are_said() -> None:
    asked = es.PooledCox("week ~ age + bmi + arm", minimum=1, max_iterations=1)
    with pytest.warns(UserWarning, match="Ran out of iterations and did not converge"):
        found = fit(asked, cohort())
    assert not found.converged


def test_dependent_columns_have_no_coefficient() -> None:
    frame = cohort().assign(again=lambda d: 3 - d.age)
    with pytest.warns(UserWarning, match="not estimable beside the other columns: again"):
        found = fit(es.PooledCox("week ~ age + again", minimum=1), frame)
    without = fit(es.PooledCox("week ~ age", minimum=1), frame)
    assert np.isnan(found.coefficients.loc["again", "estimate"])
    np.testing.assert_allclose(
        found.coefficients.loc["age"], without.coefficients.loc["age"], rtol=1e-9
    )


def test_the_result_is_that_of_encrypted_counts() -> None:
    frame = cohort()
    schema = es.Schema.infer(frame, target="died", kinds={"week": "ordinal"})
    table = schema.with_kind("week", "ordinal", levels=range(1, 13)).table(frame)
    theirs = table.ask(es.CoxRegression("week", variables=["arm", "sex"]))
    found = es.PooledCox("week ~ arm + sex", minimum=1).run(table)
    for name in ("coefficients", "tests", "proportionality", "baseline", "hazard_ratios"):
        pd.testing.assert_frame_equal(
            getattr(found, name), getattr(theirs, name), rtol=1e-6, atol=1e-10, check_names=False
        )
    ratio = found.predict(frame[frame.arm == "b"][:1])
    link = found.coefficients["estimate"]
    sex = frame[frame.arm == "b"].sex.iloc[0]
    assert np.log(ratio[0]) == pytest.approx(link["arm[b]"] + (sex == "m") * link["sex[m]"])


@BOTH
def test_rounds_are_the_same_everywhere_and_as_few_as_announced(model: Any) -> None:
    frame = cohort()
    asked = model("week ~ age + bmi + arm", minimum=1)
    check_rounds_are_the_same(asked, schema_of(frame), frame)


@BOTH
def test_steps_of_few_rows_are_refused(model: Any) -> None:
    limits = RowLimits(minimum=10, per_number=0)
    with pytest.raises(es.DisclosureError, check=error("minimum-too-small")):
        fit(model("week ~ age", minimum=9), cohort(), limits=limits)
    fit(model("week ~ age + arm"), cohort(), limits=limits)
    frame = cohort()
    frame.loc[np.flatnonzero(frame.died == "yes")[4:], "died"] = "no"
    with pytest.raises(es.DisclosureError, check=error("small-count", "events")):
        fit(model("week ~ age"), frame, limits=limits)


@BOTH
def test_impossible_questions_are_refused(model: Any) -> None:
    frame = cohort()
    with pytest.raises(es.DataError, check=error("no-events")):
        model("week ~ age").run(schema_of(frame).table(frame[frame.died == "no"]))
    refused = {
        "no-predictors": model("week ~ 1"),
        "kept-as-number": model("days ~ age"),
        "duplicate-variables": model("week ~ arm", event="arm", event_level="a"),
        "event-not-named": model("week ~ age", event="arm"),
    }
    for code, asked in refused.items():
        with pytest.raises(ValueError, check=error(code)):
            fit(asked, frame)
