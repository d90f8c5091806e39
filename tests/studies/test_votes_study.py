"""Votes in a study: a model of the rows of all, that nobody opens, says something of new rows, and
the receiver alone sees it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from study_samples import (
    FOREST,
    FRAMES,
    SCHEMA,
    SITES,
    TOGETHER,
    World,
    bring_forged,
    copied,
    frame,
    killed_at,
    world,
)

import encryptedstats as es
from encryptedstats.storage import container
from encryptedstats.storage.chains import Chain
from encryptedstats.studies.transcript import _KINDS, MESSAGES, InvalidMessage, Message
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
NEW = {"north": frame(7, 11), "west": frame(8, 5)}  # south asks nothing


@lru_cache(maxsize=1)
def joint_parameters() -> es.Parameters:
    small = es.Parameters.from_bits("bgv", 1024, 1 << 20, (52,) * 9, allow_insecure=True)
    return replace(small, kept_primes=7, members=3)


def votes_world(folder: Path, **options: Any) -> World:
    given = {
        "questions": {"forest": (FOREST, "votes")},
        "key": "joint",
        "parameters": joint_parameters(),
        **options,
    }
    return world(folder, **given)


def with_key(made: World) -> World:
    made.join_all()
    made.run(lambda: {what for _, what in made.steps()} == {"add"})
    return made


def with_rows(made: World, new: dict[str, pd.DataFrame] = NEW) -> World:
    for _ in range(2):  # all new rows come before all others
        for site in SITES:
            made.as_(site).add(FRAMES[site], new=new.get(site))
    return made


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The key is made, by all."""
    return with_key(votes_world(tmp_path_factory.mktemp("votes")))


@pytest.fixture(scope="module")
def judged(begun: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """All rows are there, and valid."""
    made = with_rows(copied(begun, tmp_path_factory.mktemp("judged")))
    made.run(lambda: es.Study(made.url).state().judged)
    return made


def test_the_receiver_gets_the_votes_of_new_rows_and_nobody_opens_the_model(
    judged: World, tmp_path: Path
) -> None:
    made = copied(judged, tmp_path)
    found = made.run()["forest"]
    clear = (
        clone(FOREST)
        .fit(SCHEMA.table(TOGETHER))
        .predict_votes(SCHEMA.table(pd.concat(NEW.values())))
    )
    assert found.equals(clear)
    facts = es.Study(made.url).status().to_dict()
    assert facts["new_rows"] == {"north": 11, "west": 5}
    assert facts["valid"] == dict.fromkeys((*SITES, "new rows of north", "new rows of west"), True)
    assert (facts["opened"], facts["refused"], facts["next"]) == (["forest"], [], [])
    # What was opened: validity totals, and votes; never totals of the forest.
    called = [
        item
        for m in es.Study(made.url).messages()
        if m.kind == "call"
        for item in m.content["items"]
    ]
    assert sorted(called) == ["forest", *sorted(f"validity of {one}" for one in facts["valid"])]
    file = container.from_bytes(
        made.as_("centre").transcript.read_object(es.Study(made.url).state().answers["forest"])
    )
    assert file.kind == "encrypted prediction"


def test_new_rows_come_before_the_others_and_once(begun: World, tmp_path: Path) -> None:
    made = copied(begun, tmp_path)
    north, south = made.as_("north"), made.as_("south")
    north.add(FRAMES["north"], new=NEW["north"])
    assert [m.kind for m in north.messages()][-1] == "new rows"
    assert made.steps() == [("south", "add"), ("west", "add")]
    rows = north.messages()[-1].content
    with pytest.raises(es.StudyError, check=error("refused-message")):
        north.post("new rows", rows)
    with pytest.raises(es.StudyError, check=error("refused-message")):
        south.post("rows", {**rows, "folder": "rows/south/x"})
    south.add(FRAMES["south"])  # brings none
    made.as_("west").add(FRAMES["west"])  # all have said it, so that its rows come at once
    assert made.steps() == [("north", "add"), ("south", "add")]
    # Now there are rows that the forest is of, and nobody brings them as new ones.
    with pytest.raises(es.StudyError, check=error("refused-message")):
        south.post("new rows", {**rows, "folder": "rows/south/x"})
    assert set(south.state().new_rows) == {"north"}


def test_nobody_brings_rows_of_others_as_new_ones(begun: World, tmp_path: Path) -> None:
    """A site whose software keeps no rules sends rows too early: they do not count, and nobody is
    asked to copy them.
    """
    made = copied(begun, tmp_path)
    west = made.as_("west")
    content = {"kind": "rows", "folder": "rows/west/x", "manifest": "0" * 64, "n_rows": 3}
    chain = Chain(west.store, MESSAGES, f"encryptedstats study {west.document.id}")
    chain.append(content, west.me.signer.public_bytes.hex(), west.me.signer.sign)
    assert "north, south, west have not said which new rows they bring" in str(
        es.Study(made.url).status()
    )
    with_rows(made, {})
    state = es.Study(made.url).state()
    assert set(state.rows) == set(SITES)
    state.asked.discard("north")
    late = Message(99, "north", "new rows", {**content, "folder": "rows/north/x"}, "")
    with pytest.raises(InvalidMessage, match="new rows come before all of them"):
        _KINDS["new rows"][1](state, late)


def test_new_rows_that_are_encrypted_wrongly_are_left_out(begun: World, tmp_path: Path) -> None:
    """A 2 where a 0 or 1 belongs: votes would be of a person who cannot be."""
    made = copied(begun, tmp_path)
    north = made.as_("north")
    keys = north.public_keys()
    sealed = keys.encrypt(SCHEMA.table(NEW["north"].drop(columns="ill"), slots=1024))
    primes = np.array(keys.parameters.data_moduli, dtype=np.uint64)[:, None]
    block = sealed.blocks.block(0).copy()
    block[0] = (2 * block[0]) % primes
    blocks = MemoryBlocks(sealed.blocks.ids, sealed.blocks.rows, (block,))
    bring_forged(north, EncryptedTable(sealed.facts, blocks, keys, accepted=True), "new rows")
    with_rows(made, {"west": NEW["west"]})  # north has said which
    found = made.run()["forest"]
    state = es.Study(made.url).state()
    assert (state.good_sites, state.asking_sites) == (SITES, ("west",))
    assert found.equals(
        clone(FOREST).fit(SCHEMA.table(TOGETHER)).predict_votes(SCHEMA.table(NEW["west"]))
    )


def test_without_new_rows_there_is_nothing_to_vote_on(begun: World, tmp_path: Path) -> None:
    made = with_rows(copied(begun, tmp_path), {})
    assert made.run() == {}
    assert es.Study(made.url).status().ended == "no site has new rows"


def test_a_worker_who_votes_otherwise_gets_no_shares(judged: World, tmp_path: Path) -> None:
    made = copied(judged, tmp_path)
    centre = made.as_("centre")
    votes = centre.answer_from_rows("forest")
    votes.ciphertexts.parts[0].residues[0, 0, 0] ^= 1
    digest = centre.transcript.store_object(container.to_bytes(votes.to_container()))
    centre.post("answer", {"question": "forest", "object": digest})
    made.as_("registry").open(made.key)
    with pytest.raises(es.VerificationError, check=error("wrong-result", "'forest'")):
        made.as_("south").share()


def test_the_model_in_place_of_its_votes_is_refused(judged: World, tmp_path: Path) -> None:
    made = copied(judged, tmp_path)
    centre = made.as_("centre")
    model = centre.table()._answer_to(centre.document.questions["forest"].question)
    digest = centre.transcript.store_object(container.to_bytes(model.to_container()))
    centre.post("answer", {"question": "forest", "object": digest})
    made.as_("registry").open(made.key)
    with pytest.raises(es.FileFormatError, check=error("other-question-or-rows")):
        made.as_("south").share()


def test_what_votes_need(tmp_path: Path) -> None:
    for key in ("one holder", "escrow"):
        with pytest.raises(es.ParameterError, match="opened under a joint key alone"):
            world(
                tmp_path / key[:3],
                questions={"forest": (FOREST, "votes")},
                key=key,
                openers=2 if key == "escrow" else 0,
            )
    for asked, why in (
        (es.Describe(["v0"]), "'q': a Describe says nothing of rows before it is opened"),
        (
            es.CompletelyRandomForest(n_trees=3, depth=2, fraction=8, random_state=1),
            "'q' draws a fraction",
        ),
    ):
        with pytest.raises(es.ParameterError, match=why):
            votes_world(tmp_path / "w", questions={"q": (asked, "votes")})
    with pytest.raises(es.ParameterError, match="'a' and 'b' are one question"):
        votes_world(tmp_path / "w", questions={"a": FOREST, "b": FOREST})
    made = world(tmp_path / "v", questions={"bayes": (es.MultinomialNB(), "masked")}).join_all()
    with pytest.raises(es.StudyError, check=error("no-votes-asked")):
        made.as_("north").add(FRAMES["north"], new=NEW["north"])


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_sites_that_are_killed_while_they_add(begun: World, tmp_path: Path, after: bool) -> None:
    """At every file that they write, again and again, in what the kills before have left."""
    made, kills = copied(begun, tmp_path), 0
    for _ in range(2):
        for site in SITES:
            for write in range(1, 40):
                if not killed_at(
                    write,
                    after,
                    lambda: made.as_(site).add(FRAMES[site], new=NEW.get(site)),  # noqa: B023
                ):
                    break
                kills += 1
    assert kills > 20
    clear = (
        clone(FOREST)
        .fit(SCHEMA.table(TOGETHER))
        .predict_votes(SCHEMA.table(pd.concat(NEW.values())))
    )
    assert made.run()["forest"].equals(clear)
    assert es.Study(made.url).status().to_dict()["refused"] == []


@pytest.mark.slow
def test_with_parameters_of_its_own_plan(tmp_path: Path) -> None:
    """Model and votes, with 128 bits of security."""
    asked = {"model": es.MultinomialNB(), "votes": (es.MultinomialNB(), "votes")}
    made = votes_world(tmp_path / "w", questions=asked, parameters=None)
    assert made.created.document.parameters.security >= 128
    found = with_rows(with_key(made)).run()
    clear = es.MultinomialNB().fit(SCHEMA.table(TOGETHER))
    assert list(found["model"].totals_) == list(clear.totals_)
    assert found["votes"].equals(clear.predict_votes(SCHEMA.table(pd.concat(NEW.values()))))
