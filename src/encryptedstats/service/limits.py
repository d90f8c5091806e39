"""How much one owner may ask for: requests a second, bytes, jobs. And how long a body may take."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from encryptedstats.service.refusals import Refusal
from encryptedstats.words import plural

# owners and addresses whose requests are counted; the ones longest not seen are forgotten
_REMEMBERED: Final = 10_000


@dataclass(frozen=True)
class Limits:
    """What a server allows.

    Attributes
    ----------
    object_bytes : int
        Of one object.
    request_bytes : int
        Of the body of any other request.
    quota_bytes : int
        Of all objects, tables and results of an owner.
    jobs : int
        Of an owner that are not finished.
    totals : int
        Of one question: its circuit is written down by the server, before workers share it.
    making_seconds : float
        Until a plan or a job is given up that is not worked out.
    requests_per_second : float
        Of an owner, in the long run; ``burst`` of them at once.
    failures_per_minute : float
        Of an address whose tokens are refused.
    makers : int
        Processes that work out plans and jobs. An owner has one at a time; others use the rest.
    connections : int
        Open connections of one address. A proxy speaks for many, and has no limit.
    idle_connections : int
        Open connections of one address that send no request. The oldest is closed for a new one.
    idle_seconds : float
        For which a body may stand still, or a connection say nothing.
    least_bytes_per_second : int
        As slow as a body may be, over all of it.
    """

    object_bytes: int = 8 << 30
    request_bytes: int = 16 << 20
    quota_bytes: int = 256 << 30
    jobs: int = 100
    totals: int = 1_000_000
    making_seconds: float = 120.0
    requests_per_second: float = 100.0
    burst: int = 400
    failures_per_minute: float = 30.0
    makers: int = 4
    connections: int = 256
    idle_connections: int = 64
    idle_seconds: float = 30.0
    least_bytes_per_second: int = 1 << 10


@dataclass
class _Bucket:
    left: float
    since: float = field(default_factory=time.monotonic)


class Rate:
    """So many a second for each, and some more at once."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, who: str) -> float:
        """Seconds to wait until one more is allowed; 0 where it is, and was counted."""
        with self._lock:
            bucket = self._refill(who)
            if bucket.left >= 1:
                bucket.left -= 1
                return 0.0
            return (1 - bucket.left) / self._per_second

    def _refill(self, who: str) -> _Bucket:
        now = time.monotonic()
        bucket = self._buckets.setdefault(who, _Bucket(self._burst, now))
        self._buckets.move_to_end(who)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.since) * self._per_second)
        bucket.since = now
        return bucket


def too_many(what: str, seconds: float) -> Refusal:
    """Return the refusal of a request beyond the limit."""
    wait = max(1, round(seconds + 0.5))
    return Refusal(
        429,
        what,
        "there were too many requests in a short time",
        f"wait {plural(wait, 'second')} and go on",
        {"Retry-After": str(wait)},
    )
