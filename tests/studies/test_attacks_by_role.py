"""Attack studies in every role and pair of roles, as docs/guides/studies.md and
docs/explanation/security.md list them.

An attack that a rule stops is tried twice: with the rule it fails, and with the rule taken out it
succeeds. An attack that no rule stops succeeds, and its test says "limit": the documents name it.
Joint keys have a file of their own, ``test_attacks_on_joint_keys.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from attack_tools import (
    answers_in,
    bayes_totals,
    bring_multiplied,
    bring_unlike_copies,
    clear_rows,
    forget_messages,
    mark_as_joint,
    open_folder,
    plain_tables,
    read_rows,
    say,
    stored_objects,
    unseal_key,
)
from study_samples import FRAMES, SCHEMA, SITES, World, copied, frame, parameters, world

import encryptedstats as es
from encryptedstats.crypto import keyfiles, material
from encryptedstats.studies import documents, study, totals, transcript, validity
from encryptedstats.studies.documents import KeyRule, StudyDocument
from encryptedstats.studies.parties import Identity
from encryptedstats.studies.transcript import StudyState, Transcript
from encryptedstats.tables.questions.summaries import Counts

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
BAYES = es.MultinomialNB()
ROWS, HOME = {"bayes": BAYES}, {"bayes": (BAYES, "totals")}
MASKED = {"bayes": (BAYES, "masked"), "ages": (Counts((0, -1)), "masked")}


def encrypted_world(folder: Path, **options: Any) -> World:
    """A study with encrypted rows of three sites, all of which are there."""
    return world(folder, **{"questions": ROWS, **options}).with_rows()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    """All rows are there, for one holder of the key."""
    return encrypted_world(tmp_path_factory.mktemp("begun") / "w")


@pytest.fixture(scope="module")
def answered(begun: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The worker has answered, and nothing but validity was opened."""
    made = copied(begun, tmp_path_factory.mktemp("answered"))
    made.run(until=lambda: "bayes" in es.Study(made.url).state().answers)
    return made


@pytest.fixture(scope="module")
def escrowed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The worker has answered, under a key that two of three sites unseal."""
    made = encrypted_world(tmp_path_factory.mktemp("escrowed") / "w", key="escrow", openers=2)
    made.run(until=lambda: "bayes" in es.Study(made.url).state().answers)
    return made


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Everybody has joined a study of masked totals."""
    return world(tmp_path_factory.mktemp("masked") / "w", questions=MASKED).join_all()


def holder(made: World) -> es.Owner:
    return es.Owner.load(made.key or "")


# -- one holder, and escrow whose key was kept ----------------------------------------------------


def test_receiver_opens_the_agreed_answers_of_the_folder_and_nothing_else(answered: World) -> None:
    """Receiver, one holder: her key, and every file of the shared folder."""
    assert plain_tables(Path(answered.url)) == []
    assert answers_in(answered, holder(answered)) == [bayes_totals(*FRAMES.values())]
    for site in SITES:
        with pytest.raises(es.StudyError):
            open_folder(answered, "registry", site)


def test_receiver_reads_all_rows_that_are_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unsealed(study.SealedStore):
        def write(self, name: str, data: bytes) -> None:
            self._store.write(self._path(name), [data])

    monkeypatch.setattr(study, "SealedStore", Unsealed)
    made = encrypted_world(tmp_path / "w")
    found = plain_tables(Path(made.url))
    assert len(found) == len(SITES)
    owner = holder(made)
    read = [read_rows(owner, es.EncryptedTable.load(one, owner.public_keys())) for one in found]
    assert read == [clear_rows(one.parent.name) for one in found]


def test_receiver_who_is_given_the_keys_of_folders_reads_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that seals rows for the receiver too shows them to her."""
    monkeypatch.setattr(
        StudyDocument, "row_readers", property(lambda self: (self.worker, self.receiver))
    )
    made = encrypted_world(tmp_path / "w")
    assert read_rows(holder(made), open_folder(made, "registry", "north")) == clear_rows("north")


def test_receiver_and_a_site_read_no_rows_of_another_site(
    begun: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has the key of the folder: its envelope is for the worker."""
    rows = es.Study(begun.url).state().rows["south"]
    assert set(rows.keys) == {"centre"}
    for party in ("north", "registry"):
        attacker = begun.as_(party)
        with pytest.raises(es.StudyError):
            open_folder(begun, party, "south")
        with pytest.raises((es.KeyMismatchError, es.FileFormatError)):
            attacker.me.reader.open(
                rows.keys["centre"], attacker._bind_folder(rows.folder, "centre")
            )


def test_receiver_and_a_site_for_whom_rows_are_sealed_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        StudyDocument, "row_readers", property(lambda self: (self.worker, *self.sites))
    )
    made = encrypted_world(tmp_path / "w")
    assert read_rows(holder(made), open_folder(made, "north", "south")) == clear_rows("south")


def test_limit_receiver_and_worker_read_all_rows(begun: World) -> None:
    """By design: the study says so as a risk."""
    for site in SITES:
        assert read_rows(holder(begun), open_folder(begun, "centre", site)) == clear_rows(site)
    assert any("centre" in risk for risk in es.Study(begun.url).status().to_dict()["open_risks"])


def test_worker_and_a_site_have_no_key(escrowed: World, begun: World) -> None:
    """They have the rows, and no key; under escrow one share of two unseals nothing."""
    for made in (begun, escrowed):
        files = [made.identity(name) for name in ("centre", "north")]
        files += [path for path in Path(made.url).rglob("*") if path.is_file()]
        for path in files:
            with pytest.raises((es.EncryptedStatsError, ValueError)):
                es.Owner.load(path)
    with pytest.raises((es.FileFormatError, ValueError)):
        unseal_key(escrowed, ("north",))


def test_worker_and_a_site_read_all_rows_where_one_site_unseals_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One opener of an escrow is refused; where it is not, that site is one holder."""
    with pytest.raises(es.ParameterError):
        world(tmp_path / "refused", key="escrow", openers=1)
    monkeypatch.setattr(StudyDocument, "check", lambda self: None)
    made = encrypted_world(tmp_path / "w", key="escrow", openers=1)
    owner = unseal_key(made, ("north",))
    assert read_rows(owner, open_folder(made, "centre", "south")) == clear_rows("south")


def test_limit_openers_of_an_escrow_open_answers_and_with_the_worker_all_rows(
    escrowed: World,
) -> None:
    owner = unseal_key(escrowed, ("north", "west"))
    assert answers_in(escrowed, owner) == [bayes_totals(*FRAMES.values())]
    assert plain_tables(Path(escrowed.url)) == []
    with pytest.raises(es.StudyError):
        open_folder(escrowed, "north", "south")
    assert read_rows(owner, open_folder(escrowed, "centre", "south")) == clear_rows("south")
    assert any(
        "2 sites" in risk for risk in es.Study(escrowed.url).status().to_dict()["open_risks"]
    )


def test_receiver_under_escrow_who_keeps_the_key_reads_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the worker she opens the agreed answers and nothing else."""
    kept, seal = [], study.kind_of("escrow").keygen.__globals__["_seal"]
    monkeypatch.setitem(
        study.kind_of("escrow").keygen.__globals__,
        "_seal",
        lambda owner, secret: (kept.append(owner), seal(owner, secret))[1],
    )
    made = encrypted_world(tmp_path / "w", key="escrow", openers=2)
    made.run(until=lambda: "bayes" in es.Study(made.url).state().answers)
    assert answers_in(made, kept[0]) == [bayes_totals(*FRAMES.values())]
    assert plain_tables(Path(made.url)) == []
    with pytest.raises(es.StudyError):
        open_folder(made, "registry", "north")
    # Limit: with the worker she reads everything.
    assert read_rows(kept[0], open_folder(made, "centre", "north")) == clear_rows("north")


# -- totals that sites encrypt --------------------------------------------------------------------


def run_totals(folder: Path) -> World:
    made = world(folder, questions=HOME).join_all()
    made.as_("registry").keygen(made.key)
    made.run(until=lambda: "bayes" in es.Study(made.url).state().answers)
    return made


def test_receiver_opens_the_sum_of_encrypted_totals_and_no_site_s(tmp_path: Path) -> None:
    made = run_totals(tmp_path / "w")
    assert answers_in(made, holder(made)) == [bayes_totals(*FRAMES.values())]


def test_receiver_opens_totals_of_a_site_that_are_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seal_answer(
        study: Any, state: StudyState, question: str, answer: es.EncryptedAnswer
    ) -> bytes:
        return totals.container.to_bytes(answer.to_container())

    monkeypatch.setattr(totals, "seal_answer", seal_answer)
    made = world(tmp_path / "w", questions=HOME).join_all()
    made.as_("registry").keygen(made.key)
    made.run(until=lambda: made.steps() == [("centre", "fit")])
    assert sorted(answers_in(made, holder(made))) == sorted(
        bayes_totals(one) for one in FRAMES.values()
    )


def test_limit_receiver_and_worker_open_the_totals_of_a_site(tmp_path: Path) -> None:
    made = run_totals(tmp_path / "w")
    centre = made.as_("centre")
    now, keys = centre.state().round("bayes"), centre.public_keys()
    answer = totals._read_totals_of(centre, "bayes", "north", now, keys)
    found = holder(made).open(answer, schema=SCHEMA)
    assert [int(one) for one in found.totals_] == bayes_totals(FRAMES["north"])


# -- masked totals --------------------------------------------------------------------------------


def add_masked(made: World, sites: tuple[str, ...] = SITES, *, store: bool = True) -> None:
    for site in sites:
        made.as_(site).add(FRAMES[site])
    for site in sites if store else ():
        made.as_(site).share()


def sent_values(made: World, site: str) -> list[int]:
    """What the receiver finds in the envelope of a site: its totals under masks."""
    registry = made.as_("registry")
    now = registry.state().round("bayes")
    sealed = registry.transcript.read_object(now.objects[site])
    data = registry.me.reader.open(sealed, totals.bind(registry, "bayes", now, site))
    return [int.from_bytes(data[start : start + 32], "big") for start in range(0, len(data), 32)]


def unmask_as(made: World, site: str, helpers: tuple[str, ...]) -> list[int]:
    """Take the masks off that a site shares with some others; leave out its row counts."""
    values = sent_values(made, site)
    for other in helpers:
        party = made.as_(other)
        state = party.state()
        mask = totals._mask(party, state, "bayes", state.round("bayes"), site, len(values))
        sign = -1 if site < other else 1
        values = [
            (value + sign * one) % (1 << 256) for value, one in zip(values, mask, strict=True)
        ]
    return values[:-2]


def test_receiver_and_one_site_do_not_read_the_totals_of_another(
    masked: World, tmp_path: Path
) -> None:
    made = copied(masked, tmp_path)
    add_masked(made)
    assert all(one > 1 << 200 for one in unmask_as(made, "north", ()))  # but for one in 2^56 each
    assert all(one > 1 << 200 for one in unmask_as(made, "north", ("west",)))
    # Limit: the sum is of all, so they read the sum of the others.
    opened = [int(one) for one in made.as_("registry").open()["bayes"].totals_]
    others = [one - own for one, own in zip(opened, bayes_totals(FRAMES["west"]), strict=True)]
    assert others == bayes_totals(FRAMES["north"], FRAMES["south"])


def test_receiver_reads_totals_without_masks(
    masked: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = copied(masked, tmp_path)
    monkeypatch.setattr(
        totals, "_mask", lambda study, state, question, now, other, count: [0] * count
    )
    add_masked(made)
    assert sent_values(made, "north")[:-2] == bayes_totals(FRAMES["north"])


def test_readers_of_the_folder_and_the_worker_open_no_masked_totals(
    masked: World, tmp_path: Path
) -> None:
    made = copied(masked, tmp_path)
    add_masked(made)
    for party in ("centre", "south"):
        attacker = made.as_(party)
        now = attacker.state().round("bayes")
        sealed = attacker.transcript.read_object(now.objects["north"])
        with pytest.raises((es.KeyMismatchError, es.FileFormatError)):
            attacker.me.reader.open(sealed, totals.bind(attacker, "bayes", now, "north"))


def test_limit_all_other_sites_and_the_receiver_read_the_totals_of_the_last(
    masked: World, tmp_path: Path
) -> None:
    made = copied(masked, tmp_path)
    add_masked(made)
    assert unmask_as(made, "north", ("south", "west")) == bayes_totals(FRAMES["north"])


def test_limit_one_of_two_sites_reads_the_other_from_the_sum(tmp_path: Path) -> None:
    made = world(tmp_path / "w", questions=MASKED, sites=SITES[:2]).join_all()
    add_masked(made, SITES[:2])
    opened = [int(one) for one in made.as_("registry").open()["bayes"].totals_]
    other = [one - own for one, own in zip(opened, bayes_totals(FRAMES["north"]), strict=True)]
    assert other == bayes_totals(FRAMES["south"])
    assert any("two sites" in risk for risk in es.Study(made.url).status().to_dict()["open_risks"])


def test_limit_other_rows_are_under_the_mask_of_those_before(masked: World, tmp_path: Path) -> None:
    """A site restores its files from the day when it joined and brings other rows, after the host
    has cut the messages back: the receiver, or whoever reads for her, subtracts what it has sent.
    """
    made = copied(masked, tmp_path)
    before = set(Path(made.url, "messages").iterdir())
    add_masked(made)
    first = sent_values(made, "north")
    for message in set(Path(made.url, "messages").iterdir()) - before:
        message.unlink()
    for party in (*SITES, "registry"):
        forget_messages(made, party)
    shutil.rmtree(made.folder / "north.id.sent")
    other = frame(77)
    made.as_("north").add(other)
    add_masked(made, SITES[1:])
    made.as_("north").share()
    found = [one - two for one, two in zip(sent_values(made, "north"), first, strict=True)][:-2]
    changed = zip(bayes_totals(other), bayes_totals(FRAMES["north"]), strict=True)
    assert found == [one - two for one, two in changed]


# -- one member list ------------------------------------------------------------------------------


def difference(made: World, first: list[int]) -> list[int]:
    """Exclude a site after a sum is known, get a second sum, and subtract."""
    made.as_("registry").exclude("west", "does not come")
    add_masked(made, SITES[:2])
    second = made.as_("registry").open()["bayes"].totals_
    return [one - int(other) for one, other in zip(first, second, strict=True)]


def first_sum(made: World) -> list[int]:
    add_masked(made)
    return [int(one) for one in made.as_("registry").open()["bayes"].totals_]


def test_receiver_gets_no_second_sum_without_one_site(masked: World, tmp_path: Path) -> None:
    made = copied(masked, tmp_path)
    first = first_sum(made)
    with pytest.raises(es.StudyError):
        difference(made, first)
    say(made, made.as_("registry").me, {"kind": "exclude", "name": "west", "why": "does not come"})
    assert not es.Study(made.url).state().excluded
    assert made.as_("north").share() == []


def test_receiver_with_a_second_sum_reads_the_totals_of_one_site(
    masked: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = copied(masked, tmp_path)
    first = first_sum(made)
    monkeypatch.setattr(StudyState, "has_complete_question", property(lambda self: False))
    assert difference(made, first) == bayes_totals(FRAMES["west"])


def differ_by_forking(made: World) -> list[int]:
    """As receiver and host, remove the last announcement after totals were stored, exclude its
    site.

    Processes of north and south begin before west announces, and store their totals after it. The
    host then removes the announcement of west, and both sites come back with their files.
    """
    add_masked(made, SITES[:2], store=False)
    waiting = [made.as_(site) for site in SITES[:2]]
    before = set(Path(made.url, "messages").iterdir())
    made.as_("west").add(FRAMES["west"])
    made.as_("west").share()
    for party in waiting:
        party.share()
    copy = copied(made, made.folder.parent / "fork")
    first = [int(one) for one in copy.as_("registry").open()["bayes"].totals_]
    for message in set(Path(made.url, "messages").iterdir()) - before:
        message.unlink()
    forget_messages(made, "registry")  # she forgets what she likes
    return difference(made, first)


def test_receiver_and_host_get_no_second_sum_by_showing_two_chains(
    masked: World, tmp_path: Path
) -> None:
    with pytest.raises(es.FileFormatError):
        differ_by_forking(copied(masked, tmp_path))


def test_receiver_and_host_read_the_totals_of_one_site_where_nobody_remembers_the_chain(
    masked: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transcript, "check_contains", lambda self, head: None)
    assert differ_by_forking(copied(masked, tmp_path)) == bayes_totals(FRAMES["west"])


def test_receiver_who_says_that_good_rows_are_bad_does_so_once_and_for_all_questions(
    begun: World, tmp_path: Path
) -> None:
    made = copied(begun, tmp_path)
    made.run(until=lambda: bool(es.Study(made.url).state().checks))
    registry = made.as_("registry")
    registry.post("verdict", {"valid": {"north": True, "south": True, "west": False}})
    found = made.run()
    assert [int(one) for one in found["bayes"].totals_] == bayes_totals(
        FRAMES["north"], FRAMES["south"]
    )
    with pytest.raises(es.StudyError):
        registry.post("verdict", {"valid": dict.fromkeys(SITES, True)})
    with pytest.raises(es.StudyError):
        registry.exclude("south", "let us see")


def honest_frames() -> list[pd.DataFrame]:
    return [FRAMES["north"], FRAMES["south"]]


# -- a site ---------------------------------------------------------------------------------------


def test_site_that_lets_its_rows_count_thrice_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = FRAMES["west"].assign(ill=["no"] * 2 + ["yes"] * 28)
    made = world(tmp_path / "w", questions=ROWS).with_rows(
        {site: FRAMES[site] for site in SITES[:2]}
    )
    bring_multiplied(made, "west", rows, 3)
    honest = copied(made, tmp_path / "honest").run()["bayes"]
    assert [int(one) for one in honest.totals_] == bayes_totals(FRAMES["north"], FRAMES["south"])
    # Without the rule, forged rows count.
    monkeypatch.setattr(validity, "passes", lambda totals, opener, sites: True)
    forged = [int(one) for one in made.run()["bayes"].totals_]
    assert forged not in (bayes_totals(*honest_frames()), bayes_totals(*honest_frames(), rows))


def test_site_that_claims_the_rows_of_another_is_refused(tmp_path: Path) -> None:
    """Announced as its own, the rows of north would be answered for twice."""
    made = world(tmp_path / "w", questions=ROWS).with_rows({"north": FRAMES["north"]})
    rows = es.Study(made.url).state().rows["north"]
    content = {
        "kind": "rows",
        "folder": rows.folder,
        "manifest": rows.manifest,
        "n_rows": rows.n_rows,
        "n_blocks": rows.n_blocks,
        "blocks": rows.blocks,
        "keys": {name: sealed.hex() for name, sealed in rows.keys.items()},
    }
    for folder in (rows.folder, f"rows/west/../{rows.folder.partition('/')[2]}"):
        say(made, made.as_("west").me, {**content, "folder": folder})
    after = es.Study(made.url).state()
    assert set(after.rows) == {"north"}
    assert [one.by for one in after.refused] == ["west", "west"]


def test_site_that_copies_the_rows_of_another_into_its_own_folder_is_noticed(
    begun: World, tmp_path: Path
) -> None:
    """The worker hands rows of north to west: blocks are there twice, and nothing is computed."""
    made = world(tmp_path / "w", questions=ROWS).with_rows(
        {site: FRAMES[site] for site in SITES[:2]}
    )
    centre, west = made.as_("centre"), made.as_("west")
    west.add(open_folder(made, "centre", "north"))
    made.run(until=lambda: bool(es.Study(made.url).state().valid))
    with pytest.raises(es.SchemaError):
        centre.table()


# -- outsiders ------------------------------------------------------------------------------------


def test_outsider_speaks_for_nobody(
    begun: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write to the folder signs with a key of her own, or claims that of the receiver."""
    content = {"kind": "exclude", "name": "west", "why": "so"}
    receiver = es.Study(begun.url).state().parties["registry"].signing
    stranger = Identity.new(begun.created.document.id, "registry")
    made = copied(begun, tmp_path / "one")
    say(made, stranger, content)
    assert not es.Study(made.url).state().excluded
    made = copied(begun, tmp_path / "two")
    say(made, stranger, content, by=receiver)
    with pytest.raises(es.FileFormatError):
        es.Study(made.url).state()
    monkeypatch.setattr(transcript, "verifies", lambda key, statement, signature: True)
    assert es.Study(made.url).state().excluded == {"west": "so"}


def test_outsider_exchanges_no_rows(
    begun: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """She puts the folder of one site in the place of another's."""
    made = copied(begun, tmp_path)
    made.run(until=lambda: ("centre", "fit") in made.steps())
    rows = es.Study(made.url).state().rows
    north, west = (Path(made.url, rows[site].folder) for site in ("north", "west"))
    shutil.rmtree(west)
    shutil.copytree(north, west)
    with pytest.raises(es.FileFormatError):
        made.as_("centre").fit()


# -- documents ------------------------------------------------------------------------------------


def test_documents_refuse_copies_and_less_than_128_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = replace(parameters(), copies=2)
    for wrong in (several, replace(parameters(), members=3)):
        with pytest.raises(es.ParameterError):
            world(tmp_path / "wrong", parameters=wrong)
    with monkeypatch.context() as patch:
        patch.setattr(documents, "MIN_SECURITY", 128)
        with pytest.raises(es.ParameterError):
            world(tmp_path / "insecure")
    monkeypatch.setattr(StudyDocument, "_check_parameters", lambda self: None)
    assert world(tmp_path / "both", parameters=several).created.document.parameters.copies == 2


def test_rows_that_count_several_times_pass_where_parameters_have_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies share a weight, so x and y with x^2 - x + y^2 - y = 0 count (x + y) / 2 times."""
    monkeypatch.setattr(StudyDocument, "_check_parameters", lambda self: None)
    made = world(tmp_path / "w", questions=ROWS, parameters=replace(parameters(), copies=2))
    made.with_rows({site: FRAMES[site] for site in SITES[:2]})
    times = bring_unlike_copies(made, "west", FRAMES["west"])
    found = made.run()["bayes"]
    assert all(es.Study(made.url).state().valid.values())
    honest = bayes_totals(*FRAMES.values())
    gained = [int(one) - other for one, other in zip(found.totals_, honest, strict=True)]
    assert max(gained) == times - 1


def test_a_document_that_somebody_else_wrote_is_checked_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maker of a study runs other software: everybody else's refuses the document."""
    with monkeypatch.context() as patch:
        patch.setattr(StudyDocument, "check", lambda self: None)
        made = [
            world(tmp_path / "copies", parameters=replace(parameters(), copies=2)),
            world(tmp_path / "both", worker="registry"),
            world(tmp_path / "openers", key="escrow", openers=1),
            world(
                tmp_path / "joint",
                key="joint",
                questions=HOME,
                parameters=replace(parameters(), members=3),
            ),
            world(
                tmp_path / "site",
                key="joint",
                receiver="north",
                parameters=replace(parameters(), members=3),
            ),
        ]
    for one in made:
        with pytest.raises((es.ParameterError, es.FileFormatError)):
            es.Study(one.url)


def test_keys_of_one_owner_are_never_those_of_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark on the keys of one owner is refused, and would not switch flooding off: the worker
    goes by the parameters.
    """
    owner = es.Owner(parameters())
    with pytest.raises(es.KeyMismatchError):
        mark_as_joint(owner.public_keys())
    with monkeypatch.context() as patch:
        for module in (keyfiles, material):
            patch.setattr(module, "check_joint_parameters", lambda parameters: None)
        mark_as_joint(owner.public_keys()).save(tmp_path / "marked.keys")
        marked = es.PublicKeys.load(tmp_path / "marked.keys")
    with pytest.raises(es.KeyMismatchError):
        es.PublicKeys.load(tmp_path / "marked.keys")

    def is_flooded(keys: es.PublicKeys) -> bool:
        table = keys.encrypt(SCHEMA.table(FRAMES["north"])).accept_others()
        return bool(table._answer_to(BAYES).ciphertexts.flooded)

    assert is_flooded(owner.public_keys())
    assert is_flooded(marked)


def test_ids_of_studies_have_256_bits(tmp_path: Path) -> None:
    made = world(tmp_path / "w").join_all()
    assert len(bytes.fromhex(made.created.document.id)) == 32
    assert made.as_("north").me.study == made.created.document.id


# -- messages before objects ----------------------------------------------------------------------


def is_refused_before_it_is_stored(
    made: World, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Let nobody post, and see whether anything new lies in the folder after an attempt."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise InterruptedError

    before = stored_objects(made)
    with monkeypatch.context() as patch:
        patch.setattr(Transcript, "post", refuse)
        with pytest.raises(InterruptedError):
            act()
    return stored_objects(made) == before


def test_nothing_is_stored_before_its_message_counts(
    begun: World, escrowed: World, masked: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions of the totals of a site would tell their difference, so one is fixed first."""
    made = world(tmp_path / "rows", questions=ROWS).with_rows({})
    assert is_refused_before_it_is_stored(
        made, lambda: made.as_("north").add(FRAMES["north"]), monkeypatch
    )
    home = copied(masked, tmp_path / "masked")
    assert is_refused_before_it_is_stored(
        home, lambda: home.as_("north").add(FRAMES["north"]), monkeypatch
    )
    checked = copied(begun, tmp_path / "checked")
    checked.run(until=lambda: ("centre", "fit") in checked.steps())
    assert is_refused_before_it_is_stored(checked, lambda: checked.as_("centre").fit(), monkeypatch)
    checked.run(until=lambda: bool(es.Study(checked.url).state().valid))
    assert is_refused_before_it_is_stored(checked, lambda: checked.as_("centre").fit(), monkeypatch)
    called = copied(escrowed, tmp_path / "called")
    called.as_("registry").open()
    assert is_refused_before_it_is_stored(called, lambda: called.as_("north").share(), monkeypatch)


def test_totals_are_stored_when_all_members_have_announced_theirs(
    masked: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver who excludes a site after others have announced finds nothing of the old round."""
    made = copied(masked, tmp_path / "one")
    add_masked(made, SITES[:2])
    old = es.Study(made.url).state().round("bayes").objects
    assert not any(map(es.Study(made.url).transcript.has_object, old.values()))
    monkeypatch.setattr(transcript.Round, "complete", property(lambda self: True))
    early = copied(masked, tmp_path / "two")
    early.as_("north").add(FRAMES["north"])
    stored = es.Study(early.url).state().round("bayes").objects
    assert es.Study(early.url).transcript.has_object(stored["north"])


# -- the status -----------------------------------------------------------------------------------


def test_status_names_the_risk_of_every_kind_of_key(begun: World) -> None:
    document = begun.created.document
    asked = {
        "one holder": ("registry", "centre"),
        "escrow": ("registry", "centre"),
        "joint": ("registry", "one site"),
    }
    for kind, words in asked.items():
        risks = replace(document, key=KeyRule(kind, 2)).open_risks
        assert all(word in risks[0] for word in words)
    printed = str(es.Study(begun.url).status())
    assert all(f"risk       {risk}" in printed for risk in document.open_risks)
