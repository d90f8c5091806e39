"""Attack the rounds of procedures across sites, with every rule and without it.

An attack that a rule stops is tried twice: with the rule it fails, and with the rule taken out it
succeeds. An attack that no rule stops succeeds, and its test says "limit".
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from attack_tools import forget_messages, say
from round_samples import (
    FRAMES,
    SCHEMA,
    SITES,
    TOGETHER,
    Above,
    Groups,
    Powers,
    Rounds,
    Spread,
    frame,
    in_rounds,
)
from study_samples import copied

import encryptedstats as es
from encryptedstats.procedures.site_procedure import RowLimits, SiteCourse, state_digest
from encryptedstats.studies import documents, rounds, totals
from encryptedstats.studies.documents import StudyDocument
from encryptedstats.studies.runs import SiteStep
from encryptedstats.studies.transcript import StudyState
from error_codes import error

Patch = pytest.MonkeyPatch
FEW = {site: frame(number, 2) for number, site in enumerate(SITES)}
FOUR = (*SITES, "east")


def follow(made: Rounds, who: str, name: str = "spread") -> SiteCourse:
    """What a member knows: all sums, and the state that follows from them."""
    study = made.as_(who)
    found = rounds.follow(study, name, study.state())
    assert found is not None
    return found


def sums_of(made: Rounds, who: str, number: int, name: str = "spread") -> list[int]:
    """What a member reads in one step: the sums over all sites."""
    study = made.as_(who)
    step = study.state().runs[name].steps[number]
    parts = {site: rounds._open_totals(study, name, step, site) for site in step.members}
    return totals.add_masked(parts, len(parts[step.members[0]]) // 32, name)


def masked_by(made: Rounds, site: str, number: int, name: str = "spread") -> list[int]:
    """What a member finds in the envelope of a site: its totals under masks."""
    study = made.as_("registry")
    step = study.state().runs[name].steps[number]
    data = rounds._open_totals(study, name, step, site)
    return [int.from_bytes(data[start : start + 32], "big") for start in range(0, len(data), 32)]


def measured(site: str, number: int = 1, procedure: Any = None) -> list[int]:
    """What a site measures in a round: its secret."""
    course = SiteCourse((procedure or Spread()).in_ids(SCHEMA), SCHEMA.public())
    tables = {one: SCHEMA.table(rows) for one, rows in FRAMES.items()}
    while course.number < number:
        parts = [course.measure(one) for one in tables.values()]
        course.take([sum(column) for column in zip(*parts, strict=True)])
    return course.measure(tables[site])


def stops(made: Rounds, name: str) -> set[str]:
    return set(es.Study(made.url).state().runs[name].stopped.values())


# -- how many sites -------------------------------------------------------------------------------


def read_the_other(folder: Path) -> list[int]:
    """As one of two sites, subtract your own totals from the sum."""
    made = in_rounds(folder, sites=SITES[:2]).until_step(2)
    mine = follow(made, "north")
    assert mine.number == 2
    own = SiteCourse(Spread().in_ids(SCHEMA), SCHEMA.public())
    own.take(sums_of(made, "north", 0))
    north = own.measure(SCHEMA.table(FRAMES["north"]))
    return [one - other for one, other in zip(sums_of(made, "north", 1), north, strict=True)]


def test_two_sites_have_no_rounds(tmp_path: Path, monkeypatch: Patch) -> None:
    with pytest.raises(es.ParameterError, check=error("too-few-sites")):
        in_rounds(tmp_path / "refused", sites=SITES[:2])
    with monkeypatch.context() as patch:
        patch.setattr(documents, "MIN_ROUND_SITES", 2)
        made = in_rounds(tmp_path / "w", sites=SITES[:2])
    with pytest.raises(es.FileFormatError, check=error("malformed-study")):
        made.as_("north")


def test_one_of_two_sites_reads_the_other_in_every_round(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(documents, "MIN_ROUND_SITES", 2)
    assert read_the_other(tmp_path / "w") == measured("south")


def test_nobody_is_excluded_where_two_sites_would_be_left(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w")
    with pytest.raises(es.StudyError, check=error("refused-message", 3)):
        made.as_("registry").exclude("west", "does not come")


def test_limit_all_other_sites_read_the_totals_of_the_last(tmp_path: Path) -> None:
    """They need no receiver: everybody sees the sums."""
    made = in_rounds(tmp_path / "w").until_step(2)
    others = [measured(site) for site in SITES[1:]]
    found = [one - sum(rest) for one, *rest in zip(sums_of(made, "south", 1), *others, strict=True)]
    assert found == measured("north")
    assert any("all sites but one" in risk for risk in made.created.document.open_risks)


def test_a_site_and_the_receiver_do_not_read_the_totals_of_another(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w").until_step(2)
    west = made.as_("west")
    state = west.state()
    step = state.runs["spread"].steps[1]
    values = masked_by(made, "north", 1)
    mask = totals._mask(west, state, "spread", step, "north", len(values))
    without = [(one + other) % (1 << 256) for one, other in zip(values, mask, strict=True)]
    assert all(one > 1 << 200 for one in [*values, *without])  # but for one in 2^56 each


def test_readers_of_the_folder_and_the_worker_see_no_sum(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w").until_step(2)
    worker = made.as_("centre")
    step = worker.state().runs["spread"].steps[1]
    with pytest.raises(es.StudyError, check=error("sealed-for-others")):
        rounds._open_totals(worker, "spread", step, "north")


# -- the state ------------------------------------------------------------------------------------


def announce(made: Rounds, site: str, number: int, mark: str, data: bytes) -> None:
    """Announce totals in a state of one's own choice, without asking the rules."""
    content = {"kind": rounds.STEP, "question": "spread", "attempt": 0, "step": number}
    digest = hashlib.sha256(data).hexdigest()
    say(made, made.as_(site).me, {**content, "state": mark, "object": digest})


def sent_in_another_state(made: Rounds, number: int, *, last: bool) -> list[str]:
    """As west, announce another state than follows; whose totals are stored in that step then."""
    others = [site for site in SITES if site != "west"]

    def let_others_go_on() -> None:
        for site in others:
            with suppress(es.StudyError):  # of another state, or nothing is due
                made.as_(site).add(made.frames[site])
                made.as_(site).share()

    if last:
        let_others_go_on()
    chosen = state_digest({"round": 0, "mean": 77.0, "variance": 0.0})
    announce(made, "west", number, chosen, b"mine")
    let_others_go_on()
    study = es.Study(made.url)
    step = study.state().runs["spread"].steps[number]
    has = study.transcript.has_object
    return [site for site in others if site in step.objects and has(step.objects[site])]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    """Rows are counted, and nothing is measured."""
    return in_rounds(tmp_path_factory.mktemp("begun") / "w").until_step(1)


@pytest.fixture(scope="module")
def measured_once(begun: Rounds, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    return again(begun, tmp_path_factory.mktemp("once")).until_step(2)


def again(made: Rounds, folder: Path) -> Rounds:
    return Rounds.of(copied(made, folder), made.frames)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_a_state_that_does_not_follow_is_refused_by_every_site(
    begun: Rounds, measured_once: Rounds, tmp_path: Path, number: int, last: bool
) -> None:
    """At the start, and after sums: the hash is of both."""
    made = again(begun if number == 1 else measured_once, tmp_path)
    assert sent_in_another_state(made, number, last=last) == []
    with pytest.raises(es.StudyError, check=error("other-state", "west")):
        made.as_("north").add(FRAMES["north"])
    with pytest.raises(es.StudyError, check=error("other-state", "west")):
        made.as_("registry").open()


@pytest.mark.parametrize("number", [1, 2])
def test_sites_that_do_not_compare_states_send_in_that_of_another(
    begun: Rounds, measured_once: Rounds, tmp_path: Path, monkeypatch: Patch, number: int
) -> None:
    made = again(begun if number == 1 else measured_once, tmp_path)
    monkeypatch.setattr(rounds, "check_states", lambda name, step, own: None)
    monkeypatch.setattr(SiteStep, "agreed", SiteStep.complete)
    assert sent_in_another_state(made, number, last=True) == ["north", "south"]


def test_the_start_is_in_the_document(tmp_path: Path, monkeypatch: Patch) -> None:
    made = in_rounds(tmp_path / "w")
    monkeypatch.setattr(Spread, "start", lambda self, schema: {"round": 0, "mean": 77.0})
    with pytest.raises(es.FileFormatError, check=error("malformed-study")):
        made.as_("north")


def test_marks_of_states_tell_readers_of_the_folder_nothing(
    begun: Rounds, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The number of rows of all sites is opened for members alone: others try it out."""

    def rows_by_trying(made: Rounds) -> list[int]:
        for site in SITES:  # announce the state that follows from the number of rows
            made.as_(site).add(FRAMES[site])
        seen = set(es.Study(made.url).state().runs["spread"].steps[1].states.values())
        start = {"mean": 0.5, "round": 0, "variance": 0.0}
        tried = {n: state_digest([state_digest(start), [n, 0], start]) for n in range(1, 1000)}
        return [n for n, mark in tried.items() if mark in seen]

    assert rows_by_trying(again(begun, tmp_path / "with")) == []
    monkeypatch.setattr(rounds, "mark_state", lambda study, course: course.digest)
    assert rows_by_trying(in_rounds(tmp_path / "w").until_step(1)) == [len(TOGETHER)]


# -- how many rows --------------------------------------------------------------------------------


@contextmanager
def rules_of_rows_removed(patch: Patch, *names: str) -> Iterator[None]:
    """Take out a rule for the number of rows, wherever it is enforced."""
    limits = RowLimits(**dict.fromkeys(names, 0))
    with patch.context() as inner:
        inner.setattr(StudyDocument, "limits", property(lambda self: limits))
        yield


def values_from_powers(sums: list[int]) -> list[int]:
    """Find as many whole numbers as there are sums of their powers, by Newton's identities."""
    elementary = [1.0]
    for k in range(1, len(sums) + 1):
        terms = [(-1) ** (i - 1) * elementary[k - i] * sums[i - 1] for i in range(1, k + 1)]
        elementary.append(sum(terms) / k)
    polynomial = [(-1) ** k * one for k, one in enumerate(elementary)]
    return sorted(round(one.real) for one in np.roots(polynomial))


def ages(frames: Mapping[str, pd.DataFrame]) -> list[int]:
    return sorted(int(one) for rows in frames.values() for one in rows["age"])


def run_powers(folder: Path) -> tuple[Rounds, dict[str, Any]]:
    made = in_rounds(folder, {"powers": Powers()})
    made.frames = FEW
    return made, made.run()


def test_more_numbers_than_rows_carry_are_not_opened(tmp_path: Path) -> None:
    """The document plans for many rows, and the sites have six: nothing but this is opened."""
    with pytest.raises(es.DisclosureError, check=error("too-few-rows-for-rounds", 10)):
        in_rounds(tmp_path / "refused", {"powers": Powers()}, n_rows=6)
    made, found = run_powers(tmp_path / "w")
    assert found == {}
    assert stops(made, "powers") == {"too-few-rows-for-rounds"}
    assert len(es.Study(made.url).state().runs["powers"].sums) == 1


def test_fewer_rows_than_three_for_a_parameter_are_not_opened(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    with rules_of_rows_removed(monkeypatch, "per_number"):
        made, found = run_powers(tmp_path / "w")
        assert found == {}
        assert stops(made, "powers") == {"too-many-parameters"}


def test_as_many_sums_as_rows_tell_every_row(tmp_path: Path, monkeypatch: Patch) -> None:
    with rules_of_rows_removed(monkeypatch, "per_number", "per_parameter"):
        _, found = run_powers(tmp_path / "w")
        assert values_from_powers(found["powers"]["sums"]) == ages(FEW)


def lonely() -> dict[str, pd.DataFrame]:
    """One person alone is in ward c, at north."""
    rows = {site: one.assign(ward=one["ward"].replace("c", "a")) for site, one in FRAMES.items()}
    rows["north"].loc[7, "ward"] = "c"
    return rows


def run_groups(folder: Path) -> tuple[Rounds, dict[str, Any]]:
    made = in_rounds(folder, {"groups": Groups()})
    made.frames = lonely()
    return made, made.run()


def test_groups_of_few_are_not_summed(tmp_path: Path) -> None:
    made, found = run_groups(tmp_path / "w")
    assert found == {}
    assert stops(made, "groups") == {"small-count"}
    assert len(es.Study(made.url).state().runs["groups"].sums) == 2
    assert "small-count" in str(es.Study(made.url).status())
    assert made.steps() == []


def test_a_group_of_one_is_its_person(tmp_path: Path, monkeypatch: Patch) -> None:
    with rules_of_rows_removed(monkeypatch, "minimum"):
        _, found = run_groups(tmp_path / "w")
        assert found["groups"]["sums"][2] == lonely()["north"]["age"][7]


def test_a_minimum_that_protects_nobody_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    with pytest.raises(es.ParameterError, check=error("minimum-too-small")):
        in_rounds(tmp_path / "refused", {"groups": Groups()}, minimum=1)
    monkeypatch.setattr(documents, "LEAST_MINIMUM", 1)
    made = in_rounds(tmp_path / "w", {"groups": Groups()}, minimum=1)
    made.frames = lonely()
    assert made.run()["groups"]["sums"][2] == lonely()["north"]["age"][7]


def test_limit_a_site_with_false_counts_reads_a_group_of_one(tmp_path: Path) -> None:
    """West says that nine more are in the ward, and knows what it has added."""
    made = in_rounds(tmp_path / "w", {"groups": Groups()})
    made.frames = lonely()
    rows = made.frames["west"].copy()
    rows.loc[:8, ["ward", "age"]] = ["c", 20]
    made.frames = {**made.frames, "west": rows}
    found = made.run()["groups"]
    assert found["counts"][2] == 10
    assert found["sums"][2] - 9 * 20 == lonely()["north"]["age"][7]
    assert any("false totals" in risk for risk in made.created.document.open_risks)


# -- how many rounds ------------------------------------------------------------------------------


class Endless(Powers):
    """It says that it opens one number, and is never done."""

    at_most = 1

    def is_done(self, state: Any) -> bool:
        return False

    def n_opened(self, schema: Any) -> int:
        return 1

    def n_parameters(self, schema: Any) -> int:
        return 1


def run_endless(folder: Path) -> tuple[Rounds, int]:
    made = in_rounds(folder, {"powers": Endless()})
    made.frames = {site: frame(number, 10) for number, site in enumerate(SITES)}
    for _ in range(20):
        made.all_add()
        if es.Study(made.url).state().runs["powers"].stopped:
            break
    return made, len(es.Study(made.url).state().runs["powers"].sums)


def test_rounds_are_bounded(tmp_path: Path, monkeypatch: Patch) -> None:
    made, opened = run_endless(tmp_path / "w")
    assert opened == 2
    assert stops(made, "powers") == {"too-many-rounds"}
    monkeypatch.setattr(Endless, "at_most", 8)
    made, opened = run_endless(tmp_path / "numbers")
    assert opened == 2
    assert stops(made, "powers") == {"too-many-numbers"}


def test_messages_of_more_rounds_than_agreed_are_refused(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Sites whose own programs do not count rounds."""
    monkeypatch.setattr(SiteCourse, "_check_next", lambda self: None)
    made = in_rounds(tmp_path / "w", {"powers": Endless()})
    made.until_step(2, "powers")
    with pytest.raises(es.StudyError, check=error("refused-message", 1)):
        made.as_("north").add(FRAMES["north"])


def test_rounds_without_a_bound_open_ever_more(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(SiteCourse, "_check_next", lambda self: None)
    monkeypatch.setattr(Endless, "at_most", 100)
    made = in_rounds(tmp_path / "w", {"powers": Endless()}).until_step(7, "powers")
    assert len(sums_of(made, "north", 6, "powers")) == 2


# -- one start ------------------------------------------------------------------------------------

TWO_STARTS = {"first": Above(cut=50), "second": Above(cut=51)}


def test_a_procedure_runs_once_in_a_study(tmp_path: Path, monkeypatch: Patch) -> None:
    with pytest.raises(es.ParameterError, check=error("repeated-procedure")):
        in_rounds(tmp_path / "refused", TWO_STARTS)
    with monkeypatch.context() as patch:
        patch.setattr(StudyDocument, "_check_run_once", lambda self: None)
        made = in_rounds(tmp_path / "w", TWO_STARTS)
    with pytest.raises(es.FileFormatError, check=error("malformed-study")):
        made.as_("north")


def test_two_starts_tell_who_is_between_them(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(StudyDocument, "_check_run_once", lambda self: None)
    found = in_rounds(tmp_path / "w", TWO_STARTS).run()
    between = found["first"]["count"] - found["second"]["count"]
    assert between == sum(TOGETHER["age"] == 50) < RowLimits().minimum


# -- members --------------------------------------------------------------------------------------


def four(folder: Path) -> Rounds:
    made = in_rounds(folder, sites=FOUR)
    made.frames = {**FRAMES, "east": frame(9)}
    return made


def difference(made: Rounds) -> list[int]:
    """Exclude east after a sum is known, get a second sum, and subtract."""
    first = sums_of(made, "registry", 1)
    made.as_("registry").exclude("east", "does not come")
    made.until_step(2)
    second = sums_of(made, "registry", 1)
    return [one - other for one, other in zip(first, second, strict=True)]


def test_nobody_is_excluded_after_a_round(tmp_path: Path) -> None:
    made = four(tmp_path / "w").until_step(2)
    with pytest.raises(es.StudyError, check=error("refused-message")):
        difference(made)
    content = {"kind": "exclude", "name": "east", "why": "does not come"}
    say(made, made.as_("registry").me, content)
    assert not es.Study(made.url).state().excluded


def test_nobody_is_excluded_once_all_have_announced_a_first_round(tmp_path: Path) -> None:
    """Not even before anything is stored: members store without another word."""
    made = four(tmp_path / "w")
    made.all_add()
    assert es.Study(made.url).state().runs["spread"].begun
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("registry").exclude("east", "does not come")


def test_a_second_sum_without_one_site_tells_its_totals(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(StudyState, "has_complete_question", property(lambda self: False))
    made = four(tmp_path / "w").until_step(2)
    own = SiteCourse(Spread().in_ids(SCHEMA), SCHEMA.public())
    own.take(sums_of(made, "registry", 0))
    assert difference(made) == own.measure(SCHEMA.table(made.frames["east"]))


def test_a_site_that_disappears_before_the_first_round_is_left_out(tmp_path: Path) -> None:
    made = four(tmp_path / "w")
    for site in SITES:
        made.as_(site).add(FRAMES[site])
    assert made.steps() == [("east", "add")]
    before = es.Study(made.url).state().runs["spread"].current.objects["north"]
    made.as_("registry").exclude("east", "does not come")
    with pytest.raises(es.StudyError, check=error("refused-message")):
        made.as_("north").post(
            rounds.STEP,
            {"question": "spread", "attempt": 0, "step": 0, "state": "0" * 64, "object": before},
        )
    found = made.run()["spread"]
    assert found["mean"] == pytest.approx(TOGETHER["age"].mean(), rel=1e-10)
    assert not es.Study(made.url).transcript.has_object(before)


# -- replays --------------------------------------------------------------------------------------


def replay(made: Rounds) -> list[int] | None:
    """As west, give the totals of round 1 again in round 2; what the members add up then."""
    study = made.as_("west")
    old = study.state().runs["spread"].steps[1].objects["west"]
    mark = rounds.mark_state(study, follow(made, "west"))
    content = {"question": "spread", "attempt": 0, "step": 2, "state": mark, "object": old}
    say(made, study.me, {"kind": rounds.STEP, **content})
    if "west" not in es.Study(made.url).state().runs["spread"].steps[2].objects:
        return None
    for _ in range(2):
        for site in ("north", "south"):
            made.as_(site).add(FRAMES[site])
    return sums_of(made, "north", 2)


def test_totals_of_an_earlier_round_do_not_count_again(
    measured_once: Rounds, tmp_path: Path, monkeypatch: Patch
) -> None:
    assert replay(again(measured_once, tmp_path / "rule")) is None
    monkeypatch.setattr(rounds, "refuse_replayed", lambda state, digest: None)
    with pytest.raises(es.KeyMismatchError, check=error("altered-envelope")):
        replay(again(measured_once, tmp_path / "envelope"))


@contextmanager
def one_place_for_all_rounds(patch: Patch) -> Iterator[None]:
    with patch.context() as inner:
        inner.setattr(SiteStep, "place", property(lambda self: [0]))
        yield


def test_totals_of_an_earlier_round_count_where_nothing_is_bound_to_it(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(rounds, "refuse_replayed", lambda state, digest: None)
    with one_place_for_all_rounds(monkeypatch):
        made = in_rounds(tmp_path / "w").until_step(2)
        honest = [measured(site, 2) for site in ("north", "south")]
        expected = [sum(one) for one in zip(*honest, measured("west", 1), strict=True)]
        assert replay(made) == expected


def test_masks_are_new_in_every_round(tmp_path: Path, monkeypatch: Patch) -> None:
    """The receiver subtracts what a site sends in two rounds, which is zero in the clear."""

    def differences(folder: Path) -> list[int]:
        made = in_rounds(folder, {"spread": Spread(rounds=3)}).until_step(4)
        pairs = zip(masked_by(made, "north", 2), masked_by(made, "north", 3), strict=True)
        return [(one - other) % (1 << 256) for one, other in pairs]

    assert all(one.bit_length() > 200 for one in differences(tmp_path / "with"))
    with one_place_for_all_rounds(monkeypatch):
        assert differences(tmp_path / "without") == [0, 0, 0]


# -- rows that change -----------------------------------------------------------------------------


def exchange_one(made: Rounds) -> int:
    """Between two equal rounds north exchanges one person; what the sums tell of the two."""
    rows = FRAMES["north"].copy()
    rows.loc[0, "age"] += 7
    made.frames = {**made.frames, "north": rows}
    made.until_step(4)
    return sums_of(made, "west", 3)[1] - sums_of(made, "west", 2)[1]


def test_rows_stay_the_same_in_all_rounds(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w", {"spread": Spread(rounds=3)}).until_step(3)
    with pytest.raises(es.StudyError, check=error("other-rows")):
        exchange_one(made)


def test_two_rounds_of_other_rows_tell_who_was_exchanged(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    made = in_rounds(tmp_path / "w", {"spread": Spread(rounds=3)}).until_step(3)
    monkeypatch.setattr(rounds, "check_rows_stay", lambda study, run, table: None)
    mean, age = follow(made, "west").state["mean"], int(FRAMES["north"]["age"][0])
    found = exchange_one(made) / (1 << 40)
    assert found == pytest.approx((age + 7 - mean) ** 2 - (age - mean) ** 2, rel=1e-6)


def lose_files(made: Rounds, site: str) -> None:
    """A site restores its identity, and has nothing left of what it has sent."""
    forget_messages(made, site)
    shutil.rmtree(made.folder / f"{site}.id.sent")


def test_rows_stay_the_same_where_a_site_has_lost_its_files(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w", {"spread": Spread(rounds=3)}).until_step(3)
    lose_files(made, "north")
    with pytest.raises(es.StudyError, check=error("other-rows")):
        exchange_one(made)


def test_an_identity_without_its_files_takes_no_part(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w").until_step(1)
    (made.folder / "north.id.seen").unlink()
    with pytest.raises(es.StudyError, check=error("files-at-home-missing", "north.id.seen")):
        made.as_("north")


def differ_under_one_mask(made: Rounds) -> list[int]:
    """As host and receiver, cut the messages back to before the rounds, have north begin again with
    other rows after it has lost its files, and subtract what it sends in round 1.
    """
    before = set(Path(made.url, "messages").iterdir())
    first = masked_by(made.until_step(2), "north", 1)
    for message in set(Path(made.url, "messages").iterdir()) - before:
        message.unlink()
    lose_files(made, "north")
    for other in (*SITES[1:], "registry"):  # who are in league, or have lost theirs as well
        forget_messages(made, other)
    rows = FRAMES["north"].copy()
    rows.loc[0, "age"] += 7
    made.frames = {**made.frames, "north": rows}
    second = masked_by(made.until_step(2), "north", 1)
    return [(one - other) % (1 << 256) for one, other in zip(second, first, strict=True)]


def test_other_rows_are_under_other_masks(tmp_path: Path, monkeypatch: Patch) -> None:
    found = differ_under_one_mask(in_rounds(tmp_path / "with"))
    assert all(one.bit_length() > 200 for one in found)
    place = SiteStep.place.fget
    assert place is not None
    monkeypatch.setattr(SiteStep, "place", property(lambda self: place(replace(self, rows=""))))
    assert differ_under_one_mask(in_rounds(tmp_path / "without")) == [0, 7 << 40, 0]


def test_limit_the_numbers_of_rows_are_under_one_mask(tmp_path: Path) -> None:
    """What rows there are is said in round 0, together with how many."""
    made = in_rounds(tmp_path / "w")
    before = set(Path(made.url, "messages").iterdir())
    first = masked_by(made.until_step(1), "north", 0)
    for message in set(Path(made.url, "messages").iterdir()) - before:
        message.unlink()
    for site in (*SITES, "registry"):
        forget_messages(made, site)
    lose_files(made, "north")
    made.frames = {**made.frames, "north": FRAMES["north"].iloc[3:]}
    second = masked_by(made.until_step(1), "north", 0)
    assert [one - other for one, other in zip(first, second, strict=True)] == [3, 0]


def test_sums_of_another_number_of_rows_stop_the_procedure(tmp_path: Path) -> None:
    """Of masks that do not cancel, or of rows that came or went."""
    made = in_rounds(tmp_path / "w").until_step(1)
    rows = FRAMES["west"].iloc[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "check_rows_stay", lambda study, run, table: None)
        made.frames = {**made.frames, "west": rows}
        assert made.run() == {}
    assert stops(made, "spread") == {"impossible-row-count"}


# -- objects that nobody can open -----------------------------------------------------------------


@pytest.mark.parametrize("too_few", [False, True])
def test_an_object_that_cannot_be_read_stops_one_procedure_alone(
    tmp_path: Path, monkeypatch: Patch, too_few: bool
) -> None:
    """Not the whole study of everybody: others are added up, and opened."""
    made = in_rounds(tmp_path / "w", {"spread": Spread(), "groups": Groups()})
    made.until_step(1)
    west = made.as_("west")
    mark = rounds.mark_state(west, follow(made, "west"))
    data = b"nothing that opens" * 40
    if too_few:
        state = west.state()
        step = SiteStep(1, SITES, attempt=0, states={"west": mark})
        data = rounds._seal_for_members(west, state, "spread", step, bytes(32))
    announce(made, "west", 1, mark, data)
    for site in ("north", "south"):
        made.as_(site).add(FRAMES[site])
    west.transcript.store_object(data)
    found = made.run()
    assert set(found) == {"groups"}
    assert stops(made, "spread") <= {"altered-envelope", "wrong-number-of-totals"}
    assert stops(made, "spread")


class TooLarge(Spread):
    """Rows of one site lead to totals that no round can carry."""

    def measure(self, state: Any, table: Any) -> list[int]:
        raise es.DataError("a total is too large", code="total-too-large")


def test_a_site_that_cannot_measure_goes_on_with_other_procedures(tmp_path: Path) -> None:
    made = in_rounds(tmp_path / "w", {"spread": TooLarge(), "groups": Groups()})
    for _ in range(5):
        for site in SITES:
            with suppress(es.DataError):
                made.as_(site).add(FRAMES[site])
    runs = es.Study(made.url).state().runs
    assert len(runs["spread"].sums) == 1
    assert runs["groups"].end
