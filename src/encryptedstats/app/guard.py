"""Who may speak to the owner's page: her own browser, once it has shown the token of the URL that
the program printed.

Other programs of this machine, pages from elsewhere, and names that were made to point here (DNS
rebinding) are turned away before anything else looks at their request. Imports nothing of this
library.
"""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

#: Where the token of the URL is exchanged for a cookie.
ENTRY: Final = "/open"
_SAFE: Final = ("GET", "HEAD")
#: What browsers say of a request that this page itself, or its user, has caused.
_OWN: Final = ("same-origin", "none")
#: Shown once, and left at once for the page. A redirect would not do: the cookie is for requests of
#: this page alone, and a browser that was sent here by a file or another program counts a redirect
#: as theirs.
_WELCOME: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>encryptedstats</title>
<meta http-equiv="refresh" content="0; url=/">
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/style.css"></head>
<body><main><p><a href="/">Go on to your projects</a></p></main></body></html>"""
_REFUSED: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>encryptedstats</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/style.css"></head>
<body><main><h1>This page is not open to you</h1>
<p>Open the address that <code>encryptedstats app</code> has printed in its terminal. Each address
opens one browser, once. If yours was used already, stop the program with Ctrl-C and start it again:
nothing is lost.</p></main></body></html>"""


class Guard:
    """An ASGI application around another: it lets the owner's browser through, and nobody else.

    Parameters
    ----------
    app : ASGI application
    port : int
        Where the page is served, on the loopback address.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.app = app
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        # cookies know no ports: two programs must not take each other's
        self.cookie = f"encryptedstats-{port}"
        self._token: str | None = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)

    @property
    def url(self) -> str:
        """The address to open, with the token in it; it works once."""
        return f"http://{self.hosts[0]}{ENTRY}?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it pass."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websockets here
        refusal = self._answer(scope)
        await (self.app if refusal is None else refusal)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the refusal of a request; None for the owner's."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self.hosts:
            return PlainTextResponse("This page is at 127.0.0.1, under no other name.", 421)
        if scope["path"].startswith("/static/") and scope["method"] in _SAFE:
            return None
        if scope["path"] == ENTRY:
            return self._enter(scope)
        if headers.get("sec-fetch-site", "same-origin") not in _OWN:
            return PlainTextResponse("Another page has asked for this: only its own may.", 403)
        if scope["method"] not in _SAFE and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("Another page has sent this: only its own may.", 403)
        return None if self._is_owner(headers) else HTMLResponse(_REFUSED, 403)

    def _enter(self, scope: Scope) -> Response:
        token = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token", [""])[0]
        if scope["method"] != "GET" or self._token is None or not _is_same(token, self._token):
            return HTMLResponse(_REFUSED, 403)
        self._token = None
        answer = HTMLResponse(_WELCOME)
        answer.set_cookie(
            self.cookie,
            self._session,
            max_age=30 * 86400,
            httponly=True,
            samesite="strict",
            path="/",
        )
        return answer

    def _is_owner(self, headers: Headers) -> bool:
        jar = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return False
        found = jar.get(self.cookie)
        return found is not None and _is_same(found.value, self._session)


def _is_same(sent: str, wanted: str) -> bool:
    return hmac.compare_digest(sent.encode(), wanted.encode())
