"""Checking results on the owner's page: planned there, done when a result is opened."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path

import pytest
from desk_helpers import PASSPHRASE, Page, waited

import encryptedstats as es
from encryptedstats.circuits.spare_bits import Terms
from encryptedstats.spotcheck import Challenge, Keeper, check, opening
from encryptedstats.spotcheck.kept import MOST_COMMITMENTS
from encryptedstats.storage import container


@pytest.fixture
def checked(page: Page, rows: Path) -> Page:
    """A project whose plan has checks, and whose result was computed on this machine."""
    page.choose(rows)
    page.ask()
    page.decide()
    assert "They can be checked" in page.get("plan")
    page.post("plan/checks", wanted="yes")
    assert page.state.plan["spot_check"]["positions"] > 0
    assert "Do not check them" in page.get("plan")
    page.post("key", passphrase=PASSPHRASE, again=PASSPHRASE)
    page.post("encrypt")
    waited(page, "encrypt")
    page.post("send", to="here")
    waited(page, "send")
    return page


def test_a_checked_result_says_so(checked: Page) -> None:
    assert "The result was checked" in checked.get("results")
    assert checked.state.asked[0].checked
    checked.post("key/lock")
    checked.post("key/unlock", passphrase=PASSPHRASE, step="results")
    assert "The result was checked" in checked.get("results")  # and nobody is asked again
    checked.post("plan/checks", 422, wanted="no")  # settled with the key
    assert checked.state.spot_check


def test_the_sentence_says_what_was_done(checked: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence: who was asked for what, and how likely a wrong result passes."""
    challenges, terms = list[Challenge](), list[Terms]()
    respond, choose = opening.respond, check.choose_terms
    monkeypatch.setattr(
        opening,
        "respond",
        lambda table, question, challenge, **options: (
            challenges.append(challenge) or respond(table, question, challenge, **options)
        ),
    )
    monkeypatch.setattr(
        check,
        "choose_terms",
        lambda *arguments: terms.append(choose(*arguments)) or terms[-1],
    )
    shown = html.unescape(checked.get("results"))
    means, rest = opening.CHECKED.removesuffix(".").split(": ")
    assert opening.CHECKED in shown
    assert means == "The result was checked"
    assert "." not in rest
    # The worker was asked for random sums of its work, once.
    (challenge,) = challenges
    assert len(set(challenge.seeds)) == len(challenge.seeds) == terms[-1].combinations
    # A wrong result passes with a probability of 2^-40 at most, whatever is asked with this key.
    project = checked.desk.projects.get(checked.project)
    keeper = Keeper.of_owner(checked.desk.key(project).owner)
    assert keeper is not None
    missed = (1 - terms[-1].share) ** len(keeper.positions)
    survives = 2.0 ** -(terms[-1].weight_bits * terms[-1].combinations)
    assert missed + MOST_COMMITMENTS * survives + 2.0**-128 <= 2.0**-40 < 1e-12
    assert keeper.commitments == 1
    assert opening.CHECKED in html.unescape(checked.get("results"))
    assert len(challenges) == 1  # it was checked then, and is not checked again


def test_a_result_that_was_only_opened_is_not_called_checked(
    checked: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the check ends before anything is compared, nothing says that it was made."""

    def fail(*arguments: object, **options: object) -> None:
        raise es.WorkerError("no way to the worker", code="unreachable")

    monkeypatch.setattr(opening, "respond", fail)
    assert "The result was checked" not in checked.get("results")
    assert not checked.state.asked[0].checked
    monkeypatch.undo()
    assert "The result was checked" in checked.get("results")


def test_a_lie_is_shown_and_nothing_else_is_opened(checked: Page) -> None:
    project = checked.desk.projects.get(checked.project)
    path = project.result_file(project.state.asked[0])
    file = container.read(path)
    residues = bytearray(file.section("residues"))
    residues[0] ^= 1
    forged = replace(file, sections={**file.sections, "residues": bytes(residues)})
    container.write(forged, path, overwrite=True)
    shown = checked.get("results")
    assert "the worker has lied" in shown
    assert "The result was checked" not in shown
    container.write(file, path, overwrite=True)
    assert "key is retired" in checked.get("results")


def test_a_result_from_a_folder_is_not_checked(checked: Page) -> None:
    project = checked.desk.projects.get(checked.project)
    with project.changing() as state:
        state.sent.to = "folder"
    assert "not checked" in checked.get("results")


def test_plans_without_checks_say_nothing(here: Page) -> None:
    shown = here.get("results")
    assert "The result was checked" not in shown
    assert "not checked" not in shown
