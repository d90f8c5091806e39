"""What the door refuses, as data: what was refused, why, and what to do. The client raises the same
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from encryptedstats.errors import Failure


@dataclass
class Refusal(Exception):
    """A request that is not done.

    Attributes
    ----------
    status : int
        Of HTTP.
    what, why, cure : str
        What was refused, the reason, and what the caller can do about it.
    headers : dict
        Such as ``Retry-After``.
    failure : Failure
        The error of the library, where there was one: a client raises the same.
    """

    status: int
    what: str
    why: str
    cure: str
    headers: dict[str, str] = field(default_factory=dict)
    failure: Failure = field(default_factory=lambda: Failure(""))

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.cure}"

    def body(self) -> dict[str, str]:
        """Return the body of the answer."""
        body = {"what": self.what, "why": self.why, "cure": self.cure}
        known = {"error": self.failure.error, "code": self.failure.code}
        return body | {name: value for name, value in known.items() if value}


def missing(what: str) -> Refusal:
    """Refuse what is not stored. What another owner has looks the same: nobody learns that it
    exists.
    """
    return Refusal(
        404,
        f"no such {what}",
        f"this token has no {what} of that name",
        "check the name, or upload it again",
    )
