"""Opening results, predicting with them and scoring them. Nobody is asked for anything but the
files here: whether a result opens is known here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData

import encryptedstats as es
from encryptedstats.app import columns
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Asked, Project, private_folder
from encryptedstats.app.showing import Shown, scores_of, shown_result
from encryptedstats.app.steps.data import given_rows
from encryptedstats.app.steps.publish import book, ledger, outgoing
from encryptedstats.app.steps.send import take_result
from encryptedstats.app.tasks import EvaluateTask, PredictTask
from encryptedstats.app.web import SentForm, TheDesk, TheProject, TheQuestion, TheWeb, download
from encryptedstats.app.words import MENDABLE, in_page_words
from encryptedstats.app.work import run_task
from encryptedstats.publishing.mechanisms import NEEDS_OPENDP
from encryptedstats.publishing.opening import record_opening

router = APIRouter()


def values(desk: Desk, project: Project, **_: Any) -> dict[str, Any]:
    """Return what was opened, what others may see of it, and the ledger."""
    opened: dict[str, Any] = {}
    for one in project.state.asked:
        if one.state == "here" and desk.is_unlocked(project):
            try:
                opened[one.id] = open_result(desk, project, one)
            except MENDABLE as found:
                opened[one.id] = in_page_words(found)
    return {
        "opened": opened,
        "outgoing": {one.id: outgoing(desk, project, one) for one in project.state.asked},
        "book": book(desk, project) if opened else None,
        "no_noise": "" if find_spec("opendp") is not None else NEEDS_OPENDP,
    }


def open_result(desk: Desk, project: Project, asked: Asked) -> Shown:
    """Return a result in the clear, kept in memory until the key is locked."""
    place, owner = (project.id, asked.id), desk.key(project).owner
    if place not in desk.shown:
        schema = desk.schema(project)
        sealed = es.load(project.result_file(asked), owner.public_keys())
        shown = shown_result(owner.open(sealed, schema))
        with desk.writing:
            record_opening(project.result_file(asked), owner, ledger(desk, project))
        desk.shown[place] = shown
    return desk.shown[place]


def predict(desk: Desk, project: Project, asked: Asked, path: Path) -> dict[str, Any]:
    """Predict the rows of a file with an opened model, into a CSV that only its user can read."""
    out = predictions_file(project, asked)
    task = PredictTask(**_model_facts(desk, project, asked), rows=path, out=out)
    return run_task(task)


def evaluate(desk: Desk, project: Project, asked: Asked, path: Path) -> dict[str, Any]:
    """Score an opened model on rows of known classes; of two classes also draw its curves."""
    curves = curves_file(project, asked)
    curves.unlink(missing_ok=True)
    task = EvaluateTask(**_model_facts(desk, project, asked), rows=path, curves=curves)
    return run_task(task)


def _model_facts(desk: Desk, project: Project, asked: Asked) -> dict[str, Any]:
    private_folder(project.folder / "predictions")
    return {**desk.task_facts(project), "result": project.result_file(asked)}


def curves_file(project: Project, asked: Asked) -> Path:
    """Return where the curves of a model are drawn."""
    return project.folder / "predictions" / f"{asked.id}-curves.svg"


def predictions_file(project: Project, asked: Asked) -> Path:
    """Return where the latest predictions of a model are."""
    return project.folder / "predictions" / f"{asked.id}.csv"


# -- routes
# ------------------------------------------------------------------------------------------------


def _opened(desk: Desk, project: Project, asked: Asked) -> Shown:
    try:
        return open_result(desk, project, asked)
    except MENDABLE as error:
        raise HTTPException(409, in_page_words(error)) from None


@router.post("/p/{id}/results/{question}/file")
def take(web: TheWeb, project: TheProject, asked: TheQuestion, form: SentForm) -> Response:
    """Take a result that came back as a file."""

    def act() -> str:
        path = str(form.get("path", "")).strip()
        if not path:
            raise Refused("give the full path of the file", code="no-file-given")
        take_result(project, asked, Path(path).expanduser())
        return "results?done=fetched"

    return web.tried(project, "results", act)


@router.get("/p/{id}/results/{question}.csv")
def as_csv(desk: TheDesk, project: TheProject, asked: TheQuestion) -> Response:
    """Give the main table of a result as CSV."""
    content = _opened(desk, project, asked).csv.encode()
    return download(content, f"{asked.name}-{asked.id}.csv", "text/csv")


@router.get("/p/{id}/results/{question}.svg")
def as_svg(desk: TheDesk, project: TheProject, asked: TheQuestion, dark: int = 0) -> Response:
    """Give the picture of a result."""
    found = _opened(desk, project, asked).svg(dark=bool(dark))
    if found is None:
        raise HTTPException(404, "there is no picture of this result")
    return Response(found, media_type="image/svg+xml")


@router.post("/p/{id}/results/{question}/predict")
def predict_rows(
    desk: TheDesk, web: TheWeb, project: TheProject, asked: TheQuestion, form: SentForm
) -> Response:
    """Predict the rows of a file."""

    def act(path: Path, name: str) -> dict[str, Any]:
        facts = predict(desk, project, asked, path)
        return {"predicted": {"of": asked.id, "facts": facts, "rows": name}}

    return _with_rows(web, project, form, act)


@router.post("/p/{id}/results/{question}/evaluate")
def evaluate_rows(
    desk: TheDesk, web: TheWeb, project: TheProject, asked: TheQuestion, form: SentForm
) -> Response:
    """Score a model."""

    def act(path: Path, name: str) -> dict[str, Any]:
        facts = evaluate(desk, project, asked, path)
        found = {
            "of": asked.id,
            "table": scores_of(facts["scores"]),
            "curves": curves_file(project, asked).is_file(),
            "rows": name,
            "seen": facts["seen"],
        }
        return {"scored": found}

    return _with_rows(web, project, form, act)


def _with_rows(
    web: TheWeb, project: Project, form: FormData, act: Callable[[Path, str], dict[str, Any]]
) -> HTMLResponse:
    """Do something with the rows that a form gives."""
    try:
        with given_rows(project, form) as (path, name):
            found = act(path, name)
    except MENDABLE as error:
        return web.step(project, "results", in_page_words(error), 422)
    return web.step(project, "results", **found)


@router.get("/p/{id}/results/{question}/predictions.csv")
def predictions(desk: TheDesk, project: TheProject, asked: TheQuestion) -> Response:
    """Give the latest predictions of a model, while the key is unlocked."""
    path = predictions_file(project, asked)
    if not path.is_file() or not desk.is_unlocked(project):
        raise HTTPException(404, "there are no predictions, or the key is locked")
    return download(path.read_bytes(), f"predictions-{asked.id}.csv", "text/csv")


@router.get("/p/{id}/results/{question}/curves.svg")
def curves(desk: TheDesk, project: TheProject, asked: TheQuestion) -> Response:
    """Give the curves of a model."""
    path = curves_file(project, asked)
    if not path.is_file() or not desk.is_unlocked(project):
        raise HTTPException(404, "there is no picture yet, or the key is locked")
    return Response(path.read_bytes(), media_type="image/svg+xml")


@router.get("/p/{id}/report")
def report(desk: TheDesk, web: TheWeb, project: TheProject) -> Response:
    """Show the report to print."""
    return web.show(
        "report.html",
        step="results",
        project=project,
        state=project.state,
        unlocked=desk.is_unlocked(project),
        columns=columns,
        **values(desk, project),
    )
