"""Who is logged in to the worker's page: a random cookie, whose hash lies in the storage beside the
tokens.

So a session outlives a restart, is known to a second server, and ends with the token that it was
begun with.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from typing import Final

from encryptedstats.service.tokens import OPERATOR, Holder, Tokens
from encryptedstats.storage.objects import Store

COOKIE: Final = "encryptedstats_session"
SECONDS: Final = 12 * 3600
_SESSIONS: Final = "sessions/"
_MAX_RECORD: Final = 1 << 12


class Sessions:
    """Sessions of operators."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store, self._tokens = store, tokens

    def begin(self, holder: Holder) -> str:
        """Begin a session and return the value of its cookie."""
        self._tidy()
        value = secrets.token_urlsafe(32)
        record = {"token": holder.sha256, "until": time.time() + SECONDS}
        self._store.create(_name(value), json.dumps(record).encode())
        return value

    def holder(self, value: str) -> Holder | None:
        """Whose a session is; None of one that is over, or whose token was revoked."""
        try:
            record = json.loads(self._store.read(_name(value), limit=_MAX_RECORD))
            until, token = float(record["until"]), str(record["token"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None
        holder = self._tokens.of_hash(token) if time.time() < until else None
        return holder if holder is not None and holder.role == OPERATOR else None

    def end(self, value: str) -> None:
        """Log out."""
        self._store.delete(_name(value))

    def _tidy(self) -> None:
        for name in self._store.sizes(_SESSIONS):
            try:
                over = time.time() > float(
                    json.loads(self._store.read(name, limit=_MAX_RECORD))["until"]
                )
            except (FileNotFoundError, ValueError, TypeError, KeyError):
                over = True
            if over:
                self._store.delete(name)


def _name(value: str) -> str:
    return _SESSIONS + hashlib.sha256(value.encode()).hexdigest()
