"""Questions as forms: what they offer, what a sent form says, and what a question needs of its
columns.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from desk_helpers import Page, patients

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.asking import Offer, form_of, parse_form
from encryptedstats.app.projects import Choices, Data
from encryptedstats.app.steps.questions import ask
from encryptedstats.tables.questions.constraints import Choice, constraints_of
from encryptedstats.tables.questions.question import load_all_questions
from error_codes import error

STATISTICS = {"counts", "crosstab", "moments", "folds"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    frame = patients(120)
    frame["months"] = frame.index % 24
    frame["died"] = ["no", "yes", "no"] * 40
    file = tmp_path_factory.mktemp("rows") / "rows.csv"
    frame.to_csv(file, index=False)
    return columns.look_at(file, copied=False)


CHOICES = Choices(target="ill", id="patient")


def fields(name: str, data: Data, given: dict[str, Any] | None = None) -> dict[str, asking.Field]:
    return {one.name: one for one in form_of(name, Offer.of(data, CHOICES), given).fields}


def test_every_question_has_the_name_that_people_use() -> None:
    own = {
        name: question
        for name, question in load_all_questions().items()
        if question.__module__.startswith("encryptedstats.") and name not in STATISTICS
    }
    titles = [question.title for question in own.values()]
    assert len(set(titles)) == len(titles)
    joined = [
        name
        for name, question in own.items()
        if question.title == name and re.search("[a-z][A-Z]", name)
    ]
    assert joined == []  # give each a title


def test_all_choices_are_selects(data: Data) -> None:
    for name in set(load_all_questions()) - STATISTICS:
        found = fields(name, data)
        for parameter, constraint in constraints_of(load_all_questions()[name]).items():
            if isinstance(constraint, Choice) and parameter in found:
                assert found[parameter].kind == "choice", (name, parameter)
                values = [one.value for one in found[parameter].options]
                assert values == [str(one) for one in constraint.values]


def test_columns_and_levels_are_offered(data: Data) -> None:
    found = fields("KaplanMeier", data)
    assert [one.value for one in found["time"].options] == [
        "age", "smoker", "bmi", "ill", "months", "died",
    ]  # fmt: skip
    assert found["event_level"].of == "event"
    assert {one.group for one in found["event_level"].options} == {"smoker", "ill", "died"}
    assert found["event"].needed


def test_reference_levels_are_chosen_by_column(data: Data) -> None:
    form = {"target": ["ill"], "variables": ["smoker"], "reference-of-smoker": ['"yes"']}
    given = parse_form("GLM", form)
    assert given == {"target": "ill", "variables": ["smoker"], "reference": {"smoker": "yes"}}
    assert fields("GLM", data, given)["reference-of-smoker"].value == '"yes"'
    asking.needs_of("GLM", given, data, CHOICES)
    assert "reference level: smoker yes" in asking.describe("GLM", given)


def test_levels_keep_their_type() -> None:
    given = parse_form("OddsRatio", {"exposure": ["dose"], "target": ["ill"], "event": ["1"]})
    assert given["event"] == 1
    given = parse_form("OddsRatio", {"exposure": ["dose"], "target": ["ill"], "event": ['"1"']})
    assert given["event"] == "1"


@pytest.mark.parametrize("text", ["y ~ age +", "~ (a", "y ~ f(x)"])
def test_a_formula_is_checked(text: str) -> None:
    with pytest.raises(es.ParameterError):
        parse_form("LinearRegression", {"formula": [text]})


@pytest.mark.parametrize(
    ("name", "parameters", "needs"),
    [
        ("TTest", {"variable": "bmi", "by": "smoker"}, {"bmi": "number", "smoker": "bins"}),
        ("Histogram", {"variable": "age"}, {"age": "bins"}),
        ("Anova", {"variable": "bmi", "by": ["age"]}, {"bmi": "number", "age": "bins"}),
        (
            "LinearRegression",
            {"target": "bmi", "variables": ["age", "smoker"]},
            {"bmi": "number", "age": "number", "smoker": "bins"},
        ),
        ("LinearRegression", {"formula": "bmi ~ I(age^2)"}, {"bmi": "number", "age": "number"}),
        ("GLM", {"formula": "died ~ age"}, {"died": "bins", "age": "bins"}),
        (
            "CompletelyRandomForest",
            {"variables": ["age", "bmi"], "n_trees": 4},
            {"age": "bins", "bmi": "bins", "ill": "bins"},
        ),
        (
            "KaplanMeier",
            {"time": "months", "event": "died", "by": "smoker"},
            {"months": "times", "died": "bins", "smoker": "bins"},
        ),
        ("LinearDiscriminant", {"variables": ["bmi"]}, {"bmi": "number", "ill": "bins"}),
    ],
)
def test_a_question_says_what_it_needs(
    data: Data, name: str, parameters: dict[str, Any], needs: dict[str, str]
) -> None:
    assert asking.needs_of(name, parameters, data, CHOICES) == needs


def test_models_want_an_outcome_and_regressions_too(data: Data) -> None:
    for name in ("MultinomialNB", "GLM", "LinearRegression"):
        with pytest.raises(es.ArgumentError, check=error("missing-variable")):
            asking.needs_of(name, {"variables": ["age"]}, data, Choices())


def test_the_outcome_of_a_project_is_one(page: Page, rows: Path) -> None:
    page.choose(rows)
    project = page.desk.projects.get(page.project)
    ask(page.desk, project, "MultinomialNB", {"variables": ["age"]}, "ill")
    with pytest.raises(ValueError, check=error("another-target")):
        ask(page.desk, project, "MultinomialNB", {"variables": ["age"]}, "smoker")
    page.post(f"questions/{page.state.asked[0].id}/remove")
    ask(page.desk, project, "MultinomialNB", {"variables": ["age"]}, "smoker")
    assert page.state.choices.target == "smoker"


def test_missing_values_are_decided_before_anything_is_encrypted(
    page: Page, tmp_path: Path
) -> None:
    frame = patients()
    frame.loc[0, "age"] = None
    frame.loc[1, "bmi"] = None  # no question needs it
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    page.choose(tmp_path / "gaps.csv")
    page.ask()
    assert "1 row of 60 have missing values" in page.get("columns")
    page.post("columns", 422, go="on")
    page.decide(missing="drop")
    assert es.Schema.load(page.folder / "schema.json").missing == "drop"


def test_an_id_is_found_and_left_out() -> None:
    frame = pd.DataFrame({"x": range(20), "case": [f"c{i}" for i in range(20)]})
    assert columns.find_id(frame) == "case"
    assert columns.find_id(frame.rename(columns={"x": "patient_id"})) == "patient_id"
    assert columns.find_id(frame[["x"]]) == ""
