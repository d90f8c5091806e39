"""The shared look: what every answer of either server carries, and that nothing of a page comes
from elsewhere.
"""

from __future__ import annotations

from importlib import resources

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from encryptedstats.pages import STATIC, SecurityHeaders, environment, static_files


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    app.include_router(static_files())
    app.add_middleware(SecurityHeaders)
    return TestClient(app)


@pytest.mark.parametrize("path", ["/static/style.css", "/nothing"])
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"].split("; ")
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not [part for part in policy if "unsafe" in part or "http" in part or "*" in part]
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] in ("no-store", "no-cache")


@pytest.mark.parametrize("name", STATIC)
def test_static_files_are_there(client: TestClient, name: str) -> None:
    answer = client.get(f"/static/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].split(";")[0] in (
        "text/css",
        "text/javascript",
        "image/svg+xml",
    )


@pytest.mark.parametrize("name", ["htmx.LICENSE", "..%2f__init__.py", "../__init__.py", "", ".."])
def test_other_files_are_not(client: TestClient, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404


def test_nothing_comes_from_elsewhere_and_no_page_has_script_or_style_of_its_own() -> None:
    pages = [
        file
        for package in ("pages",)
        for file in (resources.files(f"encryptedstats.{package}") / "templates").iterdir()
        if file.name.endswith(".html")
    ]
    assert pages
    for file in pages:
        text = file.read_text()
        for forbidden in (
            "//cdn",
            'src="http',
            'href="http',
            "<style",
            "style=",
            "onclick",
            "onload",
            "javascript:",
        ):
            assert forbidden not in text, (file, forbidden)
        assert text.count("<script") == text.count('<script src="/static/'), file
    css = (resources.files("encryptedstats.pages") / "static" / "style.css").read_text()
    assert "@import" not in css
    assert "url(" not in css


def test_what_is_shown_is_escaped() -> None:
    shown = (
        environment("encryptedstats.pages", "owner")
        .from_string("{{ name }}")
        .render(name="<script>x</script>")
    )
    assert shown == "&lt;script&gt;x&lt;/script&gt;"
