"""The list of projects: beginning, renaming, copying and deleting them, the sample, the help, and
the way from one step to the next.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from encryptedstats.app.desk import Refused
from encryptedstats.app.leaving import is_reachable, next_step, steps_of
from encryptedstats.app.sample import begin_sample
from encryptedstats.app.web import DONE, NotHere, SentForm, TheDesk, TheProject, TheWeb, text_in
from encryptedstats.app.words import in_page_words

router = APIRouter()


def _home(web: TheWeb, status: int = 200, **more: Any) -> Response:
    """Return the list of projects."""
    known, wrong = web.desk.projects.all()
    found = [(one, next_step(one.state)) for one in known if one.state.study is None]
    more = {"error": "", "done": "", **more}
    return web.show(
        "home.html", status, projects=found, wrong=wrong, home=web.desk.projects.home, **more
    )


@router.get("/")
def home(web: TheWeb, done: str = "") -> Response:
    """Show all projects."""
    return _home(web, done=DONE.get(done, ""))


@router.get("/help")
def help_page(web: TheWeb) -> Response:
    """Show the help."""
    return web.show("help.html")


@router.post("/projects")
def new_project(desk: TheDesk, form: SentForm) -> Response:
    """Begin a project."""
    project = desk.projects.new(text_in(form, "title"))
    return RedirectResponse(f"/p/{project.id}/data", 303)


@router.post("/projects/sample")
def sample(desk: TheDesk) -> Response:
    """Begin the sample project."""
    project = begin_sample(desk)
    return RedirectResponse(f"/p/{project.id}/questions", 303)


@router.post("/p/{id}/copy")
def copy_project(desk: TheDesk, project: TheProject) -> Response:
    """Begin a copy, which has no key."""
    made = desk.projects.copy(project)
    return RedirectResponse(f"/p/{made.id}/questions?done=copied", 303)


@router.post("/p/{id}/rename")
def rename(project: TheProject, form: SentForm) -> Response:
    """Give a project another name."""
    with project.changing() as state:
        state.title = text_in(form, "title") or state.title
    return RedirectResponse("/?done=renamed", 303)


@router.post("/p/{id}/delete")
def delete(desk: TheDesk, web: TheWeb, project: TheProject, form: SentForm) -> Response:
    """Delete a project for good. Its name has to be typed if there is a key."""
    try:
        if project.state.key is not None and text_in(form, "title") != project.state.title:
            raise Refused(
                f"type the name of the project, {project.state.title}, to delete it with its key "
                "and its results",
                code="name-not-typed",
            )
        desk.delete(project)
    except (Refused, OSError) as error:
        return _home(web, 422, error=in_page_words(error))
    is_draft = project.state.study is not None
    return RedirectResponse("/studies?done=dropped" if is_draft else "/?done=deleted", 303)


@router.get("/p/{id}")
def go_on(project: TheProject) -> Response:
    """Go to the step that is next."""
    return RedirectResponse(f"/p/{project.id}/{next_step(project.state)}", 303)


@router.get("/p/{id}/{step}")
def show_step(
    web: TheWeb,
    project: TheProject,
    step: str,
    folder: str = "",
    ask: str = "",
    done: str = "",
    at: str = "",
) -> Response:
    """Show a step."""
    if step not in steps_of(project.state):
        raise NotHere(404, "there is no such step")
    if not is_reachable(step, project.state):
        return RedirectResponse(f"/p/{project.id}/{next_step(project.state)}", 303)
    more: dict[str, Any] = {"done": DONE.get(done, ""), "at": at}
    if step == "data" and folder:
        more["folder"] = folder
    if step == "questions" and ask:
        more["name"] = ask
    return web.step(project, step, **more)
