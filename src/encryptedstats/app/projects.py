"""Projects: what the owner has decided and done so far, kept in a folder of her own, so that it
outlives the tab and the program.

A project is a folder with mode 0700. Its state is a JSON file that is replaced whole. It has no
passphrase, no secret key and no token in it: the key is a file of its own, locked by the
passphrase, and so is the worker's token, readable to its user only.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from encryptedstats.app.words import in_page_words
from encryptedstats.errors import FileFormatError
from encryptedstats.storage.files import MAX_DOCUMENT_BYTES, PRIVATE, read_regular, write_atomic

_STATE: Final = "project.json"
_LONGEST_ID: Final = 64
#: Least and greatest value of a number, as far as they are given.
Bounds = tuple[float | None, float | None]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Data(_Document):
    """The file of rows, as it was when it was chosen."""

    path: str
    bytes: int
    modified: int
    sha256: str
    rows: int
    columns: list[str]
    copied: bool


class Choices(_Document):
    """What the owner wants the columns to be; everything else follows from the questions and the
    rows. ``missing`` is empty until she has said what becomes of missing values.
    """

    target: str = ""
    id: str = ""
    bins: int = 5
    missing: Literal["", "error", "drop", "bin"] = ""
    unknown: str = "error"
    rare: str = ""
    uses: dict[str, str] = Field(default_factory=dict)
    cuts: dict[str, str] = Field(default_factory=dict)
    bounds: dict[str, Bounds] = Field(default_factory=dict)
    levels: dict[str, str] = Field(default_factory=dict)


class ProjectQuestion(_Document):
    """A question, by the names that the owner knows, what it needs of which columns ("number",
    "bins" or "times"), how far it is, and whether its result passed a spot check. ``mode`` is how
    the sites of a study answer it, and ``called`` the name of its result there.
    """

    id: str
    name: str
    parameters: dict[str, Any]
    needs: dict[str, str] = Field(default_factory=dict)
    mode: str = ""
    called: str = ""
    job: str = ""
    state: str = ""
    failed: str = ""
    checked: bool = False


class ProjectKey(_Document):
    """What may be known of the key; ``of`` says where it came from, if it was not made for this
    project.
    """

    key_id: str
    fingerprint: str
    made: str
    copied: bool = False
    of: str = ""


class Sealed(_Document):
    """The encrypted table."""

    rows: int
    left_out: int
    bytes: int
    files: int


class Sent(_Document):
    """Where the table went: to a worker by its URL, to a folder, or nowhere. ``pin`` is the SHA-256
    of the one certificate that the worker may have.
    """

    to: str
    place: str
    table: str = ""
    done: bool = False
    stopped: bool = False
    pin: str = ""


class LinkDraft(_Document):
    """How the sites of a new study link different columns of the same people; ``brings`` has the
    site of each column.
    """

    brings: dict[str, str]
    identifiers: list[str]
    agent: str = ""
    reveals: str = "size"
    min_count: int = 10
    sensitive: bool = False


class StudyDraft(_Document):
    """A study that is being made. Nothing of it is written where others see it."""

    schema_given: bool = False
    parties_done: bool = False
    url: str = ""
    sites: list[str] = Field(default_factory=list)
    worker: str = ""
    receiver: str = ""
    rows: int = 0
    key: str = "one holder"
    openers: int = 0
    minimum: int = 10
    linked: LinkDraft | None = None


class State(_Document):
    """All that is kept of a project. ``revision`` counts its changes, so that a form that was shown
    before one of them is noticed.
    """

    version: Literal[2] = 2
    revision: int = 0
    title: str
    created: str
    sample: bool = False
    data: Data | None = None
    choices: Choices = Field(default_factory=Choices)
    columns_done: bool = False
    asked: list[ProjectQuestion] = Field(default_factory=list)
    plan: dict[str, Any] | None = None
    spot_check: bool = False
    key: ProjectKey | None = None
    sealed: Sealed | None = None
    sent: Sent | None = None
    seen: list[str] = Field(default_factory=list)
    study: StudyDraft | None = None

    @property
    def has_given_schema(self) -> bool:
        """Whether the schema came from a file, so that there are no rows here."""
        return self.study is not None and self.study.schema_given


class Project:
    """A folder, and the state in it. ``with project.changing() as state`` changes and keeps it."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder = folder
        self.state = state
        self._lock = threading.RLock()

    @property
    def id(self) -> str:
        """How addresses name it."""
        return self.folder.name

    @contextmanager
    def changing(self) -> Iterator[State]:
        """Give the state to change. It is stored at the end, unless an error is raised."""
        with self._lock:
            before = self.state.model_copy(deep=True)
            try:
                yield self.state
                if self.state != before:
                    self.state.revision += 1
                    self.write()
            except BaseException:
                self.state = before
                raise

    def write(self) -> None:
        """Write the state to its file."""
        content = self.state.model_dump_json(indent=1).encode()
        write_atomic(self.folder / _STATE, [content], mode=PRIVATE)

    @property
    def schema_file(self) -> Path:
        """The schema, once it was decided."""
        return self.folder / "schema.json"

    @property
    def key_file(self) -> Path:
        """The secret key, locked."""
        return self.folder / "secret.key"

    @property
    def public_file(self) -> Path:
        """The public keys."""
        return self.folder / "public.keys"

    @property
    def table_folder(self) -> Path:
        """The encrypted table: all that ever leaves."""
        return self.folder / "table.enc"

    @property
    def token_file(self) -> Path:
        """What the worker knows the owner by."""
        return self.folder / "worker.token"

    def result_file(self, asked: ProjectQuestion) -> Path:
        """Return where the encrypted result of a question is."""
        return self.folder / "results" / f"{asked.id}.enc"

    def run_folder(self, asked: ProjectQuestion) -> Path:
        """Return where the rounds of a question are, with what was opened in them."""
        return self.folder / "results" / f"{asked.id}.run"

    @property
    def ledger_folder(self) -> Path:
        """What was opened, published and released, and what that cost: beside the key."""
        return self.folder / "project.ledger"

    @property
    def released_folder(self) -> Path:
        """What was released: it has been paid for, so it is kept."""
        return self.folder / "released"

    @property
    def board_file(self) -> Path:
        """The report for an ethics board."""
        return self.folder / "report.html"

    def question(self, id: str) -> ProjectQuestion:
        """Return one of its questions."""
        for one in self.state.asked:
            if one.id == id:
                return one
        raise LookupError(id)


class Projects:
    """All projects below a folder; the newest first."""

    def __init__(self, home: Path) -> None:
        self.home = home
        private_folder(home)
        self._known: dict[str, Project] = {}
        self._lock = threading.Lock()

    def all(self) -> tuple[list[Project], list[str]]:
        """Return the projects that can be read, and a sentence for each of the others."""
        found, wrong = [], []
        for folder in self.home.iterdir():
            if (folder / _STATE).is_file():
                try:
                    found.append(self.get(folder.name))
                except (FileFormatError, OSError, LookupError) as error:
                    wrong.append(f"{folder.name}: {in_page_words(error)}")
        return sorted(found, key=lambda one: one.state.created, reverse=True), wrong

    def get(self, id: str) -> Project:
        """Return the project of an id. Raise LookupError if there is none."""
        with self._lock:
            if id not in self._known:
                if (
                    not (id.isalnum() and id.isascii() and len(id) <= _LONGEST_ID)
                    or not (self.home / id / _STATE).is_file()
                ):
                    raise LookupError(id)
                content = read_regular(self.home / id / _STATE, limit=MAX_DOCUMENT_BYTES)
                self._known[id] = Project(self.home / id, _read(content, str(self.home / id)))
            return self._known[id]

    def new(self, title: str, study: StudyDraft | None = None) -> Project:
        """Make an empty project, or the draft of a study."""
        id = secrets.token_hex(6)
        private_folder(self.home / id)
        private_folder(self.home / id / "results")
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        state = State(title=title.strip() or "Untitled", created=now, study=study)
        Project(self.home / id, state).write()
        return self.get(id)

    def delete(self, project: Project) -> None:
        """Delete a project with its key, its table and its results."""
        with self._lock:
            self._known.pop(project.id, None)
            (project.folder / _STATE).unlink(missing_ok=True)  # no other trace is a project
            shutil.rmtree(project.folder)

    def copy(self, project: Project) -> Project:
        """Copy the choices of a project for another key: the questions of an encrypted table cannot
        change.
        """
        made, old = self.new(project.state.title), project.state.model_copy(deep=True)
        with made.changing() as state:
            state.data, state.choices, state.columns_done = old.data, old.choices, old.columns_done
            state.asked = [
                ProjectQuestion(
                    id=secrets.token_hex(4),
                    name=one.name,
                    parameters=one.parameters,
                    needs=one.needs,
                )
                for one in old.asked
            ]
            if old.columns_done:
                write_atomic(made.schema_file, [project.schema_file.read_bytes()], mode=PRIVATE)
        return made


def private_folder(path: Path) -> None:
    """Make a folder that only its user can read."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)


def _read(content: bytes, where: str) -> State:
    try:
        return State.model_validate_json(content)
    except ValidationError as error:
        raise FileFormatError(
            (
                f"{where} holds no project of this version, or its file was altered: it was not "
                "touched"
            ),
            code="malformed-project",
        ) from error
