"""The owner's page without a worker: the sample from its first page to opened results, and all that
goes wrong on the way. One program serves all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from owner_steps import PASSPHRASE, ask_histogram, begin
from programs import Owner, patients
from tabs import Tab

OFFERED = "select => [...select.querySelectorAll('optgroup:not([hidden])')].map(one => one.label)"


@pytest.fixture(scope="module")
def program(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[Owner]:
    folder = tmp_path_factory.mktemp("alone")
    files = folder / "files"
    files.mkdir()
    rows = patients(60)
    rows.loc[3:5, "bmi"] = None
    rows.to_csv(files / "with-gaps.csv", index=False)
    new = patients(40, seed=8)
    new.loc[0, "smoker"] = "sometimes"
    new.to_csv(files / "new.csv", index=False)
    (files / "shifted.csv").write_text("a,b\n1,2,3\n4,5,6\n")
    made = Owner(folder / "projects", files, environment)
    yield made
    made.program.kill()


def test_a_sample_leads_to_opened_results(tab: Tab, program: Owner) -> None:
    page = tab.page
    tab.click("Help")
    tab.look()
    page.go_back()
    tab.click("Begin the sample")
    tab.sees("This is a sample.")
    tab.look()
    tab.click("Go on to the columns")
    page.wait_for_url("**/columns")
    tab.look()
    tab.click("This is right")
    page.wait_for_url("**/plan")
    tab.click("Agreed")
    page.wait_for_url("**/key")
    for weak in ("short", "password2026"):
        page.evaluate("document.querySelectorAll('[minlength]').forEach(x => x.minLength = 0)")
        page.get_by_label("A passphrase for it").fill(weak)
        page.get_by_label("The same again").fill(weak)
        tab.click("Make the key")
        tab.is_told("take three or four words that do not belong together")
    tab.look()
    page.get_by_label("A passphrase for it").fill(PASSPHRASE)
    page.get_by_label("The same again").fill(PASSPHRASE)
    tab.click("Make the key")
    tab.is_told("The key was made")
    tab.click("Go on")
    page.get_by_role("button", name="Encrypt", exact=True).click()
    tab.sees("It lies on this machine until you send it.")
    tab.click("Go on and send it")

    # A worker that is nowhere; after that a folder is offered as well as before.
    page.get_by_label("Its address").fill("http://127.0.0.1:9")
    page.get_by_label("Your token there").fill("est_nobody")
    page.get_by_role("button", name="Send and compute").click()
    tab.sees("The worker does not answer: trying again")
    tab.click("Stop")
    tab.is_told("stopped: what was done is kept")
    assert page.get_by_role("heading", name="Or to a folder").is_visible()
    tab.look()

    tab.click("Compute here")
    tab.sees("All results are here")
    tab.click("Open them")
    page.wait_for_url("**/results")
    tab.sees("Odds ratios")
    for name in ("t-test", "Odds ratio and risk ratio", "Logistic or Poisson regression"):
        assert page.get_by_role("heading", name=name, exact=True).is_visible()
    assert re.search(r"95 % interval", page.inner_text("main"))
    assert page.locator("svg.hover title").count() > 1
    tab.look()

    # Predictions: what is said of them is in view; they can be saved, and one row has none.
    page.locator("input[id^=predict-path]").fill(str(program.files / "new.csv"))
    tab.click("Predict")
    tab.is_told("Predicted 39 rows.")
    tab.is_told("1 row of the file got no prediction")
    with page.expect_download() as saved:
        tab.click("Save the predictions as CSV")
    lines = Path(saved.value.path()).read_text().splitlines()
    assert len(lines) == 41
    page.locator("input[id^=predict-path]").fill("/nowhere.csv")
    tab.click("Predict")
    tab.is_told("is not there any more")

    # Published: what others may see is unfolded, and in view.
    page.get_by_text("What may be published").first.click()
    tab.click("Publish by these rules")
    tab.is_told("What others may see")
    tab.look()

    # The key is locked in another tab: what was opened disappears from this one.
    page.clock.install()
    tab.reload()
    tab.sees("Odds ratios")
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_role("button", name="Lock the key, and forget what was opened").click()
    other.wait_for_url("**/key*")
    other.close()
    page.clock.fast_forward(61_000)
    tab.sees("The results are encrypted")
    assert page.get_by_text("Odds ratios").count() == 0
    tab.look()


def test_columns_follow_from_questions_and_stay_editable(tab: Tab) -> None:
    page = tab.page
    begin(tab, "Columns", "with-gaps.csv")
    ask_histogram(tab)
    page.locator("a[href='?ask=TTest']").click()
    page.get_by_label("Measurement", exact=True).select_option("bmi")
    page.get_by_label("Groups", exact=True).select_option("readmitted")
    offered = page.get_by_label("Two of the groups").evaluate(OFFERED)
    assert offered == ["readmitted"]  # the levels of what was chosen above
    tab.click("Ask this")
    tab.click("Go on to the columns")
    page.wait_for_url("**/columns")
    assert "smoker" not in [one.strip() for one in page.locator("tbody th").all_inner_texts()]

    # Missing values: three choices and their counts, and no error before one is made.
    tab.sees("3 rows of 60 have missing values")
    assert page.get_by_role("alert").count() == 0
    tab.look()
    tab.click("This is right")
    tab.is_told("say below what becomes of them")
    with page.expect_response("**/columns"):
        page.get_by_label("Leave these rows out. 57 rows remain").check()
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")

    # A typo keeps the fields; what is unfolded stays so, and so does the focus.
    page.get_by_text("More: number of bins").click()
    page.get_by_label("Cut age at").fill("abc, 40")
    with page.expect_response("**/columns"):
        page.get_by_label("Bins of a number that is cut").focus()
    tab.sees("are not all numbers")
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")
    assert page.get_by_label("Cut age at").input_value() == "abc, 40"
    assert page.locator("#more").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.id") == "bins"
    tab.look()
    page.get_by_label("Cut age at").fill("40, 60")
    with page.expect_response("**/columns"):
        page.get_by_label("Cut age at").press("Tab")
    tab.sees("40 to 60;")

    # A second tab that is stale changes nothing, and says so.
    stale = Tab(page.context)
    stale.page.goto(page.url)
    with page.expect_response("**/columns"):
        page.get_by_label("Use age as").select_option("both")
    page.wait_for_selector(".htmx-request, .htmx-settling", state="detached")
    stale.click("This is right")
    stale.is_told("changed in another tab")
    assert stale.page.get_by_label("Use age as").input_value() == "both"
    stale.page.close()


def test_files_that_are_no_tables_are_said_to_be_none(tab: Tab, program: Owner) -> None:
    page = tab.page
    begin(tab, "Files", "shifted.csv")
    tab.is_told("line 2 has 3 fields, and line 1 names only 2")
    tab.look()
    folder = program.folder / page.url.split("/p/")[1].split("/")[0]
    page.set_input_files("#dropped", {"name": "no.xlsx", "mimeType": "x/y", "buffer": b"no table"})
    tab.is_told("is not an Excel file that can be read")
    assert [path for path in folder.rglob("*") if path.is_file()] == [folder / "project.json"]


def test_projects_are_renamed_and_deleted(tab: Tab, context: Any) -> None:
    page = tab.page
    begin(tab, "Gone soon", "with-gaps.csv")
    page.wait_for_url("**/questions*")
    page.goto(context.home)
    row = page.locator("tr", has_text="Gone soon")
    row.get_by_text("Rename or delete").click()
    tab.look()
    row.get_by_label("New name of Gone soon").fill("Gone now")
    row.get_by_role("button", name="Rename").click()
    tab.is_told("The project has its new name")
    row = page.locator("tr", has_text="Gone now")
    row.get_by_text("Rename or delete").click()
    row.get_by_role("button", name="Delete Gone now").click()
    tab.is_told("The project was deleted")
    assert page.locator("tr", has_text="Gone now").count() == 0


def test_nothing_moves_once_the_program_has_ended(tab: Tab, program: Owner) -> None:
    """Last, because the program is killed."""
    page = tab.page
    page.locator("tr", has_text="Sample").get_by_role("link", name="Go on").click()
    page.goto(page.url.rpartition("/")[0] + "/plan")
    tab.click("Start a copy")
    tab.is_told("This is a copy")
    tab.click("Go on to the columns")
    tab.click("This is right")
    tab.click("Agreed")
    page.get_by_label("Its passphrase").fill(PASSPHRASE)
    tab.click("Use this key")
    tab.is_told("The key was taken")
    tab.click("Go on")
    page.get_by_role("button", name="Encrypt", exact=True).click()
    tab.sees("It lies on this machine until you send it.")
    tab.click("Go on and send it")
    folder = program.folder.parent / "drive"
    page.get_by_label("Folder that the worker can read").fill(str(folder))
    tab.click("Copy it there")
    tab.sees("Waiting for results in the folder")
    tab.look()
    program.program.kill()
    tab.is_told("The program has ended.")
    assert page.locator("progress").count() == 0
