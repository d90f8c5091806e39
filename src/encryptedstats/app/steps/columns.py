"""What is encrypted of the columns: it follows from the questions, and the owner adjusts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from encryptedstats.app import asking, columns
from encryptedstats.app.columns import AS_FOUND, BINS, LEFT_OUT, NUMBER, TIMES, Made
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Project
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.storage.files import PRIVATE, write_atomic

router = APIRouter()


def values(desk: Desk, project: Project, typed: Any = None, **_: Any) -> dict[str, Any]:
    """Return a line for each column that a question needs, and what is wrong with them."""
    data, choices = project.state.data, project.state.choices
    if project.state.has_given_schema:
        return {"lines": [], "given": desk.schema(project), "doubts": (), "wrong": "", "gaps": 0}
    if data is None:
        raise Refused("choose a file first, in the step Data", code="no-data")
    columns.check_unchanged(data)
    frame, needed = columns.frame_of(Path(data.path)), needs(project)
    found, wrong, undecided = None, "", False
    try:
        found = make_columns(project)
    except columns.MissingValuesError:
        undecided = True
    except CORRECTABLE as error:
        wrong = in_page_words(error)
    known = {} if found is None else {one.name: one for one in found.schema.variables}
    if found is not None and found.schema.target_number is not None:
        known[found.schema.target_number.name] = found.schema.target_number
    lines: list[dict[str, Any]] = []
    for place, name in enumerate(data.columns):
        if name in needed:
            lines.append(
                {
                    "place": place,
                    "name": name,
                    "use": choices.uses.get(name, AS_FOUND),
                    "needs": needed[name],
                    "asked": _askers(project, name),
                    "variable": known.get(name),
                    "bars": columns.bars_of(frame[name], known.get(name)),
                    "is_number": bool({BINS, TIMES} & needed[name])
                    and columns.is_numeric(frame[name]),
                    "cuts": choices.cuts.get(name, "")
                    if typed is None
                    else typed.get(f"cuts-{place}", choices.cuts.get(name, "")),
                    "missing": int(frame[name].isna().sum()),
                    "bounds": choices.bounds.get(name, (None, None)),
                    "more": choices.levels.get(name, ""),
                    "has_levels": _has_levels(found, name),
                    "is_kept": known[name].kind == NUMBER if name in known else False,
                }
            )
    gaps = frame[[line["name"] for line in lines]].isna().any(axis=1) if lines else frame.index < 0
    return {
        "lines": lines,
        "given": None,
        "unused": [name for name in data.columns if name not in needed and name != choices.id],
        "made": None if found is None else found.schema,
        "doubts": () if found is None else found.doubts,
        "wrong": wrong,
        "undecided": undecided,
        "gaps": int(gaps.sum()),
        "n_rows": len(frame),
        "number_gaps": [
            line["name"] for line in lines if line["missing"] and NUMBER in line["needs"]
        ],
    }


def _has_levels(found: Made | None, name: str) -> bool:
    """Return whether a column has levels, of which other sites may have more."""
    if found is None:
        return False
    if name == found.schema.target:
        return bool(found.schema.classes)
    return name in found.schema.names and bool(found.schema[name].levels)


def needs(project: Project) -> dict[str, set[str]]:
    """Return what the questions need of each column that they need at all."""
    found: dict[str, set[str]] = {}
    for one in project.state.asked:
        for name, need in one.needs.items():
            if project.state.choices.uses.get(name) != LEFT_OUT:
                found.setdefault(name, set()).add(need)
    return found


def _askers(project: Project, name: str) -> list[str]:
    titles = (asking.title_of(one.name) for one in project.state.asked if name in one.needs)
    return list(dict.fromkeys(titles))


def make_columns(project: Project) -> Made:
    """Return the schema as questions and choices make it just now."""
    data = project.state.data
    if data is None:
        raise Refused("choose a file first, in the step Data", code="no-data")
    return columns.make_schema(data, project.state.choices, needs(project))


def decide(desk: Desk, project: Project) -> None:
    """Keep the schema, if all questions can be asked of it."""
    desk.check_open(project)
    schema = make_columns(project).schema
    for one in project.state.asked:
        asking.check_asked(one.name, one.parameters, schema)
    with project.changing() as state:
        write_atomic(project.schema_file, [schema.to_json().encode() + b"\n"], mode=PRIVATE)
        state.columns_done, state.plan = True, None


@router.post("/p/{id}/columns")
def choose(
    request: Request, desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm
) -> Response:
    """Change how columns are used, and go on."""
    typed = {key: str(value) for key, value in form.items()}

    def act() -> str:
        desk.check_open(project)
        data = project.state.data
        if data is None:
            raise Refused("choose a file first, in the step Data", code="no-data")
        if text_in(form, "revision") not in ("", str(project.state.revision)):
            raise Refused(
                "the project was changed in another tab, so that nothing was taken from this "
                "page: it shows the columns as they are now",
                code="stale-form",
            )
        choices = columns.choices_in(typed, project.state.choices, data)
        with project.changing() as state:
            if choices != state.choices:
                state.choices, state.columns_done, state.plan = choices, False, None
        if typed.get("go") == "on":
            decide(desk, project)
            return "plan" if project.state.study is None else "parties"
        return "columns"

    if "hx-request" not in request.headers:
        return web.attempt(project, "columns", act, typed=typed)
    answer = web.attempt(project, "columns", act, typed=typed, is_part=True)
    return web.step(project, "columns") if answer.status_code == 303 else answer
