"""Run a procedure: ask a worker, write the opening down, open, step, store, and ask again.

An answer is stored before it is opened and an opening is written into the ledger before it is
made, so whatever is interrupted goes on without asking or opening anything anew. Imports workers,
publishing and what is below.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from encryptedstats.crypto.keys import Owner
from encryptedstats.errors import ArgumentError
from encryptedstats.procedures.folder import RunFolder
from encryptedstats.procedures.procedure import Course, OpenedRound, Procedure
from encryptedstats.progress import progress_bar
from encryptedstats.publishing.ledger import OPENED, Ledger, hides_rows
from encryptedstats.publishing.opening import AnswerSource
from encryptedstats.storage import container
from encryptedstats.storage.chains import ChainEntry
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.schema_check import decrypt_answer
from encryptedstats.tables.questions.question import question_key
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema
from encryptedstats.tables.table import Table
from encryptedstats.workers import Worker, WorkerTable, connect

Progress = bool | Callable[[OpenedRound], None] | None
_OWN: Final = ("schema", "folder", "ledger", "verify")


@dataclass(frozen=True)
class Opening:
    """How the answers of all rounds are opened.

    Attributes
    ----------
    owner : Owner
    schema : Schema or PublicSchema
    ledger : Ledger or None
        Where every opening is written down before it is made.
    verify : str or None
        See ``owner.open``: how an answer is checked before it is used.
    table : WorkerTable, optional
        The table at the worker that is asked for proof.
    """

    owner: Owner
    schema: Schema | PublicSchema
    ledger: Ledger | None = None
    verify: str | None = None
    table: WorkerTable | None = None

    def open(self, answer: Answer, course: Course, digest: str) -> list[int]:
        """Write the opening down, check the answer if wanted, and return its totals."""
        if self.ledger is not None:
            _record(AnswerSource(answer, digest), self.owner, self.ledger, course)
        if self.verify is not None:
            proof: dict[str, Any] = {"on": self.table, "question": course.asked}
            proof["verify"] = self.verify
            self.owner.open(answer, self.schema, **proof)
        return list(decrypt_answer(answer, self.owner.decryptor, self.schema).totals)


@dataclass(frozen=True)
class Asking:
    """A table at a worker, and how it is asked.

    Attributes
    ----------
    worker : Worker
    table : WorkerTable
    options : dict
        Those of ``worker.ask``.
    """

    worker: Worker
    table: WorkerTable
    options: dict[str, Any] = field(default_factory=dict)

    def ask(self, course: Course) -> Answer:
        """Return the encrypted answer to the current question."""
        assert course.asked is not None
        found = self.worker.ask(course.asked, self.table, progress=False, **self.options)
        answer: Answer = getattr(found, "answer_", found)
        return answer


def run_procedure(procedure: Procedure, table: Any, owner: Owner | None, **options: Any) -> Any:
    """Run a procedure on a clear table, or on an encrypted one whose owner opens every round; see
    :meth:`Procedure.run`.
    """
    progress: Progress = options.pop("progress", None)
    place = options.pop("at", "local")
    own = {name: options.pop(name, None) for name in _OWN}
    folder = None if own["folder"] is None else RunFolder(own["folder"])
    if isinstance(table, Table):
        about: dict[str, Any] = {"rows": table.n_rows}
        rounds = Rounds(folder, about, progress, partial(_clear_round, table))
        return rounds.run(procedure, table.schema)
    if owner is None:
        raise ArgumentError(
            "owner= is needed: every round of an encrypted table is opened before the next",
            code="no-owner",
        )
    worker = connect(place) if isinstance(place, str) else place
    asking = Asking(worker, worker._find_table(table), options)
    schema = asking.table.schema if own["schema"] is None else as_schema(own["schema"])
    ledger = None if own["ledger"] is None else Ledger.of(own["ledger"], owner)
    opening = Opening(owner, schema, ledger, own["verify"], asking.table)
    ask = partial(_encrypted_round, folder, asking, opening)
    about = _about(asking.table)
    if opening.verify is not None:
        about["verify"] = opening.verify
    return Rounds(folder, about, progress, ask).run(procedure, schema)


def as_schema(schema: Schema | PublicSchema | str | os.PathLike[str]) -> Schema | PublicSchema:
    """Return a schema, loaded if it is the path of its file."""
    return Schema.load(schema) if isinstance(schema, (str, os.PathLike)) else schema


def _about(table: WorkerTable) -> dict[str, Any]:
    """Return what a folder keeps of an encrypted table, by which it is known again."""
    blocks = hashlib.sha256("\n".join(sorted(table.block_ids)).encode()).hexdigest()
    return {"key": table.key_id, "rows": table.n_rows, "blocks": blocks}


@dataclass(frozen=True)
class Rounds:
    """Where rounds are stored, how they are shown, and how the current question is answered.

    Attributes
    ----------
    folder : RunFolder or None
    about : dict
        Which rows and keys the folder is of.
    progress : bool, function or None
    ask : callable
        Returns the opened totals of the current question and the number of rows.
    """

    folder: RunFolder | None
    about: dict[str, Any]
    progress: Progress
    ask: Callable[[Course], tuple[Sequence[int], int]]

    def run(self, procedure: Procedure, schema: Schema | PublicSchema) -> Any:
        """Take rounds until nothing is left to ask, and return the result."""
        course = Course(procedure, schema)  # refuses what cannot be run before anything is stored
        if self.folder is None:
            return self._go_on(Course(procedure.fix_seeds(), schema))
        with self.folder.run_alone():
            course = Course(self.folder.begin(procedure, self.about), schema)
            self.folder.replay(course)
            return self._go_on(course)

    def _go_on(self, course: Course) -> Any:
        show = False if callable(self.progress) else self.progress
        name, most = course.procedure.name, course.procedure.at_most
        with progress_bar(name, most, "rounds", show, len(course.rounds)) as advance:
            while course.asked is not None:
                totals, n_rows = self.ask(course)
                done = course.take(totals, n_rows)
                if self.folder is not None:
                    self.folder.write_round(done)
                advance(1)
                if callable(self.progress):
                    self.progress(done)
        return course.read()


def _clear_round(table: Table, course: Course) -> tuple[Sequence[int], int]:
    assert course.asked is not None
    return table.totals(course.asked), table.n_rows


def _encrypted_round(
    folder: RunFolder | None, asking: Asking, opening: Opening, course: Course
) -> tuple[Sequence[int], int]:
    """Return the opened totals of the current question. An answer that was stored by a run that
    was interrupted is opened, not asked for again.
    """
    keys = opening.owner.public_keys(())
    answer = None if folder is None else folder.read_answer(course, keys)
    if answer is None or not _is_answer(answer, course, asking.table):
        answer = asking.ask(course)
        if folder is not None:
            folder.write_answer(course, answer)
    digest = hashlib.sha256(container.to_bytes(answer.to_container())).hexdigest()
    return opening.open(answer, course, digest), answer.n_rows


def _is_answer(answer: Answer, course: Course, table: WorkerTable) -> bool:
    """Return whether this is the answer to the current question, of the rows of a table."""
    assert course.asked is not None
    is_same = question_key(answer.question) == question_key(course.asked)
    return is_same and set(answer.block_ids) == set(table.block_ids)


def _record(source: AnswerSource, owner: Owner, ledger: Ledger, course: Course) -> None:
    """Write down that a round is opened; once, also where its opening is repeated after a crash."""
    before = ledger.entries()
    if any(_is_opening_of(entry, source.digest) for entry in before):
        return
    about = {"procedure": course.procedure.name, "round": len(course.rounds) + 1}
    ledger.write(
        owner,
        OPENED,
        lambda before: {**source.facts(with_rows=not hides_rows(before)), **about},
    )


def _is_opening_of(entry: ChainEntry, digest: str) -> bool:
    return entry.content["what"] == OPENED and entry.content.get("file") == digest
