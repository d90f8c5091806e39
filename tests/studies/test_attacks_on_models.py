"""Ask models in rounds for sums over a single person, with every rule and without it.

Sites measure and add up as in a study, by its state machine, without masks.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import encryptedstats as es
from encryptedstats.procedures.pooled import family_regression
from encryptedstats.procedures.pooled.algebra import unpack
from encryptedstats.procedures.pooled.base import PooledRegression
from encryptedstats.procedures.pooled.cox_rounds import CoxRounds
from encryptedstats.procedures.pooled.kmeans import smallest_cut
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


# -- two grids of one time ------------------------------------------------------------------------


def early() -> tuple[pd.DataFrame, es.Schema]:
    """Ten people leave in the first week, and one in the second."""
    frame = followed().assign(week=lambda d: 3 + d["week"] % 2)
    others = frame.index[frame.index != PERSON]
    frame.loc[others[:10], "week"] = 1
    frame.loc[PERSON, ["week", "died"]] = [2, "yes"]
    schema = schema_of(frame, target="died").with_kind("week", "ordinal", levels=range(1, 5))
    return frame, schema


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


GRIDS = {
    "minimum": (
        es.PooledCox("week ~ age", ties="breslow", max_iterations=2),
        es.PooledCox("week ~ age + pay", ties="breslow", minimum=11, max_iterations=2),
    ),
    "model": (
        es.PooledCoxNet("week ~ age", max_iterations=2),
        es.PooledCox("week ~ age + pay", ties="breslow", minimum=11, max_iterations=2),
    ),
}


def study_of(folder: Path, *asked: SiteProcedure) -> es.Study:
    return es.Study.create(
        folder,
        schema=early()[1],
        questions={f"q{k}": one for k, one in enumerate(asked)},
        n_rows=N,
        sites=["north", "south", "west"],
        worker="centre",
        receiver="registry",
    )


@pytest.mark.parametrize("case", GRIDS)
def test_two_grids_of_one_time_tell_who_is_between_them(
    tmp_path: Path, monkeypatch: Patch, case: str
) -> None:
    one, other = GRIDS[case]
    with pytest.raises(es.ParameterError, check=error("other-steps")):
        study_of(tmp_path / "refused", one, other)
    monkeypatch.setattr(CoxRounds, "agrees_on", lambda self, schema: {})
    study_of(tmp_path / "made", one, other)
    assert age_between(one, other, *early()) == pytest.approx(FRAME["age"][PERSON], abs=1e-6)


def test_regressions_of_one_time_have_one_grid(tmp_path: Path) -> None:
    """Breslow's steps do not depend on the events, and Efron's do."""
    efron, net = es.PooledCox("week ~ age", max_iterations=2), es.PooledCoxNet("week ~ age + pay")
    with pytest.raises(es.ParameterError, check=error("other-steps")):
        study_of(tmp_path / "efron", efron, net)
    by_sex = {"event": "sex", "event_level": "m", "max_iterations": 2}
    with pytest.raises(es.ParameterError, check=error("other-steps")):
        study_of(tmp_path / "events", efron, es.PooledCox("week ~ age", **by_sex))
    breslow = es.PooledCox("week ~ age", ties="breslow", max_iterations=2)
    other = es.PooledCox("week ~ age", ties="breslow", **by_sex)
    net = es.PooledCoxNet("week ~ age", max_iterations=2)
    assert len(study_of(tmp_path / "made", breslow, other, net).document.procedures) == 3


def test_limit_two_times_differ_by_who_is_between_them() -> None:
    """One person has a relapse before she dies: the two have grids of their own."""
    frame = followed().assign(relapse=lambda d: d["week"])
    frame.loc[PERSON, ["relapse", "week"]] = [1, 2]
    schema = schema_of(frame, target="died")
    for time in ("week", "relapse"):
        schema = schema.with_kind(time, "ordinal", levels=range(1, 5))
    one, other = (es.PooledCoxNet(f"{time} ~ age") for time in ("week", "relapse"))
    found = age_between(one, other, frame, schema)
    assert found == pytest.approx(FRAME["age"][PERSON], abs=1e-6)


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


def test_limit_a_number_that_is_other_than_zero_in_one_row_is_that_row() -> None:
    """Levels are counted, and values of numbers are not: sums over them are of their rows."""
    frame = FRAME.assign(rare=0)
    frame.loc[PERSON, "rare"] = 1
    schema = schema_of(frame).with_kind("rare", "number", digits=0)
    found = products_at_the_start("visits ~ rare", frame, schema)
    assert found.loc["rare", "rare"] - 0.1 == pytest.approx(FRAME["visits"][PERSON], abs=1e-6)


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
