"""The status of a study: who has done what, what was refused, and who has to do what next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from encryptedstats.studies.documents import MASKED, MIN_SITES, TOTALS
from encryptedstats.studies.holding import kind_of
from encryptedstats.studies.linking import links_of, next_link_steps
from encryptedstats.studies.rounds import describe_run, describe_runs, next_round_steps
from encryptedstats.studies.transcript import StudyState


@dataclass(frozen=True)
class Status:
    """The status of a study; prints as a list."""

    state: StudyState
    refusals: list[str] = field(default_factory=list)
    unsent: list[tuple[str, str]] = field(default_factory=list)

    @property
    def next(self) -> list[tuple[str, str]]:
        """Pairs of a name and ``"join"``, ``"link"``, ``"keygen"``, ``"add"``, ``"share"``,
        ``"fit"`` or ``"open"``.
        """
        return self.unsent or next_steps(self.state)

    @property
    def ended(self) -> str:
        """Why nobody has anything left to do, or an empty text."""
        state = self.state
        stopped = [name for name, run in state.runs.items() if run.stopped or run.disputed]
        if {*state.opened, *stopped} == set(state.document.asked):
            both = [", ".join(stopped) + " cannot go on"] if stopped else []
            return "; ".join(["all is opened" if not both else "all else is opened", *both])
        enough = len(self.state.good_sites) >= MIN_SITES
        return (
            "no site has new rows"
            if enough
            else f"fewer than {MIN_SITES} sites have rows that are valid"
        )

    def _key(self) -> str:
        """Return the kind of the key and whether it was made, or that none is needed."""
        document = self.state.document
        if not document.needs_key:
            return "none is needed: sites compute at home, and mask what they send"
        openers = document.key.openers
        kind = document.key.kind + (f", {openers} sites to open" if openers else "")
        return f"{kind}; {'key ' + self.state.key_id if self.state.key_id else 'not made yet'}"

    def to_dict(self) -> dict[str, Any]:
        state, document = self.state, self.state.document
        return {
            "study": document.id,
            "name": document.name,
            "key": document.key.to_dict(),
            "key_id": state.key_id,
            "retired": dict(state.retired),
            "joined": sorted(state.parties),
            "people": dict(links_of(state).people),
            "linked": links_of(state).n_linked,
            "rows": {site: rows.n_rows for site, rows in state.rows.items()},
            "new_rows": {site: rows.n_rows for site, rows in state.new_rows.items()},
            "planned_rows": document.n_rows,
            "rows_needed": document.rows_needed,
            "minimum": document.minimum,
            "excluded": dict(state.excluded),
            "valid": dict(state.valid),
            "answered": sorted(state.answers),
            "opened": sorted(state.opened),
            "rounds": describe_runs(state),
            "refused": [*map(str, state.refused), *self.refusals],
            "open_risks": list(document.open_risks),
            "next": [list(step) for step in self.next],
        }

    def __str__(self) -> str:
        state, document, facts = self.state, self.state.document, self.to_dict()
        lines = [
            f"study {document.name!r}, id {document.id}",
            f"  sites      {', '.join(document.sites)}; worker {document.worker}, receiver "
            f"{document.receiver}",
            "  questions  "
            f"{', '.join(f'{name} ({mode})' for name, mode in document.modes.items())}",
            f"  key        {self._key()}",
            *(f"  risk       {risk}" for risk in document.open_risks),
            f"  joined     {', '.join(facts['joined']) or 'nobody yet'}",
        ]
        if document.procedures:
            lines.append(
                f"  needs      {document.rows_needed:,} rows or more of all sites together, for up "
                f"to {document.n_opened:,} numbers that rounds open, each of {document.minimum:,} "
                "or more"
            )
        people = [f"{site} {count:,}" for site, count in facts["people"].items()]
        linked = f"; linked {facts['linked']:,}" if facts["linked"] else ""
        lines += [f"  people     {', '.join(people)}{linked}"] if people else []
        rows = [f"{site} {count:,}" for site, count in facts["rows"].items()]
        lines += (
            [f"  rows       {', '.join(rows)}; up to {document.n_rows:,} together"] if rows else []
        )
        new = [f"{site} {count:,}" for site, count in facts["new_rows"].items()]
        lines += [f"  new rows   {', '.join(new)}"] if new else []
        lines += [f"  excluded   {site}: {why}" for site, why in state.excluded.items()]
        lines += [
            f"  valid      {site}: {'yes' if good else 'NO, its rows are left out'}"
            for site, good in state.valid.items()
        ]
        lines += [f"  rounds     {describe_run(*one)}" for one in facts["rounds"].items()]
        lines += [f"  opened     {', '.join(facts['opened'])}"] if state.opened else []
        lines += [f"  retired    key {key_id}: {why}" for key_id, why in state.retired.items()]
        lines += [f"  refused    {why}" for why in facts["refused"]]
        lines += [f"  next       {who}: {what}" for who, what in self.next] or [
            f"  next       nothing: {self.ended}"
        ]
        return "\n".join(lines)

    __repr__ = __str__


def next_steps(state: StudyState) -> list[tuple[str, str]]:
    """Return who has to do what."""
    document = state.document
    missing = [name for name in document.parties if name not in state.parties]
    if missing:
        return [(name, "join") for name in missing]
    links = next_link_steps(state)
    if links:
        return links
    if document.needs_key and not state.keys:
        return [(name, "keygen") for name in kind_of(document.key.kind).makers(state)]
    steps = [(site, "add") for site in _debtors(state)]
    if document.pools and state.fixed:
        steps += _row_steps(state)
    steps += _total_steps(state) + next_round_steps(state)
    return list(dict.fromkeys(steps))


def _debtors(state: StudyState) -> list[str]:
    """Return the sites whose rows or totals are missing."""
    document = state.document
    owing = [site for site in state.sites if site not in state.rows] if document.pools else []
    owing = list(state.undecided) or owing  # those before all others
    for question in document.questions_in(TOTALS, MASKED) if state.ready else ():
        now = state.round(question)
        owing += [site for site in now.members if site not in now.objects]
    return list(dict.fromkeys(owing))


def _row_steps(state: StudyState) -> list[tuple[str, str]]:
    document = state.document
    silent = [name for name in state.tossers if name not in state.coins]
    if silent:
        return [
            (name, "open" if name == document.receiver and name not in document.sites else "share")
            for name in silent
        ]
    if not state.checks:
        return [(document.worker, "fit")]
    if not state.judged:
        return _opening_steps(state)
    if any(question not in state.answers for question in state.answerable):
        return [(document.worker, "fit")]
    return (
        _opening_steps(state)
        if any(question not in state.opened for question in state.answerable)
        else []
    )


def _total_steps(state: StudyState) -> list[tuple[str, str]]:
    document, steps = state.document, []
    for question, asked in document.questions_in(TOTALS, MASKED).items():
        if not state.round(question).complete or question in state.opened:
            continue
        if asked.mode == TOTALS and question not in state.answers:
            steps.append((document.worker, "fit"))
        else:
            steps += (
                _opening_steps(state) if asked.mode == TOTALS else [(document.receiver, "open")]
            )
    return steps


def _opening_steps(state: StudyState) -> list[tuple[str, str]]:
    """Return who opens, or who must give a share first."""
    document, call = state.document, state.call
    if not kind_of(document.key.kind).shared or call is None:
        return [(document.receiver, "open")]
    sent = state.shares.get(call.hash, {})
    needed = document.key.openers or len(document.sites)
    if len(sent) >= needed:
        return [(document.receiver, "open")]
    return [(site, "share") for site in document.sites if site not in sent]
