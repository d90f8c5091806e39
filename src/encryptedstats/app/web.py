"""Pages and answers: templates, the frame of every step, and what routes need of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.leaving import is_done, is_reachable, leaving, steps_of
from encryptedstats.app.projects import Project, ProjectQuestion
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.pages import environment
from encryptedstats.publishing.rules import PROFILES

#: What is said on the page that follows when something was done.
DONE: Final = {
    "asked": "The question was added. Ask another one, or go on to the columns",
    "removed": "The question was removed",
    "chosen": "The file was read",
    "fewer": "The file was read. Questions that cannot be asked of it were removed",
    "made": (
        "The key was made. It is unlocked until you lock it, or leave it alone for half an hour"
    ),
    "taken": "The key was taken",
    "unlocked": "The key is unlocked",
    "locked": "The key is locked, and what was opened is forgotten",
    "copied": "This is a copy, without a key: change what you like",
    "renamed": "The project has its new name",
    "deleted": "The project was deleted, with its key, its table and its results",
    "fetched": "The result was taken",
    "budget": "The budget is set",
    "cleared": "The table and the results were deleted at the worker",
    "written": "The study is written. Send each party its invitation",
    "dropped": "The draft was deleted",
    "forgotten": "The access token of the worker was deleted",
}


NO_PAGE: Final = "there is no such page: go back to your projects"


class NotHere(HTTPException):
    """Refuse to show a page, with a sentence that says why."""


class StepValues(Protocol):
    """What the template of a step needs besides the project."""

    def __call__(self, desk: Desk, project: Project, **more: Any) -> dict[str, Any]:
        """Return the values by name."""
        ...


class Web:
    """Templates, and the page of every step."""

    def __init__(self, desk: Desk, start: Path, values: Mapping[str, StepValues]) -> None:
        self.desk, self.start, self.values = desk, start, values
        self.templates = environment("encryptedstats.app", "owner")
        self.templates.globals |= {
            "version": es.__version__,
            "steps_of": steps_of,
            "title_of": asking.title_of,
            "describe": asking.describe,
            "words_of": columns.words_of,
            "modes": asking.MODES,
            "is_done": is_done,
            "is_reachable": is_reachable,
            "zip": zip,
            "profiles": {
                name: rules.describe().partition(": ")[2] for name, rules in PROFILES.items()
            },
        }

    def show(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page."""
        values.setdefault("done", "")
        return HTMLResponse(self.templates.get_template(template).render(**values), status)

    def step(
        self, project: Project, step: str, error: str = "", status: int = 200, **more: Any
    ) -> HTMLResponse:
        """Return the page of a step; what is wrong is said on top of it."""
        values: dict[str, Any] = {}
        template = f"{step}.html"
        try:
            values = self.values[step](self.desk, project, start=self.start, **more)
        except CORRECTABLE as found:
            template, error = "blocked.html", error or in_page_words(found)
            status = 422 if status == 200 else status
        return self.show(
            template,
            status,
            project=project,
            state=project.state,
            step=step,
            leaves=leaving(step, project.state),
            error=error,
            unlocked=self.desk.is_unlocked(project),
            unlocked_for=self.desk.seconds_unlocked(project),
            locked_in=project.state.key is not None,
            **{**values, **more},
        )

    def attempt(
        self, project: Project, step: str, act: Callable[[], str | None], **more: Any
    ) -> Response:
        """Do something and go on to a step, or stay and say what is wrong; the form keeps what was
        typed.
        """
        try:
            return RedirectResponse(f"/p/{project.id}/{act() or step}", 303)
        except CORRECTABLE as error:
            return self.step(project, step, in_page_words(error), 422, **more)


# -- what routes need of a request
# ------------------------------------------------------------------------------------------------


async def _form(request: Request) -> FormData:
    return await request.form(max_files=1, max_fields=5000)


def _web(request: Request) -> Web:
    found: Web = request.app.state.web
    return found


def _desk(request: Request) -> Desk:
    return _web(request).desk


def _project(request: Request, id: str) -> Project:
    try:
        return _desk(request).projects.get(id)
    except LookupError:
        raise NotHere(404, "there is no such project") from None


def _question(request: Request, id: str, question: str) -> ProjectQuestion:
    try:
        return _project(request, id).question(question)
    except LookupError:
        raise NotHere(404, "there is no such question") from None


SentForm = Annotated[FormData, Depends(_form)]
TheWeb = Annotated[Web, Depends(_web)]
TheDesk = Annotated[Desk, Depends(_desk)]
TheProject = Annotated[Project, Depends(_project)]
TheQuestion = Annotated[ProjectQuestion, Depends(_question)]


def text_in(form: FormData, name: str) -> str:
    """Return a field of a form without the blanks around it; nothing where it is not there."""
    value = form.get(name, "")
    return "" if isinstance(value, UploadFile) else value.strip()


def number_in(form: FormData, name: str) -> float:
    """Return a field of a form as a number."""
    text = text_in(form, name)
    try:
        return float(text)
    except ValueError:
        raise Refused(
            f"{name}: {text!r} is no number, such as 0.5 or 1e-6", code="not-a-number"
        ) from None


def download(content: bytes, name: str, kind: str) -> Response:
    """Return a file for the browser to save."""
    return Response(
        content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
