"""Every state of the owner's page that the stories do not pass: axe finds nothing in it, nothing is
cut off on a narrow screen, and what was broken once works.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from owner_steps import (
    PASSPHRASE,
    SEALED,
    ask_histogram,
    begin,
    decide,
    encrypt,
    make_key,
    unlock,
)
from programs import Owner, patients
from tabs import WIDE, Tab

import encryptedstats as es
from encryptedstats.storage import container


@pytest.fixture(scope="module")
def program(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[Owner]:
    folder = tmp_path_factory.mktemp("states")
    files = folder / "files"
    files.mkdir()
    patients(60).to_csv(files / "patients.csv", index=False)
    patients(60).to_csv(files / "moved.csv", index=False)
    patients(60).to_excel(files / "patients.xlsx", index=False)
    made = Owner(folder / "projects", files, environment)
    yield made
    made.program.kill()


def project_folder(tab: Tab, program: Owner) -> Path:
    return program.folder / tab.page.url.split("/p/")[1].split("/")[0]


def answer(table: Path, out: Path) -> bytes:
    """Compute the histogram as a worker does."""
    found = es.load(table).ask(es.Histogram("v0", by="v1"))
    out.write_bytes(container.to_bytes(found.to_container()))
    return out.read_bytes()


def stop_at(owner: Owner, folder: Path, count: int) -> int:
    """Let what encrypts stand still when so many blocks are there, and return its process."""
    while not folder.is_dir() or len(list(folder.iterdir())) < count:
        time.sleep(0.002)
    assert owner.program.process is not None
    children = Path(f"/proc/{owner.program.process.pid}/task").glob("*/children")
    (child,) = [int(pid) for file in children for pid in file.read_text().split()]
    os.kill(child, signal.SIGSTOP)
    return child


def test_the_first_page_and_pages_that_are_not_there(
    tab: Tab, context: Any, program: Owner, chromium: Any
) -> None:
    page = tab.page
    tab.look()  # without a project
    for path in ("p/nowhere", "p/nowhere/data", "nowhere"):
        page.goto(context.home + path)
        tab.sees("Back to your projects")
    tab.look()
    stranger = Tab(chromium.new_context(viewport=WIDE))
    stranger.page.goto(context.home)
    stranger.sees("This page is not open to you")
    stranger.look()
    broken = program.folder / "broken"
    broken.mkdir()
    (broken / "project.json").write_text("{}")
    page.goto(context.home)
    tab.sees("A project cannot be read")
    tab.look()
    shutil.rmtree(broken)


def test_the_form_of_every_question(tab: Tab) -> None:
    page = tab.page
    begin(tab, "Forms", "patients.xlsx")  # an Excel file
    page.wait_for_url("**/questions*")
    url = page.url.partition("?")[0]
    names = page.locator("a[href^='?ask=']").evaluate_all("all => all.map(one => one.search)")
    assert len(names) >= 48
    for number, name in enumerate(names):
        page.goto(url + name)
        for one in page.locator("details").all():
            one.evaluate("element => { element.open = true; }")
        if number % 8 == 0:
            tab.look()
        else:
            tab.check_accessible()
        assert page.get_by_role("button", name="Ask this").is_visible()
    page.goto(url)
    page.get_by_placeholder("Find: survival").fill("nothing is called so")
    assert page.get_by_role("heading", name="Survival").count() == 0
    page.get_by_placeholder("Find: survival").fill("survival")
    assert page.get_by_role("heading", name="Survival", exact=True).is_visible()


def test_a_reference_level_is_chosen_and_a_number_is_kept(tab: Tab) -> None:
    """A regression whose reference was typed as text failed the page once; and a column with cut
    points could not be kept as a number.
    """
    page = tab.page
    begin(tab, "Reference", "patients.csv")
    page.wait_for_url("**/questions*")
    page.locator("a[href='?ask=GLM']").click()
    page.get_by_label("Outcome", exact=True).select_option("readmitted")
    page.get_by_label("smoker (").check()
    page.get_by_text("More choices").click()
    page.get_by_label("Reference level of smoker").select_option(label="never")
    tab.click("Ask this")
    tab.is_told("The question was added")
    assert "reference level: smoker never" in page.inner_text("main")
    ask_histogram(tab)
    tab.click("Go on to the columns")
    page.wait_for_load_state("load")  # a change before scripts are there is sent by nobody
    page.get_by_label("Cut age at").click()
    page.get_by_label("Cut age at").fill("40, 60")
    with page.expect_response("**/columns"):
        page.get_by_label("Cut age at").press("Tab")
    tab.sees("40 to 60;")
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")
    page.get_by_label("Use age as").select_option("number")
    tab.sees("numbers from")
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")
    tab.look()
    tab.click("This is right")  # a histogram cannot be asked of a number
    tab.is_told("age")
    tab.look()


def test_a_file_that_is_gone_blocks_its_step_and_says_so(tab: Tab, program: Owner) -> None:
    page = tab.page
    begin(tab, "Gone", "moved.csv")
    ask_histogram(tab)
    home = page.url.rpartition("/")[0]
    file = program.files / "moved.csv"
    content = file.read_bytes()
    file.unlink()
    for step in ("columns", "questions?ask=TTest"):
        page.goto(f"{home}/{step}")
        tab.is_told("is not there any more")
        tab.look()
    page.goto(f"{home}/data")
    tab.sees("is not there any more")
    tab.look()
    file.write_bytes(content.replace(b"female", b"woman "))
    page.goto(f"{home}/columns")
    tab.is_told("has changed since you chose it")


def test_keys_are_taken_locked_and_unlocked(tab: Tab, context: Any, program: Owner) -> None:
    page = tab.page
    begin(tab, "Keys", "patients.csv")
    ask_histogram(tab)
    decide(tab)
    tab.look()
    make_key(tab)
    tab.look()  # ready to encrypt
    home = page.url.rpartition("/")[0]
    for step in ("data", "questions", "columns", "plan", "key"):  # settled
        page.goto(f"{home}/{step}")
        tab.look()
    tab.click("I have a copy")
    tab.sees("You have a copy")
    tab.click("Lock it")
    tab.is_told("The key is locked")
    tab.look()
    page.goto(f"{home}/encrypt")
    page.get_by_label("Passphrase of your key").fill("not this one")
    tab.click("Unlock the key")
    tab.is_told("does not open this key file")
    tab.look()
    # A copy takes the same key; a file that is no key is refused.
    page.goto(f"{home}/plan")
    tab.click("Start a copy")
    tab.is_told("This is a copy")
    decide(tab)
    page.get_by_label("full path of a key file").fill(str(program.files / "patients.csv"))
    page.get_by_label("Its passphrase").fill(PASSPHRASE)
    tab.click("Use this key")
    tab.is_told("was not made by this program")
    tab.look()
    # A project with a key is deleted by its name only.
    page.goto(context.home)
    row = page.locator("tr", has_text="Keys").last
    row.get_by_text("Rename or delete").click()
    row.get_by_label("Type its name").fill("Something else")
    row.get_by_role("button", name="Delete Keys").click()
    tab.is_told("type the name of the project")
    tab.look()


def test_a_killed_program_goes_on_encrypting(
    tmp_path: Path, environment: dict[str, str], chromium: Any
) -> None:
    """Its child used to finish the table alone, and to go on failed for ever after."""
    files = tmp_path / "files"
    files.mkdir()
    patients(200_000).to_csv(files / "many.csv", index=False)
    owner = Owner(tmp_path / "projects", files, environment)
    try:
        tab = Tab(chromium.new_context(viewport=WIDE))
        tab.page.goto(owner.start())
        tab.page.wait_for_url("**/")
        begin(tab, "Many", "many.csv")
        ask_histogram(tab)
        decide(tab)
        make_key(tab)
        path = tab.page.url.partition("/p/")[2]
        tab.page.get_by_role("button", name="Encrypt", exact=True).click()
        blocks = project_folder(tab, owner) / "table.enc" / "blocks"
        child = stop_at(owner, blocks, 1)
        tab.sees("You can close this tab")
        tab.look()
        tab.click("Stop")
        tab.page.wait_for_load_state()
        os.kill(child, signal.SIGCONT)  # it ends by a signal that was sent meanwhile
        tab.is_told("It did not come to an end")
        tab.look()
        done = len(list(blocks.iterdir()))
        tab.click("Go on")
        child = stop_at(owner, blocks, done + 1)
        assert owner.program.process is not None
        owner.program.process.kill()  # the program alone: its child has to notice
        owner.program.process.wait()
        with suppress(ProcessLookupError):  # it may have been killed with the program
            os.kill(child, signal.SIGCONT)
        tab = Tab(chromium.new_context(viewport=WIDE))
        tab.page.goto(owner.start())
        tab.page.wait_for_url("**/")
        tab.page.goto(f"{tab.page.url}p/{path}")
        unlock(tab)
        tab.click("Go on")
        tab.sees(SEALED)
        tab.sees("200,000")
    finally:
        owner.program.kill()


def test_a_queue_where_nobody_is(tab: Tab, program: Owner) -> None:
    page = tab.page
    begin(tab, "Queue", "patients.csv")
    ask_histogram(tab)
    decide(tab)
    make_key(tab)
    encrypt(tab)
    tab.look()
    for address, said in (
        ("worker.example.org", "is no address of a worker"),
        ("queue:///nowhere/at/all", "is not the full path of a folder"),
        ("https://worker.example.org", "the worker wants a token"),
    ):
        page.get_by_label("Its address").fill(address)
        tab.click("Send and compute")
        tab.is_told(said)
        assert page.get_by_label("Its address").input_value() == address
    tab.look()
    queue = program.files / "queue"
    queue.mkdir()
    page.get_by_label("Its address").fill(f"queue://{queue}")
    tab.click("Send and compute")
    tab.sees("Nobody has begun yet")
    tab.look()
    tab.click("Stop")
    tab.is_told("stopped: what was done is kept")
    es.cluster.work(queue)
    tab.click("Send again")
    tab.sees("All results are here")
    tab.look()
    tab.click("Delete it at the worker")
    tab.is_told("The table and the results were deleted at the worker")
    tab.look()
    assert not [path for path in queue.rglob("*") if path.is_file() and "tables" in path.parts]
    tab.click("Open them")
    tab.sees("Histogram: age by sex")


def test_a_folder_with_half_a_result_and_what_is_released(tab: Tab, program: Owner) -> None:
    page = tab.page
    begin(tab, "Folder", "patients.csv")
    ask_histogram(tab)
    page.locator("a[href='?ask=GLM']").click()
    page.get_by_label("Outcome", exact=True).select_option("readmitted")
    page.get_by_label("sex (").check()
    tab.click("Ask this")
    decide(tab)
    make_key(tab)
    encrypt(tab)
    drive = program.files / "drive"
    page.get_by_label("Folder that the worker can read").fill(str(drive))
    tab.click("Copy it there")
    tab.sees("Waiting for results in the folder")
    commands = page.inner_text("#commands").strip().splitlines()
    home = page.url.rpartition("/")[0]
    words = [line.split() for line in commands]
    name, glm = words[0][-1], words[1][-1]
    whole = answer(drive / "table.enc", program.files / "whole")
    (drive / name).write_bytes(whole[: len(whole) // 2])
    page.wait_for_timeout(2500)
    tab.sees("Waiting for results in the folder: 0 of 2")  # half of it is no result
    page.goto(f"{home}/results")
    tab.sees("Not all of them are here yet")
    form = page.locator("section", has=page.get_by_role("heading", name="Histogram"))
    form.get_by_text("It has come back as a file").click()
    form.get_by_label("Full path of the file").fill(str(drive / name))
    form.get_by_role("button", name="Take it").click()
    tab.is_told("is not a complete result")
    tab.look()
    (drive / name).write_bytes(whole)
    page.goto(f"{home}/send")
    tab.sees("Waiting for results in the folder: 1 of 2")
    wrong = bytearray(whole)  # a result that was altered on the way, with a hash that fits
    file = container.from_bytes(bytes(wrong))
    place = max(file.sections, key=lambda one: len(file.sections[one]))
    section = bytearray(file.sections[place])
    section[len(section) // 2] ^= 0x55
    changed = {**file.sections, place: bytes(section)}
    (drive / glm).write_bytes(container.to_bytes(replace(file, sections=changed)))
    tab.sees("All results are here")
    tab.click("Open them")
    tab.sees("This result does not open")
    tab.look()

    # With noise: others see no standard errors, and the file has none either.
    page.get_by_label("epsilon", exact=True).fill("ten")
    tab.click("Set the budget")
    tab.is_told("is no number")
    page.get_by_label("epsilon", exact=True).fill("10")
    tab.click("Set the budget")
    tab.is_told("The budget is set")
    page.get_by_text("What may be published").first.click()
    page.get_by_label("epsilon: 1 is usual").first.fill("2")
    tab.click("Spend it, and release")
    tab.is_told("Released.")
    tab.look()
    out = page.locator("[id^=o-] a[download][href$='released.csv']")
    with page.expect_download() as saved:
        out.first.click()
    text = Path(saved.value.path()).read_text()
    assert text
    assert not re.search("std_error|low|high|pvalue", text)
    page.goto(f"{home}/report")
    tab.look()
    page.goto(f"{home}/key")
    tab.click("Lock it")
    page.goto(f"{home}/report")
    tab.sees("The key is locked.")
    tab.look()
    (project_folder(tab, program) / "project.ledger").rename(program.files / "ledger")
    page.goto(f"{home}/results")
    tab.look()
