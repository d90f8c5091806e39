"""The owner's desk: her projects, the keys that are unlocked just now, and what is under way.

Nothing secret leaves this process but as an encrypted table; passphrases and unlocked keys are in
its memory alone, and forgotten with it. What is done in each step is in ``steps``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import encryptedstats as es
from encryptedstats.app import asking
from encryptedstats.app.projects import Project, ProjectQuestion, Projects
from encryptedstats.app.sending import Connect
from encryptedstats.app.showing import Outgoing, Shown
from encryptedstats.app.work import Work
from encryptedstats.circuits.plan import Plan
from encryptedstats.studies.documents import StudyDocument

#: A key that nobody has used for so long is locked again: somebody may have gone home.
IDLE_SECONDS: Final = 30 * 60.0


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
        self.shown: dict[tuple[str, str], Shown] = {}
        self.outgoing: dict[tuple[str, str], dict[str, Outgoing]] = {}
        self.plans: dict[str, Plan] = {}
        self.documents: dict[str, tuple[str, StudyDocument]] = {}
        self.writing = threading.RLock()  # of ledgers
        self._unlocked: dict[str, Unlocked] = {}
        self._work: dict[tuple[str, str], Work] = {}
        self._lock = threading.Lock()

    # -- what was decided
    # --------------------------------------------------------------------------------------------

    def schema(self, project: Project) -> es.Schema:
        """Return the schema that was decided."""
        if not project.state.columns_done:
            raise Refused(
                "decide on the columns first, in the step Columns", code="columns-undecided"
            )
        return es.Schema.load(project.schema_file)

    def pair_questions(self, project: Project) -> list[tuple[ProjectQuestion, es.Question]]:
        """Return all questions but those in rounds, each as a worker is asked it."""
        schema = self.schema(project)
        return [
            (one, asking.question_of(one.name, one.parameters, schema))
            for one in project.state.asked
            if one.name not in asking.IN_ROUNDS
        ]

    def questions(self, project: Project) -> list[es.Question]:
        """Return the questions of :meth:`pair_questions` alone."""
        return [question for _, question in self.pair_questions(project)]

    def rounds(self, project: Project) -> list[tuple[ProjectQuestion, es.Procedure]]:
        """Return all that is asked in rounds."""
        made = [(one, asking.make_rounds(one.name, one.parameters)) for one in project.state.asked]
        return [(one, procedure) for one, procedure in made if procedure is not None]

    def to_plan(self, project: Project) -> list[es.Question]:
        """Return the questions that a key and a table must carry, with those of all rounds."""
        schema = self.schema(project)
        in_rounds = [one for _, made in self.rounds(project) for one in made.to_plan(schema)]
        return [*self.questions(project), *in_rounds]

    def check_open(self, project: Project) -> None:
        """Refuse to change what a key was made for."""
        if project.state.key is not None:
            raise Refused(
                "a key was made for exactly these columns and questions, so that they cannot "
                "change any more: start a copy of the project to ask something else",
                code="columns-and-questions-fixed",
            )

    # -- keys
    # --------------------------------------------------------------------------------------------

    def keep_unlocked(self, project: Project, owner: es.Owner, passphrase: str) -> None:
        """Let a key be used until it is locked again."""
        self._unlocked[project.id] = Unlocked(owner, passphrase)

    def lock(self, project: Project) -> None:
        """Forget the passphrase, the key, and all that was opened with it."""
        self._unlocked.pop(project.id, None)
        for kept in (self.shown, self.outgoing):
            for place in [place for place in kept if place[0] == project.id]:
                del kept[place]

    def seconds_unlocked(self, project: Project) -> float:
        """Return how long its key stays unlocked if nobody uses it; 0 if it is locked."""
        found = self._unlocked.get(project.id)
        left = 0.0 if found is None else IDLE_SECONDS - (time.monotonic() - found.used)
        if left < 0:
            self.lock(project)
        return max(left, 0.0)

    def is_unlocked(self, project: Project) -> bool:
        """Return whether the key can be used without a passphrase, which counts as a use of it."""
        if self.seconds_unlocked(project) <= 0:
            return False
        self._unlocked[project.id].used = time.monotonic()
        return True

    def key(self, project: Project) -> Unlocked:
        """Return the key of a project; Refused if it is locked."""
        if not self.is_unlocked(project):
            raise Refused("unlock the key first: type its passphrase", code="key-locked")
        return self._unlocked[project.id]

    # -- work
    # --------------------------------------------------------------------------------------------

    def work(self, project: Project, name: str) -> Work | None:
        """Return what is under way, or how it ended, since this program was started."""
        return self._work.get((project.id, name))

    def start(self, project: Project, name: str, target: Callable[[Work], None]) -> None:
        """Start something in a thread, unless it is under way already."""
        with self._lock:
            old = self._work.get((project.id, name))
            if old is None or not old.is_running:
                self._work[project.id, name] = Work(name).start(target)

    def stop(self, project: Project, name: str) -> None:
        """Stop something that is under way."""
        if (work := self.work(project, name)) is not None:
            work.stop()
        if name == "send":
            with project.changing() as state:
                if state.sent is not None:
                    state.sent.stopped = True

    def delete(self, project: Project) -> None:
        """Delete a project with all that is in its folder."""
        for name in ("encrypt", "send"):
            if (work := self.work(project, name)) is not None:
                work.stop()
                work.finished.wait(10.0)
        self.lock(project)
        self.plans.pop(project.id, None)
        self.documents.pop(project.id, None)
        self.projects.delete(project)

    def task_facts(self, project: Project) -> dict[str, Any]:
        """Return the fields that every task with the key of a project has."""
        return {
            "key": project.key_file,
            "passphrase": self.key(project).passphrase,
            "schema_file": project.schema_file,
        }


def now() -> str:
    """Return the time, for a state."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
