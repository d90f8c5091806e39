"""Procedures across sites: rounds of masked totals, of which only the sum over all sites is opened.

In every step each site measures its rows at home in the current state, and announces the hash of
its masked totals together with a hash of the state and of all sums before it. When all members have
announced the same state, each stores its object; then every member adds them up and takes the same
step. A site sends nothing in a state that it has not computed itself, and nothing where a rule of
the document is broken: it posts which rule, and the procedure stops.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from encryptedstats.crypto.envelopes import SEED_BYTES, derive_key, lock, seal_for, unlock
from encryptedstats.errors import DataError, EncryptedStatsError, FileFormatError, StudyError
from encryptedstats.procedures.site_procedure import SiteCourse
from encryptedstats.studies.parties import SITE
from encryptedstats.studies.runs import END, SiteRun, SiteStep
from encryptedstats.studies.totals import add_masked, add_masks, bind
from encryptedstats.studies.transcript import Message, StudyState, message
from encryptedstats.tables import Table
from encryptedstats.words import plural

if TYPE_CHECKING:
    from encryptedstats.studies.study import Study

STEP: Final = "step"
STOP: Final = "stop"
_SEALED_KEY_BYTES: Final = 92  # of a key for one reader: see crypto.envelopes
_CODE_LENGTH: Final = 64
_FAILED: Final = "failed-step"


# -- the messages ----------------------------------------------------------------------------------


def _find_run(state: StudyState, said: Message) -> SiteRun:
    name = said.text("question")
    state.need(name in state.runs, f"{name!r} is no procedure of the document")
    run = state.runs[name]
    state.need(state.joined, "not everybody has joined")
    state.need(state.ready, "rows are not judged yet, by which members are fixed")
    state.need(
        len(run.members) >= state.document.min_sites,
        f"fewer than {state.document.min_sites} sites are left",
    )
    state.need(
        said.count("attempt") == run.attempt,
        f"it is of another attempt than {run.attempt}: replayed",
    )
    state.need(said.by in run.members, f"{said.by} is no member of {name!r}")
    state.need(run.waits, f"{name!r} has ended, or was stopped")
    return run


@message(STEP, SITE)
def _take_step(state: StudyState, said: Message) -> None:
    run = _find_run(state, said)
    now, number = run.current, said.count("step")
    state.need(number == now.number, f"it is of another step than {now.number}: replayed")
    state.need(
        said.by not in now.objects,
        f"the totals of {said.by} are there already: the first ones count",
    )
    digest, rows = said.digest("state"), "" if number else said.digest("rows")
    most = state.document.procedures[said.text("question")].procedure.at_most
    if said.content.get("object") == END:
        state.need(1 < number <= most + 1, "nothing was measured that it could end with")
        found = END
    else:
        state.need(number <= most, f"there are at most {most} rounds")
        found = said.digest("object")
        refuse_replayed(state, found)
    if not number:
        run.rows[said.by] = rows
    now.objects[said.by], now.states[said.by] = found, digest
    if now.agreed and not now.is_end:
        run.open_step()


def refuse_replayed(state: StudyState, digest: str) -> None:
    """Refuse totals that anybody has announced in a step before."""
    sent = state.more.setdefault("sent in steps", set())
    state.need(digest not in sent, "totals that were announced before: replayed")
    sent.add(digest)


@message(STOP, SITE)
def _take_stop(state: StudyState, said: Message) -> None:
    run, code = _find_run(state, said), said.text("code")
    is_word = 0 < len(code) <= _CODE_LENGTH and code.replace("-", "").isalnum()
    state.need(is_word and code.isascii(), "its reason is no code of an error")
    run.stopped[said.by] = code


# -- what is due -----------------------------------------------------------------------------------


def next_round_steps(state: StudyState) -> list[tuple[str, str]]:
    """Return who has to do what next in all procedures."""
    steps: list[tuple[str, str]] = []
    for name, run in state.runs.items() if state.ready else ():
        if run.waits:
            steps += [(site, "add") for site in run.members if site not in run.current.objects]
        elif run.end and not run.stopped and name not in state.opened:
            steps.append((state.document.receiver, "open"))
    return steps


def objects_due(state: StudyState) -> list[tuple[str, str]]:
    """Return who has announced which objects in steps whose members agree: they are stored now."""
    return [
        (site, digest)
        for run in state.runs.values()
        if not run.stopped
        for step in run.sums
        for site, digest in step.objects.items()
    ]


def describe_runs(state: StudyState) -> dict[str, dict[str, Any]]:
    """Return how far each procedure is."""
    return {
        name: {
            "round": run.current.number,
            "at_most": state.document.procedures[name].procedure.at_most,
            "done": bool(run.end),
            "disputed": run.disputed,
            "stopped": dict(run.stopped),
        }
        for name, run in state.runs.items()
    }


def describe_run(name: str, facts: dict[str, Any]) -> str:
    """Return one of them in words."""
    if facts["stopped"]:
        return f"{name}: stopped, " + ", ".join(
            f"{site} refuses ({code})" for site, code in facts["stopped"].items()
        )
    if facts["disputed"]:
        return f"{name}: sites disagree about the state of round {facts['round']}"
    if facts["done"]:
        return f"{name}: done after {plural(facts['round'] - 1, 'round')}"
    return f"{name}: round {facts['round']} of at most {facts['at_most']}"


# -- a member --------------------------------------------------------------------------------------


class BrokenRule(StudyError):
    """Sums that all members have opened break a rule of the document: nothing more is sent."""


@dataclass
class Followed:
    """A procedure as far as this party has followed it.

    Attributes
    ----------
    attempt : int
    course : SiteCourse
    taken : list of str
        The hashes of the steps whose sums it has taken.
    """

    attempt: int
    course: SiteCourse
    taken: list[str] = field(default_factory=list)


def take_part(study: Study, table: Table | None) -> list[str]:
    """Do what is due for this site in all procedures, as far as it can go now; say what was done.

    Without a table nothing is measured.
    """
    if SITE not in study.document.roles(study.me.name):
        return []
    done, failed = [], []
    for name in study.document.procedures:
        try:
            done += _take_part_in(study, name, table)
        except (StudyError, DataError) as error:
            if not isinstance(error, DataError) and error.code != "other-state":
                raise
            failed.append(error)  # the other procedures go on
    if failed:
        raise failed[0]
    return done


def _take_part_in(study: Study, name: str, table: Table | None) -> list[str]:
    done: list[str] = []
    while (due := _next_action(study, name, table)) is not None:
        done.append(due)
    return done


def _next_action(study: Study, name: str, table: Table | None) -> str | None:
    """Do the next thing that is due, and say what; None if nothing is."""
    state, me = study.state(), study.me.name
    run = state.runs[name]
    if run.stopped or me not in run.members or not state.ready:
        return None
    if stored := _store(study, name, run):
        return stored
    try:
        course = follow(study, name, state)
    except BrokenRule as error:
        study.refusals.append(f"{name}: {error}")
        with suppress(StudyError):  # where another site has stopped it just now
            study.post(STOP, {"question": name, "attempt": run.attempt, "code": error.code})
        return f"stopped {name}"
    if course is None or not run.waits or me in run.current.objects:
        return None
    mark = mark_state(study, course)
    said = {"question": name, "attempt": run.attempt, "step": course.number, "state": mark}
    if course.is_done:
        study.post(STEP, {**said, "object": END})
        return f"the end of {name}"
    if table is None:
        return None
    data = _keep_totals(study, name, state, course, table)
    if not course.number:
        said["rows"] = commit_to_rows(study, table)
    study.post(STEP, {**said, "object": hashlib.sha256(data).hexdigest()})
    return f"totals of {name}, round {course.number}"


def _store(study: Study, name: str, run: SiteRun) -> str:
    """Store the totals that this site has announced, in steps whose members all agree.

    Before all have announced theirs a member could be excluded, and sums of two lists of members
    would tell the totals of single ones.
    """
    study._remember()
    me = study.me.name
    for step in run.sums:
        if not study.transcript.has_object(step.objects[me]):
            study.store_announced(_name_step(name, step, me), step.objects[me])
            return f"totals of {name}, round {step.number}, which all have announced"
    return ""


def _name_step(question: str, step: SiteStep, site: str) -> str:
    return f"step-{question}-{step.attempt}-{step.number}-{step.states[site][:16]}"


def _keep_totals(
    study: Study, name: str, state: StudyState, course: SiteCourse, table: Table
) -> bytes:
    """Return the masked totals of this site in the current state, sealed for the members.

    What was made first under these masks is what is sent, whatever the rows are now.
    """
    run, me = state.runs[name], study.me.name
    step = replace(run.current, states={me: mark_state(study, course)}, objects={})
    check_rows_stay(study, run, table)

    def make() -> bytes:
        data = add_masks(study, state, name, step, course.measure(table))
        return _seal_for_members(study, state, name, step, data)

    return study._keep(_name_step(name, step, me), make)


def check_rows_stay(study: Study, run: SiteRun, table: Table) -> None:
    """Refuse other rows than those of the first round of all procedures: the difference of two
    sums would be of the rows that changed.
    """
    own, me = commit_to_rows(study, table), study.me.name
    said = {one.rows[me] for one in study.state().runs.values() if me in one.rows}
    kept = study._keep(f"rows-of-rounds-{run.attempt}", own.encode).decode()
    if {kept, *said} != {own}:
        raise StudyError(
            "these are not the rows that you gave in the first round, in their order: a difference "
            "of rounds would be of the rows that changed",
            code="other-rows",
        )


def commit_to_rows(study: Study, table: Table) -> str:
    """Return a keyed hash of a site's rows, which it gives in step 0 and all later masks are bound
    to. So a site that has lost its files does not send other rows under masks that it has used.
    """
    found = hmac.new(study.me.secret(b"rows of rounds"), digestmod=hashlib.sha256)
    found.update(f"{table.n_rows} {table.n_dropped}\n".encode())
    for part in table.raw_values():
        found.update(part)
    return found.hexdigest()


def _readers(study: Study, step: SiteStep) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*step.members, study.document.receiver)))


def _seal_for_members(
    study: Study, state: StudyState, name: str, step: SiteStep, data: bytes
) -> bytes:
    key, bound = os.urandom(SEED_BYTES), bind(study, name, step, study.me.name)
    sealed = [
        seal_for(state.parties[one].sealing, key, bound + one.encode())
        for one in _readers(study, step)
    ]
    return b"".join(sealed) + lock(key, data, bound)


def _open_totals(study: Study, name: str, step: SiteStep, site: str) -> bytes:
    """Read the masked totals of a site, as one of the members."""
    readers, me = _readers(study, step), study.me.name
    if me not in readers:
        raise StudyError(
            f"the sums of {name!r} are sealed for {', '.join(readers)}", code="sealed-for-others"
        )
    data, bound = study.transcript.read_object(step.objects[site]), bind(study, name, step, site)
    start = readers.index(me) * _SEALED_KEY_BYTES
    key = study.me.reader.open(data[start : start + _SEALED_KEY_BYTES], bound + me.encode())
    return unlock(key, data[len(readers) * _SEALED_KEY_BYTES :], bound)


def follow(study: Study, name: str, state: StudyState) -> SiteCourse | None:
    """Add up the totals of all steps that are there, and step from state to state.

    None where announced totals are not stored yet. Refuses states that others have announced and
    this party does not compute, and sums that break a rule (:class:`BrokenRule`).
    """
    run = state.runs[name]
    known = _find_course(study, name, run)
    course = known.course
    for step in run.steps[len(known.taken) :]:
        check_states(name, step, mark_state(study, course))
        if not step.agreed or step.is_end:
            break
        if not all(map(study.transcript.has_object, step.objects.values())):
            return None
        if study.me.name not in _readers(study, step):
            raise StudyError(
                f"the sums of {name!r} are sealed for {', '.join(_readers(study, step))}",
                code="sealed-for-others",
            )
        try:
            parts = {site: _open_totals(study, name, step, site) for site in step.members}
            course.take(add_masked(parts, course.n_totals, name))
        except (EncryptedStatsError, ArithmeticError, ValueError, TypeError, LookupError) as error:
            study._courses.pop(name)
            code = getattr(error, "code", "") or _FAILED
            raise BrokenRule(f"round {step.number}: {error}", code=code) from error
        known.taken.append(step.digest)
    return course


def _find_course(study: Study, name: str, run: SiteRun) -> Followed:
    """Return the course that this object has followed already, or a new one at the start."""
    known = study._courses.get(name)
    before = [step.digest for step in run.sums]
    if (
        known is None
        or known.attempt != run.attempt
        or known.taken != before[: len(known.taken)]
        or known.course.number != len(known.taken)
    ):
        known = study._courses[name] = Followed(run.attempt, study.document.begin(name))
    return known


def mark_state(study: Study, course: SiteCourse) -> str:
    """Return a hash of the state and of all sums that have led to it, which only members can make:
    others who see the messages could try out what it is of.
    """
    key = derive_key(study.me.reading, b"states of rounds")
    return hmac.new(key, course.digest.encode(), hashlib.sha256).hexdigest()


def check_states(name: str, step: SiteStep, own: str) -> None:
    """Refuse to go on where a member has announced another state than this party computes."""
    others = [site for site, mark in step.states.items() if mark != own]
    if others:
        raise StudyError(
            f"{', '.join(others)} announced another state in round {step.number} of {name!r} than "
            "follows from the document and the sums so far: nothing is sent. Compare the versions "
            "of the library, and do not go on with who chose the state",
            code="other-state",
        )


def read_ended(study: Study, *, record: bool) -> dict[str, Any]:
    """Return the results of the procedures that all sites have ended; the receiver's are recorded
    before they are shown.
    """
    found: dict[str, Any] = {}
    for name in study.document.procedures:
        state = study.state()
        run = state.runs[name]
        if run.stopped or not run.begun:
            continue
        try:
            course = follow(study, name, state)
        except BrokenRule as error:
            study.refusals.append(f"{name}: {error}")
            continue
        if course is None or not run.end:
            continue
        if not course.is_done:
            raise FileFormatError(
                f"the sites say that {name!r} is done, and its state says that it is not",
                code="not-done",
            )
        if record and name not in state.opened:
            study.post("opened", {"question": name, "object": run.end})
        found[name] = course.read(study.schema)
    return found
