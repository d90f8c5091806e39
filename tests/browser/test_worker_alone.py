"""The worker's page in a real browser, by keyboard alone: log in, watch a job come and go, log out;
and a page from elsewhere.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Service, patients
from tabs import WIDE, Tab

import encryptedstats as es

LONG = 300_000  # milliseconds, on a machine that has other things to do


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, dict[str, str]]]:
    """A page of somebody else, on another port of the same machine: browsers send cookies of one to
    the other.
    """
    pages: dict[str, str] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()


def test_an_operator_by_keyboard(
    service: Service, chromium: Any, place: Path, elsewhere: tuple[str, dict[str, str]]
) -> None:
    operator, token = service.token("me", "--operator"), service.token("Hospital North")
    service.start(workers=1)
    page = chromium.new_context(viewport={"width": 1180, "height": 800}).new_page()
    page.set_default_timeout(LONG)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.goto(service.url)
    page.wait_for_function("() => document.activeElement.id === 'token'")
    page.keyboard.type("est_nobody")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("missing, mistyped, expired or revoked").wait_for()
    page.wait_for_function("() => document.activeElement.id === 'token'")  # once more, soon
    page.keyboard.type(operator)
    page.keyboard.press("Enter")
    page.get_by_text("No job yet").wait_for()

    frame = patients(60)[["age", "sex", "readmitted"]]
    schema = es.Schema.infer(frame, target="readmitted", bins=2)
    keys = es.Owner(es.plan(es.MultinomialNB(), schema, n_rows=60, workers=1))
    with es.connect(service.url, token, patience=60) as worker:
        table = worker.upload(keys.encrypt(schema.table(frame)))
        job = worker.fit(es.MultinomialNB(), table, wait=False)
        page.get_by_text(job.id[:10]).wait_for()  # without a reload
        page.locator("tr", has_text=job.id[:10]).get_by_text("done").wait_for()
        assert keys.open(worker.result(job, place / "model.enc"), schema).n_rows_ == 60

    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.get_by_role("link", name="Storage").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="What this machine can see").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Its blocks").wait_for()
    shown = page.content()
    for secret in ("readmitted", "female"):
        assert secret not in shown

    # A page from elsewhere can neither log out nor read; the session goes on.
    other, pages = elsewhere
    pages["/form"] = (
        '<form method="post" '
        f'action="{service.url}/logout"></form><script>document.forms[0].submit()</script>'
    )
    pages["/read"] = (
        f'<p id="x"></p><script>fetch("{service.url}/audit.jsonl", {{credentials: "include"}})'
        '.then(() => "read", () => "kept out").then(t => document.getElementById("x").textContent '
        "= t)</script>"
    )
    page.goto(f"{other}/form")
    page.get_by_text("it was sent from another page").wait_for()
    page.goto(f"{other}/read")
    page.get_by_text("kept out").wait_for()
    page.goto(service.url)
    page.get_by_text("All jobs").wait_for()

    page.get_by_role("button", name="Log out").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Operator's token").wait_for()
    assert page.context.cookies() == []
    assert {url.split("/")[2] for url in asked} <= {
        service.url.split("/")[2],
        other.split("/")[2],
    }  # nothing from a network


def test_every_state_of_the_workers_page(service: Service, chromium: Any, place: Path) -> None:
    """Log in badly, with nothing there, with a job that nobody begins, and with one that failed."""
    operator, token = service.token("me", "--operator"), service.token("Hospital North")
    service.token("Short", "--days", "2")
    service.start(workers=0)
    tab = Tab(chromium.new_context(viewport=WIDE))
    page = tab.page
    page.goto(service.url)
    tab.look()
    for wrong, said in (
        ("est_nobody", "missing, mistyped, expired or revoked"),
        (token, "one of an operator is needed"),
    ):
        page.get_by_label("Operator's token").fill(wrong)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").get_by_text(said).wait_for()
        tab.look()
    page.goto(f"{service.url}/docs")
    tab.look()
    page.goto(service.url)
    page.get_by_label("Operator's token").fill(operator)
    page.get_by_role("button", name="Log in").click()
    tab.sees("No job yet")
    tab.look()
    page.goto(f"{service.url}/storage")
    tab.sees("Good until")
    tab.look()
    page.goto(f"{service.url}/audit")
    tab.sees("token refused")  # failed logins are written down
    tab.look()

    frame = patients(60)[["age", "sex", "readmitted"]]
    schema = es.Schema.infer(frame, target="readmitted", bins=2)
    keys = es.Owner(es.plan(es.MultinomialNB(), schema, n_rows=60, workers=1))
    with es.connect(service.url, token, patience=60) as worker:
        job = worker.fit(
            es.MultinomialNB(), worker.upload(keys.encrypt(schema.table(frame))), wait=False
        )
        page.goto(service.url)
        tab.sees("No worker is at this queue")
        tab.look()
        page.get_by_label("State").select_option("failed")
        page.get_by_role("button", name="Show").click()
        tab.sees("No job is like that")
        tab.look()
        worker.cancel(job)
        page.goto(service.url)
        page.locator("tr", has_text=job.id[:10]).get_by_text("cancelled").wait_for()
        tab.look()
    page.goto(f"{service.url}/storage")
    page.get_by_role("link", name="What this machine can see").click()
    tab.sees("Its blocks")
    tab.look()
