"""A study from its document to its results: three hospitals get the forest of all their rows, and
nothing else is opened.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
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
    frame,
    parameters,
    world,
)

import encryptedstats as es
from encryptedstats.crypto.residues import ciphertext_of, residues_of
from encryptedstats.storage import container
from encryptedstats.studies.pooling import pool
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.facts import MemoryBlocks
from error_codes import error
from texts import text_of

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    """All rows are there, and nothing was computed."""
    return world(tmp_path_factory.mktemp("begun")).with_rows()


@pytest.fixture(scope="module")
def judging(begun: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """All rows were found to be valid, and nothing was asked."""
    folder = tmp_path_factory.mktemp("judging") / "copy"
    shutil.copytree(begun.folder, folder)
    made = World(folder, begun.created)
    made.run(until=lambda: bool(es.Study(made.url).state().valid))
    return made


@pytest.fixture
def judged(judging: World, tmp_path: Path) -> World:
    shutil.copytree(judging.folder, tmp_path / "judged")
    return World(tmp_path / "judged", judging.created)


@pytest.fixture
def study(begun: World, tmp_path: Path) -> World:
    """A copy for a test to go on with."""
    shutil.copytree(begun.folder, tmp_path / "copy")
    return World(tmp_path / "copy", begun.created)


def clear_forest() -> es.CompletelyRandomForest:
    return clone(FOREST).fit(SCHEMA.table(TOGETHER))


@pytest.mark.parametrize("key", ["one holder", "escrow"])
def test_three_hospitals_get_the_forest_of_all_rows(tmp_path: Path, key: str) -> None:
    made = world(tmp_path / key, key=key, openers=2 if key == "escrow" else 0)
    assert {what for _, what in made.steps()} == {"join"}
    found = made.with_rows().run()
    assert (found["forest"].leaf_counts_ == clear_forest().leaf_counts_).all()
    assert list(found["forest"].classes_) == ["no", "yes"]
    printed = str(es.Study(made.url).status())
    assert "north: yes" in printed
    assert "opened     forest" in printed
    assert "next       nothing: all is opened" in printed
    assert [m.by for m in es.Study(made.url).messages() if m.kind == "opened"] == ["registry"]


def test_a_bucket_is_as_good_as_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    made = world(tmp_path / "w", "memory://a-study-in-a-bucket").with_rows()
    made.run(until=lambda: bool(es.Study(made.url).state().checks))
    assert set(es.Study(made.url).state().checks) == set(SITES)


def test_workers_and_onlookers_learn_no_names(begun: World) -> None:
    files = [path for path in Path(begun.url).rglob("*") if path.is_file()]
    seen = b" ".join(text_of(path.read_bytes()) for path in files)
    assert b'"variables"' in seen
    for private in (b'"age"', b'"ill"', b'"sex"'):
        assert private not in seen
    with pytest.raises(es.SchemaError, check=error("names-for-members")):
        begun.as_("centre").schema  # noqa: B018  asking is the test
    assert begun.as_("north").schema == SCHEMA


def test_each_does_what_is_its_own(begun: World) -> None:
    with pytest.raises(es.StudyError, check=error("wrong-role")):
        begun.as_("centre").add(FRAMES["north"])
    with pytest.raises(es.StudyError, check=error("wrong-role")):
        begun.as_("north").open(begun.key)
    with pytest.raises(es.StudyError, check=error("wrong-role")):
        begun.as_("registry").fit()
    with pytest.raises(es.StudyError, check=error("not-a-party")):
        es.Study(begun.url).share()


def test_rows_are_checked_against_the_agreed_schema_before_they_are_encrypted(
    tmp_path: Path,
) -> None:
    made = world(tmp_path / "w", n_rows=50).join_all()
    made.as_("registry").keygen(made.key)
    north = made.as_("north")
    with pytest.raises(es.SchemaError, check=error("unusable-value", "'x'")):
        north.add(frame(1).assign(sex="x"))
    with pytest.raises(es.StudyError, check=error("weights-or-folds")):
        north.add(SCHEMA.table(frame(1), folds=2))
    other = es.Schema.infer(frame(5, 200), target="ill", bins=3, classes=("no", "yes"))
    with pytest.raises(es.StudyError, check=error("other-schema")):
        north.add(other.table(frame(1)))
    north.add(frame(1))
    with pytest.raises(es.StudyError, check=error("refused-message", "30", "50", "20")):
        made.as_("south").add(frame(2))
    made.as_("south").add(frame(2, 20))
    north.add(frame(7))  # they are there already, and stay
    assert es.Study(made.url).status().to_dict()["rows"] == {"north": 30, "south": 20}


def test_a_file_of_rows(tmp_path: Path) -> None:
    made = world(tmp_path / "w").join_all()
    made.as_("registry").keygen(made.key)
    frame(1).to_csv(tmp_path / "rows.csv", index=False)
    made.as_("north").add(tmp_path / "rows.csv")
    assert es.Study(made.url).status().to_dict()["rows"] == {"north": 30}


def forged_rows(made: World, site: str, factor: int) -> None:
    party = made.as_(site)
    keys = party.public_keys()
    good = keys.encrypt(SCHEMA.table(FRAMES[site]))
    residues, names = good.blocks.block(0).copy(), list(map(str, good.facts.columns))
    for name in (name for name in names if name.startswith("class")):
        slots = np.full(keys.parameters.slots, factor)
        plain = keys.engine.encoder.encode(slots)
        old = ciphertext_of(keys.engine, residues[names.index(name)])
        residues[names.index(name)] = residues_of(
            keys.engine, keys.engine.evaluator.multiply_plain(old, plain)
        )
    blocks = MemoryBlocks(good.blocks.ids, good.blocks.rows, (residues,))
    bring_forged(party, EncryptedTable(good.facts, blocks, keys))


def test_a_site_that_encrypts_wrongly_is_left_out_before_any_question(tmp_path: Path) -> None:
    made = world(tmp_path / "w").with_rows({site: FRAMES[site] for site in SITES[:2]})
    forged_rows(made, "west", 3)
    found = made.run()
    assert es.Study(made.url).status().to_dict()["valid"] == {
        "north": True,
        "south": True,
        "west": False,
    }
    assert "west: NO, its rows are left out" in str(es.Study(made.url).status())
    rest = clone(FOREST).fit(SCHEMA.table(TOGETHER[: 2 * len(FRAMES["north"])]))
    assert (found["forest"].leaf_counts_ == rest.leaf_counts_).all()


def test_a_study_without_any_valid_rows_ends(tmp_path: Path) -> None:
    made = world(tmp_path / "w", sites=SITES[:2]).with_rows({})
    for site in SITES[:2]:
        forged_rows(made, site, 3)
    assert made.run() == {}
    assert "nothing: fewer than 2 sites have rows that are valid" in str(
        es.Study(made.url).status()
    )
    with pytest.raises(es.StudyError, check=error("no-valid-rows")):
        made.as_("centre").table()


def test_a_site_that_does_not_come_is_excluded_in_writing(tmp_path: Path) -> None:
    made = world(tmp_path / "w").with_rows({site: FRAMES[site] for site in SITES[:2]})
    assert made.steps() == [("west", "add")]
    made.as_("registry").exclude("west", "has withdrawn")
    found = made.run()
    assert found["forest"].n_rows_ == 60
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("west").add(FRAMES["west"])


def test_rows_that_were_exchanged_after_they_were_fixed_are_refused(study: World) -> None:
    study.run(until=lambda: ("centre", "fit") in study.steps())
    state = es.Study(study.url).state()
    manifest = Path(study.url) / state.rows["west"].folder / "table.manifest"
    other = Path(study.url) / state.rows["north"].folder / "table.manifest"
    manifest.write_bytes(other.read_bytes())
    with pytest.raises(es.FileFormatError, check=error("altered-chunk")):
        study.as_("centre").fit()


def test_nothing_is_opened_but_the_questions_of_the_document(judged: World) -> None:
    """A worker who answers something else under a question's name, from other rows, or under
    another name.
    """
    centre = judged.as_("centre")
    nb = centre.table().totals(es.MultinomialNB())
    some = es.EncryptedAnswer(
        es.MultinomialNB(), nb, centre.document.schema, 90, centre.table().blocks.ids
    )
    digest = centre.transcript.store_object(container.to_bytes(some.to_container()))
    with pytest.raises(es.StudyError, check=error("refused-message", "'bayes'")):
        centre.post("answer", {"question": "bayes", "object": digest})
    centre.post("answer", {"question": "forest", "object": digest})
    with pytest.raises(es.FileFormatError, check=error("other-question-or-rows", "'forest'")):
        judged.as_("registry").open(judged.key)
    assert not es.Study(judged.url).state().opened


def test_an_answer_from_fewer_rows_is_not_opened(judged: World) -> None:
    """A worker who leaves a site out, so that the difference of two answers would be
    that site's.
    """
    centre = judged.as_("centre")
    state, keys = centre.state(), centre.public_keys()
    table = pool([centre._site(site, state, keys) for site in SITES[:2]])
    asked = centre.document.questions["forest"].question
    answer = es.EncryptedAnswer(
        asked, table.totals(asked), table.schema, table.n_rows, table.blocks.ids
    )
    digest = centre.transcript.store_object(container.to_bytes(answer.to_container()))
    centre.post("answer", {"question": "forest", "object": digest})
    with pytest.raises(es.FileFormatError, check=error("other-question-or-rows")):
        judged.as_("registry").open(judged.key)


def test_an_opening_is_recorded_once_and_can_be_read_again_by_the_holder(judged: World) -> None:
    first = judged.run()["forest"]
    again = judged.as_("registry").open(judged.key)["forest"]
    assert (first.leaf_counts_ == again.leaf_counts_).all()
    assert sum(m.kind == "opened" for m in es.Study(judged.url).messages()) == 1


def test_a_fingerprint_stands_for_the_document_and_all_keys(begun: World, tmp_path: Path) -> None:
    fingerprint = es.Study(begun.url).fingerprint
    assert (
        es.Study(
            begun.url, begun.identity("north"), fingerprint=fingerprint.replace(" ", "")
        ).me.name
        == "north"
    )
    other = world(tmp_path / "other").join_all()
    with pytest.raises(es.KeyMismatchError, check=error("other-fingerprint")):
        es.Study(other.url, fingerprint=fingerprint)
    with pytest.raises(es.KeyMismatchError, check=error("other-study")):
        es.Study(other.url, begun.identity("north"))


def test_a_party_that_has_seen_more_notices_that_messages_were_cut_off(study: World) -> None:
    study.as_("north")
    last = sorted(Path(study.url, "messages").glob("*.json"))[-1]
    last.unlink()
    es.Study(study.url)  # who has seen nothing cannot know
    with pytest.raises(es.FileFormatError, check=error("other-chain")):
        study.as_("north")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sites": ["north"]}, "two sites or more"),
        ({"sites": ["north", "north"]}, "two sites or more, each with a name of its own"),
        ({"worker": "registry"}, "one who is both could open every row"),
        ({"worker": "a b"}, "names of parties and questions are words"),
        ({"questions": {}}, "a study asks questions"),
        ({"questions": {"forest": (FOREST, "guessed")}}, ("in one of the modes rows, votes, " "totals, masked")),
        ({"key": "escrow", "openers": 1}, "of 3 sites, 2 to 3 together can open"),
        ({"key": "nobody"}, "the key of a study can be 'one holder', 'escrow'"),
    ],
)  # fmt: skip
def test_what_cannot_be_agreed_on(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises((es.ParameterError, es.StudyError), match=message):
        world(tmp_path / "w", **options)
    assert not (tmp_path / "w" / "shared" / "study.json").exists()


def test_a_study_does_not_take_the_place_of_another(begun: World) -> None:
    with pytest.raises(FileExistsError, check=error("already-exists")):
        world(begun.folder)


def test_a_study_that_is_created_again_says_how_to_start_over(tmp_path: Path) -> None:
    """What a party has kept of the study before it would be taken for its own."""
    before = world(tmp_path).join_all()
    before.as_("registry").keygen(before.key)
    before.as_("north").add(FRAMES["north"])
    shutil.rmtree(before.url)
    code = world(tmp_path).created.invitations["north"]
    identity = before.identity("north")

    def refused(kind: type[es.EncryptedStatsError], code_of_error: str) -> None:
        with pytest.raises(kind, check=error(code_of_error, "a new file for your identity")):
            es.Study.join(before.url, code, identity)

    refused(es.KeyMismatchError, "other-study")
    identity.unlink()
    refused(es.StudyError, "remains-of-identity")
    Path(f"{identity}.seen").unlink()
    refused(es.StudyError, "remains-of-identity")  # rows under the former key
    assert not identity.exists()
    assert es.Study.join(before.url, code, tmp_path / "again.id").me.name == "north"


def test_an_altered_document_is_another_study(study: World) -> None:
    document = Path(study.url, "study.json")
    document.write_bytes(document.read_bytes().replace(b'"n_rows": 1000', b'"n_rows": 9000'))
    with pytest.raises(es.KeyMismatchError, check=error("other-study")):
        study.as_("north")
    with pytest.raises(es.FileFormatError, check=error("replayed-entry")):
        es.Study(study.url).status()


def test_a_retired_key_is_refused_for_new_rows(tmp_path: Path) -> None:
    made = world(tmp_path / "w").with_rows({"north": FRAMES["north"]})
    made.as_("registry").retire_key("the laptop was lost")
    with pytest.raises(es.StudyError, check=error("retired-key")):
        made.as_("south").add(FRAMES["south"])
    assert "the laptop was lost" in str(es.Study(made.url).status())


@pytest.mark.slow
def test_planned_parameters_carry_the_study(tmp_path: Path) -> None:
    """Real ones: 128 bits, flooded, with the validity of all rows."""
    made = world(tmp_path / "w", parameters=None)
    assert made.created.document.parameters.security >= 128
    found = made.with_rows().run()
    assert (found["forest"].leaf_counts_ == clear_forest().leaf_counts_).all()


def test_parameters_are_those_of_the_document(tmp_path: Path) -> None:
    made = world(tmp_path / "w").join_all()
    es.Owner(es.Parameters.choose(max_value=1000, depth=0)).save(made.key or "")
    with pytest.raises(es.KeyMismatchError, check=error("other-parameters")):
        made.as_("registry").keygen(made.key)
    assert made.created.document.parameters == parameters()


def test_a_second_key_is_not_made(begun: World, tmp_path: Path) -> None:
    begun.as_("registry").keygen(begun.key)  # it is there: nothing to do
    with pytest.raises(es.StudyError, check=error("already-has-key")):
        begun.as_("registry").keygen(tmp_path / "other.key")
