"""Opening results, predicting with them and scoring them. Nobody is asked for anything but the
files here: whether a result opens is known here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.desk import Desk, Refused
from encryptedstats.app.projects import Project, ProjectQuestion, private_folder
from encryptedstats.app.sentences import SENTENCES
from encryptedstats.app.showing import Shown, scores_of, show_result
from encryptedstats.app.steps.data import open_rows
from encryptedstats.app.steps.publish import book, ledger, outgoing
from encryptedstats.app.steps.send import HERE, WORKER, read_token, take_result
from encryptedstats.app.tasks import EvaluateTask, PredictTask
from encryptedstats.app.web import (
    NotHere,
    SentForm,
    TheDesk,
    TheProject,
    TheQuestion,
    TheWeb,
    download,
)
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.app.work import run_task
from encryptedstats.procedures.folder import read_run
from encryptedstats.publishing.opening import record_opening
from encryptedstats.spotcheck.opening import CHECKED

router = APIRouter()


def values(desk: Desk, project: Project, **_: Any) -> dict[str, Any]:
    """Return what was opened, what others may see of it, and the ledger."""
    opened: dict[str, Any] = {}
    for one in project.state.asked:
        if one.state == "here" and desk.is_unlocked(project):
            try:
                opened[one.id] = open_result(desk, project, one)
            except CORRECTABLE as found:
                opened[one.id] = in_page_words(found)
    return {
        "opened": opened,
        "outgoing": {one.id: outgoing(desk, project, one) for one in project.state.asked},
        "book": book(desk, project) if opened else None,
        "checked_means": CHECKED,
        "in_rounds": asking.IN_ROUNDS,
        "no_noise": "" if find_spec("opendp") is not None else SENTENCES["missing-package"],
    }


def open_result(desk: Desk, project: Project, asked: ProjectQuestion) -> Shown:
    """Return a result in the clear, kept in memory until the key is locked."""
    place, owner = (project.id, asked.id), desk.key(project).owner
    if place not in desk.shown and asked.name in asking.IN_ROUNDS:
        found = read_run(project.run_folder(asked), desk.schema(project)).read()
        desk.shown[place] = show_result(found)
    if place not in desk.shown:
        shown = show_result(_open_answer(desk, project, asked))
        with desk.writing:
            record_opening(project.result_file(asked), owner, ledger(desk, project))
        desk.shown[place] = shown
    return desk.shown[place]


def _open_answer(desk: Desk, project: Project, asked: ProjectQuestion) -> Any:
    """Open a result; if that was planned, and there is somebody to ask, after a spot check."""
    owner, schema = desk.key(project).owner, desk.schema(project)
    sealed = es.load(project.result_file(asked), owner.public_keys())
    if not project.state.spot_check or asked.checked:
        return owner.open(sealed, schema)
    with _open_table(desk, project) as table:
        if table is None:
            return owner.open(sealed, schema)
        question = {one.id: question for one, question in desk.pair_questions(project)}[asked.id]
        value = owner.open(sealed, schema, verify="spot", on=table, question=question)
    with project.changing():
        asked.checked = True
    return value


@contextmanager
def _open_table(desk: Desk, project: Project) -> Iterator[Any]:
    """Yield the table where it was computed on; None of a folder,
    where nobody answers, and of a Dask cluster, to which no process with a key connects.
    """
    sent = project.state.sent
    if sent is not None and sent.to == WORKER and not sent.place.startswith("dask"):
        with desk.connect(sent.place, read_token(project), pin=sent.pin or None) as worker:
            yield worker.upload(project.table_folder)
    elif sent is not None and sent.to == HERE:
        yield es.load(project.table_folder)
    else:
        yield None


def predict(desk: Desk, project: Project, asked: ProjectQuestion, path: Path) -> dict[str, Any]:
    """Predict the rows of a file with a decrypted model, into a CSV that only its user can read."""
    out = predictions_file(project, asked)
    task = PredictTask(**_model_facts(desk, project, asked), rows=path, out=out)
    return run_task(task)


def evaluate(desk: Desk, project: Project, asked: ProjectQuestion, path: Path) -> dict[str, Any]:
    """Score a decrypted model on rows of known classes; of two classes also draw its curves."""
    curves = curves_file(project, asked)
    curves.unlink(missing_ok=True)
    task = EvaluateTask(**_model_facts(desk, project, asked), rows=path, curves=curves)
    return run_task(task)


def _model_facts(desk: Desk, project: Project, asked: ProjectQuestion) -> dict[str, Any]:
    private_folder(project.folder / "predictions")
    is_in_rounds = asked.name in asking.IN_ROUNDS
    place = (
        {"run_folder": project.run_folder(asked)}
        if is_in_rounds
        else {"result": project.result_file(asked)}
    )
    return {**desk.task_facts(project), **place}


def curves_file(project: Project, asked: ProjectQuestion) -> Path:
    """Return where the curves of a model are drawn."""
    return project.folder / "predictions" / f"{asked.id}-curves.svg"


def predictions_file(project: Project, asked: ProjectQuestion) -> Path:
    """Return where the latest predictions of a model are."""
    return project.folder / "predictions" / f"{asked.id}.csv"


# -- routes
# ------------------------------------------------------------------------------------------------


def _open(desk: Desk, project: Project, asked: ProjectQuestion) -> Shown:
    try:
        return open_result(desk, project, asked)
    except CORRECTABLE as error:
        raise NotHere(409, in_page_words(error)) from None


@router.post("/p/{id}/results/{question}/file")
def take(web: TheWeb, project: TheProject, asked: TheQuestion, form: SentForm) -> Response:
    """Take a result that came back as a file."""

    def act() -> str:
        path = str(form.get("path", "")).strip()
        if not path:
            raise Refused("give the full path of the file", code="no-file-given")
        take_result(project, asked, Path(path).expanduser())
        return "results?done=fetched"

    return web.attempt(project, "results", act)


@router.get("/p/{id}/results/{question}.csv")
def as_csv(desk: TheDesk, project: TheProject, asked: TheQuestion) -> Response:
    """Give the main table of a result as CSV."""
    content = _open(desk, project, asked).csv.encode()
    return download(content, f"{asked.name}-{asked.id}.csv", "text/csv")


@router.get("/p/{id}/results/{question}.svg")
def as_svg(desk: TheDesk, project: TheProject, asked: TheQuestion, dark: int = 0) -> Response:
    """Give the picture of a result."""
    found = _open(desk, project, asked).svg(dark=bool(dark))
    if found is None:
        raise NotHere(404, "there is no picture of this result")
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
        with open_rows(project, form) as (path, name):
            found = act(path, name)
    except CORRECTABLE as error:
        return web.step(project, "results", in_page_words(error), 422)
    return web.step(project, "results", **found)


@router.get("/p/{id}/results/{question}/predictions.csv")
def predictions(desk: TheDesk, project: TheProject, asked: TheQuestion) -> Response:
    """Give the latest predictions of a model, while the key is unlocked."""
    path = predictions_file(project, asked)
    if not path.is_file() or not desk.is_unlocked(project):
        raise NotHere(404, "there are no predictions, or the key is locked")
    return download(path.read_bytes(), f"predictions-{asked.id}.csv", "text/csv")


@router.get("/p/{id}/results/{question}/curves.svg")
def curves(desk: TheDesk, project: TheProject, asked: TheQuestion) -> Response:
    """Give the curves of a model."""
    path = curves_file(project, asked)
    if not path.is_file() or not desk.is_unlocked(project):
        raise NotHere(404, "there is no picture yet, or the key is locked")
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
