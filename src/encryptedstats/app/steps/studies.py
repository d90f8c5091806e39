"""Studies: a site or a receiver takes part in one whose folder is a path or a URL.

The rules are the library's: each action here is what is due for this party, done by a process of
its own. A study is a folder below that of the projects, with the party's identity and, for a
receiver, the key, both locked by a passphrase that is kept nowhere.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, ValidationError

import encryptedstats as es
from encryptedstats.app import columns
from encryptedstats.app.desk import IDLE_SECONDS, Refused
from encryptedstats.app.passphrases import LEAST, check_passphrase
from encryptedstats.app.projects import private_folder
from encryptedstats.app.showing import Shown, show_result
from encryptedstats.app.tasks import StudyTask
from encryptedstats.app.web import NotHere, SentForm, TheWeb, download, text_in
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.app.work import Work, run_task
from encryptedstats.errors import FileFormatError
from encryptedstats.procedures.words import describe_procedure
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, PRIVATE, read_regular, write_atomic
from encryptedstats.storage.objects import is_url
from encryptedstats.studies.documents import ESCROW, JOINT, MASKED, ONE_HOLDER, StudyDocument
from encryptedstats.studies.identifiers import DUPLICATES
from encryptedstats.tables.questions.words import describe_question
from encryptedstats.views import TableView, View

router = APIRouter()
FOLDER: Final = "studies"
_STATE: Final = "study.json"
#: What a party has to do, in words; the names are the library's.
ACTIONS: Final = {
    "join": "join with the invitation",
    "link": "link people",
    "keygen": "make the key, or a part of it",
    "add": "bring rows",
    "share": "send what the study waits for",
    "fit": "compute",
    "open": "open what can be opened",
}
_KEYS: Final = {
    ONE_HOLDER: "{receiver} alone has the secret key",
    ESCROW: "the secret key is sealed: {receiver} opens with the help of {openers} sites",
    JOINT: "nobody has the secret key: all sites help to open (experimental)",
}


class JoinedStudy(BaseModel):
    """What is kept of a study here: where it lies, who this party is, and what was compared."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    url: str
    name: str = ""
    compared: str = ""


@dataclass
class StudyDesk:
    """A study in which somebody of this machine takes part."""

    folder: Path
    state: JoinedStudy
    passphrase: str = field(default="", repr=False)
    used: float = 0.0
    work: Work | None = None
    report: str = ""
    rows: str = ""
    looked: dict[str, str] = field(default_factory=dict)
    opened: dict[str, Shown] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """How addresses name it."""
        return self.folder.name

    @property
    def identity(self) -> Path:
        """The party's secret, locked."""
        return self.folder / "party.id"

    @property
    def key(self) -> Path:
        """The secret key of a receiver, locked."""
        return self.folder / "study.key"

    def write(self) -> None:
        """Write the state to its file."""
        content = self.state.model_dump_json(indent=1).encode()
        write_atomic(self.folder / _STATE, [content], mode=PRIVATE)

    @property
    def is_unlocked(self) -> bool:
        """Whether the identity can be used without a passphrase. Nobody used it for long: it is
        locked again, and what was opened is forgotten.
        """
        if time.monotonic() - self.used > IDLE_SECONDS:
            self.lock()
        return bool(self.passphrase)

    def unlock(self, passphrase: str) -> None:
        """Let the identity be used until it is locked again."""
        es.Study(self.state.url, self.identity, passphrase=passphrase)
        self.passphrase, self.used = passphrase, time.monotonic()

    def lock(self) -> None:
        """Forget the passphrase, and what was opened."""
        self.passphrase = ""
        self.opened, self.looked, self.report = {}, {}, ""

    def use(self) -> str:
        """Return the passphrase."""
        if not self.is_unlocked:
            raise Refused("unlock your identity first: type its passphrase", code="identity-locked")
        self.used = time.monotonic()
        return self.passphrase


class Studies:
    """All studies below a folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._known: dict[str, StudyDesk] = {}

    def all(self) -> list[StudyDesk]:
        """Return the studies, by the place where they lie."""
        ids = [path.parent.name for path in self.home.glob(f"*/{_STATE}")]
        return sorted(map(self.get, ids), key=lambda one: one.state.url)

    def get(self, id: str) -> StudyDesk:
        """Return the study of an id. Raise LookupError if there is none."""
        if id not in self._known:
            file = self.home / id / _STATE
            if not (id.isalnum() and id.isascii() and file.is_file()):
                raise LookupError(id)
            content = read_regular(file, limit=MAX_DOCUMENT_BYTES)
            try:
                state = JoinedStudy.model_validate_json(content)
            except ValidationError as error:
                raise FileFormatError(
                    f"{file} was altered: it was not touched", code="malformed-project"
                ) from error
            self._known[id] = StudyDesk(file.parent, state)
        return self._known[id]

    def new(self, url: str) -> StudyDesk:
        """Keep where a study lies, once it is one."""
        if not is_url(url) and not Path(url).is_absolute():
            raise Refused(
                "give the full path of the study's folder, or the address of its bucket",
                code="not-a-full-path",
            )
        es.Study(url)
        for place in self.all():
            if place.state.url == url:
                return place
        made = StudyDesk(self.home / secrets.token_hex(6), JoinedStudy(url=url))
        private_folder(self.home)
        private_folder(made.folder)
        made.write()
        return self.get(made.id)


def _studies(request: Request) -> Studies:
    found: Studies = request.app.state.studies
    return found


def _place(request: Request, id: str) -> StudyDesk:
    try:
        return _studies(request).get(id)
    except LookupError:
        raise NotHere(404, "there is no such study") from None


TheStudies = Annotated[Studies, Depends(_studies)]
TheStudy = Annotated[StudyDesk, Depends(_place)]


# -- what is shown
# ------------------------------------------------------------------------------------------------


def who_sees(document: StudyDocument) -> list[tuple[str, str]]:
    """Return who sees what, in words."""
    found = [("Rows of a site, in the clear", "that site alone")]
    receiver, worker = document.receiver, document.worker
    if document.pools:
        found.append(("Encrypted rows", ", ".join(document.row_readers)))
    if document.questions_in(MASKED):
        found.append(("Totals of a single site", "nobody: only their sum is seen"))
    if document.procedures:
        found.append(("Sums over all sites, round by round", "all sites, and who opens them"))
    found += [
        ("Names of columns and levels", ", ".join(document.members)),
        ("Results", f"{receiver}, who can pass them on"),
    ]
    if document.needs_key:
        said = _KEYS[document.key.kind]
        found.append(("Secret key", said.format(receiver=receiver, openers=document.key.openers)))
    linkage = document.linkage
    if linkage is not None:
        who = "all sites" if linkage.reveals == "size" else "each site, of its own people"
        what = "How many people are shared" if linkage.reveals == "size" else "Who is shared"
        found.append((what, who))
        if linkage.agent:
            found.append(("Keyed hashes of identifiers", f"{linkage.agent}, who links"))
    found.append((f"What {worker} learns", "the questions, sizes, and v0, v1, … for names"))
    return found


def _values(place: StudyDesk) -> dict[str, Any]:
    """Return all that the page of a study shows."""
    study = es.Study(place.state.url)
    document, status = study.document, study.status()
    me, linkage = place.state.name, document.linkage
    all_joined = set(document.parties) <= set(status.state.parties)
    next_steps = [(who, what, ACTIONS.get(what, what)) for who, what in status.next]
    return {
        "document": document,
        "roles": document.roles(me),
        "asked": {name: (_describe(document, name), mode) for name, mode in document.modes.items()},
        "sees": who_sees(document),
        "fingerprint": study.fingerprint if all_joined else "",
        "facts": status.to_dict(),
        "next_steps": next_steps,
        "due": {what for who, what, _ in next_steps if who == me},
        "ended": "" if next_steps else status.ended,
        "kinds": linkage.identifiers if linkage is not None else (),
        "sends": "keyed hashes" if linkage is not None and linkage.agent else "blinded points",
        "has_linked": me in status.to_dict()["people"],
        "has_identity": place.identity.exists(),
        "duplicates": DUPLICATES,
        "least": LEAST,
    }


def _describe(document: StudyDocument, name: str) -> str:
    if name in document.procedures:
        return describe_procedure(document.procedures[name].procedure)
    question = document.questions[name].question
    return describe_question(question.name, question.parameters())


def _show(web: TheWeb, place: StudyDesk, error: str = "", status: int = 200) -> HTMLResponse:
    try:
        values = _values(place)
    except CORRECTABLE as found:
        said = error or in_page_words(found)
        return web.show("message.html", 409, title="Not reachable", message=f"{said}.")
    work = place.work
    failed = work.error if work is not None and not work.is_running else ""
    return web.show(
        "study.html",
        status,
        is_study=True,
        place=place,
        work=work,
        failed=failed,
        error=error,
        unlocked=place.is_unlocked,
        **values,
    )


def _attempt(web: TheWeb, place: StudyDesk, act: Any) -> Response:
    try:
        act()
    except CORRECTABLE as error:
        return _show(web, place, in_page_words(error), 422)
    return RedirectResponse(f"/studies/{place.id}", 303)


# -- what is done
# ------------------------------------------------------------------------------------------------


def join(place: StudyDesk, code: str, passphrase: str, again: str) -> None:
    """Make this party's keys, locked by a passphrase, and sign the document."""
    if not code:
        raise Refused("paste the invitation that you were sent", code="no-invitation")
    if not place.identity.exists():
        if passphrase != again:
            raise Refused(
                "the two passphrases differ: type the same twice", code="passphrases-differ"
            )
        check_passphrase(passphrase)
    joined = es.Study.join(place.state.url, code, place.identity, passphrase=passphrase)
    place.state.name = joined.me.name
    place.write()
    place.passphrase, place.used = passphrase, time.monotonic()


def compare(place: StudyDesk, heard: str) -> None:
    """Compare the fingerprint with what others have read by telephone."""
    if not heard:
        raise Refused("type the fingerprint that was read to you", code="no-fingerprint")
    study = es.Study(place.state.url, fingerprint=heard)
    place.state.compared = study.fingerprint
    place.write()


def act_in_process(place: StudyDesk, action: str, form: dict[str, str]) -> None:
    """Start what is due in a process of its own."""
    if place.work is not None and place.work.is_running:
        raise Refused("something is under way already: wait until it has ended", code="busy")
    rows = None
    if form.get("rows"):
        path = Path(form["rows"]).expanduser()
        if not path.is_absolute() or not path.is_file():
            raise Refused(f"{path} is no file: give its full path", code="no-such-file")
        rows = columns.as_csv(path, place.folder / "data")
    elif action == "add":
        raise Refused("give the full path of the file with your rows", code="no-file-given")
    task = StudyTask(
        url=place.state.url,
        identity=place.identity,
        passphrase=place.use(),
        action=action,  # type: ignore[arg-type]  # refused by the model
        rows=rows,
        on=[one.strip() for one in form.get("on", "").split(",") if one.strip()],
        duplicates=form.get("duplicates") or "refuse",
        send=form.get("send", "yes") == "yes",
        key=_key_file(place) if action == "keygen" else None,
    )
    place.work = Work(action).start(lambda work: _run(place, task, form, work))


def _run(place: StudyDesk, task: StudyTask, form: dict[str, str], work: Work) -> None:
    work.tell(StudyTask.label)
    place.report, place.looked = "", {}
    if task.rows is not None and task.send:
        place.rows = form["rows"]
    place.report = run_task(task, work)["report"]
    if not task.send:
        place.looked = form


def _key_file(place: StudyDesk) -> Path | None:
    """Return where a receiver keeps a key; None where there is none to keep."""
    document = es.Study(place.state.url).document
    is_receiver = place.state.name == document.receiver
    return place.key if is_receiver and document.key.kind != ESCROW else None


def open_results(place: StudyDesk, *, again: bool) -> None:
    """Open what can be opened now, in a thread; the results stay in memory."""
    passphrase = place.use()

    def run(work: Work) -> None:
        work.tell("Opening")
        study = es.Study(place.state.url, place.identity, passphrase=passphrase)
        key = place.key if place.key.exists() else None
        opened = study.open(key, None if key is None else passphrase, again=again)
        place.opened |= {name: _show_opened(name, value) for name, value in opened.items()}

    place.work = Work("open").start(run)


def _show_opened(name: str, value: Any) -> Shown:
    if hasattr(value, "frame"):
        return Shown(View(name, {}, (TableView(name, value.frame()),)))
    return show_result(value)


# -- routes
# ------------------------------------------------------------------------------------------------


@router.get("/studies")
def all_studies(web: TheWeb, known: TheStudies) -> Response:
    """Show all studies, and the form to take part in another."""
    return _list(web, known)


def _list(
    web: TheWeb, known: Studies, error: str = "", status: int = 200, url: str = ""
) -> HTMLResponse:
    values = {"places": known.all(), "home": known.home, "given_url": url}
    return web.show("studies.html", status, is_study=True, error=error, **values)


@router.post("/studies")
def find(web: TheWeb, known: TheStudies, form: SentForm) -> Response:
    """Look at a study."""
    url = text_in(form, "url")
    try:
        place = known.new(url)
    except CORRECTABLE as error:
        return _list(web, known, in_page_words(error), 422, url)
    return RedirectResponse(f"/studies/{place.id}", 303)


@router.get("/studies/{id}")
def show(web: TheWeb, place: TheStudy) -> Response:
    """Show a study."""
    return _show(web, place)


@router.get("/studies/{id}/progress")
def progress(place: TheStudy) -> Response:
    """Load the page again once what is under way has ended."""
    is_running = place.work is not None and place.work.is_running
    return (
        HTMLResponse(status_code=204)
        if is_running
        else HTMLResponse("", headers={"HX-Refresh": "true"})
    )


@router.post("/studies/{id}/stop")
def stop_route(web: TheWeb, place: TheStudy) -> Response:
    """Stop what is under way; it goes on where it was when it is started again."""
    if place.work is not None:
        place.work.stop()
        place.work.finished.wait(5.0)
    return _attempt(web, place, lambda: None)


@router.post("/studies/{id}/join")
def join_route(web: TheWeb, place: TheStudy, form: SentForm) -> Response:
    """Join with an invitation."""
    words = str(form.get("passphrase", "")), str(form.get("again", ""))
    return _attempt(web, place, lambda: join(place, text_in(form, "invitation"), *words))


@router.post("/studies/{id}/unlock")
def unlock_route(web: TheWeb, place: TheStudy, form: SentForm) -> Response:
    """Unlock the identity."""
    return _attempt(web, place, lambda: place.unlock(str(form.get("passphrase", ""))))


@router.post("/studies/{id}/lock")
def lock_route(web: TheWeb, place: TheStudy) -> Response:
    """Lock the identity."""
    return _attempt(web, place, place.lock)


@router.post("/studies/{id}/compare")
def compare_route(web: TheWeb, place: TheStudy, form: SentForm) -> Response:
    """Compare the fingerprint."""
    return _attempt(web, place, lambda: compare(place, text_in(form, "fingerprint")))


@router.post("/studies/{id}/do/{action}")
def do_route(web: TheWeb, place: TheStudy, action: str, form: SentForm) -> Response:
    """Do what is due."""
    if action not in ACTIONS or action == "join":
        raise NotHere(404, "there is nothing of that name to do")
    typed = {name: text_in(form, name) for name in form}

    def act() -> None:
        if action == "open":
            open_results(place, again=typed.get("again") == "yes")
        else:
            act_in_process(place, action, typed)

    return _attempt(web, place, act)


@router.get("/studies/{id}/results/{number}.csv")
def as_csv(place: TheStudy, number: int) -> Response:
    """Give the main table of an opened result as CSV."""
    if not place.is_unlocked or not 0 <= number < len(place.opened):
        raise NotHere(404, "it was not opened since the identity was unlocked")
    name, found = list(place.opened.items())[number]
    return download(found.csv.encode(), f"{columns.safe_name(name)}", "text/csv")
