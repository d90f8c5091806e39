"""The declared constraints of parameters: what they refuse, and that their JSON Schema agrees."""

from __future__ import annotations

import inspect
from typing import Any

import jsonschema
import numpy as np
import pytest

import encryptedstats as es
from encryptedstats.tables.questions.constraints import (
    AnyOf,
    Choice,
    Constraint,
    Flag,
    Integer,
    ListOf,
    RealNumber,
    ReferenceLevels,
    Text,
    VariableName,
    constraints_of,
    parameters_schema,
)
from encryptedstats.tables.questions.folds import Folds
from encryptedstats.tables.questions.question import Question, load_all_questions, plain
from error_codes import error

SHARE = RealNumber(low=0, high=1, closed="right")
VALUES = (0, 1, 7, -1, 0.0, 0.5, 1.0, True, "rows", "v0", [], [0.5], ["v0"], {"v0": "bin1"}, {})
CONSTRAINTS = (
    Choice(values=("rows", 7)),
    Flag(),
    SHARE,
    RealNumber(),
    Integer(low=1),
    Text(),
    VariableName(),
    ListOf(item=RealNumber(), least=1),
    ReferenceLevels(),
    AnyOf(parts=(Choice(values=("rows",)), Integer(low=1), SHARE)),
)
QUESTIONS = {name: one for name, one in load_all_questions().items() if one is not Folds}


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_json_schema_allows_what_the_check_allows(constraint: Constraint, value: Any) -> None:
    try:
        constraint.check(value, "x")
        allowed = True
    except es.ParameterError:
        allowed = False
    if isinstance(constraint, VariableName) and isinstance(value, int):
        return  # positions are for owners
    if type(value) is float and value.is_integer() and value in (0, 1, 7):
        return  # JSON Schema has one kind of number, Python two
    assert jsonschema.Draft202012Validator(constraint.json_schema()).is_valid(value) == allowed


@pytest.mark.parametrize(
    ("constraint", "value", "code"),
    [
        (Flag(), "no", "not-yes-or-no"),
        (Flag(), None, "not-yes-or-no"),
        (Integer(low=1, high=6), 7, "not-an-integer"),
        (Integer(code="own-code"), True, "own-code"),
        (RealNumber(), float("nan"), "not-a-number"),
        (RealNumber(), 10**400, "not-a-number"),
        (SHARE, 0, "not-a-number"),
        (Choice(values=(1, 2)), True, "unknown-choice"),
        (Choice(values=(1, 2)), 2.0, "unknown-choice"),
        (ListOf(item=Text()), "text", "not-a-list"),
        (ListOf(item=Text()), [1], "not-text"),
        (ReferenceLevels(), "no", "not-a-mapping"),
    ],
)
def test_refused_values(constraint: Constraint, value: Any, code: str) -> None:
    with pytest.raises(es.ParameterError, check=error(code, "x=")):
        constraint.check(value, "x")


def test_numpy_scalars_are_values_like_any_other() -> None:
    Flag().check(np.bool_(True), "x")
    Integer(low=1).check(np.int64(3), "x")
    RealNumber().check(np.float32(0.5), "x")
    Choice(values=(2, 4)).check(np.int64(4), "x")
    Flag(optional=True).check(None, "x")


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_defaults_of_every_question_are_allowed(question: type[Question]) -> None:
    schema = parameters_schema(question)
    for name, one in inspect.signature(question).parameters.items():
        if one.default is not inspect.Parameter.empty:
            constraints_of(question)[name].check(one.default, name)
            jsonschema.validate(plain(one.default), schema["properties"][name])
    assert set(schema["required"]).isdisjoint(
        name for name, one in schema["properties"].items() if "default" in one
    )


def test_every_choice_of_a_question_is_listed() -> None:
    found = {name: one.choices for name, one in constraints_of(es.GLM).items() if one.choices}
    assert found == {"family": ("binomial", "poisson")}
    assert "inverse" in constraints_of(es.CompletelyRandomForest)["fraction"].choices
    assert constraints_of(es.Kappa)["weights"].optional


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"formula": 8}, "not-text"),
        ({"reference": "no"}, "not-a-mapping"),
        ({"exposure": ["v0"]}, "not-a-variable"),
    ],
)
def test_parameters_from_files_and_requests_are_checked(
    parameters: dict[str, Any], code: str
) -> None:
    with pytest.raises(es.ParameterError, check=error(code)):
        es.GLM._from_parameters({**es.GLM().get_params(), **parameters})
