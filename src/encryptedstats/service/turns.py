"""Turns of owners at the work that takes a server's time: plans and submissions, one per owner at
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from encryptedstats.service.refusals import Refusal

_RETRY_SECONDS: Final = 2


class Turns:
    """Give every owner one turn at a time, and let at most ``count`` owners have theirs at once.

    An owner who asks for a second turn is refused at once. Owners who wait for a free place hold no
    thread, so that the other requests of the server are answered meanwhile.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self._seconds = seconds
        self._owners: set[str] = set()
        self._places = asyncio.Semaphore(count)

    @asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Hold the turn of an owner."""
        if owner in self._owners:
            raise Refusal(
                429,
                "the request",
                "another plan or job of this owner is being worked out, and there is one at a time",
                f"wait {_RETRY_SECONDS} seconds and ask again",
                {"Retry-After": str(_RETRY_SECONDS)},
            )
        self._owners.add(owner)
        try:
            await self._wait_for_place()
            try:
                yield
            finally:
                self._places.release()
        finally:
            self._owners.discard(owner)

    async def _wait_for_place(self) -> None:
        try:
            await asyncio.wait_for(self._places.acquire(), self._seconds)
        except (TimeoutError, asyncio.TimeoutError):
            raise Refusal(
                503,
                "the request",
                "this worker is working out the plans and jobs of other owners",
                "try again in a while",
                {"Retry-After": "5"},
            ) from None
