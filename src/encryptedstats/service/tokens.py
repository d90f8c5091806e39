"""Tokens: who may come in. One object for each, named by its SHA-256, in the storage; the token
itself is kept by nobody here.

A token is 256 random bits, so that a plain hash of it tells nothing; a slow one would only help
against guesses, of which there are too many. Every owner has an id that is random too, under which
all that is hers lies: what she calls herself is never a path.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from encryptedstats.errors import ArgumentError
from encryptedstats.storage.objects import Store

TOKENS: Final = "tokens/"
OWNER, OPERATOR = "owner", "operator"
PREFIX: Final = "est_"  # by which people and scanners of secrets know one
_BYTES: Final = 32
_MAX_RECORD: Final = 1 << 14
_MAX_NAME: Final = 100
_MAX_DAYS: Final = 3660
_KNOWN_SECONDS: Final = (
    3.0  # for which a token that was good is not looked up again: so long a revoked one may live
)


@dataclass(frozen=True)
class Holder:
    """Whose a token is.

    Attributes
    ----------
    sha256 : str
        Of the token.
    name : str
        What the operator calls the holder; shown on the page and in the audit log, and used for
        nothing else.
    owner : str
        A random id: where all that is hers lies.
    role : "owner" or "operator"
        An operator sees the page and no object of anybody; an owner sees what is hers.
    made : str
    quota_bytes : int or None
        What her objects may take; None for what the server says.
    expires : str or None
        The time from which on the token is refused; None for never.
    """

    sha256: str
    name: str
    owner: str
    role: str
    made: str
    quota_bytes: int | None = None
    expires: str | None = None

    @property
    def has_expired(self) -> bool:
        """Whether the token is refused for its age."""
        if self.expires is None:
            return False
        return datetime.fromisoformat(self.expires) <= datetime.now(timezone.utc)

    @property
    def id(self) -> str:
        """Enough of the hash to tell tokens apart."""
        return self.sha256[:12]


def add(
    store: Store,
    name: str,
    *,
    role: str = OWNER,
    quota_bytes: int | None = None,
    days: float | None = None,
) -> tuple[str, Holder]:
    """Make a token and return it with its holder. It is never shown again. A second token of a name
    is the same owner's. It is accepted for some days, or until it is revoked.
    """
    if not name.strip() or len(name) > _MAX_NAME or not name.isprintable():
        raise ArgumentError(
            f"a name of 1 to {_MAX_NAME} printable characters is needed, not {name!r}",
            code="malformed-name",
        )
    same = [holder for holder in holders(store) if holder.name == name]
    if any(holder.role != role for holder in same):
        raise ArgumentError(
            f"{name!r} has a token as {same[0].role} already: give another name", code="name-taken"
        )
    token = PREFIX + secrets.token_urlsafe(_BYTES)
    owner = same[0].owner if same else secrets.token_hex(16)
    quota = same[0].quota_bytes if same and quota_bytes is None else quota_bytes
    if days is not None and not 0 < days <= _MAX_DAYS:
        raise ArgumentError(
            f"a token is good for more than 0 and at most {_MAX_DAYS:,} days, not {days!r}",
            code="days-out-of-range",
        )
    now = datetime.now(timezone.utc)
    end = None if days is None else (now + timedelta(days=days)).isoformat(timespec="seconds")
    made = now.isoformat(timespec="seconds")
    holder = Holder(_digest(token), name, owner, role, made, quota, end)
    store.create(TOKENS + holder.sha256, json.dumps(asdict(holder)).encode())
    return token, holder


def revoke(store: Store, name_or_id: str) -> list[Holder]:
    """Take back all tokens of a name, or the one of an id; what their owner has stored stays."""
    found = [holder for holder in holders(store) if name_or_id in (holder.name, holder.id)]
    for holder in found:
        store.delete(TOKENS + holder.sha256)
    return found


def holders(store: Store) -> list[Holder]:
    """Whose the tokens are, by name."""
    found = (_read(store, name.removeprefix(TOKENS)) for name in store.sizes(TOKENS))
    return sorted(
        (holder for holder in found if holder is not None),
        key=lambda holder: (holder.name, holder.made),
    )


def _read(store: Store, digest: str) -> Holder | None:
    try:
        holder = Holder(**json.loads(store.read(TOKENS + digest, limit=_MAX_RECORD)))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return holder if hmac.compare_digest(holder.sha256, digest) else None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Tokens:
    """The tokens of a storage, as a server asks for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, Holder]] = {}

    def holder(self, token: str) -> Holder | None:
        """Whose a token is; None for one that is nobody's."""
        return self.of_hash(_digest(token))

    def of_hash(self, digest: str) -> Holder | None:
        """Whose the token of a hash is."""
        now = time.monotonic()
        since, holder = self._known.get(digest, (float("-inf"), None))
        if holder is not None and now - since < _KNOWN_SECONDS:
            return None if holder.has_expired else holder
        found = _read(self._store, digest)
        found = None if found is not None and found.has_expired else found
        self._known = {
            one: known for one, known in self._known.items() if now - known[0] < _KNOWN_SECONDS
        }
        if found is not None:
            self._known[digest] = (now, found)
        return found
