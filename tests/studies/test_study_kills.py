"""Three hospitals, a worker and a receiver, each a process that is killed at every write, and goes
on from its files.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from round_samples import SCHEMA as AGES
from round_samples import TOGETHER as PEOPLE
from round_samples import Spread, in_rounds
from sklearn.base import clone
from study_samples import FOREST, SCHEMA, SITES, TOGETHER, World, killed_at, world

import encryptedstats as es

pytestmark = pytest.mark.filterwarnings("ignore::encryptedstats.InsecureParametersWarning")


def until_done(action: Callable[[], Any], writes: Callable[[int], bool], after: bool) -> int:
    """Kill it at every write that is wanted, in what the kills before have left; then let it
    finish. How often it was killed.
    """
    kills, write = 0, 1
    while True:
        if not writes(write):
            write += 1
            if write > 200:
                killed_at(0, after, action)
                return kills
            continue
        if not killed_at(write, after, action):
            return kills
        kills += 1
        write += 1


def story(
    made: World, key: str, writes: Callable[[int], bool], after: bool
) -> tuple[int, dict[str, Any]]:
    """All of it, with everybody killed again and again; the last opening is done here, to see what
    comes out.
    """
    kills, codes = 0, made.created.invitations
    for _ in range(60):
        todo = made.steps()
        if not todo:
            break
        who, what = todo[0]
        if what == "join":
            kills += until_done(
                lambda: es.Study.join(made.url, codes[who], made.identity(who)),  # noqa: B023
                writes,
                after,
            )
        else:
            kills += until_done(lambda: made.take(who, what), writes, after)  # noqa: B023
    assert made.steps() == []
    if key == "escrow":  # it is opened once more, since what was shown died with its process
        made.as_("registry").open(again=True)
        for site in SITES[:2]:
            made.as_(site).share()
    return kills, made.as_("registry").open(made.key)


def check(made: World, found: dict[str, Any]) -> None:
    clear = clone(FOREST).fit(SCHEMA.table(TOGETHER))
    assert (found["forest"].leaf_counts_ == clear.leaf_counts_).all()
    status = es.Study(made.url).status().to_dict()
    assert status["rows"] == dict.fromkeys(SITES, 30)
    assert status["valid"] == dict.fromkeys(SITES, True)
    assert status["refused"] == []


def test_killed_once_at_each_step(tmp_path: Path) -> None:
    """Small: totals from home, and each is killed at its second write."""
    made = world(tmp_path / "w", questions={"bayes": (es.MultinomialNB(), "masked")})
    kills, found = story(made, "none", lambda write: write == 2, after=False)
    assert kills >= len(made.created.document.parties) + len(SITES)
    assert list(found["bayes"].totals_) == list(
        es.MultinomialNB().fit(SCHEMA.table(TOGETHER)).totals_
    )


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_write_of_joining(tmp_path: Path, after: bool) -> None:
    """Whoever joins again goes on with the same file, whether or not an identity is in it."""
    made = world(tmp_path / "w")
    code, identity = made.created.invitations["north"], made.identity("north")
    kills = until_done(
        lambda: es.Study.join(made.url, code, identity), lambda write: True, after=after
    )
    assert kills >= 3  # what was seen, the identity, the message
    assert made.as_("north").me.name == "north"
    assert list(es.Study(made.url).state().parties) == ["north"]


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("key", ["one holder", "escrow"])
def test_killed_at_every_write(tmp_path: Path, key: str, after: bool) -> None:
    made = world(tmp_path / "w", key=key, openers=2 if key == "escrow" else 0)
    kills, found = story(made, key, lambda write: True, after)
    assert kills > 40
    check(made, found)


@pytest.mark.slow
def test_masked_totals_of_killed_sites(tmp_path: Path) -> None:
    made = world(tmp_path / "w", questions={"bayes": (es.MultinomialNB(), "masked")}).join_all()
    for what in ("add", "share"):  # totals are announced by all before they are stored
        for site in SITES:
            until_done(lambda: made.take(site, what), lambda write: True, after=True)  # noqa: B023
    found = made.as_("registry").open()
    assert list(found["bayes"].totals_) == list(
        es.MultinomialNB().fit(SCHEMA.table(TOGETHER)).totals_
    )


@pytest.mark.slow
def test_all_at_once(tmp_path: Path) -> None:
    """Three sites add and show their numbers at the same moment: every message finds its place."""
    made = world(tmp_path / "w").join_all()
    made.as_("registry").keygen(made.key)
    for what in ("add", "share"):
        children = []
        for site in SITES:
            child = os.fork()
            if child == 0:
                try:
                    made.take(site, what)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    check(made, made.run())


def run_killed(made: World, writes: Callable[[int], bool], after: bool) -> tuple[int, set[int]]:
    """Let everybody do what is due in rounds, killed at the writes that are wanted, until only the
    opening is left. How often somebody was killed, and in which rounds.
    """
    kills, at = 0, set()
    for _ in range(100):
        who, what = made.steps()[0]
        if what == "open":
            return kills, at
        number = es.Study(made.url).state().runs["spread"].current.number
        found = until_done(lambda: made.take(who, what), writes, after)  # noqa: B023
        kills += found
        at |= {number} if found else set()
    raise AssertionError(f"it does not end: {made.steps()}")


def check_rounds(made: World) -> None:
    expected = Spread(rounds=3).run(AGES.table(PEOPLE))
    until_done(lambda: made.as_("registry").open(), lambda write: True, after=True)
    assert made.as_("registry").open()["spread"] == pytest.approx(expected, rel=1e-10)
    steps = [one for one in es.Study(made.url).messages() if one.kind == "step"]
    assert len(steps) == 5 * len(SITES)
    assert es.Study(made.url).status().to_dict()["refused"] == []


def test_sites_that_are_killed_in_every_round(tmp_path: Path) -> None:
    """Each at its second write; whoever is killed sends the same bytes when it comes back."""
    made = in_rounds(tmp_path / "w", {"spread": Spread(rounds=3)})
    _, at = run_killed(made, lambda write: write == 2, after=False)
    assert at == {0, 1, 2, 3, 4}
    check_rounds(made)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("after", [False, True])
def test_sites_that_are_killed_at_every_write_of_every_round(tmp_path: Path, after: bool) -> None:
    made = in_rounds(tmp_path / "w", {"spread": Spread(rounds=3)})
    kills, at = run_killed(made, lambda write: True, after)
    assert kills > 30
    assert at == {0, 1, 2, 3, 4}
    check_rounds(made)


def test_sites_that_run_all_rounds_at_the_same_time(tmp_path: Path) -> None:
    """One call of each site, which waits for the others."""
    made = in_rounds(tmp_path / "w", {"spread": Spread(rounds=3)})
    children = []
    for site in SITES:
        child = os.fork()
        if child == 0:
            try:
                found = made.as_(site).run_rounds(made.frames[site], every=0.05)
                os._exit(0 if "spread" in found else 2)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    check_rounds(made)
