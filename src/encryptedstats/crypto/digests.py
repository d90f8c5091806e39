"""Keyed digests of what only the owner knows: anybody can carry one along, and only the owner can
make or compare it.

Whoever has no secret key sees which results have the same digest, and nothing else. Absent (None)
is what was encrypted with the public key: whoever did has no secret to make a digest with.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from encryptedstats.errors import FileFormatError, SchemaError
from encryptedstats.storage.container import Container

DIGEST_FIELD: Final = "schema_digest"
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def keyed_digest(key: bytes, purpose: str, data: bytes) -> str:
    """HMAC-SHA256 in hexadecimal; digests for different purposes cannot be taken for each other."""
    return hmac.new(key, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def read_digest(file: Container) -> str | None:
    """The digest in the fields of a file; None where there is none."""
    digest = file.fields.get(DIGEST_FIELD)
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise FileFormatError(
            f"field {DIGEST_FIELD!r} of the {file.kind} file is no digest", code="malformed-digest"
        )
    return digest


def joined_digest(a: str | None, b: str | None) -> str | None:
    """The digest of both; refused where they differ. What has none is taken as it is: nobody can
    vouch for it.
    """
    if a is not None and b is not None and a != b:
        raise SchemaError(
            "these were encrypted with different schemas of the same shape (cut points, levels, "
            "names, their order, or classes "
            "differ): only rows that were encrypted with one and the same schema can be brought "
            "together",
            code="different-schemas",
        )
    return a if a is not None else b
