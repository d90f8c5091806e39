"""Who may speak to the owner's page. Each of these fails where its check is taken out
of the guard.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from desk_helpers import BASE, PORT, Page
from fastapi.testclient import TestClient

from encryptedstats.app.desk import Desk
from encryptedstats.app.server import guard_app, listening


@pytest.fixture
def door(tmp_path: Path) -> tuple[TestClient, str]:
    app, url = guard_app(Desk(tmp_path / "home", None), PORT, tmp_path)
    return TestClient(app, base_url=BASE), url


def test_nobody_comes_in_without_the_address(door: tuple[TestClient, str]) -> None:
    client, _ = door
    for path in ("/", "/p/abc/data", "/open", "/open?token=", "/open?token=wrong"):
        answer = client.get(path)
        assert answer.status_code == 403
        assert "Open the address that" in answer.text
    assert client.cookies.get(f"encryptedstats-{PORT}") is None


def test_the_address_works_once(door: tuple[TestClient, str]) -> None:
    client, url = door
    assert client.get(url).status_code == 200
    assert client.get("/").status_code == 200
    client.cookies.clear()
    assert client.get(url).status_code == 403
    assert client.get("/").status_code == 403


def test_the_cookie_is_for_this_page_and_no_script(door: tuple[TestClient, str]) -> None:
    client, url = door
    said = client.get(url).headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=strict" in said
    assert url.partition("token=")[2].lower() not in said


def test_a_cookie_that_was_made_up_is_refused(door: tuple[TestClient, str]) -> None:
    client, _ = door
    client.cookies.set(f"encryptedstats-{PORT}", "made-up")
    assert client.get("/").status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""]
)
def test_another_name_for_this_machine_is_refused(page: Page, host: str) -> None:
    """DNS rebinding: the owner's browser is led here under the name of another page, and sends that
    name.
    """
    assert page.client.get("/", headers={"Host": host}).status_code == 421
    assert page.client.get("/static/style.css", headers={"Host": host}).status_code == 421
    assert page.client.get("/", headers={"Host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", f"http://127.0.0.1:{PORT + 1}", "http://127.0.0.1", ""],
)
def test_a_form_of_another_page_is_refused(page: Page, origin: str) -> None:
    """CSRF: the cookie would come along, also from another port of this machine, which browsers
    count as the same site.
    """
    before = len(page.desk.projects.all()[0])
    assert (
        page.client.post("/projects", data={"title": "x"}, headers={"Origin": origin}).status_code
        == 403
    )
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
        assert (
            page.client.request(method, "/projects", headers={"Origin": origin}).status_code == 403
        )
    assert len(page.desk.projects.all()[0]) == before


def test_a_form_that_does_not_say_where_it_is_from_is_refused(page: Page) -> None:
    del page.client.headers["Origin"]
    assert page.client.post("/projects", data={"title": "x"}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_page_cannot_load_anything(page: Page, site: str) -> None:
    """An image, a frame or a script of this page in another one, or a link from there: browsers say
    so.
    """
    assert page.client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 403
    assert page.client.get("/", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_other_origins_are_never_allowed_to_read(page: Page) -> None:
    answer = page.client.get("/", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_refusals_have_the_headers_too(door: tuple[TestClient, str]) -> None:
    client, _ = door
    for answer in (client.get("/"), client.get("/", headers={"Host": "evil.example"})):
        assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_it_listens_on_the_loopback_address_only() -> None:
    with listening(0) as made:
        host, port = made.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is taken"):
            listening(port)
