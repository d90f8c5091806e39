"""What the door refuses, as data: what was refused, why, and what to do. The client raises the same
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """

    status: int
    what: str
    why: str
    cure: str
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.cure}"

    def body(self) -> dict[str, str]:
        """What is sent."""
        return {"what": self.what, "why": self.why, "cure": self.cure}


def missing(what: str) -> Refusal:
    """What is not there. That of another owner looks the same: nobody learns that it exists."""
    return Refusal(
        404,
        f"no such {what}",
        f"this token has no {what} of that name",
        "check the name, or upload it again",
    )
