"""The owner's desk: her projects, the keys that are unlocked just now, and what is done in each
step.

Nothing secret leaves this process but as an encrypted table; passphrases and unlocked keys are in
its memory alone, and forgotten with it. Results are fetched before they are opened, whole and by a
thread that knows nothing of opening: whether one opens is known here and nowhere else.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Final

import encryptedstats as es
from encryptedstats.app import asking, columns
from encryptedstats.app.columns import Made
from encryptedstats.app.projects import Asked, Key, Project, Projects, Sealed, Sent, private_folder
from encryptedstats.app.sending import PATIENCE, Connect, at_worker
from encryptedstats.app.showing import Outgoing, Shown, published, released, shown_result
from encryptedstats.app.tasks import EncryptTask, EvaluateTask, PredictTask
from encryptedstats.app.words import in_page_words
from encryptedstats.app.work import Work, run_task
from encryptedstats.circuits.plan import Plan
from encryptedstats.errors import Cure
from encryptedstats.publishing.ledger import NoLedgerError
from encryptedstats.publishing.opening import record_opening
from encryptedstats.storage import container
from encryptedstats.storage.files import PRIVATE, temporary_path, write_atomic, write_together
from encryptedstats.tables.encryption import DRAFT
from encryptedstats.tables.manifest import MANIFEST
from encryptedstats.words import plural

LEAST_PASSPHRASE: Final = 10
#: A key that nobody has used for so long is locked again: somebody may have gone home.
IDLE_SECONDS: Final = 30 * 60.0
WORKER, FOLDER = "worker", "folder"
_COPY_AT_ONCE: Final = 1 << 20
_SECONDS_BETWEEN_LOOKS: Final = 1.0
#: The two ways in which others may see a result.
BY_RULES, WITH_NOISE = "published", "released"


class UnfinishedError(es.FileFormatError):
    """A file of a result that is damaged, or that is still being copied."""


class Refused(es.EncryptedStatsError, ValueError):
    """What cannot be done now, and what to do first."""


@dataclass
class Unlocked:
    """A key that may be used until it is locked again: in memory, and nowhere else."""

    owner: es.Owner = field(repr=False)
    passphrase: str = field(repr=False)
    used: float = field(default_factory=time.monotonic)


class Desk:
    """What the page works on.

    Parameters
    ----------
    home : Path
        Folder of all projects.
    connect : callable
        Gives a client for a worker's URL and token; ``es.connect``.
    """

    def __init__(self, home: Path, connect: Connect) -> None:
        self.projects = Projects(home)
        self.connect = connect
        self._unlocked: dict[str, Unlocked] = {}
        self._work: dict[tuple[str, str], Work] = {}
        self._shown: dict[tuple[str, str], Shown] = {}
        self._outgoing: dict[tuple[str, str], dict[str, Outgoing]] = {}
        self._plans: dict[str, Plan] = {}
        self._lock = threading.Lock()
        self._writing = threading.RLock()  # of ledgers

    # -- data
    # --------------------------------------------------------------------------------------------

    def choose_file(self, project: Project, path: Path, *, copied: bool = False) -> None:
        """Take a file of rows for the project."""
        self._check_open(project)
        data = columns.look_at(path.resolve(), copied=copied)
        with project.changing() as state:
            state.data, state.columns_done, state.plan = data, False, None
            known = set(data.columns)
            state.choices.uses = {
                name: use for name, use in state.choices.uses.items() if name in known
            }
            state.choices.cuts = {
                name: text for name, text in state.choices.cuts.items() if name in known
            }
            state.choices.target = state.choices.target if state.choices.target in known else ""
            state.choices.id = state.choices.id if state.choices.id in known else ""

    def keep_dropped(self, project: Project, name: str, content: BinaryIO) -> Path:
        """Copy a file that was dropped into the project, readable to its user only."""
        self._check_open(project)
        folder = project.folder / "data"
        private_folder(folder)
        path = folder / columns.safe_name(name)
        write_atomic(path, iter(lambda: content.read(_COPY_AT_ONCE), b""), mode=PRIVATE)
        return path

    # -- columns and questions
    # -----------------------------------------------------------------------------------------

    def made(self, project: Project) -> Made:
        """The schema as the choices say it just now."""
        if project.state.data is None:
            raise Refused("choose a file first, in the step Data", code="no-data")
        return columns.make_schema(project.state.data, project.state.choices)

    def decide_columns(self, project: Project) -> None:
        """Keep the schema: what comes later is asked of it."""
        self._check_open(project)
        schema = self.made(project).schema
        with project.changing() as state:
            write_atomic(project.schema_file, [schema.to_json().encode() + b"\n"], mode=PRIVATE)
            state.columns_done, state.plan = True, None

    def schema(self, project: Project) -> es.Schema:
        """The schema that was decided."""
        if not project.state.columns_done:
            raise Refused(
                "decide on the columns first, in the step Columns", code="columns-undecided"
            )
        return es.Schema.load(project.schema_file)

    def ask(self, project: Project, name: str, parameters: Mapping[str, Any]) -> None:
        """Add a question, if it can be asked of these columns."""
        self._check_open(project)
        asking.question_of(name, parameters, self.schema(project))
        with project.changing() as state:
            state.asked.append(Asked(secrets.token_hex(4), name, dict(parameters)))
            state.plan = None

    def unask(self, project: Project, id: str) -> None:
        """Take a question away."""
        self._check_open(project)
        with project.changing() as state:
            state.asked = [one for one in state.asked if one.id != id]
            state.plan = None

    def questions(self, project: Project) -> list[es.Question]:
        """All questions as a worker is asked them."""
        schema = self.schema(project)
        return [asking.question_of(one.name, one.parameters, schema) for one in project.state.asked]

    def plan(self, project: Project) -> Plan:
        """Parameters and cost of all questions over all rows; kept in memory, and its figures in
        the project.
        """
        with self._lock:
            found = self._plans.get(project.id)
        if found is not None and project.state.plan is not None:
            return found
        data, questions = project.state.data, self.questions(project)
        if data is None or not questions:
            raise Refused("ask something first, in the step Questions", code="no-questions")
        made = es.plan(questions, self.schema(project), data.rows)
        with self._lock:
            self._plans[project.id] = made
        with project.changing() as state:
            state.plan = {**made.to_dict(), "lines": made.rows()}
        return made

    # -- the key
    # --------------------------------------------------------------------------------------------

    def make_key(self, project: Project, passphrase: str, again: str) -> None:
        """Keys for the plan, the secret one locked by a passphrase."""
        self._check_open(project)
        if passphrase != again:
            raise Refused(
                "the two passphrases differ: type the same twice", code="passphrases-differ"
            )
        if len(passphrase) < LEAST_PASSPHRASE:
            raise Refused(
                f"the passphrase has {plural(len(passphrase), 'character')}, and at least "
                f"{LEAST_PASSPHRASE} are wanted",
                code="passphrase-too-short",
            )
        made = self.plan(project)
        owner = es.Owner(made)
        self._keep_key(
            project, owner, passphrase, Key(owner.key_id, owner.fingerprint, _now()), made
        )

    def use_key(self, project: Project, source: Project | Path, passphrase: str) -> None:
        """Take a key that is there already, of another project or a file, if it carries what is
        asked: that is planned with it.

        The project gets a copy of its own, locked by the same passphrase.
        """
        self._check_open(project)
        data, questions = project.state.data, self.questions(project)
        if data is None or not questions:
            raise Refused("ask something first, in the step Questions", code="no-questions")
        if not passphrase:
            raise Refused(
                "type the passphrase of the key that you want to use", code="no-passphrase"
            )
        path = source.key_file if isinstance(source, Project) else source.expanduser()
        if not path.is_file():
            raise Refused(
                f"{path} is no file: choose a project, or give the full path of a key such as "
                "secret.key",
                code="no-such-file",
            )
        owner = es.Owner.load(path, passphrase)
        made = es.plan(questions, self.schema(project), data.rows, keys=owner)
        key = Key(owner.key_id, owner.fingerprint, _now(), of=str(path))
        if isinstance(source, Project) and source.state.key is not None:
            key = replace(source.state.key, of=source.state.key.of or source.state.title)
        self._keep_key(project, owner, passphrase, key, made)

    def keys_before(self, project: Project) -> list[Project]:
        """Other projects that have a key, the newest first; one of those that share a key."""
        found: dict[str, Project] = {}
        for other in self.projects.all()[0]:
            if other.id != project.id and other.state.key is not None and other.key_file.is_file():
                found.setdefault(other.state.key.key_id, other)
        return list(found.values())

    def _keep_key(
        self, project: Project, owner: es.Owner, passphrase: str, key: Key, made: Plan
    ) -> None:
        with self._lock:
            self._plans[project.id] = made
        with project.changing() as state:
            writers: dict[Path, Callable[[Path], None]] = {
                project.key_file: lambda path: owner.save(path, passphrase),
                project.public_file: owner.public_keys().save,
            }
            write_together(writers, overwrite=False)
            state.key, state.plan = key, {**made.to_dict(), "lines": made.rows()}
        self._unlocked[project.id] = Unlocked(owner, passphrase)

    def unlock(self, project: Project, passphrase: str) -> None:
        """Open the key of a project for as long as this program runs, or until it is
        locked again.
        """
        key = project.state.key
        if key is None:
            raise Refused("there is no key yet: make one in the step Key", code="no-key")
        owner = es.Owner.load(project.key_file, passphrase)
        if owner.key_id != key.key_id:
            raise es.KeyMismatchError(
                f"{project.key_file} is the key {owner.key_id}, and this project was made with "
                f"the key {key.key_id}: put the "
                "file of that key back",
                code="other-key",
            )
        self._unlocked[project.id] = Unlocked(owner, passphrase)

    def lock(self, project: Project) -> None:
        """Forget the passphrase, the key, and all that was opened with it."""
        self._unlocked.pop(project.id, None)
        for kept in (self._shown, self._outgoing):
            for place in [place for place in kept if place[0] == project.id]:
                del kept[place]

    def is_unlocked(self, project: Project) -> bool:
        """Whether its key can be used without a passphrase just now; to ask is to use it."""
        found = self._unlocked.get(project.id)
        if found is None:
            return False
        if time.monotonic() - found.used > IDLE_SECONDS:
            self.lock(project)
            return False
        found.used = time.monotonic()
        return True

    def _key(self, project: Project) -> Unlocked:
        if not self.is_unlocked(project):
            raise Refused("unlock the key first: type its passphrase", code="key-locked")
        return self._unlocked[project.id]

    def _check_open(self, project: Project) -> None:
        if project.state.key is not None:
            raise Refused(
                "a key was made for exactly these columns and questions, so that they cannot "
                "change any more: start a copy of "
                "the project to ask something else",
                code="columns-and-questions-fixed",
            )

    # -- encrypting
    # --------------------------------------------------------------------------------------------

    def work(self, project: Project, name: str) -> Work | None:
        """What is under way, or how it ended, since this program was started."""
        return self._work.get((project.id, name))

    def _start(self, project: Project, name: str, target: Callable[[Work], None]) -> None:
        with self._lock:
            old = self._work.get((project.id, name))
            if old is None or not old.is_running:
                self._work[project.id, name] = Work(name).start(target)

    def stop(self, project: Project, name: str) -> None:
        """Want something to end."""
        if (work := self.work(project, name)) is not None:
            work.stop()
        if name == "send":
            with project.changing() as state:
                if state.sent is not None:
                    state.sent.stopped = True

    def start_encrypting(self, project: Project) -> None:
        """Encrypt all rows, in a process of its own; what an earlier run has finished is kept."""
        data = project.state.data
        if data is None or project.state.key is None:
            raise Refused("make a key first, in the step Key", code="no-key")
        if project.state.sealed is not None:
            return
        columns.check_unchanged(data)
        unlocked = self._key(project)
        self._start(project, "encrypt", lambda work: self._encrypt(project, unlocked, work))

    def _encrypt(self, project: Project, unlocked: Unlocked, work: Work) -> None:
        data, chunks = project.state.data, (project.state.plan or {}).get("chunks", 0)
        assert data is not None
        work.tell(EncryptTask.label, 0, chunks, EncryptTask.unit)
        found = self._find_finished_table(project, unlocked.owner)
        if found is None:
            task = EncryptTask(
                **self._task_facts(project),
                rows=Path(data.path),
                out=project.table_folder,
                # A finished table that does not fit was never sent: it is made anew.
                replace_table=(project.table_folder / MANIFEST).is_file(),
            )
            facts = run_task(task, work, chunks)
            columns.check_unchanged(data)
            found = facts["rows"], facts["rows_left_out"]
        files = [path for path in project.table_folder.rglob("*") if path.is_file()]
        with project.changing() as state:
            state.sealed = Sealed(*found, sum(path.stat().st_size for path in files), len(files))

    def _task_facts(self, project: Project) -> dict[str, Any]:
        """Return the fields that every task of a project has."""
        return {
            "key": project.key_file,
            "passphrase": self._key(project).passphrase,
            "schema_file": project.schema_file,
        }

    def _find_finished_table(self, project: Project, owner: es.Owner) -> tuple[int, int] | None:
        """Return the rows of a table that an earlier run finished, and of those left out.

        The program may have been killed after its command had finished the table and before it
        noted that. The table is adopted if it has the project's key and schema and all rows of
        the file, which must not have been touched since it was chosen. Otherwise return None.
        """
        data = project.state.data
        assert data is not None
        if (
            not (project.table_folder / MANIFEST).is_file()
            or (project.table_folder / DRAFT).exists()
        ):
            return None
        try:
            table = es.EncryptedTable.load(project.table_folder, owner.public_keys())
        except (es.FileFormatError, es.KeyMismatchError, OSError):
            return None
        digest = owner.decryptor.schema_digest(self.schema(project).digest_json())
        is_same = table.key_id == owner.key_id and table.facts.schema_digest == digest
        is_all = table.n_rows + table.n_dropped == data.rows
        is_untouched = os.stat(data.path).st_mtime_ns == data.modified
        return (table.n_rows, table.n_dropped) if is_same and is_all and is_untouched else None

    # -- sending
    # --------------------------------------------------------------------------------------------

    def send_to_worker(self, project: Project, url: str, token: str, pin: str = "") -> None:
        """Upload the table, ask all questions, wait for the results, and fetch them: in a thread,
        resumed after a restart.
        """
        self._check_sealed(project)
        if not url.startswith(("http://", "https://")):
            raise Refused(
                f"{url or 'nothing'} is no address of a worker: it begins with https://, or "
                "http:// on your own machine",
                code="not-a-url",
            )
        sent = project.state.sent
        if not token and not (
            sent is not None and sent.place == url and project.token_file.is_file()
        ):
            raise Refused(
                "the worker wants a token: whoever runs it has given you one", code="no-token"
            )
        with self.connect(url, token or project.token_file.read_text().strip(), pin=pin or None):
            pass  # nothing is sent yet: an address or a pin that cannot be is refused
        if token:
            write_atomic(project.token_file, [token.strip().encode()], mode=PRIVATE)
        with project.changing() as state:
            if sent is None or (sent.to, sent.place) != (WORKER, url):
                state.sent = Sent(WORKER, url)
                for one in state.asked:
                    one.job, one.failed = "", ""
                    one.state = "here" if project.result_file(one).is_file() else ""
            elif sent is not None:
                sent.stopped = False
            assert state.sent is not None
            state.sent.pin = pin
        self.go_on(project)

    def send_to_folder(self, project: Project, folder: Path) -> None:
        """Copy the table into a folder that a worker reads, and watch there for results."""
        self._check_sealed(project)
        if not folder.is_absolute():
            raise Refused(
                f"{folder} is not the full path of a folder: it begins with /",
                code="not-a-full-path",
            )
        target = folder / "table.enc"
        if target.exists():
            raise Refused(
                f"{target} is there already: choose another folder", code="already-exists"
            )
        folder.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(target)
        try:
            shutil.copytree(project.table_folder, temporary)
            os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        with project.changing() as state:
            state.sent = Sent(FOLDER, str(folder), done=True)
        self.go_on(project)

    def _check_sealed(self, project: Project) -> None:
        if project.state.sealed is None:
            raise Refused("encrypt the table first, in the step Encrypt", code="not-encrypted")

    def go_on(self, project: Project) -> None:
        """Send what is to be sent, and wait for results that are still to come."""
        sent = project.state.sent
        if sent is None or not any(one.state != "here" for one in project.state.asked):
            return
        if sent.to == WORKER:
            self._start(project, "send", lambda work: self._at_worker(project, work))
        else:
            self._start(project, "send", lambda work: self._at_folder(project, work))

    def resume(self) -> None:
        """After a restart: go on wherever results are still to come, unless the owner has stopped
        it.
        """
        for project in self.projects.all()[0]:
            if project.state.sent is not None and not project.state.sent.stopped:
                self.go_on(project)

    def _at_worker(self, project: Project, work: Work) -> None:
        sent = project.state.sent
        assert sent is not None
        token = project.token_file.read_text().strip()
        with self.connect(sent.place, token, patience=PATIENCE, pin=sent.pin or None) as client:
            at_worker(client, project, self.questions(project), work)

    def _at_folder(self, project: Project, work: Work) -> None:
        sent = project.state.sent
        assert sent is not None
        unfinished: dict[str, tuple[int, int]] = {}
        while coming := [one for one in project.state.asked if one.state != "here"]:
            for one in coming:
                path = Path(sent.place) / f"{one.id}.enc"
                if not path.is_file():
                    continue
                found = path.stat()
                if unfinished.get(one.id) == (found.st_size, found.st_mtime_ns):
                    continue
                with suppress(
                    UnfinishedError
                ):  # still being copied: it is read again when it has changed
                    self.take_result(project, one, path)
                    continue
                unfinished[one.id] = found.st_size, found.st_mtime_ns
            here = sum(one.state == "here" for one in project.state.asked)
            work.tell(
                "Waiting for results in the folder", here, len(project.state.asked), "results"
            )
            work.wait(_SECONDS_BETWEEN_LOOKS)

    def take_result(self, project: Project, asked: Asked, path: Path) -> None:
        """Keep a result that has come back as a file in the project, still encrypted.

        Raises
        ------
        UnfinishedError
            The file is damaged, or not all of it is there yet. Nothing is kept.
        """
        content = path.read_bytes()
        try:
            key_id = container.from_bytes(content).key_id
        except es.FileFormatError as error:
            raise UnfinishedError(
                f"{path} is not a complete result ({error}). If it is still being copied, wait "
                "and ",
                Cure("take again", "take it again"),
                code="incomplete-result",
            ) from error
        if project.state.key is None or key_id != project.state.key.key_id:
            raise es.KeyMismatchError(
                f"{path} belongs to key {key_id}, which is not the key of this project",
                code="other-key",
            )
        with project.changing():
            write_atomic(project.result_file(asked), [content], mode=PRIVATE)
            asked.state, asked.failed = "here", ""

    def commands(self, project: Project) -> list[tuple[Asked, list[str]]]:
        """How a worker computes each result in the folder that the table went to."""
        schema = self.schema(project)
        found = []
        for one in project.state.asked:
            question = asking.question_of(one.name, one.parameters, schema)
            words = [
                "encryptedstats",
                "ask",
                "table.enc",
                *asking.asking_words(question),
                "-o",
                f"{one.id}.enc",
            ]
            found.append((one, words))
        return found

    # -- opening
    # --------------------------------------------------------------------------------------------

    def open_result(self, project: Project, asked: Asked) -> Shown:
        """A result in the clear, kept in memory until the key is locked. Nobody is asked for
        anything but the file here.
        """
        place, owner = (project.id, asked.id), self._key(project).owner
        if place not in self._shown:
            schema = self.schema(project)
            sealed = es.load(project.result_file(asked), owner.public_keys())
            shown = shown_result(owner.open(sealed, schema), asking.title_of(asked.name))
            with self._writing:
                record_opening(project.result_file(asked), owner, self.ledger(project))
            self._shown[place] = shown
        return self._shown[place]

    def predict(self, project: Project, asked: Asked, path: Path) -> tuple[dict[str, Any], Path]:
        """Predict the rows of a file with an opened model.

        Returns
        -------
        dict
            What was predicted, see :meth:`FilePredictions.facts`.
        Path
            A CSV that only its user can read.
        """
        folder = project.folder / "predictions"
        private_folder(folder)
        out = folder / f"{asked.id}-{columns.safe_name(path.name).partition('.')[0]}.csv"
        task = PredictTask(**self._model_facts(project, asked), rows=path, out=out)
        return run_task(task), out

    def evaluate(self, project: Project, asked: Asked, path: Path) -> dict[str, Any]:
        """Score an opened model on rows of known classes; of two classes also draw its curves."""
        curves = self.curves_file(project, asked)
        private_folder(curves.parent)
        curves.unlink(missing_ok=True)
        task = EvaluateTask(**self._model_facts(project, asked), rows=path, curves=curves)
        return run_task(task)

    def _model_facts(self, project: Project, asked: Asked) -> dict[str, Any]:
        return {**self._task_facts(project), "result": project.result_file(asked)}

    def curves_file(self, project: Project, asked: Asked) -> Path:
        """Where the curves of a model are drawn."""
        return project.folder / "predictions" / f"{asked.id}-curves.svg"

    def given_file(
        self, project: Project, path: str, name: str | None, content: BinaryIO | None
    ) -> Path:
        """A file of rows to predict for: by its path, or one that was chosen in the browser, which
        is copied.
        """
        if name and content is not None:
            folder = project.folder / "data"
            private_folder(folder)
            copy = folder / f"new-{columns.safe_name(name)}"
            write_atomic(copy, iter(lambda: content.read(_COPY_AT_ONCE), b""), mode=PRIVATE)
            return copy
        if not path.strip():
            raise Refused("choose a file, or give its full path", code="no-file-given")
        return Path(path).expanduser()

    # -- publishing
    # --------------------------------------------------------------------------------------------

    def ledger(self, project: Project) -> es.Ledger:
        """What was opened, published and released so far; begun where there is none yet."""
        owner = self._key(project).owner
        with self._writing:
            book = es.Ledger(project.ledger_folder, owner)
            try:
                book.check_member(owner)
            except NoLedgerError:
                return es.Ledger.begin(project.ledger_folder, owner)
        return book

    def set_budget(self, project: Project, epsilon: float, delta: float) -> None:
        """What all releases of the project together may cost."""
        self.ledger(project).set_budget(self._key(project).owner, epsilon, delta)

    def publish(self, project: Project, asked: Asked, rules: str) -> None:
        """See what others may by a profile of rules. The ledger is told, and refuses what gives
        rows away with what it has.
        """
        owner, schema = self._key(project).owner, self.schema(project)
        with self._writing, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", es.DisclosureWarning)
            found = owner.publish(
                project.result_file(asked), schema, rules=rules, ledger=self.ledger(project)
            )
        warned = [
            in_page_words(one.message)
            for one in told
            if isinstance(one.message, es.DisclosureWarning)
        ]
        title = f"{asking.title_of(asked.name)}: {asking.described(asked.name, asked.parameters)}"
        self._keep(project, asked, BY_RULES, published(found, title, warned))

    def release(self, project: Project, asked: Asked, epsilon: float, delta: float) -> None:
        """See a result with noise, which is spent from the budget before, and kept in a file: to
        make it again costs again.
        """
        owner, schema = self._key(project).owner, self.schema(project)
        with self._writing:
            book = self.ledger(project)
            if book.budget is None:
                raise Refused(
                    "say first what all releases together may cost: set a budget, below the results",
                    code="no-budget",
                )
            private_folder(project.released_folder)
            found = owner.release(
                project.result_file(asked), schema, epsilon=epsilon, delta=delta, ledger=book
            )
            number = 1 + sum(1 for _ in project.released_folder.iterdir())
            file = project.released_folder / f"{number}-{asked.id}.released"
            found.save(file)
        self._keep(project, asked, WITH_NOISE, released(found, asking.title_of(asked.name), file))

    def _keep(self, project: Project, asked: Asked, way: str, found: Outgoing) -> None:
        self._outgoing.setdefault((project.id, asked.id), {})[way] = found

    def outgoing(self, project: Project, asked: Asked) -> dict[str, Outgoing]:
        """What others may see of a result, by the way in which they may; until the key
        is locked.
        """
        return self._outgoing.get((project.id, asked.id), {}) if self.is_unlocked(project) else {}

    def write_report(self, project: Project) -> Path:
        """The page for an ethics board, from the table, the results, the releases and
        the ledger.
        """
        results = [
            path for one in project.state.asked if (path := project.result_file(one)).is_file()
        ]
        paid = sorted(project.released_folder.glob("*.released"))
        es.write_report(
            project.board_file,
            [project.table_folder, *results, *paid],
            keys=self._key(project).owner,
            ledger=self.ledger(project),
            title=project.state.title,
            overwrite=True,
        )
        return project.board_file


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
