"""Keyed digests of facts that only the owner knows.

Anybody can copy such a digest and see which results carry the same one. Only the holder of the
secret key can make one or check it. Data that was encrypted with the public key has no digest
(None), since a contributor has no secret to make one with.
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
    """Compute an HMAC-SHA256 in hexadecimal. Digests for different purposes never collide."""
    return hmac.new(key, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def read_digest(file: Container) -> str | None:
    """Return the digest in the fields of a file, or None."""
    digest = file.fields.get(DIGEST_FIELD)
    if digest is not None and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise FileFormatError(
            f"field {DIGEST_FIELD!r} of the {file.kind} file is no digest", code="malformed-digest"
        )
    return digest


def join_digests(a: str | None, b: str | None) -> str | None:
    """Return the digest of two parts, or raise an error where the digests differ.

    A part without a digest is accepted: nobody can vouch for it.
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
