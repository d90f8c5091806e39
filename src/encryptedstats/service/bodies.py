"""Request bodies of anybody: how large they may be, and how slowly they may arrive, before
anybody has shown a token.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encryptedstats.service.limits import Limits
from encryptedstats.service.lingering import has_body
from encryptedstats.service.refusals import Refusal

T = TypeVar("T")
_OBJECTS: Final = "/v1/objects/"


class Pace:
    """How fast a body comes. One that stands still or crawls is given up."""

    def __init__(self, what: str, limits: Limits) -> None:
        self._what, self._limits, self._started = what, limits, time.monotonic()

    async def part(self, coming: Awaitable[T]) -> T:
        """Return the next part of the body, if it arrives in time."""
        try:
            return await asyncio.wait_for(coming, self._limits.idle_seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise self._too_slow(
                f"nothing came for {self._limits.idle_seconds:g} seconds"
            ) from None

    def check(self, received: int) -> None:
        """Refuse a body of which no more than this has come so far, if that is too little."""
        late = time.monotonic() - self._started - self._limits.idle_seconds
        if late > 0 and received < late * self._limits.least_bytes_per_second:
            raise self._too_slow(
                f"less than {self._limits.least_bytes_per_second:,} bytes a second came"
            )

    def _too_slow(self, why: str) -> Refusal:
        return Refusal(
            408, self._what, why, "send it again, over a better line", {"Connection": "close"}
        )


class Bounded:
    """An ASGI application around another, which gets a body when all of it is there, in time and
    not too large.

    Objects alone go by: they are written to disk as they come, and who may send them is known
    before.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or not has_body(scope) or _is_object(scope):
            await self.app(scope, receive, send)
            return
        try:
            body = await self._body(scope, receive)
        except Refusal as refusal:
            await answer_to(refusal)(scope, receive, send)
            return
        if body is None:
            return  # nobody is there any more
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_part() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, receive_part, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said) > self.limits.request_bytes:
            raise self._too_large()
        pace, body = Pace("the request", self.limits), bytearray()
        while True:
            message = await pace.part(receive())
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self.limits.request_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)
            pace.check(len(body))

    def _too_large(self) -> Refusal:
        return Refusal(
            413,
            "the request",
            f"its body is over the limit of {self.limits.request_bytes:,} bytes",
            "ask for less at once",
            {"Connection": "close"},
        )


class AsciiJSON(JSONResponse):
    """JSON of ASCII characters: names that a request brings may have parts that UTF-8
    cannot write.
    """

    def render(self, content: Any) -> bytes:
        """Return the bytes to send."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer_to(refusal: Refusal) -> JSONResponse:
    """Return the response to a refusal."""
    return AsciiJSON(refusal.body(), refusal.status, headers=refusal.headers)


def _is_object(scope: Scope) -> bool:
    path: str = scope["path"]
    return scope["method"] == "PUT" and path.startswith(_OBJECTS)
