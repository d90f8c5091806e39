"""Asking: every question is a form, and says which columns it needs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.asking import CALLED, MODE
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Choices, Data, Project, ProjectQuestion
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheQuestion, TheWeb
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.procedures.words import SITE_PROCEDURES
from encryptedstats.studies.documents import MODES, ROUNDS, ROWS

router = APIRouter()


@dataclass(frozen=True)
class InStudy:
    """How the sites of a study answer a question, and what they call its result."""

    mode: str
    called: str


def values(
    desk: Desk,
    project: Project,
    *,
    name: str = "",
    answers: Mapping[str, Any] | None = None,
    target: str = "",
    **_: Any,
) -> dict[str, Any]:
    """Return the form of a question, or all questions."""
    in_study = project.state.study is not None
    if not name:
        return {"form": None, "catalogue": asking.catalogue(in_study=in_study)}
    offer = _offer(desk, project, target)
    return {"form": asking.form_of(name, offer, answers, in_study=in_study), "catalogue": {}}


def _offer(desk: Desk, project: Project, target: str) -> asking.Offer:
    """Return what the columns offer to forms."""
    if project.state.has_given_schema:
        return asking.Offer.of_schema(desk.schema(project))
    data, choices = _data(project), project.state.choices
    columns.check_unchanged(data)
    return asking.Offer.of(data, choices.model_copy(update={"target": target or choices.target}))


def ask(
    desk: Desk,
    project: Project,
    name: str,
    parameters: Mapping[str, Any],
    target: str = "",
    role: InStudy | None = None,
) -> None:
    """Add a question, if it can be asked of these columns. ``target`` is what models predict, and
    ``role`` what a study needs to know of it.
    """
    desk.check_open(project)
    choices, needs = project.state.choices, dict[str, str]()
    if project.state.has_given_schema:
        _check_given_schema(desk.schema(project), name, parameters, target)
    else:
        data = _data(project)
        columns.check_unchanged(data)
        if target and target != choices.target:
            choices = _with_target(project, data, choices, target)
        needs = asking.needs_of(name, parameters, data, choices)
    with project.changing() as state:
        state.choices = choices
        one = ProjectQuestion(
            id=secrets.token_hex(4),
            name=name,
            parameters=dict(parameters),
            needs=needs,
            mode="" if role is None else role.mode,
            called="" if role is None else role.called,
        )
        state.asked = [*state.asked, one]
        state.columns_done, state.plan = state.has_given_schema, None


def _check_given_schema(
    schema: es.Schema, name: str, parameters: Mapping[str, Any], target: str
) -> None:
    """Refuse a question that the schema of a file cannot be asked."""
    if target and target != schema.target:
        raise Refused(
            f"the outcome of this schema is {schema.target or 'none'}: choose that, or take a "
            "schema with another one",
            code="another-target",
        )
    asking.check_asked(name, parameters, schema)


def _check_name(project: Project, called: str) -> None:
    """Refuse a name that a question of a study cannot have."""
    if not called.isidentifier():
        raise Refused(
            f"{called or 'an empty name'} is no name of a result: take a word of letters and "
            "digits without blanks, such as ages",
            code="malformed-name",
        )
    if called in (one.called for one in project.state.asked):
        raise Refused(
            f"another question is called {called}: give this one another name",
            code="repeated-name",
        )


def _role_in(form: Mapping[str, list[str]], name: str, project: Project) -> InStudy | None:
    """Return what a form says of a question in a study; None of a project of one owner."""
    if project.state.study is None:
        return None
    mode, called = ("".join(form.get(one, ())[:1]).strip() for one in (MODE, CALLED))
    if name in SITE_PROCEDURES:
        return InStudy(ROUNDS, called)
    return InStudy(mode if mode in MODES else ROWS, called)


def _add_role(answers: Mapping[str, Any], role: InStudy | None) -> dict[str, Any]:
    """Return the answers of a form with what it says of the question in a study."""
    more = {} if role is None else {MODE: role.mode, CALLED: role.called}
    return {**answers, **more}


def _with_target(project: Project, data: Data, choices: Choices, target: str) -> Choices:
    """Return the choices with another target, if that is not in the way of earlier questions."""
    if target not in data.columns:
        raise Refused(f"there is no column {target}", code="unknown-column")
    for one in project.state.asked:
        if choices.target and choices.target in one.needs:
            raise Refused(
                f"the outcome of this project is {choices.target}, and a question was asked with "
                "it: remove that question first, or begin another project",
                code="another-target",
            )
    return choices.model_copy(update={"target": target})


def unask(desk: Desk, project: Project, id: str) -> None:
    """Take a question away."""
    desk.check_open(project)
    with project.changing() as state:
        state.asked = [one for one in state.asked if one.id != id]
        state.columns_done, state.plan = state.has_given_schema, None
        if not state.has_given_schema and not any(
            state.choices.target in one.needs for one in state.asked
        ):
            state.choices.target = ""


def _data(project: Project) -> Data:
    if project.state.data is None:
        raise Refused("choose a file first, in the step Data", code="no-data")
    return project.state.data


@router.post("/p/{id}/questions")
def ask_question(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Ask a question."""
    texts = {key: [str(one) for one in form.getlist(key)] for key in form}
    name = "".join(texts.get("question", ())[:1])
    target = "".join(texts.get(asking.TARGET, ())[:1])
    role = _role_in(texts, name, project)
    try:
        answers = asking.parse_form(name, texts)
    except CORRECTABLE as error:
        if not asking.is_known(name):
            return web.step(project, "questions", in_page_words(error), 422)
        kept = _add_role(asking.parse_rest(name, texts), role)
        more = {"name": name, "answers": kept, "target": target}
        return web.step(project, "questions", in_page_words(error), 422, **more)

    def act() -> str:
        if role is not None:
            _check_name(project, role.called)
        ask(desk, project, name, answers, target, role)
        return "questions?done=asked"

    kept = _add_role(answers, role)
    return web.attempt(project, "questions", act, name=name, answers=kept, target=target)


@router.post("/p/{id}/questions/{question}/remove")
def remove(desk: TheDesk, web: TheWeb, project: TheProject, asked: TheQuestion) -> Response:
    """Take a question away."""

    def act() -> str:
        unask(desk, project, asked.id)
        return "questions?done=removed"

    return web.attempt(project, "questions", act)
