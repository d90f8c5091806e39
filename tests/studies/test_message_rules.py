"""Test the rules of messages one by one, on a state in memory: nothing is encrypted or stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import pytest
from round_samples import Home
from study_samples import FOREST, SCHEMA, SITES, parameters

import encryptedstats as es
from encryptedstats.crypto.envelopes import SEED_BYTES
from encryptedstats.studies.documents import KeyRule, StudyDocument, write_document
from encryptedstats.studies.parties import Identity
from encryptedstats.studies.transcript import CHECK, InvalidMessage, Message, StudyState, _apply

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
ONE, TWO = "1" * 64, "2" * 64
BAYES = es.MultinomialNB()


@dataclass(frozen=True)
class Ages(Home):
    """Two rounds, of which nothing is computed here."""

    def measure(self, state: Any, table: Any) -> list[int]:
        return []

    def step(self, state: Any, opened: Any, schema: Any) -> Any:
        return state


class Talk:
    """A study in which everybody has joined, and what is said in it."""

    def __init__(
        self, questions: dict[str, Any], sites: tuple[str, ...] = SITES, n_rows: int = 100
    ) -> None:
        self.document: StudyDocument = write_document(
            "study",
            SCHEMA,
            questions,
            n_rows,
            parameters(),
            sites,
            "centre",
            "registry",
            KeyRule("one holder"),
        )[0]
        self.state, self.number = StudyState(self.document), 0
        self.people = {
            name: Identity(self.document.id, name, name[:1].encode() * SEED_BYTES)
            for name in self.names
        }
        self.state.parties = {name: one.party for name, one in self.people.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return self.document.parties

    def say(self, by: str, kind: str, **content: Any) -> bool:
        """Return whether a message counts."""
        self.number += 1
        digest = hashlib.sha256(str(self.number).encode()).hexdigest()
        said = Message(self.number, by, kind, {"kind": kind, **content}, digest)
        try:
            _apply(self.state, said, self.people[by].signer.public_bytes)
        except InvalidMessage:
            return False
        return True

    def bring(self, site: str, **changes: Any) -> bool:
        content = {
            "folder": f"rows/{site}/x",
            "manifest": ONE,
            "n_rows": 10,
            "n_blocks": 1,
            "blocks": ONE,
        }
        return self.say(site, "rows", **{**content, "keys": {"centre": "00"}, **changes})

    def toss(self, name: str) -> bool:
        return self.say(name, "coin", number=self.people[name].coin.hex())

    def total(self, site: str, question: str = "bayes", number: int = 0) -> bool:
        return self.say(site, "totals", question=question, round=number, object=ONE)

    def with_key(self) -> Talk:
        assert self.say("registry", "keys", object=ONE, key_id="key", parts={})
        return self

    def with_rows(self) -> Talk:
        assert all(self.bring(site) for site in self.with_key().document.sites)
        return self

    def with_coins(self) -> Talk:
        assert all(self.toss(name) for name in (*self.with_rows().document.sites, "registry"))
        return self

    def with_checks(self) -> Talk:
        assert self.with_coins().say(
            "centre", "checks", objects=dict.fromkeys(self.document.sites, ONE)
        )
        return self

    def with_verdict(self, **valid: bool) -> Talk:
        assert self.with_checks().say(
            "registry", "verdict", valid={**dict.fromkeys(self.document.sites, True), **valid}
        )
        return self


def rows() -> Talk:
    return Talk({"forest": (FOREST, "rows")})


def masked(sites: tuple[str, ...] = SITES) -> Talk:
    return Talk({"bayes": (BAYES, "masked"), "again": (BAYES, "masked")}, sites)


# -- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", ["rows/north/x", "rows/west/../north/x", "west/x", "rows/westnorth/x"]
)
def test_a_site_claims_no_folder_but_its_own(folder: str) -> None:
    talk = rows().with_key()
    assert not talk.bring("west", folder=folder)
    assert talk.bring("west")


@pytest.mark.parametrize(
    "keys", [{}, {"registry": "00"}, {"centre": "00", "registry": "00"}, {"centre": "x"}, None]
)
def test_rows_are_sealed_for_those_who_may_read_them(keys: Any) -> None:
    assert not rows().with_key().bring("west", keys=keys)


def test_rows_are_brought_once_and_no_more_than_planned() -> None:
    talk = rows().with_key()
    assert not talk.bring("north", n_rows=0)
    assert not talk.bring("north", n_rows=101)
    assert talk.bring("north", n_rows=60)
    assert not talk.bring("north", manifest=TWO)
    assert talk.state.rows["north"].manifest == ONE
    assert not talk.bring("south", n_rows=41)
    assert talk.bring("south", n_rows=40)


def test_rows_need_a_key_that_is_in_use() -> None:
    talk = rows()
    assert not talk.bring("north")
    talk.with_key()
    assert not talk.say("registry", "keys", object=TWO, key_id="other", parts={})
    assert talk.say("registry", "retire", key_id="key", why="lost")
    assert not talk.bring("north")


def test_no_rows_come_after_a_coin_was_shown() -> None:
    talk = rows().with_key()
    assert talk.bring("north")
    assert talk.bring("south")
    assert not talk.toss("north")  # west is missing
    assert talk.say("registry", "exclude", name="west", why="so")
    assert not talk.bring("west")
    assert talk.toss("north")
    talk.state.excluded.clear()
    assert not talk.bring("west")


# -- the coin, validity, the verdict --------------------------------------------------------------


def test_a_coin_is_the_number_that_its_party_was_bound_to_and_shown_once() -> None:
    talk = rows().with_rows()
    assert not talk.say("north", "coin", number=talk.people["south"].coin.hex())
    assert not talk.toss("centre")
    assert talk.toss("north")
    assert not talk.toss("north")
    assert talk.toss("south")
    assert talk.toss("west")
    assert talk.state.coin is None  # the receiver tosses too
    assert talk.toss("registry")
    assert talk.state.coin is not None


def test_the_coin_is_another_for_other_rows_and_numbers() -> None:
    state = rows().with_coins().state
    found = [state.coin]
    state.rows["west"] = replace(state.rows["west"], manifest=TWO)
    found.append(state.coin)
    for name in state.tossers:
        state.coins[name] = ONE
        found.append(state.coin)
    assert len(set(found)) == len(found)


def test_validity_is_of_all_sites_and_said_once() -> None:
    talk = rows().with_rows()
    objects, valid = dict.fromkeys(SITES, ONE), dict.fromkeys(SITES, True)
    assert not talk.say("centre", "checks", objects=objects)  # the coin is not known
    talk = rows().with_coins()
    assert not talk.say("registry", "verdict", valid=valid)
    assert not talk.say("centre", "checks", objects={"north": ONE})
    assert talk.say("centre", "checks", objects=objects)
    assert not talk.say("centre", "checks", objects=dict.fromkeys(SITES, TWO))
    assert not talk.say("registry", "verdict", valid={"north": True})
    assert not talk.say("registry", "verdict", valid={**valid, "west": 1})
    assert talk.say("registry", "verdict", valid=valid)
    assert not talk.say("registry", "verdict", valid={**valid, "west": False})


def test_nothing_is_answered_from_the_rows_of_one_site() -> None:
    assert rows().with_verdict(west=False).say("centre", "answer", question="forest", object=ONE)
    alone = rows().with_verdict(west=False, south=False)
    assert not alone.say("centre", "answer", question="forest", object=ONE)


def test_answers_are_to_questions_of_the_document_when_rows_were_judged() -> None:
    assert not rows().with_checks().say("centre", "answer", question="forest", object=ONE)
    talk = rows().with_verdict()
    assert not talk.say("centre", "answer", question="bayes", object=ONE)
    assert not talk.say("north", "answer", question="forest", object=ONE)
    assert talk.say("centre", "answer", question="forest", object=ONE)
    assert not talk.say("centre", "answer", question="forest", object=TWO)


# -- openings -------------------------------------------------------------------------------------


def test_nothing_is_called_for_but_validity_totals_and_answers() -> None:
    talk = rows().with_checks()
    check = {CHECK + site: ONE for site in SITES}
    assert not talk.say("registry", "call", items={})
    assert not talk.say("registry", "call", items={CHECK + "north": TWO})
    assert not talk.say("north", "call", items=check)
    assert talk.say("registry", "call", items=check)
    assert not talk.say("registry", "call", items=check)  # before that one is opened
    done = rows().with_verdict()
    assert not done.say("registry", "call", items=check)  # validity is opened once
    assert not done.say("registry", "call", items={"forest": ONE})


def test_shares_are_for_the_last_call_and_given_once() -> None:
    talk = rows().with_checks()
    assert not talk.say("north", "share", call=ONE, object=ONE)
    assert talk.say("registry", "call", items={CHECK + site: ONE for site in SITES})
    call = talk.state.calls[-1].hash
    assert not talk.say("north", "share", call=ONE, object=ONE)
    assert not talk.say("registry", "share", call=call, object=ONE)
    assert talk.say("north", "share", call=call, object=ONE)
    assert not talk.say("north", "share", call=call, object=TWO)
    assert talk.state.shares[call] == {"north": ONE}


def test_openings_are_recorded_once_and_of_the_answer() -> None:
    talk = rows().with_verdict()
    assert not talk.say("registry", "opened", question="forest", object=ONE)
    assert talk.say("centre", "answer", question="forest", object=ONE)
    assert not talk.say("registry", "opened", question="forest", object=TWO)
    assert not talk.say("north", "opened", question="forest", object=ONE)
    assert talk.say("registry", "opened", question="forest", object=ONE)
    assert not talk.say("registry", "opened", question="forest", object=ONE)


# -- members and totals ---------------------------------------------------------------------------


def test_excluding_a_site_begins_all_rounds_again_without_it() -> None:
    talk = masked()
    assert talk.total("north")
    assert not talk.say("north", "exclude", name="west", why="so")
    assert not talk.say("registry", "exclude", name="centre", why="so")
    assert talk.say("registry", "exclude", name="west", why="so")
    assert not talk.say("registry", "exclude", name="west", why="so")
    assert {one.members for one in talk.state.rounds.values()} == {SITES[:2]}
    assert {one.number for one in talk.state.rounds.values()} == {1}
    assert all(not one.objects for one in talk.state.rounds.values())
    assert not talk.total("north")  # of the round before
    assert not talk.total("west", number=1)
    assert talk.total("north", number=1)
    assert not talk.say("registry", "exclude", name="south", why="so")  # one would be left


def test_nobody_is_excluded_when_one_question_has_all_totals() -> None:
    talk = masked()
    assert all(talk.total(site) for site in SITES)
    assert not talk.total("north")
    assert not talk.say("registry", "exclude", name="west", why="so")
    assert talk.total("north", "again")


def test_nobody_is_excluded_when_validity_totals_are_there() -> None:
    assert rows().with_coins().say("registry", "exclude", name="west", why="so")
    assert not rows().with_checks().say("registry", "exclude", name="west", why="so")


def test_totals_beside_rows_come_from_the_sites_that_were_judged_to_be_good() -> None:
    talk = Talk({"forest": (FOREST, "rows"), "bayes": (BAYES, "masked")})
    assert not talk.total("north")
    talk.with_verdict(west=False)
    assert talk.state.rounds["bayes"].members == SITES[:2]
    assert not talk.total("west", number=1)
    assert talk.total("north", number=1)
    alone = Talk({"forest": (FOREST, "rows"), "bayes": (BAYES, "masked")}).with_verdict(
        west=False, south=False
    )
    assert not alone.total("north", number=1)


def test_totals_wait_for_everybody_and_need_a_key_in_use() -> None:
    talk = masked()
    del talk.state.parties["registry"]
    assert not talk.total("north")
    encrypted = Talk({"bayes": (BAYES, "totals")})
    assert not encrypted.total("north")
    assert encrypted.with_key().total("north")
    assert encrypted.say("registry", "retire", key_id="key", why="lost")
    assert not encrypted.total("south")


def test_a_message_counts_when_its_sender_has_joined_and_signed_it() -> None:
    talk = masked()
    talk.people["north"] = Identity(talk.document.id, "north", b"x" * SEED_BYTES)
    assert not talk.total("north")
    assert talk.total("south")
    del talk.state.parties["west"]
    assert not talk.total("west")
    assert not talk.say("south", "praise")


# -- rounds of procedures -------------------------------------------------------------------------


def in_rounds(sites: tuple[str, ...] = SITES) -> Talk:
    return Talk({"ages": (Ages(), "rounds"), "bayes": (BAYES, "masked")}, sites)


def step(talk: Talk, site: str, number: int, **changes: Any) -> bool:
    """Announce totals of a step, of which no two are the same."""
    digest = hashlib.sha256(f"{site} {number} {talk.number}".encode()).hexdigest()
    content = {"question": "ages", "attempt": 0, "step": number, "state": ONE, "object": digest}
    return talk.say(site, "step", **{**content, "rows": ONE, **changes})


def all_step(talk: Talk, number: int, **changes: Any) -> bool:
    return all(step(talk, site, number, **changes) for site in talk.state.runs["ages"].members)


def test_steps_follow_each_other_when_all_agree() -> None:
    talk = in_rounds()
    assert not step(talk, "north", 1)
    assert step(talk, "north", 0)
    assert not step(talk, "north", 0)  # the first one counts
    assert not step(talk, "registry", 0)
    assert not step(talk, "south", 0, attempt=1)
    assert not step(talk, "south", 0, question="bayes")
    assert not step(talk, "south", 0, state="mine")
    assert not step(talk, "south", 0, rows="mine")
    assert talk.state.runs["ages"].rows == {"north": ONE}
    assert not talk.state.runs["ages"].begun
    assert step(talk, "south", 0)
    assert step(talk, "west", 0)
    assert talk.state.runs["ages"].current.number == 1
    assert not step(talk, "west", 0)
    assert step(talk, "west", 1)


def test_steps_end_when_all_say_so_and_not_before_a_first_round() -> None:
    talk = in_rounds()
    assert not step(talk, "north", 0, object="")
    assert all_step(talk, 0)
    assert not step(talk, "north", 1, object="")
    assert all_step(talk, 1)
    assert step(talk, "north", 2, object="", state=TWO)
    assert not talk.say("registry", "opened", question="ages", object=TWO)
    assert step(talk, "south", 2, object="", state=TWO)
    assert step(talk, "west", 2, object="", state=TWO)
    assert talk.state.runs["ages"].end == TWO
    assert not step(talk, "north", 3)
    assert not talk.say("registry", "opened", question="ages", object=ONE)
    assert not talk.say("north", "opened", question="ages", object=TWO)
    assert talk.say("registry", "opened", question="ages", object=TWO)
    assert not talk.say("registry", "opened", question="ages", object=TWO)


def test_steps_are_as_many_as_agreed_and_of_totals_that_are_new() -> None:
    talk = in_rounds()
    assert step(talk, "north", 0, object=TWO)
    assert not step(talk, "south", 0, object=TWO)
    assert step(talk, "south", 0)
    assert step(talk, "west", 0)
    assert not step(talk, "south", 1, object=TWO)
    assert all_step(talk, 1)
    assert all_step(talk, 2)
    assert not step(talk, "north", 3)  # two rounds, and the number of rows
    assert all_step(talk, 3, object="")


@pytest.mark.parametrize("changes", [{"state": TWO}, {"object": ""}])
def test_nothing_goes_on_where_sites_disagree(changes: dict[str, str]) -> None:
    talk = in_rounds()
    assert all_step(talk, 0)
    assert all_step(talk, 1)
    assert step(talk, "north", 2)
    assert step(talk, "south", 2)
    assert step(talk, "west", 2, **changes)
    run = talk.state.runs["ages"]
    assert run.disputed
    assert not run.end
    assert len(run.sums) == 2
    assert not step(talk, "north", 3)


def test_any_site_stops_a_procedure_for_good() -> None:
    talk = in_rounds()
    said = {"question": "ages", "attempt": 0}
    assert not talk.say("registry", "stop", **said, code="small-count")
    assert not talk.say("north", "stop", **said, code="because of age 93")
    assert not talk.say("north", "stop", **said, code="x" * 65)
    assert talk.say("north", "stop", **said, code="small-count")
    assert not step(talk, "south", 0)
    assert not talk.say("south", "stop", **said, code="small-count")
    assert talk.total("south")


def test_procedures_have_three_sites_and_the_members_of_all_questions() -> None:
    assert not in_rounds().say("registry", "exclude", name="west", why="so")
    four = (*SITES, "east")
    talk = in_rounds(four)
    assert step(talk, "north", 0)
    assert talk.say("registry", "exclude", name="east", why="so")
    assert talk.state.runs["ages"].members == SITES
    assert not step(talk, "north", 0)
    assert not step(talk, "east", 0, attempt=1)
    assert step(talk, "north", 0, attempt=1)
    masked_first, rounds_first = in_rounds(four), in_rounds(four)
    assert all(masked_first.total(site) for site in four)
    assert not masked_first.say("registry", "exclude", name="east", why="so")
    assert all_step(rounds_first, 0)
    assert not rounds_first.say("registry", "exclude", name="east", why="so")


def test_procedures_beside_rows_wait_for_their_validity() -> None:
    asked = {"forest": (FOREST, "rows"), "ages": (Ages(), "rounds")}
    talk = Talk(asked, (*SITES, "east"))
    assert not step(talk, "north", 0)
    talk.with_verdict(west=False)
    assert talk.state.runs["ages"].members == ("north", "south", "east")
    assert not step(talk, "west", 0, attempt=1)
    assert step(talk, "north", 0, attempt=1)
    few = Talk(asked).with_verdict(west=False)
    assert not step(few, "north", 0, attempt=1)


def test_steps_wait_for_everybody() -> None:
    talk = in_rounds()
    del talk.state.parties["registry"]
    assert not step(talk, "north", 0)
