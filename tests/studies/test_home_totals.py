"""Totals that sites compute at home: encrypted or masked, they are what all rows together give, and
nobody sees those of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_samples import FRAMES, SCHEMA, SITES, TOGETHER, World, frame, world

import encryptedstats as es
from encryptedstats.circuits.results import Part
from encryptedstats.storage import container
from encryptedstats.studies import totals
from encryptedstats.studies.parties import Identity
from encryptedstats.tables.questions.summaries import Counts
from error_codes import error

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")
BAYES = es.MultinomialNB()


def without_rows(folder: Path, source: str, **options: Any) -> World:
    made = world(
        folder, questions={"bayes": (BAYES, source), "ages": (Counts((0, -1)), source)}, **options
    ).join_all()
    if source == "totals":
        made.as_("registry").keygen(made.key)
    return made


def add_all(made: World, sites: tuple[str, ...] = SITES) -> None:
    """Let sites announce their totals, and then store them, which they do when all are
    announced.
    """
    for site in sites:
        made.as_(site).add(FRAMES[site])
    for site in sites:
        made.as_(site).share()


@pytest.mark.parametrize("source", ["totals", "masked"])
def test_totals_from_home_are_those_of_all_rows(tmp_path: Path, source: str) -> None:
    made = without_rows(tmp_path / "w", source)
    found = made.run()
    assert list(found["bayes"].totals_) == list(
        es.MultinomialNB().fit(SCHEMA.table(TOGETHER)).totals_
    )
    assert found["ages"].equals(SCHEMA.table(TOGETHER).counts("age", by="class"))
    assert found["bayes"].n_rows_ == len(TOGETHER)
    assert made.steps() == []
    again = made.as_("registry").open(made.key)
    assert list(again["bayes"].totals_) == list(found["bayes"].totals_)


def test_masked_totals_need_no_key(tmp_path: Path) -> None:
    made = without_rows(tmp_path / "w", "masked", parameters=None)
    assert made.steps() == [(site, "add") for site in SITES]


def test_masks_wait_for_everybody(tmp_path: Path) -> None:
    made = world(tmp_path / "w", questions={"bayes": (BAYES, "masked")})
    for name in ("north", "south", "centre"):
        es.Study.join(made.url, made.created.invitations[name], made.identity(name))
    with pytest.raises(es.StudyError, check=error("not-all-joined")):
        made.as_("north").add(FRAMES["north"])
    for name in ("west", "registry"):
        es.Study.join(made.url, made.created.invitations[name], made.identity(name))
    assert list(made.run()["bayes"].totals_) == list(
        es.MultinomialNB().fit(SCHEMA.table(TOGETHER)).totals_
    )


def test_what_a_site_sends_is_uniform_and_vanishes_in_the_sum_alone(tmp_path: Path) -> None:
    made = without_rows(tmp_path / "w", "masked")
    add_all(made)
    registry = made.as_("registry")
    state = registry.state()
    now = state.round("bayes")
    seen = {}
    for site in SITES:
        sealed = registry.transcript.read_object(now.objects[site])
        data = registry.me.reader.open(sealed, totals.bind(registry, "bayes", now, site))
        seen[site] = [int.from_bytes(data[i : i + 32], "big") for i in range(0, len(data), 32)]
    values = {
        site: totals.site_values(
            state.document.questions["bayes"].question, SCHEMA.table(FRAMES[site])
        )
        for site in SITES
    }
    for site in SITES:
        assert all(one > 1 << 200 for one in seen[site])  # but for one in 2^56 each
        others = [
            sum(pair) % (1 << 256)
            for pair in zip(*(seen[other] for other in SITES if other != site), strict=True)
        ]
        assert all(one > 1 << 200 for one in others)
    together = [sum(column) % (1 << 256) for column in zip(*seen.values(), strict=True)]
    assert together == [sum(column) for column in zip(*values.values(), strict=True)]


def test_masks_are_for_one_study_question_round_and_list_of_members(tmp_path: Path) -> None:
    made = without_rows(tmp_path / "w", "masked")
    north, state = made.as_("north"), made.as_("north").state()
    from encryptedstats.studies.transcript import Round

    def mask(
        question: str = "bayes", number: int = 0, members: tuple[str, ...] = SITES
    ) -> list[int]:
        return totals._mask(north, state, question, Round(number, members), "south", 3)

    assert mask() == mask()
    assert mask() == totals._mask(made.as_("south"), state, "bayes", Round(0, SITES), "north", 3)
    others = [mask("ages"), mask(number=1), mask(members=SITES[:2])]
    assert all(one != mask() for one in others)
    assert len({tuple(one) for one in others}) == 3


def test_other_bytes_under_one_binding_are_never_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site is killed between storing its totals and saying so; its rows are others when it comes
    back.
    """
    made = without_rows(tmp_path / "w", "masked")
    north = made.as_("north")
    with monkeypatch.context() as patch:
        patch.setattr(es.Study, "post", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            north.add(FRAMES["north"])
    made.as_("north").add(frame(77))
    for site in SITES[1:]:
        made.as_(site).add(FRAMES[site])
    for site in SITES:
        made.as_(site).share()
    found, together = made.as_("registry").open(), SCHEMA.table(TOGETHER)
    assert found["ages"].equals(
        together.counts("age", by="class")
    )  # what was stored first is what was sent
    assert list(found["bayes"].totals_) != list(
        es.MultinomialNB().fit(together).totals_
    )  # nothing was stored of it before
    state = north.state()
    with pytest.raises(es.StudyError, check=error("refused-message")):
        north.post(
            "totals",
            {"question": "bayes", "round": 0, "object": state.round("bayes").objects["south"]},
        )


def test_nobody_sends_totals_in_the_name_of_a_site(tmp_path: Path) -> None:
    """Who can write to the shared folder puts totals there, wherever a site might look for what it
    has made before.
    """
    made = without_rows(tmp_path / "w", "totals")
    keys, forged = es.Study(made.url).public_keys(), SCHEMA.table(frame(77))
    for name, asked in made.created.document.questions.items():
        data = container.to_bytes(
            totals.encrypt_answer(asked.question, forged, keys).to_container()
        )
        for place in (
            f"once/totals/{name}/0/north",
            f"totals-{name}-0",
            f"north.id.sent/totals-{name}-0",
        ):
            file = Path(made.url, place)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    for site in SITES:
        made.as_(site).add(FRAMES[site])
    found = made.run()
    assert list(found["bayes"].totals_) == list(
        es.MultinomialNB().fit(SCHEMA.table(TOGETHER)).totals_
    )
    kept = made.folder / "north.id.sent"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept.iterdir())


def test_a_dropout_restarts_the_round_under_other_masks(tmp_path: Path) -> None:
    made = without_rows(tmp_path / "w", "masked")
    for site in SITES[:2]:
        made.as_(site).add(FRAMES[site])
    registry = made.as_("registry")
    assert registry.open() == {}
    old = registry.state().round("bayes").objects["north"]
    assert not registry.transcript.has_object(
        old
    )  # nothing is stored before all have announced their totals
    registry.exclude("west", "west does not answer")
    with pytest.raises(es.StudyError, check=error("refused-message", "1")):
        made.as_("north").post("totals", {"question": "bayes", "round": 0, "object": old})
    assert made.steps() == [(site, "add") for site in SITES[:2]]
    add_all(made, SITES[:2])
    made.as_("west").add(FRAMES["west"])  # not in this round: says nothing
    found = made.as_("registry").open()
    assert found["bayes"].n_rows_ == 60


def test_two_sums_that_would_tell_the_totals_of_one_are_refused(tmp_path: Path) -> None:
    """All have announced their totals of one of two questions: nobody is excluded from
    the other.
    """
    made = without_rows(tmp_path / "w", "masked")
    for site in SITES:
        party = made.as_(site)
        party._add_totals("bayes", SCHEMA.table(FRAMES[site]))
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("registry").exclude("west", "let us see")
    assert {one.members for one in es.Study(made.url).state().rounds.values()} == {SITES}


def test_a_wrong_mask_is_noticed_by_the_number_of_rows(tmp_path: Path) -> None:
    made = without_rows(tmp_path / "w", "masked")
    for site in SITES[:2]:
        made.as_(site).add(FRAMES[site])
    west = made.as_("west")
    stranger = Identity.new(west.document.id, "west")
    west._me, real = stranger, west._me  # other secrets, hence other masks
    state = west.state()
    bad = totals.mask_totals(
        west, state, "bayes", totals.site_values(BAYES.in_ids(SCHEMA), SCHEMA.table(FRAMES["west"]))
    )
    west._me = real
    west.post(
        "totals", {"question": "bayes", "round": 0, "object": west.transcript.store_object(bad)}
    )
    for site in SITES[:2]:
        made.as_(site).share()
    with pytest.raises(es.FileFormatError, check=error("impossible-row-count")):
        made.as_("registry").open()


def test_encrypted_totals_are_fresh_and_add_up(tmp_path: Path) -> None:
    """Packs as a worker's, with the noise of a fresh encryption: nothing of the rows is in it."""
    made = without_rows(tmp_path / "w", "totals")
    keys = made.as_("north").public_keys()
    asked = made.created.document.questions["bayes"].question
    one, two = (
        totals.encrypt_answer(asked, SCHEMA.table(FRAMES[site]), keys) for site in SITES[:2]
    )
    owner = es.Owner.load(made.key or "")
    both = es.MultinomialNB().fit(SCHEMA.table(TOGETHER[:60]))
    assert list(owner.open(one + two, schema=SCHEMA).totals_) == list(both.totals_)
    assert (one.ciphertexts.parts[0].residues != two.ciphertexts.parts[0].residues).any()


@pytest.mark.parametrize("factor", [1e-6, 1.5])
def test_a_site_does_not_say_how_much_noise_its_totals_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """Members of a joint key flood by what is proven of the noise: a site that says less than there
    is would weaken all of them.
    """
    made = without_rows(tmp_path / "w", "totals")
    honest = totals.encrypt_answer

    def lying(*args: Any) -> es.EncryptedAnswer:
        answer = honest(*args)
        parts = [Part(part.residues, part.noise.times(factor)) for part in answer.ciphertexts.parts]
        answer.ciphertexts.parts = tuple(parts)
        return answer

    for site in SITES:
        with monkeypatch.context() as patch:
            if site == "south":
                patch.setattr(totals, "encrypt_answer", lying)
            made.as_(site).add(FRAMES[site])
    for site in SITES:
        made.as_(site).share()
    with pytest.raises(es.FileFormatError, check=error("false-noise")):
        made.as_("centre").fit()


def test_a_file_of_rows_at_home(tmp_path: Path) -> None:
    made = without_rows(tmp_path / "w", "masked")
    for site in SITES:
        FRAMES[site].to_csv(tmp_path / f"{site}.csv", index=False)
        made.as_(site).add(tmp_path / f"{site}.csv")
    assert list(made.run()["bayes"].totals_) == list(
        es.MultinomialNB().fit(SCHEMA.table(TOGETHER)).totals_
    )


def test_cut_points_are_agreed_on_by_masked_counts_over_a_grid(tmp_path: Path) -> None:
    """Nobody sees the ages of one site: a fine grid that everybody knows, and the sum of the counts
    in it.
    """
    fine = SCHEMA.with_bins("age", edges=range(20, 80))
    made = world(
        tmp_path / "w", schema=fine, questions={"ages": (Counts((0,)), "masked")}
    ).join_all()
    add_all(made)
    counts = made.as_("registry").open()["ages"]["count"]
    agreed = fine.with_quantiles("age", counts, bins=4)
    edges, ages = agreed["age"].edges, TOGETHER["age"]
    assert len(edges) == 3
    for share, edge in zip((0.25, 0.5, 0.75), edges, strict=True):
        assert (ages <= edge).mean() >= share > (ages <= edge - 1).mean()
