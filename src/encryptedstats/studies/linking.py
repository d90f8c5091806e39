"""How the sites of a study agree on the slots of people they share: the messages, and each party's
steps.

By an agent: the first site draws a key for the sites, every site sends keyed hashes of its people
sealed for the agent, and the agent returns slot numbers, sealed for each site. Without an agent,
two sites compute the intersection (``intersection``), and its people sit in the order of numbers
that both know and nobody else can compute. Imports nothing of ``study``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from encryptedstats.crypto.envelopes import SEED_BYTES, seal_for
from encryptedstats.errors import DataError, FileFormatError, StudyError
from encryptedstats.storage.objects import object_exists
from encryptedstats.studies.cells import check_cells
from encryptedstats.studies.identifiers import (
    REFUSE,
    TOKEN_BYTES,
    LinkReport,
    People,
    find_people,
)
from encryptedstats.studies.intersection import CommutingKey, split_points
from encryptedstats.studies.linkage import LINKED, Linkage, own_site_schema, place_rows
from encryptedstats.studies.parties import AGENT, SITE
from encryptedstats.studies.representativeness import compare_linked
from encryptedstats.studies.transcript import Message, StudyState, message
from encryptedstats.tables import Schema, Table
from encryptedstats.tables.rows.frames import missing_masks
from encryptedstats.tables.rows.table_from_frame import gapless_target, without_gaps

if TYPE_CHECKING:
    from encryptedstats.studies.study import Study

#: What sites do one after the other where no agent links.
BLINDED, DOUBLED, MATCHED = "blinded", "doubled", "matched"
LINK_KEY, LINK_TOKENS, SLOTS = "link key", "link tokens", "slots"
_NO_SLOT: Final = -1
_PEOPLE: Final = "link-people"


@dataclass
class Links:
    """What the messages of a study say of its slots.

    Attributes
    ----------
    keys : dict
        The sites' key for hashes, sealed for each but the one that drew it.
    people : dict
        How many people each site has announced.
    objects : dict
        Hashes of what was sent, by step and site.
    n_slots, n_linked : int
        Slots of the joined table, and people whom all sites have; 0 before they are known.
    """

    keys: dict[str, str] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)
    objects: dict[str, dict[str, str]] = field(default_factory=dict)
    n_slots: int = 0
    n_linked: int = 0
    matches: dict[str, tuple[int, str]] = field(default_factory=dict)

    def objects_of(self, step: str) -> dict[str, str]:
        """Return the hashes of what was sent in a step, by site."""
        return self.objects.setdefault(step, {})


def links_of(state: StudyState) -> Links:
    """Return what is known of the slots."""
    links: Links = state.more.setdefault("links", Links())
    return links


def has_slots(state: StudyState) -> bool:
    """Return whether rows may come: no linkage is needed, or it is done."""
    return state.document.linkage is None or links_of(state).n_slots > 0


def next_link_steps(state: StudyState) -> list[tuple[str, str]]:
    """Return who has to do what before there are slots."""
    linkage = state.document.linkage
    if linkage is None or has_slots(state):
        return []
    links, sites = links_of(state), state.document.sites
    if linkage.agent:
        owing = [site for site in sites if site not in links.people]
        if not links.keys:
            owing = [sites[0]]
        return [(site, "link") for site in owing] or [(linkage.agent, "link")]
    for done in (links.people, links.objects_of(DOUBLED), links.matches):
        owing = [site for site in sites if site not in done]
        if owing:
            return [(site, "link") for site in owing]
    return []


# -- messages --------------------------------------------------------------------------------------


def _links(state: StudyState, by_agent: bool) -> Links:
    linkage = state.document.linkage
    state.need(linkage is not None, "the columns of this study are not linked")
    state.need(
        bool(linkage and linkage.agent) is by_agent, "the people of this study are linked otherwise"
    )
    state.need(state.joined, "not everybody has joined")
    return links_of(state)


def _count_people(state: StudyState, links: Links, said: Message) -> None:
    state.need(said.by not in links.people, f"the people of {said.by} are there already")
    count = said.count("people")
    state.need(
        0 < count <= state.document.n_rows,
        f"it brings {count} people, and the study was planned for {state.document.n_rows}",
    )
    links.people[said.by] = count


@message(LINK_KEY, SITE)
def _link_key(state: StudyState, said: Message) -> None:
    links, sites = _links(state, by_agent=True), state.document.sites
    state.need(said.by == sites[0], f"{sites[0]} draws the key of the sites")
    state.need(not links.keys, "the sites have a key already")
    found = said.content.get("keys")
    state.need(
        isinstance(found, dict)
        and set(found) == set(sites[1:])
        and all(isinstance(one, str) for one in found.values()),
        "it is not sealed for every other site",
    )
    links.keys = dict(found or {})


@message(LINK_TOKENS, SITE)
def _link_tokens(state: StudyState, said: Message) -> None:
    links = _links(state, by_agent=True)
    state.need(bool(links.keys), "the sites have no key yet")
    digest = said.digest("object")
    _count_people(state, links, said)
    links.objects_of(LINK_TOKENS)[said.by] = digest


@message(SLOTS, AGENT)
def _slots(state: StudyState, said: Message) -> None:
    links, document = _links(state, by_agent=True), state.document
    state.need(set(links.people) == set(document.sites), "not all sites have sent their people")
    state.need(not links.n_slots, "the slots are there already, and stay as they are")
    found, n_slots, n_linked = said.digests("objects"), said.count("slots"), said.count("linked")
    state.need(set(found) == set(document.sites), "it is not one list for every site")
    _check_counts(state, links, n_slots, n_linked)
    links.objects[SLOTS] = found
    links.n_slots, links.n_linked = n_slots, n_linked


def _check_counts(state: StudyState, links: Links, n_slots: int, n_linked: int) -> None:
    linkage = state.document.linkage
    least = 1 if linkage is None else linkage.min_count
    state.need(
        least <= n_linked <= min(links.people.values()),
        f"{n_linked} people are linked, and a study has {least} or more, and no more than a site",
    )
    most = sum(links.people.values()) if linkage and linkage.multiplies else n_linked
    state.need(
        n_linked <= n_slots <= min(most, state.document.n_rows),
        f"{n_slots} slots are not what {n_linked} linked people of these sites can have, or more "
        "than the study was planned for",
    )


@message(BLINDED, SITE)
def _take_blinded(state: StudyState, said: Message) -> None:
    links = _links(state, by_agent=False)
    digest = said.digest("object")
    _count_people(state, links, said)
    links.objects_of(BLINDED)[said.by] = digest


@message(DOUBLED, SITE)
def _take_doubled(state: StudyState, said: Message) -> None:
    links = _links(state, by_agent=False)
    state.need(set(links.people) == set(state.document.sites), "the other site is still to come")
    state.need(
        said.by not in links.objects_of(DOUBLED), "it is there already: the first one counts"
    )
    links.objects_of(DOUBLED)[said.by] = said.digest("object")


@message(MATCHED, SITE)
def _take_match(state: StudyState, said: Message) -> None:
    links, sites = _links(state, by_agent=False), state.document.sites
    state.need(set(links.objects_of(DOUBLED)) == set(sites), "the other site is still to come")
    state.need(said.by not in links.matches, "it is there already: the first one counts")
    found = said.count("linked"), said.digest("object")
    state.need(
        all(found == other for other in links.matches.values()),
        "the sites have found different people: one of them has not followed the protocol",
    )
    _check_counts(state, links, found[0], found[0])
    links.matches[said.by] = found
    if set(links.matches) == set(sites):
        links.n_slots = links.n_linked = found[0]


# -- the sites -------------------------------------------------------------------------------------


def link(
    study: Study,
    rows: pd.DataFrame | None = None,
    on: Sequence[str] = (),
    duplicates: str = REFUSE,
) -> LinkReport | None:
    """Do what is due for this party: see :meth:`Study.link`."""
    linkage, me = _linkage_of(study), study.me.name
    if me == linkage.agent:
        _assign_slots(study, linkage)
        return None
    study._as(SITE, "link people")
    if me not in links_of(study.state()).people:
        if rows is None:
            raise StudyError(
                "the people of your site are not linked yet: give your rows, and on= with the "
                "columns of their identifiers",
                code="rows-needed",
            )
        people = find_own_people(study, rows, on, duplicates)
        _send_people(study, linkage, people, _Rule(list(on), duplicates))
    _store_sent(study)
    if not linkage.agent:
        _intersect(study)
    return report(study)


def find_own_people(study: Study, rows: pd.DataFrame, on: Sequence[str], duplicates: str) -> People:
    """Return the people of a site's rows, of which nothing is sent yet."""
    linkage, me = _linkage_of(study), study._as(SITE, "link people").name
    rows = rows[_is_complete(rows, own_site_schema(study.schema, linkage.positions(me)))]
    return find_people(rows, on, linkage.identifiers, duplicates)


def compare_own_people(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Compare this site's linked people with its others: see :meth:`Study.compare_linked`."""
    linkage = _linkage_of(study)
    study._as(SITE, "compare people")
    if linkage.multiplies:
        raise StudyError(
            "in this study no site learns which of its people are linked, only how many: "
            "es.Linkage(..., reveals='members') tells them",
            code="members-unknown",
        )
    rows, people, slots = _place_people(study, rows)
    on = _read_home(study).rule.on
    return compare_linked(rows.iloc[people.rows], slots != _NO_SLOT, on)


def report(study: Study) -> LinkReport | None:
    """Return what this site knows of the linkage; None where it has sent nobody."""
    if not object_exists(study.path_by_identity(f".sent/{_PEOPLE}")):
        return None
    made, links = _read_home(study).report, links_of(study.state())
    return replace(made, n_linked=links.n_linked, n_slots=links.n_slots) if links.n_slots else made


def identifier_columns(study: Study) -> list[str]:
    """Return the columns by which this site has linked its people."""
    return _read_home(study).rule.on


@dataclass(frozen=True)
class _Rule:
    """The columns with identifiers, and what becomes of rows with the same ones."""

    on: list[str]
    duplicates: str


@dataclass(frozen=True)
class _OwnPeople:
    """What a site keeps at home of the people that it has sent, in the order sent.

    Attributes
    ----------
    rule : _Rule
    report : LinkReport
    known : list of bytes
        Hashes under a key of the site's own, by which it knows its rows again.
    sent : bytes
        Keyed hashes, or blinded points.
    """

    rule: _Rule
    report: LinkReport
    known: list[bytes]
    sent: bytes

    def to_bytes(self) -> bytes:
        head = {
            "rule": asdict(self.rule),
            "report": asdict(self.report),
            "people": len(self.known),
        }
        return json.dumps(head).encode() + b"\n" + b"".join(self.known) + self.sent

    @classmethod
    def from_bytes(cls, data: bytes) -> _OwnPeople:
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        end = TOKEN_BYTES * head["people"]
        return cls(
            _Rule(**head["rule"]), LinkReport(**head["report"]), _cut(rest[:end]), rest[end:]
        )


def _cut(data: bytes) -> list[bytes]:
    return [data[start : start + TOKEN_BYTES] for start in range(0, len(data), TOKEN_BYTES)]


def _read_home(study: Study) -> _OwnPeople:
    return _OwnPeople.from_bytes(study._keep(_PEOPLE, _nothing))


def _nothing() -> bytes:
    raise StudyError(
        "what your site has sent to link people is not beside your identity any more",
        code="people-missing-at-home",
    )


def _linkage_of(study: Study) -> Linkage:
    if study.document.linkage is None:
        raise StudyError(
            "every site of this study brings all columns: there is nothing to link",
            code="nothing-to-link",
        )
    return study.document.linkage


def _send_people(study: Study, linkage: Linkage, people: People, rule: _Rule) -> None:
    """Send keyed hashes or blinded points of all people, sorted by their value, and remember whose
    they are.
    """
    if linkage.agent:
        kind, reader = LINK_TOKENS, linkage.agent
        sent = [one.tobytes() for one in people.tokens(_site_key(study))]
    else:
        kind, reader = BLINDED, _other_site(study)
        sent = _commuting_key(study).blind(people.texts, _study_bytes(study))
    order = sorted(range(len(sent)), key=sent.__getitem__)
    own = people.tokens(study.me.secret(b"own people"))
    known = [own[place].tobytes() for place in order]
    made = _OwnPeople(rule, people.report, known, b"".join(sent[place] for place in order))
    # A killed process that is started again with other rows goes on with the first ones.
    kept = _OwnPeople.from_bytes(study._keep(_PEOPLE, made.to_bytes))
    _send(study, kind, reader, kept.sent, {"people": len(kept.known)})


def _store_sent(study: Study) -> None:
    """Store what this site has announced and a killed process has not stored."""
    linkage, me = _linkage_of(study), study.me.name
    for kind, sent in links_of(study.state()).objects.items():
        reader = linkage.agent or _other_site(study)
        if kind != SLOTS and me in sent:
            study.store_announced(_name_sent(kind, reader), sent[me])


def objects_of(state: StudyState) -> list[tuple[str, str]]:
    """Return who has announced which objects in order to link."""
    linkage, links = state.document.linkage, state.more.get("links")
    if linkage is None or links is None:
        return []
    return [
        (linkage.agent if kind == SLOTS else site, digest)
        for kind, sent in links.objects.items()
        for site, digest in sent.items()
    ]


def _site_key(study: Study) -> bytes:
    """Return the key that the sites have in common, which the agent does not know.

    The first site draws it.
    """
    me, (first, *others) = study.me, study.document.sites
    sealed = links_of(study.state()).keys
    if me.name != first:
        if not sealed:
            raise StudyError(
                f"{first} has to link first: it draws the key of the sites", code="no-link-key"
            )
        return me.reader.open(bytes.fromhex(sealed[me.name]), _bind(study, LINK_KEY, me.name))
    key = study._keep("link-key", lambda: os.urandom(SEED_BYTES))
    if not sealed:
        parties = study.state().parties
        found = {
            site: seal_for(parties[site].sealing, key, _bind(study, LINK_KEY, site)).hex()
            for site in others
        }
        study.post(LINK_KEY, {"keys": found})
    return key


def _send(
    study: Study, kind: str, reader: str, data: bytes, content: Mapping[str, Any] | None = None
) -> None:
    """Send bytes sealed for one party; made once, as everything that is sent."""
    sealing = study.state().parties[reader].sealing
    bound, name = _bind(study, kind, reader), _name_sent(kind, reader)
    study.send(kind, dict(content or {}), name, lambda: seal_for(sealing, data, bound))


def _name_sent(kind: str, reader: str) -> str:
    return f"{kind}-{reader}".replace(" ", "-")


def _receive(study: Study, kind: str, digest: str) -> bytes:
    data = study.transcript.read_object(digest)
    return study.me.reader.open(data, _bind(study, kind, study.me.name))


def _bind(study: Study, kind: str, reader: str) -> bytes:
    return json.dumps(["encryptedstats linkage", study.document.id, kind, reader]).encode()


def _study_bytes(study: Study) -> bytes:
    return study.document.id.encode()


def _other_site(study: Study) -> str:
    (other,) = (site for site in study.document.sites if site != study.me.name)
    return other


def _commuting_key(study: Study) -> CommutingKey:
    return CommutingKey(study.me.secret(b"intersection"))


def _intersect(study: Study) -> None:
    """Answer the other site's points; then say how many people both have found."""
    me, sites = study.me.name, set(study.document.sites)
    links = links_of(study.state())
    if set(links.people) == sites and me not in links.objects_of(DOUBLED):
        theirs = split_points(
            _receive(study, BLINDED, links.objects_of(BLINDED)[_other_site(study)])
        )
        again = _commuting_key(study).blind_again(theirs)
        study._keep("theirs", lambda: b"".join(again))
        _send(study, DOUBLED, _other_site(study), b"".join(again))
        links = links_of(study.state())
    if set(links.objects_of(DOUBLED)) == sites and me not in links.matches:
        shared = _shared_points(study, links)[1]
        digest = hashlib.sha256(b"".join(shared)).hexdigest()
        study.post(MATCHED, {"linked": len(shared), "object": digest})


def _shared_points(study: Study, links: Links) -> tuple[list[bytes], list[bytes]]:
    """Return the points of this site's people, in the order sent, and those of both, in the order
    of the slots.
    """
    other = _other_site(study)
    mine = split_points(_receive(study, DOUBLED, links.objects_of(DOUBLED)[other]))
    theirs = split_points(study._keep("theirs", lambda: b""))
    if len(mine) != links.people[study.me.name] or len(theirs) != links.people[other]:
        raise FileFormatError(
            f"{other} has returned another number of points than it was sent",
            code="malformed-points",
        )
    return mine, sorted(set(mine) & set(theirs))


# -- the agent -------------------------------------------------------------------------------------


def _assign_slots(study: Study, linkage: Linkage) -> None:
    """Give every person of any site a slot, in random order, and tell each site those
    of its own.
    """
    state = study.state()
    links, sites = links_of(state), study.document.sites
    if not links.n_slots:
        missing = [site for site in sites if site not in links.people]
        if missing:
            raise StudyError(f"{', '.join(missing)} have to link first", code="people-missing")
        people = {site: _read_tokens(study, links, site) for site in sites}
        shared = set.intersection(*map(set, people.values()))
        seated = sorted(set.union(*map(set, people.values())) if linkage.multiplies else shared)
        # Drawn once: an agent who is killed and started again seals the same slots for all sites.
        seed = study._keep("slots", lambda: os.urandom(SEED_BYTES))
        drawn = hashlib.shake_256(b"encryptedstats slots\0" + seed).digest(8 * len(seated))
        order = np.frombuffer(drawn, dtype="<u8").argsort(kind="stable").argsort()
        slot_of = dict(zip(seated, order.tolist(), strict=True))
        objects = {site: _seal_slots(study, site, slot_of, own) for site, own in people.items()}
        study.post(SLOTS, {"slots": len(seated), "linked": len(shared), "objects": objects})
        links = links_of(study.state())
    for site, digest in links.objects[SLOTS].items():
        study.store_announced(f"slots-{site}", digest)


def _seal_slots(study: Study, site: str, slot_of: Mapping[bytes, int], own: Sequence[bytes]) -> str:
    """Keep the slots of a site's people, sealed for it, and return the hash of that."""
    slots = np.array([slot_of.get(one, _NO_SLOT) for one in own], dtype="<i8").tobytes()
    sealing, bound = study.state().parties[site].sealing, _bind(study, SLOTS, site)
    data = study._keep(f"slots-{site}", lambda: seal_for(sealing, slots, bound))
    return hashlib.sha256(data).hexdigest()


def _read_tokens(study: Study, links: Links, site: str) -> list[bytes]:
    data = _receive(study, LINK_TOKENS, links.objects_of(LINK_TOKENS)[site])
    found = _cut(data)
    is_sorted = all(low < high for low, high in pairwise(found))
    if len(data) != TOKEN_BYTES * links.people[site] or not is_sorted:
        raise FileFormatError(
            f"{site} has not sent as many different people as it has announced, in the order of "
            "their hashes",
            code="malformed-tokens",
        )
    return found


# -- rows in their slots ---------------------------------------------------------------------------


def place_own_rows(study: Study, rows: pd.DataFrame) -> Table:
    """Return the table of this site's people, each in its slot; refuse small cells."""
    state, me = study.state(), study.me.name
    schema = own_site_schema(study.schema, _linkage_of(study).positions(me))
    rows, people, slots = _place_people(study, rows)
    seated = slots != _NO_SLOT
    chosen = rows.iloc[people.rows[seated]].assign(**{LINKED: "yes"})
    table = schema.table(chosen, slots=study.document.parameters.slots)
    check_cells(study.document, me, table)
    return place_rows(table, slots[seated], links_of(state).n_slots)


def _place_people(
    study: Study, rows: pd.DataFrame
) -> tuple[pd.DataFrame, People, NDArray[np.int64]]:
    """Return the complete rows of this site, the people whom they name, and the slot of each."""
    linkage = _linkage_of(study)
    if not has_slots(study.state()):
        raise StudyError(
            "people are not linked yet: the status says who has to do what", code="no-slots"
        )
    rows = rows[_is_complete(rows, own_site_schema(study.schema, linkage.positions(study.me.name)))]
    rule = _read_home(study).rule
    people = find_people(rows, rule.on, linkage.identifiers, rule.duplicates)
    return rows, people, _slots_of(study, people)


def _is_complete(rows: pd.DataFrame, schema: Schema) -> NDArray[np.bool_]:
    """Return which rows have all values that must be there, where the schema drops the others."""
    if schema.missing != "drop":
        return np.ones(len(rows), dtype=bool)
    named = [name for name in without_gaps(schema) if name != LINKED] + gapless_target(schema)
    needed = [name for name in named if name in rows.columns]
    masks = missing_masks(rows, needed)
    return ~np.logical_or.reduce(list(masks.values())) if masks else np.ones(len(rows), dtype=bool)


def _check_slots(study: Study, links: Links, slots: NDArray[np.int64]) -> None:
    """Refuse slots that are not one for each person: columns of few people would be counted, and
    this site would think that there are many.
    """
    linkage = study.document.linkage
    n_people = links.people[study.me.name]
    seated = slots[slots != _NO_SLOT]
    expected = n_people if linkage is not None and linkage.multiplies else links.n_linked
    good = (
        len(slots) == n_people
        and len(np.unique(seated)) == len(seated) == expected
        and seated.min(initial=0) >= 0
        and seated.max(initial=0) < links.n_slots
    )
    if not good:
        raise FileFormatError(
            "these slots are not one for each of this site's people who are linked: do not go on "
            "with who has sent them",
            code="malformed-slots",
        )


def _slots_of(study: Study, people: People) -> NDArray[np.int64]:
    """Return the slot of each person; -1 for those without one."""
    links, me = links_of(study.state()), study.me.name
    places = {one: place for place, one in enumerate(_read_home(study).known)}
    own = [places.get(one.tobytes()) for one in people.tokens(study.me.secret(b"own people"))]
    strangers = own.count(None)
    if strangers:
        raise DataError(
            f"{strangers:,} people were not there when people were linked: bring the rows that "
            "were linked, or fewer of them",
            code="people-not-linked",
        )
    missing = links.people[me] - len(own)
    if missing:
        # The number of linked people is agreed on, and slots of theirs must not be empty.
        raise DataError(
            f"{missing:,} people who were linked are not among these rows, or lack a value: bring "
            "the rows that were linked",
            code="linked-people-missing",
        )
    if study.document.linkage is not None and study.document.linkage.agent:
        data = _receive(study, SLOTS, links.objects[SLOTS][me])
        slots = np.frombuffer(data, dtype="<i8")
    else:
        mine, shared = _shared_points(study, links)
        slot_of = {point: slot for slot, point in enumerate(shared)}
        slots = np.array([slot_of.get(one, _NO_SLOT) for one in mine], dtype="<i8")
    _check_slots(study, links, slots)
    found: NDArray[np.int64] = slots[np.array(own, dtype=np.int64)]
    return found
