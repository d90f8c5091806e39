"""The one kind of object that answers questions about encrypted tables, wherever it computes.

Imports tables and what is below. A kind of worker says how a table reaches it, how a request is
begun, watched and fetched; checks, waiting, progress and errors are written here, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from encryptedstats.checks import as_count
from encryptedstats.circuits.devices import present
from encryptedstats.crypto.keys import PublicKeys, reading_keys
from encryptedstats.errors import (
    REPLACE,
    ArgumentError,
    ArgumentTypeError,
    EncryptedStatsError,
    ExistsError,
    Failure,
    FileFormatError,
    KeyMismatchError,
    WorkerError,
)
from encryptedstats.machine import cores
from encryptedstats.progress import progress_bar
from encryptedstats.spotcheck import Challenge, Response
from encryptedstats.storage import container
from encryptedstats.storage.container import Container
from encryptedstats.storage.objects import is_url, load_file, open_store, read_object
from encryptedstats.tables.answers.answer import PREDICTION_KIND, Answer
from encryptedstats.tables.answers.files import (
    ANSWER_KINDS,
    OPENED_KINDS,
    read_answer,
    read_block_ids,
    read_presented,
)
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import TableFacts
from encryptedstats.tables.questions.folds import folds_of
from encryptedstats.tables.questions.question import (
    RESULT_KIND,
    Question,
    check_question,
    prepare_question,
)
from encryptedstats.tables.questions.summaries import Asked
from encryptedstats.tables.schema.names import class_or_variable

if TYPE_CHECKING:
    from typing_extensions import Self

    from encryptedstats.tables import PublicSchema, Schema

Url = str | os.PathLike[str]
Progress = bool | Callable[["JobStatus"], None] | None
FIT, ASK, PREDICT, COMBINE, DRAW, RESPOND = KINDS = (
    "fit", "ask", "predict", "combine", "draw", "respond",
)  # fmt: skip
ENDED: Final = ("done", "failed", "cancelled")
#: Options of a request, and what each is for. Every kind of worker takes some of them.
OPTIONS: Final[Mapping[str, str]] = {
    "by_others": "compute on rows that others encrypted with the public keys",
    "rows_per_shard": "the largest number of rows of a shard",
    "trees_per_task": "of a forest: the number of trees of a shard",
    "device": "the device that computes",
    "workers": "processes that are started here",
    "memory_limit": "bytes that the device may hold",
    "checkpoint": "a folder for what is computed, to go on from",
}
_IDLE_SECONDS: Final = 10.0  # after which somebody who waits is told that nobody works
_PAUSES: Final = (0.05, 1.0)  # seconds between two looks at a job
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class JobStatus:
    """How far a job of a worker is. ``str`` of it is a line.

    Attributes
    ----------
    id, kind, state : str
        ``kind`` is "fit", "ask", "predict", "combine", "draw" or "respond"; ``state`` is "queued",
        "running", "done", "failed" or "cancelled".
    made, table, question : str or None
        When the job was made, and what is asked of which table, where the worker keeps it.
    shards, shards_done, rows, rows_done : int
    workers : int
        Processes that compute it now.
    core_seconds : float
        The time that it has taken so far; ``plan`` has what was expected.
    failures : tuple of Failure
        What could not be done, and why.
    result_bytes : int or None
    """

    id: str
    kind: str
    state: str
    rows: int
    rows_done: int = 0
    shards: int = 1
    shards_done: int = 0
    workers: int = 0
    core_seconds: float = 0.0
    failures: tuple[Failure, ...] = ()
    made: str | None = None
    table: str | None = None
    question: str | None = None
    plan: Mapping[str, Any] | None = None
    result_bytes: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        return self.state in ENDED

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
    """A table that a worker can read, and what is publicly known of it here.

    It is asked as an encrypted table is: ``table.counts("v0")``.

    Attributes
    ----------
    name : str
        The worker's name for it.
    place : str
        Where the worker reads it, if that is a place that is known here.
    facts : TableFacts
    rows : tuple of int
        Rows of every block.
    block_ids : tuple of str
    schema : Schema or PublicSchema
    """

    worker: Worker = field(repr=False)
    name: str
    place: str = field(repr=False)
    facts: TableFacts = field(repr=False)
    rows: tuple[int, ...] = field(repr=False)
    block_ids: tuple[str, ...] = field(repr=False)
    schema: Schema | PublicSchema = field(repr=False)
    sealed: EncryptedTable | None = field(default=None, repr=False)
    keys_url: str | None = field(default=None, repr=False)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return sum(self.rows)

    @property
    def key_id(self) -> str:
        """The key that it belongs to."""
        return self.facts.key_id

    def ask(self, question: Question, **options: Any) -> Any:
        """Ask a question of it: see :meth:`Worker.ask`."""
        return self.worker.ask(question, self, **options)

    def respond(self, question: Question, challenge: Challenge, **options: Any) -> Response:
        """Return the worker's combined sums for a spot check: see :meth:`Worker.respond`."""
        return self.worker.respond(question, self, challenge, **options)

    def delete(self) -> None:
        """Let the worker forget it."""
        self.worker._delete_table(self)

    def _position(self, variable: str | int) -> int:
        return class_or_variable(variable, self.schema)

    def keys_for(self, file: Container) -> PublicKeys:
        """Return the keys to read an answer with: those of the table, or enough to open it."""
        if self.sealed is not None and self.sealed._keys is not None:
            return self.sealed.public_keys()
        return reading_keys(file)


@dataclass(frozen=True, eq=False)
class WorkerJob:
    """A request that a worker has begun.

    Attributes
    ----------
    id : str
        ``worker.job(id)`` finds it again, after this program has ended, at workers that keep jobs.
    kind : str
        "fit", "ask", "predict", "combine", "draw" or "respond".
    """

    worker: Worker = field(repr=False)
    id: str
    kind: str
    table: WorkerTable = field(repr=False)
    question: Question | None = field(default=None, repr=False)
    place: str = field(default="", repr=False)

    def status(self) -> JobStatus:
        """Return how far it is."""
        return self.worker.status(self)

    def events(self) -> Iterator[JobStatus]:
        """Yield its status again and again, until it has ended."""
        return self.worker._events(self)

    def wait(self, progress: Progress = None) -> JobStatus:
        """Wait until it is done; an error if it fails or is cancelled."""
        return self.worker._wait(self, progress)

    def result(self, out: Url | None = None, **options: Any) -> Any:
        """Return the encrypted answer: see :meth:`Worker.result`."""
        return self.worker.result(self, out, **options)

    def cancel(self) -> JobStatus:
        """Let nothing more of it be begun; what is done is kept."""
        return self.worker.cancel(self)

    def delete(self) -> None:
        """Let the worker forget it and its result; it must have ended."""
        self.worker.delete(self)


@dataclass(frozen=True)
class Order:
    """A checked request: what is asked of which table.

    Attributes
    ----------
    answers, forget : tuple of WorkerJob or Container
        Encrypted answers that are computed with.
    wait : bool
        Whether the caller waits for it, so that it may be computed in the caller's thread.
    out : path or fsspec URL, optional
        Where the answer goes. Who waits for it saves it; else the worker itself writes it, if it
        can.
    challenge : Challenge, optional
        Of a spot check, which is to be answered.
    """

    kind: str
    table: WorkerTable
    question: Question | None = None
    answers: tuple[WorkerJob | Container, ...] = ()
    forget: tuple[WorkerJob | Container, ...] = ()
    output: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress = None
    wait: bool = False
    out: Url | None = None
    overwrite: bool = False
    challenge: Challenge | None = None

    def digest(self) -> str:
        """Return a digest that equal requests share."""
        asked = self.question
        names = [[_name_of(one) for one in some] for some in (self.answers, self.forget)]
        content = [
            *(self.kind, self.table.name, self.output, names, sorted(self.options.items())),
            None if asked is None else [asked.name, asked.parameters()],
            None if self.challenge is None else self.challenge.to_bytes().hex(),
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Worker(ABC):
    """A computer that evaluates on encrypted tables and holds public keys only.

    :func:`encryptedstats.connect` makes workers.

    Attributes
    ----------
    place : str
        The place that it was connected to.
    """

    #: The options of requests that this kind of worker accepts.
    takes: ClassVar[frozenset[str]]
    #: Whether decrypted models may predict there, which shows them to the worker.
    takes_opened: ClassVar[bool] = True
    #: Whether the worker itself writes answers to ``out`` if nobody waits for them.
    writes_out: ClassVar[bool] = False
    #: How to start the program that computes, if a job stays queued.
    _hint: str = ""

    def __init__(self, place: str) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Close its connections."""

    def offers(self) -> dict[str, Any]:
        """Return the devices and cores of what computes, as far as they are known here."""
        return {"devices": present(), "cores": cores(), "jobs": list(KINDS)}

    # -- tables ------------------------------------------------------------------------------------

    @abstractmethod
    def upload(
        self,
        table: Url | EncryptedTable,
        *,
        keys: PublicKeys | Url | None = None,
        progress: bool | Callable[[int, int], None] | None = None,
    ) -> WorkerTable:
        """Let the worker have an encrypted table. What it has already is not sent again.

        Parameters
        ----------
        table : path, fsspec URL or EncryptedTable
        keys : PublicKeys, path or fsspec URL, optional
            Public keys to compute with, where the table does not bring them.
        progress : bool or callable, optional
            Whether a bar is shown, by default on a terminal; or called with the bytes that are
            there and all bytes.
        """

    @abstractmethod
    def table(self, name: str) -> WorkerTable:
        """Return a table that was uploaded before, by its name."""

    # -- asking ------------------------------------------------------------------------------------

    def plan(
        self,
        questions: Question | Sequence[Question],
        table: WorkerTable | Url | EncryptedTable,
        *,
        keys: PublicKeys | Url | None = None,
    ) -> dict[str, Any]:
        """Return what questions would take there, without asking them.

        ``rows``, ``totals``, ``products``, ``core_seconds`` of one core, ``bytes_down`` of answers
        and ``bytes_up`` that are still to be sent; ``plans`` has the same for each question. Of a
        table that was not uploaded, the list of its blocks is sent and nothing else.
        """
        known, to_send = self._to_plan(table, keys)
        asked = [questions] if isinstance(questions, Question) else list(questions)
        plans = [self._plan(_in_ids(one, known), known) for one in asked]
        sums = {
            name: sum(one[name] for one in plans)
            for name in ("core_seconds", "totals", "products", "bytes_down")
        }
        return {"rows": known.n_rows, "bytes_up": to_send, **sums, "plans": plans}

    def ask(
        self,
        questions: Question | Sequence[Question],
        table: WorkerTable | Url | EncryptedTable,
        out: Url | Sequence[Url] | None = None,
        *,
        folds: bool = False,
        wait: bool = True,
        **options: Any,
    ) -> Any:
        """Ask a question of a table, or several; the answers come encrypted.

        Parameters
        ----------
        questions : Question, or list of them
            Statistics and models. Of a list, the answers are a list.
        table : WorkerTable, path, fsspec URL or EncryptedTable
            One that was not uploaded is uploaded first.
        out : path or fsspec URL, or list of them, optional
            Where the encrypted answer is saved too. Without waiting, workers of a queue and of Dask
            write there.
        folds : bool
            Ask of every cross-validation fold that the table declares, as ``model.fit_folds`` does.
        wait : bool
            By default wait for the answer; otherwise return a :class:`WorkerJob` at once, for
            :meth:`status` and :meth:`result`.
        **options
            ``progress`` (whether a bar is shown, by default on a terminal; or called with every
            :class:`JobStatus`), ``overwrite`` (replace what is at ``out``), and how it is computed:
            ``by_others``, ``rows_per_shard``, ``trees_per_task``, ``device``, ``workers``,
            ``memory_limit``, ``checkpoint``. A worker refuses those that it does not take.

        Returns
        -------
        EncryptedAnswer or encrypted model; without waiting, WorkerJob. A list of them for a list.
        """
        known = self._find_table(table)
        several = isinstance(questions, (list, tuple))
        listed: Sequence[Any] = questions if isinstance(questions, (list, tuple)) else [questions]
        asked = []
        for one in listed:
            found = check_question(one)
            found = folds_of(found, known.facts.n_folds) if folds else found
            if known.sealed is not None and hasattr(one, "_check_table"):  # of models
                one._check_table(known.sealed)
            asked.append(_in_ids(found, known))
        orders = [
            Order(ASK if one.kind == RESULT_KIND else FIT, known, one, wait=wait) for one in asked
        ]
        outs = [out] if not several else [None] * len(orders) if out is None else out
        if not isinstance(outs, (list, tuple)) or len(outs) != len(orders):
            raise ArgumentError(
                f"out={out!r}: a list of {len(orders)} places is needed, one for each question",
                code="wrong-number-of-places",
            )
        done = self._do(orders, list(outs), **options)
        return done if several else done[0]

    def fit(
        self,
        model: Question,
        table: WorkerTable | Url | EncryptedTable,
        out: Url | None = None,
        **options: Any,
    ) -> Any:
        """Fit a model: :meth:`ask` with one question. The fitted model comes encrypted; the one
        that is given stays as it is.

        A forest whose keys were planned to draw its stochastic fraction draws it, unless
        ``wait=False``: then :meth:`draw` does.
        """
        return self.ask(check_question(model), table, out, **options)

    def predict(
        self,
        answer: WorkerJob | Url | Any,
        table: WorkerTable | Url | EncryptedTable,
        out: Url | None = None,
        *,
        output: str | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Any:
        """Predict the rows of a table by an encrypted model, without opening anything.

        Parameters
        ----------
        answer : model, EncryptedAnswer, path, fsspec URL or WorkerJob
        table : as of :meth:`ask`
        output : str, optional
            For models that can answer in several ways.
        out, wait, **options
            See :meth:`ask`.
        """
        known = self._find_table(table)
        order = Order(
            PREDICT, known, answers=(self._read_answer(answer, known, PREDICT),), output=output
        )
        return self._do([replace(order, wait=wait)], [out], **options)[0]

    def draw(
        self,
        forest: WorkerJob | Url | Any,
        table: WorkerTable | Url | EncryptedTable,
        out: Url | None = None,
        *,
        wait: bool = True,
        **options: Any,
    ) -> Any:
        """Draw the stochastic fraction of an encrypted forest from the table of all its rows."""
        known = self._find_table(table)
        order = Order(DRAW, known, answers=(self._read_answer(forest, known, DRAW),), wait=wait)
        return self._do([order], [out], **options)[0]

    def combine(
        self,
        answers: Sequence[WorkerJob | Url | Any],
        table: WorkerTable | Url | EncryptedTable | None = None,
        out: Url | None = None,
        *,
        forget: Sequence[WorkerJob | Url | Any] = (),
        wait: bool = True,
        **options: Any,
    ) -> Any:
        """Add up encrypted answers of different rows, and subtract those to ``forget``.

        ``table`` is any table of the same keys, by default that of the first job.
        """
        jobs = (one.table for one in (*answers, *forget) if isinstance(one, WorkerJob))
        first = next(jobs, None) if table is None else table
        if first is None:
            raise ArgumentError(
                "none of these answers is a job of this worker: pass the table= whose keys they "
                "belong to",
                code="no-table",
            )
        if not answers or len(answers) + len(forget) < 2:
            raise ArgumentError(
                "two answers or more are combined, or one and another to forget",
                code="wrong-number-of-answers",
            )
        known = self._find_table(first)
        added, taken = (
            tuple(self._read_answer(x, known, COMBINE) for x in some) for some in (answers, forget)
        )
        order = Order(COMBINE, known, answers=added, forget=taken, wait=wait)
        return self._do([order], [out], **options)[0]

    def respond(
        self,
        question: Question,
        table: WorkerTable | Url | EncryptedTable,
        challenge: Challenge,
        **options: Any,
    ) -> Response:
        """Return the combined sums that a challenge asks for, as ``owner.open(answer,
        verify="spot", on=table)`` does.

        Parameters
        ----------
        question : Question
        table : as of :meth:`ask`
        challenge : Challenge
        **options
            ``progress``, ``device``, ``workers``, ``memory_limit``. A worker refuses those that it
            does not take.
        """
        known, progress = self._find_table(table), options.pop("progress", None)
        checked = self._check_options(options)
        order = Order(RESPOND, known, _in_ids(question, known), wait=True, challenge=challenge)
        job = self._submit(replace(order, options=checked, progress=progress))
        self._wait(job, progress)
        found = self._fetch(job, progress)
        with suppress(EncryptedStatsError, OSError):  # it is large, and nobody asks for it again
            self.delete(job)
        if isinstance(found, Container):
            return Response.from_container(found, known.facts.parameters, known.key_id)
        assert isinstance(found, Response)
        return found

    # -- jobs --------------------------------------------------------------------------------------

    @abstractmethod
    def job(self, job_id: str) -> WorkerJob:
        """Return a job that was begun before."""

    @abstractmethod
    def jobs(self) -> list[JobStatus]:
        """Return the jobs that the worker keeps."""

    @abstractmethod
    def status(self, job: WorkerJob | str) -> JobStatus:
        """Return how far a job is."""

    @abstractmethod
    def cancel(self, job: WorkerJob | str) -> JobStatus:
        """Let nothing more of a job be begun. What is done is kept: asking the same goes on."""

    @abstractmethod
    def delete(self, job: WorkerJob | str) -> None:
        """Let the worker forget a job that has ended, and its result."""

    def result(
        self,
        job: WorkerJob | str,
        out: Url | None = None,
        *,
        overwrite: bool = False,
        progress: Progress = None,
    ) -> Any:
        """Wait for a job, and return its encrypted answer, checked: that it is of the owner's key,
        and an answer to what was asked, of the rows that were given.
        """
        _refuse_existing(out, overwrite)
        known = self._job(job)
        self._wait(known, progress)
        answer = self._answer(known, progress)
        if known.table.facts.schema != known.table.schema:
            answer = replace(answer, schema=known.table.schema)
        if out is not None:
            answer.save(out, overwrite=overwrite)
        return answer.question._present(answer)

    # -- what a kind of worker says ------------------------------------------------------------

    @abstractmethod
    def _submit(self, order: Order) -> WorkerJob:
        """Begin a request; one that is waited for may be done when this returns."""

    @abstractmethod
    def _fetch(self, job: WorkerJob, progress: Progress) -> Answer | Response | Container:
        """Return the answer or response of a job that is done, or its file."""

    @abstractmethod
    def _plan(self, question: Question, table: WorkerTable) -> dict[str, Any]:
        """Return what a question in ids would take."""

    @abstractmethod
    def _to_plan(
        self, table: WorkerTable | Url | EncryptedTable, keys: PublicKeys | Url | None
    ) -> tuple[WorkerTable, int]:
        """Return a table to plan for, and how many bytes of it are still to be sent."""

    @abstractmethod
    def _delete_table(self, table: WorkerTable) -> None:
        """Forget a table."""

    def _events(self, job: WorkerJob) -> Iterator[JobStatus]:
        pause = _PAUSES[0]
        while True:
            status = self.status(job)
            yield status
            if status.has_ended:
                return
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    # -- shared ------------------------------------------------------------------------------------

    def _do(self, orders: Sequence[Order], outs: Sequence[Any], **options: Any) -> list[Any]:
        overwrite, progress = bool(options.pop("overwrite", False)), options.pop("progress", None)
        known = self._check_options(options)
        waits = all(order.wait for order in orders)
        for out in outs if waits or not self.writes_out else ():
            _refuse_existing(out, overwrite)
            if out is not None and not waits:
                raise ArgumentError(
                    "out= needs wait=True; without waiting, pass it to result()",
                    code="out-without-waiting",
                )
        orders = [
            replace(order, options=known, progress=progress, out=out, overwrite=overwrite)
            for order, out in zip(orders, outs, strict=True)
        ]
        jobs = [self._submit(order) for order in orders]
        if not waits:
            return list(jobs)
        saving: dict[str, Any] = {"overwrite": overwrite, "progress": progress}
        return [
            self._finish(order, job, out, **saving)
            for order, job, out in zip(orders, jobs, outs, strict=True)
        ]

    def _finish(self, order: Order, job: WorkerJob, out: Url | None, **saving: Any) -> Any:
        """Return the answer of a request; a forest that was planned to draw its fraction draws."""
        if not _is_drawn(order):
            return self.result(job, out, **saving)
        found = self.result(job, progress=saving["progress"])
        kept = ("device", "workers", "memory_limit")
        options = {name: order.options[name] for name in kept if name in order.options}
        drawn = self.draw(found, order.table, out, **saving, **options)
        if out is not None:
            found.answer_.ciphertexts.drop_checkpoints()
        return drawn

    def _check_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            if name not in OPTIONS:
                raise ArgumentTypeError(
                    f"there is no option {name!r}: the options are {', '.join(OPTIONS)}",
                    code="unknown-option",
                )
            if value not in (None, False) and name not in self.takes:
                raise ArgumentError(
                    f"{name}= ({OPTIONS[name]}) is not for {self!r}, which takes "
                    f"{', '.join(sorted(self.takes))}",
                    code="option-not-here",
                )
        found = {name: one for name, one in options.items() if one not in (None, False)}
        for name in set(found) & {"rows_per_shard", "trees_per_task"}:
            found[name] = as_count(found[name], name, name.partition("_")[0])
        return found

    def _answer(self, job: WorkerJob, progress: Progress) -> Answer:
        found = self._fetch(job, progress)
        if isinstance(found, Answer):
            return found
        assert isinstance(found, Container)
        check_answer(found, job)
        return read_answer(found, job.table.keys_for(found))

    def _find_table(self, table: Any) -> WorkerTable:
        if isinstance(table, WorkerTable):
            if table.worker.place != self.place:
                raise ArgumentError(
                    f"this table is at {table.worker.place}, not at {self.place}: upload it here",
                    code="table-of-another-worker",
                )
            return table if table.worker is self else replace(table, worker=self)
        if isinstance(table, (str, os.PathLike, EncryptedTable)):
            if isinstance(table, str) and is_name(table):
                return self.table(table)
            return self.upload(table)
        raise ArgumentTypeError(
            "an encrypted table is needed: its folder or URL, an EncryptedTable, or the result of "
            f"upload(), not a {type(table).__name__}",
            code="not-a-table",
        )

    def _job(self, job: WorkerJob | str) -> WorkerJob:
        return job if isinstance(job, WorkerJob) else self.job(job)

    def _read_answer(self, answer: Any, table: WorkerTable, kind: str) -> WorkerJob | Container:
        """Return an encrypted answer to compute with, after waiting for its job."""
        if isinstance(answer, WorkerJob):
            if answer.worker is self:
                self._wait(answer, False)
                return answer
            answer = answer.result()
        if isinstance(answer, (str, os.PathLike)):
            file = load_file(answer)
        elif hasattr(answer, "to_container"):
            file = answer.to_container()
        else:
            raise ArgumentTypeError(
                "an encrypted answer is needed: a job, a file or a model, not a "
                f"{type(answer).__name__}",
                code="not-an-answer",
            )
        if file.kind in OPENED_KINDS and self.takes_opened and kind == PREDICT:
            return file
        if file.kind not in ANSWER_KINDS:
            raise FileFormatError(
                f"a worker computes with encrypted answers, and this file holds {file.kind!r}",
                code="not-encrypted",
            )
        if file.key_id != table.key_id:
            raise KeyMismatchError(
                f"the answer belongs to key {file.key_id}, and the table to {table.key_id}",
                code="other-key",
            )
        return file

    def _wait(self, job: WorkerJob, progress: Progress) -> JobStatus:
        report = progress if callable(progress) else None
        show = False if callable(progress) else progress
        events = self._events(job)
        status = next(events)
        with progress_bar(job.kind, status.rows, "rows", show) as advance:
            done, warned, late = 0, False, time.monotonic() + _IDLE_SECONDS
            while True:
                advance(status.rows_done - done)
                done = status.rows_done
                if report is not None:
                    report(status)
                if status.has_ended:
                    break
                if status.state == "queued" and not warned and time.monotonic() > late:
                    warned = True
                    warnings.warn(
                        f"no worker has begun job {job.id[:12]} of {self.place} for "
                        f"{_IDLE_SECONDS:.0f} seconds: is there one?{self._hint}",
                        stacklevel=3,
                    )
                status = next(events)
        if status.state == "failed":
            raise self._failure(job, status)
        if status.state == "cancelled":
            raise WorkerError(
                f"job {job.id[:12]} of {self.place} was cancelled: to ask the same again goes on",
                code="cancelled-job",
            )
        return status

    def _failure(self, job: WorkerJob, status: JobStatus) -> BaseException:
        first = status.failures[0] if status.failures else Failure("nobody knows why")
        return first.to_error(f"job {job.id[:12]} of {self.place} failed: ")


# -- pieces ----------------------------------------------------------------------------------------


def is_name(table: object) -> bool:
    """Return whether this is what a worker calls a table."""
    return isinstance(table, str) and len(table) == 64 and not set(table) - _HEX


def check_answer(file: Container, job: WorkerJob) -> None:
    """Refuse a file that cannot be the answer to what was asked."""
    wrong = f"what {job.worker.place} gave as the result of job {job.id[:12]}"
    if file.kind not in ANSWER_KINDS or (file.kind == PREDICTION_KIND) != (job.kind == PREDICT):
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
    if job.kind != COMBINE and file.expect("n_rows", int) != job.table.n_rows:
        raise FileFormatError(
            f"{wrong} is of {file.expect('n_rows', int):,} rows, and the table has "
            f"{job.table.n_rows:,}",
            code="other-row-count",
        )
    if job.kind in (FIT, ASK) and set(read_block_ids(file)) != set(job.table.block_ids):
        raise FileFormatError(
            f"{wrong} is of other rows than those of the table", code="other-rows"
        )


def read_given(answer: WorkerJob | Container, table: WorkerTable) -> Any:
    """Return an encrypted answer or model to compute with."""
    if isinstance(answer, WorkerJob):
        return answer.result(progress=False)
    opened = answer.kind in OPENED_KINDS
    return read_presented(answer, None if opened else table.keys_for(answer))


def data_of(answer: WorkerJob | Container) -> bytes:
    """Return the file of an encrypted answer."""
    if isinstance(answer, WorkerJob):
        answer = answer.worker._answer(answer, False).to_container()
    return container.to_bytes(answer)


def _is_drawn(order: Order) -> bool:
    """Return whether a fit has a second step, as ``model.fit`` of an encrypted table has."""
    question, table = order.question, order.table
    if question is None or not order.wait or not hasattr(question, "draw_fraction"):
        return False
    facts, sealed = table.facts, table.sealed
    if not question._extra_shapes(facts.schema) or not facts.with_secret_key or sealed is None:
        return False
    return facts.parameters.kept_primes is not None and bool(sealed.public_keys().rotations)


def _name_of(answer: WorkerJob | Container) -> str:
    if isinstance(answer, WorkerJob):
        return answer.id
    return hashlib.sha256(container.to_bytes(answer)).hexdigest()


def _in_ids(question: Question, table: WorkerTable) -> Question:
    """Return a question as a worker is asked it: without names, with nothing left to chance."""
    asked = prepare_question(check_question(question), table.schema)
    return asked._fix_seed()


def _refuse_existing(out: Url | None, overwrite: bool) -> None:
    if out is None or overwrite or not _is_there(os.fspath(out)):
        return
    raise ExistsError(
        f"{out} exists already; it was not touched (",
        REPLACE,
        " replaces it)",
        code="already-exists",
    )


def _is_there(out: str) -> bool:
    if not is_url(out):
        return os.path.lexists(out)
    folder, _, name = out.rpartition("/")
    return open_store(folder).exists(name)


def read_public_keys(keys: PublicKeys | Url | None) -> PublicKeys | None:
    """Return public keys that are given as an object, a path or a URL."""
    if keys is None or isinstance(keys, PublicKeys):
        return keys
    return PublicKeys.from_container(container.from_bytes(read_object(keys), name=os.fspath(keys)))
