"""The look that the owner's page and the worker's page share, and the headers that keep both to
themselves.

No build step, no network: templates, one stylesheet, htmx and one small script of our own are files
of this package. Knows nothing of encryption. Needs FastAPI and Jinja2, the extras ``app`` and
``service``.
"""

from __future__ import annotations

import mimetypes
from importlib import resources
from typing import Final, Literal

import jinja2
from fastapi import APIRouter, HTTPException, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encryptedstats.words import plural, size_text, time_text

#: What a page may load: its own files. No script or style of a page itself, so that nothing that is
#: shown can become one.
CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
#: On every answer of either server.
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers then send "Origin: null" with a form, and forms of other pages could
    # not be told from our own.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: The files that are served, by the name they are asked for: no other can be.
STATIC: Final = ("style.css", "pages.js", "htmx.min.js", "icon.svg")


class SecurityHeaders:
    """An ASGI application around another, whose every answer has :data:`SECURITY_HEADERS`; pages
    are kept by no cache.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


def environment(package: str, role: Literal["owner", "worker"]) -> jinja2.Environment:
    """Templates of a package, in its folder ``templates``, over the shared ones; everything is
    escaped. The role sets the colour.

    >>> templates = environment("encryptedstats.pages", "worker")
    >>> templates.from_string("{{ word }} {{ 2048 | size }}").render(word="<b>")
    '&lt;b&gt; 2.0 kB'
    """
    own = [jinja2.PackageLoader(package)] if package != __name__ else []
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*own, jinja2.PackageLoader(__name__)]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.globals["role"] = role
    made.filters |= {
        "size": size_text,
        "seconds": time_text,
        "plural": plural,
        "sentence": sentence,
    }
    return made


def sentence(text: str) -> str:
    """Capitalise the beginning of a sentence, unless it is an address or the name of a file or
    column.

    >>> sentence("the passphrase is wrong"), sentence("https://worker.example refuses it")
    ('The passphrase is wrong', 'https://worker.example refuses it')
    >>> sentence("v0 has no bins")
    'v0 has no bins'
    """
    first = text.partition(" ")[0].rstrip(".,:;")
    return (
        text[:1].upper() + text[1:] if first.replace("'", "").replace("-", "").isalpha() else text
    )


def static_files() -> APIRouter:
    """Return the route ``/static/NAME`` for the files of the shared design."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(404)
        kind = mimetypes.guess_type(name)[0]
        return Response(_content(name), media_type=kind, headers={"Cache-Control": "no-cache"})

    return router


def _content(name: str) -> bytes:
    return (resources.files(__name__) / "static" / name).read_bytes()
