"""Ask models in rounds for sums over a single person, with every rule and without it.

Sites measure and add up as in a study, by its state machine, without masks.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from round_samples import in_rounds

import encryptedstats as es
from encryptedstats.procedures.pooled import family_regression, risk_sets
from encryptedstats.procedures.pooled.algebra import unpack
from encryptedstats.procedures.pooled.base import PooledRegression
from encryptedstats.procedures.pooled.covariates import Spread
from encryptedstats.procedures.pooled.cox_rounds import CoxRounds
from encryptedstats.procedures.pooled.families import FAMILIES, LINKS
from encryptedstats.procedures.pooled.kmeans import smallest_cut
from encryptedstats.procedures.pooled.site_rows import fisher_weights
from encryptedstats.procedures.site_procedure import RowLimits, SiteCourse, SiteProcedure
from error_codes import error

Patch = pytest.MonkeyPatch
N = 6000
PERSON = 1234


def people() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = np.where(rng.random(N) < 0.5, rng.integers(20, 37, N), rng.integers(38, 80, N))
    return pd.DataFrame(
        {
            "age": age,
            "pay": rng.integers(10, 99, N),
            "ward": rng.choice(["a", "b", "c"], N),
            "sex": rng.choice(["f", "m"], N),
            "visits": rng.poisson(3, N),
            "rare": rng.integers(0, 2, N),
        }
    )


FRAME = people()


def schema_of(frame: pd.DataFrame = FRAME, **options: Any) -> es.Schema:
    return es.Schema.infer(frame, numbers="keep", digits=0, **options)


def open_rounds(
    procedure: SiteProcedure,
    frame: pd.DataFrame,
    schema: es.Schema | None = None,
    most: int = 100,
) -> tuple[list[list[int]], SiteCourse]:
    """What everybody sees of three sites: the sums of all rounds, and where they end."""
    schema = schema or schema_of(frame)
    tables = [schema.table(frame[k::3]) for k in range(3)]
    course = SiteCourse(procedure.in_ids(schema), schema.public(), RowLimits())
    found: list[list[int]] = []
    while not course.is_done and course.number < most:
        parts = [course.measure(one) for one in tables]
        found.append([sum(column) for column in zip(*parts, strict=True)])
        course.take(found[-1])
    return found, course


# -- offsets --------------------------------------------------------------------------------------

OLDEST = es.PooledGLM("visits ~ pay + offset(0.8 * age)", family="poisson")


def pay_of_the_oldest() -> float:
    """Poisson weights are multiples of exp(offset): those of all others are nothing."""
    frame = FRAME.copy()
    frame.loc[PERSON, "age"] = 95
    schema = schema_of(frame)
    sums, course = open_rounds(OLDEST, frame, schema, most=4)
    fitted = sums[3]  # after rows, counts and the start
    (mean,), (sd,) = course.state["means"], course.state["sds"]
    ((middle, half),) = OLDEST.in_ids(schema)._covariates(schema).ranges(schema)
    return float((fitted[1] / fitted[0] * sd + mean) * half + middle)


def test_an_offset_that_leaves_one_person_is_refused(monkeypatch: Patch) -> None:
    with pytest.raises(es.ParameterError, check=error("offset-too-wide")):
        pay_of_the_oldest()
    monkeypatch.setattr(family_regression, "WIDEST_OFFSET", float("inf"))
    assert pay_of_the_oldest() == pytest.approx(FRAME["pay"][PERSON], abs=0.5)


def pay_of_the_most_exposed() -> float:
    """An exposure is an offset, too."""
    frame = FRAME.assign(days=1)
    frame.loc[PERSON, "days"] = 10**9
    schema = schema_of(frame).with_kind("days", "number", digits=0)
    asked = es.PooledGLM("visits ~ pay", family="poisson", exposure="days")
    sums, course = open_rounds(asked, frame, schema, most=4)
    (mean,), (sd,) = course.state["means"], course.state["sds"]
    ((middle, half),) = asked.in_ids(schema)._covariates(schema).ranges(schema)
    return float((sums[3][1] / sums[3][0] * sd + mean) * half + middle)


def test_an_exposure_that_leaves_one_person_is_refused(monkeypatch: Patch) -> None:
    with pytest.raises(es.ParameterError, check=error("offset-too-wide")):
        pay_of_the_most_exposed()
    monkeypatch.setattr(family_regression, "WIDEST_OFFSET", float("inf"))
    assert pay_of_the_most_exposed() == pytest.approx(FRAME["pay"][PERSON], abs=0.5)


# -- rows without a mean --------------------------------------------------------------------------

SQRT = es.PooledGLM("visits ~ pay", family="poisson", link="sqrt")


def test_a_round_without_a_mean_is_over_all_rows() -> None:
    """Weights of the link sqrt are 4, so sums of fewer rows would show who is missing."""
    frame = FRAME.copy()
    frame.loc[PERSON, "pay"] = 1
    schema = schema_of(frame)
    procedure, table = SQRT.in_ids(schema), schema.table(frame)
    course = SiteCourse(procedure, schema.public())
    for _ in range(3):
        course.take(course.measure(table))
    covariates, spread = procedure._covariates(schema), family_regression._spread(course.state)
    z = np.sort(covariates.standardise(covariates.rows(table)[0], spread, schema)[:, 1])
    state = {
        **course.state,
        "last": [1.0, 0.0],
        "beta": [-(z[0] + z[1]) / 2, 1.0],
    }  # below 0 for one person
    sums = procedure.measure(state, table)
    assert procedure.step(state, sums, schema)["halved"]
    assert sums[0] / 2**40 == pytest.approx(4 * N, abs=1e-6)


# -- false counts ---------------------------------------------------------------------------------


def followed() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    week = rng.integers(1, 5, N)
    return FRAME.assign(week=week, died=rng.choice(["no", "yes"], N))


@pytest.mark.parametrize("model", [es.PooledCox, es.PooledCoxNet])
def test_false_counts_of_events_do_not_keep_sites_busy(model: Any) -> None:
    """Ties take as many steps as there are events: sites would add up for ever."""
    schema = schema_of(followed(), target="died").with_kind("week", "ordinal", levels=range(1, 5))
    course = SiteCourse(model("week ~ age").in_ids(schema), schema.public(), RowLimits(most_rows=N))
    table = schema.table(followed())
    course.take(course.measure(table))
    sums = course.measure(table)
    for place in (5, 6):  # rows, leaving by week, events by week
        false = [*sums]
        false[place] += 1 << 62
        with pytest.raises(es.DataError, check=error("impossible-counts")):
            course.take(false)
    course.take(sums)


def test_more_rows_than_the_study_was_planned_for_are_not_believed() -> None:
    """A site that invents rows would make few rows look enough for many numbers."""
    schema = schema_of()
    procedure = es.PooledKMeans(2, ["age"]).in_ids(schema)
    course = SiteCourse(procedure, schema.public(), RowLimits(most_rows=N))
    with pytest.raises(es.StudyError, check=error("impossible-row-count")):
        course.take([N + 1, 0])
    course.take([N, 0])


# -- steps of risk sets -----------------------------------------------------------------------------


def cohort() -> pd.DataFrame:
    """Rows that leave in each of four weeks, with the event or without."""
    frame = followed()[["age", "ward", "week", "died"]]
    frame.loc[PERSON, ["ward", "week"]] = ["c", 2]
    return frame


def sums_at_steps(asked: es.PooledCox, frame: pd.DataFrame, most: int) -> dict[str, Any]:
    """The last sums that are opened, over columns in their own units after the intercept: over all
    events, and by step over rows at risk and over events. And the coefficients.
    """
    schema = schema_of(frame, target="died").with_kind("week", "ordinal", levels=range(1, 5))
    sums, course = open_rounds(asked, frame, schema, most)
    covariates = asked.in_ids(schema)._covariates(schema)
    units = covariates.to_own_units(Spread(course.state["means"], course.state["sds"]), schema)
    values, k = [one / 2**40 for one in sums[-1][:-1]], covariates.n - 1
    count = frame["died"].eq("yes").sum()
    lines = np.array([count, *values[:k], *values[k:]]).reshape(-1, k + 1) @ np.linalg.inv(units)
    n = len(course.state["starts"])
    return {
        "events": lines[0],
        "at risk": lines[1 : n + 1],
        "at event": lines[n + 1 :],
        "beta": units @ [0.0, *course.state["beta"]],
    }


def age_of_the_censored() -> float:
    """All rows that leave in week 2 have the event, but one: less sums over events, its own."""
    frame = cohort().assign(died=lambda d: d["died"].mask(d["week"] == 2, "yes"))
    frame.loc[PERSON, "died"] = "no"
    sums = sums_at_steps(es.PooledCox("week ~ age"), frame, most=3)
    return float((sums["at risk"][1] - sums["at risk"][2] - sums["at event"][1])[1])


def age_of_the_only_event() -> float:
    """The sum over all events, less those of the weeks with many, is of week 2 with one."""
    frame = cohort().assign(died=lambda d: d["died"].mask(d["week"] == 2, "no"))
    frame.loc[PERSON, "died"] = "yes"
    sums = sums_at_steps(es.PooledCox("week ~ age"), frame, most=3)
    return float((sums["events"] - sums["at event"].sum(axis=0))[1])


def age_of_the_one_of_ward_c(ties: str) -> float:
    """One row of ward c leaves in week 2: its weight in the second step tells its age."""
    frame = cohort()
    frame["died"] = np.where(frame["age"] % 7 < frame["age"] // 15, "yes", "no")
    others = (frame["week"] == 2) & (frame["ward"] == "c") & (frame.index != PERSON)
    frame["ward"] = frame["ward"].mask(others, "a")
    sums = sums_at_steps(es.PooledCox("week ~ age + ward", ties=ties), frame, most=5)
    weight = (sums["at risk"][1] - sums["at risk"][2])[3]
    start, of_age, _, of_c = sums["beta"]
    return float((np.log(weight) - start - of_c) / of_age)


def age_of_the_woman_in_ward_c() -> float:
    """Of two steps, products of columns follow from the last round, which opens two weighted sums
    of them: one woman of ward c leaves in the first.
    """
    frame = cohort().assign(sex=FRAME["sex"])
    frame["week"] = np.where(frame["week"] < 3, 1, 4)
    frame["died"] = np.where(frame["age"] % 7 < frame["age"] // 15, "yes", "no")
    frame.loc[PERSON, ["ward", "sex"]] = ["c", "f"]
    in_cell = (frame[["week", "ward", "sex"]] == [1, "c", "f"]).all(axis=1)
    frame.loc[in_cell & (frame.index != PERSON), "sex"] = "m"
    schema = schema_of(frame, target="died").with_kind("week", "ordinal", levels=range(1, 5))
    asked = es.PooledCox("week ~ age + ward + sex", ties="breslow")
    sums, course = open_rounds(asked, frame, schema)
    state, covariates = course.state, asked.in_ids(schema)._covariates(schema)
    k = covariates.n - 1
    at_steps, last = ([one / 2**40 for one in opened[:-1]] for opened in sums[-2:])
    risk = np.array(at_steps[k:]).reshape(-1, k + 1)
    weights = np.cumsum([np.array(state["at_risk"]) * np.array(state["g"]) ** p for p in (0, 1)], 1)
    size = k * (k + 1) // 2
    both = np.array([np.ravel(unpack(last[p * size :][:size], k)) for p in (0, 1)])
    leaving = np.empty((k + 1, k + 1))
    leaving[0] = leaving[:, 0] = risk[0] - risk[1]
    leaving[1:, 1:] = np.linalg.solve(weights, both)[0].reshape(k, k)
    units = covariates.to_own_units(Spread(state["means"], state["sds"]), schema)
    own = np.linalg.inv(units).T @ leaving @ np.linalg.inv(units)
    start, of_age, _, of_c, _ = units @ [0.0, *state["beta"]]
    return float((np.log(own[3, 3] - own[3, 4]) - start - of_c) / of_age)


@pytest.mark.parametrize(
    "age",
    [
        age_of_the_woman_in_ward_c,
        age_of_the_censored,
        age_of_the_only_event,
        partial(age_of_the_one_of_ward_c, "efron"),
        partial(age_of_the_one_of_ward_c, "breslow"),
    ],
)
def test_sums_at_steps_are_over_many_of_every_kind(age: Any, monkeypatch: Patch) -> None:
    """Rows with the event and without, and of every level: times are merged until they are."""
    with suppress(IndexError):  # where all times are one step
        assert abs(age() - FRAME["age"][PERSON]) > 1
    monkeypatch.setattr(risk_sets, "_are_hidden", lambda counts, minimum: True)
    assert age() == pytest.approx(FRAME["age"][PERSON], abs=1e-3)


def age_of_the_survivor() -> float:
    """Columns sum to zero over all rows, so the sum over events is that over the others."""
    frame = cohort().assign(died="yes")
    frame.loc[PERSON, "died"] = "no"
    asked = es.PooledCox("week ~ age", ties="breslow")
    return float(FRAME["age"].sum() - sums_at_steps(asked, frame, most=3)["events"][1])


def test_rows_without_the_event_are_counted(monkeypatch: Patch) -> None:
    with pytest.raises(es.DisclosureError, check=error("small-count", "no event")):
        age_of_the_survivor()
    monkeypatch.setattr(PooledRegression, "_check_cells", lambda *given: None)
    assert age_of_the_survivor() == pytest.approx(FRAME["age"][PERSON], abs=1e-3)


# -- two grids of time ----------------------------------------------------------------------------


def early() -> tuple[pd.DataFrame, es.Schema]:
    """Ten people leave in the first week, and one in the second."""
    frame = followed().assign(week=lambda d: 3 + d["week"] % 2)
    others = frame.index[frame.index != PERSON]
    frame.loc[others[:10], "week"] = 1
    frame.loc[PERSON, ["week", "died"]] = [2, "yes"]
    return frame, with_weeks(frame, "week")


def few_of_ward_c() -> tuple[pd.DataFrame, es.Schema]:
    """One row leaves in the second week, of ward c, of which nine leave in the first."""
    frame = cohort()
    frame["week"] = frame["week"].mask((frame["week"] == 2) & (frame.index != PERSON), 1)
    in_c = frame.index[(frame["week"] == 1) & (frame["ward"] == "c")]
    frame.loc[in_c[9:], "ward"] = "a"
    return frame, with_weeks(frame, "week")


def with_relapse() -> tuple[pd.DataFrame, es.Schema]:
    """One person has a relapse before she dies."""
    frame = followed().assign(relapse=lambda d: d["week"])
    frame.loc[PERSON, ["relapse", "week"]] = [1, 2]
    return frame, with_weeks(frame, "week", "relapse")


def with_weeks(frame: pd.DataFrame, *times: str) -> es.Schema:
    schema = schema_of(frame, target="died")
    for time in times:
        schema = schema.with_kind(time, "ordinal", levels=range(1, 5))
    return schema


def sums_by_step(
    asked: SiteProcedure, frame: pd.DataFrame, schema: es.Schema
) -> tuple[np.ndarray[Any, Any], tuple[float, float]]:
    """What is summed over each risk set at the start, and how ages are standardised."""
    sums, course = open_rounds(asked, frame, schema, most=3)
    k = asked.in_ids(schema).n_parameters(schema.public())
    lines = np.array(sums[2][k:-1], dtype=float) / 2**40
    age = course.state["means"][0], course.state["sds"][0]
    return lines[: len(course.state["starts"]) * (k + 1)].reshape(-1, k + 1), age


def age_between(
    one: SiteProcedure, other: SiteProcedure, frame: pd.DataFrame, schema: es.Schema
) -> float:
    """The age of who leaves between the second steps of two grids."""
    first, (mean, sd) = sums_by_step(one, frame, schema)
    second, _ = sums_by_step(other, frame, schema)
    n, z = first[1, :2] - second[1, :2]
    assert n == 1
    ((middle, half), *_) = one.in_ids(schema)._covariates(schema).ranges(schema)
    return float((z * sd + mean) * half + middle)


BRESLOW: dict[str, Any] = {"ties": "breslow", "max_iterations": 2}
NARROW = es.PooledCox("week ~ age + pay", minimum=11, **BRESLOW)
GRIDS: dict[str, tuple[Any, SiteProcedure, SiteProcedure]] = {
    "minimum": (early, es.PooledCox("week ~ age", **BRESLOW), NARROW),
    "model": (early, es.PooledCoxNet("week ~ age", max_iterations=2), NARROW),
    "factors": (
        few_of_ward_c,
        es.PooledCox("week ~ age", **BRESLOW),
        es.PooledCox("week ~ age + ward", **BRESLOW),
    ),
    "times": (
        with_relapse,
        es.PooledCoxNet("week ~ age", max_iterations=2),
        es.PooledCoxNet("relapse ~ age", max_iterations=2),
    ),
}


def study_of(folder: Path, schema: es.Schema, *asked: SiteProcedure) -> es.Study:
    questions = {f"q{k}": one for k, one in enumerate(asked)}
    return in_rounds(folder, questions, schema=schema, n_rows=N).created


@pytest.mark.parametrize("case", GRIDS)
def test_two_grids_tell_who_is_between_them(tmp_path: Path, monkeypatch: Patch, case: str) -> None:
    make, one, other = GRIDS[case]
    frame, schema = make()
    with pytest.raises(es.ParameterError, check=error("other-steps")):
        study_of(tmp_path / "refused", schema, one, other)
    monkeypatch.setattr(CoxRounds, "agrees_on", lambda self, schema: {})
    study_of(tmp_path / "made", schema, one, other)
    found = age_between(one, other, frame, schema)
    assert found == pytest.approx(FRAME["age"][PERSON], abs=1e-6)


def test_regressions_of_a_study_have_one_grid(tmp_path: Path) -> None:
    """Breslow's steps do not depend on the events, and Efron's do."""
    schema = early()[1]
    efron, net = es.PooledCox("week ~ age", max_iterations=2), es.PooledCoxNet("week ~ age + pay")
    with pytest.raises(es.ParameterError, check=error("other-steps")):
        study_of(tmp_path / "efron", schema, efron, net)
    by_sex = {"event": "sex", "event_level": "m", "max_iterations": 2}
    with pytest.raises(es.ParameterError, check=error("other-steps")):
        study_of(tmp_path / "events", schema, efron, es.PooledCox("week ~ age", **by_sex))
    breslow = es.PooledCox("week ~ age", **BRESLOW)
    other = es.PooledCox("week ~ age", **{**BRESLOW, **by_sex})
    net = es.PooledCoxNet("week ~ age", max_iterations=2)
    made = study_of(tmp_path / "made", schema, breslow, other, net)
    assert len(made.document.procedures) == 3


# -- products of two columns ----------------------------------------------------------------------


def products_at_the_start(formula: str, frame: pd.DataFrame, schema: es.Schema) -> pd.DataFrame:
    """X'WX of the columns in their own units, from what is opened: W is visits + 0.1."""
    procedure = es.PooledGLM(formula, family="poisson")
    sums, course = open_rounds(procedure, frame, schema, most=3)
    covariates = procedure.in_ids(schema)._covariates(schema)
    n = covariates.n
    standard = np.array(unpack([one / 2**40 for one in sums[2][: n * (n + 1) // 2]], n))
    spread = family_regression._spread(course.state)
    back = np.linalg.inv(covariates.to_own_units(spread, schema)).T
    names = covariates.made.names(schema)
    return pd.DataFrame(back @ standard @ back.T, names, names)


def visits_of_the_woman_in_ward_c() -> float:
    """Weights of the Poisson start are visits + 0.1, and X'WX has the product of two factors."""
    frame = FRAME.copy()
    frame.loc[(frame["ward"] == "c") & (frame.index != PERSON), "sex"] = "m"
    frame.loc[PERSON, ["ward", "sex"]] = ["c", "f"]
    found = products_at_the_start("visits ~ ward + sex", frame, schema_of(frame))
    return float(found.loc["ward[c]", "ward[c]"] - found.loc["ward[c]", "sex[m]"] - 0.1)


def test_a_cell_of_two_factors_is_counted(monkeypatch: Patch) -> None:
    """Also where no term has them together."""
    with pytest.raises(es.DisclosureError, check=error("small-count")):
        visits_of_the_woman_in_ward_c()
    monkeypatch.setattr(PooledRegression, "_check_cells", lambda *given: None)
    assert visits_of_the_woman_in_ward_c() == pytest.approx(FRAME["visits"][PERSON], abs=1e-6)


def age_of_the_ill_in_ward_c(link: str) -> float:
    """R's start gives all rows of an outcome one weight and one residual: scores and products are
    sums over rows with it, and over rows without.
    """
    frame = followed()[["age", "ward", "died"]].copy()
    frame.loc[frame["ward"] == "c", "died"] = "no"
    frame.loc[PERSON, ["ward", "died"]] = ["c", "yes"]
    schema = schema_of(frame, target="died")
    if link == "cloglog":  # of which another model of the same study opens what this takes away
        whole = float(frame["age"][frame["ward"] == "c"].sum())
        formula, first, second = "died ~ ward + age", "ward[c]", "age"
    else:
        formula, first, second = "died ~ ward / age", "(Intercept)", "ward[c]:age"
    asked = es.PooledGLM(formula, link=link)
    sums, course = open_rounds(asked, frame, schema, most=3)
    covariates = asked.in_ids(schema)._covariates(schema)
    n, values = covariates.n, [one / 2**40 for one in sums[2][:-1]]
    spread = family_regression._spread(course.state)
    back = np.linalg.inv(covariates.to_own_units(spread, schema)).T
    products = back @ np.array(unpack(values[: n * (n + 1) // 2], n)) @ back.T
    score = back @ values[n * (n + 1) // 2 :][:n]
    names = covariates.made.names(schema)
    of_link, of_family = LINKS[link], FAMILIES["binomial"]
    eta = of_link.apply(np.array([0.25, 0.75]))  # without the event, and with it
    weights, slopes = fisher_weights(of_family, of_link, eta, of_link.invert(eta))
    if link == "cloglog":
        both = products[names.index(first), names.index(second)]
        return float((both - weights[0] * whole) / (weights[1] - weights[0]))
    residual = weights[1] * (0.25 / slopes[1] + eta[1])
    whole = products[names.index(first), names.index(second)] / weights[0]
    return float((score[names.index(second)] / residual + whole) / 2)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_outcomes_of_a_level_are_counted_where_numbers_are_summed(
    link: str, monkeypatch: Patch
) -> None:
    with pytest.raises(es.DisclosureError, check=error("small-count", "event")):
        age_of_the_ill_in_ward_c(link)
    monkeypatch.setattr(PooledRegression, "_check_cells", lambda *given: None)
    assert age_of_the_ill_in_ward_c(link) == pytest.approx(FRAME["age"][PERSON], abs=1e-3)


def test_limit_a_number_that_is_other_than_zero_in_one_row_is_that_row() -> None:
    """Levels are counted, and values of numbers are not: sums over them are of their rows."""
    frame = FRAME.assign(rare=0)
    frame.loc[PERSON, "rare"] = 1
    schema = schema_of(frame).with_kind("rare", "number", digits=0)
    found = products_at_the_start("visits ~ rare", frame, schema)
    assert found.loc["rare", "rare"] - 0.1 == pytest.approx(FRAME["visits"][PERSON], abs=1e-6)


def test_limit_a_high_power_of_the_largest_number_is_of_its_row() -> None:
    """Nobody else is near 119, so the sum of powers over all rows is that of one."""
    frame = FRAME.copy()
    frame.loc[PERSON, "age"] = 119
    found = products_at_the_start("visits ~ I(age^16)", frame, schema_of(frame))
    shared = found.loc["I(age^16)", "I(age^16)"] / 119.0**32
    assert shared - 0.1 == pytest.approx(FRAME["visits"][PERSON], abs=0.1)


def test_limit_two_models_differ_by_the_rows_that_one_of_them_leaves_out() -> None:
    """Age is missing for one person, whose visits are in one sum of two."""
    frame = FRAME.astype({"age": float})
    frame.loc[PERSON, "age"] = np.nan
    schema = schema_of(frame, missing="bin")
    one, other = (
        open_rounds(es.PooledGLM(formula, family="poisson"), frame, schema, most=2)[0][1]
        for formula in ("visits ~ pay", "visits ~ pay + age")
    )
    assert one[0] - other[0] == 1
    assert (one[1] - other[1]) / 2**40 == FRAME["visits"][PERSON]


def test_limit_a_bin_of_a_node_tells_the_outcome_of_its_only_row() -> None:
    """Bins have many rows, and those of a node may have one."""
    frame = FRAME[["ward", "sex"]].copy()
    in_c, few = frame["ward"] == "c", frame.index % 5 == 0
    frame["ill"] = np.where(in_c != few, "yes", "no")
    frame.loc[in_c, "sex"] = "m"
    frame.loc[PERSON, ["ward", "sex", "ill"]] = ["c", "f", "yes"]
    schema = es.Schema.infer(frame, target="ill")
    sums, course = open_rounds(es.PooledBoosting(n_trees=1, depth=2), frame, schema)
    gradients, _, rows = np.array(sums[3][:-1], dtype=float).reshape(3, 4)  # of ward c
    assert rows.tolist() == [(frame["ward"] == "c").sum(), 0, 0, 1]
    share = 1 / (1 + np.exp(-course.state["base"]))
    assert share - gradients[3] / 2**40 == pytest.approx(1.0)


def test_limit_two_models_differ_by_the_rows_of_which_one_factor_says_otherwise() -> None:
    frame = FRAME.assign(again=FRAME["ward"])
    frame.loc[PERSON, ["ward", "again"]] = ["c", "b"]
    schema = schema_of(frame)
    one, other = (
        products_at_the_start(f"visits ~ {factor}", frame, schema).iloc[2, 2]
        for factor in ("ward", "again")
    )
    assert one - other - 0.1 == pytest.approx(FRAME["visits"][PERSON], abs=1e-6)


# -- rows that move between clusters ---------------------------------------------------------------


def test_one_row_between_pairs_of_clusters_ends_the_rounds() -> None:
    """Many rows move within two pairs, and one from pair to pair: the sum of a pair tells it."""
    schema = schema_of()
    procedure = es.PooledKMeans(4, ["age"]).in_ids(schema)
    flows = {(0, 1): 12, (2, 3): 12, (1, 2): 1}
    before = {"stage": "moves", "iterations": 1, "last": [], "sizes": [50] * 4}
    opened = [50] * 4 + [flows.get(pair, 0) for pair in combinations(range(4), 2)]
    assert procedure.step(before, opened, schema)["stage"] == "done"
    many = [50] * 4 + [12 * (pair in flows) for pair in combinations(range(4), 2)]
    assert procedure.step(before, many, schema)["stage"] == "sums"


def test_the_smallest_cut_is_that_of_all_groups_of_clusters() -> None:
    rng = np.random.default_rng(3)
    for n in (2, 3, 4, 5, 6):
        pairs = list(combinations(range(n), 2))
        for _ in range(40):
            flows = [int(one) for one in rng.integers(0, 5, len(pairs)) * rng.integers(0, 2)]
            flows = [one * int(rng.random() < 0.5) for one in flows]
            cuts = [
                sum(f for f, (a, b) in zip(flows, pairs, strict=True) if (a in s) != (b in s))
                for size in range(1, n)
                for s in combinations(range(n), size)
            ]
            assert smallest_cut(flows, n) == min([one for one in cuts if one], default=0)


def clusterings(variables: list[str]) -> dict[str, es.PooledKMeans]:
    return {
        f"{variables[-1]} {seed}": es.PooledKMeans(2, variables, seed=seed, max_iterations=1)
        for seed in range(25)
    }


def pay_between_two_clusterings() -> set[int]:
    """Of two starts, what sums over their first clusters tell of one person."""
    rng = np.random.default_rng(11)
    frame = pd.DataFrame({"pay": rng.choice(1 << 20, 1000, replace=False), "same": 1})
    schema = schema_of(frame).with_kind("same", "number", digits=0)
    found: dict[int, int] = {}
    told: set[int] = set()
    for asked in [*clusterings(["pay"]).values(), *clusterings(["pay", "same"]).values()]:
        try:
            sums, _ = open_rounds(asked, frame, schema)
        except es.EncryptedStatsError:  # a start with few rows
            continue
        totals = sums[3][:: len(asked.variables or ())]
        size, total = max(zip(sums[2][:2], totals[:2], strict=True))
        told |= {abs(total - found[near]) for near in (size - 1, size + 1) if near in found}
        found[size] = total
    return told & set(frame["pay"])


@pytest.mark.filterwarnings("ignore::encryptedstats.SchemaWarning")
def test_a_study_has_one_clustering(tmp_path: Path, monkeypatch: Patch) -> None:
    """The document says where two start, and nothing counts the rows between them."""
    schema = schema_of(FRAME)
    two = {"one": es.PooledKMeans(2, ["pay"]), "other": es.PooledKMeans(2, ["pay", "visits"])}
    with pytest.raises(es.ParameterError, check=error("repeated-procedure")):
        in_rounds(tmp_path / "rule", two, schema=schema, n_rows=N)
    monkeypatch.setattr(es.PooledKMeans, "fits", lambda self, schema: self._positions(schema))
    in_rounds(tmp_path / "without", two, schema=schema, n_rows=N)
    assert pay_between_two_clusterings()
