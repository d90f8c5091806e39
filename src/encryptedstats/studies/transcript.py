"""The transcript of a study: signed messages in a hash chain, and the state that follows from them.

Every message is signed, and names its study and the hash of all earlier messages. The objects that
it brings (keys, shares, totals) are named by their hashes. A reader replays all messages, accepts
those that follow the rules, and records who sent the others and why they were refused. Each kind of
message is one function that registers itself with :func:`message`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from encryptedstats.crypto.signatures import verifies
from encryptedstats.errors import EncryptedStatsError, FileFormatError, StudyError
from encryptedstats.storage.chains import Chain, ChainEntry
from encryptedstats.storage.objects import Store
from encryptedstats.studies.documents import (
    JOINT,
    MASKED,
    MIN_SITES,
    ROWS,
    TOTALS,
    VOTES,
    StudyDocument,
)
from encryptedstats.studies.parties import RECEIVER, SITE, WORKER, Identity, Party, was_invited
from encryptedstats.studies.runs import Round, SiteRun

MESSAGES: Final = "messages"
OBJECTS: Final = "objects"
#: The messages by which all sites make a joint key, each when those before it are all there.
KEY_ROUNDS: Final = ("commitment", "contribution", "relinearisation")
DIGITS: Final = 64
MAX_OBJECT_BYTES: Final = 1 << 30


class InvalidMessage(Exception):
    """Why a message does not count."""


@dataclass(frozen=True)
class Message:
    """A message: its sender, kind and content. ``hash`` stands for it and all before it."""

    number: int
    by: str
    kind: str
    content: Mapping[str, Any]
    hash: str

    def text(self, name: str) -> str:
        """Return a text field."""
        value = self.content.get(name)
        if not isinstance(value, str):
            raise InvalidMessage(f"it does not say {name!r}")
        return value

    def count(self, name: str) -> int:
        """Return a field that is a number from 0 on."""
        value = self.content.get(name)
        if type(value) is not int or value < 0:
            raise InvalidMessage(f"it does not say {name!r}")
        return value

    def digest(self, name: str) -> str:
        """Return a field that is the hash of an object."""
        return check_digest(self.content.get(name), name)

    def digests(self, name: str) -> dict[str, str]:
        """Return a field that holds hashes of objects by name."""
        value = self.content.get(name)
        if not isinstance(value, dict):
            raise InvalidMessage(f"it does not say {name!r}")
        return {one: check_digest(found, name) for one, found in value.items()}


def check_digest(value: Any, name: str) -> str:
    """Return the value if it is a hash of 64 hexadecimal digits, or raise an error."""
    if (
        not isinstance(value, str)
        or len(value) != DIGITS
        or not set(value) <= set("0123456789abcdef")
    ):
        raise InvalidMessage(f"{name!r} is no hash of an object")
    return value


@dataclass(frozen=True)
class MessageRefusal:
    """A message that does not count, and why."""

    number: int
    by: str
    kind: str
    why: str

    def __str__(self) -> str:
        return f"message {self.number}, {self.kind!r} by {self.by}: refused, {self.why}"


@dataclass(frozen=True)
class SiteRows:
    """The encrypted rows of a site: their encrypted folder, and the hash of the manifest that fixes
    every block.
    """

    folder: str
    manifest: str
    n_rows: int
    n_blocks: int
    blocks: str  # hash of the ids of the blocks
    keys: Mapping[str, bytes]  # the key of the folder, sealed for each reader


@dataclass(frozen=True)
class Call:
    """What the receiver asks the members to open: encrypted results by name, and their hashes."""

    hash: str
    items: Mapping[str, str]


@dataclass
class StudyState:
    """The state of a study after all messages so far."""

    document: StudyDocument
    parties: dict[str, Party] = field(default_factory=dict)
    key_id: str = ""
    keys: str = ""  # the object with the public keys
    rows: dict[str, SiteRows] = field(default_factory=dict)
    new_rows: dict[str, SiteRows] = field(default_factory=dict)  # that votes are asked for
    asked: set[str] = field(
        default_factory=set
    )  # sites that have said which new rows they bring, or that they bring none
    excluded: dict[str, str] = field(default_factory=dict)
    coins: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(
        default_factory=dict
    )  # objects with validity totals, by what is checked
    valid: dict[str, bool] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)  # what of the last call is not opened yet
    shares: dict[str, dict[str, str]] = field(default_factory=dict)  # objects by call and site
    opened: dict[str, str] = field(default_factory=dict)  # answers by question
    rounds: dict[str, Round] = field(default_factory=dict)  # of totals, by question
    runs: dict[str, SiteRun] = field(default_factory=dict)  # of procedures, by name
    retired: dict[str, str] = field(default_factory=dict)  # why, by key id
    key_rounds: dict[str, dict[str, str]] = field(
        default_factory=dict
    )  # of a joint key: objects by round and site
    refused: list[MessageRefusal] = field(default_factory=list)
    more: dict[str, Any] = field(
        default_factory=dict
    )  # what other kinds of messages leave: of joint keys, of totals

    def __post_init__(self) -> None:
        self.rounds = {
            question: Round(0, self.document.sites)
            for question in self.document.questions_in(TOTALS, MASKED)
        }
        self.runs = {name: SiteRun(0, self.document.sites) for name in self.document.procedures}
        self.key_rounds = {name: {} for name in KEY_ROUNDS}

    def is_key_round_complete(self, name: str) -> bool:
        """Return True if all sites have sent their message of a round of a joint key."""
        return set(self.key_rounds[name]) == set(self.document.sites)

    @property
    def key_rounds_complete(self) -> bool:
        """True if all messages of a joint key are there."""
        return all(map(self.is_key_round_complete, KEY_ROUNDS))

    @property
    def joined(self) -> bool:
        """True if all parties have joined."""
        return set(self.parties) == set(self.document.parties)

    def check_joined(self, what: str) -> None:
        """Refuse what needs the keys of everybody, and say who is missing."""
        if not self.joined:
            missing = [name for name in self.document.parties if name not in self.parties]
            raise StudyError(
                f"{', '.join(missing)} have not joined yet: {what} when all have",
                code="not-all-joined",
            )

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that are not excluded."""
        return tuple(site for site in self.document.sites if site not in self.excluded)

    @property
    def members(self) -> tuple[str, ...]:
        """Return the sites that every question is answered by: the list is one for the
        whole study.
        """
        return self.good_sites if self.judged else self.sites

    @property
    def has_complete_question(self) -> bool:
        """Return whether any question has all that it is answered from: no member leaves after
        this.
        """
        return (
            bool(self.checks)
            or any(one.complete for one in self.rounds.values())
            or any(one.begun for one in self.runs.values())
        )

    def begin_rounds(self) -> None:
        """Begin all rounds of totals again, under other masks, with the members that
        there are now.
        """
        self.rounds = {
            name: Round(one.number + 1, self.members) for name, one in self.rounds.items()
        }
        self.runs = {
            name: SiteRun(one.attempt + 1, self.members) for name, one in self.runs.items()
        }

    @property
    def undecided(self) -> tuple[str, ...]:
        """Sites that must say which new rows they bring, before anybody brings training rows."""
        return (
            tuple(site for site in self.sites if site not in self.asked)
            if self.document.questions_in(VOTES)
            else ()
        )

    @property
    def fixed(self) -> bool:
        """True if all rows are there: none are accepted after this."""
        return self.joined and bool(self.rows) and all(site in self.rows for site in self.sites)

    @property
    def fixed_rows(self) -> bytes:
        """A hash of all rows."""
        found = {"rows": self.rows, "new rows": self.new_rows}
        listed = {
            kind: {site: one.manifest for site, one in rows.items()} for kind, rows in found.items()
        }
        return json.dumps(listed, sort_keys=True).encode()

    @property
    def tossers(self) -> tuple[str, ...]:
        """Whose numbers make the coin: all sites with rows, and the receiver."""
        return tuple(dict.fromkeys((*self.sites, self.document.receiver)))

    @property
    def coin(self) -> bytes | None:
        """The coin that gives the weights of validity totals; None before everybody has revealed
        their number.

        Everybody committed to a number before there were any rows. So nobody who made rows knew the
        coin, unless all others told it; and nobody could change a number after seeing the others.
        """
        if not self.fixed or not all(name in self.coins for name in self.tossers):
            return None
        parts = [self.document.id, *(f"{s} {self.rows[s].manifest}" for s in self.sites)]
        parts += [f"{NEW}{s} {self.new_rows[s].manifest}" for s in self.sites if s in self.new_rows]
        parts += [f"{name} {self.coins[name]}" for name in self.tossers]
        return hashlib.sha256("\n".join(["encryptedstats coin", *parts]).encode()).digest()

    @property
    def judged(self) -> bool:
        """True if the rows of all sites were found valid or not."""
        return bool(self.valid) and all(one in self.valid for one in self.checked)

    @property
    def checked(self) -> tuple[str, ...]:
        """Whose rows are found valid or not: every site, and the new rows of sites that
        bring some.
        """
        return (*self.sites, *(NEW + site for site in self.sites if site in self.new_rows))

    @property
    def good_sites(self) -> tuple[str, ...]:
        """The sites whose rows count."""
        return tuple(site for site in self.sites if self.valid.get(site))

    @property
    def asking_sites(self) -> tuple[str, ...]:
        """The sites whose new rows are voted on: all of their rows are valid."""
        return tuple(site for site in self.good_sites if self.valid.get(NEW + site))

    @property
    def answerable(self) -> tuple[str, ...]:
        """The questions that the worker answers from valid rows; votes need rows to vote on."""
        modes = (ROWS, VOTES) if self.asking_sites else (ROWS,)
        least = MIN_SITES if self.document.linkage is None else len(self.document.sites)
        enough = self.judged and len(self.good_sites) >= least
        return tuple(self.document.questions_in(*modes)) if enough else ()

    @property
    def call(self) -> Call | None:
        """What is to be opened now, or None."""
        return self.calls[-1] if self.pending else None

    @property
    def ready(self) -> bool:
        """True if sites may give totals: their encrypted rows, if any, are judged."""
        return self.judged or not self.document.pools

    def round(self, question: str) -> Round:
        """Return the current round of totals of a question."""
        return self.rounds[question]

    def need(self, good: bool, why: str) -> None:
        """Refuse a message that may not be said now."""
        if not good:
            raise InvalidMessage(why)


CHECK: Final = "validity of "
NEW: Final = "new rows of "
Take = Callable[[StudyState, Message], None]
_KINDS: dict[str, tuple[str, Take]] = {}


def message(kind: str, role: str) -> Callable[[Take], Take]:
    """Register what a kind of message does, and who may send it (a role; empty for everybody who
    has joined).
    """

    def register(take: Take) -> Take:
        _KINDS[kind] = (role, take)
        return take

    return register


class Transcript:
    """The messages of a study in a store."""

    def __init__(self, store: Store, document: StudyDocument) -> None:
        self.store = store
        self.document = document
        self._chain = Chain(store, MESSAGES, f"encryptedstats study {document.id}", _is_signed)

    def head(self) -> str:
        """Return the hash of the last message."""
        return self._chain.head()

    def check_contains(self, head: str) -> None:
        """Refuse messages of which some were taken away since somebody saw this hash at
        their end.
        """
        self._chain.check_contains(head)

    def state(self) -> StudyState:
        """Return the state after all messages."""
        return self._replay(self._chain.entries())

    def messages(self) -> list[Message]:
        """Return all messages, including refused ones."""
        state = StudyState(self.document)
        found = []
        for entry in self._chain.entries():
            found.append(self._message(state, entry))
            self._take(state, found[-1], entry)
        return found

    def post(
        self,
        identity: Identity,
        kind: str,
        content: Mapping[str, Any] | Callable[[StudyState], Mapping[str, Any]],
    ) -> Message:
        """Say something, if it follows the rules where it will stand; else StudyError
        says why not.
        """

        def make_entry(entries: Sequence[ChainEntry]) -> dict[str, Any]:
            state = self._replay(entries)
            said = {"kind": kind, **(content(state) if callable(content) else content)}
            number = len(entries)
            self._accept(
                state, Message(number, identity.name, kind, said, ""), identity.signer.public_bytes
            )
            return said

        entry = self._chain.append(
            make_entry, identity.signer.public_bytes.hex(), identity.signer.sign
        )
        return Message(entry.number, identity.name, kind, entry.content, entry.hash)

    def _accept(self, state: StudyState, said: Message, key: bytes) -> None:
        try:
            _apply(state, said, key)
        except InvalidMessage as why:
            raise StudyError(
                f"{said.kind!r} by {said.by} would be refused: {why}", code="refused-message"
            ) from None

    def _replay(self, entries: Sequence[ChainEntry]) -> StudyState:
        state = StudyState(self.document)
        for entry in entries:
            self._take(state, self._message(state, entry), entry)
        return state

    def _message(self, state: StudyState, entry: ChainEntry) -> Message:
        kind = entry.content.get("kind")
        by = next(
            (name for name, party in state.parties.items() if party.signing.hex() == entry.by), ""
        )
        if kind == "join" and not by:
            party = entry.content.get("party")
            by = str(party.get("name", "")) if isinstance(party, dict) else ""
        return Message(entry.number, by or "a stranger", str(kind), entry.content, entry.hash)

    def _take(self, state: StudyState, said: Message, entry: ChainEntry) -> None:
        try:
            _apply(state, said, bytes.fromhex(entry.by))
        except InvalidMessage as why:
            state.refused.append(MessageRefusal(said.number, said.by, said.kind, str(why)))

    # -- objects -----------------------------------------------------------------------------------

    def has_object(self, digest: str) -> bool:
        """Return whether the bytes of a hash are there: their message is posted first."""
        return self.store.exists(f"{OBJECTS}/{digest}")

    def store_object(self, data: bytes) -> str:
        """Keep bytes under their hash, which messages name."""
        digest = hashlib.sha256(data).hexdigest()
        self.store.create(f"{OBJECTS}/{digest}", data)
        return digest

    def read_object(self, digest: str) -> bytes:
        """Return the bytes with this hash, or raise an error if they are others."""
        name = f"{OBJECTS}/{digest}"
        try:
            data = self.store.read(name, limit=MAX_OBJECT_BYTES)
        except FileNotFoundError:
            raise StudyError(
                f"{self.store.where(name)} is announced and not there yet: see in the status who "
                "has to act first",
                code="object-missing",
            ) from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise FileFormatError(
                f"{self.store.where(name)} was altered: it is not what its message says. Do not "
                "go on with it",
                code="altered-object",
            )
        return data


def _is_signed(by: str, statement: bytes, signature: str) -> bool:
    try:
        return verifies(bytes.fromhex(by), statement, signature)
    except ValueError:
        return False


def _apply(state: StudyState, said: Message, key: bytes) -> None:
    """Take a message; what it may not say is refused, and leaves the state as it was."""
    if said.kind not in _KINDS:
        raise InvalidMessage("nobody knows such messages")
    role, take = _KINDS[said.kind]
    if said.kind != "join":
        party = state.parties.get(said.by)
        if party is None or party.signing != key:
            raise InvalidMessage("it is signed by nobody who has joined")
        if role and role not in state.document.roles(said.by):
            raise InvalidMessage(f"{said.by} is no {role} of this study")
    try:
        take(state, said)
    except EncryptedStatsError as error:
        raise InvalidMessage(str(error)) from None


# -- the messages ----------------------------------------------------------------------------------


@message("join", "")
def _join(state: StudyState, said: Message) -> None:
    try:
        party = Party.from_dict(said.content["party"])
    except (ValueError, TypeError, KeyError):
        raise InvalidMessage("its keys are malformed") from None
    document = state.document
    state.need(party.name in document.invitations, f"{party.name} was not invited")
    invited = was_invited(document.invitations[party.name], document.id, party, said.text("proof"))
    state.need(invited, f"it has no proof of the invitation for {party.name}")
    state.need(
        party.name not in state.parties,
        f"{party.name} has joined already, with the keys of the first message",
    )
    taken = {key for other in state.parties.values() for key in (other.signing, other.sealing)}
    state.need(not taken & {party.signing, party.sealing}, "its keys are those of another party")
    state.parties[party.name] = party


@message("key round", SITE)
def _key_round(state: StudyState, said: Message) -> None:
    name = said.text("round")
    state.need(state.document.key.kind == JOINT, "the key of this study is not made in rounds")
    state.need(state.joined, "not everybody has joined")
    state.need(name in KEY_ROUNDS, f"{name!r} is no round")
    before = KEY_ROUNDS[: KEY_ROUNDS.index(name)]
    state.need(
        all(map(state.is_key_round_complete, before)),
        f"not all messages of the rounds before {name!r} are there",
    )
    state.need(
        said.by not in state.key_rounds[name],
        f"{said.by} has sent its {name} already: the first one counts",
    )
    state.key_rounds[name][said.by] = said.digest("object")


@message("keys", RECEIVER)
def _keys(state: StudyState, said: Message) -> None:
    state.need(state.joined, "not everybody has joined")
    jointly = state.document.key.kind == JOINT
    state.need(
        not jointly or state.key_rounds_complete,
        "the sites have not made their parts of the joint key yet",
    )
    state.need(not state.keys, "the study has a key already")
    state.keys, state.key_id = said.digest("object"), said.text("key_id")
    state.more["key parts"] = said.digests("parts")


def _sealed_keys(state: StudyState, said: Message) -> dict[str, bytes]:
    found, readers = said.content.get("keys"), set(state.document.row_readers)
    state.need(
        isinstance(found, dict) and set(found) == readers,
        f"it is not sealed for {', '.join(sorted(readers))}",
    )
    try:
        return {name: bytes.fromhex(sealed) for name, sealed in (found or {}).items()}
    except (TypeError, ValueError):
        raise InvalidMessage("the keys of its folder are malformed") from None


def _check_rows(state: StudyState, said: Message) -> SiteRows:
    state.need(
        said.by not in state.rows, f"the rows of {said.by} are there already, and stay as they are"
    )
    state.need(said.by not in state.excluded, f"{said.by} is excluded")
    state.need(not state.coins, "coins are shown already: no rows come after that")
    rows = SiteRows(
        said.text("folder"),
        said.digest("manifest"),
        said.count("n_rows"),
        said.count("n_blocks"),
        said.digest("blocks"),
        _sealed_keys(state, said),
    )
    state.need(
        rows.folder.startswith(f"rows/{said.by}/") and ".." not in rows.folder,
        "rows lie in the site's own folder",
    )
    return rows


@message("new rows", SITE)
def _new_rows(state: StudyState, said: Message) -> None:
    state.need(
        bool(state.keys) and state.key_id not in state.retired,
        "the study has no key, or it is retired",
    )
    state.need(
        bool(state.document.questions_in(VOTES)), "no question of this study votes on new rows"
    )
    state.need(
        said.by not in state.asked,
        f"the new rows of {said.by} are there already, and stay as they are",
    )
    # Else somebody could bring the encrypted rows of another as new rows, and votes of these would
    # be opened.
    state.need(
        not state.rows,
        "rows that models are of are there already: new rows come before all of them",
    )
    if said.count("n_rows"):
        state.new_rows[said.by] = _check_rows(state, said)
    state.asked.add(said.by)


@message("rows", SITE)
def _rows(state: StudyState, said: Message) -> None:
    state.need(bool(state.keys), "the study has no key yet")
    state.need(state.key_id not in state.retired, "the key of the study is retired")
    state.need(state.document.pools, "no question of this study is answered from rows")
    state.need(
        not state.undecided, f"{', '.join(state.undecided)} have not said which new rows they bring"
    )
    rows = _check_rows(state, said)
    if state.document.linkage is not None:
        links = state.more.get("links")
        state.need(
            links is not None and links.n_slots > 0 and rows.n_rows == links.n_slots,
            f"it brings {rows.n_rows} rows, and linked rows lie in the slots that were assigned",
        )
        state.rows[said.by] = rows
        return
    left = state.document.n_rows - sum(one.n_rows for one in state.rows.values())
    state.need(
        0 < rows.n_rows <= left,
        f"it brings {rows.n_rows} rows, and of the {state.document.n_rows} that the study was "
        f"planned for {left} are left",
    )
    state.rows[said.by] = rows


@message("exclude", RECEIVER)
def _exclude(state: StudyState, said: Message) -> None:
    name = said.text("name")
    state.need(
        name in state.document.sites and name not in state.excluded,
        f"{name} is no site that can be excluded",
    )
    # The sum of all, less the sum of some, would be the totals of the others.
    state.need(
        not state.has_complete_question,
        "a question has all totals or validity totals already: its members stay",
    )
    least = state.document.min_sites
    state.need(len(state.sites) > least, f"fewer than {least} sites would be left")
    state.need(state.document.linkage is None, f"{name} has columns that no other site has")
    why = said.text("why")
    state.excluded[name] = why
    state.begin_rounds()


@message("coin", "")
def _coin(state: StudyState, said: Message) -> None:
    state.need(state.fixed, "not all rows are there")
    state.need(said.by in state.tossers, f"{said.by} tosses no coin")
    state.need(said.by not in state.coins, f"{said.by} has shown its coin already")
    number = said.digest("number")
    shown = hashlib.sha256(bytes.fromhex(number)).hexdigest()
    state.need(
        shown == state.parties[said.by].coin,
        "it is not the number that it bound itself to when it joined",
    )
    state.coins[said.by] = number


@message("checks", WORKER)
def _checks(state: StudyState, said: Message) -> None:
    state.need(state.coin is not None, "the coin is not known yet")
    state.need(not state.checks, "validity totals are there already")
    found = said.digests("objects")
    state.need(set(found) == set(state.checked), "it is not one total for every site")
    state.checks = found


@message("verdict", RECEIVER)
def _verdict(state: StudyState, said: Message) -> None:
    found = said.content.get("valid")
    state.need(bool(state.checks), "there are no validity totals yet")
    state.need(not state.valid, "it was said already, and is said once")
    good = (
        isinstance(found, dict)
        and set(found) == set(state.checks)
        and all(type(one) is bool for one in found.values())
    )
    state.need(good, "it is not pass or fail for every site")
    state.valid = dict(found or {})
    state.pending -= {CHECK + site for site in state.valid}
    state.begin_rounds()


@message("answer", WORKER)
def _answer(state: StudyState, said: Message) -> None:
    name = said.text("question")
    state.need(
        name in state.document.questions_in(ROWS, VOTES, TOTALS),
        f"{name!r} is no question of the document that a worker answers",
    )
    if name not in state.document.questions_in(TOTALS):
        state.need(name in state.answerable, "no rows were found to be valid yet")
    else:
        state.need(state.round(name).complete, "not all totals are there")
    state.need(name not in state.answers, f"{name!r} is answered already")
    state.answers[name] = said.digest("object")


@message("call", RECEIVER)
def _call(state: StudyState, said: Message) -> None:
    items = said.digests("items")
    known = {CHECK + site: found for site, found in state.checks.items()} | state.answers
    state.need(bool(items), "it asks for nothing")
    for name, found in items.items():
        state.need(
            known.get(name) == found,
            f"{name!r} is nothing that may be opened here, or of another hash",
        )
        state.need(
            not (name.startswith(CHECK) and state.valid),
            f"{name!r} is opened already, and is opened once",
        )
    state.need(state.call is None, "what was called for before is not opened yet")
    state.calls.append(Call(said.hash, items))
    state.pending = set(items)


@message("share", SITE)
def _share(state: StudyState, said: Message) -> None:
    call = state.call
    state.need(
        call is not None and said.text("call") == call.hash,
        "it is for nothing that is to be opened now: replayed",
    )
    sent = state.shares.get(said.text("call"), {})
    state.need(said.by not in sent, f"{said.by} has given its share already: the first one counts")
    state.shares[said.text("call")] = {**sent, said.by: said.digest("object")}


@message("opened", RECEIVER)
def _check_opening(state: StudyState, said: Message) -> None:
    name = said.text("question")
    state.need(name in state.document.asked, f"{name!r} is no question of the document")
    answer = _find_answer(state, name)
    state.need(answer == said.digest("object"), f"it is not the answer to {name!r}")
    state.need(name not in state.opened or name in state.pending, f"{name!r} is opened already")
    state.opened[name] = said.digest("object")
    state.pending.discard(name)


def _find_answer(state: StudyState, name: str) -> str | None:
    """Return the hash of what may be opened of a question."""
    if name in state.runs:
        return state.runs[name].end  # empty before all sites have ended it
    if name not in state.document.questions_in(MASKED):
        return state.answers.get(name)
    state.need(state.round(name).complete, "not all totals are there")
    return state.round(name).digest


@message("totals", SITE)
def _totals(state: StudyState, said: Message) -> None:
    name = said.text("question")
    state.need(
        name in state.document.questions_in(TOTALS, MASKED),
        f"{name!r} is no question that sites answer with totals",
    )
    state.need(state.joined, "not everybody has joined")
    state.need(state.ready, "rows are not judged yet, by which members are fixed")
    now = state.round(name)
    state.need(
        len(now.members) >= MIN_SITES,
        f"fewer than {MIN_SITES} sites are left: the sum would be of one",
    )
    state.need(
        said.count("round") == now.number, f"it is of another round than {now.number}: replayed"
    )
    state.need(said.by in now.members, f"{said.by} is not in round {now.number}")
    state.need(
        said.by not in now.objects,
        f"the totals of {said.by} are there already: the first ones count",
    )
    if name in state.document.questions_in(TOTALS):
        state.need(
            bool(state.keys) and state.key_id not in state.retired,
            "the study has no key, or it is retired",
        )
    now.objects[said.by] = said.digest("object")


@message("retire", RECEIVER)
def _retire(state: StudyState, said: Message) -> None:
    state.need(
        bool(state.key_id) and state.key_id not in state.retired, "there is no key to retire"
    )
    state.need(said.text("key_id") == state.key_id, "it retires another key than the study's")
    state.retired[state.key_id] = said.text("why")
