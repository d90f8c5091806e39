"""The document of a study: what its members agree on. Its hash is the study's id, which every
message names.

Everybody may read it except for one encrypted part: names, levels and cut points, which a worker
must not know.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, Final

from encryptedstats.checks import as_count
from encryptedstats.circuits.expressions import circuit_digest
from encryptedstats.crypto import Parameters
from encryptedstats.crypto.envelopes import SEED_BYTES, lock, unlock
from encryptedstats.errors import (
    ArgumentError,
    ArgumentTypeError,
    Cure,
    DisclosureError,
    FileFormatError,
    KeyMismatchError,
    ParameterError,
    SchemaError,
    StudyError,
)
from encryptedstats.procedures.procedure import procedure_class
from encryptedstats.procedures.site_procedure import (
    MINIMUM,
    RowLimits,
    SiteCourse,
    SiteProcedure,
    canonical_state,
    check_procedure,
    check_rows,
    n_opened_by,
    rows_needed,
    state_digest,
)
from encryptedstats.studies.linkage import Linkage, site_schema
from encryptedstats.studies.parties import AGENT, RECEIVER, SITE, WORKER, Identity, Invitation
from encryptedstats.tables import PublicSchema, Question, Schema
from encryptedstats.tables.columns import list_question_columns, table_columns
from encryptedstats.tables.questions.question import (
    add_names,
    check_question,
    prepare_question,
    question_class,
)
from encryptedstats.tables.questions.row_answers import stages_of

#: The modes of answering: from encrypted rows; votes on new rows, by a model that is never opened;
#: from totals that sites compute at home and encrypt, or from masked ones.
ROWS, VOTES, TOTALS, MASKED = "rows", "votes", "totals", "masked"
MODES: Final = (ROWS, VOTES, TOTALS, MASKED)
#: The mode of procedures: rounds of masked totals, each in a state that follows from the sums
#: before.
ROUNDS: Final = "rounds"
#: Who can open results: one party that holds the key; k members who put its pieces together; all
#: members, none of whom ever has it.
ONE_HOLDER, ESCROW, JOINT = "one holder", "escrow", "joint"
ID_DIGITS: Final = 64
#: Results are from this many sites or more: the sum of one is its own.
MIN_SITES: Final = 2
#: Sums of rounds are over this many sites or more: of two, each has the other's in every round.
MIN_ROUND_SITES = 3
#: Studies agree on a minimum count of this or more.
LEAST_MINIMUM: Final = 5
#: Parameters of less security are refused in documents. Tests with small rings lower it.
MIN_SECURITY = 128
MAX_DOCUMENT_BYTES: Final = 64 << 20
_FORMAT: Final = "encryptedstats study 2"
_FIRST_FORMAT: Final = "encryptedstats study 1"
_NAME_LENGTH: Final = 64
_READ_BOTH: Final = ", question.in_ids(schema).interpret(totals, schema, n_rows)"


@dataclass(frozen=True)
class AskedQuestion:
    """A question of the document, in ids, and the mode in which it is answered."""

    question: Question
    mode: str = ROWS

    def to_dict(self) -> dict[str, Any]:
        return {
            "question": self.question.name,
            "params": self.question.parameters(),
            "way": self.mode,
        }


@dataclass(frozen=True)
class AskedProcedure:
    """A procedure of the document, in ids, and the hash of the state that it starts in."""

    procedure: SiteProcedure
    start: str

    def to_dict(self) -> dict[str, Any]:
        own = self.procedure
        return {"procedure": own.name, "params": own.parameters(), "start": self.start}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AskedProcedure:
        """Return the procedure that :meth:`to_dict` wrote."""
        found = procedure_class(values["procedure"]).from_parameters(values["params"])
        if not isinstance(found, SiteProcedure):
            raise ArgumentError(f"{found.name} is not for sites", code="not-a-site-procedure")
        return cls(found, values["start"])

    @classmethod
    def ask(cls, procedure: SiteProcedure, schema: Schema) -> AskedProcedure:
        """Return a procedure as a document has it: in ids, with all seeds fixed."""
        check_procedure(procedure)
        settled = procedure.in_ids(schema).fix_seeds()
        settled = settled.from_parameters(settled.parameters())  # as it is stored: lists, no tuples
        try:
            return cls(settled, start_digest(settled, schema.public()))
        except (SchemaError, ParameterError) as error:
            raise add_names(error, schema) from None


@dataclass(frozen=True)
class KeyRule:
    """The kind of the study's key, and how many members must take part in an opening."""

    kind: str
    openers: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "openers": self.openers}


@dataclass(frozen=True)
class StudyDocument:
    """What the members agree on.

    Attributes
    ----------
    name : str
    sites : tuple of str
        Who brings rows or totals.
    worker : str
        Who computes on encrypted data.
    receiver : str
        Who opens results.
    schema : PublicSchema
        What a worker may know of the columns.
    questions : mapping
        Everything that may ever be opened, by name.
    n_rows : int
        The most rows that all sites have together: parameters are chosen for totals over so many.
    parameters : Parameters
    key : KeyRule
    invitations : mapping
        The public half of each invitation, by name.
    sealed : mapping
        The key to ``private``, by name, encrypted for the holder of the invitation.
    private : bytes
        The schema with its names, encrypted for the members.
    nonce : str
        Makes two studies with the same agreement different.
    linkage : Linkage or None
        Where each site brings other columns of the same people.
    procedures : mapping
        What sites compute at home in rounds, by name: every round is an opening.
    minimum : int
        The fewest rows of all sites behind a number that a procedure opens.
    """

    name: str
    sites: tuple[str, ...]
    worker: str
    receiver: str
    schema: PublicSchema
    questions: Mapping[str, AskedQuestion]
    n_rows: int
    parameters: Parameters
    key: KeyRule
    invitations: Mapping[str, str]
    sealed: Mapping[str, bytes]
    private: bytes
    nonce: str
    linkage: Linkage | None = None
    procedures: Mapping[str, AskedProcedure] = field(default_factory=dict)
    minimum: int = MINIMUM

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of all questions and procedures."""
        return (*self.questions, *self.procedures)

    @property
    def modes(self) -> dict[str, str]:
        """The mode of each of them."""
        return {one: found.mode for one, found in self.questions.items()} | dict.fromkeys(
            self.procedures, ROUNDS
        )

    @property
    def min_sites(self) -> int:
        """The fewest sites that results are from."""
        return MIN_ROUND_SITES if self.procedures else MIN_SITES

    @property
    def limits(self) -> RowLimits:
        """How many rows there must be behind what procedures open."""
        return RowLimits(self.minimum, most_rows=self.n_rows)

    @property
    def n_opened(self) -> int:
        """The most numbers that all rounds of all procedures open."""
        return sum(n_opened_by(one.procedure, self.schema) for one in self.procedures.values())

    @property
    def rows_needed(self) -> int:
        """The fewest rows that all sites need together for the rounds of all procedures."""
        own = [one.procedure for one in self.procedures.values()]
        return rows_needed(own, self.schema, self.limits)

    def begin(self, name: str) -> SiteCourse:
        """Return the state machine of a procedure, at its start."""
        own = self.procedures[name].procedure
        return SiteCourse(own, self.schema, self.limits, self.n_opened)

    @property
    def parties(self) -> tuple[str, ...]:
        """All names, each once."""
        return _party_names(self.sites, self.worker, self.receiver, self.linkage)

    @property
    def members(self) -> tuple[str, ...]:
        """Those who may read the names of columns: all but a worker without another role."""
        return tuple(dict.fromkeys((*self.sites, self.receiver)))

    def roles(self, name: str) -> tuple[str, ...]:
        """Return the roles of a party."""
        has = (
            (SITE, name in self.sites),
            (WORKER, name == self.worker),
            (RECEIVER, name == self.receiver),
            (AGENT, self.linkage is not None and name == self.linkage.agent),
        )
        return tuple(role for role, held in has if held)

    def site_schema(self, site: str) -> PublicSchema:
        """Return the schema of the table that a site brings."""
        return (
            self.schema
            if self.linkage is None
            else site_schema(self.schema, self.linkage.positions(site))
        )

    def questions_in(self, *modes: str) -> dict[str, AskedQuestion]:
        """Return the questions that are answered in one of these modes."""
        return {name: one for name, one in self.questions.items() if one.mode in modes}

    @property
    def row_readers(self) -> tuple[str, ...]:
        """The parties for whom encrypted rows are sealed: the worker, and sites that recompute
        before they share.
        """
        others = self.sites if self.key.kind == JOINT else ()
        return tuple(dict.fromkeys((self.worker, *others)))

    @property
    def open_risks(self) -> tuple[str, ...]:
        """Return what the study does not protect from, in sentences for its members."""
        found, receiver, worker = [], self.receiver, self.worker
        if self.questions_in(MASKED):
            found.append(
                f"all sites but one, together with {receiver}, get the totals of the one that is "
                "left"
            )
            if len(self.sites) == MIN_SITES:
                found.append("each of the two sites gets the totals of the other from the sum")
        for name, one in self.procedures.items():
            most = n_opened_by(one.procedure, self.schema)
            found += [
                f"every round of {name} is an opening: all sites and {receiver} see up to "
                f"{most:,} sums over all sites in up to {one.procedure.at_most:,} rounds",
                f"all sites but one together get the totals of the one that is left, in every "
                f"round of {name}",
                f"a site that gives false totals steers the states of {name} that follow",
            ]
        if self.linkage is not None:
            found += self.linkage.risks(self.sites)
        if not self.needs_key:
            return tuple(found)
        if self.key.kind == ONE_HOLDER:
            found.append(f"{receiver} together with {worker} can read all rows")
        elif self.key.kind == ESCROW:
            found.append(
                f"{receiver} makes the key and is believed to forget it: together with {worker} "
                "it could read all rows"
            )
            found.append(
                f"{self.key.openers} sites together can open the answers, and with {worker} they "
                "can read all rows"
            )
        else:
            found.append(
                f"the noise of rows is not proven: {receiver} together with one site gets the "
                "key, and with it all rows"
            )
            found.append("all sites together have the key")
        return tuple(found)

    @property
    def needs_key(self) -> bool:
        """True if anything is encrypted under a key; masked totals are not."""
        return bool(self.questions_in(ROWS, VOTES, TOTALS))

    @property
    def pools(self) -> bool:
        """True if sites bring encrypted rows."""
        return bool(self.questions_in(ROWS, VOTES))

    @property
    def measures(self) -> bool:
        """True if sites compute on clear rows at home."""
        return bool(self.questions_in(TOTALS, MASKED) or self.procedures)

    # -- stored form -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return canonical JSON, of which the id is a hash."""
        values = {
            "format": _FORMAT,
            "name": self.name,
            "sites": list(self.sites),
            "worker": self.worker,
            "receiver": self.receiver,
            "schema": self.schema.to_json(),
            "questions": {name: one.to_dict() for name, one in self.questions.items()},
            "n_rows": self.n_rows,
            "parameters": self.parameters.to_dict(),
            "key": self.key.to_dict(),
            "invitations": dict(self.invitations),
            "sealed": {name: data.hex() for name, data in self.sealed.items()},
            "private": base64.b64encode(self.private).decode(),
            "nonce": self.nonce,
        }
        if self.linkage is not None:
            values["linkage"] = self.linkage.to_dict()
        if self.procedures:
            values["procedures"] = {name: one.to_dict() for name, one in self.procedures.items()}
            values["minimum"] = self.minimum
        return json.dumps(values, sort_keys=True, indent=1, allow_nan=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> StudyDocument:
        """Return the document that :meth:`to_bytes` wrote. Everything is checked."""
        try:
            values = json.loads(data)
            if values["format"] == _FIRST_FORMAT:
                raise StudyError(
                    f"{where} is of a study of version 0.2, in which the receiver can read the "
                    "rows of sites: ",
                    Cure("create the study again", "create it again"),
                    code="outdated-version",
                )
            if values["format"] != _FORMAT:
                raise ArgumentError(f"format {values['format']!r}", code="unsupported-version")
            questions = {
                name: AskedQuestion(
                    question_class(one["question"])._from_parameters(one["params"]), one["way"]
                )
                for name, one in values["questions"].items()
            }
            found = cls(
                values["name"],
                tuple(values["sites"]),
                values["worker"],
                values["receiver"],
                PublicSchema.from_json(values["schema"]),
                questions,
                values["n_rows"],
                Parameters.from_dict(values["parameters"]),
                KeyRule(values["key"]["kind"], values["key"]["openers"]),
                values["invitations"],
                {name: bytes.fromhex(sealed) for name, sealed in values["sealed"].items()},
                base64.b64decode(values["private"], validate=True),
                values["nonce"],
                Linkage.from_dict(values["linkage"]) if "linkage" in values else None,
                {
                    name: AskedProcedure.from_dict(one)
                    for name, one in values.get("procedures", {}).items()
                },
                values.get("minimum", MINIMUM),
            )
            found.check()
            if found.to_bytes() != data:
                raise ArgumentError(
                    "it is not written as this library writes it", code="not-canonical"
                )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                f"{where} is no document of a study, or was altered: {error}",
                code="malformed-study",
            ) from error
        return found

    @cached_property
    def id(self) -> str:
        """The hash of the document."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:ID_DIGITS]

    def check(self) -> None:
        """Refuse what cannot be a study."""
        names = (*self.parties, *self.asked)
        if not all(
            isinstance(one, str) and 0 < len(one) <= _NAME_LENGTH and one.isidentifier()
            for one in names
        ):
            raise ArgumentError(
                "names of parties and questions are words of letters, digits and _, up to "
                f"{_NAME_LENGTH} of them",
                code="malformed-name",
            )
        if len(set(self.sites)) != len(self.sites) or len(self.sites) < MIN_SITES:
            raise ArgumentError(
                "a study has two sites or more, each with a name of its own", code="too-few-sites"
            )
        if self.worker == self.receiver:
            raise ArgumentError(
                "the worker has all ciphertexts and the receiver opens: one who is both could "
                "open every row. Name two",
                code="worker-is-receiver",
            )
        if not self.asked or not all(one.mode in MODES for one in self.questions.values()):
            raise ArgumentError(
                f"a study asks questions, each in one of the modes {', '.join(MODES)}, or "
                f"procedures in the mode {ROUNDS}",
                code="unknown-way",
            )
        as_count(self.n_rows, "n_rows", "rows")
        if self.key.kind == ESCROW and not 2 <= self.key.openers <= len(self.sites):
            raise ArgumentError(
                f"openers={self.key.openers}: of {len(self.sites)} sites, 2 to {len(self.sites)} "
                "together can open. "
                "Where one is to open alone, let it hold the key",
                code="openers-out-of-range",
            )
        self._check_parameters()
        if self.key.kind == JOINT:
            self._check_joint()
        if self.questions_in(VOTES) and self.key.kind != JOINT:
            raise ArgumentError(
                "votes are numbers of single rows, which sites encrypt for each other: they are "
                "opened under a joint key alone, "
                "whose members make sure that nothing but votes is. Ask for the model, and "
                "predict at home",
                code="votes-without-joint-key",
            )
        for name, one in self.questions_in(VOTES).items():
            check_votes(name, one.question, self.schema)
        for one in self.questions.values():
            one.question.check(self.schema)
            if one.question._fix_seed() is not one.question:
                raise ArgumentError(
                    "a question that leaves something to chance: everybody must ask the same",
                    code="no-seed",
                )
        self._check_asked_once()
        if self.linkage is not None:
            self.linkage.check(self)
        if self.procedures:
            self._check_procedures()

    def _check_procedures(self) -> None:
        """Refuse procedures by which a member would learn more than the sums of many rows."""
        if set(self.procedures) & set(self.questions):
            raise ArgumentError("a procedure has the name of a question", code="repeated-name")
        if len(self.sites) < MIN_ROUND_SITES:
            raise ArgumentError(
                f"{len(self.sites)} sites: what is asked in rounds takes {MIN_ROUND_SITES} or "
                "more, since of two sites each gets the totals of the other in every round",
                code="too-few-sites",
            )
        if self.linkage is not None:
            raise ArgumentError(
                "sites compute rounds on whole rows, and linked columns lie at several sites",
                code="rounds-of-linked-columns",
            )
        if as_count(self.minimum, "minimum", "rows") < LEAST_MINIMUM:
            raise ArgumentError(
                f"minimum={self.minimum}: at least {LEAST_MINIMUM} rows of all sites must be "
                "behind every number",
                code="minimum-too-small",
            )
        for name, one in self.procedures.items():
            own = one.procedure
            check_procedure(own)
            settled = own.in_ids(self.schema).fix_seeds()
            if settled.parameters() != own.parameters():
                raise ArgumentError(
                    f"{name!r} is not as all sites ask it: in ids, with every seed",
                    code="no-seed",
                )
            if start_digest(own, self.schema) != one.start:
                raise ArgumentError(
                    f"{name!r} starts in another state here than the document says: the versions "
                    "of the library differ, or the document was altered",
                    code="other-start",
                )
            check_rows(own, self.schema, self.n_rows, self.n_opened, self.limits)
        self._check_run_once()
        self._check_agreed()

    def _check_run_once(self) -> None:
        """Refuse two procedures that estimate the same from different starts: the differences of
        their states tell more than either.
        """
        for (other, before), (name, one) in combinations(self.procedures.items(), 2):
            first, second = before.procedure, one.procedure
            is_same = canonical_state(first.fits(self.schema)) == canonical_state(
                second.fits(self.schema)
            )
            if first.name == second.name and is_same:
                raise ArgumentError(
                    f"{other!r} and {name!r} are one {first.name}, from one start or two: a study "
                    "runs it once",
                    code="repeated-procedure",
                )

    def _check_agreed(self) -> None:
        """Refuse two procedures whose sums differ by few rows, such as those over risk sets that
        each merges to steps of its own.
        """
        for (other, before), (name, one) in combinations(self.procedures.items(), 2):
            first, second = (own.procedure.agrees_on(self.schema) for own in (before, one))
            for what in sorted(first.keys() & second.keys()):
                if canonical_state(first[what]) != canonical_state(second[what]):
                    raise ParameterError(
                        f"{other!r} and {name!r} do not agree on {what}, and differences of their "
                        "sums could be those of few rows. Cox regressions of a study need the same "
                        "time, minimum= and factors, and ties='breslow' or the same event",
                        code="other-steps",
                    )

    def _check_parameters(self) -> None:
        """Refuse parameters under which a promise of the study does not hold."""
        found, joint = self.parameters, self.key.kind == JOINT
        expected = len(self.sites) if joint else 1
        if found.members != expected:
            raise ParameterError(
                f"parameters for {found.members} members, and a key of kind {self.key.kind!r} of "
                f"{len(self.sites)} sites needs {expected}: ",
                Cure("let the study plan", f"leave parameters out, or plan for members={expected}"),
                code="wrong-number-of-members",
            )
        if found.copies != 1:
            raise ParameterError(
                f"parameters with copies={found.copies}: the rows of sites are checked slot by "
                "slot, and forged copies "
                "would pass: ",
                Cure("let the study plan", "leave parameters out, or plan for copies=1"),
                code="copies-in-study",
            )
        if found.security < MIN_SECURITY:
            raise ParameterError(
                f"parameters of {found.security} bits of security, and a study needs "
                f"{MIN_SECURITY}: ",
                Cure("let the study plan", "leave parameters out"),
                code="too-little-security",
            )

    def _check_joint(self) -> None:
        """Refuse what would open a ciphertext that one party has chosen under a joint key."""
        if self.questions_in(TOTALS):
            raise ParameterError(
                f"{', '.join(self.questions_in(TOTALS))}: under a joint key, encrypted totals of "
                "one "
                "site could be chosen so that "
                "their sum tells the other sites' parts of the key: ",
                Cure("mask totals", f"ask in the mode {MASKED!r}, which gives the same sum"),
                code="totals-under-joint-key",
            )
        if self.receiver in self.sites:
            raise ParameterError(
                f"{self.receiver} is the receiver and a site: a site that sees openings of its "
                "own ciphertexts could read "
                "the joint key: ",
                Cure("name another receiver", "name a receiver who brings no rows"),
                code="receiver-is-site",
            )

    def _check_asked_once(self) -> None:
        """Check that no two questions share a total under a joint key.

        A share is made once for a ciphertext, so the second question could not be opened.
        """
        asked = list(self.questions_in(ROWS, VOTES).items()) if self.key.kind == JOINT else []
        for (other, before), (name, one) in combinations(asked, 2):
            if one.mode != before.mode:
                continue
            if one.question._asks_same(before.question):
                raise ArgumentError(
                    f"{other!r} and {name!r} are one question: it is answered, and opened, once",
                    code="repeated-question",
                )
            if self._computes_the_same(before, one):
                what = "totals" if one.mode == ROWS else "votes"
                both = " and ".join(
                    f"{label!r} ({own.question.describe(self.schema)})"
                    for label, own in ((other, before), (name, one))
                )
                raise ArgumentError(
                    f"{both} ask for the same {what}, which the members of a joint key open once: "
                    "ask for one, and read the "
                    f"other from the {what} that it opens"
                    + (_READ_BOTH if one.mode == ROWS else ""),
                    code="repeated-opening",
                )

    def _computes_the_same(self, one: AskedQuestion, other: AskedQuestion) -> bool:
        """Return True if two questions in one mode have equal circuits, hence equal ciphertexts."""
        if one.question._n_totals(self.schema) != other.question._n_totals(self.schema):
            return False  # so most are told apart, and no circuit is written
        return self._digests_of(one) == self._digests_of(other)

    def _digests_of(self, one: AskedQuestion) -> list[str]:
        """Return digests of everything that is computed for a question."""
        stored = table_columns(self.schema, classes=self.schema.has_target)
        if one.mode == ROWS:
            return [
                circuit_digest(
                    one.question.circuit(self.schema, list_question_columns(self.schema, stored))
                )
            ]
        stages = stages_of(one.question, self.schema, stored, self.n_rows)
        return [circuit_digest(stage.circuits(self.parameters.slots)) for stage in stages]

    def private_schema(self, reading: bytes) -> Schema:
        """Decrypt the schema with its names."""
        return Schema.from_json(unlock(reading, self.private, self._bound_to()).decode())

    def reading_key(self, name: str, invitation: Invitation) -> bytes:
        """Return the key to the schema for an invited party; empty for a worker."""
        if name not in self.sealed:
            return b""
        return unlock(invitation.reading, self.sealed[name], self._bound_to())

    def _bound_to(self) -> bytes:
        return f"{_FORMAT} {self.nonce}".encode()

    def find_invited(self, invitation: Invitation) -> str:
        """Return the name that an invitation is for."""
        found = [name for name, public in self.invitations.items() if public == invitation.public]
        if not found:
            raise KeyMismatchError(
                f"this invitation is for another study than {self.name!r}: ask the maker of the "
                "study for yours",
                code="other-study",
            )
        return found[0]

    def own_schema(self, identity: Identity | None) -> Schema:
        """Return the schema as a member knows it."""
        if identity is None or not identity.reading:
            raise SchemaError(
                "the names and cut points of this study are for its members: a worker does not "
                "know them",
                code="names-for-members",
            )
        return self.private_schema(identity.reading)


def write_document(
    name: str,
    schema: Schema,
    questions: Mapping[str, tuple[Question | SiteProcedure, str]],
    n_rows: int,
    parameters: Parameters,
    sites: Sequence[str],
    worker: str,
    receiver: str,
    key: KeyRule,
    linkage: Linkage | None = None,
    minimum: int = MINIMUM,
) -> tuple[StudyDocument, dict[str, str]]:
    """Return a new document and the invitation codes by name, which are stored nowhere."""
    schema.public().refuse_lanes("studies")
    nonce, reading = os.urandom(16).hex(), os.urandom(SEED_BYTES)
    bound = f"{_FORMAT} {nonce}".encode()
    single, in_rounds = split_modes(questions)
    asked = {
        one: AskedQuestion(prepare_question(check_question(question), schema)._fix_seed(), mode)
        for one, (question, mode) in single.items()
    }
    names = _party_names(sites, worker, receiver, linkage)
    invitations = {one: Invitation.new() for one in names}
    members = [one for one in names if one in (*sites, receiver)]
    document = StudyDocument(
        name,
        tuple(sites),
        worker,
        receiver,
        schema.public(),
        asked,
        n_rows,
        parameters,
        key,
        {one: invitation.public for one, invitation in invitations.items()},
        {one: lock(invitations[one].reading, reading, bound) for one in members},
        lock(reading, schema.to_json().encode(), bound),
        nonce,
        None if linkage is None else linkage.resolve(schema),
        {one: AskedProcedure.ask(procedure, schema) for one, procedure in in_rounds.items()},
        minimum,
    )
    try:
        document.check()
    except ValueError as error:
        raise (
            error
            if isinstance(error, (SchemaError, ParameterError, DisclosureError))
            else ParameterError(error)
        ) from None
    return document, {one: invitation.code for one, invitation in invitations.items()}


def check_votes(name: str, question: Question, schema: PublicSchema) -> None:
    """Refuse what has no votes before it is opened, or only with something that is drawn from the
    rows of one owner.
    """
    try:
        question.answer_shapes(schema, question.outputs[0])
    except NotImplementedError:
        raise ArgumentError(
            f"{name!r}: a {question.name} says nothing of rows before it is opened: ask for "
            f"it in the mode {ROWS!r}",
            code="rows-needed-for-votes",
        ) from None
    if question._drawn_circuit(schema)[0] is not None:
        raise ArgumentError(
            f"{name!r} draws a fraction, which is done from rows that one owner encrypted: "
            "fraction=0",
            code="stochastic-fraction",
        )


def split_modes(
    questions: Mapping[str, tuple[Question | SiteProcedure, str]],
) -> tuple[dict[str, tuple[Question, str]], dict[str, SiteProcedure]]:
    """Return the questions with their modes, and the procedures, which have one mode."""
    single: dict[str, tuple[Question, str]] = {}
    in_rounds: dict[str, SiteProcedure] = {}
    for name, (asked, mode) in questions.items():
        if mode != ROUNDS and not isinstance(asked, SiteProcedure):
            single[name] = (asked, mode)
            continue
        if not isinstance(asked, SiteProcedure) or mode != ROUNDS:
            raise ArgumentTypeError(
                f"{name!r}: the mode {ROUNDS!r} is for procedures whose totals sites compute at "
                "home, and these have no other",
                code="not-a-site-procedure",
            )
        in_rounds[name] = asked
    return single, in_rounds


def start_digest(procedure: SiteProcedure, schema: PublicSchema) -> str:
    """Return a hash of the state that a procedure starts in."""
    return state_digest(canonical_state(procedure.start(schema)))


def _party_names(
    sites: Sequence[str], worker: str, receiver: str, linkage: Linkage | None
) -> tuple[str, ...]:
    agent = [] if linkage is None or not linkage.agent else [linkage.agent]
    return tuple(dict.fromkeys((*sites, worker, receiver, *agent)))
