"""A study is made in the browser: its columns from a table, its questions and its parties; who sees
what is shown before anything is written. Its receiver joins and goes on without a site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from owner_steps import PASSPHRASE
from programs import Owner
from tabs import WIDE, Tab

import encryptedstats as es

SITES = ("north", "south", "west", "east")


def ask(tab: Tab, called: str) -> None:
    """Send the form of a question."""
    tab.page.get_by_label("Name of the result").fill(called)
    tab.click("Ask this")
    tab.is_told("The question was added")


def choose_questions(tab: Tab) -> None:
    """Ask a t-test of masked totals, a regression in rounds, and a table of encrypted rows."""
    page = tab.page
    page.wait_for_url("**/questions*")
    page.locator("a[href='?ask=TTest']").click()
    page.get_by_label("Measurement", exact=True).select_option("bmi")
    page.get_by_label("Groups", exact=True).select_option("readmitted")
    page.get_by_label("Answered from").select_option("masked")
    page.get_by_label("Name of the result").fill("bmi by outcome")
    tab.click("Ask this")
    tab.is_told("is no name of a result")
    assert page.get_by_label("Answered from").input_value() == "masked"
    tab.look()
    ask(tab, "bmi")
    page.locator("a[href='?ask=PooledGLM']").click()
    page.get_by_label("Formula").fill("readmitted ~ age + smoker")
    ask(tab, "readmission")
    page.locator("a[href='?ask=ChiSquare']").click()
    page.get_by_label("First variable").select_option("smoker")
    page.get_by_label("Second variable").select_option("sex")
    ask(tab, "table")
    tab.look()


def choose_parties(tab: Tab, folder: Path) -> None:
    """Fill in the parties, with a mistake at first."""
    page = tab.page
    page.get_by_label("Where it is to lie").fill("shared")
    page.get_by_label("Rows of all sites together").fill("4000")
    page.get_by_label("Sites, who bring rows").fill(", ".join(SITES))
    page.get_by_label("Worker, who computes").fill("centre")
    page.get_by_label("Receiver, who opens").fill("registry")
    tab.click("Show who sees what")
    tab.is_told("give the full path of the study's folder")
    assert page.get_by_label("Sites, who bring rows").input_value() == ", ".join(SITES)
    page.get_by_label("It is sealed: the receiver").check()
    page.get_by_text("Sites have different columns").click()
    tab.look()
    page.get_by_label("Where it is to lie").fill(str(folder))
    tab.click("Show who sees what")
    page.wait_for_url("**/agreement")


def test_a_study_is_made_and_its_parties_are_invited(
    owner: Owner, chromium: Any, place: Path
) -> None:
    tab = Tab(chromium.new_context(viewport=WIDE))
    page, shared = tab.page, place / "shared"
    page.goto(owner.start())
    page.wait_for_url("**/")
    tab.click("Studies")
    page.get_by_label("What is it called?").fill("Readmissions of four hospitals")
    page.get_by_role("button", name="Begin").click()
    page.wait_for_url("**/data")
    tab.look()
    tab.click("patients-2026.csv")
    choose_questions(tab)
    tab.click("Go on to the columns")
    page.wait_for_load_state("load")
    tab.sees("These rows are of one site")
    with page.expect_response("**/columns"):
        page.get_by_label("age, least at any site").fill("0")
        page.get_by_label("age, least at any site").press("Tab")
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")
    with page.expect_response("**/columns"):
        page.get_by_label("age, greatest at any site").fill("120")
        page.get_by_label("age, greatest at any site").press("Tab")
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")
    with page.expect_response("**/columns"):
        page.get_by_label("Further levels of smoker").fill("unknown")
        page.get_by_label("Further levels of smoker").press("Tab")
    tab.sees("4 levels")
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")
    tab.look()
    tab.click("This is right")
    page.wait_for_url("**/parties")
    choose_parties(tab, shared)
    tab.sees("Sums over all sites, round by round")
    assert not shared.exists()  # nothing is written before somebody agrees
    tab.look("app-agreement")

    tab.click("Write the study")
    tab.is_told("The study is written")
    tab.look("app-invitations")
    study = es.Study(shared)
    assert study.document.sites == SITES
    assert study.document.modes == {"bmi": "masked", "table": "rows", "readmission": "rounds"}
    assert (study.document.key.kind, study.document.key.openers) == ("escrow", 2)
    codes = {}
    for name in study.document.parties:
        with page.expect_download() as saved:
            tab.click(f"Save the invitation of {name}")
        codes[name] = Path(saved.value.path()).read_text().strip()

    # The maker is the receiver: no invitation has to be pasted.
    page.get_by_label("Who are you in it?").select_option("registry")
    page.get_by_label("A passphrase for your identity").fill(PASSPHRASE)
    page.get_by_label("The same again").fill(PASSPHRASE)
    tab.click("Agree, and join")
    tab.sees("receiver in this study")
    assert page.get_by_role("link", name="Save the invitation of registry").count() == 0
    party = {
        name: es.Study.join(shared, code, place / f"{name}.id")
        for name, code in codes.items()
        if name != "registry"
    }
    page.reload()
    tab.sees(study.fingerprint)
    assert page.get_by_role("heading", name="Invite the parties").count() == 0
    assert re.search(r"formula: readmitted ~ age \+ smoker", page.inner_text("main"))
    schema = party["north"].schema
    assert (schema["age"].low, schema["age"].high) == (0, 120)
    assert "unknown" in schema["smoker"].levels
    page.get_by_text("Go on without a site").click()
    page.get_by_label("The site").select_option("east")
    page.get_by_label("Why").fill("is late")
    tab.click("Go on without it")
    tab.sees("east: is late")
    tab.look()
    assert "east" not in study.state().sites
