"""What the transcript knows of totals that sites give together: rounds of one question, and runs of
a procedure, step after step.

A step of a run is complete when all members have announced their totals in the same state. Nothing
here reads totals: it is who has announced which objects, under which state.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final

#: What a site announces instead of totals where its procedure is done.
END: Final = ""


@dataclass
class Round:
    """A round of totals that sites compute at home for one question: who must send, and the objects
    that are there.
    """

    number: int
    members: tuple[str, ...]
    objects: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if all totals are there."""
        return bool(self.members) and set(self.objects) == set(self.members)

    @property
    def place(self) -> list[Any]:
        """What masks are bound to, beside the study, the question and the members."""
        return [self.number]

    @property
    def digest(self) -> str:
        """A hash of all of them together."""
        content = [*self.place, *(f"{site} {self.objects[site]}" for site in self.members)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass
class SiteStep(Round):
    """A step of a procedure: a round of totals, and the state in which each site measures.

    ``states`` has a hash of the state and of all sums before it, by site. ``rows`` is a hash of
    what all members have said of their rows in step 0; empty in that step.
    """

    attempt: int = 0
    rows: str = ""
    states: dict[str, str] = field(default_factory=dict)

    @property
    def agreed(self) -> bool:
        """True if all members measure in one state, or all say that it is the last."""
        ends = {one == END for one in self.objects.values()}
        return self.complete and len(set(self.states.values())) == 1 and len(ends) == 1

    @property
    def is_end(self) -> bool:
        """True if all members say that this state is the last."""
        return self.agreed and END in self.objects.values()

    @property
    def place(self) -> list[Any]:
        return [self.attempt, self.number, self.rows, *sorted(set(self.states.values()))]


@dataclass
class SiteRun:
    """The steps of a procedure, with the members of one attempt.

    Attributes
    ----------
    attempt : int
        How often it began anew, since a member was excluded before a first step was complete.
    members : tuple of str
    steps : list of SiteStep
        All but the last are complete.
    rows : dict
        By site: a keyed hash of its rows, which stay the same in all steps. Nobody else has its
        key, so it tells nothing of them.
    stopped : dict
        By site: the code of the rule by which it refused to go on.
    """

    attempt: int
    members: tuple[str, ...]
    steps: list[SiteStep] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.open_step()

    def open_step(self) -> None:
        """Open the step that follows from those that are complete."""
        said = json.dumps([self.rows[site] for site in self.members if site in self.rows])
        rows = hashlib.sha256(said.encode()).hexdigest() if self.steps else ""
        self.steps.append(SiteStep(len(self.steps), self.members, attempt=self.attempt, rows=rows))

    @property
    def current(self) -> SiteStep:
        return self.steps[-1]

    @property
    def sums(self) -> list[SiteStep]:
        """The steps whose totals all members have announced in one state: they may be added up."""
        return [step for step in self.steps if step.agreed and not step.is_end]

    @property
    def begun(self) -> bool:
        """True if all members have announced their totals of a step: no member leaves
        after this.
        """
        return self.steps[0].complete

    @property
    def disputed(self) -> bool:
        """True if members measure in different states: nothing more is stored."""
        return self.current.complete and not self.current.agreed

    @property
    def end(self) -> str:
        """The hash of the last state, or an empty text."""
        return next(iter(self.current.states.values())) if self.current.is_end else ""

    @property
    def waits(self) -> bool:
        """True if sites still have something to give."""
        return not (self.stopped or self.end or self.disputed)
