"""The client: ``es.connect`` and what a connected worker does. Encrypted tables go up, encrypted
answers come down, and no key.

Uploads go on where they were, at the grain of an object; downloads at that of a byte. What comes
down is checked before it gets its name: that it is whole, of the owner's key, and an answer to what
was asked, from the rows that were sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from encryptedstats.cluster.jobs import listed_table
from encryptedstats.crypto import PublicKeys
from encryptedstats.errors import (
    REPLACE,
    ArgumentError,
    ArgumentTypeError,
    Cure,
    ExistsError,
    FileFormatError,
    StorageError,
    WorkerError,
)
from encryptedstats.progress import BYTES, progress_bar
from encryptedstats.service.connection import PATIENCE, PIN_VARIABLE, Body, Connection, find_token
from encryptedstats.service.door import WELCOME, refused_kind
from encryptedstats.storage import container
from encryptedstats.storage.container import DIGEST_BYTES, Container
from encryptedstats.storage.files import PRIVATE, place_new, temporary_path
from encryptedstats.storage.objects import Store, open_store, read_object
from encryptedstats.tables import EncryptedTable, PublicSchema, Question, Schema
from encryptedstats.tables.answers.answer import PREDICTION_KIND
from encryptedstats.tables.answers.files import ANSWER_KINDS, listed_blocks
from encryptedstats.tables.blocks import BlockEntry
from encryptedstats.tables.encrypted_table import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    StoredBlocks,
    TableFacts,
    keys_name,
)
from encryptedstats.tables.questions.folds import folds_of
from encryptedstats.tables.questions.summaries import Asked
from encryptedstats.tables.schema.names import class_or_variable

if TYPE_CHECKING:
    from typing_extensions import Self

Url = str | os.PathLike[str]
ENDED: Final = ("done", "failed", "cancelled")
_AT_ONCE: Final = 4
_PAUSE: Final = 1.0


def connect(
    url: str,
    token: str | None = None,
    *,
    pin: str | None = None,
    token_file: Url | None = None,
    patience: float = PATIENCE,
) -> Worker:
    """A worker that ``encryptedstats worker serve`` runs somewhere: it computes on encrypted tables that
    are sent to it.

    Parameters
    ----------
    url : str
        Such as ``"https://worker.example"``; plain http only to this machine itself.
    token : str, optional
        Whoever runs the worker gives it. By default it is in a file that ``token_file`` or
        ``ENCRYPTEDSTATS_TOKEN_FILE`` names, of mode 0600, or in ``ENCRYPTEDSTATS_TOKEN``.
    pin : str, optional
        ``"sha256:..."``, the SHA-256 of the worker's certificate: then that one is taken, whoever
        signed it, and no other. By default it is what ``ENCRYPTEDSTATS_PIN`` says, if that is set.
    patience : float
        Seconds for which a worker that has answered before is asked again: it may be starting anew.
        One that has never answered is given up within 10 seconds.

    Examples
    --------
    >>> worker = es.connect("https://worker.example", token="est_...")  # doctest: +SKIP
    >>> table = worker.upload("train")  # doctest: +SKIP
    >>> job = worker.fit(es.MultinomialNB(), table)  # doctest: +SKIP
    >>> worker.result(job, "model.enc")  # doctest: +SKIP
    """
    known = find_token(token_file) if token is None else token
    return Worker(Connection(url, known, pin or os.environ.get(PIN_VARIABLE) or None, patience))


@dataclass(frozen=True)
class JobStatus:
    """How far a job of a worker is. ``str`` of it is a line.

    Attributes
    ----------
    id, kind, state : str
        ``state`` is "queued", "running", "done", "failed" or "cancelled".
    shards, shards_done, rows, rows_done, workers : int
    core_seconds : float
        That it has taken so far; ``plan`` has what was expected.
    failures : tuple of str
    result_bytes : int or None
    """

    id: str
    kind: str
    state: str
    made: str
    table: str | None
    question: str | None
    shards: int
    shards_done: int
    rows: int
    rows_done: int
    workers: int
    core_seconds: float
    plan: Mapping[str, Any] | None
    failures: tuple[str, ...]
    result_bytes: int | None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        return self.state in ENDED

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> JobStatus:
        """What the worker said, without what this version does not know."""
        known = {one.name: values.get(one.name) for one in fields(cls)}
        return cls(**{**known, "failures": tuple(map(str, values.get("failures") or ()))})  # type: ignore[arg-type]  # from JSON

    def __str__(self) -> str:
        done = (
            f"{self.shards_done:,} of {self.shards:,} shards, {self.rows_done:,} of {self.rows:,} "
            "rows"
        )
        return "\n  ".join(
            [
                f"job {self.id[:12]}, {self.state}: {done}",
                *(f"failed: {one}" for one in self.failures),
            ]
        )


@dataclass(frozen=True, eq=False)
class WorkerTable(Asked):
    """A table that a worker has: the name by which it knows it, and what is publicly known of it
    here.

    It is asked as a table here is, and gives jobs: ``table.counts("v0")``.
    """

    worker: Worker = field(repr=False)
    name: str
    facts: TableFacts = field(repr=False)
    entries: tuple[BlockEntry, ...] = field(repr=False)
    schema: Schema | PublicSchema = field(repr=False)

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return sum(entry.rows for entry in self.entries)

    @property
    def key_id(self) -> str:
        """Whose it is."""
        return self.facts.key_id

    def ask(self, question: Question, **options: Any) -> WorkerJob:
        """Ask a question of it; the answer is that of the job."""
        return self.worker.ask(question, self, **options)

    def delete(self) -> None:
        """Let the worker forget it."""
        self.worker._connection.json("DELETE", f"/v1/tables/{self.name}")

    def _position(self, variable: str | int) -> int:
        return class_or_variable(variable, self.schema)


@dataclass(frozen=True, eq=False)
class WorkerJob:
    """A job of a worker.

    Attributes
    ----------
    id : str
        ``worker.job(id)`` finds it again, after this program has ended.
    kind : str
        "fit", "ask", "predict", "combine" or "draw".
    """

    worker: Worker = field(repr=False)
    id: str
    kind: str
    table: WorkerTable = field(repr=False)
    question: Question | None = field(default=None, repr=False)

    def status(self) -> JobStatus:
        """How far it is."""
        return JobStatus.from_dict(self.worker._connection.json("GET", f"/v1/jobs/{self.id}"))

    def events(self) -> Iterator[JobStatus]:
        """Its status after every change, until it has ended. A line that breaks is mended."""
        while True:
            try:
                with self.worker._connection.answered(
                    "GET", f"/v1/jobs/{self.id}/events"
                ) as stream:
                    for line in stream.iter_lines():
                        if line.startswith("data:"):
                            status = JobStatus.from_dict(json.loads(line.removeprefix("data:")))
                            yield status
                            if status.has_ended:
                                return
            except self.worker._connection.broken:
                pass
            time.sleep(_PAUSE)
            status = self.status()
            yield status
            if status.has_ended:
                return

    def wait(self, progress: bool | Callable[[JobStatus], None] | None = None) -> JobStatus:
        """Wait until it is done; an error if it fails or is cancelled.

        ``progress`` is called with every status, or says whether a bar is shown: by default on a
        terminal.
        """
        first = self.status()
        told = progress if callable(progress) else None
        with progress_bar(
            self.kind, first.rows, "rows", False if callable(progress) else progress
        ) as advance:
            done = 0
            for status in [first] if first.has_ended else self.events():
                advance(status.rows_done - done)
                done = status.rows_done
                if told is not None:
                    told(status)
        if status.state != "done":
            why = "; ".join(status.failures) or "somebody asked for it"
            raise WorkerError(
                f"job {self.id[:12]} is {status.state} at {self.worker.url}: {why}. To ask the "
                "same again goes on",
                code="failed-job",
            )
        return status

    def cancel(self) -> JobStatus:
        """Let the worker begin nothing more of it; what is done is kept."""
        return JobStatus.from_dict(
            self.worker._connection.json("POST", f"/v1/jobs/{self.id}/cancel")
        )

    def delete(self) -> None:
        """Let the worker forget it, and its result; it must have ended."""
        self.worker._connection.json("DELETE", f"/v1/jobs/{self.id}")


class Worker:
    """A worker somewhere else, made by :func:`encryptedstats.connect`: it gets encrypted tables,
    and gives encrypted answers.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def url(self) -> str:
        """Where it is."""
        return self._connection.url

    def __repr__(self) -> str:
        return f"Worker({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._connection.close()

    def offers(self) -> dict[str, Any]:
        """Its version, devices and limits, and how much is stored there."""
        found: dict[str, Any] = self._connection.json("GET", "/v1/offers")
        return found

    # -- tables
    # --------------------------------------------------------------------------------------------

    def upload(
        self,
        table: Url | EncryptedTable,
        *,
        keys: PublicKeys | Url | None = None,
        progress: bool | Callable[[int, int], None] | None = None,
    ) -> WorkerTable:
        """Send an encrypted table: its folder or URL, or the table itself. What is there already is
        not sent again.

        ``keys`` are the public ones to compute with, where the table does not bring them.
        ``progress`` is called with bytes that are there and all bytes, or says whether a bar is
        shown: by default on a terminal.
        """
        with _stored(table) as store:
            found = _objects(store, keys)
            self._send(found.read, found.sizes, progress)
        self._connection.json("PUT", f"/v1/tables/{found.name}", json={"keys": found.keys})
        return found.table(self, table)

    def table(self, name: str) -> WorkerTable:
        """A table that was uploaded before, by its name."""
        manifest = self._connection.send("GET", f"/v1/objects/{name}").content
        if hashlib.sha256(manifest[:-DIGEST_BYTES]).hexdigest() != name:
            raise FileFormatError(
                f"{self.url} has another manifest than that of the table {name[:12]}",
                code="other-manifest",
            )
        facts, entries = listed_table(manifest, "the manifest")
        return WorkerTable(self, name, facts, entries, facts.schema)

    def _send(
        self,
        read: Mapping[str, Callable[[], bytes]],
        sizes: Mapping[str, int],
        progress: bool | Callable[[int, int], None] | None,
    ) -> None:
        """All objects that the worker does not have, some at the same time."""
        wanted = self._missing(read)
        straight = bool(wanted) and self.offers()["presigned"]
        total, told = sum(sizes.values()), progress if callable(progress) else None
        there = total - sum(sizes[name] for name in wanted)
        show = False if callable(progress) else progress
        with (
            progress_bar("uploading", total, BYTES, show, there) as advance,
            ThreadPoolExecutor(_AT_ONCE) as pool,
        ):
            if told is not None:
                told(there, total)
            waiting = [
                (name, pool.submit(self._send_one, name, read[name], straight, advance))
                for name in wanted
            ]
            try:
                for name, sending in waiting:
                    sending.result()
                    there += sizes[name]
                    if told is not None:
                        told(there, total)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _missing(self, names: Iterable[str]) -> list[str]:
        found: list[str] = self._connection.json(
            "POST", "/v1/objects/missing", json={"sha256": list(names)}
        )["sha256"]
        return found

    def _send_one(
        self,
        name: str,
        read: Callable[[], bytes],
        straight: bool,
        advance: Callable[[float], None] = lambda _: None,
    ) -> None:
        data = read()
        _check_welcome(data, name)
        body = Body(data, advance)
        if straight:
            signed = self._connection.json(
                "POST", f"/v1/objects/{name}/presigned", params={"bytes": len(data)}
            )
            self._connection.put_elsewhere(signed["url"], body)
            self._connection.json(
                "POST", f"/v1/objects/{name}/arrived", params={"upload": signed["upload"]}
            )
        else:
            self._connection.json("PUT", f"/v1/objects/{name}", content=body, headers=body.headers)

    # -- jobs
    # --------------------------------------------------------------------------------------------

    def fit(
        self, model: Question, table: WorkerTable | str, *, folds: bool = False, **options: Any
    ) -> WorkerJob:
        """Fit a model to a table that was uploaded, or to every fold that it declares, as
        ``model.fit_folds`` does.

        Options: ``rows_per_shard``, ``trees_per_task``, ``by_others``.
        """
        known = self._known(table)
        return self._ask(
            "fit", folds_of(model, known.facts.n_folds) if folds else model, known, options
        )

    def ask(self, question: Question, table: WorkerTable | str, **options: Any) -> WorkerJob:
        """Ask a statistic, or any other question. Options: as of :meth:`fit`."""
        return self._ask("ask", question, table, options)

    def plan(
        self,
        questions: Question | Sequence[Question],
        table: WorkerTable | Url | EncryptedTable,
        *,
        keys: PublicKeys | Url | None = None,
    ) -> dict[str, Any]:
        """What a fit or a question, or several, would take there: seconds of one core, rows,
        totals, products, bytes of answers.

        Of a table that was uploaded, or of one that may be: of that, its folder or URL or the table
        itself, the list of its blocks is sent and nothing else, and ``bytes_up`` says what there is
        still to send. ``keys`` are as of :meth:`upload`. Where several are asked, ``plans`` has
        what each would take.
        """
        if isinstance(table, WorkerTable) or _is_name(table):
            known, to_send = self._known(table), 0
        else:
            with _stored(table) as store:
                found = _objects(store, keys)
                known, wanted = found.table(self, table), self._missing(found.read)
                to_send = sum(found.sizes[name] for name in wanted)
                if found.name in wanted:
                    self._send_one(found.name, found.read[found.name], straight=False)
        asked = [questions] if isinstance(questions, Question) else list(questions)
        requests = [_request("ask", known, _in_ids(one, known)) for one in asked]
        plans = [self._connection.json("POST", "/v1/plans", json=one) for one in requests]
        sums = {
            name: sum(one[name] for one in plans)
            for name in ("core_seconds", "totals", "products", "bytes_down")
        }
        return {"rows": known.n_rows, "bytes_up": to_send, **sums, "plans": plans}

    def predict(
        self,
        answer: WorkerJob | Url | Any,
        table: WorkerTable | str,
        *,
        output: str | None = None,
        **options: Any,
    ) -> WorkerJob:
        """Predict the rows of a table by an encrypted model: a job that fitted one, its file, or
        the model itself.
        """
        known = self._known(table)
        request = {**_request("predict", known), "answers": [self._named(answer)], **options}
        return self._post(known, {**request, **({} if output is None else {"output": output})})

    def draw(self, forest: WorkerJob | Url | Any, table: WorkerTable | str) -> WorkerJob:
        """Draw the stochastic fraction of an encrypted forest from the table of all its rows."""
        known = self._known(table)
        return self._post(known, {**_request("draw", known), "answers": [self._named(forest)]})

    def combine(
        self,
        answers: Sequence[WorkerJob | Url | Any],
        table: WorkerTable | str | None = None,
        *,
        forget: Sequence[WorkerJob | Url | Any] = (),
    ) -> WorkerJob:
        """Add encrypted answers of different rows up, and take the rows of those to ``forget`` out
        again.

        ``table`` is any one of the same keys; by default that of the first job among the answers.
        """
        given = table or next(
            (one.table for one in (*answers, *forget) if isinstance(one, WorkerJob)), None
        )
        if given is None:
            raise ArgumentError(
                "none of these answers is a job of this worker: give the table= whose keys they "
                "belong to",
                code="no-table",
            )
        known, request = self._known(given), _request("combine", self._known(given))
        named = {
            "answers": list(map(self._named, answers)),
            "forget": list(map(self._named, forget)),
        }
        return self._post(
            known, {**request, **{name: found for name, found in named.items() if found}}
        )

    def job(self, job_id: str) -> WorkerJob:
        """A job that was asked for before."""
        status = JobStatus.from_dict(self._connection.json("GET", f"/v1/jobs/{job_id}"))
        return WorkerJob(self, status.id, status.kind, self.table(str(status.table)))

    def jobs(self) -> list[JobStatus]:
        """All jobs of the token's owner, the latest first."""
        return [
            JobStatus.from_dict(one) for one in self._connection.json("GET", "/v1/jobs")["jobs"]
        ]

    def _ask(
        self, kind: str, question: Question, table: WorkerTable | str, options: Mapping[str, Any]
    ) -> WorkerJob:
        if not isinstance(question, Question):
            raise ArgumentTypeError(
                f"worker.{kind} needs a model of this library or another question, not a "
                f"{type(question).__name__}",
                code="not-a-question",
            )
        known = self._known(table)
        asked = _in_ids(question, known)
        given = {name: value for name, value in options.items() if value is not None}
        return self._post(known, {**_request(kind, known, asked), **given}, asked)

    def _post(
        self, table: WorkerTable, request: Mapping[str, Any], question: Question | None = None
    ) -> WorkerJob:
        status = JobStatus.from_dict(self._connection.json("POST", "/v1/jobs", json=dict(request)))
        return WorkerJob(self, status.id, status.kind, table, question)

    def _known(self, table: WorkerTable | str) -> WorkerTable:
        if isinstance(table, WorkerTable):
            return table
        if not _is_name(table):
            raise ArgumentError(
                f"{table!r} is no table of a worker: worker.upload({table!r}) makes one",
                code="not-a-table",
            )
        return self.table(table)

    def _named(self, answer: WorkerJob | Url | Any) -> str:
        """What the worker calls an encrypted answer; one that it does not have is sent first."""
        if isinstance(answer, WorkerJob):
            return f"job:{answer.id}"
        if isinstance(answer, (str, os.PathLike)):
            data = read_object(answer)
        elif hasattr(answer, "to_container"):
            data = container.to_bytes(answer.to_container())
        else:
            raise ArgumentTypeError(
                "an encrypted answer is needed: a job, a file or a model, not a "
                f"{type(answer).__name__}",
                code="not-an-answer",
            )
        found = container.from_bytes(data, name="the answer")
        if found.kind not in ANSWER_KINDS:
            raise FileFormatError(
                f"{answer} holds {found.kind!r}, and an encrypted answer is sent to a worker, "
                "nothing that is open",
                code="not-encrypted",
            )
        name = data[-DIGEST_BYTES:].hex()
        self._send({name: lambda: data}, {name: len(data)}, False)
        return f"object:{name}"

    # -- results
    # --------------------------------------------------------------------------------------------

    def result(
        self, job: WorkerJob, out: Url, *, overwrite: bool = False, progress: bool | None = None
    ) -> Path:
        """Wait for a job, download its encrypted answer, check it, and give it its name."""
        target = Path(out)
        if target.exists() and not overwrite:
            raise ExistsError(
                f"{target} exists already; it was not touched (",
                REPLACE,
                " replaces it)",
                code="already-exists",
            )
        status = job.wait(progress)
        temporary = temporary_path(target)
        try:
            with open(
                temporary, "xb", opener=lambda name, flags: os.open(name, flags, PRIVATE)
            ) as file:
                self._download(job, file, status.result_bytes or 0, progress)
                file.flush()
                os.fsync(file.fileno())
            _check_answer(container.read(temporary), job)
            if job.kind != "predict":
                os.chmod(temporary, 0o666 & ~_umask())
            if overwrite:
                os.replace(temporary, target)
            else:
                place_new(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        return target

    def _download(self, job: WorkerJob, file: Any, size: int, progress: bool | None) -> None:
        """All bytes, going on where a broken line left off."""
        end = time.monotonic() + self._connection.patience
        with progress_bar("downloading", size, BYTES, progress) as advance:
            while True:
                start = file.tell()
                headers = {"Range": f"bytes={start}-"} if start else {}
                try:
                    with self._connection.answered(
                        "GET", f"/v1/jobs/{job.id}/result", headers=headers
                    ) as answer:
                        if start and answer.status_code != 206:
                            file.seek(0)
                            file.truncate()
                        for part in answer.iter_bytes(1 << 20):
                            file.write(part)
                            advance(len(part))
                    return
                except self._connection.broken as error:
                    if file.tell() == start and time.monotonic() > end:
                        raise StorageError(
                            f"the result of job {job.id[:12]} breaks off on the way: try again",
                            code="interrupted-download",
                        ) from error
                    time.sleep(_PAUSE)


# -- pieces
# ------------------------------------------------------------------------------------------------


def _is_name(table: object) -> TypeGuard[str]:
    """Whether this is what a worker calls a table."""
    return isinstance(table, str) and len(table) == 64 and not set(table) - set("0123456789abcdef")


@dataclass(frozen=True)
class _Objects:
    """The objects that a stored table is made of: how large each is, and what reads it."""

    name: str
    keys: str
    facts: TableFacts
    entries: tuple[BlockEntry, ...]
    sizes: dict[str, int]
    read: dict[str, Callable[[], bytes]]

    def table(self, worker: Worker, given: Url | EncryptedTable) -> WorkerTable:
        """The table as the worker knows it."""
        private = given.private_schema if isinstance(given, EncryptedTable) else None
        return WorkerTable(
            worker, self.name, self.facts, self.entries, private or self.facts.schema
        )


def _objects(store: Store, keys: PublicKeys | Url | None) -> _Objects:
    manifest = _manifest(store)
    facts, entries = listed_table(manifest, store.where(MANIFEST))
    sizes = {entry.sha256: entry.bytes for entry in entries}
    read: dict[str, Callable[[], bytes]] = {
        entry.sha256: _reader(store, entry) for entry in entries
    }
    public = _keys_bytes(store, facts, keys)
    name, of_keys = (data[-DIGEST_BYTES:].hex() for data in (manifest, public))
    sizes |= {name: len(manifest), of_keys: len(public)}
    read |= {name: partial(bytes, manifest), of_keys: partial(bytes, public)}
    return _Objects(name, of_keys, facts, entries, sizes, read)


def _request(kind: str, table: WorkerTable, question: Question | None = None) -> dict[str, Any]:
    asked = {} if question is None else {"question": question.name, "params": question.parameters()}
    return {"kind": kind, "table": table.name, **asked}


def _in_ids(question: Question, table: WorkerTable) -> Question:
    """A question as the worker is asked it: without names, and with nothing left to chance."""
    asked = question.in_ids(table.schema)
    asked.check(table.facts.schema)
    return asked.settled()


@contextmanager
def _stored(table: Url | EncryptedTable) -> Iterator[Store]:
    """Where a table lies; one that is in memory is stored for as long as it takes."""
    if not isinstance(table, EncryptedTable):
        yield open_store(table)
    elif isinstance(table.blocks, StoredBlocks):
        yield open_store(table.blocks.store.url)
    else:
        with tempfile.TemporaryDirectory() as folder:
            table.save(folder)
            yield open_store(folder)


def _manifest(store: Store) -> bytes:
    try:
        return store.read(MANIFEST, limit=MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no encrypted table lies at {store.url}, or it was not finished"
        ) from None


def _reader(store: Store, entry: BlockEntry) -> Callable[[], bytes]:
    def read() -> bytes:
        data = store.read(entry.name, limit=entry.bytes)
        if data[-DIGEST_BYTES:].hex() != entry.sha256:
            raise FileFormatError(
                f"{store.where(entry.name)} is not the block that the manifest lists: altered or "
                "exchanged",
                code="altered-block",
            )
        return data

    return read


def _keys_bytes(store: Store, facts: TableFacts, keys: PublicKeys | Url | None) -> bytes:
    if isinstance(keys, PublicKeys):
        return container.to_bytes(keys.to_container())
    if keys is not None:
        return read_object(keys)
    try:
        return store.read(keys_name(facts.key_id))
    except FileNotFoundError:
        raise WorkerError(
            f"there are no public keys beside the table {store.url}: ",
            Cure("give keys", "give keys=, those"),
            f" of key {facts.key_id}",
            code="no-public-keys",
        ) from None


def _check_welcome(data: bytes, name: str) -> None:
    """Refuse here what a worker must not have: it never leaves this machine."""
    found = container.peeked(data, len(data), f"the object {name[:12]}")
    refusal = refused_kind(*found, name) if found is not None else None
    if found is None or refusal is not None or found[0].kind not in WELCOME:
        raise WorkerError(
            f"nothing was sent: {refusal}"
            if refusal
            else "nothing was sent: it is no file of this library",
            code="unwelcome-file",
        )


def _check_answer(file: Container, job: WorkerJob) -> None:
    """Refuse a file that cannot be the answer to what was asked."""
    wrong = f"what {job.worker.url} gave as the result of job {job.id[:12]}"
    if file.kind not in ANSWER_KINDS or (file.kind == PREDICTION_KIND) != (job.kind == "predict"):
        raise FileFormatError(f"{wrong} is {file.kind!r}", code="wrong-kind")
    if file.key_id != job.table.key_id:
        raise FileFormatError(
            f"{wrong} belongs to key {file.key_id}, and the table to {job.table.key_id}",
            code="other-key",
        )
    if job.question is not None and (file.expect("question", str), file.expect("params", dict)) != (
        job.question.name,
        json.loads(json.dumps(job.question.parameters())),
    ):
        raise FileFormatError(
            f"{wrong} answers another question than {job.question.describe()}",
            code="other-question",
        )
    if job.kind != "combine" and file.expect("n_rows", int) != job.table.n_rows:
        raise FileFormatError(
            f"{wrong} is of {file.expect('n_rows', int):,} rows, and the table has "
            f"{job.table.n_rows:,}",
            code="other-row-count",
        )
    if job.kind in ("fit", "ask") and set(listed_blocks(file)) != {
        entry.id for entry in job.table.entries
    }:
        raise FileFormatError(
            f"{wrong} is of other rows than those of the table", code="other-rows"
        )


def _umask() -> int:
    before = os.umask(0o077)
    os.umask(before)
    return before
