"""With which schema a result is opened: that of its rows, and no other of the same shape.

Results carry a keyed digest of the private schema (see :mod:`encryptedstats.crypto.digests`), which only the owner can compare.
"""

from __future__ import annotations

import os
from typing import Any, Final, Protocol

from encryptedstats.crypto.dispatch import decrypt_value
from encryptedstats.crypto.encryption import Decryptor
from encryptedstats.crypto.keys import PublicKeys
from encryptedstats.errors import Cure, SchemaError
from encryptedstats.tables.answers import EncryptedAnswer
from encryptedstats.tables.schema.schema import Schema
from encryptedstats.tables.schema.variables import PublicSchema

_CURE: Final = Cure(
    "schema of the rows",
    "give the schema that the table was encrypted with, schema= (keep its file beside the secret key)",
)


class Digested(Protocol):
    """A result that knows its keys, and its rows' schema by a digest."""

    @property
    def keys(self) -> PublicKeys:
        """The keys it belongs to."""

    @property
    def schema_digest(self) -> str | None:
        """The keyed digest of the private schema."""


@decrypt_value.register(EncryptedAnswer)
def _open_answer(answer: EncryptedAnswer, decryptor: Decryptor, *, schema: Any = None) -> Any:
    """What the question makes of the opened totals, or of the opened numbers of rows."""
    known = opening_schema(schema, answer.schema, answer, decryptor)
    return answer.read(decrypt_value(answer.ciphertexts, decryptor), known)


def opening_schema(
    given: Schema | str | os.PathLike[str] | None, known: Schema | PublicSchema, totals: Digested, decryptor: Decryptor
) -> Schema | PublicSchema:
    """The schema to open a result with: the one that is given, if it is that of the rows, else what is known of it here."""

    decryptor.check_own(totals.keys)
    if given is None:
        return known
    if isinstance(given, (str, os.PathLike)):
        given = Schema.load(given)
    if not isinstance(given, (Schema, PublicSchema)):
        raise TypeError(f"schema= is a Schema or the path of its file, not a {type(given).__name__}: {_CURE}")
    if given.public() != known.public():
        raise SchemaError(
            "this schema is not the one of the rows, the numbers of variables, bins or classes differ: ", _CURE
        )
    if isinstance(given, PublicSchema):
        return given
    if totals.schema_digest is not None:
        same = totals.schema_digest == decryptor.schema_digest(given.digest_json())
    else:
        same = isinstance(known, PublicSchema) or given.same_bins(known)
    if not same:
        raise SchemaError(
            "this schema has the shape of that of the rows, and yet it is another one: cut points, levels, names, their order, or "
            "the classes differ. The result would have wrong labels: ",
            _CURE,
        )
    return given
