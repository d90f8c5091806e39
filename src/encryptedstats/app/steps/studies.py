"""Studies: a site or a receiver takes part in one whose folder is a path or a URL, and who has made
one sends the invitations.

The rules are the library's: each action here is what is due for this party, done by a process of
its own. A study is a folder below that of the projects, with the party's identity and, for a
receiver, the key, both locked by a passphrase that is kept nowhere.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, ValidationError

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.desk import IDLE_SECONDS, Refused
from encryptedstats.app.leaving import next_step
from encryptedstats.app.passphrases import LEAST, check_passphrase
from encryptedstats.app.projects import StudyDraft, private_folder
from encryptedstats.app.showing import Shown, show_result
from encryptedstats.app.tasks import StudyTask
from encryptedstats.app.web import DONE, NotHere, SentForm, TheDesk, TheWeb, download, text_in
from encryptedstats.app.words import CORRECTABLE, in_page_words
from encryptedstats.app.work import Work, run_task
from encryptedstats.errors import FileFormatError
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, PRIVATE, read_regular, write_atomic
from encryptedstats.storage.objects import is_url
from encryptedstats.studies.documents import (
    ESCROW,
    JOINT,
    MASKED,
    ONE_HOLDER,
    TOTALS,
    VOTES,
    StudyDocument,
)
from encryptedstats.studies.identifiers import DUPLICATES
from encryptedstats.views import TableView, View

router = APIRouter()
FOLDER: Final = "studies"
_STATE: Final = "study.json"
_ID: Final = re.compile(r"\b(?:v\d+|class)\b")
_INVITATIONS: Final = "invitations"
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
    """What is kept of a study here: where it lies, which one it is, who this party is, and what was
    compared.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    url: str
    study: str = ""
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
    schema: es.Schema | None = field(default=None, repr=False)
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

    def keep_invitations(self, codes: Mapping[str, str]) -> None:
        """Keep the invitations of a study that was made here until their parties have joined."""
        private_folder(self.folder / _INVITATIONS)
        for name, code in codes.items():
            path = self.folder / _INVITATIONS / f"{name}.invitation"
            write_atomic(path, [code.encode() + b"\n"], mode=PRIVATE)

    def invitation(self, name: str) -> str:
        """Return the invitation of a party; nothing where there is none here."""
        path = self.folder / _INVITATIONS / f"{name}.invitation"
        if not name.isidentifier() or not path.is_file():
            return ""
        return read_regular(path, limit=MAX_DOCUMENT_BYTES).decode().strip()

    def list_invited(self, joined: Collection[str]) -> list[str]:
        """Return whose invitations are here; those who have joined need none any more."""
        found = []
        for path in sorted((self.folder / _INVITATIONS).glob("*.invitation")):
            if path.stem in joined:
                path.unlink(missing_ok=True)
            else:
                found.append(path.stem)
        return found

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
        self.keep_unlocked(
            es.Study(self.state.url, self.identity, passphrase=passphrase), passphrase
        )

    def keep_unlocked(self, study: es.Study, passphrase: str) -> None:
        """Keep the passphrase, and for a member the names of columns, until it is locked again."""
        self.passphrase, self.used = passphrase, time.monotonic()
        self.schema = study.schema if study.me.name in study.document.members else None

    def lock(self) -> None:
        """Forget the passphrase, and what was opened."""
        self.passphrase, self.schema = "", None
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
        id = es.Study(url).document.id
        for place in self.all():
            # A study that was created again in its folder is another one, with another identity.
            if place.state.url == url and place.state.study in ("", id):
                return place
        made = StudyDesk(self.home / secrets.token_hex(6), JoinedStudy(url=url, study=id))
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
    if document.questions_in(TOTALS):
        found.append(("Totals of a single site, encrypted", worker))
    if document.questions_in(MASKED):
        found.append(("Totals of a single site, masked", "nobody: only their sum is seen"))
    if document.procedures:
        found.append(("Sums over all sites, round by round", "all sites, and who opens them"))
    if document.questions_in(VOTES):
        found.append(("Votes for each new row", receiver))
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
        "asked": {
            name: (*_describe(place, document, name), mode) for name, mode in document.modes.items()
        },
        "asks_new": me in status.state.undecided,
        "invited": sorted(place.list_invited(status.state.parties), key=document.parties.index),
        "excludable": [one for one in document.sites if one not in status.state.excluded],
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


def _describe(place: StudyDesk, document: StudyDocument, name: str) -> tuple[str, str]:
    """Return the title of a question and its parameters in words: with the names of columns for
    members who have unlocked their identity, else with v0, v1, … as in the document.
    """
    schema = place.schema if place.state.study in ("", document.id) else None
    if name in document.procedures:
        asked: Any = document.procedures[name].procedure
        words = asking.describe(asked.name, asked.parameters())
        return asked.title, words if schema is None else _with_names(words, schema)
    asked = document.questions[name].question
    if schema is not None:
        asked = asked._in_names(schema)
    return asked.title, asking.describe(asked.name, asked.parameters())


def _with_names(words: str, schema: es.Schema) -> str:
    """Return words with names in the place of v0, v1, … and of the outcome."""
    names = {f"v{j}": name for j, name in enumerate(schema.names)}
    if schema.target is not None:
        names["class"] = schema.target
    # All at once: a name may hold another id, and a level may look like one.
    return _ID.sub(lambda id_: names.get(id_[0], id_[0]), words)


def exclude(place: StudyDesk, site: str, why: str) -> None:
    """Go on without a site, as the receiver."""
    if not site or not why:
        raise Refused("choose the site to go on without, and say why", code="no-reason")
    es.Study(place.state.url, place.identity, passphrase=place.use()).exclude(site, why)


def _show(
    web: TheWeb, place: StudyDesk, error: str = "", status: int = 200, done: str = ""
) -> HTMLResponse:
    unlocked = place.is_unlocked  # before names are shown: it may have been left alone for long
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
        done=done,
        unlocked=unlocked,
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
    if place.state.study not in ("", es.Study(place.state.url).document.id):
        raise Refused(
            "another study lies there since: if all have agreed on it, add it as a new one under "
            "Studies, with your new invitation, and compare the fingerprint",
            code="other-study",
        )
    if not place.identity.exists():
        if passphrase != again:
            raise Refused(
                "the two passphrases differ: type the same twice", code="passphrases-differ"
            )
        check_passphrase(passphrase)
    joined = es.Study.join(place.state.url, code, place.identity, passphrase=passphrase)
    place.state.name, place.state.study = joined.me.name, joined.document.id
    place.write()
    place.keep_unlocked(joined, passphrase)


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
    rows = _file_in(place, form, "rows")
    if rows is None and action == "add":
        raise Refused("give the full path of the file with your rows", code="no-file-given")
    task = StudyTask(
        url=place.state.url,
        identity=place.identity,
        passphrase=place.use(),
        action=action,  # type: ignore[arg-type]  # refused by the model
        rows=rows,
        new=_file_in(place, form, "new"),
        on=[one.strip() for one in form.get("on", "").split(",") if one.strip()],
        duplicates=form.get("duplicates") or "refuse",
        send=form.get("send", "yes") == "yes",
        key=_key_file(place) if action == "keygen" else None,
    )
    place.work = Work(action).start(lambda work: _run(place, task, form, work))


def _file_in(place: StudyDesk, form: dict[str, str], name: str) -> Path | None:
    """Return the file that a form names, as the library reads it; None where it names none."""
    if not form.get(name):
        return None
    path = Path(form[name]).expanduser()
    if not path.is_absolute() or not path.is_file():
        raise Refused(f"{path} is no file: give its full path", code="no-such-file")
    # A folder for each field: two Excel files of one name would be one.
    return columns.as_csv(path, place.folder / f"data-{name}")


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
def all_studies(web: TheWeb, known: TheStudies, done: str = "") -> Response:
    """Show all studies, and the forms to make one and to take part in another."""
    return _list(web, known, done=DONE.get(done, ""))


def _list(
    web: TheWeb, known: Studies, error: str = "", status: int = 200, url: str = "", done: str = ""
) -> HTMLResponse:
    projects, _wrong = web.desk.projects.all()
    drafts = [(one, next_step(one.state)) for one in projects if one.state.study is not None]
    values = {"places": known.all(), "home": known.home, "given_url": url, "drafts": drafts}
    return web.show("studies.html", status, is_study=True, error=error, done=done, **values)


@router.post("/studies")
def find(web: TheWeb, known: TheStudies, form: SentForm) -> Response:
    """Look at a study."""
    url = text_in(form, "url")
    try:
        place = known.new(url)
    except CORRECTABLE as error:
        return _list(web, known, in_page_words(error), 422, url)
    return RedirectResponse(f"/studies/{place.id}", 303)


@router.post("/studies/new")
def begin(desk: TheDesk, form: SentForm) -> Response:
    """Begin to make a study."""
    draft = desk.projects.new(text_in(form, "title"), StudyDraft())
    return RedirectResponse(f"/p/{draft.id}/data", 303)


@router.get("/studies/{id}")
def show(web: TheWeb, place: TheStudy, done: str = "") -> Response:
    """Show a study."""
    return _show(web, place, done=DONE.get(done, ""))


@router.get("/studies/{id}/invitations/{name}.invitation")
def invitation(place: TheStudy, name: str) -> Response:
    """Give the invitation of a party, for the maker of the study to send."""
    if not (code := place.invitation(name)):
        raise NotHere(404, "there is no invitation of that name here")
    return download(code.encode() + b"\n", f"{name}.invitation", "text/plain")


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
    code = text_in(form, "invitation") or place.invitation(text_in(form, "as"))
    return _attempt(web, place, lambda: join(place, code, *words))


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


@router.post("/studies/{id}/exclude")
def exclude_route(web: TheWeb, place: TheStudy, form: SentForm) -> Response:
    """Go on without a site."""
    return _attempt(web, place, lambda: exclude(place, text_in(form, "site"), text_in(form, "why")))


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
