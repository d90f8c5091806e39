"""What all questions take, before anything is encrypted."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

import encryptedstats as es
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Project
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
    data, questions = project.state.data, desk.questions(project)
    if data is None or not questions:
        raise Refused("ask something first, in the step Questions", code="no-questions")
    return es.plan(questions, desk.schema(project), data.rows, keys=keys)


def keep_plan(desk: Desk, project: Project, made: Plan) -> Plan:
    """Keep a plan in memory, and its figures in the project."""
    desk.plans[project.id] = made
    with project.changing() as state:
        state.plan = {**made.to_dict(), "lines": [list(map(str, line)) for line in made.rows()]}
    return made
