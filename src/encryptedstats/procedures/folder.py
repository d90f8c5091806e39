"""The folder of a procedure: what was opened in every round, so that it goes on after a crash.

Each round has the encrypted answer, which is stored before it is opened, and the opened totals,
which are stored before the next question is asked. States are not stored: they follow from the
totals. All files are for their user only, and one process at a time writes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import ArgumentError, FileFormatError
from encryptedstats.procedures.procedure import Course, OpenedRound, Procedure, procedure_class
from encryptedstats.storage import container
from encryptedstats.storage.files import PRIVATE, read_regular, write_atomic
from encryptedstats.storage.leases import Writer, write_alone
from encryptedstats.storage.objects import FolderStore
from encryptedstats.tables.answers.answer import Answer
from encryptedstats.tables.answers.files import read_answer
from encryptedstats.tables.questions.question import Question
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

RUN: Final = "procedure.json"
VERSION: Final = 1
_MAX_BYTES: Final = 1 << 30


class RunFolder:
    """Where a procedure is stored, round by round.

    Attributes
    ----------
    path : Path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._writer: Writer | None = None

    @contextmanager
    def run_alone(self) -> Iterator[None]:
        """Refuse a second process that would ask and open the same rounds.

        The system ends the lock with its process, so that nothing is left after a crash.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with write_alone(FolderStore(str(self.path))) as self._writer:
            yield

    @property
    def is_new(self) -> bool:
        """Whether nothing was stored there."""
        return not (self.path / RUN).exists()

    def begin(self, procedure: Procedure, about: Mapping[str, Any]) -> Procedure:
        """Store a procedure with all seeds fixed, or return the one that was stored before.

        ``about`` says which rows and keys it is of, and how rounds are checked: a folder of others
        is refused.
        """
        if self.is_new:
            fixed = procedure.fix_seeds()
            self._write(RUN, {"version": VERSION, **_describe(fixed), "about": dict(about)})
            return fixed
        stored = self.load_procedure()
        own = {name: one for name, one in procedure.parameters().items() if one is not None}
        kept = {name: stored.parameters().get(name) for name in own}
        if stored.name != procedure.name or kept != own or self._read(RUN).get("about") != about:
            raise ArgumentError(
                f"{self.path} has the rounds of another procedure, other parameters, other rows "
                "or other checks of the worker: give another folder",
                code="other-run",
            )
        return stored

    def replay(self, course: Course) -> None:
        """Take the rounds that were stored."""
        while course.asked is not None and (file := self._totals_file(course)).exists():
            stored = self._read(file.name)
            if [stored.get("question"), stored.get("params")] != _identify(course.asked):
                raise FileFormatError(
                    f"{file} answers another question than follows from the rounds before it",
                    code="other-round",
                )
            course.take([int(total) for total in stored["totals"]], int(stored["rows"]))

    def write_round(self, done: OpenedRound) -> None:
        """Store the opened totals of a round."""
        question, params = _identify(done.question)
        said = {"question": question, "params": params, "rows": done.n_rows}
        self._write(_name(done.number, "json"), {**said, "totals": list(done.totals)})

    def write_answer(self, course: Course, answer: Answer) -> None:
        """Store the encrypted answer of the current round."""
        self._write_file(self._answer_file(course), container.to_bytes(answer.to_container()))

    def read_answer(self, course: Course, keys: PublicKeys) -> Answer | None:
        """Return the encrypted answer of the current round, if it was stored before."""
        file = self._answer_file(course)
        if not file.exists():
            return None
        data = read_regular(file, limit=_MAX_BYTES)
        return read_answer(container.from_bytes(data, name=str(file)), keys)

    def _answer_file(self, course: Course) -> Path:
        return self.path / _name(len(course.rounds) + 1, "enc")

    def _totals_file(self, course: Course) -> Path:
        return self.path / _name(len(course.rounds) + 1, "json")

    def load_procedure(self) -> Procedure:
        """Return the procedure that was stored, with all seeds fixed."""
        found = self._read(RUN)
        if found.get("version") != VERSION:
            raise FileFormatError(
                f"{self.path / RUN} has version {found.get('version')!r}, and this is version "
                f"{VERSION}",
                code="unknown-version",
            )
        return procedure_class(str(found.get("procedure"))).from_parameters(found["params"])

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        self._write_file(self.path / name, json.dumps(content, allow_nan=False).encode())

    def _write_file(self, file: Path, data: bytes) -> None:
        if self._writer is not None:
            self._writer.check()
        write_atomic(file, [data], mode=PRIVATE)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(read_regular(self.path / name, limit=_MAX_BYTES))
        except ValueError as error:
            raise FileFormatError(
                f"{self.path / name} cannot be read: {error}", code="unreadable-file"
            ) from error
        if not isinstance(found, dict):
            raise FileFormatError(f"{self.path / name} cannot be read", code="unreadable-file")
        return found


def is_run(folder: str | os.PathLike[str]) -> bool:
    """Return whether a procedure was stored in a folder."""
    return (Path(folder) / RUN).is_file()


def read_run(folder: str | os.PathLike[str], schema: Schema | PublicSchema) -> Course:
    """Return a stored procedure as far as it has come; ``.read()`` gives its result."""
    run = RunFolder(folder)
    course = Course(run.load_procedure(), schema)
    run.replay(course)
    return course


def _describe(procedure: Procedure) -> dict[str, Any]:
    return {"procedure": procedure.name, "params": procedure.parameters()}


def _identify(question: Question) -> list[Any]:
    return [question.name, json.loads(json.dumps(question.parameters()))]


def _name(number: int, ending: str) -> str:
    return f"round-{number:04}.{ending}"
