"""Refusals that are read: who is cut off while sending a body may never see why, and a proxy before
it says 502 instead.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SECONDS: Final = 2.0


def has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    headers = dict(scope.get("headers", ()))
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


class Lingering:
    """An ASGI application around another: where that answers before it has read a body, what still
    comes is thrown away a while.

    The answer is sent at once. Then the connection stays open until the body has ended, the other
    side has gone, or two seconds are over: closed with bytes unread, it would be reset, and the
    answer be lost on the way.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        unread = has_body(scope)

        async def watch_reads() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and bool(
                message.get("more_body", False)
            )  # neither at its end, nor after a disconnection
            return message

        async def drain() -> None:
            end = time.monotonic() + _SECONDS
            try:
                while unread and (left := end - time.monotonic()) > 0:
                    await asyncio.wait_for(watch_reads(), left)
            except asyncio.TimeoutError:
                return

        async def lingering(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get(
                "more_body", False
            )
            if not (is_last and unread):
                await send(message)
                return
            await send({**message, "more_body": True})
            await drain()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        await (
            self.app(scope, watch_reads, lingering)
            if scope["type"] == "http" and unread
            else self.app(scope, receive, send)
        )
