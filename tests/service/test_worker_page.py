"""The worker's page: who may see it, what it shows, and that no other page can use it. A real
browser is in tests/browser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import service_samples as service
from cluster_samples import FOREST, Hospital

import encryptedstats as es
from encryptedstats.service import sessions, tokens


@pytest.fixture(scope="module")
def operator(server: service.Server) -> str:
    return server.token("the operator", role=tokens.OPERATOR)


@pytest.fixture
def page(server: service.Server) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        yield client


def logged_in(page: httpx2.Client, token: str) -> httpx2.Client:
    answer = page.post("/login", data={"token": token})
    assert answer.status_code == 303, answer.text
    return page


def test_strangers_see_a_form_and_nothing_else(page: httpx2.Client) -> None:
    for path in ("/", "/storage", "/audit", "/audit.jsonl", f"/seen/{'0' * 32}/{'0' * 64}"):
        text = page.get(path).text
        assert "Operator&#39;s token" in text or "Operator's token" in text
        assert "All jobs" not in text
    part = page.get("/parts/jobs", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"], part.content) == (204, "/", b"")
    assert "put object" not in page.get("/audit.jsonl").text


def test_an_owners_token_does_not_open_it_and_an_operators_sees_no_object(
    server: service.Server, page: httpx2.Client, operator: str
) -> None:
    assert page.post("/login", data={"token": "est_wrong"}).status_code == 401
    assert page.post("/login", data={"token": server.token("an owner")}).status_code == 403
    assert page.cookies.get(sessions.COOKIE) is None
    with server.raw(operator) as client:
        assert client.get("/v1/jobs").status_code == 403


def test_the_cookie_is_kept_from_scripts_and_other_sites(
    page: httpx2.Client, operator: str, server: service.Server
) -> None:
    answer = page.post("/login", data={"token": operator})
    flags = answer.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    assert operator not in flags
    value = page.cookies[sessions.COOKIE]
    assert not [
        path
        for path in (server.folder / "storage/sessions").iterdir()
        if value in path.read_text() + path.name
    ]
    assert "All jobs" in page.get("/").text
    assert page.post("/logout").status_code == 303
    page.cookies.set(sessions.COOKIE, value)
    assert "All jobs" not in page.get("/").text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none", "Origin": "null"},
        {"Origin": "null"},
    ],
)
def test_forms_of_other_pages_are_refused(
    page: httpx2.Client, operator: str, headers: dict[str, str]
) -> None:
    for path in ("/login", "/logout"):
        answer = page.post(path, data={"token": operator}, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["why"] == "it was sent from another page"
    assert page.post("/login", content=b"token=" + b"x" * 20_000).status_code == 413


def test_a_session_ends_with_its_token(page: httpx2.Client, server: service.Server) -> None:
    token = server.token("short", role=tokens.OPERATOR)
    logged_in(page, token)
    tokens.revoke(server.store, "short")
    service.wait_until(lambda: "All jobs" not in page.get("/").text)


def test_what_the_page_shows(
    page: httpx2.Client, operator: str, north: es.Worker, server: service.Server, hospital: Hospital
) -> None:
    table = north.upload(hospital.table)
    job = north.fit(FOREST, table, wait=False)
    job.wait()
    logged_in(page, operator)
    jobs = page.get("/").text
    for shown in (
        job.id[:10],
        "north",
        "CompletelyRandomForest",
        "done",
        "120 of 120 rows",
        "native",
        "none, and none is taken",
    ):
        assert shown in jobs
    assert job.id[:10] in page.get("/parts/jobs").text
    stored = page.get("/storage").text
    assert "north" in stored
    seen = page.get(re.findall(r"/seen/[0-9a-f]{32}/" + table.name, stored)[0]).text
    for entry in es.load(hospital.table).blocks.entries:
        assert entry.name.rpartition("/")[2] in seen
    assert "v0: continuous, 3 bins" in seen
    for secret in ("age", "sex", "ill", "yes"):
        assert f">{secret}<" not in seen
    log = page.get("/audit").text
    assert "put table" in log
    exported = page.get("/audit.jsonl")
    assert exported.content == (server.folder / "audit.jsonl").read_bytes()
    assert page.get(f"/seen/{'0' * 32}/{table.name}").status_code == 404


def test_pages_load_nothing_from_elsewhere(page: httpx2.Client, operator: str) -> None:
    logged_in(page, operator)
    for path in ("/", "/storage", "/audit", "/docs"):
        text = page.get(path).text
        assert not re.findall(r'(?:src|href|action)="(?:https?:)?//', text)
        assert "<script>" not in text
        assert " style=" not in text


def test_a_name_cannot_become_markup(
    page: httpx2.Client, operator: str, server: service.Server
) -> None:
    server.token("<script>alert(1)</script>")
    logged_in(page, operator)
    text = page.get("/storage").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_stranger_can_use_the_document(page: httpx2.Client) -> None:
    document = page.get("/openapi.json").json()
    docs = page.get("/docs").text
    for path, methods in document["paths"].items():
        assert path in docs
        for call in methods.values():
            assert call["summary"]
            assert call["description"]
    assert document["components"]["securitySchemes"]
    assert "Authorization: Bearer TOKEN" in docs
    assert set(document["components"]["schemas"]["Error"]["required"]) == {"what", "why", "cure"}


def test_jobs_are_chosen_by_state_and_owner(
    page: httpx2.Client, operator: str, north: es.Worker, hospital: Hospital
) -> None:
    job = north.fit(FOREST, north.upload(hospital.table), wait=False)
    job.wait()
    logged_in(page, operator)
    for query, is_there in (
        ("state=done", True),
        ("state=failed", False),
        ("owner=north", True),
        ("state=done&owner=nobody", False),
        ("state=%22%3E%3Cscript%3E", False),
    ):
        for path in ("/", "/parts/jobs"):
            text = page.get(f"{path}?{query}").text
            assert (job.id in text) == is_there, (path, query)
            assert "><script>" not in text


def test_jobs_that_nobody_begins_are_spoken_of(tmp_path: Path, hospital: Hospital) -> None:
    with (
        service.Server(tmp_path) as lonely,
        lonely.connect("north") as worker,
        httpx2.Client(base_url=lonely.url, trust_env=False, timeout=30) as page,
    ):
        worker.fit(FOREST, worker.upload(hospital.table), wait=False)
        logged_in(page, lonely.token("the operator", role=tokens.OPERATOR))
        assert "No worker is at this queue" not in page.get("/").text  # it was asked just now
        for record in (tmp_path / "storage/owners").glob("*/jobs/*"):
            values = json.loads(record.read_text())
            record.write_text(json.dumps({**values, "made": "2026-01-01T00:00:00+00:00"}))
        assert "No worker is at this queue" in page.get("/").text


def test_the_page_says_until_when_tokens_are_good(
    page: httpx2.Client, operator: str, server: service.Server
) -> None:
    _, holder = tokens.add(server.store, "for a while", days=2)
    assert holder.expires is not None
    logged_in(page, operator)
    assert holder.expires[:10] in page.get("/storage").text
