"""The owner's page: addresses, forms and what they do at the desk. Served on the loopback address
to one browser, see ``guard``.
"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import FormData, UploadFile
from starlette.types import ASGIApp

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.desk import FOLDER, LEAST_PASSPHRASE, WORKER, Desk, Refused
from encryptedstats.app.guard import Guard
from encryptedstats.app.leaving import STEPS, is_done, is_reachable, leaving, next_step
from encryptedstats.app.projects import Asked, Project
from encryptedstats.app.showing import Outgoing, Shown, left_text, scores_of, table_of
from encryptedstats.app.words import MENDABLE, in_page_words
from encryptedstats.pages import SecurityHeaders, environment, static_files
from encryptedstats.publishing.mechanisms import NEEDS_OPENDP
from encryptedstats.publishing.rules import PROFILES

_PREVIEW_ROWS: Final = 6


async def sent_form(request: Request) -> FormData:
    """The fields of a form that was sent."""
    return await request.form(max_files=1, max_fields=5000)


SentForm = Annotated[FormData, Depends(sent_form)]


class Pages:
    """Templates, and the page of every step."""

    def __init__(self, desk: Desk, start: Path) -> None:
        self.desk, self.start = desk, start
        self.templates = environment("encryptedstats.app", "owner")
        self.templates.globals |= {
            "version": es.__version__,
            "steps": STEPS,
            "title_of": asking.title_of,
        }
        self.templates.globals |= {
            "described": asking.described,
            "words_of": columns.words_of,
            "is_done": is_done,
            "is_reachable": is_reachable,
            "profiles": {
                name: rules.describe().partition(": ")[2] for name, rules in PROFILES.items()
            },
        }

    def show(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page."""
        return HTMLResponse(self.templates.get_template(template).render(**values), status)

    def step(
        self, project: Project, step: str, error: str = "", status: int = 200, **more: Any
    ) -> HTMLResponse:
        """The page of a step; what is wrong is said on top of it."""
        values: dict[str, Any] = {}
        try:
            values = getattr(self, f"_{step}")(project, **more)
        except MENDABLE as found:
            error = error or in_page_words(found)
            status = 422 if status == 200 else status
        return self.show(
            f"{step}.html",
            status,
            project=project,
            state=project.state,
            step=step,
            leaves=leaving(step, project.state),
            error=error,
            unlocked=self.desk.is_unlocked(project),
            locked_in=project.state.key is not None,
            **{**_EMPTY[step], **values, **more},
        )

    # What each page needs besides.

    def _data(self, project: Project, folder: str = "", **_: Any) -> dict[str, Any]:
        where = Path(folder) if folder else self.start
        preview = None
        values: dict[str, Any] = {
            "folder": where,
            "parents": [*reversed(where.parents)],
            "files": [],
        }
        values["files"] = list(columns.listed(where))
        if project.state.data is not None:
            columns.check_unchanged(project.state.data)
            preview = table_of(
                columns.frame_of(Path(project.state.data.path)).head(_PREVIEW_ROWS).astype(str)
            )
        return {**values, "preview": preview}

    def _columns(self, project: Project, **_: Any) -> dict[str, Any]:
        data, choices = project.state.data, project.state.choices
        if data is None:
            return {}
        columns.check_unchanged(data)
        frame = columns.frame_of(Path(data.path))
        lines = [
            _line(place, name, frame, None, choices) for place, name in enumerate(data.columns)
        ]
        try:
            made = self.desk.made(project)
        except MENDABLE as found:
            return {"lines": lines, "doubts": (), "made": None, "wrong": in_page_words(found)}
        known = {variable.name: variable for variable in made.schema.variables}
        if made.schema.target_number is not None:
            known[made.schema.target_number.name] = made.schema.target_number
        lines = [
            _line(place, name, frame, known.get(name), choices)
            for place, name in enumerate(data.columns)
        ]
        return {"lines": lines, "doubts": made.doubts, "made": made.schema, "wrong": ""}

    def _questions(
        self, project: Project, name: str = "", given: dict[str, Any] | None = None, **_: Any
    ) -> dict[str, Any]:
        schema = self.desk.schema(project)
        form = asking.form_of(name, given) if name else None
        return {
            "form": form,
            "formula": f"{schema.target or 'outcome'} ~ {' + '.join(schema.names[:3])}",
            "catalogue": asking.catalogue() if form is None else {},
            "variables": asking.variables_for(schema),
        }

    def _plan(self, project: Project, **_: Any) -> dict[str, Any]:
        if project.state.plan is None:
            self.desk.plan(project)
        with project.changing() as state:
            state.seen = sorted({*state.seen, "plan"})
        return {"plan": project.state.plan, "public": self.desk.schema(project).public()}

    def _key(self, project: Project, **_: Any) -> dict[str, Any]:
        return {"least": LEAST_PASSPHRASE, "before": self.desk.keys_before(project)}

    def _encrypt(self, project: Project, **_: Any) -> dict[str, Any]:
        return {"work": self.desk.work(project, "encrypt")}

    def _send(self, project: Project, **_: Any) -> dict[str, Any]:
        sent = project.state.sent
        commands = []
        if sent is not None and sent.to == FOLDER:
            commands = [(one, shlex.join(words)) for one, words in self.desk.commands(project)]
        return {
            "work": self.desk.work(project, "send"),
            "commands": commands,
            "suggested": Path.home() / "for-the-worker",
        }

    def _results(self, project: Project, **_: Any) -> dict[str, Any]:
        opened: dict[str, Any] = {}
        for one in project.state.asked:
            if one.state == "here" and self.desk.is_unlocked(project):
                try:
                    opened[one.id] = self.desk.open_result(project, one)
                except MENDABLE as found:
                    opened[one.id] = in_page_words(found)
        pictures = {
            id: isinstance(one, Shown) and one.svg is not None for id, one in opened.items()
        }
        return {
            "opened": opened,
            "pictures": pictures,
            "work": self.desk.work(project, "send"),
            "outgoing": {one.id: self.desk.outgoing(project, one) for one in project.state.asked},
            "book": self._book(project) if opened else None,
            "no_noise": "" if find_spec("opendp") is not None else NEEDS_OPENDP,
        }

    def _book(self, project: Project) -> dict[str, Any] | str:
        """What the ledger says, or what is wrong with it."""
        try:
            ledger = self.desk.ledger(project)
            budget, spent, frame = ledger.budget, ledger.epsilon_spent, ledger.to_frame()
        except MENDABLE as found:
            return in_page_words(found)
        known = frame.drop(columns="by").astype(object)
        known["time"] = [str(time)[:16].replace("T", " ") for time in known["time"]]
        known = known.rename(columns={"time": "time (UTC)"})
        return {
            "folder": project.ledger_folder,
            "budget": budget,
            "left": "" if budget is None else left_text(spent, budget.epsilon),
            "spent": f"{spent:.4g}",
            "rho": f"{ledger.rho_spent:.4g}",
            "head": ledger.head(),
            "entries": table_of(known.where(known.notna(), "")),
        }


#: What the template of each step wants, where an error came first.
_EMPTY: Final[dict[str, dict[str, Any]]] = {
    "data": {"folder": Path("/"), "parents": [], "files": [], "preview": None},
    "columns": {"lines": [], "doubts": (), "made": None, "wrong": ""},
    "questions": {"form": None, "formula": "", "catalogue": {}, "variables": []},
    "plan": {"plan": None, "public": None},
    "key": {"least": LEAST_PASSPHRASE, "before": [], "given_path": "", "given_project": ""},
    "encrypt": {"work": None},
    "send": {"work": None, "commands": [], "suggested": ""},
    "results": {
        "opened": {},
        "pictures": {},
        "work": None,
        "outgoing": {},
        "book": None,
        "no_noise": "",
    },
}


def _line(place: int, name: str, frame: Any, variable: Any, choices: Any) -> dict[str, Any]:
    """What the table of columns shows of one."""
    use = choices.uses.get(name, columns.AS_FOUND)
    if name == choices.target:
        use = "target"
    elif name == choices.id:
        use = "id"
    return {
        "place": place,
        "name": name,
        "use": use,
        "variable": variable,
        "bars": columns.bars_of(frame[name], variable),
        "cuts": choices.cuts.get(name, ""),
        "missing": int(frame[name].isna().sum()),
    }


def make_app(desk: Desk, start: Path) -> FastAPI:
    """The application, without the guard around it; ``start`` is the folder where the file list
    begins.
    """
    app = FastAPI(title="encryptedstats", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(static_files())
    pages = Pages(desk, start)

    def project_of(id: str) -> Project:
        try:
            return desk.projects.get(id)
        except LookupError:
            raise HTTPException(404, "there is no such project") from None

    def question_of(id: str, question: str) -> tuple[Project, Asked]:
        project = project_of(id)
        try:
            return project, project.question(question)
        except LookupError:
            raise HTTPException(404, "there is no such question") from None

    def tried(project: Project, step: str, act: Callable[[], str | None], **more: Any) -> Response:
        """Do something and go on to a step, or stay and say what is wrong; the form keeps what was
        typed.
        """
        try:
            return RedirectResponse(f"/p/{project.id}/{act() or step}", 303)
        except MENDABLE as error:
            return pages.step(project, step, in_page_words(error), 422, **more)

    def given_file(project: Project, form: FormData) -> Path:
        dropped = form.get("dropped")
        named, content = (
            (dropped.filename, dropped.file) if isinstance(dropped, UploadFile) else (None, None)
        )
        return desk.given_file(project, str(form.get("path", "")), named, content)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        return pages.show(
            "message.html", error.status_code, title="Not found", message=str(error.detail)
        )

    @app.exception_handler(Exception)
    def broken(request: Request, error: Exception) -> Response:
        what = (
            f"{type(error).__name__}: a mistake of the program, not yours. Please report it. Your "
            "project was not touched."
        )
        return pages.show("message.html", 500, title="Something is broken", message=what)

    # -- projects
    # --------------------------------------------------------------------------------------------

    @app.get("/")
    def home() -> Response:
        known, wrong = desk.projects.all()
        found = [(project, next_step(project.state)) for project in known]
        return pages.show("home.html", projects=found, wrong=wrong, home=desk.projects.home)

    @app.post("/projects")
    def new_project(form: SentForm) -> Response:
        project = desk.projects.new(str(form.get("title", "")))
        return RedirectResponse(f"/p/{project.id}/data", 303)

    @app.post("/p/{id}/copy")
    def copy_project(id: str) -> Response:
        made = desk.projects.copy(project_of(id))
        return RedirectResponse(f"/p/{made.id}/{next_step(made.state)}", 303)

    @app.get("/p/{id}")
    def go_on(id: str) -> Response:
        project = project_of(id)
        return RedirectResponse(f"/p/{id}/{next_step(project.state)}", 303)

    # -- steps
    # --------------------------------------------------------------------------------------------

    @app.get("/p/{id}/report")
    def report(id: str) -> Response:
        project = project_of(id)
        values = pages._results(project)
        return pages.show(
            "report.html",
            step="results",
            project=project,
            state=project.state,
            unlocked=desk.is_unlocked(project),
            **values,
        )

    @app.get("/p/{id}/board")
    def board(id: str) -> Response:
        project = project_of(id)
        try:
            file = desk.write_report(project)
        except MENDABLE as error:
            raise HTTPException(409, in_page_words(error)) from None
        return _download(file.read_bytes(), f"report-{project.id}.html", "text/html")

    @app.get("/p/{id}/{step}")
    def show_step(id: str, step: str, folder: str = "", ask: str = "") -> Response:
        project = project_of(id)
        if step not in STEPS:
            raise HTTPException(404, "there is no such step")
        if not is_reachable(step, project.state):
            return RedirectResponse(f"/p/{id}/{next_step(project.state)}", 303)
        more: dict[str, Any] = {}
        more = (
            {"folder": folder}
            if step == "data" and folder
            else {"name": ask}
            if step == "questions" and ask
            else {}
        )
        return pages.step(project, step, **more)

    @app.post("/p/{id}/data")
    def choose(id: str, form: SentForm) -> Response:
        project, dropped = project_of(id), form.get("dropped")

        def act() -> str:
            if isinstance(dropped, UploadFile):
                if not dropped.filename:
                    raise es.ArgumentError("no file was dropped: choose one", code="no-file-given")
                path = desk.keep_dropped(project, dropped.filename, dropped.file)
                desk.choose_file(project, path, copied=True)
            else:
                desk.choose_file(project, Path(str(form.get("path", ""))).expanduser())
            return "columns"

        return tried(project, "data", act)

    @app.post("/p/{id}/columns")
    def choose_columns(request: Request, id: str, form: SentForm) -> Response:
        project = project_of(id)

        def act() -> str:
            desk._check_open(project)
            if project.state.data is None:
                raise es.ArgumentError("choose a file first", code="no-data")
            choices = columns.choices_in(form, project.state.data)
            with project.changing() as state:
                state.choices, state.columns_done, state.plan = choices, False, None
            if form.get("go") == "on":
                desk.decide_columns(project)
                return "questions"
            return "columns"

        if "hx-request" in request.headers:
            answer = tried(project, "columns", act)
            return pages.step(project, "columns") if answer.status_code == 303 else answer
        return tried(project, "columns", act)

    @app.post("/p/{id}/questions")
    def ask_question(id: str, form: SentForm) -> Response:
        project, name = project_of(id), str(form.get("question", ""))
        texts = {key: [str(one) for one in form.getlist(key)] for key in form}
        try:
            given = asking.given_in(name, texts)
        except MENDABLE as error:
            return pages.step(project, "questions", in_page_words(error), 422)
        return tried(
            project, "questions", lambda: desk.ask(project, name, given), name=name, given=given
        )

    @app.post("/p/{id}/questions/{question}/remove")
    def remove_question(id: str, question: str) -> Response:
        project, asked = question_of(id, question)
        return tried(project, "questions", lambda: desk.unask(project, asked.id))

    @app.post("/p/{id}/key")
    def make_key(id: str, form: SentForm) -> Response:
        project = project_of(id)
        words = str(form.get("passphrase", "")), str(form.get("again", ""))
        return tried(project, "key", lambda: desk.make_key(project, *words))

    @app.post("/p/{id}/key/use")
    def use_key(id: str, form: SentForm) -> Response:
        project, other, path = (
            project_of(id),
            str(form.get("project", "")),
            str(form.get("path", "")).strip(),
        )
        source = project_of(other) if other and not path else Path(path)
        words = str(form.get("passphrase", ""))
        return tried(
            project,
            "key",
            lambda: desk.use_key(project, source, words),
            given_path=path,
            given_project=other,
        )

    @app.post("/p/{id}/key/unlock")
    def unlock(id: str, form: SentForm) -> Response:
        project = project_of(id)
        step = str(form.get("step", "key"))
        step = step if step in STEPS else "key"
        return tried(project, step, lambda: desk.unlock(project, str(form.get("passphrase", ""))))

    @app.post("/p/{id}/key/lock")
    def lock(id: str) -> Response:
        project = project_of(id)
        return tried(project, "key", lambda: desk.lock(project))

    @app.post("/p/{id}/key/copied")
    def copied(id: str) -> Response:
        project = project_of(id)
        with project.changing() as state:
            if state.key is not None:
                state.key.copied = True
        return RedirectResponse(f"/p/{id}/key", 303)

    @app.get("/p/{id}/key/file")
    def key_file(id: str) -> Response:
        project = project_of(id)
        if project.state.key is None:
            raise HTTPException(404, "there is no key yet")
        name = f"secret-{project.state.key.key_id[:8]}.key"
        return _download(project.key_file.read_bytes(), name, "application/octet-stream")

    @app.post("/p/{id}/encrypt")
    def encrypt(id: str) -> Response:
        project = project_of(id)
        return tried(project, "encrypt", lambda: desk.start_encrypting(project))

    @app.post("/p/{id}/{name}/stop")
    def stop(id: str, name: str) -> Response:
        project = project_of(id)
        desk.stop(project, name)
        return RedirectResponse(f"/p/{id}/{name if name in STEPS else 'send'}", 303)

    @app.post("/p/{id}/send")
    def send(id: str, form: SentForm) -> Response:
        project, to = project_of(id), str(form.get("to", ""))
        url, token, pin = (str(form.get(name, "")).strip() for name in ("url", "token", "pin"))

        def act() -> None:
            if to == WORKER:
                desk.send_to_worker(project, url, token, pin)
            else:
                desk.send_to_folder(project, Path(str(form.get("folder", ""))).expanduser())

        return tried(project, "send", act, given_url=url, given_pin=pin)

    @app.get("/p/{id}/progress/{name}")
    def progress(id: str, name: str) -> Response:
        project = project_of(id)
        work = desk.work(project, name)
        if work is None or not work.is_running:
            return HTMLResponse("", headers={"HX-Refresh": "true"})
        return pages.show("progress.html", project=project, state=project.state, work=work)

    # -- results
    # --------------------------------------------------------------------------------------------

    def opened(project: Project, asked: Asked) -> Shown:
        try:
            return desk.open_result(project, asked)
        except MENDABLE as error:
            raise HTTPException(409, in_page_words(error)) from None

    @app.post("/p/{id}/results/{question}/file")
    def take(id: str, question: str, form: SentForm) -> Response:
        project, asked = question_of(id, question)
        path = Path(str(form.get("path", ""))).expanduser()
        return tried(project, "results", lambda: desk.take_result(project, asked, path))

    @app.get("/p/{id}/results/{question}.csv")
    def as_csv(id: str, question: str) -> Response:
        project, asked = question_of(id, question)
        return _download(
            opened(project, asked).csv.encode(), f"{asked.name}-{asked.id}.csv", "text/csv"
        )

    @app.get("/p/{id}/results/{question}.svg")
    def as_svg(id: str, question: str) -> Response:
        found = opened(*question_of(id, question)).svg
        if found is None:
            raise HTTPException(404, "there is no picture of this result")
        return Response(found, media_type="image/svg+xml")

    @app.post("/p/{id}/results/{question}/predict")
    def predict(id: str, question: str, form: SentForm) -> Response:
        project, asked = question_of(id, question)
        try:
            path = given_file(project, form)
            facts, out = desk.predict(project, asked, path)
        except MENDABLE as error:
            return pages.step(project, "results", in_page_words(error), 422)
        return pages.step(
            project,
            "results",
            predicted={"of": asked.id, "facts": facts, "file": out, "rows": path},
        )

    @app.post("/p/{id}/results/{question}/evaluate")
    def evaluate(id: str, question: str, form: SentForm) -> Response:
        project, asked = question_of(id, question)
        try:
            path = given_file(project, form)
            facts = desk.evaluate(project, asked, path)
        except MENDABLE as error:
            return pages.step(project, "results", in_page_words(error), 422)
        curves = desk.curves_file(project, asked).is_file()
        found = {
            "of": asked.id,
            "table": scores_of(facts["scores"]),
            "curves": curves,
            "rows": path,
            "seen": facts["seen"],
        }
        return pages.step(project, "results", scored=found)

    @app.get("/p/{id}/results/{question}/curves.svg")
    def curves(id: str, question: str) -> Response:
        project, asked = question_of(id, question)
        path = desk.curves_file(project, asked)
        if not path.is_file():
            raise HTTPException(404, "there is no picture yet")
        return Response(path.read_bytes(), media_type="image/svg+xml")

    # -- publishing
    # --------------------------------------------------------------------------------------------

    @app.post("/p/{id}/results/budget")
    def set_budget(id: str, form: SentForm) -> Response:
        project = project_of(id)

        def act() -> str:
            desk.set_budget(project, _number(form, "epsilon"), _number(form, "delta"))
            return "results#ledger"

        return tried(project, "results", act)

    @app.post("/p/{id}/results/{question}/publish")
    def publish(id: str, question: str, form: SentForm) -> Response:
        project, asked = question_of(id, question)

        def act() -> str:
            desk.publish(project, asked, str(form.get("rules", "")))
            return f"results#o-{asked.id}"

        return tried(project, "results", act)

    @app.post("/p/{id}/results/{question}/release")
    def release(id: str, question: str, form: SentForm) -> Response:
        project, asked = question_of(id, question)

        def act() -> str:
            desk.release(project, asked, _number(form, "epsilon"), _number(form, "delta"))
            return f"results#o-{asked.id}"

        return tried(project, "results", act)

    def outgoing(id: str, question: str, way: str) -> tuple[Asked, Outgoing]:
        project, asked = question_of(id, question)
        found = desk.outgoing(project, asked)
        if way not in found:
            raise HTTPException(
                404, "this was not published or released since the key was unlocked"
            )
        return asked, found[way]

    @app.get("/p/{id}/results/{question}/{way}.csv")
    def outgoing_csv(id: str, question: str, way: str) -> Response:
        asked, found = outgoing(id, question, way)
        if found.table is None:
            raise HTTPException(404, "nothing can be shown of this result by these rules")
        return _download(found.csv.encode(), f"{way}-{asked.name}-{asked.id}.csv", "text/csv")

    @app.get("/p/{id}/results/{question}/{way}.txt")
    def outgoing_text(id: str, question: str, way: str) -> Response:
        asked, found = outgoing(id, question, way)
        return _download(
            f"{found.text}\n".encode(), f"{way}-{asked.name}-{asked.id}.txt", "text/plain"
        )

    return app


def _number(form: FormData, name: str) -> float:
    text = str(form.get(name, "")).strip()
    try:
        return float(text)
    except ValueError:
        raise Refused(
            f"{name}: {text!r} is no number, such as 0.5 or 1e-6", code="not-a-number"
        ) from None


def _download(content: bytes, name: str, kind: str) -> Response:
    return Response(
        content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def guarded(desk: Desk, port: int, start: Path) -> tuple[ASGIApp, str]:
    """The page as it is served, to nobody but the owner's browser, and the address that
    opens it.
    """
    guard = Guard(make_app(desk, start), port)
    return SecurityHeaders(guard), guard.url


def listening(port: int) -> socket.socket:
    """A socket on the loopback address, and on no other; port 0 takes any that is free."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
        # before the address is printed: who is quick has to wait, and is not turned away
        made.listen()
    except OSError as error:
        made.close()
        raise OSError(
            error.errno,
            f"port {port} of 127.0.0.1 is taken, or may not be: choose another, or 0 for any",
        ) from error
    return made


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until Ctrl-C. Nothing is logged: addresses may have a token in them."""
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    uvicorn.Server(config).run(sockets=[listener])
