"""Where the jobs of a queue may read and write.

Otherwise anybody who can store a job in the queue could make a worker read or write any address.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from encryptedstats.cluster.jobs import StoredJob, absolute
from encryptedstats.errors import ClusterError
from encryptedstats.storage.objects import check_protocol, is_url, local_or_url

ALLOW_VARIABLE: Final = "ENCRYPTEDSTATS_ALLOW"


def allowed_places(queue: str, more: Sequence[str]) -> tuple[str, ...]:
    """Return the folder or bucket of a queue, and the places that were allowed as well."""
    address = absolute(queue)
    if is_url(address):
        protocol, _, path = address.partition("://")
        own = f"{protocol}://{path.partition('/')[0]}"
    else:
        own = str(Path(address).parent)
    listed = os.environ.get(ALLOW_VARIABLE, "").split(",")
    return (own, *(absolute(place) for place in (*more, *listed) if place))


def check_places(job: StoredJob, allowed: Sequence[str]) -> None:
    """Refuse a job that names a place outside of those that are allowed."""
    for what, address in job.addresses.items():
        if is_url(local_or_url(address)):
            check_protocol(address)
        if not any(is_within(address, place) for place in allowed):
            raise ClusterError(
                f"job {job.id[:12]} names {address} as its {what}, and this worker touches what "
                f"lies within {', '.join(allowed)}: "
                f"if that is meant, allow it (allow=[...], or {ALLOW_VARIABLE} in the environment)",
                code="place-not-allowed",
            )


def is_within(address: str, place: str) -> bool:
    """Return True if an address lies at or below a place, with links and ``..`` resolved.

    >>> is_within("s3://bucket/work/../x", "s3://bucket/work")
    False
    >>> is_within("s3://bucket2/x", "s3://bucket")
    False
    """
    address, place = local_or_url(address), local_or_url(place)
    if is_url(address) != is_url(place):
        return False
    if not is_url(address):
        return Path(os.path.realpath(address)).is_relative_to(os.path.realpath(place))
    parts, inside = address.split("/"), place.rstrip("/").split("/")
    return not {"..", "."} & set(parts) and parts[: len(inside)] == inside
