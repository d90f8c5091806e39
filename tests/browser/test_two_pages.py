"""The whole story in a real browser: an owner and a worker, each with a program and a page, and all
that goes wrong on the way.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Owner, Service
from tabs import WIDE, Tab

PASSPHRASE = "seven quiet otters"
#: What the worker must never see.
NAMES = ("smoker", "readmitted", "patients-2026", "Readmissions", "female")


def begun(tab: Tab, url: str) -> None:
    """From the address to columns that are decided."""
    page = tab.page
    page.goto(url)
    page.wait_for_url("**/")
    tab.look("app-home")
    page.get_by_label("What is it called?").fill("Readmissions 2026")
    tab.click("Begin")
    tab.look("app-data")
    tab.click("patients-2026.csv")
    page.wait_for_url("**/questions*")


def asked(tab: Tab) -> None:
    page = tab.page
    page.locator("a[href='?ask=TTest']").click()
    page.get_by_label("Measurement", exact=True).select_option("smoker")
    page.get_by_label("Groups", exact=True).select_option("sex")
    tab.click("Ask this")
    tab.is_told("choose a column of numbers")  # refused, and nothing is lost
    assert page.get_by_label("Groups", exact=True).input_value() == "sex"
    page.get_by_label("Measurement", exact=True).select_option("bmi")
    tab.look("app-question")
    tab.click("Ask this")
    page.locator("a[href='?ask=Histogram']").click()
    page.get_by_label("Measurement", exact=True).select_option("age")
    page.get_by_label("Groups", exact=True).select_option("readmitted")
    tab.click("Ask this")
    page.locator("a[href='?ask=CompletelyRandomForest']").click()
    page.get_by_label("Outcome").select_option("readmitted")
    for name in ("age", "sex", "smoker"):
        page.get_by_label(f"{name} (").check()
    page.get_by_label("Number of trees").fill("20")
    tab.click("Ask this")
    tab.is_told("The question was added")
    tab.look("app-questions")
    tab.click("Go on to the columns")
    page.wait_for_url("**/columns")


def decided(tab: Tab) -> None:
    page = tab.page
    page.get_by_label("Cut age at").fill("40, 60, 75")
    with page.expect_response("**/columns"):
        page.get_by_label("Cut age at").press("Tab")
    tab.sees("40 to 60;")
    tab.reload()  # in the middle: what was chosen is there again
    tab.sees("40 to 60;")
    tab.look("app-columns")
    tab.click("This is right")
    page.wait_for_url("**/plan")
    tab.sees("Who sees what")
    tab.look("app-plan")
    tab.click("Agreed: make a key")


def locked(tab: Tab) -> None:
    page = tab.page
    page.get_by_label("A passphrase for it").fill(PASSPHRASE)
    page.get_by_label("The same again").fill("seven quiet ottera")
    tab.click("Make the key")
    tab.is_told("The two passphrases differ")
    page.get_by_label("A passphrase for it").fill(PASSPHRASE)
    page.get_by_label("The same again").fill(PASSPHRASE)
    tab.click("Make the key")
    tab.sees("If this file is lost, so are all results")
    tab.look("app-key")
    with page.expect_download() as copied:
        tab.click("Save a copy of the key")
    assert copied.value.suggested_filename.endswith(".key")
    tab.click("I have a copy")
    tab.click("Go on")
    page.wait_for_url("**/encrypt")
    page.get_by_role("button", name="Encrypt", exact=True).click()
    page.get_by_text("You can close this tab").or_(
        page.get_by_text("It lies on this machine until")
    ).first.wait_for()
    tab.reload()
    tab.sees("It lies on this machine until you send it.")
    tab.look("app-encrypt")


def unlocked(tab: Tab, step: str) -> None:
    page = tab.page
    page.get_by_label("Passphrase of your key").fill("not this one")
    tab.click("Unlock the key")
    tab.is_told("The passphrase does not open this key file")
    tab.look()
    page.get_by_label("Passphrase of your key").fill(PASSPHRASE)
    tab.click("Unlock the key")
    page.wait_for_url(f"**/{step}*")


def send(tab: Tab, url: str, token: str) -> None:
    tab.page.get_by_label("Its address").fill(url)
    tab.page.get_by_label("Your token there").fill(token)
    tab.page.get_by_role("button", name="Send").first.click()


def test_an_owner_and_a_worker(owner: Owner, service: Service, chromium: Any) -> None:
    token, operator = service.token("Hospital North"), service.token("me", "--operator")
    service.start(workers=0)

    # The owner, up to an encrypted table.
    context = chromium.new_context(viewport=WIDE)
    tab = Tab(context)
    begun(tab, owner.start())
    asked(tab)
    decided(tab)
    locked(tab)
    project = tab.page.url.split("/p/")[1].split("/")[0]
    folder = owner.folder / project

    # Her program is killed. Another one finds everything; the passphrase was in its memory alone.
    owner.program.kill()
    context.close()
    context = chromium.new_context(viewport=WIDE)
    tab = Tab(context)
    tab.page.goto(owner.start())
    tab.page.wait_for_url("**/")
    tab.sees("Readmissions 2026")
    tab.look("app-projects")
    home = tab.page.url.rstrip("/")
    tab.click("Go on")
    tab.page.wait_for_url("**/send")
    tab.look("app-send")

    # A token that nobody knows; then a table that was damaged on the disk: nothing of it is asked
    # for.
    send(tab, service.url, "est_nobody_knows_this_one")
    tab.sees("It did not come to an end")
    tab.sees("does not take this access token")
    tab.look()
    block = next((folder / "table.enc" / "blocks").iterdir())
    content = block.read_bytes()
    block.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    send(tab, service.url, token)
    tab.sees("altered or exchanged")
    block.write_bytes(content)

    # The server is killed while the jobs wait, and started again, now with somebody who computes.
    send(tab, service.url, token)
    tab.sees("queued")
    service.kill()
    tab.sees("The worker does not answer: trying again")
    tab.look("app-waiting")
    context.pages[0].close()  # the tab is closed meanwhile
    service.start(workers=1)
    tab = Tab(context)
    tab.page.goto(f"{home}/p/{project}/send")
    tab.sees("All results are here")

    # The worker's page: it has computed, and knows no name.
    theirs = Tab(chromium.new_context(viewport=WIDE))
    theirs.page.goto(service.url)
    theirs.page.get_by_label("token", exact=False).first.fill(operator)
    theirs.page.get_by_role("button").first.click()
    theirs.sees("Hospital North")
    theirs.look("worker-jobs")
    theirs.page.goto(f"{service.url}/storage")
    seen = theirs.page.locator("a[href^='/seen/']").first.get_attribute("href")
    for path in ("/", "/storage", "/audit", seen):
        theirs.page.goto(f"{service.url}{path}")
        text = theirs.page.content()
        assert not [name for name in NAMES if name in text], path
    theirs.look("worker-seen")

    # The owner opens.
    tab.click("Open them")
    unlocked(tab, "results")
    tab.sees("Welch two sample t-test: bmi by sex")
    tab.sees("Histogram: age by readmitted")
    assert (
        tab.page.locator("img.plot.light").first.evaluate(
            "image => image.decode().then(() => image.naturalWidth)"
        )
        > 100
    )
    tab.look("app-results")
    forest = tab.page.locator(
        "section", has=tab.page.get_by_role("heading", name="Completely random forest")
    )
    forest.locator("input[id^=predict-file]").set_input_files(owner.files / "new-patients.csv")
    forest.get_by_role("button", name="Predict").click()
    tab.is_told("Predicted 120 rows.")
    forest.locator("input[id^=evaluate-path]").fill(str(owner.files / "new-patients.csv"))
    forest.get_by_role("button", name="Score it").click()
    tab.is_told("Scored.")
    tab.look("app-scores")
    tab.page.goto(f"{home}/p/{project}/report")
    tab.page.emulate_media(media="print")
    assert not tab.page.get_by_role("button", name="Print, or save as PDF").is_visible()
    tab.page.emulate_media(media="screen")
    tab.look("app-report")


def test_a_keyboard_is_enough(owner: Owner, chromium: Any) -> None:
    """From the address to the list of files without a mouse; what has the focus is seen."""
    tab = Tab(chromium.new_context(viewport=WIDE))
    page = tab.page
    page.goto(owner.start())
    page.wait_for_url("**/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "title":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/data")
    assert page.get_by_role("navigation", name="Steps").is_visible()
    assert page.get_by_role("complementary", name="What leaves this machine").is_visible()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Another page of this machine, on another port: for browsers it is the same site."""
    folder = tmp_path / "evil"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


def test_a_page_from_elsewhere_can_do_nothing(
    owner: Owner, chromium: Any, elsewhere: tuple[str, Path]
) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(owner.start())
    page.wait_for_url("**/")
    home = page.url.rstrip("/")
    theirs, folder = elsewhere
    (folder / "index.html").write_text(
        f"""<body><form method="post" action="{home}/projects"><input name="title" value="forged"><button>go</button></form>
        <iframe id="frame" src="{home}/"></iframe>
        <script>
          window.tried = Promise.allSettled([
            fetch("{home}/projects", {{method: "POST", credentials: "include", body: new URLSearchParams({{title: "forged"}})}}),
            fetch("{home}/", {{credentials: "include"}}).then(answer => answer.text()),
          ]);
        </script></body>"""
    )
    evil = context.new_page()  # of the same browser: the owner's cookie is in it
    evil.goto(theirs)
    tried = evil.evaluate("window.tried")
    assert tried[1]["status"] == "rejected"
    frame = evil.frame(url=f"{home}/")
    assert frame is None or "Begin a project" not in frame.content()
    evil.get_by_role("button", name="go").click()
    evil.wait_for_load_state()
    assert "Another page has" in evil.content()
    evil.goto(theirs)
    evil.evaluate(f"location.href = '{home}/'")
    evil.wait_for_url(f"{home}/")
    assert "Begin a project" not in evil.content()
    page.reload()
    assert "forged" not in page.content()
    assert "Begin a project" in page.content()
