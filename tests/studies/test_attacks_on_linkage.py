"""Attack studies with linked columns in every role, as docs/guides/linkage.md lists them.

An attack that a rule stops fails with the rule and succeeds without it. An attack that no rule
stops succeeds, and its test says "limit": the documents name it.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from attack_tools import say
from link_samples import (
    COLUMNS,
    EVERYBODY,
    HOSPITAL,
    JOINED,
    KEYS,
    KINDS,
    LINKAGES,
    REGISTRY,
    ROWS,
    SCHEMA,
    LinkedWorld,
    linked_world,
)
from study_samples import parameters

import encryptedstats as es
from encryptedstats.crypto.envelopes import seal_for
from encryptedstats.studies import cells, intersection, linkage, linking
from encryptedstats.studies.documents import KeyRule, StudyDocument, write_document
from encryptedstats.studies.identifiers import TOKEN_BYTES, find_people
from encryptedstats.studies.parties import Identity
from encryptedstats.tables.questions.summaries import Counts
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
BAYES = es.MultinomialNB(variables=["age", "sex", "stage"])
AGENT = LINKAGES["agent"]
#: A person of the registry alone, whom others would like to find there.
WANTED = EVERYBODY.iloc[[395]]


def linked(folder: Path, how: es.Linkage = AGENT, **options: Any) -> LinkedWorld:
    """Everybody has linked."""
    made = linked_world(folder, how, **{"questions": {"bayes": BAYES}, **options})
    while (todo := made.steps()) and todo[0][1] == "link":
        made.take(*todo[0])
    return made


def stored_objects(made: LinkedWorld) -> list[bytes]:
    """Return the bytes of every object in the shared folder."""
    return [path.read_bytes() for path in sorted(Path(made.url, "objects").iterdir())]


def tokens_at(made: LinkedWorld, who: str, kind: str = linking.LINK_TOKENS) -> list[list[bytes]]:
    """Return the lists of hashes that a party can read in the shared folder."""
    party, found = made.as_(who), []
    for data in stored_objects(made):
        try:
            opened = party.me.reader.open(data, linking._bind(party, kind, who))
        except (es.EncryptedStatsError, ValueError):
            continue
        found.append(linking._cut(opened))
    return found


def text_of(person: pd.DataFrame) -> bytes:
    return find_people(person, KEYS, KINDS).texts[0]


def finds(tokens: list[list[bytes]], key: bytes) -> bool:
    """Return whether the wanted person is among the hashes that were made with a key."""
    wanted = hmac.digest(key, text_of(WANTED), sha256)[:TOKEN_BYTES]
    return any(wanted in one for one in tokens)


# -- the agent -------------------------------------------------------------------------------------


def test_agent_cannot_try_out_identifiers(tmp_path: Path, monkeypatch: Any) -> None:
    made = linked(tmp_path / "rule")
    seen = tokens_at(made, "office")
    assert len(seen) == 2
    assert not any(finds(seen, key) for key in (b"", bytes(32), made.created.document.id.encode()))

    monkeypatch.setattr(linking, "os", SimpleNamespace(urandom=bytes))  # a key all know
    assert finds(tokens_at(linked(tmp_path / "without"), "office"), bytes(32))


def test_agent_with_a_site_finds_people_of_the_other(tmp_path: Path) -> None:
    """Limit: the site gives away the key of the sites."""
    made = linked(tmp_path)
    assert finds(tokens_at(made, "office"), linking._site_key(made.as_(HOSPITAL)))


@pytest.mark.parametrize("role", [HOSPITAL, "centre", "registry"])
def test_agent_has_no_other_role(role: str, tmp_path: Path) -> None:
    with pytest.raises(es.ParameterError):
        linked_world(tmp_path, replace(AGENT, agent=role), questions={"bayes": BAYES})


def test_agent_who_is_a_site_finds_people(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(linkage.Linkage, "check", lambda self, document: None)
    made = linked_world(tmp_path, replace(AGENT, agent=HOSPITAL), questions={"bayes": BAYES})
    with pytest.raises(es.StudyError):  # it is asked for slots, and can read the tokens already
        made.take(HOSPITAL, "link")
    site = made.as_(HOSPITAL)
    linking._send_people(
        site,
        made.created.document.linkage,
        find_people(ROWS[HOSPITAL], KEYS, KINDS),
        linking._Rule(KEYS, "refuse"),
    )
    made.as_(REGISTRY).link(ROWS[REGISTRY], on=KEYS)
    assert finds(tokens_at(made, HOSPITAL), linking._site_key(site))


# -- readers of the folder, worker, receiver -------------------------------------------------------


@pytest.mark.parametrize("who", ["centre", "registry", HOSPITAL])
def test_nobody_but_the_agent_reads_hashes(who: str, tmp_path: Path, monkeypatch: Any) -> None:
    assert tokens_at(linked(tmp_path / "rule"), who) == []
    monkeypatch.setattr(linking, "seal_for", _seal_no_tokens)
    monkeypatch.setattr(linking, "_receive", _read_plain)
    made = linked(tmp_path / "without")
    lists = [linking._cut(one) for one in stored_objects(made)]
    assert any(len(one) == len(ROWS[REGISTRY]) for one in lists)
    # Numbers of people are public; a site has the key as well, and finds people.
    key = linking._site_key(made.as_(HOSPITAL)) if who == HOSPITAL else b""
    assert finds(lists, key) == (who == HOSPITAL)


def _seal_no_tokens(public: bytes, data: bytes, bound: bytes) -> bytes:
    return data if linking.LINK_TOKENS.encode() in bound else seal_for(public, data, bound)


def _read_plain(study: es.Study, kind: str, digest: str) -> bytes:
    return study.transcript.read_object(digest)


@pytest.mark.parametrize("who", ["centre", "registry", REGISTRY, "office"])
def test_slots_are_for_their_site(who: str, tmp_path: Path) -> None:
    made = linked(tmp_path)
    digest = linking.links_of(made.created.state()).objects[linking.SLOTS][HOSPITAL]
    with pytest.raises(es.KeyMismatchError):
        linking._receive(made.as_(who), linking.SLOTS, digest)


# -- sites -----------------------------------------------------------------------------------------


def slots_at(made: LinkedWorld, site: str) -> dict[bytes, int]:
    party = made.as_(site)
    people = find_people(ROWS[site], KEYS, KINDS)
    return dict(zip(people.texts, linking._slots_of(party, people).tolist(), strict=True))


def test_site_learns_only_how_many_people_are_shared(tmp_path: Path) -> None:
    """Slots of shared people are like those of others; with "members" they are not."""
    shared = set(find_people(JOINED, KEYS, KINDS).texts)
    of_size = slots_at(linked(tmp_path / "size"), HOSPITAL)
    of_members = slots_at(linked(tmp_path / "members", LINKAGES["agent, members"]), HOSPITAL)
    assert all(slot >= 0 for slot in of_size.values())
    ranks = pd.Series(of_size).rank()
    of_shared = ranks[[text in shared for text in of_size]]
    n, m = len(ranks), len(of_shared)
    spread = np.sqrt((n - m) * (n + 1) / (12 * m))
    assert abs(of_shared.mean() - (n + 1) / 2) < 5 * spread
    assert {text for text, slot in of_members.items() if slot >= 0} == shared


def test_sensitive_membership_is_not_revealed(tmp_path: Path, monkeypatch: Any) -> None:
    for how in (LINKAGES["agent, members"], LINKAGES["intersection"]):
        with pytest.raises(es.ParameterError, check=error("membership-sensitive")):
            linked_world(tmp_path, replace(how, sensitive=True), questions={"bayes": BAYES})
    monkeypatch.setattr(linkage.Linkage, "_check_promises", lambda self, document: None)
    made = linked(tmp_path, replace(LINKAGES["intersection"], sensitive=True))
    slots = slots_at(made, HOSPITAL)
    assert {text for text, slot in slots.items() if slot >= 0} == set(
        find_people(JOINED, KEYS, KINDS).texts
    )


RARE = EVERYBODY.assign(sex=np.where(np.arange(400) == 200, "m", "f"))


def with_one_man(folder: Path) -> LinkedWorld:
    """One person of the hospital has a bin of its own: the registry's columns of it are asked."""
    made = linked(folder, questions={"ages": Counts((1, -1))})
    made.as_("registry").keygen(made.key)
    made.rows = {
        HOSPITAL: RARE.iloc[:330][[*KEYS, *COLUMNS[HOSPITAL]]],
        REGISTRY: ROWS[REGISTRY],
    }
    return made


def test_small_cells_of_one_site_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(es.DisclosureError, check=error("small-cell", 1, AGENT.min_count)):
        with_one_man(tmp_path / "rule").take(HOSPITAL, "add")
    monkeypatch.setattr(linking, "check_cells", lambda document, site, table: None)
    counts = with_one_man(tmp_path / "without").run()["ages"].to_numpy()
    assert 1 in counts.sum(axis=0).tolist() + counts.sum(axis=1).tolist()  # the class of that man


def test_small_cells_of_products_are_found() -> None:
    frame = EVERYBODY.assign(
        sex=np.where(EVERYBODY["age"] > EVERYBODY["age"].nlargest(8).min(), "m", "f")
    )
    frame.loc[frame["age"] < frame["age"].median(), "sex"] = "m"
    table = SCHEMA.table(frame)
    known = {0: 0, 1: 1}
    totals = Counts((0, 1)).in_ids(SCHEMA).circuit(SCHEMA.public(), table.columns())
    smallest = cells.smallest_cell(totals, table, known)
    counts = pd.crosstab(table.codes_of(0), table.codes_of(1)).to_numpy()
    assert smallest == min(count for count in counts.ravel().tolist() if count)
    assert cells.smallest_cell(totals, table, {0: 0}) == min(np.bincount(table.codes_of(0)))
    assert cells.smallest_cell(totals, table, {}) is None


def outcome_of_the_one_with_another_number(folder: Path) -> float:
    """One person of the hospital has another number than all others: sums by class tell whose."""
    made = linked(folder, LINKAGES["intersection"], questions={"means": es.Anova("bmi", "ill")})
    made.as_("registry").keygen(made.key)
    victim = JOINED.index[7]
    rare = EVERYBODY.assign(bmi=np.where(EVERYBODY.index == victim, 6, 5))
    made.rows = {
        HOSPITAL: rare.iloc[:330][[*KEYS, *COLUMNS[HOSPITAL]]],
        REGISTRY: ROWS[REGISTRY],
    }
    groups = made.run()["means"].tables["groups"]
    return float(((groups["mean"] - 5) * groups["n"])[JOINED["ill"].loc[victim]])


def test_numbers_that_differ_in_few_rows_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(es.DisclosureError, check=error("small-cell", 1, AGENT.min_count)):
        outcome_of_the_one_with_another_number(tmp_path / "rule")
    monkeypatch.setattr(cells, "_count_unlike", lambda weight, n_rows: 0)
    found = outcome_of_the_one_with_another_number(tmp_path / "without")
    assert found == pytest.approx(1.0)


def test_limit_two_columns_that_differ_in_one_row_tell_of_it(tmp_path: Path) -> None:
    """All cells have many people, and the difference of two has one."""
    frame = EVERYBODY.assign(stage=np.where(EVERYBODY["sex"] == "f", "one", "two"))
    victim = JOINED.index[7]
    frame.loc[victim, "stage"] = {"f": "two", "m": "one"}[frame["sex"].loc[victim]]
    columns = {HOSPITAL: ["age", "sex", "bmi", "stage"], REGISTRY: ["ill"]}
    how = es.Linkage(columns, KINDS, reveals="members")
    asked = {name: Counts((j, -1)) for name, j in {"sex": 1, "stage": 3}.items()}
    made = linked(tmp_path, how, questions=asked)
    made.as_("registry").keygen(made.key)
    made.rows = {
        HOSPITAL: frame.iloc[:330][[*KEYS, *columns[HOSPITAL]]],
        REGISTRY: frame.iloc[90:][[*KEYS, "ill"]],
    }
    found = made.run()
    levels = {"f": "one", "m": "two"}
    sex = frame["sex"].loc[victim]
    one, other = found["sex"].loc[sex], found["stage"].loc[levels[sex]]
    assert (one - other)[frame["ill"].loc[victim]] == 1
    assert (one - other).abs().sum() == 1


def test_site_that_counts_one_person_learns_of_it(tmp_path: Path, monkeypatch: Any) -> None:
    """Limit: the hospital's own program is changed, and the receiver tells it the answer."""
    made = linked(tmp_path, questions={"ages": Counts((3, -1))})
    made.as_("registry").keygen(made.key)
    victim = ROWS[HOSPITAL]["surname"].tolist().index(JOINED["surname"].iloc[7])

    def place_one(table: es.Table, slots: Any, n_slots: int) -> es.Table:
        is_hospital = "age" in table.schema.names
        one = np.array([victim]) if is_hospital else np.arange(len(table))
        return linkage.place_rows(table.take(one), slots[one], n_slots)

    monkeypatch.setattr(linking, "place_rows", place_one)
    seen = made.run()["ages"]
    assert seen.to_numpy().sum() == 1
    assert any("single person" in risk for risk in made.created.document.open_risks)


def until_slots(folder: Path, how: es.Linkage) -> tuple[LinkedWorld, dict[str, list[bytes]]]:
    """All sites have sent their people; and what the agent reads."""
    made = linked_world(folder, how, questions={"ages": Counts((1, -1))})
    while ("office", "link") not in made.steps():
        made.take(*made.steps()[0])
    office = made.as_("office")
    links = linking.links_of(office.state())
    return made, {site: linking._read_tokens(office, links, site) for site in ROWS}


def assign(made: LinkedWorld, slots: dict[str, Any], n_slots: int, n_linked: int) -> None:
    """As the agent, give each site the slots of one's own choice, and have all go on."""
    office, objects = made.as_("office"), {}
    parties = office.state().parties
    for site, own in slots.items():
        bound = linking._bind(office, linking.SLOTS, site)
        data = np.array(own, dtype="<i8").tobytes()
        objects[site] = office.transcript.store_object(seal_for(parties[site].sealing, data, bound))
    said = {"slots": n_slots, "linked": n_linked, "objects": objects}
    office.post(linking.SLOTS, said)


def person_of(made: LinkedWorld, token: bytes) -> pd.Series[Any]:
    """The person of a token, which nobody but sites can say."""
    people = find_people(EVERYBODY, KEYS, KINDS)
    tokens = [one.tobytes() for one in people.tokens(linking._site_key(made.as_(HOSPITAL)))]
    return EVERYBODY.iloc[tokens.index(token)]


def sex_and_outcome_of_one(folder: Path, how: es.Linkage, slots: str) -> bool:
    """As the agent, leave people of the hospital out of the slots, but for one who is shared, and
    see what is counted beside those whose values are known.
    """
    made, people = until_slots(folder, how)
    shared = sorted(set(people[HOSPITAL]) & set(people[REGISTRY]))
    slot_of, victim = {token: slot for slot, token in enumerate(shared)}, shared[7]
    given = {site: [slot_of.get(one, -1) for one in own] for site, own in people.items()}
    if slots == "few":
        given[HOSPITAL] = [7 if one == victim else -1 for one in people[HOSPITAL]]
    else:  # all others are in one slot, and those before the last are overwritten
        given[HOSPITAL] = [7 if one == victim else 8 for one in people[HOSPITAL]]
    assign(made, given, len(shared), len(shared))
    made.as_("registry").keygen(made.key)
    counts = made.run()["ages"]
    filler = SCHEMA.variables[1].levels[0]
    found, person = counts.drop(index=filler), person_of(made, victim)
    few = found.to_numpy().sum() <= 2
    return bool(few and (person["sex"] == filler or found.loc[person["sex"], person["ill"]] > 0))


@pytest.mark.parametrize("slots", ["few", "the same"])
def test_each_linked_person_has_a_slot(tmp_path: Path, monkeypatch: Any, slots: str) -> None:
    how = LINKAGES["agent, members"]
    with pytest.raises(es.FileFormatError, check=error("malformed-slots")):
        sex_and_outcome_of_one(tmp_path / "rule", how, slots)
    monkeypatch.setattr(linking, "_check_slots", lambda study, links, slots: None)
    assert sex_and_outcome_of_one(tmp_path / "without", how, slots)


def test_limit_the_agent_lets_sites_share_one_person(tmp_path: Path) -> None:
    """Each site has all of its people in slots, and cannot see which slots the other has."""
    made, people = until_slots(tmp_path, AGENT)
    victim = min(set(people[HOSPITAL]) & set(people[REGISTRY]))
    slots, start = {}, 1
    for site, own in people.items():
        others = iter(range(start, start + len(own)))
        slots[site] = [0 if one == victim else next(others) for one in own]
        start += len(own)
    assign(made, slots, start - 1, 240)
    made.as_("registry").keygen(made.key)
    counts, person = made.run()["ages"], person_of(made, victim)
    assert counts.to_numpy().sum() == 1
    assert counts.loc[person["sex"], person["ill"]] == 1
    assert any(
        "office" in risk and "one person" in risk for risk in made.created.document.open_risks
    )


# -- messages --------------------------------------------------------------------------------------


def test_slots_come_from_the_agent_once(tmp_path: Path) -> None:
    made = linked(tmp_path)
    office = made.as_("office")
    said = {"slots": 400, "linked": 240, "objects": dict.fromkeys((HOSPITAL, REGISTRY), "1" * 64)}
    for who in ("office", HOSPITAL, "centre"):
        with pytest.raises(es.StudyError, check=error("refused-message")):
            made.as_(who).post(linking.SLOTS, said)
    before = linking.links_of(made.created.state()).objects[linking.SLOTS]
    say(made, office.me, {"kind": linking.SLOTS, **said})
    assert linking.links_of(made.created.state()).objects[linking.SLOTS] == before


@pytest.mark.parametrize(
    ("n_slots", "n_linked"),
    [(400, 9), (400, 331), (600, 240), (200, 240), (0, 0)],
    ids=["few", "more than a site", "more than people", "fewer than linked", "none"],
)
def test_impossible_numbers_of_slots_are_refused(
    n_slots: int, n_linked: int, tmp_path: Path
) -> None:
    made = linked_world(tmp_path, AGENT, questions={"bayes": BAYES}, n_rows=500)
    for site in (HOSPITAL, REGISTRY):
        made.take(site, "link")
    objects = dict.fromkeys((HOSPITAL, REGISTRY), "1" * 64)
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("office").post(
            linking.SLOTS, {"slots": n_slots, "linked": n_linked, "objects": objects}
        )


def test_people_are_sent_once_and_in_order(tmp_path: Path, monkeypatch: Any) -> None:
    """A site that sends a person twice, or people in an order that tells something."""
    made = linked_world(tmp_path, AGENT, questions={"bayes": BAYES})
    made.take(HOSPITAL, "link")
    monkeypatch.setattr(
        "encryptedstats.studies.linking.sorted", lambda xs, key: list(xs), raising=False
    )
    made.take(REGISTRY, "link")
    monkeypatch.undo()
    with pytest.raises(es.FileFormatError, check=error("malformed-tokens", REGISTRY)):
        made.take("office", "link")


def test_no_site_can_be_excluded_or_bring_other_slots(tmp_path: Path) -> None:
    made = linked(tmp_path)
    made.as_("registry").keygen(made.key)
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("registry").exclude(HOSPITAL, "late")
    rows = {"folder": f"rows/{HOSPITAL}/x", "manifest": "1" * 64, "n_rows": 9, "n_blocks": 1}
    rows |= {"blocks": "1" * 64, "keys": {"centre": "00"}}
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_(HOSPITAL).post("rows", rows)


def test_rules_of_linked_documents() -> None:
    def document(how: es.Linkage, **changes: Any) -> StudyDocument:
        given = {"questions": {"bayes": (BAYES, "rows")}, "sites": (HOSPITAL, REGISTRY), **changes}
        return write_document(
            "study",
            SCHEMA,
            given["questions"],
            500,
            parameters(),
            given["sites"],
            "centre",
            "registry",
            KeyRule("one holder"),
            how,
        )[0]

    again = document(AGENT)
    assert StudyDocument.from_bytes(again.to_bytes(), "here").linkage == again.linkage
    drawn = es.CompletelyRandomForest(n_trees=2, depth=1, fraction=4, variables=["age"])
    refused: list[tuple[es.Linkage, dict[str, Any]]] = [
        (replace(AGENT, columns={HOSPITAL: ["age"], REGISTRY: ["ill"]}), {}),
        (replace(AGENT, columns={**COLUMNS, "third": ["age"]}), {}),
        (replace(AGENT, identifiers=["fingerprint"]), {}),
        (replace(AGENT, min_count=0), {}),
        (replace(AGENT, agent=""), {}),
        (AGENT, {"questions": {"bayes": (BAYES, "masked")}}),
        (AGENT, {"questions": {"forest": (drawn, "rows")}}),
    ]
    for how, changes in refused:
        with pytest.raises((es.ParameterError, es.SchemaError)):
            document(how, **changes)


# -- without an agent ------------------------------------------------------------------------------


def test_points_say_nothing_without_the_exponents(tmp_path: Path, monkeypatch: Any) -> None:
    made = linked(tmp_path / "rule", LINKAGES["intersection"])
    study = made.created.document.id.encode()
    guess = intersection.CommutingKey(b"guess")
    theirs = made.as_(HOSPITAL)
    digest = linking.links_of(made.created.state()).objects_of(linking.BLINDED)[REGISTRY]
    seen = set(intersection.split_points(linking._receive(theirs, linking.BLINDED, digest)))
    own = linking._commuting_key(theirs)
    for key in (guess, own):
        assert not seen & set(key.blind([text_of(WANTED)], study))

    monkeypatch.setattr(
        linking, "_commuting_key", lambda study: intersection.CommutingKey(b"fixed")
    )
    again = linked(tmp_path / "without", LINKAGES["intersection"])
    digest = linking.links_of(again.created.state()).objects_of(linking.BLINDED)[REGISTRY]
    seen = set(
        intersection.split_points(linking._receive(again.as_(HOSPITAL), linking.BLINDED, digest))
    )
    fixed = intersection.CommutingKey(b"fixed")
    assert seen & set(fixed.blind([text_of(WANTED)], again.created.document.id.encode()))


def test_limit_a_site_that_sends_points_back_is_linked_with_everybody(tmp_path: Path) -> None:
    """It brings the blinded points of the other site as its own, and knows nobody of them."""
    made = linked_world(tmp_path, LINKAGES["intersection"], questions={"bayes": BAYES})
    made.take(HOSPITAL, "link")
    mirror = made.as_(REGISTRY)
    sent = linking.links_of(mirror.state()).objects[linking.BLINDED][HOSPITAL]
    points = linking._receive(mirror, linking.BLINDED, sent)
    count = {"people": len(intersection.split_points(points))}
    linking._send(mirror, linking.BLINDED, HOSPITAL, points, count)
    made.take(HOSPITAL, "link")
    sent = linking.links_of(mirror.state()).objects[linking.DOUBLED][HOSPITAL]
    doubled = linking._receive(mirror, linking.DOUBLED, sent)
    linking._send(mirror, linking.DOUBLED, HOSPITAL, doubled)
    made.take(HOSPITAL, "link")
    digest = sha256(b"".join(sorted(intersection.split_points(doubled)))).hexdigest()
    mirror.post(linking.MATCHED, {"linked": count["people"], "object": digest})
    assert linking.links_of(mirror.state()).n_linked == len(ROWS[HOSPITAL])


def test_site_that_makes_up_identifiers_finds_people(tmp_path: Path) -> None:
    """Limit: anybody who follows the protocol with the identifiers of others learns whether they
    are there.
    """
    made = linked_world(tmp_path, LINKAGES["intersection"], questions={"bayes": BAYES})
    rows = pd.concat([ROWS[HOSPITAL], WANTED[ROWS[HOSPITAL].columns]])
    made.rows = {HOSPITAL: rows, REGISTRY: ROWS[REGISTRY]}
    while (todo := made.steps()) and todo[0][1] == "link":
        made.take(*todo[0])
    party, people = made.as_(HOSPITAL), find_people(rows, KEYS, KINDS)
    slots = dict(zip(people.texts, linking._slots_of(party, people).tolist(), strict=True))
    assert slots[text_of(WANTED)] >= 0


@pytest.mark.parametrize("sent", [b"", b"\xff" * 32, b"\0" * 31])
def test_what_is_no_point_is_refused(sent: bytes, tmp_path: Path) -> None:
    made = linked_world(tmp_path, LINKAGES["intersection"], questions={"bayes": BAYES})
    made.take(HOSPITAL, "link")
    party = made.as_(REGISTRY)
    people = made.created.state().parties[HOSPITAL]
    bound = linking._bind(party, linking.BLINDED, HOSPITAL)
    party.send(
        linking.BLINDED,
        {"people": max(1, len(sent) // 32)},
        "forged",
        lambda: seal_for(people.sealing, sent, bound),
    )
    with pytest.raises(es.FileFormatError):
        made.as_(HOSPITAL).link()


def test_identity_is_of_one_study(tmp_path: Path) -> None:
    """Points of one study are not those of another: nobody can match them."""
    made = linked_world(tmp_path / "one", LINKAGES["intersection"], questions={"bayes": BAYES})
    other = linked_world(tmp_path / "two", LINKAGES["intersection"], questions={"bayes": BAYES})
    key = intersection.CommutingKey(b"the same")
    text = [text_of(WANTED)]
    ids = (made.created.document.id.encode(), other.created.document.id.encode())
    assert key.blind(text, ids[0]) != key.blind(text, ids[1])
    assert Identity.new(made.created.document.id, "x").study != other.created.document.id
