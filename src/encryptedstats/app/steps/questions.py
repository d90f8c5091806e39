"""Asking: every question is a form, and says which columns it needs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from encryptedstats.app import asking, columns
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Choices, Data, Project, ProjectQuestion
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheQuestion, TheWeb
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.tables.questions.question import load_all_questions

router = APIRouter()


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
    data, choices = _data(project), project.state.choices
    if not name:
        return {"form": None, "catalogue": asking.catalogue()}
    columns.check_unchanged(data)
    offer = asking.Offer.of(data, choices.model_copy(update={"target": target or choices.target}))
    return {"form": asking.form_of(name, offer, answers), "catalogue": {}}


def ask(
    desk: Desk, project: Project, name: str, parameters: Mapping[str, Any], target: str = ""
) -> None:
    """Add a question, if it can be asked of these columns. ``target`` is what models predict."""
    desk.check_open(project)
    data, choices = _data(project), project.state.choices
    columns.check_unchanged(data)
    if target and target != choices.target:
        choices = _with_target(project, data, choices, target)
    needs = asking.needs_of(name, parameters, data, choices)
    with project.changing() as state:
        state.choices = choices
        one = ProjectQuestion(
            id=secrets.token_hex(4), name=name, parameters=dict(parameters), needs=needs
        )
        state.asked = [*state.asked, one]
        state.columns_done, state.plan = False, None


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
        state.columns_done, state.plan = False, None
        if not any(state.choices.target in one.needs for one in state.asked):
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
    try:
        answers = asking.parse_form(name, texts)
    except CORRECTABLE as error:
        is_known = name in load_all_questions() or name in asking.IN_ROUNDS
        more = {"name": name} if is_known else {}
        return web.step(project, "questions", in_page_words(error), 422, **more)

    def act() -> str:
        ask(desk, project, name, answers, target)
        return "questions?done=asked"

    return web.attempt(project, "questions", act, name=name, answers=answers, target=target)


@router.post("/p/{id}/questions/{question}/remove")
def remove(desk: TheDesk, web: TheWeb, project: TheProject, asked: TheQuestion) -> Response:
    """Take a question away."""

    def act() -> str:
        unask(desk, project, asked.id)
        return "questions?done=removed"

    return web.attempt(project, "questions", act)
