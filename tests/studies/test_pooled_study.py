"""Regressions that converge across the sites of a study are those of all rows together."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from round_samples import Rounds, in_rounds

import encryptedstats as es
from error_codes import error

SITES = ("north", "south", "west")
N = 3000


def patients() -> pd.DataFrame:
    rng = np.random.default_rng(34)
    age, arm = rng.integers(20, 80, N), rng.choice(["a", "b", "c"], N)
    dose = np.round(rng.normal(3, 1, N), 2)
    risk = 1 / (1 + np.exp(4 - 0.05 * age - 0.6 * (arm == "b") - 0.2 * dose))
    ill = np.where(rng.random(N) < risk, "yes", "no")
    return pd.DataFrame({"age": age, "arm": arm, "dose": dose, "ill": ill})


FRAME = patients()
SCHEMA = es.Schema.infer(FRAME, target="ill", numbers="keep")
LOGISTIC = es.PooledGLM("ill ~ age + arm + dose", max_iterations=8, epsilon=1e-12)


def at_sites(folder: Path, frame: pd.DataFrame = FRAME, **options: object) -> Rounds:
    made = in_rounds(folder, {"fit": (LOGISTIC, "rounds")}, schema=SCHEMA, n_rows=5000, **options)
    made.frames = {site: frame[k::3].reset_index(drop=True) for k, site in enumerate(SITES)}
    return made


def test_logistic_regression_at_three_sites_is_that_of_all_rows(tmp_path: Path) -> None:
    made = at_sites(tmp_path / "w")
    found = made.run()["fit"]
    x = pd.DataFrame(
        {
            "(Intercept)": 1.0,
            "age": FRAME["age"],
            "arm[b]": (FRAME["arm"] == "b") * 1.0,
            "arm[c]": (FRAME["arm"] == "c") * 1.0,
            "dose": FRAME["dose"],
        }
    )
    family = sm.families.Binomial()
    expected = sm.GLM(FRAME["ill"] == "yes", x, family=family).fit(tol=1e-14, maxiter=50)
    table = found.coefficients
    for name in x:
        assert table["estimate"][name] == pytest.approx(expected.params[name], rel=1e-7)
        assert table["std_error"][name] == pytest.approx(expected.bse[name], rel=1e-7)
    assert found.converged
    assert found.n_rows == N
    assert found.deviance == pytest.approx(expected.deviance, rel=1e-9)
    again = made.as_("north").open()["fit"]
    assert again.coefficients.equals(table)
    kept = made.as_("registry").open()["fit"]
    assert kept.coefficients.equals(table)


def test_a_level_of_few_people_stops_before_any_coefficient(tmp_path: Path) -> None:
    frame = FRAME.copy()
    frame.loc[(frame["arm"] == "c") & (frame.index > 40), "arm"] = "a"
    n = int((frame["arm"] == "c").sum())
    assert 0 < n < 20
    made = at_sites(tmp_path / "w", frame, minimum=20)
    assert made.run() == {}
    run = es.Study(made.url).state().runs["fit"]
    assert set(run.stopped.values()) == {"small-count"}
    assert len(run.sums) == 2  # the rows, and their counts


def test_one_regression_for_a_set_of_covariates(tmp_path: Path) -> None:
    other = es.PooledGLM("ill ~ dose + arm + age", max_iterations=5)
    asked = {"one": (LOGISTIC, "rounds"), "other": (other, "rounds")}
    with pytest.raises(es.ParameterError, check=error("repeated-procedure")):
        in_rounds(tmp_path / "w", asked, schema=SCHEMA, n_rows=50_000)


def test_a_plan_says_how_many_rows_a_study_needs(tmp_path: Path) -> None:
    plan = LOGISTIC.plan(SCHEMA)
    assert (plan.n_parameters, plan.at_most) == (5, 10)
    assert plan.n_rows == 10 * plan.n_opened
    assert f"at least {plan.n_rows:,} of all sites together" in str(plan)
    asked = {"fit": LOGISTIC}
    with pytest.raises(
        es.DisclosureError, check=error("too-few-rows-for-rounds", f"{plan.n_rows:,} of all")
    ):
        in_rounds(tmp_path / "refused", asked, schema=SCHEMA, n_rows=plan.n_rows - 1)
    made = in_rounds(tmp_path / "w", asked, schema=SCHEMA, n_rows=plan.n_rows)
    assert made.created.document.rows_needed == plan.n_rows
    assert f"needs      {plan.n_rows:,} rows" in str(made.created.status())


def test_too_few_rows_are_refused_with_what_would_do(tmp_path: Path) -> None:
    clusters = es.PooledKMeans(2, ["age", "dose"], max_iterations=2)
    schema = es.Schema.infer(FRAME, target="ill", numbers="keep")
    rows = LOGISTIC.plan(schema).n_rows + clusters.plan(schema).n_rows - 300
    with pytest.raises(es.DisclosureError, check=error("too-few-rows-for-rounds")) as refused:
        in_rounds(tmp_path / "refused", {"a": LOGISTIC, "b": clusters}, schema=schema, n_rows=rows)
    found = re.search(r"PooledGLM with max_iterations=(\d+) in place of 8", str(refused.value))
    assert found is not None
    fewer = int(found[1])
    for more in (0, 1):
        first = replace(LOGISTIC, max_iterations=fewer + more)
        asked = {"a": first, "b": clusters}
        needed = first.plan(schema).n_rows + clusters.plan(schema).n_rows
        assert (needed <= rows) == (more == 0)
        if not more:
            in_rounds(tmp_path / "w", asked, schema=schema, n_rows=rows)


def test_what_sites_compute_needs_no_keys() -> None:
    with pytest.raises(es.ParameterError, check=error("needs-no-keys")):
        es.plan(LOGISTIC, SCHEMA, 3000)


def followed() -> pd.DataFrame:
    """The same people, with weeks until they died or left."""
    rng = np.random.default_rng(43)
    week = np.minimum(10, 1 + rng.exponential(6, N) // 1).astype(int)
    return FRAME.assign(week=week, died=np.where((week < 10) & (rng.random(N) < 0.7), "yes", "no"))


OTHERS = {
    "cox": (
        es.PooledCox("week ~ age", max_iterations=4),
        es.Schema.infer(followed(), target="died", numbers="keep").with_kind(
            "week", "ordinal", levels=range(1, 11)
        ),
        followed(),
    ),
    "cox_net": (
        es.PooledCoxNet("week ~ age", alpha=0.05, max_iterations=4),
        es.Schema.infer(followed(), target="died", numbers="keep").with_kind(
            "week", "ordinal", levels=range(1, 11)
        ),
        followed(),
    ),
    "enet": (
        es.PooledElasticNet("dose ~ age + arm", alpha=0.1, max_iterations=3),
        es.Schema.infer(FRAME, numbers="keep"),
        FRAME,
    ),
    "poisson": (
        es.PooledGLM("age ~ dose + arm", family="poisson", max_iterations=6),
        es.Schema.infer(FRAME, numbers="keep"),
        FRAME,
    ),
    "clusters": (
        es.PooledKMeans(2, ["age", "dose"], max_iterations=4),
        es.Schema.infer(FRAME, numbers="keep"),
        FRAME,
    ),
    "boosting": (
        es.PooledBoosting(n_trees=2, depth=1, variables=["age", "dose"]),
        es.Schema.infer(FRAME, target="ill", bins=4),
        FRAME,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_all_procedures_give_in_a_study_what_they_give_in_the_clear(
    tmp_path: Path, name: str
) -> None:
    procedure, schema, frame = OTHERS[name]
    made = in_rounds(tmp_path / "w", {name: procedure}, schema=schema, n_rows=3000)
    made.frames = {site: frame[k::3].reset_index(drop=True) for k, site in enumerate(SITES)}
    expected = procedure.run([schema.table(made.frames[site]) for site in SITES])
    found = made.run()
    assert name in found, es.Study(made.url).status()
    assert found[name].to_dict() == expected.to_dict()
