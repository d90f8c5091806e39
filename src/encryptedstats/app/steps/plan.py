"""What all questions take, before anything is encrypted."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

import encryptedstats as es
from encryptedstats.app import asking
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Project
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.circuits.plan import Plan

router = APIRouter()
#: For a process to start and to load keys: more than all else takes for small tables.
START_SECONDS: Final = 5.0


def values(desk: Desk, project: Project, **_: Any) -> dict[str, Any]:
    """Return the figures of the plan, and what a worker knows of the table."""
    if project.state.plan is None:
        plan(desk, project)
    with project.changing() as state:
        state.seen = sorted({*state.seen, "plan"})
    return {
        "plan": project.state.plan,
        "public": desk.schema(project).public(),
        "rounds": desk.rounds(project),
        "start_seconds": START_SECONDS,
    }


def plan(desk: Desk, project: Project) -> Plan:
    """Return parameters and cost of all questions over all rows; kept in memory, and its figures in
    the project.
    """
    found = desk.plans.get(project.id)
    if found is not None and project.state.plan is not None:
        return found
    return keep_plan(desk, project, make_plan(desk, project))


def make_plan(desk: Desk, project: Project, keys: es.Owner | None = None) -> Plan:
    """Return the plan of all questions, with keys that are there already or for new ones."""
    data, questions = project.state.data, desk.to_plan(project)
    if data is None or not questions:
        raise Refused("ask something first, in the step Questions", code="no-questions")
    schema = desk.schema(project)
    return es.plan(
        questions,
        schema,
        data.rows,
        keys=keys,
        encodings=asking.encodings_of(questions, schema),
        spot_check=project.state.spot_check,
    )


def keep_plan(desk: Desk, project: Project, made: Plan) -> Plan:
    """Keep a plan in memory, and its figures in the project."""
    desk.plans[project.id] = made
    with project.changing() as state:
        state.plan = {**made.to_dict(), "lines": [list(map(str, line)) for line in made.rows()]}
    return made


def plan_checks(desk: Desk, project: Project, *, wanted: bool) -> None:
    """Plan with or without spot checks of all results."""
    desk.check_open(project)
    before = project.state.spot_check
    with project.changing() as state:
        state.spot_check = wanted
    try:
        keep_plan(desk, project, make_plan(desk, project))
    except es.EncryptedStatsError:
        with project.changing() as state:
            state.spot_check = before
        raise


@router.post("/p/{id}/plan/checks")
def choose_checks(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Plan with or without spot checks."""
    wanted = text_in(form, "wanted") == "yes"
    return web.attempt(project, "plan", lambda: plan_checks(desk, project, wanted=wanted))
