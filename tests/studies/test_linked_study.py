"""Linked columns: what is asked of the columns of two sites equals what the joined table gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from link_samples import (
    COLUMNS,
    EVERYBODY,
    HOSPITAL,
    JOINED,
    KEYS,
    KINDS,
    LINKAGES,
    REGISTRY,
    ROWS,
    SCHEMA,
    LinkedWorld,
    linked_world,
)
from study_samples import killed_at
from test_study_kills import until_done

import encryptedstats as es
from encryptedstats.studies.representativeness import compare_linked
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
BINNED = ["age", "sex", "stage"]
FOREST = es.CompletelyRandomForest(n_trees=3, depth=2, random_state=1, variables=BINNED)
QUESTIONS: dict[str, es.Question] = {
    "forest": FOREST,
    "bayes": es.MultinomialNB(variables=BINNED),
    "pairs": es.AODE(variables=BINNED),
    "linear": es.LinearRegression("bmi ~ age + stage"),
    "glm": es.GLM("ill ~ age + stage"),
    "table": es.ChiSquare("age", "stage"),
    "ttest": es.TTest("bmi", by="ill"),
    "means": es.FisherDiscriminant(variables=BINNED),
}
BAYES = {"bayes": QUESTIONS["bayes"]}


def source_of(found: Any) -> Any:
    return found.answer_ if hasattr(found, "answer_") else found.source


def check(found: dict[str, Any], questions: dict[str, es.Question], joined: pd.DataFrame) -> None:
    clear = SCHEMA.table(joined)
    assert set(found) == set(questions)
    for name, question in questions.items():
        opened, expected = source_of(found[name]), source_of(clear.ask(question))
        assert opened.n_rows == len(joined), name
        assert list(map(int, opened.totals)) == list(map(int, expected.totals)), name


@pytest.mark.parametrize("linkage", LINKAGES.values(), ids=LINKAGES)
def test_answers_are_those_of_the_joined_table(linkage: es.Linkage, tmp_path: Path) -> None:
    made = linked_world(tmp_path, linkage, questions=QUESTIONS)
    check(made.run(), QUESTIONS, JOINED)


def joint_parameters() -> es.Parameters:
    small = es.Parameters.from_bits("bgv", 1024, 1 << 20, (52,) * 9, allow_insecure=True)
    return replace(small, kept_primes=7, members=2)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("escrow", {"openers": 2}),
        ("joint", {}),
        pytest.param("joint", {"parameters": None}, marks=pytest.mark.slow),
    ],
    ids=["escrow", "joint", "joint, planned"],
)
def test_nobody_needs_to_hold_the_key(key: str, options: dict[str, Any], tmp_path: Path) -> None:
    given = {"parameters": joint_parameters()} if key == "joint" else {}
    made = linked_world(tmp_path, LINKAGES["agent"], questions=BAYES, key=key, **(given | options))
    check(made.run(), BAYES, JOINED)


def test_three_sites(tmp_path: Path) -> None:
    columns = {"one": ["age", "sex"], "two": ["bmi", "stage"], "three": ["ill"]}
    made = linked_world(
        tmp_path,
        es.Linkage(columns, KINDS, agent="office"),
        questions={name: QUESTIONS[name] for name in ("bayes", "linear")},
        sites=tuple(columns),
    )
    kept = {"one": slice(0, 350), "two": slice(50, 400), "three": slice(20, 380)}
    made.rows = {site: EVERYBODY.iloc[kept[site]][[*KEYS, *columns[site]]] for site in columns}
    found = made.run()
    check(found, {name: QUESTIONS[name] for name in found}, EVERYBODY.iloc[50:350])


@pytest.mark.parametrize("linkage", LINKAGES)
def test_rows_with_gaps_are_not_linked(linkage: str, tmp_path: Path) -> None:
    rows = EVERYBODY.copy()
    rows.loc[100:119, "stage"] = None
    schema = es.Schema.infer(
        EVERYBODY.drop(columns=KEYS).assign(bmi=EVERYBODY["bmi"]),
        target="ill",
        bins=3,
        kinds={"age": "continuous", "bmi": "number"},
        missing="drop",
    )
    made = linked_world(tmp_path, LINKAGES[linkage], questions=BAYES, schema=schema)
    made.rows = {
        HOSPITAL: ROWS[HOSPITAL],
        REGISTRY: rows.iloc[90:][[*KEYS, *COLUMNS[REGISTRY]]],
    }
    found = made.run()
    complete = rows.iloc[90:330].dropna()
    expected = es.MultinomialNB(variables=BINNED).fit(schema.table(complete))
    assert list(source_of(found["bayes"]).totals) == list(expected.totals_)
    assert source_of(found["bayes"]).n_rows == len(complete)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_errors_in_identifiers_lose_people_and_are_reported(share: float, tmp_path: Path) -> None:
    """A wrong letter in some names of one site: these people are not linked, and nobody else is
    taken for them.
    """
    rng = np.random.default_rng(8)
    rows = ROWS[REGISTRY].copy()
    wrong = rng.random(len(rows)) < share
    rows.loc[wrong, "surname"] += "x"
    made = linked_world(tmp_path, LINKAGES["agent, members"], questions=BAYES)
    made.rows = {HOSPITAL: ROWS[HOSPITAL], REGISTRY: rows}
    found = made.run()
    right = rows.loc[~wrong, "surname"]
    joined = JOINED[JOINED["surname"].isin(right)]
    check(found, BAYES, joined)
    report = made.as_(HOSPITAL).link()
    assert report is not None
    assert report.to_dict()["linked"] == len(joined)
    assert report.to_dict()["linked_share"] == len(joined) / len(ROWS[HOSPITAL])


@pytest.mark.parametrize("linkage", ["agent, members", "intersection"])
def test_linked_people_are_compared_with_the_others(linkage: str, tmp_path: Path) -> None:
    """With identifiers that are wrong more often for the old, the linked are younger."""
    rng = np.random.default_rng(9)
    rows = ROWS[HOSPITAL].assign(town=rng.choice(["A", "B"], len(ROWS[HOSPITAL])))
    wrong = rng.random(len(rows)) < np.where(rows["age"] > 60, 0.8, 0.1)
    rows.loc[wrong, "surname"] += "x"
    made = linked_world(tmp_path, LINKAGES[linkage], questions=BAYES)
    made.rows = {HOSPITAL: rows, REGISTRY: ROWS[REGISTRY]}
    made.take(HOSPITAL, "link")
    with pytest.raises(es.StudyError, check=error("no-slots")):
        made.as_(HOSPITAL).compare_linked(rows)
    made.run(lambda: made.as_(HOSPITAL).status().next[0][1] != "link")
    found = made.as_(HOSPITAL).compare_linked(rows)
    linked = rows["surname"].isin(JOINED["surname"])
    one, other = rows[linked], rows[~linked]
    assert list(found.loc[("people", ""), ["linked", "unlinked"]]) == [len(one), len(other)]
    age = found.loc[("age", "mean")]
    assert (age["linked"], age["unlinked"]) == (one["age"].mean(), other["age"].mean())
    spread = np.sqrt((one["age"].var() + other["age"].var()) / 2)
    assert age["difference"] == pytest.approx((one["age"].mean() - other["age"].mean()) / spread)
    assert age["difference"] < -0.5
    assert found.loc[("town", "A"), "linked"] == (one["town"] == "A").mean()
    assert not found.index.get_level_values(0).isin(KEYS).any()


@pytest.mark.parametrize("n_unlinked", [0, 1])
@pytest.mark.parametrize("kind", ["int64", "Int64", "Float64"])
def test_where_nearly_everybody_is_linked_there_is_no_difference(
    kind: str, n_unlinked: int
) -> None:
    rows = pd.DataFrame({"age": pd.array([30, 40, 50], dtype=kind), "sex": list("ffm")})
    found = compare_linked(rows, np.arange(3) < 3 - n_unlinked, [])
    assert found.loc[("people", ""), "unlinked"] == n_unlinked
    age = found.loc[("age", "mean")]
    assert age["linked"] == rows["age"][: 3 - n_unlinked].mean()
    assert np.isnan(age["unlinked"]) == (n_unlinked == 0)
    assert np.isnan(age["difference"])


def test_nobody_is_compared_where_sites_learn_only_how_many_are_linked(tmp_path: Path) -> None:
    made = linked_world(tmp_path, LINKAGES["agent"], questions=BAYES)
    made.run(lambda: made.created.status().to_dict()["linked"] is not None)
    with pytest.raises(es.StudyError, check=error("members-unknown")):
        made.as_(HOSPITAL).compare_linked(ROWS[HOSPITAL])


def test_status_says_who_links_next(tmp_path: Path) -> None:
    made = linked_world(tmp_path, LINKAGES["agent"], questions=BAYES)
    assert made.steps() == [(HOSPITAL, "link")]
    with pytest.raises(es.StudyError, check=error("no-link-key", HOSPITAL)):
        made.take(REGISTRY, "link")
    with pytest.raises(es.StudyError, check=error("rows-needed")):
        made.as_(HOSPITAL).link()
    made.take(HOSPITAL, "link")
    assert made.steps() == [(REGISTRY, "link")]
    with pytest.raises(es.StudyError, check=error("people-missing", REGISTRY)):
        made.take("office", "link")
    made.take(REGISTRY, "link")
    assert made.steps() == [("office", "link")]
    made.take("office", "link")
    status = made.created.status().to_dict()
    assert status["people"] == {HOSPITAL: len(ROWS[HOSPITAL]), REGISTRY: len(ROWS[REGISTRY])}
    assert status["linked"] == len(JOINED)
    assert made.steps() == [("registry", "keygen")]


def test_rows_are_those_that_were_linked(tmp_path: Path) -> None:
    made = linked_world(tmp_path, LINKAGES["agent"], questions=BAYES)
    with pytest.raises(es.StudyError, check=error("no-slots")):
        made.take(HOSPITAL, "add")
    for who in (HOSPITAL, REGISTRY, "office"):
        made.take(who, "link")
    made.as_("registry").keygen(made.key)
    more = pd.concat([ROWS[HOSPITAL], EVERYBODY.iloc[[399]][ROWS[HOSPITAL].columns]])
    with pytest.raises(es.DataError, check=error("people-not-linked", 1)):
        made.as_(HOSPITAL).add(more)
    with pytest.raises(es.DataError, check=error("linked-people-missing", 20)):
        made.as_(HOSPITAL).add(ROWS[HOSPITAL].iloc[:-20])
    made.as_(HOSPITAL).add(ROWS[HOSPITAL].sample(frac=1, random_state=3))  # in another order
    made.as_(REGISTRY).add(ROWS[REGISTRY])
    check(made.run(), BAYES, JOINED)


def test_the_first_of_duplicates_counts(tmp_path: Path) -> None:
    made = linked_world(tmp_path, LINKAGES["agent, members"], questions=BAYES)
    twice = pd.concat([ROWS[HOSPITAL], ROWS[HOSPITAL].iloc[:9].assign(age=1.0)])
    made.as_(HOSPITAL).link(twice, on=KEYS, duplicates="first")
    made.rows = {HOSPITAL: twice, REGISTRY: ROWS[REGISTRY]}
    check(made.run(), BAYES, JOINED)


def finish(made: LinkedWorld) -> dict[str, Any]:
    found = made.run()
    return found or made.as_("registry").open(made.key)


@pytest.mark.parametrize("linkage", ["agent", "intersection"])
def test_killed_at_each_write_of_linking(linkage: str, tmp_path: Path) -> None:
    made = linked_world(tmp_path, LINKAGES[linkage], questions=BAYES)
    kills = 0
    while (todo := made.steps()) and todo[0][1] == "link":
        who = todo[0][0]
        for after in (False, True):
            killed_at(2, after, lambda: made.take(who, "link"))  # noqa: B023
        kills += until_done(lambda: made.take(who, "link"), lambda write: True, after=True)  # noqa: B023
    assert kills > 4
    check(finish(made), BAYES, JOINED)
